"""The moves of a plan whose bindings leave clusters or groups for good, and how good it is.

Plain functions of a thread of their own. Must not read or write the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from federation.model.errors import NotFound
from federation.model.placement import BindingName
from federation.plans.plan import Gain, PlanLimits, PlanStep, Unfixed
from federation.services.plans.questions import replicas_to_move
from federation.services.plans.search import BEYOND, PlannedMoves, stays, too_much
from federation.services.plans.ways import Way, better_way, found_way, in_order, is_too_much
from federation.services.scheduling.attempt import Attempt
from federation.services.scheduling.working_copy import WorkingCopy


def planned(
    working: WorkingCopy, attempts: Sequence[Attempt], now: float, limits: PlanLimits
) -> PlannedMoves:
    """The moves of bindings that are to leave clusters, which ``working`` has closed."""
    wanted = [each for each in attempts if not isinstance(each.error, NotFound)]
    unfixed = {each.key: why for each in wanted if (why := _stays(each, limits))}
    movable = in_order(working, [each for each in wanted if each.key not in unfixed])
    lacks_room = is_too_much(working, movable)
    way = Way() if lacks_room else found_way(working, movable, now, {})
    bound = sum(map(replicas_to_move, movable))
    if lacks_room or way.refused:
        way, bound = better_way(working, movable, now, way)
    steps, beyond = _steps(movable, way, limits.most_moves)
    unfixed |= way.refused | dict.fromkeys(beyond, BEYOND)
    by_key = {each.key: each for each in wanted}
    return PlannedMoves(
        steps=steps,
        unfixed=tuple(
            Unfixed(
                namespace=key[0],
                name=key[1],
                replicas=replicas_to_move(by_key[key]),
                reason=unfixed[key],
            )
            for key in sorted(unfixed)
        ),
        gain=Gain(
            wanted=sum(map(replicas_to_move, wanted)),
            moved=sum(replicas_to_move(by_key[step.binding]) for step in steps),
            # A way that was found shows what is possible too.
            bound=max(bound, way.replicas),
        ),
    )


def _stays(attempt: Attempt, limits: PlanLimits) -> str:
    """Why it is not asked to move, "" where it is."""
    why = attempt.planned.why if attempt.planned else {}
    return stays(attempt, limits) or too_much(attempt.candidate, why, limits)


def _steps(
    movable: Iterable[Attempt], way: Way, most_moves: int
) -> tuple[tuple[PlanStep, ...], list[BindingName]]:
    """The steps, and who would be one too many."""
    moved = [each for each in movable if each.key in way.moved]
    steps = tuple(
        PlanStep(
            number=number,
            namespace=each.key[0],
            name=each.key[1],
            before=each.candidate.clusters,
            after=way.moved[each.key],
            reason=_reason(each),
            leaves_group=each.planned.leaves_group if each.planned else "",
        )
        for number, each in enumerate(moved[:most_moves], start=1)
    )
    return steps, [each.key for each in moved[most_moves:]]


def _reason(attempt: Attempt) -> str:
    why = attempt.planned.why if attempt.planned else {}
    told = [why[each.name] for each in attempt.candidate.clusters if each.name in why]
    return "; ".join(dict.fromkeys(told))
