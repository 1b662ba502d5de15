"""Orders that come again: after an interruption an agent is told of its promises first."""

from __future__ import annotations

from pathlib import Path

from estimator.cluster.holds import EXPIRY_SECONDS
from lab.kubeapi.documents import pod
from tests.agent.agents import joined, share
from tests.agent.test_placing import PLACER, WEB, named, owned, shows, sought


async def test_an_order_for_what_is_told_already_keeps_its_nodes_for_good(tmp_path: Path) -> None:
    async with joined(tmp_path, named("a"), **PLACER) as member:
        await member.tell(sought(2, promised=2))
        assert (await member.place(WEB, share(2), planned=True, decision="d")).claimed
        # A pod that is deleted leaves its node to the next one of the promise.
        member.put(owned("web-0", on="a"))
        await member.report(lambda report: report.allocated["pods"] == 2)
        member.remove(owned("web-0", on="a"))
        # It looks the same before: a pod that comes later shows that the other is gone.
        member.put(pod("marker", on="a", cpu="0"))
        await member.report(lambda report: report.allocated["pods"] == 3)
        await shows(member, 2, used=2)
        member.clock.now += EXPIRY_SECONDS
        assert (await member.place("shop/api", share(3))).unplaced == 1
        await shows(member, 2, used=2)
