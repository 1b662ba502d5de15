"""Decisions made on a fleet that never came to be: what fits all the same stays."""

from __future__ import annotations

from dataclasses import replace

from federation.model.placement import Binding
from federation.model.workload import ReplicaRequirements
from federation.scheduler.decision import Outcome
from federation.scheduler.plugins.profile import DEFAULT_PROFILE
from federation.services.journal_ports import Holding
from federation.services.ports import Peers
from federation.services.scheduling.drafts import Decided, Draft, decide_all, decide_rest
from federation.services.scheduling.working_copy import Working
from tests.services import WEB
from tests.unit.services.scheduling.test_working_copy import fleet_of, pooled

NOW = 1.0


def draft(name: str, replicas: int) -> Draft:
    core = ReplicaRequirements(request={"cpu": 1000})
    binding: Binding = replace(WEB, name=name, replicas=replicas, requirements=core)
    return Draft(
        id=name,
        profile=DEFAULT_PROFILE,
        known=None,
        candidate=binding,
        peers=Peers(),
        newest=None,
        holding=Holding(),
        adopts=False,
    )


def decided(working: Working, *drafts: Draft) -> list[Decided]:
    found = decide_all(working, drafts, NOW)
    assert all(isinstance(each, Decided) for each in found)
    return [each for each in found if isinstance(each, Decided)]


def ready_fleet() -> Working:
    fleet = fleet_of(a=pooled(3, 2000))
    fleet.put_presence("a", replace(fleet.view("a").presence, silent_after=NOW + 1))
    return Working(fleet.snapshot)


def test_shares_that_fit_all_the_same_stay_with_their_decision() -> None:
    before = ready_fleet()
    web, db = draft("web", 4), draft("db", 2)
    (first,) = decided(before, db)
    (kept,) = decided(before.ahead(), web)
    again = ready_fleet()
    (found,) = decide_rest(again, [web], [kept], NOW)
    assert isinstance(found, Decided)
    assert found.verdict.decision is kept.verdict.decision
    assert found.kept is not None
    # On the fleet as it is, nobody else was there: it made the first change.
    assert [each.version for each in found.kept.clusters.values()] == [
        each.version for each in (first.kept.clusters.values() if first.kept else ())
    ]
    assert again.ledger(0).of_binding(web.candidate.key)


def test_shares_that_fit_no_more_are_decided_anew() -> None:
    web, db = draft("web", 4), draft("db", 3)
    (kept,) = decided(ready_fleet(), web)
    meanwhile = ready_fleet()
    decided(meanwhile, db)
    (found,) = decide_rest(meanwhile.ahead(), [web], [kept], NOW)
    assert isinstance(found, Decided)
    assert found.verdict.decision.outcome is Outcome.UNSCHEDULABLE
    assert found.kept is None


def test_what_found_no_room_beside_promises_that_were_never_made_is_decided_anew() -> None:
    web, db = draft("web", 4), draft("db", 3)
    before = ready_fleet()
    decided(before, db)
    (refused,) = decided(before.ahead(), web)
    assert refused.verdict.decision.outcome is Outcome.UNSCHEDULABLE
    (found,) = decide_rest(ready_fleet(), [web], [refused], NOW)
    assert isinstance(found, Decided)
    assert found.verdict.decision.outcome is Outcome.SCHEDULED
