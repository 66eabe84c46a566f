"""A server of both eras, on stdio and over HTTP, without mcp_lite: for students.

Teaches: what any server must do, in the order in which this file is read. Functions are
offered (1). A request reaches the handler of its method (2) once it is admitted (3).
Messages come as lines on a pipe (4), or as the bodies of HTTP requests (5).

Run: python3 examples/small_server.py            on stdio
     python3 examples/small_server.py --http 8000    at http://127.0.0.1:8000/mcp
     python3 -m mcp_lite list examples/small_server.py

Read raw_server.py before this file, and mcp_lite.py after it. This one leaves out
    cancellation, batches, pages of lists, completion, updates of resources
    schemas beyond plain types, output schemas, titles, icons
    headers that repeat arguments, streams that can be resumed, HTTP+SSE, tokens
    an expiry for the state that clients carry
    in sessions: logging, subscriptions, notifications of changed lists, their end
    limits on what a stranger may send or keep open
"""

import argparse
import base64
import hashlib
import hmac
import http.server
import inspect
import json
import os
import queue
import re
import sys
import threading
from contextlib import suppress

# Legacy: a session begins with `initialize`, and both sides may send requests.
LEGACY = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
# Modern: each request stands alone, and names its revision in `_meta`.
MODERN = ("2026-07-28",)
VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
SERVER_INFO = "io.modelcontextprotocol/serverInfo"
INFO = {"name": "small", "version": "1.0"}
# Several processes behind one URL would have to share this key.
SECRET = os.urandom(32)


###############################################################################
# 1. What is offered ##########################################################
###############################################################################

TOOLS = {}
PROMPTS = {}
RESOURCES = {}  # by URI, or by a template such as "note://{name}"
# There is no float here: 1 is a number in JSON, but not a float in Python.
TYPES = {str: "string", int: "integer", bool: "boolean", dict: "object"}


def offer(table, name=None):
    """Return a decorator that adds a function to one of these tables."""
    # setdefault returns the function.
    return lambda function: table.setdefault(name or function.__name__, function)


def parameters_of(function):
    """Return the parameters that a caller gives: all but `ctx`, which we give."""
    parameters = inspect.signature(function).parameters.values()
    return [each for each in parameters if each.name != "ctx"]


def schema_of(function):
    """Return the JSON schema that tells a model how to call a function."""
    parameters = parameters_of(function)
    return {
        "type": "object",
        "properties": {
            each.name: {"type": TYPES[each.annotation]} for each in parameters
        },
        "required": [each.name for each in parameters if each.default is each.empty],
    }


def run(function, arguments, ctx):
    """Call a function with arguments that came as JSON. Raises TypeError."""
    for each in parameters_of(function):
        # Not isinstance: in Python True is an int, in JSON true is not a number.
        if type(arguments.get(each.name, each.default)) is not each.annotation:
            raise TypeError(f"{each.name}: expected {TYPES[each.annotation]}")
    if "ctx" in inspect.signature(function).parameters:
        arguments = {**arguments, "ctx": ctx}
    return function(**arguments)


def blocks(value):
    """Return a value as a list of content blocks. A dict is a block already."""
    return [
        each if isinstance(each, dict) else {"type": "text", "text": str(each)}
        for each in (value if isinstance(value, list) else [value])
    ]


###############################################################################
# 2. Requests, and what handles them ##########################################
###############################################################################


class Refused(Exception):
    """A protocol error: for the program that asked, not for its model."""

    def __init__(self, code, message, status=200, **data):
        details = {"data": data} if data else {}
        self.error = {"code": code, "message": message, **details}
        self.status = status  # of HTTP; in a session, it is always 200


class Question(Exception):
    """Ends a modern request: its result is a question, not an answer."""


class Session:
    """What we remember about a legacy client, from its `initialize` on."""

    def __init__(self):
        self.version = None
        self.capabilities = {}
        self.waiting = {}  # {id of our request: the queue for its answer}


