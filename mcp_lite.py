# mcp_lite: the Model Context Protocol in one file, on the standard library alone.
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
no dependency.

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

What the protocol is for: a program with a language model in it, a chat or an editor,
connects as client to servers that lend the model what it cannot do alone. A server has
    tools      functions; the model reads their descriptions and schemas, and decides
               which to call
    resources  texts and data under URIs, for the program to show to the model
    prompts    templates of messages, for the user to pick
and may ask back: the user to fill in a form (elicitation), the model to answer
(sampling), the program where the work is (roots).

Four words:
    revision  a version of the specification, named by its date.
    legacy    the revisions up to 2025-11-25. An `initialize` handshake opens a session,
              in which both sides may send requests.
    modern    the revisions since 2026-07-28. There is no handshake: every request
              carries its revision and the client's capabilities in `_meta`, and stands
              alone. A server asks its questions in a result; the client then sends the
              request again, with the answers.
    session   what a handshake opens: over stdio for the life of the process, over HTTP
              under an id in a header. It fixes the revision and the capabilities.
Why there are two eras: a session ties a client to the one process that remembers it. In
the modern era nothing is remembered between requests, so any process may answer any of
them. To a server, a request with a version in `_meta` is modern; any other belongs to
the session. A client begins with `server/discover`, unless it is told which revision to
speak, and goes on with `initialize` if the server does not know that.

Where the specification is: comments name its pages by path. basic/lifecycle.md is
https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle, and likewise
for each revision; where none is told, the newest one that has the page is meant.

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
    modern, when the tool has a question (left out: what is as above)
    <-- {..., "id": 1, "result": {"resultType": "input_required", "inputRequests": {
         "when": {"method": "elicitation/create", "params": {...}}},
         "requestState": "what was answered before, signed"}}
    --> {..., "id": 2, "method": "tools/call", "params": {..., "inputResponses": {
         "when": {"action": "accept", "content": {"day": "Monday"}}},
         "requestState": "what was answered before, signed"}}
    <-- {..., "id": 2, "result": {"resultType": "complete", ...}}
    modern, over HTTP: a POST for each message; headers mirror what a gateway looks at
    --> POST /mcp HTTP/1.1
        MCP-Protocol-Version: 2026-07-28
        Mcp-Method: tools/call
        Mcp-Name: forecast
    <-- 200 OK, with the answer in JSON; or as events, if there is progress to tell:
        data: {"jsonrpc": "2.0", "method": "notifications/progress", "params": {...}}
        data: {"jsonrpc": "2.0", "id": 1, "result": {...}}

The walk of one call, client.call("forecast", city="Oslo"), to a server on stdio:
    caller      Client.call         wants a value; call_tool wants the wire's result
                Client._start       looks in METHODS: may it be asked? adds _meta
                Call                is what is in flight, with a Waiter for its answer
                Connection.request  registers the Waiter, encodes, and writes, by
                Child.write         into the server's stdin
                Connection.wait     and the caller sleeps
    server      Pump                reads; Connection.feed cuts lines (LineFramer)
                Protocol.receive    admits it: era, revision, method, capability, params
                ServerEndpoint      serve_request finds the handler: _tools_call
                Signature.bind      makes arguments of the JSON, or says what is wrong
                                    your function runs
                Output.result       makes blocks and structured content of its value
                Connection.respond  takes the request out of flight, queues the answer;
                Connection.flush    writes it
    reader      Connection.feed     as above; Protocol.receive finds who waits for it
                Waiter.finish       hands it over. The result of a modern call may be a
                                    question (RESULT_TYPES): Call answers, then sends
                                    the request again
    caller      Call.result         has it; unwrap_result makes it a value again
In memory it is the same without the pipe; over HTTP, HttpTransport takes the place of
Child, and HttpServer, HttpEndpoint and Stream that of Pump.

The rooms, in reading order. Each uses only the rooms above it (but a Call asks its
Client back, and a connection its HttpServer). Who reads for the protocol may skip 5, 6,
7, 9, 10, 13 to 15 at first.
     1. Vocabulary      revisions, `_meta` keys, and every limit with its reason
     2. Errors          the exceptions, and what each is on the wire
     3. Messages        JSON-RPC: bytes to messages and back, the check of the envelope
     4. Methods         one table of all that can be said, by whom, in which revisions
     5. Patterns        regular expressions that no text makes endless
     6. Checking        a compiled schema against a value, with an allowance of work
     7. JSON Schema     the keywords of three drafts; schemas, compiled
     8. Content         values as JSON; text, images, links as blocks, by revision
     9. Hints           type hints as JSON Schema; JSON as values of those types
    10. Signatures      functions as tools: docstrings, arguments, results, URIs
    11. Framing         bytes to lines, events, HTTP heads; headers that mirror
    12. Protocol        one conversation without I/O, locks or clocks: what may come now
    13. Budgets         what may be kept, or wait, in bytes; lines that go out
    14. Waits           waits that end in time, or when a signal comes; timers
    15. Threads         workers, errands, and the way to Python's logging
    16. Connection      the conversation with threads; the seams Transport and Endpoint
    17. Questions       what a server may ask, which answers will do; requestState
    18. Context         what a handler sees, how it asks the client, where it runs
    19. stdio           streams, clean standard streams, a server as a child process
    20. Transcript      what passes, shown to people, and what it is for
    21. HTTP streams    one request and its answer; the seam Shell
    22. HTTP sessions   conversations over HTTP, with a session or for one request
    23. HTTP admission  who may ask, by the head of a request: host, origin, token
    24. HTTP endpoint   one endpoint for every revision, and its status codes
    25. HTTP shells     the endpoint behind WSGI, and behind a connection of our own
    26. HTTP server     those connections: accepted, given threads, watched
    27. HTTP requests   a client's way to a server, and one request with its response
    28. Token store     where tokens are kept: a file, a dict, two functions
    29. Authorization   how a client is let in: what it shows, how it gets tokens
    30. HTTP posts      a client's session, a message on its way, a stream it reads
    31. HTTP client     POSTs, events, sessions, and the old HTTP+SSE
    32. Offers          what a server offers, and to whom; what is around its handlers
    33. Features        the handlers of requests; who is told of changes
    34. Server          what you register with, and run
    35. Calls           a call with its rounds, a subscription; hearing and answering
    36. Targets         URLs, scripts and commands, as what reaches a server
    37. Client          probing, calling, paging
    38. Many servers    config files, and several servers as one
    39. Bridge          another server, offered in another era, on another transport
    40. Terminal        what servers tell and ask who sits there
    41. Command line    python3 mcp_lite.py ...: servers from a terminal

Who runs what, and how it ends. Threads have these names behind "mcp-":
    thread           born in           runs                             ends
    (yours)          your program      run, serve; calls, progress      by itself
    server-reader    Pump              reads; serves a lone request     end of input
    reader           Client            reads                            end of output
    worker, client   Connection, when  handlers; callbacks that answer  idle, or close()
                     needed            questions
    http-worker,     Crew, when        handlers of batches, and over    idle, or close()
      http-helper    needed            HTTP+SSE; writes that might block
    ...-helper       Connection, when  writes that might block;         idle, or close()
                     needed            on_cancel functions
    ...-lister       Connection, when  the list of tools before first   idle, or close()
                     needed            calls
    ...-errands      Connection, for   what Ctrl-C must not interrupt:  close()
                     the main thread   sending, giving up
    server-errands   Server, for the   telling its clients of a change  with that
                     main thread
    callbacks        Client, when      on_log and on_notification, in   idle, or close()
                     needed            order
    stderr           Child             reads its lines, keeps the last  end of stderr
    stderr-lines     Child, when       passes its lines on              idle, or close()
                     needed
    stdout           run, at its end   flushes sys.stdout               within a second
    timer            start_timer       ends an overdue call, or trip    with that
    log              the first line    hands lines to `logging`         none is left
    log-end          the first line    holds up the end of Python       none is left, or
                                                                        LOG_SECONDS
    trace            the first one     shows messages                   none is left
    http             HttpServer        accepts; watches deadlines, and  close()
                                       who has left
    http-connection  HttpServer, when  reads requests, runs handlers    idle, or close()
                     needed
    bridge           Bridge            waits for the other server's    with that
                                       answer to one request
    posts            HttpTransport     one POST or stream each; logs    idle, or close()
                                       in where that is wanted
    group            ClientGroup       connects, lists or ends one of   with that
                                       its clients

What guards what. Locks are leaves: none is held while another is taken (but see
Budget), during I/O, or while your code runs.
    Workers._lock         jobs and threads; a lock of its own wakes each idle worker
    Crew._lock            jobs of many conversations, and whose turn it is
    Interruptible._lock   who is in a read or write of a file, on Windows
    Connection._lock      the outgoing queue, the end of a request of either side, and
                          the questions that are left to it; batches; over HTTP,
                          the streams
    HttpEndpoint._lock    sessions
    HttpServer._lock      connections
    Registry._lock        what is offered and completed, and so the capabilities; the
                          methods of extensions
    UsedStates._lock      which states of modern requests were used
    Budget._lock          what is taken of a tree of budgets; it alone may be taken
                          while another one is held
    Client._lock          the conversation: who takes it from the client ends it
    _Access._turn         who gets tokens for a server
Three are held for longer. For Pump._reading, held by who reads, and for
MainThread._running, held by run_pending() so that it is not entered again, nobody ever
waits. Who waits for _Access._turn, held through a login with all that the user does
there, looks every now and then whether the client is still open. What two threads might
end at once is kept in a dict or a list. The one that removes it there ends it; the
other one finds it gone, and does nothing.

A signal handler of yours must call nothing of this file: Python runs it on the main
thread between any two steps, and one of ours may hold a lock there. Let it raise, or
put something into a queue.SimpleQueue, for others to act on.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import re
import sys
import threading
import time
from collections import Counter, OrderedDict, deque, namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from functools import cached_property, lru_cache, partial
from queue import Empty, SimpleQueue

TYPE_CHECKING = False
if TYPE_CHECKING:
    from http.client import HTTPConnection, HTTPResponse
    from selectors import BaseSelector
    from socket import SocketIO
    from socket import socket as Socket
    from ssl import SSLContext
    from typing import (
        Any,
        ContextManager,
        Dict,
        Literal,
        TextIO,
        Tuple,
        TypeVar,
        Union,
        overload,
    )
    from typing import Protocol as TypingProtocol
    from urllib.parse import SplitResult
    from weakref import WeakSet

    Json = Dict[str, Any]  # a JSON object
    Headers = Dict[str, Union[str, bytes]]  # of an HTTP request
    RequestId = Union[str, int]
    Callback = Union[Callable[..., Any], None]
    Job = Callable[[], Any]
    Write = Callable[[bytes], Any]
    # What tells the claims of a bearer token.
    Verify = Union[Callable[[str], Union[Json, None]], Mapping[str, Json]]
    _Event = Tuple[int, bytes, int]  # of a Stream

    # What trace= may be.
    class _Shows(TypingProtocol):
        def show(self, entry: TraceEntry) -> object: ...

    _Trace = Union[
        Callable[[str, bytes], Any], _Shows, str, "os.PathLike[str]", bool, None
    ]
    _Secrets = Callable[[], list[str]]  # of an HTTP request
    # What a decorator gets, and gives back.
    Function = TypeVar("Function", bound=Callable[..., Any])
else:
    # `typing` would take 2 to 4 ms of every start. These stand for what it would say,
    # so that typing.get_type_hints works on all that is public (from Python 3.10 on).
    Any = _Trace = RequestId = Callback = Function = Socket = SSLContext = TextIO = (
        Verify
    ) = object
    Json = dict
    Job = Write = Callable

__version__ = "0.1.0"
__all__ = [
    "Audio",
    "AuthorizationError",
    "Bridge",
    "Cancelled",
    "Client",
    "ClientGroup",
    "ConnectionClosed",
    "Context",
    "EmbeddedResource",
    "HttpFailure",
    "Image",
    "InternalError",
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
    "TraceEntry",
    "Transport",
    "UnsupportedVersion",
    "load_config",
    "validate",
]


###############################################################################
# 1. Vocabulary ###############################################################
###############################################################################
# The words of the protocol that are not methods, and the limits that keep a hostile or
# broken peer cheap. A new revision begins here.

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
# Of an HTTP request that does not tell. "If the server does not receive an
# MCP-Protocol-Version header [...] the server SHOULD assume protocol version
# 2025-03-26": basic/transports.md.
ASSUMED_VERSION = "2025-03-26"

# The protocol's own keys in `_meta`: basic/index.md#meta.
META = "io.modelcontextprotocol/"
META_VERSION = META + "protocolVersion"
META_CLIENT_INFO = META + "clientInfo"
META_CAPABILITIES = META + "clientCapabilities"
META_LOG_LEVEL = META + "logLevel"
META_SUBSCRIPTION = META + "subscriptionId"
META_SERVER_INFO = META + "serverInfo"

# Of rising severity, as in syslog: server/utilities/logging.md.
LOG_LEVELS = (
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
)
LEVELS_TEXT = "expected one of " + ", ".join(LOG_LEVELS)

# Messages, in bytes and counts.
MAX_MESSAGE = 64 << 20  # bytes of a line: an 8 MiB image in base64 fits several times
CHUNK = 1 << 16  # bytes in one read: a pipe holds no more
# In memory a value takes more than on the wire: `[],` has 3 bytes there and 64 here. So
# of a message that may be read these are the most, some 250 MB of each:
MAX_CONTAINERS = 1_000_000  # arrays and objects: so many rows of a table, say
MAX_VALUES = 4_000_000  # members of those: so many numbers, say
# Arrays and objects within each other: as many as functions in Python, by default. Who
# decodes more of them may run out of C's stack, where that is small.
MAX_DEPTH = 1_000
MAX_ID = 1_024  # characters of an id, or of a progress token; bits, if it is a number
# Messages that wait for a slow reader: beyond, logs and progress are dropped; of a
# stream over HTTP, the oldest.
MAX_QUEUED = 10_000
# Requests that wait for a worker: beyond, they are refused. Answers that wait for a
# reader: beyond, it is taken for dead.
MAX_BACKLOG = 10_000
# The same in bytes. While so much waits for a reader, no other handler begins; when
# there is eight times as much, of what is said unasked, it is taken for dead.
MAX_UNSENT = 32 << 20
MAX_WAITING = 64 << 20  # of requests that wait for a worker, as they came
UNREAD_SECONDS = 60.0  # for it to be read, before what waits to begin is refused
LINE_COST = 100  # what Python takes for one, beside its bytes
# Notifications that wait for a client's program to hear them, as they came: the longest
# fits. Beyond, of progress and of listen() the oldest go; for callbacks, the newest.
MAX_UNTOLD = MAX_MESSAGE + LINE_COST
MAX_BATCH = 1_000  # members of a batch
# Of an integer that others read, too, in a header, or as an error's code: many take it
# for a float, which tells each from the next up to there.
MAX_INTEGER = (1 << 53) - 1

# What a peer's schema, value or pattern may cost.
MAX_STEPS = 2_000_000  # of work for one value, or one schema: half a second
LOOK_STEPS = 20_000  # between looks at the clock: some milliseconds
MAX_ERRORS = 100  # of one value: nobody acts on more
MAX_PLACE = 500  # characters of an error's path, and of what is expected there
MAX_PATTERN = 8_000  # characters: patterns of e-mail addresses have 6,000
MAX_NODES = 10_000  # of a pattern that repeats what repeats
MAX_REMEMBERED = 20 * MAX_NODES  # in the steps that a schema's patterns keep: some MB
MAX_DIGITS = 4_300  # of an integer, as Python itself has it: more take time to convert
MAX_SUGGESTED = 200  # names among which a misspelled one is looked up
MAX_MIRRORED = 100  # arguments of a tool that headers mirror: more fit in no head

# Work at once, and in a row.
MAX_WORKERS = 32  # handlers at once
# More threads, at work on what nobody waits for any more: no thread can be stopped.
MAX_ABANDONED = 256
MAX_LISTENERS = 1_000  # open subscriptions
MAX_ROUNDS = 10  # times that a server may ask before it answers one call
MAX_QUESTIONS = 20  # that it may ask a client in one call, unless that allows more
MAX_PAGES = 1_000  # pages of a list that a client follows
MAX_TTL_MS = 86_400_000  # that a list is relied on: a day
MAX_ITEMS = 100_000  # items of a list, of all its pages; in bytes, a MAX_MESSAGE
MAX_COMPLETIONS = 100  # values of a completion, by its schema
MAX_URI = 2_048  # characters of a URI that is matched with templates
MAX_URIS = 256 << 10  # characters of all the URIs that one subscription is about
MAX_STATE = 256 << 10  # bytes of `requestState`
MAX_ASKED = 100  # questions to a client at once: one user is to answer them
STATE_SECONDS = 600.0  # its life, and how long legacy questions wait for their answers
# What is kept of each that was used, so that none is used twice, until it would have
# expired: a digest in a set. In all; beyond, the oldest that still live are refused.
USED_STATE = 128
MAX_USED_STATES = 8 << 20

# Beginnings and endings.
PROBE_SECONDS = 5.0  # before a silent server is taken for one that wants `initialize`
DRAIN_SECONDS = 5.0  # for work in flight at the end; again, when it was cancelled
# For what was cancelled before the end, to tidy up. SIGTERM comes from a client that
# kills a moment later, after EXIT_SECONDS as we do: then it is as long.
TIDY_SECONDS = 1.0
# For work in flight over HTTP, when SIGTERM comes. With what comes after it, less than
# the ten seconds that `docker stop` gives.
GRACE_SECONDS = 5.0
MAX_PATIENCE = 86_400.0  # that a socket or a timer is given: too much overflows
EXIT_SECONDS = 2.0  # for a child process to end by itself; then after each signal
IDLE_SECONDS = 30.0  # before a worker without work ends, or an idle HTTP connection
LOG_SECONDS = 1.0  # for the last lines of the log to be out, when a program ends
STDERR_LINES = 20  # of a child, kept for the text of an error
# Of a transcript.
TRACE_SECONDS = 0.5  # that a message waits until it is shown
TRACE_WIDTH = 90  # columns of an explanation
MAX_TRACED = MAX_MESSAGE + LINE_COST  # bytes that wait to be shown: the longest fits
MAX_EXPLORED = 1 << 20  # bytes of a message; of a longer one only its size is told
MAX_ABOUT = 120  # characters of what a message is about
MAX_EXPLAINED = 1_000  # texts, and requests without an answer, that are remembered
MAX_STDERR_LINE = 2_000  # characters of one; a longer one comes in pieces
MAX_STDERR = 4 << 20  # characters of lines that wait to be passed on; beyond, they go
STDERR_SECONDS = 1.0  # for the last lines to be passed on, at the end
STARTING_SECONDS = 0.2  # in place of EXIT_SECONDS, where no conversation has begun
# A longer wait is done in slices, between which Python looks whether a signal has come.
# On Windows, none interrupts a wait. Elsewhere, too, one may be missed: by the main
# thread, if the system has interrupted another one, as some do that starts a thread.
WAIT_SLICE = 0.2 if os.name == "nt" else 1.0

# HTTP: the requests.
MAX_HEAD = 64 << 10  # bytes of a head
MAX_IGNORED = 16 << 10  # bytes of a body's chunk extensions and trailers
MAX_BODY = 4 << 20  # bytes of a body: as much as the official SDKs take
# Bytes of a short body. It is read in any case: when much is kept already, as there are
# no more of them than connections (so they are not counted, nor are short answers); and
# when nobody wants it, for the request that comes next.
SHORT_BODY = 64 << 10
MAX_ERROR = 64 << 10  # bytes of an error's body that a client reads
HEAD_SECONDS = 10.0  # for all of a head to arrive
BODY_SECONDS = 60.0  # for all of a body to arrive
SEND_SECONDS = 30.0  # for a client to take what is written
MAX_CONNECTIONS = 256  # at once; each may have a thread
MAX_REFUSED = 32  # more connections, which are told that there are too many
# Workers for all sessions together, for each that one may have: see Crew.
CREW_FACTOR = 4
# Of a server's workers: how long one stays with its connection after an answer, as the
# next request mostly comes at once; and how many do at a time.
STAY_SECONDS = 0.05
MAX_STAYING = 8
MAX_BUSY = 16  # that are at work at once, while the processor is what they wait for
LOAD_SECONDS = 0.005  # between two looks whether it is
TICK_SECONDS = 0.1  # between a server's looks at deadlines, and at who has left

# HTTP: bytes that are kept for clients.
MAX_KEPT = 256 << 20  # in all
MAX_KEPT_EACH = 16 << 20  # of a session, or of a request outside of one

# HTTP: sessions and streams.
MAX_SESSIONS = 1_000  # of the legacy era, open at once
SESSION_SECONDS = 1800.0  # before an idle one ends
RETRY_MS = 1_000  # before a client comes back for an answer, unless the handler knows
COMMENT_SECONDS = 15.0  # between the comments that keep a silent stream open
MAX_STREAMS = 100  # of a session that are over, kept for a client that comes back
MAX_EVENTS = 1_000  # of a stream that were sent, kept for the same
MAX_REPLAY = 4 << 20  # bytes of those, of a session
MAX_INFO = 64 << 10  # bytes that a client says of itself, as they are in memory
MAX_FAILURES = 3  # in a row, before a client gives up a broken stream
MAX_EVENT_ID = 1 << 10  # bytes of an event's id, and of its type
MAX_SESSION_ID = 4 << 10  # characters: some are tokens that are signed
MAX_RECEIVED = 4 * MAX_MESSAGE  # bytes of all unfinished answers that a client reads

# Authorization.
LOGIN_SECONDS = 300.0  # for a login: the user may have to look for a password
AUTH_SECONDS = 20.0  # for each answer of an authorization server
RENEW_SECONDS = 30.0  # before its end, that a token is renewed; a tenth of a short life
MAX_REDIRECTS = 3  # that are followed to a document, on the same host
MAX_REFUSALS = 3  # times that one request is sent again after a 401 or 403
MAX_METADATA = 256 << 10  # bytes of what an authorization server answers
MAX_CHALLENGE = (
    8 << 10
)  # characters of WWW-Authenticate, or of scopes, that are looked at
MAX_TEXTS = 100  # scopes, methods and the like, in one list
MAX_ISSUERS = 5  # authorization servers that are tried for one server
MAX_TOKEN = 16 << 10  # characters of a token: it has to fit into a head
MAX_BROWSER = 16  # connections of a browser that comes back
MAX_STORE = 4 << 20  # bytes of a file with tokens


###############################################################################
# 2. Errors ###################################################################
###############################################################################
# One exception for each meaning. McpError and its subclasses are JSON-RPC errors: a
# client raises the one for the code that came, a handler the one to answer with. The
# others are local: what happened to a call here.
class McpError(Exception):
    """A JSON-RPC error. Raise one in a handler to answer with it: basic/index.md.

    code: an integer; those of the specification have subclasses
    message: one line for people, as it came; str(error) shows control characters
        escaped
    data: any JSON value for programs, or None
    """

    code = -32603
    # Of an answer over HTTP that is nothing but this error.
    http_status = 200

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    def __str__(self) -> str:
        return printable(str(self.message))

    @staticmethod
    def from_wire(error: Json) -> McpError:
        """The exception for {"code", "message", "data"}.

        By its code, or NotFound and MissingCapability by their words or data.
        """
        code = error.get("code")
        text = error.get("message")
        data = error.get("data")
        if type(code) is not int:
            return InternalError(
                f"the peer sent an error whose code is {show(code)}", error
            )
        if not isinstance(text, str):
            text = show(text)

        kind = ERRORS.get(code, McpError)
        members = data if isinstance(data, dict) else {}
        if kind is InvalidRequest and "requiredCapabilities" in members:
            kind = MissingCapability
        names_it = "uri" in members or NOT_FOUND in members
        if code in MAYBE_NOT_FOUND and (names_it or re.match(NOT_FOUND_TEXT, text)):
            kind = NotFound
        error_of_kind = McpError.__new__(kind)
        McpError.__init__(error_of_kind, code, text, data)
        return error_of_kind

    def to_wire(self) -> Json:
        """{"code", "message"}, and "data" when there is any."""
        wire: Json = {"code": self.code, "message": self.message}
        if self.data is not None:
            wire["data"] = self.data
        return wire


class _CodedError(McpError):
    """The errors with a code of their own, and the HTTP status that goes with it."""

    def __init__(self, message: str, data: object = None) -> None:
        super().__init__(type(self).code, message, data)

    def __init_subclass__(cls, code: int | None = None, status: int = 200) -> None:
        if code is not None:
            cls.code = code
            cls.http_status = status


class ParseError(_CodedError, code=-32700, status=400):
    """What came is not JSON."""


class InvalidRequest(_CodedError, code=-32600, status=400):
    """JSON, but not a message that may be sent now."""


class MethodNotFound(_CodedError, code=-32601, status=404):
    """The method does not exist, or belongs to what was not declared."""


class InvalidParams(_CodedError, code=-32602, status=400):
    """The parameters are wrong; the message names which."""


class InternalError(_CodedError, code=-32603, status=500):
    """The receiver failed; its log says why."""


class NotFound(InvalidParams):
    """No such tool, prompt, or resource (then -32002 in the legacy revisions)."""


class HeaderMismatch(_CodedError, code=-32020, status=400):
    """A header contradicts the body. To a legacy session its code is -32001."""


class MissingCapability(_CodedError, code=-32021, status=400):
    """The client did not declare what is needed: `data` has "requiredCapabilities".

    In a legacy session its code is that of InvalidRequest.
    """


class UnsupportedVersion(_CodedError, code=-32022, status=400):
    """The revision is not spoken here: `data` has "supported" and "requested"."""


class RequestCancelled(_CodedError, code=-32800):
    """The answer to `$/cancelRequest`, which some old peers send."""


ERRORS: dict[int, type[McpError]] = {
    each.code: each for each in _CodedError.__subclasses__()
}
# "Resource not found", in the legacy revisions.
ERRORS[-32002] = NotFound
# By these codes servers say it, too, and other things: -32001 is a timeout of some. So
# their words decide.
MAYBE_NOT_FOUND = (InvalidParams.code, -32001, -32003)
# What a handler's own NotFound has in its data, for it has words of its own: the tool
# or prompt; a resource has its "uri" there, as the specification says.
NOT_FOUND = "notFound"
NOT_FOUND_TEXT = (
    r"(?is).{,300}?(unknown (tool|resource|prompt)\b"
    r"|\b(tool|resource|prompt) .{,99}not found)"
)
# The codes that the specification has given a meaning, the revisions that have it, and
# what goes in their place in others. A handler may have its code from another server.
CodeRule = namedtuple("CodeRule", "since until instead")
_STANDARD = CodeRule(OLDEST, "9999-12-31", InternalError.code)
_NEVER = CodeRule("9999-12-31", "", InternalError.code)
CODES = {
    ParseError.code: _STANDARD,
    InvalidRequest.code: _STANDARD,
    MethodNotFound.code: _STANDARD,
    InvalidParams.code: _STANDARD,
    InternalError.code: _STANDARD,
    # "Implementations of this protocol version MUST NOT emit these codes":
    # basic/index.md#error-codes. Resource not found, and URL elicitation required.
    -32002: CodeRule(OLDEST, LAST_LEGACY, InvalidParams.code),
    -32042: CodeRule("2025-11-25", "2025-11-25", InternalError.code),
    # Sessions have it, too: no legacy revision has another one for that, or forbids it.
    MissingCapability.code: _STANDARD,
    # "MUST use defined codes only with their specified meanings": when a handler runs,
    # headers and revision were found to be right, and nobody has cancelled.
    HeaderMismatch.code: _NEVER,
    UnsupportedVersion.code: _NEVER,
    RequestCancelled.code: _NEVER,
}
# JSON-RPC keeps these for itself, and since the modern era MCP those.
_JSON_RPC_CODES = range(-32768, -32099)
_MCP_CODES = range(-32099, -32019)


def fit_code(code: object, version: str) -> int:
    """The code of a handler's error, or in its place one that this revision has."""
    if type(code) is not int or abs(code) > MAX_INTEGER:
        return InternalError.code
    rule = CODES.get(code)
    if rule is not None:
        return code if rule.since <= version <= rule.until else rule.instead
    if code in _JSON_RPC_CODES or (code in _MCP_CODES and version >= FIRST_MODERN):
        return InternalError.code
    return code


# Only modern servers know these codes: who answers with one is no legacy server.
MODERN_ERRORS = (HeaderMismatch.code, MissingCapability.code, UnsupportedVersion.code)


class ToolError(Exception):
    """A failure that the caller of a tool can act on: a result with `isError`.

    message: text for the model
    content: blocks in place of that text (text, Image, ...), or None
    """

    def __init__(self, message: str, content: list[Any] | None = None) -> None:
        super().__init__(message)
        self.content = content


class Timeout(TimeoutError):
    """No answer within the time given. The peer was told to stop.

    message: what did not happen
    details: what else is known of a server, its command and the last lines of its
        stderr, say; in the text, too
    """

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(message + details)
        self.message = message


class Cancelled(Exception):
    """The client cancelled this handler's request, or `call.cancel()` this call."""


class ConnectionClosed(ConnectionError):
    """The other end is gone. Of a child process, all this is in the text, too:

    message: what happened
    exit_code: of the process; negative for a signal, None while it runs
    command: as it was started, a list
    stderr: its last lines, as they came; in the text, control characters are escaped

    In the text, what looks like a secret of the command is left out.
    """

    def __init__(
        self,
        message: str,
        exit_code: int | None = None,
        command: list[str] | None = None,
        stderr: str = "",
    ) -> None:
        details = child_details(command, exit_code, stderr)
        super().__init__(printable(message) + details)
        self.exit_code = exit_code
        self.command = command
        self.stderr = stderr


def child_details(command: list[str] | None, exit_code: int | None, stderr: str) -> str:
    """What an error's text says of a child process besides."""
    details = ""
    if command:
        ended = "" if exit_code is None else f"; exit code {exit_code}"
        details = f" (command: {printable(show_command(command))}{ended})"
    if stderr:
        details += f"; the end of its stderr:\n{printable(stderr, keep_lines=True)}"
    return details


def show_command(command: list[str]) -> str:
    """A command for an error text: without what looks like a secret in it."""
    shown = []
    before = ""
    for word in command:
        is_secret = re.search(_SECRET_OPTION, before) and not word.startswith("-")
        hidden = "***" if is_secret else word
        for pattern in _SECRET_VALUES:
            hidden = re.sub(pattern, r"\1***", hidden)
        shown.append(hide_in_urls(hidden))
        before = word
    return " ".join(shown)


def hide_in_urls(text: str) -> str:
    """A text without the users and the queries of URLs in it."""
    text = re.sub(r"(://)[^/@\s]*(?=@)", r"\1***", text)
    return re.sub(r"(?s)(://[^?\s]*\?).+", r"\1***", text)


# An option whose value is the next word; and within one word, what comes before a
# secret: a variable, a member or header with a telling name.
_SECRET_NAME = "(?i:key|token|secret|passw|auth|cookie|credential)"
_SECRET_OPTION = rf"^-.*{_SECRET_NAME}[^=:]*$|^(-H|--header)$"
_SECRET_VALUES = (
    r"(?s)^([A-Z][A-Z0-9_]*=).+",
    rf"(?s)^([^=:\s]*{_SECRET_NAME}[^=:\s]*[=:]).+",
)


class HttpFailure(ConnectionError):
    """A request over HTTP has come to nothing; the next one may not.

    message: what happened, and what may help
    url: of whoever said so, without its user and query; "" where nobody did
    http_status: what it said, or None where nobody answered
    challenge: the parameters of its WWW-Authenticate, their "scheme", and its
        DPoP-Nonce as "nonce"; or {}
    """

    def __init__(
        self,
        message: str,
        url: str = "",
        http_status: int | None = None,
        challenge: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.url = url
        self.http_status = http_status
        self.challenge = challenge or {}


class AuthorizationError(HttpFailure):
    """A server, or its authorization server, does not let this client in."""


class _InputRequired(BaseException):
    """Leaves a handler, past its own `except Exception`, until the client has answered
    what `result` asks."""

    def __init__(self, result: Json) -> None:
        self.result = result


# What a terminal takes for a command, or a reader for another line or another order:
# the control characters, the separators of lines, the marks of direction; and half
# characters, which no stream takes.
# Patterns that not every program needs are texts, like this one: re compiles them when
# they are first used. To have it compile all took an eighth of every import.
UNPRINTABLE = (
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str, *, keep_lines: bool = False) -> str:
    """A text of the peer's as people are shown it, in exceptions, logs, a trace.

    What could command their terminal, or forge a line, is escaped as Python does. With
    `keep_lines`, a line break stays one.
    """

    def escape(match: re.Match[str]) -> str:
        if keep_lines and match[0] == "\n":
            return "\n"
        return ascii(match[0])[1:-1]

    return re.sub(UNPRINTABLE, escape, text)


def show(value: object, limit: int = 60) -> str:
    """A value as an error text quotes it: the beginning of its JSON, printable.

    Cheap, however large the value is.
    """
    text = ""
    try:
        for part in _show_parts(value, limit):
            text += part
            if len(text) > limit:
                return printable(text[: limit - 3]) + "..."
    except (ValueError, RecursionError):
        return f"a {type(value).__name__}"
    return printable(text)


def _show_parts(value: object, limit: int) -> Iterator[str]:
    """The JSON of a value, bit by bit; of a long text only its beginning."""
    if isinstance(value, dict):
        before = "{"
        for name, item in value.items():
            yield before
            yield from _show_parts(str(name), limit)
            yield ": "
            yield from _show_parts(item, limit)
            before = ", "
        yield "}" if value else "{}"
    elif isinstance(value, (list, tuple)):
        before = "["
        for item in value:
            yield before
            yield from _show_parts(item, limit)
            before = ", "
        yield "]" if value else "[]"
    else:
        if isinstance(value, str):
            value = value[:limit]
        yield json.dumps(value, ensure_ascii=False, default=error_text)


def check_count(option: str, value: Any, least: int, most: int = MAX_INTEGER) -> None:
    """Raise ValueError unless an option is an integer within these limits."""
    is_count = isinstance(value, int) and not isinstance(value, bool)
    if not is_count or not least <= value <= most:
        upto = "" if most == MAX_INTEGER else f" and at most {most}"
        raise ValueError(
            f"{option}: expected an integer of at least {least}{upto}, "
            f"got {show(value)}"
        )


def check_flag(option: str, value: object) -> None:
    """Raise ValueError unless an option is on or off."""
    if not isinstance(value, bool):
        raise ValueError(f"{option}: expected True or False, got {show(value)}")


def check_seconds(option: str, value: Any) -> None:
    """Raise ValueError unless an option is a time, or float("inf")."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not value >= 0:
        raise ValueError(f"{option}: expected seconds, 0 or more, got {show(value)}")


def kind_of(value: object) -> str:
    """What stands in an error text for what may be a secret."""
    kind = type(value)
    name = kind.__name__
    # The Server of another copy of this file is another one.
    is_another = globals().get(name, kind) is not kind
    return f"{kind.__module__}.{name}" if is_another else name


def check_that(
    is_right: Callable[[Any], bool], expected: str, option: str, value: object
) -> None:
    """Raise TypeError unless an option is right. It is not shown: it may be secret."""
    if not is_right(value):
        raise TypeError(f"{option}: expected {expected}, got {kind_of(value)}")


def is_text(value: object) -> bool:
    return isinstance(value, str)


_check_text = partial(check_that, is_text, "a text")
_check_dict = partial(check_that, lambda value: isinstance(value, dict), "a dict")
_check_function = partial(check_that, callable, "a function, or None")
_check_limit = partial(check_count, least=1)
_check_size = partial(check_count, least=0)
# How each option is checked that is no more than what it is. What only a later room
# knows is added there.
OPTION_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    option: check
    for check, options in (
        (_check_text, "name title description instructions"),
        (_check_text, "version client_version mime_type"),
        (_check_dict, "annotations output_schema"),
        (_check_function, "on_elicit on_sample on_log on_progress on_notification"),
        (_check_limit, "page_size max_workers max_message"),
        (_check_limit, "max_body max_connections max_sessions"),
        (_check_size, "cache_ttl_ms size max_kept max_questions"),
        (check_flag, "structured mask_errors validate stateless legacy_sse"),
        (check_seconds, "timeout total_timeout session_seconds grace"),
        (partial(check_count, least=0, most=65535), "port"),
    )
    for option in options.split()
}


def check_options(*needed: str, **options: object) -> None:
    """Raise TypeError or ValueError for an option that is wrong; None is one only of
    what is needed. What is not in the table is left to others."""
    for option, check in OPTION_CHECKS.items():
        value = options.get(option)
        if value is not None or option in needed:
            check(option, value)


def error_text(error: object) -> str:
    """An exception as `TypeName: text`; its class may have got the text wrong."""
    text = ""
    with suppress(Exception):
        text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def hide(text: str, secrets: Iterable[str]) -> str:
    """A text without these secrets, or the credentials in these headers."""
    for secret in secrets:
        for word in secret.split():
            if len(word) > 3 and word.lower() not in ("basic", "bearer", "dpop"):
                text = text.replace(word, "***")
    return text


###############################################################################
# 3. Messages #################################################################
###############################################################################
# JSON-RPC 2.0 (basic/index.md#messages): bytes to messages and back. check_envelope is
# the only place where the outer shape of a message is judged; all further in may rely
# on it.
def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _parse_integer(text: str) -> int:
    # To convert digits takes the square of their number.
    if len(text) > MAX_DIGITS:
        raise ValueError(f"an integer of {len(text)} characters, over {MAX_DIGITS}")
    return int(text)


def _parse_float(text: str) -> float:
    number = float(text)
    # 1e400 is JSON, but no float: as infinity it could not be sent on.
    if number - number != 0:
        raise ValueError(f"the number {show(text)} is too large")
    return number


_encoder = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")
)
# Most Pythons have this limit, and are twice as fast with integers without our help.
_has_limit = 0 < getattr(sys, "get_int_max_str_digits", int)() <= MAX_DIGITS
_decoder = json.JSONDecoder(
    parse_constant=_refuse_constant,
    parse_int=None if _has_limit else _parse_integer,
    parse_float=_parse_float,
)
# What raw_decode() calls.
_scan: Callable[[str, int], tuple[Any, int]] = vars(_decoder)["scan_once"]


def _make_encoder() -> Callable[[Any, bool], Iterable[str]]:
    """_encoder.iterencode, but its part in C is made once, not anew for each value:
    that takes as long as to encode most messages."""
    try:
        encoder: Callable[[Any, bool], Iterable[str]]
        encoder = vars(json.encoder)["c_make_encoder"](
            None,  # no check for cycles
            _encoder.default,
            json.encoder.encode_basestring,
            None,  # no indent
            _encoder.key_separator,
            _encoder.item_separator,
            False,  # members in the order that they come
            False,  # none is skipped
            False,  # there is no NaN
        )
        return encoder
    except (KeyError, TypeError):
        # This Python has none, or another one.
        return _encoder.iterencode


_encode_parts = _make_encoder()

# What is_id() wants.
_ID_TEXT = f"expected string or integer, {MAX_ID} characters at most"

# What an error text calls a Python type.
TYPE_NAMES = {
    str: "string",
    dict: "object",
    list: "array",
    int: "integer",
    float: "number",
    bool: "boolean",
}


# What tells how much a message will take when it is decoded: +1 goes into an array or
# object, -1 comes out of it.
_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NO_STEPS = bytes(set(range(256)) - set(_STEPS))
_NO_STRUCTURE = bytes(set(_NO_STEPS) - set(b',"'))


def check_cost(data: bytes) -> None:
    """Raise InvalidRequest for what would take too much to decode, ParseError for what
    is nested too deeply."""
    is_flat = _occurs_at_most(MAX_DEPTH, b"[", data)
    is_flat = is_flat and _occurs_at_most(MAX_DEPTH, b"{", data)
    is_short = len(data) <= MAX_VALUES or _occurs_at_most(MAX_DEPTH, b",", data)
    if is_flat and (is_short or data.count(b",") <= MAX_VALUES):
        return

    # It is to be counted again: that may have been text.
    containers = 0
    members = 0
    depth = 0
    for part in _structure_of(data):
        steps = part.translate(None, b",")
        opened = steps.count(b"[") + steps.count(b"{")
        containers += opened
        members += len(part) - len(steps)
        if containers > MAX_CONTAINERS or members > MAX_VALUES:
            raise InvalidRequest(
                f"a message of more than {MAX_CONTAINERS} arrays and objects, or "
                f"{MAX_VALUES} members"
            )
        # Mostly so few are opened in one piece that they need not be walked through.
        if depth + opened > MAX_DEPTH:
            walk = map(_STEPS.__getitem__, steps)
            if max(itertools.accumulate(walk, initial=depth)) > MAX_DEPTH:
                raise ParseError(f"nested deeper than {MAX_DEPTH}")
        depth += 2 * opened - len(steps)


def _occurs_at_most(count: int, byte: bytes, data: bytes) -> bool:
    """Whether a byte occurs so often at most. Much faster than count() where it is
    rare, as in an image."""
    if len(data) <= CHUNK:
        return data.count(byte) <= count
    place = -1
    for _ in range(count + 1):
        place = data.find(byte, place + 1)
        if place < 0:
            return True
    return False


def _structure_of(data: bytes) -> Iterator[bytes]:
    """The brackets, braces and commas outside strings, piece by piece."""
    if b"\\" in data:
        # First pairs of backslashes: what follows one of them is not escaped.
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    inside = 0
    for start in range(0, len(data), CHUNK):
        piece = data[start : start + CHUNK].translate(None, _NO_STRUCTURE)
        parts = piece.split(b'"')
        yield b"".join(parts[inside::2])
        inside = (inside + len(parts) - 1) % 2


def parse_message(data: bytes) -> Any:
    """Decode one message. Raises ParseError, or InvalidRequest, whatever the bytes are:
    see check_cost."""
    # Most are seen to be cheap at a glance.
    if len(data) > MAX_DEPTH:
        check_cost(data)
    return decode_message(data)


def decode_message(data: bytes) -> Any:
    """Decode a message of any size, one of ours, say. Raises ParseError."""
    try:
        text = data.decode("utf-8").strip(" \t\r\n")
        message, end = _scan(text, 0)
        if end != len(text):
            raise ValueError(f"more than one value, at character {end}")
        return message
    except StopIteration as error:
        # What raw_decode() would say of it.
        place = error.value
        raise ParseError(
            f"not JSON in UTF-8: Expecting value, at character {place}"
        ) from None
    except (ValueError, RecursionError) as error:
        raise ParseError(f"not JSON in UTF-8: {error}") from None


def encode_json(value: object) -> str:
    """Encode on one line. Raises ValueError or TypeError for what JSON cannot say: NaN,
    objects of classes, cycles."""
    try:
        return "".join(_encode_parts(value, False))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def encode_text(value: object) -> str:
    """Text as it is, any other value as JSON. Raises as encode_json does."""
    return value if isinstance(value, str) else encode_json(value)


def encode_message(message: object) -> bytes:
    """One message as UTF-8 without a line break.

    Raises as encode_json does, and for lone surrogates.
    """
    return encode_json(message).encode("utf-8")


# How the answer to a request mostly begins: with its id.
_ANSWER_HEAD = rb'\s*{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*([0-9]{1,18})\s*,'


def unread_answer(line: bytes) -> Json:
    """What can be told of an answer in a line that is no message: its id, at least.

    Empty, if there is none.
    """
    with suppress(ValueError, RecursionError, McpError):
        check_cost(line)
        text = line.decode("utf-8", "replace")
        # Of what made it none, only what takes no time is left out: long integers.
        value = json.loads(text, parse_int=lambda digits: int(digits[:MAX_DIGITS]))
        message = object_or_empty(value)
        if "id" in message:
            return message
    # What would take too much is not decoded for that.
    head = re.match(_ANSWER_HEAD, line)
    return {} if head is None else {"id": int(head[1]), "result": None}


def is_id(value: object) -> bool:
    """Whether it can be a request's id: "string or integer", "MUST NOT be null".

    Nor a longer one than MAX_ID: it is kept, and sent back.
    """
    if isinstance(value, str):
        return len(value) <= MAX_ID
    # A bool is an int to Python.
    return type(value) is int and value.bit_length() <= MAX_ID


def find_by_id(table: dict[Any, Any], key: object) -> Any:
    """What a table has under an id that a peer sent; None also for what is no id."""
    if not is_id(key):
        return None
    return table.get(key)


def object_or_empty(value: object) -> Json:
    """What a peer sent where an object belongs; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def member_at(value: Any, path: Iterable[str]) -> Any:
    """The member of a member, and so on, of what a peer sent; None if there is none."""
    for name in path:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def footprint(value: object) -> int:
    """How many bytes of memory a JSON value has, about: many more than its text."""
    size = 0
    rest = [value]
    while rest:
        each = rest.pop()
        size += size_of(each)
        if isinstance(each, dict):
            rest += each.keys()
            rest += each.values()
        elif isinstance(each, list):
            rest += each
    return size


def size_of(value: Any) -> int:
    """How many bytes of memory a JSON value has by itself, about."""
    known = sys.getsizeof(value, 0)
    if known:
        return known
    # PyPy does not tell. It keeps texts as UTF-8.
    if isinstance(value, str):
        return 64 + len(value.encode("utf-8", "surrogatepass"))
    return 64 + 32 * (len(value) if isinstance(value, (list, dict)) else 0)


def check_envelope(message: object) -> str:
    """Tell "request", "notification" or "response".

    Raises InvalidRequest for what is none of them.
    """
    if not isinstance(message, dict):
        raise InvalidRequest(f"expected an object, got {show(message)}")
    if message.get("jsonrpc") != "2.0":
        raise InvalidRequest(
            f'jsonrpc: expected "2.0", got {show(message.get("jsonrpc"))}'
        )
    asks = "method" in message
    failed = "error" in message
    if asks + failed + ("result" in message) != 1:
        raise InvalidRequest("expected one of method, result and error")
    part = "method" if asks else "result"
    if failed:
        part = "error"
    kind = str if asks else dict
    if not isinstance(message[part], kind):
        raise InvalidRequest(
            f"{part}: expected {TYPE_NAMES[kind]}, got {show(message[part])}"
        )

    if "id" not in message:
        return "notification" if asks else "response"
    # The answer to what could not be read has no id, or null.
    if not is_id(message["id"]) and (asks or message["id"] is not None):
        raise InvalidRequest(f"id: {_ID_TEXT}, got {show(message['id'])}")
    return "request" if asks else "response"


def add_given(wire: Json, **members: object) -> Json:
    """The object, with those members that are not None."""
    wire.update((name, value) for name, value in members.items() if value is not None)
    return wire


def call_message(
    method: str, params: Json | None, request_id: RequestId | None = None
) -> Json:
    """A request, or without an id a notification."""
    return add_given({"jsonrpc": "2.0", "method": method}, id=request_id, params=params)


def result_message(request_id: RequestId, result: Json) -> Json:
    """The answer with a result."""
    return {"jsonrpc": "2.0", "id": request_id, "result": result}


def error_message(request_id: RequestId | None, error: McpError) -> Json:
    """The answer with an error.

    Without an id when that could not be read: MCP's ids are never null.
    """
    return add_given({"jsonrpc": "2.0", "error": error.to_wire()}, id=request_id)


def encode_answer(
    message: Json, report: Callable[[str], Any], about: str = "the answer"
) -> bytes:
    """An answer as bytes. Never raises: what JSON cannot say becomes an error.

    So there is an answer in any case: who waits for it would wait in vain. `about`: what
    the error calls it.
    """
    try:
        return encode_json(message).encode("utf-8")
    except (ValueError, TypeError) as error:
        why = f"{about}: not valid JSON: {error}"
    report(why)
    failure = InternalError(why)
    # Even the id may hold a lone surrogate: in ASCII it goes back as it came.
    return json.dumps(error_message(message.get("id"), failure)).encode("ascii")


###############################################################################
# 4. Methods ##################################################################
###############################################################################
# Everything that can be said, but for tasks: one row each. A rule that concerns one
# method stands in its row, and nowhere else is the name of a method compared.
Member = namedtuple("Member", "name required kind")  # a member of params, and its type


def _typed_members(kinds: dict[str, type]) -> tuple[Member, ...]:
    """Members of an object from {"name": type}; a name that ends in "?" is optional."""
    return tuple(
        Member(name.rstrip("?"), not name.endswith("?"), kind)
        for name, kind in kinds.items()
    )


class Method:
    """A row of the table: what can be said, who says it, and what follows from that.

    `sender` is "client", "server" or "both"; `kind` "request" or "notification", or of
    an extension's method "either": it is what comes. The traits below have defaults; a
    row says only those that differ.
    """

    # The method of the receiver's Endpoint that serves a request; of a notification
    # about an open request, the method of Connection.
    handler = ""
    # What the receiver must have declared: a path into its capabilities; and what it
    # answers if it has not.
    capability: tuple[str, ...] = ()
    undeclared: type[_CodedError] = MethodNotFound
    # The extension that its sender must have declared, too.
    extension = ""
    params: tuple[Member, ...] = ()
    # The revisions that have it.
    since = OLDEST
    until = "9999-12-31"
    # May come before the handshake; is part of the handshake.
    early = False
    handshake = False
    # Is served by the reading thread, so that what comes after finds it done.
    inline = False
    # Is answered at its end only, when nobody listens any more.
    stays_open = False
    # The member of the result that is one page of a list.
    paged = ""
    # The result says how long it may be reused, and by whom: its `cacheScope`, which is
    # "public", or "private" where it may depend on who asks; "" if it says neither.
    cache_scope = ""
    # The parameter that the header Mcp-Name mirrors; Mcp-Param-* mirror its arguments.
    mirrored = ""
    mirrors_arguments = False
    # Its handler may ask the client questions.
    asks = False
    # It is a question for a user, and so about a call, as a rule.
    asks_user = False
    # Notifications only. When too many wait, these are dropped first.
    droppable = False
    # It says only that something is not what it was: one that waits says it for all.
    tells_change = False
    # It is a log message.
    logs = False
    # It ends the request that it is about, which this member names; whether who says it
    # expects an answer all the same.
    cancels = False
    subject = "requestId"
    expects_answer = False
    # It is the first on a subscription.
    acknowledges = False
    # For people: what it is for, what its answer brings, and what an error in place of
    # that means; and the page of the specification.
    purpose = "The specification does not have this: it may be an extension's."
    outcome = ""
    setback = ""
    page = "basic/index"

    def __init__(self, sender: str, kind: str, name: str, **traits: object) -> None:
        self.sender = sender
        self.kind = kind
        self.name = name
        assert traits.keys() <= vars(Method).keys(), traits
        # A row has all of them itself: what stands in a class is found more slowly, and
        # each request looks at many.
        own = {key: each for key, each in vars(Method).items() if key[0] != "_"}
        del own["is_in"]
        vars(self).update(own, **traits)

    def is_in(self, version: str) -> bool:
        """Whether a revision has it."""
        return self.since <= version <= self.until


def _request(sender: str, name: str, handler: str, **traits: object) -> Method:
    return Method(sender, "request", name, handler=handler, **traits)


def _notification(sender: str, name: str, **traits: object) -> Method:
    return Method(sender, "notification", name, **traits)


_PAGE = _typed_members({"cursor?": str})
_URI = _typed_members({"uri": str})
_CALL = _typed_members({"name": str, "arguments?": dict})
_SUBSCRIBE = ("resources", "subscribe")

METHODS: dict[str, Method] = {
    row.name: row
    for row in (
        # Lifecycle: basic/lifecycle.md of the legacy revisions.
        _request(
            "client",
            "initialize",
            "_initialize",
            params=_typed_members(
                {"protocolVersion": str, "capabilities": dict, "clientInfo": dict}
            ),
            until=LAST_LEGACY,
            early=True,
            handshake=True,
            inline=True,
            purpose=(
                "A session begins: the client says which revision it would speak,"
                " what it can do, and who it is."
            ),
            outcome=(
                "The server has chosen the revision, and says what it offers: "
                "neither side may ask the other for anything else."
            ),
            setback="There is no session: this server, or this revision, will not do.",
            page="basic/lifecycle",
        ),
        _notification(
            "client",
            "notifications/initialized",
            until=LAST_LEGACY,
            handshake=True,
            purpose=(
                "The client has understood. Now the session is open, and the "
                "server may ask, too."
            ),
            page="basic/lifecycle",
        ),
        # As some tutorials say it.
        _notification(
            "client",
            "initialized",
            until=LAST_LEGACY,
            handshake=True,
            purpose="The same as notifications/initialized, as some tutorials say it.",
            page="basic/lifecycle",
        ),
        _request(
            "both",
            "ping",
            "_ping",
            until=LAST_LEGACY,
            early=True,
            inline=True,
            purpose="Is anybody there? Either side may ask, at any time.",
            outcome="Somebody is.",
            page="basic/utilities/ping",
        ),
        # The modern era has no handshake: server/discover.md.
        _request(
            "client",
            "server/discover",
            "_discover",
            since=FIRST_MODERN,
            inline=True,
            cache_scope="public",
            purpose=(
                "Before all else: which revisions does the server speak, and what"
                " does it offer? Only servers of the modern era know this "
                "request."
            ),
            outcome="It is a modern server: there will be no session.",
            setback=(
                "It is a legacy server, most likely: the client goes on with "
                "`initialize`."
            ),
            page="server/discover",
        ),
        # Tools: server/tools.md.
        _request(
            "client",
            "tools/list",
            "_list",
            capability=("tools",),
            params=_PAGE,
            paged="tools",
            cache_scope="public",
            purpose=(
                "Which functions may the model call? It reads their descriptions,"
                " and the schemas of their arguments, to choose."
            ),
            outcome="The client shows these to its model.",
            page="server/tools",
        ),
        _request(
            "client",
            "tools/call",
            "_tools_call",
            capability=("tools",),
            params=_CALL,
            mirrored="name",
            mirrors_arguments=True,
            asks=True,
            purpose="The model wants this function to be run, with these arguments.",
            outcome="What the function has returned, for the model to read.",
            setback=(
                "The call could not be made: there is no such tool, or its "
                "arguments are wrong."
            ),
            page="server/tools",
        ),
        # Resources: server/resources.md.
        _request(
            "client",
            "resources/list",
            "_list",
            capability=("resources",),
            params=_PAGE,
            paged="resources",
            cache_scope="public",
            purpose=(
                "Which texts and data are there to show to the model? The "
                "program, or its user, will choose."
            ),
            outcome="The client may read each of these by its URI.",
            page="server/resources",
        ),
        _request(
            "client",
            "resources/templates/list",
            "_list",
            capability=("resources",),
            params=_PAGE,
            paged="resourceTemplates",
            cache_scope="public",
            purpose=(
                "Which resources are there whose URIs have blanks to be filled in?"
            ),
            page="server/resources",
        ),
        _request(
            "client",
            "resources/read",
            "_resources_read",
            capability=("resources",),
            params=_URI,
            cache_scope="private",
            mirrored="uri",
            asks=True,
            purpose=(
                "The program wants what is behind this URI, as context for the model."
            ),
            outcome="The contents: text, or bytes in base64.",
            page="server/resources",
        ),
        _request(
            "client",
            "resources/subscribe",
            "_resources_subscribe",
            capability=_SUBSCRIBE,
            params=_URI,
            until=LAST_LEGACY,
            inline=True,
            purpose="The client wants to be told whenever this resource changes.",
            outcome="It will be.",
            page="server/resources",
        ),
        _request(
            "client",
            "resources/unsubscribe",
            "_resources_unsubscribe",
            capability=_SUBSCRIBE,
            params=_URI,
            until=LAST_LEGACY,
            inline=True,
            purpose="The client does not want to be told of this resource any more.",
            page="server/resources",
        ),
        # Prompts: server/prompts.md.
        _request(
            "client",
            "prompts/list",
            "_list",
            capability=("prompts",),
            params=_PAGE,
            paged="prompts",
            cache_scope="public",
            purpose=(
                "Which prepared messages are there for the user to pick, as slash"
                " commands, say?"
            ),
            outcome="The client offers these to its user.",
            page="server/prompts",
        ),
        _request(
            "client",
            "prompts/get",
            "_prompts_get",
            capability=("prompts",),
            params=_CALL,
            mirrored="name",
            asks=True,
            purpose=(
                "The user has picked this one: the server makes its messages, "
                "with these arguments."
            ),
            outcome="Messages, with which the client goes to its model.",
            page="server/prompts",
        ),
        # What else a server may offer: server/utilities/, and
        # basic/patterns/subscriptions.md.
        _request(
            "client",
            "completion/complete",
            "_completion_complete",
            capability=("completions",),
            params=_typed_members({"ref": dict, "argument": dict, "context?": dict}),
            purpose="The user is typing an argument: what could it be?",
            outcome="The client suggests these.",
            page="server/utilities/completion",
        ),
        _request(
            "client",
            "logging/setLevel",
            "_logging_set_level",
            capability=("logging",),
            params=_typed_members({"level": str}),
            until=LAST_LEGACY,
            inline=True,
            purpose=(
                "From which severity on does the client want to hear log messages?"
            ),
            page="server/utilities/logging",
        ),
        _request(
            "client",
            "subscriptions/listen",
            "_subscriptions_listen",
            params=_typed_members({"notifications": dict}),
            since=FIRST_MODERN,
            inline=True,
            stays_open=True,
            purpose=(
                "The client wants to hear of changes. There is no session to tell"
                " it in: so this request stays open, and they come on its stream."
            ),
            outcome="The subscription is over.",
            page="basic/patterns/subscriptions",
        ),
        # Questions to the client: client/. In the modern era the same three travel
        # inside results (basic/patterns/mrtr.md), so there they are no requests.
        _request(
            "server",
            "roots/list",
            "_roots_list",
            capability=("roots",),
            until=LAST_LEGACY,
            inline=True,
            purpose="The server asks which folders it may work on.",
            outcome="These are the roots.",
            page="client/roots",
        ),
        _request(
            "server",
            "sampling/createMessage",
            "_sampling_create_message",
            capability=("sampling",),
            asks_user=True,
            params=_typed_members({"messages": list, "maxTokens": int}),
            until=LAST_LEGACY,
            inline=True,
            purpose=(
                "The server asks the client's model for a text; the user may look"
                " at it before."
            ),
            outcome="What the model has written.",
            page="client/sampling",
        ),
        _request(
            "server",
            "elicitation/create",
            "_elicitation_create",
            capability=("elicitation",),
            asks_user=True,
            # "with a mode not declared in client capabilities: `-32602`".
            undeclared=InvalidParams,
            params=_typed_members({"message": str}),
            since="2025-06-18",
            until=LAST_LEGACY,
            inline=True,
            purpose=(
                "The server has a question for the user: a form to fill in, or a "
                "page to visit."
            ),
            outcome=(
                "What the user has done: accept, with the form's content, decline"
                " or cancel."
            ),
            page="client/elicitation",
        ),
        # About an open request: basic/patterns/cancellation.md and progress.md.
        _notification(
            "both",
            "notifications/cancelled",
            handler="_cancelled",
            cancels=True,
            purpose=(
                "Who has asked does not want the answer any more. The work is to "
                "stop, and there will be no answer."
            ),
            page="basic/utilities/cancellation",
        ),
        # As language servers say it.
        _notification(
            "both",
            "$/cancelRequest",
            handler="_cancelled",
            subject="id",
            expects_answer=True,
            purpose="The same as notifications/cancelled, as language servers say it.",
            page="basic/utilities/cancellation",
        ),
        _notification(
            "both",
            "notifications/progress",
            handler="_progress",
            droppable=True,
            purpose="How far a request has come, under the token that came with it.",
            page="basic/utilities/progress",
        ),
        _notification(
            "server",
            "notifications/message",
            droppable=True,
            logs=True,
            purpose="A log message, for people on the client's side.",
            page="server/utilities/logging",
        ),
        # About the server's state, and the client's.
        _notification(
            "server",
            "notifications/tools/list_changed",
            tells_change=True,
            purpose=(
                "The tools have changed: who keeps a list of them asks for it again."
            ),
            page="server/tools",
        ),
        _notification(
            "server",
            "notifications/resources/list_changed",
            tells_change=True,
            purpose=(
                "The resources have changed: who keeps a list of them asks for it"
                " again."
            ),
            page="server/resources",
        ),
        _notification(
            "server",
            "notifications/resources/updated",
            tells_change=True,
            purpose=(
                "A resource has changed that the client wanted to hear of: it may"
                " read it again."
            ),
            page="server/resources",
        ),
        _notification(
            "server",
            "notifications/prompts/list_changed",
            tells_change=True,
            purpose=(
                "The prompts have changed: who keeps a list of them asks for it again."
            ),
            page="server/prompts",
        ),
        _notification(
            "server",
            "notifications/elicitation/complete",
            since="2025-11-25",
            until=LAST_LEGACY,
            purpose=(
                "What the user was sent to a page for is done: the client may go on."
            ),
            page="client/elicitation",
        ),
        _notification(
            "server",
            "notifications/subscriptions/acknowledged",
            since=FIRST_MODERN,
            acknowledges=True,
            purpose="The subscription stands: of these changes the client will hear.",
            page="basic/patterns/subscriptions",
        ),
        _notification(
            "client",
            "notifications/roots/list_changed",
            until=LAST_LEGACY,
            tells_change=True,
            purpose="The folders have changed: the server may ask for them again.",
            page="client/roots",
        ),
    )
}
# The row of what is not in the table.
UNKNOWN = Method("nobody", "nothing", "")
# The kinds of those that may come as requests.
REQUESTS = ("request", "either")

# What a modern result may be, by its `resultType` (basic/index.md#resulttype): the
# method of Call that goes on with it, on a worker; none where the call is over.
RESULT_TYPES = {"complete": "", "input_required": "_answer_questions"}

# What a client may ask to hear of: the member of its filter, the notification, and the
# capability that promises it.
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
    """The row of a method; UNKNOWN for what is in no revision, or no name."""
    if not isinstance(name, str):
        return UNKNOWN
    return METHODS.get(name, UNKNOWN)


def show_method(name: str) -> str:
    """A method as an error text names it: what is none may be any text."""
    return name if name in METHODS else show(name)


def check_members(rules: Iterable[Any], members: Json, where: str = "") -> None:
    """Check members against (name, required, type) each.

    Raises InvalidParams naming the first that is wrong.
    """
    for name, required, kind in rules:
        value = members.get(name)
        if value is None and not required:
            continue
        # True is an int to Python, but no integer to JSON.
        if isinstance(value, kind) and type(value) is not bool:
            continue
        came = f"got {show(value)}" if name in members else "but it is missing"
        raise InvalidParams(f"{where}{name}: expected {TYPE_NAMES[kind]}, {came}")


def has_capability(capabilities: Json, path: tuple[str, ...]) -> bool:
    """Whether ("resources", "subscribe"), say, was declared: as true, or an object."""
    declared = member_at(capabilities, path)
    return declared is True or isinstance(declared, dict)


def extension_places(version: str) -> tuple[str, ...]:
    """The capabilities that name extensions.

    "Extensions are advertised in the `extensions` field": basic/versioning.md. Legacy
    revisions have one for "non-standard" capabilities, `experimental`; but as theirs
    "is not a closed set", most who know extensions declare `extensions` there, too.
    """
    if version >= FIRST_MODERN:
        return ("extensions",)
    return ("extensions", "experimental")


def has_extension(capabilities: Json, name: str, version: str) -> bool:
    """Whether an extension was declared, wherever the revision has a place for it."""
    places = extension_places(version)
    return any(has_capability(capabilities, (place, name)) for place in places)


###############################################################################
# 5. Patterns #################################################################
###############################################################################
# The regular expressions of schemas are those of ECMA 262, and a stranger may have
# written both the pattern and the text. Where a pattern leaves a choice, Python's `re`
# tries one way after another: to see that `aaa...!` does not match `^(a+)+$` takes it
# 2**n tries. So `re` gets only what leaves no choice; an automaton takes all ways at
# once. A pattern is cut into tokens, each is translated to a piece as `re` has it, the
# pieces are parsed to parts, and for the parts the automaton gets its nodes.
if TYPE_CHECKING:
    # Pays for so many steps of work; raises when none are left.
    Spend = Callable[[int], None]
    # test(text, at, spend): how many characters it takes there; None: it does not fit.
    Test = Callable[[str, int, Spend], Union[int, None]]


class PatternMemory:
    """How much the patterns of one schema may still remember: numbers of nodes."""

    def __init__(self) -> None:
        self.left = MAX_REMEMBERED


class Pattern:
    """An ECMA 262 pattern that no text makes endless. Safe from any thread.

    Raises ValueError for what is none, and for what is too large; to compile it is paid
    with `spend`.
    """

    def __init__(self, pattern: str, spend: Spend, memory: PatternMemory) -> None:
        self._automaton: _Automaton | None = None
        try:
            if len(pattern) > MAX_PATTERN:
                raise ValueError(f"{len(pattern)} characters, over {MAX_PATTERN}")
            pieces = []
            for token in re.finditer(_TOKEN, pattern):
                spend(_price(token[0]))
                pieces.append(_translate(token[0]))
            # Compiled in any case: `re` knows best what is no pattern.
            self._plain = re.compile("".join(pieces), re.ASCII)
            if any(piece == "|" or re.fullmatch(_REPEAT, piece) for piece in pieces):
                self._automaton = _Automaton(pieces, spend, memory)
        # Of what is hardly a pattern, some Pythons make "invalid SRE code".
        except (re.error, ArithmeticError, ValueError, RuntimeError, Warning) as error:
            raise ValueError(f"pattern {show(pattern)}: {error}") from None
        self._size = len(pieces)
        self._anchored = pieces[:1] == ["^"]
        self._refers_back = any(re.match(r"\\[1-9]", piece) for piece in pieces)

    def search(self, text: str, spend: Spend) -> bool:
        """Whether it matches anywhere in the text. Raises what `spend` raises."""
        if self._automaton is not None:
            return self._automaton.search(text, spend)
        # Each piece is compared once at each place where a match may begin. What a
        # backreference compares may be as long as the text.
        places = 1 if self._anchored else len(text) + 1
        each = len(text) if self._refers_back else 1
        spend(8 + (places * self._size * each + len(text)) // 32)
        return self._plain.search(text) is not None


# A part of a pattern that occurs from `least` to `most` times; None is without end. The
# other parts are a Test, and a group, as a list of alternatives, each a list of parts.
_Repeated = namedtuple("_Repeated", "part least most")
if TYPE_CHECKING:
    from typing import List

    Group = List[List[Union[Test, _Repeated, "Group"]]]
    Part = Union[Test, _Repeated, Group]


class _Automaton:
    """The nodes of a pattern, and texts run through them: Thompson's construction.

    A node is a test and the numbers of the nodes behind it. The test looks at one place
    of the text and says how many characters it takes there: 1, or 0 (`^`, a lookahead),
    or None if it does not fit. A node without a test is a fork, and takes none. Who
    comes to END has matched. `a(b|c)*d` becomes:

                 .---------------------------.
                 v                           |
        a --> [fork] --> [fork] ---> b ------+
                 |            '----> c ------'
                 '-----> d --> END

    A run does not follow one way through the nodes. It keeps the set of all nodes that
    wait for the next character, and a step leads from that set to the next: it goes on
    at once behind what takes no character (epsilon steps), and puts what stands behind
    the tests that take the character into the new set. So no text costs more than its
    length times the nodes. As the same few sets turn up again and again, steps are
    remembered, and most characters cost no more than a look into a dict.
    """

    END = 0

    def __init__(self, pieces: list[str], spend: Spend, memory: PatternMemory) -> None:
        # While it is built.
        self._spend = spend
        self._tests: dict[str, Test] = {}
        # number -> (test, numbers of the nodes behind); END has none.
        self._nodes: list[tuple[Test | None, tuple[int, ...]]] = [(None, ())]
        # (waiting nodes, whether the text begins here, character) -> waiting nodes
        self._steps: dict[tuple[frozenset[int], bool, str], frozenset[int]] = {}
        self._memory = memory
        # If a piece looks at more than one character, steps differ that look the same.
        self._remembers = _LOOKS_AROUND.isdisjoint(pieces)
        self._first = self._place(self._parse(deque(pieces)), self.END)

    # From pieces to parts to nodes.
    def _parse(self, pieces: deque[str]) -> Group:
        """The group up to its `)`, or to the end. Takes its pieces away.

        `re` has compiled the pattern, so the parentheses match.
        """
        sequence: list[Part] = []
        group = [sequence]
        while pieces:
            piece = pieces.popleft()
            repeat = re.fullmatch(_REPEAT, piece)
            if piece == ")":
                break
            if piece == "|":
                sequence = []
                group.append(sequence)
            elif repeat:
                if not sequence:
                    # In groups that only `re` knows: `(?i)`, `(?P<name>...)`.
                    raise ValueError("nothing to repeat")
                sequence.append(_Repeated(sequence.pop(), *_parse_bounds(repeat)))
            elif piece in ("(", "(?:"):
                sequence.append(self._parse(pieces))
            elif piece in ("(?=", "(?!"):
                # Its nodes are placed once, however often the lookahead itself is.
                first = self._place(self._parse(pieces), self.END)
                sequence.append(partial(self._look_ahead, first, piece == "(?="))
            else:
                if piece not in self._tests:
                    self._tests[piece] = _make_test(piece)
                sequence.append(self._tests[piece])
        return group

    def _place(self, part: Part, behind: int) -> int:
        """Add the nodes of a part in front of `behind`. The number of the first."""
        if callable(part):
            return self._add(part, behind)
        if isinstance(part, _Repeated):
            return self._place_repeated(part, behind)
        firsts = []
        for sequence in part:
            first = behind
            for inner in reversed(sequence):
                first = self._place(inner, first)
            firsts.append(first)
        return self._add(None, *firsts)

    def _place_repeated(self, repeated: _Repeated, behind: int) -> int:
        part, least, most = repeated
        first = self._add(None, behind)
        if most is None:
            # This fork leads out, or into the part, which leads back to it.
            self._nodes[first] = (None, (self._place(part, first), behind))
            most = least
        for _ in range(most - least):
            first = self._add(None, self._place(part, first), behind)
        for _ in range(least):
            first = self._place(part, first)
        return first

    def _add(self, test: Test | None, *behind: int) -> int:
        if len(self._nodes) >= MAX_NODES:
            raise ValueError("too large")
        self._spend(16)
        self._nodes.append((test, behind))
        return len(self._nodes) - 1

    # A text runs through the nodes.
    def search(self, text: str, spend: Spend) -> bool:
        """Whether a match begins anywhere in the text."""
        return self._run(self._first, text, 0, spend, (self._first,))

    def _look_ahead(
        self, first: int, wanted: bool, text: str, at: int, spend: Spend
    ) -> int | None:
        """The test of a lookahead."""
        fits = self._run(first, text, at, spend, ())
        return 0 if fits == wanted else None

    def _run(
        self, first: int, text: str, start: int, spend: Spend, again: tuple[int, ...]
    ) -> bool:
        """Whether a way leads from the node `first`, at `start`, to END.

        The nodes `again` wait behind each character: there, a match may begin, too.
        """
        spend(8 + len(text))
        steps = self._steps
        waiting = frozenset([first])
        for at in range(start, len(text) + 1):
            # At the end, the character is "": tests that take none have their turn.
            step = (waiting, at == 0, text[at : at + 1])
            behind = steps.get(step)
            if behind is None:
                behind = self._step(waiting, text, at, spend, again)
                if self._remembers and self._memory.left > 0:
                    self._memory.left -= len(behind) + 5
                    steps[step] = behind
            waiting = behind
            if not waiting or self.END in waiting:
                break
        return self.END in waiting

    def _step(
        self,
        waiting: frozenset[int],
        text: str,
        at: int,
        spend: Spend,
        again: tuple[int, ...],
    ) -> frozenset[int]:
        """The nodes that wait behind the character; END among them is a match."""
        behind = {*again}
        seen: set[int] = set()
        todo = [*waiting]
        while todo:
            number = todo.pop()
            if number == self.END:
                # It matches: nothing else is to be known.
                behind = {self.END}
                break
            if number in seen:
                continue
            seen.add(number)
            test, after = self._nodes[number]
            taken = test(text, at, spend) if test else 0
            if taken:
                behind.update(after)
            elif taken == 0:
                todo.extend(after)
        spend(16 * (1 + len(seen)))
        return frozenset(behind)


def _make_test(piece: str) -> Test:
    """The test of a piece that is no sign: a character, a class, an anchor."""
    if len(piece) == 1 and piece != "^":
        return partial(_take_character, piece)
    if piece.startswith("(?<"):
        raise ValueError("a lookbehind beside repeats or alternatives")
    return partial(_take_match, re.compile(piece, re.ASCII))


def _take_character(character: str, text: str, at: int, spend: Spend) -> int | None:
    return 1 if text.startswith(character, at) else None


def _take_match(piece: re.Pattern[str], text: str, at: int, spend: Spend) -> int | None:
    match = piece.match(text, at)
    return match and match.end() - at


def _parse_bounds(repeat: re.Match[str]) -> tuple[int, int | None]:
    """How often at least, and at most (None: without end), from what _REPEAT found."""
    sign, least, comma, most = repeat.groups()
    if sign:
        return _SIGNS[sign]
    if most:
        return int(least), int(most)
    return int(least), None if comma else int(least)


def _price(token: str) -> int:
    """The steps that `re` takes to compile a token: most for a class of many signs."""
    steps = 16 + 8 * len(token)
    if token in _PYTHON or "\\s" in token:
        steps += 600
    if token.startswith("[") and ("\\u" in token or not token.isascii()):
        steps += 8000
    return steps


def _translate(token: str) -> str:
    """A token of an ECMA 262 pattern as Python's `re` has it.

    Raises ValueError for a bracket that nothing closes: the first one ends it all, so
    that the rest is not searched for an end again and again.
    """
    if token == "[":
        raise ValueError("a class in brackets does not end")
    if token.startswith("\\c") and len(token) == 3:
        return re.escape(chr(ord(token[2]) % 32))
    if token.startswith("\\u{"):
        return re.escape(chr(int(token[3:-1], 16)))
    if token.startswith("(?<") and token.endswith(">"):
        # A group with a name, by which nothing asks for it.
        return "("
    if token in _PYTHON:
        return _PYTHON[token]
    if token.startswith("["):
        return "[" + re.sub(_CLASS_TOKEN, _translate_in_class, token[1:-1]) + "]"
    return token


def _translate_in_class(token: re.Match[str]) -> str:
    return _PYTHON_IN_CLASS.get(token[0], token[0])


# Escapes, classes in brackets, beginnings of groups, repeats, and single characters.
_TOKEN = (
    r"(?s)\\(?:[pu]\{\w+}|u[\dA-Fa-f]{4}|x[\dA-Fa-f]{2}|c[A-Za-z]|.)"
    r"|\[\^?(?:\\.|[^]\\])*]"
    r"|\(\?(?:<\w+>|<?[=!]|:)|(?:[*+?]|\{\d+(?:,\d*)?})\??|."
)
_CLASS_TOKEN = r"(?s)\\.|[&~|[]"
_REPEAT = r"(?:([*+?])|\{(\d+)(,?)(\d*)})\??"
_SIGNS = {"*": (0, None), "+": (1, None), "?": (0, 1)}
# The pieces that look at more than one character.
_LOOKS_AROUND = {r"\b", r"\B", "(?=", "(?!"}
# How `re` says what ECMA 262 says otherwise. (\d, \w and \b are ASCII by a flag.)
_SPACES = r"\t-\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_PYTHON = {
    "$": r"\Z",
    ".": r"[^\n\r\u2028\u2029]",
    "{": r"\{",
    r"\s": f"[{_SPACES}]",
    r"\S": f"[^{_SPACES}]",
    "[]": "(?!)",
    "[^]": r"[\s\S]",
    r"\p{L}": r"(?u:[^\W\d_])",
    r"\p{Letter}": r"(?u:[^\W\d_])",
    r"\p{Nd}": r"(?u:\d)",
}
# Within brackets; signs that `re` warns of get a backslash.
_PYTHON_IN_CLASS = {r"\s": _SPACES, "[": r"\[", "&": r"\&", "~": r"\~", "|": r"\|"}


###############################################################################
# 6. Checking #################################################################
###############################################################################
# A compiled schema against a value. Both may be hostile: every loop over what they are
# made of pays for its turns before, from the Allowance of this run. Why a value does
# not fit becomes text last, when it is known which failures count: a valid value costs
# little. How a schema is compiled is the next room's business.


class Allowance:
    """What one schema, or one value, may cost: MAX_STEPS, and the time that is left.

    A step is about a quarter of a microsecond. Who does what the other side can make
    large pays before, as exactly as this can be said with little work. For one thread.
    """

    def __init__(self, deadline: float = float("inf")) -> None:
        self._deadline = deadline
        self._left = MAX_STEPS
        # The clock is looked at when fewer are left.
        self._next_look = MAX_STEPS - LOOK_STEPS

    def spend(self, steps: int) -> None:
        """Pay for work. Raises OverflowError when it is too much, and Timeout when the
        deadline (of time.monotonic) has passed."""
        self._left -= steps
        if self._left < self._next_look:
            self._look()

    def _look(self) -> None:
        if self._left < 0:
            raise OverflowError("too much work for the schema")
        if time.monotonic() > self._deadline:
            raise Timeout("no time was left to check what came")
        self._next_look = max(self._left - LOOK_STEPS, 0)


# Why a value does not fit. `path` is where: a linked pair (path of the outer value, key
# in it), or None for the value given to validate. `expected` goes on after the word
# "expected", or is a function of path and value that makes the whole text.
_Failure = namedtuple("_Failure", "path expected value")

# A compiled subschema. `rows` maps each Python type that fits to the rows of work for a
# value of that type, often none; other values fail as `expected` says. `steps` is the
# price of a check, `uri` the document that the subschema belongs to; `tracks`: it asks
# which members of the value other keywords have evaluated.
_Subschema = namedtuple(
    "_Subschema", "expected rows steps uri tracks", defaults=(1, "", False)
)

# The work of one keyword, or of several that work together: see _Keyword.
_Row = namedtuple("_Row", "role apply argument expects")

# The role of a keyword is what its function, apply(run, value, argument), gives:
#     asserts     whether the value is as `expects` says
#     leads       triples (key, item, subschema): that member of the value must fit, or
#                 if `key` is None, the value itself
#     evaluates   such triples of members, which count as evaluated from then on: what
#                 is left is for unevaluatedProperties and unevaluatedItems
#     judges      failures, one after the other
#     serves      it has no function: other keywords, or _Compiler, use the argument
_ASSERTS = "asserts"
_LEADS = "leads"
_EVALUATES = "evaluates"
_JUDGES = "judges"
_SERVES = "serves"


class _Run:
    """One validation: `check` goes down through the value and the subschemas.

    The methods after `distance` are for the table _KEYWORDS, which has the work of one
    line itself. Each gets a value of the type that its keyword concerns, and the
    compiled argument. The role says what comes back.
    """

    def __init__(self, dynamic: Any, allowance: Allowance) -> None:
        # (URI, dynamic anchor) -> _Subschema
        self.dynamic: dict[tuple[str, str | None], _Subschema] = dynamic
        # Pay for work. All that schema or value can make large is paid for.
        self.spend = allowance.spend
        # Where the value at hand is, as in _Failure.
        self.path: Any = None
        # The URIs of the documents entered, the outermost first. A dict, as it compares
        # hashes: URIs may be long.
        self.scope: dict[str, None] = {}
        # The keys of the members of the value at hand that were evaluated so far, or
        # None if no subschema asks for them. Those that the subschema at hand has
        # evaluated begin at `start`.
        self.evaluated: list[Any] | None = None
        self.start = 0

    def check(self, subschema: _Subschema, value: object) -> list[_Failure]:
        """Why a value does not fit: empty if it does. Runs for each part of a value."""
        expected, rows_by_type, steps, uri, tracks = subschema
        rows = rows_by_type.get(type(value))
        if rows is None:
            rows = rows_by_type.get(json_type(value))
        if rows is None:
            self.spend(steps)
            return [_Failure(self.path, expected, value)]
        if not rows:
            return []

        self.spend(steps)
        failures: list[_Failure] = []
        path = self.path
        scope = self.scope
        outer = self.evaluated
        if tracks and outer is None:
            self.evaluated = []
        start = len(self.evaluated or ())
        if uri not in scope:
            self.spend(len(scope))
            self.scope = {**scope, uri: None}
        for role, apply, argument, expects in rows:
            if tracks:
                self.start = start
            if role is _ASSERTS:
                if not apply(self, value, argument):
                    failures.append(_Failure(path, expects, value))
            elif role is _JUDGES:
                failures += itertools.islice(apply(self, value, argument), MAX_ERRORS)
            else:
                evaluates = role is _EVALUATES
                self._follow(apply(self, value, argument), evaluates, failures)
        self.scope = scope
        self.evaluated = outer
        return failures[:MAX_ERRORS]

    def _follow(
        self,
        triples: Iterable[Any],
        evaluates: bool,
        failures: list[_Failure],
    ) -> None:
        """Check the triples that a keyword leads to; it has paid a step for each."""
        path = self.path
        evaluated = self.evaluated
        for key, item, inner in triples:
            if key is not None:
                # Down to another value, of which nothing is evaluated yet.
                self.path = (path, key)
                self.evaluated = None
                if evaluates and evaluated is not None:
                    evaluated.append(key)
            failures += self.check(inner, item)
            self.path = path
            self.evaluated = evaluated
            if len(failures) >= MAX_ERRORS:
                break

    def attempt(self, subschema: _Subschema, value: object) -> list[_Failure]:
        """As check. If the value does not fit, what was evaluated does not count."""
        count = len(self.evaluated or ())
        failures = self.check(subschema, value)
        if failures:
            # They are kept until it is known which alternative is the nearest.
            self.spend(10 * len(failures))
            if self.evaluated:
                del self.evaluated[count:]
        return failures

    def nearest(self, attempts: list[list[_Failure]], value: object) -> list[_Failure]:
        """Why none of the alternatives fits, from the failures of each.

        In one line if each expects one thing here; else as the nearest one has it.
        """
        plain = [
            failures[0].expected
            for failures in attempts
            if len(failures) == 1 and failures[0].path is self.path
        ]
        if len(plain) == len(attempts) and all(isinstance(each, str) for each in plain):
            expected = " or ".join(dict.fromkeys(plain))
            return [_Failure(self.path, _cut(expected), value)]
        return min(attempts, key=self.distance)

    def distance(self, failures: list[_Failure]) -> tuple[bool, int]:
        """How far from fitting an alternative is, to compare.

        What fails only deeper down fits here, where others do not: in its type or tag.
        """
        fails_here = any(failure.path is self.path for failure in failures)
        return fails_here, len(failures)

    # References.
    def ref(self, value: object, reference: _Reference) -> list[Any]:
        return [(None, value, reference.subschema)]

    def dynamic_ref(self, value: object, reference: _Reference) -> list[Any]:
        # A dynamic anchor is that of the outermost document entered that has it.
        self.spend(len(self.scope))
        for uri in self.scope:
            subschema = self.dynamic.get((uri, reference.anchor))
            if subschema:
                return [(None, value, subschema)]
        return [(None, value, reference.subschema)]

    # Subschemas for the value itself.
    def any_of(self, value: object, subschemas: list[_Subschema]) -> list[_Failure]:
        attempts = []
        for subschema in subschemas:
            failures = self.attempt(subschema, value)
            if failures:
                attempts.append(failures)
            elif self.evaluated is None:
                return []
        # If it is asked what was evaluated, all are tried: each that fits adds to it.
        if len(attempts) < len(subschemas):
            return []
        return self.nearest(attempts, value)

    def one_of(self, value: object, subschemas: list[_Subschema]) -> list[_Failure]:
        attempts = [self.attempt(subschema, value) for subschema in subschemas]
        attempts = [failures for failures in attempts if failures]
        fitting = len(subschemas) - len(attempts)
        if fitting == 1:
            return []
        if fitting == 0:
            return self.nearest(attempts, value)
        return [_Failure(self.path, partial(_several_text, fitting), value)]

    def if_then_else(self, value: object, arguments: list[Any]) -> list[Any]:
        condition, then, otherwise = arguments
        branch = otherwise if self.attempt(condition, value) else then
        if branch is None:
            return []
        return [(None, value, branch)]

    # Numbers.
    def multiple_of(self, value: Any, step: tuple[int, int]) -> bool:
        if not abs(value) < float("inf"):
            return False
        numerator, denominator = _to_ratio(value)
        # value / step, without the greatest divisor, which would take long to find.
        dividend = numerator * step[1]
        divisor = denominator * step[0]
        self.spend(40 + (dividend.bit_length() * divisor.bit_length() >> 18))
        return dividend % divisor == 0

    # Arrays.
    def items(self, value: list[Any], arguments: list[Any]) -> Iterable[Any]:
        first, rest, additional = arguments
        if isinstance(rest, list):
            # Before 2020-12: an array in `items`, and `additionalItems` for the rest.
            first, rest = rest, additional
        self.spend(len(value))
        subschemas = iter(first or ())
        if rest is not None:
            subschemas = itertools.chain(subschemas, itertools.repeat(rest))
        return zip(itertools.count(), value, subschemas)

    def contains(self, value: list[Any], arguments: list[Any]) -> bool:
        subschema, least, most = arguments
        if least is None:
            least = 1
        self.spend(len(value))
        evaluated = self.evaluated
        fitting = 0
        for index, item in enumerate(value):
            self.evaluated = None
            if self.attempt(subschema, item):
                continue
            fitting += 1
            if evaluated is not None:
                evaluated.append(index)
            elif fitting >= least and most is None:
                break
        self.evaluated = evaluated
        return fitting >= least and (most is None or fitting <= most)

    def all_differ(self, value: list[Any], wanted: bool) -> bool:
        if not wanted:
            return True
        return len({equality_key(item, self.spend) for item in value}) == len(value)

    # Objects.
    def properties(self, value: Json, arguments: list[Any]) -> Iterator[Any]:
        named, patterns, additional = arguments
        named = named or {}
        self.spend(len(value))
        for name, item in value.items():
            known = name in named
            if known:
                yield name, item, named[name]
            for pattern, subschema in patterns or ():
                if pattern.search(name, self.spend):
                    known = True
                    yield name, item, subschema
            if not known and additional is not None:
                yield name, item, additional

    def property_names(self, value: Json, subschema: _Subschema) -> Iterator[Any]:
        self.spend(len(value))
        return ((name, name, subschema) for name in value)

    def required(self, value: Json, names: list[str]) -> Iterator[_Failure]:
        for name in names:
            if name not in value:
                yield _Failure((self.path, name), _missing_text, value)

    def depends(self, value: Json, rules: Json) -> Iterator[_Failure]:
        for name, rule in rules.items():
            if name not in value:
                continue
            if isinstance(rule, list):
                self.spend(len(rule))
                yield from self.required(value, rule)
            else:
                yield from self.check(rule, value)

    # What no other keyword of the subschema has evaluated.
    def unevaluated(self, value: Any, subschema: _Subschema) -> list[Any]:
        evaluated = self.evaluated or []
        self.spend(len(value) + len(evaluated))
        seen = set(evaluated[self.start :])
        members = value.items() if isinstance(value, dict) else enumerate(value)
        return [(key, item, subschema) for key, item in members if key not in seen]


# What the texts of errors are made of.
def _describe(failure: _Failure) -> str:
    """An error's text: `a.b[0]: expected ...`; without a path at the root."""
    path, expected, value = failure
    text: str
    if callable(expected):
        text = expected(path, value)
    else:
        text = f"expected {expected}, got {show(value)}"
    place = _encode_path(path)
    if place:
        text = f"{place}: {text}"
    return text


def _encode_path(path: Any) -> str:
    keys = []
    while path:
        path, key = path
        keys.append(key)
    place = ""
    for key in reversed(keys):
        if not isinstance(key, str):
            place += f"[{key}]"
            continue
        name = _encode_name(key)
        place += f".{name}" if place else name
        if len(place) > MAX_PLACE:
            break
    return _cut(place)


def _encode_name(name: str) -> str:
    """A member's name as texts have it: quoted if it is long, or not plain to see."""
    return name if 0 < len(name) < 200 and name.isprintable() else show(name)


def _cut(text: str) -> str:
    """The beginning of what got too long for a line."""
    return text if len(text) <= MAX_PLACE else text[: MAX_PLACE - 3] + "..."


def _nothing_text(path: object, value: object) -> str:
    return f"nothing is allowed here, got {show(value)}"


def _missing_text(path: object, value: object) -> str:
    return "required, but missing"


def _unknown_text(known: Iterable[str], path: Any, value: Any) -> str:
    return "unknown" + suggest(str(path[1]), known)


def _several_text(count: int, path: object, value: object) -> str:
    return f"matches {count} alternatives of `oneOf`, must match one"


def suggest(name: str, known: Iterable[str]) -> str:
    """How an error text goes on after an unknown name: the nearest known, or a few."""
    names = list(itertools.islice(known, MAX_SUGGESTED))
    best = max(names, key=partial(_likeness, name), default="")
    if best and _likeness(name, best) >= 0.5:
        return f"; did you mean {_encode_name(best)}?"
    if 0 < len(names) <= 12:
        return f"; known: {', '.join(map(_encode_name, names))}"
    return ""


def _likeness(name: str, other: str) -> float:
    """How alike two names are, from 0 to 1: what they share of letters and pairs.

    It takes time that grows with their lengths alone: `difflib` would take its square.
    """
    if max(len(name), len(other)) > 60:
        return 0.0
    left = _letters_and_pairs(name)
    right = _letters_and_pairs(other)
    return 2 * sum((left & right).values()) / (sum(left.values()) + sum(right.values()))


def _letters_and_pairs(name: str) -> Counter[str]:
    letters = name.lower()
    pairs = zip(f" {letters}", f"{letters} ")
    return Counter([*letters, *map("".join, pairs)])


# Types, and values that are equal.
_EVERY = (dict, list, str, bool, int, float, type(None), object)
_TYPES: dict[str, Any] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "null": (type(None),),
    "any": _EVERY,
}


def json_type(value: object) -> Any:
    """Which of _EVERY a value counts as: int for a whole float, bool for a bool."""
    if isinstance(value, float) and value.is_integer():
        return int
    if type(value) in _EVERY:
        return type(value)
    return next(kind for kind in _EVERY if isinstance(value, kind))


def equality_key(value: object, spend: Spend = lambda steps: None) -> str:
    """What equal values share: 1 and 1.0, but not 1 and true.

    It is text, as nobody can foresee its hash and choose values that collide.
    """
    parts: list[str] = []
    _add_key(value, parts, spend)
    return "".join(parts)


def _add_key(value: Any, parts: list[str], spend: Spend) -> None:
    """Add the parts of a value's equality key, the length of each text in front."""
    if isinstance(value, str):
        spend(6 + (len(value) >> 8))
        parts += (f"{len(value)}:", value)
    elif isinstance(value, dict):
        spend(6 + 4 * len(value))
        parts.append("{")
        for name in sorted(value, key=repr):
            _add_key(name, parts, spend)
            _add_key(value[name], parts, spend)
        parts.append("}")
    elif isinstance(value, list):
        spend(6)
        parts.append("[")
        for item in value:
            _add_key(item, parts, spend)
        parts.append("]")
    elif isinstance(value, (int, float)) and json_type(value) is int:
        spend(6)
        parts.append(hex(int(value)) + ",")
    else:
        spend(6)
        parts.append(f"{value!r},")


def _to_ratio(number: float) -> tuple[int, int]:
    """Numerator and denominator, of the text: in decimal, 0.3 is a multiple of 0.1."""
    if isinstance(number, int):
        return number, 1
    from fractions import Fraction

    exact = Fraction(repr(number))
    return exact.numerator, exact.denominator


###############################################################################
# 7. JSON Schema ##############################################################
###############################################################################
# JSON Schema 2020-12, and the two drafts before it when `$schema` names one; nothing is
# fetched, and `format` is ignored. A schema is compiled once, and pays for it like a
# value that is checked:
#
#     schema --_Compiler--> _Subschema, _Rows --_Run--> _Failures --_describe--> texts
#
# The table _KEYWORDS says for each keyword what its argument is and what it does.


def validate(value: object, schema: object) -> list[str]:
    """What is wrong with a value by a JSON Schema (2020-12): one line for each error.

    A line looks like `days: expected integer, got "x"`; a valid value gives []. Raises
    ValueError for a wrong schema. Nothing is fetched: a `$ref` must lead to somewhere
    inside the schema. `$schema` may name draft 2019-09 or draft-07 instead. `format` is
    ignored. What takes more than half a second is given up: a schema is wrong then, and
    for a value the line is `too much work for the schema`. Safe from any thread.
    """
    return Schema(schema).errors(value)


class Schema:
    """A compiled schema. Immutable, safe from any thread.

    Raises ValueError, with the place and the reason, when it cannot be used, and
    Timeout when `deadline` (of time.monotonic) passes.
    """

    def __init__(self, schema: Any, deadline: float = float("inf")) -> None:
        try:
            compiler = _Compiler(schema, Allowance(deadline))
            self.root = compiler.compile_document()
        except RecursionError:
            raise ValueError("schema: nested too deeply") from None
        except (OverflowError, ValueError) as error:
            raise ValueError(f"schema: {error}") from None
        # (URI, dynamic anchor) -> _Subschema
        self.dynamic = compiler.dynamic

        # A shortcut, to the same result: most arguments are objects of scalars, and if
        # the schema asks for names and types alone, a look at them will do. It takes a
        # seventh of the time. If the schema asks for more, `_required` is None.
        self._required: set[str] | None = None
        # name -> the types whose values fit, whatever they are
        self._fitting: dict[str, list[Any]] = {}
        is_plain = isinstance(schema, dict) and schema.keys() <= _PLAIN_KEYWORDS
        if is_plain and dict in self.root.rows:
            self._required = set(schema.get("required", ()))
            for name, property_schema in schema.get("properties", {}).items():
                rows_by_type = compiler.compile(property_schema, "").rows
                fitting = [kind for kind, rows in rows_by_type.items() if not rows]
                self._fitting[name] = fitting

    def fits(self, value: object) -> bool:
        """Whether a value is seen to be valid at a glance, at next to no cost."""
        required = self._required
        if required is None or type(value) is not dict:
            return False
        fitting = self._fitting
        for name in value:
            # It is unknown, or of a type that needs a closer look.
            if type(value[name]) not in fitting.get(name, ()):
                return False
        return required <= value.keys()

    def errors(self, value: object, allowance: Allowance | None = None) -> list[str]:
        """What is wrong with a value: at most MAX_ERRORS texts, none if it is valid.

        A value that takes more than the allowance, MAX_STEPS if none is given, is not
        valid. Raises Timeout when the deadline of the allowance passes.
        """
        if self.fits(value):
            return []
        try:
            run = _Run(self.dynamic, allowance or Allowance())
            failures = run.check(self.root, value)
            return [_describe(failure) for failure in failures]
        except RecursionError:
            return ["nested too deeply for the schema"]
        except (OverflowError, ValueError) as error:
            # The allowance is used up, or a number is beyond what Python converts.
            return [str(error)]


class _Compiler:
    """Makes the subschemas of one document, and of what its references lead to."""

    def __init__(self, schema: object, allowance: Allowance) -> None:
        self.spend = allowance.spend
        self.memory = PatternMemory()
        self._allowance = allowance
        self._draft = _find_draft(schema)
        self._keywords = _keywords_of(self._draft)
        # (URI, dynamic anchor) -> _Subschema
        self.dynamic: dict[tuple[str, str | None], _Subschema] = {}
        # (URI, anchor, or "" for all of the document) -> schema
        self._named: dict[tuple[str, str], Any] = {("", ""): schema}
        for uri, draft in _DRAFTS.items():
            self._named[uri, ""] = _metaschema_rules(draft)
        # id(schema) -> _Subschema
        self._compiled = {id(True): _ANYTHING, id(False): _NOTHING}
        self._references: list[_Reference] = []

    def compile_document(self) -> _Subschema:
        root, _ = self._find("#", "")
        # Now all is named. What a reference leads to may stand where no schema is
        # expected, be compiled only now, and bring more references: the list grows.
        for reference in self._references:
            reference.subschema, reference.anchor = self._find(
                reference.text, reference.base
            )
        return root

    def _find(self, text: str, base: str) -> tuple[_Subschema, str | None]:
        """What a reference leads to, and its dynamic anchor if it is named by one."""
        self.spend(40 + len(text) + len(base) // 4)
        try:
            uri, anchor, pointer = _parse_reference(text, base)
            schema = self._named[uri, anchor]
            for step in pointer:
                is_list = isinstance(schema, list)
                # RFC 6901: no sign, no zeros in front; and none takes long to convert.
                if is_list and not re.fullmatch("0|[1-9][0-9]{0,8}", step):
                    raise LookupError(step)
                schema = schema[int(step) if is_list else step]
        except (LookupError, TypeError, ValueError):
            raise ValueError(
                f"$ref {show(text)} is not in this document, and nothing is fetched"
            ) from None

        # The root, and what stands where no schema is expected, must be a schema.
        if id(schema) not in self._compiled:
            self._check_rules(schema)
        subschema = self.compile(schema, uri)
        if self.dynamic.get((uri, anchor)) is subschema:
            return subschema, anchor
        return subschema, None

    def _check_rules(self, schema: object) -> None:
        """Raise ValueError for what is no schema."""
        # The rules themselves are schemas.
        if any(schema is _metaschema_rules(draft) for draft in _DRAFTS.values()):
            return
        errors = _metaschema(self._draft).errors(schema, self._allowance)
        if errors:
            raise ValueError(errors[0])

    def compile(self, schema: Any, base: str) -> _Subschema:
        """The subschema of a schema in the document whose URI is `base`."""
        if id(schema) in self._compiled:
            return self._compiled[id(schema)]
        self.spend(40)
        keywords = self._keywords
        if "$ref" in schema and self._draft == DRAFT_7:
            # "All other properties in a "$ref" object MUST be ignored."
            keywords = _BESIDE_REF
        else:
            base = self._name(schema, base)

        # The arguments of keywords, compiled.
        parts: Json = {}
        for name, keyword in keywords.items():
            if name not in schema:
                continue
            argument = schema[name]
            if argument is False and keyword.concerns == "object":
                # Nothing is allowed, but the text can name what is.
                unknown = partial(_unknown_text, schema.get("properties", ()))
                parts[name] = _Subschema(unknown, {})
            elif keyword.argument.compile:
                parts[name] = keyword.argument.compile(self, argument, base)
            else:
                parts[name] = argument

        subschema = self._assemble(schema, parts, base)
        self._compiled[id(schema)] = subschema
        if "$dynamicAnchor" in parts:
            self.dynamic[base, schema["$dynamicAnchor"]] = subschema
        return subschema

    def _name(self, schema: Json, base: str) -> str:
        """Remember how references name a schema. The URI that those in it are from."""
        if _find_draft(schema, self._draft) != self._draft:
            raise ValueError("$schema: another one than that of the whole document")
        if "$id" in schema:
            self.spend(len(schema["$id"]) + len(base) // 4)
            base, anchor, _ = _parse_reference(schema["$id"], base)
            if anchor and self._draft != DRAFT_7:
                raise ValueError(
                    f"$id {show(schema['$id'])}: only draft-07 has anchors"
                )
            self._named[base, anchor] = schema
        for name in ("$anchor", "$dynamicAnchor"):
            if name in schema and name in self._keywords:
                self._named[base, schema[name]] = schema
        return base

    def _assemble(self, schema: Json, parts: Json, base: str) -> _Subschema:
        """The subschema of these compiled parts."""
        # keyword, or keywords that work together -> (types concerned, row)
        rows: dict[Any, tuple[Any, _Row]] = {}
        for name, part in parts.items():
            keyword = _KEYWORDS[name]
            if keyword.role is _SERVES:
                continue
            if keyword.together:
                part = [parts.get(each) for each in keyword.together]
            expects = keyword.expects
            if expects:
                expects = expects.format(show(schema[name], 300))
            row = _Row(keyword.role, keyword.apply, part, expects)
            rows[keyword.together or name] = (_TYPES[keyword.concerns], row)

        names = parts.get("type", ())
        if isinstance(names, str):
            names = [names]
        fitting = [kind for name in names for kind in _TYPES[name]]
        # A value makes the work of those rows that concern its type.
        rows_by_type: dict[Any, list[_Row]] = {kind: [] for kind in fitting or _EVERY}
        for types, row in rows.values():
            for kind in types:
                if kind in rows_by_type:
                    rows_by_type[kind].append(row)

        expected = " or ".join(names)
        steps = 6
        for argument in schema.values():
            if isinstance(argument, (dict, list)):
                steps += len(argument)
        tracks = not _UNEVALUATED.isdisjoint(parts)
        return _Subschema(expected, rows_by_type, steps, base, tracks)

    # How arguments are compiled, as _Argument asks for it.
    def compile_each(self, schemas: list[Any], base: str) -> list[_Subschema]:
        return [self.compile(schema, base) for schema in schemas]

    def compile_one_or_each(self, schemas: object, base: str) -> Any:
        if isinstance(schemas, list):
            return self.compile_each(schemas, base)
        return self.compile(schemas, base)

    def compile_named(self, schemas: Json, base: str) -> Json:
        """By name: a subschema; or, of `dependencies`, the names that it depends on."""
        self.spend(len(schemas))
        return {
            name: each if isinstance(each, list) else self.compile(each, base)
            for name, each in schemas.items()
        }

    def compile_patterns(self, schemas: Json, base: str) -> list[Any]:
        return [
            (Pattern(pattern, self.spend, self.memory), self.compile(schema, base))
            for pattern, schema in schemas.items()
        ]

    def compile_reference(self, text: str, base: str) -> _Reference:
        reference = _Reference(text, base)
        self._references.append(reference)
        return reference


class _Reference:
    """A `$ref`. Where it leads to is known when everything else has been compiled."""

    subschema: _Subschema
    # The dynamic anchor that it names, if it names one.
    anchor: str | None

    def __init__(self, text: str, base: str) -> None:
        self.text = text
        self.base = base


def _parse_reference(text: str, base: str) -> tuple[str, str, list[str]]:
    """A reference's URI, its anchor or "", and the steps of its JSON pointer."""
    uri, _, fragment = text.partition("#")
    if uri or "%" in fragment:
        from urllib.parse import unquote, urljoin

        base = urljoin(base, uri)
        fragment = unquote(fragment, errors="strict")
    anchor, *pointer = fragment.split("/")
    pointer = [step.replace("~1", "/").replace("~0", "~") for step in pointer]
    return base, anchor, pointer


_ANYTHING = _Subschema("", dict.fromkeys(_EVERY, ()))
_NOTHING = _Subschema(_nothing_text, {})

# What the argument of a keyword is: the rule for it, which is a schema, and how it is
# compiled: compile(compiler, argument, uri); None takes it as it is.
_Argument = namedtuple("_Argument", "rule compile", defaults=(None,))
_TEXT = {"type": "string"}
_NUMBER = {"type": "number"}
_A_TEXT = _Argument(_TEXT)
_A_NUMBER = _Argument(_NUMBER)
_A_STEP = _Argument(
    {"type": "number", "exclusiveMinimum": 0}, lambda _, step, uri: _to_ratio(step)
)
_A_COUNT = _Argument({"type": "integer", "minimum": 0})
_A_FLAG = _Argument({"type": "boolean"})
_A_PATTERN = _Argument(
    _TEXT,
    lambda compiler, pattern, uri: Pattern(pattern, compiler.spend, compiler.memory),
)
_A_REFERENCE = _Argument(_TEXT, _Compiler.compile_reference)
_A_CONSTANT = _Argument(
    {}, lambda compiler, value, uri: equality_key(value, compiler.spend)
)
_CONSTANTS = _Argument(
    {"type": "array"},
    lambda compiler, values, uri: {
        equality_key(each, compiler.spend) for each in values
    },
)
_NAMES = _Argument({"type": "array", "items": _TEXT})
_NAMES_BY_NAME = _Argument({"type": "object", "additionalProperties": _NAMES.rule})
_TYPE_NAME = {"enum": [name for name in _TYPES if name != "any"]}
_TYPE_OR_TYPES = _Argument(
    {"anyOf": [_TYPE_NAME, {"type": "array", "minItems": 1, "items": _TYPE_NAME}]}
)
# One subschema, or several.
_ONE = _Argument({"$ref": "#"}, _Compiler.compile)
_EACH = _Argument({"type": "array", "items": _ONE.rule}, _Compiler.compile_each)
_ONE_OR_EACH = _Argument(
    {"if": {"type": "array"}, "then": _EACH.rule, "else": _ONE.rule},
    _Compiler.compile_one_or_each,
)
_BY_NAME = _Argument(
    {"type": "object", "additionalProperties": _ONE.rule}, _Compiler.compile_named
)
_BY_PATTERN = _Argument(_BY_NAME.rule, _Compiler.compile_patterns)
_ONE_OR_NAMES = {**_ONE_OR_EACH.rule, "then": _NAMES.rule}
_DEPENDENCIES = _Argument(
    {"type": "object", "additionalProperties": _ONE_OR_NAMES},
    _Compiler.compile_named,
)

# The drafts, in order, and the URIs by which `$schema` names them.
DRAFT_7 = 7
DRAFT_2019 = 2019
DRAFT_2020 = 2020
_DRAFTS = {
    f"{scheme}://json-schema.org/{path}/schema": draft
    for scheme in ("https", "http")
    for path, draft in (
        ("draft/2020-12", DRAFT_2020),
        ("draft/2019-09", DRAFT_2019),
        ("draft-07", DRAFT_7),
    )
}

# A keyword: what its `argument` is, an _Argument; its `role`; which type of value it
# `concerns`; the function that does its work, apply(run, value, argument); what it
# `expects` if it asserts something, with the argument for {}. Keywords that work
# `together` make one row; its argument is a list of theirs, None where one is absent.
# Drafts before `since` and after `until` do not have it.
_Keyword = namedtuple(
    "_Keyword",
    "argument role concerns apply expects together since until",
    defaults=(_SERVES, "any", None, "", (), DRAFT_7, DRAFT_2020),
)


def _asserts(
    expects: str,
    argument: _Argument,
    concerns: str,
    apply: Callable[[_Run, Any, Any], bool],
    together: tuple[str, ...] = (),
) -> _Keyword:
    """A keyword whose function says whether the value is as `expects` says."""
    return _Keyword(argument, _ASSERTS, concerns, apply, expects, together)


_ITEMS = ("prefixItems", "items", "additionalItems")
_CONTAINS = ("contains", "minContains", "maxContains")
_PROPERTIES = ("properties", "patternProperties", "additionalProperties")
_BRANCHES = ("if", "then", "else")

# In the order in which errors are told.
_KEYWORDS: dict[str, _Keyword] = {
    "$ref": _Keyword(_A_REFERENCE, _LEADS, "any", _Run.ref),
    "$recursiveRef": _Keyword(
        _A_REFERENCE,
        _LEADS,
        "any",
        _Run.ref,
        since=DRAFT_2019,
        until=DRAFT_2019,
    ),
    "$dynamicRef": _Keyword(
        _A_REFERENCE, _LEADS, "any", _Run.dynamic_ref, since=DRAFT_2020
    ),
    # Any value, numbers and texts.
    "enum": _asserts(
        "one of {}",
        _CONSTANTS,
        "any",
        lambda run, value, keys: equality_key(value, run.spend) in keys,
    ),
    "const": _asserts(
        "{}",
        _A_CONSTANT,
        "any",
        lambda run, value, key: equality_key(value, run.spend) == key,
    ),
    "minimum": _asserts(
        "at least {}", _A_NUMBER, "number", lambda _, value, limit: value >= limit
    ),
    "maximum": _asserts(
        "at most {}", _A_NUMBER, "number", lambda _, value, limit: value <= limit
    ),
    "exclusiveMinimum": _asserts(
        "more than {}", _A_NUMBER, "number", lambda _, value, limit: value > limit
    ),
    "exclusiveMaximum": _asserts(
        "less than {}", _A_NUMBER, "number", lambda _, value, limit: value < limit
    ),
    "multipleOf": _asserts("a multiple of {}", _A_STEP, "number", _Run.multiple_of),
    "minLength": _asserts(
        "at least {} characters", _A_COUNT, "string", lambda _, text, n: len(text) >= n
    ),
    "maxLength": _asserts(
        "at most {} characters", _A_COUNT, "string", lambda _, text, n: len(text) <= n
    ),
    "pattern": _asserts(
        "text that matches {}",
        _A_PATTERN,
        "string",
        lambda run, text, pattern: pattern.search(text, run.spend),
    ),
    # Arrays.
    "minItems": _asserts(
        "at least {} items", _A_COUNT, "array", lambda _, array, n: len(array) >= n
    ),
    "maxItems": _asserts(
        "at most {} items", _A_COUNT, "array", lambda _, array, n: len(array) <= n
    ),
    "uniqueItems": _asserts("items that all differ", _A_FLAG, "array", _Run.all_differ),
    "prefixItems": _Keyword(
        _EACH, _EVALUATES, "array", _Run.items, together=_ITEMS, since=DRAFT_2020
    ),
    # _keywords_of has it as it was before.
    "items": _Keyword(_ONE, _EVALUATES, "array", _Run.items, together=_ITEMS),
    "contains": _asserts(
        "items that match {}, in the number allowed",
        _ONE,
        "array",
        _Run.contains,
        together=_CONTAINS,
    ),
    # Objects.
    "minProperties": _asserts(
        "at least {} members", _A_COUNT, "object", lambda _, value, n: len(value) >= n
    ),
    "maxProperties": _asserts(
        "at most {} members", _A_COUNT, "object", lambda _, value, n: len(value) <= n
    ),
    "additionalProperties": _Keyword(
        _ONE, _EVALUATES, "object", _Run.properties, together=_PROPERTIES
    ),
    "patternProperties": _Keyword(
        _BY_PATTERN, _EVALUATES, "object", _Run.properties, together=_PROPERTIES
    ),
    "properties": _Keyword(
        _BY_NAME, _EVALUATES, "object", _Run.properties, together=_PROPERTIES
    ),
    "propertyNames": _Keyword(_ONE, _LEADS, "object", _Run.property_names),
    "required": _Keyword(_NAMES, _JUDGES, "object", _Run.required),
    "dependentRequired": _Keyword(
        _NAMES_BY_NAME, _JUDGES, "object", _Run.depends, since=DRAFT_2019
    ),
    "dependentSchemas": _Keyword(
        _BY_NAME, _JUDGES, "object", _Run.depends, since=DRAFT_2019
    ),
    "dependencies": _Keyword(
        _DEPENDENCIES, _JUDGES, "object", _Run.depends, until=DRAFT_7
    ),
    # The value itself.
    "allOf": _Keyword(
        _EACH,
        _LEADS,
        "any",
        lambda _, value, subschemas: [(None, value, each) for each in subschemas],
    ),
    "anyOf": _Keyword(_EACH, _JUDGES, "any", _Run.any_of),
    "oneOf": _Keyword(_EACH, _JUDGES, "any", _Run.one_of),
    "not": _asserts(
        "anything but what matches {}",
        _ONE,
        "any",
        lambda run, value, subschema: bool(run.attempt(subschema, value)),
    ),
    "if": _Keyword(_ONE, _LEADS, "any", _Run.if_then_else, together=_BRANCHES),
    # After all that may evaluate members.
    "unevaluatedProperties": _Keyword(
        _ONE, _EVALUATES, "object", _Run.unevaluated, since=DRAFT_2019
    ),
    "unevaluatedItems": _Keyword(
        _ONE, _EVALUATES, "array", _Run.unevaluated, since=DRAFT_2019
    ),
    # What other keywords, or the compiler, make use of.
    "$anchor": _Keyword(_A_TEXT, since=DRAFT_2019),
    "$dynamicAnchor": _Keyword(_A_TEXT, since=DRAFT_2020),
    "$id": _Keyword(_A_TEXT),
    "$defs": _Keyword(_BY_NAME, since=DRAFT_2019),
    "definitions": _Keyword(_BY_NAME),
    "additionalItems": _Keyword(_ONE, until=DRAFT_2019),
    "else": _Keyword(_ONE),
    "then": _Keyword(_ONE),
    "maxContains": _Keyword(_A_COUNT, since=DRAFT_2019),
    "minContains": _Keyword(_A_COUNT, since=DRAFT_2019),
    "type": _Keyword(_TYPE_OR_TYPES),
    "$schema": _Keyword(_A_TEXT),
}
_UNEVALUATED = {"unevaluatedProperties", "unevaluatedItems"}
# Of draft-07, what counts beside a `$ref`: names for others to refer to.
_BESIDE_REF = {name: _KEYWORDS[name] for name in ("$ref", "definitions")}
# What a schema may have if a look at names and types is to do: see Schema.
_PLAIN_KEYWORDS = {"type", "properties", "required", "additionalProperties"}


@lru_cache(maxsize=None)
def _keywords_of(draft: int) -> dict[str, _Keyword]:
    """The rows of the table that a draft has."""
    keywords = dict(_KEYWORDS)
    if draft < DRAFT_2020:
        keywords["items"] = _KEYWORDS["items"]._replace(argument=_ONE_OR_EACH)
    return {
        name: keyword
        for name, keyword in keywords.items()
        if keyword.since <= draft <= keyword.until
    }


def _find_draft(schema: object, default: int = DRAFT_2020) -> int:
    """The draft that `$schema` names. Raises ValueError for one that is not known.

    "They MUST handle unsupported dialects gracefully by returning an appropriate error
    indicating the dialect is not supported": basic/index.md#json-schema-usage.
    """
    if not isinstance(schema, dict) or "$schema" not in schema:
        return default
    uri = schema["$schema"]
    draft = _DRAFTS.get(uri.rstrip("#")) if isinstance(uri, str) else None
    if draft is None:
        raise ValueError(
            f"$schema: the dialect {show(uri)} is not supported; "
            f"expected one of {', '.join([*_DRAFTS][:3])}"
        )
    return draft


# The schema of schemas: what the table says about arguments.
@lru_cache(maxsize=None)
def _metaschema_rules(draft: int) -> Json:
    keywords = _keywords_of(draft)
    rules = {name: keyword.argument.rule for name, keyword in keywords.items()}
    return {"type": ["object", "boolean"], "properties": rules}


@lru_cache(maxsize=None)
def _metaschema(draft: int) -> Schema:
    return Schema(_metaschema_rules(draft))


# For those who look for something in a schema
def inner_schemas(schema: Json) -> Iterator[tuple[str, str | None, Any]]:
    """The schemas right inside of one, in any draft: (keyword, name, schema).

    The name is that of a member, or a pattern, or None where the keyword has no names.
    """
    for keyword, argument in schema.items():
        if keyword in _HOLD_BY_NAME and isinstance(argument, dict):
            for name, inner in argument.items():
                yield keyword, name, inner
        elif keyword in _HOLD and isinstance(argument, list):
            for inner in argument:
                yield keyword, None, inner
        elif keyword in _HOLD:
            yield keyword, None, argument


# The keywords with one schema, or a list of them; and those with schemas by name.
_HOLD = {
    name
    for name, keyword in _KEYWORDS.items()
    if keyword.argument in (_ONE, _EACH, _ONE_OR_EACH)
}
_HOLD_BY_NAME = {
    name
    for name, keyword in _KEYWORDS.items()
    if keyword.argument in (_BY_NAME, _BY_PATTERN, _DEPENDENCIES)
}


###############################################################################
# 8. Content ##################################################################
###############################################################################
# What tools, prompts and resources give, in the form of the wire. First Python values
# as JSON, and back. Then blocks, which results, messages and contents are made of:
# text, images, audio, embedded resources and links (server/tools.md#tool-result). Last,
# two tables of the members and blocks that came later, with what a revision gets that
# does not know them. Functions and type hints are the next room's business.


def _base64(data: bytes) -> str:
    import binascii

    return binascii.b2a_base64(data, newline=False).decode("ascii")


def _parse_base64(text: str) -> bytes:
    """The bytes again. Raises ValueError for what is none."""
    import base64

    return base64.b64decode(text, validate=True)


# Python values as JSON, and back
def to_plain(value: Any) -> Any:
    """A Python value as JSON has it, the way its hint's schema says.

    Raises TypeError for a value, at any depth, that has no form in JSON.
    """
    if value is None or type(value) in (str, int, float, bool):
        return value
    if hasattr(type(value), "__members__"):  # an Enum's
        return to_plain(value.value)
    if hasattr(value, "_asdict"):  # a NamedTuple
        return to_plain(value._asdict())
    if isinstance(value, dict):
        return {str(to_plain(key)): to_plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(each) for each in value]
    if isinstance(value, (set, frozenset)):
        return sorted(map(to_plain, value), key=encode_json)
    if hasattr(type(value), "__dataclass_fields__"):
        from dataclasses import fields

        names = [field.name for field in fields(value)]
        return {name: to_plain(getattr(value, name)) for name in names}
    if isinstance(value, (str, int, float)):
        return value
    for base in type(value).__mro__:
        row = SCALARS.get(class_name(base))
        if row is not None and row.encode is not None:
            return row.encode(value)
    raise TypeError(f"a value of class {type(value).__name__} has no JSON form")


def class_name(cls: type) -> str:
    """A class as the tables call it: "int", "Mapping", "datetime.date", "pathlib.Path".

    Its name will do: who has a class of these has imported its module, which we would
    have to, at some cost, to compare the classes themselves.
    """
    root = cls.__module__.partition(".")[0]
    if root in ("builtins", "collections", "typing", "typing_extensions"):
        return cls.__qualname__
    return f"{root}.{cls.__qualname__}"


# What a conversion may raise for a value that the schema has let pass.
REFUSALS = (ValueError, TypeError, ArithmeticError)


def _parse_iso(cls: Any, wire: str) -> Any:
    """A date, a time, or both. Before 3.11, fromisoformat does not know Z."""
    return cls.fromisoformat(re.sub("[zZ]$", "+00:00", wire))


# P, days, T, hours, minutes, seconds: each may be left out, but not all of them.
_DURATION = (
    r"^P(?=.)(?:(\d+)D)?(?:T(?=.)(?:(\d+)H)?(?:(\d+)M)?(?:(-?\d+(?:\.\d+)?)S)?)?\Z"
)


def _parse_duration(cls: Any, wire: str) -> Any:
    """A timedelta. Months and years are of no known length: those are refused."""
    [(days, hours, minutes, seconds)] = re.findall(_DURATION, wire)
    return cls(
        days=float(days or 0),
        hours=float(hours or 0),
        minutes=float(minutes or 0),
        seconds=float(seconds or 0),
    )


def _encode_duration(value: Any) -> str:
    seconds = f"{value.total_seconds():f}".rstrip("0").rstrip(".")
    return f"PT{seconds}S"


# The classes whose values are no containers: the schema; what an error text calls a
# value of it, "" where a value is taken as it comes; and both ways: parse(class, wire),
# None where calling the class does it, and encode(value), None where a value is JSON as
# it is. Text keeps a Decimal's digits.
_Scalar = namedtuple(
    "_Scalar", "schema expected parse encode", defaults=("", None, None)
)


def _iso_scalar(form: str, expected: str) -> Any:
    schema = {"type": "string", "format": form}
    return _Scalar(schema, expected, _parse_iso, lambda value: value.isoformat())


SCALARS = {
    **dict.fromkeys(("object", "Any", "a TypeVar"), _Scalar({})),
    **dict.fromkeys(("NoneType", "a NoneType"), _Scalar({"type": "null"})),
    "str": _Scalar({"type": "string"}),
    "bool": _Scalar({"type": "boolean"}),
    "int": _Scalar({"type": "integer"}, "integer"),
    "float": _Scalar({"type": "number"}, "number"),
    "bytes": _Scalar(
        {"type": "string", "contentEncoding": "base64"},
        "base64",
        lambda cls, wire: _parse_base64(wire),
        _base64,
    ),
    "datetime.date": _iso_scalar("date", "an ISO 8601 date"),
    "datetime.time": _iso_scalar("time", "an ISO 8601 time"),
    "datetime.datetime": _iso_scalar("date-time", "an ISO 8601 date and time"),
    "datetime.timedelta": _Scalar(
        {"type": "string", "format": "duration"},
        "an ISO 8601 duration like PT1H30M",
        _parse_duration,
        _encode_duration,
    ),
    "uuid.UUID": _Scalar({"type": "string", "format": "uuid"}, "a UUID", None, str),
    **dict.fromkeys(
        ("pathlib.Path", "pathlib.PurePath"),
        _Scalar({"type": "string"}, "a path", None, str),
    ),
    # Written out, 1E+999999999 would fill the memory.
    "decimal.Decimal": _Scalar(
        {"type": "string", "pattern": r"^-?\d+(\.\d+)?(E[+-]?\d{1,4})?$"},
        "a number",
        None,
        str,
    ),
}


# URIs and `_meta`, checked where they are given: what is wrong shows there, not at a
# peer
_URI_TEXT = r"(?:[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=]|%[0-9A-Fa-f]{2})*"
_URI_SYNTAX = r"([A-Za-z][A-Za-z0-9+.\-]*):" + _URI_TEXT


def check_uri(where: str, uri: object, *schemes: str) -> str:
    """The URI, as RFC 3986 has it; of one of these schemes, if there are any.

    Raises TypeError for what is no text, ValueError for what is no such URI.
    """
    if not isinstance(uri, str):
        raise TypeError(f"{where}: expected a URI, got {show(uri)}")
    syntax = re.fullmatch(_URI_SYNTAX, uri)
    if syntax is None:
        raise ValueError(
            f"{where}: expected a URI with a scheme, such as config://app, other "
            f"characters percent-encoded; got {show(uri)}"
        )
    scheme = syntax[1].lower()
    has_host = re.match("https?://[^/?#]", uri, re.IGNORECASE)
    if (schemes and scheme not in schemes) or (scheme[:4] == "http" and not has_host):
        wanted = ", ".join(schemes) or scheme
        raise ValueError(f"{where}: expected a URL ({wanted}), got {show(uri)}")
    return uri


def check_file_uri(where: str, uri: object) -> str:
    """A file:// URI without "." and ".." in its path. Raises as check_uri does."""
    from urllib.parse import unquote

    text = check_uri(where, uri, "file")
    parts = re.fullmatch("file://(localhost)?([^/?#]*)(/[^?#]*)", text, re.IGNORECASE)
    if parts is None:
        raise ValueError(f"{where}: expected file:// and a path, got {show(uri)}")
    path: list[str] = []
    *steps, last = parts[3][1:].split("/")
    for step in (*steps, last):
        name = unquote(step)
        if name == ".." and path:
            path.pop()
        elif name not in (".", ".."):
            path.append(step)
        # "Validate all root URIs to prevent path traversal": no step hides others.
        hidden = re.split(r"[/\\]", name)
        if (len(hidden) > 1 and ".." in hidden) or "\0" in name:
            raise ValueError(f"{where}: not a path that is safe: {show(uri)}")
    if unquote(last) in (".", "..") and path:
        path.append("")
    return f"file://{parts[2]}/" + "/".join(path)


def check_icons(icons: object) -> None:
    """Raise ValueError or TypeError unless this is a list of icons as on the wire.

    "Clients MUST reject icon URIs that use unsafe schemes": basic/index.md#icons.
    """
    if icons is None:
        return
    if not isinstance(icons, list):
        raise TypeError(f"icons: expected a list, got {show(icons)}")
    for place, icon in enumerate(icons):
        source = member_at(icon, ["src"])
        check_uri(f"icons[{place}].src", source, "https", "http", "data")


_META_LABEL = "[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_META_KEY = (
    rf"(?:({_META_LABEL}(?:\.{_META_LABEL})*)/)?"
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9\-_.]*[A-Za-z0-9])?)?"
)
_META_OWNERS = ("modelcontextprotocol", "mcp")
# What this library puts there by itself.
_META_OURS = (
    "progressToken",
    META_VERSION,
    META_CLIENT_INFO,
    META_CAPABILITIES,
    META_LOG_LEVEL,
    META_SUBSCRIPTION,
    META_SERVER_INFO,
)


def check_meta(meta: object) -> None:
    """Raise ValueError or TypeError unless this may be a `_meta`: basic/index.md#meta.

    Keys are names, or prefix/name. The prefixes of the protocol are reserved; but its
    extensions define keys under io.modelcontextprotocol/.
    """
    if meta is None:
        return
    if not isinstance(meta, dict):
        raise TypeError(f"meta: expected an object, got {show(meta)}")
    for key in meta:
        syntax = re.fullmatch(_META_KEY, key) if isinstance(key, str) else None
        if syntax is None:
            raise ValueError(
                "meta: expected a name, or a prefix such as com.example/ and a name, "
                f"got {show(key)}"
            )
        labels = (syntax[1] or "").lower().split(".")
        # "where the second label is"; in 2025-06-18, any label that another follows.
        is_reserved = any(each in _META_OWNERS for each in (*labels[:-1], *labels[1:2]))
        is_extension = key.startswith(META) and key not in _META_OURS
        if key in _META_OURS or (is_reserved and not is_extension):
            raise ValueError(f"meta: {show(key)} is reserved for the protocol")


def check_extensions(extensions: Json | None) -> Json:
    """{identifier: settings} of extensions. Raises ValueError or TypeError."""
    if extensions is not None and not isinstance(extensions, dict):
        raise TypeError(
            'extensions: expected {"com.example/thing": {}} or the like, '
            f"got {show(extensions)}"
        )
    for name, settings in (extensions or {}).items():
        # "Extension identifiers MUST follow the `_meta` key naming rules, with a
        # mandatory prefix": basic/versioning.md.
        syntax = re.fullmatch(_META_KEY, name) if isinstance(name, str) else None
        if syntax is None or not syntax[1]:
            raise ValueError(
                f"extensions: expected a name such as com.example/thing, got {show(name)}"
            )
        if not isinstance(settings, dict):
            raise TypeError(
                f"extensions: {name}: expected an object, {{}} maybe, "
                f"got {show(settings)}"
            )
        encode_message(settings)
    return extensions or {}


# What functions returned, as results
class WrongResult(Exception):
    """What a function returned is none of what it may return."""


def make_result(make: Callable[..., Any], *given: object) -> Any:
    """make(*given), a result of what a function returned. Raises WrongResult for what
    that refuses."""
    try:
        return make(*given)
    except REFUSALS as error:
        why = str(error)
    if not why.startswith("the result"):
        why = f"the result: {why}"
    raise WrongResult(why)


# Blocks and messages
def to_block(item: object) -> Json:
    """A block for text, a content object, or a block as on the wire; or a TypeError."""
    if isinstance(item, str):
        return {"type": "text", "text": item}
    if isinstance(item, dict) and isinstance(item.get("type"), str):
        return item
    raise TypeError(
        f"content: expected text, an Image or other content, got {type(item).__name__}"
    )


def to_any_block(value: object) -> Json:
    """A block for any value: what to_block does not take, as JSON in text."""
    with suppress(TypeError):
        return to_block(value)
    return to_block(encode_json(to_plain(value)))


def tool_failure(text: str, content: list[Any] | None = None) -> Json:
    """The result of a tool that failed."""
    # A lone surrogate in the text must not cost the model all of it.
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    blocks = [to_block(item) for item in content or [text]]
    return {"content": blocks, "isError": True}


class _Content(Json):
    """An object just as the wire has it; each subclass is a constructor of one kind."""


# By what the bytes of an image, or of sound, begin with.
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
    kind: str

    def __init__(
        self,
        data: bytes | None = None,
        *,
        path: str | os.PathLike[str] | None = None,
        mime_type: str | None = None,
        annotations: Json | None = None,
        meta: Json | None = None,
    ) -> None:
        if path is not None and data is None:
            with open(path, "rb") as file:
                data = file.read()
        elif path is not None or data is None:
            raise TypeError(f"{self.kind}: give either data or path=")
        mime_type = mime_type or _tell_mime_type(self.kind, data)
        if not mime_type:
            raise ValueError(f"{self.kind}: cannot tell the MIME type; give mime_type=")
        check_meta(meta)
        add_given(
            self,
            type=self.kind,
            data=_base64(data),
            mimeType=mime_type,
            annotations=annotations,
            _meta=meta,
        )


def _tell_mime_type(kind: str, data: bytes) -> str | None:
    for mime_type, magic in _MAGIC.items():
        if mime_type.startswith(kind) and re.match(magic, data, re.DOTALL):
            return mime_type
    return None


class Image(_Media):
    """An image to return from a tool, a prompt or a resource.

    See server/tools.md#image-content.

    data: its bytes, or instead of them
    path: the file that holds them; it is read at once.
    mime_type: such as "image/png"; told from the first bytes when left out.
    annotations: {"audience": ["user" and/or "assistant"], "priority": 0 to 1, ...}.
    meta: the block's `_meta`, an object.

    Raises TypeError unless it is given one of data and path, ValueError when the MIME
    type cannot be told, and for reserved keys in meta, OSError when the file cannot be
    read.
    """

    kind = "image"


class Audio(_Media):
    """Sound to return from a tool, a prompt or a resource.

    See server/tools.md#audio-content. Since 2025-03-26; older clients get it as an
    embedded resource, a blob.

    data: its bytes, or instead of them
    path: the file that holds them; it is read at once.
    mime_type: such as "audio/wav"; told from the first bytes when left out.
    annotations: {"audience": ["user" and/or "assistant"], "priority": 0 to 1, ...}.
    meta: the block's `_meta`, an object.

    Raises as Image does.
    """

    kind = "audio"


class EmbeddedResource(_Content):
    """A resource's text or bytes inside a result (server/tools.md#embedded-resources).

    uri: the resource's URI.
    text_or_bytes: what it holds; bytes go in base64.
    mime_type: such as "text/markdown".
    annotations: {"audience": ["user" and/or "assistant"], "priority": 0 to 1, ...}.
    meta: the block's `_meta`, an object.

    Raises ValueError for what is no URI, and for reserved keys in meta.
    """

    def __init__(
        self,
        uri: str,
        text_or_bytes: str | bytes,
        *,
        mime_type: str | None = None,
        annotations: Json | None = None,
        meta: Json | None = None,
    ) -> None:
        check_meta(meta)
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
    name: what programs call it.
    title: what people call it.
    description: what it holds.
    mime_type: such as "text/markdown".
    size: in bytes, before any encoding.
    meta: the block's `_meta`, an object.
    annotations: {"audience": ["user" and/or "assistant"], "priority": 0 to 1, ...}.
    icons: [{"src": URL, "mimeType": ..., "sizes": [...]}].

    Raises ValueError for what is no URI, and for reserved keys in meta.
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
    ) -> None:
        check_meta(meta)
        check_icons(icons)
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

    content: text, an Image or other content, a block as on the wire, or a list of them.
    role: who says it, "user" or "assistant".

    Raises ValueError for another role, TypeError for other content.
    """

    def __init__(self, content: object, role: str = "user") -> None:
        if role not in ("user", "assistant"):
            raise ValueError(f"role: user or assistant, not {show(role)}")
        if isinstance(content, (list, tuple)):
            content = [to_block(item) for item in content]
        else:
            content = to_block(content)
        add_given(self, role=role, content=content)


def prompt_messages(value: object) -> list[Json]:
    """The messages of prompts/get for what a prompt returned.

    That is a Message, what a Message's content may be, a message as on the wire, or a
    list of those. Raises TypeError or ValueError for anything else.
    """
    items = value if isinstance(value, (list, tuple)) else [value]
    return [_to_message(item) for item in items]


def _to_message(item: object) -> Message:
    if isinstance(item, dict) and "role" in item:
        return Message(item.get("content"), item["role"])
    return Message(item)


def read_contents(uri: str, value: object, mime_type: str | None) -> Json:
    """One of the contents of resources/read, for what a resource's function returned.

    `mime_type` is the registered one. Raises TypeError or ValueError for a value that
    has no form in JSON.
    """
    if isinstance(value, EmbeddedResource):
        return {**add_given({}, mimeType=mime_type), **value["resource"]}
    if isinstance(value, _Media):
        usual = value["mimeType"]
        held = {"blob": value["data"]}
    elif isinstance(value, str):
        usual = "text/plain"
        held = {"text": value}
    elif isinstance(value, bytes):
        usual = "application/octet-stream"
        held = {"blob": _base64(value)}
    else:
        usual = "application/json"
        held = {"text": encode_json(to_plain(value))}
    return {"uri": uri, "mimeType": mime_type or usual, **held}


# As each revision knows it
def _audio_as_blob(block: Json) -> Json:
    resource = {"uri": "data:", "mimeType": block["mimeType"], "blob": block["data"]}
    older = {"type": "resource", "resource": resource}
    return add_given(older, annotations=block.get("annotations"))


def _link_as_text(block: Json) -> Json:
    return add_given(to_block(block["uri"]), annotations=block.get("annotations"))


_ANNOTATIONS_SINCE = {"lastModified": "2025-06-18"}
_OFFER_SINCE = {
    "title": "2025-06-18",
    "_meta": "2025-06-18",
    "icons": "2025-11-25",
}
# The members that came later, by what they are members of, for the same name may be
# older elsewhere: a revision is not sent what it does not know. What a list has goes by
# the name of the list. A table in place of a date is for the members of the member.
MEMBER_SINCE: dict[str, Json] = {
    "serverInfo": {
        "title": "2025-06-18",
        "description": "2025-11-25",
        "websiteUrl": "2025-11-25",
        "icons": "2025-11-25",
    },
    "tools": {
        **_OFFER_SINCE,
        "annotations": "2025-03-26",
        "outputSchema": "2025-06-18",
    },
    "resources": {**_OFFER_SINCE, "annotations": _ANNOTATIONS_SINCE},
    "resourceTemplates": {**_OFFER_SINCE, "annotations": _ANNOTATIONS_SINCE},
    "prompts": _OFFER_SINCE,
    "result": {"structuredContent": "2025-06-18"},
    "block": {
        "annotations": _ANNOTATIONS_SINCE,
        "resource": {"_meta": "2025-06-18"},
        "_meta": "2025-06-18",
        "icons": "2025-11-25",
    },
}
# The kinds of blocks that came later, and what a revision before them gets. A new kind
# is a row here, and a class above.
BLOCK_SINCE: dict[str, tuple[str, Callable[[Json], Json]]] = {
    "audio": ("2025-03-26", _audio_as_blob),
    "resource_link": ("2025-06-18", _link_as_text),
}


def _latest(since: Json) -> str:
    """The last date in a table of these."""
    return max(
        _latest(each) if isinstance(each, dict) else each for each in since.values()
    )


# From here on, a tool's result goes as it is.
_RESULT_SINCE = max(
    _latest(MEMBER_SINCE["result"]),
    _latest(MEMBER_SINCE["block"]),
    *(since for since, _ in BLOCK_SINCE.values()),
)


def fit_members(wire: Json, since: Json, version: str) -> Json:
    """An object without the members that this revision does not know.

    `since`: one of the tables in MEMBER_SINCE
    """
    fitted = {}
    for name, value in wire.items():
        known = since.get(name, OLDEST)
        if isinstance(known, dict):
            # What is no object is another's fault.
            is_object = isinstance(value, dict)
            fitted[name] = fit_members(value, known, version) if is_object else value
        elif known <= version:
            fitted[name] = value
    return fitted


def fit_block(block: Json, version: str) -> Json:
    """A block as this revision knows it, or what stands for one of a later kind."""
    since, older = BLOCK_SINCE.get(block["type"], (OLDEST, to_block))
    if version < since:
        # Which may be of a later kind, too.
        return fit_block(older(block), version)
    return fit_members(block, MEMBER_SINCE["block"], version)


def fit_result(result: Json, version: str) -> Json:
    """The result of a tool, as this revision knows it."""
    if version >= _RESULT_SINCE:
        return result
    fitted = fit_members(result, MEMBER_SINCE["result"], version)
    fitted["content"] = [fit_block(block, version) for block in result["content"]]
    return fitted


def split_messages(messages: list[Json]) -> list[Json]:
    """Messages with one block each: what has a list becomes several of its role."""
    split = []
    for message in messages:
        content = message["content"]
        blocks = content if isinstance(content, list) else [content]
        split += [{**message, "content": block} for block in blocks]
    return split


# On the receiving side
def unwrap_result(result: Json) -> Any:
    """The Python value in a result of tools/call.

    That is its structured content; without any, its text when there is only text, else
    its blocks: the only one, or a list.
    """
    blocks = [block for block in result.get("content") or [] if isinstance(block, dict)]
    if "structuredContent" in result:
        return _unwrap_structured(result["structuredContent"], blocks)
    texts = _texts_of(blocks)
    if not blocks:
        return None
    if len(texts) == len(blocks):
        return "\n".join(texts)
    if len(blocks) == 1:
        return blocks[0]
    return blocks


def value_of(result: Json) -> Any:
    """The same, unless the tool says that it failed: then ToolError, in its words."""
    if not result.get("isError"):
        return unwrap_result(result)
    blocks: list[Json] = result["content"]
    text = printable("\n".join(_texts_of(blocks)), keep_lines=True)
    raise ToolError(text or "the tool failed", blocks)


def _texts_of(blocks: list[Json]) -> list[str]:
    return [
        str(block.get("text", "")) for block in blocks if block.get("type") == "text"
    ]


def _unwrap_structured(value: object, blocks: list[Json]) -> Any:
    """The value inside {"result": value}, if a server wrapped it; else as it is."""
    if not isinstance(value, dict) or list(value) != ["result"]:
        return value
    # A wrapped value, and an object that happens to look like one, differ in the text
    # beside them: it is the value's JSON without the wrapping.
    with suppress(LookupError, ValueError, TypeError, RecursionError):
        if equality_key(_decoder.decode(blocks[0]["text"])) == equality_key(value):
            return value
    return value["result"]


###############################################################################
# 9. Hints ####################################################################
###############################################################################
# From what a Python function declares to JSON Schema, and from JSON to Python values:
#     read_parameters   what the function declares: parameters, defaults, hints
#     HintReader        a hint -> a WireType: its JSON Schema, and how to convert values
# All is done once, at registration, but the conversion, which each call pays for. Hints
# are known by their names and attributes, so that no module needs to be imported for
# its classes.


# What functions and classes declare
# Each stands where there is no default: a value must come, or it may stay away.
REQUIRED = object()
ABSENT = object()

# A parameter, or a class's member. Its hint may be text.
_Parameter = namedtuple("_Parameter", "name hint default")

# A function's parameters, its return hint, and the names that its hints may use.
_Declaration = namedtuple("_Declaration", "parameters returns names")


def read_parameters(fn: Any, bound: int = 0) -> _Declaration:
    """What a callable declares, without its first `bound` parameters.

    It reads the code object: `inspect` would add 5 to 11 ms to a server's start. Raises
    TypeError for a callable that is not written in Python, for a method without its
    object, and for parameters that cannot be given by name.
    """
    while hasattr(fn, "__wrapped__"):
        fn = fn.__wrapped__
    fn, is_method = _find_function(fn)
    bound = bound or is_method
    code = getattr(fn, "__code__", None)
    if isinstance(fn, type):
        raise TypeError(
            "a class; register a function, or a method of one of its objects"
        )
    # PyPy's own functions have a code, but one of another type.
    if type(code) is not type(read_parameters.__code__):
        raise TypeError(
            "expected a Python function, or an object whose class defines __call__; "
            "write a function that calls this"
        )

    # First the positional names, then keyword-only ones, *args, **kwargs, local ones.
    names = code.co_varnames
    count = code.co_argcount + code.co_kwonlyargcount
    # The flags 4 and 8 say that there are *args and **kwargs.
    stars = bool(code.co_flags & 4) + bool(code.co_flags & 8)
    positional_only = names[bound : code.co_posonlyargcount]
    nameless = positional_only + names[count : count + stars]
    if nameless:
        raise TypeError(
            f"{nameless[0]}: *args, **kwargs and positional-only parameters have no "
            "name on the wire; give each parameter a name"
        )

    # The defaults are those of the last positional parameters.
    last = fn.__defaults__ or ()
    defaults = dict(zip(names[code.co_argcount - len(last) :], last))
    defaults.update(fn.__kwdefaults__ or {})
    hints = getattr(fn, "__annotations__", None) or {}
    if not bound and names[:1] == ("self",) and "self" not in hints:
        owner = fn.__qualname__.rpartition(".")[0].rpartition(".")[2]
        raise TypeError(
            "self: this method has no object yet; make one, and register its method: "
            f"{owner if owner.isidentifier() else 'Class'}().{fn.__name__}"
        )
    parameters = [
        _Parameter(name, hints.get(name, object), defaults.get(name, REQUIRED))
        for name in names[bound:count]
    ]
    return _Declaration(parameters, hints.get("return", object), _names_around(fn))


def _find_function(fn: Any) -> tuple[Any, bool]:
    """The function that a callable stands for, and whether it is called as a method."""
    if hasattr(fn, "__func__"):
        return fn.__func__, True
    if isinstance(fn, type) or hasattr(fn, "__code__"):
        return fn, False
    return type(fn).__call__, True


# What flags of its code say of a function that yields.
_GENERATOR = 0x20
_ASYNC_GENERATOR = 0x200


def check_yields(fn: Any, *, may_yield: bool = False) -> None:
    """Raise TypeError for an async generator; for any other, too, unless it may be."""
    flags = getattr(getattr(_find_function(fn)[0], "__code__", None), "co_flags", 0)
    if flags & _ASYNC_GENERATOR or (flags & _GENERATOR and not may_yield):
        raise TypeError("it yields; return a list of all that instead")


def tell_place(fn: Any) -> str:
    """Where a function stands, for people: forecast (/home/ada/weather.py:12)."""
    name = getattr(fn, "__qualname__", type(fn).__qualname__)
    code = getattr(_find_function(fn)[0], "__code__", None)
    return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code else name


def _names_around(fn: Any) -> Json:
    """What the hints of a function may use: its module's names, and those of the
    functions around it that it uses itself."""
    names = dict(fn.__globals__)
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or ()):
        with suppress(ValueError):  # nothing was assigned to it yet
            names[name] = cell.cell_contents
    return names


def _read_class(cls: Any) -> list[_Parameter]:
    """The members of a dataclass or NamedTuple, as it is constructed, or a TypedDict.

    Raises TypeError for any other class.
    """
    maker: Any = None
    if hasattr(cls, "__dataclass_fields__"):
        maker = cls.__init__
    elif hasattr(cls, "_field_defaults"):
        maker = cls.__new__
    if maker is not None:
        return list(read_parameters(maker, 1).parameters)
    if not hasattr(cls, "__total__"):
        raise TypeError(
            f"{getattr(cls, '__name__', cls)} has no JSON Schema; use a plain type, an "
            "Enum, a TypedDict, a NamedTuple or a dataclass"
        )
    hints = cls.__annotations__
    # Python 3.8 does not remember which base a key came from.
    required = getattr(cls, "__required_keys__", hints if cls.__total__ else ())
    return [
        _Parameter(name, hint, REQUIRED if name in required else ABSENT)
        for name, hint in hints.items()
    ]


# Types on the wire
def _as_it_comes(wire: object, allowance: Allowance) -> Any:
    return wire


if TYPE_CHECKING:
    Convert = Callable[[Any, Allowance], Any]


class WireType(Json):
    """What a Python type is on the wire: its JSON Schema is this dict.

    convert(value, allowance) is the way back: the Python value for one that the schema
    allows. The allowance is for all that must be checked on the way. It
    may raise one of REFUSALS all the same.
    """

    def __init__(self, schema: Json, convert: Convert = _as_it_comes) -> None:
        super().__init__(schema)
        self.convert = convert

    def kinds(self) -> set[Any]:
        """The JSON types that the schema allows, and None where it does not say."""
        alternatives = self.get("anyOf", [self])
        return {
            "object" if "$ref" in each else each.get("type") for each in alternatives
        }


def _convert_members(converters: list[Any], wire: Json, allowance: Allowance) -> Json:
    """The members of an object, those that are there; all errors at once."""
    made = {}
    errors = []
    for name, convert in converters:
        if name not in wire:
            continue
        try:
            made[name] = convert(wire[name], allowance)
        except REFUSALS as error:
            errors.append(f"{name}: " + " ".join(str(error).split()))
    if errors:
        raise ValueError("; ".join(errors))
    return made


# From hints to types on the wire
class Param:
    """What a schema says of a parameter beyond its type, as a note in its hint:

        days: Annotated[int, Param("how many", ge=1, header="Days")]

    description: for the model and for people; a plain str as the note says only this.
    ge, gt, le, lt: a number is >=, >, <= or < this.
    min_length, max_length: of a text, a list, or an object (its members).
    pattern: a regular expression that a text contains; anchor it with ^ and $.
    examples: values, for the model.
    header: over HTTP a client repeats the value in the header Mcp-Param-HEADER, for
        proxies to route by (basic/transports/streamable-http.md).
    """

    def __init__(
        self,
        description: str | None = None,
        *,
        ge: float | None = None,
        gt: float | None = None,
        le: float | None = None,
        lt: float | None = None,
        min_length: int | None = None,
        max_length: int | None = None,
        pattern: str | None = None,
        examples: list[Any] | None = None,
        header: str | None = None,
    ) -> None:
        self.wire = add_given(
            {},
            description=description,
            minimum=ge,
            exclusiveMinimum=gt,
            maximum=le,
            exclusiveMaximum=lt,
            minLength=min_length,
            maxLength=max_length,
            pattern=pattern,
            examples=examples,
            **{"x-mcp-header": header},
        )


class HintReader:
    """Reads type hints, all for one schema, and says what they are on the wire.

    A class that contains itself cannot be written out in its place: that would never
    end. So while a class is being described it is open, and where it comes up again a
    reference takes its place. For

        class Tree:
            value: int
            children: List[Tree]

        describe(Tree)               Tree is open, its type still empty
          describe(int)              {"type": "integer"}
          describe(List[Tree])
            describe(Tree)           it is open: $defs gets its type, as "Tree", and
                                     {"$ref": "#/$defs/Tree"} stands here
        Tree's type is complete      it was referred to, so the same stands here, too

    A class that nothing referred to is closed again, and its type stands in its place.
    """

    def __init__(self, names: Json) -> None:
        # What a hint that is text may use; other names inside of a class.
        self._names = names
        # The types of the classes that were referred to, by their names there.
        self._defs: dict[str, WireType] = {}
        # Those of the classes that are being described, or were referred to.
        self._open: dict[Any, WireType] = {}

    def document(self, described: WireType) -> WireType:
        """A described type with its $defs. A tool's schema must have "type" at its
        root, so a reference there is replaced by what it names."""
        if "$ref" in described:
            described = self._defs[described["$ref"][len("#/$defs/") :]]
        if not self._defs:
            return described
        return WireType({**described, "$defs": self._defs}, described.convert)

    def evaluate(self, hint: object) -> Any:
        """A hint as an object, if it is text. Raises TypeError when it cannot be."""
        text = getattr(hint, "__forward_arg__", hint)
        if not isinstance(text, str):
            return hint
        try:
            return _evaluate(text, self._names)
        except Exception as error:
            raise TypeError(f"cannot evaluate the hint {text!r}: {error}") from None

    def describe(self, hint: Any) -> WireType:
        """What a hint is on the wire, each time anew.

        Raises TypeError, with the remedy, for what the wire cannot say.
        """
        hint = self.evaluate(hint)
        # List[int] is made of an origin, list, and arguments, int.
        origin = getattr(hint, "__origin__", None) or hint
        name = _hint_name(origin)
        if hasattr(hint, "__metadata__"):
            return self._annotated(origin, hint.__metadata__)
        if name in SCALARS:
            return self._scalar(origin, SCALARS[name])
        if name in _GENERICS:
            return _GENERICS[name](self, getattr(hint, "__args__", ()))
        if hasattr(origin, "__members__"):
            return self._choice(origin)  # an Enum
        if hasattr(origin, "__supertype__"):
            return self.describe(origin.__supertype__)  # a NewType
        if hasattr(origin, "__value__"):
            return self.describe(origin.__value__)  # type X = ...
        return self._instance(origin)

    def members(
        self, parameters: Iterable[_Parameter], hidden: type | None = None
    ) -> WireType:
        """An object with these members, without those whose hint is the type `hidden`,
        or Optional[hidden]. Raises TypeError naming what the wire cannot say."""
        members = {}
        required = []
        for name, hint, default in parameters:
            try:
                hint = self.evaluate(hint)
                if hidden and hidden in (hint, *getattr(hint, "__args__", ())):
                    continue
                member = self.describe(hint)
            except TypeError as error:
                raise TypeError(f"{name}: {error}") from None
            _publish_default(member, default)
            # A TypedDict may say it of a member, whatever it says of all.
            mark = _hint_name(getattr(hint, "__origin__", None))
            if _MARKS.get(mark, default) is REQUIRED:
                required.append(name)
            members[name] = member
        schema = add_given(
            {"type": "object", "properties": members}, required=required or None
        )
        converters = [(name, member.convert) for name, member in members.items()]
        return WireType(schema, partial(_convert_members, converters))

    def _annotated(self, hint: object, notes: Iterable[Any]) -> WireType:
        described = self.describe(hint)
        kinds = described.kinds()
        nouns = [noun for kind, noun in _COUNTED.items() if kind in kinds]
        for note in notes:
            if isinstance(note, str):
                note = Param(note)
            if not isinstance(note, Param):
                continue
            for keyword, value in note.wire.items():
                for noun in nouns or ["Length"]:
                    described[keyword.replace("Length", noun)] = value
        return described

    def _scalar(self, cls: Any, row: Any) -> WireType:
        if not row.expected:
            return WireType(row.schema)
        parse = partial(row.parse, cls) if row.parse else cls

        def convert(wire: object, allowance: Allowance) -> Any:
            try:
                return parse(wire)
            except REFUSALS:
                raise ValueError(f"expected {row.expected}, got {show(wire)}") from None

        return WireType(row.schema, convert)

    def _choice(self, members: Iterable[Any]) -> WireType:
        plain = [(to_plain(member), member) for member in members]
        by_key = {equality_key(value): member for value, member in plain}
        types = {json_type(value) for value, _ in plain}
        kind = TYPE_NAMES.get(types.pop()) if len(types) == 1 else None
        schema = add_given({}, type=kind, enum=[value for value, _ in plain])
        return WireType(schema, lambda wire, _: by_key[equality_key(wire)])

    def _array(self, args: Any, make: Callable[[Any], Any]) -> WireType:
        item = self.describe(args[0]) if args else WireType({})
        unique = make in (set, frozenset)
        schema = add_given(
            {"type": "array"}, items=item or None, uniqueItems=unique or None
        )
        return WireType(
            schema,
            lambda wire, allowance: make(
                item.convert(each, allowance) for each in wire
            ),
        )

    def _tuple(self, args: Any) -> WireType:
        if not args or ... in args:
            return self._array(args, tuple)
        items = [self.describe(each) for each in args]
        size = len(items)
        schema = {
            "type": "array",
            "prefixItems": items,
            "minItems": size,
            "maxItems": size,
        }
        return WireType(
            schema,
            lambda wire, allowance: tuple(
                item.convert(each, allowance) for item, each in zip(items, wire)
            ),
        )

    def _mapping(self, args: Any) -> WireType:
        key, value = args or (str, object)
        if self.describe(key) not in ({}, {"type": "string"}):
            raise TypeError("dict keys: use dict[str, ...]")
        item = self.describe(value)
        return WireType(
            add_given({"type": "object"}, additionalProperties=item or None),
            lambda wire, allowance: {
                name: item.convert(each, allowance) for name, each in wire.items()
            },
        )

    def _union(self, args: Any) -> WireType:
        types = [self.describe(each) for each in args]

        @lru_cache(None)
        def compiled() -> list[Schema]:
            """At the first use: only then are all $defs known."""
            return [Schema(self.document(each)) for each in types]

        def convert(wire: object, allowance: Allowance) -> Any:
            """To the first type that fits: what is no date may be a str."""
            refusal: Exception = ValueError("no alternative fits, in the time allowed")
            for wire_type, schema in zip(types, compiled()):
                if schema.errors(wire, allowance):
                    continue
                try:
                    return wire_type.convert(wire, allowance)
                except REFUSALS as error:
                    refusal = error
            raise refusal

        return WireType({"anyOf": types}, convert)

    def _instance(self, cls: Any) -> WireType:
        """A dataclass, NamedTuple or TypedDict; or a reference to it, as above."""
        parameters = _read_class(cls)
        if cls in self._open:
            return self._refer_to(cls)
        instance = WireType({})
        self._open[cls] = instance
        outer_names = self._names
        self._names = {**outer_names, **_names_in(cls)}
        members = self.members(parameters)
        self._names = outer_names
        instance.update(members)
        instance.convert = lambda wire, allowance: cls(
            **members.convert(wire, allowance)
        )
        if any(each is instance for each in self._defs.values()):
            return self._refer_to(cls)
        return self._open.pop(cls)

    def _refer_to(self, cls: Any) -> WireType:
        instance = self._open[cls]
        name = cls.__name__
        while self._defs.setdefault(name, instance) is not instance:
            name += "_"  # another class has that name
        # It looks `convert` up when it is called: the instance may be still empty.
        return WireType(
            {"$ref": "#/$defs/" + name},
            lambda wire, allowance: instance.convert(wire, allowance),
        )


# What TypedDicts may say of a member.
_MARKS = {"Required": REQUIRED, "NotRequired": ABSENT}

# What Param's lengths count, by the JSON type: minLength, minItems, minProperties.
_COUNTED = {"string": "Length", "array": "Items", "object": "Properties"}

# The hints that take arguments, by the names of their origins.
_GENERICS: dict[str, Callable[[HintReader, Any], WireType]] = {
    "tuple": HintReader._tuple,
    "Union": HintReader._union,
    "a UnionType": HintReader._union,
    "Literal": HintReader._choice,
    **dict.fromkeys(
        ("list", "Sequence", "MutableSequence", "Collection", "Iterable"),
        lambda reader, args: reader._array(args, list),
    ),
    **dict.fromkeys(
        ("set", "MutableSet"), lambda reader, args: reader._array(args, set)
    ),
    **dict.fromkeys(
        ("frozenset", "Set"), lambda reader, args: reader._array(args, frozenset)
    ),
    **dict.fromkeys(("dict", "Mapping", "MutableMapping"), HintReader._mapping),
    **dict.fromkeys(
        ("Required", "NotRequired", "ReadOnly"),
        lambda reader, args: reader.describe(*args),
    ),
}


def _hint_name(origin: object) -> str:
    """A hint's name in the tables: of a class its class_name, of typing's special forms
    the one they have, such as "Union"; "a UnionType" for what is only an instance."""
    if isinstance(origin, type):
        return class_name(origin)
    return getattr(origin, "_name", None) or "a " + type(origin).__name__


def _publish_default(member: WireType, default: object) -> None:
    if default is REQUIRED or default is ABSENT:
        return
    # Of `x: str = None`, nothing: its type has no null.
    if default is None and not member.kinds() & {"null", None}:
        return
    # JSON cannot say every default.
    with suppress(*REFUSALS):
        member["default"] = json.loads(encode_json(to_plain(default)))


def _names_in(cls: Any) -> Json:
    """What the hints of a class's members may use: its modules' names, and its own."""
    names: Json = {}
    for base in reversed(cls.__mro__):
        names.update(getattr(sys.modules.get(base.__module__), "__dict__", {}))
    names[cls.__name__] = cls
    return names


def _evaluate(text: str, names: Json) -> Any:
    try:
        return eval(text, names)
    except TypeError:
        code, names = _respell(text, names)
        return eval(code, names)


def _respell(text: str, names: Json) -> tuple[Any, Json]:
    """What eval takes for what this Python cannot: X | Y before 3.10, list[X] before
    3.9, "X" | None in any."""
    import ast
    import typing

    class Respell(ast.NodeTransformer):
        """Writes a call of a function named `|` for each X | Y."""

        def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
            self.generic_visit(node)
            return ast.Call(ast.Name("|", ast.Load()), [node.left, node.right], [])

    tree = ast.fix_missing_locations(Respell().visit(ast.parse(text, mode="eval")))
    subscriptable = {
        "list": typing.List,
        "dict": typing.Dict,
        "tuple": typing.Tuple,
        "set": typing.Set,
        "frozenset": typing.FrozenSet,
        "|": lambda left, right: typing.Union[left, right],
    }
    return compile(tree, "<hint>", "eval"), {**names, **subscriptable}


def describe_hint(hint: object, names: Json) -> WireType:
    """The whole schema of one hint, whose text may use `names`. Raises TypeError."""
    reader = HintReader(names)
    return reader.document(reader.describe(hint))


###############################################################################
# 10. Signatures ##############################################################
###############################################################################
# From a Python function to what the wire says of it, and back. In reading order:
#     parse_doc         a docstring -> what it says of the function and each parameter
#     Signature         with its hints: arguments as they came -> keyword arguments
#     Output            what the function returned -> a result
#     UriTemplate       a URI -> arguments
# All is done once, at registration, but Signature.bind, Output.result and
# UriTemplate.match, which each call pays for. Nothing here knows servers, requests or
# revisions.


# Docstrings, as Google, NumPy or Sphinx write them:
#
#     Args:                         Parameters                    :type days: int
#         days (int): How many,     ----------                    :param days: How many,
#             at most 5.            days : int                        at most 5.
#                                       How many, at most 5.
_DOC_HEADINGS = (
    r"(?m)^(?:Args|Arguments|Params|(?:Other )?Parameters)(?::|\n-+)$\n|^:type .*$\n?"
)
_DOC_ENTRY = re.compile(
    r"(?P<indent> *)"
    r"(?::param (?:[^:]* )?)?"  # Sphinx's, with or without a type
    r"\*{0,2}(?P<name>\w+) *"
    r"(?:\(.*?\))? *:(?!:)"  # Google's type
    r"(?P<text>.*)"
)


def parse_doc(doc: str, names: Iterable[str]) -> tuple[str, dict[str, str]]:
    """A docstring without its entries for `names`, and the texts of those, by name.

    An entry goes on with the lines below it, as long as they are deeper, or empty. Of
    two for one name the first counts.
    """
    text = _dedent(doc)
    # NumPy's have the type behind the name, and the text below.
    numpy = "\n---" in text
    lines = deque(re.sub(_DOC_HEADINGS, "", text).split("\n"))
    others = []
    entries: dict[str, str] = {}
    while lines:
        line = lines.popleft()
        entry = _DOC_ENTRY.match(line)
        if entry is None or entry["name"] not in names:
            others.append(line)
            continue
        parts = [] if numpy else [entry["text"]]
        deeper = entry["indent"] + " "
        while lines and (lines[0] == "" or lines[0].startswith(deeper)):
            parts.append(lines.popleft())
        entries.setdefault(entry["name"], " ".join(" ".join(parts).split()))
    return "\n".join(others).strip(), entries


def _dedent(doc: str) -> str:
    """A docstring without the margin that all lines have but the first, which stands
    behind the quotes, and without spaces at the ends of lines."""
    first, *rest = [line.rstrip(" ") for line in doc.expandtabs().strip().split("\n")]
    indents = [len(line) - len(line.lstrip(" ")) for line in rest if line]
    margin = min(indents, default=0)
    return "\n".join([first, *(line[margin:] for line in rest)])


# Functions
# Of one call, as many errors as a model can act on; of a result, as people can.
_ARGUMENT_ERRORS = 20
_RESULT_ERRORS = 5


# The name of a function that has none.
LAMBDA = "<lambda>"


class Signature:
    """A function as the wire sees it, and the binding of its arguments.

    fn, name: the function.
    description: what its docstring says of it, without its parameters; or None.
    schema: the JSON Schema of the arguments.
    context: the name of the parameter that takes the Context, which is no argument; or
        None.

    Raises TypeError, naming function and parameter, for what the wire cannot say. If it
    is given a `schema`, arguments are checked by that one, and not converted; those
    that it does not name under `properties` do not reach the function, whatever it is
    called with. Raises ValueError for one that cannot be used.
    """

    def __init__(
        self, fn: Callable[..., Any], context_type: type, schema: Json | None = None
    ) -> None:
        self.fn = fn
        self.name: str = getattr(fn, "__name__", type(fn).__name__)
        try:
            check_yields(fn)
            parameters, _, names = read_parameters(fn)
            reader = HintReader(names)
            members = reader.members(parameters, context_type)
        except TypeError as error:
            raise TypeError(f"{self.name}: {error}") from None
        arguments: dict[str, WireType] = members["properties"]

        hidden = (each.name for each in parameters if each.name not in arguments)
        self.context: str | None = next(hidden, None)
        if _Parameter("ctx", object, REQUIRED) in parameters:
            raise TypeError(
                f"{self.name}: ctx: without a hint it is one more argument; `ctx: "
                "Context` is the request"
            )

        description, entries = parse_doc(getattr(fn, "__doc__", None) or "", arguments)
        self.description = description or None
        for name, text in entries.items():
            arguments[name].setdefault("description", text)

        self.schema: Json
        self._convert: Convert
        if schema is None:
            self.schema = {**reader.document(members), "additionalProperties": False}
            self._convert = members.convert
        else:
            self.schema = schema
            named = _named_members(schema) - {self.context}
            self._convert = partial(_pick_members, named)
        # The function takes them as they come.
        self._is_plain = schema is None and all(
            each.convert is _as_it_comes for each in arguments.values()
        )
        self._check = Schema(self.schema)
        # The arguments that may be lists or objects.
        self._nested = {
            name
            for name, each in arguments.items()
            if {"array", "object"} & each.kinds()
        }

    def bind(self, arguments: Json, texts: Iterable[str] = ()) -> Json:
        """The keyword arguments for a call's arguments. Raises InvalidParams.

        At times models write lists and objects as JSON in text. So text that does not
        fit is read as JSON, if its argument may be a list or an object, or is named in
        `texts`.
        """
        if self._is_plain and self._check.fits(arguments):
            return dict(arguments)
        allowance = Allowance()
        errors = self._check.errors(arguments, allowance)
        if errors:
            arguments = self._reread(arguments, errors, texts)
            errors = self._check.errors(arguments, allowance)
        if errors:
            raise InvalidParams("; ".join(errors[:_ARGUMENT_ERRORS]))
        try:
            bound: Json = self._convert(arguments, allowance)
            return bound
        except ValueError as error:
            raise InvalidParams(str(error)) from None

    def bind_text(self, arguments: Json) -> Json:
        """As bind, for arguments that are all text: "3" may be a 3."""
        return self.bind(arguments, arguments)

    def completions(self, name: str) -> list[str]:
        """The values that an argument's type allows, where they are few and known:
        those of a Literal, an Enum, a bool, or an Optional one."""
        schema = self.schema["properties"][name]
        values: list[Any] = []
        for alternative in schema.get("anyOf", [schema]):
            if "enum" in alternative:
                values += alternative["enum"]
            elif alternative.get("type") == "boolean":
                values += [True, False]
        return list(map(encode_text, values))

    def _reread(self, arguments: Json, errors: list[str], texts: Iterable[str]) -> Json:
        # Each error begins with the argument's name.
        wrong = {error.partition(":")[0] for error in errors}
        candidates = wrong & self._nested.union(texts) & arguments.keys()
        return {
            **arguments,
            **{name: parse_text(arguments[name]) for name in candidates},
        }


def _named_members(schema: object) -> set[str | None]:
    """What an input schema of one's own names: its `properties`, and those of what it
    is made of. Raises ValueError unless it is of an object: "inputSchema" is one, in
    every revision.
    """
    if object_or_empty(schema).get("type") != "object":
        raise ValueError(
            'input_schema: expected a JSON Schema with "type": "object" at its root, '
            f"got {show(schema)}"
        )
    names: set[str | None] = set()
    seen: set[int] = set()
    todo: list[Any] = [schema]
    while todo:
        part = todo.pop()
        if not isinstance(part, dict) or id(part) in seen:
            continue
        seen.add(id(part))
        names.update(object_or_empty(part.get("properties")))
        for keyword, _, inner in inner_schemas(part):
            if keyword in _MADE_OF:
                todo.append(inner)
        pointer = str(part.get("$ref", "")).partition("#/")[2]
        todo.append(pointer and member_at(schema, pointer.split("/")))
    return names


# The keywords whose schemas are about the same value.
_MADE_OF = {"allOf", "anyOf", "oneOf", "if", "then", "else", "dependentSchemas"}


def _pick_members(names: set[str | None], wire: Json, allowance: Allowance) -> Json:
    return {name: value for name, value in wire.items() if name in names}


def parse_text(text: Any) -> Any:
    """What a text says in JSON, unless that is text again; anything else as it is."""
    try:
        value = parse_message(text.encode("utf-8", "surrogatepass"))
    except (AttributeError, McpError):
        return text
    if isinstance(value, str):
        return text
    return value


class Output:
    """What a tool returns, as a result of tools/call (server/tools.md#tool-result).

    It is `structured`, or not:
        True   structured content, checked by `schema`, and as JSON in text, too
        False  blocks: text and content as they are, other values as JSON in text
        None   each value decides: text, None, content, and a list with content in it
               go as blocks, all others as structured content

    `schema` is the outputSchema, or None. It describes an object, as it must: any other
    value is wrapped, {"result": value}.
    """

    def __init__(
        self, fn: object, schema: Json | None, structured: bool | None, name: str
    ) -> None:
        """Take `schema`, else what the return hint of `fn` says, unless `structured` is
        False. Raises TypeError if it is True, and the hint has no schema."""
        if schema is None and structured is not False:
            schema = _describe_returned(fn, structured, name)
        self.structured = True if schema else structured
        self._wraps = bool(schema and schema.get("type") != "object")
        if schema and self._wraps:
            schema = _wrap_schema(schema)
        self.schema = schema or None
        self._check = Schema(schema or {})

    def result(self, value: object) -> Json:
        """The result for a returned value. Raises TypeError or ValueError for a value
        that has no form in JSON, or does not match the schema."""
        if self.structured:
            return self._structured_result(value)
        if isinstance(value, str):
            return {"content": [{"type": "text", "text": value}]}
        if value is None:
            return {"content": []}
        items = value if isinstance(value, (list, tuple)) else [value]
        content = [item for item in items if isinstance(item, _Content)]
        if self.structured is None and not content:
            return self._structured_result(value)
        return {"content": [to_any_block(item) for item in items]}

    def _structured_result(self, value: object) -> Json:
        plain = to_plain(value)
        structured = plain
        if self._wraps or not isinstance(plain, dict):
            structured = {"result": plain}
        errors = self._check.errors(structured)
        if errors:
            if self._wraps:
                errors = [re.sub("^result: ", "", error) for error in errors]
            raise ValueError(
                "the result does not match its outputSchema: "
                + "; ".join(errors[:_RESULT_ERRORS])
            )
        return {
            "content": [{"type": "text", "text": encode_json(plain)}],
            "structuredContent": structured,
        }


def _describe_returned(fn: object, structured: bool | None, name: str) -> Json | None:
    """The schema of a function's return hint; None, unless `structured` asks for it,
    where the hint says too little, or what JSON Schema cannot say."""
    _, hint, names = read_parameters(fn)
    try:
        described = describe_hint(hint, names)
    except TypeError as error:
        if structured:
            raise TypeError(f"{name}: return: {error}") from None
        return None
    # Text goes as text, and a list of anything may hold images.
    vague = described.get("type") in (None, "null", "array", "string")
    if vague and described.keys() <= {"type", "description"} and not structured:
        return None
    return described


def _wrap_schema(schema: Json) -> Json:
    inner = dict(schema)
    wrapped: Json = {
        "type": "object",
        "properties": {"result": inner},
        "required": ["result"],
    }
    # A draft is that of the whole; a $ref names definitions from the root.
    for name in ("$schema", "$defs", "definitions"):
        if name in inner:
            wrapped[name] = inner.pop(name)
    return wrapped


# URI templates
# One {expression}: its operator, "", "+" or "?"; its names; the text behind it.
_Expression = namedtuple("_Expression", "operator names text")

_EXPRESSION = r"{([+?]?)([A-Za-z_]\w*(?:,[A-Za-z_]\w*)*)}([^{}]*)"
_TEMPLATE = f"(?a)([^{{}}]*)(?:{_EXPRESSION})*"

# In a value that is one step of a path, what leads elsewhere: an absolute path, a
# drive, a step `..`, NUL.
_ELSEWHERE = r"\A[/\\]|\A[^\W\d_]:|(?:\A|[/\\])\.\.(?:\Z|[/\\])|\0"


class UriTemplate:
    r"""A URI with expressions in it, and the values that a URI has in their places:
    some of RFC 6570, backwards. Raises ValueError for a template that is none.

        template   = *( text / expression )
        expression = "{" name "}"                 one step of the path, or a part of it
                   / "{+" name "}"                anything, slashes too; once
                   / "{?" name *( "," name ) "}"  values of the query; at the end
        name       = a letter or "_", then letters, digits and "_"; each name once

    Between two expressions of the path there is text. Only {+x} matches slashes, `..`
    and their like: check its value. In a step, an encoded slash, %2F, is no end of it:
    it is part of the value, where it is a slash again; but no value begins with one.

    No URI takes long to match. Where two expressions share a step of the path, the
    first ends where the text between them first stands, and no other end is tried:

        x://{a}.{b}     x://(?=(?P<a>[^/?#]+?)\.)(?P=a)\.(?P<b>[^/?#]+)
                            ^                    ^
                            looks ahead to the   goes there: a look-ahead that has
                            first "."            fitted is not tried anew, however
                                                 the rest may fail
    """

    def __init__(self, template: str) -> None:
        self.template = template
        text, expressions = _parse_template(template)
        path = [each for each in expressions if each.operator != "?"]
        query = expressions[len(path) :]
        fault = _find_fault(path, query)
        if fault:
            raise ValueError(f"URI template {show(template)}: {fault}")
        # name -> operator
        self.names: dict[str, str] = {
            name: each.operator for each in expressions for name in each.names
        }
        # The names of the query.
        self.query: list[str] = [name for each in query for name in each.names]
        self._path = _compile_path(text, path)

    def match(self, uri: str) -> Json | None:
        """The values in a URI, decoded, in the order of the names, without those that
        its query does not have; None when the URI does not fit."""
        if len(uri) > MAX_URI:
            return None
        path, query = uri, ""
        if self.query:
            path, _, query = uri.partition("?")
        fit = self._path.fullmatch(path)
        if fit is None:
            return None
        from urllib.parse import parse_qsl, unquote

        try:
            values: dict[str, str] = {}
            if query:
                values.update(parse_qsl(query, keep_blank_values=True, errors="strict"))
            for name, text in fit.groupdict().items():
                values[name] = unquote(text, errors="strict")
        except UnicodeDecodeError:
            return None
        for name, operator in self.names.items():
            if operator != "+" and re.search(_ELSEWHERE, values.get(name, "")):
                return None
        return {name: values[name] for name in self.names if name in values}


def _parse_template(template: str) -> tuple[str, list[_Expression]]:
    """The text before the first expression, and the expressions. Raises ValueError."""
    syntax = re.fullmatch(_TEMPLATE, template)
    if syntax is None:
        raise ValueError(
            f"URI template {show(template)}: expressions are {{x}}, {{+x}} and {{?a,b}}"
        )
    parts = re.findall(_EXPRESSION, template)
    return syntax[1], [
        _Expression(operator, names.split(","), text) for operator, names, text in parts
    ]


def _find_fault(path: list[_Expression], query: list[_Expression]) -> str | None:
    """What breaks a rule of UriTemplate; `query` begins with the first {?x}."""
    names = [name for each in path + query for name in each.names]
    if any(each.operator != "?" or each.text for each in query):
        return "{?a,b} may stand only at the end"
    if any(len(each.names) > 1 for each in path):
        return "only {?a,b} may have several names"
    if len(set(names)) < len(names):
        return "each name may stand there only once"
    if [each.operator for each in path].count("+") > 1:
        return "{+x} may stand there only once"
    if not all(each.text for each in path[:-1]):
        return "{a} and {b} need text between them"
    return None


def _compile_path(first: str, path: list[_Expression]) -> re.Pattern[str]:
    pattern = re.escape(first)
    for expression in path:
        [name] = expression.names
        text = re.escape(expression.text)
        if expression.operator == "+":
            step = f"(?P<{name}>.+?)"
        elif expression is path[-1]:
            step = f"(?P<{name}>[^/?#]+)"
        else:
            step = f"(?=(?P<{name}>[^/?#]+?){text})(?P={name})"
        pattern += step + text
    return re.compile(pattern, re.DOTALL)


def check_template(template: UriTemplate, signature: Signature) -> None:
    """Raise ValueError for what is no URI, TypeError unless it names the parameters."""
    uri = show(template.template)
    # With values in place of the expressions, it is a URI.
    check_uri(f"resource {uri}", re.sub(_EXPRESSION, r"x\3", template.template))
    names = set(template.names)
    parameters = set(signature.schema["properties"])
    required = set(signature.schema.get("required", ()))
    function = signature.name
    for name in sorted(required - names):
        raise TypeError(
            f"{function}: {name} is not in the URI {uri}; give it a default, or put it there"
        )
    for name in sorted(names - parameters):
        raise TypeError(f"{function}: {name} is in the URI {uri}, but no parameter")
    for name in sorted(required.intersection(template.query)):
        raise TypeError(f"{function}: {name} is in the query, so give it a default")


def prompt_arguments(signature: Signature) -> list[Json]:
    """The arguments of a prompt as lists show them."""
    required = signature.schema.get("required", ())
    return [
        add_given(
            {"name": name},
            description=schema.get("description"),
            required=name in required or None,
        )
        for name, schema in signature.schema["properties"].items()
    ]


def check_plain_function(what: str, fn: Any, *parameters: str) -> None:
    """As check_function, for one that must not be `async def`."""
    import inspect

    check_function(what, fn, *parameters)
    # Of an object that can be called, it is the method.
    for each in (fn, type(fn).__call__):
        if inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each):
            expected = f"{what}: expected a function({', '.join(parameters)})"
            raise TypeError(f"{expected} without async")


def check_function(what: str, fn: Any, *parameters: str) -> None:
    """Raise TypeError unless fn can be called with these."""
    import inspect

    expected = f"{what}: expected a function({', '.join(parameters)})"
    if not callable(fn):
        raise TypeError(f"{expected}, got {show(fn)}")
    try:
        inspect.signature(fn).bind(*parameters)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{expected}: {error}") from None


###############################################################################
# 11. Framing #################################################################
###############################################################################
# Bytes to values and back, no I/O. On a stream, a message is a line
# (basic/transports/stdio.md); over HTTP, it is a body or an event.
class LineFramer:
    """Lines out of bytes that arrive in any pieces. A line over the limit is skipped
    without being kept."""

    def __init__(self, limit: int = MAX_MESSAGE) -> None:
        self.limit = limit
        # The unfinished line; of one over the limit, nothing but its size is kept. In
        # one piece: as many small ones, it would take a multiple of its size.
        self._line = bytearray()
        self._size = 0

    def feed(self, data: bytes) -> list[bytes | None]:
        """The lines that these bytes complete, but for blank ones; None in place of one
        that is too long. b"", the end of the input, completes a line, too."""
        if data:
            *endings, beginning = data.split(b"\n")
        else:
            endings = [b""]
            beginning = b""

        lines: list[bytes | None] = []
        for piece in endings:
            if self._size + len(piece) > self.limit:
                lines.append(None)
            else:
                line = _joined(self._line, piece) if self._size else piece
                if line and not line.isspace():
                    lines.append(line)
            if self._size:
                self._line = bytearray()
                self._size = 0

        self._size += len(beginning)
        if self._size > self.limit:
            self._line = bytearray()
        elif beginning:
            self._line += beginning
        return lines


def _joined(beginning: bytearray, end: bytes) -> bytes:
    """The two in one; mostly there is only the second."""
    if not beginning:
        return end
    beginning += end
    return bytes(beginning)


class EventParser:
    """Server-sent events, as the HTML standard has them, out of bytes in any pieces.

    A client that comes back sends `last_id`, after `retry` seconds, and calls begin().
    """

    def __init__(self, limit: int = MAX_MESSAGE) -> None:
        self.last_id = ""
        self.retry = 1.0
        self._limit = limit
        self.begin()

    def begin(self) -> None:
        """Forget what is unfinished: a stream begins, or begins again."""
        # The unfinished line. CR LF is one end of a line, even in two pieces.
        self._line = bytearray()
        self._after_cr = False
        # The unfinished event: its data with a line end behind each line.
        self._kind = b""
        self._data = bytearray()
        self._next_id = self.last_id

    def kept(self) -> int:
        """How many bytes are kept of what is unfinished."""
        return len(self._line) + len(self._data)

    def feed(self, data: bytes) -> list[tuple[str, bytes]]:
        """The events that these bytes complete: (type, data). Raises ValueError for one
        over the limit."""
        if self._after_cr and data[:1] == b"\n":
            data = data[1:]
        self._after_cr = data[-1:] == b"\r"
        text = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *endings, beginning = text.split(b"\n")

        events = []
        for piece in endings:
            line = _joined(self._line, piece)
            self._line = bytearray()
            if line:
                self._take_line(line)
                continue
            # A blank line ends an event; one without data is none.
            if self._data:
                kind = self._kind.decode("utf-8", "replace") or "message"
                self._data.pop()
                events.append((kind, bytes(self._data)))
            self.last_id = self._next_id
            self._kind = b""
            self._data = bytearray()

        self._line += beginning
        # A line has the name of its field, too: some room for that.
        if len(self._data) > self._limit + 1 or len(self._line) > self._limit + 20:
            raise ValueError(f"an event of more than {self._limit} bytes")
        return events

    def _take_line(self, line: bytes) -> None:
        if line.startswith(_BYTE_ORDER_MARK):
            line = line[len(_BYTE_ORDER_MARK) :]
        # The names of fields are short.
        name = line[:10].partition(b":")[0]
        start = len(name) + 1
        if line[start : start + 1] == b" ":
            start += 1
        # A view: what it shows may be long.
        value = memoryview(line)[start:]
        if name == b"data":
            self._data += value
            self._data += b"\n"
        elif name == b"event":
            self._kind = bytes(value[:MAX_EVENT_ID])
        elif name == b"id" and b"\0" not in line:
            # From behind an id that cannot be sent back, nobody can come back.
            self._next_id = ""
            if len(value) <= MAX_EVENT_ID:
                self._next_id = bytes(value).decode("utf-8", "replace")
        elif name == b"retry" and line[start:].isdigit():
            # In milliseconds. None at all would be a storm.
            milliseconds = max(int(bytes(value[:9])), 20)
            self.retry = min(milliseconds / 1000, SESSION_SECONDS)


# A stream may begin with one.
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


# Mirrored headers, so that a gateway can route and refuse without reading bodies:
# basic/transports/streamable-http.md#request-metadata.
def header_parameters(schema: object) -> list[tuple[list[str], str]]:
    """Which arguments of a tool headers mirror, by its schema: (path, header) each.

    Raises ValueError for a schema that makes the tool invalid.
    """
    parameters: list[tuple[list[str], str]] = []
    names: set[str] = set()
    for node, path in _schema_nodes(schema):
        if "x-mcp-header" not in node:
            continue
        if not path or node.get("type") not in ("string", "integer", "boolean"):
            raise ValueError(
                "x-mcp-header: only for a string, integer or boolean below `properties`"
            )
        name = node["x-mcp-header"]
        valid = isinstance(name, str) and re.fullmatch(HEADER_NAME, name)
        if not valid or name.lower() in names:
            raise ValueError(
                "x-mcp-header: expected a header's name, and each once, "
                f"got {show(name)}"
            )
        if len(parameters) >= MAX_MIRRORED:
            raise ValueError(f"x-mcp-header: more than {MAX_MIRRORED}")
        names.add(name.lower())
        steps = []
        while path:
            path, step = path
            steps.append(step)
        parameters.append((steps[::-1], name))
    return parameters


# RFC 9110 calls it a token.
HEADER_NAME = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"


def _schema_nodes(schema: object) -> Iterator[tuple[Json, Any]]:
    """Every schema in a schema, and its path: a linked pair (outer path, name).

    The names are those of `properties` that lead there; the path is () for the schema
    itself, None where it is reached in another way. "An annotation anywhere else" is
    wrong; but a property with the name x-mcp-header, or a default that looks like a
    schema, is no annotation. Breadth first, so no depth is too much.
    """
    queue: deque[tuple[Any, Any]] = deque([(schema, ())])
    while queue:
        node, path = queue.popleft()
        if not isinstance(node, dict):
            continue
        yield node, path
        for keyword, name, inner in inner_schemas(node):
            inner_path = None
            if keyword == "properties" and path is not None:
                inner_path = (path, name)
            queue.append((inner, inner_path))


def mirrored_headers(
    message: Json, parameters: Callable[[str], list[tuple[list[str], str]]]
) -> Json:
    """What headers mirror of a message: {header: value, or None where it has none}.

    `parameters(tool)` gives a tool's header_parameters().
    """
    row = method_row(message.get("method"))
    params = message.get("params")
    headers: Json = {"Mcp-Method": message.get("method")}
    if not row.mirrored or not isinstance(params, dict):
        return headers

    name = params.get(row.mirrored)
    headers["Mcp-Name"] = name
    arguments = object_or_empty(params.get("arguments"))
    for path, header in parameters(str(name)) if row.mirrors_arguments else ():
        argument = arguments.get(path[0])
        if len(path) > 1:
            # An object may come as JSON in text: see Signature.bind.
            argument = parse_text(argument)
        headers["Mcp-Param-" + header] = member_at(argument, path[1:])
    return headers


def encode_header(value: object) -> str:
    """A value as a header has it; ValueError for one that no header mirrors.

    See basic/transports/streamable-http.md#value-encoding.
    """
    if isinstance(value, float) and value.is_integer():
        # JSON has but one kind of number. "Convert to decimal string representation".
        value = int(value)
    if not isinstance(value, (str, int)):
        raise ValueError(f"expected string, integer or boolean, got {show(value)}")
    # "Integer values MUST be within the safe range for JavaScript"
    if isinstance(value, int) and not -MAX_INTEGER <= value <= MAX_INTEGER:
        raise ValueError(f"expected an integer within 2**53-1, got {show(value)}")

    text = encode_text(value)
    # Printable ASCII that neither begins nor ends with a space goes as it is, unless it
    # looks like what is encoded.
    if _PLAIN_VALUE.fullmatch(text) and not _ENCODED_HEADER.fullmatch(text):
        return text
    return f"=?base64?{_base64(text.encode('utf-8'))}?="


_PLAIN_VALUE = re.compile(r"[!-~]([\t -~]*[!-~])?|")

# The headers that encode_header() is for: elsewhere nobody would decode.
ENCODED_HEADERS = ("Mcp-Name", "Mcp-Param-")


def is_mirrored(text: str, value: object) -> bool:
    """Whether Mcp-Name, or an Mcp-Param, says this value, to whoever reads it."""
    if text == value and text.isascii() and text.isidentifier():
        return True  # as most names do: nothing is encoded in these characters
    told = _decode_header(text)
    if told is None:
        return False
    if isinstance(value, str):
        return told == value
    if isinstance(value, bool):
        return told == encode_json(value)
    # "Servers SHOULD compare the header value and the body value numerically [...]
    # (e.g., 42.0 and 42 are considered equal)". "Integer values MUST be within the safe
    # range for JavaScript": beyond, some take two of them for one.
    number = re.fullmatch(_MIRRORED_INTEGER, told)
    return (
        number is not None
        and isinstance(value, (int, float))
        and abs(value) <= MAX_INTEGER
        and int(number[1]) == value
    )


def _decode_header(text: str) -> str | None:
    """What a header says; None for what says nothing for certain.

    Only what encode_header may make of some text is for certain, and that in base64.
    """
    # "Servers MUST reject requests with a recognized header [...] that contains invalid
    # characters".
    if not _HEADER_VALUE.fullmatch(text):
        return None
    encoded = text.startswith("=?") and _ENCODED_HEADER.fullmatch(text)
    if not encoded:
        return text

    with suppress(ValueError):
        data = _parse_base64(encoded[1])
        # Four ways of writing "YQ==" are decoded alike, by some.
        if _base64(data) == encoded[1]:
            return data.decode("utf-8")
    return None


_HEADER_VALUE = re.compile(r"[\t -~]*")
_ENCODED_HEADER = re.compile(r"=\?base64\?(.*)\?=")
_MIRRORED_INTEGER = r"(-?(?:0|[1-9][0-9]{0,15}))(?:\.0+)?"


# The head of an HTTP request: RFC 9112
class HttpError(InvalidRequest):
    """A request that is refused for its HTTP side; `headers` go into the answer."""

    def __init__(
        self, status: int, message: str, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.http_status = status
        self.headers = headers or {}


# What a request says before its body. The names of `fields` are in lower case; `size`
# is how long the body is, None for one in chunks; `last`: its answer ends the
# connection.
Head = namedtuple("Head", "method target version fields size last")

_REQUEST_LINE = re.compile(rb"([A-Z]+) ([!-~]+) HTTP/(1\.[01])\r\n")
# No control character but the tab.
_FIELD_LINE = re.compile(
    rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([\t\x20-\x7e\x80-\xff]*)\r\n"
)
_CHUNK_LINE = re.compile(rb"([0-9a-fA-F]{1,8})([ \t]*;[\t\x20-\x7e\x80-\xff]*)?\r\n")
# A target that tells the host as well: to a proxy, mostly.
_ABSOLUTE_TARGET = "(?i)https?://([^/?#]+)(.*)"
# Two of one of these, or of what begins with "mcp-", and a proxy may have acted on the
# other one.
_ONCE = (
    "authorization",
    "content-length",
    "content-type",
    "host",
    "origin",
    "sec-fetch-site",
    "transfer-encoding",
)


def parse_head(lines: list[bytes]) -> Head:
    """The head of a request, from its lines, each with its CRLF, the blank one last.

    Raises HttpError for whatever could be read in two ways.
    """
    first = _REQUEST_LINE.fullmatch(lines[0])
    if first is None:
        raise HttpError(400, f"not a request of HTTP/1: {lines[0][:60]!r}")
    method, target, version = map(bytes.decode, first.groups())
    fields = _parse_fields(lines[1:-1])
    if version == "1.1" and "host" not in fields:
        raise HttpError(400, "Host: required, but missing")
    path = _parse_target(target, fields.get("host", ""))
    last = version == "1.0"
    if "connection" in fields:
        options = re.split("[ \t]*,[ \t]*", fields["connection"].lower())
        last = last or "close" in options
    return Head(method, path, version, fields, _parse_size(version, fields), last)


def _parse_target(target: str, host: str) -> str:
    """The path of a request, maybe with a query; or "*", which is about the server."""
    if target.startswith("/") or target == "*":
        return target
    absolute = re.fullmatch(_ABSOLUTE_TARGET, target)
    if absolute is None:
        raise HttpError(400, f"expected a path, got {show(target)}")
    # RFC 9112, section 3.2.2: this host counts, not that of the header. Who has read
    # the other one has seen another request.
    if absolute[1].lower() != host.lower():
        raise HttpError(400, f"Host: {show(host)}, but {show(target)} is asked for")
    path = absolute[2]
    return path if path.startswith("/") else "/" + path


def _parse_fields(lines: list[bytes]) -> dict[str, str]:
    """Header fields by name; what came several times is joined by commas."""
    fields: dict[str, str] = {}
    for line in lines:
        name, value = _parse_field(line)
        if name not in fields:
            fields[name] = value
        elif name in _ONCE or name.startswith("mcp-"):
            raise HttpError(400, f"{name}: came twice")
        else:
            fields[name] += ", " + value
    return fields


def _parse_field(line: bytes) -> tuple[str, str]:
    """A field's name, in lower case, and its value. Raises HttpError."""
    field = _FIELD_LINE.fullmatch(line)
    if field is None:
        raise HttpError(400, f"no header: {line[:60]!r}")
    return field[1].decode("ascii").lower(), field[2].decode("latin-1").strip(" \t")


def _parse_size(version: str, fields: dict[str, str]) -> int | None:
    """How long the body is; None for one in chunks."""
    coding = fields.get("transfer-encoding")
    length = fields.get("content-length")
    # Both a length and chunks, or an unknown coding, are how requests are smuggled.
    if coding is not None and (length is not None or coding.lower() != "chunked"):
        raise HttpError(
            400, "Transfer-Encoding: only chunked, and without Content-Length"
        )
    if coding is not None and version == "1.0":
        # RFC 9112, section 6.1: "MUST treat the message as if the framing is faulty".
        raise HttpError(400, "Transfer-Encoding: unknown to HTTP/1.0")
    if coding is not None:
        return None
    return parse_length("0" if length is None else length)


def parse_length(length: str) -> int:
    """What Content-Length says. Raises HttpError."""
    if not re.fullmatch("[0-9]{1,18}", length):
        raise HttpError(400, f"Content-Length: {show(length)}")
    return int(length)


def parse_chunk_line(line: bytes) -> tuple[int, int]:
    """How long the chunk behind this line is, 0 for the last; and how many bytes of the
    line said something else, which is ignored. Raises HttpError."""
    size = _CHUNK_LINE.fullmatch(line)
    if size is None:
        raise HttpError(400, f"not a chunk's size: {line[:60]!r}")
    return int(size[1], 16), len(size[2] or b"")


def parse_trailer(line: bytes) -> bool:
    """Whether this line ends the body; else it is a trailer, which is ignored. Raises
    HttpError."""
    if line == b"\r\n":
        return True
    _parse_field(line)
    return False


###############################################################################
# 12. Protocol ################################################################
###############################################################################
# One conversation, from one side, without I/O, locks or clocks: what may come now, and
# what it means. A request is registered before anybody works on it, and ends when it is
# popped: where two race, the dict decides, and only the winner speaks.


class Request:
    """One request of the peer's, from its admission to its end.

        admitted (in flight) --respond()---> answered
                           \\--cut_short()--> cancelled, answered or not

    When `cancelled` turns true, each queue in `cancel_inboxes` gets ("cancelled",
    None), and the handler's own functions, the `callbacks`, run.
    """

    modern = False
    # It is a notification of an extension: its handler runs as another's, and there is
    # no answer.
    is_notification = False
    # Its work is to stop: the peer does not want it any more, or somebody else has
    # answered, because its time was over, say.
    cancelled = False
    # The least level of log messages that a modern request wants; "" for none.
    log_level = ""
    # What the peer wants progress told under, and the last value told: it must
    # increase.
    progress_token: RequestId | None = None
    progress = float("-inf")
    # In 2025-03-26: the batch that it came in.
    batch: Batch | None = None
    # What it takes of a budget while it waits for a worker; then that one, by the id of
    # its thread.
    share: Any = None
    worker: int | None = None
    # Over HTTP: who has sent it, that is the claims of the token, if there is one, and
    # the headers, their names in lower case; what its answer is written to; and what is
    # kept for it in bytes, if it lasts longer than its POST.
    auth: Json | None = None
    headers: dict[str, str] = {}
    stream: Any = None
    kept = 0

    def __init__(self, message: Json, session: Protocol, size: int) -> None:
        params = message.get("params")
        if params is None:
            params = {}
        meta = params.get("_meta") if isinstance(params, dict) else params
        if meta is None:
            # Some clients write what they leave out as null.
            meta = {}
        if not isinstance(meta, dict):
            raise InvalidParams(
                f"params and _meta: expected objects, got {show(params)}"
            )
        self.id: RequestId = message["id"]
        self.method: str = message["method"]
        self.params: Json = params
        self.meta: Json = meta
        self.row = METHODS.get(self.method) or session.extension_row(self.method)
        # What errors and the log call it: the tool, resource or prompt, if there is one.
        self.about: str = params.get(self.row.mirrored) or self.method
        # In bytes, as it came; 0 where that is not known.
        self.size = size
        # A modern request brings its own.
        self.version = session.version
        self.capabilities = session.peer_capabilities
        self.client_info = session.peer_info
        self.cancel_inboxes: list[SimpleQueue[Any]] = []
        self.callbacks: list[Job] = []

    def advance(self, progress: float) -> bool:
        """Note what is told of its progress. False if that does not increase."""
        if not progress > self.progress:
            return False
        self.progress = progress
        return True

    def failure(self, error: McpError) -> Json | None:
        """The answer that this error is; None if there must be none."""
        return None if self.is_notification else error_message(self.id, error)


class Waiter:
    """Who waits for what becomes of a request of ours.

        new --request(), hold()--> open --its last answer, abandon(), fail()--> over
                                   ^  |
                                   '--'  an answer that is not the last one

    `inbox` gets any number of ("progress", params, share), by put_bounded(), then one
    ("answer", Answer); or ("cancelled", None) where the wait is to end.

        goes_on(answer)  says of each answer whether it is not the last one: then this
                         stays open, and is asked again, under another id, by request()
        on_end(answer)   is called with the last one, or what stands for it
    Both run on the reading thread, as a rule, so they must not block.
    """

    # It is open, or over.
    begun = False
    # How many more questions the peer may ask while it is open: of a client's calls.
    questions = 0
    # Of the latest request; 0 is nobody's.
    id: RequestId = 0
    # That request may have left, and is not answered.
    sent = False

    def __init__(
        self,
        method: str,
        wants_progress: bool = False,
        *,
        goes_on: Callable[[Answer], bool] | None = None,
        on_end: Callback = None,
    ) -> None:
        self.method = method
        self.wants_progress = wants_progress
        self.goes_on = goes_on
        self.on_end = on_end
        self.inbox: SimpleQueue[Any] = SimpleQueue()

    def finish(self, answer: Answer) -> None:
        """Hand over the last answer. Called once, by whoever has ended this."""
        if self.on_end is not None:
            self.on_end(answer)
        # Without `pending`: no cycle keeps alive what nobody takes.
        self.inbox.put(("answer", Answer(None, answer.result, answer.error)))


def _no_answer(
    waiter: Waiter, seconds: float, is_overdue: bool, details: str
) -> Timeout:
    if is_overdue:
        told = f"{waiter.method}: no answer by the deadline for all of it"
    else:
        told = f"{waiter.method}: no answer within {seconds:g} seconds"
    return Timeout(told, details)


class Batch:
    """Messages that came as one array, and whose answers leave as one: in 2025-03-26.

        being read --the last message was acted on--> complete when no request is open

    What changes is guarded by the connection's lock.
    """

    # Over HTTP, as each Request in it has them.
    stream: Any = None
    auth: Json | None = None
    headers: dict[str, str] = {}

    def __init__(self) -> None:
        self.is_read = False
        self.open: list[Request] = []
        # Encoded; what was cancelled has none.
        self.answers: list[bytes] = []
        # Why a message was refused that has no answer.
        self.refused = ""

    def is_complete(self) -> bool:
        """Whether no more answers will come."""
        return self.is_read and not self.open

    def add(self, request: Request) -> None:
        """Take a request that is in flight; for a notification, nobody will wait."""
        request.auth = self.auth
        request.headers = self.headers
        if not request.is_notification:
            request.batch = self
            request.stream = self.stream
            self.open.append(request)

    def note(self, event: object) -> None:
        """Note why a message was refused, if it was, and has no answer."""
        if isinstance(event, Answer):
            self.refused = self.refused or event.why or ""
        elif isinstance(event, Refusal) and not (event.reply or event.is_late):
            self.refused = self.refused or event.why

    def answer(self, request: Request, answer: bytes | None) -> bytes | None:
        """Take the end of a request, and its answer, if it has one. The answers as one
        array, if none is to come."""
        self.open.remove(request)
        if answer is not None:
            self.answers.append(answer)
        return self.encode_if_complete()

    def encode_if_complete(self) -> bytes | None:
        """The answers as one array. None while one is to come, or if there are none."""
        if not self.is_complete() or not self.answers:
            return None
        return b"[" + b",".join(self.answers) + b"]"


# What else may come. A notification, but for those of extensions, with its row of
# METHODS, and its size as a Request has it.
Notification = namedtuple("Notification", "method params row size")
# An answer to a request of ours, and who is `pending` for it. It has a result or an
# error: the peer's, or one of ours that says why no answer will come; `why` it is not
# valid, if it is not.
Answer = namedtuple("Answer", "pending result error why", defaults=[None])
# What is no message, or may not come now: why, and the reply, if it may have one.
# `is_late`: an answer that nobody waits for any more, which is no fault of the peer's.
Refusal = namedtuple("Refusal", "why reply is_late", defaults=[None, False])

# What every modern request says in `_meta`: basic/index.md#meta.
MODERN_META = (
    Member(META_VERSION, True, str),
    Member(META_CAPABILITIES, True, dict),
    Member(META_CLIENT_INFO, False, dict),
)


def check_modern_version(version: object) -> None:
    """Raise UnsupportedVersion for any other version than those of the modern era."""
    if version not in MODERN_VERSIONS:
        raise UnsupportedVersion(
            f"unsupported protocol version {show(version)}",
            {"supported": list(MODERN_VERSIONS), "requested": version},
        )


class Protocol:
    """One side of a conversation.

    role: "client" or "server"
    capabilities: a function that gives what this side declares now
    extension_row: a function that gives the row of a method that is not in METHODS;
        UNKNOWN for what is no extension's either

    The handshake of the legacy era opens a session: it sets `version`, `peer_info` and
    `peer_capabilities`, then `initialized`. Modern requests leave no trace here but
    that there were some, `met_modern`; a client of the modern era has its `version` set
    when it has found that out.
    """

    version = ""
    initialized = False
    # A modern request has come: what comes without a session is meant to be another.
    met_modern = False
    # What a server has declared in the handshake.
    declared: Json = {}
    # Before logging/setLevel "the server MAY decide".
    log_level = "info"
    # Of our requests.
    _first_id = 1
    _last_id = 0

    def __init__(
        self,
        role: str,
        capabilities: Callable[[], Json],
        extension_row: Callable[[str], Method] = method_row,
    ) -> None:
        self.role = role
        self.capabilities = capabilities
        self.extension_row = extension_row
        self.peer_info: Json = {}
        self.peer_capabilities: Json = {}
        # Our requests that are not answered: id -> who waits. They are registered here
        # before their bytes leave. The peer's: id -> Request.
        self.pending: dict[RequestId | None, Waiter] = {}
        self.in_flight: dict[RequestId, Request] = {}
        self._ids = itertools.count(1)
        # The URIs of resources/subscribe.
        self.subscribed: dict[str, object] = {}

    def number_from(self, first_id: int) -> None:
        """Begin with this id for our requests."""
        self._ids = itertools.count(first_id)
        self._first_id = first_id
        self._last_id = first_id - 1

    def next_id(self) -> int:
        """A new id for a request of ours."""
        # Not by way of self: another thread's would come between.
        new_id = next(self._ids)
        self._last_id = new_id
        return new_id

    def receive(
        self, message: Any, size: int = 0
    ) -> Request | Notification | Answer | Refusal:
        """Judge one decoded message, which had so many bytes. A Request that is
        returned is in flight."""
        try:
            kind = check_envelope(message)
            if kind == "request":
                return self._receive_request(message, size)
            if kind == "notification":
                return self._receive_notification(message, size)
            return self._receive_response(message)
        except McpError as error:
            return self.refuse(object_or_empty(message), error)

    def refuse(self, message: Json, error: McpError) -> Answer | Refusal:
        """What to make of a message that is not as it should be."""
        known_id = message["id"] if is_id(message.get("id")) else None
        if "method" not in message and ("result" in message or "error" in message):
            # An answer is never answered; but if it says whose it is, nobody waits on.
            pending = self.pending.pop(known_id, None)
            if pending is None:
                return Refusal(str(error))
            invalid = InternalError(f"not a valid answer: {error}")
            return Answer(pending, None, invalid, str(error))

        is_notification = "id" not in message and isinstance(message.get("method"), str)
        if is_notification or not self._may_answer():
            # Nor is a notification answered.
            return Refusal(str(error))
        if known_id in self.in_flight:
            # An error with this id would answer the request that is in flight.
            known_id = None
        return Refusal(str(error), error_message(known_id, error))

    def _may_answer(self) -> bool:
        """Whether this side answers requests at all: a client does in a session only.

        In the modern era "the client MUST NOT send JSON-RPC _responses_".
        """
        if self.role == "server":
            return True
        if self.version:
            return self.version < FIRST_MODERN
        # It is being agreed on; who was sent `initialize` may ping.
        waiters = list(self.pending.values())
        return any(method_row(waiter.method).handshake for waiter in waiters)

    def _receive_request(self, message: Json, size: int) -> Request:
        request = Request(message, self, size)
        self._admit(request)
        if self.in_flight.setdefault(request.id, request) is not request:
            raise InvalidRequest(f"id {show(request.id)} is in flight already")
        if request.row.handshake:
            self._open_session(request)
        return request

    def _admit(self, request: Request) -> None:
        """Check that this may come now: era, lifecycle, revision, sender, method,
        capability, parameters."""
        row = request.row
        if self.role == "client":
            self._check_moment(request)
        # basic/versioning.md: "A request carrying modern per-request `_meta` is served
        # statelessly". What only that era has wants it.
        meta = request.meta
        if (
            META_VERSION in meta
            or META_CAPABILITIES in meta
            or row.since >= FIRST_MODERN
        ):
            self._admit_modern(request)
        elif self.role == "server" and not self.version and not row.early:
            if self.met_modern:
                # "A request missing any required field is malformed; the server MUST
                # reject it with JSON-RPC error code -32602".
                check_members(MODERN_META, meta, "_meta.")
            name = show_method(request.method)
            raise InvalidRequest(
                f"{name}: not initialized; initialize, or send {NEWEST} _meta"
            )

        version = request.version or OLDEST
        is_request = row.kind in REQUESTS
        if not is_request or row.sender == self.role or not row.is_in(version):
            name = show_method(request.method)
            raise MethodNotFound(f"{name}: no request to a {self.role} in {version}")
        if row.capability and not has_capability(self.capabilities(), row.capability):
            needed = ".".join(row.capability)
            raise row.undeclared(
                f"{request.method}: this {self.role} did not declare {needed}"
            )

        if row.extension:
            self._check_extension(request)
        token = meta.get("progressToken")
        if token is not None and not is_id(token):
            raise InvalidParams(f"_meta.progressToken: {_ID_TEXT}, got {show(token)}")
        request.progress_token = token
        check_members(row.params, request.params)
        if row.handshake:
            self._check_handshake(request)

    @staticmethod
    def _check_extension(request: Request) -> None:
        """Raise MissingCapability unless the sender declared what the method is of.

        "If one party supports an extension but the other does not, the supporting party
        MUST either revert to core protocol behavior or reject the request with an
        appropriate error": basic/versioning.md.
        """
        name = request.row.extension
        if not has_extension(request.capabilities, name, request.version):
            raise MissingCapability(
                f"{request.method} is of the extension {name}, which the client did "
                "not declare",
                {"requiredCapabilities": {"extensions": {name: {}}}},
            )

    def _check_moment(self, request: Request) -> None:
        """Raise InvalidRequest if a server may send no requests, or not yet."""
        name = show_method(request.method)
        if not self._may_answer():
            raise InvalidRequest(f"{name}: servers send no requests outside a session")
        if not (self.initialized or request.row.early):
            # lifecycle: "SHOULD NOT send requests other than pings and logging before".
            raise InvalidRequest(f"{name}: not before notifications/initialized")

    def _admit_modern(self, request: Request) -> None:
        """Take what a modern request says of itself in `_meta`."""
        meta = request.meta
        check_members(MODERN_META, meta, "_meta.")
        version = meta[META_VERSION]
        check_modern_version(version)
        level = meta.get(META_LOG_LEVEL, "")
        if level != "" and level not in LOG_LEVELS:
            raise InvalidParams(
                f"_meta.{META_LOG_LEVEL}: {LEVELS_TEXT}, got {show(level)}"
            )
        self.met_modern = True
        request.modern = True
        request.version = version
        request.log_level = level
        request.capabilities = meta[META_CAPABILITIES]
        request.client_info = meta.get(META_CLIENT_INFO) or {}

    def _check_handshake(self, request: Request) -> None:
        if self.version:
            raise InvalidRequest(f"{request.method}: the session is open")
        # It is kept as long as the session.
        for name in ("clientInfo", "capabilities"):
            if footprint(request.params[name]) > MAX_INFO // 2:
                raise InvalidParams(
                    f"{name}: expected at most {MAX_INFO // 2} bytes of memory"
                )

    def _open_session(self, request: Request) -> None:
        """Take what the client says in `initialize`."""
        # "MUST respond with the same version. Otherwise [...] another": the latest that
        # has a handshake.
        version = request.params["protocolVersion"]
        if version not in LEGACY_VERSIONS:
            version = LAST_LEGACY
        self.version = request.version = version
        self.peer_capabilities = request.capabilities = request.params["capabilities"]
        self.peer_info = request.client_info = request.params["clientInfo"]

    def _receive_notification(self, message: Json, size: int) -> Notification | Request:
        method = message["method"]
        params = message.get("params")
        row = METHODS.get(method) or self.extension_row(method)
        if params is not None and not isinstance(params, dict):
            raise InvalidParams(
                f"{show_method(method)}: params: expected object, got {show(params)}"
            )
        if row.kind == "request" or row.sender == self.role:
            raise InvalidRequest(
                f"{show_method(method)} is no notification to a {self.role}"
            )
        if row.kind in REQUESTS:
            # Of an extension. It has an id that no other has, for it is in flight, too.
            request = Request({**message, "id": object()}, self, size)
            request.is_notification = True
            self._admit(request)
            self.in_flight[request.id] = request
            return request
        if row.handshake:
            self.initialized = bool(self.version)
        return Notification(method, params or {}, row, size)

    def _receive_response(self, message: Json) -> Answer | Refusal:
        answer_id = message.get("id")
        pending = self.pending.pop(answer_id, None)
        if pending is None:
            # Late, twice, or to nobody. "The sender of the cancellation notification
            # SHOULD ignore any response to the request that arrives afterward".
            was_asked = (
                type(answer_id) is int and self._first_id <= answer_id <= self._last_id
            )
            why = f"an answer to no open request: {show(message, 200)}"
            return Refusal(why, None, was_asked)
        if "error" in message:
            return Answer(pending, None, McpError.from_wire(message["error"]))
        return Answer(pending, message["result"], None)

    def end(self, request: Request) -> bool:
        """Take a request out of flight. Only who gets True may still speak about it."""
        # Its id may be another request's by now.
        if self.in_flight.get(request.id) is not request:
            return False
        return self.in_flight.pop(request.id, None) is request


###############################################################################
# 13. Budgets #################################################################
###############################################################################
# What may be kept, or wait, for somebody: counted in bytes, and bounded. A Budget counts
# what is there, a Share goes with what it was taken for, an Outbox has the lines that
# wait to be written. Knows nothing of messages.
class Budget:
    """What may be had at once, bytes mostly: of a session, of who asks, of them all.

    What is taken here counts as taken from the `parent`, too. A `fair` one gets no more
    than it leaves there: alone, it has a half of its parent's; the more others want,
    the less; and for who comes next there is always something left. A whole tree has
    one lock, that of its root. It, and no other, may be taken while another one is
    held: nothing else is done under it.
    """

    taken = 0
    _closed = False

    def __init__(
        self, limit: int, parent: Budget | None = None, *, fair: bool = False
    ) -> None:
        self.limit = limit
        self.parent = parent
        self.fair = fair
        self._lock: threading.Lock = parent._lock if parent else threading.Lock()

    def take(self, size: int) -> bool:
        """Count what is to be kept. False, and nothing is counted, if it is too much,
        here or further up."""
        with self._lock:
            if not self._has_room_locked(size):
                return False
            self._add_locked(size)
        return True

    def has_room(self, size: int) -> bool:
        """Whether so much could be taken now."""
        with self._lock:
            return self._has_room_locked(size)

    def overdraw(self, size: int) -> None:
        """Count what is kept in any case; until it is gone, nothing can be taken."""
        with self._lock:
            self._add_locked(size)

    def give_back(self, size: int) -> None:
        """Count as gone what was taken before."""
        with self._lock:
            self._add_locked(-size)

    def close(self) -> None:
        """Count all as gone, and nothing any more: whoever kept it has ended."""
        with self._lock:
            self._add_locked(-self.taken)
            self._closed = True

    def _has_room_locked(self, size: int) -> bool:
        budget: Budget | None = self
        while budget is not None:
            wanted = budget.taken + size
            parent = budget.parent
            if wanted > budget.limit:
                return False
            if budget.fair and parent and wanted > parent.limit - parent.taken:
                return False
            budget = parent
        return True

    def _add_locked(self, size: int) -> None:
        if self._closed:
            return
        budget: Budget | None = self
        while budget is not None:
            budget.taken += size
            budget = budget.parent


class SharedBudget(Budget):
    """A Budget for what may be dropped, or forgotten: see Share."""

    # How many shares were refused since somebody asked.
    _refused = 0

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        # What was left of shares, by any thread, and not counted as gone yet.
        self._left: deque[int] = deque()

    def share(self, size: int) -> Share | None:
        """Take it for something that gives it back by itself. None if it is too much."""
        while self._left:
            with suppress(IndexError):
                self.give_back(self._left.popleft())
        if self.take(size):
            return Share(self._left, size)
        with self._lock:
            self._refused += 1
        return None

    def count_refused(self) -> int:
        """How many shares were refused since this was asked last."""
        with self._lock:
            refused = self._refused
            self._refused = 0
        return refused


class Share:
    """A part of a SharedBudget, kept beside what it was taken for, and gone with that.

    So it is given back whether that is taken out, dropped, or left in a queue that
    nobody reads any more.
    """

    __slots__ = ("_left", "_size")

    def __init__(self, left: deque[int], size: int) -> None:
        self._left = left
        self._size = size

    def end(self) -> None:
        """Give it back now: PyPy is late to notice that nothing has it any more."""
        if self._size:
            # As __del__ this may run anywhere, also where the budget's lock is held.
            self._left.append(self._size)
            self._size = 0

    __del__ = end


def do_with(share: Share, job: Job) -> None:
    """A job that has its share as long as it waits, or runs."""
    try:
        job()
    finally:
        share.end()


def put_bounded(
    inbox: SimpleQueue[Any], kind: str, item: object, size: int, budget: SharedBudget
) -> int:
    """Put (kind, item, its share of the budget), never blocking.

    While MAX_QUEUED wait, or there is no room, the oldest that came this way is
    dropped; and the item itself when none is left. Returns how many were.
    """
    dropped = 0
    share = None
    while inbox.qsize() >= MAX_QUEUED or not (share := budget.share(size)):
        dropped += 1
        try:
            oldest = inbox.get_nowait()
        except Empty:
            return dropped
        if len(oldest) == 2:
            # It says how this ends: that stays, and nobody wants what comes after it.
            inbox.put(oldest)
            return dropped
        # Before there is another look.
        oldest[2].end()
    inbox.put((kind, item, share))
    return dropped


class Droppable(bytes):
    """A line that goes first where too many wait."""


class ChangeLine(bytes):
    """A line that says that something has changed. While it waits, it says so of what
    changes next, too, and is not queued again: so the changes that nobody reads take no
    more room than what has changed."""


class Outbox:
    """Lines that wait to be written: under no lock, and by one thread at a time.

    What others add meanwhile that thread writes next, all in one: so nobody waits for a
    turn, and a burst is few writes. What changes is guarded by `_lock`, its owner's.
    """

    # What the lines take, in bytes.
    size = 0
    # A thread is writing.
    _writing = False

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self._lines: list[bytes] = []
        # Of those, the changes behind which nothing waits that may show how it was
        # before: an answer.
        self._changes: set[bytes] = set()

    def count(self) -> int:
        """How many lines wait."""
        return len(self._lines)

    def is_idle(self) -> bool:
        """Whether all is written."""
        return not (self._writing or self._lines)

    def add_locked(self, data: bytes) -> int:
        """Queue a line. Returns how many were dropped for it, maybe itself."""
        droppable = type(data) is Droppable
        if type(data) is ChangeLine:
            if data in self._changes:
                return 0
            self._changes.add(data)
        elif not droppable:
            self._changes.clear()
        dropped = 0
        size = len(data) + LINE_COST
        if len(self._lines) >= MAX_QUEUED or self.size + size > MAX_UNSENT:
            kept = [line for line in self._lines if type(line) is not Droppable]
            dropped = len(self._lines) - len(kept)
            self._lines = kept
            self.size = sum(len(line) + LINE_COST for line in kept)
            if droppable and self.size + size > MAX_UNSENT:
                return dropped + 1
        self._lines.append(data)
        self.size += size
        return dropped

    def take_locked(self) -> list[bytes]:
        """The lines that wait: they do not wait any more."""
        lines = self._lines
        self._lines = []
        self._changes.clear()
        self.size = 0
        return lines

    def flush(
        self,
        write: Callable[[list[bytes]], None],
        may_write: Callable[[int], bool] | None = None,
    ) -> bool:
        """Have write(lines) write what waits; or leave it to the thread that is writing
        just now. It answers for itself.

        False if something is left because may_write(its size) has said no.
        """
        while self._lines:
            size = self.size
            if may_write is not None and not may_write(size):
                return self._writing
            with self._lock:
                # Another thread may have taken it since.
                if self._writing or not self._lines:
                    return True
                if may_write is not None and self.size > size:
                    continue
                lines = self.take_locked()
                self._writing = True
            try:
                write(lines)
            finally:
                with self._lock:
                    self._writing = False
        return True


###############################################################################
# 14. Waits ###################################################################
###############################################################################
# Waits that end in time: for what another thread puts, for a condition, for a stream;
# timers; and the signals that end them all. Knows nothing of messages.
def get_within(inbox: SimpleQueue[Any], seconds: float | None) -> Any:
    """Block for the next item. Raises Empty after `seconds`; None waits without end.

    It ends in time, which inbox.get(timeout=seconds) does not promise; and Ctrl-C ends
    it at once, or at worst within WAIT_SLICE. With 0 seconds, or fewer, it takes what
    is there.
    """
    until = time.monotonic() + (float("inf") if seconds is None else seconds)
    while True:
        # Up to Python 3.12, get(timeout=) may hang, unless this went before.
        try:
            return inbox.get_nowait()
        except Empty:
            left = until - time.monotonic()
        if left <= 0:
            raise Empty
        with suppress(Empty):
            return inbox.get(timeout=min(left, WAIT_SLICE))


def renew_deadline(until: float, seconds: float) -> float:
    """A deadline; if it is over, one in so many seconds from now."""
    now = time.monotonic()
    return until if now < until else now + seconds


def wait_until(condition: Callable[[], Any], seconds: float) -> bool:
    """Block until condition() is true, for `seconds` at most. Returns whether it is.

    It looks every 2 ms, later on every 20: for endings, where nobody is in a hurry any
    more, and a signal would have to be sent by every request, as each may be the last.
    """
    until = time.monotonic() + seconds
    pause = 0.002
    while not condition():
        if time.monotonic() >= until:
            return False
        # When Python ends, Windows lets nobody sleep any more.
        with suppress(OSError):
            time.sleep(pause)
        pause = min(pause * 1.1, 0.02)
    return True


def join_all(threads: Iterable[threading.Thread], seconds: float) -> bool:
    """Block until these threads have ended, for `seconds` in all. Returns whether.

    One that another thread is just about to start counts as ended. When Python ends, as
    in a __del__ that closes something, no thread runs any more: then nobody waits.
    """
    until = time.monotonic()
    if not sys.is_finalizing():
        until += seconds
    threads = list(threads)
    for thread in threads:
        with suppress(RuntimeError):  # not started yet
            thread.join(max(0.0, until - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)


def start_timer(
    seconds: float, job: Callable[..., Any], *arguments: object
) -> threading.Timer:
    """Have a thread of its own call job(*arguments) in `seconds`.

    The handle that it returns can cancel() what has not begun, and join() what has. It
    does not keep Python from ending.
    """
    timer = threading.Timer(seconds, job, arguments)
    timer.name = "mcp-timer"
    timer.daemon = True
    timer.start()
    return timer


def is_ready(stream: Any, writing: bool = False) -> bool:
    """Whether a read (or, except on Windows, a write) would not block, if only to fail.

    Takes a pipe or socket, or its descriptor.
    """
    try:
        import select
    except ImportError:
        return False  # Python ends, and this is for a __del__

    try:
        if not hasattr(select, "poll"):
            return bool(select.select([stream], [], [], 0)[0])
        poll = select.poll()
        poll.register(stream, select.POLLOUT if writing else select.POLLIN)
        return bool(poll.poll(0))
    except (OSError, ValueError):
        return True  # it is closed: the next call says so


def is_broken(stream: Any) -> bool:
    """Whether nobody is left to read what is written to a pipe or socket. Not always
    seen: not on Windows, not of what has no descriptor."""
    import select

    if not hasattr(select, "poll"):
        return False
    try:
        poll = select.poll()
        # Asked for nothing, macOS would tell nothing.
        poll.register(stream, select.POLLOUT)
        # Not POLLNVAL: macOS has no polls of some devices.
        gone = select.POLLERR | select.POLLHUP
        return any(state & gone for _, state in poll.poll(0))
    except (OSError, ValueError, TypeError):
        return False


def shut(sock: Socket, how: int = 2) -> None:
    """End a connection under who reads from it (0), writes to it (1), or either (2).

    On Windows only the last one wakes who waits there already.
    """
    import socket

    # Not sock.shutdown(): that of TLS would take the session from under its reader.
    with suppress(OSError):
        socket.socket.shutdown(sock, how)
    if how == 2:
        wake(sock)


# What Windows wants besides: nobody who waits for a socket hears there that it is shut.
# And nobody can close or duplicate a file while a thread is in a read or write of it: the
# C runtime has locked the descriptor. So the read or write is ended by itself.
@lru_cache(None)
def windows_kernel() -> Any:
    """What Windows does for those who ask it by ctypes; None elsewhere."""
    if sys.platform != "win32":
        return None
    import ctypes

    kernel = ctypes.WinDLL("kernel32")
    for name, count in _KERNEL_ARGUMENTS.items():
        function = getattr(kernel, name)
        # Handles are as long as pointers, and what else there is may be so, too.
        function.argtypes = [ctypes.c_void_p] * count
        function.restype = ctypes.c_void_p
    return kernel


_KERNEL_ARGUMENTS = {
    "AssignProcessToJobObject": 2,
    "CancelIoEx": 2,
    "CancelSynchronousIo": 1,
    "CloseHandle": 1,
    "CreateJobObjectW": 2,
    "OpenThread": 3,
    "TerminateJobObject": 2,
}


def wake(sock: Socket) -> None:
    """Have who waits for a socket that was shut hear of it: on Windows; elsewhere they
    have."""
    kernel = windows_kernel()
    if kernel is not None:
        kernel.CancelIoEx(sock.fileno(), None)


class Interruptible:
    """What threads do with a file that may be closed under them. On Windows, those that
    are in a read or write of it are made to leave that first."""

    def __init__(self) -> None:
        # Not later: in a __del__ as Python ends, nothing can be imported.
        self._kernel = windows_kernel()
        self._lock = threading.Lock()
        # By native id; guarded by _lock, as _is_over is.
        self._inside: set[int] = set()
        self._is_over = False

    def wrap(self, call: Function) -> Function:
        """A read or write, as threads are to call it; elsewhere just as it is."""
        wrapped: Any = partial(self._enter, call)
        return call if self._kernel is None else wrapped

    def _enter(self, call: Callable[..., Any], *arguments: object) -> Any:
        me = threading.get_native_id()
        with self._lock:
            if self._is_over:
                raise ValueError("the stream is closed")
            self._inside.add(me)
        try:
            return call(*arguments)
        finally:
            with self._lock:
                self._inside.discard(me)

    def interrupt(self) -> None:
        """Have those inside leave, by an OSError, and let nobody in any more. Blocks
        until they have left, for TIDY_SECONDS at most."""
        with self._lock:
            self._is_over = True
        wait_until(self._is_left, TIDY_SECONDS)

    def _is_left(self) -> bool:
        # Under the lock: so it is this call that ends, and not one after it. Again and
        # again: a thread may be inside, and not yet in the system.
        with self._lock:
            for each in self._inside:
                thread = self._kernel.OpenThread(1, 0, each)
                self._kernel.CancelSynchronousIo(thread)
                self._kernel.CloseHandle(thread)
            return not self._inside


def on_main_thread() -> bool:
    """Whether Ctrl-C may interrupt what runs now: see Errands."""
    return threading.current_thread() is threading.main_thread()


class StopSignals:
    """Ctrl-C and SIGTERM (Ctrl-Break) as run() takes them, while it is inside of this.

        RUNNING --the first signal--> TOLD to stop --a second one--> HURRIED

    TOLD, it lets what runs come to an end, for a while; HURRIED, it waits for nothing
    any more. A third one does what it would have done before. They raise nothing, so no
    step of ours is torn apart: the handler puts STOP into the inbox, in which run()
    looks.

    Only on the main thread: elsewhere Python hears no signals. Only those signals that
    the program has left as they were: a handler of its own, also one that ignores them,
    is what it wants to be called. All is put back afterwards.
    """

    STOP = "stop"

    def __init__(self) -> None:
        self.inbox: SimpleQueue[str] = SimpleQueue()
        # The names of those that came.
        self.came: list[str] = []
        # What they did before, by number.
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        if not on_main_thread():
            return self
        import signal

        defaults = {
            signal.SIGINT: signal.default_int_handler,
            signal.SIGTERM: signal.SIG_DFL,
            # Ctrl-Break: on Windows nobody sends SIGTERM.
            getattr(signal, "SIGBREAK", signal.SIGTERM): signal.SIG_DFL,
        }
        for number, default in defaults.items():
            # ValueError: an interpreter beside the main one.
            with suppress(ValueError):
                if signal.getsignal(number) == default:
                    self._before[number] = default
                    signal.signal(number, self._take)
        return self

    def __exit__(self, *exc_info: object) -> None:
        import signal

        while self._before:
            signal.signal(*self._before.popitem())

    def _take(self, number: int, frame: object) -> None:
        import signal

        self.tell(signal.Signals(number).name)
        if self.hurried:
            self.__exit__()

    def tell(self, name: str) -> None:
        """Take a signal that came in another way, as KeyboardInterrupt."""
        self.came.append(name)
        self.inbox.put(self.STOP)

    @property
    def hurried(self) -> bool:
        """Whether nothing is to be waited for any more."""
        return len(self.came) > 1


###############################################################################
# 15. Threads #################################################################
###############################################################################
# Threads that come when there is work and go when there is none, what is done on one for
# another, and the way to Python's logging. Knows nothing of messages.
def do_nothing(*ignored: object) -> None:
    """What is done where nothing is to be done, by a worker's job, say."""


class Workers:
    """Threads that do jobs: at most `limit`, started when needed, gone when long idle.

    The life of a worker:

        called: started, or woken --> ON ITS WAY --has looked in--> RUNNING
        RUNNING --no job is left--> IDLE --called--> ON ITS WAY
        IDLE --not called for `patience` seconds, or closed--> gone

    The policy: few threads work off a burst, because a burst's answers then share one
    write. So while one worker is on its way, no second one is called; once it has
    looked in, it calls the next if there are more jobs. `_call_one_locked` chooses; but
    that one at most is on its way, `nudge`, `_start`, `_run` and `_is_called` rely on,
    too: another policy would change what `_on_its_way` means to them.

    How a worker is called: it waits for its bell, a lock, by acquiring it. The bell is
    released exactly once for each call, and acquired exactly once. The first call is
    the start. Later, who takes the bell off `_idle` calls, and nobody else does.

    `between()` is for that write: a worker calls it when it has looked in, and after
    each job, unless another worker is on its way, which will.
    """

    def __init__(
        self,
        name: str,
        limit: int,
        between: Job,
        log: _Log | None,
        patience: float = IDLE_SECONDS,
        *,
        daemon: bool = True,
    ) -> None:
        self.name = name
        self.limit = limit
        self._at_once = limit
        self.between = between
        self._report = log.error if log is not None else do_nothing
        self._patience = patience
        # Python ends without waiting for them.
        self._daemon = daemon
        # What follows is guarded by _lock.
        self._lock = threading.Lock()
        self._backlog: deque[Job] = deque()
        self._threads: set[threading.Thread] = set()
        # The ids of those at work on what nobody waits for any more: others take their
        # places.
        self._abandoned: set[int] = set()
        # The bells of the IDLE workers, the latest one last. So the caller can choose,
        # and it chooses the latest, which is still warm; a queue or condition for all
        # would wake the one that has waited longest, and so keep alive more than are
        # needed. Nor is any wait cheaper.
        self._idle: list[threading.Lock] = []
        # One, and never a second one, is ON ITS WAY.
        self._on_its_way = False
        # No more jobs are taken.
        self.closed = False
        # The last one could not be started.
        self._lacks_threads = False

    def __len__(self) -> int:
        """How many jobs wait."""
        return len(self._backlog)

    def submit(self, *jobs: Job) -> None:
        """Have workers do these. Never blocks. After close() they are dropped."""
        with self._lock:
            if not self.closed:
                self._backlog += jobs
            newcomer = self._call_one_locked()
        if newcomer is not None:
            self._start(newcomer)

    def queue_end(self) -> threading.Event:
        """What is set when the jobs that wait now are done: where there is one worker,
        they are done in order."""
        done = threading.Event()
        self.submit(done.set)
        return done

    def nudge(self) -> None:
        """Have a worker come by, for its between(). Never blocks."""
        # One that is on its way will do: its between() is still to come.
        if not self._on_its_way:
            self.submit(do_nothing)

    def allow(self, at_once: int) -> None:
        """Have no more than so many at work from now on. Never blocks."""
        self._at_once = at_once
        self.retry()

    def oldest(self) -> Job | None:
        """The job that waits longest."""
        with suppress(IndexError):
            return self._backlog[0]
        return None

    def retry(self) -> None:
        """Have a worker come to jobs that wait, should there have been no thread for
        one. Never blocks."""
        self.submit()

    def _call_one_locked(self) -> threading.Thread | None:
        """The policy: whether a worker is called to the backlog, and which one.

        An idle one is woken here; a new one is returned, to be started without the
        lock.
        """
        if self._on_its_way or not self._backlog:
            return None
        if self._count_busy_locked() >= self._at_once:
            return None
        if self._idle:
            self._on_its_way = True
            self._idle.pop().release()
            return None
        if self._count_locked() >= self.limit:
            return None
        self._on_its_way = True
        newcomer = threading.Thread(
            target=self._run,
            args=(sys.stdin,),
            name=self.name,
            daemon=self._daemon,
        )
        self._threads.add(newcomer)
        return newcomer

    def _count_busy_locked(self) -> int:
        """How many of them are at work, or on their way."""
        return self._count_locked() - len(self._idle)

    def _count_locked(self) -> int:
        """How many threads there are, but for some MAX_ABANDONED."""
        return len(self._threads) - min(len(self._abandoned), MAX_ABANDONED)

    def abandon(self, worker: int) -> None:
        """Give the place of a worker, by its thread's id, to another one: nobody waits
        for its job any more."""
        with self._lock:
            if worker not in {thread.ident for thread in self._threads}:
                return
            self._abandoned.add(worker)
        self.retry()

    def _start(self, newcomer: threading.Thread) -> None:
        try:
            if sys.is_finalizing():
                # Older Pythons would wait for ever until it has begun.
                raise RuntimeError("no thread runs any more: Python ends")
            newcomer.start()
            self._lacks_threads = False
        except RuntimeError as error:
            # There is no thread to be had: those that live will come to the job, or
            # one that retry() starts.
            with self._lock:
                self._on_its_way = False
                self._threads.discard(newcomer)
                is_known = self._lacks_threads
                self._lacks_threads = True
            # Once, however often it is tried.
            if not is_known:
                self._report(f"{self.name}: {error}")

    def _run(self, kept: object) -> None:
        # A job may be in input() when the program ends. If stdin was freed then, its
        # buffer would find itself locked, and abort Python. This thread stays where it
        # is, and what it has got is not freed.
        # It rings at first: to be started is to be called.
        bell = threading.Lock()
        while self._is_called(bell):
            self._do(self.between)
            while (job := self._next(bell)) is not None:
                self._do(job)
                # An idle worker keeps nothing alive.
                del job
                if not self._on_its_way:
                    self._do(self.between)

    def _do(self, job: Job) -> None:
        try:
            job()
        except BaseException as error:
            # A job answers for itself: what escapes it is a fault of ours, or of the
            # transport that between() writes to. No worker goes for that.
            self._report(f"{self.name}: a job failed: {error_text(error)}", error)

    def _is_called(self, bell: threading.Lock) -> bool:
        """Wait until the bell rings. False when this worker may go."""
        has_rung = bell.acquire(timeout=self._patience)
        me = threading.current_thread()
        with self._lock:
            if me not in self._threads:
                return False  # it was one too many
            uncalled = bell in self._idle
            if uncalled:
                self._idle.remove(bell)
            if uncalled or (self.closed and not self._backlog):
                self._threads.discard(me)
                return False
            self._on_its_way = False
        if not has_rung:
            # 1. Its patience ended.
            # 2. Before it had the lock, a caller took its bell off `_idle`: it rings.
            # 3. It had the lock, and saw that it was called: it stays.
            # 4. So this ring is to be acquired: left, it would end the next wait.
            bell.acquire()
        return True

    def _next(self, bell: threading.Lock) -> Job | None:
        """The next job. None when there is none: this worker is among the idle then; or
        it goes, because another one has taken its place."""
        with self._lock:
            if self._abandoned and self._is_replaced_locked():
                bell.release()
                return None
            is_surplus = self._count_busy_locked() > self._at_once and not self.closed
            if is_surplus or not self._backlog:
                if self.closed:
                    # Nobody else will call: it calls itself, to see that it may go.
                    bell.release()
                else:
                    self._idle.append(bell)
                return None
            job = self._backlog.popleft()
            newcomer = self._call_one_locked()
        if newcomer is not None:
            self._start(newcomer)
        return job

    def _is_replaced_locked(self) -> bool:
        """Whether this worker was abandoned, and another one has taken its place."""
        self._abandoned.discard(threading.get_ident())
        if self._count_locked() <= self.limit:
            return False
        self._threads.discard(threading.current_thread())
        return True

    def close(self, seconds: float) -> bool:
        """Take no more jobs, and block until those that wait are done; see join_all.

        Idempotent, from any thread; a worker that calls this does not wait for itself.
        """
        with self._lock:
            self.closed = True
            others = self._threads - {threading.current_thread()}
            while self._idle:
                self._idle.pop().release()
        # So that no cycle keeps alive whose method it was.
        self.between = do_nothing
        return join_all(others, seconds)


def is_of_signal(error: BaseException) -> bool:
    """Whether it was raised for Ctrl-C, or by the program's handler of a signal: by its
    sys.exit(), say. Python calls that on the main thread, in whichever job runs there.
    """
    import signal

    if isinstance(error, KeyboardInterrupt):
        return True
    handlers = map(signal.getsignal, signal.valid_signals())
    codes = {getattr(handler, "__code__", None) for handler in handlers}
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code not in codes:
        trace = trace.tb_next
    return trace is not None


class Slot:
    r"""A job for another thread, and the wait for what becomes of it.

        waiting --run()--> running --> over
               \--run(error)--> over
                \--give_up()--> never done

    What becomes of it travels in a queue of our own: a host's loop may swallow what a
    job returns or raises.
    """

    # (value, None), or (None, exception), once that was taken from the queue.
    _end: Any = None

    def __init__(self, job: Job) -> None:
        # Empty when it has begun: who pops it does it, or sees to it that nobody does.
        self._jobs = [job]
        self.outcome: SimpleQueue[Any] = SimpleQueue()

    def give_up(self) -> bool:
        """See to it that nobody does the job. False if it has begun."""
        with suppress(IndexError):
            self._jobs.pop()
            return True
        return False

    def run(self, refused: Exception | None = None) -> None:
        """Do the job, unless it has begun; or take the reason why nobody will."""
        try:
            job = self._jobs.pop()
        except IndexError:
            return
        try:
            if refused is not None:
                raise refused
            self.outcome.put((job(), None))
        except BaseException as error:
            self.outcome.put((None, error))
            # It is also for who has called this, a host say; but errands go on.
            if on_main_thread() and is_of_signal(error):
                raise

    def wait(self, seconds: float | None) -> bool:
        """Block until it is over, for `seconds` at most; None waits without end."""
        with suppress(Empty):
            self._end = get_within(self.outcome, seconds)
        return self._end is not None

    def value(self) -> Any:
        """Block for what the job returns, and raise what it raises."""
        if self._end is None:
            self.wait(None)
        value, error = self._end
        if error is not None:
            raise error
        return value


class Errands:
    """What the main thread has done by a thread that no signal interrupts.

    Python calls the handlers of signals on the main thread, between any two of its
    steps: so there, Ctrl-C may raise KeyboardInterrupt between a flag and the `try`
    that would take it back; in some versions even at the end of a `with`, before the
    lock is released. A program that goes on would find it set for ever. No order of
    statements helps. So what others rely on, the main thread does not change by itself:

        main thread                        errands
        puts the job into a queue,
        in one step, a call of C    --->   does it, all of it
        waits, and may be interrupted      and goes on

    Interrupted before, the job was never given; interrupted after, it is done as if
    nothing had happened. Other threads are not interrupted, and do such jobs at once.

    The thread is started by the first job. Should Ctrl-C come then, the next one starts
    another: two do no harm, but that two jobs may change places.
    """

    # Between two looks whether there still is a thread.
    LOOK_SECONDS = 1.0

    _thread: threading.Thread | None = None
    _closed = False

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()

    def run(self, job: Job) -> Any:
        """Do a job, or on the main thread have it done, and block until it is.

        Returns what it returns, and raises what it raises.
        """
        if self._closed or not on_main_thread() or sys.is_finalizing():
            return job()
        slot = Slot(job)
        self._jobs.put(slot.run)
        # It ends on close() only, or in the child of a fork.
        if self._thread is None or not self._thread.is_alive():
            thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            thread.start()
            self._thread = thread
            if self._closed:
                # close() may have come before there was one to end.
                self._jobs.put(None)
        while not slot.wait(self.LOOK_SECONDS):
            if not self._thread.is_alive():
                # It came too late: nobody else will do it.
                slot.run()
        return slot.value()

    def _run(self) -> None:
        for job in iter(self._jobs.get, None):
            # Who waits has whatever it raises, a signal's handler also here.
            with suppress(BaseException):
                job()
            # Who waits keeps nothing alive.
            del job
        # There may be a second thread.
        self._jobs.put(None)

    def close(self, seconds: float) -> None:
        """End the thread, and block until that has done what was given to it, for
        `seconds` at most. Idempotent, from any thread."""
        self._closed = True
        thread = self._thread
        if thread is not None:
            self._jobs.put(None)
            if thread is not threading.current_thread():
                join_all([thread], seconds)


class Crew:
    """Workers that many conversations share, each by a Lane of its own.

    No more work at once than its budget has; and of a Lane, than that one's has, which
    is a part of it. The jobs of a Lane wait there. Lanes take turns.
    """

    def __init__(self, name: str, limit: int, log: _Log) -> None:
        self.budget = Budget(limit)
        self._workers = Workers(name, limit, do_nothing, log, TIDY_SECONDS)
        self._lock = threading.Lock()
        # Those with jobs, by turns; guarded by _lock, as their jobs are.
        self._lanes: OrderedDict[Lane, None] = OrderedDict()

    def add(self, lane: Lane, jobs: Iterable[Job]) -> None:
        """Have jobs done when it is their turn. Never blocks."""
        with self._lock:
            if lane.closed:
                return
            lane.jobs += jobs
            self._lanes.setdefault(lane)
        self._call_workers()

    def leave(self, lane: Lane, drop: bool) -> None:
        """Take no more jobs of a lane; if asked to, drop those that wait."""
        with self._lock:
            lane.closed = True
            if drop:
                lane.jobs.clear()
                self._lanes.pop(lane, None)

    def retry(self) -> None:
        """Have a worker come to jobs that wait, should there be none."""
        self._workers.retry()

    def close(self) -> None:
        """Take no more jobs; idle workers end."""
        self._workers.close(0.0)

    def _call_workers(self) -> None:
        while True:
            with self._lock:
                turn = self._take_turn_locked()
            if turn is None:
                return
            self._workers.submit(turn)

    def _take_turn_locked(self) -> Job | None:
        """The next job for which there is a worker."""
        for lane in self._lanes:
            if lane.budget.take(1):
                del self._lanes[lane]
                job = lane.jobs.popleft()
                if lane.jobs:
                    self._lanes[lane] = None  # as the last
                return partial(self._run, lane, job)
        return None

    def _run(self, lane: Lane, job: Job) -> None:
        try:
            job()
        finally:
            lane.budget.give_back(1)
            self._call_workers()
            lane.between()


class Lane:
    """A conversation's way to the workers of a Crew. It is asked as Workers are.

    Of what waits at its end, some must still be done, unless it `drops` that.
    """

    def __init__(self, crew: Crew, budget: Budget, between: Job, drops: bool) -> None:
        self.crew = crew
        self.budget = budget
        self.between = between
        self.drops = drops
        # Both are guarded by the crew's lock.
        self.jobs: deque[Job] = deque()
        self.closed = False

    def __len__(self) -> int:
        """How many jobs wait."""
        return len(self.jobs)

    def submit(self, *jobs: Job) -> None:
        """Have workers do these. Never blocks. After close() they are dropped."""
        self.crew.add(self, jobs)

    def nudge(self) -> None:
        """Have a worker come by, for its between(). Never blocks."""
        if not self.jobs:
            self.submit(do_nothing)

    def retry(self) -> None:
        """Have a worker come to jobs that wait, of any conversation."""
        self.crew.retry()

    def abandon(self, worker: int) -> None:
        """Nothing: over HTTP, who waits for a thread is known elsewhere."""

    def close(self, seconds: float) -> bool:
        """Take no more jobs, and block until all are done; returns whether they are."""
        self.crew.leave(self, self.drops)
        return wait_until(lambda: not (self.jobs or self.budget.taken), seconds)


class _Log:
    """Lines for Python's logger "mcp_lite", handed over by a thread of their own.

    A stderr that nobody reads must hold up neither a handler nor the exit. While
    MAX_QUEUED lines wait, more are dropped; at the end of the program, they have
    LOG_SECONDS. Of an `error`, the traceback is told, too.
    """

    def __init__(self) -> None:
        # Without patience: the threads end when no line is left. The first one may be
        # stuck in a handler, for ever; the second one, which waits for it, may not, and
        # Python waits for that.
        self._workers = Workers("mcp-log", 1, do_nothing, None, 0.0)
        self._guards = Workers("mcp-log-end", 1, do_nothing, None, 0.0, daemon=False)
        self._is_stuck = False

    # The levels by the numbers that logging has for them: it is slow to import.
    def debug(self, text: str, error: object = None) -> None:
        self.put(10, text, error)

    def warning(self, text: str, error: object = None) -> None:
        self.put(30, text, error)

    def error(self, text: str, error: object = None) -> None:
        self.put(40, text, error)

    def put(
        self, level: int, text: str, error: object = None, logger: str = "mcp_lite"
    ) -> None:
        """Queue a line for one of the loggers."""
        if len(self._workers) >= MAX_QUEUED or not _is_wanted(logger, level):
            return
        line = printable(text)
        self._workers.submit(partial(_hand_to_logging, logger, level, line, error))
        # One that waits for its turn will wait for this line, too.
        if not len(self._guards):
            self._guards.submit(self._see_out)

    def flush(self, seconds: float) -> None:
        """Wait until the queued lines are out, but no longer than `seconds`."""
        self._workers.queue_end().wait(seconds)

    def _see_out(self) -> None:
        """Wait until the queued lines are out; when the program ends, LOG_SECONDS."""
        done = self._workers.queue_end()
        while not done.wait(TICK_SECONDS) and threading.main_thread().is_alive():
            pass
        if self._is_stuck or done.wait(LOG_SECONDS):
            return
        # A handler waits for its reader, and has its lock: so logging, at its own end,
        # would wait for that.
        import atexit
        import logging

        self._is_stuck = True
        atexit.unregister(logging.shutdown)


def _is_wanted(name: str, level: int) -> bool:
    """Whether a logger takes lines of this level, as it does from 30 on by itself."""
    get_logger = getattr(sys.modules.get("logging"), "getLogger", None)
    if get_logger is None:
        return level >= 30
    return bool(get_logger(name).isEnabledFor(level))


def _tell_traceback(error: BaseException) -> str:
    """A traceback with the lines of the user's code; if there are none, with all."""
    from traceback import TracebackException

    told = TracebackException.from_exception(error)
    ours = _tell_traceback.__code__.co_filename
    chain = [told]
    for each in chain:
        each.stack[:] = [
            frame
            for frame in each.stack
            if frame.filename != ours
            and os.path.basename(os.path.dirname(frame.filename)) != "asyncio"
        ] or each.stack
        chain += filter(None, (each.__cause__, each.__context__))
    return "".join(told.format()).rstrip()


def _hand_to_logging(name: str, level: int, text: str, error: Any) -> None:
    import logging

    log = logging.getLogger(name)
    trace: Any = None
    told = ""
    if error is not None:
        trace = (type(error), error, error.__traceback__)
        # What the peer sent may be in the exception's text: where that has several
        # lines, none is to look like one of the log.
        told = printable(_tell_traceback(error), keep_lines=True).replace("\n", "\n  ")
    handlers = _handlers_of(log)
    streams = (getattr(each, "stream", each) for each in handlers)
    if not handlers or any(each is sys.__stderr__ for each in streams):
        # A pipe that is ready takes 4096 bytes. Who wrote more than it takes now would
        # have the lock of Python's stderr until somebody reads; and Python flushes
        # that as soon as the program's last line is done. The last of them say most.
        told = _last_bytes(told, 3000)
        text = _last_bytes(text, 3900 - len(told.encode("utf-8", "replace")))
        while not is_ready(2, writing=True):
            if not handlers:
                return
            time.sleep(TICK_SECONDS)
    record = log.makeRecord(
        log.name, level, __file__, 0, "%s", (text,), trace, "mcp_lite"
    )
    # Formatters take this for the traceback.
    record.exc_text = told or None
    log.handle(record)


def _handlers_of(log: Any) -> list[Any]:
    """A logger's handlers, and those above it: who gets its lines."""
    handlers = list(log.handlers)
    while log.propagate and log.parent:
        log = log.parent
        handlers += log.handlers
    return handlers


def _last_bytes(text: str, size: int) -> str:
    return text.encode("utf-8", "replace")[-size:].decode("utf-8", "replace")


###############################################################################
# 16. Connection ##############################################################
###############################################################################
# A Protocol with threads around it. Bytes come in by `feed`, on whichever thread reads;
# requests are served by workers; bytes go out by `flush`, one thread at a time writing
# for all, under no lock. Two seams: a Transport carries the bytes, an Endpoint knows
# what the messages mean.
class Transport:
    """What carries the bytes of a Connection: each message is a line of them.

    To write another one, derive from this class, and give an instance to Client as its
    target; it carries one conversation (basic/transports.md#custom-transports). To be
    written are `write`, `close`, and `read` unless it `feeds`. It is asked to
        start(connection)  once, on the thread of connect(), before all else. What it
                           raises, connect() raises, and asks for nothing more
        read()             block for the next bytes, any number of them; b"" is the end.
                           By one thread of the client's own, again and again
        write(data)        send all of it, whole lines, before it returns; may block.
                           By one thread at a time, while another one reads
        may_write(size)    say whether a write of so many bytes is sure not to block; if
                           not, a helper thread calls it, none that calls the client
        takes_at_once(size)  the same, for a thread that reads: where it says no, as it
                           does unless written, a helper writes
        details()          say what else is known of the other end, behind the text of
                           a Timeout
        hung_up()          say whether the other end is sure to read nothing any more. A
                           server asks when its input has ended; must not block
        describe_end(why)  make the exception for those who still wait at the end; may
                           take a moment
        close()            end it, so that read() and write() return or raise soon. By
                           any thread, once, whether it has ended by itself or not
    read() and write() raise OSError, or ValueError, as closed files do, when the other
    end is gone: from then on, nothing more is read, or written.

    One that `feeds` is not asked to read. It hands over what comes by itself, on one
    thread at a time, by connection.dispatch(connection.feed(data)), and tells of the
    end by connection.close(self.describe_end(why)).

    For a server it is easier to call Server.serve. Where that does not fit,
    Server.connect(transport) makes the Connection: it asks for may_write() and write()
    only. Who has called it feeds the connection, and at the end gives it to
    Server.disconnect. The order of an end that lets the work in flight be done stands
    in Pump.run.
    """

    feeds = False
    # Headers say what a message is about, arguments of tools among it: so the list of
    # tools, which says of which, is read before the first call of one.
    mirrors = False

    def start(self, connection: Connection) -> None:
        """Know the connection that this carries."""

    def write(self, data: bytes) -> None:
        """Send lines. Raises OSError, or ValueError, when the other end is gone."""
        raise NotImplementedError

    def may_write(self, size: int) -> bool:
        """Whether a write of so many bytes is sure not to block its thread."""
        return True

    def takes_at_once(self, size: int) -> bool:
        """The same, of any thread, also one that reads. It need not know."""
        return False

    def read(self) -> bytes:
        """Block for the next bytes; b"" is the end. Raises OSError or ValueError."""
        raise NotImplementedError

    def hung_up(self) -> bool:
        """Whether the other end is sure to read nothing any more."""
        return False

    def close(self) -> None:
        """End it. Called once, from any thread."""

    def details(self) -> str:
        """What else is known of the other end: " (its name)", say."""
        return ""

    def describe_end(self, why: str) -> ConnectionClosed:
        """The exception that tells how this ended, with all that is known of it."""
        return ConnectionClosed(why)


class Endpoint:
    """What stands behind a Connection, and knows what its messages mean.

    A server has one, a client has one. To write another, derive from this class, and
    give an instance to a Connection, with Protocol(role, endpoint.capabilities) before
    it. To be written is `serve_request`. What the other end may say now is the
    Protocol's business: all that comes here was admitted, and has the members that its
    row of METHODS says. The Connection calls, and expects none of them to raise:
        capabilities        whenever it must know them
        serve_request       once for each request, on a thread that is free to take its
                            time; but on the reading thread, so it must not block, where
                            the row of the method says `inline`. If it `may_block` there
                            all the same, only a handshake is served so
        serve_notification  on the reading thread, in order, so it must not block; not
                            for what is about an open request: it knows that by itself
        output_lost         once, when a write has failed: nobody hears of us any more.
                            On the thread that wrote, so it must not block
    Who reads for the connection calls:
        connected           before the first message
        input_ended         when the other end says no more, but may still listen
        disconnected        at the end; any number of times
    HTTP also asks for header_parameters, and for the extension_row of methods.

    To answer is to call connection.respond(request, result_message(request.id, {...})),
    or with an error_message(), from any thread, now or later. That queues it. A worker
    writes what is queued when its job is done; any other thread calls
    connection.flush(). Who never answers leaves the request open, until it is
    cancelled.
    """

    # The user's code may run for any request.
    may_block = False
    # What shows its conversations, if they are to be shown.
    transcript: Transcript | None = None

    def capabilities(self) -> Json:
        """What this side declares: {"tools": {}}, say."""
        return {}

    def serve_request(self, connection: Connection, request: Request) -> None:
        """Work on a request and answer it, now or later."""
        raise NotImplementedError

    def serve_notification(
        self, connection: Connection, notification: Notification
    ) -> None:
        """Take note of a notification that is not about an open request."""

    def output_lost(self, connection: Connection) -> None:
        """The other end reads no more."""

    def connected(self, connection: Connection) -> None:
        """A conversation begins."""

    def input_ended(self, connection: Connection) -> None:
        """The other end has said all that it will."""

    def disconnected(self, connection: Connection) -> None:
        """The conversation is over."""

    def header_parameters(self, tool: str) -> list[tuple[list[str], str]]:
        """What HTTP headers mirror of the arguments of a tool: see mirrored_headers."""
        return []

    def extension_row(self, method: str) -> Method:
        """The row of a method that is not in METHODS; UNKNOWN if it is none of ours."""
        return UNKNOWN


class Connection:
    """One conversation: a Protocol, its Endpoint, and the Transport that carries it.

    The way of a message: feed() cuts bytes into lines. receive() takes a line, has the
    Protocol judge the message in it, and acts on what that is: an answer goes to its
    Waiter, a notification to what it is about, a refusal back to the peer. A request is
    returned, so that who reads can decide: to serve it there and then, or to dispatch()
    it to workers. Its endpoint responds, which queues the answer, and flush() writes
    it.

    The life of a request of the peer's:

        in flight --respond()--> answered
        in flight --cut_short()--> cancelled; and answered, if it gets a message

    It ends once. Either takes it out of protocol.in_flight, under the lock: who finds
    it there has won, and may queue an answer in the same breath; who comes later gets
    False, and has nothing more to say. A request of ours ends in the same way: who
    takes its waiter out of `_waiters`, under the lock, has ended it. It is there from
    beginning to end, while protocol.pending has it only until the next answer: so
    between two rounds of a call, too, it can be ended, and what is over never leaves.

    The life of the conversation:

        OPEN --a write has failed, or close() has begun--> UNHEARD
        UNHEARD --close() has cancelled and failed all that was open--> OVER

    Of an UNHEARD one, nothing is written any more, but what comes in is still taken.
    When it is not OPEN any more, `reason` says why.
    """

    OPEN = "open"
    UNHEARD = "unheard"
    OVER = "over"

    # Of a legacy HTTP session.
    session_id: str | None = None
    # The peer takes one answer, and nothing besides: see Server.handle.
    answers_only = False
    # OVER is written without the lock: after that, it is final.
    state = OPEN
    reason: ConnectionClosed | None = None
    # Made when needed: most HTTP requests need none.
    _errands: Errands | None = None

    def __init__(
        self,
        protocol: Protocol,
        endpoint: Endpoint,
        transport: Transport,
        *,
        name: str,
        log: _Log,
        max_workers: int = MAX_WORKERS,
        max_message: int = MAX_MESSAGE,
        trace: Talk | None = None,
        outbox: Outbox | None = None,
    ) -> None:
        self.protocol = protocol
        self.endpoint = endpoint
        self.transport = transport
        self.log = log
        self._name = name
        self._max_workers = max_workers
        # Where one is wanted; HTTP has more to tell it.
        self.trace = trace
        self._max_message = max_message
        # By kind. Made when needed: most HTTP requests need none.
        self._pools: dict[str, Workers | Lane] = {}
        # What follows is guarded by _lock, and so is the end of a request.
        self._lock = threading.Lock()
        self._outbox = outbox or Outbox(self._lock)
        # Who waits, the oldest first.
        self._waiters: dict[Waiter, None] = {}
        # The threads whose callbacks answer questions, and what brought these.
        self.answerers: dict[int, Request | Waiter | None] = {}

    @property
    def errands(self) -> Errands:
        """What the main thread wants to be sent."""
        errands = self._errands
        if errands is None:
            # Another thread may be faster. Not under the lock: see Errands.
            fresh = Errands(self._name + "-errands")
            errands = vars(self).setdefault("_errands", fresh)
        return errands

    # These are made by the thread that reads.
    @cached_property
    def _framer(self) -> LineFramer:
        return LineFramer(self._max_message)

    @cached_property
    def _waiting(self) -> SharedBudget:
        """What the requests take that wait for a worker: one at least may wait."""
        return SharedBudget(max(MAX_WAITING, self._max_message))

    @cached_property
    def untold(self) -> SharedBudget:
        """What the notifications take that wait for the user's code."""
        return SharedBudget(MAX_UNTOLD)

    def carries_changes(self, request: Request) -> bool:
        """Whether who sent this request can be told of changes later on."""
        return not self.answers_only

    @property
    def workers(self) -> Workers | Lane:
        """The threads for user code: handlers, and callbacks that answer questions."""
        return self._pool("", self._max_workers)

    @property
    def helpers(self) -> Workers | Lane:
        """The threads for what must not wait until a handler is done.

        They write what might block, and call what is to be called on a cancellation.
        """
        return self._pool("-helper", MAX_WORKERS)

    @property
    def lister(self) -> Workers | Lane:
        """The thread that reads the list of tools, and sends what waits for that."""
        return self._pool("-lister", 1)

    def _pool(self, kind: str, limit: int) -> Workers | Lane:
        if kind not in self._pools:
            # Another thread may be faster.
            self._pools.setdefault(kind, self._make_pool(kind, limit))
            if self.state == self.OVER:
                self._pools[kind].close(0.0)
        return self._pools[kind]

    def _make_pool(self, kind: str, limit: int) -> Workers | Lane:
        return Workers(self._name + kind, limit, self.flush, self.log)

    # Reading: feed() and receive() run no user code.
    def feed(self, data: bytes) -> list[Request]:
        """Take bytes that came in, b"" at their end. Returns the requests to serve.

        On the thread that reads; where several do in turn, only one at a time.
        """
        ready: list[Request] = []
        for line in self._framer.feed(data):
            if self.state == self.OVER:
                break
            ready += self.receive(line)
        return ready

    def receive(self, line: bytes | None) -> list[Request]:
        """Take one line, on any thread; None is one that was too long.

        Returns the requests in it that are still to be served.
        """
        try:
            if line is None:
                raise InvalidRequest(
                    f"a message of more than {self._max_message} bytes"
                )
            if self.trace is not None:
                self.trace.received(line)
            message = parse_message(line)
            if isinstance(message, list):
                return self._receive_batch(message, Batch(), len(line))
        except McpError as error:
            return self._receive_nonsense(line or b"", error)
        return self._act(self.protocol.receive(message, len(line)))

    def _receive_nonsense(self, line: bytes, error: McpError) -> list[Request]:
        """Take a line that is no message. A server says so, a client only logs it."""
        if self.protocol.role == "server":
            return self._act(Refusal(str(error), error_message(None, error)))
        self.log.warning(f"not a message, skipped: {error}: {line[:200]!r}")
        # It may show whose answer it should be: then nobody waits for that any longer.
        message = unread_answer(line)
        return self._act(self.protocol.refuse(message, error)) if message else []

    def _receive_batch(
        self, messages: list[Any], batch: Batch, size: int = 0
    ) -> list[Request]:
        if self.protocol.version != BATCH_VERSION or not 0 < len(messages) <= MAX_BATCH:
            raise InvalidRequest(
                f"a batch: only {BATCH_VERSION} has them, of 1 to {MAX_BATCH} messages"
            )
        ready: list[Request] = []
        for message in messages:
            # Each counts for a part of it.
            event = self.protocol.receive(message, size // len(messages))
            batch.note(event)
            ready += self._act(event, batch)
        with self._lock:
            batch.is_read = True
            answers = batch.encode_if_complete()
            if answers is not None:
                self._queue_locked(answers, batch.stream, is_answer=True)
        self._flush_soon()
        return ready

    def _act(self, event: object, batch: Batch | None = None) -> list[Request]:
        """Act on what the Protocol made of a message; returns a request to serve."""
        return self._ACTIONS[type(event).__name__](self, event, batch)

    def _act_on_request(self, request: Request, batch: Batch | None) -> list[Request]:
        if batch is not None:
            with self._lock:
                # Another thread may have ended it already.
                if not self._is_ended(request):
                    batch.add(request)
        if not request.row.inline or (
            self.endpoint.may_block and not request.row.handshake
        ):
            return [request]
        # Here and now, so that what follows in the stream finds it done.
        self.endpoint.serve_request(self, request)
        self._flush_soon()
        return []

    def _act_on_answer(self, answer: Answer, batch: Batch | None) -> list[Request]:
        self._hand_over(answer)
        return []

    def _act_on_notification(
        self, notification: Notification, batch: Batch | None
    ) -> list[Request]:
        handler = notification.row.handler
        if not handler or not getattr(self, handler)(notification):
            self.endpoint.serve_notification(self, notification)
        return []

    def _act_on_refusal(self, refusal: Refusal, batch: Batch | None) -> list[Request]:
        self.log.debug(f"refused: {refusal.why}")
        if refusal.reply is None:
            return []
        reply = encode_answer(refusal.reply, self.log.error)
        if batch is None:
            self._send(reply, block=False)
        else:
            with self._lock:
                batch.answers.append(reply)
        return []

    # By name, for importlib.reload(), by which host programs take a plug-in anew: to a
    # Connection that lives on come events of the classes of today.
    _ACTIONS: dict[str, Callable[..., list[Request]]] = {
        "Request": _act_on_request,
        "Answer": _act_on_answer,
        "Notification": _act_on_notification,
        "Refusal": _act_on_refusal,
    }

    def dispatch(self, requests: list[Request]) -> None:
        """Have workers serve these requests. Never blocks."""
        # Who asks on and on, and reads no answers, would fill our memory.
        if self._outbox.count() >= MAX_BACKLOG:
            self._lose_output(
                OSError(f"{MAX_BACKLOG} answers wait, and the peer does not read")
            )
        if requests:
            self.have_served(requests, self.endpoint.serve_request)

    def have_served(
        self, requests: list[Request], serve: Callable[[Connection, Request], None]
    ) -> None:
        """Have workers call serve(connection, request), unless it is cancelled before.
        Those that are too many are refused. Never blocks."""
        # What came in one read is counted as one.
        share = self._waiting.share(sum([request.size for request in requests]))
        room = max(0, MAX_BACKLOG - len(self.workers)) if share else 0
        jobs = []
        for request in requests[:room]:
            request.share = share
            jobs.append(partial(self._serve, request, serve))
        self.workers.submit(*jobs)
        for request in requests[room:]:
            self._refuse(request, "too many requests wait")

    def _refuse(self, request: Request, why: str) -> None:
        self.cut_short(request, request.failure(InternalError(why)))

    def _serve(
        self, request: Request, serve: Callable[[Connection, Request], None]
    ) -> None:
        if self._outbox.size > MAX_UNSENT:
            self._wait_for_reader(request)
        request.share = None
        # In this order: who cancels it now finds the worker.
        request.worker = threading.get_ident()
        # Nobody runs what was cancelled while it was queued.
        if not request.cancelled:
            serve(self, request)
        request.worker = None

    def _wait_for_reader(self, request: Request) -> None:
        """Wait while the peer has enough to read without the answer to this."""

        def may_begin() -> bool:
            self.flush()
            is_wanted = self.state == self.OPEN and not request.cancelled
            return self._outbox.size <= MAX_UNSENT or not is_wanted

        if not wait_until(may_begin, UNREAD_SECONDS):
            self._refuse(request, "the answers to others are not read")

    # Notifications about what is open here: whether it was, each returns.
    def _cancelled(self, notification: Notification) -> bool:
        params = notification.params
        row = notification.row
        request = find_by_id(self.protocol.in_flight, params.get(row.subject))
        if request is None:
            return False
        answer = None
        if row.expects_answer:
            answer = request.failure(RequestCancelled("request cancelled"))
        # "Both parties SHOULD log cancellation reasons for debugging".
        reason = show(params.get("reason"), 200)
        self.log.debug(f"{request.method} is cancelled, the reason: {reason}")
        return self.cut_short(request, answer)

    def _progress(self, notification: Notification) -> bool:
        params = notification.params
        waiter = find_by_id(self.protocol.pending, params.get("progressToken"))
        is_number = json_type(params.get("progress")) in (int, float)
        if waiter is not None and waiter.wants_progress and is_number:
            self.queue_untold(waiter.inbox, "progress", params, notification.size)
        return True

    def queue_untold(
        self, inbox: SimpleQueue[Any], kind: str, item: object, size: int
    ) -> None:
        """Queue a notification for who reads this inbox; see put_bounded."""
        dropped = put_bounded(inbox, kind, item, size + LINE_COST, self.untold)
        if dropped:
            self.log.warning(f"{dropped} notifications dropped: too many are not heard")

    # Ending the peer's requests
    def respond(self, request: Request, message: Json | None) -> bool:
        """Queue the answer to the peer's request; False if that has ended before.

        None ends a notification. It is written by the next flush(): a worker calls that
        when its job is done.
        """
        return self._end(request, message, cancelled=False)

    def cut_short(self, request: Request, message: Json | None = None) -> bool:
        """End a request whose work may still run, and is told to stop.

        With this answer, if there is one. False if it has ended before. Never blocks;
        from any thread.
        """
        if not self._end(request, message, cancelled=True):
            return False
        self._stop(request)
        self._flush_soon()
        return True

    def _is_ended(self, request: Request) -> bool:
        return self.protocol.in_flight.get(request.id) is not request

    def keep(self, size: int) -> bool:
        """Count bytes that the peer makes us keep. False if they are too many."""
        return True

    def let_go(self, size: int) -> None:
        """Count them as gone."""

    def cancel_all(self) -> None:
        """Cancel every request of the peer's that is in flight."""
        for request in list(self.protocol.in_flight.values()):
            self.cut_short(request)

    def _end(self, request: Request, message: Json | None, cancelled: bool) -> bool:
        """Take a request out of flight, and queue its answer. False if it was not."""
        # cancellation: "MUST NOT send any further messages for it"
        answer = (
            None
            if message is None
            else encode_answer(message, self.log.error, request.about)
        )
        with self._lock:
            if not self.protocol.end(request):
                return False
            # Under the same lock: who sees that it has ended reads here why.
            request.cancelled = cancelled
            if request.batch is not None:
                answer = request.batch.answer(request, answer)
            if answer is not None:
                self._queue_locked(answer, request.stream, is_answer=True)
        return True

    def _stop(self, request: Request) -> None:
        """Tell the work on a request: its waits end, its callbacks are called."""
        for inbox in list(request.cancel_inboxes):
            inbox.put(("cancelled", None))
        worker = request.worker
        if worker is not None:
            self.workers.abandon(worker)
        # Until none is left. Another thread may be at it: who pops one has it called.
        with suppress(IndexError):
            while True:
                self.helpers.submit(request.callbacks.pop())

    # Writing
    def _queue_locked(
        self,
        data: bytes,
        stream: Any,
        *,
        is_answer: bool = False,
    ) -> int:
        """Queue a line. Returns how many were dropped for it.

        Over HTTP: it goes to this stream, if there is one, and as an answer ends it.
        """
        return self._outbox.add_locked(data)

    def notify(
        self,
        method: str,
        params: Json | None,
        request: Request | None = None,
        *,
        block: bool = True,
        progress: float | None = None,
        register: Callable[[], bool] | None = None,
    ) -> None:
        """Send a notification; one about a `request`, only while that is in flight.

        And only if the request's revision has it, and its `progress` increases. Unless
        `block`, a helper writes it where that might block. `register()` is called just
        before it is queued. Raises as encode_message does, but not when nobody is there
        to hear it.
        """
        row = method_row(method)
        if request is not None and not row.is_in(request.version):
            return
        data = encode_message(call_message(method, params))
        if row.droppable:
            data = Droppable(data)
        elif row.tells_change:
            data = ChangeLine(data)
        send = partial(self._send, data, request, block, progress, register)
        self.errands.run(send)

    def _send(
        self,
        data: bytes,
        request: Request | None = None,
        block: bool = True,
        progress: float | None = None,
        register: Callable[[], bool] | None = None,
    ) -> bool:
        """Queue a line and have it written. False if nobody is to hear it any more.

        `register()` is called just before it is queued, and may refuse it, by False.
        """
        with self._lock:
            if self.answers_only or self.state != self.OPEN:
                return False
            # progress: "MUST stop after completion".
            if request is not None and self._is_ended(request):
                return False
            # "The `progress` value MUST increase with each notification", whichever
            # threads tell it: so it is compared where their order is made.
            if request and progress is not None and not request.advance(progress):
                return False
            if register is not None and not register():
                return False
            stream = None if request is None else request.stream
            dropped = self._queue_locked(data, stream)
        if dropped:
            self.log.warning(f"{dropped} notifications dropped: the reader is slow")
        if self._outbox.size > 8 * MAX_UNSENT:
            self._lose_output(
                OSError(f"{self._outbox.size} bytes wait, and the peer does not read")
            )
            return False
        if block and self.transport.may_write(len(data) + 1):
            self.flush()
        else:
            self._flush_soon()
        return True

    def flush(self) -> None:
        """Write what is queued; or leave it to the thread that is writing just now."""
        self._outbox.flush(self._write)

    def _flush_soon(self) -> None:
        """The same, but never block: have a helper do it where that is not sure."""
        if not self._flush_at_once():
            self.helpers.nudge()

    def _flush_at_once(self) -> bool:
        """Write what is sure not to block. False if something else is left to write."""
        return self._outbox.flush(self._write, self.transport.takes_at_once)

    def _write(self, lines: list[bytes]) -> None:
        if self.state != self.OPEN:
            return
        try:
            if self.trace is not None:
                for line in lines:
                    self.trace.sent(line)
            self.transport.write(b"\n".join([*lines, b""]))
        except (OSError, ValueError) as error:
            self._lose_output(error)

    def _lose_output(self, error: Exception) -> None:
        """Nothing can be written any more."""
        with self._lock:
            if self.state != self.OPEN:
                return
            self.state = self.UNHEARD
            self.reason = ConnectionClosed(f"cannot write: {error}")
            self._outbox.take_locked()
        self.endpoint.output_lost(self)

    # Our own requests
    def request(
        self, waiter: Waiter, params: Json | None, about: Request | None = None
    ) -> Waiter:
        """Send a request, and register `waiter` for its answer.

        `about` is the peer's request that it serves. Raises ConnectionClosed, Cancelled
        if that was cancelled, or the waiter was abandoned since it was asked last, and
        as encode_message does.
        """
        request_id: RequestId = self.protocol.next_id()
        if waiter.wants_progress:
            params = dict(params or {})
            meta = params.get("_meta", {})
            params["_meta"] = {**meta, "progressToken": request_id}
        data = encode_message(call_message(waiter.method, params, request_id))
        register = partial(self._register_locked, waiter, request_id, sent=True)
        try:
            if self.errands.run(partial(self._send, data, about, register=register)):
                return waiter
        except BaseException as error:
            # Ctrl-C may come when it has left, and the peer must hear of that.
            self.abandon(waiter, error_text(error))
            raise
        if self.state == self.OPEN or (about is not None and about.cancelled):
            raise Cancelled("the request was cancelled")
        raise self._closed_error()

    def hold(self, waiter: Waiter, request_id: RequestId | None = None) -> None:
        """Register who waits for the answer to what is sent in another way; or without
        an id, for nothing but the end. Raises ConnectionClosed."""
        if not self.errands.run(partial(self._hold, waiter, request_id)):
            raise self._closed_error()

    def _hold(self, waiter: Waiter, request_id: RequestId | None) -> bool:
        with self._lock:
            return self._register_locked(waiter, request_id, sent=False)

    def _register_locked(
        self, waiter: Waiter, request_id: RequestId | None, sent: bool
    ) -> bool:
        """Open a waiter, or give it its next id; False if it is over."""
        is_over = waiter.begun and waiter not in self._waiters
        if is_over or self.state != self.OPEN:
            return False
        waiter.begun = True
        waiter.sent = sent
        self._waiters[waiter] = None
        if request_id is not None:
            waiter.id = request_id
            self.protocol.pending[request_id] = waiter
        return True

    def _closed_error(self) -> ConnectionClosed:
        reason = self.reason or ConnectionClosed("no connection")
        # One exception for all: without the traceback of who raised it before.
        return reason.with_traceback(None)

    def is_open(self, waiter: Waiter) -> bool:
        """Whether a request of ours has begun, and not ended."""
        return waiter in self._waiters

    def wait(
        self,
        waiter: Waiter,
        seconds: float,
        on_progress: Callback = None,
        deadline: float = float("inf"),
    ) -> Json:
        """Block for the result; on_progress(progress, total, message) runs here.

        Raises McpError, Cancelled, ConnectionClosed, and Timeout after `seconds`. These
        start again with each progress notification, and if they run out while another
        thread answers a question of the peer's: a user may think for long. All the
        same, it is over at the `deadline`, by time.monotonic().
        """
        try:
            return self._take_result(waiter, seconds, on_progress, deadline)
        except BaseException as error:
            # Ctrl-C, too, or what on_progress raised: it cancels the request.
            # What else is known of a peer is none of its business.
            reason = error.message if isinstance(error, Timeout) else str(error)
            self.abandon(waiter, reason or type(error).__name__)
            # What is left there nobody will hear.
            waiter.inbox = SimpleQueue()
            raise

    def _take_result(
        self, waiter: Waiter, seconds: float, on_progress: Callback, deadline: float
    ) -> Json:
        until = time.monotonic() + seconds
        while True:
            try:
                left = min(until, deadline) - time.monotonic()
                # Without the share, which is to go.
                kind, item = get_within(waiter.inbox, left)[:2]
            except Empty:
                is_overdue = time.monotonic() >= deadline
                if is_overdue or not self.is_asked_elsewhere():
                    details = self.transport.details()
                    raise _no_answer(waiter, seconds, is_overdue, details) from None
                until = time.monotonic() + seconds
                continue
            if kind == "answer":
                if item.error is not None:
                    raise item.error
                return item.result or {}
            if kind == "cancelled":
                raise Cancelled("the request was cancelled")
            # What is queued is taken even when it is too late: it may never end.
            if time.monotonic() >= deadline:
                raise _no_answer(waiter, seconds, True, self.transport.details())
            if on_progress is not None:
                told = [item.get(name) for name in ("progress", "total", "message")]
                on_progress(*told)
            until = time.monotonic() + seconds

    def is_asked_elsewhere(self) -> bool:
        """Whether another thread answers a question of the peer's: it waits for us."""
        return bool(self.answerers) and threading.get_ident() not in self.answerers

    def abandon(self, waiter: Waiter, reason: str | None) -> bool:
        """Give up a request of ours, and tell the peer: basic/patterns/cancellation.md.

        False if it has ended before.
        """
        return bool(self.errands.run(partial(self._abandon, waiter, reason)))

    def _abandon(self, waiter: Waiter, reason: str | None) -> bool:
        if not self._release(waiter):
            return False
        # "The `initialize` request MUST NOT be cancelled by clients".
        if waiter.sent and not method_row(waiter.method).handshake:
            told = (reason or "").encode("utf-8", "backslashreplace").decode("utf-8")
            params = add_given({"requestId": waiter.id}, reason=told or None)
            self.notify("notifications/cancelled", params)
        return True

    def _release(self, waiter: Waiter) -> bool:
        """End a request of ours. Only who gets True may still speak about it."""
        with self._lock:
            if waiter not in self._waiters:
                return False
            del self._waiters[waiter]
            # So that no cycle keeps alive whose method it was.
            waiter.goes_on = None
            self.protocol.pending.pop(waiter.id, None)
            return True

    def finish(self, answer: Answer) -> bool:
        """End a request of ours with this answer; False if it has ended before."""
        if not self._release(answer.pending):
            return False
        answer.pending.finish(answer)
        return True

    def _hand_over(self, answer: Answer) -> None:
        """Give an answer to who waits. By whoever took them out of `pending`."""
        waiter = answer.pending
        waiter.sent = False
        goes_on = waiter.goes_on
        if goes_on is None or not goes_on(answer):
            self.finish(answer)

    def fail(self, request_id: RequestId | None, error: Exception) -> bool:
        """Answer a request of ours with `error`. False if nobody waits for that."""
        waiter = self.protocol.pending.pop(request_id, None)
        if waiter is None:
            return False
        self._hand_over(Answer(waiter, None, error))
        return True

    def fail_pending(self, error: Exception, *, tell: bool = False) -> None:
        """End every request of ours with `error`; if asked to, `tell` the peer."""
        with self._lock:
            waiters = list(self._waiters)
        for waiter in waiters:
            ended = self.abandon(waiter, str(error)) if tell else self._release(waiter)
            if ended:
                waiter.finish(Answer(waiter, None, error))

    # Ending
    def is_drained(self) -> bool:
        """Whether all is answered and written."""
        with self._lock:
            return self._is_written() and not self.protocol.in_flight

    def _is_written(self) -> bool:
        return self.state != self.OPEN or self._outbox.is_idle()

    def write_out(self, seconds: float) -> None:
        """Block until all that is queued is written, for `seconds` at most."""
        self.helpers.nudge()
        wait_until(self._is_written, seconds)

    def close(self, error: ConnectionClosed, seconds: float = 0.0) -> None:
        """End the conversation; who waits gets `error`. Idempotent, from any thread.

        Blocks until the workers have ended, then the helpers, each `seconds` at most.
        """
        with self._lock:
            if self.state == self.OPEN:
                self.state = self.UNHEARD
            self.reason = error
        if self.protocol.in_flight:
            self.cancel_all()
        if self._waiters:
            self.fail_pending(error)
        # Not before: a pool that is made then drops what on_cancel() was given.
        self.state = self.OVER
        if self._pools:
            for pool in list(self._pools.values()):
                pool.close(seconds)
        if self._errands is not None:
            self._errands.close(seconds)


###############################################################################
# 17. Questions ###############################################################
###############################################################################
# What a server may ask its client (client/ in the specification): which capability it
# needs, what a form may be, which answers will do, as both sides check them. And the
# way of the answers in the modern era: requestState, sealed for one caller's request.
@contextmanager
def answering(
    connection: Connection, asked_in: Request | Waiter | None = None
) -> Iterator[None]:
    """Inside, this thread answers a question of the peer's.

    It has come in a request; or, from a modern server, in the result of a call. The
    time of a call that another thread waits for starts anew if it ends meanwhile.
    """
    thread = threading.get_ident()
    connection.answerers[thread] = asked_in
    try:
        yield
    finally:
        connection.answerers.pop(thread, None)


def needed_capability(
    method: str, params: Json, declared: Json
) -> tuple[tuple[str, ...], str]:
    """What a client must have declared for a question, and since when that exists.

    Returns the path into its capabilities, and a revision. Raises ValueError for what
    is no question.
    """
    row = method_row(method)
    if row.sender != "server" or row.kind != "request":
        raise ValueError(f"{method} is no question")
    if row.capability == ("elicitation",):
        return _needed_mode(params, declared, row.since)
    blocks = _blocks_of(params.get("messages"))
    with_tools = any(block.get("type") in _TOOL_BLOCKS for block in blocks)
    if "tools" in params or "toolChoice" in params or with_tools:
        return ("sampling", "tools"), "2025-11-25"
    return row.capability, row.since


def _needed_mode(
    params: Json, declared: Json, since: str
) -> tuple[tuple[str, ...], str]:
    mode = params.get("mode", "form")
    if mode not in ("form", "url"):
        raise ValueError(f"mode: expected form or url, got {show(mode)}")
    if mode == "url":
        return ("elicitation", "url"), "2025-11-25"
    # "An empty capabilities object is equivalent to declaring support for `form` mode
    # only"; one that has only the other mode is not.
    modes = object_or_empty(declared.get("elicitation"))
    if "url" in modes and "form" not in modes:
        return ("elicitation", "form"), since
    return ("elicitation",), since


# The blocks of a conversation with tools: what the model calls, and what came of it.
_TOOL_BLOCKS = ("tool_use", "tool_result")
# What a message for a model may hold (client/sampling.md#messages), and since when.
SAMPLING_SINCE = {
    "text": OLDEST,
    "image": OLDEST,
    "audio": "2025-03-26",
    **dict.fromkeys(_TOOL_BLOCKS, "2025-11-25"),
}
# From here on, a message may hold a list of blocks, and a form lists of choices, and
# titles beside the values of a choice.
_LISTS_SINCE = "2025-11-25"


def _blocks_of(messages: object) -> list[Json]:
    """All blocks of a conversation, as far as it is one."""
    blocks: list[Json] = []
    for message in messages if isinstance(messages, list) else ():
        content = object_or_empty(message).get("content")
        several = content if isinstance(content, list) else [content]
        blocks += [block for block in several if isinstance(block, dict)]
    return blocks


def check_messages(messages: object) -> None:
    """Raise ValueError unless this is a conversation for a model.

    See client/sampling.md#messages, and check_turns.
    """
    if not isinstance(messages, list):
        raise ValueError(f"messages: expected a list, got {show(messages)}")
    for place, message in enumerate(messages):
        errors = _schema_of(MESSAGE).errors(message)
        if errors:
            raise ValueError(f"messages[{place}]: " + "; ".join(errors[:5]))
    check_turns(messages)


def check_turns(messages: list[Any]) -> None:
    """Raise ValueError unless user or assistant says each message, and the results of
    tools follow their uses.

    See client/sampling.md#message-content-constraints: "every assistant message
    containing `ToolUseContent` blocks MUST be followed by a user message that consists
    entirely of `ToolResultContent` blocks, with each tool use [...] matched".
    """
    # The ids of the tool uses that the next message must answer.
    used: list[Any] = []
    for place, message in enumerate(messages):
        where = f"messages[{place}]"
        blocks = _blocks_of([message])
        uses = [block.get("id") for block in blocks if block.get("type") == "tool_use"]
        results = [
            block.get("toolUseId")
            for block in blocks
            if block.get("type") == "tool_result"
        ]
        if results and len(results) < len(blocks):
            raise ValueError(f"{where}: tool results stand alone in their message")
        if sorted(used, key=repr) != sorted(results, key=repr):
            raise ValueError(
                f"{where}: expected the results of the tool uses {show(used)} of the "
                f"message before, got {show(results)}"
            )
        roles = ["user", "assistant"]
        if uses or results:
            roles = ["assistant" if uses else "user"]
        role = member_at(message, ["role"])
        if role not in roles:
            raise ValueError(
                f"{where}: role: expected {' or '.join(roles)}, got {show(role)}"
            )
        used = uses
    if used:
        raise ValueError(f"messages: the results of {show(used)} are missing")


def check_question(method: str, params: Json) -> None:
    """Raise ValueError or TypeError for a question that nobody is to be asked.

    It is less strict than fit_question, for what other revisions may allow.
    """
    check = _QUESTION_CHECKS.get(method)
    if check is not None:
        check(params)


def _check_elicitation(params: Json, kind: str) -> None:
    """`kind`: of the form, as check_elicitation_schema has it."""
    if params.get("mode") == "url":
        # "The `url` parameter MUST contain a valid URL": client/elicitation.md.
        check_uri("url", params.get("url"), "https", "http")
    else:
        check_elicitation_schema(params.get("requestedSchema"), kind)


def _check_sampling(params: Json) -> None:
    messages = params.get("messages")
    check_turns(messages if isinstance(messages, list) else [])


_QUESTION_CHECKS: dict[str, Callable[[Json], None]] = {
    "elicitation/create": lambda params: _check_elicitation(params, TAKEN),
    "sampling/createMessage": _check_sampling,
}


def fit_question(method: str, params: Json, version: str) -> Json:
    """The parameters of a question, as this revision has them.

    Raises ValueError or TypeError for what is wrong, or not to be said in it.
    """
    fit = _QUESTION_FITS.get(method)
    return params if fit is None else fit(params, version)


def _fit_elicitation(params: Json, version: str) -> Json:
    _check_elicitation(params, SENT)
    if version >= _LISTS_SINCE:
        return params
    form = params["requestedSchema"]
    fields = {
        name: _fit_field(name, field, version)
        for name, field in form["properties"].items()
    }
    fitted = {**params, "requestedSchema": {**form, "properties": fields}}
    fitted.pop("mode", None)
    return fitted


def _fit_field(name: str, field: Json, version: str) -> Json:
    if field["type"] == "array":
        raise ValueError(
            f"requestedSchema: {name}: lists of choices are since {_LISTS_SINCE}; "
            f"this client speaks {version}"
        )
    if "oneOf" not in field:
        return field
    fitted = {member: value for member, value in field.items() if member != "oneOf"}
    fitted["enum"] = [choice["const"] for choice in field["oneOf"]]
    fitted["enumNames"] = [choice["title"] for choice in field["oneOf"]]
    return fitted


def _fit_sampling(params: Json, version: str) -> Json:
    messages: Any = params.get("messages")
    check_messages(messages)
    for block in _blocks_of(messages):
        if SAMPLING_SINCE[block["type"]] > version:
            raise ValueError(
                f"messages: {block['type']} is since {SAMPLING_SINCE[block['type']]}; "
                f"this client speaks {version}"
            )
    if version < _LISTS_SINCE:
        messages = split_messages(messages)
        for message in messages:
            message["content"] = fit_block(message["content"], version)
    return {**params, "messages": messages}


_QUESTION_FITS: dict[str, Callable[[Json, str], Json]] = {
    "elicitation/create": _fit_elicitation,
    "sampling/createMessage": _fit_sampling,
}


def elicitation_schema(schema: object) -> tuple[Json, Callable[[Any], Any]]:
    """The wire's requestedSchema for a JSON Schema, a dataclass or a TypedDict.

    Beside it, what makes the content that comes back a Python value. Raises ValueError
    for what elicitation does not allow.
    """
    if isinstance(schema, dict):
        check_elicitation_schema(schema, SENT)
        return schema, lambda content: content
    form = describe_hint(schema, {})
    fields = form.get("properties", {})
    for name, field in fields.items():
        fields[name] = _as_field(field)
    check_elicitation_schema(form, SENT)
    return form, lambda content: form.convert(content, Allowance())


def _as_field(field: Json) -> Json:
    """A hint's schema as a form has it: Optional[X] is an X that may be left empty, and
    what a form has no format for is text."""
    others = [each for each in field.get("anyOf", ()) if each != {"type": "null"}]
    if len(others) == 1:
        field = add_given(dict(others[0]), default=field.get("default"))
    if field.get("format") not in FORM_FORMATS:
        field = {name: value for name, value in field.items() if name != "format"}
    return field


def check_elicitation_schema(schema: Any, kind: str) -> None:
    """Raise ValueError unless it is a form, of the kind TAKEN or SENT.

    That is "flat objects with primitive properties only": client/elicitation.md. The
    defaults must fit: a user who accepts a form may not have seen them.
    """
    errors = _schema_of(kind).errors(schema)
    if not errors:
        fields = schema["properties"]
        defaults = {
            name: field["default"]
            for name, field in fields.items()
            if "default" in field
        }
        try:
            errors = Schema({**schema, "required": []}).errors(defaults)
        except ValueError as error:
            errors = [str(error)]
    if errors:
        raise ValueError("requestedSchema: " + "; ".join(errors[:5]))


def check_answer(key: str, method: str, params: Json, answer: Json) -> Json:
    """A client's answer to a question, with URIs of files in their normal form.

    Raises InvalidParams naming the member that is wrong.
    """
    errors = _schema_of(method).errors(answer)
    is_filled_in = not errors and answer.get("action") == "accept"
    if is_filled_in and "requestedSchema" in params:
        form = Schema(params["requestedSchema"])
        errors = ["content: " + text for text in form.errors(answer.get("content"))]
    if method == "roots/list" and not errors:
        try:
            answer = {**answer, "roots": _check_roots(answer["roots"])}
        except ValueError as error:
            errors = [str(error)]
    if errors:
        raise InvalidParams(
            f"{method} ({key}): the client's answer: " + "; ".join(errors[:5])
        )
    return answer


def _check_roots(roots: list[Json]) -> list[Json]:
    # "This MUST be a `file://` URI in the current specification": client/roots.md.
    return [
        {**root, "uri": check_file_uri(f"roots[{place}].uri", root["uri"])}
        for place, root in enumerate(roots)
    ]


def check_given_answer(method: str, params: Json, answer: Json, version: str) -> Json:
    """A callback's answer, as it is sent. Raises TypeError when it is not what the
    question wants, or this revision does not have it."""
    try:
        answer = check_answer("from a callback", method, params, answer)
    except InvalidParams as error:
        raise TypeError(error.message) from None
    # Of a message, if it is one; no other answer has content of this kind.
    content: Any = answer["content"] if "role" in answer else []
    blocks = content if isinstance(content, list) else [content]
    for block in blocks:
        since = SAMPLING_SINCE[block["type"]]
        if isinstance(content, list):
            since = max(since, _LISTS_SINCE)
        if since > version:
            raise TypeError(f"content: {show(content)} is not in {version}")
    return answer


def encode_roots(roots: Any) -> list[Json] | None:
    """Roots as on the wire; None if there are none to declare.

    Raises ValueError or TypeError for what is no list, and as encode_root does.
    """
    if roots is None:
        return None
    if isinstance(roots, (str, bytes, dict)) or not isinstance(roots, Iterable):
        raise ValueError(f"roots: expected a list, got {show(roots)}")
    return [encode_root(root) for root in roots]


def encode_root(root: Any) -> Json:
    """A root as on the wire, from a path, a URI, or {"uri", "name"}.

    Raises ValueError for a URI that is none of a file, TypeError for what is no path.
    """
    if isinstance(root, dict):
        return {**root, "uri": check_file_uri("roots: uri", root.get("uri"))}
    if not isinstance(root, (str, os.PathLike)):
        raise TypeError(f"roots: expected paths, URIs or dicts, got {show(root)}")
    text = os.fspath(root)
    # One letter before the colon would be a Windows drive.
    if isinstance(text, str) and re.match(r"[A-Za-z][A-Za-z0-9+.\-]+:", text):
        return {"uri": check_file_uri("roots", text)}
    import pathlib

    path = pathlib.Path(os.path.abspath(os.path.expanduser(text)))
    return {"uri": path.as_uri(), "name": path.name or str(path)}


def _object(*required: str, **properties: Json) -> Json:
    """The schema of an object."""
    return {"type": "object", "required": list(required), "properties": properties}


def _list_or_one(schema: Json) -> Json:
    """The schema of a value, or a list of those."""
    return {"if": {"type": "array"}, "then": {"items": schema}, "else": schema}


# A block of a message, by its kind: client/sampling.md.
_BLOCKS = {
    "text": _object("text", text=_TEXT),
    "image": _object("data", "mimeType", data=_TEXT, mimeType=_TEXT),
    "audio": _object("data", "mimeType", data=_TEXT, mimeType=_TEXT),
    "tool_use": _object("id", "name", "input", id=_TEXT, input={"type": "object"}),
    "tool_result": _object("toolUseId", "content", toolUseId=_TEXT),
}
_BLOCK = {
    **_object("type", type={"enum": list(_BLOCKS)}),
    "allOf": [
        {"if": _object("type", type={"const": kind}), "then": schema}
        for kind, schema in _BLOCKS.items()
    ],
}
_ROLE = {"enum": ["assistant", "user"]}
_MESSAGE = _object("role", "content", role=_ROLE, content=_list_or_one(_BLOCK))
# "Supported formats": client/elicitation.md.
FORM_FORMATS = ("email", "uri", "date", "date-time")
# What elicitation allows as a form: a list is one of choices.
_FIELD = {
    **_object(
        "type", type={"enum": ["string", "number", "integer", "boolean", "array"]}
    ),
    "if": _object(type={"const": "array"}),
    "then": _object(
        "items",
        items={
            "type": "object",
            "anyOf": [{"required": ["enum"]}, {"required": ["anyOf"]}],
        },
    ),
}
# What asserts something, and no form has: "other advanced JSON Schema features are
# intentionally not supported".
_NOT_IN_FORMS = (
    "$ref $dynamicRef allOf anyOf not if then else const multipleOf exclusiveMinimum "
    "exclusiveMaximum uniqueItems contains prefixItems properties patternProperties "
    "additionalProperties propertyNames required dependentRequired dependentSchemas "
    "unevaluatedProperties unevaluatedItems"
).split()
_SENT_FIELD = {
    "allOf": [_FIELD],
    "properties": {
        "format": {"enum": list(FORM_FORMATS)},
        "oneOf": {"type": "array", "items": _object("const", "title")},
        **dict.fromkeys(_NOT_IN_FORMS, False),
    },
}


def _form(field: Json) -> Json:
    """The schema of forms with such fields."""
    fields = {"type": "object", "additionalProperties": field}
    return _object("type", "properties", type={"const": "object"}, properties=fields)


# A message of the model's conversation; and forms as we take them, where a client may
# leave out what it cannot show, and as we send them.
MESSAGE = "message"
TAKEN = "form taken"
SENT = "form sent"

# The schemas of those, and of what answers a question, by its method: client/.
_SCHEMAS = {
    MESSAGE: _MESSAGE,
    TAKEN: _form(_FIELD),
    SENT: _form(_SENT_FIELD),
    "ping": _object(),
    "roots/list": _object(
        "roots",
        roots={"type": "array", "items": _object("uri", uri=_TEXT)},
    ),
    "elicitation/create": _object(
        "action", action={"enum": ["accept", "decline", "cancel"]}
    ),
    "sampling/createMessage": _MESSAGE,
}


@lru_cache(maxsize=None)
def _schema_of(name: str) -> Schema:
    """One of them, compiled when it is needed: all together would take milliseconds of
    every start."""
    return Schema(_SCHEMAS[name])


# requestState: what it holds for, and how it is sealed


# The claims that tell who it is, where there is a subject: RFC 9068, section 2.2.
_IDENTITY = ("iss", "sub", "client_id")
# Those that change when a token is renewed, or gets more rights.
_PASSING = ("exp", "nbf", "iat", "jti", "auth_time", "scope", "scp")


def principal(auth: Json | None) -> Any:
    """Whom a token's claims are about: what stays the same when it is renewed.

    A program is nobody: without a subject, two users of one client differ in whatever
    else their tokens claim.
    """
    if not auth:
        return auth
    if auth.get("sub"):
        return {name: auth[name] for name in _IDENTITY if name in auth}
    return {name: value for name, value in auth.items() if name not in _PASSING}


def fingerprint(value: object) -> str:
    """A short text that no other JSON value has."""
    import hashlib

    text = json.dumps(value, sort_keys=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:32]


# A state that has come back: what was sealed, what nobody can know who did not get it,
# and when it expires.
SealedState = namedtuple("SealedState", "record signature expires")


class Signer:
    """Seals what travels through the client: HMAC-SHA256 over JSON with an expiry.

    A sealed state is `payload.signature`: base64 of the JSON, and hexadecimal digits.
    The binding and the server's name are signed too, but are no part of it. The first
    key signs, all verify, so that keys can be changed while clients hold states.
    """

    def __init__(self, state_key: Any, server_name: str = "") -> None:
        if state_key is None:
            state_key = os.urandom(32)
        if not isinstance(state_key, (list, tuple)):
            state_key = [state_key]
        self._keys = [
            key.encode("utf-8") if isinstance(key, str) else key for key in state_key
        ]
        strong = [isinstance(key, bytes) and len(key) >= 16 for key in self._keys]
        if not strong or not all(strong):
            raise ValueError(
                "state_key: expected bytes or str of at least 16 bytes, "
                "or a list of those"
            )
        self._server_name = server_name
        self._used = UsedStates(Budget(MAX_USED_STATES))

    def seal(self, record: Json, binding: str) -> str:
        """The record as text that only `open` with the same binding takes.

        Raises ValueError if it is too large.
        """
        expires = int(time.time() + STATE_SECONDS)
        # The same question twice in a second is two states: each is used once.
        once = os.urandom(12).hex()
        # In ASCII: what came from the client may hold a lone surrogate.
        text = json.dumps({"record": record, "expires": expires, "once": once})
        payload = _base64(text.encode("ascii"))
        if len(payload) > MAX_STATE:
            raise ValueError(
                f"requestState: {len(payload)} bytes of answers and once(), "
                f"over {MAX_STATE}"
            )
        return payload + "." + self._signatures(payload, binding)[0]

    def open(self, sealed: Any, binding: str) -> SealedState:
        """The state again.

        Raises InvalidParams for what seal did not make for this binding, or long ago,
        and for what was used.
        """
        import hmac

        is_text = isinstance(sealed, str) and sealed.isascii()
        # A signature has 64 digits.
        if not is_text or len(sealed) > MAX_STATE + 100:
            sealed = ""
        payload, _, signature = sealed.rpartition(".")
        valid = self._signatures(payload, binding)
        if not any(hmac.compare_digest(each, signature) for each in valid):
            raise InvalidParams(
                "requestState: not from this server, or not for this request"
            )
        sealed_state = json.loads(_parse_base64(payload))
        state = SealedState(
            sealed_state["record"], bytes.fromhex(signature), sealed_state["expires"]
        )
        if state.expires < time.time():
            raise InvalidParams("requestState: expired; call again without it")
        self._used.check(state)
        return state

    def use(self, state: SealedState) -> None:
        """Use a state up, in this process. Raises InvalidParams if it was before."""
        self._used.add(state)

    def _signatures(self, payload: str, binding: str) -> list[str]:
        """What each key signs it with."""
        import hmac

        # Not before there is a state: hashlib takes as much memory as a small server.
        server = fingerprint(self._server_name)
        signed = f"{server}.{binding}.{payload}".encode("ascii")
        return [hmac.new(key, signed, "sha256").hexdigest() for key in self._keys]


class UsedStates:
    """The states that were used, each until it would have expired.

    When the budget is used up, those that would expire first are forgotten, and what
    expires no later than they is refused, used or not: so no state is used twice.
    """

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._lock = threading.Lock()
        # The second when they expire -> their signatures.
        self._signatures: dict[int, set[bytes]] = {}
        # All that expire until then are refused.
        self._forgotten = 0

    def check(self, state: SealedState) -> None:
        """Raise InvalidParams if it was used, or must be taken for one that was."""
        with self._lock:
            self._check_locked(state)

    def add(self, state: SealedState) -> None:
        """Note that a state is used now. Raises InvalidParams if it was before."""
        with self._lock:
            self._check_locked(state)
            self._forget_locked(int(time.time()))
            while not self._budget.take(USED_STATE):
                self._forget_locked(min(self._signatures) + 1)
            self._signatures.setdefault(state.expires, set()).add(state.signature)

    def _check_locked(self, state: SealedState) -> None:
        used = self._signatures.get(state.expires, ())
        if state.expires <= self._forgotten or state.signature in used:
            raise InvalidParams("requestState: was used before; call again without it")

    def _forget_locked(self, second: int) -> None:
        """Forget those that expire before a second."""
        for expires in [each for each in self._signatures if each < second]:
            self._budget.give_back(USED_STATE * len(self._signatures.pop(expires)))
            self._forgotten = max(self._forgotten, expires)


def _is_object_of_objects(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    return all(isinstance(each, dict) for each in value.values())


###############################################################################
# 18. Context #################################################################
###############################################################################
# What a handler sees of its request, how it asks the client, and where it runs.
#
# In a legacy session a question is a request to the client, and the handler waits for
# the answer. A modern server sends no requests: the question is the result, and the
# request comes again with the answer (basic/patterns/mrtr.md):
#
#     client                                server
#     tools/call ----------------------->   runs the handler; ctx.elicit() has no answer
#                                           on record, and raises _InputRequired
#     <--- "input_required", with inputRequests and requestState
#     asks its user
#     tools/call, with inputResponses
#                and requestState ------>   load_answers(); runs the handler again from
#                                           its top; ctx.elicit() returns the answer
#     <--- "complete"
#
# requestState is what the server must remember between the two, in the client's
# keeping: the answers so far, the values of once(), what was asked last; see Signer.
class Context:
    """A handler's view of its request: it gets one in a parameter of this type.

    Any thread may use it while the request is in flight. An `async def` handler may use
    it as well; but what blocks, holds up its event loop: there, write
    `await asyncio.to_thread(ctx.elicit, message, schema)`.

        request_id: the request's id; None of a notification
        meta: its `_meta`, as it came
        protocol_version: the revision that it is served in
        client_info: what the client calls itself; nobody verified that
        client_capabilities: what the client declared that it can do
        session_id: of a legacy HTTP session, else None
        auth: the claims that `verify` returned for its token, else None
        headers: of the HTTP request that brought it, their names in lower case: a copy;
            else none
        cancelled: whether it was cancelled, or its client is gone

    What asks the client (elicit, elicit_url, sample, roots, ask) blocks, in a legacy
    session. It raises MissingCapability if the client did not declare that it answers
    such questions, InvalidParams if the answer is wrong, McpError if it is an error,
    Cancelled if the request is, or is over, and Timeout after ten minutes without an
    answer.

    BEWARE: in the modern era a handler runs again from its top for every answer, so
    what stands before a question happens again. Ask first and act afterwards, or wrap
    the act in `once`. Questions without a `key` are told apart by their order, so that
    must be the same in each run.
    """

    # What the client has answered was looked at: see load_answers.
    _has_loaded = False
    # What a requestState is good for, once that was asked for.
    _bound_to = ""
    # The modern era's record. Key -> [fingerprint of the question, its answer].
    _recorded: Json = {}
    # The keys of the answers that came with this request; and the state that it
    # brought, until one of them is taken.
    _fresh: frozenset[str] = frozenset()
    _unused_states: list[SealedState] = []
    # The question that it hands on, if it does: what it asks ends with that, too.
    _asks_for: Request | None = None

    def __init__(
        self, connection: Connection, request: Request, signer: Signer
    ) -> None:
        self.request_id = None if request.is_notification else request.id
        self.meta = request.meta
        self.protocol_version = request.version
        self.client_info = request.client_info
        self.client_capabilities = request.capabilities
        self.session_id = connection.session_id
        self.auth = request.auth
        self._connection = connection
        self._request = request
        self._signer = signer
        # Key -> value; and the thread that is about to find it.
        self._once: Json = {}
        self._finding: dict[str, int] = {}
        # Numbers the questions without a key.
        self._next_number = itertools.count(1).__next__

    # Telling

    def progress(
        self, done: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Tell the client how far this is, if it asked: basic/patterns/progress.md.

        done: how far; it "MUST increase with each notification": one that does not is
            not sent, nor is its message, and the log says so, as DEBUG
        total: what `done` will be at the end, where that is known
        message: what is being done; clients know it since 2025-03-26

        Raises ValueError or TypeError for what is no number of JSON's.
        """
        request = self._request
        if request.progress_token is None:
            return
        if not done > request.progress:
            told = f"progress: {show(done)}, after {show(request.progress)}: not sent"
            self._connection.log.debug(f"{request.about}: {told}")
            return
        params = {"progressToken": request.progress_token, "progress": done}
        add_given(params, total=total)
        if request.version >= "2025-03-26":
            add_given(params, message=message)
        self._connection.notify(
            "notifications/progress", params, request, progress=done
        )

    def log(self, level: str, data: object, logger: str | None = None) -> None:
        """Log to the client, if it wants this level: server/utilities/logging.md.

        level: "debug", "info", "notice", "warning", "error", "critical", "alert" or
            "emergency"; else ValueError
        data: any value with a JSON form; else TypeError
        logger: the name of what logs
        """
        if level not in LOG_LEVELS:
            raise ValueError(f"level: {LEVELS_TEXT}, got {show(level)}")
        if self._request.modern:
            wanted = self._request.log_level
        else:
            wanted = self._connection.protocol.log_level
        # "MUST NOT emit `notifications/message` for a request that does not include
        # this field": the log_level of a modern request is "" then.
        if not wanted or LOG_LEVELS.index(level) < LOG_LEVELS.index(wanted):
            return
        params: Json = {"level": level}
        add_given(params, logger=logger)
        params["data"] = to_plain(data)
        self._connection.notify("notifications/message", params, self._request)

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

    @property
    def headers(self) -> dict[str, str]:
        """Those of the HTTP request, their names in lower case; {} elsewhere."""
        return dict(self._request.headers)

    # Cancellation: basic/patterns/cancellation.md

    @property
    def cancelled(self) -> bool:
        """Whether it was cancelled, or its client is gone. The answer is dropped."""
        return self._request.cancelled

    def check_cancelled(self) -> None:
        """Raise Cancelled if the request was cancelled."""
        if self._request.cancelled:
            raise Cancelled("the request was cancelled")

    def sleep(self, seconds: float) -> None:
        """Block for so many seconds. Raise Cancelled once the request is cancelled."""
        inbox: SimpleQueue[Any] = SimpleQueue()
        with self._waiting(inbox), suppress(Empty):
            get_within(inbox, max(0.0, seconds))
        self.check_cancelled()

    def on_cancel(self, fn: Job) -> None:
        """Have fn() called, on another thread, when the request is cancelled.

        If it was already, fn() is called at once, on another thread, too.
        """
        self._request.callbacks.append(fn)
        # Cancelled just now? Whoever takes fn off the list calls it, so it runs once.
        if self._request.cancelled:
            self._connection._stop(self._request)

    @contextmanager
    def _waiting(self, *inboxes: SimpleQueue[Any]) -> Iterator[None]:
        """Inside, each inbox gets ("cancelled", None) on cancellation.

        Raises Cancelled if that was before.
        """
        requests = [self._request]
        if self._asks_for is not None:
            requests.append(self._asks_for)
        for request in requests:
            request.cancel_inboxes += inboxes
        try:
            if any(request.cancelled for request in requests):
                raise Cancelled("the request was cancelled")
            yield
        finally:
            for request in requests:
                for inbox in inboxes:
                    request.cancel_inboxes.remove(inbox)

    def close_stream(self, retry_ms: int | None = None) -> None:
        """End the stream of the answer, in a legacy HTTP session: the client returns.

        retry_ms: how long it waits before it does; a second, unless told

        Elsewhere, and before 2025-11-25, where a stream lasts until its answer, nothing
        happens. Raises ValueError for what is less than nothing.
        """
        wait = RETRY_MS if retry_ms is None else retry_ms
        if wait < 0:
            raise ValueError(f"retry_ms: expected milliseconds, got {show(retry_ms)}")
        if self._request.stream is not None:
            self._request.stream.leave(wait)

    # Asking

    def elicit(self, message: str, schema: object, key: str | None = None) -> Json:
        """Ask the user to fill in a form: client/elicitation.md.

        message: what the user is told
        schema: the form: a flat JSON Schema, a dataclass or a TypedDict; ValueError for
            what elicitation does not allow, such as a list of choices to a client of a
            revision before 2025-11-25
        key: what the answer is known by if the handler runs again

        Returns {"action": "accept", "decline" or "cancel", "content"}. The content is
        None unless accepted, and of the dataclass or TypedDict if that was the schema.
        """
        form, convert = elicitation_schema(schema)
        params = {"message": message, "requestedSchema": form}
        answer = self._ask_one(key, "elicit", "elicitation/create", params)
        content = None
        if answer["action"] == "accept" and answer.get("content") is not None:
            try:
                content = convert(answer["content"])
            except REFUSALS as error:
                # Beyond what the form could say: a date that no calendar has, say.
                raise InvalidParams(f"the client's answer: content: {error}") from None
        return {**answer, "content": content}

    def elicit_url(self, message: str, url: str, key: str | None = None) -> Json:
        """Ask the user to visit a URL, for what must not pass through the client.

        That is keys, payments, logins: client/elicitation.md.

        message: what the user is told
        url: where to go: https, or http; ValueError for another
        key: what the answer is known by if the handler runs again

        Returns {"action", "content": None}. "accept" means that the user agreed to go,
        not that they have been there.
        """
        params = {"mode": "url", "message": message, "url": url}
        if not self._request.modern:
            params["elicitationId"] = os.urandom(16).hex()
        answer = self._ask_one(key, "elicit_url", "elicitation/create", params)
        return {"action": answer["action"], "content": None}

    def sample(
        self,
        messages: object,
        max_tokens: int = 1000,
        key: str | None = None,
        **params: object,
    ) -> Json:
        """Have the client's model answer: client/sampling.md.

        messages: text, a Message, or a list of those; ValueError where the results of
            tools do not follow their uses, each alone in a message, and for what the
            client's revision does not know: audio is since 2025-03-26, tools are since
            2025-11-25
        max_tokens: the most that the answer may have
        key: what the answer is known by if the handler runs again
        params: the wire's others: system_prompt= becomes systemPrompt, and so on

        Returns {"role", "content", "model", "stopReason"}.
        """
        question = {"messages": prompt_messages(messages), "maxTokens": max_tokens}
        for name, value in params.items():
            camel_case = re.sub("_(.)", lambda match: match[1].upper(), name)
            question[camel_case] = value
        return self._ask_one(key, "sample", "sampling/createMessage", question)

    def roots(self, key: str | None = None) -> list[Json]:
        """Ask which directories the client works in: client/roots.md.

        key: what the answer is known by if the handler runs again

        Returns [{"uri", "name"}, ...]; a root may have no name. The URIs are of files,
        and have no ".." in them; how much is behind them is not checked.
        """
        return list(self._ask_one(key, "roots", "roots/list", {})["roots"])

    def ask(self, questions: dict[str, tuple[str, Json]]) -> dict[str, Json]:
        """Ask several questions at once.

        questions: {key: (method, params)}, as the wire has them, of the methods
            "elicitation/create", "sampling/createMessage" and "roots/list"; ValueError
            for others, for more than 100, and as elicit, elicit_url and sample say

        Returns {key: result}, each checked. In a legacy session all the answers have
        ten minutes, from now on.
        """
        self.check_cancelled()
        if self._connection._is_ended(self._request):
            raise Cancelled("the request is over: nothing can be asked any more")
        if len(questions) > MAX_ASKED:
            raise ValueError(
                f"questions: expected {MAX_ASKED} at most, got {len(questions)}"
            )
        if self._request.modern and not self._request.row.asks:
            # basic/patterns/mrtr.md: "Servers MUST NOT send `InputRequiredResult`
            # responses on any other client requests" than those three.
            raise InvalidRequest(
                f"{self._request.method}: nothing can be asked in {NEWEST} but while a "
                "tool, a prompt or a resource is served"
            )
        self.load_answers()
        for method, params in questions.values():
            self._require_capability(method, params)
        fitted = {
            key: (method, fit_question(method, params, self.protocol_version))
            for key, (method, params) in questions.items()
        }
        ask = self._ask_modern if self._request.modern else self._ask_legacy
        answers = ask(fitted)
        # By what was asked for, whatever the revision made of it.
        answers = {
            key: check_answer(key, method, params, answers[key])
            for key, (method, params) in questions.items()
        }
        if not self._fresh.isdisjoint(questions):
            self._use_state()
        return answers

    def once(self, key: str, fn: Job) -> Any:
        """The value of fn(), which is called once even when the handler runs again.

        key: what the value is known by: another for each use
        fn: returns a value with a JSON form; as JSON has it, once() returns it

        In the modern era the value travels through the client, signed, but readable:
        let it be no secret.
        """
        self.load_answers()
        me = threading.get_ident()
        # Two threads of a handler may want it: one finds it, and the other one waits.
        while key not in self._once and self._finding.setdefault(key, me) != me:
            self.check_cancelled()
            wait_until(lambda: key not in self._finding, WAIT_SLICE)
        try:
            if key not in self._once:
                self._once[key] = json.loads(encode_json(to_plain(fn())))
        finally:
            if self._finding.get(key) == me:
                del self._finding[key]
        return self._once[key]

    # How questions are asked

    def _ask_one(self, key: str | None, kind: str, method: str, params: Json) -> Json:
        if key is None:
            key = f"{kind}-{self._next_number()}"
        return self.ask({key: (method, params)})[key]

    def _require_capability(self, method: str, params: Json) -> None:
        """Raise MissingCapability unless the client declared what a question needs.

        "If processing a request requires a capability the client did not include [...],
        the server MUST return" -32021, says the modern era; a session gets the same.
        """
        declared = self.client_capabilities
        needed, since = needed_capability(method, params, declared)
        if self.protocol_version >= since and has_capability(declared, needed):
            return
        required: Json = {}
        for name in reversed(needed):
            required = {name: required}
        raise MissingCapability(
            f"{method} needs the client capability {'.'.join(needed)}, "
            "which was not declared",
            {"requiredCapabilities": required},
        )

    def _ask_legacy(self, questions: dict[str, tuple[str, Json]]) -> dict[str, Json]:
        """Send the questions, and block until all are answered, or one fails."""
        until = time.monotonic() + STATE_SECONDS
        connection = self._connection
        if not connection.protocol.initialized:
            # lifecycle: "The server SHOULD NOT send requests other than pings and
            # logging before receiving the `initialized` notification".
            raise InvalidRequest("a question: not before notifications/initialized")
        waiters = {key: Waiter(method) for key, (method, _) in questions.items()}
        inboxes = [waiter.inbox for waiter in waiters.values()]
        answers = {}
        with self._waiting(*inboxes):
            try:
                for key, (_, params) in questions.items():
                    connection.request(waiters[key], params, self._request)
                for key, waiter in waiters.items():
                    seconds = max(0.0, until - time.monotonic())
                    answers[key] = connection.wait(waiter, seconds)
            finally:
                # Of the others, when one fails; who has its answer is not abandoned.
                for waiter in waiters.values():
                    connection.abandon(waiter, "no longer needed")
        return answers

    def _ask_modern(self, questions: dict[str, tuple[str, Json]]) -> dict[str, Json]:
        """The answers on record. Raises _InputRequired for questions that have none."""
        missing = {}
        for key, (method, params) in questions.items():
            question = {"method": method, "params": params}
            if not self._is_answered(key, question):
                missing[key] = question
        if missing:
            raise _InputRequired(
                {
                    "inputRequests": missing,
                    "requestState": self._seal_record(missing),
                }
            )
        return {key: self._recorded[key][1] for key in questions}

    def _is_answered(self, key: str, question: Json) -> bool:
        """Whether an answer to this very question is on record under this key."""
        if key not in self._recorded:
            return False
        answered = self._recorded[key][0]
        # None: it came before we asked, see load_answers, and fits any question.
        return answered is None or answered == fingerprint(question)

    def _seal_record(self, asked: Json) -> str:
        """The requestState that goes out with questions."""
        record = {
            "answers": self._recorded,
            "once": self._once,
            "asked": {key: fingerprint(question) for key, question in asked.items()},
        }
        return self._signer.seal(record, self._binding())

    def load_answers(self) -> None:
        """Take what a request that comes again brings: our record, and new answers.

        Raises InvalidParams for answers that are no objects, and for a requestState
        that is not ours, belongs to another request, is old, or was used. What answers
        nothing that was asked is ignored. Done once, when the handler begins, or what
        is around it has a question: so whoever changes `params` before that changes
        them in each round.
        """
        request = self._request
        params = request.params
        if self._has_loaded or not (request.modern and request.row.asks):
            return
        self._has_loaded = True
        if "inputResponses" not in params and "requestState" not in params:
            return
        fresh = params.get("inputResponses", {})
        if not _is_object_of_objects(fresh):
            raise InvalidParams(
                f"inputResponses: expected an object of objects, got {show(fresh)}"
            )
        if "requestState" in params:
            state = self._signer.open(params["requestState"], self._binding())
            self._unused_states = [state]
            record = state.record
        else:
            # Answered before we asked. A client that knows this tool may send, in its
            # first request, {"when": {"action": "accept", ...}}: ctx.elicit(..., key=
            # "when") returns that, whatever it asks. So there is no fingerprint.
            record = {"answers": {}, "once": {}, "asked": dict.fromkeys(fresh)}
        self._recorded = record["answers"]
        self._once = record["once"]
        taken = {key: asked for key, asked in record["asked"].items() if key in fresh}
        for key, asked in taken.items():
            self._recorded[key] = [asked, fresh[key]]
        self._fresh = frozenset(taken)

    def _use_state(self) -> None:
        """Note that answers were taken: nobody gets them a second time.

        A retry without an answer, or with a wrong one, uses nothing up: it may come
        again. But whose answer was lost cannot know what the handler has done with it,
        so the same retry is refused, and the client begins anew.
        """
        # Whichever thread takes it off the list.
        with suppress(IndexError):
            self._signer.use(self._unused_states.pop())

    def _binding(self) -> str:
        """What a requestState is good for: this method, with these, by this caller."""
        if not self._bound_to:
            request = self._request
            salient = [
                request.params.get(name) for name in ("name", "uri", "arguments")
            ]
            told = [request.method, salient, principal(self.auth)]
            self._bound_to = fingerprint(told)
        return self._bound_to


# Where functions run


class MainThread:
    """A host's main thread, for programs whose functions must run there.

        main = MainThread()
        server = Server("host", run_on=main)

    The host's timer or loop calls main.run_pending(), which runs what waits.
    """

    def __init__(self) -> None:
        """A main thread that runs nothing until run_pending() is called."""
        self._jobs: SimpleQueue[Any] = SimpleQueue()
        # Held by run_pending(); nobody waits for it.
        self._running = threading.Lock()
        self._closed = False
        # The one that ran jobs last.
        self._thread: threading.Thread | None = None

    def __call__(self, job: Callable[..., Any]) -> None:
        """Have the main thread call job(): at once if this is it, else when it can.

        job: called once: alone, or as job(error) if there is no main thread any more
        """
        if self._thread is threading.current_thread() and not self._closed:
            job()
        else:
            self._jobs.put(job)
        # Also if it was closed just now.
        if self._closed:
            self.close()

    def call(self, fn: Job, timeout: float | None = None) -> Any:
        """Have the main thread call fn(), and block for what it returns.

        fn: a part of a longer work; its server has no run_on then, so that the rest of
            it holds up nobody
        timeout: seconds until the main thread must have come to it; None: no such limit

        Raises what fn raises, Timeout, and ConnectionClosed where there is no main
        thread any more.
        """
        slot = Slot(fn)
        self(slot.run)
        if not slot.wait(timeout) and slot.give_up():
            raise Timeout(f"the main thread did not come to it in {timeout:g} s")
        return slot.value()

    def run_pending(self, max_seconds: float = 0.01, wait: float = 0.0) -> int:
        """Run what waits, on this thread, and return how many that were.

        max_seconds: begin no other job when these are over
        wait: seconds to block for the first one

        A job that calls this again gets 0.
        """
        if self._closed or not self._running.acquire(blocking=False):
            return 0
        self._thread = threading.current_thread()
        count = 0
        try:
            job = get_within(self._jobs, wait)
            until = time.monotonic() + max_seconds
            while True:
                job()
                count += 1
                if time.monotonic() >= until:
                    break
                job = get_within(self._jobs, 0.0)
        except Empty:
            pass  # for now
        finally:
            self._running.release()
        return count

    def close(self) -> None:
        """Fail the jobs that wait, and those that are still to come. Idempotent."""
        self._closed = True
        with suppress(Empty):
            while True:
                job = self._jobs.get_nowait()
                job(ConnectionClosed("the host program's main loop is closed"))


def run_job(ctx: Context, job: Job, run_on: Callback) -> Any:
    """What the call of a user's function gives, as call_function says, called where
    `run_on` says, else on this thread."""
    if run_on is not None:
        return _call_hosted(ctx, job, run_on)
    forks = _count_forks()
    before = len(forks)
    try:
        return call_function(ctx, job)
    finally:
        if len(forks) != before:
            _leave_fork(sys.exc_info()[1])


@lru_cache(None)
def _count_forks() -> list[None]:
    """A list that grows by one in the child of each fork: to look at it costs less than
    to ask the system for the number of the process."""
    forks: list[None] = []
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=partial(forks.append, None))
    return forks


def _leave_fork(error: BaseException | None) -> None:
    """End the child of a fork that comes out of a handler: what the handler was called
    for is its parent's business. With the code of sys.exit(), if it was called."""
    code: Any = None
    if isinstance(error, SystemExit):
        code = error.code
    elif error is not None:
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
    os._exit(code if isinstance(code, int) else int(code is not None))


def call_function(ctx: Context, call: Job) -> Any:
    """What the call of a user's function returns; of an `async def` one, what that
    gives."""
    value = call()
    if hasattr(type(value), "__await__"):
        return _await_value(ctx, value)
    return value


def _await_value(ctx: Context, awaitable: Any) -> Any:
    """What an awaitable gives, by an event loop of its own, on this thread.

    With the request its task is cancelled: it sees CancelledError, and may tidy up.
    """
    import asyncio

    async def run() -> Any:
        loop = asyncio.get_running_loop()
        task: Any = asyncio.current_task()

        def cancel() -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(task.cancel)

        ctx.on_cancel(cancel)
        return await awaitable

    if asyncio._get_running_loop() is not None:
        getattr(awaitable, "close", do_nothing)()
        raise RuntimeError(
            "this thread runs an event loop already, and an `async def` handler needs "
            "its own: let run_on= call it on another thread, or leave that out; and "
            "have server.handle called by asyncio.to_thread"
        )
    try:
        return asyncio.run(run())
    except asyncio.CancelledError:
        ctx.check_cancelled()
        raise


def run_in_time(ctx: Context, job: Job, seconds: float, late: Json) -> Any:
    """What call_function() gives. When its time is over, `late` is the request's
    answer."""
    timer = start_timer(seconds, ctx._connection.cut_short, ctx._request, late)
    try:
        return call_function(ctx, job)
    finally:
        timer.cancel()


def _call_hosted(ctx: Context, call: Job, run_on: Callable[..., Any]) -> Any:
    """What call_function() gives where `run_on` says. This thread waits for that; not
    any longer when the client does not want it any more."""

    def job() -> Any:
        # It may have been cancelled while it was queued.
        ctx.check_cancelled()
        return call_function(ctx, call)

    slot = Slot(job)
    dropped = ConnectionClosed("the host program has dropped the call")
    with ctx._waiting(slot.outcome):
        # An executor's submit() returns a Future, and may cancel that later on.
        future = run_on(slot.run)
        if hasattr(future, "add_done_callback"):
            future.add_done_callback(lambda future: slot.run(dropped))
        value = slot.value()
    ctx.check_cancelled()
    return value


###############################################################################
# 19. stdio ###################################################################
###############################################################################
# Byte streams with a message a line (basic/transports/stdio.md): this process's own,
# any pair, a child's. Knows how to move bytes and how to end; what they mean is the
# Connection's business.
def stream_reader(stream: Any) -> Callable[[], bytes]:
    """A function that blocks for the next bytes of a binary stream; b"" at its end.

    It returns what there is, without waiting for more.
    """
    # The read() of a buffered stream would wait for the whole chunk.
    read = getattr(stream, "read1", stream.read)
    if not isinstance(stream, io.BufferedReader):
        return lambda: read(CHUNK) or b""
    # What the buffer holds comes first. Then we stay in its raw stream: an interpreter
    # that ends while a thread is inside sys.stdin.buffer dies of it.
    first = [lambda size: read(-1)]
    reads = itertools.chain(first, itertools.repeat(stream.raw.read))
    return lambda: next(reads)(CHUNK) or b""


def stream_writer(stream: Any) -> Write:
    """A function that writes all the bytes to a binary stream and flushes it."""

    def write(data: bytes) -> None:
        left = memoryview(data)
        while left:
            count = stream.write(left)
            if count is None and isinstance(stream, io.RawIOBase):
                raise BlockingIOError("the stream is full, and set not to block")
            # What only looks like a stream may return None: it has taken all of it.
            left = left[count or len(left) :]
        stream.flush()

    return write


class StreamTransport(Transport):
    """A pair of binary streams: this process's own, a socket's files, any two.

    A server's handlers wait for a client that is slow to read; a client's callers have
    a timeout to keep, and do not: for them, it is not `patient`.
    """

    def __init__(self, reader: Any, writer: Any, *, patient: bool = True) -> None:
        self._reader = reader
        self._writer = writer
        self._reads = Interruptible()
        self._writes = Interruptible()
        self._read = self._reads.wrap(stream_reader(reader))
        self._write = self._writes.wrap(stream_writer(writer))
        self._patient = patient

    def read(self) -> bytes:
        return self._read()

    def write(self, data: bytes) -> None:
        self._write(data)

    def may_write(self, size: int) -> bool:
        return self._patient or self.takes_at_once(size)

    def takes_at_once(self, size: int) -> bool:
        try:
            import select

            descriptor = self._writer.fileno()
        except (ImportError, AttributeError, OSError, ValueError):
            return False  # with an ImportError, Python ends, and this is for a __del__
        # What a pipe that is ready takes at once, 512 bytes on macOS; a socket has room
        # for more. On Windows nobody knows.
        is_small = size <= getattr(select, "PIPE_BUF", 0)
        return is_small and is_ready(descriptor, writing=True)

    def hung_up(self) -> bool:
        return is_broken(self._writer)

    def close(self) -> None:
        # A socket's files keep it open, and a thread in its read: say the end to both.
        for stream in (self._writer, self._reader):
            with suppress(AttributeError):
                shut(getattr(stream, "raw", stream)._sock)
        self._writes.interrupt()
        # Not the reader: a thread may be inside of it, and would hold up its close().
        with suppress(OSError, ValueError):
            self._writer.close()

    def let_go(self) -> None:
        """Have nobody inside of the streams any more, as far as the system can do that,
        so that others may do with them what they want."""
        self._reads.interrupt()
        self._writes.interrupt()


class Pump:
    """Reads a server's input and has it served: what Server.serve() runs.

    A lone request is served by the thread that has read it: to hand it over would cost
    more than most handlers do. Nobody reads meanwhile. Should that last, whoever called
    run() starts another reader. With R, a reader, and C, the caller of run():

        1. R holds the lock `_reading`, and is in its read. C looks every TICK; once it
           has seen somebody reading PARKING_LOOKS times in a row, it is parked.
        2. A lone request comes. R puts it into `_serving`, and lets go of `_reading`.
           If C is parked, R signals that it is SERVING: C looks again.
        3. R calls the handler.
      If the handler is fast:
        4. R has answered before C has looked twice. It takes `_reading`, and is at 1.
      If it is slow:
        4. C has looked twice. Nobody was reading, and the same was served each time. So
           it starts another reader, S, which takes `_reading`, and is at 1 now. While R
           is serving, what S reads goes to workers.
        5. The handler returns. R answers, finds that `_reading` is taken, and ends.
      When the input ends:
        6. Who reads signals that, and ends. C waits for what is in flight, and returns.

    C serves nothing, so that a handler that ignores its cancellation cannot keep run()
    from returning. It looks again and again, as a timer for each request would cost
    more than the request itself, while to be looked at costs R nothing.
    """

    # Between two looks; so a handler holds up the reading for 10 ms at most. A thread
    # may hold up the others for half of that: sys.getswitchinterval().
    TICK = 0.005
    PARKING_LOOKS = 40
    # What readers signal.
    SERVING = "serving"
    INPUT_ENDED = "the input has ended"

    def __init__(self, connection: Connection, stop: StopSignals) -> None:
        self._connection = connection
        self._stop = stop
        self._read = connection.transport.read
        # Never waited for: who cannot take it at once has nothing to read, and ends.
        self._reading = threading.Lock()
        # By readers, also those that are replaced.
        self._serving: list[Request] = []
        self._signals = stop.inbox
        # The caller does not look: who begins to serve must signal.
        self._parked = False

    def run(self) -> None:
        """Serve until the input ends, or a signal comes; then end what is in flight.

        What came           is cancelled              and then left, if it is deaf
        the input's end     after DRAIN_SECONDS       after as long again
        that, and nobody    at once                   after TIDY_SECONDS: who reads
            reads output                              nothing waits for nothing
        Ctrl-C              at once                   after DRAIN_SECONDS
        SIGTERM             at once: a client that    after TIDY_SECONDS: that client
                            sends it wants no answer  kills soon
        a second signal     at once                   at once
        """
        connection = self._connection
        closed = ConnectionClosed("the client closed the connection")
        try:
            try:
                self._look_after_readers()
            except KeyboardInterrupt:
                # Here it was not ours to take: serve() is called, not run().
                self._stop.tell("SIGINT")
            if not self._stop.came:
                # The last line may have no line break. After a signal, the reader stays
                # in its read until the input ends.
                connection.dispatch(connection.feed(b""))
            connection.fail_pending(closed)
            connection.endpoint.input_ended(connection)
            connection.helpers.nudge()
            wait_until(self._is_drained, DRAIN_SECONDS)
            self._let_tidy_up()
        finally:
            connection.close(closed)

    def _is_drained(self) -> bool:
        """Whether there is nothing to wait for, before what is left is cancelled."""
        connection = self._connection
        # The client may leave now only; or when it was killed, a moment after its
        # other end of the wire.
        if connection.transport.hung_up():
            connection.cancel_all()
        return bool(self._stop.came) or connection.is_drained()

    def _let_tidy_up(self) -> None:
        """Cancel what is still in flight, and wait for it, and for what was cancelled
        before."""
        connection = self._connection
        seconds = TIDY_SECONDS
        if self._stop.came:
            connection.log.debug(f"{self._stop.came[0]}: the server ends")
        elif connection.protocol.in_flight:
            late = f"still at work {DRAIN_SECONDS:g} s after the input's end"
            connection.log.warning(f"{late}: cancelled")
            seconds = DRAIN_SECONDS
        if self._stop.came == ["SIGINT"]:
            seconds = DRAIN_SECONDS
        connection.cancel_all()
        wait_until(self._is_tidy, seconds)

    def _is_tidy(self) -> bool:
        if self._stop.hurried:
            return True
        connection = self._connection
        # In this order: what still runs here may need the helpers.
        return (
            not self._serving
            and connection.workers.close(0.0)
            and connection.helpers.close(0.0)
        )

    def _look_after_readers(self) -> None:
        """Look whether a reader is needed, and start it, until the input ends."""
        signal = self.SERVING
        quiet_looks = 0
        served_before: list[Request] = []
        while signal not in (self.INPUT_ENDED, StopSignals.STOP):
            # The first time, there is none yet.
            serving = list(self._serving)
            if serving == served_before and not self._reading.locked():
                self._start_reader()
            served_before = serving

            quiet_looks += 1
            if not self._reading.locked():
                quiet_looks = 0
            self._parked = quiet_looks > self.PARKING_LOOKS
            # And once more, now that it is said: who let go before will not signal.
            may_park = self._parked and self._reading.locked()
            if may_park:
                for pool in list(self._connection._pools.values()):
                    pool.retry()
            with suppress(Empty):
                signal = get_within(
                    self._signals, WAIT_SLICE if may_park else self.TICK
                )

    def _start_reader(self) -> None:
        reader = threading.Thread(
            target=self._read_and_serve, name="mcp-server-reader", daemon=True
        )
        # RuntimeError: no thread is to be had. The next look tries again.
        with suppress(RuntimeError):
            reader.start()

    def _read_and_serve(self) -> None:
        """Read until the input ends, or another thread has come to read."""
        connection = self._connection
        in_flight = connection.protocol.in_flight
        try:
            if not self._reading.acquire(blocking=False):
                return
            for data in iter(self._read, b""):
                ready = connection.feed(data)
                # Lone is what comes while nothing else is open, and no reader at work,
                # be it on what was cancelled.
                if self._serving or len(ready) != 1 or len(in_flight) != 1:
                    connection.dispatch(ready)
                elif not self._serve(ready[0]):
                    return
        except (OSError, ValueError) as error:
            # ValueError: a file object that was closed.
            connection.log.debug(f"the input ended: {error_text(error)}")
        except BaseException as error:
            connection.log.error(f"cannot read on: {error_text(error)}", error)
        self._signals.put(self.INPUT_ENDED)

    def _serve(self, request: Request) -> bool:
        """Serve a request on the reading thread; False if another one reads by now."""
        self._serving.append(request)
        self._reading.release()
        if self._parked:
            self._parked = False
            self._signals.put(self.SERVING)
        self._connection.endpoint.serve_request(self._connection, request)
        self._connection.flush()
        self._serving.remove(request)
        return self._reading.acquire(blocking=False)


def keep_from_forks(file: Any) -> None:
    """Have the child of a fork let go of a file or socket of a wire.

    It is of use to this process alone: a child that lives on, as those of
    multiprocessing may, would keep it open, and who is at the other end waiting for its
    end.
    """
    _own_files().add(file)


@lru_cache(None)
def _own_files() -> WeakSet[Any]:
    """What a fork must not keep. There is none until there is something to put in."""
    from weakref import WeakSet

    own: WeakSet[Any] = WeakSet()
    # It cannot be taken back, so it is done once. Two threads that come first at once
    # have a set each.
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=partial(_let_go, own))
    return own


def _let_go(own: WeakSet[Any]) -> None:
    """In the child of a fork, put the null device in the place of what is not its own.

    Not closed: the number would be free for another file, and closed again with this.
    """
    with suppress(OSError, ValueError), open(os.devnull, "r+b", 0) as null:
        for file in list(own):
            if file.fileno() >= 0:
                os.dup2(null.fileno(), file.fileno(), inheritable=False)
    own.clear()


@contextmanager
def private_wire() -> Iterator[tuple[Any, Any]]:
    """Inside, the wire is two private files (in, out), and nothing else can reach it.

    Descriptor 0 is the null device meanwhile and 1 is stderr, for print(), C libraries
    and children alike. Restored after.
    """
    stdout: Any = sys.stdout
    # What os.dup() makes, other programs do not inherit, nor do forks: one that lives on
    # would keep the wire open, and the client waiting for its end.
    with open(os.devnull, "r+b", 0) as null, open(os.dup(0), "rb", 0) as inp, open(
        os.dup(1), "wb", 0
    ) as out:
        try:
            # Who reads, input() or a child, is to find nothing, instead of a message.
            # Who writes, writes to stderr.
            os.dup2(null.fileno(), 0)
            os.dup2(null.fileno() if sys.__stderr__ is None else 2, 1)
            keep_from_forks(inp)
            keep_from_forks(out)

            # What waits in the buffer of stdout must not reach the wire later; and who
            # prints to debug wants to see it at once. There may be no stdout, or one of
            # another kind; nobody may read it; or it is closed.
            with suppress(AttributeError, OSError, ValueError):
                stdout.flush()
                stdout.reconfigure(line_buffering=True)
            # What was closed when Python began is another file by now, if it is any.
            reader = null if sys.__stdin__ is None else inp
            writer = null if sys.__stdout__ is None else out
            yield reader, writer
        finally:
            # The same the other way: what was printed meanwhile must be out before 1 is
            # the wire again. A flush blocks where nobody reads stderr, and may fail. So
            # a worker does both: one may fail, and they have a second together.
            flushing = Workers("mcp-stdout", 1, do_nothing, None)
            for stream in (stdout, sys.stderr):
                flushing.submit(getattr(stream, "flush", do_nothing))
            os.dup2(inp.fileno(), 0)
            if flushing.close(1.0):
                os.dup2(out.fileno(), 1)
            else:
                # Then 1 stays what it is; and Python, which flushes both when it ends,
                # must not wait there, either.
                sys.stdout = sys.stderr = None


# The variables that a child process gets, and those that begin like these: where it
# finds programs, files, modules and certificates, and how it talks to people. The names
# that the official SDKs pass, and what Python, Node and a proxy need besides. Among
# them is no key, token or password: which server needs which of those, env= says.
_INHERITED_NAMES = frozenset(
    """
    HOME LOGNAME PATH SHELL TERM USER
    APPDATA HOMEDRIVE HOMEPATH LOCALAPPDATA PATHEXT PROCESSOR_ARCHITECTURE SYSTEMDRIVE
    SYSTEMROOT TEMP USERNAME USERPROFILE
    ALLUSERSPROFILE COMSPEC PROGRAMDATA PROGRAMFILES PROGRAMFILES(X86) TMP WINDIR
    LANG LANGUAGE TMPDIR TZ
    CONDA_PREFIX LD_LIBRARY_PATH NODE_PATH NVM_DIR VIRTUAL_ENV
    CURL_CA_BUNDLE NODE_EXTRA_CA_CERTS REQUESTS_CA_BUNDLE SSL_CERT_DIR SSL_CERT_FILE
    ALL_PROXY HTTPS_PROXY HTTP_PROXY NO_PROXY
    """.split()
)
_INHERITED_PREFIXES = ("LC_", "PYTHON", "XDG_")


def check_inherited(names: Iterable[str] | bool) -> Iterable[str] | bool:
    """The names of variables, or True. Raises ValueError, for a name by itself, too."""
    if isinstance(names, bool) or names is None:
        return names or ()
    is_list = isinstance(names, Iterable) and not isinstance(names, str)
    listed = list(names) if is_list else []
    if not is_list or not all(isinstance(each, str) for each in listed):
        raise ValueError(f"inherit_env: expected names, or True, got {show(names)}")
    return listed


def inherited_environment(more: Iterable[str] | bool) -> dict[str, str]:
    """The variables of this process that a child gets, and `more`: True is all."""
    if more is True:
        return dict(os.environ)
    named = set(more or ())
    return {
        name: value
        for name, value in os.environ.items()
        if name in named or _is_inherited(name.upper(), value)
    }


def _is_inherited(name: str, value: str) -> bool:
    if name not in _INHERITED_NAMES and not name.startswith(_INHERITED_PREFIXES):
        return False
    # A proxy's URL may hold a password. And old shells run functions on import.
    has_login = name.endswith("_PROXY") and "@" in value
    return not has_login and not value.startswith("()")


def label_of(command: list[str]) -> str:
    """What the lines of a child are marked with: its script, module, or program."""
    words = [re.split(r"[\\/]", word)[-1] for word in command]
    scripts = [word for word in words[1:] if re.search(_SCRIPT, word)]
    if "-m" in words[1:-1]:
        scripts.append(words[words.index("-m", 1) + 1])
    return (scripts or words)[0]


_SCRIPT = r"\.(py|pyz|js|cjs|mjs|ts|rb|sh)$"


def write_to_stderr(line: str) -> None:
    """Write a line to this process's stderr, in one piece, unless there is none.

    May block as long as nobody reads it, but keeps nobody else from ending: a file of
    the system is written past its buffer, which has a lock that Python at its end, too,
    would wait for. In a host, sys.stderr may be anything.
    """
    stream: Any = sys.stderr
    buffer = getattr(stream, "buffer", None)
    raw = getattr(buffer, "raw", buffer)
    if isinstance(raw, io.RawIOBase):
        stream_writer(raw)(f"{line}\n".encode(stream.encoding, "backslashreplace"))
    elif stream is not None:
        write_to_file(stream, line)


def write_to_file(stream: Any, line: str) -> None:
    """Write a line to a text stream, and flush it."""
    # Its encoding may not have all characters.
    encoding = getattr(stream, "encoding", None) or "utf-8"
    data = f"{line}\n".encode(encoding, "backslashreplace")
    stream.write(data.decode(encoding))
    stream.flush()


class ErrorLines:
    """What a child says on its stderr: the last lines are kept, all are passed on.

        bytes --feed(), by who reads--> lines --a worker--> this process's stderr, or
                                                            what the user has given

    So a child never waits for who takes its lines: while MAX_STDERR wait, more are
    dropped. Of a line that overwrites itself, as a progress bar does, the last state
    is told; control characters are escaped.
    """

    def __init__(self, label: str, stderr: Any, log: _Log) -> None:
        """`stderr`: as Client has it."""
        import codecs

        self._label = f"[{printable(label)}] "
        self._stderr = stderr
        self._log = log
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        # Replaced by each line: any thread may look at it.
        self._last: list[str] = []
        # The beginning of a line: a question, say, that will never be answered.
        self._rest = ""
        self._waiting = SharedBudget(MAX_STDERR)
        self._workers = Workers("mcp-stderr-lines", 1, do_nothing, log)

    def feed(self, data: bytes) -> None:
        """Take bytes as they come, b"" at their end. Never blocks; by one thread."""
        text = self._rest + self._decoder.decode(data, final=not data)
        *lines, self._rest = text.split("\n")
        if len(self._rest) > MAX_STDERR_LINE or (self._rest and not data):
            lines.append(self._rest)
            self._rest = ""
        for line in lines:
            told = _last_state(line)
            # At least one: an empty line is one, too.
            for start in range(0, len(told) or 1, MAX_STDERR_LINE):
                self._take(told[start : start + MAX_STDERR_LINE])

    def _take(self, line: str) -> None:
        if line:
            self._last = [*self._last, line][-STDERR_LINES:]
        if not self._stderr:
            return
        share = self._waiting.share(len(line) + LINE_COST)
        if share is not None:
            self._workers.submit(partial(do_with, share, partial(self._pass_on, line)))

    def _pass_on(self, line: str) -> None:
        dropped = self._waiting.count_refused()
        if dropped:
            self._tell(f"({dropped} lines were dropped: they were taken too slowly)")
        self._tell(printable(line))

    def _tell(self, line: str) -> None:
        labelled = (self._label + line).rstrip()
        try:
            if self._stderr is True:
                write_to_stderr(labelled)
            elif callable(self._stderr):
                self._stderr(line)
            else:
                write_to_file(self._stderr, labelled)
        except Exception as error:
            # That ours is closed, or nobody reads it, nobody could be told there.
            if self._stderr is not True:
                self._log.warning(f"stderr: {error_text(error)}")

    def last_words(self) -> str:
        """The last lines, and what has begun; as they came."""
        begun = _last_state(self._rest)
        lines = [*self._last, begun] if begun else self._last
        return "\n".join(lines[-STDERR_LINES:])

    def close(self, seconds: float) -> None:
        """Wait until what waits is passed on, for `seconds` at most."""
        self._workers.close(seconds)


def _last_state(line: str) -> str:
    """What a terminal shows of a line at last: what was overwritten is gone."""
    return line.rstrip().rpartition("\r")[2]


def startable(command: list[str], path: str | None) -> list[str] | str:
    """A command as the system starts it, with this PATH. Raises OSError.

    On Windows "npx" is npx.cmd, as that and PATHEXT say; and cmd.exe runs that, to which
    many characters are more than text unless they are quoted as it wants.
    """
    if os.name != "nt":
        return command
    import shutil

    program = shutil.which(command[0], path=path) or command[0]
    words = [program, *command[1:]]
    if re.search(r"\.(bat|cmd)$", program, re.IGNORECASE):
        return f"{os.environ.get('COMSPEC', 'cmd.exe')} {words_for_cmd(words)}"
    return words


def words_for_cmd(words: list[str]) -> str:
    """What cmd.exe is given to run a batch file with these words. Raises OSError."""
    quoted = []
    for word in words:
        if re.search("[\r\n]", word):
            raise OSError("a batch file takes no argument with a line break")
        # The program behind it reads "" as ", and backslashes before that as half of
        # them. %cd:~,% is nothing; and then % does not begin the name of a variable.
        word = re.sub(r'(\\*)("|\Z)', r"\1\1\2\2", word).replace("%", "%%cd:~,%")
        quoted.append(f'"{word}"')
    return f'/e:on /v:off /d /c "{" ".join(quoted)}"'


def _put_into_job(process: Any) -> Job:
    """What a process group is elsewhere is a job on Windows: a child, and all that it
    starts. Returns what ends them there, at once."""
    if sys.platform == "win32":
        from subprocess import Handle

        kernel = windows_kernel()
        # It is closed when nothing refers to it.
        job = Handle(kernel.CreateJobObjectW(None, None))
        kernel.AssignProcessToJobObject(job, process._handle)
        return partial(kernel.TerminateJobObject, job, 1)
    return do_nothing


class Child(StreamTransport):
    """A server as a child process, in a process group of its own.

    So what it starts can be ended with it, and Ctrl-C in a terminal comes to us alone:
    it is for us to end the child, in good order.
    """

    # As POSIX numbers them: the module signal is slow to import.
    SIGTERM = 15
    SIGKILL = 9

    def __init__(
        self,
        command: list[str],
        env: dict[str, str],
        cwd: str | None,
        stderr: Any,
        label: str,
        log: _Log,
    ) -> None:
        """Start it, with `env` for its whole environment. Raises ConnectionClosed.

        `stderr`: who gets its lines, as Client has it
        `label`: what they are marked with, unless by what it runs
        """
        import subprocess

        self.command = command
        # On Windows CREATE_NO_WINDOW and CREATE_NEW_PROCESS_GROUP; elsewhere a new
        # session, which is a group, too.
        flags = 0
        if os.name == "nt":
            flags = 0x08000200
            # The names of variables are the same in any case there.
            env = {name.upper(): value for name, value in env.items()}
        if cwd is not None and not os.path.isdir(cwd):
            raise ConnectionClosed(f"cwd: there is no folder {cwd}", None, command)
        try:
            self._process: Any = subprocess.Popen(
                startable(command, env.get("PATH")),
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=cwd,
                env=env,
                creationflags=flags,
                start_new_session=not flags,
            )
        except OSError as error:
            raise ConnectionClosed(
                f"cannot start the server: {error}", None, command
            ) from error
        super().__init__(self._process.stdout, self._process.stdin, patient=False)
        self._end_job = _put_into_job(self._process)
        self._error_lines = ErrorLines(label or label_of(command), stderr, log)
        self._stderr_thread = threading.Thread(
            target=self._read_stderr, name="mcp-stderr", daemon=True
        )
        self._stderr_thread.start()
        # Known from start() on.
        self._protocol: Protocol | None = None
        # A write has failed.
        self._has_refused = False

    def start(self, connection: Connection) -> None:
        self._protocol = connection.protocol

    # Moving bytes
    def read(self) -> bytes:
        data = super().read()
        if not data:
            # Not in close(): there, another thread may still be inside of its read.
            self._reader.close()
        return data

    def write(self, data: bytes) -> None:
        try:
            super().write(data)
        except (OSError, ValueError):
            self._has_refused = True
            raise

    def may_have_read(self) -> bool:
        """Whether it may have read all that was written to it, before it ended."""
        if self._has_refused:
            return False
        with suppress(ImportError, OSError, ValueError):
            import fcntl
            import termios

            # How much is left in the pipe. Not every system tells this end of it.
            left = fcntl.ioctl(self._writer.fileno(), termios.FIONREAD, bytes(4))
            return not any(left)
        return True

    def _read_stderr(self) -> None:
        """Read it all, so that the child never waits for that."""
        with self._process.stderr as stderr:
            for data in iter(partial(stderr.read, CHUNK), b""):
                self._error_lines.feed(data)
        self._error_lines.feed(b"")

    def details(self) -> str:
        last_words = self._error_lines.last_words()
        return child_details(self.command, self._process.poll(), last_words)

    # Ending
    def describe_end(self, why: str) -> ConnectionClosed:
        """How this child ended. Waits a moment for its exit code and its last words."""
        if self._has_ended(1.0):
            join_all([self._stderr_thread], 0.5)
        exit_code = self._process.poll()
        last_words = self._error_lines.last_words()
        return ConnectionClosed(why, exit_code, self.command, last_words)

    def _has_ended(self, seconds: float) -> bool:
        """Wait for the child to end. False if it has not by then."""
        # Not by the process's own wait(seconds): what that raises in the end could not
        # be imported here, in a __del__ as Python ends.
        return wait_until(self._is_gone, seconds) or self._is_gone()

    def _is_gone(self) -> bool:
        with suppress(OSError):
            return self._process.poll() is not None
        # Python ends, and has let go of it already, as it does on Windows.
        return True

    def close(self) -> None:
        """End the child, and what it has started: basic/transports/stdio.md#shutdown.

        Blocks for twice EXIT_SECONDS at most, a moment more for what takes SIGKILL, and
        for the last lines of its stderr. One that has not begun to serve has nothing to
        bring to its end.
        """
        has_begun = self._protocol is not None and self._protocol.initialized
        patience = EXIT_SECONDS if has_begun else min(EXIT_SECONDS, STARTING_SECONDS)
        try:
            self._writes.interrupt()
            with suppress(OSError):
                self._writer.close()
            if not self._has_ended(patience):
                self._signal_group(self.SIGTERM)
                self._has_ended(patience)
        finally:
            # The child, if it still is there; and what else is, in its group. Ctrl-C
            # ends our patience, but leaves nothing behind.
            self._signal_group(self.SIGKILL)
            self._has_ended(EXIT_SECONDS)
            join_all([self._stderr_thread], STDERR_SECONDS / 2)
            self._error_lines.close(STDERR_SECONDS)

    def _signal_group(self, number: int) -> None:
        if os.name == "posix":
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)
        else:
            self._end_job()
            # It may have found no place in the job.
            with suppress(OSError):
                self._process.kill()


###############################################################################
# 20. Transcript ##############################################################
###############################################################################
# Shows a conversation to whoever debugs it, or learns from it: Client(trace=),
# Server(trace=). It is told what passes on the wire, and changes nothing there.

# What members of a message tell, besides its method: where they are; what they mean, {}
# being the value; and the page.
_MEMBER_NOTES = (
    (
        ("params", "_meta", META_VERSION),
        "Modern: there is no session. Each request carries its revision, {}, and the "
        "client's capabilities in `_meta`, so any process of the server may answer it.",
        "basic/index",
    ),
    (
        ("params", "_meta", "progressToken"),
        "Who asks wants to hear of progress: the token will say what it is about.",
        "basic/utilities/progress",
    ),
    (
        ("params", "_meta", META_LOG_LEVEL),
        "While the server works on it, the client wants log messages from {} on.",
        "server/utilities/logging",
    ),
    (
        ("params", "_meta", META_SUBSCRIPTION),
        "It belongs to the subscription that request {} has opened.",
        "basic/patterns/subscriptions",
    ),
    (
        ("params", "cursor"),
        "The next page of the list: the cursor is where the last one has ended.",
        "server/utilities/pagination",
    ),
    (
        ("params", "inputResponses"),
        "The same request once more, with the answers to the server's questions: {}.",
        "basic/patterns/mrtr",
    ),
    (
        ("params", "requestState"),
        "What the server wanted to be reminded of goes back to it as it came: it "
        "remembers nothing between requests.",
        "basic/patterns/mrtr",
    ),
    (
        ("result", "inputRequests"),
        "Not the answer yet: the server has questions, {}. The client asks its user or "
        "its model, and sends the request again, with the answers.",
        "basic/patterns/mrtr",
    ),
    (
        ("result", "requestState"),
        "What the server knows so far, signed. The client sends it back with the "
        "answers, unread.",
        "basic/patterns/mrtr",
    ),
    (
        ("result", "protocolVersion"),
        "Legacy: a session is open, and speaks {} from now on.",
        "basic/lifecycle",
    ),
    (
        ("result", "supportedVersions"),
        "The server speaks {}; the client takes the newest that it knows, too.",
        "basic/versioning",
    ),
    (
        ("result", "nextCursor"),
        "There is more: the client asks for the next page with this cursor.",
        "server/utilities/pagination",
    ),
    (
        ("result", "isError"),
        "The tool has failed. That is a result, and no protocol error, so that the "
        "model can read what went wrong, and try in another way.",
        "server/tools",
    ),
    (
        ("result", "structuredContent"),
        "The value for programs, as the tool's outputSchema promises it; `content` is "
        "the same for the model to read.",
        "server/tools",
    ),
    (
        ("result", "ttlMs"),
        "For {} ms the client need not ask for this again.",
        "server/utilities/caching",
    ),
)

# The headers that are shown with their values. Of others, which may be secrets, only
# the names, and of all the rest nothing.
_SHOWN_HEADERS = {
    name.lower(): name
    for name in (
        "MCP-Protocol-Version",
        "Mcp-Method",
        "Mcp-Name",
        "Last-Event-ID",
        "Content-Type",
        "Retry-After",
        "Allow",
    )
}
_NAMED_HEADERS = ("mcp-session-id", "mcp-param-", "authorization", "www-authenticate")
# What HTTP adds, by a method, a status, the beginning of a header's name, or an event:
# what it means, and the page.
_TRANSPORT = "basic/transports"
_MODERN_TRANSPORT = f"{FIRST_MODERN}/basic/transports/streamable-http"
_HTTP_NOTES = {
    "POST": (
        "Over HTTP each message to the server is a POST, to its one endpoint; the "
        "answer to a request is the answer to its POST.",
        _TRANSPORT,
    ),
    "GET": (
        "The client listens: the response is a stream, of what the server says without "
        "being asked.",
        _TRANSPORT,
    ),
    "DELETE": ("The client is done: the session ends.", _TRANSPORT),
    "200 application/json": ("The answer follows, as one message.", _TRANSPORT),
    "200 text/event-stream": (
        "The answer is a stream of events, a message each: progress, logs and questions "
        "may come before the answer to the request.",
        _TRANSPORT,
    ),
    "202": (
        "Taken. A notification, or an answer to a question, has no answer itself.",
        _TRANSPORT,
    ),
    "400": ("The request is not accepted; the body says why.", _TRANSPORT),
    "401": (
        "The server wants a token; WWW-Authenticate says where tokens come from.",
        "basic/authorization",
    ),
    "403": (
        "Not for this client: by its token, its Origin, or the Host it has asked for.",
        _TRANSPORT,
    ),
    "404": (
        "There is nothing at this path; or the session is lost, and the client opens "
        "another one by `initialize`; or, to a modern request, the method is unknown.",
        _TRANSPORT,
    ),
    "405": (
        "This HTTP method is not served here. To a GET, that means: the server has "
        "nothing to say by itself.",
        _TRANSPORT,
    ),
    "5": ("The server, or what stands before it, has failed.", _TRANSPORT),
    "mcp-session-id": (
        "Mcp-Session-Id: by this the server knows the session again. It came with the "
        "answer to `initialize`, and goes with every request after it.",
        _TRANSPORT,
    ),
    "mcp-protocol-version": (
        "MCP-Protocol-Version: the revision, for a gateway, or a server, that has not "
        "read the body yet.",
        _TRANSPORT,
    ),
    "mcp-method": (
        "Mcp-Method, Mcp-Name: what the body is about. A gateway can route, count and "
        "refuse by them; the server refuses what does not match the body.",
        _MODERN_TRANSPORT,
    ),
    "mcp-param-": (
        "Mcp-Param-...: an argument that the tool's schema wants in a header, too.",
        _MODERN_TRANSPORT,
    ),
    "last-event-id": (
        "Last-Event-ID: the stream broke off after this event; the server is to go on "
        "behind it.",
        _TRANSPORT,
    ),
    "authorization": (
        "Authorization: a token, which no transcript shows.",
        "basic/authorization",
    ),
    "the stream ends": (
        "Nothing more comes on this response. If the answer is still missing, a legacy "
        "client comes back for it, by a GET with Last-Event-ID.",
        _TRANSPORT,
    ),
    "event: endpoint": (
        "HTTP+SSE, the transport of 2024-11-05: messages are to be POSTed to this "
        "address, and every answer comes on this stream.",
        f"{OLDEST}/{_TRANSPORT}",
    ),
}
# What a result is not what the method is for: a failure says so itself.
_NO_OUTCOME = (("result", "inputRequests"), ("result", "isError"))
# What a page is called since the modern era.
_MODERN_PAGES = {
    "basic/lifecycle": "basic/versioning",
    "basic/transports": "basic/transports/streamable-http",
    "basic/authorization": "basic/authorization/index",
    "basic/utilities/progress": "basic/patterns/progress",
    "basic/utilities/cancellation": "basic/patterns/cancellation",
}


class TraceEntry(
    namedtuple("TraceEntry", "direction at talk id kind about notes line")
):
    """What one line of a transcript tells, for a program that shows it in its own way:
    `trace=` may be an object whose show(entry) is called with each.

        direction: "-->" from the client to the server, or "<--"
        at: when, by time.time()
        talk: which conversation: a name, a number; "" where there is one alone
        id: of the request that it is about, else None
        kind: "request", "notification", "result" or "error"; "http" for what HTTP adds,
            which is requests, statuses and the like; "" for what is no message, or many
        about: what it is, in a line without control characters
        notes: what it is for, and each member that tells more: (text, URL) pairs
        line: the message as it is, in bytes; b"" for "http"
    """

    __slots__ = ()


class Transcript:
    """What shows messages: to a person in a readable form, raw, or to a program.

    The forms:
        "brief"    a line for each message: time, direction, id, what it is, its size,
                   how long the answer took; and for what HTTP adds
        "explain"  the same, and below it what that is for, when it comes first
        "json"     the messages as they are, each behind its direction
        "entries"  a function is called with a TraceEntry, for each line of "explain"
        ""         a function is called with direction and message, both as they are

    A direction is "-->" from the client to the server, whoever shows it, or "<--".

    One thread at a time shows them, in order. Who sends or receives a message waits for
    that, so that what is shown does not lag behind the program's own words; but if it
    takes TRACE_SECONDS, because nobody reads stderr, say, then no longer, until all is
    shown. While MAX_TRACED bytes wait, more are dropped, and that is told. What fails
    is logged. So nothing that happens here changes a conversation.
    """

    def __init__(self, form: str, show_line: Callable[..., Any], log: _Log) -> None:
        self.form = form
        # show_line(text), show_line(entry), or show_line(direction, line), by the form.
        self._show_line = show_line
        self._log = log
        # Without patience: the thread ends when nothing is left.
        self._workers = Workers("mcp-trace", 1, do_nothing, log, patience=0.0)
        self._waiting = SharedBudget(MAX_TRACED)
        # Nobody waits for it: it was too slow.
        self._is_late = False
        # The one that shows; it must not wait for itself.
        self._thread = 0
        self._numbers = itertools.count(1)
        # Of a server over HTTP: by the ids of their sessions, the latest last.
        self._sessions: dict[str, Talk] = {}
        # What was explained; for the thread that shows.
        self._explained: set[str] = set()

    def open_talk(self, role: str, name: str = "") -> Talk:
        """A conversation, as a "client" or a "server" sees it. Its lines show its name,
        and its number, if there are several."""
        number = next(self._numbers)
        names = [f"[{printable(name)}]"] if name else []
        if number > 1:
            names.append(f"#{number}")
        return Talk(self, role, " ".join(names))

    def talk_over_http(self, method: str, path: str, headers: dict[str, str]) -> Talk:
        """The conversation that an HTTP request to a server is part of, which begins:
        that of its session, else one of its own."""
        session_id = headers.get("mcp-session-id", "")
        talk = self._sessions.get(session_id) or self.open_talk("server")
        talk.asked(method, path, headers)
        return talk

    def remember(self, session_id: str, talk: Talk) -> None:
        """A session has begun."""
        self._sessions[session_id] = talk
        for oldest in list(self._sessions)[:-MAX_SESSIONS]:
            self._sessions.pop(oldest, None)

    # Called by who talks
    def put(self, job: Job, size: int) -> None:
        """Have something shown, which keeps so many bytes. Never blocks for long."""
        share = self._waiting.share(size + LINE_COST)
        if share is None:
            return
        done = threading.Event()
        self._workers.submit(partial(do_with, share, partial(self._do, job, done)))
        if not self._is_late and threading.get_ident() != self._thread:
            self._is_late = not done.wait(TRACE_SECONDS)

    # On the thread that shows
    def _do(self, job: Job, done: threading.Event) -> None:
        self._thread = threading.get_ident()
        dropped = self._waiting.count_refused()
        try:
            if dropped:
                self._log.warning(f"trace: {dropped} lines dropped: they took too long")
            job()
        except Exception as error:
            self._log.warning(f"trace: {error_text(error)}")
        self._thread = 0
        done.set()
        if not len(self._workers):
            self._is_late = False

    def show_message(self, direction: str, talk: str, line: bytes) -> None:
        """Show a message as it is."""
        if not self.form:
            self._show_line(direction, line)
            return
        # In JSON, line ends are outside of strings; other such characters within, where
        # they may be escaped so.
        text = re.sub("[\r\n]", " ", line.decode("utf-8", "replace"))
        safe = re.sub(UNPRINTABLE, lambda match: f"\\u{ord(match[0]):04x}", text)
        self._show_line(" ".join(filter(None, [direction, talk, safe])))

    def show_entry(self, entry: TraceEntry) -> None:
        """Show a line; to explain it, its notes, each for the first time."""
        if self.form == "entries":
            self._show_line(entry)
            return
        clock = time.strftime("%H:%M:%S", time.localtime(entry.at))
        clock += f".{int(entry.at % 1 * 1000):03d}"
        talk = f"{entry.talk} " if entry.talk else ""
        number = "" if entry.id is None else f"{show(entry.id, 40)} "
        lines = [f"{clock} {entry.direction} {talk}{number}{entry.about}"]
        if self.form == "explain":
            import textwrap

            if not self._explained:
                lines.insert(0, f"Pages in brackets are at {SPECIFICATION}")
            for text, url in entry.notes:
                if not self._is_new(text):
                    continue
                lines += textwrap.wrap(
                    f"{text} [{url[len(SPECIFICATION) :]}]",
                    TRACE_WIDTH,
                    initial_indent="      ",
                    subsequent_indent="      ",
                    break_on_hyphens=False,
                )
        # In one piece: no other line comes between.
        self._show_line("\n".join(lines))

    def _is_new(self, text: str) -> bool:
        """Whether this was not explained before."""
        if len(self._explained) > MAX_EXPLAINED:
            self._explained.clear()
        if text in self._explained:
            return False
        self._explained.add(text)
        return True


# In which direction who shows a conversation sends, and receives.
_DIRECTIONS = {"client": ("-->", "<--"), "server": ("<--", "-->")}


class Talk:
    """One conversation in a Transcript, and the seam to it. Who talks calls
        sent(line), received(line)            for each message
        asked(method, place, headers, id)     for each HTTP request, with the id of the
                                              message that it brings, or None
        answered(status, headers, id)         for the head of its response
        happened(event, place, id)            for what else a stream tells
    on any thread, but holding no lock: each may take TRACE_SECONDS. `show` methods are
    for the thread of the Transcript.
    """

    def __init__(self, transcript: Transcript, role: str, label: str) -> None:
        self._transcript = transcript
        self._sends, self._receives = _DIRECTIONS[role]
        self._label = label
        # What follows is for the thread that shows. Requests without an answer so far,
        # the oldest first: (direction, id) -> (method, when).
        self._open: OrderedDict[Any, tuple[str, float]] = OrderedDict()
        # The revision, as soon as it is known.
        self._version = ""

    # Called by who talks
    def sent(self, line: bytes) -> None:
        """A message has left, or is about to."""
        self._put(self._sends, line)

    def received(self, line: bytes) -> None:
        """A message has come."""
        self._put(self._receives, line)

    def _put(self, direction: str, line: bytes) -> None:
        transcript = self._transcript
        job = partial(transcript.show_message, direction, self._label, line)
        if transcript.form in READABLE_FORMS:
            job = partial(self._show, direction, line, time.time(), time.monotonic())
        transcript.put(job, len(line))

    def asked(
        self,
        method: str,
        place: str,
        headers: Mapping[str, Any],
        request_id: RequestId | None = None,
    ) -> None:
        """An HTTP request, with these headers."""
        shown = _shown_headers(headers)
        shown.pop("Content-Type", None)
        self._put_event("-->", [method], f"{method} {place}", shown, request_id)

    def answered(
        self,
        status: int,
        headers: Mapping[str, Any],
        request_id: RequestId | None = None,
    ) -> None:
        """The head of an HTTP response."""
        shown = _shown_headers(headers)
        session_id = headers.get("Mcp-Session-Id")
        if session_id and self._sends == "<--":
            self._transcript.remember(session_id, self)
        keys = [str(status), f"{status} {shown.get('Content-Type', '')}"]
        self._put_event("<--", keys, f"HTTP {status}", shown, request_id)

    def happened(self, event: str, place: str = "", request_id: Any = None) -> None:
        """What a stream tells beside messages: "the stream ends", say."""
        self._put_event("<--", [event], f"{event} {place}".strip(), {}, request_id)

    def sent_events(self, data: bytes, ending: bool) -> None:
        """A server has written a part of a stream, or all of it."""
        for kind, text in EventParser().feed(data):
            if kind == "endpoint":
                place = text.decode("ascii", "replace").partition("?")[0]
                self.happened("event: endpoint", place)
            elif text:
                self.sent(text)
        if ending:
            self.happened("the stream ends")

    def _put_event(
        self,
        direction: str,
        keys: list[str],
        told: str,
        headers: dict[str, str],
        request_id: Any,
    ) -> None:
        if self._transcript.form in READABLE_FORMS:
            told = told[: 4 * MAX_ABOUT]
            about = (direction, keys, told, headers, request_id, time.time())
            self._transcript.put(partial(self._show_event, *about), len(str(about)))

    # On the thread that shows
    def _show_event(
        self,
        direction: str,
        keys: list[str],
        told: str,
        headers: dict[str, str],
        request_id: Any,
        at: float,
    ) -> None:
        self._learn(headers.get("MCP-Protocol-Version"))
        told = ", ".join([printable(told), *map(": ".join, headers.items())])
        keys = [*keys, *map(str.lower, headers)]
        named = [name for key in keys for name in _HTTP_NOTES if key.startswith(name)]
        notes = [_HTTP_NOTES[name] for name in dict.fromkeys(named)]
        self._tell(direction, request_id, told, at, notes, "http")

    def _show(self, direction: str, line: bytes, at: float, clock: float) -> None:
        """Show a message, or each of a batch."""
        facts = f"{len(line):,} bytes"
        if len(line) > MAX_EXPLORED:
            message = _head_of(line)
        else:
            try:
                message = parse_message(line)
            except McpError as error:
                told = show(line[:MAX_ABOUT].decode("utf-8", "replace"), MAX_ABOUT)
                told = f"{told} ({facts}; {printable(str(error)[:MAX_ABOUT])})"
                note = "No message: the receiver tells so, or skips it.", "basic/index"
                self._tell(direction, None, told, at, [note], "", line)
                return
        if isinstance(message, list):
            told = f"a batch of {len(message)} messages ({facts})"
            self._tell(direction, None, told, at, [], "", line)
            facts = "in the batch"
            line = b""
        for each in message if isinstance(message, list) else [message]:
            self._show_one(direction, object_or_empty(each), facts, at, clock, line)

    def _show_one(
        self,
        direction: str,
        message: Json,
        facts: str,
        at: float,
        clock: float,
        line: bytes,
    ) -> None:
        request_id = message.get("id")
        params = object_or_empty(message.get("params"))
        name = message.get("method")
        notes = []
        if name is not None:
            row = method_row(name)
            self._learn(member_at(params, ("_meta", META_VERSION)))
            self._learn(params.get("protocolVersion"))
            told = f"{show_method(str(name))} {_about(row, params)}".rstrip()
            notes.append((row.purpose, row.page))
            if request_id is not None and is_id(request_id):
                self._open[direction, request_id] = (str(name), clock)
            if len(self._open) > MAX_EXPLAINED:
                self._open.popitem(last=False)
        else:
            asker = self._sends if direction == self._receives else self._receives
            key = (asker, request_id if is_id(request_id) else None)
            name, then = self._open.pop(key, ("", clock))
            row = method_row(name)
            self._learn(member_at(message, ("result", "protocolVersion")))
            told = _outcome(message)
            if name:
                told = f"{show_method(name)}: {told}"
                facts += f", after {1000 * (clock - then):.1f} ms"
            if "error" in message:
                notes += [(row.setback, row.page), _error_note(message)]
            elif not any(member_at(message, path) for path in _NO_OUTCOME):
                notes.append((row.outcome, row.page))
        notes += _member_notes(message)
        kind = "error" if "error" in message else "result"
        if "method" in message:
            kind = "notification" if request_id is None else "request"
        self._tell(direction, request_id, f"{told} ({facts})", at, notes, kind, line)

    def _learn(self, version: object) -> None:
        if version in LEGACY_VERSIONS + MODERN_VERSIONS:
            self._version = str(version)

    def _tell(
        self,
        direction: str,
        request_id: Any,
        told: str,
        at: float,
        notes: list[tuple[str, str]],
        kind: str,
        line: bytes = b"",
    ) -> None:
        """Show a line, with what explains it: texts, each with its page."""
        placed = [
            (text, SPECIFICATION + self._place(page)) for text, page in notes if text
        ]
        self._transcript.show_entry(
            TraceEntry(direction, at, self._label, request_id, kind, told, placed, line)
        )

    def _place(self, page: str) -> str:
        """Where a page is, of the revision that is spoken here."""
        if page.startswith("20"):
            # It is of one revision.
            return page
        version = self._version or LAST_LEGACY
        if version >= FIRST_MODERN:
            page = _MODERN_PAGES.get(page, page)
        return f"{version}/{page}"


SPECIFICATION = "https://modelcontextprotocol.io/specification/"
READABLE_FORMS = ("brief", "explain", "entries")


def open_talk(transcript: Transcript | None, role: str, name: str = "") -> Talk | None:
    """A conversation, if it is to be shown."""
    return None if transcript is None else transcript.open_talk(role, name)


def _shown_headers(headers: Mapping[str, Any]) -> dict[str, str]:
    """The headers that a transcript shows; of some, that they are there."""
    shown = {}
    named = {}
    for name, value in headers.items():
        key = name.lower()
        if key in _SHOWN_HEADERS:
            text = value.decode("utf-8") if isinstance(value, bytes) else str(value)
            shown[_SHOWN_HEADERS[key]] = printable(text[:MAX_ABOUT])
        elif key.startswith(_NAMED_HEADERS):
            named[printable(name.title()[:MAX_ABOUT])] = "..."
    return {**shown, **named}


def _about(row: Method, params: Json) -> str:
    """What a request or notification is about: a name, and its other parameters."""
    told = ""
    rest = {name: params[name] for name in params if name not in _NOT_SHOWN}
    if row.mirrored and isinstance(params.get(row.mirrored), str):
        told = printable(rest.pop(row.mirrored)[:MAX_ABOUT]) + " "
    if list(rest) == ["arguments"]:
        rest = rest["arguments"]
    return told + (show(rest, MAX_ABOUT) if rest else "")


# Members that are explained, if anything.
_NOT_SHOWN = ("_meta", "requestState", "resultType")


def _outcome(message: Json) -> str:
    """What an answer says."""
    error = object_or_empty(message.get("error"))
    if error:
        told = printable(str(error.get("message"))[:MAX_ABOUT])
        return f"error {show(error.get('code'))} {told}"
    result = object_or_empty(message.get("result"))
    rest = {name: result[name] for name in result if name not in _NOT_SHOWN}
    return show(rest, MAX_ABOUT)


def _error_note(message: Json) -> tuple[str, str]:
    code = member_at(message, ("error", "code"))
    kind = ERRORS.get(code) if type(code) is int else None
    meaning = " ".join((getattr(kind, "__doc__", "") or "").split("\n")[:1])
    return (f"Error {code}: {meaning}" if meaning else "", "basic/index")


def _member_notes(message: Json) -> Iterator[tuple[str, str]]:
    """What members of a message tell, by _MEMBER_NOTES."""
    for path, text, page in _MEMBER_NOTES:
        value = member_at(message, path)
        # `isError` false, or a ttlMs of 0, says nothing.
        if value:
            words = value if isinstance(value, (dict, list)) else [value]
            told = printable(", ".join(map(str, words))[:MAX_ABOUT])
            yield text.replace("{}", told), page


_MEMBER_IN_HEAD = r"""(?x)
    "(id|method)" \s*:\s* ( [0-9]{1,18}\b | "[ !\#-\[\]-~]{1,100}" )
    """.encode()


def _head_of(line: bytes) -> Json:
    """What can be told of a long message without reading it: its id, and its method."""
    members = re.findall(_MEMBER_IN_HEAD, line[:MAX_ABOUT])
    # Of two, the first is the message's own.
    message: Json = {name.decode(): json.loads(told) for name, told in members[::-1]}
    body = "params" if "method" in message else "result"
    return {**message, body: {"...": "too long to be shown"}}


# What trace= may be, but for functions and paths.
_FORMS = {True: "brief", "1": "brief", "explain": "explain", "json": "json"}


def open_transcript(trace: Any, log: _Log) -> Transcript | None:
    """What trace= stands for; where it is None, the variable MCP_LITE_TRACE.

    None for no transcript. Raises ValueError or TypeError for what it cannot be, and
    OSError for a file that cannot be written.
    """
    option = "trace"
    if trace is None:
        option = "MCP_LITE_TRACE"
        trace = os.environ.get(option)
    if trace is None or trace is False or trace in ("", "0"):
        return None
    if isinstance(trace, (bool, str)) and trace in _FORMS:
        return Transcript(_FORMS[trace], write_to_stderr, log)
    if callable(getattr(trace, "show", None)):
        return Transcript("entries", trace.show, log)
    if callable(trace):
        return Transcript("", trace, log)
    # A form that is misspelled is not to become a file.
    is_path = isinstance(trace, os.PathLike)
    if not is_path and not (isinstance(trace, str) and re.search(r"[./\\]", trace)):
        kind = ValueError if isinstance(trace, str) else TypeError
        raise kind(
            f'{option}: expected True, "explain", "json", a path (for a file in this '
            f'folder "./NAME"), a function or an object with show(entry), got '
            f"{show(trace)}"
        )
    append = partial(_append_line, os.path.abspath(os.fspath(trace)))
    append("")
    return Transcript("json", append, log)


def _append_line(path: str, line: str) -> None:
    """Append a line to a file in one write, or for "" make sure that one could."""
    # Messages may be anybody's data: only this user may read them.
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
    with open(os.open(path, flags, 0o600), "wb", 0) as file:
        if line:
            stream_writer(file)(f"{line}\n".encode("utf-8", "backslashreplace"))


###############################################################################
# 21. HTTP streams ############################################################
###############################################################################
# One HTTP request and its answer: the Shell that carries both, the seam to sockets and
# WSGI; the Exchange that they are; the Stream that an answer is part of, and that lasts
# on where a client can come back to it. What is answered is not decided here.
JSON_TYPE = "application/json"
EVENT_TYPE = "text/event-stream"
_JSON = {"Content-Type": JSON_TYPE}
_EVENTS = {
    "Content-Type": EVENT_TYPE,
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",
}


class Shell:
    """What carries HTTP exchanges to an HttpEndpoint: a socket, a WSGI server, a test.

    To write another one, derive from this class. For each request, on a thread that can
    stay with it until it is answered, make
        exchange = Exchange(shell, method, target, headers)
    and call
        endpoint.answer(exchange)
    which never raises. It mostly runs the request's handler there, and returns when
    nothing more will be written: to a client that listens, that is when it has hung up.
    The endpoint asks the shell for
        address, peer                   who asks, as far as the network tells
        read_body(keep)                 the body, unless the request was refused before
        start(status, headers, body)    the whole answer, or the head of a stream
        write(events, ending)           more of the stream
        hung_up()                       whether the client has closed its end
        abandoned(is_so)                nothing: it tells who waits for the thread
        shut()                          the end of the connection, if it `can_leave`
    Each exchange gets one start(); after one without a body come writes, the last of
    them `ending`. They come in turn, but on any thread: who has an event writes it. A
    shell may carry one exchange after another, as a connection that is kept alive does,
    but not two at once. It refuses bodies of more than endpoint.max_body (413).

    A request is judged by its head first. Of one that is refused, the body is not read:
    so the shell skips it, or ends the connection. A shell that has the body anyway may
    give it to Exchange, as a last argument, and is not asked to read.

    Whoever made the endpoint calls endpoint.look_after() every now and then (else only
    failing writes show that a client has hung up), and endpoint.close() at the end.
    """

    # Whether a response may end while its thread still runs the handler: only then
    # shut() is called.
    can_leave = False

    # Where the client is, as party_address() says it: the share of who has no token.
    address = ""
    # The same for people, in the log.
    peer = ""
    # Whether headers have lost the difference of "-" and "_" on their way, as in CGI.
    is_cgi = False
    # Set by the endpoint: whose exchanges it carries, as far as it has seen.
    party: Party | None = None

    # Set by the endpoint: nothing is wrong with the head of the latest exchange.
    head_is_right = False

    # Set by the endpoint: no other exchange may follow this one on its connection. That
    # is before start(), so that the client can be told, or before answer() returns.
    close_connection = False

    def read_body(self, keep: Callable[[int], None]) -> bytes:
        """Read the body. Raises HttpError for one that is none; OSError, as start().

        Before so many bytes more are held in memory, it calls keep(size): that refuses
        what is too much, by an HttpError.
        """
        return b""

    def start(self, status: int, headers: dict[str, str], body: bytes | None) -> None:
        """Write a status, these headers (the dict may be changed), and the body.

        None for the body means that a stream follows: its end is for the shell to mark.
        Raises OSError, and nothing else, when the client is gone; so does write().
        """
        raise NotImplementedError

    def write(self, events: bytes, ending: bool) -> None:
        """Write more of a stream, b"" maybe, without delay; `ending`: this is all."""
        raise NotImplementedError

    def hung_up(self) -> bool:
        """Whether the client has closed its end. Must not block."""
        return False

    def abandoned(self, is_so: bool) -> None:
        """Know whether this thread is with a handler that nobody waits for any more."""

    def shut(self) -> None:
        """Take no more requests: the response is over, but its thread still works."""


class Exchange:
    """One HTTP request, and its answer:

        OPENING --write--> STREAMING --write, ending--> OVER
           |                                             ^
           +--------------------- send ------------------+

    `target` is a path, maybe with a query; the names of `headers` are in lower case,
    and what came several times is joined by commas. What writes raises OSError when the
    client is gone.
    """

    OPENING = "opening"
    STREAMING = "streaming"
    OVER = "over"

    # Given by the endpoint, when it is admitted: who asks; what is kept for it until it
    # is over; and what makes room for more, or says that there is none.
    party: Party
    budget: Budget
    make_room: Callable[[Party], bool]
    # What shows it, if it is to be shown.
    trace: Talk | None = None

    # Set by the shell: its head is that of the one before, byte by byte.
    is_repeated = False

    state = OPENING
    # How much of its body was read.
    size = 0
    # The claims of its token.
    auth: Json | None = None
    # What it calls, if that is the user's: a method, and a name.
    callee = ("", "")
    # For the log: the status of its answer, and why it was refused; what headers may
    # mirror of its body, which names what is called.
    is_logged = True
    status = 0
    reason = ""
    told: Json = {}
    session_id = ""
    # Nothing but its head has been looked at.
    is_judged_by_head = True
    # The id in its body, for the error that may be its answer.
    request_id: RequestId | None = None
    # The latest stream that was written here.
    stream: Stream | None = None

    def __init__(
        self,
        shell: Shell,
        method: str,
        target: str,
        headers: dict[str, str],
        body: bytes | None = None,
    ) -> None:
        self.shell = shell
        self.method = method
        self.path, _, self.query = target.partition("?")
        self.headers = headers
        self._body = body
        # The one that answers it.
        self.thread = threading.get_ident()
        # When it came.
        self.began = time.monotonic()
        # Headers of the answer, whichever it will be.
        self.extra: dict[str, str] = {}
        # Gets an item when nothing more will be written here. Not an Event: on Windows
        # its wait(seconds) would hold up Ctrl-C, and with WSGI this may be the main
        # thread.
        self._finished: SimpleQueue[None] = SimpleQueue()

    @property
    def head_size(self) -> int:
        """What its headers take, for those who keep them."""
        return sum(len(name) + len(value) for name, value in self.headers.items())

    def check_accept(self, *kinds: str) -> None:
        """Raise HttpError unless the client takes answers of all these types."""
        accept = self.headers.get("accept", "*/*").lower()
        for kind in kinds:
            ways_to_say_it = (kind, kind.partition("/")[0] + "/*", "*/*")
            if not any(each in accept for each in ways_to_say_it):
                raise HttpError(
                    406, f"Accept: expected {' and '.join(kinds)}, got {show(accept)}"
                )

    def check_type(self) -> None:
        """Raise HttpError unless its body is JSON, as its head says."""
        kind = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != JSON_TYPE:
            raise HttpError(
                415, f"Content-Type: expected {JSON_TYPE}, got {show(kind)}"
            )

    def check_empty(self) -> None:
        """Raise HttpError if it has a body: that of a GET means nothing.

        And behind one that nobody reads, it would not show that the client hangs up.
        """
        if self.body:
            raise HttpError(400, f"{self.method}: expected no body")

    @property
    def body(self) -> bytes:
        """All of its body, which is read now. Raises HttpError, and OSError."""
        self.is_judged_by_head = False
        if self._body is None:
            self._body = self.shell.read_body(self._keep)
        return self._body

    def _keep(self, size: int) -> None:
        """Count a part of the body that is about to be held. Raises HttpError."""
        self.size += size
        if self.size <= SHORT_BODY:
            return
        while not self.budget.take(self.size - self.budget.taken):
            if not self.make_room(self.party):
                raise HttpError(503, "too much is kept already", {"Retry-After": "1"})

    def parse_body(self) -> Any:
        """The message, or batch, in the body. Raises HttpError, ParseError, OSError."""
        if self.trace is not None:
            self.trace.received(self.body)
        message = parse_message(self.body)
        self._body = b""  # which the message takes the place of
        envelope = object_or_empty(message)
        is_answer = "method" not in envelope and (
            "result" in envelope or "error" in envelope
        )
        if is_id(envelope.get("id")) and not is_answer:
            self.request_id = envelope["id"]
        return message

    def send(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        """Answer with this and no more, in one write."""
        self.state = self.OVER
        self.status = status
        headers = self._merge(headers)
        headers["Content-Length"] = str(len(body))
        if self.trace is not None:
            self.trace.answered(status, headers)
            # Of a GET, it is a document about tokens.
            if body and self.method == "POST":
                self.trace.sent(body)
        self.shell.start(status, headers, b"" if self.method == "HEAD" else body)
        self.finish()

    def write(self, events: bytes, ending: bool) -> None:
        """Write events; before the first, the head; if `ending`, the end as well."""
        if self.state == self.OPENING:
            self.status = 200
            headers = self._merge(_EVENTS)
            if self.trace is not None:
                self.trace.answered(200, headers)
            self.shell.start(200, headers, None)
        self.state = self.OVER if ending else self.STREAMING
        if self.trace is not None:
            self.trace.sent_events(events, ending)
        self.shell.write(events, ending)
        if ending:
            self.finish()

    def _merge(self, headers: dict[str, str]) -> dict[str, str]:
        """These headers and the extra ones, but none that would begin another line."""
        if headers is _JSON and not self.extra:
            return dict(headers)
        return {
            name: value
            for name, value in {**headers, **self.extra}.items()
            if "\r" not in value and "\n" not in value
        }

    def finish(self) -> None:
        """Let its thread go: nothing more is written here. From any thread."""
        self._finished.put(None)

    def wait(self, seconds: float) -> bool:
        """Wait until nothing more will be written. False if that is still to come."""
        try:
            return get_within(self._finished, seconds) is None
        except Empty:
            return False


def log_access(log: _Log, exchange: Exchange) -> None:
    """A line for a request that is over, for the logger "mcp_lite.http":

        127.0.0.1 POST /mcp 200 3.1 tools/call forecast 1a2b3c4d
        127.0.0.1 POST /mcp 403 0.1 - - -: host "vm" is not allowed; see allowed_hosts

    That is peer, method, path, status, milliseconds, the method and name of the
    message, and the beginning of the session's id. The level is INFO, or WARNING if it
    was refused, and the reason is told if that is in its head. "-" is what there is
    none of: a status, if the client has left before. Of a stream, too, the line comes
    at its end, as in all such logs: so a request has one, and that knows how long it
    took. No body is told, no token and no query.
    """
    # Who wants to have it has imported this: to do so here would be slow.
    get_logger = getattr(sys.modules.get("logging"), "getLogger", None)
    if get_logger is None or not exchange.is_logged:
        return
    logger = get_logger(ACCESS_LOGGER)
    level = 20 if exchange.status < 400 else 30
    if not logger.isEnabledFor(level) or not logger.hasHandlers():
        return
    name = exchange.told.get("Mcp-Name")
    if isinstance(name, str):
        # Of a URI the path will do: the rest may be secret.
        name = re.split("[?#]", name[:MAX_URI])[0]
    milliseconds = (time.monotonic() - exchange.began) * 1000
    words = [
        # Of IPv4, a socket for both tells it so.
        exchange.shell.peer.rpartition("::ffff:")[2],
        exchange.method,
        exchange.path,
        exchange.status,
        f"{milliseconds:.1f}",
        exchange.told.get("Mcp-Method"),
        name,
        exchange.session_id[:8],
    ]
    reason = f": {exchange.reason}" if exchange.reason else ""
    log.put(level, " ".join(map(_log_word, words)) + reason, logger=ACCESS_LOGGER)


ACCESS_LOGGER = "mcp_lite.http"


def _log_word(value: object) -> str:
    """A value as one word; in quotes, if it might be taken for several."""
    if not value:
        return "-"
    if isinstance(value, str) and re.fullmatch("[!#-~]{1,200}", value):
        return value
    return show(value, 200)


def party_address(address: str) -> str:
    """What is one party of an address: of IPv6, its network, whose addresses are free.

    "" if it is none, as that of a Unix socket.
    """
    import socket

    if ":" not in address:
        return address
    try:
        packed = socket.inet_pton(socket.AF_INET6, address.partition("%")[0])
    except OSError:
        return ""
    if packed.startswith(bytes(10) + b"\xff\xff"):
        return socket.inet_ntoa(packed[12:])  # of IPv4
    return packed[:8].hex()


class Party:
    """One of those who share an endpoint: a principal, or an address without a token.

    It lasts as long as somebody refers to it: a session, or a shell.
    """

    def __init__(
        self, who: str, kept: Budget, abandoned: Budget, workers: Budget
    ) -> None:
        self.who = who
        # What is kept for it, in bytes.
        self.kept = Budget(kept.limit, kept, fair=True)
        # Threads that are with handlers of which it does not await the end.
        self.abandoned = Budget(abandoned.limit // 2, abandoned, fair=True)
        # The workers that are at work for its sessions.
        self.workers = Budget(workers.limit, workers, fair=True)


class Stream:
    """What answers one HTTP request: JSON if the result comes first, else events.

    It is written to one exchange at a time, and to none while its client is away:

        OPEN --------- leave() --------> LEAVING    the response ends, and the answer
         | ^--- attach(), back again ---' |         is still to come
         +------- answered, end() --------+
                         |
                         v
                      COMPLETE    the last event is queued: with it the response ends

    Events are numbered from 1; the cursor is the number of the last that was sent:

        `sent`, to be sent again          `waiting`
        [ n-4  n-3  n-2  n-1  n ]  [ n+1  n+2  ...  added ]
                              ^ cursor

    Those that wait for their client are taken from `budget`. If that has no room, or
    MAX_QUEUED wait, the oldest go, but never the last. What becomes of one that was
    sent depends on the `kind`:
        FINAL      no client can come back for it, as to a modern request: it is dropped
        RESUMABLE  it is kept in the session's Replay. A client is told the numbers; one
                   that lost its connection comes back with that of the last event it
                   got, as Last-Event-ID, and gets the rest
        PRIMED     the same, and the stream begins with an empty event, so that the
                   client can come back before there is any other
    `lost()` is called when the client has hung up.

    What changes is guarded by `_lock`, the connection's.
    """

    OPEN = "open"
    LEAVING = "leaving"
    COMPLETE = "complete"

    FINAL = "final"
    RESUMABLE = "resumable"
    PRIMED = "primed"

    state = OPEN
    # Of the response, if the answer comes before any event.
    status = 200
    added = 0
    _cursor = 0
    # A client knows its name, and so can come back.
    known = False
    # What goes before the next event: a comment, say.
    _prelude = b""
    # Where a thread is writing, which takes along what others queue meanwhile.
    _writing_to: Exchange | None = None

    def __init__(
        self,
        name: str,
        lock: threading.Lock,
        kind: str,
        lost: Job,
        budget: Budget,
        replay: Replay,
        exchange: Exchange | None,
    ) -> None:
        self.name = name
        self.kind = kind
        self._lost = lost
        self._lock = lock
        self._budget = budget
        self._replay = replay
        # Where it is written now.
        self.exchange = exchange
        if exchange is not None:
            exchange.stream = self
        # (number, message, what it takes of a budget)
        self._sent: deque[_Event] = deque()
        self._waiting: deque[_Event] = deque()
        # The changes among those that nobody writes yet, as in an Outbox.
        self._changes: set[bytes] = set()

    def add_locked(self, message: bytes) -> int:
        """Queue a message. Returns how many were dropped for it, unsent."""
        if type(message) is ChangeLine:
            if message in self._changes:
                return 0
            self._changes.add(message)
        elif type(message) is not Droppable:
            self._changes.clear()
        dropped = 0
        size = len(message)
        if size <= SHORT_BODY and not self._waiting and self._is_last_heard():
            # It leaves at once, and there are no more of these than connections.
            size = 0
        has_room = not size or self._replay.take_locked(size, self._budget)
        while self._waiting and (not has_room or len(self._waiting) >= MAX_QUEUED):
            self._budget.give_back(self._waiting.popleft()[2])
            self._changes.clear()
            dropped += 1
            has_room = has_room or self._budget.take(size)
        if not has_room:
            self._budget.overdraw(size)
        self.added += 1
        self._waiting.append((self.added, message, size))
        return dropped

    def _is_last_heard(self) -> bool:
        """Whether it ends with its present response: nobody can come back for it."""
        return self.state == self.COMPLETE and (
            self.kind == self.FINAL or not self.known
        )

    def _mark_sent_locked(self, number: int) -> None:
        """The events up to this number were sent."""
        if self.kind != self.FINAL and not self._is_last_heard():
            self._move_cursor_locked(number)
            return
        while self._waiting and self._waiting[0][0] <= number:
            size = self._waiting.popleft()[2]
            if size:
                self._budget.give_back(size)

    def _move_cursor_locked(self, number: int) -> None:
        """Now the events up to this number count as sent, and the others wait."""
        replay = self._replay
        self._cursor = number
        while self._sent and self._sent[-1][0] > number:
            event = self._sent.pop()
            self._waiting.appendleft(event)
            replay.budget.give_back(event[2])
            self._budget.overdraw(event[2])
        while self._waiting and self._waiting[0][0] <= number:
            event = self._waiting.popleft()
            self._budget.give_back(event[2])
            if replay.take_locked(event[2], replay.budget):
                self._sent.append(event)
        while len(self._sent) > MAX_EVENTS:
            self.drop_sent_locked()
        replay.touch_locked(self)

    def drop_sent_locked(self) -> bool:
        """Forget the oldest event that was sent. False if there is none."""
        if not self._sent:
            return False
        self._replay.budget.give_back(self._sent.popleft()[2])
        return True

    def drop_all_locked(self) -> None:
        """Forget every event: nobody will come for them."""
        while self._waiting:
            self._budget.give_back(self._waiting.popleft()[2])
        while self.drop_sent_locked():
            pass

    def is_done_locked(self) -> bool:
        """Whether nobody can come back for it, or for nothing."""
        if self.state != self.COMPLETE or self.exchange is not None:
            return False
        return not self.known or not (self._sent or self._waiting)

    def flush(self) -> None:
        """Write what is queued, unless another thread is at it, or nobody listens."""
        while self.exchange is not None:
            with self._lock:
                exchange = self.exchange
                prelude = self._prelude
                ending = self.state != self.OPEN
                if (
                    exchange is None
                    or self._writing_to
                    or not (self._waiting or prelude or ending)
                ):
                    return
                events = list(self._waiting)
                self._changes.clear()
                self._prelude = b""
                self._writing_to = exchange

            failed = False
            try:
                self._write(exchange, prelude, events, ending)
            except OSError:
                failed = True  # the events stay, for a client that comes back

            with self._lock:
                self._writing_to = None
                # It may have come back meanwhile, and moved the cursor.
                is_here = self.exchange is exchange
                if is_here:
                    if events and not failed:
                        self._mark_sent_locked(events[-1][0])
                    if failed or ending:
                        self.exchange = None
            # Let go of what was sent before the next wait.
            del events
            if failed:
                self.lose(exchange)
            elif not is_here:
                exchange.finish()
        if self.state == self.COMPLETE and self.kind != self.FINAL:
            with self._lock:
                self._replay.forget_locked(self)

    def _write(
        self,
        exchange: Exchange,
        prelude: bytes,
        events: list[_Event],
        ending: bool,
    ) -> None:
        opening = exchange.state == exchange.OPENING
        if opening and ending and not prelude and len(events) == 1:
            exchange.send(self.status, _JSON, events[0][1])
            return
        if opening and self.kind == self.PRIMED and self.state != self.COMPLETE:
            # "to prime the client to reconnect"
            prelude = (
                f"id: {self.name}-{self._cursor}\ndata: \n\n".encode("ascii") + prelude
            )
            # The response may end while its thread is still at work.
            exchange.shell.close_connection = True
            self.known = True
        parts = [prelude]
        self.known = self.known or bool(events)
        for number, message, _ in events:
            event_id = f"id: {self.name}-{number}\n"
            if self.kind == self.FINAL:
                event_id = ""
            parts.append(b"event: message\n%bdata: " % event_id.encode("ascii"))
            parts.append(message)
            parts.append(b"\n\n")
        exchange.write(b"".join(parts), ending)
        if ending and self.state != self.COMPLETE:
            exchange.shell.shut()  # its thread is still in the handler

    def attach(
        self, exchange: Exchange, after: int | None = None, prelude: bytes = b""
    ) -> None:
        """Go on here: from what was not sent yet, or after the event of that number."""
        with self._lock:
            before = self.exchange
            self.exchange = exchange
            exchange.stream = self
            self._prelude = prelude
            if after is not None:
                self._move_cursor_locked(min(after, self.added))
            if self.state == self.LEAVING:
                self.state = self.OPEN
        if before is not None:
            self._let_go(before)

    def lose(self, exchange: Exchange) -> None:
        """The client has hung up. What it did not get waits for the next exchange."""
        # The thread that is let go then finds the request cancelled.
        self.detach(exchange, self._lost)

    def detach(self, exchange: Exchange, first: Job = do_nothing) -> None:
        """End the response, but do something first; the stream goes on, with the next
        exchange."""
        with self._lock:
            if self.exchange is exchange:
                self.exchange = None
        first()
        self._let_go(exchange)

    def _let_go(self, exchange: Exchange) -> None:
        """Nothing more is written there. Who is just writing there finishes it: sooner,
        its thread might close under that what it writes to."""
        with self._lock:
            is_written_to = self._writing_to is exchange
        if not is_written_to:
            exchange.finish()

    def leave(self, retry_ms: int) -> None:
        """End the response, if the client can come back for the answer, in so long."""
        with self._lock:
            exchange = self.exchange
            if exchange is None or self.state == self.COMPLETE:
                return
            # Before 2025-11-25, a server "SHOULD NOT close the SSE stream before
            # sending the JSON-RPC response".
            if self.kind != self.PRIMED or not exchange.shell.can_leave:
                return
            self.state = self.LEAVING
            # "it SHOULD send an SSE event with a standard retry field before closing
            # the connection".
            self._prelude += b"retry: %d\n\n" % retry_ms
        self.flush()

    def keep_alive(self) -> None:
        """Write a comment, if events have begun, so that nobody takes it for dead."""
        with self._lock:
            exchange = self.exchange
            if exchange is None or exchange.state == exchange.OPENING:
                return
            self._prelude += b":\n\n"
        self.flush()

    def end(self) -> None:
        """End it, answered or not."""
        with self._lock:
            self.state = self.COMPLETE
        self.flush()


class Replay:
    """The streams of a session, and what they sent, for a client that comes back.

    Of the events that were sent, MAX_REPLAY bytes are kept in all, and of a stream
    MAX_EVENTS; of the streams that are over, MAX_STREAMS. The oldest go first. One that
    was answered in JSON, or before a client knew it, is gone with its answer. What
    changes is guarded by the connection's lock.
    """

    def __init__(self, budget: Budget) -> None:
        # Of a part of what the session may keep.
        self.budget = Budget(MAX_REPLAY, budget)
        # By name; the one that was written to latest is the last.
        self.streams: OrderedDict[str, Stream] = OrderedDict()

    def touch_locked(self, stream: Stream) -> None:
        """This one was written to."""
        if stream.name in self.streams:
            self.streams.move_to_end(stream.name)

    def take_locked(self, size: int, budget: Budget) -> bool:
        """Take bytes of a budget, if need be of what was sent. False if there are not
        so many."""
        while not budget.take(size):
            if size > budget.limit or not self.drop_oldest_locked():
                return False
        return True

    def drop_oldest_locked(self) -> bool:
        """Forget an event of the stream that was written to longest ago."""
        return any(stream.drop_sent_locked() for stream in self.streams.values())

    def forget_locked(self, stream: Stream) -> None:
        """Forget a stream that is over, if nobody can come back for it."""
        if stream.is_done_locked() and stream.name in self.streams:
            del self.streams[stream.name]
            stream.drop_all_locked()

    def trim_locked(self) -> None:
        """Keep the latest streams, and those that are still to be answered."""
        if len(self.streams) <= MAX_STREAMS:
            return
        for old in list(self.streams.values())[:-MAX_STREAMS]:
            if old.state == old.COMPLETE:
                del self.streams[old.name]
                old.drop_all_locked()


# Of a stream to which no client comes back.
_NO_REPLAY = Replay(Budget(0))


###############################################################################
# 22. HTTP sessions ###########################################################
###############################################################################
# Conversations over HTTP: that of a session, with its streams and what is kept for it,
# and that of one request. Which request belongs to which is not decided here. A handler
# runs on the thread that brought its request; on a worker, if it came in a batch or
# over HTTP+SSE.

# "404 Not Found and a JSON-RPC error with code -32601", "400 Bad Request" for a missing
# capability: the errors that have a status even as a handler's answer to a modern
# request. Any other is 200 there, and has a status only when the request was refused.
_ANSWER_STATUS = {
    each.code: each.http_status for each in (MethodNotFound, MissingCapability)
}
# From this revision on, a stream of a session begins with an empty event, so that a
# client knows from the start how to come back to it.
_PRIMED_SINCE = "2025-11-25"
# A stream has what waits to be written, and an exchange writes it.
_NO_TRANSPORT = Transport()
_NO_OUTBOX = Outbox(threading.Lock())


class HttpConnection(Connection):
    """A conversation over HTTP. There are three kinds:

        HttpConnection(http, exchange)              one POST, without a session
        HttpConnection(http, exchange, id)          a legacy session, which this opens
        HttpConnection(http, exchange, id, True)    a session over HTTP+SSE

    A message is queued to the stream of the request that it is about; any other to
    `listening`, which only sessions have. All go there in HTTP+SSE: `one_stream`.
    """

    # Of a session: the principal that may use it; and the streams that a client may
    # come back for.
    owner: Any
    replay = _NO_REPLAY

    def __init__(
        self,
        http: HttpEndpoint,
        exchange: Exchange,
        session_id: str | None = None,
        one_stream: bool = False,
    ) -> None:
        super().__init__(
            Protocol("server", http.server.capabilities, http.server.extension_row),
            http.server,
            _NO_TRANSPORT,
            name="mcp-http-worker",
            log=http.log,
            max_workers=http.max_workers,
            outbox=_NO_OUTBOX,
        )
        self._http = http
        self.session_id = session_id
        # Whose share it has.
        self.party = exchange.party
        # What is kept for it: without a session, only as long as the exchange.
        self.budget = exchange.budget
        if session_id is not None:
            self.owner = principal(exchange.auth)
            self.budget = Budget(http.kept_each, exchange.party.kept)
        self.one_stream = one_stream
        # When the client was last heard.
        self.used = time.monotonic()
        self._next_name = itertools.count().__next__
        # Streams that have something to write.
        self._dirty: list[Stream] = []
        self.listening: Stream | None = None
        if session_id is not None:
            self.replay = Replay(self.budget)
            # A late answer must not pass for one in the session that its client has
            # opened instead.
            first = int.from_bytes(os.urandom(6), "big")
            self.protocol.number_from(first)
            self.listening = self.open_stream()
            self.listening.known = True

    def open_stream(self, exchange: Exchange | None = None) -> Stream:
        """A stream, for an exchange."""
        kind = Stream.FINAL
        lost: Job = self.cancel_all
        if self.session_id is not None and not self.one_stream:
            is_primed = self.protocol.version >= _PRIMED_SINCE
            kind = Stream.PRIMED if is_primed else Stream.RESUMABLE
            # "Disconnection SHOULD NOT be interpreted as the client cancelling"
            lost = do_nothing
        replay = self.replay
        name = str(self._next_name())
        stream = Stream(name, self._lock, kind, lost, self.budget, replay, exchange)
        if kind != Stream.FINAL:
            with self._lock:
                replay.streams[name] = stream
                replay.trim_locked()
        return stream

    def carries_changes(self, request: Request) -> bool:
        """As a Connection does: a modern request has a stream, a session another."""
        return request.modern or self.session_id is not None

    def _make_pool(self, kind: str, limit: int) -> Workers | Lane:
        """A share of the endpoint's workers, which are few, however many sessions."""
        if kind:
            helpers = self._http.helpers
            return Lane(helpers, Budget(limit, helpers.budget), self.flush, False)
        budget = Budget(limit, self.party.workers)
        return Lane(self._http.workers, budget, self.flush, True)

    def listens(self, exchange: Exchange) -> bool:
        """Whether an exchange that is still open is there for what may come."""
        in_flight = list(self.protocol.in_flight.values())
        return exchange.method == "GET" or any(
            request.row.stays_open for request in in_flight
        )

    def stop_listening(self, final: bool) -> None:
        """Take no more from the client, and end the stream for what may come.

        In HTTP+SSE that is where answers go, too: so there, unless this is `final`, not
        before the last one.
        """
        # What a handler has asked nobody can answer any more.
        self.fail_pending(ConnectionClosed("the server was closed"))
        self.flush()
        is_needed = self.one_stream and self.protocol.in_flight and not final
        if self.listening is not None and not is_needed:
            self.listening.end()

    def keep(self, size: int) -> bool:
        return self.budget.take(size)

    def let_go(self, size: int) -> None:
        self.budget.give_back(size)

    def drop_replay(self) -> bool:
        """Forget all that was sent. False if there is nothing."""
        had_some = self.replay.budget.taken > 0
        with self._lock:
            while self.replay.drop_oldest_locked():
                pass
        return had_some

    def _queue_locked(
        self,
        data: bytes,
        stream: Stream | None,
        *,
        is_answer: bool = False,
    ) -> int:
        if stream is None:
            stream = self.listening
        if stream is None:
            return 1  # nobody could hear it
        if is_answer and stream is not self.listening:
            stream.state = stream.COMPLETE
        if stream not in self._dirty:
            self._dirty.append(stream)
        return stream.add_locked(data)

    def flush(self) -> None:
        """Write what is queued, in any stream."""
        try:
            while self._dirty:
                self._dirty.pop().flush()
        except IndexError:
            pass  # another thread took the last

    def _flush_at_once(self) -> bool:
        # A write may block. Where nobody listens, there is none.
        return not any(stream.exchange for stream in list(self._dirty))

    def _end(self, request: Request, message: Json | None, cancelled: bool) -> bool:
        """As a Connection does. Some errors have a status, if no event went before."""
        stream = request.stream
        error = (message or {}).get("error")
        if error is not None and request.modern and stream is not None:
            stream.status = _ANSWER_STATUS.get(error["code"], 200)
        if request.row.handshake and not self.one_stream:
            self._end_handshake(stream, error is not None)
        return super()._end(request, message, cancelled)

    def _end_handshake(self, stream: Stream, failed: bool) -> None:
        # "MAY assign a session ID at initialization time, by including it in an
        # MCP-Session-Id header on the HTTP response containing the InitializeResult".
        if failed:
            self.protocol.version = ""
        elif self.session_id is not None and stream.exchange is not None:
            stream.exchange.extra["Mcp-Session-Id"] = self.session_id

    def _stop(self, request: Request) -> None:
        super()._stop(request)
        # Of a batch, others may still be at work.
        is_over = request.batch is None or request.batch.is_complete()
        if request.stream is not None and is_over:
            request.stream.end()

    def take(self, message: object, exchange: Exchange) -> None:
        """Serve what a POST brought. The answer may still be to come.

        What it turned out to be      without session    in a session       in HTTP+SSE
        a request, answered           200                200                202
        a request, answered with an
            error                     _ANSWER_STATUS     200                202
        a request, refused            the error's        200                202
        an `initialize`, refused      the error's        the error's        202
        refused, its id unreadable    the error's        the error's        the error's
        a notification, an answer     202                202                202
        one of those, refused         400                400                400
        a batch, with requests        400                200                202
        a batch, without              400                202                202
        one of those, with something
            refused                   400                400                400
        a batch, refused              400                400                400
        The status of an error is its http_status. What is 202 and has an answer gets it
        on the one stream. On a server that opens no sessions, a legacy message is
        treated as in one. An answer that comes too late is none that is refused.
        """
        if isinstance(message, list):
            self._take_batch(message, exchange)
            return
        event = self.protocol.receive(message)
        if isinstance(event, Request):
            event.auth = exchange.auth
            event.headers = exchange.headers
            self._check_request(event, exchange)
        if isinstance(event, Request) and not self.one_stream:
            self._serve_request(event, exchange)
        elif isinstance(event, Refusal) and self._tells_at_once(event):
            self._send_refusal(event, exchange)
        elif isinstance(event, Answer) and event.why:
            self._act(event)
            self._send_refusal(Refusal(event.why), exchange)
        else:
            if isinstance(event, Request):
                self._keep_request(event, exchange)
            exchange.send(202, {})
            self.dispatch(self._act(event))

    def _check_request(self, request: Request, exchange: Exchange) -> None:
        """Raise HttpError for a call of who has abandoned too many others."""
        if request.row.handshake:
            self.budget.overdraw(footprint([request.client_info, request.capabilities]))
        # What a header names is the user's. Names of resources are without number.
        mirrored = request.row.mirrored
        if not mirrored:
            return
        name = "" if mirrored == "uri" else request.params[mirrored]
        exchange.callee = (request.method, name)
        if not self._http.may_call(exchange):
            self.protocol.end(request)
            raise HttpError(
                503,
                f"{request.method}: calls of this that nobody waits for still run",
                {"Retry-After": "10"},
            )

    def _keep_request(self, request: Request, exchange: Exchange) -> None:
        """Count a request that lasts longer than its exchange. Raises HttpError."""
        size = exchange.size + exchange.head_size
        if not self.budget.take(size):
            self.protocol.end(request)
            raise HttpError(
                429, "too many requests of this session wait", {"Retry-After": "1"}
            )
        request.kept = size

    def _keep_batch(self, requests: list[Request], exchange: Exchange) -> None:
        """The same, for those of a batch, of which each counts for a part of it. What
        finds no room is answered with an error."""
        # They came with one head.
        size = exchange.size + exchange.head_size
        for request in requests:
            share = size // len(requests)
            if self.budget.take(share):
                request.kept = share
            else:
                error = InternalError("too many requests of this session wait")
                self.cut_short(request, request.failure(error))

    def _serve(
        self, request: Request, serve: Callable[[Connection, Request], None]
    ) -> None:
        try:
            super()._serve(request, serve)
        finally:
            self.budget.give_back(request.kept)
            request.kept = 0

    def _take_batch(self, messages: list[Any], exchange: Exchange) -> None:
        # In HTTP+SSE, the answers go where all goes.
        stream = None if self.one_stream else self.open_stream(exchange)
        batch = Batch()
        batch.stream = stream
        batch.auth = exchange.auth
        batch.headers = exchange.headers
        has_answers = False
        try:
            requests = self._receive_batch(messages, batch)
            if stream is None:
                self._keep_batch(requests, exchange)
            self.dispatch(requests)
            is_asked = any(not each.is_notification for each in requests)
            has_answers = is_asked or bool(batch.answers)
        finally:
            if stream is not None and not has_answers:
                self.replay.streams.pop(stream.name, None)  # nothing will complete it
        if batch.refused and not has_answers:
            # "If the server cannot accept the input, it MUST return an HTTP error".
            raise InvalidRequest(batch.refused)
        if stream is None or not has_answers:
            exchange.send(202, {})
            return
        if batch.is_complete() and not batch.answers:
            stream.end()  # it has cancelled what it asked for
        self.flush()

    def _serve_request(self, request: Request, exchange: Exchange) -> None:
        if request.is_notification:
            exchange.send(202, {})
        else:
            request.stream = self.open_stream(exchange)
        # Another POST of the session may have cancelled it already.
        if not request.cancelled:
            self.endpoint.serve_request(self, request)
        self.flush()
        if request.cancelled and request.stream is not None:
            request.stream.end()  # it has no answer that would

    def _tells_at_once(self, refusal: Refusal) -> bool:
        """Whether a refusal is what answers the POST."""
        if refusal.is_late:
            return False
        # In HTTP+SSE, who asks waits for what comes on the stream.
        is_answer = refusal.reply is not None and "id" in refusal.reply
        return not (self.one_stream and is_answer)

    def _send_refusal(self, refusal: Refusal, exchange: Exchange) -> None:
        reply = refusal.reply or error_message(None, InvalidRequest(refusal.why))
        status = McpError.from_wire(reply["error"]).http_status
        # An error that answers a request of a session is 200, as its result would be.
        if self.protocol.version and "id" in reply:
            status = 200
        exchange.send(status, _JSON, encode_answer(reply, self.log.error))


def _told_version(message: object) -> Any:
    """The version that a message tells itself, as modern ones do; else None."""
    return member_at(message, ("params", "_meta", META_VERSION))


###############################################################################
# 23. HTTP admission ##########################################################
###############################################################################
# Who may make a request, by its head alone: what Host and Origin say, and its token;
# and the options that decide it. What is wrong with one of those is told when a server
# starts, to who starts it, and not to a client, some day.

# What pages of an allowed origin may read of an answer, beside its body.
_READABLE = "Mcp-Session-Id, WWW-Authenticate"
_WELL_KNOWN = "/.well-known/oauth-protected-resource"
# Of a bearer token. RFC 6750, section 2.1, has fewer; some that are in use have more.
_BEARER_TOKEN = "[!-~]+"
# As a request has it: without a query, and the rest of Unicode in percents.
_SERVED_PATH = r'(/[!"$->@-~]*)?'


class Admission:
    """Who may ask an HttpEndpoint. The options are as there; raises TypeError or
    ValueError for what none of them can be."""

    def __init__(
        self,
        log: _Log,
        verify: Verify | None,
        resource_metadata: Json | None,
        allowed_hosts: Iterable[str] | None,
        allowed_origins: Iterable[str] | None,
    ) -> None:
        self._log = log
        self._verify = _parse_verify(verify)
        # As clients get them, and where; b"" and "" without any.
        self.metadata = b""
        self.metadata_url = ""
        self._scopes = ""
        if resource_metadata is not None:
            self.metadata_url = _check_metadata(resource_metadata)
            try:
                self.metadata = encode_message(resource_metadata)
            except (TypeError, ValueError) as error:
                raise ValueError(f"resource_metadata: {error}") from None
            self._scopes = " ".join(resource_metadata.get("scopes_supported", ()))
        self._hosts = {"localhost", "127.0.0.1", "[::1]"}
        self._hosts.update(_parse_allowed("allowed_hosts", allowed_hosts, *_HOSTS))
        self._origins = _parse_allowed("allowed_origins", allowed_origins, *_ORIGINS)

    def allow_host(self, name: str) -> None:
        """Take requests for one more name, or address, of this host."""
        if name:
            self._hosts.add(f"[{name}]" if ":" in name else name.lower())

    def check_place(self, exchange: Exchange) -> None:
        """Raise HttpError unless it is this host that is asked, and no page elsewhere
        that asks."""
        # "Servers MUST validate the `Origin` header on all incoming connections to
        # prevent DNS rebinding attacks"; Host says more, and is always there.
        host = exchange.headers.get("host", "")
        if _host_name(host) not in self._hosts and "*" not in self._hosts:
            raise HttpError(403, f"host {show(host)} is not allowed; see allowed_hosts")
        self._check_origin(exchange)

    def _check_origin(self, exchange: Exchange) -> None:
        headers = exchange.headers
        origin = headers.get("origin", "").lower()
        if not origin:
            # Browsers tell no origin of what a page only shows, an image say; but they
            # tell whether the page is one of ours.
            site = headers.get("sec-fetch-site", "none")
            if site not in ("none", "same-origin") and "*" not in self._origins:
                raise HttpError(
                    403, f"a page elsewhere asks: Sec-Fetch-Site: {show(site)}"
                )
        elif origin in self._origins or "*" in self._origins:
            # Its pages may read what comes.
            exchange.extra = {
                "Access-Control-Allow-Origin": headers["origin"],
                "Vary": "Origin",
                "Access-Control-Expose-Headers": _READABLE,
            }
        elif (
            not self._is_own_page(origin) or "access-control-request-method" in headers
        ):
            # A browser that asks in advance does so for a page of another origin: of
            # this host maybe, but of another port.
            raise HttpError(
                403, f"origin {show(origin)} is not allowed; see allowed_origins"
            )

    def _is_own_page(self, origin: str) -> bool:
        """Whether an origin is a page of this host."""
        page = re.fullmatch(r"https?://([^/@]+)", origin)
        return page is not None and _host_name(page[1]) in self._hosts

    def authorize(self, headers: dict[str, str]) -> Json | None:
        """The claims of a token, as `verify` tells: basic/authorization.md. None where
        nobody needs one; raises HttpError."""
        if self._verify is None:
            return None
        scheme, _, token = headers.get("authorization", "").partition(" ")
        token = token.strip(" \t")
        if scheme.lower() != "bearer" or not token:
            raise self._challenge(401, {})
        if not re.fullmatch(_BEARER_TOKEN, token):
            raise self._challenge(401, {"error": "invalid_token"})
        try:
            claims = self._verify(token)
        except OSError as error:
            # With an errno it comes from the system: a file that may not be read, say.
            if isinstance(error, PermissionError) and error.errno is None:
                problem = {"error": "insufficient_scope"}
                raise self._challenge(403, problem, str(error)) from None
            self._log.error(f"verify: {error_text(error)}", error)
            raise HttpError(
                503, "tokens cannot be verified now", {"Retry-After": "10"}
            ) from None
        # Only claims let somebody in: not True, and not an empty dict.
        if not isinstance(claims, dict) or not claims:
            raise self._challenge(401, {"error": "invalid_token"})
        return claims

    def _challenge(
        self, status: int, problem: dict[str, str], scope: str = ""
    ) -> HttpError:
        """The refusal that tells a client which token would do, and where to get it."""
        if self.metadata_url:
            problem["resource_metadata"] = self.metadata_url
        # "SHOULD include a `scope` parameter": what is needed, else what there is.
        # RFC 6749, section 3.3, says which characters a scope has.
        tokens = re.findall(r"[!#-\[\]-~]+", scope or self._scopes)
        if tokens:
            problem["scope"] = " ".join(tokens)
        parameters = [f'{name}="{value}"' for name, value in problem.items()]
        challenge = f"Bearer {', '.join(parameters)}".strip()
        told = ": ".join(["a bearer token is needed", problem.get("error", "")])
        return HttpError(status, told.rstrip(": "), {"WWW-Authenticate": challenge})


# What may be allowed, and how an error describes it.
_HOSTS = (
    r"\*|[^\s/:@,\[\]]+|\[[0-9a-f:.]+\]",
    'names of this host without a port, such as "api.example"',
)
_ORIGINS = (
    r"\*|null|[a-z][a-z0-9+.-]*://[^\s/@,]*",
    'origins without a path, such as "https://app.example"',
)


def _parse_allowed(
    option: str, names: Iterable[str] | None, pattern: str, expected: str
) -> set[str]:
    """Names in lower case. Raises ValueError for what none can be."""
    if names is None:
        names = ()
    # The characters of a text would pass for names.
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise ValueError(f"{option}: expected a list of {expected}, got {show(names)}")
    allowed = set()
    for name in names:
        if not isinstance(name, str) or not re.fullmatch(pattern, name.lower()):
            raise ValueError(f"{option}: expected {expected}, got {show(name)}")
        allowed.add(name.lower())
    return allowed


def _host_name(host: str) -> str:
    """A host without its port."""
    if host.endswith("]"):
        return host.lower()  # an IPv6 address
    return (host.rpartition(":")[0] or host).lower()


def _metadata_places(url: str, path: str | None) -> set[str]:
    """Where metadata are served: "at the path of the server's MCP endpoint [...] or at
    the root". Seen from outside, as in their URL, the path may be another one."""
    if not url:
        return set()
    outside = url[url.index(_WELL_KNOWN) :]
    inside = _WELL_KNOWN + (path or "").rstrip("/")
    return {_WELL_KNOWN, inside, outside}


def _check_metadata(metadata: Json) -> str:
    """Where these metadata of a resource are: RFC 9728, section 3.1. Raises ValueError
    for those that no client could use."""
    if not isinstance(metadata, dict):
        raise ValueError(f"resource_metadata: expected a dict, got {show(metadata)}")
    resource = metadata.get("resource")
    parts = re.fullmatch(r'(https?://[^/"\\?#]+)([^"\\?#]*)', str(resource))
    if parts is None or not re.fullmatch("[!-~]+", parts[0]):
        raise ValueError(
            "resource_metadata: resource: expected this server's URL, "
            f"got {show(resource)}"
        )
    # "MUST include the `authorization_servers` field containing at least one".
    issuers = metadata.get("authorization_servers")
    are_urls = isinstance(issuers, list) and all(
        isinstance(each, str) and each.startswith(("https://", "http://"))
        for each in issuers
    )
    if not issuers or not are_urls:
        raise ValueError(
            "resource_metadata: authorization_servers: expected a list of their URLs, "
            f"got {show(issuers)}"
        )
    scopes = metadata.get("scopes_supported", [])
    if not isinstance(scopes, list) or not all(
        isinstance(each, str) for each in scopes
    ):
        raise ValueError(
            f"resource_metadata: scopes_supported: expected a list, got {show(scopes)}"
        )
    return parts[1] + _WELL_KNOWN + parts[2].rstrip("/")


def _parse_verify(verify: object) -> Callable[[str], Json | None] | None:
    """What tells the claims of a token. Raises TypeError for another function, or
    ValueError; a token is not quoted there."""
    if verify is None:
        return None
    if callable(verify):
        check_plain_function("verify", verify, "token")
        return verify
    if not isinstance(verify, Mapping) or not verify:
        raise ValueError(
            "verify: expected a function, or a dict of tokens and their claims, "
            f"got {'an empty' if verify == {} else 'a'} {type(verify).__name__}"
        )
    for number, (token, claims) in enumerate(verify.items(), 1):
        if not isinstance(token, str) or not re.fullmatch(_BEARER_TOKEN, token):
            raise ValueError(
                f"verify: token {number}: expected text in ASCII, without spaces"
            )
        if not isinstance(claims, dict) or not claims:
            raise ValueError(
                f"verify: token {number}: expected its claims, such as "
                f'{{"sub": "ada"}}, got {show(claims)}'
            )
    return partial(_find_claims, dict(verify))


def _find_claims(tokens: dict[str, Json], given: str) -> Json | None:
    """The claims of a token. However much of it is right, it takes the same time."""
    from hmac import compare_digest

    claims = None
    for token, its_claims in tokens.items():
        if compare_digest(token, given):
            claims = dict(its_claims)
    return claims


def check_path(option: str, path: object) -> None:
    """Raise ValueError for what can be no path of a request."""
    if not isinstance(path, str) or not re.fullmatch(_SERVED_PATH, path):
        raise ValueError(
            f'{option}: expected a path that begins with "/", without a query, '
            f"got {show(path)}"
        )


###############################################################################
# 24. HTTP endpoint ###########################################################
###############################################################################
# One endpoint for every revision (basic/transports/streamable-http.md and its
# predecessors): modern requests, legacy sessions, and the HTTP+SSE of 2024-11-05.
# HttpEndpoint decides everything, whoever carries the exchanges.
_METHODS = "POST, GET, DELETE"  # of an endpoint with sessions
_PREFLIGHT = {
    "Access-Control-Allow-Methods": _METHODS,
    "Access-Control-Max-Age": "600",
    "Access-Control-Allow-Headers": "*, Authorization",
}

# What MCP-Protocol-Version says in legacy sessions; "" is for a request without it, as
# the older revisions know no such header. Any other text is judged as a modern version:
# so it gets the error that tells which ones are spoken.
_SESSION_VERSIONS = ("", *LEGACY_VERSIONS)
_REQUEST_OVER = ConnectionClosed("the request is over")


class HttpEndpoint:
    """The HTTP side of a server, "the MCP endpoint": it answers exchanges of any Shell.

    `server` is what stands behind every conversation, `log` and `max_workers` are its
    own. The options:
        path               where it is served, "/mcp" say; None is at any path
        verify             verify(token) returns the claims of a bearer token, or None
                           (401), or raises PermissionError(scope) (403), on the thread
                           of the request; what else it raises is 503, if it is an
                           OSError, or 500. Or a dict of tokens and their claims.
                           Without it nobody is asked for a token
        resource_metadata  the document that tells clients where tokens come from (RFC
                           9728): {"resource": this server's URL,
                           "authorization_servers": [URLs], "scopes_supported": [...]},
                           served at both places under /.well-known/
        allowed_hosts      names of this host beside those of the loopback; "*" is any
        allowed_origins    sites whose pages may call, and read the answers, such as
                           "https://example.com"; "*" is any
        stateless          open no sessions: each legacy request is served by itself,
                           and nothing is asked of its client. For several processes
        legacy_sse         serve the HTTP+SSE of 2024-11-05 at /sse and /messages; only
                           with a path, and with sessions
        health             a path where everybody gets a 200, whatever the Host, and
                           nothing else; that is not logged
        max_body           the most bytes of a request's body; each shell sees to it
        max_kept           the most bytes that are kept for all clients together, but
                           always some bodies; who wants more is refused (503)
        max_connections    how many exchanges the shells carry at once: only some of
                           them may listen; for one more, who has the most loses the oldest
        max_sessions       sessions at a time; for one more, who has the most loses the
                           one that was used longest ago; if all are in use, 503
        session_seconds    how long a session is kept that nobody uses
    Raises ValueError for a value that an option cannot have, TypeError for a function
    that is not called like that.

    It has in its care `_sessions`, by id, until their clients delete them, or they were
    idle for long; and `_serving`, the exchanges that are being served, each by a thread
    that stays until nothing more will be written.
    """

    def __init__(
        self,
        server: Endpoint,
        log: _Log,
        max_workers: int,
        *,
        path: str | None = None,
        verify: Verify | None = None,
        resource_metadata: Json | None = None,
        allowed_hosts: Iterable[str] | None = None,
        allowed_origins: Iterable[str] | None = None,
        stateless: bool = True,
        legacy_sse: bool = False,
        health: str | None = None,
        max_body: int = MAX_BODY,
        max_kept: int = MAX_KEPT,
        max_connections: int = MAX_CONNECTIONS,
        max_sessions: int = MAX_SESSIONS,
        session_seconds: float = SESSION_SECONDS,
    ) -> None:
        from weakref import WeakValueDictionary

        check_options(
            *("stateless", "legacy_sse", "max_body", "max_kept"),
            *("max_connections", "max_sessions", "session_seconds"),
            **locals(),
        )
        self.server = server
        self.log = log
        self.max_workers = max_workers
        self.max_body = max_body
        # A lone client, which gets a half of it all, has room for two bodies.
        self._kept = Budget(max(max_kept, 4 * max_body))
        self.kept_each = max(MAX_KEPT_EACH, 2 * max_body)
        self.admission = Admission(
            log, verify, resource_metadata, allowed_hosts, allowed_origins
        )
        self._stateless = stateless
        self._max_sessions = max_sessions
        self._session_seconds = session_seconds
        self._lock = threading.Lock()
        # Written under _lock, so that there are never too many. To look one up, or to
        # list them all, is atomic by itself.
        self._sessions: dict[str, HttpConnection] = {}
        # By address, or by what `principal` tells of a token; guarded by _lock.
        self._parties: WeakValueDictionary[str, Party] = WeakValueDictionary()
        # Of what follows each operation is atomic by itself: that is enough.
        self._serving: dict[Exchange, HttpConnection] = {}
        # Of those: who listens, the oldest first; and whom nobody hears any more.
        self._listening: dict[Exchange, HttpConnection] = {}
        self._abandoned: dict[Exchange, Budget] = {}
        # The others are for calls.
        self._max_listening = max_connections - (max_connections + 3) // 4
        self._may_be_abandoned = Budget(MAX_ABANDONED)
        # For handlers of requests that last longer than their exchange; and to write,
        # which may block as many as there are connections.
        self.workers = Crew("mcp-http-worker", CREW_FACTOR * max_workers, log)
        self.helpers = Crew("mcp-http-helper", max_connections, log)
        # What a party has of those, by what it has called.
        self._abandoned_by: WeakValueDictionary[Any, Budget]
        self._abandoned_by = WeakValueDictionary()

        # {path, or None for any: {method: what answers it}}
        self._routes: dict[str | None, Mapping[str, Callable[[Exchange], None]]] = {}
        self._add_routes(path, legacy_sse, health)

    def _add_routes(
        self, path: str | None, legacy_sse: bool, health: str | None
    ) -> None:
        methods: dict[str, Callable[[Exchange], None]] = {"POST": self._post}
        if not self._stateless:
            methods["GET"] = self._get
            methods["DELETE"] = self._delete
        if path is None:
            self._routes[None] = methods
        else:
            self._add_route("path", path, methods)
        for place in _metadata_places(self.admission.metadata_url, path):
            readers = dict.fromkeys(("GET", "HEAD"), self._get_metadata)
            self._add_route("resource_metadata", place, readers)
        if legacy_sse:
            if path is None or self._stateless:
                raise ValueError("legacy_sse: only with a path, and with sessions")
            self._add_route("legacy_sse", "/sse", {"GET": self._get_sse})
            self._add_route("legacy_sse", "/messages", {"POST": self._post_message})
        if health is not None:
            readers = dict.fromkeys(("GET", "HEAD"), self._get_health)
            self._add_route("health", health, readers)

    def _add_route(
        self, option: str, path: str, methods: Mapping[str, Callable[[Exchange], None]]
    ) -> None:
        """Serve something at a path. Raises ValueError if that cannot be."""
        check_path(option, path)
        place = path.rstrip("/")
        if place in self._routes:
            raise ValueError(
                f"{option}: something else is served at {show(path)} already: "
                "choose another path"
            )
        self._routes[place] = methods

    def answer(self, exchange: Exchange, error: HttpError | None = None) -> None:
        """Answer one HTTP request, and return when nothing more will be written.

        Its handler runs on this thread; but a worker runs those of a batch, and of what
        came over HTTP+SSE. With an `error`, which the shell has found in its head, it
        is refused. Never raises.
        """
        transcript = self.server.transcript
        if transcript is not None:
            exchange.trace = transcript.talk_over_http(
                exchange.method, exchange.path, exchange.headers
            )
        try:
            if error is not None:
                # It may quote what is no head at all.
                exchange.is_judged_by_head = False
                raise error
            serve = self._admit(exchange)
            exchange.party = self._party_of(exchange)
            exchange.budget = Budget(self.kept_each, exchange.party.kept)
            exchange.make_room = self._make_room
            try:
                serve(exchange)
            finally:
                exchange.budget.close()
        except McpError as refusal:
            self._refuse(exchange, refusal)
        except OSError as failure:
            self.log.debug(f"the client left: {error_text(failure)}")
        except BaseException as failure:
            self.log.error(f"HTTP: {error_text(failure)}", failure)
            if exchange.state == exchange.OPENING:
                with suppress(OSError):
                    exchange.send(500, {})
        if "logging" in sys.modules:
            log_access(self.log, exchange)

    def _party_of(self, exchange: Exchange) -> Party:
        """Who asks."""
        who = exchange.shell.address
        if exchange.auth is not None:
            who = json.dumps(principal(exchange.auth), sort_keys=True, default=str)
        party = exchange.shell.party
        if party is None or party.who != who:
            party = exchange.shell.party = self._find_party(who)
        return party

    def _find_party(self, who: str) -> Party:
        with self._lock:
            party = self._parties.get(who)
            if party is None:
                workers = self.workers.budget
                party = Party(who, self._kept, self._may_be_abandoned, workers)
                self._parties[who] = party
        return party

    def _refuse(self, exchange: Exchange, error: McpError) -> None:
        if exchange.is_judged_by_head:
            exchange.reason = str(error)
        body = encode_answer(error_message(exchange.request_id, error), self.log.error)
        headers = {**_JSON, **getattr(error, "headers", {})}
        with suppress(OSError):
            exchange.send(error.http_status, headers, body)

    # Admission, by the head alone: nothing of the body is read.
    def _admit(self, exchange: Exchange) -> Callable[[Exchange], None]:
        """What answers this request, if it may be made at all. Raises HttpError."""
        if exchange.is_repeated and exchange.shell.head_is_right:
            # A client says the same again and again: only tokens end.
            exchange.auth = self.admission.authorize(exchange.headers)
            return self._post
        exchange.shell.head_is_right = False
        path = exchange.path
        route = self._routes.get(path.rstrip("/"), self._routes.get(None, {}))
        serve = route.get(exchange.method)
        if serve == self._get_health:
            return serve
        self.admission.check_place(exchange)
        if serve is not None:
            # Who has no token yet must find out where to get one.
            if serve != self._get_metadata:
                exchange.auth = self.admission.authorize(exchange.headers)
            return serve
        if not route:
            raise HttpError(404, f"nothing at {show(path)}")
        allow = {"Allow": ", ".join(route)}
        if exchange.method == "OPTIONS" and exchange.extra:
            # A browser asks for a page of an allowed origin.
            return lambda exchange: exchange.send(204, {**_PREFLIGHT, **allow})
        raise HttpError(405, f"{show(exchange.method)}: not allowed here", allow)

    def _get_metadata(self, exchange: Exchange) -> None:
        exchange.send(200, _JSON, self.admission.metadata)

    def _get_health(self, exchange: Exchange) -> None:
        # Who asks is told nothing, and there is nothing to tell of it.
        exchange.is_logged = False
        exchange.send(200, {"Cache-Control": "no-store"})

    # POST: basic/transports/streamable-http.md#sending-messages
    def _post(self, exchange: Exchange) -> None:
        shell = exchange.shell
        if not shell.head_is_right:
            exchange.check_accept(JSON_TYPE, EVENT_TYPE)
            exchange.check_type()
            # What may be said to a page elsewhere is found out each time.
            shell.head_is_right = not exchange.extra
        version = exchange.headers.get("mcp-protocol-version", "")
        may_be_legacy = version in _SESSION_VERSIONS and not self._stateless
        session = None
        if may_be_legacy and "mcp-session-id" in exchange.headers:
            session = self._find_session(exchange)

        message = exchange.parse_body()
        # The era is that of the message, whatever its client has sent before.
        told = _told_version(message)
        if told is not None or version not in _SESSION_VERSIONS:
            self._check_modern(object_or_empty(message), told, exchange)
            # Modern requests have no session.
            connection = HttpConnection(self, exchange)
        else:
            self._check_legacy(message, exchange)
            envelope = object_or_empty(message)
            connection = self._legacy_connection(envelope, version, session, exchange)

        self._serve(connection, exchange, connection.take, message, exchange)

        # An `initialize` that was refused has opened nothing.
        if connection.session_id is not None and not connection.protocol.version:
            self._close_session(connection)

    def _legacy_connection(
        self,
        envelope: Json,
        version: str,
        session: HttpConnection | None,
        exchange: Exchange,
    ) -> HttpConnection:
        """The session of a message, the one that its head names, a new one for
        `initialize`.

        On a server without sessions it is a conversation of this one message.
        """
        row = method_row(envelope.get("method"))
        opening = row.handshake and exchange.request_id is not None
        if self._stateless:
            connection = HttpConnection(self, exchange)
            if not opening:
                connection.protocol.version = version or ASSUMED_VERSION
            return connection
        if opening:
            return self._open_session(exchange)
        # It may have ended while the body came.
        if session is None or session.session_id not in self._sessions:
            return self._find_session(exchange)
        return session

    # What headers say must be what the body says: #server-validation. What a gateway
    # has let pass by them is what a handler gets.
    def _check_modern(self, message: Json, told: Any, exchange: Exchange) -> None:
        """Raise McpError unless the headers of a modern message are right; `told` is
        the version in its `_meta`."""
        header = exchange.headers.get("mcp-protocol-version", "")
        # "header requirements for notification POSTs are not defined by this revision":
        # but those that there are may not lie.
        is_request = exchange.request_id is not None
        if is_request and not header:
            raise HeaderMismatch("MCP-Protocol-Version: required, but missing")
        if header and told is not None and header != told:
            raise HeaderMismatch(
                f"MCP-Protocol-Version: {show(header)}, but {show(told)} in _meta"
            )
        if told is None and not is_request and "mcp-session-id" in exchange.headers:
            raise HeaderMismatch(
                f"MCP-Protocol-Version: {show(header)}, but sessions are of others"
            )
        check_modern_version(header or told)
        if is_request and told is None:
            meta = object_or_empty(member_at(message, ("params", "_meta")))
            check_members(MODERN_META, meta, "_meta.")
        self._check_mirrors(message, exchange, is_request)

    def _check_legacy(self, message: Any, exchange: Exchange) -> None:
        """Raise McpError if headers contradict a message of a session, or a batch.

        Its revision does not ask for any, but a gateway may have believed them.
        """
        try:
            if isinstance(message, list):
                exchange.told = {"Mcp-Method": "batch"}
                self._check_batch(message, exchange.headers)
            else:
                self._check_mirrors(object_or_empty(message), exchange, False)
        except HeaderMismatch as error:
            # No legacy revision has this error: in sessions it has the code that it had
            # in drafts of 2026-07-28.
            error.code = -32001
            raise

    @staticmethod
    def _check_batch(messages: list[Any], headers: dict[str, str]) -> None:
        for name in headers:
            if re.fullmatch("mcp-(method|name|param-.*)", name):
                raise HeaderMismatch(f"{name}: a batch has none, as it is of several")
        if any(_told_version(message) is not None for message in messages):
            raise InvalidRequest(f"a batch: only in {BATCH_VERSION}, of its messages")

    def _check_mirrors(self, message: Json, exchange: Exchange, required: bool) -> None:
        mirrored = mirrored_headers(message, self.server.header_parameters)
        exchange.told = mirrored
        for name, value in mirrored.items():
            header = exchange.headers.get(name.lower())
            if header is None:
                is_right = value is None or not required
            elif value is None:
                # "If no value is present at that path [...], the header is omitted".
                is_right = False
            elif name == "Mcp-Method":
                # Only the others may be in base64.
                is_right = header == value
            else:
                is_right = is_mirrored(header, value)
            if not is_right:
                told = "missing" if header is None else show(header)
                given = "nothing" if value is None else show(value)
                why = ""
                if "_" in name and exchange.shell.is_cgi:
                    # Nor may one with "-" stand for it: no gateway has looked at that.
                    why = (
                        '; here no header has a "_" in its name: x-mcp-header is wrong'
                    )
                raise HeaderMismatch(f"{name}: {told}, but {given} in the body{why}")

    def _serve(
        self,
        connection: HttpConnection,
        exchange: Exchange,
        begin: Callable[..., None],
        *given: object,
    ) -> None:
        """Begin an answer by begin(*given), and keep this thread until nothing more
        will be written.

        Mostly all is there when that returns; subscriptions/listen stays open.
        """
        self._serving[exchange] = connection
        had_to_wait = False
        try:
            begin(*given)
            had_to_wait = not exchange.wait(0.0)
            if had_to_wait and connection.listens(exchange):
                self._add_listener(exchange, connection)
            while had_to_wait and not exchange.wait(COMMENT_SECONDS):
                self._retry()  # where nobody calls look_after()
                if exchange.stream is not None:
                    exchange.stream.keep_alive()
        finally:
            del self._serving[exchange]
            if had_to_wait:
                self._listening.pop(exchange, None)
            if self._abandoned:
                self._take_back(exchange)
            # The client has hung up, or its stream goes on elsewhere.
            was_left = exchange.state != exchange.OVER
            if was_left:
                exchange.shell.close_connection = True
            if connection.session_id is None and (had_to_wait or was_left):
                self.server.disconnected(connection)  # it may have listened
            connection.used = time.monotonic()
            if exchange.state == exchange.STREAMING:
                with suppress(OSError):
                    exchange.write(b"", True)
            if connection.session_id is None:
                connection.close(_REQUEST_OVER)

    def _add_listener(self, exchange: Exchange, connection: HttpConnection) -> None:
        """Note who listens from now on. If there are too many, another one must go."""
        self._listening[exchange] = connection
        listening = list(self._listening)
        if len(listening) <= self._max_listening:
            return
        parties = Counter(each.party for each in listening)
        # Of several who have the most, the first, and of theirs the oldest.
        oldest = max(listening, key=lambda each: parties[each.party])
        theirs = self._listening.pop(oldest, None)
        if theirs is None:
            return
        if theirs.session_id is None:
            self.server.input_ended(theirs)  # this answers it
            theirs.helpers.nudge()
        elif oldest.stream is not None:
            oldest.stream.detach(oldest)

    # Sessions, and the streams that clients come back to: basic/transports.md of
    # 2025-03-26 to 2025-11-25
    def _open_session(
        self, exchange: Exchange, one_stream: bool = False
    ) -> HttpConnection:
        oldest = time.monotonic() - self._session_seconds
        for idle in self._idle_sessions():
            if idle.used < oldest:
                self._close_session(idle)
        session_id = os.urandom(24).hex()
        exchange.session_id = session_id
        connection = HttpConnection(self, exchange, session_id, one_stream)
        while not self._add_session(connection):
            if not self._close_surplus_session():
                raise HttpError(
                    503,
                    f"{self._max_sessions} sessions are open, and in use",
                    {"Retry-After": "60"},
                )
        self.server.connected(connection)
        return connection

    def _add_session(self, connection: HttpConnection) -> bool:
        with self._lock:
            if len(self._sessions) >= self._max_sessions:
                return False
            self._sessions[str(connection.session_id)] = connection
        return True

    def _idle_sessions(self) -> list[HttpConnection]:
        """Those in which nothing is in flight, and nobody listens; the one that was
        used longest ago is the first."""
        serving = list(self._serving.values())
        busy = set(serving)
        idle = [
            each
            for each in list(self._sessions.values())
            if each not in busy and not each.protocol.in_flight
        ]
        return sorted(idle, key=lambda each: each.used)

    def _close_surplus_session(self) -> bool:
        """Close a session for a new one. False if all are in use.

        Who has the most loses the one that was used longest ago. Its client gets a 404,
        and opens another one.
        """
        idle = self._idle_sessions()
        if not idle:
            return False
        parties = Counter(each.party for each in list(self._sessions.values()))
        # Of several who have the most, the first: max() sees to that.
        self._close_session(max(idle, key=lambda each: parties[each.party]))
        return True

    def _make_room(self, party: Party) -> bool:
        """Let go of something that is kept for this party. False if all is needed.

        First what was sent already, of the session that has most of it; then the
        session that keeps the most, if it is idle.
        """
        sessions = [
            each for each in list(self._sessions.values()) if each.party is party
        ]
        sessions.sort(key=lambda each: -each.replay.budget.taken)
        if sessions and sessions[0].drop_replay():
            return True
        idle = [each for each in self._idle_sessions() if each.party is party]
        idle.sort(key=lambda each: -each.budget.taken)
        if not idle or idle[0].budget.taken < SHORT_BODY:
            return False
        self._close_session(idle[0])
        return True

    def _find_session(
        self, exchange: Exchange, *, one_stream: bool = False
    ) -> HttpConnection:
        """The session that a request names, by a header, or over HTTP+SSE in its query,
        if it is its own. Raises HttpError."""
        session_id = exchange.headers.get("mcp-session-id")
        if one_stream:
            named = re.search(r"(?:^|&)session_id=(\w+)", exchange.query)
            session_id = named[1] if named else None
        if session_id is None:
            raise HttpError(400, f"Mcp-Session-Id: required, except in {NEWEST}")
        exchange.session_id = session_id
        connection = self._sessions.get(session_id)
        if (
            connection is None
            or connection.owner != principal(exchange.auth)
            or connection.one_stream != one_stream
        ):
            raise HttpError(404, "Mcp-Session-Id: no such session; initialize again")
        # "If the server receives a request with an invalid or unsupported
        # MCP-Protocol-Version, it MUST respond with 400 Bad Request".
        version = exchange.headers.get("mcp-protocol-version", "")
        spoken = connection.protocol.version
        known = ("", spoken) if spoken else _SESSION_VERSIONS
        if version not in known:
            raise HttpError(
                400,
                f"MCP-Protocol-Version: expected {known[-1]}, got {show(version)}",
            )
        connection.used = time.monotonic()
        return connection

    def _close_session(self, connection: HttpConnection) -> None:
        with self._lock:
            self._sessions.pop(str(connection.session_id), None)
        self.server.disconnected(connection)
        connection.close(ConnectionClosed("the session is over"))
        for stream in [connection.listening, *connection.replay.streams.values()]:
            if stream is not None:
                stream.end()
        connection.budget.close()

    def _get(self, exchange: Exchange) -> None:
        """Listen; or, with Last-Event-ID, go on with the stream of that event."""
        exchange.check_accept(EVENT_TYPE)
        exchange.check_empty()
        connection = self._find_session(exchange)
        last_id = exchange.headers.get("last-event-id", "0-")  # of `listening`
        name, _, number = last_id.rpartition("-")
        stream = connection.replay.streams.get(name)
        after = int(number) if re.fullmatch("[0-9]{1,18}", number) else None
        is_over = stream is not None and stream.state == stream.COMPLETE
        if stream is None or (is_over and after is not None and after >= stream.added):
            # "The server MUST either return Content-Type: text/event-stream [...], or
            # else return HTTP 405". Who got a stream without an end would ask for more.
            raise HttpError(
                405,
                f"Last-Event-ID: {show(last_id)} is of no stream, or one that is over",
                {"Allow": _METHODS},
            )
        stream.attach(exchange, after, b":\n\n")
        self._serve(connection, exchange, stream.flush)

    def _delete(self, exchange: Exchange) -> None:
        self._close_session(self._find_session(exchange))
        exchange.send(200, {})

    # HTTP+SSE: basic/transports.md of 2024-11-05
    def _get_sse(self, exchange: Exchange) -> None:
        exchange.check_empty()
        connection = self._open_session(exchange, one_stream=True)
        stream = connection.listening
        assert stream is not None
        first = (
            f"event: endpoint\ndata: /messages?session_id={connection.session_id}\n\n"
        )
        stream.attach(exchange, None, first.encode("ascii"))
        try:
            self._serve(connection, exchange, stream.flush)
        finally:
            self._close_session(connection)

    def _post_message(self, exchange: Exchange) -> None:
        connection = self._find_session(exchange, one_stream=True)
        exchange.check_type()
        message = exchange.parse_body()
        if _told_version(message) is not None:
            raise InvalidRequest(f"{NEWEST} is not spoken over HTTP+SSE")
        self._check_legacy(message, exchange)
        connection.take(message, exchange)

    # Looking after what is open
    def _retry(self) -> None:
        """Have workers come to jobs that wait, if there was no thread for one."""
        self.workers.retry()
        self.helpers.retry()

    def look_after(self) -> None:
        """See who has hung up: that cancels a modern request, but none of a session.

        Called now and then, by whoever made this endpoint. Does not block.
        """
        self._retry()
        for exchange in list(self._serving):
            stream = exchange.stream
            if stream is None or exchange in self._abandoned:
                continue
            if exchange.state == exchange.OVER:
                self._abandon(exchange)
            elif exchange.shell.hung_up():
                stream.lose(exchange)
                self._abandon(exchange)

    def _abandon(self, exchange: Exchange) -> None:
        """Count a thread that still serves what nobody waits for any more.

        One that is too many remains what it was: a connection of its party's.
        """
        party = exchange.party
        limit = party.abandoned.limit
        fresh = Budget(limit, party.abandoned, fair=True)
        budget = self._abandoned_by.setdefault((party, exchange.callee), fresh)
        if not budget.take(1):
            return
        exchange.shell.abandoned(True)
        self._abandoned[exchange] = budget
        # It may have ended just now.
        if exchange not in self._serving:
            self._take_back(exchange)

    def _take_back(self, exchange: Exchange) -> None:
        budget = self._abandoned.pop(exchange, None)
        if budget is not None:
            budget.give_back(1)
            exchange.shell.abandoned(False)

    def may_call(self, exchange: Exchange) -> bool:
        """Whether one more call may be abandoned, of what an exchange calls.

        A handler that does not end makes itself unavailable so, and nothing else.
        """
        if not self._abandoned:
            return True
        budget = self._abandoned_by.get((exchange.party, exchange.callee))
        return (budget or exchange.party.abandoned).has_room(1)

    def close(self, final: bool) -> None:
        """End what only listens; if `final`, also sessions and what still runs.

        What runs on the thread that calls this is not cancelled. Again before that, it
        also ends what listens for an answer that has come by then.
        """
        serving = list(self._serving.items())
        me = threading.get_ident()
        mine = {connection for exchange, connection in serving if exchange.thread == me}
        sessions = list(self._sessions.values())
        for connection in {*sessions, *(connection for _, connection in serving)}:
            self.server.input_ended(connection)
            connection.stop_listening(final)
            if not final or connection in mine:
                continue
            if connection.session_id is not None:
                self._close_session(connection)
            else:
                connection.cancel_all()
        if final:
            self.workers.close()
            self.helpers.close()


###############################################################################
# 25. HTTP shells #############################################################
###############################################################################
# What carries exchanges to the endpoint: a server of somebody else, by PEP 3333, and a
# connection of our own, with its steps and their deadlines. What a request means is not
# decided here.
@lru_cache(None)
def _status_line(status: int) -> str:
    from http import HTTPStatus

    return f"{status} {HTTPStatus(status).phrase}"


def _check_body_size(size: float, max_body: int) -> None:
    """Raise HttpError if a body has, or will have, more bytes than are allowed."""
    if size > max_body:
        raise HttpError(413, f"a body of more than {max_body} bytes")


class WsgiApp:
    """An HttpEndpoint as a WSGI application (PEP 3333), at whatever path it is mounted.

    There it shows only in a failing write that a client has hung up, and a response
    lasts as long as its handler.
    """

    def __init__(self, endpoint: HttpEndpoint) -> None:
        self.endpoint = endpoint

    def __call__(
        self, environ: Json, start_response: Callable[..., Write]
    ) -> list[bytes]:
        """Answer one request, on this thread."""
        shell = _WsgiShell(environ, start_response, self.endpoint.max_body)
        # Here a "?" of the path is not in percents any more.
        path = str(environ.get("PATH_INFO") or "").replace("?", "%3F")
        target = f"{path}?{environ.get('QUERY_STRING', '')}"
        method = str(environ.get("REQUEST_METHOD"))
        exchange = Exchange(shell, method, target, self._parse_headers(environ))
        self.endpoint.answer(exchange, shell.problem)
        if exchange.state == exchange.OPENING:
            # Nobody may be there, but the server above expects an answer.
            exchange.send(400, {})
        shell.skip_body()
        return [shell.body]

    @staticmethod
    def _parse_headers(environ: Json) -> dict[str, str]:
        headers = {
            name[len("HTTP_") :].replace("_", "-").lower(): str(value)
            for name, value in environ.items()
            if name.startswith("HTTP_")
        }
        headers["content-type"] = str(environ.get("CONTENT_TYPE") or "")
        return headers


class _WsgiShell(Shell):
    """One request, answered through start_response, and its write() for a stream."""

    is_cgi = True
    # What is wrong with its head.
    problem: HttpError | None = None

    def __init__(
        self, environ: Json, start_response: Callable[..., Write], max_body: int
    ) -> None:
        self.peer = str(environ.get("REMOTE_ADDR") or "")
        self.address = party_address(self.peer)
        self.body = b""  # for the application to return
        self._start_response = start_response
        # Some leave it out where there is no body.
        self._input: Any = environ.get("wsgi.input")
        self._max_body = max_body
        # How much of the request's body is still to be read: up to its end, if the
        # server marks that.
        self._left: float = 0
        try:
            self._left = parse_length(str(environ.get("CONTENT_LENGTH") or 0))
        except HttpError as error:
            self.problem = error
        if environ.get("wsgi.input_terminated"):
            self._left = float("inf")

    def read_body(self, keep: Callable[[int], None]) -> bytes:
        if self._left < float("inf"):
            _check_body_size(self._left, self._max_body)
        body = bytearray()
        while len(body) < self._left:
            piece = self._read(min(self._left - len(body), CHUNK))
            if not piece and self._left < float("inf"):
                raise HttpError(400, "the body ended early")
            if not piece:
                break
            keep(len(piece))
            body += piece
            _check_body_size(len(body), self._max_body)
        self._left = 0
        return bytes(body)

    def _read(self, size: float) -> bytes:
        """Read so many bytes of the body, at most. Raises OSError."""
        try:
            return bytes(self._input.read(int(size)))
        except Exception as error:
            # Each server has exceptions of its own for a client that has hung up.
            raise OSError(error_text(error)) from error

    def skip_body(self) -> None:
        """Read what is left of a short body, for servers that keep the connection."""
        if 0 < self._left <= SHORT_BODY:
            with suppress(OSError):
                self._read(self._left)

    def start(self, status: int, headers: dict[str, str], body: bytes | None) -> None:
        self.body = body or b""
        self._write = self._start_response(_status_line(status), list(headers.items()))

    def write(self, events: bytes, ending: bool) -> None:
        try:
            self._write(events)
        except Exception as error:
            raise OSError(error_text(error)) from error  # as in _read


def _count_received(sock: Socket) -> int:
    """How many bytes wait to be read, on Windows; elsewhere nobody asks."""
    if sys.platform == "win32":
        from ctypes import WinDLL, byref, c_long, c_ulong, c_void_p

        fionread = c_long(0x4004667F)
        count = c_ulong()
        WinDLL("ws2_32").ioctlsocket(c_void_p(sock.fileno()), fionread, byref(count))
        return count.value
    raise NotImplementedError


def has_hung_up(sock: Socket) -> bool:
    """Whether the other end of a connection is closed. Does not block."""
    import socket

    if sys.platform == "win32":
        # Another thread may take what came between two looks, but hardly every time.
        return all(is_ready(sock) and not _count_received(sock) for _ in range(5))
    if not is_ready(sock):
        return False
    try:
        # Another thread may take what is_ready() saw: do not wait for more.
        flags = socket.MSG_PEEK | socket.MSG_DONTWAIT
        return not socket.socket.recv(sock, 1, flags)
    except BlockingIOError:
        return False
    except OSError:
        return True


class Incoming:
    """What comes on a connection, read as a file is; but what is here can be seen."""

    def __init__(self, sock: Socket) -> None:
        self._sock = sock
        # What has come, and is not read.
        self.here = bytearray()

    def more(self) -> bool:
        """Block for more. False at the end."""
        data = self._sock.recv(CHUNK)
        self.here += data
        return bool(data)

    def read(self, size: int) -> bytes:
        """Block for so many bytes; fewer come at the end."""
        while len(self.here) < size and self.more():
            pass
        data = bytes(self.here[:size])
        del self.here[:size]
        return data

    def read_line(self, limit: int) -> bytes:
        """Block for a line with its end; of a longer one than that, so much comes."""
        size = self.here.find(b"\n", 0, limit) + 1
        while not size and len(self.here) < limit and self.more():
            size = self.here.find(b"\n", 0, limit) + 1
        return self.read(size or min(limit, len(self.here)))


class _SocketShell(Shell):
    """A connection of an HttpServer: its requests, one after another.

        PARKED --something comes--> at WORK --nothing more comes--> PARKED
                                       '--close_connection--> closed

    At work it has a thread, parked it has none. Each step has a deadline, which the
    server's watcher enforces:

        the TLS handshake          HEAD_SECONDS
        the first byte of a head   IDLE_SECONDS     <--+  if the connection is kept
        the rest of it             HEAD_SECONDS        |
        the body                   BODY_SECONDS        |
        the handler                none                |
        each write of the answer   SEND_SECONDS     ---+
    """

    can_leave = True
    # The one that it is at work on.
    thread = 0
    # By time.monotonic(): until when its present step may take.
    deadline = float("inf")
    # It is one too many, as far as is known.
    is_surplus = False
    # It counts no more: cut off, or left alone with its handler.
    is_uncounted = False
    # How much of the body is still to be read.
    _left: float = 0

    def __init__(self, server: HttpServer, sock: Socket, peer: str) -> None:
        import select

        self.server = server
        self.sock = sock
        self.peer = peer
        self.address = party_address(peer)
        self._incoming = Incoming(sock)
        # What tells whether something comes, where a connection may be parked.
        self._poll: Any = None
        if server.can_park:
            self._poll = select.poll()
            self._poll.register(sock, select.POLLIN)
        # Of the present request, and as it came.
        self._head = Head("", "", "1.0", {}, 0, True)
        self._head_bytes = b""

    def work(self) -> None:
        """Serve what comes, until nothing more does. A job of the server's workers."""
        self.thread = threading.get_ident()
        try:
            self._begin()
            while not self.close_connection:
                if not self._is_coming() and self.server.park(self):
                    return
                self._serve_request()
        except Exception as error:
            # Note how it has ended, if not by itself.
            self.server.log.debug(f"an HTTP connection ended: {error_text(error)}")
        self.server.end(self)

    def _begin(self) -> None:
        """Do what comes before the first request; later on, nothing."""
        if hasattr(self.sock, "do_handshake"):
            self.sock.do_handshake()
        if self.is_surplus and not self.server.find_place(self):
            self._refuse(HttpError(503, "busy", {"Retry-After": "1"}))

    def _is_coming(self) -> bool:
        """Whether there is a request, or will be in a moment, as of a client that makes
        one call after another: to hand it over would take longer."""
        self._allow(IDLE_SECONDS)
        self.server.waiting[self] = True
        is_here = self._incoming.here or getattr(self.sock, "pending", int)()
        if is_here or self._poll is None:
            return True
        seconds = STAY_SECONDS if self.server.may_stay(self) else 0.0
        return bool(self._poll.poll(1000 * seconds))

    def _serve_request(self) -> None:
        """Read a request, all of it, and have it answered."""
        try:
            if not self._incoming.here and not self._incoming.more():
                self.close_connection = True  # the client has hung up
                return
            before = self._head
            head = self._head = self._read_head()
        except HttpError as error:
            self._refuse(error)
            return

        self._go_on()
        self.close_connection = head.last
        self._left = float("inf") if head.size is None else head.size
        exchange = Exchange(self, head.method, head.target, head.fields)
        exchange.is_repeated = head is before
        self.server.endpoint.answer(exchange)
        if self._left:
            self._skip_body()
        if self.server.closing.is_set():
            self.close_connection = True
            if self.server.closed_by == self.thread:
                # It was this handler: nobody has waited for us.
                self.server.endpoint.close(True)

    def _allow(self, seconds: float) -> None:
        """Begin a step that may take so long."""
        self.deadline = time.monotonic() + seconds

    def _go_on(self) -> None:
        """Begin with what has come. Raises OSError if another connection was in need
        of this one's place."""
        if not self.server.waiting.pop(self, False):
            raise ConnectionAbortedError("cut off before its request was there")
        # A handler takes its time.
        self.deadline = float("inf")

    def _refuse(self, error: HttpError) -> None:
        """Answer what is no request, and hang up."""
        self.close_connection = True
        if self.server.closing.is_set():
            return  # it was cut short here: that is no fault of the client's
        self.server.endpoint.answer(Exchange(self, "", "", {}, b""), error)
        self._hang_up()

    def _hang_up(self) -> None:
        """End a connection on which there may be more to read than anybody wants."""
        self.shut()
        # What is not read would cost the client the answer: the system resets then.
        self._allow(EXIT_SECONDS)
        while self.sock.recv(CHUNK):
            pass

    def _skip_body(self) -> None:
        """Have done with a body that nobody has read, or not all of it."""
        if self.close_connection:
            self._hang_up()
            return
        self._allow(BODY_SECONDS)
        if len(self._incoming.read(int(self._left))) < self._left:
            self.close_connection = True

    # Reading
    def _read_head(self) -> Head:
        here = self._incoming.here
        # A client says the same again and again: then nothing is parsed.
        known = self._head_bytes
        if known and here.startswith(known):
            del here[: len(known)]
            return self._head
        size = here.find(b"\r\n\r\n") + 4
        if 4 <= size <= MAX_HEAD:
            # All of it is there.
            lines = self._incoming.read(size).splitlines(keepends=True)
        else:
            lines = self._read_lines()
        head = parse_head(lines)
        self._head_bytes = b"".join(lines)
        return head

    def _read_lines(self) -> list[bytes]:
        """The lines of a head of which not all has come."""
        self._allow(HEAD_SECONDS)
        lines: list[bytes] = []
        line = b""
        left = MAX_HEAD
        while line != b"\r\n":
            line = self._incoming.read_line(left + 1)
            left -= len(line)
            if left < 0:
                status = 431 if lines else 414
                raise HttpError(status, f"a head of more than {MAX_HEAD} bytes")
            if not line.endswith(b"\r\n"):
                raise HttpError(400, f"no end of line: {line[:60]!r}")
            lines.append(line)
        return lines

    def read_body(self, keep: Callable[[int], None]) -> bytes:
        """Read the body, all of it."""
        head = self._head
        max_body = self.server.endpoint.max_body
        size = head.size
        # How much of it may be taken as it is there.
        here = min(len(self._incoming.here), max_body)
        if size is not None and size <= here and "expect" not in head.fields:
            # It is here with its head: there is nothing to wait for.
            keep(size)
            self._left = 0
            return self._incoming.read(size)
        # Until all is read, nobody knows where another request begins.
        self._left = float("inf")
        self._allow(BODY_SECONDS)
        self.server.waiting[self] = True
        if (
            head.version == "1.1"
            and head.fields.get("expect", "").lower() == "100-continue"
            and (size or 0) <= max_body
        ):
            self.sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        try:
            body = (
                self._read_chunks(keep) if size is None else self._read(size, 0, keep)
            )
        except HttpError:
            if self.server.closing.is_set():
                # It was cut short here: that is no fault of the client's.
                raise ConnectionAbortedError("closed before all was there") from None
            raise
        self._left = 0
        self._go_on()
        return body

    def _read_chunks(self, keep: Callable[[int], None]) -> bytes:
        body = bytearray()
        # What is read and ignored, in all.
        ignored = 0
        size = -1
        while size != 0:
            size, extra = parse_chunk_line(self._read_line(ignored))
            ignored += extra
            if size > 0:
                body += self._read(size, len(body), keep)
                if self._incoming.read(2) != b"\r\n":
                    raise HttpError(400, "a chunk without an end")
        trailer = self._read_line(ignored)
        while not parse_trailer(trailer):
            ignored += len(trailer)
            trailer = self._read_line(ignored)
        return bytes(body)

    def _read_line(self, ignored: int) -> bytes:
        """A line before a chunk or after them all, after so many ignored bytes."""
        if ignored > MAX_IGNORED:
            raise HttpError(431, "too long extensions of chunks, or trailers")
        return self._incoming.read_line(MAX_IGNORED)

    def _read(self, size: int, before: int, keep: Callable[[int], None]) -> bytes:
        """The next part of a body, after so many bytes of it."""
        _check_body_size(before + size, self.server.endpoint.max_body)
        pieces: list[bytes] = []
        while size:
            # Of one that does not come there is nothing to keep.
            wanted = min(size, CHUNK)
            keep(wanted)
            piece = self._incoming.read(wanted)
            if len(piece) < wanted:
                raise HttpError(400, "the body ended early")
            pieces.append(piece)
            size -= wanted
        return b"".join(pieces)

    # Writing, on any thread: the answer may be there before this one is free.
    def start(self, status: int, headers: dict[str, str], body: bytes | None) -> None:
        """Write a head, and the body in the same write, or none before a stream."""
        # HTTP/1.0 knows no chunks: there a stream ends with its connection.
        if body is None and self._head.version == "1.1":
            headers["Transfer-Encoding"] = "chunked"
        early = body is not None and threading.get_ident() != self.thread
        if self._left > SHORT_BODY or (self._left and "expect" in self._head.fields):
            self.close_connection = True
        if self.close_connection or early:
            headers["Connection"] = "close"
        fields = "\r\n".join(map(": ".join, headers.items()))
        head = f"HTTP/1.1 {_status_line(status)}\r\n{fields}\r\n\r\n"
        self._send(head.encode("latin-1", "replace") + (body or b""))
        if early:
            self.shut()

    def write(self, events: bytes, ending: bool) -> None:
        """Go on with a stream, or end it."""
        data = events
        if self._head.version == "1.1":
            data = b""
            if events:
                data = b"%x\r\n%b\r\n" % (len(events), events)
            if ending:
                data += b"0\r\n\r\n"
        self._send(data)
        if ending and threading.get_ident() != self.thread:
            self.shut()

    def _send(self, data: bytes) -> None:
        self._allow(SEND_SECONDS)
        self.sock.sendall(data)
        self.deadline = float("inf")

    def abandoned(self, is_so: bool) -> None:
        """Make room for another connection, if this one has no more to say."""
        self.is_uncounted = is_so

    def shut(self) -> None:
        """Take no more requests: their thread may stay with this one's handler."""
        self.close_connection = True
        self.server.cut_off(self, 1)

    def hung_up(self) -> bool:
        """Whether the client has closed its end."""
        return has_hung_up(self.sock)


###############################################################################
# 26. HTTP server #############################################################
###############################################################################
# The connections of a server of our own: how they are accepted, get their threads, are
# watched, and end.
class HttpServer:
    """A server on a port, as `Server.start_http` returns it; a context manager.

        url        where clients find it: "http://127.0.0.1:8000/mcp", say; at a Unix
                   socket "http://unix:/run/mcp.sock:/mcp", as nginx has it
        port       its port, also when 0, for a free one, was asked for; of a Unix
                   socket 0
        close()    take no more requests, and end what there is; this closes the socket,
                   even if it was given: only its file, if any, stays

    A connection on which something comes gets a worker, "mcp-http-connection", which
    reads its requests and has the endpoint answer them. It stays for the next one, if
    that comes in a moment; else the connection is parked, and takes no thread. (With
    one for each of some hundred, these would pass Python's lock around, and some wait
    for a second until they have it.) One more thread, "mcp-http", is the watcher. Who
    looks after what:

        the watcher                accepts; hands parked connections to workers; for a
                                   connection beyond `max_connections`, cuts off one
                                   that waits for a request, of the address that has
                                   the most; if none does, MAX_REFUSED are told so
                                   (503), others just closed
            every TICK_SECONDS     cuts off who is late with a step (its `deadline`)
                                   asks the endpoint to see who has hung up (look_after)
        a connection's worker      while it waits for the end of an answer, comments on
            every COMMENT_SECONDS  its stream, if that is silent
        who opens a session        closes those that nobody used for long
        who calls close()          waits for the workers

    No thread can be stopped: to cut off is to shut a socket, so that whoever reads from
    it or writes to it fails. To close it is for its own thread alone, when nobody else
    writes to it any more.
    """

    def __init__(
        self,
        endpoint: HttpEndpoint,
        sock: Socket,
        url: str,
        max_connections: int,
        ssl_context: SSLContext | None,
    ) -> None:
        """Serve in the background who comes to a socket that listens."""
        import select
        from selectors import EVENT_READ, DefaultSelector

        self.endpoint = endpoint
        self.log = endpoint.log
        self._max_connections = max_connections
        self._ssl = ssl_context
        self.closing = threading.Event()
        # The thread that has called close().
        self.closed_by: int | None = None
        self._workers = Workers(
            "mcp-http-connection",
            max_connections + MAX_REFUSED + MAX_ABANDONED,
            do_nothing,
            self.log,
            TIDY_SECONDS,
        )
        self._lock = threading.Lock()
        # All connections; guarded by _lock.
        self._serving: dict[_SocketShell, bool] = {}
        # Those without a thread; added under _lock, and never once it is closing. Who
        # takes one out of here goes on with it.
        self._parked: dict[_SocketShell, bool] = {}
        # What would see more of them while it waits for some: others would not.
        self.can_park = hasattr(select, "epoll") or hasattr(select, "kqueue")
        # Those whose request is still to come, or not all there. Who waits longest is
        # the first. Who takes one out of here goes on with it. Each operation is atomic
        # by itself: that is enough.
        self.waiting: dict[_SocketShell, bool] = {}

        # Those whose worker may wait for their next request.
        self._staying: set[_SocketShell] = set()
        # What _look_at_load() has seen the last time, and when: the processor's time;
        # and the job that waits longest, and since when.
        self._looked = 0.0
        self._used = 0.0
        self._oldest: Job | None = None
        self._oldest_since = 0.0

        self.socket = sock
        address = sock.getsockname()
        # Who comes may be gone again, or be taken by another process that listens, too:
        # to wait for the next would keep the watcher from its watch.
        sock.setblocking(False)
        self.port: int = 0 if isinstance(address, (str, bytes)) else address[1]
        self.url = url
        self._selector: BaseSelector = DefaultSelector()
        self._selector.register(sock, EVENT_READ)
        self._watcher = threading.Thread(None, self._watch, "mcp-http", daemon=True)
        self._watcher.start()

    def __enter__(self) -> HttpServer:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def serve_until(self, stop: StopSignals, grace: float) -> None:
        """Block until a signal comes; then close, and wait for handlers.

        After Ctrl-C they are cancelled at once, and nobody waits for longer than
        DRAIN_SECONDS; after SIGTERM, they are cancelled in `grace` seconds, and get
        half of DRAIN_SECONDS then. A second signal ends all waiting.
        """
        try:
            get_within(stop.inbox, None)
        except KeyboardInterrupt:
            # Of a handler of the program's own.
            stop.tell("SIGINT")
        if stop.came[0] == "SIGINT":
            self._close(0.0, DRAIN_SECONDS, stop)
        else:
            self._close(grace, DRAIN_SECONDS / 2, stop)

    def close(self) -> None:
        """Take no more requests, end what listens, and wait for handlers.

        Those that still run after half of DRAIN_SECONDS are cancelled; after the other
        half, nobody waits for them any longer. Idempotent, from any thread: a handler's
        too, which is not waited for.
        """
        self._close(DRAIN_SECONDS / 2, DRAIN_SECONDS / 2, StopSignals())

    def _close(self, grace: float, patience: float, stop: StopSignals) -> None:
        """Have handlers cancelled after `grace`, and wait for them in all patience."""
        with self._lock:
            if self.closed_by is not None:
                return
            self.closed_by = threading.get_ident()
            self.closing.set()
        join_all([self._watcher], DRAIN_SECONDS)
        self._workers.allow(self._workers.limit)
        self.endpoint.look_after()  # who has hung up need not be waited for
        self.socket.close()  # the port is free

        with self._lock:
            serving = list(self._serving)
        for shell in serving:
            self.cut_off(shell, 0)  # no more requests
            self._take_up(shell)
        self._selector.close()

        def have_ended() -> bool:
            return stop.hurried or self._workers.close(0.0)

        for final, seconds in ((False, grace), (True, patience)):
            until = time.monotonic() + seconds
            is_over = False
            while not is_over:
                self.endpoint.close(final)
                left = until - time.monotonic()
                is_over = wait_until(have_ended, min(left, TICK_SECONDS)) or left <= 0
        for shell in serving:
            if shell.thread != self.closed_by:
                self.cut_off(shell)

    def cut_off(self, shell: _SocketShell, how: int = 2) -> None:
        """Shut a connection under its thread, unless that is done with it."""
        # Its thread closes it at its end(). If that could be now, the descriptor might
        # be another connection's by then.
        with self._lock:
            if shell in self._serving:
                shut(shell.sock, how)
                if shell in self.waiting:
                    # To wake its thread for 0, too, disturbs no answer.
                    wake(shell.sock)

    # The watcher's
    def _watch(self) -> None:
        next_look = 0.0
        while not self.closing.is_set():
            try:
                seconds = LOAD_SECONDS if len(self._workers) else TICK_SECONDS
                for key, _ in self._selector.select(seconds):
                    if key.data is None:
                        self._accept_all()
                    else:
                        self._take_up(key.data)
                now = time.monotonic()
                if now >= self._looked + LOAD_SECONDS:
                    self._look_at_load(now)
                if now >= next_look:
                    next_look = now + TICK_SECONDS
                    self.look_after()
            except Exception as error:
                self.log.error(f"HTTP: {error_text(error)}", error)  # go on accepting

    def _look_at_load(self, now: float) -> None:
        """Say how many workers may be at work at once.

        As many as there are requests, if the processor is idle: then they wait for
        something else than each other. Else a few: more would pass Python's lock
        around, of which each gets it less and less often. But no request waits for long
        for those that are at work.
        """
        used = time.process_time()
        is_idle = used - self._used < (now - self._looked) / 2
        self._used = used
        self._looked = now
        oldest = self._workers.oldest()
        if oldest is not self._oldest:
            self._oldest = oldest
            self._oldest_since = now
        is_late = now - self._oldest_since > TICK_SECONDS
        limit = self._workers.limit
        self._workers.allow(limit if is_idle or is_late else MAX_BUSY)

    def _accept_all(self) -> None:
        """Accept the connections that wait for that."""
        try:
            while not self.closing.is_set():
                self._accept(*self.socket.accept())
        except BlockingIOError:
            pass
        except OSError:
            time.sleep(0.05)  # out of descriptors, say: until some are closed

    def _accept(self, sock: Socket, address: Any) -> None:
        """Begin with a connection, unless there are too many."""
        import socket

        try:
            sock.setblocking(True)
            if isinstance(address, (str, bytes)):
                address = ("", 0)  # of a Unix socket, whose client mostly has none
            else:
                # An answer is one write: do not hold its last packet back.
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._ssl is not None:
                # The handshake is for a worker.
                sock = self._ssl.wrap_socket(
                    sock, server_side=True, do_handshake_on_connect=False
                )
        except Exception as error:
            sock.close()
            self.log.debug(f"an HTTP connection ended: {error_text(error)}")
            return
        shell = _SocketShell(self, sock, str(address[0]))
        shell.is_surplus = self._is_full() and not self._cut_off_one()
        surplus = [each for each in list(self._serving) if each.is_surplus]
        if shell.is_surplus and len(surplus) >= MAX_REFUSED:
            self.end(shell)
            return
        keep_from_forks(sock)
        with self._lock:
            self._serving[shell] = True
        self.waiting[shell] = True
        shell.deadline = time.monotonic() + HEAD_SECONDS
        self._workers.submit(shell.work)

    def _take_up(self, shell: _SocketShell) -> None:
        """Give a parked connection a worker."""
        if self._parked.pop(shell, False):
            self._selector.unregister(shell.sock)
            self._workers.submit(shell.work)

    # A worker's
    def may_stay(self, shell: _SocketShell) -> bool:
        """Whether a worker may wait for the next request of its connection."""
        if shell not in self._staying and len(self._staying) >= MAX_STAYING:
            return False
        self._staying.add(shell)
        return True

    def park(self, shell: _SocketShell) -> bool:
        """Have a connection wait without a thread, until something comes. False if it
        is not to: the server is closing."""
        from selectors import EVENT_READ

        with self._lock:
            if self.closing.is_set():
                return False
            shell.thread = 0
            self._staying.discard(shell)
            self._parked[shell] = True
            self._selector.register(shell.sock, EVENT_READ, shell)
        return True

    def end(self, shell: _SocketShell) -> None:
        """Close a connection, and forget it."""
        with self._lock:
            self._serving.pop(shell, None)
        self._staying.discard(shell)
        self.waiting.pop(shell, None)
        shut(shell.sock, 1)
        shell.sock.close()

    def find_place(self, shell: _SocketShell) -> bool:
        """Whether there is a place by now for a connection that was too many.

        Blocks for a moment: who was answered just now may be about to leave.
        """
        if not wait_until(
            lambda: not self._is_full() or self._cut_off_one(), TICK_SECONDS
        ):
            return False
        shell.is_surplus = False
        return True

    def _is_full(self) -> bool:
        return len(self._counted()) >= self._max_connections

    def _counted(self) -> set[_SocketShell]:
        """The connections that take a place."""
        return {
            each
            for each in list(self._serving)
            if not (each.is_uncounted or each.is_surplus)
        }

    def _cut_off_one(self) -> bool:
        """Cut off a connection on which no request has come. False if there is none.

        Of the address that has the most connections, the one that waits longest.
        """
        counted = self._counted()
        counts = Counter(shell.address for shell in counted)
        waiting = [shell for shell in list(self.waiting) if shell in counted]
        waiting.sort(key=lambda shell: -counts[shell.address])
        for shell in waiting:
            # Not one whose request is just coming.
            if is_ready(shell.sock) and not has_hung_up(shell.sock):
                continue
            shell.is_uncounted = True
            if self.waiting.pop(shell, False):
                self.cut_off(shell)
                return True
            shell.is_uncounted = False
        return False

    def look_after(self) -> None:
        """Look at deadlines, and at who has hung up: every TICK_SECONDS."""
        now = time.monotonic()
        for shell in list(self._serving):
            if shell.deadline < now:
                self.cut_off(shell)
                shell.deadline = float("inf")
        self.endpoint.look_after()


def listen_http(
    endpoint: HttpEndpoint,
    host: str,
    port: int,
    sock: Socket | None,
    path: str,
    max_connections: int,
    ssl_context: SSLContext | None,
) -> HttpServer:
    """A server on a port, or a socket, serving in the background.

    Raises ValueError for what none of these can be, OSError if nobody can listen there.
    """
    if ssl_context is not None:
        _check_tls(ssl_context)
    if sock is None:
        sock = _listen(host, port)
        keep_from_forks(sock)
    else:
        _check_listening(sock)
        if (host, port) != ("127.0.0.1", 0):
            raise ValueError("host, port: the socket in sock= has its own")
        address = sock.getsockname()
        host = "" if isinstance(address, (str, bytes)) else str(address[0])
    endpoint.admission.allow_host(host)
    scheme = "http" if ssl_context is None else "https"
    url = f"{scheme}://{_url_place(sock, host)}{path}"
    return HttpServer(endpoint, sock, url, max_connections, ssl_context)


# Connections that the system accepts, until we do: as many as may come at once.
_LISTEN_BACKLOG = MAX_CONNECTIONS


def _listen(host: object, port: object) -> Socket:
    """A socket that listens. Raises ValueError and OSError, with a remedy."""
    import errno
    import socket

    check_options("port", port=port)
    if not isinstance(host, str):
        raise ValueError(f"host: expected a name or address, got {show(host)}")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # "::" is every address, of IPv4, too, where the system can do that.
    both = host == "::" and socket.has_dualstack_ipv6()
    try:
        return socket.create_server(
            (host, port), family=family, backlog=_LISTEN_BACKLOG, dualstack_ipv6=both
        )
    except OSError as error:
        where = f"port {port} of {show(host)}"
        # Some Pythons have told already where that was.
        why = str(error.strerror).partition(" (while")[0]
        remedies = {
            errno.EADDRINUSE: f"{where} is taken: end what listens there, or choose "
            "another port; 0 is a free one",
            errno.EACCES: f"{where} is not for this user: those from 1024 on are",
            errno.EADDRNOTAVAIL: f"host: {show(host)} is no address of this machine; "
            '"0.0.0.0" is every one',
        }
        text = remedies.get(error.errno or 0, f"{where}: {why}")
        if error.errno not in errno.errorcode:
            # It has no address.
            text = f"host: expected a name or address, got {show(host)}: {why}"
        raise OSError(error.errno, text) from None


def _check_listening(sock: object) -> None:
    """Raise ValueError unless it is a socket that listens."""
    import socket

    if not isinstance(sock, socket.socket):
        raise ValueError(
            "sock: expected a socket that listens, such as socket.socket(fileno=3), "
            f"got {show(sock)}"
        )
    if not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        raise ValueError("sock: expected a socket that listens: call its listen()")


def _check_tls(context: object) -> None:
    """Raise ValueError for an ssl_context that serves nobody: else the first client
    would find out."""
    import ssl

    remedy = (
        "make it with ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), and give it "
        "the certificate with load_cert_chain(certfile, keyfile)"
    )
    if not isinstance(context, ssl.SSLContext):
        kind = type(context).__name__
        raise ValueError(
            f"ssl_context: expected an ssl.SSLContext, got a {kind}: {remedy}"
        )
    if context.protocol == ssl.PROTOCOL_TLS_CLIENT:
        raise ValueError(f"ssl_context: expected one for servers: {remedy}")
    # Whether it has a certificate, only a handshake tells. Not so if it is chosen by the
    # name that a client asks for.
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.set_ciphers("ALL")
    hello = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        client.wrap_bio(ssl.MemoryBIO(), hello).do_handshake()
    try:
        context.wrap_bio(hello, ssl.MemoryBIO(), server_side=True).do_handshake()
    except ssl.SSLError as error:
        if error.reason == "NO_SHARED_CIPHER" and context.sni_callback is None:
            raise ValueError(f"ssl_context: without a certificate: {remedy}") from None


def _url_place(sock: Socket, host: str) -> str:
    """Where a socket listens, as its URL has it."""
    address = sock.getsockname()
    if isinstance(address, (str, bytes)):
        # One that has no file begins with a NUL: it is shown as systemd has it.
        path = os.fsdecode(address).replace("\0", "@")
        return f"unix:{path}:"
    # For every address, one that is always there.
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{host}]:{address[1]}" if ":" in host else f"{host}:{address[1]}"


###############################################################################
# 27. HTTP requests ###########################################################
###############################################################################
# A client's way to a server: proxies, redirects, a pool of connections that are kept
# alive, one request with its response, and what to say when it fails. What is said
# there otherwise is not known here.


# The way there
def parse_url(text: str) -> SplitResult:
    """An HTTP URL as requests have it: encoded, without its fragment. Raises
    ValueError, which shows nothing of the URL: it may hold secrets."""
    from urllib.parse import quote, urlsplit

    try:
        url = urlsplit(text.strip())
        # To ask for a port is to have it checked.
        is_complete = url.scheme in _PORTS and url.hostname and (url.port or True)
        if not is_complete:
            raise ValueError
        netloc = url.netloc
        if not netloc.isascii():
            netloc = netloc.encode("idna").decode("ascii")
    except ValueError:
        raise ValueError(
            "url: expected http:// or https://, a host, and maybe a port and a path"
        ) from None
    # What is encoded already stays as it is.
    path = quote(url.path, _URL_CHARACTERS)
    query = quote(url.query, _URL_CHARACTERS)
    return url._replace(netloc=netloc, path=path, query=query, fragment="")


_PORTS = {"http": 80, "https": 443}
_URL_CHARACTERS = "!$%&'()*+,/:;=?@[]~"


def secrets_in(url: SplitResult, *headers: Mapping[str, str | bytes]) -> list[str]:
    """What nobody who is told of a request may see: values of headers, and a query."""
    from urllib.parse import unquote_plus

    secrets = re.split("[&=]", url.query)
    secrets += [unquote_plus(each) for each in secrets]
    for each in headers:
        secrets += map(str, each.values())
    return secrets


def show_url(url: SplitResult) -> str:
    """A URL for an error text: without its user and its query, which may be secrets."""
    netloc = url.netloc.rpartition("@")[2]
    return f"{url.scheme}://{netloc}{url.path}"


def login_header(name: str, url: SplitResult) -> Headers:
    """What a URL's user and password are in a header of this name; {} without them."""
    from urllib.parse import unquote

    if not url.username:
        return {}
    login = f"{unquote(url.username)}:{unquote(url.password or '')}"
    return {name: "Basic " + _base64(login.encode("utf-8"))}


def check_headers(headers: dict[str, str]) -> None:
    """Raise ValueError for a header that no request can have. The text names it, and
    does not show its value, which may be a secret."""
    for name, value in headers.items():
        if not isinstance(name, str) or not re.fullmatch(HEADER_NAME, name):
            # Somebody may have written all of it where the name belongs.
            told = show(str(name).partition(":")[0])
            raise ValueError(f"headers: {told} is not a header's name")
        if not isinstance(value, str) or not re.fullmatch(_HEADER_TEXT, value):
            raise ValueError(
                f"headers: {name}: expected text of Latin-1, in one line, "
                "without control characters"
            )
        if name.lower() in ("content-length", "transfer-encoding"):
            raise ValueError(f"headers: {name}: each request has its own")


_HEADER_TEXT = "[\t -~\x80-\xff]*"


def merge_headers(*parts: Mapping[str, str | bytes]) -> Headers:
    """Headers in one: of those with the same name, in upper or lower case, the last."""
    merged = {}
    for part in parts:
        for name, value in part.items():
            merged[name.lower()] = (name, value)
    return dict(merged.values())


def request_target(url: SplitResult) -> str:
    """What a request asks for: the path of a URL, and its query."""
    return (url.path or "/") + (f"?{url.query}" if url.query else "")


_Proxy = namedtuple("_Proxy", "host port headers")


def find_proxy(url: SplitResult) -> _Proxy | None:
    """The proxy that the environment has for a URL, with the headers that it wants."""
    is_local = url.hostname in ("localhost", "127.0.0.1", "::1")
    if is_local or not any(name.lower().endswith("_proxy") for name in os.environ):
        return None

    # Slow to import, and mostly not needed.
    from urllib.parse import urlsplit
    from urllib.request import getproxies, proxy_bypass

    address = getproxies().get(url.scheme)
    if not address or proxy_bypass(str(url.hostname)):
        return None
    proxy = urlsplit(address if "://" in address else "//" + address)
    headers = login_header("Proxy-Authorization", proxy)
    return _Proxy(str(proxy.hostname), proxy.port or _PORTS["http"], headers)


def _origin(url: SplitResult) -> tuple[str, str | None, int | None]:
    return url.scheme, url.hostname, url.port or _PORTS.get(url.scheme)


def follow_reference(url: SplitResult, reference: str) -> SplitResult | None:
    """Where a reference leads from a URL. None for another host, which must not see
    our headers: they may hold secrets; and for no URL at all."""
    from urllib.parse import urljoin

    with suppress(ValueError):
        target = parse_url(urljoin(url.geturl(), reference.strip()))
        if _origin(target) == _origin(url):
            # Who we are there is not for the server to say.
            return target._replace(netloc=url.netloc)
    return None


# What secrets may be sent to
_URL = (
    r"https?://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?"
    r"([/?][A-Za-z0-9._~:/?\[\]@!$&'()*+,;=%-]*)?"
)
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def _split(url: str) -> SplitResult:
    """A URL in its parts. Raises ValueError."""
    from urllib.parse import urlsplit

    return urlsplit(url)


def is_near(url: str) -> bool:
    """Whether a URL is on this machine."""
    return _split(url).hostname in _LOOPBACK


def _origin_of(url: str) -> str:
    parts = _split(url)
    return f"{parts.scheme}://{parts.netloc}"


def check_url(name: str, url: object, allow_near: bool = True) -> str:
    """A URL that may see secrets: over https, or if allowed on this machine, and with
    nothing in it that a browser, or a shell, might take for more than a URL."""
    if isinstance(url, str) and len(url) <= MAX_URI and re.fullmatch(_URL, url):
        # A port beyond 65,535, or half an address, is a ValueError.
        with suppress(ValueError):
            _, host, _ = _origin(_split(url))
            near = host in _LOOPBACK
            if (near and allow_near) or (not near and url.startswith("https://")):
                return url
    expected = "an https URL" + (", or one on this machine" if allow_near else "")
    told = show(hide_in_urls(url) if isinstance(url, str) else url)
    raise AuthorizationError(f"{name}: expected {expected}, got {told}")


# Connections
@lru_cache(maxsize=None)
def _response_class() -> type[HTTPResponse]:
    """http.client's response, but for "interim" ones, 100 to 199, that go before: they
    are skipped, and are not endless. It takes all but 100 for the response itself."""
    from http.client import CONTINUE, SWITCHING_PROTOCOLS, HTTPException, HTTPResponse

    read_status: Any = vars(HTTPResponse)["_read_status"]

    class Response(HTTPResponse):
        MAX_INTERIM = 20
        interim = 0

        def _read_status(self) -> tuple[str, int, str]:
            version, status, reason = read_status(self)
            if status >= 200 or status == SWITCHING_PROTOCOLS:
                return version, status, reason
            self.interim += 1
            if self.interim > self.MAX_INTERIM:
                raise HTTPException(f"more than {self.MAX_INTERIM} interim responses")
            return version, CONTINUE, reason

    return Response


def _is_reset(witness: SocketIO) -> bool:
    """Whether the peer sends a reset, as it does when it had closed before the request
    came. One that has read the request, and closes then, sends none."""
    # Data, or an end without a reset, does not break it.
    return wait_until(lambda: is_broken(witness), 0.5)


class _HttpPool:
    """The HTTP connections to one server, which are kept alive. Safe from any thread.

    A connection has one owner at each moment, who alone uses and closes it:

        connect --> a round trip --end--> idle --begin--> another round trip --> ...
                    a round trip --shut, by any thread--> closed by who was in it

    While a round trip may be shut it is in `_busy`, and who removes it from there has
    decided what becomes of its connection. So nobody who is late can shut the next
    round trip on the same connection, and none that was shut becomes idle.
    """

    def __init__(
        self,
        url: SplitResult,
        ssl_context: SSLContext | None,
        timeout: float,
        is_wanted: Callable[[RequestId | None], bool],
    ) -> None:
        self.proxy = find_proxy(url)
        self.url = url
        self._ssl_context = ssl_context
        self._timeout = timeout
        # Whether somebody waits for the answer to a request; for None, whether the
        # transport is open. Turns false before shut_request(), or close(), is called.
        self._is_wanted = is_wanted
        # No lock guards these: each step is one operation on one of them.
        # Kept alive, the latest last.
        self._idle: list[HTTPConnection] = []
        # Those that may be shut, each with its socket.
        self._busy: dict[_RoundTrip, Socket] = {}

    def begin(
        self, request_id: RequestId | None, patience: float | None = None
    ) -> _RoundTrip:
        """A round trip, maybe for a request, on the latest idle connection that still
        lives, else a new one, if there is one within `patience`. Raises ConnectionError
        if it is not wanted any more."""
        connection = self._pop_alive()
        was_kept = connection is not None
        if connection is None:
            connection = self._connect(
                self._timeout if patience is None else min(patience, self._timeout)
            )
        trip = _RoundTrip(self, connection, was_kept, request_id)
        self._busy[trip] = connection.sock
        # Who gives up after this look finds the round trip, and shuts it.
        if not self._is_wanted(request_id):
            trip.end()
            raise ConnectionError("given up")
        return trip

    def ask(
        self,
        method: str,
        url: SplitResult,
        headers: Headers,
        body: bytes | None,
        request_id: RequestId | None,
        patience: float | None,
    ) -> tuple[_RoundTrip, HTTPResponse]:
        """A round trip that has come to the head of its response."""
        target = request_target(url)
        if self.proxy is not None and url.scheme == "http":
            target = f"http://{url.netloc}{target}"
            headers = {**headers, **self.proxy.headers}
        response = None
        while response is None:
            trip = self.begin(request_id, patience)
            response = trip.send(method, target, headers, body, patience)
        return trip, response

    def _pop_alive(self) -> HTTPConnection | None:
        """The latest idle connection that the server has not closed."""
        with suppress(IndexError):
            connection = self._idle.pop()
            # Nothing is expected there: data, or its end, is no good.
            while is_ready(connection.sock):
                connection.close()
                connection = self._idle.pop()
            return connection
        return None

    def _connect(self, timeout: float) -> HTTPConnection:
        import http.client
        import socket

        url = self.url
        host = str(url.hostname)
        # Without a port, http.client would look for one in the host: in "::1", say.
        port = url.port or _PORTS[url.scheme]
        hop = self.proxy or _Proxy(host, port, {})
        connection = http.client.HTTPConnection(hop.host, hop.port, timeout=timeout)
        if url.scheme == "https":
            connection = http.client.HTTPSConnection(
                hop.host, hop.port, timeout=timeout, context=self._ssl_context
            )
            if self.proxy is not None:
                connection.set_tunnel(host, port, hop.headers)
        connection.response_class = _response_class()
        try:
            connection.connect()
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        except BaseException:
            connection.close()
            raise
        return connection

    def shut(self, trip: _RoundTrip) -> None:
        """Cut a round trip off, under the thread that is in it, unless it is over."""
        sock = self._busy.pop(trip, None)
        if sock is not None:
            shut(sock)
            trip.is_cut = True

    def shut_request(self, request_id: RequestId) -> None:
        """Cut off what is under way for a request."""
        for trip in list(self._busy):
            if trip.request_id == request_id:
                self.shut(trip)

    def give_back(self, trip: _RoundTrip, is_reusable: bool) -> bool:
        """Keep the connection of a round trip for the next one, or close it. False if
        the round trip was shut."""
        was_shut = self._busy.pop(trip, None) is None
        if was_shut:
            # Closed sooner, its descriptor could be another one's when it is shut.
            wait_until(lambda: trip.is_cut, TIDY_SECONDS)
        if was_shut or not is_reusable:
            trip.connection.close()
            return not was_shut
        self._idle.append(trip.connection)
        if not self._is_wanted(None):
            # It may have come too late for close().
            self._close_idle()
        return True

    def close(self) -> None:
        """Close the idle connections and shut the busy ones."""
        for trip in list(self._busy):
            self.shut(trip)
        self._close_idle()

    def _close_idle(self) -> None:
        with suppress(IndexError):
            while True:
                self._idle.pop().close()


class _RoundTrip:
    """One HTTP request and its response, on a connection that is its own meanwhile.

        begun --send--> answered, its head is read --end--> over
                    '-> refused unread: another round trip sends it again

    One thread takes it through this; any other may shut it, by its pool.
    """

    # A server that refuses a request unread does so within so many seconds.
    AT_ONCE = 0.5
    # For all that a stream has after the answer.
    REST_SECONDS = 0.1

    def __init__(
        self,
        pool: _HttpPool,
        connection: HTTPConnection,
        was_kept: bool,
        request_id: RequestId | None,
    ) -> None:
        self.connection = connection
        self.request_id = request_id
        self._pool = pool
        self._was_kept = was_kept
        self._response: HTTPResponse | None = None
        self._timer: threading.Timer | None = None
        # Who has shut it is done with its socket.
        self.is_cut = False

    def send(
        self,
        method: str,
        target: str,
        headers: Headers,
        body: bytes | None,
        patience: float | None,
    ) -> HTTPResponse | None:
        """Send the request, and read the head of the response. None: to be sent again.

        A server closes a connection that was idle for long, and may do so just now:

            client                              server
            finds it alive: begin()
                                                closes it
            the request         ----------->    nobody reads it any more
                                <-----------    reset

        Then, and only then, the request is sent again: the connection was kept alive,
        and what fails there fails at once, and by a reset. Otherwise the server may
        have read the request, and a tool may have run.

        After `patience` seconds, if there are any, the round trip is shut.
        """
        sock = self.connection.sock
        began = time.monotonic()
        witness = None
        try:
            if self._was_kept and os.name == "posix":
                # Keeps the descriptor open when http.client closes the socket.
                witness = sock.makefile("rb", 0)
            if patience is not None:
                self._timer = start_timer(patience, self._pool.shut, self)
            sock.settimeout(None)
            # Who refuses a large body may answer before it has read it.
            with suppress(BrokenPipeError, ConnectionResetError):
                self.connection.request(method, target, body, headers)
            self._response = self.connection.getresponse()
        except BaseException as error:
            at_once = time.monotonic() - began < self.AT_ONCE
            was_shut = not self.end()
            was_refused_unread = (
                isinstance(error, ConnectionError)
                and at_once
                and not was_shut
                and witness is not None
                and _is_reset(witness)
            )
            if not was_refused_unread:
                raise
        finally:
            if witness is not None:
                witness.close()
        return self._response

    def end(self) -> bool:
        """Let go of the connection: it is kept for the next round trip if the response
        was read to its end. False if this was shut."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
        response = self._response
        if response is None:
            return self._pool.give_back(self, False)
        if response.length == 0:
            # All of it was read; http.client may have left that open.
            response.close()
        if not response.isclosed() and self.connection.sock is not None:
            self._read_rest(response)
        # http.client has closed the socket if the server said that it closes it.
        is_reusable = response.isclosed() and self.connection.sock is not None
        # Then only the response still has it.
        response.close()
        return self._pool.give_back(self, is_reusable)

    def _read_rest(self, response: HTTPResponse) -> None:
        """Read what a stream has after the answer: mostly its end."""
        # A socket's own timeout would begin anew with each byte.
        timer = start_timer(self.REST_SECONDS, self._pool.shut, self)
        with suppress(Exception):
            response.read1(CHUNK)
            if response.length == 0:
                response.close()
        timer.cancel()
        timer.join()


def content_type(response: HTTPResponse) -> str:
    header = response.headers.get("Content-Type", "")
    return header.partition(";")[0].strip().lower()


# What to say when it fails
_WRONG_PATH = "is the path of the URL right? Many servers are at /mcp"
_MOVED = (
    "use that URL, if you trust it: a redirect is followed only if it is a 307 or 308, "
    "once, and on the same host"
)
_DOWN = "the server, or what stands before it, is down or busy: try again later"
# What may help, by the status of a response.
_REMEDIES = {
    301: _MOVED,
    302: _MOVED,
    303: _MOVED,
    307: _MOVED,
    308: _MOVED,
    403: "it refuses this client: see what hosts and origins, and which tokens, it allows",
    404: _WRONG_PATH,
    405: f"it takes no messages there: {_WRONG_PATH}",
    407: "the proxy wants a user and a password, in HTTPS_PROXY or HTTP_PROXY",
    413: "the message is larger than the server takes",
    429: "too many requests: try again later",
    500: "the server has failed: its log says why",
    502: _DOWN,
    503: _DOWN,
    504: _DOWN,
}
# By the number that OpenSSL gives to what is wrong with a certificate.
_OTHER_NAME = (
    "the certificate is for another host name: is this the name that the server has in "
    "it? See Client(ssl_context=)"
)
_UNKNOWN_CA = (
    "the certificate is not signed by anybody that this machine trusts. For a CA of your "
    "own: Client(ssl_context=ssl.create_default_context(cafile=...))"
)
_CERTIFICATE_FAULTS = {
    9: "the certificate is not valid yet: is the clock right?",
    10: "the certificate has expired, or the clock is wrong",
    18: _UNKNOWN_CA,
    19: _UNKNOWN_CA,
    20: _UNKNOWN_CA,
    21: _UNKNOWN_CA,
    62: _OTHER_NAME,
    64: _OTHER_NAME,
}
_TUNNEL_STATUS = "Tunnel connection failed: ([0-9]{3})"


def http_failure(
    url: SplitResult,
    proxy: _Proxy | None,
    told: str,
    status: int | None = None,
    challenge: dict[str, str] | None = None,
) -> HttpFailure:
    """The exception that says where it was, and what happened."""
    place = show_url(url)
    by = "" if proxy is None else f", by the proxy {proxy.host}:{proxy.port}"
    return HttpFailure(printable(f"{place}{by}: {told}"), place, status, challenge)


def describe_response(response: HTTPResponse, body: bytes, is_first: bool) -> str:
    """What a response says that is no answer, for an error text, and what may help.

    is_first: no server was found there so far, so the URL may be wrong
    """
    told = f"HTTP {response.status} {response.reason[:100]}".strip()
    remedy = _REMEDIES.get(response.status, "")
    kind = content_type(response)
    if response.status == 200 and kind == EVENT_TYPE:
        told += ", but the stream ended before the answer came: has the server ended?"
    elif response.status < 300:
        told += " without an answer" + (f", but {show(kind)}" if kind else "")
        remedy = _WRONG_PATH
    location = response.headers.get("Location", "")
    if location:
        # Its user and its query may be secrets, too.
        bare = re.sub("//[^/]*@", "//", location.partition("?")[0])
        told += f" to {show(bare, 300)}"
    words = _words_of(body)
    if words:
        told += f": {words}"
    again = response.headers.get("Retry-After", "")
    if again.isdigit():
        told += f" (try again in {again[:10]} s)"
    if remedy and (is_first or not remedy.endswith(_WRONG_PATH)):
        told += f"; {remedy}"
    return told


def _words_of(body: bytes) -> str:
    """What a body says to people: an error's message, a page's title, a text."""
    with suppress(McpError):
        answer = object_or_empty(parse_message(body))
        message = member_at(answer, ["error", "message"])
        if isinstance(message, str):
            return message[:500]
    text = body.decode("utf-8", "replace")
    title = re.search("(?is)<title[^>]*>([^<]{1,300})", text)
    if title is not None:
        return f"a web page, {show(title[1].strip(), 300)}"
    if re.match(r"(?is)\s*<(!doctype|html)", text):
        return "a web page"
    return text[:500].strip()


def describe_exception(
    error: Exception, url: SplitResult, proxy: _Proxy | None, is_first: bool
) -> str:
    """What was in the way of a request, for an error text, and what may help."""
    import socket
    from http.client import BadStatusLine

    hop = _origin(url)[1:] if proxy is None else (proxy.host, proxy.port)
    # What has not imported it has no errors of it.
    ssl = sys.modules.get("ssl")
    if isinstance(error, socket.gaierror):
        return (
            f"the name {hop[0]} does not resolve: is it spelled right, is there a "
            "network, is a proxy needed (HTTPS_PROXY)?"
        )
    if isinstance(error, ConnectionRefusedError):
        return (
            f"nobody listens at {hop[0]}, port {hop[1]}: is the server running, is the "
            "port right?"
        )
    if ssl is not None and isinstance(error, ssl.SSLCertVerificationError):
        fault = _CERTIFICATE_FAULTS.get(error.verify_code, "the certificate is refused")
        return f"{fault} ({error.verify_message})"
    if ssl is not None and isinstance(error, ssl.SSLError):
        return (
            f"TLS failed ({error.reason}): does the server speak TLS at this port? If "
            "it does not, its URL begins with http://"
        )
    status = tunnel_status(error)
    if status is not None:
        return f"the proxy opens no way there: {error}; {_REMEDIES.get(status, _DOWN)}"
    if isinstance(error, (BadStatusLine, ConnectionResetError, BrokenPipeError)):
        told = "the connection was closed before the answer came"
        if type(error) is BadStatusLine:
            told = f"what answers there does not speak HTTP: {show(str(error))}"
        if is_first and url.scheme == "http":
            told += "; if the server speaks TLS, its URL begins with https://"
        return told
    # One of ours says it all.
    return str(error) if type(error) is ConnectionError else error_text(error)[:500]


def may_be_legacy(error: Exception | None) -> bool:
    """Whether who answers a modern request like this may know sessions: "the modern
    request returns a 4xx without a recognized modern error body, and the client falls
    back to initialize" (basic/versioning.md). Some fail with a 500, too."""
    if isinstance(error, AuthorizationError) or not isinstance(error, HttpFailure):
        return False
    return error.http_status is not None and error.http_status >= 400


def tunnel_status(error: Exception) -> int | None:
    """What a proxy has answered that was to open a way to the server."""
    match = re.match(_TUNNEL_STATUS, str(error))
    return None if match is None else int(match[1])


# One answer, all of it
# What a server answers; the document is {} if there is no JSON object.
Reply = namedtuple("Reply", "status document headers")


def fetch(
    url: SplitResult,
    headers: Headers,
    body: bytes | None,
    ssl_context: SSLContext | None,
    seconds: float,
    is_wanted: Callable[[], bool],
) -> Reply:
    """GET a URL, or POST a body there, and read the answer, within some seconds.

    Raises AuthorizationError, as well if nobody wants it any more.
    """
    until = time.monotonic() + seconds
    method = "GET" if body is None else "POST"
    pool = _HttpPool(url, ssl_context, seconds, lambda _: is_wanted())
    try:
        trip, response = pool.ask(method, url, headers, body, None, seconds)
        try:
            data = response.read(MAX_METADATA + 1)
        finally:
            was_shut = not trip.end()
        if was_shut or response.length or len(data) > MAX_METADATA:
            raise ConnectionError(
                f"the answer was cut off, or has more than {MAX_METADATA} bytes"
            )
    except Exception as error:
        # http.client has exceptions of its own, beside OSError.
        told = describe_exception(error, url, pool.proxy, False)
        if time.monotonic() >= until:
            told = f"no answer within {seconds:g} s"
        raise AuthorizationError(f"{show_url(url)}: {told}") from error
    finally:
        pool.close()
    document: Json = {}
    with suppress(ParseError):
        document = object_or_empty(parse_message(data))
    return Reply(response.status, document, response.headers)


# Being refused
_CHALLENGE_PART = (
    r"([!#$%&'*+.^_`|~0-9A-Za-z-]+)"
    r'(?:[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|([^\s,"=]+)))?'
)


def parse_challenge(text: str) -> dict[str, str]:
    """The challenge of WWW-Authenticate that a token answers: RFC 9110, section 11.6.1.

    Its parameters, their names in lower case, and the "scheme"; {} if there is none.
    """
    challenges: dict[str, dict[str, str]] = {}
    parameters: dict[str, str] = {}
    for part in re.finditer(_CHALLENGE_PART, text[:MAX_CHALLENGE]):
        name = part[1].lower()
        if part.lastindex == 1:
            # No value: here begins the challenge of another scheme.
            parameters = challenges.setdefault(name, {"scheme": name})
        else:
            value = part[3] or re.sub(r"\\(.)", r"\1", part[2] or "")
            parameters.setdefault(name, value)
    return challenges.get("bearer") or challenges.get("dpop") or {}


def challenge_in(headers: Any) -> dict[str, str]:
    """The same, of a response that may have the header several times, or not at all;
    and its DPoP-Nonce, as the "nonce"."""
    challenge = parse_challenge(", ".join(headers.get_all("WWW-Authenticate", [])))
    return add_given(challenge, nonce=headers.get("DPoP-Nonce"))


def is_challenge(response: HTTPResponse) -> bool:
    """Whether a refusal is about what was shown: a 403 may have other reasons."""
    error = challenge_in(response.headers).get("error")
    wants_more = response.status == 403 and error == "insufficient_scope"
    return response.status == 401 or wants_more


def error_words(said: Mapping[str, object], default: str) -> str:
    """What a server says of an error by OAuth, on one line: RFC 6749, section 5.2."""
    words = [str(said.get(name) or "") for name in ("error", "error_description")]
    return show(": ".join(filter(None, words)) or default, 500)


def read_refusal(
    place: str,
    response: HTTPResponse,
    given: Headers,
    shown: dict[str, str],
    secrets: list[str],
) -> AuthorizationError:
    """What a 401 or 403 says, and what may help: it came for a request with headers
    that the user has given, and with those that authorize it."""
    status = response.status
    challenge = challenge_in(response.headers)
    said = _words_of(response.read(MAX_ERROR))
    told = hide(error_words(challenge, said), secrets)
    if status == 403 and "scope" in challenge:
        told += f" (it wants the scope {show(challenge['scope'])})"
    if "authorization" in map(str.lower, given):
        told += "; it does not take the Authorization that headers=, or the URL, has"
    elif not shown:
        told += "; see Client(auth=), or headers="
    return AuthorizationError(
        f"{place}: HTTP {status}: {told}", place, status, challenge
    )


###############################################################################
# 28. Token store #############################################################
###############################################################################
# What is kept of a login, and where: in a file for all processes, in a dict, or where two
# functions of the user's put it. How it was got is not known here.

# What each request shows, and what a refresh needs; maybe when it is time for that, by
# the clock of this machine, which may be wrong: nothing but an early renewal hangs on it.
# A token has to fit into a header.
_TEXT = {"type": "string"}
RECORD = {
    "type": "object",
    "properties": {
        "issuer": _TEXT,
        "resource": {"type": ["string", "null"]},
        "token_endpoint": _TEXT,
        "client": {
            "type": "object",
            "properties": {
                "client_id": _TEXT,
                "client_secret": _TEXT,
                "token_endpoint_auth_method": _TEXT,
            },
            "required": ["client_id", "token_endpoint_auth_method"],
        },
        "scopes": {"type": "array", "items": _TEXT},
        "access_token": {
            "type": "string",
            "pattern": "^[!-~]+$",
            "maxLength": MAX_TOKEN,
        },
        "token_type": {"enum": ["bearer", "dpop"]},
        "refresh_token": {"type": "string", "pattern": "^[ -~]+$"},
        "renew_at": {"type": "number"},
    },
    "required": [
        "issuer",
        "resource",
        "token_endpoint",
        "client",
        "scopes",
        "access_token",
        "token_type",
    ],
}


def _digest(text: str) -> str:
    """A SHA-256 as in JSON Web Tokens, and in PKCE."""
    from base64 import urlsafe_b64encode
    from hashlib import sha256

    digest = urlsafe_b64encode(sha256(text.encode("ascii")).digest())
    return digest.rstrip(b"=").decode("ascii")


@contextmanager
def naming(what: str) -> Iterator[None]:
    """Whatever fails inside is an AuthorizationError that says what it was."""
    try:
        yield
    except AuthorizationError:
        raise
    except Exception as error:
        raise AuthorizationError(f"{what}: {error_text(error)}") from error


class _Store:
    """Keeps a RECORD for each server: {its URL: record}. In a dict, or where two
    functions put it: load(url) returns a record or None, save(url, record) keeps it, or
    for None forgets it. Whatever fails there is an AuthorizationError."""

    def __init__(
        self,
        load: Callable[[str], Json | None],
        save: Callable[[str, Json | None], Any],
    ) -> None:
        self._load = load
        self._save = save

    def load(self, url: str) -> Json:
        """What is kept for a server; {} if nothing is."""
        with naming("store"):
            record = self._load(url)
            if record is not None and validate(record, RECORD):
                raise ValueError(
                    f"what it has for {url} is damaged; OAuth.logout(url) forgets it"
                )
            return record or {}

    def save(self, url: str, record: Json | None) -> None:
        """Keep a record; None forgets it."""
        with naming("store"):
            self._save(url, record)

    def turn(self, url: str, left: Callable[[], float]) -> ContextManager[None]:
        """Inside, no other process gets tokens for this server with the same store."""
        return nullcontext()


class _FileStore(_Store):
    """The same in a file, for all processes that have the same one."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.path.realpath(os.path.expanduser(os.fspath(path)))
        super().__init__(lambda url: self._read().get(url), self._write)

    @contextmanager
    def turn(self, url: str, left: Callable[[], float]) -> Iterator[None]:
        """By a lock, for as long as there is time left."""
        with naming("store"), _file_lock(
            f"{self._path}.{_digest(url)[:16]}.lock", left
        ):
            yield

    def _read(self) -> Json:
        data = b"{}"
        with suppress(FileNotFoundError), open(self._path, "rb") as file:
            data = file.read(MAX_STORE)
        records: Any = None
        with suppress(ParseError):
            records = parse_message(data)
        if not isinstance(records, dict):
            raise ValueError(f"{self._path} is damaged: mend it, or delete it")
        return records

    def _write(self, url: str, record: Json | None) -> None:
        from tempfile import mkstemp

        until = time.monotonic() + AUTH_SECONDS
        with _file_lock(f"{self._path}.lock", lambda: until - time.monotonic()):
            records = self._read()
            _put(records, url, record)
            # Whoever reads, and whatever ends us now: there is the old file or the new,
            # which only this user can read.
            descriptor, temporary = mkstemp(".tmp", dir=os.path.dirname(self._path))
            try:
                with open(descriptor, "wb") as file:
                    file.write(encode_message(records))
                    file.flush()
                    os.fsync(descriptor)
                # On Windows, not while another process reads.
                replace = partial(os.replace, temporary, self._path)
                if not wait_until(partial(_try, replace), TIDY_SECONDS):
                    raise PermissionError(f"{self._path} cannot be replaced")
            finally:
                with suppress(OSError):
                    os.unlink(temporary)


def open_store(store: Any) -> _Store:
    """What OAuth(store=) stands for. Raises TypeError."""
    if isinstance(store, dict):
        return _Store(store.get, partial(_put, store))
    if isinstance(store, tuple):
        return _Store(*store)
    return _FileStore(store)


def _put(records: Json, url: str, record: Json | None) -> None:
    if record is None:
        records.pop(url, None)
    else:
        records[url] = record


def _try(action: Job) -> bool:
    """Whether no other process is in the way."""
    try:
        action()
    except (BlockingIOError, PermissionError):
        return False
    return True


@contextmanager
def _file_lock(path: str, left: Callable[[], float]) -> Iterator[None]:
    """Hold a lock between processes, or raise when no time is left.

    None is ever stale: the system lets go of what a process holds that has ended. The
    file stays.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    if sys.platform == "win32":
        import msvcrt

        lock = partial(msvcrt.locking, descriptor, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        lock = partial(fcntl.flock, descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
        while not _try(lock):
            if left() <= 0:
                raise AuthorizationError(f"store: {path}: another process has the lock")
            time.sleep(TICK_SECONDS)
        yield
    finally:
        os.close(descriptor)


###############################################################################
# 29. Authorization ###########################################################
###############################################################################
# How a client is let in (basic/authorization/): what each HTTP request shows; what is
# done when that is refused; how tokens are got. It knows HTTP, but no message of the
# protocol.


# The seam
class Authorizer:
    """What has a client's requests let in: the seam between HttpTransport and OAuth.

    The transport, on the thread of each HTTP request, asks for
        headers(method, url)    before each request: what it shows
        mend(refusal, sent, is_first, is_wanted)
                                after a 401, and a 403 for want of scope: whether to
                                send the request again, as something was done about it
    Both may block: to ask the authorization server, and mend() to ask the user. While a
    thread is in mend(), calls do not time out. This one shows nothing.
    """

    def headers(self, method: str, url: str) -> dict[str, str]:
        """The headers that a request to be let in has besides."""
        return {}

    def mend(
        self,
        refusal: AuthorizationError,
        sent: dict[str, str],
        is_first: bool,
        is_wanted: Callable[[], bool],
    ) -> bool:
        """Do what helps. False if nothing does; or raises AuthorizationError.

        refusal: what is raised then; its challenge says why
        sent: the headers that headers() had given
        is_first: whether this request had not been refused before
        is_wanted: is_wanted() is false when the transport is closed
        """
        return False


class _Asking(Authorizer):
    """Asks a function of the user's: auth(challenge) returns headers, or None."""

    def __init__(self, ask: Callable[[dict[str, str]], dict[str, str] | None]) -> None:
        self._ask = ask
        self._headers: dict[str, str] = {}

    def headers(self, method: str, url: str) -> dict[str, str]:
        return self._headers

    def mend(
        self,
        refusal: AuthorizationError,
        sent: dict[str, str],
        is_first: bool,
        is_wanted: Callable[[], bool],
    ) -> bool:
        # Else another thread has asked meanwhile.
        if sent is self._headers:
            headers = self._ask(refusal.challenge)
            if headers is None:
                return False
            self._headers = dict(headers)
        return True


# What is on the other side
def _well_known(url: str, name: str) -> str:
    """Where metadata of a URL are: RFC 8414, section 3.1; RFC 9728, section 3.1."""
    return f"{_origin_of(url)}/.well-known/{name}{_split(url).path.rstrip('/')}"


def _resource_id(url: str) -> str:
    """The canonical URI of a server: basic/authorization/index.md#canonical-server-uri.

    Its query may hold secrets, and is left out.
    """
    path = _split(url).path
    return _origin_of(url).lower() + ("" if path == "/" else path)


def _is_within(url: str, resource: str) -> bool:
    """Whether a resource is a server's URL, or what that is a part of."""
    inner = _split(url)
    outer = _split(resource)
    is_below = f"{inner.path}/".startswith(outer.path.rstrip("/") + "/")
    return is_below and _origin(inner) == _origin(outer)


def _texts_in(document: Json, member: str) -> list[str]:
    """The strings in an array that may be missing, or be something else."""
    value = document.get(member)
    texts = value if isinstance(value, list) else []
    return [each for each in texts[:MAX_TEXTS] if isinstance(each, str)]


def _parse_answer(query: str) -> dict[str, str]:
    """The parameters with which the browser came back."""
    from urllib.parse import parse_qsl

    return dict(parse_qsl(query))


# The browser's way back
class _Doorstep(HttpEndpoint):
    """Where the browser comes back to on this machine: RFC 8252, section 7.3.

    It takes one answer. Any page that is open in a browser may call here: who does not
    know the `state` is shown to the door.
    """

    def __init__(self, state: str, left: Callable[[], float]) -> None:
        super().__init__(Endpoint(), _Log(), 1)
        self._state = state
        # The seconds that are left to wait.
        self._left = left
        self._came: str | None = None

    def listen(self, uri: str) -> HttpServer:
        """Listen at a URL; without a port, at a free one: RFC 8252 has it that
        authorization servers "MUST allow any port". Raises OSError."""
        url = _split(uri)
        return listen_http(
            self,
            str(url.hostname),
            url.port or 0,
            None,
            uri.partition(url.netloc)[2],
            MAX_BROWSER,
            None,
        )

    def visit(self, url: str) -> str | None:
        """Send the user to a URL, and block for the answer. None if no time is left."""
        import webbrowser

        if not webbrowser.open(url):
            raise AuthorizationError(
                "there is no browser here; give OAuth a redirect=fn(url)"
            )
        while self._came is None and self._left() > 0:
            time.sleep(TICK_SECONDS)
        return self._came

    def answer(self, exchange: Exchange, error: HttpError | None = None) -> None:
        """Show a page, and keep what came if it is the answer."""
        page = _STRANGE
        if _parse_answer(exchange.query).get("state") == self._state:
            page = _ARRIVED
            self._came = f"?{exchange.query}"
        status, title, text = page
        with suppress(OSError):
            exchange.send(status, _DOOR_HEADERS, _DOOR_PAGE % (title, title, text))


_DOOR_HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": "default-src 'none'",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_DOOR_PAGE = (
    b"<!doctype html><html lang=en><meta charset=utf-8><title>%b</title>"
    b"<h1>%b</h1><p>%b</p></html>"
)
_ARRIVED = (200, b"Thank you", b"You can close this window, and go back.")
_STRANGE = (404, b"Nothing here", b"This is not the answer waited for.")


# One login
LoginOptions = namedtuple(
    "LoginOptions",
    "client_name scopes client_id client_secret client_metadata_url issuer redirect "
    "redirect_uri grant assertion dpop send_resource may_log_in timeout",
)
# OAuth(grant=), and what it is called on the wire.
GRANTS = {
    "authorization_code": "authorization_code",
    "client_credentials": "client_credentials",
    "jwt-bearer": "urn:ietf:params:oauth:grant-type:jwt-bearer",
}
_FORM = {"Content-Type": "application/x-www-form-urlencoded"}
JWT_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
# How a client shows who it is, best first: a secret on this machine is none.
AUTH_METHODS = ("none", "client_secret_basic", "client_secret_post")
# What of a token request is never shown.
SECRETS = (
    "assertion",
    "client_assertion",
    "client_secret",
    "code",
    "code_verifier",
    "refresh_token",
)
# Where the browser comes back to; the port is any that is free.
LOOPBACK_URI = "http://127.0.0.1/callback"
# The same, where nobody listens: the user copies the address.
UNHEARD_URI = "http://127.0.0.1:33418/callback"


class _Login:
    """One try to get tokens: by `refresh`, or by `log_in`:

        the server's metadata --> one of its authorization servers' metadata
            --> a client id --> for a user: the browser, a code --> tokens

    Both return the RECORD to keep. Raises AuthorizationError.
    """

    def __init__(
        self,
        access: _Access,
        challenge: dict[str, str],
        is_wanted: Callable[[], bool],
    ) -> None:
        self._access = access
        self._options = access.options
        self._url = access.url
        # A server elsewhere has no reason to send us to this machine.
        self._near = is_near(access.url)
        # Of the refusal that has led here.
        self._challenge = challenge
        # What is kept from before; {} if nothing is.
        self.record: Json = {}
        self._is_wanted = is_wanted
        self._until = time.monotonic() + access.options.timeout

    def left(self) -> float:
        """The seconds that are left; 0 when nobody waits any more."""
        return max(0.0, self._until - time.monotonic()) if self._is_wanted() else 0.0

    def refresh(self) -> Json:
        """RFC 6749, section 6."""
        token = self.record.get("refresh_token")
        if token is None:
            raise AuthorizationError("there is no refresh token", http_status=400)
        return self._ask_tokens(
            self.record, {"grant_type": "refresh_token", "refresh_token": token}
        )

    def log_in(self) -> Json:
        """Find out where, be known there, and get tokens in the way that is wanted."""
        options = self._options
        resource = self._find_resource()
        server = self._find_server(resource)
        issuer = server["issuer"]
        if self.record.get("issuer", issuer) != issuer:
            # "MUST NOT reuse client credentials from a different authorization server"
            if options.client_id is not None:
                raise AuthorizationError(
                    f"client_id belongs to {self.record['issuer']}, but {self._url} "
                    f"now wants tokens of {issuer}"
                )
            self.record = {}
        place = resource.get("resource", _resource_id(self._url))
        plan = {
            "issuer": issuer,
            "resource": place if options.send_resource else None,
            "token_endpoint": check_url(
                f"{issuer}: token_endpoint", server.get("token_endpoint"), self._near
            ),
            "scopes": self._choose_scopes(resource, server),
        }
        form = {"grant_type": GRANTS[options.grant]}
        if options.grant == "authorization_code":
            form.update(self._ask_user(server, plan))
        else:
            # For the client itself, without a user.
            plan["client"] = self._identify(server, "")
            add_given(form, scope=" ".join(plan["scopes"]) or None)
        if options.grant == "jwt-bearer":
            form["assertion"] = self._ask_assertion(issuer)
        return self._ask_tokens(plan, form)

    # Discovery: basic/authorization/authorization-server-discovery.md
    def fetch(
        self,
        name: str,
        url: object,
        headers: Mapping[str, str | bytes],
        body: bytes | None = None,
    ) -> Reply:
        """GET a document, or POST a body. A GET follows redirects, but not to another
        host."""
        target = _split(check_url(name, url, self._near))
        seconds = min(AUTH_SECONDS, self.left())
        # Some authorization servers answer with JSON only if they are asked to.
        asked: Headers = {"Accept": f"{JSON_TYPE}, {EVENT_TYPE}", **headers}
        for _ in range(MAX_REDIRECTS):
            reply = fetch(
                target,
                asked,
                body,
                self._access.ssl_context,
                seconds,
                self._is_wanted,
            )
            moved = follow_reference(target, reply.headers.get("Location", ""))
            if body or reply.status not in (301, 302, 307, 308) or moved is None:
                break
            target = moved
        return reply

    def _read_first(self, name: str, places: Iterable[str | None]) -> tuple[str, Json]:
        """The first document that there is at these places, and its place; or {}."""
        for place in filter(None, dict.fromkeys(places)):
            reply = self.fetch(name, place, {})
            if reply.status >= 500:
                # There is one, perhaps: no time to guess.
                raise AuthorizationError(f"{place}: HTTP {reply.status}")
            if reply.status == 200 and reply.document:
                return place, reply.document
        return "", {}

    def _find_resource(self) -> Json:
        """The metadata of the server; {} if it has none, as before 2025-06-18."""
        name = "oauth-protected-resource"
        places = [
            self._challenge.get("resource_metadata"),
            _well_known(self._url, name),
            _well_known(_origin_of(self._url), name),
        ]
        place, document = self._read_first("resource_metadata", places)
        if document:
            # RFC 9728, section 3.3: "If these values are not identical, the data
            # contained in the response MUST NOT be used". What the server is a part of
            # will do, too.
            resource = document.get("resource")
            check_url(f"{place}: resource", resource, self._near)
            if not _is_within(self._url, str(resource)):
                raise AuthorizationError(
                    f"{place}: resource: expected {_resource_id(self._url)}, "
                    f"or what that is within, got {show(resource)}"
                )
        return document

    def _find_server(self, resource: Json) -> Json:
        """The metadata of an authorization server: of the first that has good ones."""
        named = resource or {"authorization_servers": [_origin_of(self._url)]}
        issuers = _texts_in(named, "authorization_servers")[:MAX_ISSUERS]
        wanted = self._options.issuer
        chosen = [each for each in issuers if wanted in (None, each)]
        # Where we have been before, we need not register again.
        chosen.sort(key=lambda each: each != self.record.get("issuer"))
        problems = []
        for issuer in chosen:
            try:
                return self._read_server(issuer, not resource)
            except AuthorizationError as error:
                problems.append(str(error))
        raise AuthorizationError(
            "; ".join(problems)
            or f"{self._url}: authorization_servers: expected {wanted or 'one'}, "
            f"got {show(issuers)}"
        )

    def _read_server(self, issuer: str, is_assumed: bool) -> Json:
        """The metadata of an issuer. One is assumed where a server names none, as in
        2025-03-26, basic/authorization.md: the server itself, at its root."""
        check_url("issuer", issuer, self._near)
        places = [
            _well_known(issuer, "oauth-authorization-server"),
            _well_known(issuer, "openid-configuration"),
            f"{issuer.rstrip('/')}/.well-known/openid-configuration",
        ]
        place, server = self._read_first("issuer", places)
        if not server and is_assumed:
            return {
                "issuer": issuer,
                "authorization_endpoint": issuer + "/authorize",
                "token_endpoint": issuer + "/token",
                "registration_endpoint": issuer + "/register",
                # "PKCE is REQUIRED for all clients"
                "code_challenge_methods_supported": ["S256"],
            }
        if not server:
            raise AuthorizationError(f"{issuer}: no metadata")
        # "the `issuer` value in the document MUST be identical to the issuer
        # identifier used to construct the well-known URL."
        called = server.get("issuer")
        if called != issuer and not (is_assumed and called == issuer + "/"):
            raise AuthorizationError(
                f"{place}: issuer: expected {issuer}, got {show(called)}"
            )
        return server

    def _choose_scopes(self, resource: Json, server: Json) -> list[str]:
        """basic/authorization/index.md#scope-selection-strategy, and what was asked for
        before: "the union of the client's previously requested scope set and the scopes
        from the current challenge"."""
        scopes = self._options.scopes
        challenged = self._challenge.get("scope", "").split()
        if scopes is None:
            scopes = challenged or _texts_in(resource, "scopes_supported")
            has_offline = "offline_access" in _texts_in(server, "scopes_supported")
            if has_offline and scopes and self._options.grant == "authorization_code":
                # It stands for a refresh token.
                scopes = [*scopes, "offline_access"]
        elif self._challenge.get("error") == "insufficient_scope":
            scopes = scopes + challenged
        return list(dict.fromkeys([*self.record.get("scopes", ()), *scopes]))

    # Who we are there: basic/authorization/client-registration.md
    def _identify(self, server: Json, redirect_uri: str) -> Json:
        """A client: {"client_id", "client_secret", "token_endpoint_auth_method"}."""
        options = self._options
        if options.client_id is not None:
            return self._client(server, options.client_id, options.client_secret)
        reads_documents = server.get("client_id_metadata_document_supported") is True
        if options.client_metadata_url and reads_documents:
            return self._client(server, options.client_metadata_url, None)
        known = self.record.get("client", {})
        if known.get("redirect_uri") == redirect_uri:
            return dict(known)
        return self._register(server, redirect_uri)

    def _client(self, server: Json, client_id: str, secret: str | None) -> Json:
        """A client that shows who it is as the server has it: RFC 8414, section 2."""
        offered = _texts_in(server, "token_endpoint_auth_methods_supported")
        method = "none"
        if secret:
            is_post = offered and "client_secret_basic" not in offered
            method = "client_secret_post" if is_post else "client_secret_basic"
        elif self._options.assertion and self._options.grant != "jwt-bearer":
            method = "private_key_jwt"
        return {
            "client_id": client_id,
            "client_secret": str(secret or ""),
            "token_endpoint_auth_method": method,
        }

    def _register(self, server: Json, redirect_uri: str) -> Json:
        """RFC 7591."""
        # RFC 8414, section 2: "If omitted, the default is" that.
        offered = _texts_in(server, "token_endpoint_auth_methods_supported") or [
            "client_secret_basic"
        ]
        wanted = [each for each in AUTH_METHODS if each in offered]
        about = {
            "client_name": self._options.client_name,
            "redirect_uris": [redirect_uri],
            # "MUST specify an appropriate `application_type`": one with a loopback.
            "application_type": "native" if is_near(redirect_uri) else "web",
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": wanted[0] if wanted else "none",
        }
        # Where there is none, somebody else has to register us.
        name = f"{server['issuer']}: registration_endpoint, for want of a client_id="
        url = server.get("registration_endpoint")
        reply = self.fetch(name, url, _JSON, encode_message(about))
        told = reply.document
        if reply.status not in (200, 201) or not isinstance(told.get("client_id"), str):
            raise AuthorizationError(
                f"registration: {url}: HTTP {reply.status}: "
                f"{error_words(told, 'no client_id')}",
                str(url),
                reply.status,
            )
        client = self._client(server, told["client_id"], told.get("client_secret"))
        if told.get("token_endpoint_auth_method") in AUTH_METHODS:
            client["token_endpoint_auth_method"] = told["token_endpoint_auth_method"]
        # One whose secret ends is for this login alone.
        if not told.get("client_secret_expires_at"):
            client["redirect_uri"] = redirect_uri
        return client

    # The user's consent: RFC 6749, section 4.1; RFC 7636
    def _ask_user(self, server: Json, plan: Json) -> Json:
        """Have the user agree: what the token endpoint is to be told then."""
        import secrets
        from urllib.parse import urlencode

        # "If `code_challenge_methods_supported` is absent, [...] MUST refuse".
        if "S256" not in _texts_in(server, "code_challenge_methods_supported"):
            raise AuthorizationError(
                f"{server['issuer']} does not say that it can do PKCE with S256"
            )
        verifier = secrets.token_urlsafe(48)
        state = secrets.token_urlsafe(32)
        with naming("redirect"), self._open_door(state) as (redirect_uri, visit):
            plan["client"] = self._identify(server, redirect_uri)
            query = add_given(
                {
                    "response_type": "code",
                    "client_id": plan["client"]["client_id"],
                    "redirect_uri": redirect_uri,
                    "state": state,
                    "code_challenge": _digest(verifier),
                    "code_challenge_method": "S256",
                },
                scope=" ".join(plan["scopes"]) or None,
                resource=plan["resource"],
            )
            page = check_url(
                f"{server['issuer']}: authorization_endpoint",
                server.get("authorization_endpoint"),
                self._near,
            )
            came = visit(page + ("&" if "?" in page else "?") + urlencode(query))
        if not isinstance(came, str):
            raise AuthorizationError(
                "the login was given up: no answer came from the browser within "
                f"{self._options.timeout:g} s"
            )
        return {
            "code": self._check_answer(came, state, server),
            "redirect_uri": redirect_uri,
            "code_verifier": verifier,
        }

    @contextmanager
    def _open_door(self, state: str) -> Iterator[tuple[str, Callable[[str], Any]]]:
        """Where the browser comes back to, and what sends it on its way."""
        uri = self._options.redirect_uri
        if self._options.redirect is not None:
            yield uri, self._options.redirect
            return
        doorstep = _Doorstep(state, self.left)
        # The port of the last time; with another one we register again.
        known = member_at(self.record, ("client", "redirect_uri"))
        try:
            http = doorstep.listen(uri or known or LOOPBACK_URI)
        except OSError:
            http = doorstep.listen(uri or LOOPBACK_URI)
        with http:
            yield http.url, doorstep.visit

    def _check_answer(self, url: str, state: str, server: Json) -> str:
        """The code: basic/authorization/index.md#authorization-response-validation."""
        answer = _parse_answer(url.strip().partition("?")[2].partition("#")[0])
        if answer.get("state") != state:
            raise AuthorizationError("state: this is the answer to another login")
        issuer = answer.get("iss")
        must_tell = server.get("authorization_response_iss_parameter_supported") is True
        if issuer != server["issuer"] and (must_tell or issuer is not None):
            # "on mismatch the client MUST NOT act on or display `error`"
            raise AuthorizationError(
                f"iss: expected {server['issuer']}, got {show(issuer)}"
            )
        if "error" in answer or not answer.get("code"):
            raise AuthorizationError(
                f"{server['issuer']}: the login failed: "
                f"{error_words(answer, 'no code')}"
            )
        return answer["code"]

    # Tokens
    def _ask_tokens(self, plan: Json, form: Json) -> Json:
        """POST to the token endpoint, as the client that the plan has."""
        from urllib.parse import urlencode

        endpoint = plan["token_endpoint"]
        # "MUST be included in both authorization requests and token requests."
        add_given(form, resource=plan["resource"])
        headers = {**_FORM, **self._authenticate(plan, form)}
        body = urlencode(form).encode("ascii")
        # RFC 9449, section 8: the same again, with the nonce.
        for _ in range(2):
            proof = self._access.prove("POST", endpoint)
            reply = self.fetch("token_endpoint", endpoint, {**headers, **proof}, body)
            self._access.nonces[endpoint] = reply.headers.get("DPoP-Nonce")
            if reply.document.get("error") != "use_dpop_nonce":
                break
        if reply.status != 200 or "access_token" not in reply.document:
            sent = {**plan["client"], **form}.items()
            secrets = [str(value) for name, value in sent if name in SECRETS]
            said = hide(error_words(reply.document, "no token"), secrets)
            raise AuthorizationError(
                f"token: {endpoint}: HTTP {reply.status}: {said}",
                endpoint,
                reply.status,
            )
        return self._record_of(plan, reply.document)

    def _authenticate(self, plan: Json, form: Json) -> Headers:
        """Show who we are: in the form, or by headers: RFC 6749, section 2.3."""
        from urllib.parse import quote_plus

        client = plan["client"]
        secret = client.get("client_secret", "")
        method = client["token_endpoint_auth_method"]
        # Also beside a header: some look for it there.
        form["client_id"] = client["client_id"]
        if method == "client_secret_basic":
            login = f"{quote_plus(client['client_id'])}:{quote_plus(secret)}"
            return {"Authorization": "Basic " + _base64(login.encode("ascii"))}
        if method == "client_secret_post":
            form["client_secret"] = secret
        if method == "private_key_jwt":
            form["client_assertion_type"] = JWT_ASSERTION
            form["client_assertion"] = self._ask_assertion(plan["issuer"])
        return {}

    def _ask_assertion(self, audience: str) -> str:
        with naming("assertion"):
            return str(self._options.assertion(audience))

    def _record_of(self, plan: Json, answer: Json) -> Json:
        """What is kept of the plan and a token response: RFC 6749, section 5.1."""
        place = f"token: {plan['token_endpoint']}"
        kind = str(answer.get("token_type", "Bearer"))
        kinds = ("bearer", "dpop") if self._options.dpop else ("bearer",)
        if kind.lower() not in kinds:
            raise AuthorizationError(
                f"{place}: token_type: expected {' or '.join(kinds)}, got {show(kind)}"
            )
        record = {name: value for name, value in plan.items() if name != "renew_at"}
        # A refresh answer without a new refresh token leaves the old.
        add_given(
            record,
            token_type=kind.lower(),
            access_token=answer["access_token"],
            refresh_token=answer.get("refresh_token") or None,
        )
        # It may be missing, or be anything.
        with suppress(LookupError, TypeError, ValueError, OverflowError):
            lasts = float(answer["expires_in"])
            margin = min(RENEW_SECONDS, lasts / 10)
            record["renew_at"] = int(time.time() + lasts - margin)
        broken = [text.partition(":")[0] for text in validate(record, RECORD)]
        if broken:
            # What came may be a secret.
            raise AuthorizationError(f"{place}: {broken[0]}: expected a short text")
        return record


# All logins
class _Access(Authorizer):
    """What one server is shown: a token, which one thread at a time renews.

        none --mend()--> logging in --> valid --it ends soon, or a 401--> refreshing
                              ^            ^                                 |   |
                              |            '---------------------------------'   |
                              '--- a 403: more scopes; or the refresh failed ----'

    Who renews has the `_turn`, through all of a login. Who waits for it looks whether
    there is a new token then, or shares the failure. So all threads log in once.
    """

    def __init__(
        self, options: LoginOptions, store: _Store, url: str, log: _Log
    ) -> None:
        self.url = url
        self.options = options
        # For https; set before it is used.
        self.ssl_context: SSLContext | None = None
        # DPoP's, by the URL that gave them.
        self.nonces: dict[str, str | None] = {}
        self._store = store
        self._log = log
        # What is kept of it in the store, once that was looked at; {} if nothing is.
        self._record: Json = {}
        self._was_loaded = False
        # Held while tokens are got; these are for whoever has it.
        self._turn = threading.Lock()
        # Why logging in has failed, the last time.
        self._failure: Exception | None = None
        # The latest token that was got by logging in.
        self._newest = ""

    # The seam
    def headers(self, method: str, url: str) -> dict[str, str]:
        if not self._was_loaded:
            self._record = self._store.load(self.url)
            self._was_loaded = True
        record = self._record
        is_due = record.get("renew_at", float("inf")) <= time.time()
        # Not while somebody does it; nor to say good-bye: nobody waits for that long.
        is_idle = not self._turn.locked() and method != "DELETE"
        if is_due and is_idle and "refresh_token" in record:
            try:
                self._renew(record["access_token"], {}, lambda: True, _Login.refresh)
            except AuthorizationError as error:
                # The clock may be wrong. A 401 would tell.
                self._log.warning(f"cannot renew a token: {error}")
                record["renew_at"] = time.time() + RENEW_SECONDS
            record = self._record
        token = record.get("access_token")
        if token is None:
            return {}
        if record["token_type"] == "bearer":
            return {"Authorization": f"Bearer {token}"}
        return {"Authorization": f"DPoP {token}", **self.prove(method, url, token)}

    def mend(
        self,
        refusal: AuthorizationError,
        sent: dict[str, str],
        is_first: bool,
        is_wanted: Callable[[], bool],
    ) -> bool:
        challenge = refusal.challenge
        self.nonces[refusal.url] = challenge.get("nonce")
        if challenge.get("error") == "use_dpop_nonce":
            return True
        used = sent.get("Authorization", "").partition(" ")[2]
        if used != self._record.get("access_token", ""):
            # Another thread has got a new one meanwhile.
            return True
        way = self._log_in
        if refusal.http_status == 403:
            # Asked for before, and not given: it would not be given now.
            wanted = challenge.get("scope", "").split()
            if {*wanted} <= {*self._record.get("scopes", ())}:
                return False
        elif is_first:
            way = self._refresh_or_log_in
        elif used == self._newest:
            # The server takes no token of its own authorization server.
            return False
        self._renew(used, challenge, is_wanted, way)
        return True

    def prove(self, method: str, url: str, token: str = "") -> dict[str, str]:
        """The header that shows, if dpop is given, that we have its key: RFC 9449."""
        if self.options.dpop is None:
            return {}
        import secrets

        claims = add_given(
            {
                "jti": secrets.token_urlsafe(16),
                "htm": method,
                "htu": url.partition("?")[0],
                "iat": int(time.time()),
            },
            nonce=self.nonces.get(url),
            ath=_digest(token) if token else None,
        )
        with naming("dpop"):
            return {"DPoP": self.options.dpop(claims)}

    # Renewing
    def begin(self) -> None:
        """Log in, without having been refused."""
        # What the server answers to somebody that it does not know.
        answer = _Login(self, {}, lambda: True).fetch("auth", self.url, _JSON, b"{}")
        used = self._store.load(self.url).get("access_token", "")
        self._renew(used, challenge_in(answer.headers), lambda: True, self._log_in)

    def forget(self) -> None:
        """Log out."""
        self._store.save(self.url, None)
        self._record = {}

    def _renew(
        self,
        used: str,
        challenge: dict[str, str],
        is_wanted: Callable[[], bool],
        way: Callable[[_Login], Json],
    ) -> None:
        """Have another token than the `used` one, which is "" if there was none.

        Blocks, for as long as a user takes. Raises AuthorizationError.
        """
        failure = self._failure
        while not self._turn.acquire(timeout=TICK_SECONDS):
            if not is_wanted():
                raise AuthorizationError("given up")
        try:
            if self._failure is not failure:
                raise AuthorizationError(str(self._failure))
            login = _Login(self, challenge, is_wanted)
            with naming("login"), self._store.turn(self.url, login.left):
                self._record = self._store.load(self.url) or self._record
                if used == self._record.get("access_token", ""):
                    login.record = self._record
                    self._keep(way(login))
        except AuthorizationError as error:
            # It is shared, but for what is not the fault of who waits.
            if is_wanted() and way != _Login.refresh:
                self._failure = error
            raise
        finally:
            self._turn.release()

    # The ways to do it
    def _refresh_or_log_in(self, login: _Login) -> Json:
        try:
            return login.refresh()
        except AuthorizationError as error:
            # Unless the token was judged, it may do the next time.
            if not 400 <= (error.http_status or 0) < 500:
                raise
            self._log.debug(f"logging in again: {error}")
        return self._log_in(login)

    def _log_in(self, login: _Login) -> Json:
        if not self.options.may_log_in:
            raise AuthorizationError(
                f"{self.url}: there is no token that will do", self.url, 401
            )
        if self._record:
            # If this fails, perhaps our registration is not known there any more.
            client = {**self._record["client"], "redirect_uri": ""}
            self._keep({**self._record, "client": client})
        record = login.log_in()
        self._newest = record["access_token"]
        return record

    def _keep(self, record: Json) -> None:
        self._record = record
        try:
            self._store.save(self.url, record)
        except AuthorizationError as error:
            self._log.warning(f"tokens will be lost with this process: {error}")
            # From now on, what it has is older than this.
            self._store = open_store({self.url: record})


class OAuth:
    """Logs a client in at a server that wants it, by OAuth 2.1: basic/authorization/.

        with Client("https://example.com/mcp", auth=OAuth(store="~/.tokens")) as client:

    Nothing happens until the server answers with 401. Then the user is sent to the
    authorization server that the server names, in the browser, and calls wait until the
    answer comes back to a port of this machine; their time does not run meanwhile. One
    login serves all threads, and with a store all processes. Tokens go to that server
    alone, in headers, and are renewed before they end. An OAuth may be used by several
    clients, of several servers, at once.
    """

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
        assertion: Callable[[str], str] | None = None,
        dpop: Callable[[Json], str] | None = None,
        send_resource: bool = True,
        may_log_in: bool = True,
        timeout: float = LOGIN_SECONDS,
        ssl_context: SSLContext | None = None,
    ) -> None:
        """Prepare to log in. Raises ValueError, TypeError.

        client_name: what the user is told that asks
        scopes: to ask for, in place of what the server says that it wants
        client_id: as the authorization server knows us. Without it we are known by
            client_metadata_url, or register
        client_secret: that belongs to client_id
        client_metadata_url: an https URL with a document about this client, where the
            authorization server knows how to read one
        issuer: the one authorization server to use, which knows client_id
        store: where tokens are kept: a path, of a file that only this user can read,
            with files to lock it beside it; a dict; or two functions, load(url) -> dict
            or None, save(url, dict or None). Without it, they are lost with this object
        redirect: redirect(url) has the user visit a URL, and returns the URL that the
            browser arrived at, or None: for machines without a browser
        redirect_uri: where the browser comes back to, if that was registered; without a
            port, any free one is taken
        grant: "authorization_code", with a user; without one "client_credentials", or
            "jwt-bearer": for whom an assertion vouches
        assertion: assertion(audience) returns a signed JWT for an authorization server:
            the grant "jwt-bearer" itself; with the others, in place of a secret
        dpop: dpop(claims) returns them as a signed JWT, with {"typ": "dpop+jwt", "alg":,
            "jwk":} as its header: then tokens are bound to its key (RFC 9449)
        send_resource: whether requests name the server that the token is for; some
            authorization servers refuse that
        may_log_in: whether to log in where no token in the store will do, nor can be
            renewed; without it, nobody is asked, nor registered with, but that raises
        timeout: seconds for a login in all, the user's time included
        ssl_context: an ssl.SSLContext, else the client's
        """
        if grant not in GRANTS:
            raise ValueError(
                f"grant: expected one of {list(GRANTS)}, got {show(grant)}"
            )
        if client_id is None and (client_secret or grant != "authorization_code"):
            raise ValueError(f"client_id: the grant {grant} needs it, a secret as well")
        # What is shown in place of a user's consent.
        shown = client_secret if grant == "client_credentials" else None
        if grant != "authorization_code" and not (shown or assertion):
            raise ValueError(f"assertion: {grant} needs it, or maybe a client_secret")
        if client_metadata_url is not None:
            _check_document(client_metadata_url)
        if redirect is not None and redirect_uri is None:
            redirect_uri = UNHEARD_URI
        if redirect_uri is not None:
            _check_option("redirect_uri", redirect_uri, True)
            if redirect is None and not is_near(redirect_uri):
                raise ValueError("redirect_uri: elsewhere, it needs a redirect=fn(url)")
        if isinstance(scopes, str):
            scopes = scopes.split()
        self._options = LoginOptions(
            client_name,
            None if scopes is None else list(scopes),
            client_id,
            client_secret,
            client_metadata_url,
            issuer,
            redirect,
            redirect_uri,
            grant,
            assertion,
            dpop,
            send_resource,
            may_log_in,
            timeout,
        )
        self._store = open_store({} if store is None else store)
        self._ssl_context = ssl_context
        # By the URL of the server; each operation on it is atomic.
        self._accesses: dict[str, _Access] = {}

    def login(self, url: str) -> None:
        """Log in at a server now, and keep the tokens. Blocks for the user.

        Raises AuthorizationError.
        """
        self._access(url, None, _Log()).begin()

    def logout(self, url: str) -> None:
        """Forget the tokens of a server. Raises AuthorizationError."""
        self._access(url, None, _Log()).forget()

    def _access(self, url: str, ssl_context: SSLContext | None, log: _Log) -> _Access:
        """What a server is shown, by its URL, which must be safe for tokens."""
        place = check_url("auth", _resource_id(url))
        access = self._accesses.setdefault(
            place, _Access(self._options, self._store, place, log)
        )
        access.ssl_context = self._ssl_context or ssl_context or access.ssl_context
        return access


def _check_document(url: str) -> None:
    # "MUST use the "https" scheme and contain a path component"
    _check_option("client_metadata_url", url, False)
    if not _split(url).path.strip("/"):
        raise ValueError("client_metadata_url: expected an https URL with a path")


def _check_option(name: str, url: str, allow_near: bool) -> None:
    try:
        check_url(name, url, allow_near)
    except AuthorizationError as error:
        raise ValueError(str(error)) from None


def authorizer_for(
    auth: Any, url: str, ssl_context: SSLContext | None, log: _Log
) -> Authorizer:
    """What Client(auth=) stands for. Raises TypeError."""
    if auth is None:
        return Authorizer()
    if isinstance(auth, OAuth):
        return auth._access(url, ssl_context, log)
    if callable(auth):
        return _Asking(auth)
    raise TypeError(
        f"auth: expected an OAuth, or a function, got a {type(auth).__name__}"
    )


###############################################################################
# 30. HTTP posts ##############################################################
###############################################################################
# What an HTTP client is at work on: the session that a server knows it by, a message on
# its way, why one was not taken, a stream that is read. What follows is not known here.
class _ClientSession:
    """What a server knows a client by in the legacy era. One on the wire:

        POST initialize                     200, Mcp-Session-Id: 7f, the answer
        POST notifications/initialized      202
        GET                                 200, events: what the server says by itself
        POST tools/call                     200, the answer
                                            that stream ends: a proxy cuts it off, say
        GET, Last-Event-ID: 5               200, more events
                                            the server forgets the session
        POST tools/call                     404
        POST initialize                     200, Mcp-Session-Id: 80, the answer
        POST notifications/initialized      202
        GET                                 200, events, and so on
        POST tools/call                     200, the answer

    All but `initialize` carry the Mcp-Session-Id. A server that says nothing by itself
    answers the first GET with 405, or with 404. A POST that is answered with 404 tells
    that the session is lost; after a GET that is, a ping finds out. Over HTTP+SSE there
    is one GET, before `initialize`, and no id.
    """

    def __init__(self, opening: bytes = b"") -> None:
        # None before `initialize` is answered, and where a server gives none.
        self.id: str | None = None
        # The `initialize` that opened it, and opens the next one.
        self.opening = opening
        self.get_was_sent = False
        # Set when the first GET was answered (over HTTP+SSE, when its first event has
        # come), and when it will not be.
        self.get_is_answered = threading.Event()
        # Over HTTP+SSE: it was told where to POST.
        self.has_endpoint = False

    def headers(self) -> Headers:
        """What a request says to be part of this session."""
        return {} if self.id is None else {"Mcp-Session-Id": self.id}

    def take_id(self, response: HTTPResponse) -> None:
        """Take the id that comes with the answer to `initialize`. Raises InternalError
        for one that cannot be sent back."""
        session_id = response.headers.get("Mcp-Session-Id") or None
        # "The session ID MUST only contain visible ASCII characters".
        if session_id and not re.fullmatch("[!-~]{1,%d}" % MAX_SESSION_ID, session_id):
            raise InternalError(
                f"Mcp-Session-Id: expected 1 to {MAX_SESSION_ID} visible ASCII "
                f"characters, got {show(session_id)}"
            )
        self.id = session_id


class _EventStream(EventParser):
    """A stream of events that a client reads, over as many responses as it takes: with
    the answer to a request, or what the server says by itself (request_id is None)."""

    def __init__(
        self, session: _ClientSession, request_id: RequestId | None, budget: Budget
    ) -> None:
        self.session = session
        self.request_id = request_id
        # What is kept of an unfinished event.
        self._budget = Budget(budget.limit, budget)
        super().__init__()

    def begin(self) -> None:
        """As an EventParser does; called before and after each response."""
        super().begin()
        if self._budget.taken:
            self._budget.give_back(self._budget.taken)

    def feed(self, data: bytes) -> list[tuple[str, bytes]]:
        """As an EventParser does. Raises ValueError also if the budget is spent."""
        events = super().feed(data)
        if not self._budget.take(self.kept() - self._budget.taken):
            raise ValueError(_OVER_BUDGET)
        return events


_OVER_BUDGET = f"unfinished answers of more than {MAX_RECEIVED} bytes in all"


class _Post:
    """A message on its way to the server, and what was done to get it there."""

    def __init__(self, line: bytes) -> None:
        self.line = line
        # {}: the answers to a batch of questions.
        self.message = object_or_empty(decode_message(line))
        self.row = method_row(self.message.get("method"))
        self.is_answer = "method" not in self.message
        # None: what is no request.
        self.request_id: RequestId | None = None
        if not self.is_answer:
            self.request_id = self.message.get("id")
        self.opens_session = self.row.handshake and self.request_id is not None
        # Where a redirect leads.
        self.url: SplitResult | None = None
        # The session that it opens in place of a lost one.
        self.session: _ClientSession | None = None
        # Its session was lost, and it is sent again in the next one.
        self.is_renewed = False
        # The thread that writes sends it: nothing else is written meanwhile.
        self.holds_up = False


# What a server says to a POST that it does not take: where, in which session, with which
# status and Location; the JSON-RPC `error` of the body, or None; and the exception that
# says it all, `told` in the server's words.
_Rejection = namedtuple("_Rejection", "url session status location error told")

_NO_SESSION = r"(?i)no valid session|server not initialized"


def is_of_lost_session(rejection: _Rejection) -> bool:
    """Whether it says that there is no such session: basic/transports.md wants a 404.
    What is made like the examples of SDKs has a 400 for it, and these words."""
    error = rejection.error
    words = "" if error is None or rejection.status != 400 else error.message
    return rejection.status == 404 or re.search(_NO_SESSION, words) is not None


def error_in(body: bytes, status: int) -> tuple[McpError | None, object]:
    """The JSON-RPC error in a body, if there is one, and the id that is with it."""
    answer: Json = {}
    with suppress(McpError):
        answer = object_or_empty(parse_message(body))
    error = object_or_empty(answer.get("error"))
    if "code" not in error:
        return None, None
    parsed = McpError.from_wire(error)
    parsed.http_status = status
    return parsed, answer.get("id")


def _read_body(response: HTTPResponse, budget: Budget) -> bytes:
    """A body, or if it is longer than MAX_MESSAGE, somewhat more than that of it.
    Raises ConnectionError if the budget is spent."""
    # In pieces: up to 3.9, read(limit) takes memory for all of the limit.
    body = bytearray()
    try:
        for piece in iter(partial(response.read1, CHUNK), b""):
            body += piece
            if not budget.take(len(piece)):
                raise ConnectionError(_OVER_BUDGET)
            if len(body) > MAX_MESSAGE:
                break
        return bytes(body)
    finally:
        budget.give_back(len(body))


###############################################################################
# 31. HTTP client #############################################################
###############################################################################
# A client's side of both HTTP transports: each message is a POST, and what comes back,
# JSON or a stream of events, is fed to the Connection. Knows sessions and streams.
class HttpTransport(Transport):
    """Carries messages to a URL and back, by both HTTP transports: basic/transports.md.

    Each message is a POST: a notification's on the thread that writes, so that they
    stay in order; any other one's on a worker. Streams are read by workers, too. The
    connection's endpoint tells what headers mirror. When the server had forgotten the
    session, judge_session() gets the result of the new `initialize`, and may raise;
    on_new_session() is called when the new session is open. How the answer to a request
    comes:

        POST --> JSON
        POST --> events, the answer among them
        POST --> events, broken off --> GET with Last-Event-ID --> more events --> ...
        POST --> nothing: HTTP+SSE (2024-11-05), where all answers come on one stream

    Streams are resumed in the legacy era only. There, what the server says by itself
    is the answer to a GET, which is sent again as long as the session lasts. The life
    of a session:

        nameless --`initialize` was answered--> open --a 404--> lost
                                                 ^                |
                                                 '-- `initialize`, once for all threads
    """

    # What the server speaks.
    STREAMABLE_HTTP = "streamable HTTP"
    HTTP_SSE = "HTTP+SSE"

    feeds = True
    mirrors = True
    # Known from start() on.
    connection: Connection
    # When the client is to be connected.
    _until: float
    # Between two looks at whether a stream is still wanted.
    LOOK_SECONDS = 1.0

    def __init__(
        self,
        url: str,
        headers: Callable[[], dict[str, str]],
        authorizer: Authorizer,
        ssl_context: SSLContext | None,
        timeout: float,
        log: _Log,
        judge_session: Callable[[Json], Any],
        on_new_session: Job,
    ) -> None:
        self._headers = headers
        address = parse_url(url)
        self._login = login_header("Authorization", address)
        # Where to POST; redirects and HTTP+SSE may change its path.
        self._url = address._replace(netloc=address.netloc.rpartition("@")[2])
        self._authorizer = authorizer
        self._timeout = timeout
        self._log = log
        self._judge_session = judge_session
        self._on_new_session = on_new_session
        # What is kept of answers that have not come to their end.
        self._budget = Budget(MAX_RECEIVED)
        self._closed = threading.Event()
        self._workers = Workers("mcp-posts", MAX_CONNECTIONS, do_nothing, log)
        self._pool = _HttpPool(self._url, ssl_context, timeout, self._is_wanted)
        self._dialect = self.STREAMABLE_HTTP
        self._session = _ClientSession()
        # Lost session -> set when there is a new one, or none to be had. Who puts it
        # there opens the new one.
        self._renewals: dict[_ClientSession, threading.Event] = {}

    def start(self, connection: Connection) -> None:
        self.connection = connection
        self._until = time.monotonic() + self._timeout

    def details(self) -> str:
        return f" (url: {show_url(self._url)})"

    def write(self, data: bytes) -> None:
        """Send messages, a line each. Blocks for notifications only."""
        for line in data.splitlines():
            post = _Post(line)
            if post.row.cancels:
                self._cancel(post)
            elif post.is_answer and not self._may_answer():
                self._log.debug(f"HTTP: an answer is not sent: {show(post.message)}")
            elif post.is_answer or post.request_id is not None:
                self._workers.submit(partial(self._send, post))
            else:
                post.holds_up = True
                self._send(post)
                # The first one is `initialized`: now the server may speak.
                if self._is_opening():
                    self._start_listening(min(PROBE_SECONDS, self._patience()))

    def close(self) -> None:
        """End the session, and every request, whatever the sockets do."""
        if self._session.id is not None:
            headers = self._session_headers(self._session)
            with suppress(Exception), self._round_trip(
                "DELETE", self._url, headers, patience=EXIT_SECONDS
            ):
                pass
        self._closed.set()
        self._session.get_is_answered.set()
        self._pool.close()
        self._workers.close(EXIT_SECONDS)

    def _given_headers(self) -> Headers:
        """What the user has every request say, at this moment."""
        headers = self._headers()
        check_headers(headers)
        return merge_headers(self._login, headers)

    def _session_headers(self, session: _ClientSession) -> Headers:
        """What a request without a message says: GET, DELETE."""
        version = self.connection.protocol.version or OLDEST
        return {"MCP-Protocol-Version": version, **session.headers()}

    def _is_first(self) -> bool:
        """Whether no server was found so far at this URL: it may be wrong."""
        return not self.connection.protocol.version

    def _is_opening(self) -> bool:
        """Whether a session's server has not heard `initialized` yet."""
        return self._is_legacy() and not self._session.get_was_sent

    def _patience(self) -> float:
        """How many seconds a notification may take; the one that ends the opening no
        more than are left for that."""
        if not self._is_opening():
            return self._timeout
        return renew_deadline(self._until, self._timeout) - time.monotonic()

    def _is_legacy(self) -> bool:
        return self.connection.protocol.version < FIRST_MODERN

    def _may_answer(self) -> bool:
        """Whether answers may be sent now, and are taken."""
        # "The client MUST NOT send JSON-RPC responses", says 2026-07-28. Until a
        # revision is agreed on, only who sends `initialize` may be asked.
        may_be_asked = self._is_legacy() and bool(self._session.opening)
        # A server that asks on and on, and takes no answers, would fill our memory.
        return may_be_asked and len(self._workers) < MAX_BACKLOG

    def _is_open(self, request_id: RequestId | None) -> bool:
        """Whether somebody waits for the answer still; true of what is no request."""
        return request_id is None or request_id in self.connection.protocol.pending

    def _is_wanted(self, request_id: RequestId | None) -> bool:
        """The same, but of nothing when this is closed."""
        return not self._closed.is_set() and self._is_open(request_id)

    @contextmanager
    def _round_trip(
        self,
        method: str,
        url: SplitResult,
        headers: Headers,
        body: bytes | None = None,
        request_id: RequestId | None = None,
        patience: float | None = None,
    ) -> Iterator[tuple[HTTPResponse, _Secrets]]:
        """Send an HTTP request; inside is its response, head read, and what tells the
        secrets of the request. It ends when the request `request_id` does, and after
        `patience` seconds, if there are any. Raises HttpFailure for what goes wrong on
        the way, inside as well."""
        # A login goes on when this request is given up: the next one will want it.
        is_wanted = partial(self._is_wanted, None)
        place = show_url(url)
        trace = self.connection.trace
        secrets: _Secrets = list
        status = None
        try:
            for tries in itertools.count():
                given = self._given_headers()
                shown = self._authorizer.headers(method, place)
                secrets = partial(secrets_in, url, given, shown)
                sent = merge_headers(given, shown, headers)
                if trace is not None:
                    trace.asked(method, place, sent, request_id)
                trip, response = self._pool.ask(
                    method, url, sent, body, request_id, patience
                )
                if trace is not None:
                    told = dict(response.headers.items())
                    trace.answered(response.status, told, request_id)
                # The session is ended without asking anybody for anything.
                if not is_challenge(response) or method == "DELETE":
                    break
                try:
                    refusal = read_refusal(place, response, given, shown, secrets())
                finally:
                    trip.end()
                with answering(self.connection):
                    if tries == MAX_REFUSALS or not self._authorizer.mend(
                        refusal, shown, tries == 0, is_wanted
                    ):
                        raise refusal
            status = response.status
            try:
                yield response, secrets
            finally:
                if trace is not None and content_type(response) == EVENT_TYPE:
                    trace.happened("the stream ends", "", request_id)
                trip.end()
        except (McpError, HttpFailure):
            raise
        except Exception as error:
            raise self._to_failure(error, url, secrets, status) from None

    def _to_failure(
        self,
        error: Exception,
        url: SplitResult,
        secrets: _Secrets = list,
        status: int | None = None,
    ) -> HttpFailure:
        """What went wrong on the way: http.client has exceptions of its own, beside
        OSError."""
        proxy = self._pool.proxy
        told = describe_exception(error, url, proxy, self._is_first())
        status = status or tunnel_status(error)
        return http_failure(url, proxy, hide(told, secrets()), status)

    # One message
    def _send(self, post: _Post) -> None:
        """POST a message, and see its answer fed to the connection. A request's failure
        is its answer."""
        try:
            self._post(post)
        except (McpError, HttpFailure) as error:
            # That would keep open what its frames have: a socket, say.
            error.__context__ = None
            self._fail(post.request_id, error)
        except Exception as error:
            self._fail(post.request_id, self._to_failure(error, self._url))

    def _fail(self, request_id: RequestId | None, error: Exception) -> None:
        if not self.connection.fail(request_id, error):
            self._log.debug(f"HTTP: {error_text(error)}")

    def _cancel(self, post: _Post) -> None:
        # Modern: closing the response is the cancellation. Legacy: it is told, and we
        # stop reading, too.
        if self._is_legacy():
            self._workers.submit(partial(self._send, post))
        request_id = object_or_empty(post.message.get("params")).get("requestId")
        if request_id is not None:
            self._pool.shut_request(request_id)

    def _post(self, post: _Post) -> None:
        """POST a message until it is taken, and see what comes back fed.

            POST --2xx--> taken
                 --307, 308--> POST where that leads, once
                 --404--> the session is lost: POST in the next one, once
                 --400, 404, 405 to `initialize`--> POST where the HTTP+SSE stream says
                 --else--> rejected: raises McpError, or HttpFailure

        A request that was given up is not sent.
        """
        while self._is_open(post.request_id):
            rejection = self._post_once(post)
            if rejection is None:
                return
            if not self._mend(post, rejection):
                raise rejection.told

    def _post_once(self, post: _Post) -> _Rejection | None:
        """POST a message, and feed what comes back; or return why it is not taken."""
        url = post.url or self._url
        session = post.session or self._session
        if post.opens_session:
            session.opening = post.line
        stream = _EventStream(session, post.request_id, self._budget)
        # A request's caller knows when to give up; but a notification has none, and the
        # one that has lost its session does not see this.
        has_caller = post.request_id is not None and post.session is None
        patience = None if has_caller else self._patience()
        headers = {**self._post_headers(post), **session.headers()}
        with self._round_trip(
            "POST", url, headers, post.line, post.request_id, patience
        ) as (response, secrets):
            if response.status >= 300:
                return self._read_rejection(post, url, session, response, secrets)
            if post.url is not None:
                # What is there now will be there for the next message.
                self._url = post.url
            if post.opens_session:
                session.take_id(response)
            body = self._read_answer(response, stream)

        # Only now, when the next call may have the connection.
        self._feed(body)
        may_resume = bool(stream.last_id) and self._is_legacy()
        if may_resume and self._is_open(post.request_id):
            self._follow(stream, stream.retry)
        # Over HTTP+SSE the answer comes on the stream, in its own time.
        is_due = self._dialect == self.STREAMABLE_HTTP and post.request_id is not None
        if is_due and self._is_open(post.request_id):
            raise self._failure(url, response, body, secrets)
        return None

    def _read_rejection(
        self,
        post: _Post,
        url: SplitResult,
        session: _ClientSession,
        response: HTTPResponse,
        secrets: _Secrets,
    ) -> _Rejection:
        body = response.read(MAX_ERROR)
        status = response.status
        error, error_id = error_in(body, status)
        # What is no message may be a page that quotes our headers.
        if self.connection.trace is not None and error is not None:
            self.connection.trace.received(body)
        # An error without our id is not about the message, but about the request that
        # brought it: "The HTTP response body MAY comprise a JSON-RPC error response
        # that has no id". But who does not understand a request may not know its id.
        is_ours = error_id == post.request_id or status == 400
        told: McpError | HttpFailure | None = error
        if error is None or not is_ours or status in (401, 403):
            told = self._failure(url, response, body, secrets)
        location = response.headers.get("Location", "")
        return _Rejection(url, session, status, location, error, told)

    def _failure(
        self, url: SplitResult, response: HTTPResponse, body: bytes, secrets: _Secrets
    ) -> HttpFailure:
        """What a response is that is no answer."""
        told = describe_response(response, body[:MAX_ERROR], self._is_first())
        challenge = challenge_in(response.headers)
        told = hide(told, secrets())
        return http_failure(url, self._pool.proxy, told, response.status, challenge)

    def _post_headers(self, post: _Post) -> Headers:
        """What a POST says besides its session. Raises InvalidParams for what must be
        mirrored, and no header can mirror."""
        params = object_or_empty(post.message.get("params"))
        version = object_or_empty(params.get("_meta")).get(META_VERSION)
        if version is None and not post.opens_session:
            version = self.connection.protocol.version or None
        parameters = self.connection.endpoint.header_parameters
        values = {
            "MCP-Protocol-Version": version,
            **mirrored_headers(post.message, parameters),
        }
        headers: Headers = {
            "Content-Type": JSON_TYPE,
            "Accept": f"{JSON_TYPE}, {EVENT_TYPE}",
        }
        for name, value in values.items():
            if value is None:
                continue
            try:
                text = encode_header(value)
                if text != value and not name.startswith(ENCODED_HEADERS):
                    raise ValueError(f"no header can hold {show(value)}")
                headers[name] = text
            except ValueError as error:
                # To a legacy server, what is mirrored is only a help.
                if not self._is_legacy():
                    raise InvalidParams(f"{name}: {error}") from None
        return headers

    # What may help where a POST was rejected. Each returns whether to send it again.
    def _mend(self, post: _Post, rejection: _Rejection) -> bool:
        if rejection.status in (307, 308) and post.url is None:
            target = follow_reference(rejection.url, rejection.location)
            # Only once, and to somewhere else: it may go round in a circle.
            if target != rejection.url:
                post.url = target
            return post.url is not None
        is_lost = is_of_lost_session(rejection)
        if is_lost and self._replace_session(post, rejection.session):
            return True
        return rejection.status in (400, 404, 405) and self._fall_back(post, rejection)

    def _replace_session(self, post: _Post, lost: _ClientSession) -> bool:
        # "When a client receives HTTP 404 in response to a request containing an
        # MCP-Session-Id, it MUST start a new session".
        if lost.id is None or post.row.handshake or post.is_renewed:
            return False
        if post.holds_up:
            # What a new session is told has to be written: so a worker sees to it.
            self._workers.submit(partial(self._send, _Post(post.line)))
            return False
        self._renew(lost, post.url)
        post.url = None
        post.is_renewed = True
        # An answer is lost with its question's session: in the new one, its id may mean
        # another question.
        return self._session is not lost and not post.is_answer

    def _fall_back(self, post: _Post, rejection: _Rejection) -> bool:
        """Take a server for one of 2024-11-05, which takes POSTs elsewhere."""
        if not post.opens_session or self._dialect == self.HTTP_SSE:
            return False
        # "and the response body is not a recognized modern JSON-RPC error [...]: Issue
        # a GET request to the server URL".
        if rejection.error is not None and rejection.error.code in MODERN_ERRORS:
            return False
        self._dialect = self.HTTP_SSE
        self._url = rejection.url
        self._start_listening(self._timeout)
        post.url = None
        return self._session.has_endpoint

    def _renew(self, lost: _ClientSession, moved: SplitResult | None) -> None:
        """Open a session in place of a lost one, where the server has `moved` if it
        has: once, on the thread that notices first. The others wait for it. Raises on
        that thread, if none is to be had: ConnectionError, or what `initialize` gave.
        """
        is_new = lost not in self._renewals
        if is_new and len(self._renewals) >= MAX_FAILURES:
            # Each was lost while it was being opened: that might go on for ever.
            return
        mine = threading.Event()
        done = self._renewals.setdefault(lost, mine)
        if done is not mine:
            done.wait(self._timeout)
            return
        try:
            # Who notices late finds it done.
            if self._session is lost:
                self._open_next_session(lost, moved or self._url)
                # What follows takes workers, who may all be waiting.
                done.set()
                self._on_new_session()
        finally:
            self._renewals.pop(lost).set()

    def _open_next_session(self, lost: _ClientSession, url: SplitResult) -> None:
        # Nobody waits for the answers to what was asked in the lost one.
        self.connection.cancel_all()
        session = _ClientSession(opening=lost.opening)
        self._judge_session(self._shake_hands(session, url))
        self._session = session
        line = encode_message(call_message("notifications/initialized", None))
        if self.connection.trace is not None:
            self.connection.trace.sent(line)
        self.write(line)

    def _shake_hands(self, session: _ClientSession, url: SplitResult) -> Json:
        """Send a session's opening again, all of it on this thread: the workers may all
        be waiting. Returns the result, or raises what came in its place."""
        post = _Post(session.opening)
        post.session = session
        post.url = url
        waiter = Waiter("initialize")
        if self.connection.trace is not None:
            self.connection.trace.sent(post.line)
        self.connection.hold(waiter, post.request_id)
        try:
            rejection = self._post_once(post)
            if rejection is not None:
                raise rejection.told
            answer: Answer = waiter.inbox.get_nowait()[1]
        except Empty:
            raise ConnectionError("lost the session: no answer to initialize") from None
        finally:
            self.connection.abandon(waiter, None)
        if answer.error is not None:
            raise answer.error
        return object_or_empty(answer.result)

    # Responses
    def _feed(self, data: bytes) -> None:
        if data:
            line = data if len(data) <= MAX_MESSAGE else None
            self.connection.dispatch(self.connection.receive(line))

    def _read_answer(self, response: HTTPResponse, stream: _EventStream) -> bytes:
        """Read what answers a request, and return it if it is JSON; events are fed.
        Raises ConnectionError for what is neither."""
        if stream.request_id is None:
            # What answers a notification may be endless.
            return b""
        coding = response.headers.get("Content-Encoding", "identity")
        if coding.strip().lower() != "identity":
            raise ConnectionError(f"Content-Encoding: {show(coding)} was not asked for")
        kind = content_type(response)
        if kind == EVENT_TYPE:
            self._read_events(response, stream)
        elif self._dialect == self.HTTP_SSE:
            # Only what comes on the stream is an answer.
            pass
        elif kind == JSON_TYPE:
            return _read_body(response, self._budget)
        elif kind:
            said = response.read(MAX_ERROR)
            raise ConnectionError(describe_response(response, said, self._is_first()))
        return b""

    def _read_events(self, response: HTTPResponse, stream: _EventStream) -> None:
        """Feed events, until the response ends, or the request is answered. Raises
        ConnectionError for what is too large, and an `endpoint` on another host."""
        stream.begin()
        try:
            while self._is_open(stream.request_id) and (data := self._read1(response)):
                for kind, text in stream.feed(data):
                    if kind == "message":
                        self._feed(text)
                    elif kind == "endpoint" and self._dialect == self.HTTP_SSE:
                        self._take_endpoint(text.decode("utf-8", "replace"))
                        stream.session.get_is_answered.set()
        except ValueError as error:
            raise ConnectionError(str(error)) from None
        finally:
            stream.begin()

    def _read1(self, response: HTTPResponse) -> bytes:
        """The next bytes of a stream; b"" at its end, be it a broken one."""
        try:
            return response.read1(CHUNK)
        except Exception as error:
            # http.client's own, OSError, or ValueError: it was closed.
            self._log.debug(f"a stream broke: {error_text(error)}")
            return b""

    def _take_endpoint(self, reference: str) -> None:
        """Take where to POST, as the first event of the old transport says it."""
        if self._session.get_is_answered.is_set():
            self._log.debug(f"HTTP: another endpoint is ignored: {show(reference)}")
            return
        target = follow_reference(self._url, reference[:MAX_HEAD])
        if target is None:
            raise ConnectionError(
                f"endpoint: expected a URL on the same host, got {show(reference, 300)}"
            )
        self._url = target
        self._session.has_endpoint = True
        if self.connection.trace is not None:
            self.connection.trace.happened("event: endpoint", target.path)

    # Streams
    def _start_listening(self, seconds: float) -> None:
        """Have a worker GET what the server says by itself. Wait until that is
        answered, for `seconds` at most."""
        session = self._session
        session.get_was_sent = True
        self._workers.submit(partial(self._listen, session))
        if not self._closed.is_set():
            session.get_is_answered.wait(seconds)

    def _listen(self, session: _ClientSession) -> None:
        why = "the server closed the stream"
        # Where nothing was answered as a stream, the POST's failure tells more.
        was_stream = True
        try:
            self._follow(_EventStream(session, None, self._budget), 0.0)
            was_stream = session.get_is_answered.is_set()
        except Exception as error:
            why = f"cannot hear the server: {error_text(error)}"
            self._log.warning(why)
        finally:
            if self._dialect == self.HTTP_SSE and was_stream:
                self.connection.close(ConnectionClosed(why))
            session.get_is_answered.set()

    def _follow(self, stream: _EventStream, delay: float) -> None:
        """GET a stream in `delay` seconds, and again whenever it ends: until its
        request is answered, or as long as the session lasts. Raises what GET does,
        after MAX_FAILURES in a row."""
        failures = 0
        while self._pause(stream, delay):
            # Over HTTP+SSE, what the stream had to say is lost with it.
            is_resumable = self._dialect == self.STREAMABLE_HTTP
            try:
                if not (self._get_once(stream) and is_resumable):
                    return
                failures = 0
            except AuthorizationError:
                raise
            except Exception:
                # http.client has exceptions of its own, beside OSError.
                failures += 1
                if failures > MAX_FAILURES or not is_resumable:
                    raise
            delay = stream.retry * 2**failures

    def _pause(self, stream: _EventStream, seconds: float) -> bool:
        """Wait before a stream is read again. False as soon as nobody wants it."""
        until = time.monotonic() + seconds
        while not self._closed.is_set():
            is_over = self._session is not stream.session
            if is_over or not self._is_open(stream.request_id):
                return False
            left = until - time.monotonic()
            if left <= 0:
                return True
            # The server may have asked for a pause that is longer than our patience.
            self._closed.wait(min(left, self.LOOK_SECONDS))
        return False

    def _get_once(self, stream: _EventStream) -> bool:
        """GET a stream and feed its events until it ends. False if there is none."""
        session = stream.session
        headers = self._session_headers(session)
        headers["Accept"] = EVENT_TYPE
        if stream.last_id:
            headers["Last-Event-ID"] = stream.last_id.encode("utf-8")
        with self._round_trip(
            "GET", self._url, headers, request_id=stream.request_id
        ) as (response, _):
            status = response.status
            if status == 200 and content_type(response) == EVENT_TYPE:
                if self._dialect == self.STREAMABLE_HTTP:
                    session.get_is_answered.set()
                self._read_events(response, stream)
                return True
        # To the first GET it only says that this server has no such stream.
        if not session.get_is_answered.is_set():
            return False
        if status >= 500 or status == 429:
            # A proxy says so while the server starts again.
            raise ConnectionError(f"HTTP {status}")
        may_be_lost = status == 404 and session.id is not None
        if may_be_lost and not self._is_lost(session) and stream.request_id is None:
            # Its place in it may be what is not known any more: then it listens anew.
            had_place = bool(stream.last_id)
            stream.last_id = ""
            return had_place
        return False

    def _is_lost(self, session: _ClientSession) -> bool:
        """Whether a session is lost; then there is a new one. Some servers answer a GET
        for a stream that is over with 404, too, but no POST."""
        with suppress(Exception):
            waiter = self.connection.request(Waiter("ping"), None)
            self.connection.wait(waiter, self._timeout)
        return self._session is not session


###############################################################################
# 32. Offers ##################################################################
###############################################################################
# What users have registered with a server: what it offers stands in its Registry; and
# how the functions are called that are around the handlers of requests.

# A registered function:
#     wire: what lists say of it
#     signature: the function, and how its arguments are made
#     output: of a tool, how its result is made
#     timeout: of a tool, seconds, or None
#     template: of a resource, its URI, or URI template
#     headers: of a tool, what HTTP headers mirror of its arguments
#     visible: visible(ctx) says whether a caller may see it, or None: all may
# The functions behind an extension's methods are none: no list has them.
Offer = namedtuple(
    "Offer",
    "wire signature output timeout template headers visible",
    defaults=[None, None, None, (), None],
)

# A kind of offers: the change that is told when there are others, and the capabilities
# that are declared for it.
OfferKind = namedtuple("OfferKind", "change capabilities")
_RESOURCES = {"subscribe": True, "listChanged": True}
OFFER_KINDS = {
    "tools": OfferKind(LIST_CHANGES["tools"], {"tools": {"listChanged": True}}),
    "resources": OfferKind(LIST_CHANGES["resources"], {"resources": _RESOURCES}),
    "resourceTemplates": OfferKind(
        LIST_CHANGES["resources"], {"resources": _RESOURCES, "completions": {}}
    ),
    "prompts": OfferKind(
        LIST_CHANGES["prompts"], {"prompts": {"listChanged": True}, "completions": {}}
    ),
}
# What a capability promises to tell later on: not where no stream could carry it.
_TOLD_LATER = ("listChanged", "subscribe")
# The capabilities that came later.
CAPABILITY_SINCE = {"completions": "2025-03-26"}
# What a completion may be about: its kind, and what names it in the reference.
REFERENCES = {
    "ref/prompt": ("prompts", "name"),
    "ref/resource": ("resourceTemplates", "uri"),
}
_ARGUMENT = _typed_members({"name": str, "value": str})


class Registry:
    """What a server offers now.

    Who reads its parts needs no lock: they are changed under it, in one step each, and
    whoever goes through one of them goes through a copy, list(part), which is one step,
    too. What a caller may not see does not exist for it: so what looks something up for
    a request takes its `ctx`.
    """

    def __init__(self, run_on: Callback = None, extensions: Json | None = None) -> None:
        self._run_on = run_on
        # Held by who changes them.
        self._lock = threading.Lock()
        # Kind -> name or URI -> Offer.
        self.offers: dict[str, dict[str, Offer]] = {kind: {} for kind in OFFER_KINDS}
        # What is declared for them, of the kinds that there are, or were: it is a
        # promise, which the last one that goes does not break.
        self.capabilities: Json = {"logging": {}}
        if extensions:
            self.capabilities["extensions"] = extensions
        # Of extensions: a method's row, and its function.
        self.methods: dict[str, tuple[Method, Callable[..., Any]]] = {}
        # (a prompt's name or a template's URI, its argument) -> fn(ctx, text, others).
        self.completers: dict[tuple[str, str], Callable[..., Any]] = {}

    def put(self, kind: str, name: str, offer: Offer) -> Offer | None:
        """Offer a function from now on. Returns what had its name before."""
        # What JSON cannot say is refused now, not when a client asks for the list.
        encode_message(offer.wire)
        with self._lock:
            before = self.offers[kind].get(name)
            self.offers[kind][name] = offer
            declared = OFFER_KINDS[kind].capabilities
            self.capabilities = {**self.capabilities, **declared}
        return before

    def remove(self, kind: str, name: str) -> None:
        """Stop offering it. Raises KeyError for what is not offered."""
        with self._lock:
            del self.offers[kind][name]

    def put_completer(self, ref: str, argument: str, fn: Callable[..., Any]) -> None:
        """Have fn(ctx, text, other arguments) complete an argument from now on."""
        with self._lock:
            self.completers[ref, argument] = fn

    def put_method(self, name: str, extension: str, fn: Callable[..., Any]) -> None:
        """Have fn(ctx, params) serve a method of an extension from now on. Without one,
        any client may call it."""
        traits: Json = {"handler": "_extension", "extension": extension}
        if extension:
            traits["capability"] = ("extensions", extension)
        row = Method("client", "either", name, **traits)
        with self._lock:
            self.methods = {**self.methods, name: (row, fn)}

    def is_selective(self, kind: str) -> bool:
        """Whether not all may see all that there is of a kind."""
        return _is_selective(dict(self.offers.get(kind, {})))

    def see(self, ctx: Context, kind: str) -> dict[str, Offer]:
        """What a caller may see of a kind now, asked where run_on says."""
        offers = dict(self.offers[kind])
        if not _is_selective(offers):
            return offers
        seen: dict[str, Offer]
        seen = run_job(ctx, partial(_visible_to, ctx, offers), self._run_on)
        return seen

    def _may_see(self, ctx: Context, offer: Offer) -> bool:
        if offer.visible is None:
            return True
        return bool(run_job(ctx, partial(is_visible, ctx, offer), self._run_on))

    def find(self, ctx: Context, kind: str, noun: str, name: str) -> Offer:
        """What has this name. Raises NotFound, which calls it a `noun`."""
        offer = self.offers[kind].get(name)
        # Where all may see it, as mostly, nothing is called to find that out.
        if offer is not None and (offer.visible is None or self._may_see(ctx, offer)):
            return offer
        known = self.see(ctx, kind)
        raise NotFound(f"Unknown {noun}: {name}" + suggest(name, known))

    def find_resource(self, ctx: Context, uri: str) -> tuple[Offer, Json]:
        """The resource with this URI, and the arguments for its function.

        Raises NotFound, with the code that the revision has for it.
        """
        why = ""
        for resource, values in self.resources_at(uri):
            if not self._may_see(ctx, resource):
                continue
            try:
                return resource, resource.signature.bind_text(values)
            except InvalidParams as error:
                why = f": {error}"
        version = ctx.protocol_version
        raise missing(f"Resource not found: {uri}{why}", {"uri": uri}, version)

    def resources_at(self, uri: str) -> Iterator[tuple[Offer, Json]]:
        """What may be meant by a URI, the first before the others, with the values in
        it: a resource with this one, and templates."""
        fixed = self.offers["resources"].get(uri)
        if fixed is not None:
            yield fixed, {}
        for resource in list(self.offers["resourceTemplates"].values()):
            values = resource.template.match(uri)
            if values is not None:
                yield resource, values

    def check_completed(self, ref: object, argument: object) -> None:
        """Raise ValueError unless there is such an argument to complete."""
        offers = {**self.offers["resourceTemplates"], **self.offers["prompts"]}
        offer = offers.get(str(ref))
        if offer is None:
            raise ValueError(
                f"completion: no prompt or template {show(ref)} yet; register it "
                "before its completions" + suggest(str(ref), offers)
            )
        known = offer.signature.schema["properties"]
        if argument not in known:
            raise ValueError(
                f"completion: {show(ref)} has no argument {show(argument)}"
                + suggest(str(argument), known)
            )

    def find_reference(self, ctx: Context, ref: Json) -> tuple[str, Offer]:
        """The prompt or template that a completion is about, and its name or URI."""
        kind, member = REFERENCES.get(str(ref.get("type")), ("prompts", ""))
        key = str(ref.get(member))
        offer = self.offers[kind].get(key)
        if offer is None or not self._may_see(ctx, offer):
            raise InvalidParams(
                f"ref: expected a known prompt or template, got {show(ref)}"
            )
        return key, offer


def missing(text: str, data: Json, version: str) -> NotFound:
    """NotFound, with the code that the revision has for what `data` names."""
    error = NotFound(text, data)
    if "uri" in data and version < FIRST_MODERN:
        error.code = -32002
    return error


def is_visible(ctx: Context, offer: Offer) -> bool:
    """Whether a caller may see something. What its function raises hides it."""
    if offer.visible is None:
        return True
    try:
        answer = offer.visible(ctx)
        if hasattr(answer, "__await__"):
            raise TypeError(f"visible: expected True or False, got {show(answer)}")
        return bool(answer)
    except Exception as error:
        name = offer.wire.get("name")
        ctx._connection.log.warning(f"{name} is hidden, as its `visible` failed", error)
        return False


def _is_selective(offers: dict[str, Offer]) -> bool:
    return any(offer.visible is not None for offer in offers.values())


def _visible_to(ctx: Context, offers: dict[str, Offer]) -> dict[str, Offer]:
    return {name: offer for name, offer in offers.items() if is_visible(ctx, offer)}


OPTION_CHECKS.update(
    {
        "run_on": partial(
            check_that,
            callable,
            "a function that has jobs done, such as executor.submit",
        ),
        "website_url": lambda option, url: check_uri(option, url, "https", "http"),
        "icons": lambda option, icons: check_icons(icons),
        "meta": lambda option, meta: check_meta(meta),
    }
)


def check_handler(noun: str, fn: Any) -> None:
    """Raise TypeError for what is no function, but was given in place of one."""
    if callable(fn):
        return
    remedy = ""
    if isinstance(fn, str):
        remedy = f"; to give it a name, write name={show(fn)}"
    elif hasattr(fn, "cr_code"):
        fn.close()
        remedy = "; register the function itself, without calling it"
    elif hasattr(fn, "__func__"):
        remedy = "; register it when its class is complete"
    raise TypeError(f"{noun}: expected a function, got {show(fn)}{remedy}")


def go_through(
    middleware: list[Callable[..., Any]],
    ctx: Context,
    params: Json,
    handler: Callable[[Context, Json], Json],
) -> Json:
    """What a handler returns, through middleware, the first of them outermost.

    Each gets a function that calls the rest of them, and at last the handler.
    """
    if not middleware:
        return handler(ctx, params)
    fn = middleware[0]
    name = getattr(fn, "__name__", type(fn).__name__)

    def call_next(others: Json | None = None) -> Json:
        if others is not None:
            _check_others(name, ctx._request.row, others)
        given = params if others is None else others
        return go_through(middleware[1:], ctx, given, handler)

    result = fn(ctx, ctx._request.method, params, call_next)
    if not isinstance(result, dict):
        raise TypeError(
            f"the middleware {name} must return a dict, a result, got {show(result)}"
        )
    return result


def _check_others(middleware: str, row: Method, params: object) -> None:
    """Raise TypeError for parameters that a handler cannot have admitted."""
    try:
        if not isinstance(params, dict):
            raise InvalidParams(f"params: expected a dict, got {show(params)}")
        check_members(row.params, params)
    except InvalidParams as error:
        raise TypeError(
            f"the middleware {middleware}: call_next(params): {error}"
        ) from None


###############################################################################
# 33. Features ################################################################
###############################################################################
# What a server does: what its clients say is answered by its ServerEndpoint, by one
# handler for each method of the table. Neither that nor the Registry refers to the
# Server, so that it is freed as soon as nobody uses it.
class Session:
    """A legacy session, as far as it is told of changes."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def hears(self, change: Change, uri: str | None) -> bool:
        """Whether it wants a change.

        Of lists, once it is initialized, it hears those that were declared to it.
        """
        protocol = self.connection.protocol
        if uri is not None:
            return uri in protocol.subscribed
        declared = has_capability(protocol.declared, change.capability)
        return protocol.initialized and declared

    def tell(self, method: str, params: Json | None) -> None:
        """Tell of a change."""
        self.connection.notify(method, params, block=False)


class Subscription:
    """An open subscriptions/listen: basic/patterns/subscriptions.md."""

    def __init__(self, connection: Connection, request: Request, granted: Json) -> None:
        self.connection = connection
        self.request = request
        # The client's filter, without what this server does not tell.
        self.granted = granted

    def is_open(self) -> bool:
        return self.connection.protocol.in_flight.get(self.request.id) is self.request

    def hears(self, change: Change, uri: str | None) -> bool:
        """Whether it wants a change, by the member of the filter that asks for it."""
        granted = self.granted.get(change.member, ())
        if uri is None:
            return bool(granted)
        return uri in granted

    def acknowledge(self, register: Callable[[], bool]) -> None:
        """Say what was granted, and register it to be told of changes.

        Both in one step. "MUST NOT send any notification on the subscription before
        it": whoever finds it registered queues behind the acknowledgement. And who has
        that misses nothing.
        """
        self._send(
            "notifications/subscriptions/acknowledged",
            {"notifications": self.granted},
            register,
        )

    def tell(self, method: str, params: Json | None) -> None:
        """Tell of a change."""
        self._send(method, params or {})

    def end(self, result: Json) -> None:
        """End it with the result, "to signal a graceful end"."""
        # "A server MUST send `notifications/cancelled` [...] when it tears down that
        # subscription stream": basic/patterns/cancellation.md; over HTTP "closing the
        # SSE response stream is itself the cancellation signal". It is about a request
        # "still in-progress", so it comes before the result.
        if self.request.stream is None:
            self._send("notifications/cancelled", {"requestId": self.request.id})
        self.connection.respond(self.request, result)

    def _send(
        self, method: str, params: Json, register: Callable[[], bool] | None = None
    ) -> None:
        params = {**params, "_meta": {META_SUBSCRIPTION: self.request.id}}
        self.connection.notify(
            method, params, self.request, block=False, register=register
        )


class ServerEndpoint(Endpoint):
    """The server's side of its connections: it answers, and tells of changes.

    A handler has the name that its row of METHODS says. It gets (ctx, params), which
    were admitted, and returns the result, or None when the request stays open; what it
    raises is an answer, too.
    """

    def __init__(
        self,
        registry: Registry,
        info: Json,
        instructions: str | None,
        *,
        signer: Signer,
        page_size: int,
        run_on: Callback,
        max_workers: int,
        max_message: int,
        cache_ttl_ms: int,
        mask_errors: bool,
    ) -> None:
        self.log = _Log()
        self.instructions = instructions
        self.max_workers = max_workers
        self._registry = registry
        self._info = info
        self._signer = signer
        self._page_size = page_size
        self._run_on = run_on
        self._max_message = max_message
        self._cache_ttl_ms = cache_ttl_ms
        self._mask_errors = mask_errors
        # No lock guards these: each step is one operation on one of them.
        # Around every request, the outermost first.
        self._middleware: list[Callable[..., Any]] = []
        # Who is told of changes.
        self._sessions: dict[Connection, Session] = {}
        self._subscriptions: dict[Subscription, bool] = {}

    # Connections

    def open_connection(self, transport: Transport) -> Connection:
        """A conversation whose answers a transport carries."""
        return Connection(
            Protocol("server", self.capabilities, self.extension_row),
            self,
            transport,
            name="mcp-worker",
            log=self.log,
            max_workers=self.max_workers,
            max_message=self._max_message,
            trace=open_talk(self.transcript, "server"),
        )

    def connected(self, connection: Connection) -> None:
        """Have a conversation told of changes, once it is initialized."""
        self._sessions[connection] = Session(connection)

    def disconnected(self, connection: Connection) -> None:
        """Forget a conversation that has ended. Idempotent."""
        self._sessions.pop(connection, None)
        self._forget_closed()

    def _forget_closed(self) -> None:
        for each in list(self._subscriptions):
            if not each.is_open():
                self._subscriptions.pop(each, None)

    def output_lost(self, connection: Connection) -> None:
        """The client has left."""
        connection.cancel_all()

    def input_ended(self, connection: Connection) -> None:
        """The client says no more: end its subscriptions, gracefully."""
        for each in list(self._subscriptions):
            if each.connection is connection:
                result: Json = {"_meta": {META_SUBSCRIPTION: each.request.id}}
                each.end(self._result_message(each.request, result))

    # Changes

    def tell(self, change: Change, uri: str | None = None) -> None:
        """Tell those who want to hear of it that a list has changed; or those who
        subscribed to this URI, its resource."""
        params = None
        resources = []
        if uri is not None:
            params = {"uri": uri}
            resources = [resource for resource, _ in self._registry.resources_at(uri)]
        sessions = list(self._sessions.values())
        known: list[Session | Subscription] = [*sessions, *list(self._subscriptions)]
        hearers = [
            each
            for each in known
            if each.hears(change, uri) and not self._is_hidden(each, resources)
        ]

        def tell_all() -> None:
            for each in hearers:
                each.tell(change.method, params)

        if hearers:
            # One for all: those of each connection would be as many threads.
            errands = Errands("mcp-server-errands")
            try:
                errands.run(tell_all)
            finally:
                errands.close(TIDY_SECONDS)

    def _is_hidden(
        self, hearer: Session | Subscription, resources: list[Offer]
    ) -> bool:
        """Whether a hearer may see none of these, if there are any. Who subscribed in a
        session could."""
        if isinstance(hearer, Session) or not resources:
            return False
        ctx = Context(hearer.connection, hearer.request, self._signer)
        return not any(is_visible(ctx, each) for each in resources)

    # Answering

    def capabilities(self) -> Json:
        """What this server declares, where all of it can be delivered."""
        return self._registry.capabilities

    def _declare(self, ctx: Context) -> Json:
        """What it declares to a client: what its revision knows, and what can be
        delivered to it."""
        declared = {
            name: dict(capability)
            for name, capability in self.capabilities().items()
            if CAPABILITY_SINCE.get(name, OLDEST) <= ctx.protocol_version
        }
        if "extensions" in declared:
            for place in extension_places(ctx.protocol_version):
                declared[place] = declared["extensions"]
        connection = ctx._connection
        if not connection.carries_changes(ctx._request):
            for capability in declared.values():
                for promise in _TOLD_LATER:
                    capability.pop(promise, None)
        if connection.answers_only:
            del declared["logging"]
        return declared

    def header_parameters(self, tool: str) -> list[tuple[list[str], str]]:
        """The parameters of a tool that HTTP headers mirror."""
        offer = self._registry.offers["tools"].get(tool)
        return [] if offer is None else offer.headers

    def extension_row(self, method: str) -> Method:
        row, _ = self._registry.methods.get(method, (UNKNOWN, do_nothing))
        return row

    def serve_request(self, connection: Connection, request: Request) -> None:
        """Run the handler of an admitted request, and answer, unless it stays open.

        Runs on a worker, or on the reading thread. Raises nothing: what the handler
        raises is the answer.
        """
        ctx = Context(connection, request, self._signer)
        try:
            handler = getattr(self, request.row.handler)
            if self._middleware:
                result = self._go_through(ctx, handler)
            else:
                if request.modern and request.row.asks:
                    ctx.load_answers()
                result = handler(ctx, request.params)
            if result is None:
                return
            message = self._result_message(request, result)
        except _InputRequired as pause:
            message = self._result_message(request, pause.result, "input_required")
        except BaseException as error:
            failure = self._to_mcp_error(request, error)
            message = error_message(request.id, failure)
            message["error"]["code"] = fit_code(failure.code, request.version)
            if request.row.handshake:
                # It has opened nothing.
                connection.protocol.version = ""
        connection.respond(request, None if request.is_notification else message)

    def add_middleware(self, fn: Callable[..., Any]) -> None:
        """Have a function called around every request, inside of those before it."""
        self._middleware.append(fn)
        self.may_block = True

    def _go_through(
        self, ctx: Context, handler: Callable[[Context, Json], Json | None]
    ) -> Json | None:
        """What a handler returns, by way of the middleware; None: it stays open."""
        request = ctx._request
        stays_open = False

        def serve(ctx: Context, params: Json) -> Json:
            nonlocal stays_open
            ctx.load_answers()
            result = handler(ctx, params)
            stays_open = result is None
            # What is told to all is the Registry's; they are to change a copy.
            is_shared = request.row.handshake or request.row.cache_scope == "public"
            return json.loads(encode_json(result)) if is_shared else result or {}

        result = go_through(self._middleware, ctx, request.params, serve)
        return None if stays_open else result

    def _to_mcp_error(self, request: Request, error: BaseException) -> McpError:
        """What the client is told of what a handler raised."""
        if isinstance(error, McpError):
            return error
        if isinstance(error, ToolError):
            return InternalError(str(error))
        if isinstance(error, Cancelled):
            return RequestCancelled("request cancelled")
        return InternalError(self._report(request, error))

    def _report(self, request: Request, error: BaseException) -> str:
        """Log what no handler should raise; SystemExit, too, does not end the server.

        Returns what the client is told of it.
        """
        if isinstance(error, WrongResult):
            # Whose line that was shows nowhere.
            why = str(error)
            self.log.warning(f"{request.about}: {why}")
        else:
            why = error_text(error)
            self.log.warning(f"{request.about} failed", error)
        if self._mask_errors:
            return f"{request.about} failed"
        return f"{request.about}: {why}"

    def _result_message(
        self, request: Request, result: Json, kind: str = "complete"
    ) -> Json:
        """The answer, with what every modern result carries.

        Its type (basic/index.md#resulttype), who answers, and how long it may be
        reused (server/utilities/caching.md).
        """
        if request.modern:
            # Middleware may give us a result that it keeps, and may know better.
            result = {"resultType": kind, **result}
            result["_meta"] = {**result.get("_meta", {}), META_SERVER_INFO: self._info}
            if request.row.cache_scope and kind == "complete":
                result.setdefault("ttlMs", self._cache_ttl_ms)
                result.setdefault("cacheScope", self._cache_scope(request.row))
        return result_message(request.id, result)

    def _cache_scope(self, row: Method) -> str:
        """For whom a result may be kept: "private" for "filtered list results that vary
        per user", says server/utilities/caching.md, and who knows what middleware do.
        """
        if self._middleware or self._registry.is_selective(row.paged):
            return "private"
        return row.cache_scope

    # Handlers: lifecycle, logging

    def _initialize(self, ctx: Context, params: Json) -> Json:
        declared = self._declare(ctx)
        ctx._connection.protocol.declared = declared
        return add_given(
            {
                "protocolVersion": ctx.protocol_version,
                "capabilities": declared,
                "serverInfo": fit_members(
                    self._info, MEMBER_SINCE["serverInfo"], ctx.protocol_version
                ),
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
        """One page of any list: server/utilities/pagination.md."""
        row = ctx._request.row
        start = self._parse_cursor(row, params.get("cursor"))
        end = start + self._page_size
        offers = list(self._registry.see(ctx, row.paged).values())
        result: Json = {
            row.paged: [
                fit_members(offer.wire, MEMBER_SINCE[row.paged], ctx.protocol_version)
                for offer in offers[start:end]
            ]
        }
        if end < len(offers):
            result["nextCursor"] = f"{row.name}:{end}"
        return result

    @staticmethod
    def _parse_cursor(row: Method, cursor: str | None) -> int:
        """Where a page begins. A cursor is the list, and the place in it."""
        if cursor is None:
            return 0
        place = re.fullmatch(row.name + ":([1-9][0-9]{0,8})", cursor)
        if place is None:
            raise InvalidParams(f"cursor: not from this list: {show(cursor)}")
        return int(place[1])

    # Handlers: tools, resources, prompts

    def _tools_call(self, ctx: Context, params: Json) -> Json:
        name = params["name"]
        version = ctx.protocol_version
        tool = self._registry.find(ctx, "tools", "tool", name)
        try:
            arguments = tool.signature.bind(params.get("arguments") or {})
        except InvalidParams as error:
            # Since 2025-11-25, "input validation errors should be returned as Tool
            # Execution Errors", which models can read.
            wrong = InvalidParams(f"{name}: {error}")
            if version < "2025-11-25":
                raise wrong from None
            return tool_failure(wrong.message)
        try:
            value = self._call(ctx, tool, arguments)
        except (McpError, _InputRequired, Cancelled):
            raise
        except ToolError as error:
            return fit_result(tool_failure(str(error), error.content), version)
        except BaseException as error:
            return tool_failure(self._report(ctx._request, error))
        return fit_result(make_result(tool.output.result, value), version)

    def _resources_read(self, ctx: Context, params: Json) -> Json:
        uri = params["uri"]
        resource, arguments = self._registry.find_resource(ctx, uri)
        value = self._call(ctx, resource, arguments)
        # A list of these is several contents; any other is one value, as JSON.
        kinds = set(map(type, value)) if isinstance(value, (list, tuple)) else set()
        parts = value if kinds == {EmbeddedResource} else [value]
        mime_type = resource.wire.get("mimeType")
        contents = [make_result(read_contents, uri, each, mime_type) for each in parts]
        return {"contents": contents}

    def _resources_subscribe(self, ctx: Context, params: Json) -> Json:
        uri = params["uri"]
        if not ctx._connection.carries_changes(ctx._request):
            raise MethodNotFound("resources/subscribe: no stream could tell of changes")
        self._registry.find_resource(ctx, uri)
        connection = ctx._connection
        subscribed = connection.protocol.subscribed
        if uri in subscribed:
            return {}
        if len(subscribed) >= MAX_QUEUED or not connection.keep(size_of(uri)):
            raise InvalidRequest(f"more than {len(subscribed)} subscriptions")
        # Another thread may have been faster.
        token = object()
        if subscribed.setdefault(uri, token) is not token:
            connection.let_go(size_of(uri))
        return {}

    def _resources_unsubscribe(self, ctx: Context, params: Json) -> Json:
        connection = ctx._connection
        uri = params["uri"]
        if connection.protocol.subscribed.pop(uri, None) is not None:
            connection.let_go(size_of(uri))
        return {}

    def _prompts_get(self, ctx: Context, params: Json) -> Json:
        name = params["name"]
        prompt = self._registry.find(ctx, "prompts", "prompt", name)
        try:
            arguments = prompt.signature.bind_text(params.get("arguments") or {})
        except InvalidParams as error:
            raise InvalidParams(f"{name}: {error}") from None
        messages = make_result(prompt_messages, self._call(ctx, prompt, arguments))
        # In every revision, the content of a prompt's message is a single block.
        fitted = [
            {**message, "content": fit_block(message["content"], ctx.protocol_version)}
            for message in split_messages(messages)
        ]
        result = {"messages": fitted}
        return add_given(result, description=prompt.wire.get("description"))

    def _completion_complete(self, ctx: Context, params: Json) -> Json:
        argument = params["argument"]
        check_members(_ARGUMENT, argument, "argument.")
        name = argument["name"]
        key, offer = self._registry.find_reference(ctx, params["ref"])
        known = offer.signature.schema["properties"]
        if name not in known:
            raise InvalidParams(f"{key} has no {show(name)}" + suggest(name, known))
        text = argument["value"]
        completer = self._registry.completers.get((key, name))
        if completer is None:
            allowed = offer.signature.completions(name)
            values = [each for each in allowed if each.lower().startswith(text.lower())]
        else:
            ctx._request.about = f"{key}: the completion of {name}"
            others = (params.get("context") or {}).get("arguments") or {}
            job = partial(completer, ctx, text, others)
            values = run_job(ctx, job, self._run_on)
        return {
            "completion": {
                "values": values[:MAX_COMPLETIONS],
                "total": len(values),
                "hasMore": len(values) > MAX_COMPLETIONS,
            }
        }

    def _extension(self, ctx: Context, params: Json) -> Json:
        _, fn = self._registry.methods[ctx._request.method]
        result = run_job(ctx, partial(fn, ctx, params), self._run_on)
        if ctx._request.is_notification:
            return {}
        if not isinstance(result, dict):
            raise WrongResult(f"the result: expected a dict, got {show(result)}")
        return result

    # Handlers: subscriptions

    def _subscriptions_listen(self, ctx: Context, params: Json) -> None:
        """Open a subscription. Its request stays open as long as that lasts."""
        connection = ctx._connection
        if not connection.carries_changes(ctx._request):
            raise MethodNotFound("listening needs a connection that stays open")
        granted = self._grant(params["notifications"], self._declare(ctx))
        self._forget_closed()
        if len(self._subscriptions) >= MAX_LISTENERS:
            raise InvalidRequest(f"{MAX_LISTENERS} streams are open")
        subscription = Subscription(connection, ctx._request, granted)
        register = partial(self._subscriptions.setdefault, subscription, True)
        subscription.acknowledge(register)

    def _grant(self, wanted: Json, declared: Json) -> Json:
        """The part of a client's filter that this server can serve."""
        granted: Json = {
            change.member: True
            for change in LIST_CHANGES.values()
            if wanted.get(change.member) is True
            and has_capability(declared, change.capability)
        }
        uris = wanted.get("resourceSubscriptions", [])
        where = "notifications.resourceSubscriptions"
        if not isinstance(uris, list) or not all(isinstance(uri, str) for uri in uris):
            raise InvalidParams(f"{where}: expected strings, got {show(uris)}")
        if len(uris) + sum(map(len, uris)) > MAX_URIS:
            raise InvalidParams(f"{where}: expected {MAX_URIS} characters at most")
        if uris and has_capability(declared, RESOURCE_UPDATE.capability):
            granted["resourceSubscriptions"] = uris
        return granted

    # Calling registered functions

    def _call(self, ctx: Context, offer: Offer, arguments: Json) -> Any:
        """What a registered function returns, called where run_on says, in its time.

        When that is over, the client gets a failure.
        """
        signature = offer.signature
        if signature.context is not None:
            arguments[signature.context] = ctx
        job = partial(signature.fn, **arguments)
        if offer.timeout is not None:
            name = offer.wire["name"]
            late = tool_failure(f"{name}: timed out after {offer.timeout:g} seconds")
            answer = self._result_message(ctx._request, late)
            job = partial(run_in_time, ctx, job, offer.timeout, answer)
        try:
            return run_job(ctx, job, self._run_on)
        except NotFound as error:
            # Clients tell it from other wrong parameters by its data.
            data = error.data or {}
            if not isinstance(data, dict):
                raise
            request = ctx._request
            member = "uri" if "uri" in request.params else NOT_FOUND
            data = {member: request.about, **data}
            raise missing(error.message, data, request.version) from error


###############################################################################
# 34. Server ##################################################################
###############################################################################
# What users see: registering, changing, running.
class Server:
    """An MCP server: register functions, then run() it.

        server = Server("weather", version="1.0")

        @server.tool
        def forecast(city: str, days: int = 3) -> list: ...

        server.run()

    Safe from any thread. `name` and `version` are what it is called.
    """

    def __init__(
        self,
        name: str,
        version: str = "0",
        *,
        title: str | None = None,
        page_size: int = 100,
        description: str | None = None,
        instructions: str | None = None,
        state_key: Any = None,
        website_url: str | None = None,
        icons: list[Json] | None = None,
        run_on: Callback = None,
        max_workers: int = MAX_WORKERS,
        max_message: int = MAX_MESSAGE,
        cache_ttl_ms: int = 0,
        mask_errors: bool = False,
        extensions: Json | None = None,
        trace: _Trace = None,
    ) -> None:
        """A server that offers nothing yet.

        name: what programs call it; TypeError unless it is text
        version: the server's, not the protocol's
        title: what users see in place of the name
        page_size: how many tools, resources or prompts one page of a list has
        description: what it is
        instructions: how a model should use it
        state_key: at least 16 bytes or characters, or a list of such keys: the first
            signs `requestState`, all verify. Processes with the same key and name take
            each other's; the default is a random one
        website_url: where to read more
        icons: as the wire has them: [{"src": URL, "mimeType": ...}, ...]
        run_on: run_on(job) calls job() where functions must run: a MainThread; or the
            submit of an executor with one thread, as SQLite wants it; the default is a
            worker thread
        max_workers: how many functions run at once for one connection
        max_message: the most bytes that a message may have
        cache_ttl_ms: for how long clients may reuse lists and resources
        mask_errors: keep the texts of unexpected exceptions from clients
        extensions: what to declare of extensions of the protocol: {"com.example/thing":
            {}}, with their settings; see method()
        trace: shows every message: see Client
        """
        if not isinstance(name, str) or not name:
            raise TypeError(f"name: expected a text, got {show(name)}")
        needed = ("page_size", "max_workers", "max_message", "cache_ttl_ms")
        check_options(*needed, "mask_errors", **locals())
        self.name = name
        self.version = version
        info = add_given(
            {"name": name, "version": version},
            title=title,
            description=description,
            websiteUrl=website_url,
            icons=icons,
        )
        self._registry = Registry(run_on, check_extensions(extensions))
        self._endpoint = ServerEndpoint(
            self._registry,
            info,
            instructions,
            signer=Signer(state_key, name),
            page_size=page_size,
            run_on=run_on,
            max_workers=max_workers,
            max_message=max_message,
            cache_ttl_ms=cache_ttl_ms,
            mask_errors=mask_errors,
        )
        self._endpoint.transcript = open_transcript(trace, self._endpoint.log)

    @property
    def instructions(self) -> str | None:
        """How a model should use this server."""
        return self._endpoint.instructions

    @instructions.setter
    def instructions(self, text: str | None) -> None:
        """Set it, for clients that connect from now on."""
        self._endpoint.instructions = text

    # Registering. To type checkers, a function that was registered keeps its type.

    if TYPE_CHECKING:

        @overload
        def tool(
            self,
            fn: Function,
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
        ) -> Function: ...

        @overload
        def tool(
            self,
            fn: None = None,
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
        ) -> Callable[[Function], Function]: ...

    def tool(
        self,
        fn: Function | None = None,
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
    ) -> Any:
        """Offer a function as a tool: server/tools.md. Clients are told.

        As @server.tool, as @server.tool(name="x"), or as a plain call with the
        function. Its hints become the input schema. It returns text, an Image, Audio,
        ResourceLink or EmbeddedResource, a list of those, or any value with a JSON
        form; it raises ToolError for what the caller can act on. A parameter of type
        Context gets one. An `async def` function is run by asyncio.run, on a worker, and
        cancelled with its request; so are those of resources, prompts and completions.

        fn: the function; as a decorator with options, none
        name: the tool's; else the function's
        title: what users see in place of the name
        description: what models read; else the docstring, without its parameters: what
            it says of these goes to the input schema
        annotations: hints on what it does: {"readOnlyHint": True}, say
        icons: [{"src": URL}, ...]
        input_schema: in place of the one that hints make: of an object; those arguments
            that its `properties` name, or those of what it is made of (allOf, $ref and
            such), come as they are, others do not come
        output_schema: in place of the one that the return hint makes
        meta: the wire's `_meta`
        structured: whether results have structured content; else the return hint, or
            the value, says so: text and content objects have none
        timeout: seconds, after which the client gets a failure
        visible: visible(ctx) says who may see it, asked for lists and for calls, where
            run_on says: for who may not, it does not exist. What it raises hides it

        Raises TypeError for hints without a JSON Schema, ValueError for a name or a
        schema that is none, for an icon without a URL, for reserved keys in meta, and
        if HTTP headers mirror what not all may see.
        """

        def describe(function: Function) -> tuple[str, str, Offer]:
            check_options(
                name=name,
                title=title,
                description=description,
                annotations=annotations,
                output_schema=output_schema,
                structured=structured,
                timeout=timeout,
                icons=icons,
                meta=meta,
            )
            signature = Signature(function, Context, input_schema)
            tool_name = name or signature.name
            if not re.fullmatch(r"[A-Za-z0-9_.\-]{1,128}", tool_name):
                raise ValueError(
                    f"tool name {show(tool_name)}: "
                    "expected 1 to 128 of A-Z a-z 0-9 _ - .; give it one by name="
                )
            output = Output(function, output_schema, structured, tool_name)
            wire = add_given(
                {"name": tool_name},
                title=title,
                description=description or signature.description,
                inputSchema=signature.schema,
                outputSchema=output.schema,
                annotations=annotations,
                icons=icons,
                _meta=meta,
            )
            headers = header_parameters(signature.schema)
            if headers and visible is not None:
                # They are judged before it is known who asks, and would tell of it.
                raise ValueError(f"{tool_name}: visible: not with Param(header=)")
            offer = Offer(
                wire, signature, output, timeout, headers=headers, visible=visible
            )
            return "tools", tool_name, offer

        return self._register("tool", fn, describe)

    add_tool = tool

    if TYPE_CHECKING:

        @overload
        def resource(
            self,
            uri: str,
            fn: None = None,
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
        ) -> Callable[[Function], Function]: ...

        @overload
        def resource(
            self,
            uri: str,
            fn: Function,
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
        ) -> Function: ...

        @overload
        def resource(
            self,
            uri: Function,
            fn: str,
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
        ) -> Function: ...

    def resource(
        self,
        uri: Any = None,
        fn: Any = None,
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
    ) -> Any:
        """Offer what a function returns as a resource: server/resources.md.

        As @server.resource("config://app"), or as a plain call with the function, in
        either order. The function returns text, bytes, an EmbeddedResource, a list of
        those, or any value with a JSON form. A URI with {expressions} is a template;
        their names are the function's parameters: {x} is one step of a path or less,
        {+x} anything, also slashes and `..`, {?a,b} at the end are optional query
        values.

        uri: the URI, or the template
        fn: the function; as a decorator, none
        name: else the function's
        title: what users see in place of the name
        description: else the docstring
        mime_type: else what is returned decides
        icons: [{"src": URL}, ...]
        annotations: for whom it is: {"audience": ["user"], "priority": 0.5}, say
        size: bytes; not of a template
        meta: the wire's `_meta`
        visible: visible(ctx) says who may see it, as of a tool

        Raises ValueError for what is no URI or template, for an icon without a URL, and
        for reserved keys in meta; TypeError if its names and the parameters differ.
        """
        if callable(uri):
            uri, fn = fn, uri
        if not isinstance(uri, str):
            raise TypeError(
                "resource: expected its URI, as in "
                f'@server.resource("config://app"), got {show(uri)}'
            )

        def describe(function: Function) -> tuple[str, str, Offer]:
            check_options(
                name=name,
                title=title,
                description=description,
                mime_type=mime_type,
                annotations=annotations,
                size=size,
                icons=icons,
                meta=meta,
            )
            signature = Signature(function, Context)
            template = UriTemplate(uri)
            check_template(template, signature)
            own_name = uri if signature.name == LAMBDA else signature.name
            kind = "resources"
            member = "uri"
            if template.names:
                kind = "resourceTemplates"
                member = "uriTemplate"
            wire = add_given(
                {member: uri, "name": name or own_name},
                title=title,
                mimeType=mime_type,
                description=description or signature.description,
                annotations=annotations,
                size=None if template.names else size,
                icons=icons,
                _meta=meta,
            )
            return kind, uri, Offer(wire, signature, template=template, visible=visible)

        return self._register("resource", fn, describe)

    add_resource = resource

    if TYPE_CHECKING:

        @overload
        def prompt(
            self,
            fn: Function,
            *,
            name: str | None = None,
            description: str | None = None,
            title: str | None = None,
            icons: list[Json] | None = None,
            meta: Json | None = None,
            visible: Callable[[Context], bool] | None = None,
        ) -> Function: ...

        @overload
        def prompt(
            self,
            fn: None = None,
            *,
            name: str | None = None,
            description: str | None = None,
            title: str | None = None,
            icons: list[Json] | None = None,
            meta: Json | None = None,
            visible: Callable[[Context], bool] | None = None,
        ) -> Callable[[Function], Function]: ...

    def prompt(
        self,
        fn: Function | None = None,
        *,
        name: str | None = None,
        description: str | None = None,
        title: str | None = None,
        icons: list[Json] | None = None,
        meta: Json | None = None,
        visible: Callable[[Context], bool] | None = None,
    ) -> Any:
        """Offer a function as a prompt: server/prompts.md. Clients are told.

        As @server.prompt, as @server.prompt(name="x"), or as a plain call with the
        function. Its arguments come as text, and are converted as their hints say. It
        returns text, a Message, a content object, or a list of those.

        fn: the function; as a decorator with options, none
        name: else the function's
        description: else the docstring
        title: what users see in place of the name
        icons: [{"src": URL}, ...]
        meta: the wire's `_meta`
        visible: visible(ctx) says who may see it, as of a tool

        Raises TypeError for hints without a JSON Schema, ValueError for an icon without
        a URL, and for reserved keys in meta.
        """

        def describe(function: Function) -> tuple[str, str, Offer]:
            check_options(
                name=name, title=title, description=description, icons=icons, meta=meta
            )
            signature = Signature(function, Context)
            if not name and signature.name == LAMBDA:
                raise ValueError(f"prompt name {show(LAMBDA)}: give it one by name=")
            wire = add_given(
                {"name": name or signature.name},
                title=title,
                arguments=prompt_arguments(signature) or None,
                description=description or signature.description,
                icons=icons,
                _meta=meta,
            )
            return "prompts", wire["name"], Offer(wire, signature, visible=visible)

        return self._register("prompt", fn, describe)

    add_prompt = prompt

    def completion(
        self, ref: str, argument: str = ""
    ) -> Callable[[Function], Function]:
        """Complete an argument while a user types it: server/utilities/completion.md.

        As @server.completion("review", "code"). The function gets the text so far, and
        if it takes two, the other arguments as a dict; it returns the values in an
        order that puts the best first. Literal, Enum and bool arguments complete by
        themselves.

        ref: a prompt's name, or a template's URI; it is registered before
        argument: which of its arguments

        Raises ValueError if there is no such argument, TypeError for another function.
        """
        if not isinstance(ref, str):
            raise TypeError(
                "completion: expected what it completes, as in "
                f'@server.completion("review", "code"), got {show(ref)}'
            )
        self._registry.check_completed(ref, argument)

        def register(function: Function) -> Function:
            check_handler("completion", function)
            name = getattr(function, "__name__", type(function).__name__)
            try:
                check_yields(function, may_yield=True)
                count = len(read_parameters(function)[0])
            except TypeError as error:
                raise TypeError(f"{name}: {error}") from None
            if count not in (1, 2):
                raise TypeError(
                    f"{name}: expected a function of the text so far, and if it likes "
                    f"of the other arguments, got {count} parameters"
                )

            def complete(ctx: Context, *given: object) -> list[str]:
                values = call_function(ctx, partial(function, *given[:count]))
                if isinstance(values, str) or not isinstance(values, Iterable):
                    raise WrongResult(
                        f"the result: expected a list of texts, got {show(values)}"
                    )
                # All of a generator's values, before the job is done.
                return [str(value) for value in values]

            self._registry.put_completer(ref, argument, complete)
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

        As a decorator of fn(ctx, params), which runs as a tool's function does, and may
        be `async def`. It returns the result, a dict as on the wire, whose members are
        the extension's business, a resultType, too; for a notification, anything. What
        it raises is answered as ever. In the modern era it cannot ask the client.

        name: the method; ValueError for one of this protocol's own, and for what no
            header can hold
        extension: what it belongs to, one of those that the server declares; else
            ValueError. Clients that did not declare that are refused. Without one, any
            client may call it
        """
        is_text = isinstance(name, str) and re.fullmatch("[!-~]{1,128}", name)
        if not is_text or name in METHODS or name.startswith("rpc."):
            raise ValueError(
                f'method: expected a new one, such as "thing/do", got {show(name)}'
            )
        declared = self._registry.capabilities.get("extensions", {})
        if extension is not None and extension not in declared:
            raise ValueError(
                f"{name}: extension: declare it: "
                f"Server(extensions={{{show(extension)}: {{}}}})"
            )

        def register(fn: Function) -> Function:
            check_function(name, fn, "ctx", "params")
            self._registry.put_method(name, extension or "", fn)
            return fn

        return register

    def middleware(self, fn: Function) -> Function:
        """Have a function called around every request, `initialize`, `server/discover`
        and lists too, and around notifications of extensions, as @server.middleware.
        The first one is the outermost.

            @server.middleware
            def log(ctx, method, params, call_next):
                begun = time.monotonic()
                try:
                    return call_next()
                finally:
                    print(method, params.get("name"), time.monotonic() - begun)

        fn: fn(ctx, method, params, call_next) returns a result as on the wire, a dict:
            that of call_next(), which goes on as it came, or of call_next(params),
            which goes on with others; or one of its own. What it raises is answered as
            what a tool's function raises, McpError as it is. Else TypeError

        It runs on the thread of the request, not where run_on says, and again for each
        answer of the client's, as the functions do; a question to a modern client
        passes it as an exception that `except Exception` leaves alone. The result of
        subscriptions/listen is {}, as soon as it is open: its own comes at its end. On
        stdio, nothing is read while `initialize` is served; if that fails, the session
        is not open. What is refused before any handler is not seen: a method that does
        not exist, say.
        What revision and transport want in a result is added later. Lists are then
        "private" to caches, unless the result has another cacheScope.
        """
        parameters = ("ctx", "method", "params", "call_next")
        check_plain_function("middleware", fn, *parameters)
        self._endpoint.add_middleware(fn)
        return fn

    def _register(
        self,
        noun: str,
        fn: Function | None,
        describe: Callable[[Function], tuple[str, str, Offer]],
    ) -> Any:
        """Offer fn now, and return it; without one, return a decorator that does so.

        describe(function) makes what the Registry puts: its kind, its name, the offer.
        """

        def register(function: Function) -> Function:
            check_handler(noun, function)
            kind, name, offer = describe(function)
            if offer.visible is not None:
                check_plain_function("visible", offer.visible, "ctx")
                self._endpoint.may_block = True
            before = self._registry.put(kind, name, offer)
            if before is not None:
                self._endpoint.log.warning(
                    f"{noun} {name}: {tell_place(function)} takes the place of "
                    f"{tell_place(before.signature.fn)}; remove_{noun}() goes before, "
                    "where that is meant"
                )
            self._endpoint.tell(OFFER_KINDS[kind].change)
            return function

        return register if fn is None else register(fn)

    # Changing

    def remove_tool(self, name: str) -> None:
        """Stop offering a tool. Clients are told. KeyError for an unknown name."""
        self._remove("tools", name)

    def remove_resource(self, uri: str) -> None:
        """Stop offering a resource or template; clients are told.

        uri: as it was registered; KeyError for what was not
        """
        is_fixed = uri in self._registry.offers["resources"]
        self._remove("resources" if is_fixed else "resourceTemplates", uri)

    def remove_prompt(self, name: str) -> None:
        """Stop offering a prompt. Clients are told. KeyError for an unknown name."""
        self._remove("prompts", name)

    def _remove(self, kind: str, name: str) -> None:
        self._registry.remove(kind, name)
        self._endpoint.tell(OFFER_KINDS[kind].change)

    def resource_updated(self, uri: str) -> None:
        """Tell the clients that subscribed to it that a resource has changed.

        uri: the resource's; of a template, the one that was read. ValueError for what
            is no URI

        Its `visible` function is asked on this thread, for those who listen.
        """
        self._endpoint.tell(RESOURCE_UPDATE, check_uri("uri", uri))

    # Running

    if TYPE_CHECKING:

        @overload
        def run(self, transport: str = "stdio") -> None: ...

        @overload
        def run(
            self,
            transport: Literal["http"],
            *,
            host: str = "127.0.0.1",
            port: int = 8000,
            path: str = "/mcp",
            sock: Socket | None = None,
            verify: Verify | None = None,
            resource_metadata: Json | None = None,
            allowed_hosts: Iterable[str] | None = None,
            allowed_origins: Iterable[str] | None = None,
            stateless: bool = False,
            legacy_sse: bool = True,
            health: str | None = None,
            max_connections: int = MAX_CONNECTIONS,
            max_body: int = MAX_BODY,
            max_kept: int = MAX_KEPT,
            max_sessions: int = MAX_SESSIONS,
            session_seconds: float = SESSION_SECONDS,
            ssl_context: SSLContext | None = None,
            grace: float = GRACE_SECONDS,
        ) -> None: ...

    def run(self, transport: str = "stdio", **options: Any) -> None:
        """Serve until there is nothing more to serve. Blocks.

        transport: "stdio" serves one client on stdin and stdout until the input ends
            (basic/transports/stdio.md); meanwhile print() and child processes write to
            stderr, and input() finds nothing. "http" serves until a signal comes, and
            says on stderr where
        options: for "http" only: those of start_http, but port=8000 unless given; and
            `grace`, the seconds that handlers get when SIGTERM comes

        On the main thread, Ctrl-C ends it, and so does SIGTERM, unless the program has
        a handler of its own for that. Handlers are cancelled, and get a moment to tidy
        up: see Pump.run and HttpServer.serve_until. Then it returns, and what follows
        is run: without more, the exit status is 0. A second signal ends all waiting.

        Raises ValueError for another transport, for "stdio" with options, and as
        start_http does.
        """
        if transport == "http":
            if options.get("sock") is None:
                options.setdefault("port", 8000)
            grace = options.pop("grace", GRACE_SECONDS)
            check_options("grace", grace=grace)
            with StopSignals() as stop, self.start_http(**options) as http:
                with suppress(OSError, ValueError):
                    told = f"{self.name}: {http.url} (Ctrl-C ends it)"
                    write_to_stderr(printable(told))
                http.serve_until(stop, grace)
            return
        if transport != "stdio":
            raise ValueError(
                f'transport: expected "stdio" or "http", got {show(transport)}'
            )
        if options:
            given = [
                f"{name}={value}" if type(value) is int else f"{name}=..."
                for name, value in options.items()
            ]
            raise ValueError(
                "stdio has no options; to serve HTTP, write "
                f'run("http", {", ".join(given)})'
            )
        with StopSignals() as stop, private_wire() as (reader, writer):
            self._serve(reader, writer, stop)
            self._endpoint.log.flush(LOG_SECONDS)

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
        legacy_sse: bool = True,
        health: str | None = None,
        max_connections: int = MAX_CONNECTIONS,
        max_body: int = MAX_BODY,
        max_kept: int = MAX_KEPT,
        max_sessions: int = MAX_SESSIONS,
        session_seconds: float = SESSION_SECONDS,
        ssl_context: SSLContext | None = None,
    ) -> HttpServer:
        """Serve HTTP in the background: basic/transports/streamable-http.md.

        Returns a handle with `url`, `port` and `close()`, which is a context manager,
        too. Raises ValueError for a value that an option cannot have, and TypeError for a
        function that is not called like that. The logger
        "mcp_lite.http" gets a line for each request: INFO, or WARNING if it was refused.

        host: the address to listen at; "" or "0.0.0.0" is every one
        port: 0 is a free one; OSError for one that is taken
        path: where the endpoint is
        sock: in place of host and port, a socket that listens already, such as
            systemd's, socket.socket(fileno=3), or a Unix socket; close() closes it
        verify: verify(token) returns the claims of a bearer token, or None (401), or
            raises PermissionError(scope) (403); or a dict of tokens and their claims,
            such as {"sub": "ada"}; without it, nobody needs a token
        resource_metadata: where tokens come from, as RFC 9728 has it: {"resource": this
            server's URL, "authorization_servers": [URLs], ...}; else ValueError
        allowed_hosts: more names of this host, as clients call it; "*": any
        allowed_origins: sites whose pages may call: "https://app.example"; "*": any
        stateless: open no sessions: several processes can share the clients
        legacy_sse: serve the HTTP+SSE of 2024-11-05 at /sse, too
        health: a path, such as "/health", where whoever asks gets a 200, and no more
        max_connections: how many may be open, three quarters of them to listen; for one
            more, one goes that is idle, or that listens for another one that does, of
            who has the most; if none is idle, it is refused (503)
        max_body: the most bytes of a request; more are refused (413)
        max_kept: the most bytes to keep for clients at once, but at least four bodies;
            who wants more is refused (503), and no one gets more than a half
        max_sessions: how many legacy sessions may be open; for one more, an idle one
            goes, of who has the most; if none is idle, it is refused (503)
        session_seconds: after which an idle one may go for a new one
        ssl_context: an ssl.SSLContext: serve https
        """
        if stateless is True:
            legacy_sse = False  # it is for sessions
        check_path("path", path)
        endpoint = HttpEndpoint(
            self._endpoint,
            self._endpoint.log,
            self._endpoint.max_workers,
            path=path,
            verify=verify,
            resource_metadata=resource_metadata,
            allowed_hosts=allowed_hosts,
            allowed_origins=allowed_origins,
            stateless=stateless,
            legacy_sse=legacy_sse,
            health=health,
            max_body=max_body,
            max_kept=max_kept,
            max_connections=max_connections,
            max_sessions=max_sessions,
            session_seconds=session_seconds,
        )
        return listen_http(
            endpoint, host, port, sock, path, max_connections, ssl_context
        )

    def wsgi_app(
        self,
        *,
        path: str | None = None,
        verify: Verify | None = None,
        resource_metadata: Json | None = None,
        allowed_hosts: Iterable[str] | None = None,
        allowed_origins: Iterable[str] | None = None,
        stateless: bool = True,
        legacy_sse: bool = False,
        health: str | None = None,
        max_body: int = MAX_BODY,
        max_kept: int = MAX_KEPT,
        max_sessions: int = MAX_SESSIONS,
        session_seconds: float = SESSION_SECONDS,
    ) -> Callable[..., list[bytes]]:
        """A WSGI application: for gunicorn, mod_wsgi, Django, Flask, wsgiref.

        In WSGI no header has a "_" in its name: a tool whose `x-mcp-header` has one
        cannot be called by modern clients.

        path: where the endpoint is; without one, it answers at whatever path the
            application is mounted
        verify: verify(token) returns the claims of a bearer token, or None (401), or
            raises PermissionError(scope) (403); or a dict of tokens and their claims,
            such as {"sub": "ada"}; without it, nobody needs a token
        resource_metadata: where tokens come from, as RFC 9728 has it: {"resource": this
            server's URL, "authorization_servers": [URLs], ...}; else ValueError
        allowed_hosts: names of this host, as clients call it; "*": any
        allowed_origins: sites whose pages may call: "https://app.example"; "*": any
        stateless: open no sessions; with them, there must be a single process
        legacy_sse: serve the HTTP+SSE of 2024-11-05 at /sse, too; this needs a path,
            and sessions
        health: a path, such as "/health", where whoever asks gets a 200, and no more
        max_body: the most bytes of a request; more are refused (413)
        max_kept: the most bytes to keep for clients at once, but at least four bodies;
            who wants more is refused (503), and no one gets more than a half
        max_sessions: how many legacy sessions may be open; for one more, an idle one
            goes, of who has the most; if none is idle, it is refused (503)
        session_seconds: after which an idle one may go for a new one
        """
        endpoint = HttpEndpoint(
            self._endpoint,
            self._endpoint.log,
            self._endpoint.max_workers,
            path=path,
            verify=verify,
            resource_metadata=resource_metadata,
            allowed_hosts=allowed_hosts,
            allowed_origins=allowed_origins,
            stateless=stateless,
            legacy_sse=legacy_sse,
            health=health,
            max_body=max_body,
            max_kept=max_kept,
            max_sessions=max_sessions,
            session_seconds=session_seconds,
        )
        return WsgiApp(endpoint)

    @cached_property
    def wsgi(self) -> Callable[..., list[bytes]]:
        """The WSGI application of this server, without options; see wsgi_app."""
        return self.wsgi_app()

    def serve(self, reader: Any, writer: Any) -> None:
        """Serve one client over two binary streams, until the input ends. Blocks.

        Each message is a line. For several clients, call it on a thread for each.

        reader: where the client's messages come from: a socket's makefile("rb"), say
        writer: where the answers go: its makefile("wb")
        """
        self._serve(reader, writer, StopSignals())

    def _serve(self, reader: Any, writer: Any, stop: StopSignals) -> None:
        transport = StreamTransport(reader, writer)
        connection = self.connect(transport)
        try:
            Pump(connection, stop).run()
        finally:
            self.disconnect(connection)
            transport.let_go()

    def connect(self, transport: Transport) -> Connection:
        """Begin a conversation with one client, over a transport of your own.

        transport: what takes the answers; asked for write() and may_write() only

        Where there are two streams, serve() is easier. Returns the conversation. Feed
        it what the client says, on one thread at a time, and workers run the handlers;
        at the end give it to disconnect():

            connection = server.connect(transport)
            for data in iter(read, b""):
                connection.dispatch(connection.feed(data))
            server.disconnect(connection)
        """
        connection = self._endpoint.open_connection(transport)
        self._endpoint.connected(connection)
        return connection

    def disconnect(self, connection: Connection, seconds: float = 0.0) -> None:
        """End a conversation that connect() has begun. Idempotent, from any thread.

        connection: what connect() has returned
        seconds: how long to wait for the handlers, which are cancelled, and then as
            long again for what on_cancel() calls

        What is in flight gets no answer any more. To have it answered first, do before
        what Pump.run does at the end of the input, in that order.
        """
        connection.close(ConnectionClosed("the client closed the connection"), seconds)
        self._endpoint.disconnected(connection)

    def handle(self, message: Json) -> Json | None:
        """Answer one modern message, on this thread: for serverless functions, say.

        message: as JSON has it, decoded

        Returns the answer in the same form; None for a notification. Progress and logs
        are dropped, and listening is refused.
        """
        # Takes the answer; nothing is read from it by the connection.
        wire = io.BytesIO()
        connection = self._endpoint.open_connection(StreamTransport(wire, wire))
        connection.answers_only = True
        if connection.trace is not None:
            connection.trace.received(encode_message(message))
        event = connection.protocol.receive(message)
        if not isinstance(event, Request):
            return event.reply if isinstance(event, Refusal) else None
        self._endpoint.serve_request(connection, event)
        # A helper may be about to write that the tool's time is over.
        connection.helpers.close(DRAIN_SECONDS)
        connection.flush()
        answer = wire.getvalue()
        return dict(json.loads(answer)) if answer else None


###############################################################################
# 35. Calls ###################################################################
###############################################################################
# What a Client is made of: a call, round after round until its last answer; a
# subscription; and the endpoint, which hears what the server says by itself and answers
# its questions by the user's callbacks. Knows what the two eras make of each.
class Call:
    """A call in flight, as `Client.start_call` returns it.

    result() is for one thread; cancel() and done() are for any. The life of a call,
    round after round (basic/patterns/mrtr.md: a result may ask questions; the client
    answers them, and sends the request again, under another id):

        held --the list of tools is read, for what headers mirror--> sent
        sent --the last answer--> finished | failed
         ^ |
         | `--another one--> asked --a worker goes on--> answering --it cannot--> failed
         |                                                   |
         `---------------------------------------------------'
        anywhere: --cancel(), or its time is over--> cancelled
                  --close(), or the server ends--> failed

    It goes on by itself, whether or not anybody waits in result(). The connection holds
    its waiter from beginning to end, also between two rounds: so cancel() and close()
    find it anywhere, and what they have ended is not sent again.
    """

    def __init__(
        self,
        client: Client,
        method: str,
        params: Json,
        on_progress: Callback,
        deadline: float,
    ) -> None:
        self._client = client
        self._connection = client._require_connection()
        self._params = params
        self._on_progress = on_progress
        # By time.monotonic(); for all rounds, and what happens between them.
        self._deadline = deadline
        # How many rounds have ended in another question. Only the worker that goes on
        # with the call counts: there is one at a time.
        self._rounds = 0
        # The result, or why there is none, once result() has it.
        self._outcome: Json | BaseException | None = None
        # It tells that the server is still at it: then only the deadline ends the wait.
        wants_progress = on_progress is not None or client.total_timeout is not None
        self._waiter = Waiter(method, wants_progress, goes_on=self._go_on_after)
        self._waiter.questions = client.max_questions
        if self._must_know_mirrors():
            self._connection.hold(self._waiter)
            # By one thread: the first one reads the list for all that come meanwhile.
            # No worker: they may all run callbacks that make first calls.
            lister = self._connection.lister
            self._connection.errands.run(partial(lister.submit, self._begin))
        else:
            self._connection.request(self._waiter, params)

    def _must_know_mirrors(self) -> bool:
        """Whether what headers mirror of the arguments is not known yet, and wanted."""
        transport = self._connection.transport
        return (
            transport.mirrors
            and method_row(self._waiter.method).mirrors_arguments
            and bool(self._params.get("arguments"))
            and self._connection.protocol.version >= FIRST_MODERN
            and not self._client._endpoint.knows_mirrors
        )

    def _begin(self) -> None:
        """Send the request that was held until now, unless it has ended."""
        try:
            self._client._learn_mirrors()
            self._connection.request(self._waiter, self._params)
        except Exception as error:
            self._fail(error)

    def result(self, timeout: float | None = None) -> Json:
        """Block until the last answer is here. Returns the result, as on the wire.

        timeout: in seconds, for all rounds together, else the client's; it starts anew
            with each progress notification, and if it ends while another thread answers
            a question of the server's; the client's `total_timeout` does not

        The progress callback runs in this thread; what it raises ends the call. Raises
        McpError, Timeout (and the call is cancelled), Cancelled, ConnectionClosed.
        Asked again, it returns or raises the same.
        """
        if self._outcome is None:
            seconds = self._client.timeout if timeout is None else timeout
            self._outcome = self._wait(seconds)
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        return self._outcome

    def value(self, timeout: float | None = None) -> Any:
        """Block until the tool's value is here, as Client.call() gives it.

        timeout: as result() has it

        Raises as Client.call() does.
        """
        return value_of(self.checked_result(timeout))

    def checked_result(self, timeout: float | None = None) -> Json:
        """The result, checked as Client.call_tool() gives it.

        timeout: as result() has it
        """
        result = _with_objects(self.result(timeout), "content")
        client = self._client
        if client._validate and not result.get("isError"):
            # The seconds start anew, as with each sign of life; the other does not.
            patience = client.timeout if timeout is None else timeout
            until = min(self._deadline, time.monotonic() + patience)
            client._check_result(str(self._params.get("name")), result, until)
        return result

    def _wait(self, seconds: float) -> Json | BaseException:
        try:
            return self._connection.wait(
                self._waiter, seconds, self._on_progress, self._deadline
            )
        except BaseException as error:
            # Mostly the wait has cancelled it; but Ctrl-C may come before it has begun.
            self.cancel(error_text(error))
            return error

    def cancel(self, reason: str | None = None) -> None:
        """Tell the server to stop; result() raises Cancelled. No effect if too late.

        reason: for the server's log
        """
        if self._connection.abandon(self._waiter, reason):
            self._waiter.inbox.put(("cancelled", None))

    def done(self) -> bool:
        """Whether result() would return, or raise, at once."""
        if self._outcome is not None:
            return True
        return not self._is_open() and not self._waiter.inbox.empty()

    def _is_open(self) -> bool:
        return self._connection.is_open(self._waiter)

    # The rounds. Each answer is heard; unless it is the last, a worker goes on: takes
    # the step that the answer asks for, and sends the request again.
    def _go_on_after(self, answer: Answer) -> bool:
        """Take an answer, on the reading thread. True if it is not the last one."""
        step = self._step_after(answer)
        if step is None:
            return False
        job = partial(self._go_on, step, answer.result or {})
        self._connection.workers.submit(job)
        return True

    def _step_after(self, answer: Answer) -> Callable[[Json], Json] | None:
        """What a worker does next, given the result; None after the last answer."""
        mismatch = isinstance(answer.error, HeaderMismatch) and self._rounds == 0
        # Only for what mirrors arguments: tools/list must not wait for itself.
        if mismatch and method_row(self._waiter.method).mirrors_arguments:
            return self._read_tools_again
        if answer.error is not None or self._connection.protocol.version < FIRST_MODERN:
            return None
        # "clients MUST treat an absent resultType as 'complete'"
        kind = str(answer.result.get("resultType", "complete"))
        # "and include any additional values of supported extensions"
        has_others = self._client._endpoint.extensions
        step = RESULT_TYPES.get(kind, "" if has_others else "_refuse_result")
        return getattr(self, step) if step else None

    def _go_on(self, step: Callable[[Json], Json], result: Json) -> None:
        """Send the request again, with what the step adds; unless it has ended."""
        if not self._is_open():
            return
        self._rounds += 1
        try:
            if self._rounds > MAX_ROUNDS:
                raise InternalError(
                    f"{self._waiter.method}: the server asked more than "
                    f"{MAX_ROUNDS} times"
                )
            if time.monotonic() >= self._deadline:
                raise Timeout(f"{self._waiter.method}: no time is left to go on")
            params = {**self._params, **step(result)}
            self._connection.request(self._waiter, params)
        except (ValueError, TypeError) as error:
            # JSON cannot say what is to be sent back: a lone surrogate in it, say.
            self._fail(InternalError(f"cannot retry: {error}"))
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """End the call with an error of ours, unless it was cancelled before."""
        self._connection.finish(Answer(self._waiter, None, error))

    # The steps, what is done about an answer that is not the last; RESULT_TYPES names
    # those about results. Each returns what the next request has besides, and may block
    # or raise.
    def _answer_questions(self, result: Json) -> Json:
        # "Servers MUST NOT send InputRequiredResult responses on any other" requests.
        if not method_row(self._waiter.method).asks:
            self._refuse_result(result)

        members = add_given({}, requestState=result.get("requestState"))
        questions = result.get("inputRequests")
        if questions is None:
            # It says "not yet": it is asked again, but there is no hurry.
            pause = min(0.05 * 2**self._rounds, 1.0)
            wait_until(lambda: not self._is_open(), pause)
        else:
            endpoint = self._client._endpoint
            members["inputResponses"] = endpoint.answer_all(
                self._connection, self._waiter, questions
            )
        return members

    def _refuse_result(self, result: Json) -> Json:
        # "A resultType of any value unrecognized [...] MUST be considered invalid."
        kind = show(result.get("resultType"))
        raise InternalError(f"the server's result has an unknown resultType {kind}")

    def _read_tools_again(self, result: Json) -> Json:
        # "the client SHOULD call tools/list [...], then retry": it says what to mirror.
        self._client._read_tools(self._deadline)
        return {}


class Listening:
    """A server's notifications of changes, as `Client.listen` returns it.

    An iterator over {"method", "params"}, which blocks for the next one, and a context
    manager. Safe from any thread.

        open --close(), or the server ends it--> over: the iteration stops
          `---the conversation ends, or fails--> over: the iteration raises why

    The modern era has a request for it, open as long as it is heard, whose id all that
    belongs to it carries (basic/patterns/subscriptions.md). A legacy session has no
    such ids: there each is passed every notification, and takes what it was opened for.
    """

    def __init__(
        self,
        client: Client,
        kinds: list[str],
        uris: list[str],
        on_event: Callback = None,
        seconds: float | None = None,
    ) -> None:
        """Blocks until the server has agreed, for each answer so many `seconds`, else
        the client's.

        `kinds`: of LIST_CHANGES. on_event(notification) hears in place of the
        iteration, on the reading thread.
        """
        self._client = client
        self._connection = client._require_connection()
        self._on_event = on_event or self._queue
        self._seconds = client.timeout if seconds is None else seconds
        # In a legacy session, what it was opened for: as much as the server was told.
        self._methods: list[str] = []
        self._uris: list[str] = []
        # In the modern era, whether the server has agreed.
        self._is_agreed = False
        # ("event", {"method", "params"}, share) each, by put_bounded(); then ("end",
        # None), or an exception in its place.
        self._events: SimpleQueue[Any] = SimpleQueue()
        self._waiter = Waiter("subscriptions/listen", on_end=self._end)
        # Registered before anything is sent: nothing that comes is missed.
        self._listenings = client._endpoint.listenings
        self._listenings.append(self)
        try:
            if client.protocol_version < FIRST_MODERN:
                self._open_legacy(kinds, uris)
            else:
                self._open_modern(kinds, uris)
        except BaseException:
            # After Ctrl-C, or where nobody answers, there is no time for more.
            self._seconds = min(self._seconds, EXIT_SECONDS)
            self.close()
            # It may have ended before it had begun.
            self._end(Answer(self._waiter, None, None))
            raise

    def _open_legacy(self, kinds: list[str], uris: list[str]) -> None:
        self._methods = [LIST_CHANGES[kind].method for kind in kinds]
        # Nothing is sent for it: it waits for the end of the connection.
        self._connection.hold(self._waiter)
        for uri in uris:
            self._uris.append(uri)
            self._enter(uri)

    def _enter(self, uri: str) -> None:
        """Have a session's server tell of a URI."""
        leaving = self._client._endpoint.leaving
        wait_until(lambda: uri not in leaving, self._seconds)
        self._client.request("resources/subscribe", {"uri": uri}, self._seconds)

    def enter_again(self) -> None:
        """Have a session's server know of this that is new. If it will not, this is
        over."""
        try:
            for uri in self._uris:
                self._enter(uri)
        except (McpError, ConnectionError, Timeout) as error:
            if self._connection.finish(Answer(self._waiter, None, error)):
                self._client._log.warning(f"{uri} is not heard any more: {error}")

    def _open_modern(self, kinds: list[str], uris: list[str]) -> None:
        lists = {LIST_CHANGES[kind].member: True for kind in kinds}
        params = {"notifications": {**lists, "resourceSubscriptions": uris}}
        version = self._connection.protocol.version
        params = self._client._endpoint.add_meta(params, version)
        self._connection.request(self._waiter, params)
        # For the acknowledgement, which _hear passes on.
        agreed = self._connection.wait(self._waiter, self._seconds)
        # "The client SHOULD check the acknowledged filter against what it requested".
        told = member_at(agreed, ["notifications", "resourceSubscriptions"])
        heard = set(map(str, told)) if isinstance(told, list) else set()
        deaf = [uri for uri in uris if uri not in heard]
        if deaf:
            self._client._log.warning(f"the server will not tell of {show(deaf)}")

    def _hear(self, subscription: object, notification: Notification) -> None:
        """Take a notification if it belongs to this one, on the reading thread.

        Whether it does is told by the id that it carries, or in a legacy session by the
        list or resource that has changed.
        """
        waiter = self._waiter
        method, params, row, _ = notification
        is_ours = waiter.sent and is_id(subscription) and waiter.id == subscription
        if is_ours and row.acknowledges:
            # It comes once; nobody would take another one.
            if not self._is_agreed:
                self._is_agreed = True
                waiter.inbox.put(("answer", Answer(waiter, params, None)))
        elif is_ours and row.cancels:
            self._connection.finish(Answer(waiter, {}, None))
        elif is_ours or method in self._methods or self._has(params.get("uri")):
            self._on_event(notification)

    def _has(self, uri: object) -> bool:
        """Whether a session's server was asked to tell of a resource. It "might be a
        sub-resource of the one that the client actually subscribed to"."""
        if not isinstance(uri, str):
            return False
        return any(uri == each or uri.startswith(f"{each}/") for each in self._uris)

    def _queue(self, notification: Notification) -> None:
        event = {"method": notification.method, "params": notification.params}
        self._connection.queue_untold(self._events, "event", event, notification.size)

    def _end(self, answer: Answer) -> None:
        with suppress(ValueError):
            self._listenings.remove(self)
        self._events.put(("end", answer.error))

    def __iter__(self) -> Iterator[Json]:
        return self

    def __next__(self) -> Json:
        kind, item = get_within(self._events, None)[:2]
        if kind == "event":
            event: Json = item
            return event
        # Put back, for whoever asks again: it is over.
        self._events.put((kind, item))
        raise item or StopIteration

    def close(self) -> None:
        """Tell the server, and end the iteration. Idempotent, from any thread."""
        if not self._connection.abandon(self._waiter, None):
            return
        self._end(Answer(self._waiter, None, None))
        until = time.monotonic() + self._seconds
        for uri in self._uris:
            self._leave(uri, until)

    def _leave(self, uri: str, until: float) -> None:
        """Have a session's server forget a URI, unless another one listens to it."""
        leaving = self._client._endpoint.leaving
        # In this order, and _enter in the other one: we see who comes, or who comes
        # sees that we are about to leave, and waits for that.
        leaving.append(uri)
        try:
            if not any(uri in other._uris for other in list(self._listenings)):
                # Who leaves has no use for a refusal.
                with suppress(ConnectionError, McpError, Timeout):
                    seconds = max(0.0, until - time.monotonic())
                    self._client.request("resources/unsubscribe", {"uri": uri}, seconds)
        finally:
            leaving.remove(uri)

    def __enter__(self) -> Listening:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


# The lists that notifications are about: LIST_CHANGES by their methods.
_CHANGED_LISTS = {change.method: kind for kind, change in LIST_CHANGES.items()}


class ClientEndpoint(Endpoint):
    """A client's end of its conversations: hears notifications, answers questions.

    One endpoint serves all the connections of a Client, one after the other, and keeps
    what is learned of the server. The callbacks, which Client describes, answer
    questions on workers. Notifications are passed on by the reading thread: to
    `listenings`, and to callbacks, which run on a thread of their own.
    """

    def __init__(
        self,
        log: _Log,
        info: Json,
        *,
        roots: Any,
        on_elicit: Callback,
        on_sample: Callback,
        on_log: Callback,
        on_notification: Callback,
        max_questions: int,
        extensions: Json | None = None,
    ) -> None:
        self._log = log
        # What a client says of itself.
        self.info = info
        self.extensions = check_extensions(extensions)
        # What set_log_level() has asked for; modern requests carry it.
        self.log_level = ""
        self._roots = roots if callable(roots) else encode_roots(roots)
        self._on_elicit = on_elicit
        self._on_sample = on_sample
        self._on_log = on_log
        self._on_notification = on_notification
        # By connection: what runs the callbacks that hear, one by one.
        self._callbacks: dict[Connection, Workers] = {}
        # Those that are open. Each adds and removes itself, on any thread.
        self.listenings: list[Listening] = []
        # The URIs that they are just unsubscribing from, each as often as that is done.
        self.leaving: list[str] = []
        self._max_questions = max_questions
        # That a session's server may ask outside of calls. Guarded by the connection's
        # lock.
        self._spare_questions = 0
        # The latest list of them; and how many changes were heard of.
        self.tools: KnownTools | None = None
        self.tools_changes = 0
        # A list was read, or was not to be had. Until then, first calls are held.
        self.knows_mirrors = False
        # Nothing is known of the server yet.
        self.learn_server({})

    def learn_server(self, words: Json) -> None:
        """Remember what a server says of itself, in either era. It is not verified."""
        meta = object_or_empty(words.get("_meta"))
        info = words.get("serverInfo", meta.get(META_SERVER_INFO))
        instructions = words.get("instructions")
        self.server_info = object_or_empty(info)
        self.server_capabilities = object_or_empty(words.get("capabilities"))
        self.instructions = instructions if isinstance(instructions, str) else None

    def connected(self, connection: Connection) -> None:
        """Have a thread for callbacks: one, so that they run in order."""
        callbacks = Workers("mcp-callbacks", 1, do_nothing, self._log)
        self._callbacks[connection] = callbacks
        self._spare_questions = self._max_questions
        self.tools = None
        self.knows_mirrors = False

    def disconnected(self, connection: Connection) -> None:
        """Let the callbacks run that wait, for a while."""
        callbacks = self._callbacks.pop(connection, None)
        if callbacks is not None:
            callbacks.close(EXIT_SECONDS)

    def flush_callbacks(self, connection: Connection, seconds: float) -> None:
        """Wait until on_log and on_notification have heard all that has come so far."""
        callbacks = self._callbacks.get(connection)
        if callbacks is not None:
            callbacks.queue_end().wait(seconds)

    def output_lost(self, connection: Connection) -> None:
        """The server reads no more: nothing that waits will be answered."""
        connection.helpers.submit(partial(self._fail_waiting, connection))

    def _fail_waiting(self, connection: Connection) -> None:
        # On a helper thread: it may take a moment to read a child's last lines.
        end = connection.transport.describe_end("the server reads no more")
        connection.fail_pending(end)

    def header_parameters(self, tool: str) -> list[tuple[list[str], str]]:
        """What HTTP headers mirror of a tool's arguments, by the latest list.

        If it is old, the server says so: see Call._read_tools_again.
        """
        return [] if self.tools is None else self.tools.mirrors.get(tool, [])

    def capabilities(self, version: str = NEWEST) -> Json:
        """What this client declares in a revision: a capability for each callback."""
        declared: Json = {}
        # Since 2025-11-25, a capability says what it includes.
        detailed = version >= "2025-11-25"
        elicits = METHODS["elicitation/create"].since <= version
        if self._on_elicit is not None and elicits:
            declared["elicitation"] = {"form": {}, "url": {}} if detailed else {}
        if self._on_sample is not None:
            declared["sampling"] = {"tools": {}} if detailed else {}
        if self._roots is not None:
            declared["roots"] = {"listChanged": True} if version < FIRST_MODERN else {}
        if self.extensions:
            places = extension_places(version)
            declared.update(dict.fromkeys(places, self.extensions))
        return declared

    def add_meta(self, params: Json, version: str) -> Json:
        """The params with what a modern message carries: basic/index.md#meta."""
        if version < FIRST_MODERN:
            return params
        meta = {
            META_VERSION: version,
            META_CLIENT_INFO: self.info,
            META_CAPABILITIES: self.capabilities(version),
        }
        if self.log_level:
            meta[META_LOG_LEVEL] = self.log_level
        return {**params, "_meta": {**meta, **params.get("_meta", {})}}

    # Hearing
    def serve_notification(
        self, connection: Connection, notification: Notification
    ) -> None:
        """Pass a notification on: to who listens for it, and to the callbacks."""
        method, params, row, _ = notification
        self._note_change(method)
        meta = object_or_empty(params.get("_meta"))
        # A server may end a subscription by cancelling the request that opened it.
        ended = params.get("requestId") if row.cancels else None
        subscription = meta.get(META_SUBSCRIPTION, ended)
        if subscription:
            params = {name: value for name, value in params.items() if name != "_meta"}
            notification = notification._replace(params=params)
        for listening in list(self.listenings):
            listening._hear(subscription, notification)
        if not row.acknowledges:
            self._tell_callbacks(connection, notification)

    def set_roots(self, roots: Any, connection: Connection | None) -> None:
        """Replace the roots; a legacy server is told. Raises ValueError, TypeError."""
        if self._roots is None and connection is not None:
            # What was declared stays declared, and nothing else.
            raise ValueError("roots: the client has connected without any")
        self._roots = roots if callable(roots) else encode_roots(roots)
        if connection is not None and connection.protocol.version < FIRST_MODERN:
            with connection._lock:
                # It is to ask for them again.
                self._spare_questions = self._max_questions
            connection.notify("notifications/roots/list_changed", None)

    def _note_change(self, method: str) -> None:
        kind = _CHANGED_LISTS.get(method)
        if kind == "tools":
            self.tools_changes += 1
        if kind is not None:
            # A session's server that started without any has some now.
            self.server_capabilities.setdefault(kind, {"listChanged": True})

    def _tell_callbacks(
        self, connection: Connection, notification: Notification
    ) -> None:
        method, params, row, size = notification
        if row.logs and self._on_log is not None:
            job = partial(
                self._on_log,
                params.get("level"),
                params.get("data"),
                params.get("logger"),
            )
        elif self._on_notification is not None:
            job = partial(self._on_notification, method, params)
        else:
            return
        callbacks = self._callbacks.get(connection)
        if callbacks is None:
            # It is over.
            return
        share = connection.untold.share(size + LINE_COST)
        if share is not None and len(callbacks) < MAX_QUEUED:
            callbacks.submit(partial(do_with, share, job))
        else:
            self._log.warning(
                "a notification was dropped: too many wait for the callbacks"
            )

    # Answering
    def serve_request(self, connection: Connection, request: Request) -> None:
        """Answer a ping; of a legacy server's questions, have a worker answer those
        that it may ask. On the reading thread."""
        if not request.row.capability:
            connection.respond(request, result_message(request.id, {}))
            return
        calls = self._charge(connection)
        if calls is not None:
            connection.have_served([request], partial(self._answer_request, calls))
        else:
            refused = InvalidRequest(
                f"{request.method}: more than {self._max_questions} questions in a "
                "call, or outside of calls"
            )
            connection.respond(request, error_message(request.id, refused))

    def _charge(self, connection: Connection) -> list[Waiter] | None:
        """Count a question of a legacy server. None if that is one too many.

        It does not say which call it belongs to. So it is charged to the oldest one
        that has any left; else to the session: a server may ask for the roots when it
        begins, and when they have changed. Returns the calls that it may belong to.
        """
        with connection._lock:
            calls = [waiter for waiter in connection._waiters if waiter.sent]
            for waiter in calls:
                if waiter.questions > 0:
                    waiter.questions -= 1
                    return calls
            self._spare_questions -= 1
            return [] if self._spare_questions >= 0 else None

    def _answer_request(
        self, calls: list[Waiter], connection: Connection, request: Request
    ) -> None:
        try:
            is_over = calls and not any(map(connection.is_open, calls))
            if is_over and request.row.asks_user:
                raise InvalidRequest(f"{request.method}: the call is over")
            answer = self._answer(connection, request.method, request.params, request)
            message = result_message(request.id, answer)
        except McpError as error:
            message = error_message(request.id, error)
        connection.respond(request, message)

    def answer_all(
        self, connection: Connection, waiter: Waiter, questions: Any
    ) -> Json:
        """Answer a modern result's inputRequests: {key: answer}, for this call.

        One after the other, for there is one user; and none when the call is over.
        Raises McpError, and Cancelled then.
        """
        if not _is_object_of_objects(questions):
            raise InternalError(
                f"inputRequests: expected an object of requests, got {show(questions)}"
            )
        waiter.questions -= len(questions)
        if waiter.questions < 0:
            raise InternalError(
                f"{waiter.method}: the server asked more than {self._max_questions} "
                "questions"
            )
        answers = {}
        for key, question in questions.items():
            if not connection.is_open(waiter):
                raise Cancelled("the call is over")
            method = str(question.get("method"))
            params = object_or_empty(question.get("params"))
            answers[key] = self._answer(connection, method, params, waiter)
        return answers

    def _answer(
        self,
        connection: Connection,
        method: str,
        params: Json,
        asked_in: Request | Waiter,
    ) -> Json:
        """What a callback answers, checked. Raises McpError, whatever has failed."""
        row = method_row(method)
        if row.kind != "request" or row.sender != "server":
            raise MethodNotFound(f"{show(method)} is no question to a client")
        version = connection.protocol.version
        self._check_asked(row, params, version)
        try:
            with answering(connection, asked_in):
                answer: Json = getattr(self, row.handler)(params)
            return check_given_answer(method, params, answer, version)
        except McpError:
            raise
        except BaseException as error:
            self._log.error(f"answering {method} failed: {error_text(error)}", error)
            raise InternalError(
                f"{method}: the client's callback raised {type(error).__name__}"
            ) from error

    def _check_asked(self, row: Method, params: Json, version: str) -> None:
        """Raise unless this was declared, and is as it should be."""
        declared = self.capabilities(version)
        if not has_capability(declared, row.capability):
            raise row.undeclared(
                f"{row.name} is no question that this client declared to answer"
            )
        try:
            needed, _ = needed_capability(row.name, params, declared)
            if not has_capability(declared, needed):
                raise ValueError(f"{'.'.join(needed)} was not declared")
            check_question(row.name, params)
        except (ValueError, TypeError) as error:
            raise InvalidParams(f"{row.name}: {error}") from None

    # The handlers that METHODS names: parameters to result.
    def _roots_list(self, params: Json) -> Json:
        roots = self._roots
        return {"roots": encode_roots(roots()) if callable(roots) else roots}

    def _sampling_create_message(self, params: Json) -> Any:
        answer = (self._on_sample or do_nothing)(params)
        if isinstance(answer, dict):
            return {"model": "unknown", **answer}
        if not isinstance(answer, str):
            return answer
        return {
            "role": "assistant",
            "content": {"type": "text", "text": answer},
            "model": "unknown",
            "stopReason": "endTurn",
        }

    def _elicitation_create(self, params: Json) -> Any:
        schema: Any = params.get("requestedSchema")
        answer = (self._on_elicit or do_nothing)(params) or {"action": "cancel"}
        action = object_or_empty(answer).get("action")
        if schema is None or action != "accept":
            return add_given({}, action=action)

        defaults = {
            name: field["default"]
            for name, field in schema["properties"].items()
            if "default" in field
        }
        content = {**defaults, **(answer.get("content") or {})}
        return {"action": action, "content": content}


class KnownTools:
    """What a list of tools says of them, as far as calls want to know that."""

    def __init__(
        self, tools: list[Json], fresh_until: float, log: _Log, changes: int = 0
    ) -> None:
        # How many changes had been heard of when this began to be read.
        self.changes = changes
        # Those that may be called.
        self.valid: list[Json] = []
        # By a tool's name: what headers mirror of its arguments.
        self.mirrors: dict[str, list[tuple[list[str], str]]] = {}
        # By a tool's name: its outputSchema, compiled once it was used, or None.
        self._schemas: dict[str, Any] = {}
        # By time.monotonic().
        self.fresh_until = fresh_until
        for tool in tools:
            name = str(tool.get("name"))
            try:
                self.mirrors[name] = header_parameters(tool.get("inputSchema"))
            except ValueError as error:
                # Over HTTP "MUST exclude the invalid tool"; elsewhere we may.
                log.warning(f"the tool {show(name)} is left out: {error}")
                continue
            self.valid.append(tool)
            self._schemas[name] = tool.get("outputSchema")

    def is_fresh(self) -> bool:
        """Whether it may be relied on: server/utilities/caching.md."""
        return time.monotonic() < self.fresh_until

    def errors_in(self, name: str, result: Json, deadline: float) -> list[str]:
        """What is wrong with a tool's result, by its outputSchema. Raises Timeout."""
        schema = self._schemas.get(name)
        if schema is None:
            return []
        if "structuredContent" not in result:
            # "Servers MUST provide structured results that conform to this schema."
            return ["structuredContent: expected, but it is missing"]
        if not isinstance(schema, Schema):
            try:
                schema = self._schemas[name] = Schema(schema, deadline)
            except ValueError as error:
                # basic/index.md: "They MUST handle unsupported dialects gracefully by
                # returning an appropriate error", and an external $ref "SHOULD be
                # rejected rather than silently treated as permissive".
                return [f"it cannot be used: {error}"]
        value = result["structuredContent"]
        errors: list[str] = schema.errors(value, Allowance(deadline))
        return errors[:5]


def fresh_until(page: Json) -> float:
    """When a page of a list that came just now is old, by time.monotonic().

    "If `ttlMs` is absent, clients SHOULD assume a default of `0` (immediately stale)".
    """
    seconds = page.get("ttlMs")
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        seconds = 0
    return time.monotonic() + min(max(seconds, 0), MAX_TTL_MS) / 1000


def _next_cursor(method: str, result: Json) -> str | None:
    """Where the next page of a list begins; None after the last."""
    cursor = result.get("nextCursor")
    # "an empty string is a valid cursor"
    if cursor is None or isinstance(cursor, str):
        return cursor
    raise InternalError(f"{method}: nextCursor: expected string, got {show(cursor)}")


def _with_objects(result: Json, member: str) -> Json:
    """The result, when that member is an array of objects, else InternalError."""
    value = result.get(member)
    if isinstance(value, list) and all(isinstance(each, dict) for each in value):
        return result
    raise InternalError(f"{member}: expected an array of objects, got {show(value)}")


###############################################################################
# 36. Targets #################################################################
###############################################################################
# What Client may be given: for a server, and what that means, a URL with its headers, a
# command with its environment, or a Server in this process; and its options. Then what
# begins when it connects.
class _Handover(Transport):
    """Carries messages to a connection in this process: it is fed what is written."""

    feeds = True

    def __init__(self, peer: Connection) -> None:
        self._peer = peer

    def write(self, data: bytes) -> None:
        self._peer.dispatch(self._peer.feed(data))


class MemoryTransport(_Handover):
    """Carries a client's messages to a server in this process, and its answers back."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def start(self, connection: Connection) -> None:
        self._peer = self._server.connect(_Handover(connection))

    def close(self) -> None:
        self._server.disconnect(self._peer, EXIT_SECONDS)


def _is_stream_pair(target: Any) -> bool:
    """Whether a target is (reader, writer); a command's parts cannot be read from."""
    is_pair = isinstance(target, tuple) and len(target) == 2
    return is_pair and hasattr(target[0], "read")


# A server at a URL, and one to be started.
Site = namedtuple("Site", "url headers")
Program = namedtuple("Program", "command env cwd")
# What a dict may say of each; what is None counts as left out. "type" is what config
# files have besides: "stdio", "http" and so on.
_TARGET_MEMBERS = {
    "url": ("url", "headers", "type"),
    "command": ("command", "args", "env", "cwd", "type"),
}
# A host with its port, or with a path behind a name that has an end like ".com".
_BARE_URL = (
    r"([^\s/@]+@)?([\w.-]+|\[[0-9A-Fa-f:]+\]):[0-9]+([/?]\S*)?"
    r"|localhost|(localhost|([\w-]+\.)+[A-Za-z]{2,})/\S*"
)


def read_target(target: Any) -> Any:
    """What Client is given for a server: a Site or a Program; or as it came, what
    carries messages by itself.

    Raises TypeError and ValueError. They name the member that is wrong, and show no
    value: that may be a secret.
    """
    if isinstance(target, (Transport, Server)) or _is_stream_pair(target):
        return target
    if isinstance(target, Mapping):
        return _read_members(target)
    if isinstance(target, (list, tuple)):
        return Program(_runnable(_read_words("target", target)), {}, None)
    if isinstance(target, (str, os.PathLike)):
        return _read_text(_read_value("target", target))
    raise TypeError(
        "target: expected a URL, a command, a script, a dict, a Server or "
        f"(reader, writer), got {kind_of(target)}"
    )


def _read_members(target: Mapping[str, Any]) -> Any:
    given = {name: value for name, value in target.items() if value is not None}
    names = ", ".join(show(str(name)) for name in given) or "nothing"
    kind = next((kind for kind in _TARGET_MEMBERS if kind in given), "")
    if not kind:
        is_config = "mcpServers" in given or "servers" in given
        remedy = "; ClientGroup takes a whole config" if is_config else ""
        raise TypeError(
            f'target: a dict needs "command", or "url"; this one has {names}{remedy}'
        )
    for name in given:
        if name not in _TARGET_MEMBERS[kind]:
            known = ", ".join(_TARGET_MEMBERS[kind])
            raise ValueError(
                f'target: {show(str(name))} is no member beside "{kind}"; there are '
                f"{known}"
            )
    if kind == "url":
        url = _read_word("target: url", given["url"])
        return Site(_check_site(url), check_header_dict(given.get("headers")))
    program = _read_word("target: command", given["command"])
    command = [program, *_read_words("target: args", given.get("args", []))]
    if re.search(r"\s", program) and not (_is_program(program) or command[1:]):
        raise ValueError(
            'target: command: expected one program, got several words: "args" is for '
            "its arguments, as a list; or give the whole line in place of the dict"
        )
    env = check_env("target: env", given.get("env"))
    cwd = check_folder("target: cwd", given.get("cwd"))
    return Program(_runnable(command), env, cwd)


def _read_words(place: str, words: Any) -> list[str]:
    if not isinstance(words, (list, tuple)):
        raise TypeError(
            f"{place}: expected a list of texts, one for each argument, got "
            f"{kind_of(words)}"
        )
    return [_read_word(f"{place}[{n}]", word) for n, word in enumerate(words)]


def _read_word(place: str, value: Any) -> str:
    """A word of a command, where ~/ is the home folder; a number as its text."""
    word = _read_value(place, value)
    home = word == "~" or word.startswith(("~/", "~" + os.sep))
    return os.path.expanduser(word) if home else word


def _read_value(place: str, value: Any) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, (str, bytes, os.PathLike)):
        raise TypeError(f"{place}: expected a text, got {kind_of(value)}")
    text = os.fsdecode(value)
    if "\0" in text:
        raise ValueError(f"{place}: expected a text without NUL characters")
    return text


def _read_text(text: str) -> Any:
    """A URL, or what split_command() takes."""
    text = text.strip()
    scheme = re.match(r"[A-Za-z][A-Za-z0-9+.-]+://|https?:", text)
    if scheme is not None:
        return Site(_check_site(text), {})
    if re.fullmatch(_BARE_URL, text) and not os.path.exists(text):
        # Without what may be secret.
        told = show(text.rpartition("@")[2].partition("?")[0], 200)[1:-1]
        raise ValueError(
            f'target: {told} is no command; if it is a URL, write "http://{told}"'
        )
    return Program(split_command(text), {}, None)


def _check_site(url: str) -> str:
    scheme = url.partition(":")[0].lower()
    if "://" in url and scheme not in ("http", "https"):
        raise ValueError(
            f"target: url: expected http:// or https://, got {show(scheme, 20)}"
        )
    parse_url(url)
    return url


def check_header_dict(headers: Any) -> dict[str, str]:
    """Headers as a dict; {} for None. Raises TypeError and ValueError."""
    if headers is None:
        return {}
    if not isinstance(headers, Mapping):
        raise TypeError(
            'headers: expected a dict, such as {"Authorization": "Bearer ..."}, or of '
            f"Client a function that returns one, got {kind_of(headers)}"
        )
    checked = dict(headers)
    check_headers(checked)
    return checked


def headers_now(headers: dict[str, str], more: Any) -> dict[str, str]:
    """The headers of a target, and those of the client, or what its function says."""
    return {**headers, **(check_header_dict(more()) if callable(more) else more)}


def check_env(place: str, env: Any) -> dict[str, str]:
    """Variables as texts, numbers too; {} for None. Raises TypeError and ValueError."""
    if env is None:
        return {}
    if not isinstance(env, Mapping):
        raise TypeError(
            f'{place}: expected a dict, such as {{"KEY": "..."}}, got {kind_of(env)}'
        )
    for name in env:
        if not isinstance(name, str) or not re.fullmatch("[^=\0]+", name):
            # Its value may stand behind it.
            told = show(str(name).partition("=")[0])
            raise ValueError(f"{place}: {told} is not the name of a variable")
    return {name: _read_value(f"{place}: {name}", env[name]) for name in env}


def check_folder(place: str, folder: Any) -> str | None:
    """A folder, where ~ is the home folder; None for None. Raises TypeError."""
    if folder is None:
        return None
    if not isinstance(folder, (str, os.PathLike)):
        raise TypeError(f"{place}: expected a folder's path, got {kind_of(folder)}")
    return os.path.expanduser(os.fsdecode(folder))


def split_command(text: str) -> list[str]:
    """A script, a program, or a command line, as the command that runs it.

    Raises ValueError for nothing, and for a quotation without its end.
    """
    path = _read_word("target", text)
    is_file = os.path.exists(path)
    if path.endswith(".py") and (is_file or " " not in path):
        return _with_python([path])
    if is_file and path.endswith(".json"):
        raise ValueError(
            f"target: {text} is a config file; ClientGroup takes it, or load_config, "
            "which tells its targets by name"
        )
    if text and is_file:
        return [path]
    try:
        command = _read_words("target", split_words(text, os.name == "nt"))
    except ValueError as error:
        raise ValueError(f"target: not a command line: {error}") from None
    if not command or not command[0]:
        raise ValueError("target: expected a URL, a script or a command, got nothing")
    return _with_python(command) if command[0].endswith(".py") else command


def split_words(text: str, on_windows: bool) -> list[str]:
    """The words of a command line, as a shell has them: on Windows, a backslash is part
    of a path, and nothing but " quotes. Raises ValueError."""
    import shlex

    words = shlex.shlex(text, posix=True)
    words.whitespace_split = True
    words.commenters = ""
    if on_windows:
        words.escape = ""
        words.quotes = '"'
    return list(words)


def _with_python(command: list[str]) -> list[str]:
    """A command of a script, for this Python. Where that is there, it is meant from
    here, and not from the folder in which it will run."""
    script = command[0]
    if os.path.exists(script):
        script = os.path.abspath(script)
    return [_python(), script, *command[1:]]


def _runnable(command: list[str]) -> list[str]:
    """A command word by word; a script that cannot be run by itself has Python."""
    program = command[0] if command else ""
    if not program:
        raise ValueError("target: expected a command, got nothing")
    # To Windows none is a program by itself, though PATHEXT may say so.
    if program.endswith(".py") and (os.name == "nt" or not _is_program(program)):
        return [_python(), *command]
    return command


def _is_program(name: str) -> bool:
    import shutil

    return shutil.which(name) is not None


def _takes_lines(stderr: Any) -> bool:
    is_binary = isinstance(stderr, (io.RawIOBase, io.BufferedIOBase))
    is_file = hasattr(stderr, "write") and not is_binary
    return isinstance(stderr, bool) or callable(stderr) or is_file


def _is_for_clients(context: Any) -> bool:
    protocol = getattr(context, "protocol", None)
    is_context = hasattr(context, "wrap_socket")
    return is_context and getattr(protocol, "name", "") != "PROTOCOL_TLS_SERVER"


OPTION_CHECKS.update(
    {
        "auth": partial(
            check_that,
            lambda value: callable(value) or isinstance(value, (OAuth, Authorizer)),
            "an OAuth, a function, or None (a token that you have goes into "
            'headers={"Authorization": "Bearer ..."})',
        ),
        "ssl_context": partial(
            check_that,
            _is_for_clients,
            "an ssl.SSLContext for clients, as "
            "ssl.create_default_context(cafile=...) makes it",
        ),
        "stderr": partial(check_that, _takes_lines, "a function, a text file, or None"),
    }
)


def check_version(version: object) -> None:
    """Raise ValueError for what is no revision that a Client speaks."""
    versions = ("auto",) + LEGACY_VERSIONS + MODERN_VERSIONS
    if version not in versions:
        told = ", ".join(versions)
        raise ValueError(f"version: expected one of {told}; got {show(version)}")


def _python() -> str:
    """This Python; inside a host program, sys.executable may be the host."""
    if re.search("python|pypy", os.path.basename(sys.executable or "").lower()):
        return sys.executable
    return "python3"


class _Conversation:
    """What connect() begins, and who takes it off the client ends.

    opening --a revision is agreed on, or not--> settled
    """

    def __init__(self) -> None:
        # It does not wait for itself.
        self.opener = threading.current_thread()
        self.settled = threading.Event()
        # Guarded by the client's _lock; None until close() could end it.
        self.connection: Connection | None = None
        # What reads from the transport, unless that feeds by itself.
        self.reader: threading.Thread | None = None

    def is_dead(self) -> bool:
        """Whether the server has ended it, after it was opened."""
        connection = self.connection
        if connection is None or not self.settled.is_set():
            return False
        return connection.state != connection.OPEN


###############################################################################
# 37. Client ##################################################################
###############################################################################
# Connects to a server wherever it is, finds out which era and revision it speaks, and
# turns each of its features into a blocking call.
class Client:
    """An MCP client with blocking calls: `with Client("server.py") as client: ...`.

    It speaks every revision; "auto" finds out which one the server wants. Its calls
    block their thread, and may be made from any. They raise McpError, ToolError,
    Timeout, Cancelled, ConnectionClosed and HttpFailure, and for arguments that have no
    form in JSON TypeError or ValueError. `timeout` and `total_timeout` may be
    changed at any time.
    """

    def __init__(
        self,
        target: Any,
        *,
        timeout: float = 60.0,
        headers: dict[str, str] | Callable[[], dict[str, str]] | None = None,
        auth: OAuth | Callback = None,
        env: dict[str, str] | None = None,
        inherit_env: Iterable[str] | bool = (),
        cwd: str | os.PathLike[str] | None = None,
        version: str = "auto",
        name: str = "mcp_lite",
        client_version: str = __version__,
        roots: Any = None,
        on_elicit: Callback = None,
        on_sample: Callback = None,
        on_log: Callback = None,
        on_progress: Callback = None,
        on_notification: Callback = None,
        trace: _Trace = None,
        ssl_context: SSLContext | None = None,
        validate: bool = True,
        stderr: Callable[[str], Any] | TextIO | bool | None = True,
        total_timeout: float | None = None,
        max_questions: int = MAX_QUESTIONS,
        extensions: Json | None = None,
    ) -> None:
        """Prepare to reach a server, by `with` or connect(). Raises TypeError, and
        ValueError, for what is no target, or option.

        target: where the server is: a URL; "server.py" or a command line; a command as
            a list; {"url":, "headers":} or {"command":, "args":, "env":, "cwd":}; a
            Server in this process; (reader, writer), two binary streams; or an instance
            of Transport, for any other way. A leading ~/ is the home folder
        timeout: seconds for connecting, and for each request or list; those of a
            request start anew with each progress notification, and while a question of
            the server's is answered
        total_timeout: seconds that a call may take all the same: its rounds, questions
            and progress, and the check of its result; None for no such limit
        headers: of every HTTP request: a dict, or a function that returns one, and is
            called for each of them
        auth: how to log in over HTTP: an OAuth; or auth(challenge), which is called
            when the server wants it, on a worker. It gets the parameters of
            WWW-Authenticate, and returns headers for the requests from then on, or None
        env: variables of a child process, a key that it needs, say
        inherit_env: the names of more variables that a child process gets from this
            one; True: all of them. By default it gets those that tell where things
            are, and the language: HOME, PATH, LANG, and so on, but no keys or tokens
        cwd: the folder in which a child process runs. Who names a script alone names it
            from here, though; other relative paths begin there
        version: the one revision to speak, or "auto"
        name: what the server is told of this client
        client_version: what the server is told of its version
        roots: what the server may work on: a list of paths, URIs of files, or {"uri":,
            "name":}, or a function that returns one; see set_roots()
        on_elicit: on_elicit(params) answers a question to the user by {"action":,
            "content":}, where the form's defaults are filled in, or None for "cancel"
        on_sample: on_sample(params) has a model answer: the wire's result, or its text
        on_log: on_log(level, data, logger) hears log messages
        on_notification: on_notification(method, params) hears what on_log does not
        on_progress: on_progress(progress, total, message) hears of the calls without
            one of their own
        trace: shows every message: True, in a line each, on stderr, "explain" with what
            it is for, "json" as it is; a path appends them to that file as they are; a
            function trace(direction, line) gets "-->", from the client to the server,
            or "<--", and bytes; the method trace.show(entry) of an object a TraceEntry,
            with what HTTP adds, and what it is for. Without it, the variable
            MCP_LITE_TRACE says, with "1" for True; False is none in any case
        ssl_context: an ssl.SSLContext, for https
        validate: whether a tool's structured results must match its outputSchema
        stderr: what becomes of the lines that a child process writes to its stderr. By
            default they go to this process's, each behind the name of its script:
            "[server.py] ". A function stderr(line), called on a thread of its own, gets
            them without that, a text file with it, and None drops them. In any case the
            last ones are in the text of ConnectionClosed and Timeout
        max_questions: how many questions a server may ask in a call; in a legacy
            session, as many again outside of calls
        extensions: what to declare of extensions: {"com.example/thing": {}}, with their
            settings; what they add is said by request() and notify()

        `roots`, `on_elicit` and `on_sample` are declared as capabilities when given.
        They run on workers, so they may call the client; what they raise is an error
        that the server gets. on_log and on_notification run in order on a thread of
        their own, on_progress in the thread that waits for the result.
        """
        check_version(version)
        needed = ("name", "client_version", "timeout", "validate", "max_questions")
        check_options(*needed, **locals())
        self.timeout = timeout
        self.total_timeout = total_timeout
        self.max_questions = max_questions
        self._target = read_target(target)
        self._headers = headers if callable(headers) else check_header_dict(headers)
        self._auth = auth
        self._env = check_env("env", env)
        self._inherit_env = check_inherited(inherit_env)
        self._cwd = check_folder("cwd", cwd)
        self._stderr = stderr
        # What the lines of a child's stderr are marked with, and those of a transcript:
        # in a group, its name there.
        self._label = ""
        self._version = version
        self._on_progress = on_progress
        self._ssl_context = ssl_context
        self._validate = validate
        self._log = _Log()
        self._transcript = open_transcript(trace, self._log)
        self._endpoint = ClientEndpoint(
            self._log,
            {"name": name, "version": client_version},
            roots=roots,
            on_elicit=on_elicit,
            on_sample=on_sample,
            on_log=on_log,
            on_notification=on_notification,
            max_questions=max_questions,
            extensions=extensions,
        )
        # What subscribe() has opened, by URI.
        self._subscriptions: dict[str, list[Listening]] = {}
        # Held only to set up the conversation, and to take it.
        self._lock = threading.Lock()

    # Who has taken it ends it.
    _conversation: _Conversation | None = None

    # Connecting and ending
    def connect(self) -> Client:
        """Reach the server, agree on a revision. Blocks, for `timeout` at most. Returns
        the client itself. Calls of other threads wait until it is done. After close(),
        or when the server has ended, another conversation begins.

        Raises ConnectionClosed, also when close() comes meanwhile, HttpFailure,
        UnsupportedVersion, Timeout, and RuntimeError when it is connected already, or
        about to be.
        """
        mine = _Conversation()
        with self._lock:
            former = self._conversation
            if former is not None and not former.is_dead():
                raise RuntimeError("the client is connected already, or about to be")
            self._conversation = mine
        self._end_of(former)
        until = time.monotonic() + self.timeout
        try:
            try:
                self._open(mine, self._version, until)
            except ConnectionClosed:
                if not self._take_for_another_try(mine):
                    raise
                self._open(mine, LAST_LEGACY, until)
        except BaseException:
            with self._lock:
                is_mine = self._conversation is mine
                if is_mine:
                    self._conversation = None
            if is_mine:
                self._end_of(mine)
            raise
        finally:
            mine.settled.set()
        return self

    def close(self) -> None:
        """End the conversation: who waits gets ConnectionClosed; a child is ended.

        Callbacks still hear what has come for them. It takes some seconds at most.
        Idempotent, from any thread. connect() may begin another conversation then.
        """
        with self._lock:
            conversation, self._conversation = self._conversation, None
        self._end_of(conversation)

    def _end_of(self, conversation: _Conversation | None) -> None:
        if conversation is not None and conversation.connection is not None:
            self._end(conversation.connection, conversation.reader)

    def _end(self, connection: Connection, reader: threading.Thread | None) -> None:
        """End what was taken off the client. Ctrl-C ends the patience, and no more."""
        closed = ConnectionClosed("the client is closed")
        try:
            connection.fail_pending(closed, tell=True)
            # `initialized`, say, or that a call is cancelled.
            connection.write_out(TIDY_SECONDS)
        finally:
            try:
                connection.close(closed)
            finally:
                connection.transport.close()
        if reader is not None and reader is not threading.current_thread():
            join_all([reader], EXIT_SECONDS)
        connection.workers.close(EXIT_SECONDS)
        self._endpoint.disconnected(connection)

    def __enter__(self) -> Client:
        conversation = self._conversation
        is_open = conversation is not None and not conversation.is_dead()
        return self if is_open else self.connect()

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def _connection(self) -> Connection | None:
        conversation = self._conversation
        return None if conversation is None else conversation.connection

    def _open(self, mine: _Conversation, version: str, until: float) -> None:
        """Begin a conversation. Where it fails, close() ends what there is of it."""
        transport = self._open_transport()
        connection = Connection(
            Protocol("client", self._endpoint.capabilities),
            self._endpoint,
            transport,
            name="mcp-client",
            log=self._log,
            trace=open_talk(self._transcript, "client", self._label),
        )
        self._endpoint.connected(connection)
        try:
            transport.start(connection)
        except BaseException:
            # Of the transport, nothing more is asked.
            self._endpoint.disconnected(connection)
            raise
        with self._lock:
            is_wanted = self._conversation is mine
            if is_wanted:
                mine.connection = connection
        if not is_wanted:
            # close() came before there was anything to end.
            self._end(connection, None)
            raise ConnectionClosed("the client was closed while it connected")
        if not transport.feeds:
            reader = threading.Thread(
                target=self._read, args=(connection,), name="mcp-reader", daemon=True
            )
            reader.start()
            mine.reader = reader
        self._negotiate(connection, version, until)

    def _take_for_another_try(self, mine: _Conversation) -> bool:
        """End a child that may have ended because of the probe. False if it is none.

        Some old servers do when anything comes before `initialize`; without it, they
        live.
        """
        with self._lock:
            connection = mine.connection
            if self._conversation is not mine or connection is None:
                return False
            child = connection.transport
            if self._version != "auto" or not isinstance(child, Child):
                return False
            if not child.may_have_read():
                # It has failed by itself.
                return False
            mine.connection = None
        self._end(connection, mine.reader)
        return True

    def _open_transport(self) -> Transport:
        """What carries messages to the target."""
        target = self._target
        if target is None:
            raise RuntimeError(
                "target: a Transport, or a pair of streams, carries one conversation; "
                "make another Client with a new one"
            )
        if isinstance(target, Server):
            return MemoryTransport(target)
        if isinstance(target, Site):
            return HttpTransport(
                target.url,
                partial(headers_now, target.headers, self._headers),
                authorizer_for(self._auth, target.url, self._ssl_context, self._log),
                self._ssl_context,
                min(self.timeout, MAX_PATIENCE),
                self._log,
                self._judge_session,
                self._renew_session,
            )
        if isinstance(target, Program):
            inherited = inherited_environment(self._inherit_env)
            env = {**inherited, **target.env, **self._env}
            cwd = self._cwd or target.cwd
            return Child(target.command, env, cwd, self._stderr, self._label, self._log)
        self._target = None
        if isinstance(target, Transport):
            return target
        return StreamTransport(*target, patient=False)

    def _judge_session(self, words: Json) -> None:
        """Take what a server says that opens a session in place of a lost one. Raises
        UnsupportedVersion."""
        offered = [words.get("protocolVersion")]
        version = self._choose_version(offered, LEGACY_VERSIONS)
        connection = self._connection
        if connection is not None:
            connection.protocol.version = version
        self._endpoint.learn_server(words)

    def _renew_session(self) -> None:
        """Tell a new session what the lost one knew."""
        # What is refused is no fault of who has found the old one lost.
        level = self._endpoint.log_level
        if level:
            with suppress(McpError, ConnectionError, Timeout):
                self.request("logging/setLevel", {"level": level})
        for listening in list(self._endpoint.listenings):
            listening.enter_again()

    def _read(self, connection: Connection) -> None:
        """The reading thread: feed the connection until the server ends; end it."""
        transport = connection.transport
        try:
            for data in iter(transport.read, b""):
                connection.dispatch(connection.feed(data))
            # The end completes a last line.
            connection.dispatch(connection.feed(b""))
        except (OSError, ValueError) as error:
            # ValueError: the file was closed.
            self._log.debug(f"the server's output ended: {error_text(error)}")
        finally:
            end = transport.describe_end("the server closed the connection")
            connection.close(end)

    # Agreeing on a revision: basic/versioning.md, basic/lifecycle.md of the legacy ones
    def _negotiate(self, connection: Connection, wanted: str, until: float) -> None:
        """Probe unless a legacy revision is wanted; shake hands if one is agreed on.

        `until`: when it must be done, by time.monotonic()
        """
        # The answers to the probe and to the handshake both come to this queue: a
        # server that was silent may only be slow, so whichever comes first decides.
        inbox: SimpleQueue[Any] = SimpleQueue()
        version = wanted
        words: Json = {}
        if version not in LEGACY_VERSIONS:
            version, words = self._probe(connection, inbox, wanted, until)
            # It has taken so long only if the user has logged in meanwhile.
            until = renew_deadline(until, self.timeout)
        if version in LEGACY_VERSIONS:
            version, words = self._shake_hands(connection, inbox, version, until)

        self._endpoint.learn_server(words)
        connection.protocol.version = version
        connection.protocol.initialized = True
        if version in LEGACY_VERSIONS:
            connection.notify("notifications/initialized", None)
        # Who was silent need not answer any more.
        connection.fail_pending(Cancelled("another answer came first"), tell=True)

    def _probe(
        self,
        connection: Connection,
        inbox: SimpleQueue[Any],
        wanted: str,
        until: float,
    ) -> tuple[str, Json]:
        """Ask by server/discover: (revision to speak, what the server says of itself).

        Where any revision will do, silence means a legacy one. Else raises Timeout, and
        as _judge_probe does.
        """
        is_pinned = wanted != "auto"
        revision = NEWEST
        # Half of it is left for the handshake.
        patience = min(PROBE_SECONDS, (until - time.monotonic()) / 2)
        until_silent = time.monotonic() + patience
        if is_pinned:
            revision = wanted
            until_silent = until
        params = self._endpoint.add_meta({}, revision)
        _send_opening(connection, "server/discover", params, inbox)
        try:
            answer = self._next_opening(connection, inbox, until_silent)
        except Timeout:
            if is_pinned:
                raise
            return LAST_LEGACY, {}
        return self._judge_probe(answer), answer.result or {}

    def _shake_hands(
        self,
        connection: Connection,
        inbox: SimpleQueue[Any],
        version: str,
        until: float,
    ) -> tuple[str, Json]:
        """Ask by `initialize`: (revision to speak, what the server says of itself).

        The late answer of a modern server to the probe will do, too. Raises Timeout,
        and as the judges do.
        """
        params = {
            "protocolVersion": version,
            "clientInfo": self._endpoint.info,
            "capabilities": self._endpoint.capabilities(version),
        }
        handshake = _send_opening(connection, "initialize", params, inbox)
        while True:
            answer = self._next_opening(connection, inbox, until)
            words = answer.result or {}
            if answer.pending is handshake:
                return self._judge_handshake(answer), words
            version = self._judge_probe(answer)
            if version >= FIRST_MODERN:
                return version, words

    def _next_opening(
        self, connection: Connection, inbox: SimpleQueue[Any], until: float
    ) -> Answer:
        """The next answer to what _send_opening sent. Raises Timeout.

        As with any wait, the time starts anew if it ends while the user logs in.
        """
        while True:
            try:
                answer: Answer = get_within(inbox, until - time.monotonic())
                return answer
            except Empty:
                if not connection.is_asked_elsewhere():
                    told = f"connecting: no answer within {self.timeout:g} s"
                    raise Timeout(told, connection.transport.details()) from None
                until = time.monotonic() + self.timeout

    def _judge_probe(self, answer: Answer) -> str:
        """The revision that the answer to a probe leads to.

        Raises UnsupportedVersion, InternalError for a resultType that is none, and
        errors that do not mean "legacy".
        """
        error = answer.error
        if error is None:
            # "A resultType of any value unrecognized [...] MUST be considered invalid",
            # and no other than this one answers what asks nothing.
            kind = answer.result.get("resultType", "complete")
            if kind != "complete":
                raise InternalError(f"server/discover: resultType: got {show(kind)}")
            offered = answer.result.get("supportedVersions")
        elif isinstance(error, UnsupportedVersion):
            offered = object_or_empty(error.data).get("supported")
        elif isinstance(error, McpError) and error.code not in MODERN_ERRORS:
            # "any other error [...]: the server is legacy".
            if self._version in MODERN_VERSIONS:
                raise self._not_spoken("server/discover", error) from error
            offered = LEGACY_VERSIONS
        elif self._version == "auto" and may_be_legacy(error):
            offered = LEGACY_VERSIONS
        else:
            raise error
        if not isinstance(offered, (list, tuple)):
            # A server that answers something else is legacy, too.
            offered = LEGACY_VERSIONS
        return self._choose_version(offered, LEGACY_VERSIONS + MODERN_VERSIONS, error)

    def _judge_handshake(self, answer: Answer) -> str:
        """The revision of the session. Raises the answer, or UnsupportedVersion."""
        error = answer.error
        # A modern server does not know `initialize`, or wants `_meta` with it.
        if isinstance(
            error,
            (
                MethodNotFound,
                InvalidParams,
                HeaderMismatch,
                MissingCapability,
                UnsupportedVersion,
            ),
        ):
            raise self._not_spoken("initialize", error) from error
        if error is not None:
            raise error
        offered = [answer.result.get("protocolVersion")]
        return self._choose_version(offered, LEGACY_VERSIONS)

    def _not_spoken(self, method: str, error: McpError) -> UnsupportedVersion:
        """What connect() raises when the server refuses the era that is wanted."""
        return UnsupportedVersion(
            f"the server does not speak {self._version}: it answers {method} with "
            f"{error.code} {error.message}",
            error.data,
        )

    def _choose_version(
        self, offered: Any, spoken: tuple[str, ...], error: Exception | None = None
    ) -> str:
        """The newest revision offered, spoken and wanted. Raises UnsupportedVersion."""
        if self._version != "auto":
            spoken = (self._version,) if self._version in spoken else ()
        common = [version for version in spoken if version in offered]
        if common:
            return common[-1]
        # "If the client does not support the version in the server's response, it
        # SHOULD disconnect."
        raise UnsupportedVersion(
            f"the server speaks {show(offered)}, which is not {self._version}",
            {"supported": offered, "requested": self._version},
        ) from error

    # What the server says of itself: nothing before connect(), and nobody verifies it
    @property
    def server_info(self) -> Json:
        """{"name", "version", ...}."""
        return self._endpoint.server_info

    @property
    def server_capabilities(self) -> Json:
        """{"tools": {...}, ...}: what the server offers; it may grow."""
        return self._endpoint.server_capabilities

    @property
    def instructions(self) -> str | None:
        """How to use the server, for a model; None when it says nothing."""
        return self._endpoint.instructions

    @property
    def protocol_version(self) -> str:
        """The revision that is spoken. Raises ConnectionClosed when not connected."""
        return self._require_connection().protocol.version

    # Requests
    def request(
        self, method: str, params: Json | None = None, timeout: float | None = None
    ) -> Json:
        """Send any request, and block for its result, as on the wire.

        method: of this protocol, or an extension's. Its results may have a resultType
            that this protocol does not know if the client declares extensions
        params: as on the wire; what every request carries is added
        timeout: in seconds, else the client's

        Raises MethodNotFound for what this server cannot be asked, the McpError that it
        answers, InternalError for a resultType that is new, Timeout, ConnectionClosed.
        """
        return self._start(method, params).result(timeout)

    def notify(self, method: str, params: Json | None = None) -> None:
        """Send any notification.

        method: of this protocol, or an extension's
        params: as on the wire; of an extension's, what every request carries is added
        """
        connection = self._require_connection()
        if method not in METHODS:
            version = connection.protocol.version
            params = self._endpoint.add_meta(params or {}, version)
        connection.notify(method, params)

    def ping(self, timeout: float | None = None) -> None:
        """Raise unless the server answers.

        timeout: in seconds, else the client's
        """
        modern = self.protocol_version >= FIRST_MODERN
        self.request("server/discover" if modern else "ping", timeout=timeout)

    def set_log_level(self, level: str) -> None:
        """Ask for log messages, which on_log hears. Raises ValueError.

        level: the least that matters: one of LOG_LEVELS, "debug" to "emergency"
        """
        if level not in LOG_LEVELS:
            raise ValueError(f"level: {LEVELS_TEXT}, got {show(level)}")
        if self.protocol_version < FIRST_MODERN:
            self.request("logging/setLevel", {"level": level})
        # Modern: each later request carries it.
        self._endpoint.log_level = level

    def set_roots(self, roots: Any) -> None:
        """Change what the server may work on; in a legacy session, it is told so.

        roots: as Client has them

        Raises ValueError for what is no root of files, and when the server cannot have
        heard of any: it was connected to without roots.
        """
        self._endpoint.set_roots(roots, self._connection)

    def _require_connection(self) -> Connection:
        conversation = self._conversation
        if conversation is None:
            raise ConnectionClosed(
                "the client is not connected; use `with client:` or client.connect()"
            )
        if conversation.opener is not threading.current_thread():
            self._wait_for_opening(conversation)
        if conversation.connection is None:
            raise ConnectionClosed("the client could not connect")
        return conversation.connection

    def _wait_for_opening(self, conversation: _Conversation) -> None:
        """Wait while another thread connects: until it has, nothing may be asked. That
        has its time, but for a user who logs in; who asks that user must not wait."""
        while not conversation.settled.wait(self.timeout):
            connection = conversation.connection
            if connection and threading.get_ident() in connection.answerers:
                raise Timeout("the client waits for this thread to be connected")

    def _deadline(self) -> float:
        """When a call that begins now must be over, by time.monotonic()."""
        if self.total_timeout is None:
            return float("inf")
        return time.monotonic() + self.total_timeout

    def _start(
        self,
        method: str,
        params: Json | None = None,
        on_progress: Callback = None,
        deadline: float | None = None,
    ) -> Call:
        """Send a request that this server may be sent."""
        version = self.protocol_version
        params = params or {}
        if deadline is None:
            deadline = self._deadline()
        row = METHODS.get(method)
        # What is not in the table may be an extension's: the server is to judge it.
        if row is not None:
            self._check_offered(row, version, deadline)
            if row.asks and on_progress is None:
                on_progress = self._on_progress
        params = self._endpoint.add_meta(params, version)
        return Call(self, method, params, on_progress, deadline)

    def _check_offered(self, row: Method, version: str, deadline: float) -> None:
        """Raise MethodNotFound for what the revision or the server does not have."""
        if not row.is_in(version):
            raise MethodNotFound(f"{row.name} is not in {version}")
        if not self._is_offered(row, version, deadline):
            raise MethodNotFound(
                f"{row.name}: the server did not declare {'.'.join(row.capability)}"
            )

    def _is_offered(self, row: Method, version: str, deadline: float) -> bool:
        """Whether the server has declared what a method needs."""
        needed = row.capability
        if needed == ("completions",) and version == OLDEST:
            # Completion had no capability yet.
            return True
        is_declared = has_capability(self._endpoint.server_capabilities, needed)
        if is_declared or version < FIRST_MODERN:
            return is_declared
        # The server may have grown since.
        discovery = self._start("server/discover", deadline=deadline)
        self._endpoint.learn_server(discovery.result())
        return has_capability(self._endpoint.server_capabilities, needed)

    # The server's features
    def call(self, name: str, /, **arguments: object) -> Any:
        """Call a tool for its value: structured content, else text, else blocks.

        name: the tool's
        arguments: as JSON has them

        It takes the client's `timeout`. For another one, or progress: call_tool(), or
        start_call(name, arguments).value(timeout).

        Raises ToolError when the tool failed, with what it said, and as call_tool does.
        """
        return self.start_call(name, arguments).value()

    def call_tool(
        self,
        name: str,
        arguments: Json | None = None,
        timeout: float | None = None,
        on_progress: Callback = None,
        meta: Json | None = None,
    ) -> Json:
        """Call a tool for its result: {"content", "structuredContent", "isError"}.

        name: the tool's
        arguments: as JSON has them
        timeout: in seconds, else the client's
        on_progress: on_progress(progress, total, message) runs in this thread; else the
            client's
        meta: the request's `_meta`, with what every request carries added

        See server/tools.md. Raises NotFound, InvalidParams, Timeout, and InternalError
        for a structured result that the tool's outputSchema forbids, or that would take
        too much work to check, and for an outputSchema that cannot be used.
        """
        call = self.start_call(name, arguments, on_progress=on_progress, meta=meta)
        return call.checked_result(timeout)

    def start_call(
        self,
        name: str,
        arguments: Json | None = None,
        *,
        on_progress: Callback = None,
        meta: Json | None = None,
    ) -> Call:
        """Start a tool call and return at once. Its result() is not checked against the
        tool's outputSchema, as its value() is.

        name: the tool's
        arguments: as JSON has them
        on_progress: on_progress(progress, total, message) runs in result(), else the
            client's
        meta: the request's `_meta`, with what every request carries added
        """
        params = add_given({"name": name, "arguments": arguments or {}}, _meta=meta)
        return self._start("tools/call", params, on_progress)

    def list_tools(self) -> list[Json]:
        """Every tool, of all pages: [{"name", "inputSchema", ...}].

        None where the server does not declare tools. Raises InternalError when they are
        too many, and Timeout when the pages do not end in time.
        """
        return self._read_tools(self._deadline()).valid

    def _read_tools(self, deadline: float) -> KnownTools:
        """Read all of them, and remember what calls of them want to know."""
        endpoint = self._endpoint
        changes = endpoint.tools_changes
        tools = []
        until = float("inf")
        for page in self._read_pages("tools/list", deadline):
            tools += page["tools"]
            until = min(until, fresh_until(page))
        endpoint.tools = known = KnownTools(tools, until, self._log, changes)
        endpoint.knows_mirrors = True
        return known

    def _learn_mirrors(self) -> None:
        """Read what headers mirror of arguments, unless that was tried."""
        if self._endpoint.knows_mirrors:
            return
        try:
            self._read_tools(time.monotonic() + PROBE_SECONDS)
        except Exception as error:
            # The server says so if it misses a header: see Call._read_tools_again.
            self._log.debug(f"what headers mirror is not known: {error_text(error)}")
            self._endpoint.knows_mirrors = True

    def list_resources(self) -> list[Json]:
        """Every resource: [{"uri", "name", ...}]. Raises as list_tools."""
        return self._read_list("resources/list")

    def list_resource_templates(self) -> list[Json]:
        """Every template: [{"uriTemplate", "name", ...}]. Raises as list_tools."""
        return self._read_list("resources/templates/list")

    def list_prompts(self) -> list[Json]:
        """Every prompt: [{"name", "arguments", ...}]. Raises as list_tools."""
        return self._read_list("prompts/list")

    def read_resource(self, uri: str) -> Json:
        """Read a resource: {"contents": [{"uri", "mimeType", "text" or "blob"}]}.

        uri: the resource's, as listed, or made from a template

        Raises NotFound.
        """
        return _with_objects(self.request("resources/read", {"uri": uri}), "contents")

    def read(self, uri: str) -> str | bytes:
        """A resource's text, or its bytes.

        Of several contents, the texts joined; without any text, the bytes of the first.

        uri: the resource's, as listed, or made from a template

        Raises NotFound.
        """
        contents: list[Json] = self.read_resource(uri)["contents"]
        texts = [item["text"] for item in contents if isinstance(item.get("text"), str)]
        if texts or not contents:
            return "".join(texts)
        import base64

        try:
            return base64.b64decode(str(contents[0].get("blob", "")), validate=True)
        except ValueError as error:
            raise InternalError(f"{uri}: blob: not base64: {error}") from None

    def get_prompt(self, name: str, arguments: dict[str, str] | None = None) -> Json:
        """Have a prompt filled in: {"description", "messages": [{"role", "content"}]}.

        name: the prompt's
        arguments: its arguments, all texts

        Raises NotFound, InvalidParams.
        """
        params = {"name": name, "arguments": arguments or {}}
        return _with_objects(self.request("prompts/get", params), "messages")

    def complete(
        self,
        ref: str | Json,
        argument: str,
        value: str,
        context: dict[str, str] | None = None,
    ) -> list[str]:
        """What an argument could become: server/utilities/completion.md.

        ref: a prompt's name, a template of URIs, or {"type":, ...} as on the wire
        argument: the name of the argument
        value: what is written of it so far
        context: the other arguments, as far as they are known
        """
        reference = ref
        if isinstance(ref, str) and ":" in ref:
            reference = {"type": "ref/resource", "uri": ref}
        elif isinstance(ref, str):
            reference = {"type": "ref/prompt", "name": ref}
        params: Json = {
            "ref": reference,
            "argument": {"name": argument, "value": value},
        }
        if context:
            params["context"] = {"arguments": context}
        result = self.request("completion/complete", params)
        values = object_or_empty(result.get("completion")).get("values")
        if isinstance(values, list) and all(isinstance(each, str) for each in values):
            return values
        told = show(values)
        raise InternalError(
            f"completion.values: expected an array of texts, got {told}"
        )

    def _read_list(self, method: str) -> list[Json]:
        pages = self._read_pages(method, self._deadline())
        return [item for page in pages for item in page[METHODS[method].paged]]

    def _read_pages(self, method: str, deadline: float) -> Iterator[Json]:
        """Every page of a list: server/utilities/pagination.md. None where the server
        does not declare that it has one.

        However many there are, they take no longer than `timeout` together.
        """
        row = METHODS[method]
        if not self._is_offered(row, self.protocol_version, deadline):
            return
        deadline = min(deadline, time.monotonic() + self.timeout)
        budget = Budget(MAX_MESSAGE)
        items = 0
        seen: set[str] = set()
        cursor: str | None = None
        while len(seen) < MAX_PAGES:
            try:
                params = add_given({}, cursor=cursor)
                result = self._start(method, params, deadline=deadline).result()
            except ValueError as error:
                # JSON cannot say it: it has a lone surrogate.
                raise InternalError(f"{method}: nextCursor: {error}") from None
            page = _with_objects(result, row.paged)[row.paged]
            cursor = _next_cursor(method, result)
            items += len(page)
            # The cursors are kept as well.
            size = len(encode_json(page)) + len(cursor or "")
            if items > MAX_ITEMS or not budget.take(size):
                raise InternalError(
                    f"{method}: more than {MAX_ITEMS} items, or {MAX_MESSAGE} bytes"
                )
            yield result
            if cursor is None:
                return
            if cursor in seen:
                told = show(cursor)
                raise InternalError(f"{method}: nextCursor: {told} came twice")
            seen.add(cursor)
        raise InternalError(f"{method}: nextCursor: one more, after {MAX_PAGES} pages")

    def _check_result(self, tool: str, result: Json, deadline: float) -> None:
        """Raise InternalError for a result that the tool's outputSchema forbids."""
        endpoint = self._endpoint
        known = endpoint.tools
        is_current = known is not None and known.changes == endpoint.tools_changes
        if not is_current and "structuredContent" in result:
            known = self._known_anew(deadline)
        if known is None:
            # "Clients SHOULD validate structured results against this schema": here is
            # none. Whether there should be one, only the list would tell. To read it
            # for every text, from servers that mostly have no such schema, would double
            # what a first call takes, for nothing but to throw away what a tool has
            # done. So it is not read for that; but where it was, it counts.
            return
        errors = known.errors_in(tool, result, deadline)
        # A result is never condemned by an old list.
        if errors and not known.is_fresh():
            known = self._known_anew(deadline)
            errors = known.errors_in(tool, result, deadline)
        if errors:
            told = "; ".join(errors)
            raise InternalError(f"{tool}: its outputSchema is not met: {told}")

    def _known_anew(self, deadline: float) -> KnownTools:
        """The tools, read again; none when there is no list to be had."""
        try:
            return self._read_tools(deadline)
        except (McpError, ConnectionError, Timeout) as error:
            # The tool has run: its result is worth more than the check.
            told = error_text(error)
            self._log.warning(f"a result is not checked, without its schema: {told}")
            return KnownTools([], 0.0, self._log)

    # Hearing of changes
    def subscribe(self, uri: str) -> None:
        """Have on_notification hear of a resource's changes. Blocks until it is agreed.

        uri: the resource's
        """
        # Two threads that subscribe at once have one each, and unsubscribe() ends both.
        begun = self._subscriptions.setdefault(uri, [])
        if not any(each in self._endpoint.listenings for each in list(begun)):
            # on_notification hears all that comes.
            begun.append(Listening(self, [], [uri], do_nothing))

    def unsubscribe(self, uri: str) -> None:
        """Stop what subscribe() began.

        uri: the resource's
        """
        begun = self._subscriptions.get(uri, [])
        with suppress(IndexError):
            while True:
                begun.pop().close()

    def listen(
        self,
        tools: bool = True,
        prompts: bool = True,
        resources: bool = True,
        uris: Iterable[str] = (),
    ) -> Listening:
        """Hear of changes: {"method", "params"} each. Blocks until that is agreed.

        tools: whether to hear that the list of tools has changed
        prompts: the same for the list of prompts
        resources: the same for the list of resources
        uris: the resources to hear of when their contents change
        """
        wanted = {"tools": tools, "prompts": prompts, "resources": resources}
        return Listening(self, [kind for kind in LIST_CHANGES if wanted[kind]], [*uris])


def _send_opening(
    connection: Connection, method: str, params: Json, inbox: SimpleQueue[Any]
) -> Waiter:
    """Send a request that opens a conversation; its answer comes to a shared inbox."""
    return connection.request(Waiter(method, on_end=inbox.put), params)


###############################################################################
# 38. Many servers ############################################################
###############################################################################
# Config files as desktop clients and editors have them, and several servers as one.
# What is quoted in these files, or comes before a closing bracket, tells what it is.
_LOOSE_JSON = r"""(?sx)
    ( "(?: [^"\\] | \\. )* " )          # a text: left as it is
    | // [^\n]* | /\* .*? \*/           # comments
    | , (?= (?: \s | // [^\n]* | /\* .*? \*/ )* [}\]] )  # a trailing comma
    """
# ${NAME}, ${env:NAME}, or ${NAME:-what it is otherwise}.
_VARIABLE = r"\$\{([^}]*)\}"
# What such a file may say of one server; anything else in it is for others.
_SERVER_MEMBERS = ("command", "args", "env", "cwd", "url", "headers")


class Config(Json):
    """Targets by the names of their servers, as load_config() returns it.

    `errors` has a ValueError for each server that cannot be used: what is wrong with
    it, but no value, for that may be a secret. To ask for such a server raises it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.errors: dict[str, Exception] = {}

    def __missing__(self, name: str) -> Any:
        if name in self.errors:
            raise self.errors[name]
        raise KeyError(name)


def load_config(source: str | os.PathLike[str] | Json) -> Config:
    """The servers of a config file: {name: target}, each of which Client takes.

    source: a file as Claude Desktop, Cursor ("mcpServers") or VS Code ("servers") write
        it, where comments and trailing commas are allowed; or what is in one

    In command, args, cwd, env, url and headers, ${VAR}, ${env:VAR} and ${VAR:-default}
    stand for variables of this process, and a leading ~ for the home folder. A relative
    cwd starts at the file's folder. Servers that are `disabled` are left out; members
    that are not known are ignored.

    Raises OSError for a file that cannot be read, and ValueError for one that has no
    servers. What is wrong with one of them alone is in the result's `errors`.
    """
    place = "config"
    folder = None
    content: Any = source
    if not isinstance(source, Mapping):
        place = os.fspath(source)
        folder = os.path.dirname(os.path.abspath(place))
        with open(place, encoding="utf-8-sig") as file:
            content = _decode_loose_json(file.read(), place)

    for member in ("mcpServers", "servers"):
        if isinstance(content, Mapping) and isinstance(content.get(member), Mapping):
            content = content[member]
    if not isinstance(content, Mapping):
        raise ValueError(
            f'{place}: expected an object with "mcpServers" or "servers", got '
            f"{type(content).__name__}"
        )

    config = Config()
    for name, target in content.items():
        try:
            if folder is None and not isinstance(target, Mapping):
                # A program may name whatever Client takes.
                config[name] = target
            elif object_or_empty(target).get("disabled") is not True:
                config[name] = _expand_target(target, folder or "")
        except (TypeError, ValueError) as error:
            config.errors[name] = ValueError(f"{place}: {name}: {error}")
    return config


def _decode_loose_json(text: str, place: str) -> Any:
    """JSON that may have comments and trailing commas. Raises ValueError."""
    # As many lines remain, so that an error names the right one.
    strict = re.sub(
        _LOOSE_JSON, lambda match: match[1] or "\n" * match[0].count("\n"), text
    )
    try:
        return json.loads(strict)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{place}: not JSON: {error}") from None


def _expand_target(server: Any, folder: str) -> Json:
    """What a config file says of a server, as a target. Raises TypeError, ValueError."""
    if not isinstance(server, Mapping):
        raise ValueError(f"expected an object, got {type(server).__name__}")
    target: Json = {
        member: _expand(server[member], member, folder)
        for member in _SERVER_MEMBERS
        if server.get(member) is not None
    }
    read_target(target)
    if "cwd" in target:
        target["cwd"] = os.path.join(folder, target["cwd"])
    return target


def _expand(value: Any, place: str, folder: str) -> Any:
    """A value of a config file, its texts with their variables and their ~.

    Raises ValueError.
    """
    if isinstance(value, Mapping):
        return {name: _expand(value[name], f"{place}.{name}", folder) for name in value}
    if isinstance(value, list):
        return [_expand(each, f"{place}[{n}]", folder) for n, each in enumerate(value)]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        return value

    def look_up(match: re.Match[str]) -> str:
        name, has_default, default = match[1].partition(":-")
        name = name[4:] if name.startswith("env:") else name
        known = os.environ.get(name)
        if name == "workspaceFolder":
            # As in VS Code, whose files stand in a folder of their own.
            known = re.sub(r"[\\/]\.(vscode|cursor)$", "", folder)
        if has_default:
            # As in a shell, also where it is empty.
            known = known or default
        if known is None:
            raise ValueError(f"{place}: the variable {name} is not set")
        return known

    return re.sub(_VARIABLE, look_up, os.path.expanduser(value))


def hear_changes(client: Client, seconds: float) -> None:
    """Have on_notification hear of all changes: a modern server tells only who listens,
    and this hears them all. One that does not answer, or refuses, does as well."""
    try:
        Listening(client, list(LIST_CHANGES), [], do_nothing, max(0.0, seconds))
    except (McpError, HttpFailure, Timeout) as error:
        client._log.debug(f"{client._label}: changes are not told: {error}")


# What servers list: the member that tells one from another, and how a client lists
# them.
_LISTED: dict[str, tuple[str, Callable[[Client], list[Json]]]] = {
    "tools": ("name", Client.list_tools),
    "resources": ("uri", Client.list_resources),
    "templates": ("uriTemplate", Client.list_resource_templates),
    "prompts": ("name", Client.list_prompts),
}
# What no name of a tool may have: server/tools.md.
_NOT_IN_NAMES = r"[^A-Za-z0-9_.-]"


class ClientGroup:
    """Several servers as one: `with ClientGroup("mcp.json") as group: ...`.

    Tools and prompts are named SERVER_NAME in it, resources keep their URIs.

        group.clients  the clients that are connected, by the names of their servers
        group.errors   why the others are not: exceptions, by name
        group["name"]  one of the clients

    Its calls are a Client's: they block their thread, may be made from any, and raise
    the same. A server that ends, ends none of the others.
    """

    def __init__(
        self,
        source: str | os.PathLike[str] | Json,
        *,
        raise_errors: bool = False,
        **client_options: Any,
    ) -> None:
        """Prepare to reach servers, by `with` or connect().

        source: a config file, or what is in one, see load_config(); or a dict of
            targets by name, each of them anything that Client takes
        raise_errors: whether a server that cannot be used raises, in place of being
            left out; the others are closed then
        client_options: of each Client

        Raises OSError and ValueError as load_config() does, and TypeError or ValueError
        for options that no Client has.
        """
        # Wrong options are no server's fault.
        Client(["-"], **client_options)
        config = load_config(source)
        self.clients: dict[str, Client] = {}
        self.errors: dict[str, Exception] = config.errors
        self._raise_errors = raise_errors
        self._on_notification = client_options.get("on_notification")
        self._log = _Log()
        # All of them, in the order of the file.
        self._all: dict[str, Client] = {}
        # Whose what was listed is, and its name there, by its kind and its name here.
        # Replaced as a whole.
        self._owners: dict[tuple[str, str], tuple[Client, Any]] = {}
        for name, target in config.items():
            try:
                client = Client(target, **client_options)
                client._label = name
                self._all[name] = client
            except (TypeError, ValueError) as error:
                self.errors[name] = error

    def connect(self) -> ClientGroup:
        """Reach all servers side by side; `errors` says which of them did not come.

        Blocks, for the clients' `timeout` at most. Returns the group itself. Raises the
        first error, with `raise_errors`.
        """
        try:
            self.clients = self._of_each(self._all, self._connect)
            for name in self.clients:
                # It may not have come the last time.
                self.errors.pop(name, None)
            if self._raise_errors and self.errors:
                raise next(iter(self.errors.values()))
        except BaseException:
            self.close()
            raise
        return self

    def _connect(self, client: Client) -> Client:
        until = time.monotonic() + client.timeout
        client.connect()
        if self._on_notification is not None:
            hear_changes(client, until - time.monotonic())
        return client

    def close(self) -> None:
        """End all conversations, side by side. Idempotent, from any thread."""
        self._of_each(self._all, Client.close)

    def __enter__(self) -> ClientGroup:
        return self.connect()

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __getitem__(self, server: str) -> Client:
        """The client of a server. Raises why there is none, or KeyError."""
        if server in self.clients:
            return self.clients[server]
        unknown = KeyError(f"{server}: no such server{suggest(server, self.clients)}")
        raise self.errors.get(server, unknown)

    def list_tools(self) -> list[Json]:
        """The tools of all servers, as Client.list_tools() has them, but for names."""
        return self._list("tools")

    def list_prompts(self) -> list[Json]:
        """The prompts of all servers: see list_tools()."""
        return self._list("prompts")

    def list_resources(self) -> list[Json]:
        """The resources of all servers."""
        return self._list("resources")

    def list_resource_templates(self) -> list[Json]:
        """The templates of all servers."""
        return self._list("templates")

    def call(self, name: str, /, **arguments: object) -> Any:
        """Call a tool for its value: Client.call().

        name: the tool's, as list_tools() has it
        arguments: as JSON has them
        """
        client, tool = self._find("tools", name)
        return client.call(tool, **arguments)

    def call_tool(
        self, name: str, arguments: Json | None = None, **options: Any
    ) -> Json:
        """Call a tool for its result: Client.call_tool(), whose options it takes.

        name: the tool's, as list_tools() has it
        arguments: as JSON has them
        """
        client, tool = self._find("tools", name)
        return client.call_tool(tool, arguments, **options)

    def get_prompt(self, name: str, arguments: dict[str, str] | None = None) -> Json:
        """Have a prompt filled in: Client.get_prompt().

        name: the prompt's, as list_prompts() has it
        arguments: its arguments, all texts
        """
        client, prompt = self._find("prompts", name)
        return client.get_prompt(prompt, arguments)

    def read_resource(self, uri: str) -> Json:
        """Read a resource of the first server that has it: Client.read_resource().

        uri: the resource's, as listed, or made from a template
        """
        result: Json = self._read(uri, Client.read_resource)
        return result

    def read(self, uri: str) -> str | bytes:
        """A resource's text, or its bytes: Client.read().

        uri: the resource's, as listed, or made from a template
        """
        content: str | bytes = self._read(uri, Client.read)
        return content

    def _of_each(
        self, clients: dict[str, Client], action: Callable[[Client], Any]
    ) -> dict[str, Any]:
        """What action(client) returns, by server. What fails is noted in `errors`.

        Each has a thread of its own: one that is slow holds up none of the others.
        """
        results: dict[str, Any] = dict.fromkeys(clients)

        def act(name: str, client: Client) -> None:
            try:
                results[name] = action(client)
            except Exception as error:
                del results[name]
                self.errors[name] = error
                self._log.warning(f"{name}: {error_text(error)}")

        threads = [
            threading.Thread(target=act, args=each, name="mcp-group", daemon=True)
            for each in clients.items()
        ]
        for thread in threads:
            thread.start()
        while not join_all(threads, WAIT_SLICE):
            # Each action has a deadline of its own.
            continue
        return results

    def _list(self, kind: str) -> list[Json]:
        """All of a kind; whose each is, is noted in `_owners`."""
        member, read = _LISTED[kind]
        listed = []
        owners = {key: owner for key, owner in self._owners.items() if key[0] != kind}
        for server, items in self._of_each(self.clients, read).items():
            # It may have failed before.
            self.errors.pop(server, None)
            for item in items:
                theirs = ours = item.get(member)
                if not isinstance(ours, str):
                    continue
                if member == "name":
                    ours = self._free_name(kind, server, ours, owners)
                owners.setdefault((kind, ours), (self.clients[server], theirs))
                listed.append({**item, member: ours})
        self._owners = owners
        return listed

    def _free_name(
        self, kind: str, server: str, name: str, taken: Mapping[tuple[str, str], Any]
    ) -> str:
        """SERVER_NAME; with more underscores, if another server's is named so."""
        prefix = re.sub(_NOT_IN_NAMES, "_", server) + "_"
        while (kind, prefix + name) in taken:
            prefix += "_"
            self._log.warning(
                f"{kind[:-1]} {name} of {server} is {prefix}{name} here: the shorter name "
                "is another's"
            )
        return prefix + name

    def _find(self, kind: str, name: str) -> tuple[Client, Any]:
        """Whose a tool or prompt is, and what it is called there. Raises NotFound."""
        if (kind, name) not in self._owners:
            # It may be new.
            self._list(kind)
        if (kind, name) not in self._owners:
            known = [each for of, each in self._owners if of == kind]
            absent = ", ".join(self.errors.keys() - self.clients.keys())
            told = f"; not connected: {absent}" if absent else ""
            raise NotFound(
                f"{kind[:-1]} {show(name)}: unknown{suggest(name, known)}{told}"
            )
        return self._owners[kind, name]

    def _read(self, uri: str, read: Callable[[Client, str], Any]) -> Any:
        """Read it from who lists it, else from the first of all that knows it."""
        owner = self._owners.get(("resources", uri))
        clients = list(self.clients.values()) if owner is None else [owner[0]]
        for client in clients:
            with suppress(NotFound, MethodNotFound):
                return read(client, uri)
        raise NotFound(f"resource {show(uri)}: no server has it")


###############################################################################
# 39. Bridge ##################################################################
###############################################################################
# A server that hands on what it is asked to another one, of any era, on any transport: a
# middleware, and clients of that other server.
#
#     client --its era--> Server, middleware --ours--> Client --the other's era--> server
#            <-----------  _Relay: progress, logs, questions  <-----------

# What is handed on. Anything else the bridge answers by itself; but for some of that,
# the other server must be there, and hear what is wanted of it.
_HANDED_ON = (
    "tools/list",
    "tools/call",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "prompts/list",
    "prompts/get",
    "completion/complete",
)
_HEEDED = (
    "initialize",
    "server/discover",
    "resources/subscribe",
    "subscriptions/listen",
)
# What of the other server's capabilities is offered: that which is handed on.
BRIDGED_CAPABILITIES = ("tools", "resources", "prompts", "completions", "logging")
# What a client must have declared for a question, and how ours comes to ask it.
_ASKED_BY = {
    "elicitation": ("on_elicit", "elicitation/create"),
    "sampling": ("on_sample", "sampling/createMessage"),
    "roots": ("roots", "roots/list"),
}
# Of a request, what concerns one round of ours alone; of a result, what a legacy one
# has not.
_ROUND_MEMBERS = ("_meta", "inputResponses", "requestState")
_MODERN_MEMBERS = ("resultType", "ttlMs", "cacheScope", "_meta")
BRIDGED_SECONDS = 86_400.0  # for a call: who called has a timeout, and cancels
# In this time the answer to a question must come.
PARKED_SECONDS = STATE_SECONDS


class _Relay:
    """A request that the other server works at. It outlives a round of ours.

        started --event--> due --done(ctx)--> started --its last event--> over
                            `--a question ends the round, the next one does it again

    An event is a function of the Context that is there to do it. It returns None; but
    the last one, the result, or raises why there is none.
    """

    def __init__(self, relays: list[_Relay]) -> None:
        # Those at work, of its client; the latest is the last.
        self._relays = relays
        self._events: SimpleQueue[Callable[[Context], Any]] = SimpleQueue()
        self._due: Callable[[Context], Any] | None = None
        # What questions have come in, each.
        self._asked_in: list[object] = []
        # Set as soon as `_call` is.
        self._has_begun = threading.Event()

    def start(self, client: Client, method: str, params: Json) -> None:
        """Send it. A thread of its own waits for what it comes to."""
        self._relays.append(self)
        try:
            self._call = client._start(method, params, self._tell_progress)
            threading.Thread(
                target=self._run, args=(client,), name="mcp-bridge", daemon=True
            ).start()
        except BaseException:
            self._relays.remove(self)
            raise
        finally:
            self._has_begun.set()

    def cancel(self) -> None:
        """Tell the other server that nobody waits for it any more."""
        self._call.cancel("the client of the bridge has lost interest")

    def _run(self, client: Client) -> None:
        with suppress(Exception):
            self._call.result(BRIDGED_SECONDS)
        # The logs that came before it come before it here, too.
        client._endpoint.flush_callbacks(self._call._connection, TIDY_SECONDS)
        self._relays.remove(self)
        # Asked again, it returns or raises the same.
        self._events.put(lambda ctx: self._call.result())
        # With no other call, there is none that can have asked.
        for question in [] if self._relays else self._asked_in:
            if isinstance(question, Request):
                self._call._connection.cut_short(question)

    def follow(self, ctx: Context) -> Json:
        """Do what its events ask for. Returns the result, or raises what the call did,
        or _InputRequired."""
        result: Json | None = None
        while result is None:
            if self._due is None:
                # Not without end: the call has a deadline, and its end is an event.
                self._due = get_within(self._events, None)
            result = self._due(ctx)
            self._due = None
        return result

    # What the other server says meanwhile: on threads of its client
    def _tell_progress(self, *told: Any) -> None:
        self._events.put(lambda ctx: ctx.progress(*told))

    def tell_log(self, *told: Any) -> None:
        """Pass on a log message."""
        self._events.put(lambda ctx: ctx.log(*told))

    def has_asked(self, asked_in: object) -> bool:
        """Whether a question that came in this is of this call: of a modern server."""
        return self._has_begun.wait(TIDY_SECONDS) and self._call._waiter is asked_in

    def ask(self, method: str, params: Json, asked_in: object) -> Any:
        """Have our client asked what came in this. Blocks for the answer; raises why
        there is none."""
        inbox: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self._asked_in.append(asked_in)
        key = f"bridge-{len(self._asked_in)}"
        request = asked_in if isinstance(asked_in, Request) else None
        if request is not None:
            # A legacy server may withdraw its question.
            request.cancel_inboxes.append(inbox)

        def put_answer(ctx: Context) -> None:
            ctx._asks_for = request
            try:
                inbox.put(("answered", ctx.ask({key: (method, params)})[key]))
            except Cancelled:
                inbox.put(("cancelled", None))
            except Exception as error:
                inbox.put(("failed", error))

        self._events.put(put_answer)
        outcome: tuple[str, Any] = ("cancelled", None)
        if self in self._relays:
            with suppress(Empty):
                outcome = get_within(inbox, STATE_SECONDS)
        kind, answer = outcome
        if kind == "cancelled":
            raise RequestCancelled(f"{method}: nobody waits for the answer any more")
        if kind == "failed":
            raise answer
        return answer


class Bridge:
    """Another server, offered by `server` on this process's stdio, or at a URL.

    It is reached by the first request, and again by the next one after it has ended. It
    is told of the capabilities that the bridge's own client has, by a client for each
    set of them. In a session, nothing tells for which of several calls a server asks:
    the one that began last asks the user.
    """

    def __init__(
        self,
        target: Any,
        *,
        allow: Iterable[str] = (),
        deny: Iterable[str] = (),
        **client_options: Any,
    ) -> None:
        """Prepare to bridge.

        target: the other server, as Client has it
        allow: patterns of the names of tools that are offered, such as "read_*"; by
            default all of them
        deny: patterns of those that are not
        client_options: of each Client
        """
        self._allow = list(allow) or ["*"]
        self._deny = list(deny)
        self._make_client = partial(Client, target, validate=False, **client_options)
        self.server = Server("bridge")
        self.server.middleware(self._serve)
        # Which URIs there are, the other server knows: here, any can be subscribed to.
        anything = Signature(lambda uri: uri, Context)
        self.server._registry.put(
            "resourceTemplates",
            "{+uri}",
            Offer({}, anything, template=UriTemplate("{+uri}")),
        )
        # Until it is known what the other server declares: what is asked shall reach it.
        self.server._registry.capabilities = {
            **{name: {} for name in BRIDGED_CAPABILITIES},
            "resources": {"subscribe": True},
        }
        # By what it has declared: a client, and its relays.
        self._clients: dict[frozenset[str], tuple[Client, list[_Relay]]] = {}
        # Those that wait for the next round, by the key that travels with it; and what
        # gives each up.
        self._parked: dict[str, tuple[_Relay, threading.Timer]] = {}

    def close(self) -> None:
        """End what works, and the clients. Idempotent, from any thread."""
        for key in list(self._parked):
            self._take(key)
        with suppress(KeyError):
            while True:
                _, (client, _) = self._clients.popitem()
                client.close()

    def _serve(
        self, ctx: Context, method: str, params: Json, call_next: Callable[..., Json]
    ) -> Json:
        """The middleware: each request comes here first."""
        try:
            if method in _HANDED_ON:
                return self._hand_on(ctx, method, params)
            if method in _HEEDED:
                self._heed(ctx, params)
            return call_next()
        except NotFound as error:
            if "uri" in params:
                data = {"uri": params["uri"]}
                error = missing(error.message, data, ctx.protocol_version)
            raise error from None
        except OSError as error:
            # The other server's end is no failure of ours.
            raise InternalError(error_text(error)) from None

    # Reaching the other server
    def _reach(self, ctx: Context) -> tuple[Client, list[_Relay]]:
        """The client that has declared what this request's client has, connected."""
        declared = frozenset(_ASKED_BY).intersection(ctx.client_capabilities)
        if declared not in self._clients:
            # Another thread may be faster.
            self._clients.setdefault(declared, self._prepare(declared))
        client, relays = self._clients[declared]
        conversation = client._conversation
        if conversation is None or conversation.is_dead():
            # If another thread is about to connect, what is asked waits for that.
            with suppress(RuntimeError):
                client.connect()
                hear_changes(client, client.timeout)
                for uri in list(client._subscriptions):
                    # The server that has ended knew of them.
                    with suppress(McpError):
                        client.subscribe(uri)
                with suppress(McpError):
                    # Which of them each of our own clients gets, our server knows.
                    client.set_log_level("debug")
        return client, relays

    def _prepare(self, declared: frozenset[str]) -> tuple[Client, list[_Relay]]:
        relays: list[_Relay] = []

        def ask(method: str, params: Json) -> Any:
            connection = client._connection
            assert connection is not None
            asked_in = connection.answerers[threading.get_ident()]
            asking = [each for each in list(relays) if each.has_asked(asked_in)]
            for relay in (asking or relays)[-1:]:
                return relay.ask(method, params, asked_in)
            raise InvalidRequest(f"{method}: no call is at work that could ask")

        callbacks: Json = {
            _ASKED_BY[name][0]: partial(ask, _ASKED_BY[name][1]) for name in declared
        }
        if "roots" in callbacks:
            callbacks["roots"] = lambda: ask("roots/list", {})["roots"]
        client = self._make_client(
            on_log=partial(_log_latest, relays),
            on_notification=self._tell_change,
            **callbacks,
        )
        return client, relays

    def _heed(self, ctx: Context, params: Json) -> None:
        """Be what the other server says it is; and have it tell of these resources: our
        own then tells who has subscribed."""
        client, _ = self._reach(ctx)
        version = client.protocol_version
        capabilities = {
            name: value
            for name, value in client.server_capabilities.items()
            if name in BRIDGED_CAPABILITIES
        }
        if version == OLDEST:
            # Completion had no capability yet.
            capabilities["completions"] = {}
        self.server._endpoint._info = client.server_info
        self.server.instructions = client.instructions
        self.server._registry.capabilities = {"logging": {}, **capabilities}
        if not has_capability(capabilities, RESOURCE_UPDATE.capability):
            # Our own refuses that, or leaves it out of its acknowledgement.
            return
        uris = object_or_empty(params.get("notifications")).get("resourceSubscriptions")
        for uri in [params["uri"]] if "uri" in params else uris or []:
            client.subscribe(uri)

    def _tell_change(self, method: str, params: Json) -> None:
        """Pass a change on to whom it concerns."""
        if method == RESOURCE_UPDATE.method:
            self.server.resource_updated(str(params.get("uri")))
        for change in LIST_CHANGES.values():
            if method == change.method:
                self.server._endpoint.tell(change)

    # What is handed on
    def _is_offered(self, tool: object) -> bool:
        from fnmatch import fnmatchcase

        name = str(tool)
        is_allowed = any(fnmatchcase(name, pattern) for pattern in self._allow)
        return is_allowed and not any(fnmatchcase(name, each) for each in self._deny)

    def _hand_on(self, ctx: Context, method: str, params: Json) -> Json:
        """Begin a request to the other server, or go on with it, in whichever of its
        rounds. Returns its result, as the revision of our client has it."""
        if method == "tools/call" and not self._is_offered(params["name"]):
            raise NotFound(f"Unknown tool: {params['name']}")
        key = ctx.once("bridge", lambda: os.urandom(16).hex())
        relay = self._take(key)
        if relay is None and "requestState" in params:
            raise InvalidParams("requestState: nothing waits for this answer any more")
        if relay is None:
            given = {
                name: params[name] for name in params if name not in _ROUND_MEMBERS
            }
            given["_meta"] = {
                name: value
                for name, value in ctx.meta.items()
                if not name.startswith(META) and name != "progressToken"
            }
            client, relays = self._reach(ctx)
            relay = _Relay(relays)
            relay.start(client, method, given)
        ctx.on_cancel(relay.cancel)
        try:
            result = relay.follow(ctx)
        except _InputRequired:
            # The answer comes with another request, perhaps.
            self._park(key, relay)
            raise
        return self._fit(ctx, result)

    def _fit(self, ctx: Context, result: Json) -> Json:
        version = ctx.protocol_version
        meta = object_or_empty(result.get("_meta"))
        fitted = {**result, "_meta": {**meta}}
        # Who answers is said by our own.
        fitted["_meta"].pop(META_SERVER_INFO, None)
        if version < FIRST_MODERN:
            for name in _MODERN_MEMBERS:
                fitted.pop(name, None)
        kind = ctx._request.row.paged
        if kind:
            fitted[kind] = [
                fit_members(item, MEMBER_SINCE[kind], version)
                for item in map(object_or_empty, result.get(kind) or [])
                if kind != "tools" or self._is_offered(item.get("name"))
            ]
        return fit_result(fitted, version) if "content" in fitted else fitted

    def _park(self, key: str, relay: _Relay) -> None:
        if len(self._parked) >= MAX_ABANDONED:
            relay.cancel()
            raise InvalidRequest(f"{MAX_ABANDONED} calls wait for answers")
        timer = start_timer(PARKED_SECONDS, self._give_up, key)
        self._parked[key] = (relay, timer)

    def _take(self, key: str) -> _Relay | None:
        relay, timer = self._parked.pop(key, (None, None))
        if timer is not None:
            timer.cancel()
        return relay

    def _give_up(self, key: str) -> None:
        relay = self._take(key)
        if relay is not None:
            relay.cancel()


def _log_latest(relays: list[_Relay], *told: Any) -> None:
    for relay in relays[-1:]:
        relay.tell_log(*told)


###############################################################################
# 40. Terminal ################################################################
###############################################################################
# Between a server and who sits at the terminal: what a schema wants, in a word or two;
# what a typed text means; progress, logs, and questions with their answers.

# What a user may type for a boolean.
_BOOLEANS = {"y": "true", "yes": "true", "n": "false", "no": "false"}


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


# What tells of a schema what it takes, by the member that says it: the first that fits.
_TYPE_WORDS: dict[str, Callable[[Any], Iterable[str]]] = {
    "const": lambda value: [show(value)],
    "enum": lambda values: map(show, _listed(values)),
    "anyOf": lambda schemas: map(_show_type, _listed(schemas)),
    "oneOf": lambda schemas: map(_show_type, _listed(schemas)),
    "$ref": lambda ref: [str(ref).rpartition("/")[2]],
    "items": lambda schema: [_show_items(_show_type(schema))],
    "type": lambda kinds: map(str, _listed(kinds)),
}


def _show_type(schema: object) -> str:
    """A schema in a word or two."""
    members = object_or_empty(schema)
    for name, words in _TYPE_WORDS.items():
        if name in members:
            return " | ".join(words(members[name]))
    return "any"


def _show_items(kind: str) -> str:
    return f"({kind})[]" if " | " in kind else f"{kind}[]"


def _coerce(name: str, text: str, schema: Json) -> Any:
    """What key=value means: what it is in JSON where a tool takes that, else the text.

    So 012, or 5, remains a text where one is wanted.
    """
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    member = object_or_empty(object_or_empty(schema.get("properties")).get(name))
    # Of a wrong value, its own fault is to be told, not that it is text.
    takes_text = "string" in str(member.get("type", "string"))
    if takes_text and validate({name: value}, {**schema, "required": []}):
        value = text
    return text if isinstance(value, str) else value


def _note(text: str) -> None:
    """Write a line to stderr."""
    print(printable(text), file=sys.stderr)


class _Terminal:
    """Shows progress and logs on stderr, and asks the user what a server wants to know.

    Without a terminal questions are declined, or with --yes answered by their defaults.
    """

    BAR = 24  # characters

    def __init__(self, options: Any) -> None:
        self._options = options
        self._is_there = sys.stdin.isatty() and sys.stderr.isatty()
        self._shows_progress = False

    def show_log(self, level: str, data: object, logger: str | None) -> None:
        text = data if isinstance(data, str) else json.dumps(data)
        self.end_progress()
        _note(f"[{level}] {text}")

    def show_progress(self, done: float, total: float | None, text: str | None) -> None:
        if self._options.quiet or not sys.stderr.isatty():
            return
        line = f"{done:g}"
        if total:
            filled = round(self.BAR * min(1.0, max(0.0, done / total)))
            line = f"[{'#' * filled:{self.BAR}}] {done:g}/{total:g}"
        line = printable(f"{line} {text or ''}")[:78]
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
        self._shows_progress = True

    def end_progress(self) -> None:
        if self._shows_progress:
            print(file=sys.stderr)
            self._shows_progress = False

    def answer(self, params: Json) -> Json:
        """Answer a question of the server's: Client(on_elicit=)."""
        self.end_progress()
        ask = self._answer_url if "url" in params else self._answer_form
        try:
            return ask(params)
        except EOFError:
            return {"action": "cancel"}

    def _answer_form(self, params: Json) -> Json:
        schema = object_or_empty(params.get("requestedSchema"))
        fields = object_or_empty(schema.get("properties"))
        content: Json = {
            name: field["default"]
            for name, field in fields.items()
            if "default" in field
        }
        if self._options.yes and not validate(content, schema):
            return {"action": "accept", "content": content}
        if not self._is_there:
            return self._decline(params["message"])
        _note(f"The server asks: {params['message']}")
        for name, field in fields.items():
            self._ask(name, field, schema, content)
        action = self._ask_line("Send this? [Y]es, [n]o, [c]ancel: ").lower()[:1]
        if action in ("n", "c"):
            return {"action": "decline" if action == "n" else "cancel"}
        return {"action": "accept", "content": content}

    def _ask(self, name: str, field: Json, schema: Json, content: Json) -> None:
        """Ask for a field of a form, until it is what that wants; empty: by default."""
        about = field.get("description") or field.get("title") or name
        default = f" [{show(field['default'])}]" if "default" in field else ""
        is_free = "default" in field or name not in (schema.get("required") or [])
        while True:
            text = self._ask_line(f"  {about} ({_show_type(field)}){default}: ")
            if not text and is_free:
                return
            if field.get("type") == "boolean":
                text = _BOOLEANS.get(text.lower(), text)
            value = _coerce(name, text, schema)
            wrong = validate({name: value}, {**schema, "required": []})
            if not wrong:
                content[name] = value
                return
            _note(f"  {wrong[0]}")

    def _answer_url(self, params: Json) -> Json:
        from urllib.parse import urlsplit

        url = urlsplit(params["url"])
        if not self._is_there or url.scheme not in ("http", "https"):
            return self._decline(params["url"])
        _note(f"The server asks you to visit {url.hostname}: {params['message']}")
        _note(f"  {params['url']}")
        if self._ask_line("Open it in the browser? [y]es, [N]o: ").lower()[:1] != "y":
            return {"action": "decline"}
        import webbrowser

        webbrowser.open(params["url"])
        return {"action": "accept"}

    def _decline(self, asked: str) -> Json:
        _note(f"declined, for nobody can be asked: {asked}")
        return {"action": "decline"}

    def visit(self, url: str) -> str | None:
        """Have the user log in with a browser elsewhere: OAuth(redirect=)."""
        _note(f"There is no browser here. Visit, wherever there is one:\n  {url}")
        text = "Then its address begins with http://localhost. Paste that here: "
        return self._ask_line(text) if self._is_there else None

    def _ask_line(self, text: str) -> str:
        """A line from the user. Raises EOFError.

        Not by input(), whose lock would outlive a Ctrl-C.
        """
        print(printable(text), end="", file=sys.stderr, flush=True)
        line = os.read(0, 4096)
        if not line:
            raise EOFError("the input has ended")
        return line.decode("utf-8", "replace").strip()


###############################################################################
# 41. Command line ############################################################
###############################################################################
# `python3 mcp_lite.py COMMAND ...`: servers tried out, and served, from a terminal. The
# result alone goes to stdout; all else, what fails too, to stderr. Made of public parts.
_PROGRAM = "python3 mcp_lite.py"

# What a command ends with, by what it raises: the first that fits.
_EXIT_CODES = (
    (AuthorizationError, 3),
    (ConnectionError, 4),
    (KeyboardInterrupt, 130),  # as a shell has it for Ctrl-C
    ((ToolError, McpError, Timeout), 5),
    (Exception, 1),
)

# Where a NAME is looked up without --config.
_CONFIG_FILES = (
    "mcp.json",
    ".mcp.json",
    ".vscode/mcp.json",
    ".cursor/mcp.json",
    "~/.cursor/mcp.json",
    "~/.config/Claude/claude_desktop_config.json",
    "~/Library/Application Support/Claude/claude_desktop_config.json",
    "~/AppData/Roaming/Claude/claude_desktop_config.json",
)
_TOKENS = "~/.mcp_lite_tokens.json"  # where `login` keeps them
SLOW_START = 2.0  # seconds: beyond, `inspect` calls it odd

# `without` names those of _COMMON that mean nothing to it.
_Command = namedtuple(
    "_Command", "action arguments summary example without", defaults=((),)
)


def _argument(*names: str, **options: Any) -> tuple[tuple[str, ...], Json]:
    return names, options


_TARGET = _argument("target", metavar="TARGET", help="see below")
_OUTPUT = _argument(
    "-o", "--output", metavar="FILE", help="write the result, or what is no text, there"
)
_PAIRS = _argument(
    "pairs",
    nargs="*",
    # Else some Pythons call it required.
    default=[],
    metavar="key=value",
    help="arguments; what is no text as JSON",
)

# Where `run` and `bridge` serve.
_SERVING = (
    _argument("--http", action="store_true", help="at a URL, not on stdio"),
    _argument("--host", default="127.0.0.1"),
    _argument("--port", type=int, default=8000),
    _argument("--path", default="/mcp"),
)

# What commands take that reach a server.
_COMMON = (
    _argument(
        "--header",
        action="append",
        default=[],
        metavar="K:V",
        help="of each HTTP request; may be given several times",
    ),
    _argument("--token-file", metavar="FILE", help="with a bearer token for a URL"),
    _argument(
        "-e",
        "--env",
        action="append",
        default=[],
        metavar="K=V",
        help="a variable of the server's environment; several times",
    ),
    _argument("--cwd", metavar="FOLDER", help="where a command as TARGET runs"),
    _argument("--config", metavar="FILE", help="where TARGET is the name of a server"),
    _argument(
        "--timeout",
        type=float,
        default=60.0,
        metavar="S",
        help="seconds for an answer, 60 by default; progress starts them again",
    ),
    _argument(
        "--protocol",
        default="auto",
        metavar="REVISION",
        help=f"{OLDEST} to {FIRST_MODERN}; by default the newest that both know",
    ),
    _argument("--json", action="store_true", help="the result, or failure, as JSON"),
    _argument(
        "--trace",
        nargs="?",
        const=True,
        metavar="explain|json|FILE",
        help="show all messages; with what each is for; raw; or append them to FILE",
    ),
    _argument("--yes", action="store_true", help="answer questions by their defaults"),
    _argument(
        "--quiet",
        action="store_true",
        help="no log, no progress, nothing of what the server writes to stderr",
    ),
)
# What means nothing where no server is reached.
_REACHING = (
    *("--header", "--token-file", "--cwd", "--config", "--timeout", "--protocol"),
    *("--yes", "--quiet"),
)
_TARGET_HELP = f"""
TARGET: a URL; a script; a command line in quotes; or the name of a server in a config
file. With `-- command arguments ...` at the end, leave it out:
    {_PROGRAM} list -- npx -y @modelcontextprotocol/server-everything
Exit codes: 0; 1 usage; 3 authorization; 4 unreachable; 5 the tool failed; 130 Ctrl-C.
"""


def main(argv: list[str] | None = None) -> int:
    """Run a command, as `python3 mcp_lite.py` does. Returns its exit code."""
    # A file that is served imports the same module.
    sys.modules.setdefault("mcp_lite", sys.modules[__name__])
    arguments = sys.argv[1:] if argv is None else argv
    is_json = "--json" in itertools.takewhile(lambda each: each != "--", arguments)
    try:
        options = _parse_arguments(arguments)
        told = None if options is None else COMMANDS[options.command].action(options)
        if told is not None:
            _write(options, *told)
        return 0
    except (Exception, KeyboardInterrupt) as error:
        exit_code = next(code for kind, code in _EXIT_CODES if isinstance(error, kind))
        text = str(error) or type(error).__name__
        if isinstance(error, AuthorizationError) and arguments[0] != "login":
            text += f" (to log in: {_PROGRAM} login {error.url or 'URL'})"
        line = f"mcp_lite: {printable(text)}"
        if is_json:
            code = getattr(error, "code", None)
            told = {"message": text, "code": code, "exit": exit_code}
            line = json.dumps({"error": told})
        print(line, file=sys.stderr)
        return exit_code


def _overview() -> str:
    commands = [
        f"  {name:9}{command.summary}\n             {command.example}"
        for name, command in COMMANDS.items()
    ]
    return "\n".join(
        [
            f"usage: {_PROGRAM} COMMAND ...\n\nMCP servers, tried out and served.\n",
            *commands,
            f"{_TARGET_HELP}\n{_PROGRAM} COMMAND --help says more.",
        ]
    )


def _parse_arguments(arguments: list[str]) -> Any:
    """What is to be done; None when it was only asked for help. Raises ValueError."""
    import argparse

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> Any:
            raise ValueError(f"{message} ({self.prog} --help says more)")

    if not arguments or arguments[0] in ("-h", "--help", "help", "--version"):
        print(__version__ if "--version" in arguments else _overview())
        return None
    name = arguments[0]
    if name not in COMMANDS:
        raise ValueError(f"no command is named {show(name)}{suggest(name, COMMANDS)}")

    command = COMMANDS[name]
    has_target = _TARGET in command.arguments
    cut = [*arguments, "--"].index("--") if has_target else len(arguments)
    words = arguments[cut + 1 :] or None
    parser = Parser(
        prog=f"{_PROGRAM} {name}",
        description=command.summary,
        epilog=f"example:\n  {command.example}\n{_TARGET_HELP}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    for names, options in (*command.arguments, *_COMMON):
        is_given = words is not None and names == ("target",)
        if not is_given and names[-1] not in command.without:
            parser.add_argument(*names, **options)
    parser.set_defaults(command=name, target=words, output=None)
    try:
        return parser.parse_intermixed_args(arguments[1:cut])
    except SystemExit:
        # --help was all that it was asked for.
        return None


# Reaching the server
@contextmanager
def _connected(options: Any) -> Iterator[Client]:
    """The client that the options describe, connected."""
    terminal = _Terminal(options)
    client = Client(
        **_client_options(options),
        on_elicit=terminal.answer,
        on_progress=terminal.show_progress,
        on_log=None if options.quiet else terminal.show_log,
    )
    try:
        client.connect()
    except (Timeout, McpError) as error:
        # What cannot be agreed with is as good as not there.
        raise ConnectionClosed(str(error)) from None
    try:
        if "logging" in client.server_capabilities and not options.quiet:
            client.set_log_level("info")
        yield client
    finally:
        terminal.end_progress()
        client.close()


def _client_options(options: Any) -> Json:
    """How to reach the server, as Client has it."""
    target = _find_target(options.target, options.config)
    headers = dict(_split_pair(each, ":", "--header") for each in options.header)
    if options.token_file is not None:
        with open(options.token_file, encoding="utf-8") as file:
            headers["Authorization"] = f"Bearer {file.read().strip()}"
    given = [*headers, *object_or_empty(object_or_empty(target).get("headers"))]
    auth = None
    is_stored = os.path.exists(os.path.expanduser(_TOKENS))
    if is_stored and "authorization" not in map(str.lower, given):
        # No browser opens in the midst of a command.
        auth = OAuth(store=_TOKENS, may_log_in=False)
    if options.quiet:
        import logging

        logging.lastResort = logging.NullHandler()
    return {
        **({"stderr": None} if options.quiet else {}),
        "target": target,
        "timeout": options.timeout,
        "headers": {name: value.strip() for name, value in headers.items()},
        "env": dict(_split_pair(each, "=", "-e") for each in options.env),
        "cwd": options.cwd,
        "version": options.protocol,
        "auth": auth,
        "trace": options.trace,
        "name": "mcp_lite command line",
    }


def _find_target(target: Any, config_file: str | None) -> Any:
    """What TARGET means: see _TARGET_HELP. Raises ValueError."""
    if not isinstance(target, str):
        return target
    is_path = os.path.isfile(target) or target.endswith(".py")
    if "://" in target or " " in target or (is_path and config_file is None):
        return target
    usual = filter(os.path.exists, map(os.path.expanduser, _CONFIG_FILES))
    files = list(usual) if config_file is None else [config_file]
    names: list[str] = []
    for path in files:
        config = load_config(path)
        names += [*config, *config.errors]
        if target in names:
            return config[target]

    import shutil

    if config_file is None and shutil.which(target):
        return target
    raise ValueError(
        f"TARGET: {show(target)} is no URL, script or command, nor a server in "
        f"{', '.join(files) or 'any config file'}{suggest(target, names)}"
    )


def _split_pair(text: str, separator: str, place: str) -> tuple[str, str]:
    name, found, value = text.partition(separator)
    if not found or not name:
        # No value is shown: it may be a secret.
        raise ValueError(f"{place}: expected NAME{separator}VALUE, got {show(name)}")
    return name, value


# What comes out
def _write(options: Any, result: object, shown: object) -> None:
    """Write what a command returns: the result as on the wire, with --json, else what
    is shown of it. Texts and bytes go as they are, all else as JSON; to a terminal, so
    that nothing can command it. Raises OSError, ValueError.
    """
    value = result if options.json else shown
    if not isinstance(value, (str, bytes)):
        # What an old code page has not, JSON has a way to write.
        has_all = re.match("(?i)utf", sys.stdout.encoding or "")
        value = json.dumps(value, indent=2, ensure_ascii=not has_all)
    if options.output is not None:
        _write_file(options.output, value)
        return
    is_seen = sys.stdout.isatty()
    if isinstance(value, bytes) and is_seen:
        raise ValueError(f"{len(value)} bytes that are no text: -o FILE writes them")
    if isinstance(value, str) and value:
        text = printable(value, keep_lines=True) if is_seen else value
        # Whatever the terminal cannot show is no reason to fail.
        value = f"{text}\n".encode(sys.stdout.encoding, "backslashreplace")
    try:
        sys.stdout.buffer.write(value or b"")
        sys.stdout.flush()
    except OSError as error:
        # 22, EINVAL, is what Windows says of a broken pipe.
        if error.errno != 22 and not isinstance(error, BrokenPipeError):
            raise
        # Who reads has seen enough, as `head` has; at the exit, nothing is left to fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _write_file(path: str, value: str | bytes) -> None:
    data = value if isinstance(value, bytes) else value.encode("utf-8", "replace")
    with open(path, "wb") as file:
        file.write(data)
    _note(f"wrote {path}, {len(data)} bytes")


def _content_of(block: object) -> Json:
    """What has the text, or data, of a block."""
    content = object_or_empty(block)
    return object_or_empty(content.get("resource")) or content


def _text_of(content: Json) -> str:
    return str(content.get("text") or json.dumps(content, ensure_ascii=False))


# The commands. Those that reach a server return its result, and what is shown of it.
def _list(options: Any) -> tuple[object, object]:
    kinds = [options.kind] if options.kind else list(_LISTED)
    with _connected(options) as client:
        lists = {kind: _LISTED[kind][1](client) for kind in kinds}
    lines = []
    for kind, items in lists.items():
        shown = [_show_offer(kind, item, options.schema) for item in items]
        if options.kind:
            return items, "\n".join(shown)
        lines += [f"{kind} ({len(items)})", *(f"  {each}" for each in shown)]
    return lists, "\n".join(lines)


def _show_offer(kind: str, item: Json, with_schema: bool) -> str:
    """A line about it: forecast(city: string, days: integer = 3)  The forecast."""
    name, _ = _LISTED[kind]
    about = str(item.get("description") or item.get("title") or "").strip()
    signature = _show_parameters(item) if name == "name" else ""
    told = f"{item.get(name)}{signature}  {about.partition(chr(10))[0]}".rstrip()
    if with_schema and kind == "tools":
        told += "\n" + json.dumps(item.get("inputSchema"), indent=2, ensure_ascii=False)
    return told


def _show_parameters(item: Json) -> str:
    """Those of a tool, by its schema, or of a prompt; with ? what may be left out."""
    schema = object_or_empty(item.get("inputSchema"))
    required = _listed(schema.get("required"))
    shown = []
    for name, each in object_or_empty(schema.get("properties")).items():
        member = object_or_empty(each)
        default = f" = {show(member['default'])}" if "default" in member else ""
        mark = "" if default or name in required else "?"
        shown.append(f"{name}{mark}: {_show_type(member)}{default}")
    for argument in map(object_or_empty, _listed(item.get("arguments") or [])):
        shown.append(f"{argument.get('name')}{'' if argument.get('required') else '?'}")
    return f"({', '.join(shown)})"


def _call(options: Any) -> tuple[object, object]:
    import base64

    pairs = [_split_pair(each, "=", options.tool) for each in options.pairs]
    given = _read_input(options.input)
    with _connected(options) as client:
        tools = {tool["name"]: tool for tool in client.list_tools()}
        schema = object_or_empty(tools.get(options.tool, {}).get("inputSchema"))
        given.update((name, _coerce(name, text, schema)) for name, text in pairs)
        result = client.call_tool(options.tool, given)
    value = value_of(result)
    contents = list(map(_content_of, result["content"]))
    blobs = [each for each in contents if "blob" in each or "data" in each]
    texts = [_text_of(each) for each in contents if each not in blobs]
    stem, suffix = os.path.splitext(options.output or "")
    for n, blob in enumerate(blobs):
        data = base64.b64decode(blob.get("blob") or blob["data"])
        if options.output:
            _write_file(f"{stem}-{n + 1}{suffix}" if n else options.output, data)
        elif not options.json:
            kind = blob.get("mimeType")
            _note(f"-o FILE writes what else there is: {kind}, {len(data)} bytes")
    if blobs:
        # The file is theirs.
        options.output = None
    return result, value if "structuredContent" in result else "\n".join(texts)


def _read_input(text: str) -> Json:
    """What --input gives: an object in JSON, or - for stdin. Raises ValueError."""
    if text == "-":
        text = sys.stdin.read()
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ValueError(f"--input: not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"--input: expected an object, got {show(value)}")
    return value


def _read(options: Any) -> tuple[object, object]:
    with _connected(options) as client:
        read = client.read_resource if options.json else client.read
        value = read(options.uri)
    return value, value


def _prompt(options: Any) -> tuple[object, object]:
    pairs = dict(_split_pair(each, "=", options.prompt) for each in options.pairs)
    with _connected(options) as client:
        result = client.get_prompt(options.prompt, pairs)
    lines = [
        f"{message.get('role')}: {_text_of(_content_of(message.get('content')))}"
        for message in result["messages"]
    ]
    return result, "\n".join(lines)


def _inspect(options: Any) -> tuple[object, object]:
    import logging

    heard: list[str] = []
    hearer = logging.Handler(logging.WARNING)
    hearer.emit = lambda record: heard.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("mcp_lite").addHandler(hearer)
    clock = [time.monotonic()]
    with _connected(options) as client:
        clock.append(time.monotonic())
        client.ping()
        clock.append(time.monotonic())
        lists = {kind: read(client) for kind, (_, read) in _LISTED.items()}
        clock.append(time.monotonic())
        era = "modern" if client.protocol_version >= FIRST_MODERN else "legacy"
        seconds = [then - before for before, then in zip(clock, clock[1:])]
        report: Json = {
            "server": client.server_info,
            "revision": f"{client.protocol_version} ({era})",
            "capabilities": client.server_capabilities,
            "instructions": client.instructions,
            "offers": {kind: len(items) for kind, items in lists.items()},
            "milliseconds": {
                "to connect": round(seconds[0] * 1000),
                "to answer a ping": round(seconds[1] * 1000),
                "to list everything": round(seconds[2] * 1000),
            },
        }
    client._log.flush(TIDY_SECONDS)
    report["odd"] = heard + list(_oddities(lists["tools"], seconds[0]))
    return report, "\n".join(itertools.starmap(_show_section, report.items()))


def _show_section(title: str, value: Any) -> str:
    """A part of the report: its title, and beside that what there is to say."""
    if isinstance(value, dict):
        value = ", ".join(f"{name}: {show(each)}" for name, each in value.items())
    elif isinstance(value, list):
        value = "\n".join(value)
    return f"{title:14}" + str(value or "none").replace("\n", f"\n{'':14}")


def _oddities(tools: list[Json], seconds: float) -> Iterator[str]:
    """What a server's author may want to know."""
    if seconds > SLOW_START:
        yield f"it takes {seconds:.1f} s to start"
    for tool in tools:
        name = str(tool["name"])
        if not 0 < len(name) <= 128 or re.search(_NOT_IN_NAMES, name):
            yield f"tool {show(name)}: names have 1 to 128 of A-Z a-z 0-9 _ - ."
        if not tool.get("description"):
            yield f"tool {name}: no description for the model"
        for member in ("inputSchema", "outputSchema"):
            try:
                validate({}, tool.get(member, {}))
            except (TypeError, ValueError) as error:
                yield f"tool {name}: {member}: {error}"


def _serve(run: Callable[..., Any], options: Any) -> None:
    if options.http:
        run("http", host=options.host, port=options.port, path=options.path)
    else:
        run()


def _run(options: Any) -> None:
    """Load a file; where it would run its server, or at its end, run that as told."""
    os.environ.update(_split_pair(each, "=", "-e") for each in options.env)
    if options.trace:
        os.environ["MCP_LITE_TRACE"] = "1" if options.trace is True else options.trace
    path, _, name = options.file.rpartition(":")
    if not (name.isidentifier() and os.path.exists(path)):
        path = options.file
        name = ""
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec")
    # It is a module as any other, for dataclasses and hints to be found.
    module = type(sys)("served")
    module.__file__ = path
    sys.modules["served"] = module
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    sys.argv = [path]
    served: list[Server] = []
    run = Server.run

    def serve(server: Server, *_: object, **__: object) -> None:
        if served or (name and server is not vars(module).get(name)):
            return
        served.append(server)
        sys.stdout = sys.__stdout__
        _serve(partial(run, server), options)

    # What it prints meanwhile is not for the wire.
    sys.stdout = sys.stderr
    Server.run = serve  # type: ignore[assignment, method-assign]
    try:
        exec(code, vars(module))
        for each in [vars(module).get(name)] if name else list(vars(module).values()):
            if isinstance(each, Server):
                serve(each)
        if not served:
            raise ValueError(f"FILE: there is no Server in {options.file}")
    finally:
        sys.stdout = sys.__stdout__
        Server.run = run  # type: ignore[method-assign]


def _bridge(options: Any) -> None:
    bridge = Bridge(allow=options.allow, deny=options.deny, **_client_options(options))
    try:
        _serve(bridge.server.run, options)
    finally:
        bridge.close()


def _login(options: Any) -> None:
    import webbrowser

    redirect = None
    try:
        webbrowser.get()
    except webbrowser.Error:
        redirect = _Terminal(options).visit
    OAuth(store=_TOKENS, redirect=redirect).login(options.url)
    _note(f"logged in; the tokens are in {_TOKENS}")


def _logout(options: Any) -> None:
    OAuth(store=_TOKENS).logout(options.url)
    _note("logged out")


COMMANDS = {
    "list": _Command(
        _list,
        (
            _TARGET,
            _argument("kind", nargs="?", choices=list(_LISTED), help="this alone"),
            _argument("--schema", action="store_true", help="tools' schemas, too"),
        ),
        "what a server offers, a line each",
        f"{_PROGRAM} list server.py",
    ),
    "call": _Command(
        _call,
        (
            _TARGET,
            _argument("tool", metavar="TOOL"),
            _PAIRS,
            _argument(
                "--input", default="{}", metavar="JSON", help="more; -: from stdin"
            ),
            _OUTPUT,
        ),
        "call a tool",
        f"{_PROGRAM} call server.py forecast city=Oslo days=2",
    ),
    "read": _Command(
        _read,
        (_TARGET, _argument("uri", metavar="URI"), _OUTPUT),
        "read a resource",
        f"{_PROGRAM} read server.py config://app",
    ),
    "prompt": _Command(
        _prompt,
        (_TARGET, _argument("prompt", metavar="NAME"), _PAIRS),
        "have a prompt filled in",
        f"{_PROGRAM} prompt server.py review code=x",
    ),
    "inspect": _Command(
        _inspect,
        (_TARGET,),
        "report what a server is, what it can, and what is odd",
        f"{_PROGRAM} inspect http://127.0.0.1:8000/mcp",
    ),
    "run": _Command(
        _run,
        (_argument("file", metavar="FILE[:object]"), *_SERVING),
        "serve the Server that a file makes",
        f"{_PROGRAM} run server.py --http --port 8000",
        _REACHING,
    ),
    "bridge": _Command(
        _bridge,
        (
            _TARGET,
            *_SERVING,
            _argument("--allow", action="append", default=[], metavar="GLOB"),
            _argument("--deny", action="append", default=[], metavar="GLOB"),
        ),
        "offer any server on stdio, or at a URL, to clients of any revision",
        f"{_PROGRAM} bridge http://127.0.0.1:8000/mcp --deny 'delete_*'",
        ("--yes",),
    ),
    "login": _Command(
        _login,
        (_argument("url", metavar="URL"),),
        "log in at a server, in the browser, and keep the tokens",
        f"{_PROGRAM} login https://mcp.example.com/mcp",
        (*_REACHING, "--env", "--trace"),
    ),
    "logout": _Command(
        _logout,
        (_argument("url", metavar="URL"),),
        "forget the tokens of a server",
        f"{_PROGRAM} logout https://mcp.example.com/mcp",
        (*_REACHING, "--env", "--trace"),
    ),
}


if __name__ == "__main__":
    sys.exit(main())
