"""Runs released servers behind `isthmus wrap --files`, and counts which of their files reach a client: `make crossing`.

A file in crossing_steps/ names a server, its packages and the calls that make files. Each call is made with its path in
several forms, such as a bare name or a path outside of the session's folders, by a client of each era that reads what
the results name and knows no folder of this machine. The bytes on the disk are compared with the bytes that it reads.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

HERE: Final = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

import crossing_peers  # noqa: E402 (it lies beside this file)
import filing  # noqa: E402
import rig  # noqa: E402

HOME: Final = Path(os.environ.get("CROSSING_HOME", rig.ROOT / "build" / "crossing"))
"""The folder of all installed packages and all output."""
RESULTS: Final = HOME / "results"
STEPS: Final = HERE / "crossing_steps"

FORMS: Final = ("bare", "sub", "outside", "home", "tilde", "new", "own")
"""The forms of a path: a name; a name below a folder; an absolute path in a folder that exists, and in the home folder,
also with a tilde; the URI of a new artifact; and none, as with tools that choose it themselves."""
STAGED: Final = re.compile(r"/(in|ws|out)/[0-9a-f]{32}/")
"""The folders of copies of what a server is given."""
ERAS: Final = ("2025-11-25", "2026-07-28")


class Made(NamedTuple):
    """A file that a call made or changed.

    Attributes:
        place: the watched folder it lies in.
        path: its path below that folder.
    """

    place: str
    path: str
    size: int
    sha256: str

    def __str__(self) -> str:
        return f"{self.place}/{self.path} ({self.size} B)"


class Places:
    """The folders that a server could write to: those of its session, its home folder, a folder elsewhere and others.

    The path of the temporary one is short: browsers put sockets into it.
    """

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="crossing-"))
        self.folders = {name: self.root / name for name in ("storage", "home", "cwd", "log", "outside")}
        for folder in self.folders.values():
            folder.mkdir()
        self.folders["tmp"] = Path(tempfile.mkdtemp(prefix="c-"))

    def __getitem__(self, name: str) -> Path:
        return self.folders[name]

    def files(self) -> dict[Path, tuple[int, int]]:
        """Returns the stamps of all files that are there, without those that isthmus keeps for itself."""
        tops = [*(self[name] for name in ("home", "tmp", "cwd", "outside")), self["storage"] / "workspaces"]
        found = {}
        for top in tops:
            for folder, _, names in os.walk(top):
                for name in names:
                    path = Path(folder, name)
                    with contextlib.suppress(OSError):
                        stat = path.stat()
                        found[path] = (stat.st_mtime_ns, stat.st_size)
        return found

    def loose(self, globs: Sequence[str]) -> dict[Path, tuple[int, int]]:
        """Returns the files right below the system's temporary folder that have such a name."""
        found = {}
        for path in Path(tempfile.gettempdir()).iterdir():
            if any(fnmatch.fnmatch(path.name, glob) for glob in globs) and path.is_file():
                found[path] = (path.stat().st_mtime_ns, path.stat().st_size)
        return found

    def made(self, path: Path) -> Made:
        content = path.read_bytes()
        for name, folder in self.folders.items():
            if path.is_relative_to(folder):
                return Made(name, str(path.relative_to(folder)), len(content), filing.sha256(content))
        return Made("elsewhere", str(path), len(content), filing.sha256(content))

    def named_in(self, text: str) -> list[str]:
        """Returns which of these folders a text tells of."""
        return [name for name, folder in self.folders.items() if f"{folder}/" in text and name != "outside"]

    def end(self) -> None:
        for folder in (self.root, self["tmp"]):
            shutil.rmtree(folder, ignore_errors=True)


def path_in(form: str, name: str, places: Places) -> str:
    """Returns what an agent passes for a file of that name."""
    return {
        "bare": name,
        "sub": f"reports/{name}",
        "outside": f"{places['outside']}/{name}",
        "home": f"{places['home']}/{name}",
        "tilde": f"~/{name}",
        "new": f"artifact://new/{name}",
        "own": name,
    }[form]


