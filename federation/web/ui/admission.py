"""Who may look at the page, and who may do something there.

On a loopback address everybody may look; elsewhere, and to do anything, a token is needed. Must
not know what pages show.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

from starlette.requests import Request
from starlette.responses import Response

from federation.codec.rights import permission_for
from federation.model.access import EVERYTHING, Role, Scope
from federation.model.errors import (
    FederationError,
    InvalidRequest,
    LimitExceeded,
    PermissionRefused,
    Unauthenticated,
)
from federation.runtime.addresses import Address
from federation.runtime.settings import UiAccess
from federation.services.members.identity import Identity
from federation.services.pace import Pace
from federation.services.ports import Clock
from federation.services.values import Principal, PrincipalKind

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


# Looks at the page of this machine without a token.
LOCAL = Principal(
    kind=PrincipalKind.SUBJECT, name="on this machine", credential_id="page", role=Role.VIEWER
)
MAX_FORM_BYTES = 512 * 1024
MAX_FIELDS = 20
# Wrong tokens of everybody together: each costs a look into the database.
MISTAKES, MISTAKES_PER_SECOND = 50, 5.0
# A proxy was in between: whoever asks is not on this machine.
FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "via")


class SignInNeeded(Exception):
    """The page is for those with a token, and there is no session with one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """Who asks for a page, and from where; ``principal`` is None for who gave no token."""

    session: BrowserSession | None = None
    principal: Principal | None = None
    address: str = ""
    needs_token: bool = True

    @property
    def caller(self) -> Principal:
        """The caller of what the visitor asks."""
        return self.principal or LOCAL

    @property
    def scope(self) -> Scope:
        return self.caller.scope

    @property
    def role(self) -> Role | None:
        return self.principal.role if self.principal else None

    @property
    def is_signed_in(self) -> bool:
        return self.principal is not None

    @property
    def is_admin(self) -> bool:
        return self.principal is not None and self.principal.role is Role.ADMIN

    @property
    def may_schedule(self) -> bool:
        return self._has_role_for("Scheduling/Schedule")

    @property
    def may_operate(self) -> bool:
        """Plans concern the whole fleet."""
        return self._has_role_for("Rebalance/CreatePlan") and self.scope == EVERYTHING

    def _has_role_for(self, method: str) -> bool:
        return self.principal is not None and self.principal.role in permission_for(method).roles

    @property
    def form_secret(self) -> str:
        return self.session.form_secret if self.session else ""


class Admission:
    """BrowserSessions, and the rules about them."""

    def __init__(self, identity: Identity, clock: Clock, access: UiAccess, listen: Address) -> None:
        self._identity = identity
        self._clock = clock
        self._is_open = access is UiAccess.AUTO and listen.is_loopback
        self._sessions = BrowserSessions(clock.now)
        self._mistakes = Pace(at_once=MISTAKES, per_second=MISTAKES_PER_SECOND, now=clock.now())

    async def visitor(self, request: Request) -> Visitor:
        """Raises SignInNeeded."""
        session = self._sessions.find(request.cookies.get(COOKIE, ""))
        needs_token = not self._is_open or is_forwarded(request) or not is_local(request)
        principal = None
        if session is not None and session.bearer:
            with suppress(FederationError):
                principal = await self._holder(session.bearer, request)
        if needs_token and principal is None:
            raise SignInNeeded
        return Visitor(
            session=session,
            principal=principal,
            address=address_of(request),
            needs_token=needs_token,
        )

    def for_forms(self, visitor: Visitor) -> Visitor:
        """A visitor whose page has forms; ``give_cookie`` goes with it."""
        if visitor.session is not None:
            return visitor
        return Visitor(session=self._sessions.begin(), needs_token=visitor.needs_token)

    def give_cookie(self, session: BrowserSession, request: Request, response: Response) -> None:
        response.set_cookie(
            COOKIE,
            session.cookie,
            max_age=SECONDS,
            path="/ui",
            httponly=True,
            samesite="strict",
            secure=is_encrypted(request),
        )

    async def sign_in(self, bearer: str, request: Request) -> BrowserSession:
        """Raises Unauthenticated, PermissionRefused and LimitExceeded."""
        if not is_private(request):
            raise PermissionRefused("A token is not taken over a connection that others can read.")
        now = self._clock.now()
        if not self._identity.is_known(bearer) and self._mistakes.left_at(now) < 1:
            raise LimitExceeded("There were too many wrong tokens; try again in a few seconds.")
        try:
            await self._holder(bearer, request)
        except Unauthenticated:
            self._mistakes.spend(1, now)
            raise Unauthenticated("That is not a valid token of this control plane.") from None
        before = self._sessions.find(request.cookies.get(COOKIE, ""))
        if before is not None:
            # Who had its cookie before must not be signed in with it.
            self._sessions.end(before)
        return self._sessions.begin(bearer)

    def sign_out(self, visitor: Visitor, response: Response) -> None:
        if visitor.session is not None:
            self._sessions.end(visitor.session)
        response.delete_cookie(COOKIE, path="/ui", httponly=True, samesite="strict")

    async def form(self, request: Request, visitor: Visitor) -> Mapping[str, str]:
        """The fields of a form that a page of this session sent. Raises PermissionRefused."""
        fields = await fields_of(request)
        expected = visitor.form_secret
        secret = fields.pop("form_secret", "")
        is_ours = secrets.compare_digest(secret.encode(), expected.encode())
        if not expected or not is_ours or not is_same_origin(request):
            raise PermissionRefused("This form is not from a page of this session: load it again.")
        return fields

    async def _holder(self, bearer: str, request: Request) -> Principal:
        """Who has the token: asked each time, so that a session ends when its token is revoked.

        Raises Unauthenticated and PermissionRefused.
        """
        principal = await self._identity.identify(bearer, address_of(request))
        if principal.role is None:
            raise PermissionRefused("That credential is not for people: take a token.")
        return principal


