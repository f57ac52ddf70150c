"""Stands in for the client that the conformance suite starts: isthmus in front of the suite's server, and a person.

    logged_in.py FOLDER ERA URL

starts `isthmus serve` with the suite's URL as a server that wants a login, and lists and calls its tools through it. An
error of isthmus that names a command is followed: the command is run, as a person would, and the request repeated. The
exit code is 1 if a request was refused for good.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "real"))
import rig

DOCUMENT: Final = "https://conformance-test.local/client-metadata.json"
"""The client id metadata document that the suite wants named."""
LOGINS_MAX: Final = 6
"""The most commands that the person runs for one request: more than isthmus asks for."""
LOGIN_TIMEOUT_S: Final = 20.0


def main(folder: Path, era: str, url: str) -> int:
    context: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    config = folder / "isthmus.json"
    server = {"id": "peer", "upstream": {"url": url, "era": era, "auth": auth_of(context, folder)}}
    settings = {"core": {"port": 0}, "storage": {"root": str(folder / "data")}, "servers": [server]}
    config.write_text(json.dumps(settings), encoding="utf-8")
    os.environ["XDG_STATE_HOME"] = str(folder / "state")
    os.environ["BROWSER"] = shlex.join([sys.executable, str(rig.CLIENTS / "browser.py"), "%s"])
    proxy = rig.Proxy([rig.ISTHMUS, "serve", "--quiet-start", config], folder=folder, tag=os.environ.get(rig.TAG_NAME))
    try:
        proxy.wait_ready()
        client = Client(proxy.url, folder / "logins.txt")
        is_answered = client.visit()
        proxy.terminate()
        return 0 if proxy.wait_exit() == 0 and is_answered else 1
    finally:
        if proxy.popen.poll() is None:
            proxy.kill()


def auth_of(context: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Returns the setting of the login, from what the suite says to its client."""
    if "private_key_pem" in context:
        key = folder / "key.pem"
        key.write_text(context["private_key_pem"], encoding="utf-8")
        key_settings = {"private_key": str(key), "algorithm": context["signing_algorithm"]}
        return {"type": "client_credentials", "client_id": context["client_id"], **key_settings}
    if "idp_id_token" in context:
        subject = folder / "id_token"
        subject.write_text(context["idp_id_token"], encoding="utf-8")
        client = {"client_id": context["client_id"], "client_secret": context["client_secret"]}
        provider = {"issuer": context["idp_issuer"], "client_id": context["idp_client_id"]}
        return {"type": "enterprise", **client, "provider": provider, "subject_token_file": str(subject)}
    if "client_secret" in context:
        is_of_person = os.environ["MCP_CONFORMANCE_SCENARIO"] == "auth/pre-registration"
        kind = "oauth" if is_of_person else "client_credentials"
        return {"type": kind, "client_id": context["client_id"], "client_secret": context["client_secret"]}
    return {"type": "oauth", "client_id": DOCUMENT}


class Client:
    """A client of 2025-11-25, and the person at its machine."""

    def __init__(self, url: str, log: Path) -> None:
        self._url = url
        self._log = log
        self._headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}

    def visit(self) -> bool:
        """Lists and calls the tools. Returns False if one was refused."""
        about = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "person", "version": "1"}}
        if not self._ask("initialize", about):
            return False
        self._post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        call = {"name": "test-tool", "arguments": {}}
        return all([self._ask("tools/list", {}), self._ask("tools/call", call), self._ask("tools/list", {})])

    def _ask(self, method: str, params: dict[str, Any]) -> bool:
        for _ in range(LOGINS_MAX):
            answer = self._post({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
            login = answer.get("error", {}).get("data", {}).get("login", {})
            with self._log.open("a", encoding="utf-8") as log:
                log.write(f"{method}: {json.dumps(answer)}\n")
            if "command" not in login:
                return "result" in answer
            words = shlex.split(login["command"])
            assert words[:2] == ["isthmus", "login"]
            done = subprocess.run(
                [rig.ISTHMUS, *words[1:]], capture_output=True, text=True, timeout=LOGIN_TIMEOUT_S, check=False
            )
            with self._log.open("a", encoding="utf-8") as log:
                log.write(f"{login['command']}: {done.returncode}\n{done.stdout}{done.stderr}\n")
            if done.returncode:
                return False
        return False

    def _post(self, message: dict[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(self._url, json.dumps(message).encode(), self._headers)
        try:
            with urllib.request.urlopen(request, timeout=LOGIN_TIMEOUT_S) as response:
                session = response.headers.get("mcp-session-id")
                if session is not None:
                    self._headers |= {"mcp-session-id": session, "mcp-protocol-version": "2025-11-25"}
                body = response.read().decode()
        except urllib.error.HTTPError as error:
            body = error.read().decode()
        text = next((line[5:] for line in body.splitlines() if line.startswith("data:")), body)
        found: dict[str, Any] = json.loads(text) if text.strip() else {}
        return found


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
