"""Every attack with a little of its force: others must be served as if nothing was."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from federation.embedded_postgres.home import prepare_home
from lab.attack.__main__ import ATTACKS, plane_of_its_own
from lab.attack.attack import Attack, carry_out
from lab.attack.target import Target, attacked_plane
from lab.databases import Databases
from lab.processes import SAMPLE_SECONDS, Sample, metered

FORCE = 0.05


def test_who_is_busy_is_told_from_who_serves_bystanders() -> None:
    """Three tenths of a core in peace, twice that for two seconds after an attack."""
    with metered(os.getpid()) as meter:
        pass
    cpu_seconds, samples = 0.0, list[Sample]()
    for number in range(200):
        at = number * SAMPLE_SECONDS
        samples.append(Sample(at=at, rss_mib=1.0, cpu_seconds=cpu_seconds))
        cpu_seconds += (0.6 if 5.0 <= at < 7.0 else 0.3) * SAMPLE_SECONDS
    meter.samples = samples
    in_peace = meter.cores(0.0, 5.0)
    assert in_peace == pytest.approx(0.3)
    assert meter.busy_seconds(5.0, in_peace) == pytest.approx(1.95, abs=0.1)
    assert meter.busy_seconds(3.0, in_peace) == pytest.approx(0.0, abs=0.1)
    meter.samples = samples[:135]
    assert meter.busy_seconds(5.0, in_peace) is None


@pytest.fixture(scope="module")
def target(
    databases: Databases, template_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Target]:
    url = databases.create("attacks", template=template_url)
    folder = tmp_path_factory.mktemp("attacks")
    with attacked_plane(folder, tls=True, FEDERATION_DATABASE_URL=url) as attacked:
        yield attacked
    databases.drop(url)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_others_are_served_during_an_attack(attack: Attack, target: Target) -> None:
    result = carry_out(attack, target, FORCE, pairs=1)
    # A database that takes two seconds on a busy machine makes /readyz say so.
    assert [each for each in result.complaints if not each.startswith("/readyz: 503")] == []
    # It would prove nothing if nobody had called.
    assert result.figures["second caller's calls"] > 0


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")
def test_nothing_is_left_of_what_was_attacked() -> None:
    """Root's databases lie in folders that nobody finds again without their own."""
    with plane_of_its_own(tls=False) as target:
        said = Path(f"/proc/{target.pid}/cmdline").read_text(encoding="utf-8").split("\0")
        (data,) = (each.partition("=")[2] for each in said if each.startswith("--data-dir="))
        kept = prepare_home(Path(data) / "postgres")
        assert kept.data.exists()
    assert not kept.private.exists()
    assert not Path(data).parent.exists()
