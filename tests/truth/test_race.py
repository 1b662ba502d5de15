"""Pods of others come at the moment in which a planned promise waits for its own."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from federation.model.resources import CPU
from lab.truth.race import BINDING, Loop, cluster, pod, promised_pod, run_once


@pytest.fixture(scope="module")
def loop() -> Iterator[Loop]:
    with Loop() as running:
        yield running


@pytest.mark.parametrize("spacing", [0.0, 0.05, 0.1, 0.2, 0.5])
def test_foreign_pods_that_are_on_their_way_do_not_take_promised_room(
    loop: Loop, spacing: float
) -> None:
    for seed in range(4):
        assert run_once(loop, seed, spacing) == (True, 4)


def test_every_node_that_has_room_beside_promises_is_used(loop: Loop) -> None:
    """What counts on several nodes until it is seen does not keep the others away for good."""
    for seed in range(3):
        with cluster(loop, 4, seed) as race:
            assert race.promise(BINDING, {CPU: 3000}, 4).claimed
            for number in range(30):
                race.create(pod(f"f{number}", "1"))
            race.timeline.run(30.0)
            assert len(race.bound) == 20
            for number in range(4):
                race.create(promised_pod(f"p{number}", BINDING, "3"))
            race.timeline.run(60.0)
            assert {f"uid-p{number}" for number in range(4)} <= race.bound.keys()


def test_a_plan_is_not_made_of_room_that_others_were_just_let_on(loop: Loop) -> None:
    with cluster(loop, 1, 0) as race:
        for number in range(6):
            race.create(pod(f"f{number}", "1"))
        race.timeline.run(0.1)
        assert not race.promise(BINDING, {CPU: 4000}, 1).claimed
        assert race.promise(BINDING, {CPU: 1000}, 2).claimed


def test_pods_that_are_deleted_while_they_are_asked_about_take_no_room(loop: Loop) -> None:
    """Promised pods find their nodes, and others theirs within two seconds."""
    for seed in range(10):
        random = np.random.default_rng(seed)
        with cluster(loop, 3, seed) as race:
            bindings = 0
            for step in range(40):
                race.create(pod(f"f{step}", str(random.integers(1, 4))), is_deleted=True)
                if step % 4 == 0 and race.promise(f"shop/b{step}", {CPU: 2000}, 1).claimed:
                    bindings += 1
                    race.create(promised_pod(f"p{step}", f"shop/b{step}", "2"))
                race.timeline.run(race.timeline.now + float(random.exponential(0.1)))
            race.timeline.run(race.timeline.now + 60.0)
            assert len(race.bound) == bindings == 10
            assert len(race.member.assumed) == 0
            race.create(pod("last", "4"))
            race.timeline.run(race.timeline.now + 2.0)
            assert "uid-last" in race.bound


def test_pods_that_come_and_go_leave_promises_alone(loop: Loop) -> None:
    for seed in range(4):
        random = np.random.default_rng(seed)
        with cluster(loop, 3, seed) as race:
            bindings = 0
            for step in range(120):
                match random.integers(4):
                    case 0 | 1:
                        race.create(pod(f"f{step}", str(random.integers(1, 4))))
                    case 2 if race.promise(f"shop/b{step}", {CPU: 2000}, 1).claimed:
                        bindings += 1
                        late = promised_pod(f"p{step}", f"shop/b{step}", "2")
                        seconds = float(random.uniform(0.0, 2.0))
                        race.timeline.after(seconds, lambda made=late: race.create(made))
                    case 3:
                        foreign = [uid for uid in race.bound if uid.startswith("uid-f")]
                        if foreign:
                            race.delete(str(random.choice(foreign)))
                race.timeline.run(race.timeline.now + float(random.exponential(0.1)))
            race.timeline.run(race.timeline.now + 400.0)
            promised = [uid for uid in race.bound if uid.startswith("uid-p")]
            assert len(promised) == bindings > 3
