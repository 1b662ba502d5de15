"""The types of scoringStrategy that NodeResourcesFit scores by: one file each, with its ``READER``.

A file that is added here can be named by every configuration at once. Must not hold what several
of them share: that stands beside this package.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from pkgutil import iter_modules
from types import MappingProxyType
from typing import Final

from estimator.binpack.strategy import StrategyReader


def _readers() -> Iterator[StrategyReader]:
    for module in iter_modules(__path__, f"{__name__}."):
        yield import_module(module.name).READER


STRATEGIES: Final[Mapping[str, StrategyReader]] = MappingProxyType(
    {reader.type: reader for reader in _readers()}
)
