"""Tests of official SDKs through a transparent server, in both eras and on both drivers, with and without nginx between
Isthmus and the server."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from rig import free_ports, launched, listens, run_client, start_server, until, wrap
from test_sdk_pairs import HANDSHAKE, SEEN, STATELESS, VISITORS, WORKSHOPS

pytestmark = pytest.mark.real

NGINX: Final = """
daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{}}
http {{
    access_log off; client_body_temp_path {folder}; proxy_temp_path {folder};
    fastcgi_temp_path {folder}; uwsgi_temp_path {folder}; scgi_temp_path {folder};
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass {behind}; proxy_http_version 1.1; proxy_set_header Connection "";
            proxy_set_header Host $proxy_host; proxy_buffering off;
        }}
    }}
}}
"""

MEETINGS: Final = (
    ("python-1", "python-1", HANDSHAKE),
    ("python-2", "python-2", STATELESS),
    ("typescript-1", "python-1", HANDSHAKE),
    ("typescript-2", "typescript-2-modern", STATELESS),
)


@contextlib.contextmanager
def served(server: str, folder: Path, *, by_nginx: bool) -> Iterator[str]:
    """Yields the URL of an SDK's server, or of nginx in front of it."""
    workshop = WORKSHOPS[server]
    process, url = start_server([*workshop.command, "http", *workshop.arguments], "mcp", folder=folder)
    with contextlib.ExitStack() as stack:
        stack.callback(process.clean_up)
        nginx = shutil.which("nginx")
        if not by_nginx or nginx is None:
            yield url
            return
        (port,) = free_ports(1)
        config = folder / "nginx.conf"
        config.write_text(NGINX.format(folder=folder, port=port, behind=url.removesuffix("/mcp")))
        stack.enter_context(launched([nginx, "-c", str(config), "-e", "stderr"], folder=folder))
        until(lambda: listens(port), "nginx listens")
        yield f"http://127.0.0.1:{port}/mcp"


def ways() -> list[object]:
    """Returns each meeting on each way to its server, and with each driver: half of the combinations, in which each two
    come together."""
    found = []
    for number, meeting in enumerate(MEETINGS):
        for by_nginx in (False, True):
            driver = "anyio" if by_nginx ^ (number % 2 == 0) else "protocols"
            name = f"{meeting[0]}--{meeting[1]}-{'by nginx' if by_nginx else 'alone'}-{driver}"
            found.append(pytest.param(*meeting, by_nginx, driver, id=name))
    return found


@pytest.mark.parametrize(("client", "server", "revision", "by_nginx", "driver"), ways())
def test_a_client_sees_through_the_relay_what_it_sees_directly(
    tmp_path: Path, client: str, server: str, revision: str, by_nginx: bool, driver: str
) -> None:
    if by_nginx and shutil.which("nginx") is None:
        pytest.skip("needs nginx")
    visitor = VISITORS[client]
    with served(server, tmp_path, by_nginx=by_nginx) as url:
        with wrap(url, folder=tmp_path, options=["--no-inspect"], env={"ISTHMUS_DRIVER": driver}) as proxy:
            seen = dict(run_client(visitor.script, proxy.url, [visitor.session], folder=tmp_path)[0])
    assert seen.pop("revision") == revision
    seen.pop("missing")
    assert seen == SEEN
