"""What the demo says: each step, how long it takes, what it shows.

Must not know what a step does.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from time import monotonic

# How often a terminal is told how long a step takes.
TICK_SECONDS = 0.1


@contextmanager
def step(what: str) -> Iterator[None]:
    """Says what is being done, and how long it took."""
    begin = monotonic()
    if not sys.stdout.isatty():
        say(f"… {what}")
        yield
        say(f"✓ {what} ({monotonic() - begin:.1f} s)")
        return
    done = Event()
    teller = Thread(target=tell_time, args=(what, begin, done), daemon=True)
    try:
        teller.start()
        yield
    except BaseException:
        end_telling(teller, done)
        say("")
        raise
    end_telling(teller, done)
    say(f"\r✓ {what} ({monotonic() - begin:.1f} s)")


def tell_time(what: str, begin: float, done: Event) -> None:
    """On a terminal, until it is done: what takes how long."""
    while True:
        say(f"\r… {what} ({monotonic() - begin:.1f} s)", end="")
        if done.wait(TICK_SECONDS):
            return


def end_telling(teller: Thread, done: Event) -> None:
    done.set()
    teller.join()


def say(text: str, end: str = "\n") -> None:
    sys.stdout.write(text + end)
    sys.stdout.flush()
