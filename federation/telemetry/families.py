"""The families of metrics, out of what is counted.

Must not count anything itself, nor name a binding, a cluster or a namespace: strangers may read
them, and there must not be more of them in a larger fleet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import Any, Final

from prometheus_client import ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST as OPEN_METRICS_TYPE
from prometheus_client.openmetrics.exposition import generate_latest as generate_open_metrics
from prometheus_client.registry import Collector

from federation.model.estimate import Bound, Source
from federation.model.waiting import WaitState
from federation.rpc.measures import CallMeasures
from federation.runtime.measures import Distribution
from federation.services.binding_ports import WaitTally
from federation.services.failover.control import FailoverOverview
from federation.services.journal_ports import DutyFailure
from federation.services.pace import Shares
from federation.services.scheduling.measures import DecisionMeasures
from federation.services.waiting.keeper import QueueKeeper
from federation.services.workers import StandingProcess
from federation.telemetry.measured import Measured, Shared

_ESTIMATING: Final = "fedsched_estimating_process"
SOURCES: Final = {
    source: "unknown" if source is Source.NONE else source.name.lower() for source in Source
}


def families_of(
    measured: Measured, shared: Shared | None, certificate_ends: Mapping[str, float]
) -> list[Metric]:
    """Return all families; ``shared`` is None where the database could not be asked.

    ``certificate_ends`` are Unix seconds.
    """
    families = Families()
    families.of_calls(measured.calls)
    families.of_decisions(measured.decisions)
    families.of_queue(measured.keeper, shared.waiting if shared else None)
    if shared:
        families.of_failover(shared.failover)
        families.of_duties(shared.failing_duties)
        families.of_days(shared.days_left)
    families.of_fleet(measured)
    families.of_estimating(measured.estimating)
    families.of_limits(measured.shares)
    families.of_process(measured)
    families.of_certificates(certificate_ends)
    return families.made


def written(families: list[Metric], *, open_metrics: bool) -> tuple[bytes, str]:
    """The page, and its type."""
    write: Any = generate_open_metrics if open_metrics else generate_latest
    return write(_Made(families)), OPEN_METRICS_TYPE if open_metrics else CONTENT_TYPE_PLAIN_0_0_4


class _Made(Collector):
    """What the library writes."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


