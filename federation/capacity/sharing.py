"""A mapping whose successors share nearly all of it: what a fleet's state keeps its many keys in.

Pure and immutable. Must not be relied on for an order: who needs one sorts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Generic, TypeVar

ValueT = TypeVar("ValueT")

# A change copies one part, and the list of all parts: about as long for ten thousand keys.
_KEYS_A_PART: Final = 64
_GROWTH: Final = 4


class SharingMap(Mapping[str, ValueT], Generic[ValueT]):
    """Keys in parts by their hash: a few changes cost about the same at any size."""

    __slots__ = ("_parts", "_size")

    def __init__(self, parts: tuple[dict[str, ValueT], ...] = ({},), size: int = 0) -> None:
        """``parts`` by the keys' hashes; ``of`` makes them."""
        self._parts = parts
        self._size = size

    @classmethod
    def of(cls, items: Mapping[str, ValueT]) -> SharingMap[ValueT]:
        return cls(_parted(items.items(), _parts_for(len(items))), len(items))

    def __getitem__(self, key: str) -> ValueT:
        return self._parts[hash(key) % len(self._parts)][key]

    def get(  # type: ignore[override]  # takes no default of another type
        self, key: str, default: ValueT | None = None
    ) -> ValueT | None:
        return self._parts[hash(key) % len(self._parts)].get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._parts[hash(key) % len(self._parts)]

    def __iter__(self) -> Iterator[str]:
        for part in self._parts:
            yield from part

    def __len__(self) -> int:
        return self._size

    def with_changes(self, changes: Mapping[str, ValueT | None]) -> SharingMap[ValueT]:
        """With these values, and without the keys that have None."""
        parts, own = list(self._parts), set[int]()
        size, count = self._size, len(parts)
        for key, value in changes.items():
            place = hash(key) % count
            part = parts[place]
            if place not in own:
                own.add(place)
                part = parts[place] = part.copy()
            if value is not None:
                size += key not in part
                part[key] = value
            elif part.pop(key, None) is not None:
                size -= 1
        if size > _KEYS_A_PART * count:
            every = (item for part in parts for item in part.items())
            return SharingMap(_parted(every, _parts_for(size)), size)
        return SharingMap(tuple(parts), size)

    def with_values(self, change: Callable[[str, ValueT], ValueT]) -> SharingMap[ValueT]:
        """The same keys, each with what ``change`` makes of it and its value."""
        parts = tuple(
            {key: change(key, value) for key, value in part.items()} for part in self._parts
        )
        return SharingMap(parts, self._size)


def _parts_for(size: int) -> int:
    parts = 1
    while size > _KEYS_A_PART * parts:
        parts *= _GROWTH
    return parts


def _parted(items: Iterable[tuple[str, ValueT]], count: int) -> tuple[dict[str, ValueT], ...]:
    parts: tuple[dict[str, ValueT], ...] = tuple({} for _ in range(count))
    for key, value in items:
        parts[hash(key) % count][key] = value
    return parts
