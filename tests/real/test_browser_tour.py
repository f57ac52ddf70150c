"""Test of one long browser session whose files reach a client that cannot open any of them.

The server is Playwright's own, first behind `isthmus wrap --files` with its command alone, then with the configuration
of `examples/files`. Nearly all of its answers name files. Each complete one is stored, once for each of its versions,
and no other: above all none of the hundreds of files that a browser keeps for itself.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import filing
import pytest
import rig
from filing import Client, artifacts_of, content_of, texts
from page_server import HEADING, REPORT, SLOW, page

pytestmark = pytest.mark.real

PNG, JPEG, PDF = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"%PDF-"
STATE: Final = "page-*.yml"
"""The name of Playwright's file with a page's state, which other servers would put into their answer as text."""

CHECKS_MAX: Final = 200
"""The bound on checks for a complete download. The server takes a while for each."""


@pytest.fixture(scope="module")
def release() -> threading.Event:
    """Returns the event that lets the slow download end."""
    return threading.Event()


@pytest.fixture(scope="module")
def site(release: threading.Event) -> Iterator[str]:
    with page(release) as url:
        yield url


class Tour:
    """A client that checks what holds for every answer."""

    def __init__(self, client: Client, folder: Path) -> None:
        self.client = client
        self._folder = str(folder)
        self.taken: list[dict[str, Any]] = []

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Returns the result of a tool. It contains no path of this machine, and no other path of a stored file."""
        result = self.client.call(tool, arguments)
        text = "\n".join(texts(result))
        assert self._folder not in json.dumps(result, ensure_ascii=False)
        artifacts = artifacts_of(result)
        self.taken += artifacts
        for artifact in self.taken:
            text = text.replace(artifact["artifact_uri"], "")
        text = text.replace("/artifacts/", "")
        for artifact in artifacts:
            assert not any(f"{before}{artifact['filename']}" in text for before in ("./", "out/", "(")), text
        return result

    def make(self, tool: str, *names: str, **arguments: Any) -> list[dict[str, Any]]:
        """Returns the artifacts of a call that makes files with names like these, in any order, and no others."""
        result = self.call(tool, **arguments)
        assert not result.get("isError"), result
        left = artifacts_of(result)
        found = []
        for name in names:
            fitting = [artifact for artifact in left if fnmatchcase(artifact["filename"], name)]
            assert fitting, (name, result)
            found.append(fitting[0])
            left.remove(fitting[0])
        assert left == [], result
        return found

    def text(self, tool: str, **arguments: Any) -> str:
        result = self.call(tool, **arguments)
        assert not result.get("isError"), result
        return "\n".join(texts(result))


def shown(result: dict[str, Any], artifact: dict[str, Any]) -> str:
    """Returns the text of a file that is part of a result."""
    resources = [block["resource"] for block in result["content"] if block["type"] == "resource"]
    (text,) = [resource["text"] for resource in resources if resource["uri"] == artifact["artifact_uri"]]
    assert isinstance(text, str)
    return text


def see_the_page(tour: Tour, site: str) -> None:
    """The page's state comes as text, beside a link that can be read."""
    result = tour.call("browser_navigate", url=site)
    (state,) = [one for one in artifacts_of(result) if fnmatchcase(one["filename"], STATE)]
    assert f'heading "{HEADING}"' in shown(result, state)
    assert content_of(state).decode() == shown(result, state)
    assert f"[Snapshot]({state['artifact_uri']})" in "\n".join(texts(result))
    (read,) = tour.client.request("resources/read", {"uri": state["artifact_uri"]})["contents"]
    assert read["text"] == shown(result, state)

    # So does the page's console output. The link's text names the lines.
    (log,) = [one for one in artifacts_of(result) if one is not state]
    assert fnmatchcase(log["filename"], "console-*.log")
    assert "the page is there" in shown(result, log)
    assert f"New console entries: {log['artifact_uri']}#L1" in "\n".join(texts(result))


def save_what_is_seen(tour: Tour) -> None:
    result = tour.call("browser_take_screenshot", scale="css")
    (shot,) = artifacts_of(result)
    assert content_of(shot).startswith(PNG)
    assert f"[Screenshot of viewport]({shot['artifact_uri']})" in "\n".join(texts(result))
    assert f"path: '{shot['artifact_uri']}'" in "\n".join(texts(result))
    assert [block["mimeType"] for block in result["content"] if block["type"] == "image"] == ["image/png"]

    for name, kind, start in (("named.png", "png", PNG), ("sub/ä dir/shot 1.jpeg", "jpeg", JPEG)):
        result = tour.call("browser_take_screenshot", scale="css", type=kind, filename=name)
        (shot,) = artifacts_of(result)
        assert shot["filename"] == name.split("/")[-1]
        assert content_of(shot).startswith(start)
        assert f"]({shot['artifact_uri']})" in "\n".join(texts(result))
    # The same name again is another version of the file. The earlier version is unchanged.
    (second,) = tour.make("browser_take_screenshot", "named.png", scale="css", fullPage=True, filename="named.png")
    assert len({one["artifact_id"] for one in tour.taken if one["filename"] == "named.png"}) == 2
    assert content_of(second).startswith(PNG)

    outside = tour.call("browser_take_screenshot", scale="css", filename="/nowhere/elsewhere.png")
    assert "outside allowed roots" in filing.complaint(outside)
    assert "_meta" not in outside

    for options, name in (({}, "page-*.pdf"), ({"filename": "doc.pdf"}, "doc.pdf")):
        (document,) = tour.make("browser_pdf_save", name, **options)
        assert content_of(document).startswith(PDF)


