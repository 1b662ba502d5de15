"""The folder in which the programs keep their state, for a user with a home directory or without.

Must not make a folder, nor look into one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

# For users without a home, such as those of containers that have no entry in /etc/passwd.
WITHOUT_HOME: Final = Path("/var/lib")


def home_directory() -> Path | None:
    """Return the user's home, None where neither HOME nor the user's entry names one."""
    try:
        return Path.home()
    except RuntimeError:
        return None


def state_home(environment: Mapping[str, str]) -> Path:
    """Return the XDG base directory for state; the standard ignores a relative one."""
    named = Path(environment.get("XDG_STATE_HOME", ""))
    if named.is_absolute():
        return named
    home = home_directory()
    return WITHOUT_HOME if home is None else home / ".local" / "state"
