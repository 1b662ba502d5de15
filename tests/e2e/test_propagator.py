"""The example of a propagation controller: what was decided stands in members, and nothing else."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from federation.v1.resource_pb2 import (
    GracefulEvictionTask,
    ObjectMeta,
    ObjectReference,
    ResourceBinding,
    ResourceBindingSpec,
    TargetCluster,
)
from federation.v1.scheduling_pb2 import OUTCOME_SCHEDULED
from lab.agents import (
    DUMPS,
    ROOT,
    cluster_where,
    estimator,
    flags,
    has_reported,
    join_token,
    scheduled,
)
from lab.control_planes import RunningControlPlane, running_control_plane
from lab.kubeapi.documents import namespace, node
from lab.kubeapi.resources import BY_KIND, PODS, Document, Resource
from lab.kubeapi.server import KubeApiServer
from lab.kubeapi.state import Cluster
from lab.kubeapi.statuses import Refused, failure
from lab.patience import PATIENCE_SECONDS

SCRIPT = ROOT / "examples" / "propagator" / "propagator.py"
DEPLOYMENTS = BY_KIND["apps/v1", "Deployment"]
CONFIG_MAPS = BY_KIND["v1", "ConfigMap"]
MANIFEST = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: registry.example/web}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: web, namespace: shop}
data: {colour: blue}
"""

MANY = """
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: statefulset, namespace: shop}
spec:
  replicas: 9
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: db, image: registry.example/db}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: job, namespace: shop}
spec:
  parallelism: 9
  completions: 9
  template:
    spec: {restartPolicy: Never, containers: [{name: load, image: registry.example/load}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: lists}
data: {colour: blue}
"""

JOBS = BY_KIND["batch/v1", "Job"]


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, SCRIPT.with_stem(name))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def propagator() -> ModuleType:
    return loaded("propagator")


def binding(*shares: tuple[str, int], uid: str = "the-uid", **spec: Any) -> ResourceBinding:
    resource = ObjectReference(api_version="apps/v1", kind="Deployment", name="web")
    clusters = [TargetCluster(name=name, replicas=replicas) for name, replicas in shares]
    return ResourceBinding(
        metadata=ObjectMeta(namespace="shop", name="web", uid=uid),
        spec=ResourceBindingSpec(resource=resource, clusters=clusters, **spec),
    )


def test_what_leaves_gracefully_stays_until_it_is_over(propagator: ModuleType) -> None:
    task = GracefulEvictionTask(from_cluster="old", replicas=3)
    files = [list(yaml.safe_load_all(MANIFEST))]
    wanted = propagator.wanted_in_members(
        [binding(("new", 4), graceful_eviction_tasks=[task])], files
    )
    replicas = {
        cluster: [each["spec"]["replicas"] for each in objects.values() if "spec" in each]
        for cluster, objects in wanted.items()
    }
    assert replicas == {"new": [4], "old": [3]}
    assert all(len(objects) == 2 for objects in wanted.values()), "the ConfigMap goes along"
    assert propagator.wanted_in_members([], files) == {}
    task.purge_mode = "Directly"
    preempted = binding(("new", 4), graceful_eviction_tasks=[task])
    assert propagator.wanted_in_members([preempted], files).keys() == {"new"}


def test_pods_say_which_binding_they_are_of(propagator: ModuleType) -> None:
    (workload, _) = yaml.safe_load_all(MANIFEST)
    share = propagator.with_share(workload, binding(("a", 2)), "a", 2)
    assert share["spec"]["template"]["metadata"]["labels"] == {
        "app": "web",
        "fedsched.io/binding": "the-uid",
    }
    assert workload["spec"]["replicas"] == 1, "what people wrote stays"


def test_a_job_says_what_serves_and_what_is_done(propagator: ModuleType) -> None:
    job = propagator.Key("batch/v1", "Job", "shop", "load")
    assert propagator.ready_in(job, {"status": {"ready": 2, "succeeded": 3}}) == 5
    assert propagator.ready_in(job._replace(kind="Deployment"), {"status": {}}) == 0


