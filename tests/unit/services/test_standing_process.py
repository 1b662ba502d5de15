"""A process that is told and asked: in order, and no worse than none when it fails."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import AsyncIterator, Sequence

import pytest

from federation.model.errors import InvalidRequest, LimitExceeded
from federation.services import standing_process
from federation.services.standing_process import StandingProcess
from federation.services.workers import WorkerAnswer
from lab.patience import PATIENCE_SECONDS

# Remembers what starts with "+", and answers everything else with all of that; "die" and "hang" it
# does.
PROGRAM = """
import struct, sys, time
into, out = sys.stdin.buffer, sys.stdout.buffer
out.write(bytes([2])); out.flush()
told = b""
while True:
    header = into.read(8)
    if not header: break
    body = into.read(struct.unpack("!Q", header)[0])
    if body.startswith(b"+"):
        told += body
        continue
    if body == b"die": sys.exit(3)
    if body == b"hang": time.sleep(3600)
    answer = body + told
    out.write(struct.pack("!B?Q", 0, False, len(answer)) + answer); out.flush()
"""


class Parts:
    """Implements ``Teller``: one letter a part, and all that was ever told for whoever is new."""

    def __init__(self) -> None:
        self.ever: list[bytes] = []
        self.coming: deque[bytes] = deque()

    def happened(self, letter: bytes) -> None:
        self.ever.append(letter)
        self.coming.append(letter)

    def begin_anew(self) -> None:
        self.coming = deque(self.ever)

    @property
    def has_more(self) -> bool:
        return bool(self.coming)

    def next_part(self) -> bytes:
        return b"+" + self.coming.popleft()


@pytest.fixture
def parts() -> Parts:
    return Parts()


@pytest.fixture
async def process(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[StandingProcess]:
    monkeypatch.setattr(standing_process, "AGAIN_SECONDS", 0.01)
    made = StandingProcess("test", (sys.executable, "-c", PROGRAM), parts)
    yield made
    await made.close()


async def answered(process: StandingProcess, question: bytes = b"?") -> bytes:
    """Once there is a process that answers."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (answer := await process.ask(lambda: question)) is None:  # noqa: ASYNC110 - polled
            await asyncio.sleep(0.01)
    return answer.body


async def test_nobody_waits_for_it_to_start(process: StandingProcess) -> None:
    assert await process.ask(lambda: b"?") is None
    assert await answered(process) == b"?"


async def test_an_answer_is_about_all_that_happened_before(
    process: StandingProcess, parts: Parts
) -> None:
    parts.happened(b"a")
    parts.happened(b"b")
    assert await answered(process) == b"?+a+b"
    parts.happened(b"c")
    parts.happened(b"d")
    assert await answered(process) == b"?+a+b+c+d"


async def test_many_ask_at_once_and_each_gets_its_own_answer(process: StandingProcess) -> None:
    await answered(process)
    questions = [str(number).encode() for number in range(80)]
    answers = await asyncio.gather(*(answered(process, each) for each in questions))
    assert answers == questions


async def test_a_question_that_cannot_be_made_harms_no_other(process: StandingProcess) -> None:
    await answered(process)

    def refused() -> bytes:
        raise InvalidRequest.of("clusters[0]", "there is no such cluster")

    with pytest.raises(InvalidRequest):
        await process.ask(refused)
    assert await answered(process, b"next") == b"next"


async def test_who_gives_up_leaves_the_answers_in_order(process: StandingProcess) -> None:
    await answered(process)
    asking = [asyncio.create_task(process.ask(lambda: b"lost")) for _ in range(20)]
    await asyncio.sleep(0)
    for each in asking:
        each.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
    assert await answered(process, b"mine") == b"mine"


async def test_one_that_ends_has_no_answers_and_another_is_told_everything(
    process: StandingProcess, parts: Parts
) -> None:
    parts.happened(b"a")
    await answered(process)
    dying = [process.ask(lambda: b"die"), *(process.ask(lambda: b"?") for _ in range(5))]
    assert await asyncio.gather(*dying) == [None] * 6
    parts.happened(b"b")
    assert await answered(process) == b"?+a+b"


async def test_one_that_hangs_is_ended(
    process: StandingProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    await answered(process)
    monkeypatch.setattr(standing_process, "MOST_SECONDS", 0.05)
    assert await process.ask(lambda: b"hang") is None
    monkeypatch.undo()
    assert await answered(process) == b"?"


async def given_up(asking: Sequence[asyncio.Task[WorkerAnswer | None]]) -> None:
    for each in asking:
        each.cancel()
    await asyncio.gather(*asking, return_exceptions=True)


async def test_too_many_are_told_so(
    process: StandingProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    await answered(process)
    monkeypatch.setattr(standing_process, "MOST_WAITING", 30)
    hanging = standing_process.ASKED_AT_ONCE + 30
    asking = [asyncio.create_task(process.ask(lambda: b"hang")) for _ in range(hanging)]
    await asyncio.sleep(0)
    with pytest.raises(LimitExceeded, match="Too many test wait"):
        await process.ask(lambda: b"?")
    await given_up(asking)


async def test_a_burst_waits_and_who_would_wait_in_vain_is_told(
    process: StandingProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    await answered(process)
    hanging = standing_process.ASKED_AT_ONCE
    asking = [asyncio.create_task(process.ask(lambda: b"hang")) for _ in range(hanging + 1)]
    await asyncio.sleep(0)
    await asyncio.sleep(0.01)
    with pytest.raises(LimitExceeded, match="Too many test wait"):
        await process.ask(lambda: b"?", seconds=0.001)
    asking.append(asyncio.create_task(process.ask(lambda: b"?", seconds=PATIENCE_SECONDS)))
    await asyncio.sleep(0)
    assert not asking[-1].done()
    monkeypatch.setattr(standing_process, "PATIENCE_SECONDS", 0.0)
    with pytest.raises(LimitExceeded, match="Too many test wait"):
        await process.ask(lambda: b"?")
    # Nobody waits any more: who comes now waits like the first.
    await given_up(asking[-2:])
    asking[-1] = asyncio.create_task(process.ask(lambda: b"?"))
    await asyncio.sleep(0)
    assert not asking[-1].done()
    await given_up(asking)


async def test_a_program_that_does_not_start_is_as_none(
    parts: Parts, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(standing_process, "AGAIN_SECONDS", 0.01)
    process = StandingProcess("test", ("/there/is/no/such/program",), parts)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while "process ended" not in caplog.text:
            assert await process.ask(lambda: b"?") is None
            await asyncio.sleep(0.01)
    await process.close()
