"""``fedctl get decisions`` and ``history``: what changed in each step, and the page about them."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from google.protobuf.timestamp_pb2 import Timestamp

from federation.cli.__main__ import fedctl
from federation.cli.arguments import time_of
from federation.cli.history import NOT_EQUAL
from federation.model.errors import InvalidRequest
from federation.model.printable import is_printable
from federation.v1.resource_pb2 import TargetCluster
from federation.v1.scheduling_pb2 import (
    OUTCOME_PARTIAL,
    OUTCOME_SCHEDULED,
    OUTCOME_UNSCHEDULABLE,
    Decision,
    Outcome,
)
from lab.control_planes import RunningControlPlane, report
from tests.api.calls import binding, scheduled
from tests.keepers import Keeper
from tests.unit.cli.calling import run
from tests.unit.cli.canned import answer_with
from tests.unit.cli.hostile import HOSTILE
from tests.unit.cli.test_what_if import CLUSTER, POLICY

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "history.md").read_text(encoding="utf-8")
# A Dask cluster has tests of its own, and what the page begins with is another binding.
COMMANDS = [
    command
    for command in re.findall(r"^fedctl .*", PAGE, flags=re.MULTILINE)
    if "--dask" not in command and not command.startswith("fedctl schedule")
]
# What they name.
DOCUMENTS = {
    "policy.yaml": POLICY,
    "clusters.yaml": CLUSTER,
    "profiles.yaml": (
        "{apiVersion: fedsched.io/v1, kind: FederationSchedulerConfiguration,"
        " profiles: [{schedulerName: batch}]}"
    ),
}
NOW = 1_780_000_000.0


def decision(
    number: int,
    outcome: Outcome.ValueType,
    trigger: str,
    *,
    reason: str = "",
    **shares: int,
) -> Decision:
    return Decision(
        id=f"0195a4f2-0000-4000-8000-{number:012}",
        namespace="shop",
        name="checkout",
        outcome=outcome,
        clusters=[TargetCluster(name=name, replicas=count) for name, count in shares.items()],
        reason=reason,
        triggers=[trigger],
        create_time=Timestamp(seconds=int(NOW) - 600 + 120 * number, nanos=37_000_000),
    )


DECISIONS = [
    decision(4, OUTCOME_SCHEDULED, "replicas changed", member1=2, member3=5),
    decision(
        3,
        OUTCOME_UNSCHEDULABLE,
        "replicas changed",
        reason="5 replicas are available, 9 wanted; short of memory in 2 clusters",
    ),
    decision(2, OUTCOME_PARTIAL, "cluster member2 is gone", member1=2),
    decision(1, OUTCOME_SCHEDULED, "the binding is new", member1=2, member2=3),
]


async def test_what_a_step_changed_is_told_from_what_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def changes(decisions: list[Decision]) -> list[Any]:
        answer_with(monkeypatch, list_decisions=decisions)
        answer = CliRunner().invoke(fedctl, ["history", "shop/checkout", "-o", "json"])
        assert answer.exit_code == 0, answer.output
        return [each["changes"] for each in json.loads(answer.stdout)]

    def change(cluster: str, before: int, after: int) -> dict[str, Any]:
        return {"cluster": cluster, "before": before, "after": after}

    assert changes(DECISIONS) == [
        [change("member3", 0, 5)],
        [],
        [change("member2", 3, 0)],
        [change("member1", 0, 2), change("member2", 0, 3)],
    ]
    # The one before is not shown: the whole placement.
    assert changes(DECISIONS[2:3]) == [[{"cluster": "member1", "after": 2}]]
    # Deleted, and made again under the same name.
    again = decision(5, OUTCOME_SCHEDULED, "the binding is new", member1=2)
    assert changes([again, *DECISIONS])[0] == [change("member1", 0, 2)]


def test_times() -> None:
    assert time_of("2h", "--since", NOW).seconds == NOW - 7200
    assert time_of("999999999d", "--since", NOW).seconds == 0
    assert time_of("2026-03-01T12:00:00+01:00", "--since", NOW).seconds == 1_772_362_800
    for text in ("", "2", "-2h", "yesterday", "2026-03-01"):
        with pytest.raises(InvalidRequest, match="must be a span such as 24h"):
            time_of(text, "--since", NOW)


@pytest.fixture(scope="module")
def flags() -> dict[str, str]:
    return {"keep_reports_hours": "0"}


async def test_the_commands_of_the_page_answer(
    running: RunningControlPlane,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for file, document in DOCUMENTS.items():
        (tmp_path / file).write_text(document, encoding="utf-8")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    name = "checkout-deployment"
    async with running.connected("member1", report=report()):
        keep = Keeper(running.plane)
        await scheduled(running, binding(name, replicas=2))
        # As once a minute, and not just before the report.
        await keep()
        newest: Any = (await scheduled(running, binding(name, replicas=3))).decision
    assert len(COMMANDS) >= 13
    for command in COMMANDS:
        arguments = shlex.split(command.replace("DECISION", newest.id))[1:]
        answer = await run(running, *arguments)
        assert answer.exit_code == 0, (command, answer.output)
        if arguments[0] == "replay":
            assert "equal" in answer.stdout.lower(), (command, answer.output)
        elif arguments[0] == "what-if":
            assert "Otherwise" in answer.stdout or '"different"' in answer.stdout, answer.output
        elif arguments[0] == "trace":
            assert answer.stdout.startswith("2 decisions, "), (command, answer.output)
        else:
            is_of_others = "--outcome" in arguments
            assert (newest.id in answer.stdout) is not is_of_others, (command, answer.output)
    await running.sql("UPDATE decision SET reason = $1", f"{HOSTILE} changed")
    answer = await run(running, "replay", newest.id)
    assert answer.exit_code == NOT_EQUAL
    assert "First difference:  reason" in answer.stdout
    assert all(map(is_printable, answer.stdout.splitlines()))
    answer = await run(running, "history", f"shop/{name}", "--limit", "1", "-o", "json")
    (step,) = json.loads(answer.stdout)
    assert step["triggers"] == ["replicas changed"]
    assert step["changes"] == [{"cluster": "member1", "before": 2, "after": 3}]


async def test_options_that_make_no_sense(running: RunningControlPlane) -> None:
    for arguments, code, words in (
        (("get", "decisions", "-n", "b", "--binding", "a/b"), 1, "is not in the namespace"),
        (("get", "decisions", "--limit", "0"), 2, "--limit"),
        (("get", "decisions", "--outcome", "good"), 2, "--outcome"),
        (("get", "decisions", "--since", "soon"), 1, "--since"),
        (("get", "decisions", "--cluster", "No Name"), 1, "cluster: must be at most 48 lower-case"),
        (("get", "decision", "nobody"), 1, "There is no decision"),
        (("get", "decisions", "-n", "a", "-A"), 2, "choose one"),
        (("history", "shop/"), 1, "names no binding"),
    ):
        answer = await run(running, *arguments)
        assert answer.exit_code == code, answer.output
        assert words in answer.output
