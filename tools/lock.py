"""Compile the lock files: hashes, markers for every platform, no address of any index.

Runs before anything is installed: standard library only; uv comes into a throw-away environment.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
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


def compile_locks(uv: Path, options: list[str]) -> None:
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
            [uv, "pip", "compile", *sources, *OPTIONS, *options, "-o", lock],
            cwd=ROOT,
            env={**clean, "UV_NO_CONFIG": "1"},
            stdout=subprocess.DEVNULL,
            check=True,
        )


def main(options: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        python = Path(folder, "bin", "python")
        subprocess.run([python, "-m", "pip", "install", "--quiet", "uv"], check=True)
        compile_locks(Path(folder, "bin", "uv"), options)


if __name__ == "__main__":
    main(sys.argv[1:])
