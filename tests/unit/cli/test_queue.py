"""``fedctl``: what a watch says of bindings that wait, and the page about the queue."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path

import pytest
from click.testing import CliRunner

from federation.cli.__main__ import fedctl
from federation.v1 import scheduling_pb2
from lab.control_planes import RunningControlPlane
from tests.unit.cli.calling import binding, run, written
from tests.unit.cli.canned import QUEUE, answer_with, of

LATE = of(
    scheduling_pb2.Wait,
    state="WAIT_STATE_GATED",
    gate="1 of 2 members of gang pair is here",
    shortOf="1 member of gang pair",
    timedOut=True,
)


def watched_words(wait: scheduling_pb2.Wait, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return what ``fedctl get binding -o wide`` says of the wait of one."""
    answer_with(monkeypatch, get_binding=scheduling_pb2.GetBindingResponse(wait=wait))
    arguments = ["get", "binding", "ml/training-job", "-o", "wide"]
    result = CliRunner().invoke(fedctl, arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_row_of_a_binding_says_what_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "  backoff, short of cpu in 1 cluster " in watched_words(QUEUE[1].wait, monkeypatch)
    waits = "gated: 1 of 2 members of gang pair is here, timed out, short of 1 member of gang pair"
    assert waits in watched_words(LATE, monkeypatch)


def test_who_waits_for_others_to_leave_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    leave = "2 replicas of shop/low to leave m1, since 2027-01-15T07:55:00Z"
    wait = of(
        scheduling_pb2.Wait,
        state="WAIT_STATE_UNSCHEDULABLE",
        since="2027-01-15T06:00:00Z",
        shortOf=f"waits for {leave}",
        nominated={
            "since": "2027-01-15T07:55:00Z",
            "until": "2027-01-15T08:05:00Z",
            "shares": [{"name": "m1", "replicas": 4}],
        },
    )
    assert f"unschedulable, waits for {leave}" in watched_words(wait, monkeypatch)
    queued = scheduling_pb2.QueuedBinding(namespace="shop", name="urgent", wait=wait)
    found = scheduling_pb2.GetBindingResponse(wait=wait)
    answer_with(monkeypatch, list_queue=[queued], get_binding=found)
    for options in ([], ["-o", "wide"], ["-o", "json"]):
        assert leave in CliRunner().invoke(fedctl, ["get", "queue", *options]).stdout
    wide = CliRunner().invoke(fedctl, ["get", "queue", "-o", "wide"]).stdout
    assert " 5m " in wide, "for how long room is kept"
    described = CliRunner().invoke(fedctl, ["describe", "binding", "shop/urgent"]).stdout
    lines = [" ".join(line.split()) for line in described.splitlines()]
    assert f"Waits for: {leave}" in lines
    assert "Room is kept: for 4 in m1, until 2027-01-15T08:05:00Z" in lines


PAGE = Path(__file__).parents[3] / "docs" / "queue.md"
COMMANDS = [
    line.partition("#")[0].split()[1:]
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if line.startswith("fedctl ")
]


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The file that the page's commands read, of the name that they have for it."""
    monkeypatch.chdir(tmp_path)
    return str(Path(written(tmp_path, binding(replicas=1000))).rename("binding.yaml"))


@pytest.mark.usefixtures("member1", "large")
async def test_every_command_of_the_page_runs_as_it_stands(running: RunningControlPlane) -> None:
    shown = {}
    for command in COMMANDS:
        # A command that says with its code that there is no place has an alternative.
        arguments = list(takewhile("||".__ne__, command))
        result = await run(running, *arguments)
        assert result.exit_code == (3 if "||" in command else 0), result.output
        shown[" ".join(arguments)] = result.stdout
    assert "Queued:" in shown["schedule -f binding.yaml"]
    assert "Queued:" not in shown["schedule -f binding.yaml --no-queue"]
    assert "suspended" in shown["suspend shop/web"]
    assert "UNSCHEDULABLE" in shown["reschedule shop/web"]
    assert len(COMMANDS) == 9