def save_text(tour: Tour) -> None:
    for tool, name, words, arguments in (
        ("browser_snapshot", "snap.md", HEADING, {}),
        ("browser_console_messages", "console.txt", "the page is there", {"level": "info", "all": True}),
        ("browser_network_requests", "net.txt", "GET", {"static": True}),
    ):
        result = tour.call(tool, filename=name, **arguments)
        (artifact,) = artifacts_of(result)
        assert artifact["filename"] == name
        assert words in shown(result, artifact)


def give_files(tour: Tour) -> None:
    """A file input takes several files at once, and so does the drop zone. Files of earlier calls serve as well."""
    handles = tour.client.upload(("one ä.txt", b"first"), ("two.bin", bytes(1000)))
    picture = next(one for one in tour.taken if one["filename"] == "named.png")
    # While the page waits for files its state cannot be written, so the file that the answer names stays empty.
    waiting = tour.call("browser_click", target="#chooser", element="file input")
    assert artifacts_of(waiting) == []
    tour.make("browser_file_upload", STATE, paths=[*handles, picture["artifact_uri"]])
    files = f"one ä.txt (5 bytes), two.bin (1000 bytes), named.png ({picture['size_bytes']} bytes)"
    assert f"chosen: {files}" in tour.text("browser_snapshot")
    tour.make("browser_drop", STATE, target="#zone", element="zone", paths=[f"{handles[0]}/x.txt"])
    assert "dropped: one ä.txt (5 bytes)" in tour.text("browser_snapshot")


def download(tour: Tour, release: threading.Event) -> None:
    """A download that is complete when the call ends comes with that call, another one with the call that finds it
    complete."""
    _, report = tour.make("browser_click", STATE, "report.csv", target="text=the report")
    assert content_of(report) == REPORT

    tour.make("browser_click", STATE, target="text=the slow one")
    tour.make("browser_snapshot")
    release.set()
    for _ in range(CHECKS_MAX):
        result = tour.call("browser_snapshot")
        if artifacts_of(result):
            break
    (slow,) = artifacts_of(result)
    assert (slow["filename"], content_of(slow)) == ("slow.bin", SLOW)
    text = "\n".join(texts(result))
    assert slow["artifact_uri"] in text or "slow.bin" not in text  # the server may have named it just before


def trace(tour: Tour, site: str) -> None:
    """Files that are still being written come with the calls that change them or find them at rest. A folder that is
    named stands for its files."""
    before = len(tour.taken)
    tour.call("browser_start_tracing")
    tour.call("browser_navigate", url=site)
    result = tour.call("browser_stop_tracing")
    kinds = ("trace-*.trace", "trace-*.network", "*.html")
    for _ in range(CHECKS_MAX):
        latest = {kind: one for one in tour.taken[before:] for kind in kinds if fnmatchcase(one["filename"], kind)}
        if len(latest) == len(kinds):
            break
        tour.call("browser_snapshot")
    actions, network, document = (latest[kind] for kind in kinds)
    assert b'"context-options"' in content_of(actions)
    assert b'"resource-snapshot"' in content_of(network)
    assert HEADING.encode() in content_of(document)
    for title, artifact in (("Trace", actions), ("Network log", network)):
        if artifact in artifacts_of(result):
            assert f"[{title}]({artifact['artifact_uri']})" in "\n".join(texts(result))


def take_all(tour: Tour, site: str, release: threading.Event) -> None:
    see_the_page(tour, site)
    save_what_is_seen(tour)
    save_text(tour)
    give_files(tour)
    download(tour, release)
    trace(tour, site)
    tour.call("browser_close")
    own = (STATE, "console-*.log", "page-*.png", "page-*.pdf", "trace-*.trace", "trace-*.network")
    chosen = {"named.png", "shot 1.jpeg", "doc.pdf", "snap.md", "console.txt", "net.txt", "report.csv", "slow.bin"}
    for artifact in tour.taken:
        name = artifact["filename"]
        assert name in chosen or name.endswith(".html") or any(fnmatchcase(name, pattern) for pattern in own), name
    assert sorted(tour.client.listed()) == sorted(one["artifact_uri"] for one in tour.taken)


def test_all_that_a_browser_saves_is_found(tmp_path: Path, site: str, release: threading.Event) -> None:
    program = rig.require(filing.PROGRAMS["playwright"].path)
    command = [program, "--headless", "--isolated", "--caps", "pdf,devtools", *filing.CHROMIUM]
    options = ["--files", "--storage", str(tmp_path / "data")]
    with rig.wrap(*command, folder=tmp_path, options=options) as proxy, filing.session(proxy.url) as client:
        take_all(Tour(client, tmp_path), site, release)


def test_the_example_serves_a_browser(tmp_path: Path, site: str, release: threading.Event) -> None:
    release.clear()
    settings = filing.shipped("playwright", *filing.CHROMIUM)
    with filing.gateway(tmp_path, settings) as proxy, filing.session(proxy.url) as client:
        tour = Tour(client, tmp_path)
        see_the_page(tour, site)
        save_what_is_seen(tour)
        give_files(tour)
        download(tour, release)
