"""Installing as ``make`` does it, from an index on disk, into a folder with spaces and accents."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile, ZipInfo

import pytest

from lab.servers import ROOT

END_SECONDS = 600.0
BACKEND = """
import os, subprocess, sys
def get_requires_for_build_editable(config_settings=None):
    return []
def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    import shutil
    name = "fedsched-1-py3-none-any.whl"
    shutil.copy(os.path.join(os.environ["TEST_WHEELS"], name), wheel_directory)
    return name
def get_requires_for_build_wheel(config_settings=None):
    return []
"""
PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "fedsched"
version = "1"
"""


def wheel(folder: Path, name: str, files: Mapping[str, str]) -> str:
    """Makes a wheel; the line for it in a lock."""
    info = f"{name}-1.dist-info"
    contents = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    contents[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*contents, f"{info}/RECORD"])
    made = folder / f"{name}-1-py3-none-any.whl"
    with ZipFile(made, "w") as archive:
        for path, text in contents.items():
            entry = ZipInfo(path)
            entry.external_attr = 0o100755 << 16
            archive.writestr(entry, text)
    return f"{name}==1 \\\n    --hash=sha256:{hashlib.sha256(made.read_bytes()).hexdigest()}\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkout:
    """A project of one dependency, ``leaf``, whose index is pip's alone to know."""

    root: Path
    wheels: Path

    def environment(self) -> dict[str, str]:
        own = ("PIP_", "UV_", "VIRTUAL_ENV")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(own)}
        settings = self.wheels / "pip.conf"
        settings.write_text(f"[global]\nno-index = true\nfind-links = {self.wheels}\n")
        return {
            **kept,
            "PIP_CONFIG_FILE": str(settings),
            "TEST_WHEELS": str(self.wheels),
            "PYTHONUNBUFFERED": "1",
        }

    def start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["make", "-s", "install", f"PYTHON={sys.executable}"],
            cwd=self.root,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def install(self) -> tuple[int, str]:
        process = self.start()
        printed, _ = process.communicate(timeout=END_SECONDS)
        return process.returncode, printed

    def leaf(self) -> str:
        command = [self.root / ".venv" / "bin" / "python", "-c", "import leaf; print(leaf.WORD)"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def has(self, package: str) -> bool:
        """Return whether programs of the environment can import a package."""
        command = [self.root / ".venv" / "bin" / "python", "-c", f"import {package}"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    made = Checkout(root=tmp_path / "ça va bien", wheels=tmp_path / "wheels")
    made.wheels.mkdir()
    (made.root / "tools").mkdir(parents=True)
    for name in ("Makefile", "tools/uv_settings.py"):
        shutil.copy(ROOT / name, made.root / name)
    wheel(made.wheels, "fedsched", {"fedsched_is_here.py": ""})
    (made.root / "backend.py").write_text(BACKEND)
    (made.root / "pyproject.toml").write_text(PROJECT)
    # The real uv, as if it came from the index.
    uv = Path(sys.executable).with_name("uv")
    script = f'#!/bin/sh\necho uv ran >&2\nexec "{uv}" "$@"\n'
    line = wheel(made.wheels, "uv", {"uv-1.data/scripts/uv": script})
    (made.root / "requirements-uv.lock").write_text(line)
    line = wheel(made.wheels, "leaf", {"leaf.py": "WORD = 'green'\n"})
    (made.root / "requirements-dev.lock").write_text(line)
    line = wheel(made.wheels, "schemas_of_tests", {"schemas_of_tests/__init__.py": ""})
    (made.root / "requirements-schemas.lock").write_text(line)
    return made


def test_uv_installs_from_where_pip_would_once(checkout: Checkout) -> None:
    status, printed = checkout.install()
    assert status == 0, printed
    assert printed.count("fedsched: making .venv") == 1
    assert checkout.leaf() == "green"
    assert checkout.install() == (0, "")
    # What tests alone import is kept from programs.
    assert (checkout.root / ".venv" / "schemas" / "schemas_of_tests" / "__init__.py").exists()
    assert not checkout.has("schemas_of_tests")


def test_it_is_made_anew_for_another_lock_and_where_python_is_gone(checkout: Checkout) -> None:
    assert checkout.install()[0] == 0
    line = wheel(checkout.wheels, "leaf", {"leaf.py": "WORD = 'yellow'\n"})
    (checkout.root / "requirements-dev.lock").write_text(line)
    assert checkout.install()[0] == 0
    assert checkout.leaf() == "yellow"
    python = checkout.root / ".venv" / "bin" / "python"
    python.unlink()
    python.symlink_to("/nowhere/python")
    assert checkout.install()[0] == 0
    assert checkout.leaf() == "yellow"


def test_another_file_than_the_locked_one_is_refused(checkout: Checkout) -> None:
    wheel(checkout.wheels, "leaf", {"leaf.py": "WORD = 'rotten'\n"})
    status, printed = checkout.install()
    assert status == 2
    assert "hash" in printed.lower()
    assert not checkout.has("leaf")


def test_it_starts_over_after_an_interruption_and_pip_installs_where_there_is_no_uv(
    checkout: Checkout,
) -> None:
    waits = "#!/bin/sh\necho uv waits >&2\nsleep 600\n"
    line = wheel(checkout.wheels, "uv", {"uv-1.data/scripts/uv": waits})
    lock = checkout.root / "requirements-uv.lock"
    good_lock = lock.read_text()
    lock.write_text(line)
    process = checkout.start()
    assert process.stdout is not None
    assert "uv waits\n" in iter(process.stdout.readline, "")
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=END_SECONDS)
    assert process.returncode not in (0, None)
    lock.write_text(good_lock)
    next(checkout.wheels.glob("uv-*")).unlink()
    status, printed = checkout.install()
    assert (status, checkout.leaf()) == (0, "green"), printed
    assert "uv cannot be had here: pip installs" in printed


def test_a_python_that_is_named_is_taken_or_refused(tmp_path: Path) -> None:
    """Never another one in its place, whatever .venv was made by."""
    shutil.copy(ROOT / "Makefile", tmp_path)

    def make(target: str, python: str) -> tuple[int, str]:
        command = ["make", "-s", target, f"PYTHON={python}"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    status, printed = make("install", "/nope")
    assert (status, "none of these is: /nope" in printed) == (2, True)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    ours, other = tmp_path / ".venv" / "bin" / "python", tmp_path / "other"
    for path, version in ((ours, "3.11"), (other, "3.13")):
        path.write_text(f"#!/bin/sh\necho {version}\n")
        path.chmod(0o755)
    assert make("install", "/nope") == (2, "PYTHON=/nope does not run\n")
    said = f".venv has Python 3.11, PYTHON={other} is 3.13: rm -r .venv, then again\n"
    assert make("install", str(other)) == (2, said)
    assert make("same-python", str(ours)) == (0, "")
