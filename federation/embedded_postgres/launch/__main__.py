"""Run a command as another user, and end it when the process that asked for it ends.

Standard library only: it is run as ``python -I -S <this folder> MODE PARENT UID GID COMMAND...``,
``-`` for UID and GID to stay who we are. MODE ``exec`` becomes the command and lets the Linux
kernel watch the parent. MODE ``watch`` keeps the command as a child, and its own standard input is
a pipe that the parent holds open: it reads end-of-file when the parent is gone.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
from types import FrameType
from typing import NoReturn

PR_SET_PDEATHSIG = 1
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)


def drop_user(uid: str, gid: str) -> None:
    if uid == "-":
        return
    os.setgroups([int(gid)])
    os.setgid(int(gid))
    os.setuid(int(uid))


def become(command: list[str], parent: int) -> NoReturn:
    # The kernel forgets this request when a process changes its user: drop first, ask then.
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGQUIT, 0, 0, 0) != 0:
        sys.exit(f"cannot ask to end with the parent: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:
        sys.exit("the parent ended before the command started")
    try:
        os.execv(command[0], command)  # noqa: S606 - there is no shell, and that is what we want
    except OSError as error:
        sys.exit(f"cannot run {command[0]}: {error.strerror}")


def watch(command: list[str]) -> int:
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)

    def forward(number: int, _frame: FrameType | None) -> None:
        child.send_signal(number)

    for number in FORWARDED:
        signal.signal(number, forward)
    waker, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    watched = [waker, sys.stdin.fileno()]
    while child.poll() is None:
        readable, _, _ = select.select(watched, [], [])
        if waker in readable:
            os.read(waker, 512)
        if sys.stdin.fileno() in readable:
            watched.remove(sys.stdin.fileno())
            child.send_signal(signal.SIGQUIT)
    return child.returncode


def main(mode: str, parent: str, uid: str, gid: str, *command: str) -> int:
    drop_user(uid, gid)
    if mode == "exec":
        become([*command], int(parent))
    return watch([*command])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
