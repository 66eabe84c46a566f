"""Enterprise-managed authorization: an employer's identity provider lets a client in.

Teaches: the extension of SEP-990, by one method of OAuth, fetch(). The user has logged in
at the employer's identity provider, for the host as a whole. For each server, the client
presents the token of that login, receives a grant for that one server (an ID-JAG, which
the employer's policy may refuse), and exchanges the grant for an access token at the
server's own authorization server. No browser opens, and the user is not asked.
The rules: ext-auth, specification/stable/enterprise-managed-authorization.mdx.

Run: python3 examples/enterprise_login.py
plays all parts: the identity provider, the authorization server, the server, the client.
For your own program, copy EnterpriseOAuth; the rest stands in for the world around it.
"""

import argparse
import base64
import hashlib
import hmac
import http.server
import json
import os
import secrets
import socket
import sys
import threading
import time
import urllib.parse

# mcp_lite.py is in this folder, or one up.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.dirname(HERE))

from mcp_lite import AuthorizationError, Client, Context, OAuth, Server  # noqa: E402

KIND = "urn:ietf:params:oauth:token-type:"
TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
PROFILE = "urn:ietf:params:oauth:grant-profile:id-jag"
JSON = {"Content-Type": "application/json"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}

# The client's role ###################################################################


class EnterpriseOAuth(OAuth):
    """Logs in at servers with what the employer's identity provider says about the user.

    identity(): returns the user's ID token, from the login at the identity provider.
        Each exchange asks for it anew, as it expires. It is sent to the identity
        provider only
    idp: {"token_endpoint", "client_id", "client_secret"}: the identity provider, as
        configured by the employer's administrator; without a secret for a public client
    client_id, client_secret, issuer: as for OAuth: this client at the server's own
        authorization server
    """

    def __init__(self, *, identity, idp, **options):
        super().__init__(grant="client_credentials", **options)
        place = urllib.parse.urlsplit(idp["token_endpoint"])
        is_here = place.hostname in ("localhost", "127.0.0.1", "::1")
        # "Implementations MUST use `https` URLs"
        if place.scheme != "https" and not is_here:
            raise ValueError("idp: expected an https URL as token_endpoint")
        self.identity = identity
        self.idp = idp
        # The metadata of the server's authorization server.
        self.metadata = {}

    def fetch(self, url, headers, body=None):
        """Send a request of a login. The one for a token carries the grant instead."""
        form = dict(urllib.parse.parse_qsl((body or b"").decode()))
        if form.get("grant_type") == "client_credentials":
            form["grant_type"] = JWT_BEARER
            form["assertion"] = self.exchange(form)
            body = urllib.parse.urlencode(form).encode()
        reply = super().fetch(url, headers, body)
        if body is None and "issuer" in reply.document:
            self.metadata = reply.document
        return reply

    def exchange(self, form):
        """Return the identity provider's grant for one server: RFC 8693."""
        profiles = self.metadata.get("authorization_grant_profiles_supported")
        if profiles is not None and PROFILE not in profiles:
            issuer = self.metadata["issuer"]
            raise AuthorizationError(f"{issuer} takes no grants of an employer's")
        asked = {
            "grant_type": TOKEN_EXCHANGE,
            "requested_token_type": KIND + "id-jag",
            "subject_token": self.identity(),
            "subject_token_type": KIND + "id_token",
            # "MUST be the issuer identifier of the Resource Authorization Server"
            "audience": self.metadata["issuer"],
            "client_id": self.idp["client_id"],
            "client_secret": self.idp.get("client_secret"),
            "resource": form.get("resource"),
            "scope": form.get("scope"),
        }
        known = {name: value for name, value in asked.items() if value}
        reply = super().fetch(
            self.idp["token_endpoint"], FORM, urllib.parse.urlencode(known).encode()
        )
        grant = reply.document.get("access_token")
        is_grant = reply.document.get("issued_token_type") == KIND + "id-jag"
        if reply.status != 200 or not is_grant or not isinstance(grant, str):
            why = reply.document.get("error_description", reply.document.get("error"))
            raise AuthorizationError(f"the employer does not let us in: {why}")
        return grant


# The world around it #################################################################

# The identity provider signs with this key. A real one has a private key, and publishes
# the public one (JWKS), which the authorization server reads.
KEY = secrets.token_bytes(32)
# The administrator's policy: which servers the staff may use.
ALLOWED = ["/mcp"]


def base64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def sign(kind, claims):
    """Return a JSON Web Token."""
    parts = [{"alg": "HS256", "typ": kind}, {**claims, "exp": int(time.time()) + 300}]
    text = ".".join(base64url(json.dumps(part).encode()) for part in parts)
    return f"{text}.{base64url(hmac.digest(KEY, text.encode(), hashlib.sha256))}"


