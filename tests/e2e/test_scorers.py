"""``estimator run --binder`` and ``--extender-listen`` as processes, beside an API server."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from estimator.credential import Credential, CredentialFile, store_credential
from federation.v1.agents_pb2 import BindingInterest, InterestUpdate, Share, SoughtShape
from federation.v1.resource_pb2 import ReplicaRequirements
from lab.agent_streams import Line, exchange, welcome
from lab.agents import DUMPS, SECONDS, Process, estimator
from lab.binders import cluster_of, nodes_of, pending, told, until
from lab.kubeapi.documents import node, pod
from lab.kubeapi.resources import LEASES
from lab.kubeapi.server import KubeApiServer

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


PROMISED = InterestUpdate(
    version=1,
    whole=True,
    bindings=[
        BindingInterest(
            binding="shop/web",
            shapes=[
                SoughtShape(
                    request={"cpu": 4000},
                    decisions=["d"],
                    planned=Share(
                        replicas=1,
                        replica_requirements=ReplicaRequirements(resource_request={"cpu": "4"}),
                    ),
                )
            ],
        )
    ],
)


@asynccontextmanager
async def starting_anew(
    tmp_path: Path, *flags: str
) -> AsyncIterator[tuple[KubeApiServer, Line, Process]]:
    """An agent that had joined before, and whose control plane has not spoken yet."""
    async with exchange() as control_plane:
        kept = tmp_path / "credential"
        endpoints = (control_plane.endpoint,)
        credential = Credential(
            cluster="member1", endpoints=endpoints, credential="id.secret", expires_at=2.0**33
        )
        store_credential(CredentialFile(kept), credential)
        with KubeApiServer(cluster_of(node("a"))) as server:
            kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
            async with estimator(
                *("run", "--cluster", "member1", "--kubeconfig", str(kubeconfig), *flags),
                *("--endpoint", control_plane.endpoint, "--insecure"),
                *("--credential-file", str(kept)),
            ) as agent:
                yield server, await control_plane.next_line(), agent


async def test_extender_answers_nobody_before_it_knows_what_is_promised(tmp_path: Path) -> None:
    """What an agent claimed ends with it: for a moment all room looks free to pods of others."""
    port = free_port()
    flags = ("--extender-listen", f"127.0.0.1:{port}")
    async with starting_anew(tmp_path, *flags) as (_, line, agent):
        await line.receive()
        await has_logged(agent, "extender waits to be told what is promised here")
        body = {"Pod": pending("p", cpu="1"), "NodeNames": ["a"]}
        with pytest.raises(aiohttp.ClientConnectorError):
            await asked(port, "filter", body)
        await line.send(welcome=welcome())
        await line.send(interest=PROMISED)
        await has_logged(agent, "extender is served")
        answer = await asked(port, "filter", body)
        assert answer["FailedNodes"] == {"a": "short of cpu; the rest is promised to others"}


async def test_an_agent_says_which_plan_it_cannot_keep_any_more(tmp_path: Path) -> None:
    """A pod of others is bound by somebody who does not ask the extender."""
    flags = ("--extender-listen", f"127.0.0.1:{free_port()}")
    async with starting_anew(tmp_path, *flags) as (server, line, _):
        await line.receive()
        await line.send(welcome=welcome())
        await line.send(interest=PROMISED)
        report = (await line.receive_next("report")).report
        while not report.interest_version:
            report = (await line.receive_next("report")).report
        assert (list(report.lost_plans), report.echoes[0].bound) == ([], 1)
        server.cluster.put(pod("foreign", on="a", cpu="2"))
        while not report.lost_plans:
            report = (await line.receive_next("report")).report
        (lost,) = report.lost_plans
        assert (lost.binding, lost.decision) == ("shop/web", "d")
        assert lost.reason == "1 of 1 replicas found no node among 1: 1 short of cpu"
        assert list(report.echoes) == []


async def test_binder_binds_nobody_before_it_knows_what_is_promised(tmp_path: Path) -> None:
    async with starting_anew(tmp_path, "--binder") as (server, line, agent):
        server.cluster.put(pending("p", cpu="1"))
        await line.receive()
        await has_logged(agent, "binder waits to be told what is promised here")
        assert server.cluster.all(LEASES) == []
        await line.send(welcome=welcome())
        await line.send(interest=PROMISED)
        await until(server, lambda: told(server, "p") != [])
        assert "short of cpu" in told(server, "p")[0]
        assert nodes_of(server) == {}
