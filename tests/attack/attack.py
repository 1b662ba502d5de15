"""An attack and what must hold meanwhile, one carried out, and what was measured.

Must not know any single attack: modules of attacks have an ``ATTACKS`` each, ``registry`` has all.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tests.attack.bystanders import Witness, watched
from tests.attack.measures import Meter, metered
from tests.attack.target import Target

QUIET_SECONDS = 3.0
# An attack ends by itself; one that does not is ended.
MOST_SECONDS = 120.0
# How long memory may take to be given back.
SETTLE_SECONDS = 10.0
POLL_SECONDS = 0.1
NICENESS = 10
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

    def missed(self) -> Sequence[str]:
        """The names of goals."""
        return [name for name, most in self.attack.goals.items() if self.figures[name] > most]


def carry_out(attack: Attack, target: Target, force: float = 1.0) -> Result:
    """With bystanders, who are served in peace for a while before."""
    with metered(target.pid) as meter:
        with watched(target) as before:
            time.sleep(QUIET_SECONDS * force)
        rss_before = meter.now().rss_mib
        begun = time.monotonic()
        with watched(target) as during, _attacking(attack, target, force) as ended:
            ended()
        finished = time.monotonic()
        rss_after = _settled(meter, GROWTH * rss_before, SETTLE_SECONDS * force)
        figures = {
            "RSS before, MiB": rss_before,
            "RSS at peak, MiB": meter.peak_mib(begun),
            "RSS after, MiB": rss_after,
            "RSS after / before": rss_after / rss_before,
            "busy afterwards, s": meter.busy_seconds(finished),
            **_seen("in peace", before),
            **_seen("second caller", during),
            "second caller's p99 / in peace": _growth(before, during),
            "complaints": float(during.complaints.total()),
            "attack took, s": finished - begun,
        }
    return Result(attack=attack, figures=figures, complaints=before.complaints + during.complaints)


def _seen(name: str, witness: Witness) -> dict[str, float]:
    return {
        f"{name}'s p50, ms": witness.percentile(0.5),
        f"{name}'s p99, ms": witness.percentile(0.99),
        f"{name}'s calls": float(len(witness.answer_ms)),
    }


def _growth(before: Witness, during: Witness) -> float:
    """Of the 99th percentile; 1 where nobody called in peace."""
    in_peace = before.percentile(0.99)
    return during.percentile(0.99) / in_peace if in_peace else 1.0


def _settled(meter: Meter, wanted_mib: float, seconds: float) -> float:
    """The memory in use once it is as low as wanted, or the time for it is over."""
    until = time.monotonic() + seconds
    while (rss_mib := meter.now().rss_mib) > wanted_mib and time.monotonic() < until:
        time.sleep(POLL_SECONDS)
    return rss_mib


def _attack_from_afar(run: Callable[[Target, float], None], target: Target, force: float) -> None:
    """Who attacks has computers of their own: here what is attacked goes first."""
    os.nice(NICENESS)
    run(target, force)


@contextmanager
def _attacking(attack: Attack, target: Target, force: float) -> Iterator[Callable[[], None]]:
    """The attacker's process; what is yielded waits for its end."""
    # All that attacks need is loaded once, before any of it has threads.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.attack.registry"])
    process = context.Process(target=_attack_from_afar, args=(attack.run, target, force))
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