class Step:
    """One call of a tool, as a file in crossing_steps/ has it.

    Attributes:
        is_folder: True if its path names a folder.
        makes: glob patterns of the names of the files that the call makes; empty if it makes none.
        forms: the forms of its path that are tried.
    """

    def __init__(self, number: int, spec: Mapping[str, Any]) -> None:
        self.tool: str = spec["tool"]
        self._args: dict[str, Any] = spec.get("args", {})
        self.name: str = spec.get("name", "")
        self.is_folder: bool = spec.get("folder", False)
        self.has_path = "{path}" in json.dumps(self._args)
        self.makes: list[str] = spec.get("makes", [self.name] if self.name else [])
        self.waits_s: float = spec.get("waits_s", 0.0)
        self.only: list[str] = spec.get("forms", [])
        self.number = number

    def is_in(self, form: str) -> bool:
        if self.only:
            return form in self.only
        return form != "own" or not self.has_path

    def arguments(self, form: str, places: Places, client: crossing_peers.Client) -> Any:
        return self._filled(self._args, form, places, client)

    def _filled(self, value: Any, form: str, places: Places, client: crossing_peers.Client) -> Any:
        if isinstance(value, dict):
            return {key: self._filled(item, form, places, client) for key, item in value.items()}
        if isinstance(value, list):
            return [self._filled(item, form, places, client) for item in value]
        if isinstance(value, str):
            name = self.name + "/" * (form == "new" and self.is_folder)
            value = value.replace("{path}", path_in(form, name, places))
            for sample in crossing_peers.SAMPLES:
                if f"{{{sample}}}" in value:
                    value = value.replace(f"{{{sample}}}", client.handle(sample))
            if "{last}" in value:
                value = value.replace("{last}", client.last)
        return value


class Outcome(NamedTuple):
    """The result of a call, beside the files on the disk.

    Attributes:
        lost: files that the client could not read, of those that the call was to make.
        late: those of the lost ones that came with a later call.
        said: what the result says of files that did not come.
        noise: artifacts that are no file which a call was to make, each with its SHA-256.
        shown: the folders of this machine that the result tells of.
        text: the beginning of the result's text.
    """

    step: Step
    made: list[Made]
    crossed: list[Made]
    lost: list[Made]
    late: list[Made]
    said: str
    is_error: bool
    noise: dict[str, str]
    others: list[Made]
    shown: list[str]
    broken: list[str]
    text: str

    @property
    def word(self) -> str:
        if self.broken:
            return "broken"
        if self.lost and self.lost == self.late:
            return "late"
        if self.lost:
            return "said" if self.said or self.is_error else "lost"
        if self.made:
            return "crossed"
        if not self.step.makes:
            return "error" if self.is_error else "fine"
        return "refused" if self.is_error else "nothing made"


def call(step: Step, form: str, places: Places, client: crossing_peers.Client) -> tuple[Outcome, dict[str, Any]]:
    """Makes the call, reads all that its result names and compares it with the files on the disk."""
    arguments = step.arguments(form, places, client)
    before = {**places.files(), **places.loose(step.makes)}
    began_at_ns = time.time_ns()
    result = client.call(step.tool, arguments)
    time.sleep(step.waits_s)
    after = {**places.files(), **places.loose(step.makes)}
    changed = [path for path, stamp in after.items() if before.get(path) != stamp]
    made: list[Made] = []
    others: list[Made] = []
    for path in changed:
        with contextlib.suppress(OSError):
            is_meant = any(fnmatch.fnmatch(str(path), f"*/{glob}") for glob in step.makes)
            file = places.made(path)
            if not (STAGED.search(file.path) and file.sha256 in client.known):
                (made if is_meant else others).append(file)
    read, broken = client.read_all(result)
    crossed = [file for file in made if file.sha256 in read.values()]
    lost = [file for file in made if file.sha256 not in read.values()]
    meant = {file.sha256 for file in made}
    meta = result.get("_meta") or {}
    whole = json.dumps(result, ensure_ascii=False)
    told = {**result, "_meta": None}
    outcome = Outcome(
        step=step,
        made=made,
        crossed=crossed,
        lost=lost,
        said=meta.get("artifact_error", ""),
        is_error=bool(result.get("isError")),
        late=[],
        noise={uri: digest for uri, digest in read.items() if digest not in meant},
        others=[file for file in others if file.place in ("outside", "cwd") or "/out/" in file.path],
        shown=[name for name in places.named_in(json.dumps(told, ensure_ascii=False)) if name != form],
        broken=broken,
        text=_text(result),
    )
    record = {
        "tool": step.tool,
        "arguments": arguments,
        "outcome": outcome.word,
        "made": [str(file) for file in made],
        "lost": [str(file) for file in lost],
        "others": [str(file) for file in others][:20],
        "noise": list(outcome.noise),
        "shown": outcome.shown,
        "broken": broken,
        "seconds": round((time.time_ns() - began_at_ns) / 1e9, 1),
        "result": crossing_peers.shortened(result),
        "size": len(whole),
    }
    return outcome, record


