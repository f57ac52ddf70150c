"""A page for browsers: a heading, and a file input and a drop zone that show name and size of what they were given."""

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
<h1 style="font-size: 80px">{HEADING}</h1>
<input type="file" id="chooser" multiple>
<div id="zone" style="width: 300px; height: 80px; border: 1px solid">drop files here</div>
<p id="seen">nothing yet</p>
<script>
  const show = how => files => document.getElementById("seen").textContent =
    how + " " + [...files].map(file => `${{file.name}} (${{file.size}} bytes)`).join(", ");
  const chooser = document.getElementById("chooser"), zone = document.getElementById("zone");
  chooser.onchange = () => show("chosen:")(chooser.files);
  zone.ondragover = event => event.preventDefault();
  zone.ondrop = event => {{ event.preventDefault(); show("dropped:")(event.dataTransfer.files); }};
</script>
"""


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = PAGE.encode() if self.path == "/" else b"no such page"
        self.send_response(200 if self.path == "/" else 404)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """The test's output is for the test."""


@contextlib.contextmanager
def page() -> Iterator[str]:
    """The URL of the page, which is there for the time of the context."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()
            thread.join()
