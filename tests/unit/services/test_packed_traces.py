"""Decisions packed together come back each as it was."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import numpy as np

from federation.model.arrays import filled, read_only
from federation.model.reservations import PromiseCertificate
from federation.scheduler.decision import Decision
from federation.services.packed_traces import packed_traces, unpacked_trace
from federation.services.values import ClusterPromise, ReportEvidence, Verdict
from lab.decisions import make_decision

ONE = ReportEvidence(sequences=(3, 4, 0), age_seconds=(0.25, 8.0, 0.0))
OTHER = ReportEvidence(sequences=(9, 4, 0), age_seconds=(1.0, 9.125, 0.0))
PROMISE = ClusterPromise(
    cluster="a", certificate=PromiseCertificate.CAREFUL, report_epoch=1, report_sequence=3
)


def scored(decision: Decision, score: int) -> Decision:
    """With columns that other decisions share."""
    column_c = filled(len(decision.trace.clusters), score)
    scoring = replace(decision.trace.scoring, scores={"Same": column_c}, total_c=column_c)
    return replace(decision, trace=replace(decision.trace, scoring=scoring))


def test_decisions_packed_together_come_back_each_as_it_was() -> None:
    first, second = make_decision(("a", 4), ("b", 3)), make_decision(("x", 1), ("y", 70_000))
    third = replace(second, trace=replace(second.trace, clusters=first.trace.clusters))
    verdicts = [
        Verdict(decision=scored(first, 3), evidence=ONE, promises=(PROMISE,)),
        Verdict(decision=scored(second, 3), evidence=ONE),
        Verdict(decision=scored(third, 100), evidence=OTHER, promises=(PROMISE, PROMISE)),
        Verdict(decision=scored(first, 100), evidence=ONE),
    ]
    for packed, verdict in zip(packed_traces(verdicts), verdicts, strict=True):
        trace, evidence, promises = unpacked_trace(packed.body)
        assert trace.to_plain() == verdict.decision.trace.to_plain()
        assert (evidence, promises) == (verdict.evidence, verdict.promises)
        assert trace.inputs.source_c.dtype == np.int8


def test_what_is_packed_does_not_depend_on_the_company() -> None:
    verdict = Verdict(decision=scored(make_decision(("a", 4)), 3), evidence=ONE)
    others = [Verdict(decision=scored(make_decision(("b", 1)), 3), evidence=ONE), verdict]
    assert packed_traces(others)[1] == packed_traces([verdict])[0]


def test_what_was_packed_ends_without_the_garbage_collector() -> None:
    decision = make_decision(("a", 4))
    column = weakref.ref(read_only(decision.trace.scoring.total_c))
    gc.disable()
    try:
        packed_traces([Verdict(decision=decision, evidence=ONE)])
        del decision
        assert column() is None
    finally:
        gc.enable()
