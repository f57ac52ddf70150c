"""Tests of the choice of a proxy, and of what is said about one."""

from __future__ import annotations

import base64

import pytest
from each_row import each_row
from isthmus.core.wire.http.egress import Proxy, is_exempt, parse_proxy, proxy_for
from isthmus.core.wire.http.url import parse_url

P, Q = "http://p.example:3128", "http://q.example:8080"


@pytest.mark.parametrize(
    ("text", "scheme", "host", "port", "credentials"),
    [
        ("http://p.example:3128", "http", "p.example", 3128, b""),
        ("p.example:3128", "http", "p.example", 3128, b""),
        ("HTTP://p.example/", "http", "p.example", 80, b""),
        ("https://p.example", "https", "p.example", 443, b""),
        ("http://[::1]:3128", "http", "::1", 3128, b""),
        ("http://user:secret@p.example:3128", "http", "p.example", 3128, b"user:secret"),
        ("http://us%40er:se%3Acr%2Fet@p.example:1", "http", "p.example", 1, b"us@er:se:cr/et"),
        ("http://user@10.0.0.1:3128", "http", "10.0.0.1", 3128, b"user:"),
    ],
)
def test_urls_of_proxies(text: str, scheme: str, host: str, port: int, credentials: bytes) -> None:
    proxy = parse_proxy(text, "HTTP_PROXY")
    assert (proxy.scheme, proxy.host, proxy.port, proxy.source) == (scheme, host, port, "HTTP_PROXY")
    sent = b"Basic " + base64.b64encode(credentials) if credentials else b""
    assert proxy.headers == ([(b"proxy-authorization", sent)] if sent else [])
    assert "secret" not in repr(proxy)
    assert not sent or sent.decode()[6:] not in repr(proxy)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("socks5://secret:secret@p.example:1080", "SOCKS"),
        ("socks5h://p.example:1080", "SOCKS"),
        ("socks://p.example:1080", "SOCKS"),
        ("ftp://secret@p.example", "another URL"),
        ("http://", "another URL"),
        ("http://secret:secret@p.example:99999", "another host or port"),
        ("http://secret@[::zz]:1", "another URL"),
        ("http://secret@[1::2::3]:1", "another host or port"),
        ("http://p.example:0", "another host or port"),
        ("http://p.example:1/secret", "another URL"),
        ("http://sec\r\nret@p.ex\r\nample:1", "another URL"),
    ],
)
def test_urls_that_cannot_be_used_are_refused_without_their_credentials(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as refusal:
        parse_proxy(text, "ALL_PROXY")
    assert str(refusal.value).startswith("ALL_PROXY: got ") and "secret" not in str(refusal.value)


@each_row(
    ("url", "setting", "environ", "source"),
    [
        ("http://h/", None, {}, ""),
        ("http://h/", None, {"HTTP_PROXY": P}, "HTTP_PROXY"),
        ("http://h/", None, {"http_proxy": P, "HTTP_PROXY": Q}, "http_proxy"),
        ("http://h/", None, {"http_proxy": "", "HTTP_PROXY": Q}, ""),
        ("http://h/", None, {"HTTPS_PROXY": P}, ""),
        ("https://h/", None, {"HTTP_PROXY": P}, ""),
        ("https://h/", None, {"HTTPS_PROXY": P}, "HTTPS_PROXY"),
        ("https://h/", None, {"https_proxy": P}, "https_proxy"),
        ("ws://h/", None, {"HTTP_PROXY": P}, "HTTP_PROXY"),
        ("wss://h/", None, {"HTTPS_PROXY": P}, "HTTPS_PROXY"),
        ("wss://h/", None, {"ALL_PROXY": P}, "ALL_PROXY"),
        ("http://h/", None, {"all_proxy": P}, "all_proxy"),
        ("https://h/", None, {"ALL_PROXY": Q, "HTTPS_PROXY": P}, "HTTPS_PROXY"),
        ("http://h/", None, {"HTTP_PROXY": P, "REQUEST_METHOD": "GET"}, ""),
        ("http://h/", None, {"http_proxy": P, "REQUEST_METHOD": "GET"}, "http_proxy"),
        ("https://h/", None, {"HTTPS_PROXY": P, "REQUEST_METHOD": "GET"}, "HTTPS_PROXY"),
        ("http://h/", None, {"HTTP_PROXY": Q, "ALL_PROXY": P, "REQUEST_METHOD": "GET"}, "ALL_PROXY"),
        ("http://localhost/", None, {"HTTP_PROXY": P}, "HTTP_PROXY"),  # as httpx and curl, unless NO_PROXY names it
        ("http://127.0.0.1/", None, {"HTTP_PROXY": P, "NO_PROXY": "localhost,127.0.0.1"}, ""),
        ("http://h/", None, {"HTTP_PROXY": P, "no_proxy": "h"}, ""),
        ("http://h/", None, {"HTTP_PROXY": P, "no_proxy": "", "NO_PROXY": "h"}, "HTTP_PROXY"),
        ("http://h/", "none", {"HTTP_PROXY": Q}, ""),
        ("http://h/", P, {}, "--proxy"),
        ("http://h/", P, {"HTTP_PROXY": Q, "NO_PROXY": "*"}, "--proxy"),
        ("http://h/", "none", {"HTTP_PROXY": "socks5://s:1"}, ""),
        ("http://h/", None, {"HTTP_PROXY": "socks5://s:1", "NO_PROXY": "h"}, ""),
    ],
)
def test_which_proxy_a_url_goes_through(url: str, setting: str | None, environ: dict[str, str], source: str) -> None:
    proxy = proxy_for(parse_url(url), setting, "--proxy", environ)
    assert proxy == (parse_proxy(P, source) if source else None)


@pytest.mark.parametrize(
    ("no_proxy", "exempt", "others"),
    [
        ("", [], ["a.example"]),
        ("*", ["a.example", "10.0.0.1", "::1"], []),
        ("b.example, *", ["a.example"], []),
        ("example.com", ["example.com", "www.example.com", "EXAMPLE.com", "example.com."], ["wwwexample.com", "com"]),
        (".example.com", ["www.example.com", "a.b.example.com"], ["example.com", "wwwexample.com"]),
        ("*.example.com", ["www.example.com"], ["example.com"]),
        ("EXAMPLE.com.", ["www.example.com"], ["example.org"]),
        ("localhost", ["localhost"], ["127.0.0.1", "::1"]),
        ("a.example b.example,c.example", ["a.example", "b.example", "c.example"], ["d.example"]),
        ("example.com:8080", ["example.com:8080", "www.example.com:8080"], ["example.com", "example.com:80"]),
        ("10.0.0.1", ["10.0.0.1"], ["10.0.0.10", "110.0.0.1", "a.10.0.0.1.example"]),
        ("0.0.0.1", [], ["10.0.0.1"]),
        ("10.0.0.1:81", ["10.0.0.1:81"], ["10.0.0.1"]),
        ("10.0.0.0/8", ["10.1.2.3"], ["11.0.0.1", "a.example", "::1"]),
        ("10.1.2.3/8,nonsense/8", ["10.9.9.9"], ["nonsense"]),
        ("::1", ["::1", "0:0:0:0:0:0:0:1"], ["::2", "127.0.0.1"]),
        ("[::1]", ["::1"], ["::2"]),
        ("[::1]:443", ["::1"], ["::1:80"]),
        ("fd00::/8", ["fd12::1"], ["fe80::1"]),
        (",,.,:80", [], ["a.example"]),
    ],
)
def test_hosts_that_no_proxy_exempts(no_proxy: str, exempt: list[str], others: list[str]) -> None:
    def parts(text: str) -> tuple[str, int]:
        if text == "::1:80":
            return "::1", 80
        host, colon, port = text.rpartition(":") if text.count(":") == 1 else (text, "", "")
        return (host, int(port)) if colon else (text, 443)

    assert [host for host in exempt if not is_exempt(*parts(host), no_proxy)] == []
    assert [host for host in others if is_exempt(*parts(host), no_proxy)] == []


BASIC = ((b"proxy-authenticate", b'Basic realm="corp"'),)
NEGOTIATE = ((b"proxy-authenticate", b"Negotiate"), (b"proxy-authenticate", b"NTLM"))


@pytest.mark.parametrize(
    ("text", "source", "status", "headers", "words"),
    [
        (P, "HTTPS_PROXY", 407, BASIC, ["wants a user and a password", "USER:PASSWORD@p.example:3128 in HTTPS_PROXY"]),
        ("u:secret@p.example", "--proxy", 407, BASIC, ["refused the user and password", "in --proxy"]),
        ("u:secret@p.example", "--proxy", 401, (), ["refused the user and password (HTTP status 401)"]),
        (P, "HTTPS_PROXY", 407, NEGOTIATE, ["takes negotiate, ntlm, not Basic"]),
        (P, "https_proxy", 403, (), ["does not connect to h: HTTP status 403", "name h in NO_PROXY"]),
        (P, "upstream.proxy", 502, (), ["HTTP status 502", "correct upstream.proxy, or write none there"]),
    ],
)
def test_refusals_say_who_refused_and_what_mends_it(
    text: str, source: str, status: int, headers: tuple[tuple[bytes, bytes], ...], words: list[str]
) -> None:
    proxy = parse_proxy(text, source)
    said = proxy.explain_refusal(status, headers, "h")
    assert [word for word in (*words, proxy.where, source) if word not in said] == []
    assert "secret" not in said


def test_a_proxy_shows_no_credentials() -> None:
    assert repr(Proxy("http", "::1", 1, b"Basic c2VjcmV0", "ALL_PROXY")) == "Proxy('[::1]:1', source='ALL_PROXY')"
