# mcp_lite: the Model Context Protocol in one file, on the standard library alone.
#
# MIT License. Copyright (c) 2026 the authors of mcp_lite.
#
# Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
# documentation files (the "Software"), to deal in the Software without restriction, including without limitation
# the rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and
# to permit persons to whom the Software is furnished to do so, subject to the following conditions:
#
# The above copyright notice and this permission notice shall be included in all copies or substantial portions of
# the Software.
#
# THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO
# THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
# AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF
# CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS
# IN THE SOFTWARE.
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

Who runs what, and what guards it:

    thread        born in                       runs                                        ends
    the caller    your program                  Server.run and serve; every client call,    by itself
                                                and its progress callback
    worker        Connection, when one is       one request's handler; one question to      idle for a while,
                  needed; the latest idle first the client's callbacks; a write             or close
    callbacks     Client, at the first event    on_log and on_notification, in order        close
    reader        Client, over streams          reads, wakes waiters; never your code       end of the stream
    stderr        Client, over a process        keeps the child's last lines                end of the stream
    timer         a tool with a timeout         ends one overdue call                       with the call
    log           the first line to log         hands lines to Python's logging             when it has none left

    Connection._lock guards the outgoing queue and the end of a request; _Workers._lock the idle stack and the
    backlog; Server._lock the registries and the listeners; MainThread._lock its queue. They are leaves: none is
    held while another is taken, during I/O, or while your code runs. What two threads may end (an answer and a
    cancellation, say) lives in a dict: whoever pops it has won, and the other does nothing.
"""
from __future__ import annotations

import itertools
import json
import os
import re
import sys
import threading
import time
from collections import deque
from queue import Empty, SimpleQueue

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO, Callable, Dict, Iterable, Iterator, List, Optional, Tuple, Type, Union
    Json = Dict[str, Any]                      # a JSON object
    Check = Callable[[Any, Any, List[str]], None]
    RequestId = Union[str, int]
    Handler = Callable[["Context", Json], Optional[Json]]

__version__ = "0.1.0"
__all__ = [
    "Audio", "Cancelled", "Client", "ConnectionClosed", "Context", "EmbeddedResource", "Image", "InternalError",
    "InvalidParams", "InvalidRequest", "MainThread", "McpError", "Message", "MethodNotFound",
    "MissingCapability", "NotFound", "Param", "ParseError", "RequestCancelled", "ResourceLink", "Server", "Timeout",
    "ToolError", "UnsupportedVersion", "validate",
]

###############################################################################
# 1. Vocabulary ###############################################################
###############################################################################
# The words of the protocol that are not methods, and the limits that keep a hostile or broken peer cheap.
# ISO dates compare as strings, so `since <= version <= until` is the whole of version arithmetic.

LEGACY_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")   # a session opened by `initialize`
MODERN_VERSIONS = ("2026-07-28",)                                              # no session; `_meta` on each request
OLDEST, LAST_LEGACY, MODERN = LEGACY_VERSIONS[0], LEGACY_VERSIONS[-1], MODERN_VERSIONS[-1]
BATCH_VERSION = "2025-03-26"       # the only revision with JSON-RPC batches

META = "io.modelcontextprotocol/"
META_VERSION = META + "protocolVersion"
META_CLIENT_INFO = META + "clientInfo"
META_CAPABILITIES = META + "clientCapabilities"
META_LOG_LEVEL = META + "logLevel"
META_SUBSCRIPTION = META + "subscriptionId"
META_SERVER_INFO = META + "serverInfo"

LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

# Members that a revision does not know yet are left out of what it is sent.
MEMBER_SINCE = {"annotations": "2025-03-26", "title": "2025-06-18", "outputSchema": "2025-06-18",
                "_meta": "2025-06-18", "icons": "2025-11-25", "description": OLDEST, "websiteUrl": "2025-11-25"}

MAX_MESSAGE = 64 << 20             # bytes in a line: an 8 MiB image in base64 fits several times
MAX_QUEUED = 10_000                # notifications that wait for a slow reader; then logs and progress are dropped
MAX_BACKLOG = 10_000               # requests that wait for a worker; then the peer is told to slow down
MAX_BATCH = 1_000                  # members of a batch
MAX_PAGES = 1_000                  # pages of a list that a client follows
MAX_ROUNDS = 10                    # questions in a row that a client answers for one call
MAX_STATE = 256 << 10              # bytes of `requestState`: it travels with each retry
MAX_COMPLETIONS = 100              # values in a completion: the schema's maxItems
MAX_WORKERS = 32                   # handlers that run at once on a connection
STATE_SECONDS = 600.0              # how long `requestState` is good for, and a question of the legacy era open
DRAIN_SECONDS = 5.0                # for work in flight at the end of the input; then as long again once cancelled
PROBE_SECONDS = 5.0                # before a silent server is taken for one that wants `initialize`
IDLE_SECONDS = 30.0                # before an idle worker goes
EXIT_SECONDS = 2.0                 # for a child to go by itself, then after SIGTERM
STDERR_LINES = 20                  # of a child's stderr, kept for the error text
CHUNK = 1 << 16                    # bytes in one read: a pipe holds no more


###############################################################################
# 2. Errors ###################################################################
###############################################################################
# One exception per meaning. McpError and its subclasses are JSON-RPC errors: what a peer answered, or what a handler
# raises to answer so. The others are local: they say what happened to a call here.

class McpError(Exception):
    """A JSON-RPC error: `code`, `message`, `data`. Raise it in a handler to answer with it.

    A client raises the subclass for the code that the server sent; `code` is always the one on the wire.
    See https://modelcontextprotocol.io/specification/2026-07-28/basic#error-codes"""
    code = -32603
    http_status = 200

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data

    @staticmethod
    def from_wire(error: Json) -> McpError:
        """The exception for a wire error object {"code", "message", "data"}, of the subclass its code names."""
        code, message, data = error.get("code"), error.get("message"), error.get("data")
        if not isinstance(code, int) or isinstance(code, bool):
            return InternalError(f"the peer sent an error whose code is {show(code)}", error)
        found = McpError.__new__(ERRORS.get(code, McpError))
        McpError.__init__(found, code, message if isinstance(message, str) else show(message), data)
        return found

    def to_wire(self) -> Json:
        """The wire error object: {"code", "message"}, and "data" when there is any."""
        error: Json = {"code": self.code, "message": self.message}
        if self.data is not None:
            error["data"] = self.data
        return error


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
    from older servers also -32001 and -32003."""


class MissingCapability(_Coded):
    """-32021: the request needs a capability that the client did not declare."""
    code, http_status = -32021, 400


class UnsupportedVersion(_Coded):
    """-32022: a revision that the server does not speak; `data` has "supported" and "requested"."""
    code, http_status = -32022, 400


class RequestCancelled(_Coded):
    """-32800: the answer to `$/cancelRequest`, which some old peers send."""
    code = -32800


# Which exception a code becomes. -32001 to -32003 are "not found" from servers older than the code's allocation.
ERRORS: Dict[int, Type[McpError]] = {
    **{error.code: error for error in (ParseError, InvalidRequest, MethodNotFound, InvalidParams, InternalError,
                                       MissingCapability, UnsupportedVersion, RequestCancelled)},
    -32001: NotFound, -32002: NotFound, -32003: NotFound,
}
MODERN_ERRORS = (-32020, MissingCapability.code, UnsupportedVersion.code)    # only a modern server sends these


class ToolError(Exception):
    """A tool failed in a way its caller can act on: `isError` with this text, or with `content` blocks.
    `Client.call` raises it for such a result; `content` then has the result's blocks."""

    def __init__(self, message: str, content: Optional[List[Any]] = None) -> None:
        super().__init__(message)
        self.content = content


class Timeout(TimeoutError):
    """No answer within the time given. The peer was told to stop."""


class Cancelled(Exception):
    """The request was cancelled: by the peer when a handler sees it, by `call.cancel()` when a caller does."""


class ConnectionClosed(ConnectionError):
    """The other end is gone. For a child process: `exit_code`, `command`, and `stderr`, its last lines."""

    def __init__(self, message: str, exit_code: Optional[int] = None, command: Optional[List[str]] = None,
                 stderr: str = "") -> None:
        text = message
        if command:
            text += f" (command: {' '.join(command)}" + (f"; exit code {exit_code})" if exit_code is not None else ")")
        if stderr:
            text += "; the end of its stderr:\n" + stderr
        super().__init__(text)
        self.exit_code, self.command, self.stderr = exit_code, command, stderr


class _InputRequired(BaseException):
    """Raised by Context to leave a handler of the modern era until the client has answered. Not an Exception, so that
    a handler's own `except Exception` does not swallow it."""

    def __init__(self, questions: Dict[str, Json]) -> None:
        super().__init__("the handler waits for the client's answers")
        self.questions = questions


def show(value: Any, limit: int = 60) -> str:
    """A value as an error text quotes it: short JSON."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=repr) if not isinstance(value, str) or len(value) < 1000 \
            else json.dumps(value[:1000], ensure_ascii=False)
    except (ValueError, RecursionError):
        text = f"a {type(value).__name__}"
    return text if len(text) <= limit else text[:limit - 3] + "..."


class _Log:
    """Lines for Python's logger "mcp_lite", written by a thread that ends when it has none left: a stderr that nobody
    reads must not hold up a handler. The queue is bounded; what does not fit is counted and dropped."""

    def __init__(self) -> None:
        self._lines: deque[Tuple[int, str, Any]] = deque()    # guarded by _lock
        self._lock = threading.Lock()
        self._running = False                                 # guarded by _lock
        self._dropped = 0                                     # guarded by _lock

    def write(self, level: int, text: str, exc_info: Any = None) -> None:
        """Queue one line, with a traceback if `exc_info` is an exception. Never blocks."""
        with self._lock:
            if len(self._lines) >= MAX_QUEUED:
                self._dropped += 1
                return
            self._lines.append((level, text, exc_info))
            start, self._running = not self._running, True
        if start:
            try:
                threading.Thread(target=self._drain, name="mcp-log", daemon=True).start()
            except RuntimeError:              # the interpreter is going, or has no thread to give: the line waits
                with self._lock:
                    self._running = False

    def debug(self, text: str) -> None:
        self.write(10, text)

    def info(self, text: str) -> None:
        self.write(20, text)

    def warning(self, text: str, exc_info: Any = None) -> None:
        self.write(30, text, exc_info)

    def error(self, text: str, exc_info: Any = None) -> None:
        self.write(40, text, exc_info)

    def flush(self, seconds: float) -> None:
        """Wait until what was queued is written, but no longer than `seconds`."""
        until = time.monotonic() + seconds
        while self._running and time.monotonic() < until:
            time.sleep(0.005)

    def _drain(self) -> None:
        import logging
        logger = logging.getLogger("mcp_lite")
        while True:
            with self._lock:
                if not self._lines:
                    self._running = False
                    return
                level, text, exc_info = self._lines.popleft()
                dropped, self._dropped = self._dropped, 0
            try:
                if dropped:
                    logger.warning("%d lines were dropped: the log's reader is too slow", dropped)
                logger.log(level, "%s", text, exc_info=exc_info)
            except Exception:                 # a broken logging handler must not end this thread
                continue


###############################################################################
# 3. Messages #################################################################
###############################################################################
# JSON-RPC 2.0 (basic/index.md#messages): bytes to messages and back. check_envelope is the only place where the outer
# shape of a message is judged; everything further in may rely on it.

_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_decoder = json.JSONDecoder(parse_constant=_refuse_constant)


def parse_message(data: bytes) -> Any:
    """Decode one message. Raises ParseError, whatever the bytes are."""
    try:
        return _decoder.decode(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ParseError(f"not UTF-8 at byte {error.start}") from None
    except ValueError as error:               # JSONDecodeError is one; so is an integer of too many digits
        raise ParseError(f"not JSON: {error}") from None
    except RecursionError:
        raise ParseError("nested too deeply") from None


def encode_json(value: Any) -> str:
    """Encode on one line. Raises ValueError or TypeError for what JSON cannot say: NaN, lone surrogates, objects."""
    try:
        return _encoder.encode(value)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def encode_message(message: Any) -> bytes:
    """One message as UTF-8 without a line break. Raises as encode_json does."""
    return encode_json(message).encode("utf-8")


def is_id(value: Any) -> bool:
    """Whether it can be a request's id: "string or integer", "MUST NOT be null"; in Python, True is an int."""
    return isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool))


def check_envelope(message: Any) -> str:
    """Tell "request", "notification" or "response". Raises InvalidRequest for what is none of them."""
    if not isinstance(message, dict):
        raise InvalidRequest(f"expected an object, got {show(message)}")
    if message.get("jsonrpc") != "2.0":
        raise InvalidRequest(f'jsonrpc: expected "2.0", got {show(message.get("jsonrpc"))}')
    if "method" not in message:
        return _check_response(message)
    if "result" in message or "error" in message:
        raise InvalidRequest("a message is either a call (method) or an answer (result or error), not both")
    if not isinstance(message["method"], str):
        raise InvalidRequest(f"method: expected string, got {show(message['method'])}")
    if "id" not in message:
        return "notification"
    if not is_id(message["id"]):
        raise InvalidRequest(f"id: expected string or integer, got {show(message['id'])}")
    return "request"


def _check_response(message: Json) -> str:
    if "result" not in message and "error" not in message:
        raise InvalidRequest("method: missing")
    if "result" in message and "error" in message:
        raise InvalidRequest("an answer has a result or an error, not both")
    if "id" in message and message["id"] is not None and not is_id(message["id"]):
        raise InvalidRequest(f"id: expected string or integer, got {show(message['id'])}")
    inner = "result" if "result" in message else "error"
    if not isinstance(message[inner], dict):
        raise InvalidRequest(f"{inner}: expected object, got {show(message[inner])}")
    return "response"


def request_message(request_id: RequestId, method: str, params: Optional[Json]) -> Json:
    message: Json = {"jsonrpc": "2.0", "id": request_id, "method": method}
    if params is not None:
        message["params"] = params
    return message


def notification_message(method: str, params: Optional[Json]) -> Json:
    message: Json = {"jsonrpc": "2.0", "method": method}
    if params is not None:
        message["params"] = params
    return message


def result_message(request_id: RequestId, result: Json) -> Json:
    return {"jsonrpc": "2.0", "id": request_id, "result": result}


def error_message(request_id: Optional[RequestId], error: McpError) -> Json:
    """An answer that says no. Without an id when it could not be read: MCP's ids are never null."""
    if request_id is None:
        return {"jsonrpc": "2.0", "error": error.to_wire()}
    return {"jsonrpc": "2.0", "id": request_id, "error": error.to_wire()}


###############################################################################
# 4. Methods ##################################################################
###############################################################################
# Everything that can be said: one row each. A rule that concerns one method stands in its row, and nowhere else is
# a method's name compared.

class Method:
    """A row of the table.

    `sender` is "client", "server" or "both"; `since` and `until` the first and last revision that has it;
    `capability` what the *receiver* of a request must have declared; `params` the parameters' types, a question mark
    after the optional ones; `inline` marks what is answered at once, in order, by the reading thread; `paged` names
    the list of a paged result; `cacheable` results carry ttlMs and cacheScope; `asks` allows questions (MRTR)."""
    __slots__ = ("name", "kind", "sender", "handler", "since", "until", "capability", "params", "inline", "paged",
                 "cacheable", "asks", "droppable")

    def __init__(self, name: str, kind: str, sender: str, handler: str, since: str = OLDEST, until: str = "9999",
                 capability: str = "", params: Optional[Dict[str, Any]] = None, inline: bool = False, paged: str = "",
                 cacheable: bool = False, asks: bool = False, droppable: bool = False) -> None:
        self.name, self.kind, self.sender, self.handler = name, kind, sender, handler
        self.since, self.until, self.capability = since, until, capability
        self.params = tuple((key.rstrip("?"), not key.endswith("?"), kind) for key, kind in (params or {}).items())
        self.inline, self.paged, self.cacheable, self.asks, self.droppable = inline, paged, cacheable, asks, droppable


_PAGE = {"cursor?": str}
_METHODS = [
    # Lifecycle: basic/lifecycle.md of the legacy revisions; server/discover.md of the modern one.
    Method("initialize", "request", "client", "_initialize", until=LAST_LEGACY, inline=True,
           params={"protocolVersion": str, "capabilities": dict, "clientInfo": dict}),
    Method("notifications/initialized", "notification", "client", "_initialized", until=LAST_LEGACY),
    Method("initialized", "notification", "client", "_initialized", until=LAST_LEGACY),   # as a tutorial has it
    Method("ping", "request", "both", "_ping", until=LAST_LEGACY, inline=True),
    Method("server/discover", "request", "client", "_server_discover", since=MODERN, inline=True, cacheable=True),

    # The server's features.
    Method("tools/list", "request", "client", "_tools_list", capability="tools", params=_PAGE, paged="tools",
           cacheable=True),
    Method("tools/call", "request", "client", "_tools_call", capability="tools", asks=True,
           params={"name": str, "arguments?": dict}),
    Method("resources/list", "request", "client", "_resources_list", capability="resources", params=_PAGE,
           paged="resources", cacheable=True),
    Method("resources/templates/list", "request", "client", "_resources_templates_list", capability="resources",
           params=_PAGE, paged="resourceTemplates", cacheable=True),
    Method("resources/read", "request", "client", "_resources_read", capability="resources", params={"uri": str},
           cacheable=True, asks=True),
    Method("resources/subscribe", "request", "client", "_resources_subscribe", until=LAST_LEGACY, inline=True,
           capability="resources.subscribe", params={"uri": str}),
    Method("resources/unsubscribe", "request", "client", "_resources_unsubscribe", until=LAST_LEGACY, inline=True,
           capability="resources.subscribe", params={"uri": str}),
    Method("prompts/list", "request", "client", "_prompts_list", capability="prompts", params=_PAGE, paged="prompts",
           cacheable=True),
    Method("prompts/get", "request", "client", "_prompts_get", capability="prompts", asks=True,
           params={"name": str, "arguments?": dict}),
    Method("completion/complete", "request", "client", "_completion_complete", capability="completions",
           params={"ref": dict, "argument": dict, "context?": dict}),
    Method("logging/setLevel", "request", "client", "_logging_set_level", until=LAST_LEGACY, inline=True,
           capability="logging", params={"level": str}),
    Method("subscriptions/listen", "request", "client", "_subscriptions_listen", since=MODERN, inline=True,
           params={"notifications": dict}),

    # The client's features. In the modern era the same three travel inside results: basic/patterns/mrtr.md.
    Method("roots/list", "request", "server", "_roots_list", until=LAST_LEGACY, capability="roots"),
    Method("sampling/createMessage", "request", "server", "_sampling_create_message", until=LAST_LEGACY,
           capability="sampling", params={"messages": list, "maxTokens": int}),
    Method("elicitation/create", "request", "server", "_elicitation_create", since="2025-06-18", until=LAST_LEGACY,
           capability="elicitation", params={"message": str}),

    # About a request: basic/patterns/cancellation.md and progress.md.
    Method("notifications/cancelled", "notification", "both", "_cancelled"),
    Method("$/cancelRequest", "notification", "both", "_cancel_request"),     # as language servers and old peers say it
    Method("notifications/progress", "notification", "both", "_progress", droppable=True),
    Method("notifications/message", "notification", "server", "_notified", droppable=True),

    # About the server's state, and the client's.
    Method("notifications/tools/list_changed", "notification", "server", "_notified"),
    Method("notifications/resources/list_changed", "notification", "server", "_notified"),
    Method("notifications/resources/updated", "notification", "server", "_notified"),
    Method("notifications/prompts/list_changed", "notification", "server", "_notified"),
    Method("notifications/elicitation/complete", "notification", "server", "_notified", since="2025-11-25",
           until=LAST_LEGACY),
    Method("notifications/subscriptions/acknowledged", "notification", "server", "_notified", since=MODERN),
    Method("notifications/roots/list_changed", "notification", "client", "_roots_list_changed", until=LAST_LEGACY),
]
METHODS: Dict[str, Method] = {row.name: row for row in _METHODS}

# What a client may ask to hear of: the filter's member, the notification, the capability that promises it.
LIST_CHANGES = {
    "tools": ("toolsListChanged", "notifications/tools/list_changed", "tools.listChanged"),
    "prompts": ("promptsListChanged", "notifications/prompts/list_changed", "prompts.listChanged"),
    "resources": ("resourcesListChanged", "notifications/resources/list_changed", "resources.listChanged"),
}

_TYPE_NAMES = {str: "string", dict: "object", list: "array", int: "integer", float: "number", bool: "boolean"}


def check_params(row: Method, params: Json) -> None:
    """Check a request's own parameters against its row. Raises InvalidParams naming the first that is wrong."""
    for name, required, kind in row.params:
        value = params.get(name)
        if value is None and (name not in params or not required):
            if required:
                raise InvalidParams(f"{name}: expected {_TYPE_NAMES[kind]}, but it is missing")
        elif not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise InvalidParams(f"{name}: expected {_TYPE_NAMES[kind]}, got {show(value)}")


def has_capability(capabilities: Json, path: str) -> bool:
    """Whether declared capabilities contain a dotted path, such as "resources.subscribe"."""
    found: Any = capabilities
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    # Feature objects count when present, even empty; flags such as listChanged when true.
    return found is not None and found is not False


###############################################################################
# 5. JSON Schema ##############################################################
###############################################################################
# A schema is compiled once into closures; a valid value then costs little more than its isinstance checks. A check
# takes (value, path, errors) and appends texts to errors. A path is a linked pair (parent's path, key), or None at the
# root, so that walking costs no string. Nothing is ever fetched: `$ref` resolves inside the document or not at all.

_JSON_TYPES: Dict[str, Any] = {"string": str, "object": dict, "array": list, "boolean": bool, "null": type(None),
                               "number": (int, float), "integer": int}
_EXACT = {"string": str, "object": dict, "array": list, "boolean": bool, "integer": int, "number": float}
MAX_SCHEMA_DEPTH = 200             # nested subschemas: real ones stay below 20, and Python's own stack is near 1,000


def validate(value: Any, schema: Any) -> List[str]:
    """Check a JSON value against a JSON Schema (2020-12): a list of error texts, empty when it is valid.

    Each text is one line: `days: expected integer, got "three"`. Raises ValueError when the schema itself is wrong.
    Never fetches anything: a `$ref` must resolve inside the schema."""
    return Schema(schema).errors(value)


class Schema:
    """A compiled schema. Immutable, safe from any thread."""
    __slots__ = ("schema", "_check", "_refs")

    def __init__(self, schema: Any) -> None:
        self.schema = schema
        self._refs: Dict[str, Check] = {}
        try:
            self._check = self._compile(schema, 0)
        except RecursionError:
            raise ValueError("schema: nested too deeply") from None

    def errors(self, value: Any) -> List[str]:
        """The texts of everything that is wrong with the value."""
        found: List[str] = []
        try:
            self._check(value, None, found)
        except RecursionError:
            found.append("nested too deeply for the schema")
        return found

    def _compile(self, schema: Any, depth: int) -> Check:
        if schema is True or schema == {}:
            return _check_anything
        if schema is False:
            return _check_nothing
        if not isinstance(schema, dict):
            raise ValueError(f"schema: expected object or boolean, got {show(schema)}")
        if depth > MAX_SCHEMA_DEPTH:
            raise ValueError(f"schema: nested more than {MAX_SCHEMA_DEPTH} deep")
        checks: List[Check] = []
        for keyword, compile_keyword in _KEYWORDS.items():
            if keyword in schema:
                check = compile_keyword(self, schema[keyword], schema, depth + 1)
                if check is not None:
                    checks.append(check)
        if len(checks) == 1:
            return checks[0]

        def check_all(value: Any, path: Any, errors: List[str]) -> None:
            for check in checks:
                check(value, path, errors)
        return check_all

    def _resolve(self, ref: str, depth: int) -> Check:
        """The check for a `$ref`; compiled at its first use, so that schemas may refer to themselves."""
        if ref in self._refs:
            return self._refs[ref]
        target = _find_ref(self.schema, ref)
        compiled: List[Check] = []

        def check_ref(value: Any, path: Any, errors: List[str]) -> None:
            compiled[0](value, path, errors)
        self._refs[ref] = check_ref
        compiled.append(self._compile(target, depth))
        return compiled[0]


def _find_ref(root: Any, ref: str) -> Any:
    if ref == "#":
        return root
    if ref.startswith("#/"):
        found = root
        for part in ref[2:].split("/"):
            part = _percent_decode(part).replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and part.isdigit() and int(part) < len(found):
                found = found[int(part)]
            elif isinstance(found, dict) and part in found:
                found = found[part]
            else:
                raise ValueError(f"schema: $ref {show(ref)} leads nowhere")
        return found
    if ref.startswith("#"):
        for sub in _walk(root):
            if sub.get("$anchor") == ref[1:]:
                return sub
    raise ValueError(f"schema: $ref {show(ref)} is not in this document, and nothing is fetched")


