# mcp_lite: the Model Context Protocol in one file, on the standard library alone.
#
# MIT License. Copyright (c) 2026 the authors of mcp_lite.
#
# Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
# documentation files (the "Software"), to deal in the Software without restriction, including without
# limitation the rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of
# the Software, and to permit persons to whom the Software is furnished to do so, subject to the following
# conditions: The above copyright notice and this permission notice shall be included in all copies or
# substantial portions of the Software.
#
# THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT
# LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO
# EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN
# AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE
# OR OTHER DEALINGS IN THE SOFTWARE.
"""The Model Context Protocol (MCP): client and server, blocking calls, every revision, no dependency.

A server is functions; a client is calls:

    from mcp_lite import Server, Client

    server = Server("weather", version="1.0")

    @server.tool
    def forecast(city: str, days: int = 3) -> list:
        "The forecast for a city."
        return ["sun over " + city] * days

    with Client(server) as client:                    # in memory; or Client("server.py"), or any command
        print(client.call("forecast", city="Oslo"))   # ['sun over Oslo', 'sun over Oslo', 'sun over Oslo']

    server.run()                                      # serve stdin and stdout until the input ends

The rooms, in reading order. Each uses only the rooms above it.

     1. Vocabulary      revisions, error codes, `_meta` keys, and every limit with its reason
     2. Errors          the exceptions, and what each is on the wire
     3. Messages        JSON-RPC: bytes to messages and back, and the check of the envelope
     4. Methods         one table of everything that can be said, by whom, and in which revisions
     5. JSON Schema     a validator
     6. Signatures      Python functions as tools: schemas, arguments, results, content, URI templates
     7. Framing         bytes to lines
     8. Protocol        one conversation without I/O, locks or clocks: what may be said now
     9. Connection      the same conversation with threads: workers, waiting, deadlines
    10. Context         what a handler sees of its request, and how it asks the client
    11. stdio           byte streams, a server's standard streams kept clean, a server as a child process
    12. Server          registries, the features' handlers, subscriptions
    13. Client          probing, calling, paging, answering, listening

Who runs what, and how it ends:

    thread      born in                  runs                                               ends
    the caller  your program             Server.run and serve, reading on while the reader  by itself
                                         serves; each client call, its progress callback
    reader      a server's Pump          reads; a lone request's handler                    end of the input
    reader      a Client over streams    reads, wakes waiters; never your code              end of the input
    worker      Connection, on demand;   one request's handler; one question's callback     idle for a while,
                the latest idle first                                                       or close()
    helper      the same                 a write that might block; on_cancel functions      the same
    callbacks   Client, at need          on_log and on_notification, in order               close()
    stderr      Client, over a process   keeps the child's last lines                       end of the stream
    timer       a tool with a timeout    ends one overdue call                              with the call
    log         the first line to log    hands lines to Python's logging                    none is left

What guards what: Connection._lock the outgoing queue and the end of a request; Workers._lock the idle stack
and the backlog; Server._lock the registries and the listeners; MainThread._lock its queue. They are leaves:
none is held while another is taken, during I/O, or while your code runs. What two threads may end (an answer
and a cancellation, say) lives in a dict or list: whoever removes it has won, and the other does nothing.
"""
from __future__ import annotations

import itertools
import json
import os
import re
import sys
import threading
import time
from collections import deque, namedtuple
from contextlib import suppress
from queue import Empty, SimpleQueue

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterable, Iterator, TypeVar, Union
    Json = Dict[str, Any]                        # a JSON object
    RequestId = Union[str, int]
    _Said = TypeVar("_Said")

__version__ = "0.1.0"
__all__ = [
    "Audio", "Cancelled", "Client", "ConnectionClosed", "Context", "EmbeddedResource", "Image",
    "InternalError", "InvalidParams", "InvalidRequest", "MainThread", "McpError", "Message", "MethodNotFound",
    "MissingCapability", "NotFound", "Param", "ParseError", "RequestCancelled", "ResourceLink", "Server",
    "Timeout", "ToolError", "UnsupportedVersion", "validate",
]

###############################################################################
# 1. Vocabulary ###############################################################
###############################################################################
# The words of the protocol that are not methods, and the limits that keep a hostile or broken peer cheap.
# ISO dates compare as strings, so `since <= version <= until` is the whole of version arithmetic.

LEGACY_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")   # opened by `initialize`
MODERN_VERSIONS = ("2026-07-28",)                                              # `_meta` on each request
OLDEST, LAST_LEGACY, MODERN = LEGACY_VERSIONS[0], LEGACY_VERSIONS[-1], MODERN_VERSIONS[-1]
BATCH_VERSION = "2025-03-26"       # the only revision with JSON-RPC batches

META = "io.modelcontextprotocol/"
META_VERSION, META_CLIENT_INFO = META + "protocolVersion", META + "clientInfo"
META_CAPABILITIES, META_LOG_LEVEL = META + "clientCapabilities", META + "logLevel"
META_SUBSCRIPTION, META_SERVER_INFO = META + "subscriptionId", META + "serverInfo"

LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
LEVELS_TEXT = "expected one of " + ", ".join(LOG_LEVELS)

# Members that a revision does not know yet are left out of what it is sent.
MEMBER_SINCE = {"annotations": "2025-03-26", "title": "2025-06-18", "outputSchema": "2025-06-18",
                "_meta": "2025-06-18", "icons": "2025-11-25", "websiteUrl": "2025-11-25"}

MAX_MESSAGE = 64 << 20             # bytes in a line: an 8 MiB image in base64 fits several times
MAX_QUEUED = 10_000                # notifications that wait for a slow reader; then logs and progress go
MAX_BACKLOG = 10_000               # requests that wait for a worker; then the peer is refused
MAX_LISTENERS = 1_000              # subscriptions/listen that are open at once
MAX_BATCH = 1_000                  # members of a batch
MAX_PAGES = 1_000                  # pages of a list that a client follows
MAX_ROUNDS = 10                    # questions in a row that a client answers for one call
MAX_STATE = 256 << 10              # bytes of `requestState`: it travels with each retry
MAX_COMPLETIONS = 100              # values in a completion: the schema's maxItems
MAX_WORKERS = 32                   # handlers that run at once on a connection
STATE_SECONDS = 600.0              # how long `requestState` is good for, and a legacy question stays open
DRAIN_SECONDS = 5.0                # for work in flight at the end of the input; and once it is cancelled
PROBE_SECONDS = 5.0                # before a silent server is taken for one that wants `initialize`
IDLE_SECONDS = 30.0                # before an idle worker goes
EXIT_SECONDS = 2.0                 # for a child to go by itself, then after SIGTERM
STDERR_LINES = 20                  # of a child's stderr, kept for the error text
CHUNK = 1 << 16                    # bytes in one read: a pipe holds no more

###############################################################################
# 2. Errors ###################################################################
###############################################################################
# One exception per meaning. McpError and its subclasses are JSON-RPC errors: what a peer answered, or what a
# handler raises to answer so. The others are local: they say what happened to a call here.

class McpError(Exception):
    """A JSON-RPC error: `code`, `message`, `data`. Raise it in a handler to answer with it. A client raises
    the subclass for the code that came; `code` is always the one on the wire: basic/index.md#error-codes."""
    code = -32603
    http_status = 200

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data

    @staticmethod
    def from_wire(error: Json) -> McpError:
        """The exception for {"code", "message", "data"}, of the subclass that the code names."""
        code, message = error.get("code"), error.get("message")
        if not isinstance(code, int) or isinstance(code, bool):
            return InternalError(f"the peer sent an error whose code is {show(code)}", error)
        text = message if isinstance(message, str) else show(message)
        found = McpError.__new__(ERRORS.get(code, McpError))
        McpError.__init__(found, code, text, error.get("data"))
        return found

    def to_wire(self) -> Json:
        """{"code", "message"}, and "data" when there is any."""
        error = {"code": self.code, "message": self.message, "data": self.data}
        return error if self.data is not None else {"code": self.code, "message": self.message}

class _Coded(McpError):
    def __init__(self, message: str, data: Any = None) -> None:
        super().__init__(type(self).code, message, data)

class ParseError(_Coded):
    """-32700: what came is not JSON."""
    code, http_status = -32700, 400

class InvalidRequest(_Coded):
    """-32600: JSON, but not a message that may be sent now."""
    code, http_status = -32600, 400

class MethodNotFound(_Coded):
    """-32601: a method that does not exist, or whose capability was not declared."""
    code, http_status = -32601, 404

class InvalidParams(_Coded):
    """-32602: the method exists, its parameters are wrong. The message names the parameter."""
    code, http_status = -32602, 400

class InternalError(_Coded):
    """-32603: the receiver failed; its log says why."""
    code, http_status = -32603, 500

class NotFound(InvalidParams):
    """No such tool, prompt or resource. `code` is -32602, or -32002 for a resource in the legacy revisions;
    from some servers -32001 or -32003."""

class MissingCapability(_Coded):
    """-32021: the request needs what the client did not declare; `data` has "requiredCapabilities"."""
    code, http_status = -32021, 400

class UnsupportedVersion(_Coded):
    """-32022: a revision that the server does not speak; `data` has "supported" and "requested"."""
    code, http_status = -32022, 400

class RequestCancelled(_Coded):
    """-32800: the answer to `$/cancelRequest`, which some old peers send."""
    code = -32800

ERRORS: dict[int, type[McpError]] = {
    **{each.code: each for each in (ParseError, InvalidRequest, MethodNotFound, InvalidParams, InternalError,
                                    MissingCapability, UnsupportedVersion, RequestCancelled)},
    -32001: NotFound, -32002: NotFound, -32003: NotFound,      # of which only -32002 was ever the protocol's
}
MODERN_ERRORS = (-32020, MissingCapability.code, UnsupportedVersion.code)    # modern servers only

class ToolError(Exception):
    """A tool failed in a way that its caller can act on: `isError`, with this text or with `content` blocks.
    `Client.call` raises it for such a result; `content` then has the result's blocks."""
    def __init__(self, message: str, content: list[Any] | None = None) -> None:
        super().__init__(message)
        self.content = content

class Timeout(TimeoutError):
    """No answer within the time given. The peer was told to stop."""

class Cancelled(Exception):
    """The request was cancelled: by the client, when a handler sees it; by `call.cancel()`, when a caller
    does."""

class ConnectionClosed(ConnectionError):
    """The other end is gone. For a child process also `exit_code`, `command`, and `stderr`, its last
    lines."""
    def __init__(self, message: str, exit_code: int | None = None, command: list[str] | None = None,
                 stderr: str = "") -> None:
        ended = "" if exit_code is None else f"; exit code {exit_code}"
        super().__init__(message + (f" (command: {' '.join(command)}{ended})" if command else "")
                         + (f"; the end of its stderr:\n{stderr}" if stderr else ""))
        self.exit_code, self.command, self.stderr = exit_code, command, stderr

class _InputRequired(BaseException):
    """Raised by Context to leave a handler of the modern era until the client has answered. Not an Exception,
    so that a handler's own `except Exception` does not swallow it."""
    def __init__(self, questions: dict[str, Json]) -> None:
        super().__init__("the handler waits for the client's answers")
        self.questions = questions

def show(value: Any, limit: int = 60) -> str:
    """A value as an error text quotes it: the beginning of its JSON. Cheap, however large the value is."""
    shown, text = value[:limit] if isinstance(value, str) else value, ""
    try:
        for part in json.JSONEncoder(ensure_ascii=False, default=tell).iterencode(shown):
            text += part[:limit]
            if len(text) > limit: return text[:limit - 3] + "..."
    except (ValueError, RecursionError): return f"a {type(value).__name__}"
    return text

def tell(error: BaseException) -> str:
    """An exception as `TypeName: text`; whoever wrote its class may have got the text wrong."""
    with suppress(Exception): return f"{type(error).__name__}: {error}"
    return type(error).__name__

class _Log:
    """Lines for Python's logger "mcp_lite", handed over by a thread that ends when it has none left: a stderr
    that nobody reads must not hold up a handler. At most MAX_QUEUED wait; then the oldest go."""
    def __init__(self) -> None:
        self._lines: deque[tuple[int, str, Any]] = deque(maxlen=MAX_QUEUED)
        self._busy = threading.Lock()            # held by the thread that hands over
    def write(self, level: int, text: str, exc_info: Any = None) -> None:
        """Queue one line, with a traceback if `exc_info` is an exception. Levels as Python's. Never
        blocks."""
        self._lines.append((level, text, exc_info))
        if self._busy.acquire(blocking=False):
            try: threading.Thread(target=self._hand_over, name="mcp-log", daemon=True).start()
            except RuntimeError:                 # the interpreter is going
                self._busy.release()

    def _hand_over(self) -> None:
        import logging
        logger = logging.getLogger("mcp_lite")
        while True:
            try:
                while self._lines:
                    level, text, exc_info = self._lines.popleft()
                    logger.log(level, "%s", text, exc_info=exc_info)
            finally: self._busy.release()
            if not self._lines or not self._busy.acquire(blocking=False): return

    def debug(self, text: str) -> None: self.write(10, text)
    def warning(self, text: str, exc_info: Any = None) -> None: self.write(30, text, exc_info)
    def error(self, text: str, exc_info: Any = None) -> None: self.write(40, text, exc_info)
    def flush(self, seconds: float) -> None:
        """Wait until the queued lines are out, but no longer than `seconds`."""
        if self._lines and self._busy.acquire(timeout=seconds): self._busy.release()

###############################################################################
# 3. Messages #################################################################
###############################################################################
# JSON-RPC 2.0 (basic/index.md#messages): bytes to messages and back. check_envelope is the only place where
# the outer shape of a message is judged; everything further in may rely on it.

def _refuse_constant(name: str) -> Any: raise ValueError(f"{name} is not JSON")

_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":"))
_decoder = json.JSONDecoder(parse_constant=_refuse_constant)

def parse_message(data: bytes) -> Any:
    """Decode one message. Raises ParseError, whatever the bytes are."""
    try:
        text = data.decode("utf-8").strip(" \t\r\n")
        message, end = _decoder.raw_decode(text)
        if end != len(text): raise ValueError(f"more than one value, at character {end}")
        return message
    except UnicodeDecodeError as error: raise ParseError(f"not UTF-8 at byte {error.start}") from None
    except ValueError as error:                  # JSONDecodeError is one; so is an integer of too many digits
        raise ParseError(f"not JSON: {error}") from None
    except RecursionError: raise ParseError("nested too deeply") from None

def encode_json(value: Any) -> str:
    """Encode on one line. Raises ValueError or TypeError for what JSON cannot say: NaN, objects, cycles."""
    try: return _encoder.encode(value)
    except RecursionError: raise ValueError("nested too deeply") from None

def encode_message(message: Any) -> bytes:
    """One message as UTF-8 without a line break. Raises as encode_json does, and for lone surrogates."""
    return encode_json(message).encode("utf-8")

def is_id(value: Any) -> bool:
    """Whether it can be a request's id: "string or integer", "MUST NOT be null"; and in Python, True is an
    int."""
    return isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool))

def check_envelope(message: Any) -> str:
    """Tell "request", "notification" or "response". Raises InvalidRequest for what is none of them."""
    if not isinstance(message, dict): raise InvalidRequest(f"expected an object, got {show(message)}")
    if message.get("jsonrpc") != "2.0":
        raise InvalidRequest(f'jsonrpc: expected "2.0", got {show(message.get("jsonrpc"))}')
    if "id" in message and not is_id(message["id"]) and ("method" in message or message["id"] is not None):
        raise InvalidRequest(f"id: expected string or integer, got {show(message['id'])}")
    if ("method" in message) + ("result" in message) + ("error" in message) != 1:
        raise InvalidRequest("expected one of method, result and error")
    for name, kind in (("method", str), ("result", dict), ("error", dict)):
        if name in message and not isinstance(message[name], kind):
            raise InvalidRequest(f"{name}: expected {TYPE_NAMES[kind]}, got {show(message[name])}")
    return "response" if "method" not in message else "request" if "id" in message else "notification"

TYPE_NAMES = {str: "string", dict: "object", list: "array", int: "integer", float: "number", bool: "boolean"}

def call_message(method: str, params: Json | None, request_id: RequestId | None = None) -> Json:
    """A request, or without an id a notification."""
    message: Json = {"jsonrpc": "2.0", "method": method}
    if request_id is not None: message["id"] = request_id
    if params is not None: message["params"] = params
    return message

def result_message(request_id: RequestId, result: Json) -> Json:
    """An answer that says yes."""
    return {"jsonrpc": "2.0", "id": request_id, "result": result}

def error_message(request_id: RequestId | None, error: McpError) -> Json:
    """An answer that says no. Without an id when it could not be read: MCP's ids are never null."""
    message: Json = {"jsonrpc": "2.0", "error": error.to_wire()}
    return message if request_id is None else {**message, "id": request_id}

###############################################################################
# 4. Methods ##################################################################
###############################################################################
# Everything that can be said: one row each. A rule that concerns one method stands in its row, and nowhere
# else is a method's name compared.

class Method:
    """A row of the table. `who` sends it, and whether it is a request or a notification; `capability` what
    the receiver of a request must have declared; `params` the types of its parameters, a question mark after
    the optional ones; `since` and `until` the revisions that have it. An `inline` request is answered at
    once, in order, by the reading thread; `paged` names a paged result's list; a `cacheable` result says how
    long it may be kept; a handler that `asks` may question the client; a `droppable` notification goes first
    under load."""
    __slots__ = ("name", "sender", "kind", "handler", "since", "until", "capability", "params", "inline",
                 "paged", "cacheable", "asks", "droppable")
    def __init__(self, name: str, who: str, handler: str, capability: str = "",
                 params: dict[str, Any] | None = None, since: str = OLDEST, until: str = "9999",
                 inline: bool = False, paged: str = "", cacheable: bool = False, asks: bool = False,
                 droppable: bool = False) -> None:
        self.name, self.handler, self.capability = name, handler, capability
        self.sender, self.kind = who.split()
        self.params = [(key.rstrip("?"), not key.endswith("?"), kind) for key, kind in (params or {}).items()]
        self.since, self.until, self.inline, self.paged = since, until, inline, paged
        self.cacheable, self.asks, self.droppable = cacheable, asks, droppable

_PAGE, _URI, _CALL, _LAST = {"cursor?": str}, {"uri": str}, {"name": str, "arguments?": dict}, LAST_LEGACY
METHODS: dict[str, Method] = {row.name: row for row in (
    # Lifecycle: basic/lifecycle.md of the legacy revisions; server/discover.md of the modern one.
    Method("initialize", "client request", "_initialize", inline=True, until=_LAST,
           params={"protocolVersion": str, "capabilities": dict, "clientInfo": dict}),
    Method("notifications/initialized", "client notification", "_initialized", until=_LAST),
    Method("initialized", "client notification", "_initialized", until=_LAST),     # as some tutorials say it
    Method("ping", "both request", "_ping", inline=True, until=_LAST),
    Method("server/discover", "client request", "_discover", since=MODERN, inline=True, cacheable=True),

    # The server's features.
    Method("tools/list", "client request", "_list", "tools", _PAGE, paged="tools", cacheable=True),
    Method("tools/call", "client request", "_tools_call", "tools", _CALL, asks=True),
    Method("resources/list", "client request", "_list", "resources", _PAGE, paged="resources",
           cacheable=True),
    Method("resources/templates/list", "client request", "_list", "resources", _PAGE,
           paged="resourceTemplates", cacheable=True),
    Method("resources/read", "client request", "_resources_read", "resources", _URI, cacheable=True,
           asks=True),
    Method("resources/subscribe", "client request", "_resources_subscribe", "resources.subscribe", _URI,
           inline=True, until=_LAST),
    Method("resources/unsubscribe", "client request", "_resources_unsubscribe", "resources.subscribe", _URI,
           inline=True, until=_LAST),
    Method("prompts/list", "client request", "_list", "prompts", _PAGE, paged="prompts", cacheable=True),
    Method("prompts/get", "client request", "_prompts_get", "prompts", _CALL, asks=True),
    Method("completion/complete", "client request", "_completion_complete", "completions",
           {"ref": dict, "argument": dict, "context?": dict}),
    Method("logging/setLevel", "client request", "_logging_set_level", "logging", {"level": str}, inline=True,
           until=_LAST),
    Method("subscriptions/listen", "client request", "_subscriptions_listen", "", {"notifications": dict},
           since=MODERN, inline=True),

    # The client's features. In the modern era the same three travel inside results: basic/patterns/mrtr.md.
    Method("roots/list", "server request", "_roots_list", "roots", until=_LAST),
    Method("sampling/createMessage", "server request", "_sampling_create_message", "sampling",
           {"messages": list, "maxTokens": int}, until=_LAST),
    Method("elicitation/create", "server request", "_elicitation_create", "elicitation", {"message": str},
           since="2025-06-18", until=_LAST),

    # About a request: basic/patterns/cancellation.md and progress.md.
    Method("notifications/cancelled", "both notification", "_cancelled"),
    Method("$/cancelRequest", "both notification", "_cancel_request"),            # as language servers say it
    Method("notifications/progress", "both notification", "_progress", droppable=True),
    Method("notifications/message", "server notification", "_logged", droppable=True),

    # About the server's state, and the client's.
    Method("notifications/tools/list_changed", "server notification", "_changed"),
    Method("notifications/resources/list_changed", "server notification", "_changed"),
    Method("notifications/resources/updated", "server notification", "_changed"),
    Method("notifications/prompts/list_changed", "server notification", "_changed"),
    Method("notifications/elicitation/complete", "server notification", "_changed", since=_LAST, until=_LAST),
    Method("notifications/subscriptions/acknowledged", "server notification", "_changed", since=MODERN),
    Method("notifications/roots/list_changed", "client notification", "_changed", until=_LAST),
)}

# What a client may ask to hear of: the filter's member, the notification, the capability that promises it.
LIST_CHANGES = {kind: (f"{kind}ListChanged", f"notifications/{kind}/list_changed", f"{kind}.listChanged")
                for kind in ("tools", "prompts", "resources")}

def check_members(rules: Iterable[Any], members: Json, where: str = "") -> None:
    """Check members, (name, required, type) each. Raises InvalidParams naming the first that is wrong."""
    for name, required, kind in rules:
        value = members.get(name)
        if value is None and not required: continue
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            found = f"got {show(value)}" if name in members else "but it is missing"
            raise InvalidParams(f"{where}{name}: expected {TYPE_NAMES[kind]}, {found}")

def has_capability(capabilities: Json, path: str) -> bool:
    """Whether declared capabilities have a dotted path, such as "resources.subscribe". An empty object
    counts."""
    found: Any = capabilities
    for name in path.split("."): found = found.get(name) if isinstance(found, dict) else None
    return found is True or isinstance(found, dict)

###############################################################################
# 5. JSON Schema ##############################################################
###############################################################################
# A schema is compiled once, to the rows of _KEYWORDS that each type of value must meet; _Run.check takes a
# value through them. An error is (path, expected, value), a path a linked pair (key, rest) made on the way
# out, and texts are made last: a valid value costs little. Nothing is ever fetched.

MAX_STEPS = 10_000_000             # what a schema or a value can make large is paid for: a second or so
MAX_ERRORS = 100                   # of one value: nobody acts on more
MAX_MATCHED = 1 << 16              # characters for a pattern with repeats: a search cannot be interrupted

def validate(value: Any, schema: Any) -> list[str]:
    """Check a JSON value against a JSON Schema (2020-12): a list of error texts, empty when it is valid.

    Each text is one line: `days: expected integer, got "three"`. Raises ValueError for a wrong schema.
    Never fetches anything: a `$ref` must resolve inside the schema. `format` is not checked."""
    return Schema(schema).errors(value)

