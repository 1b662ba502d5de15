"""Decisions: what they rest on, and what becomes of those made on a fleet that never came to be."""

from __future__ import annotations

from dataclasses import replace

from federation.model.cluster import CapacityReport
from federation.model.workload import ReplicaRequirements
from federation.scheduler.decision import Outcome
from federation.services.scheduling.attempt import Attempt
from federation.services.scheduling.together import decide_again, decide_all
from federation.services.scheduling.working_copy import WorkingCopy
from lab.reports import nodes
from lab.services import WEB, fleet_of, make_report

NOW = 1.0
GIB = 1024**3


def pooled(count: int, cpu: int) -> CapacityReport:
    """Nodes of so much free CPU each."""
    return replace(make_report(1, cpu_millis=count * cpu), pools=nodes(count, cpu=cpu))


def attempt(name: str, replicas: int) -> Attempt:
    core = ReplicaRequirements(request={"cpu": 1000})
    return Attempt(binding=replace(WEB, name=name, replicas=replicas, requirements=core))


def decide(working: WorkingCopy, *attempts: Attempt) -> None:
    decide_all(working, attempts, NOW)
    assert not any(each.error for each in attempts)


def ready_fleet() -> WorkingCopy:
    fleet = fleet_of(a=pooled(3, 2000))
    fleet.put_presence("a", replace(fleet.view("a").presence, silent_after=NOW + 1))
    return WorkingCopy(fleet.snapshot)


def versions(attempt: Attempt) -> list[int]:
    assert attempt.result.reserved is not None
    return [shares.version for shares in attempt.result.reserved.clusters.values()]


async def test_shares_that_fit_all_the_same_stay_with_their_decision() -> None:
    before = ready_fleet()
    web, db = attempt("web", 4), attempt("db", 2)
    decide(before, db)
    decide(before.copy_after_commit(), web)
    decision = web.decision
    again = ready_fleet()
    decide_again(again, [web], NOW)
    assert web.error is None
    assert web.decision is decision
    # On the fleet as it is, nobody else was there: it made the first change.
    assert versions(web) == versions(db)
    assert again.ledger(0).of_binding(web.candidate.key)


async def test_shares_that_fit_no_more_are_decided_anew() -> None:
    web, db = attempt("web", 4), attempt("db", 3)
    decide(ready_fleet(), web)
    meanwhile = ready_fleet()
    decide(meanwhile, db)
    decide_again(meanwhile.copy_after_commit(), [web], NOW)
    assert web.error is None
    assert web.decision.outcome is Outcome.UNSCHEDULABLE
    assert web.result.reserved is None


async def test_what_found_no_room_beside_promises_that_were_never_made_is_decided_anew() -> None:
    web, db = attempt("web", 4), attempt("db", 3)
    before = ready_fleet()
    decide(before, db)
    decide(before.copy_after_commit(), web)
    assert web.decision.outcome is Outcome.UNSCHEDULABLE
    decide_again(ready_fleet(), [web], NOW)
    assert web.error is None
    assert web.decision.outcome is Outcome.SCHEDULED
