"""The store that keeps the contract."""

from __future__ import annotations

from tests.stores import engine, store

__all__ = ["engine", "store"]
