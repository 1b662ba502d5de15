"""The counter of what tests import and build, on a small product with tests of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.count_tests import ENTRY_POINTS, ROOT, Product, count, main

PRODUCT = {
    "federation/__init__.py": "",
    "federation/app.py": "class ControlPlane: ...\n",
    "federation/model.py": "class Amount: ...\n",
    "federation/services/__init__.py": "from federation.services.queue import Queue\n",
    "federation/services/queue.py": "class Queue: ...\nclass Entry: ...\n_LIMIT = 3\n",
    "federation/scheduler/__init__.py": "class Cycle: ...\n",
}
TEST = """\
import federation.services.queue
from federation import app
from federation.app import ControlPlane
from federation.model import Amount
from federation.scheduler import Cycle
from federation.services import Queue, queue
from federation.services.queue import _LIMIT

def test() -> None:
    from os import path
    built = Queue(), queue.Queue(), federation.services.queue.Entry()
    allowed = ControlPlane(), app.ControlPlane(), Amount(), Cycle(), path.join("a", "b")
    not_called = Queue
"""


def write_checkout(root: Path) -> None:
    for name, source in {**PRODUCT, "tests/test_queue.py": TEST}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, encoding="utf-8")


def test_modules_inner_classes_and_private_names_are_counted(tmp_path: Path) -> None:
    write_checkout(tmp_path)
    figures = count(tmp_path, "tests")
    assert (figures.files, figures.lines) == (1, TEST.count("\n"))
    assert set(figures.modules) == {
        "federation.app",
        "federation.model",
        "federation.scheduler",
        "federation.services",
        "federation.services.queue",
    }
    assert figures.inner_classes == {
        "federation.services.queue.Queue": 2,
        "federation.services.queue.Entry": 1,
    }
    assert figures.private_names == {"federation.services.queue._LIMIT": 1}


def test_figures_and_names_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_checkout(tmp_path)
    assert main(["--root", str(tmp_path), "--names"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert ["product", "modules", "5", "0"] in [line.split() for line in lines]
    assert "     2  federation.services.queue.Queue" in lines


def test_every_entry_point_is_a_class() -> None:
    product = Product(ROOT)
    assert [name for name in sorted(ENTRY_POINTS) if product.class_of(name) != name] == []
