"""Renew proto/released.binpb, what ``make check`` compares the protos with: once a release."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tools.check import RELEASED, ROOT

if __name__ == "__main__":
    buf = Path(sys.executable).with_name("buf")
    subprocess.run([buf, "build", "-o", RELEASED.relative_to(ROOT)], cwd=ROOT, check=True)
