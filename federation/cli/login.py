"""Verbs about where the control planes are: login, config.

Must not keep a token that the control plane does not take.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import click

from federation.cli.connection import connection, context_names
from federation.cli.contexts import checked_name, read_contexts, written_options
from federation.cli.folders import contexts_file
from federation.cli.kinds import GetKind, kind_command
from federation.cli.lists import ListColumn, ListedKind
from federation.model.errors import InvalidRequest, PreconditionFailed
from federation.runtime.files import make_private_directory, write_whole
from federation.runtime.terminal import say
from federation.runtime.tokens import checked_token


@click.command(epilog="Example: fedctl login prod --endpoint cp.example:7443 --ca certs/ca.pem")
@click.argument("name")
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    help="File with the token; else it is asked for, or read from standard input.",
)
def login(name: str, token_file: Path | None) -> None:
    """Try an endpoint and a token, and save them by name.

    The CA is saved with them.

    From then on this is where fedctl asks, unless options or variables say otherwise.
    """
    # Before anybody types a secret.
    checked_name(name)
    contexts = read_contexts(contexts_file())
    folder = contexts.path.parent
    token = _token(token_file)
    make_private_directory(folder)
    tried = folder / f".{name}.token.new"
    write_whole(tried, f"{token}\n".encode(), mode=0o600)
    try:
        target = replace(connection(), token_file=tried)
        caller = target.call(lambda api: api.who_am_i())
        kept = tried.replace(folder / f"{name}.token")
    finally:
        tried.unlink(missing_ok=True)
    contexts.options[name] = {
        "endpoint": target.endpoint,
        "token_file": kept,
        "insecure": target.insecure,
    }
    if target.ca is not None:
        trusted = folder / f"{name}.ca.pem"
        write_whole(trusted, target.ca.read_bytes(), mode=0o600)
        contexts.options[name]["ca"] = trusted
    contexts.current = name
    contexts.write()
    say(f"{name}: {target.endpoint} as {caller.actor}; saved to {contexts.path}")


def _token(file: Path | None) -> str:
    if file is not None:
        from federation.codec.document_files import read_text  # noqa: PLC0415 - yaml

        text = read_text(str(file))
    elif sys.stdin.isatty():
        text = click.prompt("Token", hide_input=True, err=True)
    else:
        text = sys.stdin.readline()
    if not text.strip():
        raise InvalidRequest.of("token", "must not be empty")
    try:
        return checked_token(str(text), "token" if file is None else f"--token-file {file}")
    except PreconditionFailed as error:
        raise InvalidRequest.of("", error.message) from error


@click.group(epilog="Example: fedctl config get-contexts")
def config() -> None:
    """Show and choose the saved control planes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedContext:
    """A context as it is listed."""

    name: str
    is_current: bool
    options: Mapping[str, Any]

    def document(self) -> dict[str, Any]:
        return {"name": self.name, "current": self.is_current, **written_options(self.options)}


CONTEXTS: Final[ListedKind[NamedContext]] = ListedKind(
    word="context",
    named=lambda each: each.name,
    document=NamedContext.document,
    can_change=False,
    columns=(
        ListColumn("", lambda each, _: "*" if each.is_current else ""),
        ListColumn("NAME", lambda each, _: each.name),
        ListColumn("ENDPOINT", lambda each, _: str(each.options.get("endpoint", ""))),
        ListColumn("CA", lambda each, _: _trust(each.options)),
        ListColumn("TOKEN FILE", lambda each, _: str(each.options.get("token_file", ""))),
    ),
    least=("TOKEN FILE", "CA"),
    empty="There are no contexts; `fedctl login` makes one.",
)


def _trust(options: Mapping[str, Any]) -> str:
    return "plain text" if options.get("insecure") else str(options.get("ca", "the system's"))


def _saved_contexts() -> Sequence[NamedContext]:
    contexts = read_contexts(contexts_file())
    return [
        NamedContext(name=name, is_current=name == contexts.current, options=options)
        for name, options in sorted(contexts.options.items())
    ]


GET_CONTEXTS: Final = GetKind(
    plural="contexts",
    listed=CONTEXTS,
    words="Saved contexts, or those named; the current one is marked.",
    saved=_saved_contexts,
)
config.add_command(kind_command(GET_CONTEXTS, "config get-contexts"))


@config.command("use-context", epilog="Example: fedctl config use-context prod")
@click.argument("name", shell_complete=context_names)
def use_context(name: str) -> None:
    """Use a context from now on."""
    contexts = read_contexts(contexts_file())
    contexts.of(name)
    contexts.current = name
    contexts.write()
    say(f"Switched to context {name}.")


@config.command("delete-context", epilog="Example: fedctl config delete-context prod")
@click.argument("name", shell_complete=context_names)
def delete_context(name: str) -> None:
    """Delete a context, with its token and its CA where fedctl keeps them."""
    contexts = read_contexts(contexts_file())
    contexts.remove(name)
    contexts.write()
    for suffix in ("token", "ca.pem"):
        (contexts.path.parent / f"{checked_name(name)}.{suffix}").unlink(missing_ok=True)
    say(f"context/{name} deleted")
