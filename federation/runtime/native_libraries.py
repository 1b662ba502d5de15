"""What libraries below Python are told: gRPC's core writes nothing to standard error, as we say
what went wrong; OpenBLAS computes in the thread that asks it.

Must be imported before grpc and numpy, by programs alone: in those of others it is theirs to say.
"""

from __future__ import annotations

import os

os.environ.setdefault("GRPC_VERBOSITY", "NONE")
# Its threads spin for a while after each product, however small: on two cores that costs more than
# all that is computed.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