def test_a_kind_that_is_not_handled_is_named(propagator: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "odd.yaml"
    file.write_text("{apiVersion: v1, kind: Secret, metadata: {name: a}}")
    with pytest.raises(ValueError, match="Secret is not handled here"):
        propagator.read_manifests([file])


@pytest.fixture
async def plane(database_url: str, tmp_path: Path) -> AsyncIterator[RunningControlPlane]:
    async with running_control_plane(database_url, tmp_path / "plane") as running:
        yield running


@pytest.fixture
def members() -> Iterator[dict[str, KubeApiServer]]:
    with ExitStack() as stack:
        servers = {}
        for name in ("member1", "member2"):
            cluster = Cluster()
            cluster.put(namespace("kube-system", uid=name))
            servers[name] = stack.enter_context(KubeApiServer(cluster))
        yield servers


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not holds():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.05)


def replicas_in(server: KubeApiServer) -> int | None:
    found = server.cluster.get(DEPLOYMENTS, "shop", "web")
    return None if found is None else int(found["spec"]["replicas"])


async def test_members_hold_what_was_decided(
    plane: RunningControlPlane, members: dict[str, KubeApiServer], tmp_path: Path
) -> None:
    (tmp_path / "web.yaml").write_text(MANIFEST)
    named = [
        f"{name}={server.kubeconfig(tmp_path / f'{name}.kubeconfig')}"
        for name, server in members.items()
    ]
    status = tmp_path / "status.json"
    four_of_five = {"Deployment shop/web": {"member1": {"wanted": 5, "ready": 4}}}
    one, other = members.values()
    for server in members.values():
        # A name that we use, too, and did not make.
        server.writer.create(
            CONFIG_MAPS, "kube-system", {"metadata": {"name": "theirs"}, "data": {"a": "b"}}
        )
    token = (await join_token(plane, "member1")).token
    async with estimator(
        *("run", *flags(plane, "member1", tmp_path), "--join-token", token),
        *("--from", str(DUMPS / "member1.json")),
    ):
        await cluster_where(plane, "member1", has_reported)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(SCRIPT), "--insecure"),
            *("--manifest", str(tmp_path / "web.yaml"), "--round-seconds", "0.2"),
            *("--status-file", str(status)),
            *(part for each in named for part in ("--member", each)),
            env={
                "PYTHONPATH": str(ROOT),
                "FEDCTL_ENDPOINT": str(plane.plane.endpoint),
                "FEDCTL_TOKEN_FILE": str(plane.plane.admin_token_file),
            },
        )
        try:
            assert (await scheduled(plane, "member1", replicas=3)).outcome == OUTCOME_SCHEDULED
            await until(lambda: replicas_in(one) == 3)
            assert replicas_in(other) is None
            one.writer.patch(
                DEPLOYMENTS, "shop", "web", {"metadata": {"annotations": {"note": "theirs"}}}
            )
            await scheduled(plane, "member1", replicas=5)
            await until(lambda: replicas_in(one) == 5)
            one.writer.patch(DEPLOYMENTS, "shop", "web", {"status": {"readyReplicas": 4}})
            await until(lambda: json.loads(status.read_text()) == four_of_five)
            found = one.cluster.get(DEPLOYMENTS, "shop", "web")
            assert found is not None
            assert found["metadata"]["annotations"] == {"note": "theirs"}
            await plane.admin.ask("DeleteBinding", namespace="shop", name="web")
            await until(lambda: replicas_in(one) is None)
            await until(lambda: one.cluster.get(CONFIG_MAPS, "shop", "web") is None)
            assert one.cluster.get(CONFIG_MAPS, "kube-system", "theirs") is not None
        finally:
            process.kill()
            await process.wait()


class Decided:
    """A control plane's answer, as the test has it."""

    def __init__(self) -> None:
        self.bindings: list[ResourceBinding] = []

    async def list_bindings(self) -> list[ResourceBinding]:
        return self.bindings


def workload_of(kind: str, shares: dict[str, int], **spec: Any) -> ResourceBinding:
    """A binding of one of ``MANY``, named after its kind."""
    api_version = "batch/v1" if kind == "Job" else "apps/v1"
    return ResourceBinding(
        metadata=ObjectMeta(namespace="shop", name=kind.lower(), uid=f"uid-{kind}"),
        spec=ResourceBindingSpec(
            resource=ObjectReference(api_version=api_version, kind=kind, name=kind.lower()),
            clusters=[TargetCluster(name=name, replicas=count) for name, count in shares.items()],
            **spec,
        ),
    )


