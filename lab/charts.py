"""Renders Helm charts that use little of Go's templates, where no helm is at hand.

Must not guess: what it does not know ends it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import yaml

_ACTION = re.compile(r"\{\{(-?)\s*(?:/\*.*?\*/|(.*?))\s*(-?)\}\}", re.DOTALL)
_WORDS = re.compile(r'"[^"]*"|\||\S+')

Values = dict[str, Any]


class _Part(NamedTuple):
    """Text, or with ``words`` an action."""

    text: str
    words: tuple[str, ...] = ()


class _Block(NamedTuple):
    """``kind`` is if, with, range or define; ``body`` and ``other`` are texts, actions, blocks."""

    kind: str
    words: tuple[str, ...]
    body: list[Any]
    other: list[Any]


class TemplateError(Exception):
    """A template that this does not know, or that refuses its values."""


def render(
    chart: Path, values: Mapping[str, Any], *, namespace: str, release: str = "fedsched"
) -> list[Values]:
    """Return the chart's objects under these values, which are merged into its own."""
    texts = rendered_texts(chart, values, namespace=namespace, release=release)
    documents: list[Values] = []
    for name, text in texts.items():
        if name.endswith(".yaml"):
            documents += filter(None, yaml.safe_load_all(text))
    return documents


def rendered_texts(
    chart: Path,
    values: Mapping[str, Any],
    *,
    namespace: str,
    release: str = "fedsched",
    service: str = "Helm",
) -> dict[str, str]:
    """Return what each template of the chart becomes, comments included, by its file name."""
    defaults = yaml.safe_load((chart / "values.yaml").read_text(encoding="utf-8"))
    facts = yaml.safe_load((chart / "Chart.yaml").read_text(encoding="utf-8"))
    root = {
        "Values": merged(defaults, values),
        "Chart": {
            "Name": facts["name"],
            "Version": facts["version"],
            "AppVersion": facts["appVersion"],
        },
        "Release": {"Name": release, "Namespace": namespace, "Service": service},
        "Files": {"Get": lambda name: (chart / name).read_text(encoding="utf-8")},
    }
    renderer = _Renderer()
    templates = sorted(
        (chart / "templates").iterdir(), key=lambda path: (path.name[0] != "_", path.name)
    )
    return {
        template.name: renderer.text(template.read_text(encoding="utf-8"), root)
        for template in templates
    }


def merged(base: Values, changes: Mapping[str, Any]) -> Values:
    made = deepcopy(base)
    for key, value in changes.items():
        is_both = isinstance(made.get(key), dict) and isinstance(value, Mapping)
        made[key] = merged(made[key], value) if is_both else value
    return made


class _Renderer:
    """Knows what the files before have defined: names that begin with _ come first."""

    def __init__(self) -> None:
        self._defined: dict[str, list[Any]] = {}

    def text(self, template: str, root: Values) -> str:
        parts = _parts(template)
        nodes, end = _nodes(parts)
        if end:
            raise TemplateError(f"{end} without a beginning")
        return self._render(nodes, root, root)

    def _render(self, nodes: list[Any], dot: Any, root: Values) -> str:
        written = []
        for node in nodes:
            if isinstance(node, _Block):
                written.append(self._block(node, dot, root))
            elif node.words:
                written.append(_shown(self._value(node.words, dot, root)))
            else:
                written.append(node.text)
        return "".join(written)

    def _block(self, block: _Block, dot: Any, root: Values) -> str:
        if block.kind == "define":
            self._defined[block.words[0].strip('"')] = block.body
            return ""
        value = self._value(block.words, dot, root)
        if not value:
            return self._render(block.other, dot, root)
        if block.kind == "range":
            return "".join(self._render(block.body, item, root) for item in value)
        return self._render(block.body, value if block.kind == "with" else dot, root)

    def _value(self, words: tuple[str, ...], dot: Any, root: Values) -> Any:
        """A pipeline: what comes before a bar is the last argument of what comes behind it."""
        value: Any = None
        for number, call in enumerate(_split(words)):
            arguments = [self._operand(each, dot, root) for each in call[1:]]
            if number:
                arguments.append(value)
            if call[0] == "include":
                value = self._render(self._defined[arguments[0]], arguments[1], root)
            elif call[0] == ".Files.Get":
                value = root["Files"]["Get"](*arguments)
            elif call[0] in _FUNCTIONS:
                value = _FUNCTIONS[call[0]](*arguments)
            elif len(call) == 1 and not number:
                value = self._operand(call[0], dot, root)
            else:
                raise TemplateError(f"no function {call[0]!r} is known")
        return value

    def _operand(self, word: str, dot: Any, root: Values) -> Any:
        if word.startswith('"'):
            return word[1:-1]
        if word.isdigit():
            return int(word)
        if word == "$":
            return root
        if not word.startswith((".", "$.")):
            raise TemplateError(f"{word!r} is not known")
        found: Any = root if word.startswith("$") else dot
        for name in filter(None, word.removeprefix("$").split(".")):
            if name not in found:
                raise TemplateError(f"{word}: there is no {name}")
            found = found[name]
        return found


