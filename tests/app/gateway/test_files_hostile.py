"""Tests of files with hostile clients and servers, on a real disk: nothing gets in, nothing gets out, and the proxy
goes on."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from file_world import ADAPTED, AUTO, Agent, World, artifacts, changed, proxy, puppet, until
from isthmus.app.config.file_settings import ArtifactProducerAdapter, OutputLocator
from isthmus.app.config.settings import Core, Uploads
from isthmus.core.base.plan import LocatorMode

SECRET = "nobody else's business"
MOVING = puppet(
    "moving",
    adapters=(
        ArtifactProducerAdapter(tools=("act",), output_locator=OutputLocator(mode=LocatorMode.REGEX), move=True),
    ),
)


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder beside everything, with a secret in it; `roots` below it is an artifact root."""
    folder = tmp_path_factory.mktemp("outside")
    (folder / "secret.txt").write_text(SECRET)
    (folder / "roots").mkdir()
    return folder


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, outside: Path) -> Iterator[World]:
    roots = (str(outside / "roots"),)
    with proxy(
        tmp_path_factory.mktemp("data"),
        *(changed(AUTO, artifact_roots=roots), changed(ADAPTED, artifact_roots=roots), MOVING),
        core=Core(port=0, drain_seconds=2.0),
        uploads=Uploads(max_file_bytes=1 << 20),
    ) as world:
        yield world


def _blob_of(path: str) -> str:
    return path.removeprefix("blobs/").partition("~")[0]


@pytest.fixture
def unharmed(world: World, outside: Path) -> Iterator[None]:
    """Checks afterwards that the secret is where it was and nowhere else, that stored files are unchanged, and that
    the proxy is well."""
    blobs = {file.blob for file in world.gateway.hub.files()}  # others are of a refused file, which is being removed
    stored = world.stored().items()
    before = {name: digest for name, digest in stored if name.startswith("state/") or _blob_of(name) in blobs}
    yield
    assert (outside / "secret.txt").read_text() == SECRET
    after = world.stored()
    assert before.items() <= after.items(), "nothing that was stored is changed or gone"
    for name in after.keys() - before.keys():
        with suppress(FileNotFoundError):  # a refused file is being removed
            assert SECRET.encode() not in (world.root / name).read_bytes()
    assert world.is_well()


pytestmark = pytest.mark.usefixtures("unharmed")


# --- Servers that play with the disk --------------------------------------------------------------------------------


@pytest.mark.parametrize("id", ["auto", "adapted", "moving"])
def test_links_lead_nowhere(id: str, world: World, outside: Path) -> None:
    """The links lead to a file, to a folder, through each other, in circles, from the session's own folders and from
    a root."""
    agent = Agent(world, id)
    secret = str(outside / "secret.txt")
    steps = [
        ["link", "file.txt", secret],
        ["link", "folder", str(outside)],
        ["link", "hop.txt", "file.txt"],
        ["link", "round.txt", "round.txt"],
        ["link", "sub", "."],
        ["link", "up", ".."],
        ["link", str(outside / "roots" / f"{id}.txt"), secret],
    ]
    named = ["file.txt", "folder/secret.txt", "hop.txt", "round.txt", "sub/sub/sub/file.txt", "up/ws/file.txt"]
    named += [str(outside / "roots" / f"{id}.txt"), "folder", secret]
    text = " ".join(f"./{name}" if name[0] != "/" else name for name in named)
    result = agent.call("act", steps=steps, text=f"Saved to {text}")
    assert artifacts(result) == []
    assert SECRET not in json.dumps(result)
    assert artifacts(agent.call("act", text=f"Saved to {text}")) == []
    own = agent.call("act", steps=[["write", "own.txt", "own"]], text="Saved to {cwd}/sub/sub/own.txt")
    assert [made["filename"] for made in artifacts(own)] == ["own.txt"], "its own it may name as it likes"


def test_a_file_that_is_swapped_for_a_link_is_never_followed(world: World, outside: Path, tmp_path: Path) -> None:
    """A thread swaps file and link while calls are answered. Each answer takes the file, whole, or nothing."""
    agent = Agent(world, "auto")
    cwd = Path(agent.call("act", steps=[["write", "mark.txt", "x"]], text="x") and cwd_of(world, "mark.txt"))
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_text("good")
    bad.symlink_to(outside / "secret.txt")
    target, stop = cwd / "race.txt", threading.Event()
    folder, good_folder, bad_folder = cwd / "folder", tmp_path / "good_folder", tmp_path / "bad_folder"
    good_folder.mkdir()
    (good_folder / "secret.txt").write_text("good")
    bad_folder.symlink_to(outside)

    def swap() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            fresh = cwd / f".fresh{number}"
            fresh.write_text("good")
            os.replace(fresh, target)
            os.symlink(bad_folder if number % 2 else good_folder, fresh)
            os.replace(fresh, folder)
            os.symlink(bad, fresh)
            os.replace(fresh, target)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for _ in range(30):
            result = agent.call("act", text="Saved to ./race.txt and ./folder/secret.txt")
            assert SECRET not in json.dumps(result)
            for made in artifacts(result):
                assert world.fetch(made["download_url"]).body == b"good"
    finally:
        stop.set()
        swapping.join()


