"""Every attack with a little of its force: others must be served as if nothing was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.attack.attack import Attack, carry_out
from tests.attack.registry import ATTACKS
from tests.attack.target import Target, attacked_plane
from tests.databases import Databases

FORCE = 0.05


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
