"""A small propagation controller: runs in member clusters what fedsched decided.

    python examples/propagator/propagator.py --manifest examples/deployment.yaml \
        --member member1=member1.kubeconfig --member member2=member2.kubeconfig

Asks the control plane that FEDCTL_ENDPOINT, FEDCTL_CA and FEDCTL_TOKEN_FILE name. What people wrote
is in the files of --manifest; a binding names the workload there in `spec.resource`. What stands in
one file goes where its workloads go. Every round compares all bindings with all members, so that
nothing that was missed stays so, and says how many replicas are ready where.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import kubernetes
import yaml
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from federation.client import Client, Target
from federation.model.errors import FederationError
from federation.v1.resource_pb2 import ResourceBinding

Document: TypeAlias = dict[str, Any]
# By workload, then by member: "wanted" and "ready".
Status: TypeAlias = dict[str, dict[str, dict[str, int]]]

NAME = "fedsched-propagator"
OURS = {"app.kubernetes.io/managed-by": NAME}
# Agents count the pods of a binding by this label.
BINDING_LABEL = "fedsched.io/binding"
# What an eviction task of these modes names is not kept until a replacement runs.
AT_ONCE = frozenset({"Directly", "Immediately"})
TOKEN_FILE = Path.home() / ".local/state/fedsched/admin.token"
ROUND_SECONDS = 30.0
CALL_SECONDS = 10.0


class Key(NamedTuple):
    """An object of a member cluster."""

    api_version: str
    kind: str
    namespace: str
    name: str


# By kind: its path, and the field that says how many replicas there are to be.
WORKLOADS: Mapping[tuple[str, str], tuple[str, str]] = {
    ("apps/v1", "Deployment"): ("deployments", "replicas"),
    ("apps/v1", "StatefulSet"): ("statefulsets", "replicas"),
    ("batch/v1", "Job"): ("jobs", "parallelism"),
}
COMPLETIONS = "completions"
PATHS = {**{kind: path for kind, (path, _) in WORKLOADS.items()}, ("v1", "ConfigMap"): "configmaps"}


def key_of(document: Mapping[str, Any]) -> Key:
    metadata = document["metadata"]
    namespace = metadata.get("namespace", "default")
    return Key(document["apiVersion"], document["kind"], namespace, metadata["name"])


def read_manifests(paths: Iterable[Path]) -> list[list[Document]]:
    """What people wrote, by file. Raises ValueError for a kind that is not handled here."""
    files = []
    for path in paths:
        documents = [each for each in yaml.safe_load_all(path.read_text(encoding="utf-8")) if each]
        for document in documents:
            if key_of(document)[:2] not in PATHS:
                raise ValueError(f"{path}: {document['kind']} is not handled here")
        files.append(documents)
    return files


def shares_of(binding: ResourceBinding) -> dict[str, int]:
    """Replicas by cluster. What leaves a cluster gracefully stays until its replacement runs; what
    others preempted does not.
    """
    shares = {target.name: target.replicas for target in binding.spec.clusters}
    for task in binding.spec.graceful_eviction_tasks:
        if task.purge_mode not in AT_ONCE:
            shares.setdefault(task.from_cluster, task.replicas)
    return shares


def wanted_in_members(
    bindings: Iterable[ResourceBinding], files: Iterable[list[Document]]
) -> dict[str, dict[Key, Document]]:
    """The objects that each member is to hold."""
    bound = {}
    for binding in bindings:
        resource = binding.spec.resource
        namespace = resource.namespace or binding.metadata.namespace
        bound[Key(resource.api_version, resource.kind, namespace, resource.name)] = binding
    wanted: dict[str, dict[Key, Document]] = {}
    for documents in files:
        for workload in (each for each in documents if key_of(each) in bound):
            binding = bound[key_of(workload)]
            for cluster, replicas in shares_of(binding).items():
                objects = wanted.setdefault(cluster, {})
                objects[key_of(workload)] = with_share(workload, binding, cluster, replicas)
                for document in documents:
                    if key_of(document)[:2] not in WORKLOADS:
                        objects[key_of(document)] = marked(document)
    return wanted


def marked(document: Document) -> Document:
    """The document as one of ours, in the namespace that it names or means."""
    copied = copy.deepcopy(document)
    metadata = copied["metadata"]
    metadata["namespace"] = key_of(document).namespace
    metadata["labels"] = {**metadata.get("labels", {}), **OURS}
    return copied


def with_share(
    workload: Document, binding: ResourceBinding, cluster: str, replicas: int
) -> Document:
    share = marked(workload)
    if key_of(workload)[:2] not in WORKLOADS:
        # A ConfigMap, say: it is in a cluster whole, or not at all.
        return share
    share["spec"][WORKLOADS[key_of(workload)[:2]][1]] = replicas
    # A Job that says nothing of completions goes on until one pod succeeds.
    if COMPLETIONS in share["spec"]:
        share["spec"][COMPLETIONS] = completions_of(binding, cluster, share["spec"][COMPLETIONS])
    if binding.metadata.uid:
        pods = share["spec"].setdefault("template", {}).setdefault("metadata", {})
        pods["labels"] = {**pods.get("labels", {}), BINDING_LABEL: binding.metadata.uid}
    return share


def completions_of(binding: ResourceBinding, cluster: str, completions: int) -> int:
    """A cluster's part of a Job's completions, by its replicas; all parts add up to them."""
    total = sum(target.replicas for target in binding.spec.clusters)
    before = 0
    for target in sorted(binding.spec.clusters, key=lambda each: each.name):
        after = before + target.replicas
        if target.name == cluster:
            return completions * after // total - completions * before // total
        before = after
    return completions


def with_fixed_fields(document: Document, existing: Document | None) -> Document:
    """A Job's completions are fixed in a member from the moment it is there."""
    if document["kind"] != "Job" or existing is None or COMPLETIONS not in existing["spec"]:
        return document
    spec = {**document["spec"], COMPLETIONS: existing["spec"][COMPLETIONS]}
    return {**document, "spec": spec}


