"""Bindings and what is reserved for them: get bindings, get reservations, describe, release, renew.

Must not interpret what it shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from google.protobuf.message import Message

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
from federation.cli.kinds import GetKind, Request, changes_of
from federation.cli.lists import ListColumn, ListedKind
from federation.cli.output import Output, output_option
from federation.cli.waiting import wait_facts
from federation.codec.written import document_from_message
from federation.model.placement import binding_key
from federation.runtime.terminal import say
from federation.v1 import resource_pb2, scheduling_pb2

if TYPE_CHECKING:
    from federation.client import Client

BINDINGS: Final[ListedKind[resource_pb2.ResourceBinding]] = ListedKind(
    word="binding",
    named=lambda binding: binding_key(binding.metadata.namespace, binding.metadata.name),
    labels=lambda binding: binding.metadata.labels,
    columns=(
        ListColumn("NAMESPACE", lambda binding, _: binding.metadata.namespace),
        ListColumn("NAME", lambda binding, _: binding.metadata.name),
        ListColumn(
            "WORKLOAD",
            lambda binding, _: f"{binding.spec.resource.kind}/{binding.spec.resource.name}",
        ),
        ListColumn("REPLICAS", lambda binding, _: binding.spec.replicas),
        ListColumn(
            "PLACED",
            lambda binding, _: placed_text(binding.spec),
            order=lambda binding: placed_share(binding.spec),
        ),
        ListColumn("CLUSTERS", lambda binding, _: shares_text(binding.spec.clusters)),
        ListColumn("UID", lambda binding, _: binding.metadata.uid or "-", wide=True),
        ListColumn(
            "PRIORITY", lambda binding, _: binding.spec.schedule_priority.priority, wide=True
        ),
    ),
    least=("UID", "PRIORITY", "WORKLOAD", "REPLICAS"),
    prose=("CLUSTERS",),
    empty="No bindings. Schedule a workload: fedctl schedule -f FILE",
)


async def _fetch_bindings(api: Client, request: Request) -> Sequence[resource_pb2.ResourceBinding]:
    if not request.names:
        return await api.list_bindings(request.namespace)
    keys = (name.rpartition("/") for name in request.names)
    return [(await api.get_binding(namespace, name)).binding for namespace, _, name in keys]


GET_BINDINGS: Final = GetKind(
    plural="bindings",
    listed=BINDINGS,
    words="""Bindings, or those named, and where they run.

    PLACED is how many pods have a cluster, of those that the workload asks for in these clusters.
    """,
    fetch=_fetch_bindings,
    fetches_names=True,
    watch=lambda api, request: changes_of(
        api.watch_bindings(request.only_namespace), lambda event: event.binding, BINDINGS.named
    ),
    metavar=NAMES,
    names_bindings=True,
    has_namespaces=True,
    examples=[
        "fedctl get bindings -n shop",
        "fedctl get bindings -o jsonpath='{.items[*].metadata.name}'",
        "fedctl get binding shop/checkout-deployment -o yaml",
        "fedctl get binding/checkout-deployment -n shop",
    ],
)


M = TypeVar("M", bound=Message)


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


def describe_all(
    output: Output, messages: Sequence[M], names: Iterable[str], describe: Callable[[M], None]
) -> None:
    """Print one object after the other; the document of one that is alone is no list."""
    if output.is_document:
        documents = [document_from_message(message) for message in messages]
        show.print_document(documents[0] if len(documents) == 1 else documents, output, names)
        return
    for position, message in enumerate(messages):
        if position:
            say("")
        describe(message)


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


@click.command(epilog="Example: fedctl release shop/checkout-deployment --cluster member1")
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


@click.command(epilog="Example: fedctl renew shop/checkout-deployment --lease-seconds 3600")
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
        ("Workload", f"{spec.resource.kind}/{spec.resource.name}"),
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
