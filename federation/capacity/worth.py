"""What a promise will be worth where there is room, and how much of a careful one is kept back.

Pure. Must not know what is left in a cluster.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from federation.capacity.assignments import Held
from federation.model.placement import Certificate
from federation.model.reservations import RESERVE_PART, PromiseCertificate
from federation.model.shapes import Shape


class OwnReplicas(NamedTuple):
    """Replicas to be packed that a binding holds in a cluster; ``stuck`` ones lost their room."""

    replicas: int = 0
    stuck: int = 0


NOT_OWN: Final = OwnReplicas()


def careful_most(
    filled: int, spread: int, held: Held, shape: Shape, own: OwnReplicas = NOT_OWN
) -> int:
    """How many replicas may be promised, unless strictly, beside what is held, of those that the
    cells hold in both views; some are kept back.

    Of what is held the binding's ``own`` is not on its way for it; what of that is stuck comes
    first.
    """
    kept_back = min(abs(filled - spread), held.reserve) + own.stuck
    on_their_way = max(0, held.on_their_way(shape) - own.replicas)
    kept_back += -(-on_their_way // RESERVE_PART)
    return max(0, min(filled, spread) - kept_back)


def worth(asked: Certificate | None, *, told: bool, planned: bool) -> PromiseCertificate:
    """What a promise will be worth where it is known whether the cells can tell, and plans are
    followed.
    """
    if not told:
        return PromiseCertificate.UNPROVEN
    if asked is Certificate.STRICT:
        return PromiseCertificate.STRICT
    if asked is Certificate.CAREFUL or not planned:
        return PromiseCertificate.CAREFUL
    return PromiseCertificate.PLANNED
