"""The settings of a program as one table: how each is read, and where its value came from.

Must not read the process environment, the command line or files: all three are passed in.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Final

from federation.model.errors import InvalidRequest, Violation
from federation.runtime.database_url import masked_url

# The spellings that flags and variables of other programs have, too.
ON = ("true", "t", "yes", "y", "on", "1")
OFF = ("false", "f", "no", "n", "off", "0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """How one setting is read: its name in the file, the text of its default, and its parser.

    The flag is ``--name-with-dashes``, the variable the program's prefix and ``NAME``. ``many``:
    the flag may be repeated, the variable holds several separated by blanks, and the file a list;
    the value is a tuple. What is ``secret`` is not repeated in errors. Where nothing is set the
    value is ``unset``.
    """

    name: str
    parse: Callable[[str], Any] = str
    default: str = ""
    help: str
    switch: bool = False
    many: bool = False
    secret: bool = False
    unset: Any = None

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a value came from: the layer, and how the setting is called there."""

    layer: str
    name: str

    def __str__(self) -> str:
        return f"{self.layer} {self.name}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedOptions:
    """Values by setting name, and where each came from.

    A value that breaks a rule is told in ``violations``, under the name it was written as, and
    counts as not set.
    """

    options: Mapping[str, Option]
    values: Mapping[str, Any]
    origins: Mapping[str, Origin]
    violations: Sequence[Violation]
    warnings: Sequence[str]

    def name_of(self, setting: str) -> str:
        """The setting as its author wrote it, the flag where nobody did: for error messages."""
        return self.origins[setting].name or self.options[setting].flag

    def is_given(self, setting: str) -> bool:
        """Whether somebody set it, rightly or wrongly; a switch counts when it is on."""
        is_wrong = any(violation.field == self.name_of(setting) for violation in self.violations)
        return is_wrong or bool(self.values[setting])

    def shown(self) -> list[dict[str, str]]:
        """Rows of name, value and origin, secrets masked."""
        return [
            {
                "name": name,
                "value": _shown(option, self.values[name]),
                "origin": str(self.origins[name]),
            }
            for name, option in self.options.items()
        ]


def setting(
    words: str,
    parse: Callable[[str], Any] = str,
    default: str = "",
    *,
    secret: bool = False,
    unset: Any = None,
) -> Any:
    """Return a field of a class of settings, which declares the option of its name."""
    return field(
        metadata={"help": words, "parse": parse, "default": default}
        | {"secret": secret, "unset": unset}
    )


def switch(words: str) -> Any:
    """Return a field that is false unless the option is there."""
    declared = {"help": words, "parse": parse_switch, "default": "false", "switch": True}
    return field(metadata=declared)


class OptionTable:
    """All settings of a program, and what its variables begin with."""

    @classmethod
    def of(cls, prefix: str, settings: type[Any]) -> OptionTable:
        """The options that the fields of a class declare."""
        return cls(prefix, *(Option(name=at.name, **at.metadata) for at in fields(settings)))

    def __init__(self, prefix: str, *options: Option) -> None:
        self.prefix = prefix
        self.options = options

    def __iter__(self) -> Iterator[Option]:
        return iter(self.options)

    @property
    def config_variable(self) -> str:
        """The variable that names the file of settings."""
        return f"{self.prefix}CONFIG"

    def variable(self, option: Option) -> str:
        return self.prefix + option.name.upper()

    def load(
        self,
        *,
        flags: Mapping[str, str | Sequence[str] | None],
        environment: Mapping[str, str],
        document: Mapping[str, object],
        source: str,
    ) -> LoadedOptions:
        """Flags before environment before file before defaults.

        ``document`` is the content of the file named ``source``. Other variables with our prefix
        are warned about.
        """
        options = {option.name: option for option in self.options}
        rule = f"is no setting; settings are {', '.join(options)}"
        violations = [
            Violation(field=f"{source}: {key}", rule=rule) for key in document if key not in options
        ]
        values: dict[str, Any] = {}
        origins: dict[str, Origin] = {}
        for option in self.options:
            written, origin = self._written(option, flags, environment, document, source)
            origins[option.name] = origin
            try:
                values[option.name] = _value(option, written, origin)
            except InvalidRequest as error:
                values[option.name] = () if option.many else option.unset
                violations += error.violations
        known = [self.config_variable, *map(self.variable, self.options)]
        return LoadedOptions(
            options=options,
            values=values,
            origins=origins,
            violations=violations,
            warnings=unknown_variables(environment, self.prefix, known),
        )

    def _written(
        self,
        option: Option,
        flags: Mapping[str, str | Sequence[str] | None],
        environment: Mapping[str, str],
        document: Mapping[str, object],
        source: str,
    ) -> tuple[object, Origin]:
        flag, variable = flags.get(option.name), self.variable(option)
        if flag is not None and flag != ():
            return flag, Origin(layer="flag", name=option.flag)
        if text := environment.get(variable):
            origin = Origin(layer="environment", name=variable)
            return (text.split() if option.many else text), origin
        if document.get(option.name) is not None:
            return document[option.name], Origin(layer="file", name=f"{source}: {option.name}")
        return option.default, Origin(layer="default", name="")


