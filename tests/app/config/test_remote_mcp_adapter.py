"""Tests of configurations of remote-mcp-adapter: they mean here what they mean there, and unsupported settings are
named."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from command import run
from isthmus.app.base.errors import ConfigError
from isthmus.app.config import remote_mcp_adapter_schema
from isthmus.app.config.file_settings import ArtifactProducerAdapter, OutputLocator, UploadConsumerAdapter
from isthmus.app.config.governance_settings import Pins
from isthmus.app.config.load import loads
from isthmus.app.config.remote_mcp_adapter import FOREVER_S, SESSION_FOREVER_S
from isthmus.app.config.settings import (
    Artifacts,
    Core,
    Server,
    Sessions,
    Settings,
    Storage,
    ToolFilter,
    Uploads,
    Upstream,
)
from isthmus.app.runtime.listeners import surface_of
from isthmus.core.base.plan import LocatorMode
from isthmus.core.wire.http.routes import Head, McpRoute, Refused, UploadRoute
from isthmus.core.wire.http.server import judge
from msgspec import structs

WHOLE = """
core:
  host: 10.0.0.1
  port: "${PORT:-8940}"
  log_level: INFO
  max_start_wait_seconds: 30
  cleanup_interval_seconds: 90
  public_base_url: https://mcp.example/files/
  allow_artifacts_download: true
  code_mode_enabled: true
  shorten_descriptions: true
  short_description_max_tokens: 12
  upload_path: hand/in/
  upstream_metadata_cache_ttl_seconds: 10
  tool_description_policy: {mode: strip, max_tool_description_chars: 100, max_schema_description_chars: null}
  tool_metadata_sanitization: {mode: block, normalize_unicode: true, remove_invisible_characters: true,
                               max_tool_title_chars: 1, max_tool_description_chars: 2, max_schema_text_chars: 3}
  tool_definition_pinning: {mode: warn, block_strategy: baseline_subset, block_error_session_action: keep}
  upstream_ping: {enabled: true, interval_seconds: 1, timeout_seconds: 2, failure_threshold: 3,
                  open_cooldown_seconds: 4, half_open_probe_allowance: 5}
  auth: {enabled: true, header_name: X-Key, token: "${TOKEN}", signed_upload_ttl_seconds: 60, signing_secret: hush-4711}
  cors: {enabled: true, allowed_origins: ["https://app.example", "*"], allowed_methods: [POST], allowed_headers: ["*"],
         allow_credentials: true}
  defaults: {tool_call_timeout_seconds: 90, allow_raw_output: true}
storage:
  root: /srv/shared
  max_size: 10Gi
  atomic_writes: false
  lock_mode: redis
  orphan_sweeper_enabled: false
  orphan_sweeper_grace_seconds: 7
  artifact_locator_policy: allow_configured_roots
  artifact_locator_allowed_roots: [/srv/out, /srv/more]
sessions:
  max_active: 10
  max_in_flight_per_session: 4
  idle_ttl_seconds: 600
  allow_revival: true
  tombstone_ttl_seconds: 3600
  upstream_session_termination_retries: 2
  max_total_session_size: 500MB
  eviction_policy: lru_artifacts_then_uploads
uploads: {enabled: true, max_file_bytes: 20MiB, ttl_seconds: 300, require_sha256: true, uri_scheme: "file-in://"}
artifacts: {enabled: true, ttl_seconds: 900, max_per_session: 50, expose_as_resources: false, uri_scheme: "art://"}
state_persistence:
  type: redis
  refresh_on_startup: true
  snapshot_interval_seconds: 3
  unavailable_policy: exit
  disk: {local_path: /var/x.sqlite3, wal: {enabled: false}}
  redis: {host: redis, port: 6379, db: 1, username: u, password: p, tls_insecure: true, key_base: k, ping_seconds: 2}
  reconciliation: {mode: always, legacy_server_id: files-1}
telemetry:
  {enabled: true, transport: http, endpoint: "http://otel/v1/metrics", logs_endpoint: "http://otel/v1/logs",
   insecure: false, headers: {A: b}, export_interval_seconds: 1, export_timeout_seconds: 2, max_queue_size: 3,
   queue_batch_size: 4, periodic_flush_seconds: 5, shutdown_drain_timeout_seconds: 6, log_batch_max_queue_size: 7,
   log_batch_max_export_batch_size: 8, log_batch_schedule_delay_millis: 9, log_batch_export_timeout_millis: 10,
   drop_on_queue_full: false, flush_on_shutdown: false, flush_on_terminate: false, emit_logs: true,
   service_name: s, service_namespace: n}