def replicas_of(workload: Document) -> int:
    """How many are to run at once."""
    return int(workload["spec"][WORKLOADS[key_of(workload)[:2]][1]])


def ready_in(key: Key, item: Mapping[str, Any]) -> int:
    """How many replicas of an object in a member serve, or have done their work."""
    status = item.get("status", {})
    if key.kind == "Job":
        return int(status.get("ready", 0)) + int(status.get("succeeded", 0))
    return int(status.get("readyReplicas", 0))


class Member:
    """A member cluster, as this controller's kubeconfig reaches it. Every method blocks."""

    def __init__(self, name: str, kubeconfig: str) -> None:
        self.name = name
        self._api = kubernetes.config.new_client_from_config(kubeconfig)

    def ours(self) -> Iterator[tuple[Key, Document]]:
        """What this controller has made there, as it is now."""
        selector = ",".join(f"{key}={value}" for key, value in OURS.items())
        for (api_version, kind), plural in PATHS.items():
            path = f"{_base(api_version)}/{plural}"
            for item in self._call("GET", path, {"labelSelector": selector})["items"]:
                metadata = item["metadata"]
                yield Key(api_version, kind, metadata["namespace"], metadata["name"]), item

    def apply(self, document: Document) -> None:
        """Server-side apply: fields of others stay as they are."""
        namespace = key_of(document).namespace
        made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        try:
            self._apply(_path(key_of(document)), document)
        except ApiException as error:
            if error.status != 404:
                raise
            self._apply(f"/api/v1/namespaces/{namespace}", made)
            self._apply(_path(key_of(document)), document)

    def delete(self, key: Key) -> None:
        try:
            self._call("DELETE", _path(key), {"propagationPolicy": "Background"})
        except ApiException as error:
            if error.status != 404:
                raise

    def _apply(self, path: str, document: Document) -> None:
        query = {"fieldManager": NAME, "force": "true"}
        self._call("PATCH", path, query, document, "application/apply-patch+yaml")

    def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Document | None = None,
        content_type: str = "application/json",
    ) -> Any:
        request = self._api.param_serialize(
            method=method,
            resource_path=path,
            query_params=list(query.items()),
            header_params={"Accept": "application/json", "Content-Type": content_type},
            body=None if body is None else json.dumps(body),
            auth_settings=["BearerToken"],
        )
        response = self._api.call_api(*request, _request_timeout=CALL_SECONDS)
        answer = response.read()
        if not 200 <= response.status < 300:
            raise ApiException(http_resp=response)
        return json.loads(answer)


