"""An agent's metrics as Prometheus reads them.

Must not name a binding or a namespace: whoever reaches the port may ask.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from estimator.measures import AgentMeasures
from estimator.sight import Visibility
from federation.runtime.measures import Distribution


def metrics_page(measures: AgentMeasures, view: Visibility) -> tuple[bytes, str]:
    """The page, and its type."""
    # Few look, and loading it takes a twentieth of a second.
    from prometheus_client import CollectorRegistry, ProcessCollector  # noqa: PLC0415 - see above
    from prometheus_client.exposition import (  # noqa: PLC0415 - see above
        CONTENT_TYPE_PLAIN_0_0_4,
        generate_latest,
    )

    registry = CollectorRegistry()
    families: Any = _Made(measures, view)
    registry.register(families)
    ProcessCollector(registry=registry)
    return generate_latest(registry), CONTENT_TYPE_PLAIN_0_0_4


class _Made:
    """The families, of this moment."""

    def __init__(self, measures: AgentMeasures, view: Visibility) -> None:
        self._measures = measures
        self._view = view

    def collect(self) -> list[Any]:
        from prometheus_client.core import (  # noqa: PLC0415 - as the page
            CounterMetricFamily,
            GaugeMetricFamily,
            InfoMetricFamily,
        )

        measures, view = self._measures, self._view
        gauges = {
            "fedsched_agent_connected": (
                "1 while a stream to a control plane is open.",
                float(measures.is_connected),
            ),
            "fedsched_agent_picture_age_seconds": (
                "For how long nothing has shown that the picture is current.",
                view.age_seconds,
            ),
            "fedsched_agent_blind": ("1 while the cluster is not seen.", float(view.is_blind)),
            "fedsched_agent_skipped_objects": (
                "Nodes, pods and quotas that cannot be read.",
                float(view.skipped_objects),
            ),
            "fedsched_agent_report_bytes": (
                "The size of the newest report.",
                float(measures.report_bytes),
            ),
        }
        counters = {
            "fedsched_agent_reports": ("Reports that were sent.", measures.reports),
            "fedsched_agent_streams": ("Streams that a control plane let in.", measures.streams),
        }
        families: list[Any] = [
            GaugeMetricFamily(name, text, value=value) for name, (text, value) in gauges.items()
        ]
        families += [
            CounterMetricFamily(name, text, value=value) for name, (text, value) in counters.items()
        ]
        info = InfoMetricFamily("fedsched_agent_build", "What runs here.")
        info.add_metric([], {"version": version("fedsched")})
        return [*families, *_labelled(measures), _lists(measures.lists), info]


def _labelled(measures: AgentMeasures) -> list[Any]:
    from prometheus_client.core import CounterMetricFamily  # noqa: PLC0415 - as the page

    labelled: dict[str, tuple[str, str, Mapping[str, int]]] = {
        "fedsched_agent_questions": (
            "Questions of control planes.",
            "kind",
            measures.questions,
        ),
        "fedsched_agent_watched_changes": (
            "Changes that watches brought.",
            "resource",
            measures.changes,
        ),
        "fedsched_agent_watch_failures": (
            "Lists and watches that failed.",
            "resource",
            measures.troubles,
        ),
    }
    families = []
    for name, (text, label, counts) in labelled.items():
        family = CounterMetricFamily(name, text, labels=[label])
        for value, count in sorted(counts.items()):
            family.add_metric([value], count)
        families.append(family)
    return families


def _lists(lists: Mapping[str, Distribution]) -> Any:
    from prometheus_client.core import HistogramMetricFamily  # noqa: PLC0415 - as the page

    family = HistogramMetricFamily(
        "fedsched_agent_list_duration_seconds",
        "How long the API server took to list a resource.",
        labels=["resource"],
    )
    for resource, distribution in sorted(lists.items()):
        family.add_metric([resource], cumulated(distribution), distribution.total)
    return family


def cumulated(distribution: Distribution) -> list[tuple[str, float]]:
    """Buckets as Prometheus has them: each with all below it."""
    buckets, reached = list[tuple[str, float]](), 0
    bounds = (*map(repr, distribution.bounds), "+Inf")
    for bound, count in zip(bounds, distribution.counts, strict=True):
        reached += count
        buckets.append((bound, reached))
    return buckets
