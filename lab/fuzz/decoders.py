"""What reads bytes that others made, or tells who somebody is, each with inputs that are right.

Must not judge what comes of them.
"""

from __future__ import annotations

import asyncio
import atexit
import gc
import io
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

from cryptography.hazmat.primitives.asymmetric import ed25519
from jwt.algorithms import OKPAlgorithm

from estimator.kube.decoding import Expired, Garbled, LineBuffer, ObjectDecoder, Watched
from estimator.kube.dump import DumpError, read_dump
from estimator.kube.objects import RawNode, RawPod
from estimator.kube.quotas import RawQuota, quota_from_raw
from estimator.kube.translate import node_from_raw, pod_from_raw
from estimator.scoring_config.reader import read_scoring_configuration
from estimator.servers.extender import Extender
from federation.authenticators import token_review
from federation.authenticators.keys import SigningKeys
from federation.authenticators.oidc import OidcAuthenticator
from federation.authenticators.token_review import TokenReviewAuthenticator, reviewer
from federation.cli.__main__ import fedctl
from federation.codec.documents import read_documents
from federation.codec.role_rules import role_rules_from_document
from federation.history.replays import MALFORMED
from federation.model.errors import FederationError, InvalidRequest
from federation.model.quantity import parse_quantity
from federation.parts import SystemClock
from federation.plugins import read_profiles
from federation.services.packed_traces import (
    packed_preview,
    packed_traces,
    unpacked_preview,
    unpacked_trace,
)
from federation.store.journal import change_of, packed_change
from federation.store.reports import ReportReader, packed_report
from federation.store.reservations import packed_reservations, reservations_of
from lab.extenders import RecordingBinding, extender_of, two_nodes
from lab.fuzz.fuzzing import FuzzTarget
from lab.issuers import AUDIENCE, Issuer, forged, jwk_of
from lab.stored_values import ADVANCED, BINDING, DECIDED, DELETED, HELD, REPORT, VERDICT
from lab.traces import corpus, write_trace

URL = "http://issuer"
RULES = role_rules_from_document(
    {
        "apiVersion": "fedsched.io/v1",
        "kind": "RoleRules",
        "rules": [
            {"from": "oidc", "claim": "sub", "value": "*", "role": "viewer"},
            {"from": "kubernetes", "claim": "groups", "value": "*", "role": "viewer"},
        ],
    }
)


def who_is_it(folder: Path) -> Iterator[FuzzTarget]:
    issuer = Issuer(url=URL)
    issuer.rotate("first")
    yield _jwt(issuer)
    yield _jwks(issuer)
    yield _token_review(folder)


def _jwt(issuer: Issuer) -> FuzzTarget:
    keys = SigningKeys(lambda: json.dumps(issuer.jwks()).encode())

    def take(content: bytes) -> object:
        return asyncio.run(_oidc(keys).identify(content.decode(errors="replace")))

    strange = forged({"alg": "ES256", "kid": ["first"]}, {"exp": "1e999"})
    seeds = [issuer.token(), issuer.token(exp=1), strange, forged({"alg": "none"}, [])]
    return FuzzTarget(
        name="JWT", take=take, seeds=[each.encode() for each in seeds], refusals=(FederationError,)
    )


def _jwks(issuer: Issuer) -> FuzzTarget:
    """Keys as they are read, and then used."""
    bearer = issuer.token()
    rsa_issuer = Issuer(url=URL)
    rsa_issuer.rotate("second", is_rsa=True)
    edwards = OKPAlgorithm.to_jwk(ed25519.Ed25519PrivateKey.generate().public_key(), as_dict=True)
    listed = [
        jwk_of("first", issuer.keys["first"]),
        jwk_of("second", rsa_issuer.keys["second"]),
        {**edwards, "kid": "third", "alg": "EdDSA"},
        {"kty": "oct", "k": "AA", "kid": "fourth"},
    ]

    def take(content: bytes) -> object:
        return asyncio.run(_oidc(SigningKeys(lambda: content)).identify(bearer))

    seeds = ({"keys": listed}, {"keys": listed[:1]})
    return FuzzTarget(
        name="JWKS",
        take=take,
        seeds=[json.dumps(each).encode() for each in seeds],
        refusals=(FederationError,),
    )


def _oidc(keys: SigningKeys) -> OidcAuthenticator:
    return OidcAuthenticator(
        issuer=URL, audience=AUDIENCE, rules=RULES, keys=keys, clock=SystemClock()
    )


def _token_review(folder: Path) -> FuzzTarget:
    token = folder / "token"
    token.write_text("ours")
    user = {"username": "system:serviceaccount:a:b", "uid": "u", "groups": ["system:authenticated"]}
    status = {"authenticated": True, "user": user, "audiences": [AUDIENCE]}
    refused = {"authenticated": False, "error": "token is expired"}

    return FuzzTarget(
        name="TokenReview",
        take=_reviewed(reviewer(URL, AUDIENCE, token, None)),
        seeds=[
            json.dumps({"kind": "TokenReview", "spec": {}, "status": each}).encode()
            for each in (status, refused)
        ],
        refusals=(FederationError,),
    )


