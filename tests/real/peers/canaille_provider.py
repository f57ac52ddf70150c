"""Canaille from PyPI, by way of pytest-iam, with a person who is logged in and always agrees: prints its issuer.

A client with the id `person` is registered, and another with the id `gateway`, which its tokens are for besides, and
which may ask about them: Canaille puts ids of clients into `aud`, and knows no resources.
"""

from __future__ import annotations

import uuid

import portpicker
from canaille import create_app
from canaille.app import models
from canaille.backends import Backend
from joserfc.jwk import JWKRegistry
from pytest_iam import Server

REDIRECT = "http://127.0.0.1:1/callback"
SECRET = "secret-of-the-gateway-secret-of-the-gateway"


def main() -> None:
    port = portpicker.pick_unused_port()
    key = JWKRegistry.generate_key("RSA", 2048)
    key.ensure_kid()
    application = create_app(
        config={
            "TESTING": True,
            "ENV_FILE": None,
            "SECRET_KEY": str(uuid.uuid4()),
            "WTF_CSRF_ENABLED": False,
            "PREFERRED_URL_SCHEME": "http",
            "SERVER_NAME": f"localhost:{port}",
            "CANAILLE": {"DATABASE": "memory", "JAVASCRIPT": False},
            "CANAILLE_OIDC": {"ACTIVE_JWKS": [key.as_dict(private=True)], "REQUIRE_NONCE": False},
        }
    )
    with application.app_context():
        gateway = models.Client(
            client_id="gateway",
            client_name="the gateway",
            client_secret=SECRET,
            token_endpoint_auth_method="client_secret_basic",
        )
        Backend.instance.save(gateway)
        person = models.Client(
            client_id="person",
            client_name="a client",
            redirect_uris=[REDIRECT],
            grant_types=["authorization_code", "refresh_token"],
            response_types=["code"],
            scope=["openid", "profile", "groups"],
            token_endpoint_auth_method="none",
            client_uri="http://127.0.0.1:1/",  # a trusted domain: nobody is asked to consent
        )
        Backend.instance.save(person)
        Backend.instance.update(person, audience=[person, gateway])
        Backend.instance.save(person)
    server = Server(application, port, Backend.instance)
    server.login(server.random_user(user_name="alice"))
    print(f"listening on http://localhost:{port}", flush=True)
    server.httpd.serve_forever()


main()
