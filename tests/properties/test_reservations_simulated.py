"""Whole federations on a virtual clock: late orders and reports, crashes, placers of all kinds."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from federation.model.placement import Certificate
from federation.model.reservations import PromiseCertificate
from lab.packed_clusters import GIB, RESOURCES
from lab.simulator import Simulation, divided
from lab.simulator_cluster import Placer, SimulatedCluster
from lab.slow_packer import broken_promise

CORE = {"cpu": 1000}


def cluster(
    name: str, placer: Placer = Placer.LEAST_ALLOCATED, nodes: int = 2, cores: int = 1
) -> SimulatedCluster:
    amounts = {"cpu": cores * 1000, "memory": 64 * GIB, "pods": 110}
    column = np.array([amounts.get(name, 0) for name in RESOURCES], dtype=np.int64)
    allocatable_rn = np.repeat(column[:, np.newaxis], nodes, axis=1)
    return SimulatedCluster(
        name=name, allocatable_rn=allocatable_rn, free_rn=allocatable_rn.copy(), placer=placer
    )


def random_cluster(name: str, placer: Placer, random: np.random.Generator) -> SimulatedCluster:
    nodes = int(random.integers(20, 60))
    most = np.array([16_000, 64 * GIB, 60, 0, 5])[:, np.newaxis]
    free_rn = (random.random((len(RESOURCES), nodes)) * most).astype(np.int64)
    free_rn[-1] *= random.random(nodes) < 0.1
    return SimulatedCluster(
        name=name, allocatable_rn=free_rn.copy(), free_rn=free_rn, placer=placer, budget=16
    )


def waiting(simulation: Simulation, certificate: PromiseCertificate) -> int:
    """Pods without a node whose binding was promised one in their cluster."""
    return sum(
        any(
            newest.certificate is certificate
            for newest in simulation.control.ledger(name).newest(pod.binding)
        )
        for name, cluster in simulation.clusters.items()
        for pod in cluster.waiting
    )


@pytest.mark.parametrize("certificate", [None, *Certificate])
@pytest.mark.parametrize("placer", [Placer.LEAST_ALLOCATED, Placer.CLAIMS])
def test_twenty_at_once_for_four_cores(placer: Placer, certificate: Certificate | None) -> None:
    """I3: four are placed and sixteen are told why not."""
    simulation = Simulation([cluster("member1", placer), cluster("member2", placer)], seed=1)
    simulation.run(until=2)
    for number in range(20):
        binding = divided(f"b{number}", CORE, 1, certificate)
        simulation.at(2, partial(simulation.submit, binding))
    simulation.run(until=200)
    control = simulation.control
    assert len(simulation.decided) == len(control.bindings) == 4
    assert len(control.refusals) == 16
    # No node is sure of any pod where strict ones may still choose it.
    scarce = "pods" if certificate is Certificate.STRICT else "cpu"
    reason = f"0 replicas are available, 1 wanted; short of {scarce} in 2 clusters"
    assert set(control.refusals.values()) == {reason}
    placed = [pod for each in simulation.clusters.values() for pod in each.pods]
    assert len(placed) == 4
    assert all(pod.node is not None for pod in placed)
    simulation.delete("b0")
    simulation.run(until=400)
    simulation.submit(divided("late", CORE, 1, certificate))
    assert "late" in control.bindings


def busy(seed: int, placer: Placer, certificate: Certificate | None) -> Simulation:
    """Some minutes of submitting, scaling up and crashing; every message late by chance."""
    random = np.random.default_rng(seed)
    clusters = [random_cluster(f"member{number}", placer, random) for number in range(3)]
    simulation = Simulation(clusters, seed)
    simulation.run(until=2)
    for number in range(60):
        request = {
            "cpu": int(random.choice([100, 250, 1000, 3000, 8000])),
            "memory": int(random.choice([1, 2, 8, 16])) * GIB,
        }
        if random.random() < 0.1:
            request["nvidia.com/gpu"] = 1
        chosen = certificate if random.random() < 0.7 else Certificate.CAREFUL
        binding = divided(f"b{number}", request, int(random.integers(1, 30)), chosen)
        time = float(random.uniform(2, 120))
        simulation.at(time, partial(simulation.submit, binding))
        if random.random() < 0.3:
            more = replace(binding, replicas=binding.replicas + 5)
            simulation.at(time + 30, partial(simulation.submit, more))
    for _ in range(3):
        time = float(random.uniform(2, 120))
        simulation.at(time, partial(simulation.crash_agent, "member1"))
        simulation.at(time, simulation.crash_control_plane)
    simulation.run(until=400)
    return simulation


@pytest.mark.parametrize("placer", list(Placer))
@pytest.mark.parametrize("seed", range(2))
def test_strict_pods_never_wait(seed: int, placer: Placer) -> None:
    """I7, and I1 for every decision on the way."""
    simulation = busy(seed, placer, Certificate.STRICT)
    assert waiting(simulation, PromiseCertificate.STRICT) == 0
    for decided in simulation.decided:
        for room in decided.rooms.values():
            assert broken_promise(room.pools, room.holdings) == ""


@pytest.mark.parametrize("seed", range(3))
def test_planned_pods_never_wait(seed: int) -> None:
    """I7: what agents could not plan is careful from then on, and hardly ever happens."""
    simulation = busy(seed, Placer.CLAIMS, None)
    assert waiting(simulation, PromiseCertificate.PLANNED) == 0
    planned = sum(
        promise.certificate is PromiseCertificate.PLANNED
        for decided in simulation.decided
        for promise in decided.promises
    )
    assert planned > 20
    assert simulation.unkept <= planned // 10


def test_when_all_is_quiet_only_what_waits_is_outstanding() -> None:
    simulation = busy(3, Placer.LEAST_ALLOCATED, None)
    assert simulation.decided
    for name, cluster in simulation.clusters.items():
        outstanding = simulation.control.ledger(name).outstanding()
        assert sum(each.in_cells for each in outstanding) == len(cluster.waiting)
