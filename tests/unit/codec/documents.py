"""Documents that hold one thing, and what is wrong with a document. Must not read any itself."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from federation.model.errors import InvalidRequest


def at(path: str, value: object) -> dict[str, Any]:
    """The document that holds a value at a path such as ``spec.clusters[0].name``."""
    for part in reversed(re.findall(r"[^.[\]]+|\[0\]", path)):
        value = [value] if part == "[0]" else {part: value}
    assert isinstance(value, dict)
    return value


def violations(read: Callable[..., object], *arguments: Any) -> dict[str, str]:
    """The rules that reading breaks, by field."""
    with pytest.raises(InvalidRequest) as caught:
        read(*arguments)
    return {each.field: each.rule for each in caught.value.violations}
