"""Run tests side by side, and those that fail once more on their own.

Hides no fault: what fails beside others and passes alone is named at the end, as unsteady.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tools.progress import say

ROOT = Path(__file__).resolve().parent.parent
# pytest's exit code for: tests ran, and some failed.
SOME_FAILED = 1
# More than these are no accident of a busy machine, and wait for nobody.
MOST_UNSTEADY = 5


def all_pass(
    python: str,
    tests: Sequence[str] = (),
    *,
    workers: int,
    folder: Path = ROOT,
    name: str = "",
    show: Callable[[str], None] | None = None,
) -> bool:
    """Whether all pass, at the latest on their own.

    `name` tells runs at one time apart; without `show` they write where this program writes.
    """
    remembered = folder / ".pytest_cache" / f"run{name}"
    shutil.rmtree(remembered, ignore_errors=True)
    pytest = [python, "-m", "pytest", "-q", "-o", f"cache_dir={remembered}"]
    code = shown([*pytest, "-n", str(workers), "--dist", "loadfile", *tests], folder, show)
    failed = failed_in(remembered)
    if code != SOME_FAILED or not 0 < len(failed) <= MOST_UNSTEADY:
        return code == 0
    say(f"{len(failed)} failed: once more, alone")
    if shown([*pytest, *failed], folder, show):
        return False
    say("UNSTEADY: failed beside others and passed alone, a fault of the test or of ours:")
    for test in failed:
        say(f"  {test}")
    return True


def failed_in(remembered: Path) -> list[str]:
    """The tests that failed in the last run, by pytest's own notes."""
    try:
        return sorted(json.loads((remembered / "v/cache/lastfailed").read_bytes()))
    except FileNotFoundError:
        return []


def shown(command: Sequence[str], folder: Path, show: Callable[[str], None] | None) -> int:
    taken, joined = (subprocess.PIPE, subprocess.STDOUT) if show else (None, None)
    with subprocess.Popen(
        command, cwd=folder, stdout=taken, stderr=joined, text=True, errors="replace"
    ) as process:
        try:
            if show and process.stdout:
                for line in process.stdout:
                    show(line)
            return process.wait()
        except KeyboardInterrupt:
            # It has been interrupted, too, and still says what failed until then.
            process.wait()
            raise


def main() -> int:
    started = time.monotonic()
    # Many tests wait for processes and databases: more workers than cores.
    is_good = all_pass(sys.executable, sys.argv[1:], workers=6)
    say(f"tests: {'ok' if is_good else 'FAILED'} in {time.monotonic() - started:.0f} s")
    return 0 if is_good else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
