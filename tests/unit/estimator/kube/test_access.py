"""Kubeconfigs that cannot be used: one clear error, whatever is wrong with the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from estimator.kube.access import cluster_facts, connect, decoded
from estimator.kube.objects import VersionInfo
from federation.model.errors import PreconditionFailed, Unavailable
from tests.kubeapi.faults import Answer
from tests.kubeapi.server import KubeApiServer
from tests.kubeapi.state import Cluster

NO_ANSWERS = (b"<html>", b'{"gitVersion": "\xff"}', b'{"x": ' + b"[" * 100_000, b"3", b"")


@pytest.mark.parametrize(
    "text", ["", '{"apiVersion": "v1", "kind": "Con', "[]", "x", "kind: Config"]
)
def test_a_file_that_is_no_kubeconfig_or_not_yet_whole_is_refused(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(PreconditionFailed, match=str(path)):
        connect(path)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PreconditionFailed):
        connect(tmp_path / "kubeconfig")


@pytest.mark.parametrize("content", NO_ANSWERS, ids=lambda content: repr(content[:20]))
def test_an_answer_that_no_api_server_gives_may_get_better(content: bytes) -> None:
    with pytest.raises(Unavailable, match="the API server's answer cannot be read"):
        decoded(content, VersionInfo)


def test_a_proxy_that_answers_instead_is_told(tmp_path: Path) -> None:
    with KubeApiServer(Cluster()) as server:
        server.faults.add(Answer(status=200, body=b"<html>sign in</html>"))
        with pytest.raises(Unavailable, match="cannot be read"):
            cluster_facts(connect(server.kubeconfig(tmp_path / "kubeconfig")))