class Schema:
    """A compiled schema. Immutable, safe from any thread. Raises ValueError when it cannot be used."""
    __slots__ = ("schema", "nodes", "dynamic", "marks", "_named", "_references", "_quick")

    def __init__(self, schema: Any) -> None:
        self.schema = schema
        self.nodes: dict[int, Any] = {}               # id() of a subschema -> rows by type, parts, steps, URI
        self.dynamic: dict[Any, Any] = {}             # (URI, dynamic anchor) -> subschema
        self._named: dict[Any, Any] = {("", ""): schema, _METASCHEMA: _RULES}    # (URI, anchor) -> subschema
        self._references: list[Any] = []              # (parts, keyword, URI)
        try:
            self.marks = "'unevaluated" in repr(schema)       # whether a keyword may ask what was looked at
            self._find("#", "")
            for parts, keyword, base in self._references:     # now that all is named; there may come more
                parts[keyword] = self._find(parts[keyword], base)
        except (RecursionError, ValueError) as error:
            text = "nested too deeply" if isinstance(error, RecursionError) else error
            raise ValueError(f"schema: {text}") from None
        self._quick = _quick(schema)

    def errors(self, value: Any) -> list[str]:
        """What is wrong with the value: at most MAX_ERRORS texts, none when it is valid."""
        if self._quick is not None and type(value) is dict:
            types, required = self._quick
            if required <= value.keys() and all(types.get(each) is type(value[each]) for each in value):
                return []
        try: return [_tell(*error) for error in _Run(self).check(self.schema, value)]
        except (RecursionError, OverflowError, ValueError) as error:
            return ["nested too deeply for the schema" if isinstance(error, RecursionError) else str(error)]

    def _find(self, ref: str, base: str) -> Any:
        """What a reference names: (subschema, dynamic anchor or None). Raises ValueError if it is no use."""
        try:
            uri, (name, *pointer) = _split(ref, base)
            found = self._named[uri, name]
            for part in pointer:
                part = part.replace("~1", "/").replace("~0", "~")
                found = found[int(part) if isinstance(found, list) else part]
        except (LookupError, TypeError, ValueError):
            raise ValueError(f"$ref {show(ref)} is not in this document, and nothing is fetched") from None
        if id(found) not in self.nodes:               # the root, or what stands where no schema is expected
            for text in _META.errors(found) if _META else (): raise ValueError(text)
            self._add(found, uri)
        return found, name if self.dynamic.get((uri, name)) is found else None

    def _add(self, node: Any, base: str) -> None:
        """Compile a subschema and those in it, in the document whose URI is `base`."""
        if isinstance(node, bool) or id(node) in self.nodes: return
        base, (anchor, *_) = _split(node.get("$id", ""), base)        # the anchor: before 2019-09
        names = [node[keyword] for keyword in ("$anchor", "$dynamicAnchor") if keyword in node]
        self._named.update({(base, name): node for name in [*names, *[anchor] * ("$id" in node)]})
        if "$dynamicAnchor" in node: self.dynamic[base, node["$dynamicAnchor"]] = node
        parts: Json = {"properties": {}, "patternProperties": (), "additionalProperties": (), **node}
        for keyword in _PREPARE.keys() & node.keys():
            parts[keyword] = _PREPARE[keyword](node[keyword], node)
        self._references += [(parts, keyword, base) for keyword in ("$ref", "$dynamicRef") if keyword in node]
        steps = 6 + sum(len(value) for value in node.values() if isinstance(value, (dict, list)))
        self.nodes[id(node)] = _rows(node, parts, self.marks), parts, steps, base
        for keyword in filter(_HOLDERS.__contains__, node):
            subs = node[keyword].values() if keyword in _NAMED else node[keyword]
            for sub in [subs] if isinstance(subs, (dict, bool)) else subs:
                if not isinstance(sub, list):         # the names in `dependencies`
                    self._add(sub, base)

def _quick(schema: Any) -> tuple[dict[str, Any], set[str]] | None:
    """For an object of plain scalars, which most arguments are: each member's type, and the required ones."""
    members = schema.get("properties") if isinstance(schema, dict) else None
    if members is None or schema.keys() - {"type", "properties", "required", "additionalProperties"}:
        return None
    scalars = {"string": str, "integer": int, "boolean": bool}
    return {name: scalars.get(str(sub.get("type"))) for name, sub in members.items()
            if isinstance(sub, dict) and sub.keys() <= {"type", "description", "default", "x-mcp-header"}}, \
        set(schema.get("required", ()))

def _rows(node: Json, parts: Json, marks: bool) -> Any:
    """For each type of value, the rows that it meets: (apply, argument, expected)."""
    met: dict[Any, Any] = {}
    for keyword, (kinds, text, apply) in _KEYWORDS.items():
        if keyword in node:                           # one row for those that `apply` takes together
            expected = text.format(show(node[keyword], 300)) if text else text if marks else ""
            met[apply if text is None else keyword] = kinds, (apply, parts[keyword], expected)
    rows: Any = {kind: [row for kinds, row in met.values() if kind in kinds] for kind in _EVERY}
    if "type" in node:
        names = node["type"] if isinstance(node["type"], list) else [node["type"]]
        typed = (lambda run, value, *_: any(is_type(value, name) for name in names), None, " or ".join(names))
        for kind in set(_EVERY).difference(*(_TYPES[name] for name in names)):
            rows[kind] = [typed, *(rows[kind] if kind is float and "integer" in names else [])]
    return rows

class _Run:
    """One validation under way; its methods below `rest` are what _KEYWORDS applies."""
    __slots__ = ("schema", "nodes", "left", "scope", "marks", "start")

    def __init__(self, schema: Schema) -> None:
        self.schema, self.nodes, self.left = schema, schema.nodes, MAX_STEPS
        self.scope: tuple[str, ...] = ()              # the documents entered
        self.marks: list[Any] = []                    # (owner, key) of the members looked at, if schema.marks
    def spend(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0: raise OverflowError("too much work for the schema")

    def check(self, node: Any, value: Any) -> Any:
        """The errors of a value against a subschema, or a function that stands for one."""
        compiled = self.nodes.get(id(node))
        if compiled is None: return node(value) if callable(node) else () if node else _NOTHING(value)
        by_type, parts, steps, uri = compiled
        rows = by_type.get(type(value))
        if rows is None:                              # a subclass, or no JSON value at all
            rows = next(by_type[kind] for kind in _EVERY if isinstance(value, kind))
        if not rows: return ()
        self.spend(steps)
        errors: list[Any] = []
        scope, start = self.scope, len(self.marks)
        if uri not in scope: self.scope = (*scope, uri)
        for apply, argument, expected in rows:
            self.start = start
            found = apply(self, value, argument, parts)
            if expected:
                if not found: errors.append((None, expected, value))
                continue
            for key, item, sub in found:
                self.left -= 1
                if expected is None: self.marks.append((value, key))
                wrong = self.check(sub, item)
                if wrong:
                    self.spend(len(wrong))
                    errors += wrong if key is None else [((key, path), *rest) for path, *rest in wrong]
                    if len(errors) >= MAX_ERRORS: break
        self.scope = scope
        return errors[:MAX_ERRORS]

    def attempt(self, node: Any, value: Any) -> Any:
        """The errors of a value. If there are any, what was looked at does not count."""
        count, errors = len(self.marks), self.check(node, value)
        if errors: del self.marks[count:]
        return errors
    def rest(self, value: Any, items: Iterable[Any], node: Any) -> list[Any]:
        """The members that no other keyword of the subschema has looked at."""
        self.spend(len(self.marks) - self.start)
        seen = {key for owner, key in self.marks[self.start:] if owner is value}
        return [(key, item, node) for key, item in items if key not in seen]
    def properties(self, value: Json, _: Any, parts: Json) -> Iterable[Any]:
        named, others = parts["properties"], parts["additionalProperties"]
        patterns = parts["patternProperties"]
        if not patterns:
            return [(name, item, sub) for name, item in value.items() for sub in named.get(name, others)]
        return ((name, item, sub) for name, item in value.items() for sub in
                [*named.get(name, ()), *(sub for found, sub in patterns if found(name, self))] or others)
    def items(self, value: list[Any], _: Any, parts: Json) -> Iterable[Any]:
        first, rest = parts.get("prefixItems", []), "items"
        if isinstance(parts.get("items"), list):      # before 2020-12
            first, rest = parts["items"], "additionalItems"
        others = itertools.repeat(parts[rest]) if rest in parts else ()
        return zip(itertools.count(), value, itertools.chain(first, others))
    def contains(self, value: list[Any], sub: Any, parts: Json) -> bool:
        found = [index for index, item in enumerate(value) if not self.attempt(sub, item)]
        self.marks += [(value, index) for index in found]
        return bool(parts.get("minContains", 1) <= len(found) <= parts.get("maxContains", len(found)))

    def any_of(self, value: Any, subs: list[Any], parts: Json) -> Any:
        one, failed = subs is parts.get("oneOf"), []
        for sub in subs:
            wrong = self.attempt(sub, value)
            if wrong:
                failed.append(wrong)
            elif not one and not self.schema.marks: return ()
        passed = len(subs) - len(failed)
        if not passed: return [(None, value, lambda value: _nearest(failed, value))]
        text = f"matches {passed} alternatives of `oneOf`, must match one"
        return [(None, value, _refuse(lambda *_: text))] if one and passed > 1 else ()

    def dynamic_ref(self, value: Any, _: Any, parts: Json) -> Any:
        sub, anchor = parts["$dynamicRef"]            # if it has one: that of the outermost document entered
        entered = [(uri, anchor) for uri in self.scope if (uri, anchor) in self.schema.dynamic]
        return [(None, value, self.schema.dynamic[entered[0]] if entered else sub)]
    def dependent(self, value: Json, rules: Json, _: Any) -> Iterator[Any]:
        for name, rule in rules.items():
            if name in value and isinstance(rule, list):
                yield from [(each, value, _MISSING) for each in rule if each not in value]
            elif name in value: yield None, value, rule

def _tell(path: Any, expected: Any, value: Any) -> str:
    """An error's text: `a.b[0]: expected ...`, without a path at the root."""
    place, key = "", ""
    while path:
        key, path = path
        name = key if isinstance(key, int) or key.isprintable() and len(key) < 200 else show(key)
        place += f"[{name}]" if isinstance(key, int) else f".{name}" if place else name
    text = expected(value, key) if callable(expected) else f"expected {expected}, got {show(value)}"
    return f"{place}: {text}" if place else text

def _refuse(text: Callable[[Any, Any], str]) -> Callable[[Any], Any]:
    """What stands for a subschema and refuses everything, with a text made from (value, key)."""
    return lambda value: [(None, text, value)]

def _others(sub: Any, node: Json) -> Any:
    known = node.get("properties", ())
    return _refuse(lambda value, name: "unknown" + suggest(str(name), known)) if sub is False else sub

def _multiple_of(run: _Run, value: Any, step: Any, parts: Json) -> bool:
    from fractions import Fraction                    # of the texts: in decimal, 0.3 is a multiple of 0.1
    return abs(value) < float("inf") and Fraction(str(value)) % Fraction(str(step)) == 0

def _nearest(failed: list[Any], value: Any) -> Any:
    """Why no alternative fits: in one line if each expects one thing here, else as the nearest one has it."""
    plain = [wrong[0][1] for wrong in failed if len(wrong) == 1 and not wrong[0][0]]
    if len(plain) == len(failed) and all(isinstance(expected, str) for expected in plain):
        return [(None, " or ".join(dict.fromkeys(plain)), value)]
    # What fails deeper down has matched where the others have not: in its type, or its tag.
    return min(failed, key=lambda wrong: (any(not path for path, _, _ in wrong), len(wrong)))

def _search(pattern: str, _: Any = None) -> Callable[[str, _Run], bool]:
    """Whether an ECMA 262 pattern is found in a text, as a function of (text, run)."""
    def translate(token: Any) -> str:
        code = int(token[1], 16) if token[1] else ord(token[2]) % 32 if token[2] else None
        return _PYTHON.get(token[0], token[0]) if code is None else re.escape(chr(code))
    try: search = re.compile(_TOKEN.sub(translate, pattern), re.ASCII).search
    except (re.error, ValueError, OverflowError, RecursionError) as error:
        raise ValueError(f"pattern {show(pattern)}: {error}") from None
    most = MAX_MATCHED if re.search("[*+{]", pattern) else sys.maxsize

    def found(text: str, run: _Run) -> bool:
        run.spend(1 + (len(text) >> 4))
        if len(text) > most:
            raise OverflowError(f"{len(text)} characters are too many for the pattern {show(pattern)}")
        return search(text) is not None
    return found

def is_type(value: Any, name: str) -> bool:
    """Whether a value has a JSON Schema type. A bool is no number, and 1.0 is an integer."""
    if isinstance(value, bool): return name == "boolean"
    whole = name == "integer" and isinstance(value, float) and value.is_integer()
    return whole or isinstance(value, _TYPES[name])

def is_same(a: Any, b: Any) -> bool:
    """Equality as JSON has it: 1 and 1.0 are the same, 1 and true are not."""
    return _key(a) == _key(b)

def _key(value: Any, run: _Run | None = None) -> str:
    """What values that are the same share, and no others. A text: nobody can foresee its hash."""
    if run: run.spend(6)
    if isinstance(value, dict):
        return "{" + ",".join(sorted(f"{name!r}{_key(item, run)}" for name, item in value.items())) + "}"
    if isinstance(value, list): return "[" + ",".join([_key(item, run) for item in value]) + "]"
    return hex(int(value)) if is_type(value, "integer") else repr(value)

def suggest(name: str, known: Iterable[str]) -> str:
    """How an error text goes on after an unknown name: the nearest known one, or all of a few."""
    import difflib
    names = list(itertools.islice(known, 200))
    near = difflib.get_close_matches(name, names, 1, 0.5) if len(name) < 100 else []
    if near: return f"; did you mean {near[0]}?"
    return f"; known: {', '.join(names)}" if 0 < len(names) <= 12 else ""

def _percent_decode(text: str) -> str:
    if "%" not in text: return text
    from urllib.parse import unquote
    return unquote(text, errors="strict")

def _split(ref: str, base: str) -> tuple[str, list[str]]:
    """A reference as a URI and its fragment's parts: an anchor or "", and the steps of a JSON pointer."""
    uri, _, fragment = ref.partition("#")
    if uri:
        from urllib.parse import urljoin
        base = urljoin(base, uri)
    return base, _percent_decode(fragment).split("/")

# How Python's `re` says what ECMA 262 says otherwise. (\d, \w and \b are ASCII by a flag.)
_SPACES = r"\t-\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_PYTHON = {"$": r"\Z", ".": r"[^\n\r\u2028\u2029]", "(?<": "(?P<", "[]": "(?!)", "[^]": r"[\s\S]",
           r"\s": f"[{_SPACES}]", r"\S": f"[^{_SPACES}]", r"\p{Nd}": r"(?u:\d)",
           **dict.fromkeys((r"\p{L}", r"\p{Letter}"), r"(?u:[^\W\d_])")}
_TOKEN = re.compile(r"\\u\{(\w+)}|\\c([a-zA-Z])|\\p\{\w+}|\\.|\[(?:\\.|[^]\\])*]|\(\?<(?=\w)|.", re.S)

_OBJECT, _ARRAY, _STRING, _NUMBER = (dict,), (list,), (str,), (int, float)
_EVERY = (dict, list, str, bool, int, float, type(None), object)
_TYPES: dict[str, Any] = {"object": _OBJECT, "array": _ARRAY, "string": _STRING, "number": _NUMBER,
                          "integer": (int,), "boolean": (bool,), "null": (type(None),)}
_NOTHING = _refuse(lambda value, key: f"nothing is allowed here, got {show(value)}")
_MISSING = _refuse(lambda value, key: "required, but missing")

# A keyword's row: the types it concerns, and what it expects if `apply(run, value, argument, parts)` tells
# whether that holds. Otherwise `apply` gives triples (key, item, subschema) to check, where the key is None
# for the value itself; then None in the place of "" marks the keys as looked at, for unevaluated keywords.
_KEYWORDS: dict[str, Any] = {
    "$ref": (_EVERY, "", lambda run, value, ref, parts: [(None, value, parts["$ref"][0])]),
    "$dynamicRef": (_EVERY, "", _Run.dynamic_ref),
    "enum": (_EVERY, "one of {}", lambda run, value, keys, parts: _key(value, run) in keys),
    "const": (_EVERY, "{}", lambda run, value, key, parts: _key(value, run) == key),
    "minimum": (_NUMBER, "at least {}", lambda run, value, limit, _: value >= limit),
    "maximum": (_NUMBER, "at most {}", lambda run, value, limit, _: value <= limit),
    "exclusiveMinimum": (_NUMBER, "more than {}", lambda run, value, limit, _: value > limit),
    "exclusiveMaximum": (_NUMBER, "less than {}", lambda run, value, limit, _: value < limit),
    "multipleOf": (_NUMBER, "a multiple of {}", _multiple_of),
    "minLength": (_STRING, "at least {} characters", lambda run, value, limit, _: len(value) >= limit),
    "maxLength": (_STRING, "at most {} characters", lambda run, value, limit, _: len(value) <= limit),
    "pattern": (_STRING, "text that matches {}", lambda run, value, found, parts: found(value, run)),
    "minItems": (_ARRAY, "at least {} items", lambda run, value, limit, _: len(value) >= limit),
    "maxItems": (_ARRAY, "at most {} items", lambda run, value, limit, _: len(value) <= limit),
    "uniqueItems": (_ARRAY, "items that all differ", lambda run, value, unique, parts:
                    not unique or len({_key(item, run) for item in value}) == len(value)),
    **dict.fromkeys(("prefixItems", "items"), (_ARRAY, None, _Run.items)),
    "contains": (_ARRAY, "items that match {}, as many as minContains and maxContains say", _Run.contains),
    "minProperties": (_OBJECT, "at least {} members", lambda run, value, limit, _: len(value) >= limit),
    "maxProperties": (_OBJECT, "at most {} members", lambda run, value, limit, _: len(value) <= limit),
    **dict.fromkeys(("additionalProperties", "patternProperties", "properties"),
                    (_OBJECT, None, _Run.properties)),
    "propertyNames": (_OBJECT, "", lambda run, value, sub, _: [(name, name, sub) for name in value]),
    "required": (_OBJECT, "", lambda run, value, names, _:
                 [(name, value, _MISSING) for name in names if name not in value]),
    **dict.fromkeys(("dependencies", "dependentRequired", "dependentSchemas"), (_OBJECT, "", _Run.dependent)),
    "allOf": (_EVERY, "", lambda run, value, subs, _: [(None, value, sub) for sub in subs]),
    **dict.fromkeys(("anyOf", "oneOf"), (_EVERY, "", _Run.any_of)),
    "not": (_EVERY, "anything but what matches {}", lambda run, value, sub, _: run.attempt(sub, value)),
    "if": (_EVERY, "", lambda run, value, sub, parts:
           [(None, value, parts.get("else" if run.attempt(sub, value) else "then", True))]),
    "unevaluatedProperties": (_OBJECT, None, lambda run, value, sub, _: run.rest(value, value.items(), sub)),
    "unevaluatedItems": (_ARRAY, None, lambda run, value, sub, _: run.rest(value, enumerate(value), sub)),
}
_PREPARE: dict[str, Any] = {       # what is made of a keyword's value beforehand
    "properties": lambda subs, node: {name: (sub,) for name, sub in subs.items()},
    "patternProperties": lambda subs, node: [(_search(text), sub) for text, sub in subs.items()],
    "additionalProperties": lambda sub, node: (_others(sub, node),),
    "unevaluatedProperties": _others, "pattern": _search,
    "enum": lambda values, node: set(map(_key, values)), "const": lambda value, node: _key(value),
}

# The rules for schemas are a schema, too. First what holds subschemas: one, an array, or an object of them.
_ONE = ("additionalItems", "additionalProperties", "contains", "else", "if", "items", "not", "propertyNames",
        "then", "unevaluatedItems", "unevaluatedProperties")
_MANY = ("allOf", "anyOf", "oneOf", "prefixItems")
_NAMED = ("$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties")
_HOLDERS = {*_ONE, *_MANY, *_NAMED}
_ROOT: Json = {"$ref": "#"}
_NAMES: Json = {"type": "array", "items": {"type": "string"}}
_METASCHEMA = ("https://json-schema.org/draft/2020-12/schema", "")
_RULES: Json = {"type": ["object", "boolean"], "properties": {
    **dict.fromkeys(_ONE, _ROOT), **dict.fromkeys(_MANY, {"type": "array", "items": _ROOT}),
    **dict.fromkeys(_NAMED, {"type": "object", "additionalProperties": _ROOT}),
    "items": {"if": {"type": "array"}, "then": {"items": _ROOT}, "else": _ROOT},
    "dependencies": {"additionalProperties": {"if": {"type": "array"}, "then": _NAMES, "else": _ROOT}},
    "dependentRequired": {"type": "object", "additionalProperties": _NAMES}, "required": _NAMES,
    "$schema": {"enum": [f"{scheme}://json-schema.org/{draft}/schema{end}" for scheme in ("https", "http")
                         for draft in ("draft/2020-12", "draft/2019-09", "draft-07") for end in ("", "#")]},
    "type": {"anyOf": [{"enum": [*_TYPES]}, {"type": "array", "minItems": 1, "items": {"enum": [*_TYPES]}}]},
    "multipleOf": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": float("inf")},
    "enum": {"type": "array"}, "uniqueItems": {"type": "boolean"}, "pattern": {"type": "string"},
    **dict.fromkeys(("$anchor", "$dynamicAnchor", "$dynamicRef", "$id", "$ref"), {"type": "string"}),
    **dict.fromkeys(("exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum"), {"type": "number"}),
    **{end + noun: {"type": "integer", "minimum": 0} for end in ("max", "min")
       for noun in ("Contains", "Items", "Length", "Properties")}}}
_META: Schema | None = None     # while it is made
_META = Schema(_RULES)

###############################################################################
# 6. Signatures ###############################################################
###############################################################################
# From a Python function to what the wire says of it, and back: hints to schemas, arguments to values, values
# to content; also the content classes and URI templates. Knows no connections or requests. Hints are known by
# names and marks: nothing is a date or an Enum unless somebody imported their modules, which are slow.

def _with(wire: Json, **members: Any) -> Json:
    """The object with those members that are not None."""
    wire.update((name, value) for name, value in members.items() if value is not None)
    return wire

def _base64(data: bytes) -> str:
    import binascii
    return binascii.b2a_base64(data, newline=False).decode("ascii")

class _Wire(dict):  # type: ignore[type-arg]
    """An object just as the wire has it; each subclass is a constructor that knows the members."""

class _Media(_Wire):
    _magic: tuple[tuple[bytes, int, str], ...]             # leading bytes, where, MIME type

    def __init__(self, data: bytes | None = None, *, path: Any = None, mime_type: str | None = None,
                 annotations: Json | None = None, meta: Json | None = None) -> None:
        if (data is None) == (path is None):
            raise TypeError(f"{type(self).__name__} takes either data or path=")
        if data is None:
            with open(path, "rb") as file: data = file.read()
        kind = self._magic[0][2].partition("/")[0]
        found = (name for magic, at, name in self._magic if data[at:at + len(magic)] == magic)
        told = mime_type or next(found, "")
        if not told:
            import mimetypes
            told = mimetypes.guess_type(str(path))[0] or ""
            if not told.startswith(kind):
                raise ValueError(f"{type(self).__name__}: cannot tell the MIME type; give mime_type=")
        _with(self, type=kind, data=_base64(data), mimeType=told, annotations=annotations, _meta=meta)

class Image(_Media):
    """An image to return: bytes, or the file at `path`. The MIME type is told from the bytes."""
    _magic = ((b"\x89PNG\r\n", 0, "image/png"), (b"\xff\xd8\xff", 0, "image/jpeg"), (b"GIF8", 0, "image/gif"),
              (b"WEBP", 8, "image/webp"), (b"BM", 0, "image/bmp"), (b"<svg", 0, "image/svg+xml"))

class Audio(_Media):
    """Sound to return: bytes, or the file at `path`. Since 2025-03-26; older clients get a blob."""
    _magic = ((b"WAVE", 8, "audio/wav"), (b"ID3", 0, "audio/mpeg"), (b"\xff\xfb", 0, "audio/mpeg"),
              (b"OggS", 0, "audio/ogg"), (b"fLaC", 0, "audio/flac"))

class EmbeddedResource(_Wire):
    """A resource's text or bytes inside a result: server/tools.md#embedded-resources."""
    def __init__(self, uri: str, text_or_bytes: str | bytes, *, mime_type: str | None = None,
                 annotations: Json | None = None, meta: Json | None = None) -> None:
        held = {"text": text_or_bytes} if isinstance(text_or_bytes, str) else {"blob": _base64(text_or_bytes)}
        _with(self, type="resource", resource={**_with({"uri": uri}, mimeType=mime_type), **held},
              annotations=annotations, _meta=meta)

class ResourceLink(_Wire):
    """A link: server/tools.md#resource-links. Since 2025-06-18; older clients get its URI as text."""
    def __init__(self, uri: str, name: str, *, title: str | None = None, description: str | None = None,
                 mime_type: str | None = None, size: int | None = None, meta: Json | None = None,
                 annotations: Json | None = None, icons: list[Json] | None = None) -> None:
        _with(self, type="resource_link", uri=uri, name=name, title=title, description=description,
              mimeType=mime_type, size=size, annotations=annotations, icons=icons, _meta=meta)

class Message(_Wire):
    """One message of a prompt, or of a conversation to sample from. `content` is text, a content object, a
    wire block, or a list of those; `role` is "user" or "assistant"."""
    def __init__(self, content: Any, role: str = "user") -> None:
        if role not in ("user", "assistant"):
            raise ValueError(f'role: expected "user" or "assistant", got {show(role)}')
        many = isinstance(content, (list, tuple))
        _with(self, role=role, content=[_block(item) for item in content] if many else _block(content))

class Param:
    """What a schema should say beyond the type: `Annotated[int, Param("how many", ge=1)]`. `ge`, `gt`, `le`
    and `lt` are for numbers, `pattern` for text, `min_length` and `max_length` for text, lists and objects;
    `header` is the name to mirror the value under in HTTP."""
    def __init__(self, description: str | None = None, *, ge: float | None = None, gt: float | None = None,
                 le: float | None = None, lt: float | None = None, min_length: int | None = None,
                 max_length: int | None = None, pattern: str | None = None, examples: list[Any] | None = None,
                 header: str | None = None) -> None:
        self.lengths = _with({}, min=min_length, max=max_length)
        self.wire = _with({}, description=description, minimum=ge, exclusiveMinimum=gt, maximum=le,
                          exclusiveMaximum=lt, pattern=pattern, examples=examples, **{"x-mcp-header": header})

def _block(item: Any) -> Json:
    """A content block for text, a content object, or a wire block. Raises TypeError for anything else."""
    if isinstance(item, dict) and isinstance(item.get("type"), str): return item
    if not isinstance(item, str):
        raise TypeError(f"content: expected text, an Image or other content, got {type(item).__name__}")
    return {"type": "text", "text": item}

def prompt_messages(value: Any) -> list[Json]:
    """The messages of prompts/get for what a prompt returned. Raises TypeError for what it may not return."""
    items = value if isinstance(value, (list, tuple)) else [value]
    return [Message(item.get("content"), item["role"]) if isinstance(item, dict) and "role" in item
            else Message(item) for item in items]

def fit_block(block: Json, version: str) -> Json:
    """A content block as a revision knows it: older ones have no audio (a blob then) or links (text then)."""
    if block.get("type") == "audio" and version < "2025-03-26":
        resource = {"uri": "data:", "mimeType": block["mimeType"], "blob": block["data"]}
        return {"type": "resource", "resource": resource}
    if block.get("type") == "resource_link" and version < "2025-06-18":
        return {"type": "text", "text": block["uri"]}
    return block

def fit_members(wire: Json, version: str) -> Json:
    """A definition without the members that the revision does not know yet."""
    return {name: value for name, value in wire.items() if MEMBER_SINCE.get(name, OLDEST) <= version}

REQUIRED: Any = object()                       # in place of a default: a value must come
ABSENT: Any = object()                         # in place of a default: the value may stay away
_CHOICES = ("string", "boolean", "integer", "null")           # what values in an enum may be alike in
_REFUSALS = (ValueError, TypeError, ArithmeticError)           # what a conversion may raise

def _as_is(value: Any) -> Any: return value

class Hint(dict):  # type: ignore[type-arg]
    """What a type hint means: its JSON Schema, and make(value), which turns a value that the schema allows
    into a Python value, or raises one of _REFUSALS with what is wrong as its text."""
    def __init__(self, schema: Json, make: Callable[[Any], Any] = _as_is) -> None:
        super().__init__(schema)
        self.make = make
    def kinds(self) -> set[str]:
        """The JSON types that it allows; "" where it does not say."""
        return {"object" if "$ref" in each else each.get("type", "") for each in self.get("anyOf", [self])}

def _parse_duration(cls: Any, text: str) -> Any:
    # Neither years nor months: nobody knows how long they are.
    found = re.fullmatch(r"P(?=.)((?P<days>\d+)D)?(T(?=.)((?P<hours>\d+)H)?((?P<minutes>\d+)M)?"
                         r"((?P<seconds>-?\d+(\.\d+)?)S)?)?", text)
    return cls(**{unit: float(count) for unit, count in found.groupdict("0").items()}) if found else cls("")

def _parse_iso(cls: Any, text: str) -> Any:
    return cls.fromisoformat(re.sub("[zZ]$", "+00:00", text))        # Z is news to Pythons before 3.11

def _encode_duration(value: Any) -> str: return f"PT{value.total_seconds():f}".rstrip("0").rstrip(".") + "S"

def _parse_base64(_: Any, text: str) -> Any:
    import base64
    return base64.b64decode(text, validate=True)

# A class: its schema; what an error text calls it ("": taken as it is); from the wire (None: by the class);
# to the wire. A Decimal is text, which loses no digit; so is a timedelta, whose units are in it.
_SCALARS: dict[str, tuple[Json, str, Callable[[Any, Any], Any] | None, Callable[[Any], Any]]] = {
    **dict.fromkeys(("object", "Any", "a TypeVar"), ({}, "", None, _as_is)),
    **dict.fromkeys(("NoneType", "a NoneType"), ({"type": "null"}, "", None, _as_is)),
    "str": ({"type": "string"}, "", None, _as_is), "bool": ({"type": "boolean"}, "", None, _as_is),
    "int": ({"type": "integer"}, "integer", None, _as_is),
    "float": ({"type": "number"}, "number", None, _as_is),
    "bytes": ({"type": "string", "contentEncoding": "base64"}, "base64", _parse_base64, _base64),
    "datetime.date": ({"type": "string", "format": "date"}, "an ISO 8601 date", _parse_iso, str),
    "datetime.time": ({"type": "string", "format": "time"}, "an ISO 8601 time", _parse_iso, str),
    "datetime.datetime": ({"type": "string", "format": "date-time"}, "an ISO 8601 date and time", _parse_iso,
                          lambda moment: moment.isoformat()),
    "datetime.timedelta": ({"type": "string", "format": "duration"}, "an ISO 8601 duration, such as PT1H30M",
                           _parse_duration, _encode_duration),
    "uuid.UUID": ({"type": "string", "format": "uuid"}, "a UUID", None, str),
    "decimal.Decimal": ({"type": "string", "pattern": r"^-?\d+(\.\d+)?(E[+-]?\d+)?$"}, "a number", None, str),
    **dict.fromkeys(("pathlib.Path", "pathlib.PurePath"), ({"type": "string"}, "a path", None, str)),
}
_ARRAYS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("list", "Sequence", "MutableSequence", "Collection", "Iterable"), list),
    "tuple": tuple, "set": set, "MutableSet": set, "frozenset": frozenset, "Set": frozenset}

