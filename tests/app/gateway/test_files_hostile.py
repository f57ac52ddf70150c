"""Hostile clients and servers of a proxy at work, on a real disk: nothing gets in, nothing gets out, and it goes on."""

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
from file_ground import ADAPTED, AUTO, Agent, Ground, artifacts, changed, proxy, puppet, until
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
def ground(tmp_path_factory: pytest.TempPathFactory, outside: Path) -> Iterator[Ground]:
    roots = (str(outside / "roots"),)
    with proxy(
        tmp_path_factory.mktemp("data"),
        *(changed(AUTO, artifact_roots=roots), changed(ADAPTED, artifact_roots=roots), MOVING),
        core=Core(port=0, drain_seconds=2.0),
        uploads=Uploads(max_file_bytes=1 << 20),
    ) as ground:
        yield ground


@pytest.fixture
def unharmed(ground: Ground, outside: Path) -> Iterator[None]:
    """Afterwards the secret is where it was and nowhere else, what was stored is stored, and the proxy is well."""
    before = ground.stored()
    yield
    assert (outside / "secret.txt").read_text() == SECRET
    after = ground.stored()
    assert before.items() <= after.items(), "nothing that was stored is changed or gone"
    for name in after.keys() - before.keys():
        with suppress(FileNotFoundError):  # what was refused is being removed
            assert SECRET.encode() not in (ground.root / name).read_bytes()
    assert ground.is_well()


pytestmark = pytest.mark.usefixtures("unharmed")


# --- Servers that play with the disk --------------------------------------------------------------------------------


@pytest.mark.parametrize("id", ["auto", "adapted", "moving"])
def test_links_lead_nowhere(id: str, ground: Ground, outside: Path) -> None:
    """To a file, to a folder, through each other, in circles, from the session's own folders and from a root."""
    agent = Agent(ground, id)
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


def test_a_file_that_is_swapped_for_a_link_is_never_followed(ground: Ground, outside: Path, tmp_path: Path) -> None:
    """A thread swaps file and link while calls are answered: what is taken is the file, whole, or nothing."""
    agent = Agent(ground, "auto")
    cwd = Path(agent.call("act", steps=[["write", "mark.txt", "x"]], text="x") and cwd_of(ground, "mark.txt"))
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
                assert ground.fetch(made["download_url"]).body == b"good"
    finally:
        stop.set()
        swapping.join()


def cwd_of(ground: Ground, mark: str) -> Path:
    """The working directory of the newest server that wrote that file."""
    found = sorted(ground.root.glob(f"workspaces/*/ws/{mark}"), key=lambda path: path.stat().st_mtime_ns)
    return found[-1].parent


def test_deep_folders_and_many_files_are_bounded_work(ground: Ground) -> None:
    """However many there are, an answer comes, a bounded number is taken, and all go with the session."""
    folder = ground.root / "workspaces"
    before = set(folder.iterdir())
    agent = Agent(ground, "auto")
    result = agent.call("act", steps=[["deep", ".", 300], ["many", "many", 1000]], text="done")
    assert 0 < len(artifacts(result)) <= 64
    assert "left for later calls" in result["_meta"]["artifact_error"]
    assert "than are watched" in result["_meta"]["artifact_error"]
    agent.end()
    until(lambda: set(folder.iterdir()) <= before, "its folders stayed")


def test_what_is_no_file_is_not_waited_for(ground: Ground) -> None:
    """A FIFO that nobody writes to, a socket, a device."""
    agent = Agent(ground, "auto")
    agent.call("act", steps=[["write", "fifo-mark.txt", "x"]])
    cwd = cwd_of(ground, "fifo-mark.txt")
    os.mkfifo(cwd / "pipe.txt")
    with socket.socket(socket.AF_UNIX) as server:
        folder = os.open(cwd, os.O_RDONLY)
        try:
            server.bind(f"/proc/self/fd/{folder}/sock.txt")
        finally:
            os.close(folder)
        text = "Saved to ./pipe.txt ./sock.txt /dev/zero /dev/stdin /proc/self/environ /proc/self/mem"
        assert artifacts(agent.call("act", text=text)) == []


def test_a_server_that_names_an_upload_of_another_session(ground: Ground) -> None:
    """Neither by its path, nor by guessing where it lies, nor by its handle in its own words."""
    owner = Agent(ground, "auto")
    handle = owner.upload("private.txt", b"private")
    owner.call("act", text=handle)
    (path,) = ground.root.glob(f"workspaces/*/*/{handle.rpartition('/')[2]}/private.txt")
    for id in ("auto", "adapted"):
        thief = Agent(ground, id)
        result = thief.call("act", text="nothing")
        for text in (str(path), os.path.relpath(path, path.parents[3] / "x" / "ws"), handle):
            say = {"content": [{"type": "text", "text": f"Saved to {text}"}], "structuredContent": {"path": text}}
            if id == "auto" and text == handle:
                assert thief.call("act", result=say)["isError"], "in its client's words it is refused"
                continue
            result = thief.call("act", result=say)
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
def test_no_part_of_a_url_leads_anywhere_else(odd: str, ground: Ground) -> None:
    """Server, session, artifact and file name of a link that is good otherwise."""
    agent = Agent(ground, "auto")
    (made,) = artifacts(agent.call("act", steps=[["write", "a.txt", "x"]]))
    url = urlsplit(made["download_url"])
    parts = url.path.split("/")
    for at in range(2, len(parts)):
        path = "/".join([*parts[:at], odd, *parts[at + 1 :]])
        for method in ("GET", "HEAD"):
            assert 400 <= ground.fetch(f"{path}?{url.query}", method=method).status < 500
    upload = urlsplit(agent.link())
    before = ground.stored()
    for path in (f"/upload/{odd}", f"/upload/auto/{odd}/{odd}", f"/upload/auto/../{odd}", f"/upload/{odd}/../auto"):
        reply = ground.fetch(f"{path}?{upload.query}", method="PUT", body=b"x", headers={"x-filename": "a"})
        assert 400 <= reply.status < 500, path
    assert ground.stored() == before
    assert ground.fetch(made["download_url"]).body == b"x"


