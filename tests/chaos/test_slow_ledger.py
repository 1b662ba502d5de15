"""The checker itself: it must find every kind of broken promise, or its silence means nothing."""

from __future__ import annotations

import numpy as np
import pytest

from federation.capacity.cluster_room import ReportId
from federation.model.pools.values import Cells, NodePool, Pools
from federation.model.reservations import PromiseCertificate, Share
from federation.model.shapes import Echo, request_shape
from federation.model.workload import ReplicaRequirements
from lab.chaos.slow_ledger import SeenReport, SlowLedger

FIRST = ReportId(1, 1)


def pools(nodes: int = 2, cpu: int = 2) -> Pools:
    """Nodes with that many free cores each."""
    min_rk = np.array([[cpu], [110]], np.int64)
    count_k = np.array([nodes], np.int64)
    return Pools(
        label_keys=(),
        pools=(NodePool(),),
        cells=Cells(
            resources=("cpu", "pods"),
            pool_k=np.array([0], np.int32),
            count_k=count_k,
            min_rk=min_rk,
            sum_rk=min_rk * count_k,
            max_rk=min_rk.copy(),
            sum_exact_k=np.ones(1, np.bool_),
        ),
    )


def share(
    replicas: int,
    cpu: int = 1,
    certificate: PromiseCertificate = PromiseCertificate.CAREFUL,
) -> Share:
    requirements = ReplicaRequirements(request={"cpu": cpu})
    return Share(requirements=requirements, replicas=replicas, certificate=certificate)


def echo(binding: str, bound: int, cpu: int = 1) -> Echo:
    return Echo(binding=binding, shape=request_shape({"cpu": cpu}), bound=bound)


@pytest.fixture
def ledger() -> SlowLedger:
    """Two nodes with two free cores each."""
    made = SlowLedger(cluster="member1")
    made.reported(1, SeenReport(report=FIRST, pools=pools()))
    return made


def report(sequence: int, interest_version: int, *echoes: Echo, nodes: int = 2) -> SeenReport:
    return SeenReport(
        report=ReportId(1, sequence),
        pools=pools(nodes),
        interest_version=interest_version,
        echoes=echoes,
    )


def test_what_fits_is_no_violation(ledger: SlowLedger) -> None:
    ledger.decided(2, "a", [share(2)], {})
    ledger.decided(3, "b", [share(1, cpu=2)], {})
    assert ledger.violations == []
    assert ledger.checked == 2


def test_one_replica_too_many_is_found(ledger: SlowLedger) -> None:
    ledger.decided(2, "a", [share(3)], {})
    ledger.decided(3, "b", [share(1, cpu=2)], {})
    (found,) = ledger.violations
    assert found.startswith("member1@3: with b outstanding does not pack")


def test_room_that_was_given_back_may_be_promised_again(ledger: SlowLedger) -> None:
    ledger.decided(2, "a", [share(4)], {})
    ledger.released(3, "a")
    ledger.decided(4, "b", [share(2, cpu=2)], {})
    assert ledger.violations == []
    ledger.decided(5, "c", [share(1)], {})
    assert len(ledger.violations) == 1


def test_what_a_report_counts_is_not_counted_again(ledger: SlowLedger) -> None:
    ledger.decided(2, "a", [share(4)], {})
    ledger.reported(3, report(2, 2, echo("a", bound=2)))
    ledger.decided(4, "b", [share(1, cpu=2)], {})
    assert ledger.violations == []


def test_an_echo_that_answers_an_earlier_question_counts_for_nothing(ledger: SlowLedger) -> None:
    ledger.decided(2, "a", [share(4)], {})
    ledger.reported(3, report(2, 1, echo("a", bound=2)))
    ledger.decided(4, "b", [share(1, cpu=2)], {})
    assert len(ledger.violations) == 1


def test_what_was_adopted_needs_no_room_until_the_agent_speaks_for_it(ledger: SlowLedger) -> None:
    ledger.decided(2, "a", [share(9)], {"": 9})
    ledger.decided(3, "b", [share(4)], {})
    assert ledger.violations == []
    ledger.reported(4, report(2, 3, echo("a", bound=8)))
    assert ledger.is_overcommitted


def test_older_pods_of_the_same_binding_make_room_for_newer_ones(ledger: SlowLedger) -> None:
    ledger.decided(2, "a", [share(2, cpu=2)], {})
    ledger.reported(3, report(2, 2, echo("a", bound=2, cpu=2), nodes=0))
    ledger.decided(4, "a", [share(2, cpu=1)], {})
    assert ledger.violations == []
    ledger.decided(5, "b", [share(1)], {})
    assert len(ledger.violations) == 1


def test_strict_promises_are_not_credited(ledger: SlowLedger) -> None:
    ledger.decided(2, "a", [share(2, cpu=2)], {})
    ledger.reported(3, report(2, 2, echo("a", bound=2, cpu=2), nodes=0))
    ledger.decided(4, "a", [share(2, certificate=PromiseCertificate.STRICT)], {})
    assert len(ledger.violations) == 1


def test_a_report_with_too_little_room_is_counted_and_what_grows_then_is_found(
    ledger: SlowLedger,
) -> None:
    ledger.decided(2, "a", [share(4)], {})
    ledger.reported(3, report(2, 2, nodes=1))
    assert (ledger.overcommitted, ledger.violations) == (1, [])
    ledger.decided(4, "a", [share(3)], {})
    assert ledger.violations == []
    ledger.decided(5, "b", [share(1)], {})
    assert len(ledger.violations) == 1


def test_unproven_promises_are_not_held_against_anybody(ledger: SlowLedger) -> None:
    ledger.decided(2, "a", [share(99, certificate=PromiseCertificate.UNPROVEN)], {})
    ledger.decided(3, "b", [share(4)], {})
    assert ledger.violations == []


def test_a_missing_version_and_an_old_report_are_found(ledger: SlowLedger) -> None:
    ledger.decided(3, "a", [share(1)], {})
    ledger.reported(4, SeenReport(report=FIRST, pools=pools()))
    assert ledger.violations == [
        "member1: a is version 3 after 1",
        "member1@4: ReportId(epoch=1, sequence=1) is not newer",
    ]


def test_a_decision_that_names_another_report_is_found(ledger: SlowLedger) -> None:
    ledger.decided(2, "a", [share(1)], {}, ReportId(1, 7))
    (found,) = ledger.violations
    assert "names report ReportId(epoch=1, sequence=7)" in found
