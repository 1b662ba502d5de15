"""A process that gets all changes and answers questions about them: bytes in, bytes out.

Must not know the content. Callers do not wait for its start: until then it has no answers.
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

# Questions that are sent at once; others wait for their turn, unless they give up before.
ASKED_AT_ONCE: Final = 16
# A burst is answered late rather than refused. A question that would wait longer than this, or
# than its caller has time, is refused at once.
PATIENCE_SECONDS: Final = 10.0
MAX_WAITING: Final = 1_000
# The pause before a process that ended is started again.
AGAIN_SECONDS: Final = 5.0
# A process without an answer by then is ended.
MAX_SECONDS: Final = 20.0

logger = logging.getLogger(__name__)


class ChangeSource(Protocol):
    """The source of changes for the process, in parts."""

    def begin_anew(self) -> None:
        """Begin with the first part, for a new process."""
        ...

    @property
    def has_more(self) -> bool:
        """Whether there are changes that were not sent."""
        ...

    def next_part(self) -> bytes: ...


class StandingProcess:
    """Belongs to one event loop. Started by ``begin`` or the first question; again when it ends."""

    def __init__(self, kind: str, command: Sequence[str], changes: ChangeSource) -> None:
        self._kind = kind
        self._command = command
        self._changes = changes
        self._turns = asyncio.Semaphore(ASKED_AT_ONCE)
        # Since when questions wait, the oldest first.
        self._waiting: dict[object, float] = {}
        self.starts = 0
        # From a question to its answer, its turn included.
        self.durations = Distribution()
        self._keeper: asyncio.Task[None] | None = None
        self._process: Process | None = None
        # The input of a process that has got all changes.
        self._into: asyncio.StreamWriter | None = None
        self._asked: deque[asyncio.Future[WorkerAnswer | None]] = deque()

    @property
    def is_ready(self) -> bool:
        """Whether the process has got all changes."""
        return self._into is not None

    @property
    def waiting(self) -> int:
        """Count the questions that wait for their turn."""
        return len(self._waiting)

    @property
    def pid(self) -> int | None:
        """The id of the process, None while there is none."""
        process = self._process
        return None if process is None or process.returncode is not None else process.pid

    def begin(self) -> None:
        """Start the process, which will be asked."""
        if self._keeper is None:
            self._keeper = asyncio.create_task(self._keep())

    async def ask(
        self, question: Callable[[], bytes], seconds: float | None = None
    ) -> WorkerAnswer | None:
        """Ask a question; None if the process is not ready, or ends meanwhile.

        ``question`` is called when its turn has come, after all changes were sent. Raises
        LimitExceeded when too many wait for a caller with these ``seconds``, None: any.
        """
        self.begin()
        if self._into is None:
            return None
        asked_at = asyncio.get_running_loop().time()
        patience = PATIENCE_SECONDS if seconds is None else min(seconds, PATIENCE_SECONDS)
        await self._turn(asked_at, patience)
        try:
            answer = await self._answered(question)
        finally:
            self._turns.release()
        if answer is not None:
            self.durations.add(asyncio.get_running_loop().time() - asked_at)
        return answer

    async def close(self) -> None:
        """End the process."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)

    async def _turn(self, now: float, patience: float) -> None:
        # A new question will wait as long as the oldest one has.
        longest = now - next(iter(self._waiting.values()), now)
        if len(self._waiting) >= MAX_WAITING or longest > patience:
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
        # Nothing happens in between, so that the answer is about all changes.
        body = question()
        answer: asyncio.Future[WorkerAnswer | None] = asyncio.get_running_loop().create_future()
        self._asked.append(answer)
        _send(into, body)
        try:
            async with asyncio.timeout(MAX_SECONDS):
                await into.drain()
                return await answer
        except ConnectionError:
            return None
        except TimeoutError:
            # It hangs. The reader of its answers finds that it ended.
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
        """Run one process; return its exit code."""
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
                self._changes.begin_anew()
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
        """Send all changes part by part, with turns for other work in between."""
        while self._changes.has_more:
            _send(into, self._changes.next_part())
            if self._changes.has_more:
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
