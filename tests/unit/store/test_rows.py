"""What is packed comes back as it was, whatever repeats in it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Row

from federation.model.echoes import Owner
from federation.model.reservations import Growth, PromiseCertificate, Reservation, Share
from federation.model.workload import (
    NodeClaim,
    NodeSelectorTerm,
    Operator,
    ReplicaRequirements,
    Requirement,
    Toleration,
    TolerationOperator,
)
from federation.services.journal import (
    BindingChanged,
    Change,
    ClusterChanged,
    ClusterShares,
    ReportAdvanced,
    StoredReservations,
    UnknownChange,
)
from federation.store.columns import factored, lengthened, multiplied, shortened
from federation.store.journal import change_of, packed_change
from federation.store.reservations import clusters_of, packed_reservations, reservations_of

names = st.text("abc-", min_size=1, max_size=4)
counts = st.integers(0, 2**62)
claims = st.builds(
    NodeClaim,
    node_selector=st.dictionaries(names, names, max_size=1),
    required_terms=st.sampled_from(
        [
            (),
            (
                NodeSelectorTerm(
                    match_expressions=(
                        Requirement(key="zone", operator=Operator.IN, values=("a", "b")),
                    )
                ),
            ),
        ]
    ),
    tolerations=st.sampled_from(
        [(), (Toleration(operator=TolerationOperator.EXISTS, toleration_seconds=5),)]
    ),
)
requirements = st.builds(
    ReplicaRequirements,
    request=st.dictionaries(st.sampled_from(["cpu", "memory", "x/gpu"]), counts),
    node_claim=st.none() | claims,
    namespace=st.sampled_from(["", "shop"]),
)
owners = st.none() | st.builds(Owner, names, names, names, names)
certificates = st.sampled_from(PromiseCertificate)
ids = st.lists(names, max_size=3).map(tuple)


@st.composite
def stored_reservations(draw: st.DrawFn) -> StoredReservations:
    """Few distinct requirements and decisions, some of them equal and not the same."""
    bare = StoredReservations(
        namespace=draw(st.sampled_from(["", "shop"])),
        name=draw(names),
        uid=draw(st.text(max_size=3)),
        owner=draw(owners),
    )
    reservations = st.builds(
        Reservation,
        binding=st.just(bare.key),
        cluster=names,
        component=st.sampled_from(["", "worker"]),
        requirements=st.sampled_from(draw(st.lists(requirements, min_size=1, max_size=3))),
        replicas=counts,
        decisions=st.sampled_from(draw(st.lists(ids, min_size=1, max_size=3))),
        certificate=certificates,
        interest_version=counts,
        adopted=counts,
        finished=counts,
        grown_version=counts,
        earlier=st.lists(st.builds(Growth, counts, counts), max_size=2).map(tuple),
    )
    return StoredReservations(
        namespace=bare.namespace,
        name=bare.name,
        uid=bare.uid,
        owner=bare.owner,
        reservations=draw(st.lists(reservations, min_size=1, max_size=8).map(tuple)),
    )


def row_of(value: StoredReservations) -> Row[Any]:
    """The columns as the database gives them."""
    columns = SimpleNamespace(
        namespace=value.namespace,
        name=value.name,
        uid=value.uid,
        body=packed_reservations(value),
        lease_expires_at=None,
    )
    return cast(Row[Any], columns)


shares = st.builds(
    Share,
    component=st.sampled_from(["", "worker"]),
    requirements=requirements,
    replicas=counts,
    certificate=certificates,
)
cluster_shares = st.builds(
    ClusterShares,
    version=counts,
    shares=st.lists(shares, max_size=3).map(tuple),
    adopted=st.dictionaries(st.sampled_from(["", "worker"]), counts),
)
changes: st.SearchStrategy[Change] = st.one_of(
    st.builds(
        BindingChanged,
        namespace=st.sampled_from(["", "shop"]),
        name=names,
        uid=names,
        owner=owners,
        decision=names,
        clusters=st.dictionaries(names, cluster_shares, max_size=4),
        deleted=st.booleans(),
        nonce=counts,
    ),
    st.builds(ReportAdvanced, cluster=names, version=counts, epoch=counts, sequence=counts),
    st.builds(ClusterChanged, cluster=names, deleted=st.booleans(), emptied=counts),
)


@given(st.lists(stored_reservations(), max_size=3))
def test_reservations_come_back(values: list[StoredReservations]) -> None:
    assert reservations_of(map(row_of, values)) == values


@given(st.lists(stored_reservations(), max_size=3))
def test_equal_requirements_are_read_once(values: list[StoredReservations]) -> None:
    found = [
        each.requirements
        for row in reservations_of(map(row_of, values))
        for each in row.reservations
    ]
    texts = {(repr(each), id(each)) for each in found}
    assert len(texts) == len({text for text, _ in texts})


@given(stored_reservations())
def test_every_cluster_is_named_once(value: StoredReservations) -> None:
    found = clusters_of(value)
    assert sorted(found) == sorted({each.cluster for each in value.reservations})


@given(changes)
def test_changes_come_back(change: Change) -> None:
    assert change_of(*packed_change(change), change.nonce) == change


def test_a_change_of_an_unknown_kind_is_read_as_that() -> None:
    assert change_of("queue", b"of another release", 7) == UnknownChange(kind="queue", nonce=7)
    with pytest.raises(ValueError, match="unknown kind 'queue'"):
        packed_change(UnknownChange(kind="queue"))


@given(st.lists(st.lists(st.integers(0, 2), max_size=2)))
def test_columns_come_back_with_equal_values_told_once(values: list[list[int]]) -> None:
    distinct, places = factored([list(each) for each in values])
    assert multiplied(distinct, places, len(values)) == values
    assert len(distinct) == len({tuple(each) for each in values})
    short = shortened(values)
    assert lengthened(short, len(values)) == values
    assert len(short) == (1 if len(distinct) == 1 else len(values))
