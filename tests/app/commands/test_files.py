"""Tests of `isthmus files`, from outside, and of the pages behind it: listing, copying and deleting files."""

from __future__ import annotations

import json
import logging
import os
import re
import stat
from collections.abc import Callable, Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from command import run as run_apart
from filed import CONTENT, NOTE, OTHER_SID, PLOT, SID, TOKEN, VIDEO, left, served
from inside import Inside
from isthmus.app.base.durations import parse_duration
from isthmus.app.base.errors import Failed
from isthmus.app.cli import cli
from isthmus.app.commands.file_export import export
from isthmus.app.gateway import Gateway
from isthmus.core.engine import Engine
from prometheus_client.parser import text_string_to_metric_families

HEADS = ["ID", "SERVER", "KIND", "NAME", "SIZE", "AGE", "EXPIRES IN", "USED"]
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    left(tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def gateway(root: Path) -> Iterator[Gateway]:
    with served(root) as gateway:
        yield gateway


@pytest.fixture(params=["running", "folder"])
def where(request: pytest.FixtureRequest, root: Path) -> Iterator[tuple[str, str]]:
    """The options that name the store: a folder or a URL, with the same results."""
    if request.param == "folder":
        yield "--root", str(root)
    else:
        with served(root) as gateway:
            yield "--url", gateway.base_url


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Iterator[Run]:
    """Runs `isthmus files` in this process: exit code, stdout, stderr."""
    logger = logging.getLogger("isthmus")
    before = (logger.handlers[:], logger.level, logger.propagate)

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setenv("ISTHMUS_TOKEN", TOKEN)
        with pytest.raises(SystemExit) as exited:
            cli.main(("files", *arguments))
        assert isinstance(exited.value.code, int)
        captured = capfdbinary.readouterr()
        return exited.value.code, captured.out.decode().rstrip(), captured.err.decode().strip()

    yield call
    logger.handlers[:], level, logger.propagate = before
    logger.setLevel(level)


def rows(out: str) -> list[list[str]]:
    return [re.split(r" {2,}", line) for line in out.splitlines()]


def ids(out: str) -> list[str]:
    return [file["id"] for file in json.loads(out)]


# --- The command ----------------------------------------------------------------------------------------------------


def test_the_table_shows_all_or_some(where: tuple[str, str], run: Run) -> None:
    code, out, err = run(*where)
    assert (code, err) == (0, "")
    heads, video, plot, note = rows(out)
    assert heads == HEADS
    assert video[:6] == [VIDEO, "b", "artifact", "video.mp4", "195.3 KiB", "1d 1h"]
    assert plot[:6] == [PLOT, "a", "artifact", "plot.svg", "2.9 KiB", "1h 6m"]
    assert note[:3] == [NOTE, "a", "upload"]
    for options, meant in (
        (("--server", "a"), [PLOT, NOTE]),
        (("--kind", "upload"), [NOTE]),
        (("--session", OTHER_SID), [PLOT]),
        (("--older-than", "1h"), [VIDEO, PLOT]),
        (("--older-than", "1d"), [VIDEO]),
        (("--larger-than", "1k"), [VIDEO, PLOT]),
        (("--larger-than", "100k", "--server", "a"), []),
    ):
        assert ids(run(*options, *where, "--json")[1]) == meant
        assert ids(run("list", *where, "--json", *options)[1]) == meant


def test_one_is_shown_whole(where: tuple[str, str], run: Run) -> None:
    for name in (NOTE, NOTE[:10], f"upload://sessions/{SID}/{NOTE}"):
        code, out, err = run("show", name, *where)
        assert (code, err) == (0, "")
        shown = {row[0]: row[1] for row in rows(out)}
        assert (shown["id"], shown["uri"]) == (NOTE, f"upload://sessions/{SID}/{NOTE}")
        assert (shown["kind"], shown["tool"], shown["principal"], shown["type"]) == ("upload", "-", "-", "text/plain")
        assert shown["session"] == f"{SID} (over)"
        assert shown["for"] == "all clients of its principal"
        assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\+00:00 \(\d+s ago\)", shown["stored"])
        assert shown["expires"].endswith(" left)")
        assert "\x1b" not in out, "nothing that a terminal obeys"
    shown = json.loads(run("show", "--json", VIDEO, *where)[1])
    assert (shown["tool"], shown["server"], shown["pins"], shown["is_live"]) == ("film", "b", 0, False)
    assert "blob" not in shown
    assert run("show", "0" * 32, *where) == (1, "", f"isthmus: {where[1]} has no file {'0' * 32}: it may have expired")
    complaint = f"isthmus: aaaaaaaa is the beginning of 2 files, give more of it: {PLOT}, {NOTE}"
    assert run("show", "aaaaaaaa", *where) == (1, "", complaint)
    assert "at least the id's first 8 characters" in run("show", "a", *where)[2]


def test_one_is_copied_whole_and_nothing_is_overwritten(
    where: tuple[str, str], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    assert run("export", PLOT, *where) == (0, "plot.svg: 2.9 KiB", "")
    assert (here / "plot.svg").read_bytes() == CONTENT[PLOT]
    complaint = "isthmus: plot.svg is there already: give another path, or --force to replace it"
    (here / "plot.svg").write_text("mine")
    assert run("export", PLOT, *where) == (1, "", complaint)
    assert (here / "plot.svg").read_text() == "mine"
    assert run("export", PLOT, "--force", *where)[0] == 0
    assert (here / "plot.svg").read_bytes() == CONTENT[PLOT]
    assert stat.S_IMODE((here / "plot.svg").stat().st_mode) == 0o600
    assert run("export", VIDEO, str(tmp_path / "v"), *where)[0] == 0
    assert (tmp_path / "v").read_bytes() == CONTENT[VIDEO]
    assert run("export", NOTE, str(tmp_path), *where)[0] == 0, "into a folder, by its own name"
    assert (tmp_path / "note _.txt").read_bytes() == CONTENT[NOTE]
    assert run("export", NOTE, "-", *where) == (0, CONTENT[NOTE].decode(), "")
    complaint = f"isthmus: {tmp_path}/no/where cannot be written: No such file or directory"
    assert run("export", NOTE, f"{tmp_path}/no/where", *where) == (1, "", complaint)
    assert sorted(path.name for path in here.iterdir()) == ["plot.svg"]


def test_what_is_no_regular_file_is_not_replaced(where: tuple[str, str], run: Run, tmp_path: Path) -> None:
    """A device of that name belongs to the machine."""
    os.mkfifo(tmp_path / "pipe")
    complaint = f"isthmus: {tmp_path}/pipe is no regular file, and is not replaced: give another path, or - for stdout"
    assert run("export", NOTE, f"{tmp_path}/pipe", "--force", *where) == (1, "", complaint)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_files_that_are_named_are_deleted(where: tuple[str, str], run: Run, root: Path) -> None:
    assert run("delete", PLOT, VIDEO[:8], *where) == (0, "deleted 2 files (198.2 KiB)", "")
    assert ids(run(*where, "--json")[1]) == [NOTE]
    assert run("delete", PLOT, *where)[0] == 1
    if where[0] == "--root":
        assert [path.name.partition("~")[0] for path in (root / "blobs").iterdir()] == [NOTE]


def test_files_that_options_choose_are_deleted_with_confirmation(where: tuple[str, str], run: Run) -> None:
    code, out, err = run("delete", "--older-than", "1h", *where)
    assert (code, [row[0] for row in rows(out)]) == (1, ["ID", VIDEO, PLOT])
    assert err == "isthmus: nothing was deleted: say --yes to delete 2 files (198.2 KiB)"
    assert len(ids(run(*where, "--json")[1])) == 3
    code, out, err = run("delete", "--older-than", "1h", "--yes", "--json", *where)
    assert (code, ids(out), err) == (0, [VIDEO, PLOT], "")
    assert run("delete", "--older-than", "1h", *where) == (0, "deleted 0 files (0 B)", "")
    assert run("delete", "--yes", *where)[0] == 2, "deleting all files needs an option"
    assert run("delete", NOTE, "--kind", "upload", *where)[0] == 2
    assert run("show", NOTE, "--server", "a", *where)[0] == 2
    assert ids(run(*where, "--json")[1]) == [NOTE]


@pytest.mark.parametrize("option", [("--older-than", "2"), ("--older-than", "2h3m"), ("--larger-than", "big")])
def test_invalid_sizes_and_times_are_refused(option: tuple[str, str], run: Run) -> None:
    code, _, err = run(*option)
    assert code == 2
    assert f"argument {option[0]}: '{option[1]}' is no " in err


def test_times_may_have_a_fraction() -> None:
    assert [parse_duration(text) for text in ("90s", "15m", "1.5h", "7d")] == [90, 900, 5400, 604_800]


def test_a_folder_in_use_and_what_is_none_are_refused(gateway: Gateway, root: Path, run: Run, tmp_path: Path) -> None:
    complaint = f"isthmus: an isthmus runs on {root}: ask it, with --url instead of --root, or stop it"
    assert run("--root", str(root)) == (1, "", complaint)
    complaint = f"isthmus: {tmp_path} is no storage folder of isthmus: it has no state/records.sqlite"
    assert run("--root", str(tmp_path)) == (1, "", complaint)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]


def test_what_broke_off_is_not_kept(tmp_path: Path) -> None:
    """A failed download keeps the file that it would have replaced."""
    file = {"id": NOTE, "filename": "../../x", "size_bytes": 5, "sha256": "0" * 64}
    (tmp_path / "x").write_text("mine")
    for content in ([b"hell"], [b"hello"]):
        with pytest.raises(Failed, match="broke off after"):
            export(file, content, str(tmp_path / "new"), may_replace=False)
        with pytest.raises(Failed, match="broke off after"):
            export(file, content, f"{tmp_path}/", may_replace=True)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("x", "mine")]


