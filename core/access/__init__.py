"""The identity of a request's caller, the gate that establishes it from the request's head, and rules by who it is."""
