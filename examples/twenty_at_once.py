"""Twenty one-core workloads, submitted at once, for clusters that have room for fewer.

    python examples/twenty_at_once.py CLUSTER...

Asks the control plane that FEDCTL_ENDPOINT, FEDCTL_CA and FEDCTL_TOKEN_FILE name; where they are
not set, as fedctl does.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from pathlib import Path

from federation.client import Client, Target
from federation.v1 import resource_pb2 as messages
from federation.v1.scheduling_pb2 import Outcome, ScheduleResponse

WORKLOADS = 20
TOKEN_FILE = Path.home() / ".local/state/fedsched/admin.token"


def workload(number: int, clusters: list[str]) -> messages.ResourceBinding:
    """One replica of one core, in whichever of the clusters has most room."""
    name = f"job-{number:02}"
    return messages.ResourceBinding(
        metadata=messages.ObjectMeta(namespace="race", name=name),
        spec=messages.ResourceBindingSpec(
            resource=messages.ObjectReference(api_version="batch/v1", kind="Job", name=name),
            replicas=1,
            replica_requirements=messages.ReplicaRequirements(resource_request={"cpu": "1"}),
            placement=messages.Placement(
                cluster_affinity=messages.ClusterAffinity(cluster_names=clusters),
                replica_scheduling=messages.ReplicaSchedulingStrategy(
                    replica_scheduling_type="Divided", replica_division_preference="Aggregated"
                ),
            ),
        ),
    )


async def submit_all(target: Target, clusters: list[str]) -> list[ScheduleResponse]:
    async with Client(target) as client:
        return await asyncio.gather(
            *(client.schedule(workload(number, clusters)) for number in range(WORKLOADS))
        )


def main() -> None:
    if not sys.argv[1:]:
        sys.exit(__doc__)
    ca = os.environ.get("FEDCTL_CA")
    token_file = os.environ.get("FEDCTL_TOKEN_FILE", TOKEN_FILE)
    target = Target(
        endpoint=os.environ.get("FEDCTL_ENDPOINT", "127.0.0.1:7443"),
        token=Path(token_file).read_text(encoding="ascii").strip(),
        ca_pem=Path(ca).read_bytes() if ca else None,
    )
    answers = asyncio.run(submit_all(target, sys.argv[1:]))
    count: Counter[tuple[str, str]] = Counter()
    for answer in answers:
        decision = answer.decision
        where = ", ".join(f"{each.name}" for each in decision.clusters)
        count[
            Outcome.Name(decision.outcome).removeprefix("OUTCOME_"), where or decision.reason
        ] += 1
    for (outcome, why), number in sorted(count.items()):
        print(f"{number:3}  {outcome:14} {why}")


if __name__ == "__main__":
    main()
