# mcp_lite 1.0.0, for Python 3.8 or newer: the Model Context Protocol in one file.
# MIT License. Copyright (c) 2026 the authors of mcp_lite.
#
# Permission is hereby granted, free of charge, to any person obtaining a copy of this
# software and associated documentation files (the "Software"), to deal in the Software
# without restriction, including without limitation the rights to use, copy, modify,
# merge, publish, distribute, sublicense, and/or sell copies of the Software, and to
# permit persons to whom the Software is furnished to do so, subject to the following
# conditions:
#
# The above copyright notice and this permission notice shall be included in all copies
# or substantial portions of the Software.
#
# THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED,
# INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A
# PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT
# HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF
# CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE
# OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
"""The Model Context Protocol (MCP): client and server, blocking calls, every revision,
no dependencies.

To use it, read README.md. To learn the protocol, run the eleven programs in
examples/lessons/, and then read Part I of this file.

A server is functions; a client is calls:
    from mcp_lite import Client, Server
    server = Server("weather", version="1.0")

    @server.tool
    def forecast(city: str, days: int = 3) -> str:
        "The forecast for a city."
        return f"{days} days of sun over {city}"

    with Client(server) as client:  # in memory; or Client("server.py"), or any command
        print(client.call("forecast", city="Oslo"))  # 3 days of sun over Oslo
    server.run()  # serve stdin and stdout until the input ends

The protocol connects programs that contain a language model, such as a chat or an
editor, to servers that lend the model what it cannot do alone. The program is the
client. A server offers
    tools      functions; the model reads their descriptions and schemas, and decides
               which to call
    resources  texts and data under URIs, which the program may show to the model
    prompts    templates of messages, from which the user picks
A server may also ask questions. It asks the user to fill in a form (elicitation), the
model to write a text (sampling), or the program to list the folders that the server may
work in (roots).

Six words:
    revision    a version of the specification, named by its date.
    capability  a feature that one side declares. The other side must not use a feature
                that was not declared.
    `_meta`     an object about the message itself, in its parameters or its result.
    session     a conversation that begins with a handshake, which fixes the revision
                and the capabilities. Over stdio it lasts as long as the process; over
                HTTP an id in a header names it.
    legacy      the revisions up to 2025-11-25. An `initialize` handshake opens a
                session, in which both sides may send requests.
    modern      the revisions since 2026-07-28. There is no session: every request
                stands alone, and carries its revision and the client's capabilities in
                `_meta`. A server's question is the result of a request. The client
                sends the request again, with the answer, and the server runs the
                handler again from its top.
There are two eras because a session ties a client to the one process that remembers it.
In the modern era, a server remembers nothing between requests, so any of its processes
may answer any request. Even a subscription is one request, which stays open.

How the two sides agree on a revision: a server takes a request as modern if its `_meta`
has a version or capabilities. Any other request except `ping` needs a session, which
only `initialize` can open. This client begins with `server/discover`, which only modern
servers know. If the server answers with an error of the legacy era, offers only legacy
revisions, or does not answer, the client goes on with `initialize`. A program may
choose the revision by `protocol_version=`. For a legacy one, the client begins with
`initialize`. For a modern one, it never sends `initialize`, and fails unless the server
offers exactly that revision.

Comments name pages of the specification by their path: basic/lifecycle.md is
https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle, and likewise
for each revision. Where no revision is named, the newest one that has the page is
meant.

One conversation of each era on the wire, a message a line, --> from the client:
    legacy
    --> {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
         "protocolVersion": "2025-11-25", "capabilities": {},
         "clientInfo": {"name": "c", "version": "1"}}}
    <-- {"jsonrpc": "2.0", "id": 1, "result": {
         "protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
         "serverInfo": {"name": "weather", "version": "1"}}}
    --> {"jsonrpc": "2.0", "method": "notifications/initialized"}
    --> {"jsonrpc": "2.0", "id": 2, "method": "tools/call",
         "params": {"name": "forecast", "arguments": {"city": "Oslo"}}}
    <-- {"jsonrpc": "2.0", "id": 2, "result": {
         "content": [{"type": "text", "text": "3 days of sun over Oslo"}]}}
    modern
    --> {"jsonrpc": "2.0", "id": 1, "method": "tools/call",
         "params": {"name": "forecast", "arguments": {"city": "Oslo"}, "_meta": {
         "io.modelcontextprotocol/protocolVersion": "2026-07-28",
         "io.modelcontextprotocol/clientCapabilities": {}}}}
    <-- {"jsonrpc": "2.0", "id": 1, "result": {"resultType": "complete",
         "content": [{"type": "text", "text": "3 days of sun over Oslo"}]}}
    modern, before the first call; "..." is as above
    --> {..., "id": 1, "method": "server/discover", "params": {"_meta": {...}}}
    <-- {..., "id": 1, "result": {"resultType": "complete",
         "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}}
    modern, when the tool has a question
    <-- {..., "id": 1, "result": {"resultType": "input_required", "inputRequests": {
         "when": {"method": "elicitation/create", "params": {...}}},
         "requestState": "what the server must remember, signed"}}
    --> {..., "id": 2, "method": "tools/call", "params": {..., "inputResponses": {
         "when": {"action": "accept", "content": {"day": "Monday"}}},
         "requestState": "what the server must remember, signed"}}
    <-- {..., "id": 2, "result": {"resultType": "complete", ...}}
    modern, over HTTP: each message is a POST; headers repeat what gateways need
    --> POST /mcp HTTP/1.1
        MCP-Protocol-Version: 2026-07-28
        Mcp-Method: tools/call
        Mcp-Name: forecast
    <-- 200 OK, with the answer as JSON; or as events, if there is progress to report:
        data: {"jsonrpc": "2.0", "method": "notifications/progress", "params": {...}}
        data: {"jsonrpc": "2.0", "id": 1, "result": {...}}

The path of one call, client.call("forecast", city="Oslo"), to a server on stdio:
    caller      Client.call         begins; it returns a Python value, while call_tool()
                                    returns the result as on the wire
                Client._start       checks that the server offers the method, and adds
                                    `_meta`
                Call                represents the call; it holds a PendingRequest
                Connection.request  registers the PendingRequest, and sends the request
                LineOutbox          queues a line; this thread or the writer calls
                Child.write         to write the line to the server's stdin
                PendingRequest.result   blocks the caller until the answer comes
    server      Connection.read_all     reads bytes; feed() cuts lines (LineFramer)
                Protocol.receive    admits the request: era, revision, method,
                                    capability, parameters
                Deputy, Workers     choose its thread: the reader, or a worker
                ServerEndpoint      finds its handler, _tools_call (serve_request)
                Signature.bind      makes Python arguments of the JSON ones, or says
                                    what is wrong; your function runs
                Output.result       makes blocks and structured content of its value
                Connection.respond  ends the request, and queues the answer
                LineOutbox.flush    writes the answer to stdout
    reader      Connection.feed     cuts lines; Protocol.receive finds the
                                    PendingRequest
                PendingRequest.resolve  wakes the caller
    caller      Call.result         returns the result. In the modern era, that may be a
                                    question: then Call answers it, and sends the
                                    request again
                value_of            makes a Python value of the result
    the end     Client.close        ends the conversation, and calls
                Child.close         to close the server's stdin, at whose end a server
                                    exits. Only a server that stays is sent SIGTERM, and
                                    then SIGKILL
In memory, the path is the same without the pipe. Over HTTP, HttpTransport takes the
place of LineOutbox and Child. On the server, HttpServer and HttpEndpoint read, the
thread of the connection runs the handler, and a MessageQueue takes the place of
LineOutbox.

The sections, in reading order, in five parts. A section uses those above it. There are
four exceptions, which need Part IV: the methods run("http"), start_http() and
wsgi_app() of a Server, and a Client for a URL.

Part I, the protocol
     1. Words           revisions, `_meta` keys, log levels, shared limits
     2. Errors          the exceptions, and what each is on the wire
     3. Messages        bytes to lines, lines to messages, and back
     4. Methods         one table of all methods: who sends each, in which revisions
     5. Protocol        one side of a conversation, without I/O, locks or clocks: which
                        messages may come now
     6. Threads         ways to wait, pools of threads, lines of log and trace
     7. Connection      the conversation with threads; the seams Transport, Endpoint and
                        Outbox
Part II, a server
     8. JSON Schema     schemas, surveyed once and then interpreted; safe patterns
     9. Content         values as JSON; text, images, links as blocks, by revision
    10. Functions       hints and docstrings as schemas; arguments, results, URIs
    11. Questions       what a server may ask its client, and which answers are valid
    12. Context         what a handler sees; how it asks the client; where it runs
    13. stdio           lines over byte streams; signals; clean standard streams; a
                        child process
    14. Server          what is offered; the handlers of requests; the public face
Part III, a client
    15. Client          targets; agreeing on a revision; calls with their rounds; pages
Part IV, HTTP
    16. HTTP messages   heads, chunks, events, mirrored headers
    17. HTTP streams    one exchange: a request, and its answer as JSON or as events
    18. HTTP endpoint   who may call; the modern era, and below it the era of sessions
    19. HTTP server     the endpoint behind http.server, and behind WSGI
    20. HTTP client     POSTs and events; below them sessions and the old HTTP+SSE
    21. Authorization   OAuth: discovery, registration, tokens, step-up
Part V, the command line
    22. Command line    python3 -m mcp_lite ...: servers from a terminal

To learn the protocol, read Part I from start to end. Then read one class for each role:
ServerEndpoint, in the section Server, answers requests; Call, in the section Client,
waits for an answer.

There are seven kinds of threads. The names of all but yours begin with "mcp-":
    yours       runs run(), serve() and the calls of a client, and waits in them
    reader      reads one input: a server's, a client's, or a child's stderr. A server's
                reader also serves the requests that it has read, if no other is being
                served. If that takes long, your thread, which waits in run(), starts
                another reader (see Deputy)
    writer      writes, for one conversation, the messages whose senders must not block
    worker      runs handlers, and a client's callbacks; over HTTP it sends a client's
                messages, and reads the answers
    loop        runs the `async def` handlers of one conversation, or HTTP server
    one-off     does one thing and ends, such as a timer
    http        one accepts connections; each connection has one more, which reads its
                requests, runs their handlers and writes their answers
The head of the section Threads has a table of every lock, queue and wait, and the rules
that keep a wake-up from being lost.

Your signal handlers must not call into this file. Python runs them on the main thread
between any two of its steps, where this file may hold a lock. Let a handler raise, or
put an item into a queue.SimpleQueue for another thread.

For those who keep a copy: the names in `__all__`, their public methods and attributes,
and all options by name stay compatible in every 1.x. A name that has to go warns for a
year first. Other names, the order of options, and the texts of errors and of the log
may change at any time. A version that ends in .dev0 is between releases. `python3
mcp_lite.py --version` prints the version, the revisions, and the SHA-256 of the file.
What each version has changed for its users:
    1.0.0  Server(version=) must be a text. A state that another server's name has
           signed is refused, even with the same key. Unknown arguments of a tool are
           dropped, with a warning, unless they look like a misspelling.
    0.3.0  Gone                     Write instead
           Client(version=)         Client(protocol_version=); `version` is now what
           Client(client_version=)  `client_version` was
           questions with a URL     Client(on_elicit_url=)
             in on_elicit
           tools in on_sample       Client(sampling_tools=True)
           OAuth(assertion=)        a class derived from OAuth, as in
                                    examples/conformance_client.py
           InternalError for a      InvalidResponse
             server's bad answer
           Texts of unexpected exceptions stay in the log over HTTP, unless
           Server(mask_errors=False) shows them.
    0.2.0  Gone: Client(inherit_env=, max_questions=); max_message, max_kept,
           max_sessions, session_seconds and legacy_sse of servers, which are constants
           of this file now; explaining, bridging and groups, which are programs in
           examples/.
"""

from __future__ import annotations  # Python 3.8 or newer

import io
import itertools
import json
import operator
import os
import re
import sys
import threading
import time
from collections import ChainMap, Counter, defaultdict, deque, namedtuple
from collections.abc import (
    Callable,
    Collection,
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    ValuesView,
)
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from functools import cached_property, lru_cache, partial, reduce
from queue import Empty, SimpleQueue
from types import SimpleNamespace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from http.client import HTTPConnection, HTTPResponse
    from http.server import BaseHTTPRequestHandler
    from socket import socket as Socket
    from socketserver import ThreadingTCPServer
    from ssl import SSLContext
    from typing import Any, Dict, List, Set, TextIO, Tuple, TypeVar, Union
    from typing import Protocol as TypingProtocol
    from urllib.parse import SplitResult

    Json = Dict[str, Any]  # a JSON object
    Headers = Dict[str, str]  # of HTTP, or the parameters of a challenge
    RequestId = Union[str, int]
    AnyFunction = Callable[..., Any]
    Callback = Union[AnyFunction, None]
    Job = Callable[[], Any]
    Write = Callable[[bytes], Any]
    # Messages of a stream of events, each with the line of its id.
    SseEvents = List[Tuple[bytes, bytes]]
    # A function that gives the claims of a bearer token, or a table of them.
    Verify = Union[Callable[[str], Union[Json, None]], Mapping[str, Json]]
    # The arguments of a tool that HTTP headers mirror: the path and the header of each.
    Mirrors = List[Tuple[List[str], str]]
    # A function that answers a GET: (status, headers, body).
    Route = Callable[[Any], Tuple[int, Headers, Union[bytes, str]]]
    # A trace is a function (direction, line); trace= may be other things, too.
    Trace = Callable[[str, bytes], Any]
    _Trace = Union[Trace, str, "os.PathLike[str]", bool, None]
    # Protocol.receive() makes one of these of a message.
    Event = Union["Request", "Notification", "Answer", "Refusal"]
    # What a decorator takes and returns.
    Function = TypeVar("Function", bound=AnyFunction)

    class Decorator(TypingProtocol):
        def __call__(self, fn: Function, /) -> Function: ...  # Python 3.8 or newer

    # server.tool(fn) returns fn; server.tool(**options) returns a decorator. Checkers
    # accept `default` for every Python, though typing itself has it only since 3.13.
    Registered = TypeVar(
        "Registered",
        bound=AnyFunction,
        default=Decorator,  # pyright: ignore[reportGeneralTypeIssues]
    )

    class Lambda(TypingProtocol):
        # No function has this attribute. Pyright takes the types of a lambda's
        # parameters from a type that it might have.
        is_lambda: None

        def __call__(self, a: Any = 0, b: Any = 0, c: Any = 0, /) -> Any: ...

else:
    # Importing `typing` would add 2 to 4 ms to every start. These stand-ins let
    # typing.get_type_hints() read all public hints (from Python 3.10 on).
    Any = _Trace = Event = RequestId = Callback = Function = Registered = object
    Lambda = Socket = SSLContext = TextIO = Verify = Route = object
    Json = Headers = dict
    AnyFunction = Job = Write = Callable

    def __getattr__(name: str) -> object:
        if name in ("FastMCP", "MCPServer"):
            raise ImportError(f"for {name} write Server: see examples/README.md")
        raise AttributeError(f"module {__name__} has no attribute {name}")


__version__ = "1.0.0"
__all__ = [
    "Audio",
    "AuthorizationError",
    "Cancelled",
    "Client",
    "ConnectionClosed",
    "Context",
    "EmbeddedResource",
    "HttpFailure",
    "Image",
    "InternalError",
    "InvalidResponse",
    "InvalidParams",
    "InvalidRequest",
    "MainThread",
    "McpError",
    "Message",
    "MethodNotFound",
    "MissingCapability",
    "NotFound",
    "OAuth",
    "Param",
    "ParseError",
    "RequestCancelled",
    "ResourceLink",
    "Server",
    "Timeout",
    "ToolError",
    "Transport",
    "UnsupportedVersion",
    "validate",
]


###############################################################################
# 1. Words ####################################################################
###############################################################################

# This section owns the words of the protocol that are not methods: its revisions, the
# keys in `_meta`, the levels of log messages. Below them are the few limits that
# several sections share; any other limit is defined in the one section that needs it.
#
# To add a revision, begin with these tuples. METHODS, RETIRED_CODES, BLOCK_SINCE,
# needed_capability() and ClientEndpoint.capabilities() define what differs between
# revisions. TestTheNextRevision, in the tests, adds a made-up one.

# Revisions are ISO dates, so they compare as strings: `since <= version <= until`. A
# session opened by `initialize` speaks a legacy one; a request that carries its version
# in `_meta` speaks a modern one.
LEGACY_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_VERSIONS = ("2026-07-28",)
OLDEST = LEGACY_VERSIONS[0]
LAST_LEGACY = LEGACY_VERSIONS[-1]
FIRST_MODERN = MODERN_VERSIONS[0]
NEWEST = MODERN_VERSIONS[-1]

# The only revision with JSON-RPC batches.
BATCH_VERSION = "2025-03-26"

# The protocol's own keys in `_meta`: basic/index.md#meta.
META = "io.modelcontextprotocol/"
META_VERSION = META + "protocolVersion"
META_CLIENT_INFO = META + "clientInfo"
META_CAPABILITIES = META + "clientCapabilities"
META_LOG_LEVEL = META + "logLevel"
META_SUBSCRIPTION = META + "subscriptionId"
META_SERVER_INFO = META + "serverInfo"

# In rising severity, as in syslog: server/utilities/logging.md.
LOG_LEVELS = "debug info notice warning error critical alert emergency".split()
LEVELS_TEXT = "expected one of " + ", ".join(LOG_LEVELS)

# Sizes and counts.
MAX_MESSAGE = 64 << 20  # bytes of a line: an 8 MiB image in base64 fits several times
CHUNK = 1 << 16  # bytes in one read: a pipe holds no more
MAX_QUEUED = 10_000  # notifications that wait for a slow peer, or a slow program
MAX_QUEUED_BYTES = 16 << 20  # bytes of the notifications that wait for a program
MAX_WORKERS = 32  # handlers at once
MAX_THREADS = 1_000  # threads of one pool, including those that wait for answers
MAX_CONNECTIONS = 256  # of an HTTP server, or of a client, at once; each has a thread
MAX_BODY = 4 << 20  # bytes of an HTTP request: the official SDKs have the same limit

# Times, in seconds.
INFINITY = float("inf")  # a wait without a deadline
LONGEST_WAIT = 2_000_000.0  # 23 days: Windows cannot wait for much more at once
DRAIN_SECONDS = 5.0  # for work in flight when the input has ended
# For cancelled handlers to clean up. It is shorter than DRAIN_SECONDS, since a client
# that sends SIGTERM kills this process a moment later.
TIDY_SECONDS = 1.0
EXIT_SECONDS = 2.0  # for a child process to end by itself, and again after a signal
SESSION_SECONDS = 1800.0  # before an idle session over HTTP ends
# Longer waits are cut into slices, since Python runs signal handlers only between them:
# a signal does not end a wait on Windows, and elsewhere the system may deliver it to a
# thread other than the one that waits.
WAIT_SLICE = 0.2 if os.name == "nt" else 1.0


###############################################################################
# 2. Errors ###################################################################
###############################################################################

# This section owns the exceptions, and defines what each is on the wire: a code, a
# message, data, and the status of an HTTP response. McpError and its subclasses are
# errors of the protocol; the others report how a call or a connection ended. The
# functions at the end quote values and errors in texts that are safe to show.

MAX_SHOWN_NAME = 200  # characters of a name or a URI in an error, or in the log


def add_given(wire: Json, **members: object) -> Json:
    """Add those members that are not None to a dict, and return the dict."""
    wire.update({name: each for name, each in members.items() if each is not None})
    return wire


class Options(SimpleNamespace):
    """The parameters of Server.start_http(), Server.wsgi_app() or Client(), which
    describe them: Options(locals()), before there are other variables."""

    def __init__(self, given: Json):
        # PyPy's own method takes no parameter called `self`.
        vars(self).update(given)


def _pickled(self: BaseException) -> tuple[Any, ...]:
    """Serve as __reduce__(): pickle copies the exception without calling __init__(),
    which takes other arguments than `self.args`."""
    return self.__new__, (type(self),), {**vars(self), "args": self.args}


def is_integer(value: object) -> bool:
    """Return whether a value is an integer in JSON. True is not. 1.0 is, since programs
    whose only numbers are floats write 1 like this."""
    return type(value) is int or (type(value) is float and value.is_integer())


def object_or_empty(value: object) -> Json:
    """Return the value if it is a JSON object, else {}."""
    return value if isinstance(value, dict) else {}


class McpError(Exception):
    """A JSON-RPC error. Raised in a handler, it is the error that the peer gets.

    code: an integer; each subclass has its own
    message: text for people
    data: any value that JSON can represent, or None
    """

    code = -32603
    http_status = 200
    # True for an error that a client has received. A handler that calls another server
    # must not forward it as its own.
    is_received = False
    # The id of the refused request, if the rest of it was not decoded.
    request_id: RequestId | None = None

    def __init__(self, code: int, message: str, data: object = None):
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    def __str__(self) -> str:
        return printable(str(self.message))

    __reduce__ = _pickled

    @staticmethod
    def from_wire(error: Json) -> McpError:
        """Return the exception for a peer's {"code", "message", "data"}, even if these
        are malformed.

        The code determines the class. Some servers use a general code for an unknown
        tool; then the text, or the data, determines whether it is a NotFound.
        """
        code: Any = error.get("code")
        text = str(error.get("message", ""))
        data = error.get("data")
        if not is_integer(code):
            return InvalidResponse(
                f"an error with the code {show(code)}: {text}", error
            )
        kind = ERRORS.get(code, McpError)
        has_uri = "uri" in object_or_empty(data)
        if code in MAYBE_NOT_FOUND and (
            has_uri or re.search(NOT_FOUND_TEXT, text[:500])
        ):
            kind = NotFound
        error_of_kind = McpError.__new__(kind)
        McpError.__init__(error_of_kind, int(code), text, data)
        error_of_kind.is_received = True
        return error_of_kind

    def to_wire(self) -> Json:
        """Return {"code", "message"}, and "data" when there is any."""
        return add_given(
            {"code": self.code, "message": sendable(str(self.message))}, data=self.data
        )


class _CodedError(McpError):
    """An error whose class has a code, and the HTTP status that goes with it."""

    http_status = 400

    def __init__(self, message: str, data: object = None):
        super().__init__(self.code, message, data)


class ParseError(_CodedError):
    """The received bytes are not JSON."""

    code = -32700


class InvalidRequest(_CodedError):
    """Valid JSON, but not a message, or a message that is not allowed now."""

    code = -32600


class MethodNotFound(_CodedError):
    """The method does not exist, or its capability was not declared."""

    code = -32601
    http_status = 404


class InvalidParams(_CodedError):
    """The parameters are wrong; the message names them."""

    code = -32602


class InvalidResponse(_CodedError):
    """In a client: the server's answer breaks the protocol, or its own outputSchema.

    data: the whole result, if there is one; then the tool has run
    """

    is_received = True


class InternalError(_CodedError):
    """The receiver failed; its log has the reason. A client raises this for -32603."""

    http_status = 500


class NotFound(InvalidParams):
    """No tool, resource or prompt has this name or URI. For resources, legacy revisions
    use the code -32002."""


class HeaderMismatch(_CodedError):
    """A header contradicts the body. In a legacy session the code is -32001."""

    code = -32020


class MissingCapability(_CodedError):
    """The client did not declare a required capability: `data` has
    "requiredCapabilities"."""

    code = -32021


class UnsupportedVersion(_CodedError):
    """This side does not support the revision: `data` has "supported" and "requested"."""

    code = -32022


class RequestCancelled(_CodedError):
    """The request was cancelled, but its sender still expects an answer. Like
    `$/cancelRequest`, the code comes from the protocol of language servers."""

    code = -32800
    http_status = 200


ERRORS: dict[int, type[McpError]] = {
    each.code: each for each in _CodedError.__subclasses__()
}
# "Resource not found", in the legacy revisions.
ERRORS[-32002] = NotFound
# Some servers use these codes for "not found", others for something else, such as
# -32001 for a timeout. So the error is a NotFound only if its text says so, or if its
# data has a resource's "uri".
MAYBE_NOT_FOUND = (InvalidParams.code, -32001, -32003)
NOT_FOUND_TEXT = (
    r"(?is)unknown (tool|resource|prompt)\b|\b(tool|resource|prompt)\b.*not found"
)
# "Implementations of this protocol version MUST NOT emit these codes":
# basic/index.md#error-codes. The first meant "resource not found", the second "URL
# elicitation required".
RETIRED_CODES = {-32002: InvalidParams.code, -32042: InternalError.code}


class ToolError(Exception):
    """A failure that the caller of a tool can act on: a result with `isError`.

    message: text for the model
    content: blocks that replace the text (text, Image, ...), or None
    """

    def __init__(self, message: str, content: list[Any] | None = None):
        super().__init__(message)
        self.content = content


class Timeout(TimeoutError):
    """No answer came in time. The request was cancelled.

    message: what did not happen
    details: more about a server, such as its command and the last lines of its stderr;
        the text includes them
    """

    def __init__(self, message: str, details: str = ""):
        super().__init__(message + details)
        self.message = message


class Cancelled(Exception):
    """In a handler: the client has cancelled the request. In a client: the program has
    cancelled the call."""


class ConnectionClosed(ConnectionError):
    """The other end is gone. For a child process, the text includes all of this:

    message: what happened
    exit_code: of the process; negative for a signal, None while it runs
    command: its command, a list; the text shows it up to the first option
    stderr: its last lines; the text shows them with control characters escaped
    """

    def __init__(
        self,
        message: str,
        exit_code: int | None = None,
        command: list[str] | None = None,
        stderr: str = "",
    ):
        super().__init__(printable(message) + child_details(command, exit_code, stderr))
        self.exit_code = exit_code
        self.command = command
        self.stderr = stderr

    __reduce__ = _pickled


def child_details(command: list[str] | None, exit_code: int | None, stderr: str) -> str:
    """Return the part of an error's text that describes a child process."""
    details = ""
    if command:
        # An option or a setting may hold a secret, and so may every word after it. -m
        # and its module do not.
        is_plain = re.compile("-m|[^-=][^=]*").fullmatch
        words = list(itertools.takewhile(is_plain, command))
        if len(words) < len(command):
            words.append("...")
        details = f" (command: {printable(' '.join(words))}"
        if exit_code is not None:
            details += f"; exit code {exit_code}"
        details += ")"
    if stderr:
        details += f"; the end of its stderr:\n{printable(stderr, keep_lines=True)}"
    return details


class HttpFailure(ConnectionError):
    """A request over HTTP has failed; the next one may succeed.

    message: what happened, and what may help
    url: the URL of the server that answered, without its user and query; "" if no
        server answered
    http_status: the status of its answer; None if no server answered
    challenge: the parameters of its WWW-Authenticate, their "scheme", and its
        DPoP-Nonce as "nonce"; or {}
    retry_after: the seconds to wait before the next request, or None
    """

    def __init__(
        self,
        message: str,
        url: str = "",
        http_status: int | None = None,
        challenge: Headers | None = None,
        retry_after: float | None = None,
    ):
        super().__init__(message)
        self.url = url
        self.http_status = http_status
        self.challenge = challenge or {}
        self.retry_after = retry_after


class AuthorizationError(HttpFailure):
    """A server, or its authorization server, rejects this client."""


class _InputRequired(BaseException):
    """Ends this run of a handler, which has a question for a modern client. `result`
    has the questions. The client sends the request again, with its answers, and the
    handler runs again from its top. `except Exception` does not catch this."""

    def __init__(self, result: Json):
        self.result = result


class _Unanswered(ConnectionClosed):
    """The conversation ended while a handler was waiting for the answer to a question.
    Unless the handler catches this, its own request ends with it."""


def unwrapped(error: BaseException) -> BaseException:
    """Return the exception that matters in an ExceptionGroup, which an
    asyncio.TaskGroup raises: the first that this file acts on, else the only one.
    Return any other exception unchanged."""
    inner = getattr(error, "exceptions", None)
    if not isinstance(inner, tuple):
        return error
    # Groups may be nested.
    errors = list(map(unwrapped, inner))
    for each in errors:
        if isinstance(each, (_InputRequired, _Unanswered, ToolError, McpError)):
            return each
    if len(errors) == 1:
        return errors[0]
    return error


# Characters that a terminal may obey as commands, or that change what people see: C0
# and C1 except the tab, marks of direction, line separators, and lone surrogates.
UNPRINTABLE = (
    "[\x00-\x08\x0a-\x1f\x7f-\x9f"
    "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str, *, keep_lines: bool = False) -> str:
    """Escape a text for a terminal or a log: ESC becomes `\\x1b`.

    keep_lines: whether line feeds stay; otherwise they become `\\n`
    """
    if keep_lines:
        return "\n".join(map(printable, text.split("\n")))
    return re.sub(UNPRINTABLE, lambda match: ascii(match[0])[1:-1], text)


def sendable(text: str) -> str:
    """Escape what UTF-8 cannot encode: a lone surrogate becomes `\\ud800`."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


_SHOWN = json.JSONEncoder(ensure_ascii=False, default=str)


def show(value: object, limit: int = 60) -> str:
    """Quote a value in an error text: the beginning of its JSON, printable."""
    if isinstance(value, str):
        value = value[: limit + 1]
    try:
        # Encode only the first parts of a large value. Each has at least one character.
        text = "".join(itertools.islice(_SHOWN.iterencode(value), limit + 1))
    except (ValueError, RecursionError):
        return f"a {type(value).__name__}"
    if len(text) > limit:
        text = text[: limit - 3] + "..."
    return printable(text)


def received(error: Any) -> Any:
    """Mark an error as one that a client has received, and return it."""
    if isinstance(error, McpError):
        error.is_received = True
    return error


def error_text(error: object) -> str:
    """Return `TypeName: message`, or the type's name if there is no message."""
    name = type(error).__name__
    # str() of an exception runs its own code, which may fail.
    with suppress(Exception):
        if text := str(error):
            return f"{name}: {text}"
    return name


###############################################################################
# 3. Messages #################################################################
###############################################################################

# This section converts bytes to lines, lines to messages, and messages to bytes.
# check_envelope() alone decides what is a message. Nothing here knows about methods,
# sessions or connections.

# Largest number of `[` and `{` in a message, or one for every 8 bytes if that is more.
# Each becomes a Python object: 4 MiB of `[],` would take 90 MiB.
MAX_BRACKETS = 500_000
# Bytes to keep of a line that is too long. They usually include its id.
MAX_BEGINNING = 1_000


def _refuse_constant(text: str) -> Any:
    """Refuse NaN and Infinity, which JSON does not have."""
    raise ValueError(f"not a number in JSON: {text}")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
_ENCODER = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")
)
_ID_TEXT = "expected string or integer"
# Matches the beginning of most messages, up to the name of the member after the id.
_BEGINNING = rb'\s*{[^{}\[\]]{,40}"id"\s*:\s*(-?[0-9]{1,18}|"[\w.:-]{1,100}")\s*,\s*'
# Exactly one of these members is present, with this type.
_PARTS = {"method": str, "result": dict, "error": dict}
# isinstance(True, int) is true, so bool comes before int.
TYPE_NAMES = {
    dict: "object",
    list: "array",
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
}


def parse_message(data: bytes) -> Any:
    """Decode one message. Raises ParseError, or InvalidRequest for a message that would
    take too much memory, but no other exception."""
    most = max(MAX_BRACKETS, len(data) >> 3)
    if len(data) > most and data.count(b"[") + data.count(b"{") > most:
        raise unread_request(data, f"more than {most} arrays and objects")
    try:
        # Some programs on Windows begin with a byte order mark.
        return _DECODER.decode(data.decode("utf-8").lstrip("\ufeff"))
    except (ValueError, RecursionError) as error:
        raise ParseError(f"not JSON in UTF-8: {error}") from None
    except MemoryError:
        raise unread_request(data, "not enough memory for this message") from None


def unread_request(line: bytes, why: str) -> InvalidRequest:
    """Make the error that refuses a message without decoding it. If the line begins as
    a request does, the error has the request's id."""
    refusal = InvalidRequest(why)
    if head := re.match(_BEGINNING + rb'"method"', line):
        refusal.request_id = json.loads(head[1])
    return refusal


def encode_json(value: object) -> str:
    """Encode a value. Raises ValueError or TypeError for what JSON does not have, such
    as NaN, or a set."""
    try:
        return _ENCODER.encode(value)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def encode_text(value: object) -> str:
    """Return a text unchanged, and the JSON of any other value."""
    if isinstance(value, str):
        return value
    return encode_json(value)


def encode_message(message: object) -> bytes:
    """Encode a message as one line of UTF-8, without its line end. A lone surrogate, as
    os.listdir() returns for a byte that is not UTF-8, becomes U+FFFD. Raises the
    exceptions of encode_json()."""
    text = encode_json(message)
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return re.sub("[\ud800-\udfff]", "\ufffd", text).encode("utf-8")


def unread_answer(line: bytes) -> Json:
    """Stand in for an answer that cannot be decoded: return an empty error with the
    line's id, so that its request fails at once. Return {} if the line does not begin
    as an answer does."""
    if head := re.match(_BEGINNING + rb'"(?:result|error)"', line):
        return {"id": json.loads(head[1]), "error": {}}
    return {}


def is_id(value: object) -> bool:
    """Return whether a request may have this id: an integer, or a text that an answer
    can repeat."""
    return is_integer(value) or (isinstance(value, str) and sendable(value) == value)


def own_id(value: Any) -> Any:
    """Restore one of our ids in an answer. Our ids are integers, which some programs
    return as texts."""
    if re.fullmatch("[1-9][0-9]{0,17}", str(value)):
        return int(value)
    return value


def find_by_id(table: dict[Any, Any], key: object) -> Any:
    """Look up an id that the peer has sent. Return None if there is no such entry."""
    if is_id(key):
        return table.get(key)
    return None


def _is_names(value: object) -> bool:
    """Return whether a value is a list of texts."""
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def member_at(value: Any, path: Iterable[str]) -> Any:
    """Return the value at a path of names in objects, or None."""
    for name in path:
        value = object_or_empty(value).get(name)
    return value


def check_envelope(message: object) -> str:
    """Return the kind of a message: "request", "notification" or "response".

    Raises InvalidRequest for anything else (basic/index.md#messages), and InvalidParams
    if the parameters are not an object.
    """
    if not isinstance(message, dict):
        raise InvalidRequest(f"expected an object, got {show(message)}")
    if message.get("jsonrpc") != "2.0":
        raise InvalidRequest(
            f'jsonrpc: expected "2.0", got {show(message.get("jsonrpc"))}'
        )
    parts = [each for each in _PARTS if each in message]
    if len(parts) != 1:
        raise InvalidRequest("expected one of method, result and error")
    part = parts[0]
    kind = _PARTS[part]
    if not isinstance(message[part], kind):
        raise InvalidRequest(
            f"{part}: expected {TYPE_NAMES[kind]}, got {show(message[part])}"
        )
    if not isinstance(message.get("params", {}), dict):
        raise InvalidParams(f"params: expected object, got {show(message['params'])}")
    if part == "method" and "id" not in message:
        return "notification"
    request_id = message.get("id")
    # An error may have a null id, if the id of its request could not be read.
    if not is_id(request_id) and (part == "method" or request_id is not None):
        raise InvalidRequest(f"id: {_ID_TEXT}, got {show(request_id)}")
    return "request" if part == "method" else "response"


def call_message(method: str, params: Any, request_id: Any = None) -> Json:
    """Make a request, or without an id, a notification."""
    # The id comes first, so that a receiver that cannot decode the rest can still
    # refuse the request by its id.
    return add_given({"jsonrpc": "2.0"}, id=request_id, method=method, params=params)


def result_message(request_id: Any, result: Json) -> Json:
    """Make the answer to a request."""
    return {"jsonrpc": "2.0", "id": request_id, "result": result}


def error_message(request_id: Any, error: McpError) -> Json:
    """Make the answer to a request that has failed. If `request_id` is None, use the
    error's own id, if it has one."""
    if request_id is None:
        request_id = error.request_id
    return add_given({"jsonrpc": "2.0"}, id=request_id, error=error.to_wire())


class CutLine(bytes):
    """The beginning of a line that is longer than MAX_MESSAGE or memory allows."""


class LineFramer:
    """Cuts bytes, which arrive in any pieces, into lines of up to MAX_MESSAGE bytes."""

    def __init__(self) -> None:
        # The unfinished line. Once it is too long, only its beginning is kept.
        self._line = bytearray()
        self._is_cut = False

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that these bytes complete, except blank ones. A CutLine
        replaces a line that is too long. b"", the end of the input, completes the
        unfinished line."""
        *ended, begun = (data or b"\n").split(b"\n")
        lines = []
        for line in ended:
            if self._line or self._is_cut:
                line = self._complete(line)
            elif len(line) > MAX_MESSAGE:
                line = CutLine(line[:MAX_BEGINNING])
            if line.strip() or isinstance(line, CutLine):
                lines.append(line)
        if begun:
            self._add(begun)
        return lines

    def _add(self, piece: bytes) -> None:
        """Add a piece to the unfinished line."""
        try:
            if not self._is_cut:
                self._line += piece
                self._is_cut = len(self._line) > MAX_MESSAGE
        except MemoryError:
            self._is_cut = True
        if self._is_cut:
            del self._line[MAX_BEGINNING:]

    def _complete(self, piece: bytes) -> bytes:
        """Return the unfinished line with its last piece, and begin the next one."""
        self._add(piece)
        line: bytes = CutLine(self._line[:MAX_BEGINNING])
        if not self._is_cut:
            # If there is not enough memory for the copy, the line is cut after all.
            with suppress(MemoryError):
                line = bytes(self._line)
        self._line = bytearray()
        self._is_cut = False
        return line


###############################################################################
# 4. Methods ##################################################################
###############################################################################

# This section owns the table of all methods, except those of tasks. The row of a method
# has its sender, its revisions, the capability that it needs, and the handler that
# serves it. A rule for one method is a trait in its row: the sections below look at the
# trait, and hardly ever at the name. (examples/explain.py describes each method in
# words.)


class Method:
    """A row of the table: a method, and the rules for it.

    The attributes below are the traits of a method, with their defaults.
    """

    # Who sends it: "client", "server" or "both".
    sender = "client"
    # "request" or "notification"; "either" for a method of an extension. The client
    # must have declared an extension's capability, too.
    kind = "request"
    # The name of the Python method that serves it: one of the receiver's Endpoint for a
    # request, one of Connection for a notification about an open request.
    handler = ""
    # The path of the capability that the receiver must have declared, and the error
    # that it answers with if it has not.
    capability: tuple[str, ...] = ()
    undeclared: type[_CodedError] = MethodNotFound
    # The rules for its params, as check_members() takes them.
    params: dict[str, type] = {}
    # The revisions that have it.
    since = OLDEST
    until = "9999-12-31"
    # Whether it may come before the handshake, and whether it belongs to the handshake.
    early = False
    handshake = False
    # Whether the reading thread serves it, before it reads the next message.
    inline = False
    # Whether it stays open, without an answer, until one of the sides ends it.
    stays_open = False
    # The member of the result that is one page of a list.
    paged = ""
    # Whether the client may cache the result: its `cacheScope` is "private".
    cached = False
    # The parameter that the header Mcp-Name mirrors, and whether Mcp-Param-* headers
    # mirror arguments.
    mirrored = ""
    mirrors_arguments = False
    # Whether its handler may ask the client questions.
    asks = False
    # Whether a ToolError becomes a result, which models can read.
    fails_readably = False
    # Whether it is a log message.
    logs = False
    # Whether it is `notifications/cancelled`, which may also end a subscription, or a
    # POST.
    cancels = False
    # For a cancellation: the parameter with the id of the request, and whether the
    # sender still expects an answer to that request.
    subject = "requestId"
    expects_answer = False
    # Whether it is the first message on a subscription.
    acknowledges = False

    def __init__(self, name: str, **traits: object):
        self.name = name
        vars(self).update(traits)

    def is_in(self, version: str) -> bool:
        """Return whether a revision has this method."""
        return self.since <= version <= self.until


class Legacy(Method):
    """The row of a method that only legacy revisions have."""

    until = LAST_LEGACY


class Notice(Method):
    """The row of a notification, by default from a server."""

    kind = "notification"
    sender = "server"


class LegacyNotice(Legacy, Notice):
    """The row of a notification that only legacy revisions have."""


# The traits of a list that comes in pages.
_LIST = {"handler": "_list", "params": {"cursor?": str}, "cached": True}
_URI = {"uri": str}
# The traits of a request that calls a function by its name.
_CALL = {"params": {"name": str, "arguments?": dict}, "mirrored": "name", "asks": True}
_SUBSCRIBE = ("resources", "subscribe")

METHODS = {
    row.name: row
    for row in (
        # Lifecycle: basic/lifecycle.md of the legacy revisions.
        Legacy(
            "initialize",
            handler="_initialize",
            params={"protocolVersion": str, "capabilities": dict, "clientInfo": dict},
            early=True,
            handshake=True,
            inline=True,
        ),
        LegacyNotice("notifications/initialized", sender="client", handshake=True),
        # No revision has this one; some tutorials use it for the one above.
        LegacyNotice("initialized", sender="client", handshake=True),
        Legacy("ping", sender="both", handler="_ping", early=True, inline=True),
        # The modern era has no handshake: server/discover.md.
        Method(
            "server/discover",
            handler="_discover",
            since=FIRST_MODERN,
            inline=True,
            cached=True,
        ),
        # Tools: server/tools.md.
        Method("tools/list", capability=("tools",), paged="tools", **_LIST),
        Method(
            "tools/call",
            handler="_tools_call",
            capability=("tools",),
            mirrors_arguments=True,
            fails_readably=True,
            **_CALL,
        ),
        # Resources: server/resources.md.
        Method(
            "resources/list",
            capability=("resources",),
            paged="resources",
            **_LIST,
        ),
        Method(
            "resources/templates/list",
            capability=("resources",),
            paged="resourceTemplates",
            **_LIST,
        ),
        Method(
            "resources/read",
            handler="_resources_read",
            capability=("resources",),
            params=_URI,
            cached=True,
            mirrored="uri",
            asks=True,
        ),
        Legacy(
            "resources/subscribe",
            handler="_resources_subscribe",
            capability=_SUBSCRIBE,
            params=_URI,
            inline=True,
        ),
        Legacy(
            "resources/unsubscribe",
            handler="_resources_unsubscribe",
            capability=_SUBSCRIBE,
            params=_URI,
            inline=True,
        ),
        # Prompts: server/prompts.md.
        Method("prompts/list", capability=("prompts",), paged="prompts", **_LIST),
        Method(
            "prompts/get",
            handler="_prompts_get",
            capability=("prompts",),
            **_CALL,
        ),
        # The rest of a server's offers: server/utilities/, and
        # basic/patterns/subscriptions.md.
        Method(
            "completion/complete",
            handler="_completion_complete",
            capability=("completions",),
            params={"ref": dict, "argument": dict, "context?": dict},
        ),
        Legacy(
            "logging/setLevel",
            handler="_logging_set_level",
            capability=("logging",),
            params={"level": str},
            inline=True,
        ),
        Method(
            "subscriptions/listen",
            handler="_subscriptions_listen",
            params={"notifications": dict},
            since=FIRST_MODERN,
            inline=True,
            stays_open=True,
        ),
        # Questions to the client: client/. In the modern era the same three travel
        # inside results (basic/patterns/mrtr.md), and are not requests. 2026-07-28
        # deprecates roots, sampling and logging: they still work, and will be removed
        # one day.
        Legacy(
            "roots/list", sender="server", handler="_roots_list", capability=("roots",)
        ),
        Legacy(
            "sampling/createMessage",
            sender="server",
            handler="_sampling_create_message",
            capability=("sampling",),
            params={"messages": list, "maxTokens": int},
        ),
        Legacy(
            "elicitation/create",
            sender="server",
            handler="_elicitation_create",
            capability=("elicitation",),
            # "with a mode not declared in client capabilities: `-32602`".
            undeclared=InvalidParams,
            params={"message": str},
            since="2025-06-18",
        ),
        # About an open request: basic/patterns/cancellation.md and progress.md.
        Notice(
            "notifications/cancelled", sender="both", handler="_cancelled", cancels=True
        ),
        # No revision has this one; language servers use it for the one above.
        Notice(
            "$/cancelRequest",
            sender="both",
            handler="_cancelled",
            subject="id",
            expects_answer=True,
        ),
        Notice("notifications/progress", sender="both", handler="_progress"),
        Notice("notifications/message", logs=True),
        # About the server's state, and the client's.
        Notice("notifications/tools/list_changed"),
        Notice("notifications/resources/list_changed"),
        Notice("notifications/resources/updated"),
        Notice("notifications/prompts/list_changed"),
        LegacyNotice("notifications/elicitation/complete", since="2025-11-25"),
        Notice(
            "notifications/subscriptions/acknowledged",
            since=FIRST_MODERN,
            acknowledges=True,
        ),
        LegacyNotice("notifications/roots/list_changed", sender="client"),
    )
}
# The row for unknown methods. An unknown request is refused; an unknown notification is
# passed on.
UNKNOWN = Notice("", sender="neither")

# The changes that a client may subscribe to: the parameter of subscriptions/listen that
# asks for it, the notification that reports it, and the capability that promises it.
# See also DECLARED, in Server.
Change = namedtuple("Change", "member method capability")
RESOURCE_UPDATE = Change(
    "resourceSubscriptions", "notifications/resources/updated", _SUBSCRIBE
)
LIST_CHANGES = {
    kind: Change(
        f"{kind}ListChanged",
        f"notifications/{kind}/list_changed",
        (kind, "listChanged"),
    )
    for kind in ("tools", "prompts", "resources")
}


def method_row(name: object) -> Method:
    """Return the row of a method; UNKNOWN if no revision has it."""
    return METHODS.get(str(name), UNKNOWN)


def mend(message: Json) -> Json:
    """Correct what other programs send that is not quite right, where its meaning is
    clear. Returns the message itself, or a corrected copy.

    Some programs send null for an absent member, such as the id of a notification, or
    for an empty object; PHP sends an empty array for an empty object. Some answers
    repeat the method, or have our id as a text.
    """
    # Most messages are requests with nothing to correct.
    values = message.values()
    is_answer = "result" in message or "error" in message
    if not (is_answer or None in values or [] in values):
        return message
    mended: Json = {}
    for name, value in message.items():
        if value == []:
            mended[name] = {}
        elif value is not None or name == "id":
            mended[name] = value
    if "result" in message and not mended.keys() & _PARTS.keys():
        mended["result"] = {}
    if "result" in mended or "error" in mended:
        mended.pop("method", None)
        mended["id"] = own_id(mended.get("id"))
    elif mended.get("id", 0) is None:
        row = method_row(mended.get("method"))
        if row.kind == "notification":
            del mended["id"]
    return mended


def check_members(rules: Mapping[str, type], members: Json, where: str = "") -> None:
    """Check members against rules, {"name": type}; "name?" is optional. Raises
    InvalidParams for the first member that does not fit. Replaces 1.0 by 1 where an
    integer is expected, and [], as PHP writes an empty object, by {}."""
    for rule, kind in rules.items():
        name = rule.rstrip("?")
        value: Any = members.get(name)
        # True is an int in Python, but not an integer in JSON.
        if isinstance(value, kind) and type(value) is not bool:
            continue
        if kind is int and is_integer(value):
            members[name] = int(value)
        elif kind is dict and value == []:
            members[name] = {}
        elif value is not None or name == rule:
            came = f"got {show(value)}" if name in members else "but it is missing"
            raise InvalidParams(f"{where}{name}: expected {TYPE_NAMES[kind]}, {came}")


def has_capability(capabilities: Json, path: tuple[str, ...]) -> bool:
    """Return whether a capability, such as ("resources", "subscribe"), was declared: as
    true, or as an object, for which PHP may write []. The path () needs no
    declaration."""
    declared = member_at(capabilities, path)
    return declared is True or declared == [] or isinstance(declared, dict)


###############################################################################
# 5. Protocol #################################################################
###############################################################################

# This section owns the state of one side of a conversation. It does no I/O, takes no
# lock and reads no clock. Each message from the peer passes one gate,
# Protocol.receive(), which decides whether the message may come now, and what it means.
# A request is registered before its handler starts. The thread that removes it from the
# dict of open requests ends it, and no other thread may send anything about it.


class Request:
    """One request from the peer, from its admission to its end.

        in flight --respond()----------> over, with or without an answer
                  --cancel_request()---> the same, and its handler must stop

    respond() and cancel_request() are methods of Connection.

    The class holds the defaults, so that a request is cheap to make. No code changes
    them in place.
    """

    modern = False
    # True for a notification of an extension. It is served like a request, but gets no
    # answer.
    is_notification = False
    # Whether its handler must stop: the peer no longer wants the answer, the
    # conversation ends, or the server has answered because the handler took too long.
    cancelled = False
    # The lowest level of the log messages that a modern request asks for; "" for none.
    log_level = ""
    # The token for progress notifications.
    progress_token: RequestId | None = None
    # The last progress that was sent. The next one must be greater.
    progress = -INFINITY
    # Over HTTP: the claims of its bearer token, and its headers with names in lower
    # case.
    auth: Json | None = None
    headers: Headers = {}
    # The thread that occupies a slot of the server for it: ServerEndpoint.lent_slot().
    thread: int | None = None
    # The name of the registered function that runs for it, for ServerEndpoint.load().
    runs = ""
    # In a client, the id of the call on whose stream it came, where that is known.
    subject: RequestId | None = None
    # Takes every message about it: the outbox of its connection, the stream that
    # answers its POST, or the Batch that collects its answer.
    outbox: Any = None

    def __init__(self, message: Json, session: Protocol):
        params = message.get("params") or {}
        meta = params.get("_meta") or {}
        if not isinstance(meta, dict):
            raise InvalidParams(f"params._meta: expected object, got {show(meta)}")
        self.id: RequestId = message["id"]
        self.method = message["method"]
        self.params = params
        self.meta = meta
        self.row = METHODS.get(self.method) or session.extension_row(self.method)
        # Its name in errors and the log: that of the tool, resource or prompt, or else
        # the method.
        about = params.get(self.row.mirrored)
        self.about = self.method
        if self.row.mirrored and about and isinstance(about, str):
            self.about = about[:MAX_SHOWN_NAME]
        # The session's values. _admit_modern() replaces them by the request's own.
        self.version = session.version
        self.capabilities = session.peer_capabilities
        self.client_info = session.peer_info
        self.callbacks: list[Job] = []

    def cancel(self) -> None:
        """Tell its handler to stop: run each callback once. Never blocks."""
        self.cancelled = True
        while self.callbacks:
            # IndexError: another thread has taken the last callback. RuntimeError: the
            # system cannot start a thread, or an event loop has ended.
            with suppress(IndexError, RuntimeError):
                callback = self.callbacks.pop()
                callback()


# A notification, its row (UNKNOWN if METHODS has none), and its size in bytes (0 if
# unknown). An extension's notification is a Request instead.
Notification = namedtuple("Notification", "method params row size", defaults=[0])
# The end of one of our requests: its PendingRequest, and a result or an error. The
# error came from the peer, or says what was wrong with the answer.
Answer = namedtuple("Answer", "pending result error")
# A refused message: the reason, and the reply to send, or None. `is_late` marks an
# answer to a request that is not open; it may simply be late. `is_stray` marks a line
# that is not a message; a server may have printed it.
Refusal = namedtuple(
    "Refusal", "why reply is_late is_stray", defaults=[None, False, False]
)

# The `_meta` of a modern request, as check_members() takes it: basic/index.md#meta.
MODERN_META = {META_VERSION: str, META_CAPABILITIES: dict, META_CLIENT_INFO + "?": dict}


def check_modern_version(version: object) -> None:
    """Raise UnsupportedVersion unless this is a modern revision."""
    if version not in MODERN_VERSIONS:
        raise UnsupportedVersion(
            f"unsupported protocol version {show(version)}",
            {"supported": list(MODERN_VERSIONS), "requested": version},
        )


class Protocol:
    """One side of a conversation.

    role: "client" or "server"
    capabilities: a function that returns what this side declares now
    extension_row: a function that returns the row of an extension's method, or UNKNOWN

    On a server, the legacy handshake opens a session: `initialize` sets `version`,
    `peer_info` and `peer_capabilities`, and the notification that follows sets
    `initialized`. Modern requests change none of these. A client sets its own
    `version` and, in a session, `initialized`, and leaves the other two empty.
    """

    version = ""
    initialized = False
    # The first message that mend() has changed; "" once the log shows it.
    oddity: str | None = None
    # "The server MAY decide" this until the client sends logging/setLevel.
    log_level = "info"

    def __init__(
        self,
        role: str,
        capabilities: Callable[[], Json],
        extension_row: Callable[[str], Method] = method_row,
    ):
        self.role = role
        self.capabilities = capabilities
        self.extension_row = extension_row
        self.peer_info: Json = {}
        self.peer_capabilities: Json = {}
        # Our requests that have no answer yet, by id. Each is registered before its
        # bytes leave: see PendingRequest, in Connection.
        self.pending: dict[Any, Any] = {}
        # The peer's requests that have no answer yet, by id.
        self.in_flight: dict[RequestId, Request] = {}
        # The ids of our next requests.
        self.ids = itertools.count(1)
        # The URIs that resources/subscribe has named.
        self.subscribed: dict[str, object] = {}

    def receive(self, message: Any, outbox: Any = None) -> Event:
        """Judge one decoded message. A Request that this returns is in flight, and
        `outbox` takes its answer. Raises nothing."""
        if isinstance(message, dict):
            mended = mend(message)
            if mended != message and self.oddity is None:
                self.oddity = show(message, 200)
            message = mended
        try:
            kind = check_envelope(message)
            if kind == "request":
                return self._receive_request(message, outbox)
            if kind == "notification":
                return self._receive_notification(message, outbox)
            return self._receive_response(message)
        except McpError as error:
            return self.refuse(object_or_empty(message), error)

    def refuse(self, message: Json, error: McpError) -> Answer | Refusal:
        """Return the event of a message that breaks the protocol, as `error` says: an
        Answer that fails one of our requests, or else a Refusal."""
        why = str(error)
        known_id = message.get("id", error.request_id)
        if "result" in message or "error" in message:
            # An answer gets no reply, but the request that waits for it must end.
            pending = self.pending.pop(known_id, None) if is_id(known_id) else None
            if pending is None:
                return Refusal(why)
            kind = InvalidResponse if self.role == "client" else InternalError
            failure = kind(f"not a valid answer: {why}", message.get("result"))
            return Answer(pending, None, failure)
        if self.role == "client" and not {"jsonrpc", "method"} <= message.keys():
            # A server that prints to its stdout expects no answers to these lines.
            return Refusal(why, is_stray=True)
        is_notification = "method" in message and "id" not in message
        if is_notification or not self._may_answer():
            return Refusal(why)
        if not is_id(known_id) or known_id in self.in_flight:
            # An error with this id would answer the request that is in flight.
            known_id = error.request_id = None
        return Refusal(why, error_message(known_id, error))

    def _may_answer(self) -> bool:
        """Return whether this side answers requests at all. A client does so only after
        a legacy revision is agreed on: in the modern era it "MUST NOT send JSON-RPC
        _responses_": basic/transports/streamable-http.md."""
        return self.role == "server" or OLDEST <= self.version < FIRST_MODERN

    def _receive_request(self, message: Json, outbox: Any) -> Request:
        """Admit a request, and register it. Raises McpError."""
        request = Request(message, self)
        request.outbox = outbox
        self._admit(request)
        if self.in_flight.setdefault(request.id, request) is not request:
            raise InvalidRequest(f"id {show(request.id)} is in flight already")
        if request.row.handshake:
            self._open_session(request)
        return request

    def _admit(self, request: Request) -> None:
        """Check lifecycle, era, method, sender, revision, capability, extension and
        parameters. Raises McpError if the request may not come now."""
        row = request.row
        # basic/lifecycle.md: before `initialized` a server "SHOULD NOT send requests
        # other than pings and logging".
        is_open = self.initialized or row.early
        if self.role == "client" and not (is_open and self._may_answer()):
            raise InvalidRequest(f"{request.method}: there is no session")
        # basic/versioning.md: "A request carrying modern per-request `_meta` is served
        # statelessly". So is a method that only the modern era has: it needs `_meta`.
        meta = request.meta
        is_modern = META_VERSION in meta or META_CAPABILITIES in meta
        if is_modern or row.since >= FIRST_MODERN:
            self._admit_modern(request)
        elif self.role == "server" and not self.version and not row.early:
            raise InvalidRequest(
                f"{show(request.method)}: not initialized; send initialize first, or "
                f"the _meta of {NEWEST}"
            )

        # Some clients give the notification `initialized` an id. The answer is an
        # error, but the session is open.
        if row.handshake and row.kind == "notification":
            self.initialized = bool(self.version)

        # `ping` and `initialize` may come before there is a revision. The oldest one
        # has both.
        version = request.version or OLDEST
        is_known = row.kind != "notification" and row.sender != self.role
        if not is_known or not row.is_in(version):
            raise MethodNotFound(
                f"{show(request.method)}: not a request to a {self.role} in {version}"
            )
        if not has_capability(self.capabilities(), row.capability):
            raise row.undeclared(
                f"{request.method}: this {self.role} did not declare "
                f"{'.'.join(row.capability)}"
            )

        # "Extensions are advertised in the `extensions` field": basic/versioning.md.
        # Legacy revisions allow capabilities of any name, so also `extensions`.
        is_of_extension = row.kind == "either"
        if is_of_extension and not has_capability(request.capabilities, row.capability):
            extension = row.capability[1]
            raise MissingCapability(
                f"{request.method} belongs to the extension {extension}, which the "
                "client did not declare",
                {"requiredCapabilities": {"extensions": {extension: {}}}},
            )
        token = meta.get("progressToken")
        if token is not None and not is_id(token):
            raise InvalidParams(f"_meta.progressToken: {_ID_TEXT}, got {show(token)}")
        request.progress_token = token
        check_members(row.params, request.params)

    def _admit_modern(self, request: Request) -> None:
        """Take the revision, the capabilities and the like from the `_meta` of a modern
        request. Raises McpError."""
        meta = request.meta
        check_members(MODERN_META, meta, "_meta.")
        request.version = meta[META_VERSION]
        check_modern_version(request.version)
        level = meta.get(META_LOG_LEVEL) or ""
        if level and level not in LOG_LEVELS:
            raise InvalidParams(
                f"_meta.{META_LOG_LEVEL}: {LEVELS_TEXT}, got {show(level)}"
            )
        request.modern = True
        request.log_level = level
        request.capabilities = meta[META_CAPABILITIES]
        request.client_info = meta.get(META_CLIENT_INFO) or {}

    def _open_session(self, request: Request) -> None:
        """Open a session with what the client declares in `initialize`."""
        # "MUST respond with the same version. Otherwise [...] another": here the latest
        # one that has a handshake.
        version = request.params["protocolVersion"]
        if version not in LEGACY_VERSIONS:
            version = LAST_LEGACY
        self.version = request.version = version
        self.peer_capabilities = request.capabilities = request.params["capabilities"]
        self.peer_info = request.client_info = request.params["clientInfo"]
        # Some clients keep a child process, and send `initialize` for each new session.
        # The new session replaces the old one; requests in flight go on.
        self.initialized = False
        self.log_level = Protocol.log_level
        self.subscribed = {}

    def _receive_notification(
        self, message: Json, outbox: Any
    ) -> Notification | Request:
        """Admit a notification: as a Request, if it belongs to an extension. Raises
        McpError."""
        method = message["method"]
        row = METHODS.get(method) or self.extension_row(method)
        if row.kind == "request" or row.sender == self.role:
            raise InvalidRequest(f"{show(method)}: not a notification to a {self.role}")
        if row.kind == "either":
            # It belongs to an extension. It has no id, so a new object is its key.
            request = self._receive_request({**message, "id": object()}, outbox)
            request.is_notification = True
            return request
        if row.handshake:
            self.initialized = bool(self.version)
        return Notification(method, message.get("params") or {}, row)

    def _receive_response(self, message: Json) -> Answer | Refusal:
        """Find the request that this answers, one of ours, and end it."""
        pending = self.pending.pop(message.get("id"), None)
        if pending is None:
            return Refusal(
                f"the request it answers is not open: {show(message, 200)}",
                is_late=True,
            )
        if "error" in message:
            return Answer(pending, None, McpError.from_wire(message["error"]))
        return Answer(pending, message["result"], None)


###############################################################################
# 6. Threads ##################################################################
###############################################################################

# This section owns the ways to wait, the pools of threads, and the lines of log and of
# trace. It knows nothing about messages.
#
# The table lists every lock, queue and wait of the file, by section. A lock is either a
# *leaf* or a *turn*. A leaf guards data: its holder takes no other lock, does not
# block, and runs no user code. A turn serialises one activity, such as reading, writing
# or logging in; most threads try to take it, and go on if another thread has it.
#
#  what                              why                       what ends the wait for it
#  6  Workers._jobs                  jobs, in order            submit(); close()
#     Workers._lock                  threads, count, limit     leaf
#     Workers.close(), join_all()    the end of the jobs       the last one; a deadline
#     _PRINTING                      one prints to stderr      leaf: it prints only what
#                                                              fits into the pipe;
#                                                              PRINT_SECONDS
#     Inbox._items                   what waits for a program  put(); close()
#     Inbox._lock                    its size                  leaf
#  7  Connection._lock               in flight, and queued     leaf, except outboxes'
#     PendingRequest.result()        an answer                 resolve(); its deadline
#  8  _SEARCHING                     turn: one text is         the end of the search,
#                                    searched, for memory      which MAX_STEPS bounds
#  12 Context.sleep()                sleep                     a cancellation; its time
#     MainThread._jobs               jobs for the host         __call__(); `wait`
#     MainThread._running            turn: one runs jobs       never waited for
#     outcome, in run_job()          what a host returns       the job; a cancellation
#     EventLoop._lock, started       one loop                  the start of its thread;
#                                                              DRAIN_SECONDS
#     over, in EventLoop             the end of the loop       close()
#     the future of a coroutine      an awaited result         its end; its task ends
#                                                              with the request
#     time_limit()'s Timer           a limit                   cancel(); its time
#  13 LineOutbox._lock               lines, is one writing?    leaf
#     LineOutbox._written            turn: one thread writes   the end of the write; on
#                                                              a server's stdio,
#                                                              WRITE_SECONDS end all;
#                                                              drain() has a deadline
#     Deputy._lock                   who reads, who serves     leaf
#     Signals._queue                 signals, ends, jobs       a signal handler; the
#                                                              reader; "mcp-end"; TICK
#     wait_for()                     the end of work           its job; a signal; its
#                                                              deadline
#     Child._wait(), join()          the end of a child        that; a deadline, then
#                                                              SIGTERM, SIGKILL
#  14 ServerEndpoint._slots          max_workers               a function that returns
#     ServerEndpoint._door           turn: one waits for a     the same
#                                    slot, so all have order
#  15 Call._waiting                  turn: one answers         the end of its result();
#                                                              `timeout`
#     Call: NOT_YET_SECONDS          "ask again later"         its time
#     flush_callbacks()              all was heard             the thread for callbacks
#     Client._connecting             turn: one connects        the end of its connect()
#  17 MessageQueue._lock             messages that wait        leaf
#     Exchange._writing              turn: one thread writes   the end of the write; the
#                                                              deadline of its socket. A
#                                                              probe does not wait for it
#     Exchange.bell                  what others queue         put(); comment_seconds
#  19 HttpServer.closing, _is_closed ticks; the end            close(); TICK_SECONDS
#  20 HttpCaller._lock               connections               leaf; shuts sockets
#     HttpCaller.closed              retries; idle connections close(); the delay
#     LegacyHttp._renewing           turn: one opens a session its end; `timeout`
#     LegacyHttp._is_answered        the endpoint's URL        the event; `timeout`
#     LegacyHttp: "mcp-delete"       the end of a session      its answer; EXIT_SECONDS
#  21 OAuth._turn, Authorizer._turn  turn: one logs in         its end; LOGIN_SECONDS
#     arrived                        the browser's redirect    the listener; a deadline
#
# get_within() cuts each wait for a queue into slices, since Python runs signal handlers
# only between them. Only two others poll: the Deputy ticks while requests keep coming,
# and an HTTP server ticks to notice deadlines and clients that hang up.
#
# There are six kinds of pools, all made of the class Workers: "mcp-worker",
# "mcp-client", "mcp-callbacks", "mcp-on-cancel", "mcp-writer" and "mcp-posts".
#
# Each resource has one owner, which ends it in a `finally`, or by leaving a `with`:
#     a reader        Deputy._read() and Client._read() report the end
#     a slot          ServerEndpoint.serve_request(); lent_slot() lends it while its
#                     function waits for the client
#     a turn          the thread that has taken it
#     an exchange     HttpEndpoint.serve(), on the thread of its HTTP connection
#     a stream        LegacyEndpoint.post() makes it, and keeps or drops it
#     memory that an exchange occupies    HttpEndpoint.answer()
#     a session       LegacyEndpoint; _get_sse() for HTTP+SSE, post() for stateless ones
#     an HTTP request of a client     HttpCaller.send()
#     a connection of a client        Client._open(), until connect() has returned it;
#                     then close(), in the process that has connected
#     an idle HTTP connection         HttpCaller._take(), or _close_idle()
#     a coroutine     EventLoop.run(); a loop that ends closes those that never began
#
# Three rules remain:
#     1  The thread that removes a request from `in_flight` or `pending` ends it. No
#        other thread may send anything about it. A request gets its outbox before it
#        enters `in_flight`.
#     2  A Connection's lock makes two steps one: checking that a message may be sent
#        (the request is open, the peer has not left), and queueing the message.
#     3  Queueing and flushing stay two steps. flush() may wait for a slow peer, so only
#        threads that serve a request call it. Others use flush_soon() and drain().


def do_nothing(*ignored: object, **options: object) -> None:
    """A no-op callback."""


def get_within(inbox: SimpleQueue[Any], seconds: float = INFINITY) -> Any:
    """Block for the next item. Raises Empty after `seconds`. Python runs signal
    handlers between the slices of the wait."""
    until = time.monotonic() + seconds
    while True:
        # Up to Python 3.12, get(timeout=) may hang unless get_nowait() was tried first.
        try:
            return inbox.get_nowait()
        except Empty:
            left = until - time.monotonic()
        if left <= 0:
            raise Empty
        with suppress(Empty):
            return inbox.get(timeout=min(left, WAIT_SLICE))


def start_thread(name: str, job: AnyFunction, *arguments: Any) -> threading.Thread:
    """Call job(*arguments) on a new thread, which does not keep Python alive. Raises
    RuntimeError if the system cannot start a thread."""
    thread = threading.Thread(target=job, args=arguments, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        raise RuntimeError(f"{name}: {error}") from None
    return thread


def on_main_thread() -> bool:
    """Return whether the calling thread is the main one."""
    return threading.current_thread() is threading.main_thread()


def join_all(threads: Collection[threading.Thread], seconds: float) -> bool:
    """Block until these threads have ended, for `seconds` in all at most. Return
    whether they have."""
    until = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return not any(map(threading.Thread.is_alive, threads))


def is_ready(stream: Any, writing: bool = False, seconds: float = 0) -> bool:
    """Wait until a read, or with `writing` a write of 4 KiB, would not block: for
    `seconds` at most. Return whether that is so. For a write on Windows, return True,
    as the system cannot tell."""
    import select

    try:
        if sys.platform == "win32" or not hasattr(select, "poll"):
            return writing or bool(select.select([stream], [], [], seconds)[0])
        poll = select.poll()
        poll.register(stream, select.POLLOUT if writing else select.POLLIN)
        return bool(poll.poll(seconds * 1000))
    except (OSError, ValueError, TypeError):
        # The stream has no descriptor, or is closed. The next call will report that.
        return True


class Workers:
    """A pool of threads that do jobs in order. A thread is started when all others are
    busy, up to `limit`.

        submit(job) --> an idle thread, or a new one, does it --> the thread is idle
        close() ------> the pool's threads do the jobs that wait, and end

    concurrent.futures has such a pool, but its threads keep a program from ending, and
    it imports `logging`.
    """

    # Whether another job follows on the same thread, so that one write can carry the
    # answers to both. Always False here; Deputy overrides it.
    has_more = False

    def __init__(self, name: str, limit: int):
        self._name = name
        self._limit = limit
        # The jobs that wait. A None ends one thread.
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        # Guards `_limit`, and everything below.
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        # A thread from outside the pool that is serving jobs: see join_if_idle().
        self._guest: threading.Thread | None = None
        # The number of jobs that wait, or that the pool's own threads do now.
        self._unfinished = 0
        # Whether submit() refuses jobs.
        self.is_closed = False

    def __len__(self) -> int:
        """Return how many jobs wait."""
        return self._jobs.qsize()

    def submit(self, job: Job) -> bool:
        """Queue a job. Never blocks. Returns False after close(), and if the pool has
        no thread and the system cannot start one."""
        with self._lock:
            if self.is_closed:
                return False
            self._unfinished += 1
            self._grow()
            if not self._threads:
                self._unfinished -= 1
                return False
            self._jobs.put(job)
            return True

    def _grow(self) -> None:
        """Start a thread if a job waits for one. The caller holds the lock."""
        most = min(self._limit, self._unfinished, MAX_THREADS)
        if len(self._threads) < most and not self.is_closed:
            # If the system cannot start a thread, the existing ones do the job.
            with suppress(RuntimeError):
                # A job may be in input() when Python ends. The reference keeps stdin
                # from being freed meanwhile.
                self._threads.append(start_thread(self._name, self._run, sys.stdin))

    def _run(self, kept: object) -> None:
        while (job := self._jobs.get()) is not None:
            self.do(job)
            # Free the job, and what it holds, before waiting for the next one.
            del job
            with self._lock:
                self._unfinished -= 1

    def join_if_idle(self) -> bool:
        """If the pool is idle, count the calling thread as one of its own until
        leave(). Return whether that was done."""
        with self._lock:
            if self.is_closed or self._unfinished or self._guest is not None:
                return False
            self._guest = threading.current_thread()
            return True

    def leave(self) -> None:
        """Undo join_if_idle()."""
        with self._lock:
            self._guest = None

    def do(self, job: Job) -> None:
        """Do a job on the calling thread, and log a failure."""
        try:
            job()
        except BaseException as error:
            log_line(ERROR, f"{self._name}: a job failed", error)

    @contextmanager
    def lent(self) -> Iterator[None]:
        """While the caller is inside, do not count its thread towards the limit: its
        job waits for a peer, so another thread may do the jobs in the queue."""
        with self._lock:
            self._limit += 1
            self._grow()
        try:
            yield
        finally:
            with self._lock:
                self._limit -= 1

    def close(self, seconds: float) -> bool:
        """Refuse new jobs; the threads do those that wait, and end. Block until all
        threads except the calling one have ended, for `seconds` at most, and return
        whether they have. Idempotent."""
        with self._lock:
            if not self.is_closed:
                self.is_closed = True
                for _ in self._threads:
                    self._jobs.put(None)
            threads = {*self._threads, self._guest or threading.current_thread()}
        return join_all(threads - {threading.current_thread()}, seconds)


class SameThread:
    """Replaces Workers where each request has its own thread, as over HTTP: submit()
    does the job at once, on the calling thread."""

    has_more = False
    lent = nullcontext

    def __len__(self) -> int:
        return 0

    def submit(self, job: Job) -> bool:
        """Do a job on the calling thread. Returns True."""
        job()
        return True

    def close(self, seconds: float) -> None:
        """A no-op: there are no threads to end."""


# The levels of Python's logging, which is slow to import.
DEBUG = 10
INFO = 20
WARNING = 30
ERROR = 40

# Largest number of bytes that one call prints to stderr: a pipe that is ready takes
# that many.
MAX_STDERR = 4_000
# Largest number of characters of a message that trace=True prints.
MAX_TRACE = 160
BURST_SECONDS = 5.0  # between two warnings of one kind
PRINT_SECONDS = 0.2  # to wait for another thread that prints
# Held while a thread checks that stderr is ready, and prints.
_PRINTING = threading.Lock()


def print_to_stderr(text: str) -> None:
    """Print a text to stderr. If it is longer than MAX_STDERR bytes, leave out its
    middle. If stderr is full, or closed, drop the text."""
    data = text.encode("utf-8", "backslashreplace")
    if len(data) > MAX_STDERR:
        # A traceback ends with what matters most.
        data = data[: MAX_STDERR // 4] + b"\n...\n" + data[-MAX_STDERR // 2 :]
    stream = sys.stderr
    # A host program may have replaced sys.stderr with a console, usually a widget that
    # hangs, or crashes, if any thread but the main one writes to it.
    is_console = stream is not None and not isinstance(stream, io.TextIOBase)
    if is_console and not on_main_thread():
        stream = sys.__stderr__
    if stream is None:
        return
    # In a forked child, the thread that held the lock may not exist.
    if not _PRINTING.acquire(timeout=PRINT_SECONDS):
        return
    try:
        with suppress(OSError, ValueError):
            if is_ready(2, writing=True):
                print(data.decode("utf-8", "ignore"), file=stream, flush=True)
    finally:
        _PRINTING.release()


def log_line(
    level: int,
    text: str,
    error: BaseException | None = None,
    logger: str = "mcp_lite",
    attributes: Json | None = None,
) -> None:
    """Log a line, with the traceback of an error, if any, and with these attributes of
    its record. If the program has no handler for the logger, print warnings and errors
    to stderr."""
    if level < WARNING and "logging" not in sys.modules:
        return
    import logging

    log = logging.getLogger(logger)
    has_handlers = log.hasHandlers()
    if not log.isEnabledFor(level) or (level < WARNING and not has_handlers):
        return
    text = printable(text)
    raised = None
    traced = ""
    if error is not None:
        # An exception may quote a peer. Indent its lines, so that none looks like a
        # record of the log.
        raised = (type(error), error, error.__traceback__)
        lines = logging.Formatter().formatException(raised)
        traced = printable(lines, keep_lines=True).replace("\n", "\n    ")
    if has_handlers:
        record = log.makeRecord(
            logger, level, __file__, 0, "%s", (text,), raised, extra=attributes
        )
        record.exc_text = traced
        log.handle(record)
    else:
        print_to_stderr(f"{text}\n{traced}".strip())


class BurstLog:
    """Logs a warning that may come in bursts: the first one at once, then at most one
    every BURST_SECONDS, with the number of those in between."""

    def __init__(self) -> None:
        # The number of warnings so far, and what it was when one was last logged.
        self.count = 0
        self._logged = 0
        # When the next one may be logged, by time.monotonic().
        self._next = -INFINITY

    def add(self, text: str) -> None:
        """Log the warning, or count it."""
        self.count += 1
        now = time.monotonic()
        if now >= self._next:
            if passed_over := self.count - self._logged - 1:
                text += f" ({passed_over} more before this)"
            self._logged = self.count
            self._next = now + BURST_SECONDS
            log_line(WARNING, text)


class Inbox:
    """A bounded queue for a thread of the program. When it holds more than MAX_QUEUED
    items, or MAX_QUEUED_BYTES, it drops the oldest ones, and logs a warning."""

    def __init__(self, about: str):
        self._about = about
        # Pairs of an item and its size. (None, 0) is the end.
        self._items: SimpleQueue[Any] = SimpleQueue()
        # Guards the number of bytes in the queue.
        self._lock = threading.Lock()
        self._size = 0
        self._lost = BurstLog()

    def put(self, item: object, size: int = 0) -> None:
        """Add an item. Never blocks."""
        self._items.put((item, size))
        self._count(size)
        # Empty: another thread has taken the last item, and is about to count it.
        with suppress(Empty):
            while self._items.qsize() > MAX_QUEUED or self._size > MAX_QUEUED_BYTES:
                oldest, size = self._items.get_nowait()
                if oldest is None:
                    # The end stays in the queue, whatever comes after it.
                    self.close()
                    return
                self._count(-size)
                self._lost.add(
                    f"{self._about}: too many unread items; dropping the oldest"
                )

    def _count(self, size: int) -> None:
        with self._lock:
            self._size += size

    def get(self, seconds: float = INFINITY) -> Any:
        """Block for the next item; None is the end. Raises Empty after `seconds`."""
        item, size = get_within(self._items, seconds)
        self._count(-size)
        if item is None:
            # Put the end back, for the next thread.
            self.close()
        return item

    def close(self) -> None:
        """Add the end: after the items before it, get() returns None to any thread."""
        self._items.put((None, 0))


def tracer(trace: _Trace) -> Trace | None:
    """Return the function (direction, line) that the option trace= asks for, or None.

    With None, MCP_LITE_TRACE decides. A function is called with each line. True, or 1,
    prints the beginning of each line to stderr. A path names a file to which each line
    is appended, after its direction. A failure is logged, and breaks nothing.
    """
    if trace is None:
        trace = os.environ.get("MCP_LITE_TRACE")
    if trace in (None, False, "", "0"):
        return None
    if isinstance(trace, (str, os.PathLike)) and trace != "1":
        # The program may change its working directory.
        trace = os.path.abspath(trace)
    return partial(_call_trace, trace, BurstLog())


def _call_trace(trace: Any, failures: BurstLog, direction: str, line: bytes) -> None:
    """Show one line, as tracer() describes."""
    try:
        if callable(trace):
            trace(direction, line)
        elif trace in (True, "1"):
            clock = time.strftime("%H:%M:%S")
            text = line[: 4 * MAX_TRACE].decode("utf-8", "replace")[:MAX_TRACE]
            print_to_stderr(
                f"{clock} {direction} {printable(text)} ({len(line)} bytes)"
            )
        else:
            # Messages may hold private data, so only this user may read a new file.
            with open(trace, "ab", opener=partial(os.open, mode=0o600)) as file:
                file.write(b"%s %s\n" % (direction.encode(), line))
    except Exception as error:
        failures.add(f"trace: {error_text(error)}")


###############################################################################
# 7. Connection ###############################################################
###############################################################################

# This section owns the conversation: a Connection is a Protocol with threads around it.
# One thread reads, and passes bytes to feed(). Workers serve the requests. There are
# three seams: a Transport carries bytes, an Outbox queues messages and has them
# written, and an Endpoint knows what they mean. This section opens no file and no
# socket, and runs user code only through the Endpoint.

MAX_BATCH = 1_000  # members of a batch
MAX_BACKLOG = 10_000  # requests that wait for a worker; one more is refused
# How a trace marks what each side sends, and what it receives.
_DIRECTIONS = {"client": ("-->", "<--"), "server": ("<--", "-->")}


def encode_answer(answer: Json, request: Request | None) -> tuple[Json, bytes]:
    """Return an answer and its bytes. If it cannot be encoded, return an error in its
    place, and log that."""
    try:
        return answer, encode_message(answer)
    except (ValueError, TypeError) as error:
        why = f"not valid JSON: {error}"
    except MemoryError:
        why = "not enough memory"
    about = "the answer" if request is None else request.about
    why = printable(f"{about}: {why}")
    # The caller holds a lock, and the program's log handlers may block, so another
    # thread logs.
    with suppress(RuntimeError):
        start_thread("mcp-log", log_line, ERROR, why)
    failure = error_message(answer.get("id"), InternalError(why))
    return failure, json.dumps(failure).encode("ascii")


class Transport:
    """Carries the bytes of a Connection: each message is a line of them.

    To write another one, derive from this class, and give an instance to Client as its
    target; it carries one conversation (basic/transports.md#custom-transports).
    Override write() and close(), and also read() unless `feeds` is true. The library
    calls
        start(connection)  once, on the thread of connect(), before all else. If it
                           raises, so does connect(), which then calls only close()
        read()             to block for the next bytes, any number of them; b"" is the
                           end. The client's reading thread calls it, in a loop
        write(data)        to send whole lines, completely; it may block. One thread at
                           a time calls it, while another one reads
        details()          to describe the other end in the text of a Timeout
        describe_end(why)  to make the exception for calls that still wait at the end;
                           it may take a moment
        close()            to end it, so that read() and write() return or raise soon.
                           Any thread calls it, once, even if it has ended by itself
    When the other end is gone, read() and write() raise OSError, or ValueError, as
    closed files do. From then on, the library calls neither.

    If `feeds` is true, the library never calls read(). The transport passes on what
    arrives by connection.feed(data), on one thread at a time, and reports the end by
    connection.close(self.describe_end(why)).

    For a server it is easier to call Server.serve().
    """

    feeds = False
    # On a server: when to give up the current write, by time.monotonic().
    _write_until = INFINITY
    # Whether headers mirror arguments of tools. If so, the client reads the list of
    # tools, which names these arguments, before the first call.
    mirrors = False

    def start(self, connection: Connection) -> None:
        """Begin to carry a connection."""

    def read(self) -> bytes:
        """Block for the next bytes; b"" is the end. Raises OSError or ValueError."""
        raise NotImplementedError

    def write(self, data: bytes) -> None:
        """Send whole lines. Raises OSError or ValueError when the other end is gone."""
        raise NotImplementedError

    def close(self) -> None:
        """End it. Called once, from any thread."""

    def details(self) -> str:
        """Describe the other end for an error's text, for example by its name."""
        return ""

    def describe_end(self, why: str) -> ConnectionClosed:
        """Return the exception that describes the end, with all that is known."""
        return ConnectionClosed(why)


class Endpoint:
    """Serves the messages of a Connection: a server has one, a client has one.

    To write another one, derive from this class, and give an instance to a Connection.
    Only serve_request() must be overridden. The Protocol has admitted each message that
    comes here: it has the members of its row in METHODS. The Connection calls these
    methods, none of which may raise:
        serve_request       once for each request, on a thread that may block. If the
                            row of the method says `inline`, the reading thread calls
                            it, and it must not block; if the endpoint sets `may_block`,
                            the reading thread does so only for handshakes
        serve_notification  on the reading thread, in order; it must not block. The
                            Connection itself serves those about an open request
        input_ended         when the other end sends no more, but may still listen
        header_parameters   for HTTP alone: which arguments of a tool headers mirror

    To answer, call connection.respond(request, result_message(request.id, {...})), or
    the same with an error_message(), from any thread, now or later. The answer is
    written when serve_request() returns, or together with the next one. A thread that
    answers after that calls connection.outbox.flush_soon(). A request without an answer
    stays open until it is cancelled.
    """

    # Whether any request may run user code, as with middleware, or `visible=`.
    may_block = False

    def serve_request(self, connection: Connection, request: Request) -> None:
        """Serve a request, and answer it, now or later."""
        raise NotImplementedError

    def serve_notification(
        self, connection: Connection, notification: Notification
    ) -> None:
        """Act on a notification, unless it is about an open request."""

    def input_ended(self, connection: Connection) -> None:
        """Act on the end of the input. The other end may still listen."""

    def header_parameters(self, tool: str) -> Mirrors:
        """Return the arguments of a tool that HTTP headers mirror, each as the path and
        the header of mirrored_headers()."""
        return []


class Outbox:
    """Takes the messages of a Connection, and has them written.

    Sending only queues: send() and finish() never block, as the Connection may hold its
    lock. They raise ValueError or TypeError for a message that is not valid JSON.
    Afterwards, by rule 3 (section Threads), the caller has the message written: by
    flush() if it may wait for a slow peer, as workers and handlers may, else by
    flush_soon().

    Over HTTP, a response ends with the answer that finish() queues. Apart from that,
    only the HttpEndpoint and its connections may end one, by end(), and a handler may
    leave() a stream, which the client then resumes.

    This class drops all messages; subclasses override what they can do.
    """

    # Its Connection sets this.
    connection: Any = None

    def send(self, message: Json) -> None:
        """Queue a message."""

    def finish(self, request: Request | None, answer: Any) -> None:
        """Queue the answer to a request; None means that the request ends without one.
        If `request` is None, the answer is the reply of a Refusal, which may be None,
        or the list of the answers to a batch. An answer that is not valid JSON is
        replaced by an error."""

    def may_wait(self) -> bool:
        """Return whether flush() may have to wait for the peer."""
        return False

    def flush(self) -> None:
        """Write what is queued. Blocks while the peer is slow."""

    def flush_soon(self) -> None:
        """Write what is queued, on another thread if this one would have to wait."""

    def drain(self, seconds: float) -> None:
        """Block until all is written, for `seconds` at most; then drop the rest."""

    def end(self) -> None:
        """End an HTTP response, and drop all further messages."""

    def leave(self, retry_ms: int) -> None:
        """End an HTTP stream, so that the client resumes it after `retry_ms`."""

    def ask_scope(self, error: BaseException) -> bool:
        """If a handler has raised PermissionError(scope), have the answer ask for a
        token with this scope: authorization, "Runtime Insufficient Scope Errors".
        Returns False if the server checks no tokens, or a message was sent already."""
        return False


class Batch(Outbox):
    """Collects the answers to a batch, and passes all other messages to an outbox."""

    def __init__(self, outbox: Outbox):
        self.answers: list[Json] = []
        self.outbox = outbox

    def send(self, message: Json) -> None:
        self.outbox.send(message)

    def may_wait(self) -> bool:
        return self.outbox.may_wait()

    def flush(self) -> None:
        self.outbox.flush()

    def flush_soon(self) -> None:
        self.outbox.flush_soon()

    def finish(self, request: Request | None, answer: Any) -> None:
        if answer:
            self.answers.append(encode_answer(answer, request)[0])


class PendingRequest:
    """The future of one of our requests, from the call that sends it to its end.

        new --Connection.request()--> open --resolve(), or cancel()--> done

    While it is open, it is in `protocol.pending` under its id. The thread that removes
    it from there calls resolve() (rule 1). Any thread may wait for it.

    Connection.register() alone opens one without a message: a thread then waits for
    items that others put(), and for the end of the connection.
    """

    # The id of the request. 0 until it has one, as no request has the id 0.
    id: RequestId = 0
    # Whether the request was queued. The connection's lock guards it.
    sent = False
    # If set, the text of a Timeout names these: something in place of the method, such
    # as a tool, and the time-out of the whole call, of which this request is a part.
    about = ""
    limit = 0.0
    # Its outcome: when it is done, one of these is set.
    answer = None
    error: BaseException | None = None

    def __init__(
        self, connection: Connection, method: str, *, on_done: Job = do_nothing
    ):
        self.method = method
        # Whether to ask for progress. Each progress notification restarts the time-out.
        self.wants_progress = method_row(method).asks
        self.began = time.monotonic()
        self._connection = connection
        # Called once when this is done, on any thread; it must not block.
        self._on_done = on_done
        # The items before the end, such as progress.
        self._inbox = Inbox(method)
        self.put = self._inbox.put

    def resolve(self, error: BaseException | None, answer: Json | None = None) -> None:
        """Set the outcome, and wake the threads that wait. Never blocks."""
        self.error = error
        self.answer = answer
        self._on_done()
        self._inbox.close()

    def done(self) -> bool:
        """Return whether it has ended."""
        return self.answer is not None or self.error is not None

    def cancel(self, reason: str | None, error: BaseException | None = None) -> bool:
        """End it with `error`, or Cancelled, and send the peer the reason:
        basic/patterns/cancellation.md. Never blocks. Returns False if it had ended
        already."""
        error = error or Cancelled("the request was cancelled")
        if not self._connection.resolve(self.id, error):
            return False
        # "The `initialize` request MUST NOT be cancelled by clients".
        if self.sent and not method_row(self.method).handshake:
            # The reason may quote a lone surrogate.
            params = add_given(
                {"requestId": self.id}, reason=sendable(reason or "") or None
            )
            self._connection.notify("notifications/cancelled", params)
        return True

    def take(self, seconds: float = INFINITY, deadline: float = INFINITY) -> Any:
        """Block for the next item; None is the end.

        Raises Timeout after `seconds`, unless another thread is answering one of the
        peer's questions, since a user may think for long. Raises Timeout at the
        `deadline`, by time.monotonic(), in any case.
        """
        while True:
            with suppress(Empty):
                return self._inbox.get(min(seconds, deadline - time.monotonic()))
            why = f"no answer within {max(self.limit or seconds, 0):g} seconds"
            if time.monotonic() >= deadline:
                why = "no answer by the deadline of total_timeout"
            elif self._connection.is_answering(self):
                continue
            raise Timeout(
                f"{self.about or self.method}: {why}", self._connection.details()
            )

    def result(
        self, seconds: float, on_progress: Callback = None, deadline: float = INFINITY
    ) -> Json:
        """Block for the answer. Call on_progress(progress, total, message) on this
        thread. Each progress notification restarts the wait of `seconds`.

        Raises McpError, Cancelled, ConnectionClosed, and Timeout as take() does. Any
        exception cancels the request, including Ctrl-C and what on_progress raises.
        """
        try:
            while (progress := self.take(seconds, deadline)) is not None:
                if on_progress is not None:
                    on_progress(
                        progress["progress"],
                        progress.get("total"),
                        progress.get("message"),
                    )
        except Timeout as error:
            self.cancel(error.message)
            raise
        except BaseException as error:
            # The peer must not see the text of the exception.
            self.cancel(type(error).__name__)
            raise
        if self.error:
            # Other threads may raise the same object.
            raise self.error.with_traceback(None)
        return self.answer or {}


class Connection:
    """One conversation: a Protocol, its Endpoint, and the Outbox for its messages.

        feed() --> receive() --> act() --> a worker: serve()
                                             --> respond() --> the outbox --> the peer
        request() --> PendingRequest.result() <-- act(): the answer

    `workers` do what may block: a pool, or SameThread where each request has a thread.
    `trace` is called with each message: see tracer().
    """

    # The id of an HTTP session.
    session_id: str | None = None
    # Why the peer is gone. Once this is set, send() drops every message.
    reason: BaseException | None = None
    # Why no more answers come. Once this is set, the peer sends nothing more, but may
    # still listen.
    silence: BaseException | None = None
    # On a client: why the input has ended.
    why_ended = "the server closed the connection"
    # Whether the peer can be notified of changes at any time.
    carries_changes = True
    # send() returns this outbox for a dropped message.
    dropped = Outbox()
    # The EventLoop of `async def` handlers.
    loop: Any = None

    # Whether the peer may be any host on the network.
    is_remote = False

    def __init__(
        self,
        protocol: Protocol,
        endpoint: Endpoint,
        outbox: Outbox,
        workers: Workers | SameThread,
        *,
        transport: Transport | None = None,
        tidiers: Workers | None = None,
        trace: Trace | None = None,
    ):
        self.protocol = protocol
        self.endpoint = endpoint
        self.outbox = outbox
        outbox.connection = self
        self.workers = workers
        # Takes the jobs: the workers, or a Deputy.
        self.begin: Any = workers
        self.transport = transport or Transport()
        self.trace = trace or do_nothing
        self.sends, self._receives = _DIRECTIONS[protocol.role]
        self._framer = LineFramer()
        # The threads of ctx.on_cancel(), since all workers may be busy.
        if tidiers is None:
            tidiers = Workers("mcp-on-cancel", MAX_WORKERS)
        self.tidiers = tidiers
        # Rule 2: checking that a message may be sent, and queueing it, is one step.
        self._lock = threading.Lock()
        # Lines from a server that are not messages. A client's connections share it.
        self.strays = BurstLog()
        # Each thread that is answering one of the peer's questions -> a function that
        # returns whether the time-out of a request is suspended meanwhile.
        self._answerers: dict[int, Callable[[PendingRequest], bool]] = {}

    # Reading. feed() waits for no peer and no handler. The only user code that runs
    # here is the trace, and middleware around a handshake.
    def read_all(self) -> None:
        """Read until the input ends. A reading thread does nothing else."""
        while self.read():
            pass

    def read(self) -> bool:
        """Read once, and serve what came. Returns False at the end of the input."""
        data = b""
        try:
            try:
                data = self.transport.read()
            except (OSError, ValueError) as error:
                # ValueError: the file was closed.
                log_line(DEBUG, f"the input ended: {error_text(error)}")
            self.feed(data)
            return bool(data)
        except Exception as error:
            self.why_ended = f"cannot read: {error_text(error)}"
            log_line(ERROR, self.why_ended, error)
            return False

    def feed(self, data: bytes) -> None:
        """Receive the lines that these bytes complete; b"" is the end of the input."""
        for line in self._framer.feed(data):
            self.receive(line, is_whole=bool(data))

    def receive(
        self, line: bytes, is_whole: bool = True, subject: RequestId | None = None
    ) -> None:
        """Receive one line, and act on its message; workers serve the requests.

        is_whole: False if the input ended before the end of the line
        subject: the id of our request on whose stream the line came
        """
        protocol = self.protocol
        try:
            if isinstance(line, CutLine):
                raise unread_request(
                    line, f"a message of more than {MAX_MESSAGE} bytes"
                )
            self.trace(self._receives, line)
            message = parse_message(line)
            if isinstance(message, list):
                self.receive_batch(message, self.outbox)
                return
            event = protocol.receive(message, self.outbox)
            if isinstance(event, Notification):
                event = event._replace(size=len(line))
            elif isinstance(event, Request):
                event.subject = subject
        except McpError as error:
            if not is_whole and protocol.role == "client":
                # The server died while it was writing this line.
                return
            # If the line is an answer to one of our requests, end that request.
            event = protocol.refuse(unread_answer(line), error)
        if protocol.oddity:
            log_line(DEBUG, f"not quite JSON-RPC: {protocol.oddity}")
            protocol.oddity = ""
        if isinstance(event, Refusal) and event.is_stray:
            self.strays.add(
                "not a message, skipped (does the server print?): "
                f"{event.why}: {line[:200]!r}"
            )
        self.act(event)

    def details(self) -> str:
        """Describe the other end, for the text of a Timeout."""
        hint = ""
        if strays := self.strays.count:
            hint = f"; {strays} lines were not messages; does the server print?"
        return hint + self.transport.details()

    def receive_batch(
        self,
        messages: list[Any],
        outbox: Outbox,
        prepare: Callable[[Event], object] = do_nothing,
    ) -> None:
        """Receive the messages of a batch; their answers go to `outbox` together. Call
        prepare(event) before each is served. Raises InvalidRequest."""
        if self.protocol.version != BATCH_VERSION:
            raise InvalidRequest(f"batches: only {BATCH_VERSION} allows them")
        if not 0 < len(messages) <= MAX_BATCH:
            raise InvalidRequest(f"a batch: expected 1 to {MAX_BATCH} messages")
        # Register all before the first one is served, as one may cancel another.
        batch = Batch(outbox)
        events = [self.protocol.receive(each, batch) for each in messages]
        requests = []
        for event in events:
            prepare(event)
            if isinstance(event, Request):
                requests.append(event)
            else:
                self.act(event, batch)
        job = partial(self._serve_batch, requests, batch)
        if not self._submit(job, *requests):
            # The requests are refused now: have these answers sent.
            job()

    def _serve_batch(self, requests: list[Request], batch: Batch) -> None:
        """Serve the requests of a batch, one after the other; then send the answers."""
        for request in requests:
            self.serve(request)
        if batch.answers:
            batch.outbox.finish(None, batch.answers)
        batch.flush()

    def act(self, event: Event, outbox: Outbox | None = None) -> None:
        """Act on the event of a message. A Refusal's reply goes to `outbox`, or else to
        the outbox of the connection."""
        if isinstance(event, Request):
            self._serve_soon(event)
        elif isinstance(event, Answer):
            event.pending.resolve(event.error, event.result)
        elif isinstance(event, Notification):
            is_served = False
            if event.row.handler:
                is_served = getattr(self, event.row.handler)(event)
            if not is_served:
                self.endpoint.serve_notification(self, event)
        else:
            log_line(DEBUG, f"refused: {event.why}")
            outbox = outbox or self.outbox
            outbox.finish(None, event.reply)
            outbox.flush_soon()

    def _serve_soon(self, request: Request) -> None:
        """Have a request served, by a worker or on this thread."""
        row = request.row
        if row.inline and (row.handshake or not self.endpoint.may_block):
            # Serve it on this thread, before the next message is read.
            self.endpoint.serve_request(self, request)
            request.outbox.flush_soon()
        else:
            self._submit(partial(self.serve, request), request)

    def _submit(self, job: Job, *requests: Request) -> bool:
        """Submit a job that serves these requests. If that fails, or too many jobs
        wait, refuse the requests, and return False."""
        why = "too many requests wait"
        if len(self.begin) < MAX_BACKLOG:
            if self.begin.submit(job):
                return True
            why = "the server is closing, or no thread could be started"
        error = InternalError(why)
        for request in requests:
            self.cancel_request(request, error_message(request.id, error))
        return False

    def serve(self, request: Request) -> None:
        """Serve a request, and write its answer, on a thread that may block."""
        try:
            if self.reason:
                # It arrived while lose() was cancelling the others.
                self.cancel_request(request)
            elif not request.cancelled:
                self.endpoint.serve_request(self, request)
        finally:
            if not self.begin.has_more:
                request.outbox.flush()

    # METHODS names these two handlers of notifications about an open request. Each
    # returns whether it has served the notification; otherwise the endpoint serves it.
    def _cancelled(self, notification: Notification) -> bool:
        params = notification.params
        request = find_by_id(
            self.protocol.in_flight, params.get(notification.row.subject)
        )
        if request is None:
            return False
        answer = None
        if notification.row.expects_answer:
            answer = error_message(request.id, RequestCancelled("request cancelled"))
        # "Both parties SHOULD log cancellation reasons for debugging".
        reason = params.get("reason")
        log_line(DEBUG, f"{request.method} was cancelled; reason: {show(reason, 200)}")
        return self.cancel_request(request, answer)

    def _progress(self, notification: Notification) -> bool:
        params = notification.params
        pending = find_by_id(self.protocol.pending, own_id(params.get("progressToken")))
        is_number = type(params.get("progress")) in (int, float)
        if pending and pending.wants_progress and is_number:
            pending.put(params, notification.size)
        return True

    # The peer's requests
    def is_in_flight(self, request: Request) -> bool:
        """Return whether one of the peer's requests is still open."""
        # By now, another request may have the same id.
        return self.protocol.in_flight.get(request.id) is request

    def respond(self, request: Request, answer: Json | None) -> bool:
        """End one of the peer's requests, and queue its answer, if it gets one. Never
        blocks. Returns False if the request had ended already."""
        if request.is_notification:
            answer = None
        with self._lock:
            # basic/transports/stdio.md: "MUST NOT send any further messages for it"
            if not self.is_in_flight(request):
                return False
            # Rule 1 (section Threads): this thread alone may send anything about it.
            del self.protocol.in_flight[request.id]
            request.outbox.finish(request, answer)
        return True

    def cancel_request(self, request: Request, answer: Json | None = None) -> bool:
        """End a request, with this answer if there is one, and stop its handler.

        Returns False if the request had ended already. Never blocks, except over HTTP,
        where a slow client may hold up the end of a stream.
        """
        if not self.respond(request, answer):
            return False
        request.cancel()
        request.outbox.flush_soon()
        return True

    def cancel_requests(self) -> None:
        """Cancel all of the peer's requests that are in flight."""
        for request in list(self.protocol.in_flight.values()):
            self.cancel_request(request)

    # Sending
    def send(
        self,
        message: Json,
        about: Request | None = None,
        progress: float | None = None,
        pending: PendingRequest | None = None,
    ) -> Outbox:
        """Queue a message, and return its outbox, which the caller flushes. Never
        blocks.

        about: the peer's request that the message is about; once that has ended, the
            message is dropped
        progress: the number in a progress notification, which is dropped unless this is
            greater than the last one
        pending: our request, if this sends one; dropped if it was cancelled
        """
        outbox = self.outbox
        with self._lock:
            if self.reason:
                return self.dropped
            if about:
                outbox = about.outbox
                # progress: "MUST stop after completion".
                if not self.is_in_flight(about):
                    return self.dropped
                # "The `progress` value MUST increase with each notification".
                if progress is not None:
                    if not progress > about.progress:
                        return self.dropped
                    about.progress = progress
            if pending:
                if pending.id not in self.protocol.pending:
                    return self.dropped
                pending.sent = True
            outbox.send(message)
        return outbox

    def notify(self, method: str, params: Json | None) -> None:
        """Send a notification. Never blocks."""
        self.send(call_message(method, params)).flush_soon()

    # Our own requests
    def register(self, pending: PendingRequest, request_id: Any) -> None:
        """Give one of our requests this id, and open it. Raises ConnectionClosed."""
        pending.id = request_id
        with self._lock:
            reason = self.reason or self.silence
            if not reason:
                self.protocol.pending[request_id] = pending
        if reason:
            pending.resolve(reason)
            raise reason.with_traceback(None)

    def resolve(
        self, request_id: Any, error: BaseException | None, answer: Json | None = None
    ) -> bool:
        """End one of our requests with an error, or an answer. Returns False if it had
        ended already."""
        with self._lock:
            pending = self.protocol.pending.pop(request_id, None)
        if pending:
            pending.resolve(error, answer)
        return pending is not None

    def request(
        self, pending: PendingRequest, params: Json | None, about: Request | None = None
    ) -> PendingRequest:
        """Send a request, and return `pending`, which gets the answer. Never blocks.

        about: the peer's request that this one serves, if any

        Raises ConnectionClosed, Cancelled if `about` has ended, and the exceptions of
        encode_message().
        """
        request_id = next(self.protocol.ids)
        if pending.wants_progress:
            params = dict(params or {})
            params["_meta"] = {**params.get("_meta", {}), "progressToken": request_id}
        self.register(pending, request_id)
        try:
            message = call_message(pending.method, params, request_id)
            self.send(message, about, None, pending).flush_soon()
        except BaseException as error:
            self.resolve(request_id, error)
            raise
        if about and not self.is_in_flight(about):
            pending.cancel("no longer needed")
            raise Cancelled("the request was cancelled")
        return pending

    def cancel_pending(self, error: BaseException) -> None:
        """Cancel all of our requests; each ends with `error`."""
        for pending in list(self.protocol.pending.values()):
            pending.cancel(str(error), error)

    @contextmanager
    def answering(
        self, concerns: Callable[[PendingRequest], bool] = bool
    ) -> Iterator[None]:
        """While the caller is inside, and answers one of the peer's questions, suspend
        the time-outs of requests that other threads wait for, if concerns(request) is
        true. By default, it is true for every request."""
        thread = threading.get_ident()
        self._answerers[thread] = concerns
        try:
            yield
        finally:
            self._answerers.pop(thread, None)

    def is_answering(self, pending: PendingRequest) -> bool:
        """Return whether another thread is answering a question about this request."""
        return any(
            thread != threading.get_ident() and concerns(pending)
            for thread, concerns in self._answerers.copy().items()
        )

    # Ending
    def input_ended(self) -> None:
        """Fail our own requests, since the peer sends nothing more; it may still
        listen. Never blocks."""
        with self._lock:
            self.silence = ConnectionClosed("the conversation is over")
        self.cancel_pending(self.silence)
        self.endpoint.input_ended(self)
        self.outbox.flush_soon()

    def lose(self, reason: BaseException) -> None:
        """Drop all further messages, since the peer has gone, and cancel every open
        request. Blocks only as cancel_request() does."""
        with self._lock:
            self.reason = reason
        self.cancel_requests()
        self.cancel_pending(reason)

    def wind_down(self, seconds: float) -> None:
        """Refuse new work. Block until the workers have ended, then the threads of
        ctx.on_cancel(), then the writing: for at most `seconds` each."""
        self.workers.close(seconds)
        self.tidiers.close(seconds)
        self.outbox.drain(seconds)

    def close(self, reason: BaseException, seconds: float = 0.0) -> None:
        """End the conversation; our own requests fail with `reason`. Idempotent, from
        any thread. Blocks as wind_down() does."""
        self.lose(reason)
        self.wind_down(seconds)


###############################################################################
# 8. JSON Schema ##############################################################
###############################################################################

# This section validates values against JSON Schema, draft 2020-12. Most schemas of the
# older drafts 2019-09 and draft-07 work, too: the validator knows their keywords, and a
# list in `items`, which is called `prefixItems` today. A Schema surveys its parts once:
# it checks the keywords, resolves the references and compiles the patterns. A
# _Validator then checks one value, by the rules in the table _KEYWORDS. Schemas,
# patterns and values may come from a stranger, so each step has a price; the _Validator
# adds up the prices, and gives up beyond a limit. No schema is ever fetched.

MAX_STEPS = 1_000_000  # steps that any value may cost: less than a second of work
STEPS_EACH = 4  # further steps for each character of a large value
STEPS_OF_ATTEMPT = 16  # price of trying one alternative of a hint
MAX_ERRORS = 20  # errors reported for one value: as many as a model can act on
MAX_SUGGESTED = 3  # unknown names that get a suggestion
MAX_KNOWN = 100  # names that a suggestion is chosen from
MAX_PLACE = 500  # characters of an error's path, and of its alternatives
MAX_PATTERNS = 20_000  # characters of all patterns in a schema; each "[" costs 100 more
MAX_URI_TEXT = 2_000  # characters of an "$id" or "$ref"

if TYPE_CHECKING:
    Places = Set[int]  # in a text
    # A part of a pattern: the places where it may begin -> where it may end.
    Way = Callable[[str, Places, "Meter"], Places]
    # convert(value, its place, the conversion as a whole) -> the Python value
    Conversion = Callable[[Any, Any, "_Run"], Any]
    # A function that describes a hint, given its arguments, or a class.
    Describer = Callable[["HintReader", Any], "WireType"]
    Failures = Iterator["_Failure"]


def validate(value: object, schema: object) -> list[str]:
    """Check a value against a JSON Schema. Returns one line for each error, at most 20;
    the list is empty when the value fits.

    `schema` is a decoded JSON Schema, a dict or a bool, of draft 2020-12 (2019-09 and
    draft-07 mostly work, too). Raises ValueError, with the place and the reason, for a
    schema that cannot be used.
    """
    return Schema(schema).errors(value)


class Schema:
    """A JSON Schema, surveyed once. Any thread may use it. It knows the parts of
    `schema` by their id(), so `schema` must not change: copy what the program may keep.

    Raises ValueError, with the place and the reason, for a schema that cannot be used.
    """

    def __init__(self, schema: Any):
        self.root = schema
        # id() of each subschema -> (URI of its document, the Python types whose values
        # all fit, its rules). A rule is a tuple for one keyword that checks something:
        # see _check_keywords().
        self.rules = dict(_BOOLEANS)
        # The target of each reference: (id() of the schema with the reference, its
        # text) -> schema
        self.targets: dict[tuple[int, str], Any] = {}
        # Pattern -> the function that it compiles to.
        self.patterns: dict[str, Way] = {}
        # Whether any part has `unevaluatedProperties` or `unevaluatedItems`.
        self.tracks = False
        # The named schemas: (URI, anchor) -> schema. The anchor "" names the document.
        self.named = {
            ("", ""): schema,
            ("https://json-schema.org/draft/2020-12/schema", ""): {_IS_SCHEMA: True},
        }
        # What is left of MAX_PATTERNS.
        self._left = MAX_PATTERNS
        # The schemas that wait to be surveyed: (place, schema, URI of its document).
        self._waiting = [("schema", schema, "")]
        # The references to follow: (schema with the reference, its text).
        self._references: list[tuple[Json, str]] = []
        while self._waiting:
            self._survey(*self._waiting.pop())
            if self._references and not self._waiting:
                # All names are known now. The target may add schemas and references.
                self._follow(*self._references.pop())

    def _survey(self, place: str, schema: Any, base: str) -> None:
        """Survey one schema, unless that was done. Adds the schemas inside it to
        `_waiting`, and its references to `_references`."""
        if id(schema) in self.rules:
            return
        if not isinstance(schema, dict):
            raise ValueError(f"{place}: expected a schema, got {show(schema)}")
        if getattr(schema, "is_model", False):
            # A model (section Functions) checks its values itself.
            self.rules[id(schema)] = _BOOLEANS[id(True)]
            return
        rules = self._check_keywords(place, schema)
        base = self._name(schema, base)
        # The Python types whose values all fit, if `type` is the only keyword that
        # checks a value.
        fitting = [
            each for each in TYPE_NAMES if TYPE_NAMES[each] == schema.get("type")
        ]
        if len(rules) > 1:
            fitting = []
        self.rules[id(schema)] = (base, fitting, rules)
        for keyword in {"$ref", "$dynamicRef", "$recursiveRef"} & schema.keys():
            self._references.append((schema, schema[keyword]))
        for keys, inner in inner_schemas(schema):
            self._waiting.append((".".join((place, *keys)), inner, base))

    def _check_keywords(self, place: str, schema: Json) -> list[Any]:
        """Check the arguments of one schema's keywords. Returns its rules, the tuples
        that _Validator.check() applies."""
        rules = []
        # The two keywords for unevaluated members depend on all others, so they come
        # last.
        for keyword in sorted(schema, key=lambda name: name in _UNEVALUATED):
            argument = schema[keyword]
            row = _KEYWORDS.get(keyword, _OTHER)
            kind = _ARGUMENTS[row.argument]
            is_type = isinstance(kind, (type, tuple))
            fits = isinstance(argument, kind) if is_type else kind(argument)
            if not fits:
                raise ValueError(
                    f"{place}.{keyword}: expected {row.argument}, got {show(argument)}"
                )
            if row.apply is not None:
                rules.append(
                    (
                        row.concerns,
                        row.apply,
                        row.expects,
                        argument,
                        1 + _size(argument),  # the price
                    )
                )
            self.tracks |= keyword in _UNEVALUATED
        if "pattern" in schema:
            self._compile(place, schema["pattern"])
        for pattern in schema.get("patternProperties", ()):
            self._compile(place, pattern)
        return rules

    def _compile(self, place: str, pattern: str) -> None:
        """Compile one pattern, within MAX_PATTERNS. Raises ValueError."""
        # `re` may take some milliseconds for a class of characters.
        self._left -= len(pattern) + 100 * pattern.count("[")
        if self._left < 0:
            raise ValueError(f"{place}: its patterns take too much work to compile")
        try:
            self.patterns[pattern] = compile_pattern(pattern)
        except (re.error, ValueError, OverflowError, RuntimeError) as error:
            raise ValueError(f"{place}: pattern {show(pattern)}: {error}") from None

    def _name(self, schema: Json, base: str) -> str:
        """Register the names of one schema. Returns the URI of its document."""
        if "$id" in schema:
            from urllib.parse import urljoin

            base = urljoin(base, schema["$id"].rstrip("#"))
            self.named[base, ""] = schema
        for keyword in {"$anchor", "$dynamicAnchor"} & schema.keys():
            self.named[base, schema[keyword]] = schema
        return base

    def _follow(self, source: Json, text: str) -> None:
        """Find the target of a reference, and queue it for the survey."""
        from urllib.parse import unquote, urljoin

        uri, _, fragment = text.partition("#")
        base = urljoin(self.rules[id(source)][0], uri)
        anchor, *pointer = unquote(fragment).split("/")
        try:
            target = self.named[base, anchor]
            for step in pointer:
                key = step.replace("~1", "/").replace("~0", "~")
                target = target[int(key) if isinstance(target, list) else key]
                base = self.rules.get(id(target), (base,))[0]
        except (LookupError, TypeError, ValueError):
            raise ValueError(
                f"schema: $ref {show(text)} is not in this document; nothing is fetched"
            ) from None
        self.targets[id(source), text] = target
        self._waiting.append((text, target, base))

    def errors(self, value: object) -> list[str]:
        """Check a value. Returns the texts of its errors; see validate()."""
        return describe_failures(self.failures(value))

    def failures(self, value: object) -> list[_Failure]:
        """Check a value. Returns the failures, at most MAX_ERRORS."""
        try:
            failures = _Validator(self, value).check(self.root, value, None)
            return list(itertools.islice(failures, MAX_ERRORS))
        except (RecursionError, OverflowError, ValueError):
            return [_Failure(None, _TOO_MUCH)]


# Markers and texts of failures.
_NOT_SHOWN = object()
_ANY_OF = "expected any of {}"
_UNKNOWN = "unknown"
_MISSING = "required, but missing"
_TOO_MUCH = "too deep, too large or too much work for the schema"

# One reason why a value does not fit. `path` is the place: None at the root, elsewhere
# (path of the value around it, key). The error's text is `text`, in which `argument`
# replaces {}, and then `value`. Neither is shown if it is _NOT_SHOWN.
_Failure = namedtuple(
    "_Failure", "path text argument value", defaults=(_NOT_SHOWN, _NOT_SHOWN)
)


class Meter:
    """Adds up the work that one value from a stranger costs."""

    # Whether the steps for a large value were granted.
    is_large = False

    def __init__(self, value: object):
        self.left = MAX_STEPS
        self.value = value

    def spend(self, steps: int) -> None:
        """Pay for work, in advance. Raises OverflowError if the work exceeds what is
        allowed for a value of this size."""
        self.left -= steps
        if self.left < 0:
            if not self.is_large:
                self.is_large = True
                self.left += STEPS_EACH * len(repr(self.value))
            if self.left < 0:
                raise OverflowError("too much work")


# A value that is being checked, its path, and the schema with the keyword that applies.
_Place = namedtuple("_Place", "value path schema")


class _Validator(Meter):
    """One validation: check() descends through the value and the subschemas.

    Most other methods implement one keyword each; where one expression is enough, the
    table _KEYWORDS has a lambda. A method of two arguments takes a value and the
    keyword's argument, and returns whether the value fits. A method that begins with a
    _Place takes the keyword's argument, too, and yields failures.
    """

    def __init__(self, schema: Schema, value: object):
        super().__init__(value)
        self.schema = schema
        # The URIs of the documents that check() has entered, the outermost first.
        self.scope = [""]
        # The members evaluated so far, as (id() of their owner, key); empty unless
        # Schema.tracks is true.
        self.evaluated: list[tuple[int, Any]] = []
        # The length of `evaluated` when the check of the current schema began.
        self.start = 0

    def check(self, schema: Any, value: Any, path: Any) -> Failures:
        """Check a value by all rules of a schema. Yields the failures."""
        base, _, rules = self.schema.rules[id(schema)]
        kind = json_type(value)
        size = _size(value)
        scope = self.scope
        start = len(self.evaluated)
        if base not in scope:
            self.scope = [*scope, base]
        for concerns, apply, expects, argument, price in rules:
            if kind not in concerns:
                continue
            self.spend(price + size)
            self.start = start
            if not expects:
                yield from apply(self, _Place(value, path, schema), argument)
            elif not apply(self, value, argument):
                yield _Failure(path, expects, argument, value)
        self.scope = scope

    def attempt(self, schema: Any, value: Any, path: Any) -> list[_Failure]:
        """Return the failures of a value, [] if it fits. A failed attempt marks no
        member as evaluated."""
        count = len(self.evaluated)
        scope = self.scope
        failures = list(itertools.islice(self.check(schema, value, path), MAX_ERRORS))
        if failures:
            del self.evaluated[count:]
            self.scope = scope
        return failures

    def member(self, schema: Any, at: _Place, key: Any) -> Failures:
        """Check one member of a value, and record that it has been evaluated."""
        if self.schema.tracks:
            self.evaluated.append((id(at.value), key))
        item = at.value[key]
        if type(item) in self.schema.rules[id(schema)][1]:
            return iter(())
        return self.check(schema, item, (at.path, key))

    def remaining(self, rest: Any, at: _Place, key: Any) -> Failures:
        """Check a member to which no other keyword of the schema applies."""
        if rest is False and isinstance(at.value, dict):
            yield _Failure((at.path, key), _UNKNOWN, at.schema.get("properties", ()))
        else:
            yield from self.member(rest, at, key)

    def unevaluated(self, at: _Place, rest: Any) -> Failures:
        done = self.evaluated[self.start :]
        self.spend(len(done))
        seen = {key for owner, key in done if owner == id(at.value)}
        keys = at.value
        if isinstance(keys, list):
            keys = range(len(keys))
        for key in keys:
            if key not in seen:
                yield from self.remaining(rest, at, key)

    # Any value.
    def key(self, value: Any) -> str:
        """Return equality_key(), and pay for its length."""
        key = equality_key(value)
        self.spend(len(key) >> 4)
        return key

    def is_among(self, value: Any, values: list[Any]) -> bool:
        if type(value) is str:
            return value in values
        return self.key(value) in map(self.key, values)

    def is_schema(self, value: Any, wanted: bool) -> bool:
        # The work of a survey grows with the length of the schema.
        self.spend(len(repr(value)))
        try:
            Schema(value)
        except ValueError:
            return False
        return True

    def ref(self, at: _Place, text: str) -> Failures:
        return self.check(self.schema.targets[id(at.schema), text], at.value, at.path)

    def dynamic_ref(self, at: _Place, text: str) -> Failures:
        target = self.schema.targets[id(at.schema), text]
        anchor = text.rpartition("#")[2]
        if object_or_empty(target).get("$dynamicAnchor") == anchor:
            # Of the documents entered so far, the outermost with this anchor counts.
            for uri in reversed(self.scope):
                other = object_or_empty(self.schema.named.get((uri, anchor)))
                if other.get("$dynamicAnchor") == anchor:
                    target = other
        return self.check(target, at.value, at.path)

    def all_of(self, at: _Place, schemas: Any) -> Failures:
        for each in schemas:
            yield from self.check(each, at.value, at.path)

    def any_of(self, at: _Place, schemas: Any, most: int = MAX_STEPS) -> Failures:
        """Check that at least one alternative fits, and at most `most`."""
        attempts = [self.attempt(each, at.value, at.path) for each in schemas]
        fitting = attempts.count([])
        if not fitting:
            self.spend(20 * len(attempts))
            yield from nearest(attempts, at.path)
        if fitting > most:
            text = "matches {} alternatives of `oneOf`, must match exactly one"
            yield _Failure(at.path, text, fitting)

    def if_(self, at: _Place, condition: Any) -> Failures:
        branch = "else" if self.attempt(condition, at.value, at.path) else "then"
        return self.check(at.schema.get(branch, True), at.value, at.path)

    # Numbers and texts.
    def is_multiple(self, value: Any, step: Any) -> bool:
        from fractions import Fraction

        # Take floats as they are written: in decimal, 0.3 is a multiple of 0.1.
        exact, divisor = map(Fraction, (str(value), str(step)))
        self.spend(20 + (exact.numerator.bit_length() >> 4))
        return exact % divisor == 0

    def matches(self, text: str, pattern: str) -> bool:
        return search_pattern(self.schema.patterns[pattern], self, text)

    # Arrays.
    def prefix_items(self, at: _Place, first: Any) -> Failures:
        for index, each in enumerate(first[: len(at.value)]):
            yield from self.member(each, at, index)

    def items(self, at: _Place, rest: Any) -> Failures:
        # In older drafts, a list here has the meaning of `prefixItems`.
        if isinstance(rest, list):
            yield from self.prefix_items(at, rest)
        else:
            start = len(at.schema.get("prefixItems", ()))
            for index in range(start, len(at.value)):
                yield from self.member(rest, at, index)

    def contains(self, at: _Place, inner: Any) -> Failures:
        count = 0
        for index, each in enumerate(at.value):
            if not self.attempt(inner, each, at.path):
                count += 1
                if self.schema.tracks:
                    self.evaluated.append((id(at.value), index))
        least = at.schema.get("minContains", 1)
        most = at.schema.get("maxContains", len(at.value))
        if not least <= count <= most:
            text = f"expected {least} to {most} items that match {{}}"
            yield _Failure(at.path, text, inner, at.value)

    # Objects.
    def properties(self, at: _Place, named: Json) -> Failures:
        for name in at.value:
            if name in named:
                yield from self.member(named[name], at, name)

    def pattern_properties(self, at: _Place, patterns: Json) -> Failures:
        for pattern, inner in patterns.items():
            for name in at.value:
                if self.matches(name, pattern):
                    yield from self.member(inner, at, name)

    def additional_properties(self, at: _Place, rest: Any) -> Failures:
        known = at.schema.get("properties", ())
        patterns = at.schema.get("patternProperties", ())
        for name in at.value:
            if name in known or any(self.matches(name, each) for each in patterns):
                continue
            yield from self.remaining(rest, at, name)

    def property_names(self, at: _Place, inner: Any) -> Failures:
        for name in at.value:
            yield from self.check(inner, name, (at.path, name))

    def required(self, at: _Place, names: Any) -> Failures:
        for name in names:
            if name not in at.value:
                yield _Failure((at.path, name), _MISSING)

    def depends(self, at: _Place, rules: Json) -> Failures:
        for name, rule in rules.items():
            if name in at.value and isinstance(rule, list):
                yield from self.required(at, rule)
            elif name in at.value:
                yield from self.check(rule, at.value, at.path)


def nearest(attempts: list[list[_Failure]], path: Any) -> list[_Failure]:
    """Return the failures to report when no alternative fits the value at `path`.

    If each alternative has just one failure, at `path` itself, a single failure names
    all alternatives. Otherwise, report the failures of the nearest one: preferably one
    that fails only further inside, and then the one with the fewest failures.
    """
    if all(len(each) == 1 and each[0].path is path for each in attempts):
        texts = [_expected(each[0]) for each in attempts]
        if all(text.startswith("expected ") for text in texts):
            nouns = list(dict.fromkeys(text[len("expected ") :] for text in texts))
            return [attempts[0][0]._replace(text=_ANY_OF, argument=nouns)]
    return min(
        attempts,
        key=lambda failures: (
            any(each.path is path for each in failures),
            len(failures),
        ),
    )


def describe_failures(failures: list[_Failure]) -> list[str]:
    """Return the texts of failures, such as `a.b[0]: expected ...`. At the root, a text
    has no path. A suggestion takes time, so only the first MAX_SUGGESTED unknown names
    get one."""
    texts = []
    suggestions = MAX_SUGGESTED
    for failure in failures:
        text = at_place(failure.path) + _expected(failure)
        if failure.value is not _NOT_SHOWN:
            text += f", got {show(failure.value)}"
        if failure.text is _UNKNOWN and suggestions:
            suggestions -= 1
            text += "; " + suggest(failure.path[1], failure.argument)
        texts.append(text)
    return texts


def _expected(failure: _Failure) -> str:
    """Return the text of a failure, without its path and its value."""
    if failure.text is _ANY_OF:
        return ("expected " + " or ".join(listed(failure.argument)))[:MAX_PLACE]
    text: str = failure.text
    if failure.argument is not _NOT_SHOWN:
        text = text.format(show(failure.argument, 300))
    return text


def path_keys(path: Any) -> list[Any]:
    """Return the keys of a path, the outermost first."""
    keys = []
    while path:
        keys.append(path[1])
        path = path[0]
    return keys[::-1]


def at_place(path: Any) -> str:
    """Return the beginning of an error's text: `a.b[0]: `, or "" at the root."""
    place = ""
    for key in path_keys(path):
        if isinstance(key, str):
            place += "." + printable(key[:200])
        else:
            place += f"[{key}]"
    if place:
        place = place[-MAX_PLACE:].lstrip(".") + ": "
    return place


def suggest(name: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown name: the known name that is most like it, or else
    the first known names, up to MAX_KNOWN."""
    from difflib import get_close_matches

    # Long names take long to compare.
    names = [each for each in itertools.islice(known, MAX_KNOWN) if len(each) <= 60]
    if near := get_close_matches(name[:60], names, 1):
        return f"did you mean {show(near[0])}?"
    return f"known: {show(names, 300)}"


# Types and equality
def json_type(value: object) -> str:
    """Return the JSON type of a value. 1.0 is an "integer", too."""
    if isinstance(value, float) and value.is_integer():
        return "integer"
    if type(value) in TYPE_NAMES:
        return TYPE_NAMES[type(value)]
    # A subclass, such as an IntEnum.
    for kind, name in TYPE_NAMES.items():
        if isinstance(value, kind):
            return name
    return ""


def equality_key(value: Any) -> str:
    """Return a text that identifies a value: only equal values have the same text. 1
    equals 1.0, but not true.

    Python randomises the hashes of texts, so a stranger cannot make keys collide.
    """
    if isinstance(value, dict):
        members = [f"{name!r}:{equality_key(value[name])}" for name in value]
        return "{" + ",".join(sorted(members)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(equality_key, value)) + "]"
    if json_type(value) == "integer":
        return hex(int(value))
    return repr(value)


def _size(value: object) -> int:
    """Estimate the work of one pass over a value, without the values inside it."""
    if isinstance(value, (list, dict)):
        return len(value)
    if isinstance(value, str):
        return len(value) >> 6
    return 0


def _has_type(run: Meter, value: object, names: Any) -> bool:
    """Implement the keyword `type`, whose argument is a name or a list of names."""
    kind = json_type(value)
    return kind in names or (kind == "integer" and "number" in names)


# Patterns are regular expressions of ECMA 262. Where a pattern leaves a choice, the
# `re` of Python tries one way after another: it takes 2**n steps to find that `^(a+)+$`
# does not match n times `a` and a `!`. This engine follows all ways at once, so no text
# makes it run for long. Each part of a pattern becomes a function: it takes the places
# in a text where the part may begin, and returns the places where it may end.
#
#     a(b|c)*d on "xabcd"     a: {0,1,2,3,4,5} -> {2}     (b|c)*: {2} -> {2,3,4}
#                             d: {2,3,4} -> {5}           it matches
def compile_pattern(pattern: str) -> Way:
    """Compile a whole pattern to a function, which any thread may call.

    Raises the exceptions of re.compile() (ValueError, re.error, OverflowError,
    RuntimeError), also for look-behinds and back references, which this engine lacks.
    """
    tokens = [_translate(token) for token in re.findall(_TOKEN, pattern)]
    # Let `re` reject an invalid pattern.
    re.compile("".join(tokens), re.ASCII)
    return _parse(iter(tokens))


# The places in a text take sixty times as much memory as the text, so only one text is
# searched at a time.
_SEARCHING = threading.Lock()


def search_pattern(way: Way, run: Meter, text: str, pattern: str = "") -> bool:
    """Return whether a compiled pattern matches somewhere in a text."""
    with _SEARCHING:
        return bool(way(text, set(range(len(text) + 1)), run))


def _parse(tokens: Iterator[str]) -> Way:
    """Compile the tokens before the next `)`, or before the end. The parentheses match,
    since `re` has compiled the whole pattern."""
    sequences: list[list[Way]] = [[]]
    for token in tokens:
        sequence = sequences[-1]
        repeat = re.fullmatch(_REPEAT, token)
        if token == ")":
            break
        if token == "|":
            sequences.append([])
        elif repeat:
            least, comma, most = repeat.groups()
            if not comma:
                # `{2}` means exactly twice.
                most = least
            # `{2,}` has no upper limit.
            sequence.append(
                partial(_repeat, sequence.pop(), int(least), int(most or 1 << 30))
            )
        elif token in ("(", "(?:"):
            sequence.append(_parse(tokens))
        elif token in ("(?=", "(?!"):
            sequence.append(partial(_look_ahead, _parse(tokens), token == "(?="))
        else:
            sequence.append(partial(_take, re.compile(token, re.ASCII)))
    return partial(_either, sequences)


def _take(piece: re.Pattern[str], text: str, places: Places, run: Meter) -> Places:
    """Match one character or anchor. Returns the places after it."""
    # The call costs as much as two places.
    run.spend(2 + len(places))
    matches = (piece.match(text, place) for place in places)
    return {match.end() for match in matches if match}


def _either(
    sequences: list[list[Way]], text: str, places: Places, run: Meter
) -> Places:
    """Match any of these sequences, which `|` separates."""
    ends = set()
    for sequence in sequences:
        behind = places
        for way in sequence:
            # A part costs a step even if no place reaches it.
            run.spend(1)
            if behind:
                behind = way(text, behind, run)
        ends |= behind
    return ends


def _repeat(
    way: Way, least: int, most: int, text: str, places: Places, run: Meter
) -> Places:
    """Match a part of a pattern `least` to `most` times."""
    ends = set() if least else set(places)
    for count in range(1, most + 1):
        run.spend(1)
        # Fewer repeats reached the places in `ends`; they need no second visit.
        places = way(text, places, run) - ends
        if count >= least:
            ends |= places
        if not places:
            break
    return ends


def _look_ahead(
    way: Way, wanted: bool, text: str, places: Places, run: Meter
) -> Places:
    """Keep the places where a part matches, or with `wanted` false, does not."""
    return {at for at in places if bool(way(text, {at}, run)) == wanted}


def _translate(token: str) -> str:
    """Translate a token of an ECMA 262 pattern into Python's syntax."""
    if re.match(r"\(\?<\w", token):
        return "("  # the name is dropped: back references are refused anyway
    token = _PYTHON.get(token, token)
    if token[0] != "[":
        return token
    inside = re.sub(
        r"(?s)\\.|[\[&~|]", lambda each: _INSIDE.get(each[0], each[0]), token[1:]
    )
    return "[" + inside


# A token is an escape, a class in brackets, the beginning of a group, a repeat or a
# single character.
_TOKEN = (
    r"(?s)\\(?:p\{\w+}|u[\dA-Fa-f]{4}|x[\dA-Fa-f]{2}|.)"
    r"|\[\^?(?:\\.|[^]\\])*(?:]|\\?\Z)"
    r"|\(\?(?:<\w+>|<?[=!]|:)?|(?:[*+?]|\{\d+(?:,\d*)?})\??|."
)
_REPEAT = r"\{(\d+)(,?)(\d*)}\??"
_SPACES = r"\t-\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
# In brackets, Python warns about characters that may get a meaning in a later version.
_INSIDE = {r"\s": _SPACES, "[": r"\[", "&": r"\&", "~": r"\~", "|": r"\|"}
_PYTHON = {
    # A lazy repeat matches the same texts as a greedy one.
    "*": "{0,}",
    "*?": "{0,}",
    "+": "{1,}",
    "+?": "{1,}",
    "?": "{0,1}",
    "??": "{0,1}",
    "$": r"\Z",
    ".": r"[^\n\r\u2028\u2029]",
    "[]": "(?!)",
    "[^]": r"[\s\S]",
    r"\s": f"[{_SPACES}]",
    r"\S": f"[^{_SPACES}]",
    "{": r"\{",
    # A bare `(?` begins no group that we support. `re` refuses the replacement.
    "(?": "(?<",
    r"\p{L}": r"(?u:[^\W\d_])",
    r"\p{Letter}": r"(?u:[^\W\d_])",
    r"\p{Nd}": r"(?u:\d)",
}


# The only keyword in this file's schema for schemas; no draft has it.
_IS_SCHEMA = "is a schema"
_DIALECTS = r"https?://json-schema\.org/(draft/2020-12|draft/2019-09|draft-07)/schema#?"
_ALL = tuple(TYPE_NAMES.values())
_NUMBERS = ("integer", "number")
_TEXT = ("string",)
_ARRAY = ("array",)
_OBJECT = ("object",)
# The kinds of arguments that keywords take: the name of the kind, for error texts ->
# its Python types, or a function that returns whether an argument is of that kind. The
# survey checks the schemas inside an argument, so they are not looked at here.
_ARGUMENTS: dict[str, Any] = {
    "anything": object,
    "a text": str,
    "a URI": lambda value: isinstance(value, str) and len(value) <= MAX_URI_TEXT,
    "draft 2020-12, 2019-09 or draft-07": lambda value: re.fullmatch(
        _DIALECTS, str(value)
    ),
    "true or false": bool,
    "a number": lambda value: json_type(value) in _NUMBERS,
    "a number over 0": lambda value: json_type(value) in _NUMBERS and value > 0,
    "a count": lambda value: json_type(value) == "integer" and value >= 0,
    "a list": list,
    "a list of names": _is_names,
    "a type, or a list of types": lambda value: (
        value in _ALL or (_is_names(value) and set(value) <= set(_ALL))
    ),
    "a schema": (dict, bool),
    "a list of schemas": lambda value: isinstance(value, list) and value,
    "a schema, or a list of them": (dict, bool, list),
    "schemas by name": dict,
    "names or schemas by name": dict,
}


# A keyword of JSON Schema. `argument` is the kind of its argument. `concerns` lists the
# types of the values that it checks. If `expects` is a text, `apply` is a function
# (run, value, argument) that returns whether the value fits. If `expects` is "",
# `apply` is a method of _Validator that yields failures, or None if the keyword itself
# checks nothing.
_Keyword = namedtuple(
    "_Keyword", "argument concerns apply expects", defaults=((), None, "")
)


def _limit(compare: Callable[[Any, Any], bool], text: str) -> Any:
    """Return the row of a keyword that limits a number."""
    return _Keyword(
        "a number",
        _NUMBERS,
        lambda run, value, limit: compare(value, limit),
        f"expected {text}",
    )


def _counted(noun: str, concerns: tuple[str, ...], parts: str) -> dict[str, Any]:
    """Return the rows of the two keywords that limit the length of a value."""
    return {
        f"min{noun}": _Keyword(
            "a count",
            concerns,
            lambda run, value, least: len(value) >= least,
            f"expected at least {{}} {parts}",
        ),
        f"max{noun}": _Keyword(
            "a count",
            concerns,
            lambda run, value, most: len(value) <= most,
            f"expected at most {{}} {parts}",
        ),
    }


_KEYWORDS = {
    "$schema": _Keyword("draft 2020-12, 2019-09 or draft-07"),
    _IS_SCHEMA: _Keyword(
        "anything", _ALL, _Validator.is_schema, "expected a JSON Schema"
    ),
    "$id": _Keyword("a URI"),
    "$anchor": _Keyword("a text"),
    "$dynamicAnchor": _Keyword("a text"),
    "$defs": _Keyword("schemas by name"),
    "definitions": _Keyword("schemas by name"),
    "then": _Keyword("a schema"),
    "else": _Keyword("a schema"),
    "minContains": _Keyword("a count"),
    "maxContains": _Keyword("a count"),
    "$ref": _Keyword("a URI", _ALL, _Validator.ref),
    "$dynamicRef": _Keyword("a URI", _ALL, _Validator.dynamic_ref),
    "$recursiveRef": _Keyword("a URI", _ALL, _Validator.ref),
    "type": _Keyword("a type, or a list of types", _ALL, _has_type, _ANY_OF),
    "enum": _Keyword("a list", _ALL, _Validator.is_among, "expected one of {}"),
    "const": _Keyword(
        "anything",
        _ALL,
        lambda run, value, wanted: run.is_among(value, [wanted]),
        "expected {}",
    ),
    "minimum": _limit(operator.ge, "at least {}"),
    "maximum": _limit(operator.le, "at most {}"),
    "exclusiveMinimum": _limit(operator.gt, "more than {}"),
    "exclusiveMaximum": _limit(operator.lt, "less than {}"),
    "multipleOf": _Keyword(
        "a number over 0", _NUMBERS, _Validator.is_multiple, "expected a multiple of {}"
    ),
    **_counted("Length", _TEXT, "characters"),
    "pattern": _Keyword(
        "a text", _TEXT, _Validator.matches, "expected text that matches {}"
    ),
    **_counted("Items", _ARRAY, "items"),
    "uniqueItems": _Keyword(
        "true or false",
        _ARRAY,
        lambda run, value, wanted: (
            not wanted or len(set(map(run.key, value))) == len(value)
        ),
        "expected items without duplicates",
    ),
    "prefixItems": _Keyword("a list of schemas", _ARRAY, _Validator.prefix_items),
    "items": _Keyword("a schema, or a list of them", _ARRAY, _Validator.items),
    "contains": _Keyword("a schema", _ARRAY, _Validator.contains),
    **_counted("Properties", _OBJECT, "members"),
    "properties": _Keyword("schemas by name", _OBJECT, _Validator.properties),
    "patternProperties": _Keyword(
        "schemas by name", _OBJECT, _Validator.pattern_properties
    ),
    "additionalProperties": _Keyword(
        "a schema", _OBJECT, _Validator.additional_properties
    ),
    "propertyNames": _Keyword("a schema", _OBJECT, _Validator.property_names),
    "required": _Keyword("a list of names", _OBJECT, _Validator.required),
    "dependentRequired": _Keyword(
        "names or schemas by name", _OBJECT, _Validator.depends
    ),
    "dependentSchemas": _Keyword("schemas by name", _OBJECT, _Validator.depends),
    "dependencies": _Keyword("names or schemas by name", _OBJECT, _Validator.depends),
    "allOf": _Keyword("a list of schemas", _ALL, _Validator.all_of),
    "anyOf": _Keyword("a list of schemas", _ALL, _Validator.any_of),
    "oneOf": _Keyword("a list of schemas", _ALL, partial(_Validator.any_of, most=1)),
    "not": _Keyword(
        "a schema",
        _ALL,
        lambda run, value, inner: run.attempt(inner, value, None) != [],
        "expected a value that does not match {}",
    ),
    "if": _Keyword("a schema", _ALL, _Validator.if_),
    "unevaluatedProperties": _Keyword("a schema", _OBJECT, _Validator.unevaluated),
    "unevaluatedItems": _Keyword("a schema", _ARRAY, _Validator.unevaluated),
}
# The row of a keyword that is not in the table.
_OTHER = _Keyword("anything")
_UNEVALUATED = {"unevaluatedProperties", "unevaluatedItems"}


# The entries of Schema.rules for the schemas True and False.
_REFUSED = (_ALL, lambda run, value, _: False, "nothing is allowed here", None, 1)
_BOOLEANS: dict[int, Any] = {
    id(True): ("", TYPE_NAMES, []),
    id(False): ("", (), [_REFUSED]),
}


def listed(value: Any) -> list[Any]:
    """Return the items of a list or a tuple; any other value as the only item."""
    return list(value) if isinstance(value, (list, tuple)) else [value]


def inner_schemas(schema: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the schemas directly inside another, each as (keys, schema). The keys are
    the keyword and, under keywords such as `properties`, the name."""
    for keyword, argument in object_or_empty(schema).items():
        kind = _KEYWORDS.get(keyword, _OTHER).argument
        if kind.endswith("schemas by name"):
            for name, inner in object_or_empty(argument).items():
                if not _is_names(inner) or kind == "schemas by name":
                    yield (keyword, name), inner
        elif "schema" in kind:
            for inner in listed(argument):
                yield (keyword,), inner


# The name of a header, a token in RFC 9110.
HEADER_NAME = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"


def header_parameters(schema: object) -> Mirrors:
    """Return the arguments of a tool that HTTP headers mirror, each as (path, header).

    Raises ValueError for a schema with an invalid `x-mcp-header`.
    """
    # Name of the header in lower case -> (path, header)
    parameters = {}
    # All schemas inside, breadth first: the list grows during the loop.
    todo: list[tuple[Any, tuple[str, ...]]] = [(schema, ())]
    for node, path in todo:
        for keys, inner in inner_schemas(node):
            todo.append((inner, path + keys))
        header = object_or_empty(node).get("x-mcp-header")
        if header is None:
            continue
        # "An annotation anywhere else makes the tool definition invalid".
        is_name = isinstance(header, str) and re.fullmatch(HEADER_NAME, header)
        is_scalar = node.get("type") in ("string", "integer", "boolean")
        is_property = set(path[::2]) == {"properties"}
        if not (is_property and is_scalar and is_name) or header.lower() in parameters:
            raise ValueError(
                "x-mcp-header: expected a unique header name, for a string, integer or "
                f"boolean in `properties`; got {show(header)}"
            )
        parameters[header.lower()] = (list(path[1::2]), header)
    return list(parameters.values())


###############################################################################
# 9. Content ##################################################################
###############################################################################

# This section converts the values that tools, prompts and resources return into the
# wire's form. Its first half converts Python values to JSON and back. Its second half
# makes messages, contents of resources, and blocks. Blocks are the parts of results and
# messages: text, images, audio, embedded resources and links
# (server/tools.md#tool-result). The table BLOCK_SINCE lists the kinds of blocks that
# later revisions added; a client of an older revision gets text instead. Functions and
# type hints belong to the next section.


def _base64(data: bytes | bytearray | memoryview) -> str:
    import base64

    return base64.b64encode(data).decode()


def _parse_base64(text: str) -> bytes:
    """Decode base64. Raises ValueError for any other text."""
    import base64

    return base64.b64decode(text, validate=True)


def parse_any_base64(text: str) -> bytes:
    """Decode base64 as other programs write it: for URLs, in lines, without padding.
    Raises ValueError for any other text."""
    text = re.sub(r"[\s=]", "", text).replace("-", "+").replace("_", "/")
    return _parse_base64(text + "=" * (-len(text) % 4))


def parse_text(text: str) -> Any:
    """Decode a text if it is JSON; otherwise return it unchanged."""
    try:
        return parse_message(text.encode("utf-8", "surrogatepass"))
    except McpError:
        return text


def _members(value: Any) -> Json | None:
    """Return the members of a mapping, or of an instance of a dataclass, an attrs class
    or a NamedTuple, by their names on the wire. Return None for any other value."""
    if hasattr(value, "_asdict"):
        return dict(value._asdict())
    described = getattr(value, "__attrs_attrs__", None)
    if hasattr(value, "__dataclass_fields__"):
        from dataclasses import fields

        described = fields(value)
    if described is not None:
        # A field of an attrs class has an alias, `x` for `_x`: the name that the
        # constructor uses.
        return {
            getattr(each, "alias", each.name): getattr(value, each.name)
            for each in described
        }
    # A row of sqlite3 is a mapping, but not for isinstance(). A DataFrame also has
    # keys, but a model cannot read an object of its columns.
    is_mapping = hasattr(value, "keys") and hasattr(value, "__getitem__")
    if is_mapping and not hasattr(value, "columns"):
        return dict(value)
    return None


# The values of these classes are JSON already.
_PLAIN = {str, int, bool, type(None)}
BYTES = (bytes, bytearray, memoryview)
# Values of these classes become arrays. Another iterable may be more than its items.
_ARRAYS = (tuple, deque, range, list, KeysView, ValuesView, ItemsView, Iterator)


def to_plain(value: Any, path: Any = None) -> Any:
    """Convert a Python value to the types of JSON. The result fits the schema by which
    HintReader describes the value's class.

    Raises TypeError or ValueError, with the place, if the value, or a value inside it,
    has no form in JSON. `path` is the place of the value, as in a _Failure.
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is dict:
        plain = {}
        for key, item in value.items():
            name = str(to_plain(key, path))
            plain[name] = to_plain(item, (path, name))
        return plain
    if kind is list:
        kinds = set(map(type, value))
        # A long list of numbers or of texts needs no check of each item. If one is NaN
        # or infinite, the sum is not below infinity.
        if kinds <= _PLAIN or (kinds == {float} and sum(map(abs, value)) < INFINITY):
            return list(value)
        return [to_plain(item, (path, at)) for at, item in enumerate(value)]
    if hasattr(value, "model_dump"):  # a pydantic model
        return value.model_dump(mode="json", by_alias=True)
    if hasattr(kind, "__members__"):  # an Enum
        return to_plain(value.value, path)
    if isinstance(value, float) and not abs(value) < INFINITY:
        raise ValueError(f"{at_place(path)}{value} is not a number in JSON")
    if isinstance(value, (str, int, float)):
        return value
    return to_plain(_simpler(value, path), path)


def _simpler(value: Any, path: Any) -> Any:
    """Convert a value to a simpler class. Raises TypeError as to_plain() does."""
    if isinstance(value, BYTES):
        return _base64(value)
    if hasattr(value, "tolist"):  # an array or a number of numpy, a Series of pandas
        return value.tolist()
    members = _members(value)
    if members is not None:
        return members
    if isinstance(value, _ARRAYS) and not hasattr(value, "read"):  # not a file
        return list(value)
    if isinstance(value, (set, frozenset)):
        return sorted(to_plain(list(value), path), key=encode_json)
    for base in type(value).__mro__:
        row = SCALARS.get(hint_name(base))
        if row is not None:
            return row.encode(value)
    why = f"{at_place(path)}a value of class {type(value).__name__} has no JSON form"
    if hasattr(value, "columns"):
        why += "; return its rows: df.to_dict('records')"
    raise TypeError(why)


def hint_name(hint: Any) -> Any:
    """Return the name of a class in the tables SCALARS and _GENERICS: "int", "Mapping",
    "datetime.date", "pathlib.Path". A special form of `typing` has its own name, such
    as "Union". Any other object is named by its class: "a UnionType".

    The tables hold names, since holding the classes would import their modules, even in
    programs that use none of them.
    """
    if not isinstance(hint, type):
        return getattr(hint, "_name", None) or "a " + type(hint).__name__
    root = hint.__module__.partition(".")[0]
    if root in ("builtins", "collections", "typing", "typing_extensions"):
        return hint.__qualname__
    return f"{root}.{hint.__qualname__}"


# A conversion may raise these for a value that fits the schema.
REFUSALS = (ValueError, TypeError, ArithmeticError, LookupError)


# An ISO 8601 duration. Years and months are missing, since their lengths vary.
_DURATION = (
    r"(?P<sign>-?)P(?=.)(?:(?P<weeks>\d+)W)?(?:(?P<days>\d+)D)?"
    r"(?:T(?=.)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?"
    r"(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)


def _parse_duration(cls: Any, wire: str) -> Any:
    amounts = re.fullmatch(_DURATION, wire)
    if amounts is None:
        raise ValueError(wire)
    units = amounts.groupdict("0")
    sign = units.pop("sign")
    return cls(**{unit: float(sign + units[unit]) for unit in units})


def _encode_duration(value: Any) -> str:
    seconds = f"{value.total_seconds():f}".rstrip("0").rstrip(".")
    return f"PT{seconds}S".replace("PT-", "-PT")


class Misfit(ValueError):
    """A value from the wire that does not fit: Misfit("expected integer", value)."""


# How the wire represents a class that is not a container: `schema`; `expected`, for
# error texts; parse(class, wire), which returns the value or raises one of REFUSALS;
# and encode(value), which returns its form on the wire, or None for `encode` if the
# value is JSON already. For containers, see _GENERICS in the section Functions.
_Scalar = namedtuple(
    "_Scalar",
    "schema expected parse encode",
    defaults=("", lambda cls, wire: cls(wire), None),
)


def _iso_scalar(form: str, expected: str) -> Any:
    return _Scalar(
        {"type": "string", "format": form},
        expected,
        # Before Python 3.11, fromisoformat() does not accept Z.
        lambda cls, wire: cls.fromisoformat(re.sub("[zZ]$", "+00:00", wire)),
        lambda value: value.isoformat(),
    )


# As text, a Decimal keeps its digits, but models send numbers, too. Its exponent is
# limited: written out, 1E+999999999 would fill the memory.
_DECIMAL = r"^-?\d+(\.\d+)?([Ee][+-]?\d{1,4})?$"


def _parse_decimal(cls: Any, wire: Any) -> Any:
    if not re.match(_DECIMAL, str(wire)):
        raise ValueError(wire)
    return cls(str(wire))


SCALARS = {
    **dict.fromkeys(
        ("NoneType", "a NoneType"),
        _Scalar({"type": "null"}, parse=lambda cls, wire: wire),
    ),
    "str": _Scalar({"type": "string"}),
    "bool": _Scalar({"type": "boolean"}),
    "int": _Scalar({"type": "integer"}),
    "float": _Scalar({"type": "number"}),
    **dict.fromkeys(
        ("bytes", "bytearray"),
        _Scalar(
            {"type": "string", "contentEncoding": "base64"},
            "expected base64",
            lambda cls, wire: cls(parse_any_base64(wire)),
        ),
    ),
    "datetime.date": _iso_scalar("date", "expected an ISO 8601 date"),
    "datetime.time": _iso_scalar("time", "expected an ISO 8601 time"),
    "datetime.datetime": _iso_scalar("date-time", "expected an ISO 8601 date and time"),
    "datetime.timedelta": _Scalar(
        {"type": "string", "format": "duration"},
        "expected an ISO 8601 duration, such as PT90S",
        _parse_duration,
        _encode_duration,
    ),
    "uuid.UUID": _Scalar(
        {"type": "string", "format": "uuid"}, "expected a UUID", encode=str
    ),
    **dict.fromkeys(
        ("pathlib.Path", "pathlib.PurePath"), _Scalar({"type": "string"}, encode=str)
    ),
    "decimal.Decimal": _Scalar(
        {"anyOf": [{"type": "number"}, {"type": "string", "pattern": _DECIMAL}]},
        "expected a number",
        _parse_decimal,
        str,
    ),
}


def check_uri(where: str, uri: object, *schemes: str) -> str:
    """Return a URI as text. Raises ValueError if it has no scheme, has white space, or
    begins with none of `schemes`, such as file://, if any are given."""
    text = str(uri)
    is_uri = re.match(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s]*\Z", text)
    if not is_uri or (schemes and not text.lower().startswith(schemes)):
        wanted = " or ".join(schemes) or "a scheme, such as config://app"
        raise ValueError(f"{where}: expected a URI with {wanted}, got {show(uri)}")
    return text


# Blocks and messages
def to_block(item: object) -> Json:
    """Make a block from a str, a content object, or a block in the wire's form. Raises
    TypeError for anything else."""
    if isinstance(item, str):
        return {"type": "text", "text": item}
    if isinstance(item, dict) and isinstance(item.get("type"), str):
        return item
    raise TypeError(
        f"content: expected text, an Image or other content, got {type(item).__name__}"
    )


def to_any_block(value: object) -> Json:
    """Make a block from any value; one that to_block() refuses becomes JSON text."""
    try:
        return to_block(value)
    except TypeError:
        return to_block(encode_json(to_plain(value)))


def tool_failure(text: str, content: list[Any] | None = None) -> Json:
    """Make the result of a failed tool. `content`, if any, replaces the text."""
    return {
        "content": [to_block(item) for item in content or [sendable(text)]],
        "isError": True,
    }


class _Content(Json):
    """A content block or a message in the wire's form. Each subclass constructs one
    kind."""


# The MIME types of images and sound, and a pattern for the first bytes of each.
_MAGIC = {
    "image/png": rb"\x89PNG\r\n",
    "image/jpeg": rb"\xff\xd8\xff",
    "image/gif": b"GIF8",
    "image/bmp": b"BM",
    "image/svg+xml": rb"(<\?xml.*?)?<svg",
    "audio/mpeg": rb"ID3|\xff[\xf2-\xfb]",
    "image/webp": b".{8}WEBP",
    "audio/wav": b".{8}WAVE",
    "audio/ogg": b"OggS",
    "audio/flac": b"fLaC",
}


class _Media(_Content):
    """An image or a sound, with its MIME type."""

    kind: str

    def __init__(
        self,
        data: bytes = b"",
        *,
        path: str | os.PathLike[str] | None = None,
        mime_type: str | None = None,
        annotations: Json | None = None,
        meta: Json | None = None,
    ):
        if path is not None:
            with open(path, "rb") as file:
                data = file.read()
        for each, beginning in _MAGIC.items():
            if mime_type is None and re.match(beginning, data, re.DOTALL):
                mime_type = each
        if not mime_type:
            raise ValueError(f"{self.kind}: unknown MIME type; pass mime_type=")
        add_given(
            self,
            type=self.kind,
            data=_base64(data),
            mimeType=mime_type,
            annotations=annotations,
            _meta=meta,
        )


class Image(_Media):
    """An image to return from a tool, a prompt or a resource.

    See server/tools.md#image-content.

    data: the bytes.
    path: a file with the bytes, in place of `data`; it is read at once.
    mime_type: such as "image/png"; if left out, recognised by the first bytes.
    annotations: {"audience": ["user" and/or "assistant"], "priority": 0 to 1, ...}.
    meta: the block's `_meta`, an object.

    Raises ValueError when the MIME type is not recognised, OSError when the file cannot
    be read.
    """

    kind = "image"


class Audio(_Media):
    """Sound to return from a tool, a prompt or a resource.

    See server/tools.md#audio-content. Since 2025-03-26; older clients get a text that
    names its MIME type.

    data: the bytes.
    path: a file with the bytes, in place of `data`; it is read at once.
    mime_type: such as "audio/wav"; if left out, recognised by the first bytes.
    annotations: {"audience": ["user" and/or "assistant"], "priority": 0 to 1, ...}.
    meta: the block's `_meta`, an object.

    Raises the same exceptions as Image.
    """

    kind = "audio"


class EmbeddedResource(_Content):
    """A resource's text or bytes inside a result (server/tools.md#embedded-resources).

    uri: the resource's URI.
    text_or_bytes: the resource's contents; bytes are encoded in base64.
    mime_type: such as "text/markdown".
    annotations: {"audience": ["user" and/or "assistant"], "priority": 0 to 1, ...}.
    meta: the `_meta` of the block; if a resource returns this, of its contents.

    Raises ValueError if `uri` is not a URI.
    """

    def __init__(
        self,
        uri: str,
        text_or_bytes: str | bytes,
        *,
        mime_type: str | None = None,
        annotations: Json | None = None,
        meta: Json | None = None,
    ):
        resource = add_given({"uri": check_uri("uri", uri)}, mimeType=mime_type)
        if isinstance(text_or_bytes, str):
            resource["text"] = text_or_bytes
        else:
            resource["blob"] = _base64(text_or_bytes)
        add_given(
            self,
            type="resource",
            resource=resource,
            annotations=annotations,
            _meta=meta,
        )


class ResourceLink(_Content):
    """A link to a resource, which the client may read (server/tools.md#resource-links).

    Since 2025-06-18; older clients get its URI as text.

    uri: the resource's URI.
    name: the resource's name for programs.
    title: its name for people.
    description: what the resource contains.
    mime_type: such as "text/markdown".
    size: in bytes, before any encoding.
    meta: the block's `_meta`, an object.
    annotations: {"audience": ["user" and/or "assistant"], "priority": 0 to 1, ...}.
    icons: [{"src": URL, "mimeType": ..., "sizes": [...]}].

    Raises ValueError if `uri` is not a URI.
    """

    def __init__(
        self,
        uri: str,
        name: str,
        *,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        size: int | None = None,
        meta: Json | None = None,
        annotations: Json | None = None,
        icons: list[Json] | None = None,
    ):
        add_given(
            self,
            type="resource_link",
            uri=check_uri("uri", uri),
            name=name,
            title=title,
            description=description,
            mimeType=mime_type,
            size=size,
            annotations=annotations,
            icons=icons,
            _meta=meta,
        )


class Message(_Content):
    """A message of a prompt or a conversation (server/prompts.md#promptmessage).

    content: text, an Image or other content, a block in the wire's form, or a list of
        them.
    role: the speaker, "user" or "assistant".

    Raises ValueError for another role, TypeError for other content.
    """

    def __init__(self, content: object, role: str = "user"):
        if role not in ("user", "assistant"):
            raise ValueError(f'role: expected "user" or "assistant", got {show(role)}')
        if isinstance(content, (list, tuple)):
            content = [to_block(item) for item in content]
        else:
            content = to_block(content)
        add_given(self, role=role, content=content)


def to_messages(value: object) -> list[Message]:
    """Make messages from a Message, a message's content, a message in the wire's form,
    or a list of these. Raises TypeError or ValueError for anything else."""
    messages = []
    for item in listed(value):
        if "role" in object_or_empty(item):
            messages.append(Message(item.get("content"), item["role"]))
        else:
            messages.append(Message(item))
    return messages


def read_contents(uri: str, value: object, mime_type: str | None) -> Json:
    """Make one item of the contents in the result of resources/read, from a value that
    a resource's function returned.

    `mime_type` is the registered MIME type, if any. Raises TypeError or ValueError for
    a value that has no form in JSON.
    """
    if isinstance(value, EmbeddedResource):
        contents = add_given({}, mimeType=mime_type, _meta=value.get("_meta"))
        return {**contents, **value["resource"]}
    form = "blob"
    if isinstance(value, _Media):
        usual = value["mimeType"]
        data = value["data"]
    elif isinstance(value, BYTES):
        usual = "application/octet-stream"
        data = _base64(value)
    else:
        form = "text"
        usual = "text/plain" if isinstance(value, str) else "application/json"
        data = encode_text(to_plain(value))
    return {"uri": uri, "mimeType": mime_type or usual, form: data}


# The kinds of blocks that later revisions added. To add a kind, add a row here, and a
# class above. For the parameters of questions that later revisions added, see
# needed_capability() in the section Questions.
BLOCK_SINCE = {"audio": "2025-03-26", "resource_link": "2025-06-18"}


def fit_block(block: Json, version: str) -> Json:
    """Return a block unchanged if the revision has its kind, else a block of text."""
    kind = block["type"]
    if version >= BLOCK_SINCE.get(kind, OLDEST):
        return block
    return to_block(block.get("uri") or f"({kind}: {block.get('mimeType')})")


def value_of(result: Json) -> Any:
    """Return the Python value in a result of tools/call.

    The value is the structured content, if there is any. Otherwise it is the text, if
    all blocks are text; else the only block, or a list of the blocks. Raises ToolError,
    with the tool's text, if the result says that the tool failed.
    """
    blocks = [block for block in result.get("content") or [] if isinstance(block, dict)]
    texts = [
        str(block.get("text", "")) for block in blocks if block.get("type") == "text"
    ]
    value: Any = result.get("structuredContent")
    if result.get("isError"):
        text = printable("\n".join(texts), keep_lines=True)
        raise ToolError(text or "the tool failed", blocks)
    # Servers wrap a value that is not an object: {"result": value}. If the tool itself
    # returned such an object, a text block holds the JSON of the whole object.
    is_wrapped = object_or_empty(value).keys() == {"result"}
    if is_wrapped and value not in map(parse_text, texts):
        return value["result"]
    if value is not None or not blocks:
        return value
    if len(texts) == len(blocks):
        return "\n".join(texts)
    if len(blocks) == 1:
        return blocks[0]
    return blocks


###############################################################################
# 10. Functions ###############################################################
###############################################################################

# This section describes a Python function for the wire, and binds arguments to it:
#     read_parameters   a function -> its parameters, with their hints and defaults
#     HintReader        a type hint -> a WireType: a JSON Schema, and a conversion
#     from_wire         a WireType and a JSON value -> the Python value, or all failures
#     parse_doc         a docstring -> the descriptions of the function and parameters
#     Signature         these together; a call's arguments -> keyword arguments
#     Output            a returned value -> a result
#     UriTemplate       a URI -> arguments
# Most of this work happens once, at registration; a call runs only Signature.bind(),
# Output.result() and UriTemplate.match(). HintReader recognises hints by their names
# and attributes, so it need not import the modules that define them.
#
# A conversion checks what it converts, in one pass, and names every place that is
# wrong. The schema beside it is what the peer reads:
#
#     hint --describe()--> WireType  {"type": "array", "items": {...}} --> tools/list
#                             |
#     arguments -------> from_wire() --> keyword arguments, or InvalidParams:
#                                        "xs[1]: expected integer, got \"a\"; ..."

MAX_URI = 2_048  # characters of a URI that is matched with a template

# Marks a required parameter; None marks an optional one without a default.
REQUIRED = object()

# A parameter of a function, or a member of a class. The hint may be text. The default
# may be a Param, or a pydantic Field.
_Parameter = namedtuple("_Parameter", "name hint default")

# A callable: its parameters, its return hint, the names that its hints may use, whether
# it has parameters that cannot be given by name, and whether it has **kwargs.
_Callable = namedtuple("_Callable", "parameters returns names has_unnamed has_kwargs")


def read_parameters(fn: Any, bound: int = 0, allows_kwargs: bool = False) -> Any:
    """Read the signature of a callable. Returns a _Callable; **kwargs is not among its
    parameters.

    bound: the number of leading parameters to leave out, such as `self`
    allows_kwargs: whether the callable may have **kwargs

    Raises TypeError for a method without its object or class, and for parameters that
    cannot be given by name.
    """
    function = getattr(fn, "__func__", fn)
    is_decorated = hasattr(fn, "__wrapped__") or hasattr(fn, "__signature__")
    # PyPy's built-in functions have a code object, too, but of another type.
    if type(function) is type(read_parameters) and not is_decorated:
        if function is not fn:
            # A bound method already has its first argument.
            bound += 1
        read = _read_code(function, bound)
    else:
        read = _read_signature(fn, bound)
    first = read.parameters and read.parameters[0]
    if not bound and first and first.name in ("self", "cls"):
        raise TypeError(
            f"{first.name}: this method has no object or class yet; make one, and "
            "register its method"
        )
    if read.has_unnamed or (read.has_kwargs and not allows_kwargs):
        raise TypeError(
            "*args, **kwargs and positional-only parameters have no name on the wire; "
            "give each parameter a name (with an input_schema, **kwargs is allowed)"
        )
    return read


def _read_code(fn: Any, bound: int) -> Any:
    """Read the code object of a function: `inspect` would add 5 to 11 ms to a server's
    start."""
    code = fn.__code__
    # First come the positional parameters, then the keyword-only ones. The rest are
    # *args, **kwargs and local variables.
    names = code.co_varnames
    count = code.co_argcount + code.co_kwonlyargcount
    last = fn.__defaults__ or ()
    defaults = dict(zip(names[code.co_argcount - len(last) :], last))
    defaults.update(fn.__kwdefaults__ or {})
    hints = fn.__annotations__
    parameters = [
        _Parameter(name, hints.get(name, object), defaults.get(name, REQUIRED))
        for name in names[bound:count]
    ]
    # CO_VARARGS is 4, for *args. CO_VARKEYWORDS is 8, for **kwargs.
    return _Callable(
        parameters,
        hints.get("return", object),
        fn.__globals__,
        code.co_flags & 4 or code.co_posonlyargcount > bound,
        code.co_flags & 8,
    )


def _read_signature(fn: Any, bound: int) -> Any:
    """Read any other callable by `inspect`: one that is not a function, such as a
    partial(), that wraps another one, or that has a __signature__."""
    import inspect

    # A partial() may name a function that it wraps, but has fewer parameters.
    signature = inspect.signature(fn, follow_wrapped=not isinstance(fn, partial))
    # The keywords that a partial() has set are not arguments; one may be a secret.
    settled = getattr(fn, "keywords", {})
    parameters = []
    kinds = set()
    for each in list(signature.parameters.values())[bound:]:
        if each.name in settled:
            continue
        kinds.add(each.kind.name)
        default = each.default
        if default is each.empty:
            default = REQUIRED
        parameters.append(_Parameter(each.name, each.annotation, default))
    has_kwargs = "VAR_KEYWORD" in kinds
    if has_kwargs:
        # It is always the last one.
        parameters.pop()
    return _Callable(
        parameters,
        signature.return_annotation,
        _names_in(getattr(fn, "func", fn).__module__),
        kinds & {"POSITIONAL_ONLY", "VAR_POSITIONAL"},
        has_kwargs,
    )


def _names_in(module: str) -> Any:
    """Return the names of a module. Code that exec() runs may have no module; then
    return {}."""
    return getattr(sys.modules.get(module), "__dict__", {})


def _read_class(cls: Any) -> Any:
    """Return the members of a TypedDict, or the parameters of the constructor of a
    dataclass, an attrs class or a NamedTuple.

    Raises TypeError for any other class.
    """
    if hasattr(cls, "__dataclass_fields__") or hasattr(cls, "__attrs_attrs__"):
        return read_parameters(cls.__init__, 1).parameters
    if hasattr(cls, "_field_defaults"):
        return read_parameters(cls.__new__, 1).parameters
    if not hasattr(cls, "__total__"):
        raise TypeError(
            f"{getattr(cls, '__name__', cls)} has no JSON Schema; use a plain type, an "
            "Enum, a TypedDict, a NamedTuple or a dataclass"
        )
    hints = cls.__annotations__
    # In Python 3.8, a TypedDict does not record which of its keys are required.
    required = getattr(cls, "__required_keys__", hints if cls.__total__ else ())
    return [
        _Parameter(name, hint, REQUIRED if name in required else None)
        for name, hint in hints.items()
    ]


class WireType(Json):
    """A Python type as the wire represents it. The dict is the JSON Schema of its
    values.

    convert: convert(wire, path, run) converts a JSON value, which has the `type` of the
        schema, to a Python value. It raises one of REFUSALS for a value that does not
        fit. For the values inside a container, it calls run.convert()
    expected: the error text, in place of convert()'s
    is_model: whether convert() checks everything, by a schema that is not ours
    """

    # The classes whose values are the same in Python and JSON.
    same: frozenset[type] = frozenset()

    def __init__(
        self,
        schema: Json,
        convert: Conversion = lambda wire, *_: wire,
        expected: str = "",
        is_model: bool = False,
    ):
        super().__init__(schema)
        self.convert = convert
        self.expected = expected
        self.is_model = is_model
        # The JSON type that run.fit() checks; "" for none.
        self.kind = "" if is_model else schema.get("type", "")
        # Rows of _KEYWORDS with their arguments, for the converted value.
        self.limits: list[tuple[Any, Any]] = []

    def limit(self, keyword: str, argument: Any) -> None:
        """Add a keyword to the schema, and to the checks of a converted value."""
        row = _KEYWORDS.get(keyword, _OTHER)
        if keyword == "pattern":
            argument = getattr(argument, "pattern", argument)
            way = Schema({keyword: argument}).patterns[argument]
            row = row._replace(apply=partial(search_pattern, way))
        # Another argument, such as a date, is checked, but JSON Schema has no form for
        # it.
        if isinstance(argument, (str, int, float, list)):
            self[keyword] = argument
        if row.apply is not None:
            self.limits.append((row, argument))
            self.same = frozenset()


class _Enough(Exception):
    """MAX_ERRORS failures are recorded: skip the rest of the value."""


class _Run(Meter):
    """One conversion. WireTypes descend through the value, and record all failures.

    Some models and clients send numbers, lists and objects as JSON in text. Unless the
    run is strict, a text that does not fit is decoded and converted again.
    """

    # Whether a text is never decoded.
    is_strict = False

    def __init__(self, value: object):
        super().__init__(value)
        self.failures: list[_Failure] = []

    def convert(self, described: WireType, wire: Any, path: Any) -> Any:
        """Convert the value at `path`. If it fails, record why, and return None."""
        self.spend(1)
        if type(wire) in described.same:
            return wire
        try:
            return self.fit(described, wire, path)
        except REFUSALS as error:
            refusal = error
        if isinstance(wire, str) and not self.is_strict:
            decoded = parse_text(wire)
            has_parts = isinstance(decoded, (dict, list))
            # A model itself decides whether a text may stand for a number.
            if has_parts or not described.is_model:
                try:
                    return self.fit(described, decoded, path)
                except REFUSALS as error:
                    # For an array or object, report the failures inside it. For
                    # anything else, quote the text as it came.
                    if has_parts:
                        refusal = error
        self.refuse(refusal, path)
        return None

    def fit(self, described: WireType, wire: Any, path: Any) -> Any:
        """Convert a value. Raises one of REFUSALS if it does not fit."""
        kind = described.kind
        if kind and not _has_type(self, wire, kind):
            raise Misfit(described.expected or f"expected {kind}", wire)
        try:
            value = described.convert(wire, path, self)
        except REFUSALS:
            if not described.expected:
                raise
            raise Misfit(described.expected, wire) from None
        for row, argument in described.limits:
            # A limit applies to values of certain JSON types, and to values without
            # one, such as a date.
            kind = json_type(value)
            is_concerned = not kind or kind in row.concerns
            if is_concerned and not row.apply(self, value, argument):
                self.fail(path, row.expects, argument=argument, value=wire)
        return value

    def refuse(self, error: Any, path: Any) -> None:
        """Record why the value at `path` does not fit."""
        if isinstance(error, Misfit):
            self.fail(path, error.args[0], value=error.args[1])
        elif callable(getattr(error, "errors", None)):  # of pydantic
            for each in error.errors():
                place = path
                for key in each["loc"]:
                    place = (place, key)
                self.fail(place, each["msg"])
        else:
            self.fail(path, str(error))

    def fail(self, path: Any, text: str, **more: Any) -> None:
        """Record one failure."""
        self.record([_Failure(path, text, **more)])

    def record(self, failures: list[_Failure]) -> None:
        """Add failures. Raises _Enough at MAX_ERRORS."""
        self.failures += failures
        if len(self.failures) >= MAX_ERRORS:
            raise _Enough

    def attempt(
        self, described: WireType, wire: Any, path: Any, is_strict: bool
    ) -> tuple[Any, list[_Failure]]:
        """Convert a value without recording its failures. Returns the Python value and
        the failures."""
        self.spend(STEPS_OF_ATTEMPT)
        outer = (self.failures, self.is_strict)
        self.failures = []
        self.is_strict = is_strict
        value = None
        with suppress(_Enough):
            value = self.convert(described, wire, path)
        failures = self.failures
        self.failures, self.is_strict = outer
        return value, failures


def from_wire(described: WireType, wire: Any) -> Any:
    """Convert a JSON value. Raises InvalidParams, which names every wrong place."""
    try:
        value, failures = _Run(wire).attempt(described, wire, None, False)
    except RecursionError:
        failures = [_Failure(None, _TOO_MUCH)]
    if failures:
        raise InvalidParams("; ".join(describe_failures(failures[:MAX_ERRORS])))
    return value


def simplify(schema: Json) -> None:
    """Remove two things from a schema, at any depth: null as a type of members that may
    be left out, and titles, which pydantic derives from names.

    Otherwise some models would send null, and some clients would refuse the schema.
    """
    schema.pop("title", None)
    for _, inner in inner_schemas(schema):
        if isinstance(inner, dict):
            simplify(inner)
    for name, member in schema.get("properties", {}).items():
        if name not in schema.get("required", ()):
            drop_null(member)


def drop_null(schema: Json) -> None:
    """Change the schema of Optional[X] to that of X. A schema with a default other than
    null is not changed: there, null differs from leaving the member out."""
    others = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    if others and schema.get("default") is None:
        schema.pop("default", None)
        schema["anyOf"] = others
        if len(others) == 1:
            # The members beside `anyOf`, such as a description, count first.
            del schema["anyOf"]
            schema.update({**others[0], **schema})


class ObjectType(WireType):
    """The type of an object with known members. A value is converted to a dict, or to
    an instance of a class.

    types: name -> the WireType of the member
    fields: name -> the Param or Field that provides the default of a missing member
    defaults: name -> the default in the signature, which a Field's factory may read
    make: make(**members) returns the value
    """

    # The name of the parameter for the Context, which is not a member; or None.
    excluded: str | None = None
    make: Any = dict

    def __init__(self) -> None:
        self.types: dict[str, WireType] = {}
        self.fields: Json = {}
        self.defaults: Json = {}
        super().__init__({"type": "object", "properties": self.types}, self._convert)

    def add(self, name: str, member: WireType, default: Any, notes: list[Any]) -> None:
        """Add a member. If `default` is REQUIRED, the last Param or Field among its
        notes may provide a default."""
        self.types[name] = member
        self.defaults[name] = default
        fields = [each for each in notes if hasattr(each, "is_required")]
        if default is REQUIRED and fields and not fields[-1].is_required():
            self.fields[name] = fields[-1]
            # This is None for a default_factory: each call makes its own.
            default = fields[-1].get_default()
        if default is REQUIRED:
            self.setdefault("required", []).append(name)
        elif default is not None and hint_name(type(default)) != "attr._Nothing":
            with suppress(*REFUSALS):  # not every default has a form in JSON
                member["default"] = to_plain(default)

    def _convert(self, wire: Any, path: Any, run: _Run) -> Any:
        """See WireType.convert. Records a failure for each wrong member."""
        count = len(run.failures)
        made = {}
        for name, value in wire.items():
            place = (path, name)
            member = self.types.get(name)
            if member is None:
                # Unknown members are refused. The schema in tools/list does not show
                # this, since some clients cannot read "additionalProperties".
                if value is not None:
                    run.fail(place, _UNKNOWN, argument=self.types)
            elif value is None or value == "null":
                # Null counts as left out, unless the member may be null.
                value, failures = run.attempt(member, value, place, run.is_strict)
                if not failures:
                    made[name] = value
            else:
                made[name] = run.convert(member, value, place)
        for name in self.get("required", ()):
            if name not in made:
                run.fail((path, name), _MISSING)
        if len(run.failures) > count:
            return None
        self.add_defaults(made)
        return self.make(**made)

    def add_defaults(self, made: Json) -> None:
        """Add the defaults of missing members that have a Param or Field."""
        for name, field in self.fields.items():
            more = {}
            # Since pydantic 2.10, a factory may look at the members before it.
            if getattr(field, "default_factory_takes_validated_data", False):
                more = {"validated_data": {**self.defaults, **made}}
            if name not in made:
                made[name] = field.get_default(call_default_factory=True, **more)


class Param:
    """A note on a parameter. It adds to the parameter's schema, and is enforced:

        days: Annotated[int, Param("how many", ge=1, header="Days")] = 3
        days: int = Param("how many", ge=1, default=3)

    The notes of pydantic and annotated_types work as well: Field(ge=1), Ge(1).

    description: a text for the model and for people; a plain str as the note is a
        description, too.
    ge, gt, le, lt: the value must be >=, >, <= or < this.
    min_length, max_length: limits for the characters of a text, the items of a list or
        the members of an object.
    pattern: a regular expression that must match somewhere in the text; anchor it with
        ^ and $.
    examples: a list of values, for the model.
    header: over HTTP, clients repeat the value in the header Mcp-Param-HEADER, so that
        proxies can route by it (basic/transports/streamable-http.md).
    default: the value of an argument that is left out; without it, the argument is
        required. Inside Annotated, the parameter's own default takes precedence.
    """

    default: Any

    def __init__(
        self,
        description: str | None = None,
        *,
        ge: Any = None,
        gt: Any = None,
        le: Any = None,
        lt: Any = None,
        min_length: int | None = None,
        max_length: int | None = None,
        pattern: str | None = None,
        examples: list[Any] | None = None,
        header: str | None = None,
        default: Any = REQUIRED,
    ):
        # The parameters are the attributes.
        notes = dict(locals())
        del notes["self"]
        vars(self).update(notes)

    def is_required(self) -> bool:
        """Return whether there is no default, as a pydantic Field does."""
        return self.default is REQUIRED

    def get_default(self, call_default_factory: bool = False) -> Any:
        """Return the default, as a pydantic Field does."""
        return self.default


# An attribute of notes -> the keyword of JSON Schema with the same meaning.
_NOTES = {
    "description": "description",
    "documentation": "description",
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
    "min_length": "minLength",
    "max_length": "maxLength",
    "pattern": "pattern",
    "examples": "examples",
    "header": "x-mcp-header",
}


def note_parts(notes: Iterable[Any]) -> Iterator[Any]:
    """Yield each note, and the notes inside it, which a pydantic Field has in its list
    `metadata`. A text is a description."""
    for note in notes:
        if isinstance(note, str):
            note = Param(note)
        yield note
        yield from getattr(note, "metadata", ())


def add_notes(described: WireType, notes: Iterable[Any]) -> None:
    """Add notes to a schema and its checks. A note is a text, a Param, or an object
    with attributes of the same names."""
    kinds = [each.get("type") for each in described.get("anyOf", [described])]
    noun = "Length"
    for kind in _COUNTED:
        if kind in kinds:
            noun = _COUNTED[kind]
    for part in note_parts(notes):
        for name, keyword in _NOTES.items():
            argument = getattr(part, name, None)
            if argument is not None and not callable(argument):
                described.limit(keyword.replace("Length", noun), argument)


def needs_pydantic(part: Any) -> bool:
    """Return whether only pydantic can apply a note, such as AfterValidator or Strict.
    Raises TypeError for a bare function, since nothing would call it."""
    if type(part) is type(needs_pydantic):
        raise TypeError(f"{part.__name__} is not a note: call it in the function")
    if hasattr(part, "__get_pydantic_core_schema__"):
        return True
    is_theirs = type(part).__module__.startswith(("pydantic", "annotated_types"))
    return is_theirs and type(part).__name__ not in _KNOWN_NOTES.split()


# The notes of pydantic and annotated_types that add_notes() understands, except those
# inside a FieldInfo.
_KNOWN_NOTES = "FieldInfo Ge Gt Le Lt Interval MultipleOf MinLen MaxLen Len DocInfo"


class HintReader:
    """Describes type hints as WireTypes.

    names: the names that hints written as text may use
    is_returned: whether the hints describe a returned value, rather than arguments
    """

    def __init__(self, names: Any, is_returned: bool = False):
        self._names = names
        self._is_returned = is_returned
        # Type variable of the class that is being described -> its hint.
        self._bound: Any = {}
        # The classes and aliases that are being described, the outermost first.
        self.around: list[Any] = []
        # Name of each class or alias that contains itself -> its schema, for `$defs`.
        self.defs: dict[str, WireType] = {}
        # The same name -> the class or alias.
        self.defined: Json = {}

    def root(self, described: WireType) -> WireType:
        """Return a description together with all definitions that it refers to."""
        # An outputSchema must have a type at its root, so replace a reference there.
        target = self.defs.get(_target_name(described), described)
        schema = dict(target)
        if self.defs:
            schema["$defs"] = self.defs
        return WireType(schema, described.convert, is_model=target.is_model)

    def split(self, hint: Any) -> tuple[Any, list[Any]]:
        """Split Annotated[X, a, b] into X and [a, b]; any other hint has no notes. A
        hint that is text is evaluated first. Raises TypeError if that fails."""
        text = getattr(hint, "__forward_arg__", hint)
        if isinstance(text, str):
            module = str(getattr(hint, "__forward_module__", ""))
            hint = _evaluate(text, ChainMap(_names_in(module), self._names))
        if hasattr(hint, "__metadata__"):
            return hint.__origin__, list(hint.__metadata__)
        return hint, []

    def describe(self, hint: Any) -> WireType:
        """Describe a hint. Each call returns a new WireType.

        Raises TypeError, with the remedy, for a hint that JSON cannot represent.
        """
        hint, notes = self.split(hint)
        if notes:
            return self.noted(hint, notes)
        # List[int] has the origin list and the arguments (int,).
        origin = getattr(hint, "__origin__", None) or hint
        args = getattr(hint, "__args__", ())
        name = hint_name(origin)
        if name in SCALARS:
            return self._scalar(origin, SCALARS[name])
        if name in _ARRAY_TYPES:
            return self._array(args, _ARRAY_TYPES[name])
        if name in _GENERICS:
            return _GENERICS[name](self, args)
        if name == "a TypeVar":
            return self.describe(self._bound.get(hint, object))
        if name == "a InitVar":  # InitVar[X], of a dataclass
            return self.describe(hint.type)
        for attribute, describe in _KNOWN_BY.items():
            if hasattr(origin, attribute):
                return describe(self, origin)
        if not hasattr(origin, "__name__"):
            raise TypeError(f"expected a type, got {show(hint)}")
        return self._class_or_alias(hint, origin)

    def noted(self, hint: Any, notes: list[Any]) -> WireType:
        """Describe a hint with notes: those of Annotated, and a Param or Field that is
        the default."""
        if any(map(needs_pydantic, note_parts(notes))):
            described = self._by_pydantic(hint, notes)
        else:
            described = self.describe(hint)
        add_notes(described, notes)
        return described

    def members(
        self, parameters: Iterable[_Parameter], excluded: type | None = None
    ) -> ObjectType:
        """Describe an object with these members. Members with the hint `excluded`, or
        Optional[excluded], are left out. Raises TypeError as describe() does, naming
        the member."""
        described = ObjectType()
        for name, hint, default in parameters:
            try:
                hint, notes = self.split(hint)
                if excluded and excluded in (hint, *getattr(hint, "__args__", ())):
                    described.excluded = name
                    continue
                if hasattr(default, "is_required"):
                    notes.append(default)
                    default = REQUIRED
                member = self.noted(hint, notes)
            except (TypeError, ValueError) as error:
                raise TypeError(f"{name}: {error}") from None
            mark = hint_name(getattr(hint, "__origin__", hint))
            described.add(name, member, _MARKS.get(mark, default), notes)
        return described

    def _scalar(self, cls: Any, row: Any) -> WireType:
        """Describe a class by its row of SCALARS."""
        schema = dict(row.schema)
        if self._is_returned and schema.get("format") in _STRICT_FORMATS:
            # A client might check the format by RFC 3339, and refuse a time without
            # an offset, or a duration with a sign.
            del schema["format"]
        described = WireType(
            schema, lambda wire, *_: row.parse(cls, wire), row.expected
        )
        described.same = frozenset({cls} & TYPE_NAMES.keys())
        return described

    def _choice(self, members: Iterable[Any]) -> WireType:
        """Describe a Literal or an Enum."""
        by_key = {equality_key(to_plain(member)): member for member in members}
        values = list(map(to_plain, by_key.values()))
        schema: Json = {"enum": values}
        kinds = set(map(json_type, values))
        if len(kinds) == 1:
            schema = {"type": kinds.pop(), **schema}
        return WireType(
            schema,
            lambda wire, *_: by_key[equality_key(wire)],
            f"expected one of {show(values, 300)}",
        )

    def _array(self, args: Any, make: type) -> WireType:
        """Describe an array of items of one type. make(items) returns the value."""
        item = self.describe(args[0] if args else object)

        return WireType(
            # Some clients require `items`.
            {"type": "array", "items": item},
            lambda wire, path, run: make(
                run.convert(item, each, (path, at)) for at, each in enumerate(wire)
            ),
        )

    def _tuple(self, args: Any) -> WireType:
        """Describe a tuple: of one type, tuple[X, ...], or of a type for each item."""
        if not args or ... in args:
            return self._array(args, tuple)
        items = [self.describe(each) for each in args]
        schema: Json = {"type": "array", "items": items[0]}
        if items.count(items[0]) < len(items):
            # Clients that do not know `prefixItems` read `items` alone.
            schema["prefixItems"] = items
            schema["items"] = {"anyOf": items}

        described = WireType(
            schema,
            lambda wire, path, run: tuple(
                run.convert(items[at], each, (path, at)) for at, each in enumerate(wire)
            ),
            # The error for an item after the last one.
            f"expected {len(items)} items",
        )
        described.limit("minItems", len(items))
        described.limit("maxItems", len(items))
        return described

    def _mapping(self, args: Any) -> WireType:
        """Describe a mapping from names to values of one type."""
        key, item = map(self.describe, args or (str, object))
        schema = add_given({"type": "object"}, additionalProperties=item or None)
        if "enum" in key:
            schema["propertyNames"] = {"enum": list(map(encode_text, key["enum"]))}
        return WireType(
            schema,
            lambda wire, path, run: {
                run.convert(key, at, (path, at)): run.convert(item, each, (path, at))
                for at, each in wire.items()
                # Null counts as left out where it can mean nothing else.
                if each is not None or item.kind in ("", "null")
            },
        )

    def _union(self, args: Any) -> WireType:
        """Describe X | Y, or Optional[X]."""
        types = [self.describe(each) for each in args]

        def convert(wire: Any, path: Any, run: _Run) -> Any:
            """Convert to the first type that accepts the value as it is, or else to the
            first that accepts it with decoded texts. So for date | str, a text that is
            not a date stays a str."""
            modes = [True] if run.is_strict else [True, False]
            for is_strict in modes:
                attempts = []
                for each in types:
                    value, failures = run.attempt(each, wire, path, is_strict)
                    if not failures:
                        return value
                    attempts.append(failures)
            run.record(nearest(attempts, path))
            return None

        described = WireType({"anyOf": types}, convert)
        described.same = frozenset().union(*(each.same for each in types))
        return described

    def _model(self, make_schema: Any, validate: Any) -> WireType:
        """Describe a class that makes its own schema, such as a pydantic model. The
        class also checks its values."""
        schema = make_schema(
            mode="serialization" if self._is_returned else "validation"
        )
        defs = schema.pop("$defs", {})
        try:
            schema = _write_out(schema, defs)
        except RecursionError:
            # The model contains itself, so it keeps its references.
            for name, inner in defs.items():
                self.defs[name] = WireType(inner, is_model=True)
        return WireType(schema, lambda wire, *_: validate(wire), is_model=True)

    def _by_pydantic(self, hint: Any, notes: Any = ()) -> WireType:
        """Describe a pydantic dataclass, or a hint with notes of pydantic."""
        # The program has imported pydantic, which imports typing_extensions.
        pydantic: Any = sys.modules.get("pydantic")
        if not hasattr(pydantic, "TypeAdapter"):
            raise TypeError(
                f"{show(notes)}: needs pydantic 2, or a check in the function"
            )
        if notes:
            # Within [], mypy takes a star for the syntax of Python 3.11.
            parts = hint, *notes
            hint = sys.modules["typing_extensions"].Annotated[parts]
        adapter = pydantic.TypeAdapter(hint)
        return self._model(adapter.json_schema, adapter.validate_python)

    def _class_or_alias(self, hint: Any, origin: Any) -> WireType:
        """Describe a class, or an alias `type X = ...`. `origin` is Page for the hint
        Page[int].

        A class that contains itself is written once, in `defs`, and every use of it is
        a reference. The use inside the class is the first to notice.
        """
        defs = self.defs
        variables = getattr(hint, "__parameters__", ())
        if variables and hint is not origin:
            # Page[T], inside another class: replace T by its hint there.
            hint = hint[tuple(self._bound.get(each, object) for each in variables)]
        name = str(getattr(origin, "__name__", origin))
        reference = WireType(
            {"$ref": f"#/$defs/{name}"},
            lambda wire, path, run: run.fit(defs[name], wire, path),
        )
        if hint in self.around:
            # This use is inside the class. Until its members are described, the
            # reference takes the place of its definition.
            self.defined.setdefault(name, hint)
            defs.setdefault(name, reference)
        if name in defs:
            if self.defined.get(name) != hint:
                raise TypeError(f"two classes have the name {name}; rename one")
            return reference
        outer = (self._names, self._bound)
        self._enter_body(origin, getattr(hint, "__args__", ()))
        self.around.append(hint)
        if hasattr(origin, "__value__"):
            described = self.describe(origin.__value__)
        else:
            described = self._record(origin)
        self.around.pop()
        self._names, self._bound = outer
        if name not in defs:
            return described
        defs[name] = described
        return reference

    def _enter_body(self, origin: Any, args: Any) -> None:
        """Set `_names` and `_bound` for the hints in the body of a class or an alias.

        These may use its own name, its type variables and the names of its module, and
        the same of its bases. `args` are the hints of its type variables; after class
        Items(Page[int]), the T of Page is int.
        """
        variables = getattr(origin, "__parameters__", ())
        # A variable without a hint may be anything.
        self._bound = dict(itertools.zip_longest(variables, args, fillvalue=object))
        tables = []
        for base in getattr(origin, "__mro__", [origin]):
            own = (*getattr(base, "__parameters__", ()), base)
            tables.append({each.__name__: each for each in own})
            tables.append(_names_in(base.__module__))
            # Bind the type variables of the bases of `base`, as it writes them.
            for alias in getattr(base, "__orig_bases__", ()):
                inner = getattr(getattr(alias, "__origin__", 0), "__parameters__", ())
                for each, hint in zip(inner, getattr(alias, "__args__", ())):
                    hint = self._bound.get(hint, hint)
                    if self._bound.setdefault(each, hint) != hint:
                        # The hints of members do not show whose variable they mean.
                        raise TypeError(
                            f"{each} means two types; give each class its own TypeVar"
                        )
        self._names = ChainMap(*tables, self._names)

    def _record(self, cls: Any) -> WireType:
        """Describe a dataclass, an attrs class, a NamedTuple or a TypedDict."""
        described = self.members(_read_class(cls))
        described.make = cls
        # Python gives a dataclass or NamedTuple without a docstring a useless one:
        # Name(...).
        doc = cls.__doc__ or ""
        if not doc.startswith(f"{cls.__name__}("):
            add_given(described, description=describe_members(doc, described.types))
        return described


def _evaluate(text: str, names: Any) -> Any:
    """Evaluate a hint that is text. Besides `names`, it may use all names that are in
    scope where the function is registered, or the form is sent. Raises TypeError."""
    # Find the caller of this file.
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_globals is globals():
        frame = frame.f_back
    outer = {**frame.f_globals, **frame.f_locals}
    try:
        with suppress(TypeError):
            return eval(text, outer, names)
        # This Python may not know the syntax yet.
        code, respelt = _respell(text)
        return eval(code, outer, ChainMap(respelt, names))
    except Exception as error:
        raise TypeError(
            f"cannot evaluate the hint {text!r}: {error}; define its names first, and "
            "at the top level"
        ) from None


def _target_name(schema: Json) -> str:
    """Return the name of the definition that a schema refers to. If it has no "$ref",
    return a text that names none."""
    return str(schema.get("$ref")).rpartition("/")[2]


def _write_out(schema: Any, defs: Json) -> Any:
    """Return a schema with definitions in place of references, which some clients
    cannot follow. Raises RecursionError for a schema that contains itself."""
    if isinstance(schema, list):
        return [_write_out(each, defs) for each in schema]
    if not isinstance(schema, dict):
        return schema
    name = _target_name(schema)
    if name in defs:
        schema = {**defs[name], **schema}
        del schema["$ref"]
    return {keyword: _write_out(schema[keyword], defs) for keyword in schema}


# Formats that RFC 3339 defines more narrowly than Python's classes.
_STRICT_FORMATS = ("date-time", "time", "duration")

# A mark on a member -> the member's default. A TypedDict has the first two. An InitVar
# of a dataclass is missing in its instances, so it is not required.
_MARKS = {"Required": REQUIRED, "NotRequired": None, "a InitVar": None}

# JSON type -> the noun in the keyword for its size, as in minItems. If a hint allows
# several of these types, its limit applies to the last one.
_COUNTED = {"object": "Properties", "array": "Items", "string": "Length"}

# The name of a hint's origin -> the class that is made of an array.
_ARRAY_TYPES = {
    **dict.fromkeys(
        (
            "list",
            "Sequence",
            "MutableSequence",
            "Collection",
            "Iterable",
            "Iterator",
            "Generator",
            "AsyncIterable",
            "AsyncIterator",
            "AsyncGenerator",
        ),
        list,
    ),
    "set": set,
    "MutableSet": set,
    "frozenset": frozenset,
    "Set": frozenset,
    "deque": deque,
}

# The name of a hint's origin -> a function that describes the hint, by its arguments.
# For hints without arguments, see SCALARS.
_GENERICS: dict[str, Describer] = {
    **dict.fromkeys(
        ("object", "Any", "inspect._empty"), lambda reader, args: WireType({})
    ),
    "tuple": HintReader._tuple,
    "Union": HintReader._union,
    "a UnionType": HintReader._union,
    "Literal": HintReader._choice,
    **dict.fromkeys(("dict", "Mapping", "MutableMapping"), HintReader._mapping),
    **dict.fromkeys(
        ("Required", "NotRequired", "ReadOnly"),
        lambda reader, args: reader.describe(*args),
    ),
}

# An attribute by which classes are recognised -> a function that describes them.
_KNOWN_BY: dict[str, Describer] = {
    "__members__": HintReader._choice,  # an Enum
    "__supertype__": lambda reader, alias: reader.describe(alias.__supertype__),
    "model_json_schema": lambda reader, cls: reader._model(
        cls.model_json_schema, cls.model_validate
    ),
    "__pydantic_validator__": HintReader._by_pydantic,
    "__get_pydantic_core_schema__": HintReader._by_pydantic,
}


def _respell(text: str) -> tuple[Any, Json]:
    """Compile a hint that this Python cannot evaluate: X | Y before Python 3.10,
    list[X] before 3.9, "X" | None in any version. Returns the code and the additional
    names that it needs."""
    import ast
    import typing

    class Respell(ast.NodeTransformer):
        """Replaces each X | Y by a call of a function named `|`."""

        def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
            self.generic_visit(node)
            return ast.Call(ast.Name("|", ast.Load()), [node.left, node.right], [])

    tree = ast.fix_missing_locations(Respell().visit(ast.parse(text, mode="eval")))
    respelt = {
        "list": typing.List,
        "dict": typing.Dict,
        "tuple": typing.Tuple,
        "set": typing.Set,
        "frozenset": typing.FrozenSet,
        "|": lambda left, right: typing.Union[left, right],
    }
    return compile(tree, "<hint>", "eval"), respelt


# Docstrings may have the style of Google, NumPy or Sphinx:
#
#     Args:                         Parameters                    :type days: int
#         days (int): How many,     ----------                    :param days: How many,
#             at most 5.            days : int                        at most 5.
#                                       How many, at most 5.
#
# An entry may also be `- days: ...` or `days -- ...`, and stand before any heading.
_DOC_SECTION = r"(?m)^(?=[A-Z][\w ]*(?::|\n-+)$|:param )"
_DOC_PARAMETERS = (
    r"(?m)(?:Args|Arguments|Attributes|Params|(?:Other )?Parameters)(?::|\n-+)$\n?"
    r"|(?=:param )"
)
_DOC_ENTRY = (
    r"(?m)^(?P<first>(?P<indent> *)(?:[-*] +)?"
    r"(?::param (?:[^:\n]* )?)?"  # Sphinx's, with or without a type
    r"\*{0,2}`{0,2}(?P<name>\w+)`{0,2} *"
    r"(?:\(.*?\))? *(?::(?!:)|--?(?= ))"  # Google's type
    r"(?P<text>.*))"
    r"(?P<below>(?:\n(?:(?P=indent) .*)?$)*\n?)"
)


def parse_doc(doc: str, names: Iterable[str]) -> tuple[str | None, dict[str, str]]:
    """Split a docstring. Returns two things: the text without the entries for `names`,
    or None if no text is left; and a dict, name -> text of its entry.

    Entries stand before all sections, or in a section for parameters. An entry includes
    the lines below it that are empty, or indented further. If a name has two entries,
    the first counts.
    """
    import textwrap

    first, _, rest = doc.expandtabs().strip().partition("\n")
    text = re.sub(r"(?m)^:type .*$\n?", "", f"{first}\n{textwrap.dedent(rest)}")
    opening, *sections = re.split(_DOC_SECTION, text)
    entries: dict[str, str] = {}
    kept = _take_entries("", opening, names, entries)
    for section in sections:
        heading = re.match(_DOC_PARAMETERS, section)
        if heading is None:
            kept += section
        else:
            kept += _take_entries(heading[0], section[heading.end() :], names, entries)
    return kept.strip() or None, entries


def _take_entries(heading: str, text: str, names: Any, entries: dict[str, str]) -> str:
    """Move the entries for `names` from a section to `entries`. Returns what is left of
    the section; the heading stays only above other entries."""

    def take(entry: re.Match[str]) -> str:
        """Move one entry; return what replaces it. An entry for another name stays, but
        entries below it may be moved."""
        if entry["name"] not in names:
            return entry["first"] + re.sub(_DOC_ENTRY, take, entry["below"])
        said = entry["text"] + entry["below"]
        if heading.endswith("-\n"):
            # In NumPy's style, the type follows the name, and the text stands below.
            said = entry["below"]
        entries.setdefault(entry["name"], " ".join(said.split()))
        return ""

    rest = re.sub(_DOC_ENTRY, take, text)
    if re.search(_DOC_ENTRY, rest):
        return heading + rest
    return rest


def describe_members(doc: str, members: Json, hidden: str = "") -> str | None:
    """Add the descriptions in a docstring to members. Returns the rest of the
    docstring, without the entry for `hidden`, or None."""
    description, entries = parse_doc(doc, {*members, hidden})
    for name in members.keys() & entries.keys():
        members[name].setdefault("description", entries[name])
    return description


# Reading a function's hints, some of them by pydantic, may raise these.
_UNREADABLE = (TypeError, ValueError, RuntimeError, NameError)


class Signature:
    """Describes a function for the wire, and binds arguments to it.

    fn: the function.
    name: its name.
    description: its docstring without the parameters' descriptions, or None.
    schema: the JSON Schema of the arguments.
    required: the names of the parameters without a default.
    context: the name of the parameter that receives the Context, which is not an
        argument on the wire; or None.
    returns: the return hint.
    names: the names that the return hint may use.
    completers: name of an argument -> fn(text, others), which completes it.

    If a `schema` is given, it checks the arguments, which are not converted. If the
    schema has `properties`, arguments that they do not name do not reach the function.

    Raises TypeError, naming the function and the parameter, for a hint that JSON cannot
    represent, and ValueError for a schema that cannot be used.
    """

    def __init__(self, fn: AnyFunction, context_type: type, schema: Json | None = None):
        # A classmethod cannot be called, nor, before Python 3.10, a staticmethod.
        if isinstance(fn, (staticmethod, classmethod)):
            fn = fn.__func__
        self.fn = fn
        self.completers: dict[str, AnyFunction] = {}
        self.name = getattr(fn, "__name__", type(fn).__name__)
        try:
            read = read_parameters(fn, allows_kwargs=schema is not None)
            reader = HintReader(read.names)
            members = reader.members(read.parameters, context_type)
            if _Parameter("ctx", object, REQUIRED) in read.parameters:
                raise TypeError(
                    "ctx: without a hint this is an argument; write `ctx: Context` for "
                    "the request"
                )
        except _UNREADABLE as error:
            raise TypeError(f"{self.name}: {error}") from None
        self.returns = read.returns
        self.names = read.names
        self.context = members.excluded
        doc = getattr(fn, "__doc__", None) or ""
        self.description = describe_members(doc, members.types, self.context or "")
        self.required = set(members.get("required", ()))
        self.schema: Json = reader.root(members)
        simplify(self.schema)
        self._type: WireType = members
        # Logs the arguments that _without_unknown() has dropped.
        self._dropped = BurstLog()
        # The names of the arguments; None if all names are allowed.
        self._known: Any = members.types.keys()
        # A call needs no conversion if each value has one of its argument's classes in
        # `_same`, and no name in `_needed` is missing.
        self._same = {name: each.same for name, each in members.types.items()}
        self._needed = {*self.required, *members.fields}
        if schema is not None:
            self._use_schema(schema, members, read.has_kwargs)

    def _use_schema(self, schema: Json, members: ObjectType, has_kwargs: bool) -> None:
        """Use a given schema in place of the one made from hints."""
        # In every revision, "inputSchema" must describe an object.
        if object_or_empty(schema).get("type") != "object":
            raise ValueError(
                'input_schema: expected a JSON Schema with "type": "object" at its '
                f"root, got {show(schema)}"
            )
        # The program may change its dict.
        schema = to_plain(schema)
        check = Schema(schema)
        taken = schema.get("properties", members.types).keys() - {self.context}
        takes_any = has_kwargs and schema.get("additionalProperties")
        if not has_kwargs:
            taken &= members.types.keys()

        def convert(wire: Json, path: Any, run: _Run) -> Json:
            if failures := check.failures(wire):
                # Change a copy.
                wire = to_plain(wire)
                for each in failures:
                    _mend(wire, each.path)
                run.failures += check.failures(wire)
            values = {name: wire[name] for name in wire if takes_any or name in taken}
            members.add_defaults(values)
            return values

        self.schema = schema
        self._type = WireType(schema, convert)
        self._known = None
        # No call has this name, so every call is checked.
        self._needed = {None}

    def bind(self, arguments: Json) -> Json:
        """Convert the arguments of a call to keyword arguments. Raises InvalidParams,
        which names every argument that does not fit."""
        # Most calls need no conversion. This loop takes a third of from_wire()'s time.
        is_ready_made = self._needed <= arguments.keys()
        for name, value in arguments.items():
            if type(value) not in self._same.get(name, ()):
                is_ready_made = False
        if is_ready_made:
            return dict(arguments)
        if self._known is not None and not arguments.keys() <= self._known:
            arguments = self._without_unknown(arguments)
        made: Json = from_wire(self._type, arguments)
        return made

    def _without_unknown(self, arguments: Json) -> Json:
        """Drop unknown arguments: some hosts, such as n8n, add a few of their own to
        each call. An argument whose name resembles that of a missing parameter, in
        capitals or not, is probably a misspelling, so it is kept, and refused later. So
        are all unknown ones after the first MAX_KNOWN."""
        from difflib import get_close_matches

        missing = [each.lower() for each in self._known - arguments.keys()]
        dropped = [
            name
            for name in itertools.islice(arguments.keys() - self._known, MAX_KNOWN)
            if not get_close_matches(name[:60].lower(), missing, 1)
        ]
        if dropped:
            self._dropped.add(
                f"{self.name}: unknown arguments dropped: {show(dropped)}"
            )
        return {name: arguments[name] for name in arguments if name not in dropped}

    def completions(self, name: str) -> list[str]:
        """Return all values of an argument that is a Literal, an Enum or a bool; of any
        other argument, []."""
        schema = self.schema["properties"].get(name, {})
        values = schema.get("enum", ())
        if schema.get("type") == "boolean":
            values = (True, False)
        return list(map(encode_text, values))


def _mend(wire: Any, path: Any) -> None:
    """Correct the part of a value at the path of a failure: decode the JSON in a text,
    or remove a null from an object."""
    # The root has no key, and a missing member no value.
    with suppress(*REFUSALS):
        *outer, key = path_keys(path)
        owner = reduce(operator.getitem, outer, wire)
        if isinstance(owner[key], str):
            owner[key] = parse_text(owner[key])
        elif owner[key] is None and isinstance(owner, dict):
            del owner[key]


class Output:
    """Converts the values that a tool returns into results of tools/call:
    server/tools.md#tool-result.

    `structured` chooses the form:
        True   structured content, checked by `schema`, and its JSON in text
        False  blocks: text and content unchanged, other values as JSON in text
        None   the value decides: text, None, content and a list with content in it
               become blocks, any other value structured content

    `schema` is the outputSchema. If it is None, one is made from the return hint,
    unless `structured` is False. An outputSchema must describe an object, so any other
    value is wrapped: {"result": value}. Raises TypeError if `structured` is True and
    the hint has no schema.
    """

    # Whether results are wrapped.
    _wraps = False

    def __init__(
        self, signature: Signature, schema: Json | None, structured: bool | None
    ):
        # The program may change its dict.
        schema = to_plain(schema)
        if schema is None and structured is not False:
            schema = _describe_returned(signature, structured)
        self.structured = bool(schema) or structured
        self._is_text = signature.returns in (str, "str")
        if schema and schema.get("type") != "object":
            self._wraps = True
            # These three keywords belong at the root.
            names = {"$schema", "$defs", "definitions"} & schema.keys()
            inner = dict(schema)
            schema = {
                **{name: inner.pop(name) for name in names},
                "type": "object",
                "properties": {"result": inner},
                "required": ["result"],
            }
        self.schema = schema or None
        self._check = Schema(schema or {})

    def result(self, value: object) -> Json:
        """Make the result from a returned value. Raises TypeError or ValueError for a
        value that has no form in JSON, or does not match the schema."""
        if value is None and self._is_text:
            raise TypeError("expected text, as the hint `-> str` says, got None")
        items = listed(value)
        has_content = value is None or isinstance(value, str)
        has_content |= any(isinstance(item, _Content) for item in items)
        if self.structured is False or (has_content and not self.structured):
            return {
                "content": [to_any_block(item) for item in items if item is not None]
            }
        plain = to_plain(value)
        structured = plain
        if self._wraps or not isinstance(plain, dict):
            structured = {"result": plain}
        if errors := self._check.errors(structured):
            raise ValueError(
                "the result does not match its outputSchema: " + "; ".join(errors)
            )
        return {
            "content": [to_block(encode_text(plain))],
            "structuredContent": structured,
        }


def _describe_returned(signature: Signature, structured: bool | None) -> Json | None:
    """Return the schema of a function's return hint. Unless `structured` is true,
    return None for a hint that has no schema, or whose schema is in _VAGUE."""
    reader = HintReader(signature.names, is_returned=True)
    try:
        described = reader.root(reader.describe(signature.returns))
    except _UNREADABLE as error:
        if structured:
            raise TypeError(f"{signature.name}: return: {error}") from None
        return None
    # Text is returned as text, and a list of anything may hold images.
    bare = dict(described)
    bare.pop("description", None)
    if bare in _VAGUE and not structured:
        return None
    return described


# The schemas of hints that say too little to promise structured content.
_VAGUE = [
    {},
    {"type": "null"},
    {"type": "string"},
    {"anyOf": [{"type": "string"}, {"type": "null"}]},
    {"type": "array", "items": {}},
]


# An expression of a URI template: its operator, its name, and the text after it.
_EXPRESSION = r"{(\+?)(\w+)}([^{}]*)"
# An expression's operator -> the pattern for its value and the text after it.
_STEPS = {"+": r"(?P<{0}>.+?){1}", "": r"(?=(?P<{0}>[^/?#]+?){1})(?P={0}){1}"}
_TEMPLATE = (
    r"(?a)[^{}]*"
    r"(?:{\+?NAME}[^{}]+)*(?:{\+?NAME})?"  # of the path, with text between them
    r"(?:{\?NAME(?:,NAME)*})*"  # of the query
).replace("NAME", r"[A-Za-z_]\w*")

# The value of {x}, or of a query, must not lead to another folder: absolute paths,
# drives, steps `..` and NUL are refused.
_ELSEWHERE = r"\A[/\\]|\A[^\W\d_]:|(?:\A|[/\\])\.\.(?:\Z|[/\\])|\0"


# The scheme and authority of a URI, in upper or lower case, and what follows them.
_ORIGIN = r"(?s)^((?:[^:/]*:)?(?://[^/?#]*)?)(.*)"


def normal_uri(uri: str) -> str:
    """Return a URI with as few escapes as possible, in upper case: RFC 3986, 6.2.2.
    Some clients percent-encode `é` and spaces, and others do not."""
    from urllib.parse import quote, unquote

    text = quote(uri, safe="%/:?#[]@!$&'()*+,;=\n", errors="replace")
    return re.sub(
        "(?:%[0-9A-Fa-f]{2})+",
        lambda escapes: quote(unquote(escapes[0]), safe=""),
        text,
    )


def uri_key(uri: str) -> str:
    """Return a text that is the same for all spellings of a URI. Spellings differ in
    escapes, in the case of scheme and authority, and in an empty path for "/"."""
    [(origin, rest)] = re.findall(_ORIGIN, normal_uri(uri))
    return str(origin.lower() + (rest or "/"))


class UriTemplate:
    r"""A URI with expressions, such as db://{table}. Matching a URI with it finds the
    value of each expression: a part of RFC 6570, in reverse. Raises ValueError for a
    text that is not such a template.

        template   = *( text / expression )
        expression = "{" name "}"                 one step of the path, or a part of it
                   / "{+" name "}"                anything, slashes too; once
                   / "{?" name *( "," name ) "}"  values of the query; at the end
        name       = a letter or "_", then letters, digits and "_"; each name once

    There must be text between two expressions of the path. A value of {+x} may be an
    absolute path, or contain `..` as a step, so a handler must check it; such values of
    other expressions are refused. {x} matches no slash, but %2F becomes a slash in its
    value.

    No URI takes long to match. {x} ends at the first occurrence of the text after it,
    and no other end is tried: its look-ahead fixes the end, since `re` does not
    backtrack into a look-ahead. Only {+x} tries further ends; there is at most one.

        x://{a}.{b}     x://(?=(?P<a>[^/?#]+?)\.)(?P=a)\.(?=(?P<b>[^/?#]+?)$)(?P=b)$

    The $ above stands for a line feed, which match() appends to each path.
    """

    def __init__(self, template: str):
        path, _, query = template.partition("{?")
        path += "\n"
        steps = re.findall(_EXPRESSION, path)
        self.query = re.findall(r"\w+", query)
        self.names = [name for _, name, _ in steps] + self.query
        is_template = re.fullmatch(_TEMPLATE, template) and template.count("{+") <= 1
        if not is_template or len(set(self.names)) < len(self.names):
            raise ValueError(
                f"URI template {show(template)}: expected {{x}}, one {{+x}}, text "
                "between them, and {?a,b} at the end; each name once"
            )
        self.template = template
        self.key = uri_key(template)
        [(origin, rest)] = re.findall(_ORIGIN, normal_uri(path.partition("{")[0]))
        pattern = f"(?i:{re.escape(origin)}){re.escape(rest)}"
        for sign, name, text in steps:
            pattern += _STEPS[sign].format(name, re.escape(normal_uri(text)))
        self._path = re.compile(pattern, re.DOTALL)

    def match(self, uri: str) -> Json | None:
        """Return the decoded values in a URI, in the order of the template's names.
        Names that the query lacks are missing. Return None if the URI does not fit."""
        from urllib.parse import parse_qsl, unquote

        if not self.names and uri_key(uri) == self.key:
            return {}
        spelling = normal_uri(uri)
        path, _, query = spelling.partition("?")
        if not self.query:
            path = spelling
        fit = len(uri) <= MAX_URI and self._path.fullmatch(path + "\n")
        if not fit:
            return None
        values = dict(parse_qsl(query, keep_blank_values=True))
        for name, text in fit.groupdict().items():
            values[name] = unquote(text)
        for name in self.names:
            # The handler checks a value of {+x}.
            is_free = f"{{+{name}}}" in self.template
            if not is_free and re.search(_ELSEWHERE, values.get(name, "")):
                return None
        return {name: values[name] for name in self.names if name in values}


def check_template(template: UriTemplate, signature: Signature) -> None:
    """Check that a template's names are the function's parameters. Raises TypeError."""
    names = set(template.names)
    missing = signature.required - (names - set(template.query))
    if wrong := sorted(missing | names.difference(signature.schema["properties"])):
        raise TypeError(
            f"{signature.name}: {wrong[0]}: the URI {show(template.template)} and the "
            "parameters must have the same names; those in the query need defaults"
        )


def prompt_arguments(signature: Signature) -> list[Json]:
    """Return the arguments of a prompt in the form that prompts/list shows."""
    return [
        add_given(
            {"name": name},
            description=schema.get("description"),
            required=name in signature.required or None,
        )
        for name, schema in signature.schema["properties"].items()
    ]


###############################################################################
# 11. Questions ###############################################################
###############################################################################

# A server may ask its client to fill in a form, to sample a text, or to list its roots.
# This section owns the rules for these questions: the capability that each one needs,
# its parameters by revision, and its answer. Both sides use them: the server checks a
# question before it sends it, and the answer when it arrives; the client checks each
# question that arrives. For the blocks of each revision, see BLOCK_SINCE in Content.


def needed_capability(
    method: str, params: Json, declared: Json
) -> tuple[tuple[str, ...], str]:
    """Return the capability that a client must have declared for a question, and the
    first revision with this capability. `declared` is what the client has declared.
    Raises ValueError for a method that is not a question."""
    row = method_row(method)
    if row.name not in _ANSWERS:
        raise ValueError(f"{method} does not ask the client anything")
    if "tools" in params or "toolChoice" in params:
        return ("sampling", "tools"), "2025-11-25"
    if params.get("mode") == "url":
        return ("elicitation", "url"), "2025-11-25"
    # "An empty capabilities object is equivalent to declaring support for `form` mode
    # only". A client that declares only `url` does not support forms.
    modes = object_or_empty(declared.get("elicitation"))
    if row.capability == ("elicitation",) and "url" in modes and "form" not in modes:
        return ("elicitation", "form"), row.since
    return row.capability, row.since


def check_question(method: str, params: Json) -> None:
    """Check the parameters of a question. Raises ValueError or TypeError."""
    if method != "elicitation/create":
        return
    mode = params.get("mode") or "form"
    if mode == "url":
        # "The `url` parameter MUST contain a valid URL": client/elicitation.md.
        check_uri("url", params.get("url"), "https://", "http://")
        return
    if mode != "form":
        raise ValueError(f"mode: expected form or url, got {show(mode)}")
    if errors := validate(params.get("requestedSchema"), _FORM):
        raise ValueError("requestedSchema: " + "; ".join(errors))
    # This raises ValueError for a schema that cannot be used.
    Schema(params["requestedSchema"])


# "Supported formats: `email`, `uri`, `date`, `date-time`": client/elicitation.md.
_FIELD_FORMATS = ("email", "uri", "date", "date-time")
# A form is one of "flat objects with primitive properties only", client/elicitation.md.
# A field of type array is a multi-select: its items must list the choices.
_FIELD = {
    "type": "object",
    # Some servers write an optional field as `anyOf` its type and null.
    "anyOf": [{"required": ["type"]}, {"required": ["anyOf"]}],
    "properties": {
        "type": {"enum": ["string", "number", "integer", "boolean", "array"]},
        "items": {"anyOf": [{"required": ["enum"]}, {"required": ["anyOf"]}]},
        "oneOf": {"items": {"required": ["const", "title"]}},
    },
    "if": {"required": ["type"], "properties": {"type": {"const": "array"}}},
    "then": {"required": ["items"]},
}
_FORM = {
    "type": "object",
    "required": ["type", "properties"],
    "properties": {
        "type": {"const": "object"},
        "properties": {"type": "object", "additionalProperties": _FIELD},
        "required": {"type": "array", "items": {"type": "string"}},
    },
}


def fit_question(params: Json, version: str, declared: Json) -> Json:
    """Adapt the parameters of a question to a revision, and to a client that has
    declared these capabilities. In the legacy era, a question with a URL has an id.
    Before 2025-11-25, choices with titles need `enum` and `enumNames`. Raises
    ValueError for content or fields that the revision does not have."""
    if params.get("mode") == "url" and version < FIRST_MODERN:
        return {"elicitationId": os.urandom(16).hex(), **params}
    is_old = version < "2025-11-25"
    if is_old:
        for message in params.get("messages", ()):
            # A list of content has no type, and is in no old revision, either.
            kind = member_at(message, ["content", "type"])
            if kind is None or version < BLOCK_SINCE.get(kind, OLDEST):
                raise ValueError(
                    f"messages: {version} does not allow {kind or show(message)}"
                )
    elif not has_capability(declared, ("sampling", "context")):
        # "Servers SHOULD NOT use these values" for a client without this capability.
        params = dict(params)
        params.pop("includeContext", None)
    if "requestedSchema" not in params:
        return params
    form = params["requestedSchema"]
    fields = {
        name: _fit_field(field, is_old) for name, field in form["properties"].items()
    }
    return {**params, "requestedSchema": {**form, "properties": fields}}


def _fit_field(field: Json, is_old: bool) -> Json:
    """Adapt one field of a form; `is_old` means before 2025-11-25. Raises ValueError."""
    field = dict(field)
    if field.get("format") not in _FIELD_FORMATS:
        field.pop("format", None)
    if not is_old:
        return field
    if field.get("type") == "array":
        raise ValueError(
            "requestedSchema: multi-select fields need 2025-11-25 or later"
        )
    if "oneOf" not in field:
        return field
    titles = {choice["const"]: choice["title"] for choice in field["oneOf"]}
    return {**field, "enum": list(titles), "enumNames": list(titles.values())}


def elicitation_schema(schema: Any) -> tuple[Json, Callable[[Any], Any]]:
    """Return the requestedSchema for a JSON Schema, a dataclass or a TypedDict, and a
    function that converts the content of the answer to a Python value."""
    if isinstance(schema, dict):
        return schema, lambda content: content
    reader = HintReader({})
    form = reader.root(reader.describe(schema))
    for field in form.get("properties", {}).values():
        # A form has no null. Instead, the user may leave an Optional[X] empty.
        drop_null(field)
        # Nor has it unions. Keep the type that is last in the alphabet: a string, if
        # there is one, since its text converts to the others.
        field.update(max(field.pop("anyOf", [{}]), key=str))
    return dict(form), partial(from_wire, form)


# The method of a question -> the schemas of the members that its answer must have.
_ANSWERS: dict[str, Json] = {
    "elicitation/create": {"action": {"enum": ["accept", "decline", "cancel"]}},
    "roots/list": {
        "roots": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["uri"],
                "properties": {
                    # "The URI MUST start with file://": client/roots.md. It may be in
                    # upper or lower case.
                    "uri": {"type": "string", "pattern": "^[Ff][Ii][Ll][Ee]://"}
                },
            },
        }
    },
    "sampling/createMessage": {
        "role": {"enum": ["user", "assistant"]},
        "content": {
            "type": ["object", "array"],
            "items": {"type": "object", "required": ["type"]},
        },
    },
}


def check_answer(key: str, method: str, params: Json, answer: Json) -> Json:
    """Check a client's answer to the question `key`, and return it. Raises
    InvalidParams, naming the wrong members."""
    members = _ANSWERS[method]
    schema = {"type": "object", "required": [*members], "properties": members}
    errors = validate(answer, schema)
    if not errors and answer.get("action") == "accept" and "requestedSchema" in params:
        # Many clients accept a form without fields by `accept` alone.
        answer = {**answer, "content": answer.get("content") or {}}
        errors = validate(
            answer, {"properties": {"content": params["requestedSchema"]}}
        )
    if errors:
        raise InvalidParams(
            f"{method} ({key}): the client's answer: " + "; ".join(errors)
        )
    return answer


def encode_roots(roots: Any) -> list[Json] | None:
    """Convert a list of paths, URIs or dicts {"uri", "name"} to roots in the wire's
    form. Return None for None. Raises ValueError or TypeError."""
    if roots is None:
        return None
    if isinstance(roots, (str, bytes, dict)) or not isinstance(roots, Iterable):
        raise ValueError(f"roots: expected a list, got {show(roots)}")
    return [encode_root(root) for root in roots]


def encode_root(root: Any) -> Json:
    """Convert a path, a URI or a dict to a root in the wire's form. Raises ValueError
    for a URI other than file://."""
    if isinstance(root, dict):
        return {**root, "uri": check_uri("roots: uri", root.get("uri"), "file://")}
    text = os.fspath(root)
    # A single letter before the colon is a Windows drive.
    if re.match(r"[A-Za-z][A-Za-z0-9+.\-]+:", text):
        return {"uri": check_uri("roots", text, "file://")}
    import pathlib

    path = pathlib.Path(os.path.abspath(os.path.expanduser(text)))
    return {"uri": path.as_uri(), "name": path.name or str(path)}


###############################################################################
# 12. Context #################################################################
###############################################################################

# This section owns a handler's view of its request: what it may read, how it asks the
# client, and the state that a modern client keeps for it. Then come the places where a
# user's function may run, each under a heading of its own: the main thread of a host
# program, and the event loop. Last comes run_job(), which calls the function there.
#
# In a legacy session, the server sends a question as a request, and the handler blocks
# until the client answers. A modern server sends no requests. It returns the question
# as a result, and the client sends its request again, with the answer
# (basic/patterns/mrtr.md):
#
#     client                                server
#     tools/call ----------------------->   runs the handler; ctx.elicit() finds no
#                                           answer on record, and raises _InputRequired
#     <--- "input_required", with inputRequests and requestState
#     asks its user
#     tools/call, with inputResponses
#                and requestState ------>   opens the state; runs the handler again from
#                                           its top; ctx.elicit() returns the answer
#     <--- "complete"
#
# The client keeps requestState for the server between the two requests. The state holds
# the answers so far, the values of once(), and fingerprints of the last questions; see
# Signer and Context._record.

MAX_STATE = 256 << 10  # bytes of `requestState`
STATE_SECONDS = 600.0  # lifetime of `requestState`, and timeout of a legacy question
HOST_SECONDS = 5.0  # wait before logging that a host does not run its jobs
RETRY_MS = 1_000  # default delay before a client reconnects for an answer


# requestState: its binding and its seal
#
# The claims that identify a caller whose token has a subject: RFC 9068, section 2.2.
_IDENTITY = ("iss", "sub", "client_id")
# The claims that change when a token is renewed, or gets more rights.
_VOLATILE = ("exp", "nbf", "iat", "jti", "auth_time", "scope", "scp")


def principal(auth: Json | None) -> Json:
    """Return the claims of a token that stay the same when it is renewed.

    A token without a subject may belong to a program. Then all claims but those in
    _VOLATILE count, so that two users of one program stay apart.
    """
    auth = auth or {}
    if auth.get("sub"):
        return {name: auth[name] for name in _IDENTITY if name in auth}
    return {name: value for name, value in auth.items() if name not in _VOLATILE}


def fingerprint(value: object) -> str:
    """Return a short digest of a value that to_plain() can convert. A token's claims
    may hold sets and dates, so the value need not be plain JSON."""
    import hashlib

    text = json.dumps(to_plain(value), sort_keys=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:32]


class Signer:
    """Signs the state that travels through the client: HMAC-SHA256 over JSON with an
    expiry.

    A sealed state is `payload.signature`: base64 of the JSON, and hexadecimal digits.
    The signature also covers the binding, which is not part of the text. The first key
    signs and all keys verify, so that keys can be rotated while clients hold states.
    """

    def __init__(self, state_key: Any):
        if state_key is None:
            state_key = os.urandom(32)
        self._keys = []
        for key in listed(state_key) or [""]:
            if isinstance(key, str):
                key = key.encode()
            if not isinstance(key, bytes) or len(key) < 16:
                raise ValueError(
                    "state_key: expected bytes or str of at least 16 bytes, "
                    "or a list of those"
                )
            self._keys.append(key)

    def seal(self, record: Json, binding: str) -> str:
        """Return a text that only open() with the same binding accepts. Raises
        ValueError if it is too large."""
        # json.dumps() writes ASCII: the client's values may hold a lone surrogate.
        text = json.dumps({"record": record, "expires": time.time() + STATE_SECONDS})
        payload = _base64(text.encode("ascii"))
        if len(payload) > MAX_STATE:
            raise ValueError(
                f"requestState: answers and once() take {len(payload)} bytes, "
                f"over {MAX_STATE}"
            )
        return payload + "." + self._signatures(payload, binding)[0]

    def open(self, sealed: Any, binding: str) -> Json:
        """Return the record in a sealed text. Raises InvalidParams for a text that
        seal() did not make for this binding, or that has expired."""
        import hmac

        # compare_digest() accepts only ASCII.
        text = str(sealed).encode("ascii", "replace").decode("ascii")
        payload, _, signature = text.rpartition(".")
        valid = self._signatures(payload, binding)
        if not any(hmac.compare_digest(each, signature) for each in valid):
            raise InvalidParams(
                "requestState: not from this server, or not for this request"
            )
        state = json.loads(_parse_base64(payload))
        if state["expires"] < time.time():
            raise InvalidParams("requestState: expired; call again without it")
        return dict(state["record"])

    def _signatures(self, payload: str, binding: str) -> list[str]:
        """Return one signature for each key."""
        import hmac

        signed = f"{binding}.{payload}".encode("ascii")
        return [hmac.new(key, signed, "sha256").hexdigest() for key in self._keys]


class Context:
    """A handler's view of its request. A handler that declares a parameter of this type
    receives one.

    Any thread may use it while the request is in flight. An `async def` handler may use
    it as well, but a method that blocks holds up the event loop: write
    `await asyncio.to_thread(ctx.elicit, message, schema)`.

        request_id: the request's id; None for a notification
        meta: the request's `_meta`, as received
        protocol_version: the revision of the request
        client_info: the client's name and version, unverified
        client_capabilities: the capabilities that the client declared
        session_id: the id of the legacy HTTP session, else None
        auth: the claims that `verify` returned for the token, else None
        headers: the headers of the HTTP request, with names in lower case; else {}
        cancelled: whether the request was cancelled, or its client has disconnected

    The methods that ask the client (elicit, elicit_url, sample, roots, ask) block in a
    legacy session. They raise MissingCapability if the client did not declare the
    capability, InvalidParams if its answer is invalid, McpError if it answers with an
    error, Cancelled if the request has been cancelled or answered, and Timeout after
    ten minutes without an answer.

    BEWARE: in the modern era a handler runs again from its top for every answer, so the
    code before a question runs again, too. Ask first and act afterwards, or wrap the
    act in `once`. A question is identified by its `key`, text and form, so these must
    be the same in each run. Equal questions without a key are told apart by their
    order; any others may be asked in any order, by several threads at once, too. At a
    question without an answer, an exception ends the run, even if the handler catches
    it.
    """

    # After detach(), these callbacks take the place of the client.
    _on_progress: Callback = None
    _on_ask: Callback = None
    # What ends this run of the handler, at a question without an answer.
    _pause: _InputRequired | None = None

    def __init__(self, connection: Connection, request: Request):
        self.request_id = None if request.is_notification else request.id
        self.meta = request.meta
        self.protocol_version = request.version
        self.client_info = request.client_info
        self.client_capabilities = request.capabilities
        self.session_id = connection.session_id
        self.auth = request.auth
        self.headers = dict(request.headers)
        self._connection = connection
        self._endpoint: Any = connection.endpoint
        self._request = request
        # The keys of the questions in this run of the handler, and of those that were
        # answered before it.
        self._keys: set[str] = set()
        self._answered: set[str] = set()
        # The fingerprint of a question without a key -> numbers those with this text.
        self._numbers: Any = defaultdict(itertools.count)

    # Notifications

    def progress(
        self, done: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Report progress, if the client asked for it: basic/patterns/progress.md.

        done: the progress so far. It "MUST increase with each notification", so a value
            that does not increase is not sent
        total: the final value of `done`, if known
        message: a description of the progress; clients before 2025-03-26 ignore it
        """
        request = self._request
        if self._on_progress is not None:
            self._on_progress(done, total, message)
        if request.progress_token is None:
            return
        params = {"progressToken": request.progress_token, "progress": done}
        add_given(params, total=total, message=message)
        self._notify("notifications/progress", params, done)

    def log(self, level: str, data: object, logger: str | None = None) -> None:
        """Send a log message, if the client wants this level:
        server/utilities/logging.md. Deprecated since 2026-07-28, and still served; new
        programs log to stderr, by `logging`.

        level: "debug", "info", "notice", "warning", "error", "critical", "alert" or
            "emergency"; else ValueError
        data: any value that JSON can express; else TypeError
        logger: the name of the logger
        """
        if level not in LOG_LEVELS:
            raise ValueError(f"level: {LEVELS_TEXT}, got {show(level)}")
        wanted: Any = self._connection.protocol.log_level
        if self._request.modern:
            wanted = self._request.log_level
        # "MUST NOT emit `notifications/message` for a request that does not include
        # this field": the log_level of such a request is "".
        if not wanted or LOG_LEVELS.index(level) < LOG_LEVELS.index(wanted):
            return
        params = add_given({"level": level, "data": to_plain(data)}, logger=logger)
        self._notify("notifications/message", params)

    def _notify(self, method: str, params: Json, progress: float | None = None) -> None:
        """Send a notification. A handler waits here for a slow client."""
        outbox = self._connection.send(
            call_message(method, params), self._request, progress
        )
        may_wait = outbox.may_wait()
        with self._endpoint.lent_slot(self._connection, self._request, may_wait):
            outbox.flush()

    def debug(self, data: object, logger: str | None = None) -> None:
        """Log at the level "debug": log("debug", data, logger)."""
        self.log("debug", data, logger)

    def info(self, data: object, logger: str | None = None) -> None:
        """Log at the level "info": log("info", data, logger)."""
        self.log("info", data, logger)

    def warning(self, data: object, logger: str | None = None) -> None:
        """Log at the level "warning": log("warning", data, logger)."""
        self.log("warning", data, logger)

    def error(self, data: object, logger: str | None = None) -> None:
        """Log at the level "error": log("error", data, logger)."""
        self.log("error", data, logger)

    # Cancellation: basic/patterns/cancellation.md

    @property
    def cancelled(self) -> bool:
        """Return whether the request was cancelled, or its client has disconnected. No
        answer is sent then."""
        return self._request.cancelled

    def check_cancelled(self) -> None:
        """Raise Cancelled if the request was cancelled."""
        if self.cancelled:
            raise Cancelled("the request was cancelled")

    def sleep(self, seconds: float) -> None:
        """Block for `seconds`. Raise Cancelled as soon as the request is cancelled."""
        done = threading.Event()
        with self.when_cancelled(done.set):
            # Waiting functions reject infinity.
            done.wait(min(max(0.0, seconds), LONGEST_WAIT))
        self.check_cancelled()

    def on_cancel(self, fn: Job) -> None:
        """Register fn(), to be called on another thread when the request is cancelled.

        If the request is cancelled already, another thread calls fn() at once.
        """

        def tidy() -> None:
            # The pool is closed when the conversation has ended.
            if not self._connection.tidiers.submit(fn):
                start_thread("mcp-on-cancel", fn)

        self._add_callback(tidy)

    def _add_callback(self, job: Job) -> None:
        self._request.callbacks.append(job)
        # The request may just have been cancelled. The thread that pops a callback
        # calls it, so it runs once.
        if self.cancelled:
            self._request.cancel()

    def when_cancelled(self, job: Job) -> ExitStack:
        """Return a context manager. Within its block, a cancellation calls job() at
        once, on any thread. job() must not block; its RuntimeError is ignored."""

        def drop() -> None:
            # ValueError: cancel() has removed the job, and called it.
            with suppress(ValueError):
                self._request.callbacks.remove(job)

        self._add_callback(job)
        return at_exit(drop)

    def close_stream(self, retry_ms: int | None = None) -> None:
        """Close the stream of the answer, in a legacy HTTP session. The client
        reconnects to receive the answer.

        retry_ms: the delay before the client reconnects; one second by default

        Elsewhere, and before 2025-11-25, this is a no-op.
        """
        self._request.outbox.leave(RETRY_MS if retry_ms is None else retry_ms)

    def detach(self, on_progress: Callback, on_ask: Callback) -> Job:
        """Let the work go on after its request has been answered. This serves
        extensions such as tasks, in the modern era only.

        Middleware calls this method, runs call_next() on a thread of its own, and
        returns a result that says how to ask for the outcome. See examples/tasks.py.

        on_progress: on_progress(done, total, message) is called with progress
        on_ask: on_ask({key: {"method", "params"}}) is called with the questions, in
            place of the client. It blocks for the answers, and returns {key: result},
            as on the wire

        Returns a function cancel(), which cancels the work. Any thread may call it.
        """
        self._on_progress = on_progress
        self._on_ask = on_ask
        return self._request.cancel

    # Asking

    def elicit(self, message: str, schema: Any, key: str | None = None) -> Json:
        """Ask the user to fill in a form: client/elicitation.md.

        message: the text that the user sees
        schema: the form: a flat JSON Schema, a dataclass or a TypedDict; ValueError for
            a schema that elicitation does not allow
        key: identifies the answer when the handler runs again. Each question needs its
            own; ValueError for one that was used

        Returns {"action": "accept", "decline" or "cancel", "content"}. The content is
        None unless the user accepted. If the schema was a dataclass or a TypedDict, the
        content is an instance of it.
        """
        form, convert = elicitation_schema(schema)
        params = {"message": message, "requestedSchema": form}
        answer = self._ask_one(key, "elicit", "elicitation/create", params)
        content = None
        if answer["action"] == "accept":
            try:
                content = convert(answer["content"])
            except InvalidParams as error:
                # The content may fit the form, but not the class: February 30, say.
                raise InvalidParams(f"the client's answer: content: {error}") from None
        return {**answer, "content": content}

    def elicit_url(self, message: str, url: str, key: str | None = None) -> Json:
        """Ask the user to visit a URL: for keys, payments and logins, which must not
        pass through the client. See client/elicitation.md.

        message: the text that the user sees
        url: the address, https or http; ValueError for another scheme
        key: identifies the answer when the handler runs again. Each question needs its
            own; ValueError for one that was used

        Returns {"action", "content": None}. "accept" means that the user agreed to
        visit the URL, not that they have visited it.
        """
        params = {"mode": "url", "message": message, "url": url}
        answer = self._ask_one(key, "elicit_url", "elicitation/create", params)
        return {"action": answer["action"], "content": None}

    def sample(
        self,
        messages: object,
        max_tokens: int = 1000,
        key: str | None = None,
        **params: object,
    ) -> Json:
        """Ask the client's model for a message: client/sampling.md. Deprecated since
        2026-07-28, and still served; new programs call a model's own API.

        messages: text, a Message, or a list of those; audio exists since 2025-03-26,
            tools and lists of content since 2025-11-25
        max_tokens: the maximum length of the answer
        key: identifies the answer when the handler runs again. Each question needs its
            own; ValueError for one that was used
        params: further parameters of the wire: system_prompt= becomes systemPrompt, and
            so on. From 2025-11-25 on, include_context= is sent only to a client that
            declared sampling.context

        Returns {"role", "content", "model", "stopReason"}.
        """
        question = {"messages": to_messages(messages), "maxTokens": max_tokens}
        for name, value in params.items():
            # `_meta` keeps its underscore.
            camel_case = re.sub("(?!^)_(.)", lambda match: match[1].upper(), name)
            question[camel_case] = value
        return self._ask_one(key, "sample", "sampling/createMessage", question)

    def roots(self, key: str | None = None) -> list[Json]:
        """Ask which directories the client works in: client/roots.md. Deprecated since
        2026-07-28, and still served; new programs take directories as arguments.

        key: identifies the answer when the handler runs again. Each question needs its
            own; ValueError for one that was used

        Returns [{"uri", "name"}, ...]; a root may have no name. Each URI begins with
        file://; whether the directory exists is not checked.
        """
        return list(self._ask_one(key, "roots", "roots/list", {})["roots"])

    def ask(self, questions: dict[str, tuple[str, Json]]) -> dict[str, Json]:
        """Ask several questions at once.

        questions: {key: (method, params)}, as on the wire, of the methods
            "elicitation/create", "sampling/createMessage" and "roots/list"; ValueError
            for another method, for a key that was used, and for a form, URL or message
            that elicit(), elicit_url() or sample() refuses

        Returns {key: result}, each checked. In a legacy session, all answers must
        arrive within ten minutes.
        """
        if self._on_ask is None and not self._connection.is_in_flight(self._request):
            raise Cancelled("the request is over: its client cannot be asked any more")
        if self._request.modern and not self._request.row.asks:
            # basic/patterns/mrtr.md: "Servers MUST NOT send `InputRequiredResult`
            # responses on any other client requests" than the three with `asks`.
            raise InvalidRequest(
                f"{self._request.method}: its handler cannot ask the client"
            )
        fitted = {}
        for key, (method, params) in questions.items():
            check_question(method, params)
            self._require_capability(method, params)
            if key in self._keys:
                # Both questions would get the same recorded answer.
                raise ValueError(f"key used twice: {show(key)}; give another one")
            params = fit_question(
                params, self.protocol_version, self.client_capabilities
            )
            fitted[key] = {"method": method, "params": params}
        self._keys.update(fitted)
        ask = self._ask_modern if self._request.modern else self._ask_legacy
        answers = ask(fitted)
        return {
            key: check_answer(key, method, params, answers[key])
            for key, (method, params) in questions.items()
        }

    def once(self, key: str, fn: Job) -> Any:
        """Return the value of fn(), which is called only once even if the handler runs
        again.

        key: identifies the value; each value needs its own, as a second use of a key
            returns the value of the first
        fn: returns a value that JSON can express; once() returns it as JSON decodes it

        In the modern era the value travels through the client, signed but readable, so
        it must not be a secret.
        """
        values = self._record["once"]
        if key not in values:
            values[key] = json.loads(encode_json(to_plain(fn())))
        return values[key]

    # How questions are asked

    def _ask_one(self, key: str | None, kind: str, method: str, params: Json) -> Json:
        if key is None:
            # The same in each run, in whatever order threads ask.
            digest = fingerprint([method, params])[:8]
            key = f"{kind}-{digest}-{next(self._numbers[digest])}"
        return self.ask({key: (method, params)})[key]

    def _require_capability(self, method: str, params: Json) -> None:
        """Raise MissingCapability unless the client declared the capability that a
        question needs.

        "If processing a request requires a capability the client did not include [...],
        the server MUST return" -32021, in the modern era; a session gets the same
        error.
        """
        declared = self.client_capabilities
        needed, since = needed_capability(method, params, declared)
        if self.protocol_version >= since and has_capability(declared, needed):
            return
        kind, *features = needed
        raise MissingCapability(
            f"{method} needs the client capability {'.'.join(needed)}, "
            f"which was not declared, or is not in {self.protocol_version}",
            {"requiredCapabilities": {kind: {name: {} for name in features}}},
        )

    def _ask_legacy(self, questions: Json) -> Json:
        """Send the questions, and block until all are answered, or one fails."""
        connection = self._connection
        if not connection.protocol.initialized:
            # lifecycle: "The server SHOULD NOT send requests other than pings and
            # logging before receiving the `initialized` notification".
            raise InvalidRequest(
                "cannot ask before notifications/initialized; several processes need "
                "stateless=True, or a proxy that keeps a client at one of them"
            )
        until = time.monotonic() + STATE_SECONDS
        asked: dict[str, PendingRequest] = {}

        def give_up() -> None:
            # For a question that was answered, this is a no-op.
            for pending in list(asked.values()):
                pending.cancel("no longer needed")

        lent = self._endpoint.lent_slot(connection, self._request)
        with lent, self.when_cancelled(give_up):
            try:
                for key, question in questions.items():
                    pending = PendingRequest(connection, question["method"])
                    pending.limit = STATE_SECONDS
                    asked[key] = pending
                    connection.request(pending, question["params"], self._request)
                # If a helper thread of the handler asks, over HTTP, flush_soon() has
                # left the questions in the queue. On stdio, a write to a client that
                # reads nothing could not be cancelled.
                if connection.is_remote:
                    self._request.outbox.flush()
                return {
                    key: pending.result(until - time.monotonic())
                    for key, pending in asked.items()
                }
            except McpError as error:
                # It came from the client that is being served, not from another
                # server, so it may be the error of this request as well.
                error.is_received = False
                raise
            except ConnectionClosed as error:
                raise _Unanswered(f"a question got no answer: {error}") from None
            finally:
                # If one question fails, cancel the others.
                give_up()

    def _ask_modern(self, questions: Json) -> Json:
        """Return the recorded answers. Raises _InputRequired if one is missing."""
        answers = self._record["answers"]
        known = {}
        missing = {}
        # The fingerprints of the missing questions.
        fingerprints = {}
        for key, question in questions.items():
            digest = fingerprint(question)
            asked, answer = answers.get(key, ("", None))
            # An answer that came before its question has the fingerprint None, and fits
            # any question.
            if asked in (None, digest):
                known[key] = answer
            else:
                missing[key] = question
                fingerprints[key] = digest
        self._answered.update(known)
        if not missing:
            return known
        if answers.keys() - self._answered:
            log_line(
                WARNING,
                f"{self._request.about}: a question of the last run was not asked again; "
                "keep its text, or give it a key",
            )
        if self._on_ask is not None:
            return {**known, **self._on_ask(missing)}
        state = self._endpoint.signer.seal(
            {**self._record, "asked": fingerprints}, self._binding()
        )
        self._pause = _InputRequired({"inputRequests": missing, "requestState": state})
        raise self._pause

    @cached_property
    def _record(self) -> Json:
        """Read the state that the client has sent back with this request:

            answers: key -> [fingerprint of the question, its answer]
            once: key -> value of once()
            asked: key -> fingerprint of one of the last questions

        If the request has a state, ServerEndpoint reads this before the handler runs.
        Raises InvalidParams for a state that this server did not make, that belongs to
        another request, or that has expired. An answer that comes with a state, but
        answers none of its questions, is ignored.
        """
        params = self._request.params if self._request.row.asks else {}
        fresh = object_or_empty(params.get("inputResponses"))
        # A client that knows this tool may send answers in its first request, before
        # any question. Such an answer fits any question with its key.
        record = {"answers": {}, "once": {}, "asked": dict.fromkeys(fresh)}
        sealed = params.get("requestState")
        if sealed is not None:
            record = self._endpoint.signer.open(sealed, self._binding())
        for key, asked in record["asked"].items():
            if key in fresh:
                record["answers"][key] = [asked, fresh[key]]
        return record

    def _binding(self) -> str:
        """Return what a requestState is bound to: the server's name, this method, its
        arguments and the caller."""
        request = self._request
        salient = [request.params.get(name) for name in ("name", "uri", "arguments")]
        name = self._endpoint.info["name"]
        return fingerprint([name, request.method, salient, principal(self.auth)])


# The main thread of a host program
#
# Some hosts may be called on one thread only. run_there() has run_on() run a job on that
# thread, and waits for its end. A MainThread is a run_on for a host that can call
# run_pending() from its timer or loop.


def run_there(
    run_on: AnyFunction, call: Job, outcome: SimpleQueue[Any], name: str
) -> Any:
    """Have run_on() run call() on another thread. Block until it ends, and return its
    value or raise its exception.

    outcome: a queue for the outcome of the job, (value, None) or (None, exception): a
        host's loop may drop what a job returns or raises. Another thread may put an
        item of its own, to end the wait
    name: the name of the function, for the log
    """
    is_begun = False

    def job(refused: BaseException | None = None) -> None:
        nonlocal is_begun
        is_begun = True
        try:
            if refused is not None:
                raise refused
            outcome.put((call(), None))
        except BaseException as error:
            outcome.put((None, error))
            # The host's loop, which has called this job, must see Ctrl-C, too.
            if isinstance(error, KeyboardInterrupt):
                raise

    run_on(job)
    try:
        value, error = get_within(outcome, HOST_SECONDS)
    except Empty:
        if not is_begun:
            log_line(WARNING, f"{name}: waits for run_pending(), or the host's loop")
        value, error = get_within(outcome)
    if error is not None:
        raise error
    return value


class MainThread:
    """The main thread of a host program, for functions that must run there.

        main = MainThread()
        server = Server("host", run_on=main)

    The host's timer or loop calls main.run_pending(), which runs the waiting jobs. If
    server.run() is called on the thread that created this object, run() runs them.

    An `async def` function holds that thread until it ends, whatever it awaits, unless
    an asyncio loop of that thread runs the jobs. Register it with run_on=None, and have
    the main thread do steps of it by call().
    """

    def __init__(self, post: Callback = None):
        """Make the calling thread the main thread.

        post: replaces the timer. post(fn), called on any thread, has the host's loop
            call fn() soon: gdb.post_event, GLib.idle_add or loop.call_soon_threadsafe
        """
        self._post = post or do_nothing
        self._jobs: SimpleQueue[Any] = SimpleQueue()
        # run_pending() holds this lock, so that it cannot be entered twice. No thread
        # waits for the lock.
        self._running = threading.Lock()
        self._closed = False
        # The thread that created this object, or the one that ran jobs last.
        self._thread = threading.current_thread()

    def __call__(self, job: AnyFunction) -> None:
        """Have the main thread call job(). On the main thread, call it at once.

        job: called once, without arguments; after close(), as job(error)
        """
        if self.is_current() and not self._closed:
            job()
        else:
            self._jobs.put(job)
            self._post(self._run_posted)
        # close() may have come in between.
        if self._closed:
            self.close()

    def call(self, fn: Job) -> Any:
        """Have the main thread call fn(), and block for its value.

        fn: one step of a longer function. The longer function runs without run_on, so
            it does not hold up the main thread

        Raises the exception of fn(), and ConnectionClosed after close().
        """
        return run_there(self, fn, SimpleQueue(), getattr(fn, "__name__", "a job"))

    def is_current(self) -> bool:
        """Return whether the calling thread is the main thread."""
        return self._thread is threading.current_thread()

    def post_by(self, post: AnyFunction) -> None:
        """Use `post` to wake the main thread from now on, unless this object was made
        with a `post` of its own."""
        if self._post is do_nothing:
            self._post = post
            # Jobs may be waiting already.
            post(self._run_posted)

    def _run_posted(self) -> None:
        # Return None: GLib repeats a function that returns a true value.
        self.run_pending()

    def run_pending(self, max_seconds: float = 0.01, wait: float = 0.0) -> int:
        """Run the waiting jobs on this thread, and return their number. The thread that
        calls this becomes the main thread: call it from the host's own one alone.

        max_seconds: the time after which no further job is started
        wait: seconds to block for the first job

        Called by a job, this method runs nothing and returns 0.
        """
        if self._closed:
            return 0
        is_entered = self._running.acquire(blocking=False)
        if not is_entered:
            return 0
        if not self.is_current():
            log_line(WARNING, "run_pending() was called on another thread than before")
            self._thread = threading.current_thread()
        count = 0
        try:
            job = get_within(self._jobs, wait)
            # max_seconds begin with the first job, not with the wait for it.
            until = time.monotonic() + max_seconds
            while True:
                count += 1
                job()
                if time.monotonic() >= until:
                    return count
                job = self._jobs.get_nowait()
        except Empty:
            return count
        finally:
            self._running.release()
            # If a job ran the host's loop, the jobs posted to that loop found the lock
            # taken, so post again.
            if not self._jobs.empty():
                self._post(self._run_posted)

    def close(self) -> None:
        """Fail the waiting jobs, and all later ones. Idempotent."""
        self._closed = True
        with suppress(Empty):
            while True:
                job = self._jobs.get_nowait()
                job(ConnectionClosed("the host program's main loop is closed"))


# The event loop of `async def` functions
#
# Each conversation has an EventLoop; those of an HTTP server share one. It runs the
# functions without run_on. With run_on, a function runs on the loop of the thread that
# run_on leads to, or, if that thread has none, on a loop that ends with the function.


def await_value(ctx: Context, awaitable: Any, run: Callable[[Any], Any]) -> Any:
    """Await the result of a handler by run(coroutine), and return its value; return any
    other result unchanged. When the request is cancelled, so is the task: it sees
    CancelledError, and may clean up."""
    if not hasattr(type(awaitable), "__await__"):
        return awaitable
    import asyncio

    async def settle() -> tuple[Any, BaseException | None]:
        loop = asyncio.get_running_loop()
        task: Any = asyncio.current_task()
        with ctx.when_cancelled(partial(loop.call_soon_threadsafe, task.cancel)):
            try:
                return await awaitable, None
            except BaseException as error:
                # A SystemExit would end the loop, and a cancelled task has no result.
                return None, error

    value, raised = run(settle())
    if isinstance(raised, asyncio.CancelledError):
        ctx.check_cancelled()
    if raised is not None:
        raise raised
    return value


class EventLoop:
    """The event loop of `async def` functions. It runs on a thread of its own from the
    first function until close(), so that later functions can use what earlier ones have
    opened, such as a pool of connections."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # The loop, the event that ends it, and the futures of its coroutines; None
        # while there is no loop.
        self._running: Any = None

    def run(self, coroutine: Any) -> Any:
        """Block until a coroutine has ended, and return its value."""
        import asyncio

        with self._lock:
            # A task that raises SystemExit ends the loop.
            if self._running is None or self._running[0].is_closed():
                started: SimpleQueue[Any] = SimpleQueue()
                start_thread("mcp-loop", self._run_loop, started)
                running = get_within(started, DRAIN_SECONDS)
                if isinstance(running, Exception):
                    raise running
                self._running = running
            # The coroutine runs with the context variables of this thread, which
            # middleware may have set.
            loop, _, futures = self._running
            future = asyncio.run_coroutine_threadsafe(coroutine, loop)
            futures.add(future)
        try:
            return future.result()
        finally:
            futures.discard(future)

    def _run_loop(self, started: SimpleQueue[Any]) -> None:
        import asyncio

        futures: set[Any] = set()

        async def main() -> None:
            over = asyncio.Event()
            started.put((asyncio.get_running_loop(), over, futures))
            await over.wait()

        try:
            asyncio.run(main())
        except Exception as error:
            # The system may have no descriptor for a loop.
            started.put(error)
        finally:
            # The loop is closed. A coroutine that it has not begun would never end.
            with self._lock:
                for future in futures.copy():
                    future.cancel()

    def close(self) -> None:
        """End the loop. Running tasks are cancelled, and may clean up."""
        with self._lock:
            if self._running is not None:
                loop, over, _ = self._running
                # A task may have ended it by SystemExit.
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(over.set)
                self._running = None


# Calling a function
#
# run_job() calls each function of the user's: on this thread, or where run_on says, and
# within its time limit. It blocks until the result is there.


def at_exit(fn: Job) -> ExitStack:
    """Make a context manager that calls fn() at the end of its block.

    A function with @contextmanager would set the traceback of an exception that passes
    through, and the exceptions of some host programs refuse that.
    """
    stack = ExitStack()
    stack.callback(fn)
    return stack


def time_limit(seconds: float, job: AnyFunction, *arguments: Any) -> ExitStack:
    """Limit the time of a `with` block: after `seconds`, another thread calls
    job(*arguments). Raises RuntimeError if the system cannot start a thread."""
    timer = threading.Timer(seconds, job, arguments)
    timer.name = "mcp-timer"
    timer.daemon = True
    timer.start()
    return at_exit(timer.cancel)


def start_function(job: Job) -> Any:
    """Call a user's function, and return its value, or the coroutine of an `async def`.

    If the value is an iterator, return a list of its items: the body of a generator
    function runs only while they are taken. If it is an asynchronous iterator, return a
    coroutine that makes such a list.
    """
    value = job()
    kind = type(value)
    if hasattr(kind, "__anext__"):

        async def collect() -> list[Any]:
            return [item async for item in value]

        return collect()
    # A file is an iterator, too, but its contents are not read here.
    if hasattr(kind, "__next__") and not hasattr(value, "read"):
        return list(value)
    return value


def run_job(ctx: Context, job: Job, run_on: Callback, limit: Job = nullcontext) -> Any:
    """Call a user's function where `run_on` says, else on this thread. Block until it
    ends, and return its result. An `async def` function is awaited:

        without run_on    on the EventLoop of the connection
        with run_on       on the event loop that runs on the thread that run_on chose;
                          if none runs there, on a loop that ends with the function

    limit: returns the context manager in which the function runs, so that a time limit
        starts with the function, not with the wait for run_on

    A cancellation ends the wait for run_on.
    """
    if run_on is None:
        with limit():
            return await_value(ctx, start_function(job), ctx._connection.loop.run)
    outcome: SimpleQueue[Any] = SimpleQueue()

    def call() -> tuple[Any, Any]:
        """Return the value and None; or an awaitable, and the event loop for it."""
        ctx.check_cancelled()
        with limit():
            value = start_function(job)
            if not hasattr(type(value), "__await__"):
                return value, None
            import asyncio

            loop = asyncio._get_running_loop()
            if loop is None:
                value = await_value(ctx, value, asyncio.run)
            return value, loop

    cancelled = Cancelled("the request was cancelled")
    with ctx.when_cancelled(partial(outcome.put, (None, cancelled))):
        value, loop = run_there(run_on, call, outcome, ctx._request.about)
    if loop is None:
        return value
    import asyncio

    def run_in_loop(coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result()

    # This thread waits, as a loop must not block on its own task.
    with limit():
        return await_value(ctx, value, run_in_loop)


###############################################################################
# 13. stdio ###################################################################
###############################################################################

# This section carries messages over byte streams, one message per line: over any pair
# of streams, the standard streams of this process, or those of a child process
# (basic/transports/stdio.md). It owns the bytes on their way, the signals that end
# run(), the thread that reads, the standard streams, and the child. It does not look
# into a message: the Connection does.

MAX_LINES = 100  # queued for the writing thread; beyond that, a handler waits
WRITE_SECONDS = 60.0  # for one write; then a client that reads nothing is cut off
STDERR_LINES = 20  # of a child, kept for the text of an error
MAX_STDERR_LINE = 2_000  # characters shown of one line
STDERR_SECONDS = 1.0  # for a child's last lines, after its end
CREATE_NO_WINDOW = 0x08000000  # on Windows, a console program opens no window
STARTING_SECONDS = 0.2  # replaces EXIT_SECONDS for a child that has written nothing


def shut(sock: Socket, how: int = 2) -> None:
    """Shut the reading side of a socket (0), its writing side (1), or both (2), without
    a TLS goodbye. This wakes a thread that is blocked on the socket."""
    import socket

    with suppress(OSError):
        socket.socket.shutdown(sock, how)


class StreamTransport(Transport):
    """Carries messages over a pair of binary streams, such as standard streams or the
    files of a socket."""

    def __init__(self, reader: Any, writer: Any):
        for stream in (reader, writer):
            if isinstance(stream, io.TextIOBase):
                raise TypeError("expected binary streams, such as sys.stdin.buffer")
        self._reader = reader
        self._writer = writer
        # A buffered stream's read() would block until the whole chunk has arrived.
        self._read = getattr(reader, "read1", reader.read)

    # Another process may have made a descriptor non-blocking: a raw stream then returns
    # None instead of blocking. From any other stream, None is the end of the input, or
    # reports a complete write.
    def read(self) -> bytes:
        data = self._read(CHUNK)
        while data is None and isinstance(self._reader, io.RawIOBase):
            is_ready(self._reader, seconds=WAIT_SLICE)
            data = self._read(CHUNK)
        return data or b""

    def write(self, data: bytes) -> None:
        self._write_until = time.monotonic() + WRITE_SECONDS
        left: Any = data
        try:
            while left:
                count = self._writer.write(left)
                if count is not None:
                    left = memoryview(left)[count:]
                elif isinstance(self._writer, io.RawIOBase):
                    is_ready(self._writer, writing=True, seconds=WAIT_SLICE)
                else:
                    break
            self._writer.flush()
        finally:
            self._write_until = INFINITY

    def close(self) -> None:
        # Closing the files of a socket neither closes the socket nor wakes a thread
        # that reads from it. Shut the socket itself first.
        for stream in (self._writer, self._reader):
            with suppress(AttributeError):
                shut(getattr(stream, "raw", stream)._sock)
        # The reader stays open: its close() would wait for a thread that reads.
        with suppress(OSError, ValueError):
            self._writer.close()


class LineOutbox(Outbox):
    """Queues lines for a Transport. One thread at a time writes all waiting lines.

    While it writes, the other threads leave their lines to it, so that many answers
    share a write. Beyond MAX_LINES, a thread that flushes waits for its turn, so that a
    handler cannot outrun its peer. Threads that must not block leave the write to a
    writing thread, which is started when it is first needed.
    """

    def __init__(self, transport: Transport):
        self._transport = transport
        # Guards the lines that wait, and whether a thread writes.
        self._lock = threading.Lock()
        self._written = threading.Condition(self._lock)
        self._lines: list[bytes] = []
        self._is_writing = False
        self._writer = Workers("mcp-writer", 1)

    def send(self, message: Json) -> None:
        line = encode_message(message)
        # Beyond MAX_QUEUED, notifications to a peer that reads nothing are dropped.
        if len(self._lines) < MAX_QUEUED or "id" in message:
            self._queue(line)

    def finish(self, request: Request | None, answer: Any) -> None:
        if answer:
            self._queue(encode_answer(answer, request)[1])

    def _queue(self, line: bytes) -> None:
        with self._lock:
            self._lines.append(line)

    def may_wait(self) -> bool:
        return len(self._lines) > MAX_LINES

    def flush(self) -> None:
        self._flush(MAX_LINES)

    def _flush(self, patience: float = INFINITY) -> None:
        while self._lines:
            lines = self._take(patience)
            if not lines:
                return
            try:
                self._write(lines)
            finally:
                with self._lock:
                    self._is_writing = False
                    # Wake the threads that wait for their turn, or in drain().
                    if self._lines or self._writer.is_closed:
                        self._written.notify_all()

    def _take(self, patience: float) -> list[bytes]:
        """Take the waiting lines, and the turn to write them. Returns [] if no line
        waits, or if another thread has the turn: it takes the lines when it has
        written. While more than `patience` lines wait, block for that turn instead."""
        with self._lock:
            while self._is_writing and len(self._lines) > patience:
                self._written.wait()
            if self._is_writing:
                return []
            lines = self._lines
            self._lines = []
            self._is_writing = bool(lines)
            return lines

    def flush_soon(self) -> None:
        if not self._writer.submit(self._flush):
            self._flush()

    def drain(self, seconds: float) -> None:
        self._writer.submit(self._flush)
        self._writer.close(seconds)
        with self._lock:
            # Another thread may have the turn.
            self._written.wait_for(
                lambda: not (self._is_writing or self._lines), seconds
            )

    def _write(self, lines: list[bytes]) -> None:
        if self.connection.reason is not None:
            return
        try:
            for line in lines:
                self.connection.trace(self.connection.sends, line)
            self._transport.write(b"\n".join([*lines, b""]))
        except Exception as error:
            why = f"cannot write: {error}"
            end = ConnectionClosed(why)
            try:
                end = self._transport.describe_end(why)
            finally:
                self.connection.lose(end)


# Signals
#
# The thread in run() waits for one of these texts: the name of a signal of the system
# that ends run(), or one of our own.
STOPS = ("SIGINT", "SIGTERM")
INPUT_ENDED = "the input has ended"
PEER_STUCK = "the client reads nothing"
BURST = "the reading thread serves"


class Signals:
    """A queue for the thread in run(): texts, such as "SIGINT", "SIGTERM" or
    INPUT_ENDED, which we call signals, and jobs that must run on that thread."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Any] = SimpleQueue()
        # A signal handler may call this, as it takes no lock of ours.
        self.put = self._queue.put
        self.is_at_work = False

    def wait(self, seconds: float = INFINITY) -> str:
        """Block for the next signal, and return it; run jobs meanwhile. Raises Empty
        after `seconds`."""
        until = time.monotonic() + seconds
        while True:
            signal = get_within(self._queue, until - time.monotonic())
            if not callable(signal):
                return str(signal)
            # A signal may interrupt the job; its handler has queued the signal's name.
            with suppress(KeyboardInterrupt):
                self.is_at_work = True
                signal()
            self.is_at_work = False

    def poll(self) -> bool:
        """Run the waiting jobs. Returns whether a signal is there for wait()."""
        try:
            self.put(self.wait(0.0))
            return True
        except Empty:
            return False


@contextmanager
def stop_signals(signals: Signals) -> Iterator[None]:
    """Within the block, Ctrl-C and SIGTERM put their names into `signals`, and
    interrupt a job that this thread runs.

    On any thread but the main one, and for a signal that the program handles itself,
    this is a no-op.
    """
    before = {}
    if on_main_thread():
        import signal

        def handle(number: int, frame: object) -> None:
            signals.put(signal.Signals(number).name)
            if signals.is_at_work:
                raise KeyboardInterrupt

        usual = (signal.SIG_DFL, signal.default_int_handler)
        for name in STOPS:
            number = signal.Signals[name]
            if signal.getsignal(number) in usual:
                before[number] = signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def next_signal(connection: Connection, signals: Signals) -> str:
    """Block for the next signal, and return it. Returns PEER_STUCK when a write has
    passed its deadline."""
    while True:
        seconds = connection.transport._write_until - time.monotonic()
        if seconds <= 0.0:
            return PEER_STUCK
        with suppress(Empty):
            # A write may begin during this wait.
            return signals.wait(min(seconds, WRITE_SECONDS))


class Deputy:
    """Lets the reading thread serve requests, and ensures that the input is read.

        reading --requests, while no other is served--> serving --all done--> reading
                                                          |
                                    it takes longer than TICK: another thread reads,
                                    workers take what waits, and this one ends with
                                    the request that it is serving

    Handing a request to a worker costs more than most handlers do, and so does a write
    for each answer of a burst. The thread in run(), which otherwise only waits, is the
    deputy: while requests keep coming, it checks every TICK whether the reading thread
    is stuck in a burst.

    serves: whether the reading thread serves requests at all. Else it only reads, and
        workers serve them, which is slower
    """

    TICK = 0.005

    def __init__(self, connection: Connection, signals: Signals, serves: bool):
        self._connection = connection
        self._signals = signals
        self._pool: Workers = connection.begin
        # The jobs that the connection has submitted. Only the reading thread uses this.
        self._jobs: deque[Job] = deque()
        # The burst: the jobs that the reading thread serves itself. The deputy may take
        # jobs out at the same time.
        self._burst: deque[Job] = deque()
        # Guards all that follows.
        self._lock = threading.Lock()
        # How many threads have begun to read; the latest one is the reader.
        self._readers = 0
        self._is_serving = False
        # Whether the deputy checks every TICK.
        self._is_watched = False
        if serves:
            connection.begin = self

    def __len__(self) -> int:
        """See Workers.__len__()."""
        return len(self._pool) + len(self._burst) + len(self._jobs)

    @property
    def has_more(self) -> bool:
        """See Workers.has_more."""
        return bool(self._burst)

    def submit(self, job: Job) -> bool:
        """Take a job. The reading thread calls this."""
        self._jobs.append(job)
        return True

    def wait(self) -> str:
        """Start the reading thread. Block for the next signal, such as INPUT_ENDED, and
        return it."""
        with self._lock:
            self._start_reader()
        signal = next_signal(self._connection, self._signals)
        while signal == BURST:
            burst = self._burst
            try:
                signal = self._signals.wait(self.TICK)
            except Empty:
                if self._burst is burst:
                    self._end_watch()
                if not self._is_watched:
                    signal = next_signal(self._connection, self._signals)
        return signal

    def _start_reader(self) -> None:
        """Start the next reader. The caller holds the lock."""
        start_thread("mcp-reader", self._read, self._readers + 1)
        self._readers += 1
        self._is_serving = False

    def _end_watch(self) -> None:
        """Stop checking, as no burst has begun for a TICK; the next burst wakes the
        deputy again. If the reader still serves a burst, a handler takes long: start
        another reader, and have workers do the rest of the burst."""
        with self._lock:
            if self._is_serving:
                try:
                    self._start_reader()
                except RuntimeError:
                    # The system has no thread to give: try again after the next TICK.
                    return
            self._is_watched = False
        self._hand_over(self._burst)
        # Answers may wait for the end of the burst.
        self._connection.outbox.flush_soon()

    def _read(self, number: int) -> None:
        """Read and serve until the input ends, or another thread has taken over."""
        reads_on = True
        try:
            while reads_on:
                reads_on = self._connection.read()
                is_burst = False
                if self._jobs and reads_on:
                    is_burst = self._pool.join_if_idle()
                if is_burst:
                    reads_on = self._serve_burst(number)
                else:
                    self._hand_over(self._jobs)
        finally:
            with self._lock:
                if self._readers == number:
                    self._signals.put(INPUT_ENDED)

    def _serve_burst(self, number: int) -> bool:
        """Serve the jobs of this read. This thread counts as one of the pool's, so that
        another reader finds the pool busy. Returns whether this thread reads on."""
        self._burst = self._jobs
        self._jobs = deque()
        with self._lock:
            self._is_serving = True
            if not self._is_watched:
                self._is_watched = True
                self._signals.put(BURST)
        try:
            while not self._pool.is_closed:
                self._pool.do(self._burst.popleft())
        except IndexError:
            # No job is left; the deputy may have taken the last one.
            pass
        self._pool.leave()
        with self._lock:
            if self._readers != number:
                return False
            self._is_serving = False
        return not self._pool.is_closed

    def _hand_over(self, jobs: deque[Job]) -> None:
        """Have workers do the waiting jobs."""
        # IndexError: no job is left; another thread may have taken the last one.
        with suppress(IndexError):
            while True:
                job = jobs.popleft()
                is_taken = self._pool.submit(job)
                if not is_taken and not self._pool.is_closed:
                    # The system cannot start a thread.
                    job()


def end_stream(connection: Connection, signals: Signals, signal: str) -> None:
    """End all requests in flight.

    signal: the reason, as Deputy.wait() returned it

    When the input has ended, handlers have DRAIN_SECONDS to finish; after Ctrl-C or
    SIGTERM, and when the client reads nothing, no time at all. Handlers that still run
    are then cancelled, and have TIDY_SECONDS to tidy up. Ctrl-C or SIGTERM cuts both
    waits short. A handler that ignores its cancellation cannot keep this function from
    returning.
    """
    connection.input_ended()
    if signal == INPUT_ENDED:
        wait_for(connection.workers.close, DRAIN_SECONDS, signals)
        # End subscriptions once more: a request to listen may have been waiting for a
        # worker.
        connection.endpoint.input_ended(connection)
    connection.cancel_requests()
    wait_for(connection.wind_down, TIDY_SECONDS, signals)


def wait_for(job: Callable[[float], object], seconds: float, signals: Signals) -> None:
    """Call job(seconds) on another thread. Block until it is done, for `seconds` at
    most, or until Ctrl-C or SIGTERM comes."""
    # A signal of its own: that of an earlier job may still be in the queue.
    done = f"a job of {time.monotonic()}"

    def run() -> None:
        try:
            job(seconds)
        finally:
            signals.put(done)

    try:
        start_thread("mcp-end", run)
    except RuntimeError:
        job(seconds)
        return
    until = time.monotonic() + seconds
    signal = ""
    with suppress(Empty):
        # Skip any other signal.
        while signal not in (done, *STOPS):
            signal = signals.wait(until - time.monotonic())


@contextmanager
def lenient_stdout() -> Iterator[None]:
    """Inside, print() writes each line at once, and replaces a character that the
    encoding of stdout does not have."""
    stdout: Any = sys.stdout
    errors = getattr(stdout, "errors", None)
    was_line_buffered = getattr(stdout, "line_buffering", False)
    # reconfigure() also flushes. A host's own stdout may have no such method.
    with suppress(AttributeError, OSError, ValueError):
        stdout.reconfigure(line_buffering=True, errors="backslashreplace")
    try:
        yield
    finally:
        with suppress(AttributeError, OSError, ValueError):
            stdout.reconfigure(line_buffering=was_line_buffered, errors=errors)


@contextmanager
def private_wire() -> Iterator[tuple[Any, Any]]:
    """Reserve stdin and stdout for the protocol, and yield two private files for them.

    Inside the `with` block, descriptor 0 is the null device, and 1 is stderr, for
    print(), C libraries and child processes alike. All are restored at the end.
    """
    if sys.__stdin__ is None or sys.__stdout__ is None:
        # Descriptor 0 or 1 may belong to another file by now.
        raise OSError("cannot serve on stdio: stdin or stdout is closed")
    # Child processes do not inherit descriptors that os.dup() returns.
    reader = io.FileIO(os.dup(0), "r")
    writer = io.FileIO(os.dup(1), "w")
    if hasattr(os, "register_at_fork"):
        # Otherwise a forked child that outlives this process would keep the wire open,
        # and the client would not see its end.
        os.register_at_fork(after_in_child=reader.close)
        os.register_at_fork(after_in_child=writer.close)
    # With 2>&1, and under inetd, stderr is the wire as well: then it is the null device
    # inside the block. A terminal may show both streams. On Windows, pipes have no
    # inode number.
    is_shared = (
        sys.__stderr__
        and not os.isatty(1)
        and os.fstat(1).st_ino != 0
        and os.path.sameopenfile(1, 2)
    )
    with open(os.devnull, "r+b", 0) as null:
        os.dup2(null.fileno(), 0)
        if is_shared:
            os.dup2(null.fileno(), 2)
        os.dup2(2 if sys.__stderr__ else null.fileno(), 1)
    try:
        # Buffered text must not reach the wire: it is flushed at both ends.
        with lenient_stdout():
            yield reader, writer
    finally:
        os.dup2(reader.fileno(), 0)
        os.dup2(writer.fileno(), 1)
        if is_shared:
            os.dup2(writer.fileno(), 2)
        if os.name != "nt":
            # Python 3.8 may crash at its exit if these are open. On Windows, close()
            # would wait for the thread that still reads.
            reader.close()
            writer.close()


# A child process
#
# A child inherits these environment variables. They say where programs, files, modules
# and certificates are, and which language the user speaks. The official SDKs pass those
# in the first three lines. Windows, locales, Python, Node and proxies need the others.
# None is meant for secrets, though a proxy's URL may contain a password. To give a
# server its keys, use env=.
_INHERITED_NAMES = """
    HOME LOGNAME PATH SHELL TERM USER
    APPDATA HOMEDRIVE HOMEPATH LOCALAPPDATA PATHEXT PROCESSOR_ARCHITECTURE SYSTEMDRIVE
    SYSTEMROOT TEMP USERNAME USERPROFILE
    ALLUSERSPROFILE COMSPEC PROGRAMDATA PROGRAMFILES PROGRAMFILES(X86) TMP WINDIR
    LANG LANGUAGE TMPDIR TZ
    CONDA_PREFIX LD_LIBRARY_PATH NODE_PATH NVM_DIR VIRTUAL_ENV
    CURL_CA_BUNDLE NODE_EXTRA_CA_CERTS REQUESTS_CA_BUNDLE SSL_CERT_DIR SSL_CERT_FILE
    ALL_PROXY HTTPS_PROXY HTTP_PROXY NO_PROXY
    """.split()
_INHERITED_PREFIXES = ("LC_", "PYTHON", "XDG_")


def inherited_environment() -> dict[str, str]:
    """Return the variables that a child inherits. Some shells export functions as
    variables; those are left out."""
    return {
        name: value
        for name, value in os.environ.items()
        if (name in _INHERITED_NAMES or name.startswith(_INHERITED_PREFIXES))
        and not value.startswith("()")
    }


# Matches the name of a script.
_SCRIPT = r"\.(py|pyz|js|cjs|mjs|ts|rb|sh)$"


def stderr_printer(command: list[str]) -> Callable[[str], None]:
    """Return a function that prints a line of a child's stderr behind a label: the name
    of its script, else of its program."""
    words = [re.split(r"[\\/]", word)[-1] for word in command]
    scripts = [each for each in words if re.search(_SCRIPT, each)]
    label = (scripts or words)[0]
    return lambda text: print_to_stderr(
        f"[{label}] {printable(text[:MAX_STDERR_LINE])}".rstrip()
    )


def startable(command: list[str], path: str | None) -> list[str] | str:
    """Return a command in a form that the system can start, given the child's PATH. On
    Windows, "npx" is npx.cmd, a script for cmd.exe, which has its own quoting."""
    if os.name != "nt":
        return command
    import shutil

    words = [shutil.which(command[0], path=path) or command[0], *command[1:]]
    if not words[0].lower().endswith((".bat", ".cmd")):
        return words
    # The program that the script starts reads "" as one ", and two backslashes before a
    # " as one. cmd.exe replaces %cd:~,% by nothing, so the % before it is a plain one,
    # and does not begin the name of a variable.
    quoted = [
        '"%s"' % re.sub(r'(\\*)("|\Z)', r"\1\1\2\2", word).replace("%", "%%cd:~,%")
        for word in words
    ]
    shell = os.environ.get("COMSPEC", "cmd.exe")
    return f'{shell} /e:on /v:off /d /c "{" ".join(quoted)}"'


class Child(StreamTransport):
    """A server in a child process. The child has its own process group: close() ends
    the programs that it has started, and Ctrl-C in a terminal does not reach it."""

    # The first bytes that it has written, or the last that may be a message.
    _head = b""

    def __init__(self, command: list[str], env: dict[str, str], cwd: Any, stderr: Any):
        """Start the child. Raises ConnectionClosed if the system cannot start it.

        env: its whole environment
        stderr: as for Client
        """
        import subprocess

        self.command = command
        self._show = stderr or do_nothing
        if stderr is True:
            self._show = stderr_printer(command)
        # The last lines of its stderr.
        self._lines: deque[str] = deque(maxlen=STDERR_LINES)
        if os.name == "nt":
            # On Windows, the names of variables are not case-sensitive.
            env = {name.upper(): value for name, value in env.items()}
        try:
            self._process: Any = subprocess.Popen(
                startable(command, env.get("PATH")),
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=cwd,
                env=env,
                # 0x200: CREATE_NEW_PROCESS_GROUP. Elsewhere, a new session is also a
                # new group.
                creationflags=CREATE_NO_WINDOW | 0x200 if os.name == "nt" else 0,
                start_new_session=True,
            )
        except OSError as error:
            raise ConnectionClosed(
                f"cannot start the server: {error}", None, command
            ) from error
        super().__init__(self._process.stdout, self._process.stdin)
        try:
            self._stderr_thread = start_thread("mcp-stderr", self._read_stderr)
        except RuntimeError:
            self._signal_group(9)  # SIGKILL
            self._wait(EXIT_SECONDS)
            raise

    def read(self) -> bytes:
        data = super().read()
        if not self._head or b"{" in data:
            self._head = data[:MAX_TRACE]
        if not data:
            # close() leaves this to the reading thread, which may still be in read().
            self._reader.close()
        return data

    # Its stderr

    def _read_stderr(self) -> None:
        """Read stderr to its end, so that the child never blocks on a full pipe."""
        with io.BufferedReader(self._process.stderr) as stderr:
            for line in iter(partial(stderr.readline, CHUNK), b""):
                # A progress bar overwrites its line; keep its last state.
                text = line.decode("utf-8", "replace").rstrip().rpartition("\r")[2]
                self._lines.append(text[:MAX_STDERR_LINE])
                try:
                    self._show(text)
                except Exception as error:
                    log_line(WARNING, f"stderr: {error_text(error)}")

    def _last_words(self) -> str:
        return "\n".join(self._lines).rstrip()

    # Ending

    def details(self) -> str:
        return child_details(self.command, self._process.poll(), self._last_words())

    def describe_end(self, why: str) -> ConnectionClosed:
        """See Transport. Waits up to 1.5 s for the exit code and the rest of stderr."""
        self._wait(1.0)
        self._stderr_thread.join(0.5)
        exit_code = self._process.poll()
        if exit_code == 0 and not self._head:
            why = "it exited without serving: is run() missing?"
        elif self._head and b"{" not in self._head:
            why = f"it printed text that is not MCP, and exited: {self._head!r}"
        return ConnectionClosed(why, exit_code, self.command, self._last_words())

    def _wait(self, seconds: float) -> None:
        """Block until the child has ended, for `seconds` at most."""
        import subprocess

        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)

    def close(self) -> None:
        """End the child and its process group: basic/transports/stdio.md#shutdown.

        Close its stdin; if it does not exit, send SIGTERM, then SIGKILL. On Windows,
        kill it if it does not exit. Blocks for little more than twice EXIT_SECONDS. A
        child that has written nothing has nothing to finish, so it gets
        STARTING_SECONDS instead.
        """
        seconds = EXIT_SECONDS if self._head else STARTING_SECONDS
        try:
            super().close()
            self._wait(seconds)
            if self._process.poll() is None:
                self._signal_group(15)  # SIGTERM
                self._wait(seconds)
        finally:
            # Kill the child if it still runs, and the rest of its group, even if Ctrl-C
            # has cut the waits above short.
            self._signal_group(9)  # SIGKILL
            self._wait(EXIT_SECONDS)
            self._stderr_thread.join(STDERR_SECONDS)

    def _signal_group(self, number: int) -> None:
        # OSError: there is no such process any more.
        with suppress(OSError):
            if sys.platform != "win32":
                os.killpg(self._process.pid, number)
            elif self._process.poll() is None:
                import subprocess

                subprocess.run(
                    ["taskkill", "/F", "/T", "/PID", str(self._process.pid)],
                    capture_output=True,
                    creationflags=CREATE_NO_WINDOW,
                )
                self._process.kill()


###############################################################################
# 14. Server ##################################################################
###############################################################################

# A Server offers functions to clients. This section owns the registered functions, the
# handler of each method that clients may call, the subscriptions to changes, and the
# class that programs use. It leaves everything about HTTP to Part IV.
#
# The path of a request, on one thread:
#
#     serve_request()   takes a slot
#     _serve()          makes the Context; makes the answer, of a result or an exception
#     _call_layer()     calls the middleware, the outermost first, and then the handler
#     _tools_call()     or another handler, which METHODS names: finds the registered
#                       function, converts its arguments, and its value to a result
#     _call()           calls the function: on this thread, or where run_on says
#
# Slots limit how many functions run at once. A ServerEndpoint has max_workers slots,
# which all its connections share. They are the items of the queue `_slots`: a thread
# takes a slot by getting an item, and returns it by putting it back. serve_request()
# owns the slot of its request, and returns it in a `finally`. While the function waits
# for its client, lent_slot() returns the slot early, and takes one again before the
# function goes on. Meanwhile, the pool of the connection may have one thread more:
# otherwise, if all of its threads wait for the client, none could use a free slot.
# Only one thread at a time waits at the queue, and holds `_door`; the others wait for
# `_door`. So a new request cannot overtake the one that is to get the next slot. A
# request that the reading thread serves inline takes no slot, as no registered function
# runs for it.

MAX_LISTENERS = 1_000  # open subscriptions/listen; URIs of one, or of a session
MAX_COMPLETIONS = 100  # values in one completion: the schema's maximum
# How long requests in flight over HTTP may take after SIGTERM. The whole shutdown stays
# within the ten seconds that `docker stop` allows.
GRACE_SECONDS = 5.0
LATE_SECONDS = 5.0  # wait for a worker before logging what keeps them busy

# Marks a registration without a run_on of its own: the server's `run_on` applies.
AS_SERVER: Any = object()

# Member of a server's description of itself, or of an entry in a list -> its type:
# server/tools.md#tool. Clients refuse a whole list for one wrong member.
ENTRY_TYPES = {
    "name": str,
    "version?": str,
    "title?": str,
    "description?": str,
    "mimeType?": str,
    "size?": int,
    "icons?": list,
    "annotations?": dict,
    "_meta?": dict,
}

# A registered function:
#     wire: its entry in the list
#     signature: the function, and the conversion of its arguments
#     output: the conversion of a tool's value to a result
#     timeout: the seconds that a tool may take, or None
#     template: the URI or URI template of a resource
#     headers: the parameters of a tool that HTTP headers mirror
#     visible: visible(ctx) decides whether a caller may see it; None: every caller may
#     run_on: as in Server(run_on=); AS_SERVER until the registration is stored
Registration = namedtuple(
    "Registration",
    "wire signature output timeout template headers visible run_on",
    defaults=[None, None, None, (), None, AS_SERVER],
)
_RESOURCES = {"resources": {"subscribe": True, "listChanged": True}}
# The capabilities that a server declares with the first registration of each kind. See
# also LIST_CHANGES, in Methods.
DECLARED = {
    "tools": {"tools": {"listChanged": True}},
    "resources": _RESOURCES,
    "resourceTemplates": {**_RESOURCES, "completions": {}},
    "prompts": {"prompts": {"listChanged": True}, "completions": {}},
}
# Type of a completion's reference -> the kind of registration, and the reference's
# member that names it.
REFERENCES = {
    "ref/prompt": ("prompts", "name"),
    "ref/resource": ("resourceTemplates", "uri"),
}


def make_entry(**members: Any) -> Json:
    """Make an entry of the members that are not None. Raises TypeError or ValueError
    for a wrong type, and for what JSON cannot express: now, and not only when a client
    asks for the list."""
    entry = add_given({}, **members)
    try:
        check_members(ENTRY_TYPES, entry)
    except InvalidParams as error:
        raise TypeError(str(error)) from None
    encode_message(entry)
    return entry


class Subscription(namedtuple("Subscription", "connection request granted")):
    """A listener: an open subscriptions/listen request, or a legacy session.

    connection: the conversation that notifications are sent on
    request: the request that listens; None for a session
    granted: the part of the client's filter that the server can serve
        (basic/patterns/subscriptions.md); of resources, uri_key() -> the client's
        spelling
    """

    def params_of(self, change: Change, key: str) -> Json | None:
        """Return the parameters of the notification of a change, or None if the
        listener is not to be notified.

        key: the uri_key() of the resource that has changed; "" for a list
        """
        granted = self.granted.get(change.member)
        is_ready = self.request is not None or self.connection.protocol.initialized
        if not granted or not is_ready:
            return None
        if key == "":
            return {}
        if key not in granted:
            return None
        return {"uri": granted[key]}

    def send(self, method: str, params: Json) -> Any:
        """Queue a notification. Returns its outbox, which the caller must flush."""
        if self.request:
            params = {**params, "_meta": {META_SUBSCRIPTION: self.request.id}}
        return self.connection.send(call_message(method, params), self.request)


class ServerEndpoint(Endpoint):
    """The server's side of its connections: it answers requests, and notifies
    subscribers of changes. Server explains the options.

    METHODS names the handler of each method. A handler gets (ctx, params), which the
    Protocol has checked, and returns the result, or None if the request stays open. Its
    exception becomes an error, or a tool's failure.
    """

    # The options of Server, under their names.
    instructions: str | None
    run_on: Callback
    max_workers: int
    mask_errors: bool | None
    page_size: int
    cache_ttl_ms: int
    extensions: Json | None
    trace: Trace | None
    # Signs `requestState`, by the option state_key.
    signer: Signer

    def __init__(self, info: Json, **options: Any):
        self.info = info
        vars(self).update(options)
        # Kind -> name or URI -> Registration. Each access is one operation on a dict,
        # so threads need no lock.
        self.registered: dict[str, dict[str, Registration]] = {
            kind: {} for kind in DECLARED
        }
        # A capability stays declared when the last registration of its kind is removed:
        # clients rely on it for the whole session.
        self.declared = add_given({"logging": {}}, extensions=self.extensions)
        # An extension's method -> its row, and its function.
        self.methods: dict[str, tuple[Method, Any]] = {}
        # The outermost comes first.
        self.middleware: list[Any] = []
        # The request that listens, or the session's Connection -> Subscription. Threads
        # need no lock here, either.
        self._subscriptions: dict[Any, Subscription] = {}
        # A request takes a slot while the user's code runs for it. All connections
        # share the slots. A Semaphore costs ten times as much as this queue.
        self._slots: SimpleQueue[None] = SimpleQueue()
        for _ in range(self.max_workers):
            self._slots.put(None)
        # Held by the request that gets the next slot.
        self._door = threading.Lock()
        # The requests that have a slot, or wait for one -> the name of what runs, or ""
        # while they wait; and the conversations in whose queue more may wait. Each
        # access is one operation on a dict, as above.
        self._at_work: dict[Request, str] = {}
        self.pooled: dict[Connection, None] = {}
        self._crowds = BurstLog()

    # Offers
    def put(self, kind: str, name: str, registration: Registration) -> None:
        """Register a function. Raises TypeError for a class where a callable is
        expected, as MainThread without its parentheses."""
        if registration.run_on is AS_SERVER:
            registration = registration._replace(run_on=self.run_on)
        if isinstance(registration.run_on, type):
            raise TypeError(f"run_on: expected a function, got {registration.run_on}")
        if registration.visible is not None:
            self.may_block = True
        if name in self.registered[kind]:
            log_line(WARNING, f"{name}: a second registration replaces the first")
        self.registered[kind][name] = registration
        self.declared = {**self.declared, **DECLARED[kind]}
        self.notify_list_changed(kind)

    def remove(self, kind: str, name: str) -> None:
        """Stop offering a function. Raises KeyError for an unknown name."""
        del self.registered[kind][name]
        self.notify_list_changed(kind)

    def _may_see(self, ctx: Context, registration: Registration) -> bool:
        """Return whether the caller may see a registered function."""
        if registration.visible is None:
            return True
        return bool(
            run_job(ctx, partial(registration.visible, ctx), registration.run_on)
        )

    def _find(self, ctx: Context, kind: str, name: str) -> Registration:
        """Return the registration of this name, if the caller may see it. Raises
        NotFound."""
        registration = self.registered[kind].get(name)
        if registration is None or not self._may_see(ctx, registration):
            known = [
                key
                for key, each in list(self.registered[kind].items())
                if each.visible is None
            ]
            shown = name[:MAX_SHOWN_NAME]
            raise NotFound(
                f"Unknown {kind.rstrip('s')}: {shown}; {suggest(name, known)}"
            )
        return registration

    def _find_resource(self, ctx: Context, uri: str) -> tuple[Registration, Json]:
        """Find the resource with this URI, and the arguments for its function. Raises
        NotFound."""
        key = uri_key(uri)
        resources = list(self.registered["resources"].values())
        same = [each for each in resources if each.template.key == key]
        # Prefer the resource that was registered under exactly this spelling.
        same.sort(key=lambda each: each.wire["uri"] != uri)
        templates = list(self.registered["resourceTemplates"].values())
        for registration in same + templates:
            values = registration.template.match(uri)
            if values is not None and self._may_see(ctx, registration):
                with suppress(InvalidParams):
                    return registration, registration.signature.bind(values)
        raise NotFound(f"Resource not found: {uri[:MAX_SHOWN_NAME]}")

    # Connections
    def disconnected(self, connection: Connection) -> None:
        """Remove the session of a conversation that has ended. Idempotent. A modern
        subscription is removed when the Connection cancels its request."""
        self._subscriptions.pop(connection, None)

    def input_ended(self, connection: Connection) -> None:
        """End the subscriptions of a client whose input has ended."""
        for each in list(self._subscriptions.values()):
            request = each.request
            if each.connection is connection and request:
                if not connection.is_remote:
                    # "MUST send `notifications/cancelled` [...] when it tears down".
                    each.send("notifications/cancelled", {"requestId": request.id})
                message = self._result_message(
                    request, {"_meta": {META_SUBSCRIPTION: request.id}}
                )
                connection.cancel_request(request, message)

    def notify(self, change: Change, key: str = "") -> None:
        """Notify the subscribers of a change: see Subscription.params_of()."""
        for each in list(self._subscriptions.values()):
            params = each.params_of(change, key)
            if params is not None:
                each.send(change.method, params).flush_soon()

    def notify_list_changed(self, kind: str) -> None:
        """Notify the subscribers that a list has changed."""
        self.notify(LIST_CHANGES.get(kind, LIST_CHANGES["resources"]))

    # Answering
    def new_protocol(self) -> Protocol:
        """Return the Protocol of a new conversation."""
        return Protocol("server", lambda: self.declared, self.extension_row)

    def _declare(self, ctx: Context) -> Json:
        """Return the capabilities that this server declares to a client. It promises
        notifications of changes only if the connection can carry them."""
        declared = {name: dict(each) for name, each in self.declared.items()}
        if not ctx._connection.carries_changes:
            for capability in declared.values():
                capability.pop("listChanged", None)
                capability.pop("subscribe", None)
        return declared

    def header_parameters(self, tool: str) -> Mirrors:
        """Return the parameters of a tool that HTTP headers mirror."""
        registration = self.registered["tools"].get(tool)
        return [] if registration is None else registration.headers

    def extension_row(self, method: str) -> Method:
        """Return the row of an extension's method, or UNKNOWN."""
        return self.methods.get(method, (UNKNOWN, do_nothing))[0]

    def serve_request(self, connection: Connection, request: Request) -> None:
        """Run the handler of an admitted request, and answer, unless it stays open."""
        if request.row.handshake or (request.row.inline and not self.may_block):
            # The reading thread must not wait for a slot. No user code runs here, but
            # for middleware around a handshake.
            self._serve(connection, request)
            return
        self._take_slot(request)
        try:
            # The request may have been cancelled while it waited.
            if not request.cancelled:
                request.thread = threading.get_ident()
                self._serve(connection, request)
        finally:
            del self._at_work[request]
            self._slots.put(None)

    def _take_slot(self, request: Request) -> None:
        """Block until fewer than max_workers functions run."""
        self._at_work[request] = ""
        with self._door:
            try:
                self._slots.get_nowait()
            except Empty:
                self._wait_for_slot()
        self._at_work[request] = request.runs or request.method

    def _wait_for_slot(self) -> None:
        """Block until a function returns. Log what keeps the workers busy if that takes
        long."""
        try:
            get_within(self._slots, LATE_SECONDS)
        except Empty:
            names = ", ".join(
                f"{name} x {count}" for name, count in self.load()["running"].items()
            )
            # The program's log handlers may block, and this thread holds the door.
            with suppress(RuntimeError):
                start_thread(
                    "mcp-log",
                    self._crowds.add,
                    f"all {self.max_workers} workers are busy: {names}",
                )
            get_within(self._slots)

    def load(self) -> Json:
        """Return what Server.load() does."""
        waiting = sum(len(each.begin) for each in list(self.pooled))
        running = Counter(list(self._at_work.values()))
        waiting += running.pop("", 0)
        return {"running": dict(running.most_common()), "waiting": waiting}

    @contextmanager
    def lent_slot(
        self, connection: Connection, request: Request, may_wait: bool = True
    ) -> Iterator[None]:
        """While the caller is inside, its function does not occupy a slot, if
        `may_wait` says that it may have to wait for its client. Only the thread that
        took the slot of the request can lend it. The only slot of max_workers=1 is
        never lent: programs rely on it as a lock."""
        is_own = request.thread == threading.get_ident()
        if not (may_wait and is_own and self.max_workers > 1):
            yield
            return
        with connection.workers.lent():
            del self._at_work[request]
            self._slots.put(None)
            try:
                yield
            finally:
                self._take_slot(request)

    def _serve(self, connection: Connection, request: Request) -> None:
        ctx = Context(connection, request)
        try:
            result = self._call_layer(ctx, request.params, 0)
            if ctx._pause is not None:
                # The handler has swallowed it, or another thread of it has ended by it.
                raise ctx._pause
            # A request to listen stays open, unless middleware has answered it without
            # calling its handler.
            is_open = request.cancelled or request in self._subscriptions
            if request.row.stays_open and is_open:
                return
            if not isinstance(result, dict):
                raise TypeError(f"expected a dict, got {show(result)}")
            message = self._result_message(request, result)
        except _InputRequired as pause:
            message = self._result_message(request, pause.result, "input_required")
        except BaseException as error:
            try:
                message = self._failure_message(ctx, error)
            except (TypeError, ValueError) as odd:
                # The `content` that ToolError was given is not valid content.
                message = self._failure_message(ctx, odd)
            if request.row.handshake:
                # A handshake that failed has opened no session.
                connection.protocol.version = ""
                self.disconnected(connection)
            elif request.row.stays_open:
                request.cancel()
        connection.respond(request, message)

    def _call_layer(self, ctx: Context, params: Json, index: int) -> Any:
        """Call the middleware with this index; after the last one, call the handler."""
        if index == len(self.middleware):
            if ctx._request.params.get("requestState") is not None:
                # Reading the record refuses a state that is not ours. Do that before
                # the handler runs, even if it asks nothing.
                _ = ctx._record
            return getattr(self, ctx._request.row.handler)(ctx, params)

        def call_next(others: Json = params) -> Any:
            return self._call_layer(ctx, others, index + 1) or {}

        return self.middleware[index](ctx, ctx._request.method, params, call_next)

    def _failure_message(self, ctx: Context, error: BaseException) -> Json:
        """Make the answer to a request whose handler raised an exception."""
        request = ctx._request
        if isinstance(error, ToolError) and request.row.fails_readably:
            # Middleware or visible() raised it; _tools_call() handles a ToolError of
            # the function.
            return self._result_message(
                request, tool_failure(str(error), error.content)
            )
        if isinstance(error, NotFound) and "uri" in request.params:
            # "Resource not found". RETIRED_CODES has the code of the modern era.
            error.code = -32002
            error.data = {"uri": request.about, **object_or_empty(error.data)}
        elif isinstance(error, (ToolError, _Unanswered)):
            error = InternalError(str(error))
        elif request.outbox.ask_scope(error):
            error = InvalidRequest("insufficient_scope")
        elif not isinstance(error, McpError):
            error = InternalError(self._report(ctx, error))
        message = error_message(request.id, error)
        if request.modern:
            message["error"]["code"] = RETIRED_CODES.get(error.code, error.code)
        return message

    def _report(self, ctx: Context, error: BaseException) -> str:
        """Log an unexpected exception, which may be a SystemExit, and return the text
        for the client."""
        about = ctx._request.about
        # A handler that stops because its request is over has not failed.
        is_open = ctx._connection.is_in_flight(ctx._request)
        if is_open or not isinstance(error, Cancelled):
            log_line(WARNING, f"{about} failed", error)
        is_masked = self.mask_errors
        if is_masked is None:
            is_masked = ctx._connection.is_remote
        if is_masked:
            return f"{about} failed; see the server's log"
        return f"{about}: {error_text(error)}"

    def _result_message(
        self, request: Request, result: Json, kind: str = "complete"
    ) -> Json:
        """Make the answer. In the modern era its result says its type, the server's
        name and, if clients may cache it, for how long (basic/index.md#resulttype,
        server/utilities/caching)."""
        # The blocks are fitted here, since middleware may also make a tool's result.
        if request.row.fails_readably and "content" in result:
            blocks = [fit_block(each, request.version) for each in result["content"]]
            result = {**result, "content": blocks}
        if request.modern:
            result = {"resultType": kind, **result}
            result["_meta"] = {META_SERVER_INFO: self.info, **result.get("_meta", {})}
            if request.row.cached and kind == "complete":
                result.setdefault("ttlMs", self.cache_ttl_ms)
                result.setdefault("cacheScope", "private")
        return result_message(request.id, result)

    # Handlers: lifecycle, logging
    def _initialize(self, ctx: Context, params: Json) -> Json:
        # A session is notified of changes of every declared list, and of the resources
        # to which it subscribes. Another `initialize` subscribes to no resource yet.
        granted = self._grant(
            ctx, {each.member: True for each in LIST_CHANGES.values()}
        )
        granted["resourceSubscriptions"] = ctx._connection.protocol.subscribed
        self._subscriptions[ctx._connection] = Subscription(
            ctx._connection, None, granted
        )
        return add_given(
            {
                "protocolVersion": ctx.protocol_version,
                "capabilities": self._declare(ctx),
                "serverInfo": self.info,
            },
            instructions=self.instructions,
        )

    def _discover(self, ctx: Context, params: Json) -> Json:
        return add_given(
            {
                "supportedVersions": list(MODERN_VERSIONS),
                "capabilities": self._declare(ctx),
            },
            instructions=self.instructions,
        )

    def _ping(self, ctx: Context, params: Json) -> Json:
        return {}

    def _logging_set_level(self, ctx: Context, params: Json) -> Json:
        level = params["level"]
        if level not in LOG_LEVELS:
            raise InvalidParams(f"level: {LEVELS_TEXT}, got {show(level)}")
        ctx._connection.protocol.log_level = level
        return {}

    # Handlers: lists
    def _list(self, ctx: Context, params: Json) -> Json:
        """Return one page of any list: server/utilities/pagination.md. Our cursors name
        the list and the position in it; to a client they are opaque."""
        row = ctx._request.row
        cursor = params.get("cursor") or f"{row.name}:0"
        position = re.fullmatch(row.name + ":(0|[1-9][0-9]{0,8})", cursor)
        if position is None:
            raise InvalidParams(f"cursor: not from this list: {show(cursor)}")
        begin = int(position[1])
        end = begin + self.page_size
        seen = [
            registration.wire
            for registration in list(self.registered[row.paged].values())
            if self._may_see(ctx, registration)
        ]
        result: Json = {row.paged: seen[begin:end]}
        if end < len(seen):
            result["nextCursor"] = f"{row.name}:{end}"
        return result

    # Handlers: tools, resources, prompts
    def _tools_call(self, ctx: Context, params: Json) -> Json:
        name = params["name"]
        tool = self._find(ctx, "tools", name)
        try:
            arguments = tool.signature.bind(params.get("arguments") or {})
        except InvalidParams as error:
            # Since 2025-11-25, "input validation errors should be returned as Tool
            # Execution Errors", which models can read.
            if ctx.protocol_version < "2025-11-25":
                raise InvalidParams(f"{name}: {error}") from None
            return tool_failure(f"{name}: {error}")
        try:
            value = self._call(ctx, tool, arguments)
            return dict(tool.output.result(value))
        except (_InputRequired, _Unanswered):
            raise
        except ToolError as error:
            return tool_failure(str(error), error.content)
        except BaseException as error:
            # The function may have received an McpError, or Cancelled, as the client of
            # another server. That says nothing about this request: the tool has failed.
            is_answer = isinstance(error, McpError) and not error.is_received
            is_end = isinstance(error, Cancelled) and ctx.cancelled
            needs_scope = ctx._request.outbox.ask_scope(error)
            if is_answer or is_end or needs_scope:
                raise
            return tool_failure(self._report(ctx, error))

    def _resources_read(self, ctx: Context, params: Json) -> Json:
        uri = params["uri"]
        resource, arguments = self._find_resource(ctx, uri)
        value = self._call(ctx, resource, arguments)
        # A list of EmbeddedResource makes several contents; any other list is one JSON
        # value.
        parts = listed(value)
        if set(map(type, parts)) != {EmbeddedResource}:
            parts = [value]
        mime_type = resource.wire.get("mimeType")
        return {"contents": [read_contents(uri, each, mime_type) for each in parts]}

    def _resources_subscribe(self, ctx: Context, params: Json) -> Json:
        if not ctx._connection.carries_changes:
            raise MethodNotFound("subscribing needs a connection that stays open")
        self._find_resource(ctx, params["uri"])
        subscribed = ctx._connection.protocol.subscribed
        if len(subscribed) >= MAX_LISTENERS:
            raise InvalidRequest(f"subscription limit reached ({MAX_LISTENERS})")
        subscribed[uri_key(params["uri"])] = params["uri"]
        return {}

    def _resources_unsubscribe(self, ctx: Context, params: Json) -> Json:
        ctx._connection.protocol.subscribed.pop(uri_key(params["uri"]), None)
        return {}

    def _prompts_get(self, ctx: Context, params: Json) -> Json:
        name = params["name"]
        prompt = self._find(ctx, "prompts", name)
        try:
            arguments = prompt.signature.bind(params.get("arguments") or {})
        except InvalidParams as error:
            raise InvalidParams(f"{name}: {error}") from None
        value = self._call(ctx, prompt, arguments)
        # In every revision, each message has a single block.
        messages = [
            {**message, "content": fit_block(block, ctx.protocol_version)}
            for message in to_messages(value)
            for block in listed(message["content"])
        ]
        return add_given(
            {"messages": messages}, description=prompt.wire.get("description")
        )

    def _completion_complete(self, ctx: Context, params: Json) -> Json:
        argument = params["argument"]
        check_members({"name": str, "value": str}, argument, "argument.")
        name = argument["name"]
        text = argument["value"]
        ref = params["ref"]
        kind, member = REFERENCES.get(str(ref.get("type")), ("prompts", "type"))
        registration = self._find(ctx, kind, str(ref.get(member)))
        completer = registration.signature.completers.get(name)
        if completer is None:
            allowed = registration.signature.completions(name)
            values = [each for each in allowed if each.lower().startswith(text.lower())]
        else:
            others = member_at(params, ["context", "arguments"]) or {}
            given = (text, others)[: len(read_parameters(completer).parameters)]
            values = list(
                map(str, run_job(ctx, partial(completer, *given), registration.run_on))
            )
        return {
            "completion": {
                "values": values[:MAX_COMPLETIONS],
                "total": len(values),
                "hasMore": len(values) > MAX_COMPLETIONS,
            }
        }

    def _extension(self, ctx: Context, params: Json) -> Json:
        _, fn = self.methods[ctx._request.method]
        result: Json = run_job(ctx, partial(fn, ctx, params), self.run_on)
        if ctx._request.is_notification:
            # Whatever the function returns, a notification gets no answer.
            return {}
        return result

    # Handlers: subscriptions
    def _subscriptions_listen(self, ctx: Context, params: Json) -> None:
        """Open a subscription. It lasts as long as its request stays open."""
        connection = ctx._connection
        if not connection.carries_changes:
            raise MethodNotFound("listening needs a connection that stays open")
        open_streams = sum(
            isinstance(each, Request) for each in list(self._subscriptions)
        )
        if open_streams >= MAX_LISTENERS:
            raise InvalidRequest(f"subscription limit reached ({MAX_LISTENERS})")
        granted = self._grant(ctx, params["notifications"])
        by_key = {uri_key(uri): uri for uri in granted.get("resourceSubscriptions", ())}
        subscription = Subscription(
            connection, ctx._request, {**granted, "resourceSubscriptions": by_key}
        )
        # "MUST NOT send any notification on the subscription before" this one. Rule 3:
        # queue it before registering the subscription, so that changes are queued
        # behind it. Flush it afterwards, when this handler returns, so that the client
        # cannot act on it too early.
        subscription.send(
            "notifications/subscriptions/acknowledged", {"notifications": granted}
        )
        self._subscriptions[ctx._request] = subscription
        ctx._add_callback(partial(self._subscriptions.pop, ctx._request, None))

    def _grant(self, ctx: Context, wanted: Json) -> Json:
        """Return the part of a client's filter that this server can serve to it."""
        declared = self._declare(ctx)
        granted: Json = {}
        for change in LIST_CHANGES.values():
            is_wanted = wanted.get(change.member) is True
            if is_wanted and has_capability(declared, change.capability):
                granted[change.member] = True
        uris = wanted.get("resourceSubscriptions") or []
        if not _is_names(uris) or len(uris) > MAX_LISTENERS:
            raise InvalidParams(
                f"resourceSubscriptions: not URIs, or too many: {show(uris)}"
            )
        if uris and has_capability(declared, RESOURCE_UPDATE.capability):
            granted["resourceSubscriptions"] = []
            for uri in uris:
                with suppress(NotFound):
                    self._find_resource(ctx, uri)
                    granted["resourceSubscriptions"].append(uri)
        return granted

    # Calling registered functions
    def _call(self, ctx: Context, registration: Registration, arguments: Json) -> Any:
        """Call a registered function where run_on says, within its timeout."""
        request = ctx._request
        signature = registration.signature
        request.runs = registration.wire["name"]
        # A detached handler goes on after its request has ended.
        if request in self._at_work:
            self._at_work[request] = request.runs
        if signature.context is not None:
            arguments[signature.context] = ctx
        job = partial(signature.fn, **arguments)
        limit: Any = nullcontext
        if registration.timeout is not None:
            late = tool_failure(
                f"{request.about}: timed out after {registration.timeout:g} seconds"
            )
            limit = partial(
                time_limit,
                registration.timeout,
                ctx._connection.cancel_request,
                request,
                self._result_message(request, late),
            )
        try:
            return run_job(ctx, job, registration.run_on, limit)
        except BaseException as error:
            if unwrapped(error) is error:
                raise
            raise unwrapped(error) from error

    def post_jobs(self, post: AnyFunction) -> bool:
        """Have every MainThread that belongs to the calling thread use `post` to wake
        that thread. Returns whether there is one."""
        places = {self.run_on}
        for kind in self.registered.values():
            places.update(each.run_on for each in list(kind.values()))
        has_main = False
        for place in places:
            if isinstance(place, MainThread) and place.is_current():
                place.post_by(post)
                has_main = True
        return has_main


# The public face: registering, changing, running.
class Server:
    """An MCP server: register functions, then run() it.

        server = Server("weather", version="1.0")

        @server.tool
        def forecast(city: str, days: int = 3) -> list: ...

        server.run()

    All methods may be called from any thread. Clients see `name` and `version`.
    """

    def __init__(
        self,
        name: str,
        version: str = "0",
        *,
        title: str | None = None,
        page_size: int = 100,
        cache_ttl_ms: int = 0,
        description: str | None = None,
        instructions: str | None = None,
        state_key: Any = None,
        website_url: str | None = None,
        icons: list[Json] | None = None,
        run_on: Callback = None,
        max_workers: int = MAX_WORKERS,
        mask_errors: bool | None = None,
        extensions: Json | None = None,
        trace: _Trace = None,
    ):
        """Create a server without functions. Raises TypeError or ValueError for invalid
        options.

        name: the name that programs see
        version: the version of the server, not of the protocol
        title: the name that users see
        page_size: the number of tools, resources or prompts on one page of a list
        cache_ttl_ms: how long clients may cache lists and resources, in milliseconds
        description: a description of the server
        instructions: how a model should use the server
        state_key: at least 16 bytes or characters, or a list of such keys: the first
            signs `requestState`, all verify. Processes with the same key and server
            name accept each other's state; the default is a random key
        website_url: a page about the server
        icons: as on the wire: [{"src": URL, "mimeType": ...}, ...]
        run_on: run_on(job) has job() called on the thread where functions must run: a
            MainThread, say, or an executor's submit; the default is a background thread
        max_workers: maximum number of functions running at once, for all clients
            together; one that waits for its client, for an answer or to read, does not
            count. But 1 is a lock: one function at a time, whatever it waits for
        mask_errors: whether to hide the texts of unexpected exceptions from clients;
            the default hides them over HTTP only
        extensions: the extensions of the protocol to declare, with their settings:
            {"com.example/thing": {}}; see method()
        trace: a function (direction, line), called with each message; True prints them
            to stderr, a path appends them to that file
        """
        if min(page_size, max_workers) < 1:
            raise ValueError("page_size, max_workers: expected 1 or more")
        self.name = name
        self.version = version
        info = make_entry(
            name=name,
            version=version,
            title=title,
            description=description,
            websiteUrl=website_url,
            icons=icons,
        )
        self._endpoint = ServerEndpoint(
            info,
            instructions=instructions,
            signer=Signer(state_key),
            run_on=run_on,
            max_workers=max_workers,
            mask_errors=mask_errors,
            page_size=page_size,
            cache_ttl_ms=cache_ttl_ms,
            extensions=dict(extensions or {}) or None,
            trace=tracer(trace),
        )

    # Registering. For type checkers, a registered function keeps its type.
    def tool(
        self,
        fn: Registered | Lambda | str | None = None,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: Json | None = None,
        icons: list[Json] | None = None,
        input_schema: Json | None = None,
        output_schema: Json | None = None,
        meta: Json | None = None,
        structured: bool | None = None,
        timeout: float | None = None,
        visible: Callable[[Context], bool] | None = None,
        run_on: Callback = AS_SERVER,
    ) -> Registered:
        """Register a function as a tool: server/tools.md. Connected clients are
        notified.

        Use it as @server.tool, as @server.tool("x", title="X"), or as a plain call with
        the function. The hints of the function become the input schema. The function
        returns text, an Image, Audio, ResourceLink or EmbeddedResource, a list of
        those, or any value that JSON can express. It raises ToolError for a failure
        that the caller can act on. A parameter of type Context receives one. An `async
        def` function runs on the event loop of its conversation, or on the loop behind
        run_on, and is cancelled with its request. So do the `async def` functions of
        resources, prompts and completions.

        Over HTTP with `verify`, PermissionError("files:write"), raised by a function or
        by middleware before anything was sent, asks the client for a token with that
        scope (403).

        fn: the function; in a decorator with options, nothing or the name
        name: the tool's name; the default is the function's. A second tool of the same
            name replaces the first, and a warning is logged
        title: the name that users see
        description: for models; the default is the docstring, whose descriptions of
            parameters go to the input schema
        annotations: hints about the tool's effects: {"readOnlyHint": True}, say
        icons: [{"src": URL}, ...]
        input_schema: replaces the schema made from hints; its type is "object". The
            function gets, unconverted, the arguments that `properties` names, and
            others only if it has **kwargs and the schema `additionalProperties`;
            without **kwargs, only those for which it has a parameter
        output_schema: replaces the schema made from the return hint
        meta: the wire's `_meta`
        structured: whether results have structured content. By default, the return hint
            decides, or else the value; text and content objects are not structured
        timeout: seconds, after which the client receives a failure, and the function is
            cancelled. handle(), WSGI and batches answer only when the function returns
        visible: visible(ctx) returns whether the caller may see the tool; for others
            the tool does not exist. visible() is called for lists and for calls, where
            run_on says. If it raises, the request is answered with that error
        run_on: replaces the server's run_on; None is a background thread, for a tool that
            itself waits for the main thread

        Raises TypeError for hints without a JSON Schema, and ValueError for an invalid
        name or schema.
        """

        def register(function: Any, given: str | None) -> None:
            signature = Signature(function, Context, input_schema)
            tool_name = name or given or signature.name
            if not re.fullmatch(r"[A-Za-z0-9_.\-]{1,128}", tool_name):
                raise ValueError(
                    f"tool name {show(tool_name)}: "
                    "expected 1 to 128 of A-Z a-z 0-9 _ - .; give it one by name="
                )
            output = Output(signature, output_schema, structured)
            headers = header_parameters(signature.schema)
            wire = make_entry(
                name=tool_name,
                title=title,
                description=description or signature.description,
                inputSchema=signature.schema,
                outputSchema=output.schema,
                annotations=annotations,
                icons=icons,
                _meta=meta,
            )
            self._endpoint.put(
                "tools",
                tool_name,
                Registration(
                    wire, signature, output, timeout, None, headers, visible, run_on
                ),
            )

        return _decorate(fn, register)

    add_tool = tool

    def resource(
        self,
        uri: str,
        fn: Registered | Lambda | None = None,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        icons: list[Json] | None = None,
        annotations: Json | None = None,
        size: int | None = None,
        meta: Json | None = None,
        visible: Callable[[Context], bool] | None = None,
    ) -> Registered:
        """Register a function that returns a resource's contents: server/resources.md.

        Use it as @server.resource("config://app"), or as a plain call with the URI and
        the function. The function returns text, bytes, an Image or Audio, an
        EmbeddedResource or a list of them, or any other value that JSON can express.

        A URI with {expressions} is a template. The function has a parameter for each
        name in it: {x} matches one segment of a path, or a part of one; {+x} matches
        anything, including slashes and `..`; {?a,b} at the end matches optional query
        values.

        uri: the URI, or the template
        fn: the function; in a decorator, nothing
        name: the resource's name; the default is the function's
        title: the name that users see
        description: the default is the docstring
        mime_type: the default depends on the value that the function returns
        icons: [{"src": URL}, ...]
        annotations: {"audience": ["user"], "priority": 0.5}, say
        size: the number of bytes
        meta: the wire's `_meta`
        visible: visible(ctx) returns whether the caller may see it, as for a tool

        Raises ValueError for an invalid template, and TypeError if its names and the
        parameters of the function differ.
        """
        if not isinstance(uri, str):
            raise TypeError(
                'resource: expected its URI: @server.resource("config://app")'
            )

        def register(function: Any, _: None) -> None:
            signature = Signature(function, Context)
            # {+x} matches any URI. Spaces are fine: clients send them as %20.
            if uri[:1] != "{":
                check_uri("resource", uri.replace(" ", ""))
            template = UriTemplate(uri)
            check_template(template, signature)
            kind = "resources"
            member = "uri"
            if template.names:
                kind = "resourceTemplates"
                member = "uriTemplate"
            wire = make_entry(
                **{member: uri},
                name=name or signature.name.replace("<lambda>", uri),
                title=title,
                mimeType=mime_type,
                description=description or signature.description,
                annotations=annotations,
                size=size,
                icons=icons,
                _meta=meta,
            )
            self._endpoint.put(
                kind,
                uri,
                Registration(wire, signature, template=template, visible=visible),
            )

        return _decorate(fn, register)

    add_resource = resource

    def prompt(
        self,
        fn: Registered | Lambda | str | None = None,
        *,
        name: str | None = None,
        description: str | None = None,
        title: str | None = None,
        icons: list[Json] | None = None,
        meta: Json | None = None,
        visible: Callable[[Context], bool] | None = None,
    ) -> Registered:
        """Register a function as a prompt: server/prompts.md. Connected clients are
        notified.

        Use it as @server.prompt, as @server.prompt("x"), or as a plain call with the
        function. The arguments arrive as text, and are converted as their hints say.
        The function returns text, a Message, a content object, or a list of those.

        fn: the function; in a decorator with options, nothing or the name
        name: the prompt's name; the default is the function's
        description: the default is the docstring
        title: the name that users see
        icons: [{"src": URL}, ...]
        meta: the wire's `_meta`
        visible: visible(ctx) returns whether the caller may see it, as for a tool

        Raises TypeError for hints without a JSON Schema.
        """

        def register(function: Any, given: str | None) -> None:
            signature = Signature(function, Context)
            wire = make_entry(
                name=name or given or signature.name,
                title=title,
                arguments=prompt_arguments(signature) or None,
                description=description or signature.description,
                icons=icons,
                _meta=meta,
            )
            self._endpoint.put(
                "prompts", wire["name"], Registration(wire, signature, visible=visible)
            )

        return _decorate(fn, register)

    add_prompt = prompt

    def completion(self, ref: str, argument: str) -> Callable[[Function], Function]:
        """Complete an argument while a user types it: server/utilities/completion.md.

        Use it as @server.completion("review", "code"). The function is called with the
        text so far and, if it takes two parameters, with a dict of the other arguments.
        It returns the values, the best one first. Literal, Enum and bool arguments
        complete by themselves.

        ref: the name of a registered prompt, or the URI of a registered template. If
            that is removed or registered again, its completions are lost
        argument: the name of the argument

        Raises ValueError if there is no such argument.
        """
        registered = self._endpoint.registered
        templates = registered["resourceTemplates"]
        registration = registered["prompts"].get(ref) or templates.get(ref)
        if (
            registration is None
            or argument not in registration.signature.schema["properties"]
        ):
            raise ValueError(
                f"completion: register {show(ref)}, with an argument {show(argument)}, "
                "before its completions"
            )

        def register(function: Function) -> Function:
            registration.signature.completers[argument] = function
            return function

        return register

    def method(
        self, name: str, *, extension: str | None = None
    ) -> Callable[[Function], Function]:
        """Serve a method of an extension, requests and notifications.

            server = Server("shop", extensions={"com.example/cart": {}})

            @server.method("cart/empty", extension="com.example/cart")
            def empty(ctx, params):
                return {"removed": carts.pop(params["cart"])}

        The function runs as a tool's does, and may be `async def`. It returns the
        result, a dict as on the wire; for a notification, anything. In the modern era
        it cannot ask the client.

        name: the method; ValueError for a method of this protocol, and for a name that
            no header can hold
        extension: the extension to which the method belongs, and which the server
            declares. Clients that did not declare it are refused. By default, any
            client may call the method
        """
        if not re.fullmatch(r"(?!rpc\.)[!-~]{1,128}", name) or name in METHODS:
            raise ValueError(f"method: expected a new one, got {show(name)}")
        row = Method(name, kind="either", handler="_extension")
        if extension is not None:
            row.capability = ("extensions", extension)

        def register(fn: Function) -> Function:
            self._endpoint.methods[name] = (row, fn)
            return fn

        return register

    def middleware(self, fn: Function) -> Function:
        """Call a function around every request, including `initialize`,
        `server/discover` and lists, and around notifications of extensions.

            @server.middleware
            def log(ctx, method, params, call_next):
                begun = time.monotonic()
                try:
                    return call_next()
                finally:
                    print(method, params.get("name"), time.monotonic() - begun)

        The middleware that was registered first is the outermost.

        fn: fn(ctx, method, params, call_next) returns a result as on the wire, a dict.
            call_next() continues with the same parameters, call_next(params) with
            others; both return the result. A ToolError or McpError is answered as for a
            tool; any other exception is an error of the server

        Middleware runs on the thread of the request, not where run_on says. It runs
        again for each answer of the client, as the functions do. A question to a modern
        client passes through it as an exception that `except Exception` does not catch.
        The result of subscriptions/listen is {}, once the subscription is open.
        Requests that are refused before their handler, such as unknown methods, bypass
        it.
        """
        self._endpoint.middleware.append(fn)
        self._endpoint.may_block = True
        return fn

    # Changing
    def remove_tool(self, name: str) -> None:
        """Stop offering a tool, and notify clients. KeyError for an unknown name."""
        self._endpoint.remove("tools", name)

    def remove_resource(self, uri: str) -> None:
        """Stop offering a resource or template, and notify clients.

        uri: the URI or template that was registered; KeyError for an unknown one
        """
        kind = "resourceTemplates"
        if uri in self._endpoint.registered["resources"]:
            kind = "resources"
        self._endpoint.remove(kind, uri)

    def remove_prompt(self, name: str) -> None:
        """Stop offering a prompt, and notify clients. KeyError for an unknown name."""
        self._endpoint.remove("prompts", name)

    def load(self) -> Json:
        """Return how busy this server is, for metrics and health checks:

            {"running": {"forecast": 31, "report": 1}, "waiting": 7}

        running: how many functions run, by the name of the tool, resource or prompt;
            by method for what has none. A function that waits for its client does not
            count, nor does it for max_workers
        waiting: how many requests wait for a worker
        """
        return self._endpoint.load()

    def resource_updated(self, uri: str) -> None:
        """Notify the clients that subscribed to a resource that it has changed.

        uri: the URI of the resource; for a template, the URI that clients read
        """
        self._endpoint.notify(RESOURCE_UPDATE, uri_key(uri))

    # Running
    def run(self, transport: str = "stdio", **options: Any) -> None:
        """Serve until the client ends the input, or a signal arrives. Blocks.

        transport: "stdio" serves one client on stdin and stdout until the input ends
            (basic/transports/stdio.md); meanwhile print() and child processes write to
            stderr, and input() reads nothing. "http" serves until a signal arrives, and
            prints its URL to stderr
        options: for "http" only: the options of start_http, with port=8000 by default;
            and `grace`, the seconds that handlers have after SIGTERM

        On the main thread, Ctrl-C and SIGTERM end run(), unless the program handles the
        signal itself. Handlers are cancelled, and have a moment to clean up; then run()
        returns. A second signal ends the wait for them. Raises ValueError for another
        transport, and for "stdio" with options. If it cannot listen, raises SystemExit,
        or OSError on a thread other than the main one.
        """
        signals = Signals()
        if transport == "http":
            self._run_http(signals, **options)
            return
        if transport != "stdio" or options:
            raise ValueError(
                f'run({show(transport)}): for HTTP, write run("http", port=8000)'
            )
        if os.isatty(0):
            print_to_stderr(
                printable(f"{self.name}: waits for a client on stdin (Ctrl-C ends it)")
            )
        with stop_signals(signals), private_wire() as (reader, writer):
            self._serve(reader, writer, signals)

    def _run_http(
        self,
        signals: Signals,
        port: int = 8000,
        grace: float = GRACE_SECONDS,
        **options: Any,
    ) -> None:
        with stop_signals(signals), lenient_stdout():
            try:
                http = self.start_http(port=port, **options)
            except (OSError, OverflowError) as error:
                if not on_main_thread():
                    raise
                # Report a busy or wrong port in one line on stderr, with no traceback.
                sys.exit(printable(f"{self.name}: {error}"))
            with http:
                notice = f"{self.name}: {http.url} (Ctrl-C ends it)"
                is_public = options.get("host") in ("", "0.0.0.0", "::")
                if is_public and not options.get("verify"):
                    notice += "; without verify=, anybody may call; see allowed_hosts"
                print_to_stderr(printable(notice))
                self._endpoint.post_jobs(signals.put)
                http.serve_until(signals, grace)

    def start_http(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        path: str = "/mcp",
        sock: Socket | None = None,
        verify: Verify | None = None,
        resource_metadata: Json | None = None,
        allowed_hosts: Iterable[str] | None = None,
        allowed_origins: Iterable[str] | None = None,
        stateless: bool = False,
        health: str | None = None,
        routes: Mapping[str, Route] | None = None,
        public_routes: Mapping[str, Route] | None = None,
        max_connections: int = MAX_CONNECTIONS,
        max_body: int = MAX_BODY,
        ssl_context: SSLContext | None = None,
    ) -> HttpServer:
        """Serve HTTP in the background: basic/transports/streamable-http.md.

        Returns a handle with `url`, `port` and `close()`. The handle is a context
        manager, too. Each request is logged to the logger "mcp_lite.http".

        host: the address to listen on; "" or "0.0.0.0" is every address
        port: the port; 0 is a free one. OSError if it is taken
        path: the path of the endpoint
        sock: in place of host and port, a listening socket, such as systemd's,
            socket.socket(fileno=3), or a Unix socket; close() closes it
        verify: verify(token) returns the claims of a bearer token, or None (401), or
            raises PermissionError(scope) (403), any other OSError (503: try again), or
            another exception (401); or a dict of tokens and their claims, such as
            {"sub": "ada"}; without it, no token is needed
        resource_metadata: where clients get tokens, by RFC 9728: {"resource": the URL
            of this server, "authorization_servers": [URLs], ...}
        allowed_hosts: further names of this host that clients use; "*" is any. Here and
            below, ValueError for a name that matches nothing, such as "*.example.com"
        allowed_origins: sites whose pages may call: "https://app.example"; "*" is any
        stateless: open no sessions, so that several processes with the same state_key
            can share the clients. With sessions, the HTTP+SSE of 2024-11-05 is at /sse:
            deprecated, and still served
        health: a path, such as "/health", which answers 200 without a token
        routes: further paths for GET: {"/path": fn}; fn(request) returns (status,
            headers, body), and reads request.path, .query, .headers and .auth, the
            claims of the token
        public_routes: the same without a token, for any Host and Origin
        max_connections: the maximum number of open connections; more are refused (503)
        max_body: the maximum size of a request in bytes; a larger one is refused (413)
        ssl_context: an ssl.SSLContext, to serve https
        """
        path = "/" + path.lstrip("/")
        options = Options(locals())
        return listen_http(HttpEndpoint(self._endpoint, options), options)

    def wsgi_app(
        self,
        *,
        path: str | None = None,
        verify: Verify | None = None,
        resource_metadata: Json | None = None,
        allowed_hosts: Iterable[str] | None = None,
        allowed_origins: Iterable[str] | None = None,
        health: str | None = None,
        routes: Mapping[str, Route] | None = None,
        public_routes: Mapping[str, Route] | None = None,
        max_body: int = MAX_BODY,
    ) -> Callable[..., list[bytes]]:
        """Return a WSGI application: for gunicorn, mod_wsgi, Django, Flask, wsgiref.

        It opens no sessions, so several processes with the same state_key can share the
        clients. It notices that a client has hung up only when a write fails.

        path: the path of the endpoint; by default, any path at which the application is
            mounted
        verify, resource_metadata, allowed_hosts, allowed_origins, health, routes,
            public_routes, max_body: as start_http takes them
        """
        stateless = True
        return partial(answer_wsgi, HttpEndpoint(self._endpoint, Options(locals())))

    @cached_property
    def wsgi(self) -> Callable[..., list[bytes]]:
        """Return the WSGI application of this server, without options; see wsgi_app."""
        return self.wsgi_app()

    def serve(self, reader: Any, writer: Any) -> None:
        """Serve one client over two binary streams, until the input ends. Blocks.

        reader: a binary file to read from, such as a socket's makefile("rb")
        writer: a binary file to write to; neither is closed
        """
        self._serve(reader, writer, Signals())

    def _serve(self, reader: Any, writer: Any, signals: Signals) -> None:
        connection = self.connect(StreamTransport(reader, writer))
        try:
            # While this thread runs the jobs of a MainThread, it cannot watch the
            # reader, so the reader must not serve.
            has_main = self._endpoint.post_jobs(signals.put)
            signal = Deputy(connection, signals, serves=not has_main).wait()
            end_stream(connection, signals, signal)
        finally:
            self.disconnect(connection)

    def connect(self, transport: Transport) -> Connection:
        """Begin a conversation with one client, over your own transport.

        transport: see Transport; of its methods, only write(), details() and
            describe_end() are called

        The transport calls connection.feed(data) with the bytes that arrive, on one
        thread, and disconnect(connection) at the end.
        """
        endpoint = self._endpoint
        limit = endpoint.max_workers
        if limit > 1:
            # One thread more than there are slots: it waits for a slot, and logs if
            # that takes long. With max_workers=1, a second thread could take the slot
            # before the thread of an earlier request does.
            limit += 1
        connection = Connection(
            endpoint.new_protocol(),
            endpoint,
            LineOutbox(transport),
            Workers("mcp-worker", limit),
            transport=transport,
            trace=endpoint.trace,
        )
        connection.loop = EventLoop()
        endpoint.pooled[connection] = None
        return connection

    def disconnect(self, connection: Connection, seconds: float = 0.0) -> None:
        """End a conversation that connect() has begun. Idempotent, from any thread.

        connection: what connect() returned
        seconds: how long to wait for handlers that still run; they are cancelled first
        """
        connection.close(ConnectionClosed("the client closed the connection"), seconds)
        self._endpoint.disconnected(connection)
        self._endpoint.pooled.pop(connection, None)
        connection.loop.close()

    def handle(self, message: Json) -> Json | None:
        """Answer one modern message on this thread: in a serverless function, say.

        message: a decoded request, or notification

        Returns the answer; None for a notification. The client receives no
        notifications of progress or of changes. A tool's `timeout` cancels the
        function, but the answer comes only when the function returns.
        """
        endpoint = self._endpoint
        outbox = Batch(Outbox())
        connection = Connection(
            endpoint.new_protocol(),
            endpoint,
            outbox,
            SameThread(),
            trace=endpoint.trace,
        )
        connection.loop = EventLoop()
        connection.carries_changes = False
        event = connection.protocol.receive(message, outbox)
        if isinstance(event, Request) and event.row.handshake:
            error = InvalidRequest(
                "handle() keeps no session; a legacy client needs wsgi_app(), or a "
                "transport"
            )
            return error_message(event.id, error)
        connection.act(event, outbox)
        self.disconnect(connection)
        # Return a copy, as the answer may share objects with the registrations, and the
        # caller may change it.
        if not outbox.answers:
            return None
        return dict(json.loads(encode_json(outbox.answers[0])))


def _decorate(fn: Registered | Lambda | str | None, register: Any) -> Registered:
    """Register a function, and return it. Without one, return a decorator that does.
    register(function, name) receives the name that was given instead of a function."""
    if fn is not None and not isinstance(fn, str):
        register(fn, None)
        return fn  # type: ignore

    def decorate(function: Any) -> Any:
        register(function, fn)
        return function

    return decorate  # type: ignore


###############################################################################
# 15. Client ##################################################################
###############################################################################

# This section owns the client's side: a call and its rounds of questions; a subscription
# to changes; the endpoint, which receives notifications and answers questions; the
# targets; and the public class Client. The thread that makes a call does the work of
# that call: it waits for the answer, runs the callbacks that answer a modern server's
# questions, and sends the call again. Without a call, a client sends only the
# handshake, answers to the questions of a session, and what restores a lost session.

SPOKEN = LEGACY_VERSIONS + MODERN_VERSIONS
MAX_ROUNDS = 100  # rounds of questions that a server may ask in one call
MAX_ITEMS = 100_000  # items of a list, all pages together
PROBE_SECONDS = 5.0  # wait for an answer to server/discover, before `initialize`
# Matches the stderr of a child that has exited for another reason than server/discover.
_OTHER_FAILURE = (
    r"(?is)(?!.*(server/discover|initiali[sz]e))"
    r".*(error|exception|traceback|fail|cannot|could not|unable|missing|required|"
    r"not (found|set)|no such|denied|usage:)"
)
# The exceptions with which a call fails. HttpFailure is a ConnectionError.
FAILURES = (McpError, ConnectionError, Timeout)
NOT_YET_SECONDS = 1.0  # pause before a call is sent again to a server that said "later"


# Calls
class Call:
    """A call in flight: the future that `Client.start_call` returns.

    Any thread may use it. A modern server may answer with questions
    (basic/patterns/mrtr.md). The thread that waits in result() has the client's
    callbacks answer them, and sends the request again with the answers:

        sent --the final answer, cancel(), close(), or a time-out--> done
         ^ |
         | `--questions--> answering --cancel(), close(), or total_timeout--> done
         '-----------------'
    """

    def __init__(
        self,
        client: Client,
        method: str,
        params: Json,
        on_progress: Callback,
        check: Callable[[Json], Json],
    ):
        self.client = client
        self.method = method
        self.params = params
        # Its name in errors: that of the tool, resource or prompt, if any.
        self._about = str(params.get(method_row(method).mirrored) or method)
        self._connection = client._require_connection()
        self._on_progress = on_progress
        # check(result) returns the final result, or raises InvalidResponse.
        self._check = check
        # The deadline for all rounds, by time.monotonic().
        self._deadline = time.monotonic() + (client.total_timeout or INFINITY)
        self._is_cancelled = False
        # The final result, or the exception; None until result() has ended once.
        self._outcome: Any = None
        # The thread that waits, and answers questions, holds this.
        self._waiting = threading.Lock()
        self._send({})

    def _send(self, more: Json) -> None:
        """Send the request; or send it again, with answers and state."""
        self.check_open()
        self._pending = PendingRequest(self._connection, self.method)
        self._pending.about = self._about
        self._connection.request(self._pending, {**self.params, **more})
        if self._is_cancelled:
            # A concurrent cancel() may have cancelled only the previous request.
            self.cancel()

    def check_open(self) -> None:
        """Raise Cancelled or Timeout if this call has ended. A function in
        Client(result_types=) calls this before it sends more requests."""
        if self._is_cancelled:
            raise Cancelled(f"{self._about}: the call was cancelled")
        if time.monotonic() >= self._deadline:
            raise Timeout(f"{self._about}: no answer by the deadline of total_timeout")

    def result(self, timeout: float | None = None) -> Json:
        """Block until the final answer arrives. Returns the result, as on the wire. A
        tool's result is checked as in Client.call_tool().

        timeout: in seconds, for each round; the default is the client's. Each progress
            notification restarts it

        The callbacks that answer questions, and the progress callback, run in this
        thread. An exception that the progress callback raises ends the call. Raises
        McpError, Timeout (and cancels the call), Cancelled, ConnectionClosed,
        HttpFailure. A second call of result() returns or raises the same thing. While
        another thread waits in result(), this one waits for that thread, for `timeout`
        in all; its Timeout does not cancel the call.
        """
        seconds = self.client.timeout if timeout is None else timeout
        left = min(seconds, self._deadline - time.monotonic(), LONGEST_WAIT)
        is_alone = self._waiting.acquire(timeout=max(0.0, left))
        if not is_alone:
            raise Timeout(
                f"{self._about}: no answer within {max(seconds, 0):g} seconds"
            )
        try:
            if self._outcome is None:
                self._outcome = self._check(self._run(seconds))
        except BaseException as error:
            self._outcome = received(error)
        finally:
            self._waiting.release()
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        result: Json = self._outcome
        return result

    def _run(self, seconds: float) -> Json:
        for count in range(MAX_ROUNDS + 1):
            try:
                result = self._pending.result(
                    seconds, self._on_progress, self._deadline
                )
            except HeaderMismatch:
                # The tool's schema may have changed, and with it the arguments that
                # headers mirror: "the client SHOULD call tools/list [...], then retry".
                if count:
                    raise
                self.client.list_tools()
                self._send({})
                continue
            # "clients MUST treat an absent resultType as 'complete'". An extension
            # defines the results of its own requests.
            kind = str(result.get("resultType") or "complete")
            is_foreign = self.method not in METHODS
            is_legacy = self.client.protocol_version < FIRST_MODERN
            if kind == "complete" or is_foreign or is_legacy:
                return result
            if kind in self.client.result_types:
                return dict(self.client.result_types[kind](self, result))
            if kind != "input_required":
                # "A resultType of any value unrecognized [...] MUST be considered
                # invalid."
                raise InvalidResponse(
                    f"the server's result has an unknown resultType {kind}", result
                )
            self._send(self._answers_to(result))
        raise InvalidResponse(
            f"{self.method}: the server asked more than {MAX_ROUNDS} times", result
        )

    def _answers_to(self, result: Json) -> Json:
        """Have a result's questions answered. Returns the answers, and the result's
        state, as members to add to the request. Blocks. Raises McpError."""
        more = add_given({}, requestState=result.get("requestState"))
        questions = result.get("inputRequests")
        if questions is None and more:
            # A state without questions means "ask again later".
            time.sleep(NOT_YET_SECONDS)
            return more
        if not isinstance(questions, dict):
            raise InvalidResponse(
                f"inputRequests: expected requests, got {show(questions)}", result
            )
        answers = {}
        for key, question in questions.items():
            self.check_open()
            answers[key] = self.client.answer(
                str(member_at(question, ["method"])),
                object_or_empty(member_at(question, ["params"])),
            )
        more["inputResponses"] = answers
        return more

    def value(self, timeout: float | None = None) -> Any:
        """Block until the tool's value arrives; see Client.call().

        timeout: as for result()
        """
        return value_of(self.result(timeout))

    def cancel(self, reason: str | None = None) -> None:
        """Cancel the call; result() raises Cancelled. No effect if it has ended.

        A callback that is answering a question is not interrupted, but its answer is
        not sent.

        reason: for the server's log
        """
        self._is_cancelled = True
        self._pending.cancel(reason)

    def done(self) -> bool:
        """Return whether the latest request has ended: the call is over, or a modern
        server has asked questions, which result() will answer."""
        return self._pending.done()


def encode_arguments(name: str, arguments: Any, misplaced: Json) -> Any:
    """Convert arguments as a server converts its results: dates, paths, dataclasses.
    Raises ToolError, with the place, for a value that has no form in JSON, and TypeError
    for `misplaced` arguments, which should have been in the dict."""
    if misplaced:
        raise TypeError(f"{name}: write the arguments as a dict: {show(misplaced)}")
    try:
        return to_plain(arguments or {})
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolError(f"{name}: {error}") from None


def _with_objects(result: Json, member: str) -> Json:
    """Return the result; if the member is null, with an empty array in its place, as
    some programs write null for that. Raises InvalidResponse unless the member is an
    array of objects."""
    value = result.get(member)
    if isinstance(value, list) and all(isinstance(each, dict) for each in value):
        return result
    if value is None and member in result:
        return {**result, member: []}
    raise InvalidResponse(
        f"{member}: expected an array of objects, got {show(value)}", result
    )


class Listening:
    """A server's notifications of changes, as `Client.listen` returns them.

    An iterator over {"method", "params"}, which blocks for the next notification, and a
    context manager. The iteration ends when this is closed, or the server ends the
    subscription. It raises the reason when the connection ends, when a modern server's
    HTTP stream breaks off, or a session's stream has failed MAX_FAILURES times.

    In the modern era a request opens the subscription, and its notifications carry the
    id of that request (basic/patterns/subscriptions.md). A legacy session has no such
    request: every Listening is passed all notifications, and filters them.

    take: called with each notification, on the reading thread; the default queues it
        for the iterator
    """

    def __init__(
        self, client: Client, kinds: list[str], uris: list[str], take: Callback = None
    ):
        self._client = client
        self._is_modern = client.protocol_version >= FIRST_MODERN
        self._connection = client._require_connection()
        self._uris = uris
        self._methods = [LIST_CHANGES[kind].method for kind in kinds]
        self._pending = PendingRequest(
            self._connection, "subscriptions/listen", on_done=self._end
        )
        self._take = take or self._pending.put
        # Register before sending, so that no notification is missed.
        client._listenings[self] = True
        try:
            if self._is_modern:
                self._open_modern(kinds)
            else:
                # No request is sent; `_pending` ends with the connection.
                self._connection.register(self._pending, self)
                self.subscribe()
                # A server tells of changes once it has taken notifications/initialized,
                # and it answers what we send in order.
                with suppress(*FAILURES):
                    client.ping()
        except BaseException as error:
            # If the connection ended before the request was registered, no other thread
            # calls _end().
            self._end()
            self.close()
            received(error)
            raise

    def subscribe(self) -> None:
        """Subscribe to the resources, in a legacy session. Raises McpError."""
        for uri in self._uris:
            self._client.request("resources/subscribe", {"uri": uri})

    def _open_modern(self, kinds: list[str]) -> None:
        pending = self._pending
        lists = {LIST_CHANGES[kind].member: True for kind in kinds}
        params = {"notifications": {**lists, "resourceSubscriptions": self._uris}}
        params = self._client._endpoint.add_meta(
            params, self._connection.protocol.version
        )
        self._connection.request(pending, params)
        # The first item is the acknowledgement. If it omits a list, the server does not
        # report changes of that list, which is no error. If it omits a resource, the
        # URI may be wrong, so raise one.
        agreed = pending.take(self._client.timeout)
        if pending.error:
            raise pending.error
        granted = member_at(agreed, ["notifications", "resourceSubscriptions"]) or []
        refused = [uri for uri in self._uris if uri not in granted]
        if refused:
            raise NotFound(f"the server does not report {', '.join(refused)}")

    def receive(self, subscription: object, notification: Notification) -> None:
        """Accept a notification if it belongs to this subscription: in the modern era
        by its subscription id, in a session by its method or URI. The reading thread
        calls this.

        subscription: the subscription id in the notification, if there is one
        """
        method, params, row, size = notification
        is_ours = self._pending.id == subscription
        # The changed resource "might be a sub-resource of the one that the client
        # actually subscribed to".
        uri = f"{params.get('uri')}/"
        is_inside = any(uri.startswith(f"{each}/") for each in self._uris)
        is_wanted = is_inside or method in self._methods
        if is_ours and row.acknowledges:
            self._pending.put(params)
        elif is_ours and row.cancels:
            self._connection.resolve(subscription, None, {})
        elif is_ours or (not self._is_modern and is_wanted):
            self._take({"method": method, "params": params}, size)

    def _end(self) -> None:
        # Unregister before logging: a program that sees the warning may subscribe()
        # again at once.
        self._client._listenings.pop(self, None)
        failure = isinstance(self._pending.error, HttpFailure)
        if self._take is do_nothing and (failure or self._pending.answer is not None):
            log_line(
                WARNING,
                f"notifications of {self._uris[0]} have stopped; subscribe again",
            )

    def __iter__(self) -> Iterator[Json]:
        return self

    def __next__(self) -> Json:
        event: Json | None = self._pending.take()
        if event:
            return event
        error = self._pending.error
        if not error or isinstance(error, Cancelled):
            raise StopIteration
        raise received(error)

    def close(self) -> None:
        """Unsubscribe, and end the iteration. Idempotent, from any thread.

        In a legacy session, it blocks until the server answers, for EXIT_SECONDS at
        most for each resource.
        """
        was_open = self._pending.cancel(None)
        if self._is_modern or not was_open:
            return
        others = [each._uris for each in list(self._client._listenings)]
        # Ignore a failure: no Listening accepts this URI any more.
        with suppress(*FAILURES):
            for uri in set(self._uris).difference(*others):
                self._client.request(
                    "resources/unsubscribe", {"uri": uri}, EXIT_SECONDS
                )

    def __enter__(self) -> Listening:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


# The endpoint
class ClientEndpoint(Endpoint):
    """The client's side of its connections: it passes notifications on, and has
    callbacks answer the server's questions.

    Questions of a modern server are answered on the thread that waits for the call,
    those of a session on workers. on_log and on_notification run in order on a thread
    of their own.
    """

    def __init__(self, client: Client, options: Options):
        self._client = client
        self._options = options
        roots = options.roots
        # Roots as on the wire, or a function; None for none.
        self.roots = roots if callable(roots) else encode_roots(roots)
        # The level given to set_log_level(); modern requests carry it.
        self.log_level = ""
        # Name -> tool; None until the list is read, and after it has changed.
        self.tools: dict[str, Json] | None = None
        # Name of a tool -> its compiled outputSchema.
        self.schemas: dict[str, Schema] = {}
        self._strays = BurstLog()

    def connected(self, connection: Connection) -> None:
        """Prepare for a new connection."""
        # This pool of one thread calls on_log and on_notification, so that they run in
        # order.
        self.notifier = Workers("mcp-callbacks", 1)
        # The calls that wait for that thread, each of whose jobs makes the oldest one.
        self._queued_calls = Inbox("notifications")
        connection.strays = self._strays
        self.tools = None

    def header_parameters(self, tool: str) -> Mirrors:
        """Return which parameters of a tool HTTP headers mirror, according to the
        latest list of tools."""
        return header_parameters(member_at(self.tools, [tool, "inputSchema"]))

    def capabilities(self, version: str = NEWEST) -> Json:
        """Return the capabilities to declare: one for each callback that was given.
        Old servers ignore members that their revision does not have. To see what a
        question needs, both sides call needed_capability(), in Questions."""
        options = self._options
        declared: Json = {}
        if options.on_elicit:
            declared["elicitation"] = {"form": {}}
        if options.on_elicit_url:
            declared.setdefault("elicitation", {})["url"] = {}
        if options.on_sample:
            declared["sampling"] = {"tools": {}} if options.sampling_tools else {}
        if self.roots is not None:
            declared["roots"] = {"listChanged": True} if version < FIRST_MODERN else {}
        return add_given(declared, extensions=dict(options.extensions or {}) or None)

    def add_meta(self, params: Json, version: str) -> Json:
        """Add the `_meta` that every modern message carries: basic/index.md#meta."""
        if version < FIRST_MODERN:
            return params
        meta = {
            META_VERSION: version,
            META_CLIENT_INFO: self._client._info,
            META_CAPABILITIES: self.capabilities(version),
        }
        if self.log_level:
            meta[META_LOG_LEVEL] = self.log_level
        return {**params, "_meta": {**meta, **params.get("_meta", {})}}

    # Notifications
    def serve_notification(
        self, connection: Connection, notification: Notification
    ) -> None:
        """Pass a notification on, to the Listenings and to the callbacks."""
        options = self._options
        method, params, row, size = notification
        if method == LIST_CHANGES["tools"].method:
            self.tools = None

        meta = object_or_empty(params.get("_meta"))
        # A server may end a subscription by cancelling the request that opened it.
        subscription = own_id(meta.get(META_SUBSCRIPTION, params.get("requestId")))
        if subscription:
            if subscription not in connection.protocol.pending:
                # It has ended here; the server may not know yet.
                return
            params = {name: value for name, value in params.items() if name != "_meta"}
            notification = notification._replace(params=params)
        for listening in list(self._client._listenings):
            listening.receive(subscription, notification)

        if row.logs and options.on_log:
            call = partial(
                options.on_log, *map(params.get, ("level", "data", "logger"))
            )
        elif options.on_notification and not row.acknowledges:
            call = partial(options.on_notification, method, params)
        else:
            return
        # Queue the call for the thread of callbacks.
        self._queued_calls.put(call, size)
        if len(self.notifier) < MAX_QUEUED:
            self.notifier.submit(self._call_next)

    def _call_next(self) -> None:
        try:
            call = self._queued_calls.get(0.0)
        except Empty:
            # A full Inbox drops its oldest calls, leaving more jobs than calls.
            return
        call()

    # Answering
    def serve_request(self, connection: Connection, request: Request) -> None:
        """Answer a ping, or have a callback answer a session's question."""
        now = time.monotonic()

        def may_concern(pending: PendingRequest) -> bool:
            """Return whether the question may be about this request of ours. Over HTTP,
            the stream that carries the question shows it. On stdio, it may be any
            request that was sent before the question came."""
            if request.subject is not None:
                return request.subject == pending.id
            return pending.began < now

        answer = {}
        try:
            if request.row.capability:
                with connection.answering(may_concern):
                    answer = self.answer(request.method, request.params)
            message = result_message(request.id, answer)
        except McpError as error:
            message = error_message(request.id, error)
        connection.respond(request, message)

    def answer(self, method: str, params: Json) -> Json:
        """Call the callback that answers a question, and check its answer. Every
        failure is an McpError."""
        declared = self.capabilities()
        try:
            needed, _ = needed_capability(method, params, declared)
            check_question(method, params)
        except (ValueError, TypeError) as error:
            raise InvalidParams(f"{method}: {error}") from None
        if not has_capability(declared, needed):
            raise MethodNotFound(f"{method}: {'.'.join(needed)} was not declared")
        try:
            answer = getattr(self, method_row(method).handler)(params)
            return check_answer("a callback", method, params, answer)
        except McpError:
            raise
        except (Exception, SystemExit) as error:
            log_line(ERROR, f"answering {method}: {error_text(error)}", error)
            raise InternalError(
                f"{method}: the client's callback failed: {type(error).__name__}"
            ) from error

    # METHODS names these handlers. Each takes parameters and returns a result.
    def _roots_list(self, params: Json) -> Json:
        roots = self.roots
        if callable(roots):
            roots = encode_roots(roots())
        return {"roots": roots}

    def _sampling_create_message(self, params: Json) -> Json:
        answer = self._options.on_sample(params)
        if isinstance(answer, str):
            answer = {
                "role": "assistant",
                "content": {"type": "text", "text": answer},
                "stopReason": "endTurn",
            }
        if not isinstance(answer, dict):
            raise TypeError(f"on_sample: expected text or a dict, got {show(answer)}")
        return {"model": "unknown", **answer}

    def _elicitation_create(self, params: Json) -> Json:
        name = "on_elicit_url" if params.get("mode") == "url" else "on_elicit"
        answer: Json = getattr(self._options, name)(params) or {"action": "cancel"}
        if not isinstance(answer, dict):
            raise TypeError(f"{name}: expected a dict, got {show(answer)}")
        schema = params.get("requestedSchema")
        if schema is None or answer.get("action") != "accept":
            return {"action": answer.get("action")}
        defaults = {
            name: field["default"]
            for name, field in schema["properties"].items()
            if "default" in field
        }
        return {**answer, "content": {**defaults, **(answer.get("content") or {})}}


# Targets
class _DirectTransport(Transport):
    """Carries messages to another connection in this process."""

    feeds = True

    def __init__(self, peer: Connection):
        self._peer = peer

    def write(self, data: bytes) -> None:
        self._peer.feed(data)


class MemoryTransport(_DirectTransport):
    """Carries a client's messages to a server in this process, and its answers back."""

    _peer: Any = None

    def __init__(self, server: Server):
        self._server = server

    def start(self, connection: Connection) -> None:
        self._peer = self._server.connect(_DirectTransport(connection))

    def close(self) -> None:
        if self._peer is not None:
            self._server.disconnect(self._peer, EXIT_SECONDS)


def read_target(target: Any) -> Any:
    """Turn a client's target into {"url", "headers"}, {"command", "env", "cwd"} or a
    Transport. Raises TypeError and ValueError."""
    if isinstance(target, Mapping):
        if target.get("url"):
            return {"url": str(target["url"]), "headers": target.get("headers")}
        if "command" in target:
            command = target["command"]
            arguments = target.get("args") or []
            if isinstance(arguments, str) or isinstance(command, (list, tuple)):
                raise ValueError(
                    'target: expected {"command": "program", "args": ["word", ...]}, '
                    "or a list of all words"
                )
            return {**target, "command": _words([command, *arguments])}
    if isinstance(target, (str, os.PathLike)):
        text = os.fspath(target).strip()
        if re.match("(?i)https?:", text):
            return {"url": text}
        if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://|[\w.-]+:\d+(/|$)", text):
            raise ValueError(
                f"target: expected http://... or https://..., got {show(text)}"
            )
        return {"command": split_command(text)}
    if isinstance(target, (Transport, Server)):
        return target
    if isinstance(target, tuple) and hasattr(target[0], "read"):
        return StreamTransport(*target)
    if isinstance(target, (list, tuple)):
        return {"command": _words(target)}
    raise TypeError(
        "target: expected a URL, a command, a script, a dict with a url or a command, "
        f"a Server or (reader, writer), got {type(target).__name__}"
    )


def _words(command: Iterable[Any]) -> list[str]:
    """Return the words of a command, with ~/ expanded. A .py file is run by the Python
    that runs this module."""
    words = [os.path.expanduser(str(word)) for word in command]
    if not words or not words[0]:
        raise ValueError("target: expected a URL, a script or a command, got nothing")
    if words[0].endswith(".py"):
        return [_python(), os.path.abspath(words[0]), *words[1:]]
    return words


def split_command(text: str) -> list[str]:
    """Return the command that runs a script, a program or a command line."""
    if os.path.exists(os.path.expanduser(text)):
        return _words([text])
    import shlex

    if os.name == "nt":
        # On Windows, a backslash is part of a path.
        text = text.replace("\\", "\\\\")
    return _words(shlex.split(text))


def _python() -> str:
    """Return the path of this Python, or "python3" if it is unknown. Inside a host
    program, sys.executable may name the host, or a file that does not exist."""
    program = os.path.basename(sys.executable or "").lower()
    if re.search("python|pypy", program) and os.path.exists(sys.executable):
        return sys.executable
    return "python3"


# The public face
class Client:
    """An MCP client with blocking calls: `with Client("server.py") as client: ...`.

    It speaks every revision; "auto" finds out which one the server speaks. Its calls
    block; once connect() has returned, any thread may make them. They raise McpError,
    ToolError, Timeout, Cancelled, ConnectionClosed and HttpFailure: ToolError also for
    arguments that JSON cannot express; and TypeError or ValueError for a call that is
    wrong in itself. `timeout` and `total_timeout` may be set to another number of
    seconds at any time.

    `server_info`, `server_capabilities` and `instructions` are the server's description
    of itself, unverified.
    """

    _connection: Connection | None = None
    # The process that has connected. The child of a fork has none of its threads.
    _process = 0

    def __init__(
        self,
        target: Any,
        *,
        timeout: float | None = 60.0,
        total_timeout: float | None = None,
        headers: Headers | Callable[[], Headers] | None = None,
        auth: OAuth | Callback = None,
        env: dict[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        protocol_version: str = "auto",
        name: str = "mcp_lite",
        version: str = __version__,
        roots: Any = None,
        on_elicit: Callback = None,
        on_elicit_url: Callback = None,
        on_sample: Callback = None,
        sampling_tools: bool = False,
        on_log: Callback = None,
        on_progress: Callback = None,
        on_notification: Callback = None,
        validate: bool = True,
        trace: _Trace = None,
        stderr: Callable[[str], Any] | bool | None = True,
        ssl_context: SSLContext | None = None,
        extensions: Json | None = None,
        result_types: dict[str, Callable[[Call, Json], Json]] | None = None,
    ):
        """Describe a connection, which `with` or connect() opens. Raises TypeError and
        ValueError for a wrong target, revision or list of roots.

        target: the server: a URL; "server.py" or a command line; a command as a list;
            {"url":, "headers":} or {"command":, "args":, "env":, "cwd":}; a Server in
            this process; (reader, writer), two binary streams; or an instance of a
            Transport class of your own. A leading ~/ is the home folder
        timeout: seconds for connecting, and for each request; None for no limit. A
            progress notification restarts the time of its request. In a session,
            requests do not time out while a callback is answering a question
        total_timeout: seconds for a whole call, with its questions and progress; None,
            or 0, for no limit. A callback that is answering a modern server's question
            is not interrupted: the call ends after it
        headers: for every HTTP request: a dict, or a function that returns one, called
            for each request
        auth: how to log in over HTTP: an OAuth; or auth(challenge), which is called
            with the parameters of WWW-Authenticate when the server asks for a login. It
            returns headers for the requests from then on, or None
        env: variables for a child process, such as a key that it needs. It inherits
            HOME, PATH, LANG and the like, but no keys or tokens; env=dict(os.environ)
            passes all variables
        cwd: the folder in which a child process runs, and to which its paths are
            relative. Only the path of a target script is relative to the folder of
            this process
        protocol_version: the one revision to speak, or "auto"
        name: the name of this client
        version: the version of this client, not of the protocol
        roots: the folders that the server may work in: a list of paths, file: URIs, or
            {"uri":, "name":}; or a function that returns one. When its result changes,
            call notify("notifications/roots/list_changed") in a session. 2026-07-28
            deprecates roots, on_sample and on_log: new servers do without them
        on_elicit: on_elicit(params) asks the user, and returns {"action":, "content":},
            to which the form's defaults are added, or None for "cancel"
        on_elicit_url: on_elicit_url(params) shows the user params["url"], and returns
            {"action":}, or None for "cancel"
        on_sample: on_sample(params) asks a model, and returns its text, or a result as
            on the wire
        sampling_tools: whether on_sample can offer params["tools"] to the model
        on_log: on_log(level, data, logger) is called with each log message
        on_progress: on_progress(progress, total, message) is called for calls without
            an on_progress of their own
        on_notification: on_notification(method, params) is called with all other
            notifications
        validate: whether a tool's structured results must match its outputSchema
        trace: shows every message. A function trace(direction, line) is called with
            "-->" for messages to the server, "<--" for messages from it, and bytes.
            True prints one line for each message to stderr. A path names a file to
            which messages are appended. The default is the variable MCP_LITE_TRACE,
            "1" for True; False disables the trace
        stderr: the destination of the lines that a child process writes to its stderr.
            True prints them to this process's stderr, with the name of the script as
            a prefix, "[server.py] ". A function stderr(line) is called with each line,
            on a thread of its own. None drops them. ConnectionClosed and Timeout quote
            the last lines in any case
        ssl_context: an ssl.SSLContext, for https
        extensions: the extensions to declare, with their settings:
            {"com.example/thing": {}}; request() and notify() send their messages
        result_types: for extensions, {"task": fn}: fn(call, result) turns a result of
            this `resultType` into the final one, on the thread that waits for it.
            `call` has `client`, `method`, `params` and check_open()

        The client declares the capabilities for `roots`, `on_elicit`, `on_elicit_url`
        and `on_sample` that are given. In a session these callbacks run on workers, and
        their exceptions reach the server as errors. For a call to a modern server they
        run in the thread that waits, and their exceptions end that call with
        InternalError. In both cases they may call the client. on_log and
        on_notification share a thread of their own, and run in order; on_progress runs
        in the thread that waits for the result.
        """
        # The options, as documented above.
        self._options = Options(locals())
        # Waiting functions reject infinity.
        limit = INFINITY if timeout is None else timeout
        self.timeout = min(limit, LONGEST_WAIT)
        self.total_timeout = total_timeout
        self.result_types = result_types or {}
        self._target = read_target(target)
        if protocol_version not in ("auto", *SPOKEN):
            raise ValueError(
                f"protocol_version: expected auto or one of {', '.join(SPOKEN)}, "
                f"got {show(protocol_version)}"
            )
        self._wanted_version = protocol_version
        self._info = {"name": name, "version": version}
        self._trace = tracer(trace)
        self._endpoint = ClientEndpoint(self, self._options)
        # The open subscriptions. Each operation on this dict is atomic.
        self._listenings: dict[Listening, bool] = {}
        # Those that subscribe() has opened, by URI.
        self._subscriptions: dict[str, Listening] = {}
        # The thread that connects holds this.
        self._connecting = threading.Lock()
        self._set_server_info({})

    def _set_server_info(self, result: Json) -> None:
        """Set the server's description of itself, from a result of either era."""
        meta = object_or_empty(result.get("_meta"))
        info = result.get("serverInfo", meta.get(META_SERVER_INFO))
        self.server_info = object_or_empty(info)
        self.server_capabilities = object_or_empty(result.get("capabilities"))
        self.instructions: str | None = result.get("instructions")

    # Connecting and ending
    def connect(self) -> Client:
        """Reach the server, and agree on a revision. Returns this client.

        Blocks for `timeout` at most, and a second or two more to end a child, or a
        connection, that does not answer; the time of a user's login does not count.
        After close(), or when the server has ended, it connects again. Raises
        RuntimeError if it is connected already; else ConnectionClosed, Timeout,
        HttpFailure, UnsupportedVersion, and any other McpError with which the server
        answers. A thread that finds another one connecting waits for that.
        """
        with self._connecting:
            if self._is_connected():
                raise RuntimeError("the client is connected already: go on calling")
            self._connect()
        return self

    def _connect(self) -> None:
        self.close()
        self._connect_until = time.monotonic() + self.timeout
        try:
            self._open(self._wanted_version)
        except ConnectionClosed as error:
            # Some old servers exit if any message precedes `initialize`, and few say
            # why. error.command is set for child processes only.
            is_old = error.command and not re.match(_OTHER_FAILURE, error.stderr)
            if self._wanted_version != "auto" or not is_old:
                raise
            self._open(LAST_LEGACY)
        self._renew_session()

    def close(self) -> None:
        """End the connection, and the child process if there is one. Waiting calls
        raise ConnectionClosed.

        Idempotent, from any thread. Blocks until requests in flight are cancelled and
        callbacks have ended, for a few seconds at most.
        """
        # Take it in one step, so that only one thread closes it.
        connection = vars(self).pop("_connection", None)
        if not connection or self._process != os.getpid():
            # In the child of a fork, the connection is still the parent's.
            return
        closed = ConnectionClosed("the client is closed")
        try:
            connection.cancel_pending(closed)
            connection.outbox.drain(TIDY_SECONDS)
        finally:
            connection.close(closed)
            connection.transport.close()
        connection.workers.close(EXIT_SECONDS)
        # Calls of callbacks that are already queued still run.
        self._endpoint.notifier.close(EXIT_SECONDS)

    def flush_callbacks(self, timeout: float | None = None) -> bool:
        """Block until on_log and on_notification have been called with all that has
        arrived.

        Returns False if they have not been within `timeout`. Do not call this method
        from a callback, which would wait for itself. Raises ConnectionClosed before
        connect() and after close(), which also waits for the callbacks.

        timeout: in seconds; None for no limit
        """
        self._require_connection()
        is_done = threading.Event()
        # Jobs run in order: this is the last one.
        return self._endpoint.notifier.submit(is_done.set) and is_done.wait(timeout)

    def __enter__(self) -> Client:
        with self._connecting:
            if not self._is_connected():
                self._connect()
        return self

    def _is_connected(self) -> bool:
        connection = self._connection
        is_ours = self._process == os.getpid()
        return connection is not None and connection.reason is None and is_ours

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _open(self, version: str) -> None:
        """Open a connection, and agree on a revision."""
        transport = self._open_transport()
        # An HTTP transport takes messages; any other transport takes lines.
        outbox = transport if isinstance(transport, Outbox) else LineOutbox(transport)
        connection = Connection(
            Protocol("client", self._endpoint.capabilities),
            self._endpoint,
            outbox,
            Workers("mcp-client", MAX_WORKERS),
            transport=transport,
            trace=self._trace,
        )
        self._endpoint.connected(connection)
        self._process = os.getpid()
        self._connection = connection
        try:
            transport.start(connection)
            if not transport.feeds:
                start_thread("mcp-reader", self._read, connection)
            self._set_server_info(self._negotiate(connection, version))
        except BaseException as error:
            self.close()
            received(error)
            raise

    def _open_transport(self) -> Transport:
        """Return the transport that carries messages to the target."""
        target = self._target
        if isinstance(target, Transport):
            return target
        if isinstance(target, Server):
            return MemoryTransport(target)
        if "command" in target:
            env = inherited_environment()
            env.update(target.get("env") or {})
            env.update(self._options.env or {})
            return Child(
                target["command"],
                env,
                self._options.cwd or target.get("cwd"),
                self._options.stderr,
            )
        return self._open_url(target)

    def _open_url(self, target: Json) -> Transport:
        from http.cookiejar import CookieJar

        caller = HttpCaller(
            target["url"],
            partial(self._all_headers, target.get("headers") or {}),
            authorizer_for(self._options.auth),
            self._options.ssl_context,
            self.timeout,
        )
        # Cookies last as long as this client.
        caller.jar = vars(self).setdefault("_jar", CookieJar())
        return LegacyHttp(caller, self._set_server_info, self._renew_session)

    def _all_headers(self, headers: Headers) -> Headers:
        more = self._options.headers
        if callable(more):
            more = self._options.headers()
        return {**headers, **(more or {})}

    def _renew_session(self) -> None:
        """Restore the log level and the subscriptions in a new session."""
        # A failure here must not prevent the subscriptions from being renewed.
        with suppress(*FAILURES):
            if self._endpoint.log_level:
                self.set_log_level(self._endpoint.log_level)
        for listening in list(self._listenings):
            try:
                listening.subscribe()
            except FAILURES as error:
                # End its iteration with this error.
                listening._pending.cancel(None, error)
        # "the client MUST re-send subscriptions/listen": basic/patterns/subscriptions.md.
        for uri in list(self._subscriptions):
            try:
                self.subscribe(uri)
            except FAILURES as error:
                log_line(WARNING, f"notifications of {uri} have stopped: {error}")

    def _read(self, connection: Connection) -> None:
        """Read until the input ends, then close the connection. The reading thread runs
        this."""
        end = ConnectionClosed("the reading thread failed")
        try:
            connection.read_all()
            end = connection.transport.describe_end(connection.why_ended)
        finally:
            connection.close(end)

    # Agreeing on a revision: basic/versioning.md, basic/lifecycle.md of the legacy ones
    #
    #     server/discover --a result--> modern
    #         |--an error, or only legacy revisions--> initialize --> a session
    #         '--silence for PROBE_SECONDS--> initialize, too: the first answer decides
    #
    # With protocol_version=, only the steps that can lead to that revision are taken.
    def _negotiate(self, connection: Connection, wanted: str) -> Json:
        """Agree on a revision. Returns the server's description of itself."""
        if wanted in LEGACY_VERSIONS:
            return self._shake_hands(connection, wanted)
        until = self._connect_until
        if wanted == "auto":
            now = time.monotonic()
            until = min(now + PROBE_SECONDS, (now + until) / 2)
        hello = PendingRequest(connection, "initialize")
        # If the answer to `discover` is late, it wakes the thread that waits for
        # `hello` by then: see _ask().
        discover = PendingRequest(
            connection, "server/discover", on_done=lambda: hello.put(discover)
        )
        try:
            version, result = self._probe(wanted, until, discover)
            # Only a login can have taken longer than `until`. Its time does not count.
            self._connect_until += max(0.0, time.monotonic() - until)
        except Timeout:
            if wanted != "auto":
                raise
            return self._negotiate_late(connection, hello, discover)
        if version in LEGACY_VERSIONS:
            return self._shake_hands(connection, version)
        if not result:
            # The server has refused the newest revision, and named this one.
            discover = PendingRequest(connection, "server/discover")
            _, result = self._probe(version, self._connect_until, discover)
        connection.protocol.version = version
        return result

    def _negotiate_late(
        self, connection: Connection, hello: PendingRequest, discover: PendingRequest
    ) -> Json:
        """Agree on a revision with a server that has not answered `discover` in time.
        If it answers `discover` before `hello`, it is modern, and was only slow to
        start."""
        try:
            # "If the server does not respond [...], the server is legacy".
            return self._shake_hands(connection, LAST_LEGACY, hello)
        except UnsupportedVersion:
            # The server has turned out to be modern.
            return self._negotiate(connection, NEWEST)
        finally:
            discover.cancel("no longer needed")

    def _probe(
        self, wanted: str, until: float, discover: PendingRequest
    ) -> tuple[str, Json]:
        """Send `discover`. Returns the revision to speak, and the result or {}."""
        version = NEWEST if wanted == "auto" else wanted
        params = self._endpoint.add_meta({}, version)
        # "any other error [...]: the server is legacy".
        offered = list(LEGACY_VERSIONS)
        result = {}
        try:
            result = self._ask(discover, params, until)
            offered = result.get("supportedVersions", offered)
        except UnsupportedVersion as error:
            offered = object_or_empty(error.data).get("supported", offered)
        except (HeaderMismatch, MissingCapability):
            # Only modern servers know these two.
            raise
        except McpError:
            pass  # the server is legacy
        except HttpFailure as error:
            # "the modern request returns a 4xx without a recognized modern error body,
            # and the client falls back to initialize". Some fail with a 500, too.
            if wanted != "auto" or error.http_status in (None, 401):
                raise
        if result.get("resultType", "complete") != "complete":
            raise InvalidResponse("server/discover: an unknown resultType", result)
        return self._choose_version(offered, SPOKEN), result

    def _shake_hands(
        self, connection: Connection, version: str, hello: PendingRequest | None = None
    ) -> Json:
        """Open a session by `initialize`, which `hello` sends. Returns the result."""
        hello = hello or PendingRequest(connection, "initialize")
        params = {
            "protocolVersion": version,
            "clientInfo": self._info,
            "capabilities": self._endpoint.capabilities(version),
        }
        try:
            result = self._ask(hello, params, self._connect_until)
        except (
            MethodNotFound,
            InvalidParams,
            HeaderMismatch,
            UnsupportedVersion,
        ) as error:
            supported = member_at(error.data, ["supported"])
            if isinstance(supported, list) and version not in supported:
                # lifecycle: "Unsupported protocol version" may be an error, too.
                version = self._choose_version(supported, LEGACY_VERSIONS)
                return self._shake_hands(connection, version)
            # A modern server does not know `initialize`, or wants `_meta` with it.
            raise UnsupportedVersion(
                f"the server does not speak {version}: {error.message}", error.data
            ) from error
        connection.protocol.version = self._choose_version(
            result.get("protocolVersion"), LEGACY_VERSIONS
        )
        connection.protocol.initialized = True
        connection.notify("notifications/initialized", None)
        return result

    def _ask(self, pending: PendingRequest, params: Json, until: float) -> Json:
        """Send a request that opens a conversation, and block for its result. A Timeout
        leaves the request open. Raises UnsupportedVersion if an earlier server/discover
        gets its result first: the server is modern."""
        pending.limit = self.timeout
        pending._connection.request(pending, params)
        while True:
            late = pending.take(until - time.monotonic())
            if late is None:
                break
            if late.answer is not None:
                raise UnsupportedVersion("the server is modern")
        if pending.error:
            raise pending.error
        return pending.answer or {}

    def _choose_version(self, offered: Any, spoken: tuple[str, ...]) -> str:
        """Choose the newest revision that is offered, spoken and wanted. Raises
        UnsupportedVersion."""
        if not isinstance(offered, list):
            offered = [offered]
        wanted = [each for each in spoken if self._wanted_version in ("auto", each)]
        for version in reversed(wanted):
            if version in offered:
                return version
        # "If the client does not support the version in the server's response, it
        # SHOULD disconnect."
        raise UnsupportedVersion(
            f"the server speaks {show(offered)}, this client {', '.join(wanted)}",
            {"supported": offered, "requested": self._wanted_version},
        )

    @property
    def protocol_version(self) -> str:
        """Return the revision in use. Raises ConnectionClosed without a connection."""
        return self._require_connection().protocol.version

    def _require_connection(self) -> Connection:
        connection = self._connection
        if not connection or not connection.protocol.version:
            raise ConnectionClosed(
                "the client is not connected; use `with client:` or client.connect()"
            )
        if self._process != os.getpid():
            raise ConnectionClosed(
                "this process is a fork, and the connection is its parent's; call "
                "client.connect() here"
            )
        return connection

    # Requests
    def request(
        self, method: str, params: Json | None = None, timeout: float | None = None
    ) -> Json:
        """Send any request, and block for its result, as on the wire.

        method: of this protocol, or an extension's, whose results are not checked
        params: as on the wire; the `_meta` of every request is added
        timeout: in seconds; the default is the client's

        Raises MethodNotFound if the server does not offer the method, the McpError with
        which the server answers, InvalidResponse for an unknown resultType, Timeout,
        ConnectionClosed, HttpFailure.
        """
        return self._start(method, params).result(timeout)

    def answer(self, method: str, params: Json) -> Json:
        """Have this client's callbacks answer a question inside a result.

        method: such as "elicitation/create"
        params: as on the wire

        Returns the answer, as on the wire. Raises McpError on failure; send the server
        that error as the answer.
        """
        return self._endpoint.answer(method, params)

    def notify(self, method: str, params: Json | None = None) -> None:
        """Send any notification.

        method: of this protocol, or an extension's
        params: as on the wire; the `_meta` of every modern message is added
        """
        params = self._endpoint.add_meta(params or {}, self.protocol_version)
        self._require_connection().notify(method, params)

    def ping(self, timeout: float | None = None) -> None:
        """Raise unless the server answers.

        timeout: in seconds; the default is the client's
        """
        is_modern = self.protocol_version >= FIRST_MODERN
        self.request("server/discover" if is_modern else "ping", timeout=timeout)

    def set_log_level(self, level: str) -> None:
        """Ask the server for log messages, which are passed to on_log. Deprecated since
        2026-07-28, and still spoken. Raises ValueError, and in a session MethodNotFound
        if the server declares no logging.

        level: the lowest to send: one of LOG_LEVELS, "debug" to "emergency"
        """
        if level not in LOG_LEVELS:
            raise ValueError(f"level: {LEVELS_TEXT}, got {show(level)}")
        if self.protocol_version < FIRST_MODERN:
            self.request("logging/setLevel", {"level": level})
        # Modern: each later request carries it.
        self._endpoint.log_level = level

    def _start(
        self,
        method: str,
        params: Json | None,
        on_progress: Callback = None,
        check: Callable[[Json], Json] = dict,
    ) -> Call:
        """Send a request. Raises MethodNotFound if the server does not offer it."""
        version = self.protocol_version
        # UNKNOWN, for an extension's method, forbids nothing: the server decides.
        row = METHODS.get(method, UNKNOWN)
        why = ""
        # The first revision had no capability for completion.
        is_exempt = version == OLDEST and row.capability == ("completions",)
        is_declared = has_capability(self.server_capabilities, row.capability)
        if not row.is_in(version):
            why = f"{method} is not in {version}"
        elif not is_declared and not is_exempt:
            why = f"{method}: the server did not declare {'.'.join(row.capability)}"
        if why:
            raise received(MethodNotFound(why))
        on_progress = on_progress or self._options.on_progress
        params = self._endpoint.add_meta(params or {}, version)
        return Call(self, method, params, on_progress, check)

    # The server's features
    def call(self, name: str, given: Json | None = None, /, **arguments: object) -> Any:
        """Call a tool for its value: structured content, else text, else blocks.

        name: the name of the tool
        given: arguments as a dict, for names that are not Python identifiers
        arguments: the arguments, as in JSON

        The client's `timeout` applies. For another one, or for progress, use
        call_tool(), or start_call(name, arguments).value(timeout).

        Raises ToolError, with the tool's text, if the tool failed, and the exceptions
        of call_tool().
        """
        return self.start_call(name, {**(given or {}), **arguments}).value()

    def call_tool(
        self,
        name: str,
        arguments: Json | None = None,
        timeout: float | None = None,
        on_progress: Callback = None,
        meta: Json | None = None,
        **misplaced: object,
    ) -> Json:
        """Call a tool for its result: {"content", "structuredContent", "isError"}.

        name: the name of the tool
        arguments: the arguments, as in JSON
        timeout: in seconds; the default is the client's
        on_progress: on_progress(progress, total, message) runs in this thread; the
            default is the client's
        meta: the request's `_meta`, to which the members of every request are added

        See server/tools.md. Raises NotFound, InvalidParams and Timeout. Raises
        InvalidResponse, whose `data` is the result, if the tool's outputSchema forbids
        the structured result, or if checking it would take too much work. If the
        outputSchema is invalid, the result is not checked, and a warning is logged.
        """
        return self.start_call(
            name, arguments, on_progress=on_progress, meta=meta, **misplaced
        ).result(timeout)

    def start_call(
        self,
        name: str,
        arguments: Json | None = None,
        *,
        on_progress: Callback = None,
        meta: Json | None = None,
        **misplaced: object,
    ) -> Call:
        """Start a tool call, and return a future for its result.

        A modern server's questions are answered while a thread waits in result() or
        value(). Over HTTP to a modern server, this blocks until the list of tools is
        read, unless it is known.

        name: the name of the tool
        arguments: the arguments, as in JSON
        on_progress: on_progress(progress, total, message) runs in result(); the default
            is the client's
        meta: the request's `_meta`, to which the members of every request are added
        """
        plain = encode_arguments(name, arguments, misplaced)
        params = add_given({"name": name, "arguments": plain}, _meta=meta)
        is_modern = self.protocol_version >= FIRST_MODERN
        mirrors = is_modern and self._require_connection().transport.mirrors
        if mirrors and arguments and self._endpoint.tools is None:
            # The list says which arguments HTTP headers mirror.
            with suppress(*FAILURES):
                self.list_tools()
        return self._start(
            "tools/call", params, on_progress, partial(self._check_result, name)
        )

    def list_tools(self) -> list[Json]:
        """Return every tool, of all pages: [{"name", "inputSchema", ...}].

        The list is empty if the server does not declare tools. A tool that has no name,
        or declares its headers wrongly, is left out, and a warning is logged. The
        client's `timeout` is for all pages together.
        """
        tools = []
        for tool in self._read_list("tools/list"):
            try:
                if "name" not in tool:
                    raise ValueError("it has no name")
                header_parameters(tool.get("inputSchema"))
                tools.append(tool)
            except ValueError as error:
                # Over HTTP, a client "MUST exclude the invalid tool"; elsewhere it may.
                log_line(
                    WARNING, f"the tool {show(tool.get('name'))} is left out: {error}"
                )
        self._endpoint.tools = {str(tool.get("name")): tool for tool in tools}
        # Each schema is compiled when it is first used.
        self._endpoint.schemas = {}
        return tools

    def list_resources(self) -> list[Json]:
        """Return every resource: [{"uri", "name", ...}]. See also list_tools()."""
        return self._read_list("resources/list")

    def list_resource_templates(self) -> list[Json]:
        """Return every template: [{"uriTemplate", "name", ...}].

        See also list_tools().
        """
        return self._read_list("resources/templates/list")

    def list_prompts(self) -> list[Json]:
        """Return every prompt: [{"name", "arguments", ...}]. See also list_tools()."""
        return self._read_list("prompts/list")

    def read_resource(self, uri: str) -> Json:
        """Read a resource: {"contents": [{"uri", "mimeType", "text" or "blob"}]}.

        uri: the URI of the resource, as listed, or made from a template

        Raises NotFound.
        """
        return _with_objects(self.request("resources/read", {"uri": uri}), "contents")

    def read(self, uri: str) -> str | bytes:
        """Return a resource's text, or its bytes.

        If there are several contents, their texts are joined. If none is a text, the
        bytes of the first one are returned.

        uri: the URI of the resource, as listed, or made from a template

        Raises NotFound.
        """
        result = self.read_resource(uri)
        contents = result["contents"]
        texts = [item["text"] for item in contents if isinstance(item.get("text"), str)]
        if texts or not contents:
            return "".join(texts)
        try:
            return parse_any_base64(str(contents[0].get("blob") or ""))
        except ValueError as error:
            raise InvalidResponse(f"{uri}: blob: {error}", result) from None

    def get_prompt(
        self, name: str, arguments: Json | None = None, **misplaced: object
    ) -> Json:
        """Get a filled-in prompt: {"description", "messages": [{"role", "content"}]}.

        name: the name of the prompt
        arguments: its arguments; all but texts are sent as their JSON

        Raises NotFound, InvalidParams.
        """
        plain = encode_arguments(name, arguments, misplaced)
        params = {
            "name": name,
            "arguments": {each: encode_text(plain[each]) for each in plain},
        }
        return _with_objects(self.request("prompts/get", params), "messages")

    def complete(
        self,
        ref: str | Json,
        argument: str,
        value: str,
        context: dict[str, str] | None = None,
    ) -> list[str]:
        """Return completions of an argument: server/utilities/completion.md.

        ref: a prompt's name, a URI template, or {"type":, ...} as on the wire
        argument: the name of the argument
        value: the text so far
        context: the other arguments, as far as they are known
        """
        if isinstance(ref, str):
            # The name of a prompt may have a colon.
            if "{" in ref or "://" in ref:
                ref = {"type": "ref/resource", "uri": ref}
            else:
                ref = {"type": "ref/prompt", "name": ref}
        params = {"ref": ref, "argument": {"name": argument, "value": value}}
        if context is not None:
            params["context"] = {"arguments": context}
        result = self.request("completion/complete", params)
        values = member_at(result, ["completion", "values"])
        if not isinstance(values, list):
            raise InvalidResponse(
                f"completion: expected values, got {show(values)}", result
            )
        return values

    def _read_list(self, method: str) -> list[Json]:
        """Read all pages of a list: server/utilities/pagination.md. The list is empty
        if the server does not declare or implement it: many servers have resources,
        but no list of templates."""
        member = method_row(method).paged
        items: list[Json] = []
        cursors = []
        cursor = None
        until = time.monotonic() + self.timeout
        while len(items) <= MAX_ITEMS:
            try:
                call = self._start(method, add_given({}, cursor=cursor))
                call._pending.limit = self.timeout
                result = call.result(until - time.monotonic())
            except MethodNotFound:
                return items
            page = _with_objects(result, member)[member]
            # "an empty string is a valid cursor"
            cursor = result.get("nextCursor")
            if cursor in cursors:
                log_line(WARNING, f"{method}: stops, as the server repeats a cursor")
                # A server that ignores cursors sends its only page again and again.
                return items + [item for item in page if item not in items]
            items += page
            if cursor is None:
                return items
            cursors.append(cursor)
        raise InvalidResponse(f"{method}: more than {MAX_ITEMS} items")

    def _check_result(self, tool: str, result: Json) -> Json:
        """Return a tool's result. Raises InvalidResponse if it has no content, or the
        tool's outputSchema forbids it. An extension's result is not checked."""
        if (result.get("resultType") or "complete") != "complete":
            return result
        if "structuredContent" in result:
            # Some servers leave `content` out then.
            result = {"content": None, **result}
        result = _with_objects(result, "content")
        if not self._options.validate or result.get("isError"):
            return result
        try:
            if self._endpoint.tools is None and "structuredContent" in result:
                self.list_tools()
            errors = self._errors_of(tool, result)
            if errors:
                # The server may have changed the schema since.
                self.list_tools()
                errors = self._errors_of(tool, result)
        except FAILURES as error:
            # The tool has run, so return its result, even unchecked.
            log_line(WARNING, f"a result is not checked: {error_text(error)}")
            return result
        if errors:
            raise InvalidResponse(
                f"{tool}: the result does not match its outputSchema: "
                f"{'; '.join(errors)}",
                result,
            )
        return result

    def _errors_of(self, tool: str, result: Json) -> list[str]:
        """Check a result against the tool's outputSchema in the latest list. Returns
        the error texts."""
        schemas = self._endpoint.schemas
        if tool not in schemas:
            try:
                wanted = member_at(self._endpoint.tools, [tool, "outputSchema"])
                # The program may change its list of tools.
                schemas[tool] = Schema(to_plain(object_or_empty(wanted)))
            except (ValueError, RecursionError) as error:
                # An old draft, say. Log this once, not at each call.
                log_line(WARNING, f"{tool}: results are not checked: {error}")
                schemas[tool] = Schema({})
        schema = schemas[tool]
        if schema.root and "structuredContent" not in result:
            return ["structuredContent: expected, but missing"]
        return schema.errors(result.get("structuredContent"))

    # Changes
    def subscribe(self, uri: str) -> None:
        """Have on_notification called whenever a resource changes. Blocks until the
        server agrees.

        uri: the URI of the resource

        If a modern server ends the subscription, or a session's stream fails for long,
        a warning is logged; to renew it, call subscribe() again. Raises the exceptions
        of listen().
        """
        if self._subscriptions.get(uri) not in self._listenings:
            # on_notification is called with every notification, so this Listening need
            # not queue any.
            self._subscriptions[uri] = Listening(self, [], [uri], do_nothing)

    def unsubscribe(self, uri: str) -> None:
        """End a subscription that subscribe() opened. A no-op if there is none.

        uri: the URI of the resource
        """
        begun = self._subscriptions.pop(uri, None)
        if begun:
            begun.close()

    def listen(
        self,
        tools: bool = True,
        prompts: bool = True,
        resources: bool = True,
        uris: Iterable[str] = (),
    ) -> Listening:
        """Listen for changes. Returns an iterator over {"method", "params"}. Blocks
        until the server agrees.

        Lists whose changes the server does not report are left out. Raises NotFound, or
        MethodNotFound, if it does not report the changes of one of the resources.

        tools: whether to listen to changes of the list of tools
        prompts: the same for the list of prompts
        resources: the same for the list of resources
        uris: the resources whose changes to listen to
        """
        wanted = {"tools": tools, "prompts": prompts, "resources": resources}
        return Listening(self, [kind for kind in LIST_CHANGES if wanted[kind]], [*uris])


###############################################################################
# 16. HTTP messages ###########################################################
###############################################################################

# This section parses and encodes the parts of HTTP messages: a request's head, the
# sizes of chunks, the events of a stream, and the headers that repeat parts of the body
# for gateways (basic/transports/streamable-http.md). It opens no connection.

MAX_HEAD = 64 << 10  # bytes of a head
# "Integer values MUST be within the safe range for JavaScript": programs that store
# integers as floats lose digits of larger ones.
MAX_INTEGER = 2**53 - 1
MAX_EVENT_ID = 1 << 10  # bytes of an event's id

# The requests of the Tasks extension (SEP-2663) whose `taskId` Mcp-Name mirrors.
_TASK_METHODS = ("tasks/get", "tasks/update", "tasks/cancel")


def media_type(headers: Any) -> str:
    """Return the media type of a body in lower case, without parameters, or ""."""
    return str(headers.get("content-type", "")).partition(";")[0].strip().lower()


def mirrored_headers(message: Json, parameters: Callable[[str], Any]) -> Json:
    """Return the headers that mirror a message, {name: value}. A value that the message
    does not have is None.

    parameters: parameters(tool) returns the header_parameters() of a tool
    """
    method = message.get("method")
    row = method_row(method)
    params = object_or_empty(message.get("params"))
    headers = {"Mcp-Method": method}
    mirrored = "taskId" if method in _TASK_METHODS else row.mirrored
    if mirrored:
        headers["Mcp-Name"] = params.get(mirrored)
    if row.mirrors_arguments:
        for path, header in parameters(str(headers["Mcp-Name"])):
            headers[f"Mcp-Param-{header}"] = member_at(params, ["arguments", *path])
    return headers


# Printable ASCII without a space at either end is sent unencoded, unless it looks like
# an encoded value.
_PLAIN_VALUE = r"([!-~]([\t -~]*[!-~])?)?"
_INTEGER_VALUE = r"(-?(?:0|[1-9][0-9]{0,15}))(?:\.0+)?"


def encode_header(value: object) -> str | None:
    """Encode a value for a header. Returns None if no header can mirror it.

    See basic/transports/streamable-http.md#value-encoding.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    is_unsafe = isinstance(value, int) and abs(value) > MAX_INTEGER
    if is_unsafe or not isinstance(value, (str, int)):
        return None
    text = encode_text(value)
    if re.fullmatch(_PLAIN_VALUE, text) and not text.startswith("=?base64?"):
        return text
    return f"=?base64?{_base64(text.encode('utf-8'))}?="


def is_mirrored(text: str, value: object) -> bool:
    """Return whether the text of a mirroring header stands for this value."""
    if text.startswith("=?base64?") and text.endswith("?="):
        try:
            text = _parse_base64(text[9:-2]).decode()
        except ValueError:
            return False
    # "Header field values must consist of visible ASCII characters".
    elif not text.isascii():
        return False
    if isinstance(value, (str, bool)):
        return text == encode_text(value)
    # "Servers SHOULD compare the header value and the body value numerically [...]
    # (e.g., 42.0 and 42 are considered equal)".
    number = re.fullmatch(_INTEGER_VALUE, text)
    return number is not None and int(number[1]) == value


RESOURCE_METADATA = "oauth-protected-resource"


def origin_of(url: str) -> str:
    """Return the beginning of a URL: scheme://host, with the port if it has one."""
    return "/".join(url.split("/")[:3])


def well_known_url(url: str, name: str) -> str:
    """Return the URL of the metadata about a URL: RFC 8414 and 9728, section 3.1."""
    origin = origin_of(url)
    return f"{origin}/.well-known/{name}{url[len(origin) :].rstrip('/')}"


class HttpError(InvalidRequest):
    """Refuses an HTTP request, by a response with this status and these headers."""

    def __init__(self, status: int, message: str, headers: Headers | None = None):
        super().__init__(message)
        self.http_status = status
        self.headers = headers or {}


def read_lines(response: HTTPResponse) -> Iterator[bytes]:
    """Yield the lines of a response as they arrive, without their LF, CR LF or CR.
    Stops where the response breaks off, and at a line over MAX_MESSAGE."""
    line = bytearray()
    last = b""
    with suppress(Exception):
        while len(line) <= MAX_MESSAGE and (data := response.read1(CHUNK)):
            if last == b"\r" and data[:1] == b"\n":
                # The CR, which came in the read before, has ended the line.
                data = data[1:]
            last = data[-1:]
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
            first, *others = data.split(b"\n")
            line += first
            for each in others:
                yield bytes(line)
                line = bytearray(each)


class EventStream:
    """A stream of server-sent events, as the HTML standard defines them. It may span
    several responses: after `retry` seconds, the client requests the next one and sends
    `last_id`."""

    last_id = ""
    retry = 1.0

    def read(self, response: HTTPResponse) -> Iterator[tuple[str, bytes]]:
        """Yield the events of a response, (type, data) each, until it ends."""
        fields = {}
        # The lines of the event's data, each with its LF.
        data = bytearray()
        for line in read_lines(response):
            name, _, value = line.partition(b":")
            if value.startswith(b" "):
                value = value[1:]
            # A byte order mark may stand before the first line.
            field = name.decode("utf-8-sig", "replace")
            if field == "data" and len(data) <= MAX_MESSAGE:
                data += value + b"\n"
            elif field == "retry" and re.fullmatch(b"[0-9]{1,9}", value):
                # A delay of 0 would be a busy loop.
                self.retry = min(max(int(value) / 1000, 0.02), SESSION_SECONDS)
            elif field in ("event", "id") and len(value) <= MAX_EVENT_ID:
                fields[field] = value.decode("utf-8", "replace")
            elif not line:
                # The id counts only now. A client that reconnects earlier gets the
                # unfinished event again.
                self.last_id = fields.get("id", self.last_id)
                if data:
                    yield fields.get("event", "message"), bytes(data[:-1])
                fields = {}
                data = bytearray()


# The head of a request: RFC 9112. The names of `fields` are in lower case. `size` is
# the length of the body; it is None if the body comes in chunks. `last` is whether the
# connection ends after the response.
Head = namedtuple("Head", "method target version fields size last")

# A complete head. A field has no control character but the tab.
_HEAD = (
    r"([A-Z]+) (?:(?i:https?)://([!-.0-~]+))?(/[!-~]*) HTTP/(1\.[01])\r\n"
    r"((?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t\x20-\x7e\x80-\xff]*\r\n)*)\r\n"
)
# Stands for a head that cannot be parsed.
_NO_HEAD = Head("", "", "1.0", {}, None, True)
_CHUNK_LINE = rb"([0-9a-fA-F]{1,8})([ \t]*;[\t\x20-\x7e\x80-\xff]*)?\r\n"
# These fields must not repeat: a proxy might use the other value. The values of other
# fields are joined to a list.
_SINGLE = "host|origin|authorization|content-.*|transfer-encoding|mcp-.*"


# Most clients send the same head again and again. Nothing changes what is cached.
@lru_cache
def parse_head(data: bytes) -> Head:
    """Parse the head of a request, with its blank line.

    Raises HttpError for a malformed or an ambiguous head. The error does not quote a
    malformed head, which may have a secret anywhere.

    The standard library's parser is made for e-mail. It takes 52 us for a head; this
    one takes 8. The former also accepts NUL, folded lines, and lines without CR, and
    it drops all fields after a malformed line.
    """
    head = re.fullmatch(_HEAD, data.decode("latin-1"))
    if not head:
        raise HttpError(400, "malformed HTTP request head")
    method, host, target, version, lines = head.groups()
    fields: Headers = {}
    for line in lines.split("\r\n")[:-1]:
        name, _, value = line.partition(":")
        name = name.lower()
        value = value.strip(" \t")
        if name in fields:
            if re.fullmatch(_SINGLE, name):
                raise HttpError(400, f"{name}: must not repeat")
            value = f"{fields[name]}, {value}"
        fields[name] = value
    if host is not None:
        # The absolute form: "MUST ignore the received Host header field (if any) and
        # instead use the host information of the request-target".
        fields["host"] = host
    size = _body_size(fields, version)
    last = version == "1.0" or "close" in fields.get("connection", "").lower()
    return Head(method, target, version, fields, size, last)


def _body_size(fields: Headers, version: str) -> int | None:
    """Return the length of a body, or None for a body in chunks. Raises HttpError."""
    coding = fields.get("transfer-encoding")
    if coding is None:
        length = fields.get("content-length", "0")
        if not re.fullmatch("[0-9]{1,18}", length):
            raise HttpError(
                400, f"Content-Length: expected a number, got {show(length)}"
            )
        return int(length)
    # Request smuggling uses unknown codings, chunks in HTTP/1.0, or both a length and
    # chunks.
    is_chunked = coding.lower() == "chunked" and version != "1.0"
    if "content-length" in fields or not is_chunked:
        raise HttpError(400, "expected one Content-Length, or chunks")
    return None


###############################################################################
# 17. HTTP streams ############################################################
###############################################################################

# This section owns one HTTP request at a time. An Exchange is the request with its
# response, which is JSON or a stream of events. Its MessageQueue is the Outbox of the
# JSON-RPC request in its body. An HttpConnection is the conversation of one POST.
# Nothing here knows sockets, WSGI or sessions.
#
# The thread of the HTTP request owns its Exchange. It runs the handler, whose messages
# go to the queue; flush() writes them. If the response is not over when the handler has
# returned, as for a subscription, the thread waits in wait_until_over(). From then on,
# other threads queue messages and ring its bell, by flush_soon(), and it writes them.

MAX_PIECE = 1 << 20  # bytes of a response that a client must read within a deadline
MAX_EVENTS = 1_000  # events that wait for a slow client; beyond that, drop the oldest
# Estimated bytes that all large messages together may occupy. A body counts as its size
# while it arrives. Once decoded, it counts as four times its size, plus MEMBER_SIZE for
# each comma, since each comma means another Python object. An answer counts as twice
# its size. A message that counts as SMALL_BODY or less is always admitted, and so is a
# larger one if it is alone.
MAX_LOAD = 256 << 20
SMALL_BODY = 16 << 10
MEMBER_SIZE = 150

JSON_TYPE = "application/json"
EVENT_TYPE = "text/event-stream"
_JSON = {"Content-Type": JSON_TYPE}
_EVENTS = {
    "Content-Type": EVENT_TYPE,
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",
}
# For a server that is busy, or closing: its clients may ask again in a second.
_RETRY_SOON = {"Retry-After": "1"}
# "404 Not Found and a JSON-RPC error with code -32601" for an unknown method, and "400
# Bad Request" for a missing capability. Other answers have the status 200.
_ANSWER_STATUS = {MethodNotFound.code: 404, MissingCapability.code: 400}
# Every modern request is a conversation of its own. All of them end with this exception.
_OVER = ConnectionClosed("the conversation is over")


class MessageQueue(Outbox):
    """Holds the messages of a response, the latest MAX_EVENTS of them, until an
    Exchange takes and writes them.

        open --the answer, or end()--> closed
    """

    # Whether the last message has been queued.
    is_closed = False
    # Whether an answer does not close the queue, as over HTTP+SSE.
    is_endless = False
    # The number of the latest message.
    added = 0
    # The status of an answer that is the only message.
    answer_status = 200

    def __init__(self, exchange: Exchange):
        self.exchange = exchange
        # Guards all of the above, and the messages.
        self._lock = threading.Lock()
        # The id line of each event, and its message.
        self._messages: deque[tuple[bytes, bytes]] = deque(maxlen=MAX_EVENTS)

    def event_id(self, number: int) -> bytes:
        """Return the id line of an event; b"" if events have no ids."""
        return b""

    def send(self, message: Json) -> None:
        self._add(encode_message(message))

    def _add(self, message: bytes, is_last: bool = False) -> None:
        with self._lock:
            self.added += 1
            self._messages.append((self.event_id(self.added), message))
            self.is_closed |= is_last

    def finish(self, request: Request | None, answer: Any) -> None:
        """Queue an answer, which is the last message. If it is the only one, some
        errors set the HTTP status."""
        exchange = self.exchange
        if answer:
            if request and "error" in answer:
                code = answer["error"]["code"]
                # It may be an insufficient scope, in words.
                exchange.reason = exchange.reason or f"error {code}"
                if request.modern:
                    self.answer_status = _ANSWER_STATUS.get(code, self.answer_status)
            elif request and answer["result"].get("isError"):
                exchange.reason = "the tool failed"
            self._add(encode_answer(answer, request)[1], not self.is_endless)
        elif not self.is_endless:
            # If the client has hung up, that is the reason.
            exchange.reason = exchange.reason or "cancelled"
            self.close()

    def close(self) -> None:
        """Accept no more messages."""
        with self._lock:
            self.is_closed = True

    def release(self, exchange: Exchange) -> None:
        """Let go of an exchange that is over, unless the queue has another one by now.
        Break the reference cycle: otherwise both would stay in memory until the garbage
        collector runs."""
        with self._lock:
            if self.exchange is exchange:
                self.exchange = exchange.endpoint.no_exchange

    def ask_scope(self, error: BaseException) -> bool:
        exchange = self.exchange
        if not isinstance(error, PermissionError) or error.errno is not None:
            return False
        if exchange.auth is None or exchange.status or self.added:
            return False
        exchange.reason = "insufficient_scope"
        refusal = exchange.endpoint.challenge(
            exchange, 403, exchange.reason, str(error)
        )
        exchange.extra.update(refusal.headers)
        self.answer_status = 403
        return True

    def end(self) -> None:
        self.close()
        self.flush_soon()

    def may_wait(self) -> bool:
        # IndexError: no message waits.
        with suppress(IndexError):
            # The exchange only knows whether 4 KiB can be written at once.
            if len(self._messages[-1][1]) > 4_000:
                return True
        return self.exchange.may_wait()

    def flush(self) -> None:
        self.exchange.flush()

    def flush_soon(self) -> None:
        self.exchange.flush_soon()

    def take(self, exchange: Exchange) -> tuple[SseEvents, bool]:
        """Remove the messages that wait, for its exchange. Returns them, and whether
        these are the last ones."""
        with self._lock:
            events = list(self._messages)
            self._messages.clear()
            return events, self.is_closed


class Exchange:
    """One HTTP request and its response:

        nothing sent --events--> a stream --the last event--> over
           +--- reply(), or a lone answer ---------------------^
           +--- client_left(), at any time --------------------^

    The response carries the messages of a queue. If the answer to a JSON-RPC request is
    the only one, the response is JSON. Otherwise it is a stream of events that ends
    with the answer. Any thread may flush; one thread at a time writes. When the client
    has left, messages stay in the queue.

    The names of `headers` are in lower case. A carrier connects exchanges to an HTTP
    server. It is a subclass with the following methods. The last two are optional. The
    others raise OSError when the client is gone:
        read_body()                   returns the complete body. It calls check_size()
                                      before it reads, may call claim() as bytes arrive,
                                      and raises HttpError if the body is incomplete
        start(status, headers, body)  sends the response; if `body` is None, it sends
                                      only the head, and events follow
        put(events, ending)           sends events at once
        hung_up()                     returns whether the client is gone; never blocks.
                                      While `awaits_answer` is set, a client that has
                                      only shut its side is not gone
        may_wait()                    returns whether put() may wait for the client
    """

    # The carrier's methods.
    read_body: Any
    start: Any
    put: Any
    hung_up: Any = do_nothing
    # The status and the media type of the response; 0 and "" before it begins.
    status = 0
    kind = ""
    # Whether the last byte has been written, or the client has left.
    is_over = False
    # Why the HTTP request was refused, for the access log.
    reason = ""
    # Whether the TCP connection ends after this response.
    is_last = False
    # Whether the answer to a request will end the response.
    awaits_answer = False
    # When the client left, by time.monotonic().
    left_at = INFINITY
    # The path below which a WSGI host has mounted the application.
    mount = ""
    # The claims of the request's token.
    auth: Json | None = None
    # The decoded body, until it is served.
    message: Any = None
    # Estimated bytes that the message occupies: see MAX_LOAD.
    load = 0
    # The id of the JSON-RPC request in the body.
    request_id: RequestId | None = None
    # The headers that mirror the message.
    mirrored: Json = {}
    # The conversation that the request belongs to.
    connection: HttpConnection
    # The bytes with which a stream of events begins.
    primer = b""
    # An item wakes the exchange's own thread, which writes what other threads queue.
    # None while that thread runs a handler.
    bell: SimpleQueue[None] | None = None

    def __init__(
        self,
        endpoint: HttpEndpoint,
        method: str,
        target: str,
        headers: Headers,
        peer: str,
    ):
        self.endpoint = endpoint
        # The client's address.
        self.peer = peer
        self.method = method
        self.path, _, self.query = target.partition("?")
        self.headers = headers
        # The revision that a header names.
        self.version = headers.get("mcp-protocol-version")
        self.thread = threading.get_ident()
        self.began = time.monotonic()
        # Headers for whatever response this request gets.
        self.extra: Headers = {}
        self.queue = MessageQueue(self)
        # Held by the thread that writes.
        self._writing = threading.Lock()

    # The request
    def read_message(self) -> None:
        """Read and decode the body. Raises HttpError, InvalidRequest, ParseError, and
        OSError."""
        kind = media_type(self.headers)
        if kind != JSON_TYPE:
            raise HttpError(
                415, f"Content-Type: expected {JSON_TYPE}, got {show(kind)}"
            )
        body = self.read_body()
        self.endpoint.trace("-->", body)
        self.claim(4 * len(body) + MEMBER_SIZE * body.count(b","))
        self.message = parse_message(body)
        envelope = object_or_empty(self.message)
        if "method" in envelope and is_id(envelope.get("id")):
            self.request_id = envelope["id"]

    def check_size(self, size: int) -> None:
        """Raise HttpError if a body of this size is too large."""
        if size > self.endpoint.max_body:
            raise HttpError(
                413, f"the body has more than {self.endpoint.max_body} bytes"
            )

    def claim(self, load: int) -> None:
        """Record how much memory the request occupies by now. Raises HttpError if all
        requests together occupy too much."""
        self.load = load
        self.endpoint.count(self, load)
        if load > SMALL_BODY and not self.endpoint.has_room():
            raise HttpError(503, "too much data at once; retry later", _RETRY_SOON)

    # The answer
    def reply(
        self, status: int, headers: Headers | None = None, body: bytes = b""
    ) -> None:
        """Send a complete response."""
        with self._writing:
            try:
                self._reply(status, headers or {}, body)
            except OSError:
                self.client_left()

    def _reply(self, status: int, headers: Headers, body: bytes) -> None:
        headers = {**headers, "Content-Length": str(len(body))}
        if self.method == "HEAD":
            body = b""
        self._start(status, headers, body)
        if body and self.method == "POST":
            self.endpoint.trace("<--", body)
        self._end()

    def _end(self) -> None:
        self.is_over = True
        if self.bell is not None:
            self.bell.put(None)

    def detach(self) -> None:
        """Leave the queue to another exchange. The next flush() ends this response."""
        self.queue = MessageQueue(self)
        self.queue.close()

    def flush_soon(self) -> None:
        """Wake the exchange's own thread, which writes what waits.

        While that thread runs a handler, nothing can wake it. It then writes its own
        messages at once; another thread writes only if the response ends. A thread that
        helps the handler, and may block, calls flush() instead.
        """
        bell = self.bell
        if bell is not None:
            bell.put(None)
        elif self.queue.is_closed or threading.get_ident() == self.thread:
            self.flush()

    def flush(self, more: bytes = b"") -> None:
        """Write the messages that wait, and then `more`, raw bytes such as a comment.
        Blocks while the client is slow, until its deadline."""
        # Check before locking as well: once the client has left, do not wait for a
        # thread that is still writing.
        if self.is_over:
            return
        try:
            with self._writing:
                if not self.is_over:
                    self._write_waiting(more)
        except OSError:
            self.connection.client_left(self)

    def _write_waiting(self, more: bytes) -> None:
        events, is_last = self.queue.take(self)
        if not (events or more or is_last):
            return
        # Deliver messages even if too much memory is in use, since their work is done.
        # But they count while they wait for the client, so new requests are refused.
        size = 2 * sum(len(message) for _, message in events)
        if size <= SMALL_BODY:
            self._write_events(events, more, is_last)
            return
        self.endpoint.count(self, self.load + size)
        if size > MAX_PIECE:
            # The value and its text are freed by now. Copies fill the gaps that these
            # have left in the heap: 100 answers of 4 MB take 450 MB instead of 700.
            events = [(name, bytes(memoryview(data))) for name, data in events]
        try:
            self._write_events(events, more, is_last)
        finally:
            self.endpoint.count(self, self.load)

    def _write_events(self, events: SseEvents, more: bytes, is_last: bool) -> None:
        is_opening = self.status == 0
        is_alone = is_last and not more and len(events) == 1
        # "The server MUST either return `Content-Type: text/event-stream` in response
        # to this HTTP GET": only a POST may be answered with JSON.
        if is_alone and is_opening and self.method == "POST":
            self._reply(self.queue.answer_status, _JSON, events[0][1])
            return
        parts = []
        if is_opening:
            self._start(200, _EVENTS, None)
            parts.append(self.primer)
        for event_id, message in events:
            self.endpoint.trace("<--", message)
            parts.append(b"%bevent: message\ndata: %b\n\n" % (event_id, message))
        parts.append(more)
        self.put(b"".join(parts), is_last)
        if is_last:
            self._end()

    def _start(self, status: int, headers: Headers, body: bytes | None) -> None:
        self.status = status
        self.kind = headers.get("Content-Type", "")
        line = f"HTTP {status} {self.kind}".strip()
        self.endpoint.trace("<--", line.encode())
        self.start(status, {**headers, **self.extra}, body)

    def client_left(self) -> None:
        """Write nothing more. Never blocks."""
        # Another status than these stands for a complete answer.
        if not self.queue.is_closed and self.status in (0, 200):
            self.reason = "the client has hung up"
        self.is_last = True
        self.left_at = time.monotonic()
        self._end()

    def wait_until_over(self) -> None:
        """Write what other threads queue, until the response is over. Comments keep a
        silent stream open."""
        # From now on, threads that queue messages ring this bell. Write what was queued
        # before.
        self.bell = SimpleQueue()
        self.flush()
        while not self.is_over:
            comment = b""
            try:
                get_within(self.bell, self.endpoint.comment_seconds)
            except Empty:
                # Before the response begins, a comment would turn it into a stream.
                if self.status:
                    comment = b":\n\n"
            self.flush(comment)

    def may_wait(self) -> bool:
        """Return whether put() may have to wait for the client."""
        return False


ACCESS_LOGGER = "mcp_lite.http"
# The names of the columns, as attributes of a record.
_COLUMNS = "client http_method path status ms mcp_method mcp_name caller".split()


def log_access(exchange: Exchange) -> None:
    """Log a line about a finished exchange, to the logger "mcp_lite.http":

        127.0.0.1 POST /mcp 200 3.1 tools/call forecast ada
        127.0.0.1 POST /mcp 403 0.1 - - -: host "vm" is not allowed; see allowed_hosts

    The columns are the client's address, the HTTP method, the path, the status, the
    milliseconds, the method and the name in the message, and the caller, which is the
    claim `sub` of the token. A missing part is "-": the status if the client left
    before the response, or method and path if the head is malformed. The reason for an
    error follows, or that the tool failed, or was cancelled: by its client, or because
    the server closes. _COLUMNS and `reason` are also attributes of the record, with
    numbers for `status` and `ms`.

    The level is INFO, or WARNING for a status from 400 on. The line shows no query, no
    token, and nothing else of the body. If that logger has no handler, nothing is logged.
    """
    logging = sys.modules.get("logging")
    if logging is None or not logging.getLogger(ACCESS_LOGGER).hasHandlers():
        return
    # A socket for IPv4 and IPv6 shows an IPv4 address as ::ffff:192.0.2.1.
    address = exchange.peer.rpartition("::ffff:")[2]
    ms = round((time.monotonic() - exchange.began) * 1000, 1)
    # The query and the fragment of a URI may be secret.
    name = re.split("[?#]", str(exchange.mirrored.get("Mcp-Name") or ""))[0]
    claims = exchange.auth or {}
    columns = [
        address,
        exchange.method,
        f"{exchange.mount}{exchange.path}",
        exchange.status,
        str(ms),
        exchange.mirrored.get("Mcp-Method"),
        name[:MAX_SHOWN_NAME],
        str(claims.get("sub", ""))[:MAX_SHOWN_NAME],
    ]
    # Replace spaces and line ends, so that a peer cannot add a column, or a line.
    texts = [re.sub("[^!-~]", "?", str(each or "-")) for each in columns]
    line = " ".join(texts)
    if exchange.reason:
        line += f": {exchange.reason}"
    attributes = dict(
        zip(_COLUMNS, texts), status=exchange.status, ms=ms, reason=exchange.reason
    )
    level = WARNING if exchange.status >= 400 else INFO
    log_line(level, line, logger=ACCESS_LOGGER, attributes=attributes)


class HttpConnection(Connection):
    """The conversation of one POST. The exchange's own thread serves the message, so
    there are no workers. If the client leaves, its request is cancelled."""

    is_remote = True
    # When it was last served, by time.monotonic(); INFINITY before that.
    used = INFINITY
    # Called periodically for an exchange whose client has left, and whose request may
    # still run. Never blocks.
    client_stays_away: Any = do_nothing

    def __init__(self, http: HttpEndpoint, outbox: Outbox):
        super().__init__(
            http.server.new_protocol(),
            http.server,
            outbox,
            SameThread(),
            tidiers=http.tidiers,
        )
        self.loop = http.loop
        self.http = http

    def serve_post(self, exchange: Exchange) -> None:
        """Serve the message of a POST on this thread. The response is the answer to a
        request, an error, or 202 without a body. Raises InvalidRequest."""
        event = self.protocol.receive(exchange.message, exchange.queue)
        # Free the memory now, since a subscription stays open.
        exchange.message = None
        self.prepare(exchange, event)
        if exchange.is_over:
            # The client left before the request was in flight, so it is not cancelled
            # yet.
            self.client_left(exchange)
        if isinstance(event, Refusal):
            self.refuse(event, exchange)
            return
        if not isinstance(event, Request):
            self.act(event)
            exchange.reply(202)
            return
        stays_open = event.row.stays_open
        exchange.awaits_answer = not stays_open
        # Over HTTP+SSE, the queue, and so the answer, goes to the exchange of the GET.
        if exchange.queue.exchange is not exchange or event.is_notification:
            exchange.is_last = True
            exchange.reply(202)
        self.act(event)
        if stays_open:
            # Free the message, which a subscription no longer needs.
            event.params = {}
            event.meta = {}
            event.capabilities = {}
            event.client_info = {}
            exchange.claim(0)

    def prepare(self, exchange: Exchange, event: Event) -> None:
        """If the event is a Request, attach the headers and the claims of its POST."""
        if isinstance(event, Request):
            event.auth = exchange.auth
            event.headers = exchange.headers

    def refuse(self, refusal: Refusal, exchange: Exchange) -> None:
        """Respond to a message that the Protocol refused."""
        reply = refusal.reply or error_message(None, InvalidRequest(refusal.why))
        status = McpError.from_wire(reply["error"]).http_status
        exchange.reply(status, _JSON, encode_message(reply))

    def client_left(self, exchange: Exchange) -> None:
        """End an exchange whose client has hung up. Never blocks. In a session, the
        client may resume: "Disconnection SHOULD NOT be interpreted as the client
        cancelling"."""
        exchange.client_left()
        if self.session_id is None:
            self.cancel_requests()

    def retire(self) -> None:
        """End subscriptions, because the server is closing."""
        self.endpoint.input_ended(self)

    def end(self) -> None:
        """End the conversation, and cancel its requests."""
        self.http.server.disconnected(self)
        self.lose(_OVER)


###############################################################################
# 18. HTTP endpoint ###########################################################
###############################################################################

# This section decides who may ask, and finds who answers. One endpoint serves every
# revision (basic/transports/streamable-http.md and its predecessors). HttpEndpoint owns
# the routes, the admission of requests and the budget of memory, and serves the modern
# era: one POST, one answer. The legacy era follows, from SessionStream on, and owns the
# sessions: streams that a client can resume, batches, and HTTP+SSE.
#
# The path of a request: answer() has _find() judge the head alone; _post() reads the
# body, which decides the era; serve() has the HttpConnection, or the Session, serve the
# message.

_METHODS = "POST, GET, DELETE"
_PREFLIGHT = {
    "Access-Control-Allow-Methods": _METHODS,
    "Access-Control-Max-Age": "600",
    "Access-Control-Allow-Headers": "*, Authorization",
}


class HttpEndpoint:
    """The HTTP side of a server: it answers exchanges."""

    # The time between the comments that keep a silent stream open.
    comment_seconds = 15.0
    # Where clients read `resource_metadata`, if that is given: anywhere on the site, and
    # where only requests below a path come here.
    _metadata_url = ""
    _mounted_url = ""

    def __init__(self, server: ServerEndpoint, options: Options):
        self.server = server
        # Called with each message, and with a line for each request and response.
        self.trace = server.trace or do_nothing
        self.loop = EventLoop()
        self.max_body = options.max_body
        # The memory that each exchange occupies: see MAX_LOAD. Here and below, each
        # operation on a dict is atomic.
        self.loads: dict[Exchange, int] = {}
        # Logs requests that were refused for lack of memory or connections.
        self.refusals = BurstLog()
        # Logs exceptions of verify().
        self.verify_failures = BurstLog()
        # Runs the callbacks of ctx.on_cancel(): the thread of a request is busy in its
        # handler.
        self.tidiers = Workers("mcp-on-cancel", MAX_WORKERS)
        self._verify = options.verify
        if self._verify is not None and not callable(self._verify):
            # The time of a look-up reveals nothing about a token: it depends on hashes
            # with a random key.
            self._verify = dict(self._verify).get
        hosts = _check_names("allowed_hosts", options.allowed_hosts, "[^*/]+")
        self.hosts = {"localhost", "127.0.0.1", "[::1]", *map(_host_name, hosts)}
        self._origins = _check_names(
            "allowed_origins", options.allowed_origins, "[^*/]+://[^*/]+"
        )
        # Takes the place of the exchange of a queue that has none. It is over, so it
        # writes nothing.
        self.no_exchange = Exchange(self, "", "", {}, "")
        self.no_exchange.is_over = True
        # The exchanges that are being served.
        self.serving: dict[Exchange, HttpConnection] = {}
        mcp_path = options.path and _route_of(options.path)
        # {path: {method: the function that answers}}; the path None is any path.
        self.routes = {mcp_path: {"POST": self._post}}
        self.legacy = LegacyEndpoint(self, options.stateless, mcp_path)
        # Any client may read these: without a token, under any host name, from any
        # page.
        public = dict(options.public_routes or {})
        if options.health is not None:
            public[options.health] = lambda _: (200, {"Cache-Control": "no-store"}, b"")
        self._metadata = options.resource_metadata or {}
        if self._metadata:
            url = well_known_url(self._metadata["resource"], RESOURCE_METADATA)
            self._metadata_url = url
            named = url[len(origin_of(url)) :]
            root = f"/.well-known/{RESOURCE_METADATA}"
            self._mounted_url = f"{self._metadata['resource'].rstrip('/')}{root}"
            below = f"{(mcp_path or '').rstrip('/')}{root}"
            headers = {**_JSON, "Access-Control-Allow-Origin": "*"}
            for each in (root, f"{root}{mcp_path or ''}", named, below):
                public[_route_of(each)] = lambda _: (
                    200,
                    headers,
                    encode_message(self._metadata),
                )
        self._public = {"/" + each.strip("/") for each in public}
        for each, fn in {**(options.routes or {}), **public}.items():
            serve = partial(_answer_route, fn)
            path = "/" + each.strip("/")
            if path in self.routes:
                raise ValueError(f"routes: {each} is served twice")
            self.routes[path] = {"GET": serve, "HEAD": serve}

    def answer(self, exchange: Exchange, error: HttpError | None = None) -> None:
        """Answer one HTTP request. Returns when the response is over. Never raises.

        error: an error with which to refuse the request, unless its path is public
        """
        try:
            if error and _route_of(exchange.path) not in self._public:
                raise error
            self.trace(
                "-->", f"{exchange.method} {exchange.path}".encode("utf-8", "replace")
            )
            self._find(exchange)(exchange)
        except McpError as refusal:
            headers = _JSON
            if isinstance(refusal, HttpError):
                headers = {**_JSON, **refusal.headers}
                exchange.reason = str(refusal)
            body = encode_message(error_message(exchange.request_id, refusal))
            exchange.reply(refusal.http_status, headers, body)
        except BaseException as failure:
            # OSError: the client left before the end of its request.
            level = DEBUG if isinstance(failure, OSError) else ERROR
            log_line(level, f"HTTP: {error_text(failure)}", failure)
            if not exchange.status:
                exchange.reply(500)
            # No response can follow one that was half written.
            exchange.is_last = True
        self.loads.pop(exchange, None)
        log_access(exchange)

    # Memory
    def count(self, exchange: Exchange, load: int) -> None:
        """Record how much memory an exchange occupies."""
        if load > SMALL_BODY:
            self.loads[exchange] = load
        else:
            self.loads.pop(exchange, None)

    def has_room(self) -> bool:
        """Return False if the exchanges occupy too much memory: another large request
        must be refused then."""
        loads = list(self.loads.values())
        if len(loads) <= 1 or sum(loads) <= MAX_LOAD:
            return True
        self.refusals.add("HTTP: too many large messages at once; refusing some")
        return False

    # Admission: by the head alone, before a byte of the body is read
    def _find(self, exchange: Exchange) -> Any:
        """Return the function that answers this request. Raises HttpError if the
        request is not admitted."""
        path = _route_of(exchange.path)
        route = self.routes.get(path) or self.routes.get(None, {})
        serve = route.get(exchange.method)
        if path in self._public and serve:
            return serve
        self._check_origin(exchange)
        if serve:
            if self._verify is not None:
                exchange.auth = self._authorize(exchange)
            return serve
        if not route:
            raise HttpError(404, f"nothing at {show(exchange.path)}")
        allow = {"Allow": ", ".join(route)}
        # For an allowed origin, _check_origin() has set `extra`.
        if exchange.method == "OPTIONS" and exchange.extra:
            return partial(Exchange.reply, status=200, headers={**_PREFLIGHT, **allow})
        why = exchange.reason or f"{show(exchange.method)}: not allowed here"
        raise HttpError(405, why, allow)

    def _check_origin(self, exchange: Exchange) -> None:
        """Raise HttpError if the request names another host, or comes from a page of
        another site: "to prevent DNS rebinding attacks". Pages of an allowed site may
        read the response."""
        headers = exchange.headers
        host = headers.get("host", "")
        if _host_name(host) not in self.hosts and "*" not in self.hosts:
            raise HttpError(403, f"host {show(host)} is not allowed; see allowed_hosts")
        origin = headers.get("origin", "").lower()
        if not origin:
            # Browsers send no Origin for images and the like.
            site = headers.get("sec-fetch-site", "none")
            if site not in ("none", "same-origin"):
                raise HttpError(403, f"the request is from another site: {show(site)}")
        elif origin in self._origins or "*" in self._origins:
            # parse_head(), or the WSGI server, has refused line ends in a header.
            exchange.extra = {
                "Access-Control-Allow-Origin": headers["origin"],
                "Access-Control-Expose-Headers": "Mcp-Session-Id, WWW-Authenticate",
                "Vary": "Origin",
            }
        else:
            named = re.fullmatch("https?://([^/]+)", origin)
            if not named or _host_name(named[1]) not in self.hosts:
                raise HttpError(
                    403, f"origin {show(origin)} is not allowed; see allowed_origins"
                )
            if named[1] != host.lower():
                exchange.reason = (
                    f"pages of {show(origin)} may not read this; see allowed_origins"
                )

    def _authorize(self, exchange: Exchange) -> Json:
        """Return the claims of the token of a request. Raises HttpError."""
        bearer = re.fullmatch(
            "(?i:bearer) +([!-~]+) *", exchange.headers.get("authorization", "")
        )
        if bearer is None:
            raise self.challenge(exchange, 401)
        token = bearer[1]
        try:
            claims = self._verify(token) or {}
            if not isinstance(claims, dict):
                # The function is an `async def`, say.
                raise TypeError(f"expected a dict of claims, got {show(claims)}")
        except Exception as error:
            # A PermissionError with an errno comes from the operating system, and does
            # not name a scope.
            if isinstance(error, PermissionError) and error.errno is None:
                raise self.challenge(
                    exchange, 403, "insufficient_scope", str(error)
                ) from None
            # Log in bursts: a stranger may send invalid tokens at any rate.
            self.verify_failures.add(
                f"verify: {error_text(error)}".replace(token, "***")
            )
            if isinstance(error, OSError):
                # The token may be valid: what should check it is out of reach.
                raise HttpError(
                    503, "the token could not be checked", {"Retry-After": "5"}
                ) from None
            raise self.challenge(exchange, 401, "invalid_token") from None
        if not claims:
            raise self.challenge(exchange, 401, "invalid_token")
        return dict(claims)

    def challenge(
        self, exchange: Exchange, status: int, problem: str = "", scope: str = ""
    ) -> HttpError:
        """Return a refusal with a challenge, which tells the client what token it
        needs, and where to get one."""
        scope = scope or " ".join(self._metadata.get("scopes_supported", ()))
        parameters = {
            "error": problem,
            "resource_metadata": (
                self._mounted_url if exchange.mount else self._metadata_url
            ),
            # RFC 6749, section 3.3, defines the characters of a scope.
            "scope": " ".join(re.findall(r"[!#-\[\]-~]+", scope)),
        }
        parts = [f'{name}="{value}"' for name, value in parameters.items() if value]
        challenge = f"Bearer {', '.join(parts)}".strip()
        return HttpError(
            status,
            problem or "a bearer token is needed",
            {"WWW-Authenticate": challenge},
        )

    # POST: basic/transports/streamable-http.md#sending-messages
    def _post(self, exchange: Exchange) -> None:
        exchange.read_message()
        # The message alone decides the era, whatever the client has sent before.
        version = member_at(exchange.message, ("params", "_meta", META_VERSION))
        row = method_row(object_or_empty(exchange.message).get("method"))
        header = exchange.version
        is_modern = version is not None or row.since >= FIRST_MODERN
        # In a session, the header may name a modern revision as well: a gateway may set
        # it.
        has_session = "mcp-session-id" in exchange.headers
        legacy_versions = SPOKEN if has_session else LEGACY_VERSIONS
        is_legacy = not header or header in legacy_versions
        # `initialize` names its revision in its body.
        if (row.handshake or is_legacy) and not is_modern:
            self.legacy.post(exchange)
            return
        self._check_modern(exchange, version)
        connection = HttpConnection(self, exchange.queue)
        try:
            self.serve(connection, exchange)
        finally:
            connection.end()
            # Break another reference cycle: see MessageQueue.release().
            connection.outbox = connection.dropped

    def _check_modern(self, exchange: Exchange, version: Any) -> None:
        """Raise McpError if the headers of a modern message are wrong. `version` is the
        version in its `_meta`."""
        header = exchange.version
        is_request = exchange.request_id is not None
        if version not in (None, header):
            raise HeaderMismatch(
                f"MCP-Protocol-Version: {show(header)}, but {show(version)} in _meta"
            )
        if header:
            check_modern_version(header)
        if is_request and version is None:
            meta = object_or_empty(member_at(exchange.message, ("params", "_meta")))
            check_members(MODERN_META, meta, "_meta.")
        self.check_mirrors(exchange, is_request, HeaderMismatch.code)

    def check_mirrors(
        self, exchange: Exchange, required: bool = False, code: int = -32001
    ) -> None:
        """Set `exchange.mirrored`. Raise HeaderMismatch if a header contradicts the
        message, or is `required` and missing. Its default code, for sessions, is from
        the drafts of 2026-07-28."""
        exchange.mirrored = mirrored_headers(
            object_or_empty(exchange.message), self.server.header_parameters
        )
        for name, value in exchange.mirrored.items():
            header = exchange.headers.get(name.lower())
            if header is None:
                is_wrong = required and value is not None
            else:
                is_wrong = not is_mirrored(header, value)
            if is_wrong:
                mismatch = HeaderMismatch(
                    f"{name}: {show(header)}, but {show(value)} in the body"
                )
                mismatch.code = code
                raise mismatch

    def serve(
        self, connection: HttpConnection, exchange: Exchange, opening: bytes = b""
    ) -> None:
        """Serve the message of a POST, or begin a stream with the bytes `opening`. Then
        write what other threads queue, until the response is over."""
        exchange.connection = connection
        self.serving[exchange] = connection
        try:
            if opening:
                exchange.flush(opening)
            else:
                connection.serve_post(exchange)
            exchange.wait_until_over()
        finally:
            del self.serving[exchange]
            connection.used = time.monotonic()
            exchange.queue.release(exchange)

    # Clients that have left, and the end
    def end_departed(self) -> None:
        """End the exchanges whose clients have hung up. The carrier calls this
        periodically. Never blocks."""
        for exchange, connection in list(self.serving.items()):
            if exchange.is_over:
                connection.client_stays_away()
            elif exchange.hung_up():
                connection.client_left(exchange)

    def close(self, final: bool) -> None:
        """End subscriptions and streams that only listen. If `final`, also end sessions
        and cancel requests, except the one that this thread serves."""
        serving = self.serving.copy()
        mine = [
            connection
            for exchange, connection in serving.items()
            if exchange.thread == threading.get_ident()
        ]
        connections = {*serving.values()}
        connections.update(self.legacy.sessions.copy().values())
        for connection in connections:
            connection.retire()
            if final and connection not in mine:
                connection.end()


def _route_of(path: str) -> str:
    """Return the path without a slash at its end, but for "/" itself."""
    return path.rstrip("/") or "/"


def _answer_route(fn: Route, exchange: Exchange) -> None:
    """Respond with what a function in routes= or public_routes= returns."""
    status, headers, body = fn(exchange)
    # A value may quote a peer, whose line ends must not add a header.
    headers = {name: printable(value) for name, value in headers.items()}
    if isinstance(body, str):
        body = body.encode()
    exchange.reply(status, headers, body)


def _host_name(host: str) -> str:
    """Return a host without its port, in lower case."""
    host = host.lower()
    name, _, port = host.rpartition(":")
    return name if port.isdecimal() else host


def _check_names(option: str, names: Iterable[str] | None, form: str) -> set[str]:
    """Return the names of an option in lower case. Raises ValueError for a name other
    than "*" that does not have this form: it would match nothing."""
    if isinstance(names, str) and names != "*":
        raise ValueError(f"{option}: expected a list, got {show(names)}")
    given = {name.lower().rstrip("/") for name in names or ()}
    for name in given - {"*"}:
        if not re.fullmatch(form, name):
            raise ValueError(f'{option}: {show(name)} matches nothing; "*" is any')
    return given


# The legacy era over HTTP: basic/transports.md of 2024-11-05 to 2025-11-25. The code
# above uses it only through HttpEndpoint.legacy. To drop the era, delete the rest of
# the section, and each statement that uses this attribute.

# "If the server does not receive an `MCP-Protocol-Version` header [...] the server
# SHOULD assume protocol version `2025-03-26`": basic/transports.md.
ASSUMED_VERSION = "2025-03-26"
MAX_SESSIONS = 1_000  # open at once
# Estimated bytes of an `initialize`, parts of which its session keeps.
MAX_HELLO = 256 << 10
# When a client hangs up and does not resume its stream, its request is cancelled after
# this time.
AWAY_SECONDS = 60.0
# Finished streams that all sessions together keep for clients that resume them, and the
# bytes of their events. Beyond that, drop the oldest.
MAX_STREAMS = 1_000
MAX_KEPT = 32 << 20


class SessionStream(MessageQueue):
    """A queue of a session that outlives its exchange, so that a client can resume its
    stream. The id of an event is the name of the stream and the event's number, such as
    2-7. take() keeps the latest MAX_EVENTS messages.

        carried --the client leaves, or leave()--> waiting --carry_on()--> carried
    """

    connection: Session
    # The number of the latest message that was taken.
    taken = 0

    def __init__(self, session: Session, exchange: Exchange):
        super().__init__(exchange)
        self.connection = session
        self.name = next(session.names)
        session.streams[self.name] = self
        # From 2025-11-25 on, a stream begins with an id "to prime the client to
        # reconnect".
        self._is_primed = session.protocol.version >= "2025-11-25"
        if self._is_primed:
            exchange.primer = self.event_id(0) + b"data: \n\n"

    def event_id(self, number: int) -> bytes:
        return f"id: {self.name}-{number}\n".encode()

    def finish(self, request: Request | None, answer: Any) -> None:
        """Queue an answer, which is the last message. The response to a handshake has
        the id of the session in a header."""
        is_hello = request is not None and request.row.handshake
        if is_hello and "error" not in answer:
            self.exchange.extra["Mcp-Session-Id"] = str(self.connection.session_id)
        super().finish(request, answer)

    def take(self, exchange: Exchange) -> tuple[SseEvents, bool]:
        with self._lock:
            if self.exchange is not exchange:
                # The stream has moved, and its messages with it.
                return [], False
            events = list(self._messages)
            # The last `added - taken` of them have not been taken yet.
            first = len(events) - (self.added - self.taken)
            self.taken = self.added
            return events[max(0, first) :], self.is_closed

    def size(self) -> int:
        """Return how many bytes it keeps."""
        with self._lock:
            return sum(len(message) for _, message in self._messages)

    def carry_on(self, exchange: Exchange, after: int | None) -> None:
        """Continue on this exchange: with the events that follow number `after`; if it
        is None, with those that have not been sent."""
        with self._lock:
            before = self.exchange
            self.exchange = exchange
            exchange.queue = self
            if after is not None:
                self.taken = after
        before.detach()
        before.flush_soon()

    def leave(self, retry_ms: int) -> None:
        """End the response, so that the client resumes the stream after `retry_ms`
        milliseconds. A no-op if the stream has no id by which to resume it."""
        exchange = self.exchange
        if self._is_primed:
            exchange.is_last = True
            exchange.left_at = time.monotonic() + retry_ms / 1000
            exchange.detach()
            exchange.flush(b"retry: %d\n\n" % retry_ms)


class Session(HttpConnection):
    """A conversation of the legacy era, which lasts for many POSTs. Messages about a
    request go to the stream of its POST. All other messages go to the session's outbox,
    from which the client gets them by a GET. A stateless endpoint makes a session
    without an id for each POST, and drops these other messages."""

    outbox: Any

    def __init__(
        self, legacy: LegacyEndpoint, exchange: Exchange, session_id: str | None
    ):
        self.legacy = legacy
        self.session_id = session_id
        # The principal that may use it.
        self.owner = principal(exchange.auth)
        # The streams that can be resumed, and the names for new ones.
        self.streams: dict[str, SessionStream] = {}
        self.names = map(str, itertools.count())
        super().__init__(legacy.http, Outbox())
        # The ids of the server's questions begin at a random number, so that a late
        # answer to a question of a lost session matches none of the next session.
        self.protocol.ids = itertools.count(int.from_bytes(os.urandom(6), "big"))
        self.carries_changes = session_id is not None
        if self.carries_changes:
            # Until the client listens, messages wait in a stream without an exchange.
            self.outbox = SessionStream(self, legacy.http.no_exchange)

    def serve_post(self, exchange: Exchange) -> None:
        """Serve the message of a POST, as HttpConnection does, or a batch. The events
        that answer a batch have no ids, so the client cannot resume them."""
        if not isinstance(exchange.message, list):
            super().serve_post(exchange)
            return
        queue = exchange.queue
        exchange.awaits_answer = True
        self.receive_batch(exchange.message, queue, partial(self.prepare, exchange))
        if not exchange.status:
            exchange.reply(202)
        else:
            queue.end()

    def refuse(self, refusal: Refusal, exchange: Exchange) -> None:
        """Respond to a refused message. An error that answers a request has the status
        200. An answer that matches no question gets 202, as it may just be late."""
        if refusal.is_late and self.session_id is not None:
            exchange.reply(202)
        elif "id" in (refusal.reply or {}) and self.protocol.version:
            exchange.reply(200, _JSON, encode_message(refusal.reply))
        else:
            super().refuse(refusal, exchange)

    def client_stays_away(self) -> None:
        oldest = time.monotonic() - AWAY_SECONDS
        for request in list(self.protocol.in_flight.values()):
            # A batch collects its answers for the queue of its exchange.
            queue = getattr(request.outbox, "outbox", request.outbox)
            if queue.exchange.left_at < oldest:
                self.cancel_request(request)

    def retire(self) -> None:
        super().retire()
        self.cancel_pending(ConnectionClosed("the server is closing"))
        # HTTP+SSE still needs this stream for the answers to requests in flight.
        if isinstance(self.outbox, SessionStream) or not self.protocol.in_flight:
            self.outbox.end()

    def end(self) -> None:
        self.legacy.sessions.pop(self.session_id, None)
        super().end()
        self.outbox.end()
        for stream in self.streams.copy().values():
            stream.end()
            self.legacy.drop(stream)


class SseSession(Session):
    """A session of HTTP+SSE: basic/transports.md of 2024-11-05. A GET opens it. The
    response to the GET carries all messages of the server, and the session ends with
    that response. Each POST gets 202."""

    def refuse(self, refusal: Refusal, exchange: Exchange) -> None:
        self.act(refusal)
        exchange.reply(202)


class LegacyEndpoint:
    """The legacy era of an HttpEndpoint: it opens, finds and closes sessions."""

    # How long a session may be idle.
    session_seconds = SESSION_SECONDS

    def __init__(self, http: HttpEndpoint, stateless: bool, mcp_path: str | None):
        self.http = http
        self._stateless = stateless
        # By id. Here and below, each operation on a dict is atomic.
        self.sessions: dict[str | None, Session] = {}
        # The finished streams, the oldest first, with the bytes of their events.
        self._kept: dict[SessionStream, int] = {}
        if stateless:
            return
        if mcp_path in ("/sse", "/messages"):
            raise ValueError(f"path: {mcp_path} is reserved for HTTP+SSE")
        http.routes[mcp_path].update(GET=self._get, DELETE=self._delete)
        http.routes["/sse"] = {"GET": self._get_sse}
        http.routes["/messages"] = {"POST": self._post_sse}

    # Sessions
    def _open(self, kind: type[Session], exchange: Exchange) -> Session:
        """Open a session. Close those that were idle for too long, and beyond
        MAX_SESSIONS the one that was idle longest."""
        served = set(self.http.serving.copy().values())
        idle = [each for each in self.sessions.copy().values() if each not in served]
        oldest = time.monotonic() - self.session_seconds
        for each in sorted(idle, key=lambda each: each.used):
            if each.used < oldest or len(self.sessions) >= MAX_SESSIONS:
                each.end()
        # "The session ID SHOULD be globally unique and cryptographically secure".
        session = kind(self, exchange, os.urandom(24).hex())
        self.sessions[session.session_id] = session
        return session

    def _find(self, exchange: Exchange) -> Session:
        """Return the session that a request names. Raises HttpError."""
        name = exchange.headers.get("mcp-session-id")
        if name is None:
            raise HttpError(400, f"Mcp-Session-Id: required, except in {NEWEST}")
        session = self._owned(Session, name, exchange)
        version = exchange.version
        if version and version not in SPOKEN:
            raise HttpError(
                400,
                f"MCP-Protocol-Version: expected {session.protocol.version}, "
                f"got {show(version)}",
            )
        return session

    def _owned(self, kind: type[Session], name: str, exchange: Exchange) -> Session:
        """Return the session of this kind and id. Raises HttpError if there is none, if
        it has been idle for too long, and if another principal owns it."""
        session: Any = self.sessions.get(name)
        lost = HttpError(404, "no such session; initialize again")
        if type(session) is not kind or session.owner != principal(exchange.auth):
            raise lost
        now = time.monotonic()
        is_idle = session.used < now - self.session_seconds
        if is_idle and session not in list(self.http.serving.values()):
            session.end()
            raise lost
        session.used = now
        return session

    def _keep(self, stream: SessionStream) -> None:
        """Keep a finished stream for a client that resumes it."""
        self._kept[stream] = stream.size()
        while len(self._kept) > MAX_STREAMS or sum(self._kept.values()) > MAX_KEPT:
            self.drop(next(iter(self._kept)))

    def drop(self, stream: SessionStream) -> None:
        """Forget a stream."""
        self._kept.pop(stream, None)
        stream.connection.streams.pop(stream.name, None)

    # Streamable HTTP: basic/transports.md of 2025-03-26 to 2025-11-25
    def post(self, exchange: Exchange) -> None:
        """Serve the message of a POST, in the session that it names or opens. Without
        sessions, serve it alone."""
        self.http.check_mirrors(exchange)
        method = exchange.mirrored["Mcp-Method"]
        opens = method == "initialize" and exchange.request_id is not None
        if opens and exchange.load > MAX_HELLO:
            raise HttpError(413, "initialize: too large to be kept")
        if self._stateless:
            session = Session(self, exchange, None)
            if not opens:
                session.protocol.version = min(
                    exchange.version or ASSUMED_VERSION, LAST_LEGACY
                )
            try:
                self.http.serve(session, exchange)
            finally:
                session.end()
            return
        session = self._open(Session, exchange) if opens else self._find(exchange)
        if exchange.request_id is None:
            self.http.serve(session, exchange)
            return
        exchange.queue = stream = SessionStream(session, exchange)
        try:
            self.http.serve(session, exchange)
        finally:
            # A client can resume the stream if it has seen an event of it.
            if exchange.kind == EVENT_TYPE and session.reason is None:
                self._keep(stream)
            else:
                self.drop(stream)

    def _get(self, exchange: Exchange) -> None:
        """Serve a client that listens, or resumes the stream of its Last-Event-ID."""
        # Unread bytes of a body would hide the end of the connection.
        exchange.read_body()
        session = self._find(exchange)
        name, _, number = exchange.headers.get("last-event-id", "0-").rpartition("-")
        stream = session.streams.get(name)
        after = int(number) if re.fullmatch("[0-9]{1,18}", number) else None
        if stream is None or (stream.is_closed and stream.added == after):
            raise HttpError(405, "Last-Event-ID: no such stream", {"Allow": _METHODS})
        exchange.connection = session
        stream.carry_on(exchange, after)
        self.http.serve(session, exchange, b":\n\n")

    def _delete(self, exchange: Exchange) -> None:
        self._find(exchange).end()
        exchange.reply(200)

    # HTTP+SSE: basic/transports.md of 2024-11-05
    def _get_sse(self, exchange: Exchange) -> None:
        exchange.read_body()
        session = self._open(SseSession, exchange)
        session.outbox = exchange.queue
        session.outbox.is_endless = True
        event = f"event: endpoint\ndata: /messages?session_id={session.session_id}\n\n"
        try:
            self.http.serve(session, exchange, event.encode())
        finally:
            session.end()

    def _post_sse(self, exchange: Exchange) -> None:
        session = self._owned(
            SseSession, exchange.query.rpartition("session_id=")[2], exchange
        )
        exchange.read_message()
        self.http.check_mirrors(exchange)
        exchange.queue = session.outbox
        session.serve_post(exchange)


###############################################################################
# 19. HTTP server #############################################################
###############################################################################

# This section owns the sockets, the threads of connections and their deadlines. Two
# carriers connect exchanges to HTTP servers: one to any WSGI server, and one to the
# standard library's http.server and socketserver, with a thread for each connection.
# Nothing here knows MCP messages, and the endpoint does not know sockets.

MAX_SURPLUS = 32  # connections beyond the limit that get a 503; more are closed
TICK_SECONDS = 0.1  # how often a server checks deadlines, and which clients have left


@lru_cache
def _status_line(status: int) -> str:
    from http.client import responses

    return f"{status} {responses.get(status, '')}"


def answer_wsgi(
    endpoint: HttpEndpoint, environ: Json, start_response: Callable[..., Write]
) -> list[bytes]:
    """Answer one request as a WSGI application does (PEP 3333), on this thread."""
    exchange = _WsgiExchange(endpoint, environ, start_response)
    endpoint.answer(exchange)
    return [exchange.result]


class _WsgiExchange(Exchange):
    result = b""
    # Some hosts, such as Starlette, provide no write().
    _writer: Write | None = None

    def __init__(
        self,
        endpoint: HttpEndpoint,
        environ: Json,
        start_response: Callable[..., Write],
    ):
        headers = {
            name[5:].replace("_", "-").lower(): str(value)
            for name, value in environ.items()
            if name.startswith("HTTP_")
        }
        headers["content-type"] = f"{environ.get('CONTENT_TYPE') or ''}"
        path = str(environ.get("PATH_INFO") or "").replace("?", "%3F")
        path += f"?{environ.get('QUERY_STRING') or ''}"
        super().__init__(
            endpoint,
            str(environ.get("REQUEST_METHOD")),
            path,
            headers,
            f"{environ.get('REMOTE_ADDR') or ''}",
        )
        self.mount = f"{environ.get('SCRIPT_NAME') or ''}"
        self._environ = environ
        self._start_response = start_response

    def read_body(self) -> bytes:
        fields = {"content-length": f"{self._environ.get('CONTENT_LENGTH') or 0}"}
        length = _body_size(fields, "1.1") or 0
        self.check_size(length)
        size = length
        # Some servers terminate the input of a body whose length is unknown. Reading
        # past the end of any other input would block.
        if length == 0 and self._environ.get("wsgi.input_terminated"):
            size = self.endpoint.max_body + 1
        body: bytes = self._environ["wsgi.input"].read(size)
        if len(body) < length:
            raise HttpError(400, "the body ended early")
        self.check_size(len(body))
        return body

    def start(self, status: int, headers: Headers, body: bytes | None) -> None:
        self.result = body or b""
        self._writer = self._start_response(_status_line(status), list(headers.items()))

    def put(self, events: bytes, ending: bool) -> None:
        if self._writer is None:
            # The events are sent together at the end.
            self.result += events
            if not self.awaits_answer:
                raise OSError("a subscription has no end, and this host no write()")
            return
        try:
            self._writer(events)
        except Exception as error:
            # Each server has its own exceptions for a client that has hung up.
            raise OSError(error_text(error)) from error


class _SocketExchange(Exchange):
    def __init__(self, handler: _Handler, head: Head):
        super().__init__(
            handler.server.endpoint,
            head.method,
            head.target,
            head.fields,
            str(handler.client_address[0]),
        )
        self._handler = handler
        self._size = head.size
        self._is_chunked = head.version == "1.1"
        self.is_last = head.last
        # Whether the whole request was read.
        self.is_read = head.size == 0
        # How many probes hung_up() has sent.
        self._probes = 0

    def read_body(self) -> bytes:
        self.check_size(self._size or 0)
        if "expect" in self.headers:
            self._handler.connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = bytearray()
        if self._size is None:
            self._read_chunks(body)
        else:
            self._read(self._size, body)
        self.is_read = True
        self._handler.is_serving = True
        self._handler.set_deadline()
        return bytes(body)

    def _read(self, size: int, body: bytearray) -> None:
        """Append this many bytes. The memory is claimed as they arrive."""
        while size > 0:
            data = self._handler.rfile.read1(min(size, CHUNK))
            if not data:
                raise self._handler.broken_off("the body ended early")
            size -= len(data)
            body += data
            if size > 0:
                self.claim(len(body))

    def _read_chunks(self, body: bytearray) -> None:
        handler = self._handler
        size = -1
        while size:
            chunk = re.fullmatch(_CHUNK_LINE, handler.rfile.readline(MAX_HEAD))
            if chunk is None:
                raise handler.broken_off("expected the size of a chunk")
            size = int(chunk[1], 16)
            self.check_size(len(body) + size)
            self._read(size, body)
            # Trailers are refused as well.
            if handler.rfile.read(2) != b"\r\n":
                raise handler.broken_off("the chunk does not end with CR LF")

    def start(self, status: int, headers: Headers, body: bytes | None) -> None:
        if body is None and self._is_chunked:
            headers["Transfer-Encoding"] = "chunked"
        # Close the connection after this response if the body is unread, if the server
        # is closing, or if another thread sends it while the exchange's own thread is
        # busy with the request.
        self.is_last |= threading.get_ident() != self.thread or not self.is_read
        self.is_last |= self._handler.server.closing.is_set()
        if self.is_last:
            headers["Connection"] = "close"
        fields = "".join([f"{name}: {headers[name]}\r\n" for name in headers])
        head = f"HTTP/1.1 {_status_line(status)}\r\n{fields}\r\n"
        self._send([head.encode("latin-1", "replace"), body or b""], body is not None)

    def put(self, events: bytes, ending: bool) -> None:
        parts = [events]
        if self._is_chunked:
            parts = []
            if events:
                parts = [b"%x\r\n" % len(events), events, b"\r\n"]
            if ending:
                parts.append(b"0\r\n\r\n")
        self._send(parts, ending)

    def _send(self, parts: list[bytes], ending: bool) -> None:
        # The client must read each piece in time, and then send the next request.
        handler = self._handler
        if sum(map(len, parts)) < MAX_PIECE:
            # One write. A larger response is not copied: a slow client would make the
            # copy occupy memory for long.
            parts = [b"".join(parts)]
        try:
            for data in parts:
                part = memoryview(data)
                for start in range(0, len(part), MAX_PIECE):
                    handler.set_deadline(handler.server.idle_seconds)
                    handler.connection.sendall(part[start : start + MAX_PIECE])
        except OSError:
            # No response can follow one that was half written.
            self.is_last = True
            raise
        if not ending:
            handler.set_deadline()
            return
        self.is_last |= threading.get_ident() != self.thread
        if self.is_last:
            shut(handler.connection, 1)

    def may_wait(self) -> bool:
        # Another thread may be writing, and wait.
        return self._writing.locked() or not is_ready(
            self._handler.connection, writing=True
        )

    def hung_up(self) -> bool:
        """See Exchange.

        Some clients, such as `nc -N`, shut their own side and still read. A client that
        is gone looks the same until something is sent to it: then its system resets the
        connection. So send a probe, which a client that still reads ignores: an interim
        response, or a comment in a stream.
        """
        side = peer_side(self._handler.connection)
        if side != SHUT:
            return side == GONE
        if not self.awaits_answer:
            return True
        # The first one makes a system reset the connection; on some, only the second
        # one shows that.
        if self._probes > 1:
            return False
        return not self._probe()

    def _probe(self) -> bool:
        """Send the client something that it ignores. Never blocks. Returns False if the
        connection is known to be broken."""
        is_silent = self.status == 0
        # "A server MUST NOT send a 1xx response to an HTTP/1.0 client." Such a client,
        # usually a proxy, cannot be probed, and counts as gone.
        if is_silent and not self._is_chunked:
            return False
        if self.may_wait() or not self._writing.acquire(blocking=False):
            return True
        try:
            # Before this thread had the lock, the response may have begun, or ended.
            if self.is_over or is_silent != (self.status == 0):
                return True
            self._probes += 1
            if is_silent:
                self._handler.connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            else:
                self.put(b":\n\n", False)
            return True
        except OSError:
            return False
        finally:
            self._writing.release()


# What a peer has done with its side of a connection.
OPEN = "open"
SHUT = "shut"
GONE = "gone"


def peer_side(sock: Socket) -> str:
    """Return what the peer has done, without blocking: OPEN; SHUT if it will send
    nothing more; GONE if the connection is broken."""
    import select
    import socket

    if sys.platform == "linux":
        # This detects the end even if there are unread bytes before it, such as the
        # close_notify of TLS. PyPy has no name for POLLRDHUP.
        poll = select.poll()
        poll.register(sock, 0x2000)
        events = poll.poll(0)
        if not events:
            return OPEN
        # POLLRDHUP alone is SHUT; the system reports errors by itself.
        if events[0][1] == 0x2000:
            return SHUT
        return GONE
    try:
        if is_ready(sock) and not socket.socket.recv(sock, 1, socket.MSG_PEEK):
            return SHUT
    except OSError:
        return GONE
    return OPEN


# The modules of these base classes are slow to import: listen_http() imports them.
if not TYPE_CHECKING:
    BaseHTTPRequestHandler = ThreadingTCPServer = object


class _Handler(BaseHTTPRequestHandler):
    """Reads the requests of one connection, on its own thread:

        idle --a byte--> receiving --the whole request--> serving --answered--> idle
          | idle_seconds    | request_seconds               | the last one
          v                 v                               v
        cut off           cut off                         closed

    It is a BaseHTTPRequestHandler of http.server with another parser: see parse_head().
    The server cuts the connection off at the `deadline`. When the server closes, it
    shuts the reading side, unless a request is being served: so an idle connection
    ends, and a request that is still arriving gets 503.
    """

    rfile: io.BufferedReader
    server: HttpServer
    _problem: HttpError | None = None
    # Whether a whole request has arrived, and is not answered.
    is_serving = False
    # The server cuts the connection off at the earlier of these two, by
    # time.monotonic(). `limit` is set when the server closes.
    deadline = INFINITY
    limit = INFINITY

    def setup(self) -> None:
        server = self.server
        self.thread = threading.current_thread()
        self.thread.name = "mcp-http-connection"
        server.connections[self.request] = self
        if len(server.connections) > server.max_connections:
            self._problem = HttpError(503, "too many connections", _RETRY_SOON)
            server.endpoint.refusals.add(
                "HTTP: too many connections; refusing some (503)"
            )
        # A timeout of the socket itself would double the system calls. On Windows it is
        # needed, as a thread may not notice that the server cuts it off.
        self.request.settimeout(None if os.name == "posix" else server.idle_seconds)
        self.set_deadline(server.idle_seconds)
        if hasattr(self.request, "do_handshake"):
            self.request.do_handshake()
        super().setup()

    def set_deadline(self, seconds: float = INFINITY) -> None:
        """Set the deadline to this many seconds from now."""
        self.deadline = time.monotonic() + seconds

    def handle_one_request(self) -> None:
        """Read a request, and pass it to the endpoint."""
        server = self.server
        self.close_connection = True
        # close() sets `closing` before it looks at `is_serving`. So either this thread
        # sees `closing`, or close() shuts the reading side.
        self.is_serving = False
        if server.closing.is_set():
            shut(self.connection, 0)
        ready = self.rfile.peek(1)
        if not ready:
            return
        self.set_deadline(server.request_seconds)
        problem = self._problem
        head = _NO_HEAD
        try:
            head = self._read_head(ready)
            if server.closing.is_set():
                problem = self.broken_off("")
        except HttpError as error:
            problem = error
        exchange = _SocketExchange(self, head)
        exchange.is_last |= problem is not None
        self.is_serving = exchange.is_read
        server.endpoint.answer(exchange, problem)
        if exchange.is_last:
            # If this side closed with bytes unread, such as another request, the client
            # could lose the response. So wait until the client closes, or the deadline
            # cuts it off.
            self.is_serving = False
            shut(self.connection, 1)
            while self.rfile.read1(CHUNK):
                pass
        self.close_connection = exchange.is_last

    def broken_off(self, why: str) -> HttpError:
        """Return the refusal of a request that broke off, or is malformed."""
        if self.server.closing.is_set():
            return HttpError(503, "the server is closing", _RETRY_SOON)
        return HttpError(400, why)

    def _read_head(self, ready: bytes) -> Head:
        # Usually, the whole head has arrived.
        head, end, _ = ready[:MAX_HEAD].partition(b"\r\n\r\n")
        data = self.rfile.read(len(head + end)) if end else b""
        while not data.endswith(b"\r\n\r\n"):
            line = self.rfile.readline(MAX_HEAD + 1)
            data += line
            if len(data) > MAX_HEAD:
                raise HttpError(431, f"the head has more than {MAX_HEAD} bytes")
            if not line.endswith(b"\r\n"):
                raise self.broken_off("the head ended early, or a line has no CR")
        return parse_head(data)


class HttpServer(ThreadingTCPServer):
    """A server on a port, as `Server.start_http` returns it; a context manager.

        url, port   the address for clients
        close()     refuses new requests, and ends those that run
        request_seconds, idle_seconds   deadlines; set them before a client connects

    It is a ThreadingTCPServer of socketserver: one thread accepts, and each connection
    has its own thread. Every TICK_SECONDS, the accepting thread cuts off late
    connections, and checks which clients have hung up. It goes on doing so while
    close() waits for handlers.
    """

    daemon_threads = True
    # All of a request must arrive within this time.
    request_seconds = 60.0
    # A client must send a request, or read a piece of a response, within this time.
    idle_seconds = 30.0

    def begin_serving(
        self, endpoint: HttpEndpoint, url: str, port: int, max_connections: int
    ) -> None:
        """Complete the constructor of socketserver, and start to accept connections."""
        self.endpoint = endpoint
        self.url = url
        self.port = port
        self.max_connections = max_connections
        self.closing = threading.Event()
        self._is_closed = threading.Event()
        # Each operation on it is atomic.
        self.connections: dict[Socket, _Handler] = {}
        start_thread("mcp-http", self._accept)

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def serve_until(self, stop: Signals, grace: float) -> None:
        """Block until a signal arrives. Then close: after Ctrl-C, cancel handlers at
        once; after SIGTERM, give them `grace` seconds."""
        signal = "SIGINT"
        with suppress(KeyboardInterrupt):
            signal = stop.wait()
        if signal == "SIGINT":
            grace = 0.0
        self.close(grace, stop)

    def close(self, grace: float = DRAIN_SECONDS / 2, stop: Any = None) -> None:
        """Refuse new requests, end subscriptions, and wait for handlers. Those that
        still run after `grace` seconds are cancelled. Idempotent, from any thread."""
        if self.closing.is_set():
            return
        endpoint = self.endpoint
        self.closing.set()
        self.shutdown()
        self.server_close()  # the port is free
        endpoint.close(False)
        cancel_at = time.monotonic() + grace
        # Not even a client that reads nothing delays the end beyond this.
        limit = cancel_at + TIDY_SECONDS
        others = [
            each
            for each in self.connections.copy().values()
            if each.thread is not threading.current_thread()
        ]
        for each in others:
            each.limit = limit
            if not each.is_serving:
                shut(each.request, 0)
        threads = [each.thread for each in others]
        while not join_all(threads, TICK_SECONDS):
            now = time.monotonic()
            if now > limit or (stop and stop.poll()):
                break
            endpoint.close(now > cancel_at)
        endpoint.close(True)
        for exchange in [*endpoint.serving]:
            # Its handler ignores that it is cancelled, so its thread logs nothing.
            if exchange.is_over:
                log_access(exchange)
        for each in others:
            shut(each.request)
        self._is_closed.set()
        endpoint.tidiers.close(0.0)
        endpoint.loop.close()

    def _accept(self) -> None:
        self.serve_forever(TICK_SECONDS)
        # endpoint.close() may wait for a slow client, so go on checking deadlines.
        while not self._is_closed.wait(TICK_SECONDS):
            self.service_actions()

    # socketserver calls these, on the accepting thread.
    def get_request(self) -> Any:
        try:
            sock, address = super().get_request()
        except OSError:
            # The process may be out of descriptors: wait for some to be closed.
            self.closing.wait(0.05)
            raise
        return sock, address or ("", 0)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        return len(self.connections) <= self.max_connections + MAX_SURPLUS

    def shutdown_request(self, request: Any) -> None:
        self.connections.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exc_info()[1]
        why = f"an HTTP connection ended: {error_text(error)}"
        if isinstance(error, OSError):
            log_line(DEBUG, why)
        else:
            # The system may have refused a thread.
            self.endpoint.refusals.add(why)

    def service_actions(self) -> None:
        now = time.monotonic()
        for handler in self.connections.copy().values():
            if min(handler.deadline, handler.limit) < now:
                shut(handler.request)
        try:
            self.endpoint.end_departed()
        except Exception as error:
            # Keep accepting connections.
            log_line(ERROR, f"HTTP: {error_text(error)}", error)


def listen_http(endpoint: HttpEndpoint, options: Options) -> HttpServer:
    """Start a server on a port, or a socket, in the background. Raises OSError."""
    import socket
    from http.server import BaseHTTPRequestHandler
    from socketserver import ThreadingTCPServer

    host = options.host
    sock = options.sock
    if sock is None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.create_server(
            (host, options.port),
            family=family,
            backlog=MAX_CONNECTIONS,
            dualstack_ipv6=host == "::" and socket.has_dualstack_ipv6(),
        )
    # Another process may share the socket, and accept a connection first. Then accept()
    # must not block.
    sock.setblocking(False)
    scheme = "http"
    if options.ssl_context is not None:
        scheme = "https"
        # The connection's own thread does the handshake.
        sock = options.ssl_context.wrap_socket(
            sock, server_side=True, do_handshake_on_connect=False
        )
    address = sock.getsockname()
    netloc = "localhost"
    port = 0
    is_unix = isinstance(address, (str, bytes))
    if not is_unix:
        host, port = address[:2]
        if ":" in host:
            host = f"[{host}]"
        endpoint.hosts.add(host)
        # For "every address", the URL has the loopback address.
        shown = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(host, host)
        netloc = f"{shown}:{port}"
    handler = type(
        "Handler",
        (_Handler, BaseHTTPRequestHandler),
        {"disable_nagle_algorithm": not is_unix},
    )
    listener = type("Listener", (HttpServer, ThreadingTCPServer), {})
    server: HttpServer = listener(address, handler, bind_and_activate=False)
    server.socket.close()
    server.socket = sock
    url = f"{scheme}://{netloc}{options.path}"
    server.begin_serving(endpoint, url, port, options.max_connections)
    if hasattr(os, "register_at_fork"):
        from weakref import ref

        os.register_at_fork(after_in_child=partial(_let_go_of_sockets, ref(server)))
    return server


def _let_go_of_sockets(reference: Any) -> None:
    """In the child of a fork, close the sockets, which belong to the parent. A child
    that lives on would keep the port and the connections open."""
    server = reference()
    if server is None:
        return
    for sock in (server.socket, *server.connections):
        with suppress(OSError):
            os.close(sock.detach())


###############################################################################
# 20. HTTP client #############################################################
###############################################################################

# This section connects a client to an HTTP server. It owns URLs and proxies, a pool of
# connections, the challenges of a server that requires a login, and the two Transports
# that POST messages. It feeds responses to the Connection. Of a message it reads only
# the method, the ids, the revision, and the parts that headers mirror.
#
# Who sends and reads: the caller of send() only queues a message. The writer's thread
# takes it from the queue, POSTs it if it is a notification, and gives it to a worker if
# it is a request, or an answer. That worker owns the POST until the request is answered
# or fails: it reads the response, and feeds it. If a stream of events breaks off before
# the answer, the same worker resumes it, by a GET with the id of the last event, as
# often as necessary (LegacyHttp.resume). In a session, one more worker GETs what the
# server sends by itself, as long as the session lasts (LegacyHttp._listen). The thread
# that finds its session lost opens a new one, while others that find the same wait for
# it (LegacyHttp._renew); then each of them sends its own message again.
#
# An HTTP request is sent again after a redirect or a login. To abort one, look it up by
# its key, which is usually the id of its JSON-RPC request. If the server refuses a
# request with 401 or 403, the Authorizer gets headers for the next attempt, for example
# by a login. The number of attempts is limited. HttpCaller.send() owns the connection
# of a request: at the end of its `with` block, the connection is kept for the next
# request if the response was read to its end, or else closed.

KEEP_SECONDS = 3.0  # of idleness; after that, the server may close the connection
# Seconds of silence until the first probe, seconds between probes, and their number.
_KEEP_ALIVE = {
    "TCP_KEEPIDLE": 60,
    "TCP_KEEPALIVE": 60,  # its name on macOS
    "TCP_KEEPINTVL": 15,
    "TCP_KEEPCNT": 4,
}
REST_SECONDS = 0.1  # for the end of a response to arrive, after the answer
# Bytes of an answer in which _NO_SESSION is searched for.
MAX_LOSS = 1_000
MAX_ERROR = 64 << 10  # bytes of an error's body that a client reads
MAX_SHOWN = 1_000  # characters of a server's text in an exception's
# Consecutive failures that _follow() tolerates, and times that one request is sent
# again. An established listening stream retries until the server refuses it.
MAX_FAILURES = 3
BACKOFF_SECONDS = 60.0  # the longest delay, unless the server wants a longer one
BRIEF_SECONDS = 1.0  # a stream that ends sooner counts as a failure

# The verdict on a response: pass it on, or send the request again.
FINAL = "final"
RETRY = "retry"

_USER_AGENT = {"User-Agent": f"mcp_lite/{__version__}"}
# The headers of every message.
_POST_HEADERS = {"Content-Type": JSON_TYPE, "Accept": f"{JSON_TYPE}, {EVENT_TYPE}"}
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}
_HEADER = f"{HEADER_NAME}: [\t -~\x80-\xff]*"
_NO_THREAD = "not sent: the client is closed, or the system cannot start a thread"
# How servers report a lost session if they do not send 404.
_NO_SESSION = (
    "(?i)(no valid|invalid|unknown|missing|expired) (mcp )?session|server not initiali|"
    "session( id)?( is| has| was| does)?( not found| not exist| expired| invalid)"
)


def parse_url(text: str) -> SplitResult:
    """Parse an HTTP URL, and drop its fragment. Raises ValueError, whose text does not
    show the URL, as that may hold secrets."""
    from urllib.parse import urlsplit

    with suppress(ValueError):
        url = urlsplit(text.strip())
        is_http = url.scheme in ("http", "https") and url.username is None
        # Reading an invalid port raises ValueError.
        if is_http and url.hostname and url.port != 0:
            return url._replace(fragment="")
    raise ValueError(
        "url: expected http:// or https://, a host without a user (see headers=), "
        "and maybe a port and a path"
    )


def hide(text: str, secrets: Iterable[str]) -> str:
    """Replace each word of these secrets in a text by ***. Keep the names of schemes,
    such as Bearer, and words of up to three characters."""
    for word in " ".join(secrets).split():
        if len(word) > 3 and word.lower() not in ("basic", "bearer", "dpop"):
            text = text.replace(word, "***")
    return text


def show_url(url: SplitResult) -> str:
    """Return a URL for an error text, without its query, which may be secret."""
    return f"{url.scheme}://{url.netloc}{url.path}"


def merge_headers(*parts: Headers) -> Headers:
    """Merge headers. If a name repeats, in any case, the last value counts. Raises
    ValueError for an invalid header, without its value, which may be secret."""
    merged = {}
    for part in parts:
        for name, value in part.items():
            if not re.fullmatch(_HEADER, f"{name}: {value}"):
                raise ValueError(
                    f"headers: {show(name)}: expected one line of Latin-1 text"
                )
            merged[name.lower()] = (name, value)
    return dict(merged.values())


def find_proxy(url: SplitResult) -> tuple[str, Headers]:
    """Return the proxy for a URL as host:port, and the headers for that proxy; ("", {})
    if the environment and the system's settings name none."""
    from urllib.parse import unquote
    from urllib.request import getproxies, proxy_bypass

    host = str(url.hostname)
    if host in _LOOPBACK or proxy_bypass(host):
        return "", {}
    # A proxy may be given without a scheme.
    address = getproxies().get(url.scheme, "").rpartition("//")[2]
    login, _, netloc = address.rstrip("/").rpartition("@")
    if not login:
        return netloc, {}
    return netloc, {"Proxy-Authorization": f"Basic {_base64(unquote(login).encode())}"}


def follow_reference(url: SplitResult, reference: str) -> SplitResult | None:
    """Resolve a reference against a URL. Returns None if the result is invalid, or has
    another scheme, host or port, which must not see the headers with their secrets."""
    from urllib.parse import urljoin

    with suppress(ValueError):
        target = parse_url(urljoin(url.geturl(), reference.strip()))
        origin = (target.scheme, target.hostname, target.port)
        if origin == (url.scheme, url.hostname, url.port):
            return target
    return None


def open_connection(
    url: SplitResult,
    proxy: str,
    proxy_headers: Headers,
    ssl_context: SSLContext | None,
    timeout: float,
) -> HTTPConnection:
    """Open a connection. Reads have no timeout; to abort one, shut the socket. About
    two minutes after the network has gone, as when a laptop sleeps, a read fails.
    Raises OSError, and HTTPException for an invalid address of a proxy."""
    import http.client
    import socket

    netloc = proxy or url.netloc
    connection = http.client.HTTPConnection(netloc, timeout=timeout)
    if url.scheme == "https":
        connection = http.client.HTTPSConnection(
            netloc, timeout=timeout, context=ssl_context
        )
        if proxy:
            connection.set_tunnel(url.netloc, headers=proxy_headers)
    connection.connect()
    connection.sock.settimeout(None)
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE.items():
        # Some systems lack these options.
        with suppress(AttributeError, OSError):
            connection.sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return connection


class _HttpRequest:
    """One HTTP request, with its latest response, and the secrets that no text may
    show."""

    connection: HTTPConnection | None = None
    # When send() yields, only the head of the response has been read.
    response: Any = None

    def __init__(
        self,
        method: str,
        url: SplitResult,
        headers: Headers,
        body: bytes | None,
        key: object,
    ):
        self.method = method
        self.url = url
        # The headers of every attempt; _attempt() adds more.
        self.headers = headers
        self.body = body
        # HttpCaller.cut_off() finds the request by this key.
        self.key = key
        self.secrets: list[str] = []
        # The statuses for which the request was sent again, redirects included.
        self.refused: list[int] = []

    def describe(self, text: str, reason: int | str) -> str:
        """Return the text of an exception about this request, with the remedy if there
        is one. `reason` is a status, or the name of an exception."""
        # Hide secrets before the cut, which could halve one.
        text = hide(text, self.secrets)[:MAX_SHOWN]
        if reason in _REMEDIES:
            text += f"; {_REMEDIES[reason]}"
        return printable(f"{show_url(self.url)}: {text}")

    def failure(
        self, body: bytes, prefix: str = "", kind: type[HttpFailure] = HttpFailure
    ) -> HttpFailure:
        """Return the exception for a response without an answer."""
        response = self.response
        status = response.status
        text = prefix + f"HTTP {status} {response.reason}".strip()
        location = response.headers.get("Location", "").partition("?")[0]
        if location:
            text += f': it redirects to "{location}"'
        challenge = challenge_in(response.headers)
        if "scope" in challenge:
            text += f': it wants the scope "{challenge["scope"]}"'
        said = body.decode("utf-8", "replace").strip()
        if said:
            text += f": {said}"
        # It may be a date, but few servers send one, and few clocks agree.
        delay = response.headers.get("Retry-After", "")
        seconds = float(delay) if re.fullmatch("[0-9]{1,9}", delay) else None
        text = self.describe(text, status)
        return kind(text, show_url(self.url), status, challenge, seconds)


# Remedies for error texts, by the status of a response or the name of an exception.
_WRONG_PATH = "is the path of the URL right? Many servers are at /mcp"
_NO_REDIRECT = "only 307 and 308 within the same host are followed: use that URL"
_REMEDIES = {
    301: _NO_REDIRECT,
    302: _NO_REDIRECT,
    303: _NO_REDIRECT,
    307: _NO_REDIRECT,
    308: _NO_REDIRECT,
    401: "see Client(auth=), or headers=",
    403: "does it allow this host, this origin, this token and its scope? A firewall "
    "may have answered in its place",
    404: _WRONG_PATH,
    405: _WRONG_PATH,
    407: "the proxy wants a user and a password, in HTTPS_PROXY or HTTP_PROXY",
    "gaierror": "the name does not resolve; is a proxy needed?",
    "ConnectionRefusedError": "nothing listens there: is it running, is the port right?",
    "RemoteDisconnected": "did it crash, or does it want https?",
    "SSLError": "does it speak http, without TLS?",
    "SSLCertVerificationError": "see Client(ssl_context=), or set SSL_CERT_FILE",
}


# A parameter of a challenge: its name, and its quoted or bare value.
_CHALLENGE_PART = (
    r"""(?<![\w-])([\w-]+)[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))"""
)


def challenge_in(headers: Any) -> Headers:
    """Parse the Bearer or DPoP challenge of WWW-Authenticate: RFC 9110, section 11.6.1.

    Returns a dict of the challenge's "scheme", its parameters, by names in lower case,
    and the header DPoP-Nonce as "nonce". A later challenge adds the parameters that
    this one lacks. Without a challenge, the dict has the nonce at most.
    """
    text = ", ".join(headers.get_all("WWW-Authenticate") or [])
    challenge = {}
    scheme = re.search(r"(?i)\bbearer\b", text) or re.search(r"(?i)\bdpop\b", text)
    if scheme:
        challenge["scheme"] = scheme[0].lower()
        for part in re.finditer(_CHALLENGE_PART, text[scheme.end() :]):
            challenge.setdefault(part[1].lower(), part[3] or part[2])
    return add_given(challenge, nonce=headers.get("DPoP-Nonce"))


def is_session_lost(error: McpError | HttpFailure) -> bool:
    """Return whether a request was refused because its session is lost."""
    # "When a client receives HTTP 404 in response to a request containing an
    # MCP-Session-Id, it MUST start a new session". Some servers have another status,
    # and say so in the text. With any other one, the request may have been served.
    if error.http_status not in (200, 400, 401):
        return error.http_status == 404
    return bool(re.search(_NO_SESSION, str(error)))


class Authorizer:
    """Authorizes a client's requests: the seam between HTTP and OAuth.

        headers(method, url)    returns headers that authorize a request. `url` is the
                                server's, without its query
        handle_unauthorized(refusal, shown, refused, asking)
                                is called after a 401, or a 403 for lack of scope. It
                                returns whether to send the request again. If not, the
                                AuthorizationError `refusal` is raised, which has the
                                server's `url` and `challenge`. `shown` are the
                                headers that were refused, and `refused` the statuses
                                of earlier attempts. Use `with asking():` while the user
                                is asked; no timeout of a call runs inside
    Both run on the thread of the request, and may raise AuthorizationError. This class
    calls the program's function auth(challenge).
    """

    def __init__(self, ask: AnyFunction):
        self._ask = ask
        self._headers: Headers = {}
        # Held while the program's function runs.
        self._turn = threading.Lock()

    def headers(self, method: str, url: str) -> Headers:
        """Return the headers that the program's function returned last."""
        return self._headers

    def handle_unauthorized(
        self,
        refusal: AuthorizationError,
        shown: Headers,
        refused: list[int],
        asking: Job,
    ) -> bool:
        """Call the program's function, unless another thread has just called it."""
        with self._turn:
            if shown is not self._headers:
                return True
            with asking():
                headers = self._ask(refusal.challenge)
            self._headers = dict(headers or {})
            return headers is not None


def authorizer_for(auth: Any) -> Any:
    """Return the Authorizer for the value of Client(auth=)."""
    if hasattr(auth, "handle_unauthorized"):
        return auth
    if auth is not None and not callable(auth):
        raise TypeError(
            "auth: expected an OAuth or a function; for a token of your own, write "
            'headers={"Authorization": "Bearer ..."}'
        )
    return Authorizer(auth or do_nothing)


class HttpCaller:
    """Sends HTTP requests to one server, over connections that are kept alive.

    headers() returns the program's headers for each request, and the Authorizer adds
    its own. `timeout` bounds connecting, a notification, and the opening of a session.
    Any thread may cut off a request by its key, which is the id of its JSON-RPC
    request, or any other object.
    """

    connection: Connection
    # The server's cookies.
    jar: Any

    def __init__(
        self,
        url: str,
        headers: Callable[[], Headers],
        authorizer: Any,
        ssl_context: SSLContext | None,
        timeout: float,
    ):
        # After a redirect, this is its target.
        self.url = parse_url(url)
        self.timeout = timeout
        self.workers = Workers("mcp-posts", MAX_CONNECTIONS)
        # Its one thread handles messages in order.
        self.writer = Workers("mcp-writer", 1)
        self.closed = threading.Event()
        self._headers = headers
        self._authorizer = authorizer
        self._ssl_context = ssl_context
        self._proxy, self._proxy_headers = find_proxy(self.url)
        # Guards `_idle` and `_busy`, so that no thread shuts a connection which the
        # next request already uses.
        self._lock = threading.Lock()
        # Idle connections, (since when, connection) each, the latest last.
        self._idle: list[tuple[float, HTTPConnection]] = []
        # Whether a thread runs _close_idle().
        self._is_closing_idle = False
        # The requests that have a connection, with its socket, since http.client drops
        # a socket that the server is going to close.
        self._busy: dict[_HttpRequest, Socket] = {}

    def close(self) -> None:
        """Cut off every HTTP request. Blocks for EXIT_SECONDS at most."""
        with self._lock:
            self.closed.set()
            for sock in self._busy.values():
                shut(sock)
            for _, connection in self._idle:
                connection.close()
        self.writer.close(0.0)
        self.workers.close(EXIT_SECONDS)

    def cut_off(self, key: object) -> None:
        """Cut off the HTTP requests that have this key."""
        with self._lock:
            for http_request, sock in self._busy.items():
                if http_request.key == key:
                    shut(sock)

    def is_wanted(self, key: object) -> bool:
        """Return whether a thread still waits for the answer to the request with this
        id. For a key that is not an id, return whether the client is open."""
        if self.closed.is_set():
            return False
        if not isinstance(key, (int, str)):
            return True
        return key in self.connection.protocol.pending

    @contextmanager
    def send(
        self,
        method: str,
        headers: Headers,
        body: bytes | None = None,
        key: object = None,
        url: SplitResult | None = None,
    ) -> Iterator[_HttpRequest]:
        """Send an HTTP request, and yield it when the head of the response has been
        read. Any exception except McpError, even one that is raised inside the `with`,
        becomes an HttpFailure."""
        http_request = _HttpRequest(method, url or self.url, headers, body, key)
        try:
            while True:
                verdict = self._attempt(http_request)
                if verdict == FINAL:
                    break
                http_request.refused.append(http_request.response.status)
                self._give_back(http_request)
            yield http_request
        except (McpError, HttpFailure):
            raise
        except Exception as error:
            # Close the connection now. Otherwise _give_back() could mistake a response
            # that broke off for one that was read to its end.
            if http_request.connection:
                http_request.connection.close()
            text = error_text(error)
            if self._proxy:
                text += f" (by the proxy {self._proxy})"
            text = http_request.describe(text, type(error).__name__)
            raise HttpFailure(text, show_url(http_request.url)) from None
        finally:
            self._give_back(http_request)

    def _attempt(self, http_request: _HttpRequest) -> str:
        """Send a request once. Returns RETRY after a redirect or a login, otherwise
        FINAL. Raises AuthorizationError."""
        from urllib.request import Request

        # The jar implements the rules for cookies. Some load balancers need them.
        for_jar = Request(http_request.url.geturl())
        self.jar.add_cookie_header(for_jar)
        given = {**for_jar.unredirected_hdrs, **self._headers()}
        shown = self._authorizer.headers(http_request.method, show_url(self.url))
        values = map(str, [*given.values(), *shown.values()])
        http_request.secrets = [*re.split("[&=]", http_request.url.query), *values]
        headers = merge_headers(_USER_AGENT, given, shown, http_request.headers)
        response = self._send_once(http_request, headers)
        self.jar.extract_cookies(response, for_jar)
        status = response.status
        if status in (401, 403):
            return self._log_in(http_request, shown)
        if status in (307, 308) and status not in http_request.refused:
            target = follow_reference(
                http_request.url, response.headers.get("Location", "")
            )
            # It is None for an unsafe redirect.
            if target is not None:
                http_request.url = target
                self.url = target
                return RETRY
        return FINAL

    def _log_in(self, http_request: _HttpRequest, shown: Headers) -> str:
        """Call the Authorizer after a 401, or a 403 for lack of scope. Returns a
        verdict; raises AuthorizationError if no other attempt would help."""
        response = http_request.response
        error = challenge_in(response.headers).get("error")
        is_refused = response.status == 401 or error == "insufficient_scope"
        # A DELETE ends a session; the user need not log in for that.
        if not is_refused or http_request.method == "DELETE":
            return FINAL
        refusal = http_request.failure(
            response.read(MAX_ERROR), kind=AuthorizationError
        )
        refusal.url = show_url(self.url)
        refused = http_request.refused
        # For a lost session, open a new one without a login.
        is_lost = "Mcp-Session-Id" in http_request.headers and is_session_lost(refusal)
        if is_lost or len(refused) == MAX_FAILURES:
            raise refusal
        is_authorized = self._authorizer.handle_unauthorized(
            refusal, shown, refused, self.connection.answering
        )
        if not is_authorized:
            raise refusal
        return RETRY

    def _send_once(self, http_request: _HttpRequest, headers: Headers) -> Any:
        """Send a request with these headers, and return the response."""
        url = http_request.url
        target = url.path or "/"
        trace = self.connection.trace
        trace("-->", f"{http_request.method} {target}".encode())
        connection = self._take(http_request)
        # If a thread cuts the request off after this check, it finds the socket in
        # `_busy`.
        if not self.is_wanted(http_request.key):
            raise ConnectionError("cancelled before it was sent")
        if url.query:
            target += f"?{url.query}"
        if self._proxy and url.scheme == "http":
            target = f"http://{url.netloc}{target}"
            headers = {**headers, **self._proxy_headers}
        # A server that refuses a large body may respond before it has read it.
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.request(http_request.method, target, http_request.body, headers)
        response: Any = connection.getresponse()
        http_request.response = response
        # "A client MUST be able to parse one or more 1xx responses": RFC 9110, 15.2.
        # http.client skips those with 100 alone.
        while 100 < response.status < 200:
            response.headers = None
            response.begin()
        line = f"HTTP {response.status} {media_type(response.headers)}".strip()
        trace("<--", line.encode())
        return response

    # Connections
    def _take(self, http_request: _HttpRequest) -> HTTPConnection:
        """Return the connection that became idle last, if it is still open, else an
        older one, or a new one."""
        connection = None
        with self._lock:
            oldest = time.monotonic() - KEEP_SECONDS
            while connection is None and self._idle:
                since, connection = self._idle.pop()
                # Between requests, the only thing to read is the connection's end.
                if since < oldest or is_ready(connection.sock):
                    connection.close()
                    connection = None
        connection = connection or open_connection(
            self.url, self._proxy, self._proxy_headers, self._ssl_context, self.timeout
        )
        http_request.connection = connection
        with self._lock:
            self._busy[http_request] = connection.sock
        return connection

    def _give_back(self, http_request: _HttpRequest) -> None:
        """Keep a connection whose response was read to its end, or else close it."""
        connection = http_request.connection
        if connection is None:
            return
        is_over = False
        # `response` is None if none has arrived. `sock` is None if the server closes
        # the connection, or the response broke off. In both cases, this block raises an
        # exception, so `is_over` stays False, and the connection is closed.
        with suppress(Exception), closing(http_request.response) as response:
            # After the answer, a stream usually just ends.
            connection.sock.settimeout(REST_SECONDS)
            is_over = not response.read1(CHUNK)
            connection.sock.settimeout(None)
        http_request.connection = None
        with self._lock:
            self._busy.pop(http_request, None)
            if is_over and not self.closed.is_set():
                self._idle.append((time.monotonic(), connection))
                if not self._is_closing_idle:
                    with suppress(RuntimeError):
                        start_thread("mcp-idle", self._close_idle)
                        self._is_closing_idle = True
                return
        connection.close()

    def _close_idle(self) -> None:
        """Close the connections that no request has used again, until there are
        none."""
        while not self.closed.wait(KEEP_SECONDS):
            with self._lock:
                oldest = time.monotonic() - KEEP_SECONDS
                while self._idle and self._idle[0][0] < oldest:
                    self._idle.pop(0)[1].close()
                if not self._idle:
                    self._is_closing_idle = False
                    return


def read_answer(response: HTTPResponse) -> bytes:
    """Return a body. If it is over MAX_MESSAGE, the rest stays unread. Raises
    ConnectionError if it broke off."""
    # Old versions of Python allocate at once all that one read() may return.
    body = bytearray()
    while len(body) <= MAX_MESSAGE and (data := response.read(CHUNK)):
        body += data
    if response.length and len(body) <= MAX_MESSAGE:
        raise ConnectionError(f"the answer broke off after {len(body)} bytes")
    return bytes(body)


class _Post:
    """A message for the server, and the parts of it that HTTP needs."""

    def __init__(self, message: Json):
        self.message = message
        self.body = encode_message(message)
        self.params = object_or_empty(message.get("params"))
        self.row = method_row(message.get("method"))
        self.is_answer = "method" not in message
        # None if the message is not a request.
        self.request_id = None if self.is_answer else message.get("id")
        self.opens_session = self.row.handshake and self.request_id is not None
        # HttpCaller.cut_off() finds the HTTP request of this message by this key.
        self.key = self if self.request_id is None else self.request_id


class HttpTransport(Transport, Outbox):
    """POSTs each message to a URL, and feeds the response, JSON or events:
    basic/transports/streamable-http.md. The writer's thread POSTs notifications itself,
    so that they stay in order, and passes all other messages to workers. A POST is sent
    again only if the server has refused or redirected it: otherwise, the tool may have
    run.

    LegacyHttp adds sessions.
    """

    feeds = True
    mirrors = True
    # begin(post, headers) reads the headers of a response, before its body is fed.
    begin: Any = do_nothing
    # resume(post, stream) continues a stream that has ended, if possible.
    resume: Any = do_nothing

    def __init__(self, caller: HttpCaller):
        self.caller = caller

    # The Transport
    def start(self, connection: Connection) -> None:
        self.caller.connection = connection

    def details(self) -> str:
        return f" (url: {show_url(self.caller.url)})"

    def close(self) -> None:
        """Cut off every request. Blocks for EXIT_SECONDS at most."""
        self.caller.close()

    # The Outbox
    def send(self, message: Json) -> None:
        post = _Post(message)
        if post.row.cancels:
            # In the modern era, a request is cancelled by closing its connection.
            self.caller.cut_off(post.params.get("requestId"))
        is_taken = self.caller.writer.submit(partial(self._write, post))
        if not is_taken and post.request_id is not None:
            raise ConnectionClosed(_NO_THREAD)

    def finish(self, request: Request | None, answer: Any) -> None:
        if answer:
            self.send(encode_answer(answer, request)[0])

    def drain(self, seconds: float) -> None:
        self.caller.writer.close(seconds)

    def _write(self, post: _Post) -> None:
        self.connection.trace("-->", post.body)
        if post.is_answer or post.request_id is not None:
            if not self.caller.workers.submit(partial(self._send, post)):
                self.connection.resolve(post.request_id, ConnectionClosed(_NO_THREAD))
        else:
            self.post_notification(post)

    def post_notification(self, post: _Post) -> None:
        """POST a message that no other thread waits for. The timeout cuts off the first
        attempt; a second one, after a login, has no time limit."""
        with time_limit(self.caller.timeout, self.caller.cut_off, post.key):
            self._send(post)

    def _send(self, post: _Post) -> None:
        """POST a message. If that fails, fail its request; if it is not a request, log
        the failure."""
        try:
            self._post(post)
        except Exception as error:
            # The caller may keep the exception. The frames of its context would keep a
            # socket open.
            error.__context__ = None
            if not self.connection.resolve(post.request_id, error):
                log_line(DEBUG, f"HTTP: {error_text(error)}")

    def _post(self, post: _Post) -> None:
        # "The client MUST NOT send JSON-RPC responses". To cancel, send() has closed
        # the connection.
        if not (post.row.cancels or post.is_answer):
            self.post(post, {})

    # One message
    def post(self, post: _Post, more_headers: Headers) -> None:
        """POST a message, and feed the response. Raises McpError, HttpFailure."""
        headers = {**_POST_HEADERS, **more_headers, **self._mirrors(post)}
        stream = EventStream()
        body = b""
        why = "no answer: "
        with self.caller.send("POST", headers, post.body, post.key) as http_request:
            response = http_request.response
            if response.status >= 300:
                raise self._rejection(http_request, post, response.read(MAX_ERROR))
            self.begin(post, response.headers)
            if post.request_id is None:
                return
            if media_type(response.headers) == EVENT_TYPE:
                why = "the events broke off before the answer: "
                self.feed_events(response, post.request_id, stream)
            else:
                body = read_answer(response)
        # The connection is free now, so the caller's next request can use it: wake the
        # caller. Ignore the Content-Type: some servers send none, or text/plain.
        if b'"jsonrpc"' in body:
            # Some servers report a lost session with the status 200.
            if re.search(_NO_SESSION, body[:MAX_LOSS].decode("utf-8", "replace")):
                rejection = self._rejection(http_request, post, body)
                # An error with another code may be the answer of a tool that has run.
                if isinstance(rejection, (InvalidRequest, InternalError)):
                    raise rejection
            self.connection.receive(body)
        self.resume(post, stream)
        if self.caller.is_wanted(post.request_id):
            raise http_request.failure(body, why)

    def feed_events(
        self, response: HTTPResponse, request_id: RequestId | None, stream: EventStream
    ) -> None:
        """Feed events until the response ends, or the request is answered."""
        for kind, text in stream.read(response):
            if kind == "message" and text:
                self.connection.receive(text, subject=request_id)
            if not self.caller.is_wanted(request_id):
                return

    def _rejection(
        self, http_request: _HttpRequest, post: _Post, body: bytes
    ) -> Exception:
        """Return the exception for a response that refuses a message."""
        status = http_request.response.status
        answer = None
        with suppress(McpError):
            answer = parse_message(body)
        error = object_or_empty(member_at(answer, ["error"]))
        # With status 400, an error without our id is about the POST as well.
        is_ours = own_id(member_at(answer, ["id"])) == post.request_id or status == 400
        if "code" not in error or not is_ours or status in (401, 403):
            return http_request.failure(body)
        self.connection.trace("<--", body)
        rejection = McpError.from_wire(error)
        rejection.http_status = status
        return rejection

    def _mirrors(self, post: _Post) -> Headers:
        """Return the headers that mirror a message, without those whose value is
        missing, or cannot be mirrored."""
        values = mirrored_headers(
            post.message, self.connection.endpoint.header_parameters
        )
        meta = object_or_empty(post.params.get("_meta"))
        values["MCP-Protocol-Version"] = meta.get(META_VERSION)
        headers = {}
        for name, value in values.items():
            text = encode_header(value)
            if text is not None:
                headers[name] = text
        return headers


# The legacy era: basic/transports.md of 2024-11-05 to 2025-11-25. The code above does
# not use it. To drop the era, delete the rest of the section, and have the client make
# an HttpTransport.


class LegacyHttp(HttpTransport):
    """An HttpTransport that also has sessions, once an `initialize` has been sent:

        POST --> events, broken off --> GET with Last-Event-ID --> more events --> ...
        POST --> 404 --> initialize --> the same POST again
        POST --> 4xx to `initialize` --> GET --> HTTP+SSE, if there is such a stream

    Messages that the server sends by itself arrive in response to a GET, which is sent
    again as long as the session lasts. Over HTTP+SSE (basic/transports.md of
    2024-11-05), all messages arrive on one stream, whose first event has the URL for
    POSTs.

    When a session is lost, one thread opens a new one. It passes the result of
    `initialize` to set_server_info(), and then a worker calls on_new_session().
    """

    def __init__(
        self,
        caller: HttpCaller,
        set_server_info: Callable[[Json], Any],
        on_new_session: Job,
    ):
        super().__init__(caller)
        self._set_server_info = set_server_info
        self._on_new_session = on_new_session
        # The id of the session. None before `initialize` is answered, and for a server
        # without sessions.
        self._session = None
        # The latest `initialize`; {} in the modern era.
        self._opening: Json = {}
        # Held by the thread that opens a session in place of a lost one.
        self._renewing = threading.Lock()
        # The URL for POSTs over HTTP+SSE, and the reference to it that the server has
        # sent. `_is_answered` is set when the URL is known, and when the stream has
        # ended.
        self._post_url: SplitResult | None = None
        self._reference = ""
        self._is_answered = threading.Event()

    def close(self) -> None:
        """End the session, and cut off every request. Blocks for twice EXIT_SECONDS at
        most."""
        if self._session is not None:
            start_thread("mcp-delete", self._delete_session).join(EXIT_SECONDS)
        super().close()

    def _delete_session(self) -> None:
        with suppress(Exception), self.caller.send("DELETE", self._headers()):
            pass

    def _headers(self) -> Headers:
        """Return the headers of every request but the first one of a session."""
        headers = {"MCP-Protocol-Version": self.connection.protocol.version or OLDEST}
        if self._session is not None:
            headers["Mcp-Session-Id"] = self._session
        return headers

    def _post(self, post: _Post) -> None:
        """POST a message, in the session if there is one."""
        if post.opens_session:
            self._opening = post.message
        # A server that was slow to start may turn out to be modern although it was sent
        # an `initialize`.
        if not self._opening or self.connection.protocol.version >= FIRST_MODERN:
            super()._post(post)
            return
        if self._post_url is not None:
            self._post_sse(post)
            return
        session = self._session
        try:
            self._post_once(post)
        except (McpError, HttpFailure) as error:
            # An answer is not sent again: it belongs to the session of its question.
            is_bound = session is None or post.row.handshake or post.is_answer
            if is_session_lost(error) and not is_bound:
                self._renew(session)
                self._post_once(post)
            else:
                self._fall_back(post, error)
        if post.row.handshake and not post.opens_session:
            # After "notifications/initialized", the server may send messages.
            self.caller.workers.submit(partial(self._listen, self._session))

    def _post_once(self, post: _Post) -> None:
        self.post(post, {} if post.opens_session else self._headers())

    def begin(self, post: _Post, headers: Any) -> None:
        if post.opens_session:
            self._session = headers.get("Mcp-Session-Id")

    def resume(self, post: _Post, stream: EventStream) -> None:
        can_resume = stream.last_id and self._opening
        if can_resume and self.caller.is_wanted(post.request_id):
            self.caller.closed.wait(stream.retry)
            self._follow(stream, self._session, post.request_id)

    # Remedies for a POST that was rejected
    def _fall_back(self, post: _Post, error: McpError | HttpFailure) -> None:
        """POST the message over HTTP+SSE, the transport of 2024-11-05. Raises `error`
        if that is no remedy, or the server does not have it."""
        # "and the response body is not a recognized modern JSON-RPC error [...]: Issue
        # a GET request to the server URL".
        is_refused = isinstance(error, HttpFailure) and post.opens_session
        if not is_refused or error.http_status not in (400, 404, 405):
            raise error
        self.caller.workers.submit(self._listen_sse)
        self._is_answered.wait(self.caller.timeout)
        if self._post_url is not None:
            self._post_sse(post)
        elif self._reference:
            shown = show(self._reference.partition("?")[0], 300)
            url = show_url(self.caller.url)
            raise HttpFailure(
                f"{url}: its HTTP+SSE endpoint is on another server: {shown}", url
            )
        else:
            raise error

    def _renew(self, lost: str | None) -> None:
        """Open a session in place of a lost one, unless another thread has done so.
        This thread sends `initialize` and reads the answer itself, since all workers
        may be waiting. Raises the error of that request."""
        connection = self.connection
        with self._renewing:
            if self._session != lost:
                return
            # The server has forgotten what it asked in the lost session.
            connection.cancel_requests()
            post = _Post(self._opening)
            opening = PendingRequest(connection, "initialize")
            connection.register(opening, post.request_id)
            try:
                with time_limit(self.caller.timeout, self.caller.cut_off, post.key):
                    self._post_once(post)
            except BaseException as error:
                connection.resolve(post.request_id, error)
            result = opening.result(0.0)
            version = result.get("protocolVersion")
            if version in LEGACY_VERSIONS:
                connection.protocol.version = version
            self._set_server_info(result)
            self.post_notification(
                _Post(call_message("notifications/initialized", None))
            )
            self.caller.workers.submit(self._on_new_session)

    # Streams
    def _listen(self, session: str | None) -> None:
        """Receive what the server sends by itself, as long as a session lasts."""
        try:
            self._follow(EventStream(), session, None)
        except Exception as error:
            log_line(WARNING, f"cannot listen to the server: {error_text(error)}")

    def _follow(
        self, stream: EventStream, session: str | None, request_id: RequestId | None
    ) -> None:
        """GET a stream, and again whenever it ends, until its request is answered or
        its session is over. Returns if the server refuses. After more than MAX_FAILURES
        in a row, raises the last one. An established listening stream goes on, but each
        Listening ends with it: a program must know that it may miss a change."""
        is_established = False
        failures = 0
        while self.caller.is_wanted(request_id) and self._session == session:
            begun = time.monotonic()
            failures += 1
            try:
                self._get(stream, request_id)
                is_established = request_id is None
                if time.monotonic() > begun + BRIEF_SECONDS:
                    failures = 0
            except HttpFailure as error:
                if is_established and is_session_lost(error):
                    with suppress(McpError, HttpFailure):
                        self._renew(session)
                        # What was heard goes on in the new session.
                        continue
                elif (error.http_status or 500) < 500:
                    # The server does not have this stream.
                    return
                if failures > MAX_FAILURES:
                    if not is_established:
                        raise
                    for key in list(self.connection.protocol.pending):
                        if not is_id(key):
                            self.connection.resolve(key, error)
            self.caller.closed.wait(
                max(stream.retry, min(BACKOFF_SECONDS, stream.retry * failures**2))
            )

    def _get(self, stream: EventStream, request_id: RequestId | None) -> None:
        """GET a stream and feed its events until it ends. Raises HttpFailure if there
        is none."""
        headers = self._headers()
        headers["Accept"] = EVENT_TYPE
        if stream.last_id:
            # Event sources send it in UTF-8.
            headers["Last-Event-ID"] = stream.last_id.encode().decode("latin-1")
        with self.caller.send("GET", headers, key=request_id) as http_request:
            response = http_request.response
            if response.status != 200 or media_type(response.headers) != EVENT_TYPE:
                raise http_request.failure(response.read(MAX_ERROR), "no stream: ")
            self.feed_events(response, request_id, stream)

    # HTTP+SSE
    def _listen_sse(self) -> None:
        """GET the stream, and feed its events. Its end is that of the conversation."""
        why = "the server closed the stream"
        try:
            with self.caller.send("GET", {"Accept": EVENT_TYPE}) as http_request:
                for kind, text in EventStream().read(http_request.response):
                    if kind == "message" and text:
                        self.connection.receive(text)
                    elif kind == "endpoint" and self._post_url is None:
                        reference = text[:MAX_HEAD].decode("utf-8", "replace")
                        self._post_url = follow_reference(self.caller.url, reference)
                        self._reference = reference
                        self._is_answered.set()
        except Exception as error:
            why = f"cannot listen to the server: {error_text(error)}"
        self._is_answered.set()
        if self._post_url is not None:
            self.connection.close(ConnectionClosed(why))

    def _post_sse(self, post: _Post) -> None:
        with self.caller.send(
            "POST", _POST_HEADERS, post.body, post.key, self._post_url
        ) as http_request:
            if http_request.response.status >= 300:
                raise http_request.failure(http_request.response.read(MAX_ERROR))


###############################################################################
# 21. Authorization ###########################################################
###############################################################################

# This section logs a client in by OAuth 2.1 (basic/authorization/): discovery,
# registration, PKCE, tokens, step-up, and the grant without a user. It owns the tokens,
# and the store that keeps them. It implements the seam Authorizer, and does not use the
# protocol's messages.
#
#     401 --> _refresh() --new tokens--> the request again --401--> _log_in()
#                '--no refresh token, or it is refused-----------> _log_in()
#     403 for lack of scope, once a request ---------------------> _log_in(), which
#                                                                  asks for that scope
#
# _log_in() finds the server's metadata (_find_resource), the authorization server that
# they name (_find_server), and the client's identity there (_identify); it asks the
# user to agree (_ask_user), and gets the tokens (_ask_tokens). One thread at a time
# logs in. The others wait for it, and use its tokens, or fail as it does.

LOGIN_SECONDS = 300.0  # for a login: the user may have to look for a password
AUTH_SECONDS = 20.0  # for each answer of an authorization server
MAX_METADATA = 256 << 10  # bytes of an authorization server's answer

# Ways to authenticate a client, best first: an installed program cannot keep a secret.
AUTH_METHODS = ("none", "client_secret_basic", "client_secret_post")
# The members of a form that must not appear in error texts.
SECRET_MEMBERS = ("code", "code_verifier", "refresh_token", "client_secret")
# The redirect URI for redirect=fn(url), unless redirect_uri= gives another.
DEFAULT_REDIRECT_URI = "http://127.0.0.1:33418/callback"
Reply = namedtuple("Reply", "status document headers")


def _check_url(name: str, url: Any, source: str) -> str:
    """Return a URL to which secrets may be sent. Raises AuthorizationError for others.

    It must use https, or lead to this machine. The latter is allowed only if `source`,
    the URL of the server that has named it, leads to this machine as well.
    """
    with suppress(ValueError):
        if isinstance(url, str) and re.fullmatch("[!#-~]+", url):
            parts = parse_url(url)
            hosts = {parts.hostname, parse_url(source).hostname}
            if parts.scheme == "https" or hosts <= _LOOPBACK:
                return url
    raise AuthorizationError(f"{name}: expected an https URL, got {show(url)}")


def _issuer_spellings(issuer: str) -> list[str]:
    """Return the URLs that name the same issuer. If an issuer has no path, a final
    slash means nothing, and servers and authorization servers disagree about it."""
    origin = origin_of(issuer)
    spellings = [origin, f"{origin}/"]
    if issuer in spellings:
        return spellings
    return [issuer]


def _endpoint_of(server: Json, name: str) -> str:
    """Return the URL of an authorization server's endpoint. Raises
    AuthorizationError."""
    return _check_url(name, server.get(name), server["issuer"])


def _texts_in(document: Json, member: str) -> list[str]:
    """Return an array of strings; [] if the document has no such array."""
    value: Any = document.get(member)
    return value if _is_names(value) else []


class OAuth:
    """Logs a client in at servers that require it, by OAuth 2.1: basic/authorization/.

        with Client("https://example.com/mcp", auth=OAuth(store="~/.tokens")) as client:

    Nothing happens until the server answers with 401. Then the browser opens the page
    of the authorization server that the server names. Calls wait until the browser
    comes back to a port of this machine; their timeouts do not run meanwhile. One login
    serves all threads, and one OAuth may serve several clients of several servers. A
    token is sent only to its own server, in a header.

    A subclass may bind tokens to a key (DPoP, RFC 9449), or send a signed JWT instead
    of a secret (RFC 7523); examples/conformance_client.py does both. To override:
    headers() returns headers that authorize a request to the server, fetch() sends each
    request of a login, and token_types lists the types of token that are accepted.
    """

    token_types = ("bearer",)

    def __init__(
        self,
        *,
        client_name: str = "mcp_lite",
        scopes: str | Iterable[str] | None = None,
        client_id: str | None = None,
        client_secret: str | None = None,
        client_metadata_url: str | None = None,
        issuer: str | None = None,
        store: Any = None,
        redirect: Callable[[str], str | None] | None = None,
        redirect_uri: str | None = None,
        grant: str = "authorization_code",
        send_resource: bool = True,
        may_log_in: bool = True,
        timeout: float = LOGIN_SECONDS,
        ssl_context: SSLContext | None = None,
    ):
        """Prepare to log in. Raises ValueError.

        client_name: the name that the user sees
        scopes: the scopes to ask for, instead of those that the server names
        client_id: this client's name at the authorization server. Without it, the
            client uses client_metadata_url, or registers
        client_secret: the secret that belongs to client_id
        client_metadata_url: an https URL, with a path, of a document about this client,
            for authorization servers that accept one as a client_id
        issuer: the only authorization server to use; "*" allows any. A client_secret
            needs it, or a hostile server could name an authorization server of its own
        store: keeps tokens: a dict, or the path of a file that only this user can read;
            without it, they are lost with this object
        redirect: for machines without a browser: redirect(url) sends the user to a URL,
            and returns the URL at which the browser arrived, or None
        redirect_uri: the registered URL to which the browser returns; if it has no
            port, a free one is added
        grant: "authorization_code", with a user, or "client_credentials", without one
        send_resource: whether to name the server for which a token is meant; some
            authorization servers refuse that
        may_log_in: False raises AuthorizationError instead of starting a login;
            stored tokens are still used and renewed
        timeout: seconds that the user may take
        ssl_context: an ssl.SSLContext for the authorization server
        """
        if isinstance(scopes, str):
            scopes = scopes.split()
        self._client_name = client_name
        self._scopes = scopes
        self._client_id = client_id
        self._client_secret = client_secret
        self._client_metadata_url = client_metadata_url
        self._issuer = issuer
        self._redirect = redirect
        self._redirect_uri = redirect_uri
        self._grant = grant
        self._send_resource = send_resource
        self._may_log_in = may_log_in
        self._timeout = timeout
        self._ssl_context = ssl_context
        self._store = {} if store is None else store
        # Held by the thread that logs in, or refreshes a token.
        self._turn = threading.Lock()
        # The URL of a server -> the error of the last login there, for the threads that
        # waited for that login. Only the holder of _turn writes it.
        self._failures: dict[str, Exception] = {}
        # The URL of a server -> its record in the store. Each operation is atomic.
        self._records: Json = {}
        if client_secret and not (client_id and issuer):
            raise ValueError(
                "client_secret: needs client_id=, and issuer=: the authorization "
                'server that may see it, or "*" for any that a server names'
            )
        # client-registration.md: 'MUST use the "https" scheme and contain a path'.
        if client_metadata_url and not re.fullmatch(
            "https://[A-Za-z0-9.:-]+/[!$-~]+", client_metadata_url
        ):
            # The text does not quote it, as it may have a password.
            raise ValueError("client_metadata_url: expected https://host/path")
        needs_no_user = grant == "client_credentials" and client_id
        if grant != "authorization_code" and not needs_no_user:
            raise ValueError(
                "grant: expected authorization_code, or client_credentials with "
                f"client_id=; got {show(grant)}"
            )

    # The seam: see Authorizer
    def headers(self, method: str, url: str) -> Headers:
        """Return the headers that authorize a request to this server."""
        if url not in self._records:
            # No token is stored for an unsafe URL. So if no login may start, there is
            # nothing to protect, and the URL need not be checked.
            if self._may_log_in:
                _check_url("auth", url, url)
            self._reload(url)
        token = self._records[url].get("access_token")
        if not token:
            return {}
        return {"Authorization": f"Bearer {token}"}

    def handle_unauthorized(
        self,
        refusal: AuthorizationError,
        shown: Headers,
        refused: list[int],
        asking: Job,
    ) -> bool:
        """Get another token. Return False if no other token would help. Raises
        AuthorizationError."""
        url = refusal.url
        failure = self._failures.get(url)
        with self._turn:
            record = self._reload(url)
            used = shown.get("Authorization", "").partition(" ")[2]
            if used != record.get("access_token", ""):
                return True  # another thread, or process, has got a new token
            if self._failures.get(url) is not failure:
                # The login of another thread has failed while this one waited.
                raise AuthorizationError(str(self._failures[url]))
            if refusal.http_status == 403:
                # Step up once for a request. Do not ask again for scopes that a login
                # has asked for before.
                wanted = set(refusal.challenge.get("scope", "").split())
                if 403 in refused or wanted <= set(record.get("scopes", ())):
                    return False
            elif 401 in refused:
                if not record.get("is_renewed"):
                    return False  # the server refuses a token from a fresh login
            else:
                is_refreshed = self._refresh(url, record)
                if is_refreshed:
                    return True
            self._log_in(url, refusal.challenge, asking)
        return True

    def login(self, url: str) -> None:
        """Log in at a server now, and store the tokens. Blocks while the user logs in.

        Raises AuthorizationError, and any exception of redirect() and the store.
        """
        server_url = _check_url("url", show_url(parse_url(url)), url)
        challenge = challenge_in(self.fetch(url, _POST_HEADERS, b"{}").headers)
        with self._turn:
            # Test the store before the user is asked.
            self._keep(server_url, self._reload(server_url))
            self._log_in(server_url, challenge, nullcontext)

    def logout(self, url: str) -> None:
        """Delete the tokens for a server. Raises AuthorizationError."""
        self._keep(show_url(parse_url(url)), {})

    # The store maps a server's URL to a record:
    #
    #     access_token, refresh_token         the tokens; there may be no second one
    #     issuer, token_endpoint, resource    where, and for which server, to renew them
    #     client                              this client, as that issuer knows it
    #     scopes, scope                       what was asked for, as a list and as text
    #     is_renewed                          the access token came by a refresh token
    #     is_doubtful                         the latest login has not succeeded
    def _load(self) -> Json:
        if isinstance(self._store, dict):
            return self._store
        try:
            with open(os.path.expanduser(self._store), "rb") as file:
                return dict(json.load(file))
        except FileNotFoundError:
            return {}
        except (ValueError, TypeError):
            raise AuthorizationError(
                f"store: {self._store} is damaged: delete it"
            ) from None

    def _reload(self, url: str) -> Json:
        """Read a record. Another process may have stored newer tokens."""
        record = object_or_empty(self._load().get(url))
        self._records[url] = record
        return record

    def _keep(self, url: str, record: Json) -> None:
        """Store a record. Raises OSError."""
        self._records[url] = record
        if isinstance(self._store, dict):
            self._store[url] = record
            return
        from tempfile import mkstemp

        path = os.path.expanduser(self._store)
        records = {**self._load(), url: record}
        number, new = mkstemp(dir=os.path.dirname(path) or ".")
        try:
            with open(number, "w") as file:
                json.dump(records, file)
            # Replace the file in one step, so that no process reads half of it.
            os.replace(new, path)
        except OSError:
            os.unlink(new)
            raise

    def _keep_or_warn(self, url: str, record: Json) -> None:
        """Store a record. If that fails, log it, and use memory as the store from then
        on: a full disk must not fail a call."""
        try:
            self._keep(url, record)
        except OSError as error:
            log_line(WARNING, f"store: {error}; from now on, tokens are not kept")
            self._store = {**self._load(), url: record}

    # Discovery: basic/authorization/authorization-server-discovery.md
    def fetch(self, url: str, headers: Headers, body: bytes | None = None) -> Any:
        """GET a document, or POST a body. Return a Reply: status, document, headers.

        The document is a dict; {} if the answer is not a JSON object. Raises
        AuthorizationError if there is no answer.
        """
        parts = parse_url(url)
        target = f"{parts.path or '/'}?{parts.query}".rstrip("?")
        method = "GET" if body is None else "POST"
        headers = {"Accept": JSON_TYPE, **_USER_AGENT, **headers}
        try:
            # Redirects are not followed, as they could send a secret to another host.
            # The time limit is for the whole answer, however slowly it arrives.
            opened = open_connection(
                parts, *find_proxy(parts), self._ssl_context, AUTH_SECONDS
            )
            with closing(opened) as connection, time_limit(
                AUTH_SECONDS, shut, connection.sock
            ):
                connection.request(method, target, body, headers)
                answer = connection.getresponse()
                text = answer.read(MAX_METADATA).decode("utf-8-sig", "replace")
            # Encoding the document again replaces lone surrogates, which no URL can
            # have.
            document = parse_message(encode_message(parse_text(text)))
        except Exception as error:
            # Usually OSError, or an exception of http.client.
            raise AuthorizationError(
                f"{show_url(parts)}: {error_text(error)}"
            ) from error
        return Reply(answer.status, object_or_empty(document), answer.headers)

    def _read_first(self, name: str, url: str, places: Iterable[str | None]) -> Json:
        """Return the first document found at these places, or {}.

        name: the member that names the places, for errors
        url: the server that sent this member
        """
        failure = None
        for place in filter(None, dict.fromkeys(places)):
            reply = self.fetch(_check_url(name, place, url), {})
            if reply.status == 200 and reply.document:
                return dict(reply.document)
            if reply.status >= 500:
                failure = AuthorizationError(f"{place}: HTTP {reply.status}")
        # Some gateways answer with a 5xx at a path that they do not know, so the other
        # places were tried first. If none has a document, this one may have it.
        if failure:
            raise failure
        return {}

    def _find_resource(self, url: str, challenge: Headers) -> Json:
        """Return the metadata of a server. Return {} if it has none, as was usual
        before 2025-06-18."""
        places = [
            challenge.get("resource_metadata"),
            well_known_url(url, RESOURCE_METADATA),
            well_known_url(origin_of(url), RESOURCE_METADATA),
        ]
        document = self._read_first("resource_metadata", url, places)
        if not document:
            return {}
        # RFC 9728, section 3.3: "If these values are not identical, the data contained
        # in the response MUST NOT be used". A parent of the server's URL is accepted as
        # well.
        resource = str(document.get("resource"))
        is_ours = f"{url}/".startswith(f"{resource.rstrip('/')}/")
        if not is_ours or origin_of(resource) != origin_of(url):
            raise AuthorizationError(f"resource: expected {url}, got {show(resource)}")
        return document

    def _find_server(self, url: str, resource: Json) -> Json:
        """Return the metadata of the authorization server that the server names. A
        server of 2025-03-26 names none: its own root is the authorization server."""
        named = _texts_in(resource, "authorization_servers")
        if not resource:
            named = [origin_of(url)]
        wanted = self._issuer
        fit = [
            each for each in named if wanted in (None, "*", *_issuer_spellings(each))
        ]
        if not fit:
            raise AuthorizationError(
                f"authorization_servers: expected {wanted or 'one'}, "
                f"got {show(named, 300)}"
            )
        issuer = fit[0]
        places = [
            well_known_url(issuer, "oauth-authorization-server"),
            well_known_url(issuer, "openid-configuration"),
            f"{issuer.rstrip('/')}/.well-known/openid-configuration",
        ]
        server = self._read_first("issuer", url, places)
        if not server:
            if resource:
                raise AuthorizationError(f"{issuer}: no metadata found")
            server = {
                "issuer": issuer,
                "authorization_endpoint": f"{issuer}/authorize",
                "token_endpoint": f"{issuer}/token",
                "registration_endpoint": f"{issuer}/register",
                "code_challenge_methods_supported": ["S256"],
            }
        # "the `issuer` value in the document MUST be identical to the issuer".
        own = server.get("issuer")
        if own not in _issuer_spellings(issuer):
            raise AuthorizationError(f"issuer: expected {issuer}, got {show(own)}")
        # The authorization response may have either spelling of the issuer.
        server["spellings"] = [issuer, own]
        return server

    def _choose_scopes(
        self, challenge: Headers, resource: Json, server: Json, record: Json
    ) -> list[str]:
        """Return the scopes to ask for, by the rules of basic/authorization/index.md:
        those of earlier logins, those of OAuth(scopes=), and those that the server
        names. With OAuth(scopes=), the latter count only when a token lacks one."""
        scopes = record.get("scopes", [])
        wanted = challenge.get("scope", "").split()
        if self._scopes is None:
            wanted = wanted or _texts_in(resource, "scopes_supported")
            if wanted and "offline_access" in _texts_in(server, "scopes_supported"):
                wanted.append("offline_access")
        else:
            scopes = [*scopes, *self._scopes]
            if challenge.get("error") != "insufficient_scope":
                wanted = []
        return list(dict.fromkeys([*scopes, *wanted]))

    # The client's identity: basic/authorization/client-registration.md
    def _identify(self, server: Json, plan: Json, redirect_uri: str) -> None:
        """Set plan["client"] to {"client_id", "client_secret", "method"}. The caller
        has set it to a client that was registered earlier, or to {}."""
        offered = _texts_in(server, "token_endpoint_auth_methods_supported") or [
            "client_secret_basic"
        ]
        client_id = self._client_id
        if client_id is None and server.get("client_id_metadata_document_supported"):
            client_id = self._client_metadata_url
        if client_id:
            method = "client_secret_post"
            if not self._client_secret:
                method = "none"
            elif "client_secret_basic" in offered:
                method = "client_secret_basic"
            plan["client"] = {
                "client_id": client_id,
                "client_secret": self._client_secret,
                "method": method,
            }
        elif plan["client"].get("redirect_uri") != redirect_uri:
            methods = [each for each in AUTH_METHODS if each in offered] or ["none"]
            plan["client"] = self._register(server, plan, redirect_uri, methods[0])

    def _register(
        self, server: Json, plan: Json, redirect_uri: str, method: str
    ) -> Json:
        """Register a client by RFC 7591, and return it."""
        if not server.get("registration_endpoint"):
            raise AuthorizationError(
                f"{server['issuer']} does not register clients; give OAuth client_id="
            )
        is_local = parse_url(redirect_uri).hostname in _LOOPBACK
        metadata = {
            "client_name": self._client_name,
            "redirect_uris": [redirect_uri],
            "application_type": "native" if is_local else "web",
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": method,
        }
        add_given(metadata, scope=plan["scope"])
        endpoint = _endpoint_of(server, "registration_endpoint")
        reply = self.fetch(
            endpoint, {"Content-Type": JSON_TYPE}, encode_message(metadata)
        )
        document = reply.document
        client_id = str(document.get("client_id") or "")
        if reply.status not in (200, 201) or not client_id:
            said = _error_words(document)
            if reply.status == 404:
                # If the server has no metadata, this endpoint was a guess.
                said = "there is no login, or none for new clients"
            raise AuthorizationError(
                f"{endpoint}: registration: HTTP {reply.status}: {said}"
            )
        return {
            "client_id": client_id,
            "client_secret": document.get("client_secret"),
            "method": document.get("token_endpoint_auth_method", method),
            "redirect_uri": redirect_uri,
        }

    # Getting tokens
    def _log_in(self, url: str, challenge: Headers, asking: Job) -> None:
        """Find the authorization server, identify the client there, and get tokens. If
        this fails, the threads that wait for this login fail as well."""
        if not self._may_log_in:
            scope = challenge.get("scope", "any")
            raise AuthorizationError(
                f"{url}: no usable token (scope: {scope}); log in", url, 401
            )
        try:
            resource = self._find_resource(url, challenge)
            server = self._find_server(url, resource)
            token = self._records[url].get("access_token")
            record = self._reload(url)
            if record.get("access_token") != token:
                return  # another process has got a new token
            # Mark the record as doubtful until this login succeeds. If it fails, the
            # next one registers again, since the server may have forgotten this client.
            self._keep_or_warn(url, {**record, "is_doubtful": True})
            if record.get("issuer") not in server["spellings"]:
                # "MUST NOT reuse client credentials from a different one".
                record = {}
            scopes = self._choose_scopes(challenge, resource, server, record)
            plan = {
                "issuer": server["issuer"],
                "token_endpoint": _endpoint_of(server, "token_endpoint"),
                "scopes": scopes,
                "scope": " ".join(scopes) or None,
                "resource": None,
                "client": {},
            }
            if self._send_resource:
                plan["resource"] = resource.get("resource", url)
            # A client that was registered for other scopes may not get these.
            if record.get("scopes") == scopes and not record.get("is_doubtful"):
                plan["client"] = object_or_empty(record.get("client"))
            form = {"grant_type": self._grant}
            if self._grant == "authorization_code":
                form.update(self._ask_user(server, plan, asking))
            else:
                self._identify(server, plan, "")
                form["scope"] = plan["scope"]
            self._ask_tokens(url, plan, form)
        except Exception as error:
            self._failures[url] = error
            raise

    def _refresh(self, url: str, record: Json) -> bool:
        """Exchange the refresh token for new tokens, or find those of another process.
        Return False if there are none. Raises HttpFailure if the answer is a 5xx."""
        token = record.get("refresh_token")
        if not token or not record.get("client"):
            return False
        plan = {**record, "is_renewed": True, "is_doubtful": False}
        form = {"grant_type": "refresh_token", "refresh_token": token}
        with suppress(AuthorizationError):
            self._ask_tokens(url, plan, form)
            return True
        # Another process may have used the refresh token first.
        return self._reload(url).get("access_token") != record.get("access_token")

    def _ask_user(self, server: Json, plan: Json, asking: Job) -> Json:
        """Ask the user to agree, by RFC 6749, section 4.1, and RFC 7636. Return the
        members of the form for the token endpoint."""
        import secrets
        from base64 import urlsafe_b64encode
        from hashlib import sha256
        from urllib.parse import parse_qsl, urlencode, urlsplit

        if "S256" not in _texts_in(server, "code_challenge_methods_supported"):
            raise AuthorizationError(
                f"{server['issuer']} does not support PKCE with S256"
            )
        page = _endpoint_of(server, "authorization_endpoint")
        verifier = secrets.token_urlsafe(48)
        digest = urlsafe_b64encode(sha256(verifier.encode()).digest())
        state = secrets.token_urlsafe(32)
        with self._redirect_listener(state) as (redirect_uri, visit):
            self._identify(server, plan, redirect_uri)
            query = add_given(
                {
                    "response_type": "code",
                    "client_id": plan["client"]["client_id"],
                    "redirect_uri": redirect_uri,
                    "state": state,
                    "code_challenge": digest.rstrip(b"="),
                    "code_challenge_method": "S256",
                },
                scope=plan["scope"],
                resource=plan["resource"],
            )
            page += "&" if "?" in page else "?"
            with asking():
                arrived_at = visit(page + urlencode(query))
        if not isinstance(arrived_at, str):
            raise AuthorizationError("the login was abandoned: redirect() gave no URL")
        answer = dict(parse_qsl(urlsplit(arrived_at).query, keep_blank_values=True))
        # The answer must belong to this login, and have a code.
        if answer.get("state") != state:
            raise AuthorizationError("state: this is the answer to another login")
        # "on mismatch the client MUST NOT act on or display `error`". Compare the texts
        # as they are: "MUST NOT apply [...] trailing-slash [...] normalization".
        issuer = answer.get("iss")
        names_iss = server.get("authorization_response_iss_parameter_supported") is True
        if issuer not in server["spellings"] and (names_iss or issuer is not None):
            raise AuthorizationError(
                f"iss: expected {server['issuer']}, got {show(issuer)}"
            )
        if not answer.get("code") or answer.get("error"):
            said = _error_words(answer) or "there is no code"
            raise AuthorizationError(f"the login failed: {said}")
        return {
            "code": answer["code"],
            "redirect_uri": redirect_uri,
            "code_verifier": verifier,
        }

    @contextmanager
    def _redirect_listener(
        self, state: str
    ) -> Iterator[tuple[str, Callable[[str], Any]]]:
        """Yield the redirect URI, and a function that sends the user to a URL and
        returns the URL, or path, at which the browser arrives."""
        if self._redirect is not None:
            uri = self._redirect_uri or DEFAULT_REDIRECT_URI
            yield _check_url("redirect_uri", uri, uri), self._redirect
            return

        from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

        arrived: SimpleQueue[str] = SimpleQueue()

        # The browser comes back to this machine: RFC 8252, section 7.3. Requests
        # without this `state` get 404.
        class CallbackHandler(BaseHTTPRequestHandler):
            error_message_format = (
                "<!doctype html><title>%(message)s</title>%(explain)s"
            )
            log_message = do_nothing

            def do_GET(self) -> None:
                if f"state={state}" in self.path:
                    # Despite its name, send_error() can send a page with any status.
                    self.send_error(200, "Thank you", "You can close this window.")
                    arrived.put(self.path)
                else:
                    self.send_error(404)

        back = parse_url(self._redirect_uri or "http://127.0.0.1/callback")
        address = (str(back.hostname), back.port or 0)
        # Browsers open connections that they do not use, so each needs a thread.
        with ThreadingHTTPServer(address, CallbackHandler) as listener:
            if back.port is None:
                back = back._replace(netloc=f"{back.netloc}:{listener.server_port}")
            start_thread("mcp-login", listener.serve_forever, TICK_SECONDS)
            with at_exit(listener.shutdown):
                yield back.geturl(), partial(self._open_browser, arrived)

    def _open_browser(self, arrived: SimpleQueue[str], url: str) -> str:
        """Open the user's browser. Return the path at which it comes back."""
        import webbrowser

        if not webbrowser.open(url):
            raise AuthorizationError(
                "cannot open a browser; BROWSER='echo %s' shows the URL, and a program "
                "gives OAuth redirect=fn"
            )
        with suppress(Empty):
            return str(get_within(arrived, self._timeout))
        raise AuthorizationError("no answer came from the browser")

    def _ask_tokens(self, url: str, plan: Json, form: Json) -> None:
        """POST a form to the token endpoint, and store the tokens of the answer."""
        from urllib.parse import urlencode

        form["resource"] = plan["resource"]
        headers = {
            "Content-Type": "application/x-www-form-urlencoded",
            **self._authenticate(plan["client"], form),
        }
        given = add_given({}, **form)
        endpoint = plan["token_endpoint"]
        reply = self.fetch(endpoint, headers, urlencode(given).encode())
        answer = reply.document
        token = str(answer.get("access_token") or "")
        # Some token endpoints answer 201, as if they had created something.
        if reply.status not in (200, 201) or not re.fullmatch("[!-~]+", token):
            secrets = [str(given.get(name, "")) for name in SECRET_MEMBERS]
            said = hide(_error_words(answer), secrets)
            text = f"{endpoint}: HTTP {reply.status}: {said}"
            if reply.status >= 500:
                # Do not start another login.
                raise HttpFailure(text)
            raise AuthorizationError(text)
        token_type = str(answer.get("token_type") or "Bearer")
        if token_type.lower() not in self.token_types:
            raise AuthorizationError(
                f"{endpoint}: cannot use a token of type {show(token_type)}"
            )
        record = {**plan, "access_token": token}
        # If the answer has no refresh token, the old one is still valid.
        add_given(record, refresh_token=answer.get("refresh_token"))
        self._keep_or_warn(url, record)

    def _authenticate(self, client: Json, form: Json) -> Headers:
        """Authenticate the client: complete the form, and return more headers."""
        from urllib.parse import quote_plus

        secret = str(client["client_secret"] or "")
        form["client_id"] = client["client_id"]
        if client["method"] == "client_secret_basic":
            login = f"{quote_plus(client['client_id'])}:{quote_plus(secret)}"
            return {"Authorization": f"Basic {_base64(login.encode('ascii'))}"}
        if client["method"] == "client_secret_post":
            form["client_secret"] = secret
        return {}


def _error_words(said: Json) -> str:
    """Return how a server describes an error, in one line: RFC 6749, section 5.2."""
    words = [
        str(said[name])[:300]
        for name in ("error", "error_description")
        if said.get(name)
    ]
    return printable(": ".join(words))


###############################################################################
# 22. Command line ############################################################
###############################################################################

# This section is the program `python3 -m mcp_lite COMMAND ...`, which calls and runs
# servers from a terminal. Only the result of a command goes to stdout; progress,
# questions and failures go to stderr. Control characters from a server are escaped
# before they reach a terminal. `import mcp_lite` imports none of the modules that only
# this section needs.

_PROGRAM = "python3 -m mcp_lite"
_TOKENS = "~/.mcp_lite_tokens.json"  # the store of `login`; its mode is 0600
# FILE:object or package.module:object, but no URL.
_SERVED = r"(\w:)?[\w./\\~-]+:[^\W\d]\w*"
_HELP = f"""\
usage: {_PROGRAM} COMMAND TARGET ... [options]

  list TARGET                          show what a server is and offers
  call TARGET TOOL [key=value ...]     call a tool
  read TARGET URI                      read a resource
  prompt TARGET NAME [key=value ...]   get a prompt, filled in
  run FILE[:object]                    serve the Server that a file makes;
      package.module:object            or a module
  login URL [SCOPE ...], logout URL    keep, or forget, tokens for a server
  --version                            show version, revisions, the file's SHA-256

TARGET is a URL, a script, FILE:object or package.module:object as above, or a command
line in quotes; or a command stands at the end, behind `--`:
    {_PROGRAM} call add a=1 b=2 -- npx -y some-server
Such a server gets your whole environment, unlike one that a Client starts.
Values are read as JSON where the tool's schema takes that, and as text elsewhere; a
text in quotes keeps them.

  --json                  show the result, or the failure, as JSON
  --timeout SECONDS       without an answer, or progress; 60 if not given
  --protocol REVISION     such as {NEWEST}; "auto" if not given
  --header NAME:VALUE     over HTTP; may be repeated
  --quiet                 hide the stderr of a child, unless it fails
  --trace [FILE]          show all messages, or append them to a file; put it last
  --schema                list: with the tools' schemas
  --format NAME           list: the tools as an API takes them: openai, anthropic
  --input JSON            call: arguments beside NAME=VALUE; - reads stdin
  --output FOLDER         call, read: write images, sounds and other bytes there
  --http [HOST:]PORT      run: serve at a URL, not on stdio

Exit codes: 0; 1 usage; 3 authorization; 4 unreachable, or no answer in time (a tool may
have run); 5 the server refused the request, or the tool failed; 130 Ctrl-C.
"""
# The APIs for which `list --format` writes tools, and their member for the schema.
_FORMATS = {"openai": "parameters", "anthropic": "input_schema"}
_DEFAULTS = {
    "--timeout": 60.0,
    "--protocol": "auto",
    "--input": "{}",
    "--output": "",
    "--http": "",
}
# The first row that matches an exception has its exit code.
_EXIT_CODES = (
    (AuthorizationError, 3),
    ((ConnectionError, Timeout, UnsupportedVersion), 4),
    (KeyboardInterrupt, 130),
    ((ToolError, McpError), 5),
    (Exception, 1),
)


def main() -> int:
    """Run the command of `python3 -m mcp_lite ...`. Returns its exit code."""
    import inspect

    # The file that `run` serves must import this very module, not a second copy of it.
    sys.modules.setdefault("mcp_lite", sys.modules[__name__])
    # The shell may have closed stderr: then sys.stderr is None.
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    argv = sys.argv[1:]
    try:
        if argv == ["--version"]:
            from hashlib import sha256

            with open(__file__, "rb") as file:
                digest = sha256(file.read()).hexdigest()
            print(f"{__version__}\nrevisions: {', '.join(SPOKEN)}\nsha256: {digest}")
        else:
            options = _parse_arguments(argv)
            command = _COMMANDS[options.command]
            # If a word is missing, bind() raises a TypeError that names it.
            inspect.signature(command).bind(options, *options.words)
            command(options, *options.words)
        return 0
    except (Exception, KeyboardInterrupt) as error:
        return _fail(error, argv)


def _fail(error: BaseException, argv: list[str]) -> int:
    """Report a failure on stderr. Returns the exit code."""
    exit_code = next(code for kind, code in _EXIT_CODES if isinstance(error, kind))
    if isinstance(error.__cause__, OSError):
        # A server was out of reach, during a login, say.
        exit_code = 4
    text = str(error) or type(error).__name__
    if isinstance(error, ConnectionClosed) and "--quiet" not in argv:
        # The text ends with the last lines of the server's stderr, which were shown as
        # they came. Repeat only the last one.
        text = re.sub(r"(?s)\n(.*\n)?", " ", text)
    if isinstance(error, AuthorizationError) and error.url:
        # The user types the scopes: a server's words do not belong in a command.
        text += f" (give a token by --header, or {_PROGRAM} login {error.url} [SCOPE])"
    if "attempted relative import" in text:
        text += "; write package.module:object for a file of a package"
    shown = f"mcp_lite: {text}"
    if "--json" in argv:
        code = getattr(error, "code", None)
        shown = json.dumps(
            {"error": {"message": text, "code": code, "exit": exit_code}}
        )
    # The text of a tool, and a child's stderr, may have several lines.
    _say(shown, keep_lines=isinstance(error, (ToolError, ConnectionClosed)))
    return exit_code


def _parse_arguments(arguments: list[str]) -> Any:
    """Read the command, its words and options. Raises ValueError and TypeError."""
    import argparse

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> Any:
            raise ValueError(f"{message}; see {_PROGRAM} --help")

        def print_help(self, file: object = None) -> None:
            print(_HELP, end="")

    parser = Parser(allow_abbrev=False)
    add_argument = parser.add_argument
    add_argument("command", choices=_COMMANDS, metavar="COMMAND")
    add_argument("words", nargs="*")
    for name in ("--json", "--quiet", "--schema"):
        add_argument(name, action="store_true")
    for name, default in _DEFAULTS.items():
        add_argument(name, default=default, type=type(default))
    add_argument("--header", action="append", default=[])
    add_argument("--trace", nargs="?", const=True)
    add_argument("--format", choices=_FORMATS)
    # The words after `--` are the command of a server.
    target = []
    if "--" in arguments:
        cut = arguments.index("--")
        target.append(arguments[cut + 1 :])
        arguments = arguments[:cut]
    options = parser.parse_intermixed_args(arguments or ["--help"])
    if "=" in str(options.trace):
        # --trace stood before an argument of a tool.
        options.words.append(options.trace)
        options.trace = True
    options.words[:0] = target
    return options


def _decode(text: str) -> str:
    """Decode as UTF-8 what the locale could not decode in a text of the command line,
    or of stdin. Raises ValueError."""
    return text.encode("utf-8", "surrogateescape").decode()


def _read_pairs(words: Iterable[str], separator: str) -> dict[str, str]:
    """Make a dict of words such as NAME=VALUE. Raises ValueError."""
    pairs = {}
    for word in map(_decode, words):
        name, mark, value = word.partition(separator)
        if not mark:
            why = f"expected NAME{separator}VALUE"
            # Do not show a header, which may be a secret.
            if separator != ":":
                why += f", got {show(word)}"
            raise ValueError(why)
        pairs[name] = value
    return pairs


# Connecting, and talking to the user
def _client(options: Any, target: Any) -> Client:
    """Make a client from the options."""
    headers = _read_pairs(options.header, ":")
    if options.output:
        import tempfile

        # If no file can be written there, fail now, and not when a tool has run.
        os.makedirs(options.output, exist_ok=True)
        tempfile.TemporaryFile(dir=options.output).close()
    # The words after `--` are a list, which is neither of these.
    text = str(target)
    if re.fullmatch(_SERVED, text) or os.path.isfile(text.rpartition(":")[0]):
        target = [sys.executable, os.path.abspath(__file__), "run", target]
    asked = partial(_answer, show(target))
    auth = None
    if "authorization" not in map(str.lower, headers):
        auth = OAuth(store=_TOKENS, may_log_in=False)
    return Client(
        target,
        timeout=options.timeout,
        protocol_version=options.protocol,
        headers=headers,
        auth=auth,
        env=dict(os.environ),
        trace=options.trace,
        stderr=not options.quiet,
        on_elicit=asked,
        on_elicit_url=asked,
        on_progress=_show_progress,
    )


def _say(text: str, keep_lines: bool = False, end: str = "\n") -> None:
    """Write to stderr. On a terminal, this replaces the line of progress. If stderr
    cannot take it, the text is lost, and not the result of the command."""
    shown = printable(text, keep_lines=keep_lines)
    if sys.stderr.isatty():
        shown = f"\r\x1b[K{shown}"
    try:
        print(shown, end=end, file=sys.stderr, flush=True)
    except OSError:
        # At exit, Python would write the text again, fail, and end with 120.
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115


def _show_progress(progress: float, total: float | None, message: str | None) -> None:
    """Show the progress of a call on a terminal."""
    if sys.stderr.isatty():
        text = f"{progress:g}/{total or '?'} {message or ''}"
        _say(text[:78], end="")


def _answer(server: str, params: Json) -> Json:
    """Ask the user a server's question, field by field; ask again while the values do
    not fit the schema. Without a terminal, decline."""
    _say(f"The server {server} asks: {params['message']}")
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        _say("Declined: there is no terminal on which to ask you.")
        return {"action": "decline"}
    if "url" in params:
        url = params["url"]
        _say(f"It asks you to visit {parse_url(url).hostname}: {url}")

    schema = params.get("requestedSchema", {"properties": {}})
    content = {}
    for name, field in schema["properties"].items():
        about = field.get("description") or field.get("title") or name
        text = _ask_line(f"  {about} ({_show_type(field)}): ")
        if text:
            content[name] = _coerce(name, text, schema)
    if _ask_line("Agree? [y/N]: ").lower() != "y":
        return {"action": "decline"}

    wrong = validate(content, schema)
    if wrong:
        _say(f"  {wrong[0]}")
        return _answer(server, params)
    return {"action": "accept", "content": content}


def _ask_line(text: str) -> str:
    """Prompt the user, and read a line; Ctrl-D gives an empty one."""
    _say(text, end="")
    # Do not use input(): after Ctrl-C, it leaves the lock of stdin held, and Python
    # blocks on that lock at exit.
    return os.read(0, 4096).decode(os.device_encoding(0) or "utf-8", "replace").strip()


# Reading and showing values
def _coerce(name: str, text: str, schema: Json) -> Any:
    """Read the value of an argument as JSON if the schema accepts that, otherwise as
    text. 012 is always text, as it is not JSON; 5 is text if the schema wants a
    string."""
    from decimal import Decimal

    value = parse_text(text)
    choices = [value]
    if isinstance(value, float) and Decimal(text) != Decimal(repr(value)):
        # The float has lost digits. An amount of money, say, may be a text, too.
        choices = [text, value]
    # ValueError: the schema is faulty.
    with suppress(ValueError):
        for each in choices:
            wrong = validate({name: each}, {**schema, "required": []})
            if not wrong and not isinstance(value, str):
                return each
    return text


def _show_type(schema: Json) -> str:
    """Describe a schema in a word or two: integer = 3, "a" | "b"."""
    choices = schema.get("anyOf") or schema.get("oneOf") or []
    values = [schema["const"]] if "const" in schema else schema.get("enum", [])
    kinds = [*map(show, values), *map(_show_type, choices)]
    text = " | ".join(kinds) or str(schema.get("type", "any"))
    if "default" in schema:
        text += f" = {show(schema['default'])}"
    return text


def _show_offer(item: Json) -> str:
    """Describe an item in a line: wait(days: integer = 3, loud?: boolean)  About."""
    schema = item.get("inputSchema", {})
    parameters = []
    for name, member in schema.get("properties", {}).items():
        # A schema may also be true or false.
        about = object_or_empty(member)
        if name not in schema.get("required", []) and "default" not in about:
            name += "?"
        parameters.append(f"{name}: {_show_type(about)}")
    for argument in item.get("arguments", []):
        name = argument["name"]
        if not argument.get("required"):
            name += "?"
        parameters.append(name)
    called = (
        item.get("uri")
        or item.get("uriTemplate")
        or f"{item.get('name')}({', '.join(parameters)})"
    )
    text = str(item.get("description") or item.get("title") or "")
    first = text.strip().partition("\n")[0]
    return printable(f"  {called}  {first}".rstrip())


def _format_tool(tool: Json, form: str) -> Json:
    """Describe a tool in the form that a model's API takes."""
    about = add_given({"name": tool["name"]}, description=tool.get("description"))
    # The API of OpenAI refuses an object without `properties`.
    about[_FORMATS[form]] = {"type": "object", "properties": {}, **tool["inputSchema"]}
    if form == "openai":
        return {"type": "function", "function": about}
    return about


def _write(options: Any, result: Any, shown: Any) -> None:
    """Write `result` to stdout with --json, and `shown` without it. Bytes are written
    unchanged, texts with a line end, and other values as JSON. For a terminal, control
    characters are escaped, and bytes become their repr()."""
    encoding = sys.stdout.encoding.lower()
    value = result if options.json else shown
    if not isinstance(value, (str, bytes)):
        # On stdout with another encoding, \u escapes stand for all that is not ASCII.
        value = json.dumps(value, indent=2, ensure_ascii=encoding != "utf-8")
    if sys.stdout.isatty():
        value = printable(str(value), keep_lines=True)
    if isinstance(value, str):
        value = f"{value}\n".encode(encoding, "backslashreplace")
    _say("", end="")
    try:
        sys.stdout.buffer.write(value)
        sys.stdout.flush()
    except BrokenPipeError:
        # A reader such as `head` has ended. Python will flush stdout again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _save(folder: str, blocks: list[Json]) -> None:
    """Write the bytes in blocks, or in contents, to new files in this folder, and
    replace the bytes by the paths of these files."""
    import tempfile

    for block in blocks:
        part = block.get("resource", block)
        for member in {"data", "blob"} & part.keys():
            # The ending for image/svg+xml is .svg.
            ending = re.sub(r".*/(x-)?|\W.*", "", str(part.get("mimeType")))
            number, part["file"] = tempfile.mkstemp(f".{ending}", dir=folder)
            with open(number, "wb") as file:
                file.write(parse_any_base64(part.pop(member)))


# The commands. Their parameters are the words of the command line.
def _list(options: Any, target: Any) -> None:
    """Describe a server and everything that it offers."""
    with _client(options, target) as client:
        about = {
            "serverInfo": client.server_info,
            "protocolVersion": client.protocol_version,
            "capabilities": client.server_capabilities,
            "instructions": client.instructions,
        }
        offers = {
            "tools": client.list_tools(),
            "resources": client.list_resources(),
            "resourceTemplates": client.list_resource_templates(),
            "prompts": client.list_prompts(),
        }
    if options.format:
        tools = [_format_tool(tool, options.format) for tool in offers["tools"]]
        _write(options, tools, tools)
        return
    server = client.server_info
    version = about["protocolVersion"]
    era = "modern" if version in MODERN_VERSIONS else "legacy"
    lines = [
        f"{server.get('name') or '(no name)'} {server.get('version') or ''}",
        f"revision: {version} ({era})",
        f"capabilities: {', '.join(client.server_capabilities)}",
        f"instructions: {client.instructions or 'none'}",
    ]
    for kind, items in offers.items():
        lines.append(f"{kind} ({len(items)})")
        for item in items:
            lines.append(_show_offer(item))
            if options.schema and kind == "tools":
                lines.append(json.dumps(item.get("inputSchema"), indent=2))
    _write(options, {**about, **offers}, printable("\n".join(lines), keep_lines=True))


def _call(options: Any, target: Any, tool: str, *pairs: str) -> None:
    """Call a tool. Its schema decides how each value is read."""
    text = options.input
    if text == "-":
        text = sys.stdin.read()
    try:
        given = {**json.loads(_decode(text))}
    except (ValueError, TypeError) as error:
        raise ValueError(f"--input: expected a JSON object: {error}") from None
    with _client(options, target) as client:
        tools = {each["name"]: each for each in client.list_tools()}
        schema = tools.get(tool, {}).get("inputSchema", {})
        words = _read_pairs(pairs, "=")
        # Even if the schema allows further names by default, an unknown name on the
        # command line is probably a mistake. To pass such an argument, use --input.
        known = schema.get("properties", words)
        for name in words:
            if name not in known and not schema.get("additionalProperties"):
                raise ValueError(f"{tool}: {name}: unknown; {suggest(name, known)}")
            given[name] = _coerce(name, words[name], schema)
        result = client.call_tool(tool, given)
    if options.output:
        _save(options.output, result["content"])
    _write(options, result, value_of(result))


def _read(options: Any, target: Any, uri: str) -> None:
    """Read a resource."""
    with _client(options, target) as client:
        is_whole = options.json or options.output
        result: Any = client.read_resource(uri) if is_whole else client.read(uri)
    if options.output:
        _save(options.output, result["contents"])
    _write(options, result, result)


def _prompt(options: Any, target: Any, name: str, *pairs: str) -> None:
    """Get a filled-in prompt."""
    with _client(options, target) as client:
        result = client.get_prompt(name, _read_pairs(pairs, "="))
    lines = []
    for message in result["messages"]:
        content = message["content"]
        text = content.get("text") or show(content, 200)
        lines.append(f"{message['role']}: {text}")
    _write(options, result, printable("\n".join(lines), keep_lines=True))


def _run(options: Any, file: Any) -> None:
    """Serve the Server of FILE[:object], or package.module:object. Its own calls to
    run() are no-ops."""
    import importlib
    import runpy

    path, *names = re.split(r":(?=\w+$)", file)
    run = Server.run
    Server.run = do_nothing  # type: ignore
    if names and not os.path.isfile(path):
        # package.module:object
        sys.path.insert(0, os.getcwd())
        values = vars(importlib.import_module(path))
    else:
        sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
        # Under its own name, the other files of its folder can import it.
        stem = os.path.basename(path).partition(".")[0]
        values = runpy.run_path(path, run_name=stem.strip("_"))
    servers = [
        each for each in map(values.get, names or values) if isinstance(each, Server)
    ]
    if not servers:
        raise ValueError(f"there is no Server of this mcp_lite.py in {file}")
    server = servers[0]
    if len(set(servers)) > 1:
        _say(f"{file}: serves the first of its Servers; FILE:NAME names another")
    if options.trace:
        server._endpoint.trace = tracer(options.trace)
    if not options.http:
        run(server)
    else:
        host, _, port = options.http.rpartition(":")
        run(server, "http", host=host.strip("[]") or "127.0.0.1", port=int(port))


def _login(options: Any, url: str, *scopes: str) -> None:
    """Log in at a server."""
    OAuth(store=_TOKENS, scopes=scopes or None).login(url)
    _say(f"logged in; the tokens are in {_TOKENS}")


def _logout(options: Any, url: str) -> None:
    """Log out of a server."""
    OAuth(store=_TOKENS).logout(url)
    _say(f"logged out; {_TOKENS} has no tokens for this server any more")


_COMMANDS: dict[str, AnyFunction] = {
    "list": _list,
    "call": _call,
    "read": _read,
    "prompt": _prompt,
    "run": _run,
    "login": _login,
    "logout": _logout,
}


if __name__ == "__main__":
    sys.exit(main())
