"""The codec of HTTP/1.1 heads: `heads` reads and writes request and response heads, `fields` their header fields, and
`events` has the values they are read into. Transports and `wire/http` use them. It rests on `wire`."""
