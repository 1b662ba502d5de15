"""``fedctl``: what waits is listed, on terminals of any width, and described."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from google.protobuf.timestamp_pb2 import Timestamp

from federation.cli import following, output, queueing, reservations, watch
from federation.cli.__main__ import fedctl
from federation.client import WatchMessage
from federation.v1 import resource_pb2, scheduling_pb2
from lab.control_planes import report, running_control_plane
from tests.unit.cli.test_reservations import BINDING, run

NOW = 1_800_000_000.0
OVERTAKEN = scheduling_pb2.Wait(
    state=scheduling_pb2.WAIT_STATE_UNSCHEDULABLE,
    since=Timestamp(seconds=int(NOW) - 7200),
    attempts=12,
    position=1,
    short_of="nvidia.com/gpu in 12 clusters, memory in 3",
    overtaken_since=Timestamp(seconds=int(NOW) - 300),
    overtaken_by="shop/checkout",
    remainder=8,
)
BACKOFF = scheduling_pb2.Wait(
    state=scheduling_pb2.WAIT_STATE_BACKOFF,
    since=Timestamp(seconds=int(NOW) - 30),
    attempts=2,
    position=2,
    next_try=Timestamp(seconds=int(NOW) + 4),
    short_of="cpu in 1 cluster",
    remainder=1,
)
GATED = scheduling_pb2.Wait(
    state=scheduling_pb2.WAIT_STATE_GATED,
    since=Timestamp(seconds=int(NOW) - 90),
    gate="suspended",
)
QUEUE = [
    scheduling_pb2.QueuedBinding(
        namespace="ml",
        name="training-job",
        priority=100,
        wait=OVERTAKEN,
        decision_id="6f0f64ae-8f51-4b5e-9c7d-2f9a3a0f3c55",
    ),
    scheduling_pb2.QueuedBinding(namespace="shop", name="web-deployment", wait=BACKOFF),
    scheduling_pb2.QueuedBinding(namespace="shop", name="batch-job", priority=-1, wait=GATED),
]
GOLDEN = {
    80: """\
POSITION  NAMESPACE  NAME            STATE             WAITS  SHORT OF
       1  ml         training-job    unschedulable     2h     nvidia.com/gpu in
                                                              12 clusters,
                                                              memory in 3
       2  shop       web-deployment  backoff           30s    cpu in 1 cluster
       -  shop       batch-job       gated: suspended  90s
""",
    160: """\
POSITION  NAMESPACE  NAME            PRIORITY  STATE             WAITS  REMAINDER  ATTEMPTS\
  OVERTAKEN  SHORT OF
       1  ml         training-job         100  unschedulable     2h             8        12\
  5m         nvidia.com/gpu in 12 clusters, memory in 3
       2  shop       web-deployment         0  backoff           30s            1         2\
  -          cpu in 1 cluster
       -  shop       batch-job             -1  gated: suspended  90s            0         0\
  -
