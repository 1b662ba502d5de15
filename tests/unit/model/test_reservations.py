"""What is outstanding of a reservation, given what a report echoes of it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from federation.model.reservations import PromiseCertificate, Reservation, outstanding_of
from federation.model.shapes import Echo, request_shape
from federation.model.workload import (
    MAX_SHARED,
    NodeClaim,
    ReplicaRequirements,
    shared_request,
)

GIB = 1 << 30
WEB = {"cpu": 500, "memory": GIB}


def reservation(
    replicas: int,
    request: Mapping[str, int] = WEB,
    *,
    adopted: int = 0,
    claim: NodeClaim | None = None,
    certificate: PromiseCertificate = PromiseCertificate.CAREFUL,
) -> Reservation:
    return Reservation(
        binding="web",
        cluster="member1",
        requirements=ReplicaRequirements(request=request, node_claim=claim),
        replicas=replicas,
        decisions=("d1",),
        certificate=certificate,
        adopted=adopted,
    )


def echo(bound: int, unbound: int = 0, finished: int = 0, request: Mapping[str, int] = WEB) -> Echo:
    return Echo(
        binding="web",
        shape=request_shape(request),
        bound=bound,
        unbound=unbound,
        finished=finished,
    )


@pytest.mark.parametrize(
    ("echoed", "in_cells", "in_summary"),
    [
        (None, 5, 5),
        (echo(2), 3, 3),
        (echo(2, unbound=2), 3, 1),
        (echo(2, unbound=4), 3, 0),
        (echo(7), 0, 0),
        (echo(1, finished=3), 1, 1),
    ],
)
def test_a_pod_counts_once(echoed: Echo | None, in_cells: int, in_summary: int) -> None:
    outstanding = outstanding_of(reservation(5), echoed)
    assert (outstanding.in_cells, outstanding.in_summary) == (in_cells, in_summary)


def test_adopted_replicas_count_as_echoed_and_not_beside_those_that_are() -> None:
    assert outstanding_of(reservation(5, adopted=3), None).in_cells == 2
    assert outstanding_of(reservation(5, adopted=3), echo(2)).in_cells == 2
    assert outstanding_of(reservation(5, adopted=3), echo(4)).in_cells == 1


def test_a_shape_is_what_is_asked_for_whatever_the_order() -> None:
    assert request_shape({"memory": 1, "cpu": 2, "pods": 1, "gpu": 0}) == (
        ("cpu", 2),
        ("memory", 1),
    )


def test_equal_requests_of_few_resources_are_one() -> None:
    assert shared_request({"cpu": 1}) is shared_request({"cpu": 1})
    # Of many resources each is its own: callers may write as many as they like.
    many = {f"example.com/r{number}": 1 for number in range(MAX_SHARED + 1)}
    assert shared_request(many) is many


def credited(new: Reservation, old: Reservation, bound: int) -> int:
    echoed = echo(bound, request=old.requirements.request)
    return outstanding_of(new, None, [(old, echoed)]).credited


def test_older_pods_make_room_for_newer_ones_that_fit_in_their_place() -> None:
    old = reservation(0, {"cpu": 600, "memory": GIB})
    assert credited(reservation(5), old, bound=3) == 3
    assert credited(reservation(5), old, bound=9) == 5


@pytest.mark.parametrize(
    "old",
    [
        reservation(0, {"cpu": 400, "memory": 8 * GIB}),
        reservation(0, {"cpu": 8000}),
        reservation(0, claim=NodeClaim(node_selector={"disk": "ssd"})),
    ],
    ids=["less cpu", "no memory", "other nodes"],
)
def test_older_pods_make_no_room_that_is_not_theirs(old: Reservation) -> None:
    assert credited(reservation(5), old, bound=3) == 0


def test_strict_promises_count_old_and_new_together() -> None:
    strict = reservation(5, certificate=PromiseCertificate.STRICT)
    assert credited(strict, reservation(0, {"cpu": 600, "memory": GIB}), bound=3) == 0
