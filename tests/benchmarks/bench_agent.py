"""What following a big cluster costs the agent: the first report, then a watch event.

Prints CPU and memory of an agent in a process of its own; must not judge them.
"""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

EVENTS = 20_000
SERVER = Path(__file__).with_name("big_cluster.py")


async def follow(url: str) -> None:
    """Be the agent: everything it loads is loaded here and nowhere else."""
    from estimator.agent import Agent, Rhythm
    from estimator.app import uniform
    from estimator.estimation.capacity import NodeSet
    from estimator.live import LiveSource
    from federation.model.grades import DEFAULT_MODEL, model_hash

    with tempfile.TemporaryDirectory() as directory:
        kubeconfig = write_kubeconfig(Path(directory) / "kubeconfig", url)
        source = LiveSource(kubeconfig, NodeSet.SCHEDULABLE, clock=time.time, uniform=uniform)
        following = asyncio.create_task(source.follow())
        started, cpu_started = time.perf_counter(), time.process_time()
        await source.ready()
        agent = Agent(source.member, epoch=1, clock=time.time)
        agent.welcome(
            Rhythm(
                model=DEFAULT_MODEL,
                model_hash=model_hash(DEFAULT_MODEL),
                heartbeat_seconds=10.0,
                report_seconds=10.0,
            )
        )
        report = await agent.report()
        cpu_seconds, seconds = time.process_time() - cpu_started, time.perf_counter() - started
        peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"{report.nodes.total:>6} nodes  first report: {cpu_seconds:5.2f} s CPU, "
            f"{seconds:5.2f} s, peak {peak_mib:4.0f} MiB"
        )
        last = f"7d3c1f1e-pods-{EVENTS - 1:06}"
        before = source.member.cache.pod(last)
        cpu_started = time.process_time()
        await asyncio.to_thread(ask, f"{url}/events?count={EVENTS}")
        while source.member.cache.pod(last) == before:  # noqa: ASYNC110 - nothing says when
            await asyncio.sleep(0.01)
        micros = (time.process_time() - cpu_started) / EVENTS * 1e6
        print(f"{report.nodes.total:>6} nodes  watch event:  {micros:5.1f} us CPU")
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


def write_kubeconfig(path: Path, url: str) -> Path:
    named = {"name": "big"}
    content = {
        "current-context": "big",
        "clusters": [{**named, "cluster": {"server": url}}],
        "users": [{**named, "user": {"token": "any"}}],
        "contexts": [{**named, "context": {"cluster": "big", "user": "big"}}],
    }
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def ask(url: str) -> None:
    with urllib.request.urlopen(url) as answer:
        answer.read()


def measure(nodes: int, pods: int) -> None:
    """Run a server and an agent, each in a process of its own."""
    command = [sys.executable, str(SERVER), str(nodes), str(pods)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = server.stdout.readline().strip()
        print(f"{nodes:>6} nodes, {pods} pods")
        try:
            subprocess.run([sys.executable, __file__, f"http://127.0.0.1:{port}"], check=True)
        finally:
            server.terminate()


def main() -> None:
    if len(sys.argv) > 1:
        asyncio.run(follow(sys.argv[1]))
        return
    print("goals: 20,000 pods in 2 s CPU and 260 MiB, 100,000 in 8 s and 450 MiB, events 30 us")
    for nodes, pods in ((5_000, 20_000), (5_000, 100_000)):
        measure(nodes, pods)


if __name__ == "__main__":
    main()
