"""``fedctl``: its options, its variables, its verbs and its exit codes.

Must not do any verb's work, nor import it before it is asked for.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import click

import federation.runtime.grpc_noise  # noqa: F401 - before grpc
from federation.cli.connection import Connection, accepting_options, connection_options
from federation.model.errors import FederationError
from federation.runtime.terminal import Program, error_lines, say_lines

STATE_HOME = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")

REFUSED = 1
# Verb, and the module that has it.
VERBS = {
    "apply": "fleet",
    "cordon": "members",
    "delete": "members",
    "describe": "fleet",
    "estimate": "estimate",
    "explain": "workloads",
    "failover": "failover",
    "get": "fleet",
    "history": "history",
    "join-token": "fleet",
    "release": "reservations",
    "renew": "reservations",
    "replace": "members",
    "replay": "history",
    "reschedule": "queueing",
    "resume": "queueing",
    "revoke": "members",
    "schedule": "workloads",
    "score": "score",
    "simulate": "simulate",
    "suspend": "queueing",
    "uncordon": "members",
    "watch": "watch",
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
        module = import_module(f"federation.cli.{VERBS[cmd_name]}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return accepting_options(command)

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
@connection_options(
    endpoint={"envvar": "FEDCTL_ENDPOINT", "default": "127.0.0.1:7443", "show_default": True},
    token_file={
        "envvar": "FEDCTL_TOKEN_FILE",
        "default": STATE_HOME / "fedsched" / "admin.token",
        "show_default": True,
    },
    ca={"envvar": "FEDCTL_CA"},
    timeout_seconds={"default": 30.0, "show_default": True},
)
@click.pass_context
def fedctl(context: click.Context, /, **options: Any) -> None:
    """Ask and steer a fedsched control plane; some verbs work on files alone."""
    context.obj = Connection(**options)


def main() -> None:
    """The program ``fedctl``."""
    fedctl(prog_name="fedctl")


if __name__ == "__main__":
    main()
