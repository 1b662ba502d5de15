"""Certificates of promises, and the margin that careful promises keep back.

Pure. Must not know the free cells of a cluster.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from federation.capacity.assignments import Held
from federation.model.placement import Certificate
from federation.model.reservations import RESERVE_PART, PromiseCertificate
from federation.model.shapes import Shape


class OwnReplicas(NamedTuple):
    """A binding's replicas to be packed in a cluster; ``stuck`` of them lost their room."""

    replicas: int = 0
    stuck: int = 0


NOT_OWN: Final = OwnReplicas()


def max_careful(
    filled: int, spread: int, held: Held, shape: Shape, own: OwnReplicas = NOT_OWN
) -> int:
    """Return how many replicas may be promised, unless strictly, of those that fit in both views.

    available = min(filled, spread) - min(|filled - spread|, reserve) - ceil(on_way / RESERVE_PART)
    - own.stuck, where on_way are the other bindings' replicas of other shapes on their way.
    """
    kept_back = min(abs(filled - spread), held.reserve) + own.stuck
    on_their_way = max(0, held.on_their_way(shape) - own.replicas)
    kept_back += -(-on_their_way // RESERVE_PART)
    return max(0, min(filled, spread) - kept_back)


def worth(
    requested: Certificate | None, *, carries_labels: bool, follows_plans: bool
) -> PromiseCertificate:
    """Return the certificate of a promise that finds room.

    ``carries_labels``: the pools carry the labels that the claim names. ``follows_plans``: a binder
    of ours places pods on the nodes that the cluster's agent plans.
    """
    if not carries_labels:
        return PromiseCertificate.UNPROVEN
    if requested is Certificate.STRICT:
        return PromiseCertificate.STRICT
    if requested is Certificate.CAREFUL or not follows_plans:
        return PromiseCertificate.CAREFUL
    return PromiseCertificate.PLANNED
