"""Addresses of databases: which are taken, and how they are shown without their secrets.

Must not print any part of an address that it cannot take apart for sure.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qsl, urlencode

MASK: Final = "***"
DRIVER: Final = "postgresql+asyncpg"
SCHEMES: Final = frozenset({"postgresql", "postgres", DRIVER})
FORM: Final = "must be postgresql://USER:PASSWORD@HOST:PORT/DATABASE"

_SCHEME: Final = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]{0,30})://(.*)", re.DOTALL)
# No part holds what could be the beginning of the next: otherwise a password with a character
# that is not percent-encoded would end up in the host, the path or the query.
_PARTS: Final = re.compile(
    r"(?:(?P<user>[^:/?#@\s]*)(?P<colon>:(?P<password>[^:/?#@\s]*))?@)?"
    r"(?P<place>(?:\[[0-9a-fA-F:.]+\]|[^:/?#@\s\[\]]*)(?::[0-9]{1,5})?)"
    r"(?P<path>/[^?#@\s]*)?(?:\?(?P<query>[^#@\s]*))?"
)


def parse_database_url(text: str) -> str:
    """SQLAlchemy's address for asyncpg; the spellings that psql takes are taken too.

    Raises ValueError, which repeats nothing of the text but its scheme.
    """
    written = _SCHEME.fullmatch(text)
    if written is None:
        raise ValueError(FORM)
    scheme, rest = written[1], written[2]
    if scheme not in SCHEMES:
        raise ValueError(f"{FORM}, not one that begins with {scheme}://")
    if not rest or _PARTS.fullmatch(rest) is None:
        raise ValueError(
            f"{FORM}; in a user name or password : / ? # @ and blanks are percent-encoded, "
            "such as %40 for @"
        )
    return f"{DRIVER}://{rest}"


def masked_url(url: str) -> str:
    """An address without its password, wherever in it that is written; else its scheme alone."""
    written = _SCHEME.fullmatch(url)
    if written is None:
        return MASK
    parts = _PARTS.fullmatch(written[2])
    if parts is None:
        return f"{written[1]}://{MASK}"
    secret = f":{MASK}" if parts["colon"] else ""
    user = f"{parts['user']}{secret}@" if parts["user"] is not None else ""
    shown = f"{written[1]}://{user}{parts['place']}{parts['path'] or ''}"
    if parts["query"] is None:
        return shown
    query = parse_qsl(parts["query"], keep_blank_values=True)
    masked = [(key, MASK if "pass" in key.lower() else value) for key, value in query]
    return f"{shown}?{urlencode(masked, safe='/*')}"
