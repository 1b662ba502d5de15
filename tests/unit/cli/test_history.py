"""``fedctl get decisions`` and ``history``: rows at two widths, and what changed in each step."""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from federation.cli import output as show
from federation.cli.history import DECISIONS as DECISION_KIND
from federation.cli.history import STEPS, steps_of
from federation.cli.kinds import Listing
from federation.cli.listing import print_list
from federation.cli.replay import NOT_EQUAL
from federation.cli.times import time_of
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
from lab.control_planes import RunningControlPlane, report, running_control_plane
from lab.databases import connect
from tests.api.calls import binding, scheduled
from tests.keepers import Keeper
from tests.unit.cli.hostile import HOSTILE
from tests.unit.cli.test_reservations import run
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


# The width, and whether decisions are shown or steps.
GOLDEN = {
    (80, False): """
DECISION                              AGE  BINDING        OUTCOME
0195a4f2-0000-4000-8000-000000000004  2m   shop/checkout  SCHEDULED
0195a4f2-0000-4000-8000-000000000003  4m   shop/checkout  UNSCHEDULABLE
0195a4f2-0000-4000-8000-000000000002  6m   shop/checkout  PARTIAL
0195a4f2-0000-4000-8000-000000000001  8m   shop/checkout  SCHEDULED
""",
    (80, True): """
TIME                  OUTCOME        CHANGE                WHY
2026-05-28T20:24:40Z  SCHEDULED      member3=0->5          replicas changed
2026-05-28T20:22:40Z  UNSCHEDULABLE  none                  replicas changed; 5
                                                           replicas are
                                                           available, 9 wanted;
                                                           short of memory in 2
                                                           clusters
2026-05-28T20:20:40Z  PARTIAL        member2=3->0          cluster member2 is
                                                           gone
2026-05-28T20:18:40Z  SCHEDULED      member1=0->2,         the binding is new
                                     member2=0->3
""",
    (160, False): """
DECISION                              AGE  BINDING        OUTCOME        SHARES              \
  WHY
0195a4f2-0000-4000-8000-000000000004  2m   shop/checkout  SCHEDULED      member1=2, member3=5\
  replicas changed
0195a4f2-0000-4000-8000-000000000003  4m   shop/checkout  UNSCHEDULABLE  -                   \
  replicas changed; 5 replicas are available, 9 wanted; short of
                                                                                             \
  memory in 2 clusters
0195a4f2-0000-4000-8000-000000000002  6m   shop/checkout  PARTIAL        member1=2           \
  cluster member2 is gone
0195a4f2-0000-4000-8000-000000000001  8m   shop/checkout  SCHEDULED      member1=2, member2=3\
  the binding is new
""",
    (160, True): """
TIME                  OUTCOME        CHANGE                    \
  WHY                                                        DECISION
2026-05-28T20:24:40Z  SCHEDULED      member3=0->5              \
  replicas changed                                           0195a4f2-0000-4000-8000-000000000004
2026-05-28T20:22:40Z  UNSCHEDULABLE  none                      \
  replicas changed; 5 replicas are available, 9 wanted;      0195a4f2-0000-4000-8000-000000000003
                                                               \
  short of memory in 2 clusters
2026-05-28T20:20:40Z  PARTIAL        member2=3->0              \
  cluster member2 is gone                                    0195a4f2-0000-4000-8000-000000000002
2026-05-28T20:18:40Z  SCHEDULED      member1=0->2, member2=0->3\
  the binding is new                                         0195a4f2-0000-4000-8000-000000000001
""",
}


@pytest.mark.parametrize(("width", "steps"), GOLDEN)
def test_rows(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    width: int,
    *,
    steps: bool,
) -> None:
    monkeypatch.setattr(show, "_is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(time, "time", lambda: NOW + 1)
    listing = Listing(output=show.Output())
    if steps:
        print_list(STEPS, listing, steps_of(DECISIONS))
    else:
        print_list(DECISION_KIND, listing, DECISIONS)
    assert capsys.readouterr().out == GOLDEN[width, steps].removeprefix("\n")


def test_what_a_step_changed_is_told_from_what_is_known() -> None:
    whole = [dict(step.changes) for step in steps_of(DECISIONS)]
    assert whole == [
        {"member3": (0, 5)},
        {},
        {"member2": (3, 0)},
        {"member1": (0, 2), "member2": (0, 3)},
    ]
    # The one before is not shown: the whole placement.
    (cut,) = steps_of(DECISIONS[2:3])
    assert dict(cut.changes) == {"member1": (None, 2)}
    assert cut.document()["changes"] == [{"cluster": "member1", "after": 2}]
    # Deleted, and made again under the same name.
    again = decision(5, OUTCOME_SCHEDULED, "the binding is new", member1=2)
    assert dict(steps_of([again, *DECISIONS])[0].changes) == {"member1": (0, 2)}


def test_times() -> None:
    assert time_of("2h", "--since", NOW).seconds == NOW - 7200
    assert time_of("999999999d", "--since", NOW).seconds == 0
    assert time_of("2026-03-01T12:00:00+01:00", "--since", NOW).seconds == 1_772_362_800
    for text in ("", "2", "-2h", "yesterday", "2026-03-01"):
        with pytest.raises(InvalidRequest, match="must be a span such as 24h"):
            time_of(text, "--since", NOW)


@pytest.fixture
async def running(database_url: str, tmp_path: Path) -> AsyncIterator[RunningControlPlane]:
    async with running_control_plane(database_url, tmp_path, keep_reports_hours="0") as found:
        yield found


async def test_the_commands_of_the_page_answer(
    running: RunningControlPlane,
    database_url: str,
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
    connection = await connect(database_url)
    await connection.execute("UPDATE decision SET reason = $1", f"{HOSTILE} changed")
    await connection.close()
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
        (("get", "decisions", "-n", "a", "--binding", "a/b"), 2, "leave --namespace out"),
        (("get", "decisions", "--limit", "0"), 2, "--limit"),
        (("get", "decisions", "--outcome", "good"), 2, "--outcome"),
        (("get", "decisions", "--since", "soon"), 1, "--since"),
        (("get", "decisions", "--cluster", "No Name"), 1, "cannot be a cluster's name"),
        (("get", "decision", "nobody"), 1, "There is no decision"),
        (("history", "shop/"), 1, "names no binding"),
    ):
        answer = await run(running, *arguments)
        assert answer.exit_code == code, answer.output
        assert words in answer.output
