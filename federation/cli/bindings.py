"""Bindings and what is reserved for them: get bindings, describe, and reservation.

Must not interpret what it shows.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import click

from federation.cli import output as show
from federation.cli.arguments import (
    NAMES,
    DurationType,
    ask_on_terminal,
    binding_argument,
    named_binding,
    namespace_option,
    yes_option,
)
from federation.cli.connection import connection
from federation.cli.decisions import outcome_word, placed_share, placed_text, shares_text
from federation.cli.kinds import (
    Change,
    GetKind,
    Request,
    changes_of,
    describe_all,
    kind_command,
)
from federation.cli.lists import ListColumn, ListedKind
from federation.cli.output import Output, output_option
from federation.cli.waiting import wait_facts, waits_text
from federation.codec.written import document_from_message
from federation.model.placement import binding_key
from federation.runtime.terminal import say
from federation.v1 import resource_pb2, scheduling_pb2

if TYPE_CHECKING:
    from federation.client import Client


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedBinding:
    """A binding, and what an answer about it alone says beside it; no list of bindings does.

    ``certificates`` are those of its shares by cluster.
    """

    binding: resource_pb2.ResourceBinding
    decision_id: str = ""
    certificates: Mapping[str, str] = field(default_factory=dict)
    waits: str = ""

    @classmethod
    def of_answer(cls, answer: scheduling_pb2.GetBindingResponse) -> ListedBinding:
        return cls._of(answer, answer.decision.id, answer.decision.promises)

    @classmethod
    def of_event(cls, event: scheduling_pb2.BindingEvent) -> ListedBinding:
        return cls._of(event, event.decision_id, event.promises)

    @classmethod
    def _of(
        cls,
        answer: scheduling_pb2.GetBindingResponse | scheduling_pb2.BindingEvent,
        decision_id: str,
        promises: Iterable[scheduling_pb2.ClusterPromise],
    ) -> ListedBinding:
        return cls(
            binding=answer.binding,
            decision_id=decision_id,
            certificates={promise.cluster: promise.certificate for promise in promises},
            waits=waits_text(answer.wait) if answer.HasField("wait") else "",
        )

    @property
    def name(self) -> str:
        return binding_key(self.binding.metadata.namespace, self.binding.metadata.name)

    def certificate_text(self) -> str:
        """``strict`` where all shares have it, else the one of each cluster."""
        if len(different := {*self.certificates.values()}) <= 1:
            return "".join(different) or "-"
        return ", ".join(f"{name} {word}" for name, word in sorted(self.certificates.items()))

    def news(self) -> dict[str, Any]:
        return {
            "decisionId": self.decision_id,
            "certificates": dict(self.certificates),
            "waits": self.waits,
        }


BINDINGS: Final[ListedKind[ListedBinding]] = ListedKind(
    word="binding",
    named=lambda row: row.name,
    labels=lambda row: row.binding.metadata.labels,
    document=lambda row: document_from_message(row.binding),
    news=ListedBinding.news,
    columns=(
        ListColumn("NAMESPACE", lambda row, _: row.binding.metadata.namespace),
        ListColumn("NAME", lambda row, _: row.binding.metadata.name),
        ListColumn("WORKLOAD", lambda row, _: _workload(row.binding.spec)),
        ListColumn("REPLICAS", lambda row, _: row.binding.spec.replicas),
        ListColumn(
            "PLACED",
            lambda row, _: placed_text(row.binding.spec),
            order=lambda row: placed_share(row.binding.spec),
        ),
        ListColumn("CLUSTERS", lambda row, _: shares_text(row.binding.spec.clusters)),
        ListColumn("CERTIFICATE", lambda row, _: row.certificate_text(), rare=True),
        ListColumn("WAITS", lambda row, _: row.waits or "-", rare=True),
        ListColumn("UID", lambda row, _: row.binding.metadata.uid or "-", wide=True),
        ListColumn(
            "PRIORITY", lambda row, _: row.binding.spec.schedule_priority.priority, wide=True
        ),
    ),
    least=("UID", "PRIORITY", "WORKLOAD", "REPLICAS"),
    last=("CERTIFICATE",),
    prose=("CLUSTERS", "WAITS"),
    empty="No bindings. Schedule a workload: fedctl schedule -f FILE",
)


def _workload(spec: resource_pb2.ResourceBindingSpec) -> str:
    return f"{spec.resource.kind}/{spec.resource.name}"


async def _fetch_bindings(api: Client, request: Request) -> Sequence[ListedBinding]:
    if request.names:
        keys = (name.rpartition("/") for name in request.names)
        return [ListedBinding.of_answer(await api.get_binding(key[0], key[2])) for key in keys]
    if not request.watch:
        return [
            ListedBinding(binding=binding) for binding in await api.list_bindings(request.namespace)
        ]
    # A list has no certificates: the first events of a watch do.
    rows: dict[str, ListedBinding] = {}
    async with aclosing(_watch_bindings(api, request)) as changes:
        async for change in changes:
            if change is None:
                break
            name, row = change
            rows.pop(name, None)
            if row is not None:
                rows[name] = row
    return [*rows.values()]


def _watch_bindings(api: Client, request: Request) -> AsyncGenerator[Change[ListedBinding]]:
    return changes_of(
        api.watch_bindings(request.only_namespace), ListedBinding.of_event, lambda row: row.name
    )


GET_BINDINGS: Final = GetKind(
    plural="bindings",
    listed=BINDINGS,
    words="""Bindings, or those named, and where they run.

    PLACED is how many pods have a cluster, of those that the workload asks for in these clusters.
    With -w, or of bindings that are named, CERTIFICATE is what the promises are worth, and WAITS
    what a binding waits for. With -w -o json they stand beside the object.
    """,
    fetch=_fetch_bindings,
    fetches_names=True,
    watch=_watch_bindings,
    metavar=NAMES,
    names_bindings=True,
    has_namespaces=True,
    examples=[
        "fedctl get bindings -n shop",
        "fedctl get bindings -n shop --watch",
        "fedctl get bindings -o jsonpath='{.items[*].metadata.name}'",
        "fedctl get binding shop/checkout-deployment -o yaml",
        "fedctl get binding/checkout-deployment -n shop",
    ],
)


@click.command("binding", epilog="Example: fedctl describe binding shop/checkout-deployment")
@click.argument("names", metavar=f"{NAMES}...", nargs=-1, required=True)
@namespace_option
@output_option
def describe_binding(names: Sequence[str], namespace: str, output: Output) -> None:
    """Bindings: where each runs, its newest decision, and what is reserved for it."""
    bindings = [named_binding(name, namespace) for name in names]

    async def fetched(api: Client) -> list[scheduling_pb2.GetBindingResponse]:
        return [await api.get_binding(*binding) for binding in bindings]

    keys = (f"binding/{binding_key(*binding)}" for binding in bindings)
    describe_all(output, connection().call(fetched), keys, _print_binding)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldPromise:
    """A promise to a binding in a cluster that is not on nodes yet."""

    cluster: str
    promise: resource_pb2.OutstandingPromise

    def document(self) -> dict[str, Any]:
        return {"cluster": self.cluster, **document_from_message(self.promise)}


RESERVATIONS: Final[ListedKind[HeldPromise]] = ListedKind(
    word="reservation",
    named=lambda row: "/".join(
        filter(None, (row.cluster, row.promise.binding, row.promise.component))
    ),
    document=HeldPromise.document,
    columns=(
        ListColumn("CLUSTER", lambda row, _: row.cluster),
        ListColumn("BINDING", lambda row, _: row.promise.binding),
        ListColumn("COMPONENT", lambda row, _: row.promise.component or "-"),
        ListColumn("OUTSTANDING", lambda row, _: row.promise.replicas),
        ListColumn("STUCK", lambda row, _: row.promise.stuck),
        ListColumn("CERTIFICATE", lambda row, _: row.promise.certificate),
        ListColumn("EACH ASKS FOR", lambda row, _: _request_text(row.promise.requirements)),
    ),
    least=("COMPONENT", "CERTIFICATE"),
    last=("EACH ASKS FOR",),
    prose=("EACH ASKS FOR",),
    empty="Nothing is outstanding.",
)


async def _fetch_promises(api: Client, request: Request) -> Sequence[HeldPromise]:
    cluster, is_stuck = request.options["cluster"], request.options["stuck"]
    return [
        HeldPromise(cluster=member.metadata.name, promise=promise)
        for member in await api.list_clusters(include_packable=True)
        if not cluster or member.metadata.name == cluster
        for promise in member.status.packable.promises
        if promise.stuck or not is_stuck
    ]


GET_RESERVATIONS: Final = GetKind(
    plural="reservations",
    listed=RESERVATIONS,
    words="""What is promised in each cluster and on no node yet, or those named.

    STUCK replicas find no room in the newest report any more. Each keeps one node from new
    promises until it has room again: free some, or release it.
    """,
    fetch=_fetch_promises,
    options=[
        click.option("--cluster", default="", help="Only in this cluster."),
        click.option("--stuck", is_flag=True, help="Only what lost its room in the newest report."),
    ],
    metavar="CLUSTER/NAMESPACE/BINDING",
    has_namespaces=True,
    namespace_of=lambda row: row.promise.binding.rpartition("/")[0],
    empty={"stuck": "Nothing is stuck."},
    examples=["fedctl get reservations --stuck"],
)


@click.group(epilog="Example: fedctl reservation list --stuck")
def reservation() -> None:
    """List, give back and prolong what is reserved."""


reservation.add_command(kind_command(GET_RESERVATIONS, "reservation list"))


@reservation.command(epilog="Example: fedctl reservation release shop/web --cluster member1")
@binding_argument
@click.option("--cluster", "clusters", multiple=True, help="In this cluster; else in all.")
@yes_option
@output_option
def release(
    binding: tuple[str, str], clusters: Sequence[str], output: Output, *, yes: bool
) -> None:
    """Give back what is reserved for a binding.

    What runs keeps running.

    Others may be promised the room at once, also that of replicas that are not on any node yet.
    """
    name = binding_key(*binding)
    where = ", ".join(clusters) or "all clusters"
    ask_on_terminal(f"This ends what {name} holds in {where}: others may get the room.", yes=yes)
    held = connection().call(lambda api: api.release(*binding, clusters=clusters))
    if output.is_document:
        documents = [document_from_message(reservation) for reservation in held]
        names = (f"reservation/{reservation.cluster}/{name}" for reservation in held)
        show.print_document(documents, output, names)
        return
    say(f"binding/{name} released")
    print_reservations(held)


@reservation.command(epilog="Example: fedctl reservation renew shop/web --lease-seconds 3600")
@binding_argument
@click.option(
    "--lease-seconds",
    type=DurationType(is_whole=True),
    help="From now on; else as long as its spec says.",
)
def renew(binding: tuple[str, str], lease_seconds: int | None) -> None:
    """Prolong the lease of a binding's reservations."""
    answer = connection().call(lambda api: api.renew_lease(*binding, lease_seconds=lease_seconds))
    say(f"binding/{binding_key(*binding)} holds until {answer.lease_expire_time.ToJsonString()}")


