"""The HTTP rules of MCP endpoints without sockets: routes, headers, uploads, downloads, replies and redirects.
Transports use all of it. In `core`, the rooms that talk to servers use `mcp_headers`, `param_headers`, `cookies` and
`failure`, and file transfers the upload and download rules. It rests on `base`, `jsonrpc`, `wire` and `wire/http1`."""
