"""Verbs about what waits and what changes: queue, gangs, suspend, resume, reschedule, wait.

Must not interpret what it shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from federation.cli import output as show
from federation.cli.arguments import (
    NAMES,
    binding_argument,
    named_binding,
    namespace_option,
)
from federation.cli.connection import connection
from federation.cli.decisions import placed_share, print_decision
from federation.cli.kinds import GetKind, Request
from federation.cli.lists import ListColumn, ListedKind
from federation.cli.output import Output, output_option, present_time
from federation.codec.timestamps import seconds_from_timestamp
from federation.codec.written import document_from_message
from federation.model.errors import DeadlineMissed, NotFound
from federation.model.placement import binding_key
from federation.runtime.terminal import say
from federation.v1 import resource_pb2, scheduling_pb2

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp

    from federation.client import Client


# How short_of begins where others have to leave first.
WAITS_FOR = "waits for "


def _since(moment: Timestamp, now: float) -> str:
    return show.age(now - (seconds_from_timestamp(moment) or now))


def _age_of(moment: Timestamp) -> float:
    return -(seconds_from_timestamp(moment) or 0.0)


def _overtaken(wait: scheduling_pb2.Wait, now: float) -> str:
    return _since(wait.overtaken_since, now) if wait.HasField("overtaken_since") else "-"


def _earmarked(wait: scheduling_pb2.Wait, now: float) -> str:
    if wait.HasField("earmarked_since"):
        return _since(wait.earmarked_since, now)
    return _since(wait.nominated.since, now) if wait.HasField("nominated") else "-"


def _short_of(wait: scheduling_pb2.Wait) -> str:
    return f"timed out: {wait.short_of}" if wait.timed_out else wait.short_of


QUEUE: Final[ListedKind[scheduling_pb2.QueuedBinding]] = ListedKind(
    word="binding",
    named=lambda queued: binding_key(queued.namespace, queued.name),
    columns=(
        ListColumn("POSITION", lambda queued, _: queued.wait.position or "-"),
        ListColumn("NAMESPACE", lambda queued, _: queued.namespace),
        ListColumn("NAME", lambda queued, _: queued.name),
        ListColumn("PRIORITY", lambda queued, _: queued.priority),
        ListColumn("STATE", lambda queued, _: state_text(queued.wait)),
        ListColumn(
            "WAITS",
            lambda queued, now: _since(queued.wait.since, now),
            order=lambda queued: _age_of(queued.wait.since),
        ),
        ListColumn("REMAINDER", lambda queued, _: queued.wait.remainder),
        ListColumn("ATTEMPTS", lambda queued, _: queued.wait.attempts),
        ListColumn("OVERTAKEN", lambda queued, now: _overtaken(queued.wait, now)),
        ListColumn("OVERTAKEN BY", lambda queued, _: queued.wait.overtaken_by or "-", wide=True),
        ListColumn("EARMARKED", lambda queued, now: _earmarked(queued.wait, now), wide=True),
        ListColumn("DECISION", lambda queued, _: queued.decision_id, wide=True),
        ListColumn("GANG", lambda queued, _: queued.wait.gang or "-", rare=True),
        ListColumn("SHORT OF", lambda queued, _: _short_of(queued.wait)),
    ),
    least=("DECISION", "OVERTAKEN BY", "EARMARKED", "ATTEMPTS", "OVERTAKEN", "REMAINDER"),
    last=("PRIORITY", "STATE", "POSITION"),
    prose=("SHORT OF",),
    empty="Nothing waits.",
)


GET_QUEUE: Final = GetKind(
    plural="queue",
    listed=QUEUE,
    words="""Bindings that wait for room, in the order in which they are tried, or those named.

    REMAINDER is how many replicas have no place. OVERTAKEN is for how long what comes later has
    been placed where the binding might have gone; EARMARKED, with -o wide, for how long room is
    kept for it. Those of one GANG are placed together, and have one position.
    """,
    fetch=lambda api, request: api.list_queue(
        request.only_namespace, priority=request.options["priority"]
    ),
    options=[
        click.option(
            "--priority",
            type=click.IntRange(-(2**31), 2**31 - 1),
            help="Only bindings of this priority.",
        )
    ],
    metavar=NAMES,
    names_bindings=True,
    has_namespaces=True,
    examples=["fedctl get queue", "fedctl get queue -n shop --priority 100 -o wide"],
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGang:
    """Bindings of a namespace that are placed together or not at all, and how they wait."""

    namespace: str
    name: str
    size: int
    members: Sequence[resource_pb2.ResourceBinding]
    waits: Sequence[scheduling_pb2.Wait]

    @property
    def placed(self) -> int:
        return sum(placed_share(member.spec) >= 1 for member in self.members)

    @property
    def wait(self) -> scheduling_pb2.Wait | None:
        return self.waits[0] if self.waits else None

    def document(self) -> dict[str, Any]:
        return {
            "namespace": self.namespace,
            "name": self.name,
            "size": self.size,
            "bindings": [member.metadata.name for member in self.members],
            "placed": self.placed,
            "waiting": len(self.waits),
            **({"wait": document_from_message(self.wait)} if self.wait else {}),
        }


def _times_out(gang: ListedGang, now: float) -> str:
    if gang.wait is None or not gang.wait.HasField("times_out"):
        return "-"
    if gang.wait.timed_out:
        return "timed out"
    return f"in {show.age((seconds_from_timestamp(gang.wait.times_out) or now) - now)}"


GANGS: Final[ListedKind[ListedGang]] = ListedKind(
    word="gang",
    named=lambda gang: binding_key(gang.namespace, gang.name),
    document=ListedGang.document,
    columns=(
        ListColumn("NAMESPACE", lambda gang, _: gang.namespace),
        ListColumn("NAME", lambda gang, _: gang.name),
        ListColumn("SIZE", lambda gang, _: gang.size),
        ListColumn("STORED", lambda gang, _: len(gang.members)),
        ListColumn("PLACED", lambda gang, _: gang.placed),
        ListColumn("WAITS", lambda gang, now: _since(gang.wait.since, now) if gang.wait else "-"),
        ListColumn("TIMES OUT", _times_out),
        ListColumn("SHORT OF", lambda gang, _: gang.wait.short_of if gang.wait else "-"),
    ),
    least=("STORED", "TIMES OUT", "SIZE"),
    prose=("SHORT OF",),
    empty="No gangs.",
)


async def _fetch_gangs(api: Client, request: Request) -> Sequence[ListedGang]:
    bindings = await api.list_bindings(request.only_namespace)
    queue = await api.list_queue(request.only_namespace)
    waits = {(queued.namespace, queued.name): queued.wait for queued in queue}
    gangs: dict[tuple[str, str], list[resource_pb2.ResourceBinding]] = {}
    for binding in bindings:
        if binding.spec.HasField("gang"):
            gang = binding.metadata.namespace, binding.spec.gang.name
            gangs.setdefault(gang, []).append(binding)
    return [
        ListedGang(
            namespace=namespace,
            name=name,
            size=members[0].spec.gang.size,
            members=members,
            waits=[
                waits[key]
                for member in members
                if (key := (namespace, member.metadata.name)) in waits
            ],
        )
        for (namespace, name), members in sorted(gangs.items())
    ]


GET_GANGS: Final = GetKind(
    plural="gangs",
    listed=GANGS,
    words="""Gangs, or those named: bindings that are placed together or not at all.

    STORED is how many of its SIZE bindings the control plane has, and PLACED how many have a
    cluster for all that they ask for.
    """,
    fetch=_fetch_gangs,
    metavar="NAMESPACE/GANG",
    names_bindings=True,
    has_namespaces=True,
    examples=["fedctl get gangs", "fedctl get gang training -n ml"],
)


@click.command(epilog="Example: fedctl suspend shop/checkout-deployment")
@binding_argument
def suspend(binding: tuple[str, str]) -> None:
    """Keep a binding from being decided; what runs stays.

    It is not decided, whatever room there is, until it is resumed.
    """
    connection().call(lambda api: api.suspend_binding(*binding))
    say(f"binding/{binding_key(*binding)} suspended")


@click.command(epilog="Example: fedctl resume shop/checkout-deployment")
@binding_argument
def resume(binding: tuple[str, str]) -> None:
    """Let a suspended binding be decided again.

    A binding that waited is tried at once.
    """
    answer = connection().call(lambda api: api.suspend_binding(*binding, resume=True))
    waits = "; it waits until there is room" if answer.HasField("wait") else ""
    say(f"binding/{binding_key(*binding)} resumed{waits}")


@click.command(epilog="Example: fedctl reschedule shop/checkout-deployment")
@binding_argument
@output_option
def reschedule(binding: tuple[str, str], output: Output) -> None:
    """Divide all replicas of a binding anew.

    No replica has to stay where it is.
    """
    answer = connection().call(lambda api: api.reschedule_binding(*binding))
    if output.is_document:
        show.print_document(
            document_from_message(answer), output, [f"binding/{binding_key(*binding)}"]
        )
        return
    print_decision(answer.decision, queued=answer.queued)


def wait_facts(wait: scheduling_pb2.Wait) -> list[tuple[str, object]]:
    """How a binding waits, for people."""
    now = present_time()
    position = f", position {wait.position}" if wait.position else ""
    times = "once" if wait.attempts == 1 else f"{wait.attempts} times"
    state = f"{state_text(wait)} for {_since(wait.since, now)}{position}, tried {times}"
    facts: list[tuple[str, object]] = [("Waits", state)]
    if wait.remainder:
        facts.append(("Not placed", wait.remainder))
    if wait.gang:
        over = f", timed out at {wait.times_out.ToJsonString()}" if wait.timed_out else ""
        facts.append(("Gang", f"{wait.gang}{over}"))
    if wait.short_of.startswith(WAITS_FOR):
        facts.append(("Waits for", wait.short_of.removeprefix(WAITS_FOR)))
    elif wait.short_of:
        facts.append(("Short of", wait.short_of))
    if wait.HasField("next_try"):
        facts.append(("Next try", wait.next_try.ToJsonString()))
    if wait.HasField("overtaken_since"):
        since = wait.overtaken_since.ToJsonString()
        facts.append(("Overtaken", f"since {since}, first by {wait.overtaken_by}"))
    if wait.HasField("earmarked_since"):
        facts.append(("Room is kept", f"since {wait.earmarked_since.ToJsonString()}"))
    if wait.HasField("nominated"):
        shares = ", ".join(f"{share.replicas} in {share.name}" for share in wait.nominated.shares)
        until = wait.nominated.until.ToJsonString()
        facts.append(("Room is kept", f"for {shares}, until {until}"))
    return facts


def lack_text(wait: scheduling_pb2.Wait) -> str:
    """The lack that a binding waits for, as the rest of a sentence; empty where it has none."""
    if not wait.short_of or wait.short_of.startswith(WAITS_FOR):
        return wait.short_of
    return f"short of {wait.short_of}"


def waits_text(wait: scheduling_pb2.Wait) -> str:
    """``backoff, short of cpu in 1 cluster``."""
    over = "timed out" if wait.timed_out else ""
    return ", ".join(filter(None, (state_text(wait), over, lack_text(wait))))


def state_text(wait: scheduling_pb2.Wait) -> str:
    """``unschedulable``, or ``gated: suspended``."""
    name = scheduling_pb2.WaitState.Name(wait.state).removeprefix("WAIT_STATE_").lower()
    return f"{name}: {wait.gate}" if wait.gate else name


PLACED, DELETED = "placed", "deleted"
WAIT_EPILOG: Final = """Examples:

