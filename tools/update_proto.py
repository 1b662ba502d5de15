"""Generate the stubs anew. Must not leave stubs of protos that are gone."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tools.protos import PACKAGES, ROOT, generate, stubs


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        fresh = stubs(Path(folder))
    for name in stubs(ROOT).keys() - fresh.keys():
        (ROOT / name).unlink()
    for name, content in fresh.items():
        (ROOT / name).write_text(content, encoding="utf-8")
    print(f"{len(fresh)} files in {', '.join(map(str, PACKAGES))}")


if __name__ == "__main__":
    main()