class Context:
    """A request. With it, a tool can report and ask before it answers."""

    def __init__(self, message, session, send):
        self.id = message["id"]
        self.method = message["method"]
        self.params = message.get("params", {})
        self.meta = self.params.get("_meta", {})
        self.session = session  # None in the modern era
        self.send = send

    def notify(self, name, **params):
        """Send a notification, which is not answered."""
        method = f"notifications/{name}"
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def progress(self, done, total):
        """Report progress, under the token that the client has chosen."""
        if "progressToken" in self.meta:
            self.notify(
                "progress",
                progressToken=self.meta["progressToken"],
                progress=done,
                total=total,
            )

    def ask(self, **questions):
        """Ask the client name={"method": ..., "params": ...}; returns {name: answer}.

        A modern client sends its request again, with the answers. The function that asks
        then runs again from the top, and returns to this place.
        """
        can = self.session.capabilities if self.session else self.meta[CAPABILITIES]
        kinds = {each["method"].partition("/")[0]: {} for each in questions.values()}
        if not kinds.keys() <= can.keys():
            raise Refused(-32021, "not declared", 400, requiredCapabilities=kinds)
        if self.session:
            return {name: self.request(**questions[name]) for name in questions}
        given = self.params.get("inputResponses") or {}
        answers = {
            **unseal(self),
            **{name: given[name] for name in given if isinstance(given[name], dict)},
        }
        if not questions.keys() <= answers.keys():
            raise Question(questions, answers)
        return answers

    def request(self, method, params):
        """Send a request of our own, and wait, as a legacy server may."""
        name = os.urandom(8).hex()
        answer = self.session.waiting[name] = queue.Queue()
        self.send({"jsonrpc": "2.0", "id": name, "method": method, "params": params})
        return answer.get(timeout=600).get("result", {})


def seal(ctx, answers):
    """Return a text that nobody else can make, with a request's answers so far.

    The server forgets them. The client sends the text along when it asks again.
    """
    about = [ctx.method, ctx.params.get("name"), ctx.params.get("arguments"), answers]
    signature = hmac.new(SECRET, json.dumps(about).encode(), hashlib.sha256)
    return f"{signature.hexdigest()} {json.dumps(answers)}"


def unseal(ctx):
    """Return the answers in a request's state. Raises Refused if it is not ours."""
    state = ctx.params.get("requestState") or seal(ctx, {})
    with suppress(ValueError):
        answers = json.loads(state.partition(" ")[2])
        if hmac.compare_digest(seal(ctx, answers).encode(), state.encode()):
            return answers
    raise Refused(-32602, "requestState: not as it was sent", 400)


def initialize(ctx):
    asked = ctx.params["protocolVersion"]
    # "Otherwise, the server MUST respond with another protocol version it supports."
    ctx.session.version = asked if asked in LEGACY else LEGACY[-1]
    ctx.session.capabilities = ctx.params["capabilities"]
    return {
        "protocolVersion": ctx.session.version,
        "capabilities": OFFERED,
        "serverInfo": INFO,
    }


def discover(ctx):
    return {
        "supportedVersions": MODERN,
        "capabilities": {
            "tools": {"listChanged": True},
            "prompts": {"listChanged": True},
            "resources": {},
        },
    }


def list_tools(ctx):
    return {
        "tools": [
            {"name": name, "description": each.__doc__, "inputSchema": schema_of(each)}
            for name, each in TOOLS.items()
        ]
    }


def call_tool(ctx):
    function = find(TOOLS, ctx)
    try:
        return {"content": blocks(run(function, ctx.params.get("arguments", {}), ctx))}
    except (Refused, Question):
        raise
    except Exception as error:
        # A result: the model may read it, and try something else.
        return {"content": blocks(f"{type(error).__name__}: {error}"), "isError": True}


def list_prompts(ctx):
    return {
        "prompts": [
            {
                "name": name,
                "description": each.__doc__,
                "arguments": [
                    {"name": word.name, "required": word.default is word.empty}
                    for word in parameters_of(each)
                ],
            }
            for name, each in PROMPTS.items()
        ]
    }


