"""Which clock is wrong, as far as an agent can tell by what control planes say in welcoming it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from federation.v1.agents_pb2 import Reconnect
from lab.agent_streams import exchange, welcome
from lab.kubeapi.documents import node
from lab.patience import until
from tests.agent.agents import joining


async def test_two_clocks_that_agree_are_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("estimator.app.uniform", lambda _: 0.0)

    async def told() -> set[str]:
        await asyncio.sleep(0.01)
        said = (each.getMessage() for each in caplog.records)
        return {each for each in said if each.startswith("this clock is ")}

    async with exchange() as first, exchange() as second, exchange() as third:
        a, b, c = (each.endpoint for each in (first, second, third))

        def differs(seconds: int, way: str, plane: str, rest: str) -> str:
            return f"this clock is {seconds} s {way} the control plane's at {plane}{rest}"

        nobody_knows = ": check which of them is wrong"
        agrees, alike = (
            f", and agrees with that at {b}: the clock at",
            ", which agrees with that at",
        )
        # By how much the agent is ahead of each in turn, and what it says then.
        steps = [
            (first, 600.0, {differs(600, "ahead of", a, nobody_knows)}),
            (second, 0.4, {differs(600, "ahead of", a, f"{agrees} {a} is wrong")}),
            (third, 600.0, {differs(600, "ahead of", each, nobody_knows) for each in (a, c)}),
            (
                first,
                -600.0,
                {
                    differs(600, "behind", a, f"{agrees} {a} is wrong"),
                    differs(600, "ahead of", c, f"{agrees} {c} is wrong"),
                },
            ),
            (
                second,
                -599.0,
                {
                    differs(600, "behind", a, f"{alike} {b}: this clock is wrong"),
                    differs(599, "behind", b, f"{alike} {a}: this clock is wrong"),
                    differs(600, "ahead of", c, nobody_knows),
                },
            ),
        ]
        async with joining(tmp_path, node("a"), endpoint=(a, b, c)) as member:
            for plane, ahead_seconds, expected in steps:
                caplog.clear()
                if member.lines:
                    await member.line.send(reconnect=Reconnect(reason="elsewhere"))
                member.line = await plane.next_line()
                member.lines.append(member.line)
                await member.line.receive_next("hello")
                greeting = welcome()
                greeting.server_time.FromNanoseconds(int((member.clock.now - ahead_seconds) * 1e9))
                await member.line.send(welcome=greeting)
                await until(told, expected.__eq__)
