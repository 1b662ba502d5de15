"""The API servers that the contract is held up to: the fake, and a real one where there is one.

KUBEBUILDER_ASSETS names the folder with etcd and kube-apiserver.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.kubeapi.api import TOKEN, Api, RealServer
from lab.kubeapi.documents import namespace
from lab.kubeapi.server import ADMIN_TOKEN, KubeApiServer
from lab.kubeapi.state import Cluster

VARIABLE = "KUBEBUILDER_ASSETS"
# Without a real one every test would say so; test_real_server.py says it once.
SERVERS = ("fake", "real") if os.environ.get(VARIABLE) else ("fake",)


@pytest.fixture(scope="session")
def fake_server() -> Iterator[KubeApiServer]:
    cluster = Cluster(version=10)
    for name in ("default", "kube-system"):
        cluster.put(namespace(name))
    cluster.forget_window()
    with KubeApiServer(cluster) as server:
        yield server


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    assets = os.environ.get(VARIABLE)
    if not assets:
        pytest.skip(f"{VARIABLE} is not set: no etcd and kube-apiserver to compare with")
    for program in ("etcd", "kube-apiserver"):
        if not os.access(Path(assets) / program, os.X_OK):
            pytest.skip(f"{VARIABLE} is {assets}, where there is no {program} to run")
    directory = tmp_path_factory.mktemp("kube")
    with RealServer(Path(assets), directory) as server:
        yield server


@pytest.fixture(params=SERVERS)
def api(request: pytest.FixtureRequest) -> Iterator[Api]:
    """A server, in a new namespace, asked by one who may do everything."""
    if request.param == "fake":
        server: KubeApiServer = request.getfixturevalue("fake_server")
        made = Api.in_new_namespace(server.url, ADMIN_TOKEN)
    else:
        real: RealServer = request.getfixturevalue("real")
        made = Api.in_new_namespace(real.url, TOKEN, real.ca)
    yield made
    made.close()
