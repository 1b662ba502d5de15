"""BrowserSessions of browsers: a token is given once, and a cookie stands for it from then on.

Must not decide what a session may do. Nothing of it is written anywhere: a session ends with the
control plane that began it.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

COOKIE = "fedsched-session"
# Of a token that was given.
SECONDS = 12 * 3600
MOST_SESSIONS = 1000
SECRET_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowserSession:
    """``bearer`` is the token that was given, empty where none was needed to look.

    ``form_secret`` is in every form of a page of the session: another site cannot know it.
    """

    cookie: str = field(repr=False)
    form_secret: str = field(repr=False)
    bearer: str = field(repr=False)
    ends_at: float


class BrowserSessions:
    """Those that last, by the hash of their cookies; of too many the oldest end."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._known: OrderedDict[bytes, BrowserSession] = OrderedDict()

    def begin(self, bearer: str = "") -> BrowserSession:
        session = BrowserSession(
            cookie=secrets.token_urlsafe(SECRET_BYTES),
            form_secret=secrets.token_urlsafe(SECRET_BYTES),
            bearer=bearer,
            ends_at=self._clock() + SECONDS,
        )
        self._known[_key(session.cookie)] = session
        if len(self._known) > MOST_SESSIONS:
            # Those of visitors without a token end first: they lose nothing.
            without = (key for key, each in self._known.items() if not each.bearer)
            self._known.pop(next(without, next(iter(self._known))))
        return session

    def find(self, cookie: str) -> BrowserSession | None:
        session = self._known.get(_key(cookie))
        if session is not None and session.ends_at <= self._clock():
            self.end(session)
            return None
        return session

    def end(self, session: BrowserSession) -> None:
        self._known.pop(_key(session.cookie), None)


def _key(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode(errors="replace")).digest()