def print_reservations(held: Iterable[scheduling_pb2.Reservation]) -> None:
    """A row for each cluster and component."""
    columns = ["CLUSTER", "COMPONENT", "REPLICAS", "OUTSTANDING", "BOUND", "WAITING", "FINISHED"]
    columns += ["CERTIFICATE", "DECISION"]
    show.print_table(
        columns,
        [
            (
                reservation.cluster,
                reservation.component or "-",
                reservation.replicas,
                reservation.outstanding,
                reservation.bound,
                reservation.unbound,
                reservation.finished,
                reservation.certificate,
                reservation.decision_id,
            )
            for reservation in held
        ],
        least=["DECISION", "CERTIFICATE", "FINISHED", "WAITING", "BOUND"],
        empty="Nothing was reserved.",
    )


def _request_text(requirements: resource_pb2.ReplicaRequirements) -> str:
    request = requirements.resource_request
    return ", ".join(f"{name} {request[name]}" for name in sorted(request)) or "a pod slot"


def _size(spec: resource_pb2.ResourceBindingSpec) -> tuple[str, object]:
    """Replicas, or what one set of a workload of several components is made of."""
    if spec.components:
        parts = (f"{part.name}={part.replicas}" for part in spec.components)
        return "Components", ", ".join(parts)
    return "Replicas", spec.replicas


def _print_binding(answer: scheduling_pb2.GetBindingResponse) -> None:
    spec, decision = answer.binding.spec, answer.decision
    facts: list[tuple[str, object]] = [
        ("Namespace", answer.binding.metadata.namespace or "-"),
        ("Name", answer.binding.metadata.name),
        ("UID", answer.binding.metadata.uid or "-"),
        ("Workload", _workload(spec)),
        _size(spec),
        ("Clusters", ", ".join(f"{at.name}={at.replicas}" for at in spec.clusters) or "-"),
        ("Decision", f"{decision.id} {outcome_word(decision)}" if decision.id else "none yet"),
    ]
    if decision.reason:
        facts.append(("Reason", decision.reason))
    notes = (f"{promise.cluster}: {promise.note}" for promise in decision.promises if promise.note)
    facts += [("Note", note) for note in notes]
    if answer.HasField("lease_expire_time"):
        facts.append(("Held until", answer.lease_expire_time.ToJsonString()))
    if answer.HasField("wait"):
        facts += wait_facts(answer.wait)
    show.print_facts(facts)
    show.print_heading("Reservations")
    if answer.reservations:
        print_reservations(answer.reservations)
    else:
        say("none")
