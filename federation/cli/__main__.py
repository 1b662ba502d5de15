"""``fedctl``: its options, its variables, its verbs and its exit codes.

Must not do any verb's work, nor import it before it is asked for.
"""

from __future__ import annotations

import gc
from importlib import import_module
from types import ModuleType
from typing import Any, NoReturn

import click

import federation.runtime.native_libraries  # noqa: F401 - before grpc and numpy
from federation.cli.connection import (
    CHOSEN,
    DEFAULTS,
    accepting_options,
    connection_options,
    context_names,
    defaults_of_context,
    made_connection,
)
from federation.model.errors import FederationError
from federation.runtime.terminal import Program, error_lines, say_lines

REFUSED = 1
# Verb, the module that has it, and what it is for: the list of all waits for no module.
VERBS = {
    "accept": ("joining", "Let new replicas into a cluster that joined and is held."),
    "apply": (
        "fleet",
        "Change what is said about member clusters: labels, taints, region, resource models.",
    ),
    "completion": ("completion", "Print what makes the shell complete verbs and options."),
    "config": ("login", "The control planes that `fedctl login` has kept."),
    "audit": (
        "audit",
        "See who changed what and who was refused, and verify that no record was altered.",
    ),
    "cordon": ("members", "Keep new replicas away from a cluster; what runs there stays."),
    "delete": ("members", "Forget a member cluster or a binding."),
    "describe": ("fleet", "Show one object in full."),
    "doctor": (
        "doctor",
        "Say whether the control planes can be asked from here, and if not, why and what to do.",
    ),
    "drain": ("plans", "Empty clusters: make a plan, show it, ask, and follow it to its end."),
    "estimate": ("estimate", "How many replicas of a shape still fit, and where."),
    "explain": (
        "workloads",
        "Why a binding is where it is: every cluster's filter, scores, estimate and share.",
    ),
    "failover": (
        "failover",
        "See how workloads are moved off lost clusters, and stop it or let it go on.",
    ),
    "get": ("fleet", "List what the control plane knows."),
    "history": (
        "history",
        "What was decided about a binding, what each decision changed, and why it was made.",
    ),
    "join-token": ("joining", "Let clusters join."),
    "login": (
        "login",
        "Keep an endpoint, its CA and a token under a name, once they have been tried.",
    ),
    "quota": ("quota", "Say how much a namespace may hold promised, in all clusters together."),
    "rebalance": ("plans", "Plans of moves: make one, look at it, approve it, watch it, stop it."),
    "reject": ("joining", "Forget a cluster that is held; its agent is sent away for good."),
    "release": (
        "reservations",
        "Give back what is reserved for a binding; what runs keeps running.",
    ),
    "renew": ("reservations", "Prolong the lease of what is reserved for a binding."),
    "replace": (
        "members",
        "Give a name to another Kubernetes cluster, such as one that was built anew.",
    ),
    "replay": ("replay", "Make a decision again from what it was made on, and compare."),
    "reschedule": (
        "queueing",
        "Divide all replicas of a binding anew, as if nothing had to stay where it is.",
    ),
    "resume": ("queueing", "Let a suspended binding be decided again; one that waited is tried."),
    "revoke": (
        "members",
        "End a cluster's credentials and unused join tokens at once, and its agent's stream.",
    ),
    "schedule": (
        "workloads",
        "Decide where workloads run: ResourceBindings, or workloads with their policies.",
    ),
    "score": ("score", "Score nodes for a pod as kube-scheduler or Volcano would, and show why."),
    "simulate": ("simulate", "Decide where workloads would run."),
    "suspend": (
        "queueing",
        "Keep a binding from being decided, whatever room there is; what runs stays.",
    ),
    "token": ("token", "Let people and programs call, each with a role and a scope of its own."),
    "top": ("top", "Show how full clusters are, and what namespaces hold."),
    "trace": ("trace", "Recorded decisions in a file: export them."),
    "uncordon": ("members", "Let new replicas into a cluster again."),
    "watch": ("watch", "Show what is there, and everything that changes from then on."),
    "whoami": (
        "token",
        "Say whom the token, or the certificate, stands for, and what that may do and see.",
    ),
    "what-if": ("what_if", "What would have been decided if something had been otherwise."),
}


class Verbs(Program):
    """A group whose verbs may raise the error tree, each imported when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in VERBS:
            return None
        module = _loaded(f"federation.cli.{VERBS[cmd_name][0]}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return accepting_options(command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, words) for name, (_, words) in VERBS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem  # noqa: PLC0415 - for shells alone

        # As a group does it, and without importing every verb.
        verbs = [
            CompletionItem(name, help=words)
            for name, (_, words) in VERBS.items()
            if name.startswith(incomplete)
        ]
        return [*verbs, *click.Command.shell_complete(self, ctx, incomplete)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in VERBS and not args[0].startswith("-") and not ctx.resilient_parsing:
            from difflib import get_close_matches  # noqa: PLC0415 - only for who mistypes

            close = get_close_matches(args[0], VERBS, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else " fedctl --help lists all of them."
            raise click.UsageError(f"No such command {args[0]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except FederationError as error:
            _refuse(ctx, error)
        except UnicodeEncodeError as error:
            # Arguments and variables may hold bytes that are no text at all.
            text = error.object[error.start : error.end]
            raise click.UsageError(f"{text!r} cannot be written as {error.encoding}") from error
        except BrokenPipeError:
            raise  # click ends quietly: whoever read the answer has seen enough.
        except OSError as error:
            _refuse(ctx, FederationError(f"input or output failed: {error.strerror}"))


def _refuse(context: click.Context, error: FederationError) -> NoReturn:
    say_lines("\n".join(error_lines(error)), err=True)
    context.exit(REFUSED)


@click.group(
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="These options may also stand after the verb. Example: fedctl get clusters",
)
@click.version_option(package_name="fedsched")
@click.option(
    "--context",
    CHOSEN,
    metavar="NAME",
    envvar="FEDCTL_CONTEXT",
    is_eager=True,
    expose_value=False,
    callback=defaults_of_context,
    shell_complete=context_names,
    help="What `fedctl login` kept under that name; else what counts. [env: FEDCTL_CONTEXT]",
)
@connection_options(
    endpoint={
        "envvar": "FEDCTL_ENDPOINT",
        "default": DEFAULTS["endpoint"],
        "show_default": True,
    },
    token_file={
        "envvar": "FEDCTL_TOKEN_FILE",
        "default": DEFAULTS["token_file"],
        "show_default": True,
    },
    ca={"envvar": "FEDCTL_CA"},
    client_cert={"envvar": "FEDCTL_CLIENT_CERT"},
    client_key={"envvar": "FEDCTL_CLIENT_KEY"},
    timeout_seconds={"default": 30.0, "show_default": True},
)
@click.pass_context
def fedctl(context: click.Context, /, **options: Any) -> None:
    """Ask and steer a fedsched control plane; some verbs work on files alone."""
    context.obj = made_connection(context, options)


def _loaded(name: str) -> ModuleType:
    """A module, with all that it imports: that lives on, and to look for garbage in it takes a
    tenth of the time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return import_module(name)
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


def main() -> None:
    """The program ``fedctl``."""
    fedctl(prog_name="fedctl")


if __name__ == "__main__":
    main()
