"""``fedctl simulate --lose``: what moves off silent clusters, how fast, and who waits, in virtual
time.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from federation.cli.__main__ import fedctl
from tests.unit.cli.test_simulation import binding, cluster

LARGE = {"cpu": 3000, "memory": "64Gi", "pods": 5000}


def named(*names: str) -> dict[str, Any]:
    return {"clusterAffinity": {"clusterNames": list(names)}}


class Drill:
    """Files with objects, and what is said of them."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "all.json"

    def say(self, *documents: dict[str, Any], options: str = "") -> Any:
        written = [
            {
                "apiVersion": "work.karmada.io/v1alpha2",
                "kind": "ResourceBinding",
                **each,
            }
            if "replicas" in each.get("spec", {})
            else {"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", **each}
            for each in documents
        ]
        self._file.write_text("\n---\n".join(map(json.dumps, written)), encoding="utf-8")
        return CliRunner().invoke(fedctl, ["simulate", "-f", str(self._file), *options.split()])

    def run(self, *documents: dict[str, Any], options: str) -> Any:
        result = self.say(*documents, options=f"{options} -o json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)


@pytest.fixture
def drill(tmp_path: Path) -> Drill:
    return Drill(tmp_path)


def told(answer: Any) -> list[tuple[float, str, str, dict[str, int]]]:
    return [
        (
            each["at"],
            each["what"],
            each["who"],
            {share["name"]: share["replicas"] for share in each["clusters"]},
        )
        for each in answer["steps"]
    ]


def test_who_waits_gets_the_room_that_moved_ones_left_when_a_cluster_is_back(drill: Drill) -> None:
    groups = [{"affinityName": name, "clusterNames": [name]} for name in "ab"]
    answer = drill.run(
        cluster("a", cpu=4),
        cluster("b", cpu=4),
        binding("moves", 3, placement={"clusterAffinities": groups}),
        binding("stays", 1, placement=named("a")),
        binding("large", 3, placement=named("a")),
        binding("small", 2, placement=named("a")),
        binding("urgent", 1, placement=named("a"), schedulePriority={"priority": 5}),
        options="--lose a@1m --back a@20m --lost-seconds 120",
    )
    assert told(answer) == [
        (0, "placed", "shop/moves", {"a": 3}),
        (0, "placed", "shop/stays", {"a": 1}),
        (0, "waits", "shop/large", {}),
        (0, "waits", "shop/small", {}),
        (0, "waits", "shop/urgent", {}),
        (75, "stale", "a", {}),
        (180, "lost", "a", {}),
        (180, "moved", "shop/moves", {"b": 3}),
        # It fits nowhere else, and nothing is deleted where nobody answers. Three of four
        # replicas have spent the second's worth of moves.
        (181, "stays", "shop/stays", {"a": 1}),
        (1200, "back", "a", {}),
        (1200, "placed", "shop/urgent", {"a": 1}),
        # Three find no room in two; what is small overtakes.
        (1200, "placed", "shop/small", {"a": 2}),
    ]
    (large,) = answer["queue"]
    assert (large["binding"], large["position"], large["since"]) == ("shop/large", 1, 0)
    assert large["shortOf"] == "cpu in 1 cluster"


def test_gangs_wait_as_one_and_are_placed_as_one(drill: Drill) -> None:
    def member(name: str, **spec: Any) -> dict[str, Any]:
        return binding(name, 2, gang={"name": "pair", "size": 2}, placement=named("a"), **spec)

    answer = drill.run(
        cluster("a", cpu=4),
        cluster("b", cpu=9),
        binding("first", 3),
        binding("there", 3, placement=named("a", "b")),
        member("one"),
        member("two"),
        binding("alone", 2, gang={"name": "half", "size": 2}),
        options="--lose a --back a@20m",
    )
    steps = told(answer)
    waiting = [each for each in steps if each[1] == "waits"]
    assert [each[2] for each in waiting] == ["shop/one", "shop/two", "shop/alone"]
    moved = {each[2] for each in steps if each[1] == "moved"}
    assert moved
    assert steps[-2:] == [
        (1200, "placed", "shop/one", {"a": 2}),
        (1200, "placed", "shop/two", {"a": 2}),
    ]
    (half,) = answer["queue"]
    assert (half["position"], half["gate"]) == (0, "1 of 2 members of gang half is here")


def test_moves_are_made_by_priority_and_no_faster_than_may_be(drill: Drill) -> None:
    bindings = [
        binding(f"w{n:03}", 10, placement=named("a", "b"), schedulePriority={"priority": n % 3})
        for n in range(150)
    ]
    answer = drill.run(
        *(cluster(name, allocatable=LARGE) for name in "ab"), *bindings, options="--lose a"
    )
    moves = [(at, who) for at, what, who, _ in told(answer) if what == "moved"]
    there = [who for at, what, who, on in told(answer) if what == "placed" and "a" in on]
    assert sorted(who for _, who in moves) == sorted(there)
    urgencies = [int(who[-3:]) % 3 for _, who in moves]
    assert urgencies == sorted(urgencies, reverse=True)
    times = [at for at, _ in moves]
    assert all(sum(start <= at < start + 60 for at in times) <= 60 for start in times)


def test_many_at_once_freeze_failover_until_they_are_back(drill: Drill) -> None:
    fleet = [cluster(f"c{n}", cpu=9) for n in range(8)]
    lose = " ".join(f"--lose c{n}@1m" for n in range(6))
    answer = drill.run(*fleet, binding("web", 40), options=lose)
    kinds = [each[1] for each in told(answer)]
    assert kinds == ["placed", *["stale"] * 6, "frozen"]
    assert answer["steps"][-1]["reason"].startswith("6 of 8 clusters fell silent within a minute")
    back = " ".join(f"--back c{n}@10m" for n in range(5))
    answer = drill.run(*fleet, binding("web", 40), options=f"{lose} {back}")
    kinds = [each[1] for each in told(answer)]
    # The last one is lost once that is no longer suspected.
    assert kinds[8:] == [*["back"] * 5, "thawed", "lost", "moved"]


def test_what_is_wrong_is_told(drill: Drill) -> None:
    for options, message in (
        ("--lose b", "--lose: names no cluster that is given: 'b'"),
        ("--lose a@soon", "--lose: must be a number and s, m, h or d, not 'soon'"),
        ("--back a", "--back: must say when, as in a@20m"),
    ):
        result = drill.say(cluster("a"), binding("web", 1), options=options)
        assert (result.exit_code, message in result.output) == (1, True), result.output
    table = drill.say(cluster("a"), binding("web", 9), options="--lose a").stdout
    assert "Who waits at the end" in table
    assert "cpu in 1 cluster" in table
