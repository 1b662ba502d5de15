"""A real store, empty."""

from __future__ import annotations

from tests.stores import engine, fresh_engine, store

__all__ = ["engine", "fresh_engine", "store"]
