"""Names given on the command line: of objects, of the kinds that they are of, and with values.

Must not ask anybody whether what is named exists.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Final, TypeVar

import click

from federation.model.errors import InvalidRequest

F = TypeVar("F", bound=Callable[..., Any])

BINDING_KINDS: Final = ("binding", "bindings")
NAMES: Final = "NAMESPACE/BINDING"
SHORT_NAMES: Final = {
    "cl": "clusters",
    "dec": "decisions",
    "pl": "plans",
    "rb": "bindings",
    "res": "reservations",
    "tok": "tokens",
}


class Kinds(click.Group):
    """A verb about kinds of objects, each called in the singular, the plural, or by a short name.

    ``KIND/NAME`` is the same as ``KIND NAME``, as kubectl has it.
    """

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        name = SHORT_NAMES.get(cmd_name, cmd_name)
        spellings = (name, f"{name}s", name.removesuffix("s"))
        return next(
            (self.commands[spelling] for spelling in spellings if spelling in self.commands), None
        )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        kind, slash, name = args[0].partition("/")
        if slash and self.get_command(ctx, kind) is not None:
            return super().resolve_command(ctx, [kind, name, *args[1:]])
        is_kind = args[0].startswith("-") or self.get_command(ctx, args[0]) is not None
        if not (is_kind or ctx.resilient_parsing):
            kinds = ", ".join(sorted(self.commands))
            raise click.UsageError(f"There is no kind {args[0]!r}. The kinds are {kinds}.", ctx)
        return super().resolve_command(ctx, args)


def named_binding(name: str, namespace: str = "") -> tuple[str, str]:
    """The namespace (may be empty) and the name of a binding, as ``NAMESPACE/BINDING``, or as
    ``BINDING`` or ``binding/BINDING`` where ``-n`` says the namespace. Raises InvalidRequest.
    """
    kind, slash, plain = name.partition("/")
    if slash and kind in BINDING_KINDS and (namespace or "/" in plain):
        name = plain
    within, slash, binding = name.rpartition("/")
    if not binding or (slash and not within) or "/" in within:
        raise InvalidRequest.of(NAMES, f"{name!r} names no binding")
    if within and namespace and within != namespace:
        raise InvalidRequest.of(NAMES, f"{name!r} is not in the namespace {namespace!r} of -n")
    return within or namespace, binding


def binding_argument(function: F) -> F:
    """The argument that names one binding, and ``-n``: passed on as ``binding``, namespace and
    name.
    """

    @wraps(function)
    def with_binding(*args: Any, name: str, namespace: str, **options: Any) -> Any:
        return function(*args, binding=named_binding(name, namespace), **options)

    command = namespace_option(with_binding)
    return click.argument("name", metavar=NAMES)(command)  # type: ignore[return-value]  # as above


def namespace_option(function: F) -> F:
    """``-n`` of verbs about one binding."""
    words = "The binding's namespace, where its name does not begin with it."
    return click.option("-n", "--namespace", default="", help=words)(function)


def list_namespace_options(function: F) -> F:
    """``-n`` and ``-A`` of lists: passed on as ``namespace``, empty where all are shown."""

    @wraps(function)
    def with_namespace(*args: Any, namespace: str, all_namespaces: bool, **options: Any) -> Any:
        if namespace and all_namespaces:
            raise click.UsageError("-n is one namespace, and -A all of them: choose one")
        return function(*args, namespace=namespace, **options)

    command: Any = click.option(
        "-A", "--all-namespaces", is_flag=True, help="All namespaces, as without -n."
    )(with_namespace)
    return click.option("-n", "--namespace", default="", help="Only this namespace.")(command)  # type: ignore[no-any-return]  # click's decorators return what they take


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
