"""The addresses of the plain HTTP side: /ca.pem, /healthz, /readyz, and what else is to be there.

Must not know what readiness means: it is asked through a callable.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

UNCACHED = {"cache-control": "no-store"}


WhyNotReady: TypeAlias = Callable[[], Awaitable[str | None]]
# From what the Accept header says to a page and its type.
MetricsPage: TypeAlias = Callable[[str], Awaitable[tuple[bytes, str]]]


def make_site(
    *,
    ca_pem: Callable[[], bytes] | None,
    why_not_ready: WhyNotReady,
    more: Sequence[BaseRoute] = (),
) -> Starlette:
    """``ca_pem`` gives the newest authority, and is None where there is no TLS;
    ``why_not_ready`` answers None when ready.
    """
    return Starlette(routes=[_authority(ca_pem), *_probes(why_not_ready), *more])


def _authority(ca_pem: Callable[[], bytes] | None) -> Route:
    async def ca(_: Request) -> Response:
        if ca_pem is None:
            text = "this control plane serves plain text: there is no CA\n"
            return PlainTextResponse(text, status_code=404)
        return Response(ca_pem(), media_type="application/x-pem-file")

    return Route("/ca.pem", ca)


def metrics_route(page: MetricsPage) -> Route:
    """Where Prometheus asks."""

    async def metrics(request: Request) -> Response:
        content, kind = await page(request.headers.get("accept", ""))
        return Response(content, headers={**UNCACHED, "content-type": kind})

    return Route("/metrics", metrics)


def make_probe_site(*, ca_pem: Callable[[], bytes] | None, why_not_ready: WhyNotReady) -> Starlette:
    """Return the part of the site that may be published: probes, and the authority for joiners."""
    return Starlette(routes=[_authority(ca_pem), *_probes(why_not_ready)])


def _probes(why_not_ready: WhyNotReady) -> list[Route]:
    async def alive(_: Request) -> Response:
        return PlainTextResponse("ok\n", headers=UNCACHED)

    async def ready(_: Request) -> Response:
        reason = await why_not_ready()
        if reason is not None:
            return PlainTextResponse(f"{reason}\n", status_code=503, headers=UNCACHED)
        return PlainTextResponse("ready\n", headers=UNCACHED)

    return [Route("/healthz", alive), Route("/readyz", ready)]
