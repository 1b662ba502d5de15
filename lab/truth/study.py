"""One run: members, agents and control planes are started, a stream is decided, pods are made.

Who decides, who binds and who is killed is the plan's; how processes interleave is nobody's.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import NamedTuple, Protocol

from estimator.placement.incoming import SCHEDULER_NAME
from federation.client import Client, Target
from federation.codec.bindings import binding_to_message
from federation.model.cluster import Cluster
from federation.model.errors import PreconditionFailed
from federation.model.placement import Certificate
from federation.scheduler.fleet import Fleet
from federation.v1.estimates_pb2 import ESTIMATE_SOURCE_EXACT
from federation.v1.scheduling_pb2 import OUTCOME_SCHEDULED, ScheduleResponse
from lab.agents import has_reported
from lab.kubeapi.resources import Document
from lab.patience import PATIENCE_SECONDS
from lab.planes import Planes, durable_postgres, running_planes
from lab.servers import free_port
from lab.truth.clusters import STOCK_SCHEDULER, AgentProcess, RealMember, SimulatedMember
from lab.truth.plans import (
    AT_ONCE,
    DELETED_SECONDS,
    MAKING_SECONDS,
    PAUSE_SECONDS,
    REMADE_ONE_IN,
    SHUFFLED_SECONDS,
    Answered,
    Found,
    Line,
    Plan,
    found_of,
    pending_of,
    pods_of,
    shares_of,
)
from lab.truth.streams import Node, Wanted, foreign_pods, nodes_of, stream


class Weakened(NamedTuple):
    """Replicas whose promise is worth less than was asked for, and why."""

    replicas: int
    note: str


class Decider(Protocol):
    async def decide(self, wanted: Wanted) -> tuple[Answered, str]:
        """The answer, and the decision's name."""
        ...


class Reserving:
    """Control planes decide, and keep what they promised: each the workload that comes next."""

    def __init__(self, clients: Sequence[Client], certificate: Certificate | None) -> None:
        self._client = clients[0]
        self._turns = cycle(clients)
        self._certificate = certificate
        # By workload, until they are committed.
        self._previews: dict[str, str] = {}

    async def preview(self, workloads: Sequence[Wanted]) -> None:
        """Show what would be decided about all of them, for ``decide`` to commit."""
        answers = await asyncio.gather(
            *(
                self._client.preview(
                    binding_to_message(wanted.binding(self._certificate)), wait=False
                )
                for wanted in workloads
            )
        )
        for wanted, answer in zip(workloads, answers, strict=True):
            if answer.preview_token and answer.decision.outcome == OUTCOME_SCHEDULED:
                self._previews[wanted.name] = answer.preview_token

    async def decide(self, wanted: Wanted) -> tuple[Answered, str]:
        answer = await self._committed(wanted)
        if answer is None:
            message = binding_to_message(wanted.binding(self._certificate))
            answer = await next(self._turns).schedule(message, wait=False)
        decision = answer.decision
        shares = {}
        if decision.outcome == OUTCOME_SCHEDULED:
            shares = {each.name: each.replicas for each in decision.clusters if each.replicas}
        return Answered(wanted=wanted, shares=shares), decision.id

    async def _committed(self, wanted: Wanted) -> ScheduleResponse | None:
        """The preview, committed; None where there is none, or it is stale."""
        token = self._previews.pop(wanted.name, None)
        if token is None:
            return None
        try:
            return await self._client.commit_preview(token)
        except PreconditionFailed:
            return None

    async def weakened(self, answered: Sequence[Answered]) -> dict[tuple[str, str], Weakened]:
        """What is promised as less than was asked for, by member and workload."""
        found: dict[tuple[str, str], Weakened] = {}
        for each in answered:
            if each.shares and self._certificate is not None:
                stored = await self._client.get_binding(
                    each.wanted.binding(None).namespace, each.wanted.name
                )
                notes = {told.cluster: told.note for told in stored.decision.promises}
                found |= {
                    (reservation.cluster, each.wanted.name): Weakened(
                        replicas=reservation.replicas, note=notes.get(reservation.cluster, "")
                    )
                    for reservation in stored.reservations
                    if reservation.certificate != self._certificate
                }
        return found


class Unreserved:
    """Exact estimates of this moment divide a workload; nobody remembers what was decided.

    As schedulers over clusters do that ask an accurate estimator for every workload anew.
    """

    def __init__(self, client: Client, members: Sequence[str]) -> None:
        self._client = client
        self._fleet = Fleet.of(Cluster(name=name) for name in members)

    async def decide(self, wanted: Wanted) -> tuple[Answered, str]:
        binding = wanted.binding(None)
        asked = binding_to_message(binding).spec.replica_requirements
        table = await self._client.estimate(
            [asked], clusters=self._fleet.names, highest_source=ESTIMATE_SOURCE_EXACT
        )
        (replicas,) = table.replicas
        shares = shares_of(binding, self._fleet, [each or 0 for each in replicas])
        return Answered(wanted=wanted, shares=shares), "none"


