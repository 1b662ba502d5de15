"""The verbs of ``fedctl`` in their groups, how one is loaded, and get, describe and completion.

Must not import a verb or a kind before it is asked for, nor ask a control plane: a shell waits.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping
from copy import copy
from importlib import import_module
from types import ModuleType
from typing import Any, Final, NamedTuple

import click

from federation.cli.arguments import Kinds
from federation.runtime.terminal import say_lines


class Verb(NamedTuple):
    """The module that has a verb, what it is for in one line, and its name in the module."""

    module: str
    words: str
    name: str = ""


class LazyCommands(click.Group):
    """A group of commands that are imported when they are called, and not to be listed."""

    def __init__(self, *args: Any, table: Mapping[str, Verb], **options: Any) -> None:
        super().__init__(*args, **options)
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(self._table)

    def loaded(self, verb: Verb) -> Any:
        return getattr(load_module(f"federation.cli.{verb.module}"), verb.name)

    def sections(self) -> Mapping[str, Mapping[str, Verb]]:
        return {"Commands": self._table}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        widest = max(map(len, self._table))
        for title, verbs in self.sections().items():
            with formatter.section(title):
                formatter.write_dl(
                    [(name.ljust(widest), verb.words) for name, verb in verbs.items()]
                )

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem  # noqa: PLC0415 - for shells alone

        # As a group does it, and without importing every command.
        commands = [
            CompletionItem(name, help=verb.words)
            for name, verb in self._table.items()
            if name.startswith(incomplete)
        ]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]


GROUPS: Final[dict[str, dict[str, Verb]]] = {
    "Look": {
        "get": Verb("verbs", "List objects of a kind: clusters, bindings, queue, plans."),
        "describe": Verb("verbs", "Show one object in full."),
        "top": Verb("fleet", "Show how full clusters are, and what namespaces hold."),
        "events": Verb("events", "Show what happened to a binding, a cluster or all."),
        "wait": Verb("waiting", "Wait until bindings are placed or deleted."),
    },
    "Workloads": {
        "schedule": Verb("workloads", "Decide where the workloads of files run."),
        "apply": Verb("apply", "Send the clusters, quotas and workloads of files."),
        "diff": Verb("apply", "Show what schedule or apply would change."),
        "explain": Verb("workloads", "Show why a binding is where it is."),
        "delete": Verb("members", "Delete member clusters or bindings."),
        "suspend": Verb("waiting", "Keep a binding from being decided; what runs stays."),
        "resume": Verb("waiting", "Let a suspended binding be decided again."),
        "reschedule": Verb("waiting", "Divide all replicas of a binding anew."),
        "reservation": Verb("bindings", "List, give back and prolong what is reserved."),
        "quota": Verb("access", "Limit what a namespace may hold in all clusters."),
    },
    "Clusters": {
        "edit": Verb("apply", "Change a cluster in your editor."),
        "label": Verb("members", "Set or remove labels of clusters."),
        "taint": Verb("members", "Set or remove taints of clusters."),
        "join-token": Verb("clusters", "Let clusters join."),
        "accept": Verb("clusters", "Accept a cluster that joined and is held."),
        "reject": Verb("clusters", "Delete a cluster that joined and is held."),
        "cordon": Verb("members", "Keep new replicas away from clusters."),
        "uncordon": Verb("members", "Let new replicas into clusters again."),
        "drain": Verb("plans", "Empty clusters by a plan, and follow it to its end."),
        "replace": Verb("members", "Give a cluster's name to another Kubernetes cluster."),
        "revoke": Verb("members", "End a cluster's credentials and its agent's stream."),
        "failover": Verb("fleet", "Show failover, freeze it, or let it go on."),
        "plan": Verb("plans", "Make, show, approve, watch and stop plans of moves."),
    },
    "Questions": {
        "estimate": Verb("estimate", "Count the replicas of a shape that still fit."),
        "simulate": Verb("offline.verbs", "Decide where workloads would run."),
        "what-if": Verb("offline.verbs", "Decide recorded decisions anew with something changed."),
        "score": Verb("offline.score", "Score nodes for a pod as kube-scheduler or Volcano do."),
    },
    "History": {
        "history": Verb("history", "Show a binding's decisions and what each changed."),
        "replay": Verb("history", "Make a decision again, and compare."),
        "trace": Verb("history", "Export recorded decisions to a file."),
        "audit": Verb("audit", "Show who changed what, and verify the records."),
    },
    "Access": {
        "login": Verb("contexts", "Try an endpoint and a token, and save them by name."),
        "config": Verb("contexts", "Show and choose the saved control planes."),
        "token": Verb("access", "Make, list and revoke tokens of people and programs."),
        "whoami": Verb("access", "Show whom the token stands for, and what it may do."),
        "version": Verb("access", "Show the releases of fedctl and of the control plane."),
        "doctor": Verb("doctor", "Check whether the control planes can be called."),
        "completion": Verb("verbs", "Print the shell's completion script."),
    },
}
VERBS: Final = {
    name: verb._replace(name=name.replace("-", "_"))
    for group in GROUPS.values()
    for name, verb in group.items()
}
# Verbs of earlier releases, which are still taken.
OLD_VERBS: Final = {
    "rebalance": Verb("plans", "", "plan"),
    "release": Verb("bindings", "", "release"),
    "renew": Verb("bindings", "", "renew"),
    "watch": Verb("waiting", "", "watch"),
}


@click.command(epilog="Example: fedctl completion fish > ~/.config/fish/completions/fedctl.fish")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the shell's completion script.

    In bash and zsh, put `eval "$(fedctl completion bash)"` into ~/.bashrc or ~/.zshrc, each with
    its own name.
    """
    from click.shell_completion import get_completion_class  # noqa: PLC0415 - for shells alone

    root = click.get_current_context().find_root().command
    if kind := get_completion_class(shell):
        say_lines(kind(root, {}, "fedctl", "_FEDCTL_COMPLETE").source())


def load_module(name: str) -> ModuleType:
    """Import a module without looking for garbage, of which imports leave none.

    All that it imports lives on; the collector would take a tenth of the time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return import_module(name)
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


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
