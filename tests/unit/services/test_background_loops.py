"""Work in the background goes on after what nobody expected, which is told once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, TypeAlias

import pytest

from federation import database
from federation.database import keep_running
from federation.model.shapes import ReservationKey
from federation.parts import SystemClock
from federation.services.duties import Duties
from federation.services.fleet import journal_reader, readiness
from federation.services.fleet.journal_reader import Following
from federation.services.fleet.readiness import Readiness
from federation.services.members import finished_jobs, hearing
from federation.services.members.finished_jobs import Finishing
from federation.services.members.hearing import LoopWatch
from lab.patience import PATIENCE_SECONDS

TRIES = 4
NOTHING: Any = None

Work: TypeAlias = Callable[..., Any]
Loop: TypeAlias = Coroutine[Any, Any, None]


def finishing(work: Work) -> Loop:
    fleet: Any = SimpleNamespace(ledger=lambda _: SimpleNamespace(of_binding=lambda _: ()))
    made = Finishing(NOTHING, fleet)
    report: Any = SimpleNamespace(
        echoes=[SimpleNamespace(finished=1, key=ReservationKey("shop/web", "", NOTHING))]
    )
    made.note("member1", report)
    return patched(made, "write", work).run()


def patched(made: Any, name: str, work: Work) -> Any:
    setattr(made, name, work)
    return made


LOOPS: dict[str, Callable[[Work], Loop]] = {
    "what finished is not written": finishing,
    "readiness not looked at": lambda work: patched(
        Readiness(NOTHING, SystemClock(), NOTHING), "look", work
    ).keep_looking(),
    "agents not forgiven that the event loop stood still": lambda work: patched(
        LoopWatch(NOTHING, NOTHING), "late_by", work
    ).keep_watching(),
    "duties not held": lambda work: patched(
        Duties(NOTHING, "one", (), SystemClock(), lease_seconds=0.0), "do_round", work
    ).keep_doing(),
    "the journal cannot be read": lambda work: patched(
        Following(NOTHING, NOTHING), "follow", work
    ).run(),
    "embedded database does not start": lambda work: keep_running(
        patched(SimpleNamespace(), "is_alive", work)
    ),
}


@pytest.mark.parametrize("message", LOOPS)
async def test_a_loop_goes_on_after_what_nobody_expected(
    message: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for module, pause in (
        (readiness, "LOOK_SECONDS"),
        (hearing, "TICK_SECONDS"),
        (finished_jobs, "AGAIN_SECONDS"),
        (journal_reader, "FIRST_PAUSE_SECONDS"),
        (database, "WATCH_SECONDS"),
        (database, "LONGEST_PAUSE_SECONDS"),
    ):
        monkeypatch.setattr(module, pause, 0.0)
    caplog.set_level(logging.INFO)
    tries, tried_often = list[str](), asyncio.Event()

    def fail(*_: object) -> None:
        tries.append(f"try {len(tries)}")
        if len(tries) >= TRIES:
            tried_often.set()
        raise RuntimeError(tries[-1])

    loop = asyncio.create_task(LOOPS[message](fail))
    async with asyncio.timeout(PATIENCE_SECONDS):
        await tried_often.wait()
    loop.cancel()
    await asyncio.gather(loop, return_exceptions=True)
    assert [(each.message, bool(each.exc_info)) for each in caplog.records] == [(message, True)]
