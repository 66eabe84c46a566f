"""A client that does what the official conformance suite asks of one.

Teaches: one `Client` for every revision; what it handles by itself (forms with defaults,
questions in both eras, lost streams, logins), and how little a caller has to write. The
standard library cannot sign a token with a private key. This example has a few lines that
do it; a real program should use a cryptographic library.

Run by the suite: python3 examples/conformance_client.py URL
with the name of the scenario in the environment variable MCP_CONFORMANCE_SCENARIO.
"""

import argparse
import base64
import hashlib
import json
import os
import secrets
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

# mcp_lite.py is in this folder, or one up.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.dirname(HERE))

from mcp_lite import AuthorizationError, Client, McpError, OAuth, printable  # noqa: E402

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
REVISION = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "")
CONTEXT = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")


def accept(form):
    """Agree to everything, as the user; the client fills in the form's defaults."""
    content = {}
    if "confirmed" in str(form):
        content["confirmed"] = True
    return {"action": "accept", "content": content}


VALUES = {"integer": 2, "number": 2.5, "boolean": True, "array": [], "object": {}}


def argument_for(schema):
    """Return a value that a schema allows."""
    if "enum" in schema:
        return schema["enum"][0]
    return VALUES.get(schema.get("type"), "text")


def call_every_tool(client):
    """Call each tool with its required arguments."""
    for tool in client.list_tools():
        schema = tool["inputSchema"]
        arguments = {}
        for name in schema.get("required", []):
            arguments[name] = argument_for(schema["properties"][name])
        client.call_tool(tool["name"], arguments)


def read_everything(client):
    """Use each feature that the server has."""
    call_every_tool(client)
    for resource in client.list_resources():
        client.read_resource(resource["uri"])
    for prompt in client.list_prompts():
        client.get_prompt(prompt["name"])


def call_given(client):
    """Make the calls that the scenario lists, just as they are."""
    client.list_tools()
    for call in CONTEXT.get("toolCalls", []):
        client.call_tool(call["name"], call["arguments"])


def echo_schema(client):
    """Send a tool's schema back, to show that nothing in it was lost."""
    tools = {tool["name"]: tool for tool in client.list_tools()}
    schema = tools["json_schema_2020_12_tool"]["inputSchema"]
    client.call_tool("json_schema_echo", {"schema": schema})


def visit(url):
    """Act as a browser whose user says yes. Returns the URL that it is sent back to."""

    class Stay(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *request):
            return None

    try:
        urllib.request.build_opener(Stay).open(url, timeout=10)
    except urllib.error.HTTPError as answer:
        return answer.headers["Location"]


# Signing with ES256 (FIPS 186-5): the curve P-256, y^2 = x^3 - 3x + b modulo P. How long
# Python's integers take depends on their values: whoever can measure it learns the key.
P = 2**256 - 2**224 + 2**192 + 2**96 - 1
N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
G = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)


def add(p, q):
    """Return the sum of two points; None is zero."""
    if p is None or q is None:
        return p or q
    if p[0] == q[0] and p[1] != q[1]:
        return None
    if p == q:
        slope = (3 * p[0] ** 2 - 3) * pow(2 * p[1], -1, P)
    else:
        slope = (q[1] - p[1]) * pow(q[0] - p[0], -1, P)
    x = (slope**2 - p[0] - q[0]) % P
    return x, (slope * (p[0] - x) - p[1]) % P


def times(number, point):
    total = None
    while number:
        if number & 1:
            total = add(total, point)
        point = add(point, point)
        number >>= 1
    return total


def base64url(data):
    if isinstance(data, dict):
        data = json.dumps(data).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def sign(key, header, claims):
    """Return a JSON Web Token: RFC 7515."""
    text = base64url({"alg": "ES256", **header}) + "." + base64url(claims)
    digest = int.from_bytes(hashlib.sha256(text.encode()).digest(), "big")
    once = secrets.randbelow(N - 1) + 1
    r = times(once, G)[0] % N
    s = pow(once, -1, N) * (digest + r * key) % N
    return f"{text}.{base64url(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"


def key_in(pem):
    """Return the number in a PKCS#8 file, which follows the head of an ECPrivateKey."""
    data = base64.b64decode("".join(pem.strip().splitlines()[1:-1]))
    begin = data.index(b"\x02\x01\x01\x04\x20") + 5
    return int.from_bytes(data[begin : begin + 32], "big")


def vouch(audience):
    """Return a signed statement of who we are: RFC 7523."""
    client_id = CONTEXT["client_id"]
    claims = {"iss": client_id, "sub": client_id, "aud": audience}
    claims["jti"] = secrets.token_hex(16)
    claims["exp"] = int(time.time()) + 300
    return sign(key_in(CONTEXT["private_key_pem"]), {}, claims)


def ask_employer(audience):
    """Return what the employer's identity provider says about the user: RFC 8693."""
    kind = "urn:ietf:params:oauth:token-type:"
    form = {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "requested_token_type": kind + "id-jag",
        "subject_token": CONTEXT["idp_id_token"],
        "subject_token_type": kind + "id_token",
        "audience": audience,
        "resource": sys.argv[-1],
        "client_id": CONTEXT["idp_client_id"],
    }
    body = urllib.parse.urlencode(form).encode()
    with urllib.request.urlopen(CONTEXT["idp_token_endpoint"], body, 10) as answer:
        return json.load(answer)["access_token"]


