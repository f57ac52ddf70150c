"""HTTP/2: the client's codec, without sockets.

`http_client` uses `Http2Codec`, if the package h2 is installed (`isthmus[http2]`).
"""
