"""Files of documents that somebody named, read whole and checked for size before they are.

Must not know what the documents mean.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from federation.codec.documents import MAX_DOCUMENT_BYTES, Document, check_size, read_documents
from federation.model.errors import InvalidRequest, Violation

T = TypeVar("T")

STANDARD_INPUT = "-"


def documents_of(paths: Iterable[str]) -> list[Document]:
    """Every object in the files, in order; ``-`` is standard input."""
    return [document for path in paths for document in read_documents(read_text(path), source=path)]


def document_of(path: Path) -> Document:
    """The one object in a file, {} when it holds none. Raises InvalidRequest."""
    documents = documents_of([str(path)])
    if len(documents) > 1:
        raise InvalidRequest.of(str(path), f"must hold one document, not {len(documents)}")
    return documents[0] if documents else {}


def read_file(path: Path, read: Callable[[Document], T]) -> T:
    """What the one object in a file says. Raises InvalidRequest with everything that is wrong,
    under the file's name.
    """
    document = document_of(path)
    try:
        return read(document)
    except InvalidRequest as error:
        raise InvalidRequest(
            Violation(field=f"{path}: {each.field}", rule=each.rule) for each in error.violations
        ) from error


def read_text(path: str) -> str:
    """The text of a file; raises InvalidRequest naming it when it cannot be read."""
    try:
        if path == STANDARD_INPUT:
            # One byte more than is allowed is enough to know that it is too much.
            content = sys.stdin.buffer.read(MAX_DOCUMENT_BYTES + 1)
        else:
            check_size(Path(path).stat().st_size, source=path)
            with Path(path).open("rb") as file:  # Devices and pipes have no size.
                content = file.read(MAX_DOCUMENT_BYTES + 1)
        check_size(len(content), source=path)
        return content.decode("utf-8-sig")
    except OSError as error:
        raise InvalidRequest.of(path, f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidRequest.of(path, f"is not UTF-8 text (byte {error.start})") from error
