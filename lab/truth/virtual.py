"""One run in memory and on virtual time: the same rules, and the same numbers again.

No processes, no database: decisions, reports and the simulated kube-scheduler follow each other as
they do in the study, at times that a seed gives.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import msgspec
import numpy as np

from estimator.cluster.label_use import LabelUse
from estimator.estimation.pooling import Pooling
from estimator.kube.dump import read_dump
from estimator.placement.incoming import IncomingPod
from estimator.snapshot import NodeTable, Snapshot, columns_of
from federation.capacity.cluster_room import ReportId
from federation.model.echoes import PodOrigin, PodSighting, SightingState
from federation.model.placement import Certificate
from federation.model.resources import PODS
from lab.promising import echoes_of
from lab.simulator import ControlPlane, Decided, Shown
from lab.simulator_cluster import Snapshot as Report
from lab.truth.kube_scheduler import KubeScheduler, Timeline
from lab.truth.plans import (
    AT_ONCE,
    MAKING_SECONDS,
    PAUSE_SECONDS,
    SHUFFLED_SECONDS,
    Answered,
    Found,
    Plan,
    found_of,
    pods_of,
)
from lab.truth.streams import CPU, MEMORY, Amounts, Node, Wanted, documents_of, nodes_of, stream

REPORT_SECONDS = 1.0
CELLS = 256


@dataclass(slots=True, kw_only=True, eq=False)
class VirtualMember:
    """A member's nodes, its scheduler, and what its agent reports of them."""

    name: str
    nodes: Sequence[Node]
    timeline: Timeline
    seed: int
    scheduler: KubeScheduler = field(init=False)
    made: dict[str, Wanted] = field(default_factory=dict)
    bound: dict[str, str] = field(default_factory=dict)
    sequence: int = 0
    _label_use: LabelUse = field(default_factory=LabelUse)
    _pooling: Pooling = field(default_factory=lambda: Pooling(CELLS))
    _table: NodeTable = field(init=False)

    def __post_init__(self) -> None:
        documents = list(documents_of(self.nodes))
        items = [each for each in documents if each["kind"] == "Node"]
        content = msgspec.json.encode({"kind": "List", "apiVersion": "v1", "items": items})
        nodes = read_dump(content).nodes
        self._table = NodeTable.of(nodes)
        self.scheduler = KubeScheduler(
            nodes=nodes,
            timeline=self.timeline,
            bind=self._bind,
            random=np.random.default_rng(self.seed),
        )
        for document in documents:
            if document["kind"] == "Pod":
                self.scheduler.put_pod(document)

    def make(self, wanted: Wanted, number: int) -> None:
        pod = wanted.pod(number, "decision", "default-scheduler")
        self.made[pod["metadata"]["name"]] = wanted
        self.scheduler.put_pod(pod)

    def asked(self, workload: Wanted) -> None:
        """Tell nodes apart by the labels that a request names from the next report on, as agents
        do that were asked about it.
        """
        self._label_use.asked([workload.node_claim])

    def report(self, interest_version: int, control: ControlPlane) -> Report:
        self.sequence += 1
        requested = {node.name: dict.fromkeys((CPU, MEMORY, PODS), 0) for node in self._table.nodes}
        for node in self.nodes:
            for pod in node.running:
                _add(requested[node.name], pod)
        for pod_name, node_name in self.bound.items():
            _add(requested[node_name], self.made[pod_name].request)
        columns = columns_of([requested[node.name] for node in self._table.nodes])
        snapshot = Snapshot(table=self._table, requested=columns)
        counted_n = np.ones(len(self._table), dtype=np.bool_)
        pools = self._pooling.pools(snapshot, counted_n, self._label_use.choose())
        sightings = [
            PodSighting(
                state=SightingState.BOUND if name in self.bound else SightingState.UNBOUND,
                request=wanted.request,
                origin=PodOrigin.of(wanted.pod(0, "", "")["metadata"]["labels"]),
            )
            for name, wanted in self.made.items()
        ]
        return Report(
            report=ReportId(1, self.sequence),
            interest_version=interest_version,
            pools=pools,
            echoes=echoes_of(control.interests(self.name), sightings),
        )

    def _bind(self, pod: IncomingPod, node: str) -> None:
        self.bound[pod.name] = node


def _add(requested: dict[str, int], pod: Amounts) -> None:
    requested[CPU] += pod[CPU]
    requested[MEMORY] += pod[MEMORY]
    requested[PODS] += 1


class Decider(Protocol):
    """Who decides in a study. Learns of members only when they report."""

    def reported(
        self, members: Mapping[str, VirtualMember], answered: Sequence[Answered]
    ) -> None: ...

    def decide(self, wanted: Wanted, *, looks_again: bool) -> Mapping[str, int] | None:
        """Replicas by member, None where it is refused."""
        ...


