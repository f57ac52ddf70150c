"""Tests of a listener that speaks TLS: the commands, curl, the official SDK, and signals."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import shutil
import signal
import ssl
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from command import ISTHMUS, PATIENCE_S, Json, Run, in_background, run, until
from cryptography import x509
from issuing import Authority
from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client
from screens import unwrapped

TOOLBOX = [sys.executable, str(Path(__file__).parents[1] / "peers" / "toolbox.py")]
CALL = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def configured(folder: Path, authority: Authority, **rest: Json) -> Path:
    """A configuration with a certificate for localhost and one server."""
    path = authority.server()
    core = {"port": 0, "tls": {"certificate": path.name, "key": path.with_suffix(".key").name}}
    settings = {
        "core": core | rest.pop("core", {}),
        "storage": {"root": "data"},
        "servers": [{"id": "tools", "upstream": {"command": TOOLBOX}}],
    } | rest
    config = folder / "isthmus.json"
    config.write_text(json.dumps(settings))
    return config


ANY_PORT = ("--port", "0")


def listening(started: Run) -> str:
    """The address of a running isthmus, by its name in the certificate."""
    return started.wait_line(r"^isthmus \S+ listens on (https://\S+)")[1].replace("127.0.0.1", "localhost")


def serial(url: str, authority: Authority) -> int:
    """The serial number of the certificate that a new connection gets."""
    host, _, port = url.removeprefix("https://").partition(":")
    pem = ssl.get_server_certificate((host, int(port)), ca_certs=str(authority.path), timeout=PATIENCE_S)
    return x509.load_pem_x509_certificate(pem.encode()).serial_number


def curl(authority: Authority, *arguments: str) -> tuple[int, str]:
    """The exit code of curl, and the status that it got followed by what it read."""
    command = ["curl", "--silent", "--show-error", "--cacert", str(authority.path), "--max-time", str(PATIENCE_S)]
    done = subprocess.run(
        [*command, "--write-out", "%{stderr}%{http_code}", *arguments], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stderr + done.stdout


async def call_through_the_sdk(url: str, authority: Authority, certificate: Path | None = None) -> str:
    """Calls a tool with the official client, and returns its answer."""
    context = ssl.create_default_context(cafile=authority.path)
    if certificate is not None:
        context.load_cert_chain(certificate, certificate.with_suffix(".key"))

    def client(
        headers: dict[str, str] | None = None, timeout: httpx.Timeout | None = None, auth: httpx.Auth | None = None
    ) -> httpx.AsyncClient:
        return httpx.AsyncClient(headers=headers, timeout=timeout, auth=auth, verify=context)

    async with asyncio.timeout(PATIENCE_S), streamablehttp_client(url, httpx_client_factory=client) as (read, write, _):
        async with ClientSession(read, write) as session:
            await session.initialize()
            answer = await session.call_tool("echo", {"text": "hi"})
            return str(getattr(answer.content[0], "text", ""))


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_and_the_official_sdk_reach_a_server_over_https(tmp_path: Path, authority: Authority) -> None:
    """Links of uploads, and the lines to paste, begin with https as well."""
    with Run("serve", str(configured(tmp_path, authority)), cwd=tmp_path) as started:
        url = listening(started)
        assert curl(authority, f"{url}/healthz")[0] == 0
        code, said = curl(authority, url.replace("https", "http") + "/healthz")
        assert code != 0, "plain HTTP is not answered"
        assert '"status"' not in said
        assert asyncio.run(call_through_the_sdk(f"{url}/mcp", authority)) == "toolbox says hi"
        pasted = started.wait_line(r'"url": ?"(https?)://')[1]
        assert pasted == "https"
        started.signal(signal.SIGTERM)
        assert started.wait_exit() == 0


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_a_client_certificate_names_its_caller(tmp_path: Path, authority: Authority) -> None:
    """The group of its name manages servers. One without a name, and a client without one, are told what is wrong."""
    alice = authority.issue("alice", x509.RFC822Name("alice@example.com"))
    ci = authority.issue("ci", x509.DNSName("ci.example.com"))
    nameless = authority.issue("only-a-common-name")
    clients: Json = {"ca_file": authority.path.name, "groups": {"admin": ["alice@example.com"]}}
    config = configured(tmp_path, authority, auth={"client_certificates": clients})

    def asked(page: str, certificate: Path | None) -> str:
        shown = [] if certificate is None else ["--cert", certificate, "--key", certificate.with_suffix(".key")]
        code, said = curl(authority, *map(str, shown), f"{url}{page}")
        assert code == 0, said
        return said

    with Run("serve", str(config), cwd=tmp_path) as started:
        url = listening(started)
        assert asked("/servers", alice).startswith("200")
        assert asked("/servers", ci).startswith("403")
        assert "expected a client certificate" in asked("/servers", None)
        assert asked("/servers", None).startswith("401")
        assert "no usable URI" in asked("/servers", nameless)
        assert asyncio.run(call_through_the_sdk(f"{url}/mcp", authority, ci)) == "toolbox says hi"
        assert "denied: GET /servers from 127.0.0.1: no credentials" in started.stderr


def test_a_required_certificate_is_asked_for_in_the_handshake(tmp_path: Path, authority: Authority) -> None:
    clients: Json = {"ca_file": authority.path.name, "required": True}
    config = configured(tmp_path, authority, auth={"client_certificates": clients})
    with Run("serve", str(config), cwd=tmp_path) as started:
        url = listening(started)
        with pytest.raises((ssl.SSLError, OSError, httpx.HTTPError)):
            httpx.get(f"{url}/healthz", verify=ssl.create_default_context(cafile=authority.path))
        started.wait_line("no TLS with 127.0.0.1: it has shown no certificate", "stderr")


def test_sighup_renews_the_certificate_and_drops_no_connection(tmp_path: Path, authority: Authority) -> None:
    """A file that cannot be used is logged, and the certificate of before is served on."""
    path = tmp_path / "server.pem"
    with Run("serve", str(configured(tmp_path, authority)), cwd=tmp_path) as started:
        url = listening(started)
        first = serial(url, authority)
        with httpx.Client(verify=ssl.create_default_context(cafile=authority.path)) as kept:
            kept.get(f"{url}/healthz").raise_for_status()
            stream = kept.stream("GET", f"{url}/healthz")
            with stream as response:
                authority.server()
                started.signal(signal.SIGHUP)
                until(lambda: serial(url, authority) != first, "the certificate is renewed")
                assert response.read()
            second = serial(url, authority)
            good = path.read_bytes()
            path.write_text("half a file")
            started.signal(signal.SIGHUP)
            started.wait_line("the certificate stays as it was: core.tls.certificate .* holds no certificate", "stderr")
            assert serial(url, authority) == second
            path.write_bytes(good)
            kept.get(f"{url}/healthz").raise_for_status()
        started.signal(signal.SIGTERM)
        assert started.wait_exit() == 0


def test_calls_go_on_while_the_certificate_is_renewed(tmp_path: Path, authority: Authority) -> None:
    with Run("serve", str(configured(tmp_path, authority)), cwd=tmp_path) as started:
        url = listening(started)
        context = ssl.create_default_context(cafile=authority.path)

        def load() -> int:
            with httpx.Client(verify=context) as client:
                for _ in range(200):
                    client.get(f"{url}/healthz").raise_for_status()
            return 200

        loads = [in_background(load) for _ in range(3)]
        for number in range(5):
            seen = serial(url, authority)
            authority.server()
            started.signal(signal.SIGHUP)
            until(lambda seen=seen: serial(url, authority) != seen, f"renewal {number}")  # type: ignore[misc]
        until(lambda: all(loads), "all are answered")
        assert [list(each) for each in loads] == [[200]] * 3
        assert "ERROR" not in started.stderr.upper().replace("ERRORS", "")


def test_sighup_of_a_terminal_that_closes_stops_the_run(tmp_path: Path, authority: Authority) -> None:
    """A run that lived on without its terminal would hold its port."""
    config = configured(tmp_path, authority)
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.execv(str(ISTHMUS), [str(ISTHMUS), "serve", str(config)])
    shown = b""
    while b"listens on https://" not in shown:
        shown += os.read(terminal, 65536)
    os.close(terminal)
    ended: list[int] = []

    def has_ended() -> bool:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            ended.append(os.waitstatus_to_exitcode(status))
        return bool(found)

    try:
        until(has_ended, "it ends with its terminal")
    finally:
        if not ended:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    assert ended == [0]


def test_sighup_in_a_terminal_that_stays_renews(tmp_path: Path, authority: Authority) -> None:
    config = configured(tmp_path, authority)
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.execv(str(ISTHMUS), [str(ISTHMUS), "serve", str(config)])
    try:
        shown = b""
        while b"listens on https://" not in shown:
            shown += os.read(terminal, 65536)
        url = "https://localhost:" + shown.partition(b"https://")[2].partition(b":")[2].split()[0].decode()
        first = serial(url, authority)
        authority.server()
        os.kill(pid, signal.SIGHUP)
        until(lambda: serial(url, authority) != first, "the certificate is renewed")
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)


def test_wrap_speaks_tls(tmp_path: Path, authority: Authority) -> None:
    path = authority.server()
    tls = ("--tls-certificate", path.name, "--tls-key", path.with_suffix(".key").name)
    with Run("wrap", *ANY_PORT, *tls, "--", *TOOLBOX, cwd=tmp_path) as started:
        url = listening(started)
        assert asyncio.run(call_through_the_sdk(f"{url}/mcp", authority)) == "toolbox says hi"
        with Run("wrap", *ANY_PORT, f"{url}/mcp") as refused:
            refused.wait_line("again  ")
            said = " ".join(refused.stdout.split())
            assert "in --ca-file or the environment variable SSL_CERT_FILE; --insecure goes without" in said
        with Run("wrap", *ANY_PORT, "--insecure", f"{url}/mcp") as unchecked:
            unchecked.wait_line("^localhost-[0-9]+ +ready ")
            unchecked.wait_line(r"its certificate is not checked \(--insecure\): anybody on the way can", "stderr")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--tls-key", "a.key"), 2, "got --tls-key without --tls-certificate, expected both"),
        (("--tls-certificate", "a.pem"), 2, "got --tls-certificate without --tls-key, expected both"),
        (
            ("--tls-certificate", "a.pem", "--tls-key", "a.key", "--listen", "stdio"),
            2,
            "expected them with --listen HOST:PORT only",
        ),
        (
            ("--tls-certificate", "a.pem", "--tls-key", "a.key", "--listen", "unix:/tmp/s"),
            2,
            "expected them with --listen HOST:PORT only",
        ),
        (("--tls-certificate", "a.pem", "--tls-key", "a.key"), 1, "--tls-certificate {folder}/a.pem is missing"),
    ],
)
def test_wrap_says_what_is_wrong(tmp_path: Path, arguments: tuple[str, ...], code: int, said: str) -> None:
    found, _, stderr = run("wrap", *arguments, "--", "true", cwd=tmp_path)
    assert found == code
    assert said.format(folder=tmp_path) in stderr


def test_check_and_serve_say_what_is_wrong_with_a_file(tmp_path: Path, authority: Authority) -> None:
    config = configured(tmp_path, authority)
    code, stdout, _ = run("check", str(config), cwd=tmp_path)
    assert (code, "all checks passed" in stdout) == (0, True)
    authority.server("server", lasts_s=-60)
    code, stdout, _ = run("check", str(config), cwd=tmp_path)
    assert (code, f"WARNING core.tls.certificate {tmp_path}/server.pem has expired on " in unwrapped(stdout)) == (
        1,
        True,
    )
    code, _, stderr = run("serve", str(config), cwd=tmp_path)
    assert (code, f"isthmus: core.tls.certificate {tmp_path}/server.pem has expired on " in stderr) == (1, True)
