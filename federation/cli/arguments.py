"""Arguments of verbs: names of kinds and objects, pairs, times, spans, and the answer yes.

Must not ask a control plane, nor read a clock.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from federation.model.errors import InvalidRequest
from federation.runtime.terminal import say

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp

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
        name, kinds = SHORT_NAMES.get(cmd_name, cmd_name), self.list_commands(ctx)
        spellings = (name, f"{name}s", name.removesuffix("s"))
        kind = next((spelling for spelling in spellings if spelling in kinds), None)
        return None if kind is None else self.command_of(kind)

    def command_of(self, kind: str) -> click.Command:
        """The command of a kind, as `list_commands` spells it."""
        return self.commands[kind]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        kind, slash, name = args[0].partition("/")
        if slash and self.get_command(ctx, kind) is not None:
            return super().resolve_command(ctx, [kind, name, *args[1:]])
        is_kind = args[0].startswith("-") or self.get_command(ctx, args[0]) is not None
        if not (is_kind or ctx.resilient_parsing):
            kinds = ", ".join(self.list_commands(ctx))
            raise click.UsageError(f"There is no kind {args[0]!r}. The kinds are {kinds}.", ctx)
        return super().resolve_command(ctx, args)


class RenamedOption(click.Option):
    """An option that is still taken by its ``old`` names, which no help shows."""

    def __init__(self, names: Sequence[str], *, old: Sequence[str], **attributes: Any) -> None:
        super().__init__(names, **attributes)
        self._old = old

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        names, self.opts = self.opts, [*self.opts, *self._old]
        super().add_to_parser(parser, ctx)
        self.opts = names


class OldFlag(click.Option):
    """A flag of earlier releases, hidden, whose refusal ``says`` its new form."""

    def __init__(self, names: Sequence[str], *, says: str, **attributes: Any) -> None:
        attributes |= {"is_flag": True, "hidden": True, "expose_value": False}
        super().__init__(names, callback=self._refuse, **attributes)
        self._says = says

    def _refuse(self, _: click.Context, __: click.Parameter, value: bool) -> None:
        if value:
            raise click.UsageError(f"{self.opts[0]} is called {self._says} now")


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


MAX_SECONDS: Final = 10.0**10
_UNITS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604_800}
_PART: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)(ms|[smhdw])", re.ASCII)
_SPAN: Final = re.compile(f"(?:{_PART.pattern})+", re.ASCII)
_NUMBER: Final = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,9})?", re.ASCII)


def has_unit(text: str) -> bool:
    """Whether the text is a span of time, and says its unit."""
    return _SPAN.fullmatch(text) is not None


def seconds_of(text: str, option: str) -> float:
    """How many seconds the text says. Raises InvalidRequest."""
    if _NUMBER.fullmatch(text):
        return float(text)
    if has_unit(text):
        return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    raise InvalidRequest.of(option, f"must be a span such as 90s, 1h30m or 7d, not {text!r}")


def whole_seconds_of(text: str, option: str) -> int:
    """The same of what counts in whole seconds. Raises InvalidRequest."""
    seconds = seconds_of(text, option)
    if not seconds.is_integer():
        raise InvalidRequest.of(option, f"must be whole seconds, not {text!r}")
    return int(seconds)


@dataclass
class DurationType(click.ParamType[float | int]):
    """An option that takes a span of time, in seconds from ``least`` to ``most``.

    ``is_whole``: an integer. Seconds alone are also taken.
    """

    least: float = 0.0
    most: float = MAX_SECONDS
    is_whole: bool = False
    is_open: bool = False
    name: str = "span"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | int:
        if not isinstance(value, str):
            return value  # type: ignore[no-any-return]  # a default, in seconds
        try:
            read = whole_seconds_of if self.is_whole else seconds_of
            seconds = read(value, "")
        except InvalidRequest as error:
            self.fail(error.violations[0].rule, param, ctx)
        if not self.least <= seconds <= self.most or (self.is_open and seconds == self.least):
            above = "more than" if self.is_open else "at least"
            rule = f"must be {above} {self.least:g} s and at most {self.most:g} s, not {value!r}"
            self.fail(rule, param, ctx)
        return seconds


def time_of(text: str, option: str, now: float) -> Timestamp:
    """A time, or how long before ``now`` (Unix seconds) it was. Raises InvalidRequest."""
    # Most verbs have no times, and begin without protobuf.
    from federation.codec.timestamps import (  # noqa: PLC0415 - see above
        timestamp_from_seconds,
        timestamp_from_text,
    )

    if has_unit(text):
        return timestamp_from_seconds(max(0.0, now - seconds_of(text, option)))
    time = timestamp_from_text(text)
    if time is None:
        rule = f"must be a span such as 24h, or a time such as 2026-03-01T12:00:00Z, not {text!r}"
        raise InvalidRequest.of(option, rule)
    return time


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
