"""A few inputs for each target, the same ones each time; ``make fuzz`` goes on for longer."""

from __future__ import annotations

import gc
import io
import os
import random
import subprocess
import sys
import threading

import pytest

from federation.codec.workloads import bindings_from_documents
from federation.model.errors import InvalidRequest
from lab.fuzz import fuzzing
from lab.fuzz.decoders import decoders
from lab.fuzz.fuzzing import FuzzTarget, fuzz, tried
from lab.fuzz.rpcs import attacked_rpcs
from lab.processes import family_peak

SEED, INPUTS, REQUESTS, EVENTS = 1, 150, 12, 2
TARGETS = decoders()


@pytest.mark.parametrize("target", TARGETS, ids=[target.name for target in TARGETS])
def test_what_reads_bytes_takes_them_or_refuses_them(target: FuzzTarget) -> None:
    result = fuzz(target, SEED, inputs=INPUTS)
    assert not result.wrong, (result.wrong, result.culprit)
    assert result.inputs == INPUTS


def test_every_rpc_answers_or_refuses() -> None:
    with attacked_rpcs() as targets:
        for target in targets:
            # Those that stream take a moment each.
            inputs = EVENTS if "Watch" in target.name or "Connect" in target.name else REQUESTS
            result = fuzz(target, SEED, inputs=inputs)
            assert not result.wrong, (target.name, result.wrong, result.culprit)


def test_what_is_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzzing, "CPU_SECONDS", 0.05)

    def spin(content: bytes) -> None:
        while content:
            pass

    def fail(content: bytes) -> None:
        raise LookupError(content.decode(errors="replace"))

    assert "CPU" in fuzz(FuzzTarget(name="spins", take=spin, seeds=(b"a",)), SEED, inputs=1).wrong
    # Not before: beside others 0.05 s of CPU may take longer.
    monkeypatch.setattr(fuzzing, "REAL_SECONDS", 0.2)
    waiting = FuzzTarget(name="waits", take=lambda _: threading.Event().wait(), seeds=(b"a",))
    assert "does not end" in fuzz(waiting, SEED, inputs=1).wrong
    failing = FuzzTarget(name="fails", take=fail, seeds=(b"a",), peak_mebibytes=float)
    assert tried(failing, b"b", 0.0) == ("it raises LookupError: b", False)
    # Other tests of this process have made it large.
    refusing = FuzzTarget(
        name="refuses",
        take=fail,
        seeds=(b"a",),
        refusals=(LookupError,),
        peak_mebibytes=float,
    )
    assert tried(refusing, b"b", 0.0) == ("", True)
    peaks = iter([100.0, 400.0, 700.0])
    growing = FuzzTarget(
        name="grows", take=len, seeds=(b"a", b"bb"), peak_mebibytes=lambda: next(peaks)
    )
    assert fuzz(growing, SEED, inputs=9).culprit == b"bb"
    made = FuzzTarget(name="makes", take=fail, make=lambda chance: chance.randbytes(2))
    assert fuzz(made, SEED, inputs=9).culprit == random.Random(SEED).randbytes(2)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of others' memory")
def test_memory_of_processes_that_are_gone_counts() -> None:
    """What a worker of a control plane needs is what the control plane needs."""
    program = "import time; content = bytearray(64 << 20); time.sleep(1.0)"
    with family_peak(os.getpid()) as peak:
        before = peak.mebibytes()
        subprocess.run([sys.executable, "-c", program], check=True)
        assert peak.mebibytes() - before > 64


@pytest.mark.parametrize("name", ["simulate", "trace file"])
def test_what_runs_a_whole_fedctl_keeps_nothing_of_it(name: str) -> None:
    (target,) = (each for each in TARGETS if each.name == name)

    def streams() -> int:
        gc.collect()
        return sum(isinstance(each, io.TextIOWrapper) for each in gc.get_objects())

    tried(target, b"[", 0.0)
    before = streams()
    for number in range(3):
        tried(target, b"[" * number, 0.0)
    assert streams() <= before


def test_a_kind_that_nobody_knows_needs_no_version() -> None:
    with pytest.raises(InvalidRequest, match="Gizmo"):
        bindings_from_documents([{"kind": "Gizmo", "metadata": {"name": "a"}, "spec": {}}])
