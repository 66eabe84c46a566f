"""A server over HTTP that accepts only callers with a token of an authorization server.

Teaches: `verify=`, which is called with every token. Here, it sends the token to the
authorization server's introspection endpoint (RFC 7662), and checks that the token is
active and was issued for this server. `resource_metadata=` tells clients where to get a
token, and `ctx.auth` tells a tool who is calling.

Run: python3 examples/oauth_server.py https://auth.example.com --http 8000
The environment variables INTROSPECTION_ID and INTROSPECTION_SECRET name a client that the
authorization server allows to introspect. To call the server, log in:
    Client("http://127.0.0.1:8000/mcp", auth=OAuth(store="~/.tokens.json"))

To try a login, run: python3 examples/oauth_server.py --demo
It has a small authorization server of its own, at another port of 127.0.0.1, which shows
a page with a button. In another terminal, log in and call:
    python3 -m mcp_lite login http://127.0.0.1:8000/mcp
    python3 -m mcp_lite call http://127.0.0.1:8000/mcp add_note text=hello
This is for trying out, and not for production: it asks for no password, and forgets
everything when it ends.
"""

import argparse
import base64
import contextlib
import functools
import hashlib
import hmac
import html
import http.server
import json
import os
import re
import secrets
import socket
import sys
import threading
import time
import urllib.parse
import urllib.request

# mcp_lite.py is in this folder, or one up.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.dirname(HERE))

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
parser.add_argument("issuer", nargs="?", help="the authorization server's URL")
parser.add_argument(
    "--demo", action="store_true", help="run a small one, too, to try a login"
)
parser.add_argument(
    "--http",
    type=address,
    default=("127.0.0.1", 8000),
    metavar="[HOST:]PORT",
    help="by default, 8000",
)
options = parser.parse_args()
if bool(options.issuer) == options.demo:
    parser.error("expected the URL of an issuer, or --demo")
if options.demo and options.http[0] != "127.0.0.1":
    parser.error("--demo lets anybody in, so it serves at 127.0.0.1 only")
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


def own_login():
    """Return the header by which this server logs in to introspect."""
    known = [os.environ["INTROSPECTION_ID"], os.environ["INTROSPECTION_SECRET"]]
    login = ":".join(map(urllib.parse.quote_plus, known)).encode()
    return "Basic " + base64.b64encode(login).decode()


def fetch(url, form=None):
    """Return a JSON document, or the answer to a form."""
    request = urllib.request.Request(url)
    if form is not None:
        request.data = urllib.parse.urlencode(form).encode()
        request.add_header("Authorization", own_login())
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


# The authorization server of the demo ################################################

USER = "ada"
SCOPES = ["read", "write"]
MAX_KEPT = 1000  # values of a kind
MAX_BODY = 1 << 16
# Where a login may end: at a program on this machine.
LOOPBACK = r"http://(127\.0\.0\.1|localhost|\[::1\])(:\d+)?(/[!-\"$-~]*)?"
PAGE = """<!doctype html>
<meta charset="utf-8">
<title>Log in</title>
<h1>Let {client_name} in?</h1>
<p>It asks for <b>{scope}</b> at {resource}, and returns to {redirect_uri}.</p>
<form method="post" action="/authorize">
<input type="hidden" name="ticket" value="{ticket}">
<button name="answer" value="allow">Allow</button>
<button name="answer" value="deny">Deny</button>
</form>
<p>This page is for trying out. A real one would ask who you are.</p>
"""
HINT = """For trying out, and not for production: no password is asked for.
To log in: python3 -m mcp_lite login {url}
To call a tool: python3 -m mcp_lite call {url} add_note text=hello"""


class Refused(Exception):
    """A request is answered with an error of OAuth."""


