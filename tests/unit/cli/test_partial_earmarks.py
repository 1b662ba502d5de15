"""An earmark keeps room that becomes free bit by bit, live and in virtual time by the same rule."""

from __future__ import annotations

from federation.cli import inputs
from federation.failover.virtual_steps import EventKind, FailoverRules, FleetEvent, StepKind
from federation.failover.virtual_time import VirtualFleet
from federation.scheduler.simulation import SimulationOptions
from tests.unit.cli.test_simulation import binding, cluster


def test_a_large_replica_is_placed_before_small_ones_that_came_later() -> None:
    """Two cores; small ones of one core come and go by turns, so that never two are free."""
    documents = [
        binding("s0", 1),
        binding("s1", 1),
        binding("large", 1, replicaRequirements={"resourceRequest": {"cpu": "2"}}),
        *(binding(f"s{n}", 1) for n in range(2, 20)),
    ]
    states = inputs.clusters_of(inputs.by_position([cluster("a", 2)], "clusters"), now=0.0)
    messages = inputs.binding_messages_of(inputs.by_position(documents, "bindings"))
    bindings = inputs.bindings_of(messages, None)
    events = [FleetEvent(5.0, EventKind.ARRIVE, "shop/large")]
    for n in range(20):
        if n > 1:
            events.append(FleetEvent(100.0 * n - 50.0, EventKind.ARRIVE, f"shop/s{n}"))
        events.append(FleetEvent(100.0 * n + 60.0, EventKind.DELETE, f"shop/s{n}"))
    fleet = VirtualFleet(states, SimulationOptions(), FailoverRules(), began=1000.0)
    fleet.run(bindings, sorted(events))
    placed = {step.subject: step.at for step in fleet.steps if step.kind is StepKind.PLACED}
    (earmarked,) = [step for step in fleet.steps if step.kind is StepKind.EARMARKED]
    assert earmarked.subject == "shop/large"
    assert placed["shop/large"] > earmarked.at
    # Nobody of its priority was placed in between.
    assert not [at for name, at in placed.items() if earmarked.at < at < placed["shop/large"]]
