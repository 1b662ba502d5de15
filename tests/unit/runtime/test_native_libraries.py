"""What programs tell libraries below Python, before these are loaded."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

# OpenBLAS starts its threads when it is loaded, and more of them than one where there are cores.
TOLD = """
import os, {program}, numpy
assert numpy.ones(1) @ numpy.ones(1) == 1
print(len(os.listdir("/proc/self/task")), os.environ["GRPC_VERBOSITY"])
"""


@pytest.mark.parametrize(
    "program", ["federation", "federation.cli", "estimator", "federation.bridge"]
)
def test_programs_compute_in_the_thread_that_asks(program: str) -> None:
    ours = {"OPENBLAS_NUM_THREADS", "GRPC_VERBOSITY"}
    done = subprocess.run(
        [sys.executable, "-c", TOLD.format(program=f"{program}.__main__")],
        env={name: value for name, value in os.environ.items() if name not in ours},
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "1 NONE\n"
