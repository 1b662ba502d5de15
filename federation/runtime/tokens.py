"""Bearer tokens as they are written in files and variables, before they go into a header.

Must not show a token: messages name where it is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from federation.model.errors import PreconditionFailed
from federation.runtime.files import read_whole

RULE: Final = "a token is printable ASCII characters on one line"


def checked_token(text: str, where: str) -> str:
    """Return the token without white space around it. Raises PreconditionFailed for any other."""
    token = text.strip()
    if not token:
        raise PreconditionFailed(f"{where} is empty: {RULE}")
    if not (token.isascii() and token.isprintable()):
        raise PreconditionFailed(f"{where} holds no token: {RULE}")
    return token


def read_token(path: Path, what: str = "token file") -> str:
    """Return the token in a file. Raises PreconditionFailed."""
    return checked_token(read_whole(path).decode("ascii", "replace"), f"{what} {path}")
