"""Tests of mcp_lite: run `python3 test_mcp_lite.py`, which installs pytest where it is missing, or `pytest`.

They mirror the rooms of mcp_lite.py. Real processes, pipes and sockets where those are the subject; the same
promises over memory and stdio, and in every revision.
"""
import collections
import contextlib
import dataclasses
import datetime
import decimal
import enum
import itertools
import json
import logging
import os
import pathlib
import re
import shlex
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
import typing
import uuid

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import mcp_lite  # noqa: E402
from mcp_lite import (  # noqa: E402
    Audio,
    Cancelled,
    Client,
    ConnectionClosed,
    Context,
    EmbeddedResource,
    Image,  # noqa: E402
    InternalError,
    InvalidParams,
    InvalidRequest,
    MainThread,
    McpError,
    Message,
    MethodNotFound,
    MissingCapability,
    NotFound,
    Param,
    ParseError,
    ResourceLink,
    Server,
    Timeout,
    ToolError,
    UnsupportedVersion,
    validate,
)

LEGACY = list(mcp_lite.LEGACY_VERSIONS)
MODERN = mcp_lite.MODERN
EVERY = LEGACY + [MODERN]
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 8
WAV = b"RIFF\0\0\0\0WAVEfmt "
FORM = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "default": 7}},
    "required": ["name"],
}


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"


@dataclasses.dataclass
class Person:
    name: str
    age: int = 7


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Shape(str, enum.Enum):
    ROUND = "round"


UserId = typing.NewType("UserId", int)
UserIds = typing.NewType("UserIds", typing.List[UserId])


@dataclasses.dataclass
class Team:
    lead: Person
    members: "list[Person]"
    since: typing.Optional[datetime.date] = None
    tags: typing.Set[str] = dataclasses.field(default_factory=set)
    color: Color = Color.RED


@dataclasses.dataclass
class Strict:
    many: int

    def __post_init__(self):
        if self.many < 0:
            raise ValueError("many must not be negative")


@dataclasses.dataclass
class Tree:
    value: int
    children: typing.List["Tree"]


class Chain(typing.NamedTuple):
    when: datetime.date
    next: "Chain | None" = None


@dataclasses.dataclass
class Husband:
    wife: "Wife | None" = None


@dataclasses.dataclass
class Wife:
    husband: "typing.Optional[Husband]" = None


class Point(typing.NamedTuple):
    x: int
    y: int = 0


Untyped = collections.namedtuple("Untyped", "a b")


class _Titled(typing.TypedDict):
    name: str


class Movie(_Titled, total=False):
    year: int


class Partial(typing.TypedDict, total=False):
    a: int
    day: datetime.date


if sys.version_info >= (3, 11):
    class Release(typing.TypedDict):
        name: typing.Required[str]
        tag: "typing.NotRequired[str]"


def function_returning(hint):
    def fn():
        """"""
    fn.__annotations__["return"] = hint
    return fn


def unwrap(result):
    return mcp_lite.unwrap_result(result)


def build_server():
    """A server with one of everything: the tests' other end."""
    server = Server(
        "everything",
        version="1.2",
        title="Everything",
        instructions="Call anything.",
        page_size=3,
        description="for tests",
        website_url="https://example.com",
    )

    @server.tool
    def echo(value: typing.Any) -> typing.Any:
        """Return the value."""
        return value

    @server.tool(title="Adder", annotations={"readOnlyHint": True}, meta={"x": 1}, icons=[{"src": "data:,"}])
    def add(a: int, b: int = 1) -> int:
        """Add two integers."""
        return a + b

    @server.tool
    def greet(name: str) -> str:
        return "hello " + name

    @server.tool
    def media() -> list:
        return [
            "text",
            Image(PNG),
            Audio(WAV),
            EmbeddedResource("x://y", "inside"),
            ResourceLink("x://z", "link"),
        ]

    @server.tool
    def person(name: str) -> Person:
        return Person(name)

    @server.tool
    def fail(how: str) -> str:
        if how == "tool":
            raise ToolError("try tomorrow", ["one", Image(PNG)])
        if how == "protocol":
            raise McpError(-32050, "no", {"why": 1})
        if how == "exit":
            raise SystemExit(3)
        if how == "deep":
            return fail(how)
        raise KeyError(how)

    @server.tool
    def count(to: int, ctx: Context) -> str:
        for n in range(1, to + 1):
            ctx.progress(n, to, f"step {n}")
        ctx.progress(1, to, "not increasing: left out")
        return "counted"

    @server.tool
    def logs(ctx: Context) -> str:
        for level in mcp_lite.LOG_LEVELS:
            ctx.log(level, {"level": level}, "test")
        ctx.warning("short")
        return "logged"

    @server.tool
    def form(ctx: Context) -> dict:
        return ctx.elicit("who?", FORM)

    @server.tool
    def form_person(ctx: Context) -> str:
        return repr(ctx.elicit("who?", Person)["content"])

    @server.tool
    def visit(ctx: Context) -> dict:
        return ctx.elicit_url("go there", "https://example.com/login")

    @server.tool
    def think(ctx: Context) -> str:
        return ctx.sample("2 + 2?", max_tokens=10, system_prompt="be brief")["content"]["text"]

    @server.tool
    def where(ctx: Context) -> list:
        return ctx.roots()

    runs = []

    @server.tool
    def steps(ctx: Context) -> list:
        runs.append(1)
        once = ctx.once("start", lambda: len(runs))
        first = ctx.elicit("first", FORM)["content"]["name"]
        second = ctx.elicit("second", FORM)["content"]["name"]
        return [once, first, second]

    @server.tool
    def together(ctx: Context) -> list:
        found = ctx.ask({"a": ("elicitation/create", {"message": "a", "requestedSchema": FORM}),
                         "b": ("sampling/createMessage", {"messages": [], "maxTokens": 1}),
                         "c": ("roots/list", {})})
        return sorted(found)

    waiting = threading.Event()
    ended = []

    @server.tool
    def wait(ctx: Context) -> str:
        ctx.on_cancel(lambda: ended.append("callback"))
        waiting.set()
        try:
            ctx.sleep(60)
        except Cancelled:
            ended.append("cancelled")
            raise
        return "slept"

    @server.tool
    def is_waiting() -> bool:
        return waiting.wait(20)

    @server.tool
    def waited() -> list:
        until = time.monotonic() + 20
        while len(ended) < 2 and time.monotonic() < until:
            time.sleep(0.01)
        return sorted(ended)

    @server.tool(timeout=0.05)
    def slow(ctx: Context) -> str:
        ctx.sleep(60)
        return "never"

    @server.tool
    def noise() -> str:
        print("print")
        sys.stdout.flush()
        os.write(1, b"os.write\n")
        subprocess.call([sys.executable, "-c", "print('child')"])
        try:
            return "input: " + input()
        except EOFError:
            return "input: nothing"

    @server.tool
    def change(ctx: Context) -> str:
        server.add_tool(lambda: "x", name="extra", description="one more")
        server.remove_tool("extra")
        server.resource_updated("x://note")
        return "changed"

    @server.tool
    def bad(kind: str) -> typing.Any:
        return {"nan": float("nan"), "surrogate": "\ud800", "object": object()}[kind]

    @server.resource("x://note", mime_type="text/markdown", title="A note", size=4)
    def note() -> str:
        """The note."""
        return "note"

    @server.resource("x://bytes", mime_type="image/png")
    def raw() -> bytes:
        return PNG

    @server.resource("x://data")
    def data() -> dict:
        return {"a": 1}

    @server.resource("x://users/{name}/{age}{?color}")
    def user(name: str, age: int, color: typing.Optional[str] = None) -> dict:
        return {"name": name, "age": age, "color": color}

    @server.resource("x://files/{+path}")
    def files(path: str) -> str:
        return path

    @server.prompt(title="Review")
    def review(code: str, style: typing.Literal["kind", "strict"] = "kind", deep: bool = False) -> list:
        """Review some code."""
        return [f"{style} {deep}", Message("yes", role="assistant"), Image(PNG)]

    @server.prompt
    def asks(ctx: Context) -> str:
        return "for " + ctx.elicit("who?", FORM)["content"]["name"]

    @server.completion("review", "code")
    def complete_code(value: str, context: dict) -> list:
        return [value + str(n) for n in range(150)] + sorted(context)

    return server


def main():
    """`--serve` is a server on stdio; else run the tests, and first install pytest into .venv if need be."""
    if "--serve" in sys.argv:
        build_server().run()
        return
    python = sys.executable
    if subprocess.call([python, "-c", "import pytest"], stderr=subprocess.DEVNULL):
        folder = os.path.join(HERE, ".venv")
        python = os.path.join(folder, "Scripts" if os.name == "nt" else "bin", "python")
        if not os.path.exists(python):
            subprocess.check_call([sys.executable, "-m", "venv", folder])
        if subprocess.call([python, "-c", "import pytest"], stderr=subprocess.DEVNULL):
            subprocess.check_call(
                [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "pytest"]
            )
    sys.exit(subprocess.call([python, "-m", "pytest", "-q", *sys.argv[1:]], cwd=HERE))


if __name__ == "__main__":
    main()

import pytest  # noqa: E402

SERVE = [sys.executable, os.path.abspath(__file__), "--serve"]
SECONDS = 30      # a deadline for what takes milliseconds: these machines are shared


def eventually(condition, what="the condition"):
    """Wait for a condition, with a deadline."""
    until = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < until, f"{what} did not come true"
        time.sleep(0.005)


@pytest.fixture(autouse=True)
def nothing_is_left_behind():
    """No thread of the library's outlives its test."""
    before = set(threading.enumerate())
    yield

    def left():
        return [t for t in set(threading.enumerate()) - before if t.name.startswith("mcp-") and t.is_alive()]
    eventually(lambda: not left(), "the end of every thread")


@pytest.fixture(params=["memory", "stdio"])
def target(request):
    """The same server in this process, and as a child."""
    return build_server() if request.param == "memory" else SERVE


@pytest.fixture(params=EVERY)
def version(request):
    """Every revision."""
    return request.param


def answer(params):
    """on_elicit: fill in the form with the question's own message."""
    return {"action": "accept"} if params.get("mode") == "url" else \
        {"action": "accept", "content": {"name": params["message"]}}


CALLBACKS = {"on_elicit": answer, "on_sample": lambda params: "four", "roots": ["/tmp"]}


def supports(version, since):
    return version >= since


class Wire:
    """A raw conversation with a server on stdio."""

    def __init__(self, command=SERVE, **options):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, bufsize=0, **options)
        self.out = self.process.stdout
        self.watchdog = threading.Timer(SECONDS * 2, self.process.kill)
        self.watchdog.start()

    def send(self, *messages):
        for message in messages:
            data = message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"
            self.process.stdin.write(data)

    def read(self):
        line = b""
        while not line.endswith(b"\n"):
            piece = self.out.readline()
            assert piece, "the server closed its output"
            line += piece
        return json.loads(line)

    def ask(self, method, params=None, id=1):
        self.send({"jsonrpc": "2.0", "id": id, "method": method, "params": params or {}})
        return self.read()

    def open(self, version="2025-11-25", capabilities=None):
        found = self.ask("initialize", {"protocolVersion": version, "capabilities": capabilities or {},
                                        "clientInfo": {"name": "t", "version": "0"}}, 0)
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return found["result"]

    def end(self):
        """Close the input; return what else came, and the exit code."""
        self.process.stdin.close()
        rest = [json.loads(line) for line in self.out.read().splitlines()]
        code = self.process.wait(SECONDS)
        return rest, code

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.watchdog.cancel()
        self.watchdog.join()
        self.process.kill()
        for stream in (self.process.stdin, self.process.stdout):
            stream.close()
        self.process.wait()


def modern(capabilities=None, **more):
    """The params of a modern request."""
    meta = {mcp_lite.META_VERSION: MODERN, mcp_lite.META_CAPABILITIES: capabilities or {}}
    return {**more, "_meta": {**meta, **more.get("_meta", {})}}


def request(method, params=None, id=1):
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params or {}}


