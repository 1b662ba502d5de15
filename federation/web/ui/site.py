"""The page's addresses: who is let in, what is answered, and the headers that go with it.

Must not know what a view shows.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import quote

from google.protobuf.message import Message
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from federation.codec.rights import PACKAGE, permission_for
from federation.model.access import EVERYTHING, Scope
from federation.model.errors import (
    FederationError,
    InvalidRequest,
    LimitExceeded,
    PermissionRefused,
    Unauthenticated,
)
from federation.model.quotations import page_without_quotations
from federation.rpc.auditing import NAME_BYTES, call_of, refusal_of
from federation.rpc.limits import SIMULATIONS, VIEWS, SharedLimit
from federation.rpc.status import code_of, shortened
from federation.runtime.addresses import Address
from federation.runtime.settings import UiAccess
from federation.services.audited_calls import audit_from_now, current_call
from federation.services.pace import Shares
from federation.services.values import Principal
from federation.v1.clusters_pb2 import GetClusterRequest
from federation.v1.rebalance_pb2 import ApprovePlanRequest
from federation.v1.scheduling_pb2 import GetBindingRequest, ScheduleRequest
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
from federation.web.ui.plan_views import PlanViews, plan_id_in, plan_in, stop_in
from federation.web.ui.requests import required_text, text_of
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
# The status of HTTP for a code of the API; 500 for all others.
STATUSES: Final = {
    "INVALID_ARGUMENT": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "ABORTED": 409,
    "FAILED_PRECONDITION": 409,
    "RESOURCE_EXHAUSTED": 429,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}
TITLES: Final = {404: "Not found", 500: "Something went wrong"}
SEE_OTHER = 303
# With it our script asks for what a page shows now, without what is around that.
REFRESH: Final = "fedsched-refresh"
# The API reads previews by Schedule; they change nothing, so that readers of decisions may look.
PREVIEWS: Final = "Scheduling/GetDecision"
# For what a form asks for: other connections end before a plan of a large fleet is drafted.
ANSWER_SECONDS: Final = 120.0
# As the audit calls it; actions have the names of the calls that do the same.
SIGNS_IN: Final = "Page/SignIn"
PageView: TypeAlias = Callable[[Request, Scope], Awaitable[Page]]
PageAnswer: TypeAlias = Callable[[Request], Awaitable[Response]]

logger = logging.getLogger(__name__)


class ViewMethod(NamedTuple):
    """A page, and the method of the API that reads the same: its callers may look at the page.

    ``ask`` makes the request of that method, where a scope is checked by it.
    """

    method: str
    show: PageView
    ask: Callable[[Request], Message] | None = None


class Action(NamedTuple):
    """A form, and the operation that it asks for; ``place`` shows the outcome of an answer."""

    method: str
    ask: Callable[[Mapping[str, str]], Message]
    place: Callable[[Any], str]


class Form(NamedTuple):
    """A form that changes nothing: its answer is a page, for callers of this method."""

    method: str
    show: Callable[[Mapping[str, str], Scope], Awaitable[Page]]
    limit: SharedLimit = VIEWS


async def _sent_on(request: Request) -> Response:
    """To the form. A browser that follows a link of another site keeps a strict cookie to itself:
    sent on by a page of ours, it brings it along.
    """
    place = place_of(request)
    if comes_from_elsewhere(request):
        return HTMLResponse(await drawn("again", place=place))
    return RedirectResponse(f"/ui/sign-in?next={quote(place, safe='')}", status_code=SEE_OTHER)


def _commit_in(fields: Mapping[str, str]) -> Message:
    """Read the form that commits a preview. Raises InvalidRequest."""
    token = fields.get("preview_token", "")
    if not token:
        raise InvalidRequest.of("preview_token", "is required")
    return ScheduleRequest(preview_token=token)


def _cluster_in(request: Request) -> Message:
    return GetClusterRequest(name=required_text(request, "name"))


def _binding_in(request: Request) -> Message:
    names = {"namespace": text_of(request, "namespace"), "name": required_text(request, "name")}
    return GetBindingRequest(**names)


def _approval_in(fields: Mapping[str, str]) -> Message:
    return ApprovePlanRequest(id=plan_id_in(fields))


def _decision_place(answer: Any) -> str:
    return f"/ui/decision?id={answer.decision.id}"


def _plan_place(answer: Any) -> str:
    return f"/ui/plan?id={answer.plan.id}"


class Ui:
    """The page: its ``routes``, and what is told of changes until it is closed."""

    def __init__(self, use_cases: UseCases, access: UiAccess, listen: Address) -> None:
        self._clock = use_cases.services.clock
        self._admission = Admission(use_cases.identity, use_cases.services.clock, access, listen)
        self._trail = use_cases.services.trail
        self._calls = use_cases.calls
        self._views = views = Views(use_cases)
        # Views that change by themselves, and have no forms.
        self._live_views = {
            "/": ViewMethod("Clusters/ListClusters", views.fleet),
            "/cluster": ViewMethod("Clusters/GetCluster", views.cluster, _cluster_in),
            "/bindings": ViewMethod("Scheduling/ListBindings", views.bindings),
            "/binding": ViewMethod("Scheduling/GetBinding", views.binding, _binding_in),
            "/queue": ViewMethod("Scheduling/ListQueue", views.queue),
            "/gangs": ViewMethod("Scheduling/ListQueue", views.gangs),
            "/gang": ViewMethod("Scheduling/ListQueue", views.gang),
            "/decision": ViewMethod("Scheduling/GetDecision", views.decision),
            "/audit": ViewMethod("Access/ListAudit", views.audit),
        }
        self._fragments = Fragments(use_cases.services.clock, self._fragment)
        self._asking = Asking(use_cases)
        self._comparing = Comparing(use_cases)
        self._plans = PlanViews(use_cases.services.plans)
        self._what_ifs = WhatIfViews(use_cases)
        self._pulse = Pulse()
        self._is_off = access is UiAccess.OFF
        if not self._is_off:
            use_cases.fleet.observe(self._pulse.changed)

    @property
    def shares(self) -> Shares:
        """The streams that tell pages of changes."""
        return self._pulse.shares

    @property
    def routes(self) -> list[BaseRoute]:
        """None where the page is off."""
        if self._is_off:
            return []
        pages = {
            "/ask": ViewMethod("Estimates/EstimateReplicas", self._asking.ask),
            "/compare": ViewMethod(PREVIEWS, self._comparing.form),
            "/what-if": ViewMethod("Scheduling/ExportTrace", self._what_ifs.form),
            "/plans": ViewMethod("Rebalance/ListPlans", self._plans.plans),
            "/plan": ViewMethod("Rebalance/GetPlan", self._plans.plan),
            "/about": ViewMethod("Failover/GetFailover", self._views.about),
        }
        forms = {
            "/preview": Form(PREVIEWS, self._asking.preview),
            "/compare": Form(PREVIEWS, self._comparing.compare),
            "/what-if": Form("Scheduling/ExportTrace", self._what_ifs.play, SIMULATIONS),
        }
        actions = {
            "/commit": Action("Scheduling/Schedule", _commit_in, _decision_place),
            "/plans": Action("Rebalance/CreatePlan", plan_in, _plan_place),
            "/plan/approve": Action("Rebalance/ApprovePlan", _approval_in, _plan_place),
            "/plan/stop": Action("Rebalance/StopPlan", stop_in, _plan_place),
        }
        answers: dict[str, PageAnswer] = {"/sign-in": self._sign_in, "/sign-out": self._sign_out}
        answers |= {path: self._previewing(form) for path, form in forms.items()}
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

    def _shown(self, view: ViewMethod) -> PageAnswer:
        """Answer all who may call the view's method."""

        async def answer(request: Request) -> Response:
            visitor = await self._let_in(request, view.method)
            async with self._reading(view, request, visitor):
                page = await view.show(request, visitor.scope)
            return await self._response(request, visitor, page)

        return self._guarded(answer)

    def _live(self, path: str) -> PageAnswer:
        """Answer for a page without forms.

        Its script gets what changed on it alone, which others who see as much may get, too.
        """
        view = self._live_views[path]

        async def answer(request: Request) -> Response:
            visitor = await self._let_in(request, view.method)
            async with self._reading(view, request, visitor):
                if REFRESH in request.headers:
                    query = request.scope["query_string"]
                    shared = SharedView(
                        path=path, query=query, role=visitor.role, scope=visitor.scope
                    )
                    return HTMLResponse(await self._fragments.find(shared))
                page = await view.show(request, visitor.scope)
            return await self._response(request, visitor, page)

        return self._guarded(answer)

    async def _let_in(self, request: Request, method: str) -> Visitor:
        """Raise SignInNeeded for a visitor without a token where looking takes a role."""
        request.state.method = f"{PACKAGE}{method}"
        visitor = await self._admission.visitor(request)
        if visitor.principal is None and visitor.caller.role not in permission_for(method).roles:
            raise SignInNeeded
        return visitor

    def _reading(
        self, view: ViewMethod, request: Request, visitor: Visitor
    ) -> AbstractAsyncContextManager[None]:
        question = None if view.ask is None else view.ask(request)
        return self._calls.reading(view.method, visitor.caller, address_of(request), question)

    async def _fragment(self, shared: SharedView) -> str:
        """Of a live page; whoever asks for it brings nothing else along."""
        address = {"type": "http", "path": f"/ui{shared.path}", "query_string": shared.query}
        request = Request({**address, "headers": []})
        page = await self._live_views[shared.path].show(request, shared.scope)
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
        """Record a change that failed, and a visitor who may not do what was asked."""
        page = f"Page{request.url.path.removeprefix('/ui')}"
        method = getattr(request.state, "method", page)
        call = current_call() or call_of(method, principal, address_of(request))
        record = refusal_of(method, call, error, is_let_in=True)
        if record is not None:
            self._trail.refused(record, sparingly=not call.is_known)

    async def _known(self, request: Request) -> Visitor:
        """Who asks, or nobody: what is refused needs no token."""
        try:
            return await self._admission.visitor(request)
        except (SignInNeeded, FederationError):
            return Visitor()

    async def _error(self, request: Request, error: FederationError, visitor: Visitor) -> Response:
        status = STATUSES.get(code_of(error).name, 500)
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
            code = code_of(error).name
            call = call_of(SIGNS_IN, None, address_of(request))
            self._trail.refused(call.record(result=code, reason=error.message), sparingly=True)
            page = self._sign_in_form(request, error.message, STATUSES[code])
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

    def _previewing(self, form: Form) -> PageAnswer:
        async def answer(request: Request) -> Response:
            visitor = await self._let_in(request, form.method)
            fields = await self._admission.form(request, visitor)
            request.state.keep_open(ANSWER_SECONDS)
            address = address_of(request)
            async with self._calls.reading(form.method, visitor.caller, address, limit=form.limit):
                page = await form.show(fields, visitor.scope)
            return await self._response(request, visitor, page)

        return answer

    def _acting(self, action: Action) -> PageAnswer:
        async def answer(request: Request) -> Response:
            visitor, address = await self._admission.visitor(request), address_of(request)
            # A form that cannot be read is recorded as a change that failed.
            call = call_of(f"{PACKAGE}{action.method}", visitor.principal, address)
            audit_from_now(call)
            fields = await self._admission.form(request, visitor)
            call.objects = tuple(filter(None, [shortened(fields.get("id", ""), NAME_BYTES)]))
            if visitor.principal is None:
                roles = " or ".join(sorted(permission_for(action.method).roles))
                raise PermissionRefused(f"It takes a token of the role {roles}.")
            request.state.keep_open(ANSWER_SECONDS)
            ask = partial(action.ask, fields)
            answered = await self._calls.perform(
                action.method, visitor.principal, address, ask, ANSWER_SECONDS
            )
            return RedirectResponse(action.place(answered), status_code=SEE_OTHER)

        return answer

    async def _events(self, request: Request) -> Response:
        visitor = await self._admission.visitor(request)
        stream = self._pulse.stream(visitor.caller.actor, request.state.keep_open)
        return StreamingResponse(stream, media_type="text/event-stream")
