"""Documents of newer Karmada versions without the fields that are not known yet.

Karmada's API server has checked them: what is new there must not stop what is old here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import Any

from federation.codec.descriptors import fields_of, inner_message
from federation.codec.karmada_fields import READ_OVER
from federation.codec.violations import joined


def known(document: Any, descriptor: Any, path: str, unknown: Counter[str]) -> Any:
    """What a message of fedsched has a field for; fields that no version is known to have are
    counted by their path, without positions.
    """
    if isinstance(document, list):
        return [known(each, descriptor, f"{path}[]", unknown) for each in document]
    if not isinstance(document, dict):
        return document
    fields = _fields_by_name(descriptor)
    kept: dict[str, Any] = {}
    for name, value in document.items():
        field = fields.get(name)
        if field is None:
            if name not in READ_OVER.get(descriptor.name, {}):
                unknown[joined(path, name)] += 1
            continue
        inner = inner_message(field)
        kept[name] = value if inner is None else known(value, inner, joined(path, name), unknown)
    return kept


@cache
def _fields_by_name(descriptor: Any) -> Mapping[str, Any]:
    return {field.json_name: field for field in fields_of(descriptor)}
