"""What `estimator doctor` finds of the credential and of the way to the control planes."""

from __future__ import annotations

import json
import time
from pathlib import Path

from estimator.app import looked_at
from estimator.settings import RunSettings
from federation.runtime.addresses import Address, parse_address
from federation.runtime.findings import Finding, Severity
from lab.control_planes import RunningControlPlane
from lab.kubeapi.documents import namespace
from lab.kubeapi.server import KubeApiServer
from lab.kubeapi.state import Cluster
from tests.unit.rpc.conftest import running

__all__ = ["running"]

NOBODY = parse_address("127.0.0.1:1")


def settings(tmp_path: Path, endpoint: Address) -> RunSettings:
    return RunSettings(
        cluster="member1",
        endpoints=(endpoint,),
        credential_file=tmp_path / "agent.json",
        insecure=True,
        report=tmp_path / "report.yaml",
    )


def keep(given: RunSettings, credential: str, *, seconds: float = 28 * 86_400.0) -> None:
    kept = {
        "cluster": "member1",
        "endpoints": list(given.addresses),
        "credential": credential,
        "expires_at": time.time() + seconds,
    }
    given.credential_file.write_text(json.dumps(kept), encoding="utf-8")
    given.credential_file.chmod(0o600)


async def found(given: RunSettings, tmp_path: Path) -> list[Finding]:
    (tmp_path / "report.yaml").write_text("nodeSummary: {}\nresourceSummary: {}\n")
    return await looked_at(given)


async def test_an_agent_that_can_work_is_told_so(
    running: RunningControlPlane, tmp_path: Path
) -> None:
    given = settings(tmp_path, running.plane.endpoint)
    agent = await running.enrolled("member1")
    keep(given, agent.metadata[0][1].removeprefix("Bearer "))
    findings = await found(given, tmp_path)
    assert {finding.severity for finding in findings} == {Severity.OK}
    assert [finding.says for finding in findings][1:] == ["serves", "knows the credential"]


async def test_a_credential_that_is_not_known_any_more_is_told(
    running: RunningControlPlane, tmp_path: Path
) -> None:
    given = settings(tmp_path, running.plane.endpoint)
    keep(given, "0123456789abcdef.c2VjcmV0")
    given.credential_file.chmod(0o644)
    bad = [each for each in await found(given, tmp_path) if each.severity is Severity.BAD]
    assert [each.subject for each in bad] == ["secrets", str(given.endpoints[0])]
    assert bad[1].says == "does not know the credential"
    assert "join again" in bad[1].remedy


async def test_what_is_missing_has_a_remedy(tmp_path: Path) -> None:
    given = settings(tmp_path, NOBODY)
    missing, nobody = await found(given, tmp_path)
    assert missing.severity is nobody.severity is Severity.BAD
    assert "has not joined" in missing.says
    assert "fedctl join-token create --cluster member1" in missing.remedy
    assert nobody.says.startswith("does not serve")
    keep(given, "0123456789abcdef.c2VjcmV0", seconds=-1.0)
    ended, _ = await found(given, tmp_path)
    assert ended.severity is Severity.BAD


async def test_a_cluster_that_cannot_be_reached_is_told(tmp_path: Path) -> None:
    cluster = Cluster(version=100)
    cluster.put(namespace("kube-system", uid="the-uid"))
    with KubeApiServer(cluster) as server:
        kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
        given = RunSettings(
            cluster="member1",
            endpoints=(),
            credential_file=tmp_path / "agent.json",
            kubeconfig=kubeconfig,
        )
        well = {finding.subject: finding.severity for finding in await looked_at(given)}
        assert set(well.values()) == {Severity.OK}
        assert {"cluster", "nodes", "pods", "resourcequotas", "clock"} == well.keys()
    (away,) = await looked_at(given)
    assert (away.subject, away.severity) == ("cluster", Severity.BAD)