def _name(form: Any) -> str:
    """A hint's key in the tables: "int", "Mapping", "datetime.date"; "a UnionType" for an instance."""
    if not isinstance(form, type): return getattr(form, "_name", None) or "a " + type(form).__name__
    root = form.__module__.partition(".")[0]
    bare = root in ("builtins", "collections", "typing", "typing_extensions")
    return form.__qualname__ if bare else f"{root}.{form.__qualname__}"

class Scope:
    """Describes the hints of one schema: what names they may use, and which classes contain themselves."""
    def __init__(self, names: Json) -> None:
        self.names = names
        self.defs: dict[str, Hint] = {}        # for $defs
        self._open: dict[Any, Hint] = {}       # class -> its meaning, as far as known
    def document(self, hint: Hint) -> Hint:
        """A described hint with its $defs, and no $ref at the root: a tool's schema must have "type"."""
        root = self.defs[hint["$ref"][len("#/$defs/"):]] if "$ref" in hint else hint
        return Hint({**root, "$defs": self.defs}, root.make) if self.defs else root

    def describe(self, hint: Any) -> Hint:
        """The meaning of a hint. Raises TypeError, with the remedy, for what the wire cannot say."""
        hint = self.evaluate(hint)
        form, args = getattr(hint, "__origin__", None) or hint, getattr(hint, "__args__", None) or ()
        if hasattr(hint, "__metadata__"): return self._annotated(form, hint.__metadata__)
        marked = (row for mark, row in _MARKS.items() if hasattr(form, mark))
        row = _FORMS.get(_name(form)) or next(marked, None)
        if row is None:
            raise TypeError(f"{getattr(form, '__name__', repr(hint))} has no JSON Schema; use a plain type, "
                            f"an Enum, a TypedDict, a NamedTuple or a dataclass")
        return row(self, form, args)

    def evaluate(self, hint: Any) -> Any:
        """A hint as an object, if it is text. Raises TypeError when it cannot be."""
        text = hint if isinstance(hint, str) else getattr(hint, "__forward_arg__", None)
        try:
            try: return hint if text is None else eval(text, self.names)
            except TypeError: return eval(*_respell(str(text), self.names))
        except Exception as error: raise TypeError(f"cannot evaluate the hint {text!r}: {error}") from None

    def _annotated(self, hint: Any, notes: Any) -> Hint:
        nouns, found = {"string": "Length", "array": "Items", "object": "Properties"}, self.describe(hint)
        for note in [Param(note) if isinstance(note, str) else note for note in notes]:
            if isinstance(note, Param):          # maxLength, maxItems ...
                limits = {end + nouns[kind]: length for end, length in note.lengths.items()
                          for kind in found.kinds() & nouns.keys()}
                found = Hint({**found, **note.wire, **limits}, found.make)
        return found

    def _scalar(self, cls: Any, _: Any) -> Hint:
        schema, expected, read, _ = _SCALARS[_name(cls)]

        def make(value: Any) -> Any:
            try: return read(cls, value) if read else cls(value)
            except _REFUSALS: raise ValueError(f"expected {expected}, got {show(value)}") from None
        return Hint(schema, make if expected else _as_is)
    def _choice(self, _: Any, members: Any) -> Hint:
        """Literal's values, or an Enum's members by their values."""
        if not members: raise TypeError("a choice of nothing; give it values")
        wire = [to_plain(member) for member in members]
        kinds = {kind for plain in wire for kind in _CHOICES if is_type(plain, kind)}
        schema = _with({}, type=kinds.pop() if len(kinds) == 1 else None, enum=wire)
        return Hint(schema, lambda value: next(m for m, plain in zip(members, wire) if is_same(plain, value)))

    def _union(self, _: Any, args: Any) -> Hint:
        hints, defs = [self.describe(each) for each in args], self.defs
        checks: list[Schema] = []              # compiled at the first use: then `defs` is complete

        def make(value: Any) -> Any:
            checks[:] = checks or [Schema({**hint, "$defs": defs}) for hint in hints]
            *others, last = [hint.make for check, hint in zip(checks, hints) if not check.errors(value)]
            for make_other in others:
                try: return make_other(value)
                except _REFUSALS:
                    pass                         # text that is no date may be a str
            return last(value)
        return Hint({"anyOf": hints}, make)

    def _array(self, form: Any, args: Any) -> Hint:
        """A list, set, frozenset or tuple."""
        hints, make = [self.describe(each) for each in args if each is not ...], _ARRAYS[_name(form)]
        if make is tuple and args and ... not in args:
            schema = {"type": "array", "prefixItems": hints, "minItems": len(hints), "maxItems": len(hints)}
            return Hint(schema, lambda value: tuple(hint.make(each) for hint, each in zip(hints, value)))
        item = hints[0] if hints else Hint({})
        schema = _with({"type": "array"}, items=item or None, uniqueItems=make in (set, frozenset) or None)
        return Hint(schema, lambda value: make(map(item.make, value)))

    def _mapping(self, _: Any, args: Any) -> Hint:
        key, item = map(self.describe, args or (str, object))
        if key not in ({}, {"type": "string"}):
            raise TypeError("dict keys: JSON has text only; use dict[str, ...]")
        return Hint(_with({"type": "object"}, additionalProperties=item or None),
                    lambda value: {name: item.make(each) for name, each in value.items()})

    def _object(self, cls: Any, _: Any) -> Hint:
        """A dataclass, NamedTuple or TypedDict; as a reference when it contains itself."""
        hint, name = self._open.get(cls), cls.__name__
        if hint is None:
            hint = self._open[cls] = Hint({})
            outer, self.names = self.names, dict(self.names)
            for base in reversed(cls.__mro__):
                self.names.update(vars(sys.modules.get(base.__module__, sys)))
            self.names[name] = cls
            found = self.members(_members(cls))
            hint.update(found)
            hint.make = lambda value: cls(**found.make(value))
            self.names = outer
            if not any(each is hint for each in self.defs.values()): return self._open.pop(cls)
        while self.defs.setdefault(name, hint) is not hint:
            name += "_"                          # another class of that name
        return Hint({"$ref": "#/$defs/" + name}, lambda value: hint.make(value))

    def members(self, members: dict[str, tuple[Any, Any]], hidden: Any = ABSENT) -> Hint:
        """An object of these members, {name: (hint, default)}, without those whose hint is `hidden`."""
        hints, required = {}, []
        for name, (hint, default) in members.items():
            try:
                hint = self.evaluate(hint)
                if hidden in (hint, *getattr(hint, "__args__", ())): continue
                found = self.describe(hint)
            except TypeError as error: raise TypeError(f"{name}: {error}") from None
            hints[name] = Hint({**found, **_default(default)}, found.make)
            presence = {"Required": REQUIRED, "NotRequired": ABSENT}
            if presence.get(_name(getattr(hint, "__origin__", None)), default) is REQUIRED:
                required.append(name)

        def make(value: Any) -> Json:
            made, errors = {}, []
            for name in hints:
                try:
                    if name in value: made[name] = hints[name].make(value[name])
                except _REFUSALS as error: errors.append(f"{name}: " + " ".join(str(error).split()))
            if errors: raise ValueError("; ".join(errors))
            return made
        return Hint(_with({"type": "object", "properties": hints}, required=required or None), make)

# How a hint is described: by its name, or its origin's; else by a mark that its class has.
_FORMS: dict[str, Callable[[Scope, Any, Any], Hint]] = {
    **dict.fromkeys(_SCALARS, Scope._scalar), **dict.fromkeys(_ARRAYS, Scope._array),
    **dict.fromkeys(("dict", "Mapping", "MutableMapping"), Scope._mapping),
    **dict.fromkeys(("Union", "a UnionType"), Scope._union), "Literal": Scope._choice,
    **dict.fromkeys(("Required", "NotRequired", "ReadOnly"), lambda scope, _, args: scope.describe(args[0])),
}
_MARKS: dict[str, Callable[[Scope, Any, Any], Hint]] = {
    "__members__": lambda scope, enum, _: scope._choice(enum, tuple(enum)),
    **dict.fromkeys(("__dataclass_fields__", "_field_defaults", "__total__"), Scope._object),
    "__supertype__": lambda scope, new_type, _: scope.describe(new_type.__supertype__),
    "__value__": lambda scope, alias, _: scope.describe(alias.__value__),           # type X = ...
}

def _respell(text: str, names: Json) -> tuple[Any, Json]:
    """What eval takes for what this Python cannot: X | Y before 3.10, list[X] before 3.9, "X" | None."""
    import ast
    import typing

    class Respell(ast.NodeTransformer):
        def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
            self.generic_visit(node)
            return ast.Call(ast.Name("|", ast.Load()), [node.left, node.right], [])
    tree = ast.fix_missing_locations(Respell().visit(ast.parse(text, mode="eval")))
    older = {name.lower(): getattr(typing, name) for name in ("List", "Dict", "Tuple", "Set", "FrozenSet")}
    union: Any = typing.Union
    return compile(tree, "<hint>", "eval"), {**names, **older, "|": lambda *either: union[either]}

def _default(value: Any) -> Json:
    try: encode_json(to_plain(value))
    except (TypeError, ValueError):
        return {}                              # none, or one that JSON cannot say
    return {"default": to_plain(value)}

def read_parameters(fn: Any, skip: int = 0) -> tuple[dict[str, tuple[Any, Any]], Any, Json]:
    """A function's parameters but the first `skip`, {name: (hint, default)}; its return hint; the names its
    hints may use. Raises TypeError for what has no name on the wire. `inspect` would be slow to import."""
    while hasattr(fn, "__wrapped__"): fn = fn.__wrapped__
    if hasattr(fn, "__func__") or not hasattr(fn, "__code__"):
        fn, skip = getattr(fn, "__func__", type(fn).__call__), 1
    code = getattr(fn, "__code__", None)
    if code is None:
        raise TypeError("expected a Python function, or an object whose class defines __call__")
    names, count = code.co_varnames, code.co_argcount + code.co_kwonlyargcount
    stars = bool(code.co_flags & 4) + bool(code.co_flags & 8)    # *args, **kwargs: their names come last
    for name in names[skip:code.co_posonlyargcount] + names[count:count + stars]:
        raise TypeError(f"{name}: *args, **kwargs and positional-only parameters have no name on the wire; "
                        f"give each parameter a name")
    defaults = {**dict(zip(reversed(names[:code.co_argcount]), reversed(fn.__defaults__ or ()))),
                **(fn.__kwdefaults__ or {})}
    cells = zip(code.co_freevars, fn.__closure__ or ())
    scope = {**fn.__globals__, **{name: cell.cell_contents for name, cell in cells if cell != type(cell)()}}
    hints = getattr(fn, "__annotations__", None) or {}
    members = {name: (hints.get(name, object), defaults.get(name, REQUIRED)) for name in names[skip:count]}
    return members, hints.get("return", object), scope

def _members(cls: Any) -> dict[str, tuple[Any, Any]]:
    """The members of a dataclass or NamedTuple, as its constructor has them, or of a TypedDict."""
    if not hasattr(cls, "__total__"):
        return read_parameters(cls.__init__ if hasattr(cls, "__dataclass_fields__") else cls.__new__, 1)[0]
    required = getattr(cls, "__required_keys__", cls.__annotations__ if cls.__total__ else ())
    return {name: (hint, REQUIRED if name in required else ABSENT)
            for name, hint in cls.__annotations__.items()}

def read_doc(fn: Any, names: Iterable[str]) -> tuple[str | None, dict[str, str]]:
    """A docstring without what it says of the parameters, or None; and that, {name: text}. Knows the styles
    of Google, NumPy and Sphinx."""
    lines = (getattr(fn, "__doc__", None) or "").expandtabs().strip().splitlines()
    margin = min((len(line) - len(line.lstrip()) for line in lines[1:] if line.strip()), default=0)
    text = "\n".join(lines[:1] + [line[margin:].rstrip() for line in lines[1:]])
    said: dict[str, str] = {}
    kept: list[str] = []
    if ":" not in text: return text or None, said
    numpy, name, depth = "\n---" in text, "", 0
    for line in re.sub(_DOC_HEADS, "", text).splitlines():
        entry, indent = re.match(_DOC_ENTRY, line), len(line) - len(line.lstrip())
        if entry and entry[1] in names and not (name and indent > depth):
            name, depth = entry[1], indent
            said[name] = "" if numpy else entry[2]           # NumPy has the type there, and the text below
        elif name and (indent > depth or not line): said[name] = f"{said[name]} {line.strip()}".strip()
        else:
            name = ""
            kept.append(line)
    return "\n".join(kept).strip() or None, said

_DOC_HEADS = r"(?m)^(?:Args|Arguments|Params|(?:Other )?Parameters)(?::|\n-+)$\n|^:type .*$\n?"
_DOC_ENTRY = r" *(?::param (?:[^:]* )?)?\*{0,2}(\w+) *(?:\(.*?\))? *:(?!:) *(.*)"

class Signature:
    """A function as the wire sees it: the schema of its arguments, and how they are checked and converted.
    `context` is the name of the parameter that takes the Context."""
    def __init__(self, fn: Callable[..., Any], context_type: type, schema: Json | None = None) -> None:
        self.fn, self.name = fn, getattr(fn, "__name__", type(fn).__name__)
        try:
            members, _, names = read_parameters(fn)
            scope = Scope(names)
            found = scope.members(members, context_type)
        except TypeError as error: raise TypeError(f"{self.name}: {error}") from None
        self.context = next((name for name in members if name not in found["properties"]), None)
        self.description, said = read_doc(fn, found["properties"])
        for name, text in said.items(): found["properties"][name].setdefault("description", text)
        self.schema: Json = schema or {**scope.document(found), "additionalProperties": False}
        self._check, self._make = Schema(self.schema), dict if schema else found.make
        # Where JSON may come as a string: some models send lists and objects that way.
        self._nested = [name for name, hint in found["properties"].items() if not schema
                        and {"array", "object"} & hint.kinds() and not {"string", ""} & hint.kinds()]

    def bind(self, arguments: Json) -> Json:
        """The keyword arguments for the function. Raises InvalidParams, every error in one text."""
        for name in self._nested:
            if isinstance(arguments.get(name), str):
                arguments = {**arguments, name: self._from_text(name, arguments[name])}
        errors = self._check.errors(arguments)
        if errors: raise InvalidParams("; ".join(errors[:20]))
        try: return self._make(arguments)
        except ValueError as error: raise InvalidParams(str(error)) from None
    def bind_text(self, arguments: Json) -> Json:
        """The same from strings, as prompts and URI templates have them: "3" may stand for an integer."""
        return self.bind({name: self._from_text(name, value) for name, value in arguments.items()})
    def _from_text(self, name: str, text: Any) -> Any:
        schema = {**self.schema["properties"].get(name, {}), "$defs": self.schema.get("$defs", {})}
        if not isinstance(text, str) or not Schema(schema).errors(text): return text
        try: value = parse_message(text.encode("utf-8", "surrogatepass"))
        except McpError: return text
        return text if isinstance(value, str) else value
    def completions(self, name: str) -> list[str]:
        """The values that an argument's type allows, when they are few and known: Literal, Enum, bool."""
        schema = self.schema.get("properties", {}).get(name, {})
        values = [value for each in schema.get("anyOf", [schema])
                  for value in each.get("enum", (True, False) if each.get("type") == "boolean" else ())]
        return [value if isinstance(value, str) else encode_json(value) for value in values]

