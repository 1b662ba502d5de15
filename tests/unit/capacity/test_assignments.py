"""What is packed in the same way, and what is not."""

from __future__ import annotations

from itertools import product

from federation.capacity.assignments import ShapeIndex
from federation.model.reservations import Outstanding, PromiseCertificate
from federation.model.workload import NodeClaim, ReplicaRequirements, shared_request

ONE = shared_request({"cpu": 1})
ON_SSD = NodeClaim(node_selector={"disk": "ssd"})


def asking(
    request: dict[str, int],
    claim: NodeClaim | None = None,
    certificate: PromiseCertificate = PromiseCertificate.CAREFUL,
) -> Outstanding:
    wanted = ReplicaRequirements(request=request, node_claim=claim)
    return Outstanding("shop/web", wanted, 1, certificate=certificate)


def is_alike(promise: Outstanding, other: Outstanding) -> bool:
    """Tell whether two promises are packed in the same way."""
    return (
        promise.shape == other.shape
        and promise.certificate.is_packed == other.certificate.is_packed
        and promise.requirements.node_claim == other.requirements.node_claim
    )


def test_the_same_number_is_given_to_what_is_alike_only() -> None:
    certificates = PromiseCertificate.CAREFUL, PromiseCertificate.UNPROVEN
    # Shared values and equal ones; a claim that is equal, but no other's.
    requests = ONE, {"cpu": 1}, {"cpu": 2}, {"cpu": 1, "pods": 1}
    claims = (
        None,
        ON_SSD,
        NodeClaim(node_selector={"disk": "ssd"}),
        NodeClaim(node_selector={"disk": "hdd"}),
    )
    every = [asking(*each) for each in product(requests, claims, certificates)]
    alike = ShapeIndex()
    for one, other in product(every, every):
        assert (alike.number(one) == alike.number(other)) is is_alike(one, other)