def _reviewed(review: Callable[[str], object]) -> Callable[[bytes], object]:
    def take(content: bytes) -> object:
        authenticator = TokenReviewAuthenticator(
            review, audience=AUDIENCE, rules=RULES, clock=SystemClock()
        )
        with patch.object(token_review, "fetched", lambda *_, **__: content):
            return asyncio.run(authenticator.identify("a.b.c"))

    return take


ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
QUANTITIES = (b"1", b"500m", b"1.5Gi", b"1e3", b"100n", b"-2Ki", b".5", b"12E", b"+1e-3", b"0x1")
BODY_REFUSALS = MALFORMED
# As standard output and error are; click remembers all that it wrote to, so these are kept.
_SAID = [io.TextIOWrapper(io.BytesIO(), "utf-8", each) for each in ("strict", "backslashreplace")]
QUOTA = {
    "kind": "ResourceQuota",
    "metadata": {"name": "q", "namespace": "d", "uid": "u", "resourceVersion": "3"},
    "spec": {
        "hard": {"requests.cpu": "10", "memory": "1Gi", "count/pods": "5"},
        "scopes": ["NotTerminating"],
        "scopeSelector": {
            "matchExpressions": [
                {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}
            ]
        },
    },
    "status": {"hard": {"requests.cpu": "10"}, "used": {"requests.cpu": "500m"}},
}
POD = b'{"metadata":{"name":"p","namespace":"d","uid":"u"},"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"500m","memory":"1Gi"}}}],"tolerations":[{"key":"a","operator":"Exists"}],"nodeSelector":{"zone":"a"}}}'  # noqa: E501 - one line, as it is sent


