"""Names given on the command line.

Must not ask anybody whether what is named exists.
"""

from __future__ import annotations

from federation.model.errors import InvalidRequest


def named_binding(name: str) -> tuple[str, str]:
    """The namespace (may be empty) and the name of a binding. Raises InvalidRequest."""
    namespace, slash, binding = name.rpartition("/")
    if not binding or (slash and not namespace):
        raise InvalidRequest.of("NAMESPACE/BINDING", f"{name!r} names no binding")
    return namespace, binding
