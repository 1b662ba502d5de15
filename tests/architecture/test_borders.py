"""Only the ``__main__`` modules know the process: its environment, its arguments, its signals."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("federation", "estimator")
# A part of the ``__main__`` modules that has to come before they import grpc and numpy.
BEFORE_LIBRARIES = Path("federation", "runtime", "native_libraries.py")
# A part of fedctl's, that its verbs need too.
FOLDERS = Path("federation", "cli", "connection.py")
PROCESS_ATTRIBUTES = {
    ("os", "environ"),
    ("os", "environb"),
    ("os", "getenv"),
    ("os", "putenv"),
    ("sys", "argv"),
    ("signal", "signal"),
    ("signal", "set_wakeup_fd"),
}
# Called on a loop, whatever the variable is called.
PROCESS_METHODS = {"add_signal_handler"}


def modules() -> list[Path]:
    return [
        path.relative_to(ROOT)
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if path.name != "__main__.py" and path.relative_to(ROOT) not in {BEFORE_LIBRARIES, FOLDERS}
    ]


def uses_of_the_process(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(value=ast.Name(id=module), attr=name) if (
                module,
                name,
            ) in PROCESS_ATTRIBUTES:
                yield f"line {node.lineno}: {module}.{name}"
            case ast.Attribute(attr=name) if name in PROCESS_METHODS:
                yield f"line {node.lineno}: {name}"
            case ast.ImportFrom(module=module, names=names):
                for alias in names:
                    if (module, alias.name) in PROCESS_ATTRIBUTES:
                        yield f"line {node.lineno}: from {module} import {alias.name}"


def test_only_programs_tell_libraries_how_to_behave() -> None:
    assert (ROOT / BEFORE_LIBRARIES).exists()
    assert [
        path
        for path in modules()
        if "import federation.runtime.native_libraries" in (ROOT / path).read_text()
    ] == []


def test_modules_leave_the_process_to_main() -> None:
    found = {
        str(path): list(uses_of_the_process((ROOT / path).read_text(encoding="utf-8")))
        for path in modules()
    }
    assert {path: uses for path, uses in found.items() if uses} == {}


@pytest.mark.parametrize(
    "source",
    [
        "import os\nhome = os.environ['HOME']",
        "import os\nhome = os.getenv('HOME')",
        "from os import environ",
        "import sys\nname = sys.argv[0]",
        "import signal\nsignal.signal(signal.SIGTERM, stop)",
        "loop.add_signal_handler(15, stop)",
    ],
)
def test_use_of_the_process_is_found(source: str) -> None:
    assert len(list(uses_of_the_process(source))) == 1


def test_other_uses_of_these_modules_are_not_meant() -> None:
    source = "import os, signal, sys\nos.kill(os.getpid(), signal.SIGINT)\nsys.exit(1)"
    assert list(uses_of_the_process(source)) == []