def _walk(node: Any) -> Iterator[Json]:
    stack = [node]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            yield node
            stack.extend(node.values())
        elif isinstance(node, list):
            stack.extend(node)


def _check_anything(value: Any, path: Any, errors: List[str]) -> None:
    pass


def _check_nothing(value: Any, path: Any, errors: List[str]) -> None:
    errors.append(_at(path) + f"nothing is allowed here, got {show(value)}")


def _at(path: Any) -> str:
    """A path as error texts begin: `a.b[0]: `, or nothing at the root."""
    parts: List[str] = []
    while path is not None:
        path, key = path
        parts.append(f"[{key}]" if isinstance(key, int) else ("." if path is not None else "") + str(key))
    return "".join(reversed(parts)) + ": " if parts else ""


def is_same(a: Any, b: Any) -> bool:
    """Equality as JSON has it: 1 and 1.0 are the same, 1 and true are not."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(is_same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(is_same, a, b))
    return bool(a == b)


def is_type(value: Any, name: str) -> bool:
    """Whether a value has a JSON Schema type. A bool is no number, and 1.0 is an integer."""
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _JSON_TYPES[name])


def _kw_type(schema: Schema, names: Any, whole: Json, depth: int) -> Check:
    wanted = [names] if isinstance(names, str) else names
    if not isinstance(wanted, list) or not wanted or any(name not in _JSON_TYPES for name in wanted):
        raise ValueError(f"schema: type: expected a type's name or a list of them, got {show(names)}")
    told = " or ".join(wanted)
    exact = _EXACT.get(wanted[0]) if len(wanted) == 1 else None

    def check(value: Any, path: Any, errors: List[str]) -> None:
        if type(value) is not exact and not any(is_type(value, name) for name in wanted):
            errors.append(_at(path) + f"expected {told}, got {show(value)}")
    return check


def _kw_enum(schema: Schema, values: Any, whole: Json, depth: int) -> Check:
    if not isinstance(values, list):
        raise ValueError(f"schema: enum: expected array, got {show(values)}")

    def check(value: Any, path: Any, errors: List[str]) -> None:
        if not any(is_same(value, each) for each in values):
            told = ", ".join(show(each) for each in values[:20]) + (", ..." if len(values) > 20 else "")
            errors.append(_at(path) + f"expected one of {told}, got {show(value)}")
    return check


def _kw_const(schema: Schema, wanted: Any, whole: Json, depth: int) -> Check:
    def check(value: Any, path: Any, errors: List[str]) -> None:
        if not is_same(value, wanted):
            errors.append(_at(path) + f"expected {show(wanted)}, got {show(value)}")
    return check


# Keyword: the types it applies to, what is measured, the test, the text.
_LIMITS: Dict[str, Any] = {
    "minimum": ("number", None, lambda n, limit: n >= limit, "expected at least {}"),
    "maximum": ("number", None, lambda n, limit: n <= limit, "expected at most {}"),
    "exclusiveMinimum": ("number", None, lambda n, limit: n > limit, "expected more than {}"),
    "exclusiveMaximum": ("number", None, lambda n, limit: n < limit, "expected less than {}"),
    "minLength": ("string", len, lambda n, limit: n >= limit, "expected at least {} characters"),
    "maxLength": ("string", len, lambda n, limit: n <= limit, "expected at most {} characters"),
    "minItems": ("array", len, lambda n, limit: n >= limit, "expected at least {} items"),
    "maxItems": ("array", len, lambda n, limit: n <= limit, "expected at most {} items"),
    "minProperties": ("object", len, lambda n, limit: n >= limit, "expected at least {} members"),
    "maxProperties": ("object", len, lambda n, limit: n <= limit, "expected at most {} members"),
}


def _kw_limit(keyword: str) -> Callable[[Schema, Any, Json, int], Check]:
    kind, measure, holds, text = _LIMITS[keyword]

    def compile_limit(schema: Schema, limit: Any, whole: Json, depth: int) -> Check:
        if not is_type(limit, "number"):
            raise ValueError(f"schema: {keyword}: expected number, got {show(limit)}")

        def check(value: Any, path: Any, errors: List[str]) -> None:
            if is_type(value, kind) and not holds(measure(value) if measure else value, limit):
                errors.append(_at(path) + text.format(limit) + f", got {show(value)}")
        return check
    return compile_limit


def _kw_multiple_of(schema: Schema, step: Any, whole: Json, depth: int) -> Check:
    if not is_type(step, "number") or step <= 0:
        raise ValueError(f"schema: multipleOf: expected a number above 0, got {show(step)}")

    def check(value: Any, path: Any, errors: List[str]) -> None:
        if is_type(value, "number"):
            from fractions import Fraction
            # As decimals, not as binary floats: 0.3 is a multiple of 0.1.
            if Fraction(str(value)) % Fraction(str(step)):
                errors.append(_at(path) + f"expected a multiple of {step}, got {show(value)}")
    return check


def _pattern(text: Any) -> Any:
    """An ECMA 262 pattern as a compiled Python one, for what is commonly written."""
    if not isinstance(text, str):
        raise ValueError(f"schema: pattern: expected string, got {show(text)}")
    try:
        return re.compile(re.sub(r"\\d", "[0-9]", text) if "[" not in text else text)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"schema: pattern {show(text)}: {error}") from None


def _kw_pattern(schema: Schema, text: Any, whole: Json, depth: int) -> Check:
    pattern = _pattern(text)

    def check(value: Any, path: Any, errors: List[str]) -> None:
        if isinstance(value, str) and not pattern.search(value):
            errors.append(_at(path) + f"expected text that matches {text}, got {show(value)}")
    return check


def _kw_unique(schema: Schema, unique: Any, whole: Json, depth: int) -> Optional[Check]:
    if unique is not True:
        return None

    def check(value: Any, path: Any, errors: List[str]) -> None:
        if not isinstance(value, list):
            return
        seen: Dict[Any, int] = {}
        for index, item in enumerate(value):
            key = json.dumps(_number_neutral(item), sort_keys=True)
            if seen.setdefault(key, index) != index:
                errors.append(_at((path, index)) + f"the same as item {seen[key]}: {show(item)}")
    return check


def _number_neutral(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _number_neutral(item) for key, item in value.items()}
    return [_number_neutral(item) for item in value] if isinstance(value, list) else value


def _kw_properties(schema: Schema, properties: Any, whole: Json, depth: int) -> Check:
    """properties, patternProperties and additionalProperties, which need each other."""
    known = whole.get("properties", {})
    if not isinstance(known, dict) or not isinstance(whole.get("patternProperties", {}), dict):
        raise ValueError(f"schema: properties: expected object, got {show(known)}")
    named = {name: schema._compile(sub, depth) for name, sub in known.items()}
    matched = [(_pattern(text), schema._compile(sub, depth))
               for text, sub in whole.get("patternProperties", {}).items()]
    other_schema = whole.get("additionalProperties", True)
    other = None if other_schema is True else schema._compile(other_schema, depth)

    def check(value: Any, path: Any, errors: List[str]) -> None:
        if not isinstance(value, dict):
            return
        for name, item in value.items():
            check_named = named.get(name)
            if check_named:
                check_named(item, (path, name), errors)
            found = check_named is not None
            for pattern, check_matched in matched:
                if pattern.search(name):
                    found = True
                    check_matched(item, (path, name), errors)
            if not found and other:
                if other is _check_nothing:
                    errors.append(_at((path, name)) + "unknown" + suggest(name, named))
                else:
                    other(item, (path, name), errors)
    return check


def suggest(name: str, known: Iterable[str]) -> str:
    """How an error text goes on after an unknown name: the nearest known one, or all of a few."""
    import difflib
    names = list(known)
    near = difflib.get_close_matches(name, names, 1, 0.5) if len(name) < 100 else []
    if near:
        return f"; did you mean {near[0]}?"
    return f"; known: {', '.join(names)}" if 0 < len(names) <= 12 else ""


def _kw_required(schema: Schema, names: Any, whole: Json, depth: int) -> Check:
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"schema: required: expected array of strings, got {show(names)}")

    def check(value: Any, path: Any, errors: List[str]) -> None:
        if isinstance(value, dict):
            for name in names:
                if name not in value:
                    errors.append(_at((path, name)) + "required, but missing")
    return check


def _kw_property_names(schema: Schema, sub: Any, whole: Json, depth: int) -> Check:
    check_name = schema._compile(sub, depth)

    def check(value: Any, path: Any, errors: List[str]) -> None:
        if isinstance(value, dict):
            for name in value:
                check_name(name, (path, name), errors)
    return check


def _kw_dependent_required(schema: Schema, rules: Any, whole: Json, depth: int) -> Check:
    def check(value: Any, path: Any, errors: List[str]) -> None:
        if isinstance(value, dict):
            for trigger, names in rules.items():
                if trigger in value:
                    errors.extend(_at((path, name)) + f"required with {trigger}, but missing"
                                  for name in names if name not in value)
    return check


def _kw_dependent_schemas(schema: Schema, rules: Any, whole: Json, depth: int) -> Check:
    compiled = {trigger: schema._compile(sub, depth) for trigger, sub in rules.items()}

    def check(value: Any, path: Any, errors: List[str]) -> None:
        if isinstance(value, dict):
            for trigger, check_rule in compiled.items():
                if trigger in value:
                    check_rule(value, path, errors)
    return check


def _kw_items(schema: Schema, sub: Any, whole: Json, depth: int) -> Check:
    """prefixItems and items: the first for the leading places, the second for the rest."""
    first = [schema._compile(each, depth) for each in whole.get("prefixItems", [])]
    rest = schema._compile(whole.get("items", True), depth)

    def check(value: Any, path: Any, errors: List[str]) -> None:
        if isinstance(value, list):
            for index, item in enumerate(value):
                (first[index] if index < len(first) else rest)(item, (path, index), errors)
    return check


def _kw_contains(schema: Schema, sub: Any, whole: Json, depth: int) -> Check:
    check_item = schema._compile(sub, depth)
    least, most = whole.get("minContains", 1), whole.get("maxContains")

    def check(value: Any, path: Any, errors: List[str]) -> None:
        if isinstance(value, list):
            count = sum(passes(check_item, item) for item in value)
            if count < least:
                errors.append(_at(path) + f"expected at least {least} items that match `contains`, got {count}")
            elif most is not None and count > most:
                errors.append(_at(path) + f"expected at most {most} items that match `contains`, got {count}")
    return check


def passes(check: Check, value: Any) -> bool:
    """Whether a compiled check finds nothing wrong."""
    found: List[str] = []
    check(value, None, found)
    return not found


def _kw_all_of(schema: Schema, subs: Any, whole: Json, depth: int) -> Check:
    compiled = [schema._compile(sub, depth) for sub in subs]

    def check(value: Any, path: Any, errors: List[str]) -> None:
        for each in compiled:
            each(value, path, errors)
    return check


def _kw_any_of(schema: Schema, subs: Any, whole: Json, depth: int) -> Check:
    compiled = [schema._compile(sub, depth) for sub in subs]

    def check(value: Any, path: Any, errors: List[str]) -> None:
        found: List[List[str]] = []
        for each in compiled:
            wrong: List[str] = []
            each(value, path, wrong)
            if not wrong:
                return
            found.append(wrong)
        errors.append(_merge_alternatives(path, value, found))
    return check


def _merge_alternatives(path: Any, value: Any, found: List[List[str]]) -> str:
    """One line for a failed anyOf: `x: expected integer or null, got "a"` where the alternatives are plain types."""
    start, end = _at(path) + "expected ", f", got {show(value)}"
    if all(len(wrong) == 1 and wrong[0].startswith(start) and wrong[0].endswith(end) for wrong in found):
        return start + " or ".join(wrong[0][len(start):len(wrong[0]) - len(end)] for wrong in found) + end
    deepest = max(found, key=lambda wrong: max(text.count(".") + text.count("[") for text in wrong), default=["false"])
    return deepest[0]


def _kw_one_of(schema: Schema, subs: Any, whole: Json, depth: int) -> Check:
    compiled = [schema._compile(sub, depth) for sub in subs]
    named = [sub["const"] for sub in subs if isinstance(sub, dict) and "const" in sub]

    def check(value: Any, path: Any, errors: List[str]) -> None:
        found: List[List[str]] = []
        for each in compiled:
            wrong: List[str] = []
            each(value, path, wrong)
            if wrong:
                found.append(wrong)
        if len(found) == len(compiled):
            if len(named) == len(compiled):
                errors.append(_at(path) + f"expected one of {', '.join(map(show, named))}, got {show(value)}")
            else:
                errors.append(_merge_alternatives(path, value, found))
        elif len(found) < len(compiled) - 1:
            errors.append(_at(path) + f"matches {len(compiled) - len(found)} alternatives of `oneOf`, must match one")
    return check


def _kw_not(schema: Schema, sub: Any, whole: Json, depth: int) -> Check:
    refused = schema._compile(sub, depth)

    def check(value: Any, path: Any, errors: List[str]) -> None:
        if passes(refused, value):
            errors.append(_at(path) + f"not allowed: {show(value)}")
    return check


def _kw_if(schema: Schema, sub: Any, whole: Json, depth: int) -> Check:
    condition = schema._compile(sub, depth)
    then = schema._compile(whole.get("then", True), depth)
    otherwise = schema._compile(whole.get("else", True), depth)

    def check(value: Any, path: Any, errors: List[str]) -> None:
        (then if passes(condition, value) else otherwise)(value, path, errors)
    return check


def _kw_ref(schema: Schema, ref: Any, whole: Json, depth: int) -> Check:
    if not isinstance(ref, str):
        raise ValueError(f"schema: $ref: expected string, got {show(ref)}")
    return schema._resolve(ref, depth)


_KEYWORDS: Dict[str, Callable[[Schema, Any, Json, int], Optional[Check]]] = {
    "$ref": _kw_ref, "type": _kw_type, "enum": _kw_enum, "const": _kw_const,
    **{keyword: _kw_limit(keyword) for keyword in _LIMITS},
    "multipleOf": _kw_multiple_of, "pattern": _kw_pattern, "uniqueItems": _kw_unique,
    "properties": _kw_properties,
    # Any one of the three compiles all of them.
    "patternProperties": lambda schema, sub, whole, depth:
        None if "properties" in whole else _kw_properties(schema, sub, whole, depth),
    "additionalProperties": lambda schema, sub, whole, depth:
        None if "properties" in whole or "patternProperties" in whole else _kw_properties(schema, sub, whole, depth),
    "required": _kw_required, "propertyNames": _kw_property_names,
    "dependentRequired": _kw_dependent_required, "dependentSchemas": _kw_dependent_schemas,
    "items": _kw_items,
    "prefixItems": lambda schema, sub, whole, depth:
        None if "items" in whole else _kw_items(schema, sub, whole, depth),
    "contains": _kw_contains, "allOf": _kw_all_of, "anyOf": _kw_any_of, "oneOf": _kw_one_of, "not": _kw_not,
    "if": _kw_if,
}


def _percent_decode(text: str) -> str:
    if "%" not in text:
        return text
    from urllib.parse import unquote
    return unquote(text, errors="strict")


###############################################################################
# 6. Signatures ###############################################################
###############################################################################
# From a Python function to what the wire says of it, and back: hints to schemas, arguments to values, return values to
# content. Also the content classes, and URI templates. Knows nothing of connections or requests.

def _base64(data: bytes) -> str:
    import binascii
    return binascii.b2a_base64(data, newline=False).decode("ascii")


class _Content:
    """What may stand in a result's `content`: has to_wire()."""
    __slots__ = ()

    def to_wire(self) -> Json:
        raise NotImplementedError


class _Media(_Content):
    __slots__ = ("data", "mime_type", "annotations", "meta")
    _type = ""
    _magic: Tuple[Tuple[bytes, int, str], ...] = ()        # leading bytes, where, MIME type

    def __init__(self, data: Optional[bytes] = None, *, path: Any = None, mime_type: Optional[str] = None,
                 annotations: Optional[Json] = None, meta: Optional[Json] = None) -> None:
        if (data is None) == (path is None):
            raise TypeError(f"{type(self).__name__} takes either data or path=")
        if data is None:
            with open(path, "rb") as file:
                data = file.read()
        self.data, self.annotations, self.meta = bytes(data), annotations, meta
        self.mime_type = mime_type or self._guess(path)

    def _guess(self, path: Any) -> str:
        for magic, at, name in self._magic:
            if self.data[at:at + len(magic)] == magic:
                return name
        if path is not None:
            import mimetypes
            name = mimetypes.guess_type(str(path))[0] or ""
            if name.startswith(self._type + "/"):
                return name
        raise ValueError(f"{type(self).__name__}: cannot tell the MIME type; give mime_type=")

    def to_wire(self) -> Json:
        """The content block, its data in base64."""
        block = {"type": self._type, "data": _base64(self.data), "mimeType": self.mime_type}
        return _with(block, annotations=self.annotations, _meta=self.meta)


class Image(_Media):
    """An image a tool or prompt returns: bytes, or the file at `path`. The MIME type is told from the bytes."""
    __slots__ = ()
    _type = "image"
    _magic = ((b"\x89PNG\r\n", 0, "image/png"), (b"\xff\xd8\xff", 0, "image/jpeg"), (b"GIF8", 0, "image/gif"),
              (b"WEBP", 8, "image/webp"), (b"BM", 0, "image/bmp"), (b"<svg", 0, "image/svg+xml"))


class Audio(_Media):
    """Sound a tool or prompt returns: bytes, or the file at `path`. Since 2025-03-26; older clients get a blob."""
    __slots__ = ()
    _type = "audio"
    _magic = ((b"WAVE", 8, "audio/wav"), (b"ID3", 0, "audio/mpeg"), (b"\xff\xfb", 0, "audio/mpeg"),
              (b"OggS", 0, "audio/ogg"), (b"fLaC", 0, "audio/flac"))


class EmbeddedResource(_Content):
    """A resource's text or bytes inside a result: server/tools.md#embedded-resources."""
    __slots__ = ("uri", "content", "mime_type", "annotations", "meta")

    def __init__(self, uri: str, text_or_bytes: Union[str, bytes], *, mime_type: Optional[str] = None,
                 annotations: Optional[Json] = None, meta: Optional[Json] = None) -> None:
        self.uri, self.content, self.mime_type = uri, text_or_bytes, mime_type
        self.annotations, self.meta = annotations, meta

    def to_wire(self) -> Json:
        """The content block."""
        resource = resource_contents(self.uri, self.content, self.mime_type)
        return _with({"type": "resource", "resource": resource}, annotations=self.annotations, _meta=self.meta)


class ResourceLink(_Content):
    """A link to a resource that the client may read: server/tools.md#resource-links. Since 2025-06-18; older clients
    get its URI as text."""
    __slots__ = ("wire",)

    def __init__(self, uri: str, name: str, *, title: Optional[str] = None, description: Optional[str] = None,
                 mime_type: Optional[str] = None, size: Optional[int] = None, annotations: Optional[Json] = None,
                 icons: Optional[List[Json]] = None, meta: Optional[Json] = None) -> None:
        self.wire = _with({"type": "resource_link", "uri": uri, "name": name}, title=title, description=description,
                          mimeType=mime_type, size=size, annotations=annotations, icons=icons, _meta=meta)

    def to_wire(self) -> Json:
        """The content block."""
        return dict(self.wire)


class Message:
    """One message of a prompt, or of a conversation to sample from. `content` is text, a content object, a wire
    block, or a list of those; `role` is "user" or "assistant"."""
    __slots__ = ("content", "role")

    def __init__(self, content: Any, role: str = "user") -> None:
        if role not in ("user", "assistant"):
            raise ValueError(f'role: expected "user" or "assistant", got {show(role)}')
        self.content, self.role = content, role

    def to_wire(self) -> Json:
        """{"role", "content"}, the content one block, or a list of blocks if one was given."""
        many = isinstance(self.content, (list, tuple))
        content: Any = [_block(item) for item in self.content] if many else _block(self.content)
        return {"role": self.role, "content": content}


class Param:
    """What a parameter's schema should say beyond its type, inside Annotated: `Annotated[int, Param("how many", ge=1)]`.

    `description`; `ge`, `gt`, `le`, `lt` for numbers; `min_length`, `max_length` for text and lists; `pattern` for
    text; `examples`; `header`, the name to mirror the value under in HTTP."""
    __slots__ = ("wire",)

    def __init__(self, description: Optional[str] = None, *, ge: Optional[float] = None, gt: Optional[float] = None,
                 le: Optional[float] = None, lt: Optional[float] = None, min_length: Optional[int] = None,
                 max_length: Optional[int] = None, pattern: Optional[str] = None, examples: Optional[List[Any]] = None,
                 header: Optional[str] = None) -> None:
        self.wire = _with({}, description=description, minimum=ge, exclusiveMinimum=gt, maximum=le,
                          exclusiveMaximum=lt, minLength=min_length, maxLength=max_length, pattern=pattern,
                          examples=examples, **{"x-mcp-header": header})

    def apply(self, schema: Json) -> Json:
        """The schema with these members; lengths become minItems and maxItems for a list."""
        more = dict(self.wire)
        if schema.get("type") == "array":
            for length, items in (("minLength", "minItems"), ("maxLength", "maxItems")):
                if length in more:
                    more[items] = more.pop(length)
        return {**schema, **more}


def _with(wire: Json, **members: Any) -> Json:
    """The object with those members that are not None."""
    wire.update((name, value) for name, value in members.items() if value is not None)
    return wire


def resource_contents(uri: str, content: Union[str, bytes], mime_type: Optional[str]) -> Json:
    """The wire's {"uri", "mimeType", "text" or "blob"}."""
    wire = _with({"uri": uri}, mimeType=mime_type)
    if isinstance(content, str):
        wire["text"] = content
    else:
        wire["blob"] = _base64(bytes(content))
    return wire


def _block(item: Any) -> Json:
    """A content block for text, a content object, or a wire block. Raises TypeError for anything else."""
    if isinstance(item, str):
        return {"type": "text", "text": item}
    if isinstance(item, _Content):
        return item.to_wire()
    if isinstance(item, dict) and isinstance(item.get("type"), str):
        return item
    raise TypeError(f"content: expected text, Image, Audio, EmbeddedResource, ResourceLink or a content block, "
                    f"got {type(item).__name__}")


def fit_block(block: Json, version: str) -> Json:
    """A content block as a revision knows it: older ones have no audio (a blob then) and no links (text then)."""
    if block.get("type") == "audio" and version < "2025-03-26":
        resource = {"uri": "data:", "mimeType": block["mimeType"], "blob": block["data"]}
        return {"type": "resource", "resource": resource}
    if block.get("type") == "resource_link" and version < "2025-06-18":
        return {"type": "text", "text": block["uri"]}
    return block


def fit_members(wire: Json, version: str) -> Json:
    """A definition without the members that the revision does not know yet."""
    return {name: value for name, value in wire.items() if MEMBER_SINCE.get(name, OLDEST) <= version}


# Hints ----------------------------------------------------------------------

class Hint:
    """What a type hint means: its schema, and how a valid wire value becomes a Python value (None: as it is).
    `schema` is None where the wire has content blocks instead."""
    __slots__ = ("schema", "convert")

    def __init__(self, schema: Optional[Json], convert: Optional[Callable[[Any], Any]] = None) -> None:
        self.schema, self.convert = schema, convert


_PLAIN: Dict[Any, Tuple[Json, Optional[Callable[[Any], Any]]]] = {
    str: ({"type": "string"}, None), int: ({"type": "integer"}, int), float: ({"type": "number"}, float),
    bool: ({"type": "boolean"}, None), None: ({"type": "null"}, None), type(None): ({"type": "null"}, None),
    dict: ({"type": "object"}, None), list: ({"type": "array"}, None), object: ({}, None),
    tuple: ({"type": "array"}, tuple), set: ({"type": "array", "uniqueItems": True}, set),
    frozenset: ({"type": "array", "uniqueItems": True}, frozenset),
}


def describe(hint: Any) -> Hint:
    """The meaning of a type hint. Raises TypeError for what the wire cannot say."""
    if isinstance(hint, type) and issubclass(hint, (_Content, Message)):
        return Hint(None)
    origin = getattr(hint, "__origin__", None)
    if origin is None or origin is hint:
        return _describe_class(hint)
    if hasattr(hint, "__metadata__"):
        return _describe_annotated(hint)
    arguments = getattr(hint, "__args__", ())
    name = getattr(origin, "__name__", None) or getattr(origin, "_name", None) or str(origin)
    describe_generic = _GENERICS.get(name)
    if describe_generic is None:
        raise TypeError(f"{hint!r} has no JSON Schema")
    return describe_generic(arguments)


