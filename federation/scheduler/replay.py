"""Decisions that are made again: on their recorded inputs, with the capacity that was recorded.

For replays, and for what-ifs on other estimates. Pure. Must not estimate or pack: the trace of the
decision has the estimates, and refused shares are one of its inputs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from federation.capacity.reserve import Refused
from federation.model.estimate import Estimates
from federation.model.reasons import Reason, goes_on_from
from federation.scheduler.decide import Decided, Draft, OfferedCapacity, decide
from federation.scheduler.decision import Decision
from federation.scheduler.decision_inputs import DecisionInputs


@dataclass(frozen=True, slots=True)
class RecordedCapacity:
    """The ``estimates`` that a decision is made on, and the answer that its shares get.

    ``refused`` says by cluster why they found no capacity; it is empty where they were reserved.
    ``is_refused`` says whether that holds for a decision, which may differ from the recorded one.
    Nothing is said of what is scarce: only the promises of that time could tell.
    """

    estimates: Estimates
    refused: Mapping[str, Reason] = field(default_factory=dict)
    is_refused: Callable[[Decision], bool] = lambda _: True

    def available(self, draft: Draft) -> OfferedCapacity:  # noqa: ARG002 - one draft was recorded
        """Return the recorded estimates: second looks and earmarks are part of them."""
        return OfferedCapacity(self.estimates)

    def refine(self, draft: Draft, decided: Decided[None], estimates: Estimates) -> None:
        """Return None: a second look was recorded with the estimates."""

    def reserve(self, draft: Draft, decided: Decided[None]) -> Refused | None:  # noqa: ARG002 - one draft was recorded
        """Return the recorded refusal where it holds, None where the shares have capacity."""
        if self.refused and self.is_refused(decided.decision):
            return Refused(reasons=self.refused)
        return None

    def scarcity(self, draft: Draft) -> None:
        """Return None: nothing is said."""


def decide_again(inputs: DecisionInputs, capacity: RecordedCapacity, now: float) -> Decision:
    """Decide on recorded inputs. Raises PluginFailed."""
    return decide(inputs.fleet, Draft.of_inputs(inputs), capacity, now).decision


_NOTHING: Final = "nothing"
_CANONICAL: Final = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False
).encode
# Characters shown of a value that differs.
_MAX_SHOWN: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first place where two decisions differ, and the two values."""

    path: str
    stored: str
    replayed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The result of a replay. Hashes are hexadecimal SHA-256 of ``canonical``."""

    stored_sha256: str
    replayed_sha256: str
    difference: Difference | None
    stored_revision: int
    replayed_revision: int
    decision: Decision = field(repr=False)


def replay(inputs: DecisionInputs, stored: Decision, refused: Mapping[str, Reason]) -> Replay:
    """Decide again on the inputs of a stored decision. Raises PluginFailed.

    ``refused`` says by cluster why shares found no capacity; it is empty where they were reserved.
    Scarce resources and preempted bindings are taken from the stored decision: they depend on the
    promises of that time.
    """
    trace = stored.trace
    estimates = Estimates(
        replicas_c=trace.inputs.available_c,
        source_c=trace.inputs.source_c,
        bound_c=trace.inputs.bound_c,
        reasons=trace.inputs.estimate_reasons,
    )
    decision = decide_again(inputs, RecordedCapacity(estimates, refused), trace.now)
    if goes_on_from(stored.reason, decision.reason):
        decision = replace(decision, reason=stored.reason)
    decision = replace(decision, trace=replace(decision.trace, preempted=trace.preempted))
    stored_plain, replayed_plain = _without_revision(stored), _without_revision(decision)
    return Replay(
        stored_sha256=_sha256(stored_plain),
        replayed_sha256=_sha256(replayed_plain),
        difference=_first_difference("", stored_plain, replayed_plain, trace.clusters),
        stored_revision=trace.algorithm_revision,
        replayed_revision=decision.trace.algorithm_revision,
        decision=decision,
    )


def canonical(value: object) -> bytes:
    """Return JSON in UTF-8 without blanks, keys in ascending order: equal values, equal bytes."""
    return _CANONICAL(value).encode()


def _without_revision(decision: Decision) -> dict[str, Any]:
    """Return result and trace as builtins; the revision is compared by itself."""
    plain = decision.to_plain()
    del plain["trace"]["algorithm_revision"]
    return plain


def _sha256(plain: dict[str, Any]) -> str:
    return hashlib.sha256(canonical(plain)).hexdigest()


def _first_difference(
    path: str, stored: Any, replayed: Any, clusters: Sequence[str]
) -> Difference | None:
    """Return the first difference in field order; columns over the fleet name the cluster."""
    if isinstance(stored, dict) and isinstance(replayed, dict):
        for key in dict.fromkeys((*stored, *replayed)):
            inner_path = f"{path}.{key}" if path else key
            difference = _first_difference(
                inner_path, stored.get(key, _NOTHING), replayed.get(key, _NOTHING), clusters
            )
            if difference is not None:
                return difference
        return None
    if isinstance(stored, list) and isinstance(replayed, list):
        for position in range(max(len(stored), len(replayed))):
            names = clusters if path.endswith("_c") and position < len(clusters) else ()
            inner_path = f"{path}[{names[position] if names else position}]"
            one = stored[position] if position < len(stored) else _NOTHING
            other = replayed[position] if position < len(replayed) else _NOTHING
            difference = _first_difference(inner_path, one, other, clusters)
            if difference is not None:
                return difference
        return None
    if type(stored) is type(replayed) and stored == replayed:
        return None
    return Difference(path=path, stored=_shown(stored), replayed=_shown(replayed))


def _shown(plain: Any) -> str:
    """Return a value as text for people; long columns are cut."""
    text = str(plain)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."
