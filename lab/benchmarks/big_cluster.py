"""An API server in a process of its own that serves one big cluster out of ready-made bytes.

Must cost little: it shares the machine with whom it measures. Only what the agent asks.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

NODE_BYTES: Final = 7_900
POD_BYTES: Final = 3_600
POD_HASH: Final = "5d59d67564"
CHUNK_BYTES: Final = 65_536
# As many different requests as a big cluster has workloads.
SHAPES: Final = 800
FIRST_VERSION: Final = 1_000_000
END: Final = '"annotations":{"k8s.io/initial-events-end":"true"},'


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """An object's JSON with places for its name, its size and the node it is on."""

    text: str

    @classmethod
    def of(cls, document: dict[str, Any], size: int) -> Template:
        """As long as such objects are: the rest is field ownership, as in earnest."""
        fields: dict[str, Any] = {}
        managed = [{"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:status": fields}}]
        document["metadata"]["managedFields"] = managed
        while len(_compact(document)) < size:
            fields[f'k:{{"type":"{len(fields):04}"}}'] = {".": {}, "f:lastTransitionTime": {}}
        return cls(text=_compact(document))

    def filled(self, name: str, node: str, cpu: str, version: int) -> bytes:
        text = self.text.replace("(name)", name).replace("(node)", node).replace("(cpu)", cpu)
        return text.replace("(version)", str(version)).encode()


def _compact(document: dict[str, Any]) -> str:
    return json.dumps(document, separators=(",", ":"))


def _metadata(namespace: str | None = None) -> dict[str, Any]:
    scope = {"namespace": namespace} if namespace else {}
    return {
        "name": "(name)",
        **scope,
        "uid": "7d3c1f1e-(name)",
        "resourceVersion": "(version)",
        "labels": {
            "app": "web",
            "pod-template-hash": POD_HASH,
            "topology.kubernetes.io/zone": "eu-1a",
        },
    }


def _owner() -> dict[str, Any]:
    """One Deployment for every size of pods."""
    name = f"web-(cpu)-{POD_HASH}"
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "controller": True}


def node_template() -> Template:
    sizes = {"cpu": "64", "memory": "263856392Ki", "pods": "110", "ephemeral-storage": "1Ti"}
    kinds = ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    conditions = [
        {"type": kind, "status": str(kind == "Ready"), "reason": f"Kubelet{kind}"} for kind in kinds
    ]
    images = [
        {"names": [f"registry.example/team/image-{number}@sha256:{'0' * 64}"], "sizeBytes": 10**8}
        for number in range(25)
    ]
    document = {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": _metadata(),
        "spec": {"podCIDR": "10.1.0.0/24", "providerID": "aws:///eu-1a/(name)"},
        "status": {
            "capacity": sizes,
            "allocatable": sizes,
            "conditions": conditions,
            "images": images,
            "nodeInfo": {"kubeletVersion": "v1.36.2", "architecture": "amd64"},
        },
    }
    return Template.of(document, NODE_BYTES)


def pod_template() -> Template:
    requests = {"cpu": "(cpu)", "memory": "256Mi"}
    containers = [
        {"name": name, "image": f"registry.example/{name}:1", "resources": {"requests": requests}}
        for name in ("web", "proxy")
    ]
    statuses = [{"name": each["name"], "ready": True, "restartCount": 0} for each in containers]
    document = {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {**_metadata("shop"), "ownerReferences": [_owner()]},
        "spec": {
            "containers": containers,
            "nodeName": "(node)",
            "schedulerName": "default-scheduler",
            "volumes": [{"name": "token", "projected": {"sources": []}}],
        },
        "status": {"phase": "Running", "podIP": "10.1.2.3", "containerStatuses": statuses},
    }
    return Template.of(document, POD_BYTES)


