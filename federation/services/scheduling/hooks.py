"""Calls of Reserve and PostBind plugins: before a decision is committed, and after.

Called in threads alone. Must not decide: an objection of a plugin refuses a decision.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

import numpy as np

from federation.model.arrays import IntArray, read_only
from federation.model.errors import LimitExceeded, PluginFailed
from federation.model.reasons import NO_REASON, Reason
from federation.runtime.log_fields import working_on
from federation.scheduler.plugins.run import hear_by, keep_by, undo_by
from federation.scheduler.state import CycleState
from federation.services.scheduling.attempt import Attempt
from federation.services.scheduling.eligible_clusters import context_of
from federation.services.scheduling.working_copy import WorkingCopy
from federation.services.threads import TELLING_PLUGINS
from federation.services.troubles import tell_plugin_failure

logger = logging.getLogger(__name__)


def keep(working: WorkingCopy, attempt: Attempt, now: float) -> Reason:
    """Let Reserve plugins keep what the decision needs, all or none.

    Returns the objection of the first one that does not, NO_REASON without one. Raises
    PluginFailed.
    """
    if not attempt.profile.keeps_or_hears:
        return NO_REASON
    attempt.result.shown = _shown(working, attempt, now)
    for plugin in attempt.profile.reserves:
        try:
            objection = keep_by(plugin, *attempt.result.shown)
        except PluginFailed:
            let_go([attempt])
            raise
        if objection:
            let_go([attempt])
            return objection
        attempt.result.keeping.append(plugin)
    return NO_REASON


def let_go(attempts: Iterable[Attempt]) -> None:
    """Undo the Reserve plugins of withdrawn decisions, in reverse order."""
    for attempt in attempts:
        while attempt.result.keeping:
            plugin = attempt.result.keeping.pop()
            if attempt.result.shown is None:
                continue
            try:
                undo_by(plugin, *attempt.result.shown)
            except PluginFailed as error:
                tell_plugin_failure(error)


async def give_back(attempts: Iterable[Attempt]) -> None:
    """Call ``let_go`` in a thread."""
    keeping = [attempt for attempt in attempts if attempt.result.keeping]
    if keeping:
        await TELLING_PLUGINS.run(let_go, keeping)


async def tell_committed(attempts: Iterable[Attempt]) -> None:
    """Call the PostBind plugins of placed attempts. Their errors are only logged."""
    placed = [attempt for attempt in attempts if attempt.profile.post_binds and attempt.is_placed]
    if not placed:
        return
    try:
        await TELLING_PLUGINS.run(_tell, placed)
    except LimitExceeded as error:
        logger.warning("plugins do not hear of decisions", extra={"fields": {"why": error.message}})


def _tell(attempts: Iterable[Attempt]) -> None:
    for attempt in attempts:
        for plugin in attempt.profile.post_binds:
            if attempt.result.shown is None:
                continue
            try:
                hear_by(plugin, *attempt.result.shown)
            except PluginFailed as error:
                with working_on(decision=attempt.id, binding="/".join(attempt.key)):
                    tell_plugin_failure(error)


def _shown(working: WorkingCopy, attempt: Attempt, now: float) -> tuple[CycleState, IntArray]:
    """Return the state of the cycle, and the replicas by cluster (axis c)."""
    fleet, decision = working.snapshot.fleet_at(now), attempt.decision
    trace = decision.trace
    replicas_c = np.zeros(len(fleet), dtype=np.int64)
    for target in decision.clusters:
        replicas_c[fleet.index[target.name]] = target.replicas
    previous_c = trace.inputs.previous_c
    state = CycleState(
        binding=attempt.candidate,
        fleet=fleet,
        available_c=trace.inputs.available_c,
        prior_c=read_only(np.maximum(previous_c, 0)),
        placed_c=read_only(previous_c >= 0),
        tier_c=trace.filtering.tier_c,
        surroundings=context_of(attempt, attempt.facts.peers),
        now=now,
    )
    return state, read_only(replicas_c)
