"""Where fedctl finds its files, by the environment: a part of ``__main__`` that verbs need too.

Must not look into a file.
"""

from __future__ import annotations

import os
from pathlib import Path


def contexts_file() -> Path:
    """``FEDCTL_CONFIG``, else where the XDG standard has it."""
    if named := os.environ.get("FEDCTL_CONFIG"):
        return Path(named)
    home = os.environ.get("XDG_CONFIG_HOME")
    return (Path(home) if home else Path.home() / ".config") / "fedctl" / "config.yaml"


def state_home() -> Path:
    """Where a control plane of the same user keeps its admin's token."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
