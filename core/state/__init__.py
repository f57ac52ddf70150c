"""The long-lived objects of the engine and their state machines, one in a file, and the `Context` that all parts share.
Other rooms use `Session`, `Exchange`, `Stream`, `Link`, `UpstreamSession`, `Listen`, `SuspendedCall` and `Task`, the
roles of channels, and what the engine is extended by: `Interceptor` and `Feature`. The objects reach the parts above
them through `ports` only. It rests on `base`, `bridge`, `jsonrpc` and `wire/http`."""