def test_it_is_a_command(gateway: Gateway) -> None:
    code, out, err = run_apart("files", "show", NOTE, "--url", gateway.base_url, env={"ISTHMUS_TOKEN": TOKEN})
    assert (code, err, rows(out)[0]) == (0, "", ["id", NOTE])


def test_an_unreachable_gateway_is_reported(tmp_path: Path, run: Run) -> None:
    gone = f"unix:{tmp_path}/gone"
    for arguments in ((), ("show", NOTE), ("export", NOTE), ("delete", NOTE)):
        complaint = f"isthmus: nothing listens at {gone}: start isthmus there, or name another --url"
        assert run(*arguments, "--url", gone) == (1, "", complaint)


# --- The pages ------------------------------------------------------------------------------------------------------


def fetch(gateway: Gateway, path: str, method: str = "GET", **headers: str) -> tuple[HTTPResponse, bytes]:
    connection = HTTPConnection(urlsplit(gateway.base_url).netloc, timeout=20)
    connection.request(method, path, headers={"Authorization": f"Bearer {TOKEN}", **headers})
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response, body


def test_the_pages_tell_of_files_and_hand_them_out(gateway: Gateway) -> None:
    """The content is served as any download: with ranges and conditions, and nothing that a browser would run."""
    _, listed = fetch(gateway, f"/files?session={OTHER_SID}")
    (plot,) = json.loads(listed)["files"]
    response, body = fetch(gateway, f"/files/{PLOT}")
    assert response.status == 200
    assert {**json.loads(body), "age_s": 0, "idle_s": 0, "expires_in_s": 0} == {
        **plot,
        "age_s": 0,
        "idle_s": 0,
        "expires_in_s": 0,
    }
    response, body = fetch(gateway, f"/files/{PLOT}/content")
    assert (response.status, body) == (200, CONTENT[PLOT])
    assert response.headers["content-disposition"].startswith('attachment; filename="plot.svg"')
    assert (response.headers["x-content-type-options"], response.headers["content-length"]) == ("nosniff", "3000")
    response, body = fetch(gateway, f"/files/{PLOT}/content", Range="bytes=6-11")
    assert (response.status, body) == (206, b"<svg/>")
    response, body = fetch(gateway, f"/files/{PLOT}/content", "HEAD")
    assert (response.status, body, response.headers["content-length"]) == (200, b"", "3000")
    for path, method, status in (
        ("/files/none", "GET", 404),
        ("/files/none/content", "GET", 404),
        ("/files/none", "DELETE", 404),
        (f"/files/{PLOT}/content", "DELETE", 405),
        (f"/files/{PLOT}", "POST", 405),
        ("/files?color=red", "GET", 400),
        ("/files?kind=image", "GET", 400),
        ("/files?server=c", "GET", 400),
    ):
        response, body = fetch(gateway, path, method)
        assert (response.status, json.loads(body)["code"]) == (status, status)
    assert fetch(gateway, f"/files/{PLOT}/content", Authorization="")[0].status == 401


