"""A mapping whose successors share nearly all of it is a mapping all the same."""

from __future__ import annotations

from typing import TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

from federation.capacity.sharing import SharingMap

_Step: TypeAlias = tuple[dict[str, int], set[str]]

# Enough for several parts, which are made anew as they fill.
keys = st.integers(0, 600).map(str)
many = st.integers(0, 500).map(lambda count: {str(number): -number for number in range(count)})
steps = st.tuples(many | st.dictionaries(keys, st.integers(), max_size=20), st.sets(keys))


def assert_is(found: SharingMap[int], expected: dict[str, int]) -> None:
    assert dict(found.items()) == expected
    assert len(found) == len(expected)
    for key in ("0", "300", "599", "never"):
        assert (key in found) == (key in expected)
        assert found.get(key) == expected.get(key)


@settings(max_examples=100, deadline=None)
@given(many, st.lists(steps, max_size=6))
def test_changes_make_another_map_and_leave_the_ones_before(
    first: dict[str, int], changes: list[_Step]
) -> None:
    made, expected = [SharingMap.of(first)], [dict(first)]
    for items, chosen in changes:
        gone = chosen - items.keys()
        made.append(made[-1].with_changes({**items, **dict.fromkeys(gone)}))
        after = expected[-1] | items
        expected.append({key: value for key, value in after.items() if key not in gone})
    for one, other in zip(made, expected, strict=True):
        assert_is(one, other)


@settings(max_examples=50, deadline=None)
@given(many)
def test_all_values_are_changed_at_once(first: dict[str, int]) -> None:
    made = SharingMap.of(first)
    assert_is(made.with_values(lambda key, value: value + int(key) + 1), dict.fromkeys(first, 1))
    assert_is(made, first)
