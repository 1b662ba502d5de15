"""Gangs: pods of one group get their nodes together, at least as many as the group asks for.

Pure: time is passed in. Must not choose nodes or bind; it says who waits and who goes.

The labels are those of the scheduler-plugins' first coscheduling: a group is its namespace and
name, and ``min-available`` says how many of its pods are worth anything.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from estimator.binder.queue import Order
from estimator.placement.incoming import IncomingPod
from federation.model.readable import plural

NAME_LABEL: Final = "pod-group.scheduling.sigs.k8s.io/name"
MINIMUM_LABEL: Final = "pod-group.scheduling.sigs.k8s.io/min-available"
PERMIT_SECONDS: Final = 10.0

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class GangMembership:
    """The group a pod says it belongs to, and how many it asks for. ``minimum`` is at least 1."""

    group: str
    minimum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """A pod and the node that was chosen for it."""

    pod: IncomingPod
    node: str


class UnreadableGroup(ValueError):
    """The labels name a group but no number of pods."""


@dataclass(slots=True, kw_only=True)
class _Group:
    """A group as its first pod describes it, and its pods: all, those with a node, those that wait.

    A pod counts as bound once it was released to be.
    """

    priority: int
    created_at: float
    minimum: int
    members: set[str] = field(default_factory=set)
    bound: set[str] = field(default_factory=set)
    waiting: dict[str, Assigned] = field(default_factory=dict)
    deadline: float = 0.0


def membership(pod: IncomingPod) -> GangMembership | None:
    """Return None for an ordinary pod: one of the labels is missing. Raises UnreadableGroup."""
    name, minimum = pod.labels.get(NAME_LABEL), pod.labels.get(MINIMUM_LABEL)
    if not name or not minimum:
        return None
    if not _NUMBER.fullmatch(minimum):
        raise UnreadableGroup(f"label {MINIMUM_LABEL} is {minimum!r}, not a number")
    return GangMembership(group=f"{pod.namespace}/{name}", minimum=max(1, int(minimum)))


class Gangs:
    """All groups, by namespace/name. A group is forgotten with the last of its pods."""

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}
        self._group_of: dict[str, str] = {}

    def see(self, pod: IncomingPod) -> None:
        """A pod exists, with or without a node. Raises UnreadableGroup."""
        belongs = membership(pod)
        if belongs is None or self._group_of.get(pod.uid, belongs.group) != belongs.group:
            self.forget(pod.uid)
        if belongs is None:
            return
        group = self._groups.setdefault(
            belongs.group,
            _Group(priority=pod.priority, created_at=pod.created_at, minimum=belongs.minimum),
        )
        group.members.add(pod.uid)
        if pod.node:
            group.bound.add(pod.uid)
        self._group_of[pod.uid] = belongs.group

    def forget(self, uid: str) -> None:
        """The pod is gone, and waits no more."""
        name = self._group_of.pop(uid, None)
        if name is None:
            return
        group = self._groups[name]
        group.members.discard(uid)
        group.bound.discard(uid)
        group.waiting.pop(uid, None)
        if not group.members:
            del self._groups[name]

    def order(self, pod: IncomingPod) -> Order:
        """Return the pod's place in the queue; pods of a group stand together."""
        key = f"{pod.namespace}/{pod.name}"
        name = self._group_of.get(pod.uid)
        if name is None:
            return -pod.priority, pod.created_at, key, key
        group = self._groups[name]
        return -group.priority, group.created_at, name, key

    def others(self, uid: str) -> list[str]:
        """The pods of the same group."""
        name = self._group_of.get(uid)
        members = self._groups[name].members if name is not None else set()
        return [other for other in members if other != uid]

    def why_not_yet(self, pod: IncomingPod) -> str:
        """Why it is no use trying the pod; empty when it is."""
        belongs = membership(pod)
        if belongs is None:
            return ""
        group = self._groups[belongs.group]
        if belongs.minimum != group.minimum:
            pods = plural(group.minimum, "pod")
            return f"group {belongs.group} asks for {pods}, not {belongs.minimum}"
        if pod.priority != group.priority:
            return f"group {belongs.group} has priority {group.priority}, not {pod.priority}"
        if len(group.members) < group.minimum:
            return f"group {belongs.group} has {len(group.members)} of {group.minimum} pods"
        return ""

    def permit(self, pod: IncomingPod, node: str, now: float) -> list[Assigned]:
        """Return the pods to bind now that this one has a node: none while it waits for others."""
        name = self._group_of.get(pod.uid)
        assigned = Assigned(pod=pod, node=node)
        if name is None:
            return [assigned]
        group = self._groups[name]
        if not group.waiting:
            group.deadline = now + PERMIT_SECONDS
        group.waiting[pod.uid] = assigned
        if len(group.bound | group.waiting.keys()) < group.minimum:
            return []
        group.bound |= group.waiting.keys()
        return self._released(group)

    def not_bound(self, uid: str) -> None:
        """The pod was released, and got no node all the same."""
        name = self._group_of.get(uid)
        if name is not None:
            self._groups[name].bound.discard(uid)

    def reject(self, uid: str) -> list[Assigned]:
        """One of a group failed: none of those that wait for it shall be bound."""
        name = self._group_of.get(uid)
        return [] if name is None else self._released(self._groups[name])

    def expired(self, now: float) -> list[Assigned]:
        """Return the pods whose group did not come together in time; they wait no more."""
        groups = self._groups.values()
        late = [group for group in groups if group.waiting and group.deadline <= now]
        return [entry for group in late for entry in self._released(group)]

    def reject_all(self) -> list[Assigned]:
        """Everybody that waits."""
        return [entry for group in self._groups.values() for entry in self._released(group)]

    def next_deadline(self) -> float | None:
        """When ``expired`` has somebody next."""
        deadlines = (group.deadline for group in self._groups.values() if group.waiting)
        return min(deadlines, default=None)

    def _released(self, group: _Group) -> list[Assigned]:
        waiting = list(group.waiting.values())
        group.waiting.clear()
        return waiting
