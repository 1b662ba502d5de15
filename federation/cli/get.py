"""The verbs ``get`` and ``describe``, and the one table of kinds that both go by.

Must not import a kind before it is asked for, nor know what one holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any, Final

import click

from federation.cli.arguments import Kinds
from federation.cli.verbs import LazyCommands, Verb

# Entries of the table, by kind.
LISTED: Final[Mapping[str, Verb]] = {
    "audit": Verb("audit", "Changes and refusals, the newest first.", "GET_AUDIT"),
    "bindings": Verb("bindings", "Bindings and where they run.", "GET_BINDINGS"),
    "clusters": Verb("clusters", "Member clusters and what agents report.", "GET_CLUSTERS"),
    "contexts": Verb("contexts", "Saved contexts; the current one is marked.", "GET_CONTEXTS"),
    "decisions": Verb("history", "Decisions, the newest first.", "GET_DECISIONS"),
    "gangs": Verb("waiting", "Bindings placed together or not at all.", "GET_GANGS"),
    "join-tokens": Verb("clusters", "Join tokens that may still be used.", "GET_JOIN_TOKENS"),
    "joiners": Verb("clusters", "Clusters that joined and are held.", "GET_JOINERS"),
    "plans": Verb("plans", "Plans of moves, the newest first.", "GET_PLANS"),
    "queue": Verb("waiting", "Bindings that wait, in their order.", "GET_QUEUE"),
    "quotas": Verb("access", "Quotas and what is held of them.", "GET_QUOTAS"),
    "reservations": Verb("bindings", "Promises that are on no node yet.", "GET_RESERVATIONS"),
    "tokens": Verb("access", "Tokens of people and programs.", "GET_TOKENS"),
}
DESCRIBED: Final[Mapping[str, Verb]] = {
    "binding": Verb("bindings", "Where it runs, and what is reserved.", "describe_binding"),
    "cluster": Verb("clusters", "What its agent reports.", "describe_cluster"),
    "decision": Verb("workloads", "Why a binding is where it is.", "explain"),
    "plan": Verb("plans", "How good it is, and how far its steps are.", "show_plan"),
}
EXAMPLES: Final = {
    "binding": "shop/checkout-deployment",
    "cluster": "member1",
    "decision": "DECISION",
    "plan": "PLAN",
}


class ListedKinds(Kinds, LazyCommands):
    """The verb ``get``."""

    def command_of(self, kind: str) -> click.Command:
        # The list of kinds does not wait for what lists them.
        from federation.cli.kinds import kind_command  # noqa: PLC0415 - see above

        return kind_command(self.loaded(LISTED[kind]))


class DescribedKinds(Kinds, LazyCommands):
    """The verb ``describe``."""

    def command_of(self, kind: str) -> click.Command:
        # Verbs of another name, such as explain, describe a kind too.
        command: Any = copy(self.loaded(DESCRIBED[kind]))
        command.name = kind
        command.epilog = f"Example: fedctl describe {kind} {EXAMPLES[kind]}"
        return command  # type: ignore[no-any-return]  # the table names commands


@click.group(cls=ListedKinds, table=LISTED, epilog="Example: fedctl get clusters -o wide")
def get() -> None:
    """List objects of a kind: clusters, bindings, queue, plans."""


@click.group(cls=DescribedKinds, table=DESCRIBED, epilog="Example: fedctl describe cluster member1")
def describe() -> None:
    """Show one object in full."""