def to_plain(value: Any) -> Any:
    """A Python value as JSON has it, the way its hint's schema says. Raises TypeError if there is none."""
    if value is None or type(value) in (str, int, float, bool): return value
    if hasattr(type(value), "__members__"): return to_plain(value.value)
    if hasattr(value, "_asdict"): return to_plain(value._asdict())
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(to_plain(key)): to_plain(each)
                for key, each in value.items()}
    if isinstance(value, (list, tuple)): return [to_plain(each) for each in value]
    if isinstance(value, (set, frozenset)):
        return sorted(map(to_plain, value), key=encode_json)             # the same on every run
    if hasattr(type(value), "__dataclass_fields__"):
        from dataclasses import fields
        return {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
    for row in (_SCALARS.get(_name(base)) for base in type(value).__mro__[:-1]):
        if row is not None: return row[3](value)
    raise TypeError(f"a {type(value).__name__} has no JSON form")

class Output:
    """What a tool returns: decided once from its hint and options, then applied to every value. Text and
    content objects become content blocks. Everything else is structured: `structuredContent`, and the same as
    JSON in a text block for clients that read only that. What is no object is wrapped: {"result": value}."""
    # Hints that say too little for an outputSchema, so that each value decides: a list may hold images.
    _VAGUE: tuple[Json, ...] = ({}, {"type": "null"}, {"type": "array"}, {"type": "string"})

    def __init__(self, fn: Callable[..., Any], schema: Json | None, structured: bool | None,
                 name: str) -> None:
        if schema is None and structured is not False: schema = self._describe(fn, bool(structured), name)
        self.structured = True if schema else structured         # None: each value decides
        self.wrapped = bool(schema and schema.get("type") != "object")
        if schema and self.wrapped:
            inner = {member: each for member, each in schema.items() if member != "$defs"}
            schema = _with({"type": "object", "properties": {"result": inner}, "required": ["result"]},
                           **{"$defs": schema.get("$defs")})
        self.schema, self._check = schema or None, Schema(schema or {})

    def _describe(self, fn: Callable[..., Any], structured: bool, name: str) -> Json | None:
        _, returns, names = read_parameters(fn)
        scope = Scope(names)
        try: found = scope.document(scope.describe(returns))
        except TypeError as error:
            if structured: raise TypeError(f"{name}: return: {error}") from None
            return None
        told = {member: each for member, each in found.items() if member != "description"}
        return found if structured or told not in self._VAGUE else None

    def result(self, value: Any) -> Json:
        """The result of tools/call for a returned value. Raises TypeError or ValueError if it is unfit."""
        items = value if isinstance(value, (list, tuple)) else [] if value is None else [value]
        textual = value is None or isinstance(value, str) or any(isinstance(item, _Wire) for item in items)
        if self.structured is False or self.structured is None and textual:
            return {"content": [_block(item if isinstance(item, (str, dict)) else encode_json(to_plain(item)))
                                for item in items]}
        plain = to_plain(value)
        wrapped = {"result": plain} if self.wrapped or not isinstance(plain, dict) else plain
        errors = self._check.errors(wrapped)
        if errors: raise ValueError("the result does not match its outputSchema: " + "; ".join(errors[:5]))
        return {"content": [{"type": "text", "text": encode_json(plain)}], "structuredContent": wrapped}

def unwrap_result(result: Json) -> Any:
    """The Python value in a result of tools/call: its structured content, else its text, else its blocks."""
    blocks = [block for block in result.get("content") or [] if isinstance(block, dict)]
    value = result.get("structuredContent")
    if "structuredContent" not in result:
        texts = [str(block.get("text", "")) for block in blocks if block.get("type") == "text"]
        if len(texts) == len(blocks): return "\n".join(texts) if texts else None
        return blocks[0] if len(blocks) == 1 else blocks
    if not isinstance(value, dict) or list(value) != ["result"]: return value
    try:       # a wrapped value, and an object that happens to look like one, differ in the text beside them
        whole = len(blocks) == 1 and is_same(json.loads(blocks[0].get("text", "")), value)
    except (ValueError, TypeError, RecursionError): whole = False
    return value if whole else value["result"]

def fit_result(result: Json, version: str) -> Json:
    """A tool's result as a revision knows it."""
    if version < "2025-06-18":
        result.pop("structuredContent", None)
        result["content"] = [fit_block(block, version) for block in result["content"]]
    return result

def read_contents(uri: str, value: Any, mime_type: str | None) -> Json:
    """What a resource function returned, as the wire's contents."""
    if isinstance(value, EmbeddedResource): return {**_with({}, mimeType=mime_type), **value["resource"]}
    if isinstance(value, _Media):
        return {"uri": uri, "mimeType": mime_type or value["mimeType"], "blob": value["data"]}
    kind = "text/plain" if isinstance(value, str) else "application/octet-stream"
    if not isinstance(value, (str, bytes, bytearray, memoryview)):
        value, kind = encode_json(to_plain(value)), "application/json"
    contents: Json = EmbeddedResource(uri, value, mime_type=mime_type or kind)["resource"]
    return contents

class UriTemplate:
    """A template of RFC 6570, as far as matching needs it: {x}, {x,y}, {+x}, {/x}, {/x*}, {?a,b}, {&a}. What
    {x} matched may not smuggle a path: a value with a ".." step, an absolute path or a NUL does not match.
    {+x} takes those too, and slashes; whoever declares it checks the value."""
    def __init__(self, template: str) -> None:
        text = re.split(r"\{([+/?&]?)((?:[A-Za-z_]\w*\*?,)*[A-Za-z_]\w*\*?)\}", template)
        text, operators, groups = text[::3], text[1::3] + [""], text[2::3] + [""]
        self.template, self.names = template, re.findall(r"\w+", ",".join(groups))
        self._kinds: dict[str, str] = {}         # name -> its operator, or "*" if it is a list
        pattern = "".join(map(self._expression, map(re.escape, text), operators, groups))
        starred = re.search(r"\{[^/{]\w*[^{}]*\*", template)
        if starred or re.search("[{}]", "".join(text)) or len(self._kinds) < len(self.names):
            raise ValueError(f"URI template {show(template)}: expected {{x}}, {{+x}}, {{/x*}} or {{?a,b}}, "
                             f"each name once")
        self.query = [name for name, kind in self._kinds.items() if kind in ("?", "&")]
        self._regex = re.compile(pattern, re.DOTALL)

    def _expression(self, before: str, operator: str, names: str) -> str:
        """The pattern of some literal text and the expression after it."""
        queried = {"?", "&"} & set(self._kinds.values())
        for name in filter(None, names.split(",")):
            self._kinds[name.rstrip("*")] = "*" if name.endswith("*") else operator
        if operator in ("?", "&"):
            return before + ("" if queried else f"(?:[{operator}](?P<query_>[^#]*))?")
        one = ".+?" if operator == "+" else "[^/?#,]+" if "," in names else "[^/?#]+"
        slash = "/" if operator == "/" else ""
        return before + ("" if slash else ",").join(
            f"(?P<{name[:-1]}>(?:/[^/?#]+)*)" if name.endswith("*") else f"{slash}(?P<{name}>{one})"
            for name in filter(None, names.split(",")))

    def match(self, uri: str) -> Json | None:
        """The values in a URI, decoded; a list for {/x*}; without the query's absent names. Or None."""
        found = self._regex.fullmatch(uri)
        if found is None: return None
        values: Json = found.groupdict()
        query = (values.pop("query_", None) or "").replace("+", " ").split("&")
        try:
            for name, text in values.items():
                steps = [_percent_decode(step) for step in text.split("/")]
                values[name] = steps[1:] if self._kinds[name] == "*" else "/".join(steps)
            for name, _, text in (part.partition("=") for part in query):
                values.update({name: _percent_decode(text)} if name in self.query else {})
        except UnicodeDecodeError: return None
        bound = [value if isinstance(value, list) else [value]
                 for name, value in values.items() if self._kinds[name] != "+"]
        return None if any(map(_smuggles, itertools.chain(*bound))) else values

def _smuggles(value: str) -> bool:
    """Whether a decoded value would leave the place it was meant for, if it were used in a path."""
    return "\0" in value or value.startswith(("/", "\\")) or value[1:2] == ":" and value[:1].isalpha() \
        or ".." in re.split(r"[/\\]", value)

###############################################################################
# 7. Framing ##################################################################
###############################################################################
# Bytes to values and back, no I/O. A message is a line (basic/transports/stdio.md): UTF-8, ended by \n or
# \r\n.

class LineFramer:
    """Lines out of bytes that arrive in any pieces. A line over the limit is skipped without being kept."""
    __slots__ = ("limit", "_parts", "_size", "_skipping")

    def __init__(self, limit: int = MAX_MESSAGE) -> None:
        self.limit = limit
        self._parts: list[bytes] = []            # the unfinished line
        self._size, self._skipping = 0, False

    def feed(self, data: bytes) -> list[bytes | None]:
        """The lines that these bytes complete, without their ends; blank ones are left out. None stands for a
        line that was too long. b"" is the end of the stream: what is left is a line."""
        lines: list[bytes | None] = []
        *ended, rest = data.split(b"\n") if data else (b"", b"")
        for piece in ended:
            if self._parts:
                piece = b"".join([*self._parts, piece])
                self._parts, self._size = [], 0
            if self._skipping:
                self._skipping = False
            elif len(piece) > self.limit: lines.append(None)
            elif piece and not piece.isspace(): lines.append(piece)
        if rest and not self._skipping:
            self._parts.append(rest)
            self._size += len(rest)
            if self._size > self.limit:
                self._parts, self._size, self._skipping = [], 0, True
                lines.append(None)
        return lines

###############################################################################
# 8. Protocol #################################################################
###############################################################################
# One conversation, seen from one side, without I/O, locks or clocks: which message may come now, in which
# revision and era, and what it means. `receive` is the one gate. A request is registered before anybody works
# on it, and ends when somebody pops it: an answer and a cancellation may race, the dict decides.

class Request:
    """One request of the peer's, from its admission to its end. `cancelled` turns true once; then `waiters`,
    queues, get ("cancelled", None), and `callbacks`, the handler's own functions, run."""
    __slots__ = ("id", "method", "params", "meta", "row", "version", "modern", "capabilities", "client_info",
                 "log_level", "batch", "cancelled", "waiters", "callbacks", "progress")

    def __init__(self, message: Json, version: str) -> None:
        self.id: RequestId = message["id"]
        self.method: str = message["method"]
        params = message.get("params")
        self.params: Json = {} if params is None else params
        self.meta: Json = {}
        self.row = METHODS.get(self.method)
        self.version, self.modern, self.log_level = version, False, ""
        self.capabilities: Json = {}
        self.client_info: Json = {}
        self.batch: Batch | None = None
        self.cancelled = False
        self.waiters: list[SimpleQueue[Any]] = []
        self.callbacks: list[Callable[[], Any]] = []
        self.progress = float("-inf")            # the last value told; it must increase

    @property
    def progress_token(self) -> RequestId | None:
        """What the peer wants progress told under, or None."""
        token = self.meta.get("progressToken")
        return token if is_id(token) else None

class Notification(namedtuple("Notification", "method params row")):
    """A notification that may come now. `row` is None for a method that the table does not know."""

class Answer:
    """The answer to a request of ours: who waits for it, and a result or an error (the peer's, or why none
    comes)."""
    __slots__ = ("pending", "result", "error")

    def __init__(self, pending: Any, result: Json | None, error: Exception | None) -> None:
        self.pending, self.result, self.error = pending, result, error

class Refusal(namedtuple("Refusal", "why reply", defaults=[None])):
    """A message that may not come now: `why`, for the log, and what to `reply`, or None."""

class Batch:
    """A JSON-RPC batch of 2025-03-26 in work: its answers leave as one array when the last is there."""
    __slots__ = ("open", "answers")

    def __init__(self) -> None:
        self.open = 1                            # requests not yet answered, and one for the reading
        self.answers: list[bytes] = []

_MODERN_META = ((META_VERSION, True, str), (META_CAPABILITIES, True, dict), (META_CLIENT_INFO, False, dict))

class Protocol:
    """One side of one conversation. `role` is "client" or "server"; `capabilities()` tells what this side
    declares.

    A server makes one for a stdio process, a legacy HTTP session, or a modern HTTP request; a client for each
    connection. The handshake of the legacy era sets version, peer_info and peer_capabilities; modern requests
    bring their own and leave no trace here."""
    __slots__ = ("role", "capabilities", "version", "initialized", "peer_info", "peer_capabilities",
                 "log_level", "subscribed", "pending", "in_flight", "next_id")

    def __init__(self, role: str, capabilities: Callable[[], Json]) -> None:
        self.role, self.capabilities = role, capabilities
        self.version, self.initialized = "", False       # of the session; on a client also a modern one
        self.peer_info: Json = {}
        self.peer_capabilities: Json = {}
        self.log_level = "info"                  # before logging/setLevel "the server MAY decide"
        self.subscribed: dict[str, bool] = {}    # the URIs of resources/subscribe
        self.pending: dict[RequestId, Any] = {}          # our requests: id -> who waits
        self.in_flight: dict[RequestId, Request] = {}    # the peer's requests: id -> Request
        self.next_id = itertools.count(1).__next__

    def receive(self, message: Any) -> Request | Notification | Answer | Refusal:
        """Judge one decoded message. A Request that is returned is in flight."""
        try: kind = check_envelope(message)
        except InvalidRequest as error:
            return self._refuse_envelope(message if isinstance(message, dict) else {}, error)
        if kind == "request": return self._receive_request(message)
        if kind == "notification": return self._receive_notification(message)
        return self._receive_response(message)

    def _refuse_envelope(self, message: Json, error: McpError) -> Answer | Refusal:
        known: Any = message["id"] if is_id(message.get("id")) else None
        ours = known if known not in self.in_flight else None
        if "method" not in message and ("result" in message or "error" in message):
            # An answer is never answered; but if it says whose it is, nobody needs to wait on.
            pending = self.pending.pop(known, None)
            broken = InternalError(f"the peer's answer is not valid: {error}")
            return Refusal(str(error)) if pending is None else Answer(pending, None, broken)
        if isinstance(message.get("method"), str) and "id" not in message:
            return Refusal(str(error))           # nor is a notification
        return Refusal(str(error), error_message(ours, error))

    def _receive_request(self, message: Json) -> Request | Refusal:
        request = Request(message, self.version)
        if self.in_flight.setdefault(request.id, request) is not request:
            # An answer with that id would answer the request that owns it.
            busy = InvalidRequest(f"id {show(request.id)} is in flight already")
            return Refusal(str(busy), error_message(None, busy))
        try: self._admit(request)
        except McpError as error:
            self.end(request)
            return Refusal(str(error), error_message(request.id, error))
        return request

    def _admit(self, request: Request) -> None:
        """Whether this may come now: era, revision, method, sender, lifecycle, capability, parameters."""
        row, meta = request.row, request.params.get("_meta", {}) if isinstance(request.params, dict) else None
        if not isinstance(meta, dict):
            raise InvalidParams(f"params and _meta: expected objects, got {show(request.params)}")
        request.meta = meta
        if self.role == "client" and self.version >= MODERN:
            raise InvalidRequest(f"{request.method}: servers send no requests in {self.version}")
        # basic/versioning.md: "A request carrying modern per-request `_meta` is served statelessly".
        if META_VERSION in meta or META_CAPABILITIES in meta or (row is not None and row.since >= MODERN):
            self._admit_modern(request)
        elif self.role == "server": self._admit_legacy(request)
        version = request.version or OLDEST
        if row is None or row.kind != "request" or row.sender == self.role or \
                not row.since <= version <= row.until:
            raise MethodNotFound(f"{show(request.method)}: no request of a {self._peer} in {version}")
        if row.capability and not has_capability(self.capabilities(), row.capability):
            raise MethodNotFound(f"{request.method}: this {self.role} did not declare {row.capability}")
        if "progressToken" in meta and request.progress_token is None:
            raise InvalidParams("_meta.progressToken: expected string or integer, got "
                                + show(meta["progressToken"]))
        check_members(row.params, request.params)
        if row.handler == "_initialize": self._open_session(request)

    @property
    def _peer(self) -> str: return "client" if self.role == "server" else "server"

    @staticmethod
    def _admit_modern(request: Request) -> None:
        meta = request.meta
        check_members(_MODERN_META, meta, "_meta.")
        if meta[META_VERSION] not in MODERN_VERSIONS:
            raise UnsupportedVersion(f"unsupported protocol version {show(meta[META_VERSION])}",
                                     {"supported": list(MODERN_VERSIONS), "requested": meta[META_VERSION]})
        level = meta.get(META_LOG_LEVEL, "")
        if level != "" and level not in LOG_LEVELS:
            raise InvalidParams(f"_meta.{META_LOG_LEVEL}: {LEVELS_TEXT}, got {show(level)}")
        request.modern, request.version, request.log_level = True, meta[META_VERSION], level
        request.capabilities, request.client_info = meta[META_CAPABILITIES], meta.get(META_CLIENT_INFO) or {}

    def _admit_legacy(self, request: Request) -> None:
        handler = request.row.handler if request.row else ""
        if not self.version and handler not in ("_initialize", "_ping"):
            raise InvalidRequest(f"{request.method}: not initialized; initialize, or send {MODERN} _meta")
        if self.version and handler == "_initialize":
            raise InvalidRequest("initialize: the session is initialized already")
        request.capabilities, request.client_info = self.peer_capabilities, self.peer_info
    def _open_session(self, request: Request) -> None:
        """Negotiate: "If the server supports the requested protocol version, it MUST respond with the same
        version. Otherwise [...] another protocol version it supports": the latest that has a handshake."""
        wanted = request.params["protocolVersion"]
        self.version = request.version = wanted if wanted in LEGACY_VERSIONS else LAST_LEGACY
        self.peer_capabilities = request.capabilities = request.params["capabilities"]
        self.peer_info = request.client_info = request.params["clientInfo"]

    def _receive_notification(self, message: Json) -> Notification | Refusal:
        method, params = message["method"], {} if message.get("params") is None else message["params"]
        row = METHODS.get(method)
        if not isinstance(params, dict):
            return Refusal(f"{method}: params: expected object, got {show(params)}")
        if row is not None and (row.kind != "notification" or row.sender == self.role):
            return Refusal(f"{method} is no notification that a {self._peer} may send")
        if row is not None and row.handler == "_initialized": self.initialized = bool(self.version)
        return Notification(method, params, row)

    def _receive_response(self, message: Json) -> Answer | Refusal:
        pending = self.pending.pop(message.get("id"), None)      # type: ignore[arg-type]
        if pending is None:
            # Late, twice, or to nobody: "SHOULD ignore any response to the cancelled request".
            return Refusal(f"an answer to no open request: {show(message, 200)}")
        if "error" in message: return Answer(pending, None, McpError.from_wire(message["error"]))
        return Answer(pending, message["result"], None)
    def open(self, pending: Any) -> RequestId:
        """Register a request of ours under a new id, before its bytes leave."""
        request_id: RequestId = self.next_id()
        self.pending[request_id] = pending
        return request_id
    def end(self, request: Request) -> bool:
        """Take a request out of flight. Only who gets True may still speak about it."""
        return self.in_flight.get(request.id) is request and self.in_flight.pop(request.id, None) is request
    def cancel(self, request_id: Any) -> Request | None:
        """Take the peer's request out of flight because it was cancelled; None if it ended before. "MUST NOT
        send any further messages for it", so the winner stays silent."""
        request = self.in_flight.pop(request_id, None) if is_id(request_id) else None
        if request is not None: request.cancelled = True
        return request

###############################################################################
# 9. Connection ###############################################################
###############################################################################
# A Protocol with threads around it. Bytes come in through `feed`, on whichever thread reads; requests run on
# workers; bytes go out through `flush`, by one thread at a time for all that wait. No lock is held while
# writing.

class Workers:
    """Threads for jobs. The latest idle one is woken first, so a lone caller meets one warm thread; and no
    second one is woken while the first is on its way, so a burst is worked off by few threads instead of
    waking all.

    `between()` is called when a worker has woken and when it has nothing left to do; while another is on its
    way to call it, it is skipped: this is how the answers of a burst share one write."""
    def __init__(self, name: str, limit: int, between: Callable[[], None], log: _Log) -> None:
        self.name, self.limit, self.between, self.log = name, limit, between, log
        self._lock = threading.Lock()
        # All guarded by _lock. An idle worker is known by the lock that it waits for.
        self._backlog: deque[Callable[[], Any]] = deque()
        self._idle: list[Any] = []
        self._threads: dict[int, threading.Thread] = {}       # id(its lock) -> thread
        self._waking = self._closed = False                   # one is on its way; no more jobs
        self._names = itertools.count(1).__next__
    def __len__(self) -> int: return len(self._backlog)
    def submit(self, job: Callable[[], Any]) -> None:
        """Have a worker run the job. Never blocks. After close() it is dropped."""
        with self._lock:
            if self._closed: return
            self._backlog.append(job)
            thread = self._wake_locked()
        self._start(thread)

    def _wake_locked(self) -> threading.Thread | None:
        """Wake an idle worker for the backlog, if one is needed; or return a new one to start."""
        assert self._lock.locked()
        if self._waking or not self._backlog or not (self._idle or len(self._threads) < self.limit):
            return None
        self._waking = True
        if self._idle:
            self._idle.pop().release()
            return None
        wake = threading.Lock()
        wake.acquire()
        thread = threading.Thread(target=self._run, args=(wake,), daemon=True)
        thread.name = f"{self.name}-{self._names()}"
        self._threads[id(wake)] = thread
        return thread

    def _start(self, thread: threading.Thread | None) -> None:
        try:
            if thread is not None: thread.start()
        except RuntimeError as error:             # no thread to be had: those that live will come to it
            with self._lock:
                self._waking = False
                self._threads = {key: each for key, each in self._threads.items() if each is not thread}
            self.log.error(f"{self.name}: {error}")

    def _run(self, wake: Any) -> None:
        while True:
            with self._lock: self._waking = False
            self.between()
            for job in iter(lambda: self._next(wake), None):
                try: job()
                except BaseException as error:    # a job answers for itself; what escapes is ours
                    self.log.error(f"{self.name}: a job failed: {tell(error)}", error)
                del job                           # an idle worker keeps nothing alive
                if not self._waking: self.between()
            woken = wake.acquire(timeout=IDLE_SECONDS)
            with self._lock:
                if (self._closed and not self._backlog) or (not woken and wake in self._idle):
                    self._idle = [each for each in self._idle if each is not wake]
                    del self._threads[id(wake)]
                    return
            if not woken:
                wake.acquire()                    # chosen at the last moment: its release is there

    def _next(self, wake: Any) -> Callable[[], Any] | None:
        """The next job; or None, and the worker stands among the idle."""
        with self._lock:
            if not self._backlog:
                if self._closed: wake.release()
                self._idle.append(wake)
                return None
            job, thread = self._backlog.popleft(), self._wake_locked()
        self._start(thread)
        return job

    def close(self, seconds: float) -> None:
        """Take no more jobs, let the workers go when those that wait are done, and wait for them, but no
        longer than `seconds` in all."""
        with self._lock:
            if not self._closed:
                self._closed = True
                for wake in self._idle: wake.release()
            threads = list(self._threads.values())
        until = time.monotonic() + seconds
        for thread in threads:
            if thread is not threading.current_thread() and thread.ident is not None:
                thread.join(max(0.0, until - time.monotonic()))

class Waiter:
    """Who waits for the answer to a request of ours. `inbox` gets ("progress", params) any number of times,
    then one ("answer", Answer). `on_answer`, if given, sees the answer first, on the reading thread, and
    returns True when it took care of it; `on_event(method, params)` makes it a subscription, and hears its
    notifications there."""
    __slots__ = ("id", "method", "inbox", "wants_progress", "on_answer", "on_event", "sent")

    def __init__(self, method: str, wants_progress: bool = False,
                 on_answer: Callable[[Answer], bool] | None = None,
                 on_event: Callable[[str, Json], Any] | None = None) -> None:
        self.id: RequestId = 0
        self.method, self.wants_progress = method, wants_progress
        self.on_answer, self.on_event, self.sent = on_answer, on_event, False
        self.inbox: SimpleQueue[Any] = SimpleQueue()
    def answer(self, answer: Answer) -> None:
        """Hand over the answer. Called once, by whoever popped this waiter."""
        if self.on_answer is None or not self.on_answer(answer): self.inbox.put(("answer", answer))

def put_bounded(inbox: SimpleQueue[Any], item: Any) -> bool:
    """Put an item; when MAX_QUEUED wait, the oldest goes for it. Returns whether one went."""
    full = inbox.qsize() >= MAX_QUEUED
    if full:
        with suppress(Empty): inbox.get_nowait()
    inbox.put(item)
    return full

def take(inbox: SimpleQueue[Any], seconds: float | None) -> Any:
    """inbox.get() with a deadline, in slices that Ctrl-C can interrupt on Windows too. Raises Empty."""
    seconds = None if seconds is None else min(seconds, threading.TIMEOUT_MAX)
    until = None if seconds is None else time.monotonic() + seconds
    while os.name == "nt" and (until is None or time.monotonic() < until - 0.2):
        try: return inbox.get(timeout=0.2)
        except Empty: continue
    return inbox.get(timeout=None if until is None else max(0.0, until - time.monotonic()))

class Connection:
    """One conversation over a pair of byte streams.

    `endpoint`, a Server or a Client, has serve_request(connection, request), for a worker, or for the reading
    thread when the method is inline; take_notification(connection, notification), for the reading thread; and
    output_lost(connection). `write(bytes)` writes all of it; `may_write(size)`, if given, tells whether that
    is sure not to block, else a worker does it instead of the caller. `trace(direction, line)` sees every
    line."""
    def __init__(self, protocol: Protocol, endpoint: Any, write: Callable[[bytes], Any], *, name: str,
                 log: _Log, max_workers: int = MAX_WORKERS, max_message: int = MAX_MESSAGE,
                 trace: Callable[[str, bytes], Any] | None = None,
                 may_write: Callable[[int], bool] | None = None) -> None:
        self.protocol, self.endpoint, self.log = protocol, endpoint, log
        self._write, self._trace, self._may_write = write, trace, may_write
        self._framer = LineFramer(max_message)
        self.workers = Workers(name, max_workers, self.flush, log)     # for handlers, and callbacks of ours
        self.helpers = Workers(name + "-helper", MAX_WORKERS, self.flush, log)     # for what must not wait
        self._lock = threading.Lock()
        # Guarded by _lock:
        self._outbox: list[tuple[bytes, bool]] = []    # lines to write, and whether each may be dropped
        self._writing = False                          # a thread is writing
        self.closed: Exception | None = None        # why nothing can be sent any more
        self.answering: set[int] = set()               # the threads whose callbacks answer questions
        self._droppable = 0                            # how many in _outbox may be dropped
        self._nudged = False                           # a helper is on its way to flush
        # Of the reading thread:
        self._ready: list[Request] = []                # admitted, not yet handed out
        self._drained: threading.Event | None = None   # made by drain(), set when nothing is in flight
        self.before_block: Callable[[Request], Any] = nothing    # told when a handler is about to wait
        self._by_handler = {"_cancelled": self._cancelled, "_cancel_request": self._cancel_request,
                            "_progress": self._progress}

    # Reading

    def feed(self, data: bytes) -> list[Request]:
        """Take bytes that came in, on the reading thread; b"" at their end. Runs no user code: returns the
        requests that somebody must now serve, such as dispatch()."""
        for line in self._framer.feed(data): self._receive_line(line)
        ready, self._ready = self._ready, []
        return ready

    def dispatch(self, requests: list[Request]) -> None:
        """Have workers serve admitted requests."""
        if len(self._outbox) >= MAX_BACKLOG:
            self._lose_output(OSError(f"{MAX_BACKLOG} answers wait, and the peer does not read"))
        for request in requests:
            if len(self.workers) >= MAX_BACKLOG:
                full = InternalError("too many requests wait already")
                self.cut_short(request, error_message(request.id, full))
            else: self.workers.submit(self._job(request))
    def _job(self, request: Request) -> Callable[[], Any]:
        # Cancelled while it was queued: nobody runs it.
        return lambda: request.cancelled or self.endpoint.serve_request(self, request)

    def _receive_line(self, line: bytes | None) -> None:
        """Take one line, or None for one that was too long."""
        if self._trace and line is not None: self._trace("<--", line)
        try:
            if line is None: raise InvalidRequest(f"a message of more than {self._framer.limit} bytes")
            message = parse_message(line)
            if isinstance(message, list):
                self._receive_batch(message)
            else: self._act(self.protocol.receive(message))
        except McpError as error:
            if self.protocol.role == "client":
                self.log.warning(f"not a message, skipped: {error}: {(line or b'')[:200]!r}")
            else: self._refuse(Refusal(str(error), error_message(None, error)))

    def _receive_batch(self, messages: list[Any]) -> None:
        if self.protocol.version != BATCH_VERSION:
            raise InvalidRequest(f"a batch, which only {BATCH_VERSION} has; send each message on its own")
        if not 0 < len(messages) <= MAX_BATCH:
            raise InvalidRequest(f"a batch of {len(messages)} messages; expected 1 to {MAX_BATCH}")
        batch = Batch()
        for message in messages: self._act(self.protocol.receive(message), batch)
        self._close_in_batch(batch, None)
        self._nudge()

    def _act(self, event: Any, batch: Batch | None = None) -> None:
        if type(event) is Request:
            if batch is not None:
                with self._lock: batch.open += 1
                event.batch = batch
            assert event.row is not None
            if event.row.inline:
                # Answered here and now, so that what follows in the stream finds it done.
                self.endpoint.serve_request(self, event)
                self._nudge()
            else: self._ready.append(event)
        elif type(event) is Answer: event.pending.answer(event)
        elif type(event) is Notification:
            ours = self._by_handler.get(event.row.handler) if event.row else None
            if ours is None or not ours(event.params): self.endpoint.take_notification(self, event)
        else: self._refuse(event, batch)

    def _refuse(self, refusal: Refusal, batch: Batch | None = None) -> None:
        self.log.debug(f"refused: {refusal.why}")
        if refusal.reply is not None and batch is not None:
            batch.answers.append(self._encode(refusal.reply))
        elif refusal.reply is not None: self._send(self._encode(refusal.reply), block=False)
    def _nudge(self) -> None:
        """Have a helper flush: the reading thread must not block in a write."""
        if not self._nudged:
            self._nudged = True
            self.helpers.submit(self._flush_nudged)
    def _flush_nudged(self) -> None:
        self._nudged = False                     # first: what is queued from now on needs another
        self.flush()

    # The peer's notifications about requests. Each returns whether it was about one that is open here.

    def _cancelled(self, params: Json) -> bool:
        request = self.protocol.cancel(params.get("requestId"))
        if request is not None: self._stop(request)
        return request is not None
    def _cancel_request(self, params: Json) -> bool:
        """`$/cancelRequest`: who says it this way expects an error as the answer."""
        request = self.protocol.in_flight.get(params["id"]) if is_id(params.get("id")) else None
        if request is not None:
            self.cut_short(request, error_message(request.id, RequestCancelled("request cancelled")))
        return request is not None
    def _progress(self, params: Json) -> bool:
        token = params.get("progressToken")
        waiter = self.protocol.pending.get(token) if is_id(token) else None      # type: ignore[arg-type]
        if waiter is not None and waiter.wants_progress and is_type(params.get("progress"), "number"):
            put_bounded(waiter.inbox, ("progress", params))
        return True
    def cut_short(self, request: Request, message: Json) -> None:
        """Answer a request whose handler may still run, and stop the handler. Never blocks."""
        if self.respond(request, message):
            request.cancelled = True
            self._stop(request)
            self._nudge()

    def _stop(self, request: Request) -> None:
        """Tell the work on a cancelled request: waits end here, the handler's own functions run on a
        worker."""
        batch, request.batch = request.batch, None
        if batch is not None: self._close_in_batch(batch, None)
        for inbox in list(request.waiters): inbox.put(("cancelled", None))
        while request.callbacks:
            try: self.helpers.submit(request.callbacks.pop())
            except IndexError:                   # Context.on_cancel took it, and runs it itself
                break
        self._note_end()

    # Writing

    def _encode(self, message: Json) -> bytes:
        """A message as bytes; if JSON cannot say it, the error that says so in its place."""
        try: return encode_message(message)
        except (ValueError, TypeError) as error:
            self.log.error(f"an answer cannot be sent: {error}")
            failure = InternalError("the answer is not valid JSON")
        try: return encode_message(error_message(message.get("id"), failure))
        except ValueError:                       # the id is a lone surrogate
            return encode_message(error_message(None, failure))

    def respond(self, request: Request, message: Json) -> bool:
        """Queue the answer to a request of the peer's, unless it ended before; whether this was the answer.
        Does not flush: a worker does, when it has nothing else to do."""
        data = self._encode(message)
        with self._lock:
            if not self.protocol.end(request): return False
            batch, request.batch = request.batch, None
            if batch is None: self._outbox.append((data, False))
        if batch is not None: self._close_in_batch(batch, data)
        self._note_end()
        return True

    def _close_in_batch(self, batch: Batch, answer: bytes | None) -> None:
        with self._lock:
            batch.open -= 1
            batch.answers += [answer] if answer is not None else []
            if not batch.open and batch.answers:
                self._outbox.append((b"[" + b",".join(batch.answers) + b"]", False))
    def notify(self, method: str, params: Json | None, request: Request | None = None, *,
               block: bool = True) -> bool:
        """Send a notification; with `request`, only while that is in flight ("MUST stop after completion").
        Returns whether it was queued. With `block`, a slow reader slows the caller; without, a worker writes.
        Raises ValueError or TypeError for what JSON cannot say."""
        row = METHODS.get(method)
        return self._send(encode_message(call_message(method, params)), row is not None and row.droppable,
                          request, block)

    def _send(self, data: bytes, droppable: bool = False, request: Request | None = None,
              block: bool = True) -> bool:
        dropped = 0
        with self._lock:
            gone = request is not None and self.protocol.in_flight.get(request.id) is not request
            if gone or self.closed is not None: return False
            if len(self._outbox) >= MAX_QUEUED and self._droppable:
                dropped, self._droppable = self._droppable, 0
                self._outbox = [item for item in self._outbox if not item[1]]
            self._outbox.append((data, droppable))
            self._droppable += droppable
        if dropped: self.log.warning(f"{dropped} notifications dropped: the reader is slow")
        if block and (self._may_write is None or self._may_write(len(data) + 1)):
            self.flush()
        else: self._nudge()
        return True

    def flush(self) -> None:
        """Write what is queued, unless another thread is at it: that one then writes ours too."""
        while self._outbox:
            with self._lock:
                if self._writing or not self._outbox: return
                lines, self._outbox, self._writing, self._droppable = self._outbox, [], True, 0
            try:
                for line, _ in lines if self._trace else ():
                    self._trace("-->", line)     # type: ignore[misc]
                self._write(b"\n".join([line for line, _ in lines] + [b""]))
            except (OSError, ValueError) as error:       # ValueError: a file object that was closed
                self._lose_output(error)
            finally:
                with self._lock: self._writing = False

    def _lose_output(self, error: Exception) -> None:
        with self._lock:
            first, self.closed = self.closed is None, self.closed or error
            self._outbox, self._droppable = [], 0
        if first:
            self.log.debug(f"the output is closed: {error}")
            self.endpoint.output_lost(self)

    # Our own requests

    def request(self, waiter: Waiter, params: Json | None, about: Request | None = None) -> Waiter:
        """Send a request and register `waiter` for its answer; `about` is the peer's request that it serves.
        Raises ConnectionClosed, or ValueError or TypeError for parameters that JSON cannot say."""
        waiter.id = self.protocol.open(waiter)
        return self.send_request(waiter, params, about)

    def send_request(self, waiter: Waiter, params: Json | None, about: Request | None = None) -> Waiter:
        """Send a request whose waiter is registered already. Raises as request() does."""
        try:
            if waiter.wants_progress:
                params = dict(params or {})
                params["_meta"] = {**params.get("_meta", {}), "progressToken": waiter.id}
            data = encode_message(call_message(waiter.method, params, waiter.id))
            waiter.sent = True
            sent = self._send(data, request=about)
        except BaseException:
            self.protocol.pending.pop(waiter.id, None)
            raise
        if not sent and self.protocol.pending.pop(waiter.id, None) is not None:
            if about is not None and about.cancelled: raise Cancelled("the request was cancelled")
            closed = self.closed
            raise closed if isinstance(closed, ConnectionClosed) else ConnectionClosed("no connection")
        return waiter

    def wait(self, waiter: Waiter, seconds: float, on_progress: Callable[..., Any] | None = None) -> Json:
        """Block until the answer is there, running on_progress(progress, total, message) here meanwhile;
        while a callback of ours answers a question, the clock stands. Returns the result. Raises McpError as
        the peer sent it, Timeout, Cancelled, ConnectionClosed. A Timeout, and whatever interrupts the wait,
        cancels the request."""
        until = time.monotonic() + seconds
        try:
            while True:
                try: kind, item = take(waiter.inbox, max(0.0, until - time.monotonic()))
                except Empty:
                    if not self.answering or threading.get_ident() in self.answering:
                        raise Timeout(f"{waiter.method}: no answer within {seconds:g} seconds") from None
                    until = time.monotonic() + seconds
                    continue
                if kind == "answer": break
                if kind == "cancelled": raise Cancelled("the request was cancelled")
                if on_progress is not None:
                    on_progress(item.get("progress"), item.get("total"), item.get("message"))
        except BaseException as error:           # Ctrl-C too, and what a progress callback raised
            self.abandon(waiter, str(error) or type(error).__name__)
            raise
        if item.error is not None: raise item.error
        return item.result or {}

    def abandon(self, waiter: Waiter, reason: str | None) -> bool:
        """Stop waiting for an answer and tell the peer: basic/patterns/cancellation.md. False if it was
        answered."""
        if self.protocol.pending.pop(waiter.id, None) is None: return False
        row = METHODS.get(waiter.method)
        # "The `initialize` request MUST NOT be cancelled by clients".
        if waiter.sent and (row is None or row.handler != "_initialize"):
            told = (reason or "").encode("utf-8", "backslashreplace").decode("utf-8")
            params = {"requestId": waiter.id, "reason": told}
            self.notify("notifications/cancelled", params if told else {"requestId": waiter.id})
        return True

    # Ending

    def _note_end(self) -> None:
        drained = self._drained
        if drained is not None and not self.protocol.in_flight: drained.set()

    def drain(self, seconds: float) -> bool:
        """Wait until no request of the peer's is in flight and all is written, but no longer than `seconds`.
        Returns whether none is. The input must have ended."""
        until = time.monotonic() + seconds
        self._drained = drained = threading.Event()
        if self.protocol.in_flight: drained.wait(seconds)
        self._nudge()
        while (self._outbox or self._writing) and self.closed is None and time.monotonic() < until:
            time.sleep(0.002)
        return not self.protocol.in_flight

    def cancel_all(self) -> None:
        """Cancel every request of the peer's that is in flight."""
        for request_id in list(self.protocol.in_flight):
            request = self.protocol.cancel(request_id)
            if request is not None: self._stop(request)
    def fail_pending(self, error: Exception, *, tell: bool = False) -> None:
        """End every wait for an answer with `error`; with `tell`, the peer learns that nobody waits."""
        for waiter in list(self.protocol.pending.values()):
            mine = self.abandon(waiter, str(error)) if tell else self.protocol.pending.pop(waiter.id, None)
            if mine: waiter.answer(Answer(waiter, None, error))

    def close(self, error: Exception, seconds: float = 0.0) -> None:
        """End the conversation: who waits gets `error`, what runs is cancelled, workers go. Waits no longer
        than `seconds` for them. Idempotent, safe from any thread."""
        with self._lock:
            if not isinstance(self.closed, ConnectionClosed): self.closed = error
            self._outbox, self._droppable = [], 0
        self.cancel_all()
        self.fail_pending(error)
        self.helpers.close(seconds)
        self.workers.close(seconds)

def nothing(*ignored: Any) -> None:
    """What is done where nothing is to be done: a job that only has a worker come by and flush, say."""

###############################################################################
# 10. Context #################################################################
###############################################################################
# What a handler sees of its request. One blocking call asks the client in either era: a legacy session gets a
# request and the handler waits; a modern request ends with the question as its result, comes again with the
# answer, and the handler runs again from its top (basic/patterns/mrtr.md). What was answered travels in
# `requestState`, signed.

def _of_request(attribute: str, doc: str) -> Any:
    return property(lambda context: getattr(context._request, attribute), doc=doc)

def _at_level(level: str) -> Callable[[Context, Any], None]:
    def send(self: Context, data: Any) -> None: self.log(level, data)
    send.__doc__ = f'log("{level}", data)'
    return send

class Context:
    """What a tool, prompt or resource function may ask of its request: declare a parameter with this type.

    BEWARE, in the modern era a handler runs again from its top for every answer: what stands before a
    question happens again. Ask first, act afterwards, or wrap the act in `once`. Questions without `key` are
    told apart by their order, so it must be the same in each run. Methods may be called from any thread while
    the handler runs."""
    __slots__ = ("_connection", "_request", "_signer", "_recorded", "_once", "_asked")

    def __init__(self, connection: Connection, request: Request, signer: Signer) -> None:
        self._connection, self._request, self._signer = connection, request, signer
        self._recorded: dict[str, Any] = {}      # key -> [digest of the question, the answer]
        self._once: Json = {}                    # key -> value
        self._asked = 0                          # questions without a key, so far

    request_id = _of_request("id", "The request's id on the wire: a string or an integer.")
    meta = _of_request("meta", "The request's `_meta`, a dict: it may have a trace context, for example.")
    protocol_version = _of_request("version", "The revision that this request is served in.")
    client_info = _of_request("client_info", """What the client says it is, not verified: {"name", "version",
        ...}. May be empty in the modern era.""")
    client_capabilities = _of_request("capabilities", """What the client declared, a dict: "roots",
        "sampling", "elicitation".""")

    @property
    def session_id(self) -> str | None:
        """The id of a legacy HTTP session; None on other transports and in the modern era."""
        return None
    @property
    def auth(self) -> Json | None:
        """The claims that `verify` returned for the request's token; None without authorization."""
        return None

    # Telling

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Tell the client how far this is, if it asked to know: basic/patterns/progress.md. `done` must
        increase from call to call; a value that does not is left out."""
        request, token = self._request, self._request.progress_token
        if token is None or not done > request.progress: return
        request.progress = done
        said = message if request.version >= "2025-03-26" else None
        params = _with({"progressToken": token, "progress": done}, total=total, message=said)
        self._connection.notify("notifications/progress", params, request)

    def log(self, level: str, data: Any, logger: str | None = None) -> None:
        """Send a log message to the client, if it wants this level: server/utilities/logging.md. `data` is
        any value with a JSON form. Raises ValueError for a level that is none of debug, info, notice,
        warning, error, critical, alert, emergency."""
        if level not in LOG_LEVELS: raise ValueError(f"level: {LEVELS_TEXT}, got {show(level)}")
        request = self._request
        wanted = request.log_level if request.modern else self._connection.protocol.log_level
        # Modern: "MUST NOT emit `notifications/message` for a request that does not include this field".
        if wanted and LOG_LEVELS.index(level) >= LOG_LEVELS.index(wanted):
            params = {**_with({"level": level}, logger=logger), "data": to_plain(data)}
            self._connection.notify("notifications/message", params, request)

    debug, info = _at_level("debug"), _at_level("info")
    warning, error = _at_level("warning"), _at_level("error")

    # Cancellation

    @property
    def cancelled(self) -> bool:
        """Whether the client has cancelled this request, or is gone. The answer will be dropped."""
        return self._request.cancelled
    def check_cancelled(self) -> None:
        """Raise Cancelled if the request was cancelled."""
        if self._request.cancelled: raise Cancelled("the request was cancelled")

    def sleep(self, seconds: float) -> None:
        """Sleep, but raise Cancelled at once when the request is cancelled."""
        inbox: SimpleQueue[Any] = SimpleQueue()
        self._request.waiters.append(inbox)
        try:
            self.check_cancelled()
            self._connection.before_block(self._request)
            take(inbox, max(0.0, seconds))
        except Empty: return
        finally: self._request.waiters.remove(inbox)
        raise Cancelled("the request was cancelled")

    def on_cancel(self, fn: Callable[[], Any]) -> None:
        """Have fn() run, on another thread, when the request is cancelled: to kill a child process, say. At
        once if it is cancelled already."""
        callbacks = self._request.callbacks
        callbacks.append(fn)
        if self._request.cancelled:
            try: callbacks.remove(fn)
            except ValueError:
                return                           # whoever cancelled runs it
            self._connection.helpers.submit(fn)

    def close_stream(self, retry_ms: int | None = None) -> None:
        """Over legacy HTTP, end the response's stream now; the client comes back for the rest. Elsewhere,
        nothing."""

    # Asking

    def elicit(self, message: str, schema: Any, key: str | None = None) -> Json:
        """Ask the user to fill in a form: client/elicitation.md. Blocks until the answer.

        `schema` is a flat object's JSON Schema of strings, numbers, booleans and enums, or a dataclass or
        TypedDict of such. Returns {"action": "accept", "decline" or "cancel", "content": what was filled in,
        or None}; for a dataclass the content is an instance. Raises MissingCapability, Cancelled, Timeout."""
        requested, convert = elicitation_schema(schema)
        params = {"message": message, "requestedSchema": requested}
        answer = self._ask_one(key, "elicit", "elicitation/create", params)
        content = answer.get("content") if answer["action"] == "accept" else None
        return {**answer, "content": convert(content) if convert and content is not None else content}

    def elicit_url(self, message: str, url: str, key: str | None = None) -> Json:
        """Ask the user to visit a URL, for what must not pass through the client: keys, payments, foreign
        logins. Returns {"action", "content": None}: "accept" means that the user agreed to go, not that they
        are back."""
        params = {"mode": "url", "message": message, "url": url}
        if not self._request.modern: params["elicitationId"] = os.urandom(16).hex()
        answer = self._ask_one(key, "elicit_url", "elicitation/create", params)
        return {"action": answer["action"], "content": None}

    def sample(self, messages: Any, max_tokens: int = 1000, key: str | None = None, **params: Any) -> Json:
        """Have the client's model answer: client/sampling.md. `messages` is text, a Message, a wire message,
        or a list of those; `params` are the wire's others, in either spelling: system_prompt=, temperature=,
        tools=. Returns {"role", "content", "model", "stopReason"}."""
        wire = {re.sub(r"_(\w)", lambda match: match.group(1).upper(), name): value
                for name, value in params.items()}
        question = {"messages": prompt_messages(messages), "maxTokens": max_tokens, **wire}
        return self._ask_one(key, "sample", "sampling/createMessage", question)
    def roots(self, key: str | None = None) -> list[Json]:
        """The directories that the client works in: [{"uri", "name"}]: client/roots.md."""
        found: list[Json] = self._ask_one(key, "roots", "roots/list", {})["roots"]
        return found
    def ask(self, questions: dict[str, tuple[str, Json]]) -> dict[str, Json]:
        """Ask several questions at once: {key: (method, params)}. Returns {key: result}, each checked. The
        methods are elicitation/create, sampling/createMessage and roots/list."""
        for method, params in questions.values(): self._require(method, params)
        return self._ask_modern(questions) if self._request.modern else self._ask_legacy(questions)
    def once(self, key: str, fn: Callable[[], Any]) -> Any:
        """The value of fn(), computed once for this request, even when the handler runs again after a
        question. In the modern era the value travels through the client, signed but readable: a JSON value,
        and no secret."""
        if key not in self._once:
            value = to_plain(fn())
            encode_json(value)
            self._once[key] = value
        return self._once[key]
    def _ask_one(self, key: str | None, kind: str, method: str, params: Json) -> Json:
        if key is None:
            self._asked += 1
            key = f"{kind}-{self._asked}"
        return self.ask({key: (method, params)})[key]

    def _require(self, method: str, params: Json) -> None:
        """ "If processing a request requires a capability the client did not include [...] the server MUST
        return" -32021; in the legacy era too."""
        row, declared = METHODS.get(method), self._request.capabilities
        if row is None or row.sender != "server" or row.kind != "request":
            raise ValueError(f"{method} is no question to a client")
        needed, since = row.capability, row.since
        if params.get("mode") == "url":
            needed, since = "elicitation.url", LAST_LEGACY
        elif "tools" in params or "toolChoice" in params: needed, since = "sampling.tools", LAST_LEGACY
        elif needed == "elicitation" and list(declared.get(needed) or ()) == ["url"]:
            needed = "elicitation.form"          # an empty object means form; one with only url does not
        if self._request.version < since or not has_capability(declared, needed):
            required: Json = {}
            for name in reversed(needed.split(".")): required = {name: required}
            raise MissingCapability(f"{method} needs the client capability {needed}, which was not declared",
                                    {"requiredCapabilities": required})

    def _ask_legacy(self, questions: dict[str, tuple[str, Json]]) -> dict[str, Json]:
        connection, request = self._connection, self._request
        waiters = {key: Waiter(method) for key, (method, _) in questions.items()}
        answers: dict[str, Json] = {}
        try:
            for key, (_, params) in questions.items():
                request.waiters.append(waiters[key].inbox)
                connection.request(waiters[key], params, request)
            self.check_cancelled()
            connection.before_block(request)
            for key, question in questions.items():
                answers[key] = connection.wait(waiters[key], STATE_SECONDS)
                check_answer(key, *question, answers[key])
        finally:
            for waiter in waiters.values():
                connection.abandon(waiter, "no longer needed")
                if waiter.inbox in request.waiters: request.waiters.remove(waiter.inbox)
        return answers

    def _ask_modern(self, questions: dict[str, tuple[str, Json]]) -> dict[str, Json]:
        answers, missing = {}, {}
        for key, (method, params) in questions.items():
            question = {"method": method, "params": params}
            asked, answer = self._recorded.get(key, (None, None))
            if asked == digest(question):
                check_answer(key, method, params, answer)
                answers[key] = answer
            else: missing[key] = question
        if missing: raise _InputRequired(missing)
        return answers

    # What travels in requestState

    def load_answers(self) -> None:
        """Take the answers that came with a retry. Raises InvalidParams for a state that is not ours, not for
        this request, or too old."""
        params = self._request.params
        fresh, state = params.get("inputResponses", {}), params.get("requestState")
        if not isinstance(fresh, dict) or not all(isinstance(answer, dict) for answer in fresh.values()):
            raise InvalidParams(f"inputResponses: expected an object of objects, got {show(fresh)}")
        if state is None:
            return                               # answers to nothing we asked: we will ask
        known = self._signer.open(state, self._binding())
        self._once, self._recorded = known["once"], known["answers"]
        for key in known["asked"].keys() & fresh.keys():
            self._recorded[key] = [known["asked"][key], fresh[key]]

    def input_required(self, questions: dict[str, Json]) -> Json:
        """The result that puts these questions to the client."""
        state = {"answers": self._recorded, "once": self._once,
                 "asked": {key: digest(question) for key, question in questions.items()}}
        return {"resultType": "input_required", "inputRequests": questions,
                "requestState": self._signer.seal(state, self._binding())}
    def _binding(self) -> str:
        salient = [self._request.params.get(name) for name in ("name", "uri", "arguments")]
        return digest([self._request.method, salient, self.auth])

def digest(value: Any) -> str:
    """A short fingerprint of a JSON value."""
    import hashlib
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode("ascii")).hexdigest()[:32]