@pytest.mark.parametrize(
    "name",
    ["../../../etc/cron.d/x", "/etc/passwd", "C:\\x\\evil.txt", "\\\\server\\share\\evil.txt", "CON", "a\0b", "a\nb",
     "..", ".", " ", "\u202etxt.exe", "e\u0301" * 300, "x" * 4096, ".isthmus", "-rf", "%2e%2e%2fx", "a\u2028b"],
)  # fmt: skip
def test_a_file_has_a_folder_of_its_own_whatever_it_is_called(name: str, ground: Ground) -> None:
    """Its name on the disk is one component in a folder that is ours; no other file is made."""
    agent = Agent(ground, "auto")
    reply = agent.put(name, b"named oddly")
    assert reply.status == 200
    handle = reply.json["upload_handle"]
    assert agent.text("act", steps=[["read", handle]], text="{0}") == "named oddly"
    (folder,) = ground.root.glob(f"workspaces/*/*/{handle.rpartition('/')[2]}")
    assert [path.name for path in folder.iterdir()] == [reply.json["upload"]["filename"]]
    form = (
        b'--x\r\nContent-Disposition: form-data; name="file"; filename="'
        + name.replace("\0", "").replace("\n", "").replace("\\", "\\\\").encode()
        + b'"\r\n\r\nx\r\n--x--\r\n'
    )
    headers = {"content-type": "multipart/form-data; boundary=x"}
    reply = ground.fetch(agent.link(), method="POST", headers=headers, body=form)
    assert reply.status == (200 if len(name) < 4096 else 400)


def _off_by_a_digit(link: str) -> str:
    return link[:-1] + ("1" if link.endswith("0") else "0")


def test_links_are_for_what_they_say_and_for_once(ground: Ground) -> None:
    """Of another server or session, for downloading or uploading, changed by a digit, spent: all are refused alike."""
    agent, other = Agent(ground, "auto"), Agent(ground, "adapted")
    link = agent.link()
    (made,) = artifacts(agent.call("act", steps=[["write", "a.txt", "x"]]))
    query, download = urlsplit(link).query, urlsplit(made["download_url"])
    before = ground.stored()
    for target in (
        f"/upload/adapted?{query}",
        f"/upload/auto?{download.query}",
        _off_by_a_digit(link),
        link.replace("mcp_upload_exp=", "mcp_upload_exp=9"),
        f"{link}&mcp_upload_sig={'0' * 64}",
        "/upload/auto",
    ):
        assert ground.fetch(target, method="PUT", headers={"x-filename": "a"}, body=b"x").status in (400, 401, 403)
    assert agent.put("a.txt", link=link, **{"mcp-session-id": other.headers["mcp-session-id"]}).status == 403
    for target in (f"{download.path}?{query}", _off_by_a_digit(made["download_url"]), download.path):
        assert ground.fetch(target).status in (400, 401, 403)
    assert ground.stored() == before
    assert agent.put("a.txt", link=link).status == 200
    assert agent.put("a.txt", link=link).status == 403, "spent"


def test_one_link_is_spent_once_by_many_at_once(ground: Ground) -> None:
    agent = Agent(ground, "auto")
    link = agent.link()
    with ThreadPoolExecutor(6) as threads:
        replies = list(threads.map(lambda number: agent.put(f"{number}.txt", link=link).status, range(6)))
    assert replies.count(200) == 1
    assert set(replies) <= {200, 403, 409}


def test_a_body_that_is_not_what_its_head_said_leaves_nothing(ground: Ground) -> None:
    """Cut off, or of a shape that is none."""
    agent = Agent(ground, "auto")
    before = ground.stored()
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
    until(lambda: ground.stored() == before, "something stayed")


def test_arguments_that_name_what_is_not_there(ground: Ground) -> None:
    """Handles with a way out in them reach no server; and whoever wants a path gets none of this machine's."""
    agent = Agent(ground, "adapted")
    sid, uid = agent.upload("a.txt").split("/")[3:]
    for path in (
        f"upload://sessions/{sid}/../../{uid}",
        f"upload://sessions/../{sid}/{uid}",
        f"upload://sessions/{sid}/{uid}%00",
        f"upload://sessions/{quote('../' + sid, safe='')}/{uid}",
        f"upload://sessions/{sid}/{uid[:-1]}",
        f"file://{ground.root}/state/link.key",
        str(ground.root / "state" / "link.key"),
    ):
        assert agent.call("read", path=path)["isError"]
    assert agent.text("act", steps=[["count"]], text="{0}") == "1"
    assert agent.call("save", path=str(ground.root / "state" / "link.key")).get("isError") in (None, False)
    assert len((ground.root / "state" / "link.key").read_bytes()) == 32, "it was written elsewhere"
