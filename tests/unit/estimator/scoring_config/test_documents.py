"""Reading one document: what repeats, what unfolds without end, what is no document."""

from __future__ import annotations

import pytest

from estimator.scoring_config.documents import (
    InvalidConfiguration,
    Stage,
    load_document,
    load_strict_document,
)


def refusal(text: str) -> InvalidConfiguration:
    with pytest.raises(InvalidConfiguration) as refused:
        load_strict_document(text)
    assert refused.value.stage is Stage.DECODE
    return refused.value


def test_a_key_that_occurs_twice_is_named_with_its_path_and_line() -> None:
    text = "profiles:\n- plugins: {}\n- plugins:\n    score: 1\n    score: 2\n"
    (fault,) = refusal(text).faults
    assert fault.field == "profiles[1].plugins.score"
    assert "line 5" in fault.rule


def test_where_repeats_are_allowed_the_later_value_counts() -> None:
    assert load_document("a: 1\na: 2\n") == {"a": 2}


def test_json_may_be_indented_with_tabs() -> None:
    assert load_strict_document('{\n\t"a": [1,\t2]\n}') == {"a": [1, 2]}


def test_a_date_stays_text() -> None:
    assert load_strict_document("since: 2024-01-02") == {"since": "2024-01-02"}


def test_aliases_are_followed() -> None:
    text = "base: &base {a: 1}\nmore: {<<: *base, b: 2}\nagain: *base\n"
    assert load_strict_document(text)["more"] == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "just text",
        "a: [1",
        "a: !!python/object:os.system x",
        "a: &a [*a]",
        "\n".join(
            ["a0: &a0 [1,1,1,1,1,1,1,1,1,1]"]
            + [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 8)]
        ),
        "[" * 300 + "]" * 300,
        "[" * 3000 + "]" * 3000,
        "---\na: 1\n---\nb: 1\n",
        "? [a, b]\n: 1\n",
        "? {a: 1}\n: 1\n",
        "a: \x00",
    ],
    ids=range(13),
)
def test_anything_else_is_refused(text: str) -> None:
    refusal(text)
