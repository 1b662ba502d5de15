"""Make .venv and install a lock file into it: ``install.py dev`` or ``install.py demo``.

Runs before anything is installed: standard library only.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import sysconfig
import time
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMPS = VENV / "installed"
LOCKS = {"demo": ROOT / "requirements.lock", "dev": ROOT / "requirements-dev.lock"}
LINES_SHOWN = 15
EVERY = 10


def say(message: str) -> None:
    print(f"fedsched: {message}", flush=True)


def key_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def stamp_of(kind: str) -> Path:
    """Present when this lock file, as it is now, is in .venv."""
    return STAMPS / f"{kind}-{key_of(LOCKS[kind])}"


def package_stamp() -> Path:
    """Present when the package itself is; the entry points stand in pyproject.toml."""
    return STAMPS / f"package-{key_of(ROOT / 'pyproject.toml')}"


def works(python: Path) -> bool:
    """Whether .venv is whole: a Python that was upgraded away leaves a dead link behind."""
    try:
        asked = subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False)
    except OSError:
        return False
    return asked.returncode == 0


def make_venv() -> None:
    if works(PYTHON):
        return
    if find_spec("ensurepip") is None or find_spec("venv") is None:
        version = sysconfig.get_python_version()
        raise SystemExit(
            f"fedsched: this Python ({sys.executable}) cannot make virtual environments.\n"
            f"  Debian, Ubuntu: apt install python{version}-venv\n"
            f"  or name another Python: make install PYTHON=/path/to/python3"
        )
    say(f"making .venv with Python {sys.version.split()[0]}")
    subprocess.run([sys.executable, "-m", "venv", "--clear", VENV], check=True)


def pip(*arguments: str | os.PathLike[str], packages: int) -> None:
    """Run pip install, and say now and then how far it is."""
    command: list[str | os.PathLike[str]] = [
        PYTHON,
        "-m",
        "pip",
        "install",
        "--no-input",
        "--disable-pip-version-check",
    ]
    lines: list[str] = []
    seen = 0
    with subprocess.Popen(
        [*command, *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None  # noqa: S101 - for the type checker
        for line in process.stdout:
            lines.append(line)
            if line.startswith(("Collecting ", "Processing ", "Requirement already satisfied")):
                seen += 1
                if seen % EVERY == 0:
                    say(f"  {seen} of about {packages} packages fetched")
            elif line.startswith("Installing collected packages"):
                say("  unpacking")
    if process.returncode != 0:
        sys.stderr.writelines(lines[-LINES_SHOWN:])
        raise SystemExit("fedsched: pip failed, see above")


def install(kind: str) -> None:
    # What the tests need contains what the demo needs.
    wanted = [stamp_of(kind), stamp_of("dev")]
    locked = PYTHON.exists() and any(stamp.exists() for stamp in wanted)
    if locked and package_stamp().exists():
        return
    started = time.monotonic()
    if not locked:
        make_venv()
        lock = LOCKS[kind]
        packages = len(re.findall(r"^[a-z0-9]\S*==", lock.read_text(), re.MULTILINE))
        say(f"installing {packages} packages from {lock.name} (a minute or two)")
        pip("--require-hashes", "--no-deps", "-r", lock, packages=packages)
        STAMPS.mkdir(exist_ok=True)
        stamp_of(kind).touch()
    say("installing fedsched itself, as it stands here")
    pip("--no-deps", "--no-build-isolation", "--editable", ".", packages=1)
    package_stamp().touch()
    say(f"ready in {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in LOCKS:
        raise SystemExit(f"usage: install.py {'|'.join(LOCKS)}")
    install(sys.argv[1])
