"""The long-lived objects of the engine and their state machines, one in a file, and the `Context` that all parts share.
Other rooms use `Session`, `Exchange`, `Stream`, `Link`, `UpstreamSession`, `Listen`, `SuspendedCall` and `Task`, and
the roles of channels. The objects know nothing of the parts that act on them. It rests on `base`, `bridge`, `jsonrpc`
and `wire/http`."""
