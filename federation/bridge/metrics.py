"""The state of the bridge: counts, health and metrics, over plain HTTP.

Must not name a binding, a cluster or a namespace: anybody who reaches the port may ask.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from estimator.servers.health import HealthServer
from federation.bridge.agreement import Agreement
from federation.model.errors import PreconditionFailed
from federation.runtime.addresses import Address

MAX_LOGGED_FIELDS: Final = 20

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Counts:
    """Numbers since the bridge began."""

    scheduled: int = 0
    failed: int = 0
    written: int = 0
    held: int = 0
    unknown_fields: Counter[str] = field(default_factory=Counter)

    def add(self, *, is_scheduled: bool, is_written: bool) -> None:
        """Count a decision that Karmada has by now."""
        self.scheduled += is_scheduled
        self.failed += not is_scheduled
        self.written += is_written

    @property
    def text(self) -> str:
        """All of them in one line, for the log."""
        parts = [
            f"{self.scheduled} placed",
            f"{self.failed} not placed",
            f"{self.written} written",
        ]
        if self.held:
            parts.append(f"{self.held} kept that Karmada does not list")
        if self.unknown_fields:
            fields = ", ".join(sorted(self.unknown_fields)[:MAX_LOGGED_FIELDS])
            parts.append(f"fields of a newer Karmada passed over: {fields}")
        return "; ".join(parts)


@dataclass(slots=True, kw_only=True)
class BridgeState:
    """The state that is served. A bridge that stands by for the lease is alive and ready."""

    counts: Counts = field(default_factory=Counts)
    agreement: Agreement = field(default_factory=Agreement)
    is_working: bool = False
    alive: Callable[[], bool] = lambda: True
    ready: Callable[[], bool] = lambda: True

    def is_alive(self) -> bool:
        return self.alive()

    def is_ready(self) -> bool:
        return self.ready()


@asynccontextmanager
async def served(listen: Address | None, state: BridgeState) -> AsyncIterator[None]:
    """Serve the state until the end of the block, where there is an address.

    Raises PreconditionFailed.
    """
    if listen is None:
        yield
        return
    server = HealthServer(state.is_alive, state.is_ready, lambda: metrics_page(state))
    try:
        port = await server.start(listen.host, listen.port)
    except OSError as error:
        raise PreconditionFailed(f"--health-listen: {listen}: {error.strerror}") from error
    logger.info("health and metrics at %s", Address(host=listen.host, port=port))
    try:
        yield
    finally:
        server.stop()


def metrics_page(state: BridgeState) -> tuple[bytes, str]:
    """Return the page as Prometheus reads it, and its type."""
    # Few bridges are scraped, and loading it takes a twentieth of a second.
    from prometheus_client.core import (  # noqa: PLC0415 - see above
        CounterMetricFamily,
        GaugeMetricFamily,
    )
    from prometheus_client.exposition import (  # noqa: PLC0415 - see above
        CONTENT_TYPE_PLAIN_0_0_4,
        generate_latest,
    )

    counts = state.counts
    decisions = CounterMetricFamily(
        "fedsched_bridge_decisions",
        "Decisions told to Karmada, by what came of it.",
        labels=["result"],
    )
    decisions.add_metric(["placed"], counts.scheduled)
    decisions.add_metric(["not_placed"], counts.failed)
    comparisons = CounterMetricFamily(
        "fedsched_bridge_shadow_comparisons",
        "Decisions of karmada-scheduler: whether ours is the same, or why not.",
        labels=["occasion", "result"],
    )
    for (occasion, cause), count in sorted(state.agreement.counts.items()):
        comparisons.add_metric([occasion.value, cause.value], count)
    families = [
        GaugeMetricFamily(
            "fedsched_bridge_working", "1 where it works, 0 where it stands by.", state.is_working
        ),
        decisions,
        CounterMetricFamily(
            "fedsched_bridge_writes", "Bindings that something was written to.", counts.written
        ),
        GaugeMetricFamily(
            "fedsched_bridge_held_bindings",
            "Bindings that are kept although Karmada does not list them.",
            counts.held,
        ),
        CounterMetricFamily(
            "fedsched_bridge_unknown_fields",
            "Fields of a newer Karmada that were passed over.",
            counts.unknown_fields.total(),
        ),
        comparisons,
    ]
    write: Any = generate_latest
    return write(_Families(families)), CONTENT_TYPE_PLAIN_0_0_4


class _Families:
    """A collector, as the library takes it."""

    def __init__(self, families: list[Any]) -> None:
        self._families = families

    def collect(self) -> list[Any]:
        return self._families