def _base(api_version: str) -> str:
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def _path(key: Key) -> str:
    plural = PATHS[key.api_version, key.kind]
    return f"{_base(key.api_version)}/namespaces/{key.namespace}/{plural}/{key.name}"


class Propagator:
    """Brings members to what is wanted; applies only what differs from what it applied before.

    Never removes more than ``most_removals`` objects of a member in one round: a control plane that
    lost its database must not empty clusters.
    """

    def __init__(self, members: Iterable[Member], most_removals: int) -> None:
        self._members = {member.name: member for member in members}
        self._most_removals = most_removals
        self._applied: dict[tuple[str, Key], Document] = {}
        # Why a member refuses an object, as it was told.
        self._refused: dict[tuple[str, Key], str] = {}
        # By member, as it was when it last answered.
        self._ready: dict[str, dict[Key, int]] = {}

    async def bring(self, wanted: Mapping[str, Mapping[Key, Document]]) -> bool:
        """Whether every member is as it should be. One that does not answer holds up no other."""
        for name in wanted.keys() - self._members.keys():
            print(f"{name}: no --member leads there", file=sys.stderr)
        results = await asyncio.gather(
            *(
                asyncio.to_thread(self._bring, member, wanted.get(name, {}))
                for name, member in self._members.items()
            )
        )
        return all(results)

    def status(self, wanted: Mapping[str, Mapping[Key, Document]]) -> Status:
        """By workload and member: how many replicas are to be there, and how many are ready."""
        found: Status = {}
        for member, objects in sorted(wanted.items()):
            for key, document in objects.items():
                if key[:2] in WORKLOADS:
                    workload = found.setdefault(f"{key.kind} {key.namespace}/{key.name}", {})
                    ready = self._ready.get(member, {}).get(key, 0)
                    workload[member] = {"wanted": replicas_of(document), "ready": ready}
        return found

    def _bring(self, member: Member, wanted: Mapping[Key, Document]) -> bool:
        try:
            there = dict(member.ours())
            self._ready[member.name] = {key: ready_in(key, item) for key, item in there.items()}
            for key, asked in wanted.items():
                document = with_fixed_fields(asked, there.get(key))
                if key not in there or self._applied.get((member.name, key)) != document:
                    self._apply(member, key, document)
            return self._remove(member, there.keys() - wanted.keys())
        except (ApiException, HTTPError) as error:
            reason = error.reason if isinstance(error, ApiException) else str(error)
            print(f"{member.name}: {reason}; tried again later", file=sys.stderr)
            return False

    def _apply(self, member: Member, key: Key, document: Document) -> None:
        try:
            member.apply(document)
        except ApiException as error:
            if error.status not in (400, 422):
                raise
            # What this member refuses must not keep it from the rest. Each round tries it again.
            refusal = f"{member.name}: {key.kind} {key.name} is refused: {error.body}"
            if self._refused.get((member.name, key)) != refusal:
                print(refusal, file=sys.stderr)
            self._refused[member.name, key] = refusal
            return
        self._refused.pop((member.name, key), None)
        self._applied[member.name, key] = document
        share = f", {replicas_of(document)} replicas" if key[:2] in WORKLOADS else ""
        print(f"{member.name}: applied {key.kind} {key.namespace}/{key.name}{share}", flush=True)

    def _remove(self, member: Member, left: set[Key]) -> bool:
        for key in sorted(left)[: self._most_removals]:
            member.delete(key)
            self._applied.pop((member.name, key), None)
            print(f"{member.name}: removed {key.kind} {key.namespace}/{key.name}", flush=True)
        more = len(left) - self._most_removals
        if more > 0:
            print(f"{member.name}: {more} more are to go; the next round", file=sys.stderr)
        return more <= 0


