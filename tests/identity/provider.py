"""A small OIDC provider on this machine: discovery, keys, the login page, and tokens for codes with PKCE.

It is as strict as a real one: a code is good once, for its client, its redirect URI and its verifier.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import ECKey, Key, KeySet

Answer = tuple[int, dict[str, str], bytes]
DISCOVERY, KEYS, AUTHORIZE, TOKEN = "/.well-known/openid-configuration", "/jwks", "/authorize", "/token"
CLIENT, SECRET = "tarry-console", "s3cret of the client"


class OidcProvider:
    """The provider; tests may replace the answer of a path, and change what a token has."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.key: Key = ECKey.generate_key("P-256", {"kid": "first"})
        self.published: list[Key] = [self.key]
        self.asked: Counter[str] = Counter()
        self.instead: dict[str, Callable[[], Answer]] = {}
        """Answers of paths in the place of the usual ones."""
        self.discovered: dict[str, Any] = {}
        """Fields of discovery in the place of the usual ones."""
        self.claims: dict[str, Any] = {"sub": "42", "groups": ["tarry-shop"]}
        """Claims of whoever logs in; None takes one away."""
        self.client_secret: str | None = None
        self.hangs = threading.Event()
        """Set: what hangs goes on."""
        self._codes: dict[str, dict[str, str]] = {}
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(b"")

            def do_POST(self) -> None:
                self._answer(self.rfile.read(int(self.headers["content-length"])))

            def _answer(self, body: bytes) -> None:
                path = urlsplit(self.path).path
                provider.asked[path] += 1
                own = provider.instead.get(path)
                usual = partial(provider.answer, path, urlsplit(self.path).query, body, self.headers)
                status, headers, content = (own or usual)()
                try:
                    self.send_response(status)
                    for name, value in {"content-length": str(len(content)), **headers}.items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(content)
                except OSError:
                    pass  # nobody reads it any more

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.url = f"http{'' if tls is None else 's'}://127.0.0.1:{self._server.server_address[1]}"

    def serve(self) -> None:
        self._server.serve_forever(0.05)

    def close(self) -> None:
        self.hangs.set()
        self._server.shutdown()
        self._server.server_close()

    def settings(self, **more: str) -> dict[str, str]:
        return {"jwt_issuer": self.url, "jwt_audience": "tarry", "jwt_private_addresses": "127.0.0.1", **more}

    def hang(self) -> Answer:
        self.hangs.wait(60)
        return 200, {}, b"{}"

    def sign(self, now_s: float | None = None, key: Key | None = None, alg: str = "ES256", **more: Any) -> str:
        now_s, key = time.time() if now_s is None else now_s, key or self.key
        claims = {"iss": self.url, "aud": "tarry", "exp": int(now_s) + 300, **self.claims, **more}
        header = {"alg": alg, "kid": str(key.kid)}
        return jwt.encode(header, {n: v for n, v in claims.items() if v is not None}, key, algorithms=[alg])

    def rotate(self, kid: str) -> Key:
        """Sign with a new key from now on, and publish it with the former ones."""
        self.key = ECKey.generate_key("P-256", {"kid": kid})
        self.published = [*self.published, self.key]
        return self.key

    def answer(self, path: str, query: str, body: bytes, headers: Any) -> Answer:
        given = {name: values[0] for name, values in parse_qs(query or body.decode()).items()}
        if path == DISCOVERY:
            return _json(200, self._discovery())
        if path == KEYS:
            return _json(200, KeySet(self.published).as_dict(private=False))
        if path == AUTHORIZE:
            code = secrets.token_urlsafe(16)
            self._codes[code] = given
            back = urlencode({"code": code, "state": given["state"], "iss": self.url})
            return 302, {"location": f"{given['redirect_uri']}?{back}"}, b""
        if path == TOKEN:
            return self._token(given, headers.get("authorization", ""))
        return 404, {}, b""

    def _discovery(self) -> dict[str, Any]:
        return {
            "issuer": self.url,
            "jwks_uri": self.url + KEYS,
            "authorization_endpoint": self.url + AUTHORIZE,
            "token_endpoint": self.url + TOKEN,
            **self.discovered,
        }

    def _token(self, given: dict[str, str], authorization: str) -> Answer:
        asked = self._codes.pop(given.get("code", ""), None)
        if self.client_secret is not None:
            pair = base64.b64encode(f"{CLIENT}:{self.client_secret.replace(' ', '+')}".encode()).decode()
            if authorization != f"Basic {pair}" and given.get("client_secret") != self.client_secret:
                return _json(401, {"error": "invalid_client"})
        digest = hashlib.sha256(given.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if (
            asked is None
            or given.get("grant_type") != "authorization_code"
            or (given.get("redirect_uri"), given.get("client_id")) != (asked["redirect_uri"], asked["client_id"])
            or (asked.get("code_challenge_method"), asked.get("code_challenge")) != ("S256", challenge)
        ):
            return _json(400, {"error": "invalid_grant"})
        token = self.sign(**{"aud": asked["client_id"], "nonce": asked["nonce"], **self.claims})
        return _json(200, {"id_token": token, "access_token": "x", "token_type": "Bearer"})


def _json(status: int, content: dict[str, Any]) -> Answer:
    return status, {"content-type": "application/json"}, json.dumps(content).encode()


@contextmanager
def providing(tls: ssl.SSLContext | None = None) -> Iterator[OidcProvider]:
    provider = OidcProvider(tls)
    thread = threading.Thread(target=provider.serve, daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        provider.close()
        thread.join()
