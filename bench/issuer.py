"""An issuer of tokens for the rows with authentication: its keys on a port of this machine, and tokens in files."""

from __future__ import annotations

import functools
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

from programs import Failed

AUDIENCE: Final = "http://127.0.0.1/bench"
ALGORITHM: Final = "RS256"
VALID_S: Final = 6 * 3600
NEW_TOKENS: Final = 8192
"""Tokens that are new whenever they come: twice as many as a gateway remembers, which forgets the oldest first."""


class Issuer:
    """One key, which signs and is published."""

    def __init__(self) -> None:
        import jwt
        from cryptography.hazmat.primitives.asymmetric import rsa

        self._key = rsa.generate_private_key(65537, 2048)
        public = json.loads(jwt.get_algorithm_by_name(ALGORITHM).to_jwk(self._key.public_key()))
        keys = json.dumps({"keys": [public | {"kid": "bench", "alg": ALGORITHM, "use": "sig"}]}).encode()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("content-length", str(len(keys)))
                self.end_headers()
                self.wfile.write(keys)

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{server.server_port}"

    def write_tokens(self, path: Path, count: int) -> None:
        """Writes so many tokens of one caller, one a line."""
        path.write_text("".join(f"{self._token(number)}\n" for number in range(count)))

    def _token(self, number: int) -> str:
        import jwt

        now = int(time.time())
        claims = {"iss": self.url, "sub": "bench", "aud": AUDIENCE, "exp": now + VALID_S, "iat": now}
        about = {"jti": f"token-{number}", "client_id": "load", "scope": "mcp:read mcp:write"}
        return jwt.encode(claims | about, self._key, ALGORITHM, {"kid": "bench", "typ": "at+jwt"})


@functools.cache
def issuer() -> Issuer:
    """Returns the issuer of this run.

    Raises:
        Failed: what signs tokens is not installed.
    """
    try:
        return Issuer()
    except ImportError as error:
        raise Failed(f"tokens need isthmus[auth]: {error}") from None
