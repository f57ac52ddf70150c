"""The servers and clients of `make crossing`: packages and commands, files to upload, reading of artifacts."""

from __future__ import annotations

import base64
import io
import json
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import filing

INSTALL_TIMEOUT_S: Final = 900.0
TEXT_MAX: Final = 600
META: Final = "io.modelcontextprotocol/"
PNG: Final = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAIAQMAAAD+wSzIAAAABlBMVEX///+/v7+jQ3Y5AAAADklEQVQI12P4AIX8EAgALgAD/aNpbtEAAAAASUVORK5CYII="
)


class Server:
    """A released server, as a file in crossing_steps/ describes it.

    Commands may contain {env} for the folder of its packages, and the names of the session's folders, {ws} and others.
    """

    def __init__(self, file: Path) -> None:
        self.name = file.stem
        self._spec: dict[str, Any] = json.loads(file.read_text())
        self.steps: list[dict[str, Any]] = self._spec["steps"]
        self._folder = Path()

    def install(self, home: Path) -> None:
        """Installs its packages into a folder of its own, if that is not there."""
        self._folder = home / self.name
        if self._folder.exists():
            return
        packages: Sequence[str] = self._spec["packages"]
        print(f"installing {' '.join(packages)}", file=sys.stderr)
        try:
            self._fill(packages)
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def _fill(self, packages: Sequence[str]) -> None:
        if self._spec.get("on") == "npm":
            self._folder.mkdir(parents=True)
            self._run("npm", "init", "-y")
            self._run("npm", "install", "--no-fund", "--no-audit", "--silent", *packages)
        else:
            venv.create(self._folder, with_pip=True)
            self._run(self._folder / "bin/python", "-m", "pip", "install", "--no-compile", "--quiet", *packages)

    def _run(self, *command: str | Path) -> None:
        subprocess.run(command, cwd=self._folder, check=True, stdout=subprocess.DEVNULL, timeout=INSTALL_TIMEOUT_S)

    def command(self) -> list[str]:
        return [self._filled(word) for word in self._spec["command"]]

    def options(self) -> list[str]:
        env = [f"--env={name}={self._filled(value)}" for name, value in self._spec.get("env", {}).items()]
        return [*env, *self._spec.get("options", [])]

    def _filled(self, word: str) -> str:
        chromium = shutil.which("chromium") or "chromium"
        return word.replace("{env}", str(self._folder)).replace("{chromium}", chromium)


def _pdf() -> bytes:
    """Returns a document of one page."""
    text = b"BT /F 18 Tf 10 100 Td (Hello) Tj ET"
    objects = (
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 200 200]/Contents 4 0 R/Resources<</Font<</F 5 0 R>>>>>>",
        b"<</Length %d>>stream\n%b\nendstream" % (len(text), text),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    )
    document, starts = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        starts.append(len(document))
        document += b"%d 0 obj%b endobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % start for start in starts)
    end = b"trailer<</Root 1 0 R/Size 6>>\nstartxref\n%d\n%%%%EOF" % len(document)
    return document + b"xref\n0 6\n0000000000 65535 f \n" + table + end


def _book() -> bytes:
    """Returns a workbook with one empty sheet, S."""
    of = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    kinds = "http://schemas.openxmlformats.org/package/2006"
    at = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{kinds}/content-types"><Default Extension="rels" ContentType='
        '"application/vnd.openxmlformats-package.relationships+xml"/><Override PartName="/xl/workbook.xml" '
        f'ContentType="{of}.sheet.main+xml"/><Override PartName="/xl/s.xml" ContentType="{of}.worksheet+xml"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{kinds}/relationships"><Relationship Id="r1" Type="{at}/officeDocument" '
        'Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{main}" xmlns:r="{at}"><sheets><sheet name="S" sheetId="1" r:id="r1"/>'
        "</sheets></workbook>",
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{kinds}/relationships"><Relationship Id="r1" '
        f'Type="{at}/worksheet" Target="s.xml"/></Relationships>',
        "xl/s.xml": f'<worksheet xmlns="{main}"><sheetData/></worksheet>',
    }
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as book:
        for name, text in parts.items():
            book.writestr(name, text)
    return written.getvalue()


