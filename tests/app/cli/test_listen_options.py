"""The addresses of `isthmus wrap` and `isthmus serve`, by their options."""

from __future__ import annotations

import pytest
from isthmus.app.base.errors import ConfigError
from isthmus.app.cli.arguments import parser
from isthmus.app.cli.listen_options import Address, address_of, with_address
from isthmus.app.config.settings import Core
from isthmus.app.config.tls_settings import Tls

TLS = Tls(certificate="c", key="k")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), Address("127.0.0.1", 8932)),
        (("--port", "9000"), Address("127.0.0.1", 9000)),
        (("--port", "0"), Address("127.0.0.1", 0)),
        (("--listen", "9000"), Address("127.0.0.1", 9000)),
        (("--listen", "localhost:9000"), Address("localhost", 9000)),
        (("--listen", "[::1]:9000"), Address("::1", 9000)),
        (("--host", "0.0.0.0", "--port", "9000"), Address("0.0.0.0", 9000)),
        (("--host", "[::1]"), Address("::1", 8932)),
        (("--listen", "unix:/s"), Address("127.0.0.1", None, "/s")),
        (("--listen", "stdio+unix:/s"), Address("127.0.0.1", None, "/s", True)),
    ],
)
def test_the_address_of_wrap(options: tuple[str, ...], expected: Address) -> None:
    assert address_of(parser().parse_args(["wrap", *options])) == expected


FILE = Core(host="10.0.0.1", port=80, unix_socket="/u")


@pytest.mark.parametrize(
    ("options", "core", "expected"),
    [
        ((), FILE, ("10.0.0.1", 80, "/u")),
        (("--port", "9000"), FILE, ("10.0.0.1", 9000, "/u")),
        (("--host", "::1"), FILE, ("::1", 80, "/u")),
        (("--listen", "9000"), FILE, ("127.0.0.1", 9000, None)),
        (("--listen", "h:0"), FILE, ("h", 0, None)),
        (("--listen", "unix:/s"), FILE, ("127.0.0.1", None, "/s")),
        (("--port", "9000"), Core(port=None, unix_socket="/u"), ("127.0.0.1", 9000, "/u")),
        (("--listen", "9000"), Core(tls=TLS), ("127.0.0.1", 9000, None)),
    ],
)
def test_the_address_of_serve(
    options: tuple[str, ...], core: Core, expected: tuple[str, int | None, str | None]
) -> None:
    """The options take precedence over the configuration, each for what it says."""
    found = with_address(core, parser().parse_args(["serve", *options]))
    assert (found.host, found.port, found.unix_socket) == expected


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--listen", ":9000"), "expected 127.0.0.1:9000 for this machine alone, or 0.0.0.0:9000 for others as well"),
        (("--listen", "9000", "--port", "1"), "got --listen and --port, expected --listen alone, or --host and --port"),
        (("--listen", "stdio", "--host", "h"), "got --listen and --host, expected --listen alone"),
        (("--listen", "65536"), "got --listen 65536, expected PORT or HOST:PORT, such as 127.0.0.1:8932"),
        (("--listen", "localhost"), "got --listen localhost, expected PORT or HOST:PORT"),
        (("--listen", "unix:/" + 200 * "s"), "expected a path of at most"),
        (("--host", "h:9000"), "got --host h:9000, expected a name or an address of this machine, and --port N beside"),
        (("--host", ""), "expected a name or an address"),
    ],
)
def test_options_that_say_no_address_are_refused(options: tuple[str, ...], complaint: str) -> None:
    for refuse in (
        lambda: address_of(parser().parse_args(["wrap", *options])),
        lambda: with_address(Core(), parser().parse_args(["serve", *options])),
    ):
        with pytest.raises(ConfigError) as caught:
            refuse()
        assert complaint in str(caught.value)


@pytest.mark.parametrize(
    ("options", "core", "complaint"),
    [
        (("--listen", "stdio"), Core(), "expected `isthmus serve --stdio`"),
        (("--listen", "stdio+unix:/s"), Core(), "expected unix:PATH; servers have a unix_socket for lines"),
        (("--listen", "unix:/s"), Core(tls=TLS), "core.tls is for a port, expected HOST:PORT"),
        (("--host", "h"), Core(port=None, unix_socket="/s"), "expected --port N beside it"),
    ],
)
def test_an_address_that_does_not_suit_serve_is_refused(options: tuple[str, ...], core: Core, complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        with_address(core, parser().parse_args(["serve", *options]))
    assert complaint in str(caught.value)


@pytest.mark.parametrize("text", ["x", "-1", "65536", "80 "])
def test_a_port_is_a_number(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("wrap", "serve"):
        with pytest.raises(SystemExit):
            parser().parse_args([command, f"--port={text}"])
        assert "expected a port from 0 to 65535; 0 takes a free one" in capsys.readouterr().err