class Signer:
    """Seals what travels through the client: HMAC-SHA256 over JSON with an expiry. The first key signs, all
    verify; without keys a random one for the life of the process."""
    __slots__ = ("_keys",)

    def __init__(self, state_key: Any) -> None:
        keys = state_key if isinstance(state_key, (list, tuple)) else [] if state_key is None else [state_key]
        if not all(isinstance(key, (str, bytes)) for key in keys):
            raise TypeError("state_key: expected bytes or str, or a list of those")
        self._keys = [key.encode("utf-8") if isinstance(key, str) else key for key in keys]
        if any(len(key) < 16 for key in self._keys):
            raise ValueError("state_key: expected at least 16 bytes")
        self._keys = self._keys or [os.urandom(32)]
    @staticmethod
    def _sign(key: bytes, payload: str, binding: str) -> str:
        import hmac
        return hmac.new(key, f"{binding}.{payload}".encode("ascii"), "sha256").hexdigest()
    def seal(self, state: Json, binding: str) -> str:
        """The state as text that only `open` with the same binding takes. Raises ValueError when it is too
        large."""
        payload = _base64(encode_message({**state, "expires": int(time.time() + STATE_SECONDS)}))
        if len(payload) > MAX_STATE:
            raise ValueError(f"requestState: {len(payload)} bytes of answers and once() values; at most "
                             f"{MAX_STATE} may travel")
        return payload + "." + self._sign(self._keys[0], payload, binding)

    def open(self, sealed: Any, binding: str) -> Json:
        """The state again. Raises InvalidParams for anything that seal did not make for this binding, or long
        ago."""
        import binascii
        import hmac
        if not isinstance(sealed, str) or not sealed.isascii() or len(sealed) > MAX_STATE + 100:
            raise InvalidParams("requestState: expected what this server sent")
        payload, _, signature = sealed.rpartition(".")
        if not any(hmac.compare_digest(self._sign(key, payload, binding), signature) for key in self._keys):
            raise InvalidParams("requestState: not from this server, or not for this request")
        state: Json = json.loads(binascii.a2b_base64(payload))
        if state["expires"] < time.time():
            raise InvalidParams("requestState: expired; call again without it")
        return state

# Questions and answers, as both sides check them

def elicitation_schema(schema: Any) -> tuple[Json, Callable[[Any], Any] | None]:
    """The wire's requestedSchema for a JSON Schema, a dataclass or a TypedDict, and how its content becomes a
    Python value. Raises ValueError for what elicitation does not allow."""
    convert = None
    if not isinstance(schema, dict):
        scope = Scope({})
        hint = scope.document(scope.describe(schema))
        schema, convert = dict(hint), hint.make
        fields = schema.get("properties", {})
        schema["properties"] = {name: _without_null(sub) for name, sub in fields.items()}
    check_elicitation_schema(schema)
    return schema, convert

def _without_null(schema: Json) -> Json:
    """Optional[X] as a form has it: a field of X that may be left empty."""
    others = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    if len(others) != 1: return schema
    return _with(dict(others[0]), default=schema.get("default"))

def check_elicitation_schema(schema: Any) -> None:
    """Raise ValueError unless it is a form: "flat objects with primitive properties only"."""
    fields = schema.get("properties") if isinstance(schema, dict) and schema.get("type") == "object" else None
    if not isinstance(fields, dict):
        raise ValueError(f"requestedSchema: expected an object's schema with properties, got {show(schema)}")
    for name, sub in fields.items():
        kind = sub.get("type") if isinstance(sub, dict) else None
        items = sub.get("items") if kind == "array" else None
        if kind not in ("string", "number", "integer", "boolean") and not (
                isinstance(items, dict) and ("enum" in items or "anyOf" in items)):
            raise ValueError(f"requestedSchema: {name}: expected a string, number, integer, boolean, or an "
                             f"array of enum values, got {show(sub)}")
    unknown = [name for name in schema.get("required", ()) if name not in fields]
    if unknown: raise ValueError(f"requestedSchema: required: {show(unknown[0])} is no property")