def cwd_of(world: World, mark: str) -> Path:
    """The working directory of the newest server that wrote that file."""
    found = sorted(world.root.glob(f"workspaces/*/ws/{mark}"), key=lambda path: path.stat().st_mtime_ns)
    return found[-1].parent


def test_deep_folders_and_many_files_are_bounded_work(world: World) -> None:
    """An answer comes however many files there are, a bounded number is taken, and all go with the session."""
    folder = world.root / "workspaces"
    before = set(folder.iterdir())
    agent = Agent(world, "auto")
    result = agent.call("act", steps=[["deep", ".", 300], ["many", "many", 1000]], text="done")
    assert 0 < len(artifacts(result)) <= 64
    assert "left for later calls" in result["_meta"]["artifact_error"]
    assert "than are watched" in result["_meta"]["artifact_error"]
    agent.end()
    until(lambda: set(folder.iterdir()) <= before, "its folders stayed")


def test_what_is_no_file_is_not_waited_for(world: World) -> None:
    """A FIFO without a writer, a socket and a device are skipped."""
    agent = Agent(world, "auto")
    agent.call("act", steps=[["write", "fifo-mark.txt", "x"]])
    cwd = cwd_of(world, "fifo-mark.txt")
    os.mkfifo(cwd / "pipe.txt")
    with socket.socket(socket.AF_UNIX) as server:
        folder = os.open(cwd, os.O_RDONLY)
        try:
            server.bind(f"/proc/self/fd/{folder}/sock.txt")
        finally:
            os.close(folder)
        text = "Saved to ./pipe.txt ./sock.txt /dev/zero /dev/stdin /proc/self/environ /proc/self/mem"
        assert artifacts(agent.call("act", text=text)) == []


def test_a_server_that_names_an_upload_of_another_session(world: World) -> None:
    """An upload of another session is reached neither by its path, nor by a guessed path, nor by its handle in a
    result."""
    owner = Agent(world, "auto")
    handle = owner.upload("private.txt", b"private")
    owner.call("act", text=handle)
    (path,) = world.root.glob(f"workspaces/*/*/{handle.rpartition('/')[2]}/private.txt")
    for id in ("auto", "adapted"):
        thief = Agent(world, id)
        result = thief.call("act", text="nothing")
        for text in (str(path), os.path.relpath(path, path.parents[3] / "x" / "ws"), handle):
            result_of_act = {
                "content": [{"type": "text", "text": f"Saved to {text}"}],
                "structuredContent": {"path": text},
            }
            if id == "auto" and text == handle:
                continue  # in its client's own words, which name what the same principal has
            result = thief.call("act", result=result_of_act)
            assert artifacts(result) == []
            assert "private" not in [block.get("text") for block in result["content"]]
    assert owner.text("act", steps=[["read", handle]], text="{0}") == "private"


# --- Clients --------------------------------------------------------------------------------------------------------

ODD = (
    "..",
    "%2e%2e",
    "%2e%2e%2f%2e%2e%2fstate",
    "%00",
    "%5c%5cserver",
    "x" * 4000,
    "%e2%80%ae",
    "%ff",
    "a%2fb",
    "~",
    "%0a",
)


@pytest.mark.parametrize("odd", ODD)
def test_no_part_of_a_url_leads_anywhere_else(odd: str, world: World) -> None:
    """Server, session, artifact and file name are changed in an otherwise valid link."""
    agent = Agent(world, "auto")
    (made,) = artifacts(agent.call("act", steps=[["write", "a.txt", "x"]]))
    url = urlsplit(made["download_url"])
    parts = url.path.split("/")
    for at in range(2, len(parts)):
        path = "/".join([*parts[:at], odd, *parts[at + 1 :]])
        for method in ("GET", "HEAD"):
            assert 400 <= world.fetch(f"{path}?{url.query}", method=method).status < 500
    upload = urlsplit(agent.link())
    before = world.stored()
    for path in (f"/upload/{odd}", f"/upload/auto/{odd}/{odd}", f"/upload/auto/../{odd}", f"/upload/{odd}/../auto"):
        reply = world.fetch(f"{path}?{upload.query}", method="PUT", body=b"x", headers={"x-filename": "a"})
        assert 400 <= reply.status < 500, path
    assert world.stored() == before
    assert world.fetch(made["download_url"]).body == b"x"


