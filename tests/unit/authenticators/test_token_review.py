"""Tokens of service accounts, reviewed by an API server on a real port."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from federation import doctor
from federation.authenticators import token_review
from federation.runtime.findings import Severity
from lab.control_planes import RunningControlPlane, refused, report, running_control_plane
from lab.issuers import AUDIENCE, Issuer, running_issuer
from lab.kubeapi.access import Rule, User
from lab.kubeapi.server import KubeApiServer
from lab.kubeapi.state import Cluster
from tests.api.calls import in_namespace, scheduled
from tests.unit.authenticators.test_oidc import audited, cordoned, listed

DENIED, UNAUTHENTICATED = grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
CI, OPS, NOBODY = "e.ci.s", "e.ops.s", "e.nobody.s"
RULES = """
apiVersion: fedsched.io/v1
kind: RoleRules
rules:
- {from: kubernetes, claim: groups, value: platform, role: operator}
- from: kubernetes
  claim: username
  value: system:serviceaccount:shop:*
  role: scheduler
  namespaces: [shop]
- {from: oidc, claim: sub, value: ann, role: viewer}
"""
MAY_REVIEW = Rule(
    groups=frozenset({"authentication.k8s.io"}),
    resources=frozenset({"tokenreviews"}),
    verbs=frozenset({"create"}),
)


def account(name: str, *groups: str, audience: str = AUDIENCE) -> dict[str, Any]:
    user = {"username": name, "uid": "1", "groups": ["system:authenticated", *groups]}
    return {"user": user, "audiences": [audience]}


@pytest.fixture
def server() -> Iterator[KubeApiServer]:
    with KubeApiServer(Cluster()) as running:
        running.tokens["reviewer"] = User(name="reviewer", rules=(MAY_REVIEW,))
        running.reviews.update(
            {
                CI: account("system:serviceaccount:shop:ci"),
                OPS: account("ops", "platform"),
                NOBODY: account("nobody"),
                "e.other.s": account("system:serviceaccount:shop:ci", audience="other"),
            }
        )
        yield running


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with running_issuer() as running:
        yield running


@pytest.fixture
async def plane(
    database_url: str, tmp_path: Path, server: KubeApiServer, issuer: Issuer
) -> AsyncIterator[RunningControlPlane]:
    (tmp_path / "rules.yaml").write_text(RULES)
    (tmp_path / "reviewer").write_text("reviewer\n")
    flags = {
        "token_review": server.url,
        "token_review_audience": AUDIENCE,
        "token_review_token": str(tmp_path / "reviewer"),
        "role_rules": str(tmp_path / "rules.yaml"),
        "oidc_issuer": issuer.url,
        "oidc_audience": AUDIENCE,
    }
    async with (
        running_control_plane(database_url, tmp_path, **flags) as running,
        running.connected("eu-1", report=report()),
    ):
        yield running


def test_the_doctor_tries_who_vouches(
    server: KubeApiServer, issuer: Issuer, tmp_path: Path
) -> None:
    token = tmp_path / "reviewer"
    token.write_text("reviewer")
    settings: Any = SimpleNamespace(
        oidc_issuer=issuer.url,
        oidc_jwks="",
        oidc_ca=None,
        token_review=server.url,
        token_review_audience=AUDIENCE,
        token_review_token=token,
        token_review_ca=None,
    )
    assert [each.severity for each in doctor.voucher_findings(settings)] == [Severity.OK] * 2
    issuer.status = 500
    server.tokens["reviewer"] = User(name="reviewer", rules=())
    findings = list(doctor.voucher_findings(settings))
    assert [each.severity for each in findings] == [Severity.BAD] * 2
    assert "answers 500" in findings[0].says
    assert "answers 403" in findings[1].says


async def test_a_service_account_has_the_role_of_the_first_rule_that_fits(
    plane: RunningControlPlane, server: KubeApiServer
) -> None:
    caller = plane.caller(CI)
    await scheduled(caller, in_namespace("shop"))
    outside = await refused(scheduled(caller, in_namespace("bank")))
    assert "may schedule in shop, not in 'bank'" in outside.message
    assert (await refused(cordoned(plane, CI))).code is DENIED
    await cordoned(plane, OPS)
    assert len(server.requests) == 2
    actors = {record.actor.partition(" (kubernetes-")[0] for record in await audited(plane)}
    assert {"subject system:serviceaccount:shop:ci", "subject ops"} <= actors


async def test_what_the_api_server_does_not_vouch_for_is_refused(
    plane: RunningControlPlane,
    server: KubeApiServer,
    issuer: Issuer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for token, said in {
        "e.unknown.s": "none that the API server knows",
        "e.other.s": "none that the API server knows",
        "e." + "x" * 12_300 + ".s": "more than",
    }.items():
        refusal = await refused(listed(plane, token))
        assert (refusal.code, said in refusal.message) == (UNAUTHENTICATED, True), token[:20]
    refusal = await refused(listed(plane, NOBODY))
    assert (refusal.code, refusal.message) == (DENIED, "no rule gives the subject nobody a role")
    # An API server of before audiences answers without.
    server.reviews["e.old.s"] = account("ops", "platform")
    reviewed = token_review.object_of

    def without_audiences(content: bytes, source: str) -> Any:
        document: Any = reviewed(content, source)
        document["status"].pop("audiences", None)
        return document

    with monkeypatch.context() as patch:
        patch.setattr(token_review, "object_of", without_audiences)
        refusal = await refused(listed(plane, "e.old.s"))
    assert (refusal.code, refusal.message) == (
        UNAUTHENTICATED,
        "The token is for another audience.",
    )
    # A JWT of the issuer goes to the issuer's keys.
    asked = len(server.requests)
    await listed(plane, issuer.token())
    assert len(server.requests) == asked

    await listed(plane, OPS)
    (tmp_path / "reviewer").write_text("admins-no-more")
    assert "answers 401" in (await refused(listed(plane, CI))).message
    server.stop()
    await listed(plane, OPS)
    assert (await refused(listed(plane, CI))).code is UNAVAILABLE
    monkeypatch.setattr(token_review, "BELIEVED_SECONDS", -1.0)
    server.start()
    (tmp_path / "reviewer").write_text("reviewer")
    await listed(plane, CI)
    server.stop()
    assert (await refused(listed(plane, CI))).code is UNAVAILABLE
