"""Reasons: values that are compared by code, and the English that they become."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

from federation.model.reason_codes import ReasonCode
from federation.model.reason_texts import TEMPLATES
from federation.model.reasons import (
    NO_REASON,
    SET_ASIDE,
    Amount,
    BindingRef,
    ClusterName,
    Reason,
    Text,
    Word,
    clauses_of,
    goes_on_from,
    has_code,
    joined,
    says_the_same,
    stored_reason,
    stored_reasons,
    texts_of,
    without_code,
)

STALE = Reason(ReasonCode.STALE)
ONE = Amount(1)
TWO = Amount(2)
A = ClusterName("a")
KEY = BindingRef("shop", "web")
BOUNDS = ((Word("region"), TWO, Amount(3)), (Word("cluster"), TWO, Amount(0)))

# One reason or more for each code whose template works with its parameters.
SENTENCES = {
    "“no; never”": Reason.of(ReasonCode.PLUGIN_TEXT, Text("no; never")),
    "Gang: “no”": Reason.of(
        ReasonCode.PLUGIN_OBJECTS, Word("Gang"), Reason.of(ReasonCode.PLUGIN_TEXT, Text("no"))
    ),
    "it broke": Reason.of(ReasonCode.ERROR_TEXT, Text("it broke")),
    "a: is stale: its agent is silent": Reason.of(ReasonCode.IN_CLUSTER, A, STALE),
    "the resource model lacks cpu, gpu": Reason.of(
        ReasonCode.MODEL_LACKS_RESOURCES, (Word("cpu"), Word("gpu"))
    ),
    "the cluster's pools do not tell nodes apart by disk": Reason.of(
        ReasonCode.POOLS_LACK_LABELS, (Word("disk"),)
    ),
    "counted beside 2 promised replicas, put on the first nodes with room: "
    "they are on no node yet": Reason.of(ReasonCode.COUNTED_BESIDE_PROMISES, TWO),
    "the cluster is over-committed: promised replicas lost their room, 2 of shop/web": Reason.of(
        ReasonCode.OVER_COMMITTED, ((KEY, TWO),), Amount(0)
    ),
    "the cluster is over-committed: promised replicas lost their room, "
    "2 of shop/web and 1 more bindings": Reason.of(ReasonCode.OVER_COMMITTED, ((KEY, TWO),), ONE),
    "room kept for 1 large pod": Reason.of(ReasonCode.KEPT_FOR_LARGE_PODS, ONE),
    "room kept for 2 large pods": Reason.of(ReasonCode.KEPT_FOR_LARGE_PODS, TWO),
    "is cordoned (repair)": Reason.of(ReasonCode.CORDONED_BECAUSE, Text("repair")),
    "cannot be seen since noon: Late": Reason.of(ReasonCode.UNSEEN, Word("noon"), Word("Late")),
    "has the untolerated taint a=b:NoExecute": Reason.of(
        ReasonCode.UNTOLERATED_TAINT, Word("a=b:NoExecute")
    ),
    "does not have the API v1 Pod": Reason.of(ReasonCode.API_MISSING, Word("v1"), Word("Pod")),
    "has no region": Reason.of(ReasonCode.PROPERTY_MISSING, Word("region")),
    "has no room for one replica": Reason.of(ReasonCode.NO_ROOM_FOR, ONE),
    "has no room for 2 replicas": Reason.of(ReasonCode.NO_ROOM_FOR, TWO),
    "1 of 2 replicas find room": Reason.of(ReasonCode.FEWER_FIT, ONE, TWO),
    "1 of 2 replicas find room: 1 are kept back beside what is on its way": Reason.of(
        ReasonCode.FEWER_FIT_BECAUSE, ONE, TWO, Reason.of(ReasonCode.MARGIN_KEPT, ONE)
    ),
    "by its totals there is room for 1 more, not 2": Reason.of(
        ReasonCode.TOTALS_TOO_SMALL, ONE, TWO
    ),
    "there is no room for the shares: a: the cluster is gone": Reason.of(
        ReasonCode.NO_ROOM_FOR_SHARES,
        Reason.of(ReasonCode.IN_CLUSTER, A, Reason(ReasonCode.CLUSTER_GONE)),
    ),
    "there is room for 1 more, not 2": Reason.of(ReasonCode.ROOM_TOO_SMALL, ONE, TWO),
    "1 regions have candidates, 2 wanted": Reason.of(
        ReasonCode.TOO_FEW_GROUPS, Word("region"), ONE, TWO
    ),
    "no choice keeps all spread constraints (region 2 to 3, cluster at least 2)": Reason.of(
        ReasonCode.SPREAD_UNKEPT, BOUNDS
    ),
    "1 replica is available under the spread constraints (region 2 to 3, cluster at least 2), "
    "2 wanted": Reason.of(ReasonCode.SPREAD_TOO_SMALL, ONE, BOUNDS, TWO),
    "no more than 2 replicas are available under the spread constraints "
    "(region 2 to 3, cluster at least 2), 2 wanted": Reason.of(
        ReasonCode.SPREAD_HOPELESS, TWO, BOUNDS, TWO
    ),
    "the least replicas per cluster add up to 2, 1 are wanted": Reason.of(
        ReasonCode.MINIMUMS_EXCEED_REPLICAS, TWO, ONE
    ),
    "2 clusters cannot hold the least replicas asked of them": Reason.of(
        ReasonCode.MINIMUMS_DO_NOT_FIT, TWO
    ),
    "1 replica is missing in clusters where nothing may grow now": Reason.of(
        ReasonCode.REPLICAS_MISSING, ONE, Amount(0)
    ),
    "1 replica is available, 2 wanted": Reason.of(
        ReasonCode.REPLICAS_AVAILABLE, ONE, TWO, Amount(0)
    ),
    "2 replicas are available, 1 wanted, and at least 2 together (minAvailable)": Reason.of(
        ReasonCode.REPLICAS_AVAILABLE, TWO, ONE, TWO
    ),
    "1 of 2 replicas are less than 2 percent": Reason.of(
        ReasonCode.GANG_PERCENT_UNMET, ONE, TWO, TWO
    ),
    "a is stale: its agent is silent and 1 more": Reason.of(
        ReasonCode.CLUSTERS_CLOSED, ((A, STALE),), ONE
    ),
    "1 of 1 cluster was refused: is not Ready (1)": Reason.of(
        ReasonCode.CLUSTERS_REFUSED, ONE, ONE, ((Reason(ReasonCode.NOT_READY), ONE),)
    ),
    "no cluster is named a and 2 more": Reason.of(ReasonCode.CLUSTERS_UNNAMED, (A,), TWO),
    "1 cluster has no estimate and counts as full": Reason.of(ReasonCode.CLUSTERS_UNKNOWN, ONE, ()),
    "short of pods in 2 clusters, cpu and memory together in 1": Reason.of(
        ReasonCode.SHORT_OF,
        Reason.of(
            ReasonCode.SCARCE_RESOURCES,
            (
                (Reason.of(ReasonCode.RESOURCES_TOGETHER, (Word("cpu"), Word("memory"))), ONE),
                (Reason.of(ReasonCode.RESOURCE, Word("pods")), TWO),
            ),
        ),
    ),
    "suitable clusters: is not Ready (1 of 2)": Reason.of(
        ReasonCode.SUITABLE_CLUSTERS, Reason(ReasonCode.NOT_READY), ONE, TWO
    ),
    "quota of namespace shop: replicas 2 of 1, memory 2Ki of 1Ki": Reason.of(
        ReasonCode.QUOTA_EXCEEDED,
        Word("shop"),
        ((Word(""), TWO, ONE), (Word("memory"), Amount(2048), Amount(1024))),
    ),
    "room is kept for shop/web, which waited before": Reason.of(ReasonCode.ROOM_KEPT_FOR, (KEY,)),
    "waits for 1 replica of shop/web to leave a and 2 more, since noon": Reason.of(
        ReasonCode.AWAITS_LEAVING, ((ONE, KEY, A),), TWO, Word("noon")
    ),
    "1 of 2 members of gang g is here": Reason.of(ReasonCode.GANG_INCOMPLETE, ONE, TWO, Word("g")),
    "2 members of gang g (here: x, suspended: y and 1 more)": Reason.of(
        ReasonCode.GANG_LACKS_MEMBERS, TWO, Word("g"), (Word("x"),), Amount(0), (Word("y"),), ONE
    ),
    "x of the same gang: it broke": Reason.of(
        ReasonCode.GANG_MEMBER_WRONG, Word("x"), Text("it broke")
    ),
    "x of gang g was not placed, nor was 1 more": Reason.of(
        ReasonCode.GANG_MEMBER_UNPLACED, Word("x"), Word("g"), ONE
    ),
    "room for x: is not Ready": Reason.of(
        ReasonCode.ROOM_FOR_MEMBER, Word("x"), Reason(ReasonCode.NOT_READY)
    ),
    "x, which must stay together with it, has no place: is not Ready": Reason.of(
        ReasonCode.COMPANION_STAYS, Word("x"), Reason(ReasonCode.NOT_READY)
    ),
    "no more than 2 at once may wait for others to leave": Reason.of(
        ReasonCode.PREEMPTION_CROWDED, TWO
    ),
    "preempted by shop/web: 2 in a": Reason.of(ReasonCode.PREEMPTED, KEY, ((TWO, A),)),
    "preempted by shop/web": Reason.of(ReasonCode.PREEMPTED_BY, KEY),
    "shop/web: 2 in a, priority -5": Reason.of(ReasonCode.PREEMPTS, KEY, TWO, A, Amount(-5)),
    "cluster a is gone": Reason.of(ReasonCode.OWN_CLUSTER_GONE, A),
    "cluster a has the untolerated taint x:NoExecute": Reason.of(
        ReasonCode.OWN_CLUSTER_TAINTED, A, Word("x:NoExecute")
    ),
    "the eviction from cluster a is taken back": Reason.of(ReasonCode.EVICTION_UNDONE, A),
}


@pytest.mark.parametrize(("text", "reason"), SENTENCES.items())
def test_a_reason_becomes_one_sentence(text: str, reason: Reason) -> None:
    assert str(reason) == text
    assert str(reason) == text, "the second time too"


def test_each_code_has_a_template_and_those_with_parameters_are_shown_here() -> None:
    assert TEMPLATES.keys() == set(ReasonCode)
    shown = {reason.code for reason in SENTENCES.values()}
    nested = {
        ReasonCode.CLAUSES,
        ReasonCode.STORED_TEXT,
        ReasonCode.MARGIN_KEPT,
        ReasonCode.SCARCE_RESOURCES,
        ReasonCode.RESOURCE,
        ReasonCode.RESOURCES_TOGETHER,
    }
    fixed = {code for code, template in TEMPLATES.items() if isinstance(template, str)}
    assert shown | nested | fixed == set(ReasonCode)
    for code in fixed:
        assert str(Reason(code)) == TEMPLATES[code]


def test_counted_reasons_have_the_most_frequent_first_and_then_the_order_of_their_texts() -> None:
    counts = [(ReasonCode.NOT_READY, 1), (ReasonCode.HELD, 1), (ReasonCode.CORDONED, 2)]
    pairs = tuple((Reason(code), Amount(count)) for code, count in counts)
    assert str(Reason.of(ReasonCode.CLUSTERS_REFUSED, Amount(4), Amount(9), pairs)) == (
        "4 of 9 clusters were refused: is cordoned (2), "
        "is held until somebody accepts it (1), is not Ready (1)"
    )


def test_clauses_are_joined_and_found_by_their_codes() -> None:
    held = Reason(ReasonCode.HELD)
    both = joined(STALE, NO_REASON, joined(held))
    assert clauses_of(both) == (STALE, held)
    assert str(both) == "is stale: its agent is silent; is held until somebody accepts it"
    assert joined(STALE) is STALE
    assert (bool(both), bool(STALE), bool(NO_REASON)) == (True, True, False)
    assert (str(NO_REASON), clauses_of(NO_REASON), joined()) == ("", (), NO_REASON)
    assert has_code(both, ReasonCode.HELD)
    assert not has_code(STALE, ReasonCode.HELD)
    assert without_code(both, ReasonCode.HELD) == STALE
    assert without_code(STALE, ReasonCode.STALE) == NO_REASON


def test_reasons_are_equal_by_value_and_their_parameters_by_type() -> None:
    one, other = (Reason.of(ReasonCode.NO_ROOM_FOR, Amount(2)) for _ in range(2))
    assert one == other
    assert hash(one) == hash(other)
    assert str(one) == str(other)
    assert Reason.of(ReasonCode.RESOURCE, Word("a")) != Reason.of(ReasonCode.RESOURCE, A)
    assert len({one, other, STALE}) == 2


def test_a_reason_that_another_process_made_is_equal() -> None:
    script = (
        "import pickle, sys\n"
        "from federation.model.reason_codes import ReasonCode\n"
        "from federation.model.reasons import ClusterName, Reason\n"
        "reason = Reason.of(ReasonCode.CLUSTERS_UNNAMED, (ClusterName('a'),))\n"
        "sys.stdout.buffer.write(pickle.dumps(reason))\n"
    )
    command = [sys.executable, "-c", script]
    written = subprocess.run(command, capture_output=True, check=True).stdout
    read = pickle.loads(written)  # noqa: S301 - written by the line above
    assert read == Reason.of(ReasonCode.CLUSTERS_UNNAMED, (A,))
    assert hash(read) == hash(Reason.of(ReasonCode.CLUSTERS_UNNAMED, (A,)))


def test_what_was_stored_as_text_reads_the_same() -> None:
    stored = stored_reason("1 replica is available, 2 wanted")
    assert str(stored) == "1 replica is available, 2 wanted"
    live = Reason.of(ReasonCode.REPLICAS_AVAILABLE, ONE, TWO, Amount(0))
    assert stored != live
    assert says_the_same(stored, live)
    assert not says_the_same(stored, STALE)
    assert stored_reason("") == NO_REASON


def test_clusters_that_were_set_aside_are_known_from_stored_notes() -> None:
    for note in (SET_ASIDE, joined(SET_ASIDE, STALE)):
        read = stored_reason(str(note))
        assert has_code(read, ReasonCode.SET_ASIDE)
        assert str(read) == str(note)
    assert str(without_code(stored_reason(str(joined(SET_ASIDE, STALE))), SET_ASIDE.code)) == str(
        STALE
    )
    notes = {0: str(SET_ASIDE), 3: str(STALE), 7: str(STALE)}
    read_notes = stored_reasons(notes)
    assert read_notes[3] is read_notes[7]
    assert texts_of(read_notes) == notes


def test_a_longer_reason_goes_on_from_a_shorter_one() -> None:
    held = Reason(ReasonCode.HELD)
    stored = stored_reason(str(joined(STALE, held)))
    assert goes_on_from(stored, STALE)
    assert goes_on_from(joined(STALE, held), STALE)
    assert not goes_on_from(STALE, STALE)
    assert not goes_on_from(stored, held)
    assert not goes_on_from(stored, NO_REASON)


def test_a_reference_to_a_binding_is_written_as_its_key() -> None:
    assert BindingRef.of("shop/web") == KEY
    assert str(BindingRef.of("web")) == "web"
    assert str(BindingRef.of("shop/web")) == "shop/web"
