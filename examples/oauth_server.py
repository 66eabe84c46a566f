"""A server over HTTP that accepts only callers with a token of an authorization server.

Teaches: `verify=`, which is called with every token. Here, it sends the token to the
authorization server's introspection endpoint (RFC 7662), and checks that the token is
active and was issued for this server. `resource_metadata=` tells clients where to get a
token, and `ctx.auth` tells a tool who is calling.

Run: python3 examples/oauth_server.py https://auth.example.com --http 8000
The environment variables INTROSPECTION_ID and INTROSPECTION_SECRET name a client that the
authorization server allows to introspect. To call the server, log in:
    Client("http://127.0.0.1:8000/mcp", auth=OAuth(store="~/.tokens.json"))
"""

import argparse
import base64
import functools
import hashlib
import json
import os
import sys
import time
import urllib.parse
import urllib.request

# mcp_lite.py is one folder up.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

from mcp_lite import Context, Server, ToolError, printable  # noqa: E402


def address(text):
    """Return (host, port) of [HOST:]PORT. Raises ValueError."""
    host, _, port = text.rpartition(":")
    if int(port) not in range(65536):
        raise ValueError(port)
    return host.strip("[]") or "127.0.0.1", int(port)


parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
)
parser.error = lambda why: sys.exit(f"oauth_server: {why}; see --help")
parser.add_argument("issuer", help="the authorization server's URL")
parser.add_argument("--http", type=address, required=True, metavar="[HOST:]PORT")
options = parser.parse_args()
ISSUER = options.issuer
HOST, PORT = options.http
# The URL that clients use. Behind a proxy, it is the proxy's https URL.
URL = f"http://{HOST}:{PORT}/mcp"

MAX_NOTES = 1000
MAX_LENGTH = 10_000

server = Server("notes", version="1.0")
notes = []


@server.tool
def read_notes() -> list:
    "List all notes."
    return notes


@server.tool
def add_note(text: str, ctx: Context) -> str:
    "Add a note, in the name of the user who is logged in."
    # verify() admits callers that may read. Writing takes more.
    if "write" not in ctx.auth["scope"].split():
        # A client that can log in does so, for this scope, and calls again.
        raise PermissionError("write")
    if len(notes) >= MAX_NOTES or len(text) > MAX_LENGTH:
        raise ToolError(
            f"expected at most {MAX_NOTES} notes of {MAX_LENGTH} characters"
        )
    notes.append(f"{ctx.auth['sub']}: {text}")
    return "added"


def fetch(url, form=None):
    """Return a JSON document, or the answer to a form."""
    request = urllib.request.Request(url)
    if form is not None:
        request.data = urllib.parse.urlencode(form).encode()
        known = [os.environ["INTROSPECTION_ID"], os.environ["INTROSPECTION_SECRET"]]
        login = ":".join(map(urllib.parse.quote_plus, known)).encode()
        request.add_header("Authorization", "Basic " + base64.b64encode(login).decode())
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


# Each token is looked up once a minute, so a revoked one may work for another minute.
@functools.lru_cache(maxsize=1000)
def introspect(token, minute):
    return fetch(METADATA["introspection_endpoint"], {"token": token})


def verify(token):
    """Return the claims of a token, or None for 401. A PermissionError becomes 403. Any
    other OSError, such as an unreachable authorization server, becomes 503."""
    claims = introspect(token, int(time.time()) // 60)
    audience = claims.get("aud")
    if isinstance(audience, str):
        audience = [audience]
    # Without this check, another server could use the tokens of its users here.
    if not claims.get("active") or URL not in (audience or []):
        return None
    scope = claims.get("scope", "")
    if "read" not in scope.split():
        # The client should ask for this scope.
        raise PermissionError("read")
    # A token without a subject, such as a program's, counts as a principal of its own, so
    # that it never gets the sessions and answers of another token.
    own = hashlib.sha256(token.encode()).hexdigest()
    return {"sub": claims.get("sub") or own, "scope": scope}


if __name__ == "__main__":
    # RFC 8414: https://auth.example.com/.well-known/oauth-authorization-server/path
    parts = urllib.parse.urlsplit(ISSUER)
    place = "/.well-known/oauth-authorization-server" + parts.path.rstrip("/")
    try:
        METADATA = fetch(parts._replace(path=place).geturl())
    except (OSError, ValueError) as error:
        print(printable(f"oauth_server: {ISSUER}: {error}"), file=sys.stderr)
        sys.exit(4 if isinstance(error, OSError) else 1)
    server.run(
        "http",
        host=HOST,
        port=PORT,
        verify=verify,
        resource_metadata={
            "resource": URL,
            "authorization_servers": [ISSUER],
            "scopes_supported": ["read"],
        },
    )
