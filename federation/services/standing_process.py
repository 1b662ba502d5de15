"""A process that is told of everything that happens and asked about it: bytes in, bytes out.

Must not know what it is told or asked. Nobody waits for it to start: until then it has no answers.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Protocol, cast

from federation.model.errors import LimitExceeded
from federation.runtime.measures import Distribution
from federation.services.workers import HEADER, LENGTH, READY, AnswerKind, WorkerAnswer

# What is asked at once; others wait for their turn, and are not sent when they give up before.
ASKED_AT_ONCE: Final = 16
# A burst is answered late rather than refused, as by a process that was just started, but nobody
# waits in vain: who would wait longer than this, or than they have time, is told at once.
PATIENCE_SECONDS: Final = 10.0
MOST_WAITING: Final = 1_000
# One that ended is not started again before.
AGAIN_SECONDS: Final = 5.0
# One that has no answer by then is ended.
MOST_SECONDS: Final = 20.0

logger = logging.getLogger(__name__)


class Teller(Protocol):
    """What the process is told, in parts."""

    def begin_anew(self) -> None:
        """The next part is the first one that a new process hears."""
        ...

    @property
    def has_more(self) -> bool:
        """Whether anything is still to be told."""
        ...

    def next_part(self) -> bytes: ...


class StandingProcess:
    """Belongs to one event loop. Started by ``begin`` or the first question; again when it ends."""

    def __init__(self, kind: str, command: Sequence[str], teller: Teller) -> None:
        self._kind = kind
        self._command = command
        self._teller = teller
        self._turns = asyncio.Semaphore(ASKED_AT_ONCE)
        # Since when they wait, who came first before the others.
        self._waiting: dict[object, float] = {}
        self.starts = 0
        # From a question to its answer, its turn included.
        self.durations = Distribution()
        self._keeper: asyncio.Task[None] | None = None
        self._process: Process | None = None
        # Once it was told everything.
        self._into: asyncio.StreamWriter | None = None
        self._asked: deque[asyncio.Future[WorkerAnswer | None]] = deque()

    @property
    def is_ready(self) -> bool:
        """Whether it was told everything."""
        return self._into is not None

    @property
    def waiting(self) -> int:
        """How many questions wait for their turn."""
        return len(self._waiting)

    @property
    def pid(self) -> int | None:
        """None: there is none now."""
        process = self._process
        return None if process is None or process.returncode is not None else process.pid

    def begin(self) -> None:
        """It will be asked."""
        if self._keeper is None:
            self._keeper = asyncio.create_task(self._keep())

    async def ask(
        self, question: Callable[[], bytes], seconds: float | None = None
    ) -> WorkerAnswer | None:
        """The answer; None where it cannot be asked now, or ends meanwhile.

        ``question`` is made when its turn has come, after the process was told everything. Raises
        LimitExceeded when too many wait for somebody with so many ``seconds``, None: any.
        """
        self.begin()
        if self._into is None:
            return None
        asked = asyncio.get_running_loop().time()
        patience = PATIENCE_SECONDS if seconds is None else min(seconds, PATIENCE_SECONDS)
        await self._turn(asked, patience)
        try:
            answer = await self._answered(question)
        finally:
            self._turns.release()
        if answer is not None:
            self.durations.add(asyncio.get_running_loop().time() - asked)
        return answer

    async def close(self) -> None:
        """It ends."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)

    async def _turn(self, now: float, patience: float) -> None:
        # Who came first has waited as long as who comes now will.
        longest = now - next(iter(self._waiting.values()), now)
        if len(self._waiting) >= MOST_WAITING or longest > patience:
            raise LimitExceeded(f"Too many {self._kind} wait for their turn; try again later.")
        place = object()
        self._waiting[place] = now
        try:
            await self._turns.acquire()
        finally:
            del self._waiting[place]

    async def _answered(self, question: Callable[[], bytes]) -> WorkerAnswer | None:
        into = self._into
        if into is None:
            return None
        await self._tell_all(into)
        if self._into is not into:
            return None
        # Nothing happens in between: the answer is about all that was told.
        body = question()
        answer: asyncio.Future[WorkerAnswer | None] = asyncio.get_running_loop().create_future()
        self._asked.append(answer)
        _send(into, body)
        try:
            async with asyncio.timeout(MOST_SECONDS):
                await into.drain()
                return await answer
        except ConnectionError:
            return None
        except TimeoutError:
            # It hangs. Whoever reads its answers finds that it ended.
            self._kill()
            return None

    async def _keep(self) -> None:
        while True:
            fields: dict[str, object] = {"kind": self._kind}
            try:
                fields["code"] = await self._run()
            except OSError as error:
                fields["why"] = str(error)
            logger.error("process ended", extra={"fields": fields})
            await asyncio.sleep(AGAIN_SECONDS)

    async def _run(self) -> int:
        """The exit code of one process, which answered until then."""
        process = self._process = await asyncio.create_subprocess_exec(
            *self._command, stdin=PIPE, stdout=PIPE, process_group=0
        )
        self.starts += 1
        # Both are pipes.
        into = cast("asyncio.StreamWriter", process.stdin)
        out = cast("asyncio.StreamReader", process.stdout)
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                await out.readexactly(len(READY))
                self._teller.begin_anew()
                await self._tell_all(into)
                self._into = into
                await self._take_answers(out)
        finally:
            self._into = None
            while self._asked:
                answer = self._asked.popleft()
                if not answer.done():
                    answer.set_result(None)
            self._kill()
            code = await process.wait()
            into.close()
        return code

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            if self._process is not None:
                self._process.kill()

    async def _tell_all(self, into: asyncio.StreamWriter) -> None:
        """Part by part: others have their turn between two of them."""
        while self._teller.has_more:
            _send(into, self._teller.next_part())
            if self._teller.has_more:
                await into.drain()
                await asyncio.sleep(0)

    async def _take_answers(self, out: asyncio.StreamReader) -> None:
        while True:
            kind, _, size = HEADER.unpack(await out.readexactly(HEADER.size))
            body = await out.readexactly(size)
            answer = self._asked.popleft()
            if not answer.done():
                answer.set_result(WorkerAnswer(AnswerKind(kind), body))


def _send(into: asyncio.StreamWriter, body: bytes) -> None:
    into.write(LENGTH.pack(len(body)))
    into.write(body)