\b
fedctl wait shop/checkout-deployment --for=placed
fedctl wait binding/checkout-deployment -n shop --for=deleted --timeout 5m
"""


@click.command(epilog=WAIT_EPILOG)
@click.argument("names", metavar=f"{NAMES}...", nargs=-1, required=True)
@click.option(
    "--for",
    "condition",
    type=click.Choice([PLACED, DELETED]),
    required=True,
    help="Placed: all that a binding asks for has a cluster.",
)
@namespace_option
def wait(names: Sequence[str], condition: str, namespace: str) -> None:
    """Wait until bindings are placed or deleted.

    A line is printed for each binding as it gets there. --timeout says how long to wait.
    """
    wait_for([named_binding(name, namespace) for name in names], condition)


def wait_for(bindings: Iterable[tuple[str, str]], condition: str, *, err: bool = False) -> None:
    """Print a line for each binding as it gets there. Raises DeadlineMissed with those missing."""
    missing = {binding_key(*binding): binding for binding in bindings}
    to = connection()
    try:
        to.call(lambda api: _wait(api, missing, condition, err=err))
    except DeadlineMissed as error:
        late = ", ".join(missing)
        text = f"{late}: not {condition} within {to.timeout_seconds:g} s (--timeout)"
        raise DeadlineMissed(text) from error


async def _wait(
    api: Client, missing: dict[str, tuple[str, str]], condition: str, *, err: bool
) -> None:
    """Until none is missing; a binding that is there is taken out."""
    namespaces = {namespace for namespace, _ in missing.values()}
    watch = api.watch_bindings(namespaces.pop() if len(namespaces) == 1 else "")
    is_fresh = False
    try:
        async for message in watch:
            if message.relist:
                is_fresh = True
                continue
            met = {_name_of(event) for event in message.events if _is_met(event, condition)}
            if is_fresh:
                # No event tells of what went away before the watch began, or began anew.
                met |= await _settled(api, missing.values(), condition)
                is_fresh = False
            for name in sorted(met & missing.keys()):
                del missing[name]
                say(f"binding/{name} {condition}", err=err)
            if not missing:
                return
    finally:
        await watch.aclose()


async def _settled(api: Client, bindings: Iterable[tuple[str, str]], condition: str) -> set[str]:
    """The bindings for which there is nothing to wait any more. Raises NotFound."""
    settled = set()
    for binding in bindings:
        try:
            answer = await api.get_binding(*binding)
        except NotFound:
            if condition != DELETED:
                raise
            is_settled = True
        else:
            is_settled = condition == PLACED and placed_share(answer.binding.spec) >= 1
        if is_settled:
            settled.add(binding_key(*binding))
    return settled


def _is_met(event: scheduling_pb2.BindingEvent, condition: str) -> bool:
    is_deleted = event.type == resource_pb2.EVENT_TYPE_DELETED
    if condition == DELETED or is_deleted:
        return condition == DELETED and is_deleted
    is_bookmark = event.type == resource_pb2.EVENT_TYPE_BOOKMARK
    return not is_bookmark and placed_share(event.binding.spec) >= 1


def _name_of(event: scheduling_pb2.BindingEvent) -> str:
    meta = event.binding.metadata
    return binding_key(meta.namespace, meta.name)


@click.command(add_help_option=False, context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1)
def watch(words: Sequence[str]) -> None:
    """The verb of earlier releases, whose new form this says."""
    kind = " ".join(words) or "bindings"
    raise click.UsageError(f"fedctl watch is part of get now: fedctl get {kind} --watch")
