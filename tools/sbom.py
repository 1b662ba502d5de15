"""Write the bill of materials of what an installation brings: CycloneDX, from the lock file.

The same lock gives the same bytes. Must not look at what happens to be installed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"
WRITTEN = ROOT / "dist" / "fedsched.cdx.json"


def write(target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [
            *(sys.executable, "-m", "cyclonedx_py", "requirements", str(LOCK)),
            *("--pyproject", str(ROOT / "pyproject.toml"), "--mc-type", "application"),
            *("--spec-version", "1.6", "--output-format", "JSON", "--output-reproducible"),
            *("--output-file", str(target), "--validate"),
        ],
        check=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.sbom", description=__doc__)
    parser.add_argument("file", type=Path, nargs="?", default=WRITTEN)
    file: Path = parser.parse_args().file
    write(file)
    print(file)


if __name__ == "__main__":
    main()