def _value(option: Option, written: object, origin: Origin) -> Any:
    """The value of what a layer says. Raises InvalidRequest."""
    if option.many:
        texts = written if isinstance(written, list | tuple) else [written]
        return tuple(_parsed(option, text, origin) for text in texts if text != "")
    return option.unset if written == "" else _parsed(option, written, origin)


def _parsed(option: Option, written: object, origin: Origin) -> Any:
    if not isinstance(written, str | int | float):
        raise InvalidRequest.of(origin.name, "must be one value")
    text = str(written)
    try:
        return option.parse(text)
    except ValueError as error:
        # An address may hold a password, also where somebody put it under another name.
        shown = "" if "://" in text or option.secret else f"; it is {text!r}"
        raise InvalidRequest.of(origin.name, f"{error}{shown}") from error


def _shown(option: Option, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    text = "" if value is None else str(value)
    return masked_url(text) if "://" in text or (text and option.secret) else text


def parse_switch(text: str) -> bool:
    if text.lower() not in ON + OFF:
        raise ValueError("must be true or false")
    return text.lower() in ON


def parse_url(text: str) -> str:
    if not re.fullmatch(r"https?://[^\s/]+(/\S*)?", text):
        raise ValueError("must be http://HOST:PORT/PATH or https://HOST:PORT/PATH")
    return text


def seconds_between(least: float, most: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not least <= value <= most:
            raise ValueError(f"must be a number of seconds from {least:g} to {most:g}")
        return value

    return parse


def part_of_one(text: str) -> float:
    """A part of a whole, such as 0.1."""
    value = float(text) if re.fullmatch(r"[0-9]{0,9}\.?[0-9]{1,9}", text, re.ASCII) else -1.0
    if not 0.0 <= value <= 1.0:
        raise ValueError("must be a number from 0 to 1, such as 0.1")
    return value


def number_between(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = int(text) if re.fullmatch(r"[0-9]{1,18}", text, re.ASCII) else -1
        if not least <= value <= most:
            raise ValueError(f"must be a whole number from {least} to {most}")
        return value

    return parse


def one_of(choices: type[StrEnum]) -> Callable[[str], StrEnum]:
    def parse(text: str) -> StrEnum:
        try:
            return choices(text)
        except ValueError:
            raise ValueError(f"must be one of {', '.join(choices)}") from None

    return parse


# What Kubernetes sets in every pod beside a service, https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables.
_OF_A_SERVICE: Final = re.compile(
    r".*_SERVICE_(HOST|PORT(_.+)?)|.*_PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?"
)
_PORT_OF_A_SERVICE: Final = re.compile(r"(tcp|udp|sctp)://.+")


def unknown_variables(
    environment: Mapping[str, str], prefix: str, known: Iterable[str]
) -> list[str]:
    """A sentence for each variable with our prefix that means nothing to us, with a near name."""
    names = sorted(known)
    told = []
    for name in sorted(environment.keys() - set(names)):
        if not name.startswith(prefix) or _is_of_a_service(name, environment[name]):
            continue
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.8)
        hint = f"; did you mean {near[0]}?" if near else ""
        told.append(f"{name} is no setting and does nothing{hint}")
    return told


def _is_of_a_service(name: str, value: str) -> bool:
    if _OF_A_SERVICE.fullmatch(name):
        return True
    return name.endswith("_PORT") and _PORT_OF_A_SERVICE.fullmatch(value) is not None
