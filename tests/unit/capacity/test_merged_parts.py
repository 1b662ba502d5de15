"""Parts of a binding that become one: a room that has them keeps them where they are."""

from __future__ import annotations

from federation.capacity.growth import with_parts_as_one
from federation.capacity.holdings import MAX_EARLIER_GROWTHS
from federation.model.reservations import Outstanding, Share
from federation.model.workload import ReplicaRequirements
from tests.properties.test_growth import Plane, free_cells

OWN, OTHER = ReplicaRequirements(request={"cpu": 1}), ReplicaRequirements(request={"cpu": 3})


def web(replicas: int) -> Outstanding:
    return Outstanding("web", OWN, replicas, in_summary=replicas)


def other(replicas: int) -> Outstanding:
    return Outstanding("other", OTHER, replicas, in_summary=replicas)


def test_who_hears_of_parts_that_became_one_packs_nothing_anew() -> None:
    cells = [(0, 1, (7, 30, 30, 0)), (0, 4, (12, 30, 30, 0))]
    deciding, hearing = Plane(cells), Plane(cells)
    decided = [("web", OWN, 1)]
    for number in range(1, MAX_EARLIER_GROWTHS + 4):
        decided.append(("web", OWN, number + 1))
        if number % 3 == 0:
            decided.append((f"other/{number}", OTHER, 1))
    for key, requirements, replicas in decided:
        shares = [Share(requirements=requirements, replicas=replicas)]
        steps = [held.steps for held in hearing.room.holdings]
        assert deciding.decide(key, shares)
        hearing.hear(key, shares)
        assert [held.steps for held in hearing.room.holdings][: len(steps)] == steps
        assert free_cells(hearing.room) == free_cells(deciding.room)
        assert hearing.room.outstanding == hearing.ledger.outstanding()
    assert len(deciding.ledger.outstanding_of("web")) == MAX_EARLIER_GROWTHS + 1


def test_only_what_became_one_is_taken_for_the_same() -> None:
    had = web(1), other(2), web(3), web(2)
    for outstanding, same in (
        (had, had),
        ((*had, other(1)), had),
        ((web(4), other(2), web(2), other(1)), (web(4), other(2), web(2))),
        ((web(6), other(2)), (web(6), other(2))),
        # It came back behind the other, shrank, grew in another place, or the other did.
        ((other(2), web(6)), None),
        ((web(1), other(2), web(3)), None),
        ((web(3), other(2)), None),
        ((web(5), other(2), web(2)), None),
        ((web(4), other(1), web(2)), None),
        ((), None),
    ):
        assert with_parts_as_one(had, outstanding) == same