def get_prompt(ctx):
    value = run(find(PROMPTS, ctx), ctx.params.get("arguments", {}), ctx)
    return {"messages": [{"role": "user", "content": each} for each in blocks(value)]}


def find(table, ctx):
    """Return the tool or prompt that a request names. Raises Refused."""
    if ctx.params.get("name") not in table:
        raise Refused(-32602, f"unknown: {ctx.params.get('name')}")
    return table[ctx.params["name"]]


def list_resources(ctx):
    # A template has blanks in braces.
    kind = "uriTemplate" if "templates" in ctx.method else "uri"
    listed = [
        {kind: uri, "name": each.__name__, "description": each.__doc__}
        for uri, each in RESOURCES.items()
        if ("{" in uri) == (kind == "uriTemplate")
    ]
    return {"resources" if kind == "uri" else "resourceTemplates": listed}


def read_resource(ctx):
    asked = ctx.params["uri"]
    for uri, function in RESOURCES.items():
        pattern = re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(uri))
        if match := re.fullmatch(pattern, asked):
            value = function(**match.groupdict())
            content = {"mimeType": "text/plain", "text": value}
            if isinstance(value, bytes):
                content = {
                    "mimeType": "application/octet-stream",
                    "blob": base64.b64encode(value).decode(),
                }
            return {"contents": [{"uri": asked, **content}]}
    raise Refused(-32002 if ctx.session else -32602, f"unknown: {asked}", uri=asked)


def listen(ctx):
    # The kinds of changes that the client wants, and that it will get.
    wanted = {
        name: True
        for name in ("toolsListChanged", "promptsListChanged")
        if ctx.params["notifications"].get(name)
    }
    # The request has no result yet. It stays open, and changes carry its id.
    LISTENERS.append(ctx)
    ctx.notify(
        "subscriptions/acknowledged",
        notifications=wanted,
        _meta={SUBSCRIPTION: ctx.id},
    )


def changed(kind):
    """Notify all listeners that the list of "tools" or "prompts" has changed."""
    for ctx in list(LISTENERS):
        if ctx.params["notifications"].get(f"{kind}ListChanged"):
            with suppress(OSError):
                ctx.notify(f"{kind}/list_changed", _meta={SUBSCRIPTION: ctx.id})


###############################################################################
# 3. The gate #################################################################
###############################################################################

OFFERED = dict.fromkeys(("tools", "prompts", "resources"), {})
LISTENERS = []
# The handler of each method, and the eras that have it.
METHODS = {
    "initialize": (initialize, "legacy"),
    "ping": (lambda ctx: {}, "legacy"),
    "server/discover": (discover, "modern"),
    "subscriptions/listen": (listen, "modern"),
    "tools/list": (list_tools, "legacy, modern"),
    "tools/call": (call_tool, "legacy, modern"),
    "prompts/list": (list_prompts, "legacy, modern"),
    "prompts/get": (get_prompt, "legacy, modern"),
    "resources/list": (list_resources, "legacy, modern"),
    "resources/templates/list": (list_resources, "legacy, modern"),
    "resources/read": (read_resource, "legacy, modern"),
}
# Gateways do not read bodies, so the header Mcp-Name repeats this parameter.
NAMING = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
# The results of these methods say how long they are fresh.
CACHED = re.compile("server/discover|resources/read|.*/list")


def is_modern(message, header=""):
    """Return whether a message is modern, by its `_meta` or by a header."""
    return (
        VERSION in message.get("params", {}).get("_meta", {})
        or header not in ("", *LEGACY)
        or message.get("method") == "server/discover"
    )


def admit(ctx, headers):
    """Return the handler of a request. Raises Refused if it must not be served."""
    handler, eras = METHODS.get(ctx.method, (None, ""))
    if ctx.session is None:
        check_modern(ctx, headers)
    elif ctx.session.version is None and ctx.method not in ("initialize", "ping"):
        raise Refused(-32600, "not initialized")
    if ("legacy" if ctx.session else "modern") not in eras:
        raise Refused(-32601, f"there is no method {ctx.method}", 404)
    return handler