def _text(result: Mapping[str, Any]) -> str:
    texts = [block["text"] for block in result.get("content", []) if block.get("type") == "text"]
    return " ".join(" ".join(texts).split())[:300]


def run(server: crossing_peers.Server, form: str, era: str) -> list[Outcome]:
    """Starts the server, makes its calls in one form and writes what came to a file. Returns the outcomes."""
    steps = [step for number, spec in enumerate(server.steps) if (step := Step(number, spec)).is_in(form)]
    if not any(step.makes for step in steps):
        return []
    places = Places()
    env = {"HOME": str(places["home"]), "TMPDIR": str(places["tmp"])}
    outcomes, records = [], []
    try:
        options = ["--files", "--storage", places["storage"], *server.options()]
        with rig.wrap(*server.command(), folder=places["log"], options=options, env=env, cwd=places["cwd"]) as proxy:
            client = crossing_peers.CLIENTS[era](proxy.url)
            for step in steps:
                outcome, record = call(step, form, places, client)
                outcomes.append(outcome)
                records.append(record)
            awaited = {file.sha256 for outcome in outcomes for file in outcome.lost}
            for number, (outcome, record) in enumerate(zip(outcomes, records, strict=True)):
                late = [file for file in outcome.lost if file.sha256 in client.known]
                noise = {uri: digest for uri, digest in outcome.noise.items() if digest not in awaited}
                outcomes[number] = outcome = outcome._replace(late=late, noise=noise)
                record |= {"outcome": outcome.word, "noise": list(noise)}
            client.end()
    finally:
        places.end()
        RESULTS.mkdir(parents=True, exist_ok=True)
        record_file = RESULTS / f"{server.name}.{form}.{era}.json"
        record_file.write_text(json.dumps(records, indent=1, ensure_ascii=False) + "\n")
    return outcomes


def rows(server: crossing_peers.Server, form: str, era: str) -> Iterator[str]:
    """Yields the rows of the table of one run, one for each call that was to make files."""
    try:
        outcomes = run(server, form, era)
    except Exception as error:  # one server that does not start must not end all others
        yield f"| {server.name} | {form} | {era} | | failed | {' '.join(str(error).split())[-300:]} |"
        return
    for outcome in outcomes:
        if not outcome.step.makes and outcome.word == "fine" and not outcome.noise:
            continue
        notes = [f"lost {file}" for file in outcome.lost]
        notes += [f"noise {uri.rpartition('/')[2]}" for uri in outcome.noise]
        notes += [f"shows {name}" for name in outcome.shown]
        notes += [f"beside {file}" for file in outcome.others[:3]]
        notes += outcome.broken
        if outcome.said:
            notes.append(f"says {outcome.said}")
        if outcome.word in ("refused", "nothing made", "error", "lost"):
            notes.append(f"answers {outcome.text}")
        count = f"{len(outcome.crossed)}/{len(outcome.made)}"
        said = "; ".join(notes).replace("|", "¦")
        yield f"| {server.name} | {form} | {era} | {outcome.step.tool} | {outcome.word} {count} | {said} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], help="names of servers")
    parser.add_argument("--forms", nargs="*", default=FORMS, choices=FORMS)
    parser.add_argument("--eras", nargs="*", default=ERAS, choices=ERAS)
    options = parser.parse_args()
    servers = [crossing_peers.Server(path) for path in sorted(STEPS.glob("*.json"))]
    chosen = [server for server in servers if not options.only or server.name in options.only]
    counts: dict[str, int] = {}
    print("| server | path | era | tool | outcome, files crossed/made | notes |\n|---|---|---|---|---|---|")
    for server in chosen:
        server.install(HOME)
        for form in options.forms:
            for era in options.eras:
                for row in rows(server, form, era):
                    print(row, flush=True)
                    word = row.split("|")[5].split()[0]
                    counts[word] = counts.get(word, 0) + 1
    print("\n" + ", ".join(f"{word} {count}" for word, count in sorted(counts.items())))
    return 1 if counts.keys() & {"lost", "broken", "failed"} else 0


if __name__ == "__main__":
    sys.exit(main())