servers:
  - id: files-1
    mount_path: tools/files/
    upstream:
      transport: sse
      url: https://inner.example/sse
      insecure_tls: true
      static_headers: {Authorization: "Bearer ${TOKEN}"}
      client_headers: {required: [X-Tenant], passthrough: [X-Tenant, x-tenant, authorization, Mcp-Session-Id]}
    upstream_ping: {enabled: true, interval_seconds: 9}
    tool_description_policy: {mode: truncate}
    tool_metadata_sanitization: {mode: sanitize}
    tool_definition_pinning: {mode: block}
    tool_defaults: {tool_call_timeout_seconds: 30, allow_raw_output: false}
    code_mode_enabled: true
    shorten_descriptions: true
    short_description_max_tokens: 5
    disabled_tools: [secret, "internal_.*", "bad[", "files_1_get_upload_url"]
    adapters:
      - {type: upload_consumer, tools: [read, internal_read], file_path_argument: " options.file ", uri_prefix: true,
         overrides: {tool_call_timeout_seconds: 5, allow_raw_output: true}}
      - {type: upload_consumer, tools: [put], file_path_argument: path, uri_scheme: "upload://"}
      - type: artifact_producer
        tools: [shot]
        output_path_argument: filename
        output_locator: {mode: regex, output_path_regexes: ['(\\S+\\.png)$'], output_path_key: null}
        persist: true
        expose_as_resource: false
        allow_raw_output: true
        overrides: {allow_raw_output: false}
      - {type: artifact_producer, tools: [a], output_locator: {mode: structured, output_path_key: x.y},
         include_raw_output: true}
      - {type: artifact_producer, tools: [b], output_locator: {mode: embedded}, overrides: {allow_raw_output: true}}
      - {type: artifact_producer, tools: [c], output_locator: {mode: embedded}, persist: false}
      - {type: artifact_producer, tools: [d]}
      - {type: artifact_producer, tools: [secret], output_path_argument: filename}
  - id: plain
    mount_path: /mcp/plain
    upstream: {url: "http://127.0.0.1:9/mcp"}
"""
ENVIRON = {"TOKEN": "4711"}
LEAST = """
servers:
  - {id: a, mount_path: /mcp/a, upstream: {url: "http://h/mcp"}}
