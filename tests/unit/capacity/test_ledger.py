"""The ledger through the life of bindings: decisions, reports, changes of shape, ends."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from federation.capacity.holdings import (
    DECISIONS_REMEMBERED,
    MAX_EARLIER_GROWTHS,
    OLDER_SHAPES_REMEMBERED,
    BindingReservations,
    NewReservations,
)
from federation.capacity.ledger import ClusterLedger, LedgerDraft
from federation.model.reservations import Growth, PromiseCertificate, Reservation, Share
from federation.model.shapes import Echo, request_shape
from federation.model.workload import NodeClaim, ReplicaRequirements
from lab.promising import Ledger

SMALL = {"cpu": 100}
LARGE = {"cpu": 400}
EMPTY = ClusterLedger(cluster="member1")


def share(replicas: int, request: Mapping[str, int] = SMALL, component: str = "") -> Share:
    return Share(
        component=component,
        requirements=ReplicaRequirements(request=request),
        replicas=replicas,
    )


def echo(bound: int, unbound: int = 0, request: Mapping[str, int] = SMALL, **more: int) -> Echo:
    return Echo(binding="web", shape=request_shape(request), bound=bound, unbound=unbound, **more)


def in_cells(ledger: ClusterLedger, binding: str = "web") -> int:
    return sum(each.in_cells for each in ledger.outstanding_of(binding))


def sums_by_component(ledger: ClusterLedger) -> dict[tuple[str, str], tuple[int, int, int]]:
    """Return what is to be packed, is in cells and in totals, by binding and component."""
    sums: dict[tuple[str, str], tuple[int, int, int]] = {}
    for part in ledger.outstanding():
        sums_so_far = sums.get((part.binding, part.component), (0, 0, 0))
        amounts = zip(sums_so_far, (part.to_pack, part.in_cells, part.in_summary), strict=True)
        to_pack, in_cells, in_summary = map(sum, amounts)
        sums[part.binding, part.component] = to_pack, in_cells, in_summary
    return sums


def test_a_report_takes_over_what_it_sees() -> None:
    ledger = EMPTY.decided("web", "d1", [share(5)])
    assert in_cells(ledger) == 5
    ledger = ledger.reported(ledger.interest_version, [echo(2, unbound=1)])
    assert in_cells(ledger) == 3
    assert ledger.outstanding_of("web")[0].in_summary == 2
    assert in_cells(ledger.reported(ledger.interest_version, [echo(5)])) == 0


def test_pods_that_go_away_are_outstanding_again() -> None:
    told = EMPTY.decided("web", "d1", [share(5)])
    ledger = told.reported(1, [echo(5)])
    assert in_cells(ledger.reported(1, [echo(4)])) == 1
    assert in_cells(ledger.reported(1, [])) == 5
    # An agent that was not told yet leaves the reservation whole.
    assert in_cells(told.reported(0, [])) == 5
    # Pods that finished stay echoed when they are gone.
    ended = told.reported(1, [echo(2, finished=3)])
    assert [in_cells(each) for each in (ended, ended.reported(1, [echo(2)]))] == [0, 0]
    assert in_cells(ended.reported(1, [])) == 2


def test_more_replicas_of_the_same_shape_keep_their_echo_and_tell_agents_nothing_new() -> None:
    ledger = EMPTY.decided("web", "d1", [share(5)]).reported(1, [echo(5)])
    scaled = ledger.decided("web", "d2", [share(8)])
    assert in_cells(scaled) == 3
    assert scaled.interest_version == ledger.interest_version
    assert scaled.newest("web")[0].decisions == ("d1", "d2")
    assert in_cells(ledger.decided("web", "d2", [share(2)])) == 0


def test_a_new_shape_is_outstanding_as_a_whole_and_credited_what_it_replaces() -> None:
    ledger = EMPTY.decided("web", "d1", [share(5, LARGE)])
    ledger = ledger.reported(1, [echo(5, request=LARGE)]).decided("web", "d2", [share(5)])
    (outstanding,) = ledger.outstanding_of("web")
    assert (outstanding.in_cells, outstanding.credited) == (5, 5)
    half = ledger.reported(ledger.version, [echo(2, request=LARGE), echo(2)])
    (outstanding,) = half.outstanding_of("web")
    assert (outstanding.in_cells, outstanding.credited) == (3, 2)


def test_a_decision_forgets_an_older_shape_once_only_the_newest_is_seen() -> None:
    ledger = EMPTY.decided("web", "d1", [share(5, LARGE)]).decided("web", "d2", [share(5)])

    def shapes_after(answered: int, *echoes: Echo) -> int:
        decided = ledger.reported(answered, echoes).decided("web", "d3", [share(5)])
        return len(decided.of_binding("web"))

    assert shapes_after(2) == 2
    assert shapes_after(2, echo(1), echo(4, request=LARGE)) == 2
    assert shapes_after(1, echo(5)) == 2
    assert shapes_after(2, echo(5)) == 1


def test_going_back_to_an_older_shape_finds_its_pods() -> None:
    ledger = EMPTY.decided("web", "d1", [share(5)]).reported(1, [echo(5)])
    ledger = ledger.decided("web", "d2", [share(5, LARGE)])
    ledger = ledger.reported(ledger.version, [echo(3), echo(2, request=LARGE)])
    back = ledger.decided("web", "d3", [share(5)])
    assert in_cells(back) == 2
    assert in_cells(back.reported(ledger.version, [echo(3), echo(2, request=LARGE)])) == 2
    assert back.newest("web")[0].decisions == ("d1", "d3")


def test_what_ran_before_deducts_nothing_until_the_agent_was_asked() -> None:
    ledger = EMPTY.decided("web", "d1", [share(5)], adopted={"": 3})
    assert in_cells(ledger) == 2
    assert in_cells(ledger.reported(0, [])) == 2
    asked = ledger.reported(ledger.interest_version, [echo(2)])
    assert in_cells(asked) == 3
    # An agent that starts again must not bring back what was claimed and found wrong.
    assert in_cells(asked.reported(0, [])) == 5


def test_components_are_outstanding_each_by_itself() -> None:
    ledger = EMPTY.decided("job", "d1", [share(1, LARGE, "manager"), share(4, SMALL, "worker")])
    ledger = ledger.reported(
        1, [Echo(binding="job", component="worker", shape=request_shape(SMALL), bound=4)]
    )
    assert [(each.component, each.in_cells) for each in ledger.outstanding()] == [("manager", 1)]


def test_shapes_and_decisions_are_not_remembered_without_end() -> None:
    ledger = EMPTY
    for number in range(50):
        ledger = ledger.decided("web", f"d{number}", [share(1, {"cpu": number + 1})])
    assert len(ledger.of_binding("web")) == OLDER_SHAPES_REMEMBERED + 1
    assert in_cells(ledger) == 1
    for number in range(50):
        ledger = ledger.decided("web", f"e{number}", [share(1)])
    assert len(ledger.newest("web")[0].decisions) == DECISIONS_REMEMBERED


def test_a_decision_lets_go_of_the_clusters_it_leaves_out() -> None:
    ledger = Ledger().decided("web", "d1", {"member1": [share(2)], "member2": [share(3)]})
    ledger = ledger.decided("other", "d2", {"member1": [share(1)]})
    assert ledger.clusters_of("web") == ["member1", "member2"]
    moved = ledger.decided("web", "d3", {"member2": [share(5)]})
    assert moved.clusters_of("web") == ["member2"]
    assert in_cells(moved.of("member1")) == 0
    assert in_cells(moved.of("member1"), "other") == 1
    assert in_cells(moved.of("member2")) == 5
    assert moved.released("web").clusters_of("web") == []
    assert in_cells(ledger.of("member1")) == 2, "the earlier ledger has not changed"


def test_the_interest_grows_with_all_that_is_to_be_looked_for() -> None:
    ledger = EMPTY.decided("web", "d1", [share(5)])
    versions = [ledger.interest_version]
    for decide in (
        lambda each: each.decided("web", "d2", [share(5, LARGE)]),
        lambda each: each.decided("other", "d3", [share(1)]),
        lambda each: each.released("web"),
    ):
        ledger = decide(ledger)
        versions.append(ledger.interest_version)
    assert versions == [1, 2, 3, 4]
    again = ledger.released("web")
    assert (again.version, again.interest_version) == (5, 4)


def test_what_an_earlier_binding_of_that_name_left_is_not_believed() -> None:
    ledger = EMPTY.decided("web", "d1", [share(5)])
    told = ledger.version
    ledger = ledger.reported(told, [echo(5)]).released("web").decided("web", "d2", [share(5)])
    assert in_cells(ledger) == 5
    assert in_cells(ledger.reported(told, [echo(5)])) == 5
    assert in_cells(ledger.reported(ledger.version, [echo(5)])) == 0


def test_promises_are_packed_in_the_order_in_which_they_grew() -> None:
    ledger = EMPTY
    for binding in ("a", "b", "c"):
        ledger = ledger.decided(binding, "d1", [share(3)])
    ledger = ledger.decided("a", "d2", [share(4)]).decided("b", "d2", [share(2)])
    assert [(promise.binding, promise.in_cells) for promise in ledger.outstanding()] == [
        ("a", 3),
        ("b", 2),
        ("c", 3),
        ("a", 1),
    ]


def parts_of(ledger: ClusterLedger, binding: str = "web") -> list[int]:
    return [part.in_cells for part in ledger.outstanding_of(binding)]


def test_pods_stand_for_what_was_promised_first_and_less_is_taken_from_what_came_last() -> None:
    ledger = EMPTY.decided("web", "d1", [share(3)]).decided("other", "d1", [share(1)])
    ledger = ledger.decided("web", "d2", [share(5)]).decided("web", "d3", [share(9)])
    assert parts_of(ledger) == [3, 2, 4]
    assert ledger.newest("web")[0].earlier == (Growth(1, 3), Growth(3, 2))
    assert ledger.newest("web")[0].replicas == 9
    version = ledger.interest_version
    seen = ledger.reported(version, [echo(4, unbound=2)])
    assert parts_of(seen) == [1, 4]
    # Pods without a node are those of the oldest too.
    assert [part.in_summary for part in seen.outstanding_of("web")] == [0, 3]
    for replicas, parts in ((9, [1, 4]), (8, [1, 3]), (5, [1]), (4, []), (10, [1, 4, 1])):
        after = seen.decided("web", "d4", [share(replicas)])
        assert parts_of(after) == parts
        stored = {name: after.of_binding(name) for name in after.bindings()}
        again = ClusterLedger.restored(
            "member1", after.version, stored, version, [echo(4, unbound=2)]
        )
        assert again.outstanding() == after.outstanding()
    # Of one that shrank the next growth comes last.
    shrunk = seen.decided("web", "d4", [share(2)]).decided("web", "d5", [share(6)])
    assert parts_of(shrunk) == [2]
    shrunk = ledger.decided("web", "d4", [share(2)]).decided("web", "d5", [share(6)])
    assert parts_of(shrunk) == [2, 4]
    assert shrunk.newest("web")[0].earlier == (Growth(1, 2),)


def test_parts_that_pods_stand_for_are_one_with_the_oldest_that_needs_room() -> None:
    ledger = EMPTY.decided("web", "d1", [share(3)]).decided("other", "d1", [share(1)])
    ledger = ledger.decided("web", "d2", [share(5)]).decided("web", "d3", [share(9)])
    seen = ledger.reported(ledger.interest_version, [echo(2, finished=2)])
    for replicas, earlier in (
        (10, (Growth(3, 5), Growth(4, 4))),
        (9, (Growth(3, 5),)),
        (5, ()),
        (2, ()),
    ):
        after = seen.decided("web", "d4", [share(replicas)])
        assert after.newest("web")[0].earlier == earlier
        assert parts_of(after) == [1, 4, 1][: len(earlier) + (replicas > 4)]
    # Where pods go away, what they stood for is packed no earlier than it was promised.
    grown = seen.decided("web", "d4", [share(10)])
    gone = grown.reported(ledger.interest_version, [echo(0, finished=2)])
    assert [(part.binding, part.in_cells) for part in gone.outstanding()] == [
        ("other", 1),
        ("web", 3),
        ("web", 4),
        ("web", 1),
    ]


def test_growth_that_runs_leaves_nothing_in_the_row() -> None:
    ledger = EMPTY
    for replicas in range(1, MAX_EARLIER_GROWTHS + 10):
        ledger = ledger.decided("web", "d1", [share(replicas)])
        assert ledger.newest("web")[0].earlier == ()
        ledger = ledger.reported(ledger.interest_version, [echo(replicas)])


def test_growth_of_another_kind_is_promised_as_a_whole() -> None:
    ledger = EMPTY.decided("web", "d1", [share(3)])
    claimed = ReplicaRequirements(request=SMALL, node_claim=NodeClaim(node_selector={"zone": "a"}))
    strict = PromiseCertificate.STRICT
    unproven = share(3)._replace(certificate=PromiseCertificate.UNPROVEN)
    for first, grown in (
        (share(3), share(5, LARGE)),
        (share(3), share(5)._replace(requirements=claimed)),
        (share(3), share(5)._replace(certificate=strict)),
        (unproven, share(5)),
    ):
        ledger = EMPTY.decided("web", "d1", [first]).decided("web", "d2", [grown])
        assert parts_of(ledger) == [5]
        assert ledger.newest("web")[0].grown_version == 2
    # A shape that comes back is promised anew.
    other = EMPTY.decided("web", "d1", [share(3)]).decided("web", "d2", [share(5)])
    back = other.decided("web", "d3", [share(2, LARGE)]).decided("web", "d4", [share(6)])
    assert parts_of(back) == [6]
    assert all(not older.earlier for older in back.of_binding("web"))


def test_who_grows_again_and_again_fills_no_ledger() -> None:
    ledger = EMPTY
    for replicas in range(1, MAX_EARLIER_GROWTHS + 10):
        ledger = ledger.decided("web", "d1", [share(replicas)])
        assert sum(parts_of(ledger)) == replicas
        assert len(parts_of(ledger)) <= MAX_EARLIER_GROWTHS + 1
    assert ledger.newest("web")[0].earlier[0] == Growth(1, 9)


def test_what_is_promised_by_plan_is_told_whenever_it_changes() -> None:
    def planned(replicas: int) -> Share:
        return share(replicas)._replace(certificate=PromiseCertificate.PLANNED)

    ledger = EMPTY.decided("web", "d1", [planned(2)])
    assert ledger.decided("web", "d2", [planned(2)]).interest_version == 1
    assert ledger.decided("web", "d2", [planned(3)]).interest_version == 2
    assert ledger.decided("web", "d2", [share(2)]).interest_version == 2


# Few of each, so that what happens meets.
BINDINGS = st.sampled_from(["a", "a", "a", "b"])
REQUESTS = st.sampled_from([SMALL, LARGE])
COMPONENTS = st.sampled_from(["", "", "", "worker"])
COUNTS = st.integers(0, 2)
SHARES = st.lists(
    st.builds(share, st.integers(3, 6), REQUESTS, COMPONENTS),
    min_size=1,
    max_size=2,
    unique_by=lambda each: each.component,
)
ECHOES = st.lists(
    st.builds(
        lambda binding, request, component, bound, unbound, finished: Echo(
            binding=binding,
            component=component,
            shape=request_shape(request),
            bound=bound,
            unbound=unbound,
            finished=finished,
        ),
        BINDINGS,
        REQUESTS,
        COMPONENTS,
        COUNTS,
        COUNTS,
        COUNTS,
    ),
    max_size=6,
    unique_by=lambda each: each.key,
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("decide"), BINDINGS, SHARES, COUNTS),
        st.tuples(st.just("release"), BINDINGS),
        st.tuples(st.just("report"), ECHOES, st.booleans()),
        st.tuples(st.just("tell"), ECHOES, st.booleans()),
        st.tuples(st.just("restart agent")),
    ),
    min_size=3,
    max_size=8,
)


class Life:
    """A ledger and what a control plane would have stored of it."""

    def __init__(self) -> None:
        self.ledger = EMPTY
        self.stored: dict[str, tuple[Reservation, ...]] = {}
        self.told = 0
        self.answered = 0
        self.echoes: list[Echo] = []
        self.is_exact = True

    def take(self, step: tuple[Any, ...], number: int) -> None:
        match step:
            case "decide", binding, shares, adopted:
                is_new = adopted > 0 and not self.ledger.of_binding(binding)
                ran = {each.component: adopted for each in shares} if is_new else None
                self.is_exact &= not is_new
                self.ledger = self.ledger.decided(binding, f"d{number}", shares, ran)
                self.stored[binding] = self.ledger.of_binding(binding)
            case "release", binding:
                self.ledger = self.ledger.released(binding)
                self.stored.pop(binding, None)
            case "report", echoes, is_written:
                self._report(echoes if self.told else [], is_written=is_written)
            case "tell", echoes, is_written:
                self.told = self.ledger.version
                self._report(echoes, is_written=is_written)
            case ("restart agent",):
                self.told = 0
                self._report([], is_written=True)

    def _report(self, echoes: list[Echo], *, is_written: bool) -> None:
        self.answered, self.echoes = self.told, echoes
        before = self.ledger
        self.ledger = before.reported(self.told, echoes)
        for binding, held in self.stored.items():
            now = self.ledger.of_binding(binding)
            finished = {each.key: each.finished for each in now}
            if is_written:
                self.stored[binding] = tuple(
                    each._replace(finished=finished[each.key]) for each in held
                )
            elif now != before.of_binding(binding):
                self.is_exact = False

    def restored(self) -> ClusterLedger:
        return ClusterLedger.restored(
            "member1",
            self.ledger.version,
            self.stored,
            self.answered,
            self.echoes,
            self.ledger.reported_version,
        )


@settings(max_examples=400)
@given(STEPS)
def test_a_restored_ledger_promises_no_less_than_the_one_that_lived(
    steps: list[tuple[Any, ...]],
) -> None:
    life = Life()
    for number, step in enumerate(steps):
        life.take(step, number)
    restored = life.restored()
    assert (restored.version, restored.interest_version) == (life.ledger.version,) * 2
    again, expected = sums_by_component(restored), sums_by_component(life.ledger)
    for component, (to_pack, in_cells, in_summary) in expected.items():
        assert again[component][0] >= to_pack
        assert again[component][1] >= in_cells
        assert again[component][2] >= in_summary
    if life.is_exact and life.ledger.reported_version:
        assert restored.order() == life.ledger.order()
        assert replace(restored, interest_version=life.ledger.interest_version) == life.ledger


@given(STEPS)
def test_only_what_is_outstanding_is_looked_at(steps: list[tuple[Any, ...]]) -> None:
    life = Life()
    for number, step in enumerate(steps):
        life.take(step, number)
        # Asked at every step, it is put together from what was known before.
        held = [life.ledger.reservations_of(name) for name in life.ledger.bindings()]
        parts = [
            part
            for reservation in held
            if reservation is not None
            for part in zip(reservation.versions, reservation.outstanding, strict=True)
        ]
        in_order = [part for _, part in sorted(parts, key=lambda part: part[0])]
        assert list(life.ledger.outstanding()) == in_order
    found = [each for name in life.ledger.bindings() for each in life.ledger.outstanding_of(name)]
    assert sorted(found, key=repr) == sorted(life.ledger.outstanding(), key=repr)
    assert all(each.in_cells > 0 for each in found)


def test_a_restored_ledger_takes_what_was_adopted_as_seen_unless_it_knows_better() -> None:
    ledger = EMPTY.decided("other", "d1", [share(1)]).decided(
        "web", "d2", [share(5)], adopted={"": 3}
    )
    stored = {"web": ledger.of_binding("web")}
    assert in_cells(ClusterLedger.restored("member1", 2, stored, 1)) == 2
    assert in_cells(ClusterLedger.restored("member1", 2, stored, 0)) == 5
    assert in_cells(ClusterLedger.restored("member1", 3, stored, 2, [echo(4)])) == 1


def test_what_decisions_replaced_is_not_kept_where_nobody_asks() -> None:
    ledger = EMPTY
    for number in range(3_000):
        ledger = ledger.decided("web", f"d{number}", [share(1 + number % 2)])
    assert sum(isinstance(each, BindingReservations) for each in gc.get_objects()) < 1_500
    assert in_cells(ledger) == sum(each.in_cells for each in ledger.outstanding())


CHANGES = st.lists(
    st.tuples(BINDINGS, SHARES | st.none(), st.none() | COUNTS.map(lambda ran: {"": ran})),
    max_size=6,
)


@given(STEPS, CHANGES)
def test_changes_of_a_batch_come_to_the_same_as_one_after_the_other(
    steps: list[tuple[Any, ...]], changes: list[tuple[Any, ...]]
) -> None:
    life = Life()
    for number, step in enumerate(steps):
        life.take(step, number)
    before, ledger = life.ledger, life.ledger
    bindings, outstanding = before.bindings(), before.outstanding()
    work = LedgerDraft(before)
    for number, (binding, shares, adopted) in enumerate(changes):
        if shares is None:
            ledger = ledger.released(binding)
            work.release(binding)
        else:
            ledger = ledger.decided(binding, f"e{number}", shares, adopted)
            first, before_it, given = (
                NewReservations(binding, f"e{number}"),
                work.reservations_of(binding),
                tuple(shares),
            )
            holding = work.draft(first, before_it, given, adopted)
            # What is alike in clusters is remembered from the first of them on.
            assert work.draft(first, before_it, given, adopted) == holding
            work.put(binding, before_it, holding)
        assert work.version == ledger.version
        assert work.reservations_of(binding) == ledger.reservations_of(binding)
        assert work.ledger.outstanding_of(binding) == ledger.outstanding_of(binding)
        assert work.ledger.is_open == ledger.is_open == bool(ledger.outstanding())
    assert work.ledger == ledger
    assert work.ledger.outstanding() == ledger.outstanding()
    assert (before.bindings(), before.outstanding()) == (bindings, outstanding)