@contextlib.contextmanager
def fake_server(script):
    """A Client's target whose other end is script(read, write): read() a message, write(message or bytes)."""
    ours, theirs = socket.socketpair()
    incoming = theirs.makefile("rb")

    def read():
        line = incoming.readline()
        return json.loads(line) if line else None

    def write(message):
        theirs.sendall(message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n")

    def run():
        with contextlib.suppress(OSError, ValueError):
            script(read, write)
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    reader, writer = ours.makefile("rb"), ours.makefile("wb")
    try:
        yield reader, writer
    finally:
        for sock in (ours, theirs):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        thread.join(SECONDS)
        for each in (reader, writer, incoming, ours, theirs):
            with contextlib.suppress(OSError, ValueError):
                each.close()


def legacy_server(version="2025-11-25", capabilities=None, **answers):
    """A script that does the handshake, then answers by answers[method], or by what that returns."""

    def script(read, write):
        while True:
            message = read()
            if message is None:
                return
            if "id" not in message or "method" not in message:
                continue
            found = {"jsonrpc": "2.0", "id": message["id"]}
            method = message["method"].replace("/", "_")
            if method == "initialize":
                found["result"] = {"protocolVersion": version, "serverInfo": {"name": "fake", "version": "1"},
                                   "capabilities": {"tools": {}, **(capabilities or {})}}
            elif method in answers:
                result = answers[method]
                result = result(message, read, write) if callable(result) else result
                if result is None:
                    continue
                found.update(result if "error" in result else {"result": result})
            else:
                found["error"] = {"code": -32601, "message": "what?"}
            write(found)
    return script


class TestMessages:
    """Room 3."""

    @pytest.mark.parametrize("data", [b"", b"{", b"\xff", b'{"a":NaN}', b"[1,]", b"Infinity", b"[" * 100_000,
                                      b'{"a":' * 100_000, b'"\xed\xa0\x80"'])
    def test_what_is_not_json_is_a_parse_error(self, data):
        """Whatever the bytes are, the answer is one ParseError."""
        with pytest.raises(ParseError):
            mcp_lite.parse_message(data)

    @pytest.mark.parametrize("wrong", [None, True, 1.5, [], {}])
    def test_ids_are_strings_or_integers(self, wrong):
        """Never null, true or 1.5."""
        with pytest.raises(InvalidRequest, match="id: expected string or integer"):
            mcp_lite.check_envelope({"jsonrpc": "2.0", "id": wrong, "method": "ping"})

    @pytest.mark.parametrize(
        "message",
        [
            1,
            [],
            {},
            {"jsonrpc": "1.0", "method": "x"},
            {"jsonrpc": "2.0"},
            {"jsonrpc": "2.0", "id": 1, "method": 2},
            {"jsonrpc": "2.0", "id": 1, "method": "x", "result": {}},
            {"jsonrpc": "2.0", "id": 1, "result": 3},
            {"jsonrpc": "2.0", "id": 1, "result": {}, "error": {}},
            {"jsonrpc": "2.0", "id": 1, "error": "no"},
        ],
    )
    def test_a_wrong_envelope_is_refused(self, message):
        """Every way to get the outer shape wrong has its text."""
        with pytest.raises(InvalidRequest):
            mcp_lite.check_envelope(message)

    @pytest.mark.parametrize(
        "message, kind",
        [
            ({"jsonrpc": "2.0", "method": "x"}, "notification"),
            ({"jsonrpc": "2.0", "id": "", "method": "x"}, "request"),
            ({"jsonrpc": "2.0", "id": 0, "result": {}}, "response"),
            ({"jsonrpc": "2.0", "error": {}}, "response"),
        ],
    )
    def test_the_three_kinds(self, message, kind):
        """Request, notification, response."""
        assert mcp_lite.check_envelope(message) == kind

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", object(), {1, 2}])
    def test_what_json_cannot_say_is_never_encoded(self, value):
        """NaN, lone surrogates and objects raise instead of going out."""
        with pytest.raises((ValueError, TypeError)):
            mcp_lite.encode_message({"x": value})

    def test_a_message_is_one_line_of_utf8(self):
        """Line breaks are escaped, other characters are themselves."""
        data = mcp_lite.encode_message({"x": "a\nb\r\u2028é"})
        assert b"\n" not in data and b"\r" not in data and "é".encode() in data
        assert mcp_lite.parse_message(data) == {"x": "a\nb\r\u2028é"}

    def test_errors_keep_code_and_class(self):
        """A code from the wire becomes its class, an unknown one McpError, a broken one InternalError."""
        for code, kind in ((-32601, MethodNotFound), (-32002, NotFound), (-32001, NotFound), (7, McpError),
                           (-32021, MissingCapability)):
            error = McpError.from_wire({"code": code, "message": "m", "data": [1]})
            assert type(error) is kind and (error.code, error.message, error.data) == (code, "m", [1])
            assert error.to_wire() == {"code": code, "message": "m", "data": [1]}
        assert type(McpError.from_wire({"code": "x"})) is InternalError
        assert issubclass(Timeout, TimeoutError) and issubclass(ConnectionClosed, ConnectionError)
        assert not issubclass(ToolError, McpError)


class TestMethods:
    """Room 4."""

    @pytest.mark.skipif(
        not os.path.isdir(os.path.join(HERE, "..", "shared", "spec")), reason="no specification here"
    )
    @pytest.mark.parametrize("version", EVERY)
    def test_the_table_has_what_the_schema_has(self, version):
        """Each revision's methods are the ones of its JSON schema, tasks left out."""
        with open(
            os.path.join(HERE, "..", "shared", "spec", version, "schema.json"), encoding="utf-8"
        ) as file:
            schema = json.load(file)
        found = {node["properties"]["method"]["const"]
                 for node in (schema.get("$defs") or schema["definitions"]).values()
                 if isinstance(node.get("properties", {}).get("method"), dict)
                 and "const" in node["properties"]["method"]}
        found = {name for name in found if "tasks" not in name}
        ours = {row.name for row in mcp_lite.METHODS.values() if row.since <= version <= row.until}
        ours -= {"initialized", "$/cancelRequest"}
        if version == MODERN:       # inside results there, and so not requests of the wire
            found -= {"roots/list", "sampling/createMessage", "elicitation/create"}
        assert ours == found


class TestSchema:
    """Room 5."""

    @pytest.mark.parametrize("schema, good, bad", [
        ({"type": "integer"}, [1, 1.0, -3], [True, 1.5, "1", None]),
        ({"type": "number"}, [1, 1.5], [True, "1"]),
        ({"type": ["string", "null"]}, ["", None], [0]),
        ({"enum": [1, "a", None]}, [1.0, "a", None], [True, "b"]),
        ({"const": {"a": [1]}}, [{"a": [1.0]}], [{"a": [True]}]),
        ({"minimum": 1, "exclusiveMaximum": 3}, [1, 2.9, "x"], [0, 3]),
        ({"minLength": 2, "maxLength": 3}, ["ab", 1], ["a", "abcd"]),
        ({"pattern": "^a\\d"}, ["a1x"], ["ba1"]),
        ({"multipleOf": 0.1}, [0.3, 1], [0.25]),
        ({"items": {"type": "string"}, "minItems": 1}, [["a"], 1], [[], [1]]),
        ({"prefixItems": [{"type": "integer"}], "items": False}, [[1], []], [[1, 2], ["a"]]),
        ({"uniqueItems": True}, [[1, True], [{"a": 1}, {"a": 2}]],
         [[1, 1.0], [{"a": 1, "b": 2}, {"b": 2, "a": 1}]]),
        ({"contains": {"type": "integer"}, "maxContains": 1}, [[1, "a"]], [["a"], [1, 2]]),
        ({"properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False},
         [{"a": 1}], [{}, {"a": "x"}, {"a": 1, "b": 2}]),
        ({"patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": {"type": "string"}},
         [{"x1": 1, "y": "s"}], [{"x1": "s"}, {"y": 1}]),
        ({"propertyNames": {"maxLength": 2}}, [{"ab": 1}], [{"abc": 1}]),
        ({"dependentRequired": {"a": ["b"]}}, [{"a": 1, "b": 1}, {}], [{"a": 1}]),
        ({"allOf": [{"minimum": 1}, {"maximum": 2}]}, [1], [0, 3]),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, [1, None], ["a"]),
        ({"oneOf": [{"minimum": 1}, {"maximum": 1}]}, [0, 2], [1]),
        ({"not": {"type": "string"}}, [1], ["a"]),
        ({"if": {"type": "string"}, "then": {"minLength": 2}, "else": {"minimum": 2}}, ["ab", 2], ["a", 1]),
        ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "integer"}}}, [1], ["a"]),
        ({"$ref": "#node", "$defs": {"n": {"$anchor": "node", "properties": {"next": {"$ref": "#node"}},
                                           "type": "object"}}},
         [{"next": {"next": {}}}], [{"next": {"next": 1}}]),
        (True, [1], []), (False, [], [1, None])])
    def test_keywords(self, schema, good, bad):
        """Each keyword takes what it should and refuses what it should."""
        for value in good:
            assert validate(value, schema) == []
        for value in bad:
            assert validate(value, schema) != []

    def test_errors_are_lines_to_act_on(self):
        """Path, expectation, finding; several at once."""
        schema = {"properties": {"days": {"type": "integer"}, "tags": {"items": {"type": "string"}},
                                 "when": {"anyOf": [{"type": "integer"}, {"type": "null"}]}},
                  "required": ["city"], "additionalProperties": False}
        assert validate({"days": "three", "tags": ["a", 1], "cty": 1, "when": "x"}, schema) == [
            'days: expected integer, got "three"', "tags[1]: expected string, got 1",
            "cty: unknown; known: days, tags, when", 'when: expected integer or null, got "x"',
            "city: required, but missing"]

    @pytest.mark.parametrize("schema", [1, {"type": "strin"}, {"$ref": "http://a.example/x"}, {"$ref": "#/a"},
                                        {"pattern": "("}, {"required": "a"}, {"enum": 1}])
    def test_a_wrong_schema_is_told(self, schema):
        """A schema that cannot be used raises ValueError, and nothing is fetched."""
        with pytest.raises(ValueError):
            validate(1, schema)

    @pytest.mark.parametrize("schema, good, bad", [
        ({"items": [{"type": "integer"}], "additionalItems": False}, [[1], []], [["a"], [1, 2]]),
        ({"dependencies": {"a": ["b"], "c": {"maxProperties": 1}}}, [{"a": 1, "b": 1}, {"c": 1}],
         [{"a": 1}, {"c": 1, "d": 1}]),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#x",
          "definitions": {"a": {"$id": "#x", "type": "null"}}}, [None], [1]),
        ({"$id": "http://x/a", "$ref": "b#/$defs/c",
          "$defs": {"b": {"$id": "b", "$defs": {"c": {"const": 1}}}}}, [1], [2]),
        ({"$ref": "#/components/a", "components": {"a": {"$ref": "#/components/b"}, "b": {"type": "null"}}},
         [None], [1]),
        ({"$id": "http://x/tree", "$dynamicAnchor": "n", "unevaluatedProperties": False,
          "properties": {"kids": {"items": {"$dynamicRef": "#n"}}}},
         [{"kids": [{"kids": []}]}], [{"kids": [{"kid": []}]}]),
        ({"allOf": [{"properties": {"a": {}}}], "anyOf": [{"required": ["b"], "properties": {"b": {}}}, {}],
          "unevaluatedProperties": False}, [{"a": 1}, {"a": 1, "b": 1}], [{"c": 1}]),
        ({"prefixItems": [{}], "contains": {"const": 1}, "unevaluatedItems": False},
         [["a", 1, 1]], [["a", 1, "b"]]),
        ({"$ref": "https://json-schema.org/draft/2020-12/schema"}, [{"type": "null"}, True],
         [{"type": "nil"}, 1]),
        ({"pattern": "^a.$"}, ["ab"], ["ab\n", "a\u2028"]),
        ({"pattern": "^\\d\\w$"}, ["1a"], ["\u0661a", "1\u00e4"]),
        ({"pattern": "^\\p{Letter}\\s$"}, ["\u00e4\ufeff"], ["1 ", "a\x1f"]),
        ({"pattern": "\\cJ\\u{1F600}"}, ["\n\U0001F600"], ["J"]),
        ({"pattern": "(?<y>\\d)[^]"}, ["1\n"], ["1"]),
        ({"multipleOf": 1e-8}, [1e308, 3e-8], [1e-9, float("inf")])])
    def test_rarer_keywords(self, schema, good, bad):
        """Older drafts, documents within documents, dynamic references, unevaluated members, patterns."""
        assert [validate(value, schema) for value in good] == [[]] * len(good)
        assert [] not in [validate(value, schema) for value in bad]

    @pytest.mark.parametrize("schema, text", [
        ({"properties": {"a": {"type": "strin"}}}, 'properties.a.type: expected one of ["object", "array"'),
        ({"$schema": "http://json-schema.org/draft-04/schema#"}, "$schema: expected one of"),
        ({"pattern": "\\p{Greek}"}, 'pattern "\\\\p{Greek}": bad escape'),
        ({"pattern": 1}, "pattern: expected string, got 1"),
        ({"$ref": "other.json"}, '$ref "other.json" is not in this document, and nothing is fetched'),
        ({"required": ["a", 1]}, "required[1]: expected string, got 1"),
        ([], "expected object or boolean, got []"),
        ({"items": 1}, "items: expected object or boolean, got 1"),
        ({"multipleOf": 0}, "multipleOf: expected more than 0, got 0"),
        ({"$ref": "#/%ff"}, '$ref "#/%ff" is not'),
        ({"minLength": -1}, "minLength: expected at least 0")])
    def test_a_wrong_schema_is_told_where(self, schema, text):
        """The text names the place and what is expected there."""
        with pytest.raises(ValueError) as info:
            validate(1, schema)
        assert str(info.value).startswith("schema: " + text)

    @pytest.mark.parametrize("value, schema, texts", [
        ({"k": "b", "n": "x"}, {"anyOf": [{"properties": {"k": {"const": "a"}, "n": {"type": "null"}}},
                                          {"properties": {"k": {"const": "b"}, "n": {"type": "integer"}}}]},
         ['n: expected integer, got "x"']),
        (1, {"oneOf": [{"const": "a"}, {"const": "b"}]}, ['expected "a" or "b", got 1']),
        (1, {"oneOf": [True, {}]}, ["matches 2 alternatives of `oneOf`, must match one"]),
        ({"ab": 1, "c d\n": 2}, {"propertyNames": {"maxLength": 1}, "required": ["a"]},
         ['ab: expected at most 1 characters, got "ab"',
          '"c d\\n": expected at most 1 characters, got "c d\\n"',
          "a: required, but missing"]),
        ([{"a": 1}, {"b": 1}], {"items": {"properties": {"a": {}}, "unevaluatedProperties": False}},
         ["[1].b: unknown; known: a"]),
        ({"a": 1}, {"properties": {"a": False}}, ["a: nothing is allowed here, got 1"]),
        (1, {"not": {"minimum": 0}}, ['expected anything but what matches {"minimum": 0}, got 1'])])
    def test_texts(self, value, schema, texts):
        """The nearest alternative tells why; names are quoted where they must be."""
        assert validate(value, schema) == texts

    def test_work_is_bounded(self):
        """Doubling references, expensive comparisons, floods of errors and long texts end with a text."""
        def doubling(keyword):
            steps = {str(n): {keyword: [{"$ref": f"#/$defs/{n + 1}"}] * 2} for n in range(50)}
            return {"$ref": "#/$defs/0", "$defs": {**steps, "50": {"type": "integer"}}}
        for keyword, value in (("allOf", 1), ("anyOf", "x"), ("oneOf", 1)):
            assert validate(value, doubling(keyword)) == ["too much work for the schema"]
        assert validate(list(range(100000)), {"uniqueItems": True}) == []
        assert validate([2 ** 61 * n - n for n in range(100000)], {"uniqueItems": True}) == []
        assert len(validate(["x"] * 100000, {"items": {"type": "integer"}})) == mcp_lite.MAX_ERRORS
        assert "too many for the pattern" in validate("a" * 100000, {"pattern": "(a*)*b"})[0]

    def test_the_official_suite(self):
        """Only those official tests fail that need something fetched, or another dialect."""
        folder = os.path.join(HERE, "..", "shared", "jsonschema-suite", "tests", "draft2020-12")
        if not os.path.isdir(folder):
            pytest.skip("the suite is not here")
        passed, failed = 0, []
        for name in sorted(os.listdir(folder)):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                groups = json.load(file)
            for group in groups:
                for test in group["tests"]:
                    try:
                        right = (validate(test["data"], group["schema"]) == []) == test["valid"]
                    except ValueError:
                        right = False
                    passed += right
                    failed += [] if right else [f"{name}: {group['description']}: {test['description']}"]
        assert passed >= 1250, failed

    def test_depth_is_bounded(self):
        """Neither a deep schema nor a deep value nor a loop of references brings the process down."""
        schema, value = {"type": "array"}, []
        for _ in range(5000):
            schema, value = {"items": schema}, [value]
        with pytest.raises(ValueError, match="nested"):
            validate(1, schema)
        assert validate(value, {"$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}, "$ref": "#/$defs/a"}) != []
        assert validate(1, {"$ref": "#"}) != []


class TestSignatures:
    """Room 6."""

    @staticmethod
    def schema(hint, default=mcp_lite.REQUIRED):
        def fn(x):
            """"""
        fn.__annotations__["x"] = hint
        if default is not mcp_lite.REQUIRED:
            fn.__defaults__ = (default,)
        return mcp_lite.Signature(fn, Context)

    @pytest.mark.parametrize(
        "hint, schema, wire, value",
        [
            (str, {"type": "string"}, "a", "a"),
            (int, {"type": "integer"}, 3.0, 3),
            (float, {"type": "number"}, 1, 1.0),
            (bool, {"type": "boolean"}, True, True),
            (typing.Any, {}, [1], [1]),
            (None, {"type": "null"}, None, None),
            (typing.List[int], {"type": "array", "items": {"type": "integer"}}, [1.0], [1]),
            (
                typing.Set[str],
                {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
                ["a"],
                {"a"},
            ),
            (typing.Tuple[int, ...], {"type": "array", "items": {"type": "integer"}}, [1], (1,)),
            (
                typing.Tuple[int, str],
                {
                    "type": "array",
                    "prefixItems": [{"type": "integer"}, {"type": "string"}],
                    "minItems": 2,
                    "maxItems": 2,
                },
                [1, "a"],
                (1, "a"),
            ),
            (
                typing.Dict[str, int],
                {"type": "object", "additionalProperties": {"type": "integer"}},
                {"a": 1},
                {"a": 1},
            ),
            (typing.Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}, None, None),
            (typing.Union[int, str], {"anyOf": [{"type": "integer"}, {"type": "string"}]}, "a", "a"),
            (typing.Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}, "a", "a"),
            (typing.Literal[1, "b"], {"enum": [1, "b"]}, 1, 1),
            (Color, {"type": "string", "enum": ["red", "green"]}, "red", Color.RED),
            (
                Person,
                {
                    "type": "object",
                    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "default": 7}},
                    "required": ["name"],
                },
                {"name": "Bo"},
                Person("Bo"),
            ),
            ("int", {"type": "integer"}, 1, 1),
            (
                "list[int] | None",
                {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]},
                [1],
                [1],
            ),
        ],
    )
    def test_hints(self, hint, schema, wire, value):
        """A hint becomes a schema, and a wire value the hinted Python value."""
        found = self.schema(hint)
        assert found.schema == {"type": "object", "properties": {"x": schema}, "additionalProperties": False,
                                "required": ["x"]}
        bound = found.bind({"x": wire})["x"]
        assert bound == value and type(bound) is type(value)

    def test_params_and_defaults(self):
        """Param says more, defaults are published where JSON can say them."""
        if sys.version_info >= (3, 9):
            hint = typing.Annotated[int, Param("how many", ge=1, header="N")]
            assert self.schema(hint, 3).schema["properties"]["x"] == {
                "type": "integer", "description": "how many", "minimum": 1, "x-mcp-header": "N", "default": 3}
        assert self.schema(Color, Color.RED).schema["properties"]["x"]["default"] == "red"
        assert "default" not in self.schema(typing.Any, object()).schema["properties"]["x"]

    def test_what_the_wire_cannot_say_is_refused_at_once(self):
        """*args, an unknown class and a wrong hint fail at decoration, naming the parameter."""
        server = Server("s")
        for wrong, said in (
            (lambda *args: 0, "no name on the wire"),
            (lambda **kw: 0, "no name on the wire"),
        ):
            with pytest.raises(TypeError, match=re.escape(said)):
                server.add_tool(wrong, name="x")

        def odd(thing: socket.socket):
            """"""
        with pytest.raises(TypeError, match="odd: thing: socket has no JSON Schema"):
            server.tool(odd)
        odd.__annotations__["thing"] = "Nowhere"
        with pytest.raises(TypeError, match="odd: thing: cannot evaluate the hint"):
            server.tool(odd)

    def test_json_in_strings_is_read_where_lists_are_expected(self):
        """Models send lists as strings; a string stays a string where one is expected."""
        assert self.schema(typing.List[int]).bind({"x": "[1, 2]"}) == {"x": [1, 2]}
        assert self.schema(str).bind({"x": "[1, 2]"}) == {"x": "[1, 2]"}
        with pytest.raises(InvalidParams, match='x: expected integer, got "3"'):
            self.schema(int).bind({"x": "3"})
        assert self.schema(int).bind_text({"x": "3"}) == {"x": 3}

    def test_methods_and_callables_are_functions_too(self):
        """self is no parameter; an object with __call__ and a wrapped function count."""
        class Thing:
            def method(self, a: int) -> int:
                """"""

            def __call__(self, b: str) -> str:
                """"""
        assert list(mcp_lite.Signature(Thing().method, Context).schema["properties"]) == ["a"]
        assert list(mcp_lite.Signature(Thing(), Context).schema["properties"]) == ["b"]

    # A hint; wire values that it takes, which come back the same; wire values that it refuses.
    TABLE = [
        (str, ["", "a"], [1, None, ["a"]]), (int, [0, -3, 10**20], ["3", 1.5, True, None]),
        (float, [1.5, 2], ["1", False]), (bool, [True, False], [0, 1, "true"]), (None, [None], [0, ""]),
        (type(None), [None], [False]), (typing.Any, [1, "a", None, {"a": [1]}], []), (object, [1, [2]], []),
        (list, [[], [1, "a"]], ["a", {}]), (dict, [{}, {"a": 1}], [[], "a"]), (tuple, [[1, "a"]], [1]),
        (set, [[1]], [[1, 1], 1]), (frozenset, [["a"]], [["a", "a"]]),
        (typing.List[int], [[], [1, 2]], [["1"], [True], 1]),
        (typing.List[typing.List[str]], [[["a"], []]], [["a"]]),
        (typing.List, [[1]], [1]), (typing.Dict, [{"a": 1}], [1]), (typing.Tuple, [[1]], [1]),
        (typing.Sequence[int], [[1]], [["a"]]), (typing.Iterable[str], [["a"]], [[1]]),
        (typing.Set[int], [[1, 2]], [[1, 1], ["a"]]), (typing.FrozenSet[str], [["a", "b"]], [["a", "a"]]),
        (typing.AbstractSet[int], [[1]], [[1, 1]]),
        (typing.Tuple[int, str], [[1, "a"]], [[1], [1, "a", 2], ["a", 1]]),
        (typing.Tuple[int, ...], [[], [1, 2]], [["a"]]),
        (typing.Tuple[datetime.date, ...], [["2026-01-02"]], [["x"]]),
        (typing.Dict[str, int], [{"a": 1}], [{"a": "b"}]),
        (typing.Mapping[str, float], [{"a": 1.5}], [{"a": "b"}]),
        (typing.Dict[str, datetime.date], [{"a": "2026-01-02"}], [{"a": "nope"}, {"a": 1}]),
        (typing.Optional[int], [None, 1], ["1"]), (typing.Union[int, str], [1, "a"], [None, 1.5]),
        (typing.Optional[typing.List[int]], [None, [1]], [["a"]]),
        (typing.Union[datetime.date, str], ["2026-01-02", "tomorrow"], [1]),
        (typing.Union[datetime.datetime, datetime.date, None], ["2026-01-02T03:04:05", None], ["x"]),
        (typing.Union[Person, Point], [{"name": "Bo", "age": 1}, {"x": 1, "y": 0}], [{}, 1]),
        (typing.Literal["a", "b"], ["a"], ["c", 1]),
        (typing.Literal[1, "b", None], [1, "b", None], ["1", True]),
        (typing.Literal[True], [True], [1, "true"]),
        (typing.Optional[typing.Literal["a"]], ["a", None], ["b"]),
        (typing.Literal[Color.RED], ["red"], ["green"]), (Color, ["red"], ["RED", 1]),
        (Level, [1, 2], [3, True, "1"]),
        (Shape, ["round"], ["ROUND"]), (typing.List[Color], [["red", "green"]], [["blue"]]),
        (typing.Dict[str, Color], [{"a": "red"}], [{"a": "blue"}]),
        (UserId, [7], ["7"]), (UserIds, [[7]], [["7"]]),
        (Person, [{"name": "Bo", "age": 8}], [{}, {"name": 1}, "Bo", {"name": "Bo", "age": "old"}]),
        (typing.List[Person], [[{"name": "Bo", "age": 8}]], [[{}], {}]),
        (typing.Optional[Person], [None, {"name": "Bo", "age": 8}], [{"age": 8}]),
        (Team, [{"lead": {"name": "A", "age": 1}, "members": [{"name": "B", "age": 2}], "since": "2026-01-02",
                 "tags": ["x"], "color": "green"}], [{"lead": {}, "members": []}, {"lead": {"name": "A"}}]),
        (Strict, [{"many": 3}], [{"many": -1}, {"many": "3"}]),
        (Tree, [{"value": 1, "children": [{"value": 2, "children": []}]}], [{"value": 1, "children": [{}]}]),
        (typing.Optional[Tree], [None, {"value": 1, "children": []}], [{"value": "a"}]),
        (Chain, [{"when": "2026-01-02", "next": {"when": "2026-01-03", "next": None}}],
         [{"when": "2026-01-02", "next": {"when": "soon"}}, {"when": "2026-01-02", "next": {}}]),
        (Husband, [{"wife": {"husband": {"wife": None}}}], [{"wife": {"husband": 1}}, {"wife": 1}]),
        (Point, [{"x": 1, "y": 2}], [{}, [1, 2], {"x": "a"}]), (Untyped, [{"a": 1, "b": [2]}], [{"a": 1}]),
        (Partial, [{}, {"a": 1, "day": "2026-01-02"}], [{"a": "x"}, {"day": "x"}]),
        (datetime.datetime, ["2026-01-02T03:04:05", "2026-01-02T03:04:05+02:00"],
         ["2026-13-01T00:00:00", 1, "x"]),
        (datetime.date, ["2026-01-02"], ["2026-13-01", "x", 20260102]),
        (datetime.time, ["03:04:05"], ["25:00", 3]),
        (datetime.timedelta, ["PT90S", "PT0S", "PT0.5S", "PT-5S"], ["P1Y", "P", "PT", "90", 90]),
        (uuid.UUID, ["12345678-1234-5678-1234-567812345678"], ["1234", 1]), (pathlib.Path, ["a.txt"], [1]),
        (decimal.Decimal, ["1.50", "-3", "1E+3"], ["a", 1.5, "NaN"]), (bytes, ["aGk=", ""], ["a", "a?==", 1]),
        ("int", [1], ["a"]), ("list[int]", [[1]], [["a"]]),
        ("dict[str, int | None]", [{"a": None}], [{"a": "b"}]),
        ("Color | None", ["red", None], ["blue"]),
        ("list[Person | Color]", [["red", {"name": "B", "age": 1}]], [[1]]),
        ("typing.Optional[list['Person']]", [[{"name": "B", "age": 1}], None], [[{}]]),
        ("'Person' | None", [None], [1]),
        ("tuple[int, ...]", [[1]], [["a"]]), ("set[Color]", [["red"]], [["blue"]]),
        (typing.List["Person"], [[]], [[1]]),
    ]
    if sys.version_info >= (3, 9):
        TABLE += [                       # Python 3.8 does not remember which base a TypedDict's key came from
            (Movie, [{"name": "M"}, {"name": "M", "year": 1931}],
             [{}, {"name": 1}, {"name": "", "year": "x"}]),
            (typing.Annotated[int, "how many"], [1], ["a"]),
            (typing.Annotated[int, Param(ge=1, lt=5)], [1, 4], [0, 5]),
            (typing.Annotated[float, Param(gt=0, le=1)], [0.5, 1], [0, 1.5]),
            (typing.Annotated[str, Param(min_length=1, max_length=2, pattern="^a")], ["a"], ["", "abc", "b"]),
            (typing.Annotated[typing.List[int], Param(min_length=1)], [[1]], [[]]),
            (typing.Annotated[typing.Optional[typing.List[int]], Param(max_length=1)], [None, [1]], [[1, 2]]),
            (typing.Annotated[typing.Dict[str, int], Param(max_length=1)], [{"a": 1}], [{"a": 1, "b": 2}]),
            (typing.Optional[typing.Annotated[int, Param(ge=1)]], [None, 1], [0]),
            (typing.List[typing.Annotated[datetime.date, "a day"]], [["2026-01-02"]], [["x"]]),
            (list[int], [[1]], [["a"]]), (tuple[int, str], [[1, "a"]], [[1]]),
            (dict[str, list[int]], [{"a": [1]}], [[]])]
    if sys.version_info >= (3, 10):
        TABLE += [(eval("int | None"), [1, None], ["a"]), (eval("list[int] | str"), [[1], "a"], [1])]
    if sys.version_info >= (3, 11):
        TABLE += [(Release, [{"name": "r"}, {"name": "r", "tag": "t"}],
                   [{}, {"tag": "t"}, {"name": "r", "tag": 1}])]

    @pytest.mark.parametrize("hint, accepted, refused", TABLE, ids=[str(row[0]) for row in TABLE])
    def test_every_hint_there_and_back(self, hint, accepted, refused):
        """The schema is usable; what it takes comes back the same; what it refuses is told in one line."""
        found = self.schema(hint)
        mcp_lite.Schema(found.schema)
        assert json.loads(mcp_lite.encode_json(found.schema)) == found.schema
        assert "title" not in str(found.schema)
        output = mcp_lite.Output(function_returning(hint), None, True, "x")
        for wire in accepted:
            bound = found.bind({"x": wire})["x"]
            plain = mcp_lite.to_plain(bound)
            assert plain == wire and (type(plain) is type(wire) or type(plain) is float)
            assert unwrap(output.result(bound)) == wire
        for wire in refused:
            with pytest.raises(InvalidParams) as error:
                found.bind({"x": wire})
            assert str(error.value).startswith("x") and "\n" not in str(error.value)

    @pytest.mark.parametrize("hint, wire, value", [
        (int, 1.0, 1), (float, 2, 2.0), (Color, "red", Color.RED), (Level, 1.0, Level.LOW),
        (typing.List[Color], ["red"], [Color.RED]), (typing.Dict[str, Color], {"a": "red"}, {"a": Color.RED}),
        (typing.Optional[Person], {"name": "Bo"}, Person("Bo")), (Point, {"x": 1}, Point(1)),
        (Tree, {"value": 1, "children": [{"value": 2, "children": []}]}, Tree(1, [Tree(2, [])])),
        (typing.Union[datetime.date, str], "2026-01-02", datetime.date(2026, 1, 2)),
        (datetime.datetime, "2026-01-02T03:04:05Z",
         datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc)),
        (datetime.timedelta, "P1DT2H3M4.5S", datetime.timedelta(days=1, hours=2, minutes=3, seconds=4.5)),
        (uuid.UUID, "12345678123456781234567812345678", uuid.UUID(int=0x12345678123456781234567812345678)),
        (decimal.Decimal, "0.1", decimal.Decimal("0.1")), (bytes, "aGk=", b"hi"),
        (pathlib.Path, "a", pathlib.Path("a")),
        (typing.Set[Color], ["red"], {Color.RED}), (typing.Tuple[Color, int], ["red", 1.0], (Color.RED, 1)),
    ])
    def test_conversions(self, hint, wire, value):
        """Values arrive as the hint says, at any depth."""
        bound = self.schema(hint).bind({"x": wire})["x"]
        assert bound == value and type(bound) is type(value)

    def test_error_texts(self):
        """One line each, naming the argument; several together."""
        def plan(when: datetime.date, who: typing.List[Person], strict: typing.Optional[Strict] = None,
                 days: int = 3):
            """"""
        bind = mcp_lite.Signature(plan, Context).bind
        for arguments, text in [
                ({"when": "2026-13-01", "who": []}, 'when: expected an ISO 8601 date, got "2026-13-01"'),
                ({"when": "2026-01-01", "who": [], "dais": 1}, "dais: unknown; did you mean days?"),
                ({"days": "x", "who": []}, 'days: expected integer, got "x"; when: required, but missing'),
                ({"when": "x", "who": [{"name": "Bo"}], "strict": {"many": -1}},
                 'when: expected an ISO 8601 date, got "x"; strict: many must not be negative')]:
            with pytest.raises(InvalidParams) as error:
                bind(arguments)
            assert sorted(str(error.value).split("; ")) == sorted(text.split("; "))

    def test_what_a_decorator_refuses(self):
        """A TypeError that names the function, the parameter and the remedy."""
        def starred(a, *rest):
            """"""

        def named(**options):
            """"""

        def keyed(x: typing.Dict[int, str]):
            """"""

        def pictured(x: Image):
            """"""

        def deep(x: typing.List[typing.Optional[socket.socket]]):
            """"""
        refused = [(starred, "starred: rest: .*give each parameter a name"),
                   (keyed, r"keyed: x: dict keys: .*dict\[str"),
                   (named, "named: options: "), (pictured, "pictured: x: Image has no JSON Schema"),
                   (deep, "deep: x: socket has no JSON Schema; use a plain type"),
                   (print, "print: expected a Python")]
        if sys.version_info >= (3, 8):
            names = {}
            exec("def positional(a, /, b): ''", names)
            refused.append((names["positional"], "positional: a: .*positional-only"))
        for fn, text in refused:
            with pytest.raises(TypeError, match=text):
                mcp_lite.Signature(fn, Context)

    def test_keyword_only_defaults_and_the_context(self):
        """Keyword-only parameters count; the Context is found by its hint, Optional or not, and hidden."""
        def fn(a: int, *, ctx: typing.Optional[Context] = None, b: "Color" = Color.RED, c=(1, 2)):
            """"""
        found = mcp_lite.Signature(fn, Context)
        assert found.context == "ctx" and found.schema["required"] == ["a"]
        assert found.schema["properties"]["b"]["default"] == "red"
        assert found.schema["properties"]["c"] == {"default": [1, 2]}
        assert found.bind({"a": 1, "b": "green"}) == {"a": 1, "b": Color.GREEN}

    def test_classes_of_a_function_are_found(self):
        """A class that is local to a function is seen through the closure, and may contain itself."""
        @dataclasses.dataclass
        class Local:
            below: "typing.Optional[Local]" = None

        def fn(x: "typing.List[Local]"):
            """"""
            return Local
        found = mcp_lite.Signature(fn, Context)
        assert list(found.schema["$defs"]) == ["Local"]
        assert found.bind({"x": [{"below": {}}]}) == {"x": [Local(Local())]}

    def test_recursion_and_only_recursion_makes_references(self):
        """$defs has the classes that contain themselves; others stand in place; a result is an object."""
        found = self.schema(typing.List[Tree]).schema
        assert found["properties"]["x"]["items"] == {"$ref": "#/$defs/Tree"}
        assert list(found["$defs"]) == ["Tree"]
        assert "$defs" not in self.schema(Team).schema
        output = mcp_lite.Output(function_returning(Tree), None, None, "x")
        assert output.schema["type"] == "object" and output.schema["$defs"]["Tree"]["type"] == "object"
        assert output.result(Tree(1, [Tree(2, [])]))["structuredContent"]["children"][0]["value"] == 2

    @pytest.mark.parametrize("doc, description, days", [
        ("One line.", "One line.", None), (None, None, None), ("city: not known", "city: not known", None),
        ("""The weather.

        Args:
            city (str): Where.
            days (List[int], optional): How many,
                at most: 5.

        Returns:
            text: as it is
        """, "The weather.\n\nReturns:\n    text: as it is", "How many, at most: 5."),
        ("""The weather.

        Parameters
        ----------
        town : str
            Where.
        days : int, optional
            How many,
            at most 5.

        Returns
        -------
        text
        """, "The weather.\n\nReturns\n-------\ntext", "How many, at most 5."),
        ("""The weather.

        :param str town: Where.
        :type days: int
        :param days: How many,
            at most 5.
        :returns: text
        """, "The weather.\n\n:returns: text", "How many, at most 5."),
    ])
    def test_docstrings_describe_parameters(self, doc, description, days):
        """Google's, NumPy's and Sphinx's styles; the tool's description is the rest."""
        def fn(town, days: int = 1):
            """"""
        fn.__doc__ = doc and doc.replace("city (", "town (")
        found = mcp_lite.Signature(fn, Context)
        assert found.description == description
        assert found.schema["properties"]["days"].get("description") == days
        if days:
            assert found.schema["properties"]["town"]["description"] == "Where."

    def test_completions(self):
        """Literal, Enum and bool know their values, Optional ones too."""
        for hint, values in [(Color, ["red", "green"]), (typing.Optional[Color], ["red", "green"]),
                             (bool, ["true", "false"]), (typing.Optional[bool], ["true", "false"]),
                             (typing.Literal[1, "a"], ["1", "a"]), (int, [])]:
            assert self.schema(hint).completions("x") == values

    def test_text_arguments(self):
        """Text becomes what is expected, where text itself is not."""
        for hint, text, value in [(int, "3", 3), (bool, "true", True), (float, "2", 2.0), (str, "3", "3"),
                                  (typing.List[int], "[1]", [1]), (typing.Optional[int], "null", None),
                                  (typing.Union[int, str], "3", "3"),
                                  (datetime.date, "2026-01-02", datetime.date(2026, 1, 2)),
                                  (typing.Literal[1, "b"], "1", 1), (Person, '{"name": "Bo"}', Person("Bo")),
                                  (Tree, '{"value": 1, "children": []}', Tree(1, []))]:
            assert self.schema(hint).bind_text({"x": text}) == {"x": value}
        for hint, text, value in [(typing.Optional[typing.List[int]], "null", None),
                                  (Person, '{"name": "Bo"}', Person("Bo")),
                                  (Tree, '{"value": 1, "children": []}', Tree(1, []))]:
            assert self.schema(hint).bind({"x": text}) == {"x": value}
        with pytest.raises(InvalidParams, match="x: expected array or string|x: expected"):
            self.schema(typing.Union[typing.List[int], typing.Dict[str, int]]).bind({"x": "[1"})

    def test_content_is_what_the_wire_has(self):
        """Content objects and messages are their wire form."""
        data, sound = mcp_lite._base64(PNG), mcp_lite._base64(WAV)
        assert Image(PNG, meta={"a": 1}) == {
            "type": "image", "data": data, "mimeType": "image/png", "_meta": {"a": 1}}
        assert EmbeddedResource("x://y", b"hi")["resource"] == {"uri": "x://y", "blob": "aGk="}
        assert ResourceLink("x://y", "n", size=3) == {
            "type": "resource_link", "uri": "x://y", "name": "n", "size": 3}
        assert Message(["a", Audio(WAV)]) == {"role": "user", "content": [
            {"type": "text", "text": "a"}, {"type": "audio", "data": sound, "mimeType": "audio/wav"}]}
        with pytest.raises(TypeError):
            Message(3)
        with pytest.raises(ValueError, match="mime_type="):
            Image(b"?")

    def test_nothing_slow_is_imported_for_plain_hints(self):
        """Plain tools start without inspect, dataclasses, typing, datetime and their like."""
        code = f"""if 1:
            import sys
            before = set(sys.modules)
            sys.path.insert(0, {HERE!r})
            from mcp_lite import Server

            def f(city: str, days: int = 3, tags: list = [], more: 'dict' = {{}}) -> dict:
                'Doc.'
            Server('s').tool(f)
            slow = 'inspect dataclasses typing datetime decimal uuid pathlib ast mimetypes'.split()
            print([name for name in slow if name in sys.modules and name not in before])"""
        done = subprocess.run([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE)
        assert done.stdout.split() == [b"[]"]

    @pytest.mark.parametrize(
        "template, uri, values",
        [
            ("x://{a}", "x://1%202", {"a": "1 2"}),
            ("x://{a}", "x://1/2", None),
            ("x://a.b/{c}", "x://aXb/1", None),
            ("x://{+p}", "x://a/b/../c", {"p": "a/b/../c"}),
            ("x://{a}", "x://..", None),
            ("x://{a}", "x://%2Fetc", None),
            ("x://{a}", "x://a%2F..%2Fb", None),
            ("x://{a}", "x://a%00", None),
            ("x://{a}", "x://C%3A%5Cx", None),
            ("x://{a}", "x://%FF", None),
            ("x://f{/p*}", "x://f/a/b%20c", {"p": ["a", "b c"]}),
            ("x://f{/p*}", "x://f/a/..", None),
            ("x://{a}{?q,r}", "x://1?r=2&z=3", {"a": "1", "r": "2"}),
            ("x://{a}{?q}", "x://1", {"a": "1"}),
            ("x://{a}/{b}", "x://1/2", {"a": "1", "b": "2"}),
            ("x://{a}/{+t}{?q}", "x://1/a/b?q=2", {"a": "1", "t": "a/b", "q": "2"}),
            ("x://{a,b}", "x://1,2", {"a": "1", "b": "2"}),
        ],
    )
    def test_uri_templates(self, template, uri, values):
        """Literals are literal, values are decoded, and nothing is smuggled."""
        assert mcp_lite.UriTemplate(template).match(uri) == values

    @pytest.mark.parametrize("wrong", ["x://{", "x://{a}{a}", "x://{a b}", "x://}"])
    def test_wrong_templates_are_refused(self, wrong):
        """A template that cannot be read fails when it is registered."""
        with pytest.raises(ValueError):
            mcp_lite.UriTemplate(wrong)


class TestFraming:
    """Room 7."""

    def test_any_split_gives_the_same_lines(self):
        """Split and joined writes, CRLF and blank lines: the lines are the same."""
        data = b'{"a":1}\r\n\n \n{"b":2}\n{"c":3}'
        for size in (1, 2, 3, 7, 100):
            framer, lines = mcp_lite.LineFramer(), []
            for at in range(0, len(data), size):
                lines += framer.feed(data[at:at + size])
            lines += framer.feed(b"")
            assert [json.loads(line) for line in lines] == [{"a": 1}, {"b": 2}, {"c": 3}]

    def test_a_long_line_is_skipped_and_not_kept(self):
        """One None for it, and the next line is whole."""
        framer = mcp_lite.LineFramer(10)
        lines = []
        for piece in [b"x" * 8] * 50 + [b"\nok\n", b"y" * 11 + b"\nfine\n"]:
            lines += framer.feed(piece)
            assert sum(map(len, framer._parts)) <= 20
        assert lines == [None, b"ok", None, b"fine"]


class TestProtocol:
    """Room 8: two cores without any I/O."""

    @staticmethod
    def server(**declared):
        return mcp_lite.Protocol("server", lambda: declared or {"tools": {}, "logging": {}})

    def test_nothing_but_ping_before_initialize(self):
        """A request that is neither modern, ping nor initialize gets -32600 "not initialized"."""
        protocol = self.server()
        refused = protocol.receive(request("tools/list"))
        assert (
            refused.reply["error"]["code"] == -32600
            and "not initialized" in refused.reply["error"]["message"]
        )
        assert isinstance(protocol.receive(request("ping")), mcp_lite.Request)

    @pytest.mark.parametrize(
        "asked, got", [(v, v) for v in LEGACY] + [(MODERN, LEGACY[-1]), ("1999-01-01", LEGACY[-1])]
    )
    def test_version_negotiation(self, asked, got):
        """The same version if it is known, else the latest with a handshake."""
        protocol = self.server()
        opened = protocol.receive(
            request("initialize", {"protocolVersion": asked, "capabilities": {}, "clientInfo": {}})
        )
        assert opened.version == protocol.version == got
        again = protocol.receive(request("initialize", {"protocolVersion": asked, "capabilities": {},
                                                        "clientInfo": {}}, 2))
        assert again.reply["error"]["code"] == -32600

    @pytest.mark.parametrize(
        "params, code, said",
        [
            ({}, -32602, "protocolVersion"),
            ({"_meta": {mcp_lite.META_VERSION: MODERN}}, -32602, "clientCapabilities"),
            (
                {"_meta": {mcp_lite.META_VERSION: 3, mcp_lite.META_CAPABILITIES: {}}},
                -32602,
                "expected string, got 3",
            ),
            (
                {"_meta": {mcp_lite.META_VERSION: "2025-11-25", mcp_lite.META_CAPABILITIES: {}}},
                -32022,
                "2025-11-25",
            ),
            (modern(_meta={mcp_lite.META_LOG_LEVEL: "loud"}), -32602, "logLevel"),
            (modern(_meta={mcp_lite.META_CLIENT_INFO: 1}), -32602, "clientInfo"),
            ({"_meta": []}, -32602, "_meta"),
        ],
    )
    def test_modern_meta_is_checked(self, params, code, said):
        """Every required member is named when it is missing or wrong."""
        refused = self.server().receive(request("server/discover", params))
        assert refused.reply["error"]["code"] == code and said in refused.reply["error"]["message"]
        if code == -32022:
            assert refused.reply["error"]["data"] == {"supported": [MODERN], "requested": "2025-11-25"}

    def test_each_era_has_its_own_methods(self):
        """ping is not modern, server/discover is not legacy, and neither side sends the other's requests."""
        protocol = self.server()
        assert protocol.receive(request("ping", modern())).reply["error"]["code"] == -32601
        assert protocol.receive(request("initialize", modern())).reply["error"]["code"] == -32601
        assert protocol.receive(request("roots/list", modern())).reply["error"]["code"] == -32601
        assert protocol.receive(request("no/such", modern())).reply["error"]["code"] == -32601
        client = mcp_lite.Protocol("client", dict)
        client.version = MODERN
        assert client.receive(request("roots/list")).reply["error"]["code"] == -32600
        client.version = "2025-11-25"
        assert client.receive(request("roots/list")).reply["error"]["code"] == -32601     # not declared
        assert client.receive(request("tools/list")).reply["error"]["code"] == -32601

    def test_capabilities_are_enforced(self):
        """What was not declared does not exist."""
        refused = self.server(tools={}).receive(request("prompts/list", modern()))
        assert refused.reply["error"]["code"] == -32601 and "prompts" in refused.reply["error"]["message"]

    def test_an_id_in_flight_is_refused_without_an_id(self):
        """The first keeps its id; an id that has ended may come again."""
        protocol = self.server()
        first = protocol.receive(request("tools/list", modern()))
        assert protocol.receive(request("tools/list", modern())).reply == {
            "jsonrpc": "2.0", "error": {"code": -32600, "message": "id 1 is in flight already"}}
        assert protocol.end(first) and not protocol.end(first)
        assert isinstance(protocol.receive(request("tools/list", modern())), mcp_lite.Request)

    def test_no_error_has_the_id_of_a_request_in_flight(self):
        """Whatever is wrong with a message, the request that owns its id is not answered by that."""
        protocol = self.server()
        protocol.receive(request("tools/list", modern()))
        broken = {"jsonrpc": "2.0", "id": 1, "method": 5}
        for wrong in (request("nope", modern()), broken, request("tools/list")):
            assert "id" not in protocol.receive(wrong).reply
        assert list(protocol.in_flight) == [1]

    def test_answers_and_notifications_are_never_answered(self):
        """Not when they are wrong, foreign, late or twice."""
        protocol = self.server()
        for message in ({"jsonrpc": "2.0", "id": 9, "result": {}}, {"jsonrpc": "2.0", "id": 9, "result": 1},
                        {"jsonrpc": "2.0", "method": "notifications/x", "params": []},
                        {"jsonrpc": "2.0", "method": "tools/list"}, {"jsonrpc": "2.0", "error": {"code": 1}},
                        {"jsonrpc": "1.0", "method": "x"}):
            assert getattr(protocol.receive(message), "reply", None) is None

    def test_a_broken_answer_ends_the_wait(self):
        """Whoever waits for that id learns that the answer is not valid."""
        protocol = mcp_lite.Protocol("client", dict)
        request_id = protocol.open("me")
        found = protocol.receive({"jsonrpc": "2.0", "id": request_id, "result": [], "error": {}})
        assert found.pending == "me" and isinstance(found.error, InternalError) and not protocol.pending

    @pytest.mark.parametrize("params, said", [
        ({}, "name: expected string, but it is missing"), ({"name": 1}, "name: expected string, got 1"),
        ({"name": "x", "arguments": []}, "arguments: expected object, got []"),
        ({"name": "x", "_meta": {"progressToken": 1.5}}, "progressToken")])
    def test_parameters_are_checked(self, params, said):
        """By the row of the table, naming the field."""
        meta = {**modern()["_meta"], **params.get("_meta", {})}
        refused = self.server().receive(request("tools/call", {**params, "_meta": meta}))
        assert refused.reply["error"]["code"] == -32602 and said in refused.reply["error"]["message"]


class TestServerOnTheWire:
    """Rooms 9, 11 and 12, seen from the other end of a pipe."""

    def test_a_session_and_its_end(self):
        """Handshake, a call, end of input: exit code 0."""
        with Wire() as wire:
            found = wire.open("2025-03-26")
            assert found["protocolVersion"] == "2025-03-26" and found["serverInfo"] == {
                "name": "everything", "version": "1.2", "description": "for tests"}
            assert wire.ask("tools/call", {"name": "greet", "arguments": {"name": "Bo"}}) == {
                "jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": "hello Bo"}]}}
            assert wire.ask("ping") == {"jsonrpc": "2.0", "id": 1, "result": {}}
            assert wire.end() == ([], 0)

    def test_pipelined_requests_are_all_answered(self):
        """What came before the end of the input is answered; `initialized` counts; no last line break."""
        with Wire() as wire:
            wire.send(
                request(
                    "initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {}}, "a"
                ),
                {"jsonrpc": "2.0", "method": "initialized"},
                *[request("tools/call", {"name": "add", "arguments": {"a": n}}, n) for n in range(50)],
                json.dumps(request("ping", id="z")).encode(),
            )
            rest, code = wire.end()
            assert code == 0 and rest[0]["id"] == "a" and len(rest) == 52
            assert {
                m["id"]: m["result"]["structuredContent"]["result"] for m in rest if isinstance(m["id"], int)
            } == {n: n + 1 for n in range(50)}

    def test_both_eras_in_one_process(self):
        """Legacy and modern requests, interleaved."""
        with Wire() as wire:
            found = wire.ask("server/discover", modern())["result"]
            assert found["supportedVersions"] == [MODERN] and found["resultType"] == "complete"
            assert found["_meta"][mcp_lite.META_SERVER_INFO]["title"] == "Everything"
            assert (
                found["ttlMs"] == 0
                and found["cacheScope"] == "public"
                and found["instructions"] == "Call anything."
            )
            wire.open()
            result = wire.ask("tools/call", modern(name="add", arguments={"a": 1}))["result"]
            assert result["resultType"] == "complete" and result["structuredContent"] == {"result": 2}
            assert (
                "resultType" not in wire.ask("tools/call", {"name": "add", "arguments": {"a": 1}})["result"]
            )
            assert wire.ask("resources/read", modern(uri="x://note"))["result"]["cacheScope"] == "private"

    def test_broken_messages_do_not_end_the_server(self):
        """Each gets its error, and the next request its answer."""
        with Wire() as wire:
            for broken, code in (
                (b"{\n", -32700),
                (b"\xff\n", -32700),
                (b"[" * 100_000 + b"\n", -32700),
                (b"1\n", -32600),
                (b"[]\n", -32600),
                (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]\n', -32600),
                (b'{"jsonrpc":"2.0","id":null,"method":"ping"}\n', -32600),
            ):
                wire.send(broken)
                found = wire.read()
                assert found["error"]["code"] == code and "id" not in found
            wire.send(b'\r\n\n{"jsonrpc":"2.0",', b'"id":5,"method":"ping"}\r\n')
            assert wire.read() == {"jsonrpc": "2.0", "id": 5, "result": {}}

    def test_a_message_over_the_limit_is_skipped(self):
        """An error, and the rest is not kept."""
        script = (
            "import sys; sys.path.insert(0, %r); import mcp_lite as m; m.Server('s', max_message=1000).run()"
            % HERE
        )
        with Wire([sys.executable, "-c", script]) as wire:
            wire.send(b"x" * 300_000 + b"\n")
            assert "more than 1000 bytes" in wire.read()["error"]["message"]
            assert wire.ask("ping")["result"] == {}

    def test_batches_of_2025_03_26(self):
        """Answered in one array; notifications have no answer; only in that revision."""
        with Wire() as wire:
            wire.open("2025-03-26")
            wire.send(json.dumps([request("ping", id=1), {"jsonrpc": "2.0", "method": "notifications/x"},
                                  request("tools/call", {"name": "add", "arguments": {"a": 1}}, 2), 7,
                                  request("no", id=3)]).encode() + b"\n")
            found = wire.read()
            assert {m.get("id"): m.get("error", {}).get("code") for m in found} == {
                1: None,
                2: None,
                None: -32600,
                3: -32601,
            }
            wire.send(b'[{"jsonrpc":"2.0","method":"notifications/x"}]\n')
            assert wire.ask("ping", id=9)["id"] == 9

    def test_a_cancelled_member_of_a_batch_is_left_out(self):
        """The array comes without it."""
        with Wire() as wire:
            wire.open("2025-03-26")
            wire.send(
                json.dumps([request("tools/call", {"name": "wait"}, 1), request("ping", id=2)]).encode()
                + b"\n"
            )
            wire.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
            assert [m["id"] for m in wire.read()] == [2]

    def test_nothing_but_protocol_on_stdout(self):
        """print, os.write and children go to stderr; input() finds nothing."""
        with Wire() as wire:
            wire.open()
            found = wire.ask("tools/call", {"name": "noise"})
            assert found["result"]["content"][0]["text"] == "input: nothing"
            assert wire.end() == ([], 0)

    def test_cancellation_has_no_answer(self):
        """The handler sees it, its callback runs, and nothing is sent for it."""
        with Wire() as wire:
            wire.open()
            wire.send(
                request("tools/call", {"name": "wait"}, 7),
                request("tools/call", {"name": "is_waiting"}, 6),
            )
            assert wire.read()["id"] == 6
            wire.send(
                {
                    "jsonrpc": "2.0",
                    "method": "notifications/cancelled",
                    "params": {"requestId": 7, "reason": "x"},
                },
            )
            found = wire.ask("tools/call", {"name": "waited"}, 8)
            assert found["id"] == 8 and found["result"]["structuredContent"] == {
                "result": ["callback", "cancelled"]
            }
            assert wire.end() == ([], 0)

    def test_the_other_way_to_cancel_is_answered(self):
        """`$/cancelRequest` gets -32800."""
        with Wire() as wire:
            wire.open()
            wire.send(request("tools/call", {"name": "wait"}, 7))
            wire.send(request("tools/call", {"name": "is_waiting"}, 6))
            assert wire.read()["id"] == 6
            wire.send(
                      {"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": 7}})
            assert wire.read() == {
                "jsonrpc": "2.0",
                "id": 7,
                "error": {"code": -32800, "message": "request cancelled"},
            }
            assert wire.ask("tools/call", {"name": "waited"})["result"]["structuredContent"]["result"]

    @pytest.mark.parametrize("kind", ["nan", "surrogate", "object"])
    def test_results_that_json_cannot_say_become_errors(self, kind):
        """Never invalid JSON on the wire."""
        with Wire() as wire:
            wire.open()
            found = wire.ask("tools/call", {"name": "bad", "arguments": {"kind": kind}})
            assert found["id"] == 1 and (found["error"]["code"] == -32603)

    def test_an_id_with_a_lone_surrogate_cannot_hurt(self):
        """It cannot be echoed, so the error has no id."""
        with Wire() as wire:
            wire.send(b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}\n')
            assert "error" in wire.read()
            assert wire.ask("ping")["result"] == {}

    def test_progress_increases_and_stops_at_the_answer(self):
        """Strictly increasing, with the token, none after; without a token, none."""
        with Wire() as wire:
            wire.open()
            wire.send(
                request(
                    "tools/call", {"name": "count", "arguments": {"to": 3}, "_meta": {"progressToken": "t"}}
                )
            )
            found = [wire.read() for _ in range(4)]
            assert [m["params"] for m in found[:3]] == [
                {"progressToken": "t", "progress": n, "total": 3, "message": f"step {n}"} for n in (1, 2, 3)]
            assert found[3]["id"] == 1
            assert wire.ask("tools/call", {"name": "count", "arguments": {"to": 3}}, 2)["id"] == 2

    def test_log_levels_of_both_eras(self):
        """Legacy: logging/setLevel; modern: per request, and nothing without it."""
        with Wire() as wire:
            assert wire.ask("tools/call", modern(name="logs"))["id"] == 1
            wire.send(request("tools/call", modern(name="logs", _meta={mcp_lite.META_LOG_LEVEL: "alert"}), 2))
            assert [wire.read()["params"]["level"] for _ in range(2)] == ["alert", "emergency"]
            assert wire.read()["id"] == 2
            wire.open()
            assert wire.ask("logging/setLevel", {"level": "loud"})["error"]["code"] == -32602
            assert wire.ask("logging/setLevel", {"level": "error"})["result"] == {}
            wire.send(request("tools/call", {"name": "logs"}, 3))
            assert [wire.read()["params"]["level"] for _ in range(4)] == [
                "error",
                "critical",
                "alert",
                "emergency",
            ]
            assert wire.read()["id"] == 3

    def test_pagination(self):
        """Pages, stateless cursors, and -32602 for a cursor that is not ours."""
        with Wire() as wire:
            wire.open()
            names, cursor = [], None
            while True:
                result = wire.ask("tools/list", {"cursor": cursor} if cursor else {})["result"]
                assert len(result["tools"]) <= 3
                names += [tool["name"] for tool in result["tools"]]
                cursor = result.get("nextCursor")
                if cursor is None:
                    break
            assert len(names) == len(set(names)) > 10
            other = wire.ask("resources/list", {})["result"]
            assert "nextCursor" not in other and len(other["resources"]) == 3
            for bad in ("x", "", "AAAA", 5, "dG9vbHMvbGlzdDotMQ==", "cmVzb3VyY2VzL2xpc3Q6Mw==", "é"):
                assert wire.ask("tools/list", {"cursor": bad})["error"]["code"] == -32602, bad

    def test_not_found_as_each_revision_codes_it(self):
        """A resource -32002 in a session, -32602 modern; a tool and a prompt -32602."""
        with Wire() as wire:
            assert wire.ask("resources/read", modern(uri="x://no"))["error"] == {
                "code": -32602, "message": "Resource not found: x://no", "data": {"uri": "x://no"}}
            wire.open()
            assert wire.ask("resources/read", {"uri": "x://no"})["error"]["code"] == -32002
            assert wire.ask("tools/call", {"name": "no"})["error"]["code"] == -32602
            assert wire.ask("prompts/get", {"name": "no"})["error"]["code"] == -32602

    def test_definitions_have_what_their_revision_knows(self):
        """No titles, icons or output schemas for those who do not know them."""
        for version, known in ((LEGACY[0], set()), ("2025-03-26", {"annotations"}),
                               ("2025-06-18", {"annotations", "title", "outputSchema", "_meta"}),
                               ("2025-11-25", {"annotations", "title", "outputSchema", "_meta", "icons"})):
            with Wire() as wire:
                wire.open(version)
                tool = wire.ask("tools/list")["result"]["tools"][1]
                assert set(tool) == {"name", "description", "inputSchema"} | known

    def test_content_is_fitted_to_old_revisions(self):
        """Audio as a blob, a link as text, no structured content."""
        with Wire() as wire:
            wire.open("2024-11-05")
            result = wire.ask("tools/call", {"name": "media"})["result"]
            assert [block["type"] for block in result["content"]] == [
                "text",
                "image",
                "resource",
                "resource",
                "text",
            ]
            assert (
                "structuredContent"
                not in wire.ask("tools/call", {"name": "person", "arguments": {"name": "B"}})["result"]
            )

    def test_listening_on_the_wire(self):
        """The acknowledgement first, each notification with the id, a graceful end."""
        with Wire() as wire:
            wire.send(request("subscriptions/listen", modern(notifications={
                "toolsListChanged": True, "resourceSubscriptions": ["x://note"], "unknown": True}), "s"))
            assert wire.read() == {
                "jsonrpc": "2.0",
                "method": "notifications/subscriptions/acknowledged",
                "params": {
                    "notifications": {"toolsListChanged": True, "resourceSubscriptions": ["x://note"]},
                    "_meta": {mcp_lite.META_SUBSCRIPTION: "s"},
                },
            }
            wire.send(request("tools/call", modern(name="change"), 2))
            found = [wire.read() for _ in range(4)]
            events = [m for m in found if "method" in m]
            assert [m["method"] for m in events] == ["notifications/tools/list_changed"] * 2 + [
                "notifications/resources/updated"
            ]
            assert all(m["params"]["_meta"] == {mcp_lite.META_SUBSCRIPTION: "s"} for m in events)
            rest, _ = wire.end()
            assert [m["id"] for m in rest] == ["s"] and rest[0]["result"]["_meta"][
                mcp_lite.META_SUBSCRIPTION
            ] == "s"

    def test_a_cancelled_subscription_is_silent(self):
        """No notification after the client's cancellation."""
        with Wire() as wire:
            wire.send(request("subscriptions/listen", modern(notifications={"toolsListChanged": True}), "s"))
            wire.read()
            wire.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "s"}})
            assert wire.ask("tools/call", modern(name="change"), 2)["id"] == 2
            assert wire.end()[0] == []

    def test_request_state_is_bound_and_signed(self):
        """Tampered, moved to other arguments, or forged answers do not pass; the right ones do."""
        caps = {"elicitation": {}}
        with Wire() as wire:
            first = wire.ask("tools/call", modern(caps, name="steps"))["result"]
            assert first["resultType"] == "input_required" and list(first["inputRequests"]) == ["elicit-1"]
            good = {"elicit-1": {"action": "accept", "content": {"name": "A"}}}
            state = first["requestState"]

            def again(name="steps", state=state, answers=good):
                return wire.ask(
                    "tools/call", modern(caps, name=name, requestState=state, inputResponses=answers)
                )

            for bad in (state + "x", "x" + state, state[:-1], "", "a.b", 5, "é", state.replace(".", "")):
                assert again(state=bad)["error"]["code"] == -32602, bad
            assert again(name="form")["error"]["code"] == -32602
            assert again(answers={"elicit-1": 5})["error"]["code"] == -32602
            assert again(answers={"elicit-1": {"action": "maybe"}})["error"]["code"] == -32602
            assert (
                again(answers={"elicit-1": {"action": "accept", "content": {"name": 1}}})["error"]["code"]
                == -32602
            )
            assert list(again(answers={"wrong": {}})["result"]["inputRequests"]) == ["elicit-1"]
            second = again()["result"]
            assert list(second["inputRequests"]) == ["elicit-2"] and second["requestState"] != state
            # The first answer travels in the state; only the second is fresh.
            last = again(
                state=second["requestState"],
                answers={"elicit-2": {"action": "accept", "content": {"name": "B"}}},
            )
            assert last["result"]["structuredContent"] == {"result": [1, "A", "B"]}

    def test_a_question_needs_its_capability(self):
        """-32021 with what is missing, in both eras."""
        with Wire() as wire:
            wire.open()
            for params, capabilities in (
                ({"name": "form"}, {"elicitation": {}}),
                ({"name": "think"}, {"sampling": {}}),
                ({"name": "where"}, {"roots": {}}),
                ({"name": "visit"}, {"elicitation": {"url": {}}}),
            ):
                for each in (
                    params,
                    modern({"elicitation": {}} if "url" in str(capabilities) else {}, **params),
                ):
                    found = wire.ask("tools/call", each)
                    assert found["error"]["code"] == -32021
                    assert found["error"]["data"] == {"requiredCapabilities": capabilities}

    def test_end_of_input_cancels_what_hangs(self, tmp_path):
        """A deaf handler does not keep the server alive; one that listens is cancelled."""
        script = tmp_path / "deaf.py"
        script.write_text(textwrap.dedent(f"""
            import sys, time; sys.path.insert(0, {HERE!r})
            import mcp_lite
            mcp_lite.DRAIN_SECONDS = 0.2
            server = mcp_lite.Server("deaf")
            @server.tool
            def deaf() -> str:
                time.sleep(600)
            server.run()
            """))
        with Wire([sys.executable, str(script)]) as wire:
            wire.send(request("tools/call", modern(name="deaf")))
            assert wire.end() == ([], 0)

    def test_a_closed_output_is_quiet(self):
        """The client closes its end: handlers are cancelled, and at the end of the input the code is 0."""
        with Wire() as wire:
            wire.send(request("ping"))
            wire.read()
            wire.out.close()
            wire.send(
                request("tools/call", modern(name="count", arguments={"to": 3}, _meta={"progressToken": 1}))
            )
            wire.process.stdin.close()
            assert wire.process.wait(SECONDS) == 0

    @pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
    def test_one_ctrl_c_is_enough(self):
        """SIGINT ends the input."""
        with Wire() as wire:
            wire.open()
            wire.process.send_signal(signal.SIGINT)
            assert wire.process.wait(SECONDS) == 0

    def test_the_descriptors_are_restored(self, tmp_path):
        """After run(), print() reaches stdout again."""
        script = tmp_path / "after.py"
        script.write_text(f"import sys; sys.path.insert(0, {HERE!r}); import mcp_lite\n"
                          "print('before')\nmcp_lite.Server('s').run()\nprint('after')\n")
        run = subprocess.run(
            [sys.executable, str(script)],
            input=b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n',
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=SECONDS,
            env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
        )
        assert run.stdout.replace(b"\r", b"") == b'{"jsonrpc":"2.0","id":1,"result":{}}\nafter\n'
        assert b"before" in run.stderr

    @pytest.mark.parametrize("family", ["tcp", "unix"])
    def test_any_pair_of_streams(self, family, tmp_path):
        """serve() over a TCP and a Unix socket; a Client at the other end."""
        if family == "unix" and not hasattr(socket, "AF_UNIX"):
            pytest.skip("no Unix sockets here")
        listening = socket.socket(socket.AF_UNIX if family == "unix" else socket.AF_INET)
        listening.bind(str(tmp_path / "s") if family == "unix" else ("127.0.0.1", 0))
        listening.listen(1)
        server = build_server()

        def accept():
            sock, _ = listening.accept()
            with sock, sock.makefile("rb") as reader, sock.makefile("wb") as writer:
                server.serve(reader, writer)
        thread = threading.Thread(target=accept)
        thread.start()
        with socket.socket(listening.family) as sock:
            sock.connect(listening.getsockname())
            with sock.makefile("rb") as reader, sock.makefile("wb") as writer, Client(
                (reader, writer)
            ) as client:
                assert client.call("add", a=2) == 3
                assert client.call("echo", value="x" * 300_000) == "x" * 300_000
        thread.join(SECONDS)
        listening.close()
        assert not thread.is_alive()

    def test_handle_answers_one_message(self):
        """A modern message in, an answer out; a notification has none; legacy and listening are refused."""
        server = build_server()
        assert server.handle(request("tools/call", modern(name="add", arguments={"a": 1})))["result"][
            "structuredContent"
        ] == {"result": 2}
        assert server.handle({"jsonrpc": "2.0", "method": "notifications/x"}) is None
        assert server.handle(request("tools/list"))["error"]["code"] == -32600
        assert (
            server.handle(request("subscriptions/listen", modern(notifications={})))["error"]["code"]
            == -32601
        )
        assert server.handle({"x": 1})["error"]["code"] == -32600


