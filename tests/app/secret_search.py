"""Secrets to plant, what may hold one, and a search for them in all that commands said."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote, quote_plus

from command import Run
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from isthmus.core.access.static_tokens import new_token

KEY: Final = ec.generate_private_key(ec.SECP256R1())
PEM: Final = KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()

STATIC: Final = new_token(lambda size: b"\x5a" * size)
SECRETS: Final[dict[str, str]] = {
    "a static token": STATIC,
    "a wrong static token": new_token(lambda size: b"\xa5" * size),
    "an opaque token": "0paque+token/of=alice~1",
    "a revoked token": "revoked+token/of=bob~2",
    "a token in a query": "token-in+a/query~3",
    "a client secret": "client+secret/of=service~4",
    "an introspection secret": "introspection+secret/at~5",
    "an access token": "access+token/of=service~6",
    "a refresh token": "refresh+token/of=person~7",
    "an authorization code": "authorization+code/of=person~8",
    "a management token": "management+token/of=ops~9",
    "a passed token": "passed+token/of=carol~10",
    "a header for a server": "api+key/for=server~11",
    "a variable for a process": "variable+for/process~12",
    "a password of a proxy": "password-of-a-proxy-13",
    "a key of the store": "5e" * 32,
    "a private key": "".join(PEM.splitlines()[1:-1]),
    "a line of a private key": PEM.splitlines()[2],
}

MAY_BE_IN: Final[dict[tuple[str, str], str]] = {
    ("the new token", "stdout of token new"): "a token is shown once, to be handed over",
    ("state", "stdout of login"): "a person opens the page by hand where no browser can be opened; it has no verifier",
    ("an upload link", "trace"): "a trace holds all messages, to be played again; only its owner can read it",
    ("a passed token", "trace"): "values of passed headers are input of the engine, as docs/operating.md says",
}


KNOWN_BY_CHARS: Final = 16


def forms_of(secret: str) -> set[bytes]:
    """Returns the texts by which a secret is known. Its beginning alone is enough."""
    secret = secret[:KNOWN_BY_CHARS]
    data = secret.encode()
    found = {data, quote(secret, safe="").encode(), quote_plus(secret).encode(), json.dumps(secret)[1:-1].encode()}
    for before in range(3):
        # The first and the last characters depend on what stands beside the secret.
        encoded = base64.b64encode(b"\0" * before + data)[4 if before else 0 :].rstrip(b"=")[:-1]
        found |= {encoded, encoded.translate(bytes.maketrans(b"+/", b"-_"))}
    return found


def parts_of_jwt(token: str) -> dict[str, str]:
    """Returns what of a JWT must not be told: its signature, and with it the whole; and its content."""
    _, content, signature = token.split(".")
    return {"the signature of a JWT": signature, "the content of a JWT": content}


class Said(NamedTuple):
    """All that was said, by its place."""

    texts: dict[str, bytes]

    def add(self, place: str, text: str | bytes) -> None:
        self.texts[place] = self.texts.get(place, b"") + (text.encode() if isinstance(text, str) else text) + b"\n"

    def add_run(self, name: str, *arguments: str, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> int:
        """Runs a command of isthmus to its end. Returns its code."""
        self.add("command lines", "\0".join(arguments))
        with Run(*arguments, env=env, cwd=cwd) as process:
            self.add_command_lines(process.pid)
            code = process.wait_exit()
            self.add(f"stdout of {name}", process.stdout)
            self.add(f"stderr of {name}", process.stderr)
        return code

    def add_command_lines(self, pid: int) -> None:
        """Adds the command lines of a process, and of those that it has started."""
        with contextlib.suppress(OSError):
            self.add("command lines", Path(f"/proc/{pid}/cmdline").read_bytes())
            for thread in Path(f"/proc/{pid}/task").iterdir():
                for child in (thread / "children").read_text().split():
                    self.add_command_lines(int(child))

    def add_folder(self, place: str, folder: Path) -> None:
        for path in folder.rglob("*"):
            if path.is_file():
                self.add(place, path.read_bytes())

    def leaks(self, secrets: Mapping[str, str]) -> list[str]:
        """Returns the places in which a secret is that is not allowed there."""
        return [
            f"{name} in {place}: …{text[max(text.find(form) - 200, 0) : text.find(form) + 60]!r}…"
            for name, secret in secrets.items()
            for place, text in self.texts.items()
            for form in forms_of(secret)
            if form in text and (name, place) not in MAY_BE_IN
        ]


def misplaced(settings: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields configurations in which a secret is of a wrong type, below a wrong name, or beside what excludes it."""
    secret = SECRETS["a client secret"]

    def changed(server: int, **upstream: object) -> dict[str, Any]:
        found = json.loads(json.dumps(settings))
        found["servers"][server]["upstream"] |= upstream
        return found

    for auth in (
        {"type": "client_credentials", "client_id": "c", "client_secret": [secret]},
        {"type": "client_credentials", "client_id": "c", "client_secrets": secret},
        {"type": "client_credentials", "client_secret": secret},
        secret,
    ):
        yield changed(2, auth=auth)
    yield changed(5, headers={"X-Api-Key": [secret]})
    yield changed(5, headers={f"X-Api-Key: {secret}": ""})
    yield changed(5, pass_headers={"Authorization": secret})
    yield changed(6, proxy=f"http://me:{secret}@")
    yield changed(6, proxy=f"ftp://me:{SECRETS['a password of a proxy']}@h")
    yield changed(0, env={"VARIABLE": [secret]})
    for introspect in (
        {"client_id": "c", "client_secret": 5, "x": secret},
        {"client_id": "c", "client_secret": [secret]},
    ):
        found = json.loads(json.dumps(settings))
        found["auth"]["issuers"][1]["introspect"] = introspect
        yield found
    for entry in (
        {"name": "ci", "sha256": STATIC},
        {"name": "ci", "token": STATIC},
        {"name": "ci", "sha256": "ab" * 32, "expires": STATIC},
    ):
        found = json.loads(json.dumps(settings))
        found["auth"]["tokens"] = [entry]
        yield found
    found = json.loads(json.dumps(settings))
    found["core"]["management"]["token"] = [secret]
    yield found
