"""What is available may be promised, and no more: one limit for every way to a promise."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

from federation.capacity.careful import CAREFULLY, WHATEVER_FITS, PromiseTerms
from federation.capacity.cluster_room import ReportId
from federation.capacity.component_sets import packable_sets_c
from federation.capacity.fleet_rooms import FleetRooms, UnpackedRoom
from federation.capacity.own_promises import KeptPromise, OwnPromises
from federation.capacity.reserve import Refused, packable_c
from federation.model.placement import Certificate
from federation.model.reservations import Outstanding, PackingOrder, PromiseCertificate
from federation.model.workload import Component, ReplicaRequirements
from lab.promising import asked_of
from lab.slow_packer import broken_promise
from tests.pools import alike, cells_of, one_pool

NEW = "shop/new"
NAMES = ("a", "b")
SHAPES = tuple(
    ReplicaRequirements(request={"cpu": cpu, "memory": memory})
    for cpu, memory in ((1, 1), (1, 4), (2, 2), (3, 9), (6, 6))
)
shapes = st.sampled_from(SHAPES)
# Nodes, cores, how much of them is free.
nodes = st.lists(
    st.tuples(st.integers(1, 4), st.sampled_from((8, 12, 16)), st.integers(0, 4)),
    min_size=1,
    max_size=4,
)
promises = st.lists(st.tuples(shapes, st.integers(1, 30)), max_size=6)
clusters = st.lists(st.tuples(nodes, promises), min_size=2, max_size=2)
_Drawn: TypeAlias = list[tuple[list[tuple[int, int, int]], list[tuple[ReplicaRequirements, int]]]]


def fleet_of(drawn: _Drawn) -> FleetRooms:
    return FleetRooms.of(
        UnpackedRoom(
            ReportId(1, 1),
            one_pool(
                cells_of(
                    [alike(n, (total - used, 2 * (total - used), 30)) for n, total, used in nodes],
                    allocatable=[(total, 2 * total) for _, total, _ in nodes],
                )
            ),
            False,
            PackingOrder.of_report(
                [Outstanding(f"shop/w{number}", *drawn) for number, drawn in enumerate(promised)]
            ),
        )
        for nodes, promised in drawn
    )


def is_promised(
    fleet: FleetRooms, position: int, wanted: Outstanding, terms: PromiseTerms = CAREFULLY
) -> bool:
    answer = asked_of(fleet, NAMES, wanted.binding, {position: (wanted,)}, terms)
    if isinstance(answer, Refused):
        return False
    room = answer.rooms[position]
    assert room is not None
    assert room.held.is_overcommitted or not broken_promise(room.pools, room.holdings)
    return True


@settings(max_examples=60, deadline=None)
@given(drawn=clusters, requirements=shapes)
def test_a_new_binding_is_promised_what_is_available_and_no_more(
    drawn: _Drawn,
    requirements: ReplicaRequirements,
) -> None:
    fleet = fleet_of(drawn)
    available_c = packable_c(fleet, requirements, Certificate.CAREFUL)
    for position, most in enumerate(available_c.tolist()):
        wanted = Outstanding(NEW, requirements, most)
        assert is_promised(fleet, position, wanted)
        assert not is_promised(fleet, position, wanted._replace(in_cells=most + 1))


@settings(max_examples=40, deadline=None)
@given(drawn=clusters, requirements=shapes, had=st.integers(1, 6))
def test_what_grows_is_promised_what_is_available_beside_its_own_replicas(
    drawn: _Drawn,
    requirements: ReplicaRequirements,
    had: int,
) -> None:
    before = fleet_of(drawn)
    held = Outstanding(NEW, requirements, had)
    fleet = asked_of(before, NAMES, NEW, {0: (held,)}, WHATEVER_FITS)
    if isinstance(fleet, Refused) or fleet.overcommitted_c.any():
        return
    own = OwnPromises.of(
        fleet, NEW, requirements, Certificate.CAREFUL, {0: KeptPromise((held,), had)}
    )
    more = int(packable_c(fleet, requirements, Certificate.CAREFUL, own)[0])
    placed = replace(CAREFULLY, placed=frozenset({0}))
    # Its own replicas never count as on their way, and what does not grow is kept.
    assert is_promised(fleet, 0, held, placed)
    grown = held._replace(in_cells=had + more)
    assert is_promised(fleet, 0, grown, placed)
    assert not is_promised(fleet, 0, grown._replace(in_cells=had + more + 1), placed)


@settings(max_examples=40, deadline=None)
@given(
    drawn=clusters,
    first=shapes,
    second=shapes,
    counts=st.tuples(st.integers(1, 9), st.integers(1, 4)),
)
def test_a_set_is_promised_where_one_is_available(
    drawn: _Drawn,
    first: ReplicaRequirements,
    second: ReplicaRequirements,
    counts: tuple[int, int],
) -> None:
    fleet = fleet_of(drawn)
    parts = [
        Component(name=name, replicas=count, requirements=requirements)
        for name, count, requirements in zip("xy", counts, (first, second), strict=True)
    ]
    terms = PromiseTerms(in_sets=True)
    available_c = packable_sets_c(fleet, parts, Certificate.CAREFUL, {})
    wanted = tuple(
        Outstanding(NEW, each.requirements, each.replicas, component=each.name) for each in parts
    )
    for position, sets in enumerate(available_c.tolist()):
        answer = asked_of(fleet, NAMES, NEW, {position: wanted}, terms)
        assert isinstance(answer, FleetRooms) is (sets > 0)
    # A set of one part is kept to the margin of its replicas.
    (part, *_) = parts
    sets_c = packable_sets_c(fleet, [part], Certificate.CAREFUL, {})
    for room, sets in zip(fleet.rooms, sets_c.tolist(), strict=True):
        assert room is not None
        assert sets == room.packable(first, PromiseCertificate.CAREFUL) // part.replicas
