"""Order, backoff, and being woken by change: the queue by itself, with time told to it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from estimator.binder.queue import (
    MAX_BACKOFF_SECONDS,
    UNSCHEDULABLE_SECONDS,
    Order,
    QueueState,
    SchedulingQueue,
)
from estimator.placement.incoming import IncomingPod
from tests.pods import incoming


def order(pod: IncomingPod) -> Order:
    return -pod.priority, pod.created_at, pod.name, pod.name


def queue_of(*pods: IncomingPod) -> SchedulingQueue:
    queue = SchedulingQueue()
    for pod in pods:
        queue.put(pod, order(pod))
    return queue


def popped(queue: SchedulingQueue, now: float) -> list[str]:
    names = []
    while (pod := queue.pop(now)) is not None:
        names.append(pod.name)
    return names


def test_change_before_the_backoff_is_over_makes_it_back_off() -> None:
    queue = queue_of(incoming("a"))
    popped(queue, 0.0)
    queue.failed("a-uid", 0.0)
    queue.cluster_changed(0.5)
    assert queue.place_of("a-uid") is QueueState.BACKING_OFF
    assert queue.next_time(0.5) == 1.0
    assert popped(queue, 0.9) == []
    assert popped(queue, 1.0) == ["a"]


def test_change_while_in_hand_is_not_lost() -> None:
    queue = queue_of(incoming("a"))
    popped(queue, 0.0)
    queue.cluster_changed(0.0)
    queue.failed("a-uid", 0.0)
    assert queue.place_of("a-uid") is QueueState.BACKING_OFF


def test_backoff_doubles_up_to_its_cap() -> None:
    queue, now, waits = queue_of(incoming("a")), 0.0, []
    for _ in range(6):
        popped(queue, now)
        queue.postpone("a-uid", now)
        due = queue.next_time(now)
        assert due is not None
        waits.append(due - now)
        now = due
    assert waits == [1.0, 2.0, 4.0, 8.0, MAX_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS]


def test_nothing_waits_for_ever() -> None:
    queue = queue_of(incoming("a"))
    popped(queue, 0.0)
    queue.failed("a-uid", 0.0)
    assert queue.next_time(1.0) == UNSCHEDULABLE_SECONDS
    assert popped(queue, UNSCHEDULABLE_SECONDS - 0.1) == []
    assert popped(queue, UNSCHEDULABLE_SECONDS) == ["a"]


def test_changed_pod_is_tried_again_and_the_same_one_is_not() -> None:
    queue = queue_of(incoming("a"))
    popped(queue, 0.0)
    queue.failed("a-uid", 0.0)
    same = incoming("a")
    queue.put(same, order(same))
    assert popped(queue, 0.0) == []
    changed = incoming("a", priority=1)
    queue.put(changed, order(changed))
    assert queue.pop(0.0) == changed


def test_pod_in_hand_is_not_handed_out_twice() -> None:
    queue = queue_of(incoming("a"))
    popped(queue, 0.0)
    changed = incoming("a", priority=1)
    queue.put(changed, order(changed))
    assert queue.pop(0.0) is None
    queue.postpone("a-uid", 0.0)
    assert queue.pop(1.0) == changed


def test_pods_of_a_group_may_be_reconsidered_alone() -> None:
    queue = queue_of(incoming("a"), incoming("b"))
    popped(queue, 0.0)
    queue.failed("a-uid", 0.0)
    queue.failed("b-uid", 0.0)
    queue.reconsider(["b-uid", "unheard-of"])
    assert popped(queue, 0.0) == ["b"]
    assert queue.waits_for_change()


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 3)), max_size=30))
def test_pop_is_sorted(pods: list[tuple[int, int]]) -> None:
    made = [
        incoming(f"p{number:02}", priority=priority, created_at=float(created_at))
        for number, (priority, created_at) in enumerate(pods)
    ]
    expected = [pod.name for pod in sorted(made, key=order)]
    assert popped(queue_of(*made), now=0.0) == expected


class QueueMachine(RuleBasedStateMachine):
    """Whatever happens, every pod is in one place, and the time promised is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = SchedulingQueue()
        self.now = 0.0
        self.present: set[str] = set()
        self.in_hand: set[str] = set()

    @rule(number=st.integers(0, 5), priority=st.integers(0, 2))
    def put(self, number: int, priority: int) -> None:
        pod = incoming(f"p{number}", priority=priority)
        self.queue.put(pod, order(pod))
        self.present.add(pod.uid)

    @rule(number=st.integers(0, 5))
    def remove(self, number: int) -> None:
        self.queue.remove(f"p{number}-uid")
        self.present.discard(f"p{number}-uid")
        self.in_hand.discard(f"p{number}-uid")

    @rule()
    def pop(self) -> None:
        due = self.queue.next_time(self.now)
        pod = self.queue.pop(self.now)
        assert (pod is not None) == (due is not None and due <= self.now)
        if pod is not None:
            assert pod.uid not in self.in_hand
            self.in_hand.add(pod.uid)

    @precondition(lambda self: self.in_hand)
    @rule(is_postponed=st.booleans())
    def fail(self, *, is_postponed: bool) -> None:
        uid = self.in_hand.pop()
        (self.queue.postpone if is_postponed else self.queue.failed)(uid, self.now)

    @rule()
    def change(self) -> None:
        self.queue.cluster_changed(self.now)
        assert not self.queue.waits_for_change()

    @rule(seconds=st.sampled_from([0.5, 3.0, 400.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def every_pod_is_somewhere(self) -> None:
        assert len(self.queue) == len(self.present)
        in_hand = {uid for uid in self.present if self.queue.place_of(uid) is QueueState.IN_HAND}
        assert in_hand == self.in_hand


TestQueueMachine = QueueMachine.TestCase