def there(server: KubeApiServer) -> dict[str, Any]:
    """Of each of the propagator's objects in a member: how many replicas, None of others."""
    found: dict[str, Any] = {}
    for api_version, kind in (
        *(("apps/v1", "Deployment"), ("apps/v1", "StatefulSet"), ("batch/v1", "Job")),
        ("v1", "ConfigMap"),
    ):
        for each in server.cluster.all(BY_KIND[api_version, kind]):
            if each["metadata"].get("labels", {}).get("app.kubernetes.io/managed-by"):
                spec = each.get("spec", {})
                key = f"{kind} {each['metadata']['namespace']}/{each['metadata']['name']}"
                found[key] = spec.get("replicas", spec.get("parallelism"))
    return found


@pytest.fixture
def propagated(
    propagator: ModuleType, members: dict[str, KubeApiServer], tmp_path: Path
) -> tuple[Decided, Callable[[], Any]]:
    """What is decided, and what brings it to the members once; answers the status."""
    (tmp_path / "many.yaml").write_text(MANY)
    reached = [
        propagator.Member(name, str(server.kubeconfig(tmp_path / f"{name}.kubeconfig")))
        for name, server in members.items()
    ]
    decided, controller = Decided(), propagator.Propagator(reached, most_removals=2)
    rounds = propagator.Rounds([tmp_path / "many.yaml"], None, 1.0)
    return decided, lambda: rounds.run(decided, controller, {})


async def test_every_kind_is_run_and_removed_with_what_it_needs(
    propagated: tuple[Decided, Callable[[], Any]], members: dict[str, KubeApiServer]
) -> None:
    decided, bring = propagated
    one, other = members.values()
    decided.bindings = [
        workload_of("StatefulSet", {"member1": 2, "member2": 1}),
        workload_of("Job", {"member2": 5}),
    ]
    await bring()
    assert there(one) == {"StatefulSet shop/statefulset": 2, "ConfigMap lists/settings": None}
    assert there(other) == {
        "StatefulSet shop/statefulset": 1,
        "Job shop/job": 5,
        "ConfigMap lists/settings": None,
    }
    for server in members.values():
        names = {
            each["metadata"]["name"] for each in server.cluster.all(BY_KIND["v1", "Namespace"])
        }
        assert {"shop", "lists"} <= names
    job = other.cluster.get(BY_KIND["batch/v1", "Job"], "shop", "job")
    assert job is not None
    assert (job["spec"]["parallelism"], job["spec"]["completions"]) == (5, 9)
    assert job["spec"]["template"]["metadata"]["labels"] == {"fedsched.io/binding": "uid-Job"}
    one.writer.patch(
        *(BY_KIND["apps/v1", "StatefulSet"], "shop", "statefulset"),
        {"status": {"readyReplicas": 2}},
    )
    other.writer.patch(
        *(BY_KIND["batch/v1", "Job"], "shop", "job"), {"status": {"ready": 1, "succeeded": 3}}
    )
    assert await bring() == {
        "StatefulSet shop/statefulset": {
            "member1": {"wanted": 2, "ready": 2},
            "member2": {"wanted": 1, "ready": 0},
        },
        "Job shop/job": {"member2": {"wanted": 5, "ready": 4}},
    }
    # A list that is empty by mistake empties no cluster at once.
    decided.bindings = []
    await bring()
    assert len(there(other)) == 1
    await bring()
    assert (there(one), there(other)) == ({}, {})


async def test_a_binding_of_a_kind_without_replicas_is_run(
    propagated: tuple[Decided, Callable[[], Any]], members: dict[str, KubeApiServer]
) -> None:
    decided, bring = propagated
    settings = ObjectReference(
        api_version="v1", kind="ConfigMap", namespace="lists", name="settings"
    )
    spec = ResourceBindingSpec(resource=settings, clusters=[TargetCluster(name="member2")])
    metadata = ObjectMeta(namespace="lists", name="settings", uid="uid-settings")
    decided.bindings = [ResourceBinding(metadata=metadata, spec=spec)]
    assert await bring() == {}
    assert [there(each) for each in members.values()] == [{}, {"ConfigMap lists/settings": None}]


