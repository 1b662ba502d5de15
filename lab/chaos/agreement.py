"""Whether every control plane says of bindings what the database holds.

Must not hurry: a control plane follows the others within moments, not at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

from federation.services.journal import StoredReservations
from lab.callers import Caller, calling
from lab.chaos.records import Standing
from lab.patience import PATIENCE_SECONDS

FOLLOW_SECONDS = PATIENCE_SECONDS
POLL_SECONDS = 0.05
MOST_ASKED = 40

# By cluster and component: replicas, their certificate, and the decision.
Told = set[tuple[str, str, int, str, str]]


async def disagreements(endpoints: Sequence[str], token: str, standing: Standing) -> list[str]:
    """What control planes still say otherwise after a while, of some bindings."""
    keys = sorted(standing.bindings)[:MOST_ASKED]
    found = []
    for endpoint in endpoints:
        async with calling(endpoint, token) as caller:
            wrong = await _wrong(caller, keys, standing)
            deadline = time.monotonic() + FOLLOW_SECONDS
            while wrong and time.monotonic() < deadline:
                await asyncio.sleep(POLL_SECONDS)
                wrong = await _wrong(caller, list(wrong), standing)
            found += [f"{endpoint} says of {key}: {text}" for key, text in wrong.items()]
    return found


async def _wrong(caller: Caller, keys: Sequence[str], standing: Standing) -> Mapping[str, str]:
    """Bindings of which it says something else, and what."""
    wrong = {}
    for key in keys:
        namespace, name = key.split("/")
        answer = await caller.ask("GetBinding", namespace=namespace, name=name)
        told = {
            (each.cluster, each.component, each.replicas, each.certificate, each.decision_id)
            for each in answer.reservations
        }
        stored = _held(standing.reservations.get(key))
        decision = standing.bindings[key][1]
        if told != stored or answer.decision.id != decision:
            wrong[key] = f"{sorted(told)} by {answer.decision.id}, stored: {stored} by {decision}"
    return wrong


def _held(row: StoredReservations | None) -> Told:
    """The newest shape of every component."""
    newest = {(each.cluster, each.component): each for each in row.reservations} if row else {}
    return {
        (each.cluster, each.component, each.replicas, each.certificate, each.decision)
        for each in newest.values()
    }
