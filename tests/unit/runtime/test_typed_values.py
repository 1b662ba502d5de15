"""Types that several threads are the first to use, at once: msgspec alone crashes there."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from federation.runtime.typed_values import converted, from_json, json_decoder

FIRST_AT_ONCE = """
import sys
import threading
import msgspec
from federation.runtime.typed_values import converted, from_json

sys.setswitchinterval(1e-6)
THREADS = 4
at_once = threading.Barrier(THREADS)
kinds = []
for number in range(100):
    inner = msgspec.defstruct(f"Inner{number}", [(f"a{n}", int, 0) for n in range(30)])
    fields = [(f"b{n}", list[inner], []) for n in range(30)]
    kinds.append(msgspec.defstruct(f"Outer{number}", fields))

def read():
    for kind in kinds:
        at_once.wait()
        assert from_json(b'{"b1": [{"a1": 1}]}', kind) == converted({"b1": [{"a1": 1}]}, kind)

threads = [threading.Thread(target=read) for _ in range(THREADS)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


class Point(msgspec.Struct):
    x: int


def test_the_first_threads_of_a_type_do_not_crash() -> None:
    program = [sys.executable, "-c", FIRST_AT_ONCE]
    ended = subprocess.run(program, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_values_are_checked() -> None:
    assert from_json(b'{"x": 1}', Point) == converted({"x": 1}, Point) == Point(1)
    with pytest.raises(msgspec.ValidationError, match="Expected `int`"):
        from_json(b'{"x": "1"}', Point)
    with pytest.raises(msgspec.ValidationError, match="Expected `int`"):
        converted({"x": "1"}, Point)
    assert json_decoder(Point) is json_decoder(Point)