class ByTheRules:
    """The control plane decides."""

    def __init__(self, names: tuple[str, ...], certificate: Certificate | None) -> None:
        self._control = ControlPlane(names)
        self._certificate = certificate

    def reported(self, members: Mapping[str, VirtualMember], answered: Sequence[Answered]) -> None:
        del answered
        for name, member in members.items():
            version = self._control.ledger(name).interest_version
            self._control.accept(name, member.report(version, self._control))

    def decide(self, wanted: Wanted, *, looks_again: bool) -> Mapping[str, int] | None:
        decided = self._control.submit(wanted.binding(self._certificate), looks_again=looks_again)
        return None if decided is None else _shares(decided)

    def promise(
        self, workloads: Sequence[Wanted], plan: Plan
    ) -> Sequence[Mapping[str, int] | None]:
        """Replicas by member of those that are asked for at once and were promised as they were
        previewed, or by another control plane; None of those that are to be decided in turn.
        """
        bindings = [wanted.binding(self._certificate) for wanted in workloads]
        shown: list[Shown | None] = [None] * len(bindings)
        if plan.previewed:
            shown = [self._control.preview(each) for each in bindings]
        elif plan.planes > 1:
            # The other one decides on what both knew, and commits after this one.
            other = self._control.branch()
            for place in range(1, len(bindings), 2):
                if (there := other.submit(bindings[place])) is not None:
                    shown[place] = there.shown
        shares: list[Mapping[str, int] | None] = [None] * len(bindings)
        for place in range(0, len(bindings), 2) if plan.planes > 1 else ():
            shares[place] = self.decide(workloads[place], looks_again=False)
        for place, each in enumerate(shown):
            decided = None if each is None else self._control.commit(each)
            if decided is not None:
                shares[place] = _shares(decided)
        return shares


def _shares(decided: Decided) -> Mapping[str, int]:
    return {each.name: each.replicas for each in decided.binding.clusters if each.replicas}


def found_in_memory(plan: Plan) -> Found:
    """What comes of the plan."""
    return VirtualStudy(plan).run()


class VirtualStudy:
    """A stream of bindings on members of a seed; nobody is killed, and no pods come but those that
    were promised. ``on_refused`` is told what is refused, fresh reports or not.
    """

    def __init__(
        self,
        plan: Plan,
        decider: Decider | None = None,
        on_refused: Callable[[Wanted], None] | None = None,
    ) -> None:
        self._plan = plan
        self._timeline = Timeline()
        self._choices = random.Random(f"study-{plan.seed}")
        names = tuple(f"member{number}" for number in range(1, len(plan.nodes) + 1))
        self._decider = decider or ByTheRules(names, plan.line.certificate)
        self._on_refused = on_refused
        self.members = {
            name: VirtualMember(
                name=name,
                nodes=nodes_of(name, count, plan.seed),
                timeline=self._timeline,
                seed=plan.seed,
            )
            for name, count in zip(names, plan.nodes, strict=True)
        }
        self.answered: list[Answered] = []

    def run(self) -> Found:
        nodes = [node for member in self.members.values() for node in member.nodes]
        left = stream(self._plan.stream, self._plan.seed, self._plan.bindings, nodes)
        self._report()
        at = 0.0
        while left:
            count = len(left) if self._plan.burst else self._choices.randint(*AT_ONCE)
            workloads, left = left[:count], left[count:]
            self._timeline.at(at, partial(self._decide, workloads))
            at += self._choices.uniform(0, PAUSE_SECONDS)
        ticks = int(at / REPORT_SECONDS) + 1
        for tick in range(1, ticks):
            self._timeline.at(tick * REPORT_SECONDS, self._report)
        self._timeline.run(at + 120.0)
        return self._found()

    def _report(self) -> None:
        self._decider.reported(self.members, self.answered)

    def _decide(self, workloads: Sequence[Wanted]) -> None:
        promised: Sequence[Mapping[str, int] | None] = [None] * len(workloads)
        if isinstance(self._decider, ByTheRules):
            promised = self._decider.promise(workloads, self._plan)
        for place in self._in_order_of_answers(promised):
            wanted = workloads[place]
            shares = promised[place] or self._decider.decide(wanted, looks_again=False)
            if shares is None:
                # Before it refuses, a control plane asks for fresh reports, and looks again.
                self._report()
                shares = self._decider.decide(wanted, looks_again=True)
            if shares is None and self._on_refused is not None:
                self._on_refused(wanted)
            for member in self.members.values():
                member.asked(wanted)
            answer = Answered(wanted=wanted, shares=shares or {})
            self.answered.append(answer)
            number = 0
            for member, names in pods_of(answer).items():
                for _ in names:
                    seconds = MAKING_SECONDS
                    if self._plan.shuffled:
                        seconds = self._choices.uniform(0, SHUFFLED_SECONDS)
                    make = self.members[member].make
                    self._timeline.after(seconds, partial(make, wanted, number))
                    number += 1

    def _in_order_of_answers(self, promised: Sequence[Mapping[str, int] | None]) -> Sequence[int]:
        """The places of what is asked for at once, as callers are answered, and make pods then:
        commits of previews before what is asked for anew, one control plane before the other.
        """
        places = list(range(len(promised)))
        if self._plan.planes > 1:
            places.sort(key=lambda place: place % 2)
        if self._plan.previewed:
            places.sort(key=lambda place: promised[place] is None)
        return places

    def _found(self) -> Found:
        bound = {name: dict(member.bound) for name, member in self.members.items()}
        nodes = {name: member.nodes for name, member in self.members.items()}
        return found_of(self.answered, nodes, bound)