"""


def read(text: str, environ: dict[str, str] | None = None) -> Settings:
    return loads(text, "yaml", "/etc/adapter", ENVIRON if environ is None else environ)


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as raised:
        read(text)
    return raised.value.message


def warnings(text: str, caplog: pytest.LogCaptureFixture) -> list[str]:
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="isthmus"):
        read(text)
    return [record.getMessage() for record in caplog.records]


def server(rest: str) -> str:
    return f'servers: [{{id: a, mount_path: /mcp/a, upstream: {{url: "http://h/mcp"}}, {rest}}}]'


def test_a_whole_file_is_read() -> None:
    consumers = (
        UploadConsumerAdapter(
            tools=("read",), file_path_argument="options.file", uri_scheme="file-in://", uri_prefix=True
        ),
        UploadConsumerAdapter(tools=("put",), file_path_argument="path"),
    )
    regex = OutputLocator(mode=LocatorMode.REGEX, output_path_regexes=(r"(\S+\.png)$",))
    producers = (
        ArtifactProducerAdapter(
            tools=("shot",),
            output_path_argument="filename",
            output_locator=regex,
            expose_as_resource=False,
            allow_raw_output=True,
        ),
        ArtifactProducerAdapter(
            tools=("a",),
            output_locator=OutputLocator(mode=LocatorMode.STRUCTURED, output_path_key="x.y"),
            allow_raw_output=True,
        ),
        ArtifactProducerAdapter(
            tools=("b",), output_locator=OutputLocator(mode=LocatorMode.EMBEDDED), allow_raw_output=True
        ),
        ArtifactProducerAdapter(tools=("c",), output_locator=OutputLocator(mode=LocatorMode.EMBEDDED), persist=False),
    )
    assert read(WHOLE) == Settings(
        core=Core(
            host="127.0.0.1",
            port=8940,
            public_base_url="https://mcp.example/files",
            allow_artifacts_download=True,
            allowed_origins=("https://app.example",),
            further_upload_path="/hand/in",
            log_level="info",
        ),
        storage=Storage(root="/srv/shared", max_size=10 << 30),
        sessions=Sessions(
            max_active=10,
            max_in_flight_per_session=4,
            idle_ttl_seconds=600,
            tombstone_ttl_seconds=3600,
            file_scope="session",
            upstream_session_termination_retries=2,
            max_total_session_size=500_000_000,
            eviction_policy="lru_artifacts_then_uploads",
        ),
        uploads=Uploads(max_file_bytes=20 << 20, ttl_seconds=300, require_sha256=True, link_ttl_seconds=60),
        artifacts=Artifacts(ttl_seconds=900, max_per_session=50, expose_as_resources=False),
        pins=Pins(file="/etc/adapter/isthmus.lock"),
        servers=(
            Server(
                id="files-1",
                upstream=Upstream(
                    url="https://inner.example/sse",
                    transport="sse",
                    headers={"Authorization": "Bearer 4711"},
                    pass_headers=("X-Tenant",),
                    verify_tls=False,
                ),
                further_path="/tools/files",
                adapters=(*consumers, *producers),
                artifact_roots=("/srv/shared", "/srv/out", "/srv/more"),
                tools=ToolFilter(
                    exclude=("secret", "bad[", "files_1_get_upload_url"), exclude_regexes=("internal_.*",)
                ),
                required_headers=("X-Tenant",),
                call_timeout_seconds=30,
            ),
            Server(
                id="plain",
                upstream=Upstream(url="http://127.0.0.1:9/mcp", transport="streamable_http"),
                call_timeout_seconds=90,
            ),
        ),
    )


def test_the_whole_file_has_every_key() -> None:
    """No key that remote-mcp-adapter knows is missing in the example of these tests."""

    def check(shape: Any, document: Any, at: str) -> None:
        fields = {field.name: field.type for field in structs.fields(shape)}
        known = set(document) | ({"include_raw_output"} if "allow_raw_output" in document else set())
        assert set(fields) <= known | {"uri_scheme", "include_raw_output"}, f"{at}: {set(fields) - known}"

    document = yaml.safe_load(WHOLE)
    check(remote_mcp_adapter_schema.AdapterFile, document, "")
    for name in ("core", "storage", "sessions", "uploads", "artifacts", "state_persistence", "telemetry"):
        check(getattr(remote_mcp_adapter_schema, name.title().replace("_", "")), document[name], name)
    for name in ("auth", "cors", "defaults"):
        check(getattr(remote_mcp_adapter_schema, name.title()), document["core"][name], name)
    check(remote_mcp_adapter_schema.Server, document["servers"][0], "servers[0]")
    check(remote_mcp_adapter_schema.Upstream, document["servers"][0]["upstream"], "upstream")
    check(remote_mcp_adapter_schema.UploadConsumer, document["servers"][0]["adapters"][0], "adapters[0]")
    check(remote_mcp_adapter_schema.ArtifactProducer, document["servers"][0]["adapters"][2], "adapters[2]")


def test_what_is_left_out_has_the_default_it_has_there() -> None:
    settings = read(LEAST)
    core, uploads, artifacts = settings.core, settings.uploads, settings.artifacts
    assert (core.host, core.port, core.log_level, core.any_host) == ("0.0.0.0", 8932, "warning", True)
    assert not core.allow_artifacts_download and core.further_upload_path is None
    assert (uploads.max_file_bytes, uploads.ttl_seconds, uploads.link_ttl_seconds) == (10 << 20, 120, 120)
    assert artifacts.ttl_seconds == 600
    assert settings.sessions.idle_ttl_seconds == SESSION_FOREVER_S, "it never ends there"
    assert settings.storage == Storage(root="/data/shared")
    (only,) = settings.servers
    assert (only.call_timeout_seconds, only.further_path, only.artifact_roots) == (60, None, ())
    assert (
        read(f"uploads: {{ttl_seconds: null}}\nartifacts: {{ttl_seconds: null}}{LEAST}").uploads.ttl_seconds
        == FOREVER_S
    )
    assert read(f"core: {{defaults: {{allow_raw_output: true}}}}{LEAST}").servers[0].call_timeout_seconds is None


def test_keys_without_a_meaning_here_are_named_once(caplog: pytest.LogCaptureFixture) -> None:
    lines = warnings(WHOLE, caplog)
    assert [line.partition(" is not used: ")[0] for line in lines if " is not used: " in line] == [
        *("core.auth.enabled", "servers[0].upstream.client_headers.passthrough[2]"),
        *("servers[0].upstream.client_headers.passthrough[3]", "servers[0].adapters[6]"),
        *("core.max_start_wait_seconds", "core.cleanup_interval_seconds", "core.code_mode_enabled"),
        *("core.shorten_descriptions", "core.short_description_max_tokens"),
        *("core.upstream_metadata_cache_ttl_seconds", "core.tool_description_policy"),
        *("core.tool_metadata_sanitization", "core.tool_definition_pinning", "core.upstream_ping"),
        *("core.auth.signing_secret", "core.cors.allowed_methods", "core.cors.allowed_headers"),
        *("core.cors.allow_credentials", "storage.atomic_writes", "storage.lock_mode"),
        *("storage.orphan_sweeper_enabled", "storage.orphan_sweeper_grace_seconds", "sessions.allow_revival"),
        *("artifacts.uri_scheme", "state_persistence.type", "state_persistence.refresh_on_startup"),
        *("state_persistence.snapshot_interval_seconds", "state_persistence.unavailable_policy"),
        *("state_persistence.disk", "state_persistence.redis", "state_persistence.reconciliation", "telemetry"),
        *("servers[0].upstream_ping", "servers[0].tool_description_policy", "servers[0].tool_metadata_sanitization"),
        *("servers[0].tool_definition_pinning", "servers[0].code_mode_enabled", "servers[0].shorten_descriptions"),
        *("servers[0].short_description_max_tokens", "servers[0].adapters[0].overrides.tool_call_timeout_seconds"),
    ]
    others = [line for line in lines if " is not used: " not in line]
    assert [line.split()[0] for line in others] == [
        *("core.cors.allowed_origins", "servers[0].disabled_tools"),
        *("servers[0].adapters[0].tools", "servers[0].adapters[7].tools"),
    ]
    assert "listens on 127.0.0.1 only" in lines[0], "no client needs the token"
    assert not any("4711" in line for line in lines)


def test_settings_that_are_always_so_here_cause_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Unquoted, YAML takes `off` for false."""
    text = """
core: {upstream_ping: {enabled: false}, tool_definition_pinning: {mode: off}, tool_metadata_sanitization: {mode: off},
       code_mode_enabled: false, cleanup_interval_seconds: null, auth: {enabled: false}, cors: {allowed_origins: []}}
storage: {atomic_writes: true, lock_mode: auto}
state_persistence: {type: disk, disk: {local_path: null}}
telemetry: {enabled: false, endpoint: "http://x"}
"""
    assert warnings(text + LEAST.replace("}}", "}, tool_definition_pinning: {mode: off}}"), caplog) in (
        ["state_persistence.disk is not used: records are kept in SQLite, below storage.root"],
    )
    assert warnings(LEAST, caplog) == []


