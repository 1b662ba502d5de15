"""Answers that no API server gives, and how little is loaded to ask one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from estimator.kube.client import cluster_facts, connect, decoded
from estimator.kube.objects import VersionInfo
from federation.model.errors import Unavailable
from lab.kubeapi.documents import namespace
from lab.kubeapi.faults import Answer
from lab.kubeapi.server import KubeApiServer
from lab.kubeapi.state import Cluster

NO_ANSWERS = (b"<html>", b'{"gitVersion": "\xff"}', b'{"x": ' + b"[" * 100_000, b"3", b"")


@pytest.mark.parametrize("content", NO_ANSWERS, ids=lambda content: repr(content[:20]))
def test_an_answer_that_no_api_server_gives_may_get_better(content: bytes) -> None:
    with pytest.raises(Unavailable, match="the API server's answer cannot be read"):
        decoded(content, VersionInfo)


def test_a_proxy_that_answers_instead_is_told(tmp_path: Path) -> None:
    with KubeApiServer(Cluster()) as server:
        server.faults.add(Answer(status=200, body=b"<html>sign in</html>"))
        with pytest.raises(Unavailable, match="cannot be read"):
            cluster_facts(connect(server.kubeconfig(tmp_path / "kubeconfig")))


ASK_ONCE = """
import sys
import subprocess
import sys
from pathlib import Path
import estimator.app
from estimator.kube.client import cluster_facts, connect
cluster_facts(connect(Path(sys.argv[1])))
print(*(name for name in sys.modules if name.startswith(("aiohttp", "kubernetes.client.models."))))
"""


def test_an_agent_loads_nothing_large_that_it_does_not_need(tmp_path: Path) -> None:
    """The client's models, and a web server, took longer to load than 20,000 pods to read."""
    with KubeApiServer(Cluster()) as server:
        server.cluster.put(namespace("kube-system"))
        kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
        command = [sys.executable, "-c", ASK_ONCE, str(kubeconfig)]
        loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert loaded.split() == []
