"""Refusals: who asks the same is told the same, as if nobody had asked before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from federation.model.estimate import Estimates
from federation.model.placement import Binding, Certificate
from federation.model.resources import CPU
from federation.model.workload import ObjectReference, ReplicaRequirements, Toleration
from federation.scheduler.cycle import schedule
from federation.scheduler.decision import Decision, Outcome
from federation.scheduler.plugins.profile import DEFAULT_PROFILE, Profile, Score
from federation.scheduler.replay import DecisionInputs, replay
from federation.scheduler.state import CycleState
from federation.services.scheduling.attempt import Attempt
from federation.services.scheduling.together import decide_all
from lab.services import DYNAMIC, WEB
from tests.unit.services.scheduling.test_decide import NOW, attempt, decide, ready_fleet

# No node has as much.
LARGE = replace(
    WEB,
    requirements=ReplicaRequirements(request={CPU: 5000}),
    placement=replace(WEB.placement, replica_scheduling=DYNAMIC),
)
LATER = NOW + 0.5


def asking(binding: Binding, profile: Profile = DEFAULT_PROFILE) -> Attempt:
    return Attempt(binding=binding, profile=profile)


@pytest.fixture
def cycles(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Whose decisions a cycle was run for."""
    names: list[str] = []

    def counted(binding: Binding, *arguments: object, **others: object) -> Decision:
        names.append(binding.name)
        return schedule(binding, *arguments, **others)  # type: ignore[arg-type]  # passed on

    monkeypatch.setattr("federation.scheduler.replay.schedule", counted)
    return names


def told(each: Attempt) -> tuple[object, ...]:
    """What it is told, and what it was decided on."""
    assert isinstance(each.verdict.inputs, DecisionInputs)
    assert each.verdict.inputs.binding is each.candidate
    surroundings = each.verdict.inputs.surroundings
    return each.verdict.decision.to_plain(), each.verdict.evidence, surroundings, each.unseen_in


def named(name: str, priority: int = 0) -> Binding:
    return replace(LARGE, name=name, priority=priority, uid=f"uid-{name}", labels={"app": name})


async def test_who_asks_the_same_is_told_the_same_without_another_cycle(cycles: list[str]) -> None:
    working, alone = ready_fleet(), asking(named("c", 7))
    decide_all(ready_fleet(), [alone], LATER)
    cycles.clear()
    decide(working, asking(named("a")), asking(named("b")))
    later = asking(named("c", 7))
    # On what is decided while the others are committed, and by another time.
    decide_all(working.ahead(), [later], LATER)
    assert cycles == ["a"]
    assert later.verdict.decision.outcome is Outcome.UNSCHEDULABLE
    assert "short of cpu in 1 cluster" in later.verdict.decision.reason
    assert told(later) == told(alone)


async def test_a_reason_told_before_replays(cycles: list[str]) -> None:
    first, second = asking(named("a")), asking(named("b"))
    decide(ready_fleet(), first, second)
    assert cycles == ["a"]
    inputs = second.verdict.inputs
    assert isinstance(inputs, DecisionInputs)
    assert replay(inputs, second.verdict.decision, {}).difference is None


OTHERS: dict[str, Callable[[Binding], Binding]] = {
    "replicas": lambda binding: replace(binding, replicas=2),
    "request": lambda binding: replace(
        binding, requirements=ReplicaRequirements(request={CPU: 6000})
    ),
    "workload": lambda binding: replace(binding, resource=ObjectReference(uid="another")),
    "tolerations": lambda binding: replace(
        binding, placement=replace(binding.placement, tolerations=(Toleration(key="gpu"),))
    ),
    "partial": lambda binding: replace(binding, placement=replace(binding.placement, partial=True)),
    "minAvailable": lambda binding: replace(binding, min_available=2),
    "certificate": lambda binding: replace(binding, certificate=Certificate.CAREFUL),
}


@pytest.mark.parametrize("change", OTHERS)
async def test_who_asks_something_else_is_decided(change: str, cycles: list[str]) -> None:
    other = OTHERS[change](named("b"))
    alone, second = asking(other), asking(other)
    decide(ready_fleet(), alone)
    cycles.clear()
    decide(ready_fleet(), asking(named("a")), second)
    assert cycles == ["a", "b"]
    assert told(second) == told(alone)


async def test_nothing_is_told_again_once_the_rooms_changed(cycles: list[str]) -> None:
    decide(ready_fleet(), asking(named("a")), attempt("placed", 1), asking(named("b")))
    assert cycles == ["a", "placed", "b"]


async def test_what_a_plugin_of_others_says_is_asked_each_time(cycles: list[str]) -> None:
    def by_name(state: CycleState) -> object:
        return state.available_c * 0 + len(state.binding.name)

    score = Score(name="ByName", run=by_name, weight=1)  # type: ignore[arg-type]  # an array
    profile = replace(DEFAULT_PROFILE, scores=(*DEFAULT_PROFILE.scores, score))
    decide(ready_fleet(), asking(named("a"), profile), asking(named("bb"), profile))
    assert cycles == ["a", "bb"]


async def test_a_toleration_that_ends_is_looked_at_each_time(cycles: list[str]) -> None:
    toleration = Toleration(key="gpu", toleration_seconds=60)
    placement = replace(LARGE.placement, tolerations=(toleration,))
    every = [asking(replace(named(name), placement=placement)) for name in "ab"]
    decide(ready_fleet(), *every)
    assert cycles == ["a", "b"]


async def test_second_looks_are_taken_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = list[str]()

    def looking(_: object, binding: Binding, asked: object, known: Estimates) -> None:
        looked.append(binding.name)

    monkeypatch.setattr("federation.services.scheduling.known_answers.looked_again", looking)
    working = ready_fleet()
    # Others that ask the same room, and are decided anew all the same.
    workloads = [replace(named(n), resource=ObjectReference(uid=n)) for n in "ab"]
    decide(working, *map(asking, workloads))
    assert looked == ["a"]
    decide(working, asking(replace(workloads[0], replicas=99)))
    assert looked == ["a", "a"]
