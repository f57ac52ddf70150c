"""The files of examples/run work: nginx passes every transport on, and systemd takes the unit."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from cryptography import x509
from issuing import Authority, client_context
from isthmus.app.config.addresses import shutdown_delay_of
from isthmus.app.config.load import loads
from rig import ROOT, free_ports, launched, listens, serve, until

pytestmark = pytest.mark.real

RUN: Final = ROOT / "examples/run"
HOST: Final = "mcp.example.com"
TOKEN: Final = "ist_of_a_test"
ALICE: Final = {"ALICE_SHA256": hashlib.sha256(TOKEN.encode()).hexdigest()}
AROUND: Final = """
daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{}}
http {{
    access_log off; client_body_temp_path {folder}; proxy_temp_path {folder};
    fastcgi_temp_path {folder}; uwsgi_temp_path {folder}; scgi_temp_path {folder};
    {site}
}}
"""
"""A configuration of nginx around a site, in place of that of Debian."""

HEADERS: Final = {
    "Host": HOST,
    "Authorization": f"Bearer {TOKEN}",
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
}


class Front:
    """nginx with the site of the example, in front of isthmus."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        self._port, self._context = port, context

    def connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection("localhost", self._port, context=self._context, timeout=30)

    def post(self, message: dict[str, Any], **more: str) -> tuple[http.client.HTTPResponse, bytes]:
        connection = self.connect()
        connection.request("POST", "/mcp", json.dumps({"jsonrpc": "2.0", **message}), {**HEADERS, **more})
        response = connection.getresponse()
        body = response.read()
        connection.close()
        return response, body


@pytest.fixture
def front(tmp_path: Path) -> Iterator[Front]:
    nginx = shutil.which("nginx")
    if nginx is None:
        pytest.skip("needs nginx")
    authority = Authority(tmp_path)
    certificate = authority.issue("server", x509.DNSName("localhost"), x509.DNSName(HOST))
    (port,) = free_ports(1)
    settings = yaml.safe_load((RUN / "isthmus.yaml").read_text())
    settings["core"]["port"] = 0
    settings["storage"]["root"] = str(tmp_path / "data")
    settings["servers"][0]["upstream"] = {"command": [sys.executable, "-m", "isthmus.app.commands.demo_server"]}
    config = tmp_path / "isthmus.yaml"
    config.write_text(yaml.safe_dump(settings))
    with serve(config, folder=tmp_path, env={**os.environ, **ALICE}) as proxy:
        site = (RUN / "nginx.conf").read_text()
        for there, here in (
            ("listen 443", f"listen 127.0.0.1:{port}"),
            ("http://127.0.0.1:8932", proxy.base_url),
            (f"/etc/nginx/{HOST}.pem", str(certificate)),
            (f"/etc/nginx/{HOST}.key", str(certificate.with_suffix(".key"))),
        ):
            assert there in site
            site = site.replace(there, here)
        (tmp_path / "nginx.conf").write_text(AROUND.format(folder=tmp_path, site=site))
        words = [nginx, "-c", str(tmp_path / "nginx.conf"), "-p", str(tmp_path)]
        subprocess.run([*words, "-t"], check=True, capture_output=True, timeout=30)
        with launched(words, folder=tmp_path, code=None) as process:
            until(lambda: listens(port), f"nginx listens, see {process.log}")
            yield Front(port, client_context(authority.path))


def test_nginx_passes_every_transport_on(front: Front) -> None:
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    response, body = front.post({"id": 1, "method": "initialize", "params": hello})
    assert response.status == 200, body
    session = {"Mcp-Session-Id": str(response.getheader("Mcp-Session-Id"))}
    assert front.post({"method": "notifications/initialized"}, **session)[0].status == 202
    response, body = front.post({"id": 2, "method": "tools/list"}, **session)
    assert b"count_words" in body

    stream = front.connect()  # the first line of an event stream comes at once, though more may follow
    stream.request("GET", "/sse", headers={**HEADERS, "Accept": "text/event-stream"})
    assert stream.getresponse().readline().startswith((b"event: endpoint", b":"))
    stream.close()

    socket = front.connect()
    handshake = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
    socket.request("GET", "/ws", headers={**HEADERS, **handshake, "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="})
    assert socket.getresponse().status == 101
    socket.close()

    assert front.post({"id": 3, "method": "tools/list"}, **session, Authorization="Bearer of another")[0].status == 401


@pytest.mark.parametrize("name", ["isthmus.service", "isthmus-workers.service"])
def test_systemd_takes_the_unit(name: str, tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("needs systemd-analyze")
    unit = (RUN / name).read_text()
    here = str(Path(sys.executable).with_name("isthmus"))
    assert "/opt/isthmus/bin/isthmus serve" in unit
    path = tmp_path / name
    path.write_text(unit.replace("/opt/isthmus/bin/isthmus", here))
    done = subprocess.run([program, "verify", str(path)], capture_output=True, text=True, timeout=60)  # noqa: PLW1510
    assert (done.returncode, done.stderr) == (0, "")


def test_the_manifest_asks_the_port_and_pages_that_there_are() -> None:
    made = {one["kind"]: one for one in yaml.safe_load_all((RUN / "kubernetes.yaml").read_text())}
    settings = loads(made["ConfigMap"]["data"]["isthmus.yaml"], "yaml", "/etc/isthmus", made["Secret"]["stringData"])
    (container,) = made["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert container["ports"][0]["containerPort"] == settings.core.port
    assert {volume["mountPath"] for volume in container["volumeMounts"]} == {"/etc/isthmus", settings.storage.root}
    assert made["Deployment"]["spec"]["replicas"] == 1
    entry = re.search(r"^ENTRYPOINT (.*)$", (RUN / "Dockerfile").read_text(), re.MULTILINE)
    assert entry
    assert json.loads(entry[1]) == ["isthmus", "serve", "/etc/isthmus/isthmus.yaml"]


def test_the_manifest_of_replicas_gives_each_pod_a_tag_and_an_address() -> None:
    made = {one["kind"]: one for one in yaml.safe_load_all((RUN / "kubernetes-replicas.yaml").read_text())}
    pod = made["StatefulSet"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    names = ("LINK_KEY", "STATE_KEY", "CLUSTER_SECRET", "ALICE_SHA256")
    values = dict.fromkeys(names, "80ef1e526e137bb5349d5d06311d5e86f1f9986838c4a44a11db1a09545abf36")
    values |= {"RECORDS_URL": "postgresql://isthmus:secret@db/isthmus", "POD_INDEX": "2", "POD_IP": "10.0.0.5"}
    settings = loads(made["ConfigMap"]["data"]["isthmus.yaml"], "yaml", "/etc/isthmus", values)
    assert settings.cluster is not None
    assert (settings.cluster.replica, settings.cluster.address) == ("r2", "http://10.0.0.5:8933")
    assert [port["containerPort"] for port in container["ports"]] == [settings.core.port, 8933]
    assert {volume["mountPath"] for volume in container["volumeMounts"]} == {
        "/etc/isthmus",
        settings.storage.root,
        "/tmp",
    }
    assert shutdown_delay_of(settings.core) + settings.core.drain_seconds < pod["terminationGracePeriodSeconds"]