def test_text_is_taken_as_it_is_there() -> None:
    """`$$` is two characters, and a variable with a default needs not be set."""
    settings = read(server("disabled_tools: ['a$$', '${X:-b.*}']"))
    assert settings.servers[0].tools.exclude_regexes == ("a$$", "b.*")
    assert "environment variable NOPE is not set" in refusal(server("disabled_tools: ['${NOPE}']"))


def test_a_regular_expression_that_only_python_reads_is_no_name() -> None:
    """The entry would hide no tool as a name."""
    assert "disabled_tools[0]: " in (refused := refusal(server("disabled_tools: ['(?!get_).*']")))
    assert "there is no look-around" in refused


@pytest.mark.parametrize(
    ("text", "size"), [("5", 5), ("10MB", 10**7), ("10MiB", 10 << 20), ("10k", 10**4), ("2Gi", 2 << 30)]
)
def test_sizes_are_those_of_there(text: str, size: int) -> None:
    assert read(f"uploads: {{max_file_bytes: {text}}}{LEAST}").uploads.max_file_bytes == size


def test_names_and_patterns_of_hidden_tools_hide_what_they_hide_there() -> None:
    selection = read(server("disabled_tools: ['get.*', wipe, 'a.b', 'x[', '(one|two)']")).servers[0].tools.selection
    hidden = ("get", "get_a", "wipe", "a.b", "axb", "x[", "one", "two")
    assert not any(map(selection.admits, hidden))
    assert all(map(selection.admits, ("forget", "wiped", "x", "three", "onetwo")))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (server("mount: /x"), "servers[0].mount: unknown key; did you mean mount_path?"),
        (LEAST.replace("/mcp/a", "/"), 'servers[0].mount_path: got "/", expected an absolute path'),
        (LEAST.replace("/mcp/a", "/a b"), 'servers[0].mount_path: got "/a b"'),
        (LEAST.replace("id: a,", "id: a/b,"), "servers[0].id: got the id 'a/b'"),
        (f"core: {{upload_path: /}}{LEAST}", 'core.upload_path: got "/"'),
        (f"core: {{auth: {{enabled: true}}}}{LEAST}", "core.auth.token: got none, expected a secret"),
        (f"core: {{auth: {{token: 4711}}}}{LEAST}", "core.auth.token: got a number (not shown), expected text"),
        (f"core: {{auth: {{signing_secret: ' '}}}}{LEAST}", "core.auth.signing_secret: got a blank one"),
        (f"core: {{cors: {{enabled: true, allowed_origins: [x]}}}}{LEAST}", "core.cors.allowed_origins[0]: got"),
        (f"storage: {{lock_mode: redis}}{LEAST}", 'storage.lock_mode: got "redis", expected another one'),
        (
            f"storage: {{artifact_locator_policy: allow_configured_roots}}{LEAST}",
            "storage.artifact_locator_allowed_roots: missing, expected at least one",
        ),
        (
            server("adapters: [{type: artifact_producer, tools: [t], output_locator: {mode: structured}}]"),
            "output_path_key",
        ),
        (
            server("adapters: [{type: upload_consumer, tools: [], file_path_argument: a}]"),
            "servers[0].adapters[0].tools",
        ),
        (f"telemetry: {{enabld: true}}{LEAST}", "telemetry.enabld: unknown key; did you mean enabled?"),
        ("state_persistence: {}", "servers: missing"),
        ("core: {upload_path: /x}\nservers: [{id: a}]", "servers[0].mount_path: missing"),
        ("servers: [{id: a, disabled_tools: []}]", "servers[0].mount_path: missing"),
        (f"core: {{host: a}}\nservers: []\n{LEAST}", "key 'servers' appears twice"),
        (
            LEAST + '  - {id: b, mount_path: mcp/x, upstream: {url: "http://h"}}\n'
            '  - {id: c, mount_path: /mcp/x/, upstream: {url: "http://h"}}',
            "servers[2].mount_path: got '/mcp/x', expected a path of its own (servers[1].mount_path",
        ),
    ],
)
def test_faults_are_named_as_they_stand_there(text: str, complaint: str) -> None:
    assert complaint in refusal(text)


