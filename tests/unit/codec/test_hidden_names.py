"""Names of other namespaces: every sentence that has some, made by what makes it."""

from __future__ import annotations

from federation.codec.hidden_names import HIDDEN, hidden_in, hidden_key, hidden_wait, hide_names
from federation.model.access import EVERYTHING, Scope
from federation.model.placement import Binding
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import Amount, BindingRef, Reason
from federation.model.waiting import Leaving, Nomination, Wait, WaitState
from federation.model.workload import TargetCluster
from federation.scheduler.preemption import Candidate, loss_decision, loss_reasons
from federation.scheduler.waiting.kept import room_is_kept_for
from federation.services.scheduling.earmarks import awaited_pods_of
from federation.v1 import scheduling_pb2

SHOP = Scope(namespaces=("shop",))
FOREIGN = ("secret/db", "secret/db.v2-x", "cluster-wide.job")


def leaving(*keys: str) -> Nomination:
    return Nomination(
        since=1.0,
        until=2.0,
        shares=(TargetCluster(name="eu", replicas=3),),
        leaving=tuple(Leaving(key, "eu", 3, "d") for key in keys),
    )


def over_committed(omitted: int, *keys: str) -> Reason:
    stuck = tuple((BindingRef.of(key), Amount(2)) for key in keys)
    return Reason.of(ReasonCode.OVER_COMMITTED, stuck, Amount(omitted))


def sentences(key: str) -> list[str]:
    candidate = Candidate(
        binding=key, cluster="eu", priority=-5, replicas=3, divisible=True, placed_at=0.0
    )
    loser = Binding(
        namespace="shop",
        name="web",
        replicas=3,
        clusters=(TargetCluster(name="eu", replicas=3),),
    )
    lost = loss_decision(loser, {"eu": 1}, key, ("eu",), 0.0)
    return [
        str(awaited_pods_of(leaving(key), [1])),
        str(awaited_pods_of(leaving(key, "shop/web"), [3, 2])),
        *map(str, loss_reasons([candidate], [2])),
        str(lost.reason),
        *map(str, lost.trace.triggers),
        f"cpu in 3 clusters; {room_is_kept_for([key, 'shop/web'])}",
        f"preempted by {key}",
        str(over_committed(1, key)),
        f"{over_committed(2, 'shop/web', key)}; cpu in 3 clusters",
    ]


def test_no_sentence_names_who_may_not_be_seen() -> None:
    for key in FOREIGN:
        for text in sentences(key):
            assert key in text
            assert hidden_in(text, EVERYTHING) == text
            seen = hidden_in(text, SHOP)
            assert key not in seen, text
            assert seen.count(HIDDEN) == 1, seen
            assert ("shop/web" in seen) == ("shop/web" in text)
            # Nothing else is lost.
            assert set(text.replace(",", "").split()) - set(seen.replace(",", "").split()) <= {
                *(key, f"{key}:", f"{key};")
            }


def test_several_who_may_not_be_seen_are_told_once() -> None:
    text = str(room_is_kept_for(["shop/web", *FOREIGN]))
    assert hidden_in(text, SHOP) == f"room is kept for shop/web, {HIDDEN}, which waited before"


def test_own_names_and_other_texts_stay() -> None:
    for text in (
        *sentences("shop/api"),
        "3 of 4 members of gang training are here",
        "nvidia.com/gpu in 12 clusters",
        "",
    ):
        assert hidden_in(text, SHOP) == text
    assert (hidden_key("", SHOP), hidden_key("shop/a", SHOP)) == ("", "shop/a")


def test_waits_and_messages_are_seen_without_them() -> None:
    short_of = str(awaited_pods_of(leaving("secret/db"), [3]))
    wait = Wait(
        state=WaitState.UNSCHEDULABLE, since=1.0, short_of=short_of, overtaken_by="secret/db"
    )
    assert hidden_wait(wait, EVERYTHING) is wait
    assert "secret" not in str(hidden_wait(wait, SHOP))
    message = scheduling_pb2.ListQueueResponse()
    queued = message.bindings.add(namespace="shop", name="web")
    queued.wait.short_of, queued.wait.overtaken_by = short_of, "secret/db"
    queued.wait.nominated.leaving.add(binding="secret/db", cluster="eu", replicas=3)
    decided = scheduling_pb2.GetBindingResponse()
    decided.binding.spec.graceful_eviction_tasks.add(message="preempted by secret/db")
    decided.decision.reason = "preempted by secret/db: 1 in eu"
    decided.decision.triggers.append("preempted by secret/db")
    decided.decision.trace.facts.add(name="preempted", value="secret/db: 1 in eu, priority 3")
    decided.wait.CopyFrom(queued.wait)
    replayed = scheduling_pb2.ReplayDecisionResponse()
    replayed.first_difference.stored = "preempted by secret/db: 1 in eu"
    for each in (message, decided, replayed):
        before = each.SerializeToString()
        hide_names(each, EVERYTHING)
        assert each.SerializeToString() == before
        hide_names(each, SHOP)
        assert "secret" not in str(each)
        assert HIDDEN in str(each)
