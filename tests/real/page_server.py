"""A page for browsers: a heading, a file input, a drop zone, and two files to download.

The inputs show name and size of the files that they were given. One download takes as long as a test wants.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

TITLE: Final = "Isthmus test page"
HEADING: Final = "The far side"

PAGE: Final = f"""<!doctype html>
<meta charset="utf-8">
<title>{TITLE}</title>
<link rel="icon" href="data:,">
<h1 style="font-size: 80px">{HEADING}</h1>
<input type="file" id="chooser" multiple>
<div id="zone" style="width: 300px; height: 80px; border: 1px solid">drop files here</div>
<p id="seen">nothing yet</p>
<a href="/report.csv">the report</a> <a href="/slow.bin">the slow one</a>
<script>
  console.log("the page is there");
  const show = how => files => document.getElementById("seen").textContent =
    how + " " + [...files].map(file => `${{file.name}} (${{file.size}} bytes)`).join(", ");
  const chooser = document.getElementById("chooser"), zone = document.getElementById("zone");
  chooser.onchange = () => show("chosen:")(chooser.files);
  zone.ondragover = event => event.preventDefault();
  zone.ondrop = event => {{ event.preventDefault(); show("dropped:")(event.dataTransfer.files); }};
</script>
"""


REPORT: Final = b"n,v\na,1\nb,2\n"
SLOW: Final = b"slow" * 50_000

PATIENCE_S: Final = 60.0
"""The time after which unreleased data is sent anyway. Its test has failed by then."""


class _Handler(BaseHTTPRequestHandler):
    release: threading.Event

    def do_GET(self) -> None:
        match self.path:
            case "/":
                self._answer(PAGE.encode(), "text/html; charset=utf-8")
            case "/report.csv":
                self._answer(REPORT, "text/csv", name="report.csv")
            case "/slow.bin":
                self._answer(SLOW, "application/octet-stream", name="slow.bin", until=self.release)
            case _:
                self._answer(b"no such page", "text/plain", status=404)

    def _answer(
        self, body: bytes, type: str, *, status: int = 200, name: str = "", until: threading.Event | None = None
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", type)
        self.send_header("Content-Length", str(len(body)))
        if name:
            self.send_header("Content-Disposition", f'attachment; filename="{name}"')
        self.end_headers()
        half = len(body) // 2 if until is not None else 0
        self.wfile.write(body[:half])
        if until is not None:
            until.wait(PATIENCE_S)
        self.wfile.write(body[half:])

    def log_message(self, format: str, *args: object) -> None:
        """Drops the log line. Output of a test is for the test."""


@contextlib.contextmanager
def page(release: threading.Event | None = None) -> Iterator[str]:
    """Yields the URL of the page, which is served until the block ends.

    Args:
        release: the second half of the slow file waits for this event. None for no wait.
    """
    handler = type("Handler", (_Handler,), {"release": release or _released()})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            if release is not None:
                release.set()
            server.shutdown()
            thread.join()


def _released() -> threading.Event:
    event = threading.Event()
    event.set()
    return event
