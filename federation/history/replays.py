"""All decisions of a trace file made again, and the result of each.

Must not read profiles, nor say anything to people.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from federation.history.bodies import DamagedBody, NewerBody
from federation.history.packed_inputs import InputReader
from federation.history.trace_files import TracedDecision, TraceFile, TraceFrame
from federation.model.errors import InvalidRequest, LimitExceeded, PluginFailed, PreconditionFailed
from federation.scheduler.plugins.profile import Profiles
from federation.scheduler.replay import Difference, Replay

# Unequal decisions that are named.
MAX_UNEQUAL: Final = 20
# Errors of bodies that strangers made.
MALFORMED: Final = (
    *(msgspec.MsgspecError, DamagedBody, LimitExceeded, NewerBody),
    *(ValueError, TypeError, IndexError, OverflowError, RecursionError),
)


class ReplayEnd(StrEnum):
    """How the replay of one decision ends."""

    EQUAL = "equal"
    DIFFERENT = "different"
    # It only says what a binding lost to another one, or its inputs were never stored.
    NOT_KEPT = "notKept"
    FORGOTTEN = "forgotten"
    # A plugin is missing, or fails.
    PLUGIN = "plugin"


class ReplayedDecision(NamedTuple):
    """A decision that is not equal: the difference, or why it could not be made again."""

    id: str
    binding: str
    end: ReplayEnd
    difference: Difference | None = None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedTrace:
    """Counts of ends, the first unequal decisions, and the revisions of the algorithm.

    ``sha256`` is over the results of the replays, in order.
    """

    ends: Counter[ReplayEnd] = field(default_factory=Counter)
    unequal: tuple[ReplayedDecision, ...] = ()
    revisions: frozenset[int] = frozenset()
    sha256: str = ""

    def then(self, later: ReplayedTrace) -> ReplayedTrace:
        """Return the result of both parts, one after the other."""
        both = bytes.fromhex(self.sha256) + bytes.fromhex(later.sha256)
        return ReplayedTrace(
            ends=self.ends + later.ends,
            unequal=(*self.unequal, *later.unequal)[:MAX_UNEQUAL],
            revisions=self.revisions | later.revisions,
            sha256=hashlib.sha256(both).hexdigest(),
        )


def replayed_frame(trace: TraceFile, profiles: Profiles, frame: TraceFrame) -> ReplayedTrace:
    """Replay the decisions of one chunk. Raises InvalidRequest for damage, and OSError."""
    reader, chunk = InputReader(profiles), trace.chunk(frame)
    ends = Counter[ReplayEnd]()
    unequal: list[ReplayedDecision] = []
    revisions, digest = set[int](), hashlib.sha256()
    for decision in chunk.decisions:
        try:
            outcome = _replayed(decision, chunk.bodies, reader)
        except MALFORMED as error:
            rule = f"is damaged: decision {decision.id}: {error}"
            raise InvalidRequest.of(str(trace.path), rule) from error
        if isinstance(outcome, Replay):
            revisions.add(outcome.stored_revision)
            digest.update(bytes.fromhex(outcome.replayed_sha256))
            difference = outcome.difference
            end = ReplayEnd.EQUAL if difference is None else ReplayEnd.DIFFERENT
            outcome = ReplayedDecision(decision.id, decision.key, end, difference)
        ends[outcome.end] += 1
        if outcome.end is not ReplayEnd.EQUAL and len(unequal) < MAX_UNEQUAL:
            unequal.append(outcome)
    return ReplayedTrace(
        ends=ends,
        unequal=tuple(unequal),
        revisions=frozenset(revisions),
        sha256=digest.hexdigest(),
    )


def _replayed(
    decision: TracedDecision, bodies: dict[bytes, bytes], reader: InputReader
) -> Replay | ReplayedDecision:
    try:
        return decision.recorded(bodies).replayed(reader)
    except KeyError:
        end, why = ReplayEnd.FORGOTTEN, "what it was made on was forgotten before the export"
    except PluginFailed as error:
        end, why = ReplayEnd.PLUGIN, error.message
    except PreconditionFailed as error:
        is_plugin = error.reason == "PLUGIN_MISSING"
        end, why = ReplayEnd.PLUGIN if is_plugin else ReplayEnd.NOT_KEPT, error.message
    return ReplayedDecision(decision.id, decision.key, end, why=why)
