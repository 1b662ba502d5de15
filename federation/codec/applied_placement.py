"""The placement that Karmada's scheduler applied last, by the annotation that it writes.

Must not decide anything: it says whether the placement of a binding was changed since.
"""

from __future__ import annotations

import json
from typing import Final

from federation.codec.placements import read_placement
from federation.codec.strict import message_from_document
from federation.codec.violations import Violations
from federation.model.errors import InvalidRequest
from federation.v1 import resource_pb2

APPLIED_PLACEMENT: Final = "policy.karmada.io/applied-placement"


def has_new_placement(message: resource_pb2.ResourceBinding) -> bool:
    """Whether the clusters of a binding were chosen by another placement than it has now.

    False where no annotation says by which, and where the annotation cannot be read.
    """
    text = message.metadata.annotations.get(APPLIED_PLACEMENT)
    if text is None or not message.spec.clusters:
        return False
    found = Violations()
    try:
        applied = message_from_document(json.loads(text), resource_pb2.Placement)
    except (ValueError, RecursionError, InvalidRequest):
        return False
    before = read_placement(applied, "", found)
    return not found and before != read_placement(message.spec.placement, "", found)
