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

    def start(self, kind: str = "demo") -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "tools.install", kind],
            cwd=self.root,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def install(self, kind: str = "demo") -> tuple[int, str]:
        process = self.start(kind)
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
    shutil.copytree(ROOT / "tools", made.root / "tools")
    (made.root / "federation" / "runtime").mkdir(parents=True)
    for name in ("__init__.py", "runtime/__init__.py", "runtime/interruptions.py"):
        shutil.copy(ROOT / "federation" / name, made.root / "federation" / name)
    wheel(made.wheels, "fedsched", {"fedsched_is_here.py": ""})
    (made.root / "backend.py").write_text(BACKEND)
    (made.root / "pyproject.toml").write_text(PROJECT)
    # The real uv, as if it came from the index.
    uv = Path(sys.executable).with_name("uv")
    script = f'#!/bin/sh\necho uv ran >&2\nexec "{uv}" "$@"\n'
    line = wheel(made.wheels, "uv", {"uv-1.data/scripts/uv": script})
    (made.root / "requirements-uv.lock").write_text(line)
    line = wheel(made.wheels, "leaf", {"leaf.py": "WORD = 'green'\n"})
    for name in ("requirements.lock", "requirements-dev.lock"):
        (made.root / name).write_text(line)
    return made


def test_uv_installs_from_where_pip_would_and_of_two_at_once_one_does(checkout: Checkout) -> None:
    both = [checkout.start(), checkout.start()]
    printed = [process.communicate(timeout=END_SECONDS)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], printed
    assert "".join(printed).count("ready in") == 1
    assert "pip" not in "".join(printed)
    assert checkout.leaf() == "green"
    assert checkout.install() == (0, "")


def test_what_only_tests_import_is_kept_from_programs(checkout: Checkout) -> None:
    """Also in an environment in which an earlier checkout has put it among the rest."""
    name = "kubernetes_validate"
    line = wheel(checkout.wheels, name, {f"{name}/__init__.py": "WORD = 'schemas'\n"})
    lock = checkout.root / "requirements.lock"
    lock.write_text(lock.read_text() + line)
    assert checkout.install()[0] == 0
    assert checkout.has(name)
    (checkout.root / "requirements-schemas.lock").write_text(line)
    status, printed = checkout.install("dev")
    assert status == 0, printed
    assert not checkout.has(name)
    assert (checkout.root / ".venv" / "schemas" / name / "__init__.py").exists()
    assert checkout.leaf() == "green"
    assert checkout.install("dev") == (0, "")


def test_another_file_than_the_locked_one_is_refused(checkout: Checkout) -> None:
    wheel(checkout.wheels, "leaf", {"leaf.py": "WORD = 'rotten'\n"})
    status, printed = checkout.install()
    assert status == 1
    assert "the installation failed" in printed
    assert "Traceback" not in printed


def test_it_starts_over_after_an_interruption_and_pip_installs_where_there_is_no_uv(
    checkout: Checkout,
) -> None:
    # A uv that is interrupted while it works, and that does not listen.
    deaf = "#!/bin/sh\ntrap '' INT\necho $$ >pid\nkill -INT $PPID\nwhile :; do sleep 1; done\n"
    line = wheel(checkout.wheels, "uv", {"uv-1.data/scripts/uv": deaf})
    lock = checkout.root / "requirements-uv.lock"
    before = lock.read_text()
    lock.write_text(line)
    status, printed = checkout.install()
    assert status == 128 + signal.SIGINT
    assert printed.endswith("fedsched: interrupted; the same command starts over\n")
    assert "Traceback" not in printed
    with pytest.raises(ProcessLookupError):
        os.kill(int((checkout.root / "pid").read_text()), 0)
    lock.write_text(before)
    next(checkout.wheels.glob("uv-*")).unlink()
    status, printed = checkout.install()
    assert (status, checkout.leaf()) == (0, "green"), printed
    assert "making .venv" in printed
    assert "pip installs, which takes longer: uv cannot be had here" in printed


def test_a_python_that_is_named_is_taken_or_refused(tmp_path: Path) -> None:
    """Never another one in its place, whatever .venv was made by."""
    shutil.copy(ROOT / "Makefile", tmp_path)

    def make_install(python: str) -> tuple[int, str]:
        command = ["make", "-s", "install", f"PYTHON={python}"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    status, printed = make_install("/nope")
    assert (status, "none of these is: /nope" in printed) == (2, True)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    ours, other = tmp_path / ".venv" / "bin" / "python", tmp_path / "other"
    for path, version in ((ours, "3.11"), (other, "3.13")):
        path.write_text(f"#!/bin/sh\necho {version}\n")
        path.chmod(0o755)
    assert make_install("/nope") == (2, "PYTHON=/nope does not run\n")
    said = f".venv has Python 3.11, PYTHON={other} is 3.13: rm -r .venv, then again\n"
    assert make_install(str(other)) == (2, said)
    assert make_install(str(ours))[0] == 0
