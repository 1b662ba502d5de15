"""Sources of an agent's picture: the live cluster, a dump, or a script of reports.

Must not speak to the control plane.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from estimator.agent.agent import MemberCluster, NodelessCluster
from estimator.agent.enrolment import ClusterIdentity, identity_of
from estimator.estimation.capacity import Capacity, NodeSet
from estimator.kube.dump import Dump, DumpError, read_dump
from estimator.reports import read_script
from estimator.watched_cluster import WatchedCluster
from federation.model.errors import InvalidRequest, PreconditionFailed
from federation.model.grades import ResourceModel

POLL_SECONDS: Final = 1.0

_FileState: TypeAlias = tuple[int, int, int]

logger = logging.getLogger(__name__)


class ClusterSource(Protocol):
    """Feeds the picture of one cluster."""

    @property
    def member(self) -> MemberCluster: ...

    async def identity(self) -> ClusterIdentity:
        """Return what the cluster says of itself, once ready."""
        ...

    async def ready(self) -> None:
        """Returns when the picture is whole. Raises Unavailable when that may come later."""
        ...

    async def apis(self) -> frozenset[tuple[str, str]] | None:
        """(groupVersion, kind) pairs that the cluster serves; None when that is not known."""
        ...

    @property
    def is_alive(self) -> bool:
        """False when only another process could keep the picture current."""
        ...

    async def follow(self) -> None:
        """Keep the picture current until cancelled."""
        ...


class DumpSource:
    """A dump of nodes and pods; read again whenever the file changes."""

    is_alive = True

    def __init__(self, path: Path, node_set: NodeSet) -> None:
        """Raises PreconditionFailed when the file is not such a dump."""
        self.member = WatchedCluster(node_set)
        self._path = path
        self._seen = _state(path)
        self._take(_read(path))

    async def identity(self) -> ClusterIdentity:
        return identity_of(self._dump.nodes, uid=self._dump.cluster_uid or nodes_uid(self._dump))

    async def ready(self) -> None:
        """It was read when it was opened."""

    async def apis(self) -> None:
        """Return None: a file does not say."""

    async def follow(self) -> None:
        await _follow_file(self._path, self._seen, self._take)

    def _take(self, content: bytes) -> None:
        self._dump = parse_dump(self._path, content)
        self.member.cache.replace_nodes(self._dump.nodes)
        self.member.cache.replace_pods(self._dump.pods)
        self.member.quotas.replace(self._dump.quotas)


class ScriptSource:
    """Reports written beforehand; started over whenever the file changes."""

    is_alive = True

    def __init__(self, path: Path, cluster: str) -> None:
        """Raises InvalidRequest or PreconditionFailed when the file holds no reports."""
        self._path = path
        self._cluster = cluster
        self._seen = _state(path)
        self.member = ScriptedCluster(self._script(_read(path)))

    async def identity(self) -> ClusterIdentity:
        """A script has no nodes to ask: the uid stands for the cluster's name."""
        return ClusterIdentity(uid=_uid("script", self._cluster))

    async def ready(self) -> None:
        """It was read when it was opened."""

    async def apis(self) -> None:
        """Return None: a file does not say."""

    async def follow(self) -> None:
        await _follow_file(
            self._path, self._seen, lambda content: self.member.follow(self._script(content))
        )

    def _script(self, content: bytes) -> tuple[Capacity, ...]:
        try:
            return read_script(content.decode("utf-8"), source=str(self._path))
        except UnicodeDecodeError as error:
            raise InvalidRequest.of(str(self._path), f"is not UTF-8: {error}") from error


def parse_dump(path: Path, content: bytes) -> Dump:
    """The dump in a file. Raises PreconditionFailed naming it."""
    try:
        return read_dump(content)
    except DumpError as error:
        raise PreconditionFailed(f"{path}: {error}") from error


def nodes_uid(dump: Dump) -> str:
    """Stands in for the kube-system namespace's uid in a dump without namespaces.

    The same nodes give the same uid; in another dump of the cluster, with other nodes, it differs.
    """
    return _uid("nodes", *sorted(node.uid or node.name for node in dump.nodes))


def _uid(*parts: str) -> str:
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    return f"{parts[0]}-{digest[:32]}"


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise PreconditionFailed(f"{path} cannot be read: {error.strerror}") from error


async def _follow_file(path: Path, seen: _FileState | None, take: Callable[[bytes], None]) -> None:
    """Hand on the content whenever the file has changed; a bad one is skipped, and said."""
    while True:
        await asyncio.sleep(POLL_SECONDS)
        state = await asyncio.to_thread(_state, path)
        if state is None or state == seen:
            continue
        seen = state
        try:
            take(await asyncio.to_thread(_read, path))
        except (PreconditionFailed, InvalidRequest) as error:
            logger.warning("keeping the picture of before: %s", error.message)


def _state(path: Path) -> _FileState | None:
    """Return values that change whenever a file is written or replaced."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


_NO_NODES: Final = "there are no nodes: this agent sends scripted reports"


class ScriptedCluster(NodelessCluster):
    """Reports written beforehand: each one asked for is the next, and the last one stays."""

    def __init__(self, script: Sequence[Capacity]) -> None:
        super().__init__(_NO_NODES)
        self.follow(script)

    def follow(self, script: Sequence[Capacity]) -> None:
        """Go on with another script, from its start."""
        self._script = list(script)

    def counting(self, model: ResourceModel) -> Callable[[], Capacity]:
        current = self._script[0] if len(self._script) == 1 else self._script.pop(0)
        return lambda: current if model.grades else replace(current, grade_counts={})