def _describe_class(hint: Any) -> Hint:
    try:
        if hint in _PLAIN:
            schema, convert = _PLAIN[hint]
            return Hint(dict(schema), convert)
    except TypeError:                        # not hashable
        pass
    name = getattr(hint, "_name", None) or getattr(hint, "__name__", None)
    if name == "Any":
        return Hint({})
    if type(hint).__name__ == "UnionType":   # X | Y, since Python 3.10
        return _describe_union(hint.__args__)
    if hasattr(hint, "__supertype__"):       # NewType
        return describe(hint.__supertype__)
    if isinstance(hint, type):
        if "enum" in sys.modules and issubclass(hint, sys.modules["enum"].Enum):
            return _describe_enum(hint)
        if hasattr(hint, "__dataclass_fields__"):
            return _describe_dataclass(hint)
        if hasattr(hint, "__total__") and hasattr(hint, "__annotations__"):
            return _describe_typed_dict(hint)
    raise TypeError(f"{getattr(hint, '__name__', repr(hint))} has no JSON Schema; use a plain type, an Enum, a "
                    f"TypedDict or a dataclass")


def _describe_annotated(hint: Any) -> Hint:
    inner = describe(hint.__origin__)
    for note in hint.__metadata__:
        if isinstance(note, str):
            note = Param(note)
        if isinstance(note, Param) and inner.schema is not None:
            inner = Hint(note.apply(inner.schema), inner.convert)
    return inner


def _describe_union(arguments: Any) -> Hint:
    hints = [describe(argument) for argument in arguments]
    schemas = [hint.schema for hint in hints if hint.schema is not None]
    if len(schemas) < len(hints):
        return Hint(None)
    if not any(hint.convert for hint in hints):
        return Hint({"anyOf": schemas})
    compiled = [(Schema(hint.schema), hint.convert) for hint in hints]

    def convert(value: Any) -> Any:
        for schema, convert_alternative in compiled:
            if not schema.errors(value):
                return convert_alternative(value) if convert_alternative else value
        return value
    return Hint({"anyOf": schemas}, convert)


def _describe_literal(values: Any) -> Hint:
    schema: Json = {"enum": list(values)}
    kinds = {name for value in values for name in ("string", "boolean", "integer", "null") if is_type(value, name)}
    return Hint({"type": kinds.pop(), **schema} if len(kinds) == 1 else schema)


def _describe_enum(hint: Any) -> Hint:
    schema = _describe_literal([member.value for member in hint]).schema
    return Hint(schema, hint)


def _describe_list(make: Callable[[Any], Any], unique: bool = False) -> Callable[[Any], Hint]:
    def describe_items(arguments: Any) -> Hint:
        if not arguments or type(arguments[0]).__name__ == "TypeVar":
            arguments = (object,)
        item = describe(arguments[0])
        if item.schema is None:
            return Hint(None)
        schema: Json = {"type": "array", "items": item.schema} if item.schema else {"type": "array"}
        if unique:
            schema["uniqueItems"] = True
        convert_item = item.convert
        if convert_item is None:
            return Hint(schema, None if make is list else make)
        return Hint(schema, lambda value: make(map(convert_item, value)))
    return describe_items


def _describe_tuple(arguments: Any) -> Hint:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return _describe_list(tuple)(arguments[:1])
    hints = [describe(argument) for argument in arguments]
    schemas = [hint.schema for hint in hints if hint.schema is not None]
    if len(schemas) < len(hints):
        return Hint(None)
    schema: Json = {"type": "array", "prefixItems": schemas, "minItems": len(hints), "maxItems": len(hints)}
    return Hint(schema, lambda value: tuple(_convert(hint, item) for hint, item in zip(hints, value)))


def _convert(hint: Hint, value: Any) -> Any:
    return hint.convert(value) if hint.convert else value


def _describe_dict(arguments: Any) -> Hint:
    if len(arguments) != 2 or type(arguments[1]).__name__ == "TypeVar":
        return Hint({"type": "object"})
    if arguments[0] not in (str, object) and getattr(arguments[0], "__name__", "") != "Any":
        raise TypeError(f"dict keys: expected str, got {arguments[0]!r}")
    item = describe(arguments[1])
    schema: Json = {"type": "object", "additionalProperties": item.schema} if item.schema else {"type": "object"}
    convert_item = item.convert
    if convert_item is None:
        return Hint(schema)
    return Hint(schema, lambda value: {key: convert_item(each) for key, each in value.items()})


def _object_hint(hints: Dict[str, Hint], required: List[str], defaults: Json, make: Callable[..., Any]) -> Hint:
    """An object with these members, its converted value made by make(**members)."""
    properties = {name: dict(hint.schema or {}) for name, hint in hints.items()}
    for name, value in defaults.items():
        properties[name]["default"] = value
    schema: Json = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required

    def convert(value: Any) -> Any:
        return make(**{name: _convert(hints[name], item) for name, item in value.items() if name in hints})
    return Hint(schema, convert)


def _describe_dataclass(hint: Any) -> Hint:
    from dataclasses import MISSING, fields
    annotations = _class_hints(hint)
    shown = [field for field in fields(hint) if field.init]
    required = [field.name for field in shown if field.default is MISSING and field.default_factory is MISSING]
    defaults = {field.name: to_plain(field.default) for field in shown if field.default is not MISSING}
    return _object_hint({field.name: describe(annotations[field.name]) for field in shown}, required, defaults, hint)


def _describe_typed_dict(hint: Any) -> Hint:
    annotations = _class_hints(hint)
    required = sorted(getattr(hint, "__required_keys__", annotations if hint.__total__ else ()),
                      key=list(annotations).index)
    return _object_hint({name: describe(each) for name, each in annotations.items()}, required, {}, dict)


_GENERICS: Dict[str, Callable[[Any], Hint]] = {
    "Union": _describe_union, "Literal": _describe_literal, "tuple": _describe_tuple, "dict": _describe_dict,
    "list": _describe_list(list), "set": _describe_list(set, True), "frozenset": _describe_list(frozenset, True),
    "Mapping": _describe_dict, "Sequence": _describe_list(list), "Iterable": _describe_list(list),
    "Required": lambda arguments: describe(arguments[0]), "NotRequired": lambda arguments: describe(arguments[0]),
    "Final": lambda arguments: describe(arguments[0]), "ClassVar": lambda arguments: Hint(None),
}


def _class_hints(owner: Any) -> Dict[str, Any]:
    found: Dict[str, Any] = {}
    for cls in reversed(owner.__mro__):
        names = vars(sys.modules.get(cls.__module__, sys.modules[__name__]))
        for name, hint in getattr(cls, "__annotations__", {}).items() if cls is not object else ():
            found[name] = _resolve_hint(hint, names)
    return found


def _resolve_hint(hint: Any, names: Dict[str, Any]) -> Any:
    """A hint as an object: strings are evaluated in `names`, also what Python before 3.10 cannot (`X | Y`, list[X])."""
    text = hint if isinstance(hint, str) else getattr(hint, "__forward_arg__", None)
    if text is None:
        return hint
    try:
        return eval(text, dict(names))
    except TypeError:
        return eval(_old_spelling(text), dict(names))


def _old_spelling(text: str) -> Any:
    """The compiled hint with `X | Y` as Union and list[X] as List[X], for Python 3.8 and 3.9."""
    import ast

    class Respell(ast.NodeTransformer):
        def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
            self.generic_visit(node)
            return self._typing("Union", ast.Tuple([node.left, node.right], ast.Load()))

        def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
            self.generic_visit(node)
            name = node.value.id if isinstance(node.value, ast.Name) else ""
            respelled = {"list": "List", "dict": "Dict", "tuple": "Tuple", "set": "Set", "frozenset": "FrozenSet"}
            return self._typing(respelled[name], node.slice) if name in respelled else node

        def _typing(self, name: str, inner: Any) -> ast.AST:
            module = ast.Call(ast.Name("__import__", ast.Load()), [ast.Constant("typing", None)], [])
            return ast.Subscript(ast.Attribute(module, name, ast.Load()), inner, ast.Load())
    tree = Respell().visit(ast.parse(text, mode="eval"))
    return compile(ast.fix_missing_locations(tree), "<hint>", "eval")


# Functions ------------------------------------------------------------------

class Parameter:
    """One parameter of a function: its name, hint, default (or Parameter.NONE)."""
    __slots__ = ("name", "hint", "default")
    NONE: Any = object()

    def __init__(self, name: str, hint: Any, default: Any) -> None:
        self.name, self.hint, self.default = name, hint, default


def read_parameters(fn: Callable[..., Any]) -> Tuple[List[Parameter], Any]:
    """A function's parameters and its return hint (Parameter.NONE without one). Raises TypeError for *args and
    positional-only parameters, which have no names on the wire. Reads the code object: `inspect` is slow to import."""
    inner: Any = fn
    while hasattr(inner, "__wrapped__"):
        inner = inner.__wrapped__
    skip = 1 if getattr(inner, "__self__", None) is not None and hasattr(inner, "__func__") else 0
    inner = getattr(inner, "__func__", inner)
    code = getattr(inner, "__code__", None)
    if code is None:
        if callable(inner) and hasattr(type(inner), "__call__") and hasattr(type(inner).__call__, "__code__"):
            return read_parameters(inner.__call__)
        raise TypeError(f"{fn!r}: expected a Python function, or an object whose class defines __call__")
    if code.co_flags & 0x0C or getattr(code, "co_posonlyargcount", 0) > skip:
        raise TypeError(f"{inner.__name__}: *args, **kwargs and positional-only parameters have no name on the wire; "
                        f"give each parameter a name")
    names = code.co_varnames[:code.co_argcount + code.co_kwonlyargcount]
    defaults = dict(zip(reversed(names[:code.co_argcount]), reversed(inner.__defaults__ or ())))
    defaults.update(inner.__kwdefaults__ or {})
    scope = dict(inner.__globals__)
    scope.update((name, cell.cell_contents) for name, cell in zip(code.co_freevars, inner.__closure__ or ()) if _full(cell))
    hints: Dict[str, Any] = {}
    for name, hint in (getattr(inner, "__annotations__", None) or {}).items():
        try:
            hints[name] = _resolve_hint(hint, scope)
        except Exception as error:
            raise TypeError(f"{inner.__name__}: {name}: cannot evaluate the hint {hint!r}: {error}") from None
    parameters = [Parameter(name, hints.get(name, object), defaults.get(name, Parameter.NONE)) for name in names[skip:]]
    return parameters, hints.get("return", Parameter.NONE)


def _full(cell: Any) -> bool:
    try:
        cell.cell_contents
    except ValueError:
        return False
    return True


def describe_doc(fn: Any) -> Optional[str]:
    """A docstring without its indentation, or None."""
    doc = getattr(fn, "__doc__", None)
    if not isinstance(doc, str) or not doc.strip():
        return None
    lines = doc.expandtabs().strip().splitlines()
    margin = min((len(line) - len(line.lstrip()) for line in lines[1:] if line.strip()), default=0)
    return "\n".join([lines[0]] + [line[margin:].rstrip() for line in lines[1:]])


class Signature:
    """A function as the wire sees it: the schema of its arguments, and how they are checked and converted."""
    __slots__ = ("fn", "name", "context", "schema", "returns", "hints", "_compiled", "_converts", "_decodes")

    def __init__(self, fn: Callable[..., Any], context_type: type, schema: Optional[Json] = None) -> None:
        self.fn, self.name = fn, getattr(fn, "__name__", type(fn).__name__)
        parameters, self.returns = read_parameters(fn)
        self.context: Optional[str] = None       # the name of the parameter that takes the Context
        self.hints: Dict[str, Hint] = {}
        properties: Json = {}
        required: List[str] = []
        for parameter in parameters:
            if parameter.hint is context_type:
                self.context = parameter.name
                continue
            try:
                hint = describe(parameter.hint)
                if hint.schema is None:
                    raise TypeError("content cannot be an argument")
                properties[parameter.name] = self._with_default(hint.schema, parameter)
            except TypeError as error:
                raise TypeError(f"{self.name}: {parameter.name}: {error}") from None
            self.hints[parameter.name] = hint
            if parameter.default is Parameter.NONE:
                required.append(parameter.name)
        self.schema: Json = {"type": "object", "properties": properties, "additionalProperties": False}
        if required:
            self.schema["required"] = required
        if schema is not None:
            self.schema, self.hints = schema, {}
        self._compiled = Schema(self.schema)
        self._converts = [(name, hint.convert) for name, hint in self.hints.items() if hint.convert]
        self._decodes = [name for name, hint in self.hints.items()
                         if hint.schema and hint.schema.get("type") in ("array", "object")]

    @staticmethod
    def _with_default(schema: Json, parameter: Parameter) -> Json:
        if parameter.default is Parameter.NONE:
            return schema
        try:
            default = to_plain(parameter.default)
            encode_json(default)
        except (TypeError, ValueError):
            return schema                        # a default that JSON cannot say stays Python's business
        return {**schema, "default": default}

    def bind(self, arguments: Json) -> Json:
        """The keyword arguments for the function. Raises InvalidParams, every error in one text."""
        for name in self._decodes:
            # Some models send a list or an object as a string of JSON.
            if isinstance(arguments.get(name), str):
                try:
                    arguments = {**arguments, name: parse_message(arguments[name].encode("utf-8", "surrogatepass"))}
                except McpError:
                    continue
        errors = self._compiled.errors(arguments)
        if errors:
            raise InvalidParams("; ".join(errors[:20]))
        if not self._converts:
            return dict(arguments)
        bound = dict(arguments)
        for name, convert in self._converts:
            if name in bound:
                try:
                    bound[name] = convert(bound[name])
                except (ValueError, TypeError, OverflowError) as error:
                    raise InvalidParams(f"{name}: {error}") from None
        return bound

    def bind_text(self, arguments: Dict[str, Any]) -> Json:
        """The same from strings, as prompts and URI templates have them: "3" is an integer where one is expected."""
        return self.bind({name: self._from_text(name, value) for name, value in arguments.items()})

    def _from_text(self, name: str, text: Any) -> Any:
        hint = self.hints.get(name)
        if not isinstance(text, str) or hint is None or not hint.schema or not Schema(hint.schema).errors(text):
            return text
        try:
            value = parse_message(text.encode("utf-8", "surrogatepass"))
        except McpError:
            return text
        return value if not isinstance(value, str) else text

    def completions(self, name: str) -> List[str]:
        """The values that an argument's type allows, when they are few and known: Literal, Enum, bool."""
        schema = self.schema.get("properties", {}).get(name, {})
        for each in schema.get("anyOf", [schema]):
            if "enum" in each:
                return [value if isinstance(value, str) else encode_json(value) for value in each["enum"]]
            if each.get("type") == "boolean":
                return ["true", "false"]
        return []


def to_plain(value: Any) -> Any:
    """A Python value as JSON has it: dataclasses and named tuples become objects, enums their values, sets lists.
    Raises TypeError for what has no such form."""
    if value is None or isinstance(value, (str, int, float)):
        return value.value if "enum" in sys.modules and isinstance(value, sys.modules["enum"].Enum) else value
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(to_plain(key)): to_plain(item) for key, item in value.items()}
    if hasattr(value, "_asdict"):
        return to_plain(value._asdict())
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_plain(item) for item in value]
    if hasattr(value, "__dataclass_fields__") and not isinstance(value, type):
        return {name: to_plain(getattr(value, name)) for name in value.__dataclass_fields__}
    if "enum" in sys.modules and isinstance(value, sys.modules["enum"].Enum):
        return to_plain(value.value)
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if hasattr(value, "__fspath__"):
        return os.fspath(value)
    raise TypeError(f"a {type(value).__name__} has no JSON form")


# Results --------------------------------------------------------------------

# Hints that say too little for an outputSchema: each value decides. A bare list may hold images.
_UNTYPED_RETURNS = (Parameter.NONE, None, type(None), object, list, tuple)


class Output:
    """What a tool returns: decided once from its hint and options, then applied to every value.

    Text and content objects become content blocks. Everything else is structured: `structuredContent`, and the same as
    JSON in a text block for clients that read only that. What is no object is wrapped as {"result": value}."""
    __slots__ = ("schema", "structured", "wrapped", "_compiled")

    def __init__(self, returns: Any, schema: Optional[Json], structured: Optional[bool], name: str) -> None:
        self.structured = structured                # None: decided by each value
        self.schema = schema
        if schema is None and structured is not False and returns not in _UNTYPED_RETURNS:
            try:
                found = describe(returns).schema
            except TypeError as error:
                if structured:
                    raise TypeError(f"{name}: return: {error}") from None
                found = None
            if found and (found != {"type": "string"} or structured):
                self.schema, self.structured = found, True
        self.wrapped = self.schema is not None and self.schema.get("type") != "object"
        if self.wrapped:
            self.schema = {"type": "object", "properties": {"result": self.schema}, "required": ["result"]}
        self._compiled = Schema(self.schema) if self.schema is not None else None

    def result(self, value: Any) -> Json:
        """The result of tools/call for a returned value. Raises TypeError or ValueError for what does not fit."""
        if not self.structured and (self.structured is False or not self._is_data(value)):
            items = value if isinstance(value, (list, tuple)) else [] if value is None else [value]
            return {"content": [_block(item if isinstance(item, (str, _Content, dict)) else encode_json(to_plain(item)))
                                for item in items]}
        plain = to_plain(value)
        text = encode_json(plain)
        if self.wrapped or not isinstance(plain, dict):
            plain = {"result": plain}
        if self._compiled:
            errors = self._compiled.errors(plain)
            if errors:
                raise ValueError("the result does not match its outputSchema: " + "; ".join(errors[:5]))
        return {"content": [{"type": "text", "text": text}], "structuredContent": plain}

    @staticmethod
    def _is_data(value: Any) -> bool:
        if isinstance(value, (list, tuple)) and any(isinstance(item, _Content) for item in value):
            return False
        return not (value is None or isinstance(value, (str, _Content)))


def unwrap_result(result: Json) -> Any:
    """The Python value in a result of tools/call: its structured content, else its text, else its blocks."""
    blocks = [block for block in result.get("content") or [] if isinstance(block, dict)]
    if "structuredContent" in result:
        value = result["structuredContent"]
        if isinstance(value, dict) and list(value) == ["result"]:
            # A wrapped value and an object that happens to look like one differ in the text beside them.
            try:
                if len(blocks) == 1 and is_same(json.loads(blocks[0].get("text", "")), value):
                    return value
            except (ValueError, TypeError, RecursionError):
                pass
            return value["result"]
        return value
    texts = [block.get("text", "") for block in blocks if block.get("type") == "text"]
    if len(texts) == len(blocks):
        return "\n".join(map(str, texts)) if texts else None
    return blocks[0] if len(blocks) == 1 else blocks


def prompt_messages(value: Any) -> List[Json]:
    """The messages of prompts/get for what a prompt function returned. Raises TypeError for what it may not."""
    messages = []
    for item in value if isinstance(value, (list, tuple)) else [value]:
        if isinstance(item, dict) and "role" in item:
            messages.append(Message(item.get("content"), item["role"]).to_wire())
        else:
            messages.append((item if isinstance(item, Message) else Message(item)).to_wire())
    return messages


# URI templates --------------------------------------------------------------

class UriTemplate:
    """A template of RFC 6570, as far as matching needs it: {x}, {x,y}, {+x}, {/x}, {/x*}, {?a,b}, {&a}.

    What {x} matched may not smuggle a path: a value that decodes to something with a ".." step, an absolute path or a
    NUL does not match. {+x} takes those too, and slashes; whoever declares it checks the value."""
    __slots__ = ("template", "names", "query", "_regex", "_lists", "_free")
    _EXPRESSION = re.compile(r"\{([+/?&]?)([A-Za-z_][\w]*\*?(?:,[A-Za-z_][\w]*\*?)*)\}")

    def __init__(self, template: str) -> None:
        self.template = template
        self.names: List[str] = []
        self.query: List[str] = []
        self._lists: List[str] = []
        self._free: List[str] = []
        pattern, at = "", 0
        for match in self._EXPRESSION.finditer(template):
            pattern += self._literal(template[at:match.start()]) + self._expression(match.group(1), match.group(2))
            at = match.end()
        pattern += self._literal(template[at:])
        if len(set(self.names)) < len(self.names):
            raise ValueError(f"URI template {show(template)}: a name stands in it twice")
        self._regex = re.compile(pattern + (r"(?:\?(?P<query_>[^#]*))?" if self.query else ""), re.DOTALL)

    def _literal(self, text: str) -> str:
        if "{" in text or "}" in text:
            raise ValueError(f"URI template {show(self.template)}: cannot read {show(text)}; "
                             f"expected {{x}}, {{+x}}, {{/x*}} or {{?a,b}}")
        return re.escape(text)

    def _expression(self, operator: str, names: str) -> str:
        parts = []
        for name in names.split(","):
            name, many = name.rstrip("*"), name.endswith("*")
            self.names.append(name)
            if operator in ("?", "&"):
                self.query.append(name)
                continue
            if operator == "+":
                self._free.append(name)
            if many:
                self._lists.append(name)
            one = ".+" if operator == "+" else "[^/?#,]+" if "," in names else "[^/?#]+"
            parts.append((f"(?P<{name}>(?:/[^/?#]+)*)" if many else f"/(?P<{name}>{one})") if operator == "/"
                         else f"(?P<{name}>{one})")
        return ("" if operator == "/" else ",").join(parts)

    def match(self, uri: str) -> Optional[Dict[str, Any]]:
        """The values in a URI, decoded; a list for {/x*}; without the query's absent names. None: not of this form."""
        found = self._regex.fullmatch(uri)
        if found is None:
            return None
        values: Dict[str, Any] = {}
        try:
            for name in self.names:
                if name in self._lists:
                    values[name] = [_percent_decode(part) for part in found.group(name).split("/")[1:]]
                elif name not in self.query:
                    values[name] = _percent_decode(found.group(name))
            if self.query:
                values.update(self._parse_query(found.group("query_") or ""))
        except UnicodeDecodeError:
            return None
        for name, value in values.items():
            if name not in self._free and any(map(_smuggles, value if isinstance(value, list) else [value])):
                return None
        return values

    def _parse_query(self, text: str) -> Dict[str, str]:
        pairs = (part.partition("=") for part in text.split("&") if part)
        return {_percent_decode(name): _percent_decode(value.replace("+", " ")) for name, _, value in pairs
                if _percent_decode(name) in self.query}


def _smuggles(value: str) -> bool:
    """Whether a decoded value would leave the place it was meant for, if it were used in a path."""
    return "\0" in value or value.startswith(("/", "\\")) or value[1:2] == ":" and value[:1].isalpha() \
        or ".." in re.split(r"[/\\]", value)


###############################################################################
# 7. Framing ##################################################################
###############################################################################
# Bytes to values and back, no I/O. A message is a line (basic/transports/stdio.md): UTF-8, ended by \n, \r\n accepted.

class LineFramer:
    """Lines out of bytes that arrive in any pieces. A line over the limit is skipped without being kept."""
    __slots__ = ("limit", "_parts", "_size", "_skipping")

    def __init__(self, limit: int = MAX_MESSAGE) -> None:
        self.limit = limit
        self._parts: List[bytes] = []            # the unfinished line
        self._size = 0
        self._skipping = False

    def feed(self, data: bytes) -> List[Optional[bytes]]:
        """The lines that these bytes complete, without their ends; blank ones are left out. None stands for a line
        that was too long."""
        lines: List[Optional[bytes]] = []
        *ended, rest = data.split(b"\n")
        for piece in ended:
            if self._parts:
                self._parts.append(piece)
                self._size += len(piece)
                piece = b"".join(self._parts)
                self._parts, self._size = [], 0
            if self._skipping:
                self._skipping = False
            elif len(piece) > self.limit:
                lines.append(None)
            elif piece and not piece.isspace():
                lines.append(piece)
        if rest and not self._skipping:
            self._parts.append(rest)
            self._size += len(rest)
            if self._size > self.limit:
                self._parts, self._size, self._skipping = [], 0, True
                lines.append(None)
        return lines

    def end(self) -> List[Optional[bytes]]:
        """What is left when the stream ends without a line break."""
        return self.feed(b"\n")


###############################################################################
# 8. Protocol #################################################################
###############################################################################
# One conversation, seen from one side, without I/O, locks or clocks: which message may come now, in which revision and
# era, and what it means. `receive` is the one gate. A request is registered before anybody works on it, and ends when
# somebody pops it: an answer and a cancellation may race, the dict decides.

class Request:
    """One request of the peer's, from its admission to its end. `cancelled` turns true once; `waiters` are queues to
    wake then, `callbacks` the handler's own functions to run then."""
    __slots__ = ("id", "method", "params", "meta", "row", "version", "modern", "capabilities", "client_info",
                 "log_level", "batch", "cancelled", "waiters", "callbacks", "progress")

    def __init__(self, message: Json, version: str) -> None:
        self.id: RequestId = message["id"]
        self.method: str = message["method"]
        self.params: Json = message.get("params") or {}
        self.meta: Json = {}
        self.row = METHODS.get(self.method)
        self.version, self.modern = version, False
        self.capabilities: Json = {}
        self.client_info: Json = {}
        self.log_level = ""
        self.batch: Optional[Batch] = None
        self.cancelled = False
        self.waiters: List[SimpleQueue[Any]] = []
        self.callbacks: List[Callable[[], Any]] = []
        self.progress = float("-inf")            # the last value told; it must increase

    @property
    def progress_token(self) -> Optional[RequestId]:
        """What the peer wants progress told under, or None."""
        token = self.meta.get("progressToken")
        return token if is_id(token) else None


