"""Folders in which fedctl finds its files, by the environment: a part of ``__main__`` for verbs.

Must not look into a file.
"""

from __future__ import annotations

import os
from pathlib import Path

from federation.runtime.state_home import home_directory, state_home


def contexts_file() -> Path:
    """``FEDCTL_CONFIG``, else where the XDG standard has it; without a home, where state is."""
    if named := os.environ.get("FEDCTL_CONFIG"):
        return Path(named)
    if folder := os.environ.get("XDG_CONFIG_HOME"):
        return Path(folder) / "fedctl" / "config.yaml"
    home = home_directory()
    return (state_home(os.environ) if home is None else home / ".config") / "fedctl" / "config.yaml"


def admin_token_file() -> Path:
    """The file in which a control plane of the same user keeps its admin's token."""
    return state_home(os.environ) / "fedsched" / "admin.token"