POLL_SECONDS = 0.1
FOREIGN_SECONDS = (2.0, 10.0)


class Kubernetes(Protocol):
    """A member's API server and scheduler, simulated or real."""

    def kubeconfig(self, path: Path) -> Path: ...

    def start_scheduler(self, seed: int, extender_url: str = "") -> None: ...

    def create(self, pod: Document) -> None: ...

    def delete(self, pod: Document) -> None: ...

    def nodes_of_pods(self) -> dict[str, str]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Member:
    """A member cluster, and who speaks for it."""

    name: str
    nodes: Sequence[Node]
    kubernetes: Kubernetes
    agent: AgentProcess


def found_by(plan: Plan, folder: Path) -> Found:
    """Run it to its end, everything in new processes with their data in the folder."""
    nodes = {
        f"member{number}": nodes_of(f"member{number}", count, plan.seed)
        for number, count in enumerate(plan.nodes, start=1)
    }
    with (
        durable_postgres(folder) as postgres,
        running_planes(folder, plan.planes, postgres.url) as planes,
        ExitStack() as running,
    ):
        return asyncio.run(_run(plan, nodes, planes, folder, running))


async def _run(
    plan: Plan,
    nodes: dict[str, list[Node]],
    planes: Planes,
    folder: Path,
    running: ExitStack,
) -> Found:
    async with AsyncExitStack() as calling:
        clients = [
            await calling.enter_async_context(
                Client(
                    Target(
                        endpoint=endpoint,
                        token=planes.token,
                        plaintext=True,
                        timeout_seconds=PATIENCE_SECONDS,
                    )
                )
            )
            for endpoint in planes.endpoints
        ]
        client = clients[0]
        members = [
            await _joined(client, plan, name, nodes[name], planes, folder, running)
            for name in nodes
        ]
        study = _Study(plan, members, clients)
        found = await study.run()
    for member in members:
        assert not (said := member.agent.unexpected()), said
    return found


async def _joined(
    client: Client,
    plan: Plan,
    name: str,
    nodes: Sequence[Node],
    planes: Planes,
    folder: Path,
    running: ExitStack,
) -> _Member:
    """A member with its scheduler and its agent, which has reported."""
    kubernetes: Kubernetes
    if plan.programs is None:
        kubernetes = running.enter_context(SimulatedMember(nodes))
    else:
        kubernetes = running.enter_context(RealMember(plan.programs, folder / name, nodes))
    kubeconfig = kubernetes.kubeconfig(folder / f"{name}.kubeconfig")
    token = (await client.create_join_token(name)).token
    placer, extender = _placer(plan.line)
    arguments = (
        *("--cluster", name, "--endpoint", planes.endpoints[0], "--insecure"),
        *("--credential-file", str(folder / f"{name}.json"), "--join-token", token),
        *("--kubeconfig", str(kubeconfig)),
        *placer,
    )
    agent = running.enter_context(AgentProcess(arguments, folder / f"{name}.log"))
    await _await_report(client, name)
    kubernetes.start_scheduler(plan.seed, extender)
    return _Member(name=name, nodes=nodes, kubernetes=kubernetes, agent=agent)


def _placer(line: Line) -> tuple[tuple[str, ...], str]:
    """What the agent is told of placing, and the URL of its extender."""
    if line is Line.BINDER:
        return ("--binder",), ""
    if line is Line.EXTENDER:
        address = f"127.0.0.1:{free_port()}"
        return ("--extender-listen", address), f"http://{address}/scheduler"
    return (), ""