class Notification:
    """A notification that may come now. `row` is None for a method the table does not know."""
    __slots__ = ("method", "params", "row")

    def __init__(self, method: str, params: Json, row: Optional[Method]) -> None:
        self.method, self.params, self.row = method, params, row


class Answer:
    """The answer to a request of ours: what was registered for it, and a result or an error (the peer's, or the
    reason why none will come)."""
    __slots__ = ("pending", "result", "error")

    def __init__(self, pending: Any, result: Optional[Json], error: Optional[Exception]) -> None:
        self.pending, self.result, self.error = pending, result, error


class Refusal:
    """A message that may not come now. `reply` is what to send, or None where silence is the rule; `why` for the log."""
    __slots__ = ("reply", "why")

    def __init__(self, why: str, reply: Optional[Json] = None) -> None:
        self.why, self.reply = why, reply


class Batch:
    """A JSON-RPC batch of 2025-03-26 in work: its answers leave as one array when the last is there."""
    __slots__ = ("open", "answers")

    def __init__(self) -> None:
        self.open = 0                            # requests not yet answered; guarded by Connection._lock
        self.answers: List[Json] = []


class Protocol:
    """One side of one conversation. `role` is "client" or "server"; `capabilities()` tells what this side declares.

    A server makes one per stdio process, per legacy HTTP session, or per modern HTTP request; a client one per
    connection. The legacy handshake sets `version`, `peer_info` and `peer_capabilities`; modern requests bring their
    own and leave no trace here."""
    __slots__ = ("role", "capabilities", "version", "initialized", "peer_info", "peer_capabilities", "log_level",
                 "subscribed", "pending", "in_flight", "next_id")

    def __init__(self, role: str, capabilities: Callable[[], Json]) -> None:
        self.role, self.capabilities = role, capabilities
        self.version = ""                        # of the session; on the client also a modern one
        self.initialized = False
        self.peer_info: Json = {}
        self.peer_capabilities: Json = {}
        self.log_level = "info"                  # before logging/setLevel "the server MAY decide"
        self.subscribed: Dict[str, bool] = {}    # the URIs of resources/subscribe
        self.pending: Dict[RequestId, Any] = {}          # our requests: id -> who waits
        self.in_flight: Dict[RequestId, Request] = {}    # the peer's requests: id -> Request
        self.next_id = itertools.count(1).__next__

    # Receiving

    def receive(self, message: Any) -> Any:
        """Judge one decoded message: a Request (now in flight), a Notification, an Answer or a Refusal."""
        try:
            kind = check_envelope(message)
        except InvalidRequest as error:
            return self._refuse_envelope(message, error)
        if kind == "request":
            return self._receive_request(message)
        return self._receive_notification(message) if kind == "notification" else self._receive_response(message)

    def _refuse_envelope(self, message: Any, error: McpError) -> Any:
        if isinstance(message, dict) and "method" not in message and ("result" in message or "error" in message):
            # An answer is never answered. If it says whose it is, nobody needs to wait on.
            found = self.pending.pop(message.get("id"), None) if is_id(message.get("id")) else None
            return Refusal(str(error)) if found is None else \
                Answer(found, None, InternalError(f"the peer's answer is not valid: {error}"))
        if isinstance(message, dict) and isinstance(message.get("method"), str) and "id" not in message:
            return Refusal(str(error))
        known = message.get("id") if isinstance(message, dict) and is_id(message.get("id")) else None
        return Refusal(str(error), error_message(known, error))

    def _receive_request(self, message: Json) -> Any:
        request = Request(message, self.version)
        try:
            self._admit(request)
        except McpError as error:
            return Refusal(str(error), error_message(request.id, error))
        if request.id in self.in_flight:
            # Answering with that id would answer the request that owns it.
            busy = InvalidRequest(f"id {show(request.id)} is in flight already")
            return Refusal(str(busy), error_message(None, busy))
        self.in_flight[request.id] = request
        return request

    def _admit(self, request: Request) -> None:
        """Whether this request may come now: era, revision, method, sender, lifecycle, capability, parameters."""
        if not isinstance(request.params, dict):
            raise InvalidParams(f"params: expected object, got {show(request.params)}")
        meta = request.params.get("_meta", {})
        if not isinstance(meta, dict):
            raise InvalidParams(f"_meta: expected object, got {show(meta)}")
        request.meta, row = meta, request.row
        if self.role == "server":
            if self._is_modern(request):
                self._admit_modern(request)
            else:
                self._admit_legacy(request)
        elif self.version >= MODERN:
            raise InvalidRequest(f"{request.method}: servers send no requests in {self.version}")
        version = request.version or OLDEST
        if row is None or row.kind != "request" or row.sender == self.role or not row.since <= version <= row.until:
            raise MethodNotFound(f"{show(request.method)} is not a request that a {self.peer} may send in {version}")
        if row.capability and not has_capability(self.capabilities(), row.capability):
            raise MethodNotFound(f"{request.method}: this {self.role} did not declare {row.capability}")
        if "progressToken" in meta and request.progress_token is None:
            raise InvalidParams(f"_meta.progressToken: expected string or integer, got {show(meta['progressToken'])}")
        check_params(row, request.params)
        if row.handler == "_initialize":
            self._open_session(request)

    @property
    def peer(self) -> str:
        """The other side's role."""
        return "client" if self.role == "server" else "server"

    @staticmethod
    def _is_modern(request: Request) -> bool:
        """basic/versioning.md: "A request carrying modern per-request `_meta` is served statelessly"."""
        if META_VERSION in request.meta or META_CAPABILITIES in request.meta:
            return True
        return request.row is not None and request.row.since >= MODERN

    def _admit_modern(self, request: Request) -> None:
        meta = request.meta
        for key, kind in ((META_VERSION, str), (META_CAPABILITIES, dict)):
            if not isinstance(meta.get(key), kind):
                raise InvalidParams(f"_meta.{key}: " + (f"expected {_TYPE_NAMES[kind]}, got {show(meta[key])}"
                                                        if key in meta else "required, but missing"))
        if not isinstance(meta.get(META_CLIENT_INFO, {}), dict):
            raise InvalidParams(f"_meta.{META_CLIENT_INFO}: expected object, got {show(meta[META_CLIENT_INFO])}")
        if meta[META_VERSION] not in MODERN_VERSIONS:
            raise UnsupportedVersion(f"unsupported protocol version {show(meta[META_VERSION])}",
                                     {"supported": list(MODERN_VERSIONS), "requested": meta[META_VERSION]})
        level = meta.get(META_LOG_LEVEL, "")
        if level != "" and level not in LOG_LEVELS:
            raise InvalidParams(f"_meta.{META_LOG_LEVEL}: expected one of {', '.join(LOG_LEVELS)}, got {show(level)}")
        request.modern, request.version, request.log_level = True, meta[META_VERSION], level
        request.capabilities, request.client_info = meta[META_CAPABILITIES], meta.get(META_CLIENT_INFO, {})

    def _admit_legacy(self, request: Request) -> None:
        handler = request.row.handler if request.row else ""
        if not self.version and handler not in ("_initialize", "_ping"):
            raise InvalidRequest(f"{request.method}: not initialized; send initialize first, or the {MODERN} _meta")
        if self.version and handler == "_initialize":
            raise InvalidRequest("initialize: the session is initialized already")
        request.capabilities, request.client_info = self.peer_capabilities, self.peer_info
        request.log_level = self.log_level

    def _open_session(self, request: Request) -> None:
        """Negotiate: "If the server supports the requested protocol version, it MUST respond with the same version.
        Otherwise [...] another protocol version it supports", the latest that has a handshake."""
        wanted = request.params["protocolVersion"]
        self.version = request.version = wanted if wanted in LEGACY_VERSIONS else LAST_LEGACY
        self.peer_capabilities = request.capabilities = request.params["capabilities"]
        self.peer_info = request.client_info = request.params["clientInfo"]

    def _receive_notification(self, message: Json) -> Any:
        method, params, row = message["method"], message.get("params") or {}, METHODS.get(message["method"])
        if not isinstance(params, dict):
            return Refusal(f"{method}: params: expected object, got {show(params)}")
        if row is not None and (row.kind != "notification" or row.sender == self.role):
            return Refusal(f"{method} is not a notification that a {self.peer} may send")
        if row is not None and row.handler == "_initialized":
            self.initialized = bool(self.version)
        return Notification(method, params, row)

    def _receive_response(self, message: Json) -> Any:
        request_id = message.get("id")
        pending = None if request_id is None else self.pending.pop(request_id, None)
        if pending is None:
            # Late, twice, or to nobody: "SHOULD ignore any response to the cancelled request".
            error = message.get("error", {}).get("message", "")
            return Refusal(f"an answer to no open request (id {show(request_id)})" + (f": {error}" if error else ""))
        if "error" in message:
            return Answer(pending, None, McpError.from_wire(message["error"]))
        return Answer(pending, message["result"], None)

    # Sending

    def open(self, pending: Any) -> RequestId:
        """Register a request of ours under a new id, before its bytes leave."""
        request_id: RequestId = self.next_id()
        self.pending[request_id] = pending
        return request_id

    def end(self, request: Request) -> bool:
        """Take a request out of flight. Only who gets True may still speak about it."""
        return self.in_flight.pop(request.id, None) is request

    def cancel(self, request_id: Any) -> Optional[Request]:
        """Take the peer's request out of flight because it was cancelled; None if it ended before.
        "MUST NOT send any further messages for it", so the winner stays silent."""
        request = self.in_flight.pop(request_id, None) if is_id(request_id) else None
        if request is not None:
            request.cancelled = True
        return request


###############################################################################
# 9. Connection ###############################################################
###############################################################################
# A Protocol with threads around it. Bytes come in through `feed`, on whichever thread reads; requests run on workers;
# bytes go out through `flush`, written by one thread at a time for all that wait. No lock is held while writing.

class Workers:
    """Threads for jobs. The latest idle one is woken first, so a lone caller meets one warm thread; and no second one
    is woken while the first is still on its way, so a burst is worked off by few threads instead of waking all.

    `between()` is called when a worker has woken and when it has nothing left to do; while another is on its way to
    do that, it is skipped: this is how answers of a burst share one write."""

    def __init__(self, name: str, limit: int, between: Callable[[], None], log: _Log) -> None:
        self.name, self.limit, self.between, self.log = name, limit, between, log
        self._lock = threading.Lock()
        self._backlog: deque[Callable[[], Any]] = deque()     # guarded by _lock
        self._idle: List[Any] = []                            # each one's wake-up lock; guarded by _lock
        self._count = 0                                       # living workers; guarded by _lock
        self._waking = False                                  # one is on its way; guarded by _lock
        self._closed = False                                  # guarded by _lock
        self._threads: Dict[int, threading.Thread] = {}       # id(wake-up lock) -> thread
        self._names = itertools.count(1).__next__

    def submit(self, job: Callable[[], Any]) -> None:
        """Have a worker run the job. Never blocks. After close() nothing runs any more."""
        with self._lock:
            if self._closed:
                return
            self._backlog.append(job)
            worker = self._choose_locked()
        if worker is not None:
            self._wake(worker)

    def __len__(self) -> int:
        return len(self._backlog)

    def _choose_locked(self) -> Any:
        """The worker to wake for the backlog, or None when none is needed or to be had."""
        assert self._lock.locked()
        if self._waking or not self._backlog:
            return None
        if not self._idle and self._count >= self.limit:
            return None
        self._waking = True
        if self._idle:
            return self._idle.pop()
        self._count += 1
        wake = threading.Lock()
        wake.acquire()
        return wake

    def _wake(self, wake: Any) -> None:
        if id(wake) in self._threads:
            wake.release()
            return
        thread = threading.Thread(target=self._run, args=(wake,), name=f"{self.name}-{self._names()}", daemon=True)
        self._threads[id(wake)] = thread
        try:
            thread.start()
        except RuntimeError as error:             # no thread to be had: those that live will come to it
            with self._lock:
                self._count -= 1
                self._waking = False
            self._threads.pop(id(wake), None)
            self.log.error(f"{self.name}: {error}")

    def _run(self, wake: Any) -> None:
        while True:
            with self._lock:
                self._waking = False
            self.between()
            job = self._next(wake)
            while job is not None:
                try:
                    job()
                except BaseException as error:    # a job answers for itself; what escapes is ours
                    self.log.error(f"{self.name}: a job failed: {error!r}", error)
                del job                           # an idle worker keeps nothing alive
                if not self._waking:
                    self.between()
                job = self._next(wake)
            if not wake.acquire(timeout=IDLE_SECONDS):
                with self._lock:
                    if wake in self._idle:
                        self._idle.remove(wake)
                        self._leave_locked(wake)
                        return
                wake.acquire()                    # chosen at the last moment
            if self._closed:
                with self._lock:
                    self._leave_locked(wake)
                return

    def _leave_locked(self, wake: Any) -> None:
        assert self._lock.locked()
        self._count -= 1
        self._threads.pop(id(wake), None)

    def _next(self, wake: Any) -> Optional[Callable[[], Any]]:
        """The next job; or None, and the worker stands among the idle."""
        with self._lock:
            if not self._backlog:
                if self._closed:
                    wake.release()
                else:
                    self._idle.append(wake)
                return None
            job = self._backlog.popleft()
            helper = self._choose_locked()
        if helper is not None:
            self._wake(helper)
        return job

    def close(self, seconds: float) -> None:
        """Drop the backlog, let the workers go, and wait for them, but no longer than `seconds` in all."""
        with self._lock:
            self._closed = True
            self._backlog.clear()
            idle, self._idle = self._idle, []
        for wake in idle:
            wake.release()
        until = time.monotonic() + seconds
        for thread in list(self._threads.values()):
            if thread is not threading.current_thread() and thread.ident is not None:
                thread.join(max(0.0, until - time.monotonic()))


class Waiter:
    """Who waits for the answer to a request of ours. `inbox` gets ("progress", params) any number of times, then one
    ("answer", Answer). `on_answer`, if given, sees the answer first, on the reading thread, and returns True when it
    took care of it; `on_event(method, params)` makes it a subscription, and hears its notifications there."""
    __slots__ = ("id", "method", "inbox", "wants_progress", "on_answer", "on_event")

    def __init__(self, method: str, wants_progress: bool = False,
                 on_answer: Optional[Callable[[Answer], bool]] = None,
                 on_event: Optional[Callable[[str, Json], Any]] = None) -> None:
        self.id: RequestId = 0
        self.method, self.wants_progress, self.on_answer, self.on_event = method, wants_progress, on_answer, on_event
        self.inbox: SimpleQueue[Any] = SimpleQueue()

    def answer(self, answer: Answer) -> None:
        """Hand over the answer. Called once, by whoever popped this waiter."""
        if self.on_answer is None or not self.on_answer(answer):
            self.inbox.put(("answer", answer))

    def progress(self, params: Json) -> None:
        """Hand over one progress notification."""
        if self.wants_progress:
            put_bounded(self.inbox, ("progress", params))


def put_bounded(inbox: SimpleQueue[Any], item: Any) -> bool:
    """Put an item; when too many wait, the oldest goes for it. Returns whether one went."""
    full = inbox.qsize() >= MAX_QUEUED
    if full:
        try:
            inbox.get_nowait()
        except Empty:
            pass
    inbox.put(item)
    return full


def take(inbox: SimpleQueue[Any], seconds: Optional[float]) -> Any:
    """inbox.get() with a deadline that Ctrl-C can interrupt on Windows too. Raises Empty."""
    if os.name != "nt":
        return inbox.get(timeout=seconds)
    until = None if seconds is None else time.monotonic() + seconds
    while True:
        left = 0.2 if until is None else min(0.2, until - time.monotonic())
        try:
            return inbox.get(timeout=max(0.0, left))
        except Empty:
            if until is not None and time.monotonic() >= until:
                raise


class Connection:
    """One conversation over a pair of byte streams.

    `endpoint` (a Server or a Client) has serve_request(connection, request) for the workers, or for the reading thread
    when the method's row says inline; take_notification(connection, notification) for the reading thread; and
    output_lost(connection). `write(bytes)` writes all of it; `may_write(size)`, if given, tells whether that would
    block, and then a worker does it instead of the caller."""

    def __init__(self, protocol: Protocol, endpoint: Any, write: Callable[[bytes], Any], *, name: str, log: _Log,
                 max_workers: int = MAX_WORKERS, max_message: int = MAX_MESSAGE,
                 trace: Optional[Callable[[str, bytes], Any]] = None,
                 may_write: Optional[Callable[[int], bool]] = None) -> None:
        self.protocol, self.endpoint, self.log = protocol, endpoint, log
        self._write, self._trace, self._may_write = write, trace, may_write
        self._framer = LineFramer(max_message)
        self.workers = Workers(name, max_workers, self.flush, log)
        self._lock = threading.Lock()
        self._outbox: List[Tuple[bytes, bool]] = []    # (line, droppable); guarded by _lock
        self._writing = False                          # a thread is writing; guarded by _lock
        self.closed: Optional[Exception] = None        # why nothing can be sent any more; guarded by _lock
        self.answering = 0                             # questions that our callbacks are busy with; guarded by _lock
        self._ready: List[Request] = []                # admitted, not yet served; of the reading thread
        self._idle: Optional[threading.Event] = None   # set when nothing is in flight; made by drain()
        self.before_block: Callable[[Request], Any] = _ignore   # told when a handler is about to wait
        self._by_handler = {"_cancelled": self._cancelled, "_cancel_request": self._cancel_request,
                            "_progress": self._progress}

    # Reading

    def feed(self, data: bytes) -> List[Request]:
        """Take bytes that came in, on the reading thread. Runs no user code: returns the requests that somebody must
        now serve, such as dispatch()."""
        for line in self._framer.feed(data) if data else self._framer.end():
            self.receive_line(line)
        ready, self._ready = self._ready, []
        return ready

    def dispatch(self, requests: List[Request]) -> None:
        """Have workers serve admitted requests."""
        for request in requests:
            if len(self.workers) >= MAX_BACKLOG:
                self.respond(request, error_message(request.id, InternalError("too many requests wait already")))
                self._nudge()
            else:
                self.workers.submit(lambda request=request: self.endpoint.serve_request(self, request))  # type: ignore

    def receive_line(self, line: Optional[bytes]) -> None:
        """Take one line, or None for one that was too long."""
        if self._trace and line is not None:
            self._trace("<--", line)
        try:
            if line is None:
                raise InvalidRequest(f"a message of more than {self._framer.limit} bytes")
            message = parse_message(line)
            if isinstance(message, list):
                self._receive_batch(message)
                return
        except McpError as error:
            if self.protocol.role == "client":
                self.log.warning(f"not a message, skipped: {error}: {(line or b'')[:200]!r}")
            else:
                self._refuse(Refusal(str(error), error_message(None, error)))
            return
        self._act(self.protocol.receive(message), None)

    def _receive_batch(self, messages: List[Any]) -> None:
        if self.protocol.version != BATCH_VERSION:
            raise InvalidRequest(f"a batch, which only {BATCH_VERSION} has; send each message on a line of its own")
        if not 0 < len(messages) <= MAX_BATCH:
            raise InvalidRequest(f"a batch of {len(messages)} messages; expected 1 to {MAX_BATCH}")
        batch = Batch()
        batch.open = 1                           # held open until every member is in
        for message in messages:
            self._act(self.protocol.receive(message), batch)
        self._close_batch(batch, None)
        self._nudge()

    def _act(self, event: Any, batch: Optional[Batch]) -> None:
        if type(event) is Request:
            self._act_on_request(event, batch)
        elif type(event) is Notification:
            take_it = self._by_handler.get(event.row.handler) if event.row else None
            (take_it or self._pass_on)(event)
        elif type(event) is Answer:
            event.pending.answer(event)
        else:
            self._refuse(event, batch)

    def _act_on_request(self, request: Request, batch: Optional[Batch]) -> None:
        if batch is not None:
            with self._lock:
                batch.open += 1
            request.batch = batch
        assert request.row is not None
        if request.row.inline:
            # Answered here and now, so that what follows in the stream finds it done.
            self.endpoint.serve_request(self, request)
            self._nudge()
        else:
            self._ready.append(request)

    def _pass_on(self, notification: Notification) -> None:
        self.endpoint.take_notification(self, notification)

    def _refuse(self, refusal: Refusal, batch: Optional[Batch] = None) -> None:
        self.log.debug(f"refused: {refusal.why}")
        if refusal.reply is None:
            return
        data = self._encode(refusal.reply)
        if batch is not None:
            batch.answers.append(data)
            return
        with self._lock:
            self._outbox.append((data, False))
        self._nudge()

    def _nudge(self) -> None:
        """Have a worker flush: the reading thread must not block in a write."""
        self.workers.submit(_nothing)

    # The peer's notifications about requests

    def _cancelled(self, notification: Notification) -> None:
        request_id = notification.params.get("requestId")
        request = self.protocol.cancel(request_id)
        if request is not None:
            self._stop(request)
        else:
            self.endpoint.take_notification(self, notification)

    def _cancel_request(self, notification: Notification) -> None:
        """`$/cancelRequest`: who says it this way expects an error as the answer."""
        request_id = notification.params.get("id")
        request = self.protocol.in_flight.get(request_id) if is_id(request_id) else None
        if request is not None:
            self.cut_short(request, error_message(request.id, RequestCancelled("request cancelled")))

    def cut_short(self, request: Request, message: Json) -> None:
        """Answer a request whose handler still runs, and stop the handler. Never blocks."""
        if self.respond(request, message):
            request.cancelled = True
            self._stop(request)
            self._nudge()

    def _stop(self, request: Request) -> None:
        """Tell the work on a cancelled request: waits end here, the handler's own functions run on a worker."""
        if request.batch is not None:
            self._close_batch(request.batch, None)
            request.batch = None
        for inbox in list(request.waiters):
            inbox.put(("cancelled", None))
        while request.callbacks:
            try:
                self.workers.submit(request.callbacks.pop())
            except IndexError:                   # popped by Context.on_cancel, which runs it itself
                break
        self._note_end()

    def _progress(self, notification: Notification) -> None:
        token = notification.params.get("progressToken")
        waiter = self.protocol.pending.get(token) if is_id(token) else None
        if waiter is not None:
            waiter.progress(notification.params)

    # Writing

    def _encode(self, message: Json) -> bytes:
        """A message as bytes; if JSON cannot say it, the error that says so in its place."""
        try:
            return encode_message(message)
        except (ValueError, TypeError) as error:
            self.log.error(f"an answer cannot be sent: {error}")
            request_id = message.get("id")
            failure = error_message(request_id, InternalError(f"the answer is not valid JSON: {error}"[:500]))
            try:
                return encode_message(failure)
            except (ValueError, TypeError):      # the id or the text has a lone surrogate
                return encode_message(error_message(None, InternalError("the answer is not valid JSON")))

    def respond(self, request: Request, message: Json) -> bool:
        """Queue the answer to a request of the peer's, unless it ended before. Does not flush: a worker does, when it
        has nothing else to do. Returns whether this was the answer."""
        data = self._encode(message)
        with self._lock:
            if not self.protocol.end(request):
                return False
            batch, request.batch = request.batch, None
            if batch is None:
                self._outbox.append((data, False))
        if batch is not None:
            self._close_batch(batch, data)
        self._note_end()
        return True

    def _close_batch(self, batch: Batch, answer: Optional[bytes]) -> None:
        with self._lock:
            batch.open -= 1
            if answer is not None:
                batch.answers.append(answer)
            if not batch.open and batch.answers:
                self._outbox.append((b"[" + b",".join(batch.answers) + b"]", False))

    def notify(self, method: str, params: Optional[Json], request: Optional[Request] = None, *,
               block: bool = True) -> bool:
        """Send a notification; with `request`, only while that is in flight ("MUST stop after completion"). Returns
        whether it was queued. Raises ValueError or TypeError for what JSON cannot say. With `block`, a slow reader
        slows the caller; without, a worker writes."""
        row = METHODS.get(method)
        data = encode_message(notification_message(method, params))
        return self._send(data, row is not None and row.droppable, request, block)

    def _send(self, data: bytes, droppable: bool = False, request: Optional[Request] = None, block: bool = True) -> bool:
        with self._lock:
            if self.closed is not None or (request is not None and
                                           self.protocol.in_flight.get(request.id) is not request):
                return False
            if len(self._outbox) >= MAX_QUEUED:
                self._drop_locked()
            self._outbox.append((data, droppable))
        if block and (self._may_write is None or self._may_write(len(data) + 1)):
            self.flush()
        else:
            self._nudge()
        return True

    def _drop_locked(self) -> None:
        assert self._lock.locked()
        kept = [item for item in self._outbox if not item[1]]
        if len(kept) < len(self._outbox):
            self.log.warning(f"{len(self._outbox) - len(kept)} logs and progress notifications dropped: "
                             f"the peer reads too slowly")
            self._outbox = kept

    def flush(self) -> None:
        """Write what is queued, unless another thread is at it: that one then writes ours too."""
        while True:
            with self._lock:
                if self._writing or not self._outbox:
                    return
                lines, self._outbox, self._writing = self._outbox, [], True
            try:
                if self._trace:
                    for line, _ in lines:
                        self._trace("-->", line)
                self._write(b"\n".join([line for line, _ in lines] + [b""]))
            except (OSError, ValueError) as error:       # ValueError: a file object that was closed
                self._lose_output(error)
            finally:
                with self._lock:
                    self._writing = False

    def _lose_output(self, error: Exception) -> None:
        with self._lock:
            first, self.closed = self.closed is None, self.closed or error
            self._outbox = []
        if first:
            self.log.debug(f"the output is closed: {error}")
            self.endpoint.output_lost(self)

    # Our own requests

    def request(self, waiter: Waiter, params: Optional[Json]) -> Waiter:
        """Send a request and register `waiter` for its answer. Raises ConnectionClosed, or ValueError or TypeError for
        parameters that JSON cannot say."""
        waiter.id = self.protocol.open(waiter)
        if waiter.wants_progress:
            params = dict(params or {})
            params["_meta"] = {**params.get("_meta", {}), "progressToken": waiter.id}
        try:
            sent = self._send(encode_message(request_message(waiter.id, waiter.method, params)))
        except BaseException:
            self.protocol.pending.pop(waiter.id, None)
            raise
        if not sent and self.protocol.pending.pop(waiter.id, None) is not None:
            raise self.closed if isinstance(self.closed, ConnectionClosed) else ConnectionClosed("the connection is closed")
        return waiter

    def wait(self, waiter: Waiter, seconds: Optional[float],
             on_progress: Optional[Callable[..., Any]] = None) -> Json:
        """Block until the answer is there, running on_progress(progress, total, message) here meanwhile. Returns the
        result. Raises McpError as the peer sent it, Timeout, Cancelled, ConnectionClosed; a Timeout and whatever
        interrupts the wait cancel the request. While a callback of ours answers a question, the clock stands."""
        until = None if seconds is None else time.monotonic() + seconds
        try:
            while True:
                try:
                    kind, item = take(waiter.inbox, None if until is None else max(0.0, until - time.monotonic()))
                except Empty:
                    if not self.answering or seconds is None:
                        raise
                    until = time.monotonic() + seconds
                    continue
                if kind == "answer":
                    if item.error is not None:
                        raise item.error
                    return item.result or {}
                if kind == "cancelled":
                    raise Cancelled("the request was cancelled")
                if on_progress is not None:
                    on_progress(item.get("progress"), item.get("total"), item.get("message"))
        except Empty:
            self.abandon(waiter, f"no answer within {seconds:g} seconds")
            raise Timeout(f"{waiter.method}: no answer within {seconds:g} seconds") from None
        except McpError:
            raise
        except BaseException as error:           # Ctrl-C, Cancelled, what a progress callback raised
            self.abandon(waiter, str(error) or type(error).__name__)
            raise

    def abandon(self, waiter: Waiter, reason: Optional[str]) -> bool:
        """Stop waiting for an answer and tell the peer: basic/patterns/cancellation.md. False if it was answered."""
        if self.protocol.pending.pop(waiter.id, None) is None:
            return False
        row = METHODS.get(waiter.method)
        # "The `initialize` request MUST NOT be cancelled by clients".
        if row is None or row.handler != "_initialize":
            params: Json = {"requestId": waiter.id}
            if reason:
                params["reason"] = reason
            try:
                self.notify("notifications/cancelled", params)
            except (ValueError, TypeError):      # a reason that JSON cannot say
                self.notify("notifications/cancelled", {"requestId": waiter.id})
        return True

    # Ending

    def _note_end(self) -> None:
        idle = self._idle
        if idle is not None and not self.protocol.in_flight:
            idle.set()

    def drain(self, seconds: float) -> bool:
        """Wait until no request of the peer's is in flight and all is written, but no longer than `seconds`."""
        until = time.monotonic() + seconds
        self._idle = threading.Event()
        if self.protocol.in_flight:
            self._idle.wait(seconds)
        self._idle = None
        flushed = threading.Event()
        self.workers.submit(lambda: (self.flush(), flushed.set()))
        # If another worker is writing, that flush returned at once: wait for the writer.
        while (self._writing or not flushed.is_set()) and not self.closed and time.monotonic() < until:
            flushed.wait(0.01)
            if flushed.is_set() and self._writing:
                time.sleep(0.005)
        return not self.protocol.in_flight

    def abandon_questions(self, error: Exception) -> None:
        """Fail every request of ours that waits: its answer can come no more."""
        for request_id in list(self.protocol.pending):
            waiter = self.protocol.pending.pop(request_id, None)
            if waiter is not None:
                waiter.answer(Answer(waiter, None, error))

    def hang_up(self, error: Exception) -> None:
        """Leave politely: cancel every request of ours that waits, then close."""
        for waiter in list(self.protocol.pending.values()):
            if self.abandon(waiter, "the client is closing"):
                waiter.answer(Answer(waiter, None, error))
        self.close(error)

    def cancel_all(self) -> None:
        """Cancel every request of the peer's that is in flight."""
        for request_id in list(self.protocol.in_flight):
            request = self.protocol.cancel(request_id)
            if request is not None:
                self._stop(request)

    def close(self, error: Exception, seconds: float = 0.0) -> None:
        """End the conversation: who waits gets `error`, what runs is cancelled, workers go. Waits no longer than
        `seconds` for them. Idempotent, safe from any thread."""
        with self._lock:
            if self.closed is None or isinstance(error, ConnectionClosed):
                self.closed = error
            self._outbox = []
        self.cancel_all()
        self.abandon_questions(error)
        self.workers.close(seconds)


