"""Growth is packed as a difference: what was promised keeps its place, and room is what it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

from federation.capacity.careful import CAREFULLY
from federation.capacity.cluster_room import Room, certificate_for
from federation.capacity.component_sets import packable_sets_c
from federation.capacity.fleet_rooms import FleetRooms
from federation.capacity.growth import of_binding
from federation.capacity.ledger import ClusterLedger
from federation.capacity.own_promises import KeptPromise, OwnPromises
from federation.capacity.reserve import Refused, packable_c, promised
from federation.model.placement import Certificate
from federation.model.pools.bounds import per_replica
from federation.model.reservations import Outstanding, PromiseCertificate, Share
from federation.model.shapes import Echo, request_shape
from federation.model.workload import Component, ReplicaRequirements
from lab.promising import asked_of
from lab.slow_packer import Node, broken_promise, nodes_of
from tests.properties.drawn_rooms import (
    PACKED,
    REPORT,
    DrawnCells,
    DrawnRooms,
    cells_drawn,
    crowds,
    fleet_of,
    rooms_drawn,
    roomy,
    shapes,
    sizes,
    table,
)

WEB = "shop/web"
NAMES = tuple(f"member{number}" for number in range(6))
CAREFUL = PromiseCertificate.CAREFUL
STRICT = PromiseCertificate.STRICT
PLACED = replace(CAREFULLY, placed=frozenset(range(len(NAMES))))
SETS = replace(PLACED, in_sets=True)

# The worth of what was promised, and by which class of priority.
worth_before = st.tuples(st.sampled_from(PACKED), st.sampled_from(["", "", "high"]))
asked_for = st.sampled_from([None, Certificate.CAREFUL, Certificate.STRICT])


def with_own(drawn: DrawnRooms, own: Sequence[Outstanding], place: int) -> FleetRooms:
    """Return the drawn rooms, in each of which the binding came before some of the others."""
    return fleet_of(
        [
            (cells, [*outstanding[:place], *own, *outstanding[place:]])
            for cells, outstanding in drawn
        ]
    )


def own_of(
    fleet: FleetRooms, requirements: ReplicaRequirements | None, certificate: Certificate | None
) -> OwnPromises:
    """Return what the binding holds, all of which stays."""
    promises = {}
    for position, room in enumerate(fleet.rooms):
        assert room is not None
        held = of_binding(room.outstanding, WEB)
        promises[position] = KeptPromise(held, sum(promise.to_pack for promise in held))
    return OwnPromises.of(fleet, WEB, requirements, certificate, promises)


def slow_room_beside(room: Room, requirements: ReplicaRequirements) -> int:
    """Count what fits on the nodes that all others leave where they are packed, one by one."""
    resources = room.pools.cells.resources
    nodes: list[tuple[Node, int]] = [
        (node, 0) for node, count in nodes_of(room.pools).items() for _ in range(count)
    ]
    for holding in room.holdings:
        is_own = holding.outstanding.binding == WEB
        demanded = per_replica(holding.outstanding.requirements.request)
        for step in holding.steps:
            for _ in range(step.nodes):
                place = next(
                    place for place, (node, _) in enumerate(nodes) if node == (step.pool, step.free)
                )
                free = tuple(
                    has - step.replicas * demanded.get(name, 0)
                    for name, has in zip(resources, step.free, strict=True)
                )
                nodes[place] = (step.pool, free), nodes[place][1] + is_own * step.replicas
    demanded_by_one = per_replica(requirements.request)
    fitting = 0
    for (pool, free), own in nodes:
        carried = room.pools.pools[pool].labels
        claim = requirements.node_claim
        if claim is not None and not claim.node_selector.items() <= carried.items():
            continue
        has = dict(zip(resources, free, strict=True))
        fitting += min(
            (has.get(name, 0) + own * amount) // amount
            for name, amount in demanded_by_one.items()
            if amount
        )
    return fitting


@settings(max_examples=120, deadline=None)
@given(
    drawn=rooms_drawn | crowds,
    requirements=shapes,
    replicas=st.integers(1, 8),
    place=st.integers(0, 4),
)
def test_room_beside_its_own_replicas_is_that_of_the_packing_without_them(
    drawn: DrawnRooms, requirements: ReplicaRequirements, replicas: int, place: int
) -> None:
    fleet = with_own(drawn, [Outstanding(WEB, requirements, replicas)], place)
    own = own_of(fleet, requirements, Certificate.CAREFUL)
    own_c = packable_c(fleet, requirements, Certificate.CAREFUL, own)
    for room, available in zip(fleet.rooms, own_c.tolist(), strict=True):
        assert room is not None
        placed = sum(
            holding.outstanding.to_pack - holding.unplaced for holding in room.holdings_of(WEB)
        )
        beside = slow_room_beside(room, requirements)
        filled, _ = room.max_by_view(requirements)
        if not room.overcommitted:
            assert filled + placed == beside
        assert filled + placed <= beside
        assert placed + available <= beside or not available


class GrowingBinding(NamedTuple):
    """A binding with ``replicas`` of such requirements, promised as ``promised_as`` says, which
    come behind ``place`` other promises. It grows by the certificate of its spec.
    """

    requirements: ReplicaRequirements
    spec_certificate: Certificate | None
    promised_as: tuple[PromiseCertificate, str]
    replicas: int
    place: int

    @property
    def promise(self) -> Outstanding:
        """Its promise before it grows."""
        certificate, priority_class = self.promised_as
        requirements = replace(self.requirements, priority_class_name=priority_class)
        return Outstanding(WEB, requirements, self.replicas, certificate=certificate)


def growing(
    requirements: st.SearchStrategy[ReplicaRequirements], max_replicas: int, max_place: int
) -> st.SearchStrategy[GrowingBinding]:
    """Draw a binding that grows."""
    return st.builds(
        GrowingBinding,
        requirements=requirements,
        spec_certificate=asked_for,
        promised_as=worth_before,
        replicas=st.integers(1, max_replicas),
        place=st.integers(0, max_place),
    )


@settings(max_examples=120, deadline=None)
@given(drawn=rooms_drawn | crowds, binding=growing(shapes, 8, 4))
def test_what_grows_is_promised_what_is_available_and_no_more(
    drawn: DrawnRooms, binding: GrowingBinding
) -> None:
    """Also where some promises lost their room, were worth something else, and twice in a row."""
    fleet = with_own(drawn, [binding.promise], binding.place)
    grow(fleet, binding.requirements, binding.spec_certificate)


@settings(max_examples=120, deadline=None)
@given(drawn=roomy, binding=growing(sizes, 4, 5))
def test_so_it_is_where_one_promise_came_after_the_other(
    drawn: DrawnRooms, binding: GrowingBinding
) -> None:
    """Packed anew they lie in other places."""
    place = binding.place
    fleet = fleet_of([(cells, []) for cells, _ in drawn])
    for position, (_, outstanding) in enumerate(drawn):
        promises = [*outstanding[:place], binding.promise, *outstanding[place:]]
        for number, promise in enumerate(promises):
            key = promise.binding or f"shop/o{number}"
            answer = asked_of(fleet, NAMES, key, {position: (promise._replace(binding=key),)})
            fleet = fleet if isinstance(answer, Refused) else answer
    grow(fleet, binding.requirements, binding.spec_certificate)


def grow(
    fleet: FleetRooms, requirements: ReplicaRequirements, spec_certificate: Certificate | None
) -> None:
    """Promise the binding all that is available to it, and not one more; twice in a row."""
    for _ in range(2):
        own = own_of(fleet, requirements, spec_certificate)
        more_c = packable_c(fleet, requirements, spec_certificate, own).tolist()
        for position, growth in enumerate(more_c):
            room = fleet.rooms[position]
            assert room is not None
            held = of_binding(room.outstanding, WEB)
            certificate = certificate_for(spec_certificate, room, requirements)
            total = sum(promise.in_cells for promise in held)
            if not held or not room.carries_labels(requirements):
                continue
            whole = Outstanding(WEB, requirements, total + growth, certificate=certificate)
            beyond = whole._replace(in_cells=total + growth + 1)
            assert isinstance(asked_of(fleet, NAMES, WEB, {position: (beyond,)}, PLACED), Refused)
            is_stricter = certificate is STRICT and any(
                promise.certificate is not STRICT for promise in held
            )
            if is_stricter and not growth:
                # What it has may not be there strictly, and is not kept by asking.
                continue
            answer = asked_of(fleet, NAMES, WEB, {position: (whole,)}, PLACED)
            assert isinstance(answer, FleetRooms)
            room_after = answer.rooms[position]
            assert room_after is not None
            assert broken_promise(room_after.pools, room_after.holdings) == ""
            if any(
                promise.requirements != requirements or promise.certificate is not certificate
                for promise in held
            ):
                assert room_after.stuck() <= room.stuck()
                fleet = fleet.with_rooms({position: room_after})
                continue
            # All that was promised is where it was.
            assert room_after.stuck() == room.stuck()
            assert [one.steps for one in room_after.holdings][: len(room.holdings)] == [
                one.steps for one in room.holdings
            ]
            fleet = fleet.with_rooms({position: room_after})


@settings(max_examples=200, deadline=None)
@given(
    drawn=rooms_drawn | roomy,
    parts=st.tuples(shapes, shapes),
    spec_certificate=asked_for,
    promised_as=st.sampled_from(PACKED),
    counts=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    growths=st.sampled_from([(1, 0), (0, 1), (1, 1), (2, 0), (0, 2)]),
    place=st.integers(0, 4),
)
def test_a_set_that_grows_is_promised_where_one_is_available_and_nowhere_else(
    drawn: DrawnRooms,
    parts: tuple[ReplicaRequirements, ReplicaRequirements],
    spec_certificate: Certificate | None,
    promised_as: PromiseCertificate,
    counts: tuple[int, int],
    growths: tuple[int, int],
    place: int,
) -> None:
    held = [
        Outstanding(WEB, part, count, name, promised_as)
        for name, part, count in zip("xy", parts, counts, strict=True)
    ]
    fleet = with_own(drawn, held, place)
    components = [
        Component(name=name, replicas=count + growth, requirements=part)
        for name, part, count, growth in zip("xy", parts, counts, growths, strict=True)
    ]
    own = own_of(fleet, None, spec_certificate)
    without = {position: room for position, (room, _) in own.repacked.items()}
    sets_c = packable_sets_c(fleet, components, spec_certificate, without)
    for position, sets in enumerate(sets_c.tolist()):
        room = fleet.rooms[position]
        assert room is not None
        if not all(room.carries_labels(part) for part in parts):
            continue
        asks = tuple(
            Outstanding(
                WEB,
                part.requirements,
                part.replicas,
                part.name,
                certificate_for(spec_certificate, room, part.requirements),
            )
            for part in components
        )
        answer = asked_of(fleet, NAMES, WEB, {position: asks}, SETS)
        assert isinstance(answer, FleetRooms) is (sets > 0)
        if isinstance(answer, FleetRooms):
            room_after = answer.rooms[position]
            assert room_after is not None
            assert room_after.stuck() <= room.stuck()
            assert broken_promise(room_after.pools, room_after.holdings) == ""


decisions_drawn = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.tuples(st.integers(0, 4), st.integers(0, 4)),
        st.sampled_from(PACKED[:2]),
        st.sampled_from(["", "", "high"]),
    ),
    min_size=2,
    max_size=14,
)


@settings(max_examples=150, deadline=None)
@given(cells=cells_drawn, decisions=decisions_drawn)
def test_rooms_hold_all_in_the_order_that_ledgers_keep(
    cells: DrawnCells,
    decisions: list[tuple[int, tuple[int, int], PromiseCertificate, str]],
) -> None:
    """Also sets, and what is promised as something else than before."""
    deciding, hearing = Plane(cells), Plane(cells)
    for number, counts, certificate, priority_class in decisions:
        # Two of the bindings are sets.
        names = "xy" if number % 2 else [""]
        shares = [
            Share(
                replace(REQUESTS[place], priority_class_name=priority_class),
                count,
                name,
                certificate,
            )
            for place, (name, count) in enumerate(zip(names, counts, strict=False))
            if count
        ]
        room_before = deciding.room
        if not deciding.decide(f"shop/{number}", shares):
            continue
        hearing.hear(f"shop/{number}", shares)
        left_as_it_was = deciding.room is room_before
        if left_as_it_was and deciding.ledger.outstanding() != room_before.outstanding:
            return
        assert deciding.ledger == hearing.ledger
        assert deciding.room.outstanding == deciding.ledger.outstanding()
        assert hearing.restarted().outstanding() == hearing.ledger.outstanding()


# Of a few bindings: which one, how many replicas it is to have, 0: none; or a report.
_Step: TypeAlias = tuple[str, int, int]
REQUESTS = tuple(
    ReplicaRequirements(request={"cpu": cpu, "memory": memory})
    for cpu, memory in ((1, 2), (3, 1), (5, 5))
)
steps_drawn = st.lists(
    st.tuples(st.sampled_from(["decide"] * 5 + ["report"]), st.integers(0, 3), st.integers(0, 9)),
    min_size=2,
    max_size=14,
)


class Plane:
    """A control plane that knows one cluster, by what it promised or heard of others."""

    def __init__(self, cells: DrawnCells) -> None:
        self.pools = table(cells)
        self.ledger = ClusterLedger(cluster=NAMES[0]).reported(0, [])
        self.fleet = FleetRooms.of([Room.of(REPORT, self.pools)])

    @property
    def room(self) -> Room:
        room = self.fleet.rooms[0]
        assert room is not None
        return room

    def decide(self, key: str, shares: list[Share]) -> bool:
        """Promise this and tell whether there is room for it."""
        ledger = self.ledger.decided(key, "d", shares) if shares else self.ledger.released(key)
        own = [0] if self.ledger.outstanding_of(key) else []
        asks = {0: ledger.outstanding_of(key)}
        answer = promised(self.fleet, NAMES, key, asks, own, PLACED)
        if isinstance(answer, Refused):
            return False
        self.fleet, self.ledger = answer().in_order({0: ledger.order()}), ledger
        return True

    def hear(self, key: str, shares: list[Share]) -> None:
        """Take over what another one promised."""
        ledger = self.ledger.decided(key, "d", shares) if shares else self.ledger.released(key)
        self.ledger = ledger
        following = self.room.following(ledger.order())
        self.fleet = FleetRooms.of([following or Room.of(REPORT, self.pools, ledger.order())])

    def report(self, echoes: list[Echo]) -> None:
        """Take a report of the same cells in which some pods run."""
        self.ledger = self.ledger.reported(self.ledger.interest_version, echoes)
        self.fleet = FleetRooms.of([Room.of(REPORT, self.pools, self.ledger.order())])

    def restarted(self) -> ClusterLedger:
        """Return the ledger as it is stored."""
        ledger = self.ledger
        held = {key: ledger.of_binding(key) for key in ledger.bindings()}
        echoes = [
            echo for parts in held.values() for part in parts if (echo := ledger.echo_of(part))
        ]
        return ClusterLedger.restored(
            ledger.cluster,
            ledger.version,
            held,
            ledger.answered_version,
            echoes,
            ledger.reported_version,
        )


def free_cells(room: Room) -> list[tuple[int, ...]]:
    """Return all nodes with what is free on each, by best fit and by spreading."""
    return sorted(
        (number, int(pool), *amounts)
        for number, cells in enumerate((room.filled.cells, room.spread.cells))
        for pool, count, amounts in zip(
            cells.pool_k, cells.count_k, cells.min_rk.T.tolist(), strict=True
        )
        for _ in range(int(count))
    )


@settings(max_examples=150, deadline=None)
@given(cells=cells_drawn, steps=steps_drawn)
def test_planes_that_hear_of_growth_and_echoes_pack_what_the_one_that_decides_packs(
    cells: DrawnCells, steps: list[_Step]
) -> None:
    deciding, hearing = Plane(cells), Plane(cells)
    for what, number, replicas in steps:
        key, requirements = f"shop/{number}", REQUESTS[number % 3]
        if what == "report":
            shape = request_shape(requirements.request)
            echoes = [Echo(binding=key, shape=shape, bound=replicas // 2, unbound=replicas % 2)]
            deciding.report(echoes)
            hearing.report(echoes)
        else:
            shares = [Share(requirements=requirements, replicas=replicas)] if replicas else []
            if not deciding.decide(key, shares):
                continue
            hearing.hear(key, shares)
        assert deciding.ledger == hearing.ledger
        assert hearing.restarted().outstanding() == hearing.ledger.outstanding()
        for plane in (deciding, hearing):
            assert plane.room.outstanding == plane.ledger.outstanding()
        assert free_cells(deciding.room) == free_cells(hearing.room)
        # A control plane that starts now has the report and what is stored, and nothing else.
        starting = Room.of(REPORT, deciding.pools, deciding.restarted().order())
        assert free_cells(starting) == free_cells(deciding.room)
        assert starting.held.order == deciding.room.held.order
