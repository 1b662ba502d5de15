"""A PostgreSQL server of our own, for those who bring none.

- ``binaries``: where PostgreSQL's programs are: one search, in a fixed order
- ``home``: who runs the embedded PostgreSQL, and in which folders
- ``launch``: a program of its own: starts PostgreSQL so that it cannot outlive who asked for it
- ``process``: PostgreSQL's programs as child processes that end with us, and their postmaster.pid
- ``server``: an embedded PostgreSQL for trying out, small installations and tests: one server,
  one folder
"""

from __future__ import annotations
