"""Control planes under names: verbs login and config, and the file that keeps where each is.

Must not keep a token that the control plane does not take.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import click

from federation.cli.connection import connection, context_names, contexts_file, is_stated
from federation.cli.kinds import GetKind, kind_command
from federation.cli.lists import ListColumn, ListedKind
from federation.model.errors import InvalidRequest, NotFound, PreconditionFailed, Violation
from federation.runtime.files import make_private_directory, write_whole
from federation.runtime.terminal import say
from federation.runtime.tokens import checked_token

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
CURRENT_KEY, CONTEXTS_KEY = "current-context", "contexts"
# By the key of the file: the option of fedctl that it stands for, and what it is.
KEYS: Final[Mapping[str, tuple[str, type]]] = {
    "endpoint": ("endpoint", str),
    "ca": ("ca", Path),
    "token-file": ("token_file", Path),
    "client-cert": ("client_cert", Path),
    "client-key": ("client_key", Path),
    "insecure": ("insecure", bool),
}


@dataclass(kw_only=True)
class Contexts:
    """The file: options of fedctl by the name of their context, and which one counts."""

    path: Path
    current: str = ""
    options: dict[str, dict[str, Any]] = field(default_factory=dict)

    def of(self, name: str) -> Mapping[str, Any]:
        """Options of fedctl with their values; raises NotFound."""
        if name not in self.options:
            names = ", ".join(sorted(self.options)) or "none; `fedctl login` makes one"
            raise NotFound(f"there is no context {name!r} in {self.path}; there are: {names}")
        return self.options[name]

    def remove(self, name: str) -> None:
        """Raises NotFound."""
        self.of(name)
        del self.options[name]
        self.current = "" if self.current == name else self.current

    def write(self) -> None:
        from federation.runtime.yaml_texts import yaml_text  # noqa: PLC0415 - yaml, for few

        contexts = {name: written_options(options) for name, options in self.options.items()}
        document = {CURRENT_KEY: self.current, CONTEXTS_KEY: contexts}
        make_private_directory(self.path.parent)
        write_whole(self.path, yaml_text(document).encode(), mode=0o600)


def written_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """A context's options under the keys of the file."""
    return {
        key: value if kind is bool else str(value)
        for key, (option, kind) in KEYS.items()
        if (value := options.get(option)) is not None
    }


def read_contexts(path: Path) -> Contexts:
    """Read the contexts; no file is no contexts. Raises InvalidRequest with all violations."""
    if not path.exists():
        return Contexts(path=path)
    from federation.codec.document_files import document_of  # noqa: PLC0415 - yaml, for few

    document = document_of(path)
    violations = [
        Violation(field=f"{path}: {key}", rule="unknown field")
        for key in document.keys() - {CURRENT_KEY, CONTEXTS_KEY}
    ]
    contexts = document.get(CONTEXTS_KEY) or {}
    if not isinstance(contexts, dict):
        raise InvalidRequest.of(f"{path}: {CONTEXTS_KEY}", "must hold contexts by their names")
    read = Contexts(path=path, current=str(document.get(CURRENT_KEY) or ""))
    for name, values in contexts.items():
        where = f"{path}: {CONTEXTS_KEY}.{name}"
        read.options[name] = _options(values, where, path.parent, violations)
    if read.current and read.current not in read.options:
        violations.append(
            Violation(field=f"{path}: {CURRENT_KEY}", rule="names no context that is here")
        )
    if violations:
        raise InvalidRequest(violations)
    return read


def checked_name(name: str) -> str:
    """Raises InvalidRequest."""
    if not NAME.fullmatch(name):
        rule = "must be at most 63 letters, digits, dots, dashes and underscores"
        raise InvalidRequest.of("NAME", rule)
    return name


def _options(
    values: object, where: str, folder: Path, violations: list[Violation]
) -> dict[str, Any]:
    """A context's options; relative paths are meant from the file's folder."""
    if not isinstance(values, dict):
        violations.append(Violation(field=where, rule="must hold fields"))
        return {}
    options: dict[str, Any] = {}
    for key, value in values.items():
        option, kind = KEYS.get(key, ("", str))
        if not option:
            violations.append(Violation(field=f"{where}.{key}", rule="unknown field"))
        elif not isinstance(value, bool if kind is bool else str):
            rule = "must be true or false" if kind is bool else "must be a text"
            violations.append(Violation(field=f"{where}.{key}", rule=rule))
        else:
            options[option] = folder / str(value) if kind is Path else value
    return options


@click.command(epilog="Example: fedctl login prod --endpoint cp.example:7443 --ca certs/ca.pem")
@click.argument("name")
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    help="File with the token; else it is asked for, or read from standard input.",
)
def login(name: str, token_file: Path | None) -> None:
    """Try an endpoint and a token, and save them by name.

    The CA is saved with them. With --client-cert and --client-key no token is needed, and the
    places of both files are saved.

    From then on this is where fedctl asks, unless options or variables say otherwise.
    """
    # Before anybody types a secret.
    checked_name(name)
    contexts = read_contexts(contexts_file())
    folder = contexts.path.parent
    target = connection()
    if token_file is None and target.client_cert is not None and is_stated("client_cert"):
        caller = target.call(lambda api: api.who_am_i())
        credential = {
            "client_cert": target.client_cert.absolute(),
            "client_key": target.client_key and target.client_key.absolute(),
        }
    else:
        token = _token(token_file)
        make_private_directory(folder)
        tried = folder / f".{name}.token.new"
        write_whole(tried, f"{token}\n".encode(), mode=0o600)
        try:
            target = replace(target, token_file=tried, client_cert=None, client_key=None)
            caller = target.call(lambda api: api.who_am_i())
            credential = {"token_file": tried.replace(folder / f"{name}.token")}
        finally:
            tried.unlink(missing_ok=True)
    contexts.options[name] = {
        "endpoint": target.endpoint,
        "insecure": target.insecure,
        **credential,
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
    named=lambda context: context.name,
    document=NamedContext.document,
    can_change=False,
    columns=(
        ListColumn("", lambda context, _: "*" if context.is_current else ""),
        ListColumn("NAME", lambda context, _: context.name),
        ListColumn("ENDPOINT", lambda context, _: str(context.options.get("endpoint", ""))),
        ListColumn("CA", lambda context, _: _trust(context.options)),
        ListColumn("TOKEN FILE", lambda context, _: str(context.options.get("token_file", ""))),
        ListColumn(
            "CLIENT CERT",
            lambda context, _: str(context.options.get("client_cert", "")),
            rare=True,
        ),
    ),
    least=("TOKEN FILE", "CLIENT CERT", "CA"),
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
