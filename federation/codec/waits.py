"""How bindings wait, to messages.

Must not know where waits are kept.
"""

from __future__ import annotations

from typing import Final, Protocol

from federation.codec.bindings import put_targets
from federation.codec.timestamps import timestamp_from_seconds
from federation.model.waiting import Nomination, Wait, WaitState
from federation.v1 import scheduling_pb2

_STATES: Final = {
    WaitState.ACTIVE: scheduling_pb2.WAIT_STATE_ACTIVE,
    WaitState.BACKOFF: scheduling_pb2.WAIT_STATE_BACKOFF,
    WaitState.UNSCHEDULABLE: scheduling_pb2.WAIT_STATE_UNSCHEDULABLE,
    WaitState.GATED: scheduling_pb2.WAIT_STATE_GATED,
}


class QueuedView(Protocol):
    """A binding that waits, and its place among all that do."""

    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def priority(self) -> int: ...
    @property
    def wait(self) -> Wait: ...
    @property
    def position(self) -> int: ...
    @property
    def decision_id(self) -> str: ...


def wait_to_message(wait: Wait, position: int = 0) -> scheduling_pb2.Wait:
    """How it waits; ``position`` 0 where that is not told."""
    message = scheduling_pb2.Wait(
        state=_STATES[wait.state],
        since=timestamp_from_seconds(wait.since),
        attempts=wait.attempts,
        position=position,
        short_of=wait.short_of,
        overtaken_by=wait.overtaken_by,
        gate=wait.gate,
        remainder=wait.remainder,
        gang=wait.gang,
        timed_out=wait.has_timed_out,
    )
    if wait.next_try is not None:
        message.next_try.CopyFrom(timestamp_from_seconds(wait.next_try))
    if wait.overtaken_since is not None:
        message.overtaken_since.CopyFrom(timestamp_from_seconds(wait.overtaken_since))
    if wait.earmarked_since is not None:
        message.earmarked_since.CopyFrom(timestamp_from_seconds(wait.earmarked_since))
    if wait.nominated is not None:
        message.nominated.CopyFrom(_nomination(wait.nominated))
    if wait.times_out is not None:
        message.times_out.CopyFrom(timestamp_from_seconds(wait.times_out))
    return message


def _nomination(nominated: Nomination) -> scheduling_pb2.Nomination:
    message = scheduling_pb2.Nomination(
        since=timestamp_from_seconds(nominated.since),
        until=timestamp_from_seconds(nominated.until),
        leaving=[
            scheduling_pb2.LeavingReplicas(
                binding=each.binding, cluster=each.cluster, replicas=each.replicas
            )
            for each in nominated.leaving
        ],
    )
    put_targets(nominated.shares, message.shares.add)
    return message


def queued_to_message(queued: QueuedView) -> scheduling_pb2.QueuedBinding:
    """A row of the queue."""
    return scheduling_pb2.QueuedBinding(
        namespace=queued.namespace,
        name=queued.name,
        uid=queued.uid,
        priority=queued.priority,
        wait=wait_to_message(queued.wait, queued.position),
        decision_id=queued.decision_id,
    )