def _nothing() -> None:
    """A job that only has a worker come by and flush."""


def _ignore(request: Request) -> None:
    """Nobody cares whether this request's handler waits."""


###############################################################################
# 10. Context #################################################################
###############################################################################
# What a handler sees of its request. One blocking call asks the client in either era: a legacy session gets a request
# and the handler waits; a modern request ends with the question as its result, comes again with the answer, and the
# handler runs again from its top (basic/patterns/mrtr.md). What was answered travels in `requestState`, signed.

class Context:
    """What a tool, prompt or resource function may ask of its request: declare a parameter with this type.

    BEWARE, in the modern era a handler runs again from its top for every answer: what stands before a question happens
    again. Ask first, act afterwards, or wrap the act in `once`. Questions without `key` are told apart by their order,
    so it must be the same in each run.

    Methods may be called from any thread while the handler runs."""
    __slots__ = ("_connection", "_request", "_signer", "_recorded", "_once", "_asked", "__weakref__")

    def __init__(self, connection: Connection, request: Request, signer: Signer) -> None:
        self._connection, self._request, self._signer = connection, request, signer
        self._recorded: Dict[str, Any] = {}      # key -> [digest of the question, the answer]
        self._once: Json = {}                    # key -> value
        self._asked = 0                          # questions without a key, so far

    # About the request

    @property
    def request_id(self) -> RequestId:
        """The request's id on the wire."""
        return self._request.id

    @property
    def meta(self) -> Json:
        """The request's `_meta`: a trace context, for example."""
        return self._request.meta

    @property
    def protocol_version(self) -> str:
        """The revision that this request is served in."""
        return self._request.version

    @property
    def client_info(self) -> Json:
        """{"name", "version", ...} as the client says; not verified. May be empty in the modern era."""
        return self._request.client_info

    @property
    def client_capabilities(self) -> Json:
        """What the client declared: "roots", "sampling", "elicitation"."""
        return self._request.capabilities

    @property
    def session_id(self) -> Optional[str]:
        """The id of a legacy HTTP session; None on other transports and in the modern era."""
        return None

    @property
    def auth(self) -> Optional[Json]:
        """The claims that `verify` returned for the request's token; None without authorization."""
        return None

    # Progress, logs

    def progress(self, done: float, total: Optional[float] = None, message: Optional[str] = None) -> None:
        """Tell the client how far this is, if it asked to know: basic/patterns/progress.md. `done` must increase from
        call to call; a value that does not is left out."""
        request, token = self._request, self._request.progress_token
        if token is None or not done > request.progress:
            return
        request.progress = done
        params = _with({"progressToken": token, "progress": done}, total=total)
        if message is not None and request.version >= "2025-03-26":
            params["message"] = message
        self._connection.notify("notifications/progress", params, request)

    def log(self, level: str, data: Any, logger: Optional[str] = None) -> None:
        """Send a log message to the client, if it wants this level: server/utilities/logging.md. `data` is any JSON
        value. Raises ValueError for a level that is none of debug, info, notice, warning, error, critical, alert,
        emergency."""
        if level not in LOG_LEVELS:
            raise ValueError(f"level: expected one of {', '.join(LOG_LEVELS)}, got {show(level)}")
        request = self._request
        wanted = request.log_level if request.modern else self._connection.protocol.log_level
        # Modern: "MUST NOT emit `notifications/message` for a request that does not include this field".
        if wanted and LOG_LEVELS.index(level) >= LOG_LEVELS.index(wanted):
            params = _with({"level": level}, logger=logger)
            params["data"] = to_plain(data)
            self._connection.notify("notifications/message", params, request)

    def debug(self, data: Any) -> None:
        """log("debug", data)"""
        self.log("debug", data)

    def info(self, data: Any) -> None:
        """log("info", data)"""
        self.log("info", data)

    def warning(self, data: Any) -> None:
        """log("warning", data)"""
        self.log("warning", data)

    def error(self, data: Any) -> None:
        """log("error", data)"""
        self.log("error", data)

    # Cancellation

    @property
    def cancelled(self) -> bool:
        """Whether the client has cancelled this request, or is gone. The answer will be dropped."""
        return self._request.cancelled

    def check_cancelled(self) -> None:
        """Raise Cancelled if the request was cancelled."""
        if self._request.cancelled:
            raise Cancelled("the request was cancelled")

    def sleep(self, seconds: float) -> None:
        """Sleep, but raise Cancelled at once when the request is cancelled."""
        inbox: SimpleQueue[Any] = SimpleQueue()
        self._request.waiters.append(inbox)
        try:
            self.check_cancelled()
            self._connection.before_block(self._request)
            take(inbox, max(0.0, seconds))
        except Empty:
            return
        finally:
            self._request.waiters.remove(inbox)
        raise Cancelled("the request was cancelled")

    def on_cancel(self, fn: Callable[[], Any]) -> None:
        """Have fn() run, on another thread, when the request is cancelled: to kill a child process, say. At once if
        it is cancelled already."""
        callbacks = self._request.callbacks
        callbacks.append(fn)
        if self._request.cancelled:
            try:
                callbacks.remove(fn)
            except ValueError:
                return                           # whoever cancelled runs it
            self._connection.workers.submit(fn)

    def close_stream(self, retry_ms: Optional[int] = None) -> None:
        """Over legacy HTTP, end the response's stream now; the client comes back for the rest. Elsewhere, nothing."""

    # Questions

    def elicit(self, message: str, schema: Any, key: Optional[str] = None) -> Json:
        """Ask the user to fill in a form: client/elicitation.md. Blocks until the answer.

        `schema` is a flat object's JSON Schema of strings, numbers, booleans and enums, or a dataclass or TypedDict of
        such. Returns {"action": "accept", "decline" or "cancel", "content": what was filled in, or None}; for a
        dataclass the content is an instance. Raises MissingCapability, Cancelled, Timeout."""
        requested, convert = elicitation_schema(schema)
        key = self._key(key, "elicit")
        answer = self.ask({key: ("elicitation/create", {"message": message, "requestedSchema": requested})})[key]
        content = answer.get("content") if answer["action"] == "accept" else None
        return {**answer, "content": convert(content) if convert and content is not None else content}

    def elicit_url(self, message: str, url: str, key: Optional[str] = None) -> Json:
        """Ask the user to visit a URL, for what must not pass through the client: keys, payments, foreign logins.
        Returns {"action", "content": None}: "accept" means that the user agreed to go, not that they are back."""
        params = {"mode": "url", "message": message, "url": url}
        if not self._request.modern:
            params["elicitationId"] = os.urandom(16).hex()
        key = self._key(key, "elicit_url")
        answer = self.ask({key: ("elicitation/create", params)})[key]
        return {"action": answer["action"], "content": None}

    def sample(self, messages: Any, max_tokens: int = 1000, key: Optional[str] = None, **params: Any) -> Json:
        """Have the client's model answer: client/sampling.md. `messages` is text, a Message, a wire message, or a list
        of those; `params` are the wire's others, in either spelling: system_prompt=, temperature=, tools=. Returns
        {"role", "content", "model", "stopReason"}."""
        wire = {re.sub(r"_(\w)", lambda match: match.group(1).upper(), name): value for name, value in params.items()}
        key = self._key(key, "sample")
        question = {"messages": prompt_messages(messages), "maxTokens": max_tokens, **wire}
        return self.ask({key: ("sampling/createMessage", question)})[key]

    def roots(self, key: Optional[str] = None) -> List[Json]:
        """The directories the client works in: [{"uri", "name"}]: client/roots.md."""
        key = self._key(key, "roots")
        found: List[Json] = self.ask({key: ("roots/list", {})})[key]["roots"]
        return found

    def ask(self, questions: Dict[str, Tuple[str, Json]]) -> Dict[str, Json]:
        """Ask several questions at once: {key: (method, params)}. Returns {key: result}, each checked. The methods are
        elicitation/create, sampling/createMessage and roots/list."""
        for method, params in questions.values():
            self._require(method, params)
        return self._ask_modern(questions) if self._request.modern else self._ask_legacy(questions)

    def once(self, key: str, fn: Callable[[], Any]) -> Any:
        """The value of fn(), computed once for this request, even when the handler runs again after a question. In the
        modern era the value travels through the client, signed but readable: a JSON value, and no secret."""
        if key not in self._once:
            value = to_plain(fn())
            encode_json(value)
            self._once[key] = value
        return self._once[key]

    def _key(self, key: Optional[str], kind: str) -> str:
        if key is not None:
            return key
        self._asked += 1
        return f"{kind}-{self._asked}"

    def _require(self, method: str, params: Json) -> None:
        """ "If processing a request requires a capability the client did not include [...] the server MUST return" -32021."""
        row, version = METHODS.get(method), self._request.version
        if row is None or row.sender != "server" or row.kind != "request":
            raise ValueError(f"{method} is no question to a client")
        needed, since = row.capability, row.since
        if params.get("mode") == "url":
            needed, since = "elicitation.url", "2025-11-25"
        elif "tools" in params or "toolChoice" in params:
            needed, since = "sampling.tools", "2025-11-25"
        declared = self._request.capabilities
        if needed == "elicitation" and declared.get("elicitation") and "form" not in declared["elicitation"] \
                and "url" in declared["elicitation"]:
            declared, needed = {}, "elicitation.form"    # an empty object means form; one with only url does not
        if version < since or not has_capability(declared, needed):
            required: Json = {}
            for name in reversed(needed.split(".")):
                required = {name: required}
            raise MissingCapability(f"{method} needs the client capability {needed}, which was not declared",
                                    {"requiredCapabilities": required})

    def _ask_legacy(self, questions: Dict[str, Tuple[str, Json]]) -> Dict[str, Json]:
        connection, request, answers = self._connection, self._request, {}
        self.check_cancelled()
        waiters: Dict[str, Waiter] = {}
        try:
            for key, (method, params) in questions.items():
                waiter = waiters[key] = Waiter(method)
                request.waiters.append(waiter.inbox)
                connection.request(waiter, params)
            self.check_cancelled()
            connection.before_block(request)
            for key, (method, params) in questions.items():
                answers[key] = connection.wait(waiters[key], STATE_SECONDS)
                check_answer(key, method, params, answers[key])
        finally:
            for waiter in waiters.values():
                request.waiters.remove(waiter.inbox)
                connection.abandon(waiter, "no longer needed")
        return answers

    def _ask_modern(self, questions: Dict[str, Tuple[str, Json]]) -> Dict[str, Json]:
        answers, missing = {}, {}
        for key, (method, params) in questions.items():
            question = {"method": method, "params": params}
            recorded = self._recorded.get(key)
            if recorded is None or recorded[0] != digest(question):
                missing[key] = question
                continue
            answers[key] = recorded[1]
            check_answer(key, method, params, answers[key])
        if missing:
            raise _InputRequired(missing)
        return answers

    # What travels in requestState

    def load_answers(self) -> None:
        """Take the answers that came with a retry. Raises InvalidParams for a state that is not ours, not for this
        request, or too old."""
        params = self._request.params
        fresh = params.get("inputResponses", {})
        if not isinstance(fresh, dict) or not all(isinstance(answer, dict) for answer in fresh.values()):
            raise InvalidParams(f"inputResponses: expected an object of objects, got {show(fresh)}")
        state = params.get("requestState")
        if state is None:
            return                               # answers to nothing we asked: we will ask
        known = self._signer.open(state, self._binding())
        self._once = known["once"]
        self._recorded = known["answers"]
        for key, asked in known["asked"].items():
            if key in fresh:
                self._recorded[key] = [asked, fresh[key]]

    def input_required(self, questions: Dict[str, Json]) -> Json:
        """The result that puts these questions to the client."""
        state = {"answers": self._recorded, "once": self._once,
                 "asked": {key: digest(question) for key, question in questions.items()}}
        return {"resultType": "input_required", "inputRequests": questions,
                "requestState": self._signer.seal(state, self._binding())}

    def _binding(self) -> str:
        params = self._request.params
        salient = {name: params.get(name) for name in ("name", "uri", "arguments")}
        return digest([self._request.method, salient, self.auth])


def digest(value: Any) -> str:
    """A short fingerprint of a JSON value."""
    import hashlib
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:32]


class Signer:
    """Seals what travels through the client: HMAC-SHA256 over JSON and an expiry. The first key signs, all verify;
    without keys a random one for the life of the process."""
    __slots__ = ("_keys",)

    def __init__(self, state_key: Any) -> None:
        keys = state_key if isinstance(state_key, (list, tuple)) else [] if state_key is None else [state_key]
        self._keys = [key.encode("utf-8") if isinstance(key, str) else bytes(key) for key in keys]
        if any(len(key) < 16 for key in self._keys):
            raise ValueError("state_key: expected at least 16 bytes")
        if not self._keys:
            self._keys = [os.urandom(32)]

    def _sign(self, key: bytes, payload: str, binding: str) -> str:
        import hmac
        return hmac.new(key, f"{binding}.{payload}".encode("ascii"), "sha256").hexdigest()

    def seal(self, state: Json, binding: str) -> str:
        """The state as text that only `open` with the same binding takes. Raises ValueError when it is too large."""
        text = encode_json({**state, "expires": int(time.time() + STATE_SECONDS)})
        payload = _base64(text.encode("utf-8"))
        if len(payload) > MAX_STATE:
            raise ValueError(f"the answers and once() values of this request make a requestState of {len(payload)} bytes; "
                             f"at most {MAX_STATE} may travel")
        return payload + "." + self._sign(self._keys[0], payload, binding)

    def open(self, sealed: Any, binding: str) -> Json:
        """The state again. Raises InvalidParams for anything that seal did not make for this binding, or long ago."""
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


_ELICIT_TYPES = ("string", "number", "integer", "boolean")


def elicitation_schema(schema: Any) -> Tuple[Json, Optional[Callable[[Any], Any]]]:
    """The wire's requestedSchema, and how its content becomes a Python value. Raises ValueError for what elicitation
    does not allow: anything but a flat object of strings, numbers, booleans and enums."""
    convert = None
    if not isinstance(schema, dict):
        hint = describe(schema)
        if hint.schema is None or hint.schema.get("type") != "object" or "properties" not in hint.schema:
            raise ValueError(f"schema: expected a JSON Schema, a dataclass or a TypedDict, got {schema!r}")
        convert = hint.convert
        schema = {**hint.schema, "properties": {name: _without_null(sub) for name, sub in hint.schema["properties"].items()}}
    check_elicitation_schema(schema)
    return schema, convert


def _without_null(schema: Json) -> Json:
    """Optional[X] as a form has it: a field of X that may be left empty."""
    others = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    if len(others) != 1:
        return schema
    default = schema.get("default")
    return {**others[0], **({} if default is None else {"default": default})}


def check_elicitation_schema(schema: Any) -> None:
    """Raise ValueError unless it is a form: client/elicitation.md#requested-schema."""
    if not isinstance(schema, dict) or schema.get("type") != "object" or not isinstance(schema.get("properties"), dict):
        raise ValueError(f'requestedSchema: expected {{"type": "object", "properties": ...}}, got {show(schema)}')
    for name, sub in schema["properties"].items():
        kind = sub.get("type") if isinstance(sub, dict) else None
        items = sub.get("items") if kind == "array" else None
        choices = isinstance(items, dict) and ("enum" in items or "anyOf" in items)
        if kind not in _ELICIT_TYPES and not choices:
            raise ValueError(f"requestedSchema: {name}: expected a string, number, integer, boolean, or an array of "
                             f"enum values, got {show(sub)}")
    unknown = [name for name in schema.get("required", ()) if name not in schema["properties"]]
    if unknown:
        raise ValueError(f"requestedSchema: required: {show(unknown[0])} is no property")


def check_answer(key: str, method: str, params: Json, answer: Json) -> None:
    """Check a client's answer to a question. Raises InvalidParams naming the member."""
    check = {"elicitation/create": _check_elicited, "sampling/createMessage": _check_sampled,
             "roots/list": _check_roots}[method]
    wrong = check(params, answer)
    if wrong:
        raise InvalidParams(f"{method} ({key}): the client's answer: {wrong}")


def _check_elicited(params: Json, answer: Json) -> str:
    action = answer.get("action")
    if action not in ("accept", "decline", "cancel"):
        return f'action: expected "accept", "decline" or "cancel", got {show(action)}'
    if action != "accept" or "requestedSchema" not in params:
        return ""
    errors = Schema(params["requestedSchema"]).errors(answer.get("content"))
    return "content: " + "; ".join(errors[:5]) if errors else ""


def _check_sampled(params: Json, answer: Json) -> str:
    if answer.get("role") not in ("assistant", "user"):
        return f'role: expected "assistant", got {show(answer.get("role"))}'
    return "" if isinstance(answer.get("content"), (dict, list)) else \
        f"content: expected a content block, got {show(answer.get('content'))}"


def _check_roots(params: Json, answer: Json) -> str:
    roots = answer.get("roots")
    if isinstance(roots, list) and all(isinstance(root, dict) and isinstance(root.get("uri"), str) for root in roots):
        return ""
    return f'roots: expected an array of {{"uri": ...}}, got {show(roots)}'


###############################################################################
# 11. stdio ###################################################################
###############################################################################
# Byte streams with a message a line (basic/transports/stdio.md): this process's standard streams, any pair of streams,
# and a child process. Knows how to move bytes and how to end; what they mean is the Connection's business.

def stream_reader(stream: Any) -> Callable[[], bytes]:
    """A function that blocks for the next bytes of a binary stream, any number of them; b"" at its end."""
    read = getattr(stream, "read1", None)
    if read is not None:
        return lambda: read(CHUNK) or b""
    if hasattr(stream, "raw") or not hasattr(stream, "readline"):
        return lambda: stream.read(CHUNK) or b""
    # An unbuffered file returns what there is; anything else might wait for a full chunk.
    return (lambda: stream.read(CHUNK) or b"") if hasattr(stream, "readinto") else lambda: stream.readline() or b""


def stream_writer(stream: Any) -> Callable[[bytes], None]:
    """A function that writes all the bytes to a binary stream and flushes it."""
    flush = getattr(stream, "flush", None)

    def write(data: bytes) -> None:
        view = memoryview(data)
        while view:
            written = stream.write(view)
            view = view[len(view) if written is None else written:]
        if flush is not None:
            flush()
    return write


