from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from estimator.credential import Credential, SecretName, load_credential, store_credential
from estimator.kube.secret import KEY, CredentialSecret
from federation.model.errors import PreconditionFailed, Unavailable
from lab.kubeapi.access import Rule, User
from lab.kubeapi.resources import RESOURCES, Document
from lab.kubeapi.server import KubeApiServer
from lab.kubeapi.state import Cluster

NAME = SecretName(namespace="fedsched", name="fedsched-agent")
CREDENTIAL = Credential(
    cluster="member1", endpoints=("cp:7443",), credential="id.secret", expires_at=1.5, ca="PEM"
)
SECRETS = next(each for each in RESOURCES if each.plural == "secrets")
# What the agent's role allows of Secrets, and no more.
ROLE = Rule(
    groups=frozenset({""}),
    resources=frozenset({"secrets"}),
    verbs=frozenset({"get", "update"}),
    names=frozenset({NAME.name}),
    namespace=NAME.namespace,
)


def secret(name: str = NAME.name, **data: str) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "namespace": NAME.namespace,
            "uid": f"uid-{name}",
            "labels": {"app": "fedsched"},
        },
        **({"data": data} if data else {}),
    }


@pytest.fixture
def server() -> Iterator[KubeApiServer]:
    cluster = Cluster(version=100)
    cluster.put(secret(other="b3RoZXI="))
    cluster.put(secret("somebody-elses"))
    with KubeApiServer(cluster) as running:
        running.tokens["agent"] = User(name="agent", rules=(ROLE,))
        yield running


def kept_in(server: KubeApiServer, tmp_path: Path, name: SecretName = NAME) -> CredentialSecret:
    return CredentialSecret(name, server.kubeconfig(tmp_path / "kubeconfig", token="agent"))


def test_what_is_stored_is_read_back_by_the_agents_own_role(
    server: KubeApiServer, tmp_path: Path
) -> None:
    store = kept_in(server, tmp_path)
    assert load_credential(store, cluster="member1") is None
    for _ in range(2):
        store_credential(store, CREDENTIAL)
    assert load_credential(store, cluster="member1") == CREDENTIAL
    stored = server.cluster.get(SECRETS, NAME.namespace, NAME.name)
    assert stored is not None
    assert set(stored["data"]) == {"other", KEY}
    assert stored["metadata"]["labels"] == {"app": "fedsched"}


def test_a_secret_that_is_not_there_is_to_be_made_first(
    server: KubeApiServer, tmp_path: Path
) -> None:
    server.tokens["agent"] = User(name="agent")
    missing = SecretName(namespace="fedsched", name="none")
    with pytest.raises(PreconditionFailed, match="kubectl create secret generic none -n fedsched"):
        kept_in(server, tmp_path, missing).read()


def test_another_secret_is_not_the_agents_to_read(server: KubeApiServer, tmp_path: Path) -> None:
    other = SecretName(namespace="fedsched", name="somebody-elses")
    with pytest.raises(PreconditionFailed, match="needs to get and update it"):
        kept_in(server, tmp_path, other).read()


@pytest.mark.parametrize("content", ["!!!", base64.b64encode(b"not JSON").decode()])
def test_what_is_no_credential_is_named(
    server: KubeApiServer, tmp_path: Path, content: str
) -> None:
    server.cluster.put(secret(**{KEY: content}))
    with pytest.raises(PreconditionFailed, match="secret fedsched/fedsched-agent"):
        load_credential(kept_in(server, tmp_path), cluster="member1")


def test_an_api_server_that_is_away_may_come_back(server: KubeApiServer, tmp_path: Path) -> None:
    store = kept_in(server, tmp_path)
    server.stop()
    with pytest.raises(Unavailable, match="cannot be reached"):
        store.write(b"content")
