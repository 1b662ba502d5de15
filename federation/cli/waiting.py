"""``fedctl wait``: until bindings are placed or deleted.

Must not decide what placed means: `federation.cli.placed` does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import click

from federation.cli.connection import connection
from federation.cli.decisions import placed_share
from federation.cli.names import NAMES, named_binding, namespace_option
from federation.client import Client
from federation.model.errors import DeadlineMissed, NotFound
from federation.model.placement import binding_key
from federation.runtime.terminal import say
from federation.v1 import resource_pb2, scheduling_pb2

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
    bindings = [named_binding(name, namespace) for name in names]
    missing = {binding_key(*binding): binding for binding in bindings}
    to = connection()
    try:
        to.call(lambda api: _wait(api, missing, condition))
    except DeadlineMissed as error:
        late = ", ".join(missing)
        text = f"{late}: not {condition} within {to.timeout_seconds:g} s (--timeout)"
        raise DeadlineMissed(text) from error


async def _wait(api: Client, missing: dict[str, tuple[str, str]], condition: str) -> None:
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
                say(f"binding/{name} {condition}")
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