def check_answer(key: str, method: str, params: Json, answer: Json) -> None:
    """Check a client's answer to a question. Raises InvalidParams naming the member."""
    errors = Schema(_ANSWERS[METHODS[method].handler]).errors(answer)
    if not errors and answer.get("action") == "accept" and "requestedSchema" in params:
        found = Schema(params["requestedSchema"]).errors(answer.get("content"))
        errors = ["content: " + text for text in found]
    if errors: raise InvalidParams(f"{method} ({key}): the client's answer: " + "; ".join(errors[:5]))

_ANSWERS: dict[str, Json] = {
    "_elicitation_create": {"required": ["action"], "properties": {
        "action": {"enum": ["accept", "decline", "cancel"]}}},
    "_sampling_create_message": {"required": ["role", "content"], "properties": {
        "role": {"enum": ["assistant", "user"]}, "content": {"type": ["object", "array"]}}},
    "_roots_list": {"required": ["roots"], "properties": {"roots": {"type": "array", "items": {
        "type": "object", "required": ["uri"], "properties": {"uri": {"type": "string"}}}}}},
}

###############################################################################
# 11. stdio ###################################################################
###############################################################################
# Byte streams with a message a line (basic/transports/stdio.md): this process's standard streams, any pair of
# streams, and a child process. Knows how to move bytes and how to end; what they mean is the Connection's
# business.

def stream_reader(stream: Any) -> Callable[[], bytes]:
    """A function that blocks for the next bytes of a binary stream, any number of them; b"" at its end."""
    # A buffered stream's read() would wait for the whole chunk, an unbuffered one's returns what there is.
    read = getattr(stream, "read1", stream.read)
    return lambda: read(CHUNK) or b""

def stream_writer(stream: Any) -> Callable[[bytes], None]:
    """A function that writes all the bytes to a binary stream and flushes it."""
    def write(data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[stream.write(view) or len(view):]      # None from some streams: all of it
        stream.flush()
    return write

class Pump:
    """Reads a server's input. A lone request is served on the reading thread itself: no hand-over, so one
    call at a time meets one thread. Should its handler take long, the caller of run()
    reads on in the meantime; that one never runs handlers, so a deaf one cannot keep run() from returning."""

    TICK = 0.005                   # how long a handler may keep the input waiting: as long as the GIL may
    IDLE_TICKS = 40                # before the caller stops looking, and must be woken

    def __init__(self, connection: Connection, read: Callable[[], bytes]) -> None:
        self._connection, self._read = connection, read
        self._away: list[Request] = []           # what the reader serves meanwhile; who removes it reads next
        self._signals: SimpleQueue[str] = SimpleQueue()      # to the caller: "away", "blocks", "ended"
        self._turn: SimpleQueue[bool] = SimpleQueue()        # to the reader: read again, or end
        self._waiting = False                    # the reader waits for its turn
        self._parked = True                      # the caller must be woken
        connection.before_block = self._before_block

    def run(self) -> None:
        """Feed the connection until its input ends, then see the work in flight to its end: wait for it,
        cancel it, leave it. Ctrl-C ends the input."""
        connection = self._connection
        reader = threading.Thread(target=self._read_and_serve, name="mcp-server-reader", daemon=True)
        closed = ConnectionClosed("the client closed the connection")
        try:
            try:
                reader.start()
                self._stand_by()
            except KeyboardInterrupt:            # the reader may stay in its read until the input ends
                connection.log.debug("interrupted")
            else: connection.dispatch(connection.feed(b""))
            connection.fail_pending(closed)
            connection.endpoint.input_ended(connection)
            if not connection.drain(DRAIN_SECONDS):
                connection.log.warning(f"still at work {DRAIN_SECONDS:g} s after the input's end: cancelled")
                connection.cancel_all()
                connection.drain(DRAIN_SECONDS)
        finally:
            self._turn.put(False)
            connection.close(closed)

    def _next(self) -> bytes:
        try: return self._read()
        except (OSError, ValueError) as error:   # ValueError: a file object that was closed
            self._connection.log.debug(f"the input ended: {tell(error)}")
            return b""

    # The reader

    def _read_and_serve(self) -> None:
        connection = self._connection
        try:
            for data in iter(self._next, b""):
                ready = connection.feed(data)
                if len(ready) != 1 or len(connection.protocol.in_flight) != 1:
                    connection.dispatch(ready)
                elif not self._serve_here(ready[0]) and not self._wait_for_turn(): break
        finally: self._signals.put("ended")

    def _serve_here(self, request: Request) -> bool:
        """Serve a request; False if the caller has taken over the reading."""
        self._away.append(request)
        if self._parked:
            self._parked = False
            self._signals.put("away")
        self._connection.endpoint.serve_request(self._connection, request)
        self._connection.flush()
        return self._take_over(request)

    def _wait_for_turn(self) -> bool:
        self._waiting = True
        return self._turn.get()
    def _before_block(self, request: Request) -> None:
        """A handler is about to wait. If it keeps the reader, the caller should not wait for the tick."""
        if request in self._away: self._signals.put("blocks")

    # The caller

    def _stand_by(self) -> None:
        """Look after the reader until the input ends."""
        signal, idle = take(self._signals, None), 0
        while signal != "ended":
            away = list(self._away)
            try: signal = take(self._signals, self.TICK)
            except Empty: signal = ""
            idle = 0 if away else idle + 1
            stuck = away and signal != "ended" and (signal == "blocks" or away == self._away)
            if stuck and self._take_over(away[0]):
                signal = self._read_meanwhile()
            elif idle > self.IDLE_TICKS and signal != "ended":
                self._parked = True
                if not self._away:               # else it went away just before it could see that we parked
                    signal, idle = take(self._signals, None), 0

    def _take_over(self, request: Request) -> bool:
        """Take the reading from whoever serves this request, or back; False if the other did first."""
        try: self._away.remove(request)
        except ValueError: return False
        return True
    def _read_meanwhile(self) -> str:
        """Read until the reader is back; "ended" if the input is."""
        for data in iter(self._next, b""):
            self._connection.dispatch(self._connection.feed(data))
            if self._waiting:
                self._waiting = False
                self._turn.put(True)
                return ""
        return "ended"

class PrivateWire:
    """Keeps the wire to the protocol: inside, file descriptors 0 and 1 are moved to private ones that
    children do not inherit; 0 reads the null device and 1 is stderr, for print(), C libraries and children
    alike. Restored after."""
    def __enter__(self) -> tuple[Callable[[], bytes], Callable[[bytes], None]]:
        self._in, self._out = os.dup(0), os.dup(1)           # not inheritable
        try:
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, 0)
            try: os.dup2(2, 1)
            except OSError:                                  # no stderr
                os.dup2(null, 1)
            os.close(null)
            self._flush_print()                              # what waits there must not reach the wire
            if hasattr(sys.stdout, "reconfigure"):
                sys.stdout.reconfigure(line_buffering=True)  # who prints to debug wants to see it now
        except BaseException:
            self._restore()
            raise
        return (lambda: os.read(self._in, CHUNK)), self._write

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view: view = view[os.write(self._out, view):]
    @staticmethod
    def _flush_print() -> None:
        with suppress(AttributeError, OSError, ValueError):      # None, closed, or nobody reads
            sys.stdout.flush()
    def _restore(self) -> None:
        wires = ((self._in, 0), (self._out, 1))
        self._in = self._out = -1                # a reader that is still there reads nobody else's descriptor
        for private, number in wires:
            os.dup2(private, number)
            os.close(private)
    def __exit__(self, *exc_info: Any) -> None:
        self._flush_print()
        self._restore()

