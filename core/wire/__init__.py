"""Codecs without sockets: bytes to messages and back, for newline-delimited JSON (`ndjson`), event streams (`sse`),
WebSockets (`websocket`) and chunked bodies (`chunks`). Transports use all of it; in `core`, `wire/http`, `wire/http1`,
`routing` and the engine use parts. It rests on `base`."""