class TestEverywhere:
    """Rooms 10 to 13: the same promises over memory and stdio, in every revision."""

    def test_tools(self, target, version):
        """Values, texts, blocks, structured results, errors."""
        with Client(target, version=version) as client:
            assert client.protocol_version == version
            assert client.server_info["name"] == "everything" and client.instructions == "Call anything."
            assert {tool["name"] for tool in client.list_tools()} >= {"echo", "add", "bad"}
            assert client.call("add", a=2, b=3) in (5, "5")
            assert client.call("greet", name="Bo") == "hello Bo"
            blocks = client.call("media")
            assert blocks[0] == {"type": "text", "text": "text"} and blocks[1]["mimeType"] == "image/png"
            if supports(version, "2025-06-18"):
                assert client.call("person", name="Bo") == {"name": "Bo", "age": 7}
                assert client.call("echo", value={"result": 1}) == {"result": 1}
                assert [block["type"] for block in blocks] == [
                    "text",
                    "image",
                    "audio",
                    "resource",
                    "resource_link",
                ]
                for value in (None, [], [1, "a"], {"a": None}, 1.5, True):
                    assert client.call("echo", value=value) == value
            with pytest.raises(NotFound, match="did you mean greet"):
                client.call("gret")

    def test_failures(self, target, version):
        """ToolError, protocol errors, any exception, exits, recursion: each is told, none ends the server."""
        with Client(target, version=version) as client:
            with pytest.raises(ToolError, match="one") as caught:
                client.call("fail", how="tool")
            assert [block["type"] for block in caught.value.content] == ["text", "image"]
            with pytest.raises(McpError, match="no") as refused:
                client.call("fail", how="protocol")
            assert (refused.value.code, refused.value.data) == (-32050, {"why": 1})
            for how, said in (
                ("other", "KeyError: 'other'"),
                ("exit", "SystemExit: 3"),
                ("deep", "RecursionError"),
            ):
                with pytest.raises(ToolError, match=said):
                    client.call("fail", how=how)
            wrong = ToolError if supports(version, "2025-11-25") else InvalidParams
            with pytest.raises(wrong, match='a: expected integer, got true; c: unknown'):
                client.call("add", a=True, c=1)
            with pytest.raises(ToolError, match="timed out after 0.05 seconds"):
                client.call("slow")
            client.ping()

    def test_resources(self, target, version):
        """Fixed and templates, text and bytes, lists, not found."""
        with Client(target, version=version) as client:
            assert client.read("x://note") == "note" and client.read("x://bytes") == PNG
            assert client.read_resource("x://data") == {
                **client.read_resource("x://data"),
                "contents": [{"uri": "x://data", "mimeType": "application/json", "text": '{"a":1}'}]}
            assert json.loads(client.read("x://users/Bo%20B/7?color=red")) == {
                "name": "Bo B",
                "age": 7,
                "color": "red",
            }
            assert client.read("x://files/a/../b") == "a/../b"
            assert [each["name"] for each in client.list_resources()] == ["note", "raw", "data"]
            assert [each["uriTemplate"] for each in client.list_resource_templates()] == [
                "x://users/{name}/{age}{?color}", "x://files/{+path}"]
            for wrong in ("x://no", "x://users/Bo/seven", "x://users/../7"):
                with pytest.raises(NotFound) as caught:
                    client.read(wrong)
                assert caught.value.code == (-32602 if version == MODERN else -32002)

    def test_prompts_and_completion(self, target, version):
        """Arguments by hint, messages, completers, and completion of Literal and bool by itself."""
        with Client(target, version=version) as client:
            review = client.list_prompts()[0]
            assert review["arguments"] == [
                {"name": "code", "required": True},
                {"name": "style"},
                {"name": "deep"},
            ]
            found = client.get_prompt("review", {"code": "x", "deep": "true"})
            assert [(m["role"], m["content"]["type"]) for m in found["messages"]] == [
                ("user", "text"), ("assistant", "text"), ("user", "image")]
            assert (
                found["messages"][0]["content"]["text"] == "kind True"
                and found["description"] == "Review some code."
            )
            with pytest.raises(InvalidParams, match="style: expected one of"):
                client.get_prompt("review", {"code": "x", "style": "rude"})
            with pytest.raises(NotFound):
                client.get_prompt("no")
            assert client.complete("review", "style", "s") == ["strict"]
            assert client.complete("review", "deep", "") == ["true", "false"]
            assert client.complete("review", "code", "v", {"style": "kind"})[:2] == ["v0", "v1"]
            assert len(client.complete("review", "code", "v")) == 100
            assert client.complete("x://users/{name}/{age}{?color}", "name", "") == []
            with pytest.raises(InvalidParams):
                client.complete("no", "a", "")

    def test_questions(self, target, version):
        """One blocking call asks the user, the model and the roots, in both eras."""
        with Client(target, version=version, **CALLBACKS) as client:
            assert client.call("think") == "four"
            roots = client.call("where")
            assert "file:///tmp" in str(roots)
            if not supports(version, "2025-06-18"):
                with pytest.raises(MissingCapability):
                    client.call("form")
                return
            assert client.call("form") == {"action": "accept", "content": {"name": "who?", "age": 7}}
            assert client.call("form_person") == "Person(name='who?', age=7)"
            assert client.call("steps")[1:] == ["first", "second"]
            assert client.call("together") == ["a", "b", "c"]
            assert client.get_prompt("asks")["messages"][0]["content"]["text"] == "for who?"
            if supports(version, "2025-11-25"):
                assert client.call("visit") == {"action": "accept", "content": None}

    def test_refusals_of_questions(self, target):
        """None cancels, decline declines, and a callback that fails breaks nothing."""
        for version in ("2025-11-25", MODERN):
            for given, action in ((None, "cancel"), ({"action": "decline"}, "decline")):
                with Client(target, version=version, on_elicit=lambda params, given=given: given) as client:
                    assert client.call("form") == {"action": action, "content": None}
            with Client(
                target, version=version, on_elicit=lambda params: 1 / 0, on_sample=lambda params: 5
            ) as client:
                for tool in ("form", "think"):
                    with pytest.raises((McpError, ToolError)):
                        client.call(tool)
                client.ping()

    def test_progress_and_logs(self, target, version):
        """Progress in the calling thread, logs in order on one other thread."""
        here, seen, logs = threading.current_thread(), [], []

        def on_progress(progress, total, message):
            seen.append((progress, total, message, threading.current_thread() is here))

        with Client(
            target, version=version, on_log=lambda *a: logs.append((a, threading.current_thread()))
        ) as client:
            result = client.call_tool("count", {"to": 2}, on_progress=on_progress)
            assert result["content"] == [{"type": "text", "text": "counted"}]
            text = supports(version, "2025-03-26")
            assert seen == [(n, 2, f"step {n}" if text else None, True) for n in (1, 2)]
            client.set_log_level("error")
            client.call("logs")
            eventually(lambda: len(logs) >= 4)
        assert [a[0] for a, _ in logs] == ["error", "critical", "alert", "emergency"]
        assert logs[0][0] == ("error", {"level": "error"}, "test")
        assert len({thread for _, thread in logs}) == 1 and logs[0][1] is not here

    def test_cancellation_and_timeouts(self, target, version):
        """A call that is cancelled or late ends here and there."""
        with Client(target, version=version) as client:
            call = client.start_call("wait")
            assert "true" in str(client.call_tool("is_waiting")["content"])
            assert not call.done()
            call.cancel("enough")
            assert call.done()
            with pytest.raises(Cancelled):
                call.result()
            assert "cancelled" in str(client.call("waited"))
            with pytest.raises(Timeout, match="tools/call: no answer within 0.05 seconds"):
                client.call_tool("wait", timeout=0.05)
            client.ping()

    def test_what_is_cancelled_in_the_queue_never_runs(self):
        """A handler that did not start before its cancellation does not start after it."""
        server, ran, gate = Server("s", max_workers=1), [], threading.Event()

        @server.tool
        def work(n: int) -> int:
            ran.append(n)
            gate.wait(SECONDS)
            return n

        with Client(server) as client:
            first, second = client.start_call("work", {"n": 1}), client.start_call("work", {"n": 2})
            eventually(lambda: ran)
            second.cancel()
            eventually(lambda: len(server._connections[0].protocol.in_flight) == 1)
            gate.set()
            first.result()
            assert client.call("work", n=3) == 3
        assert ran == [1, 3]

    def test_busy_handlers_hold_up_nothing_else(self):
        """With every worker busy: ping, cancellation with its callbacks, and timeouts still work."""
        server, stopped = Server("s", max_workers=1), threading.Event()

        @server.tool
        def stuck(ctx: Context) -> str:
            ctx.on_cancel(stopped.set)
            ready.set()
            stopped.wait(SECONDS)
            return "never seen"

        for version in ("2025-11-25", MODERN):
            ready = threading.Event()
            with Client(server, version=version) as client:
                call = client.start_call("stuck")
                assert ready.wait(SECONDS)
                client.ping()
                call.cancel()
                assert stopped.wait(SECONDS)
            stopped.clear()

    def test_calls_at_once(self, target):
        """Many calls in flight, from one thread and from several."""
        with Client(target) as client:
            calls = [client.start_call("add", {"a": n}) for n in range(200)]
            assert [call.result()["structuredContent"]["result"] for call in calls] == list(range(1, 201))
            found = []

            def work(n):
                found.append(
                    [client.call("add", a=n * 100 + k) for k in range(20)]
                    == [n * 100 + k + 1 for k in range(20)]
                )

            threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(SECONDS)
            assert found == [True] * 8

    def test_listening(self, target, version):
        """One iterator for both eras: list changes and resource updates, filtered, until it is closed."""
        with Client(target, version=version) as client:
            with client.listen(prompts=False, resources=False, uris=["x://note"]) as events:
                client.call("change")
                found = [next(events)["method"] for _ in range(3)]
                assert found == ["notifications/tools/list_changed"] * 2 + ["notifications/resources/updated"]
                closer = threading.Timer(0.05, events.close)
                closer.start()
                assert list(events) == []
                closer.join()
            client.call("change")

    def test_subscribing(self, target, version):
        """on_notification hears of a resource until unsubscribe."""
        heard = []
        with Client(
            target, version=version, on_notification=lambda method, params: heard.append((method, params))
        ) as client:
            client.subscribe("x://note")
            client.call("change")
            wanted = ("notifications/resources/updated", {"uri": "x://note"})
            eventually(lambda: wanted in heard)
            client.unsubscribe("x://note")
            heard.clear()
            client.call("change")
            client.ping()
        assert wanted not in heard

    def test_a_callback_s_own_call_times_out(self):
        """The clock stands for who waits for the user, not for the calls that the callback makes."""
        for version in ("2025-11-25", MODERN):
            holder = []

            def on_elicit(params, holder=holder):
                try:
                    holder[0].call_tool("wait", timeout=0.05)
                except Timeout:
                    return {"action": "decline"}

            with Client(build_server(), version=version, on_elicit=on_elicit) as client:
                holder.append(client)
                assert client.call("form")["action"] == "decline"

    def test_closing_while_the_user_thinks(self):
        """close() and cancel() end a call at once whose question is still open."""
        for version in ("2025-11-25", MODERN):
            asked, done = threading.Event(), threading.Event()

            def on_elicit(params, asked=asked, done=done):
                asked.set()
                done.wait(SECONDS)

            client = Client(build_server(), version=version, on_elicit=on_elicit).connect()
            try:
                ends = ((mcp_lite.Call.cancel, Cancelled), (lambda call: call._client.close(), None))
                for end, raised in ends:
                    call = client.start_call("form")
                    assert asked.wait(SECONDS)
                    asked.clear()
                    closer = threading.Thread(target=end, args=(call,))
                    closer.start()
                    with pytest.raises(raised or ConnectionClosed):
                        call.result()
                    assert not done.is_set()
                    if raised is None:
                        done.set()
                    closer.join(SECONDS)
            finally:
                done.set()
                client.close()

    def test_listening_ends_with_the_server(self):
        """The iteration raises ConnectionClosed when the server dies, in both eras."""
        for version in ("2025-11-25", MODERN):
            with Client(SERVE, version=version) as client, client.listen() as events:
                client._child._process.kill()
                with pytest.raises(ConnectionClosed):
                    next(events)

    def test_closing(self, target, version):
        """close() is idempotent, ends waiting calls, and what comes after says so."""
        client = Client(target, version=version)
        client.connect()
        with pytest.raises(RuntimeError):
            client.connect()
        call = client.start_call("wait")
        closer = threading.Timer(0.05, client.close)
        closer.start()
        with pytest.raises(ConnectionClosed):
            call.result()
        closer.join()
        client.close()
        with pytest.raises(ConnectionClosed, match="not connected"):
            client.ping()

    def test_a_callback_may_call_the_client(self, target):
        """A question is answered on a worker, so it may use the client again."""
        for version in ("2025-11-25", MODERN):
            holder = []

            def on_sample(params, holder=holder):
                return str(holder[0].call("add", a=40, b=2))
            with Client(target, version=version, on_sample=on_sample) as client:
                holder.append(client)
                assert client.call("think") == "42"


