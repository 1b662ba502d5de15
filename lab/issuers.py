"""An issuer of JWTs on a real port, and tokens as it makes them and as forgers do."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

AUDIENCE = "fedsched"


@dataclass
class Issuer:
    """``keys`` are served; ``status`` is that of every answer, 200: with its body."""

    url: str = ""
    keys: dict[str, Any] = field(default_factory=dict)
    status: int = 200
    says_issuer: str = ""
    asked: list[str] = field(default_factory=list)

    def rotate(self, key_id: str, *, is_rsa: bool = False) -> Any:
        """From now on it has this key alone."""
        made: Any = rsa.generate_private_key(65537, 2048) if is_rsa else None
        self.keys = {key_id: made or ec.generate_private_key(ec.SECP256R1())}
        return self.keys[key_id]

    def token(self, key_id: str = "", *, key: Any = None, header: Any = None, **claims: Any) -> str:
        """Claims that are None are left out."""
        key_id = key_id or next(iter(self.keys))
        key = key or self.keys[key_id]
        now = int(time.time())
        whole = {"iss": self.url, "aud": AUDIENCE, "sub": "ann", "exp": now + 600, **claims}
        algorithm = "RS256" if isinstance(key, rsa.RSAPrivateKey) else "ES256"
        return jwt.encode(
            {name: value for name, value in whole.items() if value is not None},
            key,
            algorithm=algorithm,
            headers={"kid": key_id, **(header or {})},
        )

    def jwks(self) -> dict[str, Any]:
        return {"keys": [jwk_of(key_id, key) for key_id, key in self.keys.items()]}

    def answer(self, path: str) -> Mapping[str, Any]:
        if path == "/.well-known/openid-configuration":
            return {"issuer": self.says_issuer or self.url, "jwks_uri": f"{self.url}/keys"}
        return self.jwks()


def jwk_of(key_id: str, key: Any) -> dict[str, Any]:
    public: Any = key.public_key()
    kind = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else ECAlgorithm
    return {**kind.to_jwk(public, as_dict=True), "kid": key_id, "use": "sig"}


def public_pem(key: Any) -> bytes:
    return bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))


def forged(header: Mapping[str, Any], claims: Any, secret: bytes | None = None) -> str:
    """With what a library would refuse to make; signed by HMAC, or with nothing."""
    parts = [_encoded(json.dumps(each).encode()) for each in (header, claims)]
    signed = ".".join(parts)
    mac = hmac.new(secret, signed.encode(), hashlib.sha256).digest() if secret else b""
    return f"{signed}.{_encoded(mac)}"


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


@contextmanager
def running_issuer() -> Iterator[Issuer]:
    issuer = Issuer()
    issuer.rotate("first")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            issuer.asked.append(self.path)
            body = json.dumps(issuer.answer(self.path)).encode()
            self.send_response(issuer.status)
            if issuer.status in {301, 302}:
                self.send_header("Location", f"{issuer.url}/elsewhere")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        issuer.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield issuer
        finally:
            server.shutdown()