def check_modern(ctx, headers):
    """Raise Refused unless `_meta` is complete, and the headers agree with it."""
    if not {VERSION, CAPABILITIES} <= ctx.meta.keys():
        raise Refused(-32602, f"_meta wants {VERSION} and {CAPABILITIES}", 400)
    expected = {"MCP-Protocol-Version": ctx.meta[VERSION], "Mcp-Method": ctx.method}
    if ctx.method in NAMING:
        expected["Mcp-Name"] = ctx.params.get(NAMING[ctx.method])
    # On a pipe there are no headers.
    for name in expected if headers is not None else ():
        if headers.get(name, "").strip() != expected[name]:
            raise Refused(-32020, f"the header {name} contradicts the body", 400)
    if ctx.meta[VERSION] not in MODERN:
        raise Refused(
            -32022,
            "this revision is not spoken here",
            400,
            supported=MODERN,
            requested=ctx.meta[VERSION],
        )


def parse(text):
    """Return the message in a text. Raises Refused if there is none."""
    try:
        message = json.loads(text)
    except ValueError:
        raise Refused(-32700, "not JSON", 400) from None
    params = message.get("params", {}) if isinstance(message, dict) else None
    if not isinstance(params, dict) or not isinstance(params.get("_meta", {}), dict):
        raise Refused(-32600, "not a message", 400)
    return message


def serve(text, find_session, send, headers=None):
    """Serve the message in a text.

    find_session(message) returns its session, or None in the modern era. send(message)
    sends what comes before the answer. Returns the HTTP status, and the answer or None.
    """
    answer = {"jsonrpc": "2.0"}
    session = None
    try:
        message = parse(text)
        session = find_session(message)
        if session and "method" not in message:
            # The answer to one of our questions.
            session.waiting.pop(message.get("id"), queue.Queue()).put(message)
        if not {"method", "id"} <= message.keys():
            return 202, None
        answer["id"] = message["id"]
        ctx = Context(message, session, send)
        result = admit(ctx, headers)(ctx)
    except Question as question:
        asked, known = question.args
        result = {
            "resultType": "input_required",
            "inputRequests": {
                name: asked[name] for name in asked.keys() - known.keys()
            },
            "requestState": seal(ctx, known),
        }
    except Refused as refusal:
        return 200 if session else refusal.status, {**answer, "error": refusal.error}
    except Exception as error:
        # A parameter is missing or has another type; or else the failure is ours.
        code = -32602 if isinstance(error, (KeyError, TypeError)) else -32603
        return 200, {**answer, "error": {"code": code, "message": repr(error)}}
    if session is None and result:
        about = {"resultType": "complete", "_meta": {SERVER_INFO: INFO}}
        if CACHED.fullmatch(ctx.method):
            about.update(ttlMs=0, cacheScope="private")
        result = {**about, **result}
    return 200, None if result is None else {**answer, "result": result}


###############################################################################
# 4. Lines on a pipe ##########################################################
###############################################################################


def serve_stdio():
    """Serve the lines of stdin, each on a thread, until they end."""
    wire = sys.stdout
    # A tool's prints must not get between the messages.
    sys.stdout = sys.stderr
    session = Session()

    def send(message):
        # One write for the whole line, as several threads send.
        wire.write(json.dumps(message) + "\n")
        wire.flush()

    def work(line):
        _, answer = serve(line, lambda each: None if is_modern(each) else session, send)
        if answer:
            send(answer)

    for line in sys.stdin:
        threading.Thread(target=work, args=(line,)).start()


###############################################################################
# 5. HTTP #####################################################################
###############################################################################

SESSIONS = {}  # by the id in the header Mcp-Session-Id


