"""JWTs over the wire: who is let in as what, and every forgery refused and audited."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from federation.authenticators import keys
from federation.authenticators.oidc import LEEWAY_SECONDS, MOST_CHARACTERS
from federation.v1 import access_pb2
from lab.control_planes import (
    RunningControlPlane,
    refused,
    report,
    running_control_plane,
)
from lab.issuers import AUDIENCE, Issuer, forged, public_pem, running_issuer
from lab.patience import until
from tests.api.calls import in_namespace, scheduled

DENIED, UNAUTHENTICATED = grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED
RULES = """
apiVersion: fedsched.io/v1
kind: RoleRules
rules:
- {from: oidc, claim: realm_access.roles, value: platform-*, role: operator}
- {from: oidc, claim: groups, value: builders, role: scheduler, namespacesClaim: teams}
- {from: oidc, claim: sub, value: "*", role: viewer, namespaces: [shop-*]}
"""


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with running_issuer() as running:
        yield running


@pytest.fixture
async def plane(
    database_url: str, tmp_path: Path, issuer: Issuer
) -> AsyncIterator[RunningControlPlane]:
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES)
    flags = {"oidc_issuer": issuer.url, "oidc_audience": AUDIENCE, "role_rules": str(rules)}
    async with (
        running_control_plane(database_url, tmp_path, **flags) as running,
        running.connected("eu-1", report=report()),
    ):
        yield running


async def listed(plane: RunningControlPlane, token: str) -> Any:
    caller = plane.caller(token)
    return await caller.ask("ListClusters")


async def cordoned(plane: RunningControlPlane, token: str) -> Any:
    caller = plane.caller(token)
    return await caller.ask("CordonCluster", name="eu-1", cordoned=True)


async def audited(plane: RunningControlPlane) -> list[access_pb2.AuditRecord]:
    answer = await plane.admin.ask("ListAudit")
    return list(answer.records)


async def test_a_claim_gives_a_role_and_namespaces(
    plane: RunningControlPlane, issuer: Issuer
) -> None:
    viewer = issuer.token()
    assert len((await listed(plane, viewer)).clusters) == 1
    refusal = await refused(cordoned(plane, viewer))
    assert (refusal.code, "has the role viewer" in refusal.message) == (DENIED, True)

    operator = issuer.token(sub="olga", realm_access={"roles": ["x", "platform-eu"]})
    await cordoned(plane, operator)
    # What was refused may be written down after what was not.
    record = next(
        each
        for each in await audited(plane)
        if (each.method, each.result) == ("Clusters/CordonCluster", "OK")
    )
    assert record.actor == f"subject olga ({record.credential_id})"
    assert record.credential_id.startswith("oidc-")
    await plane.admin.ask("CordonCluster", name="eu-1")

    builder = plane.caller(issuer.token(sub="bob", groups=["builders"], teams=["shop-a", "*"]))
    await scheduled(builder, in_namespace("shop-a"))
    outside = await refused(scheduled(builder, in_namespace("bank")))
    assert (outside.code, "may schedule in shop-a, not in" in outside.message) == (DENIED, True)
    # Without a namespace of its own the rule is not for it, and the next one is.
    bare = plane.caller(issuer.token(sub="bob", groups=["builders"], teams=["*"]))
    assert (await refused(scheduled(bare, in_namespace("shop-b")))).code is DENIED


def confused(issuer: Issuer) -> str:
    """HS256, with the public key as its secret."""
    key = issuer.keys["rsa"] = rsa.generate_private_key(65537, 2048)
    claims = {"iss": issuer.url, "aud": AUDIENCE, "sub": "eve", "exp": time.time() + 600}
    return forged({"alg": "HS256", "typ": "JWT", "kid": "rsa"}, claims, public_pem(key))


def unsigned(issuer: Issuer) -> str:
    claims = {"iss": issuer.url, "aud": AUDIENCE, "sub": "eve", "exp": time.time() + 600}
    return forged({"alg": "none", "kid": "first"}, claims)


def nested(issuer: Issuer) -> str:
    header, _, signature = issuer.token().split(".")
    return f"{header}.{'W1tb' * 2000}.{signature}"


def altered(issuer: Issuer) -> str:
    header, _, signature = issuer.token().split(".")
    payload = issuer.token(sub="root", realm_access={"roles": ["platform-eu"]}).split(".")[1]
    return f"{header}.{payload}.{signature}"


def of_another_key(issuer: Issuer) -> str:
    return issuer.token(key=ec.generate_private_key(ec.SECP256R1()), key_id="first")


def with_its_own_key(issuer: Issuer) -> str:
    """The header brings a key, and says where others are."""
    key = ec.generate_private_key(ec.SECP256R1())
    header = {"jku": "http://127.0.0.1:1/keys", "jwk": {"kty": "oct", "k": "AAAA"}}
    return issuer.token(key=key, key_id="first", header=header)


FORGERIES: dict[str, tuple[Callable[[Issuer], str], str]] = {
    "another key": (of_another_key, "its signature is not that of the issuer"),
    "its own key": (with_its_own_key, "its signature is not that of the issuer"),
    "altered": (altered, "its signature is not that of the issuer"),
    "none": (unsigned, "its algorithm is none that is allowed"),
    "key confusion": (confused, "its algorithm is none that is allowed"),
    "expired": (
        lambda issuer: issuer.token(exp=int(time.time() - LEEWAY_SECONDS - 1)),
        "it has expired",
    ),
    "not yet": (
        lambda issuer: issuer.token(nbf=int(time.time() + LEEWAY_SECONDS + 60)),
        "it is not valid yet",
    ),
    "for ever": (lambda issuer: issuer.token(exp=None), "it lacks one of the claims"),
    "another audience": (lambda issuer: issuer.token(aud="other"), "it is for another audience"),
    "another issuer": (lambda issuer: issuer.token(iss="http://x"), "it is of another issuer"),
    "nobody": (lambda issuer: issuer.token(sub=""), "The name of the subject"),
    "escape codes": (lambda issuer: issuer.token(sub="a\x1b[2J"), "The name of the subject"),
    "path as kid": (
        lambda issuer: issuer.token(header={"kid": "../../../../dev/null"}),
        "the issuer has no key of its kid",
    ),
    "SQL as kid": (
        lambda issuer: issuer.token(header={"kid": "x' OR '1'='1"}),
        "the issuer has no key of its kid",
    ),
    "list as kid": (
        lambda _: forged({"alg": "ES256", "kid": ["first"]}, {}, b"x"),
        "it cannot be read",
    ),
    "of another curve": (
        lambda _: forged({"alg": "ES384", "kid": "first"}, {}, b"x"),
        "its algorithm is not that of its key",
    ),
    "critical": (
        lambda issuer: issuer.token(header={"crit": ["exp"]}),
        "it cannot be read",
    ),
    "nested": (nested, "its signature is not that of the issuer"),
    "no JSON": (lambda _: "a.b.c", "it cannot be read"),
    "long": (lambda issuer: f"{issuer.token()}{'A' * MOST_CHARACTERS}", "it has more than"),
}


async def test_what_the_issuer_did_not_make_is_refused_and_audited(
    plane: RunningControlPlane, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "PAUSE_SECONDS", 0.0)
    for name, (forge, reason) in FORGERIES.items():
        token = forge(issuer)
        refusal = await refused(listed(plane, token))
        assert (refusal.code, refusal.reason) == (UNAUTHENTICATED, "UNAUTHENTICATED"), name
        assert reason in refusal.message, name
    # gRPC does not read headers of such a size.
    assert (await refused(listed(plane, "a.b." + "c" * (1 << 20)))).code is not grpc.StatusCode.OK
    assert len((await listed(plane, issuer.token())).clusters) == 1

    await plane.plane.parts.trail.write()
    records = await audited(plane)
    said = [record.reason for record in records if record.method == "Clusters/ListClusters"]
    for name, (_, reason) in FORGERIES.items():
        assert any(reason in each for each in said), name
    assert {record.actor for record in records if not record.objects} == {"somebody unknown"}


async def test_what_no_rule_is_for_has_no_role(
    database_url: str, tmp_path: Path, issuer: Issuer
) -> None:
    """With the keys in a file, and nobody to be asked."""
    (tmp_path / "rules.yaml").write_text(RULES.replace('value: "*"', "value: carl"))
    (tmp_path / "keys.json").write_text(str(issuer.jwks()).replace("'", '"'))
    flags = {"role_rules": str(tmp_path / "rules.yaml"), "oidc_jwks": str(tmp_path / "keys.json")}
    async with running_control_plane(
        database_url, tmp_path, oidc_issuer="https://issuer.example", oidc_audience="us", **flags
    ) as plane:
        of = {"iss": "https://issuer.example", "aud": ["other", "us"]}
        refusal = await refused(listed(plane, issuer.token(**of)))
        assert (refusal.code, refusal.message) == (DENIED, "no rule gives the subject ann a role")
        await listed(plane, issuer.token(sub="carl", **of))
    assert not issuer.asked


async def test_a_new_key_is_found_and_an_old_one_forgotten(
    plane: RunningControlPlane, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = issuer.token()
    await listed(plane, first)
    issuer.rotate("second")
    second = issuer.token("second")
    # The issuer is not asked again so soon, whoever brings an unknown key.
    assert "no key of its kid" in (await refused(listed(plane, second))).message
    assert len(issuer.asked) == 2
    monkeypatch.setattr(keys, "PAUSE_SECONDS", 0.0)
    await asyncio.gather(*(listed(plane, second) for _ in range(50)))
    assert len(issuer.asked) == 4
    assert (await refused(listed(plane, first))).code is UNAUTHENTICATED


async def test_the_last_good_keys_serve_for_a_while(
    plane: RunningControlPlane, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await listed(plane, issuer.token(sub="one"))
    issuer.status = 503
    with monkeypatch.context() as patch:
        # The issuer is asked behind the answer.
        patch.setattr(keys, "RENEW_SECONDS", -1.0)
        await listed(plane, issuer.token(sub="two"))
        patch.setattr(keys, "KEEP_SECONDS", -1.0)

        async def why() -> str:
            refusal = await refused(listed(plane, issuer.token(sub="three")))
            assert refusal.code is grpc.StatusCode.UNAVAILABLE
            return refusal.message

        # The first are told that the keys are being fetched.
        await until(why, re.compile("are not known: http://.* answers 503").search)
    issuer.status = 200
    monkeypatch.setattr(keys, "PAUSE_SECONDS", 0.0)
    await listed(plane, issuer.token(sub="four"))


async def test_an_issuer_that_says_that_it_is_another_one_is_not_believed(
    plane: RunningControlPlane, issuer: Issuer
) -> None:
    issuer.says_issuer = "https://issuer.example"
    assert "is not that of" in (await refused(listed(plane, issuer.token()))).message
