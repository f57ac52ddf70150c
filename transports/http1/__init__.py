"""HTTP/1.1 codecs without sockets: `ServerCodec` and `ClientCodec`, which fall back to h11.

`http_server` uses `ServerCodec`, `http_client` uses `ClientCodec`.
"""
