"""Tie orders: the keyed hash, and Karmada's directions."""

from __future__ import annotations

from hashlib import blake2b
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.model.placement import TieBreak
from federation.scheduler.division.ties import Direction, TieOrder, fnv1a_32

NAMES = (b"alpha", b"beta", b"gamma")
ALL = np.arange(3)


def order(uid: str, tie_break: TieBreak) -> TieOrder:
    return TieOrder.of(NAMES, uid, tie_break)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0x811C9DC5), ("a", 0xE40C292C), ("foobar", 0xBF9CF968)],
)
def test_fnv1a_32(text: str, expected: int) -> None:
    assert fnv1a_32(text) == expected


@pytest.mark.parametrize("tie_break", list(TieBreak))
def test_no_uid_means_ascending_names(tie_break: TieBreak) -> None:
    assert order("", tie_break).direction is Direction.ASCENDING
    assert order("", tie_break).keys(ALL).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("uid", "keys"),
    [("uid-1", [2, 1, 0]), ("uid-2", [0, 1, 2]), ("uid-3", [2, 1, 0])],
)
def test_karmada_walks_names_by_the_parity_of_the_uid(uid: str, keys: list[int]) -> None:
    assert order(uid, TieBreak.KARMADA).keys(ALL).tolist() == keys


def test_hash_is_blake2b_of_uid_and_name() -> None:
    keys = order("uid-1", TieBreak.HASH).keys(np.array([2, 0]))
    expected = [
        int.from_bytes(blake2b(b"uid-1\0" + name, digest_size=8).digest(), "big")
        for name in (b"gamma", b"alpha")
    ]
    assert keys.tolist() == expected


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(0, 3), max_size=14), st.integers(0, 16), st.text(max_size=3))
def test_equals_are_settled_as_far_as_they_are_taken(
    places: list[int], taken: int, uid: str
) -> None:
    """``places`` are what the clusters are ordered by before the keys are asked."""
    ties = TieOrder(
        encoded_names=[f"m{number}".encode() for number in range(len(places))],
        uid=uid,
        direction=Direction.HASH,
    )
    key_c = ties.keys(np.arange(len(places))).tolist()
    by_name = sorted(range(len(places)), key=lambda c: places[c])
    by_key = sorted(range(len(places)), key=lambda c: (places[c], key_c[c]))
    differs_k = np.array([places[a] != places[b] for a, b in pairwise(by_name)], dtype=np.bool_)
    index_k = np.array(by_name, dtype=np.int64)
    settled = ties.settled(index_k, differs_k, taken).tolist()
    assert settled[:taken] == by_key[:taken]
    assert [places[c] for c in settled] == [places[c] for c in by_key]
    assert sorted(settled) == sorted(by_key)
    assert index_k.tolist() == by_name


def test_hash_is_fair() -> None:
    first = [
        int(np.argmin(order(f"uid-{number}", TieBreak.HASH).keys(ALL))) for number in range(600)
    ]
    assert min(first.count(position) for position in range(3)) > 150
