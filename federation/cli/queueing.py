"""Verbs about what waits for room: get queue, suspend, resume, reschedule.

Must not interpret what it shows.
"""

from __future__ import annotations

import time

import click

from federation.cli import output as show
from federation.cli.connection import connection
from federation.cli.decisions import print_decision
from federation.cli.names import named_binding
from federation.cli.output import Format, output_option
from federation.codec.timestamps import seconds_from_timestamp
from federation.codec.written import document_from_message
from federation.runtime.terminal import say
from federation.v1 import scheduling_pb2

GET_QUEUE_EPILOG = """Examples:

\b
fedctl get queue
fedctl get queue -n shop --priority 100 -o wide
"""
WIDE = ("OVERTAKEN BY", "EARMARKED", "DECISION")
# How short_of begins where others have to leave first.
WAITS_FOR = "waits for "
# What a narrow terminal leaves out, the first one first.
LEAST_OF_QUEUE = ("DECISION", "OVERTAKEN BY", "EARMARKED", "ATTEMPTS", "OVERTAKEN", "REMAINDER")


@click.command("queue", epilog=GET_QUEUE_EPILOG)
@click.option("-n", "--namespace", default="", help="Only this namespace.")
@click.option(
    "--priority", type=click.IntRange(-(2**31), 2**31 - 1), help="Only bindings of this priority."
)
@output_option
def get_queue(namespace: str, priority: int | None, output: Format) -> None:
    """Bindings that wait for room, in the order in which they are tried.

    REMAINDER is how many replicas have no place. OVERTAKEN is for how long what comes later has
    been placed where the binding might have gone; EARMARKED, with -o wide, for how long room is
    kept for it. Those of one GANG are placed together, and have one position.
    """
    queued = connection().call(lambda api: api.list_queue(namespace, priority=priority))
    if output.is_document:
        show.print_document([document_from_message(each) for each in queued], output)
        return
    wide = output is Format.WIDE
    columns = ["POSITION", "NAMESPACE", "NAME", "PRIORITY", "STATE", "WAITS", "REMAINDER"]
    columns += ["ATTEMPTS", "OVERTAKEN", *(WIDE if wide else ())]
    has_gangs = wide or any(each.wait.gang for each in queued)
    columns += ["GANG", "SHORT OF"] if has_gangs else ["SHORT OF"]
    now = time.time()
    show.print_table(
        columns,
        [_row(each, now, wide=wide, has_gangs=has_gangs) for each in queued],
        least=LEAST_OF_QUEUE,
        prose=["SHORT OF"],
        empty="Nothing waits.",
    )


@click.command(epilog="Example: fedctl suspend shop/checkout-deployment")
@click.argument("name", metavar="NAMESPACE/BINDING")
def suspend(name: str) -> None:
    """Keep a binding from being decided, whatever room there is; what runs stays."""
    namespace, binding = named_binding(name)
    connection().call(lambda api: api.suspend_binding(namespace, binding))
    say(f"binding/{name} suspended")


@click.command(epilog="Example: fedctl resume shop/checkout-deployment")
@click.argument("name", metavar="NAMESPACE/BINDING")
def resume(name: str) -> None:
    """Let a suspended binding be decided again; one that waited is tried."""
    namespace, binding = named_binding(name)
    answer = connection().call(lambda api: api.suspend_binding(namespace, binding, resume=True))
    waits = "; it waits until there is room" if answer.HasField("wait") else ""
    say(f"binding/{name} resumed{waits}")


@click.command(epilog="Example: fedctl reschedule shop/checkout-deployment")
@click.argument("name", metavar="NAMESPACE/BINDING")
@output_option
def reschedule(name: str, output: Format) -> None:
    """Divide all replicas of a binding anew, as if nothing had to stay where it is."""
    namespace, binding = named_binding(name)
    answer = connection().call(lambda api: api.reschedule_binding(namespace, binding))
    if output.is_document:
        show.print_document(document_from_message(answer), output)
        return
    print_decision(answer.decision, queued=answer.queued)


def wait_facts(wait: scheduling_pb2.Wait) -> list[tuple[str, object]]:
    """How a binding waits, for people."""
    now = time.time()
    position = f", position {wait.position}" if wait.position else ""
    times = "once" if wait.attempts == 1 else f"{wait.attempts} times"
    state = f"{state_text(wait)} for {_age(wait, now)}{position}, tried {times}"
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


def _row(
    queued: scheduling_pb2.QueuedBinding, now: float, *, wide: bool, has_gangs: bool
) -> tuple[object, ...]:
    wait = queued.wait
    overtaken = ""
    if wait.HasField("overtaken_since"):
        overtaken = show.age(now - (seconds_from_timestamp(wait.overtaken_since) or now))
    earmarked = ""
    if wait.HasField("earmarked_since") or wait.HasField("nominated"):
        is_earmarked = wait.HasField("earmarked_since")
        kept_since = wait.earmarked_since if is_earmarked else wait.nominated.since
        earmarked = show.age(now - (seconds_from_timestamp(kept_since) or now))
    return (
        wait.position or "-",
        queued.namespace,
        queued.name,
        queued.priority,
        state_text(wait),
        _age(wait, now),
        wait.remainder,
        wait.attempts,
        overtaken or "-",
        *((wait.overtaken_by or "-", earmarked or "-", queued.decision_id) if wide else ()),
        *((wait.gang or "-",) if has_gangs else ()),
        f"timed out: {wait.short_of}" if wait.timed_out else wait.short_of,
    )


def _age(wait: scheduling_pb2.Wait, now: float) -> str:
    return show.age(now - (seconds_from_timestamp(wait.since) or now))