class Pump:
    """Reads a server's input. A lone request is served on the reading thread itself: no hand-over, so one call at a time
    costs one thread, and twice the speed. Should its handler take long, the caller of run() reads on in the meantime;
    that one never runs handlers, so a deaf one cannot keep run() from returning."""

    TICK = 0.005                   # how long a handler may keep the input waiting: as long as the GIL may
    IDLE_TICKS = 40                # before the caller stops looking, and must be woken

    def __init__(self, connection: Connection, read: Callable[[], bytes]) -> None:
        self._connection, self._read = connection, read
        self._away: List[Request] = []           # what the reader serves instead of reading; who removes it reads next
        self._signals: SimpleQueue[str] = SimpleQueue()      # to the caller: "away", "blocks", "ended"
        self._turn: SimpleQueue[bool] = SimpleQueue()        # to the reader: read again, or end
        self._waiting = False                    # the reader waits for its turn
        self._parked = True                      # the caller must be woken
        connection.before_block = self._before_block

    def run(self) -> None:
        """Feed the connection until its input ends, then see the work in flight to its end: wait for it, cancel it,
        leave it. Ctrl-C ends the input."""
        connection = self._connection
        reader = threading.Thread(target=self._read_and_serve, name="mcp-server-reader", daemon=True)
        reader.start()
        closed = ConnectionClosed("the client closed the connection")
        try:
            try:
                self._stand_by()
            except KeyboardInterrupt:            # the reader may stay in its read until the input ends
                connection.log.debug("interrupted")
            else:
                connection.dispatch(connection.feed(b""))
            connection.abandon_questions(closed)
            connection.endpoint.input_ended(connection)
            if not connection.drain(DRAIN_SECONDS):
                connection.log.warning(f"still running {DRAIN_SECONDS:g} s after the end of the input: cancelled")
                connection.cancel_all()
                connection.drain(DRAIN_SECONDS)
        finally:
            self._turn.put(False)
            connection.close(closed)

    def _next(self) -> bytes:
        try:
            return self._read()
        except (OSError, ValueError) as error:   # ValueError: a file object that was closed
            self._connection.log.debug(f"the input ended: {error!r}")
            return b""

    # The reader

    def _read_and_serve(self) -> None:
        connection = self._connection
        for data in iter(self._next, b""):
            ready = connection.feed(data)
            if len(ready) == 1 and len(connection.protocol.in_flight) == 1:
                if not self._serve_here(ready[0]) and not self._wait_for_turn():
                    return
            else:
                connection.dispatch(ready)
        self._signals.put("ended")

    def _serve_here(self, request: Request) -> bool:
        """Serve a request; False if the caller has taken over the reading."""
        self._away.append(request)
        if self._parked:
            self._parked = False
            self._signals.put("away")
        self._connection.endpoint.serve_request(self._connection, request)
        self._connection.flush()
        try:
            self._away.remove(request)
        except ValueError:
            return False
        return True

    def _wait_for_turn(self) -> bool:
        self._waiting = True
        return self._turn.get()

    def _before_block(self, request: Request) -> None:
        """A handler is about to wait. If it keeps the reader, the caller should not wait for the tick."""
        if request in self._away:
            self._signals.put("blocks")

    # The caller

    def _stand_by(self) -> None:
        """Look after the reader until the input ends."""
        signal, idle = take(self._signals, None), 0
        while signal != "ended":
            away = list(self._away)
            try:
                signal = take(self._signals, self.TICK)
            except Empty:
                signal = ""
            idle = 0 if away else idle + 1
            if away and signal != "ended" and (signal == "blocks" or away == self._away) and self._take_over(away[0]):
                signal = self._read_meanwhile()
            elif idle > self.IDLE_TICKS:
                self._parked = True
                if not self._away:               # else it went away just before it could see that we parked
                    signal, idle = take(self._signals, None), 0

    def _take_over(self, request: Request) -> bool:
        try:
            self._away.remove(request)
        except ValueError:
            return False
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
    """Keeps the wire to the protocol: inside, file descriptors 0 and 1 are moved to private ones that children do not
    inherit; 0 reads the null device and 1 is stderr, for print(), C libraries and children alike. Restored after."""

    def __enter__(self) -> Tuple[Callable[[], bytes], Callable[[bytes], None]]:
        self._in, self._out = os.dup(0), os.dup(1)           # not inheritable
        try:
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, 0)
            try:
                os.dup2(2, 1)
            except OSError:                                  # no stderr
                os.dup2(null, 1)
            os.close(null)
            self._flush_print()                              # what was printed before must not reach the wire later
        except BaseException:
            self._restore()
            raise
        return (lambda: os.read(self._in, CHUNK)), self._write

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._out, view):]

    @staticmethod
    def _flush_print() -> None:
        try:
            sys.stdout.flush()
        except (AttributeError, OSError, ValueError):        # None, closed, or nobody reads
            pass

    def _restore(self) -> None:
        for private, number in ((self._in, 0), (self._out, 1)):
            os.dup2(private, number)
            os.close(private)

    def __exit__(self, *exc_info: Any) -> None:
        self._flush_print()
        self._restore()


class Child:
    """A server as a child process, in a process group of its own, so that its own children end with it."""

    def __init__(self, command: List[str], env: Optional[Dict[str, str]], cwd: Any, log: _Log) -> None:
        import subprocess
        self.command, self.log = command, log
        options: Json = {"start_new_session": True} if os.name == "posix" else \
            {"creationflags": 0x00000200 | 0x08000000}       # CREATE_NEW_PROCESS_GROUP, CREATE_NO_WINDOW
        try:
            self._process = subprocess.Popen(
                command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd,
                env=None if env is None else {**os.environ, **env}, **options)
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
        """Whether a write of this size is sure not to block: small, and POSIX says that a pipe that is ready takes
        PIPE_BUF bytes at once."""
        if size > 4096 or os.name != "posix":
            return False
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
            for data in iter(read, b""):
                self._keep(framer.feed(data))
            self._keep(framer.end())
        except (OSError, ValueError):
            pass

    def _keep(self, lines: List[Optional[bytes]]) -> None:
        for line in lines:
            text = (line or b"(a line of more than 1 MiB)")[:2000].decode("utf-8", "replace").rstrip()
            self._stderr_lines.append(text)
            self.log.info(f"stderr of {self.command[0]}: {text}")

    def closed(self, why: str) -> ConnectionClosed:
        """The exception that tells how this child ended. Waits a moment for its exit code and last words."""
        import subprocess
        try:
            self._process.wait(1.0)
            self._stderr_thread.join(0.5)
        except subprocess.TimeoutExpired:
            pass
        return ConnectionClosed(why, self._process.poll(), self.command, "\n".join(self._stderr_lines))

    def stop(self) -> None:
        """End the child as basic/transports/stdio.md#shutdown says: close its stdin, wait, terminate, wait, kill;
        its own children too. Takes twice EXIT_SECONDS at most, and a moment."""
        import subprocess
        try:
            self._stdin.close()
        except OSError:
            pass
        for end_it in (None, self._terminate, self._kill):
            if end_it:
                end_it()
            try:
                self._process.wait(EXIT_SECONDS)
                break
            except subprocess.TimeoutExpired:
                self.log.debug(f"{self.command[0]} is still running")
        self._kill()                             # the children it may have left

    def finish(self) -> None:
        """Close the pipes. Call when no thread reads them any more."""
        self._stderr_thread.join(1.0)
        for stream in (self._stdout, self._process.stderr):
            if stream and not (stream is self._process.stderr and self._stderr_thread.is_alive()):
                stream.close()

    def _terminate(self) -> None:
        if os.name == "posix":
            self._signal_group(15)
        else:
            self._process.terminate()

    def _kill(self) -> None:
        if os.name == "posix":
            self._signal_group(9)
        elif self._process.poll() is None:
            import subprocess
            subprocess.call(["taskkill", "/F", "/T", "/PID", str(self._process.pid)],
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def _signal_group(self, number: int) -> None:
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):
            pass


###############################################################################
# 12. Server ##################################################################
###############################################################################
# Registries of tools, resources and prompts; one handler for each method of the table; and who wants to hear of changes.
# A handler takes (ctx, params) and returns a result, or None when the request stays open.

class MainThread:
    """A host program's main thread, as `run_on=` wants it: `main = MainThread()`, `Server(run_on=main)`; the host calls
    `main.run_pending()` from its timer or loop, and handlers run there. `close()` fails those that still wait."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Any] = SimpleQueue()
        self._lock = threading.Lock()
        self._running = False                    # guarded by _lock
        self._closed = False                     # guarded by _lock

    def __call__(self, job: Callable[[], Any]) -> None:
        """Queue a job for the main thread. Raises ConnectionClosed after close()."""
        with self._lock:
            if self._closed:
                raise ConnectionClosed("the host program's main loop is closed")
            self._jobs.put(job)

    def run_pending(self, max_seconds: float = 0.01, wait: float = 0.0) -> int:
        """Run what is queued, on this thread, until nothing is or `max_seconds` are over; the job that is running then
        is finished. With `wait`, block that long for the first job: for a loop without a timer. Returns how many ran.
        A job that calls this again gets 0."""
        with self._lock:
            if self._running or self._closed:
                return 0
            self._running = True
        ran, until = 0, time.monotonic() + wait + max_seconds
        try:
            job = take(self._jobs, wait) if wait else self._jobs.get_nowait()
            while True:
                job()
                ran += 1
                if time.monotonic() >= until:
                    break
                job = self._jobs.get_nowait()
        except Empty:
            pass
        finally:
            with self._lock:
                self._running = False
        return ran

    def close(self) -> None:
        """Take no more jobs, and fail the waiting ones. Idempotent."""
        with self._lock:
            self._closed = True
        while True:
            try:
                job = self._jobs.get_nowait()
            except Empty:
                return
            job(ConnectionClosed("the host program's main loop is closed"))


class _Tool:
    __slots__ = ("wire", "signature", "output", "timeout")

    def __init__(self, wire: Json, signature: Signature, output: Output, timeout: Optional[float]) -> None:
        self.wire, self.signature, self.output, self.timeout = wire, signature, output, timeout


class _Resource:
    __slots__ = ("wire", "signature", "template")

    def __init__(self, wire: Json, signature: Signature, template: Optional[UriTemplate]) -> None:
        self.wire, self.signature, self.template = wire, signature, template


class _Prompt:
    __slots__ = ("wire", "signature")

    def __init__(self, wire: Json, signature: Signature) -> None:
        self.wire, self.signature = wire, signature


class _Listener:
    """An open subscriptions/listen: what it asked for and was granted."""
    __slots__ = ("connection", "request", "granted")

    def __init__(self, connection: Connection, request: Request, granted: Json) -> None:
        self.connection, self.request, self.granted = connection, request, granted

    def tell(self, method: str, params: Json) -> None:
        """Send a notification on this subscription."""
        meta = {META_SUBSCRIPTION: self.request.id}
        self.connection.notify(method, {**params, "_meta": meta}, self.request, block=False)


class Server:
    """An MCP server: register functions, then run() it.

    `name`, `version`, `title`, `description`, `website_url` and `icons` introduce it; `instructions` tells a model how
    to use it. `page_size` bounds a page of a list. `state_key` (16 bytes or more, or a list: the first signs, all
    verify) lets several processes take each other's `requestState`. `max_workers` bounds the handlers that run at once
    on a connection. `run_on(job)` runs handlers where it must be, on a host's main thread say. `mask_errors` keeps the
    texts of unexpected exceptions from the client. `cache_ttl_ms` is how long clients may reuse lists and resources;
    `max_message` bounds a message's bytes.

    Functions run on worker threads, several at once. Safe to use from any thread."""

    def __init__(self, name: str, version: str = "0", *, title: Optional[str] = None, instructions: Optional[str] = None,
                 description: Optional[str] = None, website_url: Optional[str] = None,
                 icons: Optional[List[Json]] = None, page_size: int = 100, state_key: Any = None,
                 max_workers: int = MAX_WORKERS, run_on: Optional[Callable[[Callable[[], Any]], Any]] = None,
                 mask_errors: bool = False, cache_ttl_ms: int = 0, max_message: int = MAX_MESSAGE) -> None:
        if not isinstance(name, str) or not name:
            raise TypeError(f"name: expected a non-empty string, got {show(name)}")
        for option, value in (("page_size", page_size), ("max_workers", max_workers), ("max_message", max_message)):
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{option}: expected an integer above 0, got {show(value)}")
        self.name, self.version, self.instructions = name, version, instructions
        self._info = _with({"name": name, "version": version}, title=title, description=description,
                           websiteUrl=website_url, icons=icons)
        self._page_size, self._max_workers, self._max_message = page_size, max_workers, max_message
        self._run_on, self._mask_errors, self._cache_ttl_ms = run_on, mask_errors, cache_ttl_ms
        self._signer = Signer(state_key)
        self._log = _Log()
        self._lock = threading.Lock()
        # Registries are replaced, never changed, so that readers need no lock; writers hold _lock.
        self._tools: Dict[str, _Tool] = {}
        self._resources: Dict[str, _Resource] = {}
        self._templates: Dict[str, _Resource] = {}
        self._prompts: Dict[str, _Prompt] = {}
        self._completers: Dict[Tuple[str, str], Callable[..., Any]] = {}
        self._connections: List[Connection] = []       # guarded by _lock
        self._listeners: List[_Listener] = []          # guarded by _lock
        self._current = threading.local()              # .context: what the handler on this thread runs for
        self._handlers: Dict[str, Handler] = {
            row.name: getattr(self, row.handler) for row in METHODS.values()
            if row.kind == "request" and row.sender != "server"}

    # Registering

    def tool(self, fn: Optional[Callable[..., Any]] = None, *, name: Optional[str] = None, title: Optional[str] = None,
             description: Optional[str] = None, annotations: Optional[Json] = None, icons: Optional[List[Json]] = None,
             meta: Optional[Json] = None, input_schema: Optional[Json] = None, output_schema: Optional[Json] = None,
             structured: Optional[bool] = None, timeout: Optional[float] = None) -> Any:
        """Decorator, with or without options: offer a function as a tool (server/tools.md).

        Parameters become the input schema by their hints, the docstring the description. The return hint becomes the
        output schema, unless it is text or content; `structured` forces or forbids that. `timeout` in seconds counts
        from when the function starts. `annotations` are the wire's hints, such as {"readOnlyHint": True}.

        The function returns text, Image, Audio, EmbeddedResource, ResourceLink, a list of those, or any value with a
        JSON form. It raises ToolError for what the caller can act on; any other exception is told as its type and
        text. Raises TypeError for parameters that the wire cannot say."""
        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            self.add_tool(function, name=name, title=title, description=description, annotations=annotations,
                          icons=icons, meta=meta, input_schema=input_schema, output_schema=output_schema,
                          structured=structured, timeout=timeout)
            return function
        return register if fn is None else register(fn)

    def add_tool(self, fn: Callable[..., Any], *, name: Optional[str] = None, title: Optional[str] = None,
                 description: Optional[str] = None, annotations: Optional[Json] = None,
                 icons: Optional[List[Json]] = None, meta: Optional[Json] = None, input_schema: Optional[Json] = None,
                 output_schema: Optional[Json] = None, structured: Optional[bool] = None,
                 timeout: Optional[float] = None) -> None:
        """Offer a function as a tool, now; clients are told. Options as of `tool`. Replaces a tool of the same name."""
        signature = Signature(fn, Context, input_schema)
        name = name or signature.name
        if not re.fullmatch(r"[A-Za-z0-9_.\-]{1,128}", name):
            raise ValueError(f"tool name {show(name)}: expected 1 to 128 letters, digits, '_', '-' or '.'; give name=")
        output = Output(signature.returns, output_schema, structured, name)
        description = describe_doc(fn) if description is None else description
        wire = _with({"name": name}, title=title, description=description, inputSchema=signature.schema,
                     outputSchema=output.schema, annotations=annotations, icons=icons, _meta=meta)
        encode_json(wire)
        self._register("_tools", name, _Tool(wire, signature, output, timeout), "tools")

    def remove_tool(self, name: str) -> None:
        """Stop offering a tool; clients are told. Raises KeyError for an unknown name."""
        self._unregister("_tools", name, "tools")

    def resource(self, uri: str, *, name: Optional[str] = None, title: Optional[str] = None,
                 description: Optional[str] = None, mime_type: Optional[str] = None, size: Optional[int] = None,
                 annotations: Optional[Json] = None, icons: Optional[List[Json]] = None,
                 meta: Optional[Json] = None) -> Any:
        """Decorator: offer what a function returns as the resource `uri` (server/resources.md).

        A URI with {expressions} is a template; its names are the function's parameters: {x} is one step of a path or
        less, {+x} anything, {/x*} a list of steps, {?a,b} optional query values. The function returns text, bytes, an
        EmbeddedResource, a list of those, or any value with a JSON form."""
        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            self.add_resource(function, uri, name=name, title=title, description=description, mime_type=mime_type,
                              size=size, annotations=annotations, icons=icons, meta=meta)
            return function
        if callable(uri):
            raise TypeError("resource needs its URI: @server.resource(\"config://app\")")
        return register

    def add_resource(self, fn: Callable[..., Any], uri: str, *, name: Optional[str] = None,
                     title: Optional[str] = None, description: Optional[str] = None, mime_type: Optional[str] = None,
                     size: Optional[int] = None, annotations: Optional[Json] = None,
                     icons: Optional[List[Json]] = None, meta: Optional[Json] = None) -> None:
        """Offer a resource or template, now; clients are told. Options as of `resource`."""
        signature = Signature(fn, Context)
        template = UriTemplate(uri) if "{" in uri or "}" in uri else None
        self._check_uri(uri, template, signature)
        wire = _with({"uri" if template is None else "uriTemplate": uri, "name": name or signature.name}, title=title,
                     description=describe_doc(fn) if description is None else description, mimeType=mime_type,
                     size=size if template is None else None, annotations=annotations, icons=icons, _meta=meta)
        encode_json(wire)
        registry = "_resources" if template is None else "_templates"
        self._register(registry, uri, _Resource(wire, signature, template), "resources")

    @staticmethod
    def _check_uri(uri: str, template: Optional[UriTemplate], signature: Signature) -> None:
        if not re.match(r"[A-Za-z][A-Za-z0-9+.\-]*:", uri):
            raise ValueError(f"resource {show(uri)}: expected a URI with a scheme, such as config://app")
        names = template.names if template else []
        for name in signature.schema["properties"]:
            if name not in names and name in signature.schema.get("required", ()):
                raise TypeError(f"{signature.name}: the parameter {name} is not in the URI {show(uri)}")
        for name in names:
            if name not in signature.schema["properties"]:
                raise TypeError(f"{signature.name}: {{{name}}} of the URI {show(uri)} is no parameter")
            if template and name in template.query and name in signature.schema.get("required", ()):
                raise TypeError(f"{signature.name}: {name} stands in the query, which may be absent; give it a default")

    def remove_resource(self, uri: str) -> None:
        """Stop offering a resource or template; clients are told. Raises KeyError for an unknown URI."""
        self._unregister("_resources" if uri in self._resources else "_templates", uri, "resources")

    def prompt(self, fn: Optional[Callable[..., Any]] = None, *, name: Optional[str] = None,
               title: Optional[str] = None, description: Optional[str] = None, icons: Optional[List[Json]] = None,
               meta: Optional[Json] = None) -> Any:
        """Decorator, with or without options: offer a function as a prompt (server/prompts.md). Its arguments come as
        text and are converted by their hints. It returns text, a Message, a content object, or a list of those."""
        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            self.add_prompt(function, name=name, title=title, description=description, icons=icons, meta=meta)
            return function
        return register if fn is None else register(fn)

    def add_prompt(self, fn: Callable[..., Any], *, name: Optional[str] = None, title: Optional[str] = None,
                   description: Optional[str] = None, icons: Optional[List[Json]] = None,
                   meta: Optional[Json] = None) -> None:
        """Offer a prompt, now; clients are told. Options as of `prompt`."""
        signature = Signature(fn, Context)
        name = name or signature.name
        arguments = [_with({"name": argument}, description=schema.get("description"),
                           required=True if argument in signature.schema.get("required", ()) else None)
                     for argument, schema in signature.schema["properties"].items()]
        wire = _with({"name": name}, title=title, icons=icons, _meta=meta, arguments=arguments or None,
                     description=describe_doc(fn) if description is None else description)
        encode_json(wire)
        self._register("_prompts", name, _Prompt(wire, signature), "prompts")

    def remove_prompt(self, name: str) -> None:
        """Stop offering a prompt; clients are told. Raises KeyError for an unknown name."""
        self._unregister("_prompts", name, "prompts")

    def completion(self, ref: str, argument: str) -> Any:
        """Decorator: complete an argument of a prompt (by name) or of a template (by URI): server/utilities/completion.md.
        The function gets the text so far, and the other arguments if it takes a second parameter; it returns the
        values. Arguments of Literal, Enum and bool complete by themselves."""
        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            with self._lock:
                self._completers = {**self._completers, (ref, argument): function}
            return function
        return register

    def resource_updated(self, uri: str) -> None:
        """Tell the clients that subscribed to this URI that the resource has changed."""
        for connection in list(self._connections):
            if uri in connection.protocol.subscribed:
                connection.notify("notifications/resources/updated", {"uri": uri}, block=False)
        for listener in list(self._listeners):
            if uri in listener.granted.get("resourceSubscriptions", ()):
                listener.tell("notifications/resources/updated", {"uri": uri})

    def logging_handler(self, level: int = 0) -> Any:
        """A handler for Python's `logging`: what is logged while a request is handled, on the thread that handles it,
        goes to that request's client: `logging.getLogger().addHandler(server.logging_handler())`."""
        import logging
        server = self

        class ContextHandler(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                context = getattr(server._current, "context", None)
                if context is not None and record.name != "mcp_lite":
                    name = "debug" if record.levelno < 20 else "info" if record.levelno < 30 else \
                        "warning" if record.levelno < 40 else "error" if record.levelno < 50 else "critical"
                    context.log(name, self.format(record), record.name)
        return ContextHandler(level)

    def _register(self, registry: str, key: str, item: Any, kind: str) -> None:
        with self._lock:
            setattr(self, registry, {**getattr(self, registry), key: item})
        self._list_changed(kind)

    def _unregister(self, registry: str, key: str, kind: str) -> None:
        with self._lock:
            items = dict(getattr(self, registry))
            del items[key]
            setattr(self, registry, items)
        self._list_changed(kind)

    def _list_changed(self, kind: str) -> None:
        member, method, _ = LIST_CHANGES[kind]
        for connection in list(self._connections):
            if connection.protocol.initialized:
                connection.notify(method, None, block=False)
        for listener in list(self._listeners):
            if listener.granted.get(member):
                listener.tell(method, {})

    # Running

    def run(self, transport: str = "stdio") -> None:
        """Serve this process's stdin and stdout until the input ends: basic/transports/stdio.md. Blocks. Meanwhile
        print() and child processes write to stderr, and input() finds nothing: the wire stays clean."""
        if transport != "stdio":
            raise ValueError(f'transport: expected "stdio", got {show(transport)}')
        with PrivateWire() as (read, write):
            self._serve(read, write)
            self._log.flush(1.0)

    def serve(self, reader: Any, writer: Any) -> None:
        """Serve one client over a pair of binary streams, a message a line, until the input ends: a TCP or Unix socket's
        makefile("rb") and makefile("wb"), say. Blocks; for several clients, call it on a thread for each."""
        self._serve(stream_reader(reader), stream_writer(writer))

    def _serve(self, read: Callable[[], bytes], write: Callable[[bytes], Any]) -> None:
        connection = self.connect(write)
        try:
            Pump(connection, read).run()
        finally:
            self.disconnect(connection)

    def connect(self, write: Callable[[bytes], Any]) -> Connection:
        """A new conversation that answers through write(bytes). For transports: feed it, then disconnect it."""
        connection = Connection(Protocol("server", self.capabilities), self, write, name="mcp-worker", log=self._log,
                                max_workers=self._max_workers, max_message=self._max_message)
        with self._lock:
            self._connections.append(connection)
        return connection

    def disconnect(self, connection: Connection) -> None:
        """Forget a conversation that has ended."""
        with self._lock:
            if connection in self._connections:
                self._connections.remove(connection)
            self._listeners = [each for each in self._listeners if each.connection is not connection]

    def handle(self, message: Json) -> Optional[Json]:
        """Answer one decoded modern message (2026-07-28), on this thread: for lambdas and custom transports. Returns the
        decoded answer, or None for a notification. Progress and logs have no way out and are dropped; listening is
        refused."""
        connection = Connection(Protocol("server", self.capabilities), self, _nowhere, name="mcp-handle", log=self._log)
        event = connection.protocol.receive(message)
        if isinstance(event, Refusal):
            return event.reply
        if not isinstance(event, Request):
            return None
        answer: List[Json] = []
        connection.respond = lambda request, reply: bool(answer.append(reply) or True)   # type: ignore[method-assign]
        self.serve_request(connection, event)
        connection.close(ConnectionClosed("the message is answered"))
        if not answer:
            return error_message(event.id, MethodNotFound(f"{event.method} needs a connection that stays open"))
        return answer[0]

    # The Connection's endpoint

    def capabilities(self) -> Json:
        """What this server declares, by what is registered."""
        declared: Json = {"logging": {}}
        if self._tools:
            declared["tools"] = {"listChanged": True}
        if self._resources or self._templates:
            declared["resources"] = {"subscribe": True, "listChanged": True}
        if self._prompts:
            declared["prompts"] = {"listChanged": True}
        if self._prompts or self._templates:
            declared["completions"] = {}
        return declared

    def serve_request(self, connection: Connection, request: Request) -> None:
        """Run the handler of an admitted request and answer. Runs on a worker, or on the reading thread for inline
        methods. Whatever the handler raises becomes an answer."""
        message = self._answer(connection, request)
        if message is not None:
            connection.respond(request, message)

    def take_notification(self, connection: Connection, notification: Notification) -> None:
        """Nothing that a client tells needs more than the Protocol noted."""

    def output_lost(self, connection: Connection) -> None:
        """The client reads no more: it has left."""
        connection.cancel_all()

    def input_ended(self, connection: Connection) -> None:
        """The client says no more: end its subscriptions gracefully (basic/patterns/subscriptions.md)."""
        with self._lock:
            ended = [each for each in self._listeners if each.connection is connection]
            self._listeners = [each for each in self._listeners if each.connection is not connection]
        for listener in ended:
            result = self._finish(listener.request, {"_meta": {META_SUBSCRIPTION: listener.request.id}})
            connection.respond(listener.request, result_message(listener.request.id, result))

    def _answer(self, connection: Connection, request: Request) -> Optional[Json]:
        context = Context(connection, request, self._signer)
        assert request.row is not None
        try:
            try:
                if request.row.asks and ("requestState" in request.params or "inputResponses" in request.params):
                    context.load_answers()
                result = self._handlers[request.method](context, request.params)
            except _InputRequired as pause:
                result = context.input_required(pause.questions)
            return None if result is None else result_message(request.id, self._finish(request, result))
        except McpError as error:
            return error_message(request.id, error)
        except Cancelled:
            return error_message(request.id, RequestCancelled("request cancelled"))
        except BaseException as error:           # SystemExit too: a handler does not end the server
            self._log.error(f"{request.method} failed: {error!r}", error)
            return error_message(request.id, InternalError(f"{request.method}: internal error"))

    def _finish(self, request: Request, result: Json) -> Json:
        """What every modern result carries: its type, who answers, and how long it may be reused."""
        if request.modern:
            result.setdefault("resultType", "complete")
            result["_meta"] = {**result.get("_meta", {}), META_SERVER_INFO: self._info}
            if request.row is not None and request.row.cacheable and result["resultType"] == "complete":
                result.setdefault("ttlMs", self._cache_ttl_ms)
                result.setdefault("cacheScope", "private" if request.row.asks else "public")
        return result

    # Handlers: lifecycle

    def _initialize(self, ctx: Context, params: Json) -> Json:
        return _with({"protocolVersion": ctx.protocol_version, "capabilities": self.capabilities(),
                      "serverInfo": fit_members(self._info, ctx.protocol_version)}, instructions=self.instructions)

    def _ping(self, ctx: Context, params: Json) -> Json:
        return {}

    def _server_discover(self, ctx: Context, params: Json) -> Json:
        return _with({"supportedVersions": list(MODERN_VERSIONS), "capabilities": self.capabilities()},
                     instructions=self.instructions)

    def _logging_set_level(self, ctx: Context, params: Json) -> Json:
        if params["level"] not in LOG_LEVELS:
            raise InvalidParams(f"level: expected one of {', '.join(LOG_LEVELS)}, got {show(params['level'])}")
        ctx._connection.protocol.log_level = params["level"]
        return {}

    # Handlers: lists

    def _page(self, ctx: Context, items: Iterable[Any], params: Json) -> Json:
        """One page: server/utilities/pagination.md. A cursor says method and place, and needs no memory here."""
        import binascii
        row = ctx._request.row
        assert row is not None
        start, cursor = 0, params.get("cursor")
        if cursor is not None:
            try:
                name, _, place = binascii.a2b_base64(cursor.encode("ascii")).decode("utf-8").rpartition(":")
                start = int(place)
            except ValueError:
                name = ""
            if name != row.name or start < 1:
                raise InvalidParams(f"cursor: not from this list: {show(cursor)}")
        found = [fit_members(item.wire, ctx.protocol_version) for item in items]
        result: Json = {row.paged: found[start:start + self._page_size]}
        if start + self._page_size < len(found):
            result["nextCursor"] = _base64(f"{row.name}:{start + self._page_size}".encode("utf-8"))
        return result

    def _tools_list(self, ctx: Context, params: Json) -> Json:
        return self._page(ctx, self._tools.values(), params)

    def _resources_list(self, ctx: Context, params: Json) -> Json:
        return self._page(ctx, self._resources.values(), params)

    def _resources_templates_list(self, ctx: Context, params: Json) -> Json:
        return self._page(ctx, self._templates.values(), params)

    def _prompts_list(self, ctx: Context, params: Json) -> Json:
        return self._page(ctx, self._prompts.values(), params)

    # Handlers: tools, resources, prompts

    def _call(self, ctx: Context, signature: Signature, arguments: Json, timeout: Optional[float] = None) -> Any:
        """Run a registered function, where run_on says, within its time."""
        if signature.context is not None:
            arguments[signature.context] = ctx
        if self._run_on is None and timeout is None:
            self._current.context = ctx
            try:
                return signature.fn(**arguments)
            finally:
                self._current.context = None

        def job() -> Any:
            timer = None if timeout is None else self._start_timer(ctx, timeout)
            self._current.context = ctx
            try:
                return signature.fn(**arguments)
            finally:
                self._current.context = None
                if timer is not None:
                    timer.cancel()
        return job() if self._run_on is None else self._call_elsewhere(ctx, job)

    def _start_timer(self, ctx: Context, timeout: float) -> threading.Timer:
        def expire() -> None:
            text = f"timed out after {timeout:g} seconds"
            result = self._finish(ctx._request, {"content": [{"type": "text", "text": text}], "isError": True})
            ctx._connection.cut_short(ctx._request, result_message(ctx.request_id, result))
        timer = threading.Timer(timeout, expire)
        timer.name, timer.daemon = "mcp-timer", True
        timer.start()
        return timer

    def _call_elsewhere(self, ctx: Context, job: Callable[[], Any]) -> Any:
        """Have run_on run the job, and wait for it here. The result travels in a slot of our own, so a host that swallows
        exceptions or return values loses nothing."""
        slot: SimpleQueue[Any] = SimpleQueue()

        def task(refused: Optional[Exception] = None) -> None:
            try:
                if refused is not None:
                    raise refused
                ctx.check_cancelled()            # cancelled while it was queued
                slot.put(("done", job()))
            except BaseException as error:
                slot.put(("raised", error))
        request = ctx._request
        request.waiters.append(slot)
        try:
            ctx.check_cancelled()
            assert self._run_on is not None
            self._run_on(task)
            ctx._connection.before_block(request)
            kind, value = slot.get()             # ends with the job, or when the request is cancelled
        finally:
            request.waiters.remove(slot)
        if kind == "raised":
            raise value
        if kind == "cancelled":
            raise Cancelled("the request was cancelled")
        return value

    def _tools_call(self, ctx: Context, params: Json) -> Json:
        tool = self._tools.get(params["name"])
        if tool is None:
            raise NotFound(f"Unknown tool: {params['name']}" + suggest(params["name"], self._tools))
        try:
            arguments = tool.signature.bind(params.get("arguments") or {})
        except InvalidParams as error:
            # Since 2025-11-25 "input validation errors should be returned as Tool Execution Errors", for the model.
            if ctx.protocol_version < LAST_LEGACY:
                raise
            return self._tool_failed(str(error))
        try:
            value = self._call(ctx, tool.signature, arguments, tool.timeout)
        except (McpError, _InputRequired, Cancelled):
            raise
        except ToolError as error:
            return self._tool_failed(str(error), error.content, ctx.protocol_version)
        except BaseException as error:
            self._log.warning(f"tool {params['name']} raised {error!r}", error)
            return self._tool_failed("the tool failed" if self._mask_errors else f"{type(error).__name__}: {error}")
        return self._fit_result(tool.output.result(value), ctx.protocol_version)

    def _tool_failed(self, text: str, content: Optional[List[Any]] = None, version: str = MODERN) -> Json:
        # A lone surrogate in an exception's text must not cost the model the whole text.
        text = text.encode("utf-8", "backslashreplace").decode("utf-8")
        blocks = [_block(item) for item in content] if content else [{"type": "text", "text": text}]
        return self._fit_result({"content": blocks, "isError": True}, version)

    @staticmethod
    def _fit_result(result: Json, version: str) -> Json:
        if version < "2025-06-18":
            result.pop("structuredContent", None)
            result["content"] = [fit_block(block, version) for block in result["content"]]
        return result

    def _resources_read(self, ctx: Context, params: Json) -> Json:
        uri: str = params["uri"]
        resource, arguments = self._find_resource(uri)
        if resource is None:
            raise self._no_resource(ctx, uri)
        try:
            bound = resource.signature.bind_text(arguments)
        except InvalidParams as error:
            missing = self._no_resource(ctx, uri)
            missing.args = (f"{missing.message}: {error}",)
            missing.message = missing.args[0]
            raise missing from None
        try:
            value = self._call(ctx, resource.signature, bound)
        except ToolError as error:
            raise InternalError(str(error)) from None
        mime_type = resource.wire.get("mimeType")
        values = value if isinstance(value, (list, tuple)) and value and \
            all(isinstance(item, EmbeddedResource) for item in value) else [value]
        return {"contents": [self._contents(uri, item, mime_type) for item in values]}

    def _find_resource(self, uri: str) -> Tuple[Optional[_Resource], Dict[str, Any]]:
        if uri in self._resources:
            return self._resources[uri], {}
        for resource in self._templates.values():
            assert resource.template is not None
            found = resource.template.match(uri)
            if found is not None:
                return resource, found
        return None, {}

    @staticmethod
    def _no_resource(ctx: Context, uri: str) -> NotFound:
        error = NotFound(f"Resource not found: {uri}", {"uri": uri})
        if ctx.protocol_version < MODERN:
            error.code = -32002
        return error

    @staticmethod
    def _contents(uri: str, value: Any, mime_type: Optional[str]) -> Json:
        if isinstance(value, EmbeddedResource):
            return resource_contents(value.uri, value.content, value.mime_type or mime_type)
        if isinstance(value, _Media):
            return resource_contents(uri, value.data, mime_type or value.mime_type)
        if isinstance(value, str):
            return resource_contents(uri, value, mime_type or "text/plain")
        if isinstance(value, (bytes, bytearray, memoryview)):
            return resource_contents(uri, bytes(value), mime_type or "application/octet-stream")
        return resource_contents(uri, encode_json(to_plain(value)), mime_type or "application/json")

    def _resources_subscribe(self, ctx: Context, params: Json) -> Json:
        if self._find_resource(params["uri"])[0] is None:
            raise self._no_resource(ctx, params["uri"])
        subscribed = ctx._connection.protocol.subscribed
        if len(subscribed) >= MAX_QUEUED:
            raise InvalidRequest(f"more than {MAX_QUEUED} subscriptions")
        subscribed[params["uri"]] = True
        return {}

    def _resources_unsubscribe(self, ctx: Context, params: Json) -> Json:
        ctx._connection.protocol.subscribed.pop(params["uri"], None)
        return {}

    def _prompts_get(self, ctx: Context, params: Json) -> Json:
        prompt = self._prompts.get(params["name"])
        if prompt is None:
            raise NotFound(f"Unknown prompt: {params['name']}" + suggest(params["name"], self._prompts))
        try:
            value = self._call(ctx, prompt.signature, prompt.signature.bind_text(params.get("arguments") or {}))
        except ToolError as error:
            raise InternalError(str(error)) from None
        messages = prompt_messages(value)
        for message in messages:
            if isinstance(message["content"], dict):
                message["content"] = fit_block(message["content"], ctx.protocol_version)
        return _with({"messages": messages}, description=prompt.wire.get("description"))

    # Handlers: completion, subscriptions

    def _completion_complete(self, ctx: Context, params: Json) -> Json:
        ref, argument = params["ref"], params["argument"]
        name, text = argument.get("name"), argument.get("value")
        if not isinstance(name, str) or not isinstance(text, str):
            raise InvalidParams(f"argument: expected {{name, value}}, both strings, got {show(argument)}")
        known: Dict[str, Any] = {"ref/prompt": self._prompts, "ref/resource": self._templates}.get(ref.get("type"), {})
        key = ref.get("name" if ref.get("type") == "ref/prompt" else "uri")
        if not isinstance(key, str) or key not in known:
            raise InvalidParams(f"ref: expected a known ref/prompt or ref/resource, got {show(ref)}")
        signature: Signature = known[key].signature
        if name not in signature.schema["properties"]:
            raise InvalidParams(f"argument: {key} has no {show(name)}" + suggest(name, signature.schema["properties"]))
        others = (params.get("context") or {}).get("arguments") or {}
        completer = self._completers.get((key, name))
        if completer is None:
            values = [value for value in signature.completions(name) if value.lower().startswith(text.lower())]
        else:
            wants = len(read_parameters(completer)[0])
            values = [str(value) for value in completer(*(text, others)[:wants])]
        return {"completion": {"values": values[:MAX_COMPLETIONS], "total": len(values),
                               "hasMore": len(values) > MAX_COMPLETIONS}}

    def _subscriptions_listen(self, ctx: Context, params: Json) -> None:
        wanted, granted = params["notifications"], {}
        declared = self.capabilities()
        for member, _, capability in LIST_CHANGES.values():
            if wanted.get(member) is True and has_capability(declared, capability):
                granted[member] = True
        uris = wanted.get("resourceSubscriptions", [])
        if not isinstance(uris, list) or not all(isinstance(uri, str) for uri in uris):
            raise InvalidParams(f"notifications.resourceSubscriptions: expected array of strings, got {show(uris)}")
        if uris and has_capability(declared, "resources.subscribe"):
            granted["resourceSubscriptions"] = uris
        listener = _Listener(ctx._connection, ctx._request, granted)
        # "MUST NOT send any notification on the subscription before" the acknowledgement.
        listener.tell("notifications/subscriptions/acknowledged", {"notifications": granted})
        with self._lock:
            self._listeners = [each for each in self._listeners if not each.request.cancelled] + [listener]


def _nowhere(data: bytes) -> None:
    """A write for a conversation whose answers are taken before they are bytes."""


###############################################################################
# 13. Client ##################################################################
###############################################################################
# Connects to a server wherever it is, finds out which era and revision it speaks, and turns each method into a blocking
# call. Answers the server's questions through the callbacks, in either era.

class _Callbacks:
    """One thread that runs a client's on_log and on_notification in order, so that the reading thread never runs user
    code. Born with the first event."""

    def __init__(self, log: _Log) -> None:
        self._log = log
        self._events: SimpleQueue[Any] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: Optional[threading.Thread] = None       # guarded by _lock
        self._closed = False                                  # guarded by _lock

    def put(self, job: Callable[[], Any]) -> None:
        """Run the job after those before it. Never blocks."""
        with self._lock:
            if self._closed:
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="mcp-callbacks", daemon=True)
                self._thread.start()
        if put_bounded(self._events, job):
            self._log.warning(f"a notification was dropped: more than {MAX_QUEUED} wait for the callbacks")

    def _run(self) -> None:
        for job in iter(self._events.get, None):
            try:
                job()
            except Exception as error:
                self._log.error(f"a callback failed: {error!r}", error)

    def close(self, seconds: float) -> None:
        """Run what is queued, then end; wait for that, but no longer than `seconds`."""
        with self._lock:
            self._closed, thread = True, self._thread
        self._events.put(None)
        if thread is not None and thread is not threading.current_thread():
            thread.join(seconds)


