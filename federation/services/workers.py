"""Processes that answer questions: bytes in, bytes out.

``Workers`` end with their callers, one question at a time. A ``StandingProcess`` gets all changes,
and answers many. Must not know what is asked, nor let an answer delay the control plane.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple, Protocol, Self, cast

from federation.model.errors import DeadlineMissed, LimitExceeded, Unavailable
from federation.runtime.measures import Distribution

# Before a question: how many bytes follow. Before an answer: its kind, whether it is the last one
# of its process, how many bytes follow.
LENGTH: Final = struct.Struct("!Q")
HEADER: Final = struct.Struct("!B?Q")
# What a worker exits with that has no memory left for an answer.
OUT_OF_MEMORY_CODE: Final = 71
# What a worker says once it can be asked, and when it has read a question.
READY: Final = b"\x02"
TAKEN: Final = b"\x01"
END_SECONDS: Final = 5.0
# Questions that wait for a process.
MAX_WAITING: Final = 8
# How the system ends a process that takes too much: an abort of the allocator, or SIGKILL.
_KILLED_CODES: Final = frozenset({OUT_OF_MEMORY_CODE, -6, -9})

# Questions that are sent at once; others wait for their turn, unless they give up before.
ASKED_AT_ONCE: Final = 16
# A burst is answered late rather than refused. A question that would wait longer than this, or
# than its caller has time, is refused at once.
PATIENCE_SECONDS: Final = 10.0
MAX_QUESTIONS: Final = 1_000
# The pause before a process that ended is started again.
AGAIN_SECONDS: Final = 5.0
# A process without an answer by then is ended.
MAX_ANSWER_SECONDS: Final = 20.0

logger = logging.getLogger(__name__)


class AnswerKind(IntEnum):
    """The kind of a worker's answer."""

    ANSWER = 0
    REFUSAL = 1


class WorkerAnswer(NamedTuple):
    """An answer of a worker; its caller reads the bytes."""

    kind: AnswerKind
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLimits:
    """``count`` processes work at once, ``most_waiting`` questions wait for one; one takes
    ``seconds`` at most, waiting included.
    """

    count: int = 1
    most_waiting: int = MAX_WAITING
    seconds: float = 30.0


class Workers:
    """A few processes of one program. Belongs to one event loop.

    They start when first needed and are kept; who gives up on an answer ends the process that was
    working on it, and another takes its place at once. One that is starting is left to the next.
    """

    def __init__(
        self, kind: str, command: Sequence[str], greeting: Callable[[], bytes], limits: WorkerLimits
    ) -> None:
        self._kind = kind
        self._command = command
        self._greeting = greeting
        self._limits = limits
        self._turns = asyncio.Semaphore(limits.count)
        self._under_way = 0
        self._idle: list[_Worker] = []
        self._replacing: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def ask(self, question: bytes) -> WorkerAnswer:
        """Raises LimitExceeded when too many wait, or it takes too much memory; DeadlineMissed,
        Unavailable, and what the greeting raises.
        """
        if self._under_way >= self._limits.count + self._limits.most_waiting:
            raise LimitExceeded(f"Too many {self._kind}s wait for their turn; try again later.")
        self._under_way += 1
        limit = asyncio.timeout(self._limits.seconds)
        try:
            async with limit, self._turns:
                return await self._answered(question)
        except TimeoutError:
            if not limit.expired():
                raise
            raise DeadlineMissed(
                f"the {self._kind} did not end within {self._limits.seconds:g} s: ask for less"
            ) from None
        finally:
            self._under_way -= 1

    async def close(self) -> None:
        """All of them end."""
        self._is_closed = True
        await asyncio.gather(*self._replacing, return_exceptions=True)
        idle, self._idle = self._idle, []
        await asyncio.gather(*(worker.end() for worker in idle))

    async def _answered(self, question: bytes) -> WorkerAnswer:
        while True:
            if not self._idle and self._replacing:
                await asyncio.wait(self._replacing, return_when=asyncio.FIRST_COMPLETED)
                continue
            is_new = not self._idle
            worker = await self._starting() if is_new else self._idle.pop()
            is_asked = has_taken = False
            try:
                await worker.ready()
                is_asked = True
                await worker.take(question)
                has_taken = True
                answer, is_last = await worker.answer()
            except (asyncio.IncompleteReadError, ConnectionError) as error:
                code = await worker.ended()
                if is_new or has_taken:
                    raise self._why_ended(code) from error
                # It ended while it had nothing to do: another one takes it.
                continue
            except BaseException:
                if is_asked or self._is_closed:
                    self._replace(worker)
                else:
                    self._idle.append(worker)
                raise
            if is_last or self._is_closed:
                self._replace(worker)
            else:
                self._idle.append(worker)
            return answer

    async def _starting(self) -> _Worker:
        """One that starts also where whoever asked gives up meanwhile."""
        starting = asyncio.create_task(self._started())
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            self._keep(self._left(starting))
            raise

    async def _left(self, starting: asyncio.Task[_Worker]) -> None:
        """One that has started waits for the next; who asks next is told why one does not start."""
        await asyncio.wait((starting,))
        if starting.exception() is not None:
            return
        if self._is_closed:
            await starting.result().end()
        else:
            self._idle.append(starting.result())

    async def _started(self) -> _Worker:
        greeting = self._greeting()
        worker = await _Worker.started(self._command)
        try:
            await worker.send(greeting)
        except BaseException:
            worker.kill()
            raise
        return worker

    def _replace(self, worker: _Worker) -> None:
        worker.kill()
        self._keep(self._replaced(worker))

    def _keep(self, work: Coroutine[None, None, None]) -> None:
        """Work that leads to one which has nothing to do; it goes on by itself."""
        task = asyncio.create_task(work)
        self._replacing.add(task)
        task.add_done_callback(self._replacing.discard)

    async def _replaced(self, worker: _Worker) -> None:
        await worker.end()
        if not self._is_closed and len(self._idle) < self._limits.count:
            self._idle.append(await self._started())

    def _why_ended(self, code: int) -> LimitExceeded | Unavailable:
        if code in _KILLED_CODES:
            return LimitExceeded(f"The {self._kind} takes more memory than it may: ask for less.")
        logger.error("worker ended", extra={"fields": {"kind": self._kind, "code": code}})
        return Unavailable(f"The process of the {self._kind} ended; try again.")