class TestServerInProcess:
    """Room 12, what needs no wire."""

    def test_run_on_the_main_thread(self):
        """MainThread runs handlers where the host says; exceptions travel; close() fails the waiting."""
        main, seen = MainThread(), []
        server = Server("host", run_on=main)

        @server.tool
        def where(fail: bool = False) -> str:
            seen.append(threading.current_thread())
            assert main.run_pending() == 0      # no re-entry
            if fail:
                raise ValueError("told")
            return "here"
        with Client(server) as client:
            calls = [client.start_call("where", {"fail": fail}) for fail in (False, True)]
            until = time.monotonic() + SECONDS
            while not all(call.done() for call in calls) and time.monotonic() < until:
                main.run_pending(wait=0.01)
            assert calls[0].result()["content"][0]["text"] == "here"
            assert calls[1].result()["content"][0]["text"] == "ValueError: told"
            assert seen == [threading.current_thread()] * 2
            late = client.start_call("where")
            eventually(lambda: not main._jobs.empty())
            main.close()
            assert "closed" in late.result()["content"][0]["text"]

    def test_an_exception_that_cannot_be_told(self):
        """One whose repr raises is answered like any other."""

        class Mute(Exception):
            def __repr__(self):
                raise ValueError("no words")

            __str__ = __repr__

        server = Server("s")

        @server.resource("x://y")
        def broken() -> str:
            raise Mute

        @server.tool
        def also() -> str:
            raise Mute

        with Client(server) as client:
            with pytest.raises(InternalError):
                client.read("x://y")
            with pytest.raises(ToolError, match="Mute"):
                client.call("also")

    def test_masked_errors(self):
        """The client gets a fixed text, the log the traceback."""
        server = Server("s", mask_errors=True)

        @server.tool
        def secret() -> str:
            raise ValueError("password")
        with Client(server) as client:
            assert client.call_tool("secret")["content"][0]["text"] == "the tool failed"

    def test_schemas_can_be_given(self):
        """input_schema and output_schema override; a result that does not match is the server's error."""
        server = Server("s")
        schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 3}}, "required": ["n"]}

        @server.tool(input_schema=schema, output_schema=schema)
        def same(n):
            return {"n": "secret"} if n == 2 else {"n": n}
        with Client(server) as client:
            assert client.list_tools()[0]["inputSchema"] == schema
            assert client.call("same", n=1) == {"n": 1}
            with pytest.raises(ToolError, match="n: expected at most 3"):
                client.call("same", n=4)
            with pytest.raises(InternalError) as caught:
                client.call("same", n=2)
            assert "secret" not in str(caught.value)

    def test_bad_registrations_are_told(self):
        """Each names what is wrong."""
        server = Server("s")
        for wrong, said in (
            (lambda: server.add_tool(len), "Python function"),
            (lambda: server.add_tool(lambda: 0), "tool name"),
            (lambda: server.resource("no scheme")(lambda: 0), "scheme"),
            (lambda: server.resource("x://{a}")(lambda: 0), "no parameter"),
            (lambda: server.resource("x://a")(lambda b: 0), "not in the URI"),
            (lambda: server.resource("x://a{?b}")(lambda b: 0), "default"),
            (lambda: server.resource(lambda: 0), "URI"),
            (lambda: Server(""), "name"),
            (lambda: Server("s", page_size=0), "page_size"),
            (lambda: Server("s", state_key="short"), "16 bytes"),
            (lambda: server.run("fax"), "fax"),
            (lambda: server.remove_tool("no"), "no"),
        ):
            with pytest.raises((TypeError, ValueError, KeyError), match=said):
                wrong()

    def test_state_keys_are_shared_and_rotated(self):
        """Another process takes the state if it has the key, also the old one of a list; else not."""
        def state_of(server, state=None):
            params = modern({"elicitation": {}}, name="form")
            if state:
                params.update(requestState=state, inputResponses={"elicit-1": {"action": "cancel"}})
            return server.handle(request("tools/call", params))

        def make(key):
            server = Server("s", state_key=key)

            @server.tool
            def form(ctx: Context) -> dict:
                return ctx.elicit("?", FORM)
            return server
        state = state_of(make("k" * 16))["result"]["requestState"]
        assert "result" in state_of(make(["n" * 16, b"k" * 16]), state)
        assert state_of(make("n" * 16), state)["error"]["code"] == -32602
        assert state_of(make(None), state)["error"]["code"] == -32602

    def test_state_expires(self, monkeypatch):
        """After ten minutes the state is refused."""
        server = build_server()
        first = server.handle(request("tools/call", modern({"elicitation": {}}, name="form")))["result"]
        later = time.time() + mcp_lite.STATE_SECONDS + 1
        monkeypatch.setattr(mcp_lite.time, "time", lambda: later)
        found = server.handle(request("tools/call", modern({"elicitation": {}}, name="form",
                                                           requestState=first["requestState"])))
        assert found["error"]["code"] == -32602 and "expired" in found["error"]["message"]

    def test_python_logging_reaches_the_client(self):
        """What a handler logs with `logging` goes to the request's client."""
        server, logs = Server("s"), []
        logger = logging.getLogger("test_bridge")
        handler = server.logging_handler()
        logger.addHandler(handler)

        @server.tool
        def work() -> str:
            logger.warning("careful %d", 1)
            return "done"
        try:
            with Client(server, on_log=lambda *a: logs.append(a)) as client:
                client.set_log_level("info")
                client.call("work")
                eventually(lambda: logs)
        finally:
            logger.removeHandler(handler)
        assert logs == [("warning", "careful 1", "test_bridge")]
        logger.warning("outside of a request")

    def test_the_elicitation_schema_is_a_form(self):
        """Nested objects and lists of objects are refused where they are asked for."""
        for wrong in ({"type": "string"}, {"type": "object", "properties": {"a": {"type": "object"}}},
                      {"type": "object", "properties": {}, "required": ["x"]}, int):
            with pytest.raises((ValueError, TypeError)):
                mcp_lite.elicitation_schema(wrong)
        schema, convert = mcp_lite.elicitation_schema(Person)
        assert convert({"name": "x", "age": 1}) == Person("x", 1)

    def test_import_is_lean(self):
        """Nothing slow is imported until it is used."""
        code = "import sys, json, threading; old = set(sys.modules); import mcp_lite"
        code += "; print(*set(sys.modules) - old)"
        found = subprocess.run(
            [sys.executable, "-S", "-c", code], stdout=subprocess.PIPE, cwd=HERE, timeout=SECONDS
        )
        assert set(found.stdout.decode().split()) <= {
            "mcp_lite",
            "__future__",
            "contextlib",
            "queue",
            "_queue",
            "collections",
            "heapq",
            "_heapq",
            "itertools",
            "types",
            "time",
        }


