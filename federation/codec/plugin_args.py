"""The arguments of scheduler plugins: objects into the frozen dataclasses that plugins declare.

Must not know any plugin. Field names are written in camelCase, as everywhere in YAML.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Final, get_type_hints

from federation.codec.violations import Violations, joined
from federation.model.errors import InvalidRequest

# By declared type: whether a value is one, what to call it, and how it is kept.
_KINDS: Final[Mapping[Any, tuple[Callable[[Any], bool], str, Callable[[Any], Any]]]] = {
    bool: (lambda value: isinstance(value, bool), "true or false", bool),
    int: (lambda value: type(value) is int, "a whole number", int),
    float: (lambda value: type(value) in (int, float), "a number", float),
    str: (lambda value: isinstance(value, str), "text", str),
    tuple[str, ...]: (
        lambda value: isinstance(value, list) and all(isinstance(each, str) for each in value),
        "a list of texts",
        tuple,
    ),
}


def read_args(
    given: Mapping[str, Any], kind: type[Any] | None, path: str, found: Violations
) -> object | None:
    """The arguments; None when something about them was noted as wrong, or there are none."""
    if kind is None:
        if given:
            found.add(path, "must be empty: this plugin takes no arguments")
        return None
    before = len(found)
    hints = get_type_hints(kind)
    names = {_camel_case(each.name): each.name for each in dataclasses.fields(kind)}
    values = {}
    for key, value in given.items():
        here = joined(path, str(key))
        if key not in names:
            found.add(here, f"there is no such argument; arguments are {', '.join(names)}")
            continue
        fits, words, keep = _KINDS[hints[names[key]]]
        if fits(value):
            values[names[key]] = keep(value)
        else:
            found.add(here, f"must be {words}, not {value!r}")
    return None if len(found) > before else _made(kind, values, path, found)


def check_args_class(kind: object) -> None:
    """Raises ValueError when arguments could not be read into it."""
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        raise ValueError("args must be a dataclass")
    hints = get_type_hints(kind)
    for each in dataclasses.fields(kind):
        if hints[each.name] not in _KINDS:
            raise ValueError(
                f"argument {each.name} must be bool, int, float, str or tuple[str, ...]"
            )
        if each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING:
            raise ValueError(f"argument {each.name} needs a default")


def _made(kind: type[Any], values: dict[str, Any], path: str, found: Violations) -> object | None:
    """An instance; its class may refuse values, as InvalidRequest with fields or as ValueError."""
    try:
        made: object = kind(**values)
    except InvalidRequest as error:
        found.extend(each.under(path) for each in error.violations)
        return None
    except ValueError as error:
        found.add(path, str(error) or "is refused by the plugin")
        return None
    return made


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))
