"""Questions before something ends: on a terminal, unless ``--yes`` answers them.

Must not know what ends.
"""

from __future__ import annotations

import sys

import click

from federation.runtime.terminal import say

yes_option = click.option("--yes", is_flag=True, help="Do it without asking, as scripts have to.")


def confirm(consequence: str, *, yes: bool) -> None:
    """Return when it may be done. Raises click.Abort, or UsageError where nobody can be asked."""
    check_may_ask(yes=yes)
    if not yes:
        _ask(consequence)


def ask_on_terminal(consequence: str, *, yes: bool) -> None:
    """Return when it may be done, at once where no terminal is there. Raises click.Abort."""
    if not yes and _is_on_terminal():
        _ask(consequence)


def check_may_ask(*, yes: bool) -> None:
    """Raises UsageError where somebody is to be asked, and nobody can be."""
    if not yes and not _is_on_terminal():
        raise click.UsageError("there is no terminal to ask on: say --yes to do it")


def _ask(consequence: str) -> None:
    say(consequence, err=True)
    click.confirm("Go on?", abort=True, err=True)


def _is_on_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()
