"""What a server of the control plane serves, and how its connections behave.

Must not start one.
"""

from __future__ import annotations

from federation.rpc.decoding import MAX_REQUEST_BYTES
from federation.v1.access_pb2 import DESCRIPTOR as ACCESS
from federation.v1.agents_pb2 import DESCRIPTOR as AGENTS
from federation.v1.clusters_pb2 import DESCRIPTOR as CLUSTERS
from federation.v1.estimates_pb2 import DESCRIPTOR as ESTIMATES
from federation.v1.failover_pb2 import DESCRIPTOR as FAILOVER
from federation.v1.peers_pb2 import DESCRIPTOR as PEERS
from federation.v1.scheduling_pb2 import DESCRIPTOR as SCHEDULING
from federation.v1.scoring_pb2 import DESCRIPTOR as SCORING
from federation.v1.simulation_pb2 import DESCRIPTOR as SIMULATION

SERVICES = tuple(
    service.full_name
    for file in (
        *(CLUSTERS, AGENTS, ESTIMATES, SCHEDULING, FAILOVER, SIMULATION, SCORING, PEERS),
        ACCESS,
    )
    for service in file.services_by_name.values()
)
GRPC_OPTIONS = (
    # Two servers on one port would share its calls by chance: the second is told instead.
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", MAX_REQUEST_BYTES),
    # What nobody reads yet stays with who sends it; probing would let it send megabytes.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.server_handshake_timeout_ms", 10_000),
    # A call that a busy server comes to late ends at its own deadline: gRPC would say after 30 s
    # that its caller cancelled it.
    ("grpc.server_max_unrequested_time_in_server", 3600),
    # An agent whose network vanished is noticed although it sends nothing.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
)