async def fields_of(request: Request) -> dict[str, str]:
    """Of a form. Raises InvalidRequest and LimitExceeded."""
    if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        raise InvalidRequest.of("content-type", "must be application/x-www-form-urlencoded")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FORM_BYTES:
            raise LimitExceeded(f"A form has at most {MAX_FORM_BYTES // 1024} KiB.")
    try:
        fields = parse_qs(
            body.decode("ascii"),
            keep_blank_values=True,
            max_num_fields=MAX_FIELDS,
            errors="strict",
        )
    except ValueError as error:
        raise InvalidRequest.of("form", "is not one that a browser sends") from error
    return {name: values[-1] for name, values in fields.items()}


def address_of(request: Request) -> str:
    return request.client.host if request.client else ""


def is_local(request: Request) -> bool:
    """Whether the browser was told to ask this machine. A name that others can point here is not
    enough: a page from elsewhere could read what it shows.
    """
    try:
        host = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
        return Address(host=host, port=0).is_loopback
    except ValueError:
        return False


def is_forwarded(request: Request) -> bool:
    return any(name in request.headers for name in FORWARDED)


def is_encrypted(request: Request) -> bool:
    """Whether the proxy before us says that it speaks TLS."""
    return request.headers.get("x-forwarded-proto", "").strip().lower() == "https"


def is_private(request: Request) -> bool:
    """Whether nobody between the browser and us can read along."""
    return is_encrypted(request) or (is_local(request) and not is_forwarded(request))


def is_same_origin(request: Request) -> bool:
    """Whether a page of ours sent it, as far as the browser says."""
    origin = request.headers.get("origin")
    if origin is None:
        return request.headers.get("sec-fetch-site", "same-origin") == "same-origin"
    return urlsplit(origin).netloc == request.headers.get("host")


def comes_from_elsewhere(request: Request) -> bool:
    """Whether a link of another site led here, so that no cookie of ours could come along."""
    site = request.headers.get("sec-fetch-site", "")
    return site in ("cross-site", "same-site") and COOKIE not in request.cookies


def place_of(request: Request) -> str:
    """What is asked for, to ask for it again."""
    query = f"?{request.url.query}" if request.url.query else ""
    return page_of_ours(f"{request.url.path}{query}")


def page_of_ours(place: str) -> str:
    """The place if it is a page here, else the first page."""
    is_ours = place.startswith("/ui/") and place.isprintable() and "\\" not in place
    return place if is_ours else "/ui/"