class Rounds(NamedTuple):
    """What is done again and again, and where its status is told."""

    manifests: list[Path]
    status_file: Path | None
    seconds: float

    async def run(self, client: Client, propagator: Propagator, told: Status) -> Status:
        """One round; its status, which is told where it is another than ``told``."""
        try:
            bindings = await client.list_bindings()
        except FederationError as error:
            print(f"control plane: {error.message}", file=sys.stderr)
            return told
        wanted = wanted_in_members(bindings, read_manifests(self.manifests))
        await propagator.bring(wanted)
        status = propagator.status(wanted)
        for workload, members in status.items():
            if told.get(workload) != members:
                print(f"{workload}: {told_of(members)}", flush=True)
        if self.status_file is not None and status != told:
            written = self.status_file.with_suffix(".new")
            written.write_text(json.dumps(status, indent=2), encoding="utf-8")
            written.replace(self.status_file)
        return status


def told_of(members: Mapping[str, Mapping[str, int]]) -> str:
    """``member1 2/2, member2 7/8 ready``."""
    shares = (f"{name} {at['ready']}/{at['wanted']}" for name, at in members.items())
    return f"{', '.join(shares)} ready"


async def propagate(target: Target, propagator: Propagator, rounds: Rounds) -> None:
    """Without end: once for every change, and every so often."""
    changed = asyncio.Event()
    told: Status = {}
    async with Client(target) as client, asyncio.TaskGroup() as tasks:
        tasks.create_task(_watch(client, changed))
        while True:
            changed.clear()
            told = await rounds.run(client, propagator, told)
            with suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), rounds.seconds)


async def _watch(client: Client, changed: asyncio.Event) -> None:
    while True:
        try:
            async for _ in client.watch_bindings():
                changed.set()
        except FederationError as error:
            print(f"control plane: {error.message}", file=sys.stderr)
        await asyncio.sleep(1.0)


def main() -> None:
    about, _, more = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=about, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--manifest", type=Path, action="append", required=True, metavar="FILE")
    parser.add_argument("--member", action="append", required=True, metavar="NAME=KUBECONFIG")
    parser.add_argument("--most-removals", type=int, default=20, help="of a member, in one round")
    parser.add_argument("--status-file", type=Path, help="what is ready where, as JSON")
    parser.add_argument("--round-seconds", type=float, default=ROUND_SECONDS)
    parser.add_argument("--insecure", action="store_true", help="plain text to the control plane")
    asked = parser.parse_args()
    ca = os.environ.get("FEDCTL_CA")
    target = Target(
        endpoint=os.environ.get("FEDCTL_ENDPOINT", "127.0.0.1:7443"),
        token=Path(os.environ.get("FEDCTL_TOKEN_FILE", TOKEN_FILE)).read_text("ascii").strip(),
        ca_pem=Path(ca).read_bytes() if ca else None,
        plaintext=asked.insecure,
    )
    members = [Member(*named.split("=", 1)) for named in asked.member]
    try:
        rounds = Rounds(asked.manifest, asked.status_file, asked.round_seconds)
        asyncio.run(propagate(target, Propagator(members, asked.most_removals), rounds))
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
