"""Archives are unpacked on Pythons with and without filters for them."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from tools.dist import unpack


@pytest.mark.parametrize("has_filters", [True, False])
def test_files_are_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_filters: bool
) -> None:
    if not has_filters:
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        file = tarfile.TarInfo("folder/file")
        file.size = 5
        archive.addfile(file, io.BytesIO(b"bytes"))
    packed.seek(0)
    with tarfile.open(fileobj=packed) as archive:
        unpack(archive, tmp_path)
    assert (tmp_path / "folder" / "file").read_bytes() == b"bytes"
