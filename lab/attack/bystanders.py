"""Those who are to notice nothing: a caller who schedules, and a kubelet that probes.

Must not be slowed down by an attack other than through the control plane: they have a process of
their own.
"""

from __future__ import annotations

import http.client
import itertools
import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any
from urllib.parse import urlsplit

import grpc

from federation.v1.resource_pb2 import ObjectMeta, ResourceBinding
from federation.v1.scheduling_pb2 import OUTCOME_SCHEDULED, Outcome, ScheduleRequest
from federation.v1.scheduling_pb2_grpc import SchedulingStub
from lab.attack.target import CLUSTER, Target

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
    """What bystanders saw: how long answers took, and everything that was not as it should be; each
    with the moment when it began, by the monotonic clock that all processes share.
    """

    answers: list[tuple[float, float]] = field(default_factory=list)
    complaints: list[tuple[float, str]] = field(default_factory=list)

    def within(self, start: float, end: float) -> Witness:
        """What began in that time."""
        return Witness(
            answers=[each for each in self.answers if start <= each[0] < end],
            complaints=[each for each in self.complaints if start <= each[0] < end],
        )

    def percentile(self, share: float) -> float:
        """Of how long answers took, in milliseconds; 0 where there was none."""
        ordered = sorted(millis for _, millis in self.answers)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else 0.0


@contextmanager
def watched(target: Target) -> Iterator[Callable[[], Witness]]:
    """Bystanders who go on until they are asked what they saw, or until the end of the block."""
    ours, theirs = multiprocessing.Pipe()
    process = forking().Process(target=_stand_by, args=(target, theirs))
    process.start()
    try:
        assert ours.poll(CALL_SECONDS), "the bystanders did not begin"
        ours.recv()

        def asked() -> Witness:
            ours.send("what did you see?")
            witness = ours.recv()
            assert isinstance(witness, Witness)
            return witness

        yield asked
    finally:
        ours.close()
        process.join(2 * CALL_SECONDS)
        if process.is_alive():
            process.kill()
            process.join()


def forking() -> Any:
    """How processes are made here: all they need is loaded once, before any of it has threads."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["lab.attack.registry"])
    return context


def _stand_by(target: Target, asker: Connection) -> None:
    witness, done = Witness(), threading.Event()
    parts: tuple[Callable[[Target, Witness, threading.Event], None], ...] = (_schedule, _probe)
    threads = [threading.Thread(target=part, args=(target, witness, done)) for part in parts]
    for thread in threads:
        thread.start()
    asker.send("begun")
    # Nobody asks any more where the other end is closed.
    with suppress(EOFError, OSError):
        asker.recv()
    done.set()
    for thread in threads:
        thread.join()
    with suppress(OSError):
        asker.send(witness)


def _schedule(target: Target, witness: Witness, done: threading.Event) -> None:
    with target.channel() as channel:
        stub: Any = SchedulingStub(channel)
        while not done.wait(PAUSE_SECONDS):
            begun = time.monotonic()
            try:
                answer = stub.Schedule(_request(), metadata=target.metadata, timeout=CALL_SECONDS)
            except grpc.RpcError as error:
                witness.complaints.append((begun, f"Schedule: {error.code().name}"))
                continue
            finally:
                witness.answers.append((begun, 1000 * (time.monotonic() - begun)))
            outcome = answer.decision.outcome
            if outcome != OUTCOME_SCHEDULED:
                witness.complaints.append((begun, f"Schedule: {Outcome.Name(outcome)}"))


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
            begun = time.monotonic()
            if (status := _status(site, page)) != OK:
                witness.complaints.append((begun, f"{page}: {status or 'no answer'}"))


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
