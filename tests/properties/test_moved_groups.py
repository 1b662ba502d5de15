"""Groups of bindings that stay together, in virtual time.

A group leaves a lost cluster as a whole or not at all, and does if another has room for all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from federation.cli import inputs
from federation.failover.moves import Move, moved_together
from federation.model.placement import Binding
from federation.scheduler.decide import MAX_COMMON_CLUSTERS, common_clusters
from federation.simulation.capacity import SimulationOptions
from federation.simulation.steps import EventKind, FailoverRules, FleetEvent, StepKind
from federation.simulation.world import VirtualFleet
from tests.unit.cli.test_simulation import binding, cluster

LOST, OTHERS = "a", ("b", "c", "d")
AGGREGATED = {
    "replicaSchedulingType": "Divided",
    "replicaDivisionPreference": "Aggregated",
}
COMPANION = "which must stay together with it, has no place"
# All may be moved at once.
RULES = FailoverRules(lost_seconds=60.0, percent_a_minute=100.0)


def member(name: str, replicas: int, group: str) -> dict[str, Any]:
    return binding(
        name,
        replicas,
        AGGREGATED,
        labels={"group": group},
        clusters=[{"name": LOST, "replicas": replicas}],
        placement={"workloadAffinity": {"affinity": {"groupByLabelKey": "group"}}},
    )


def ran(
    cpus: Sequence[int], replicas: Sequence[tuple[int, str]]
) -> tuple[VirtualFleet, list[Binding]]:
    clusters = [cluster(name, cpu) for name, cpu in zip((LOST, *OTHERS), (99, *cpus), strict=True)]
    states = inputs.clusters_of(inputs.by_position(clusters, "clusters"), now=0.0)
    documents = [member(f"m{n}", count, group) for n, (count, group) in enumerate(replicas)]
    messages = inputs.binding_messages_of(inputs.by_position(documents, "bindings"))
    bindings = inputs.bindings_of(messages, None)
    fleet = VirtualFleet(states, SimulationOptions(), RULES, began=1000.0)
    fleet.run(bindings, [FleetEvent(10.0, EventKind.LOSE, LOST)])
    return fleet, bindings


@settings(max_examples=60)
@given(
    st.lists(st.integers(0, 8), min_size=3, max_size=3),
    st.lists(st.tuples(st.integers(1, 4), st.sampled_from("xy")), min_size=1, max_size=5),
)
@example([2, 3, 0], [(1, "x"), (2, "x")])
@example([9, 9, 9], [(1, "x"), (1, "x"), (1, "y")])
@example([4, 2, 0], [(9, "x"), (2, "x"), (1, "x")])
def test_a_group_moves_as_a_whole_or_stays(
    cpus: list[int], replicas: list[tuple[int, str]]
) -> None:
    fleet, bindings = ran(cpus, replicas)
    totals = {group: sum(count for count, own in replicas if own == group) for _, group in replicas}
    after = {
        binding.labels["group"]: [b for b in fleet.bindings if b.labels == binding.labels]
        for binding in bindings
    }
    moves = {step.subject: step for step in fleet.steps if step.kind is StepKind.MOVED}
    stays = {step.subject: str(step.reason) for step in fleet.steps if step.kind is StepKind.STAYS}
    free = dict(zip(OTHERS, cpus, strict=True))
    for group, members in after.items():
        moved = [member for member in members if member.key in moves]
        assert moved in ([], members)
        assert len({moves[member.key].at for member in moved}) <= 1
        if not moved:
            # Who has a place elsewhere is told because of whom it stays.
            placeless = [member.name for member in members if COMPANION not in stays[member.key]]
            reasons = [stays[member.key] for member in members if member.name not in placeless]
            assert {why.partition(",")[0] for why in reasons} <= set(placeless[:1])
        for member in moved:
            assert LOST not in {target.name for target in member.clusters}
            assert sum(target.replicas for target in member.clusters) == member.replicas
            for other in moved:
                names = {target.name for target in other.clusters}
                assert names & {target.name for target in member.clusters}
        if len(totals) == 1 and totals[group] <= max(cpus):
            assert moved
    for name in OTHERS:
        held = [t.replicas for b in fleet.bindings for t in b.clusters if t.name == name]
        assert sum(held) <= free[name]


@given(st.lists(st.sampled_from(["x", "y", ""]), max_size=8))
def test_moves_of_one_group_are_put_together_in_the_order_of_the_first(groups: list[str]) -> None:
    documents = [member(f"m{n}", 1, group) for n, group in enumerate(groups)]
    for document, group in zip(documents, groups, strict=True):
        if not group:
            document["metadata"]["labels"] = {}
    messages = inputs.binding_messages_of(inputs.by_position(documents, "bindings"))
    moves = [Move(binding=binding, due_at=0.0) for binding in inputs.bindings_of(messages, None)]
    together = moved_together(moves)
    assert sorted(m.binding.name for group in together for m in group) == sorted(
        m.binding.name for m in moves
    )
    assert [group[0] for group in together] == [
        move for n, move in enumerate(moves) if not groups[n] or groups.index(groups[n]) == n
    ]
    for group in together:
        assert len({move.binding.labels.get("group", move.binding.name) for move in group}) == 1


rooms = st.lists(
    st.dictionaries(st.sampled_from("abcdefghijklmnop"), st.integers(1, 9)), min_size=1, max_size=3
)


@given(rooms, st.data())
def test_common_clusters_have_room_for_each(
    rooms: list[dict[str, int]], data: st.DataObject
) -> None:
    units = [data.draw(st.integers(1, 5)) for _ in rooms]
    names = common_clusters(rooms, units)
    fits = {
        name
        for name in "abcdefghijklmnop"
        if all(room.get(name, 0) >= count for room, count in zip(rooms, units, strict=True))
    }
    assert set(names) <= fits
    assert len(names) == min(len(fits), MAX_COMMON_CLUSTERS)