class TestClient:
    """Room 13, against peers that misbehave."""

    def test_a_dead_child_says_why(self):
        """Exit code, command and the end of its stderr, in the exception and its text."""
        command = [sys.executable, "-c", "import sys; sys.stderr.write('no license\\n'); sys.exit(7)"]
        with pytest.raises(ConnectionClosed, match="no license") as caught:
            Client(command).connect()
        assert (
            caught.value.exit_code == 7
            and caught.value.command == command
            and caught.value.stderr == "no license"
        )
        assert "exit code 7" in str(caught.value)
        with pytest.raises(ConnectionClosed, match="cannot start"):
            Client(["/no/such/program"]).connect()

    def test_a_child_that_dies_during_a_call(self):
        """The waiting call ends with the reason."""
        with Client(SERVE) as client:
            call = client.start_call("wait")
            client._child._process.kill()
            with pytest.raises(ConnectionClosed) as caught:
                call.result()
            assert caught.value.exit_code == -9 or os.name == "nt"

    @pytest.mark.skipif(os.name == "nt", reason="POSIX process groups")
    def test_grandchildren_end_with_the_child(self, tmp_path):
        """close() ends a server that ignores everything, and its own children."""
        script = tmp_path / "deaf.py"
        script.write_text(textwrap.dedent(f"""
            import os, signal, subprocess, sys, time; sys.path.insert(0, {HERE!r})
            import mcp_lite
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            server = mcp_lite.Server("deaf", instructions=str(child.pid))
            server.run()
            time.sleep(600)
            """))
        old, mcp_lite.EXIT_SECONDS = mcp_lite.EXIT_SECONDS, 0.2
        try:
            with Client(str(script)) as client:
                grandchild = int(client.instructions)
        finally:
            mcp_lite.EXIT_SECONDS = old

        def gone():
            try:
                with open(f"/proc/{grandchild}/stat") as file:
                    return file.read().rpartition(")")[2].split()[0] == "Z"
            except OSError:
                return True
        eventually(gone, "the end of the grandchild")

    def test_stray_lines_are_skipped(self):
        """Noise on the server's stdout is reported, not fatal; foreign and late answers are ignored."""
        def listing(message, read, write):
            write(b"Listening on port 80\n\n{\n[1]\n")
            write({"jsonrpc": "2.0", "id": 999, "result": {}})
            write({"jsonrpc": "2.0", "id": "x", "error": {"code": 1, "message": "m"}})
            return {"tools": [{"name": "a"}]}
        with fake_server(legacy_server(tools_list=listing)) as target, Client(target) as client:
            assert client.list_tools() == [{"name": "a"}]

    def test_it_falls_back_and_remembers(self):
        """A legacy server is probed once, whatever its error, and spoken to as it wants."""
        with fake_server(legacy_server("2025-03-26", ping={})) as target, Client(target) as client:
            assert client.protocol_version == "2025-03-26"
            client.ping()

    def test_a_silent_legacy_server(self, monkeypatch):
        """One that ignores what it does not know gets `initialize` after a while."""
        monkeypatch.setattr(mcp_lite, "PROBE_SECONDS", 0.05)
        script = legacy_server(server_discover=lambda *a: None)
        with fake_server(script) as target, Client(target) as client:
            assert client.protocol_version == "2025-11-25"

    def test_a_server_that_ends_when_probed(self, tmp_path):
        """It is started again, and not asked."""
        script = tmp_path / "touchy.py"
        script.write_text(
            textwrap.dedent("""
            import json, sys
            for line in sys.stdin:
                m = json.loads(line)
                if m["method"] == "server/discover":
                    sys.exit(1)
                if m["method"] == "initialize":
                    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": {
                          "protocolVersion": "2024-11-05", "capabilities": {},
                          "serverInfo": {"name": "touchy", "version": "0"}}}), flush=True)
            """)
        )
        with Client(str(script)) as client:
            assert client.server_info["name"] == "touchy"

    def test_versions_in_common(self):
        """None in common is an error that says what the server speaks; a pinned one is not renegotiated."""
        peer = fake_server(legacy_server("2030-01-01"))
        with peer as target, pytest.raises(UnsupportedVersion, match="2030-01-01"):
            Client(target).connect()

        def refuse(message, read, write):
            return {
                "error": {
                    "code": -32022,
                    "message": "no",
                    "data": {"supported": ["2031-01-01"], "requested": MODERN},
                }
            }

        peer = fake_server(legacy_server(server_discover=refuse))
        with peer as target, pytest.raises(UnsupportedVersion, match="2031-01-01"):
            Client(target).connect()
        with fake_server(legacy_server("2025-03-26")) as target, pytest.raises(UnsupportedVersion):
            Client(target, version="2025-06-18").connect()
        with fake_server(legacy_server()) as target, pytest.raises(UnsupportedVersion, match=MODERN):
            Client(target, version=MODERN).connect()

    def test_capabilities_are_enforced(self):
        """What the server did not declare, or this revision does not have, is not sent."""
        with fake_server(legacy_server()) as target, Client(target) as client:
            with pytest.raises(MethodNotFound, match="did not declare prompts"):
                client.list_prompts()
            with pytest.raises(MethodNotFound, match="is not in 2025-11-25"):
                client.request("server/discover")
            with pytest.raises(MethodNotFound, match="what"):
                client.request("vendor/thing")

    def test_a_server_may_grow(self):
        """One that starts without tools gets its first while a client is there, in both eras."""
        for version in ("2025-11-25", MODERN):
            server, heard = Server("grows"), threading.Event()
            with Client(
                server, version=version, on_notification=lambda *a, heard=heard: heard.set()
            ) as client:
                with pytest.raises(MethodNotFound, match="did not declare tools"):
                    client.list_tools()
                server.add_tool(lambda: "x", name="first")
                assert version == MODERN or heard.wait(SECONDS)
                assert client.call("first") == "x"

    def test_a_server_may_ask_for_patience(self):
        """A result with only requestState is asked again, after a pause, and is no question."""
        def script(read, write):
            for n in itertools.count():
                message = read()
                if message is None:
                    return
                result = {"supportedVersions": [MODERN], "capabilities": {"tools": {}}, "content": []}
                if n and "requestState" not in message["params"]:
                    result = {"resultType": "input_required", "requestState": "later"}
                write({"jsonrpc": "2.0", "id": message["id"], "result": result})
        with fake_server(script) as target, Client(target) as client:
            assert client.call("x") is None

    def test_a_cursor_may_be_in_any_language(self):
        """Whatever the server's text is, it comes back as it was."""
        pages = {None: {"tools": [], "nextCursor": "\ud55c"}, "\ud55c": {"tools": [{"name": "b"}]}}
        peer = fake_server(legacy_server(tools_list=lambda m, *a: pages[m["params"].get("cursor")]))
        with peer as target, Client(target) as client:
            assert client.list_tools() == [{"name": "b"}]

    def test_nothing_queued_is_lost_at_the_end(self):
        """close() runs the callbacks for what came before it, and a cancelled handler's own functions."""
        logs, started, cancelled = [], threading.Event(), threading.Event()
        server = build_server()

        @server.tool
        def held(ctx: Context) -> str:
            ctx.on_cancel(cancelled.set)
            started.set()
            ctx.sleep(60)

        with Client(server, version="2025-11-25", on_log=lambda *a: logs.append(a)) as client:
            for _ in range(20):
                client.call("logs")
            client.start_call("held")
            assert started.wait(SECONDS)
        assert len(logs) >= 20 * 7 and cancelled.wait(SECONDS)

    def test_endless_pages_are_left(self):
        """A cursor that comes twice, and pages without end, are errors."""
        same = legacy_server(tools_list={"tools": [], "nextCursor": "x"})
        peer = fake_server(same)
        with peer as target, Client(target) as client, pytest.raises(InternalError, match="twice"):
            client.list_tools()
        count = iter(range(10_000))

        def fresh(message, read, write):
            return {"tools": [], "nextCursor": str(next(count))}
        peer = fake_server(legacy_server(tools_list=fresh))
        with peer as target, Client(target) as client, pytest.raises(InternalError, match="1000 pages"):
            client.list_tools()

    def test_an_empty_cursor_is_a_cursor(self):
        """ "MUST NOT be treated as the end of results"."""
        pages = {None: {"tools": [{"name": "a"}], "nextCursor": ""}, "": {"tools": [{"name": "b"}]}}

        def listing(message, read, write):
            return pages[message["params"].get("cursor")]
        with fake_server(legacy_server(tools_list=listing)) as target, Client(target) as client:
            assert [tool["name"] for tool in client.list_tools()] == ["a", "b"]

    def test_endless_questions_are_left(self):
        """Ten rounds, then an error."""
        def script(read, write):
            while True:
                message = read()
                if message is None:
                    return
                if message.get("method") == "server/discover":
                    result = {
                        "supportedVersions": [MODERN],
                        "capabilities": {"tools": {}},
                        "resultType": "complete",
                    }
                else:
                    result = {"resultType": "input_required", "requestState": "s", "inputRequests": {}}
                write({"jsonrpc": "2.0", "id": message["id"], "result": result})
        peer = fake_server(script)
        with peer as target, Client(target) as client, pytest.raises(InternalError, match="10 times"):
            client.call("x")

    def test_a_result_of_unknown_type_is_invalid(self):
        """ "MUST be considered invalid"; a missing type is complete."""
        kinds = iter(["later", None])

        def script(read, write):
            while True:
                message = read()
                if message is None:
                    return
                result = {"supportedVersions": [MODERN], "capabilities": {"tools": {}}, "content": []}
                kind = next(kinds, None) if message["method"] == "tools/call" else "complete"
                write(
                    {
                        "jsonrpc": "2.0",
                        "id": message["id"],
                        "result": {**result, **({"resultType": kind} if kind else {})},
                    }
                )

        with fake_server(script) as target, Client(target) as client:
            with pytest.raises(InternalError, match="later"):
                client.call("x")
            assert client.call("x") is None

    @pytest.mark.parametrize(
        "call, answers",
        [
            (lambda c: c.call("x"), {"tools_call": {"isError": True, "content": [1]}}),
            (lambda c: c.call("x"), {"tools_call": {"content": 5}}),
            (lambda c: c.call("x"), {"tools_call": {}}),
            (lambda c: c.read("x://y"), {"resources_read": {"contents": ["x"]}}),
            (lambda c: c.read("x://y"), {"resources_read": {"contents": [{"blob": "!"}]}}),
            (lambda c: c.complete("p", "a", ""), {"completion_complete": {"completion": None}}),
            (lambda c: c.list_tools(), {"tools_list": {"tools": [1]}}),
            (lambda c: c.list_tools(), {"tools_list": {"tools": [], "nextCursor": "\ud800"}}),
            (lambda c: c.list_tools(), {"tools_list": {"tools": [], "nextCursor": 7}}),
            (lambda c: c.list_prompts(), {"prompts_list": {}}),
        ],
    )
    def test_lies_in_results_are_told(self, call, answers):
        """A result of the wrong shape is an InternalError that names the member, and nothing else."""
        declared = {"resources": {}, "prompts": {}, "completions": {}}
        peer = fake_server(legacy_server(capabilities=declared, **answers))
        with peer as target, Client(target) as client, pytest.raises(InternalError):
            call(client)

    def test_structured_results_are_checked(self):
        """Against the outputSchema, unless validate=False."""
        answers = {
            "tools_list": {"tools": [{"name": "x", "outputSchema": {"type": "object", "required": ["n"]}}]},
            "tools_call": {"content": [], "structuredContent": {}},
        }
        for check in (True, False):
            with fake_server(legacy_server(**answers)) as target, Client(target, validate=check) as client:
                if check:
                    with pytest.raises(InternalError, match="n: required, but missing"):
                        client.call("x")
                else:
                    assert client.call("x") == {}

    def test_questions_outside_the_schema_are_rejected(self):
        """A legacy server that asks for nested data, or for what was not declared, gets an error."""
        replies = []

        def call(message, read, write):
            write(request("elicitation/create", {"message": "m", "requestedSchema": {
                "type": "object", "properties": {"a": {"type": "object"}}}}, "q1"))
            write(request("sampling/createMessage", {"messages": [], "maxTokens": 1}, "q2"))
            replies.extend(sorted((read(), read()), key=lambda m: m["id"]))
            return {"content": []}

        with fake_server(legacy_server(tools_call=call)) as target, Client(
            target, on_elicit=answer
        ) as client:
            client.call("x")
        assert [reply["error"]["code"] for reply in replies] == [-32602, -32601]

    def test_ctrl_c_cancels_on_the_server(self):
        """What interrupts a waiting call is told to the server."""
        def interrupt(progress, total, message):
            raise KeyboardInterrupt
        told = []

        def call(message, read, write):
            write({"jsonrpc": "2.0", "method": "notifications/progress",
                   "params": {"progressToken": message["params"]["_meta"]["progressToken"], "progress": 1}})
            told.append(read())

        with fake_server(legacy_server(tools_call=call)) as target, Client(
            target, on_progress=interrupt
        ) as client:
            with pytest.raises(KeyboardInterrupt):
                client.call("x")
            eventually(lambda: told)
        assert told[0]["method"] == "notifications/cancelled"

    @pytest.mark.parametrize(
        "target, command",
        [
            ("server.py", [sys.executable, "server.py"]),
            (["a", "b c"], ["a", "b c"]),
            ({"command": "x", "args": ["y"], "env": {"A": "1"}}, ["x", "y"]),
            ("npx -y 'a b'", ["npx", "-y", "a b"]),
        ],
    )
    def test_targets(self, target, command):
        """A script, a command line, a list, a host's configuration."""
        assert mcp_lite.command_of(target)[0] == command

    def test_wrong_arguments_of_the_client(self):
        """Wrong targets and versions are told at once."""
        for wrong in (
            lambda: Client(5).connect(),
            lambda: Client({}).connect(), lambda: Client("http://localhost:1/mcp").connect(),
            lambda: Client("x", version="1"),
            lambda: Client([]).connect(),
        ):
            with pytest.raises((TypeError, ValueError)):
                wrong()

    def test_the_wire_can_be_watched(self):
        """trace= sees every message in both directions."""
        seen = []
        with Client(
            build_server(), trace=lambda direction, line: seen.append((direction, json.loads(line)))
        ) as client:
            client.call("add", a=1)
        assert [direction for direction, _ in seen][:4] == ["-->", "<--", "-->", "<--"]

    def test_many_notifications_lose_no_answer(self):
        """A flood of progress and logs before the answer: the oldest go, the answer comes."""
        def call(message, read, write):
            token = message["params"]["_meta"]["progressToken"]
            for n in range(0, 30_000, 1000):
                write(b"".join(json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": {
                    "progressToken": token, "progress": n + k}}).encode() + b"\n" for k in range(1000)))
            return {"content": [{"type": "text", "text": "done"}]}
        seen = []
        with fake_server(legacy_server(tools_call=call)) as target, Client(target) as client:
            waiting = client.start_call("x", on_progress=lambda *a: seen.append(a))
            eventually(waiting.done)
            assert waiting.result()["content"][0]["text"] == "done"
        assert len(seen) == mcp_lite.MAX_QUEUED and seen[-1][0] == 29_999