def test_what_a_call_uses_is_not_deleted(gateway: Gateway) -> None:
    engine = gateway.hub.engine
    assert isinstance(engine, Engine)
    entry = Inside(engine).file_store._quota.find("upload", SID, NOTE)
    assert entry is not None
    Inside(engine).file_store.pin(entry)
    response, body = fetch(gateway, f"/files/{NOTE}", "DELETE")
    assert (response.status, json.loads(body)["error"]) == (409, f"the file {NOTE} is used by a call")
    Inside(engine).file_store.unpin(entry)
    assert fetch(gateway, f"/files/{NOTE}", "DELETE")[0].status == 200
    assert fetch(gateway, f"/files/{NOTE}")[0].status == 404


def test_files_are_counted(gateway: Gateway) -> None:
    fetch(gateway, f"/files/{NOTE}", "DELETE")
    _, text = fetch(gateway, "/metrics")
    found = {
        (sample.name, *(sample.labels[name] for name in ("server", "kind", "reason") if name in sample.labels)): (
            sample.value
        )
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
        if sample.name.startswith("isthmus_files")
    }
    assert found["isthmus_files", "a", "artifact"] == found["isthmus_files", "b", "artifact"] == 1
    assert found["isthmus_files", "a", "upload"] == found["isthmus_files_bytes", "a", "upload"] == 0
    assert found["isthmus_files_bytes", "b", "artifact"] == 200_000
    gone = {key[1:]: value for key, value in found.items() if key[0] == "isthmus_files_gone_total"}
    assert {key: value for key, value in gone.items() if value} == {("a", "upload", "deleted"): 1}
    assert len(gone) == 2 * 2 * 5
