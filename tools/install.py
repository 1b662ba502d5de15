"""Make .venv and install a lock file into it: ``-m tools.install dev`` or ``… demo``.

Runs before anything is installed: standard library only.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from federation.runtime.interruptions import Interruptions
from tools.progress import Failed, run, say
from tools.uv_settings import pip_settings, uv_variables

ROOT = Path(__file__).resolve().parent.parent
KINDS = ("demo", "dev")
LOCKS = {
    "demo": ROOT / "requirements.lock",
    "dev": ROOT / "requirements-dev.lock",
    "schemas": ROOT / "requirements-schemas.lock",
}
# A development environment of an earlier checkout has it where every program imports it.
MOVED_TO_SCHEMAS = "kubernetes-validate"
UV_LOCK = ROOT / "requirements-uv.lock"
# uv has no wheel for some machines, and pip can do without it.
UV_OPTIONS = ("--only-binary=:all:", "--require-hashes", "--no-deps")
INTERRUPTED = 128 + signal.SIGINT

Arguments = Sequence[str | os.PathLike[str]]


def key_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def pins(lock: Path) -> int:
    return len(re.findall(r"^[a-z0-9]\S*==", lock.read_text(encoding="utf-8"), re.MULTILINE))


@dataclass(frozen=True)
class Environment:
    """A virtual environment, and the notes in it of what it holds."""

    folder: Path
    interruptions: Interruptions

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def log(self) -> Path:
        return self.folder / "install.log"

    @property
    def schemas(self) -> Path:
        """The folder of packages that tests alone import; `tests/kubernetes_schemas.py` does."""
        return self.folder / "schemas"

    @property
    def unfinished(self) -> Path:
        """Present while something is installed: what was killed then may be half there."""
        return self.folder / "installed" / "unfinished"

    def lock_stamp(self, kind: str) -> Path:
        """Present when this lock file, as it is now, is installed."""
        return self.folder / "installed" / f"{kind}-{key_of(LOCKS[kind])}"

    def package_stamp(self) -> Path:
        """Present when the package itself is; the entry points stand in pyproject.toml."""
        return self.folder / "installed" / f"package-{key_of(ROOT / 'pyproject.toml')}"

    def has_lock(self, kind: str) -> bool:
        # What the tests need contains what the demo needs.
        return self.python.exists() and (
            self.lock_stamp(kind).exists() or self.lock_stamp("dev").exists()
        )

    def has_everything(self, kind: str) -> bool:
        return (
            self.has_lock(kind)
            and (kind != "dev" or self.lock_stamp("schemas").exists())
            and self.package_stamp().exists()
            and not self.unfinished.exists()
        )

    def packages(self) -> int:
        folders = (*self.folder.glob("lib/python*/site-packages"), self.schemas)
        return sum(len(list(folder.glob("*.dist-info"))) for folder in folders)

    def works(self) -> bool:
        """Whether it is whole: a Python that was upgraded away leaves a dead link behind."""
        if self.unfinished.exists():
            return False
        try:
            answer = subprocess.run(
                [self.python, "-m", "pip", "--version"], capture_output=True, check=False
            )
        except OSError:
            return False
        return answer.returncode == 0

    def make(self) -> None:
        if find_spec("ensurepip") is None or find_spec("venv") is None:
            version = sysconfig.get_python_version()
            raise SystemExit(
                f"fedsched: this Python ({sys.executable}) cannot make virtual environments.\n"
                f"  Debian, Ubuntu: apt install python{version}-venv\n"
                f"  or name another Python: make install PYTHON=/path/to/python3"
            )
        say(f"making {self.folder.name} with Python {sys.version.split()[0]}")
        shutil.rmtree(self.folder, ignore_errors=True)
        self.unfinished.parent.mkdir(parents=True)
        self.unfinished.touch()
        self._run([sys.executable, "-m", "venv", self.folder])

    def install(self, *arguments: str | os.PathLike[str], packages: int, with_uv: bool) -> None:
        """Installs with uv, or with pip where uv cannot."""
        packages_at_start = self.packages()

        def progress() -> str:
            return f"{self.packages() - packages_at_start} of {packages} packages in place"

        if with_uv:
            uv: Arguments = (self.folder / "bin" / "uv", "pip", "install", "--python", self.python)
            try:
                self._run([*uv, *arguments], environment=self._for_uv(), progress=progress)
            except Failed as failed:
                say(f"uv could not install them, pip is tried instead. uv said:\n{failed}")
            else:
                return
        # What is imported is compiled then: the rest, most of it, need not be.
        self._run([*self._pip(), "--no-compile", *arguments], progress=progress)

    def install_lock(self, kind: str, *options: str | os.PathLike[str], with_uv: bool) -> None:
        """Install all packages of a lock file, and note that they are installed."""
        lock = LOCKS[kind]
        say(f"installing {pins(lock)} packages from {lock.name}")
        self.install(
            *("--require-hashes", "--no-deps", *options, "--requirement", lock),
            packages=pins(lock),
            with_uv=with_uv,
        )
        self.lock_stamp(kind).touch()

    def install_schemas(self, *, with_uv: bool) -> None:
        """Install what tests alone import into a folder that no program looks into."""
        if self.lock_stamp("schemas").exists():
            return
        shutil.rmtree(self.schemas, ignore_errors=True)
        self.install_lock("schemas", "--target", self.schemas, with_uv=with_uv)
        name = MOVED_TO_SCHEMAS.replace("-", "_")
        if any(self.folder.glob(f"lib/python*/site-packages/{name}")):
            self._run([self.python, "-m", "pip", "uninstall", "--yes", MOVED_TO_SCHEMAS])

    def fetch_uv(self) -> bool:
        """Whether uv is there now."""
        try:
            self._run([*self._pip(), *UV_OPTIONS, "--requirement", UV_LOCK])
        except Failed as failed:
            last = str(failed).rpartition("\n")[2]
            say(f"pip installs, which takes longer: uv cannot be had here ({last})")
            return False
        return True

    def _for_uv(self) -> dict[str, str]:
        listed = subprocess.run(
            [self.python, "-m", "pip", "config", "list"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=False,
        )
        return uv_variables(pip_settings(listed.stdout), os.environ)

    def _run(
        self,
        command: Arguments,
        environment: Mapping[str, str] | None = None,
        progress: Callable[[], str] = str,
    ) -> None:
        run(
            command,
            log=self.log,
            interruptions=self.interruptions,
            environment=environment,
            progress=progress,
        )

    def _pip(self) -> Arguments:
        quiet = ("--no-input", "--disable-pip-version-check")
        return (self.python, "-m", "pip", "install", *quiet)


@contextmanager
def alone() -> Iterator[None]:
    """Two at once would write into one environment: the second waits, and finds it done."""
    place = os.open(ROOT, os.O_RDONLY)
    try:
        try:
            fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another installation runs here: waiting for it")
            fcntl.flock(place, fcntl.LOCK_EX)
        yield
    finally:
        os.close(place)


def install(kind: str, environment: Environment) -> None:
    if environment.has_everything(kind):
        return
    started = time.monotonic()
    if not environment.works():
        environment.make()
    environment.unfinished.parent.mkdir(exist_ok=True)
    environment.unfinished.touch()
    with_uv = environment.fetch_uv()
    if not environment.has_lock(kind):
        environment.install_lock(kind, with_uv=with_uv)
    if kind == "dev":
        environment.install_schemas(with_uv=with_uv)
    say("installing fedsched itself, as it stands here")
    environment.install(
        *("--no-deps", "--no-build-isolation", "--editable", ROOT), packages=1, with_uv=with_uv
    )
    environment.package_stamp().touch()
    environment.unfinished.unlink()
    say(f"ready in {time.monotonic() - started:.0f} s")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = ArgumentParser(prog="install")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--into", type=Path, default=ROOT / ".venv", metavar="FOLDER")
    parser.add_argument("--check", action="store_true", help="say by the status whether it is done")
    chosen = parser.parse_args(arguments)
    interruptions = Interruptions()
    environment = Environment(chosen.into.absolute(), interruptions)
    if chosen.check:
        raise SystemExit(not environment.has_everything(chosen.kind))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interruptions.arrive)
    try:
        with interruptions.allowed(), alone():
            install(chosen.kind, environment)
    except Failed as failed:
        raise SystemExit(f"{failed}\nfedsched: the installation failed, see above") from None
    except KeyboardInterrupt:
        say("interrupted; the same command starts over")
        raise SystemExit(INTERRUPTED) from None


if __name__ == "__main__":
    main()