def decoders() -> Sequence[FuzzTarget]:
    """All of them; files that they need are made in a folder that goes with this process."""
    folder = Path(tempfile.mkdtemp(prefix="fedsched-fuzz-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return (
        FuzzTarget(
            name="quantity",
            take=lambda content: parse_quantity(content.decode(errors="surrogateescape")),
            seeds=QUANTITIES,
            refusals=(ValueError,),
        ),
        FuzzTarget(
            name="yaml",
            take=lambda content: read_documents(content.decode(errors="replace"), source="it"),
            seeds=_examples("*.yaml"),
            refusals=(InvalidRequest,),
        ),
        FuzzTarget(name="simulate", take=_simulate(folder), seeds=_examples("*.yaml")),
        FuzzTarget(
            name="cluster dump",
            take=read_dump,
            seeds=(_small_dump(),),
            refusals=(DumpError,),
        ),
        *_kubernetes(),
        *_extender(),
        *who_is_it(folder),
        *_configurations(folder),
        *_bodies(),
        _trace_file(folder),
    )


def _examples(pattern: str) -> Sequence[bytes]:
    return [path.read_bytes() for path in sorted(EXAMPLES.glob(pattern))]


def _simulate(folder: Path) -> Callable[[bytes], object]:
    """Whole: files are read, bindings are made of workloads and policies, and decided."""
    path = folder / "given.yaml"

    def take(content: bytes) -> object:
        path.write_bytes(content)
        given = ["simulate", "-f", str(EXAMPLES / "fleet.yaml"), "-f", str(path)]
        return _exit_code_of_fedctl(given)

    return take


def _exit_code_of_fedctl(arguments: Sequence[str]) -> object:
    """Thousands in one process, which must not grow by what a fedctl keeps until it ends."""
    out, err = _SAID
    for said in _SAID:
        said.seek(0)
        said.truncate()
    try:
        with redirect_stdout(out), redirect_stderr(err):
            fedctl.main(arguments, prog_name="fedctl")
    except SystemExit as end:
        return end.code
    finally:
        # It keeps the garbage collector from what it loads.
        gc.unfreeze()
    return 0


def _small_dump() -> bytes:
    dump = json.loads((EXAMPLES / "clusters/member1.json").read_text(encoding="utf-8"))
    nodes, pods = (
        [each for each in dump["items"] if each["kind"] == kind] for kind in ("Node", "Pod")
    )
    return json.dumps({**dump, "items": [*nodes[:2], *pods[:2], QUOTA]}).encode()


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a server says: once as a whole, or as lines."""

    data: bytes

    def stream(self, _: int) -> Iterator[bytes]:
        yield self.data

    def close(self) -> None:
        pass


def _kubernetes() -> Iterator[FuzzTarget]:
    items = json.loads(_small_dump())["items"]
    for kind, raw, translate in (
        ("Node", RawNode, node_from_raw),
        ("Pod", RawPod, pod_from_raw),
        ("ResourceQuota", RawQuota, quota_from_raw),
    ):
        mine = [item for item in items if item["kind"] == kind]
        page = {"metadata": {"resourceVersion": "7"}, "items": mine}
        lines = [
            *({"type": event, "object": item} for item in mine for event in ("ADDED", "DELETED")),
            {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}},
            {"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "gone"}},
        ]
        watched: Watched[Any] = Watched(name=kind, path="", raw=raw, translate=translate)
        yield FuzzTarget(
            name=f"list of {kind}s",
            take=partial(_page, watched),
            seeds=(json.dumps(page).encode(),),
            refusals=(Garbled, Expired),
        )
        yield FuzzTarget(
            name=f"watch of {kind}s",
            take=partial(_events, watched),
            seeds=("".join(json.dumps(line) + "\n" for line in lines).encode(),),
            refusals=(Garbled, Expired),
        )


def _page(watched: Watched[Any], content: bytes) -> object:
    decoder = ObjectDecoder(watched)
    return decoder.values(decoder.page(content).items)


def _events(watched: Watched[Any], content: bytes) -> object:
    return list(ObjectDecoder(watched).batches(LineBuffer().feed(content)))


def _extender() -> Iterator[FuzzTarget]:
    pod = json.loads(POD)
    node = {"metadata": {"name": "n0"}, "status": {"allocatable": {"cpu": "4"}}}
    victims = {"Pods": [{"metadata": {"uid": "a-uid"}}], "NumPDBViolations": 0}
    bind = {"PodName": "p", "PodNamespace": "d", "PodUID": "u", "Node": "n0"}
    offered = (
        {"Pod": pod, "NodeNames": ["n0", "n1", "gone"]},
        {"pod": pod, "nodes": {"items": [node]}},
    )
    preempted = {"Pod": pod, "NodeNameToVictims": {"n0": victims}}
    metavictims = {"Pod": pod, "NodeNameToMetaVictims": {"n0": {"Pods": [{"UID": "a-uid"}]}}}
    for verb, bodies in (
        ("filter", offered),
        ("prioritize", offered),
        ("preempt", (preempted, metavictims)),
        ("bind", (bind,)),
    ):
        yield FuzzTarget(
            name=f"extender's {verb}",
            take=_asked(verb),
            seeds=[json.dumps(body).encode() for body in bodies],
            refusals=(FederationError,),
        )


def _asked(verb: str) -> Callable[[bytes], object]:
    def take(content: bytes) -> object:
        extender: Extender = extender_of(two_nodes(), RecordingBinding())
        return asyncio.run(getattr(extender, verb)(content))

    return take


def _configurations(folder: Path) -> Iterator[FuzzTarget]:
    """Of control planes, and of those whose strategies agents follow."""
    path = folder / "given-profiles.yaml"

    def take_profiles(content: bytes) -> object:
        path.write_bytes(content)
        return read_profiles(path)

    yield FuzzTarget(
        name="scheduler profiles",
        take=take_profiles,
        seeds=_examples("scheduler-config.yaml"),
        refusals=(InvalidRequest,),
    )
    yield FuzzTarget(
        name="scoring configuration",
        take=lambda content: read_scoring_configuration(content.decode(errors="replace")),
        seeds=_examples("scoring/*"),
        refusals=(InvalidRequest,),
    )


def _bodies() -> Iterator[FuzzTarget]:
    def take_reservations(content: bytes) -> object:
        row = SimpleNamespace(namespace="a", name="b", uid="", lease_expires_at=None, body=content)
        return reservations_of([cast("Any", row)])

    def take_change(kind: str, content: bytes) -> object:
        return change_of(kind, content, 1)

    for name, change in (("binding", DECIDED), ("cluster", DELETED), ("report", ADVANCED)):
        kind, body = packed_change(change)
        yield FuzzTarget(
            name=f"journal's {name}",
            take=partial(take_change, kind),
            seeds=(body,),
            refusals=BODY_REFUSALS,
        )
    for name, take, seed in (
        ("reservations", take_reservations, packed_reservations(HELD)),
        ("report", lambda content: ReportReader().read(content), packed_report(REPORT).encode()),
        ("trace", unpacked_trace, packed_traces([VERDICT])[0][0]),
        ("preview", unpacked_preview, packed_preview(BINDING, VERDICT, wait=False).body),
    ):
        yield FuzzTarget(
            name=f"stored {name}",
            take=cast("Callable[[bytes], object]", take),
            seeds=(seed,),
            refusals=BODY_REFUSALS,
        )


def _trace_file(folder: Path) -> FuzzTarget:
    decisions, bodies = corpus()
    seed = write_trace(folder / "seed.trace", decisions[:6], bodies, in_chunk=3).read_bytes()
    path = folder / "given.trace"

    def take(content: bytes) -> object:
        path.write_bytes(content)
        return _exit_code_of_fedctl(["replay", "--trace", str(path), "--workers", "1"])

    return FuzzTarget(name="trace file", take=take, seeds=(seed,))
