"""A stored decision, made again from what it was made on.

Pure. Must not estimate or pack: what was known of capacity is in the decision's trace, and where
its shares found no room is one of its inputs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from federation.model.estimate import Estimates
from federation.model.reasons import Reason, goes_on_from
from federation.scheduler.decision import Decision
from federation.scheduler.decision_inputs import DecisionInputs
from federation.scheduler.recorded_capacity import RecordedCapacity, decide_again

_NOTHING: Final = "nothing"
_CANONICAL: Final = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False
).encode
# Characters of a value that differs.
_MOST_TOLD: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Where two decisions differ first, and what each has there."""

    path: str
    stored: str
    replayed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What a replay comes to. Hashes are hexadecimal SHA-256 of ``canonical``."""

    stored_sha256: str
    replayed_sha256: str
    difference: Difference | None
    stored_revision: int
    replayed_revision: int
    decision: Decision = field(repr=False)


def replay(inputs: DecisionInputs, stored: Decision, refused: Mapping[str, Reason]) -> Replay:
    """Decides again on what the stored decision was made on. Raises PluginFailed.

    ``refused`` says why shares found no room, by cluster; empty where they did. What was scarce,
    and who made room, is taken from the stored decision: only what was outstanding at that time
    could tell it.
    """
    trace = stored.trace
    known = Estimates(
        replicas_c=trace.inputs.available_c,
        source_c=trace.inputs.source_c,
        bound_c=trace.inputs.bound_c,
        reasons=trace.inputs.estimate_reasons,
    )
    decision = decide_again(inputs, RecordedCapacity(known, refused), trace.now)
    if goes_on_from(stored.reason, decision.reason):
        decision = replace(decision, reason=stored.reason)
    decision = replace(decision, trace=replace(decision.trace, preempted=trace.preempted))
    before, after = _compared(stored), _compared(decision)
    return Replay(
        stored_sha256=_sha256(before),
        replayed_sha256=_sha256(after),
        difference=_first_difference("", before, after, trace.clusters),
        stored_revision=trace.algorithm_revision,
        replayed_revision=decision.trace.algorithm_revision,
        decision=decision,
    )


def canonical(value: object) -> bytes:
    """JSON in UTF-8 without blanks, keys in ascending order: equal values give equal bytes."""
    return _CANONICAL(value).encode()


def _compared(decision: Decision) -> dict[str, Any]:
    """Result and trace. The revision is left out: that is told by itself."""
    plain = decision.to_plain()
    del plain["trace"]["algorithm_revision"]
    return plain


def _sha256(plain: dict[str, Any]) -> str:
    return hashlib.sha256(canonical(plain)).hexdigest()


def _first_difference(
    path: str, stored: Any, replayed: Any, clusters: Sequence[str]
) -> Difference | None:
    """In the order of the fields; a place in a column over the fleet is named by its cluster."""
    if isinstance(stored, dict) and isinstance(replayed, dict):
        for key in dict.fromkeys((*stored, *replayed)):
            here = f"{path}.{key}" if path else key
            found = _first_difference(
                here, stored.get(key, _NOTHING), replayed.get(key, _NOTHING), clusters
            )
            if found is not None:
                return found
        return None
    if isinstance(stored, list) and isinstance(replayed, list):
        for position in range(max(len(stored), len(replayed))):
            names = clusters if path.endswith("_c") and position < len(clusters) else ()
            here = f"{path}[{names[position] if names else position}]"
            one = stored[position] if position < len(stored) else _NOTHING
            other = replayed[position] if position < len(replayed) else _NOTHING
            found = _first_difference(here, one, other, clusters)
            if found is not None:
                return found
        return None
    if type(stored) is type(replayed) and stored == replayed:
        return None
    return Difference(path=path, stored=_told(stored), replayed=_told(replayed))


def _told(plain: Any) -> str:
    """For people: of a whole column the beginning tells enough."""
    text = str(plain)
    return text if len(text) <= _MOST_TOLD else f"{text[:_MOST_TOLD]}..."
