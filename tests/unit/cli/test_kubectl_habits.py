"""Commands as people who know kubectl write them: each of docs/how-to/use-kubectl-habits.md, and
what they get wrong.
"""

from __future__ import annotations

import asyncio
import re
import shlex
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from federation.cli.arguments import seconds_of, whole_seconds_of
from federation.model.errors import InvalidRequest
from lab.control_planes import AgentStream, RunningControlPlane, report
from lab.patience import PATIENCE_SECONDS
from tests.unit.cli.calling import answered, binding, flags_for, run, shown, written
from tests.unit.cli.test_watch import line

PAGE = Path(__file__).parents[3] / "docs/how-to/use-kubectl-habits.md"
TASKS = [
    line.split("|")[1:3]
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and "`fedctl" in line
]
# No agent here chooses nodes.
SCHEDULE = ("schedule", "--node-timeout", "0s", "-f")
# What a task prints, or how it ends, in the order of the page.
ANSWERS = {
    "get clusters": "member1",
    "get cluster member1 member2": "member2",
    "get clusters -l": "member1",
    "get bindings -A": "checkout-deployment",
    "get binding/": "name: checkout-deployment",
    "describe": "checkout-deployment",
    "explain": "member1",
    "schedule -f checkout.yaml --dry-run": "Commit until",
    "schedule -f checkout.yaml": "SCHEDULED",
    "schedule -f checkout.yaml --wait": "placed",
    "diff": "replicas in member1",
    "wait": "placed",
    "cordon": "cordoned",
    "uncordon": "uncordoned",
    "top": "member1",
    "label": "labeled",
    "label cluster member2 tier-": "unlabeled",
    "taint": "tainted",
    "taint cluster member2 upgrade-": "untainted",
    "events binding": "SCHEDULED",
    "events cluster": "CordonCluster",
    "delete -f": "binding/shop/checkout-deployment deleted",
    "delete binding": "binding/shop/cart-deployment deleted",
}


