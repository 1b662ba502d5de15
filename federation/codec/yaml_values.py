"""YAML streams as plain values: dicts, lists, text, numbers, booleans and None.

Built from parser events, so that neither depth nor aliases can exhaust the reader. Scalars follow
YAML 1.2's core schema: ``no`` and dates stay text. Must not know what the documents mean.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

import yaml

MAX_DEPTH: Final = 100
# What aliases repeat counts again each time: this is what a reader of the values would walk.
MAX_NODES: Final = 5_000_000

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_CORE: Final = "tag:yaml.org,2002:"
_TAGS: Final = {None, "!"} | {
    f"{_CORE}{name}" for name in ("str", "int", "float", "bool", "null", "map", "seq")
}
_TEXT_TAGS: Final = ("!", f"{_CORE}str")
_WORDS: Final[dict[str, Any]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
# A leading zero means octal to some readers and nothing to others, so such a word stays text.
# Python reads at most 4300 digits; nothing that is an integer here has more than 19.
_INTEGER: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,999})", re.ASCII)
_FLOAT: Final = re.compile(
    r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?", re.ASCII
)
_MERGE: Final = "<<"


class YamlError(ValueError):
    """The text is not YAML, or YAML that is not read here. ``line`` counts from 1."""

    def __init__(self, rule: str, line: int) -> None:
        super().__init__(rule)
        self.rule = rule
        self.line = line


@dataclass(slots=True, kw_only=True)
class _Collection:
    """A mapping or sequence that is still open; ``nodes`` counts its values, aliases expanded."""

    value: dict[str, Any] | list[Any]
    anchor: str | None
    nodes: int = 1
    key: str | None = None
    key_is_merge: bool = False
    merges: list[dict[str, Any]] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class _Document:
    """A document under construction: the open collections, outermost first, and the anchors."""

    stack: list[_Collection] = field(default_factory=list)
    anchors: dict[str, tuple[Any, int]] = field(default_factory=dict)
    root: Any = None


def yaml_documents(text: str) -> Iterator[Any]:
    """Every document of a stream; raises YamlError with the line."""
    document = _Document()
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            if isinstance(event, yaml.DocumentStartEvent):
                document = _Document()
            elif isinstance(event, yaml.DocumentEndEvent):
                yield document.root
            else:
                _take(document, event)
    except yaml.YAMLError as error:
        raise _told(error, text) from error


def _told(error: yaml.YAMLError, text: str) -> YamlError:
    if isinstance(error, yaml.reader.ReaderError):
        return YamlError(str(error.reason), text.count("\n", 0, error.position) + 1)
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    return YamlError(str(problem), mark.line + 1 if mark else 1)


def _take(document: _Document, event: yaml.Event) -> None:
    if isinstance(event, yaml.ScalarEvent):
        _check_tag(event)
        value = _scalar(event)
        if event.anchor is not None:
            document.anchors[event.anchor] = (value, 1)
        _place(document, value, 1, event)
    elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
        _check_tag(event)
        if len(document.stack) >= MAX_DEPTH:
            _refuse(f"is nested deeper than {MAX_DEPTH} levels", event)
        value = {} if isinstance(event, yaml.MappingStartEvent) else []
        document.stack.append(_Collection(value=value, anchor=event.anchor))
    elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
        closed = document.stack.pop()
        if isinstance(closed.value, dict):
            _fill_in(closed.value, closed.merges)
        if closed.anchor is not None:
            document.anchors[closed.anchor] = (closed.value, closed.nodes)
        _place(document, closed.value, closed.nodes, event)
    elif isinstance(event, yaml.AliasEvent):
        if event.anchor not in document.anchors:
            _refuse(f"alias *{event.anchor} stands for nothing that is complete", event)
        value, nodes = document.anchors[event.anchor]
        _place(document, value, nodes, event)


def _place(document: _Document, value: Any, nodes: int, event: yaml.Event) -> None:
    """Puts a finished value where it belongs: as a key, a mapping's value, an item, or the root."""
    if not document.stack:
        document.root = value
        return
    parent = document.stack[-1]
    parent.nodes += nodes
    if parent.nodes > MAX_NODES:
        _refuse(f"holds more than {MAX_NODES} values, aliases expanded", event)
    if isinstance(parent.value, list):
        parent.value.append(value)
    elif parent.key is None:
        parent.key = _key(value, event)
        is_plain = isinstance(event, yaml.ScalarEvent) and event.implicit[0]
        parent.key_is_merge = is_plain and parent.key == _MERGE
    else:
        key, parent.key = parent.key, None
        if parent.key_is_merge:
            parent.merges += _merged(value, event)
        elif key in parent.value:
            _refuse(f"key {key!r} is there twice", event)
        else:
            parent.value[key] = value


def _key(value: Any, event: yaml.Event) -> str:
    """A key as text: in JSON, to which all of this maps, there is no other kind."""
    if isinstance(event, yaml.ScalarEvent):
        return str(event.value)
    if not isinstance(value, str):
        _refuse("a key must be text", event)
    return value


def _merged(value: Any, event: yaml.Event) -> list[dict[str, Any]]:
    sources = value if isinstance(value, list) else [value]
    if not all(isinstance(source, dict) for source in sources):
        _refuse("<< takes a mapping or a list of mappings", event)
    return sources


def _fill_in(mapping: dict[str, Any], merges: Sequence[dict[str, Any]]) -> None:
    """``<<`` gives what the mapping does not say itself, the first that says it."""
    for source in merges:
        for key, each in source.items():
            mapping.setdefault(key, each)


def _check_tag(event: yaml.ScalarEvent | yaml.CollectionStartEvent) -> None:
    if event.tag not in _TAGS:
        _refuse(f"tag {event.tag} is not read here", event)


def _scalar(event: yaml.ScalarEvent) -> Any:
    text = str(event.value)
    if not event.implicit[0] and event.tag in (None, *_TEXT_TAGS):
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


def _refuse(rule: str, event: yaml.Event) -> NoReturn:
    mark = event.start_mark
    raise YamlError(rule, mark.line + 1 if mark else 1)