class Call:
    """A call in flight, as `Client.start_call` returns it. Several may be open at once. Safe from any thread."""

    def __init__(self, client: Client, method: str, params: Json, on_progress: Optional[Callable[..., Any]]) -> None:
        self._client, self._connection, self._params = client, client._open_connection(), params
        self._on_progress = on_progress
        self._rounds = 0
        self._cancelled = False
        self._outcome: Any = None                # ("result", dict) or ("error", exception), once known
        self._waiter = Waiter(method, on_progress is not None, self._on_answer)
        self._connection.request(self._waiter, params)

    def result(self, timeout: Optional[float] = None) -> Json:
        """Block until the answer, running the progress callback here; `timeout` in seconds, else the client's. Raises
        McpError, Timeout (and the call is cancelled), Cancelled, ConnectionClosed."""
        if self._outcome is None:
            seconds = self._client.timeout if timeout is None else timeout
            try:
                self._outcome = ("result", self._connection.wait(self._waiter, seconds, self._on_progress))
            except (McpError, Cancelled, Timeout, ConnectionClosed) as error:
                self._cancelled = True
                self._outcome = ("error", error)
            except BaseException:
                self._cancelled = True
                raise
        kind, value = self._outcome
        if kind == "error":
            raise value
        found: Json = value
        return found

    def cancel(self, reason: Optional[str] = None) -> None:
        """Tell the server to stop; result() raises Cancelled. Nothing happens if the answer is already here."""
        self._cancelled = True
        if self._connection.abandon(self._waiter, reason):
            self._waiter.inbox.put(("cancelled", None))

    def done(self) -> bool:
        """Whether result() would return, or raise, at once."""
        return self._outcome is not None or (self._waiter.id not in self._connection.protocol.pending
                                             and not self._waiter.inbox.empty())

    # Multi round-trip requests: basic/patterns/mrtr.md

    def _on_answer(self, answer: Answer) -> bool:
        kind = "complete" if answer.result is None else answer.result.get("resultType", "complete")
        if kind == "input_required":
            self._connection.workers.submit(lambda: self._answer_questions(answer.result or {}))
            return True
        if kind != "complete":
            # "A resultType of any value unrecognized by the client MUST be considered invalid."
            answer.error = InternalError(f"the server's result has an unknown resultType {show(kind)}")
        return False

    def _answer_questions(self, asked: Json) -> None:
        try:
            self._rounds += 1
            if self._rounds > MAX_ROUNDS:
                raise InternalError(f"{self._waiter.method}: the server asked more than {MAX_ROUNDS} times")
            params = {name: value for name, value in self._params.items() if name != "requestState"}
            questions = asked.get("inputRequests")
            if questions is not None:
                params["inputResponses"] = self._client._answer_all(self._connection, questions)
            if "requestState" in asked:
                params["requestState"] = asked["requestState"]
            if self._cancelled:
                self._waiter.inbox.put(("cancelled", None))
            else:
                self._connection.request(self._waiter, params)
        except Exception as error:
            self._waiter.inbox.put(("answer", Answer(self._waiter, None, error)))


class Listening:
    """An iterator over a server's notifications, as `Client.listen` returns it. A context manager, too."""

    def __init__(self, client: Client, kinds: List[str], uris: List[str]) -> None:
        self._client, self._connection, self._uris = client, client._open_connection(), uris
        self._events: SimpleQueue[Any] = SimpleQueue()
        self._members = [LIST_CHANGES[kind][0] for kind in kinds]
        self._methods = [LIST_CHANGES[kind][1] for kind in kinds]
        self._closed = False
        self._waiter: Optional[Waiter] = None
        if client.protocol_version >= MODERN:
            self._open_modern()
        else:
            self._open_legacy()

    def _open_modern(self) -> None:
        wanted: Json = {member: True for member in self._members}
        if self._uris:
            wanted["resourceSubscriptions"] = self._uris
        self._waiter = self._client._subscribe_modern(wanted, self._put, self._end)

    def _open_legacy(self) -> None:
        self._client._listenings.append(self)
        for uri in self._uris:
            self._client._request("resources/subscribe", {"uri": uri})

    def _put(self, method: str, params: Json) -> None:
        put_bounded(self._events, {"method": method, "params": params})

    def _end(self, answer: Answer) -> bool:
        self._events.put(answer.error)           # None: the server ended it gracefully
        return True

    def offer(self, method: str, params: Json) -> None:
        """Take a notification of a legacy session, if it was asked for."""
        if method in self._methods or params.get("uri") in self._uris:
            self._put(method, params)

    def __iter__(self) -> Iterator[Json]:
        return self

    def __next__(self) -> Json:
        if self._closed:
            raise StopIteration
        event = take(self._events, None)
        if isinstance(event, dict):
            return event
        self._closed = True
        if isinstance(event, Exception):
            raise event
        raise StopIteration

    def close(self) -> None:
        """End it: the server is told, and the iteration stops. Idempotent, from any thread."""
        if self._closed:
            return
        self._closed = True
        self._events.put(None)
        if self._waiter is not None:
            self._connection.abandon(self._waiter, None)
            return
        listenings = self._client._listenings
        if self in listenings:
            listenings.remove(self)
        for uri in self._uris:
            if not any(uri in other._uris for other in listenings) and self._connection.closed is None:
                self._client._request("resources/unsubscribe", {"uri": uri})

    def __enter__(self) -> Listening:
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self.close()


