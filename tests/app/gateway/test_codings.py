"""Tests of servers that compress their responses though no coding was offered."""

from __future__ import annotations

import gzip
import http.client
import http.server
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
from coded_bodies import PACKERS
from command import INITIALIZE, PATIENCE_S, Run

HEADERS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
ANSWER = b'{"jsonrpc":"2.0","id":1,"result":{"a":1}}'


@contextmanager
def compressing(
    status: int, coding: str = "gzip", pack: Callable[[bytes], bytes] = gzip.compress
) -> Iterator[tuple[str, list[str | None]]]:
    """A server that compresses every response: its URL, and the codings that requests offer."""
    offered: list[str | None] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            offered.append(self.headers["Accept-Encoding"])
            self.rfile.read(int(self.headers["Content-Length"]))
            body = pack(ANSWER)
            self.send_response(status)
            for name, value in (("Type", "application/json"), ("Encoding", coding), ("Length", str(len(body)))):
                self.send_header(f"Content-{name}", value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/mcp", offered
        finally:
            server.shutdown()
            thread.join(PATIENCE_S)


def post(url: str) -> tuple[http.client.HTTPResponse, bytes]:
    parts = urlsplit(url)
    assert parts.hostname is not None
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=PATIENCE_S)
    connection.request("POST", parts.path, json.dumps(INITIALIZE), HEADERS)
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response, body


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_a_compressed_response_is_read_though_none_was_offered(kind: str) -> None:
    with compressing(200, *PACKERS[kind]) as (url, offered), Run("wrap", "--listen", "127.0.0.1:0", url) as gateway:
        response, body = post(gateway.wait_url())
        assert json.loads(body) == json.loads(ANSWER)
        assert response.getheader("Content-Encoding") is None
        assert set(offered) == {"identity"}


def test_the_error_in_a_compressed_refusal_is_shown() -> None:
    refusal = gzip.compress(b'{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"no room today"}}')
    refusing = compressing(502, "gzip", lambda text: refusal)
    with refusing as (url, _), Run("wrap", "--listen", "127.0.0.1:0", url) as gateway:
        _, body = post(gateway.wait_url())
        assert "no room today" in json.loads(body)["error"]["message"]


@pytest.mark.parametrize("status", [200, 502])
def test_a_response_in_an_unknown_coding_is_reported_and_not_shown(status: int) -> None:
    unknown = compressing(status, "compress", gzip.compress)
    with unknown as (url, _), Run("wrap", "--listen", "127.0.0.1:0", url) as gateway:
        _, body = post(gateway.wait_url())
        error = json.loads(body)["error"]
        assert "Content-Encoding compress, expected none: none was offered" in error["message"]
        assert "\\ufffd" not in json.dumps(error)


def test_a_forwarded_response_keeps_its_coding_and_bytes() -> None:
    command = ("wrap", "--listen", "127.0.0.1:0", "--no-inspect")
    with compressing(200) as (url, _), Run(*command, url) as gateway:
        response, body = post(gateway.wait_url())
        assert (response.status, response.getheader("Content-Encoding")) == (200, "gzip")
        assert gzip.decompress(body) == ANSWER
