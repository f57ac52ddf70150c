"""Connections to servers: dialling, the handshake, writing, failures, resumption, and shared processes. Other rooms use
`UpstreamWriter`, `Handshaker`, `Failures`, `Resumption`, `ServerMessages`, `ToolDiscovery`, `SharedProcess` and
`ServerEra`. It rests on `base`, `bridge`, `downstream`, `jsonrpc`, `state` and `wire/http`."""
