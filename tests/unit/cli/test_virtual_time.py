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
from federation.cli.offline.simulating import answer_case
from federation.model.errors import InvalidRequest
from tests.unit.cli.test_simulation import DUPLICATED, binding, cluster

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
        # For so long it was overtaken.
        (1800, "earmarked", "shop/large", {}),
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


def test_who_comes_later_waits_and_gets_the_room_of_who_is_deleted(drill: Drill) -> None:
    documents = (
        cluster("a", cpu=4),
        binding("first", 3),
        binding("large", 4),
        binding("small", 1, schedulePriority={"priority": 1}),
        binding("late", 3, schedulePriority={"priority": 1}),
        binding("pair", 1, gang={"name": "two", "size": 2, "timeoutSeconds": 60}),
    )
    options = "--arrive shop/late@5m --arrive shop/small@1m --delete shop/first@10m"
    answer = drill.run(*documents, options=options)
    assert told(answer) == [
        (0, "placed", "shop/first", {"a": 3}),
        (0, "waits", "shop/large", {}),
        (0, "waits", "shop/pair", {}),
        (60, "placed", "shop/small", {"a": 1}),
        (60, "timedOut", "shop/two", {}),
        (300, "waits", "shop/late", {}),
        (600, "deleted", "shop/first", {}),
        # It is more urgent than what has waited for longer.
        (600, "placed", "shop/late", {"a": 3}),
    ]
    assert answer["steps"][4]["reason"] == "1 member of gang two (here: pair)"
    assert [each["binding"] for each in answer["queue"]] == ["shop/large", "shop/pair"]
    case = {
        "clusters": [cluster("a", cpu=4)],
        "bindings": [*documents[1:]],
        "virtualTime": {
            "events": [
                {"atSeconds": 300, "kind": "arrive", "name": "shop/late"},
                {"atSeconds": 60, "kind": "arrive", "name": "shop/small"},
                {"atSeconds": 600, "kind": "delete", "name": "shop/first"},
            ]
        },
    }
    of_case = answer_case(case)
    assert [each["outcome"] for each in of_case.pop("decisions")][-2:] == [
        "SCHEDULED",
        "UNSCHEDULABLE",
    ]
    assert answer.pop("warnings") == {}
    assert of_case == answer


def test_a_workload_without_replicas_has_its_place_as_it_comes_and_is_deleted(
    drill: Drill,
) -> None:
    answer = drill.run(
        cluster("a"),
        cluster("b"),
        binding("none", 0),
        options="--arrive shop/none@1m --delete shop/none@2m --lose a@3m --back a@9m",
    )
    assert told(answer)[:2] == [(60, "placed", "shop/none", {}), (120, "deleted", "shop/none", {})]
    assert answer["queue"] == []


def test_room_is_kept_for_who_was_overtaken_for_too_long(drill: Drill) -> None:
    answer = drill.run(
        cluster("a", cpu=4),
        binding("first", 2),
        binding("second", 2),
        binding("large", 4),
        binding("small", 1),
        binding("tiny", 1),
        binding("urgent", 1, schedulePriority={"priority": 1}),
        options="--delete shop/first@1m --arrive shop/small@5m --arrive shop/tiny@20m"
        " --arrive shop/urgent@25m --delete shop/second@30m --delete shop/urgent@35m"
        " --delete shop/small@40m",
    )
    assert told(answer)[4:] == [
        (300, "placed", "shop/small", {"a": 1}),
        (900, "earmarked", "shop/large", {}),
        # There would be room for one.
        (1200, "waits", "shop/tiny", {}),
        (1500, "placed", "shop/urgent", {"a": 1}),
        (1800, "deleted", "shop/second", {}),
        (2100, "deleted", "shop/urgent", {}),
        (2400, "deleted", "shop/small", {}),
        (2400, "placed", "shop/large", {"a": 4}),
    ]
    (waits,) = [each for each in answer["steps"] if each["who"] == "shop/tiny"]
    assert waits["reason"].endswith("room is kept for shop/large, which waited before")


def test_room_is_kept_in_the_order_of_arrival_for_bindings_overtaken_at_once(
    drill: Drill,
) -> None:
    names = [f"large-{number}" for number in (3, 1, 4, 0, 5, 2)]
    answer = drill.run(
        cluster("a", cpu=2),
        *(binding(name, 3) for name in names),
        binding("small", 1),
        options="--arrive shop/small@1m --lose a@2h",
    )
    earmarked = [who for _, what, who, _ in told(answer) if what == "earmarked"]
    assert earmarked == [f"shop/{name}" for name in names]


