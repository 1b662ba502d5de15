"""Verbs that end something ask first: on a terminal; elsewhere they must be told beforehand.

Must not know what is ended.
"""

from __future__ import annotations

import sys

import click

from federation.runtime.terminal import say

yes_option = click.option("--yes", is_flag=True, help="Do it without asking, as scripts have to.")


def confirm(what_ends: str, *, yes: bool) -> None:
    """Returns when it may be done. Raises click.Abort, or UsageError where nobody can be asked."""
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise click.UsageError("there is no terminal to ask on: say --yes to do it")
    say(what_ends, err=True)
    click.confirm("Go on?", abort=True, err=True)
