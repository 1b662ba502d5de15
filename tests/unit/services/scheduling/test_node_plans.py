from __future__ import annotations

from dataclasses import replace

from federation.model.errors import Unavailable
from federation.services.scheduling.bindings import Scheduling
from lab.services import WEB, Agents, apply
from tests.unit.services.conftest import only


async def test_agents_say_where_their_shares_go_and_that_is_kept(
    scheduling: Scheduling, agents: Agents
) -> None:
    scheduled = await apply(scheduling, replace(WEB, replicas=12))
    assert scheduled.binding is not None
    record = await scheduling.node_plans.place(scheduled.record, scheduled.binding, 5.0)
    assert [(plan.cluster, plan.nodes[0].replicas) for plan in record.node_plans] == [
        ("a", 6),
        ("b", 3),
        ("c", 3),
    ]
    order = agents.orders["a"]
    assert (order.decision_id, order.binding_key) == (record.id, "shop/web")
    assert order.shares[0].requirements == WEB.requirements
    assert (await scheduling.get_decision(record.id)).node_plans == record.node_plans


async def test_an_agent_that_is_late_gone_or_wrong_costs_its_own_plan_only(
    scheduling: Scheduling, agents: Agents
) -> None:
    scheduled = await apply(scheduling, replace(WEB, replicas=12))
    assert scheduled.binding is not None
    agents.silent = {"a"}
    agents.errors = {"b": Unavailable("gone")}
    record = await scheduling.node_plans.place(scheduled.record, scheduled.binding, 0.05)
    late, gone, placed = record.node_plans
    assert (late.cluster, late.unplaced, late.nodes) == ("a", 6, ())
    assert late.message == "the agent did not answer within 0.05 s"
    assert (gone.unplaced, gone.message) == (3, "no agent that sees its nodes is connected")
    assert (placed.unplaced, placed.nodes[0].node) == (0, "c-n1")
    agents.silent, agents.errors, agents.forgetful = set(), {}, {"c"}
    record = await scheduling.node_plans.place(scheduled.record, scheduled.binding, 5.0)
    assert [plan.unplaced for plan in record.node_plans] == [0, 0, 3]
    assert "answered for 0 replicas, not for 3" in record.node_plans[2].message
    assert (await scheduling.get_decision(record.id)).node_plans == record.node_plans


async def test_nothing_is_begun_where_there_is_nobody_to_ask(
    scheduling: Scheduling, agents: Agents
) -> None:
    everywhere = await apply(scheduling, WEB)
    here = await apply(scheduling, replace(only("b", 1), name="here", uid=""))
    nowhere = await apply(scheduling, replace(WEB, name="much", uid="", replicas=1000))
    decided = [everywhere, here, nowhere]
    assert scheduling.node_plans.placeable(decided) == [everywhere, here]
    agents.errors = {"b": Unavailable()}
    assert scheduling.node_plans.placeable(decided) == [everywhere]
    agents.errors = {name: Unavailable() for name in ("a", "b", "c")}
    assert scheduling.node_plans.placeable(decided) == []
