"""Data directories, and Karmada's API for the tests of the bridge that need HTTP of it alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.servers import embedded_of
from tests.karmada_api import KarmadaApi
from tests.karmada_servers import VARIABLE, fake_karmada, lacking, real_karmada

# Without a real one every test would say so; test_bridge_real_server.py says it once.
SERVERS = ("fake", "real") if os.environ.get(VARIABLE) else ("fake",)


@pytest.fixture(params=SERVERS)
def karmada_api(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KarmadaApi]:
    if request.param == "fake":
        with fake_karmada() as api:
            yield api
        return
    assets = Path(os.environ[VARIABLE])
    if why := lacking(assets):
        pytest.skip(why)
    with real_karmada(assets, tmp_path_factory.mktemp("karmada")) as api:
        yield api


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """A data directory whose embedded database is gone at the end."""
    directory = tmp_path / "state"
    yield directory
    embedded_of(directory).discard()
