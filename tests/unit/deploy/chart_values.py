"""Values of the chart that tests render: parts, ways to be let in, metrics.

Must not render them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from lab.manifests import JOINING, NO_CONTROL_PLANE

ROOT = Path(__file__).parents[3]
Values = dict[str, Any]
AGENT: Values = {**NO_CONTROL_PLANE, "agent": JOINING}
BRIDGED: Values = {**NO_CONTROL_PLANE, "bridge": {"enabled": True}}
EVERYTHING: Values = {
    "controlPlane": {
        "enabled": True,
        "replicas": 3,
        "settings": {"FEDERATION_LOST_SECONDS": "120"},
        "service": {"type": "LoadBalancer", "annotations": {"team": "fleet"}},
        "podAnnotations": {"team": "fleet"},
        "nodeSelector": {"pool": "infra"},
        "tolerations": [{"key": "infra", "operator": "Exists"}],
    },
    "agent": {**JOINING, "binder": True, "settings": {"ESTIMATOR_LOG_FORMAT": "json"}},
    "bridge": {
        "enabled": True,
        "arguments": ["--failover"],
        "endpoint": "far.example:8443",
        "networkPolicy": {"extraEgress": [{"ports": [{"protocol": "TCP", "port": 8443}]}]},
    },
    "image": {"repository": "registry.example/fedsched", "tag": "9.9.9"},
    "imagePullSecrets": [{"name": "pull"}],
}
PROFILES = yaml.safe_load((ROOT / "examples" / "scheduler-config.yaml").read_text(encoding="utf-8"))
OIDC_RULE = {"from": "oidc", "claim": "groups", "value": "platform-*", "role": "operator"}
POD_RULE = {
    "from": "kubernetes",
    "claim": "username",
    "value": "system:serviceaccount:shop:*",
    "role": "scheduler",
    "namespaces": ["shop"],
}
CI_RULE = {**POD_RULE, "from": "certificate", "claim": "commonName", "value": "ci-*"}
OIDC: Values = {
    "oidc": {
        "issuer": "https://login.example:8443/realms/a",
        "audience": "fedsched",
        "caSecret": "login-ca",
        "jwks": "https://login.example:8443/keys",
        "port": 8443,
    }
}
REVIEW: Values = {"tokenReview": {"enabled": True}}
CERTIFICATES: Values = {"clientCertificates": {"caSecret": "clients"}}
CACHE = {"name": "cache", "mountPath": "/cache"}
BESIDE: Values = {
    "schedulerConfig": PROFILES,
    "traces": {"endpoint": "http://otel-collector.monitoring:4317", "port": 4317},
    "extraArgs": ["--no-failover", "--log-level=debug"],
    "extraEnv": [{"name": "OTEL_EXPORTER_OTLP_HEADERS", "value": "team=fleet"}],
    "extraVolumes": [{"name": "cache", "emptyDir": {}}],
    "extraVolumeMounts": [CACHE],
    "networkPolicy": {"extraEgress": [{"ports": [{"protocol": "TCP", "port": 9999}]}]},
}


def plane(*ways: Values, rules: Any = (), **beside: Any) -> Values:
    access: Values = {"roleRules": list(rules)}
    for way in ways:
        access |= way
    return {"controlPlane": {"access": access, **beside}}


ACCESS = plane(OIDC, REVIEW, CERTIFICATES, rules=[OIDC_RULE, POD_RULE, CI_RULE], **BESIDE)


SCRAPERS = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "observing"}}}]
BASE = "https://wiki.example/fedsched/"
EVERY_PART: Values = {
    "controlPlane": {"enabled": True},
    "agent": AGENT["agent"],
    "bridge": BRIDGED["bridge"],
}
METRICS: Values = {
    "enabled": True,
    "from": SCRAPERS,
    "podMonitors": True,
    "rules": True,
    "labels": {"release": "prometheus"},
    "interval": "15s",
    "runbooks": BASE,
}
