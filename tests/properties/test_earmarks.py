"""L4: what is kept for who was overtaken, and what is promised, never exceed what reports show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from federation.model.cluster import CapacityReport
from federation.model.placement import Binding, Placement, ReplicaScheduling, SchedulingType
from federation.model.waiting import Wait, WaitState
from federation.model.workload import ReplicaRequirements
from federation.scheduler.plugins.profile import DEFAULT_PROFILE
from federation.services.agent_values import AgentPresence
from federation.services.binding_ports import StoredBinding
from federation.services.scheduling.attempt import Attempt, EarmarkedBindings, StoredFacts
from federation.services.scheduling.together import decide_all
from federation.services.scheduling.working_copy import WorkingCopy
from lab.fake_agents import capacity
from lab.reports import nodes
from lab.services import fleet_of

DYNAMIC = ReplicaScheduling(type=SchedulingType.DIVIDED, dynamic=True)
NAMES = ("a", "b", "c")
CORE = ReplicaRequirements(request={"cpu": 1000})
NOW = 10.0


class Asked(NamedTuple):
    """Replicas of one core each, and how urgent they are."""

    replicas: int
    priority: int
    is_partial: bool = False


waiting = st.builds(Asked, st.integers(1, 8), st.integers(0, 2))
asked = st.builds(Asked, st.integers(1, 6), st.integers(0, 3), st.booleans())


def binding(name: str, each: Asked) -> Binding:
    return Binding(
        namespace="shop",
        name=name,
        replicas=each.replicas,
        priority=each.priority,
        requirements=CORE,
        placement=Placement(replica_scheduling=DYNAMIC, partial=each.is_partial),
    )


def earmarked(number: int, each: Asked) -> StoredBinding:
    wait = Wait(
        state=WaitState.UNSCHEDULABLE,
        since=1.0 + number,
        remainder=each.replicas,
        earmarked_since=5.0,
    )
    return StoredBinding(id=number, binding=binding(f"waits-{number}", each), wait=wait)


def attempt(name: str, each: Asked, claims: EarmarkedBindings) -> Attempt:
    nobody = cast(Any, None)
    made = Attempt(binding=binding(name, each), answer=nobody, call=None)
    made.facts = StoredFacts(earmarks=claims)
    return made


def pooled(count: int, cpu: int) -> CapacityReport:
    """Nodes of so much free CPU each."""
    return replace(capacity(1, node_count=count, cpu=cpu), pools=nodes(count, cpu=cpu))


def working_copy(cores: Sequence[int]) -> WorkingCopy:
    """Clusters that are heard, with so many nodes of one core each."""
    reports = {name: pooled(count, 1000) for name, count in zip(NAMES, cores, strict=True)}
    fleet = fleet_of(**reports)
    for name in NAMES:
        fleet.put_presence(name, AgentPresence(connected=True, silent_after=NOW + 1))
    return WorkingCopy(fleet.snapshot)


def rooms(working: WorkingCopy) -> list[int]:
    found: list[int] = working.availability(binding("any", Asked(1, 0)), None).replicas_c.tolist()
    return found


@settings(max_examples=60)
@given(
    st.lists(st.integers(1, 6), min_size=3, max_size=3),
    st.lists(waiting, min_size=1, max_size=3),
    st.lists(asked, min_size=1, max_size=8),
)
def test_nobody_who_comes_later_takes_what_is_kept(
    cores: list[int], kept: list[Asked], coming: list[Asked]
) -> None:
    working = working_copy(cores)
    stored = [earmarked(number, each) for number, each in enumerate(kept)]
    stored.sort(key=lambda each: -each.binding.priority)
    claims = EarmarkedBindings(earmarked=[(waiting, DEFAULT_PROFILE) for waiting in stored])
    promised = [0, 0, 0]
    for number, each in enumerate(coming):
        before = rooms(working)
        one = attempt(f"comes-{number}", each, claims)
        decide_all(working, [one], NOW)
        shares = {at.name: at.replicas for at in one.decision.clusters}
        promised = [n + shares.get(name, 0) for n, name in zip(promised, NAMES, strict=True)]
        assert all(n <= count for n, count in zip(promised, cores, strict=True))
        lacking = [e.binding.replicas for e in stored if e.binding.priority >= each.priority]
        # In every cluster as much as all of them could take, one after the other.
        left = [max(0, room - sum(lacking)) for room in before]
        wanted = 1 if each.is_partial else each.replicas
        assert bool(shares) is (sum(left) >= wanted)
        assert all(shares.get(name, 0) <= n for name, n in zip(NAMES, left, strict=True))


def test_whom_it_is_kept_for_gets_it() -> None:
    working = working_copy([2, 2, 2])
    stored = earmarked(1, Asked(5, 1))
    claims = EarmarkedBindings(earmarked=[(stored, DEFAULT_PROFILE)])
    late = attempt("late", Asked(1, 1), claims)
    own = attempt("waits-1", Asked(5, 1), claims)
    own.facts = StoredFacts(stored=stored, earmarks=claims)
    decide_all(working, [late, own], NOW)
    assert not late.is_placed
    assert "room is kept for shop/waits-1" in str(late.decision.reason)
    assert sum(target.replicas for target in own.decision.clusters) == 5


def large(cores: int) -> StoredBinding:
    stored = earmarked(1, Asked(1, 1))
    asks = ReplicaRequirements(request={"cpu": 1000 * cores})
    return replace(stored, binding=replace(stored.binding, requirements=asks))


def sized(free: Sequence[int], size: int) -> WorkingCopy:
    """Clusters of one node each of so many cores, of which some are free."""
    reports = {}
    for name, cores in zip(NAMES, free, strict=True):
        report = pooled(1, 1000 * cores)
        assert report.pools is not None
        most = next(iter(zip(report.pools.resources, report.pools.minimums, strict=True)))
        assert most[0] == "cpu"
        pools = replace(report.pools, allocatables=(1000 * size, 10**15))
        allocatable = {**report.summary.allocatable, "cpu": 1000 * size}
        allocated = {**report.summary.allocated, "cpu": 1000 * (size - cores)}
        summary = replace(report.summary, allocatable=allocatable, allocated=allocated)
        reports[name] = replace(report, summary=summary, pools=pools)
    fleet = fleet_of(**reports)
    for name in NAMES:
        fleet.put_presence(name, AgentPresence(connected=True, silent_after=NOW + 1))
    return WorkingCopy(fleet.snapshot)


@settings(max_examples=60)
@given(st.lists(st.integers(0, 3), min_size=3, max_size=3), st.integers(1, 4), st.integers(1, 4))
def test_what_is_free_bit_by_bit_is_kept_where_the_replica_could_fit(
    free: list[int], size: int, cores: int
) -> None:
    free = [min(each, size) for each in free]
    working = sized(free, size)
    claims = EarmarkedBindings(earmarked=[(large(cores), DEFAULT_PROFILE)])
    late = attempt("late", Asked(1, 1), claims)
    urgent = attempt("urgent", Asked(1, 2), claims)
    decide_all(working, [late], NOW)
    where = {target.name for target in late.decision.clusters}
    if cores > size:
        # Nodes that are too small for it are of no use to it.
        assert late.is_placed is any(free)
    else:
        # What is less than one of it is kept, and of what is more only the rest is for others.
        assert where <= {name for name, each in zip(NAMES, free, strict=True) if each > cores}
    working.drop_promises()
    decide_all(working, [urgent], NOW)
    assert urgent.is_placed is any(free)


@given(st.integers(2, 4))
def test_of_several_with_an_earmark_the_first_is_placed(count: int) -> None:
    """All of one priority lack the same room: each keeps it from those behind it alone."""
    working = working_copy([1, 1, 1])
    stored = [earmarked(number, Asked(3, 1)) for number in range(count)]
    claims = EarmarkedBindings(earmarked=[(waiting, DEFAULT_PROFILE) for waiting in stored])
    tried = []
    for number, each in enumerate(stored):
        one = attempt(f"waits-{number}", Asked(3, 1), claims)
        one.facts.stored = each
        tried.append(one)
    decide_all(working, list(reversed(tried)), NOW)
    assert [one.is_placed for one in tried] == [True] + [False] * (count - 1)
