"""Callers by tokens of a Kubernetes cluster's service accounts: its API server says whose they are.

Must not verify anything itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from federation.authenticators.fetching import fetched, object_of
from federation.authenticators.oidc import MOST_CHARACTERS
from federation.authenticators.subjects import KnownBearers, subject_of
from federation.model.errors import Unauthenticated, Unavailable
from federation.model.role_rules import RoleRules, Voucher
from federation.runtime.tokens import read_token
from federation.services.ports import Clock
from federation.services.threads import Threads
from federation.services.values import Principal

# A token that ends is believed for so long at most.
BELIEVED_SECONDS: Final = 60.0
PATH: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
REVIEWING: Final = Threads("reviewing of tokens", workers=4, most_waiting=100)


class TokenReviewAuthenticator:
    """Implements ``identity.Authenticator``. ``review`` asks the API server; it is called in a
    thread, and answers the status of a TokenReview.
    """

    def __init__(
        self,
        review: Callable[[str], Mapping[str, Any]],
        *,
        audience: str,
        rules: RoleRules,
        clock: Clock,
    ) -> None:
        self._review = review
        self._audience = audience
        self._rules = rules
        self._clock = clock
        self._known = KnownBearers(clock)

    def takes(self, bearer: str) -> bool:
        """Whether it has the form of a JWT, as those of service accounts have."""
        return bearer.count(".") == 2

    def knows(self, bearer: str) -> bool:
        return self._known.find(bearer) is not None

    async def identify(self, bearer: str) -> Principal:
        """Raises Unauthenticated, PermissionRefused, and Unavailable without the API server."""
        if (known := self._known.find(bearer)) is not None:
            return known
        if len(bearer) > MOST_CHARACTERS or not bearer.isascii():
            rule = f"it has more than {MOST_CHARACTERS} characters, or others than ASCII"
            raise Unauthenticated(f"The token is not valid: {rule}.")
        asked_at = self._clock.now()
        status = await REVIEWING.run(self._review, bearer)
        user = status.get("user")
        if status.get("authenticated") is not True or not isinstance(user, dict):
            raise Unauthenticated("The token is none that the API server knows.")
        if self._audience not in _texts(status.get("audiences")):
            raise Unauthenticated("The token is for another audience.")
        name = user.get("username")
        claims = {
            "username": _texts([name]),
            "groups": _texts(user.get("groups")),
            "uid": _texts([user.get("uid")]),
        }
        principal = subject_of(self._rules, Voucher.KUBERNETES, str(name or ""), claims)
        self._known.remember(bearer, principal, asked_at + BELIEVED_SECONDS)
        return principal


def reviewer(
    url: str, audience: str, token_file: Path, ca: Path | None
) -> Callable[[str], Mapping[str, Any]]:
    """Asks the API server there with the token in a file, which is renewed now and then."""

    def review(bearer: str) -> Mapping[str, Any]:
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": bearer, "audiences": [audience]},
        }
        token = read_token(token_file)
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        content = fetched(
            url.rstrip("/") + PATH, ca, body=json.dumps(body).encode(), headers=headers
        )
        status = object_of(content, "the TokenReview").get("status")
        if not isinstance(status, dict):
            raise Unavailable("the TokenReview has no status")
        return status

    return review


def _texts(values: object) -> list[str]:
    return [each for each in values if isinstance(each, str)] if isinstance(values, list) else []
