"""``fedctl``: its options, its variables, its verbs and its exit codes.

Must not do any verb's work, nor import it before it is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import click

import federation.runtime.native_libraries  # noqa: F401 - before grpc and numpy
from federation.cli.connection import (
    CHOSEN,
    DEFAULTS,
    connection_options,
    context_names,
    defaults_of_context,
    fronted,
    made_connection,
)
from federation.cli.verbs import GROUPS, OLD_VERBS, VERBS, LazyCommands, Verb
from federation.model.errors import FederationError
from federation.runtime.terminal import Program, error_lines, say_lines

REFUSED = 1


class Verbs(LazyCommands, Program):
    """A group whose verbs may raise the error tree, each imported when it is asked for."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        verb = VERBS.get(cmd_name) or OLD_VERBS.get(cmd_name)
        command: click.Command | None = self.loaded(verb) if verb else None
        return command

    def sections(self) -> Mapping[str, Mapping[str, Verb]]:
        return GROUPS

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, fronted(ctx, args))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if (
            args[0] not in VERBS | OLD_VERBS
            and not args[0].startswith("-")
            and not ctx.resilient_parsing
        ):
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
    table=VERBS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="These options may also stand after the verb. Exit codes: 0 done, 1 an error, "
    "2 a command that makes no sense, 3 done but not what was asked for. "
    "Example: fedctl get clusters",
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
    timeout_seconds={"default": "30s", "show_default": True},
)
@click.pass_context
def fedctl(context: click.Context, /, **options: Any) -> None:
    """Ask and steer a fedsched control plane; some verbs work on files alone."""
    context.obj = made_connection(context, options)


def main() -> None:
    """The program ``fedctl``."""
    fedctl(prog_name="fedctl")


if __name__ == "__main__":
    main()
