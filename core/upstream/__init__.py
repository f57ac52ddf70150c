"""Connections to servers: dialling, the handshake, writing, failures and resumption. `Upstream` constructs its parts;
other rooms use `UpstreamWriter`, `Handshaker`, `Failures`, `Resumption`, `ServerMessages`, `ToolDiscovery` and
`ServerEra`. It rests on `base`, `bridge`, `downstream`, `jsonrpc`, `state` and `wire/http`."""
