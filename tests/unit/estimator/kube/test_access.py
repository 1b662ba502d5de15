"""The way to an API server: its credentials, their renewal, and how little is loaded for it."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from estimator.kube import access
from estimator.kube.access import ServiceAccount, is_direct, service_account
from estimator.kube.client import KubeClient, decoded
from estimator.kube.objects import VersionInfo
from federation.certificates import CertificateFiles, make_certificates
from federation.model.errors import PreconditionFailed, Unavailable
from federation.runtime.watched_files import FileWatch
from lab.kubeapi.access import User
from lab.kubeapi.documents import namespace
from lab.kubeapi.faults import Answer
from lab.kubeapi.server import ADMIN_TOKEN, KubeApiServer
from lab.kubeapi.state import Cluster
from lab.patience import until

NO_ANSWERS = (b"<html>", b'{"gitVersion": "\xff"}', b'{"x": ' + b"[" * 100_000, b"3", b"")
NAMESPACE = "/api/v1/namespaces/kube-system"


@pytest.mark.parametrize("content", NO_ANSWERS, ids=lambda content: repr(content[:20]))
def test_an_answer_that_no_api_server_gives_may_get_better(content: bytes) -> None:
    with pytest.raises(Unavailable, match="the API server's answer cannot be read"):
        decoded(content, VersionInfo)


async def test_a_proxy_that_answers_instead_is_told(tmp_path: Path) -> None:
    with KubeApiServer(Cluster()) as server:
        server.faults.add(Answer(status=200, body=b"<html>sign in</html>"))
        async with KubeClient(server.kubeconfig(tmp_path / "kubeconfig")) as client:
            with pytest.raises(Unavailable, match="cannot be read"):
                await client.cluster_facts()


class Pod:
    """An API server over TLS, and the service account by which a pod reaches it."""

    def __init__(self, server: KubeApiServer, certificates: CertificateFiles, folder: Path) -> None:
        self.server = server
        self.certificates = certificates
        self.folder = folder
        self.write_token(ADMIN_TOKEN)
        (folder / "ca.crt").write_bytes(certificates.ca.read_bytes())

    def write_token(self, token: str) -> None:
        (self.folder / "token").write_text(token)

    @property
    def environment(self) -> dict[str, str]:
        port = str(self.server.port)
        return {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": port}

    def account(self) -> ServiceAccount:
        account = service_account(self.environment)
        assert account is not None
        return account


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pod]:
    folder = tmp_path / "account"
    folder.mkdir()
    monkeypatch.setattr(access, "SERVICE_ACCOUNT_FOLDER", folder)
    certificates = make_certificates(tmp_path / "tls", ["127.0.0.1"])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates.cert, certificates.key)
    cluster = Cluster()
    cluster.put(namespace("kube-system", uid="the-uid"))
    with KubeApiServer(cluster, tls=context) as server:
        yield Pod(server, certificates, folder)


def test_outside_of_pods_there_is_no_service_account() -> None:
    assert service_account({}) is None
    assert service_account({"KUBERNETES_SERVICE_HOST": "", "KUBERNETES_SERVICE_PORT": "1"}) is None
    address = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    account = service_account(address)
    assert account is not None
    assert account.url == "https://[fd00::1]:443"


async def test_a_pod_follows_the_renewals_of_its_token(pod: Pod) -> None:
    async with KubeClient(None, pod.account()) as client:
        assert (await client.cluster_facts())[0] == "the-uid"
        pod.server.tokens = {"second": pod.server.tokens[ADMIN_TOKEN]}
        pod.write_token("second\n")
        # The old one is refused, and the new one is read in its place.
        assert (await client.cluster_facts())[0] == "the-uid"
        pod.write_token("a token\nof two lines")
        client.renew()
        with pytest.raises(PreconditionFailed) as refused:
            await client.cluster_facts()
    assert str(pod.folder / "token") in refused.value.message
    assert "two lines" not in refused.value.message


async def test_changed_files_are_read_again_without_a_refusal(pod: Pod) -> None:
    files = FileWatch(every_seconds=0.01)
    pod.server.tokens["second"] = User(name="second")
    async with KubeClient(None, pod.account()) as client:
        client.watch_files(files)
        await client.check()
        pod.write_token("second")
        reading = asyncio.create_task(files.keep_reading())

        async def caller() -> str:
            await client.request("GET", NAMESPACE)
            return pod.server.requests[-1].user

        assert await caller() != "second"
        try:
            await until(caller, lambda user: user == "second")
        finally:
            reading.cancel()


async def test_an_authority_is_trusted_as_it_is_now(pod: Pod, tmp_path: Path) -> None:
    other_certificates = make_certificates(tmp_path / "others", ["127.0.0.1"])
    (pod.folder / "ca.crt").write_bytes(other_certificates.ca.read_bytes())
    async with KubeClient(None, pod.account()) as client:
        with pytest.raises(Unavailable, match="certificate verify failed"):
            await client.cluster_facts()
        (pod.folder / "ca.crt").write_bytes(pod.certificates.ca.read_bytes())
        assert (await client.cluster_facts())[0] == "the-uid"


PLUGIN = """
import json, pathlib, sys
count = pathlib.Path(sys.argv[1])
count.write_text(count.read_text() + "x" if count.exists() else "x")
status = {"token": sys.argv[2], "expirationTimestamp": sys.argv[3]}
print(json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
                  "status": status}))
