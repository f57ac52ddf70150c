"""A peer over HTTP that answers as servers do that are asked in a wrong way, or at a wrong address."""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ANSWERS: dict[str, tuple[int, dict[str, str], bytes]] = {
    "/broken": (500, {}, b"database down\x1b[31m\nTraceback: line 3"),
    "/broken/json": (500, {}, b'{"error": "no disk left", "token": "4711"}'),
    "/broken/page": (500, {}, b"<html><title>Worker timed out</title><body>...</body></html>"),
    "/broken/secret": (500, {}, b"refused: Authorization was Bearer 4711"),
    "/page": (200, {"Content-Type": "text/html"}, b"<html>hello</html>"),
    "/moved": (302, {"Location": "https://login.test/"}, b""),
    "/private": (401, {}, b"who are you?"),
}
"""Status, headers and body by path; any other path is not found."""


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status, headers, body = ANSWERS.get(self.path, (404, {}, b"no such page"))
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST

    def log_message(self, format: str, *arguments: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Says nothing: what is not TLS is expected at a port of TLS."""


@contextlib.contextmanager
def serving(certificate: Path | None = None) -> Iterator[int]:
    """Listens on a port, with TLS if there is a certificate. Yields the port."""
    with _Server(("127.0.0.1", 0), _Handler) as server:
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, certificate.with_suffix(".key"))
            # The handshake is of the thread of its connection: `accept` does not wait for it.
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=server.serve_forever, args=[0.02], daemon=True).start()
        yield server.server_port
        server.shutdown()