def test_room_that_becomes_free_bit_by_bit_is_kept_for_a_large_replica(drill: Drill) -> None:
    """Two cores; small ones of one core come and go by turns, so that never two are free."""
    two = {"replicaRequirements": {"resourceRequest": {"cpu": "2"}}}
    small = [binding(f"s{number}", 1) for number in range(20)]
    turns = [
        f"--delete shop/s{number}@{100 * number + 60}s"
        + (f" --arrive shop/s{number}@{100 * number - 50}s" if number > 1 else "")
        for number in range(20)
    ]
    options = " ".join(["--arrive shop/large@5s", *turns])
    answer = drill.run(cluster("a", cpu=2), binding("large", 1, **two), *small, options=options)
    placed = {who: at for at, what, who, _ in told(answer) if what == "placed"}
    (earmarked,) = [(at, who) for at, what, who, _ in told(answer) if what == "earmarked"]
    assert earmarked[1] == "shop/large"
    assert placed["shop/large"] > earmarked[0]
    # Nobody of its priority was placed in between.
    assert not [at for at in placed.values() if earmarked[0] < at < placed["shop/large"]]


def test_who_preempts_does_so_within_the_limits_and_goes_on_a_minute_later(drill: Drill) -> None:
    urgent = {
        "schedulePriority": {"priority": 9},
        "preemptionPolicy": "PreemptLowerPriority",
    }
    answer = drill.run(
        cluster("a", cpu=6),
        binding("low", 3),
        binding("lower", 3, schedulePriority={"priority": -1}),
        binding("one", 1, **urgent),
        binding("two", 3, **urgent),
        options="--arrive shop/one@10s --arrive shop/two@30s --preempted-replicas 3",
    )
    assert told(answer) == [
        (0, "placed", "shop/low", {"a": 3}),
        (0, "placed", "shop/lower", {"a": 3}),
        (10, "preempted", "shop/lower", {}),
        (10, "placed", "shop/one", {"a": 1}),
        (30, "waits", "shop/two", {}),
        (70, "preempted", "shop/low", {}),
        (70, "placed", "shop/two", {"a": 3}),
    ]
    told_why = [each["reason"] for each in answer["steps"] if each["what"] != "placed"]
    assert told_why[0] == "preempted by shop/one: 3 in a"
    assert told_why[1].endswith("no more replicas may be preempted within this minute")
    assert [each["binding"] for each in answer["queue"]] == ["shop/low", "shop/lower"]
    # Of one namespace fewer.
    answer = drill.run(
        cluster("a", cpu=3),
        binding("low", 3),
        binding("one", 1, **urgent),
        options="--arrive shop/one@10s --preempted-replicas-of-namespace 2",
    )
    assert [each[1] for each in told(answer)] == ["placed", "waits"]
    assert answer["steps"][-1]["reason"].endswith("may be preempted within this minute")


def test_what_ran_before_and_what_may_not_be_preempted_stay(drill: Drill) -> None:
    urgent = {"schedulePriority": {"priority": 9}, "preemptionPolicy": "PreemptLowerPriority"}
    answer = drill.run(
        cluster("a", cpu=3),
        binding("low", 3, preemptible=False),
        binding("late", 1, **urgent),
        options="--arrive shop/late@10s",
    )
    assert [each[1] for each in told(answer)] == ["placed", "waits"]
    assert "nothing of lower priority makes room" in answer["steps"][-1]["reason"]


def test_what_is_duplicated_returns_with_its_cluster(drill: Drill) -> None:
    answer = drill.run(
        cluster("a", cpu=4),
        cluster("b", cpu=4),
        binding("everywhere", 2, DUPLICATED),
        options="--lose a --back a@20m",
    )
    assert told(answer) == [
        (0, "placed", "shop/everywhere", {"a": 2, "b": 2}),
        (15, "stale", "a", {}),
        (300, "lost", "a", {}),
        (300, "moved", "shop/everywhere", {"b": 2}),
        (1200, "back", "a", {}),
        (1200, "returned", "shop/everywhere", {"a": 2, "b": 2}),
    ]


