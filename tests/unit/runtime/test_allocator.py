"""How much memory is asked for again page by page, in processes of their own."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

TABLES = """
import resource
from federation.runtime import allocator
assert allocator.{how}()
touched = b"1" * (8 << 20)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(50):
    table = bytearray(touched)
    del table
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
# Of 8 MiB.
PAGES = 2048


def faults(how: str) -> int:
    program = [sys.executable, "-c", TABLES.format(how=how)]
    return int(subprocess.run(program, check=True, capture_output=True, text=True).stdout)


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="only glibc can be told how to keep freed memory"
)
def test_memory_for_tables_is_asked_for_once_and_that_of_bursts_again_each_time() -> None:
    assert faults("keep_memory_for_tables") < 3 * PAGES
    assert faults("give_back_freed_memory") > 40 * PAGES
