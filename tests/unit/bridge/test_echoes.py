"""Which ready replicas count: those that the cluster's totals have, or another process counted."""

from __future__ import annotations

from bridge.echoes import COLLECTED_SECONDS, Evidence
from bridge.karmada import ReadyReplicas
from federation.model.echoes import Interest, InterestUpdate, SoughtShape
from federation.model.shapes import request_shape

SHAPE = request_shape({"cpu": 1000})


def interest(echoed: int = 0, binding: str = "default/web") -> Interest:
    shape = SoughtShape(component="", shape=SHAPE, decisions=(), echoed=echoed)
    return Interest(binding=binding, owner=None, shapes=(shape,))


INTERESTS = {"default/web": interest()}


def update(
    *interests: Interest, whole: bool = True, removed: tuple[str, ...] = ()
) -> InterestUpdate:
    return InterestUpdate(version=5, whole=whole, interests=interests, removed=removed)


def counted(evidence: Evidence) -> tuple[int, int]:
    """Bound and finished replicas of its echo."""
    echo = next(evidence.echoes(INTERESTS), None)
    return (echo.bound, echo.finished) if echo else (0, 0)


def test_what_is_ready_counts_once_the_totals_are_newer() -> None:
    evidence = Evidence()
    assert evidence.tell("default/web", ReadyReplicas(2), now=0.0)
    assert not evidence.tell("default/web", ReadyReplicas(2), now=1.0)
    assert not evidence.count(1.0, is_ready=True)
    assert list(evidence.echoes(INTERESTS)) == []
    evidence.totals_changed()
    assert evidence.count(2.0, is_ready=True)
    (echo,) = evidence.echoes(INTERESTS)
    assert (echo.binding, echo.shape, echo.bound) == ("default/web", SHAPE, 2)
    # Less is less at once; and a ready cluster's totals are collected again and again.
    assert evidence.tell("default/web", ReadyReplicas(1), now=3.0)
    assert next(evidence.echoes(INTERESTS)).bound == 1
    assert evidence.tell("default/web", ReadyReplicas(3), now=4.0)
    assert not evidence.count(4.0 + COLLECTED_SECONDS, is_ready=False)
    assert evidence.count(4.0 + COLLECTED_SECONDS, is_ready=True)
    assert next(evidence.echoes(INTERESTS)).bound == 3


def test_what_another_process_counted_counts_at_once_as_far_as_it_is_ready() -> None:
    for ready, echoed, count in ((4, 4, 4), (2, 4, 2), (4, 3, 3), (4, 0, 0), (0, 4, 0)):
        evidence = Evidence()
        evidence.tell("default/web", ReadyReplicas(ready), now=0.0)
        assert evidence.take_over(update(interest(echoed))) is bool(count)
        assert counted(evidence) == (count, 0)
        # The others count with newer totals.
        evidence.totals_changed()
        evidence.count(1.0, is_ready=True)
        assert counted(evidence) == (ready, 0)


def test_what_is_ready_anew_needs_newer_totals_whatever_was_counted() -> None:
    evidence = Evidence()
    evidence.tell("default/web", ReadyReplicas(4), now=0.0)
    evidence.take_over(update(interest(4)))
    evidence.tell("default/web", ReadyReplicas(1), now=1.0)
    evidence.tell("default/web", ReadyReplicas(4), now=2.0)
    # A stream that begins anew says what was reported before.
    assert not evidence.take_over(update(interest(4)))
    assert counted(evidence) == (1, 0)


def test_a_binding_that_is_adopted_later_is_taken_over() -> None:
    evidence = Evidence()
    evidence.take_over(update())
    evidence.tell("default/web", ReadyReplicas(4), now=0.0)
    assert evidence.take_over(update(interest(4), whole=False))
    evidence.take_over(update(whole=False, removed=("default/web",)))
    evidence.tell("default/web", ReadyReplicas(0), now=1.0)
    evidence.tell("default/web", ReadyReplicas(3), now=2.0)
    assert evidence.take_over(update(interest(3), whole=False))
    assert counted(evidence) == (3, 0)


def test_pods_of_a_job_that_succeeded_need_no_totals() -> None:
    evidence = Evidence()
    assert evidence.tell("default/web", ReadyReplicas(0, 2), now=0.0)
    assert not evidence.tell("default/web", ReadyReplicas(0, 2), now=1.0)
    assert counted(evidence) == (0, 2)
    assert evidence.has("default/web")
    # The Job is gone from its cluster: the control plane keeps what finished.
    assert evidence.tell("default/web", ReadyReplicas(), now=2.0)
    assert counted(evidence) == (0, 0)