@pytest.mark.parametrize(
    ("virtual_time", "message"),
    [
        ({"lostSeconds": 0.5}, "virtualTime.lostSeconds: must be 1 to 2419200, not 0.5"),
        ({"preemptedReplicas": -1}, "virtualTime.preemptedReplicas: must be 0 to"),
        (
            {"preemptedReplicasOfNamespace": 1 << 40},
            "virtualTime.preemptedReplicasOfNamespace: must be 0 to",
        ),
        ({"events": [{"atSeconds": -1}]}, "virtualTime.events[0].atSeconds: must be 0 to"),
        ({"events": [{"name": "a"}]}, "virtualTime.events[0].kind: is required"),
        ({"events": [{"kind": "fall"}]}, "virtualTime.events[0].kind: must be lose, back,"),
        (
            {"events": [{"kind": "arrive", "name": "a"}]},
            "virtualTime.events[0].name: names no binding that is given: 'a'",
        ),
        ({"event": []}, "virtualTime.event: VirtualTime has no such field"),
    ],
)
def test_what_is_wrong_in_a_case_is_told(virtual_time: dict[str, Any], message: str) -> None:
    case = {"clusters": [cluster("a")], "bindings": [binding("web", 1)]}
    with pytest.raises(InvalidRequest) as refusal:
        answer_case({**case, "virtualTime": virtual_time})
    assert message in str(refusal.value)


def test_what_is_wrong_is_told(drill: Drill) -> None:
    for options, message in (
        ("--arrive shop/api@5m", "--arrive: names no binding that is given: 'shop/api'"),
        ("--arrive shop/web", "--arrive: must say when, as in shop/web@20m"),
        ("--delete shop/web@1m --delete shop/web@2m", "--delete: names a second time: 'shop/web'"),
        ("--arrive shop/web@5m --delete shop/web@1m", "--delete: is before 'shop/web' arrives"),
        ("--arrive shop/runs@5m", "--arrive: names a binding that runs already: 'shop/runs'"),
        ("--lose b", "--lose: names no cluster that is given: 'b'"),
        ("--lose a@soon", "--lose: must be a span such as 90s, 1h30m or 7d, not 'soon'"),
        ("--back a", "--back: must say when, as in a@20m"),
    ):
        runs = binding("runs", 1, clusters=[{"name": "a", "replicas": 1}])
        result = drill.say(cluster("a"), binding("web", 1), runs, options=options)
        assert (result.exit_code, message in result.output) == (1, True), result.output
    table = drill.say(cluster("a"), binding("web", 9), options="--lose a").stdout
    assert "Who waits at the end" in table
    assert "cpu in 1 cluster" in table


def test_a_sentence_says_that_no_binding_waits(drill: Drill) -> None:
    result = drill.say(cluster("a"), cluster("b"), binding("web", 1), options="--lose a")
    assert result.exit_code == 0, result.output
    assert result.stdout.endswith("\n\nNo binding waits at the end.\n")
    assert "POSITION" not in result.output


STRICT = {
    "apiVersion": "fedsched.io/v1",
    "kind": "FederationSchedulerConfiguration",
    "profiles": [{"schedulerName": "strict", "queueing": "Strict"}],
}


def test_nobody_overtakes_the_first_of_a_strict_profile(drill: Drill, tmp_path: Path) -> None:
    config = tmp_path / "profiles.json"
    config.write_text(json.dumps(STRICT), encoding="utf-8")

    def strict(name: str, replicas: int, priority: int = 0, at: str = "a") -> dict[str, Any]:
        order = {"schedulerName": "strict", "schedulePriority": {"priority": priority}}
        return binding(name, replicas, placement=named(at), **order)

    answer = drill.run(
        cluster("a", cpu=4),
        cluster("b", cpu=4),
        strict("small", 1),
        strict("large", 5, 3),
        strict("late", 2),
        strict("urgent", 1, 7),
        strict("elsewhere", 4, at="b"),
        binding("of-others", 1, placement=named("a")),
        options=(
            f"--scheduler-config {config} --arrive shop/late@1m --arrive shop/urgent@2m "
            "--arrive shop/of-others@3m --delete shop/large@10m"
        ),
    )
    assert told(answer) == [
        (0, "waits", "shop/large", {}),
        (0, "placed", "shop/elsewhere", {"b": 4}),
        (0, "waits", "shop/small", {}),
        (60, "waits", "shop/late", {}),
        # Neither who comes before it is held up by it, nor who is of another profile.
        (120, "placed", "shop/urgent", {"a": 1}),
        (180, "placed", "shop/of-others", {"a": 1}),
        (600, "deleted", "shop/large", {}),
        (600, "placed", "shop/small", {"a": 1}),
        # One core is left, for less than it wants.
        (780, "earmarked", "shop/late", {}),
    ]
    (late,) = answer["queue"]
    assert (late["binding"], late["position"]) == ("shop/late", 1)
    small = next(each for each in answer["steps"] if each["who"] == "shop/small")
    assert "room is kept for shop/large, which waited before" in small["reason"]
