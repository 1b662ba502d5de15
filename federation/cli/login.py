"""Verbs about where the control planes are: login, config.

Must not keep a token that the control plane does not take.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import click

from federation.cli import output as show
from federation.cli.connection import connection
from federation.cli.contexts import checked_name, read_contexts
from federation.cli.folders import contexts_file
from federation.codec.document_files import read_text
from federation.model.errors import InvalidRequest
from federation.runtime.files import make_private_directory, write_whole
from federation.runtime.terminal import say


@click.command(epilog="Example: fedctl login prod --endpoint cp.example:7443 --ca certs/ca.pem")
@click.argument("name")
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    help="File with the token; else it is asked for, or read from standard input.",
)
def login(name: str, token_file: Path | None) -> None:
    """Keep an endpoint, its CA and a token under a name, once they have been tried.

    From then on this is where fedctl asks, unless options or variables say otherwise.
    """
    contexts = read_contexts(contexts_file())
    folder = contexts.path.parent
    token = _token(token_file)
    make_private_directory(folder)
    tried = folder / f".{checked_name(name)}.token.new"
    write_whole(tried, f"{token}\n".encode(), mode=0o600)
    try:
        target = replace(connection(), token_file=tried)
        clusters = target.call(lambda api: api.list_clusters())
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
    say(f"{name}: {target.endpoint}, {len(clusters)} clusters; kept in {contexts.path}")


def _token(file: Path | None) -> str:
    if file is not None:
        text = read_text(str(file))
    elif sys.stdin.isatty():
        text = click.prompt("Token", hide_input=True, err=True)
    else:
        text = sys.stdin.readline()
    if not text.strip():
        raise InvalidRequest.of("token", "must not be empty")
    return str(text).strip()


@click.group(epilog="Example: fedctl config get-contexts")
def config() -> None:
    """The control planes that `fedctl login` has kept."""


@config.command("get-contexts", epilog="Example: fedctl config get-contexts")
def get_contexts() -> None:
    """All of them; the one that counts is marked."""
    contexts = read_contexts(contexts_file())
    rows = [
        (
            "*" if name == contexts.current else "",
            name,
            str(options.get("endpoint", "")),
            "plain text" if options.get("insecure") else str(options.get("ca", "the system's")),
            str(options.get("token_file", "")),
        )
        for name, options in sorted(contexts.options.items())
    ]
    columns = ("", "NAME", "ENDPOINT", "CA", "TOKEN FILE")
    show.print_table(columns, rows, empty="There are no contexts; `fedctl login` makes one.")


@config.command("use-context", epilog="Example: fedctl config use-context prod")
@click.argument("name")
def use_context(name: str) -> None:
    """Ask this one from now on."""
    contexts = read_contexts(contexts_file())
    contexts.of(name)
    contexts.current = name
    contexts.write()
    say(f"{name} counts from now on")


@config.command("delete-context", epilog="Example: fedctl config delete-context prod")
@click.argument("name")
def delete_context(name: str) -> None:
    """Forget one, with its token and its CA where fedctl keeps them."""
    contexts = read_contexts(contexts_file())
    contexts.remove(name)
    contexts.write()
    for suffix in ("token", "ca.pem"):
        (contexts.path.parent / f"{checked_name(name)}.{suffix}").unlink(missing_ok=True)
    say(f"{name} is forgotten")