""",
}


class Answers:
    """A client that knows its answers."""

    async def list_queue(self, namespace: str, *, priority: int | None) -> Any:
        del namespace, priority
        return QUEUE

    async def get_binding(self, namespace: str, name: str) -> Any:
        names = resource_pb2.ObjectMeta(namespace=namespace, name=name)
        binding = resource_pb2.ResourceBinding(metadata=names)
        return scheduling_pb2.GetBindingResponse(binding=binding, wait=OVERTAKEN)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    connection = SimpleNamespace(call=lambda method: asyncio.run(method(Answers())))
    for module in (following, queueing, reservations):
        monkeypatch.setattr(module, "connection", lambda: connection)
    monkeypatch.setattr(time, "time", lambda: NOW)
    return monkeypatch


@pytest.mark.parametrize("width", GOLDEN)
def test_a_table(terminal: pytest.MonkeyPatch, width: int) -> None:
    terminal.setattr(output, "_is_terminal", lambda: True)
    terminal.setenv("COLUMNS", str(width))
    result = CliRunner().invoke(fedctl, ["get", "queue"])
    assert result.stdout == GOLDEN[width]


def test_a_binding_that_waits_is_described(terminal: pytest.MonkeyPatch) -> None:
    del terminal
    result = CliRunner().invoke(fedctl, ["describe", "binding", "ml/training-job"])
    assert result.exit_code == 0, result.output
    assert DESCRIBED in result.stdout


DESCRIBED = """\
Waits:       unschedulable for 2h, position 1, tried 12 times
Not placed:  8
Short of:    nvidia.com/gpu in 12 clusters, memory in 3
Overtaken:   since 2027-01-15T07:55:00Z, first by shop/checkout
"""


LATE = scheduling_pb2.Wait(
    state=scheduling_pb2.WAIT_STATE_GATED,
    gate="1 of 2 members of gang pair is here",
    short_of="1 member of gang pair",
    timed_out=True,
)


def watched_line(event: scheduling_pb2.BindingEvent, terminal: pytest.MonkeyPatch) -> str:
    """Return the line that ``fedctl watch bindings`` prints for one event."""
    connection = SimpleNamespace(iterate=lambda _: iter([WatchMessage(events=[event])]))
    terminal.setattr(watch, "connection", lambda: connection)
    result = CliRunner().invoke(fedctl, ["watch", "bindings"])
    assert result.exit_code == 0, result.output
    (line,) = result.stdout.splitlines()
    return line


def test_a_watch_tells_who_waits(terminal: pytest.MonkeyPatch) -> None:
    names = resource_pb2.ObjectMeta(namespace="ml", name="training-job")
    spec = resource_pb2.ResourceBindingSpec(replicas=8)
    event = scheduling_pb2.BindingEvent(
        type=resource_pb2.EVENT_TYPE_UPDATED,
        binding=resource_pb2.ResourceBinding(metadata=names, spec=spec),
        decision_id="d1",
        wait=BACKOFF,
    )
    told = "UPDATED  ml/training-job  replicas 8  clusters -  d1"
    assert watched_line(event, terminal) == f"{told}  waits: backoff, short of cpu in 1 cluster"
    event.wait.CopyFrom(LATE)
    waits = "gated: 1 of 2 members of gang pair is here, timed out, short of 1 member of gang pair"
    assert watched_line(event, terminal) == f"{told}  waits: {waits}"
    event.ClearField("wait")
    assert watched_line(event, terminal) == told


def test_who_waits_for_others_to_leave_says_so(terminal: pytest.MonkeyPatch) -> None:
    leave = "2 replicas of shop/low to leave m1, since 2027-01-15T07:55:00Z"
    wait = scheduling_pb2.Wait(
        state=scheduling_pb2.WAIT_STATE_UNSCHEDULABLE,
        since=Timestamp(seconds=int(NOW) - 7200),
        short_of=f"waits for {leave}",
        nominated=scheduling_pb2.Nomination(
            since=Timestamp(seconds=int(NOW) - 300),
            until=Timestamp(seconds=int(NOW) + 300),
            shares=[resource_pb2.TargetCluster(name="m1", replicas=4)],
        ),
    )
    assert queueing.wait_facts(wait)[1:] == [
        ("Waits for", leave),
        ("Room is kept", "for 4 in m1, until 2027-01-15T08:05:00Z"),
    ]
    event = scheduling_pb2.BindingEvent(type=resource_pb2.EVENT_TYPE_UPDATED, wait=wait)
    assert watched_line(event, terminal).endswith(f"waits: unschedulable, waits for {leave}")
    queued = scheduling_pb2.QueuedBinding(namespace="shop", name="urgent", wait=wait)
    terminal.setattr(sys.modules[__name__], "QUEUE", [queued])
    for shown in ([], ["-o", "wide"], ["-o", "json"]):
        assert leave in CliRunner().invoke(fedctl, ["get", "queue", *shown]).stdout
    wide = CliRunner().invoke(fedctl, ["get", "queue", "-o", "wide"]).stdout
    assert " 5m " in wide, "for how long room is kept"


PAGE = Path(__file__).parents[3] / "docs" / "queue.md"
COMMANDS = [
    line.partition("#")[0].split()[1:]
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if line.startswith("fedctl ")
]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the page's commands read."""
    monkeypatch.chdir(tmp_path)
    spec = BINDING["spec"] | {"replicas": 1000}
    Path("binding.yaml").write_text(yaml.safe_dump(BINDING | {"spec": spec}), encoding="utf-8")


@pytest.mark.usefixtures("files")
async def test_every_command_of_the_page_runs_as_it_stands(
    database_url: str, tmp_path: Path
) -> None:
    async with (
        running_control_plane(database_url, tmp_path) as running,
        running.connected("member1", report=report()),
    ):
        shown = {}
        for command in COMMANDS:
            result = await run(running, *command)
            assert result.exit_code == 0, result.output
            shown[" ".join(command)] = result.stdout
        assert "Queued:" in shown["schedule -f binding.yaml"]
        assert "Queued:" not in shown["schedule -f binding.yaml --no-wait"]
        assert "suspended" in shown["suspend shop/web"]
        assert "UNSCHEDULABLE" in shown["reschedule shop/web"]
    assert len(COMMANDS) == 9
