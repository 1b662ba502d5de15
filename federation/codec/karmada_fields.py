"""Fields of Karmada's and Kubernetes' own types that fedsched accepts and reads over.

A table and nothing else; fields that fedsched keeps are in the messages of ``federation.v1``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from federation.codec.field_tables import FieldTable, field_table

_TABLE: Final = """
ObjectMeta: generateName selfLink deletionTimestamp deletionGracePeriodSeconds finalizers \
ownerReferences=OwnerReference managedFields=ManagedFieldsEntry
OwnerReference: apiVersion kind name uid controller blockOwnerDeletion
ManagedFieldsEntry: manager operation apiVersion time fieldsType fieldsV1 subresource
ClusterSpec: id syncMode apiEndpoint secretRef=LocalSecretReference \
impersonatorSecretRef=LocalSecretReference insecureSkipTLSVerification proxyURL proxyHeader
LocalSecretReference: namespace name
ClusterStatus: remedyActions
ResourceBindingSpec: propagateDeps requiredBy=BindingSnapshot failover=FailoverBehavior \
conflictResolution preserveResourcesOnDeletion workloadAffinityGroups=WorkloadAffinityGroups
ResourceBindingStatus: schedulerObservedGeneration \
aggregatedStatus=AggregatedStatusItem
BindingSnapshot: namespace name clusters=TargetCluster
AggregatedStatusItem: clusterName status applied appliedMessage health
WorkloadAffinityGroups: affinityGroup antiAffinityGroup
SchedulePriority: priorityClassSource priorityClassName
GracefulEvictionTask: gracePeriodSeconds suppressDeletion preservedLabelState
PropagationSpec: association propagateDeps preemption dependentOverrides conflictResolution \
failover=FailoverBehavior activationPreference preserveResourcesOnDeletion \
schedulePriority=SchedulePriority
FailoverBehavior: application=ApplicationFailoverBehavior cluster=ClusterFailoverBehavior
ApplicationFailoverBehavior: decisionConditions=DecisionConditions purgeMode gracePeriodSeconds \
statePreservation=StatePreservation
ClusterFailoverBehavior: purgeMode statePreservation=StatePreservation
DecisionConditions: tolerationSeconds
StatePreservation: rules=StatePreservationRule
StatePreservationRule: aliasLabelName jsonPath
"""


READ_OVER: Final[FieldTable] = field_table(_TABLE)

# Where Karmada uses a narrower type than the message that carries it here.
LACKING: Final[Mapping[str, frozenset[str]]] = {
    "federation.v1.Component.replica_requirements": frozenset({"namespace"}),
}

# The root types: their apiVersion and the kinds they are written as.
ROOTS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "Cluster": ("cluster.karmada.io/v1alpha1", ("Cluster",)),
    "ResourceBinding": (
        "work.karmada.io/v1alpha2",
        ("ResourceBinding", "ClusterResourceBinding"),
    ),
    "PropagationPolicy": (
        "policy.karmada.io/v1alpha1",
        ("PropagationPolicy", "ClusterPropagationPolicy"),
    ),
}
