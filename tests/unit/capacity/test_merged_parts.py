"""Parts of a binding that become one: every control plane packs them as one."""

from __future__ import annotations

from federation.capacity.holdings import MAX_EARLIER_GROWTHS
from federation.model.reservations import Share
from federation.model.workload import ReplicaRequirements
from tests.properties.test_growth import Plane, free_cells

OWN, OTHER = ReplicaRequirements(request={"cpu": 1}), ReplicaRequirements(request={"cpu": 3})


def test_parts_that_became_one_are_packed_alike_on_every_plane() -> None:
    cells = [(0, 1, (7, 30, 30, 0)), (0, 4, (12, 30, 30, 0))]
    deciding, hearing = Plane(cells), Plane(cells)
    decided = [("web", OWN, 1)]
    for number in range(1, MAX_EARLIER_GROWTHS + 4):
        decided.append(("web", OWN, number + 1))
        if number % 3 == 0:
            decided.append((f"other/{number}", OTHER, 1))
    for key, requirements, replicas in decided:
        shares = [Share(requirements=requirements, replicas=replicas)]
        assert deciding.decide(key, shares)
        hearing.hear(key, shares)
        assert free_cells(hearing.room) == free_cells(deciding.room)
        assert hearing.room.outstanding == hearing.ledger.outstanding()
    assert len(deciding.ledger.outstanding_of("web")) == MAX_EARLIER_GROWTHS + 1
