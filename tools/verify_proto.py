"""Whether the committed stubs are what the protos give. Must not change them."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tools.protos import ROOT, generate, stubs


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        fresh = stubs(Path(folder))
    committed = stubs(ROOT)
    differing = sorted(name for name in fresh | committed if fresh.get(name) != committed.get(name))
    for name in differing:
        print(f"{name} is not what the protos give: run `make proto`")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