def _clip() -> bytes:
    """Returns a video of one second."""
    inputs = "-f lavfi -i testsrc=d=1:s=64x64:r=5 -f lavfi -i sine=d=1 -shortest"
    with tempfile.NamedTemporaryFile(suffix=".mkv") as file:  # written to a pipe, it would not say how long it is
        subprocess.run(["ffmpeg", "-y", "-v", "error", *inputs.split(), file.name], check=True)
        return Path(file.name).read_bytes()


SAMPLES: Final[Mapping[str, Callable[[], bytes]]] = {
    "logo.png": lambda: PNG,
    "notes.md": lambda: b"# Title\n\nHello **all**\n\n## Part\n\n- one\n- two\n",
    "table.csv": lambda: b"name,value\na,1\nb,2\n",
    "page.pdf": _pdf,
    "book.xlsx": _book,
    "clip.mkv": _clip,
}


class Client(filing.Client):
    """A client with sessions, which keeps what it has uploaded and what it got last.

    Attributes:
        last: the URI of the last artifact.
        known: the SHA-256 of each file that it has uploaded or read.
    """

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._begin()

    def _begin(self) -> None:
        self.last = ""
        self.known: set[str] = set()
        self._handles: dict[str, str] = {}

    def call(self, tool: str, arguments: object = None) -> dict[str, Any]:
        message = self.exchange("tools/call", {"name": tool, "arguments": arguments or {}})
        if "error" in message:
            text = f"error {message['error']['code']}: {message['error']['message']}"
            return {"content": [{"type": "text", "text": text}], "isError": True}
        result: dict[str, Any] = message["result"]
        return result

    def handle(self, sample: str) -> str:
        """Returns the handle of a sample, which is uploaded the first time."""
        if sample not in self._handles:
            content = SAMPLES[sample]()
            [self._handles[sample]] = self.upload((sample, content))
            self.known.add(filing.sha256(content))
        return self._handles[sample]

    def read_all(self, result: Mapping[str, Any]) -> tuple[dict[str, str], list[str]]:
        """Returns the SHA-256 of each artifact of a result by its URI, and what is wrong with reading them.

        Each is read as a resource and by its link, and the two are compared.
        """
        meta = result.get("_meta") or {}
        artifacts = meta.get("artifacts") or ([meta["artifact"]] if "artifact" in meta else [])
        read, broken = {}, []
        for artifact in artifacts:
            uri = self.last = artifact["artifact_uri"]
            downloaded = filing.fetch(artifact["download_url"])
            read[uri] = filing.sha256(downloaded.body)
            self.known.add(read[uri])
            if downloaded.status != 200 or read[uri] != artifact["sha256"]:
                broken.append(f"{uri}: GET {downloaded.status}, not the content")
            message = self.exchange("resources/read", {"uri": uri})
            contents = message.get("result", {}).get("contents", [{}])[0]
            content = base64.b64decode(contents["blob"]) if "blob" in contents else contents.get("text", "").encode()
            if filing.sha256(content) != read[uri]:
                broken.append(f"{uri}: resources/read differs: {str(message)[:200]}")
        return read, broken


class StatelessClient(Client):
    """A client of 2026-07-28: no handshake, and each request carries what it is."""

    def __init__(self, url: str) -> None:  # not that of the base, which begins with a handshake
        self.url, self.headers, self.session_id, self._last_id = url, {}, "", 0
        self._begin()

    def exchange(self, method: str, params: object = None) -> dict[str, Any]:
        assert params is None or isinstance(params, dict)
        params = {**(params or {})}
        params["_meta"] = {
            META + "protocolVersion": "2026-07-28",
            META + "clientInfo": {"name": "bare", "version": "1"},
            META + "clientCapabilities": {},
        }
        self.headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method}
        name = params.get("name", params.get("uri"))
        if name is not None:
            self.headers["Mcp-Name"] = _header(name)
        return super().exchange(method, params)

    def end(self) -> None:
        pass


def _header(value: str) -> str:
    if value.isascii() and value.isprintable() and value == value.strip():
        return value
    return f"=?base64?{base64.b64encode(value.encode()).decode()}?="


CLIENTS: Final[Mapping[str, type[Client]]] = {"2025-11-25": Client, "2026-07-28": StatelessClient}


def shortened(value: Any) -> Any:
    """Returns a result without long texts."""
    if isinstance(value, dict):
        return {key: shortened(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shortened(item) for item in value[:20]]
    if isinstance(value, str) and len(value) > TEXT_MAX:
        return f"{value[:TEXT_MAX]}… ({len(value)} characters)"
    return value
