"""Files that the bridge reads again while it runs: its token, its authority, and the kubeconfig.

Must not connect to anything: whoever uses what they say does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import grpc.aio
import yaml

from federation.bridge.settings import BridgeSettings
from federation.client import Target, channel_to
from federation.runtime.watched_files import Changed, FileWatch

# What a kubeconfig names files by, in its clusters and in its users.
_FILES: Final = {
    "clusters": ("certificate-authority",),
    "users": ("client-certificate", "client-key", "tokenFile"),
}


class MemberChannel:
    """The connection of those that speak for clusters: one, by the newest authority."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._channel = channel_to(target)
        # Those with streams that go on as they began.
        self._retired: list[grpc.aio.Channel] = []

    def __call__(self) -> grpc.aio.Channel:
        return self._channel

    def renew(self, target: Target) -> None:
        """Connect by this target from now on."""
        if target.connection != self._target.connection:
            self._retired.append(self._channel)
            self._channel = channel_to(target)
        self._target = target

    async def close(self) -> None:
        for channel in (self._channel, *self._retired):
            await channel.close()


def keep_renewed(
    settings: BridgeSettings, watch: FileWatch, *users: Callable[[Target], None]
) -> None:
    """Tell users of the newest token and authority. Raises InvalidRequest."""

    async def changed() -> None:
        for renew in users:
            renew(files.value)

    files = watch.watch("control plane", settings.files, settings.newest_target, changed)
    for renew in users:
        renew(files.value)


def watch_kubeconfig(kubeconfig: Path | None, watch: FileWatch, changed: Changed) -> None:
    """Call ``changed`` once other credentials are in the kubeconfig, or in files that it names."""
    if kubeconfig is not None:
        files = [kubeconfig, *_named_files(kubeconfig)]
        watch.watch("kubeconfig", files, lambda: kubeconfig, changed)


def _named_files(kubeconfig: Path) -> Iterator[Path]:
    try:
        content: Any = yaml.safe_load(kubeconfig.read_bytes())
    except (OSError, yaml.YAMLError):
        return
    for section, keys in _FILES.items():
        for entry in _entries(content, section):
            inner = entry.get(section.removesuffix("s"))
            for key in keys:
                named = inner.get(key) if isinstance(inner, dict) else None
                if isinstance(named, str):
                    yield kubeconfig.parent / named


def _entries(content: Any, section: str) -> Iterator[dict[str, Any]]:
    entries = content.get(section) if isinstance(content, dict) else None
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict):
            yield entry
