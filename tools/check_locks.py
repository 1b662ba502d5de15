"""The lock files against pyproject.toml: nothing missing, nothing outdated, no addresses.

Must not ask an index: it has to give the same answer everywhere.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.lock import EXTRAS, GROUPS

ROOT = Path(__file__).resolve().parent.parent
PIN = re.compile(
    r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;]+).*\\\n(?P<hash>    --hash=sha256:)?",
    re.MULTILINE,
)

Versions = dict[str, set[str]]


def pinned(lock: str) -> Versions:
    """The versions of each package; more than one where a marker decides."""
    versions: Versions = {}
    for pin in PIN.finditer(lock):
        versions.setdefault(canonicalize_name(pin["name"]), set()).add(pin["version"])
    return versions


def required(project: dict[str, object], extras: Iterable[str]) -> Iterator[Requirement]:
    """Return what the project and these extras ask for; an extra may name other extras."""
    table = project["optional-dependencies"]
    dependencies = project["dependencies"]
    assert isinstance(table, dict)  # noqa: S101 - for the type checker
    assert isinstance(dependencies, list)  # noqa: S101 - for the type checker
    yield from map(Requirement, dependencies)
    for extra in extras:
        for requirement in map(Requirement, table[extra]):
            if requirement.name == project["name"]:
                yield from required(project, sorted(requirement.extras))
            else:
                yield requirement


def violations(name: str, lock: str, requirements: Iterable[Requirement]) -> Iterator[str]:
    if "://" in lock:
        yield f"{name} names an address: compile it with `make lock`"
    for pin in PIN.finditer(lock):
        if pin["hash"] is None:
            yield f"{name}: {pin['name']} has no hash"
    versions = pinned(lock)
    for package, several in versions.items():
        if len(several) > 1:
            yield f"{name} pins {package} at {', '.join(sorted(several))}: one is for all Pythons"
    for requirement in requirements:
        pins = versions.get(canonicalize_name(requirement.name))
        if pins is None:
            yield f"{name} lacks {requirement.name}: run `make lock`"
        elif not all(requirement.specifier.contains(version) for version in pins):
            yield f"{name} pins {requirement.name} at {', '.join(pins)}: run `make lock`"


def disagreements(locks: Iterable[Versions]) -> Iterator[str]:
    versions: Versions = {}
    for lock in locks:
        for name, pins in lock.items():
            if versions.setdefault(name, pins) != pins:
                yield f"the lock files disagree about {name}: run `make lock`"


def main() -> int:
    document = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    requirements_by_lock = {
        name: list(required(document["project"], extras)) for name, extras in EXTRAS.items()
    }
    groups = document["dependency-groups"]
    requirements_by_lock |= {
        name: list(map(Requirement, groups[group])) for name, group in GROUPS.items()
    }
    locks = {name: (ROOT / name).read_text(encoding="utf-8") for name in requirements_by_lock}
    findings = [
        violation
        for name, requirements in requirements_by_lock.items()
        for violation in violations(name, locks[name], requirements)
    ]
    findings += disagreements(pinned(lock) for lock in locks.values())
    print("\n".join(findings))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
