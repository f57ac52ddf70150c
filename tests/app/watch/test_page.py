"""Tests of the live page in a browser, beside a stand-in of its gateway."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import random
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

import page_stand_in as stand_in
import pytest
from command import Run, Session
from isthmus.core.base.effects import Dial, Send
from isthmus.core.base.events import Cause, Connected, End, PipeOpening
from isthmus.core.base.plan import Kind, Plan, ServerPlan
from isthmus.core.trace import Recorder
from page_stand_in import HOSTILE, TOKEN, StandIn, dumps, request, session

ROOT: Final = Path(__file__).parents[3]
STATIC: Final = ROOT / "app/watch/static"
REAL: Final = Path(os.environ.get("ISTHMUS_REAL", ROOT / ".real"))
AXE: Final = REAL / "axe/node_modules/axe-core/axe.min.js"
CHROMIUM: Final = Path("/usr/bin/chromium")
SHIPPED_MAX_BYTES: Final = 80 * 1024
"""Bytes of all files, compressed: the page is there at once over a slow line."""
VENDORED_SHA256: Final = "72284e8e9079c87817145df1110f74e8a2aa040b2fc384922e18dfcb46fc1fd7"
"""The digest of `preact/standalone.module.js` in the package `htm` 3.1.1 of npm."""
TOOLBOX: Final = ROOT / "tests/app/peers/toolbox.py"
SIDES: Final = ("Request", "Response")
VIEWS: Final = ("live", "sequence", "sessions", "servers", "files", "tasks", "replay")


# --- Without a browser ----------------------------------------------------------------------------------------------


def test_the_vendored_module_is_the_released_one() -> None:
    assert hashlib.sha256((STATIC / "preact.js").read_bytes()).hexdigest() == VENDORED_SHA256
    assert "Apache License" in (STATIC / "LICENSE.htm").read_text()
    assert "MIT License" in (STATIC / "LICENSE.preact").read_text()


def test_the_files_are_small_and_name_no_other_host() -> None:
    files = [path for path in STATIC.rglob("*") if path.is_file()]
    assert sum(len(gzip.compress(path.read_bytes(), 9)) for path in files) <= SHIPPED_MAX_BYTES
    for path in files:
        if path.suffix in (".js", ".css", ".html"):
            hosts = set(re.findall(r"https?://([^/\"'`\s]+)", path.read_text()))
            assert hosts <= {"www.w3.org"}, path  # a name of XML, which nobody fetches


# --- In a browser ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is missing: apt-get install chromium")
    sync_api.expect.set_options(timeout=10_000)
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def gateway() -> Iterator[StandIn]:
    with stand_in.serving(StandIn()) as state:
        yield state


Open = Callable[..., Any]
INSIDE: Final = ("http://127.0.0.1:", "blob:", "chrome-extension:", "chrome:")
"""Addresses on this machine, of contents that the page made, and of the viewer of PDFs."""


@pytest.fixture
def open_page(browser: Any, gateway: StandIn) -> Iterator[Open]:
    """Opens the page. In the end nothing was written to the console, no script of a peer ran, and no other host was
    asked."""
    contexts: list[Any] = []
    wrong: list[str] = []
    allowed: list[str] = []

    def open(token: str | None = TOKEN, allow: str = "", **options: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1400, "height": 800}, **options})
        contexts.append(context)
        allowed.append(allow or "\0")
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on("console", lambda message: wrong.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        page.on("request", lambda asked: asked.url.startswith(INSIDE) or wrong.append(asked.url))
        page.goto(f"{gateway.base_url}/ui" + ("" if token is None else f"#token={quote(token)}"))
        return page

    yield open
    for context in contexts:
        context.close()
    assert [each for each in wrong if not any(allow in each for allow in allowed)] == []


def expect(locator: Any) -> Any:
    from playwright.sync_api import expect

    return expect(locator)


def rows(page: Any) -> Any:
    return page.locator(".all-rows .row")


def selected(page: Any) -> Any:
    return page.locator(".all-rows .row.selected")


def fill(gateway: StandIn) -> None:
    """Lets peers say something of everything that has a place in the page."""
    gateway.servers = [stand_in.server("files", "running"), stand_in.server("reports", "failed", last_error=HOSTILE)]
    gateway.tasks = [stand_in.task("t1", "working", message=HOSTILE), stand_in.task("t2", "completed")]
    stored = [
        stand_in.file("f1", "shot.png", "image/png", stand_in.PNG),
        stand_in.file("f2", "bill.pdf", "application/pdf", stand_in.PDF),
        stand_in.file("f3", f"notes {HOSTILE}.html", "text/html", HOSTILE.encode(), tool=""),
        stand_in.file("f4", "logo.svg", "image/svg+xml", stand_in.SCRIPT.encode()),
    ]
    gateway.files = {shown["id"]: (shown, content) for shown, content in stored}
    gateway.add(session("Xy3fQa", "claude-code 2.1", "files"), session("Zz", HOSTILE, "files", state="over"))
    gateway.message("client", "in", dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}))
    gateway.call(1, "read_file", {"path": "a"}, {"content": []})
    gateway.call(2, HOSTILE, {"text": HOSTILE}, {"isError": True}, outcome="tool error", ms=900.0)
    gateway.call(3, "write_file", {"n": 1}, {}, outcome="error", code=-32602, answered={"error": {"code": -32602}})
    gateway.add({"type": "stderr", "server": "files", "text": HOSTILE})


FILTERS: Final[dict[str, bool | str]] = {
    'outcome:error target:"read file" ms:<120': False,
    "outcome:error -client:cursor server:time": True,
    "sever:x": "Unknown word “sever:”. Did you mean “server:”?",
    "ms:soon": "“ms:” takes a number, such as ms:>100 or ms:<=2k. Got “soon”.",
    "outcome:bad": (
        "Unknown outcome “bad”. Known are result, error, tool-error, protocol-error, cancelled, unknown, open."
    ),
    "server:": "“server:” needs a value: the server, or the one that a profile chose.",
    'target:"x': 'The quote at character 8 has no end. Add a ".',
}
"""Each filter, and whether it shows a row, or what is wrong with it. `filters.json` has more."""

UNITS: Final = """async filters => {
  const {compile, complete} = await import("/ui/filter.js");
  const {parse} = await import("/ui/json.js");
  const {compare, countDifferences} = await import("/ui/diff.js");
  const {decode, plain} = await import("/ui/text.js");
  const row = {server: "files", client: "claude-code 2.1", method: "tools/call", target: "read file", state: "over",
    outcome: "tool error", ms: 120.4, servers: "files, time"};
  const said = filters.map(text => { const {test, error} = compile(text); return error || test(row); });
  const lines = (a, b) => compare(a === null ? null : parse(a).value, b === null ? null : parse(b).value).map(
    ({mark, left, right}) => [mark, left && (left.key ?? "") + left.text, right && (right.key ?? "") + right.text]);
  const completed = (text, at = text.length) => complete(text, at, () => ["files", "my files"]);
  return {
    said,
    offered: completed("client:x se").choices.map(each => each.text),
    values: completed("server:fi").choices.map(each => each.text),
    kept: lines('{"n": 12345678901234567890, "n": 1.0, "e": 1E+2, "s": "\\\\u0041"}', null).map(each => each[1]),
    renamed: lines('{"id":1,"a":[1]}', '{"id":12,"b":[]}'),
    listed: lines('[{"name":"a"},{"name":"b","v":1}]', '[{"name":"b","v":2}]'),
    same: countDifferences(compare(parse('{"a":[1,{}]}').value, parse(' { "a" : [1, {}] }').value)),
    broken: [parse('{"a":[1,').error, lines('{"a":[1,', null).length, parse("").value, parse("[".repeat(5000)).error],
    bytes: plain(decode(new Uint8Array([0x61, 0xff, 0xed, 0xa0, 0x80, 0xc3, 0xa9]))),
    hidden: plain("\\u202ea\\x1b[0m\\u{E0041}\\ud83d\\ude00\\ud800"),
  };
}"""


def test_filters_differences_and_texts(open_page: Open) -> None:
    found = open_page(None).evaluate(UNITS, list(FILTERS))
    assert dict(zip(FILTERS, found["said"], strict=True)) == FILTERS
    assert found["offered"] == ["server:", "session:"]
    assert found["values"] == ["files ", '"my files" ']
    assert found["kept"] == ["{", '"n"12345678901234567890', '"n"1.0', '"e"1E+2', '"s""\\u0041"', "}"]
    assert found["renamed"] == [
        ["same", "{", "{"],
        ["changed", '"id"1', '"id"12'],
        *(["left", '"a"[', None], ["left", "1", None], ["left", "]", None], ["right", None, '"b"[]']),
        ["same", "}", "}"],
    ]
    assert [mark for mark, *_ in found["listed"]] == ["same", *["left"] * 3, "same", "same", "changed", "same", "same"]
    assert found["same"] == 0
    assert found["broken"] == ["unreadable at character 8", 6, None, "unreadable at character 200"]
    assert found["bytes"] == "a‹0xFF›‹0xED›‹0xA0›‹0x80›é"
    assert found["hidden"] == "‹RLO›a‹ESC›[0m‹U+E0041›😀‹U+D800›"


def test_a_gateway_is_watched(open_page: Open, tmp_path: Path) -> None:
    """The page and the gateway mean the same: a call of a client is seen, opened, sent again, and stopped."""
    command = json.dumps([sys.executable, str(TOOLBOX)])
    config = f"core: {{port: 0}}\nui: {{actions: true}}\nservers: [{{id: tools, upstream: {{command: {command}}}}}]"
    (tmp_path / "c.yaml").write_text(config)
    with Run("serve", "--ui-listen", "127.0.0.1:0", "c.yaml", cwd=tmp_path) as gateway:
        page = open_page(None, allow="ERR_CONNECTION")  # in the end the gateway goes first
        page.goto(gateway.wait_line(r"shown at (\S+)")[1])
        expect(page.get_by_role("status").first).to_have_text("Connected")
        assert Session(gateway.wait_url()).call("echo", text=HOSTILE)
        call = rows(page).filter(has_text="echo")
        expect(call).to_contain_text("t 0")
        expect(call.locator(".outcome.result")).to_be_visible()
        call.click()
        expect(page.locator(".pair-box h3")).to_have_text([f"{name} the same JSON, other spaces" for name in SIDES])
        expect(page.locator(".pair-box").first).to_contain_text("\\u001b[31mred")
        page.get_by_role("tab", name="All messages").click()
        expect(page.locator(".list tbody tr")).to_have_count(4)
        page.keyboard.press("s")
        expect(page.locator("g.arrow.selected")).to_contain_text("tools/call echo")
        page.keyboard.press("1")
        page.keyboard.press("r")
        page.get_by_role("button", name="Send", exact=True).click()
        expect(page.locator(".run .chip")).to_have_text("the same result")
        page.keyboard.press("4")
        page.get_by_role("button", name="Stop").click()
        page.get_by_role("button", name="Stop it: sessions end").click()
        expect(page.locator(".card .state")).to_have_text("stopped")


def test_the_token_is_asked_for_and_leaves_the_address(gateway: StandIn, open_page: Open) -> None:
    page = open_page(None, allow="401")
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Open").click()
    expect(page.get_by_role("alert")).to_contain_text("expected the token of this page")
    page.get_by_label("Token").fill(TOKEN)
    page.keyboard.press("Enter")
    expect(page.get_by_text("Nothing recorded yet")).to_be_visible()
    page.goto(f"{gateway.base_url}/ui#token={quote(TOKEN)}")
    expect(page.get_by_role("status").first).to_have_text("Connected")
    assert "token" not in page.url
    page.reload()
    expect(page.get_by_role("status").first).to_have_text("Connected")
    gateway.token = "another"
    gateway.add(request(1, "x"))
    expect(page.get_by_role("alert")).to_contain_text("refused the token")


def test_rows_come_change_and_are_chosen_by_keys(gateway: StandIn, open_page: Open, tmp_path: Path) -> None:
    page = open_page()
    fill(gateway)
    expect(rows(page)).to_have_count(4)
    gateway.add(request(9, "slow", state="open", outcome="", ms=None))
    expect(rows(page).last).to_contain_text("open")
    gateway.add(request(9, "slow", ms=1234.5))
    expect(rows(page).last).to_contain_text("result")
    expect(rows(page)).to_have_count(5)
    for key in ("k", "ArrowUp", "j", "p"):
        page.keyboard.press(key)
    expect(selected(page)).to_contain_text("slow")
    expect(page.locator(".pins .row")).to_have_count(1)
    page.keyboard.press("g")
    expect(selected(page)).to_contain_text("initialized")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Message", exact=True)).to_contain_text("Received from claude-code 2.1")
    page.keyboard.press("Escape")
    page.keyboard.press(" ")
    gateway.add(request(10, "later"))
    expect(page.get_by_role("button", name="Paused")).to_contain_text("1 new")
    expect(rows(page)).to_have_count(5)
    page.keyboard.press(" ")
    expect(rows(page)).to_have_count(6)
    page.keyboard.press("/")
    page.keyboard.type("outcome:err")
    page.keyboard.press("Tab")
    expect(page.get_by_label("Filter", exact=True)).to_have_value("outcome:error ")
    expect(rows(page)).to_have_count(2)
    page.keyboard.type("sever:x")
    expect(page.locator("#filter-error")).to_contain_text("Did you mean “server:”?")
    expect(rows(page)).to_have_count(2)
    for _ in "sever:x":
        page.keyboard.press("Backspace")
    with page.expect_download() as download:
        page.get_by_role("button", name="Export").click()
    download.value.save_as(tmp_path / "rows.jsonl")
    saved = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert [each["outcome"] for each in saved] == ["tool error", "error"]
    page.get_by_role("button", name="Clear", exact=True).click()
    expect(page.get_by_text("Nothing recorded yet")).to_be_visible()


def test_a_message_is_shown_as_received_beside_as_sent(gateway: StandIn, open_page: Open) -> None:
    """Numbers, escapes and members of equal names are those of the bytes, and what is hidden is seen."""
    page = open_page()
    params = b'{"n":12345678901234567890,"a":1.0,"a":2,"p":"\xe2\x80\xae"}'
    received = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":%b}' % params
    sent = received.replace(b'"id":1,', b'"id":101,').replace(b'"a":2', b'"b":"[redacted]"')
    shared: dict[str, Any] = {"request": "1.0", "channel": 7}
    gateway.message("client", "in", received, request="1.0", headers=stand_in.HEADERS)
    gateway.message("server", "out", sent, redacted=["params.b"], **shared)
    gateway.message("server", "in", b'{"jsonrpc":"2.0","method":"notifications/progress","params":{}}', **shared)
    gateway.message("server", "in", b'{"jsonrpc":"2.0","id":101,"result":{"text":"\\u202e<b>one\\ntwo"}}', **shared)
    cut = b'{"jsonrpc":"2.0","id":1,"result":{"text":"' + b"x" * 100_000 + b'"}}'
    gateway.message("client", "out", cut, request="1.0", is_cut=True)
    gateway.add(request(1, "read_file"))
    rows(page).last.click()
    asked, answered = page.locator(".pair-box").all()
    expect(asked.locator("h3")).to_contain_text("3 differences")  # the id, a member that is gone, and one that is new
    expect(asked).to_contain_text("12345678901234567890")
    expect(asked).to_contain_text("1.0")
    expect(asked).to_contain_text("1 value redacted")
    expect(asked.locator(".hidden-char").first).to_have_text("RLO")
    expect(answered).to_contain_text("cut")
    expect(answered).to_contain_text("Cut here: the gateway keeps the first 66 kB of 100 kB.")
    answered.get_by_role("button", name="as text, 2 lines").click()
    expect(answered.locator(".text .hidden-char")).to_have_text("RLO")
    page.get_by_role("tab", name="Headers").click()
    expect(page.locator(".headers").first).to_contain_text("authorization")
    page.get_by_role("tab", name="Raw").click()
    expect(page.locator(".raw").first).to_contain_text('"n":12345678901234567890,"a":1.0,"a":2')
    page.get_by_role("tab", name="All messages").click()
    expect(page.locator(".list tbody tr")).to_have_count(5)
    page.keyboard.press("s")
    expect(page.locator("g.arrow")).to_have_count(5)
    page.locator("g.arrow").nth(2).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Message", exact=True)).to_contain_text("read_file")


def test_gaps_and_restarts_are_shown_and_no_message_comes_twice(gateway: StandIn, open_page: Open) -> None:
    page = open_page()
    gateway.add(request(1, "one"))
    expect(rows(page)).to_have_count(1)
    gateway.drop(1204)
    gateway.add(request(2, "two"))
    expect(rows(page).nth(1)).to_contain_text("1 204 records skipped")
    expect(rows(page)).to_have_count(3)
    gateway.restart()
    gateway.add(request(1, "three"))
    expect(rows(page).nth(3)).to_contain_text("The gateway has started again")
    expect(rows(page).nth(4)).to_contain_text("three")
    expect(rows(page)).to_have_count(5)


def test_rows_are_bounded_however_many_come(gateway: StandIn, open_page: Open) -> None:
    gateway.add(*(request(number, f"t{number}") for number in range(50_500)))
    page = open_page()
    expect(rows(page).last).to_be_visible()
    expect(page.locator(".count-of")).to_have_text("50\u202f000 of 50\u202f000", timeout=20_000)
    assert rows(page).count() < 100
    follow = page.get_by_role("button", name="Follow")
    page.mouse.move(600, 400)
    for distance, is_followed in ((-3000, "false"), (9000, "true")):
        page.mouse.wheel(0, distance)
        expect(follow).to_have_attribute("aria-pressed", is_followed)
    page.keyboard.press("g")
    expect(selected(page)).to_contain_text("t500")
    page.keyboard.press("G")
    expect(selected(page)).to_contain_text("t50499")


def test_servers_tasks_and_files_are_commanded(gateway: StandIn, open_page: Open) -> None:
    page = open_page()
    fill(gateway)
    gateway.replayed = b'{"result":{"n":1.0,"more":[]},"ms":12.5,"recorded":{"n":1.00}}'
    page.keyboard.press("4")
    page.get_by_role("button", name="Start", exact=True).click()
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("button", name="Stop it: sessions end").click()
    page.keyboard.press("6")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Cancel it for good").click()
    page.keyboard.press("5")
    expect(page.locator(".thumbnail img")).to_have_count(1)  # neither SVG nor HTML is drawn
    page.get_by_text("bill.pdf").click()
    expect(page.locator("iframe")).to_have_attribute("src", re.compile("^blob:"))
    page.keyboard.press("Escape")
    page.get_by_text("notes").click()
    expect(page.locator("dialog .raw")).to_contain_text("<script>boom()</script>")
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Delete it for good").click()
    expect(page.locator(".file")).to_have_count(3)
    page.keyboard.press("1")
    rows(page).nth(1).click()
    page.keyboard.press("r")
    page.get_by_role("button", name="Send", exact=True).click()
    expect(page.locator(".run")).to_contain_text("2 differences")
    assert [f"{method} {path}" for method, path, _ in gateway.commands] == [
        *("POST /servers/reports/start", "POST /servers/files/stop", "POST /tasks/t1/cancel"),
        *("DELETE /files/f3", "POST /ui/api/replay"),
    ]
    assert json.loads(gateway.commands[-1][2])["server"] == "files"


def traced() -> bytes:
    """Returns the trace of a client on a pipe that calls a tool of a server on a pipe."""
    lines: list[bytes] = []
    plan = Plan(servers=(ServerPlan(id="files", kind=Kind.PIPE),))
    engine = Recorder(plan, entropy=random.Random(1).randbytes, unix_at_zero=1790000000.0, write=lines.append)
    client = engine.new_channel()
    engine.receive_open(client, PipeOpening("files"), 1.0)
    about = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "tracer", "version": "3"}}
    begun = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": about}
    effects = engine.receive_message(client, dumps(begun), 1.1)
    server = next(each.channel for each in effects if isinstance(each, Dial))

    def answer(effects: list[Any], result: dict[str, Any], now: float) -> None:
        (asked,) = (json.loads(each.message) for each in effects if isinstance(each, Send) and each.channel == server)
        engine.receive_message(server, dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), now)

    known = {**about, "capabilities": {"tools": {}}, "serverInfo": {"name": "f", "version": "1"}}
    answer(engine.receive_open(server, Connected(), 1.2), known, 1.3)
    engine.receive_message(client, dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}), 1.4)
    call = {"jsonrpc": "2.0", "id": "x", "method": "tools/call", "params": {"name": "dig", "arguments": {}}}
    answer(engine.receive_message(client, dumps(call), 1.5), {"content": [], "isError": True}, 1.75)
    engine.receive_close(client, Cause(End.GONE), 2.0)
    return b"".join(lines)


def test_a_trace_is_read_in_the_browser(gateway: StandIn, open_page: Open) -> None:
    page = open_page()
    fill(gateway)
    page.keyboard.press("7")
    chosen = page.locator("input[type=file]")
    chosen.set_input_files({"name": "no.jsonl", "mimeType": "", "buffer": b'{"input":"handle_timeout"}\n'})
    expect(page.get_by_role("alert")).to_contain_text("no.jsonl is no trace")
    chosen.set_input_files({"name": "run.jsonl", "mimeType": "", "buffer": traced()})
    expect(page.locator(".banner")).to_contain_text("run.jsonl")
    call = rows(page).filter(has_text="dig")
    expect(call).to_contain_text("tracer 3")
    expect(call).to_contain_text("tool error")
    expect(call).to_contain_text("250")
    call.click()
    expect(page.locator(".pair-box h3").first).to_contain_text("the same but for the id")
    expect(page.locator(".pair-box").last).to_contain_text('"isError": true')
    page.get_by_role("button", name="Back to the gateway").click()
    expect(rows(page)).to_have_count(4)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_is_accessible(gateway: StandIn, open_page: Open, scheme: str, tmp_path: Path) -> None:
    """Pictures of all views are left in the folder that PICTURES names, else in that of the test."""
    pictures = Path(os.environ.get("PICTURES", tmp_path))
    if not AXE.exists():
        pytest.skip(f"{AXE} is missing: sh tests/real/setup.sh")
    page = open_page(color_scheme=scheme, reduced_motion="reduce")
    fill(gateway)
    expect(rows(page)).to_have_count(4)
    page.evaluate(AXE.read_text())
    check = "async () => (await axe.run(document, {resultTypes: ['violations']})).violations"
    states: list[tuple[str, tuple[str, ...]]] = [(view, (str(i),)) for i, view in enumerate(VIEWS, 1)]
    states += [("message", ("1", "G", "p", "Enter")), ("help", ("?",))]
    for name, keys in states:
        for key in keys:
            page.keyboard.press(key)
        expect(page.locator("dialog, .pair-box h3, .list, .card, .file, .panel, g.arrow, .row").first).to_be_visible()
        page.screenshot(path=pictures / f"{name}-{scheme}.png")
        serious = [each for each in page.evaluate(check) if each["impact"] in ("serious", "critical")]
        assert [(each["id"], each["nodes"][0]["html"][:200]) for each in serious] == [], name
    assert urlsplit(page.url).fragment == "live"