"""


@pytest.mark.parametrize(
    ("ends", "runs"), [("2000-01-01T00:00:00Z", 3), ("2999-01-01T00:00:00Z", 1)]
)
async def test_a_plugin_is_run_again_before_its_credentials_end(
    tmp_path: Path, ends: str, runs: int
) -> None:
    (tmp_path / "plugin.py").write_text(PLUGIN)
    counted = tmp_path / "count"
    with KubeApiServer(Cluster()) as server:
        path = server.kubeconfig(tmp_path / "kubeconfig")
        document = json.loads(path.read_text())
        command = {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": sys.executable,
            "args": [str(tmp_path / "plugin.py"), str(counted), ADMIN_TOKEN, ends],
        }
        document["users"][0]["user"] = {"exec": command}
        path.write_text(json.dumps(document))
        async with KubeClient(path) as client:
            for _ in range(3):
                await client.request("GET", "/version/")
    assert len(counted.read_text()) == runs


async def test_a_request_goes_through_the_proxy_of_the_kubeconfig(tmp_path: Path) -> None:
    with KubeApiServer(Cluster()) as proxy:
        proxy.cluster.put(namespace("kube-system", uid="the-uid"))
        path = proxy.kubeconfig(tmp_path / "kubeconfig")
        document = json.loads(path.read_text())
        document["clusters"][0]["cluster"] = {
            "server": "http://api.example:8080",
            "proxy-url": proxy.url,
        }
        path.write_text(json.dumps(document))
        async with KubeClient(path) as client:
            assert (await client.cluster_facts())[0] == "the-uid"
        document["clusters"][0]["cluster"]["proxy-url"] = "socks5://127.0.0.1:1"
        path.write_text(json.dumps(document))
        async with KubeClient(path) as client:
            with pytest.raises(PreconditionFailed, match="use http or https"):
                await client.check()


@pytest.mark.parametrize(
    ("rules", "direct"),
    [
        ("", False),
        ("*", True),
        ("10.0.0.0/8", True),
        ("11.0.0.0/8, 10.1.2.3", True),
        ("10.1.2.3:6443", True),
        ("10.1.2.3:443", False),
        ("example.org", False),
    ],
)
def test_no_proxy_names_hosts_and_networks(rules: str, direct: bool) -> None:
    assert is_direct("https://10.1.2.3:6443", rules) is direct


def test_no_proxy_names_domains() -> None:
    assert is_direct("https://api.example.org:6443", ".Example.org")
    assert not is_direct("https://notexample.org", "example.org")


REQUEST_ONCE = """
import asyncio
import os
import sys
from pathlib import Path
import estimator.app
from estimator.kube import access

print(*(name for name in sys.modules if name.startswith(("aiohttp", "kubernetes"))))
from estimator.kube.client import KubeClient

access.SERVICE_ACCOUNT_FOLDER = Path(sys.argv[1])

async def facts():
    async with KubeClient(None, access.service_account(os.environ)) as client:
        await client.cluster_facts()

asyncio.run(facts())
print(*(name for name in sys.modules if name.startswith(("aiohttp.web_", "kubernetes"))))
"""


def test_an_agent_loads_nothing_large_that_it_does_not_need(pod: Pod) -> None:
    """A client is loaded with the first request, and in a pod the official one never is."""
    command = [sys.executable, "-c", REQUEST_ONCE, str(pod.folder)]
    environment = {**os.environ, **pod.environment}
    loaded = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert loaded.stdout.split() == []
