"""The results of lists and reads that servers let the proxy keep (`ttlMs`, `cacheScope`). `Caching` is the interceptor
and `ResultCache` the table. `hints` reads what a result allows, `requests` tells which requests are equal. It rests on
`base`, `bridge`, `jsonrpc`, `state` and `upstream`.
"""
