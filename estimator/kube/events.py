"""Events at objects, as binder and bridge write them.

Must not write them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

# Kubernetes' limits of an event.
MAX_EVENT_CHARACTERS: Final = 1_024
MAX_EVENT_NAME_CHARACTERS: Final = 200


def event_body(
    about: dict[str, str],
    *,
    component: str,
    is_warning: bool,
    reason: str,
    message: str,
    now: str,
) -> dict[str, Any]:
    """Return an event at an object. Cluster-scoped objects have theirs in the namespace default."""
    name = about["name"][:MAX_EVENT_NAME_CHARACTERS]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "generateName": f"{name}.",
            "namespace": about.get("namespace") or "default",
        },
        "involvedObject": {key: value for key, value in about.items() if value},
        "type": "Warning" if is_warning else "Normal",
        "reason": reason,
        "message": message[:MAX_EVENT_CHARACTERS],
        "source": {"component": component},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }


def second_of(time: float) -> str:
    """Return a time of Unix seconds in RFC 3339."""
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
