"""Parts of documents by JSON path (RFC 9535), also in the spelling that people know from kubectl.

Must not know the documents.
"""

from __future__ import annotations

from typing import Any, Final

# As kubectl calls what is listed; here a list is a list.
_ITEMS: Final = "$.items"


def shown_path(text: str) -> str:
    """The path as RFC 9535 has it: ``$.metadata.name`` for ``{.metadata.name}``.

    Raises ValueError for what is none.
    """
    path = text.strip()
    if path.startswith("{") and path.endswith("}"):
        path = path[1:-1].strip()
    if "{" in path or "}" in path:
        raise ValueError("one path alone is taken, no template with text or range around paths")
    if not path:
        raise ValueError("is empty; all of it is $")
    if not path.startswith("$"):
        path = f"${path}" if path[0] in ".[" else f"$.{path}"
    _compiled(path)
    return path


def found_by(path: str, document: Any) -> list[Any]:
    """What is there, in order; ``$.items`` is a list itself, where the document is one."""
    if isinstance(document, list) and path.startswith(_ITEMS):
        document = {"items": document}
    found: list[Any] = _compiled(path).findall(document)
    return found


def _compiled(path: str) -> Any:
    # Only who asks for a path waits for the library.
    from jsonpath import JSONPathError, compile  # noqa: A004, PLC0415 - see above

    try:
        return compile(path)
    except JSONPathError as error:
        raise ValueError(str(error).partition("\n")[0]) from error
