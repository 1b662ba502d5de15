"""What new bindings were told that found no room, for others that ask the same of the same rooms.

Plain functions of their arguments. Must not decide anything.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import fields, replace
from itertools import chain
from operator import attrgetter
from typing import Final

from federation.model.estimate import Estimates
from federation.model.placement import Binding
from federation.scheduler.decision_inputs import DecisionInputs
from federation.scheduler.plugins.profile import Filter, Profile, Score
from federation.scheduler.plugins.run import is_in_tree
from federation.services.binding_ports import Peers
from federation.services.scheduling.attempt import NO_PEERS, Attempt
from federation.services.scheduling.known_answers import KnownRefusal, question_of
from federation.services.scheduling.working_copy import WorkingCopy
from federation.services.values import Verdict

# No plugin that comes with the scheduler tells bindings apart by these.
_NAMES: Final = frozenset({"namespace", "name", "uid", "labels", "annotations", "priority"})
_asks_of = attrgetter(*(each.name for each in fields(Binding) if each.name not in _NAMES))


def tell_as_before(
    working: WorkingCopy, attempt: Attempt, available: Estimates, now: float, peers: Peers
) -> bool:
    """Whether one that asks the same was refused: this one is then, with the same reason."""
    if not _is_like_others(attempt, peers):
        return False
    known = working.answers.refusals.get(_question(attempt))
    if known is None:
        return False
    inputs, candidate = known.inputs, attempt.candidate
    if (
        known.available is not available
        or known.outstanding is not working.snapshot.outstanding
        or inputs.fleet is not working.snapshot.fleet_at(now)
        or inputs.profile is not attempt.profile
        or _asks_of(inputs.binding) != _asks_of(candidate)
    ):
        return False
    attempt.verdict = Verdict(
        decision=replace(known.decision, trace=replace(known.decision.trace, now=now)),
        evidence=working.snapshot.evidence_at(now),
        inputs=replace(inputs, binding=candidate),
    )
    attempt.evictions, attempt.unseen_in = (), known.unseen_in
    return True


def remember(working: WorkingCopy, attempt: Attempt, available: Estimates, peers: Peers) -> None:
    """That it was refused with the reason that it has, where others may be told the same at any
    time.
    """
    inputs = attempt.verdict.inputs
    if not isinstance(inputs, DecisionInputs) or not _is_like_others(attempt, peers):
        return
    tolerations = attempt.candidate.placement.tolerations
    if _is_all_in_tree(attempt.profile) and all(t.toleration_seconds is None for t in tolerations):
        working.answers.refusals[_question(attempt)] = KnownRefusal(
            available=available,
            outstanding=working.snapshot.outstanding,
            inputs=inputs,
            decision=attempt.verdict.decision,
            unseen_in=attempt.unseen_in,
        )


def _is_like_others(attempt: Attempt, peers: Peers) -> bool:
    """Whether it is new, and nothing but what it asks for tells it from others."""
    candidate = attempt.candidate
    return (
        attempt.known is None
        and attempt.stated is None
        and peers == NO_PEERS
        and not (candidate.clusters or candidate.eviction_tasks or candidate.gang)
    )


def _is_all_in_tree(profile: Profile) -> bool:
    plugins = chain[Filter | Score](profile.filters, profile.scores)
    return not profile.permits and all(map(is_in_tree, plugins))


def _question(attempt: Attempt) -> Hashable:
    """Of bindings with others the last one is remembered."""
    candidate = attempt.candidate
    asked = candidate.certificate or attempt.profile.certificate
    return question_of(candidate, asked), candidate.replicas, attempt.has_waited_for_reports
