"""Karmada's bindings for tests, from the documents that a fake Karmada stores."""

from __future__ import annotations

import copy
from typing import Any

import msgspec

from bridge.karmada import KarmadaBinding, RawBinding, binding_from_raw
from lab.karmadas import binding as document_of


def read(document: dict[str, Any]) -> KarmadaBinding:
    """As the watch reads it."""
    document["metadata"].setdefault("resourceVersion", "7")
    return binding_from_raw(msgspec.convert(document, RawBinding))


def stored(
    *, status: dict[str, Any] | None = None, applied: str | None = None, **spec: Any
) -> KarmadaBinding:
    """A binding named web, of generation 1."""
    document = copy.deepcopy(document_of("web", **spec))
    document["status"] = status or {}
    if applied is not None:
        document["metadata"]["annotations"] = {"policy.karmada.io/applied-placement": applied}
    return read(document)
