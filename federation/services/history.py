"""The history of decisions: lists of them, inputs of replays, and trace files.

Must not decide anything, nor unpack traces for a list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

import msgspec

from federation.history.kept_reports import KeptPicture, unpacked_round
from federation.history.packed_inputs import part_names
from federation.history.recorded import Recorded, inputs_of
from federation.history.trace_files import (
    END,
    TraceChunk,
    TracedDecision,
    TracedDeletion,
    TraceHeader,
    beginning,
    chunk_bytes,
)
from federation.model.errors import LimitExceeded, NotFound, PreconditionFailed
from federation.services.decision_ports import (
    FIRST_PLACE,
    DecisionFilter,
    DecisionPage,
    DecisionPlace,
)
from federation.services.member_ports import KeptRound
from federation.services.ports import Store
from federation.services.threads import ENCODING, UNPACKING
from federation.simulation.reported_fleet import MAX_COMMIT_MICROS, ReportReplayInput

# Bytes of traces in one piece of a file, and of the whole piece: clients take answers of 4 MiB.
TRACES_AT_ONCE: Final = 1_500_000
MAX_AT_ONCE: Final = 3_000_000
MINUTE: Final = 60_000_000
# A report is kept once a minute; it may be late.
REPORTS_MINUTES: Final = 5
# Bytes of pictures, and of the traces of decisions since them.
MAX_REPORTED: Final = 32_000_000


class TracePiece(NamedTuple):
    """A piece of a trace file: its bytes, its decisions, and the place of the next piece."""

    content: bytes
    decisions: int
    next_after: DecisionPlace | None


class DecisionHistory:
    """Use cases of callers with decisions of the past."""

    def __init__(self, store: Store, *, allow_unproven: bool = False) -> None:
        self._store = store
        self._allow_unproven = allow_unproven

    async def list_decisions(
        self, query: DecisionFilter, after: DecisionPlace | None, limit: int
    ) -> DecisionPage:
        """Return a page of decisions, the newest first, behind ``after``."""
        async with self._store.reading() as read:
            return await read.decisions.page(query, after, limit)

    async def recorded(self, decision_id: str) -> Recorded:
        """Return a decision with its inputs.

        Raises NotFound, and PreconditionFailed if its inputs are not stored.
        """
        return (await self._recorded_at(decision_id))[0]

    async def report_replay_input(self, decision_id: str) -> ReportReplayInput:
        """Return a decision with its inputs and the stored state before it.

        Raises as ``recorded`` does, PreconditionFailed if no report of that time is stored, and
        LimitExceeded for too many decisions since.
        """
        recorded, at = await self._recorded_at(decision_id)
        pictures = await self._pictures_at(at)
        if not pictures:
            raise PreconditionFailed(
                f"No report is kept of the {REPORTS_MINUTES} minutes before decision "
                f"{decision_id}: none was written then, or --keep-reports-hours is over.",
                reason="REPORTS_NOT_KEPT",
            )
        since = min(picture.since for picture in pictures.values()) - MAX_COMMIT_MICROS
        async with self._store.reading() as read:
            deletions = await read.decisions.deletions_between(since, at)
        return ReportReplayInput(
            recorded=recorded,
            id=decision_id,
            at=at,
            pictures=pictures,
            decisions=tuple(await self._decided_between(since, at)),
            deletions=tuple(deletions),
            allow_unproven=self._allow_unproven,
        )

    async def _pictures_at(self, at: int) -> dict[str, KeptPicture]:
        """Return the newest picture of each cluster, as of that time."""
        async with self._store.reading() as read:
            rounds = await read.kept_reports.rounds(at - REPORTS_MINUTES * MINUTE, at)
        newest = await UNPACKING.run(_newest_pictures, rounds)
        names, days = {name for _, name, _ in newest.values()}, {entry.day for entry in rounds}
        async with self._store.reading() as read:
            size = await read.kept_reports.size(names, days)
            if size > MAX_REPORTED:
                raise LimitExceeded(
                    f"the reports of that time have {size} bytes, and {MAX_REPORTED} are looked at"
                )
            bodies = await read.kept_reports.pictures(names, days)
        return {
            cluster: KeptPicture(bodies[name], since, decided)
            for cluster, (since, name, decided) in newest.items()
            if name in bodies
        }

    async def _decided_between(self, since: int, until: int) -> list[TracedDecision]:
        """Return the decisions between two times, the oldest first."""
        query = DecisionFilter(since=since / 1_000_000)
        decided: list[TracedDecision] = []
        after, size = FIRST_PLACE, 0
        while True:
            async with self._store.reading() as read:
                page = await read.decisions.recorded_after(query, after, TRACES_AT_ONCE)
            decided += [decision for decision in page if decision.at <= until]
            size += sum(len(decision.trace) for decision in page)
            if not page or page[-1].at > until:
                return decided
            if size > MAX_REPORTED:
                raise LimitExceeded(
                    f"since the reports before it more was decided than {MAX_REPORTED} bytes of "
                    "traces: it cannot be held against reports"
                )
            after = page[-1].at, page[-1].id

    async def _recorded_at(self, decision_id: str) -> tuple[Recorded, int]:
        """Return a decision, and when it was committed, in microseconds since 1970."""
        async with self._store.reading() as read:
            packed = await read.decisions.get(decision_id)
        if packed is None:
            raise NotFound(f"There is no decision {decision_id!r}.")
        result = packed.packed
        inputs = await UNPACKING.run(inputs_of, result.trace)
        if inputs is None:
            raise PreconditionFailed(
                f"Decision {decision_id} cannot be made again: it says what a binding lost to "
                "another one, or what it was made on was never kept.",
                reason="INPUTS_NOT_KEPT",
            )
        async with self._store.reading() as read:
            bodies = dict(await read.decisions.shared([inputs.fleet, inputs.profile]))
            fleet = bodies.get(inputs.fleet)
            parts = part_names(fleet) if fleet is not None else ()
            bodies |= await read.decisions.shared(parts)
        if not bodies.keys() >= {inputs.fleet, inputs.profile, *parts}:
            raise PreconditionFailed(
                f"What decision {decision_id} was made on was forgotten: it is kept as long as "
                "--keep-decisions-days says.",
                reason="INPUTS_FORGOTTEN",
            )
        return Recorded(**result._asdict(), bodies=bodies), packed.at

    async def trace_piece(self, query: DecisionFilter, after: DecisionPlace | None) -> TracePiece:
        """Return the next piece of a trace; ``after`` None: the first."""
        chunk = await self.trace_chunk(query, after)
        return await ENCODING.run(_piece, None if after else query, chunk)

    async def trace_chunk(self, query: DecisionFilter, after: DecisionPlace | None) -> TraceChunk:
        """Return the decisions behind ``after`` that fit in a chunk; none: that was all."""
        async with self._store.reading() as read:
            decisions = await read.decisions.recorded_after(
                query, after or FIRST_PLACE, TRACES_AT_ONCE
            )
        names = await UNPACKING.run(_names_of, decisions)
        async with self._store.reading() as read:
            bodies = dict(await read.decisions.shared({*chain.from_iterable(names)}))
            fleets = {named[0] for named in names if named} & bodies.keys()
            parts = {fleet: part_names(bodies[fleet]) for fleet in fleets}
            bodies |= await read.decisions.shared({*chain.from_iterable(parts.values())})
        names = [(*named, *parts.get(named[0], ())) if named else () for named in names]
        taken = await UNPACKING.run(_fitting, decisions, names, bodies)
        deletions: Sequence[TracedDeletion] = ()
        if taken.decisions:
            since = after[0] if after else round((query.since or 0.0) * 1_000_000)
            async with self._store.reading() as read:
                last_at = taken.decisions[-1].at
                deletions = await read.decisions.deletions_between(since, last_at)
        return msgspec.structs.replace(taken, deletions=tuple(deletions))


def _newest_pictures(
    rounds: Sequence[KeptRound],
) -> dict[str, tuple[int, bytes, frozenset[str]]]:
    """Return the time, the name and the decisions of each cluster's newest picture."""
    newest: dict[str, tuple[int, bytes, frozenset[str]]] = {}
    for stored in rounds:
        entry = unpacked_round(stored.body)
        for cluster, name in entry.pictures.items():
            newest.setdefault(cluster, (entry.since, name, entry.decided))
    return newest