async def test_each_task_of_the_page(
    running: RunningControlPlane,
    member1: AgentStream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert len(TASKS) == 16
    del member1
    monkeypatch.chdir(tmp_path)
    cluster = await answered(running, "get", "cluster", "member1")
    cluster["metadata"]["labels"] = {"tier": "gold"}
    await shown(running, "apply", "-f", written(tmp_path, cluster))
    first = binding("checkout-deployment", replicas=3), binding("cart-deployment", replicas=1)
    await shown(running, *SCHEDULE, written(tmp_path, *first))
    changed = binding("checkout-deployment", replicas=5)
    Path("checkout.yaml").write_text(yaml.safe_dump(changed))  # noqa: ASYNC240 - a small file
    async with running.connected("member2", report=report()):
        for task, commands in TASKS:
            for command in re.findall(r"`fedctl ([^`]+)`", commands):
                begin = max(filter(command.startswith, ANSWERS), key=len)
                result = await run(running, *shlex.split(command))
                is_diff = command.startswith("diff")
                assert result.exit_code == (3 if is_diff else 0), (task, command, result.output)
                assert ANSWERS[begin] in result.stdout, (task, command, result.output)


async def test_what_is_wrong_is_told(running: RunningControlPlane) -> None:
    await running.enrolled("member1")
    for arguments, code, words in (
        (("get", "nosuch"), 2, "There is no kind 'nosuch'. The kinds are audit, bindings, "),
        (("get", "pods/web"), 2, "There is no kind 'pods/web'"),
        (("get", "clusters", "member1", "x"), 1, "'x'"),
        (("get", "clusters/x"), 1, "'x'"),
        (("get", "bindings", "-n", "a", "-A"), 2, "choose one"),
        (("describe", "binding", "a/web", "-n", "b"), 1, "is not in the namespace 'b' of -n"),
        (("explain", "binding/web", "-n", "shop"), 1, "shop/web"),
        (("suspend", "a/b/c"), 1, "names no binding"),
        (("delete",), 2, "give a kind and names, or files with -f"),
        (("delete", "-f", "x", "cluster", "member1"), 2, "do not go with a kind"),
        (("cordon",), 2, "NAME..."),
        (("get", "clusters", "--timeout", "soon"), 2, "must be a span such as 90s"),
        (("get", "clusters", "--timeout", "0s"), 2, "must be more than 0 s"),
        (("schedule", "-f", "x", "--node-timeout", "1h"), 2, "at most 20 s"),
        (("schedule", "-f", "x", "--lease-seconds", "500ms"), 2, "must be whole seconds"),
        (("wait", "shop/web", "--for=placed"), 1, "shop/web"),
    ):
        result = await run(running, *arguments)
        assert (result.exit_code, words in result.output) == (code, True), result.output
    assert "cluster/member1" in await shown(running, "get", "clusters/member1", "-o", "name")


async def test_several_are_described(running: RunningControlPlane, tmp_path: Path) -> None:
    names = ("member1", "member2")
    for name in names:
        await running.enrolled(name)
    described = await shown(running, "describe", "cluster", *names)
    assert "Name:           member1" in described
    assert "\n\nName:           member2" in described
    listed = await answered(running, "describe", "cluster", *names)
    assert [document["metadata"]["name"] for document in listed] == [*names]
    waits = binding("one"), binding("two")
    await shown(running, *SCHEDULE, written(tmp_path, *waits))
    keys = await shown(
        running, "describe", "binding", "one", "shop/two", "-n", "shop", "-o", "name"
    )
    assert keys == "binding/shop/one\nbinding/shop/two\n"


async def test_a_wait_ends_when_the_last_binding_is_there(
    running: RunningControlPlane, member1: AgentStream, tmp_path: Path
) -> None:
    del member1
    await shown(running, *SCHEDULE, written(tmp_path, binding(), binding("late")))
    # Six of sixteen cores are free, until both of them are gone.
    await shown(running, *SCHEDULE, written(tmp_path, binding("large", replicas=15)))
    missed = await run(running, "wait", "--for=placed", "shop/large", "--timeout", "2s")
    assert (missed.exit_code, missed.stderr) == (
        1,
        "error: shop/large: not placed within 2 s (--timeout)\n",
    )
    async with (
        waiting(running, "placed", "shop/large", "shop/web") as placed,
        waiting(running, "deleted", "shop/web", "shop/never") as deleted,
    ):
        # Both have looked at what is there.
        assert await line(placed) == "binding/shop/web placed\n"
        assert await line(deleted) == "binding/shop/never deleted\n"
        for name in ("late", "web"):
            await running.ask("DeleteBinding", namespace="shop", name=name)
        assert await line(placed) == "binding/shop/large placed\n"
        assert await line(deleted) == "binding/shop/web deleted\n"


@asynccontextmanager
async def waiting(running: RunningControlPlane, *arguments: str) -> AsyncIterator[Process]:
    condition, *names = arguments
    program = (sys.executable, "-m", "federation.cli", *flags_for(running), "--timeout", "10m")
    command = (*program, "wait", f"--for={condition}", *names)
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE)
    try:
        yield process
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_a_diff_shows_bindings_and_clusters_and_changes_nothing(
    running: RunningControlPlane, member1: AgentStream, tmp_path: Path
) -> None:
    del member1
    await shown(running, *SCHEDULE, written(tmp_path, binding()))
    bindings = await answered(running, "get", "bindings")
    same = await run(running, "diff", "-f", written(tmp_path, binding()))
    assert (same.exit_code, same.stderr) == (0, "Nothing would change.\n")
    larger = written(tmp_path, binding(replicas=7), binding("new", replicas=1))
    differences = await run(running, "diff", "-f", larger, "-o", "jsonpath={[*].field}")
    assert differences.exit_code == 3
    assert differences.stdout.split("\n")[:-1] == [
        "replicas in member1",
        "binding",
        "replicas in member1",
    ]
    full = await run(running, "diff", "-f", written(tmp_path, binding(replicas=700)))
    assert "binding/shop/web would find no place: " in full.stderr
    assert await answered(running, "get", "bindings") == bindings
    cluster = await answered(running, "get", "cluster", "member1")
    del cluster["status"]
    assert (await run(running, "diff", "-f", written(tmp_path, cluster))).exit_code == 0
    cluster["metadata"]["labels"] = {"tier": "gold"}
    changed = await run(running, "diff", "-f", written(tmp_path, cluster), "-o", "json")
    assert changed.exit_code == 3
    assert '"field": "metadata.labels.tier"' in changed.stdout
    assert "tier" not in await shown(running, "get", "cluster", "member1", "-o", "json")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("1h30m", 5400), ("500ms", 0.5), ("1w", 604_800), ("1.5h", 5400)],
)
def test_spans_of_time(text: str, seconds: float) -> None:
    assert seconds_of(text, "--ttl") == seconds


@pytest.mark.parametrize("text", ["", "s", "1x", "-1s", "1h 30m", "1e3", "\u0661s"])
def test_what_is_no_span_of_time(text: str) -> None:
    with pytest.raises(InvalidRequest, match="--ttl: must be a span such as 90s"):
        seconds_of(text, "--ttl")
    with pytest.raises(InvalidRequest, match="must be whole seconds"):
        whole_seconds_of("1.5s", "--ttl")
