"""Scheduler plugins of others: found through the entry points of installed packages.

Must not load a plugin that no configuration names: what is installed and not used harms nothing.
One that does not return keeps nobody waiting for long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from federation.codec.document_files import read_file
from federation.codec.plugin_args import check_args_class
from federation.codec.profiles import profiles_from_document
from federation.model.errors import InvalidRequest
from federation.runtime.bounded_calls import BoundedCalls
from federation.scheduler.plugins.profile import DEFAULT_PROFILES, Profiles
from federation.scheduler.plugins.registry import IN_TREE, ExtensionPoint, Plugin

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP: Final = "fedsched.plugins"


class InstalledPlugins:
    """The plugins of the scheduler and of installed packages. Implements the codec's Catalog.

    The scheduler's own names cannot be taken over.
    """

    def __init__(self) -> None:
        # Without a configuration of one's own nobody waits for it.
        from importlib.metadata import entry_points  # noqa: PLC0415 - see above

        self._entries: dict[str, list[EntryPoint]] = {}
        for entry in entry_points(group=GROUP):
            self._entries.setdefault(entry.name, []).append(entry)
        self._loaded: dict[str, Plugin] = {}

    def names(self) -> Iterable[str]:
        return {*IN_TREE, *self._entries}

    def find(self, name: str) -> Plugin | None:
        if name in IN_TREE:
            return IN_TREE[name]
        if name not in self._loaded and name in self._entries:
            self._loaded[name] = _load(name, self._entries[name])
        return self._loaded.get(name)


def read_profiles(path: Path | None) -> Profiles:
    """The profiles of a configuration file, the default one without a file.

    Raises InvalidRequest with everything that is wrong, under the file's name.
    """
    if path is None:
        return DEFAULT_PROFILES
    return read_file(path, lambda document: profiles_from_document(document, InstalledPlugins()))


def _load(name: str, entries: list[EntryPoint]) -> Plugin:
    """Raises InvalidRequest, saying why, when the entry does not lead to one plugin."""
    if len({entry.value for entry in entries}) > 1:
        owners = ", ".join(sorted(entry.dist.name for entry in entries if entry.dist))
        raise InvalidRequest.of("", f"{name} is provided by several packages: {owners}")
    try:
        plugin = entries[0].load()
        _check(plugin)
    except (Exception, SystemExit) as error:
        what = f"{type(error).__name__}: {error}"
        raise InvalidRequest.of("", f"{name} cannot be loaded: {what}") from error
    loaded: Plugin = plugin
    # What undoes something comes after it.
    calls = BoundedCalls(_call)
    return replace(
        loaded,
        run=partial(calls, loaded.run),
        undo=None if loaded.undo is None else partial(calls, loaded.undo),
    )


def _call(run: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return run(*args, **kwargs)


def _check(plugin: object) -> None:
    """Raises whatever speaks against running this."""
    if not isinstance(plugin, Plugin):
        raise TypeError(f"it is a {type(plugin).__name__}, not a Plugin")
    point: object = plugin.point
    if not (isinstance(point, ExtensionPoint) and callable(plugin.run)):
        raise TypeError("it needs an extension point, and a function to run there")
    undo: object = plugin.undo
    if undo is not None and not (callable(undo) and point is ExtensionPoint.RESERVE):
        raise TypeError("undo is a function, and of reserve plugins alone")
    if plugin.args is not None:
        check_args_class(plugin.args)
        plugin.args()