def _names_of(decisions: Sequence[TracedDecision]) -> list[tuple[bytes, ...]]:
    """Return the names of the bodies of fleet and profile, if a decision has stored inputs."""
    stored = [inputs_of(decision.trace) for decision in decisions]
    return [(inputs.fleet, inputs.profile) if inputs else () for inputs in stored]


def _fitting(
    decisions: Sequence[TracedDecision],
    names: Sequence[Sequence[bytes]],
    bodies: Mapping[bytes, bytes],
) -> TraceChunk:
    """Return the first decisions that fit in a chunk, with the bodies that they name."""
    taken: list[TracedDecision] = []
    used: dict[bytes, bytes] = {}
    size = 0
    for decision, named in zip(decisions, names, strict=True):
        new = {name: bodies[name] for name in named if name in bodies and name not in used}
        size += len(decision.trace) + sum(map(len, new.values()))
        if taken and size > MAX_AT_ONCE:
            break
        taken.append(decision)
        used |= new
    return TraceChunk(v=TraceChunk.newest, decisions=tuple(taken), bodies=used)


def _piece(beginning_of: DecisionFilter | None, chunk: TraceChunk) -> TracePiece:
    """Return the chunk as it is in a file, or the end if it is empty."""
    content = b""
    if beginning_of is not None:
        since, until = beginning_of.since or 0.0, beginning_of.until or 0.0
        content = beginning(TraceHeader(v=TraceHeader.newest, since=since, until=until))
    if not chunk.decisions:
        return TracePiece(content + END, 0, None)
    last = chunk.decisions[-1]
    return TracePiece(content + chunk_bytes(chunk), len(chunk.decisions), (last.at, last.id))