@pytest.mark.parametrize(
    "name",
    ["../../../etc/cron.d/x", "/etc/passwd", "C:\\x\\evil.txt", "\\\\server\\share\\evil.txt", "CON", "a\0b", "a\nb",
     "..", ".", " ", "\u202etxt.exe", "e\u0301" * 300, "x" * 4096, ".isthmus", "-rf", "%2e%2e%2fx", "a\u2028b"],
)  # fmt: skip
def test_a_file_has_a_folder_of_its_own_whatever_it_is_called(name: str, world: World) -> None:
    """The name on the disk is one component in a folder of ours, and no other file is made."""
    agent = Agent(world, "auto")
    reply = agent.put(name, b"named oddly")
    assert reply.status == 200
    handle = reply.json["upload_handle"]
    assert agent.text("act", steps=[["read", handle]], text="{0}") == "named oddly"
    (folder,) = world.root.glob(f"workspaces/*/*/{handle.rpartition('/')[2]}")
    assert [path.name for path in folder.iterdir()] == [reply.json["upload"]["filename"]]
    form = (
        b'--x\r\nContent-Disposition: form-data; name="file"; filename="'
        + name.replace("\0", "").replace("\n", "").replace("\\", "\\\\").encode()
        + b'"\r\n\r\nx\r\n--x--\r\n'
    )
    headers = {"content-type": "multipart/form-data; boundary=x"}
    reply = world.fetch(agent.link(), method="POST", headers=headers, body=form)
    assert reply.status == (200 if len(name) < 4096 else 400)


def _off_by_a_digit(link: str) -> str:
    return link[:-1] + ("1" if link.endswith("0") else "0")


def test_links_are_valid_for_one_purpose_and_once(world: World) -> None:
    """Links of another server, for the other direction, with a changed digit, or spent are all refused
    alike."""
    agent = Agent(world, "auto")
    link = agent.link()
    (made,) = artifacts(agent.call("act", steps=[["write", "a.txt", "x"]]))
    query, download = urlsplit(link).query, urlsplit(made["download_url"])
    before = world.stored()
    for target in (
        f"/upload/adapted?{query}",
        f"/upload/auto?{download.query}",
        _off_by_a_digit(link),
        link.replace("grant=", "grant=l"),
        f"{link}&grant={'0' * 64}",
        "/upload/auto",
    ):
        assert world.fetch(target, method="PUT", headers={"x-filename": "a"}, body=b"x").status in (400, 401, 403)
    for target in (f"{download.path}?{query}", _off_by_a_digit(made["download_url"]), download.path):
        assert world.fetch(target).status in (400, 401, 403)
    assert world.stored() == before
    assert agent.put("a.txt", link=link).status == 200
    assert agent.put("a.txt", link=link).status == 403, "spent"


def test_one_link_is_spent_once_by_many_at_once(world: World) -> None:
    agent = Agent(world, "auto")
    link = agent.link()
    with ThreadPoolExecutor(6) as threads:
        replies = list(threads.map(lambda number: agent.put(f"{number}.txt", link=link).status, range(6)))
    assert replies.count(200) == 1
    assert set(replies) <= {200, 403, 409}


def test_a_body_that_contradicts_its_head_leaves_nothing(world: World) -> None:
    """The body is cut off, or of an invalid form."""
    agent = Agent(world, "auto")
    before = world.stored()
    parts = urlsplit(agent.link())
    start = f"PUT {parts.path}?{parts.query} HTTP/1.1\r\nHost: {parts.netloc}\r\nX-Filename: a\r\n"
    for rest in (
        "Content-Length: 1000\r\n\r\nshort",
        "Content-Length: -5\r\n\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n\r\n123456",
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        "Transfer-Encoding: chunked\r\n\r\n5\r\nhel",
    ):
        with socket.create_connection((str(parts.hostname), parts.port or 0), timeout=20) as connection:
            connection.sendall((start + rest).encode())
            connection.shutdown(socket.SHUT_WR)
            assert b" 200 " not in connection.recv(4096)[:20]
    until(lambda: world.stored() == before, "something stayed")


def test_arguments_that_name_what_is_not_there(world: World) -> None:
    """A handle with a path in it does not reach the server, and a tool that takes paths gets none of this machine's."""
    agent = Agent(world, "adapted")
    sid, uid = agent.upload("a.txt").split("/")[3:]
    for path in (
        f"upload://sessions/{sid}/../../{uid}",
        f"upload://sessions/../{sid}/{uid}",
        f"upload://sessions/{sid}/{uid}%00",
        f"upload://sessions/{quote('../' + sid, safe='')}/{uid}",
        f"upload://sessions/{sid}/{uid[:-1]}",
        f"file://{world.root}/state/link.key",
        str(world.root / "state" / "link.key"),
    ):
        assert agent.call("read", path=path)["isError"]
    assert agent.text("act", steps=[["count"]], text="{0}") == "1"
    assert agent.call("save", path=str(world.root / "state" / "link.key")).get("isError") in (None, False)
    assert len((world.root / "state" / "link.key").read_bytes()) == 32, "it was written elsewhere"
