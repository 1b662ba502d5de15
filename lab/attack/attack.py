"""An attack and what must hold meanwhile, one carried out, those who are to notice nothing.

Must not know any single attack. Bystanders have a process of their own: they are slowed down by an
attack through the control plane alone.
"""

from __future__ import annotations

import http.client
import itertools
import multiprocessing
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from statistics import median
from typing import Any
from urllib.parse import urlsplit

import grpc

from federation.v1.resource_pb2 import ObjectMeta, ResourceBinding
from federation.v1.scheduling_pb2 import OUTCOME_SCHEDULED, Outcome, ScheduleRequest
from federation.v1.scheduling_pb2_grpc import SchedulingStub
from lab.attack.target import CLUSTER, Target
from lab.processes import Meter, metered

CALL_SECONDS = 60.0
ASK_PAUSE_SECONDS = 0.01
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
    context.set_forkserver_preload(["lab.attack.__main__"])
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
        while not done.wait(ASK_PAUSE_SECONDS):
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


# Two moments of the monotonic clock.
Times = tuple[float, float]

# Peace and attack by turns: what else the machine does is in both.
PAIRS = 5
QUIET_SECONDS = 4.0
# After an attack, before there is peace.
PAUSE_SECONDS = 1.0
# An attack ends by itself; one that does not is ended.
MOST_SECONDS = 120.0
# How long memory may take to be given back.
SETTLE_SECONDS = 10.0
POLL_SECONDS = 0.1
NICENESS = 19
PEAK_MIB = 400.0
GROWTH = 1.2
P99_MS = 100.0
P99_GROWTH = 2.0
BUSY_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """``run`` attacks with a share of its full force and ends; it runs in a process of its own.

    ``goals`` are upper bounds by the name of what is measured.
    """

    name: str
    run: Callable[[Target, float], None]
    goals: Mapping[str, float]


MEMORY_GOALS = {"RSS at peak, MiB": PEAK_MIB, "RSS after / before": GROWTH}
CALLER_GOALS = {
    "second caller's p99, ms": P99_MS,
    "second caller's p99 / in peace": P99_GROWTH,
    "complaints": 0.0,
}
REST_GOALS = {"busy afterwards, s": BUSY_SECONDS}
GOALS = {**MEMORY_GOALS, **CALLER_GOALS, **REST_GOALS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What was measured, by name, and what bystanders complained of."""

    attack: Attack
    figures: Mapping[str, float]
    complaints: Counter[str]


def carry_out(attack: Attack, target: Target, force: float = 1.0, pairs: int = PAIRS) -> Result:
    """Several times, with bystanders who are served in peace for a while before each."""
    peaces, attacks = [], []
    with metered(target.pid) as meter, watched(target) as what_they_saw:
        rss_before = meter.now().rss_mib
        for _ in range(pairs):
            begun = time.monotonic()
            time.sleep(QUIET_SECONDS * force)
            peaces.append((begun, time.monotonic()))
            with _attacking(attack, target, force) as ended:
                begun = time.monotonic()
                ended()
                attacks.append((begun, time.monotonic()))
            time.sleep(PAUSE_SECONDS * force)
        finished = attacks[-1][1]
        rss_after = _settled(meter, GROWTH * rss_before, SETTLE_SECONDS * force)
        saw = what_they_saw()
        in_peace = median(meter.cores(*each) for each in peaces)
        busy_seconds = _rested(meter, finished, in_peace, SETTLE_SECONDS * force)
        figures = {
            "cores in peace": in_peace,
            "RSS before, MiB": rss_before,
            "RSS at peak, MiB": meter.peak_mib(attacks[0][0]),
            "RSS after, MiB": rss_after,
            "RSS after / before": rss_after / rss_before,
            "busy afterwards, s": busy_seconds,
            **_seen("in peace", [saw.within(*each) for each in peaces]),
            **_seen("second caller", [saw.within(*each) for each in attacks]),
            "second caller's p99 / in peace": _growth(saw, peaces, attacks),
            "complaints": float(len(saw.complaints)),
            "attack took, s": sum(end - start for start, end in attacks) / pairs,
        }
    complaints = Counter(what for _, what in saw.complaints)
    return Result(attack=attack, figures=figures, complaints=complaints)


def _seen(name: str, witnesses: Sequence[Witness]) -> dict[str, float]:
    """Medians over several times."""
    return {
        f"{name}'s p50, ms": median(each.percentile(0.5) for each in witnesses),
        f"{name}'s p99, ms": median(each.percentile(0.99) for each in witnesses),
        f"{name}'s calls": float(sum(len(each.answers) for each in witnesses)),
    }


def _growth(saw: Witness, peaces: Sequence[Times], attacks: Sequence[Times]) -> float:
    """Of the 99th percentile, each time against the peace before it: the median; 1 where nobody
    called in peace.
    """
    grown = [
        saw.within(*during).percentile(0.99) / before
        for peace, during in zip(peaces, attacks, strict=True)
        if (before := saw.within(*peace).percentile(0.99))
    ]
    return median(grown) if grown else 1.0


def _settled(meter: Meter, wanted_mib: float, seconds: float) -> float:
    """The memory in use once it is as low as wanted, or the time for it is over."""
    until = time.monotonic() + seconds
    while (rss_mib := meter.now().rss_mib) > wanted_mib and time.monotonic() < until:
        time.sleep(POLL_SECONDS)
    return rss_mib


def _rested(meter: Meter, since: float, in_peace: float, seconds: float) -> float:
    """How long it was busy after ``since``; until the time for it is over, if it still is."""
    until = time.monotonic() + seconds
    while (busy := meter.busy_seconds(since, in_peace)) is None and time.monotonic() < until:
        time.sleep(POLL_SECONDS)
    return time.monotonic() - since if busy is None else busy


def _attack_from_afar(run: Callable[[Target, float], None], target: Target, force: float) -> None:
    """Who attacks has computers of their own: here what is attacked goes first."""
    os.nice(NICENESS)
    run(target, force)


@contextmanager
def _attacking(attack: Attack, target: Target, force: float) -> Iterator[Callable[[], None]]:
    """The attacker's process; what is yielded waits for its end."""
    process = forking().Process(target=_attack_from_afar, args=(attack.run, target, force))
    process.start()

    def ended() -> None:
        process.join(MOST_SECONDS)
        assert process.exitcode == 0, f"{attack.name} ended with {process.exitcode}"

    try:
        yield ended
    finally:
        if process.is_alive():
            process.kill()
        process.join()
