"""Documents of identity providers over HTTP: bounded in bytes and time, never redirected.

Must not run on an event loop: it waits.
"""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from federation.model.errors import Unavailable
from federation.runtime.addresses import is_secure_url

MOST_BYTES: Final = 1 << 20
SECONDS: Final = 5.0
CHUNK_BYTES: Final = 1 << 16


class NoRedirects(HTTPRedirectHandler):
    """Who is asked answers: nobody leads us, or what we carry, to another place."""

    def redirect_request(self, *_: Any) -> None:
        """Makes the redirection the error that it is."""


def fetched(
    url: str,
    ca: Path | None = None,
    *,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> bytes:
    """What is there; with a ``body`` it is posted. Raises Unavailable."""
    if not is_secure_url(url):
        raise Unavailable(f"{url[:200]} is not asked: only https, or http on this machine, is")
    request = Request(url, data=body, headers=dict(headers or {}))  # noqa: S310 - checked above
    until = time.monotonic() + SECONDS
    try:
        handlers: list[Any] = [NoRedirects]
        if url.startswith("https:"):
            handlers.append(HTTPSHandler(context=ssl.create_default_context(cafile=ca)))
        opener = build_opener(*handlers)
        with opener.open(request, timeout=SECONDS) as response:
            content = b""
            while chunk := response.read1(CHUNK_BYTES):
                content += chunk
                if len(content) > MOST_BYTES:
                    raise Unavailable(f"{url} answers with more than {MOST_BYTES >> 20} MiB")
                if time.monotonic() > until:
                    raise Unavailable(f"{url} answers too slowly")
            return content
    except HTTPError as error:
        with error:
            raise Unavailable(f"{url} answers {error.code}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Unavailable(f"{url} does not answer: {getattr(error, 'reason', error)}") from error


def object_of(content: bytes, source: str) -> Mapping[str, Any]:
    """The JSON object that a document is. Raises Unavailable."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise Unavailable(f"{source} is no JSON") from error
    if not isinstance(document, dict):
        raise Unavailable(f"{source} is no JSON object")
    return document
