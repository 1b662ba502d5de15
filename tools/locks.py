"""The lock files: hashes, markers for every platform, no address of any index.

``check`` compares them with pyproject.toml, and asks no index: it has to say the same everywhere.
``compile`` resolves them anew.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
UV = Path(sys.executable).with_name("uv")
EXTRAS = {
    "requirements.lock": (
        "control-plane",
        "embedded",
        "estimator",
        "cli",
        "bridge",
        "otel",
        "build",
    ),
    "requirements-dev.lock": ("dev",),
    # What each image holds, and nothing that builds.
    "deploy/images/control-plane.lock": ("control-plane", "embedded", "bridge", "cli", "otel"),
    "deploy/images/agent.lock": ("estimator", "otel"),
    "deploy/images/fedctl.lock": ("cli",),
}
# The installer, before there is anything else, and what is installed apart from programs.
GROUPS = {"requirements-uv.lock": "installer", "requirements-schemas.lock": "schemas"}
OPTIONS = (
    "--universal",
    # One version of everything for all Pythons: what is tested on one is what runs on the others.
    "--fork-strategy=fewest",
    "--python-version=3.11",
    "--generate-hashes",
    "--no-emit-index-url",
    "--no-emit-find-links",
    "--no-header",
    "--no-annotate",
    "--quiet",
)
# A local index or a cache must not leak into what everybody installs; the way out may be needed.
KEPT_VARIABLES = (
    "PATH",
    "HOME",
    "HTTPS_PROXY",
    "https_proxy",
    "NO_PROXY",
    "no_proxy",
    "SSL_CERT_FILE",
)


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


def compile_locks(options: Iterable[str]) -> int:
    clean = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    # One version of everything in all locks: `make check` compares them.
    beside = "--constraint=requirements-dev.lock"
    sources_by_lock = {
        lock: [
            "pyproject.toml",
            *(f"--extra={extra}" for extra in extras),
            *([beside] if lock.startswith("deploy/") else []),
        ]
        for lock, extras in EXTRAS.items()
    }
    sources_by_lock |= {lock: [f"--group={group}", beside] for lock, group in GROUPS.items()}
    for lock, sources in sources_by_lock.items():
        print(f"fedsched: resolving {lock}", flush=True)
        subprocess.run(
            [UV, "pip", "compile", *sources, *OPTIONS, *options, "-o", lock],
            cwd=ROOT,
            env={**clean, "UV_NO_CONFIG": "1"},
            stdout=subprocess.DEVNULL,
            check=True,
        )
    return 0


def check() -> int:
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


def main(verb: str, *options: str) -> int:
    return check() if verb == "check" else compile_locks(options)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
