"""``fedctl``: its options, its variables, its verbs and its exit codes.

Must not do any verb's work.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NoReturn

import click

from federation.cli import (
    estimate,
    fleet,
    members,
    reservations,
    score,
    simulate,
    watch,
    workloads,
)
from federation.cli.connection import Connection
from federation.model.errors import FederationError
from federation.terminal import Program, error_lines, say_lines

STATE_HOME = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")


REFUSED = 1


class Verbs(Program):
    """A group whose verbs may raise the error tree."""

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
    epilog="Example: fedctl get clusters",
)
@click.version_option(package_name="fedsched")
@click.option(
    "--endpoint",
    envvar="FEDCTL_ENDPOINT",
    default="127.0.0.1:7443",
    show_default=True,
    metavar="HOST:PORT",
    help="The control plane. [env: FEDCTL_ENDPOINT]",
)
@click.option(
    "--token-file",
    envvar="FEDCTL_TOKEN_FILE",
    type=click.Path(path_type=Path),
    default=STATE_HOME / "fedsched" / "admin.token",
    show_default=True,
    help="File with the token. [env: FEDCTL_TOKEN_FILE]",
)
@click.option(
    "--ca",
    envvar="FEDCTL_CA",
    type=click.Path(path_type=Path),
    help="Certificate authority to trust, PEM; else the system's. [env: FEDCTL_CA]",
)
@click.option("--insecure", is_flag=True, help="Plain text, for a control plane on this machine.")
@click.option(
    "--timeout",
    "timeout_seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for an answer.",
)
@click.pass_context
def fedctl(context: click.Context, /, **options: Any) -> None:
    """Ask and steer a fedsched control plane; some verbs work on files alone."""
    context.obj = Connection(**options)


fedctl.add_command(fleet.get)
fedctl.add_command(fleet.describe)
fedctl.add_command(fleet.join_token)
fedctl.add_command(fleet.apply)
fedctl.add_command(workloads.schedule)
fedctl.add_command(workloads.explain)
fleet.describe.add_command(reservations.describe_binding)
fedctl.add_command(reservations.release)
fedctl.add_command(reservations.renew)
fedctl.add_command(watch.watch)
fedctl.add_command(members.delete)
fedctl.add_command(members.cordon)
fedctl.add_command(members.uncordon)
fedctl.add_command(members.replace)
fedctl.add_command(members.revoke)
fedctl.add_command(estimate.estimate)
fedctl.add_command(simulate.simulate)
fedctl.add_command(score.score)


def main() -> None:
    """The program ``fedctl``."""
    fedctl(prog_name="fedctl")


if __name__ == "__main__":
    main()