async def test_a_job_keeps_its_completions_and_what_is_refused_is_tried_again(
    propagated: tuple[Decided, Callable[[], Any]],
    members: dict[str, KubeApiServer],
    capsys: pytest.CaptureFixture[str],
) -> None:
    decided, bring = propagated
    one, other = members.values()
    decided.bindings = [workload_of("Job", {"member1": 2, "member2": 1})]
    await bring()

    def sizes() -> list[tuple[int, int]]:
        jobs = [server.cluster.get(JOBS, "shop", "job") for server in members.values()]
        return [(job["spec"]["parallelism"], job["spec"]["completions"]) for job in jobs if job]

    # All parts add up to what people wrote.
    assert sizes() == [(2, 6), (1, 3)]
    decided.bindings = [workload_of("Job", {"member1": 1, "member2": 2})]
    await bring()
    assert sizes() == [(1, 6), (2, 3)]
    assert "refused" not in capsys.readouterr().err
    # A member that refuses is asked again in every round, and told of once.
    decided.bindings = [workload_of("Job", {"member1": 3, "member2": 2})]
    allowed = False

    def full(resource: Resource, _document: Document) -> None:
        if resource is JOBS and not allowed:
            raise Refused(failure(422, "no more of them", "Invalid"))

    one.writer.webhooks.append(full)
    for _ in range(2):
        await bring()
    assert capsys.readouterr().err.count("Job job is refused") == 1
    allowed = True
    await bring()
    assert sizes() == [(3, 6), (2, 3)]
    assert other.cluster.get(JOBS, "shop", "job") is not None


async def test_a_share_leaves_when_its_eviction_is_over(
    propagated: tuple[Decided, Callable[[], Any]], members: dict[str, KubeApiServer]
) -> None:
    decided, bring = propagated
    one, other = members.values()
    both = "StatefulSet shop/statefulset"
    decided.bindings = [workload_of("StatefulSet", {"member1": 2})]
    await bring()
    task = GracefulEvictionTask(from_cluster="member1", replicas=2)
    decided.bindings = [workload_of("StatefulSet", {"member2": 2}, graceful_eviction_tasks=[task])]
    await bring()
    assert (there(one)[both], there(other)[both]) == (2, 2)
    decided.bindings = [workload_of("StatefulSet", {"member2": 2})]
    await bring()
    assert there(one) == {}
    assert there(other)[both] == 2


async def test_a_member_that_is_gone_holds_up_no_other(
    propagated: tuple[Decided, Callable[[], Any]], members: dict[str, KubeApiServer]
) -> None:
    decided, bring = propagated
    one, other = members.values()
    decided.bindings = [workload_of("StatefulSet", {"member1": 1, "member2": 1, "member9": 1})]
    one.stop()
    status = await bring()
    assert there(other)["StatefulSet shop/statefulset"] == 1
    assert status["StatefulSet shop/statefulset"]["member1"] == {"wanted": 1, "ready": 0}


def test_members_run_what_is_applied_and_nothing_else(tmp_path: Path) -> None:
    members = loaded("members")
    cluster = Cluster()
    cluster.put(namespace("shop"))
    cluster.put(node("roomy", cpu="2"))
    cluster.put(node("closed", cpu="64", labels={}) | {"spec": {"unschedulable": True}})
    (workload, _) = yaml.safe_load_all(MANIFEST)
    workload["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "fedsched-propagator"}
    workload["spec"]["replicas"] = 3
    container = workload["spec"]["template"]["spec"]["containers"][0]
    container["resources"] = {"requests": {"cpu": "800m"}}
    with KubeApiServer(cluster) as server:
        server.writer.create(DEPLOYMENTS, "shop", workload)
        controllers = members.Controllers(server)
        controllers.reconcile()
        nodes = [pod["spec"]["nodeName"] for pod in cluster.all(PODS)]
        assert nodes == ["roomy", "roomy"], "there is no room for the third"
        found = cluster.get(DEPLOYMENTS, "shop", "web")
        assert found is not None
        assert found["status"]["readyReplicas"] == 2
        cluster.remove(found)
        controllers.reconcile()
        assert cluster.all(PODS) == []
