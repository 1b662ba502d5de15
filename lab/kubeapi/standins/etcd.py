"""Runs in etcd's place until it is ended, and keeps nothing."""

from __future__ import annotations

import signal

if __name__ == "__main__":
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