class _Study:
    """A stream on members that are ready."""

    def __init__(self, plan: Plan, members: Sequence[_Member], clients: Sequence[Client]) -> None:
        self._plan = plan
        self._members = {member.name: member for member in members}
        self._clients = clients
        self._choices = random.Random(f"study-{plan.seed}")
        self._scheduler = SCHEDULER_NAME if plan.line is Line.BINDER else STOCK_SCHEDULER
        nodes = [node for member in members for node in member.nodes]
        self._wanted = stream(plan.stream, plan.seed, plan.bindings, nodes)
        self._answered: list[Answered] = []

    async def run(self) -> Found:
        reserving = Reserving(self._clients, self._plan.line.certificate)
        decider: Decider = reserving
        if self._plan.line is Line.NO_RESERVATION:
            decider = Unreserved(self._clients[0], list(self._members))
        async with asyncio.TaskGroup() as group:
            disturbing = group.create_task(self._disturb())
            for workloads in self._batches():
                if self._plan.previewed:
                    await reserving.preview(workloads)
                await asyncio.gather(*(self._ask(decider, each, group) for each in workloads))
                await asyncio.sleep(self._choices.uniform(0, PAUSE_SECONDS))
            await disturbing
        await self._until_quiet()
        return await self._found(reserving)

    def _batches(self) -> Iterator[Sequence[Wanted]]:
        left = iter(self._wanted)
        while True:
            count = len(self._wanted) if self._plan.burst else self._choices.randint(*AT_ONCE)
            workloads = list(itertools.islice(left, count))
            if not workloads:
                return
            yield workloads

    async def _ask(self, decider: Decider, wanted: Wanted, group: asyncio.TaskGroup) -> None:
        answer, decision = await decider.decide(wanted)
        self._answered.append(answer)
        places = [(member, name) for member, names in pods_of(answer).items() for name in names]
        pods = [
            (member, wanted.pod(number, decision, self._scheduler))
            for number, (member, _) in enumerate(places)
        ]
        if self._plan.shuffled:
            for pod in pods:
                seconds = self._choices.uniform(0, SHUFFLED_SECONDS)
                group.create_task(self._make([pod], seconds))
        else:
            group.create_task(self._make(pods, MAKING_SECONDS))

    async def _make(self, pods: Sequence[tuple[str, Document]], seconds: float) -> None:
        await asyncio.sleep(seconds)
        for member, pod in pods:
            kubernetes = self._members[member].kubernetes
            if self._plan.deleted and self._choices.randrange(REMADE_ONE_IN) == 0:
                before = {
                    **pod,
                    "metadata": {**pod["metadata"], "uid": f"before-{pod['metadata']['uid']}"},
                }
                await self._visit(kubernetes, before, DELETED_SECONDS)
            await asyncio.to_thread(kubernetes.create, pod)

    async def _disturb(self) -> None:
        """Foreign pods come and go, agents die, while the stream is decided."""
        kinds = ["foreign"] * self._plan.foreign + ["kill"] * self._plan.kills
        kinds += ["deleted"] * self._plan.deleted
        self._choices.shuffle(kinds)
        pods = foreign_pods(self._plan.seed)
        seconds = self._plan.bindings / sum(AT_ONCE) * PAUSE_SECONDS
        async with asyncio.TaskGroup() as group:
            for kind in kinds:
                await asyncio.sleep(seconds / len(kinds))
                member = self._choices.choice(list(self._members.values()))
                if kind == "kill":
                    await asyncio.to_thread(member.agent.restart)
                else:
                    pod = next(pods)
                    pod["spec"]["schedulerName"] = self._scheduler
                    seconds = self._choices.uniform(*FOREIGN_SECONDS)
                    if kind == "deleted":
                        seconds = self._choices.uniform(0, DELETED_SECONDS)
                    group.create_task(self._visit(member.kubernetes, pod, seconds))

    async def _visit(self, kubernetes: Kubernetes, pod: Document, seconds: float) -> None:
        await asyncio.to_thread(kubernetes.create, pod)
        await asyncio.sleep(seconds)
        await asyncio.to_thread(kubernetes.delete, pod)

    async def _until_quiet(self) -> None:
        """Until all pods have a node, or none has got one for long."""
        before, since = -1, time.monotonic()
        while waiting := len(await asyncio.to_thread(self._pending)):
            if time.monotonic() - since > self._plan.quiet_seconds:
                return
            if waiting != before:
                before, since = waiting, time.monotonic()
            await asyncio.sleep(POLL_SECONDS)

    def _pending(self) -> list[str]:
        return pending_of(self._answered, self._nodes_of_pods())

    def _nodes_of_pods(self) -> dict[str, dict[str, str]]:
        members = self._members.values()
        return {member.name: member.kubernetes.nodes_of_pods() for member in members}

    async def _found(self, reserving: Reserving) -> Found:
        weakened = await reserving.weakened(self._answered)
        return found_of(
            self._answered,
            {name: member.nodes for name, member in self._members.items()},
            self._nodes_of_pods(),
            {key: each.note for key, each in weakened.items()},
            weakened=sum(each.replicas for each in weakened.values()),
            kills=sum(member.agent.kills for member in self._members.values()),
        )


async def _await_report(client: Client, name: str) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            clusters = await client.list_clusters()
            if any(
                each.metadata.name == name and has_reported(each) and each.status.agent.connected
                for each in clusters
            ):
                return
            await asyncio.sleep(POLL_SECONDS)
