"""The fields of Kubernetes' own workloads, at the levels that fedsched reads, from 1.25 to 1.37.

What is below those levels is Kubernetes' own affair. Must not read what is in the fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from federation.codec.field_tables import FieldTable, field_table, no_such_field
from federation.codec.violations import Violations

_TABLE: Final = """
Deployment: apiVersion kind metadata=ObjectMeta spec=DeploymentSpec status
ObjectMeta: annotations creationTimestamp deletionGracePeriodSeconds deletionTimestamp finalizers \
generateName generation labels managedFields name namespace ownerReferences resourceVersion \
selfLink uid
DeploymentSpec: minReadySeconds paused progressDeadlineSeconds replicas revisionHistoryLimit \
selector strategy template=PodTemplateSpec
PodTemplateSpec: metadata=ObjectMeta spec=PodSpec
PodSpec: activeDeadlineSeconds affinity=Affinity automountServiceAccountToken \
containers=Container dnsConfig dnsPolicy enableServiceLinks ephemeralContainers \
evictionResponders hostAliases hostIPC hostNetwork hostPID hostUsers hostname hostnameOverride \
imagePullSecrets initContainers=Container nodeName nodeSelector os overhead preemptionPolicy \
priority priorityClassName readinessGates resourceClaims resources=ResourceRequirements \
restartPolicy runtimeClassName schedulerName schedulingGates schedulingGroup securityContext \
serviceAccount serviceAccountName setHostnameAsFQDN shareProcessNamespace subdomain \
terminationGracePeriodSeconds tolerations topologySpreadConstraints volumes workloadRef
Affinity: nodeAffinity=NodeAffinity podAffinity podAntiAffinity
NodeAffinity: preferredDuringSchedulingIgnoredDuringExecution \
requiredDuringSchedulingIgnoredDuringExecution
Container: args command env envFrom image imagePullPolicy lifecycle livenessProbe name ports \
readinessProbe resizePolicy resources=ResourceRequirements restartPolicy restartPolicyRules \
securityContext startupProbe stdin stdinOnce terminationMessagePath terminationMessagePolicy tty \
volumeDevices volumeMounts workingDir
ResourceRequirements: claims limits requests
StatefulSet: apiVersion kind metadata=ObjectMeta spec=StatefulSetSpec status
StatefulSetSpec: minReadySeconds ordinals persistentVolumeClaimRetentionPolicy \
podManagementPolicy replicas revisionHistoryLimit selector serviceName template=PodTemplateSpec \
updateStrategy volumeClaimTemplates
ReplicaSet: apiVersion kind metadata=ObjectMeta spec=ReplicaSetSpec status
ReplicaSetSpec: minReadySeconds replicas selector template=PodTemplateSpec
DaemonSet: apiVersion kind metadata=ObjectMeta spec=DaemonSetSpec status
DaemonSetSpec: minReadySeconds revisionHistoryLimit selector template=PodTemplateSpec \
updateStrategy
ReplicationController: apiVersion kind metadata=ObjectMeta spec=ReplicationControllerSpec status
ReplicationControllerSpec: minReadySeconds replicas selector template=PodTemplateSpec
Pod: apiVersion kind metadata=ObjectMeta spec=PodSpec status
Job: apiVersion kind metadata=ObjectMeta spec=JobSpec status
JobSpec: activeDeadlineSeconds backoffLimit backoffLimitPerIndex completionMode completions \
managedBy manualSelector maxFailedIndexes parallelism podFailurePolicy podReplacementPolicy \
scheduling selector successPolicy suspend template=PodTemplateSpec ttlSecondsAfterFinished
CronJob: apiVersion kind metadata=ObjectMeta spec=CronJobSpec status
CronJobSpec: concurrencyPolicy failedJobsHistoryLimit jobTemplate=JobTemplateSpec schedule \
startingDeadlineSeconds successfulJobsHistoryLimit suspend timeZone
JobTemplateSpec: metadata=ObjectMeta spec=JobSpec
"""

FIELDS: Final[FieldTable] = field_table(_TABLE)

_VERSIONS: Final[Mapping[str, str]] = {
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "ReplicaSet": "apps/v1",
    "DaemonSet": "apps/v1",
    "ReplicationController": "v1",
    "Pod": "v1",
    "Job": "batch/v1",
    "CronJob": "batch/v1",
}


def check_workload_fields(document: Mapping[str, Any], path: str, found: Violations) -> None:
    """Finds fields that a workload of a known kind cannot have; other kinds may have any."""
    kind = document.get("kind")
    if (
        isinstance(kind, str)
        and kind in _VERSIONS
        and _VERSIONS[kind] == document.get("apiVersion")
    ):
        _check(kind, document, path, found)


def _check(type_name: str, value: object, path: str, found: Violations) -> None:
    """What is no object where one belongs is left to whoever reads it."""
    if isinstance(value, list):
        for position, each in enumerate(value):
            _check(type_name, each, f"{path}[{position}]", found)
    elif isinstance(value, Mapping):
        fields = FIELDS[type_name]
        for name, content in value.items():
            here = f"{path}.{name}"
            if name not in fields:
                found.add(here, no_such_field(type_name, name, fields))
            elif fields[name]:
                _check(fields[name], content, here, found)