class Kept:
    """Values under keys that nobody can guess, each for a limited time."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.values = {}

    def put(self, value):
        """Keep a value, and return its key. The oldest value makes room for it."""
        key = secrets.token_urlsafe(32)
        self.values[key] = time.monotonic() + self.seconds, value
        for oldest in list(self.values)[:-MAX_KEPT]:
            self.values.pop(oldest, None)
        return key

    def get(self, key):
        """Return a value, or None if there is none any more."""
        until, value = self.values.get(key, (0.0, None))
        return value if time.monotonic() < until else None

    def take(self, key):
        """Do the same, but only once for a key."""
        value = self.get(key)
        # Of two threads, one removes it.
        return value if self.values.pop(key, None) else None


class Issuer(http.server.BaseHTTPRequestHandler):
    """A small authorization server for programs on this machine, by OAuth 2.1.

    A program registers, and sends the user's browser to /authorize. If the user agrees,
    the browser takes a code to the program, which exchanges it for a token. The server
    that receives the token introspects it.
    """

    timeout = 30.0  # seconds for which a connection may be silent
    clients = Kept(86400)
    tickets = Kept(600)
    codes = Kept(60)
    tokens = Kept(600)
    refresh_tokens = Kept(86400)

    def serve(self):
        """Have a method answer the request, or refuse it."""
        path, _, query = self.path.partition("?")
        method = self.METHODS.get((self.command, path))
        try:
            size = int(self.headers.get("Content-Length", 0))
            text = self.rfile.read(max(0, min(size, MAX_BODY))).decode()
            # The name of another site may lead to this machine (DNS rebinding).
            if method is None or f"http://{self.headers.get('Host')}" != self.issuer():
                self.answer(404, {"error": "not_found"})
            elif self.headers.get_content_type() == "application/json":
                method(self, json.loads(text))
            else:
                method(self, dict(urllib.parse.parse_qsl(text or query)))
        except Refused as error:
            self.answer(400, {"error": str(error)})
        except (AttributeError, LookupError, TypeError, ValueError, RecursionError):
            self.answer(400, {"error": "invalid_request"})

    def describe(self, form):
        """The metadata: RFC 8414."""
        issuer = self.issuer()
        self.answer(
            200,
            {
                "issuer": issuer,
                "authorization_endpoint": f"{issuer}/authorize",
                "token_endpoint": f"{issuer}/token",
                "registration_endpoint": f"{issuer}/register",
                "introspection_endpoint": f"{issuer}/introspect",
                "scopes_supported": SCOPES,
                "response_types_supported": ["code"],
                "grant_types_supported": ["authorization_code", "refresh_token"],
                "token_endpoint_auth_methods_supported": ["none"],
                "code_challenge_methods_supported": ["S256"],
                "authorization_response_iss_parameter_supported": True,
            },
        )

    def register(self, form):
        """Register a program: RFC 7591. It gets no secret, as it could not keep one."""
        uris = form["redirect_uris"]
        if not all(re.fullmatch(LOOPBACK, uri) for uri in uris):
            raise Refused("invalid_redirect_uri")
        client = {
            "client_name": str(form.get("client_name", "a program"))[:100],
            "redirect_uris": uris,
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
        }
        self.answer(201, {"client_id": self.clients.put(client), **client})

    def ask(self, form):
        """Show the user the page. Only a registered program may come back from it."""
        client = self.clients.get(form["client_id"])
        if client is None or form["redirect_uri"] not in client["redirect_uris"]:
            raise Refused("invalid_client")
        form = {"scope": "read", **form}
        has_challenge = len(form.get("code_challenge", "")) == 43
        for is_right, error in (
            (form.get("response_type") == "code", "unsupported_response_type"),
            (form.get("code_challenge_method") == "S256", "invalid_request"),
            (has_challenge, "invalid_request"),
            (form.get("resource") == URL, "invalid_target"),
            (set(form["scope"].split()) <= set(SCOPES), "invalid_scope"),
        ):
            if not is_right:
                self.go_back(form, error=error)
                return
        # A page of another site does not know the ticket, so it cannot press the button.
        shown = {**form, **client, "ticket": self.tickets.put(form)}
        texts = {name: html.escape(str(value)) for name, value in shown.items()}
        self.answer(200, PAGE.format_map(texts))

    def decide(self, form):
        """The user has pressed a button."""
        login = self.tickets.take(form["ticket"])
        if login is None:
            raise Refused("invalid_request")
        if form["answer"] == "allow":
            self.go_back(login, code=self.codes.put(login))
        else:
            self.go_back(login, error="access_denied")

    def go_back(self, login, **said):
        """Send the browser to the program."""
        said.update(iss=self.issuer(), state=login.get("state", ""))
        uri = login["redirect_uri"]
        uri += "&" if "?" in uri else "?"
        self.answer(303, {}, {"Location": uri + urllib.parse.urlencode(said)})

    def give_tokens(self, form):
        """Exchange a code, or a refresh token, for new tokens. Each works once."""
        shown = {"client_id": form["client_id"]}
        if form["grant_type"] == "authorization_code":
            login = self.codes.take(form["code"])
            # PKCE: only the program that began the login knows the verifier.
            digest = hashlib.sha256(form["code_verifier"].encode()).digest()
            challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
            shown.update(redirect_uri=form["redirect_uri"], code_challenge=challenge)
        elif form["grant_type"] == "refresh_token":
            login = self.refresh_tokens.take(form["refresh_token"])
        else:
            raise Refused("unsupported_grant_type")
        if login is None or not shown.items() <= login.items():
            raise Refused("invalid_grant")
        # The tokens are for the server for which the user has let the program in.
        if form.get("resource", login["resource"]) != login["resource"]:
            raise Refused("invalid_target")
        self.answer(
            200,
            {
                "access_token": self.tokens.put(login),
                "token_type": "Bearer",
                "expires_in": self.tokens.seconds,
                "refresh_token": self.refresh_tokens.put(login),
                "scope": login["scope"],
            },
        )

    def introspect(self, form):
        """Tell the server about a token: RFC 7662."""
        given = self.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode(), own_login().encode()):
            self.answer(401, {"error": "invalid_client"}, {"WWW-Authenticate": "Basic"})
            return
        login = self.tokens.get(form["token"])
        claims = {"active": login is not None}
        if login is not None:
            claims.update(sub=USER, aud=login["resource"], scope=login["scope"])
        self.answer(200, claims)

    METHODS = {
        ("GET", "/.well-known/oauth-authorization-server"): describe,
        ("POST", "/register"): register,
        ("GET", "/authorize"): ask,
        ("POST", "/authorize"): decide,
        ("POST", "/token"): give_tokens,
        ("POST", "/introspect"): introspect,
    }
    do_GET = do_POST = serve

    def issuer(self):
        return f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, status, document, headers=()):
        """Send a page, or a JSON document."""
        kind = "text/html" if isinstance(document, str) else "application/json"
        if not isinstance(document, str):
            document = json.dumps(document)
        data = document.encode()
        self.send_response(status)
        for name, value in {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(data)),
            "Cache-Control": "no-store",
            "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
            **dict(headers),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        """Keep silent, as a log would have codes."""


@contextlib.contextmanager
def running_issuer():
    """Run the authorization server at a free port. Yields its URL."""
    # It lets this server introspect, and no other.
    secret = secrets.token_urlsafe(32)
    os.environ.update(INTROSPECTION_ID="notes", INTROSPECTION_SECRET=secret)
    # No proxy leads to this machine, whatever the environment says.
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    urllib.request.install_opener(direct)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Issuer) as issuer:
        threading.Thread(target=issuer.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{issuer.server_port}"
        finally:
            issuer.shutdown()


if __name__ == "__main__":
    with contextlib.ExitStack() as stack:
        sock = None
        if options.demo:
            try:
                sock = stack.enter_context(socket.create_server(options.http))
            except OSError as error:
                sys.exit(f"oauth_server: {error}")
            URL = f"http://127.0.0.1:{sock.getsockname()[1]}/mcp"
            ISSUER = stack.enter_context(running_issuer())
            print(HINT.format(url=URL), file=sys.stderr, flush=True)
        # RFC 8414: https://auth.example.com/.well-known/oauth-authorization-server/path
        parts = urllib.parse.urlsplit(ISSUER)
        place = "/.well-known/oauth-authorization-server" + parts.path.rstrip("/")
        try:
            METADATA = fetch(parts._replace(path=place).geturl())
        except KeyboardInterrupt:
            sys.exit(130)
        except (OSError, ValueError) as error:
            print(printable(f"oauth_server: {ISSUER}: {error}"), file=sys.stderr)
            sys.exit(4 if isinstance(error, OSError) else 1)
        server.run(
            "http",
            host=HOST,
            port=PORT,
            sock=sock,
            verify=verify,
            resource_metadata={
                "resource": URL,
                "authorization_servers": [ISSUER],
                # An OAuth() asks for "write" when a tool refuses it. The command line
                # asks for no more than what is listed here.
                "scopes_supported": SCOPES if options.demo else ["read"],
            },
        )
