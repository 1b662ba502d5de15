"""Unpack tar archives, as every Python from 3.11.0 on can.

Must not take archives of strangers: the first releases of 3.11 check no path in them.
"""

from __future__ import annotations

import tarfile
from pathlib import Path


def unpack(archive: tarfile.TarFile, folder: Path) -> None:
    """Write all files of an archive into a folder."""
    # Releases before 3.11.4 have no filters, and take no argument for one.
    archive.extraction_filter = getattr(tarfile, "data_filter", None)
    archive.extractall(folder)  # noqa: S202 - of our own commits and packages
