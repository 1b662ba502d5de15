"""What an agent scores and binds when it starts: nothing before it knows what is promised."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path

import pytest

from federation.model.errors import InvalidRequest
from federation.v1.agents_pb2 import BindingInterest, SoughtShape
from lab.agent_streams import welcome
from lab.agents import DUMPS, ROOT
from lab.binders import nodes_of, pending, told
from lab.kubeapi.documents import node, pod
from lab.kubeapi.resources import LEASES
from lab.patience import until
from tests.agent.agents import ended, free_port, joined, joining, running_agent, serving, share

PORTS = ("extender_listen",)
EXAMPLES = ROOT / "examples" / "scoring"
# Each with the most that it can score: plugins of weight 1 and 2, and Volcano's weight 5.
SCALES = {
    "most-allocated.yaml": 200.0,
    "policy.json": 200.0,
    "requested-to-capacity-ratio.yaml": 200.0,
    "volcano-scheduler.conf": 500.0,
}
# All of a node of four cores, by plan.
PROMISED = BindingInterest(
    binding="shop/web",
    shapes=[SoughtShape(request={"cpu": 4000}, decisions=["d"], planned=share(1, "4"))],
)


def contains(words: str, text: str) -> bool:
    return words in text


async def test_nobody_is_answered_or_bound_before_it_knows_what_is_promised(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What an agent claimed ends with it: for a moment all room looks free to pods of others."""
    caplog.set_level(logging.INFO)
    waiting = pending("p", cpu="1")
    flags = {"ports": PORTS, "binder": "true"}
    async with joining(tmp_path, node("a"), waiting, **flags) as member:
        member.line = await member.plane.next_line()
        await member.line.receive_next("hello")

        async def has_said() -> str:
            return caplog.text

        for who in ("extender", "binder"):
            words = f"{who} waits to be told what is promised here"
            await until(has_said, partial(contains, words))
        assert member.server.cluster.all(LEASES) == []
        with pytest.raises(OSError, match="Connect call failed"):
            await member.post("filter", {"Pod": waiting, "NodeNames": ["a"]})
        await member.line.send(welcome=welcome())
        await member.tell(PROMISED, whole=True)
        await member.answers()
        answer = await member.post("filter", {"Pod": waiting, "NodeNames": ["a"]})
        assert answer["FailedNodes"] == {"a": "short of cpu; the rest is promised to others"}

        async def why_not() -> list[str]:
            return told(member.server, "p")

        assert "short of cpu" in (await until(why_not, bool))[0]
        assert nodes_of(member.server) == {}
        # A pod of others is bound by somebody who does not ask the extender: the plan is lost.
        member.put(pod("foreign", on="a", cpu="2"))
        report = await member.report(lambda found: bool(found.lost_plans))
        (lost,) = report.lost_plans
        assert (lost.binding, lost.decision, list(report.echoes)) == ("shop/web", "d", [])
        assert lost.reason == "1 of 1 replicas found no node among 1: 1 short of cpu"


async def test_an_agent_that_follows_a_file_scores_and_binds_nothing(tmp_path: Path) -> None:
    dump = {"kubeconfig": None, "from": str(DUMPS / "member1.json")}
    async with serving(tmp_path, **dump) as member:
        order = {"PodName": "p", "PodNamespace": "d", "PodUID": "u", "Node": "n"}
        assert "follows a file" in (await member.post("bind", order))["Error"]


async def test_a_wrong_scoring_configuration_ends_the_agent(tmp_path: Path) -> None:
    wrong = tmp_path / "scheduler.yaml"
    wrong.write_text("kind: KubeSchedulerConfiguration\n")
    flags = {"from": str(DUMPS / "member1.json"), "scoring_config": str(wrong)}
    listen = f"127.0.0.1:{free_port()}"
    async with running_agent(tmp_path, extender_listen=listen, **flags) as agent:
        with pytest.raises(InvalidRequest, match="apiVersion"):
            await ended(agent)


def test_every_example_is_tried() -> None:
    configurations = {path.name for path in EXAMPLES.iterdir() if "nodes-and-pod" not in path.name}
    assert configurations == SCALES.keys()


@pytest.mark.parametrize("configuration", SCALES)
async def test_shares_are_placed_by_the_scores_of_every_example(
    tmp_path: Path, configuration: str
) -> None:
    scale = SCALES[configuration]
    path = str(EXAMPLES / configuration)
    async with joined(tmp_path, node("a"), node("b"), scoring_config=path) as member:
        for replicas in (1, 3):
            reply = await member.place(f"shop/web{replicas}", share(replicas, "500m"))
            assert (reply.unplaced, reply.message) == (0, "")
            assert sum(each.replicas for each in reply.nodes) == replicas
            for each in reply.nodes:
                assert each.total_scale == scale
                assert 0.0 < each.total <= scale
                assert each.score == round(100 * each.total / scale)