def test_clients_reach_servers_and_uploads_at_their_old_paths() -> None:
    surface = surface_of(read(f"core: {{upload_path: /hand/in}}{LEAST.replace('/mcp/a', '/tools/files')}"))

    def route_of(method: str, target: str) -> object:
        headers = ((b"host", b"anything.example:1"), (b"content-type", b"application/json"), (b"accept", b"*/*"))
        return judge(Head(method, target, headers), surface)

    for target in ("/tools/files", "/tools/files/", "/mcp/a"):
        route = route_of("POST", target)
        assert isinstance(route, McpRoute) and route.opening.server == "a"
    for target in ("/hand/in/a?x=y", "/upload/a"):
        assert isinstance(route_of("POST", target), UploadRoute)
    for target in ("/tools/files/more", "/hand/in", "/hand/in/b"):
        route = route_of("POST", target)
        assert isinstance(route, Refused) and route.status == 404
    web = Head("POST", "/mcp/a", ((b"host", b"evil.example"), (b"origin", b"http://evil.example")))
    route = judge(web, surface)
    assert isinstance(route, Refused) and route.status == 403, "a page that had its name point here"


def test_the_page_s_example_is_one() -> None:
    page = (Path(__file__).parents[3] / "docs" / "configuration.md").read_text()
    (example,) = re.findall(r"```yaml adapter\n(.*?)```", page, re.DOTALL)
    assert [server.id for server in read(example, {}).servers] == ["playwright"]


def test_check_names_what_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "adapter.yaml").write_text(
        "telemetry: {enabled: true}\n" + LEAST.replace("http://h/mcp", "http://127.0.0.1:1")
    )
    code, out, err = run("check", str(tmp_path / "adapter.yaml"))
    assert code == 1 and "FAILED" in out, "no server listens there"
    assert "telemetry is not used: GET /metrics gives numbers to Prometheus" in err
