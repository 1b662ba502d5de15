"""``estimator run --binder`` and ``--extender-listen`` as processes, beside an API server."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import aiohttp

from tests.binders import cluster_of, nodes_of, pending, told, until
from tests.e2e.test_agent import DUMPS, SECONDS, Process, estimator
from tests.kubeapi.documents import node, pod
from tests.kubeapi.resources import LEASES
from tests.kubeapi.server import KubeApiServer

EXAMPLES = Path(__file__).parents[2] / "examples" / "scoring"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def has_logged(agent: Process, text: str) -> None:
    assert agent.process.stderr is not None
    async with asyncio.timeout(SECONDS):
        while line := await agent.process.stderr.readline():
            if text in line.decode():
                return
    raise AssertionError(f"ended without saying {text!r}")


async def asked(port: int, verb: str, body: dict[str, Any]) -> Any:
    async with aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{port}/{verb}"
        async with session.post(url, json=body) as response:
            return await response.json(content_type=None)


async def test_pods_are_scored_and_bound_without_a_control_plane(tmp_path: Path) -> None:
    port = free_port()
    cluster = cluster_of(node("a"), node("b"), pod("busy", on="b", cpu="3"))
    with KubeApiServer(cluster) as server:
        kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
        async with estimator(
            *("run", "--cluster", "member1", "--kubeconfig", str(kubeconfig), "--binder"),
            *("--extender-listen", f"127.0.0.1:{port}"),
            *("--scoring-config", str(EXAMPLES / "most-allocated.yaml")),
        ) as agent:
            await has_logged(agent, "extender is served")
            server.cluster.put(pending("p"))
            await until(server, lambda: nodes_of(server).get("p") == "b")
            await until(server, lambda: told(server, "p") != [])

            other = pending("q", schedulerName="default-scheduler", cpu="1")
            server.cluster.put(other)
            body = {"Pod": other, "NodeNames": ["a", "b"]}
            filtered = await asked(port, "filter", body)
            assert filtered["NodeNames"] == ["a"]
            assert filtered["FailedNodes"] == {"b": "short of cpu"}
            order = {"PodName": "q", "PodNamespace": "shop", "PodUID": "uid-q", "Node": "a"}
            assert await asked(port, "bind", order) == {"Error": ""}
            assert nodes_of(server)["q"] == "a"

            code, said = await agent.stop()
            assert code == 0, said


async def test_dump_is_scored_and_nothing_bound() -> None:
    port = free_port()
    async with estimator(
        *("run", "--cluster", "member1", "--from", str(DUMPS / "member1.json")),
        *("--extender-listen", f"127.0.0.1:{port}"),
    ) as agent:
        await has_logged(agent, "extender is served")
        order = {"PodName": "p", "PodNamespace": "d", "PodUID": "u", "Node": "n"}
        answer = await asked(port, "bind", order)
        assert "follows a file" in answer["Error"]


async def test_wrong_scoring_configuration_ends_the_agent(tmp_path: Path) -> None:
    wrong = tmp_path / "scheduler.yaml"
    wrong.write_text("kind: KubeSchedulerConfiguration\n")
    async with estimator(
        *("run", "--cluster", "member1", "--from", str(DUMPS / "member1.json")),
        *("--extender-listen", f"127.0.0.1:{free_port()}", "--scoring-config", str(wrong)),
    ) as agent:
        code, said = await agent.end()
    assert code == 1
    assert "apiVersion" in said


async def test_binder_that_is_told_to_stop_hands_over_at_once(tmp_path: Path) -> None:
    def holders() -> list[str]:
        return [lease["spec"].get("holderIdentity", "") for lease in server.cluster.all(LEASES)]

    with KubeApiServer(cluster_of(node("a"))) as server:
        kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
        binder = ("run", "--cluster", "member1", "--kubeconfig", str(kubeconfig), "--binder")
        async with estimator(*binder) as first:
            await until(server, lambda: holders() not in ([], [""]))
            code, said = await first.stop()
            assert code == 0, said
        assert holders() == [""]
        async with estimator(*binder):
            server.cluster.put(pending("p"))
            await until(server, lambda: nodes_of(server).get("p") == "a")
