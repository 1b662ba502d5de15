"""Those who are to notice nothing: a caller who schedules, and a kubelet that probes.

Must not be slowed down by an attack other than through the control plane.
"""

from __future__ import annotations

import http.client
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import grpc

from federation.v1.resource_pb2 import ObjectMeta, ResourceBinding
from federation.v1.scheduling_pb2 import OUTCOME_SCHEDULED, Outcome, ScheduleRequest
from federation.v1.scheduling_pb2_grpc import SchedulingStub
from tests.attack.target import CLUSTER, Target

CALL_SECONDS = 60.0
PAUSE_SECONDS = 0.01
PROBE_PAUSE_SECONDS = 0.2
OK = 200
# Attackers come from another: what an address may do is theirs to use up, not ours.
ADDRESS = "127.0.0.2"
PROBE_SECONDS = 60.0
PAGES = ("/healthz", "/readyz")

serial = itertools.count(1)


@dataclass(slots=True)
class Witness:
    """What bystanders saw: how long answers took, and everything that was not as it should be."""

    answer_ms: list[float] = field(default_factory=list)
    probes: int = 0
    complaints: Counter[str] = field(default_factory=Counter)

    def percentile(self, share: float) -> float:
        ordered = sorted(self.answer_ms)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else 0.0


@contextmanager
def watched(target: Target) -> Iterator[Witness]:
    """Bystanders who go on until the end of the block."""
    witness, done = Witness(), threading.Event()
    parts: tuple[Callable[[Target, Witness, threading.Event], None], ...] = (_schedule, _probe)
    threads = [threading.Thread(target=part, args=(target, witness, done)) for part in parts]
    for thread in threads:
        thread.start()
    try:
        yield witness
    finally:
        done.set()
        for thread in threads:
            thread.join()


def _schedule(target: Target, witness: Witness, done: threading.Event) -> None:
    with target.channel() as channel:
        stub: Any = SchedulingStub(channel)
        while not done.wait(PAUSE_SECONDS):
            begun = time.perf_counter()
            try:
                answer = stub.Schedule(_request(), metadata=target.metadata, timeout=CALL_SECONDS)
            except grpc.RpcError as error:
                witness.complaints[f"Schedule: {error.code().name}"] += 1
                continue
            finally:
                witness.answer_ms.append(1000 * (time.perf_counter() - begun))
            outcome = answer.decision.outcome
            if outcome != OUTCOME_SCHEDULED:
                witness.complaints[f"Schedule: {Outcome.Name(outcome)}"] += 1


def _request() -> ScheduleRequest:
    """One replica of a millicore: the innocent cluster never fills up."""
    number = next(serial)
    binding = ResourceBinding(metadata=ObjectMeta(namespace="innocent", name=f"web-{number}"))
    binding.spec.resource.api_version = "apps/v1"
    binding.spec.resource.kind = "Deployment"
    binding.spec.resource.name = binding.metadata.name
    binding.spec.replicas = 1
    binding.spec.replica_requirements.resource_request["cpu"] = "1m"
    binding.spec.placement.cluster_affinity.cluster_names.append(CLUSTER)
    return ScheduleRequest(binding=binding)


def _probe(target: Target, witness: Witness, done: threading.Event) -> None:
    while not done.wait(PROBE_PAUSE_SECONDS):
        pages = [(site, page) for site in (target.web, target.probes) for page in PAGES]
        for site, page in pages:
            witness.probes += 1
            if (status := _status(site, page)) != OK:
                witness.complaints[f"{page}: {status or 'no answer'}"] += 1


def _status(site: str, page: str) -> int:
    """0 when nobody answers."""
    connection = http.client.HTTPConnection(
        urlsplit(site).netloc, timeout=PROBE_SECONDS, source_address=(ADDRESS, 0)
    )
    try:
        connection.request("GET", page)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()
