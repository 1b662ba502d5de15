"""Values that are read once: the same one for equal messages, never a wrong one, never too many."""

from __future__ import annotations

import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.codec import remembered
from federation.codec.bindings import binding_from_message
from federation.codec.placements import read_placement
from federation.codec.remembered import Remembered
from federation.codec.requirements import read_components, read_requirements
from federation.codec.violations import Violations
from federation.model.errors import InvalidRequest
from federation.model.placement import Binding
from federation.v1.resource_pb2 import (
    ClusterAffinity,
    Component,
    LabelSelector,
    NodeClaim,
    ObjectMeta,
    Placement,
    ReplicaRequirements,
    ResourceBinding,
    ResourceBindingSpec,
)

LABELS = {f"label-{number}": str(number) for number in range(20)}


class Read:
    """What a message was read as."""

    def __init__(self, name: str) -> None:
        self.name = name


class Reader:
    """Reads names; counts how often, and finds fault with some."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, message: ObjectMeta, path: str, found: Violations) -> Read:
        self.count += 1
        if message.name.startswith("wrong"):
            found.add(path, "is wrong")
        return Read(message.name)


def kept_names(read: list[weakref.ref[Read]]) -> list[str]:
    """Of the values that are still there."""
    values = [ref() for ref in read]
    return list({id(each): each.name for each in values if each is not None}.values())


def affinity(labels: dict[str, str]) -> Placement:
    return Placement(
        cluster_affinity=ClusterAffinity(label_selector=LabelSelector(match_labels=labels))
    )


def test_equal_messages_are_one_value_in_whatever_order_their_maps_are() -> None:
    backwards = dict(reversed(LABELS.items()))
    found = Violations()
    one, other = (read_placement(affinity(each), "", found) for each in (LABELS, backwards))
    assert one is other
    assert one.affinity is not None
    assert one.affinity.match_labels == LABELS
    asked = [
        ReplicaRequirements(
            resource_request={"cpu": "1", "memory": "1Gi"}, node_claim=NodeClaim(node_selector=each)
        )
        for each in (LABELS, backwards)
    ]
    first, second = (read_requirements(each, "", found) for each in asked)
    assert first is second
    component = Component(name="web", replicas=2, replica_requirements=asked[0])
    ((read,), (again,)) = (read_components([component], "", found) for _ in range(2))
    assert read is again
    assert read.requirements is first
    found.check()


def test_bindings_share_what_is_equal_and_nothing_else() -> None:
    def read(name: str, cpu: str) -> Binding:
        spec = ResourceBindingSpec(
            placement=affinity(LABELS),
            replica_requirements=ReplicaRequirements(resource_request={"cpu": cpu}),
        )
        return binding_from_message(ResourceBinding(metadata=ObjectMeta(name=name), spec=spec))

    one, other, larger = read("a", "1"), read("b", "1"), read("c", "2")
    assert one.placement is other.placement is larger.placement
    assert one.requirements is other.requirements
    assert (one.requirements.request, larger.requirements.request) == ({"cpu": 1000}, {"cpu": 2000})


@pytest.mark.parametrize("path", ["placement", "items[1].placement"])
def test_what_is_wrong_is_told_each_time_by_its_own_path(path: str) -> None:
    message = Placement(tie_break="coin")
    for _ in range(2):
        found = Violations()
        read_placement(message, path, found)
        with pytest.raises(InvalidRequest) as raised:
            found.check()
        assert [each.field for each in raised.value.violations] == [f"{path}.tieBreak"]


def test_nothing_is_remembered_that_was_read_beside_a_violation() -> None:
    reader = Reader()
    values = Remembered(reader)
    for message in (ObjectMeta(name="wrong"), ObjectMeta(name="right")):
        found = Violations()
        if message.name == "right":
            found.add("elsewhere", "is wrong")
        values.read(message, "here", found)
        values.read(message, "here", found)
    assert reader.count == 4
    found = Violations()
    one, other = (values.read(ObjectMeta(name="right"), "here", found) for _ in range(2))
    assert one is other
    assert reader.count == 5


@given(
    names=st.lists(st.text("ab", max_size=6), max_size=40),
    most_values=st.integers(1, 5),
    most_bytes=st.integers(1, 20),
)
def test_few_are_remembered_and_all_are_right(
    names: list[str], most_values: int, most_bytes: int
) -> None:
    read: list[weakref.ref[Read]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remembered, "MAX_VALUES", most_values)
        patch.setattr(remembered, "MAX_BYTES", most_bytes)
        values = Remembered(Reader())
        for name in names:
            value = values.read(ObjectMeta(name=name), "", Violations())
            assert value.name == name
            read.append(weakref.ref(value))
            del value
            kept = kept_names(read)
            assert len(kept) <= most_values
            assert sum(ObjectMeta(name=each).ByteSize() for each in kept) <= most_bytes
