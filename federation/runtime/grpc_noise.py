"""Keeps gRPC's core from writing lines of its own to standard error: we say what went wrong.

Must be imported before grpc, by programs alone: in other people's programs it is theirs to say.
"""

from __future__ import annotations

import os

os.environ.setdefault("GRPC_VERBOSITY", "NONE")
