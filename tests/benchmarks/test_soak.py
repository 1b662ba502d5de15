"""The soak, for seconds and with few agents: nothing is wrong, and what is wrong fails it."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from lab.benchmarks import soak as program
from lab.benchmarks.members import agents_there, federation
from lab.benchmarks.soak import MOST_GROWTH, Soak, Soaked, soak
from lab.callers import calling
from lab.databases import run
from lab.fleet import cluster_name
from lab.planes import Planes
from lab.programs import Beside, beside

GIVEN = Soak(seconds=2.0, agents=6, estimates=5.0, schedules=10.0, watchers=2, unseen=False)

There = tuple[Planes, str, Beside]


@pytest.fixture(scope="module")
def there() -> Iterator[There]:
    with (
        tempfile.TemporaryDirectory(prefix="fedsched-soak-", dir="/var/tmp") as folder,
        federation(Path(folder), 1, GIVEN.agents) as (planes, postgres, credentials),
        agents_there(planes, credentials, GIVEN.report_seconds) as agents,
    ):
        yield planes, postgres.url, agents


@pytest.fixture(autouse=True)
def frequent_guests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "CHURN_SECONDS", 0.5)


async def leave(planes: Planes, cluster: str) -> None:
    async with calling(planes.endpoints[0], planes.token) as caller:
        await caller.ask("DeleteCluster", name=cluster, force=True)


def soaked(there: There) -> Counter[str]:
    """What went wrong; memory grows in the first seconds."""
    planes, url, agents = there
    return asyncio.run(soak(GIVEN, planes, url, agents)).wrong


def test_nothing_goes_wrong(there: There, monkeypatch: pytest.MonkeyPatch) -> None:
    # Fewer than are made: some are deleted.
    monkeypatch.setattr(program, "KEPT_BINDINGS", 10)
    assert soaked(there) == Counter()


def test_watchers_that_end_fail_it(there: There, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def killed(*command: str, given: object) -> Iterator[Beside]:
        with beside(*command, given=given) as running:
            running.process.kill()
            yield running

    monkeypatch.setattr(program, "beside", killed)
    assert soaked(there) == {"lab.benchmarks.bench_mixed --watch ended early, with -9": 1}


def test_an_agent_that_is_sent_away_fails_it(there: There, monkeypatch: pytest.MonkeyPatch) -> None:
    planes, _, _ = there

    @contextmanager
    def removed(*command: str, given: object) -> Iterator[Beside]:
        with beside(*command, given=given) as running:
            run(leave(planes, cluster_name(5)))
            yield running

    monkeypatch.setattr(program, "beside", removed)
    wrong = soaked(there)
    assert any(what.startswith("an agent's stream") for what in wrong), wrong


def test_agents_that_end_fail_it(there: There) -> None:
    """The last one: none are there afterwards."""
    _, _, agents = there
    agents.process.kill()
    wrong = soaked(there)
    assert wrong["lab.benchmarks.members ended early, with -9"] == 1


def test_more_memory_or_anything_wrong_is_no_success() -> None:
    kept = Soaked(wrong=Counter(), growth=MOST_GROWTH)
    assert kept.is_kept()
    assert not replace(kept, growth=MOST_GROWTH + 0.001).is_kept()
    assert not replace(kept, wrong=Counter(["a watcher's stream: it was ended"])).is_kept()