class TestReadme:
    """What README.md and the examples say works."""

    @staticmethod
    def blocks(kind):
        with open(os.path.join(HERE, "README.md"), encoding="utf-8") as file:
            return re.findall(rf"```{kind}\n(.*?)```", file.read(), re.S)

    def test_the_first_commands(self):
        """The first sh block is the two commands; the first of them runs."""
        commands = self.blocks("sh")[0].strip().splitlines()
        assert len(commands) == 2
        run = subprocess.run(
            [sys.executable, *shlex.split(commands[0])[1:]], cwd=HERE, stdout=subprocess.PIPE, timeout=60
        )
        assert run.returncode == 0 and b"lines  mcp_lite.py" in run.stdout

    def test_every_python_block_runs(self, tmp_path):
        """Each as a program of its own, beside a copy of the file; servers get an empty stdin."""
        with open(os.path.join(HERE, "mcp_lite.py"), encoding="utf-8") as file:
            (tmp_path / "mcp_lite.py").write_text(file.read(), encoding="utf-8")
        blocks = self.blocks("python")
        assert len(blocks) >= 5
        for number, block in enumerate(blocks):
            name = re.match(r"# (\w+\.py)", block)
            path = tmp_path / (name.group(1) if name else f"block{number}.py")
            path.write_text(block, encoding="utf-8")
            run = subprocess.run([sys.executable, str(path)], cwd=str(tmp_path), stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
            assert run.returncode == 0, block + run.stderr.decode()

    def test_the_raw_server(self):
        """It answers the tutorial's echo and its whole transcript."""
        raw = os.path.join(HERE, "examples", "raw_server.py")
        first = request("initialize", {"protocolVersion": "2025-03-26", "capabilities": {},
                                       "clientInfo": {"name": "test", "version": "1.0.0"}})
        run = subprocess.run(
            [sys.executable, raw],
            input=json.dumps(first).encode() + b"\n",
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=SECONDS,
        )
        assert json.loads(run.stdout)["result"]["protocolVersion"] == "2025-03-26" and run.returncode == 0
        with Wire([sys.executable, raw]) as wire:
            assert wire.ask("tools/list", id=0)["error"]["code"] == -32600
            wire.open("2025-03-26")
            assert [tool["name"] for tool in wire.ask("tools/list", id=2)["result"]["tools"]] == [
                "calculate",
                "get_timestamp",
            ]
            found = wire.ask("tools/call", {"name": "calculate", "arguments": {"expression": "2 + 3 * 4"}}, 3)
            assert found["result"]["content"] == [{"type": "text", "text": "14"}]
            for wrong in ("__import__('os')", "1 / 0", "", "9 ** 9 ** 9", "(" * 5000):
                found = wire.ask("tools/call", {"name": "calculate", "arguments": {"expression": wrong}}, 4)
                assert found["result"]["isError"] is True, wrong
            info = wire.ask("resources/read", {"uri": "server://info"}, 5)["result"]["contents"][0]
            assert json.loads(info["text"])["server"]["name"] == "raw-mcp-server"
            assert (
                wire.ask("tools/call", {"name": "nonexistent_tool", "arguments": {}}, 6)["error"]["code"]
                == -32602
            )
            assert wire.ask("tools/call", {"name": "get_timestamp", "arguments": {}}, 7)["result"]["content"][
                0
            ]["text"]
            assert wire.end() == ([], 0)