def _parts(template: str) -> Iterator[_Part]:
    position, trims = 0, False
    for match in _ACTION.finditer(template):
        before = template[position : match.start()]
        before = before.lstrip() if trims else before
        yield _Part(before.rstrip() if match[1] else before)
        if match[2]:
            yield _Part("", tuple(_WORDS.findall(match[2])))
        position, trims = match.end(), bool(match[3])
    rest = template[position:]
    yield _Part(rest.lstrip() if trims else rest)


def _nodes(parts: Iterator[_Part]) -> tuple[list[Any], str]:
    """Up to an ``else`` or ``end``, which is told."""
    nodes: list[Any] = []
    for part in parts:
        word = part.words[0] if part.words else ""
        if word in ("else", "end"):
            if len(part.words) > 1:
                raise TemplateError(f"{' '.join(part.words)} is not known")
            return nodes, word
        if word in ("if", "with", "range", "define"):
            body, end = _nodes(parts)
            other: list[Any] = []
            if end == "else":
                other, end = _nodes(parts)
            if end != "end":
                raise TemplateError(f"{' '.join(part.words)} has no end")
            nodes.append(_Block(word, part.words[1:], body, other))
        else:
            nodes.append(part)
    return nodes, ""


def _split(words: tuple[str, ...]) -> Iterator[list[str]]:
    call: list[str] = []
    for word in words:
        if word == "|":
            yield call
            call = []
        else:
            call.append(word)
    yield call


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _required(message: str, value: Any) -> Any:
    if value in (None, ""):
        raise TemplateError(message)
    return value


def _fail(message: str) -> Any:
    raise TemplateError(message)


def _to_json(value: Any) -> str:
    """As Go writes it: without blanks, sorted."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


class _Dumper(yaml.SafeDumper):
    """Writes again what is there twice, as Go does."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_text(self, data: str) -> yaml.ScalarNode:
        """Quote what would be read as another type in Go's way, or sums of settings differ."""
        is_text = self.resolve(yaml.ScalarNode, data, (True, False)).endswith((":str", ":yaml"))
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=None if is_text else '"')


_Dumper.add_representer(str, _Dumper.represent_text)


def _to_yaml(value: Any) -> str:
    return yaml.dump(value, Dumper=_Dumper, default_flow_style=False).rstrip("\n")


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "and": lambda *values: all(values),
    "contains": lambda part, text: part in text,
    "default": lambda other, value: value or other,
    "empty": lambda value: not value,
    "eq": lambda one, other: one == other,
    "fail": _fail,
    "ne": lambda one, other: one != other,
    "nindent": lambda count, text: "\n" + "\n".join(" " * count + t for t in text.splitlines()),
    "not": lambda value: not value,
    "quote": lambda value: f'"{value}"',
    "replace": lambda old, new, text: text.replace(old, new),
    "required": _required,
    "sha256sum": lambda text: sha256(text.encode()).hexdigest(),
    "toJson": _to_json,
    "toYaml": _to_yaml,
    "trim": str.strip,
    "trimSuffix": lambda end, text: text.removesuffix(end),
    "trunc": lambda length, text: text[:length],
}
