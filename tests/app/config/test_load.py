"""Tests of configurations: the settings they become, the errors that refuse them, and agreement with the schema."""

from __future__ import annotations

import json
import logging
import sys
from contextlib import nullcontext, suppress
from decimal import Decimal
from pathlib import Path

import jsonschema
import msgspec
import pytest
import yaml
from each_row import each_row
from hypothesis import given
from hypothesis import strategies as st
from isthmus.app.base.errors import ConfigError
from isthmus.app.base.sizes import parse_size
from isthmus.app.config.addresses import shown_names
from isthmus.app.config.documents import expand
from isthmus.app.config.file_settings import ArtifactProducerAdapter, UploadConsumerAdapter
from isthmus.app.config.load import load, loads, schema
from isthmus.app.config.plan import to_limits, to_plan
from isthmus.app.config.settings import Settings
from isthmus.app.runtime.listeners import surface_of
from isthmus.core.base.governance import RateLimit
from isthmus.core.base.limits import Limits
from isthmus.core.base.name_filter import NameFilter
from isthmus.core.base.plan import (
    Affinity,
    ArtifactProducer,
    AutoFiles,
    Deliver,
    Eviction,
    FileScope,
    Kind,
    Links,
    LocatorMode,
    Offer,
    OutputLocator,
    Plan,
    ServerPlan,
    SharedFolder,
    Sharing,
    TaskRules,
    UploadConsumer,
)
from isthmus.core.base.regex import compile_regex
from isthmus.core.base.revisions import Era

EXAMPLES = Path(__file__).parents[3] / "examples"
SCHEMA = jsonschema.Draft202012Validator(schema())

MINIMAL = """
servers:
  - {id: a, upstream: {command: [x]}}
"""
FULL_YAML = """
core: {host: 0.0.0.0, port: "${PORT:-81}", public_base_url: "https://mcp.example/x/", allow_artifacts_download: false,
       allowed_hosts: [mcp.example], allowed_origins: ["https://app.example"], log_level: "${LEVEL}",
       keep_alive_seconds: 8, max_request_bytes: 20Mi, drain_seconds: 2.5}
storage: {root: "${ROOT:-kept}", max_size: 2Gi}
sessions: {eviction_policy: none, file_scope: session, tombstone_ttl_seconds: 61,
           idle_ttl_seconds: 60, max_active: 5, max_in_flight_per_session: 6, max_total_session_size: 1MB,
           upstream_session_termination_retries: 0}
uploads: {enabled: false, max_file_bytes: 512k, ttl_seconds: 10, require_sha256: true, max_files_per_request: 3,
          link_ttl_seconds: 4}
artifacts: {enabled: false, ttl_seconds: 11, max_per_session: 12, max_file_bytes: 1.5Ki, expose_as_resources: false,
            max_inline_bytes: 100}
tasks: {ttl_seconds: 13, max_ttl_seconds: 14, poll_interval_ms: 1500, after_seconds: 0.5, max_total: 15,
        max_per_principal: 16, max_per_session: 17}
servers:
  - id: one
    upstream: {command: [run, "${ARG}", "$$HOME"], env: {A: "1", B: "a${ARG}b"}, cwd: work, inherit_env: true}
    adapters:
      - {type: upload_consumer, tools: [up], file_path_argument: a.b, uri_prefix: true}
      - type: artifact_producer
        tools: [shot]
        output_path_argument: filename
        output_locator: {mode: regex, output_path_regexes: ['(\\S+\\.png)$']}
        required: true
      - {type: artifact_producer, tools: [t], output_locator: {mode: structured, output_path_key: x.y}, persist: false}
    artifact_roots: [out, /abs/out]
    hard_linked_roots: [out]
    start_timeout_seconds: 7
    tasks: {offer: always, tools: {"get_*": never, get_all: auto, other: own}, strict: true}
  - {id: two, upstream: {url: "https://h/mcp", headers: {Authorization: "Bearer ${ARG}"}, ca_file: ca.pem},
     call_timeout_seconds: 9000}
mcpServers:
  three: {command: npx, args: [-y, thing], env: {K: v}}
  four: {type: http, url: "http://127.0.0.1:1/mcp", headers: {X-A: b}}
"""
ENVIRON = {"LEVEL": "debug", "ARG": "${PORT}"}


def read(text: str, environ: dict[str, str] | None = None, format: str = "yaml") -> Settings:
    return loads(text, format, "/etc/isthmus", ENVIRON if environ is None else environ)