class Handler(http.server.BaseHTTPRequestHandler):
    """One request: each message is a POST. The connection ends with the answer."""

    session_id = None
    is_stream = False

    def do_POST(self):
        text = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status, answer = serve(text, self.find_session, self.send_event, self.headers)
        if not self.is_stream:
            self.respond(status, answer)
        elif answer:
            self.send_event(answer)
        else:
            # A listener sends nothing more. This returns when it hangs up.
            with suppress(OSError):
                self.connection.recv(1)
            LISTENERS[:] = [each for each in LISTENERS if each.send != self.send_event]

    def find_session(self, message):
        """Return the session of a legacy message, which may open one, or None. Raises
        Refused for a message from elsewhere: any web page may make a browser send
        requests to 127.0.0.1."""
        origin = self.headers.get("Origin", "http://localhost").partition("://")[2]
        for host in (self.headers.get("Host", ""), origin):
            if not re.fullmatch(r"(localhost|127\.0\.0\.1|\[::1\])(:\d+)?", host):
                raise Refused(-32600, "this server is for this machine alone", 403)
        self.session_id = self.headers.get("Mcp-Session-Id")
        if is_modern(message, self.headers.get("MCP-Protocol-Version", "")):
            return None
        if message.get("method") == "initialize":
            self.session_id = os.urandom(16).hex()
            SESSIONS[self.session_id] = Session()
        if self.session_id not in SESSIONS:
            raise Refused(-32600, "no such session", 404 if self.session_id else 400)
        return SESSIONS[self.session_id]

    def send_event(self, message):
        """Send a message before the answer, which makes the response a stream."""
        if not self.is_stream:
            self.is_stream = True
            self.respond(200, kind="text/event-stream")
        self.wfile.write(f"data: {json.dumps(message)}\n\n".encode())

    def respond(self, status, message=None, kind="application/json"):
        """Send the head of a response, and its only message, if there is just one."""
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if self.session_id:
            self.send_header("Mcp-Session-Id", self.session_id)
        self.end_headers()
        if message:
            self.wfile.write(json.dumps(message).encode())

    def do_GET(self):
        self.respond(405)  # There is no GET stream, and sessions do not end.

    do_DELETE = do_GET


###############################################################################
# A server with one of each ###################################################
###############################################################################


@offer(TOOLS)
def add(a: int, b: int = 1):
    """Add two numbers."""
    return a + b


@offer(TOOLS)
def alias(name: str, ctx: Context):
    """Offer the prompt `review` under another name, too."""
    ctx.progress(1, 2)
    PROMPTS[name] = review
    changed("prompts")
    return f"review is {name}, too"


@offer(TOOLS)
def book(city: str, ctx: Context):
    """Book a journey, on a day that the user chooses."""
    form = {
        "type": "object",
        "properties": {"day": {"type": "string", "enum": ["Monday", "Friday"]}},
    }
    question = {"message": f"To {city}, on which day?", "requestedSchema": form}
    answers = ctx.ask(day={"method": "elicitation/create", "params": question})
    return f"{city}: {json.dumps(answers['day'])}"


@offer(RESOURCES, "note://{name}")
def note(name: str):
    """A note."""
    return f"This is about {name}."


@offer(PROMPTS)
def review(code: str):
    """Review some code."""
    return f"Please review this code:\n{code}"


def address(text):
    """Return (host, port) of [HOST:]PORT. Raises ValueError."""
    host, _, port = text.rpartition(":")
    if int(port) not in range(65536):
        raise ValueError(port)
    return host or "127.0.0.1", int(port)


def main(about=__doc__):
    """Serve as the command line says."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.error = lambda why: sys.exit(f"{parser.prog}: {why}; see --help")
    parser.add_argument("--http", type=address, metavar="[HOST:]PORT")
    # The conformance suite's runner gives the port alone.
    parser.add_argument(
        "port", nargs="?", type=address, help="the same, without --http"
    )
    options = parser.parse_args()
    place = options.http or options.port
    if place is None:
        with suppress(KeyboardInterrupt):
            serve_stdio()
        return
    try:
        server = http.server.ThreadingHTTPServer(place, Handler)
    except OSError as error:
        sys.exit(f"{parser.prog}: {error}")
    with server, suppress(KeyboardInterrupt):
        url = f"http://{place[0]}:{server.server_port}/mcp"
        print(url, file=sys.stderr, flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
