"""Tests of trying a server by hand, as a person does: `isthmus tools`, `call`, `read` and `prompt`."""

from __future__ import annotations

import json
import shlex
import signal
import sys
from pathlib import Path

import pytest
from command import Run, run, told, until

PEERS = Path(__file__).parents[1] / "peers"
HOTEL = [sys.executable, str(PEERS / "hotel.py")]
TOOLBOX = [sys.executable, str(PEERS / "toolbox.py")]
COMMAND = ("--", *HOTEL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the file of a client, which has two servers and one that does not start."""
    folder = tmp_path_factory.mktemp("trying")
    gone = {"command": sys.executable, "args": ["-c", "raise SystemExit('no key')"]}
    servers = {"hotel": {"command": HOTEL[0], "args": HOTEL[1:]}, "box": {"command": TOOLBOX[0], "args": TOOLBOX[1:]}}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    (folder / "bad.json").write_text(json.dumps({"mcpServers": {**servers, "gone": gone}}))
    return folder


def test_the_tools_of_all_servers_of_the_file_here_are_listed(folder: Path) -> None:
    code, out, err = run("tools", cwd=folder)
    assert (code, err) == (0, "no configuration given: mcp.json is taken")
    assert out.splitlines() == [
        "hotel: hotel 3, 4 tools",
        "  book  Books a room.",
        "  ask   Asks who you are.",
        "  draw",
        "  hang",
        "",
        "box: toolbox 1.2, 6 tools",
        *(f"  {name}" for name in ("echo", "ask", "progress", "wait", "environment", "die")),
        "",
        "arguments of a tool: isthmus tools ID TOOL",
    ]


def test_a_server_that_does_not_start_hides_no_other(folder: Path) -> None:
    code, out, _ = run("tools", "--json", "bad.json", cwd=folder)
    listed = json.loads(out)
    assert code == 1
    assert {id: len(one.get("tools", ())) for id, one in listed.items()} == {"hotel": 4, "box": 6, "gone": 0}
    assert "last stderr: no key" in listed["gone"]["error"]


def test_all_about_a_tool_and_how_to_call_it(folder: Path) -> None:
    code, out, _ = run("tools", "mcp.json", "hotel", "book", cwd=folder)
    assert code == 0
    assert out.splitlines() == [
        "book",
        "  Books a room. It takes a while.",
        "",
        "  city  string, required",
        "      Where to stay.",
        "  nights  integer, default 1",
        "  room  one of single, double",
        "",
        "  try: isthmus call mcp.json hotel book city=TEXT",
    ]
    called = shlex.split(out.splitlines()[-1].removeprefix("  try: isthmus "))
    assert run(*called, cwd=folder)[:2] == (0, '{"city": "TEXT"}')


def test_a_call_prints_what_the_tool_says_and_tells_the_rest_on_stderr() -> None:
    code, out, err = run("call", "book", "city=Rome", "--json", "nights=2", "room=double", *COMMAND)
    assert code == 0
    arguments = {"city": "Rome", "nights": 2, "room": "double"}
    assert json.loads(json.loads(out)["content"][0]["text"]) == arguments
    assert err.splitlines() == ["1 of 2", "hotel.py desk: info: looking"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("book", "city=Atlantis"), 1, "there is no hotel"),
        (
            ("book", "ctiy=Rome", "nights=few"),
            2,
            "isthmus: book: unknown argument ctiy; the nearest is city\nbook: nights: got 'few', expected integer\n"
            "book: city is missing\n  city  string, required\n      Where to stay.\n  nights  integer, default 1\n"
            "  room  one of single, double\ntry: isthmus call book city=TEXT -- ",
        ),
        (("bok", "city=Rome"), 2, "no tool bok at hotel.py; the nearest is book"),
        ((), 2, "got no tool, expected isthmus call TOOL -- "),
        (("ask",), 0, "hotel.py asks: Who are you?: declined, as there is no terminal to ask on\n"),
        (("book", "city=@none.txt"), 2, "none.txt cannot be read: No such file or directory"),
        (("book", "--arguments", "[]"), 2, "got --arguments that are no JSON object"),
        (("hang", "--timeout", "0"), 2, "got --timeout 0, expected seconds above 0"),
    ],
)
def test_what_is_wrong_says_what_is_right(words: tuple[str, ...], code: int, said: str, tmp_path: Path) -> None:
    found, output = told("call", *words, *COMMAND, cwd=tmp_path)
    assert said in output
    assert found == code


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("tools", "hotl"), "mcp.json has no server hotl; the nearest is hotel"),
        (("tools", "x.json", "hotel"), "x.json: cannot be read: No such file or directory"),
        (("call",), "got no server, expected one of hotel, box, all"),
        (("tools", "127.0.0.1:9/mcp"), "for a URL write http:// before it"),
        (("tools", "hotel", "--files"), "got --files with a server of a configuration"),
        (("read", "ftp://h/", "x"), "got the URL ftp://h/, expected http(s)://…"),
        (("tools", "hotel", "a", "b"), "got 2 words after the server, expected one at most"),
    ],
)
def test_a_server_that_is_not_there_is_named(words: tuple[str, ...], said: str, folder: Path) -> None:
    code, output = told(*words, cwd=folder)
    assert said in output
    assert code == 2


def test_an_image_is_named_and_saved_only_where_a_folder_is_given(tmp_path: Path) -> None:
    code, out, err = run("call", "draw", *COMMAND, cwd=tmp_path)
    assert (code, out) == (0, "")
    assert err.splitlines() == ["draw.png (image/png, 70 B)", "not saved: --save DIR writes it into a folder"]
    assert not list(tmp_path.iterdir())
    code, _, err = run("call", "draw", "--save", "made", *COMMAND, cwd=tmp_path)
    assert (code, err) == (0, "saved made/draw.png (image/png, 70 B)")
    assert (tmp_path / "made" / "draw.png").read_bytes().startswith(b"\x89PNG")


def test_resources_are_listed_and_read(tmp_path: Path) -> None:
    assert run("read", *COMMAND)[1].splitlines()[1:] == ["  hotel://rules  rules", "  hotel://logo   logo"]
    assert run("read", "hotel://rules", *COMMAND)[:2] == (0, "no pets")
    with (tmp_path / "logo").open("wb") as file:
        assert run("read", "hotel://logo", *COMMAND, stdout=file)[0] == 0
    assert (tmp_path / "logo").read_bytes().startswith(b"\x89PNG")


def test_prompts_are_listed_and_filled_in(folder: Path) -> None:
    assert run("prompt", "hotel", cwd=folder)[1] == "hotel: 1 prompt\n  greet guest=…  A greeting."
    assert run("prompt", "hotel", "greet", "guest=Ann", cwd=folder)[:2] == (0, "user:\nWelcome, Ann!")


@pytest.mark.parametrize("is_interrupted", [True, False])
def test_a_call_that_is_given_up_is_cancelled_at_the_server(is_interrupted: bool, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    timeout = () if is_interrupted else ("--timeout", "1")
    with Run("call", "hang", *timeout, "--env", f"SEEN={seen}", *COMMAND) as call:
        if is_interrupted:
            until(seen.exists, "the call to begin")
            call.signal(signal.SIGINT)
        assert call.wait_exit() == 1
    if is_interrupted or seen.exists():  # a slow start may take the whole second
        assert seen.read_text().split() == ["hang", "cancelled"]
    assert ("no answer within 1 s" in call.stderr) == (not is_interrupted)


def test_a_file_is_uploaded_where_files_are_taken_and_sent_as_text_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("milk")
    puppet = ("--", sys.executable, str(PEERS / "puppet.py"))
    code, out, err = run("call", "--files", "read", "path=@note.txt", *puppet, cwd=tmp_path)
    assert (code, out) == (0, "milk")
    assert err.startswith("path: note.txt is uploaded, the tool gets its handle")
    code, out, err = run("call", "book", "city=@note.txt", *COMMAND, cwd=tmp_path)
    assert (code, json.loads(out)) == (0, {"city": "milk"})
    assert err.startswith("city: the text of note.txt is sent")


def test_a_running_gateway_is_tried_by_its_url() -> None:
    with Run("wrap", "--listen", "127.0.0.1:0", *COMMAND) as gateway:
        url = gateway.wait_url()
        assert run("call", url, "book", "city=Oslo")[:2] == (0, '{"city": "Oslo"}')