class Families:
    """Metric families, made one after the other; ``made`` are those so far."""

    def __init__(self) -> None:
        self.made: list[Metric] = []

    def of_calls(self, calls: CallMeasures) -> None:
        handled = self._counter(
            "grpc_server_handled",
            "Calls that ended, by method and code.",
            ["grpc_service", "grpc_method", "grpc_code"],
        )
        for (path, code), count in sorted(calls.ended.items()):
            handled.add_metric([*_method(path), _camel(code)], count)
        durations = HistogramMetricFamily(
            "grpc_server_handling_seconds",
            "How long calls took that are no streams.",
            labels=["grpc_service", "grpc_method"],
        )
        for path, distribution in sorted(calls.durations.items()):
            _add(durations, distribution, _method(path))
        self.made.append(durations)

    def of_decisions(self, decisions: DecisionMeasures) -> None:
        attempts = self._counter(
            "fedsched_schedule_attempts", "Decisions, by how they ended.", ["result"]
        )
        for result, count in sorted(decisions.attempts.items()):
            attempts.add_metric([result], count)
        self._histogram(
            "fedsched_scheduling_attempt_duration_seconds",
            "From the queue of decisions to the answer.",
            decisions.durations,
        )
        phases = HistogramMetricFamily(
            "fedsched_scheduling_phase_duration_seconds",
            "How long a batch of decisions was read, decided and committed.",
            labels=["phase"],
        )
        for phase, distribution in decisions.phases.items():
            _add(phases, distribution, [phase])
        self.made.append(phases)
        self._count(
            "fedsched_schedule_retries",
            "Decisions made again because others had won.",
            decisions.queue.retried,
        )
        self._count(
            "fedsched_preempted_replicas",
            "Replicas that bindings lost to others of higher priority.",
            decisions.preempted,
        )
        self._gauge(
            "fedsched_pending_decisions",
            "Decisions that are waited for by callers now.",
            len(decisions.queue),
        )

    def of_duties(self, failures: Sequence[DutyFailure]) -> None:
        failing = self._labelled(
            "fedsched_failing_duties",
            "1 for each duty of the fleet whose last round failed.",
            ["duty"],
        )
        for failure in failures:
            failing.add_metric([failure.duty], 1)

    def of_days(self, days_left: int) -> None:
        self._gauge(
            "fedsched_partition_days",
            "Days from today on for which all tables by day have partitions.",
            days_left,
        )

    def of_queue(self, keeper: QueueKeeper, waiting: Mapping[WaitState, WaitTally] | None) -> None:
        if waiting is not None:
            self._of_waiting(waiting)
        self._count("fedsched_queue_wakes", "Waiting bindings that were tried again.", keeper.tried)
        self._count(
            "fedsched_queue_rescued",
            "Those that found room although no event had told of it: a fault of ours.",
            keeper.rescued,
        )
        self._count(
            "fedsched_preemptions_overdue",
            "Waiting bindings for which those that they preempted did not leave in time.",
            keeper.nominations.overdue,
        )
        self._gauge(
            "fedsched_queue_keeper", "1 where this control plane keeps the queue.", keeper.is_held
        )

    def _of_waiting(self, waiting: Mapping[WaitState, WaitTally]) -> None:
        pending = self._labelled(
            "fedsched_pending_bindings",
            "Bindings that wait for room, in the whole fleet, by state.",
            ["queue"],
        )
        oldest = self._labelled(
            "fedsched_pending_bindings_age_max_seconds",
            "For how long the one of them has waited that came first, by state.",
            ["queue"],
        )
        for state in WaitState:
            tally = waiting.get(state, WaitTally())
            pending.add_metric([state.value], tally.bindings)
            oldest.add_metric([state.value], tally.oldest_seconds)
        self._gauge(
            "fedsched_earmarked_bindings",
            "Those of them for which room is kept.",
            sum(each.earmarked for each in waiting.values()),
        )

    def of_failover(self, failover: FailoverOverview) -> None:
        freezes = self._labelled(
            "fedsched_failover_freezes",
            "Freezes of failover that stand, of the fleet and of places, by who froze it.",
            ["scope", "by"],
        )
        fleet = [failover.freeze] if failover.freeze else []
        standing = {"fleet": fleet, "place": [each.freeze for each in failover.places]}
        for scope, found in standing.items():
            by_breaker = sum(each.is_by_breaker for each in found)
            freezes.add_metric([scope, "breaker"], by_breaker)
            freezes.add_metric([scope, "people"], len(found) - by_breaker)
        silent = self._labelled(
            "fedsched_silent_clusters",
            "Member clusters that are not heard, by whether they are lost.",
            ["lost"],
        )
        lost = sum(each.lost_since is not None for each in failover.silent)
        silent.add_metric(["true"], lost)
        silent.add_metric(["false"], len(failover.silent) - lost)
        self._gauge("fedsched_evictions", "Graceful evictions that go on.", failover.eviction_count)

    def of_fleet(self, measured: Measured) -> None:
        snapshot, now = measured.fleet.snapshot, measured.clock.now()
        ready = int(snapshot.fleet_at(now).ready_c.sum())
        clusters = self._labelled(
            "fedsched_clusters", "Member clusters, by whether they get new replicas.", ["ready"]
        )
        clusters.add_metric(["true"], ready)
        clusters.add_metric(["false"], len(snapshot.names) - ready)
        ages = snapshot.capacity.age_seconds_c(now)
        self._gauge(
            "fedsched_report_age_max_seconds",
            "The age of the oldest picture that a cluster's agent has reported.",
            float(ages.max()) if ages.size else 0.0,
        )
        self._gauge(
            "fedsched_agent_sessions",
            "Agents whose streams this control plane has.",
            len(measured.sessions.all()),
        )
        settled = self._labelled(
            "fedsched_reported_replicas",
            "Replicas of promises that agents of this control plane see, by state.",
            ["state"],
        )
        for state, replicas in measured.settling.totals(now).items():
            settled.add_metric([state], replicas)
        self._gauge(
            "fedsched_overcommitted_clusters",
            "Clusters whose promises have no room in the newest report, of those agents.",
            measured.overcommitment.clusters,
        )
        estimates = self._counter(
            "fedsched_estimates",
            "Numbers that estimates answered, by their level and what is proven of them.",
            ["source", "bound"],
        )
        for source, name in SOURCES.items():
            for bound in Bound:
                count = int(measured.availability.answered[source, bound])
                estimates.add_metric([name, bound.name.lower()], count)

    def of_estimating(self, process: StandingProcess | None) -> None:
        """All is nothing where no process is needed."""
        self._gauge(
            "fedsched_estimating_process_ready",
            "1 while a process of its own answers estimates.",
            float(process is not None and process.is_ready),
        )
        self._count(
            "fedsched_estimating_process_starts",
            "How often it was started.",
            process.starts if process else 0,
        )
        self._gauge(
            "fedsched_estimating_process_waiting",
            "Estimates that wait for their turn there.",
            process.waiting if process else 0,
        )
        self._histogram(
            "fedsched_estimating_process_duration_seconds",
            "How long estimates took there, their turn included.",
            process.durations if process else Distribution(),
        )
        used = _used_by(process.pid if process else None)
        self._count(
            "fedsched_estimating_process_cpu_seconds",
            "CPU time of the process that runs now.",
            used.get(f"{_ESTIMATING}_cpu_seconds", 0.0),
        )
        self._gauge(
            "fedsched_estimating_process_resident_memory_bytes",
            "Memory of the process that runs now.",
            used.get(f"{_ESTIMATING}_resident_memory_bytes", 0.0),
        )

    def of_certificates(self, ends: Mapping[str, float]) -> None:
        family = self._labelled(
            "fedsched_certificate_expiration_timestamp_seconds",
            "When the certificates in the file of a setting end, in Unix seconds.",
            ["file"],
        )
        for name, moment in ends.items():
            family.add_metric([name], moment)

    def of_limits(self, shares: Mapping[str, Shares]) -> None:
        limits = self._labelled("fedsched_limit", "At most so many at once.", ["limit"])
        used = self._labelled(
            "fedsched_limit_used",
            "How many there are at once; of a limit that each caller has for itself, the most.",
            ["limit"],
        )
        for name, share in shares.items():
            limits.add_metric([name], share.limit)
            used.add_metric([name], share.used)

    def of_process(self, measured: Measured) -> None:
        self._gauge(
            "fedsched_journal_age_seconds",
            "How long ago what all control planes changed was read to its end.",
            measured.following.age_seconds,
        )
        self._gauge(
            "fedsched_journal_held_seconds",
            "For how long an open transaction that may append to the journal has held back what "
            "others change; 0: none does.",
            measured.following.held_seconds,
        )
        self._histogram(
            "fedsched_event_loop_delay_seconds",
            "By how much a tick of the event loop came late.",
            measured.loop_watch.delays,
        )
        pool: Any = measured.pool
        connections = self._labelled(
            "fedsched_database_connections", "Connections of the pool, by use.", ["state"]
        )
        connections.add_metric(["used"], pool.checkedout())
        connections.add_metric(["idle"], pool.checkedin())
        self._gauge("fedsched_database_connections_limit", "At most so many are open.", pool.size())
        info = InfoMetricFamily("fedsched_build", "What runs here.")
        info.add_metric([], {"version": version("fedsched")})
        self.made.append(info)
        self.made += ProcessCollector(registry=None).collect()

    def _counter(self, name: str, text: str, labels: list[str]) -> CounterMetricFamily:
        family = CounterMetricFamily(name, text, labels=labels)
        self.made.append(family)
        return family

    def _labelled(self, name: str, text: str, labels: list[str]) -> GaugeMetricFamily:
        family = GaugeMetricFamily(name, text, labels=labels)
        self.made.append(family)
        return family

    def _count(self, name: str, text: str, value: float) -> None:
        self.made.append(CounterMetricFamily(name, text, value=value))

    def _gauge(self, name: str, text: str, value: float) -> None:
        self.made.append(GaugeMetricFamily(name, text, value=value))

    def _histogram(self, name: str, text: str, distribution: Distribution) -> None:
        family = HistogramMetricFamily(name, text, labels=[])
        _add(family, distribution, [])
        self.made.append(family)


def _used_by(pid: int | None) -> Mapping[str, float]:
    """By the names of metrics; of a process that ended, or of none, nothing."""
    if pid is None:
        return {}
    found = ProcessCollector(namespace="fedsched_estimating", pid=lambda: pid, registry=None)
    return {family.name: family.samples[0].value for family in found.collect() if family.samples}


def _add(family: HistogramMetricFamily, distribution: Distribution, labels: list[str]) -> None:
    buckets, reached = list[tuple[str, float]](), 0
    for bound, count in zip((*distribution.bounds, "+Inf"), distribution.counts, strict=True):
        reached += count
        buckets.append((bound if isinstance(bound, str) else repr(bound), reached))
    family.add_metric(labels, buckets, distribution.total)


def _method(path: str) -> list[str]:
    service, _, method = path.removeprefix("/").partition("/")
    return [service, method]


def _camel(code: str) -> str:
    """As gRPC's other languages write codes, and dashboards have them."""
    return code if code == "OK" else code.title().replace("_", "")
