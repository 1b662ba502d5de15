"""The page's addresses: who is let in, what is answered, and the headers that go with it.

Must not know what a view shows.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from federation.codec.rights import permission_for
from federation.model.access import EVERYTHING, Role, Scope
from federation.model.errors import (
    AlreadyExists,
    Conflict,
    DeadlineMissed,
    FederationError,
    InvalidRequest,
    LimitExceeded,
    NotFound,
    PermissionRefused,
    PreconditionFailed,
    Unauthenticated,
    Unavailable,
)
from federation.model.quotations import page_without_quotations
from federation.runtime.addresses import Address
from federation.runtime.settings import UiAccess
from federation.services.audited_calls import AuditedCall, audit_from_now, current_call
from federation.services.values import Principal
from federation.web.ui.admission import (
    Admission,
    SignInNeeded,
    Visitor,
    address_of,
    comes_from_elsewhere,
    fields_of,
    is_private,
    is_same_origin,
    page_of_ours,
    place_of,
)
from federation.web.ui.asking import Asking
from federation.web.ui.comparing import Comparing
from federation.web.ui.drawing import drawn
from federation.web.ui.events import Pulse
from federation.web.ui.fragments import Fragments, SharedView
from federation.web.ui.plan_views import PlanViews
from federation.web.ui.use_cases import UseCases
from federation.web.ui.views import Page, Views
from federation.web.ui.what_if_views import WhatIfViews

HEADERS: Final = {
    "content-security-policy": "default-src 'none'; style-src 'self'; script-src 'self'; "
    "img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    # With no referrer at all browsers would not say where a form comes from.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
CODES: Final = {
    InvalidRequest: 400,
    Unauthenticated: 401,
    PermissionRefused: 403,
    NotFound: 404,
    AlreadyExists: 409,
    Conflict: 409,
    PreconditionFailed: 409,
    LimitExceeded: 429,
    Unavailable: 503,
    DeadlineMissed: 504,
}
TITLES: Final = {404: "Not found", 500: "Something went wrong"}
SEE_OTHER = 303
# With it our script asks for what a page shows now, without what is around that.
REFRESH: Final = "fedsched-refresh"
# Views that not everybody may look at.
ROLES: Final = {"/audit": permission_for("Access/ListAudit").roles}
# For what a form asks for: other connections end before a plan of a large fleet is drafted.
ANSWER_SECONDS: Final = 120.0
# As the audit calls it; actions have the names of the calls that do the same.
SIGNS_IN: Final = "Page/SignIn"
RESULTS: Final = {
    InvalidRequest: "INVALID_ARGUMENT",
    Unauthenticated: "UNAUTHENTICATED",
    PermissionRefused: "PERMISSION_DENIED",
    NotFound: "NOT_FOUND",
    AlreadyExists: "ALREADY_EXISTS",
    Conflict: "ABORTED",
    PreconditionFailed: "FAILED_PRECONDITION",
    LimitExceeded: "RESOURCE_EXHAUSTED",
    Unavailable: "UNAVAILABLE",
    DeadlineMissed: "DEADLINE_EXCEEDED",
}

MOST_SAID_CHARACTERS: Final = 400

PageView: TypeAlias = Callable[[Request, Scope], Awaitable[Page]]
PageAnswer: TypeAlias = Callable[[Request], Awaitable[Response]]

logger = logging.getLogger(__name__)


class Action(NamedTuple):
    """What a form asks for: the method of the API that does the same, who may call that, and what
    does it, answering where its outcome is to be seen.
    """

    method: str
    act: Callable[[Mapping[str, str], Principal], Awaitable[str]]


async def _sent_on(request: Request) -> Response:
    """To the form. A browser that follows a link of another site keeps a strict cookie to itself:
    sent on by a page of ours, it brings it along.
    """
    place = place_of(request)
    if comes_from_elsewhere(request):
        return HTMLResponse(await drawn("again", place=place))
    return RedirectResponse(f"/ui/sign-in?next={quote(place, safe='')}", status_code=SEE_OTHER)


def _plain(text: str) -> str:
    """As a record may hold it: a form has room for much, and PostgreSQL takes no NUL."""
    kept = text[:MOST_SAID_CHARACTERS]
    return "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in kept
    )


def _call_of(method: str, request: Request, principal: Principal | None) -> AuditedCall:
    """As the audit names it."""
    return AuditedCall(
        actor="somebody unknown" if principal is None else str(principal),
        is_known=principal is not None,
        credential_id="" if principal is None else principal.credential_id,
        address=address_of(request),
        method=method,
    )


def refuse_others(principal: Principal | None, roles: Collection[Role]) -> Principal:
    """Who has given a token of one of the roles. Raises PermissionRefused for all others."""
    if principal is None or principal.role not in roles:
        raise PermissionRefused(f"It takes a token of the role {' or '.join(sorted(roles))}.")
    return principal


class Ui:
    """The page: its ``routes``, and what is told of changes until it is closed."""

    def __init__(self, use_cases: UseCases, access: UiAccess, listen: Address) -> None:
        self._clock = use_cases.clock
        self._admission = Admission(use_cases.identity, use_cases.clock, access, listen)
        self._trail = use_cases.audit
        self._views = views = Views(use_cases)
        # Those that change by themselves, and have no forms.
        self._live_views: dict[str, PageView] = {
            "/": views.fleet,
            "/cluster": views.cluster,
            "/bindings": views.bindings,
            "/binding": views.binding,
            "/queue": views.queue,
            "/gangs": views.gangs,
            "/gang": views.gang,
            "/decision": views.decision,
            "/audit": views.audit,
        }
        self._fragments = Fragments(use_cases.clock, self._fragment)
        self._asking = Asking(use_cases)
        self._comparing = Comparing(use_cases)
        self._plans = PlanViews(use_cases.plans)
        self._what_ifs = WhatIfViews(use_cases)
        self._pulse = Pulse()
        self._is_off = access is UiAccess.OFF
        if not self._is_off:
            use_cases.fleet.observe(self._pulse.changed)

    @property
    def routes(self) -> list[BaseRoute]:
        """None where the page is off."""
        if self._is_off:
            return []
        pages: dict[str, PageView] = {
            "/ask": self._asking.ask,
            "/compare": self._comparing.form,
            "/what-if": self._what_ifs.form,
            "/plans": self._plans.plans,
            "/plan": self._plans.plan,
            "/about": self._views.about,
        }
        answers: dict[str, PageAnswer] = {
            "/sign-in": self._sign_in,
            "/sign-out": self._sign_out,
            "/preview": self._previewing(self._asking.preview),
            "/compare": self._previewing(self._comparing.compare),
            "/what-if": self._previewing(self._what_ifs.play),
        }
        plans = self._plans
        actions = {
            "/commit": Action("Scheduling/Schedule", self._committed),
            "/plans": Action("Rebalance/CreatePlan", plans.create),
            "/plan/approve": Action("Rebalance/ApprovePlan", plans.approve),
            "/plan/stop": Action("Rebalance/StopPlan", plans.stop),
        }
        answers |= {path: self._acting(action) for path, action in actions.items()}
        files = StaticFiles(directory=Path(__file__).parent / "static")
        inside: list[BaseRoute] = [
            *(Route(path, self._live(path), methods=["GET"]) for path in self._live_views),
            *(Route(path, self._shown(view), methods=["GET"]) for path, view in pages.items()),
            *(Route(path, self._guarded(each), methods=["POST"]) for path, each in answers.items()),
            Route("/sign-in", self._guarded(self._sign_in_page), methods=["GET"]),
            Route("/events", self._guarded(self._events), methods=["GET"]),
            Mount("/static", files),
        ]
        to_page = RedirectResponse("/ui/", status_code=SEE_OTHER)
        return [Route("/", to_page), Route("/ui", to_page), Mount("/ui", routes=inside)]

    async def keep_looking(self) -> None:
        """At what pages show of the past, until it is cancelled."""
        if not self._is_off:
            await self._views.keep_looking()

    def close(self) -> None:
        """Nobody is told of changes any more."""
        self._pulse.close()

    def _shown(self, view: PageView) -> PageAnswer:
        """For everybody who may look."""

        async def answer(request: Request) -> Response:
            visitor = await self._admission.visitor(request)
            return await self._response(request, visitor, await view(request, visitor.scope))

        return self._guarded(answer)

    def _live(self, path: str) -> PageAnswer:
        """The same for a page without forms: its script is sent what changed on it alone, which
        others who see as much may be sent, too.
        """
        view, roles = self._live_views[path], ROLES.get(path)

        async def answer(request: Request) -> Response:
            visitor = await self._admission.visitor(request)
            if roles is not None:
                if visitor.principal is None:
                    raise SignInNeeded
                refuse_others(visitor.principal, roles)
            if REFRESH in request.headers:
                query = request.scope["query_string"]
                shared = SharedView(path=path, query=query, role=visitor.role, scope=visitor.scope)
                return HTMLResponse(await self._fragments.find(shared))
            return await self._response(request, visitor, await view(request, visitor.scope))

        return self._guarded(answer)

    async def _fragment(self, shared: SharedView) -> str:
        """Of a live page; whoever asks for it brings nothing else along."""
        address = {"type": "http", "path": f"/ui{shared.path}", "query_string": shared.query}
        request = Request({**address, "headers": []})
        page = await self._live_views[shared.path](request, shared.scope)
        fragment = await self._drawn(request, Visitor(), page, is_whole=False)
        is_everything = shared.scope == EVERYTHING
        return fragment if is_everything else page_without_quotations(fragment)

    def _guarded(self, answer: PageAnswer) -> PageAnswer:
        """With the headers of all pages, and a page for every error."""

        async def guarded(request: Request) -> Response:
            try:
                response = await answer(request)
            except SignInNeeded:
                response = await _sent_on(request)
            except FederationError as error:
                visitor = await self._known(request)
                self._record(error, request, visitor.principal)
                response = await self._error(request, error, visitor)
            except Exception:
                logger.exception("page failed", extra={"fields": {"path": request.url.path}})
                told = FederationError("Something unexpected went wrong; the log says what.")
                self._record(told, request, None)
                response = await self._error(request, told, Visitor())
            response.headers.update(HEADERS)
            return response

        return guarded

    def _record(
        self, error: FederationError, request: Request, principal: Principal | None
    ) -> None:
        """In the audit: a change that failed, and who may not do what was asked."""
        call = current_call()
        if call is None and not isinstance(error, Unauthenticated | PermissionRefused):
            return
        if call is None:
            call = _call_of(f"Page{request.url.path.removeprefix('/ui')}", request, principal)
        result = next(
            (RESULTS[kind] for kind in type(error).__mro__ if kind in RESULTS), "INTERNAL"
        )
        record = call.record(result=result, reason=_plain(error.message))
        self._trail.refused(record, sparingly=not call.is_known)

    async def _known(self, request: Request) -> Visitor:
        """Who asks, or nobody: what is refused needs no token."""
        try:
            return await self._admission.visitor(request)
        except (SignInNeeded, FederationError):
            return Visitor()

    async def _error(self, request: Request, error: FederationError, visitor: Visitor) -> Response:
        status = next((CODES[kind] for kind in type(error).__mro__ if kind in CODES), 500)
        page = Page(
            template="error",
            title=TITLES.get(status, "Not possible"),
            values={"error": error, "code": status},
            is_live=False,
            status=status,
        )
        return await self._response(request, visitor, page)

    async def _response(self, request: Request, visitor: Visitor, page: Page) -> Response:
        visitor = self._admission.for_forms(visitor) if page.has_forms else visitor
        text = await self._drawn(request, visitor, page)
        response = HTMLResponse(text, status_code=page.status)
        if page.has_forms and visitor.session is not None:
            self._admission.give_cookie(visitor.session, request, response)
        return response

    async def _drawn(
        self, request: Request, visitor: Visitor, page: Page, *, is_whole: bool = True
    ) -> str:
        drawn_page = await drawn(
            page.template,
            **{
                **page.values,
                "title": page.title,
                "path": request.url.path,
                "query": dict(request.query_params),
                "visitor": visitor,
                "is_live": page.is_live,
                "is_private": is_private(request),
                "is_whole": is_whole,
                "now": self._clock.now(),
            },
        )
        is_everything = visitor.scope == EVERYTHING
        return drawn_page if is_everything else page_without_quotations(drawn_page)

    async def _sign_in_page(self, request: Request) -> Response:
        return await self._response(request, Visitor(), self._sign_in_form(request))

    def _sign_in_form(self, request: Request, trouble: str = "", status: int = 200) -> Page:
        place = page_of_ours(request.query_params.get("next", ""))
        return Page(
            template="sign_in",
            title="Sign in",
            values={"next_page": place, "trouble": trouble},
            is_live=False,
            status=status,
        )

    async def _sign_in(self, request: Request) -> Response:
        if not is_same_origin(request):
            raise PermissionRefused("This form is not from a page here: load it again.")
        fields = await fields_of(request)
        try:
            session = await self._admission.sign_in(fields.get("token", "").strip(), request)
        except (Unauthenticated, LimitExceeded, PermissionRefused) as error:
            status = CODES[type(error)]
            record = _call_of(SIGNS_IN, request, None).record(
                result=RESULTS[type(error)], reason=error.message
            )
            self._trail.refused(record, sparingly=True)
            page = self._sign_in_form(request, error.message, status)
            return await self._response(request, Visitor(), page)
        place = page_of_ours(fields.get("next", ""))
        response = RedirectResponse(place, status_code=SEE_OTHER)
        self._admission.give_cookie(session, request, response)
        return response

    async def _sign_out(self, request: Request) -> Response:
        visitor = await self._admission.visitor(request)
        await self._admission.form(request, visitor)
        response = RedirectResponse("/ui/", status_code=SEE_OTHER)
        self._admission.sign_out(visitor, response)
        return response

    def _previewing(
        self, shown: Callable[[Mapping[str, str], Scope], Awaitable[Page]]
    ) -> PageAnswer:
        """For forms that change nothing: the answer is a page."""

        async def answer(request: Request) -> Response:
            visitor = await self._admission.visitor(request)
            fields = await self._admission.form(request, visitor)
            request.state.keep_open(ANSWER_SECONDS)
            return await self._response(request, visitor, await shown(fields, visitor.scope))

        return answer

    def _acting(self, action: Action) -> PageAnswer:
        """For the forms of an action."""

        async def answer(request: Request) -> Response:
            visitor = await self._admission.visitor(request)
            call = _call_of(action.method, request, visitor.principal)
            permission = permission_for(action.method)
            call.is_decided = permission.decides
            audit_from_now(call)
            fields = await self._admission.form(request, visitor)
            call.objects = tuple(filter(None, [_plain(fields.get("id", ""))]))
            principal = refuse_others(visitor.principal, permission.roles)
            request.state.keep_open(ANSWER_SECONDS)
            place = await action.act(fields, principal)
            return RedirectResponse(place, status_code=SEE_OTHER)

        return answer

    async def _committed(self, fields: Mapping[str, str], principal: Principal) -> str:
        scheduled = await self._asking.commit(fields, principal.scope)
        return f"/ui/decision?id={scheduled.record.id}"

    async def _events(self, request: Request) -> Response:
        await self._admission.visitor(request)
        stream = self._pulse.stream(request.state.keep_open)
        return StreamingResponse(stream, media_type="text/event-stream")
