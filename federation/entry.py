"""Where the installed programs begin: one that lacks its packages says which extra brings them.

Must not import the product but in the function that starts a program.
"""

from __future__ import annotations

import signal
import sys
from importlib import import_module

USAGE = 2
INTERRUPTED = 128 + signal.SIGINT
OURS = ("federation", "estimator")
# What only one verb of a program needs.
BRIDGE = ("kubernetes", "urllib3")


def federation() -> None:
    _start("federation", "federation.__main__", "control-plane")


def estimator() -> None:
    _start("estimator", "estimator.__main__", "estimator")


def fedctl() -> None:
    _start("fedctl", "federation.cli.__main__", "cli")


def _start(program: str, module: str, extra: str) -> None:
    try:
        # Some packages are imported when a verb first needs them.
        import_module(module).main()
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in OURS:
            raise
        needed = "bridge" if error.name in BRIDGE and program == "federation" else extra
        sys.exit(_told(program, error.name, needed))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _told(program: str, missing: str, extra: str) -> int:
    sys.stderr.write(
        f"error: {program} needs the extra {extra} ({missing} is not installed): "
        f"pip install 'fedsched[{extra}]'\n"
    )
    return USAGE
