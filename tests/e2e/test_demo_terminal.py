"""``federation demo`` on a terminal of its own: it moves while one waits, and Ctrl-C ends it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

from lab.servers import ROOT, environment
from tests.e2e.test_demo import END_SECONDS, STARTING

# A terminal sends signals to those whose session it belongs to.
ON_TERMINAL = """
import os, sys
os.login_tty(0)
os.execv(sys.executable, [sys.executable, "-m", "federation", "demo"])
"""
CTRL_C = b"\x03"
INTERRUPTED = 130


def read_until(terminal: int, pattern: str) -> str:
    """What is written to the terminal, up to what matches or to its end."""
    written = b""
    while not re.search(pattern, written.decode(errors="replace")):
        try:
            piece = os.read(terminal, 65536)
        except OSError:
            # Nobody has the other end any more.
            break
        if not piece:
            break
        written += piece
    return written.decode()


def test_ctrl_c_ends_it_and_it_says_so(tmp_path: Path) -> None:
    terminal, inner = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", ON_TERMINAL],
        cwd=ROOT,
        env=environment({"TMPDIR": str(tmp_path), "TERM": "xterm-256color"}),
        stdin=inner,
        stdout=inner,
        stderr=inner,
    )
    os.close(inner)
    watchdog = threading.Timer(END_SECONDS, process.kill)
    watchdog.start()
    try:
        begun = read_until(terminal, STARTING)
        # The terminal makes a signal of it, for everybody in the foreground.
        os.write(terminal, CTRL_C)
        ended = read_until(terminal, r"Stopped in [0-9.]+ s\.")
        code = process.wait()
    finally:
        watchdog.cancel()
        process.kill()
        process.wait()
        os.close(terminal)
    written = begun + ended
    assert code == INTERRUPTED, written
    assert "\r… " in begun, "a step that goes on is told in place"
    assert "\nStopping." in ended
    assert "Stopped in" in ended
    assert "Traceback" not in written
    assert list(tmp_path.iterdir()) == []