def read(token, kind):
    """Return the claims of a token that sign() has made. Raises ValueError."""
    text, _, signature = token.rpartition(".")
    wanted = base64url(hmac.digest(KEY, text.encode(), hashlib.sha256))
    if not hmac.compare_digest(signature.encode(), wanted.encode()):
        raise ValueError("its signature is wrong")
    head, claims = (
        json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
        for part in text.split(".")
    )
    if head["typ"] != kind or claims["exp"] < time.time():
        raise ValueError("the token is of another kind, or has expired")
    return claims


class World(http.server.BaseHTTPRequestHandler):
    """The identity provider at /idp, the authorization server at the root."""

    # Access tokens, and their claims; the ids of the grants that were used.
    tokens = {}
    used = set()

    def do_GET(self):
        self.answer(
            200,
            {
                "issuer": self.issuer(),
                "token_endpoint": self.issuer() + "/token",
                "grant_types_supported": [JWT_BEARER],
                "authorization_grant_profiles_supported": [PROFILE],
            },
        )

    def do_POST(self):
        size = int(self.headers["Content-Length"])
        form = dict(
            urllib.parse.parse_qsl(self.rfile.read(min(size, 1 << 16)).decode())
        )
        serve = self.give_grant if self.path == "/idp/token" else self.give_token
        try:
            self.answer(200, serve(form))
        except (KeyError, ValueError) as error:
            refusal = {"error": "invalid_grant", "error_description": str(error)}
            self.answer(400, refusal)

    def give_grant(self, form):
        """As the identity provider: exchange the user's ID token for a grant."""
        user = read(form["subject_token"], "JWT")
        if urllib.parse.urlsplit(form["resource"]).path not in ALLOWED:
            raise ValueError(f"the policy does not allow {form['resource']}")
        claims = {name: form[name] for name in ("resource", "scope") if name in form}
        claims.update(jti=secrets.token_hex(16), iss=self.issuer() + "/idp")
        claims.update(sub=user["sub"], aud=form["audience"], client_id="our-host")
        return {
            "issued_token_type": KIND + "id-jag",
            "access_token": sign("oauth-id-jag+jwt", claims),
            "token_type": "N_A",
            "expires_in": 300,
        }

    def give_token(self, form):
        """As the authorization server: exchange a grant for an access token."""
        if form["grant_type"] != JWT_BEARER:
            raise ValueError("expected a grant of the employer's identity provider")
        grant = read(form["assertion"], "oauth-id-jag+jwt")
        if grant["aud"] != self.issuer() or grant["client_id"] != "our-host":
            raise ValueError("the grant is for another server, or another client")
        if grant["jti"] in self.used:
            raise ValueError("the grant was used before")
        self.used.add(grant["jti"])
        token = secrets.token_urlsafe(24)
        # "MUST be audience-restricted to the MCP Server"
        self.tokens[token] = {"sub": grant["sub"], "aud": grant["resource"]}
        return {"access_token": token, "token_type": "Bearer", "expires_in": 3600}

    def issuer(self):
        return f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, status, document):
        data = json.dumps(document).encode()
        self.send_response(status)
        for name, value in {**JSON, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        """Keep silent, as a log would have tokens."""


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.error = lambda why: sys.exit(f"enterprise_login: {why}; see --help")
    parser.parse_args()
    world = http.server.ThreadingHTTPServer(("127.0.0.1", 0), World)
    threading.Thread(target=world.serve_forever, daemon=True).start()
    issuer = f"http://127.0.0.1:{world.server_port}"

    server = Server("reports", version="1.0")

    @server.tool
    def who(ctx: Context) -> str:
        """Return who is calling."""
        return ctx.auth["sub"]

    # The server's metadata has its URL, so the port must be known first.
    sock = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{sock.getsockname()[1]}/mcp"
    metadata = {"resource": url, "authorization_servers": [issuer]}

    def verify(token):
        claims = World.tokens.get(token)
        return claims if claims and claims["aud"] == url else None

    with server.start_http(sock=sock, verify=verify, resource_metadata=metadata):
        auth = EnterpriseOAuth(
            # The host keeps this token of the user's login.
            identity=lambda: sign("JWT", {"sub": "ada@acme.example"}),
            idp={"token_endpoint": issuer + "/idp/token", "client_id": "our-host"},
            client_id="our-host",
            client_secret="known to that authorization server",
            issuer=issuer,
        )
        with Client(url, auth=auth) as client:
            print("the server knows us as", client.call("who"))
        ALLOWED.clear()
        auth.logout(url)
        try:
            with Client(url, auth=auth) as client:
                client.call("who")
        except AuthorizationError as error:
            print("after a change of the policy:", error)
    world.shutdown()
    world.server_close()


if __name__ == "__main__":
    main()
