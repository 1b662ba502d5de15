"""The bill of materials names everything in the lock file, with its hashes, and nothing else."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from lab.servers import ROOT

LOCK = ROOT / "requirements.lock"

PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)


def write(file: Path) -> None:
    # Without a look at what is installed.
    command = ["make", "-s", "-o", "install", "sbom", f"SBOM={file}", f"VENV={sys.prefix}"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)


def test_everything_that_is_locked_is_named_with_its_hashes(tmp_path: Path) -> None:
    first, second = tmp_path / "first.json", tmp_path / "deeper" / "second.json"
    write(first)
    write(second)
    assert first.read_bytes() == second.read_bytes()
    bill = json.loads(first.read_text(encoding="utf-8"))
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["component"]["name"] == "fedsched"
    named = {(each["name"].lower(), each["version"]) for each in bill["components"]}
    locked = PINNED.findall(LOCK.read_text(encoding="utf-8"))
    assert named == {(name.lower(), version) for name, version in locked}
    for each in bill["components"]:
        assert each["purl"].startswith("pkg:pypi/")
        assert any(reference.get("hashes") for reference in each["externalReferences"])
