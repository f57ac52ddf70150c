"""Official clients over TLS: what they trust is an authority that their environment names."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import pytest
from issuing import Authority
from rig import run_client, wrap

pytestmark = pytest.mark.real

TOOLBOX: Final = Path(__file__).resolve().parents[1] / "app/peers/toolbox.py"
TEXT: Final = "é" * 50_000
STEPS: Final = [
    {"op": "tools"},
    {"op": "call", "name": "echo", "arguments": {"text": TEXT}},
    {"op": "call", "name": "echo", "arguments": {"text": "again"}},
]


@pytest.mark.parametrize(
    ("client", "transport"),
    [
        ("python-1", "url"),
        ("python-1", "sse_url"),
        ("python-1", "socket_url"),
        ("python-2", "url"),
        ("typescript-1", "url"),
        ("typescript-1", "sse_url"),
    ],
)
def test_official_clients_speak_every_transport_over_tls(
    client: str, transport: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    path = authority.server()
    for name in ("SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"):
        monkeypatch.setenv(name, str(authority.path))
    options = ["--tls-certificate", path, "--tls-key", path.with_suffix(".key")]
    with wrap(sys.executable, str(TOOLBOX), folder=tmp_path, options=options) as proxy:
        url = getattr(proxy, transport)
        assert "s://127.0.0.1:" in url
        events = run_client(client, url, [{"capabilities": "none", "steps": STEPS}], folder=tmp_path)
    results = [event["result"] for event in events if event["kind"] == "step"]
    texts = [result["content"][0]["text"] for result in results[1:]]
    assert texts == [f"toolbox says {TEXT}", "toolbox says again"]
