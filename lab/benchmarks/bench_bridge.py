"""The bridge: how fast bindings that arrive at once are decided and written, and what rest costs.

A fake Karmada in this process, a bridge and a control plane with its own PostgreSQL in theirs; 20
clusters that report totals. Prints figures beside their goals; must not judge anything else.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
import time
from pathlib import Path

from federation.runtime.addresses import Address
from lab.benchmarks.measuring import chosen
from lab.bridges import bridge_process, control_plane
from lab.karmadas import Karmada, binding, health_address, member, new_karmada_server, page, placed
from lab.processes import cpu_seconds
from lab.verdicts import Verdicts, at_least, at_most

CLUSTERS = 20
BINDINGS = chosen(1_000, quick=50)
RESTING = chosen(10_000, quick=200)
REST_SECONDS = chosen(20.0, quick=2.0)
MOST_SECONDS = 300.0
DECIDED = re.compile(r'decisions_total\{result="placed"\} (\S+)')
PEAK = re.compile(r"VmHWM:\s+(\d+) kB")


def await_written(karmada: Karmada, count: int) -> float:
    """Until so many bindings have been scheduled and closed; the moment."""
    deadline = time.monotonic() + MOST_SECONDS
    while len(karmada.writes()) < 2 * count:
        assert time.monotonic() < deadline, f"{len(karmada.writes())} writes"
        # Counting takes the server's time.
        time.sleep(0.05)
    return time.monotonic()


def await_told(karmada: Karmada, count: int) -> None:
    """Until the events of so many bindings are made, two for each: they come behind the patches."""
    deadline = time.monotonic() + MOST_SECONDS
    while len(karmada.reasons()) < 2 * count:
        assert time.monotonic() < deadline, f"{len(karmada.reasons())} events"
        time.sleep(0.1)


def await_adopted(health: Address, count: int) -> None:
    """Until the bridge has dealt with so many bindings; those that run already are adopted."""
    deadline = time.monotonic() + MOST_SECONDS
    while not (found := DECIDED.search(asyncio.run(page(health, "/metrics")))) or (
        float(found[1]) < count
    ):
        assert time.monotonic() < deadline, found
        time.sleep(0.5)


def arrive(karmada: Karmada, start: int, count: int) -> float:
    """Seconds until bindings that are put into Karmada at once are all written."""
    documents = [binding(f"web-{start + number}", replicas=2) for number in range(count)]
    began = time.monotonic()
    karmada.put(*documents)
    return await_written(karmada, start + count) - began


def main() -> None:
    figures = Verdicts("bench_bridge")
    with tempfile.TemporaryDirectory(prefix="bench-bridge-") as name, new_karmada_server() as api:
        folder, karmada = Path(name), Karmada(api)
        karmada.put(*(member(f"m{number}", cpu="4000", pods="4000") for number in range(CLUSTERS)))
        with (
            control_plane(folder) as (_, endpoint),
            bridge_process(
                karmada, folder, endpoint, "bench", "--health-listen", "127.0.0.1:0"
            ) as bridge,
        ):
            arrive(karmada, 0, 10)
            seconds = arrive(karmada, 10, BINDINGS)
            health = asyncio.run(health_address((folder / "bridge.log").read_text))
            rate = BINDINGS / seconds
            figures.section(f"{BINDINGS} bindings at once, {CLUSTERS} clusters")
            figures.row("decided and written", rate, "/s", goal=at_least(200))
            writes = len(karmada.writes()) / (10 + BINDINGS)
            figures.row("writes of each", writes, goal=at_most(2))
            have = 10 + BINDINGS
            await_told(karmada, have)
            more = range(have, RESTING)
            karmada.put(*(placed(f"web-{number}", m1=1, m2=1) for number in more))
            await_adopted(health, have + len(more))
            before, used = len(karmada.writes()), cpu_seconds(bridge.pid)
            time.sleep(REST_SECONDS)
            share = (cpu_seconds(bridge.pid) - used) / REST_SECONDS
            figures.section(f"{max(have, RESTING)} bindings at rest")
            figures.row("CPU of one core", 100 * share, "%", goal=at_most(5))
            quiet = len(karmada.writes()) - before
            figures.row("writes", quiet, goal=at_most(0))
            status = Path(f"/proc/{bridge.pid}/status").read_text(encoding="ascii")
            peak = PEAK.search(status)
            mebibytes = int(peak[1]) / 1024 if peak else 0.0
            figures.row("memory", mebibytes, "MiB", goal=at_most(250))


if __name__ == "__main__":
    main()