class VouchedOAuth(OAuth):
    """Sends a signed JWT (RFC 7523) instead of a secret; with `is_grant` instead of a
    user's consent, signed by somebody who vouches for us."""

    def __init__(self, *, assertion, is_grant=False, **options):
        super().__init__(grant="client_credentials", **options)
        self.assertion = assertion
        self.is_grant = is_grant
        self.issuer = None

    def fetch(self, url, headers, body=None):
        form = dict(urllib.parse.parse_qsl((body or b"").decode()))
        if "grant_type" in form:
            jwt_bearer = "urn:ietf:params:oauth:{}:jwt-bearer"
            token = self.assertion(self.issuer)
            if self.is_grant:
                form["grant_type"] = jwt_bearer.format("grant-type")
                form["assertion"] = token
            else:
                kind = jwt_bearer.format("client-assertion-type")
                form["client_assertion_type"] = kind
                form["client_assertion"] = token
            body = urllib.parse.urlencode(form).encode()
        reply = super().fetch(url, headers, body)
        # The authorization server's metadata names the audience of the JWT.
        self.issuer = reply.document.get("issuer", self.issuer)
        return reply


class BoundOAuth(OAuth):
    """Binds tokens to a key of ours. Each request proves that we have the key, by DPoP
    (RFC 9449), with the server's latest nonce."""

    token_types = ("bearer", "dpop")

    def __init__(self, **options):
        super().__init__(**options)
        self.key = secrets.randbelow(N - 1) + 1
        self.nonces = {}

    def prove(self, method, url, **claims):
        """Return the header that proves, for one request, that we have the key."""
        x, y = (base64url(part.to_bytes(32, "big")) for part in times(self.key, G))
        jwk = {"kty": "EC", "crv": "P-256", "x": x, "y": y}
        claims["jti"] = secrets.token_hex(16)
        claims["iat"] = int(time.time())
        claims["htm"] = method
        claims["htu"] = url.partition("?")[0]
        if self.nonces.get(url):
            claims["nonce"] = self.nonces[url]
        return {"DPoP": sign(self.key, {"typ": "dpop+jwt", "jwk": jwk}, claims)}

    def headers(self, method, url):
        shown = super().headers(method, url)
        token = shown.get("Authorization", "").partition(" ")[2]
        if not token:
            return shown
        digest = base64url(hashlib.sha256(token.encode()).digest())
        return {
            "Authorization": f"DPoP {token}",
            **self.prove(method, url, ath=digest),
        }

    def handle_unauthorized(self, refusal, shown, refused, asking):
        challenge = refusal.challenge
        self.nonces[refusal.url] = challenge.get("nonce")
        if challenge.get("error") == "use_dpop_nonce":
            return len(refused) < 2
        return super().handle_unauthorized(refusal, shown, refused, asking)

    def fetch(self, url, headers, body=None):
        if b"grant_type=" not in (body or b""):
            return super().fetch(url, headers, body)
        reply = super().fetch(url, {**headers, **self.prove("POST", url)}, body)
        if reply.document.get("error") == "use_dpop_nonce":
            # RFC 9449, section 8: send it again, with the nonce.
            self.nonces[url] = reply.headers.get("DPoP-Nonce")
            proof = self.prove("POST", url)
            reply = super().fetch(url, {**headers, **proof}, body)
        return reply


# The scenarios in which the login differs.
ABOUT_US = "https://conformance-test.local/client-metadata.json"
KNOWN = {name: CONTEXT.get(name) for name in ("client_id", "client_secret")}
# Here, any authorization server that the suite names may see the secret.
KNOWN["issuer"] = CONTEXT.get("issuer", "*")
LOGINS = {
    "auth/pre-registration": KNOWN,
    "auth/client-credentials-basic": {**KNOWN, "grant": "client_credentials"},
    "auth/client-credentials-jwt": {**KNOWN, "assertion": vouch},
    "auth/wif-jwt-bearer": {
        **KNOWN,
        "assertion": lambda audience: CONTEXT["valid_jwt"],
        "is_grant": True,
    },
    "auth/enterprise-managed-authorization": {
        **KNOWN,
        "assertion": ask_employer,
        "is_grant": True,
    },
}

# What the suite wants to see in a scenario. In all others, every tool is called.
LESSONS = {
    "initialize": Client.list_tools,
    "json-schema-ref-no-deref": Client.list_tools,
    "json-schema-2020-12-preservation": echo_schema,
    "http-standard-headers": read_everything,
    "http-custom-headers": call_given,
}
# The exit code for an exception is that of the first row that matches.
EXIT_CODES = ((AuthorizationError, 3), (OSError, 4), (McpError, 5))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.error = lambda why: sys.exit(f"conformance_client: {why}; see --help")
    parser.add_argument("url")
    url = parser.parse_args().url
    lesson = LESSONS.get(SCENARIO, call_every_tool)
    version = max(REVISION, "2025-11-25")
    # In this scenario, the server speaks another revision than the scenario is for, so
    # the client has to find out.
    if SCENARIO == "sse-retry":
        version = "auto"
    login = {"client_metadata_url": ABOUT_US, **LOGINS.get(SCENARIO, {})}
    kind = OAuth
    if SCENARIO.startswith("auth/dpop"):
        kind = BoundOAuth
    elif "assertion" in login:
        kind = VouchedOAuth
    auth = kind(redirect=visit, **login)
    with Client(
        url,
        protocol_version=version,
        on_elicit=accept,
        on_elicit_url=accept,
        timeout=20,
        auth=auth,
    ) as client:
        lesson(client)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
    except (McpError, OSError) as error:
        text = f"conformance_client: {SCENARIO}: {error}"
        print(printable(text), file=sys.stderr)
        sys.exit(next(code for kind, code in EXIT_CODES if isinstance(error, kind)))
