"""Names given on the command line: of objects, of the kinds that they are of, and with values.

Must not ask anybody whether what is named exists.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from federation.model.errors import InvalidRequest


class Kinds(click.Group):
    """A verb about kinds of objects, each called in the singular or the plural."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        spellings = (cmd_name, f"{cmd_name}s", cmd_name.removesuffix("s"))
        return next(
            (self.commands[spelling] for spelling in spellings if spelling in self.commands), None
        )


def named_binding(name: str) -> tuple[str, str]:
    """The namespace (may be empty) and the name of a binding. Raises InvalidRequest."""
    namespace, slash, binding = name.rpartition("/")
    if not binding or (slash and not namespace):
        raise InvalidRequest.of("NAMESPACE/BINDING", f"{name!r} names no binding")
    return namespace, binding


def pairs_of(texts: Sequence[str], option: str) -> dict[str, str]:
    """``a=1,b=2``, possibly in several options, as a mapping."""
    pairs: dict[str, str] = {}
    for text in ",".join(texts).split(","):
        name, equals, value = text.strip().partition("=")
        if not (name and equals):
            raise click.UsageError(f"{option}: {text!r} is not name=value")
        if name in pairs:
            raise click.UsageError(f"{option}: {name} is there twice")
        pairs[name] = value
    return pairs
