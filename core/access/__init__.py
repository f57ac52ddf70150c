"""Who is calling: the identity of a request's caller, and the gate that establishes it from the request's head."""
