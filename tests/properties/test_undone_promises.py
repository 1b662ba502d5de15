"""Promises that are undone, branched off or decided for a preview leave the fleet as it was."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

from federation.model.reservations import Share
from federation.model.workload import ReplicaRequirements, TargetCluster
from federation.services.fleet.registry import FleetOwner
from federation.services.fleet.snapshot import FleetSnapshot
from federation.services.journal import BindingChanged, ClusterShares
from federation.services.scheduling.working_copy import WorkingCopy
from lab.services import WEB, fleet_of
from tests.unit.services.scheduling.test_decide import pooled

NAMES = ("a", "b")
KEYS = ("w0", "w1", "w2")
CORES = (1000, 700, 1300)

# The binding, its replicas in each cluster (0: it leaves), and what is done to the promises then.
_Step: TypeAlias = tuple[int, int, int, str]
steps_drawn = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.integers(0, 4),
        st.integers(0, 4),
        st.sampled_from(["keep", "keep", "drop", "branch", "trial"]),
    ),
    max_size=8,
)


def fleet_with_promises() -> FleetOwner:
    """Return two clusters in which the first binding holds something since the last report."""
    owner = fleet_of(a=pooled(3, 2000), b=pooled(2, 3000))
    shares = (Share(requirements=ReplicaRequirements(request={"cpu": CORES[0]}), replicas=2),)
    version = owner.ledger("a").version + 1
    clusters = {"a": ClusterShares(version=version, shares=shares)}
    owner.apply(
        BindingChanged(namespace=WEB.namespace, name=KEYS[0], decision="d", clusters=clusters)
    )
    return owner


def seen(snapshot: FleetSnapshot) -> list[object]:
    """Return all that decisions read of promises, with the versions of ledgers."""
    rooms = [room for room in snapshot.rooms.rooms if room is not None]
    return [
        [ledger.version for ledger in snapshot.ledgers],
        [ledger.order() for ledger in snapshot.ledgers],
        [room.held.order for room in rooms],
        [
            (cells.pool_k.tolist(), cells.count_k.tolist(), cells.min_rk.tolist())
            for room in rooms
            for cells in (room.filled.cells, room.spread.cells)
        ],
    ]


def promise(working: WorkingCopy, number: int, replicas: tuple[int, int]) -> None:
    """Promise a binding these replicas by cluster, where there is room for all of them."""
    requirements = ReplicaRequirements(request={"cpu": CORES[number]})
    binding = replace(WEB, name=KEYS[number], requirements=requirements)
    targets = [
        TargetCluster(name=name, replicas=count)
        for name, count in zip(NAMES, replicas, strict=True)
        if count
    ]
    held = [
        name
        for position, name in enumerate(NAMES)
        if working.ledger(position).of_binding(binding.key)
    ]
    request = working.request(
        binding, f"d{number}", targets, certificate=None, held=held, adopts=False
    )
    working.reserve(request)


def apply(working: WorkingCopy, step: _Step) -> WorkingCopy:
    """Return the working copy that goes on after a step."""
    number, first, second, end = step
    match end:
        case "drop":
            promise(working, number, (first, second))
            working.drop_promises()
            return working
        case "branch":
            first_state = seen(working.snapshot), working.ledger(0).version, working.rooms
            branch = working.branch()
            promise(branch, number, (first, second))
            _ = branch.after_commit
            assert first_state == (seen(working.snapshot), working.ledger(0).version, working.rooms)
            return working
        case "trial":
            trial = working.fresh_copy()
            promise(trial, number, (first, second))
            return working
        case _:
            promise(working, number, (first, second))
            return working


@settings(max_examples=100, deadline=None)
@given(steps=steps_drawn)
def test_promises_that_are_undone_leave_the_fleet_as_it_was(steps: list[_Step]) -> None:
    owner = fleet_with_promises()
    snapshot, first_state = owner.snapshot, seen(owner.snapshot)
    working = WorkingCopy(snapshot)
    for step in steps:
        working = apply(working, step)
    # The steps since promises were dropped last, without what was tried beside them.
    last = max((place for place, step in enumerate(steps) if step[3] == "drop"), default=-1)
    alone = WorkingCopy(snapshot)
    for step in steps[last + 1 :]:
        if step[3] == "keep":
            apply(alone, step)
    assert seen(working.after_commit) == seen(alone.after_commit)
    assert owner.snapshot is snapshot
    assert seen(snapshot) == first_state == seen(fleet_with_promises().snapshot)