def refusal(text: str, format: str = "yaml", environ: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as error:
        read(text, environ, format)
    return error.value.message


def test_a_full_configuration_is_read() -> None:
    settings = read(FULL_YAML)
    assert settings.core.port == 81
    assert settings.core.public_base_url == "https://mcp.example/x"
    assert settings.core.log_level == "debug"
    assert settings.storage.root == "/etc/isthmus/kept"
    assert (settings.storage.max_size, settings.uploads.max_file_bytes) == (2 << 30, 512_000)
    one, two, three, four = settings.servers
    # The value of a variable is not expanded again, and a lone dollar is itself.
    assert one.upstream.command == ("run", "${PORT}", "$HOME")
    assert one.upstream.env == {"A": "1", "B": "a${PORT}b"}
    assert one.upstream.cwd == "/etc/isthmus/work"
    assert one.artifact_roots == ("/etc/isthmus/out", "/abs/out")
    assert one.hard_linked_roots == ("/etc/isthmus/out",)
    consumer, producer, other = one.adapters
    assert consumer == UploadConsumerAdapter(tools=("up",), file_path_argument="a.b", uri_prefix=True)
    assert isinstance(producer, ArtifactProducerAdapter) and isinstance(other, ArtifactProducerAdapter)
    assert producer.output_locator.output_path_regexes == (r"(\S+\.png)$",)
    assert other.output_locator.mode is LocatorMode.STRUCTURED
    assert two.upstream.headers == {"Authorization": "Bearer ${PORT}"}
    assert two.upstream.ca_file == "/etc/isthmus/ca.pem"
    assert (three.id, three.upstream.command, three.upstream.env) == ("three", ("npx", "-y", "thing"), {"K": "v"})
    assert (four.id, four.upstream.url, four.upstream.headers) == ("four", "http://127.0.0.1:1/mcp", {"X-A": "b"})


def test_the_formats_say_the_same() -> None:
    assert read(json.dumps(yaml.safe_load(FULL_YAML)), format="json") == read(FULL_YAML)
    toml = '[core]\nport = 81\n[[servers]]\nid = "a"\nupstream = {command = ["x"]}\n'
    assert read(toml, format="toml") == read(f"core: {{port: 81}}\n{MINIMAL}")


def test_what_is_left_out_has_the_engines_default() -> None:
    """Settings and `Limits` were written apart, and agree."""
    assert to_limits(read(MINIMAL)) == Limits()


def test_limits_follow_the_settings() -> None:
    limits = to_limits(read(FULL_YAML))
    changed = {name: getattr(limits, name) for name in limits.__struct_fields__}
    defaults = Limits()
    assert {name: value for name, value in changed.items() if value != getattr(defaults, name)} == {
        "sessions_max": 5,
        "sessions_per_owner_max": 4,
        "session_memory_max_bytes": 80 << 20,
        "session_idle_ttl_s": 60,
        "exchanges_per_session_max": 6,
        "tombstone_ttl_s": 61,
        "session_storage_max_bytes": 1_000_000,
        "storage_max_bytes": 2 << 30,
        "upload_size_max_bytes": 512_000,
        "upload_files_max": 3,
        "upload_ttl_s": 10,
        "upload_link_ttl_s": 4,
        "artifact_size_max_bytes": 1536,
        "artifact_ttl_s": 11,
        "artifacts_per_session_max": 12,
        "inline_size_max_bytes": 100,
        "request_size_max_bytes": 20 << 20,
        "keep_alive_s": 8,
        "drain_s": 2.5,
        "task_ttl_s": 13,
        "task_ttl_max_s": 14,
        "task_poll_s": 1.5,
        "task_after_s": 0.5,
        "tasks_max": 15,
        "tasks_per_principal_max": 16,
        "tasks_per_session_max": 17,
    }


def test_a_servers_own_time_limits_and_roots_reach_its_plan() -> None:
    text = server("start_timeout_seconds: 7, call_timeout_seconds: 8, roots: client")
    plan = to_plan(read(text), b"k" * 16, "/", "")
    only = plan.servers[0]
    assert (only.start_timeout_s, only.reply_timeout_s, only.forwards_roots) == (7, 8, True)
    limits = "tool_time_limits: {slow_*: 5, '*': 60}"
    assert to_plan(read(server(limits)), b"k" * 16, "/", "").servers[0].tool_time_limits == (("slow_*", 5), ("*", 60))
    rates = "rate_limits: [{calls: 9, per_seconds: 60}, {tools: [put], calls: 1, per_seconds: 0.5, by: server}]"
    assert to_plan(read(server(rates)), b"k" * 16, "/", "").servers[0].rate_limits == (
        RateLimit(calls=9, per_s=60),
        RateLimit(calls=1, per_s=0.5, tools=("put",), is_for_each_caller=False),
    )


def test_how_its_processes_are_used_reaches_its_plan() -> None:
    plan = to_plan(read(server("share: serial, idle_stop_seconds: 9")), b"k" * 16, "/", "").servers[0]
    assert (plan.sharing, plan.idle_stop_s) == (Sharing.SERIAL, 9)
    assert to_plan(read(server("warm: 3")), b"k" * 16, "/", "").servers[0].spares == 3


@pytest.mark.parametrize(
    ("era_text", "era"), [("auto", None), ("handshake", Era.HANDSHAKE), ("stateless", Era.STATELESS)]
)
def test_the_era_of_a_server_reaches_its_plan(era_text: str, era: Era | None) -> None:
    text = upstream(f"url: 'http://h', era: {era_text}")
    SCHEMA.validate(yaml.safe_load(text))
    assert to_plan(read(text), b"k" * 16, "/", "").servers[0].era is era


@pytest.mark.parametrize(
    ("section", "affinity"),
    [
        ("{}", Affinity.SHARED),
        ("core: {host: '::1', public_base_url: 'http://localhost:1/x'}", Affinity.SHARED),
        ("core: {host: 0.0.0.0}", Affinity.REQUEST),
        ("core: {host: mcp.example}", Affinity.REQUEST),
        ("core: {public_base_url: 'https://mcp.example'}", Affinity.REQUEST),
        ("core: {host: 0.0.0.0, port: null, unix_socket: /run/x}", Affinity.SHARED),
        ("core: {host: 0.0.0.0}\nsessions: {affinity: shared}", Affinity.SHARED),
        ("sessions: {affinity: request}", Affinity.REQUEST),
    ],
)
def test_anonymous_remote_clients_do_not_share_a_session_by_default(section: str, affinity: Affinity) -> None:
    """Anonymous clients share a session while only this machine can call. By default each request has its own
    otherwise."""
    text = (section if section != "{}" else "") + MINIMAL
    SCHEMA.validate(yaml.safe_load(text))
    assert to_plan(read(text), b"k" * 16, "/", "").affinity is affinity


def test_keys_of_request_states_come_from_the_configuration_or_the_storage() -> None:
    """The first key signs, so their order is kept. A generated key gives way to configured ones."""
    text = "sessions: {request_state_keys: ['${NEW}', old-old-old-old-old]}" + MINIMAL
    SCHEMA.validate(yaml.safe_load(text))
    settings = read(text, {"NEW": "n\u00e4w-new-new-new"})
    given = ("n\u00e4w-new-new-new".encode(), b"old-old-old-old-old")
    for state_key in (b"", b"s" * 32):
        assert to_plan(settings, b"k" * 16, "/", "", state_key=state_key).state_keys == given
        kept = (state_key,) if state_key else ()
        assert to_plan(read(MINIMAL), b"k" * 16, "/", "", state_key=state_key).state_keys == kept
    assert "new-new" not in repr(settings) and "old-old" not in repr(settings)


SOCKETS = """
servers: [{id: a, upstream: {url: "ws://h/ws", headers: {A: b}}}]
mcpServers: {b: {url: "WSS://h"}, c: {type: ws, url: "ws://h"}, d: {type: http, url: "http://h"}}
"""


def test_tools_may_be_hidden_by_regular_expressions_of_their_whole_names() -> None:
    selection = read(server("tools: {exclude_regexes: ['get_.*|b']}")).servers[0].tools.selection
    assert selection and [name for name in ("get_a", "b", "forget_a", "bb") if selection.admits(name)] == [
        "forget_a",
        "bb",
    ]


def test_regular_expressions_need_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """A configuration without any needs none."""
    monkeypatch.setitem(sys.modules, "re2", None)
    compile_regex.cache_clear()
    assert refusal(server("tools: {exclude_regexes: ['get_.*']}")).endswith(
        "servers[0].tools.exclude_regexes[0]: got a regular expression, expected the package google-re2, which reads "
        "regular expressions: pip install 'isthmus[regex]'"
    )
    assert read(server("tools: {exclude: ['get_*']}"))


def test_filters_reach_the_plan() -> None:
    """Null and an empty list hide nothing."""
    text = (
        "tools: {include: [a, 'get_*'], exclude: [b]}, prompts: {include: null, exclude: []}, resources: {include: []}"
    )
    SCHEMA.validate(yaml.safe_load(server(text)))
    (plan,) = to_plan(read(server(text)), b"k" * 16, "/", "").servers
    assert plan.tools == NameFilter(("a", "get_*"), ("b",))
    assert plan.prompts == plan.resources == NameFilter()


@pytest.mark.parametrize(
    ("pass_headers", "passes", "is_clients"),
    [
        ("[authorization, X-A]", (("authorization", "authorization"), ("X-A", "X-A")), True),
        ("{X-A: X-B, Authorization: AUTHORIZATION}", (("X-A", "X-B"), ("Authorization", "AUTHORIZATION")), True),
        ("{X-Token: Authorization}", (("X-Token", "Authorization"),), False),
        ("{Authorization: X-Token}", (("Authorization", "X-Token"),), False),
        ("[]", (), False),
    ],
)
def test_passed_headers_are_a_list_or_a_mapping(
    pass_headers: str, passes: tuple[tuple[str, str], ...], is_clients: bool
) -> None:
    """A challenge is passed to the client only if the client's own Authorization header is passed to the server."""
    text = f"servers: [{{id: a, upstream: {{url: 'http://h', pass_headers: {pass_headers}}}, required_headers: [X-A]}}]"
    SCHEMA.validate(yaml.safe_load(text))
    settings = read(text)
    assert settings.servers[0].upstream.passes == passes
    assert to_plan(settings, b"k" * 16, "/", "").servers[0].passes_authorization is is_clients
    surface = surface_of(settings)
    assert surface.passes == ({"a": passes} if passes else {})
    assert surface.required == {"a": ("X-A",)}


OFFERED = TaskRules(offer=Offer.AUTO)


def test_the_first_pattern_that_fits_a_tool_holds_in_every_format() -> None:
    """The order of a mapping is that of the text."""
    rules = {"b": "never", "a*": "always", "ab": "never", "*": "auto"}
    document = {"servers": [{"id": "a", "upstream": {"command": ["x"]}, "tasks": {"offer": "never", "tools": rules}}]}
    SCHEMA.validate(document)
    toml = '[[servers]]\nid = "a"\nupstream = {command = ["x"]}\n[servers.tasks]\noffer = "never"\n'
    toml += "[servers.tasks.tools]\n" + "".join(f'"{name}" = "{offer}"\n' for name, offer in rules.items())
    for text, format in (
        (json.dumps(document), "json"),
        (yaml.dump(document, sort_keys=False), "yaml"),
        (toml, "toml"),
    ):
        (plan,) = to_plan(read(text, format=format), b"k" * 16, "/", "").servers
        found = [plan.tasks.offer_for(tool) for tool in ("b", "ab", "other")]
        assert found == [Offer.NEVER, Offer.ALWAYS, Offer.AUTO]
    assert read(server("tasks: {offer: '${OFFER}'}"), {"OFFER": "always"}).servers[0].tasks.offer == "always"


def test_a_time_to_live_may_be_the_longest() -> None:
    limits = to_limits(read(f"tasks: {{ttl_seconds: 60, max_ttl_seconds: 60}}\n{MINIMAL}"))
    assert (limits.task_ttl_s, limits.task_ttl_max_s) == (60, 60)


def test_the_plan_follows_the_settings() -> None:
    structured = OutputLocator(mode=LocatorMode.STRUCTURED, output_path_key="x.y")
    regex = OutputLocator(mode=LocatorMode.REGEX, output_path_regexes=(r"(\S+\.png)$",))
    plan = to_plan(read(FULL_YAML), b"k" * 32, "/ws", "http://127.0.0.1:81")
    (profile,) = plan.profiles
    assert [server.id for server in profile.servers] == ["one", "two", "three", "four"]
    assert msgspec.structs.replace(plan, profiles=()) == Plan(
        servers=(
            ServerPlan(
                id="one",
                kind=Kind.PIPE,
                consumers=(UploadConsumer(tools=("up",), file_path_argument="a.b", deliver=Deliver.FILE_URI),),
                producers=(
                    ArtifactProducer(
                        tools=("shot",), output_path_argument="filename", output_locator=regex, required=True
                    ),
                    ArtifactProducer(tools=("t",), output_locator=structured, persist=False),
                ),
                session_retries=0,
                start_timeout_s=7,
                answers_early=True,
                tasks=TaskRules(
                    offer=Offer.ALWAYS,
                    tools=(("get_*", Offer.NEVER), ("get_all", Offer.AUTO), ("other", Offer.OWN)),
                    strict=True,
                ),
                cwd="/etc/isthmus/work",
            ),
            ServerPlan(
                id="two", kind=Kind.HTTP, may_fall_back=True, session_retries=0, reply_timeout_s=9000, tasks=OFFERED
            ),
            ServerPlan(id="three", kind=Kind.PIPE, session_retries=0, tasks=OFFERED, answers_early=True),
            ServerPlan(id="four", kind=Kind.HTTP, may_fall_back=True, session_retries=0, tasks=OFFERED),
        ),
        workspaces_path="/ws",
        public_base_url="https://mcp.example/x",
        fallback_base_url="http://127.0.0.1:81",
        link_keys=(b"k" * 32,),
        uploads_enabled=False,
        downloads_enabled=False,
        require_sha256=True,
        artifacts_enabled=False,
        expose_as_resources=False,
        eviction=Eviction.NONE,
        file_scope=FileScope.SESSION,
        affinity=Affinity.REQUEST,
    )
    kinds = [server.kind for server in to_plan(read(SOCKETS), b"k" * 16, "/ws", "").servers]
    assert kinds == [Kind.SOCKET, Kind.SOCKET, Kind.SOCKET, Kind.HTTP]
    plain = to_plan(read(MINIMAL), b"k" * 16, "/ws", "")
    only = ServerPlan(id="a", kind=Kind.PIPE, tasks=OFFERED, answers_early=True)
    assert plain == Plan(servers=(only,), workspaces_path="/ws", link_keys=(b"k" * 16,))


@pytest.mark.parametrize(
    "value", ["producers: 1", "{persist: false, allow_raw_output: true, expose_as_resource: false}"]
)
def test_a_producers_flags_reach_the_plan(value: str) -> None:
    if value.startswith("{"):
        entry = {"type": "artifact_producer", "tools": ["t"], "output_path_argument": "p", **yaml.safe_load(value)}
        text = json.dumps({"servers": [{"id": "a", "upstream": {"command": ["x"]}, "adapters": [entry]}]})
        (producer,) = to_plan(read(text, format="json"), b"k" * 16, "/ws", "").servers[0].producers
        assert (producer.persist, producer.allow_raw_output, producer.expose_as_resource) == (False, True, False)
    else:
        assert to_plan(read(MINIMAL), b"k" * 16, "/ws", "").servers[0].producers == ()


@pytest.mark.parametrize(
    ("more", "stage"),
    [
        ("upstream: {command: [x]}", "in"),
        ("files: auto, upstream: {command: [x]}", "ws"),
        ("files: auto, upstream: {command: [x, '--dir={out}']}", "out"),
        ("files: auto, upstream: {command: [x], env: {OUT: '{out}'}}", "out"),
        ("files: auto, upstream: {command: [x, '{out}', '{ws}']}", "ws"),
        ("files: auto, stage: in, upstream: {command: [x, '{out}']}", "in"),
    ],
)
def test_files_are_laid_where_the_server_is_told_to_work(more: str, stage: str) -> None:
    plan = to_plan(read(f"servers: [{{id: a, {more}}}]"), b"k" * 16, "/ws", "")
    assert plan.servers[0].stage == stage


FILING = """
servers:
  - id: a
    upstream: {command: [x]}
    adapters:
      - {type: upload_consumer, tools: ["read_*", put], file_path_argument: [path, "files[*].path"], deliver: data_uri,
         accept_other: true}
      - {type: upload_consumer, tools: [b], file_path_argument: path, deliver: file_uri, uri_prefix: true}
      - {type: upload_consumer, tools: [c], file_path_argument: path, uri_prefix: null}
      - type: artifact_producer
        tools: ["write_*"]
        output_locator: {mode: [structured, argument, changed, resource_link], output_path_key: "files[*].path",
                         path_arguments: [to, "all[*]"]}
        move: true
        rewrite_text: true
        inline_text_bytes: 4Ki
        links: resource_link
    files: {rewrite_text: false, inline_text_bytes: 0, expose_as_resource: false, links: text}
    shared: {here: data/, there: /srv/data/}
    stage: out
"""


def test_file_settings_reach_the_plan() -> None:
    SCHEMA.validate(yaml.safe_load(FILING))
    (server,) = to_plan(read(FILING), b"k" * 16, "/ws", "").servers
    assert server.consumers == (
        UploadConsumer(
            tools=("read_*", "put"),
            file_path_argument=("path", "files[*].path"),
            deliver=Deliver.DATA_URI,
            accept_other=True,
        ),
        UploadConsumer(tools=("b",), file_path_argument="path", deliver=Deliver.FILE_URI),
        UploadConsumer(tools=("c",), file_path_argument="path", deliver=Deliver.PATH),
    )
    modes = (LocatorMode.STRUCTURED, LocatorMode.ARGUMENT, LocatorMode.CHANGED, LocatorMode.RESOURCE_LINK)
    locator = OutputLocator(mode=modes, output_path_key="files[*].path", path_arguments=("to", "all[*]"))
    assert server.producers == (
        ArtifactProducer(
            tools=("write_*",),
            output_locator=locator,
            move=True,
            rewrite_text=True,
            inline_text_bytes=4096,
            links=Links.RESOURCE_LINK,
        ),
    )
    assert server.auto_files == AutoFiles(
        rewrite_text=False, inline_text_bytes=0, expose_as_resource=False, links=Links.TEXT
    )
    assert (server.shared, server.stage) == ((SharedFolder("/etc/isthmus/data", "/srv/data"),), "out")


@pytest.mark.parametrize(
    ("files_text", "meant"),
    [
        ("files: auto", AutoFiles()),
        ("files: {}", AutoFiles()),
        ("files: {mode: auto}", AutoFiles()),
        ("files: {links: both}", AutoFiles()),
        ("files: {mode: none}", None),
        ("files: none", None),
        ("roots: workspace", None),
    ],
)
def test_files_are_automatic_only_where_configured(files_text: str, meant: AutoFiles | None) -> None:
    """The default is that of the engine."""
    SCHEMA.validate(yaml.safe_load(server(files_text)))
    assert to_plan(read(server(files_text)), b"k" * 16, "/ws", "").servers[0].auto_files == meant


def test_several_folders_may_be_shared() -> None:
    text = server("files: auto, shared: [{here: /a, there: /b}, {here: /c, there: /d}]")
    SCHEMA.validate(yaml.safe_load(text))
    assert to_plan(read(text), b"k" * 16, "/ws", "").servers[0].shared == (
        SharedFolder("/a", "/b"),
        SharedFolder("/c", "/d"),
    )


def test_session_placeholders_are_not_resolved() -> None:
    (server,) = read("servers: [{id: a, upstream: {command: ['{ws}/x'], cwd: '{ws}/sub'}}]").servers
    assert (server.upstream.command, server.upstream.cwd) == (("{ws}/x",), "{ws}/sub")


@pytest.mark.parametrize(
    "program, meant",
    [
        ("./x.py", "/etc/isthmus/x.py"),
        ("../bin/x", "/etc/bin/x"),
        ("bin/x", "/etc/isthmus/bin/x"),
        ("/bin/x", "/bin/x"),
        ("x.py", "x.py"),
    ],
)
def test_a_program_with_a_slash_starts_from_the_folder_of_the_file(program: str, meant: str) -> None:
    """A shell in that folder would do the same. Arguments are the program's business."""
    listed = read(f"servers: [{{id: a, upstream: {{command: [{program}, ./y]}}}}]").servers[0]
    pasted = read(f"mcpServers: {{a: {{command: {program}, args: [./y]}}}}").servers[0]
    assert listed.upstream.command == pasted.upstream.command == (meant, "./y")


def test_what_clients_write_for_themselves_is_ignored_aloud(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("isthmus").propagate = True
    text = "mcpServers: {a: {command: x, autoApprove: [t], timeout: 60}, b: {command: y, disabled: true, trust: true}}"
    assert [server.id for server in read(text).servers] == ["a"]
    assert [record.getMessage() for record in caplog.records] == [
        "for the client, and ignored here: mcpServers.a.autoApprove"
    ]
    assert read(text).servers[0].call_timeout_seconds == 60
    SCHEMA.validate(yaml.safe_load(text))
    assert "servers[0].timeout: unknown key" in refusal(server("timeout: 60"))


def test_the_file_may_name_its_schema() -> None:
    text = f"$schema: ./isthmus.schema.json\n{MINIMAL}"
    SCHEMA.validate(yaml.safe_load(text))
    assert read(text).servers == read(MINIMAL).servers
    assert "$schema: got 3, expected text" in refusal(f"$schema: 3\n{MINIMAL}")


AT = "servers[0].adapters[0]"


def server(rest: str) -> str:
    return f"servers: [{{id: a, upstream: {{command: [x]}}, {rest}}}]"


def upstream(inside: str) -> str:
    return f"servers: [{{id: a, upstream: {{{inside}}}}}]"


def consumer(rest: str, tools: str = "[t]") -> str:
    return server(f"adapters: [{{type: upload_consumer, tools: {tools}, {rest}}}]")


def producer(rest: str) -> str:
    return server(f"adapters: [{{type: artifact_producer, tools: [t], {rest}}}]")


REFUSED = {
    # the text itself
    "core: [": ["not YAML: got the end of the file, expected the end of a [ or {"],
    "core: {}\ncore: {}\n": ["not YAML: key 'core' appears twice; remove one"],
    "a: !!python/object:os.system {}": ["not YAML", "could not determine a constructor"],
    "": ["got an empty file, expected servers"],
    "3: 4": ["3: got 3 as a key, expected a key that is text"],
    # keys
    f"core: {{prot: 1}}\n{MINIMAL}": ["core.prot: unknown key; did you mean port?"],
    f"monitoring: {{}}\n{MINIMAL}": ["monitoring: unknown key, expected one of core, auth, storage"],
    server("adaptors: []"): ["servers[0].adaptors: unknown key; did you mean adapters?"],
    upstream("command: [x], envs: {}"): ["servers[0].upstream.envs: unknown key; did you mean env?"],
    "servers: [{upstream: {command: [x]}}]": ["servers[0].id: missing, expected a value"],
    server("adapters: [{tools: [t]}]"): [f"{AT}.type: missing, expected one of upload_consumer, artifact_"],
    server("adapters: [{type: upload_consumr}]"): [f'{AT}.type: got "upload_consumr", expected one of upload_c'],
    server("adapters: [{type: upload_consumer, tools: [t]}]"): [f"{AT}.file_path_argument: missing"],
    # types
    f"core: {{port: 70000}}\n{MINIMAL}": ["core.port: got 70000, expected a whole number of at most 65535"],
    f"core: {{port: '80'}}\n{MINIMAL}": ['core.port: got "80", expected a whole number'],
    f"core: {{port: -1}}\n{MINIMAL}": ["core.port: got -1"],
    "sessions: {request_state_keys: [fifteen-bytes-a, '${K:-sixteen-bytes-ab}']}\n" + MINIMAL: [
        "sessions.request_state_keys[0]: got 15 bytes, expected a secret of 16 bytes or more, such as one of "
        "`openssl rand -hex 32`"
    ],
    f"sessions: {{affinty: shared}}\n{MINIMAL}": ["sessions.affinty: unknown key; did you mean affinity?"],
    f"sessions: {{affinity: cookie}}\n{MINIMAL}": ['sessions.affinity: got "cookie", expected one of shared, request'],
    upstream("command: [x], era: modern"): ['era: got "modern", expected one of auto, handshake, stateless'],
    upstream("command: [x], eras: auto"): ["upstream.eras: unknown key; did you mean era?"],
    upstream("url: 'sse+http://h', era: stateless"): [
        'upstream.era: got "stateless", expected auto or handshake: HTTP+SSE'
    ],
    f"core: {{management: {{token: ''}}}}\n{MINIMAL}": [
        "core.management.token: got another text, expected a secret of"
    ],
    f"core: {{management: {{token: 'a b'}}}}\n{MINIMAL}": ["core.management.token: got another text"],
    f"core: {{management: {{enabled: 1}}}}\n{MINIMAL}": ["core.management.enabled: got 1, expected true or false"],
    f"core: {{management: []}}\n{MINIMAL}": ["core.management: got a list of 0, expected keys with values"],
    f"core: {{log_level: loud}}\n{MINIMAL}": ['core.log_level: got "loud", expected one of debug, info, warning'],
    f"core: {{drain_seconds: .nan}}\n{MINIMAL}": ["core.drain_seconds: got NaN, expected a number above 0"],
    f"core: {{drain_seconds: .inf}}\n{MINIMAL}": ["core.drain_seconds: got Infinity, expected a number of at most 3"],
    f"core:\n{MINIMAL}": ["core: got no value (null), expected keys with values"],
    f"uploads: {{enabled: 1}}\n{MINIMAL}": ["uploads.enabled: got 1, expected true or false"],
    f"uploads: {{max_file_bytes: 5 apples}}\n{MINIMAL}": [
        'uploads.max_file_bytes: got "5 apples", expected a byte size'
    ],
    f"uploads: {{max_file_bytes: 0k}}\n{MINIMAL}": ['uploads.max_file_bytes: got "0k", expected a whole number'],
    f"uploads: {{ttl_seconds: null}}\n{MINIMAL}": ["uploads.ttl_seconds: got no value (null)"],
    "servers: {a: {}}": ["servers.a: neither command nor url, expected one of command and url"],
    "servers: [5]": ["servers[0]: got 5, expected keys with values"],
    upstream("command: x"): ['servers[0].upstream.command: got "x", expected a list'],
    upstream("command: [x, 8080]"): ["servers[0].upstream.command[1]: got 8080, expected text (in quotes)"],
    producer("output_locator: {mode: regexp}"): [f'{AT}.output_locator.mode: got "regexp", expected one of none'],
    # variables
    f"core: {{host: '${{NOPE}}'}}\n{MINIMAL}": ["the environment variable NOPE is not set; set it before"],
    f"core: {{host: '${{NOPE'}}\n{MINIMAL}": ['core.host: got "${NOPE"', "expected ${NAME} or ${NAME:-default}"],
    f"core: {{port: '${{LEVEL}}'}}\n{MINIMAL}": [
        'core.port: got "${LEVEL}", expected a whole number; the environment variable LEVEL holds something else'
    ],
    f"core: {{log_level: 'a${{LEVEL}}${{ARG:-b}}'}}\n{MINIMAL}": [
        "expected one of debug, info",
        "; the environment variables ARG, LEVEL hold something else",
    ],
    f"storage: {{max_size: '${{LEVEL}}'}}\n{MINIMAL}": ["1.5GiB; the environment variable LEVEL holds something else"],
    f"core: {{port: '${{NOPE:-$$x}}'}}\n{MINIMAL}": ['core.port: got "${NOPE:-$$x}", expected a whole number'],
    # tasks
    f"tasks: {{ttl_seconds: 7200, max_ttl_seconds: 3600.5}}\n{MINIMAL}": [
        "tasks.ttl_seconds: is 7200, expected at most tasks.max_ttl_seconds, which is 3600.5"
    ],
    f"tasks: {{max_ttl_seconds: 600}}\n{MINIMAL}": [
        "tasks.ttl_seconds: is 3600, expected at most tasks.max_ttl_seconds, which is 600"
    ],
    f"tasks: {{poll_interval_ms: 0.5}}\n{MINIMAL}": ["tasks.poll_interval_ms: got 0.5, expected a whole number"],
    f"tasks: {{after_seconds: 0}}\n{MINIMAL}": ["tasks.after_seconds: got 0, expected a number above 0"],
    f"tasks: {{max_ttl: 1}}\n{MINIMAL}": ["tasks.max_ttl: unknown key; did you mean max_total?"],
    f"tasks: {{max_ttl_seconds: -1}}\n{MINIMAL}": ["tasks.max_ttl_seconds: got -1, expected a"],
    f"tasks: {{ttl_seconds: -1}}\n{MINIMAL}": ["tasks.ttl_seconds: got -1, expected a"],
    f"tasks: {{max_total: -1}}\n{MINIMAL}": ["tasks.max_total: got -1, expected a"],
    f"tasks: {{max_per_principal: -1}}\n{MINIMAL}": ["tasks.max_per_principal: got -1, expected a"],
    f"tasks: {{max_per_session: -1}}\n{MINIMAL}": ["tasks.max_per_session: got -1, expected a"],
    f"tasks: {{poll_interval_ms: -1}}\n{MINIMAL}": ["tasks.poll_interval_ms: got -1, expected a"],
    server("tasks: {offer: maybe}"): ['servers[0].tasks.offer: got "maybe", expected one of auto, always, own, never'],
    server("tasks: always"): ['servers[0].tasks: got "always", expected keys with values'],
    server("tasks: {tools: [a]}"): ["servers[0].tasks.tools: got a list of 1, expected keys with values"],
    server("tasks: {tools: {a: optional}}"): [
        'tasks.tools.a: got "optional", expected one of auto, always, own, never'
    ],
    server("tasks: {tools: {' ': auto}}"): ["servers[0].tasks.tools: got an empty one, expected names of tools"],
    server("rate_limits: [{calls: 0, per_seconds: 1}]"): ["servers[0].rate_limits[0].calls: got 0, expected a"],
    server("rate_limits: [{calls: 1}]"): ["servers[0].rate_limits[0].per_seconds: "],
    server("rate_limits: [{calls: 1, per_seconds: 1, tools: []}]"): [
        "servers[0].rate_limits[0].tools: got a list of 0, expected names of tools, or patterns such as get_*"
    ],
    server("rate_limits: [null]"): ["servers[0].rate_limits[0]: got no value (null), expected keys with values"],
    server("tasks: {strict: 1}"): ["servers[0].tasks.strict: got 1, expected true or false"],
    "servers: [{id: a, upstream: {url: 'http://h'}, inspect: false, tasks: {offer: never}}]": [
        "servers[0].tasks: got some, expected none with inspect: false"
    ],
    # checks
    "core: {}": ["servers: no server here or in mcpServers, expected at least one server"],
    "servers: []": ["servers: no server here"],
    f"core: {{public_base_url: example.org}}\n{MINIMAL}": [
        'core.public_base_url: got "example.org", expected an http://'
    ],
    f"core: {{public_base_url: 'http://h/?a=b'}}\n{MINIMAL}": ["core.public_base_url: ", "no query"],
    f"core: {{allowed_origins: [example.com]}}\n{MINIMAL}": [
        'core.allowed_origins[0]: got "example.com", expected the origin of web pages, such as https://example.com'
    ],
    f"core: {{allowed_origins: ['https://a', 'https://b/']}}\n{MINIMAL}": ['core.allowed_origins[1]: got "https://b/"'],
    f"core: {{allowed_origins: ['*']}}\n{MINIMAL}": ['core.allowed_origins[0]: got "*"'],
    f"core: {{allowed_origins: ['https://*.example.com']}}\n{MINIMAL}": ["core.allowed_origins[0]: got "],
    f"core: {{allowed_hosts: [a, 'b:80', '::1', '[::2]', '[::3]:80', 'http://b']}}\n{MINIMAL}": [
        'core.allowed_hosts[5]: got "http://b", expected a name or an address, without scheme and path'
    ],
    f"core: {{allowed_hosts: ['*']}}\n{MINIMAL}": ['core.allowed_hosts[0]: got "*"'],
    f"core: {{allowed_hosts: ['*.b']}}\n{MINIMAL}": ['core.allowed_hosts[0]: got "*.b"'],
    f"storage: {{root: ~/data}}\n{MINIMAL}": ['storage.root: got "~/data"', "write ${HOME} for ~"],
    "servers: [{id: .a, upstream: {command: [x]}}]": ["servers[0].id: got the id '.a', expected 1 to 64"],
    f"servers: [{{id: {'a' * 65}, upstream: {{command: [x]}}}}]": ["servers[0].id: got the id 'aaa"],
    'servers: [{id: "a\\n", upstream: {command: [x]}}]': ["servers[0].id: got the id 'a\\n'"],
    f"{MINIMAL}  - {{id: a, upstream: {{command: [y]}}}}": [
        "servers[1].id: got the id 'a'",
        "servers[0].id has this one",
    ],
    upstream(""): ["servers[0].upstream: neither command nor url, expected one"],
    upstream("command: [x], url: 'http://h'"): ["servers[0].upstream: both command and url, expected one"],
    upstream("url: 'http://h', urls: ['http://h']"): ["servers[0].upstream: both url and urls, expected one of comm"],
    upstream("urls: []"): ["servers[0].upstream.urls: got 0, expected 1 to 32 URLs"],
    upstream("urls: 'http://h'"): ['servers[0].upstream.urls: got "http://h", expected a list'],
    upstream("urls: ['http://h', 'http://u:4711@h']"): ["upstream.urls[1]: got a URL with credentials, expected a URL"],
    upstream("urls: ['http://h', 'http://h?k=4711 x']"): ['upstream.urls[1]: got "http://h?…", expected '],
    upstream("urls: ['http://h', 'http://h']"): ["servers[0].upstream.urls[1]: got one again, expected each URL once"],
    upstream("urls: ['http://h', 'ws://h']"): [
        "servers[0].upstream.urls: got auto and websocket, expected URLs of one"
    ],
    upstream("urls: ['http://a', 'http://b'], headers: {Host: x}"): ["upstream: got header Host, which is set for"],
    "servers: [{id: a, inspect: false, upstream: {urls: ['http://a', 'http://b']}}]": [
        "servers[0].upstream.urls: got urls, expected url beside inspect: false"
    ],
    upstream("command: []"): ["servers[0].upstream.command: got a list of 0, expected a program"],
    upstream("command: ['']"): ["servers[0].upstream.command: got a list of 1, expected a program"],
    upstream('command: ["x\\0"]'): ["servers[0].upstream.command: got one with NUL"],
    upstream("command: [~/x]"): ["servers[0].upstream.command: got a program that begins with ~, expected another"],
    upstream("command: [x], env: {A=: b}"): ["servers[0].upstream.env.A=: ", "a name without ="],
    upstream("command: [x], headers: {A: b}"): ["servers[0].upstream.headers: got keys with values, expected headers"],
    upstream("command: [x], verify_tls: false"): ["servers[0].upstream.verify_tls: got false"],
    upstream("command: [x], proxy: 'http://u:4711@p'"): ["servers[0].upstream.proxy: ", "proxy beside a url only"],
    upstream("url: 'unix:///s', proxy: none"): [
        "servers[0].upstream.proxy: got a proxy, expected proxy beside an http"
    ],
    upstream("url: 'http://h', proxy: 'socks5://u:4711@p'"): [
        "servers[0].upstream.proxy: got a SOCKS proxy, which is not supported, expected http://HOST:PORT"
    ],
    upstream("url: 'http://h', proxy: 'http://u:4711@p:0'"): ["servers[0].upstream.proxy: got another host or port"],
    upstream("command: [x], cwd: ~me"): ['servers[0].upstream.cwd: got "~me"'],
    upstream("url: 'http://h', env: {A: b}"): ["servers[0].upstream.env: got keys with values, expected env"],
    upstream("url: 'sse://h/sse'"): ['got "sse://h/sse", expected an sse+http:// or sse+https:// URL'],
    upstream("url: 'sse+https:///sse'"): ['got "sse+https:///sse", expected an http://', "URL with a host"],
    upstream("url: 'sse+http://u:p@h/sse'"): ["got a URL with credentials, expected a URL without credentials"],
    upstream("url: 'http://h', transport: ss"): [
        'servers[0].upstream.transport: got "ss", expected one of auto, stream'
    ],
    upstream("url: 'ws://h', transport: sse"): [
        'servers[0].upstream.url: got "ws://h", expected a URL with http:// or https:// or sse+http:// or sse+https://,',
        "for transport sse",
    ],
    upstream("url: 'sse+http://h', transport: streamable_http"): [
        'servers[0].upstream.url: got "sse+http://h", expected a URL with http:// or https://, for transport stream',
    ],
    upstream("url: 'https://h', transport: websocket"): [
        'servers[0].upstream.url: got "https://h", expected a URL with ws:// or wss://, for transport websocket',
    ],
    upstream("command: [x], transport: sse"): ["upstream.transport: ", "transport beside a url only"],
    f"core: {{public_base_url: 'sse+http://h'}}\n{MINIMAL}": ["core.public_base_url: ", "an http:// or https:// URL"],
    upstream("url: 'ws:///mcp'"): ['servers[0].upstream.url: got "ws:///mcp"', "URL with a host"],
    upstream("url: 'ws://h', headers: {Sec-WebSocket-Protocol: x}"): ["header Sec-WebSocket-Protocol, which is set"],
    upstream("url: 'ftp://h'"): [
        'servers[0].upstream.url: got "ftp://h", expected an http://, https://, sse+http://, sse+https://, ws:// or '
        "wss:// URL with a host, or unix:/// and the path of a socket"
    ],
    upstream("url: 'unix:/run/s'"): ['got "unix:/run/s", expected an http://', "or unix:/// and the path of a socket"],
    upstream("url: 'h:8932/mcp', transport: unix"): [
        'got "h:8932/mcp", expected a URL with unix://, for transport unix'
    ],
    upstream("url: 'http:///mcp'"): ["https://, ws:// or wss:// URL with a host"],
    upstream("url: 'http://h:x'"): ["https://, ws:// or wss:// URL with a host"],
    upstream("url: 'http://h:99999'"): ["https://, ws:// or wss:// URL with a host"],
    upstream('url: "http://h/\\tx"'): ["without spaces and control characters"],
    upstream("url: 'http://h', headers: {'A b': c}"): ["servers[0].upstream.headers.A b: got the name 'A b'"],
    upstream("url: 'http://h', headers: {Host: x}"): [
        "servers[0].upstream: got header Host, which is set for each request; leave it out"
    ],
    upstream("url: 'http://h', headers: {A: ☂}"): ["servers[0].upstream: the value of header A has characters that no"],
    upstream("command: [x], pass_headers: [A]"): ["servers[0].upstream.pass_headers: got a list of 1, expected pass_h"],
    upstream("url: 'http://h', pass_headers: 7"): [
        "servers[0].upstream.pass_headers: got 7, expected a list, or keys with values"
    ],
    upstream("url: 'http://h', pass_headers: [Host]"): [
        "servers[0].upstream.pass_headers[0]: got Host, expected another header: this one is set anew for each request"
    ],
    upstream("url: 'http://h', pass_headers: {A: Proxy-Authorization}"): [
        "servers[0].upstream.pass_headers.A: got Proxy-Authorization, expected another header"
    ],
    upstream("url: 'http://h', pass_headers: {mcp-session-id: A}"): ["pass_headers.mcp-session-id: got mcp-session-id"],
    upstream("url: 'http://h', pass_headers: ['*']"): ["pass_headers[0]: got the name '*', expected the whole name"],
    upstream("url: 'http://h', pass_headers: {A: 'x y'}"): ["pass_headers.A: got other text, expected the whole name"],
    upstream("url: 'http://h', pass_headers: [A, a]"): ["pass_headers[1]: got a again, expected each header once"],
    upstream("url: 'http://h', pass_headers: {A: C, B: c}"): [
        "pass_headers.B: got c, expected a header of its own (servers[0].upstream.pass_headers.A sets this one)"
    ],
    upstream("url: 'http://h', headers: {authorization: x}, pass_headers: [Authorization]"): [
        "pass_headers[0]: got Authorization, expected a header of its own (servers[0].upstream.headers sets this one)"
    ],
    server("required_headers: ['A b']"): ["servers[0].required_headers[0]: got the name 'A b', expected a header name"],
    server("tools: {include: ['']}"): ['servers[0].tools.include[0]: got "", expected a name, or a pattern such as'],
    server("resources: {exclude: [x, ' ']}"): ['servers[0].resources.exclude[1]: got " ", expected a name'],
    server("tools: {exclude_regexes: [a, '(']}"): [
        'servers[0].tools.exclude_regexes[1]: got "(", expected a regular expression that RE2 reads (missing ): ()'
    ],
    server(
        "tools: {exclude_regexes: ['(?!get).*']}, "
        "adapters: [{type: upload_consumer, tools: [put], file_path_argument: p}]"
    ): [
        'servers[0].tools.exclude_regexes[0]: got "(?!get).*", expected a regular expression that RE2 reads (invalid '
        "perl operator: (?!; there is no look-around: match the text beside it as well, and put what counts into a "
        "group)"
    ],
    server("further_path: /a/"): ['servers[0].further_path: got "/a/", expected an absolute path such as /mcp/files'],
    server("further_path: a"): ['servers[0].further_path: got "a"'],
    server("further_path: '/a?b'"): ['servers[0].further_path: got "/a?b"'],
    server("further_path: /p")[:-1] + ", {id: b, upstream: {command: [x]}, further_path: /p}]": [
        "servers[1].further_path: got '/p', expected a path of its own (servers[0].further_path has this one)"
    ],
    f"core: {{further_upload_path: '/'}}\n{MINIMAL}": ['core.further_upload_path: got "/"'],
    f"core: {{any_host: maybe}}\n{MINIMAL}": ['core.any_host: got "maybe", expected true or false'],
    server("prompts: [x]"): ["servers[0].prompts: got a list of 1, expected keys with values"],
    server("tools: {only: [x]}"): ["servers[0].tools.only: unknown key"],
    server("tools: {exclude: [t*]}, adapters: [{type: upload_consumer, tools: [s, t], file_path_argument: p}]"): [
        f'{AT}.tools[1]: got "t", expected a tool that this server\'s tools.include and tools.exclude do not hide'
    ],
    server("artifact_roots: ['']"): ['servers[0].artifact_roots[0]: got "", expected the path'],
    server("artifact_roots: [/a], hard_linked_roots: [/a, /a/b]"): [
        "servers[0].hard_linked_roots[1]: got '/a/b', expected one of artifact_roots"
    ],
    consumer("file_path_argument: a", "[]"): [f"{AT}.tools: got a list of 0"],
    consumer("file_path_argument: a", "[' ']"): [f'{AT}.tools[0]: got " "'],
    consumer("file_path_argument: a..b"): [f'{AT}.file_path_argument: got "a..b", expected property names joined'],
    consumer("file_path_argument: 'a[0]'"): [f'{AT}.file_path_argument: got "a[0]"', "[*] for the items of a list"],
    consumer("file_path_argument: [a, 'b c']"): [f'{AT}.file_path_argument[1]: got "b c"'],
    consumer("file_path_argument: []"): [f"{AT}.file_path_argument: got a list of 0, expected at least one"],
    consumer("file_path_argument: {a: b}"): [
        f"{AT}.file_path_argument: got keys with values, expected text, or a list"
    ],
    consumer("file_path_argument: [1]"): [f"{AT}.file_path_argument[0]: got 1, expected text (in quotes)"],
    consumer("file_path_argument: a, deliver: path, uri_prefix: true"): [
        f'{AT}.deliver: got "path", expected file_uri, for uri_prefix is true; or no uri_prefix'
    ],
    consumer("file_path_argument: a, deliver: url, uri_prefix: false"): [
        f'{AT}.deliver: got "url", expected path, for'
    ],
    consumer("file_path_argument: a, deliver: file"): [
        f'{AT}.deliver: got "file", expected one of path, file_uri, url'
    ],
    consumer("file_path_argument: a, accept_other: 1"): [f"{AT}.accept_other: got 1, expected true or false"],
    consumer("file_path_argument: ''"): [f'{AT}.file_path_argument: got ""'],
    consumer("file_path_argument: a, uri_scheme: upload"): [f'{AT}.uri_scheme: got "upload", expected a scheme'],
    producer("persist: true"): [f"{AT}: no way to find the output, expected output_path_argument"],
    producer("output_locator: {mode: structured}"): [f"{AT}.output_locator.output_path_key: missing"],
    producer("output_locator: {mode: structured, output_path_key: a.}"): [f"{AT}.output_locator.output_path_key: got"],
    producer("output_path_argument: 'a b'"): [f'{AT}.output_path_argument: got "a b"'],
    producer("output_locator: {mode: [regex, embeded]}"): [
        f'{AT}.output_locator.mode[1]: got "embeded", expected one of'
    ],
    producer("output_locator: {mode: [regex, regex]}"): [f"{AT}.output_locator.mode: got a list of 2, expected each"],
    producer("output_locator: {mode: [none, regex]}"): [
        f"{AT}.output_locator.mode: got a list of 2, expected none alon"
    ],
    producer("output_locator: {mode: []}"): [f"{AT}.output_locator.mode: got a list of 0, expected at least one mode"],
    producer("output_locator: {mode: {a: b}}"): [
        f"{AT}.output_locator.mode: got keys with values, expected one of none, regex"
    ],
    producer("output_locator: {mode: [changed, structured]}"): [f"{AT}.output_locator.output_path_key: missing"],
    producer("output_locator: {mode: argument, path_arguments: [a.]}"): [
        f'{AT}.output_locator.path_arguments[0]: got "a.'
    ],
    producer("output_path_argument: 'a[*]'"): [f'{AT}.output_path_argument: got "a[*]"', "no brackets"],
    producer("output_path_argument: a, inline_text_bytes: 2Mi"): [f'{AT}.inline_text_bytes: got "2Mi"'],
    producer("output_path_argument: a, persist: false, move: true"): [
        f"{AT}.move: got true, expected none of it beside"
    ],
    server("files: always"): ['servers[0].files: got "always", expected one of auto, none'],
    server("files: [auto]"): ["servers[0].files: got a list of 1, expected one of auto, none, or keys with values"],
    server("files: {mode: off}"): ["servers[0].files.mode: got false, expected one of auto, none"],
    server("files: {modes: auto}"): ["servers[0].files.modes: unknown key; did you mean mode?"],
    server("files: auto, share: serial"): ["servers[0].share: ", "none, for a server with files: auto: each session"],
    server("files: {mode: auto}, share: concurrent"): ["servers[0].share: ", "none, for a server with files: auto"],
    "servers: [{id: a, upstream: {url: 'http://h'}, inspect: false, files: auto}]": [
        "servers[0].files: got auto, expected none with inspect: false"
    ],
    server("files: auto, shared: {here: /a, there: b}"): [
        "servers[0].shared.there: got 'b', expected an absolute path"
    ],
    server("files: auto, shared: {here: ~/a, there: /b}"): ['servers[0].shared.here: got "~/a"'],
    server("files: auto, shared: [{here: /a, there: /b}, {here: /a/, there: /c}]"): [
        "servers[0].shared[1]: got /a/ as /c again, expected each folder once"
    ],
    server("files: auto, shared: [{here: /a, there: /b}, {here: /c, there: /b}]"): [
        "servers[0].shared[1]: got /c as /b"
    ],
    server("files: auto, shared: {here: /a}"): ["servers[0].shared.there: missing"],
    server("files: auto, shared: 7"): ["servers[0].shared: got 7, expected a list, or keys with values"],
    server("files: auto, stage: tmp"): ['servers[0].stage: got "tmp", expected one of in, out, ws'],
    server("stage: out"): ["servers[0].stage: got it for others, expected it beside adapters or files: auto only"],
    server("files: none, shared: {here: /a, there: /b}"): ["servers[0].shared: got it for others"],
    f"sessions: {{file_scope: client}}\n{MINIMAL}": [
        'sessions.file_scope: got "client", expected one of principal, session'
    ],
    f"sessions: {{eviction_policy: lru}}\n{MINIMAL}": [
        'sessions.eviction_policy: got "lru", expected one of lru_uploads_then_artifacts, lru_artifacts_then_uploads'
    ],
    f"sessions: {{tombstone_ttl_seconds: 0}}\n{MINIMAL}": [
        "sessions.tombstone_ttl_seconds: got 0, expected a number above 0"
    ],
    producer("output_locator: {mode: regex, output_path_regexes: [a, '(']}"): [
        f'{AT}.output_locator.output_path_regexes[1]: got "(", expected a regular expression that RE2 reads ('
    ],
    "mcpServers: {a: {type: http, command: x}}": ["mcpServers.a.type: ", "stdio beside a command, http"],
    "mcpServers: {a: {type: sse, command: x}}": ["mcpServers.a.type: ", "stdio beside a command, http"],
    "mcpServers: {a: {type: http, url: 'sse+http://h'}}": ["mcpServers.a.type: ", "sse beside an sse+http:// or sse+"],
    "mcpServers: {a: {type: sse, url: 'ws://h'}}": ["mcpServers.a.", "sse"],
    "mcpServers: {a: {type: ws, url: 'http://h'}}": ["mcpServers.a.type: ", "websocket beside a ws:// or wss:// URL"],
    "mcpServers: {a: {type: http, url: 'wss://h'}}": ["mcpServers.a.type: ", "http beside an http:// or"],
    "mcpServers: {a: {type: carrier pigeon, command: x}}": ["mcpServers.a.type: ", "expected stdio, http"],
    "mcpServers: {a: {url: 'http://h', args: [b]}}": ["mcpServers.a.args: got a list of 1"],
    "mcpServers: {a: {command: x, disabledTool: []}}": [
        "mcpServers.a.disabledTool: unknown key; did you mean disabledTools?"
    ],
    "mcpServers: {a: {command: x, disabled: true}}": ["mcpServers: every server is disabled, expected at"],
}


@pytest.mark.parametrize(
    ("keys", "url", "transport", "kind"),
    [
        ("url: 'http://h/a'", "http://h/a", "auto", Kind.HTTP),
        ("url: 'http://h/a', transport: null", "http://h/a", "auto", Kind.HTTP),
        ("url: 'http://h/a', transport: auto", "http://h/a", "auto", Kind.HTTP),
        ("url: 'https://h/a', transport: streamable_http", "https://h/a", "streamable_http", Kind.HTTP),
        ("url: 'https://h/a', transport: sse", "https://h/a", "sse", Kind.SOCKET),
        ("url: 'sse+https://h/a'", "https://h/a", "sse", Kind.SOCKET),
        ("url: 'SSE+HTTP://h/a', transport: auto", "HTTP://h/a", "sse", Kind.SOCKET),
        ("url: 'sse+http://h/a', transport: sse", "http://h/a", "sse", Kind.SOCKET),
    ],
)
def test_a_url_and_its_transport_are_settled(keys: str, url: str, transport: str, kind: Kind) -> None:
    """A transport in the URL means the same as one beside it, and two-way streams reach the plan."""
    settings = read(upstream(keys))
    assert (settings.servers[0].upstream.url, settings.servers[0].upstream.transport) == (url, transport)
    assert to_plan(settings, b"k" * 16, "/ws", "").servers[0].kind is kind
    if "transport" not in keys:
        assert read(f"mcpServers: {{a: {{{keys}}}}}").servers[0].upstream == settings.servers[0].upstream


def test_several_urls_are_settled_and_named_by_their_hosts() -> None:
    """Paths may hold secrets, so people are not shown them. One URL in the list is as good as none besides it."""
    text = "urls: ['sse+http://A:1/4711', 'http://a:1/4712', 'http://b/?key=4713'], transport: sse"
    found = read(upstream(text))
    assert found.servers[0].upstream.urls == ("http://A:1/4711", "http://a:1/4712", "http://b/?key=4713")
    assert found.servers[0].upstream.url == "http://A:1/4711"
    (plan,) = to_plan(found, b"k" * 16, "/ws", "").servers
    assert (plan.kind, plan.addresses) == (Kind.SOCKET, ("http://a:1", "http://a:1 (2)", "http://b"))
    assert shown_names(("https://a/x", "https://a/y", "unix:///a b", "unix:///c")) == (
        *("https://a", "https://a (2)"),
        *("unix:///a b", "unix:///c"),
    )
    assert read(upstream("urls: ['http://h/mcp']")) == read(upstream("url: 'http://h/mcp'"))


@pytest.mark.parametrize("url", ["http://h/sse", "sse+http://h/sse"])
def test_a_pasted_server_may_be_of_type_sse(url: str) -> None:
    [server] = read(f"mcpServers: {{a: {{type: sse, url: '{url}'}}}}").servers
    assert (server.upstream.url, server.upstream.transport) == ("http://h/sse", "sse")


@each_row("text", REFUSED)
def test_a_refusal_names_the_key_what_was_seen_and_what_would_be_right(text: str) -> None:
    message = refusal(text)
    for expected in REFUSED[text]:
        assert expected in message
    assert len(message.splitlines()) == 1


def test_all_faults_are_reported_at_once() -> None:
    """One error lists all faults, including those that are not about types, in every part that could be read."""
    assert len(refusal("core: {prot: 1, port: x}\nservers: [{id: a}, 3]").splitlines()) == 4
    text = """
core: {prot: 1, public_base_url: mcp.example}
storage: {root: ~/data, max_size: 0}
servers:
  - {id: .a, upstream: {command: []}, artifact_roots: [1], adapters: [{type: x}, {type: upload_consumer, tools: []}]}
  - {id: b, unknown: 1, upstream: {url: "wx://h"}, artifact_roots: [~/a], adapters: 7}
  - {id: 7, upstream: {command: x}}
  - null
mcpServers: {b: {command: x, args: 3}, c: {url: "ftp://h"}, d: 5}
"""
    assert [line.partition(": ")[0] for line in refusal(text).splitlines()] == [
        *("mcpServers.d", "mcpServers.b.args", "core.prot", "storage.max_size", "servers[0].artifact_roots[0]"),
        *("servers[0].adapters[0].type", "servers[0].adapters[1].file_path_argument"),
        *("servers[1].unknown", "servers[1].adapters", "servers[2].id", "servers[2].upstream.command", "servers[3]"),
        *("core.public_base_url", "servers[0].id", "servers[0].upstream.command"),
        *("servers[1].upstream.url", "servers[1].artifact_roots[0]", "mcpServers.c.url"),
    ]
    for section in ("core", "storage", "servers", "mcpServers"):
        for value in ("null", "7", "[null]", "{a: null}"):
            assert f"{section}" in refusal(f"{section}: {value}")


def test_secrets_are_not_shown() -> None:
    for token in ("4711", "'4711 0'", "[4711]", "'4711\u00e9'"):
        assert "4711" not in refusal(f"core: {{management: {{token: {token}}}}}\n{MINIMAL}")
    assert "4711" not in refusal(upstream("command: [x], env: {TOKEN: 4711}"))
    assert "4711" not in refusal(upstream("url: 'http://h', headers: {TOKEN: 4711}"))
    assert "4711" not in refusal(upstream("url: 'http://me:4711@h'"))
    assert "4711" not in refusal(upstream("url: 'http://h', pass_headers: {Authorization: 'Bearer 4711'}"))
    assert "4711" not in refusal(upstream("url: 'http://h', pass_headers: ['Authorization: Bearer 4711']"))
    assert "4711" not in refusal(upstream("url: 'http://h', headers: {'Authorization: Bearer 4711': ''}"))
    assert "4711" not in refusal(upstream("url: 'http://h', pass_headers: {Authorization: 4711}"))
    for keys in ("4711", "[4711]", "['4711']", "['${X:-4711}']", "[[4711]]", "{a: 4711}"):
        assert "4711" not in refusal(f"sessions: {{request_state_keys: {keys}}}\n{MINIMAL}")
    for url in ("htps://h/?token=4711", "htps://me:4711@h/", "me:4711@h", "ftp://h#4711", "htps://4711@h/a?b@c"):
        assert "4711" not in refusal(upstream(f"url: '{url}'"))
        assert "4711" not in refusal(f"mcpServers: {{a: {{url: '{url}'}}}}")
        assert "4711" not in refusal(f"core: {{public_base_url: '{url}'}}\n{MINIMAL}")
    assert "4711" not in refusal(f"core: {{port: '${{PORT}}'}}\n{MINIMAL}", environ={"PORT": "4711x"})
    assert "4711" not in refusal(upstream("url: '${URL}'"), environ={"URL": "4711://h"})
    assert "4711" not in refusal(upstream("url: 'http://h', headers: {A: '${B}'}"), environ={"B": "4711\n"})


def test_settings_can_be_shown() -> None:
    """Names of headers and variables are shown, and none of their values."""
    shown = repr(read(upstream("url: 'http://h', headers: {Authorization: Bearer 4711}")))
    shown += repr(read(upstream("url: 'http://h', proxy: 'http://u:4711@p:1'")))
    shown += repr(read(upstream("command: [x], env: {TOKEN: '4711'}")))
    shown += repr(read("core: {management: {token: 4711-4711-4711-4711}}" + MINIMAL))
    shown += repr(
        read("servers: [{id: a, inspect: false, upstream: {url: 'http://h'}, forwarding: {set: {x-key: '4711'}}}]")
    )
    assert "Authorization" in shown and "TOKEN" in shown
    assert "4711" not in shown


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', '{"core": {"drain_seconds": NaN}}', "[" * 5000, "{,}"])
def test_json_is_taken_strictly(text: str) -> None:
    assert refusal(text, "json").startswith("not JSON: ")


@pytest.mark.parametrize("key", ["host", "port", "log_level", "drain_seconds", "allowed_hosts"])
@pytest.mark.parametrize("written", ["\\ud800", "${X}"])
def test_text_that_is_no_unicode_is_refused(key: str, written: str) -> None:
    """Lone surrogates are refused as a JSON escape and from the environment."""
    complaint = refusal('{"servers":[],"core":{"' + key + '":"' + written + '"}}', "json", {"X": "\udcff"})
    assert f"core.{key}" in complaint


@pytest.mark.parametrize("text", ["a = 1\na = 2", "= 1"])
def test_toml_is_taken_strictly(text: str) -> None:
    assert refusal(text, "toml").startswith("not TOML: ")


def test_yaml_may_merge_and_override() -> None:
    """Only a key that is written twice is refused. Writing a merged key anew is what merging is for."""
    text = "uploads: &x {ttl_seconds: 1}\nartifacts: {<<: *x, ttl_seconds: 2}\n" + MINIMAL
    assert (read(text).uploads.ttl_seconds, read(text).artifacts.ttl_seconds) == (1, 2)


def test_yaml_that_holds_itself_is_refused() -> None:
    assert "core.host: got keys with values" in refusal(f"core: &a {{host: *a}}\n{MINIMAL}")


def test_files_are_read_by_their_ending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISTHMUS_TEST_ID", "from-env")
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"mcpServers": {"a": {"command": "x", "args": ["${ISTHMUS_TEST_ID}"]}}}))
    settings = load(path)
    assert settings.servers[0].upstream.command == ("x", "from-env")
    assert settings.storage.root == str(tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    assert load("c.json") == settings


def test_a_refused_file_is_named(tmp_path: Path) -> None:
    cases = {"a.ini": b"", "missing.yaml": None, "bytes.yaml": b"\xff\xfe", "wrong.toml": b"core = {prot = 1}\n"}
    for name, content in cases.items():
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(ConfigError) as error:
            load(tmp_path / name)
        assert error.value.message.startswith(f"{tmp_path / name}:")


@given(text=st.text(alphabet="${}:-A \n0"), value=st.text())
def test_expansion_is_total_and_goes_over_the_text_once(text: str, value: str) -> None:
    """Text without a dollar is itself, doubling each dollar makes any text literal, and values are not expanded."""
    assert expand(text.replace("$", "$$"), {}) == text
    assert expand("<${A}>", {"A": value}) == f"<{value}>"
    with nullcontext() if "${" not in text else suppress(ValueError):
        expand(text, {"A": value})


@pytest.mark.parametrize(
    ("text", "environ", "expected"),
    [
        ("${A:-b}", {}, "b"),
        ("${A:-b}", {"A": ""}, "b"),
        ("${A:-b}", {"A": "c"}, "c"),
        ("${A:-}", {}, ""),
        ("${A}", {"A": ""}, ""),
        ("${A:-$$x}", {}, "$x"),
        ("a$b$", {}, "a$b$"),
        ("$${A}", {}, "${A}"),
        ("$$${A}", {"A": "b"}, "$b"),
        ("${A}${B}", {"A": "${B}", "B": "c"}, "${B}c"),
    ],
)
def test_expansion(text: str, environ: dict[str, str], expected: str) -> None:
    assert expand(text, environ) == expected


UNITS = {"": 1, "b": 1, "B": 1}
for power, letter in enumerate("kMGT", 1):
    for spelled in (letter, letter.lower(), letter.upper()):
        UNITS |= {spelled: 1000**power, f"{spelled}B": 1000**power}
        UNITS |= {f"{spelled}i": 1024**power, f"{spelled}iB": 1024**power}


@given(unit=st.sampled_from(sorted(UNITS)), whole=st.integers(0, 10**9), thousandths=st.integers(0, 999))
def test_sizes(unit: str, whole: int, thousandths: int) -> None:
    assert parse_size(f"{whole}{unit}") == parse_size(f"{whole} {unit}") == whole * UNITS[unit]
    assert parse_size(f"{whole}.{thousandths:03}{unit}") == int(
        (Decimal(whole) + Decimal(thousandths) / 1000) * UNITS[unit]
    )


@pytest.mark.parametrize(
    "text", ["", "k", "-1", "1i", "1iB", "1kk", "1e3", ".5k", "1.k", "1_0", "0x1", "1kib\n", "٣k", "9" * 16]
)
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="expected one such as"):
        parse_size(text)


