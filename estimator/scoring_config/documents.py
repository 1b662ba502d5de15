"""One YAML or JSON document as plain values.

Must not know the fields of any format.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from estimator.scoring_config.faults import Fault, FaultType, InvalidConfiguration, Stage, child

# An alias repeats what it names, so a short text could unfold without end.
_MAX_VALUES = 100_000
_MAX_DEPTH = 100
_TOO_LARGE = "is too large or too deep once its aliases are followed"

_TIMESTAMP = "tag:yaml.org,2002:timestamp"
_MERGE = "tag:yaml.org,2002:merge"


class _Loader(yaml.SafeLoader):
    """YAML 1.1 as Go's decoders read it: a date is a string."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def load_document(text: str) -> Mapping[str, Any]:
    """The mapping ``text`` holds; of a key that occurs twice, the later value.

    Raises InvalidConfiguration (stage decode) when it holds anything else.
    """
    return _load(text, unique_keys=False)


def load_strict_document(text: str) -> Mapping[str, Any]:
    """The mapping ``text`` holds; a key that occurs twice is a fault too."""
    return _load(text, unique_keys=True)


def _load(text: str, *, unique_keys: bool) -> Mapping[str, Any]:
    if text.lstrip().startswith("{"):
        text = text.replace("\t", " ")  # JSON may indent with tabs, YAML may not.
    try:
        document, repeated = _parsed(text)
    except (yaml.YAMLError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise _unreadable(f"is not YAML or JSON: {reason}") from error
    except RecursionError as error:
        raise _unreadable(_TOO_LARGE) from error
    if repeated and unique_keys:
        raise InvalidConfiguration(Stage.DECODE, repeated)
    if not isinstance(document, Mapping):
        raise _unreadable("must hold one object")
    return document


def _parsed(text: str) -> tuple[object, list[Fault]]:
    """The document and the keys that occur twice in it."""
    loader = _Loader(text)
    try:
        root = loader.get_single_node()
        if root is None:
            return None, []
        repeated = list(_Walk().repeated_keys(root, "", 0))
        return loader.construct_document(root), repeated
    finally:
        loader.dispose()


class _Walk:
    """Visits every value of a document once for each place it stands in."""

    def __init__(self) -> None:
        self._values = 0

    def repeated_keys(self, node: yaml.Node, path: str, depth: int) -> Iterator[Fault]:
        self._values += 1
        if self._values > _MAX_VALUES or depth > _MAX_DEPTH:
            raise _unreadable(_TOO_LARGE)
        if isinstance(node, yaml.SequenceNode):
            for position, item in enumerate(node.value):
                yield from self.repeated_keys(item, f"{path}[{position}]", depth + 1)
        elif isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in node.value:
                line = key.start_mark.line + 1
                if not isinstance(key, yaml.ScalarNode):
                    raise _unreadable(f"must have plain text for keys (line {line})")
                field = child(path, key.value)
                if key.tag != _MERGE and key.value in seen:
                    rule = f"occurs twice in the same object (line {line})"
                    yield Fault(field=field, rule=rule, type=FaultType.DUPLICATE)
                seen.add(key.value)
                yield from self.repeated_keys(value, field, depth + 1)


def _unreadable(rule: str) -> InvalidConfiguration:
    return InvalidConfiguration(
        Stage.DECODE, [Fault(field="", rule=rule, type=FaultType.TYPE_INVALID)]
    )
