"""What following a big cluster costs the agent: first answer, first report, then a watch event.

Prints CPU and memory of agents in processes of their own; must not judge them.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc.aio

from estimator.karmada.estimator_pb2 import MaxAvailableReplicasRequest
from estimator.karmada.estimator_pb2_grpc import EstimatorStub
from lab.benchmarks.measuring import OPTIONS, arguments, chosen

EVENTS = chosen(20_000, quick=500)
SERVER = Path(__file__).with_name("big_cluster.py")


async def follow(url: str) -> None:
    """Be the agent: everything it loads is loaded here and nowhere else."""
    from estimator.agent import Agent, Rhythm
    from estimator.estimation.capacity import NodeSet
    from estimator.live import LiveSource
    from federation.model.grades import DEFAULT_MODEL, model_hash
    from federation.runtime.backoff import uniform

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


def first_answer(url: str) -> None:
    """What an agent takes from its start to its first answer to Karmada."""
    with tempfile.TemporaryDirectory() as directory:
        kubeconfig = write_kubeconfig(Path(directory) / "kubeconfig", url)
        port = free_port()
        command = [sys.executable, "-m", "estimator", "run", "--cluster", "big"]
        command += ["--kubeconfig", str(kubeconfig), "--karmada-port", str(port)]
        started = time.perf_counter()
        agent = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            asyncio.run(ask_karmada(port))
            seconds = time.perf_counter() - started
        finally:
            agent.terminate()
            _, _, used = os.wait4(agent.pid, 0)
    cpu_seconds = used.ru_utime + used.ru_stime
    print(f"              first answer: {cpu_seconds:5.2f} s CPU, {seconds:5.2f} s, from its start")


async def ask_karmada(port: int) -> None:
    # Asking before there is somebody to answer makes gRPC wait longer and longer.
    options = [("grpc.max_reconnect_backoff_ms", 100)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
        asked = MaxAvailableReplicasRequest(cluster="big")
        await EstimatorStub(channel).MaxAvailableReplicas(asked, wait_for_ready=True)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


@contextmanager
def serving(nodes: int, pods: int) -> Iterator[str]:
    """The URL of a server of this size, in a process of its own."""
    command = [sys.executable, str(SERVER), str(nodes), str(pods)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield f"http://127.0.0.1:{server.stdout.readline().strip()}"
        finally:
            server.terminate()


def measure(nodes: int, pods: int) -> None:
    """Each server has one agent: who watched first would be told of the events."""
    print(f"{nodes:>6} nodes, {pods} pods")
    with serving(nodes, pods) as url:
        first_answer(url)
    with serving(nodes, pods) as url:
        subprocess.run([sys.executable, __file__, url, *OPTIONS], check=True)


def main() -> None:
    if arguments():
        asyncio.run(follow(arguments()[0]))
        return
    print("goals: 20,000 pods in 2 s CPU and 260 MiB, 100,000 in 8 s and 450 MiB, events 30 us;")
    print("first answer with 20,000 pods in 2 s CPU, all that the agent loads included")
    for nodes, pods in chosen(((5_000, 20_000), (5_000, 100_000)), quick=((200, 800),)):
        measure(nodes, pods)


if __name__ == "__main__":
    main()