class _Worker:
    """One process and its pipes: frames in, answers out."""

    def __init__(self, process: Process) -> None:
        self._process = process
        # Both are pipes.
        self._into = cast("asyncio.StreamWriter", process.stdin)
        self._out = cast("asyncio.StreamReader", process.stdout)
        self._is_ready = False

    @classmethod
    async def started(cls, command: Sequence[str]) -> Self:
        """Start a process. Raises OSError."""
        # Ctrl-C in a terminal is for us, who end them. A session of their own would have a share of
        # the processor as large as ours, whatever their niceness (sched(7), autogroup).
        process = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, process_group=0
        )
        return cls(process)

    @property
    def pid(self) -> int | None:
        """The id of the process, None once it ended."""
        return None if self._process.returncode is not None else self._process.pid

    def write(self, body: bytes) -> None:
        """Write a frame; ``drain`` waits until the process has room for more."""
        self._into.write(LENGTH.pack(len(body)))
        self._into.write(body)

    async def drain(self) -> None:
        """Raises ConnectionError."""
        await self._into.drain()

    async def send(self, body: bytes) -> None:
        self.write(body)
        await self.drain()

    async def ready(self) -> None:
        """Return when it can be asked; a caller that does not wait any longer harms nothing."""
        if not self._is_ready:
            await self._out.readexactly(len(READY))
            self._is_ready = True

    async def take(self, question: bytes) -> None:
        """Return when it works on the question."""
        await self.send(question)
        await self._out.readexactly(len(TAKEN))

    async def answer(self) -> tuple[WorkerAnswer, bool]:
        """Return the next answer, and whether it was the last one of the process."""
        kind, is_last, size = HEADER.unpack(await self._out.readexactly(HEADER.size))
        return WorkerAnswer(AnswerKind(kind), await self._out.readexactly(size)), is_last

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()

    async def ended(self) -> int:
        """Return the exit code of a process that ends by itself."""
        with suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                await self._process.wait()
        return await self.end()

    async def end(self) -> int:
        """Kill the process, and return its exit code."""
        self.kill()
        code = await self._process.wait()
        self._into.close()
        return code


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
        self._worker: _Worker | None = None
        # The process once it has got all changes.
        self._current: _Worker | None = None
        self._asked: deque[asyncio.Future[WorkerAnswer | None]] = deque()

    @property
    def is_ready(self) -> bool:
        """Whether the process has got all changes."""
        return self._current is not None

    @property
    def waiting(self) -> int:
        """Count the questions that wait for their turn."""
        return len(self._waiting)

    @property
    def pid(self) -> int | None:
        """The id of the process, None while there is none."""
        return None if self._worker is None else self._worker.pid

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
        if self._current is None:
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
        if len(self._waiting) >= MAX_QUESTIONS or longest > patience:
            raise LimitExceeded(f"Too many {self._kind} wait for their turn; try again later.")
        place = object()
        self._waiting[place] = now
        try:
            await self._turns.acquire()
        finally:
            del self._waiting[place]

    async def _answered(self, question: Callable[[], bytes]) -> WorkerAnswer | None:
        worker = self._current
        if worker is None:
            return None
        await self._tell_all(worker)
        if self._current is not worker:
            return None
        # Nothing happens in between, so that the answer is about all changes.
        body = question()
        answer: asyncio.Future[WorkerAnswer | None] = asyncio.get_running_loop().create_future()
        self._asked.append(answer)
        worker.write(body)
        try:
            async with asyncio.timeout(MAX_ANSWER_SECONDS):
                await worker.drain()
                return await answer
        except ConnectionError:
            return None
        except TimeoutError:
            # It hangs. The reader of its answers finds that it ended.
            worker.kill()
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
        worker = self._worker = await _Worker.started(self._command)
        self.starts += 1
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                await worker.ready()
                self._changes.begin_anew()
                await self._tell_all(worker)
                self._current = worker
                await self._take_answers(worker)
        finally:
            self._current = None
            while self._asked:
                answer = self._asked.popleft()
                if not answer.done():
                    answer.set_result(None)
            code = await worker.end()
        return code

    async def _tell_all(self, worker: _Worker) -> None:
        """Send all changes part by part, with turns for other work in between."""
        while self._changes.has_more:
            worker.write(self._changes.next_part())
            if self._changes.has_more:
                await worker.drain()
                await asyncio.sleep(0)

    async def _take_answers(self, worker: _Worker) -> None:
        while True:
            answer, _ = await worker.answer()
            waiting = self._asked.popleft()
            if not waiting.done():
                waiting.set_result(answer)
