"""Verbs about what waits for room: get queue, suspend, resume, reschedule.

Must not interpret what it shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from federation.cli import output as show
from federation.cli.connection import connection
from federation.cli.decisions import placed_share, print_decision
from federation.cli.kinds import GetKind, Request
from federation.cli.lists import ListColumn, ListedKind
from federation.cli.names import NAMES, binding_argument
from federation.cli.output import Output, output_option, present_time
from federation.client import Client
from federation.codec.timestamps import seconds_from_timestamp
from federation.codec.written import document_from_message
from federation.model.placement import binding_key
from federation.runtime.terminal import say
from federation.v1 import resource_pb2, scheduling_pb2

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp

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
    named=lambda each: binding_key(each.namespace, each.name),
    columns=(
        ListColumn("POSITION", lambda each, _: each.wait.position or "-"),
        ListColumn("NAMESPACE", lambda each, _: each.namespace),
        ListColumn("NAME", lambda each, _: each.name),
        ListColumn("PRIORITY", lambda each, _: each.priority),
        ListColumn("STATE", lambda each, _: state_text(each.wait)),
        ListColumn(
            "WAITS",
            lambda each, now: _since(each.wait.since, now),
            order=lambda each: _age_of(each.wait.since),
        ),
        ListColumn("REMAINDER", lambda each, _: each.wait.remainder),
        ListColumn("ATTEMPTS", lambda each, _: each.wait.attempts),
        ListColumn("OVERTAKEN", lambda each, now: _overtaken(each.wait, now)),
        ListColumn("OVERTAKEN BY", lambda each, _: each.wait.overtaken_by or "-", wide=True),
        ListColumn("EARMARKED", lambda each, now: _earmarked(each.wait, now), wide=True),
        ListColumn("DECISION", lambda each, _: each.decision_id, wide=True),
        ListColumn("GANG", lambda each, _: each.wait.gang or "-", rare=True),
        ListColumn("SHORT OF", lambda each, _: _short_of(each.wait)),
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
        kept = ", ".join(f"{each.replicas} in {each.name}" for each in wait.nominated.shares)
        until = wait.nominated.until.ToJsonString()
        facts.append(("Room is kept", f"for {kept}, until {until}"))
    return facts


def lack_text(wait: scheduling_pb2.Wait) -> str:
    """What it is short of, or for whom it waits, as the rest of a sentence; "" where nothing."""
    if not wait.short_of or wait.short_of.startswith(WAITS_FOR):
        return wait.short_of
    return f"short of {wait.short_of}"


def state_text(wait: scheduling_pb2.Wait) -> str:
    """``unschedulable``, or ``gated: suspended``."""
    name = scheduling_pb2.WaitState.Name(wait.state).removeprefix("WAIT_STATE_").lower()
    return f"{name}: {wait.gate}" if wait.gate else name