class BigCluster:
    """So many nodes and pods; as many pod events as asked for at ``/events?count=``."""

    def __init__(self, nodes: int, pods: int) -> None:
        self._sizes = {"nodes": nodes, "pods": pods, "resourcequotas": 0}
        self._templates = {"nodes": node_template(), "pods": pod_template()}
        self._watched = asyncio.Event()
        self._events_wanted: asyncio.Queue[int] = asyncio.Queue()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while request := await reader.readline():
                while (await reader.readline()).strip():
                    pass
                await self._answer(request.decode().split()[1], writer)
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def _answer(self, target: str, writer: asyncio.StreamWriter) -> None:
        path, query = urlsplit(target).path, parse_qs(urlsplit(target).query)
        resource = path.rpartition("/")[2]
        if resource in self._sizes and "sendInitialEvents" in query:
            await self._stream(writer, self._initial(resource))
        elif resource in self._sizes and "limit" in query:
            # Between two watches one object is requested, for the version of the list.
            _write(writer, b'{"metadata":{"resourceVersion":"%d"},"items":[]}' % FIRST_VERSION)
        elif resource == "pods" and "watch" in query:
            await self._watch_pods(writer)
        elif resource in self._sizes and "watch" in query:
            await self._begin_stream(writer)
            await asyncio.Event().wait()
        elif path == "/events":
            await self._watched.wait()
            self._events_wanted.put_nowait(int(query["count"][0]))
            _write(writer, b"{}")
        elif path == "/version/":
            _write(writer, b'{"gitVersion":"v1.36.2"}')
        else:
            _write(writer, b'{"kind":"Namespace","metadata":{"name":"kube-system","uid":"uid-1"}}')

    async def _watch_pods(self, writer: asyncio.StreamWriter) -> None:
        await self._begin_stream(writer)
        self._watched.set()
        while True:
            await self._chunks(writer, self._changes(await self._events_wanted.get()))

    def _initial(self, resource: str) -> Iterator[bytes]:
        kind = {"nodes": "Node", "pods": "Pod", "resourcequotas": "ResourceQuota"}[resource]
        for number in range(self._sizes[resource]):
            yield _line("ADDED", self._object(resource, number, FIRST_VERSION))
        metadata = f'{{{END}"resourceVersion":"{FIRST_VERSION}"}}'
        yield _line("BOOKMARK", f'{{"kind":"{kind}","metadata":{metadata}}}'.encode())

    def _changes(self, count: int) -> Iterator[bytes]:
        """Pods that move to another node, one after another."""
        for step in range(count):
            number = step % self._sizes["pods"]
            yield _line("MODIFIED", self._object("pods", number, FIRST_VERSION + 1 + step, 1))

    def _object(self, resource: str, number: int, version: int, shift: int = 0) -> bytes:
        on = (number + shift) % self._sizes["nodes"]
        name = f"{resource}-{number:06}"
        cpu = f"{100 + number % SHAPES}m"
        return self._templates[resource].filled(name, f"nodes-{on:06}", cpu, version)

    async def _stream(self, writer: asyncio.StreamWriter, lines: Iterator[bytes]) -> None:
        await self._begin_stream(writer)
        await self._chunks(writer, lines)
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    async def _begin_stream(self, writer: asyncio.StreamWriter) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        await writer.drain()

    async def _chunks(self, writer: asyncio.StreamWriter, lines: Iterator[bytes]) -> None:
        waiting: list[bytes] = []
        size = 0
        for line in lines:
            waiting.append(line)
            size += len(line)
            if size >= CHUNK_BYTES:
                await _write_chunk(writer, b"".join(waiting))
                waiting, size = [], 0
        if waiting:
            await _write_chunk(writer, b"".join(waiting))


async def _write_chunk(writer: asyncio.StreamWriter, content: bytes) -> None:
    writer.write(b"%x\r\n%s\r\n" % (len(content), content))
    await writer.drain()


def _line(kind: str, content: bytes) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (kind.encode(), content)


def _write(writer: asyncio.StreamWriter, body: bytes) -> None:
    writer.write(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
        % (len(body), body)
    )


async def serve(
    nodes: int, pods: int, on_port: Callable[[int], None], tls: ssl.SSLContext | None
) -> None:
    """Serve until cancelled."""
    cluster = BigCluster(nodes, pods)
    server = await asyncio.start_server(cluster.serve, "127.0.0.1", 0, ssl=tls)
    on_port(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("nodes", type=int)
    parser.add_argument("pods", type=int)
    parser.add_argument("--tls", nargs=2, metavar=("CERT", "KEY"))
    options = parser.parse_args()
    context = None
    if options.tls is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*options.tls)
    asyncio.run(serve(options.nodes, options.pods, partial(print, flush=True), context))


if __name__ == "__main__":
    main()