class Client:
    """An MCP client with blocking calls: `with Client(target) as client: client.call("tool", x=1)`.

    `target`: a command as a list, "server.py" or a command line, {"command":, "args":, "env":}, a Server in this
    process, or (reader, writer), two binary streams. `timeout` in seconds is for each request. `version` is "auto", or
    the one revision to speak. `env` is added to this process's environment, `cwd` is the child's directory.

    Callbacks: on_elicit(params) returns {"action":, "content":} or None for "cancel"; on_sample(params) the wire's
    result, or text; `roots` is a list of paths, URIs or {"uri":, "name":}, or a function that returns one; each makes
    the client declare that capability, and runs on a worker, so that it may call the client. on_log(level, data,
    logger) and on_notification(method, params) run in order on a thread of their own; on_progress(progress, total,
    message) in the thread that waits for the call. `trace(direction, line)` sees every message as bytes; True writes
    them to stderr. `validate=False` takes structured results as they come.

    Safe to use from any thread. Errors: McpError and its subclasses, ToolError, Timeout, Cancelled, ConnectionClosed."""

    def __init__(self, target: Any, *, timeout: float = 60.0, headers: Optional[Dict[str, str]] = None,
                 env: Optional[Dict[str, str]] = None, cwd: Any = None, version: str = "auto", name: str = "mcp_lite",
                 client_version: str = __version__, roots: Any = None,
                 on_elicit: Optional[Callable[[Json], Any]] = None, on_sample: Optional[Callable[[Json], Any]] = None,
                 on_log: Optional[Callable[..., Any]] = None, on_progress: Optional[Callable[..., Any]] = None,
                 on_notification: Optional[Callable[[str, Json], Any]] = None, trace: Any = None,
                 ssl_context: Any = None, validate: bool = True) -> None:
        if version not in ("auto",) + LEGACY_VERSIONS + MODERN_VERSIONS:
            raise ValueError(f"version: expected auto, {', '.join(LEGACY_VERSIONS + MODERN_VERSIONS)}, got {show(version)}")
        self.timeout = timeout
        self._target, self._env, self._cwd, self._version = target, env, cwd, version
        self._info = {"name": name, "version": client_version}
        self._roots, self._on_elicit, self._on_sample = roots, on_elicit, on_sample
        self._on_log, self._on_progress, self._on_notification = on_log, on_progress, on_notification
        self._trace = _tracer(trace)
        self._validate = validate
        self._log = _Log()
        self._lock = threading.Lock()
        self._connection: Optional[Connection] = None  # guarded by _lock
        self._child: Optional[Child] = None
        self._reader: Optional[threading.Thread] = None
        self._hang_up: Callable[[], Any] = _nothing    # ends the transport
        self._callbacks = _Callbacks(self._log)
        self._server: Json = {}                        # serverInfo, capabilities, instructions: the server's own words
        self._log_level = ""
        self._listenings: List[Listening] = []         # of a legacy session
        self._subscriptions: Dict[str, Waiter] = {}    # of the modern era, by URI
        self._output_schemas: Optional[Dict[str, Schema]] = None
        self._handlers: Dict[str, Callable[[Json], Json]] = {
            row.name: getattr(self, row.handler) for row in METHODS.values()
            if row.kind == "request" and row.sender != "client"}

    # Connecting

    def connect(self) -> Client:
        """Start or reach the server and agree on a revision. Blocks. Raises ConnectionClosed, UnsupportedVersion,
        Timeout; and RuntimeError when it is connected already."""
        with self._lock:
            if self._connection is not None:
                raise RuntimeError("the client is connected already")
        try:
            try:
                self._open_transport()
                self._negotiate(self._version)
            except ConnectionClosed:
                if self._version != "auto" or self._child is None or self._server:
                    raise
                # Some old servers end when they are asked anything before `initialize`: one more try, without asking.
                self._close_transport()
                self._open_transport()
                self._negotiate(LAST_LEGACY)
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """End the conversation and the transport; a child process is gone when this returns. Idempotent, from any
        thread: whoever waits gets ConnectionClosed."""
        self._close_transport()
        self._callbacks.close(EXIT_SECONDS)

    def __enter__(self) -> Client:
        return self if self._connection is not None else self.connect()

    def __exit__(self, *exc_info: Any) -> None:
        self.close()

    def _open_transport(self) -> None:
        target = self._target
        if isinstance(target, Server):
            self._open_memory(target)
        elif isinstance(target, tuple) and len(target) == 2 and hasattr(target[0], "read"):
            self._open_streams(*target)
        else:
            command, env = command_of(target)
            self._child = child = Child(command, {**env, **(self._env or {})} or None, self._cwd, self._log)
            self._hang_up = child.stop
            connection = self._make_connection(child.write, child.may_write)
            self._start_reader(connection, child.read, lambda: child.closed("the server closed the connection"))

    def _make_connection(self, write: Callable[[bytes], Any], may_write: Optional[Callable[[int], bool]]) -> Connection:
        connection = Connection(Protocol("client", self._capabilities), self, write, name="mcp-client", log=self._log,
                                trace=self._trace, may_write=may_write)
        with self._lock:
            self._connection = connection
        return connection

    def _open_memory(self, server: Server) -> None:
        mine = self._make_connection(lambda data: its.dispatch(its.feed(data)), None)
        its = server.connect(lambda data: mine.dispatch(mine.feed(data)))

        def hang_up() -> None:
            closed = ConnectionClosed("the client closed the connection")
            its.abandon_questions(closed)
            its.close(closed, EXIT_SECONDS)
            server.disconnect(its)
        self._hang_up = hang_up

    def _open_streams(self, reader: Any, writer: Any) -> None:
        def hang_up() -> None:
            for stream in (writer, reader):
                # A socket's files keep it open, and a thread in its read: say the end to both.
                sock = getattr(getattr(stream, "raw", stream), "_sock", None)
                if sock is not None:
                    try:
                        sock.shutdown(2)
                    except OSError:
                        pass
            try:
                writer.close()
            except (OSError, ValueError):
                pass
        self._hang_up = hang_up
        connection = self._make_connection(stream_writer(writer), lambda size: False)
        self._start_reader(connection, stream_reader(reader),
                           lambda: ConnectionClosed("the server closed the connection"))

    def _start_reader(self, connection: Connection, read: Callable[[], bytes],
                      closed: Callable[[], ConnectionClosed]) -> None:
        def run() -> None:
            try:
                for data in iter(read, b""):
                    connection.dispatch(connection.feed(data))
                connection.dispatch(connection.feed(b""))
            except (OSError, ValueError) as error:       # ValueError: the file was closed
                self._log.debug(f"the server's output ended: {error!r}")
            connection.close(closed())
        self._reader = threading.Thread(target=run, name="mcp-reader", daemon=True)
        self._reader.start()

    def _close_transport(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
            hang_up, self._hang_up = self._hang_up, _nothing
        if connection is None:
            return
        connection.hang_up(ConnectionClosed("the client is closed"))
        hang_up()
        if self._reader is not None and self._reader is not threading.current_thread():
            self._reader.join(EXIT_SECONDS)
            if self._child is not None and not self._reader.is_alive():
                self._child.finish()
        connection.workers.close(EXIT_SECONDS)
        self._child = self._reader = None

    # Agreeing on a revision: basic/versioning.md, and basic/lifecycle.md of the legacy revisions

    def _negotiate(self, wanted: str) -> None:
        connection = self._open_connection()
        if wanted in LEGACY_VERSIONS:
            self._take_session(self._wait(self._start_handshake(wanted)), wanted)
            return
        probe = connection.request(Waiter("server/discover"), {"_meta": self._meta(MODERN)})
        try:
            patience = self.timeout if wanted in MODERN_VERSIONS else min(PROBE_SECONDS, self.timeout)
            _, answer = take(probe.inbox, patience)
        except Empty:
            answer = self._try_both(probe, wanted)
        if answer.pending is not probe:          # the server answered `initialize` in the meantime
            if answer.error is not None:
                raise answer.error
            self._take_session(answer.result, "")
        else:
            self._take_discovery(answer, wanted)

    def _start_handshake(self, version: str, inbox: Any = None) -> Waiter:
        waiter = Waiter("initialize")
        if inbox is not None:
            waiter.inbox = inbox
        params = {"protocolVersion": version, "capabilities": self._capabilities(), "clientInfo": self._info}
        return self._open_connection().request(waiter, params)

    def _try_both(self, probe: Waiter, wanted: str) -> Answer:
        """The server is silent: it may be slow, or one that ignores what it does not know. Ask the old way too, and
        take the first real answer."""
        connection = self._open_connection()
        if wanted in MODERN_VERSIONS:
            connection.abandon(probe, "no answer")
            raise Timeout(f"server/discover: no answer within {self.timeout:g} seconds")
        handshake = self._start_handshake(LAST_LEGACY, probe.inbox)
        until = time.monotonic() + self.timeout
        try:
            while True:
                _, answer = take(probe.inbox, max(0.0, until - time.monotonic()))
                if answer.pending is handshake or answer.error is None or \
                        getattr(answer.error, "code", 0) in MODERN_ERRORS:
                    connection.protocol.pending.pop(probe.id, None)
                    return Answer(answer.pending, answer.result, answer.error)
        except Empty:
            raise Timeout(f"initialize: no answer within {self.timeout:g} seconds") from None

    def _take_discovery(self, answer: Answer, wanted: str) -> None:
        error, result = answer.error, answer.result or {}
        if error is not None and not isinstance(error, McpError):
            raise error
        if error is None and isinstance(result.get("supportedVersions"), list):
            offered = result["supportedVersions"]
        elif isinstance(error, UnsupportedVersion) and isinstance(error.data, dict):
            offered = error.data.get("supported") or []
        elif wanted in MODERN_VERSIONS or (isinstance(error, McpError) and error.code in MODERN_ERRORS):
            raise error or InternalError(f"server/discover: expected supportedVersions, got {show(result)}")
        else:
            offered = list(LEGACY_VERSIONS)      # "any other error [...]: the server is legacy"
        if MODERN in offered and error is None:
            server_info = result.get("_meta", {}).get(META_SERVER_INFO) or result.get("serverInfo") or {}
            self._take_server(MODERN, {**result, "serverInfo": server_info})
            return
        legacy = [version for version in LEGACY_VERSIONS if version in offered]
        if wanted != "auto" or not legacy:
            raise UnsupportedVersion(f"no revision in common: the server speaks {show(offered)}",
                                     {"supported": offered, "requested": MODERN})
        self._take_session(self._wait(self._start_handshake(legacy[-1])), "")

    def _take_session(self, result: Json, wanted: str) -> None:
        version = result.get("protocolVersion")
        if version not in LEGACY_VERSIONS or (wanted and self._version != "auto" and version != wanted):
            # "If the client does not support the version in the server's response, it SHOULD disconnect."
            raise UnsupportedVersion(f"the server speaks {show(version)}, not {wanted or 'a revision known here'}",
                                     {"supported": [version], "requested": wanted or LAST_LEGACY})
        self._take_server(version, result)
        self._open_connection().notify("notifications/initialized", None)

    def _take_server(self, version: str, words: Json) -> None:
        protocol = self._open_connection().protocol
        protocol.version, protocol.initialized = version, True
        self._server = words

    def _capabilities(self) -> Json:
        declared: Json = {}
        if self._on_elicit is not None:
            declared["elicitation"] = {"form": {}, "url": {}}
        if self._on_sample is not None:
            declared["sampling"] = {"tools": {}}
        if self._roots is not None:
            declared["roots"] = {"listChanged": True}
        return declared

    def _meta(self, version: str) -> Json:
        meta = {META_VERSION: version, META_CLIENT_INFO: self._info, META_CAPABILITIES: self._capabilities()}
        if self._log_level:
            meta[META_LOG_LEVEL] = self._log_level
        return meta

    # What is known of the server

    @property
    def server_info(self) -> Json:
        """{"name", "version", ...} as the server says; not verified. May be empty in the modern era."""
        found = self._server.get("serverInfo")
        return found if isinstance(found, dict) else {}

    @property
    def server_capabilities(self) -> Json:
        """What the server declared: "tools", "resources", "prompts", "logging", "completions"."""
        found = self._server.get("capabilities")
        return found if isinstance(found, dict) else {}

    @property
    def instructions(self) -> Optional[str]:
        """What the server says of its use, for a model; or None."""
        found = self._server.get("instructions")
        return found if isinstance(found, str) else None

    @property
    def protocol_version(self) -> str:
        """The revision that this conversation speaks. Raises ConnectionClosed before connect()."""
        return self._open_connection().protocol.version

    # Requests

    def request(self, method: str, params: Optional[Json] = None, timeout: Optional[float] = None) -> Json:
        """Send any request and block for its result, as on the wire. The modern `_meta` is added. A method of the
        protocol is refused here when this revision does not have it (MethodNotFound), or the server did not declare
        what it needs."""
        return self._request(method, params, timeout)

    def notify(self, method: str, params: Optional[Json] = None) -> None:
        """Send any notification."""
        self._open_connection().notify(method, params)

    def call(self, name: str, /, **arguments: Any) -> Any:
        """Call a tool for its value: structured content unwrapped, else its text, else its content blocks (one, or a
        list). Raises ToolError when the tool says that it failed."""
        result = self.call_tool(name, arguments)
        if result.get("isError"):
            texts = [str(block.get("text", "")) for block in result.get("content") or [] if block.get("type") == "text"]
            raise ToolError("\n".join(texts) or "the tool failed", result.get("content"))
        return unwrap_result(result)

    def call_tool(self, name: str, arguments: Optional[Json] = None, timeout: Optional[float] = None,
                  on_progress: Optional[Callable[..., Any]] = None, meta: Optional[Json] = None) -> Json:
        """Call a tool for its result as on the wire: {"content", "structuredContent", "isError"}: server/tools.md.
        Questions on the way go to the callbacks. Raises NotFound, InvalidParams, Timeout, and InternalError for a
        structured result that its outputSchema forbids."""
        params: Json = {"name": name, "arguments": arguments or {}}
        if meta:
            params["_meta"] = meta
        try:
            result = self._request("tools/call", params, timeout, on_progress)
        except InvalidParams as error:
            raise _as_not_found(error, "tool", name) from None
        if self._validate and "structuredContent" in result and not result.get("isError"):
            self._check_structured(name, result["structuredContent"])
        return result

    def start_call(self, name: str, arguments: Optional[Json] = None, *,
                   on_progress: Optional[Callable[..., Any]] = None) -> Call:
        """Start a tool call and return at once: `call.result(timeout=None)`, `call.cancel(reason=None)`,
        `call.done()`. Progress is told in the thread that waits in result()."""
        return self._start("tools/call", {"name": name, "arguments": arguments or {}}, on_progress)

    def list_tools(self) -> List[Json]:
        """Every tool, from every page: [{"name", "inputSchema", ...}]."""
        tools = self._list("tools/list")
        self._output_schemas = {}
        for tool in tools:
            if isinstance(tool.get("outputSchema"), dict):
                try:
                    self._output_schemas[tool["name"]] = Schema(tool["outputSchema"])
                except ValueError as error:
                    self._log.warning(f"the outputSchema of {show(tool.get('name'))} is not used: {error}")
        return tools

    def list_resources(self) -> List[Json]:
        """Every resource: [{"uri", "name", ...}]."""
        return self._list("resources/list")

    def list_resource_templates(self) -> List[Json]:
        """Every resource template: [{"uriTemplate", "name", ...}]."""
        return self._list("resources/templates/list")

    def list_prompts(self) -> List[Json]:
        """Every prompt: [{"name", "arguments", ...}]."""
        return self._list("prompts/list")

    def read_resource(self, uri: str) -> Json:
        """A resource as on the wire: {"contents": [{"uri", "mimeType", "text" or "blob"}]}. Raises NotFound."""
        try:
            return self._request("resources/read", {"uri": uri})
        except InvalidParams as error:
            raise _as_not_found(error, "resource", uri) from None

    def read(self, uri: str) -> Union[str, bytes]:
        """A resource's text, or its bytes. Of several contents, the texts joined, else the first's bytes."""
        contents = self.read_resource(uri).get("contents") or []
        texts = [item["text"] for item in contents if isinstance(item.get("text"), str)]
        if texts or not contents:
            return "".join(texts)
        import base64
        return base64.b64decode(contents[0].get("blob", ""))

    def get_prompt(self, name: str, arguments: Optional[Dict[str, str]] = None) -> Json:
        """A prompt's messages: {"description", "messages": [{"role", "content"}]}. Raises NotFound, InvalidParams."""
        try:
            return self._request("prompts/get", {"name": name, "arguments": arguments or {}})
        except InvalidParams as error:
            raise _as_not_found(error, "prompt", name) from None

    def complete(self, ref: Any, argument: str, value: str, context: Optional[Dict[str, str]] = None) -> List[str]:
        """Completions for an argument: `ref` is a prompt's name, a template's URI, or the wire's ref; `context` has the
        other arguments."""
        if isinstance(ref, str):
            ref = {"type": "ref/resource", "uri": ref} if ":" in ref else {"type": "ref/prompt", "name": ref}
        params: Json = {"ref": ref, "argument": {"name": argument, "value": value}}
        if context:
            params["context"] = {"arguments": context}
        found: List[str] = self._request("completion/complete", params).get("completion", {}).get("values", [])
        return found

    def ping(self) -> None:
        """Raise unless the server answers."""
        self._request("server/discover" if self.protocol_version >= MODERN else "ping", None)

    def set_log_level(self, level: str) -> None:
        """Ask for log messages of this level and above: one of debug, info, notice, warning, error, critical, alert,
        emergency. In the modern era each later request carries it."""
        if level not in LOG_LEVELS:
            raise ValueError(f"level: expected one of {', '.join(LOG_LEVELS)}, got {show(level)}")
        if self.protocol_version < MODERN:
            self._request("logging/setLevel", {"level": level})
        self._log_level = level

    def subscribe(self, uri: str) -> None:
        """Have on_notification told when the resource changes."""
        if self.protocol_version < MODERN:
            self._request("resources/subscribe", {"uri": uri})
        elif uri not in self._subscriptions:
            self._subscriptions[uri] = self._subscribe_modern(
                {"resourceSubscriptions": [uri]}, self._tell, lambda answer: bool(self._subscriptions.pop(uri, None)))

    def unsubscribe(self, uri: str) -> None:
        """Stop what subscribe() began."""
        if self.protocol_version < MODERN:
            self._request("resources/unsubscribe", {"uri": uri})
            return
        waiter = self._subscriptions.pop(uri, None)
        if waiter is not None:
            self._open_connection().abandon(waiter, None)

    def listen(self, tools: bool = True, prompts: bool = True, resources: bool = True,
               uris: Iterable[str] = ()) -> Listening:
        """Listen for changes of the lists, and of the resources `uris`: an iterator of {"method", "params"}, and a context
        manager; close() ends it. Blocks until the server has agreed."""
        chosen = {"tools": tools, "prompts": prompts, "resources": resources}
        return Listening(self, [kind for kind, wanted in chosen.items() if wanted], list(uris))

    def _open_connection(self) -> Connection:
        connection = self._connection
        if connection is None:
            raise ConnectionClosed("the client is not connected; use `with client:` or client.connect()")
        return connection

    def _start(self, method: str, params: Optional[Json], on_progress: Optional[Callable[..., Any]]) -> Call:
        connection = self._open_connection()
        version, row = connection.protocol.version, METHODS.get(method)
        if row is not None:
            if not row.since <= version <= row.until:
                raise MethodNotFound(f"{method} is not in {version}")
            needed = "" if row.capability == "completions" and version < "2025-03-26" else row.capability
            if needed and not has_capability(self.server_capabilities, needed):
                raise MethodNotFound(f"{method}: the server did not declare {needed}")
        params = dict(params or {})
        if version >= MODERN:
            params["_meta"] = {**self._meta(version), **params.get("_meta", {})}
        return Call(self, method, params, on_progress or (self._on_progress if row is not None and row.asks else None))

    def _request(self, method: str, params: Optional[Json], timeout: Optional[float] = None,
                 on_progress: Optional[Callable[..., Any]] = None) -> Json:
        return self._start(method, params, on_progress).result(timeout)

    def _wait(self, waiter: Waiter) -> Json:
        return self._open_connection().wait(waiter, self.timeout)

    def _list(self, method: str) -> List[Json]:
        """Follow the pages: server/utilities/pagination.md. "an empty string is a valid cursor"."""
        found: List[Json] = []
        seen = set()
        params: Json = {}
        member = METHODS[method].paged
        for _ in range(MAX_PAGES):
            result = self._request(method, params)
            page = result.get(member)
            if not isinstance(page, list):
                raise InternalError(f"{method}: {member}: expected array, got {show(page)}")
            found.extend(item for item in page if isinstance(item, dict))
            cursor = result.get("nextCursor")
            if cursor is None:
                return found
            if not isinstance(cursor, str) or cursor in seen:
                raise InternalError(f"{method}: the server's pages do not end: the cursor {show(cursor)} came twice")
            seen.add(cursor)
            params = {"cursor": cursor}
        raise InternalError(f"{method}: more than {MAX_PAGES} pages")

    def _check_structured(self, name: str, value: Any) -> None:
        if self._output_schemas is None:
            self.list_tools()
        schema = (self._output_schemas or {}).get(name)
        errors = schema.errors(value) if schema is not None else []
        if errors:
            raise InternalError(f"{name}: the structured result does not match the tool's outputSchema: "
                                + "; ".join(errors[:5]))

    def _subscribe_modern(self, wanted: Json, on_event: Callable[[str, Json], Any],
                          on_end: Callable[[Answer], bool]) -> Waiter:
        """Open a subscriptions/listen and wait for its acknowledgement."""
        connection, agreed = self._open_connection(), threading.Event()
        failed: List[Exception] = []

        def hear(method: str, params: Json) -> None:
            if agreed.is_set():
                on_event(method, params)
            agreed.set()                         # the first one is the acknowledgement

        def end(answer: Answer) -> bool:
            if not agreed.is_set() and answer.error is not None:
                failed.append(answer.error)
                agreed.set()
                return True
            return on_end(answer)
        waiter = Waiter("subscriptions/listen", on_answer=end, on_event=hear)
        connection.request(waiter, {"notifications": wanted, "_meta": self._meta(MODERN)})
        if not agreed.wait(self.timeout):
            connection.abandon(waiter, "not acknowledged")
            raise Timeout(f"subscriptions/listen: not acknowledged within {self.timeout:g} seconds")
        if failed:
            raise failed[0]
        return waiter

    # The Connection's endpoint

    def serve_request(self, connection: Connection, request: Request) -> None:
        """Answer a question of a legacy server, on a worker."""
        try:
            message = result_message(request.id, self._answer_question(connection, request.method, request.params))
        except McpError as error:
            message = error_message(request.id, error)
        connection.respond(request, message)

    def take_notification(self, connection: Connection, notification: Notification) -> None:
        """Pass a notification on: to its subscription, to who listens, to the callbacks. On the reading thread."""
        method, params = notification.method, notification.params
        meta = params.get("_meta")
        subscription = meta.get(META_SUBSCRIPTION) if isinstance(meta, dict) else params.get("requestId")
        waiter = connection.protocol.pending.get(subscription) if is_id(subscription) else None
        if waiter is not None and waiter.on_event is not None:
            if notification.row is not None and notification.row.handler == "_cancelled":
                connection.protocol.pending.pop(subscription, None)
                waiter.answer(Answer(waiter, {}, None))
            else:
                rest = {name: value for name, value in params.items() if name != "_meta"}
                waiter.on_event(method, rest)
            return
        if method == LIST_CHANGES["tools"][1]:
            self._output_schemas = None
        for listening in list(self._listenings):
            listening.offer(method, params)
        self._tell(method, params)

    def _tell(self, method: str, params: Json) -> None:
        if self._on_log is not None and METHODS.get(method) is METHODS["notifications/message"]:
            on_log = self._on_log
            self._callbacks.put(lambda: on_log(params.get("level"), params.get("data"), params.get("logger")))
        elif self._on_notification is not None:
            on_notification = self._on_notification
            self._callbacks.put(lambda: on_notification(method, params))

    def output_lost(self, connection: Connection) -> None:
        """The server reads no more. Its last answers may still be on the way; the reader sees their end."""
        threading.Timer(EXIT_SECONDS, connection.close, [ConnectionClosed("the server closed its input")]).start()

    def input_ended(self, connection: Connection) -> None:
        """The reader closes the connection with the reason."""

    # Answering the server

    def _answer_all(self, connection: Connection, questions: Any) -> Json:
        """The answers to a modern result's inputRequests, found at the same time if there are several."""
        if not isinstance(questions, dict) or not all(isinstance(each, dict) for each in questions.values()):
            raise InternalError(f"inputRequests: expected an object of requests, got {show(questions)}")
        found: SimpleQueue[Any] = SimpleQueue()

        def answer(key: str, question: Json) -> None:
            try:
                params = question.get("params")
                found.put((key, self._answer_question(connection, question.get("method", ""), params or {})))
            except Exception as error:
                found.put((key, error))
        first, *others = questions.items() if questions else [("", None)]
        for key, question in others:
            connection.workers.submit(lambda key=key, question=question: answer(key, question))  # type: ignore[misc]
        if first[1] is not None:
            answer(*first)
        answers: Json = {}
        for _ in questions:
            key, value = found.get()
            if isinstance(value, Exception):
                raise value
            answers[key] = value
        return answers

    def _answer_question(self, connection: Connection, method: str, params: Json) -> Json:
        handler = self._handlers.get(method)
        if handler is None:
            raise MethodNotFound(f"{show(method)} is no question that a client answers")
        with connection._lock:
            connection.answering += 1
        try:
            return handler(params)
        except McpError:
            raise
        except BaseException as error:
            self._log.error(f"answering {method} failed: {error!r}", error)
            raise InternalError(f"{method}: the client's callback failed with {type(error).__name__}") from error
        finally:
            with connection._lock:
                connection.answering -= 1

    def _ping(self, params: Json) -> Json:
        return {}

    def _roots_list(self, params: Json) -> Json:
        if self._roots is None:
            raise MethodNotFound("roots/list: this client did not declare roots")
        roots = self._roots() if callable(self._roots) else self._roots
        return {"roots": [_root(each) for each in roots]}

    def _sampling_create_message(self, params: Json) -> Json:
        if self._on_sample is None:
            raise MethodNotFound("sampling/createMessage: this client did not declare sampling")
        answer = self._on_sample(params)
        if isinstance(answer, str):
            answer = {"role": "assistant", "content": {"type": "text", "text": answer}, "model": "unknown",
                      "stopReason": "endTurn"}
        if not isinstance(answer, dict):
            raise TypeError(f"on_sample: expected a dict or text, got {type(answer).__name__}")
        return answer

    def _elicitation_create(self, params: Json) -> Json:
        if self._on_elicit is None:
            raise MethodNotFound("elicitation/create: this client did not declare elicitation")
        schema = params.get("requestedSchema")
        if params.get("mode", "form") == "form":
            try:
                check_elicitation_schema(schema)
            except ValueError as error:
                raise InvalidParams(str(error)) from None
        answer = self._on_elicit(params)
        if answer is None:
            return {"action": "cancel"}
        if not isinstance(answer, dict) or answer.get("action") not in ("accept", "decline", "cancel"):
            raise TypeError(f'on_elicit: expected {{"action": "accept", "decline" or "cancel"}}, got {show(answer)}')
        if answer["action"] != "accept" or schema is None:
            return {"action": answer["action"]}
        defaults = {name: sub["default"] for name, sub in schema["properties"].items() if "default" in sub}
        content = {**defaults, **(answer.get("content") or {})}
        errors = Schema(schema).errors(content)
        if errors:
            raise TypeError("on_elicit: content: " + "; ".join(errors[:5]))
        return {"action": "accept", "content": content}


def _as_not_found(error: InvalidParams, kind: str, name: str) -> McpError:
    """The same error as NotFound, if it says so. Since 2026-07-28 its code alone does not."""
    said = isinstance(error.data, dict) and error.data.get("uri") == name
    if isinstance(error, NotFound) or not (said or re.match(rf"(?i)(unknown {kind}|{kind} .*not found)", error.message)):
        return error
    found = NotFound(error.message, error.data)
    found.code = error.code
    return found


def _root(root: Any) -> Json:
    """A root as on the wire, from a path, a URI or itself."""
    if isinstance(root, dict):
        return root
    text = os.fspath(root)
    if re.match(r"[A-Za-z][A-Za-z0-9+.\-]+:", text):
        return {"uri": text}
    import pathlib
    path = pathlib.Path(text).absolute()
    return {"uri": path.as_uri(), "name": path.name or str(path)}


def command_of(target: Any) -> Tuple[List[str], Dict[str, str]]:
    """The command line that a target names, and variables for its environment. Raises TypeError or ValueError."""
    if isinstance(target, dict):
        if not isinstance(target.get("command"), str):
            raise ValueError(f"target: command: expected string, got {show(target.get('command'))}")
        return [target["command"], *map(str, target.get("args", []))], dict(target.get("env") or {})
    if isinstance(target, (list, tuple)) and target:
        return [os.fspath(part) for part in target], {}
    if isinstance(target, str) or hasattr(target, "__fspath__"):
        text = os.fspath(target)
        if text.endswith(".py") and (" " not in text or os.path.exists(text)):
            # Inside a host program, sys.executable may be the host.
            python = sys.executable if "python" in os.path.basename(sys.executable or "").lower() else "python3"
            return [python, text], {}
        import shlex
        return (shlex.split(text) if os.name == "posix" and not os.path.exists(text) else [text]), {}
    raise TypeError(f"target: expected a command, a script, a dict, a Server or (reader, writer), "
                    f"got {type(target).__name__}")


def _tracer(trace: Any) -> Optional[Callable[[str, bytes], Any]]:
    if trace is None or trace is False:
        return None
    if trace is True:
        trace = sys.stderr
    if callable(trace):
        found: Callable[[str, bytes], Any] = trace
        return found
    return lambda direction, line: trace.write(f"{direction} {line.decode('utf-8', 'replace')}\n")
