"""What following a big cluster costs the agent: first answer, first report, then a watch event.

Prints CPU and memory of agents in processes of their own; must not judge them.
"""

from __future__ import annotations

import asyncio
import os
import resource
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
from federation.certificates import make_certificates
from lab.benchmarks.measuring import OPTIONS, arguments, chosen
from lab.kubeapi.documents import write_kubeconfig
from lab.servers import free_port
from lab.verdicts import Goal, Verdicts, at_most

EVENTS = chosen(20_000, quick=500)
# Seconds of CPU and MiB until the first report of so many nodes and pods.
GOALS = {(5_000, 20_000): (2.0, 260.0), (5_000, 100_000): (8.0, 450.0)}
EVENT_GOAL_MICROS, ANSWER_GOAL_SECONDS, ANSWER_PODS = 30.0, 2.0, 20_000
LARGE_ANSWER_GOAL_SECONDS = 8.0

FIGURES = Verdicts("bench_agent")
SERVER = Path(__file__).with_name("big_cluster.py")


async def follow(url: str) -> None:
    """Be the agent: everything it loads is loaded here and nowhere else."""
    from estimator.agent.agent import Agent, Rhythm
    from estimator.estimation.capacity import NodeSet
    from estimator.kube.client import KubeClient
    from estimator.live import LiveSource
    from federation.model.grades import DEFAULT_MODEL, model_hash
    from federation.runtime.backoff import uniform

    with tempfile.TemporaryDirectory() as directory:
        kubeconfig = write_kubeconfig(Path(directory) / "kubeconfig", url, "any")
        client = KubeClient(kubeconfig)
        source = LiveSource(client, NodeSet.SCHEDULABLE, clock=time.time, uniform=uniform)
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
        goals = GOALS.get((report.nodes.total, report.summary.allocated["pods"]))
        cpu_goal, memory_goal = map(at_most, goals) if goals else (None, None)
        detail = f"after {seconds:.2f} s"
        FIGURES.row("first report, CPU", cpu_seconds, "s", goal=cpu_goal, detail=detail)
        FIGURES.row("memory at most until then", peak_mib, "MiB", goal=memory_goal)
        last = f"7d3c1f1e-pods-{EVENTS - 1:06}"
        before = source.member.cache.pod(last)
        cpu_started = time.process_time()
        await asyncio.to_thread(ask, f"{url}/events?count={EVENTS}")
        while source.member.cache.pod(last) == before:  # noqa: ASYNC110 - nothing says when
            await asyncio.sleep(0.01)
        micros = (time.process_time() - cpu_started) / EVENTS * 1e6
        FIGURES.row("a watch event, CPU", micros, "us", goal=at_most(EVENT_GOAL_MICROS))
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await client.close()


def ask(url: str) -> None:
    with urllib.request.urlopen(url) as answer:
        answer.read()


def first_answer(name: str, agent: list[str], environment: dict[str, str], goal: Goal) -> None:
    """Measure what an agent takes from its start to its first answer to Karmada."""
    port = free_port()
    command = [sys.executable, *agent, "run", "--cluster", "big", "--karmada-port", str(port)]
    started = time.perf_counter()
    process = subprocess.Popen(
        command, stderr=subprocess.DEVNULL, env={**os.environ, **environment}
    )
    try:
        asyncio.run(ask_karmada(port))
        seconds = time.perf_counter() - started
    finally:
        process.terminate()
        _, _, used = os.wait4(process.pid, 0)
    cpu_seconds = used.ru_utime + used.ru_stime
    detail = f"{seconds:.2f} s, from its start, all that the agent loads included"
    FIGURES.row(f"first answer {name}, CPU", cpu_seconds, "s", goal=goal, detail=detail)
    FIGURES.row(f"memory at most until then, {name}", used.ru_maxrss / 1024, "MiB")


# The agent as in a pod, whose service account is in the folder of the first argument.
IN_POD = """
import sys
from pathlib import Path
from estimator.kube import access
access.SERVICE_ACCOUNT_FOLDER = Path(sys.argv.pop(1))
from estimator.__main__ import main
main()
"""


def answer_in_pod(nodes: int, pods: int, goal: Goal) -> None:
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        files = make_certificates(folder / "tls", ["127.0.0.1"])
        (folder / "token").write_text("any")
        (folder / "ca.crt").write_bytes(files.ca.read_bytes())
        with serving(nodes, pods, "--tls", str(files.cert), str(files.key)) as url:
            port = url.rpartition(":")[2]
            pod = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": port}
            first_answer("in a pod", ["-c", IN_POD, str(folder)], pod, goal)


def answer_by_kubeconfig(nodes: int, pods: int, goal: Goal) -> None:
    with tempfile.TemporaryDirectory() as directory, serving(nodes, pods) as url:
        kubeconfig = write_kubeconfig(Path(directory) / "kubeconfig", url, "any")
        agent = ["-m", "estimator"]
        environment = {"ESTIMATOR_KUBECONFIG": str(kubeconfig)}
        first_answer("by kubeconfig", agent, environment, goal)


async def ask_karmada(port: int) -> None:
    # Asking before there is somebody to answer makes gRPC wait longer and longer.
    options = [("grpc.max_reconnect_backoff_ms", 100)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
        asked = MaxAvailableReplicasRequest(cluster="big")
        await EstimatorStub(channel).MaxAvailableReplicas(asked, wait_for_ready=True)


@contextmanager
def serving(nodes: int, pods: int, *options: str) -> Iterator[str]:
    """The URL of a server of this size, in a process of its own."""
    command = [sys.executable, str(SERVER), str(nodes), str(pods), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield f"http://127.0.0.1:{server.stdout.readline().strip()}"
        finally:
            server.terminate()


def measure(nodes: int, pods: int) -> None:
    """Each server has one agent: who watched first would be told of the events."""
    FIGURES.section(f"{nodes:,} nodes, {pods:,} pods")
    goal = at_most(ANSWER_GOAL_SECONDS if pods == ANSWER_PODS else LARGE_ANSWER_GOAL_SECONDS)
    answer_by_kubeconfig(nodes, pods, goal)
    answer_in_pod(nodes, pods, goal)
    with serving(nodes, pods) as url:
        subprocess.run([sys.executable, __file__, url, *OPTIONS], check=True)


def main() -> None:
    if arguments():
        asyncio.run(follow(arguments()[0]))
        return
    for nodes, pods in chosen(((5_000, 20_000), (5_000, 100_000)), quick=((200, 800),)):
        measure(nodes, pods)


if __name__ == "__main__":
    main()
