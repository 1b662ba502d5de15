"""Member clusters to try the propagator with: API servers on this machine, with recorded nodes.

    python examples/propagator/members.py FOLDER member1=examples/clusters/member1.json ...

Writes FOLDER/member1.kubeconfig and so on once all listen, and runs until Ctrl-C. Pods of the
propagator's Deployments come and go, each on a node with room for it, as Kubernetes' own
controllers and scheduler would have it. Needs a checkout: the servers are those of the tests.
"""

from __future__ import annotations

import hashlib
import json
import signal
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from federation.model.quantity import parse_quantity

# Copies of the examples find the tests beside where they are run.
sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path.cwd())]

if TYPE_CHECKING:
    from lab.kubeapi.server import KubeApiServer

Document: TypeAlias = dict[str, Any]

PROPAGATOR = "fedsched-propagator"
TEMPLATE_HASH = "pod-template-hash"
READY = {"type": "Ready", "status": "True"}
# Changes are told at once; a tick is for what was missed.
TICK_SECONDS = 5.0


class Controllers:
    """Makes of the propagator's Deployments what a cluster would: pods on nodes, and a status."""

    def __init__(self, server: KubeApiServer) -> None:
        from lab.kubeapi.resources import BY_KIND, NODES, PODS  # noqa: PLC0415 - see above

        self._cluster = server.cluster
        self._deployments, self._nodes, self._pods = BY_KIND["apps/v1", "Deployment"], NODES, PODS
        # By the Deployment's uid.
        self._made: dict[str, list[Document]] = {}

    def reconcile(self) -> None:
        deployments = {
            each["metadata"]["uid"]: each
            for each in self._cluster.all(self._deployments)
            if each["metadata"].get("labels", {}).get("app.kubernetes.io/managed-by") == PROPAGATOR
        }
        for uid in self._made.keys() - deployments.keys():
            self._remove(self._made.pop(uid))
        for uid, deployment in deployments.items():
            if uid not in self._made:
                self._made[uid] = [
                    pod for pod in self._cluster.all(self._pods) if is_owned(pod, deployment)
                ]
            self._bring(deployment, self._made[uid])

    def _bring(self, deployment: Document, pods: list[Document]) -> None:
        template, wanted = deployment["spec"]["template"], int(deployment["spec"]["replicas"])
        labels = labels_of(template)
        kept = [pod for pod in pods if pod["metadata"]["labels"] == labels][:wanted]
        self._remove([pod for pod in pods if pod not in kept])
        while len(kept) < wanted and (node := self._node_for(template["spec"])) is not None:
            kept.append(self._cluster.put(pod_of(deployment, node)))
        pods[:] = kept
        if deployment.get("status", {}).get("readyReplicas", 0) != len(kept):
            self._tell(deployment["metadata"], len(kept))

    def _tell(self, metadata: Document, ready: int) -> None:
        status = dict.fromkeys(("replicas", "readyReplicas", "availableReplicas"), ready)
        # Somebody may apply it at this moment.
        with self._cluster.lock:
            namespace, name = metadata["namespace"], metadata["name"]
            now = self._cluster.get(self._deployments, namespace, name)
            if now is not None:
                self._cluster.put({**now, "status": status})

    def _remove(self, pods: Iterable[Document]) -> None:
        for pod in pods:
            self._cluster.remove(pod)

    def _node_for(self, spec: Mapping[str, Any]) -> str | None:
        """The node with the most cores left, of those that may and can take the pod."""
        left = {
            node["metadata"]["name"]: Counter(amounts(node["status"]["allocatable"]))
            for node in self._cluster.all(self._nodes)
            if is_open(node)
        }
        for pod in self._cluster.all(self._pods):
            node = pod["spec"].get("nodeName", "")
            if node in left and pod["status"].get("phase") in {"Pending", "Running"}:
                left[node].subtract(request_of(pod["spec"]))
        request = request_of(spec)
        able = [
            (free["cpu"], node)
            for node, free in left.items()
            if all(free[resource] >= amount for resource, amount in request.items())
        ]
        return max(able)[1] if able else None


def labels_of(template: Document) -> Document:
    """With the hash by which a ReplicaSet tells its pods from those of other templates."""
    written = json.dumps(template, sort_keys=True).encode()
    return {
        **template["metadata"]["labels"],
        TEMPLATE_HASH: hashlib.sha256(written).hexdigest()[:9],
    }


def is_owned(pod: Document, deployment: Document) -> bool:
    metadata = pod["metadata"]
    template_hash = metadata.get("labels", {}).get(TEMPLATE_HASH, "")
    owner = {"kind": "ReplicaSet", "name": f"{deployment['metadata']['name']}-{template_hash}"}
    return metadata.get("namespace") == deployment["metadata"]["namespace"] and any(
        owner.items() <= each.items() for each in metadata.get("ownerReferences", [])
    )


def pod_of(deployment: Document, node: str) -> Document:
    metadata, template = deployment["metadata"], deployment["spec"]["template"]
    labels = labels_of(template)
    replica_set = f"{metadata['name']}-{labels[TEMPLATE_HASH]}"
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": replica_set, "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{replica_set}-{uuid.uuid4().hex[:5]}",
            "namespace": metadata["namespace"],
            "uid": str(uuid.uuid4()),
            "labels": labels,
            "ownerReferences": [{**owner, "uid": metadata["uid"]}],
        },
        "spec": {**template["spec"], "nodeName": node},
        "status": {"phase": "Running", "conditions": [READY]},
    }


def is_open(node: Document) -> bool:
    """Whether a pod without tolerations may run there."""
    conditions = node["status"].get("conditions", [])
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    spec = node["spec"]
    taints = any(each["effect"] != "PreferNoSchedule" for each in spec.get("taints", []))
    return ready and not taints and not spec.get("unschedulable", False)


def amounts(texts: Mapping[str, str]) -> dict[str, int]:
    return {name: parse_quantity(str(text)).nanos for name, text in texts.items()}


def request_of(spec: Mapping[str, Any]) -> Counter[str]:
    """What a pod asks for: its containers, and a pod slot."""
    total = Counter(amounts({"pods": "1"}))
    for container in spec.get("containers", []):
        total.update(amounts(container.get("resources", {}).get("requests", {})))
    return total


def run(server: KubeApiServer, stopping: threading.Event) -> None:
    changed = threading.Event()
    server.cluster.subscribe(changed.set)
    controllers = Controllers(server)
    while not stopping.is_set():
        changed.clear()
        controllers.reconcile()
        changed.wait(TICK_SECONDS)


def main(folder: Path, members: Mapping[str, Path]) -> None:
    from lab.kubeapi.documents import namespace  # noqa: PLC0415 - see above
    from lab.kubeapi.server import KubeApiServer, cluster_of_file  # noqa: PLC0415 - see above

    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    with ExitStack() as stack:
        made = []
        for name, dump in members.items():
            cluster = cluster_of_file(dump)
            cluster.put(namespace("kube-system", uid=name))
            server = stack.enter_context(KubeApiServer(cluster))
            threading.Thread(target=run, args=(server, stopping), daemon=True).start()
            made.append(server.kubeconfig(folder / f"{name}.kubeconfig.new"))
        for path in made:
            path.replace(path.with_suffix(""))
        print(f"{', '.join(members)}: their kubeconfigs are in {folder}", flush=True)
        stopping.wait()


if __name__ == "__main__":
    named = dict(each.split("=", 1) for each in sys.argv[2:] if "=" in each)
    if not named or len(named) != len(sys.argv) - 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), {name: Path(path) for name, path in named.items()})