class Child:
    """A server as a child process, in a process group of its own, so that its own children end with it."""
    def __init__(self, command: list[str], env: dict[str, str] | None, cwd: Any, log: _Log) -> None:
        import subprocess
        self.command, self.log = command, log
        options: Json = {"start_new_session": True} if os.name == "posix" else \
            {"creationflags": 0x00000200 | 0x08000000}       # CREATE_NEW_PROCESS_GROUP, CREATE_NO_WINDOW
        try:
            self._process = subprocess.Popen(
                command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                cwd=cwd, env=None if env is None else {**os.environ, **env}, **options)
        except OSError as error:
            raise ConnectionClosed(f"cannot start the server: {error}", None, command) from error
        assert self._process.stdin and self._process.stdout
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self.read = stream_reader(self._stdout)
        self.write = stream_writer(self._stdin)
        self._stderr_lines: deque[str] = deque(maxlen=STDERR_LINES)
        self._stderr_thread = threading.Thread(target=self._read_stderr, name="mcp-stderr", daemon=True)
        self._stderr_thread.start()

    def may_write(self, size: int) -> bool:
        """Whether a write of this size is sure not to block: small, and POSIX says that a pipe that is ready
        takes PIPE_BUF bytes at once."""
        if size > 4096 or os.name != "posix": return False
        import select
        poll = select.poll()
        try:
            poll.register(self._stdin, select.POLLOUT)
            return bool(poll.poll(0))
        except (ValueError, OSError):
            return True                          # closed: the write says so

    def _read_stderr(self) -> None:
        assert self._process.stderr
        framer, read = LineFramer(limit=1 << 20), stream_reader(self._process.stderr)
        try:
            for data in iter(read, b""): self._keep(framer.feed(data))
            self._keep(framer.feed(b""))
        except (OSError, ValueError): pass
    def _keep(self, lines: list[bytes | None]) -> None:
        for line in lines:
            text = (line or b"(a line of more than 1 MiB)")[:2000].decode("utf-8", "replace").rstrip()
            self._stderr_lines.append(text)
            self.log.debug(f"stderr of {self.command[0]}: {text}")
    def closed(self, why: str) -> ConnectionClosed:
        """The exception that tells how this child ended. Waits a moment for its exit code and last words."""
        import subprocess
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
            self._stderr_thread.join(0.5)
        return ConnectionClosed(why, self._process.poll(), self.command, "\n".join(self._stderr_lines))

    def stop(self) -> None:
        """End the child as basic/transports/stdio.md#shutdown says: close its stdin, wait, terminate, wait,
        kill; its own children too. Takes twice EXIT_SECONDS at most, and a moment."""
        import subprocess
        with suppress(OSError): self._stdin.close()
        for number in (0, 15, 9):
            if number: self._end(number)
            try:
                self._process.wait(EXIT_SECONDS)
                break
            except subprocess.TimeoutExpired: self.log.debug(f"{self.command[0]} is still running")
        self._end(9)                             # the children it may have left

    def finish(self) -> None:
        """Close the pipes. Call when no thread reads them any more."""
        self._stderr_thread.join(1.0)
        for stream in (self._stdout, self._process.stderr):
            if stream and not (stream is self._process.stderr and self._stderr_thread.is_alive()):
                stream.close()

    def _end(self, number: int) -> None:
        """Signal the whole group; on Windows, end the process, or with 9 the tree of its children."""
        if os.name == "posix":
            with suppress(ProcessLookupError, PermissionError): os.killpg(self._process.pid, number)
        elif number != 9: self._process.terminate()
        elif self._process.poll() is None:
            import subprocess
            subprocess.call(["taskkill", "/F", "/T", "/PID", str(self._process.pid)],
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

###############################################################################
# 12. Server ##################################################################
###############################################################################
# Registries of tools, resources and prompts; one handler for each method of the table; and who wants to hear
# of changes. A handler takes (ctx, params) and returns a result, or None when the request stays open.

class MainThread:
    """A host program's main thread, as `run_on=` wants it: `main = MainThread()`, `Server(run_on=main)`; the
    host calls `main.run_pending()` from its timer or loop, and handlers run there. `close()` fails those that
    still wait."""
    def __init__(self) -> None:
        self._jobs: SimpleQueue[Any] = SimpleQueue()
        self._lock = threading.Lock()
        self._running = self._closed = False     # guarded by _lock
    def __call__(self, job: Callable[..., Any]) -> None:
        """Queue a job for the main thread. Raises ConnectionClosed after close()."""
        with self._lock:
            if self._closed: raise ConnectionClosed("the host program's main loop is closed")
            self._jobs.put(job)

    def run_pending(self, max_seconds: float = 0.01, wait: float = 0.0) -> int:
        """Run what is queued, on this thread, until nothing is or `max_seconds` are over; the job that is
        running then is finished. With `wait`, block that long for the first job: for a loop without a timer.
        Returns how many ran. A job that calls this again gets 0."""
        with self._lock:
            if self._running or self._closed: return 0
            self._running = True
        ran, until = 0, time.monotonic() + wait + max_seconds
        try:
            while not ran or time.monotonic() < until:
                job = take(self._jobs, wait if not ran else 0.0)
                job()
                ran += 1
        except Empty: pass
        finally:
            with self._lock: self._running = False
        return ran

    def close(self) -> None:
        """Take no more jobs, and fail the waiting ones. Idempotent."""
        with self._lock: self._closed = True
        with suppress(Empty):
            while True: self._jobs.get_nowait()(ConnectionClosed("the host program's main loop is closed"))

class _Offer:
    """A registered function: what the lists say of it, and how it is called."""
    __slots__ = ("wire", "signature", "output", "timeout", "template")

    def __init__(self, wire: Json, signature: Signature, output: Output | None = None,
                 timeout: float | None = None, template: UriTemplate | None = None) -> None:
        encode_message(wire)                     # fails here, not at the first list
        self.wire, self.signature, self.output = wire, signature, output
        self.timeout, self.template = timeout, template

class _Listener:
    """An open subscriptions/listen, and what it was granted."""
    __slots__ = ("connection", "request", "granted")

    def __init__(self, connection: Connection, request: Request, granted: Json) -> None:
        self.connection, self.request, self.granted = connection, request, granted
    def tell(self, method: str, params: Json) -> None:
        """Send a notification on this subscription."""
        params = {**params, "_meta": {META_SUBSCRIPTION: self.request.id}}
        self.connection.notify(method, params, self.request, block=False)

class Server:
    """An MCP server: register functions, then run() it.

    `name`, `version`, `title`, `description`, `website_url` and `icons` introduce it; `instructions` tells a
    model how to use it. `page_size` bounds a page of a list. `state_key` (16 bytes or more, or a list: the
    first signs, all verify) lets several processes take each other's `requestState`. `max_workers` bounds the
    handlers that run at once on a connection. `run_on(job)` runs handlers where it must be, on a host's main
    thread say. `mask_errors` keeps the texts of unexpected exceptions from the client. `cache_ttl_ms` is how
    long clients may reuse lists and resources; `max_message` bounds a message's bytes.

    Functions run on worker threads, several at once. Safe to use from any thread."""
    def __init__(self, name: str, version: str = "0", *, title: str | None = None,
                 instructions: str | None = None, description: str | None = None,
                 website_url: str | None = None, icons: list[Json] | None = None, page_size: int = 100,
                 state_key: Any = None, max_workers: int = MAX_WORKERS,
                 run_on: Callable[[Callable[[], Any]], Any] | None = None, mask_errors: bool = False,
                 cache_ttl_ms: int = 0, max_message: int = MAX_MESSAGE) -> None:
        if not isinstance(name, str) or not name:
            raise TypeError(f"name: expected a non-empty string, got {show(name)}")
        for option, value, least in (("page_size", page_size, 1), ("max_workers", max_workers, 1),
                                     ("max_message", max_message, 1), ("cache_ttl_ms", cache_ttl_ms, 0)):
            if not isinstance(value, int) or value < least:
                raise ValueError(f"{option}: expected an integer of at least {least}, got {show(value)}")
        self.name, self.version, self.instructions = name, version, instructions
        self._info = _with({"name": name, "version": version}, title=title, description=description,
                           websiteUrl=website_url, icons=icons)
        self._page_size, self._max_workers, self._max_message = page_size, max_workers, max_message
        self._run_on, self._mask_errors, self._cache_ttl_ms = run_on, mask_errors, cache_ttl_ms
        self._signer, self._log = Signer(state_key), _Log()
        self._lock = threading.Lock()
        # Registries are replaced, never changed, so that readers need no lock; writers hold _lock.
        self._offers: dict[str, dict[str, _Offer]] = {
            "tools": {}, "resources": {}, "resourceTemplates": {}, "prompts": {}}
        self._capabilities = _declare(self._offers)
        self._completers: dict[tuple[str, str], Callable[..., Any]] = {}
        self._connections: list[Connection] = []       # guarded by _lock
        self._listeners: list[_Listener] = []          # guarded by _lock
        self._current = threading.local()              # .context: what the handler on this thread runs for
        self._handlers: dict[str, Callable[[Context, Json], Json | None]] = {
            row.name: getattr(self, row.handler) for row in METHODS.values()
            if row.kind == "request" and row.sender != "server"}

    # Registering

    def tool(self, fn: Callable[..., Any] | None = None, *, name: str | None = None, title: str | None = None,
             description: str | None = None, annotations: Json | None = None, icons: list[Json] | None = None,
             meta: Json | None = None, input_schema: Json | None = None, output_schema: Json | None = None,
             structured: bool | None = None, timeout: float | None = None) -> Any:
        """Offer a function as a tool (server/tools.md): a decorator, with or without options, and a plain
        call, which `add_tool` is another name for. Clients are told; a tool of the same name is replaced.

        Parameters become the input schema by their hints, the docstring the description. The return hint
        becomes the output schema, unless it is text or content; `structured` forces or forbids that.
        `timeout` in seconds counts from when the function starts. `annotations` are the wire's, such as
        {"readOnlyHint": True}.

        The function returns text, Image, Audio, EmbeddedResource, ResourceLink, a list of those, or any value
        with a JSON form. It raises ToolError for what the caller can act on; any other exception is told as
        its type and text. Raises TypeError for parameters that the wire cannot say."""
        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            signature = Signature(function, Context, input_schema)
            key = name or signature.name
            if not re.fullmatch(r"[A-Za-z0-9_.\-]{1,128}", key):
                raise ValueError(f"tool name {show(key)}: expected 1 to 128 of A-Z a-z 0-9 _ - .")
            output = Output(function, output_schema, structured, key)
            wire = _with({"name": key}, title=title, description=_or(description, signature.description),
                         inputSchema=signature.schema, outputSchema=output.schema, annotations=annotations,
                         icons=icons, _meta=meta)
            self._change("tools", key, _Offer(wire, signature, output, timeout))
            return function
        return register if fn is None else register(fn)

    add_tool = tool
    def remove_tool(self, name: str) -> None:
        """Stop offering a tool; clients are told. Raises KeyError for an unknown name."""
        self._change("tools", name, None)

    def resource(self, uri: Any, fn: Any = None, *, name: str | None = None, title: str | None = None,
                 description: str | None = None, mime_type: str | None = None, size: int | None = None,
                 annotations: Json | None = None, icons: list[Json] | None = None,
                 meta: Json | None = None) -> Any:
        """Offer what a function returns as the resource `uri` (server/resources.md): a decorator, and with
        the function, in either order, a plain call, which `add_resource` names too. Clients are told.

        A URI with {expressions} is a template; its names are the function's parameters: {x} is one step of a
        path or less, {+x} anything, {/x*} a list of steps, {?a,b} optional query values. The function returns
        text, bytes, an EmbeddedResource, a list of those, or any value with a JSON form."""
        uri, fn = (fn, uri) if callable(uri) else (uri, fn)
        if uri is None: raise TypeError('resource needs its URI: @server.resource("config://app")')

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            signature = Signature(function, Context)
            template = UriTemplate(uri) if "{" in uri or "}" in uri else None
            _check_uri(uri, template, signature)
            fixed = template is None
            wire = _with({"uri" if fixed else "uriTemplate": uri, "name": name or signature.name},
                         title=title, description=_or(description, signature.description), mimeType=mime_type,
                         size=size if fixed else None, annotations=annotations, icons=icons, _meta=meta)
            offer = _Offer(wire, signature, template=template)
            self._change("resources" if fixed else "resourceTemplates", uri, offer)
            return function
        return register if fn is None else register(fn)

    add_resource = resource
    def remove_resource(self, uri: str) -> None:
        """Stop offering a resource or template; clients are told. Raises KeyError for an unknown URI."""
        self._change("resources" if uri in self._offers["resources"] else "resourceTemplates", uri, None)

    def prompt(self, fn: Callable[..., Any] | None = None, *, name: str | None = None,
               title: str | None = None, description: str | None = None, icons: list[Json] | None = None,
               meta: Json | None = None) -> Any:
        """Offer a function as a prompt (server/prompts.md): a decorator, with or without options, and a plain
        call, which `add_prompt` is another name for. Its arguments come as text and are converted by their
        hints. It returns text, a Message, a content object, or a list of those."""
        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            signature = Signature(function, Context)
            required = signature.schema.get("required", ())
            arguments = [_with({"name": argument}, description=schema.get("description"),
                               required=True if argument in required else None)
                         for argument, schema in signature.schema["properties"].items()]
            wire = _with({"name": name or signature.name}, title=title, arguments=arguments or None,
                         description=_or(description, signature.description), icons=icons, _meta=meta)
            self._change("prompts", wire["name"], _Offer(wire, signature))
            return function
        return register if fn is None else register(fn)

    add_prompt = prompt
    def remove_prompt(self, name: str) -> None:
        """Stop offering a prompt; clients are told. Raises KeyError for an unknown name."""
        self._change("prompts", name, None)
    def completion(self, ref: str, argument: str) -> Any:
        """Decorator: complete an argument of a prompt (by name) or of a template (by URI), as of
        server/utilities/completion.md. The function gets the text so far, and the other arguments if it takes
        a second parameter; it returns the values. Arguments of Literal, Enum and bool complete by
        themselves."""
        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            with self._lock: self._completers = {**self._completers, (ref, argument): function}
            return function
        return register
    def resource_updated(self, uri: str) -> None:
        """Tell the clients that subscribed to this URI that the resource has changed."""
        self._tell("notifications/resources/updated", {"uri": uri},
                   lambda protocol: uri in protocol.subscribed,
                   lambda granted: uri in granted.get("resourceSubscriptions", ()))

    def _change(self, registry: str, key: str, offer: _Offer | None) -> None:
        """Register, or with None unregister, and tell whoever wants to know."""
        with self._lock:
            offers = dict(self._offers[registry])
            if offer is None:
                del offers[key]
            else: offers[key] = offer
            self._offers = {**self._offers, registry: offers}
            self._capabilities = _declare(self._offers)
        member, method, _ = LIST_CHANGES.get(registry, LIST_CHANGES["resources"])
        self._tell(method, {}, lambda protocol: protocol.initialized, lambda granted: granted.get(member))

    def _tell(self, method: str, params: Json, wants: Callable[[Protocol], Any],
              granted: Callable[[Json], Any]) -> None:
        """Notify the legacy sessions that want it, and the listeners that were granted it."""
        for connection in list(self._connections):
            if wants(connection.protocol): connection.notify(method, params or None, block=False)
        for listener in list(self._listeners):
            if granted(listener.granted): listener.tell(method, params)

    def logging_handler(self, level: int = 0) -> Any:
        """A handler for Python's `logging`: what is logged while a request is handled, on the thread that
        handles it, goes to that request's client:
        `logging.getLogger().addHandler(server.logging_handler())`."""
        import logging
        current = self._current

        class ContextHandler(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                context = getattr(current, "context", None)
                if context is None or record.name == "mcp_lite": return
                names = ("debug", "debug", "info", "warning", "error", "critical")
                try: context.log(names[min(record.levelno // 10, 5)], self.format(record), record.name)
                except Exception: self.handleError(record)
        return ContextHandler(level)

    # Running

    def run(self, transport: str = "stdio") -> None:
        """Serve this process's stdin and stdout until the input ends: basic/transports/stdio.md. Blocks.
        Meanwhile print() and child processes write to stderr, and input() finds nothing: the wire stays
        clean."""
        if transport != "stdio": raise ValueError(f'transport: expected "stdio", got {show(transport)}')
        with PrivateWire() as (read, write):
            self._serve(read, write)
            self._log.flush(1.0)
    def serve(self, reader: Any, writer: Any) -> None:
        """Serve one client over a pair of binary streams, a message a line, until the input ends: a TCP or
        Unix socket's makefile("rb") and makefile("wb"), say. Blocks; for several clients, call it on a thread
        for each."""
        self._serve(stream_reader(reader), stream_writer(writer))
    def _serve(self, read: Callable[[], bytes], write: Callable[[bytes], Any]) -> None:
        connection = self.connect(write)
        try: Pump(connection, read).run()
        finally: self.disconnect(connection)
    def connect(self, write: Callable[[bytes], Any]) -> Connection:
        """A new conversation that answers through write(bytes). For transports: feed it, then disconnect
        it."""
        connection = Connection(Protocol("server", self.capabilities), self, write, name="mcp-worker",
                                log=self._log, max_workers=self._max_workers, max_message=self._max_message)
        with self._lock: self._connections = [*self._connections, connection]
        return connection
    def disconnect(self, connection: Connection) -> None:
        """Forget a conversation that has ended."""
        with self._lock:
            self._connections = [each for each in self._connections if each is not connection]
            self._listeners = [each for each in self._listeners if each.connection is not connection]

    def handle(self, message: Json) -> Json | None:
        """Answer one decoded modern message (2026-07-28), on this thread: for lambdas and custom transports.
        Returns the decoded answer, or None for a notification. Progress and logs have no way out and are
        dropped; listening is refused."""
        connection = Connection(Protocol("server", self.capabilities), self, nothing, name="mcp-handle",
                                log=self._log)
        connection.closed = ConnectionClosed("this message has no connection")
        request = connection.protocol.receive(message)
        if not isinstance(request, Request): return request.reply if isinstance(request, Refusal) else None
        try:
            answer = self._answer(connection, request)
            if connection._outbox: answer = json.loads(connection._outbox[0][0])      # its timeout's
        finally:
            self.disconnect(connection)
            connection.close(connection.closed)
        refused = MethodNotFound(f"{request.method} needs a connection that stays open")
        return answer or error_message(request.id, refused)

    # The Connection's endpoint

    def capabilities(self) -> Json:
        """What this server declares."""
        return self._capabilities
    def serve_request(self, connection: Connection, request: Request) -> None:
        """Run the handler of an admitted request and answer. Runs on a worker, or on the reading thread.
        Whatever the handler raises becomes an answer."""
        message = self._answer(connection, request)
        if message is not None: connection.respond(request, message)
    def take_notification(self, connection: Connection, notification: Notification) -> None:
        """Nothing that a client tells needs more than the Protocol noted."""
    def output_lost(self, connection: Connection) -> None:
        """The client reads no more: it has left."""
        connection.cancel_all()
    def input_ended(self, connection: Connection) -> None:
        """The client says no more: end its subscriptions gracefully (basic/patterns/subscriptions.md)."""
        for listener in [each for each in self._listeners if each.connection is connection]:
            result = self._finish(listener.request, {"_meta": {META_SUBSCRIPTION: listener.request.id}})
            connection.respond(listener.request, result_message(listener.request.id, result))

    def _answer(self, connection: Connection, request: Request) -> Json | None:
        """The message that answers a request, or None if it stays open."""
        context = Context(connection, request, self._signer)
        assert request.row is not None
        try:
            try:
                if request.row.asks and not {"requestState", "inputResponses"}.isdisjoint(request.params):
                    context.load_answers()
                result = self._handlers[request.method](context, request.params)
            except _InputRequired as pause: result = context.input_required(pause.questions)
            return None if result is None else result_message(request.id, self._finish(request, result))
        except McpError as error: return error_message(request.id, error)
        except Cancelled: return error_message(request.id, RequestCancelled("request cancelled"))
        except BaseException as error:           # SystemExit too: a handler does not end the server
            self._log.error(f"{request.method} failed: {tell(error)}", error)
            return error_message(request.id, InternalError(f"{request.method}: internal error"))

    def _finish(self, request: Request, result: Json) -> Json:
        """What every modern result carries: its type, who answers, and how long it may be reused."""
        if request.modern:
            kind = result.setdefault("resultType", "complete")
            result["_meta"] = {**result.get("_meta", {}), META_SERVER_INFO: self._info}
            if request.row is not None and request.row.cacheable and kind == "complete":
                result["ttlMs"] = self._cache_ttl_ms
                result["cacheScope"] = "private" if request.row.asks else "public"
        return result

    # Handlers

    def _initialize(self, ctx: Context, params: Json) -> Json:
        version = ctx.protocol_version
        return _with({"protocolVersion": version, "capabilities": self.capabilities(),
                      "serverInfo": fit_members(self._info, version)}, instructions=self.instructions)
    def _ping(self, ctx: Context, params: Json) -> Json: return {}
    def _discover(self, ctx: Context, params: Json) -> Json:
        return _with({"supportedVersions": list(MODERN_VERSIONS), "capabilities": self.capabilities()},
                     instructions=self.instructions)
    def _logging_set_level(self, ctx: Context, params: Json) -> Json:
        if params["level"] not in LOG_LEVELS:
            raise InvalidParams(f"level: {LEVELS_TEXT}, got {show(params['level'])}")
        ctx._connection.protocol.log_level = params["level"]
        return {}

    def _list(self, ctx: Context, params: Json) -> Json:
        """One page of a list: server/utilities/pagination.md. A cursor says list and place, and needs no
        memory."""
        import binascii
        row = ctx._request.row
        assert row is not None
        start, cursor = 0, params.get("cursor")
        if cursor is not None:
            with suppress(ValueError):
                name, _, place = binascii.a2b_base64(cursor.encode("ascii")).decode("utf-8").rpartition(":")
                start = int(place) if name == row.name else 0
            if start < 1: raise InvalidParams(f"cursor: not from this list: {show(cursor)}")
        found, end = list(self._offers[row.paged].values()), start + self._page_size
        page = [fit_members(each.wire, ctx.protocol_version) for each in found[start:end]]
        result: Json = {row.paged: page}
        if end < len(found): result["nextCursor"] = _base64(f"{row.name}:{end}".encode("utf-8"))
        return result

    def _call(self, ctx: Context, offer: _Offer, arguments: Json) -> Any:
        """Run a registered function, where run_on says, within its time."""
        if offer.signature.context is not None: arguments[offer.signature.context] = ctx

        def job() -> Any:
            timer = None if offer.timeout is None else self._start_timer(ctx, offer.timeout)
            self._current.context = ctx
            try: return offer.signature.fn(**arguments)
            finally:
                self._current.context = None
                if timer is not None: timer.cancel()
        return job() if self._run_on is None else self._call_elsewhere(ctx, self._run_on, job)

    def _start_timer(self, ctx: Context, seconds: float) -> threading.Timer:
        def expire() -> None:
            result = self._finish(ctx._request, _failed(f"timed out after {seconds:g} seconds"))
            ctx._connection.cut_short(ctx._request, result_message(ctx.request_id, result))
        timer = threading.Timer(seconds, expire)
        timer.name, timer.daemon = "mcp-timer", True
        timer.start()
        return timer

    @staticmethod
    def _call_elsewhere(ctx: Context, run_on: Callable[[Callable[[], Any]], Any],
                        job: Callable[[], Any]) -> Any:
        """Have run_on run the job, and wait for it here. The result travels in a slot of our own, so a host
        that swallows exceptions or return values loses nothing."""
        slot: SimpleQueue[Any] = SimpleQueue()
        request = ctx._request

        def task(refused: Exception | None = None) -> None:
            try:
                if refused is not None: raise refused
                ctx.check_cancelled()            # cancelled while it was queued
                slot.put(("done", job()))
            except BaseException as error: slot.put(("raised", error))
        request.waiters.append(slot)
        try:
            ctx.check_cancelled()
            run_on(task)
            ctx._connection.before_block(request)
            kind, value = slot.get()             # ends with the job, or when the request is cancelled
        finally: request.waiters.remove(slot)
        if kind == "done": return value
        raise value if kind == "raised" else Cancelled("the request was cancelled")

    def _tools_call(self, ctx: Context, params: Json) -> Json:
        name, version = params["name"], ctx.protocol_version
        tool = self._offers["tools"].get(name)
        if tool is None: raise NotFound(f"Unknown tool: {name}" + suggest(name, self._offers["tools"]))
        try: arguments = tool.signature.bind(params.get("arguments") or {})
        except InvalidParams as error:
            # Since 2025-11-25 "input validation errors should be returned as Tool Execution Errors", for the
            # model.
            if version < LAST_LEGACY: raise
            return _failed(str(error))
        try: value = self._call(ctx, tool, arguments)
        except (McpError, _InputRequired, Cancelled): raise
        except ToolError as error: return fit_result(_failed(str(error), error.content), version)
        except BaseException as error:
            self._log.warning(f"tool {name} raised {tell(error)}", error)
            return _failed("the tool failed" if self._mask_errors else tell(error))
        assert tool.output is not None
        return fit_result(tool.output.result(value), version)

    def _resources_read(self, ctx: Context, params: Json) -> Json:
        uri: str = params["uri"]
        resource, found = self._find_resource(uri)
        if resource is None: raise _no_resource(ctx, uri)
        try: arguments = resource.signature.bind_text(found)
        except InvalidParams as error: raise _no_resource(ctx, uri, f": {error}") from None
        try: value = self._call(ctx, resource, arguments)
        except ToolError as error: raise InternalError(str(error)) from None
        several = isinstance(value, (list, tuple)) and value and \
            all(isinstance(each, EmbeddedResource) for each in value)
        mime_type = resource.wire.get("mimeType")
        return {"contents": [read_contents(uri, each, mime_type) for each in (value if several else [value])]}

    def _find_resource(self, uri: str) -> tuple[_Offer | None, dict[str, Any]]:
        fixed = self._offers["resources"].get(uri)
        if fixed is not None: return fixed, {}
        for resource in self._offers["resourceTemplates"].values():
            found = resource.template.match(uri) if resource.template else None
            if found is not None: return resource, found
        return None, {}
    def _resources_subscribe(self, ctx: Context, params: Json) -> Json:
        subscribed = ctx._connection.protocol.subscribed
        if self._find_resource(params["uri"])[0] is None: raise _no_resource(ctx, params["uri"])
        if len(subscribed) >= MAX_QUEUED: raise InvalidRequest(f"more than {MAX_QUEUED} subscriptions")
        subscribed[params["uri"]] = True
        return {}
    def _resources_unsubscribe(self, ctx: Context, params: Json) -> Json:
        ctx._connection.protocol.subscribed.pop(params["uri"], None)
        return {}

    def _prompts_get(self, ctx: Context, params: Json) -> Json:
        name, prompts = params["name"], self._offers["prompts"]
        prompt = prompts.get(name)
        if prompt is None: raise NotFound(f"Unknown prompt: {name}" + suggest(name, prompts))
        try: value = self._call(ctx, prompt, prompt.signature.bind_text(params.get("arguments") or {}))
        except ToolError as error: raise InternalError(str(error)) from None
        messages = prompt_messages(value)
        for message in messages:
            if isinstance(message["content"], dict):
                message["content"] = fit_block(message["content"], ctx.protocol_version)
        return _with({"messages": messages}, description=prompt.wire.get("description"))

    def _completion_complete(self, ctx: Context, params: Json) -> Json:
        ref, argument = params["ref"], params["argument"]
        name, text = argument.get("name"), argument.get("value")
        if not isinstance(name, str) or not isinstance(text, str):
            raise InvalidParams(f"argument: expected {{name, value}}, both strings, got {show(argument)}")
        kinds = {"ref/prompt": ("prompts", "name"), "ref/resource": ("resourceTemplates", "uri")}
        registry, member = kinds.get(ref.get("type"), ("prompts", ""))
        key = ref.get(member)
        if not isinstance(key, str) or key not in self._offers[registry]:
            raise InvalidParams(f"ref: expected a known ref/prompt or ref/resource, got {show(ref)}")
        signature, completer = self._offers[registry][key].signature, self._completers.get((key, name))
        known = signature.schema["properties"]
        if name not in known:
            raise InvalidParams(f"argument: {key} has no {show(name)}" + suggest(name, known))
        if completer is None:
            start = text.lower()
            values = [value for value in signature.completions(name) if value.lower().startswith(start)]
        else:
            others = (params.get("context") or {}).get("arguments") or {}
            values = [str(value) for value in completer(*(text, others)[:len(read_parameters(completer)[0])])]
        return {"completion": {"values": values[:MAX_COMPLETIONS], "total": len(values),
                               "hasMore": len(values) > MAX_COMPLETIONS}}

    def _subscriptions_listen(self, ctx: Context, params: Json) -> None:
        wanted, declared = params["notifications"], self.capabilities()
        granted: Json = {member: True for member, _, capability in LIST_CHANGES.values()
                         if wanted.get(member) is True and has_capability(declared, capability)}
        uris = wanted.get("resourceSubscriptions", [])
        if not isinstance(uris, list) or not all(isinstance(uri, str) for uri in uris):
            raise InvalidParams(f"notifications.resourceSubscriptions: expected strings, got {show(uris)}")
        if uris and has_capability(declared, "resources.subscribe"): granted["resourceSubscriptions"] = uris
        if len(self._listeners) >= MAX_LISTENERS: raise InvalidRequest(f"{MAX_LISTENERS} streams are open")
        listener = _Listener(ctx._connection, ctx._request, granted)
        # "MUST NOT send any notification on the subscription before" the acknowledgement.
        listener.tell("notifications/subscriptions/acknowledged", {"notifications": granted})
        with self._lock:
            self._listeners = [*(each for each in self._listeners if not each.request.cancelled), listener]

def _declare(offers: dict[str, dict[str, _Offer]]) -> Json:
    """The capabilities that these registries amount to: only what there is."""
    changes, resources = {"listChanged": True}, offers["resources"] or offers["resourceTemplates"]
    return _with({"logging": {}}, tools=changes if offers["tools"] else None,
                 resources={"subscribe": True, **changes} if resources else None,
                 prompts=changes if offers["prompts"] else None,
                 completions={} if offers["prompts"] or offers["resourceTemplates"] else None)

def _or(given: str | None, found: str | None) -> str | None: return found if given is None else given

def _check_uri(uri: str, template: UriTemplate | None, signature: Signature) -> None:
    """Raise ValueError or TypeError unless the URI is one and its names are the function's parameters."""
    if not re.match(r"[A-Za-z][A-Za-z0-9+.\-]*:", uri):
        raise ValueError(f"resource {show(uri)}: expected a URI with a scheme, such as config://app")
    names, required = template.names if template else [], signature.schema.get("required", ())
    for name in [*signature.schema["properties"], *names]:
        if name in required and name not in names:
            raise TypeError(f"{signature.name}: the parameter {name} is not in the URI {show(uri)}")
        if name not in signature.schema["properties"]:
            raise TypeError(f"{signature.name}: {{{name}}} of the URI {show(uri)} is no parameter")
        if template and name in template.query and name in required:
            raise TypeError(f"{signature.name}: {name} is in the query, so give it a default")

def _no_resource(ctx: Context, uri: str, why: str = "") -> NotFound:
    error = NotFound(f"Resource not found: {uri}{why}", {"uri": uri})
    error.code = -32002 if ctx.protocol_version < MODERN else error.code
    return error

def _failed(text: str, content: list[Any] | None = None) -> Json:
    """The result of a tool that failed. A lone surrogate in an exception's text must not cost the model the
    text."""
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return {"content": [_block(item) for item in content or [text]], "isError": True}

###############################################################################
# 13. Client ##################################################################
###############################################################################
# Connects to a server wherever it is, finds out which era and revision it speaks, and turns each method into
# a blocking call. Answers the server's questions through the callbacks, in either era.

class Call:
    """A call in flight, as `Client.start_call` returns it. Several may be open at once. Safe from any
    thread."""
    def __init__(self, client: Client, method: str, params: Json,
                 on_progress: Callable[..., Any] | None) -> None:
        self._client, self._connection, self._params = client, client._open_connection(), params
        self._on_progress = on_progress
        self._rounds = 0                         # of questions
        self._outcome: Any = None                # the result or the exception, once result() has it
        self._waiter = Waiter(method, on_progress is not None, self._on_answer)
        self._connection.request(self._waiter, params)

    def result(self, timeout: float | None = None) -> Json:
        """Block until the answer, running the progress callback here; `timeout` in seconds, else the
        client's. Raises McpError, Timeout (and the call is cancelled), Cancelled, ConnectionClosed."""
        if self._outcome is None:
            seconds = self._client.timeout if timeout is None else timeout
            try: self._outcome = self._connection.wait(self._waiter, seconds, self._on_progress)
            except BaseException as error: self._outcome = error
        if isinstance(self._outcome, BaseException): raise self._outcome
        found: Json = self._outcome
        return found

    def cancel(self, reason: str | None = None) -> None:
        """Tell the server to stop; result() raises Cancelled. Nothing happens if the answer is already
        here."""
        if self._connection.abandon(self._waiter, reason): self._waiter.inbox.put(("cancelled", None))

    def done(self) -> bool:
        """Whether result() would return, or raise, at once."""
        return self._outcome is not None or (self._waiter.id not in self._connection.protocol.pending
                                             and not self._waiter.inbox.empty())

    # Multi round-trip requests: basic/patterns/mrtr.md. Between the rounds the waiter stays registered, under
    # the id that the next request will have, so that cancel() and close() find it.

    def _on_answer(self, answer: Answer) -> bool:
        protocol, row = self._connection.protocol, METHODS.get(self._waiter.method)
        kind = "complete" if answer.result is None else answer.result.get("resultType", "complete")
        if protocol.version < MODERN or kind == "complete": return False
        if kind == "input_required" and row is not None and row.asks:
            self._waiter.id, self._waiter.sent = protocol.open(self._waiter), False
            self._connection.workers.submit(lambda: self._answer_questions(answer.result or {}))
            return True
        # "A resultType of any value unrecognized by the client MUST be considered invalid."
        answer.error = InternalError(f"the server's result has an unknown resultType {show(kind)}")
        return False

    def _answer_questions(self, asked: Json) -> None:
        connection, waiter = self._connection, self._waiter
        if waiter.id not in connection.protocol.pending: return      # cancelled, or closed, in the queue
        try:
            params = self._next_params(asked)
            if waiter.id in connection.protocol.pending: connection.send_request(waiter, params)
        except Exception as error:
            connection.protocol.pending.pop(waiter.id, None)
            if isinstance(error, (ValueError, TypeError)): error = InternalError(f"cannot retry: {error}")
            waiter.inbox.put(("answer", Answer(waiter, None, error)))      # unread, if it was cancelled

    def _next_params(self, asked: Json) -> Json:
        """The parameters of the next request, with the answers to what was asked."""
        params, questions = dict(self._params), asked.get("inputRequests")
        self._rounds += 1
        if self._rounds > MAX_ROUNDS:
            raise InternalError(f"{self._waiter.method}: the server asked more than {MAX_ROUNDS} times")
        if questions is None:                    # not a question, but "not yet": do not hurry
            time.sleep(min(0.05 * 2 ** self._rounds, 1.0))
        else: params["inputResponses"] = self._client._answer_all(self._connection, questions)
        if "requestState" in asked: params["requestState"] = asked["requestState"]
        return params

class Listening:
    """An iterator over a server's notifications, as `Client.listen` returns it. A context manager, too."""
    def __init__(self, client: Client, kinds: list[str], uris: list[str]) -> None:
        self._events: SimpleQueue[Any] = SimpleQueue()
        self._closed = False
        self._stop = client._hear(kinds, uris, self._put, self._events.put)
    def _put(self, method: str, params: Json) -> None:
        put_bounded(self._events, {"method": method, "params": params})
    def __iter__(self) -> Iterator[Json]: return self
    def __next__(self) -> Json:
        event = None if self._closed else take(self._events, None)
        if isinstance(event, dict): return event
        self._closed = True
        raise event or StopIteration
    def close(self) -> None:
        """End it: the server is told, and the iteration stops. Idempotent, from any thread."""
        if not self._closed:
            self._closed = True
            self._events.put(None)
            self._stop()
    def __enter__(self) -> Listening: return self
    def __exit__(self, *exc_info: Any) -> None: self.close()

class Client:
    """An MCP client with blocking calls: `with Client(target) as client: client.call("tool", x=1)`.

    `target`: a command as a list, "server.py" or a command line, {"command":, "args":, "env":}, a Server in
    this process, or (reader, writer), two binary streams. `timeout` in seconds is for each request. `version`
    is "auto", or the one revision to speak. `env` is added to this process's environment, for a child in
    `cwd`.

    Callbacks: on_elicit(params) returns {"action":, "content":} (the form's defaults are filled in), or None
    for "cancel"; on_sample(params) the wire's result, or text; `roots` is a list of paths, URIs or {"uri":,
    "name":}, or a function that returns one. Each makes the client declare that capability, and runs on a
    worker, so that it may call the client. on_log(level, data, logger) and on_notification(method, params)
    run in order on a thread of their own, on_progress(progress, total, message) in the thread that waits.
    `trace(direction, line)` sees every message; True writes them to stderr. `validate=False` takes structured
    results as they come.

    Safe from any thread. Raises McpError or a subclass, ToolError, Timeout, Cancelled, ConnectionClosed."""
    def __init__(self, target: Any, *, timeout: float = 60.0, headers: dict[str, str] | None = None,
                 env: dict[str, str] | None = None, cwd: Any = None, version: str = "auto",
                 name: str = "mcp_lite", client_version: str = __version__, roots: Any = None,
                 on_elicit: Callable[[Json], Any] | None = None,
                 on_sample: Callable[[Json], Any] | None = None, on_log: Callable[..., Any] | None = None,
                 on_progress: Callable[..., Any] | None = None,
                 on_notification: Callable[[str, Json], Any] | None = None, trace: Any = None,
                 ssl_context: Any = None, validate: bool = True) -> None:
        versions = ("auto",) + LEGACY_VERSIONS + MODERN_VERSIONS
        if version not in versions:
            raise ValueError(f"version: expected {', '.join(versions)}, got {show(version)}")
        self.timeout = timeout
        self._target, self._env, self._cwd, self._version = target, env, cwd, version
        self._info = {"name": name, "version": client_version}
        self._roots, self._on_elicit, self._on_sample = roots, on_elicit, on_sample
        self._on_log, self._on_progress, self._on_notification = on_log, on_progress, on_notification
        self._validate, self._log = validate, _Log()
        self._trace = _tracer(trace, self._log)
        self._lock = threading.Lock()
        self._connection: Connection | None = None  # guarded by _lock
        self._hang_up: Callable[[], Any] = nothing    # ends the transport; guarded by _lock
        self._child: Child | None = None
        self._reader: threading.Thread | None = None
        self._callbacks = Workers("mcp-callbacks", 1, nothing, self._log)
        self._closing = False
        self._server: Json = {}                        # its own words: serverInfo, capabilities, instructions
        self._log_level = ""
        # Of a legacy session: methods, URIs, and whom to tell of them.
        self._hearers: list[tuple[list[str], list[str], Callable[[str, Json], Any]]] = []
        self._subscriptions: dict[str, Callable[[], Any]] = {}     # URI -> what ends it
        self._output_schemas: dict[str, Schema] | None = None
        self._handlers: dict[str, Callable[[Json], Json]] = {
            row.name: getattr(self, row.handler) for row in METHODS.values()
            if row.kind == "request" and row.sender != "client"}

    # Connecting

    def connect(self) -> Client:
        """Start or reach the server and agree on a revision. Blocks. Raises ConnectionClosed,
        UnsupportedVersion, Timeout; and RuntimeError when it is connected already."""
        if self._connection is not None: raise RuntimeError("the client is connected already")
        self._closing, self._server, self._hearers, self._subscriptions = False, {}, [], {}
        # One worker: on_log and on_notification run in order, and the reading thread never runs user code.
        self._callbacks = Workers("mcp-callbacks", 1, nothing, self._log)
        try:
            try:
                self._open_transport()
                self._negotiate(self._version)
            except ConnectionClosed:
                if self._version != "auto" or self._child is None or self._server or self._closing: raise
                # Some old servers end when they are asked anything before `initialize`: once more, without
                # asking.
                self._close_transport()
                self._open_transport()
                self._negotiate(LAST_LEGACY)
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """End the conversation and the transport; a child process is gone when this returns. Idempotent, from
        any thread: whoever waits gets ConnectionClosed."""
        self._closing = True
        self._close_transport()
        self._callbacks.close(EXIT_SECONDS)
    def __enter__(self) -> Client: return self if self._connection is not None else self.connect()
    def __exit__(self, *exc_info: Any) -> None: self.close()

    def _open_transport(self) -> None:
        target = self._target
        if isinstance(target, Server):
            self._open_memory(target)
        elif isinstance(target, tuple) and len(target) == 2 and hasattr(target[0], "read"):
            self._open_streams(*target)
        else:
            command, env = command_of(target)
            self._child = child = Child(command, {**env, **(self._env or {})} or None, self._cwd, self._log)
            connection = self._take_transport(child.write, child.may_write, child.stop)
            self._start_reader(connection, child.read, child.closed)

    def _take_transport(self, write: Callable[[bytes], Any], may_write: Callable[[int], bool] | None,
                        hang_up: Callable[[], Any]) -> Connection:
        connection = Connection(Protocol("client", self._capabilities), self, write, name="mcp-client",
                                log=self._log, trace=self._trace, may_write=may_write)
        with self._lock: self._connection, self._hang_up = connection, hang_up
        return connection
    def _open_memory(self, server: Server) -> None:
        def hang_up() -> None:
            its.close(ConnectionClosed("the client closed the connection"), EXIT_SECONDS)
            server.disconnect(its)
        mine = self._take_transport(lambda data: its.dispatch(its.feed(data)), None, hang_up)
        its = server.connect(lambda data: mine.dispatch(mine.feed(data)))

    def _open_streams(self, reader: Any, writer: Any) -> None:
        def hang_up() -> None:
            for stream in (writer, reader):
                # A socket's files keep it open, and a thread in its read: say the end to both.
                sock = getattr(getattr(stream, "raw", stream), "_sock", None)
                with suppress(OSError):
                    if sock is not None: sock.shutdown(2)
            with suppress(OSError, ValueError): writer.close()
        connection = self._take_transport(stream_writer(writer), lambda size: False, hang_up)
        self._start_reader(connection, stream_reader(reader), ConnectionClosed)

    def _start_reader(self, connection: Connection, read: Callable[[], bytes],
                      closed: Callable[[str], ConnectionClosed]) -> None:
        def run() -> None:
            try:
                for data in iter(read, b""): connection.dispatch(connection.feed(data))
                connection.dispatch(connection.feed(b""))
            except (OSError, ValueError) as error:       # ValueError: the file was closed
                self._log.debug(f"the server's output ended: {tell(error)}")
            finally: connection.close(closed("the server closed the connection"))
        self._reader = threading.Thread(target=run, name="mcp-reader", daemon=True)
        self._reader.start()

    def _close_transport(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
            hang_up, self._hang_up = self._hang_up, nothing
        if connection is None: return
        closed = ConnectionClosed("the client is closed")
        connection.fail_pending(closed, tell=True)
        connection.close(closed)
        hang_up()
        if self._reader is not None and self._reader is not threading.current_thread():
            self._reader.join(EXIT_SECONDS)
            if self._child is not None and not self._reader.is_alive(): self._child.finish()
        connection.workers.close(EXIT_SECONDS)
        self._child = self._reader = None

    # Agreeing on a revision: basic/versioning.md, and basic/lifecycle.md of the legacy revisions

    def _negotiate(self, wanted: str) -> None:
        """Probe for the modern era, fall back on the handshake, and take what answers first: a server that is
        silent may be slow, or one that ignores what it does not know."""
        inbox: SimpleQueue[Any] = SimpleQueue()
        handshake = self._open("initialize", wanted, inbox) if wanted in LEGACY_VERSIONS else None
        probe = None if handshake else self._open("server/discover", MODERN, inbox)
        patience = min(PROBE_SECONDS, self.timeout) if wanted == "auto" else self.timeout
        try:
            while True:
                version = LAST_LEGACY
                try:
                    answer: Answer = take(inbox, patience)[1]
                    if answer.pending is probe:
                        version = self._judge_discovery(answer.error, answer.result or {}, wanted)
                    elif answer.error is not None: raise answer.error
                    if answer.pending is handshake or version == MODERN:
                        self._take_server(version, answer.result or {})
                        return
                except Empty:
                    if handshake is not None or wanted != "auto":
                        raise Timeout(f"no answer within {patience:g} seconds") from None
                handshake, patience = handshake or self._open("initialize", version, inbox), self.timeout
        finally: self._open_connection().protocol.pending.pop(probe.id if probe else 0, None)

    def _open(self, method: str, version: str, inbox: SimpleQueue[Any]) -> Waiter:
        waiter = Waiter(method)
        waiter.inbox = inbox
        params: Json = {"_meta": self._meta(version)}
        if version < MODERN:
            params = {"protocolVersion": version, "clientInfo": self._info,
                      "capabilities": self._capabilities(version)}
        return self._open_connection().request(waiter, params)

    def _judge_discovery(self, error: Exception | None, result: Json, wanted: str) -> str:
        """The revision to speak with a server that answers server/discover so."""
        if error is not None and not isinstance(error, McpError): raise error
        offered: Any = result.get("supportedVersions")
        if isinstance(error, UnsupportedVersion) and isinstance(error.data, dict):
            offered = error.data.get("supported")
        elif error is not None and error.code in MODERN_ERRORS: raise error
        elif error is not None:
            offered = LEGACY_VERSIONS            # "any other error [...]: the server is legacy"
        offered = offered if isinstance(offered, (list, tuple)) else []
        known = [each for each in (*LEGACY_VERSIONS, *MODERN_VERSIONS) if each in offered
                 and wanted in ("auto", each) and (error is None or each != MODERN)]
        if not known: raise self._no_common(offered) from error
        return known[-1]

    def _no_common(self, offered: Any) -> UnsupportedVersion:
        return UnsupportedVersion(f"the server speaks {show(offered)}, which is not {self._version}",
                                  {"supported": offered, "requested": self._version})

    def _take_server(self, version: str, words: Json) -> None:
        """Take what the server says of itself, and its revision, as agreed on."""
        connection, meta = self._open_connection(), words.get("_meta")
        if version < MODERN:
            version = words.get("protocolVersion", "")
            # "If the client does not support the version in the server's response, it SHOULD disconnect."
            if version not in LEGACY_VERSIONS or self._version not in ("auto", version):
                raise self._no_common([version])
        elif isinstance(meta, dict): words = {"serverInfo": meta.get(META_SERVER_INFO), **words}
        connection.protocol.version, connection.protocol.initialized, self._server = version, True, words
        if version < MODERN: connection.notify("notifications/initialized", None)

    def _capabilities(self, version: str = MODERN) -> Json:
        """What this client declares to a server of that revision: a capability for each callback."""
        full = version >= LAST_LEGACY
        elicits = self._on_elicit is not None and version >= METHODS["elicitation/create"].since
        return _with({}, elicitation=({"form": {}, "url": {}} if full else {}) if elicits else None,
                     sampling=({"tools": {}} if full else {}) if self._on_sample is not None else None,
                     roots=None if self._roots is None else {"listChanged": True} if version < MODERN else {})
    def _meta(self, version: str) -> Json:
        meta = {META_VERSION: version, META_CLIENT_INFO: self._info, META_CAPABILITIES: self._capabilities()}
        return {**meta, META_LOG_LEVEL: self._log_level} if self._log_level else meta

    # What is known of the server

    @property
    def server_info(self) -> Json:
        """{"name", "version", ...} as the server says; not verified. May be empty in the modern era."""
        return self._said("serverInfo", dict) or {}
    @property
    def server_capabilities(self) -> Json:
        """What the server declared: "tools", "resources", "prompts", "logging", "completions"."""
        found: Json = self._server.setdefault("capabilities", {})
        return found if isinstance(found, dict) else {}
    @property
    def instructions(self) -> str | None:
        """What the server says of its use, for a model; or None."""
        return self._said("instructions", str) or None
    @property
    def protocol_version(self) -> str:
        """The revision that this conversation speaks. Raises ConnectionClosed before connect()."""
        return self._open_connection().protocol.version
    def _said(self, member: str, kind: type[_Said]) -> _Said | None:
        found = self._server.get(member)
        return found if isinstance(found, kind) else None

    # Requests

    def request(self, method: str, params: Json | None = None, timeout: float | None = None) -> Json:
        """Send any request and block for its result, as on the wire. The modern `_meta` is added. A method of
        the protocol is refused here (MethodNotFound) when this revision does not have it, or the server did
        not declare what it needs."""
        return self._start(method, params).result(timeout)
    def notify(self, method: str, params: Json | None = None) -> None:
        """Send any notification."""
        self._open_connection().notify(method, params)
    def call(self, name: str, /, **arguments: Any) -> Any:
        """Call a tool for its value: structured content unwrapped, else its text, else its content blocks
        (one, or a list). Raises ToolError when the tool says that it failed."""
        result = self.call_tool(name, arguments)
        if result.get("isError"):
            blocks = _objects(result, "content")
            texts = [str(block.get("text", "")) for block in blocks if block.get("type") == "text"]
            raise ToolError("\n".join(texts) or "the tool failed", blocks)
        return unwrap_result({**result, "content": _objects(result, "content")})

    def call_tool(self, name: str, arguments: Json | None = None, timeout: float | None = None,
                  on_progress: Callable[..., Any] | None = None, meta: Json | None = None) -> Json:
        """Call a tool for its result as on the wire: {"content", "structuredContent", "isError"}:
        server/tools.md. Questions on the way go to the callbacks. Raises NotFound, InvalidParams, Timeout,
        and InternalError for a structured result that its outputSchema forbids."""
        params = _with({"name": name, "arguments": arguments or {}}, _meta=meta)
        result = self._get("tool", name, self._start("tools/call", params, on_progress), timeout)
        if self._validate and "structuredContent" in result and not result.get("isError"):
            self._check_structured(name, result["structuredContent"])
        return result

    def start_call(self, name: str, arguments: Json | None = None, *,
                   on_progress: Callable[..., Any] | None = None) -> Call:
        """Start a tool call and return at once: `call.result(timeout=None)`, `call.cancel(reason=None)`,
        `call.done()`. Progress is told in the thread that waits in result()."""
        return self._start("tools/call", {"name": name, "arguments": arguments or {}}, on_progress)

    def list_tools(self) -> list[Json]:
        """Every tool, from every page: [{"name", "inputSchema", ...}]."""
        tools = self._list("tools/list")
        schemas = {}
        for tool in tools:
            try:
                if "outputSchema" in tool: schemas[str(tool.get("name"))] = Schema(tool["outputSchema"])
            except (ValueError, TypeError) as error:
                self._log.warning(f"the outputSchema of {show(tool.get('name'))} is not used: {error}")
        self._output_schemas = schemas
        return tools

    def list_resources(self) -> list[Json]:
        """Every resource: [{"uri", "name", ...}]."""
        return self._list("resources/list")
    def list_resource_templates(self) -> list[Json]:
        """Every resource template: [{"uriTemplate", "name", ...}]."""
        return self._list("resources/templates/list")
    def list_prompts(self) -> list[Json]:
        """Every prompt: [{"name", "arguments", ...}]."""
        return self._list("prompts/list")
    def read_resource(self, uri: str) -> Json:
        """A resource as on the wire: {"contents": [{"uri", "mimeType", "text" or "blob"}]}. Raises
        NotFound."""
        return self._get("resource", uri, self._start("resources/read", {"uri": uri}))
    def read(self, uri: str) -> str | bytes:
        """A resource's text, or its bytes. Of several contents, the texts joined, else the first's bytes."""
        contents = _objects(self.read_resource(uri), "contents")
        texts = [item["text"] for item in contents if isinstance(item.get("text"), str)]
        if texts or not contents: return "".join(texts)
        import base64
        try: return base64.b64decode(str(contents[0].get("blob", "")), validate=True)
        except ValueError as error: raise InternalError(f"{uri}: blob: not base64: {error}") from None
    def get_prompt(self, name: str, arguments: dict[str, str] | None = None) -> Json:
        """A prompt's messages: {"description", "messages": [{"role", "content"}]}. Raises NotFound,
        InvalidParams."""
        params = {"name": name, "arguments": arguments or {}}
        return self._get("prompt", name, self._start("prompts/get", params))

    def complete(self, ref: Any, argument: str, value: str,
                 context: dict[str, str] | None = None) -> list[str]:
        """Completions for an argument: `ref` is a prompt's name, a template's URI, or the wire's ref;
        `context` has the other arguments."""
        if isinstance(ref, str):
            ref = {"type": "ref/resource", "uri": ref} if ":" in ref else {"type": "ref/prompt", "name": ref}
        params = _with({"ref": ref, "argument": {"name": argument, "value": value}},
                       context={"arguments": context} if context else None)
        completion = self.request("completion/complete", params).get("completion")
        values = completion.get("values") if isinstance(completion, dict) else None
        if not isinstance(values, list): raise InternalError(f"expected values, got {show(completion)}")
        return values

    def ping(self) -> None:
        """Raise unless the server answers."""
        self.request("server/discover" if self.protocol_version >= MODERN else "ping")
    def set_log_level(self, level: str) -> None:
        """Ask for log messages of this level and above: one of debug, info, notice, warning, error, critical,
        alert, emergency. In the modern era each later request carries it."""
        if level not in LOG_LEVELS:
            raise ValueError(f"level: {LEVELS_TEXT}, got {show(level)}")
        if self.protocol_version < MODERN: self.request("logging/setLevel", {"level": level})
        self._log_level = level
    def subscribe(self, uri: str) -> None:
        """Have on_notification told when the resource changes."""
        if uri not in self._subscriptions:
            # A legacy session's notifications reach on_notification by themselves.
            on_event = self._tell if self.protocol_version >= MODERN else nothing
            self._subscriptions[uri] = self._hear([], [uri], on_event,
                                                  lambda error: self._subscriptions.pop(uri, None))
    def unsubscribe(self, uri: str) -> None:
        """Stop what subscribe() began."""
        stop = self._subscriptions.pop(uri, None)
        if stop is not None: stop()
    def listen(self, tools: bool = True, prompts: bool = True, resources: bool = True,
               uris: Iterable[str] = ()) -> Listening:
        """Listen for changes of the lists, and of the resources `uris`: an iterator of {"method", "params"},
        and a context manager; close() ends it. Blocks until the server has agreed."""
        chosen = {"tools": tools, "prompts": prompts, "resources": resources}
        return Listening(self, [kind for kind, wanted in chosen.items() if wanted], list(uris))
    def _open_connection(self) -> Connection:
        connection = self._connection
        if connection is None:
            raise ConnectionClosed("the client is not connected; use `with client:` or client.connect()")
        return connection

    def _start(self, method: str, params: Json | None = None,
               on_progress: Callable[..., Any] | None = None) -> Call:
        version, row = self.protocol_version, METHODS.get(method)
        if row is not None:
            if not row.since <= version <= row.until: raise MethodNotFound(f"{method} is not in {version}")
            # In the oldest revision, completion had no capability.
            needed = "" if row.capability == "completions" and version == OLDEST else row.capability
            if needed and not self._declares(needed, version):
                raise MethodNotFound(f"{method}: the server did not declare {needed}")
            on_progress = on_progress or (self._on_progress if row.asks else None)
        if version >= MODERN:
            params = params or {}
            params = {**params, "_meta": {**self._meta(version), **params.get("_meta", {})}}
        return Call(self, method, params or {}, on_progress)

    def _declares(self, needed: str, version: str) -> bool:
        if not has_capability(self.server_capabilities, needed) and version >= MODERN:
            # A server may have grown since; without a session, it says so only when it is asked.
            self._server = {**self._server, **self.request("server/discover")}
        return has_capability(self.server_capabilities, needed)

    @staticmethod
    def _get(kind: str, name: str, call: Call, timeout: float | None = None) -> Json:
        """The result of asking for one thing by its name; NotFound if there is none, also where its code says
        less."""
        try: return call.result(timeout)
        except InvalidParams as error:
            named = isinstance(error.data, dict) and error.data.get("uri") == name
            if named or re.search(rf"(?i)unknown {kind}\b|\b{kind} .*not found", error.message):
                found = NotFound(error.message, error.data)
                found.code = error.code
                raise found from None
            raise

    def _list(self, method: str) -> list[Json]:
        """Follow the pages: server/utilities/pagination.md. "an empty string is a valid cursor"."""
        found: list[Json] = []
        seen, member = set(), METHODS[method].paged
        params: Json = {}
        for _ in range(MAX_PAGES):
            try: result = self.request(method, params)
            except ValueError as error: raise InternalError(f"{method}: nextCursor: {error}") from None
            found.extend(_objects(result, member))
            cursor = result.get("nextCursor")
            if cursor is None: return found
            if not isinstance(cursor, str):
                raise InternalError(f"{method}: nextCursor: expected a string, got {show(cursor)}")
            if cursor in seen:
                raise InternalError(f"{method}: the pages do not end: the cursor {show(cursor)} came twice")
            seen.add(cursor)
            params = {"cursor": cursor}
        raise InternalError(f"{method}: more than {MAX_PAGES} pages")

    def _check_structured(self, name: str, value: Any) -> None:
        try:
            if self._output_schemas is None: self.list_tools()
        except McpError as error:                # the tool has run: its result is worth more than the check
            self._log.warning(f"the result of {name} is not checked: {error}")
        schema = (self._output_schemas or {}).get(name)
        errors = schema.errors(value) if schema is not None else []
        if errors:
            raise InternalError(f"{name}: the structured result does not match the tool's outputSchema: "
                                + "; ".join(errors[:5]))

    # Hearing of changes

    def _hear(self, kinds: list[str], uris: list[str], on_event: Callable[[str, Json], Any],
              on_end: Callable[[Exception | None], Any]) -> Callable[[], Any]:
        """Have on_event(method, params) told of changes, on the reading thread, until the function that is
        returned is called; on_end(error or None) if the server ends it."""
        if self.protocol_version >= MODERN:
            wanted: Json = {LIST_CHANGES[kind][0]: True for kind in kinds}
            wanted.update({"resourceSubscriptions": uris} if uris else {})
            return self._hear_modern(wanted, on_event, on_end)
        connection, methods = self._open_connection(), [LIST_CHANGES[kind][1] for kind in kinds]
        hearer = (methods, uris, on_event)
        # A waiter that is never sent: it hears of the end of the connection.
        ended = Waiter("", on_answer=lambda answer: on_end(answer.error) or True)
        ended.id = connection.protocol.open(ended)
        self._hearers.append(hearer)

        def stop() -> None:
            if hearer in self._hearers: self._hearers.remove(hearer)
            connection.protocol.pending.pop(ended.id, None)
            for uri in uris:
                if connection.closed is None and not any(uri in others for _, others, _ in self._hearers):
                    self.request("resources/unsubscribe", {"uri": uri})
        try:
            for uri in uris: self.request("resources/subscribe", {"uri": uri})
        except BaseException:
            self._hearers.remove(hearer)
            connection.protocol.pending.pop(ended.id, None)
            raise
        return stop

    def _hear_modern(self, wanted: Json, on_event: Callable[[str, Json], Any],
                     on_end: Callable[[Exception | None], Any]) -> Callable[[], Any]:
        """Open a subscriptions/listen and wait for its acknowledgement."""
        connection, agreed = self._open_connection(), threading.Event()
        refused: list[Exception] = []

        def hear(method: str, params: Json) -> None:
            if agreed.is_set(): on_event(method, params)
            agreed.set()                         # the first one is the acknowledgement

        def end(answer: Answer) -> bool:
            if agreed.is_set() or answer.error is None:
                on_end(answer.error)
            else: refused.append(answer.error)
            agreed.set()
            return True
        waiter = Waiter("subscriptions/listen", on_answer=end, on_event=hear)
        connection.request(waiter, {"notifications": wanted, "_meta": self._meta(MODERN)})
        if not agreed.wait(self.timeout):
            connection.abandon(waiter, "not acknowledged")
            raise Timeout(f"subscriptions/listen: not acknowledged within {self.timeout:g} seconds")
        if refused: raise refused[0]
        return lambda: connection.abandon(waiter, None)

    def take_notification(self, connection: Connection, notification: Notification) -> None:
        """Pass a notification on: to its subscription, to who listens, to the callbacks. On the reading
        thread."""
        method, params, row = notification.method, notification.params, notification.row
        meta = params.get("_meta")
        subscription: Any = meta.get(META_SUBSCRIPTION) if isinstance(meta, dict) else params.get("requestId")
        waiter = connection.protocol.pending.get(subscription) if is_id(subscription) else None
        if waiter is not None and waiter.on_event is not None:
            if row is not None and row.handler == "_cancelled":
                connection.protocol.pending.pop(waiter.id, None)
                waiter.answer(Answer(waiter, {}, None))
            else:
                waiter.on_event(method, {name: value for name, value in params.items() if name != "_meta"})
            return
        for kind, (_, changed, _) in LIST_CHANGES.items():
            if method == changed:                # a session's server that started without any has some now
                self._output_schemas = None
                self.server_capabilities.setdefault(kind, {"listChanged": True})
        for methods, uris, on_event in list(self._hearers):
            if method in methods or params.get("uri") in uris: on_event(method, params)
        self._tell(method, params)

    def _tell(self, method: str, params: Json) -> None:
        on_log, on_notification, row = self._on_log, self._on_notification, METHODS.get(method)
        if on_log is not None and row is not None and row.handler == "_logged":
            self._call_back(lambda: on_log(params.get("level"), params.get("data"), params.get("logger")))
        elif on_notification is not None: self._call_back(lambda: on_notification(method, params))
    def _call_back(self, job: Callable[[], Any]) -> None:
        if len(self._callbacks) < MAX_QUEUED:
            self._callbacks.submit(job)
        else: self._log.warning(f"a notification was dropped: {MAX_QUEUED} wait for the callbacks")

    # Answering the server: the rest of the Connection's endpoint

    def serve_request(self, connection: Connection, request: Request) -> None:
        """Answer a question of a legacy server, on a worker."""
        try:
            result = self._answer_question(connection, request.method, request.params)
            message = result_message(request.id, result)
        except McpError as error: message = error_message(request.id, error)
        connection.respond(request, message)
    def output_lost(self, connection: Connection) -> None:
        """The server reads no more: nothing that waits will be answered."""
        child, why = self._child, "the server closed its input"
        connection.helpers.submit(
            lambda: connection.fail_pending(child.closed(why) if child else ConnectionClosed(why)))
    def _answer_all(self, connection: Connection, questions: Any) -> Json:
        """The answers to a modern result's inputRequests, one after the other: there is one user."""
        if not isinstance(questions, dict) or not all(isinstance(each, dict) for each in questions.values()):
            raise InternalError(f"inputRequests: expected an object of requests, got {show(questions)}")
        return {key: self._answer_question(connection, str(each.get("method")), each.get("params") or {})
                for key, each in questions.items()}

    def _answer_question(self, connection: Connection, method: str, params: Json) -> Json:
        handler = self._handlers.get(method)
        if handler is None: raise MethodNotFound(f"{show(method)} is no question that a client answers")
        with connection._lock: connection.answering.add(threading.get_ident())
        try: return handler(params)
        except McpError: raise
        except BaseException as error:
            self._log.error(f"answering {method} failed: {tell(error)}", error)
            raise InternalError(f"{method}: the client's callback raised {type(error).__name__}") from error
        finally:
            with connection._lock: connection.answering.discard(threading.get_ident())

    def _ping(self, params: Json) -> Json: return {}
    def _roots_list(self, params: Json) -> Json:
        if self._roots is None: raise MethodNotFound("roots/list: this client did not declare roots")
        return {"roots": [_root(each) for each in (self._roots() if callable(self._roots) else self._roots)]}

    def _sampling_create_message(self, params: Json) -> Json:
        if self._on_sample is None:
            raise MethodNotFound("sampling/createMessage: this client did not declare sampling")
        answer = self._on_sample(params)
        if isinstance(answer, str):
            text = {"type": "text", "text": answer}
            answer = {"role": "assistant", "content": text, "model": "unknown", "stopReason": "endTurn"}
        if not isinstance(answer, dict):
            raise TypeError(f"on_sample: expected a dict or text, got {type(answer).__name__}")
        return answer

    def _elicitation_create(self, params: Json) -> Json:
        if self._on_elicit is None:
            raise MethodNotFound("elicitation/create: this client did not declare elicitation")
        schema = params.get("requestedSchema")
        if params.get("mode", "form") == "form":
            try: check_elicitation_schema(schema)
            except ValueError as error: raise InvalidParams(str(error)) from None
        answer = self._on_elicit(params) or {"action": "cancel"}
        if not isinstance(answer, dict) or answer.get("action") not in ("accept", "decline", "cancel"):
            raise TypeError(f"on_elicit: action: expected accept, decline or cancel, got {show(answer)}")
        if answer["action"] != "accept" or not isinstance(schema, dict): return {"action": answer["action"]}
        defaults = {name: sub["default"] for name, sub in schema["properties"].items() if "default" in sub}
        content = {**defaults, **(answer.get("content") or {})}
        errors = Schema(schema).errors(content)
        if errors: raise TypeError("on_elicit: content: " + "; ".join(errors[:5]))
        return {"action": "accept", "content": content}

def _objects(result: Json, member: str) -> list[Json]:
    """A member of a server's result that must be an array of objects. Raises InternalError when it is not."""
    found = result.get(member)
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise InternalError(f"{member}: expected an array of objects, got {show(found)}")
    return found

def _root(root: Any) -> Json:
    """A root as on the wire, from a path, a URI or itself."""
    if isinstance(root, dict): return root
    text = os.fspath(root)
    if re.match(r"[A-Za-z][A-Za-z0-9+.\-]+:", text): return {"uri": text}
    import pathlib
    path = pathlib.Path(text).absolute()
    return {"uri": path.as_uri(), "name": path.name or str(path)}

def command_of(target: Any) -> tuple[list[str], dict[str, str]]:
    """The command line that a target names, and variables for its environment. Raises TypeError or
    ValueError."""
    if isinstance(target, dict):
        if not isinstance(target.get("command"), str):
            raise ValueError(f"target: command: expected string, got {show(target.get('command'))}")
        return [target["command"], *map(str, target.get("args", []))], dict(target.get("env") or {})
    if isinstance(target, (list, tuple)) and target: return [os.fspath(part) for part in target], {}
    if not isinstance(target, str) and not hasattr(target, "__fspath__"):
        raise TypeError("target: expected a command, a script, a dict, a Server or (reader, writer), "
                        f"got {target!r}")
    text = os.fspath(target)
    if re.match("(?i)https?://", text): raise ValueError(f"target: {text}: no HTTP yet, only commands")
    if text.endswith(".py") and (" " not in text or os.path.exists(text)):
        # Inside a host program, sys.executable may be the host.
        python = sys.executable if "python" in os.path.basename(sys.executable or "").lower() else "python3"
        return [python, text], {}
    import shlex
    return (shlex.split(text) if os.name == "posix" and not os.path.exists(text) else [text]), {}

def _tracer(trace: Any, log: _Log) -> Callable[[str, bytes], Any] | None:
    """trace= as a function that harms nobody: what it raises is logged."""
    if trace is None or trace is False: return None
    file = sys.stderr if trace is True else trace

    def see(direction: str, line: bytes) -> None:
        try:
            if callable(file): file(direction, line)
            else: file.write(f"{direction} {line.decode('utf-8', 'replace')}\n")
        except Exception as error: log.warning(f"trace: {tell(error)}")
    return see
