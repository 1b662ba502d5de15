"""The cluster behind the fake API server: objects, one version counter, the log of changes.

Must not know HTTP. May be used from any thread.
"""

from __future__ import annotations

import bisect
import copy
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lab.kubeapi.resources import BY_KIND, RESOURCES, Document, Resource


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One committed change; ``before`` is None for a creation, ``after`` for a deletion."""

    version: int
    resource: Resource
    key: str
    before: Document | None
    after: Document | None


def key_of(namespace: str, name: str) -> str:
    """Where an object sorts: by namespace, then name, as etcd's keys do."""
    return f"{namespace}/{name}" if namespace else name


class Cluster:
    """Every object of every kind. Documents handed in and out are copies, but where it is said.

    ``watch_cache`` False answers as a server started without one.
    """

    def __init__(self, *, version: int = 1, watch_cache: bool = True) -> None:
        self.lock = threading.RLock()
        self.watch_cache = watch_cache
        self.version = version
        self.compacted_version = 0
        self.window_version = 0
        self._objects: dict[str, dict[str, Document]] = {}
        self._log: list[Change] = []
        self._known: dict[str, int] = {}
        self._listeners: list[Callable[[], None]] = []

    @classmethod
    def of(cls, documents: list[Document], **options: Any) -> Cluster:
        """A cluster that holds these objects, in the versions they carry."""
        cluster = cls(**options)
        for document in documents:
            resource = BY_KIND[document["apiVersion"], document["kind"]]
            stored = copy.deepcopy(document)
            metadata = stored["metadata"]
            key = key_of(metadata.get("namespace", ""), metadata["name"])
            cluster._objects.setdefault(resource.qualified, {})[key] = stored
            cluster.version = max(cluster.version, int(metadata["resourceVersion"]))
        cluster.window_version = cluster.version
        cluster._known = {each.qualified: cluster.version for each in RESOURCES}
        return cluster

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call ``listener`` after every change, from whatever thread made it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def get(self, resource: Resource, namespace: str, name: str) -> Document | None:
        with self.lock:
            found = self._of(resource).get(key_of(namespace, name))
            return copy.deepcopy(found)

    def all(self, resource: Resource) -> list[Document]:
        """The objects now, in the order of their keys. Not copies."""
        return list(self.state(resource).values())

    def state(self, resource: Resource, version: int | None = None) -> dict[str, Document]:
        """The objects by key as they are, or were at ``version``. Not copies."""
        with self.lock:
            state = dict(self._of(resource))
            for change in reversed(self._log):
                if version is None or change.version <= version:
                    break
                if change.resource is not resource:
                    continue
                if change.before is None:
                    del state[change.key]
                else:
                    state[change.key] = change.before
            return dict(sorted(state.items()))

    def changes_after(self, version: int) -> list[Change]:
        with self.lock:
            start = bisect.bisect_right(self._log, version, key=lambda change: change.version)
            return self._log[start:]

    def commit(
        self, resource: Resource, namespace: str, name: str, after: Document | None
    ) -> Document:
        """Store ``after``, or delete where it is None; what is stored, or was, at its version."""
        key = key_of(namespace, name)
        with self.lock:
            self.version += 1
            objects = self._of(resource)
            before = objects.get(key)
            stored = copy.deepcopy(after)
            if stored is None:
                del objects[key]
            else:
                stored["metadata"]["resourceVersion"] = str(self.version)
                objects[key] = stored
            self._log.append(
                Change(
                    version=self.version, resource=resource, key=key, before=before, after=stored
                )
            )
            self._known[resource.qualified] = self.version
            listeners = tuple(self._listeners)
        for listener in listeners:
            listener()
        if stored is None:
            assert before is not None
            return at_version(before, self.version)
        return copy.deepcopy(stored)

    def put(self, document: Document) -> Document:
        """Create or replace as it is, without what the API server would fill in or refuse."""
        resource = BY_KIND[document["apiVersion"], document["kind"]]
        metadata = document["metadata"]
        return self.commit(resource, metadata.get("namespace", ""), metadata["name"], document)

    def remove(self, document: Document) -> None:
        """Delete at once."""
        resource = BY_KIND[document["apiVersion"], document["kind"]]
        metadata = document["metadata"]
        self.commit(resource, metadata.get("namespace", ""), metadata["name"], None)

    def skip_versions(self, count: int = 1) -> None:
        """As if kinds that are not kept here had been written."""
        with self.lock:
            self.version += count

    def read_consistently(self, resource: Resource) -> int:
        """The version now; asking for it is how a kind's watch cache hears of it."""
        with self.lock:
            self._known[resource.qualified] = self.version
            return self.version

    def known_version(self, resource: Resource) -> int:
        """The newest version this kind's watch cache has heard of: what bookmarks may tell."""
        with self.lock:
            return self._known.get(resource.qualified, 0) if self.watch_cache else 0

    def compact(self) -> None:
        """Forget every older version, as etcd does: continue tokens expire."""
        with self.lock:
            self.compacted_version = self.version
            if not self.watch_cache:
                self.window_version = self.version

    def forget_window(self) -> None:
        """Empty the watch cache, as a restart does: older watches are too old."""
        with self.lock:
            self.window_version = self.version

    def _of(self, resource: Resource) -> dict[str, Document]:
        return self._objects.setdefault(resource.qualified, {})


def at_version(document: Document, version: int) -> Document:
    """The same object carrying another version."""
    metadata = {**document["metadata"], "resourceVersion": str(version)}
    return {**document, "metadata": metadata}