@pytest.mark.parametrize(
    "path",
    [path for path in sorted(EXAMPLES.rglob("*.yaml")) if not path.name.startswith(("kubernetes", "alerts"))],
    ids=lambda path: f"{path.parent.name}-{path.stem}",
)
def test_the_examples_load_and_fit_the_schema(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALICE_SHA256", "0" * 64)
    SCHEMA.validate(yaml.safe_load(path.read_text()))
    settings = load(path)
    to_plan(settings, b"k" * 16, "/ws", "")
    to_limits(settings)


def test_the_main_example_has_its_servers() -> None:
    settings = load(EXAMPLES / "isthmus.yaml")
    assert [server.id for server in settings.servers] == ["playwright", "markitdown"]
    assert all(server.adapters for server in settings.servers)
    assert settings.core.port == 8932


def test_the_example_shows_the_defaults() -> None:
    """Each section of the example but the servers equals the defaults."""
    bare = read(MINIMAL)
    example = load(EXAMPLES / "isthmus.yaml")
    assert to_limits(msgspec.structs.replace(example, servers=bare.servers)) == to_limits(bare)
    assert example.core == bare.core


@pytest.mark.parametrize("text", [FULL_YAML, MINIMAL, "mcpServers: {a: {command: x}}"])
def test_what_loads_fits_the_schema(text: str) -> None:
    SCHEMA.validate(yaml.safe_load(text))
    read(text)


STRUCTURAL = ("unknown key", ".type: ", ".file_path_argument: missing", ".id: missing", "no server", "neither", "both")
TYPED = ("core: {port: 7", "core: {port: '80", "core: {log_level: l", "uploads: {", "servers: [5", "servers: {")
BROKEN = [
    text
    for text, expected in REFUSED.items()
    if (any(word in expected[0] for word in STRUCTURAL) and not expected[0].startswith("mcpServers.a."))
    or (text.startswith(TYPED) and "0k" not in text)
]


@pytest.mark.parametrize("text", BROKEN)
def test_what_is_broken_in_structure_does_not_fit_the_schema(text: str) -> None:
    assert not SCHEMA.is_valid(yaml.safe_load(text))


def test_the_schema_is_a_schema_and_describes_every_key() -> None:
    made = schema()
    jsonschema.Draft202012Validator.check_schema(made)
    for name, definition in made["$defs"].items():
        if "properties" not in definition:
            continue
        assert definition["description"], name
        assert definition["additionalProperties"] is False
        for key, value in definition["properties"].items():
            assert "description" in value or "$ref" in value or key == "type", f"{name}.{key}"


@each_row("value", ["null", "5", "[]", '""'])
@each_row(
    "section", [field.encode_name for field in msgspec.structs.fields(Settings) if field.encode_name != "$schema"]
)
def test_an_empty_section_is_reported(section: str, value: str) -> None:
    """An error about the section hides those about its keys: YAML has null where nothing follows a key."""
    usual = {"servers": '[{"id":"a","upstream":{"command":["x"]}}]'}
    text = ",".join(f'"{name}":{raw}' for name, raw in (usual | {section: value}).items())
    if (section, value) in (("servers", "[]"), ("profiles", "[]")):
        return
    with pytest.raises(ConfigError) as caught:
        loads(f"{{{text}}}", "json", "/base", {})
    assert caught.value.message.startswith(f"{section}: got ")
