"""Text to documents: YAML (several), JSON, and Kubernetes lists, as plain mappings.

Must not know what kinds there are nor open files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from federation.codec.yaml_values import YamlError, yaml_documents
from federation.model.errors import InvalidRequest

MAX_DOCUMENT_BYTES: Final = 16 * 1024 * 1024

Document = Mapping[str, Any]


def read_documents(text: str, *, source: str) -> list[Document]:
    """Every object in ``text``, lists flattened, empty documents left out.

    Raises InvalidRequest with ``source`` and the line for text that is neither YAML nor JSON, for
    anything that is no object, and for text beyond MAX_DOCUMENT_BYTES.
    """
    try:
        check_size(len(text.encode()), source=source)
    except UnicodeEncodeError as error:
        raise InvalidRequest.of(source, "is not text that can be written as UTF-8") from error
    return [
        document
        for position, value in enumerate(_values(text, source), start=1)
        for document in _flattened(value, f"{source}: document {position}")
    ]


def check_size(size_bytes: int, *, source: str) -> None:
    """Raises InvalidRequest when a text of this size is not read."""
    if size_bytes > MAX_DOCUMENT_BYTES:
        raise InvalidRequest.of(
            source,
            f"is {size_bytes} bytes long: at most {MAX_DOCUMENT_BYTES} (16 MiB) are read at once",
        )


def read_json(text: str | bytes, *, source: str) -> Any:
    """One JSON value, strictly: no NaN, no key twice. Raises InvalidRequest naming the place."""
    try:
        return json.loads(text, object_pairs_hook=_once_each, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise InvalidRequest.of(source, f"is not JSON: {error.msg} at {where}") from error
    except RecursionError as error:
        raise InvalidRequest.of(source, "is nested too deeply") from error
    except ValueError as error:
        raise InvalidRequest.of(source, f"is not JSON: {error}") from error


def _values(text: str, source: str) -> list[Any]:
    if text.lstrip()[:1] in ("{", "["):
        try:
            value = read_json(text, source=source)
            if "\\ud" in text.lower():
                _check_unicode(value, source)
        except InvalidRequest as failure:
            # Braces also begin YAML's flow style, and JSON documents may be divided by "---".
            return _yaml_values(text, source, otherwise=failure)
        return [value]
    return _yaml_values(text, source, otherwise=None)


def _check_unicode(value: Any, source: str) -> None:
    """JSON can spell half of a surrogate pair, which is no character and cannot be written."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest.of(source, "holds half of a surrogate pair") from error


def _yaml_values(text: str, source: str, *, otherwise: InvalidRequest | None) -> list[Any]:
    try:
        return list(yaml_documents(text))
    except YamlError as error:
        if otherwise is not None:
            raise otherwise from error
        rule = f"is not YAML that can be read: {error.rule}"
        raise InvalidRequest.of(f"{source}, line {error.line}", rule) from error


def _flattened(value: Any, path: str) -> Iterator[Document]:
    """The objects in a value: itself, the items of a Kubernetes list, or of a plain list."""
    if value is None:
        return
    items = value if isinstance(value, list) else _list_items(value)
    if items is not None:
        for position, item in enumerate(items):
            yield from _flattened(item, f"{path}, item {position}")
    elif isinstance(value, Mapping):
        yield value
    else:
        raise InvalidRequest.of(path, "must be an object with apiVersion and kind")


def _list_items(value: Any) -> list[Any] | None:
    """The items of a v1 List or a typed one (ClusterList), whose items may leave their kind out."""
    if not isinstance(value, Mapping):
        return None
    kind, items = value.get("kind"), value.get("items")
    if not (isinstance(kind, str) and kind.endswith("List") and isinstance(items, list | None)):
        return None
    if kind == "List":
        return items or []
    type_meta = {"apiVersion": value.get("apiVersion"), "kind": kind.removesuffix("List")}
    return [{**type_meta, **item} if isinstance(item, dict) else item for item in items or []]


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"key {key!r} is there twice")
        found[key] = value
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")
