"""Figures that say how tightly tests hold the layout of the product.

Must not import the product or a test: everything is counted in their syntax trees.

The figures, for the Python files below ``tests`` and below ``lab``:

- *files* and *lines*: files named ``*.py`` and their newline characters, blank lines and comments
  included.
- *product modules*: distinct modules and packages of ``federation`` and ``estimator``
  that import statements name anywhere in a file, generated stubs included. ``import a.b`` and
  ``from a.b import name`` name ``a.b``; where ``a.b.name`` is a module itself, that module is
  named and ``a.b`` is not. Names in strings, as monkeypatch and importlib take them, do not count.
- *inner classes*: distinct classes that a file builds, by calling an imported name or an attribute
  of an imported module. The class is the one where it is defined, whichever package passes it on.
  It is an inner class unless its module holds values (`VALUES`), is pure (`PURE`) or generated, or
  `ENTRY_POINTS` names it. Subclasses, class methods and annotations build nothing here.
- *inner classes, calls*: all such calls.
- *private names*: names and modules with a leading underscore that import statements take from the
  product, each once a file.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("federation", "estimator")
FOLDERS = ("tests", "lab")
GENERATED = ("federation.v1", "estimator.karmada")
# Modules of values that both programs share.
VALUES = ("federation.model",)
# Modules of pure functions over values: rules, kernels and codecs.
PURE = (
    "federation.capacity",
    "federation.codec",
    "federation.failover",
    "federation.history",
    "federation.plans",
    "federation.scheduler",
    "estimator.binpack",
    "estimator.estimation",
    "estimator.nodes",
    "estimator.scoring_config",
    "estimator.snapshot",
)
# Classes that a user of the product builds, too: a test that builds them holds no layout.
ENTRY_POINTS = frozenset(
    {
        "federation.bridge.app.BridgeSettings",
        "estimator.settings.RunSettings",
        "federation.app.ControlPlane",
        "federation.client.api.Client",
        "federation.client.blocking.BlockingClient",
        "federation.client.targets.Target",
        "federation.embedded_postgres.server.EmbeddedPostgres",
        "federation.runtime.settings.Settings",
        "federation.store.postgres.PostgresStore",
    }
)


@dataclass(slots=True, kw_only=True)
class FolderFigures:
    """Counts of one folder; keys are dotted names, values how often they occur."""

    files: int = 0
    lines: int = 0
    modules: Counter[str] = field(default_factory=Counter)
    inner_classes: Counter[str] = field(default_factory=Counter)
    private_names: Counter[str] = field(default_factory=Counter)

    def rows(self) -> list[tuple[str, int]]:
        return [
            ("files", self.files),
            ("lines", self.lines),
            ("product modules", len(self.modules)),
            ("inner classes", len(self.inner_classes)),
            ("inner classes, calls", self.inner_classes.total()),
            ("private names", self.private_names.total()),
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """The names of one product module: classes that it defines, and names that it imports."""

    classes: frozenset[str]
    imported: dict[str, str]


class Product:
    """Modules of the product by dotted name, read from the files below a root."""

    def __init__(self, root: Path) -> None:
        self._files = {
            dotted_name(path.relative_to(root)): path
            for package in PRODUCT
            for path in (root / package).rglob("*.py")
        }
        self._modules: dict[str, Module] = {}

    def has_module(self, name: str) -> bool:
        return name in self._files

    def class_of(self, name: str) -> str | None:
        """Return the full name of the class that a dotted name stands for, None if it is none."""
        seen: set[str] = set()
        while name not in seen:
            seen.add(name)
            module_name, _, attribute = name.rpartition(".")
            if not self.has_module(module_name):
                return None
            module = self._module(module_name)
            if attribute in module.classes:
                return name
            name = module.imported.get(attribute, name)
        return None

    def _module(self, name: str) -> Module:
        if name not in self._modules:
            tree = ast.parse(self._files[name].read_bytes())
            self._modules[name] = Module(
                classes=frozenset(
                    node.name for node in tree.body if isinstance(node, ast.ClassDef)
                ),
                imported={local: target for local, target, _ in self.imports(tree)},
            )
        return self._modules[name]

    def imports(self, tree: ast.Module) -> Iterator[tuple[str, str, str]]:
        """Yield local name, dotted target and named module of each import from the product."""
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name.split(".")[0] in PRODUCT:
                        yield alias.asname or alias.name, alias.name, alias.name
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                if node.module.split(".")[0] not in PRODUCT:
                    continue
                for alias in node.names:
                    target = f"{node.module}.{alias.name}"
                    module = target if self.has_module(target) else node.module
                    yield alias.asname or alias.name, target, module


def dotted_name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_inside(name: str, packages: Iterable[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def is_inner(class_name: str) -> bool:
    """Return whether a class, by its full name, is one that tests must not build."""
    return class_name not in ENTRY_POINTS and not is_inside(
        class_name, (*VALUES, *PURE, *GENERATED)
    )


def is_private(name: str) -> bool:
    return any(part.startswith("_") and not part.startswith("__") for part in name.split("."))


def called_names(tree: ast.Module, local_names: dict[str, str]) -> Iterator[str]:
    """Yield the dotted target of each call of an imported name or of an attribute of one."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id in local_names:
            yield local_names[node.func.id]
        elif isinstance(node.func, ast.Attribute):
            module = local_names.get(ast.unparse(node.func.value))
            if module is not None:
                yield f"{module}.{node.func.attr}"


def count_file(source: str, product: Product, figures: FolderFigures) -> None:
    """Add what one file imports and builds to the figures."""
    tree = ast.parse(source)
    imports = list(product.imports(tree))
    figures.files += 1
    figures.lines += source.count("\n")
    figures.modules.update({module for _, _, module in imports})
    figures.private_names.update({target for _, target, _ in imports if is_private(target)})
    for called in called_names(tree, {local: target for local, target, _ in imports}):
        class_name = product.class_of(called)
        if class_name is not None and is_inner(class_name):
            figures.inner_classes[class_name] += 1


def count(root: Path, folder: str) -> FolderFigures:
    product = Product(root)
    figures = FolderFigures()
    for path in sorted((root / folder).rglob("*.py")):
        count_file(path.read_text(encoding="utf-8"), product, figures)
    return figures


def print_names(title: str, names: Counter[str]) -> None:
    print(f"\n{title}")
    for name, times in sorted(names.items(), key=lambda item: (-item[1], item[0])):
        print(f"{times:6}  {name}")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.count_tests")
    parser.add_argument("--names", action="store_true", help="print the names that tests/ uses")
    parser.add_argument("--root", type=Path, default=ROOT, help="another checkout")
    options = parser.parse_args(arguments)
    figures = {folder: count(options.root, folder) for folder in FOLDERS}
    print(f"{'':22}" + "".join(f"{folder:>9}" for folder in FOLDERS) + f"{'both':>9}")
    for rows in zip(*(figures[folder].rows() for folder in FOLDERS), strict=True):
        counts = [number for _, number in rows]
        # The same module counts once in each folder: only sizes have a sum.
        both = f"{sum(counts):9,}" if rows[0][0] in {"files", "lines"} else ""
        print(f"{rows[0][0]:22}" + "".join(f"{number:9,}" for number in counts) + both)
    if options.names:
        tests = figures["tests"]
        print_names("product modules, and in how many files of tests/", tests.modules)
        print_names("inner classes, and how often tests/ builds them", tests.inner_classes)
        print_names("private names, and in how many files of tests/", tests.private_names)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
