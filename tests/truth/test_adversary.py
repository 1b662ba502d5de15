"""The adversary's runs stand, and nothing that was promised strictly falls to it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lab.packed_clusters import GIB
from lab.truth.adversary import challenged, room_against, stands, stranding
from lab.truth.odds import Moment, moment_of
from lab.truth.plans import Line, Plan
from lab.truth.streams import (
    CPU,
    MEMORY,
    PODS,
    SCHEDULINGS,
    Node,
    Stream,
    Wanted,
    free_rn,
    nodes_of,
    stream,
)
from lab.truth.virtual import ByTheRules, VirtualStudy


def wanted_of(name: str, cpu: int, gib: int, replicas: int) -> Wanted:
    request = {CPU: cpu, MEMORY: gib * GIB}
    return Wanted(name=name, replicas=replicas, request=request, scheduling=SCHEDULINGS[0])


def moment(cores: list[int], *coming: Wanted) -> Moment:
    nodes = [
        Node(
            name=f"n{number}",
            labels={},
            taint="",
            allocatable={CPU: 1000 * count, MEMORY: 4 * count * GIB, PODS: 110},
            running=(),
        )
        for number, count in enumerate(cores)
    ]
    every = tuple((wanted, wanted.replicas) for wanted in coming)
    return Moment(nodes=nodes, free_rn=free_rn(nodes), coming=every)


LARGE, SMALL = wanted_of("large", 4000, 4, 1), wanted_of("small", 500, 1, 2)


def test_small_pods_on_every_node_leave_a_large_one_out() -> None:
    at_risk = moment([4, 4], LARGE, SMALL)
    found = stranding(at_risk, np.random.default_rng(1))
    assert found is not None
    assert stands(at_risk, found)
    assert found.kinds[found.left] is LARGE


@pytest.mark.parametrize(
    "safe", [moment([4, 4]), moment([4], LARGE), moment([4, 4, 4], LARGE, SMALL)]
)
def test_what_is_safe_is_not_broken(safe: Moment) -> None:
    assert stranding(safe, np.random.default_rng(1)) is None


def test_only_as_many_small_pods_as_leave_a_node_for_the_large_one() -> None:
    small = replace(SMALL, replicas=9)
    beside = moment([4, 4, 4], LARGE)
    assert room_against(small, beside, np.random.default_rng(1)) == 2


@pytest.mark.parametrize("kind", list(Stream))
def test_every_run_of_the_adversary_stands(kind: Stream) -> None:
    random, found = np.random.default_rng(1), 0
    for seed in range(6):
        nodes = nodes_of("member1", 12, seed)
        coming = [(each, each.replicas) for each in stream(kind, seed, 30, nodes)]
        for count in (5, 10, 20):
            free = free_rn(nodes)
            at_risk = Moment(nodes=nodes, free_rn=free, coming=tuple(coming[:count]))
            stranded = stranding(at_risk, random)
            if stranded is not None:
                assert stands(at_risk, stranded)
                found += 1
    assert found


@pytest.mark.parametrize("kind", list(Stream))
def test_nothing_falls_to_it_that_was_promised_strictly(kind: Stream) -> None:
    random = np.random.default_rng(1)
    for seed in range(3):
        plan = Plan(line=Line.STRICT, seed=seed, stream=kind, bindings=40, nodes=(9, 10))
        study = VirtualStudy(plan)
        rules = ByTheRules(tuple(study.members), plan.line.certificate)
        rules.reported(study.members, [])
        nodes = [node for member in study.members.values() for node in member.nodes]
        moments = {name: moment_of(member, []) for name, member in study.members.items()}
        for wanted in stream(kind, seed, plan.bindings, nodes):
            shares = rules.decide(wanted, looks_again=False) or {}
            for name, replicas in shares.items():
                moments[name] = moments[name].with_more(wanted, replicas)
        for each in moments.values():
            assert each.coming
            assert stranding(each, random) is None


def test_what_strict_refuses_is_put_before_it() -> None:
    plan = Plan(line=Line.STRICT, seed=1, bindings=24, nodes=(7, 7))
    judged = challenged(plan)
    assert 0 <= judged.broken <= judged.found.refused
    assert judged.found.refused > 0
    assert judged.found.pending == []
