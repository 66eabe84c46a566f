"""Tests of mcp_lite.

Run `python3 test_mcp_lite.py`, which installs pytest where it is missing, or `pytest`.
The classes follow the sections of mcp_lite.py, each behind the helpers that it alone
uses:

    class                              shows
    TestMessages                        2 Errors, 3 Messages
    TestMethods, TestTheNextRevision    1 Words, 4 Methods
    TestProtocol                        5 Protocol
    TestThreads                         6 Threads
    TestSeams                           7 Connection: a transport of one's own
    TestLifetimes                       6 Threads: each thing has one owner, who ends it
    TestSchedules                       6 Threads: what holds whichever thread runs when
    TestSchema                          8 JSON Schema
    TestSignatures, TestEveryday        9 Content, 10 Functions
    TestServerInProcess, TestExtending 11 Questions, 12 Context, 14 Server
    TestFraming                        16 HTTP messages
    TestServerOnTheWire                 6 Threads to 13 stdio, from the end of a pipe
    TestInsideHosts                    guests of programs with threads and loops
    TestClient                         15 Client
    TestHttpServer, TestWsgi           17 HTTP streams to 19 HTTP server
    TestHttpClient                     20 HTTP client
    TestAuthorization                  21 Authorization
    TestCommandLine                    22 Command line
    TestEverywhere                     every feature, transport and revision
    TestFaults, TestFuzz               what must never happen
    TestPublicFace, TestReadme         what users are shown
    TestLessons to TestHosts           examples/, setup.cfg

What the tests share stands before the first class:

    build_server(), `server`        a server with one of everything, to be tested with
    `target`, `version`, `era`      fixtures: that server in memory, on stdio, over HTTP
                                    and HTTP+SSE; every revision; one of each era
    Wire, LocalWire                 a raw client on stdio, of a child or of a thread:
                                    open(), send(), read(), ask(), end()
    Web, `web`, raw_http()          a raw client over HTTP; bytes to a port
    fake_server(script)             a Client's target that does what a script says;
                                    legacy_server() makes such scripts
    talking_to(script)              a Client connected to that
    web_server(script)              the same over HTTP, with legacy_site() and
                                    modern_site(); LoginSite adds authorization
    request(), call_tool(), ...     messages as the wire has them
    eventually(condition)           wait for a condition, never for a time
    nothing_is_left_behind          after each test: no thread, descriptor or child

A test asks for public names only. A deadline is SECONDS; no test measures time.
"""

import dataclasses
import enum
import os
import subprocess
import sys
import threading
import time
import typing

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import mcp_lite  # noqa: E402
from mcp_lite import (  # noqa: E402
    Audio,
    AuthorizationError,
    Cancelled,
    Client,
    ConnectionClosed,
    Context,
    EmbeddedResource,
    HttpFailure,
    Image,
    InternalError,
    InvalidResponse,
    InvalidParams,
    InvalidRequest,
    MainThread,
    McpError,
    Message,
    MethodNotFound,
    MissingCapability,
    NotFound,
    OAuth,
    Param,
    ParseError,
    RequestCancelled,
    ResourceLink,
    Server,
    Timeout,
    ToolError,
    UnsupportedVersion,
    validate,
)

LEGACY = list(mcp_lite.LEGACY_VERSIONS)
MODERN = mcp_lite.NEWEST
EVERY = LEGACY + list(mcp_lite.MODERN_VERSIONS)
META_VERSION = "io.modelcontextprotocol/protocolVersion"
META_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
META_SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
META_SERVER_INFO = "io.modelcontextprotocol/serverInfo"
META_CLIENT_INFO = "io.modelcontextprotocol/clientInfo"
META_LOG_LEVEL = "io.modelcontextprotocol/logLevel"
LEVELS = "debug info notice warning error critical alert emergency".split()
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 8
WAV = b"RIFF\0\0\0\0WAVEfmt "
DRAFT_7 = "http://json-schema.org/draft-07/schema#"
FORM = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "default": 7},
    },
    "required": ["name"],
}
Color = enum.Enum("Color", {"RED": "red", "GREEN": "green"})


@dataclasses.dataclass
class Person:
    name: str
    age: int = 7


@dataclasses.dataclass
class Strict:
    many: int

    def __post_init__(self):
        if self.many < 0:
            raise ValueError("many must not be negative")


def unwrap(result):
    """The value in a tool's structured result."""
    structured = result["structuredContent"]
    return structured["result"] if structured.keys() == {"result"} else structured


def add_plain_tools(server):
    """Add tools that return values and content, or fail."""

    @server.tool
    def echo(value: typing.Any) -> typing.Any:
        """Return the value."""
        return value

    @server.tool(
        title="Adder",
        annotations={"readOnlyHint": True},
        meta={"x": 1},
        icons=[{"src": "data:,"}],
    )
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
            raise McpError(1050, "no", {"why": 1})
        if how == "exit":
            raise SystemExit(3)
        if how == "deep":
            return fail(how)
        raise KeyError(how)


def add_asking_tools(server):
    """Add tools that tell the client something, or ask it."""

    @server.tool
    def count(to: int, ctx: Context) -> str:
        for n in range(1, min(to, 1000) + 1):
            ctx.progress(n, to, f"step {n}")
        ctx.progress(1, to, "not increasing: left out")
        return "counted"

    @server.tool
    def logs(ctx: Context) -> str:
        for level in LEVELS:
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
        said = ctx.sample("2 + 2?", max_tokens=10, system_prompt="be brief")
        return said["content"]["text"]

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
        found = ctx.ask(
            {
                "a": ("elicitation/create", {"message": "a", "requestedSchema": FORM}),
                "b": ("sampling/createMessage", {"messages": [], "maxTokens": 1}),
                "c": ("roots/list", {}),
            }
        )
        return sorted(found)


def add_lasting_tools(server):
    """Add tools that take their time, make noise, or change the server."""
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

    @server.tool(timeout=0.01)
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


def add_resources_and_prompts(server):
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
    def review(
        code: str, style: typing.Literal["kind", "strict"] = "kind", deep: bool = False
    ) -> list:
        """Review some code."""
        return [f"{style} {deep}", Message("yes", role="assistant"), Image(PNG)]

    @server.prompt
    def asks(ctx: Context) -> str:
        return "for " + ctx.elicit("who?", FORM)["content"]["name"]

    @server.completion("review", "code")
    def complete_code(value: str, context: dict) -> list:
        return [value + str(n) for n in range(150)] + sorted(context)


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
    add_plain_tools(server)
    add_asking_tools(server)
    add_lasting_tools(server)
    add_resources_and_prompts(server)
    return server


def main():
    """`--serve` is a server on stdio; else run the tests, and first install pytest into
    .venv if need be."""
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
            pip = [python, "-m", "pip", "-q", "--disable-pip-version-check"]
            subprocess.check_call([*pip, "install", "pytest"])
    # A second -q would hide how many passed.
    options = sys.argv[1:] if "-q" in sys.argv else ["-q", *sys.argv[1:]]
    sys.exit(subprocess.call([python, "-m", "pytest", *options], cwd=HERE))


if __name__ == "__main__" or "--serve" in sys.argv:
    main()
    sys.exit()

# What the server above does without.
import __future__  # noqa: E402
import _thread  # noqa: E402
import ast  # noqa: E402
import asyncio  # noqa: E402
import base64  # noqa: E402
import builtins  # noqa: E402
import collections  # noqa: E402
import concurrent.futures  # noqa: E402
import contextlib  # noqa: E402
import copy  # noqa: E402
import datetime  # noqa: E402
import decimal  # noqa: E402
import errno  # noqa: E402
import functools  # noqa: E402
import gc  # noqa: E402
import hashlib  # noqa: E402
import http.client  # noqa: E402
import http.server  # noqa: E402
import importlib.util  # noqa: E402
import inspect  # noqa: E402
import io  # noqa: E402
import itertools  # noqa: E402
import json  # noqa: E402
import linecache  # noqa: E402
import logging  # noqa: E402
import math  # noqa: E402
import pathlib  # noqa: E402
import pickle  # noqa: E402
import queue  # noqa: E402
import random  # noqa: E402
import re  # noqa: E402
import select  # noqa: E402
import shlex  # noqa: E402
import shutil  # noqa: E402
import signal  # noqa: E402
import socket  # noqa: E402
import ssl  # noqa: E402
import struct  # noqa: E402
import textwrap  # noqa: E402
import traceback  # noqa: E402
import types  # noqa: E402
import urllib.parse  # noqa: E402
import urllib.request  # noqa: E402
import uuid  # noqa: E402
import weakref  # noqa: E402
import xml.etree.ElementTree  # noqa: E402
import zipfile  # noqa: E402

import pytest  # noqa: E402

# An import has a cache of what was compiled, a script has none.
IMPORT = f"import sys; sys.path.insert(0, {HERE!r}); import test_mcp_lite"
# Without `site`, which loads much where much is installed, a child starts in half the
# time.
PYTHON = [sys.executable, "-S"]
SERVE = [*PYTHON, "-c", IMPORT, "--serve"]
# A deadline for what takes milliseconds: these machines are shared.
SECONDS = 30
SPEC = pathlib.Path(HERE, "..", "shared", "spec")
wants_specification = pytest.mark.skipif(not os.path.isdir(SPEC), reason="no spec here")
PIPE = subprocess.PIPE


def eventually(condition, what="the condition"):
    """Wait for a condition, with a deadline."""
    until = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < until, f"{what} did not come true"
        time.sleep(0.005)


def at_once(fn, rows):
    """Return fn(*row) for each row; they run on threads, as they mostly wait."""
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda row: fn(*row), rows))


def run(*command, input="", code=0, **options):
    """Run a command, which ends with this exit code; its stdout and its stderr."""
    options = {"cwd": HERE, "stdout": PIPE, "stderr": PIPE, **options}
    options.update(input=input.encode(), timeout=SECONDS * 4)
    ended = subprocess.run(list(map(str, command)), **options)
    texts = [(text or b"").decode() for text in (ended.stdout, ended.stderr)]
    told = [text.replace(os.linesep, "\n") for text in texts]
    assert ended.returncode == code, (command, *told)
    return told


def traceback_of(error):
    """Return the texts that a traceback would show of an exception."""
    return traceback.format_exception(type(error), error, error.__traceback__)


def shut(sock):
    """Hang up, under a thread that reads from the socket."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    if sys.platform == "win32":
        # There, a thread in accept() is woken by this alone.
        sock.close()


def descriptors():
    """Return what is open here, as far as the system tells: {number: what it is}."""
    if not os.path.isdir("/proc/self/fd"):
        return {}
    opened = {}
    for number in os.listdir("/proc/self/fd"):
        # The one for the listing has gone.
        with contextlib.suppress(OSError):
            opened[number] = os.readlink("/proc/self/fd/" + number)
    return opened


def started(fn, *args):
    """A thread that runs fn(*args)."""
    thread = threading.Thread(target=fn, args=args, daemon=True)
    thread.start()
    return thread


def started_future(fn, *args):
    """A future for the value of fn(*args), which a thread of its own calls."""
    future = concurrent.futures.Future()

    def call():
        try:
            future.set_result(fn(*args))
        except BaseException as error:
            future.set_exception(error)

    started(call)
    return future


def has_children():
    """Return whether a child process lives, or has ended unseen."""
    if not hasattr(os, "waitid"):
        return False
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


@pytest.fixture(scope="session", autouse=True)
def equal_environments(tmp_path_factory):
    """The children share what they compile, outside this tree, and hear Ctrl-C,
    whatever we were given."""
    # It is ignored in the background of a shell, say.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        patch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path_factory.mktemp("compiled")))
        yield


@pytest.fixture(autouse=True)
def nothing_is_left_behind():
    """No thread, descriptor or child process outlives its test."""
    threads = set(threading.enumerate())
    opened = descriptors()
    yield

    def new_threads():
        new = set(threading.enumerate()) - threads
        return [thread for thread in new if thread.name.startswith("mcp-")]

    def new_descriptors():
        now = descriptors()
        return {number: now[number] for number in now.keys() - opened.keys()}

    eventually(lambda: not new_threads(), "the end of every thread")
    eventually(lambda: not has_children(), "the end of every child")
    # The assertion behind it says which ones.
    with contextlib.suppress(AssertionError):
        eventually(lambda: not new_descriptors(), "the end of every descriptor")
    assert new_descriptors() == {}


def serve_socket(server, sock):
    """Serve at the end of a socket pair, until the other one is closed."""
    # A file that was hung up may still have something to write when it is closed.
    with contextlib.suppress(OSError), sock, sock.makefile(
        "rb"
    ) as reader, sock.makefile("wb") as writer:
        server.serve(reader, writer)


@contextlib.contextmanager
def served(server):
    """A server's end of a socket pair, as a Client takes it."""
    ours, theirs = socket.socketpair()
    thread = started(serve_socket, server, theirs)
    with ours, ours.makefile("rb") as reader, ours.makefile("wb") as writer:
        yield reader, writer
        shut(ours)
        thread.join(SECONDS)


@pytest.fixture(params=["memory", "stdio", "http", "sse"])
def target(request):
    """The same server in this process, on stdio, and on a port: streamable HTTP, and
    the old HTTP+SSE. On stdio it is a child in one revision of each era; in the others
    a thread has the same wire."""
    version = None
    if "version" in request.fixturenames:
        version = request.getfixturevalue("version")
    if request.param == "stdio" and version in (None, LEGACY[-1], MODERN):
        yield SERVE
        return
    server = build_server()
    if request.param == "memory":
        yield server
    elif request.param == "stdio":
        with served(server) as streams:
            yield streams
    elif request.param == "sse" and version == MODERN:
        pytest.skip("older than the modern era")
    else:
        with server.start_http() as http:
            end = "/sse" if request.param == "sse" else "/mcp"
            yield http.url.replace("/mcp", end)


@pytest.fixture(params=EVERY)
def version(request):
    """Every revision."""
    return request.param


@pytest.fixture(params=["2025-11-25", MODERN])
def era(request):
    """A revision of each era."""
    return request.param


def answer(params):
    """on_elicit: fill in the form with the question's own message."""
    if params.get("mode") == "url":
        return {"action": "accept"}
    return {"action": "accept", "content": {"name": params["message"]}}


CALLBACKS = {
    "on_elicit": answer,
    "on_elicit_url": answer,
    "on_sample": lambda params: "four",
    "roots": ["/tmp"],
}


def opening(version, capabilities=None):
    """The parameters of initialize."""
    about = {"protocolVersion": version, "capabilities": capabilities or {}}
    return {**about, "clientInfo": {"name": "t", "version": "0"}}


def greeting(version, **capabilities):
    """The result of initialize, of a server with tools."""
    about = {"protocolVersion": version, "capabilities": {"tools": {}, **capabilities}}
    return {**about, "serverInfo": {"name": "fake", "version": "1"}}


class Wire:
    """A raw conversation with a server on stdio."""

    def __init__(self, command=SERVE, stderr=subprocess.DEVNULL, **options):
        options = {"stdin": PIPE, "stdout": PIPE, "stderr": stderr, **options}
        self.process = subprocess.Popen(command, bufsize=0, **options)
        self.out = self.process.stdout
        self.watchdog = threading.Timer(SECONDS * 2, self.process.kill)
        self.watchdog.start()

    def send(self, *messages):
        for message in messages:
            if not isinstance(message, bytes):
                message = json.dumps(message).encode() + b"\n"
            left = memoryview(message)
            while left:
                left = left[self.process.stdin.write(left) :]

    def read(self):
        line = b""
        while not line.endswith(b"\n"):
            piece = self.out.readline()
            assert piece, "the server closed its output"
            line += piece
        return json.loads(line)

    def ask(self, method, params=None, id=1):
        self.send(request(method, params, id))
        return self.read()

    def open(self, version="2025-11-25", capabilities=None):
        found = self.ask("initialize", opening(version, capabilities), 0)
        self.send(notice("initialized"))
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


class LocalWire(Wire):
    """The same with a server of this process, which a thread serves."""

    def __init__(self, server):
        ours, theirs = socket.socketpair()
        ours.settimeout(SECONDS * 2)
        # On Windows they are of TCP, and would take more and more.
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**16)
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**16)
        self.socks = (ours, theirs)
        self.out = ours.makefile("rb")
        self.process = types.SimpleNamespace(stdin=ours.makefile("wb", buffering=0))

        self.thread = started(serve_socket, server, theirs)

    def __exit__(self, *exc):
        for sock in self.socks:
            shut(sock)
        self.thread.join(SECONDS)
        for each in (self.process.stdin, self.out, *self.socks):
            each.close()


def modern(capabilities=None, **more):
    """The params of a modern request."""
    meta = {META_VERSION: MODERN, META_CAPABILITIES: capabilities or {}}
    return {**more, "_meta": {**meta, **more.get("_meta", {})}}


def request(method, params=None, id=1):
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params or {}}


def notice(method, params=None):
    method = f"notifications/{method}"
    return {"jsonrpc": "2.0", "method": method, "params": params or {}}


@contextlib.contextmanager
def fake_server(script):
    """A Client's target whose other end is script(read, write): read() a message,
    write(message or bytes)."""
    ours, theirs = socket.socketpair()
    incoming = theirs.makefile("rb")

    def read():
        line = incoming.readline()
        return json.loads(line) if line else None

    def write(message):
        if not isinstance(message, bytes):
            message = json.dumps(message).encode() + b"\n"
        theirs.sendall(message)

    def run():
        with contextlib.suppress(OSError, ValueError):
            script(read, write)

    thread = started(run)
    reader = ours.makefile("rb")
    writer = ours.makefile("wb")
    try:
        yield reader, writer
    finally:
        for sock in (ours, theirs):
            shut(sock)
        thread.join(SECONDS)
        for each in (reader, writer, incoming, ours, theirs):
            with contextlib.suppress(OSError, ValueError):
                each.close()


def legacy_server(version="2025-11-25", capabilities=None, **answers):
    """A script that does the handshake, and answers by answers[method]."""

    def script(read, write):
        while True:
            message = read()
            if message is None:
                return
            if "id" not in message or "method" not in message:
                continue
            found = {"jsonrpc": "2.0", "id": message["id"]}
            method = message["method"].replace("/", "_")
            if method == "initialize" and method not in answers:
                found["result"] = greeting(version, **(capabilities or {}))
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


@contextlib.contextmanager
def talking_to(script, **options):
    """A Client of such a script, connected."""
    with fake_server(script) as target, Client(target, **options) as client:
        yield client


@contextlib.contextmanager
def client_at(server, over_http, **options):
    """A Client of a server in this process, in memory or at a port."""
    with server.start_http() as http:
        client = Client(http.url if over_http else server, **options)
        with client:
            yield client


def example(name):
    """A module of examples/."""
    folder = os.path.join(HERE, "examples")
    if folder not in sys.path:
        sys.path.append(folder)
    return importlib.import_module(name)


def cancelled(id, **more):
    """The notification that cancels a request."""
    return notice("cancelled", {"requestId": id, **more})


def converse(client):
    """A bit of everything: progress, a question, a failure of each kind."""
    client.call_tool("count", {"to": 1}, on_progress=lambda *a: None)
    assert client.call("think") == "four"
    assert client.call_tool("fail", {"how": "tool"})["isError"]
    with pytest.raises(NotFound):
        client.call_tool("no such")


class Web:
    """A raw HTTP conversation with a server; `session` is a legacy session's id."""

    def __init__(self, http, session=None, version=None, **headers):
        self.port = http.port
        self.session = session
        self.version = version
        self.headers = headers

    def connect(self, method, message=None, path="/mcp", **headers):
        """Send a request; the connection, and the response, whose body was not read."""
        body = message
        if not isinstance(message, (bytes, type(None))):
            body = json.dumps(message).encode()
        sent = {} if body is None else {"Content-Type": "application/json"}
        sent["Accept"] = "application/json, text/event-stream"
        if method == "GET":
            sent["Accept"] = "text/event-stream"
        meta = {}
        if isinstance(message, dict):
            meta = message.get("params", {}).get("_meta", {})
        if META_VERSION in meta:
            params = message["params"]
            sent["MCP-Protocol-Version"] = meta[META_VERSION]
            sent["Mcp-Method"] = message["method"]
            if message["method"] in ("tools/call", "resources/read", "prompts/get"):
                sent["Mcp-Name"] = str(params.get("name", params.get("uri")))
        elif self.session:
            sent["Mcp-Session-Id"] = self.session
            sent["MCP-Protocol-Version"] = self.version
        for name, value in {**self.headers, **headers}.items():
            sent[name.replace("_", "-")] = value
        # None is how a test leaves one out.
        sent = {name: value for name, value in sent.items() if value is not None}
        conn = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        conn.request(method, path, body, sent)
        return conn, conn.getresponse()

    def send(self, method, message=None, path="/mcp", **headers):
        """One exchange: the status, the headers, and the body; JSON is decoded."""
        conn, response = self.connect(method, message, path, **headers)
        with contextlib.closing(conn):
            body = response.read()
            if response.getheader("Content-Type") == "application/json":
                body = json.loads(body)
            return response.status, response.headers, body

    def post(self, message, **headers):
        return self.send("POST", message, **headers)

    @contextlib.contextmanager
    def stream(self, method="GET", message=None, path="/mcp", **headers):
        """The response as next_event() reads it; to leave is to hang up."""
        conn, response = self.connect(method, message, path, **headers)
        try:
            assert response.status == 200
            assert response.getheader("Content-Type") == "text/event-stream"
            yield response
        finally:
            response.close()
            conn.close()

    def open(self, version="2025-11-25", capabilities=None):
        params = opening(version, capabilities)
        status, headers, body = self.post(request("initialize", params, 0))
        assert (status, body["result"]["protocolVersion"]) == (200, version)
        self.session = headers["Mcp-Session-Id"]
        self.version = version
        assert self.post(notice("initialized"))[0] == 202
        return self


def next_event(response):
    """The next event of a stream, {field: value}, and its message; None at the end.

    Comments are under ""."""
    fields = {}
    for line in iter(response.readline, b""):
        name, _, value = line.decode().rstrip("\r\n").partition(":")
        if line.strip():
            fields[name] = value.strip()
        elif fields:
            message = None
            if fields.get("data", "")[:1] == "{":
                message = json.loads(fields["data"])
            return {**fields, "message": message}
    return None


def raw_http(port, data, until=b""):
    """Send these bytes; what comes back until the server closes, or `until`."""
    with socket.create_connection(("127.0.0.1", port), SECONDS) as sock:
        found = b""
        # What was not read makes a reset of the server's close.
        with contextlib.suppress(ConnectionError):
            sock.sendall(data)
        with contextlib.suppress(ConnectionError):
            for piece in iter(lambda: sock.recv(65536), b""):
                found += piece
                if until and until in found:
                    break
        return found


def head_of(message, *lines, path="/mcp", length=True):
    """A whole modern POST, as bytes, with these lines in its head."""
    body = json.dumps(message).encode()
    head = [
        f"POST {path} HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/json",
        f"MCP-Protocol-Version: {MODERN}",
        f"Mcp-Method: {message['method']}",
        *lines,
    ]
    if length:
        head.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*head, "", ""]).encode() + body


def call_tool(tool, id=1, capabilities=None, meta=None, **arguments):
    """A modern tools/call."""
    params = modern(capabilities, name=tool, arguments=arguments, _meta=meta or {})
    return request("tools/call", params, id)


def call_legacy(tool, id=1, meta=None, **arguments):
    """A legacy tools/call."""
    params = {"name": tool, "arguments": arguments}
    return request("tools/call", {**params, "_meta": meta} if meta else params, id)


@pytest.fixture
def server():
    """One of everything."""
    return build_server()


@pytest.fixture
def web(server):
    """A server on a port, and a conversation with it."""
    with server.start_http() as http:
        yield Web(http)


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """A certificate for localhost: (the server's context, the client's context)."""
    folder = tmp_path_factory.mktemp("tls")
    key = str(folder / "key.pem")
    cert = str(folder / "cert.pem")
    try:
        subprocess.run(
            "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost "
            "-addext subjectAltName=DNS:localhost,IP:127.0.0.1 "
            "-keyout key.pem -out cert.pem".split(),
            cwd=folder,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no openssl command that makes certificates")
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(cert, key)
    return theirs, ssl.create_default_context(cafile=cert)


@contextlib.contextmanager
def web_server(script):
    """A scripted HTTP server. Yields its address and what was seen.

    script(seen, sock) gets {"method", "path", "headers", "message", "connection"} of
    each request. It returns (status, headers, body), or None when it has written what
    it wants: then the connection is closed."""
    listener = socket.create_server(("127.0.0.1", 0))
    seen = []
    socks = []
    threads = []

    def serve(sock, number):
        with contextlib.suppress(OSError, ValueError), sock.makefile("rb") as reader:
            while True:
                method, path, _ = reader.readline().decode().split(" ")
                headers = http.client.parse_headers(reader).items()
                headers = {name.lower(): value for name, value in headers}
                body = reader.read(int(headers.get("content-length", 0)))
                if len(body) < int(headers.get("content-length", 0)):
                    # The client has hung up.
                    break
                this = {
                    "method": method,
                    "path": path,
                    "headers": headers,
                    "connection": number,
                    "message": json.loads(body) if body[:1] == b"{" else body,
                }
                # Not its last: that may be another thread's by now.
                seen.append(this)
                answer = script(this, sock)
                if answer is None:
                    break
                status, more, body = answer
                body = json.dumps(body).encode() if isinstance(body, dict) else body
                kind = "application/json" if body[:1] == b"{" else "text/event-stream"
                head = {"Content-Type": kind, "Content-Length": len(body), **more}
                lines = [f"{name}: {value}" for name, value in head.items()]
                lines = [f"HTTP/1.1 {status} X", *lines, "", ""]
                sock.sendall("\r\n".join(lines).encode() + body)
        shut(sock)

    def accept():
        with contextlib.suppress(OSError):
            for number in itertools.count():
                socks.append(listener.accept()[0])
                threads.append(started(serve, socks[-1], number))

    acceptor = started(accept)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", seen
    finally:
        for sock in [listener, *socks]:
            shut(sock)
        acceptor.join(SECONDS)
        for thread in threads:
            thread.join(SECONDS)
        for sock in [listener, *socks]:
            sock.close()


def answer_to(seen, **result):
    """The answer to a message that was seen."""
    result = {"resultType": "complete", **result}
    return {"jsonrpc": "2.0", "id": seen["message"]["id"], "result": result}


def result_of(seen, **result):
    """A JSON answer to what was seen."""
    return 200, {}, answer_to(seen, **result)


def event_of(message, **fields):
    """A server-sent event."""
    told = {**fields, "data": json.dumps(message)}
    return "".join(f"{name}: {value}\n" for name, value in told.items()) + "\n"


def legacy_site(version="2025-11-25", **answers):
    """The same for a session; GET and DELETE get 405 if there is no answer."""

    def script(seen, sock):
        message = seen["message"]
        if not isinstance(message, dict):
            message = {"method": seen["method"]}
        method = message.get("method", "")
        answer = answers.get(method.replace("/", "_"))
        if answer is not None:
            return answer(seen, sock)
        if method == "initialize":
            result = greeting(version, resources={"subscribe": True})
            answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
            return 200, {"Mcp-Session-Id": "s1"}, answer
        if method in ("GET", "DELETE"):
            return 405, {}, b""
        if "id" not in message:
            return 202, {}, b""
        error = {"code": -32601, "message": "what?"}
        return 400, {}, {"jsonrpc": "2.0", "id": message["id"], "error": error}

    return script


def text_result(text):
    return {"content": [{"type": "text", "text": text}]}


def begin_stream(sock, *events):
    """The head of a stream that ends with the connection, and these events."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    sock.sendall(head + "".join(events).encode())


def http_failure_of(url, **options):
    """Return what connect() raises: an HttpFailure that shows no secret."""
    bare = url
    url += "?key=hush-hush"
    headers = {"X-Api-Key": "s3cret-key", **options.pop("headers", {})}
    with pytest.raises(HttpFailure) as caught:
        Client(url, headers=headers, **options).connect()
    failure = caught.value
    assert not re.search("hush-hush|s3cret|%", str(failure))
    assert isinstance(failure, ConnectionError)
    # A traceback has nothing of http.client's.
    assert failure.__cause__ is None and failure.__context__ is None
    assert failure.url == bare and str(failure).startswith(bare)
    return failure


def member(value, *path):
    """The member of a member; None where there is none."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


@pytest.fixture
def recorded(server):
    """A server on a port, and the (method, headers, message) of each request to it."""
    seen = []
    with server.start_http() as http:
        answer = http.endpoint.answer

        def record(exchange, *problem):
            request = [exchange.method, exchange.headers, None]
            seen.append(request)
            read = exchange.read_body

            def read_body():
                body = read()
                request[2] = json.loads(body) if body else None
                return body

            exchange.read_body = read_body
            answer(exchange, *problem)

        http.endpoint.answer = record
        yield http, seen


def called(text):
    """A script's answer to tools/call."""
    return lambda seen, sock: result_of(seen, **text_result(text))


def never(seen, sock):
    """No answer: until the client hangs up."""
    sock.recv(1)


class LoginSite:
    """A script for web_server: a server at /mcp that wants tokens, and the
    authorization server that gives them.

    `pages` has what is answered instead at a path, a (status, headers, body) or a
    function of what was seen; `lies` overrides members of both metadata. `seen` has
    each request; its "said" is what its body or its query says."""

    # What the challenge says beside the place of the metadata.
    scope = ""

    def __init__(self):
        self.pages = {}
        self.lies = {}
        self.seen = []
        # What is asked of the user, by code; what was said for each token.
        self.asked = {}
        self.tokens = {}
        self.numbers = itertools.count(1)

    def __call__(self, seen, sock):
        path, _, query = seen["path"].partition("?")
        said = seen["message"]
        if not isinstance(said, dict):
            said = dict(urllib.parse.parse_qsl(said.decode() or query))
        seen["said"] = said
        self.seen.append(seen)
        page = self.pages.get(path, getattr(self, "answer_" + path[1:], self.describe))
        return page(seen) if callable(page) else page

    def at(self, path):
        """The requests to a path, in order."""
        return [each for each in self.seen if each["path"].partition("?")[0] == path]

    def paths(self, path):
        """Return what the requests to a path said, in order."""
        return [each["said"] for each in self.at(path)]

    def describe(self, seen):
        documents = {
            "oauth-protected-resource": {
                "resource": self.mcp,
                "authorization_servers": [self.url],
            },
            "oauth-authorization-server": {
                "issuer": self.url,
                "authorization_endpoint": self.url + "/authorize",
                "token_endpoint": self.url + "/token",
                "registration_endpoint": self.url + "/register",
                "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported": ["none"],
            },
        }
        _, folder, kind, *rest = [*seen["path"].split("/"), ""]
        is_there = folder == ".well-known" and rest[:-1] in ([], ["mcp"])
        if not is_there or kind not in documents:
            return 404, {}, b"<html>no such page</html>"
        document = {**documents[kind], **self.lies.get(kind, {})}
        told = {name: value for name, value in document.items() if value is not None}
        return 200, {}, told

    def answer_mcp(self, seen):
        token = seen["headers"].get("authorization", "").partition(" ")[2]
        if token not in self.tokens:
            place = f"{self.url}/.well-known/oauth-protected-resource/mcp"
            challenge = f'Bearer resource_metadata="{place}"{self.scope}'
            told = {"error": f"what is {token}?"}
            return 401, {"WWW-Authenticate": challenge}, told
        return modern_site(tools_call=called("let in"))(seen, None)

    def answer_register(self, seen):
        return 201, {}, {"client_id": "client-1", **seen["said"]}

    def answer_authorize(self, seen):
        code = f"code-number-{next(self.numbers)}"
        said = self.asked[code] = seen["said"]
        answer = urllib.parse.urlencode({"code": code, "state": said["state"]})
        return 302, {"Location": f"{said['redirect_uri']}?{answer}"}, b""

    def answer_token(self, seen):
        form = seen["said"]
        if form["grant_type"] == "authorization_code":
            asked = self.asked.pop(form["code"], {})
            digest = hashlib.sha256(form["code_verifier"].encode()).digest()
            digest = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
            if asked.get("code_challenge") != digest:
                return 400, {}, {"error": "invalid_grant"}
        number = next(self.numbers)
        token = f"token-number-{number}"
        self.tokens[token] = form
        answer = {"access_token": token, "token_type": "Bearer"}
        return 200, {}, {**answer, "refresh_token": f"refresh-number-{number}"}


@contextlib.contextmanager
def login_site():
    """A LoginSite that runs."""
    site = LoginSite()
    with web_server(site) as (site.mcp, _):
        site.url = site.mcp.rpartition("/")[0]
        yield site


@pytest.fixture
def site():
    """A LoginSite that runs."""
    with login_site() as site:
        yield site


def visit(url):
    """Return where a browser arrives once the user agrees; it does not go there."""
    parts = urllib.parse.urlsplit(url)
    web = http.client.HTTPConnection(parts.netloc, timeout=SECONDS)
    with contextlib.closing(web):
        web.request("GET", f"{parts.path}?{parts.query}")
        with web.getresponse() as answer:
            return answer.headers["Location"]


def pump(main, condition):
    """The main loop of a host: run jobs until the condition holds."""
    until = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < until, "the host waited in vain"
        main.run_pending(wait=0.01)


def text_of(result):
    """The text of a tool's result."""
    return result["content"][0]["text"]


# What these programs begin with: a server, in the program and as a child.
PROGRAM = """
    import os, socket, threading, time
    import mcp_lite
    from mcp_lite import Client, Context, MainThread, Server

    here = threading.Event()
    def make(name="host"):
        server = Server(name)
        @server.tool
        def add(a: int, b: int = 1) -> int:
            return a + b
        @server.tool
        def deaf() -> str:
            here.set()
            time.sleep(600)
        @server.tool
        def is_here() -> bool:
            return here.wait(30)
        @server.tool
        def fail() -> str:
            raise ValueError("told")
        @server.tool
        def pid() -> int:
            return os.getpid()
        return server
    if "--serve" in sys.argv:
        # Its failures are wanted; the other streams of a program stay silent.
        import logging
        logging.getLogger("mcp_lite").setLevel(60)
        make().run()
        sys.exit()
    SERVE = [sys.executable, "-S", __file__, "--serve"]
"""


def program(folder, text):
    """The command of a script that has the library at hand."""
    path = folder / "program.py"
    path.write_text(
        f"import os, signal, subprocess, sys, threading, time\n"
        f"sys.path.insert(0, {HERE!r})\n"
        f"import mcp_lite\n"
        f"from mcp_lite import *\n"
        f"{textwrap.dedent(text)}"
    )
    return [*PYTHON, str(path)]


def is_gone(pid):
    """Return whether no process with this id runs any more."""
    if os.name == "nt":
        import ctypes

        kernel = ctypes.WinDLL("kernel32")
        handle = kernel.OpenProcess(0x1000, False, pid)
        code = ctypes.c_ulong()
        kernel.GetExitCodeProcess(handle, ctypes.byref(code))
        kernel.CloseHandle(handle)
        return not handle or code.value != 259
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def say(**members):
    """A ping with these members in place of its own."""
    return json.dumps({**request("ping"), **members}).encode()


class TestMessages:
    """The rooms Errors and Messages; messages that are wrong are in TestFaults."""

    @pytest.mark.parametrize("size", [1, 2, 7])
    def test_lines_may_come_in_any_pieces(self, size):
        """CRLF and blank lines do no harm; `params` and `_meta` may be null."""
        data = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":null}\r\n\n \n'
        data += b'{"jsonrpc":"2.0","id":2,"method":"ping","params":{"_meta":null}}\n'
        with LocalWire(Server("s")) as wire:
            for at in range(0, len(data), size):
                wire.send(data[at : at + size])
            assert [wire.read()["id"], wire.read()["id"]] == [1, 2]

    def test_errors_keep_code_and_class(self):
        """A code from the wire becomes its class, an unknown one McpError, a broken one
        InternalError. The words decide whether some codes mean "not found"."""
        for code, text, data, kind in (
            (-32601, "m", [1], MethodNotFound),
            (-32002, "m", [1], NotFound),
            (-32021, "m", [1], MissingCapability),
            (-32001, "Request timed out", None, McpError),
            (-32003, "m", [1], McpError),
            (2**60, "m", [1], McpError),
            (-32602, "m", [1], InvalidParams),
            (-32602, "Unknown tool: x", None, NotFound),
            (-32001, "Resource x://y not found", None, NotFound),
            (-32003, "no", {"uri": "x://y"}, NotFound),
        ):
            wire = {"code": code, "message": text}
            if data is not None:
                wire["data"] = data
            error = McpError.from_wire(wire)
            assert type(error) is kind and error.to_wire() == wire
            assert (error.code, error.message, error.data) == (code, text, data)
        assert type(McpError.from_wire({"code": "x"})) is InvalidResponse
        assert issubclass(Timeout, TimeoutError)
        assert issubclass(ConnectionClosed, ConnectionError)
        assert not issubclass(ToolError, McpError)

    def test_no_text_of_the_peer_commands_a_terminal(self):
        """Exceptions show control characters escaped, and a line of the peer's forges
        none of ours; data stays as it came."""
        evil = "\x1b[2J\x9b31m\u202e\ud800\nERROR forged: all is well\r"

        def is_harmless(text):
            return not set(text) & set("\x1b\x9b\u202e\ud800\n\r")

        error = McpError.from_wire({"code": 7, "message": evil, "data": evil})
        assert is_harmless(str(error)) and "\\x1b[2J" in str(error)
        assert (error.message, error.data) == (evil, evil)
        assert error.to_wire()["message"] == evil.replace("\ud800", "\\ud800")
        closed = ConnectionClosed(evil, 1, [evil], evil)
        assert closed.stderr == evil
        first, *words = str(closed).split("\n")
        assert is_harmless(first) and all(map(is_harmless, words)) and len(words) == 2

    @pytest.mark.parametrize(
        "command, shown",
        [
            (["python3", "server.py"], "python3 server.py"),
            (["prog", "-p", "hunter2"], "prog ..."),
            (["prog", "run", "--token", "x"], "prog run ..."),
            (["env", "KEY=x", "prog"], "env ..."),
        ],
    )
    def test_a_command_is_shown_up_to_its_first_option(self, command, shown):
        """Behind that, it may have secrets."""
        closed = ConnectionClosed("over", 1, command)
        assert str(closed) == f"over (command: {shown}; exit code 1)"
        assert closed.command == command


class TestMethods:
    """The room Methods."""

    @wants_specification
    def test_the_table_has_what_the_schema_has(self, version):
        """Each revision's methods are the ones of its JSON schema, tasks left out."""
        schema = json.loads((SPEC / version / "schema.json").read_text("utf-8"))
        found = {
            node["properties"]["method"]["const"]
            for node in (schema.get("$defs") or schema["definitions"]).values()
            if isinstance(node.get("properties", {}).get("method"), dict)
            and "const" in node["properties"]["method"]
        }
        found = {name for name in found if "tasks" not in name}
        rows = mcp_lite.METHODS.values()
        ours = {row.name for row in rows if row.since <= version <= row.until}
        ours -= {"initialized", "$/cancelRequest"}
        # In this revision they are inside results, and so no requests of the wire.
        if version == MODERN:
            found -= {"roots/list", "sampling/createMessage", "elicitation/create"}
        assert ours == found


class TestTheNextRevision:
    """A revision of which nobody has heard."""

    def test_it_is_a_word_in_a_table(self, tmp_path):
        """Added to the modern revisions, it is spoken; the older ones still are. A
        server that refuses it, and names another one, is asked again in that."""
        source = pathlib.Path(mcp_lite.__file__).read_text("utf-8")
        now = 'MODERN_VERSIONS = ("2026-07-28",)'
        assert source.count(now) == 1
        new = 'MODERN_VERSIONS = ("2026-07-28", "2027-03-15")'
        path = tmp_path / "next_lite.py"
        path.write_text(source.replace(now, new), "utf-8")
        spec = importlib.util.spec_from_file_location("next_lite", str(path))
        next_lite = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(next_lite)
        server = next_lite.Server("next")

        @server.tool
        def spoken(ctx: next_lite.Context) -> str:
            return ctx.protocol_version

        with server.start_http() as http:
            for target in (server, http.url):
                for version in ("auto", *EVERY):
                    with next_lite.Client(target, protocol_version=version) as client:
                        expected = "2027-03-15" if version == "auto" else version
                        assert client.protocol_version == expected
                        assert client.call("spoken") == expected
        with build_server().start_http() as http, next_lite.Client(http.url) as client:
            assert client.protocol_version == MODERN
            assert client.call("greet", name="Bo") == "hello Bo"


CALL = "tools/call"
DISCOVER = "server/discover"


def about(name, value):
    """Modern parameters with this member in their `_meta`."""
    return modern(_meta={name: value})


class TestProtocol:
    """The room Protocol: what may come now."""

    @staticmethod
    def server():
        server = Server("s")
        server.add_tool(lambda: "called", name="x")
        server.add_resource("x://x", lambda: "read")
        return server

    def test_nothing_but_ping_before_initialize(self):
        """A legacy request before the handshake is refused."""
        hello = {"capabilities": {}, "clientInfo": {}, "protocolVersion": LEGACY[0]}
        with LocalWire(self.server()) as wire:
            refused = wire.ask("tools/list")["error"]
            assert refused["code"] == -32600
            assert "not initialized" in refused["message"]
            assert wire.ask("ping")["result"] == {}
            assert wire.ask("initialize", hello)["result"]

    @pytest.mark.parametrize(
        "asked, got",
        [(v, v) for v in LEGACY] + [(MODERN, LEGACY[-1]), ("1999-01-01", LEGACY[-1])],
    )
    def test_version_negotiation(self, asked, got):
        """The same version if it is known, else the latest with a handshake."""
        with LocalWire(self.server()) as wire:
            assert wire.open(asked)["protocolVersion"] == got

    @pytest.mark.parametrize(
        "method, params, code, said",
        [
            (DISCOVER, {}, -32602, "protocolVersion"),
            (DISCOVER, {"_meta": {META_VERSION: MODERN}}, -32602, "clientCapabil"),
            (DISCOVER, about(META_VERSION, 3), -32602, "expected string, got 3"),
            (DISCOVER, about(META_VERSION, LEGACY[-1]), -32022, LEGACY[-1]),
            (DISCOVER, about(META_LOG_LEVEL, "loud"), -32602, "logLevel"),
            (DISCOVER, about(META_CLIENT_INFO, 1), -32602, "clientInfo"),
            # Another era's, another side's, or nobody's.
            ("ping", modern(), -32601, "ping"),
            ("initialize", modern(), -32601, "initialize"),
            ("roots/list", modern(), -32601, "roots/list"),
            ("no/such", modern(), -32601, "no/such"),
            # It is not declared.
            ("prompts/list", modern(), -32601, "prompts"),
            (CALL, modern(), -32602, "name: expected string, but it is mis"),
            (CALL, modern(name=1), -32602, "name: expected string, got 1"),
            (CALL, modern(name="x", arguments=[]), -32602, "expected object, got []"),
            (CALL, about("progressToken", 1.5), -32602, "progressTok"),
            # What is told of a megabyte is a part.
            ("x" * 10**6, modern(), -32601, "xxx..."),
            (CALL, modern(name=["x" * 10**6]), -32602, "xxx..."),
            (CALL, modern(name="x" * 10**6), -32602, "Unknown tool: xxx"),
            ("resources/read", modern(uri="x" * 10**6), -32602, "not found: xxx"),
        ],
        ids=range(19),
    )
    def test_a_modern_request_is_checked(self, method, params, code, said):
        """Era, revision, sender, capability and parameters: an error names what is
        missing or wrong, in a few words."""
        error = self.server().handle(request(method, params))["error"]
        assert error["code"] == code and said in error["message"]
        assert len(error["message"]) < 300
        if code == -32022:
            supported = list(mcp_lite.MODERN_VERSIONS)
            assert error["data"] == {"supported": supported, "requested": LEGACY[-1]}

    def test_an_id_in_flight_belongs_to_one_request(self):
        """Another message with that id is refused without an id; once the request is
        over, the id may come again."""
        server = self.server()
        go_on = threading.Event()
        server.add_tool(lambda: str(go_on.wait(SECONDS)), name="slow")
        wrong = {"jsonrpc": "2.0", "id": 1, "method": 5}
        with LocalWire(server) as wire:
            wire.send(request("tools/call", modern(name="slow")))
            for other in (request("tools/list", modern()), wrong, request("nope")):
                wire.send(other)
                refused = wire.read()
                assert refused["error"]["code"] in (-32600, -32601)
                assert refused.get("id") is None
            go_on.set()
            assert text_of(wire.read()["result"]) == "True"
            assert wire.ask("tools/list", modern())["id"] == 1


HALF = "\ud800"
RESULT = b'{"jsonrpc": "2.0", "id": 9, "result": '
# What is wrong with a message: its bytes, or a function that makes them; the code of the
# answer to it (None where there is none), and the status over HTTP; both in a session of
# 2025-11-25.
WRONG = {
    "not UTF-8": (b'{"jsonrpc": "\xff"}', -32700, 400),
    "half a character": (b'"\xed\xa0\x80"', -32700, 400),
    "cut off": (b'{"jsonrpc": "2.0", "id": 1', -32700, 400),
    "a comma": (b"[1,]", -32700, 400),
    "NaN": (b'{"jsonrpc": "2.0", "id": 1, "method": NaN}', -32700, 400),
    "deep": (b"[" * 100_000 + b"]" * 100_000, -32700, 400),
    "deep objects": (b'{"a":' * 100_000, -32700, 400),
    "brackets": (lambda: say(params={"a": [[]] * 500_000}), -32600, 400),
    "long": (lambda: b" " * ((64 << 20) + 1), -32600, 413),
    "a number": (b"7", -32600, 400),
    "an empty object": (b"{}", -32600, 400),
    "nothing said": (b'{"jsonrpc": "2.0"}', -32600, 400),
    "a batch": (b"[" + say() + b"]", -32600, 400),
    "another JSON-RPC": (say(jsonrpc="1.0"), -32600, 200),
    "an id: list": (say(id=[1]), -32600, 400),
    "an id: true": (say(id=True), -32600, 400),
    "an id: null": (say(id=None), -32600, 400),
    "an id: 1.5": (say(id=1.5), -32600, 400),
    "an id: half": (say(id=HALF), -32600, 400),
    "a method: 7": (say(method=7), -32600, 200),
    "a method: half": (say(method=HALF), -32601, 200),
    "a method: unknown": (say(method="no/such"), -32601, 200),
    "params: list": (say(params=[1]), -32602, 200),
    "_meta: list": (say(params={"_meta": ["x"]}), -32602, 200),
    "name: 7": (say(method="tools/call", params={"name": 7}), -32602, 200),
    "name: unknown": (say(method="tools/call", params={"name": "x"}), -32602, 200),
    "cursor": (say(method="tools/list", params={"cursor": "x"}), -32602, 200),
    "no uri": (say(method="resources/read"), -32602, 200),
    "an answer to nothing": (RESULT + b"{}}", None, 202),
    "an answer: number": (RESULT + b"1}", None, 400),
    "an answer: shape": (b'{"jsonrpc": "2.0", "id": [], "error": 7}', None, 400),
    "an answer: both": (RESULT + b'{}, "error": {}}', None, 400),
    "an error of nothing": (b'{"jsonrpc": "2.0", "error": {"code": 1}}', None, 202),
    "a notification: shape": (json.dumps(cancelled([1])).encode(), None, 202),
    "a notification: list": (b'{"jsonrpc":"2.0","method":"x","params":[]}', None, 400),
    "a notification: JSON-RPC": (b'{"jsonrpc": "1.0", "method": "x"}', None, 400),
    "a call without an id": (b'{"jsonrpc": "2.0", "method": "tools/call"}', None, 400),
}

# What a server answers to tools/call; what the client raises, and maybe its words.
FORM_IS_ODD = {"message": "?", "requestedSchema": {**FORM, "required": 7}}
ODD_FORM = {"method": "elicitation/create", "params": FORM_IS_ODD}
PING = {"method": "ping"}
LONG = "tool " * 1_000_000
ASKS = {"resultType": "input_required"}
ANSWERS = {
    "a result: list": ({"result": []}, InvalidResponse),
    "a result: null": ({"result": None}, InvalidResponse),
    "NaN": ({"result": {"x": float("nan")}}, InvalidResponse, "not JSON in UTF-8"),
    "content: text": ({"result": {"content": "x"}}, InvalidResponse),
    "neither": ({}, Timeout),
    "an error: text": ({"error": "x"}, McpError),
    "an error: its code": ({"error": {"code": "x", "message": "x"}}, McpError),
    "an error: of words": ({"error": {"code": -32602, "message": LONG}}, InvalidParams),
    "a type": ({"result": {"resultType": "x"}}, InvalidResponse),
    "questions: list": ({"result": {**ASKS, "inputRequests": [1]}}, InvalidResponse),
    "questions: number": ({"result": {**ASKS, "inputRequests": 5}}, InvalidResponse),
    "a question: which": ({"result": {**ASKS, "inputRequests": {"q": PING}}}, McpError),
    "a question: its form": (
        {"result": {**ASKS, "inputRequests": {"q": ODD_FORM}}},
        InvalidParams,
    ),
    "a question: its name": (
        {"result": {**ASKS, "inputRequests": {HALF: ODD_FORM}}},
        McpError,
    ),
}


class Stress:
    """Conversations of a raw client in which all happens at once: calls, cancels,
    questions, subscriptions, changes. It keeps count of the answers to each request."""

    def __init__(self, server, seed):
        self.server = server
        self.random = random.Random(seed)
        # By id: how many answers may come, and how many have come.
        self.wanted = {}
        self.answers = collections.Counter()
        self.acknowledged = set()
        self.faults = []
        # Two threads send.
        self.sending = threading.Lock()

    def message(self, id):
        """A random request, with the fewest and the most answers that it may get, and
        what follows it."""
        kind = self.random.choice(
            ["add"] * 6 + ["ask", "tell", "wait", "stop", "listen"]
        )
        if kind == "listen":
            params = modern(notifications={"toolsListChanged": True})
            message = request("subscriptions/listen", params, id)
            return message, (0, 1), cancelled(id)
        message = call_legacy({"stop": "wait"}.get(kind, kind), id, a=id)
        if kind == "tell":
            message["params"]["_meta"] = {"progressToken": id}
        if kind == "wait":
            # Its answer may overtake the cancellation.
            return message, (0, 1), cancelled(id)
        if kind == "stop":
            stop = {"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": id}}
            return message, (1, 1), stop
        return message, (1, 1), None

    def send(self, wire, *messages):
        # A question may come behind the end of what this client says.
        with self.sending, contextlib.suppress(BrokenPipeError):
            wire.send(*messages)

    def hear(self, wire):
        """Take what the server says, and answer its questions, until it is silent."""
        for line in wire.out:
            message = json.loads(line)
            if message.get("method") == "elicitation/create":
                result = {"action": "accept", "content": {"name": "x"}}
                self.send(
                    wire, {"jsonrpc": "2.0", "id": message["id"], "result": result}
                )
            elif "method" not in message:
                self.answers[message["id"]] += 1
                if self.answers[message["id"]] > self.wanted[message["id"]][1]:
                    self.faults.append(message)
            elif message["method"] == "notifications/subscriptions/acknowledged":
                self.acknowledged.add(message["params"]["_meta"][META_SUBSCRIPTION])
            elif META_SUBSCRIPTION in message["params"].get("_meta", {}):
                subscription = message["params"]["_meta"][META_SUBSCRIPTION]
                if subscription not in self.acknowledged:
                    self.faults.append(message)

    def missing(self):
        """The requests that still lack an answer."""
        return [
            id for id, (least, _) in self.wanted.items() if self.answers[id] < least
        ]

    def run(self, count):
        """One conversation of so many requests."""
        with LocalWire(self.server) as wire:
            wire.open(capabilities={"elicitation": {}})
            hearer = started(self.hear, wire)
            later = []
            id = 0
            while id < count:
                burst = []
                for _ in range(self.random.choice([1, 1, 1, 5, 30])):
                    id += 1
                    message, self.wanted[id], more = self.message(id)
                    burst.append(message)
                    later += [more] if more is not None else []
                self.send(
                    wire, b"".join(json.dumps(each).encode() + b"\n" for each in burst)
                )
                self.random.shuffle(later)
                while len(later) > self.random.randrange(12):
                    self.send(wire, later.pop())
                if self.random.random() < 0.05:
                    self.server.add_tool(lambda: 0, name=f"t{self.random.random()}")
            if self.random.random() < 0.5:
                self.send(wire, *later)
                eventually(lambda: not self.missing(), f"answers to {self.missing()}")
            # The end of the input, with all that is still in flight.
            wire.socks[0].shutdown(socket.SHUT_WR)
            hearer.join(SECONDS)
            assert not hearer.is_alive(), "the server goes on"
        assert (self.missing(), self.faults) == ([], [])


def stress_server():
    """What the stress calls."""
    server = Server("s", max_workers=8)
    server.add_tool(lambda a: a, name="add")

    @server.tool
    def ask(ctx: Context, a: int) -> str:
        return ctx.elicit("who?", FORM)["action"]

    @server.tool
    def tell(ctx: Context, a: int) -> int:
        for n in range(3):
            ctx.progress(n)
        return a

    @server.tool
    def wait(ctx: Context, a: int) -> None:
        # So short that what waits at the end is done before a server gives up.
        ctx.sleep(0.2)

    return server


def stress(seed, count, conversations=3):
    """Run some conversations with one server at once, with a thread switch after each
    microsecond; and some clients, which start, cancel and close."""
    server = stress_server()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        stresses = [Stress(server, seed * 100 + n) for n in range(conversations)]
        jobs = [(each.run, count) for each in stresses]
        jobs.append((stress_client, server, random.Random(seed), count // 2))
        with concurrent.futures.ThreadPoolExecutor(len(jobs)) as pool:
            for future in [pool.submit(*job) for job in jobs]:
                future.result()
    finally:
        sys.setswitchinterval(interval)


def stress_client(server, rng, count):
    """Each call of a client ends once: by its value, its cancellation, or close()."""
    while count > 0:
        era = rng.choice(["2025-11-25", MODERN])
        client = Client(server, protocol_version=era, on_elicit=answer)
        client.connect()
        calls = []
        for _ in range(rng.randrange(1, 60)):
            name = rng.choice(["add", "add", "ask", "tell", "wait"])
            calls.append(client.start_call(name, {"a": count}))
            count -= 1
            if name == "wait" or rng.random() < 0.2:
                calls[-1].cancel()
        closer = started(client.close) if rng.random() < 0.5 else None
        for call in calls:
            with contextlib.suppress(Cancelled, ConnectionClosed):
                call.result(SECONDS)
            assert call.done()
        if closer is not None:
            closer.join(SECONDS)
        client.close()


class TestThreads:
    """One reader, one pool, one outbox: what must hold however the threads fall."""

    def test_stress(self):
        """Every request is answered once, whatever else happens; nothing is left."""
        stress(seed=31, count=250)

    def test_a_question_that_was_never_sent(self):
        """It belonged to a request that is over, and its peer hears nothing of it."""
        server = Server("s")
        begun = threading.Event()
        ended = threading.Event()

        @server.tool
        def late(ctx: Context) -> None:
            begun.set()
            eventually(lambda: ctx.cancelled, "the cancellation")
            question = mcp_lite.PendingRequest(ctx._connection, "roots/list")
            with pytest.raises(Cancelled):
                ctx._connection.request(question, {}, ctx._request)
            ended.set()

        with LocalWire(server) as wire:
            wire.open(capabilities={"roots": {}})
            wire.send(call_legacy("late", 1))
            assert begun.wait(SECONDS)
            wire.send(cancelled(1))
            assert ended.wait(SECONDS)
            wire.socks[0].shutdown(socket.SHUT_WR)
            assert wire.out.read() == b""

    def test_a_lone_request_in_flight_at_the_end(self):
        """It is answered, though the thread that read it serves it."""
        server = Server("s")
        ended = threading.Event()

        @server.tool
        def work(ctx: Context) -> str:
            ctx.sleep(0.2)
            ended.set()
            return "done"

        ours, theirs = socket.socketpair()
        with ours, theirs:
            thread = started(serve_socket, server, theirs)
            ours.sendall(json.dumps(call_tool("work")).encode() + b"\n")
            ours.shutdown(socket.SHUT_WR)
            thread.join(SECONDS)
            assert not thread.is_alive() and ended.is_set()
            with ours.makefile("rb") as answers:
                [answer] = map(json.loads, answers)
        assert text_of(answer["result"]) == "done"

    def test_a_lone_request_that_lasts(self):
        """What comes while it is served is read: a call is answered, a cancel arrives."""
        with LocalWire(build_server()) as wire:
            wire.open()
            wire.send(call_legacy("wait", 1))
            assert wire.ask("tools/call", {"name": "is_waiting"}, 2)["id"] == 2
            stop = {"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": 1}}
            wire.send(stop)
            assert wire.read()["error"]["code"] == -32800

    def test_a_burst_with_one_that_lasts(self):
        """The others' answers do not wait for it, whatever its place."""
        for place in (0, 3, 7):
            with LocalWire(build_server()) as wire:
                wire.open()
                calls = [call_legacy("add", n, a=n) for n in range(7)]
                calls.insert(place, call_legacy("wait", 99))
                wire.send(b"".join(json.dumps(c).encode() + b"\n" for c in calls))
                assert sorted(wire.read()["id"] for _ in range(7)) == list(range(7))
                wire.send(cancelled(99))

    def test_no_burst_is_forgotten(self, monkeypatch):
        """While a thread serves a burst, another reader begins none of its own in place
        of that; and each call is answered."""
        begun = []

        class Watched(mcp_lite.Deputy):
            def _serve_burst(self, number):
                begun.append(number)
                return super()._serve_burst(number)

        monkeypatch.setattr(mcp_lite, "Deputy", Watched)
        with LocalWire(build_server()) as wire:
            wire.open()
            wire.send(call_legacy("wait", 99))
            for n in range(3):
                assert wire.ask("tools/call", call_legacy("add", a=n)["params"], n)
            wire.send(cancelled(99))
            eventually(lambda: wire.ask("ping", id=100)["id"] == 100)
        # Number 1 serves "wait"; number 2, the next reader, serves nothing until then.
        assert begun[-1] in (1, 2) and begun.count(2) <= 1

    def test_more_that_last_than_may_run(self):
        """Handlers wait for one another, and a cancel arrives while all are busy."""
        server = Server("s", max_workers=2)
        running = []
        gate = threading.Event()

        @server.tool
        def hold() -> int:
            running.append(1)
            gate.wait(SECONDS)
            return running.pop()

        with LocalWire(server) as wire:
            wire.open()
            wire.send(*[call_legacy("hold", n) for n in range(6)])
            eventually(lambda: len(running) == 2)
            stop = {"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": 5}}
            wire.send(stop)
            assert wire.read()["id"] == 5
            assert len(running) == 2
            gate.set()
            assert sorted(wire.read()["id"] for _ in range(5)) == list(range(5))

    def test_a_closed_pool_takes_no_job(self):
        """It says so, so that its caller can do it elsewhere."""
        pool = mcp_lite.Workers("w", 1)
        assert pool.close(SECONDS) and not pool.submit(print)

    def test_what_is_printed_is_short(self, capsys):
        """A text is cut to what a ready pipe takes, and keeps its end; what UTF-8 cannot
        say is escaped."""
        mcp_lite.print_to_stderr("\udcff" + "x" * 9_000 + "e")
        told = capsys.readouterr().err
        assert told.startswith("\\udcffx") and told.endswith("xe\n")
        assert len(told) <= 4_096

    def test_sleep_asks_for_its_time(self, monkeypatch):
        """A handler sleeps as long as it says: not longer, never less than nothing, and
        for as long as the system can if that is for ever."""
        waits = []
        wait = threading.Event.wait
        server = Server("s")

        @server.tool
        def nap(ctx: Context) -> None:
            here = threading.current_thread()

            def note(event, timeout=None):
                if threading.current_thread() is not here:
                    return wait(event, timeout)
                waits.append(timeout)
                return False

            with monkeypatch.context() as patch:
                patch.setattr(threading.Event, "wait", note)
                for seconds in (0.25, 0, -1.0, float("inf")):
                    ctx.sleep(seconds)

        server.handle(call_tool("nap"))
        assert waits == [0.25, 0.0, 0.0, threading.TIMEOUT_MAX]

    def test_warnings_that_come_in_bursts(self, monkeypatch, caplog):
        """The first one is logged as it is, the next ones are counted, and the one
        after the burst says how many they were."""
        monkeypatch.setattr(mcp_lite, "BURST_SECONDS", SECONDS)
        log = mcp_lite.BurstLog()
        for text in ("a", "b", "c"):
            log.add(text)
        with monkeypatch.context() as patch:
            later = time.monotonic() + 2 * SECONDS
            patch.setattr(time, "monotonic", lambda: later)
            log.add("d")
        assert caplog.messages == ["a", "d (2 more before this)"] and log.count == 4

    def test_a_timeout_blames_no_prints_where_there_were_none(self):
        """A server that is only slow is not said to print."""
        silent = legacy_server(tools_call=lambda *ignored: None)
        with talking_to(silent) as client, pytest.raises(Timeout) as caught:
            client.call_tool("t", timeout=0.05)
        assert "no answer within 0.05 seconds" in str(caught.value)
        assert "no messages" not in str(caught.value)

    def test_a_key_is_used_though_its_question_failed(self):
        """A session's question is not sent again under the same key."""
        server = Server("s")

        @server.tool
        def ask(ctx: Context) -> None:
            with contextlib.suppress(McpError):
                ctx.elicit("?", FORM, key="k")
            ctx.elicit("?", FORM, key="k")

        def fail(params):
            raise McpError(-32000, "no")

        at = Client(server, protocol_version="2025-11-25", on_elicit=fail)
        with at as client, pytest.raises(ToolError, match="key used twice"):
            client.call("ask")

    @pytest.mark.skipif(os.name == "nt", reason="it has another shell")
    def test_a_timeout_says_how_the_child_ended(self):
        """A grandchild holds its pipes, so their end does not say it."""
        command = ["sh", "-c", "exec 4<&0; sleep 60 & exit 3"]
        with pytest.raises(Timeout, match="exit code 3"):
            Client(command, timeout=1.0).connect()

    def test_a_notification_too_many(self, monkeypatch):
        """One of an extension is dropped, and not answered; the conversation goes on."""
        monkeypatch.setattr(mcp_lite, "MAX_BACKLOG", 0)
        server = Server("shop", extensions={"com.example/cart": {}})
        extension = "com.example/cart"
        server.method("cart/seen", extension=extension)(lambda ctx, params: {})
        options = {"protocol_version": "2025-11-25", "extensions": {extension: {}}}
        with Client(server, timeout=SECONDS, **options) as client:
            client.notify("cart/seen", {})
            assert client.request("ping", {}) == {}

    def test_the_time_of_a_host(self):
        """When the first job has taken all of max_seconds, no other one begins."""
        main = MainThread()

        def nap():
            threading.Event().wait(0.1)

        started(lambda: [main(nap), main(nap)]).join(SECONDS)
        assert [main.run_pending(0.05), main.run_pending(0.05)] == [1, 1]

    def test_a_log_that_talks_to_the_client(self):
        """What a handler of the program's log does cannot hold up an answer."""
        server = Server("s")
        contexts = []

        class Tells(logging.Handler):
            def emit(self, record):
                contexts[0].info("logged")

        @server.middleware
        def spoil(ctx, method, params, call_next):
            contexts.append(ctx)
            return {**call_next(), "x": float("nan")} if method == CALL else call_next()

        server.add_tool(lambda: 1, name="one")
        logger = logging.getLogger("mcp_lite")
        handler = Tells()
        logger.addHandler(handler)
        try:
            with LocalWire(server) as wire:
                wire.open()
                wire.send(call_legacy("one", 7))
                assert "error" in wire.read()
                assert wire.ask("ping", id=8)["id"] == 8
        finally:
            logger.removeHandler(handler)

    def test_a_handshake_while_all_are_busy(self):
        """It waits for no other request, whatever code of the user's runs for it."""
        server = Server("s", max_workers=1)

        @server.tool(visible=lambda ctx: True)
        def ask(ctx: Context) -> str:
            return ctx.elicit("who?", FORM)["action"]

        with LocalWire(server) as wire:
            wire.open(capabilities={"elicitation": {}})
            wire.send(call_legacy("ask", 5))
            question = wire.read()
            assert wire.ask("initialize", opening("2025-11-25"), 6)["id"] == 6
            refusal = {
                "jsonrpc": "2.0",
                "id": question["id"],
                "result": {"action": "decline"},
            }
            wire.send(refusal)
            assert text_of(wire.read()["result"]) == "decline"

    @pytest.mark.parametrize("era", ["2025-11-25", MODERN])
    def test_answers_of_another_thread(self, era):
        """Over HTTP, the answer of a tool whose time is over is written before the
        connection's own thread goes on."""
        server = Server("s")

        @server.tool(timeout=0.001)
        def late(ctx: Context) -> None:
            ctx.sleep(60)

        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            with client_at(server, True, protocol_version=era) as client:
                results = [client.call_tool("late") for _ in range(100)]
        finally:
            sys.setswitchinterval(interval)
        assert all(result["isError"] for result in results)

    def test_a_client_that_reads_nothing_is_cut_off(self, monkeypatch):
        """When one write takes too long, the conversation ends."""
        monkeypatch.setattr(mcp_lite, "WRITE_SECONDS", 0.2)
        monkeypatch.setattr(mcp_lite, "TIDY_SECONDS", 0.1)
        server = Server("s")
        ended = threading.Event()

        @server.tool
        def flood(ctx: Context) -> None:
            try:
                while True:
                    ctx.info("x" * 10_000)
                    ctx.check_cancelled()
            finally:
                ended.set()

        # The client keeps both ends open.
        ours, theirs = socket.socketpair()
        reader = theirs.makefile("rb")
        writer = theirs.makefile("wb", buffering=0)
        thread = started(server.serve, reader, writer)
        calls = [request("initialize", opening("2025-11-25")), call_legacy("flood", 2)]
        ours.sendall(b"".join(json.dumps(each).encode() + b"\n" for each in calls))
        thread.join(SECONDS)
        assert not thread.is_alive()
        for each in (ours, theirs):
            shut(each)
        assert ended.wait(SECONDS)
        for each in (reader, writer, ours, theirs):
            each.close()


class SocketTransport(mcp_lite.Transport):
    """A socket to a server of this process, as the docstring of Transport asks for it."""

    def __init__(self, server):
        self.server = server
        self.sock, self.theirs = socket.socketpair()

    def start(self, connection):
        self.thread = started(serve_socket, self.server, self.theirs)

    def read(self):
        return self.sock.recv(1 << 16)

    def write(self, data):
        self.sock.sendall(data)

    def close(self):
        shut(self.sock)
        self.sock.close()

    def describe_end(self, why):
        return ConnectionClosed(f"the socket: {why}")


class TestSeams:
    """A transport of one's own, written from its docstring alone."""

    def test_a_transport(self, version):
        """Calls, progress, questions, a large message, and the end, over a socket."""
        server = build_server()

        @server.tool
        def measure(ctx: Context, text: str) -> str:
            ctx.progress(1, 2)
            return f"{len(text)} in {ctx.roots()[0]['uri']}"

        progress = []
        transport = SocketTransport(server)
        with Client(transport, protocol_version=version, roots=["file:///y"]) as client:
            assert client.protocol_version == version
            heard = {"on_progress": lambda *told: progress.append(told[:2])}
            result = client.call_tool("measure", {"text": "x" * (1 << 20)}, **heard)
            assert text_of(result) == f"{1 << 20} in file:///y"
            # In the modern era, a question makes the handler run again.
            assert set(progress) == {(1, 2)}
            assert len(client.list_tools()) > 1
        # The client's end is the end of serve().
        transport.thread.join(SECONDS)
        assert not transport.thread.is_alive()

    def test_a_transport_tells_how_it_ended(self):
        """A call that waits gets what describe_end() returns."""
        server = Server("slow")
        entered = threading.Event()
        over = threading.Event()

        @server.tool
        def wait() -> None:
            entered.set()
            over.wait(SECONDS)

        transport = SocketTransport(server)
        with Client(transport) as client:
            call = client.start_call("wait")
            assert entered.wait(SECONDS)
            shut(transport.theirs)
            with pytest.raises(ConnectionClosed, match="^the socket: the server"):
                call.result()
            over.set()
            with pytest.raises(ConnectionClosed):
                client.ping()
        transport.thread.join(SECONDS)

    def test_a_transport_that_cannot_begin(self):
        """What waits for an answer ends at once, and gets what describe_end() returns,
        if nothing can be written; connect() raises what start() raises."""

        class Deaf(SocketTransport):
            def write(self, data):
                raise OSError("wet")

        with pytest.raises(ConnectionClosed, match="^the socket: cannot write: wet"):
            Client(Deaf(Server("s")), protocol_version="2025-11-25").connect()

        class Nowhere(mcp_lite.Transport):
            def start(self, connection):
                raise ConnectionRefusedError("nobody there")

        with pytest.raises(ConnectionRefusedError):
            Client(Nowhere()).connect()

    def test_a_server_over_a_transport(self):
        """Server.connect() makes a conversation, which disconnect() ends."""
        written = queue.Queue()

        class Lines(mcp_lite.Transport):
            def write(self, data):
                for line in data.splitlines():
                    written.put(json.loads(line))

        server = Server("s")
        stopped = threading.Event()

        @server.tool
        def endless(ctx: Context) -> str:
            ctx.on_cancel(stopped.set)
            ctx.log("info", "begun")
            ctx.sleep(SECONDS)
            return "never"

        connection = server.connect(Lines())

        def say(*messages):
            data = b"".join(json.dumps(each).encode() + b"\n" for each in messages)
            connection.feed(data)

        say(request("initialize", opening("2025-11-25")), notice("initialized"))
        assert written.get(timeout=SECONDS)["result"]["serverInfo"]["name"] == "s"
        server.add_tool(lambda: "x", name="extra", description="x")
        changed = written.get(timeout=SECONDS)
        assert changed["method"] == "notifications/tools/list_changed"
        say(call_legacy("endless", 2))
        assert written.get(timeout=SECONDS)["params"]["data"] == "begun"
        server.disconnect(connection, SECONDS)
        assert stopped.wait(SECONDS)
        server.disconnect(connection)
        server.remove_tool("extra")
        assert written.empty()

    def test_a_change_behind_the_acknowledgement(self):
        """What changes as soon as a client knows of its subscription is told."""
        written = queue.Queue()
        server = Server("s")
        server.add_tool(lambda: "x", name="x")

        class Lines(mcp_lite.Transport):
            def write(self, data):
                for line in data.splitlines():
                    message = json.loads(line)
                    written.put(message["method"])
                    if message["method"].endswith("/acknowledged"):
                        server.add_tool(lambda: "y", name="y")

        connection = server.connect(Lines())
        params = modern(notifications={"toolsListChanged": True})
        listen = request("subscriptions/listen", params)
        connection.feed(json.dumps(listen).encode() + b"\n")
        assert written.get(timeout=SECONDS).endswith("/acknowledged")
        assert written.get(timeout=SECONDS).endswith("/list_changed")
        server.disconnect(connection)


class Gone(Exception):
    """What a transport of somebody's raises; it is no OSError."""


class Meeting(int):
    """A size: two threads that subtract it do so at once, if they can."""

    barrier = threading.Barrier(2)

    def meet(self):
        try:
            self.barrier.wait(0.2)
        except threading.BrokenBarrierError:
            self.barrier.reset()

    def __rsub__(self, other):
        self.meet()
        return other - int(self)


def napping_server():
    """A server with a tool that takes a moment, and says when it has begun."""
    server = Server("s")
    server.begun = threading.Event()

    @server.tool
    def nap(ctx: Context) -> str:
        server.begun.set()
        ctx.sleep(1.0)
        return "rested"

    return server


class TestLifetimes:
    """Each resource has one owner, which ends it whatever happens."""

    @pytest.mark.parametrize("era", ["2025-11-25", MODERN])
    def test_what_runs_when_a_server_closes_is_answered(self, era):
        """close() refuses new requests; those that run have their time, and their
        answers arrive."""
        server = napping_server()
        http = server.start_http()
        with Client(http.url, protocol_version=era) as client:
            call = client.start_call("nap")
            assert server.begun.wait(SECONDS)
            closer = started(http.close)
            assert call.value(SECONDS) == "rested"
            closer.join(SECONDS)
            assert not closer.is_alive()

    @pytest.mark.skipif(os.name == "nt", reason="it has no SIGTERM")
    def test_what_runs_at_sigterm_is_answered(self, tmp_path):
        """Within the grace of run("http")."""
        script = tmp_path / "server.py"
        marker = tmp_path / "begun"
        script.write_text(
            "import time\nfrom mcp_lite import Server\nserver = Server('s')\n"
            "@server.tool\ndef nap() -> str:\n"
            f"    open({str(marker)!r}, 'w').close()\n"
            "    time.sleep(1)\n    return 'rested'\n"
            "server.run('http', port=0)\n"
        )
        env = {**os.environ, "PYTHONPATH": HERE}
        with subprocess.Popen(
            [sys.executable, str(script)], stderr=subprocess.PIPE, env=env
        ) as process:
            url = re.search(rb"http://\S+", process.stderr.readline())[0].decode()
            with Client(url) as client:
                call = client.start_call("nap")
                eventually(marker.exists, "the call")
                process.terminate()
                assert call.value(SECONDS) == "rested"
            assert process.wait(SECONDS) == 0

    def test_a_request_that_arrives_at_the_end(self):
        """Idle connections are closed at once; a client sends its call again, or is
        told that the server is gone."""
        server = napping_server()
        http = server.start_http()
        with Client(http.url) as client:
            client.ping()
            begun = time.monotonic()
            http.close()
            assert time.monotonic() - begun < 2
            with pytest.raises(mcp_lite.HttpFailure):
                client.ping()

    @pytest.mark.parametrize("version", LEGACY[1:])
    def test_a_session_keeps_no_stream_of_a_ping(self, version):
        """Only what a client can come back to is kept."""
        with build_server().start_http() as http:
            self.ping(http, version)

    def ping(self, http, version):
        """Many requests in a session, of which one has a stream."""
        session = Web(http).open(version)
        [kept] = http.endpoint.legacy.sessions.values()
        for n in range(30):
            assert session.post(request("ping", id=n))[0] == 200
            assert session.post(request("logging/setLevel", {"level": "info"}, n))
            assert session.post(call_legacy("add", n, a=n))[0] == 200
        eventually(lambda: len(kept.streams) == 1, "the end of the streams")
        call = call_legacy("count", to=2, meta={"progressToken": 1})
        with session.stream("POST", call) as response:
            events_of(response)
        eventually(lambda: len(kept.streams) == 2, "the stream that is kept")

    def test_a_session_that_has_ended_keeps_nothing(self):
        """Its streams, which nobody can come back to, are forgotten."""
        with build_server().start_http() as http:
            session = Web(http).open()
            call = call_legacy("count", to=2, meta={"progressToken": 1})
            with session.stream("POST", call) as response:
                events_of(response)
            eventually(lambda: http.endpoint.legacy._kept, "the stream that is kept")
            session.send("DELETE")
            assert not http.endpoint.legacy._kept

    def test_streams_of_text(self):
        """serve() of what is no binary stream raises, and says what to do."""
        peer = io.StringIO('{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
        with pytest.raises(TypeError, match="sys.stdin.buffer"):
            started_future(Server("s").serve, peer, io.BytesIO()).result(SECONDS)
        with pytest.raises(TypeError, match="sys.stdin.buffer"):
            Client((io.BytesIO(), peer))

    @pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
    def test_a_stream_of_something_else(self):
        """Whatever ends the reading thread, serve() returns."""

        class Odd(io.BytesIO):
            def read1(self, size):
                return "text"

        serving = started(Server("s").serve, Odd(), io.BytesIO())
        serving.join(SECONDS)
        assert not serving.is_alive()

    @pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
    @pytest.mark.parametrize("broken", ["read", "write", "describe_end"])
    def test_a_transport_with_exceptions_of_its_own(self, broken):
        """A call that waits ends, and says what it was."""
        server = Server("s")
        begun = threading.Event()
        over = threading.Event()

        @server.tool
        def wait() -> None:
            begun.set()
            over.wait(SECONDS)

        class Radio(SocketTransport):
            is_broken = False

            def read(self):
                data = super().read()
                if self.is_broken and broken != "write":
                    raise Gone("no signal")
                return data

            def write(self, data):
                if self.is_broken and broken == "write":
                    raise Gone("no signal")
                super().write(data)

            def describe_end(self, why):
                if broken == "describe_end":
                    raise Gone("no words")
                return super().describe_end(why)

        transport = Radio(server)
        with Client(transport, timeout=SECONDS) as client:
            call = client.start_call("wait")
            waiting = started_future(call.result)
            assert begun.wait(SECONDS)
            transport.is_broken = True
            if broken == "write":
                with contextlib.suppress(ConnectionClosed):
                    client.start_call("wait")
            else:
                shut(transport.theirs)
            with pytest.raises(ConnectionClosed) as caught:
                waiting.result(SECONDS)
            over.set()
        assert broken == "describe_end" or "no signal" in str(caught.value)

    def test_two_threads_that_enter_one_client(self, tmp_path):
        """One connects, the other one waits for it; one child, and nothing is left."""
        script = tmp_path / "server.py"
        pids = tmp_path / "pids"
        script.write_text(
            "import os\nfrom mcp_lite import Server\nserver = Server('s')\n"
            f"print(os.getpid(), file=open({str(pids)!r}, 'a'))\n"
            "server.add_tool(lambda: 'x', name='x')\nserver.run()\n"
        )
        before = set(threading.enumerate())
        client = Client(str(script), env={"PYTHONPATH": HERE}, timeout=SECONDS)
        entered = threading.Barrier(2)

        def use():
            with client:
                value = client.call("x")
                entered.wait(SECONDS)
                return value

        futures = [started_future(use) for _ in range(2)]
        assert [future.result(SECONDS) for future in futures] == ["x", "x"]
        client.close()
        assert len(pids.read_text().split()) == 1
        eventually(lambda: not set(threading.enumerate()) - before, "the threads' end")

    def test_close_during_connect(self, tmp_path):
        """It ends a connect() that waits, on any thread."""
        script = tmp_path / "silent.py"
        script.write_text("import sys\nprint('x', file=sys.stderr)\nsys.stdin.read()\n")
        seen = threading.Event()
        client = Client(str(script), timeout=SECONDS, stderr=lambda line: seen.set())
        connecting = started_future(client.connect)
        assert seen.wait(SECONDS)
        client.close()
        with pytest.raises(ConnectionClosed):
            connecting.result(SECONDS)

    def test_a_second_thread_in_result(self):
        """It waits as long as it says, and its time-out does not end the call of the
        first one; both get the same result."""
        server = Server("s")
        gate = threading.Event()

        @server.tool
        def wait() -> str:
            gate.wait(SECONDS)
            return "done"

        with Client(server) as client:
            call = client.start_call("wait")
            first = started_future(call.value)
            eventually(lambda: call._waiting.locked(), "the first one")
            begun = time.monotonic()
            with pytest.raises(Timeout):
                call.result(0.2)
            assert time.monotonic() - begun < 2
            second = started_future(call.value, SECONDS)
            gate.set()
            assert first.result(SECONDS) == second.result(SECONDS) == "done"

    def test_two_threads_that_put(self):
        """An Inbox counts exactly, so that each put() returns."""
        inbox = mcp_lite.Inbox("test")
        size = Meeting(mcp_lite.MAX_QUEUED_BYTES - 1)
        items = inbox._items

        def put(item):
            items.put(item)
            size.meet()

        inbox._items = types.SimpleNamespace(
            put=put, get_nowait=items.get_nowait, qsize=items.qsize
        )
        for _ in range(4):
            putters = [started(inbox.put, "x", size) for _ in range(2)]
            for each in putters:
                each.join(3)
                assert not each.is_alive()

    def test_a_listening_client_notices_a_dead_line(self, server, monkeypatch):
        """Each connection of a client has TCP keep-alive: after a laptop's sleep, the
        other end may be gone without a word."""
        sockets = []
        connect = http.client.HTTPConnection.connect

        def note(connection):
            connect(connection)
            sockets.append(connection.sock)

        monkeypatch.setattr(http.client.HTTPConnection, "connect", note)
        with server.start_http() as web, Client(web.url) as client, client.listen():
            assert sockets
            for sock in sockets:
                assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
                if hasattr(socket, "TCP_KEEPIDLE"):
                    names = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT")
                    idle, every, count = (
                        sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name))
                        for name in names
                    )
                    assert idle + every * count <= 120

    @pytest.mark.parametrize("over_http", [False, True])
    @pytest.mark.parametrize("workers", [1, 2])
    def test_who_waits_for_an_answer_lets_others_run(self, over_http, workers):
        """A function that asks a client of a session does not count for max_workers
        until the answer is there. But max_workers=1 is a lock, and stays one."""
        server = Server("s", max_workers=workers)
        asked = threading.Event()
        answered = threading.Event()
        running = []
        most = []

        @server.tool
        def ask(ctx: Context) -> str:
            running.append(1)
            most.append(len(running))
            try:
                return ctx.elicit("?", FORM)["action"]
            finally:
                running.pop()

        @server.tool
        def add(a: int) -> int:
            most.append(len(running) + 1)
            return a + 1

        def decline(params):
            asked.set()
            answered.wait(2 * SECONDS)
            return {"action": "decline"}

        options = {"protocol_version": "2025-11-25", "on_elicit": decline}
        with client_at(server, over_http, **options) as client:
            calls = [client.start_call("ask") for _ in range(workers + 2)]
            assert asked.wait(SECONDS)
            adding = client.start_call("add", {"a": 1})
            if workers > 1:
                assert adding.value(SECONDS) == 2
            answered.set()
            assert adding.value(SECONDS) == 2
            assert [call.value(SECONDS) for call in calls] == ["decline"] * len(calls)
        assert max(most) == 1 if workers == 1 else max(most) > workers

    def test_who_waits_for_a_slow_reader_lets_others_run(self):
        """Clients that read nothing hold up their own handlers alone."""
        server = Server("s", max_workers=2)
        stuck = threading.Semaphore(0)

        @server.tool
        def flood(ctx: Context) -> None:
            for n in range(10_000):
                if n == 50:
                    stuck.release()
                ctx.log("info", "x" * 100_000)

        @server.tool
        def add(a: int) -> int:
            return a + 1

        with server.start_http() as http, contextlib.ExitStack() as stack:
            for _ in range(3):
                place = ("127.0.0.1", http.port)
                sock = stack.enter_context(socket.create_connection(place, SECONDS))
                meta = {mcp_lite.META_LOG_LEVEL: "debug"}
                call = call_tool("flood", meta=meta)
                sock.sendall(head_of(call, "Mcp-Name: flood"))
            with Client(http.url) as client:
                assert client.call("add", a=1) == 2
                assert client.call("add", a=2) == 3

    # The ends of HTTP
    @contextlib.contextmanager
    def asked_over_http(self, era, secure=None):
        """A server that naps for somebody on a raw socket."""
        server = napping_server()
        with server.start_http(ssl_context=secure) as http:
            sock = socket.create_connection(("127.0.0.1", http.port), SECONDS)
            with sock:
                if era == MODERN:
                    call = head_of(call_tool("nap"), "Mcp-Name: nap")
                else:
                    session = Web(http).open(era)
                    lines = [
                        "POST /mcp HTTP/1.1",
                        "Host: localhost",
                        "Content-Type: application/json",
                        f"Mcp-Session-Id: {session.session}",
                    ]
                    body = json.dumps(call_legacy("nap")).encode()
                    lines += [f"Content-Length: {len(body)}", "", ""]
                    call = "\r\n".join(lines).encode() + body
                sock.sendall(call)
                assert server.begun.wait(SECONDS)
                yield server, http, sock

    @pytest.mark.parametrize("era", ["2025-11-25", MODERN])
    def test_who_half_closes_gets_the_answer(self, era):
        """A client may shut its side behind its request, and wait for the answer."""
        with self.asked_over_http(era) as (_, http, sock):
            sock.shutdown(socket.SHUT_WR)
            eventually(lambda: self.is_probed(http), "the probe")
            with sock.makefile("rb") as answer:
                assert b"rested" in answer.read()

    @staticmethod
    def is_probed(http):
        return any(each._is_probed for each in list(http.endpoint.serving))

    @pytest.mark.parametrize("how", ["closed", "reset"])
    def test_who_leaves_cancels_a_modern_call(self, how):
        """The whole connection is gone, whichever way."""
        server = Server("s")
        begun = threading.Event()
        ended = threading.Event()

        @server.tool
        def wait(ctx: Context) -> None:
            ctx.on_cancel(ended.set)
            begun.set()
            ctx.sleep(10 * SECONDS)

        with server.start_http() as http:
            sock = socket.create_connection(("127.0.0.1", http.port), SECONDS)
            sock.sendall(head_of(call_tool("wait"), "Mcp-Name: wait"))
            assert begun.wait(SECONDS)
            if how == "reset":
                linger = struct.pack("ii", 1, 0)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            sock.close()
            assert ended.wait(SECONDS)

    def test_the_side_of_a_peer(self):
        """OPEN, SHUT or GONE, for each state of a socket."""
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def pair():
                ours = socket.create_connection(listener.getsockname(), SECONDS)
                theirs, _ = listener.accept()
                return ours, theirs

            def is_soon(sock, side):
                eventually(lambda: mcp_lite.peer_side(sock) == side, side)

            ours, theirs = pair()
            with ours, theirs:
                assert mcp_lite.peer_side(ours) == mcp_lite.OPEN
                theirs.sendall(b"unread")
                assert mcp_lite.peer_side(ours) == mcp_lite.OPEN
                if sys.platform == "linux":
                    theirs.shutdown(socket.SHUT_WR)
                    is_soon(ours, mcp_lite.SHUT)
            ours, theirs = pair()
            with ours, theirs:
                # Our own half-close is no word of the peer's.
                ours.shutdown(socket.SHUT_WR)
                assert mcp_lite.peer_side(ours) == mcp_lite.OPEN
            ours, theirs = pair()
            with ours, theirs:
                theirs.shutdown(socket.SHUT_WR)
                is_soon(ours, mcp_lite.SHUT)
                theirs.close()
                is_soon(ours, mcp_lite.SHUT)
                ours.sendall(b"probe")
                is_soon(ours, mcp_lite.GONE)
            ours, theirs = pair()
            with ours, theirs:
                linger = struct.pack("ii", 1, 0)
                theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                theirs.close()
                is_soon(ours, mcp_lite.GONE)

    @pytest.mark.parametrize("sent", ["half a head", "half a body", "half a chunk"])
    def test_what_is_arriving_at_the_end_is_refused(self, sent):
        """It has not run: 503, so that the client may send it again elsewhere."""
        lines = ["Transfer-Encoding: chunked"] if sent == "half a chunk" else []
        call = head_of(call_tool("nap"), "Mcp-Name: nap", *lines, length=not lines)
        head, _, body = call.partition(b"\r\n\r\n")
        part = {
            "half a head": head[:-5],
            "half a body": head + b"\r\n\r\n" + body[:-5],
            "half a chunk": head + b"\r\n\r\nfff\r\n" + body,
        }
        server = napping_server()
        http = server.start_http()
        with socket.create_connection(("127.0.0.1", http.port), SECONDS) as sock:
            sock.sendall(part[sent])
            eventually(
                lambda: any(
                    each.deadline > time.monotonic() + http.idle_seconds
                    for each in http.connections.copy().values()
                ),
                "the first bytes",
            )
            http.close()
            with sock.makefile("rb") as answer:
                text = answer.read()
        assert text.startswith(b"HTTP/1.1 503 "), text
        assert b"\r\nRetry-After: 1\r\n" in text
        assert not server.begun.is_set()

    def test_a_question_at_the_end(self, caplog):
        """A handler that waits for an answer ends with a clear error, and no
        traceback."""
        server = Server("s")
        asked = threading.Event()
        gate = threading.Event()

        @server.tool
        def ask(ctx: Context) -> str:
            return ctx.elicit("?", FORM)["action"]

        def answer(params):
            asked.set()
            gate.wait(SECONDS)

        http = server.start_http()
        options = {"protocol_version": "2025-11-25", "on_elicit": answer}
        with Client(http.url, **options) as client:
            call = client.start_call("ask")
            assert asked.wait(SECONDS)
            http.close()
            with pytest.raises(McpError, match="the server is closing"):
                call.result(SECONDS)
            gate.set()
        assert "Traceback" not in caplog.text

    def test_a_call_whose_client_stays_away_is_cancelled(self, monkeypatch):
        """In a session, a hang-up is no cancellation; but who does not come back for
        the stream within AWAY_SECONDS no longer wants the answer."""
        monkeypatch.setattr(mcp_lite, "AWAY_SECONDS", 0.3)
        server = Server("s")
        ended = threading.Event()

        @server.tool
        def wait(ctx: Context) -> None:
            ctx.on_cancel(ended.set)
            ctx.progress(1)
            ctx.sleep(10 * SECONDS)

        with server.start_http() as http:
            session = Web(http).open("2025-11-25")
            call = call_legacy("wait", meta={"progressToken": 1})
            with session.stream("POST", call) as response:
                assert next_message(response)["method"] == "notifications/progress"
                assert not ended.is_set()
            assert ended.wait(SECONDS)

    # What goes wrong at the edges
    def test_errors_survive_pickling(self):
        """As multiprocessing and concurrent.futures send them."""
        errors = [
            McpError(-32000, "odd", {"x": 1}),
            mcp_lite.NotFound("nothing", {"uri": "x"}),
            ToolError("failed", ["text"]),
            Timeout("late", "; why"),
            ConnectionClosed("gone", -9, ["server", "--key", "x"], "last\nwords"),
            mcp_lite.HttpFailure("refused", "http://x", 401, {"scope": "a"}, 3.0),
            Cancelled("enough"),
        ]
        for error in errors:
            copy = pickle.loads(pickle.dumps(error))
            assert type(copy) is type(error)
            assert str(copy) == str(error)
            assert vars(copy) == vars(error)

    @pytest.mark.skipif(sys.version_info < (3, 11), reason="needs TaskGroup")
    @pytest.mark.parametrize("era", ["2025-11-25", MODERN])
    def test_an_error_in_a_task_group(self, era):
        """The one that counts is found in the ExceptionGroup."""
        server = Server("s")

        async def fail(error):
            raise error

        @server.tool
        async def group(kind: str) -> None:
            errors = {
                "tool": ToolError("the oven is cold"),
                "one": ValueError("x is 3"),
                "protocol": mcp_lite.InvalidParams("no such oven"),
            }
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(fail(errors[kind]))
                if kind != "one":
                    tasks.create_task(fail(KeyError("other")))

        with Client(server, protocol_version=era) as client:
            with pytest.raises(ToolError, match="^the oven is cold$"):
                client.call("group", kind="tool")
            with pytest.raises(ToolError, match="^group: ValueError: x is 3$"):
                client.call("group", kind="one")
            with pytest.raises(mcp_lite.InvalidParams, match="no such oven"):
                client.call("group", kind="protocol")

    @pytest.mark.parametrize("kind", ["request", "answer"])
    def test_a_line_over_the_limit_is_refused_with_its_id(self, kind, monkeypatch):
        """Whoever has sent it hears so at once."""
        monkeypatch.setattr(mcp_lite, "MAX_MESSAGE", 1 << 16)
        server = Server("s")
        server.add_tool(lambda n, text="": "x" * n, name="big")
        with Client(server, timeout=2 * SECONDS) as client:
            arguments = {"n": 1 << 17} if kind == "answer" else {"n": 1}
            if kind == "request":
                arguments["text"] = "y" * (1 << 17)
            with pytest.raises(McpError, match="a message of more than"):
                client.call("big", arguments)
            assert client.call("big", n=1) == "x"

    def test_lines_without_memory(self, monkeypatch):
        """A line that memory does not suffice for is cut, and the next one comes."""

        class Poor(bytearray):
            def __iadd__(self, more):
                if len(self) + len(more) > 5_000:
                    raise MemoryError
                return super().__iadd__(more)

        framer = mcp_lite.LineFramer()
        framer._line = Poor()
        lines = framer.feed(b'{"id": 1, ' + b"x" * 4_000)
        lines += framer.feed(b"y" * 4_000)
        lines += framer.feed(b"z" * 4_000 + b"\nnext\n")
        cut, following = lines
        assert isinstance(cut, mcp_lite.CutLine)
        assert cut.startswith(b'{"id": 1, ') and len(cut) <= mcp_lite.MAX_BEGINNING
        assert following == b"next"

    def test_a_server_killed_in_the_middle_of_a_line(self):
        """The connection has ended, with the exit code; no word of bad JSON."""
        code = (
            "import json, os, sys\n"
            "for line in sys.stdin:\n"
            "    message = json.loads(line)\n"
            '    half = \'{"jsonrpc": "2.0", "id": %d, "result": {"x\'\n'
            "    os.write(1, (half % message['id']).encode())\n"
            "    os._exit(7)\n"
        )
        with pytest.raises(ConnectionClosed) as caught:
            Client([sys.executable, "-c", code], timeout=SECONDS).connect()
        assert caught.value.exit_code == 7

    def test_the_end_of_an_inbox_stays(self):
        """However much comes behind it, which would push out the oldest."""
        inbox = mcp_lite.Inbox("test")
        inbox.close()
        inbox.put("large", mcp_lite.MAX_QUEUED_BYTES + 1)
        items = [inbox.get(SECONDS)]
        while items[-1] is not None:
            items.append(inbox.get(SECONDS))
        assert inbox.get(SECONDS) is None

    @pytest.mark.skipif(os.name == "nt", reason="needs O_NONBLOCK")
    def test_descriptors_that_do_not_block(self):
        """None from a read is not the end, and from a write it is not all."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            theirs.setblocking(False)
            raw = io.FileIO(os.dup(theirs.fileno()), "r+")
            with raw:
                transport = mcp_lite.StreamTransport(raw, raw)
                reading = started_future(transport.read)
                writing = started_future(transport.write, b"x" * (8 << 20))
                with ours.makefile("rb") as stream:
                    assert len(stream.read(8 << 20)) == 8 << 20
                writing.result(SECONDS)
                ours.sendall(b"word")
                assert reading.result(SECONDS) == b"word"

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
    def test_a_fork_inside_with_client(self, tmp_path):
        """The child's end of the block ends nothing of the parent's, and a call in the
        child says what is wrong."""
        script = tmp_path / "program.py"
        script.write_text(
            textwrap.dedent(
                f"""
                import os, sys
                sys.path.insert(0, {HERE!r})
                from mcp_lite import Client, ConnectionClosed, Server
                if sys.argv[1:]:
                    server = Server("s")
                    server.add_tool(lambda: "x", name="x")
                    server.run()
                    sys.exit()
                pid = None
                with Client([sys.executable, __file__, "serve"]) as client:
                    pid = os.fork()
                    if pid == 0:
                        try:
                            client.call("x")
                        except ConnectionClosed as error:
                            print(error)
                if pid == 0:
                    sys.stdout.flush()
                    os._exit(0)
                """
            )
        )
        done = subprocess.run(
            [sys.executable, str(script)],
            stdout=subprocess.PIPE,
            timeout=SECONDS,
            check=True,
        )
        assert b"this process is a fork" in done.stdout

    def test_idle_connections_of_a_client_are_closed(self, server, monkeypatch):
        """After a burst, none waits for a next request that never comes."""
        monkeypatch.setattr(mcp_lite, "KEEP_SECONDS", 0.1)
        with server.start_http() as http, Client(http.url) as client:
            calls = [client.start_call("add", {"a": n}) for n in range(20)]
            assert [call.value(SECONDS) for call in calls] == [
                client.call("add", a=n) for n in range(20)
            ]
            idle = client._connection.transport.caller._idle
            eventually(lambda: not idle, "the end of the idle connections")

    def test_a_form_suspends_only_its_own_call(self):
        """While a user thinks about one call's question, another call times out."""
        server = Server("s")
        asked = threading.Event()
        gate = threading.Event()

        @server.tool
        def ask(ctx: Context) -> str:
            return ctx.elicit("?", FORM)["action"]

        @server.tool
        def hang(ctx: Context) -> None:
            ctx.sleep(10 * SECONDS)

        def answer(params):
            asked.set()
            gate.wait(SECONDS)
            return {"action": "decline"}

        options = {"protocol_version": "2025-11-25", "on_elicit": answer}
        with server.start_http() as http, Client(http.url, **options) as client:
            asking = client.start_call("ask")
            waiting = started_future(asking.value, 0.2)
            assert asked.wait(SECONDS)
            with pytest.raises(Timeout):
                client.call_tool("hang", timeout=0.2)
            assert not waiting.done()
            gate.set()
            assert waiting.result(SECONDS) == "decline"

    def test_a_listening_that_cannot_open_is_forgotten(self, server):
        """Also when the client closes at that moment."""
        with server.start_http() as http:
            client = Client(http.url).connect()
            endpoint = client._endpoint

            class Closes(dict):
                def __setitem__(self, key, value):
                    super().__setitem__(key, value)
                    client.close()

            endpoint.listenings = Closes()
            with pytest.raises((ConnectionClosed, ConnectionError)):
                client.listen()
            assert not endpoint.listenings

    def test_print_of_what_the_encoding_lacks(self, tmp_path):
        """It is escaped, and the call goes on."""
        script = tmp_path / "server.py"
        script.write_text(
            "from mcp_lite import Server\nserver = Server('s')\n"
            "@server.tool\ndef build() -> str:\n"
            "    print('\\u2713 built')\n    return 'done'\nserver.run()\n",
            encoding="utf-8",
        )
        env = {"PYTHONPATH": HERE, "PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0"}
        with Client(str(script), env=env, stderr=None, timeout=SECONDS) as client:
            assert client.call("build") == "done"


# Schedules: the machine, the scenarios, the tests
#
# Threads that interleave by luck are tested by luck. Here they interleave by plan:
# SteppedModule executes a private mcp_lite whose locks, queues, events, threads and
# time are controlled, and whose accesses to shared attributes are points at which
# another thread may go on. An Exploration runs a scenario, a small program on parts of
# it, by many schedules, the same ones each time.


class Stop(BaseException):
    """Unwinds the threads of a run that is over."""


class Scheduler:
    """Runs a scenario by one schedule: its threads are real, but one at a time runs.

    A thread may hand over at a *point*: before each operation on a lock, queue, event
    or thread, and before each access to an attribute that several threads share. A
    schedule says at which points another thread goes on: {step: which}; without it, a
    thread runs for as long as it can.

    Time is virtual. A wait with a time-out ends by it only if nothing else can run,
    which is a fault, since a wake-up was lost. But time-outs of at most `eager` seconds
    are ticks: each may end at any point.
    """

    MOST_STEPS = 20_000
    # Between two runs, nothing is a point.
    is_over = True
    shared = frozenset()
    count = 0

    def run(self, job, choose, places=None, shared=None, log=None):
        """Call job() on a controlled thread, until all threads have ended. Returns
        the fault, or None.

        choose: choose(threads, able) returns the index of the next thread; the first
            `able` of them can run, those behind wait for a tick
        places: the points at which a choice is made; None for all
        shared: the places that several threads share; None if that is not yet known
        log: a list, which gets the name of the thread, the place and the line of each
            step
        """
        self.choose = choose
        self.places = places
        self.shared = shared
        self.log = log
        self.eager = job.eager
        # By object and place: the threads that were there, and whether one changed it.
        self.visits = {}
        self.births = itertools.count()
        self.now = 1000.0
        self.count = 0
        self.threads = []
        self.fault = None
        # Where the schedule deviated, and where it might have: (step, choices).
        self.plan = {}
        self.options = []
        # By place, what came before what.
        self.orders = {}
        self.finished = threading.Semaphore(0)
        self.is_over = False
        self.current = SteppedThread(job, name="main")
        self.current.begin()
        self.current.baton.release()
        if not self.finished.acquire(timeout=2 * SECONDS):
            raise RuntimeError(f"{self.current.name} waits for something real")
        return self.fault

    def step(self, place, thing=None, ready=None, seconds=math.inf, is_change=True):
        """Let others run, and wait until ready(), or for `seconds`."""
        if self.is_over:
            raise Stop
        thread = self.current
        self.count += 1
        if self.count > self.MOST_STEPS:
            self.end("it goes on for ever")
            raise Stop
        if self.shared is None and thing is not None:
            # This keeps the thing, so that no other one gets its address.
            visit = self.visits.setdefault((id(thing), place), [set(), False, thing])
            visit[0].add(thread.number)
            visit[1] |= is_change
        is_point = self.places is None or place in self.places or thing is None
        if is_point or not (ready is None or ready()):
            thread.place = place
            thread.ready = ready
            thread.until = self.now + seconds
            self.hand_over(thread)
            if self.is_over:
                raise Stop
            thread.ready = None
            thread.until = math.inf
            if self.log is not None:
                self.log.append((thread.name, place, self.line()))
        if self.shared is None or place in self.shared:
            self.orders[place] = hash((self.orders.get(place), thread.number))

    def hand_over(self, thread):
        """Choose who runs next. Returns False if no thread can."""
        order = sorted(self.threads, key=lambda t: (t.number - thread.number) % 10_000)
        able = [t for t in order if t.ready is None or t.ready()]
        late = [t for t in order if t not in able and t.until < math.inf]
        late.sort(key=lambda t: t.until)
        choices = able + [t for t in late if t.until <= self.now + self.eager]
        if not choices:
            what = "only a time-out made progress" if late else "nothing can run"
            where = [f"{t.name} at {t.place}" for t in late or order]
            self.end(f"{what}: {', '.join(where)}")
            return False
        index = 0
        if len(choices) > 1:
            index = min(self.choose(choices, len(able)), len(choices) - 1)
            self.options.append((self.count, len(choices)))
        if index > 0:
            self.plan[self.count] = index
        self.current = choices[index]
        if index >= len(able):
            self.now = max(self.now, self.current.until)
        if self.current is not thread:
            stays = thread in self.threads
            self.current.baton.release()
            if stays:
                thread.baton.acquire()
        return True

    def leave(self, thread):
        """Hand over at the end of a thread."""
        self.threads.remove(thread)
        if not self.threads:
            self.is_over = True
            self.finished.release()
        elif self.is_over or not self.hand_over(thread):
            self.current = self.threads[0]
            self.current.baton.release()

    def end(self, fault):
        """End the run: all threads are unwound."""
        if not self.is_over:
            self.fault = fault
        self.is_over = True

    def line(self):
        """Return the function and the line of mcp_lite that takes this step."""
        frame = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename != mcp_lite.__file__:
            frame = frame.f_back
        return f"{frame.f_code.co_name}:{frame.f_lineno}" if frame else ""


STEPS = Scheduler()


class Stepped:
    """A thing with points. Its place is the name that it got where it was made."""

    def __init__(self):
        frame = sys._getframe(1)
        while frame.f_locals.get("self") is self:
            frame = frame.f_back
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        name = re.match(r"\s*(self\.)?(\w+)[^=(]*=", line)
        owner = type(frame.f_locals["self"] if name and name[1] else self)
        self.place = f"{owner.__name__}.{name[2] if name else frame.f_lineno}"

    def step(self, ready=None, seconds=None):
        STEPS.step(self.place, self, ready, math.inf if seconds is None else seconds)


class SteppedLock(Stepped):
    """threading.Lock()"""

    is_held = False

    def acquire(self, blocking=True, timeout=-1):
        ready = (lambda: not self.is_held) if blocking else None
        self.step(ready, timeout if timeout >= 0 else None)
        if self.is_held:
            return False
        self.is_held = True
        return True

    def release(self, *exc_info):
        self.step()
        assert self.is_held, "released twice"
        self.is_held = False

    __enter__ = acquire
    __exit__ = release


class SteppedCondition(Stepped):
    """threading.Condition(lock)"""

    def __init__(self, lock):
        super().__init__()
        self.lock = lock
        self.waiters = []

    def wait(self, timeout=None):
        notices = []
        self.waiters.append(notices)
        self.lock.release()
        self.step(lambda: notices, timeout)
        self.lock.acquire()
        return bool(notices)

    def wait_for(self, predicate, timeout=None):
        while not predicate():
            if not self.wait(timeout):
                return predicate()
        return True

    def notify_all(self):
        assert self.lock.is_held
        self.step()
        for notices in self.waiters:
            notices.append(1)
        self.waiters = []


class SteppedQueue(Stepped):
    """queue.SimpleQueue()"""

    def __init__(self):
        super().__init__()
        self.items = collections.deque()

    def put(self, item):
        self.step()
        self.items.append(item)

    def get(self, block=True, timeout=None):
        self.step((lambda: self.items) if block else None, timeout)
        if not self.items:
            raise queue.Empty
        return self.items.popleft()

    def get_nowait(self):
        return self.get(False)

    def qsize(self):
        self.step()
        return len(self.items)

    def empty(self):
        return self.qsize() == 0


class SteppedEvent(Stepped):
    """threading.Event()"""

    flag = False

    def set(self):
        self.step()
        self.flag = True

    def clear(self):
        self.step()
        self.flag = False

    def is_set(self):
        self.step()
        return self.flag

    def wait(self, timeout=None):
        self.step(lambda: self.flag, timeout)
        return self.flag


class SteppedThread(Stepped):
    """threading.Thread()"""

    ready = None
    until = math.inf
    is_done = False
    # See Priorities.
    priority = None

    def __init__(self, target=None, args=(), name="thread", daemon=True):
        super().__init__()
        self.job = functools.partial(target, *args)
        # The place of `step` in the creator; `place` is where this thread is.
        self.site = self.place
        self.number = next(STEPS.births)
        self.name = f"{self.number} {name}"
        self.baton = threading.Lock()
        self.baton.acquire()

    def __hash__(self):
        # The order of a set of threads must not depend on their addresses.
        return self.number

    def begin(self):
        STEPS.threads.append(self)
        _thread.start_new_thread(self.main, ())

    def start(self):
        STEPS.step(self.site, self)
        self.begin()

    def main(self):
        self.baton.acquire()
        try:
            if not STEPS.is_over:
                self.job()
        except (Stop, SystemExit):
            pass
        except BaseException as error:
            STEPS.end(f"{self.name}: {type(error).__name__}: {error}")
        self.is_done = True
        STEPS.leave(self)

    def join(self, timeout=None):
        seconds = math.inf if timeout is None else timeout
        STEPS.step(self.site, self, lambda: self.is_done, seconds)

    def is_alive(self):
        STEPS.step(self.site, self)
        return not self.is_done


class SteppedTimer(SteppedThread):
    """threading.Timer()"""

    def __init__(self, seconds, job, args=()):
        over = SteppedEvent()
        super().__init__(lambda: over.wait(seconds) or job(*args), (), "timer")
        self.cancel = over.set


class SteppedLoop(asyncio.SelectorEventLoop):
    """A real event loop, whose wait for something to do is a controlled one."""

    def __init__(self):
        super().__init__()
        self._bell = SteppedQueue()
        select = self._selector.select

        def wait(seconds):
            with contextlib.suppress(queue.Empty):
                self._bell.get(seconds != 0, seconds)
            return select(0)

        self._selector.select = wait

    def time(self):
        return STEPS.now

    def _write_to_self(self):
        super()._write_to_self()
        self._bell.put(None)


def run_stepped_loop(main):
    """asyncio.run()"""
    loop = SteppedLoop()
    # A task's SystemExit is part of a scenario.
    loop.set_exception_handler(mcp_lite.do_nothing)
    try:
        return loop.run_until_complete(main)
    finally:
        if not STEPS.is_over:
            asyncio.runners._cancel_all_tasks(loop)
            loop.run_until_complete(loop.shutdown_asyncgens())
            STEPS.step("the loop closes")
        loop.close()


class SteppedFuture(SteppedEvent):
    """asyncio.run_coroutine_threadsafe()"""

    def __init__(self, coroutine, loop):
        super().__init__()
        self.future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        self.future.add_done_callback(lambda future: self.set())
        self.cancel = self.future.cancel

    def result(self):
        self.wait()
        return self.future.result()


class SteppedProperty(functools.partial):
    """functools.cached_property, which has a lock of its own up to Python 3.11."""

    def __get__(self, obj, owner=None):
        return obj.__dict__.setdefault(self.func.__name__, self(obj))


def changed(module, **others):
    """Return a stand-in for a module, with other things under some of its names."""
    return types.SimpleNamespace(**{**vars(module), **others})


STEPPED_MODULES = {
    # What is not here has no stand-in yet: to use it fails at once.
    "threading": types.SimpleNamespace(
        Condition=SteppedCondition,
        Event=SteppedEvent,
        Lock=SteppedLock,
        Thread=SteppedThread,
        Timer=SteppedTimer,
        TIMEOUT_MAX=threading.TIMEOUT_MAX,
        current_thread=lambda: STEPS.current,
        get_ident=lambda: STEPS.current.number,
        main_thread=threading.main_thread,
    ),
    "queue": types.SimpleNamespace(Empty=queue.Empty, SimpleQueue=SteppedQueue),
    "time": changed(
        time,
        monotonic=lambda: STEPS.now,
        time=lambda: STEPS.now,
        sleep=lambda seconds: STEPS.step("sleep", None, lambda: False, seconds),
    ),
    "asyncio": changed(
        asyncio,
        run=run_stepped_loop,
        run_coroutine_threadsafe=SteppedFuture,
    ),
    "functools": changed(functools, cached_property=SteppedProperty),
}


class Points(ast.NodeTransformer):
    """Makes `__see__(x, "name", is_change).name` of `x.name`, for the names that are
    changed elsewhere than in __init__."""

    MUTATORS = set(
        """add append clear discard extend pop popitem popleft remove setdefault
        update""".split()
    )
    # Local names of containers that threads share.
    LOCALS = {"jobs"}

    def __init__(self, tree):
        # Each name, and whether what it names is changed in place.
        self.names = {}
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef) and function.name != "__init__":
                for node in ast.walk(function):
                    self.note(node)

    def note(self, node):
        """Note the name of an attribute that this node changes."""
        inner = None
        if isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del)):
            if isinstance(node, ast.Attribute):
                self.names.setdefault(node.attr, False)
            elif isinstance(node, ast.Subscript):
                inner = node.value
        elif isinstance(node, ast.Call):
            is_mutator = getattr(node.func, "attr", "") in self.MUTATORS
            inner = node.func.value if is_mutator else None
        if isinstance(inner, ast.Attribute):
            self.names[inner.attr] = True

    def seen(self, value, name, is_change):
        given = [value, ast.Constant(name), ast.Constant(is_change)]
        call = ast.Call(ast.Name("__see__", ast.Load()), given, [])
        return ast.copy_location(call, value)

    def visit_Attribute(self, node):
        self.generic_visit(node)
        if node.attr in self.names:
            is_change = self.names[node.attr] or not isinstance(node.ctx, ast.Load)
            node.value = self.seen(node.value, node.attr, is_change)
        return node

    def visit_Name(self, node):
        if node.id in self.LOCALS and isinstance(node.ctx, ast.Load):
            return self.seen(node, node.id, True)
        return node

    def visit_AugAssign(self, node):
        target = node.target
        if not isinstance(target, ast.Attribute):
            return self.generic_visit(node)
        # To read and to write are two steps.
        read = ast.Attribute(target.value, target.attr, ast.Load())
        value = ast.BinOp(read, node.op, node.value)
        return self.visit(ast.copy_location(ast.Assign([target], value), node))


def see(thing, name, is_change):
    """A point: `thing.name` is about to be read, or changed."""
    if STEPS.shared is None or name in STEPS.shared:
        if not STEPS.is_over:
            STEPS.step(name, thing, is_change=is_change)
    else:
        # Most accesses are to what one thread uses alone.
        STEPS.count += 1
    return thing


class SteppedModule:
    """A private mcp_lite whose threads, locks, queues, events and time are the above;
    nothing outside it changes."""

    def __init__(self):
        path = mcp_lite.__file__
        self.text = pathlib.Path(path).read_text("utf-8")
        self.tree = ast.parse(self.text, path)
        # Where each function, and each method, stands: its first line, and its last.
        self.spans = {}
        for node in self.tree.body:
            members = node.body if isinstance(node, ast.ClassDef) else [node]
            group = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
            for each in members:
                if isinstance(each, ast.FunctionDef):
                    self.spans[group + each.name] = (each.lineno - 1, each.end_lineno)
        self.points = Points(self.tree)
        self.module = types.ModuleType("mcp_lite")
        names = self.module.__dict__
        names["__builtins__"] = {**vars(builtins), "__import__": self.find}
        names["__see__"] = see
        names["__file__"] = path
        self.execute(self.tree, names)
        self.module.log_line = self.log_line
        # The end of a slice of a wait is no time-out.
        self.module.WAIT_SLICE = math.inf
        # The order of a set of connections must not depend on their addresses.
        self.module.Connection.__hash__ = lambda connection: vars(
            connection
        ).setdefault("#", next(STEPS.births))

    def execute(self, tree, names):
        self.points.visit(tree)
        ast.fix_missing_locations(tree)
        # A single function must not evaluate its hints, either.
        lazily = __future__.annotations.compiler_flag
        code = compile(tree, mcp_lite.__file__, "exec", flags=lazily)
        exec(code, vars(self.module), names)

    def find(self, name, *given):
        return STEPPED_MODULES.get(name) or __import__(name, *given)

    def log_line(self, level, text, error=None, logger=""):
        if level >= logging.ERROR:
            STEPS.end(f"logged by {STEPS.current.name}: {text}: {error!r}")

    @contextlib.contextmanager
    def mutated(self, name, old, new):
        """Within the block, in the function or method of this name, the text `old` is
        `new`."""
        first, end = self.spans[name]
        text = "".join(self.text.splitlines(True)[first:end])
        assert old in text, f"{name} has no {old!r} any more: adapt the mutant"
        text = textwrap.dedent(text.replace(old, new, 1))
        # It keeps its lines, as things are named after those that make them.
        tree = ast.parse("\n" * first + text, mcp_lite.__file__)
        group, _, name = name.rpartition(".")
        owner = getattr(self.module, group) if group else self.module
        before = vars(owner)[name]
        # super() wants the name __class__ around a method.
        around = ast.parse("def make(__class__):\n    pass").body[0]
        around.body = [*tree.body, ast.Return(ast.Name(name, ast.Load()))]
        tree.body = [around]
        names = {}
        self.execute(tree, names)
        setattr(owner, name, names["make"](owner))
        try:
            yield
        finally:
            setattr(owner, name, before)


class Priorities:
    """Chooses by random priorities, which change at `changes` - 1 random points (a
    schedule of PCT: Burckhardt and others, 2010)."""

    def __init__(self, seed, changes, length):
        self.random = random.Random(seed)
        self.changes = {self.random.randrange(length) for _ in range(changes - 1)}
        self.calls = itertools.count()
        self.low = itertools.count(-1, -1)

    def __call__(self, choices, able):
        for thread in choices:
            if thread.priority is None:
                thread.priority = self.random.random()
        if next(self.calls) in self.changes:
            choices[0].priority = next(self.low)
        best = max(range(len(choices)), key=lambda n: choices[n].priority)
        if best >= able:
            # A tick that always wins would leave no time for others.
            choices[best].priority = next(self.low)
        return best


def by_plan(plan):
    """Choose as a schedule says, and else go on."""
    return lambda choices, able: plan.get(STEPS.count, 0)


class Exploration:
    """Runs a scenario by `most` schedules, the same ones each time, or until it fails:
    the default; then those with one deviation from it, and with two, in random order;
    and for the last part, random priorities.

    `fault` is what was found, and `plan` its schedule; `runs` how many there were, and
    `orders` which different ones.
    """

    SYSTEMATIC = 0.6

    def __init__(self, scenario, most):
        self.scenario = scenario
        self.most = most
        self.runs = 0
        self.orders = set()
        self.fault = None
        self.plan = {}
        self.shared = set()
        self.find_shared()
        self.deviate()
        for seed in itertools.count(100):
            if self.is_over(1.0):
                break
            chooser = Priorities(seed, 2 + seed % 3, self.points + 2)
            self.take(chooser, self.shared, self.shared)

    def take(self, *given):
        self.fault = STEPS.run(self.scenario, *given)
        self.plan = STEPS.plan
        self.runs += 1
        self.orders.add(hash(frozenset(STEPS.orders.items())))

    def is_over(self, part):
        return self.fault is not None or self.runs >= self.most * part

    def find_shared(self):
        """Which places do threads share? A few schedules show it."""
        for seed in range(-1, 8):
            if not self.is_over(self.SYSTEMATIC):
                self.take(by_plan({}) if seed < 0 else Priorities(seed, 3, 300))
                for (_, place), (threads, is_changed, _) in STEPS.visits.items():
                    if len(threads) > 1 and is_changed:
                        self.shared.add(place)

    def deviate(self):
        """Try the default schedule, then one deviation from it, then two."""
        places = self.shared & (self.scenario.focus or self.shared)
        shuffle = random.Random(1).shuffle
        level = [{}]
        for count in range(3):
            further = []
            shuffle(level)
            while level and not self.is_over(self.SYSTEMATIC):
                plan = level.pop()
                self.take(by_plan(plan), places, self.shared)
                if count == 0:
                    self.points = len(STEPS.options)
                if count == 2:
                    continue
                further += [
                    {**plan, step: index}
                    for step, choices in STEPS.options
                    if step > max(plan, default=0)
                    for index in range(1, choices)
                ]
            level = further

    def explain(self):
        """Return the fault, and the shortest schedule found for it with its steps: for
        each stretch of one thread, the last of them."""
        plan = self.plan
        for step in sorted(plan, reverse=True):
            less = {each: index for each, index in plan.items() if each != step}
            if STEPS.run(self.scenario, by_plan(less)):
                plan = less
        log = []
        fault = STEPS.run(self.scenario, by_plan(plan), log=log)
        lines = [f"{fault}; the schedule {plan}:"]
        for name, stretch in itertools.groupby(log, lambda entry: entry[0]):
            steps = [f"{place} in {line}" for _, place, line in stretch]
            lines.append(f"    {name}: " + ", ".join(steps[-3:]))
        return "\n".join(lines)


SCHEDULES = {}
# How many times as many schedules: 1 for each commit, 100 for a night.
SCHEDULES_FACTOR = int(os.environ.get("MCP_LITE_SCHEDULES", "1"))


def scenario(most, mutants=(), eager=0.0, focus=frozenset(), fault=None):
    """Register a scenario: a function of a SteppedModule's module, which starts threads
    and asserts what must hold however they run.

    most: how many schedules are tried
    mutants: (method, old text, new text): with this change, the scenario fails
    eager, focus: see Scheduler; systematic schedules deviate only at these places
    fault: what is wrong with mcp_lite today
    """

    def register(fn):
        def for_module(module):
            job = functools.partial(fn, module)
            job.eager = eager
            job.focus = set(focus)
            return job

        SCHEDULES[fn.__name__] = for_module, most, mutants, fault
        return fn

    return register


def stepping(fn, *args):
    """Start a controlled thread."""
    thread = SteppedThread(fn, args, fn.__name__)
    thread.start()
    return thread


def lines_of(*messages):
    return b"".join(json.dumps(each).encode() + b"\n" for each in messages)


def cancellation(id):
    return notice("cancelled", {"requestId": id})


# This one is answered.
CANCEL_REQUEST = {"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": 1}}


def changes_wanted(id):
    """A modern subscription to the list of tools."""
    wanted = {"notifications": {"toolsListChanged": True}}
    return request("subscriptions/listen", modern(**wanted), id)


def ids_of(messages):
    """The ids of the answers among these messages."""
    return sorted(each["id"] for each in messages if each and "method" not in each)


class SteppedPipe:
    """A stream of bytes between threads; b"" is its end."""

    def __init__(self):
        self.queue = SteppedQueue()
        self.data = b""
        self.is_broken = False

    def write(self, data):
        if self.is_broken:
            raise BrokenPipeError("gone")
        self.queue.put(bytes(data))

    def send(self, *messages):
        """Write messages, which a reader gets at once."""
        self.write(lines_of(*messages))

    def flush(self):
        pass

    def close(self):
        self.queue.put(b"")

    def read1(self, size):
        return self.queue.get()

    read = read1

    def message(self):
        """Return the next message; None at the end."""
        while b"\n" not in self.data:
            more = self.queue.get()
            if not more:
                return None
            self.data += more
        line, _, self.data = self.data.partition(b"\n")
        return json.loads(line)

    def rest(self):
        """Return all that was written and not read."""
        data = self.data + b"".join(self.queue.items)
        self.queue.items.clear()
        self.data = b""
        return [json.loads(each) for each in data.splitlines()]


def kept_wire(m):
    """A Transport that keeps the messages that are written."""
    transport = m.Transport()
    transport.sent = []

    def write(data):
        STEPS.step("write")
        transport.sent += [json.loads(each) for each in data.splitlines()]

    transport.write = write
    return transport


def doing(m, **jobs):
    """An Endpoint whose tools do these jobs(connection, request), and are answered."""
    endpoint = m.Endpoint()
    endpoint.may_block = True
    endpoint.served = []

    def serve_request(connection, request):
        name = request.params["name"]
        endpoint.served.append(request.id)
        jobs.get(name, m.do_nothing)(connection, request)
        connection.respond(request, m.result_message(request.id, {"name": name}))

    endpoint.serve_request = serve_request
    endpoint.lent_slot = lambda *ignored: contextlib.nullcontext()
    return endpoint


def conversation(m, transport, endpoint=None, role="server", version=""):
    """A Connection over a Transport."""
    protocol = m.Protocol(role, lambda: {"tools": {}})
    protocol.version = version
    outbox = m.LineOutbox(transport)
    pool = m.Workers("mcp-worker", 2)
    endpoint = endpoint or m.Endpoint()
    return m.Connection(protocol, endpoint, outbox, pool, transport=transport)


def over(m):
    return m.ConnectionClosed("over")


class SteppedStdio:
    """A server on two pipes, as Server.serve() makes it."""

    def __init__(self, m, **jobs):
        self.asked = SteppedPipe()
        self.told = SteppedPipe()
        transport = m.StreamTransport(self.asked, self.told)
        self.connection = conversation(m, transport, doing(m, **jobs))
        self.signals = m.Signals()
        # Gets an item when the deputy begins to wait for a tick.
        self.ticks = SteppedQueue()
        wait = self.signals.wait

        def wait_for(seconds=math.inf):
            if seconds == m.Deputy.TICK:
                self.ticks.put(None)
            return wait(seconds)

        self.signals.wait = wait_for
        self.thread = stepping(self.serve, m)

    def serve(self, m):
        deputy = m.Deputy(self.connection, self.signals)
        m.serve_stream(self.connection, self.signals, deputy.wait)
        self.connection.close(over(m))
        self.told.close()

    def end(self):
        """End the input. Returns the messages that were not read."""
        self.asked.close()
        self.thread.join()
        return self.told.rest()


# 6 Threads
@scenario(
    100,
    [
        ("Workers.submit", "with self._lock:", "if True:"),
        ("Workers.close", "with self._lock:", "if True:"),
    ],
)
def jobs_are_done_before_a_pool_is_closed(m):
    pool = m.Workers("w", 2)
    done = []
    taken = []

    def submit(name):
        if pool.submit(functools.partial(done.append, name)):
            taken.append(name)

    threads = [stepping(submit, each) for each in "ab"]
    assert pool.close(100.0)
    assert pool.close(100.0)
    at_close = sorted(done)
    for each in threads:
        each.join()
    assert at_close == sorted(taken) == sorted(done)


@scenario(60, [("Workers._run", "with self._lock:", "if True:")], eager=1.0)
def no_job_waits_while_a_thread_may_be_started(m):
    pool = m.Workers("w", 3)
    gate = SteppedEvent()
    for job in (m.do_nothing, gate.wait, gate.wait, gate.set):
        assert pool.submit(job)
    # Afterwards it is idle.
    while not pool.join_if_idle():
        STEPS.step("tick", None, lambda: False, 1.0)
    pool.leave()
    assert pool.close(100.0)


@scenario(
    100,
    [
        ("Workers.close", "self._guest or", "None or"),
        ("Workers.join_if_idle", "self.is_closed or", ""),
        ("Workers.join_if_idle", "with self._lock:", "if True:"),
    ],
)
def a_guest_of_a_pool_ends_before_it_is_closed(m):
    pool = m.Workers("w", 1)
    state = []

    def job():
        assert not state, "a job begins after close()"
        STEPS.step("job")
        assert not state, "a job goes on after close()"

    def visit():
        if pool.join_if_idle():
            pool.do(job)
            pool.leave()

    thread = stepping(visit)
    assert pool.close(100.0)
    state.append("closed")
    thread.join()


@scenario(100, [("Workers._grow", "and not self.is_closed", "")])
def a_thread_is_lent_while_a_pool_closes(m):
    pool = m.Workers("w", 1)

    def lend():
        with pool.lent():
            STEPS.step("lent")

    pool.submit(lend)
    pool.submit(m.do_nothing)
    assert pool.close(100.0)
    assert not pool.submit(m.do_nothing)


@scenario(100, [("Inbox.get", "self.close()", "pass")])
def an_inbox_overflows_while_two_threads_take(m):
    inbox = m.Inbox("test")
    taken = [[], []]

    def take(mine):
        while (item := inbox.get()) is not None:
            mine.append(item)

    threads = [stepping(take, each) for each in taken]
    for n in range(1, 5):
        inbox.put(n, m.MAX_QUEUED_BYTES // 2)
    inbox.close()
    for each in threads:
        each.join()
    assert all(each == sorted(each) for each in taken), taken
    both = taken[0] + taken[1]
    assert len(set(both)) == len(both), taken


@scenario(60, [("Inbox.put", "if item is None:", "if False:")])
def an_inbox_ends_while_it_overflows(m):
    inbox = m.Inbox("test")

    def take():
        while inbox.get() is not None:
            pass

    threads = [stepping(take), stepping(inbox.close)]
    inbox.put("a", m.MAX_QUEUED_BYTES)
    inbox.put("b", m.MAX_QUEUED_BYTES)
    for each in threads:
        each.join()


# 7 Connection
@scenario(
    140,
    [
        ("Connection.send", "with self._lock:", "if True:"),
        ("Connection.send", "if pending.id not in self.protocol.pending:", "if False:"),
    ],
    focus={"sent", "pending", "Connection._lock", "_lines"},
)
def a_request_is_cancelled_while_it_is_sent(m):
    wire = kept_wire(m)
    connection = conversation(m, wire, role="client", version=MODERN)
    pending = m.PendingRequest(connection, "tools/call")

    def send():
        connection.request(pending, {"name": "a"})

    thread = stepping(send)
    was_open = pending.cancel("no")
    thread.join()
    # Else it was not registered yet, so it goes on.
    assert was_open or pending.cancel("late")
    with pytest.raises(m.Cancelled):
        pending.result(100.0)
    connection.finish(100.0)
    methods = [each["method"] for each in wire.sent]
    assert methods in ([], ["tools/call", "notifications/cancelled"]), methods
    assert methods or was_open
    assert not connection.protocol.pending


@scenario(
    80,
    [
        ("Connection.register", "with self._lock:", "if True:"),
        ("Connection.resolve", "if pending is not None:", "if False:"),
    ],
    focus={"reason", "silence", "pending", "Connection._lock"},
)
def a_connection_closes_while_a_call_is_answered(m):
    wire = kept_wire(m)
    connection = conversation(m, wire, role="client", version=MODERN)
    ends = []

    def call():
        pending = m.PendingRequest(
            connection, "tools/call", on_done=lambda: ends.append(1)
        )
        with contextlib.suppress(m.ConnectionClosed):
            connection.request(pending, {"name": "a"})
            pending.result(100.0)

    def reply():
        connection.feed(lines_of({"jsonrpc": "2.0", "id": 1, "result": {}}))

    threads = [stepping(call), stepping(reply)]
    connection.close(over(m), 100.0)
    for each in threads:
        each.join()
    assert len(ends) == 1, ends
    assert not connection.protocol.pending


@scenario(
    60,
    [("Connection.register", "or self.silence", "")],
    focus={"reason", "silence", "pending", "Connection._lock"},
)
def the_input_ends_while_a_request_is_sent(m):
    connection = conversation(m, kept_wire(m), role="client", version=MODERN)

    def call():
        pending = m.PendingRequest(connection, "tools/call")
        with contextlib.suppress(m.ConnectionClosed):
            connection.request(pending, {"name": "a"})
            pending.result(100.0)

    thread = stepping(call)
    connection.input_ended()
    thread.join()
    connection.close(over(m), 100.0)
    assert not connection.protocol.pending


@scenario(
    150,
    [
        ("Connection.send", "with self._lock:", "if True:"),
        ("Connection.send", "if not self.is_in_flight(about):", "if False:"),
    ],
)
def another_thread_answers_while_a_handler_notifies(m):
    wire = kept_wire(m)
    others = []

    def notify(connection, request):
        def answer():
            result = m.result_message(request.id, {"n": 9})
            connection.cancel_request(request, result)

        others.append(stepping(answer))
        for n in (1, 2):
            connection.notify("notifications/message", {"n": n}, request)

    connection = conversation(m, wire, doing(m, notify=notify))
    connection.feed(lines_of(call_tool("notify")))
    connection.workers.close(100.0)
    for each in others:
        each.join()
    connection.finish(100.0)
    assert ids_of(wire.sent) == [1], wire.sent
    assert "id" in wire.sent[-1], wire.sent


@scenario(
    60,
    [
        ("Connection.respond", "with self._lock:", "if True:"),
        ("Connection._serve_batch", "batch.end()", "pass"),
    ],
)
def a_request_of_a_batch_is_cancelled(m):
    wire = kept_wire(m)
    connection = conversation(m, wire, doing(m), version="2025-03-26")
    calls = [call_legacy("a", n) for n in (1, 2)]
    connection.feed(json.dumps(calls).encode() + b"\n")
    connection.feed(lines_of(CANCEL_REQUEST))
    connection.finish(100.0)
    [batch] = wire.sent
    assert ids_of(batch) == [1, 2], batch
    assert not connection.protocol.in_flight


@scenario(40, [("Connection.lose", "self.cancel_pending(reason)", "pass")])
def a_peer_is_gone_before_an_answer(m):
    told = SteppedPipe()
    told.is_broken = True
    connection = conversation(m, m.StreamTransport(SteppedPipe(), told), doing(m))

    def ask():
        pending = m.PendingRequest(connection, "roots/list")
        with contextlib.suppress(m.ConnectionClosed):
            connection.request(pending, {})
            pending.result(100.0)

    thread = stepping(ask)
    connection.feed(lines_of(call_tool("a", 1), call_tool("a", 2)))
    thread.join()
    connection.close(over(m), 100.0)
    assert not connection.protocol.in_flight
    assert not connection.protocol.pending


# 12 Context
@scenario(
    120,
    [("Context._add_callback", "if self._request.cancelled:", "if False:")],
)
def a_request_is_cancelled_before_its_handler_sleeps(m):
    wire = kept_wire(m)

    def nap(connection, request):
        with contextlib.suppress(m.Cancelled):
            m.Context(connection, request, None).sleep(1000.0)

    connection = conversation(m, wire, doing(m, nap=nap))
    connection.feed(lines_of(call_tool("nap")))
    connection.feed(lines_of(cancellation(1)))
    connection.close(over(m), 100.0)
    assert wire.sent == []


@scenario(60, [("PendingRequest.cancel", "if self.sent and", "if")])
def a_request_is_cancelled_while_its_handler_asks(m):
    wire = kept_wire(m)
    ends = []

    def ask(connection, request):
        ctx = m.Context(connection, request, None)
        try:
            ends.append(ctx.roots())
        except (m.Cancelled, m.ConnectionClosed):
            ends.append("cancelled")

    connection = conversation(m, wire, doing(m, ask=ask), version="2025-11-25")
    connection.protocol.initialized = True
    connection.protocol.peer_capabilities = {"roots": {}}
    connection.feed(lines_of(call_legacy("ask")))
    connection.feed(lines_of(cancellation(1)))
    assert connection.workers.close(100.0)
    connection.finish(100.0)
    assert ends in ([], ["cancelled"])
    assert not connection.protocol.pending
    methods = [each.get("method") for each in wire.sent]
    assert methods in ([], ["roots/list", "notifications/cancelled"]), methods


@scenario(100, [("MainThread.__call__", "if self._closed:", "if False:")])
def a_main_thread_closes_while_others_post(m):
    main = m.MainThread()
    called = []

    def post():
        for name in "ab":
            main(lambda error=None, name=name: called.append(name))

    def call():
        try:
            main.call(functools.partial(called.append, "c"))
        except m.ConnectionClosed:
            called.append("c")

    threads = [stepping(post), stepping(call)]
    main.run_pending()
    main.run_pending()
    main.close()
    for each in threads:
        each.join()
    assert sorted(called) == ["a", "b", "c"], called


@scenario(
    300,
    [("MainThread.run_pending", "if not self._jobs.empty():", "if False:")],
    focus={"MainThread._jobs", "MainThread._running", "SteppedQueue.posts"},
)
def a_host_runs_what_is_posted(m):
    posts = SteppedQueue()
    main = m.MainThread(post=posts.put)
    called = []

    def post(name):
        main(lambda error=None: (called.append(name), posts.put(m.do_nothing)))

    threads = [stepping(post, each) for each in "ab"]
    # Another loop of the host's runs for a moment.
    threads.append(stepping(main.run_pending))
    while len(called) < 2:
        posts.get()()
    for each in threads:
        each.join()
    assert sorted(called) == ["a", "b"]


@scenario(
    40,
    [
        ("EventLoop.run", "with self._lock:", "if True:"),
        ("EventLoop.close", "self._running = None", "pass"),
    ],
)
def first_coroutines_share_a_loop(m):
    loop = m.EventLoop()
    loops = []

    async def work():
        loops.append(asyncio.get_running_loop())

    def run():
        coroutine = work()
        try:
            loop.run(coroutine)
        finally:
            coroutine.close()

    threads = [stepping(run), stepping(run)]
    for each in threads:
        each.join()
    loop.close()
    assert len(loops) == 2
    assert len(set(loops)) == 1
    run()
    loop.close()


# 13 stdio
@scenario(
    400,
    [
        ("LineOutbox._flush", "while self._lines and", "if self._lines and"),
        ("LineOutbox.drain", "self._writer.submit(self._flush)", "pass"),
        ("LineOutbox.drain", "self._written.wait_for(", "do_nothing("),
    ],
    fault="drain() returns before the last write",
)
def an_outbox_is_drained_while_others_write(m):
    wire = kept_wire(m)
    outbox = conversation(m, wire).outbox

    def send(n, flush):
        outbox.send({"n": n})
        flush()

    threads = [stepping(send, 1, outbox.flush), stepping(send, 2, outbox.flush_soon)]
    outbox.send({"n": 3})
    outbox.drain(100.0)
    assert {"n": 3} in wire.sent, wire.sent
    for each in threads:
        each.join()
    assert sorted(each["n"] for each in wire.sent) == [1, 2, 3], wire.sent


@scenario(
    150,
    [
        ("LineOutbox._flush", "self._written.notify_all()", "pass"),
        (
            "LineOutbox._queue",
            "with self._lock:\n            self._lines.append(line)",
            "self._lines = [*self._lines, line]",
        ),
        ("LineOutbox._take", "if self._is_writing:", "if False:"),
    ],
)
def two_threads_write_more_than_may_wait(m):
    wire = kept_wire(m)
    connection = conversation(m, wire)

    def send(name):
        for n in range(2):
            connection.outbox.send({"n": f"{name}{n}"})
            connection.outbox._flush(1)

    threads = [stepping(send, "a"), stepping(send, "b")]
    for each in threads:
        each.join()
    got = [each["n"] for each in wire.sent]
    for name in "ab":
        assert [each for each in got if each[0] == name] == [name + "0", name + "1"]
    connection.close(over(m), 100.0)


DEPUTY = {"_is_watched", "_is_serving", "_readers", "_burst", "_guest", "Deputy._lock"}


@scenario(
    40,
    [
        ("Deputy._check_reader", "self._connection.outbox.flush_soon()", "pass"),
        ("Deputy._check_reader", "self._start_reader()", "pass"),
    ],
    eager=0.005,
)
def an_answer_does_not_wait_for_a_slow_call(m):
    gate = SteppedEvent()
    stdio = SteppedStdio(m, slow=lambda *_: gate.wait())
    stdio.asked.send(call_tool("a", 1), call_tool("slow", 2))
    assert stdio.told.message()["id"] == 1
    stdio.asked.send(call_tool("a", 3))
    assert stdio.told.message()["id"] == 3
    gate.set()
    assert stdio.told.message()["id"] == 2
    assert stdio.end() == []


@scenario(
    40,
    [("Deputy._check_reader", "self._hand_over(self._burst)", "pass")],
    eager=0.005,
)
def a_call_does_not_wait_for_a_slow_one(m):
    gate = SteppedEvent()
    stdio = SteppedStdio(m, slow=lambda *_: gate.wait())
    stdio.asked.send(call_tool("a", 1), call_tool("slow", 2), call_tool("a", 3))
    assert ids_of([stdio.told.message(), stdio.told.message()]) == [1, 3]
    gate.set()
    assert stdio.told.message()["id"] == 2
    assert stdio.end() == []


@scenario(
    60,
    [
        ("Deputy._check_reader", "self._is_watched = False", "pass"),
    ],
    eager=0.005,
    focus=DEPUTY,
)
def a_slow_call_behind_a_burst_is_watched(m):
    gate = SteppedEvent()
    does = {"slow": lambda *_: gate.wait(), "opens": lambda *_: gate.set()}
    stdio = SteppedStdio(m, **does)
    stdio.asked.send(call_tool("a", 1))
    stdio.ticks.get()
    stdio.asked.send(call_tool("slow", 2))
    stdio.asked.send(call_tool("opens", 3))
    assert ids_of(stdio.end()) == [1, 2, 3]


@scenario(
    170,
    [
        ("Deputy._serve_burst", "if self._readers != number:", "if False:"),
        (
            "Deputy._serve_burst",
            "leave()\n        with self._lock:",
            "leave()\n        if 1:",
        ),
    ],
    eager=0.005,
    focus=DEPUTY,
)
def no_burst_is_lost_as_the_reader_changes(m):
    stdio = SteppedStdio(m)
    stdio.asked.send(call_tool("a", 1))
    stdio.ticks.get()
    for n in (2, 3):
        stdio.asked.send(call_tool("a", n))
    assert ids_of(stdio.end()) == [1, 2, 3]


# 14 Server
def offering(m, **options):
    """A server with a tool."""
    server = m.Server("s", **options)
    server.add_tool(lambda: "x", name="a")
    return server


def add_another(server):
    server.add_tool(lambda: "y", name="b")


@scenario(40, [("ServerEndpoint.serve_request", "self._slots.put(None)", "pass")])
def two_clients_share_a_slot(m):
    server = offering(m, max_workers=1)
    wires = [kept_wire(m), kept_wire(m)]
    first, second = [server.connect(each) for each in wires]
    first.feed(lines_of(call_tool("a", 1)))
    second.feed(lines_of(call_tool("a", 2), cancellation(2)))
    first.finish(100.0)
    server.disconnect(second, 100.0)
    server.disconnect(first, 100.0)
    assert ids_of(wires[0].sent) == [1]
    # It is free again.
    last = server.connect(kept_wire(m))
    last.feed(lines_of(call_tool("a", 3)))
    last.finish(100.0)
    server.disconnect(last)


@scenario(
    60,
    [
        (
            "ServerEndpoint._subscriptions_listen",
            "subscription.send(",
            "self._subscriptions[ctx._request] = subscription\n        subscription.send(",
        )
    ],
)
def a_list_changes_while_a_client_subscribes(m):
    server = offering(m)
    wire = kept_wire(m)
    connection = server.connect(wire)
    changer = stepping(add_another, server)
    connection.feed(lines_of(changes_wanted(1)))
    connection.input_ended()
    connection.workers.close(100.0)
    connection.endpoint.input_ended(connection)
    connection.finish(100.0)
    changer.join()
    server.disconnect(connection, 100.0)
    methods = [each.get("method", "the end") for each in wire.sent]
    # The older form of the end.
    with contextlib.suppress(ValueError):
        methods.remove("notifications/cancelled")
    changes = ["notifications/tools/list_changed"] * (len(methods) - 2)
    begin = "notifications/subscriptions/acknowledged"
    assert len(changes) <= 1
    assert methods == [begin, *changes, "the end"], methods


@scenario(
    20,
    [("serve_stream", "connection.endpoint.input_ended(connection)", "pass")],
    eager=0.005,
)
def the_input_ends_behind_a_subscription(m):
    server = offering(m, max_workers=1)
    gate = SteppedEvent()
    # With `visible`, the user's code may run for any request, so a worker serves it.
    server.add_tool(gate.wait, name="slow", visible=lambda ctx: True)
    asked = SteppedPipe()
    told = SteppedPipe()
    end = server._endpoint.input_ended

    def input_ended(connection):
        end(connection)
        # The slow call ends when it has been seen that the input has ended.
        gate.set()

    server._endpoint.input_ended = input_ended
    thread = stepping(server.serve, asked, told)
    asked.send(call_tool("slow", 1), changes_wanted(2))
    asked.close()
    thread.join()
    assert ids_of(told.rest()) == [1, 2]


# 15 Client
@scenario(60, [("Connection.resolve", "if pending is not None:", "if False:")])
def a_client_closes_while_it_calls(m):
    server = offering(m)
    begun = SteppedEvent()

    @server.tool
    def work() -> str:
        begun.set()
        return "x"

    client = m.Client(server, protocol_version=MODERN)
    client.connect()
    ends = []

    def call():
        try:
            ends.append(client.call("work"))
        except m.ConnectionClosed:
            ends.append("closed")

    caller = stepping(call)
    begun.wait()
    client.close()
    caller.join()
    assert ends in (["x"], ["closed"]), ends


@scenario(
    70, [("Listening._end", "self._client._endpoint.listenings.pop(self, None)", "")]
)
def a_client_closes_while_it_listens(m):
    server = offering(m)
    client = m.Client(server, protocol_version=MODERN)
    client.connect()
    got = []

    def hear():
        with contextlib.suppress(m.ConnectionClosed), client.listen() as changes:
            got.extend(changes)

    hearer = stepping(hear)
    changer = stepping(add_another, server)
    client.close()
    hearer.join()
    changer.join()
    assert len(got) <= 1
    assert not client._endpoint.listenings


def is_first_round(message):
    is_call = message["method"] == "tools/call"
    return is_call and "inputResponses" not in message["params"]


class SilentSecondRound:
    """A Transport to a server that asks a question, and then is silent."""

    def __new__(cls, m):
        transport = m.Transport()
        transport.feeds = True
        transport.seen = []
        transport.incoming = SteppedQueue()
        # Gets an item when the server is about to ask.
        transport.asked = SteppedQueue()

        def begin(connection):
            transport.connection = connection
            transport.thread = stepping(serve)

        def serve():
            while (message := transport.incoming.get()) is not None:
                transport.seen.append(message)
                result = None
                if message["method"] == "server/discover":
                    result = {
                        "supportedVersions": [MODERN],
                        "capabilities": {"tools": {}},
                    }
                elif is_first_round(message):
                    transport.asked.put(None)
                    question = {"method": "roots/list", "params": {}}
                    result = {
                        "resultType": "input_required",
                        "inputRequests": {"q": question},
                        "requestState": "s",
                    }
                if result is not None:
                    answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
                    transport.connection.feed(lines_of(answer))

        def write(data):
            for each in data.splitlines():
                transport.incoming.put(json.loads(each))

        transport.start = begin
        transport.write = write
        transport.close = lambda: transport.incoming.put(None)
        return transport


@scenario(
    50,
    [("Call._send", "if self._is_cancelled:", "if False:")],
    focus={"_is_cancelled", "_pending", "sent", "pending"},
)
def a_call_is_cancelled_between_its_rounds(m):
    transport = SilentSecondRound(m)
    client = m.Client(transport, protocol_version=MODERN, roots=["/tmp"])
    client.connect()
    call = client.start_call("a")
    ends = []

    def wait():
        try:
            ends.append(call.value(100.0))
        except m.Cancelled:
            ends.append("cancelled")

    waiter = stepping(wait)
    transport.asked.get()
    call.cancel()
    waiter.join()
    client.close()
    transport.thread.join()
    assert ends == ["cancelled"], ends
    seen = [each["id"] for each in transport.seen if each["method"] == "tools/call"]
    cancelled = [
        each["params"]["requestId"]
        for each in transport.seen
        if each["method"] == "notifications/cancelled"
    ]
    assert len(seen) <= 2
    assert len(seen) < 2 or cancelled[-1:] == seen[-1:], (seen, cancelled)


@scenario(30, [("Call.result", "self._waiting.release()", "pass")])
def two_threads_wait_for_one_call(m):
    client = m.Client(offering(m), protocol_version=MODERN)
    client.connect()
    call = client.start_call("a")
    values = []

    def wait():
        values.append(call.value(100.0))

    threads = [stepping(wait), stepping(wait)]
    for each in threads:
        each.join()
    client.close()
    assert values == ["x", "x"]


@scenario(30, [("Client.__enter__", "with self._connecting:", "if True:")])
def two_threads_enter_one_client(m):
    client = m.Client(offering(m), protocol_version=MODERN)
    values = []

    def use():
        with client:
            values.append(client.call("a"))
            entered.append(1)
            while len(entered) < 2:
                STEPS.step("entered", None, lambda: len(entered) == 2)

    entered = []
    threads = [stepping(use), stepping(use)]
    for each in threads:
        each.join()
    assert values == ["x", "x"]


@scenario(40, [("Client.flush_callbacks", "is_done.wait(timeout)", "True")])
def what_a_client_hears_is_passed_on(m):
    heard = []
    server = offering(m)
    client = m.Client(
        server,
        protocol_version="2025-11-25",
        on_notification=lambda method, params: heard.append(method),
    )
    client.connect()
    # Behind "initialized", before which a session hears of no change.
    client.ping()
    changer = stepping(add_another, server)
    changer.join()
    # Not before the line, but behind it.
    client.ping()
    assert client.flush_callbacks()
    assert heard == ["notifications/tools/list_changed"], heard
    client.close()


# 17 HTTP streams
def exchange_of(m, endpoint, message=None, method="POST", **headers):
    """An exchange with a client in memory."""

    class InMemory(m.Exchange):
        is_gone = False
        # Set when its own thread has gone on.
        is_closed = False

        def read_body(self):
            self.claim(len(self.body))
            return self.body

        def start(self, status, headers, body):
            STEPS.step("start")
            self.write(body is not None, body or b"")

        def put(self, events, ending):
            STEPS.step("put")
            self.write(ending, events)

        def write(self, is_last, data):
            if self.is_gone:
                raise BrokenPipeError("gone")
            assert not self.is_closed, "the connection is closed"
            assert not self.has_ended, "after the end"
            self.has_ended = is_last
            self.out += data

        def messages(self):
            """Return what came."""
            if self.kind == m.JSON_TYPE:
                return [json.loads(self.out)]
            lines = self.out.splitlines()
            return [json.loads(each[6:]) for each in lines if each[:7] == b"data: {"]

        def ids(self):
            """Return the ids of the events that came."""
            lines = self.out.splitlines()
            return [each[4:].decode() for each in lines if each[:4] == b"id: "]

    fields = {"host": "localhost", "content-type": m.JSON_TYPE}
    fields.update({name.replace("_", "-"): text for name, text in headers.items()})
    exchange = InMemory(endpoint, method, "/mcp", fields, "192.0.2.1")
    exchange.body = json.dumps(message).encode()
    exchange.out = b""
    exchange.has_ended = False
    return exchange


def modern_exchange(m, endpoint, message):
    headers = {"mcp_protocol_version": MODERN, "mcp_method": message["method"]}
    if "name" in message["params"]:
        headers["mcp_name"] = message["params"]["name"]
    return exchange_of(m, endpoint, message, **headers)


def endpoint_of(m, server, **options):
    endpoint = m.HttpEndpoint(server._endpoint, path="/mcp", **options)
    endpoint.comment_seconds = math.inf
    return endpoint


class LeftToAnother:
    """A modern POST whose handler leaves the request to another thread, which calls
    answer(connection, request) and flushes."""

    def __init__(self, m, answer, then=None):
        server = offering(m)
        self.endpoint = endpoint_of(m, server)
        self.exchange = modern_exchange(m, self.endpoint, call_tool("a"))
        self.others = []

        def work(connection, request):
            answer(connection, request)
            request.outbox.flush_soon()

        def serve(connection, request):
            self.others.append(stepping(work, connection, request))
            if then is not None:
                then(connection, request)

        server._endpoint.serve_request = serve

    def finish(self):
        for each in self.others:
            each.join()
        self.endpoint.tidiers.close(100.0)
        assert self.exchange.is_over
        assert not self.endpoint.serving
        assert not self.endpoint.loads


@scenario(
    100,
    [
        ("MessageQueue.take", "with self._lock:", "if True:"),
        ("Exchange.flush_soon", "bell.put(None)", "pass"),
        ("Exchange.wait_until_over", "self.flush()", "pass"),
    ],
)
def another_thread_sends_all_of_a_response(m):
    def answer(connection, request):
        for n in (1, 2):
            connection.notify("notifications/message", {"n": n}, request)
            text = b'"n":%d' % n
            STEPS.step("seen", None, lambda text=text: text in left.exchange.out)
        connection.respond(request, m.result_message(request.id, {}))

    left = LeftToAnother(m, answer)
    left.endpoint.answer(left.exchange)
    left.finish()
    sent = [each.get("params", {}).get("n", "end") for each in left.exchange.messages()]
    assert sent == [1, 2, "end"], sent
    assert left.exchange.has_ended


@scenario(
    60,
    [
        ("Exchange.flush", "with self._writing:", "if True:"),
    ],
)
def another_thread_sends_a_lone_answer(m):
    def answer(connection, request):
        connection.respond(request, m.result_message(request.id, {}))

    left = LeftToAnother(m, answer)
    left.endpoint.answer(left.exchange)
    left.exchange.is_closed = True
    left.finish()
    assert ids_of(left.exchange.messages()) == [1]


@scenario(60, [("Connection.respond", "return False", "pass")])
def a_handler_and_another_thread_answer(m):
    def answer(connection, request):
        connection.cancel_request(request, m.result_message(request.id, {"n": 1}))

    def then(connection, request):
        connection.notify("notifications/message", {"n": 0}, request)
        connection.respond(request, m.result_message(request.id, {"n": 2}))

    left = LeftToAnother(m, answer, then)
    left.endpoint.answer(left.exchange)
    left.finish()
    messages = left.exchange.messages()
    assert ids_of(messages) == [1], messages
    assert "id" in messages[-1]


@scenario(
    40,
    [("Exchange.client_left", "self._end()", "pass")],
)
def a_client_leaves_while_another_thread_works(m):
    def answer(connection, request):
        connection.notify("notifications/message", {"n": 1}, request)
        STEPS.step("working", None, lambda: request.cancelled)

    left = LeftToAnother(m, answer)
    left.exchange.hung_up = lambda: True

    def find():
        STEPS.step("serving", None, lambda: left.exchange in left.endpoint.serving)
        left.endpoint.find_departed()

    ticker = stepping(find)
    left.endpoint.answer(left.exchange)
    ticker.join()
    left.finish()


@scenario(60, [("HttpConnection.client_left", "self.cancel_requests()", "pass")])
def a_client_leaves_while_its_handler_works(m):
    begun = SteppedEvent()

    def then(connection, request):
        begun.set()
        STEPS.step("working", None, lambda: request.cancelled)

    left = LeftToAnother(m, m.do_nothing, then)
    left.exchange.hung_up = lambda: True

    def find():
        begun.wait()
        left.endpoint.find_departed()

    ticker = stepping(find)
    left.endpoint.answer(left.exchange)
    ticker.join()
    left.finish()


@scenario(
    40,
    [("HttpEndpoint.close", "connection.retire()", "pass")],
    eager=0.1,
)
def an_endpoint_closes_during_a_call_and_a_subscription(m):
    server = offering(m)
    endpoint = endpoint_of(m, server)
    call = modern_exchange(m, endpoint, call_tool("a"))
    listen = modern_exchange(m, endpoint, changes_wanted(1))
    threads = [stepping(endpoint.answer, each) for each in (call, listen)]
    # As HttpServer.close() does.
    while not m.join_all(threads, m.TICK_SECONDS):
        endpoint.close(False)
    assert call.is_over
    assert listen.is_over
    assert not endpoint.serving
    assert ids_of(call.messages()) == [1]


# 18 HTTP endpoint
class InSession:
    """An endpoint with one session of the legacy era."""

    def __init__(self, m):
        self.m = m
        self.server = offering(m)
        self.endpoint = endpoint_of(m, self.server, stateless=False)
        hello = request("initialize", opening("2025-11-25"), 0)
        self.endpoint.answer(exchange_of(m, self.endpoint, hello))
        [self.session] = self.endpoint.legacy.sessions.values()
        self.endpoint.answer(self.exchange(notice("initialized")))

    def exchange(self, message, method="POST", **headers):
        session_id = self.session.session_id
        headers["mcp_session_id"] = session_id
        return exchange_of(self.m, self.endpoint, message, method, **headers)

    def answering(self, *exchanges):
        return [stepping(self.endpoint.answer, each) for each in exchanges]

    def resume(self, after):
        """Resume a stream, on this thread. Returns what came, or []."""
        exchange = self.exchange(None, "GET", last_event_id=after)
        self.endpoint.answer(exchange)
        return exchange.messages() if exchange.status == 200 else []


@scenario(
    70,
    [
        ("SessionStream.carry_on", "with self._lock:", "if True:"),
        ("SessionStream.take", "self.taken = self.added", "pass"),
    ],
)
def a_client_resumes_while_its_handler_sends(m):
    web = InSession(m)

    @web.server.tool
    def tell(ctx: m.Context) -> str:
        for n in range(2):
            ctx.log("error", n)
        return "x"

    post = web.exchange(call_legacy("tell"))

    def leave():
        post.is_gone = True
        web.session.client_left(post)

    [poster] = web.answering(post)
    stepping(leave).join()
    seen = post.ids()
    messages = post.messages() if post.out else []
    if seen and not ids_of(messages):
        more = web.resume(seen[-1])
        values = [each.get("params", {}).get("data", "end") for each in messages + more]
        assert not more or values == [0, 1, "end"], (values, seen)
    poster.join()
    web.endpoint.tidiers.close(100.0)
    web.session.end()


@scenario(
    40,
    [
        ("SessionStream.carry_on", "before.detach()", "pass"),
        ("SessionStream.carry_on", "before.flush_soon()", "pass"),
    ],
)
def a_second_listener_takes_over(m):
    web = InSession(m)
    gets = [web.exchange(None, "GET") for _ in range(2)]
    attached = SteppedQueue()
    carry_on = web.session.outbox.carry_on

    def carry(exchange, after):
        carry_on(exchange, after)
        attached.put(exchange)

    web.session.outbox.carry_on = carry
    threads = web.answering(*gets)
    changer = stepping(add_another, web.server)
    for _ in gets:
        attached.get()
    changer.join()
    web.session.end()
    for each in threads:
        each.join()
    assert all(each.is_over for each in gets)
    assert not web.endpoint.serving
    changes = [each["method"] for get in gets for each in get.messages()]
    assert len(changes) <= 1, changes


def end_session(m, is_early):
    """A session ends while its client listens, and calls: before the handler begins,
    or not."""
    web = InSession(m)
    begun = SteppedEvent()

    @web.server.tool
    def nap(ctx: m.Context) -> None:
        begun.set()
        ctx.sleep(1000.0)

    post = web.exchange(call_legacy("nap"))
    get = web.exchange(None, "GET")
    threads = web.answering(post, get)
    if not is_early:
        begun.wait()
    web.session.end()
    for each in threads:
        each.join()
    assert post.is_over
    assert get.is_over
    assert not web.endpoint.serving
    assert not web.session.streams


@scenario(
    60,
    [("HttpConnection.end", "self.lose(_OVER)", "pass")],
)
def a_session_ends_during_a_call(m):
    end_session(m, False)


@scenario(60, fault="the handler is not cancelled")
def a_session_ends_as_a_call_arrives(m):
    end_session(m, True)


@scenario(40, [("MessageQueue.finish", "self.close()", "pass")])
def another_post_cancels_a_call(m):
    web = InSession(m)
    post = web.exchange(call_legacy("a"))
    stop = web.exchange(cancellation(1))
    for each in web.answering(post, stop):
        each.join()
    assert post.is_over
    assert stop.is_over
    assert not web.endpoint.serving
    assert len(post.messages() if post.out else []) <= 1
    web.session.end()


@scenario(30, [("SessionStream.leave", "exchange.detach()", "pass")])
def a_handler_closes_its_stream(m):
    web = InSession(m)

    @web.server.tool
    def tell(ctx: m.Context) -> str:
        ctx.log("error", 0)
        ctx.close_stream(0)
        ctx.log("error", 1)
        return "x"

    post = web.exchange(call_legacy("tell"))
    ended = SteppedEvent()
    put = post.put

    def put_and_note(events, ending):
        put(events, ending)
        if ending:
            ended.set()

    post.put = put_and_note
    [poster] = web.answering(post)
    ended.wait()
    assert not ids_of(post.messages())
    messages = post.messages() + web.resume(post.ids()[-1])
    poster.join()
    web.endpoint.tidiers.close(100.0)
    values = [each.get("params", {}).get("data", "end") for each in messages]
    assert values == [0, 1, "end"], values
    web.session.end()


@scenario(30, [("Exchange._end", "self.bell.put(None)", "pass")])
def a_listener_hangs_up(m):
    web = InSession(m)
    get = web.exchange(None, "GET")
    get.hung_up = lambda: True
    threads = web.answering(get)
    while not get.is_over:
        STEPS.step("opened", None, lambda: get in web.endpoint.serving or get.is_over)
        web.endpoint.find_departed()
    for each in threads:
        each.join()
    assert not web.endpoint.serving
    web.session.end()


# 19 HTTP server
@scenario(
    60,
    [("HttpServer.close", "self._is_closed.set()", "pass")],
    eager=0.1,
)
def an_http_server_closes_as_a_client_connects(m):
    endpoint = endpoint_of(m, offering(m))
    exchange = modern_exchange(m, endpoint, call_tool("a"))

    class Listener(m.HttpServer):
        """What socketserver does, without sockets."""

        socket = None

        def __init__(self):
            self.asked = SteppedEvent()
            self.done = SteppedEvent()

        def serve_forever(self, interval):
            while not self.asked.wait(interval):
                self.service_actions()
            self.done.set()

        def shutdown(self):
            self.asked.set()
            self.done.wait()

        def server_close(self):
            pass

    listener = Listener()
    # The listening socket is another one's, so it is not shut.
    listener.begin_serving(endpoint, "http://x", 1, True, 10)

    def connect():
        thread = STEPS.current
        listener.connections["sock"] = types.SimpleNamespace(
            deadline=math.inf,
            limit=math.inf,
            is_serving=True,
            request=sock,
            thread=thread,
        )
        if not listener.closing.is_set():
            endpoint.answer(exchange)
        listener.connections.pop("sock", None)

    with socket.socket() as sock:
        threads = [stepping(connect), stepping(listener.close)]
        listener.close()
        for each in threads:
            each.join()
    assert exchange.is_over == exchange.has_ended


@pytest.fixture(scope="module")
def stepped():
    """mcp_lite under control."""
    return SteppedModule()


MUTANTS = [
    pytest.param(name, *mutant, id=f"{name}-{n}")
    for name, (_, _, mutants, _) in SCHEDULES.items()
    for n, mutant in enumerate(mutants)
]


class TestSchedules:
    """What must hold whichever thread runs when, by many schedules of small programs."""

    @pytest.mark.parametrize(
        "name",
        [
            pytest.param(
                name,
                marks=pytest.mark.xfail(
                    fault is not None, reason=str(fault), strict=True
                ),
            )
            for name, (_, _, _, fault) in SCHEDULES.items()
        ],
    )
    def test_a_scenario(self, stepped, name):
        """It holds under each schedule; MCP_LITE_SCHEDULES=100 tries 100 times as many."""
        scenario, most, _, _ = SCHEDULES[name]
        found = Exploration(scenario(stepped.module), most * SCHEDULES_FACTOR)
        if found.fault is not None:
            pytest.fail(found.explain(), pytrace=False)
        assert len(found.orders) > 1

    @pytest.mark.parametrize("name, method, old, new", MUTANTS)
    def test_a_mutant(self, stepped, name, method, old, new):
        """The same schedules notice a change of what makes it hold."""
        scenario, most, _, _ = SCHEDULES[name]
        with stepped.mutated(method, old, new):
            found = Exploration(scenario(stepped.module), most)
        assert found.fault is not None
        # The change itself must be sound.
        assert not re.search("NameError|AttributeError|TypeError", found.fault)

    def test_it_repeats(self, stepped):
        """The same schedules, with the same steps."""
        scenario, _, _, _ = SCHEDULES[
            "an_endpoint_closes_during_a_call_and_a_subscription"
        ]
        first, second = [Exploration(scenario(stepped.module), 40) for _ in range(2)]
        assert first.orders == second.orders
        assert first.runs == second.runs == 40


TOO_MUCH = "too deep, too large or too much work for the schema"


class TestSchema:
    """The room JSON Schema."""

    @pytest.mark.parametrize(
        "schema, good, bad",
        [
            ({"type": "integer"}, [1, 1.0, -3], [True, 1.5, "1", None]),
            ({"type": "number"}, [1, 1.5], [True, "1"]),
            ({"type": ["string", "null"]}, ["", None], [0]),
            ({"enum": [1, "a", None]}, [1.0, "a", None], [True, "b"]),
            ({"const": {"a": [1]}}, [{"a": [1.0]}], [{"a": [True]}]),
            ({"minimum": 1, "exclusiveMaximum": 3}, [1, 2.9, "x"], [0, 3]),
            ({"exclusiveMinimum": 1, "maximum": 3}, [1.1, 3, "x"], [1, 3.1]),
            ({"minLength": 2, "maxLength": 3}, ["ab", 1], ["a", "abcd"]),
            ({"multipleOf": 0.1}, [0.3, 1], [0.25, float("inf")]),
            ({"multipleOf": 1e-8}, [1e308, 3e-8], [1e-9]),
            ({"items": {"type": "string"}, "minItems": 1}, [["a"], 1], [[], [1]]),
            ({"prefixItems": [{"minimum": 1}], "items": False}, [[1], []], [[1, 2]]),
            ({"uniqueItems": True}, [[1, True], [{"a": 1}, {"a": 2}]], [[1, 1.0]]),
            ({"uniqueItems": True}, [], [[{"a": 1, "b": 2}, {"b": 2, "a": 1}]]),
            ({"contains": {"const": 1}, "maxContains": 1}, [[1, 2]], [[2], [1, 1]]),
            ({"required": ["a"]}, [{"a": 1}, 1], [{}]),
            (
                {
                    "properties": {"a": {"type": "integer"}},
                    "patternProperties": {"^x": {"type": "integer"}},
                    "additionalProperties": {"type": "string"},
                },
                [{"a": 1, "x1": 1, "y": "s"}],
                [{"a": "x"}, {"x1": "s"}, {"y": 1}],
            ),
            ({"propertyNames": {"maxLength": 2}}, [{"ab": 1}], [{"abc": 1}]),
            ({"dependentRequired": {"a": ["b"]}}, [{"a": 1, "b": 1}, {}], [{"a": 1}]),
            (
                {"dependentSchemas": {"c": {"maxProperties": 1}}},
                [{"c": 1}],
                [{"c": 1, 2: 1}],
            ),
            ({"allOf": [{"minimum": 1}, {"maximum": 2}]}, [1], [0, 3]),
            ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, [1, None], ["a"]),
            ({"oneOf": [{"minimum": 1}, {"maximum": 1}]}, [0, 2], [1]),
            ({"not": {"type": "string"}}, [1], ["a"]),
            (
                {"if": {"type": "string"}, "then": {"minLength": 2}, "else": False},
                ["ab"],
                ["a", 1],
            ),
            ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "null"}}}, [None], [1]),
            (
                {
                    "properties": {"a": {"$ref": "#me"}},
                    "type": "object",
                    "$anchor": "me",
                },
                [{"a": {"a": {}}}],
                [{"a": {"a": 1}}],
            ),
            (
                {
                    "$id": "http://x/a",
                    "$ref": "b#/$defs/c",
                    "$defs": {"b": {"$id": "b", "$defs": {"c": {"const": 1}}}},
                },
                [1],
                [2],
            ),
            (
                {
                    "$id": "http://x/tree",
                    "$dynamicAnchor": "n",
                    "unevaluatedProperties": False,
                    "properties": {"kids": {"items": {"$dynamicRef": "#n"}}},
                },
                [{"kids": [{"kids": []}]}],
                [{"kids": [{"kid": []}]}],
            ),
            (
                {
                    "$id": "http://x/a",
                    "$dynamicRef": "b#m",
                    "$defs": {
                        "a": {"$dynamicAnchor": "m", "const": 1},
                        "b": {"$id": "b", "$dynamicAnchor": "m"},
                    },
                },
                [1],
                [2],
            ),
            (
                {
                    "allOf": [{"properties": {"a": {}}}],
                    "anyOf": [{"required": ["b"], "properties": {"b": {}}}, {}],
                    "unevaluatedProperties": False,
                },
                [{"a": 1}, {"a": 1, "b": 1}],
                [{"c": 1}],
            ),
            (
                {
                    "prefixItems": [{}],
                    "contains": {"const": 1},
                    "unevaluatedItems": False,
                },
                [["a", 1, 1]],
                [["a", 1, "b"]],
            ),
            (True, [1], []),
            (False, [], [1, None]),
            # Older drafts.
            ({"items": [{"minimum": 1}]}, [[1], []], [[0]]),
            (
                {
                    "$schema": DRAFT_7,
                    "$ref": "#/definitions/a",
                    "definitions": {"a": False},
                },
                [],
                [1],
            ),
            (
                {"dependencies": {"a": ["b"], "c": {"required": ["d"]}}},
                [{"a": 1, "b": 1}, {"c": 1, "d": 1}, {}],
                [{"a": 1}, {"c": 1}],
            ),
            (
                {"properties": {"a": {"$recursiveRef": "#"}}, "type": "object"},
                [{"a": {}}],
                [{"a": 1}],
            ),
            # Patterns are those of ECMA 262.
            ({"pattern": "a\\d"}, ["ba1x"], ["ba"]),
            ({"pattern": "^a.$"}, ["ab"], ["ab\n", "a\u2028"]),
            ({"pattern": "^\\d\\w$"}, ["1a"], ["\u0661a", "1\u00e4"]),
            ({"pattern": "^\\p{Letter}\\s$"}, ["\u00e4\ufeff"], ["1 ", "a\x1f"]),
            ({"pattern": "^(\\p{Nd}|\\p{L})+$"}, ["\u0661\u00e4"], ["_", " "]),
            ({"pattern": "(?<y>\\d)[^a]"}, ["1\n"], ["1"]),
            (
                {"pattern": "^[\\s[&&]{2}\\u0042\\x43$"},
                ["[&BC", "\xa0\ufeffBC"],
                ["[aBC"],
            ),
            ({"pattern": "a[]|^[^]$"}, ["\n"], ["a!", ""]),
            ({"pattern": "^a{,2}$"}, ["a{,2}"], ["aa"]),
            (
                {"pattern": "^(?=.*\\d)(?!.*\\s).{4,6}$"},
                ["pas5", "5words"],
                ["p 55", "pa5"],
            ),
        ],
    )
    def test_keywords(self, schema, good, bad):
        """Each keyword takes what it should and refuses what it should."""
        assert [validate(value, schema) for value in good] == [[]] * len(good)
        assert [] not in [validate(value, schema) for value in bad]

    def test_the_official_suite(self):
        """The tests of draft 2020-12 pass, but where something is to be fetched."""
        folder = SPEC.parent / "jsonschema-suite" / "tests" / "draft2020-12"
        if not folder.is_dir():
            pytest.skip("the suite is not here")
        passed = 0
        for path in folder.iterdir():
            for group in json.loads(path.read_text("utf-8")):
                for test in group["tests"]:
                    with contextlib.suppress(ValueError):
                        errors = validate(test["data"], group["schema"])
                        passed += (errors == []) == test["valid"]
        assert passed >= 1250

    NO_PATTERNS = ["\\p{Greek}", "(?<=a)b+", "\\u{110000}", "(?i)a|b", "(?(1)a|b)"]
    NO_PATTERNS += ["(?P<a>b)*(?P=a)", "a{4294967296}", "a{2,1}", "[z-a]", "a\\", "*"]
    NO_PATTERNS += ["(" * 3000 + "a*" + ")" * 3000, "\\9", "^(.)\\1$"]

    @pytest.mark.parametrize(
        "schema, text",
        [
            ([], ": expected a schema, got []"),
            ({"properties": {"a": {"type": "x"}}}, ".properties.a.type: expected a"),
            ({"$schema": "http://x"}, ".$schema: expected draft 2020-12, 2019-09 or"),
            ({"required": ["a", 1]}, ".required: expected a list of names, got "),
            ({"enum": 1}, ".enum: expected a list, got 1"),
            ({"anyOf": []}, ".anyOf: expected a list of schemas, got []"),
            ({"items": 1}, ".items: expected a schema, or a list of them, got 1"),
            ({"dependencies": {"a": 1}}, ".dependencies.a: expected a schema, got 1"),
            ({"multipleOf": 0}, ".multipleOf: expected a number over 0, got 0"),
            ({"minLength": -1}, ".minLength: expected a count, got -1"),
            ({"$ref": "other.json"}, ': $ref "other.json" is not in this document'),
            ({"$ref": "#/a"}, ': $ref "#/a" is not in this document, and nothing is'),
            ({"$ref": "#/%ff"}, ': $ref "#/%ff" is not'),
            ({"$ref": "#/allOf/" + "9" * 1900, "allOf": [{}]}, ": $ref "),
            ({"pattern": 1}, ".pattern: expected a text, got 1"),
            ({"patternProperties": {"[": {}}}, ': pattern "[": '),
            ({"$defs": {"a": {"pattern": "("}}}, '.$defs.a: pattern "(": '),
            *[({"pattern": pattern}, ": pattern ") for pattern in NO_PATTERNS],
            # What would take long is refused before it is tried.
            ({"pattern": "." * 40_000}, ": too much work"),
            (
                {"patternProperties": {f"[\u0100-\uffff]{n}": {} for n in range(2000)}},
                ": too",
            ),
            (
                {
                    "$id": "http://x/" + "a" * 300_000 + "/",
                    "$defs": {str(n): {"$id": f"b{n}"} for n in range(5000)},
                },
                ".$id: expected a URI",
            ),
        ],
        ids=range(34),
    )
    def test_a_wrong_schema_is_told_where(self, schema, text):
        """A schema that cannot be used raises ValueError with the place and what is
        expected there; nothing is fetched."""
        with pytest.raises(ValueError) as info:
            validate(1, schema)
        assert str(info.value).startswith("schema" + text)

    @pytest.mark.parametrize(
        "value, schema, texts",
        [
            (
                {"days": "three", "tags": ["a", 1], "cty": 1, "when": "x"},
                {
                    "properties": {
                        "days": {"type": "integer"},
                        "tags": {"items": {"type": "string"}},
                        "when": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
                    },
                    "required": ["city"],
                    "additionalProperties": False,
                },
                [
                    'days: expected integer, got "three"',
                    "tags[1]: expected string, got 1",
                    'when: expected integer or null, got "x"',
                    "city: required, but missing",
                    'cty: unknown; known: ["days", "tags", "when"]',
                ],
            ),
            (
                {"x" * 999: 1},
                {"properties": {"city": {}}, "additionalProperties": False},
                [f'{"x" * 200}: unknown; known: ["city"]'],
            ),
            (
                {"k": "b", "n": "x"},
                {
                    "anyOf": [
                        {"properties": {"k": {"const": "a"}, "n": {"type": "null"}}},
                        {"properties": {"k": {"const": "b"}, "n": {"type": "integer"}}},
                    ]
                },
                ['n: expected integer, got "x"'],
            ),
            (
                1,
                {"oneOf": [{"const": "{}"}, {"const": {}}]},
                ['expected "{}" or {}, got 1'],
            ),
            (
                1,
                {"oneOf": [True, {}]},
                ["matches 2 alternatives of `oneOf`, must match one"],
            ),
            (
                {"ab": 1, "c d\n": 2},
                {"propertyNames": {"maxLength": 1}},
                [
                    'ab: expected at most 1 characters, got "ab"',
                    'c d\\n: expected at most 1 characters, got "c d\\n"',
                ],
            ),
            (
                [{"a": 1}, {"b": 1}],
                {"items": {"properties": {"a": {}}, "unevaluatedProperties": False}},
                ['[1].b: unknown; known: ["a"]'],
            ),
            (
                {"a": 1},
                {"properties": {"a": False}},
                ["a: nothing is allowed here, got 1"],
            ),
            (
                1,
                {"not": {"minimum": 0}},
                ['expected anything but what matches {"minimum": 0}, got 1'],
            ),
        ],
    )
    def test_errors_are_lines_to_act_on(self, value, schema, texts):
        """Path, expectation, finding; several at once. The nearest alternative and the
        known names are told."""
        assert sorted(validate(value, schema)) == sorted(texts)

    @staticmethod
    def doubling(keyword):
        """A schema whose work doubles with each of 50 references."""
        twice = {n: [{"$ref": f"#/$defs/{n + 1}"}] * 2 for n in range(50)}
        steps = {str(n): {keyword: twice[n]} for n in twice}
        return {"$ref": "#/$defs/0", "$defs": {**steps, "50": {"type": "integer"}}}

    @pytest.mark.parametrize(
        "make",
        [
            lambda: (1, TestSchema.doubling("allOf")),
            lambda: ("x", TestSchema.doubling("anyOf")),
            lambda: ("a" * 10**4, {"pattern": "." * 1000 + "!"}),
            lambda: ("a" * 10**4, {"pattern": "(?=" + "." * 400 + "!)"}),
            lambda: (
                {f"k{n}": 1 for n in range(300)},
                {"patternProperties": {f"^x{n}$": {} for n in range(100)}},
            ),
            lambda: ([1] * 500, {"allOf": [{"contains": {}}] * 500}),
            lambda: ([1] * 500, {"allOf": [{"items": {"type": "integer"}}] * 500}),
            lambda: (["x" * 10**4], {"anyOf": [{"enum": [n]} for n in range(5000)]}),
            lambda: (
                {f"k{n}": n for n in range(500)},
                {"allOf": [{"propertyNames": {"type": "string"}}] * 500},
            ),
            lambda: (
                [["x" * 100] * 100 + [n] for n in range(10)],
                {"allOf": [{"uniqueItems": True}] * 1000},
            ),
            lambda: (
                [{}] * 1000,
                {"items": {"dependentRequired": {f"k{n}": [] for n in range(300)}}},
            ),
        ],
        ids=range(11),
    )
    def test_a_value_that_would_take_long_is_given_up(self, make, monkeypatch):
        """Each step that a schema takes over a value is paid for beforehand."""
        monkeypatch.setattr(mcp_lite, "MAX_STEPS", mcp_lite.MAX_STEPS // 100)
        value, schema = make()
        assert validate(value, schema) == [TOO_MUCH]

    def test_what_is_large_is_no_too_much(self):
        """Long lists are compared, and a flood of errors ends with the first twenty,
        each in a few words."""
        unique = {"uniqueItems": True}
        assert validate(list(range(100_000)), unique) == []
        assert validate([2**61 * n - n for n in range(100_000)], unique) == []
        errors = validate(["x" * 10**5] * 1000, {"items": {"type": "integer"}})
        assert len(errors) == 20 and max(map(len, errors)) < 1000

    @pytest.mark.parametrize(
        "pattern, text, fits",
        [
            ("^(a+)+$", "a" * 5000 + "!", False),
            ("^(a|a|b)*$", "a" * 5000, True),
            ("a*a*a*b", "a" * 5000, False),
            ("^(a?){30}a{30}$", "a" * 30, True),
            ("(x+x+)+y", "x" * 5000, False),
            ("^(\\w+\\.)*\\w+$", "ab." * 2000 + "c", True),
            ("^(?=(a+)+$)", "a" * 5000 + "!", False),
            ("^((?:){9999999}b?){9999999}$", "a" * 50, False),
            ("[" * 99 + "]", "a", False),
        ],
    )
    def test_hostile_texts(self, pattern, text, fits):
        """A pattern that keeps `re` busy for ever costs little here."""
        assert (validate(text, {"pattern": pattern}) == []) is fits

    def test_patterns_match_as_those_of_re(self):
        """Random ones, wherever Python and ECMA 262 agree."""
        dice = random.Random(262)

        def pattern(depth=0):
            kind = dice.random()
            if depth > 3 or kind < 0.35:
                parts = r"a b c [ab] [^a] \w \b \B ^ [b-c]".split()
                return dice.choice([*parts, ""])
            if kind < 0.6:
                return pattern(depth + 1) + pattern(depth + 1)
            if kind < 0.7:
                return f"({pattern(depth + 1)}|{pattern(depth + 1)})"
            if kind < 0.76:
                return f"({dice.choice(['?=', '?!'])}{pattern(depth + 1)})"
            return f"(?:{pattern(depth + 1)})" + dice.choice(
                ["", "*", "+", "?", "*?", "{2}", "{1,2}", "{0,3}", "{2,}", "{0}"]
            )

        for _ in range(2000):
            tried = pattern()
            text = "".join(dice.choice("abc -") for _ in range(dice.randrange(9)))
            found = re.search(tried, text, re.ASCII) is not None
            assert (validate(text, {"pattern": tried}) == []) is found, (tried, text)

    def test_depth_is_bounded(self):
        """No deep schema, deep value or loop of references ends the process."""
        schema = {"type": "array"}
        value = []
        for _ in range(5000):
            schema, value = {"items": schema}, [value]
        assert validate(1, schema) == []
        loop = {"$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}, "$ref": "#/$defs/a"}
        for deep in (schema, {"const": value}, loop):
            assert validate(value, deep) == [TOO_MUCH]
        assert validate(1, {"$ref": "#"}) != []


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


class Chain(typing.NamedTuple):
    when: datetime.date
    next: "Chain | None" = None


@dataclasses.dataclass
class Tree:
    value: int
    children: "typing.List[Tree]"


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


def offered(fn, **options):
    """Return what a list says of a function as the tool "t", and a function that calls
    it: it gives the result, or raises ToolError."""
    server = Server("s")
    server.add_tool(fn, name="t", **options)

    def ask(method, **params):
        return server.handle(request(method, modern(**params)))

    def call(arguments):
        answer = ask("tools/call", name="t", arguments=arguments)
        if "error" in answer:
            raise McpError.from_wire(answer["error"])
        if answer["result"].get("isError"):
            raise ToolError(text_of(answer["result"]))
        return answer["result"]

    [listed] = ask("tools/list")["result"]["tools"]
    return listed, call


def taking(hint, *default):
    """The schema of an argument with this hint, and a function that gives the Python
    value for a wire value, and what becomes of that as a result."""
    seen = []

    def fn(x):
        seen.append(x)
        return x

    fn.__annotations__.update(x=hint, **{"return": hint})
    fn.__defaults__ = default or None
    listed, call = offered(fn, structured=True)

    def take(wire):
        result = call({"x": wire})["structuredContent"]
        return seen.pop(), result["result"] if list(result) == ["result"] else result

    return listed["inputSchema"], take


NUMBER = {"type": "integer"}
NUMBERS = {"type": "object", "additionalProperties": NUMBER}
COLOR = {"type": "string", "enum": ["red", "green"]}
BO = {"name": "Bo", "age": 1}
PAIR = {"type": "array", "prefixItems": [COLOR, NUMBER], "minItems": 2, "maxItems": 2}
PAIR["items"] = {"anyOf": [COLOR, NUMBER]}
MOMENT = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc)
UUID = uuid.UUID("1234567890" * 3 + "12")


def listing(schema):
    return {"type": "array", "items": schema}


def or_null(schema):
    return {"anyOf": [schema, {"type": "null"}]}


def text_as(format):
    return {"type": "string", "format": format}


class TestSignatures:
    """The rooms Content and Functions."""

    @pytest.mark.parametrize(
        "hint, schema, wire, value",
        [
            (int, NUMBER, 3.0, 3),
            (float, {"type": "number"}, 1, 1.0),
            (typing.Any, {}, [1], [1]),
            (None, {"type": "null"}, None, None),
            (bytes, {"type": "string", "contentEncoding": "base64"}, "aGk=", b"hi"),
            (pathlib.Path, {"type": "string"}, "a", pathlib.Path("a")),
            (typing.Set[Color], listing(COLOR), ["red"], {Color.RED}),
            (typing.Tuple[int, ...], listing(NUMBER), [1], (1,)),
            (typing.Tuple[Color, int], PAIR, ["red", 1.0], (Color.RED, 1)),
            (typing.Dict[str, int], NUMBERS, {"a": 1}, {"a": 1}),
            (typing.Literal["a"], {"type": "string", "enum": ["a"]}, "a", "a"),
            (typing.Literal[1, "b"], {"enum": [1, "b"]}, 1, 1),
            (Level, {"type": "integer", "enum": [1, 2]}, 1.0, Level.LOW),
            (typing.Optional[Person], or_null(FORM), {"name": "Bo"}, Person("Bo")),
            ("list[int] | None", or_null(listing(NUMBER)), [1], [1]),
            (datetime.date, text_as("date"), "2026-01-02", datetime.date(2026, 1, 2)),
            (datetime.datetime, text_as("date-time"), "2026-01-02T03:04:05Z", MOMENT),
            (uuid.UUID, text_as("uuid"), "1234567890" * 3 + "12", UUID),
            # Models send lists and objects as text; a text stays one.
            (typing.List[int], listing(NUMBER), "[1, 2]", [1, 2]),
            (str, {"type": "string"}, "[1, 2]", "[1, 2]"),
            (typing.Optional[typing.List[int]], or_null(listing(NUMBER)), "null", None),
            (Person, FORM, '{"name": "Bo"}', Person("Bo")),
        ],
    )
    def test_hints(self, hint, schema, wire, value):
        """A hint becomes a schema, and a wire value the hinted Python value."""
        described, take = taking(hint)
        assert described == {
            "type": "object",
            "properties": {"x": schema},
            "required": ["x"],
        }
        bound, _ = take(wire)
        assert bound == value and type(bound) is type(value)

    # A hint; wire values that it takes, which come back the same; wire values that it
    # refuses.
    TABLE = [
        (int, [0, -3, 10**20], ["three", "1.5", 1.5, True, None]),
        (float, [1.5, 2], ["one", False]),
        (bool, [True, False], [0, 1, "yes"]),
        (type(None), [None], [False]),
        (object, [1, [2]], []),
        (dict, [{}, {"a": 1}], [[], "a"]),
        (tuple, [[1, "a"]], [1]),
        (set, [[1]], [1]),
        (frozenset, [["a"]], [1]),
        (typing.List[typing.List[str]], [[["a"], []]], [["a"]]),
        (typing.List, [[1]], [1]),
        (typing.Sequence[int], [[1]], [["a"]]),
        (typing.Iterable[str], [["a"]], [[1]]),
        (typing.FrozenSet[str], [["a", "b"]], [[1]]),
        (typing.AbstractSet[int], [[1]], [["a"]]),
        (typing.MutableSet[int], [[1, 2]], [["a"]]),
        (typing.Tuple[int, str], [[1, "a"]], [[1], [1, "a", 2], ["a", 1]]),
        (typing.Mapping[str, float], [{"a": 1.5}], [{"a": "b"}]),
        (typing.Dict[str, datetime.date], [{"a": "2026-01-02"}], [{"a": "nope"}]),
        (typing.Dict[int, str], [{"1": "a"}], [{"a": "a"}, {"1": 1}]),
        (typing.Dict[Color, int], [{"red": 1}], [{"blue": 1}]),
        (typing.Optional[int], [None, 1], ["a"]),
        (typing.Union[int, str], [1, "a"], [None, 1.5]),
        (typing.Union[Person, Point], [BO, {"x": 1, "y": 0}], [{}, 1]),
        (typing.Literal[1, "b", None], [1, "b", None], ["2", True]),
        (typing.Literal[Color.RED], ["red"], ["green"]),
        (Shape, ["round"], ["ROUND"]),
        (UserIds, [[7]], [["a"]]),
        (
            Team,
            [
                {
                    "lead": {"name": "A", "age": 1},
                    "members": [{"name": "B", "age": 2}],
                    "since": "2026-01-02",
                    "tags": ["x"],
                    "color": "green",
                }
            ],
            [{"lead": {}, "members": []}, {"lead": {"name": "A"}}],
        ),
        (Strict, [{"many": 3}], [{"many": -1}, {"many": "x"}]),
        (Point, [{"x": 1, "y": 2}], [{}, [1, 2], {"x": "a"}]),
        (Untyped, [{"a": 1, "b": [2]}], [{"a": 1}]),
        (Partial, [{}, {"a": 1, "day": "2026-01-02"}], [{"a": "x"}, {"day": "x"}]),
        (datetime.datetime, ["2026-01-02T03:04:05"], ["2026-13-01T00:00:00", 1]),
        (datetime.date, ["2026-01-02"], ["2026-13-01", "x", 20260102]),
        (datetime.time, ["03:04:05"], ["25:00", 3]),
        (uuid.UUID, ["12345678-1234-5678-1234-567812345678"], ["1234", 1]),
        (decimal.Decimal, ["1.50", "-3", "1E-9999"], ["a", "NaN", "1E+10000", True]),
        (bytes, ["aGk=", ""], ["a", "a?==", 1]),
        ("Color | None", ["red", None], ["blue"]),
        ("list[Person | Color]", [["red", {"name": "B", "age": 1}]], [[1]]),
        ("dict[str, int | None]", [{"a": None}], [{"a": "b"}]),
        ("tuple[int, ...]", [[1]], [["a"]]),
        ("'Person' | None", [None], [1]),
        (typing.List["Person"], [[]], [[1]]),
    ]
    if sys.version_info >= (3, 9):
        # Python 3.8 does not remember which base a TypedDict's key came from.
        TABLE += [
            (Movie, [{"name": "M"}, {"name": "M", "year": 1931}], [{}, {"name": 1}]),
            (typing.Annotated[int, Param(ge=1, lt=5)], [1, 4], [0, 5]),
            (typing.Annotated[float, Param(gt=0, le=1)], [0.5, 1], [0, 1.5]),
            (
                typing.Annotated[str, Param(min_length=1, max_length=2, pattern="^a")],
                ["a"],
                ["", "abc", "b"],
            ),
            (
                typing.Annotated[typing.Optional[list[int]], Param(max_length=1)],
                [None, [1]],
                [[1, 2]],
            ),
            (
                typing.Annotated[typing.Dict[str, int], Param(max_length=1)],
                [{"a": 1}],
                [{"a": 1, "b": 2}],
            ),
            (dict[str, list[int]], [{"a": [1]}], [[]]),
        ]
    if sys.version_info >= (3, 10):
        TABLE += [(eval("list[int] | str"), [[1], "a"], [1])]
    if sys.version_info >= (3, 11):
        TABLE += [(Release, [{"name": "r", "tag": "t"}], [{}, {"tag": "t"}])]

    @pytest.mark.parametrize(
        "hint, accepted, refused", TABLE, ids=[str(row[0]) for row in TABLE]
    )
    def test_every_hint_there_and_back(self, hint, accepted, refused):
        """A value that the schema takes comes back the same; a refusal is one line that
        names the argument."""
        _, take = taking(hint)
        for wire in accepted:
            _, returned = take(wire)
            assert returned == wire
        for wire in refused:
            with pytest.raises(ToolError) as error:
                take(wire)
            assert str(error.value).startswith("t: x") and "\n" not in str(error.value)

    def test_defaults_and_notes(self):
        """Param says more than the type; a default is published where JSON can say it.
        The Context is found by its hint, Optional or not, and is no argument."""
        got = []

        def fn(
            a: int,
            *,
            ctx: typing.Optional[Context] = None,
            b: "Color" = Color.RED,
            c=(1, 2),
            odd: typing.Any = socket,
            none: str = None,
        ):
            got.append((ctx.meta is not None, a, b, c))

        if sys.version_info >= (3, 9):
            note = Param("how many", ge=1, header="N", examples=[2])
            fn.__annotations__["a"] = typing.Annotated[int, note]
        listed, call = offered(fn)
        schema = listed["inputSchema"]
        described = schema["properties"].pop("a")
        if sys.version_info >= (3, 9):
            assert described == {
                "type": "integer",
                "description": "how many",
                "minimum": 1,
                "examples": [2],
                "x-mcp-header": "N",
            }
        assert schema["required"] == ["a"]
        assert schema["properties"] == {
            "b": {"type": "string", "enum": ["red", "green"], "default": "red"},
            "c": {"default": [1, 2]},
            "odd": {},
            "none": {"type": "string"},
        }
        call({"a": 1, "b": "green"})
        assert got == [(True, 1, Color.GREEN, (1, 2))]

    @pytest.mark.parametrize(
        "hint, text, value, known",
        [
            (int, "3", 3, []),
            (bool, "true", True, ["true", "false"]),
            (float, "2", 2.0, []),
            (str, "3", "3", []),
            (typing.List[int], "[1]", [1], []),
            (typing.Optional[int], "null", None, []),
            (typing.Union[int, str], "3", "3", []),
            (datetime.date, "2026-01-02", datetime.date(2026, 1, 2), []),
            (typing.Literal[1, "b"], "1", 1, ["1", "b"]),
            (Color, "red", Color.RED, ["red", "green"]),
            (Person, '{"name": "Bo"}', Person("Bo"), []),
        ],
    )
    def test_the_text_arguments_of_a_prompt(self, hint, text, value, known):
        """Text becomes what is expected, where text itself is not; the values of a
        Literal, an Enum and a bool are completed."""
        seen = []

        def fn(x):
            seen.append(x)
            return "x"

        fn.__annotations__["x"] = hint
        server = Server("s")
        server.add_prompt(fn)
        with Client(server) as client:
            client.get_prompt("fn", {"x": text})
            assert seen == [value]
            if known:
                assert client.complete("fn", "x", "") == known

    def test_what_a_tool_returns(self):
        """Text and content go as blocks; other values as structured content and as JSON
        in text, or with structured=False as that text alone."""
        image = Image(PNG)
        text = {"type": "text", "text": "a"}
        for value, structured, blocks in (
            (7, False, ["7"]),
            ({"a": 1}, False, ['{"a":1}']),
            ({"type": 5}, False, ['{"type":5}']),
            (text, False, [text]),
            (["a", image, 7], False, [text, image, "7"]),
            (["a", image, 7], None, [text, image, "7"]),
            ("a", None, [text]),
            (None, None, []),
        ):
            _, call = offered(lambda value=value: value, structured=structured)
            result = call({})
            wanted = [
                {"type": "text", "text": each} if isinstance(each, str) else each
                for each in blocks
            ]
            assert result["content"] == wanted and "structuredContent" not in result
        for value, inside in (({"a": 1}, {"a": 1}), ([1], {"result": [1]})):
            result = offered(lambda value=value: value)[1]({})
            assert result["structuredContent"] == inside
            assert json.loads(text_of(result)) == value

    def test_error_texts(self):
        """One line names all arguments that do not fit, and what each should be."""

        def plan(
            when: datetime.date = None,
            who: typing.List[Person] = (),
            strict: typing.Optional[Strict] = None,
            days: int = 3,
        ):
            """"""

        _, call = offered(plan)
        bad_day = 'when: expected an ISO 8601 date, got "2026-13-01"'
        for arguments, *texts in [
            ({"when": "2026-13-01"}, bad_day),
            ({"dais": 1}, 'dais: unknown; did you mean "days"?'),
            (
                {"days": "three", "who": [{}]},
                'days: expected integer, got "three"',
                "who[0].name: required, but missing",
            ),
            ({"strict": {"many": -1}}, "strict: many must not be negative"),
        ]:
            with pytest.raises(ToolError) as error:
                call(arguments)
            said = str(error.value)[len("t: ") :].split("; ", len(texts) - 1)
            assert sorted(said) == sorted(texts)

    def test_what_a_decorator_refuses(self):
        """A TypeError names the function, the parameter and the remedy."""

        def pictured(x: Image):
            """"""

        def deep(x: typing.List[typing.Optional[socket.socket]]):
            """"""

        def nowhere(x: "Nowhere"):  # noqa: F821
            """"""

        class Thing:
            def method(self):
                """"""

        names = {}
        exec("def positional(a, /, b): ''", names)
        for fn, text in [
            (lambda a, *rest: "", "give each parameter a name"),
            (lambda **options: "", "give each parameter a name"),
            (names["positional"], "positional: .*positional-only"),
            (pictured, "pictured: x: Image has no JSON Schema"),
            (deep, "deep: x: socket has no JSON Schema; use a plain type"),
            (nowhere, "nowhere: x: cannot evaluate the hint"),
            (lambda ctx: "", "ctx: .*`ctx: Context` is the request"),
            (Thing.method, "self: .*register its method"),
            (len, "len: .*positional-only"),
        ]:
            with pytest.raises(TypeError, match=text):
                Server("s").add_tool(fn, name=None if fn is len else "t")

    @pytest.mark.parametrize(
        "doc, description, days",
        [
            ("One line.", "One line.", None),
            (None, None, None),
            ("city: not known", "city: not known", None),
            ("days: 1\ndays: 2\n  b\n\n  c\nNote: d", "Note: d", "1"),
            ("a::b and days::x", "a::b and days::x", None),
            (
                """The weather.

        Args:
            town (str): Where.
            days (List[int], optional): How many,
                at most: 5.

        Returns:
            text: as it is
        """,
                "The weather.\n\nReturns:\n    text: as it is",
                "How many, at most: 5.",
            ),
            (
                """The weather.

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
        """,
                "The weather.\n\nReturns\n-------\ntext",
                "How many, at most 5.",
            ),
            (
                """The weather.

        :param str town: Where.
        :type days: int
        :param days: How many,
            at most 5.
        :returns: text
        """,
                "The weather.\n\n:returns: text",
                "How many, at most 5.",
            ),
        ],
    )
    def test_docstrings_describe_parameters(self, doc, description, days):
        """Google's, NumPy's and Sphinx's styles; the tool's description is the rest."""

        def fn(town, days: int = 1):
            """"""

        fn.__doc__ = doc
        listed, _ = offered(fn)
        properties = listed["inputSchema"]["properties"]
        assert listed.get("description") == description
        assert properties["days"].get("description") == days
        if "Where." in (doc or ""):
            assert properties["town"]["description"] == "Where."

    def test_methods_and_callables_are_functions_too(self):
        """`self` is no parameter; an object with __call__ and a wrapped function do."""

        class Thing:
            def method(self, a: int) -> int:
                """"""

            def __call__(self, b: str) -> str:
                """"""

        @functools.wraps(Thing().method)
        def wrapped(*args, **options):
            """"""

        for fn, names in ((Thing().method, ["a"]), (Thing(), ["b"]), (wrapped, ["a"])):
            assert list(offered(fn)[0]["inputSchema"]["properties"]) == names

    def test_content_is_what_the_wire_has(self):
        """Content objects and messages are their wire form."""
        data = base64.b64encode(PNG).decode()
        sound = {"type": "audio", "data": base64.b64encode(WAV).decode()}
        sound["mimeType"] = "audio/wav"
        image = {"type": "image", "data": data, "mimeType": "image/png"}
        assert Image(PNG, meta={"a": 1}) == {**image, "_meta": {"a": 1}}
        assert Image(b'<?xml version="1.0"?>\n<svg/>')["mimeType"] == "image/svg+xml"
        embedded = EmbeddedResource("x://y", b"hi")
        assert embedded["resource"] == {"uri": "x://y", "blob": "aGk="}
        link = {"type": "resource_link", "uri": "x://y", "name": "n", "size": 3}
        assert ResourceLink("x://y", "n", size=3) == link
        blocks = [{"type": "text", "text": "a"}, sound]
        assert Message(["a", Audio(WAV)]) == {"role": "user", "content": blocks}
        for wrong in (
            lambda: Message(3),
            lambda: Message("a", "system"),
            lambda: Image(),
            lambda: Image(b"?"),
            lambda: ResourceLink("no uri", "n"),
        ):
            with pytest.raises((TypeError, ValueError)):
                wrong()

    @pytest.mark.parametrize(
        "template, uri, values",
        [
            ("x://{a}", "x://1%202", {"a": "1 2"}),
            ("x://{a}", "x://1/2", None),
            ("x://a.b/{c}", "x://aXb/1", None),
            ("x://{+p}", "x://a/b/../c", {"p": "a/b/../c"}),
            ("x://{a}", "x://..", None),
            ("x://{a}/c", "x://a%2FB%2fc/c", {"a": "a/B/c"}),
            ("x://{a}", "x://%2Fetc", None),
            ("x://{a}", "x://a%2F..%2Fb", None),
            ("x://{a}", "x://a%00", None),
            ("x://{a}", "x://C%3A%5Cx", None),
            ("x://{a}", "x://%FF", {"a": "\ufffd"}),
            ("x://{a}{?q,r}", "x://1?r=2&z=3", {"a": "1", "r": "2"}),
            ("x://{a}/{+t}{?q}", "x://1/a/b?q=2", {"a": "1", "t": "a/b", "q": "2"}),
            ("x://{a}.{b}", "x://1.2.3", {"a": "1", "b": "2.3"}),
            ("x://{a}.txt", "x://1.txt.txt", {"a": "1.txt"}),
            ("x://{a}.txt/{b}.txt", "x://1.txt.txt/2.txt", {"a": "1.txt", "b": "2"}),
            ("x://{+a}/{b}", "x://1/2/3", {"a": "1/2", "b": "3"}),
            ("x://{a}-{+b}-{c}", "x://1-2-3-4", {"a": "1", "b": "2", "c": "3-4"}),
            ("x://{a}{?q}{?r}", "x://1?r=2", {"a": "1", "r": "2"}),
            # Naively, not within a lifetime:
            ("x://{a}-{b}-{c}-{d}-{e}", "x://" + "-" * 2000 + "/", None),
            ("x://{+a}-{b}-{c}-{d}-{e}", "x://" + "-" * 2000 + "/", None),
        ],
        ids=range(21),
    )
    def test_uri_templates(self, template, uri, values):
        """Literals are literal, values are decoded, and nothing is smuggled."""
        server = Server("s")
        names = ",".join(re.findall(r"{\W?([\w,]+)}", template))
        names = names.replace(",", "=None, ") + "=None"
        fn = eval(f"lambda {names}: {{k: v for k, v in locals().items() if v}}")
        server.add_resource(template, fn)
        answer = server.handle(request("resources/read", modern(uri=uri)))
        if values is None:
            assert answer["error"]["code"] == -32602
        else:
            [content] = answer["result"]["contents"]
            assert json.loads(content["text"]) == values

    @pytest.mark.parametrize(
        "wrong",
        ["x://{", "x://{a}{a}", "x://{a b}", "x://{a}{?a}", "x://{a*}", "x://{/a}"]
        + ["x://{a,b}", "x://{a}{b}", "x://{+a}/{+b}", "x://{?a}/b", "x://{a}}"],
    )
    def test_wrong_templates_are_refused(self, wrong):
        """A template that cannot be read fails when it is registered."""
        with pytest.raises(ValueError, match="URI template"):
            Server("s").add_resource(wrong, lambda a, b: "x")

    @pytest.mark.parametrize(
        "schema, said",
        [
            ({}, '"type": "object" at its root, got {}'),
            ({"type": ["object", "null"]}, '"type": "object" at its root'),
            ([], '"type": "object" at its root'),
            ({"type": "object", "$ref": "http://x/y"}, "nothing is fetched"),
            ({"type": "object", "properties": []}, "properties: expected schemas"),
        ],
    )
    def test_a_schema_of_ones_own_that_cannot_be_used(self, schema, said):
        """It is told when the tool is registered, not when it is called."""
        with pytest.raises(ValueError, match=said):
            Server("s").add_tool(lambda x=None: x, name="t", input_schema=schema)

    def test_schemas_of_ones_own(self):
        """They stand in the list as they are given, and are what is checked. An argument
        that input_schema does not name never reaches the function, nor does one for the
        Context. A result that does not match output_schema is the server's error.
        """
        schema = {
            "type": "object",
            "additionalProperties": True,
            "properties": {"n": {"type": "integer", "maximum": 3}},
        }

        def same(n=None, admin=False, ctx: Context = None):
            assert not admin and ctx != {}
            return {"n": "two"} if n == 2 else {"n": n}

        listed, call = offered(same, input_schema=schema, output_schema=schema)
        assert listed["inputSchema"] == listed["outputSchema"] == schema
        given = {"n": 1, "admin": True, "ctx": {}, "more": 2}
        assert call(given)["structuredContent"] == {"n": 1}
        with pytest.raises(ToolError, match="n: expected at most 3"):
            call({"n": 4})
        _, demand = offered(same, input_schema={**schema, "required": ["n"]})
        with pytest.raises(ToolError, match="n: required, but missing"):
            demand({})
        _, demand = offered(same, input_schema={**schema, "minProperties": 1})
        with pytest.raises(ToolError, match="^t: expected at least 1 members, got {}"):
            demand({})
        said = 'does not match.*n: expected integer, got "two"'
        with pytest.raises(ToolError, match=said):
            call({"n": 2})
        schema = {
            "type": "object",
            "properties": {"X-Id": {"type": "integer"}, "ctx": {}, "class": {}},
        }

        def anything(ctx: Context, **arguments) -> dict:
            return arguments

        listed, call = offered(anything, input_schema=schema)
        assert listed["inputSchema"] == schema
        given = {"X-Id": 1, "class": [2], "ctx": 3, "more": 4}
        assert call(given)["structuredContent"] == {"X-Id": 1, "class": [2]}
        with pytest.raises(TypeError, match="with an input_schema"):
            Server("s").add_tool(anything)
        with pytest.raises(TypeError, match=r"\*args"):
            Server("s").add_tool(lambda *args: 1, name="t", input_schema=schema)
        older = {
            "$schema": DRAFT_7,
            "items": [{"$ref": "#/definitions/a"}],
            "definitions": {"a": {"type": "integer"}},
        }
        listed, call = offered(lambda: [1, "x"], output_schema=older)
        assert listed["outputSchema"]["$schema"] == DRAFT_7
        assert call({})["structuredContent"] == {"result": [1, "x"]}


class TestEveryday:
    """What users meet every day, in the rooms JSON Schema to Functions, and Client."""

    @staticmethod
    def kit(
        n: int = 0,
        flag: bool = False,
        xs: typing.List[int] = (),
        name: str = "",
        maybe: typing.Optional[int] = None,
        either: typing.Union[int, str] = 0,
    ) -> dict:
        return {"got": [n, flag, list(xs), name, maybe, either]}

    @pytest.mark.parametrize(
        "given, got",
        [
            ({"n": "3", "flag": "true"}, [3, True, [], "", None, 0]),
            ({"xs": "[1, 2]", "name": "012"}, [0, False, [1, 2], "012", None, 0]),
            ({"xs": ["1", 2], "maybe": "7"}, [0, False, [1, 2], "", 7, 0]),
            ({"xs": '["1"]', "n": "null"}, [0, False, [1], "", None, 0]),
            ({"either": "5", "name": "[1]"}, [0, False, [], "[1]", None, "5"]),
            # What is null is left out, as far as that may be.
            ({"n": None, "maybe": None, "xs": None}, [0, False, [], "", None, 0]),
        ],
    )
    def test_arguments_as_models_write_them(self, given, got):
        """Text that does not fit is read as JSON, and null counts as left out."""
        before = copy.deepcopy(given)
        _, call = offered(self.kit)
        assert call(given)["structuredContent"] == {"got": got}
        assert given == before

    def test_many_texts(self):
        """So it is with a long list of texts."""
        _, call = offered(self.kit)
        [_, _, numbers, *_] = call({"xs": list(map(str, range(5000)))})[
            "structuredContent"
        ]["got"]
        assert numbers == list(range(5000))

    def test_what_is_published(self):
        """No null for what may be left out, no additionalProperties; but unknown names
        are refused, and the right one is told."""
        listed, call = offered(self.kit)
        assert listed["inputSchema"] == {
            "type": "object",
            "properties": {
                "n": {"type": "integer", "default": 0},
                "flag": {"type": "boolean", "default": False},
                "xs": {**listing(NUMBER), "default": []},
                "name": {"type": "string", "default": ""},
                "maybe": {"type": "integer"},
                "either": {"anyOf": [NUMBER, {"type": "string"}], "default": 0},
            },
        }
        with pytest.raises(ToolError, match='nme: unknown; did you mean "name"?'):
            call({"nme": "x"})
        # A null that means something is published; arrays always have items.
        assert offered(lambda x=None: 0)[0]["inputSchema"]["properties"] == {"x": {}}
        schema, _ = taking(typing.Optional[int], 10)
        assert schema["properties"]["x"] == {**or_null(NUMBER), "default": 10}
        assert taking(list)[0]["properties"]["x"] == listing({})
        pair = taking(typing.Tuple[float, float])[0]["properties"]["x"]
        assert pair == {**listing({"type": "number"}), "minItems": 2, "maxItems": 2}

    def test_models(self):
        """A class with a schema of its own is known by its methods, wherever it stands,
        and judges its own values."""

        class Model:
            def __init__(self, **values):
                self.values = values

            @classmethod
            def model_json_schema(cls, mode="validation"):
                ref = {"$ref": "#/$defs/Part"}
                part = {"title": "Part", "type": "object", "pattern": "(?<=x)"}
                members = {"part": ref, "more": or_null(ref)}
                schema = {"type": "object", "title": mode, "properties": members}
                return {**schema, "$defs": {"Part": part}}

            @classmethod
            def model_validate(cls, value):
                if "part" not in value:
                    raise ValueError("no part")
                return cls(**value)

            def model_dump(self, mode="json", by_alias=True):
                return self.values

        def fn(one, many, inside):
            return one

        fn.__annotations__ = {
            "one": Model,
            "many": typing.List[Model],
            "inside": typing.Optional[Model],
            "return": Model,
        }
        listed, call = offered(fn)
        schema = listed["inputSchema"]
        part = {"type": "object", "pattern": "(?<=x)"}
        own = {"type": "object", "properties": {"part": part, "more": part}}
        assert schema["properties"]["one"] == own
        assert schema["properties"]["many"] == listing(own)
        assert schema["properties"]["inside"] == or_null(own)
        assert listed["outputSchema"]["title"] == "serialization"
        assert "$defs" not in schema and "$defs" not in listed["outputSchema"]
        given = {"one": {"part": 1}, "many": ['{"part": 2}'], "inside": None}
        assert call(given)["structuredContent"] == {"part": 1}
        with pytest.raises(ToolError, match="one: no part"):
            call({**given, "one": {}})

    def test_pydantic(self):
        """Models and Fields of pydantic's; it is never imported here."""
        pydantic = pytest.importorskip("pydantic")
        from typing_extensions import Annotated

        class Item(pydantic.BaseModel):
            sku: str = pydantic.Field(pattern="^[A-Z]+$")

        class Order(pydantic.BaseModel):
            items: typing.List[Item]
            gift: typing.Optional[Item] = None

        def fn(order, pages, size):
            return order.items[0] if size == 3 else None

        fn.__defaults__ = (pydantic.Field(default=3, le=9),)
        fn.__annotations__ = {
            "order": Order,
            "pages": Annotated[int, pydantic.Field(ge=1, description="how many")],
            "size": int,
            "return": typing.Optional[Item],
        }
        listed, call = offered(fn)
        properties = listed["inputSchema"]["properties"]
        assert properties["pages"] == {
            **NUMBER,
            "minimum": 1,
            "description": "how many",
        }
        assert properties["size"] == {**NUMBER, "maximum": 9, "default": 3}
        item = {"type": "string", "pattern": "^[A-Z]+$"}
        assert properties["order"]["properties"]["gift"] == {
            "type": "object",
            "properties": {"sku": item},
            "required": ["sku"],
        }
        order = {"items": [{"sku": "A"}], "gift": None}
        result = call({"order": order, "pages": "2"})["structuredContent"]
        assert result == {"result": {"sku": "A"}}
        said = r"order.items\[0\].sku: String should match"
        with pytest.raises(ToolError, match=said):
            call({"order": {"items": [{"sku": "a"}]}, "pages": 1})

    def test_fields_of_pydantic(self):
        """A Field may give the default, as the default or in the hint."""
        pydantic = pytest.importorskip("pydantic")
        from typing_extensions import Annotated

        def fn(a, b, c, d, e):
            return [a, b, c, d, e]

        field = pydantic.Field
        fn.__defaults__ = (field(ge=1), field(default_factory=list, max_length=2), 5)
        fn.__annotations__ = {
            "a": Annotated[int, field(default=3, description="how many")],
            "b": Annotated[typing.Optional[str], field(default=None)],
            "c": int,
            "d": typing.List[int],
            "e": Annotated[int, field(default=9)],
        }
        listed, call = offered(fn)
        assert listed["inputSchema"]["required"] == ["c"]
        assert listed["inputSchema"]["properties"] == {
            "a": {**NUMBER, "description": "how many", "default": 3},
            "b": {"type": "string"},
            "c": {**NUMBER, "minimum": 1},
            # What a default_factory makes is not published.
            "d": {**listing(NUMBER), "maxItems": 2},
            "e": {**NUMBER, "default": 5},
        }
        for given, got in (
            ({"c": 1}, [3, None, 1, [], 5]),
            ({"c": "2", "a": 4, "d": "[1]", "e": 6}, [4, None, 2, [1], 6]),
        ):
            assert call(given)["structuredContent"]["result"] == got
        with pytest.raises(ToolError, match="c: expected at least 1, got 0"):
            call({"c": 0})
        own = {"type": "object", "properties": {"c": {}}}
        _, call = offered(fn, input_schema=own)
        assert call({"c": 7})["structuredContent"]["result"] == [3, None, 7, [], 5]

    def test_recursive_models_of_pydantic(self):
        """Such a model keeps its definitions, with those of its members."""
        pydantic = pytest.importorskip("pydantic")

        class Leaf(pydantic.BaseModel):
            x: int

        class Knot(pydantic.BaseModel):
            leaf: Leaf
            more: typing.List["Knot"] = []

        Knot.model_rebuild(_types_namespace={"Knot": Knot, "Leaf": Leaf})
        schema, take = taking(Knot)
        assert schema["properties"]["x"] == {"$ref": "#/$defs/Knot"}
        leaf = {"type": "object", "properties": {"x": NUMBER}, "required": ["x"]}
        more = {**listing({"$ref": "#/$defs/Knot"}), "default": []}
        assert schema["$defs"].keys() == {"Knot", "Leaf"}
        assert schema["$defs"]["Leaf"] == leaf
        knot = schema["$defs"]["Knot"]["properties"]
        assert knot == {"leaf": {"$ref": "#/$defs/Leaf"}, "more": more}
        wire = {"leaf": {"x": 1}, "more": [{"leaf": {"x": 2}, "more": []}]}
        bound, returned = take(wire)
        assert type(bound.more[0]) is Knot and returned == wire

    def test_dataclasses_of_pydantic(self):
        """They are models, too: pydantic makes their schema, and judges values."""
        pydantic = pytest.importorskip("pydantic")
        dataclass = importlib.import_module("pydantic.dataclasses").dataclass

        class Spot:
            """A place."""

            x: int = pydantic.Field(ge=1, description="east")
            y: typing.Optional[str] = None

        # The class's hints are text here, and may be read from its own annotations.
        Spot.__annotations__ = {"x": int, "y": typing.Optional[str]}
        Spot = dataclass(Spot)
        schema, take = taking(Spot)
        assert schema["properties"]["x"] == {
            "type": "object",
            "description": "A place.",
            "properties": {
                "x": {**NUMBER, "minimum": 1, "description": "east"},
                "y": {"type": "string"},
            },
            "required": ["x"],
        }
        bound, returned = take({"x": "3"})
        assert type(bound) is Spot and returned == {"x": 3, "y": None}
        with pytest.raises(ToolError, match="x.x: Input should be greater than"):
            take({"x": 0})

    def test_attrs(self):
        """A private name loses its underscore on the wire, there and back."""
        attr = pytest.importorskip("attr")

        @attr.s
        class Spot:
            x = attr.ib(type=int)
            _y = attr.ib(type=int, default=3)
            z = attr.ib(type=list, default=attr.Factory(list))

        schema, take = taking(Spot)
        assert schema["properties"]["x"]["properties"] == {
            "x": NUMBER,
            "y": {**NUMBER, "default": 3},
            "z": listing({}),
        }
        bound, returned = take({"x": "1", "y": 4})
        assert bound == Spot(1, 4, []) and returned == {"x": 1, "y": 4, "z": []}
        with pytest.raises(ToolError, match='x._y: unknown; did you mean "y"?'):
            take({"x": 1, "_y": 4})

    def test_notes_of_others(self):
        """Notes of annotated_types say the same by the same names as Param."""
        types = pytest.importorskip("annotated_types")
        from typing_extensions import Annotated

        for hint, note, schema in (
            (int, types.Ge(1), {"minimum": 1}),
            (int, types.Lt(9), {"exclusiveMaximum": 9}),
            (int, types.MultipleOf(5), {"multipleOf": 5}),
            (float, types.Interval(ge=0, le=1), {"minimum": 0, "maximum": 1}),
            (str, types.Len(1, 3), {"minLength": 1, "maxLength": 3}),
            (typing.List[int], types.MinLen(1), {"minItems": 1}),
        ):
            plain = taking(hint)[0]["properties"]["x"]
            noted = taking(Annotated[hint, note])[0]["properties"]["x"]
            assert noted == {**plain, **schema}

    def test_unknown_members_of_members(self):
        """They are refused at every depth, and the right name is told."""

        @dataclasses.dataclass
        class Home:
            street: str
            city: str = ""

        @dataclasses.dataclass
        class Owner:
            name: str
            home: typing.Optional[Home] = None
            others: typing.List[Home] = ()

        schema, take = taking(Owner)
        assert "additionalProperties" not in json.dumps(schema)
        home = {"street": "s"}
        assert take({"name": "Bo", "home": home})[0] == Owner("Bo", Home("s"))
        for wrong, said in (
            ({"nme": 1}, 'x.nme: unknown; did you mean "name"?'),
            ({"home": {**home, "cty": 1}}, 'x.home.cty: unknown; did you mean "city"?'),
            ({"others": [{**home, "tree": 1}]}, r"x.others\[0\].tree: unknown; did"),
        ):
            with pytest.raises(ToolError, match=said):
                take({"name": "Bo", **wrong})
        # One that is null counts as left out. A result may have more than its hint says.
        assert take({"name": "Bo", "nick": None})[0] == Owner("Bo")
        _, call = offered(lambda: {"a": 1, "b": 2})
        assert call({})["structuredContent"] == {"a": 1, "b": 2}

    def test_a_union_of_classes(self):
        """An object becomes an instance of the class whose members it has."""

        @dataclasses.dataclass
        class Cat:
            name: str
            lives: int = 9

        @dataclasses.dataclass
        class Dog:
            name: str
            tricks: int = 0

        _, take = taking(typing.Union[Cat, Dog])
        assert take({"name": "a", "tricks": 1})[0] == Dog("a", 1)
        assert take({"name": "a"})[0] == Cat("a")

    def test_suggestions_are_few(self):
        """The first three unknown names get one; others are only named."""

        class Stay(typing.NamedTuple):
            city: str = ""
            days: int = 1

        with pytest.raises(ToolError) as caught:
            taking(Stay)[1](dict.fromkeys("abcde", 1))
        told = str(caught.value).split("; ")
        assert told.count('known: ["city", "days"]') == 3
        assert told[-1] == "x.e: unknown"

    def test_a_refusal_quotes_what_came(self):
        """Text that is JSON by chance is not told as that."""
        for hint, sent in ((datetime.date, "2026"), (datetime.timedelta, "90")):
            with pytest.raises(ToolError, match=f'got "{sent}"$'):
                taking(hint)[1](sent)
        _, call = offered(self.kit)
        with pytest.raises(ToolError, match=r'^t: xs\[1\]: expected integer, got "a"$'):
            call({"xs": '[1, "a"]'})

    def test_what_becomes_a_list(self):
        """Iterators and generators, and what else can be gone through."""

        def numbers(n: int = 3) -> typing.Iterator[int]:
            yield from range(n)

        listed, call = offered(numbers)
        assert listed["outputSchema"]["properties"]["result"] == listing(NUMBER)
        assert call({})["structuredContent"] == {"result": [0, 1, 2]}
        for make, value in (
            (lambda: range(3), [0, 1, 2]),
            (lambda: map(str, range(2)), ["0", "1"]),
            (lambda: collections.deque([1]), [1]),
            (lambda: {"a": 1}.items(), [["a", 1]]),
            (lambda: [{"k": iter("ab")}, 1], [{"k": ["a", "b"]}, 1]),
        ):
            result = offered(make)[1]({})
            assert result["structuredContent"] == {"result": value}
        environment = types.MappingProxyType({"a": 1})
        assert offered(lambda: environment)[1]({})["structuredContent"] == {"a": 1}

    def test_what_has_no_form_in_json(self):
        """The failure names the tool and the class."""
        _, call = offered(lambda: {"a": [socket]})
        with pytest.raises(ToolError) as caught:
            call({})
        said = "t: TypeError: a[0]: a value of class module has no JSON form"
        assert str(caught.value) == said

    def test_an_alias_that_contains_itself(self):
        """It has no name that a definition could have: the function is refused."""

        def fn(x):
            """"""

        fn.__annotations__ = {"x": "Endless", "return": "Endless"}
        fn.__globals__["Endless"] = typing.List["Endless"]  # noqa: F821
        try:
            with pytest.raises(TypeError, match="fn: .*recursion"):
                Server("s").add_tool(fn)
            del fn.__annotations__["x"]
            assert "outputSchema" not in offered(fn)[0]
        finally:
            del fn.__globals__["Endless"]

    def test_two_classes_of_one_name(self):
        """Their definitions would be one: the function is refused."""

        def make():
            @dataclasses.dataclass
            class Knot:
                more: "typing.List[Knot]"

            return Knot

        def fn(a, b):
            """"""

        fn.__annotations__ = {"a": make(), "b": make()}
        with pytest.raises(TypeError, match="b: two classes are called Knot; rename"):
            Server("s").add_tool(fn)

    def test_a_message_that_is_not_decoded_is_refused_by_its_id(self):
        """One with too many brackets, over HTTP as well as on a pipe."""
        message = json.dumps(request("tools/call", {"a": [[]] * 500_000}, 7))
        assert message.startswith('{"jsonrpc": "2.0", "id": 7, "method"')
        server = Server("s")
        with LocalWire(server) as wire:
            wire.send(message.encode() + b"\n")
            assert wire.read()["id"] == 7
            wire.send(message.replace("7", '"a-b"', 1).encode() + b"\n")
            assert wire.read()["id"] == "a-b"
        with server.start_http() as http:
            headers = {"Content-Type": "application/json"}
            asked = urllib.request.Request(http.url, message.encode(), headers)
            with pytest.raises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(asked, timeout=60)
            with caught.value as answer:
                assert (answer.code, json.load(answer)["id"]) == (400, 7)

    def test_what_an_older_revision_does_not_have(self):
        """A question with it is a ValueError, before anything is sent."""
        asked = []
        server = Server("s", mask_errors=False)
        several = {"type": "array", "items": {"type": "string", "enum": ["a"]}}
        form = {"type": "object", "properties": {"x": several}}

        @server.tool
        def sample(ctx: Context, kind: str) -> dict:
            content = Audio(WAV) if kind == "audio" else ["a", "b"]
            return ctx.sample([Message(content)])

        @server.tool
        def choose(ctx: Context) -> dict:
            return ctx.elicit("which?", form)

        def respond(params):
            asked.append(params)
            return {"action": "decline"} if "message" in params else "fine"

        for version, since in ((EVERY[0], 0), ("2025-03-26", 1), ("2025-06-18", 2)):
            options = {"on_sample": respond, "on_elicit": respond}
            with Client(server, protocol_version=version, **options) as client:
                said = f"ValueError: messages: a list of content: not in {version}"
                with pytest.raises(ToolError, match=said):
                    client.call("sample", kind="several")
                if since == 0:
                    with pytest.raises(ToolError, match="ValueError: messages: audio"):
                        client.call("sample", kind="audio")
                if since == 2:
                    with pytest.raises(ToolError, match="ValueError: .*since 2025-11"):
                        client.call("choose")
                assert asked == []
        for version in EVERY[3:]:
            with Client(server, protocol_version=version, **options) as client:
                client.call("sample", kind="several")
                client.call("choose")
        assert len(asked) == 4

    def test_classes_that_contain_themselves(self):
        """They have a definition, and references to it."""

        def fn(root: Tree, chain: Chain) -> Tree:
            assert isinstance(root.children[0], Tree)
            return root.children[0]

        listed, call = offered(fn)
        schema = listed["inputSchema"]
        ref = {"$ref": "#/$defs/Tree"}
        assert schema["properties"]["root"] == ref
        assert schema["$defs"].keys() == {"Tree", "Chain"}
        assert schema["$defs"]["Tree"]["properties"]["children"]["items"] == ref
        assert listed["outputSchema"]["type"] == "object"
        leaf = {"value": 2, "children": []}
        chain = {"when": "2026-01-02", "next": {"when": "2026-01-03", "next": None}}
        given = {"root": {"value": 1, "children": [leaf]}, "chain": chain}
        assert call(given)["structuredContent"] == leaf
        leaf["value"] = "x"
        with pytest.raises(ToolError, match=r"root.children\[0\].value: expected int"):
            call(given)

    def test_durations(self):
        """They are those of ISO 8601, without months and years."""
        _, take = taking(datetime.timedelta)
        for text, seconds in (("PT90S", 90), ("P1DT2H", 93600), ("PT1.5S", 1.5)):
            bound, back = take(text)
            assert bound == datetime.timedelta(seconds=seconds)
            assert back == f"PT{seconds}S"
        for wrong in ("P1M", "PT", "90", "P"):
            with pytest.raises(ToolError, match="x: expected"):
                take(wrong)

    def test_docstrings_of_classes(self):
        """The docstring of a dataclass describes it, and its members."""

        @dataclasses.dataclass
        class Spot:
            """A place.

            Args:
                x: How far east.
            """

            x: int

        schema = taking(Spot)[0]["properties"]["x"]
        assert schema["description"] == "A place."
        assert schema["properties"]["x"] == {**NUMBER, "description": "How far east."}
        assert "description" not in taking(Person)[0]["properties"]["x"]

    def test_large_values(self, monkeypatch):
        """What a server returns may be as large as the wire takes."""
        monkeypatch.setattr(mcp_lite, "MAX_STEPS", mcp_lite.MAX_STEPS // 10)
        server = Server("s")
        names = [f"f{n}" for n in range(8)]
        row = dict.fromkeys(names, 1)

        @server.tool
        def numbers() -> typing.List[int]:
            return list(range(60_000))

        @server.tool
        def rows() -> typing.List[typing.Dict[str, typing.Optional[int]]]:
            return [row] * 4_000

        with Client(server) as client:
            assert len(client.call("numbers")) == 60_000
            assert client.call("rows") == [row] * 4_000

    @pytest.mark.parametrize(
        "schema",
        [
            {"$schema": "http://json-schema.org/draft-04/schema#"},
            {"$ref": "http://x/y"},
            {"$ref": "#/no"},
            {"properties": {"a": {"pattern": "\\p{Lu}"}}},
            {"properties": {"a": {"pattern": "(?<=a)b"}}},
        ],
    )
    def test_schemas_that_cannot_be_used(self, schema, caplog):
        """The tool has run: its result is given unchecked, and the log says so, once."""
        answers = {
            "tools_list": {"tools": [{"name": "x", "outputSchema": schema}]},
            "tools_call": {"content": [], "structuredContent": {"a": 1}},
        }
        with talking_to(legacy_server(**answers)) as client:
            assert [client.call("x") for _ in range(3)] == [{"a": 1}] * 3
        told = [each for each in caplog.records if "not checked" in each.getMessage()]
        assert len(told) == 1

    WRAPPED = {"type": "object", "properties": {"result": {}}, "required": ["result"]}

    @pytest.mark.parametrize(
        "inside, texts, marks, value",
        [
            # Ours, and any other server that writes the value as text.
            (5, ["5"], {}, 5),
            ([1, 2], ["[1,2]"], {}, [1, 2]),
            ("a", ["a"], {}, "a"),
            ("5", ["5"], {}, "5"),
            # A tool that returns such an object.
            (5, ['{"result":5}'], {}, {"result": 5}),
            (5, ['{\n  "result": 5\n}'], {"title": "addDictOutput"}, {"result": 5}),
            # The official SDK cuts lists up, and gives the schema a title.
            ([1, 2], ["1", "2"], {}, [1, 2]),
            ([], [], {}, []),
            ([[1], [2]], ["1", "2"], {"title": "addOutput"}, [[1], [2]]),
            # FastMCP marks the schema.
            ({"result": 5}, ['{"result":5}'], {"x-fastmcp-wrap-result": True}, None),
            # Other text than the value's is for people.
            (5.0, ["five"], {}, 5.0),
        ],
    )
    def test_wrapped_values(self, inside, texts, marks, value):
        """{"result": value} is unwrapped, unless the text has all of that."""
        content = [{"type": "text", "text": text} for text in texts]
        schema = {**self.WRAPPED, **marks}
        answers = {
            "tools_list": {"tools": [{"name": "x", "outputSchema": schema}]},
            "tools_call": {"content": content, "structuredContent": {"result": inside}},
        }
        with talking_to(legacy_server(**answers)) as client:
            assert client.call("x") == (inside if value is None else value)

    def test_failures_of_a_handlers_own_client(self, era):
        """They are the tool's failure, not the answer of the protocol."""
        inner = Server("inner")
        outer = Server("outer")

        @inner.tool
        def fail() -> str:
            raise McpError(-32020, "a header differs")

        @outer.tool
        def relay(tool: str) -> str:
            with Client(inner) as client:
                return client.call(tool)

        ran = []

        @outer.tool
        def own() -> str:
            ran.append(1)
            raise McpError(-7, "mine")

        with Client(outer, protocol_version=era) as client:
            with pytest.raises(ToolError, match="a header differs"):
                client.call("relay", tool="fail")
            with pytest.raises(ToolError, match="Unknown tool: nosuch"):
                client.call("relay", tool="nosuch")
            with pytest.raises(McpError, match="mine"):
                client.call("own")
        assert ran == [1]

    @pytest.mark.parametrize(
        "options, in_memory, over_http",
        [
            ({}, "boom: KeyError: 'x'", "boom failed; see the server's log"),
            ({"mask_errors": False}, "boom: KeyError: 'x'", "boom: KeyError: 'x'"),
            ({"mask_errors": True}, "boom failed; see the server's log", None),
        ],
    )
    def test_who_hears_of_exceptions(self, options, in_memory, over_http):
        """Those in memory and on stdio; over HTTP only if the program says so."""
        server = Server("s", **options)
        server.add_tool(lambda: {}["x"], name="boom")
        with server.start_http() as http:
            for target, said in ((server, in_memory), (http.url, over_http)):
                with Client(target) as client, pytest.raises(ToolError) as caught:
                    client.call("boom")
                assert str(caught.value) == (said or in_memory)

    def test_names(self, caplog):
        """A decorator's text is the name; a second of that name is told, and serves."""
        server = Server("s")

        @server.tool("one", title="One")
        def first() -> int:
            return 1

        @server.tool("one")
        def second() -> int:
            return 2

        @server.prompt("ask")
        def third() -> str:
            return "?"

        with Client(server) as client:
            assert [each["name"] for each in client.list_tools()] == ["one"]
            assert [each["name"] for each in client.list_prompts()] == ["ask"]
            assert client.call("one") == 2
        assert [each.getMessage() for each in caplog.records] == [
            "one is registered again, in place of the first"
        ]

    def test_progress_is_always_asked_for(self):
        """The time-out starts anew with each progress notification."""
        server = Server("s")

        @server.tool
        def work(ctx: Context) -> int:
            for step in range(3):
                ctx.progress(step)
                ctx.sleep(0.3)
            return 3

        def call(era):
            with Client(server, protocol_version=era, timeout=0.8) as client:
                assert client.call("work") == 3

        at_once(call, [("2025-11-25",), (MODERN,)])

    @pytest.mark.parametrize(
        "options, declared",
        [
            ({}, {}),
            ({"on_elicit": print}, {"elicitation": {"form": {}}}),
            ({"on_elicit_url": print}, {"elicitation": {"url": {}}}),
            ({"on_sample": print}, {"sampling": {}}),
            ({"on_sample": print, "sampling_tools": True}, {"sampling": {"tools": {}}}),
        ],
    )
    def test_what_a_client_declares(self, options, declared, era):
        """Only what its program can do."""
        server = Server("s")

        @server.tool
        def asks(ctx: Context) -> dict:
            return ctx.client_capabilities

        with Client(server, protocol_version=era, **options) as client:
            assert client.call("asks") == declared

    def test_sessions_on_one_pipe(self):
        """Another `initialize` opens the session anew; what is in flight goes on."""
        server = build_server()
        with LocalWire(server) as wire:
            wire.open("2025-06-18", {"elicitation": {}})
            assert wire.ask("logging/setLevel", {"level": "error"})["result"] == {}
            assert wire.ask("resources/subscribe", {"uri": "x://note"})["result"] == {}
            wire.send(call_legacy("wait", 7))
            assert "result" in wire.ask("tools/call", {"name": "is_waiting"}, 8)

            opened = wire.ask("initialize", opening("2025-11-25"))["result"]
            assert opened["protocolVersion"] == "2025-11-25"
            # It is not heard of: neither is this session initialized, nor subscribed.
            server.resource_updated("x://note")
            assert wire.ask("ping", id=9)["id"] == 9
            wire.send(notice("initialized"))
            server.resource_updated("x://note")
            # The client of this session declares nothing.
            refused = wire.ask("tools/call", {"name": "form"}, 10)["error"]
            assert refused["code"] == -32021
            wire.send(
                {"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": 7}}
            )
            assert wire.read()["id"] == 7

    def test_a_server_that_prints(self, caplog, monkeypatch):
        """A client answers no line that is no message. It warns once in a burst, and
        says so when it waits in vain."""
        written = []

        def echo(message, read, write):
            write(b"".join(b"log: %d\n" % n for n in range(500)))
            write({"level": "info", "id": 5})
            write({"jsonrpc": "2.0", "id": 6})
            written.append(read())

        late = pytest.raises(Timeout, match="502 lines were no messages; does the ser")
        with talking_to(legacy_server(tools_call=echo), timeout=0.5) as client, late:
            client.call("x")
        eventually(lambda: written, "what the client says next")
        # It has said nothing before it gave up.
        assert written[0] is None or written[0]["method"] == "notifications/cancelled"
        warned = [each for each in caplog.messages if "does the server print?" in each]
        assert len(warned) == 1 and "log: 0" in warned[0]

    @pytest.mark.parametrize("over_http", [False, True])
    def test_generators(self, over_http):
        """What an iterator gives is a list. The body of a generator runs where its
        function does."""
        main = MainThread()
        seen = set()
        server = Server("s", run_on=main)

        @server.tool
        def count(to: int) -> typing.Iterator[int]:
            for n in range(to):
                seen.add(threading.current_thread())
                yield n

        with client_at(server, over_http) as client:
            called = hosted(main, lambda: client.call("count", to=3))
            schema = client.list_tools()[0]["outputSchema"]
        assert called == [0, 1, 2]
        assert seen == {threading.current_thread()}
        assert schema["properties"]["result"]["type"] == "array"

    def test_a_value_without_a_form(self):
        """The failure names the tool."""
        server = Server("s")

        @server.tool
        def thing() -> dict:
            return {"a": object()}

        with Client(server) as client, pytest.raises(ToolError) as caught:
            client.call("thing")
        said = r"thing: TypeError: .*class object has no JSON form"
        assert re.fullmatch(said, str(caught.value))

    def test_formats_that_clients_check(self):
        """An outputSchema promises no format that a value may break: a time has an
        offset in RFC 3339, and a duration no sign. An inputSchema shows it."""

        @dataclasses.dataclass
        class Slot:
            at: datetime.datetime
            long: datetime.timedelta

        server = Server("s")

        @server.tool
        def book(at: datetime.datetime) -> Slot:
            return Slot(at, datetime.timedelta(seconds=-0.5))

        with Client(server) as client:
            [tool] = client.list_tools()
            made = client.call("book", at="2026-01-02T03:04:05")
        assert made == {"at": "2026-01-02T03:04:05", "long": "-PT0.5S"}
        assert tool["inputSchema"]["properties"]["at"]["format"] == "date-time"
        assert "format" not in json.dumps(tool["outputSchema"])

    def test_a_class_with_a_heading(self):
        """The heading of a class's list of attributes goes with its entries."""

        @dataclasses.dataclass
        class Part:
            """A part.

            Attributes:
                size: in inches
            """

            size: int

        server = Server("s")

        def take(part):
            return part.size

        take.__annotations__["part"] = Part
        server.add_tool(take)
        with Client(server) as client:
            [tool] = client.list_tools()
        [part] = tool["inputSchema"]["properties"].values()
        assert part["description"] == "A part."
        assert part["properties"]["size"]["description"] == "in inches"

    @pytest.mark.parametrize("seconds", [0, 90, 1.5, -7.25, 123456789.5, 3 * 86400])
    def test_a_duration_both_ways(self, seconds):
        """A timedelta is an ISO 8601 duration, both ways."""
        given = datetime.timedelta(seconds=seconds)
        server = Server("s")

        @server.tool
        def same(x: datetime.timedelta) -> datetime.timedelta:
            assert x == given
            return x

        wire = mcp_lite.to_plain(given)
        with Client(server) as client:
            assert client.call("same", x=wire) == wire

    def test_lists_have_an_end(self, monkeypatch):
        """All pages of a list share one time-out, and have 100,000 items at most."""
        page = {"tools": [{"name": "x", "inputSchema": {}}] * 10, "nextCursor": "y"}

        def slow(message, read, write):
            threading.Event().wait(0.05)
            return page

        late = pytest.raises(Timeout)
        with talking_to(legacy_server(tools_list=slow), timeout=0.2) as client, late:
            client.list_tools()
        monkeypatch.setattr(mcp_lite, "MAX_ITEMS", 25)
        long = pytest.raises(InvalidResponse, match="more than 25 items")
        server = legacy_server(tools_list=lambda message, read, write: page)
        with talking_to(server) as client, long:
            client.list_tools()

    def test_subscriptions_of_a_session(self, monkeypatch):
        """There are as many as there may be listeners."""
        monkeypatch.setattr(mcp_lite, "MAX_LISTENERS", 2)
        server = Server("s")
        server.resource("x://{n}")(lambda n: n)
        with Client(server, protocol_version="2025-11-25") as client:
            client.subscribe("x://1")
            client.subscribe("x://2")
            with pytest.raises(InvalidRequest, match="2 resources"):
                client.subscribe("x://3")

    def test_what_waits_for_a_program_is_bounded(self, monkeypatch, caplog):
        """By bytes as well: then the oldest goes, and the log says so once."""
        monkeypatch.setattr(mcp_lite, "MAX_QUEUED_BYTES", 50_000)
        server = Server("s")
        gate = threading.Event()
        heard = []

        @server.tool
        def flood(ctx: Context) -> None:
            for n in range(100):
                ctx.info(f"{n:03} " + "x" * 1000)

        def on_log(level, data, logger):
            gate.wait(SECONDS)
            heard.append(int(data[:3]))

        with Client(server, protocol_version="2025-11-25", on_log=on_log) as client:
            client.call("flood")
            gate.set()
            assert client.flush_callbacks(SECONDS)
        assert heard == sorted(heard) and heard[-1] == 99
        assert 30 < len(heard) < 60
        assert len([each for each in caplog.messages if "oldest" in each]) == 1

    def test_a_traceback_in_the_log(self, caplog):
        """An exception's text forges no line of the log, and sends no escapes."""
        server = Server("s")

        @server.tool
        def quote(text: str) -> None:
            raise ValueError(text)

        with Client(server) as client:
            client.call_tool("quote", {"text": "x\nWARNING root: forged\x1b[2J"})
        [record] = [each for each in caplog.records if each.exc_info]
        told = logging.Formatter("%(levelname)s %(message)s").format(record)
        assert r"forged\x1b[2J" in told and "\x1b" not in told
        lines = told.split("\n")
        assert [each for each in lines if "forged" in each][0].startswith("    ")

    def test_a_stateless_door(self):
        """handle() refuses `initialize`, and says what takes it."""
        answer = Server("s").handle(request("initialize", opening("2025-11-25")))
        assert answer["error"]["code"] == -32600
        assert "wsgi_app" in answer["error"]["message"]

    @pytest.mark.parametrize(
        "target", ["127.0.0.1:8000/mcp", "localhost:80", "unix:///run/x", "ftp://x/mcp"]
    )
    def test_targets_that_lack_http(self, target):
        """They are told from commands."""
        with pytest.raises(ValueError, match="expected http://"):
            Client(target)

    def test_many_rounds(self):
        """A tool may ask more than ten times, one after another."""
        server = Server("s")

        @server.tool
        def wizard(ctx: Context) -> int:
            for page in range(20):
                ctx.elicit(f"page {page}", FORM)
            return 20

        with Client(server, on_elicit=answer) as client:
            assert client.call("wizard") == 20


OTHER_MODULE = """
from __future__ import annotations
import dataclasses


class Place:
    pass


@dataclasses.dataclass
class Leaf:
    size: int


@dataclasses.dataclass
class Base:
    leaf: Leaf
"""
LATER_HINTS = """
from __future__ import annotations
import dataclasses


def make(server):
    @dataclasses.dataclass
    class Item:
        price: int
        parts: list[Item] = ()

    @server.tool
    def total(items: list[Item]) -> int:
        return sum(item.price + len(item.parts) for item in items)
"""
NEW_SYNTAX = """
import dataclasses

type Json = dict[str, Json] | list[Json] | str | int | None
type Pair[T] = tuple[T, T]
type Number = int | float


@dataclasses.dataclass
class Item:
    price: int


@dataclasses.dataclass
class Page[T]:
    items: list[T]
    more: "Page[T] | None" = None


class Items(Page[Item]):
    pass
"""


@dataclasses.dataclass
class Left:
    more: "typing.Union[Left, Right, None]"


@dataclasses.dataclass
class Right:
    more: "typing.Union[Left, Right, None]"
    last: int = 0


def power(base: int, exponent: int) -> int:
    return base**exponent


def with_db(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        return fn("db", *args, **kwargs)

    signature = inspect.signature(fn)
    parameters = list(signature.parameters.values())[1:]
    wrapper.__signature__ = signature.replace(parameters=parameters)
    return wrapper


class Shop:
    @functools.lru_cache(None)  # noqa: B019
    def price(self, item: str) -> str:
        return item

    @classmethod
    def name(cls, short: bool) -> str:
        return cls.__name__

    @staticmethod
    def plain(text: str) -> str:
        return text

    def __call__(self, text: str) -> str:
        return text


class TestHints:
    """What a hint means, in the rooms Content and Functions: schema and conversion."""

    def test_all_failures_at_once(self):
        """Each names its place, whether the type, a limit or a conversion is wrong."""

        @dataclasses.dataclass
        class Reading:
            at: datetime.date
            value: float

        @dataclasses.dataclass
        class Sample:
            name: str
            readings: typing.List[Reading]

        _, take = taking(Sample)
        wrong = [{"at": "2026-02-30", "value": 1}, {"at": "2026-02-03", "value": "x"}]
        with pytest.raises(ToolError) as caught:
            take({"readings": [*wrong, {"at": 5, "valeu": 1}, 7]})
        assert str(caught.value)[len("t: ") :].split("; ") == [
            'x.readings[0].at: expected an ISO 8601 date, got "2026-02-30"',
            'x.readings[1].value: expected number, got "x"',
            "x.readings[2].at: expected string, got 5",
            "x.readings[2].valeu: unknown",
            'did you mean "value"?',
            "x.readings[2].value: required, but missing",
            "x.readings[3]: expected object, got 7",
            "x.name: required, but missing",
        ]
        with pytest.raises(ToolError) as caught:
            taking(typing.List[int])[1](["x"] * 1000)
        assert str(caught.value).count("expected integer") == 20

    def test_a_union_takes_a_value_as_it_is(self):
        """Only if no alternative takes it, texts are decoded."""
        for hint, wire, value in (
            (typing.Union[float, int], 3, 3),
            (typing.Union[int, str], "3", "3"),
            (typing.Union[int, bool], "3", 3),
            (typing.Union[typing.List[int], typing.List[str]], ["3"], ["3"]),
            (typing.Optional[typing.List[int]], ["3", 4], [3, 4]),
            (typing.Union[datetime.date, str], "soon", "soon"),
        ):
            bound, _ = taking(hint)[1](wire)
            assert bound == value and type(bound) is type(value)
        _, take = taking(typing.Union[int, datetime.date])
        with pytest.raises(ToolError, match="x: expected integer or an ISO 8601 date"):
            take("x")

    def test_a_costly_union_is_refused(self, monkeypatch):
        """Each attempt is paid for, so no nesting takes long."""

        monkeypatch.setattr(mcp_lite, "MAX_STEPS", 2_000)
        monkeypatch.setattr(mcp_lite, "STEPS_EACH", 1)
        value = {"more": "x"}
        for _ in range(30):
            value = {"more": value}
        with pytest.raises(ToolError, match="too much work|expected"):
            taking(typing.Union[Left, Right])[1](value)

    # Notes
    def test_limits_of_what_json_lacks(self):
        """A limit is checked even where JSON Schema cannot express it."""
        day = datetime.date(2026, 1, 2)

        def fn(
            when: datetime.date = Param(ge=day, default=day),  # noqa: B008
            price: decimal.Decimal = Param(gt=0, default=1),  # noqa: B008
            tags: typing.Set[str] = Param(min_length=2, default=()),  # noqa: B008
        ):
            return [when, price, sorted(tags)]

        listed, call = offered(fn)
        when = listed["inputSchema"]["properties"]["when"]
        assert when == {**text_as("date"), "default": "2026-01-02"}
        given = {"when": "2026-01-03", "price": 0.5, "tags": ["a", "b"]}
        result = call(given)["structuredContent"]["result"]
        assert result == ["2026-01-03", "0.5", ["a", "b"]]
        for wrong in ({"when": "2026-01-01"}, {"price": "-1"}, {"tags": ["a", "a"]}):
            with pytest.raises(ToolError, match="expected (at least|more than)"):
                call(wrong)

    def test_a_param_as_the_default(self):
        """It is a note, as a Field is; without a default, the argument is required."""

        def fn(
            city: str = Param("where"),  # noqa: B008
            days: int = Param(ge=1, default=3),  # noqa: B008
        ):
            return [city, days]

        listed, call = offered(fn)
        schema = listed["inputSchema"]
        assert schema["required"] == ["city"]
        assert schema["properties"] == {
            "city": {"type": "string", "description": "where"},
            "days": {**NUMBER, "minimum": 1, "default": 3},
        }
        assert call({"city": "x"})["structuredContent"] == {"result": ["x", 3]}
        for wrong in ({}, {"city": "x", "days": 0}):
            with pytest.raises(ToolError):
                call(wrong)
        with pytest.raises(TypeError, match="x: .*pattern"):
            offered(lambda x=Param(pattern="(?<=a)"): x)  # noqa: B008

    def test_notes_that_pydantic_runs(self):
        """A validator in a hint is never silently off."""
        pydantic = pytest.importorskip("pydantic")
        from typing_extensions import Annotated

        got = []

        def inside(path):
            if ".." in path:
                raise ValueError("no .. in a path")
            return path

        def fn(x):
            got.append(x)

        for hint, wire, value in (
            (Annotated[str, pydantic.AfterValidator(inside)], "a", "a"),
            (Annotated[str, pydantic.AfterValidator(inside)], "../a", None),
            (Annotated[str, pydantic.BeforeValidator(str.upper)], "a", "A"),
            (Annotated[int, pydantic.Field(strict=True)], "5", None),
            (Annotated[int, pydantic.Field(strict=True, ge=1)], 5, 5),
            (Annotated[int, pydantic.Field(strict=True), Param(le=4)], 5, None),
            (
                Annotated[str, pydantic.StringConstraints(strip_whitespace=True)],
                " 5 ",
                "5",
            ),
            (pydantic.conint(ge=1), "3", 3),
            (pydantic.SecretStr, "3", pydantic.SecretStr("3")),
            (pydantic.AnyUrl, "x", None),
            (pydantic.PositiveInt, 0, None),
        ):
            got.clear()
            fn.__annotations__["x"] = hint
            _, call = offered(fn)
            if value is None:
                with pytest.raises(ToolError, match="x: "):
                    call({"x": wire})
            else:
                call({"x": wire})
                assert got == [value]

    def test_notes_that_nobody_runs(self, monkeypatch):
        """Without pydantic, a validator is refused when the tool is registered."""
        types = pytest.importorskip("annotated_types")
        from typing_extensions import Annotated

        monkeypatch.delitem(sys.modules, "pydantic", raising=False)
        for note in (types.Predicate(str.islower), types.Timezone(None), len, print):
            if type(note) is type(len):
                note = functools.wraps(note)(lambda value: value)
            with pytest.raises(TypeError, match="fn: x: "):

                def fn(x: int):
                    """"""

                fn.__annotations__["x"] = Annotated[str, note]
                offered(fn)

    def test_default_factories(self):
        """Each call makes its own value, and none is published."""
        pydantic = pytest.importorskip("pydantic")
        made = []

        factory = pydantic.Field(default_factory=lambda: made.append(1))

        def fn(first: int = 1, job=factory):
            return first

        listed, call = offered(fn)
        assert not made and listed["inputSchema"]["properties"]["job"] == {}
        call({})
        call({"job": 5})
        with pytest.raises(ToolError):
            call({"first": "x"})
        assert made == [1]
        if not hasattr(
            pydantic.fields.FieldInfo, "default_factory_takes_validated_data"
        ):
            return

        later = pydantic.Field(default_factory=lambda data: data["first"] + 1)

        def span(first: int = 1, last: int = later):
            return [first, last]

        _, call = offered(span)
        for given, result in (
            ({}, [1, 2]),
            ({"first": 5}, [5, 6]),
            ({"last": 0}, [1, 0]),
        ):
            assert call(given)["structuredContent"]["result"] == result

    # Classes and aliases
    def test_generic_classes(self):
        """The arguments of a generic class reach the types of its members."""
        variable = typing.TypeVar("variable")

        @dataclasses.dataclass
        class Page(typing.Generic[variable]):
            items: typing.List[variable]

        @dataclasses.dataclass
        class Book(typing.Generic[variable]):
            pages: typing.List[Page[typing.List[variable]]]

        class People(Page[Person]):
            pass

        person = {"name": "Bo", "age": 1}
        _, take = taking(Page[Person])
        assert take({"items": [person]})[0].items == [Person("Bo", 1)]
        assert taking(People)[1]({"items": [person]})[0].items == [Person("Bo", 1)]
        _, take = taking(Book[datetime.date])
        day = datetime.date(2026, 1, 2)
        assert take({"pages": [{"items": [["2026-01-02"]]}]})[0].pages[0].items == [
            [day]
        ]
        with pytest.raises(
            ToolError, match=r"x.pages\[0\].items\[0\]\[0\]: expected an"
        ):
            take({"pages": [{"items": [["x"]]}]})
        schema, _ = taking(Page)
        assert schema["properties"]["x"]["properties"]["items"] == listing({})
        if sys.version_info >= (3, 11):

            class Row(typing.TypedDict, typing.Generic[variable]):
                cell: variable

            assert taking(Row[int])[1]({"cell": "3"})[0] == {"cell": 3}

    @pytest.mark.skipif(sys.version_info < (3, 12), reason="syntax of Python 3.12")
    def test_aliases_and_type_parameters(self, tmp_path, monkeypatch):
        """`type X = ...` and `class X[T]`, also where they contain themselves."""
        (tmp_path / "newer_syntax.py").write_text(NEW_SYNTAX)
        monkeypatch.syspath_prepend(str(tmp_path))
        newer = importlib.import_module("newer_syntax")
        schema, take = taking(newer.Json)
        assert schema["properties"]["x"] == {"$ref": "#/$defs/Json"}
        value = {"a": [1, "b", {"c": None}]}
        assert take(value) == (value, value)
        with pytest.raises(ToolError, match=r"x.a\[1\]"):
            take({"a": [1, 1.5]})
        _, take = taking(newer.Pair[newer.Number])
        assert take([1, "2.5"])[0] == (1, 2.5)
        for hint in (newer.Page[newer.Item], newer.Items):
            _, take = taking(hint)
            page = take({"items": [{"price": 1}], "more": {"items": [{"price": "2"}]}})[
                0
            ]
            assert page.more.items == [newer.Item(2)]

    def test_hints_of_other_places(self, tmp_path, monkeypatch):
        """A text hint is evaluated where it was written: in the module of a base class,
        or in the function around."""
        (tmp_path / "other_place.py").write_text(OTHER_MODULE)
        (tmp_path / "later_hints.py").write_text(LATER_HINTS)
        monkeypatch.syspath_prepend(str(tmp_path))
        other = importlib.import_module("other_place")

        @dataclasses.dataclass
        class Sub(other.Base):
            more: int = 0

        assert taking(Sub)[1]({"leaf": {"size": "3"}})[0] == Sub(other.Leaf(3))
        server = Server("s")
        importlib.import_module("later_hints").make(server)
        with Client(server) as client:
            items = [{"price": 3, "parts": [{"price": 1}]}]
            assert client.call("total", items=items) == 4

    def test_a_hint_that_cannot_be_evaluated(self):
        """The error says what to do."""

        def fn(x: "Nowhere"):  # noqa: F821
            """"""

        with pytest.raises(
            TypeError, match="'Nowhere' is not defined; define its names"
        ):
            offered(fn)

    def test_a_member_for_the_constructor_only(self):
        """An InitVar is an argument, and no member of a result."""

        @dataclasses.dataclass
        class Box:
            width: int
            scale: dataclasses.InitVar[int]

            def __post_init__(self, scale):
                self.width *= scale

        def fn(box: Box) -> Box:
            return box

        fn.__annotations__.update(box=Box, **{"return": Box})
        _, call = offered(fn)
        given = {"box": {"width": 2, "scale": "3"}}
        assert call(given)["structuredContent"] == {"width": 6}
        with pytest.raises(ToolError, match="box: .*scale"):
            call({"box": {"width": 2}})

    def test_keys_of_a_dict(self):
        """A Literal or Enum names them; one that is wrong has a place, and a reason."""
        for hint in (typing.Literal["red", "green"], Color):
            schema, take = taking(typing.Dict[hint, int])
            names = {"enum": ["red", "green"]}
            assert schema["properties"]["x"] == {**NUMBERS, "propertyNames": names}
            take({"red": 1})
            with pytest.raises(ToolError, match='x.blue: expected one of .*"green"'):
                take({"blue": 1})
        schema, take = taking(typing.Dict[typing.Literal[1, 2], bool])
        assert schema["properties"]["x"]["propertyNames"] == {"enum": ["1", "2"]}
        assert take({"1": True}) == ({1: True}, {"1": True})

    # Callables
    def test_wrapped_callables(self):
        """Their signature is what inspect.signature() reports."""

        @with_db
        def query(db, sql: str) -> str:
            return db + sql

        square = functools.partial(power, exponent=2)
        functools.update_wrapper(square, power)
        shop = Shop()
        method = functools.wraps(shop.price)(
            lambda *args, **kwargs: shop.price(**kwargs)
        )
        if sys.version_info < (3, 10):
            # There, `inspect` loses the object of a method that is wrapped twice.
            method = shop.price
        for fn, given, names in (
            (square, {"base": "3"}, ["base", "exponent"]),
            (functools.partial(power, 3), {"exponent": "2"}, ["exponent"]),
            (query, {"sql": "x"}, ["sql"]),
            (shop.price, {"item": "x"}, ["item"]),
            (method, {"item": "x"}, ["item"]),
            (Shop.name, {"short": "true"}, ["short"]),
            (vars(Shop)["plain"], {"text": "x"}, ["text"]),
            (shop, {"text": "x"}, ["text"]),
        ):
            listed, call = offered(fn)
            assert list(listed["inputSchema"]["properties"]) == names
            assert "structuredContent" not in call(given) or fn is not query
        server = Server("s")
        with pytest.raises(
            TypeError, match="price: cls: .* has no object or class yet"
        ):

            class Early:
                @server.tool
                @classmethod
                def price(cls, item: str) -> int:
                    """"""

        with pytest.raises(TypeError, match="price: cls: this method has no"):

            class Earlier:
                @classmethod
                @server.tool
                def price(cls, item: str) -> int:
                    """"""

    @pytest.mark.parametrize("over_http", [False, True])
    def test_asynchronous_generators(self, over_http):
        """Their items become a list, as those of a generator do."""
        server = Server("s")

        @server.tool
        async def two() -> typing.AsyncIterator[str]:
            yield "a"
            yield "b"

        with client_at(server, over_http) as client:
            assert client.call("two") == ["a", "b"]
            [tool] = client.list_tools()
        assert tool["outputSchema"]["properties"]["result"] == listing(
            {"type": "string"}
        )

    # Docstrings
    @pytest.mark.parametrize(
        "doc, description, days",
        [
            ("A.\n\nReturns:\n    days: left", "A.\n\nReturns:\n    days: left", None),
            (
                "A.\n\nArgs:\n    days: D\n    ctx: the context\n\nNote:\n    days: n",
                "A.\n\nNote:\n    days: n",
                "D",
            ),
            (
                "A.\n\n:param days: D\n:param ctx: C\n:returns: x",
                "A.\n\n:returns: x",
                "D",
            ),
            (
                "A.\n\nParameters\n----------\ndays : int\n    D\nctx : Context\n    C\n",
                "A.",
                "D",
            ),
            ("A.\n\nArgs:\n    - days: D\n    - town: T", "A.", "D"),
            ("A.\n\nArgs:\n    days -- D\n    town -- T", "A.", "D"),
            ("A.\n\nArgs:\n    `days`: D\n    `town`: T", "A.", "D"),
            ("A.\n\nArgs:\n    days: D\n    size: S", "A.\n\nArgs:\n    size: S", "D"),
        ],
    )
    def test_entries_of_docstrings(self, doc, description, days):
        """Only a section for parameters has them; the Context's goes, and a heading
        without entries."""

        def fn(town, ctx: Context, days: int = 1):
            """"""

        fn.__doc__ = doc
        listed, _ = offered(fn)
        assert listed["description"] == description
        described = listed["inputSchema"]["properties"]["days"]
        assert described.get("description") == days

    # Values
    def test_values_that_are_more_than_their_items(self, tmp_path):
        """Mappings keep their names, bytes are base64, and files are refused."""
        import array
        import sqlite3

        class Frame:
            def __iter__(self):
                return iter(["city"])

            def keys(self):
                return ["city"]

            def __getitem__(self, name):
                return Column(["Oslo"])

        class Column:
            def __init__(self, values):
                self.tolist = lambda: values

        def row():
            db = sqlite3.connect(":memory:")
            db.row_factory = sqlite3.Row
            return db.execute("SELECT 1 AS id, 'tea' AS name").fetchone()

        path = tmp_path / "text"
        path.write_text("a")
        for make, value in (
            (Frame, {"city": ["Oslo"]}),
            (row, {"id": 1, "name": "tea"}),
            (lambda: bytearray(b"hi"), "aGk="),
            (lambda: [memoryview(b"hi")], ["aGk="]),
            (lambda: array.array("d", [1.5]), [1.5]),
            (lambda: {1: {2}.union([3])}, {"1": [2, 3]}),
        ):
            result = offered(make)[1]({})["structuredContent"]
            assert result == value or result == {"result": value}
        file = open(path)  # noqa: SIM115
        for make, said in (
            (lambda: {"a": [file]}, "a[0]: a value of class TextIOWrapper has no"),
            (lambda: file, "a value of class TextIOWrapper has no"),
            (lambda: [{"rain": float("nan")}], "[0].rain: nan is no number in JSON"),
            (lambda: {"a": (1, float("-inf"))}, "a[1]: -inf is no number in JSON"),
        ):
            with pytest.raises(ToolError) as caught:
                offered(make)[1]({})
            assert said in str(caught.value)
        file.close()
        server = Server("s")
        server.add_resource("x://blob", lambda: memoryview(b"hi"))
        with Client(server) as client:
            assert client.read("x://blob") == b"hi"

    def test_numpy_and_pandas(self):
        """Arrays, numbers, series and frames become what they hold."""
        numpy = pytest.importorskip("numpy")
        pandas = pytest.importorskip("pandas")
        frame = pandas.DataFrame({"city": ["Oslo", "Bergen"], "rain": [1.5, 2.5]})
        columns = {"city": ["Oslo", "Bergen"], "rain": [1.5, 2.5]}
        for value, plain in (
            ({"n": numpy.int64(3)}, {"n": 3}),
            ({"n": numpy.float32(1.5)}, {"n": 1.5}),
            ({"n": numpy.bool_(True)}, {"n": True}),
            (numpy.array([[1, 2]]), [[1, 2]]),
            (frame, columns),
            ([frame["rain"]], [[1.5, 2.5]]),
        ):
            assert mcp_lite.to_plain(value) == plain
        frame["rain"] = [1.5, None]
        with pytest.raises(ValueError, match=r"rain\[1\]: nan"):
            mcp_lite.to_plain(frame)

    def test_names_that_are_not_utf8(self):
        """Half a surrogate pair arrives as U+FFFD, in a result and in an argument."""
        server = Server("s")
        odd = os.fsdecode(b"caf\xe9.txt") if os.name != "nt" else "caf\udce9.txt"

        @server.tool
        def listing(name: str = "") -> typing.List[str]:
            return ["a", odd, name]

        with Client(server) as client:
            assert client.call("listing", name="\ud83d") == [
                "a",
                "caf\ufffd.txt",
                "\ufffd",
            ]

    def test_what_a_text_or_nothing_becomes(self):
        """A text is sent as it is, also where other values might come."""
        for hint, value, text, called in (
            (typing.Optional[str], "a", "a", "a"),
            (typing.Optional[str], "5", "5", "5"),
            (typing.Optional[str], None, None, None),
            (typing.Union[int, str], "a", "a", "a"),
            (typing.Union[int, str], "5", "5", "5"),
            (typing.Union[int, str], 5, "5", 5),
            (typing.Union[int, str], '{"result": 5}', '{"result": 5}', '{"result": 5}'),
            (typing.Dict[str, int], {"result": 5}, '{"result":5}', {"result": 5}),
            (object, {"result": "a"}, '{"result":"a"}', {"result": "a"}),
        ):
            server = Server("s")

            def fn(value=value):
                return value

            fn.__annotations__["return"] = hint
            server.add_tool(fn)
            with Client(server) as client:
                result = client.call_tool("fn")
                assert client.call("fn") == called
            assert [each["text"] for each in result["content"]] == [text][
                : text is not None
            ]

    def test_arguments_of_a_client(self):
        """They are encoded as a server's results are; what has no form is a ToolError
        that names the place."""
        server = Server("s")
        got = []

        @server.tool
        def note(
            day: datetime.date = None,
            path: pathlib.Path = None,
            color: Color = None,
            who: typing.List[Person] = (),
            price: decimal.Decimal = None,
        ) -> str:
            got.append([day, path, color, who, price])
            return ""

        @server.prompt
        def ask(day: datetime.date, count: int) -> str:
            got.append([day, count])
            return ""

        day = datetime.date(2026, 1, 2)
        price = decimal.Decimal("1.50")
        values = [day, pathlib.Path("a"), Color.RED, [Person("Bo", 1)], price]
        with Client(server) as client:
            client.call(
                "note", **dict(zip(["day", "path", "color", "who", "price"], values))
            )
            client.get_prompt("ask", {"day": day, "count": 3})
            assert got == [values, [day, 3]]
            for wrong, said in (
                ({"price": float("nan")}, "note: price: nan is no number"),
                ({"who": [{"name": socket}]}, r"note: who\[0\].name: a value of class"),
            ):
                with pytest.raises(ToolError, match=said):
                    client.call("note", wrong)

    def test_arguments_that_a_host_adds(self, caplog):
        """They are dropped, and logged in a line; one that resembles an argument is
        refused, and so is one inside another."""
        caplog.set_level(logging.INFO)
        listed, call = offered(TestEveryday.kit)
        call({"n": 1, "toolCallId": "x", "sessionId": {}})
        said = [each for each in caplog.messages if "dropped" in each]
        assert len(said) == 1 and "toolCallId" in said[0] and "sessionId" in said[0]
        for wrong, near in (({"nme": "x"}, "name"), ({"flags": True}, "flag")):
            with pytest.raises(ToolError, match=f'unknown; did you mean "{near}"'):
                call({"toolCallId": "x", **wrong})
        with pytest.raises(ToolError, match="unknown"):
            call(dict.fromkeys(map(str, range(1000)), 1))
        assert offered(lambda: 5)[1]({"toolCallId": "x"})["structuredContent"]

    @pytest.mark.parametrize(
        "registered, sent",
        [
            ("file:///docs/café.txt", "file:///docs/caf%C3%A9.txt"),
            ("file:///docs/caf%c3%a9.txt", "file:///docs/café.txt"),
            ("note://größe", "note://gr%C3%B6%C3%9Fe"),
            ("file:///my docs/a", "file:///my%20docs/a"),
            ("http://example.com", "http://example.com/"),
            ("HTTP://Example.com/a", "http://example.com/a"),
            ("x://a/%7Eb", "x://a/~b"),
            ("file:///büro/{name}", "file:///b%C3%BCro/a"),
            ("x://{name}/ä", "x://A/%C3%A4"),
        ],
    )
    def test_equivalent_uris(self, registered, sent, era):
        """A client may spell a URI in another way; so may its subscription."""
        server = Server("s")
        changed = queue.Queue()
        if "{" in registered:
            server.add_resource(registered, lambda name: name)
        else:
            server.add_resource(registered, lambda: "a")

        def note(method, params):
            changed.put(params.get("uri"))

        with Client(server, protocol_version=era, on_notification=note) as client:
            assert client.read(sent).lower() == "a"
            client.subscribe(sent)
            if "{" not in registered:
                server.resource_updated(registered)
                assert changed.get(timeout=SECONDS) == sent
            client.unsubscribe(sent)

    def test_uris_that_differ(self):
        """The exact spelling comes first, and a path is in upper or lower case."""
        server = Server("s")
        server.add_resource("x://a b", lambda: "space")
        server.add_resource("x://a%20b", lambda: "escape", name="b")
        server.add_resource("x://a/B", lambda: "upper", name="c")
        with Client(server) as client:
            assert client.read("x://a b") == "space"
            assert client.read("x://a%20b") == "escape"
            for other in ("x://a/b", "x://a%2FB", "y://a/B"):
                with pytest.raises(NotFound):
                    client.read(other)


class Promise:
    """It can be awaited, and is no coroutine."""

    def __await__(self):
        yield
        return "given"


def promised() -> str:
    return Promise()


def waiting_server(seen=None):
    """A server of `async def` handlers; `seen` gets what becomes of some."""
    import asyncio

    server = Server("waiting")

    @server.tool
    async def add(a: int, ctx: Context) -> int:
        await asyncio.sleep(0)
        ctx.progress(1, 2)
        return a + 1

    @server.tool
    async def raises():
        return {}["x"]

    @server.tool
    async def gives_up():
        raise asyncio.CancelledError

    @server.tool
    async def exits():
        sys.exit(3)

    @server.tool
    async def asks(aside: bool, ctx: Context) -> str:
        ask = functools.partial(ctx.elicit, "who?", FORM)
        loop = asyncio.get_running_loop()
        answered = await loop.run_in_executor(None, ask) if aside else ask()
        return answered["content"]["name"]

    @server.tool
    async def asks_in_a_group(ctx: Context) -> str:
        async with asyncio.TaskGroup(), asyncio.TaskGroup() as group:
            return await group.create_task(asks(False, ctx))

    async def forever():
        seen.put("begun")
        try:
            await asyncio.sleep(10 * SECONDS)
        except asyncio.CancelledError:
            seen.put("cancelled")
            raise
        finally:
            seen.put("tidied up")

    server.add_tool(forever)
    server.add_tool(forever, name="late", timeout=0.05)
    server.add_tool(promised)

    @server.resource("x://slow")
    async def slow():
        return "read"

    @server.prompt
    async def greet(name: str):
        return "hello " + name

    @server.completion("greet", "name")
    async def complete_name(value):
        return [value + "1", value + "2"]

    return server


class TestServerInProcess:
    """The room Server: what needs no wire."""

    @pytest.mark.parametrize("version", [LEGACY[-1], MODERN])
    def test_contents_with_meta(self, version):
        """A resource's contents have the `_meta` of the EmbeddedResource."""
        server = Server("s")

        @server.resource("ui://page", mime_type="text/html")
        def page() -> EmbeddedResource:
            return EmbeddedResource("ui://page", "<p>", meta={"ui": {"domain": "x"}})

        with Client(server, protocol_version=version) as client:
            (contents,) = client.read_resource("ui://page")["contents"]
        assert contents == {
            "uri": "ui://page",
            "mimeType": "text/html",
            "text": "<p>",
            "_meta": {"ui": {"domain": "x"}},
        }

    @pytest.mark.parametrize("masked", [False, True])
    def test_failures_name_what_failed(self, masked):
        """A text begins with the tool, resource, prompt or completion, and says why;
        with masked errors it is the name alone, but for what is said on purpose."""

        class Mute(Exception):
            def __str__(self):
                raise ValueError("no words")

        def raises(error):
            raise error

        def number() -> int:
            return "no"

        def needs(days: int):
            """"""

        def completing(fn):
            return lambda value: fn()

        tool, prompt, resource = "tools/call", "prompts/get", "resources/read"
        completion = "completion/complete"
        on_purpose = [
            (tool, lambda: raises(ToolError("sorry")), "sorry"),
            (tool, lambda: raises(McpError(-1, "mine")), "mine"),
            (tool, needs, "it: days: required, but missing"),
            (prompt, needs, "it: days: required, but missing"),
            (prompt, lambda: raises(ToolError("no prompt today")), "no prompt today"),
            (resource, lambda: raises(McpError(-1, "not today")), "not today"),
        ]
        faults = [
            (tool, lambda: {}["x"], "it: KeyError: 'x'"),
            (tool, lambda: raises(ValueError()), "it: ValueError"),
            (tool, lambda: raises(Mute()), "it: Mute"),
            (tool, lambda: sys.exit(3), "it: SystemExit: 3"),
            (tool, number, 'it: ValueError: the result .*: expected integer, got "no"'),
            (tool, lambda: {"a": [object()]}, r"it: TypeError: a\[0\]: a value of cl"),
            (tool, lambda: [float("nan")], r"it: ValueError: \[0\]: nan is no number"),
            (resource, lambda: {}["x"], "x://it: KeyError: 'x'"),
            (resource, lambda: object(), "x://it: TypeError: a value of class object"),
            (prompt, lambda: {}["x"], "it: KeyError: 'x'"),
            (prompt, lambda: {"a": 1}, "it: TypeError: content: expected text, an Im"),
            (prompt, lambda: Message("x", "system"), "it: ValueError: role: user or"),
            (completion, lambda: {}["x"], "completion/complete: KeyError: 'x'"),
            (completion, lambda: 5, "completion/complete: TypeError: 'int' object"),
        ]
        for method, fn, text in on_purpose + faults:
            server = Server("failing", mask_errors=masked)
            params = {"name": "it"}
            if method == tool:
                server.add_tool(fn, name="it")
            elif method == prompt:
                server.add_prompt(fn, name="it")
            elif method == resource:
                server.add_resource("x://it", fn)
                params = {"uri": "x://it"}
            else:
                server.add_prompt(lambda a: a, name="it")
                server.completion("it", "a")(completing(fn))
                params = {"ref": {"type": "ref/prompt", "name": "it"}}
                params["argument"] = {"name": "a", "value": ""}
            answer = server.handle(request(method, modern(**params)))
            said = answer.get("error", {}).get("message")
            if masked and (method, fn, text) in faults:
                text = text.partition(": ")[0] + " failed; see the server.s log$"
            assert re.match(text, said or text_of(answer["result"]))

    @pytest.mark.parametrize("over_http", [False, True])
    def test_what_is_not_found_says_a_handler(self, over_http, version):
        """Its NotFound arrives as one in every revision, in the handler's words."""

        def missing():
            raise NotFound("no such city", {"id": 7})

        server = Server("s")
        server.add_resource("x://missing", missing)
        at = client_at(server, over_http, protocol_version=version)
        with at as client, pytest.raises(NotFound) as caught:
            client.read("x://missing")
        assert caught.value.code == (-32002 if version < "2026" else -32602)
        assert caught.value.message == "no such city"
        assert caught.value.data == {"uri": "x://missing", "id": 7}

    def test_the_log_of_a_failure_shows_the_lines_of_the_user(self, caplog):
        """The traceback has their frames, those of its causes too; it comes once."""
        server = waiting_server()

        @server.tool
        def chained(ctx: Context):
            try:
                return {}["x"]
            except KeyError:
                try:
                    ctx.log("loud", "x")
                except ValueError as error:
                    raise RuntimeError("chained") from error

        with caplog.at_level("WARNING", "mcp_lite"), Client(server) as client:
            client.call_tool("chained")
            client.call_tool("raises")
        first, awaited = caplog.records
        assert first.getMessage() == "chained failed"
        for text in ('{}["x"]', "KeyError: 'x'", "ctx.log", "RuntimeError: chained"):
            assert first.exc_text.count(text) == 1
        assert '{}["x"]' in awaited.exc_text

    def test_async_handlers_run(self, version):
        """Of tools, resources, prompts and completions; progress and exceptions are as
        those of others, and so is what any awaitable gives."""
        seen = []
        server = waiting_server()

        @server.tool
        async def is_refused():
            raise Cancelled("of another server")

        with Client(server, protocol_version=version) as client:
            result = client.call_tool(
                "add", {"a": 1}, on_progress=lambda *told: seen.append(told)
            )
            assert text_of(result) == "2" and seen == [(1, 2, None)]
            assert client.read("x://slow") == "read"
            messages = client.get_prompt("greet", {"name": "ada"})["messages"]
            assert messages[0]["content"]["text"] == "hello ada"
            assert client.complete("greet", "name", "a") == ["a1", "a2"]
            assert client.call("promised") == "given"
            with pytest.raises(ToolError, match="raises: KeyError: 'x'"):
                client.call("raises")
            with pytest.raises(ToolError, match="gives_up: CancelledError"):
                client.call("gives_up")
            with pytest.raises(ToolError, match="is_refused: Cancelled: of another"):
                client.call("is_refused")
            with pytest.raises(ToolError, match="exits: SystemExit: 3"):
                client.call("exits")

    @pytest.mark.parametrize("over_http", [False, True])
    def test_an_async_handler_is_cancelled_with_its_request(self, over_http, era):
        """By the client, and by its timeout: its task sees CancelledError, and what it
        does in `finally` is done."""
        seen = queue.SimpleQueue()
        server = waiting_server(seen)
        with client_at(server, over_http, protocol_version=era) as client:
            call = client.start_call("forever")
            assert seen.get(timeout=SECONDS) == "begun"
            call.cancel()
            with pytest.raises(ToolError, match="late: timed out after 0.05 seconds"):
                client.call("late")
            told = sorted(seen.get(timeout=SECONDS) for _ in range(5))
            assert told == ["begun", *["cancelled"] * 2, *["tidied up"] * 2]

    @pytest.mark.parametrize("over_http", [False, True])
    def test_async_handlers_share_a_loop(self, over_http):
        """What one has opened in the event loop serves the next one, and contexts do
        not mix."""
        import asyncio
        import contextvars

        server = Server("s")
        who = contextvars.ContextVar("who", default="nobody")
        loops = []

        @server.middleware
        def note(ctx, method, params, call_next):
            who.set(params.get("name"))
            return call_next()

        async def first() -> str:
            loops.append(asyncio.get_running_loop())
            await asyncio.sleep(0)
            return who.get()

        server.add_tool(first)
        server.add_tool(first, name="second")
        with client_at(server, over_http) as client:
            assert [client.call("first"), client.call("second")] == ["first", "second"]
        assert loops[0] is loops[1]
        eventually(loops[0].is_closed, "the end of the loop")

    @pytest.mark.parametrize("over_http", [False, True])
    def test_one_function_at_a_time(self, over_http):
        """max_workers=1 holds for all clients together; what is no function of the
        user's is answered meanwhile, and an answer to its question is heard."""
        server = Server("s", max_workers=1)
        running = []
        most = []

        @server.tool
        def work(ctx: Context) -> str:
            # While it waits for the answer, another one may run.
            ctx.elicit("who?", FORM)
            running.append(1)
            most.append(len(running))
            ctx.sleep(0.01)
            running.pop()
            return "done"

        with server.start_http() as http, contextlib.ExitStack() as stack:
            target = http.url if over_http else server
            clients = [
                stack.enter_context(
                    Client(target, protocol_version=LEGACY[-1], **CALLBACKS)
                )
                for _ in range(3)
            ]
            calls = [each.start_call("work") for each in clients for _ in range(3)]
            clients[0].ping()
            assert {call.value() for call in calls} == {"done"}
        assert set(most) == {1}

    def test_an_async_handler_may_ask(self, era):
        """On its thread, where that holds up its event loop, in a group of tasks, too;
        or on another one, where it holds up nothing."""
        with Client(waiting_server(), protocol_version=era, **CALLBACKS) as client:
            assert client.call("asks", aside=False) == "who?"
            assert client.call("asks", aside=True) == "who?"
            if sys.version_info >= (3, 11):
                assert client.call("asks_in_a_group") == "who?"

    def test_an_async_handler_where_a_loop_runs_already(self):
        """It runs in the server's own; the caller waits."""
        import asyncio

        server = waiting_server()
        call = request("tools/call", modern(name="add", arguments={"a": 1}))

        async def program():
            here = server.handle(call)
            loop = asyncio.get_running_loop()
            return here, await loop.run_in_executor(None, server.handle, call)

        answers = asyncio.run(program())
        assert [text_of(each["result"]) for each in answers] == ["2", "2"]

    def test_nothing_is_asked_after_the_end(self):
        """A context that outlives its request raises Cancelled, and sends nothing."""
        server = Server("s")
        kept = []

        @server.tool
        def keep(ctx: Context) -> str:
            kept.append(ctx)
            return "kept"

        caps = {"elicitation": {}, "sampling": {}, "roots": {}}
        with LocalWire(server) as wire:
            wire.open(capabilities=caps)
            for params in ({"name": "keep"}, modern(caps, name="keep")):
                wire.ask("tools/call", params)
                for question in (
                    lambda ctx: ctx.elicit("?", FORM),
                    lambda ctx: ctx.sample("?"),
                    lambda ctx: ctx.roots(),
                    lambda ctx: ctx.ask({"a": ("roots/list", {})}),
                ):
                    with pytest.raises(Cancelled, match="over"):
                        question(kept[-1])
            assert wire.ask("ping", id=9) == {"jsonrpc": "2.0", "id": 9, "result": {}}

    @pytest.mark.parametrize(
        "declared, modes",
        [
            ({}, ["form"]),
            ({"form": {}}, ["form"]),
            ({"vendor": {}}, ["form"]),
            ({"url": {}}, ["url"]),
            ({"url": {}, "vendor": {}}, ["url"]),
            ({"url": {}, "form": {}}, ["form", "url"]),
        ],
    )
    def test_only_declared_modes_are_asked_for(self, declared, modes):
        """The other one is -32021 before anything is sent."""
        server = Server("s")

        @server.tool
        def ask(mode: str, ctx: Context) -> str:
            params = {"mode": mode, "message": "?", "requestedSchema": FORM}
            if mode == "url":
                params = {"mode": mode, "message": "?", "url": "https://example.com"}
            ctx.ask({"a": ("elicitation/create", params)})
            return "asked"

        for mode in ("form", "url"):
            arguments = {"mode": mode}
            params = modern({"elicitation": declared}, name="ask", arguments=arguments)
            found = server.handle(request("tools/call", params))
            if mode in modes:
                assert found["result"]["resultType"] == "input_required"
            else:
                assert found["error"]["code"] == -32021
                needed = {"requiredCapabilities": {"elicitation": {mode: {}}}}
                assert found["error"]["data"] == needed

    @staticmethod
    def asked_in(version, question, answer):
        """Return what a handler's question(ctx) sends to a client of this revision, and
        what it gets: a value, or an exception."""
        server = Server("s")
        ends = []

        @server.tool
        def ask(ctx: Context) -> str:
            try:
                ends.append(question(ctx))
            except (ValueError, MissingCapability) as error:
                ends.append(error)
            return "asked"

        caps = {"elicitation": {}, "sampling": {}}
        params = modern(caps, name="ask", inputResponses={})
        with LocalWire(server) as wire:
            if version in LEGACY:
                wire.open(version, caps)
                params = {"name": "ask"}
            found = wire.ask("tools/call", params)
            asked = None
            if "method" in found:
                asked = found["params"]
                wire.send({"jsonrpc": "2.0", "id": found["id"], "result": answer})
                found = wire.read()
            elif "inputRequests" in found["result"]:
                asked = found["result"]["inputRequests"]["k"]["params"]
                state = found["result"]["requestState"]
                params.update(requestState=state, inputResponses={"k": answer})
                found = wire.ask("tools/call", params)
        assert found["result"]["content"][0]["text"] == "asked"
        return asked, ends[0]

    def test_a_form_says_what_its_revision_knows(self, version):
        """Titles of choices go as the older revisions have them, too."""
        names = {"#f00": "Red", "#0f0": "Green"}
        colors = [{"const": code, "title": names[code]} for code in names]
        titled = {"type": "string", "title": "Color", "oneOf": colors}
        form = {"type": "object", "properties": {"color": titled}}
        answer = {"action": "accept", "content": {"color": "#f00"}}
        asked, end = self.asked_in(
            version, lambda ctx: ctx.elicit("?", form, key="k"), answer
        )
        if version < "2025-06-18":
            assert asked is None and isinstance(end, MissingCapability)
            return
        assert end == answer
        if version < "2025-11-25":
            titled["enum"] = [*names]
            titled["enumNames"] = [*names.values()]
        assert asked["requestedSchema"]["properties"] == {"color": titled}

    def test_a_message_may_have_several_blocks(self, era):
        """They go to the model as they are, each message with its role."""
        answer = {"role": "assistant", "content": {"type": "text", "text": "x"}}
        answer["model"] = "m"
        messages = [Message(["one", Audio(WAV)], role="assistant"), "three"]
        asked, end = self.asked_in(
            era, lambda ctx: ctx.sample(messages, key="k", _meta={"x": 1}), answer
        )
        assert end == answer and asked["_meta"] == {"x": 1}
        contents = [each["content"] for each in asked["messages"]]
        assert [each["type"] for each in contents[0]] == ["text", "audio"]
        assert [each["role"] for each in asked["messages"]] == ["assistant", "user"]

    def test_roots_are_of_files(self):
        """Their URIs are file://; others are -32602."""
        server = Server("s")

        @server.tool
        def where(ctx: Context) -> list:
            return [root["uri"] for root in ctx.roots(key="r")]

        def ask(uri):
            roots = {"roots": [{"uri": "file:///first"}, {"uri": uri}]}
            params = modern({"roots": {}}, name="where", inputResponses={"r": roots})
            return server.handle(request("tools/call", params))

        for uri in ("file:///home/ada", "file:///home/ada/", "file:///C:/x%20y"):
            result = ask(uri)["result"]["structuredContent"]
            assert result == {"result": ["file:///first", uri]}
        for wrong in ("/home/ada", "https://example.com/", ""):
            error = ask(wrong)["error"]
            assert error["code"] == -32602 and "roots" in error["message"]

    def test_completions_go_with_their_prompt(self):
        """A prompt of the same name that comes later has none of them; a colon in its name makes
        it no URI."""
        server = Server("s")
        server.add_prompt(lambda a: a, name="git:commit")
        server.completion("git:commit", "a")(lambda value: ["old"])
        with Client(server) as client:
            assert client.complete("git:commit", "a", "") == ["old"]
            server.remove_prompt("git:commit")
            server.add_prompt(lambda a: a, name="git:commit")
            assert client.complete("git:commit", "a", "") == []

    def test_a_key_names_one_question(self, era):
        """A handler that asks twice under one key is wrong: it is told, in both eras."""
        server = Server("s")

        @server.tool
        def ask(ctx: Context):
            ctx.elicit("?", FORM, key="k")
            ctx.elicit("?", FORM, key="k")

        at = Client(server, protocol_version=era, on_elicit=answer)
        with at as client, pytest.raises(ToolError, match="key used twice: .*k"):
            client.call("ask")

    def test_a_form_is_flat(self):
        """Nested objects and lists of objects are refused; a class becomes a form, and
        its answer an instance."""

        def ask(schema, **given):
            return self.asked_in(
                MODERN, lambda ctx: ctx.elicit("?", schema, key="k"), given
            )

        def form(field):
            return {"type": "object", "properties": {"a": field}}

        for wrong in (
            {"type": "string"},
            {"type": "object"},
            form({"type": "object"}),
            form({"type": "array", "items": {"type": "object"}}),
            form({"type": "string", "oneOf": [{"const": "x"}]}),
            {"properties": {}},
        ):
            asked, error = ask(wrong)
            assert asked is None and "requestedSchema" in str(error)
        assert "pattern" in str(ask(form({"type": "string", "pattern": "("}))[1])
        for fine in (
            form({"type": "array", "items": {"enum": ["x"]}}),
            form({"type": "string", "format": "date", "pattern": "a", "title": "A"}),
            form(or_null({"type": "string"})),
        ):
            assert ask(fine, action="decline")[0]["requestedSchema"] == fine

        @dataclasses.dataclass
        class Visit:
            by: str
            day: typing.Optional[datetime.date] = None

        content = {"by": "me", "day": "2026-01-02"}
        asked, end = ask(Visit, action="accept", content=content)
        assert asked["requestedSchema"]["properties"] == {
            "by": {"type": "string"},
            "day": {"type": "string", "format": "date"},
        }
        assert end["content"] == Visit("me", datetime.date(2026, 1, 2))

    @pytest.mark.parametrize(
        "answers",
        [
            None,
            5,
            [{}],
            {"form": None},
            {"form": {"action": []}},
            {"form": {"action": "accept"}},
            {"form": {"action": "accept", "content": 5}},
            {"form": {"action": "accept", "content": {"name": "\ud800"}}},
            {"form": {"action": "decline", "content": "\ud800"}},
            {"\ud800": {}},
            {"other": {"action": "accept"}},
            {"day": {"action": "accept", "content": {"day": "9999-99-99"}}},
            {"sample": {"role": "assistant", "content": [5]}},
            {"sample": {"role": "assistant", "content": {"type": "text"}}},
            {"sample": {"role": [], "content": {"type": "text", "text": "x"}}},
            {"roots": {"roots": {}}},
            {"roots": {"roots": [{"uri": 5}]}},
        ],
    )
    def test_junk_in_answers_is_no_failure_of_ours(self, answers):
        """It is -32602, or the question is asked again."""
        server = Server("s")

        @dataclasses.dataclass
        class Day:
            day: datetime.date

        @server.tool
        def ask(ctx: Context) -> str:
            ctx.elicit("?", FORM, key="form")
            ctx.elicit("?", Day, key="day")
            ctx.sample("?", key="sample")
            ctx.roots(key="roots")
            return "asked"

        caps = {"elicitation": {}, "sampling": {}, "roots": {}}
        good = {
            "form": {"action": "accept", "content": {"name": "x"}},
            "day": {"action": "accept", "content": {"day": "2026-01-01"}},
            "sample": {
                "role": "assistant",
                "content": {"type": "text", "text": "x"},
                "model": "m",
            },
            "roots": {"roots": [{"uri": "file:///x"}]},
        }
        if isinstance(answers, dict):
            answers = {**good, **answers}
        params = modern(caps, name="ask", inputResponses=answers)
        found = server.handle(request("tools/call", params))
        if "error" in found:
            assert found["error"]["code"] == -32602
        else:
            assert not found["result"].get("isError")

    @pytest.mark.parametrize(
        "misuse, said",
        [
            (lambda server: server.add_tool(len), "len: .*no name on the wire"),
            (lambda server: server.tool("re view")(lambda: 0), "re view"),
            (lambda server: server.add_tool(lambda: 0), "give it one by name="),
            (
                lambda server: server.tool(name="x", meta={"y": {1}})(lambda: 0),
                "Object of type set",
            ),
            (lambda server: server.resource("x://{a}")(lambda: 0), "the same names"),
            (lambda server: server.resource("x://a")(lambda b: 0), "the same names"),
            (lambda server: server.resource("x://a{?b}")(lambda b: 0), "have defaults"),
            (lambda server: server.resource(lambda: 0), "URI"),
            (lambda server: server.completion("reviw", "x"), '"reviw"'),
            (lambda server: server.remove_tool("no"), "no"),
            (lambda server: server.tool(nme="x"), "nme"),
            (lambda server: server.start_http(prot=1), "prot"),
            (lambda server: server.run("http", prot=1), "prot"),
            (lambda server: server.run("stdio", port=1), r'write run\("http"'),
            (lambda server: server.run("fax"), "fax"),
            (lambda server: server.wsgi_app(port=1), "port"),
            (lambda server: Server("s", page_size=0), "page_size"),
            (lambda server: Server("s", state_key="short"), "16 bytes"),
            (lambda server: server.method("tools/call"), "method: expected a new one"),
            (lambda server: server.method("rpc.x"), "method: expected a new one"),
            (lambda server: server.method("ü/x"), "method: expected a new one"),
        ],
        ids=range(21),
    )
    def test_misuse_is_told_at_once(self, misuse, said):
        """An error names what is wrong, and nothing is offered then."""
        server = Server("s")
        with pytest.raises((TypeError, ValueError, KeyError), match=said):
            misuse(server)
        with Client(server) as client:
            assert client.server_capabilities.keys() == {"logging"}

    def test_import_is_lean(self):
        """Nothing slow is imported until it is used: asyncio comes with the first call
        of an async tool."""
        code = """if 1:
            import sys, json, threading
            old = set(sys.modules)
            import mcp_lite
            print(*set(sys.modules) - old)
            def plain(city: str, n: int = 3, tags: list = [], more: 'dict' = {}) -> dict:
                'Doc.'
            async def waits() -> int:
                return 2
            server = mcp_lite.Server('s')
            server.tool(plain)
            server.tool(waits)
            print(*set(sys.modules) - old)
            with mcp_lite.Client(server) as client:
                print(client.call('waits'), 'asyncio' in sys.modules)"""
        printed, _ = run(*PYTHON, "-c", code)
        at_import, at_start, called = printed.splitlines()
        # `io` is not loaded at the start since Python 3.14; collections.abc are aliases.
        lean = "mcp_lite __future__ contextlib io queue _queue collections heapq _heapq"
        lean += " collections.abc itertools types time"
        assert set(at_import.split()) <= set(lean.split())
        slow = {"inspect", "dataclasses", "typing", "datetime", "decimal", "uuid"}
        slow |= {"pathlib", "ast", "asyncio", "hashlib", "logging", "urllib"}
        assert not slow & set(at_start.split())
        assert called == "2 True"


class TestExtending:
    """The room Server: middleware, methods of extensions, and what some callers do not
    see."""

    @pytest.fixture
    def seen(self):
        return []

    @pytest.fixture
    def noting(self, seen):
        """A server with two middlewares that note what passes."""
        server = Server("noting", cache_ttl_ms=7)

        @server.middleware
        def outer(ctx, method, params, call_next):
            seen.append(("outer", method))
            return call_next()

        @server.middleware
        def inner(ctx, method, params, call_next):
            seen.append(("inner", method))
            return call_next()

        @server.tool
        def echo(text: str) -> str:
            return text

        @server.tool
        def hello(ctx: Context) -> str:
            seen.append("hello runs")
            return ctx.elicit("who?", FORM)["content"]["name"]

        return server

    # Middleware
    @pytest.mark.parametrize("over_http", [False, True])
    def test_middleware_is_around_every_request(self, noting, seen, over_http, era):
        """The first registered is outermost; the handshake, lists, pings and what
        handle() answers pass it. A caller's `_meta` reaches it."""
        told = []

        @noting.middleware
        def note(ctx, method, params, call_next):
            told.append(ctx.meta.get("traceparent"))
            return call_next()

        with client_at(noting, over_http, protocol_version=era) as client:
            result = client.call_tool("echo", {"text": "hi"}, meta={"traceparent": "1"})
            assert text_of(result) == "hi" and told[-1] == "1"
            client.ping()
            assert len(client.list_tools()) == 2
        opening = ["server/discover", "server/discover"]
        if era != MODERN:
            opening = ["initialize", "ping"]
        methods = {"tools/call", "tools/list", *opening}
        assert {method for _, method in seen} == methods
        assert seen[::2] == [("outer", method) for _, method in seen[1::2]]
        assert {layer for layer, _ in seen[1::2]} == {"inner"}
        seen.clear()
        assert noting.handle(call_tool("echo", text="c"))["result"]["content"]
        assert seen == [("outer", "tools/call"), ("inner", "tools/call")]

    def test_middleware_and_rounds(self, noting, seen, era):
        """When a handler runs again for an answer, so does the middleware around it; a
        question passes `except Exception`."""

        @noting.middleware
        def careful(ctx, method, params, call_next):
            try:
                return call_next()
            except Exception:
                seen.append("caught")
                raise

        with Client(noting, protocol_version=era, on_elicit=answer) as client:
            seen.clear()
            assert client.call("hello") == "who?"
        passed = [("outer", "tools/call"), ("inner", "tools/call"), "hello runs"]
        assert seen == passed * (2 if era == MODERN else 1)

    def test_middleware_changes_what_goes_in(self, noting):
        """call_next(params) goes on with others, and so does one that changed them in
        place; what a question is bound to stays what the client sent."""
        ways = iter([True, True, False, False])

        @noting.middleware
        def rename(ctx, method, params, call_next):
            if params.get("name") == "alias" and next(ways):
                return call_next({**params, "name": "hello"})
            if params.get("name") == "alias":
                params["name"] = "hello"
            return call_next()

        with Client(noting, on_elicit=answer) as client:
            assert client.call("alias") == "who?"
            assert client.call("alias") == "who?"

    @pytest.mark.parametrize("kind", ["middleware", "visible"])
    def test_code_that_takes_its_time(self, kind):
        """Middleware and visible= hold up nothing else, whatever they stand around."""
        server = Server("s")
        gate = threading.Event()
        server.add_tool(lambda: "x", name="tool")
        visible = {"visible": lambda ctx: gate.wait(SECONDS)}.get(kind)
        server.add_resource("x://r", lambda: "x", visible=visible)
        if kind == "middleware":

            @server.middleware
            def wait(ctx, method, params, call_next):
                if method == "resources/subscribe":
                    gate.wait(SECONDS)
                return call_next()

        with LocalWire(server) as wire:
            wire.open()
            subscribe = request("resources/subscribe", {"uri": "x://r"}, 1)
            wire.send(subscribe, call_legacy("tool", 2))
            assert wire.read()["id"] == 2
            gate.set()
            assert wire.read()["id"] == 1

    def test_middleware_answers_by_itself(self):
        """Without call_next(), middleware answers: its result is completed in a copy,
        and lists are private, unless it says otherwise."""
        server = Server("answering")
        kept = {"tools/call": {"content": []}, "tools/list": {"tools": []}}
        server.add_tool(lambda: "no", name="x")
        server.add_prompt(lambda: "no", name="x")

        @server.middleware
        def answering(ctx, method, params, call_next):
            if method in kept:
                return kept[method]
            result = call_next()
            if method == "prompts/list":
                result["cacheScope"] = "public"
            return result

        result = server.handle(call_tool("x"))["result"]
        info = {META_SERVER_INFO: {"name": "answering", "version": "0"}}
        assert result == {"content": [], "resultType": "complete", "_meta": info}
        for method, scope in (("tools/list", "private"), ("prompts/list", "public")):
            result = server.handle(request(method, modern()))["result"]
            assert (result["ttlMs"], result["cacheScope"]) == (0, scope)
        assert kept == {"tools/call": {"content": []}, "tools/list": {"tools": []}}
        with Client(server, protocol_version="2025-11-25") as client:
            assert client.call_tool("x") == {"content": []}
            assert client.request("tools/list") == {"tools": []}

    def test_what_middleware_raises(self, era, caplog):
        """It is answered as what a handler raises, and so is what is no result."""
        server = Server("raising")
        server.add_tool(lambda: "fine", name="x")

        @server.middleware
        def guard(ctx, method, params, call_next):
            if method == "tools/call":
                how = params["arguments"].get("how")
                if how == "refuse":
                    raise mcp_lite.McpError(-31000, "not on Mondays", {"day": 1})
                if how == "fail":
                    raise KeyError("oops")
                if how == "tell":
                    raise ToolError("not on Sundays")
                return how
            return call_next()

        with Client(server, protocol_version=era) as client:
            with pytest.raises(mcp_lite.McpError, match="Mondays") as raised:
                client.call_tool("x", {"how": "refuse"})
            assert (raised.value.code, raised.value.data) == (-31000, {"day": 1})
            assert client.call_tool("x", {"how": "tell"})["isError"]
            for how, why in (("fail", "oops"), ("text", "expected a dict")):
                with pytest.raises(mcp_lite.InternalError):
                    client.call_tool("x", {"how": how})
                eventually(lambda why=why: re.search(why, caplog.text), why)

    def test_a_handshake_that_middleware_refuses(self):
        """It opens no session: over stdio, and over HTTP."""
        server = Server("closed")
        server.add_tool(lambda: "in", name="x")
        names = set()

        @server.middleware
        def only_some(ctx, method, params, call_next):
            result = call_next()
            if method == "initialize" and ctx.client_info["name"] not in names:
                raise mcp_lite.InvalidRequest("who are you?")
            return result

        hello = opening("2025-11-25")
        with LocalWire(server) as wire:
            assert wire.ask("initialize", hello)["error"]["message"] == "who are you?"
            found = wire.ask("tools/call", {"name": "x"}, 2)
            assert "not initialized" in found["error"]["message"]
            names.add("t")
            assert wire.ask("initialize", hello, 3)["result"]
            assert wire.ask("tools/call", {"name": "x"}, 4)["result"]
            # The new session is told of a change once.
            wire.send(notice("initialized"))
            assert wire.ask("ping", id=5)["result"] == {}
            server.add_tool(lambda: "out", name="y")
            assert wire.read()["method"] == "notifications/tools/list_changed"
            wire.send(request("ping", id=6))
            assert wire.read()["id"] == 6
        names.clear()
        with server.start_http() as http:
            status, headers, body = Web(http).post(request("initialize", hello))
            assert "error" in body and "Mcp-Session-Id" not in headers

    def test_middleware_and_listening(self, noting, seen):
        """subscriptions/listen is open when call_next() has returned {}; it ends as
        ever, and what is raised then ends it. Without call_next(), nothing is open.
        """
        results = []

        @noting.middleware
        def listening(ctx, method, params, call_next):
            asked = params.get("notifications", {})
            if asked.get("resourcesListChanged"):
                return {}
            result = call_next()
            if method == "subscriptions/listen":
                results.append(result)
                if asked.get("promptsListChanged"):
                    raise mcp_lite.InvalidRequest("not prompts")
            return result

        with Client(noting) as client:
            with client.listen(prompts=False, resources=False) as events:
                noting.add_tool(lambda: 1, name="new")
                assert next(events)["method"] == "notifications/tools/list_changed"
            # More than may be open at once.
            for _ in range(1_001):
                with pytest.raises(mcp_lite.InvalidRequest, match="not prompts"):
                    next(client.listen(resources=False))
            assert list(client.listen()) == []
        assert results == [{}] * 1_002

    def test_middleware_asks_where_it_may(self):
        """While a tool is called; about a list, nothing can be asked in the modern era:
        that is an error, and no question."""
        server = Server("asking")
        server.add_tool(lambda: "called", name="x")

        @server.middleware
        def sure(ctx, method, params, call_next):
            if method in ("tools/call", "tools/list"):
                assert ctx.elicit("sure?", FORM)["action"] == "accept"
            return call_next()

        with Client(server, on_elicit=answer) as client:
            assert client.call("x") == "called"
            with pytest.raises(mcp_lite.InvalidRequest, match="nothing can be asked"):
                client.list_tools()

    # Methods of extensions
    CART = "com.example/cart"

    @pytest.fixture
    def shop(self, seen):
        """A server with an extension, and a method of nobody's."""
        server = Server("shop", extensions={self.CART: {"currency": "EUR"}})

        @server.method("cart/add", extension=self.CART)
        def add(ctx, params):
            if params.get("item") == "coal":
                raise McpError(-31000, "no coal", {"tea": True})
            if params.get("item") == "nothing":
                return None
            return {"item": params["item"], "declared": ctx.client_capabilities}

        @server.method("cart/seen", extension=self.CART)
        def note(ctx, params):
            seen.append((ctx.request_id, params["item"], ctx.headers.get("x-tenant")))

        server.method("anybody/hello")(lambda ctx, params: {"hello": "you"})
        return server

    @pytest.mark.parametrize("over_http", [False, True])
    @pytest.mark.parametrize("version", ["2024-11-05", "2025-11-25", MODERN])
    def test_methods_of_extensions(self, shop, seen, over_http, version):
        """Both sides declare them; requests are answered, notifications are heard."""
        options = {"protocol_version": version, "extensions": {self.CART: {"size": 3}}}
        if over_http:
            options["headers"] = {"X-Tenant": "ann"}
        with client_at(shop, over_http, **options) as client:
            declared = client.server_capabilities["extensions"]
            assert declared == {self.CART: {"currency": "EUR"}}
            result = client.request("cart/add", {"item": "tea"})
            assert result["item"] == "tea"
            assert result["declared"]["extensions"] == {self.CART: {"size": 3}}
            client.notify("cart/seen", {"item": "tea"})
            eventually(lambda: seen, "the notification")
            assert seen == [(None, "tea", "ann" if over_http else None)]
            with pytest.raises(McpError, match="no coal") as raised:
                client.request("cart/add", {"item": "coal"})
            assert (raised.value.code, raised.value.data) == (-31000, {"tea": True})
            said = "expected a dict, got null|cart/add failed; see"
            with pytest.raises(InternalError, match=said):
                client.request("cart/add", {"item": "nothing"})
            with pytest.raises(MethodNotFound):
                client.request("cart/remove", {"item": "tea"})

    def test_methods_of_extensions_on_the_wire(self, shop, seen):
        """Over HTTP a header says the method, and a refusal has its status."""
        declared = {"extensions": {self.CART: {}}}
        with shop.start_http() as http:
            web = Web(http)
            add = request("cart/add", modern(declared, item="tea"))
            assert web.post(add)[2]["result"]["item"] == "tea"
            status, _, body = web.post(add, Mcp_Method="cart/seen")
            assert (status, body["error"]["code"]) == (400, -32020)
            status, _, body = web.post(request("cart/add", modern(item="tea")))
            assert (status, body["error"]["code"]) == (400, -32021)
        assert shop.handle(add)["result"]["item"] == "tea"
        note = {"jsonrpc": "2.0", "method": "cart/seen"}
        assert shop.handle({**note, "params": add["params"]}) is None
        assert [item for _, item, _ in seen] == ["tea"]

    def test_an_extension_that_was_not_declared(self, shop, seen, era):
        """Its methods are refused, with what is missing; notifications are dropped;
        what belongs to none is for all."""
        shop.add_tool(lambda: "still there", name="tool")
        for extensions in (None, {"com.example/other": {}}):
            with Client(shop, protocol_version=era, extensions=extensions) as client:
                with pytest.raises(mcp_lite.MissingCapability) as raised:
                    client.request("cart/add", {"item": "tea"})
                needed = {"extensions": {self.CART: {}}}
                assert raised.value.data == {"requiredCapabilities": needed}
                client.notify("cart/seen", {"item": "tea"})
                assert client.request("anybody/hello")["hello"] == "you"
                assert client.call("tool") == "still there"
        assert not seen

    # What some callers do not see
    @pytest.fixture
    def selective(self):
        """A server that shows more to who has a token, and the URL where it is."""
        server = Server("selective", page_size=2, cache_ttl_ms=5)

        def is_ann(ctx):
            return (ctx.auth or {}).get("sub") == "ann"

        for n in range(6):
            server.add_tool(
                lambda n=n: n, name=f"tool{n}", visible=is_ann if n % 2 else None
            )
        server.add_prompt(lambda: "open", name="open")

        @server.prompt(visible=is_ann)
        def secret_prompt(kind: typing.Literal["red", "blue"]) -> str:
            return kind

        server.add_resource("x://open", lambda: "open")
        server.add_resource("x://secret", lambda: "secret", visible=is_ann)
        server.add_resource("x://shadow", lambda: "fixed", visible=is_ann)

        @server.resource("x://{name}/secret", visible=is_ann)
        def secret_template(name: typing.Literal["red", "blue"]) -> str:
            return name

        verify = {"1": {"sub": "ann"}, "2": {"sub": "bob"}}.get
        with server.start_http(verify=verify) as http:
            yield server, http.url

    @staticmethod
    def client_of(url, token, version):
        headers = {"Authorization": f"Bearer {token}"}
        return Client(url, protocol_version=version, headers=headers)

    @pytest.mark.parametrize("version", ["2024-11-05", "2025-11-25", MODERN])
    def test_lists_have_what_may_be_seen(self, selective, version):
        """Each page but the last is full, whatever is left out."""
        server, url = selective
        for token, numbers, more in (
            ("1", range(6), ["secret_prompt"]),
            ("2", (0, 2, 4), []),
        ):
            with self.client_of(url, token, version) as client:
                tools = [tool["name"] for tool in client.list_tools()]
                assert tools == [f"tool{n}" for n in numbers]
                first = client.request("tools/list")["tools"]
                assert [tool["name"] for tool in first] == tools[:2]
                prompts = [prompt["name"] for prompt in client.list_prompts()]
                assert prompts == ["open", *more]
                assert len(client.list_resources()) == (3 if more else 1)
                assert len(client.list_resource_templates()) == len(more)

    @pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25", MODERN])
    def test_what_is_not_seen_does_not_exist(self, selective, version):
        """To use it is answered as if there were no such thing, and no answer to
        something else tells of it."""
        server, url = selective
        # A method of the client; what is hidden, and what is not there; what else it takes.
        uses = [
            ("call", "tool1", "tool7"),
            ("get_prompt", "secret_prompt", "x_prompt"),
            ("read", "x://secret", "x://nothing"),
            ("read", "x://red/secret", "x://red/what"),
            ("read", "x://odd/secret", "x://odd/what"),
            ("complete", "secret_prompt", "x_prompt", "kind", "r"),
            ("complete", "x://{name}/secret", "x://{name}/what", "name", "r"),
        ]
        if version != MODERN:
            uses.append(("subscribe", "x://secret", "x://nothing"))
        with self.client_of(url, "2", version) as client:
            for use, hidden, unknown, *more in uses:
                errors = []
                for name in (hidden, unknown):
                    with pytest.raises(McpError) as raised:
                        getattr(client, use)(name, *more)
                    error = raised.value
                    text = json.dumps([error.code, error.message, error.data])
                    errors.append(text.replace(name, "NAME"))
                assert errors[0] == errors[1]
                assert "tool3" not in errors[0] and "secret" not in errors[0]
        with self.client_of(url, "1", version) as client:
            assert client.call("tool1") == 1
            assert client.read("x://red/secret") == "red"
            assert client.complete("secret_prompt", "kind", "r") == ["red"]

    def test_updates_of_what_is_not_seen(self, selective):
        """They are not told; what is not seen is as what is not there."""
        server, url = selective
        uris = ["x://secret", "x://open"]
        with self.client_of(url, "1", MODERN) as ann, self.client_of(
            url, "2", MODERN
        ) as bob, ann.listen(uris=uris) as told, bob.listen(uris=uris[1:]) as told_less:
            for uri in ("x://secret", "x://nowhere"):
                with pytest.raises(NotFound, match=f"does not report {uri}"):
                    bob.listen(uris=[uri])
            for uri in uris:
                server.resource_updated(uri)

            def heard(events):
                for event in events:
                    yield event["params"].get("uri")
                    if event["params"].get("uri") == "x://open":
                        return

            assert list(heard(told)) == uris
            assert list(heard(told_less)) == ["x://open"]

    def test_visible_functions_that_fail(self):
        """Their exception is the answer; they may be async."""
        server = Server("failing")

        def broken(ctx):
            raise KeyError("no database")

        async def never(ctx):
            return False

        server.add_prompt(lambda: "x", name="one", visible=broken)
        server.add_tool(lambda: 2, name="two", visible=never)
        with Client(server) as client:
            assert client.list_tools() == []
            with pytest.raises(mcp_lite.NotFound):
                client.call("two")
            with pytest.raises(McpError, match="no database"):
                client.list_prompts()


class TestFraming:
    """The headers that mirror a message."""

    MIRRORS = [
        ("text", "us-west1", "us-west1"),
        ("text", "a\tb", "a\tb"),
        ("text", "", "=?base64??="),
        ("text", "Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        ("text", " padded ", "=?base64?IHBhZGRlZCA=?="),
        ("text", "a\r\nb: c", "=?base64?YQ0KYjogYw==?="),
        ("text", "=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ("number", 42, "42.0"),
        ("number", -7, "-7"),
        ("number", 2**53 - 1, str(2**53 - 1)),
        ("flag", True, "true"),
    ]
    LIES = [
        ("text", "a", "b"),
        ("text", "x", "=?base64?%%%?="),
        ("text", "x", "=?base64?/w==?="),
        ("text", "=?base64?YQ==?=", "=?base64?YQ==?="),
        ("number", 42, "41"),
        ("number", 1, "1e0"),
        ("number", 1, "01"),
        ("number", 2**53, str(2**53 + 1)),
        ("number", 1, "9" * 5000),
        ("flag", True, "True"),
        ("flag", True, "1"),
    ]

    def test_mirrored_values(self):
        """A header says the value as the specification does, or in base64; a number is
        compared as a number. One that says another value is refused."""
        types = {"text": "string", "number": "integer", "flag": "boolean"}
        schema = {name: {"type": types[name], "x-mcp-header": name} for name in types}
        schema = {"type": "object", "properties": schema}
        server = Server("s")
        server.add_tool(
            lambda text=None, number=None, flag=None: "fine",
            name="t",
            input_schema=schema,
        )
        with server.start_http() as http:
            web = Web(http)
            for rows, expected in ((self.MIRRORS, 200), (self.LIES, 400)):
                for name, value, header in rows:
                    header = {f"Mcp_Param_{name}": header}
                    call = call_tool("t", **{name: value})
                    status, _, body = web.post(call, **header)
                    assert status == expected, (name, value, header)
                    assert status == 200 or body["error"]["code"] == -32020

            # What a client sends is what the server takes.
            with Client(http.url) as client:
                for name, value, _ in self.MIRRORS:
                    assert client.call("t", {name: value}) == "fine"

    PROPERTY = {"type": "string", "x-mcp-header": "A"}

    @pytest.mark.parametrize(
        "schema, is_fine",
        [
            ({"properties": {"o": {"properties": {"b": PROPERTY}}}}, True),
            ({"properties": {"x-mcp-header": {"type": "string"}}}, True),
            ({"properties": {"a": {"enum": [PROPERTY], "default": PROPERTY}}}, True),
            ({"patternProperties": {"a": PROPERTY}}, False),
            ({"additionalProperties": PROPERTY}, False),
            ({"properties": {"a": {"not": PROPERTY}}}, False),
            ({"properties": {"a": {"items": PROPERTY}}}, False),
            ({"properties": {"a": {"anyOf": [PROPERTY]}}}, False),
            ({"$defs": {"d": PROPERTY}}, False),
            ({"properties": {"a": {"type": "number", "x-mcp-header": "A"}}}, False),
            ({"properties": {"a": {**PROPERTY, "x-mcp-header": "A B"}}}, False),
            ({"properties": {"a": {**PROPERTY, "x-mcp-header": ""}}}, False),
            ({"properties": {"a": {**PROPERTY, "x-mcp-header": "A\r\nB: c"}}}, False),
            ({"properties": {"a": PROPERTY, "b": PROPERTY}}, False),
        ],
        ids=range(14),
    )
    def test_where_a_mirrored_parameter_may_stand(self, schema, is_fine):
        """Below `properties` alone, under a name of its own; else the tool is refused
        when it is registered."""
        schema = {"type": "object", **schema}
        refused = pytest.raises(ValueError, match="x-mcp-header")
        with contextlib.nullcontext() if is_fine else refused:
            Server("s").add_tool(lambda a=None: "x", name="t", input_schema=schema)


class TestServerOnTheWire:
    """Connection, stdio and Server, seen from the other end of a pipe."""

    @pytest.fixture
    def wire(self, server):
        with LocalWire(server) as wire:
            yield wire

    @pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
    def test_an_idle_server_sleeps(self):
        """Its main thread no longer looks after the reader."""
        with Wire() as wire:
            wire.ask("ping")

            def looks(pid=wire.process.pid):
                with open(f"/proc/{pid}/task/{pid}/status") as file:
                    return int(re.search(r"\nvoluntary\w+:\s+(\d+)", file.read())[1])

            def rests():
                before = looks()
                time.sleep(0.1)
                return looks() - before < 5

            eventually(rests)

    # Messages
    def test_pipelined_requests_are_all_answered(self):
        """All that came before the end of the input is answered, even without a last
        line break; then the exit code is 0. `initialized` counts."""
        with Wire() as wire:
            wire.send(
                request("initialize", opening("2025-06-18"), "a"),
                {"jsonrpc": "2.0", "method": "initialized"},
                *[call_legacy("add", n, a=n) for n in range(50)],
                json.dumps(request("ping", id="z")).encode(),
            )
            rest, code = wire.end()
        assert code == 0 and rest[0]["id"] == "a" and len(rest) == 52
        results = {each["id"]: each["result"] for each in rest}
        for n in range(50):
            assert results[n]["structuredContent"] == {"result": n + 1}

    def test_batches_of_2025_03_26(self, wire):
        """They are answered in one array, without notifications and what was cancelled."""
        wire.open("2025-03-26")
        batch = [request("ping", id=1), notice("x"), 7, request("no", id=3)]
        batch.append(call_legacy("wait", 2))
        wire.send(json.dumps(batch).encode() + b"\n", cancelled(2))
        codes = {each.get("id"): member(each, "error", "code") for each in wire.read()}
        assert codes == {1: None, None: -32600, 3: -32601}
        wire.send(b'[{"jsonrpc":"2.0","method":"notifications/x"}]\n')
        assert wire.ask("ping", id=9)["id"] == 9

    def test_a_batch_may_cancel_a_request_of_its_own(self, wire):
        """The others are answered, wherever the cancellation stands."""
        wire.open("2025-03-26")
        stop = {"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": 2}}
        for cancel, failed in ((cancelled(2), {1: False}), (stop, {1: False, 2: True})):
            for place in (0, 2):
                batch = [call_legacy("wait", 2), request("ping", id=1)]
                batch.insert(place, cancel)
                wire.send(json.dumps(batch).encode() + b"\n")
                answers = {each["id"]: "error" in each for each in wire.read()}
                assert answers == failed

    @pytest.mark.parametrize("kind", ["nan", "surrogate", "object"])
    def test_results_that_json_cannot_say_become_errors(self, wire, kind):
        """Never invalid JSON on the wire: the result names the tool; an error answers
        what cannot be encoded at all."""
        wire.send(call_tool("bad", kind=kind))
        answer = wire.read()
        assert answer["id"] == 1
        if kind == "surrogate":
            assert text_of(answer["result"]) == "\ufffd"
        else:
            assert answer["result"]["isError"]
            assert re.fullmatch(r"bad: \w+: .+", text_of(answer["result"]))

    # Cancelling
    def test_cancellation_has_no_answer(self, wire):
        """The handler sees it, its callback runs, and nothing is sent for it; but
        `$/cancelRequest` gets -32800."""
        wire.send(call_tool("wait", 7), call_tool("is_waiting", 6))
        assert wire.read()["id"] == 6
        wire.send(cancelled(7, reason="x"), call_tool("waited", 8))
        answer = wire.read()
        assert answer["id"] == 8
        assert unwrap(answer["result"]) == ["callback", "cancelled"]
        other = {"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": 7}}
        wire.send(call_tool("wait", 7), other)
        answer = wire.read()
        assert (answer["id"], answer["error"]["code"]) == (7, -32800)

    # Telling
    def test_progress_increases_and_stops_at_the_answer(self, wire):
        """Strictly increasing, with the token, none after; without a token, none."""
        wire.open()
        wire.send(call_legacy("count", 1, {"progressToken": "t"}, to=3))
        told = [wire.read() for _ in range(4)]
        for n, message in enumerate(told[:3], 1):
            assert message["params"] == {
                "progressToken": "t",
                "progress": n,
                "total": 3,
                "message": f"step {n}",
            }
        assert told[3]["id"] == 1
        wire.send(call_legacy("count", 2, to=3))
        assert wire.read()["id"] == 2

    def test_log_levels_of_both_eras(self, wire):
        """Legacy: logging/setLevel; modern: per request, and nothing without it."""

        def logged(message):
            wire.send(message)
            told = []
            while "id" not in (answer := wire.read()):
                told.append(answer["params"]["level"])
            assert "result" in answer
            return told

        for silent in ({}, {META_LOG_LEVEL: None}):
            assert logged(call_tool("logs", meta=silent)) == []
        loud = {META_LOG_LEVEL: "alert"}
        assert logged(call_tool("logs", meta=loud)) == ["alert", "emergency"]
        wire.open()
        answer = wire.ask("logging/setLevel", {"level": "loud"})
        assert answer["error"]["code"] == -32602
        assert wire.ask("logging/setLevel", {"level": "error"})["result"] == {}
        assert logged(call_legacy("logs")) == LEVELS[4:]

    # Lists and revisions
    def test_pagination(self, wire):
        """Pages, stateless cursors, and -32602 for a cursor that is not ours."""
        wire.open()
        names = []
        cursors = [None]
        for cursor in cursors:
            result = wire.ask("tools/list", {"cursor": cursor})["result"]
            assert len(result["tools"]) <= 3
            names += [tool["name"] for tool in result["tools"]]
            if "nextCursor" in result:
                cursors.append(result["nextCursor"])
        assert len(names) == len(set(names)) > 10
        assert "nextCursor" not in wire.ask("resources/list")["result"]
        wrong = ["x", ":3", 5, "é", "resources/list:3", "tools/list:-1"]
        for bad in [*wrong, "tools/list:\u0663", "tools/list:" + "9" * 5000]:
            answer = wire.ask("tools/list", {"cursor": bad})
            assert answer["error"]["code"] == -32602, bad

    @wants_specification
    def test_members_are_those_of_their_revision(self, version):
        """Each object that is sent is one by its revision's schema."""
        icons = [{"src": "data:,"}]
        url = "https://example.com"
        server = Server("s", title="S", description="d", website_url=url, icons=icons)
        notes = {"audience": ["user"], "lastModified": "2026-01-01T00:00:00Z"}
        both = {"annotations": notes, "meta": {"x": 1}}
        more = {"title": "T", "meta": {"x": 1}, "icons": icons}

        def media() -> list:
            return [
                Image(PNG, **both),
                Audio(WAV, **both),
                EmbeddedResource("x://y", "in", **both),
                ResourceLink("x://z", "link", **both, icons=icons, title="T"),
            ]

        server.add_tool(media, annotations={"readOnlyHint": True}, **more)
        server.add_tool(lambda: {"a": 1}, name="data", output_schema={"type": "object"})
        server.add_resource("x://y", lambda: "x", annotations=notes, **more)
        server.add_resource("x://{y}", lambda y: "x", annotations=notes, **more)
        server.add_prompt(media, **more)
        server.add_prompt(lambda: [Message(media()), "x"], name="lists")
        sent = []
        frame = dict if version in LEGACY else modern
        with LocalWire(server) as wire:
            if version in LEGACY:
                sent.append(("Implementation", wire.open(version)["serverInfo"]))
            for method, member, kind in (
                ("tools/list", "tools", "Tool"),
                ("resources/list", "resources", "Resource"),
                ("resources/templates/list", "resourceTemplates", "ResourceTemplate"),
                ("prompts/list", "prompts", "Prompt"),
            ):
                listed = wire.ask(method, frame())["result"][member]
                sent += [(kind, each) for each in listed]
            blocks = []
            for tool in ("media", "data"):
                result = wire.ask("tools/call", frame(name=tool))["result"]
                sent.append(("CallToolResult", result))
                blocks += result["content"]
            for prompt, count in (("media", 4), ("lists", 5)):
                result = wire.ask("prompts/get", frame(name=prompt))["result"]
                assert len(result["messages"]) == count
                sent += [("PromptMessage", each) for each in result["messages"]]
                blocks += [each["content"] for each in result["messages"]]
        kinds = {
            "text": "TextContent",
            "image": "ImageContent",
            "audio": "AudioContent",
            "resource": "EmbeddedResource",
            "resource_link": "ResourceLink",
        }
        sent += [(kinds[block["type"]], block) for block in blocks]
        schema = json.loads((SPEC / version / "schema.json").read_text("utf-8"))
        place = "$defs" if "$defs" in schema else "definitions"
        for kind, each in sent:
            assert validate(each, {**schema, "$ref": f"#/{place}/{kind}"}) == []
        # And what a revision has is not taken away.
        for kind in ("Resource", "ResourceTemplate", "ImageContent"):
            kept = [each["annotations"] for name, each in sent if name == kind]
            assert kept and all(each["audience"] == ["user"] for each in kept)

    def test_no_code_leaves_that_the_revision_forbids(self, version):
        """A handler's error keeps its code, but for two that are retired."""
        server = Server("s")

        @server.prompt
        def fail(code: int) -> str:
            raise McpError(code, "no", {"why": 1})

        legacy = version in LEGACY
        expected = {code: code for code in (-32603, 1, -32001, -32021)}
        expected[-32002] = -32002 if legacy else -32602
        expected[-32042] = -32042 if legacy else -32603
        frame = dict if legacy else modern
        with LocalWire(server) as wire:
            if legacy:
                wire.open(version)
            for code, told in expected.items():
                params = frame(name="fail", arguments={"code": str(code)})
                error = wire.ask("prompts/get", params)["error"]
                assert error == {"code": told, "message": "no", "data": {"why": 1}}

    def test_a_capability_is_a_promise(self, version):
        """When the last tool, resource or prompt has gone, its list is empty; what was
        there is unknown, not the method."""
        server = Server("s")
        server.add_tool(lambda: "x", name="tool")
        server.add_resource("x://fixed", lambda: "x")
        server.add_prompt(lambda: "x", name="prompt")
        legacy = version in LEGACY
        frame = dict if legacy else modern
        with LocalWire(server) as wire:
            if legacy:
                wire.open(version)
                wire.ask("ping")
            for remove, name in (
                (server.remove_tool, "tool"),
                (server.remove_resource, "x://fixed"),
                (server.remove_prompt, "prompt"),
            ):
                remove(name)
                with pytest.raises(KeyError):
                    remove(name)
            changed = []
            for method, member in (
                ("tools/list", "tools"),
                ("resources/list", "resources"),
                ("resources/templates/list", "resourceTemplates"),
                ("prompts/list", "prompts"),
            ):
                wire.send(request(method, frame()))
                while "method" in (answer := wire.read()):
                    changed.append(answer["method"])
                assert answer["result"][member] == []
            assert len(changed) == (3 if legacy else 0)
            for method, named, code in (
                ("tools/call", {"name": "tool"}, -32602),
                ("resources/read", {"uri": "x://fixed"}, -32002 if legacy else -32602),
                ("prompts/get", {"name": "prompt"}, -32602),
            ):
                assert wire.ask(method, frame(**named))["error"]["code"] == code

    def test_only_declared_lists_are_told_of(self):
        """A session, and a listener, hear of no list that was not declared to them."""
        server = Server("s")
        server.add_prompt(lambda: "x", name="one")
        wanted = {"toolsListChanged": True, "promptsListChanged": True}
        listen = request("subscriptions/listen", modern(notifications=wanted), "s")
        with LocalWire(server) as session, LocalWire(server) as listener:
            assert "tools" not in session.open()["capabilities"]
            session.ask("ping")
            listener.send(listen)
            granted = listener.read()["params"]["notifications"]
            assert granted == {"promptsListChanged": True}
            server.add_tool(lambda: "x", name="tool")
            server.add_prompt(lambda: "x", name="two")
            for wire in (session, listener):
                assert wire.read()["method"] == "notifications/prompts/list_changed"

    # Listening
    def test_listening_on_the_wire(self):
        """The acknowledgement first, each notification with the id, a graceful end."""
        wanted = {"toolsListChanged": True, "resourceSubscriptions": ["x://note"]}
        about = {META_SUBSCRIPTION: "s"}
        filters = modern(notifications={**wanted, "unknown": True})
        with Wire() as wire:
            wire.send(request("subscriptions/listen", filters, "s"))
            acknowledged = wire.read()
            assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
            assert acknowledged["params"] == {"notifications": wanted, "_meta": about}
            wire.send(call_tool("change", 2))
            told = []
            while "id" not in (answer := wire.read()):
                assert answer["params"]["_meta"] == about
                told.append(answer["method"])
            assert list(dict.fromkeys(told)) == [
                "notifications/tools/list_changed",
                "notifications/resources/updated",
            ]
            # The server tears it down: that is told, and ends it gracefully.
            (ended, last), code = wire.end()
        assert code == 0 and ended == cancelled("s", _meta=about)
        assert last["id"] == "s" and last["result"]["_meta"].items() >= about.items()

    def test_a_cancelled_subscription_is_silent(self, wire):
        """No notification after the client's cancellation; a wrong one never begins."""
        for wrong in (5, "x://note", [5], {"x://note": True}, ["x://note"] * 1001):
            params = modern(notifications={"resourceSubscriptions": wrong})
            refused = wire.ask("subscriptions/listen", params)["error"]
            assert refused["code"] == -32602 and "not URIs" in refused["message"]
        params = modern(notifications={"toolsListChanged": True})
        wire.send(request("subscriptions/listen", params, "s"))
        wire.read()
        wire.send(cancelled("s"), call_tool("change", 2), call_tool("add", 3, a=1))
        assert {wire.read()["id"], wire.read()["id"]} == {2, 3}

    def test_a_subscription_that_is_cancelled_while_it_opens(self, caplog):
        """It is no failure, and leaves nothing."""
        asked = threading.Event()

        def visible(ctx):
            asked.set()
            eventually(lambda: ctx.cancelled, "the cancellation")
            return True

        server = Server("s")
        server.add_resource("x://note", lambda: "", visible=visible)
        params = modern(notifications={"resourceSubscriptions": ["x://note"]})
        with LocalWire(server) as wire:
            wire.send(request("subscriptions/listen", params, "s"))
            assert asked.wait(SECONDS)
            wire.send(cancelled("s"))
            wire.socks[0].shutdown(socket.SHUT_WR)
            assert wire.out.read() == b""
        assert caplog.messages == []

    # Asking
    def test_request_state_is_bound_and_signed(self, wire):
        """The right answers pass; tampered, moved or forged ones do not."""

        def call(name="steps", **more):
            params = modern({"elicitation": {}}, name=name, **more)
            return wire.ask("tools/call", params)

        first = call(requestState=None)["result"]
        assert first["resultType"] == "input_required"
        assert list(first["inputRequests"]) == ["elicit-1"]
        good = {"elicit-1": {"action": "accept", "content": {"name": "A"}}}
        state = first["requestState"]
        tampered = [state + "x", "x" + state, state[:-1], state.replace(".", "")]
        for bad in [*tampered, "", "a.b", 5, "é"]:
            answer = call(requestState=bad, inputResponses=good)
            assert answer["error"]["code"] == -32602, bad
        moved = call("form", requestState=state, inputResponses=good)
        assert moved["error"]["code"] == -32602
        wrong = {"action": "accept", "content": {"name": 1}}
        for forged in (5, {"action": "maybe"}, wrong):
            answer = call(requestState=state, inputResponses={"elicit-1": forged})
            assert answer["error"]["code"] == -32602
        ignored = call(requestState=state, inputResponses={"wrong": {}})["result"]
        assert list(ignored["inputRequests"]) == ["elicit-1"]
        second = call(requestState=state, inputResponses=good)["result"]
        assert list(second["inputRequests"]) == ["elicit-2"]
        assert second["requestState"] != state
        # The first answer travels in the state; only the second is fresh.
        fresh = {"elicit-2": {"action": "accept", "content": {"name": "B"}}}
        last = call(requestState=second["requestState"], inputResponses=fresh)
        assert unwrap(last["result"]) == [1, "A", "B"]

    @pytest.mark.parametrize(
        "tool, needed",
        [
            ("form", {"elicitation": {}}),
            ("think", {"sampling": {}}),
            ("where", {"roots": {}}),
            ("visit", {"elicitation": {"url": {}}}),
        ],
    )
    def test_a_question_needs_its_capability(self, wire, tool, needed):
        """-32021 with what is missing, in both eras."""
        wire.open()
        declared = {"elicitation": {}} if tool == "visit" else {}
        for params in ({"name": tool}, modern(declared, name=tool)):
            error = wire.ask("tools/call", params)["error"]
            assert error["code"] == -32021
            assert error["data"] == {"requiredCapabilities": needed}

    # Threads, logs, traces
    @pytest.mark.skipif(os.name == "nt", reason="there a full pipe is not seen")
    def test_log_lines_for_a_stderr_that_is_full(self, tmp_path):
        """They are dropped, and no call waits for them."""
        script = """
            server = Server('s')
            @server.tool
            def fail(length: int): raise ValueError('x' * length)
            server.run()
        """
        with Wire(program(tmp_path, script), stderr=PIPE) as wire:
            wire.send(*[call_tool("fail", n, length=n * 30) for n in range(200)])
            assert {wire.read()["id"] for _ in range(200)} == set(range(200))
            wire.process.stderr.close()

    def test_a_trace(self, tmp_path, monkeypatch, capsys):
        """A function gets each message of both directions, a path their lines, True
        prints them shortened; what the function raises breaks nothing."""
        server = Server("s", trace=tmp_path / "trace")
        server.add_tool(lambda text: text, name="say", description="x")
        seen = []

        def watch(direction, line):
            seen.append((direction, json.loads(line).get("method")))
            raise LookupError

        with Client(server, trace=watch) as client:
            client.call("say", text="x")
        assert seen[:2] == [("-->", "server/discover"), ("<--", None)]
        lines = (tmp_path / "trace").read_text().splitlines()
        assert [each[:5] for each in lines[:2]] == ["--> {", "<-- {"]
        assert len(lines) == len(seen)
        monkeypatch.setenv("MCP_LITE_TRACE", "1")
        with Client(server) as client:
            client.call("say", text="x" * 1000)
        printed = capsys.readouterr().err.splitlines()
        assert any("tools/call" in each and "bytes)" in each for each in printed)
        assert max(map(len, printed)) < 200

    # The process
    def test_nothing_but_protocol_on_stdout(self):
        """print, os.write and children go to stderr; input() finds nothing."""
        with Wire() as wire:
            wire.send(call_tool("noise"))
            assert text_of(wire.read()["result"]) == "input: nothing"
            assert wire.end() == ([], 0)

    # Without a wire
    def test_handle_answers_one_message(self, server):
        """A modern message in, an answer out; a notification has none; legacy and
        listening are refused."""
        assert unwrap(server.handle(call_tool("add", a=1))["result"]) == 2
        assert server.handle(notice("x")) is None
        listen = request("subscriptions/listen", modern(notifications={}))
        for message, code in (
            (request("tools/list"), -32600),
            (listen, -32601),
            ({"x": 1}, -32600),
        ):
            assert server.handle(message)["error"]["code"] == code
        late = server.handle(call_tool("slow"))
        assert "timed out" in text_of(late["result"])


def hosted(main, fn):
    """Give or raise what fn() does on a thread, while this one is the main loop."""
    found = []

    def drive():
        try:
            found.append((fn(), None))
        except Exception as error:
            found.append((None, error))

    thread = started(drive)
    pump(main, lambda: not thread.is_alive())
    value, error = found.pop()
    if error is not None:
        raise error
    return value


def run_program(folder, *parts, options=()):
    """Run a program of these parts in a process of its own, which says nothing on
    stderr. Its stdout."""
    path = folder / "program.py"
    code = "".join(map(textwrap.dedent, parts))
    path.write_text(f"import sys\nsys.path.insert(0, {HERE!r})\n{code}", "utf-8")
    said, complaints = run(*PYTHON, *options, path, cwd=folder)
    assert complaints == "", said
    return said.strip()


class TestInsideHosts:
    """A server and a client as guests of a program that has threads, streams and a main
    loop of its own."""

    @pytest.fixture
    def main(self):
        return MainThread()

    # The main thread
    @pytest.mark.parametrize("kind", ["memory", "http"])
    def test_all_that_is_registered_runs_there(self, main, kind, era):
        """Tools, resources, templates, prompts and completions, and async functions
        with a loop of their own."""
        seen = set()
        server = Server("host", run_on=main)

        def note(what):
            seen.add(threading.current_thread())
            return what

        async def later() -> str:
            return note("later")

        server.add_tool(lambda: note("tool"), name="tool")
        server.add_tool(later)
        server.resource("x://fixed")(lambda: note("resource"))
        server.resource("x://some/{name}")(lambda name: note("template"))
        server.prompt(lambda code: note("prompt"), name="prompt")
        # It is run when its values are taken.
        server.completion("prompt", "code")(lambda value: map(note, ["completion"]))

        def visit(target):
            with Client(target, protocol_version=era) as client:
                prompt = client.get_prompt("prompt", {"code": "c"})
                return [
                    client.call("tool"),
                    client.call("later"),
                    client.read("x://fixed"),
                    client.read("x://some/a"),
                    prompt["messages"][0]["content"]["text"],
                    *client.complete("prompt", "code", "c"),
                ]

        with server.start_http() as http:
            target = http.url if kind == "http" else server
            told = hosted(main, lambda: visit(target))
        assert told == "tool later resource template prompt completion".split()
        assert seen == {threading.current_thread()}

    def test_questions_from_there(self, main, era):
        """A function there may ask; in the modern era it runs there again."""
        seen = []
        server = Server("host", run_on=main)

        @server.tool
        def ask(ctx: Context) -> str:
            seen.append(threading.current_thread())
            return ctx.elicit("who?", FORM)["content"]["name"]

        with Client(server, protocol_version=era, **CALLBACKS) as client:
            assert hosted(main, lambda: client.call("ask")) == "who?"
        assert seen == [threading.current_thread()] * (1 if era in LEGACY else 2)

    def test_an_executor_of_one_thread(self):
        """run_on=executor.submit: everything on that thread, as SQLite wants it."""
        sqlite3 = pytest.importorskip("sqlite3")
        with concurrent.futures.ThreadPoolExecutor(1) as executor:
            server = Server("database", run_on=executor.submit)
            opened = executor.submit(sqlite3.connect, ":memory:").result(SECONDS)

            @server.tool
            def run(statement: str) -> list:
                return opened.execute(statement).fetchall()

            @server.tool
            async def count() -> int:
                return opened.execute("select count(*) from names").fetchone()[0]

            with Client(server) as client:
                client.call("run", statement="create table names (name)")
                client.call("run", statement="insert into names values (1)")
                assert client.call("count") == 1
                with pytest.raises(ToolError, match="run: OperationalError: near"):
                    client.call("run", statement="selekt")
            executor.submit(opened.close).result(SECONDS)

    def test_a_host_that_never_comes(self, era):
        """Timeouts, cancelling and closing end the calls of jobs that are not run; a
        host that comes late runs nothing."""
        lost = []
        ran = []
        server = Server("host", run_on=lost.append)
        server.add_tool(lambda: ran.append(1), name="tool")
        with Client(server, protocol_version=era) as client:
            with pytest.raises(Timeout):
                client.call_tool("tool", timeout=0.05)
            call = client.start_call("tool")
            eventually(lambda: len(lost) == 2, "the second job")
            call.cancel()
            with pytest.raises(Cancelled):
                call.result()
            call = client.start_call("tool")
            eventually(lambda: len(lost) == 3, "the third job")
        with pytest.raises(ConnectionClosed):
            call.result()
        assert [job() for job in lost] == [None] * 3 and ran == []

    def test_a_timeout_starts_with_the_tool(self, main):
        """While it is queued no clock runs. Once it runs, its time is up though the
        main thread is busy."""
        release = threading.Event()
        server = Server("host", run_on=main)

        @server.tool(timeout=0.05)
        def quick() -> str:
            return "in time"

        @server.tool(timeout=0.05)
        def slow() -> str:
            assert release.wait(SECONDS)
            return "late"

        with Client(server) as client:
            call = client.start_call("quick")
            assert not call.done()
            time.sleep(0.1)
            pump(main, call.done)
            assert call.value() == "in time"
            answers = []
            call = client.start_call("slow")
            # It has its answer before the main thread is back.
            waiter = started(lambda: (answers.append(call.result()), release.set()))
            pump(main, lambda: not waiter.is_alive())
        assert answers[0]["isError"]
        assert "timed out after 0.05 seconds" in text_of(answers[0])

    def test_run_pending(self, main):
        """It blocks for the first job, `wait` seconds; begins none after `max_seconds`,
        which start with the first one; and returns how many it has run."""
        ran = []
        assert main.run_pending() == 0 == main.run_pending(wait=0.01)
        thread = started(main, lambda: ran.append(threading.current_thread()))
        assert main.run_pending(wait=SECONDS) == 1
        thread.join(SECONDS)
        assert ran == [threading.current_thread()]

        jobs = [functools.partial(ran.append, n) for n in range(3)]
        started(lambda: [main(job) for job in jobs]).join(SECONDS)
        assert main.run_pending(max_seconds=0.0, wait=SECONDS) == 1 and ran[1:] == [0]
        assert main.run_pending(max_seconds=SECONDS) == 2 and ran[1:] == [0, 1, 2]

    def test_run_pending_waits_for_the_first_job_alone(self, main):
        """A job that comes during the wait is run by the same call, which then waits
        for no other one."""
        ran = []
        first = threading.Timer(0.05, main, [lambda: ran.append("first")])
        late = threading.Timer(5.0, main, [lambda: ran.append("late")])
        first.start()
        late.start()
        try:
            assert main.run_pending(max_seconds=SECONDS, wait=SECONDS) == 1
            assert ran == ["first"]
        finally:
            late.cancel()
            first.join()
            late.join()

    def test_run_serves_its_own_thread(self, tmp_path):
        """A script with a sqlite connection: functions run on the thread of run(), and
        Ctrl-C interrupts one that hangs."""
        pytest.importorskip("sqlite3")
        command = program(
            tmp_path,
            """
            import sqlite3
            db = sqlite3.connect(":memory:")
            server = Server("db", run_on=MainThread())
            @server.tool
            def double(n: int) -> int:
                return db.execute("select 2 * ?", [n]).fetchone()[0]
            @server.tool(run_on=None)
            def hang(ctx: Context) -> str:
                ctx.info("hangs")
                return threading.current_thread().name
            @server.tool
            def stuck(ctx: Context) -> None:
                ctx.info("stuck")
                time.sleep(600)
            server.run()
            print("ended", file=sys.stderr)
            """,
        )
        with Client(command) as client:
            calls = [client.start_call("double", {"n": n}) for n in range(20)]
            assert [call.value() for call in calls] == [2 * n for n in range(20)]
            assert client.call("hang") == "mcp-worker"
        with Wire(command, stderr=PIPE) as wire:
            wire.open()
            wire.send(call_legacy("stuck", 3))
            assert wire.read()["params"]["data"] == "stuck"
            wire.process.send_signal(signal.SIGINT)
            assert wire.process.wait(SECONDS) == 0
            assert wire.process.stderr.read().endswith(b"ended\n")
            wire.process.stderr.close()

    @pytest.mark.parametrize("over_http", [False, True])
    def test_async_functions_on_a_hosts_loop(self, over_http):
        """With run_on=loop.call_soon_threadsafe, they are tasks of that loop, and end
        with their request, or its time."""
        loop = asyncio.new_event_loop()
        server = Server("host", run_on=loop.call_soon_threadsafe)
        ended = queue.Queue()

        @server.tool
        async def where() -> bool:
            await asyncio.sleep(0)
            return asyncio.get_running_loop() is loop

        @server.tool(timeout=0.05)
        async def slow() -> None:
            try:
                await asyncio.sleep(60)
            finally:
                ended.put("slow")

        @server.tool
        async def wait() -> None:
            ended.put("begun")
            try:
                await asyncio.sleep(60)
            finally:
                ended.put("ended")

        server.add_tool(lambda: threading.current_thread().name, name="plain")
        thread = started(loop.run_forever)
        try:
            with client_at(server, over_http) as client:
                assert client.call("where") is True
                assert client.call("plain") == thread.name
                with pytest.raises(ToolError, match="timed out"):
                    client.call("slow")
                assert ended.get(timeout=SECONDS) == "slow"
                call = client.start_call("wait")
                assert ended.get(timeout=SECONDS) == "begun"
                call.cancel()
                assert ended.get(timeout=SECONDS) == "ended"
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(SECONDS)
            loop.close()

    def test_a_host_that_can_be_posted_to(self):
        """post(fn) wakes it; what comes while a job runs the host's loop again, and
        finds it taken, is posted once more."""
        posted = queue.Queue()
        main = MainThread(post=posted.put)
        server = Server("host", run_on=main)
        inner = threading.Event()

        @server.tool
        def outer() -> str:
            inner.set()
            # The host's loop, nested: it calls what was posted.
            posted.get(timeout=SECONDS)()
            # Its time is over then, and the other job is left for later.
            main.run_pending(wait=0.02)
            threading.Event().wait(0.02)
            return "outer"

        server.add_tool(lambda: "late", name="late")
        with Client(server) as client:
            first = client.start_call("outer")
            job = posted.get(timeout=SECONDS)
            later = []
            thread = started(
                lambda: inner.wait(SECONDS) and later.append(client.call("late"))
            )
            job()
            while not later:
                with contextlib.suppress(queue.Empty):
                    posted.get(timeout=0.05)()
            assert (first.value(), later) == ("outer", ["late"])
            thread.join(SECONDS)

    def test_a_console_of_the_hosts_own(self, monkeypatch):
        """No other thread than the main one writes to a stderr that is no stream."""
        written = []
        console = types.SimpleNamespace(
            write=lambda text: written.append(threading.current_thread()),
            flush=lambda: None,
        )
        monkeypatch.setattr(sys, "stderr", console)
        monkeypatch.setattr(logging.getLogger(), "handlers", [])
        server = Server("host")

        @server.tool
        def fail() -> None:
            raise ValueError("told")

        with Client(server) as client:
            assert client.call_tool("fail")["isError"]
        prints = "import sys; print('x', file=sys.stderr)"
        with pytest.raises(ConnectionClosed, match="stderr:\nx"):
            Client([*PYTHON, "-c", prints]).connect()
        assert set(written) <= {threading.main_thread()}

    def test_exceptions_that_refuse_a_traceback(self, main):
        """LibreOffice's do."""

        class Refuses(Exception):
            def __setattr__(self, name, value):
                raise AttributeError(name)

        server = Server("host", run_on=main)

        @server.tool(timeout=60)
        def fail() -> None:
            raise Refuses("told")

        with Client(server) as client:
            result = hosted(main, lambda: client.call_tool("fail"))
        assert text_of(result) == "fail: Refuses: told"

    def test_stderr_that_is_the_wire(self, tmp_path):
        """By 2>&1, and under inetd: what is printed there reaches no client, until the
        server has ended."""
        command = program(
            tmp_path,
            """
            server = Server("s")
            @server.tool
            def noise() -> str:
                print("out")
                print("err", file=sys.stderr, flush=True)
                os.write(2, b"raw")
                raise ValueError("logged")
            server.run()
            print("over", file=sys.stderr)
            """,
        )
        with Wire(command, stderr=subprocess.STDOUT) as wire:
            wire.open()
            assert wire.ask("tools/call", {"name": "noise"}, 1)["result"]["isError"]
            assert wire.ask("ping", id=2)["id"] == 2
            wire.process.stdin.close()
            assert wire.out.read() == b"over\n"

    def test_a_python_that_is_not_there(self, monkeypatch, tmp_path):
        """gdb names one that need not exist: a script runs by another one."""
        monkeypatch.setattr(sys, "executable", str(tmp_path / "python3"))
        assert mcp_lite.split_command("x.py")[0] == "python3"

    def test_a_host_that_runs_nothing(self, monkeypatch, caplog):
        """After some seconds, the log says what is missing."""
        monkeypatch.setattr(mcp_lite, "HOST_SECONDS", 0.05)
        main = MainThread()
        server = Server("host", run_on=main)
        server.add_tool(lambda: 1, name="one")
        with Client(server) as client:
            call = client.start_call("one")
            eventually(lambda: "one: waits for run_pending()" in caplog.text)
            call.cancel()
        main.close()

    def test_the_main_thread_may_call_itself(self):
        """call() on the main thread runs it there and then."""
        main = MainThread()
        assert main.call(threading.current_thread) is threading.current_thread()

    def test_one_tool_on_a_worker(self, main):
        """run_on=None has one tool run on a worker, beside the others."""
        server = Server("host", run_on=main)
        server.add_tool(
            lambda: threading.current_thread().name, name="here", run_on=None
        )
        with Client(server) as client:
            # Nobody runs what waits for the main thread.
            assert client.call("here") == "mcp-worker"

    def test_one_at_a_time(self, main):
        """A job that runs the host's loop again gets 0; so does a second thread."""
        told = []

        def job():
            told.append(main.run_pending())
            started(lambda: told.append(main.run_pending())).join(SECONDS)

        # At once it runs only where this is the main thread.
        started(main, job).join(SECONDS)
        assert main.run_pending(SECONDS) == 1 and told == [0, 0]

    def test_a_part_of_a_longer_work(self, main):
        """call() has the main thread do it, and gives what comes of it; a tool that
        takes long holds up nobody, as its server has no run_on."""
        server = Server("host")

        @server.tool
        def build(ctx: Context) -> list:
            names = [main.call(lambda: threading.current_thread().name)]
            with pytest.raises(KeyError, match="none"):
                main.call(lambda: {}["none"])
            return [*names, threading.current_thread().name]

        with Client(server) as client:
            call = client.start_call("build")
            pump(main, call.done)
            here, worker = call.value()
        assert here == threading.current_thread().name != worker
        assert main.call(lambda: "at once") == "at once"

    def test_a_main_thread_that_does_not_come(self, main):
        """call() ends when it is closed; then the part is not run."""
        ran = []
        with concurrent.futures.ThreadPoolExecutor(1) as executor:
            waiting = executor.submit(main.call, lambda: ran.append(1))
            main.close()
            with pytest.raises(ConnectionClosed):
                waiting.result(SECONDS)
        assert main.run_pending() == 0 and ran == []

    def test_close_fails_what_waits(self, main):
        """Every queued call, and every later one; also from within a job."""
        arrived = []
        server = Server("host", run_on=lambda job: (main(job), arrived.append(job)))
        server.add_tool(main.close, name="quit")
        server.add_tool(lambda: "x", name="tool")
        with Client(server) as client:
            last = client.start_call("quit")
            eventually(lambda: len(arrived) == 1, "the first job")
            calls = [client.start_call("tool") for _ in range(8)]
            eventually(lambda: len(arrived) == 9, "the jobs")
            pump(main, last.done)
            assert not last.result().get("isError")
            for call in [*calls, client.start_call("tool")]:
                with pytest.raises(ToolError, match="main loop is closed"):
                    call.value()
        # It does not wait.
        assert main.run_pending(wait=SECONDS) == 0
        main.close()

    def test_ctrl_c_reaches_the_host(self, main):
        """Ctrl-C ends a function on the main thread, and then what the host wants."""
        server = Server("host", run_on=main)

        @server.tool
        def interrupted() -> str:
            signal.raise_signal(signal.SIGINT)
            return "not reached"

        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            with Client(server) as client:
                call = client.start_call("interrupted")
                with pytest.raises(KeyboardInterrupt):
                    pump(main, lambda: False)
                with pytest.raises(ToolError, match="interrupted: KeyboardInterrupt"):
                    call.value()
                server.add_tool(lambda: "again", name="tool")
                assert hosted(main, lambda: client.call("tool")) == "again"
        finally:
            signal.signal(signal.SIGINT, before)

    # Event loops, and other hosts
    def test_inside_asyncio(self):
        """Functions run in the loop's thread, a client's calls in its executor. A
        closed loop is told."""
        import asyncio

        seen = []

        async def program():
            loop = asyncio.get_running_loop()
            server = Server("host", run_on=loop.call_soon_threadsafe)

            @server.tool
            def where(n: int) -> int:
                seen.append(threading.current_thread())
                return n

            def call(n):
                with Client(server) as client:
                    return client.call("where", n=n)

            calls = [loop.run_in_executor(None, call, n) for n in range(4)]
            return server, await asyncio.gather(*calls)

        server, told = asyncio.run(program())
        assert told == [0, 1, 2, 3] and seen == [threading.current_thread()] * 4
        with Client(server) as client, pytest.raises(ToolError, match="loop is closed"):
            client.call("where", n=1)

    @pytest.mark.parametrize("module", ["idaapi", "bpy", "PySide6.QtCore"])
    def test_the_recipes(self, module, monkeypatch):
        """README's for hosts that are not here, with a stand-in that has of them what
        the recipe uses."""
        main = MainThread()
        timers = []
        host = types.ModuleType(module)

        def execute_sync(function, flags):
            done = []
            main(lambda *refused: done.append(function()))
            eventually(lambda: done)
            assert flags == host.MFF_WRITE and type(done[0]) is int
            return done[0]

        host.execute_sync = execute_sync
        host.MFF_WRITE = 2

        def register(function, first_interval=0, persistent=False):
            assert persistent
            timers.append(function)

        host.app = types.SimpleNamespace(
            timers=types.SimpleNamespace(register=register, unregister=timers.remove)
        )

        class Signal:
            def __init__(self, *kinds):
                assert kinds == (object,)

            def connect(self, slot):
                self.emit = lambda value: main(lambda *refused: slot(value))

        host.Signal = Signal
        host.Slot = lambda *kinds: lambda slot: slot
        host.QObject = object
        monkeypatch.setitem(sys.modules, module, host)
        if "." in module:
            monkeypatch.setitem(sys.modules, "PySide6", types.ModuleType("PySide6"))
        begins = re.compile(f"(import|from) {re.escape(module)}\\b")
        (recipe,) = filter(begins.match, TestReadme.blocks("text"))
        program = {}
        exec(compile(recipe.replace("port=8000", "port=0"), module, "exec"), program)
        try:
            where = threading.current_thread
            program["server"].add_tool(lambda: where().name, name="where")

            def visit():
                with Client(program["http"].url) as client:
                    return client.call("where")

            if module == "bpy":
                # Its loop runs timers.
                main = types.SimpleNamespace(run_pending=lambda wait: timers[0]())
            assert hosted(main, visit) == threading.current_thread().name
        finally:
            program.get("unregister", program["http"].close)()
        assert timers == []

    def test_the_example(self):
        """examples/host_app.py draws, goes on ticking, and quits, from outside."""
        options = ["-X", "dev", "-W", "error"]
        said, complaints = run(sys.executable, *options, "examples/host_app.py")
        assert complaints == ""
        assert said.splitlines() == [
            "drew circle and there are 1",
            "drew square and there are 2",
            'in the scene: ["circle","square"]',
            "the program's timer goes on",
            "quit: goodbye",
            "the program ended with 0",
        ]

    # The process
    def test_nothing_of_the_process_is_touched(self, tmp_path):
        """Signals, atexit, logging, hooks, streams, threads, files: after a life as
        before the import."""
        code = """
            import asyncio, atexit, gc, http.server, locale, logging, os, select, signal
            import socket, socketserver, ssl, subprocess, threading, time, urllib.request
            import uuid, warnings

            def state():
                gc.collect()
                fds = "/proc/self/fd"
                return {
                    "signals": {n: signal.getsignal(n) for n in signal.valid_signals()},
                    "logging": [
                        (log.level, log.propagate, *log.handlers, *log.filters)
                        for log in map(logging.getLogger, (None, "mcp_lite"))
                    ],
                    "last resort": logging.lastResort,
                    "atexit": atexit._ncallbacks(),
                    "threads": sorted(t.name for t in threading.enumerate()),
                    "hooks": (sys.excepthook, threading.excepthook, sys.unraisablehook),
                    "streams": (sys.stdin, sys.stdout, sys.stderr),
                    "limits": (sys.getrecursionlimit(), socket.getdefaulttimeout()),
                    "place": (os.getcwd(), dict(os.environ), list(sys.path)),
                    "warnings": list(warnings.filters),
                    "locale": locale.setlocale(locale.LC_ALL),
                    "fds": sorted(os.listdir(fds)) if os.path.isdir(fds) else None,
                    "children": list(subprocess._active or ()),
                }

            before = state()
        """
        after = """
            imported = state()

            def visit(target, **options):
                with Client(target, **options) as client:
                    assert client.call("add", a=2) == 3
                    assert client.call_tool("fail")["isError"]

            def live():
                server = make()
                options = {"on_log": print, "trace": lambda *line: None}
                with server.start_http() as http:
                    for target in (server, SERVE, http.url):
                        visit(target, protocol_version="2025-11-25", **options)
                        visit(target, protocol_version="2026-07-28", **options)
                    sse = http.url.replace("/mcp", "/sse")
                    visit(sse, protocol_version="2025-11-25", **options)

            logging.getLogger("mcp_lite").setLevel(60)
            live()
            logging.getLogger("mcp_lite").setLevel(0)
            deadline = time.monotonic() + 30
            while state() != before and time.monotonic() < deadline:
                time.sleep(0.01)
            for after in (imported, state()):
                for what, then in before.items():
                    assert then == after[what], (what, then, after[what])
            os.write(1, b"untouched")
        """
        options = ["-X", "dev", "-W", "error"]
        said = run_program(tmp_path, code, PROGRAM, after, options=options)
        assert said == "untouched"

    def test_without_standard_streams(self, tmp_path):
        """As under pythonw, the streams are None, and their descriptors closed."""
        code = """
            sys.stdin = sys.stdout = sys.stderr = None
            if "--serve" not in sys.argv:
                os.closerange(0, 3)
            server = make()
            with server.start_http() as http:
                for target in (server, SERVE, http.url):
                    with Client(target, trace=True) as client:
                        assert client.call("add", a=2) == 3
                        assert client.call_tool("fail")["isError"]
            with open("served", "w"):
                pass
        """
        run_program(tmp_path, PROGRAM, code)
        assert (tmp_path / "served").exists()

    def test_two_copies_in_one_process(self):
        """Two plug-ins with a copy each: servers of one, clients of the other. A
        foreign Server is told."""
        spec = importlib.util.spec_from_file_location("a_copy", mcp_lite.__file__)
        copy = importlib.util.module_from_spec(spec)
        sys.modules["a_copy"] = copy
        try:
            spec.loader.exec_module(copy)
            for one, other in ((copy, mcp_lite), (mcp_lite, copy)):
                server = one.Server("s")

                @server.tool
                def fail(ctx: one.Context, one=one) -> str:
                    raise one.ToolError(ctx.elicit("told", FORM)["content"]["name"])

                with server.start_http() as http, served(server) as streams:
                    for target in (http.url, streams):
                        with other.Client(target, **CALLBACKS) as client:
                            with pytest.raises(other.ToolError, match="told"):
                                client.call("fail")
                            with pytest.raises(other.NotFound):
                                client.call("nothing")
                with pytest.raises(TypeError, match="URL, .* got Server"):
                    other.Client(server).connect()
        finally:
            del sys.modules["a_copy"]

    # The end
    @pytest.mark.parametrize("kind", ["memory", "child", "http", "main thread"])
    def test_the_interpreter_ends_with_all_of_it_open(self, kind, tmp_path):
        """Servers, clients, a deaf handler, a call that waits for it, one that listens:
        a quiet exit."""
        code = f"""
            kind = {kind!r}
            version = "2025-11-25" if kind == "http" else {MODERN!r}
            server = make()
            if kind == "main thread":
                server = Server("host", run_on=MainThread())
                server.add_tool(lambda: "x", name="deaf")
            http = server.start_http()
            target = dict(memory=server, child=SERVE).get(kind, http.url)
            client = Client(target, protocol_version=version, on_log=print, on_notification=print)
            client.connect()
            listening = client.listen()
            threading.Thread(target=next, args=(listening,), daemon=True).start()
            call = client.start_call("deaf")
            threading.Thread(target=call.result, daemon=True).start()
            assert kind == "main thread" or client.call("is_here")
            if kind == "child":
                print(client.call("pid"), flush=True)
            print("ended", flush=True)
        """
        *children, last = run_program(tmp_path, PROGRAM, code).split()
        assert last == "ended"
        # By itself it ends in some seconds, as TestFaults shows.
        for pid in children:
            os.kill(int(pid), signal.SIGTERM)

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="POSIX")
    def test_a_fork_with_open_clients(self, tmp_path):
        """A child of the program's that ends by itself does its clients no harm."""
        code = f"""
            server = make()
            http = server.start_http()
            targets = [server, {SERVE!r}, http.url]
            clients = [Client(target).connect() for target in targets]
            child = os.fork()
            if child == 0:
                raise SystemExit
            assert os.waitpid(child, 0)[1] == 0
            for client in clients:
                assert client.call("add", a=1) == 2
                client.close()
            http.close()
            os.write(1, b"unharmed")
        """
        options = ["-W", "ignore:This process:DeprecationWarning"]
        assert run_program(tmp_path, PROGRAM, code, options=options) == "unharmed"

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="POSIX")
    def test_a_fork_that_lives_on(self, tmp_path):
        """A tool's fork lets go of the wire: the output ends with the server."""
        script = """
            server = Server("s")
            @server.tool
            def fork() -> int:
                child = os.fork()
                while child == 0:
                    time.sleep(600)
                return child
            server.run()
        """
        with Wire(program(tmp_path, script)) as wire:
            wire.send(call_tool("fork"))
            child = unwrap(wire.read()["result"])
            try:
                assert wire.end() == ([], 0)
                assert not is_gone(child)
            finally:
                os.kill(child, signal.SIGKILL)


def modern_server(**answers):
    """The same of a modern server, which has tools and prompts; an answer of
    server/discover is completed."""
    declared = {"tools": {"listChanged": True}, "prompts": {}}
    about = {"supportedVersions": [MODERN], "capabilities": declared}
    discover = answers.pop("server_discover", {})

    def answer_discover(message, read, write):
        more = discover(message, read, write) if callable(discover) else discover
        return {**about, **more}

    return legacy_server(
        initialize={"error": {"code": -32601, "message": "what?"}},
        server_discover=answer_discover,
        **answers,
    )


class TestClient:
    """The room Client, against peers that misbehave."""

    # Children
    def test_a_dead_child_says_why(self):
        """The exception and its text have its exit code, command and last lines."""
        dying = "import sys; sys.stderr.write('no license\\n'); sys.exit(7)"
        command = [sys.executable, "-c", dying]
        with pytest.raises(ConnectionClosed, match="no license") as caught:
            Client(command).connect()
        assert caught.value.exit_code == 7
        assert caught.value.command == command
        assert caught.value.stderr == "no license"
        assert "exit code 7" in str(caught.value)
        with pytest.raises(ConnectionClosed, match="cannot start"):
            Client(["/no/such/program"]).connect()

    @pytest.mark.parametrize("kind", ["True", "None", "a function", "one that raises"])
    def test_what_a_child_says(self, tmp_path, capsys, kind):
        """Its lines go behind its name to stderr, or to a function; none commands the
        terminal, and a long one is cut. The exception has the last ones in any case."""
        script = """
            write = sys.stderr.buffer.write
            write(b"\\x1b[2Jred\\r\\n\\n1%\\r100%\\n\\xff\\xe2\\x82\\xac\\n")
            write(b"y" * 5000 + b"\\nPassword: ")
        """
        command = program(tmp_path, script)
        lines = []

        def wrong(line):
            raise RuntimeError("no")

        kinds = {"True": True, "a function": lines.append, "one that raises": wrong}
        with pytest.raises(ConnectionClosed) as caught:
            Client(
                command, protocol_version="2025-11-25", stderr=kinds.get(kind)
            ).connect()
        assert caught.value.stderr.endswith("y\nPassword:")
        told = ["\\x1b[2Jred", "", "100%", "\ufffd\u20ac", "y" * 2000, "Password:"]
        shown = capsys.readouterr().err.splitlines()
        if kind == "True":
            assert shown == [f"[program.py] {line}".rstrip() for line in told]
        else:
            assert shown == []
        if kind == "a function":
            assert [line[:2000] for line in lines] == ["\x1b[2Jred", *told[1:]]

    @pytest.mark.skipif(os.name == "nt", reason="a shell's script")
    def test_a_child_that_does_not_answer(self, tmp_path):
        """The Timeout of connect() has the command, and what the child has said."""
        script = tmp_path / "silent.sh"
        says = "echo starting >&2\necho Password: >&2\n"
        script.write_text(f"trap '' TERM\n{says}exec sleep 6000\n")
        with pytest.raises(Timeout) as caught:
            Client(["sh", script], timeout=0.5).connect()
        assert str(caught.value).startswith("initialize: no answer within 0.5 ")
        assert str(caught.value).endswith(
            f"(command: sh {script}); the end of its stderr:\nstarting\nPassword:"
        )

    def test_a_call_that_a_child_does_not_answer(self):
        """Its Timeout names the command; the server is told the reason alone."""
        told = []
        client = Client(SERVE, trace=lambda way, line: told.append(line))
        with client, pytest.raises(Timeout) as caught:
            client.call_tool("wait", timeout=0.05)
        assert f"(command: {sys.executable} ...)" in str(caught.value)
        cancelled = [line for line in told if b"notifications/cancelled" in line]
        reason = json.loads(cancelled[0])["params"]["reason"]
        assert reason == "tools/call: no answer within 0.05 seconds"

    @pytest.mark.skipif(os.name == "nt", reason="its environment has other names")
    def test_what_a_child_gets_of_the_environment(self, tmp_path, monkeypatch):
        """It gets where things are, and the language, but no secrets; more by `env`."""
        told = {"HOME": "/home/u", "LC_TIME": "C", "HTTPS_PROXY": "http://proxy:3128"}
        kept = {
            "AWS_SECRET_ACCESS_KEY": "s3cret",
            "https_proxy": "http://user:s3cret@proxy:3128",
            "XDG_FUNCTION": "() { :; }",
        }
        for name, value in {**told, **kept}.items():
            monkeypatch.setenv(name, value)
        script = "Server('e', instructions=repr(dict(os.environ))).run()"
        command = program(tmp_path, script)
        with Client(command, env={"KEY": "k"}) as client:
            seen = ast.literal_eval(client.instructions)
        assert {name: seen.get(name) for name in told} == told
        assert not set(kept) & set(seen)
        assert (seen["KEY"], seen["PATH"]) == ("k", os.environ["PATH"])
        with Client(command, env=dict(os.environ)) as client:
            assert set(kept) < set(ast.literal_eval(client.instructions))

    def test_a_child_that_dies_during_a_call(self, tmp_path, era):
        """The call ends with the reason, and listening, too. The client connects again,
        by connect() or `with`; while it is connected, connect() is refused."""
        script = """
            server = Server("dies")
            server.add_tool(lambda: os._exit(9), name="die")
            server.add_tool(lambda: "x", name="live")
            server.run()
        """
        command = program(tmp_path, script)
        client = Client(command, protocol_version=era)
        with client:
            for again in (client.connect, client.__enter__):
                events = client.listen()
                with pytest.raises(RuntimeError, match="connected already"):
                    client.connect()
                with pytest.raises(ConnectionClosed) as caught:
                    client.call("die")
                assert caught.value.exit_code == 9
                with pytest.raises(ConnectionClosed):
                    next(events)
                again()
                assert client.call("live") == "x"

    @pytest.mark.skipif(os.name == "nt", reason="there, only a living child's")
    @pytest.mark.parametrize("reach", ["within", "beyond"])
    def test_grandchildren_end_with_the_child(self, tmp_path, reach, monkeypatch):
        """close() ends what a server has started, too. It returns though one is out of
        reach: it left the process group, and holds the pipes."""
        monkeypatch.setattr(mcp_lite, "STDERR_SECONDS", 0.1)
        script = f"""
            quiet = dict.fromkeys(["stdin", "stdout", "stderr"], subprocess.DEVNULL)
            options = {{"start_new_session": True}} if {reach == "beyond"} else quiet
            sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
            child = subprocess.Popen(sleep, **options)
            Server("parent", instructions=str(child.pid)).run()
        """
        client = Client(program(tmp_path, script)).connect()
        pid = int(client.instructions)
        try:
            assert not is_gone(pid)
            client.close()
            with pytest.raises(ConnectionClosed):
                client.ping()
            if reach == "within":
                eventually(lambda: is_gone(pid), "the end of the grandchild")
            assert is_gone(pid) == (reach == "within")
        finally:
            if not is_gone(pid):
                os.kill(pid, signal.SIGKILL)

    def test_a_server_that_ends_when_probed(self, tmp_path):
        """It is started again, and not probed, unless it tells of something else."""
        script = """
            import json
            for line in sys.stdin:
                m = json.loads(line)
                if m["method"] == "server/discover":
                    sys.exit(os.environ["SAY"])
                if m["method"] == "initialize":
                    result = {"protocolVersion": "2025-11-25", "capabilities": {}}
                    answer = {"jsonrpc": "2.0", "id": m["id"], "result": result}
                    print(json.dumps(answer), flush=True)
        """
        command = program(tmp_path, script)
        for said in ("", "what is server/discover?"):
            with Client(command, env={"SAY": said}) as client:
                assert client.protocol_version == "2025-11-25"
        told = []
        client = Client(command, env={"SAY": "no database"}, stderr=told.append)
        with pytest.raises(ConnectionClosed, match="no database"):
            client.connect()
        assert told == ["no database"]

    def test_close_while_a_child_is_probed(self, tmp_path):
        """connect() ends with the reason, and the child is not started again."""
        script = """
            sys.stdin.readline()
            print("probed", file=sys.stderr, flush=True)
            sys.stdin.read()
        """
        said = queue.SimpleQueue()
        client = Client(program(tmp_path, script), stderr=said.put)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            connecting = pool.submit(client.connect)
            assert said.get(timeout=SECONDS) == "probed"
            client.close()
            with pytest.raises(ConnectionClosed, match="the client is closed"):
                connecting.result(SECONDS)
        assert said.empty()

    # What is no answer
    def test_stray_lines_are_skipped(self, caplog):
        """Noise on the server's stdout is logged; foreign and late answers are ignored."""

        def listing(message, read, write):
            write(b"Listening on port 80\n\n{\n[1]\n")
            write({"jsonrpc": "2.0", "id": 999, "result": {}})
            write({"jsonrpc": "2.0", "id": "x", "error": {"code": 1, "message": "m"}})
            return {"tools": [{"name": "a"}]}

        with talking_to(legacy_server(tools_list=listing)) as client:
            assert client.list_tools() == [{"name": "a"}]
        assert "Listening on port 80" in caplog.text

    @pytest.mark.parametrize(
        "call, answers",
        [
            (lambda c: c.call("x"), {"tools_call": {"isError": True, "content": [1]}}),
            (lambda c: c.call("x"), {"tools_call": {}}),
            (lambda c: c.read("x://y"), {"resources_read": {"contents": ["x"]}}),
            (
                lambda c: c.complete("p", "a", ""),
                {"completion_complete": {"completion": None}},
            ),
            (lambda c: c.list_tools(), {"tools_list": {"tools": [1]}}),
            (lambda c: c.list_prompts(), {"prompts_list": {}}),
            (lambda c: c.get_prompt("x"), {"prompts_get": {"messages": {}}}),
        ],
    )
    def test_lies_in_results_are_told(self, call, answers):
        """A result of the wrong shape is an InvalidResponse."""
        declared = {"resources": {}, "prompts": {}, "completions": {}}
        peer = fake_server(legacy_server(capabilities=declared, **answers))
        with peer as target, Client(target) as client, pytest.raises(InvalidResponse):
            call(client)

    def test_a_result_without_a_value(self):
        """Where structuredContent is null, the text is the value."""
        result = {**text_result("told"), "structuredContent": None}
        with talking_to(legacy_server(tools_call=result)) as client:
            assert client.call("x") == "told"

    @pytest.mark.parametrize(
        "schema, result, said",
        [
            ({"required": ["n"]}, {}, "n: required, but missing"),
            ({"type": "object"}, None, "structuredContent: expected, but missing"),
            ({"pattern": "." * 1000 + "!"}, "a" * 10**4, "too much work"),
        ],
        ids=["a member", "no value", "too much work"],
    )
    def test_structured_results_are_checked(self, schema, result, said, monkeypatch):
        """An outputSchema that is not met is an InvalidResponse, which has the result;
        not for what has failed, nor with validate=False."""
        monkeypatch.setattr(mcp_lite, "MAX_STEPS", mcp_lite.MAX_STEPS // 10)
        answers = {
            "tools_list": {"tools": [{"name": "x", "outputSchema": schema}]},
            "tools_call": {"content": [], "structuredContent": result},
        }
        if result is None:
            del answers["tools_call"]["structuredContent"]
        with talking_to(legacy_server(**answers)) as client:
            client.list_tools()
            with pytest.raises(
                InvalidResponse, match=f"x: its outputSchema.*{said}"
            ) as it:
                client.call_tool("x")
            assert it.value.data == answers["tools_call"]
            with pytest.raises(InvalidResponse, match=f"x: its outputSchema.*{said}"):
                client.start_call("x").result()
            answers["tools_call"]["isError"] = True
        with talking_to(legacy_server(**answers)) as client:
            client.list_tools()
            assert client.call_tool("x")["isError"]
        del answers["tools_call"]["isError"]
        with talking_to(legacy_server(**answers), validate=False) as client:
            assert client.call_tool("x") == answers["tools_call"]

    def test_a_list_of_tools_is_read_again(self):
        """It is when a change of the tools was told, and before a result that does not
        match its schema is refused; else once."""
        listed = []

        def listing(message, read, write):
            listed.append(message)
            needed = ["old"] if len(listed) == 1 else ["new"]
            schema = {"type": "object", "required": needed}
            return {"tools": [{"name": "x", "outputSchema": schema}]}

        def call(message, read, write):
            kind = message["params"]["arguments"].get("changed")
            if kind:
                write(notice(f"{kind}/list_changed"))
            return {"content": [], "structuredContent": {"new": 1}}

        script = legacy_server(tools_list=listing, tools_call=call)
        with talking_to(script) as client:
            client.list_tools()
            counts = []
            for arguments in ({}, {}, {"changed": "prompts"}, {"changed": "tools"}):
                assert client.call("x", arguments) == {"new": 1}
                counts.append(len(listed))
        assert counts == [2, 2, 2, 3]

    def test_pages(self):
        """Every page is read; "" and any other text are cursors; one timeout is for all."""
        cursors = ["", "\ud55c", None]
        pages = []

        def listing(message, read, write):
            pages.append(message["params"].get("cursor"))
            cursor = cursors[len(pages) - 1]
            more = {} if cursor is None else {"nextCursor": cursor}
            return {"tools": [{"name": str(len(pages))}], **more}

        with talking_to(legacy_server(tools_list=listing)) as client:
            names = [tool["name"] for tool in client.list_tools()]
        assert (names, pages) == (["1", "2", "3"], [None, "", "\ud55c"])
        script = legacy_server(tools_list={"tools": [], "nextCursor": "x"})
        with talking_to(script, timeout=0.3) as client, pytest.raises(Timeout):
            client.list_tools()

    # Agreeing on a revision
    def test_a_silent_legacy_server(self):
        """A server that ignores what it does not know gets `initialize` after a while,
        and the probe is over."""
        told = []
        answers = {"server_discover": lambda *a: None, "tools_list": {"tools": []}}
        options = {"timeout": 0.5, "trace": lambda *line: told.append(line)}
        with talking_to(legacy_server(**answers), **options) as client:
            assert client.protocol_version == "2025-11-25"
            assert client.list_tools() == []
        sent = [json.loads(line)["method"] for way, line in told if way == "-->"]
        begin = ["server/discover", "notifications/cancelled", "initialize"]
        assert sent == [*begin, "notifications/initialized", "tools/list"]

    LATER = {"supportedVersions": ["2031-01-01"]}
    REFUSAL = {"supported": ["2031-01-01"], "requested": MODERN}
    REFUSAL = {"error": {"code": -32022, "message": "no", "data": REFUSAL}}

    @pytest.mark.parametrize(
        "script, wanted, said",
        [
            (legacy_server("2030-01-01"), "auto", "2030-01-01"),
            (legacy_server("2025-03-26"), "2025-06-18", "2025-03-26"),
            (legacy_server(), MODERN, MODERN),
            (modern_server(server_discover=LATER), "auto", "2031-01-01"),
            (legacy_server(server_discover=REFUSAL), "auto", "2031-01-01"),
            (modern_server(), "2025-06-18", "2025-06-18: what"),
        ],
    )
    def test_no_version_in_common(self, script, wanted, said):
        """The error says what was wanted, and what the server speaks."""
        refused = pytest.raises(UnsupportedVersion, match=said)
        with fake_server(script) as target, refused:
            Client(target, protocol_version=wanted).connect()

    def test_a_revision_that_a_refusal_names(self):
        """A server that refuses `initialize`, and says what it speaks, is asked again."""

        def initialize(message, read, write):
            asked = message["params"]["protocolVersion"]
            if asked == "2024-11-05":
                return greeting(asked)
            data = {"supported": ["2024-11-05"], "requested": asked}
            return {"error": {"code": -32602, "message": "no", "data": data}}

        with talking_to(legacy_server(initialize=initialize)) as client:
            assert client.protocol_version == "2024-11-05"

    @pytest.mark.parametrize("method", ["ping", "roots/list", "nope"])
    def test_a_modern_client_answers_no_request(self, method):
        """ "The client MUST NOT send JSON-RPC responses": neither while the revision is
        being agreed on, nor later."""
        told = []

        def discover(message, read, write):
            for stray in (request(method, id="q"), {"jsonrpc": "2.0", "id": 7}):
                write(stray)
            return {}

        options = {"roots": [], "trace": lambda *line: told.append(line)}
        script = modern_server(server_discover=discover)
        with talking_to(script, **options) as client:
            client.ping()
            client.ping()
        sent = [json.loads(line) for way, line in told if way == "-->"]
        assert [each.get("method") for each in sent] == ["server/discover"] * 3

    def test_what_a_revision_does_not_have(self):
        """A request that this revision does not have is not sent; an unknown one is the
        server's to judge."""
        with talking_to(legacy_server()) as client:
            with pytest.raises(MethodNotFound, match="is not in 2025-11-25"):
                client.request("server/discover")
            with pytest.raises(MethodNotFound, match="what"):
                client.request("vendor/thing")

    def test_what_is_not_declared(self, era):
        """Its lists are empty, and not asked for. A server that starts without tools
        has some when the client connects again."""
        told = []
        server = Server("grows")
        options = {"trace": lambda _, line: told.append(json.loads(line).get("method"))}
        client = Client(server, protocol_version=era, **options)
        with client:
            assert client.list_tools() == client.list_prompts() == []
            assert client.list_resources() == client.list_resource_templates() == []
            assert not [method for method in told if str(method).endswith("list")]
            with pytest.raises(MethodNotFound, match="did not declare tools"):
                client.call("first")
            server.add_tool(lambda: "x", name="first")
            client.close()
            client.connect()
            assert client.call("first") == "x"

    def test_a_list_that_the_server_does_not_know(self):
        """It is empty: many servers have resources, and no list of templates."""
        listed = {"resources": [{"uri": "x://y", "name": "y"}]}
        script = legacy_server(capabilities={"resources": {}}, resources_list=listed)
        with talking_to(script, protocol_version="2025-11-25") as client:
            assert client.list_resources() == listed["resources"]
            assert client.list_resource_templates() == []

    # Calls
    def test_the_value_of_a_started_call(self, era):
        """call.value() is what client.call() gives: unwrapped, or ToolError; within a
        time of its own, and as often as it is asked for."""
        with Client(build_server(), protocol_version=era) as client:
            call = client.start_call("add", {"a": 1, "b": 2})
            assert call.value() == call.value(SECONDS) == 3
            assert client.call("add", {"a": 1}, b=2) == 3
            with pytest.raises(ToolError, match="how: required"):
                client.start_call("fail").value()
            with pytest.raises(Timeout, match="within 0.05 seconds"):
                client.start_call("wait").value(timeout=0.05)
            with pytest.raises(NotFound):
                client.start_call("nobody").value()

    @staticmethod
    def progressing_server(is_over):
        """A script: a call's progress is told until is_over()."""

        def call(message, read, write):
            token = message["params"]["_meta"]["progressToken"]
            for n in itertools.takewhile(lambda n: not is_over(), itertools.count(1)):
                write(notice("progress", {"progressToken": token, "progress": n}))
                time.sleep(0.02)
            return {"content": []}

        return legacy_server(tools_call=call)

    def test_progress_is_a_sign_of_life(self):
        """A request's timeout starts again with each notification."""
        until = []

        def is_over():
            until.append(time.monotonic() + 0.6)
            return until[-1] > until[0] + 0.6

        script = self.progressing_server(is_over)
        with talking_to(script, timeout=0.3, on_progress=print) as client:
            assert client.call_tool("x") == {"content": []}

    def test_progress_without_end_is_ended(self):
        """total_timeout ends it; progress is asked for then, too."""
        ended = threading.Event()
        script = self.progressing_server(ended.is_set)
        with talking_to(script, total_timeout=0.2) as client:
            with pytest.raises(Timeout, match="deadline"):
                client.call_tool("x")
            ended.set()

    @pytest.mark.parametrize("error", [KeyboardInterrupt, LookupError])
    def test_a_progress_callback_that_raises(self, error):
        """The call ends with that, and the server is told."""
        told = []

        def raise_it(progress, total, message):
            raise error("hush")

        def call(message, read, write):
            token = message["params"]["_meta"]["progressToken"]
            write(notice("progress", {"progressToken": token, "progress": 1}))
            told.append(read())

        with talking_to(legacy_server(tools_call=call), on_progress=raise_it) as client:
            with pytest.raises(error):
                client.call("x")
            eventually(lambda: told)
        assert told[0]["method"] == "notifications/cancelled"
        assert told[0]["params"]["reason"] == error.__name__

    def test_many_notifications_lose_no_answer(self):
        """Of a flood of progress before the answer the oldest go; the answer comes."""

        def call(message, read, write):
            token = message["params"]["_meta"]["progressToken"]
            line = (
                '{"jsonrpc": "2.0", "method": "notifications/progress", "params": '
                f'{{"progressToken": {json.dumps(token)}, "progress": %d}}}}\n'
            )
            for n in range(0, 12_000, 1000):
                write("".join(line % k for k in range(n, n + 1000)).encode())
            return {"content": [{"type": "text", "text": "done"}]}

        seen = []
        with talking_to(legacy_server(tools_call=call)) as client:
            waiting = client.start_call("x", on_progress=lambda *a: seen.append(a[0]))
            eventually(waiting.done)
            assert waiting.value() == "done"
        assert (len(seen), seen[-1]) == (10_000, 11_999)

    def test_nothing_queued_is_lost_at_the_end(self):
        """close() runs the callbacks for what came before it, and a cancelled handler's
        own functions."""
        logs = []
        started = threading.Event()
        cancelled = threading.Event()
        server = build_server()

        @server.tool
        def held(ctx: Context) -> str:
            ctx.on_cancel(cancelled.set)
            started.set()
            ctx.sleep(60)

        options = {
            "protocol_version": "2025-11-25",
            "on_log": lambda *a: logs.append(a),
        }
        with Client(server, **options) as client:
            for _ in range(20):
                client.call("logs")
            client.start_call("held")
            assert started.wait(SECONDS)
        assert len(logs) >= 20 * 7
        assert cancelled.wait(SECONDS)

    def test_a_flood_for_a_slow_callback(self):
        """Of a flood of logs that on_log cannot keep up with, the oldest go."""
        server = Server("s")
        heard = []
        go_on = threading.Event()

        @server.tool
        def flood(ctx: Context) -> None:
            for n in range(11_000):
                ctx.info(n)

        def on_log(level, data, logger):
            go_on.wait(SECONDS)
            heard.append(data)

        client = Client(server, protocol_version="2025-11-25", on_log=on_log)
        with pytest.raises(ConnectionClosed):
            client.flush_callbacks()
        with client:
            client.call("flood")
            assert not client.flush_callbacks(0.01)
            go_on.set()
            assert client.flush_callbacks(SECONDS)
            assert heard == sorted(heard)
            assert (len(heard) <= 10_001, heard[-1]) == (True, 10_999)
        with pytest.raises(ConnectionClosed):
            client.flush_callbacks()

    def test_a_callback_that_wants_to_end_its_thread(self):
        """The session's server gets an error for an answer all the same."""

        def on_elicit(params):
            sys.exit(1)

        options = {"protocol_version": "2025-11-25", "on_elicit": on_elicit}
        failure = pytest.raises(McpError, match="callback")
        with Client(build_server(), **options) as client, failure:
            client.call("form")

    # Questions
    def test_endless_questions_are_left(self):
        """A call is sent again some hundred times; then it ends with an error."""
        calls = []

        def call(message, read, write):
            calls.append(message)
            return {"resultType": "input_required", "inputRequests": {}}

        left = pytest.raises(InvalidResponse)
        with talking_to(modern_server(tools_call=call)) as client, left:
            client.call("x")
        assert 100 < len(calls) < 110

    def test_a_server_may_ask_for_patience(self, monkeypatch):
        """A result with only requestState is asked again, after a pause; one without
        any resultType is complete."""
        monkeypatch.setattr(mcp_lite, "NOT_YET_SECONDS", 0.01)

        def call(message, read, write):
            if "requestState" not in message["params"]:
                return {"resultType": "input_required", "requestState": "later"}
            return {"content": []}

        with talking_to(modern_server(tools_call=call)) as client:
            assert client.call("x") is None

    ELICIT = "elicitation/create"
    DEEP_FORM = {"properties": {"a": {"type": "object"}}}
    FLAT_FORM = {"type": "object", "properties": {"a": or_null({"type": "string"})}}

    @pytest.mark.parametrize(
        "version, options, method, params, code",
        [
            ("2025-11-25", "", "vendor/thing", {}, -32601),
            ("2025-11-25", "", "roots/list", {}, -32601),
            ("2025-11-25", "", "sampling/createMessage", {}, -32601),
            ("2025-11-25", "", ELICIT, {"mode": "url"}, -32602),
            ("2025-06-18", "on_elicit_url", ELICIT, {"mode": "url"}, -32602),
            ("2025-11-25", "on_elicit_url", ELICIT, {"mode": "url"}, -32602),
            (
                "2025-11-25",
                "on_elicit",
                ELICIT,
                {"mode": "url", "url": "x://y"},
                -32602,
            ),
            (
                "2025-11-25",
                "on_elicit",
                ELICIT,
                {"mode": "url", "url": "https://y"},
                -32601,
            ),
            ("2025-11-25", "on_elicit", ELICIT, {"mode": "x"}, -32602),
            ("2025-11-25", "on_elicit", ELICIT, {}, -32602),
            ("2025-11-25", "on_elicit", ELICIT, {"requestedSchema": DEEP_FORM}, -32602),
            ("2025-11-25", "on_elicit", ELICIT, {"requestedSchema": FLAT_FORM}, None),
        ],
    )
    def test_questions_are_checked(self, version, options, method, params, code):
        """A question that was not declared, or is no form, is refused uncalled; one in
        the words of other servers is put to the user."""
        told = []
        asked = []
        base = {"message": "m", "messages": [], "maxTokens": 1}

        def call(message, read, write):
            write(request(method, {**base, **params}, "q"))
            told.append(read())
            return {"content": []}

        script = legacy_server(version, tools_call=call)
        callbacks = dict.fromkeys(options.split(), asked.append)
        with talking_to(script, protocol_version=version, **callbacks) as client:
            client.call("x")
        assert member(told[0], "error", "code") == code
        assert bool(asked) == ("result" in told[0]) == (code is None)

    NO_ANSWERS = [5, {"content": {}}, {"action": "maybe"}]
    NO_ANSWERS += [{"action": "accept", "content": {"name": 1}}]

    @pytest.mark.parametrize("given", NO_ANSWERS)
    def test_what_a_callback_answers_is_checked(self, given, era):
        """A wrong answer is the callback's failure, and not sent."""
        options = {"protocol_version": era, "on_elicit": lambda params: given}
        failure = pytest.raises(McpError, match="callback")
        with Client(build_server(), **options) as client, failure:
            client.call("form")

    def test_roots(self):
        """Paths, URIs of files or dicts are roots; other URIs are refused at once. A
        function's roots are asked for each time."""
        given = ["file:///b", {"uri": "file:///c/d", "name": "n"}]
        told = [{"uri": "file:///b"}, {"uri": "file:///c/d", "name": "n"}]
        server = build_server()
        with Client(server, protocol_version="2025-11-25", roots=given) as client:
            assert client.call("where") == told
        with Client(
            server, protocol_version="2025-11-25", roots=lambda: given[:1]
        ) as client:
            assert client.call("where") == told[:1]
            del given[0]
            client.notify("notifications/roots/list_changed")
            assert client.call("where") == told[1:]

    # Listening
    def test_a_resource_that_is_not_there(self, era):
        """The server tells of no such resource, and the client says so."""
        server = Server("s")
        server.add_resource("x://note", lambda: "note")
        with Client(server, protocol_version=era) as client:
            with pytest.raises(NotFound, match="x://nota"):
                client.subscribe("x://nota")
            with pytest.raises(NotFound, match="x://nota"):
                client.listen(uris=["x://note", "x://nota"])
            client.listen(prompts=True, uris=["x://note"]).close()

    @pytest.mark.parametrize("how", ["early", "result", "cancel", "refuse"])
    def test_a_server_may_end_a_subscription(self, how):
        """It may by a result, by a cancellation, before its acknowledgement or after;
        and it may refuse one."""

        def listen(message, read, write):
            if how == "refuse":
                return {"error": {"code": -32600, "message": "full"}}
            meta = {META_SUBSCRIPTION: message["id"]}
            tag = {"notifications": {}, "_meta": meta}
            if how != "early":
                write(notice("subscriptions/acknowledged", tag))
                write(notice("tools/list_changed", tag))
            if how != "cancel":
                return {}
            write(notice("cancelled", {"requestId": message["id"]}))
            return None

        told = []
        script = modern_server(subscriptions_listen=listen)
        hear = {"on_notification": lambda *each: told.append(each)}
        with talking_to(script, **hear) as client:
            if how == "refuse":
                with pytest.raises(InvalidRequest, match="full"):
                    client.listen()
            else:
                heard = [event["method"] for event in client.listen()]
                changed = ["notifications/tools/list_changed"]
                assert heard == ([] if how == "early" else changed)
                client.ping()
                assert client.flush_callbacks()
                assert told.count((changed[0], {"notifications": {}})) == len(heard)

    def test_updates_for_a_callback_do_not_pile_up(self, era, caplog):
        """However many there are, on_notification hears each one, and none is kept."""
        server = Server("s")
        server.add_resource("x://note", lambda: "note")
        heard = []

        def hear(method, params):
            heard.append(params["uri"])

        with Client(server, protocol_version=era, on_notification=hear) as client:
            client.subscribe("x://note")
            for n in range(11):
                for _ in range(1_000):
                    server.resource_updated("x://note")
                eventually(lambda n=n: len(heard) == (n + 1) * 1_000)
        assert not caplog.records

    # Targets and options
    def test_what_a_target_may_be(self, tmp_path, monkeypatch):
        """A target may have numbers among its arguments, and ~ for the home folder; a
        script is found from here, wherever it is to run."""
        home = tmp_path / "home"
        folder = tmp_path / "folder"
        home.mkdir()
        folder.mkdir()
        monkeypatch.setenv("HOME", str(home))
        monkeypatch.setenv("USERPROFILE", str(home))
        monkeypatch.chdir(home)
        told = "repr([os.getcwd(), os.environ.get('N')] + sys.argv[1:])"
        program(home, f"Server('s', instructions={told}).run()")
        here, there = map(os.path.realpath, (str(home), str(folder)))
        entry = {"command": sys.executable, "args": ["~/program.py", 1, 2.5, "~x"]}
        run = {**entry, "cwd": str(folder), "env": {"N": "7"}, "type": "stdio"}
        line = "program.py --flag \"a b\" '' \\#"
        last = "\\#" if os.name == "nt" else "#"
        rows = [
            (line, {}, [here, None, "--flag", "a b", "", last]),
            ("~/program.py", {"env": {"N": "5"}}, [here, "5"]),
            ("program.py x", {"cwd": folder}, [there, None, "x"]),
            (home / "program.py", {}, [here, None]),
            (["program.py", 5], {}, [here, None, "5"]),
            (run, {}, [there, "7", "1", "2.5", "~x"]),
            (run, {"cwd": home, "env": {"N": "8"}}, [here, "8", "1", "2.5", "~x"]),
            ({"command": "program.py", "env": None}, {}, [here, None]),
        ]

        def ask(target, options, told):
            with Client(target, **options) as client:
                assert ast.literal_eval(client.instructions) == told, (target, options)

        at_once(ask, rows)

    @pytest.mark.skipif(os.name != "nt", reason="only Windows has batch files")
    def test_a_batch_file_is_a_server(self, tmp_path):
        """It is found by its name without the end, as npx is, in the PATH that it gets;
        its arguments come as they were, and it ends with what it has started."""
        words = ["a b", "x&y|z", "50% %PATH%", 'q"t', "back\\", "^!", "", "(1)"]
        script = 'Server("s", instructions=repr(sys.argv[1:])).run()'
        command = program(tmp_path, script)
        line = " ".join(f'"{word}"' for word in command)
        (tmp_path / "tool.cmd").write_text(f"@echo off\n{line} %*\n")
        target = {"command": "tool", "args": words, "env": {"Path": str(tmp_path)}}
        with Client(target) as client:
            assert client.instructions == repr(words)
        line = 'tool --root C:\\x "a b"'
        with Client(line, env={"PATH": str(tmp_path)}) as client:
            assert client.instructions == repr(["--root", "C:\\x", "a b"])

    @pytest.mark.parametrize(
        "target, options, said",
        [
            (None, {}, "expected a URL, a command, a script, a dict"),
            (Server, {}, "expected a URL, a command, a script, a dict"),
            (" ", {}, "expected a URL, a script or a command, got nothing"),
            ([], {}, "expected a URL, a script or a command, got nothing"),
            ({"command": ""}, {}, "expected a URL, a script or a command, got nothing"),
            ('x "s3cret', {}, "No closing quotation"),
            ({"cmd": "s3cret"}, {}, "a dict with a url or a command"),
            ({"url": None}, {}, "a dict with a url or a command"),
            (
                "x.py",
                {"protocol_version": "2025"},
                "protocol_version: expected auto or one of 2024-11-05",
            ),
            ("x.py", {"roots": "/tmp"}, 'roots: expected a list, got "/tmp"'),
            ("x.py", {"roots": ["https://x/y"]}, "roots"),
            ("x.py", {"roots": [{"uri": "x"}]}, "roots"),
        ],
    )
    def test_wrong_targets_and_options(self, target, options, said):
        """Each is refused when the client is made, by a text that shows no secret."""
        with pytest.raises((TypeError, ValueError)) as caught:
            Client(target, **options)
        assert said in str(caught.value)
        assert "s3cret" not in "".join(traceback_of(caught.value))

    def test_no_failure_shows_a_secret(self, tmp_path, caplog, capfd):
        """Neither texts, reprs and tracebacks of exceptions nor logs, stderr and the
        trace: of headers, variables, options of commands, URLs and what logs in."""
        script = tmp_path / "dies.py"
        script.write_text("import sys; sys.exit('no license')")
        silent = tmp_path / "silent.py"
        silent.write_text("import time; time.sleep(600)")
        secrets = {"Authorization": "Bearer s3cret", "X-Key": "s3cret"}
        env = {"KEY": "s3cret"}
        options = ["--api-key", "s3cret", "--token=s3cret", "-H", "X-Key: s3cret"]
        told = []

        def fail(target, more):
            trace = {"trace": lambda *line: told.append(line)}
            with pytest.raises(Exception) as caught:  # noqa: PT011
                client = Client(target, **trace, **more)
                told.append(repr(client))
                client.connect()
            told.extend([caught.value, repr(caught.value)])
            told.extend(traceback_of(caught.value))

        def refuse(seen, sock):
            # As some do that want to help.
            words = json.dumps(seen["headers"]).encode()
            return 401, {"WWW-Authenticate": "Bearer"}, words

        with web_server(refuse) as (url, _), socket.create_server(
            ("127.0.0.1", 0)
        ) as silent_site, contextlib.ExitStack() as stack:
            secret_url = url + "?key=s3cret"
            nobody = f"http://127.0.0.1:{silent_site.getsockname()[1]}/"
            file = stack.enter_context(open(str(tmp_path / "binary"), "wb"))
            program = {"command": str(script), "args": options, "env": env}
            rows = [
                (program, {}),
                ({**program, "command": str(silent)}, {"timeout": 0.3}),
                ({**program, "command": "/no/such/program"}, {}),
                (f"{script} --key s3cret https://u:s3cret@x/?s3cret", {"env": env}),
                (secret_url, {"headers": secrets}),
                (secret_url, {"headers": secrets, "auth": lambda challenge: None}),
                (url, {"headers": lambda: {"Authorization": "s3cret\n"}}),
                (url, {"headers": lambda: ["s3cret"]}),
                (
                    {"url": secret_url, "headers": secrets},
                    {"protocol_version": "2025-11-25"},
                ),
                (nobody + "?s3cret", {"headers": secrets, "timeout": 0.3}),
                (url, {"headers": secrets, "stderr": file}),
            ]
            at_once(fail, rows)
        for auth in (
            {"client_secret": "s3cret", "client_id": "x", "issuer": "https://x"},
            {"redirect_uri": "http://u:s3cret@x/?s3cret"},
            {"issuer": "https://u:s3cret@x/?s3cret"},
            {"client_metadata_url": "https://u:s3cret@x/?s3cret"},
        ):
            try:
                told.append(repr(OAuth(**auth)))
            except (TypeError, ValueError) as error:
                told += [error, *traceback_of(error)]
        told += [caplog.text, *capfd.readouterr()]
        shown = [str(each) for each in told if "s3cret" in str(each)]
        assert shown == []


def events_of(response):
    """The events that are left."""
    return list(iter(lambda: next_event(response), None))


def next_message(response):
    """The next message in a stream."""
    events = iter(lambda: next_event(response), None)
    return next(event["message"] for event in events if event["message"])


CANCELLED = notice("cancelled", modern(requestId=5))
ICON = {"icons": [{"src": "data:image/png;base64," + "A" * 60_000}]}
# An answer that nobody asked for; no modern client sends one.
STRAY = {"jsonrpc": "2.0", "id": 5, "result": {}}
LISTS = request("tools/list", modern())
TOOLS = modern(notifications={"toolsListChanged": True})
LISTEN = request("subscriptions/listen", TOOLS, 9)


class TestHttpServer:
    """The HTTP endpoint and its server, as raw HTTP sees them."""

    def test_one_url_serves_every_revision(self, web):
        """Modern requests, sessions of each revision and HTTP+SSE live together."""
        sessions = [Web(web).open(version) for version in LEGACY]
        assert len({session.session for session in sessions}) == 4
        assert all(re.fullmatch("[!-~]{32,}", session.session) for session in sessions)
        with web.stream(path="/sse") as old:
            endpoint = next_event(old)
            assert endpoint["event"] == "endpoint"
            assert web.send("POST", request("ping"), path=endpoint["data"])[0] == 202
            assert next_message(old) == {"jsonrpc": "2.0", "id": 1, "result": {}}
            for session in sessions:
                added = session.post(call_legacy("add", a=1))[2]["result"]
                assert text_of(added) == "2"
            status, headers, body = web.post(call_tool("add", a=1))
            assert (status, body["result"]["structuredContent"]) == (200, {"result": 2})
            assert "Mcp-Session-Id" not in headers

    def test_json_at_once_else_events(self, web):
        """An answer alone is JSON. With notifications before, it ends a stream."""
        meta = {"progressToken": 5}
        status, headers, body = web.post(call_tool("greet", name="Bo", meta=meta))
        assert (status, headers["Content-Type"]) == (200, "application/json")
        assert body["id"] == 1
        for conversation, call in ((web, call_tool), (Web(web).open(), call_legacy)):
            count = call("count", to=2, meta=meta)
            with conversation.stream("POST", count) as response:
                assert response.getheader("X-Accel-Buffering") == "no"
                assert "no-cache" in response.getheader("Cache-Control")
                events = events_of(response)
            messages = [event["message"] for event in events if event["message"]]
            told = [member(each, "params", "progress") for each in messages]
            assert told == [1, 2, None]
            assert messages[-1]["id"] == 1 and "counted" in str(messages[-1]["result"])
            assert all("id" not in event for event in events) == (conversation is web)

    @pytest.mark.parametrize(
        "method, message, headers, status",
        [
            ("POST", request("ping"), {"Content_Type": "text/plain"}, 415),
            ("POST", request("ping"), {"Content_Type": None}, 415),
            ("POST", request("ping"), {}, 400),
            ("GET", None, {}, 400),
            ("POST", request("ping"), {"Mcp_Session_Id": "x"}, 404),
            ("GET", None, {"Mcp_Session_Id": "x"}, 404),
            ("DELETE", None, {"Mcp_Session_Id": "x"}, 404),
            ("PUT", b"", {}, 405),
            ("POST", request("tools/list", modern()), {"Accept": None}, 200),
            ("POST", CANCELLED, {}, 202),
            ("POST", request("initialize", {"x": "x" * 140_000}), {}, 413),
            ("POST", request("initialize", {"x": [0] * 2_000}), {}, 413),
            ("POST", request("initialize", {**ICON, **opening(LEGACY[-1])}), {}, 200),
            ("POST", STRAY, {"MCP_Protocol_Version": MODERN}, 400),
            ("POST", LISTS, {"Content_Type": "Application/JSON; charset=utf-8"}, 200),
        ],
    )
    def test_statuses(self, web, method, message, headers, status):
        """A wrong request gets its status, and an error that explains."""
        found, sent, body = web.send(method, message, **headers)
        assert found == status
        if status >= 400:
            assert body["error"]["message"] and body["error"]["code"] < 0
        if status == 202:
            assert body == b""
        if status == 405:
            assert sorted(sent["Allow"].split(", ")) == ["DELETE", "GET", "POST"]
        assert web.post(call_tool("add", a=1))[0] == 200

    def test_modern_errors(self, web):
        """Each modern error has its code, its status and the request's id."""
        unknown = request("tools/list", modern(_meta={META_VERSION: "2099-01-01"}), 7)
        for message, status, code in (
            (request("no/such", modern(), 7), 404, -32601),
            (request("initialize", modern(), 7), 404, -32601),
            (unknown, 400, -32022),
            (call_tool("form", 7), 400, -32021),
            (call_tool("no", 7), 200, -32602),
        ):
            found, _, body = web.post(message)
            assert (found, body["error"]["code"], body["id"]) == (status, code, 7)
        assert MODERN in web.post(unknown)[2]["error"]["data"]["supported"]

    def test_paths(self, server):
        """The endpoint has one path, with or without a slash at its end; by default it is
        for this machine alone."""
        with server.start_http(path="/a/b") as http:
            assert http.socket.getsockname() == ("127.0.0.1", http.port)
            assert http.url == f"http://127.0.0.1:{http.port}/a/b"
            paths = ["/a/b", "/a/b/", "/a/b?x=1", "/a", "/a/b/c", "/mcp", "/messages"]
            call = call_tool("add", a=1)
            statuses = [Web(http).send("POST", call, path=path)[0] for path in paths]
            assert statuses == [200] * 3 + [404] * 4

    # Headers that mirror the body
    @pytest.mark.parametrize(
        "headers",
        [
            {"MCP_Protocol_Version": None},
            {"MCP_Protocol_Version": "2025-11-25"},
            {"Mcp_Method": None},
            {"Mcp_Name": None},
            {"Mcp_Name": "greet2"},
            {"Mcp_Name": "=?base64?%%?="},
            {"Mcp_Param_Region": None},
            {"Mcp_Param_Region": "oslo"},
            {"Mcp_Param_N": "43"},
            {"Mcp_Param_Deep": "false"},
            {"Mcp_Param_Absent": "x"},
        ],
    )
    def test_mirrored_headers_are_compared(self, server, headers):
        """A header that is missing, or contradicts the body, is a HeaderMismatch."""

        def mirrored(kind, header):
            return {"type": kind, "x-mcp-header": header}

        deep = {"type": "object", "properties": {"deep": mirrored("boolean", "Deep")}}
        properties = {
            "region": mirrored("string", "Region"),
            "n": mirrored("integer", "N"),
            "o": deep,
            "absent": mirrored("string", "Absent"),
        }
        schema = {"type": "object", "properties": properties}
        server.add_tool(lambda region, n, o: "here", name="place", input_schema=schema)
        right = {
            "Mcp_Name": "=?base64?cGxhY2U=?=",
            "Mcp_Param_Region": "Oslo",
            "Mcp_Param_N": "42.0",
            "Mcp_Param_Deep": "true",
            "Mcp_Param_Other": "x",
        }
        message = call_tool("place", region="Oslo", n=42, o={"deep": True})
        with server.start_http() as http:
            web = Web(http)
            status, _, body = web.post(message, **right)
            assert (status, text_of(body["result"])) == (200, "here")
            status, _, body = web.post(message, **{**right, **headers})
            assert (status, body["error"]["code"], body["id"]) == (400, -32020, 1)
            session = Web(http).open()
            legacy = call_legacy("place", region="Oslo", n=42, o={"deep": True})
            assert session.post(legacy)[0] == 200
            if None not in headers.values() and "MCP_Protocol_Version" not in headers:
                status, _, body = session.post(legacy, **headers)
                assert (status, body["error"]["code"], body["id"]) == (400, -32001, 1)

    @pytest.mark.parametrize(
        "method, name, params",
        [
            ("tools/call", "greet", {"name": "greet", "arguments": {"name": "Bo"}}),
            ("prompts/get", "review", {"name": "review", "arguments": {"code": "x"}}),
            ("resources/read", "x://note", {"uri": "x://note"}),
        ],
    )
    def test_each_name_is_mirrored(self, web, method, name, params):
        """Mcp-Name is the name, or the URI, of what is asked for."""
        call = request(method, modern(**params))
        assert "result" in web.post(call)[2]
        for other in (None, "other", name.upper(), name + "/"):
            status, _, body = web.post(call, Mcp_Name=other)
            assert (status, body["error"]["code"]) == (400, -32020)
        session = Web(web).open("2025-06-18")
        status, _, body = session.post(request(method, params), Mcp_Name="x")
        assert (status, body["error"]["code"]) == (400, -32001)

    # Sessions
    def test_a_failed_handshake_opens_no_session(self, web):
        """A refused initialize has no session's id, whatever it is refused for."""
        hello = opening("2025-11-25")
        for params, headers in (({}, {}), (hello, {"Mcp_Method": "tools/list"})):
            _, sent, body = web.post(request("initialize", params), **headers)
            assert "error" in body and "Mcp-Session-Id" not in sent

    @pytest.mark.parametrize("version", LEGACY)
    def test_a_wrong_version_is_refused(self, web, version):
        """Another revision than the session's is 400, with any message; and nothing of
        it is done."""
        session = Web(web).open(version)
        note = notice("roots/list_changed")
        for wrong in {*LEGACY, "1999-01-01"} - {version}:
            for message in (request("ping"), note, {**note, "id": 1, "result": {}}):
                assert session.post(message, MCP_Protocol_Version=wrong)[0] == 400
            for method in ("GET", "DELETE"):
                assert session.send(method, MCP_Protocol_Version=wrong)[0] == 400
        for known in (version, None):
            assert session.post(note, MCP_Protocol_Version=known)[0] == 202
            assert session.post(request("ping"), MCP_Protocol_Version=known)[0] == 200

    def test_a_version_that_nobody_speaks(self, web):
        """It is refused by name, with those that are spoken, in any message."""
        note = notice("x")
        told = modern(_meta={META_VERSION: "2099-01-01"})
        unknown = {"MCP_Protocol_Version": "2099-01-01"}
        for message, headers, code in (
            (request("tools/list", told), {}, -32022),
            (request("tools/list"), unknown, -32022),
            (note, unknown, -32022),
            ({**note, "params": told}, {"MCP_Protocol_Version": MODERN}, -32020),
            ({**note, "params": modern()}, {"Mcp_Method": "x"}, -32020),
        ):
            status, _, body = web.post(message, **headers)
            assert (status, body["error"]["code"]) == (400, code)
            assert ("id" in body) == ("id" in message)
            if code == -32022:
                assert body["error"]["data"]["supported"] == [MODERN]

    @pytest.mark.parametrize("version", ["2025-03-26", "2025-11-25", "stateless"])
    def test_what_is_refused_without_an_answer(self, server, version):
        """ "If the server cannot accept the input, it MUST return an HTTP error status
        code"; its error has no id."""
        with server.start_http(stateless=version == "stateless") as http:
            web = Web(http)
            if version != "stateless":
                web.open(version)
            for message in (
                b'{"jsonrpc": "2.0", "method": "notifications/x", "params": []}',
                b'{"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "add"}}',
                notice("message"),
                {"jsonrpc": "2.0", "id": None, "method": "ping"},
                {"jsonrpc": "2.0", "id": 1.5, "result": {}},
                b"5",
            ):
                status, _, body = web.post(message)
                assert (status, "id" in body) == (400, False)
                assert body["error"]["code"] == -32600 and body["error"]["message"]

    @pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])
    def test_a_late_answer_is_taken(self, web, version):
        """So is one that comes twice; an answer that is none ends its question."""
        session = web.open(version, {"elicitation": {}})
        declined = {"result": {"action": "decline"}}
        for answer, told in ((declined, "decline"), ({"result": []}, "a valid answer")):
            with session.stream("POST", call_legacy("form")) as response:
                asked = next_message(response)
                message = {"jsonrpc": "2.0", "id": asked["id"], **answer}
                assert session.post(message)[0] == 202
                late = {**message, **declined}
                assert [session.post(late)[0] for _ in range(2)] == [202] * 2
                assert told in str(next_message(response))

    def test_errors_have_the_id_of_what_they_answer(self, web):
        """A request that could be read has an answer with its id; nothing else has."""
        session = Web(web).open()
        lost = {"Mcp_Session_Id": None}
        for message, headers, status, known in (
            (request("ping", id=7), lost, 400, 7),
            (request("ping", id="seven"), {"Mcp_Method": "x"}, 400, "seven"),
            ({"jsonrpc": "1.0", "id": 7, "method": "ping"}, {}, 200, 7),
            (request("ping", id=7), {"Content_Type": "text/plain"}, 415, None),
            ({"jsonrpc": "2.0", "id": [7], "method": "ping"}, {}, 400, None),
        ):
            found, _, body = session.post(message, **headers)
            assert (found, body.get("id"), "error" in body) == (status, known, True)

    def test_sessions_are_capped(self, web, monkeypatch):
        """Of 1,000 sessions (here 100), which need no thread each, the one that was used
        longest ago makes room for one more; one that listens is in use."""
        assert mcp_lite.MAX_SESSIONS == 1_000
        monkeypatch.setattr(mcp_lite, "MAX_SESSIONS", 100)
        first, second, third = (Web(web).open() for _ in range(3))
        threads = threading.active_count()
        body = json.dumps(request("initialize", opening("2025-11-25"))).encode()
        conn = http.client.HTTPConnection("127.0.0.1", web.port, timeout=SECONDS)
        with second.stream() as response, contextlib.closing(conn):
            for number in range(98):
                if number == 90:
                    assert first.post(request("ping"))[0] == 200
                conn.request("POST", "/mcp", body, {"Content-Type": "application/json"})
                opened = conn.getresponse()
                assert opened.getheader("Mcp-Session-Id") and opened.read()
            assert threading.active_count() - threads < 10
            assert third.post(request("ping"))[0] == 404
            assert first.post(request("ping"))[0] == 200
            assert second.post(request("ping"))[0] == 200
            assert not response.closed

    def test_an_idle_session_is_closed(self, server):
        """When the next one is opened; one that listens is in use."""
        with server.start_http() as http:
            http.endpoint.legacy.session_seconds = -1.0
            listening = Web(http).open()
            with listening.stream() as response:
                assert next_event(response)
                idle = Web(http).open()

                def is_closed():
                    # The thread that has answered it may be about to let go of it.
                    Web(http).open()
                    return idle.post(request("ping"))[0] == 404

                eventually(is_closed)
                assert listening.post(request("ping"))[0] == 200

    def test_comments_keep_a_silent_stream_open(self, server):
        """No proxy takes it for dead."""
        with server.start_http() as http:
            http.endpoint.comment_seconds = 0.01
            for stream in (
                Web(http).open().stream(),
                Web(http).stream("POST", LISTEN),
                Web(http).stream(path="/sse"),
            ):
                with stream as response:
                    events = [next_event(response) for _ in range(4)]
                assert events.count({"": "", "message": None}) >= 3

    def test_batches_of_2025_03_26(self, web):
        """A batch is answered with an array, in JSON or in events; notifications alone
        with 202. No other revision has them."""
        session = Web(web).open("2025-03-26")
        ping = request("ping", id=2)
        status, _, body = session.post([request("ping"), ping])
        assert (status, sorted(each["id"] for each in body)) == (200, [1, 2])
        note = notice("roots/list_changed")
        assert session.post([note, note])[::2] == (202, b"")
        count = call_legacy("count", 1, to=1)
        status, _, body = session.post([cancelled(1), count, ping])
        assert (status, [each["id"] for each in body]) == (200, [2])
        assert session.post([cancelled(1), count])[::2] == (202, b"")
        count = call_legacy("count", to=1, meta={"progressToken": 1})
        with session.stream("POST", [count, ping]) as response:
            first, last = (json.loads(event["data"]) for event in events_of(response))
        assert first["method"] == "notifications/progress"
        assert sorted(each["id"] for each in last) == [1, 2]
        wrong = {"2025-03-26": [], "2025-06-18": [ping], "2025-11-25": [ping]}
        for version, batch in wrong.items():
            status, _, body = Web(web).open(version).post(batch)
            assert (status, body["error"]["code"]) == (400, -32600)

    def test_missed_events_come_exactly_once(self, web):
        """A stream is primed with an id. A client that comes back after any event gets
        what followed, and no more."""
        session = Web(web).open()
        call = call_legacy("count", to=4, meta={"progressToken": 1})
        with session.stream("POST", call) as response:
            events = events_of(response)
        assert (events[0]["data"], len(events)) == ("", 6)
        assert len({event["id"] for event in events}) == 6
        for at, event in enumerate(events[:-1]):
            with session.stream(Last_Event_ID=event["id"]) as response:
                again = [each for each in events_of(response) if each["message"]]
            assert again == events[at + 1 :]

    def test_a_hang_up_cancels_in_the_modern_era_alone(self, server):
        """A legacy handler goes on, and its client may come back."""
        gate = threading.Event()
        ended = []

        @server.tool
        def work(ctx: Context) -> str:
            ctx.on_cancel(lambda: ended.append("cancelled"))
            ctx.progress(1)
            while not gate.is_set():
                ctx.sleep(0.02)
            ctx.progress(2)
            ended.append("done")
            return "worked"

        meta = {"progressToken": 1}
        with server.start_http() as http:
            with Web(http).stream("POST", call_tool("work", meta=meta)) as response:
                next_message(response)
            eventually(lambda: ended == ["cancelled"])
            session = Web(http).open()
            with session.stream("POST", call_legacy("work", meta=meta)) as response:
                seen = [next_event(response), next_event(response)]
            assert [event["message"] is None for event in seen] == [True, False]
            gate.set()
            with session.stream(Last_Event_ID=seen[1]["id"]) as response:
                events = events_of(response)
            told, answer = (event["message"] for event in events if event["message"])
            assert told["params"]["progress"] == 2 and "worked" in str(answer["result"])
            assert ended == ["cancelled", "done"]

    def test_a_cancellation_as_soon_as_there_is_a_request(self, web, monkeypatch):
        """The POST that brought the request ends, without an answer."""
        session = Web(web).open()
        prepare = mcp_lite.Session.prepare

        def cancel_first(self, exchange, event):
            if isinstance(event, mcp_lite.Request) and event.method == CALL:
                assert session.post(cancelled(1))[0] == 202
            prepare(self, exchange, event)

        monkeypatch.setattr(mcp_lite.Session, "prepare", cancel_first)
        with session.stream("POST", call_legacy("wait", 1)) as response:
            events = events_of(response)
        assert [event["message"] for event in events if event["message"]] == []

    def test_polling(self, server):
        """ctx.close_stream() ends the response with a retry. The answer waits for the
        client to come back."""
        gate = threading.Event()

        @server.tool
        def poll(ctx: Context) -> str:
            ctx.close_stream(retry_ms=70)
            return "waited" if gate.wait(SECONDS) else "late"

        with server.start_http() as http:
            session = Web(http).open()
            with session.stream("POST", call_legacy("poll")) as response:
                # Its thread stays in the tool.
                primer, retry = events_of(response)
            assert (retry["retry"], primer["message"]) == ("70", None)
            gate.set()
            with session.stream(Last_Event_ID=primer["id"]) as response:
                assert "waited" in str(next_message(response)["result"])
            assert "waited" in str(Web(http).post(call_tool("poll"))[2]["result"])

    def test_what_is_kept_is_bounded(self, web):
        """A client that comes back finds the last 1,000 events that it was sent."""
        session = Web(web).open()
        call = call_legacy("count", to=1_000, meta={"progressToken": 1})
        with session.stream("POST", call) as response:
            first, *rest = events_of(response)
        with session.stream(Last_Event_ID=first["id"]) as response:
            again = [event for event in events_of(response) if event["message"]]
        assert (len(rest), again) == (1_001, rest[-1_000:])

    def test_what_is_kept_is_bounded_for_all_sessions(self, server):
        """Of streams that are over, the latest can be come back to, until what was sent
        there is too much."""

        @server.tool
        def draw(ctx: Context) -> str:
            ctx.info("begun")
            return "x" * (9 << 20)

        with server.start_http() as http:
            streams = []
            for session in [Web(http).open() for _ in range(5)]:
                with session.stream("POST", call_legacy("draw")) as response:
                    streams.append((session, events_of(response)[0]["id"]))
            for (session, primer), status in zip(streams, [405, 405, 200, 200, 200]):
                assert session.send("GET", Last_Event_ID=primer)[0] == status

    @pytest.mark.parametrize("version", LEGACY[1:])
    def test_a_stream_that_is_over_is_no_lost_session(self, web, version):
        """A client that comes back in vain gets 405: 404 would end its session."""
        session = Web(web).open(version)
        call = call_legacy("count", to=1, meta={"progressToken": 1})
        with session.stream("POST", call) as response:
            last = [event["id"] for event in events_of(response) if "id" in event][-1]
        for last_id in (last, "rubbish", "99-0", "-", "0", "\u00b2-1"):
            status, headers, body = session.send("GET", Last_Event_ID=last_id)
            assert (status, headers["Allow"]) == (405, "POST, GET, DELETE")
            assert "Last-Event-ID" in body["error"]["message"]
        assert session.post(request("ping"))[0] == 200

    def test_each_message_on_one_stream(self, server, web):
        """With two GET streams a change is told on the later one, which ends the other;
        a request's progress on none of them."""
        session = web.open()
        call = call_legacy("count", to=1, meta={"progressToken": 1})
        with session.stream() as one, session.stream() as two:
            next_event(two)
            with session.stream("POST", call) as response:
                events_of(response)
            server.add_tool(lambda: "x", name="extra", description="x")
            assert next_message(two)["method"] == "notifications/tools/list_changed"
            session.send("DELETE")
            for response in (one, two):
                assert not [event for event in events_of(response) if event["message"]]

    def test_what_nobody_heard_waits(self, server, web):
        """A change that happens while no GET stream is open is told to the next one."""
        session = web.open()
        server.add_tool(lambda: "x", name="extra", description="x")
        with session.stream() as response:
            told = next_message(response)
        assert told["method"] == "notifications/tools/list_changed"

    def test_stateless(self, server):
        """Every request stands alone, in both eras; GET and DELETE are 405."""
        with server.start_http(stateless=True) as http:
            web = Web(http)
            hello = request("initialize", opening("2025-06-18"))
            status, headers, body = web.post(hello)
            assert (status, body["result"]["protocolVersion"]) == (200, "2025-06-18")
            assert "Mcp-Session-Id" not in headers
            assert web.post(notice("initialized"))[0] == 202
            for version in (None, "2025-06-18", "2025-11-25"):
                found = web.post(call_legacy("add", a=1), MCP_Protocol_Version=version)
                assert (found[0], text_of(found[2]["result"])) == (200, "2")
            assert web.post(call_tool("add", a=1))[0] == 200
            for method in ("GET", "DELETE"):
                status, headers, _ = web.send(method)
                assert (status, headers["Allow"]) == (405, "POST")
            assert web.send("GET", path="/sse")[0] == 404

    @pytest.mark.parametrize("version", LEGACY)
    def test_without_sessions_no_change_is_promised(self, server, version):
        """To a legacy client that no stream could tell of it; a modern one has its own.
        In WSGI it is the same."""
        hello = request("initialize", opening(version))
        subscribe = request("resources/subscribe", {"uri": "x://note"})
        wsgi = TestWsgi().serve(server.wsgi)
        with server.start_http(stateless=True) as http, wsgi as (_, wsgi_web):
            for web in (Web(http), wsgi_web):
                declared = web.post(hello)[2]["result"]["capabilities"]
                assert declared["tools"] == declared["resources"] == {}
                refused = web.post(subscribe, MCP_Protocol_Version=version)[2]
                assert refused["error"]["code"] == -32601
                found = web.post(request("server/discover", modern()))[2]["result"]
                assert found["capabilities"]["tools"] == {"listChanged": True}
        # One message, one answer: not even a log comes with it.
        found = server.handle(request("server/discover", modern()))["result"]
        assert found["capabilities"]["resources"] == {}
        # Where there are sessions, all is promised.
        with server.start_http() as http:
            opened = Web(http).post(hello)[2]["result"]
            assert opened["capabilities"]["resources"]["subscribe"] is True

    def test_the_old_transport(self, web):
        """GET tells where to POST; all messages come on that stream; a client that
        leaves has ended the session. A session of one transport is none of the other."""
        session = Web(web).open()
        with web.stream(path="/sse") as response:
            where = next_event(response)["data"]

            def post(message, path=where, **headers):
                return web.send("POST", message, path=path, **headers)[0]

            ask = request("server/discover", modern())
            assert post(ask, MCP_Protocol_Version=MODERN) == 202
            assert MODERN in next_message(response)["result"]["supportedVersions"]
            assert post(request("initialize", opening("2024-11-05"))) == 202
            assert next_message(response)["result"]["protocolVersion"] == "2024-11-05"
            call = call_legacy("add", 5, a=1)
            assert post(call, Mcp_Name="add") == 202
            assert next_message(response)["id"] == 5
            assert post(request("no/such", id=6)) == 202
            assert next_message(response)["error"]["code"] == -32601
            for wrong, headers in ((call, {"Mcp_Name": "greet"}), (b"{", {})):
                assert post(wrong, **headers) == 400
            for query in ("", "?session_id=0", f"?session_id={session.session}"):
                assert post(call, "/messages" + query) == 404
            named = {"Mcp_Session_Id": where.partition("=")[2]}
            for method in ("GET", "DELETE"):
                assert web.send(method, **named)[0] == 404
        eventually(lambda: post(request("ping")) == 404, "the end of the session")

    def test_a_body_of_a_get_hides_no_hang_up(self, web):
        """A client that ends its side behind it is seen to have left."""
        lines = ["GET {} HTTP/1.1", "Host: localhost", "Content-Length: 2"]
        session = Web(web).open()
        lines.append(f"Mcp-Session-Id: {session.session}")
        data = "\r\n".join([*lines, "", "{{}}"])
        for path in ("/sse", "/mcp"):
            with socket.create_connection(("127.0.0.1", web.port), SECONDS) as sock:
                sock.sendall(data.format(path).encode())
                assert sock.recv(100).startswith(b"HTTP/1.1 200 ")
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(65536):
                    pass

    # Whoever may come
    @pytest.mark.parametrize(
        "headers, status",
        [
            ({"Host": "evil.example"}, 403),
            ({"Host": "localhost.evil.example"}, 403),
            ({"Host": "LOCALHOST:80"}, 200),
            ({"Host": "[::1]:80"}, 200),
            ({"Host": "api.example:8443"}, 200),
            ({"Origin": "null"}, 403),
            ({"Origin": "http://localhost:3000"}, 200),
            ({"Origin": "http://localhost.evil.example"}, 403),
            ({"Origin": "evil://localhost@evil.example"}, 403),
            ({"Origin": "https://app.example"}, 200),
            ({"Origin": "http://app.example"}, 403),
            ({"Origin": "https://app.example:444"}, 403),
            # An image whose address is ours has no Origin.
            ({"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors"}, 403),
            ({"Sec_Fetch_Site": "same-origin"}, 200),
            ({"Sec_Fetch_Site": "cross-site", "Origin": "https://app.example"}, 200),
        ],
    )
    def test_hosts_and_origins(self, server, headers, status):
        """Only this machine's names, and those that are allowed: a page elsewhere cannot
        reach any route of the server."""
        app = "https://app.example"
        # As users write them: with a port, with a slash.
        names = {"allowed_hosts": ["api.example:8443"], "allowed_origins": [f"{app}/"]}
        with server.start_http(**names) as http:
            web = Web(http)
            found, sent, body = web.post(call_tool("add", a=1), **headers)
            assert (found, "error" in body) == (status, status == 403)
            expected = app if headers.get("Origin") == app else None
            assert sent["Access-Control-Allow-Origin"] == expected
            for method, path in (("GET", "/sse"), ("GET", "/mcp"), ("OPTIONS", "/mcp")):
                if status == 403:
                    assert web.send(method, path=path, **headers)[0] == 403

    def test_browsers_are_told(self, server):
        """A page gets an answer to its preflight if its origin is allowed."""
        app = "https://app.example"
        asks = {"Access_Control_Request_Method": "POST"}
        with server.start_http(allowed_origins=[app]) as http:
            status, headers, _ = Web(http).send("OPTIONS", Origin=app, **asks)
            assert (status, headers["Vary"]) == (200, "Origin")
            assert "POST" in headers["Access-Control-Allow-Methods"]
            assert headers["Access-Control-Allow-Origin"] == app
            # A browser asks, for a page of this host, but of another port.
            other = "http://localhost:5173"
            status, headers, _ = Web(http).send("OPTIONS", Origin=other, **asks)
            assert (status, headers["Access-Control-Allow-Origin"]) == (405, None)

    @pytest.mark.parametrize(
        "data",
        [
            b"rubbish\r\n\r\n",
            b"POST /mcp HTTP/2.0\r\n\r\n",
            b"POST /m cp HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"POST localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"POST /mcp HTTP/1.1\nHost: localhost\n\n",
            b"POST /mcp HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            *(
                head_of(request("ping"), *lines, length=False)
                for lines in (
                    ["Host: localhost"],
                    ["X : y"],
                    ["X: y", " folded"],
                    ["X: a\rb"],
                    ["Content-Length: -1"],
                    ["Content-Length: 5", "Content-Length: 5"],
                    ["Content-Length: 40", "Transfer-Encoding: chunked"],
                    ["Transfer-Encoding: gzip"],
                    ["Origin: http://localhost", "Origin: http://localhost"],
                    ["Transfer-Encoding:\x0bchunked"],
                )
            ),
            *(
                b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Type: application/json\r\n"
                b"Transfer-Encoding: chunked\r\n\r\n" + chunks
                for chunks in (
                    b"2\r\n{}{}\r\n0\r\n\r\n",
                    b"2\n{}\n0\n\n",
                    b"2\r\n{}\r\n0\r\nX: y\r\n\r\n",
                    b"2\r\n{}\r\n0\r\nGET /mcp HTTP/1.1\r\n\r\n",
                )
            ),
        ],
    )
    def test_broken_requests(self, web, data):
        """A request that could be read in two ways is refused, its connection is
        closed, and the server lives on."""
        found = raw_http(web.port, data)
        head, _, body = found.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 ") and found.count(b"HTTP/1.1 ") == 1
        assert b"connection: close" in head.lower()
        assert json.loads(body)["error"]["message"]
        assert web.post(call_tool("add", a=1))[0] == 200

    def test_lists_may_come_in_several_lines(self, web):
        """As proxies and tracers send them; only what decides may come but once."""
        lines = ["tracestate: a=1", "Tracestate: b=2", "Cache-Control: x"]
        lines += ["Cache-Control: y", "Accept-Encoding: a", "Accept-Encoding: b"]
        found = raw_http(web.port, head_of(LISTS, *lines), b'"tools"')
        assert found.startswith(b"HTTP/1.1 200 "), found
        for line in ("Authorization: Bearer x", "Mcp-Name: x", "Content-Type: x/y"):
            data = head_of(LISTS, line, line)
            assert raw_http(web.port, data).startswith(b"HTTP/1.1 400 ")

    def test_names_in_headers_are_ascii(self, web):
        """Raw bytes beyond ASCII are refused, even if the body says the same."""
        message = call_tool("gr\u00fc\u00df")
        data = head_of(message, "Mcp-Name: \u00e4").replace(b"\xc3\xa4", b"gr\xfc\xdf")
        found = raw_http(web.port, data, b"-32020")
        assert found.startswith(b"HTTP/1.1 400 ") and b"-32020" in found

    def test_any_host(self, server):
        """allowed_hosts="*" stands for ["*"]."""
        with server.start_http(allowed_hosts="*") as http:
            found = Web(http).post(call_tool("add", a=1), Host="any.example")
            assert found[0] == 200

    def test_routes(self, server):
        """A program may serve more by GET: for who may call, or for all."""
        card = {"Access-Control-Allow-Origin": "*", "X-Line": "a\r\nb"}

        def mine(request):
            return 200, {}, f"{request.path} {request.query} {request.auth['sub']}"

        options = {
            "routes": {"/mine": mine, "/broken": lambda request: 1 / 0},
            "public_routes": {"/card": lambda request: (200, card, b"card")},
            "verify": {"good": {"sub": "ada"}},
        }
        with server.start_http(**options) as http:
            web = Web(http)
            login = {"Authorization": "Bearer good"}
            assert web.send("GET", path="/mine?a=1")[0] == 401
            found = web.send("GET", path="/mine?a=1", **login)
            assert found[::2] == (200, b"/mine a=1 ada")
            assert web.send("GET", path="/mine", **login, Host="evil.example")[0] == 403
            page = {"Host": "evil.example", "Origin": "https://a.example"}
            status, headers, body = web.send("GET", path="/card", **page)
            assert (status, body, headers["X-Line"]) == (200, b"card", r"a\r\nb")
            assert headers["Access-Control-Allow-Origin"] == "*"
            assert web.send("HEAD", path="/card")[::2] == (200, b"")
            assert web.send("POST", b"", path="/card")[0] == 405
            assert web.send("GET", path="/broken", **login)[0] == 500
        app = server.wsgi_app(public_routes=options["public_routes"])
        environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/card"}
        assert app(environ, lambda *answer: None) == [b"card"]

    @contextlib.contextmanager
    def hanging_bodies(self, http, count, *lines):
        """So many requests whose large bodies do not come."""
        lines = lines or (f"Content-Length: {4 << 20}",)
        head = head_of(request("ping"), *lines, length=False)
        head = head[: head.index(b"\r\n\r\n") + 4]
        with contextlib.ExitStack() as stack:
            place = ("127.0.0.1", http.port)
            socks = []
            for _ in range(count):
                sock = stack.enter_context(socket.create_connection(place, SECONDS))
                sock.sendall(head)
                socks.append(sock)
            yield socks

    def test_large_bodies_have_a_budget(self, server, caplog):
        """So many bytes may have arrived; beyond that 503, told once in the log. Small
        messages and `health` are answered all the same."""
        body = request("ping", {**modern(), "x": "x" * 100_000})
        with server.start_http(health="/health") as http:
            web = Web(http)
            with self.hanging_bodies(http, 70) as socks:
                # Heads alone refuse nobody.
                assert web.post(body)[0] != 503
                refused = []

                def send(sock):
                    with contextlib.suppress(OSError):
                        sock.sendall(b" " * ((4 << 20) - 1))

                senders = [started(send, sock) for sock in socks]

                eventually(
                    lambda: (
                        refused.extend(select.select(socks, [], [], 0)[0]) or refused
                    )
                )
                answer = refused[0].recv(1000)
                assert answer.startswith(b"HTTP/1.1 503 "), answer
                assert b"\r\nRetry-After: 1\r\n" in answer
                assert web.post(call_tool("add", a=1))[0] == 200
                assert web.send("GET", path="/health")[0] == 200
            for each in senders:
                each.join(SECONDS)
            eventually(lambda: web.post(body)[0] != 503, "room again")
        assert caplog.text.count("too many large messages") in (1, 2)

    def test_a_body_in_chunks_counts_as_it_comes(self, server):
        """What it may still become holds up nobody."""
        body = request("ping", {**modern(), "x": "x" * 100_000})
        chunked = "Transfer-Encoding: chunked"
        with server.start_http() as http, self.hanging_bodies(http, 70, chunked):
            assert Web(http).post(body)[0] != 503

    def test_a_subscription_keeps_nothing_of_its_message(self, server, monkeypatch):
        """Some that came with much are open side by side, beyond the budget of all."""
        monkeypatch.setattr(mcp_lite, "MAX_LOAD", mcp_lite.MAX_LOAD // 10)
        junk = modern(notifications={"toolsListChanged": True}, x=[0] * 100_000)
        with server.start_http() as http, contextlib.ExitStack() as stack:
            for _ in range(4):
                listen = request("subscriptions/listen", junk)
                response = stack.enter_context(Web(http).stream("POST", listen))
                acknowledged = next_message(response)["method"]
                assert acknowledged == "notifications/subscriptions/acknowledged"

    def test_a_flood_of_large_answers(self, monkeypatch):
        """Answers are delivered, however many wait for their clients; until then, new
        large requests are refused."""
        monkeypatch.setattr(mcp_lite, "MAX_LOAD", mcp_lite.MAX_LOAD // 8)
        server = Server("large")
        ready = threading.Barrier(8)
        size = 8 << 20

        @server.tool
        def large() -> str:
            ready.wait(SECONDS)
            return "x" * size

        with server.start_http() as http, contextlib.ExitStack() as stack:
            socks = []
            for _ in range(8):
                place = ("127.0.0.1", http.port)
                sock = stack.enter_context(socket.create_connection(place, SECONDS))
                sock.sendall(head_of(call_tool("large"), "Mcp-Name: large"))
                socks.append(sock)
            for sock in socks:
                assert sock.recv(13) == b"HTTP/1.1 200 "
            body = request("ping", {**modern(), "x": "x" * 100_000})
            assert Web(http).post(body)[0] == 503
            for sock in socks:
                left = size
                while left > 0:
                    left -= len(sock.recv(1 << 20))
            eventually(lambda: Web(http).post(body)[0] != 503, "room again")

    def test_health_beyond_max_connections(self, server):
        """It is told to whoever asks; anything else is refused."""
        with server.start_http(max_connections=1, health="/health") as http:
            place = ("127.0.0.1", http.port)
            with socket.create_connection(place, SECONDS):
                eventually(lambda: Web(http).send("GET", path="/mcp")[0] == 503)
                assert Web(http).send("GET", path="/health")[0] == 200

    def test_close_needs_no_thread(self, server, monkeypatch):
        """A system without another thread to give hinders no end."""

        def no_thread(thread):
            raise RuntimeError("can't start new thread")

        http = server.start_http()
        with Web(http).open().stream() as response:
            assert next_event(response)
            with monkeypatch.context() as patch:
                patch.setattr("threading.Thread.start", no_thread)
                http.close()
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", http.port), SECONDS)

    def test_a_program_whose_port_is_taken(self):
        """It ends with one line."""
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            code = f"import mcp_lite; mcp_lite.Server('x').run('http', port={port})"
            _, told = run(sys.executable, "-c", code, code=1)
        assert told.startswith("x: ") and told.count("\n") == 1

    def test_a_long_head(self, web):
        """It is refused at 64 KiB."""
        for start in (b"GET /", b"GET / HTTP/1.1\r\nX: "):
            found = raw_http(web.port, start + b"x" * 70_000 + b"\r\n\r\n")
            assert found.startswith(b"HTTP/1.1 431 ")

    def test_bodies(self, server):
        """Chunks in any pieces are one body; extensions are ignored; the cap holds."""
        greet = call_tool("greet", name="Bo")
        body = json.dumps(greet).encode()
        head = head_of(greet, "Mcp-Name: greet", "{}", length=False)
        head = head[: head.index(b"\r\n\r\n") + 4]
        chunked = head.replace(b"{}", b"Transfer-Encoding: chunked")
        full = b" " * (1000 - len(body)) + body
        exact = head.replace(b"{}", b"Content-Length: 1000") + full
        right = [exact]
        for size in (1, 7, 1000):
            pieces = [body[at : at + size] for at in range(0, len(body), size)]
            chunks = [b"%X;a=b\r\n%b\r\n" % (len(piece), piece) for piece in pieces]
            right.append(chunked + b"".join([*chunks, b"0\r\n\r\n"]))
        with server.start_http(max_body=1000) as http:
            for data in right:
                assert b"hello Bo" in raw_http(http.port, data, b"hello Bo")
            for long in (
                head.replace(b"{}", b"Content-Length: 1001") + b" " + full,
                head.replace(b"{}", b"Content-Length: 999999999999"),
                chunked + b"3e9\r\n" + full,
                chunked + b"1f4\r\n" + b" " * 500 + b"\r\n1f5\r\n",
                chunked + b"ffffffff\r\n",
            ):
                assert raw_http(http.port, long).startswith(b"HTTP/1.1 413 ")

    @pytest.mark.parametrize(
        "lines, status",
        [
            (["Host: evil.example"], 403),
            (["Host: localhost", "Origin: https://evil.example"], 403),
            (["Host: localhost", "Authorization: Bearer y"], 401),
        ],
        ids=["host", "origin", "token"],
    )
    @pytest.mark.parametrize("length", ["Content-Length: 4000000", "Expect: x"])
    def test_a_head_is_judged_before_its_body(self, server, lines, status, length):
        """A wrong head is refused while nothing of the body has come, and the rest of
        it is no request."""
        head = ["POST /mcp HTTP/1.1", "Content-Type: application/json", *lines, length]
        if length.startswith("Expect"):
            head.append("Transfer-Encoding: chunked")
        with server.start_http(verify={"x": {"sub": "ada"}}.get) as http:
            found = raw_http(http.port, "\r\n".join([*head, "", ""]).encode())
        assert found.startswith(b"HTTP/1.1 %d " % status)
        assert b"100 Continue" not in found and b"\r\nConnection: close" in found

    def test_the_answer_reaches_who_still_sends(self, server):
        """A long body that nobody wants is let run dry, so that no reset overtakes."""
        body = b" " * 4_000_000
        head = head_of(request("ping"), "Content-Length: 4000000", length=False)
        head = head[: head.index(b"\r\n\r\n") + 4]
        with server.start_http() as http, socket.create_connection(
            ("127.0.0.1", http.port), SECONDS
        ) as sock:
            sock.sendall(head.replace(b"localhost", b"evil.example") + body)
            assert sock.recv(1000).startswith(b"HTTP/1.1 403 ")

    def test_connections_are_kept_alive(self, web):
        """Requests sent at once are answered in turn, until the client has enough."""
        names = [b"hello B%d" % n for n in range(3)]
        calls = [call_tool("greet", name=f"B{n}") for n in range(3)]
        calls = [head_of(call, "Mcp-Name: greet") for call in calls]
        last = head_of(request("no", modern()), "Connection: x, Close")
        found = raw_http(web.port, b"".join([*calls, last, *calls]))
        assert re.findall(rb"200 OK|404 Not", found) == [b"200 OK"] * 3 + [b"404 Not"]
        assert list(dict.fromkeys(re.findall(rb"hello B\d", found))) == names
        assert found.lower().count(b"connection: close") == 1

    def test_old_clients(self, web):
        """HTTP/1.0 gets no chunks: the end of the connection ends a stream."""
        count = call_tool("count", to=2, meta={"progressToken": 1})
        data = head_of(count, "Mcp-Name: count").replace(b"HTTP/1.1", b"HTTP/1.0", 1)
        head, _, body = raw_http(web.port, data).partition(b"\r\n\r\n")
        assert b"chunked" not in head
        assert body.startswith(b"event: message\ndata: {") and b"counted" in body

    def test_expect_is_answered(self, web):
        """Before the body is read."""
        lines = ["Mcp-Name: greet", "Expect: 100-continue"]
        data = head_of(call_tool("greet", name="Bo"), *lines)
        found = raw_http(web.port, data, b"hello Bo")
        assert found.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")

    @pytest.mark.parametrize("start", [b"POST /mcp HTT", b"Transfer-Encoding: chunked"])
    def test_a_drip_is_cut_off(self, server, start):
        """The deadline is for the whole request: a byte now and then helps nobody."""
        data = head_of(request("ping"), "Transfer-Encoding: chunked", length=False)
        data = data.split(start)[0] + start
        if start.endswith(b"chunked"):
            data += b"\r\n\r\nffff\r\n"
        with server.start_http() as http:
            http.request_seconds = 0.2
            place = ("127.0.0.1", http.port)
            ended = contextlib.suppress(ConnectionError)
            with socket.create_connection(place, SECONDS) as sock, ended:
                sock.sendall(data)
                sock.settimeout(0.02)
                found = None
                while found != b"":
                    with contextlib.suppress(socket.timeout):
                        sock.sendall(b"1")
                        found = sock.recv(65536)
            assert Web(http).post(call_tool("add", a=1))[0] == 200

    @pytest.mark.parametrize("size", [1, 8_000_000])
    def test_an_idle_client_is_cut_off(self, server, size):
        """It sends no further request, or takes nothing of what is written."""
        data = head_of(call_tool("echo", value="x" * size), "Mcp-Name: echo")
        with server.start_http() as http:
            http.idle_seconds = 0.2
            with socket.create_connection(("127.0.0.1", http.port), SECONDS) as sock:
                sock.sendall(data)
                eventually(lambda: http.connections)
                eventually(lambda: not http.connections, "the end of the connection")

    def test_connections_are_capped(self, server):
        """Beyond max_connections a request gets 503 with Retry-After, and further ones
        are closed; a client that goes makes room."""
        with server.start_http(max_connections=2) as http:
            with contextlib.ExitStack() as rest:

                def connect(count):
                    for _ in range(count):
                        place = ("127.0.0.1", http.port)
                        rest.enter_context(socket.create_connection(place, SECONDS))

                connect(2)
                eventually(lambda: len(http.connections) == 2)
                found = raw_http(http.port, head_of(request("ping")))
                assert found.startswith(b"HTTP/1.1 503 ")
                assert b"\r\nRetry-After: 1\r\n" in found
                connect(40)
                assert raw_http(http.port, b"") == b""
            eventually(lambda: not http.connections)
            assert Web(http).post(call_tool("add", a=1))[0] == 200

    # Who may call
    def test_a_handler_sees_the_headers(self, server):
        """ctx.headers is what the HTTP request said, by lower-case names, a copy: in
        each era, in a batch, over HTTP+SSE; elsewhere there are none."""

        @server.tool
        def tenant(ctx: Context) -> str:
            told = ctx.headers.get("x-tenant", "nobody")
            ctx.headers["x-tenant"] = "another"
            return told

        with server.start_http() as http:
            sse = http.url.replace("/mcp", "/sse")
            for target, version, told in (
                (server, "auto", "nobody"),
                (http.url, MODERN, "ann"),
                (http.url, "2025-11-25", "ann"),
                (sse, "2024-11-05", "ann"),
            ):
                options = {"protocol_version": version, "headers": {"X-Tenant": "ann"}}
                with Client(target, **options) as client:
                    assert client.call("tenant") == client.call("tenant") == told
            batch = [call_legacy("tenant", id) for id in (1, 2)]
            session = Web(http).open("2025-03-26")
            answers = session.post(batch, X_Tenant="bob")[2]
        assert [text_of(each["result"]) for each in answers] == ["bob", "bob"]

    def test_tokens(self, server):
        """verify= decides: 401 and 403 challenge as the RFCs say, its claims are
        ctx.auth, a copy; it may be a dict of tokens and claims."""

        def verify(token):
            if token == "weak":
                raise PermissionError('files:write" b\\, c="d\r\nX: y')
            return {"sub": token} if token in ("ann", "bob") else None

        @server.tool
        def who(ctx: Context) -> str:
            name = ctx.auth["sub"]
            ctx.auth["sub"] = "root"
            return name

        metadata = {
            "resource": "https://api.example/outside/mcp",
            "authorization_servers": ["https://auth.example"],
            "scopes_supported": ["read", 'wr"ite'],
        }
        place = "/.well-known/oauth-protected-resource"
        where = f'resource_metadata="https://api.example{place}/outside/mcp"'
        wrong = f'Bearer error="invalid_token", {where}, scope="read wr ite"'
        scope = "files:write b , c= d X: y"
        weak = f'Bearer error="insufficient_scope", {where}, scope="{scope}"'
        none = f'Bearer {where}, scope="read wr ite"'
        with server.start_http(verify=verify, resource_metadata=metadata) as http:
            web = Web(http)
            for given in (None, "Bearer", "Basic ann", b"Bearer \xc3\xa9"):
                found = web.post(call_tool("who"), Authorization=given)
                assert (found[0], found[1]["WWW-Authenticate"]) == (401, none)
            for token, *expected in (("eve", 401, wrong), ("weak", 403, weak)):
                found = web.post(call_tool("who"), Authorization="Bearer " + token)
                assert [found[0], found[1]["WWW-Authenticate"]] == expected
            for given in ("Bearer ann", "bearer bob", "Bearer ann"):
                body = web.post(call_tool("who"), Authorization=given)[2]
                assert text_of(body["result"]) == given[7:]
            for method in ("GET", "DELETE"):
                assert web.send(method)[0] == 401
            # For anybody, at the root, and at the path inside and outside.
            for path in (place, place + "/mcp", place + "/outside/mcp"):
                assert web.send("GET", path=path)[::2] == (200, metadata)
            assert web.send("GET", path=place + "/other")[0] == 404
        with server.start_http(verify={"t-ada": {"sub": "ada"}}) as http:
            for token, status in (("t-ada", 200), ("t-ad", 401), ("T-ADA", 401)):
                web = Web(http, Authorization=f"Bearer {token}")
                assert web.post(call_tool("who"))[0] == status

    @pytest.mark.parametrize("claims", [None, False, True, 1, "ann", {}, ["sub"]])
    def test_only_claims_let_in(self, server, claims):
        """Only a dict with claims is a yes, and no token is not asked about."""
        asked = []

        def verify(token):
            asked.append(token)
            return claims

        with server.start_http(verify=verify) as http:
            for given in ("Bearer x", "Bearer", "Bearer   ", "x", None):
                message = call_tool("add", a=1)
                assert Web(http).post(message, Authorization=given)[0] == 401
        assert asked == ["x"]

    @pytest.mark.parametrize(
        "error",
        [
            ConnectionRefusedError("10.0.0.7 refused"),
            PermissionError(13, "Permission denied", "/etc/tokens"),
            ZeroDivisionError("/etc"),
        ],
    )
    def test_a_broken_verify_lets_nobody_in(self, server, caplog, error):
        """An exception of verify is 500; its text goes to the log alone."""

        def verify(token):
            raise error

        log = caplog.at_level("ERROR", "mcp_lite")
        with log, server.start_http(verify=verify) as http:
            found = Web(http, Authorization="Bearer x").post(call_tool("add", a=1))
        assert found[0] == 500
        assert "refused" not in str(found) and "/etc" not in str(found)
        assert type(error).__name__ in caplog.text

    def test_others_cannot_use_what_is_mine(self, server):
        """Sessions and requestState belong to the principal that got them, also with a
        renewed token, and with claims that are no JSON."""
        ann = {"groups": {"a", "b"}, "since": datetime.date(2026, 1, 1), "exp": 1}
        claims = {"a1": ann, "a2": {**ann, "exp": 2}, "b": {"sub": "bob"}}
        bob = {"Authorization": "Bearer b"}
        with server.start_http(verify=claims) as http:
            session = Web(http, Authorization="Bearer a1").open()
            ping = request("ping")
            assert session.post(ping, **bob)[0] == 404
            for method in ("GET", "DELETE"):
                assert session.send(method, **bob)[0] == 404
            assert session.post(ping, Authorization="Bearer a2")[0] == 200
            asking = call_tool("form", capabilities={"elicitation": {}})
            state = Web(http, Authorization="Bearer a1").post(asking)[2]["result"]
            (key,) = state["inputRequests"]
            answer = {"action": "accept", "content": {"name": "x"}}
            asking["params"]["requestState"] = state["requestState"]
            asking["params"]["inputResponses"] = {key: answer}
            assert Web(http, **bob).post(asking)[2]["error"]["code"] == -32602
            renewed = Web(http, Authorization="Bearer a2").post(asking)[2]
            assert "error" not in renewed

    def test_tls(self, server, certificate):
        """With ssl_context= the same goes over TLS. Plain HTTP gets nothing, and ends
        nothing."""
        theirs, ours = certificate
        with server.start_http(ssl_context=theirs) as http:
            assert http.url == f"https://127.0.0.1:{http.port}/mcp"
            greet = head_of(call_tool("greet", name="Bo"), "Mcp-Name: greet")
            assert b"200 OK" not in raw_http(http.port, greet)
            for version in ("2025-11-25", MODERN):
                with Client(
                    http.url, protocol_version=version, ssl_context=ours
                ) as client:
                    assert client.call("greet", name="Bo") == "hello Bo"
                    count = client.start_call("count", {"to": 1}, on_progress=print)
                    assert count.result()

    def test_a_handshake_holds_up_nobody(self, server, certificate):
        """A client that connects, and does not say more, is cut off in the end."""
        theirs, ours = certificate
        with server.start_http(ssl_context=theirs) as http:
            place = ("127.0.0.1", http.port)
            client = Client(http.url, ssl_context=ours)
            with socket.create_connection(place, SECONDS), client:
                assert client.call("greet", name="Bo") == "hello Bo"
            http.idle_seconds = 0.1
            ended = contextlib.suppress(ConnectionError)
            with socket.create_connection(place, SECONDS) as silent, ended:
                assert silent.recv(1) == b""

    def test_the_end_of_tls_is_a_hang_up(self, server, certificate):
        """A client that takes leave as TLS says cancels its modern request, too."""
        theirs, ours = certificate
        ended = threading.Event()

        @server.tool
        def work(ctx: Context) -> None:
            ctx.on_cancel(ended.set)
            ctx.progress(1)
            ctx.sleep(SECONDS)

        with server.start_http(ssl_context=theirs) as site:
            plain = socket.create_connection(("127.0.0.1", site.port), SECONDS)
            with ours.wrap_socket(plain, server_hostname="localhost") as sock:
                call = call_tool("work", meta={"progressToken": 1})
                sock.sendall(head_of(call, "Mcp-Name: work"))
                assert sock.recv(1)
                # The other end has not said its end: it is not waited for.
                sock.settimeout(0.01)
                with contextlib.suppress(OSError):
                    sock.unwrap()
                shut(sock)
            assert ended.wait(SECONDS)

    def test_a_client_that_takes_nothing_holds_up_nobody(self, server, monkeypatch):
        """Not when it has said its end, nor when the server closes."""
        monkeypatch.setattr(mcp_lite, "TIDY_SECONDS", 0.1)

        @server.tool
        def flood(ctx: Context) -> None:
            ctx.progress(1, message="x" * (16 << 20))

        http = server.start_http()
        message = call_tool("flood", meta={"progressToken": 1})
        # The head of the answer has come, so its writer is stuck in the rest.
        conn, response = Web(http).connect("POST", message)
        with contextlib.closing(conn), response:
            conn.sock.shutdown(socket.SHUT_WR)
            for _ in range(3):
                with Client(http.url) as client:
                    assert client.call("greet", name="Bo") == "hello Bo"
            conn, response = Web(http).connect("POST", message)
            http.idle_seconds = 10 * SECONDS
            with contextlib.closing(conn), response:
                closer = started(http.close, 0.1)
                closer.join(SECONDS)
                assert not closer.is_alive()

    # The end
    def test_close_frees_the_port(self, server):
        """Again and again, with clients that listen, or have sent half a request."""
        port = 0
        for _ in range(3):
            http = server.start_http(port=port)
            port = http.port
            place = ("127.0.0.1", port)
            with contextlib.ExitStack() as stack:
                half = stack.enter_context(socket.create_connection(place, SECONDS))
                half.sendall(b"POST /mcp HTTP/1.1\r\nHost:")
                stack.enter_context(Web(http).open().stream())
                next_message(stack.enter_context(Web(http).stream("POST", LISTEN)))
                http.close()
                http.close()
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(place, SECONDS)

    def test_close_from_a_handler(self, server):
        """It returns: it does not wait for itself."""
        for version in ("2025-11-25", MODERN):
            http = server.start_http()
            closed = threading.Event()

            @server.tool
            def close(http=http, closed=closed) -> str:
                http.close()
                closed.set()

            with contextlib.closing(http), Client(
                http.url, protocol_version=version
            ) as client:
                client.start_call("close", {})
                assert closed.wait(SECONDS)
            server.remove_tool("close")

    def test_close_cancels_what_takes_too_long(self, server, monkeypatch):
        """It does so behind its grace, in both eras. A handler that hears nothing is
        left behind, but its client is not: its response ends."""
        monkeypatch.setattr(mcp_lite, "TIDY_SECONDS", 0.3)
        release = threading.Event()
        begun = threading.Semaphore(0)
        cancelled = threading.Semaphore(0)

        @server.tool
        def endless(ctx: Context) -> str:
            ctx.on_cancel(cancelled.release)
            begun.release()
            ctx.sleep(600)

        @server.tool
        def deaf() -> str:
            begun.release()
            return str(release.wait(SECONDS))

        def post(web, call):
            with contextlib.suppress(OSError, http.client.HTTPException):
                web.post(call)

        site = server.start_http()
        session = Web(site).open()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            callers = []
            for id, name in enumerate(("endless", "deaf")):
                callers.append(pool.submit(post, Web(site), call_tool(name)))
                callers.append(pool.submit(post, session, call_legacy(name, id)))
            assert all(begun.acquire(timeout=SECONDS) for _ in callers)
            site.close(0.1)
            try:
                assert all(cancelled.acquire(timeout=SECONDS) for _ in range(2))
                for caller in callers:
                    caller.result(SECONDS)
            finally:
                release.set()

    def test_wrong_options_are_told_at_once(self, server):
        """By start_http and wsgi_app, before anything listens; no token is quoted."""
        for serve in (server.start_http, server.wsgi_app):
            with pytest.raises(ValueError, match="^allowed_hosts: expected a list"):
                serve(allowed_hosts="vm")
            with pytest.raises(ValueError) as caught:
                serve(verify="secret")
            assert "cret" not in str(caught.value)
        with pytest.raises(ValueError, match="^path: /sse is where HTTP"):
            server.start_http(path="sse/")

    def test_a_port_that_is_taken(self, server):
        """The error says which, of which host."""
        with server.start_http() as http, pytest.raises(OSError) as caught:
            server.start_http(port=http.port)
        assert caught.value.errno == errno.EADDRINUSE
        assert f"('127.0.0.1', {http.port})" in str(caught.value)

    # Health
    @pytest.mark.parametrize("path", ["/health", "/"])
    def test_health(self, server, path):
        """Any client gets a 200, without a body, whatever its Host or token."""
        verify = {"good": {"sub": "ada"}}
        with server.start_http(health=path, verify=verify) as http:
            for method in ("GET", "HEAD"):
                for headers in ({}, {"Host": "evil.example"}, {"Authorization": "x"}):
                    found = Web(http).send(method, path=path, **headers)
                    assert (found[::2]) == (200, b"")
            call = call_tool("add", a=1)
            status, sent, _ = Web(http).send("POST", call, path=path)
            assert (status, sent["Allow"]) == (405, "GET, HEAD")
            assert Web(http, Authorization="Bearer good").post(call)[0] == 200

    # Traces
    def test_what_a_trace_is_told(self):
        """Each message, and of HTTP itself the requests and statuses."""
        told = []
        server = Server("traced", trace=lambda *line: told.append(line))
        call = request("server/discover", modern())
        with server.start_http() as http:
            assert Web(http).send("GET", path="/none")[0] == 404
            assert Web(http).send("POST", call, path="/mcp?key=s3cret")[0] == 200
        assert [line for line in told if b"{" not in line[1]] == [
            ("-->", b"GET /none"),
            ("<--", b"HTTP 404 application/json"),
            ("-->", b"POST /mcp"),
            ("<--", b"HTTP 200 application/json"),
        ]
        assert ("-->", json.dumps(call).encode()) in told
        assert "s3cret" not in str(told)

    # The access log
    @contextlib.contextmanager
    def access_log(self, server, caplog, **options):
        """A server, and a function that gives the lines of its log, without their
        times, when there are so many: each is written behind its answer."""

        def read(count):
            eventually(lambda: len(caplog.records) >= count, str(caplog.records))
            lines = [each.getMessage() for each in caplog.records]
            return sorted(re.sub(r" \d+\.\d ", " ", line) for line in lines)

        log = caplog.at_level("INFO", "mcp_lite.http")
        with log, server.start_http(**options) as http:
            caplog.clear()
            yield http, read

    def test_the_access_log(self, server, caplog):
        """A line for each request: peer, method, path, status, time, what it called, and
        the caller; no query, no token and no argument. Refusals are warnings, with the
        reason if it is in the head; nothing of a body, or of what is no head, is told."""
        log = self.access_log(server, caplog, verify={"s3cret": {"sub": "ada"}})
        with log as (http, read):
            web = Web(http, Authorization="Bearer s3cret")
            web.send("POST", call_tool("greet", name="s3cret"), path="/mcp?key=s3cret")
            web.post(request("resources/read", modern(uri="x://note?key=s3cret#s")))
            web.post(call_tool("no such", a="s3cret"))
            session = Web(http, Authorization="Bearer s3cret").open("2025-03-26")
            session.post([request("ping"), request("ping", id=2)])
            session.send("DELETE")
            assert read(7) == [
                "127.0.0.1 DELETE /mcp 200 - - ada",
                "127.0.0.1 POST /mcp 200 - - ada",
                "127.0.0.1 POST /mcp 200 initialize - ada",
                "127.0.0.1 POST /mcp 200 resources/read x://note ada",
                "127.0.0.1 POST /mcp 200 tools/call greet ada",
                "127.0.0.1 POST /mcp 200 tools/call no?such ada",
                "127.0.0.1 POST /mcp 202 notifications/initialized - ada",
            ]
            caplog.clear()
            web.send("GET", path="/wp-login.php?x=s3cret", Host="evil.example")
            web.post(call_tool("greet"), Authorization="Bearer s3cret-not")
            web.post(b'{"s3cret')
            web.post(call_tool("greet", name="s3cret"), Mcp_Name="other")
            raw_http(http.port, b"POST /mcp HTTP/1.1\r\nAuthorization s3cret\r\n\r\n")
            host = 'host "evil.example" is not allowed; see allowed_hosts'
            no_head = "this is not the head of a request of HTTP/1.1"
            assert read(5) == [
                f"127.0.0.1 - - 400 - - -: {no_head}",
                f"127.0.0.1 GET /wp-login.php 403 - - -: {host}",
                "127.0.0.1 POST /mcp 400 - - ada",
                "127.0.0.1 POST /mcp 400 tools/call greet ada",
                "127.0.0.1 POST /mcp 401 - - -: invalid_token",
            ]
        assert {each.levelname for each in caplog.records} == {"WARNING"}

    def test_a_line_of_the_access_log_is_one(self, server, caplog):
        """Nothing that a peer says passes for other columns, or another line."""
        environ = {"REQUEST_METHOD": "GET", "HTTP_HOST": "localhost"}
        with caplog.at_level("INFO", "mcp_lite.http"):
            for more in (
                {"REMOTE_ADDR": "1.2.3.4\n5.6.7.8 GET"},
                {"PATH_INFO": "/a\r\nb\x1b[31m c?x=s3cret"},
                {"HTTP_HOST": "a\nb"},
            ):
                server.wsgi({**environ, **more}, lambda *_: None)
        lines = [each.getMessage() for each in caplog.records]
        assert [re.sub(r" \d+\.\d .*", "", line) for line in lines] == [
            "1.2.3.4?5.6.7.8?GET GET - 405",
            "- GET /a??b?[31m?c%3Fx=s3cret 405",
            "- GET - 403",
        ]
        assert all(map(str.isprintable, lines))

    # A socket that listens already
    @pytest.mark.skipif(
        not socket.has_dualstack_ipv6(), reason="wants sockets of IPv6 and IPv4"
    )
    def test_a_socket_of_both_families(self, server, caplog):
        """A client of IPv4 is called as everywhere; `url` is one that is always there,
        also of a host that is every address. A socket is closed with its server."""
        family = socket.AF_INET6
        both = socket.create_server(("::", 0), family=family, dualstack_ipv6=True)
        for options in ({"sock": both}, {"host": "::"}):
            with self.access_log(server, caplog, **options) as (http, read):
                assert http.url == f"http://[::1]:{http.port}/mcp"
                assert Web(http).post(call_tool("add", a=1))[0] == 200
                with Client(http.url, protocol_version=MODERN) as client:
                    assert client.server_info["name"] == "everything"
                peers = {line.split()[0] for line in read(2)}
                assert peers == {"127.0.0.1", "::1"}
        assert both.fileno() == -1

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="wants fork")
    @pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
    def test_a_fork_lets_go_of_the_port(self, server):
        """A child that lives on keeps neither the port nor a connection open."""
        gate, release = os.pipe()
        here, begun = os.pipe()
        http = server.start_http()
        place = ("127.0.0.1", http.port)
        with http, socket.create_connection(place, SECONDS) as sock:
            eventually(lambda: http.connections)
            child = os.fork()
            if not child:
                os.close(release)
                os.write(begun, b"x")
                os.read(gate, 1)
                os._exit(0)
            try:
                assert os.read(here, 1) == b"x"
                http.close()
                assert sock.recv(1) == b""
                with pytest.raises(ConnectionError):
                    socket.create_connection(place, SECONDS)
            finally:
                for end in (gate, release, here, begun):
                    os.close(end)
                os.waitpid(child, 0)

    @staticmethod
    @contextlib.contextmanager
    def at_work(tmp_path, grace):
        """A server process on HTTP, and its tools: `work`, until the file `go` is there,
        `ask`, which asks the client, and `deaf`. Each makes a file of its name first."""
        script = f"""
            mcp_lite.TIDY_SECONDS = 0.3
            server = Server("s")
            @server.tool
            def work(name: str, ctx: Context) -> str:
                open(name, "w").close()
                try:
                    while not os.path.exists("go"):
                        ctx.sleep(0.01)
                except Cancelled:
                    open(name + "-cancelled", "w").close()
                    raise
                return "finished"
            @server.tool
            def ask(name: str, ctx: Context) -> str:
                open(name, "w").close()
                try:
                    ctx.elicit("?", {{"type": "object", "properties": {{}}}})
                except ConnectionClosed:
                    return "nobody answers"
            @server.tool
            def deaf(name: str) -> str:
                open(name, "w").close()
                time.sleep(600)
            server.run("http", port=0, grace={grace})
            print("after")
        """
        command = program(tmp_path, script)
        options = {"stdout": PIPE, "stderr": PIPE, "cwd": tmp_path}
        with subprocess.Popen(command, **options) as process:
            try:
                url = process.stderr.readline().decode()
                port = int(re.search(r":(\d+)/mcp", url)[1])
                yield types.SimpleNamespace(port=port, folder=tmp_path, process=process)
            finally:
                process.kill()

    @staticmethod
    def is_closed(site):
        """Return whether the port takes no more connections."""
        try:
            socket.create_connection(("127.0.0.1", site.port), SECONDS).close()
        except OSError:
            return True
        return False

    @staticmethod
    def has_ended_well(process):
        """Return whether it ended as a supervisor expects, and run() returned."""
        out, err = process.communicate(timeout=SECONDS)
        return (process.returncode, out) == (0, b"after\n") and b"Traceback" not in err

    @pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
    def test_sigterm_lets_handlers_finish(self, tmp_path):
        """No more connections are taken, what listens and what asks ends; what is at
        work has its grace, and is answered: in both eras, and in HTTP+SSE."""
        with contextlib.ExitStack() as stack:
            enter = stack.enter_context
            pool = enter(concurrent.futures.ThreadPoolExecutor())
            site = enter(self.at_work(tmp_path, 600.0))
            session = Web(site).open(capabilities={"elicitation": {}})
            listening = enter(session.stream())
            modern_listening = enter(Web(site).stream("POST", LISTEN))
            next_message(modern_listening)
            old = Client(
                f"http://127.0.0.1:{site.port}/sse", protocol_version="2024-11-05"
            )
            enter(old)
            calls = {
                "modern": (Web(site).post, call_tool("work", name="modern")),
                "legacy": (session.post, call_legacy("work", name="legacy")),
                "ask": (session.post, call_legacy("ask", 2, name="ask")),
                "old": (old.call, "work", {"name": "old"}),
            }
            answers = {name: pool.submit(*call) for name, call in calls.items()}
            for name in calls:
                eventually((site.folder / name).exists, name)
            site.process.send_signal(signal.SIGTERM)
            told = [event["message"] for event in events_of(listening)]
            methods = [message["method"] for message in told if message]
            assert methods == ["notifications/cancelled"]  # of what it has asked
            assert "result" in next_message(modern_listening)
            assert "nobody answers" in str(answers.pop("ask").result(SECONDS))
            eventually(lambda: self.is_closed(site))
            assert not any(answer.done() for answer in answers.values())
            (site.folder / "go").touch()
            for answer in answers.values():
                assert "finished" in str(answer.result(SECONDS))
            assert self.has_ended_well(site.process)

    @pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
    def test_signals_cancel_handlers(self, tmp_path):
        """Ctrl-C at once, SIGTERM when its grace is over; a handler that is deaf to that
        is left after a while, and a second signal ends all waiting."""

        def end(numbers, grace):
            folder = tmp_path / numbers
            folder.mkdir()
            pool = concurrent.futures.ThreadPoolExecutor()
            with pool, self.at_work(folder, grace) as site:
                session = Web(site).open()
                for name, web, call in (
                    ("modern", Web(site), call_tool("work", name="modern")),
                    ("legacy", session, call_legacy("work", name="legacy")),
                    ("deaf", Web(site), call_tool("deaf", name="deaf")),
                ):
                    pool.submit(web.post, call)
                    eventually((folder / name).exists, name)
                for number in numbers.split():
                    site.process.send_signal(getattr(signal, "SIG" + number))
                    eventually(lambda: self.is_closed(site))
                assert self.has_ended_well(site.process)
            if numbers != "TERM TERM":
                assert (folder / "modern-cancelled").exists()
                assert (folder / "legacy-cancelled").exists()

        at_once(end, [("INT", 600.0), ("TERM", 0.1), ("TERM TERM", 600.0)])


class TestWsgi:
    """The HTTP endpoint behind the standard library's WSGI server."""

    @contextlib.contextmanager
    def serve(self, *apps):
        """Applications that take turns at one port: its URL, and a conversation."""
        from socketserver import ThreadingMixIn
        from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

        turns = itertools.cycle(apps)

        class Quiet(WSGIRequestHandler):
            def log_message(self, *args):
                pass

        kind = type("Threaded", (ThreadingMixIn, WSGIServer), {})
        with kind(("127.0.0.1", 0), Quiet) as http:
            http.set_app(lambda environ, start: next(turns)(environ, start))
            http.port = http.server_port
            thread = started(http.serve_forever, 0.01)
            try:
                yield f"http://127.0.0.1:{http.port}/any/path", Web(http)
            finally:
                http.shutdown()
                thread.join()

    @pytest.mark.parametrize("version", ["auto", "2025-11-25", "2025-03-26"])
    def test_both_eras(self, server, version):
        """Modern requests, and legacy ones without a session, at whatever path."""
        told = []
        served = self.serve(server.wsgi)
        with served as (url, _), Client(url, protocol_version=version) as client:
            assert client.call("greet", name="Bo") == "hello Bo"
            assert client.read("x://note") == "note"
            client.call_tool(
                "count", {"to": 3}, on_progress=lambda *each: told.append(each[0])
            )
            assert told == [1, 2, 3]
            with pytest.raises(ToolError):
                client.call("fail", how="tool")

    @pytest.mark.parametrize(
        "keys, known",
        [
            (("k" * 16, ["k" * 16, "z" * 16]), True),
            ((["n" * 16, b"k" * 16], "k" * 16), True),
            (("n" * 16, "k" * 16), False),
            ((None, "k" * 16), False),
            ((None, None), False),
        ],
    )
    def test_questions_between_processes(self, keys, known):
        """Another process takes the answer if it knows the key, even as an old one;
        else it refuses."""
        apps = []
        ran = []
        for number, key in enumerate(keys):
            server = Server("one of two", state_key=key)

            @server.tool
            def ask(ctx: Context, number: int = number) -> str:
                ran.append(number)
                return ctx.elicit("who?", FORM)["content"]["name"]

            apps.append(server.wsgi)
        answer = {"action": "accept", "content": {"name": "Ada"}}
        refused = pytest.raises(InvalidParams, match="requestState")
        if known:
            refused = contextlib.nullcontext()
        options = {"on_elicit": lambda params: answer}
        with self.serve(*apps) as (url, _), Client(url, **options) as client:
            with refused:
                assert client.call("ask") == "Ada"
            # 0 was asked what it can do.
            assert ran == [1, 0][: 1 + known]

    def test_refusals(self, server):
        """The refusals are those of a port, and no body is read beyond the limit."""
        claims = {"good": {"sub": "ada"}}
        hosts = ["example.com"]
        app = server.wsgi_app(max_body=1000, verify=claims.get, allowed_hosts=hosts)
        with self.serve(app) as (_, web):
            web.headers = {"Authorization": "Bearer good"}
            discover = request("server/discover", modern())
            for host in ("localhost", "example.com"):
                assert web.post(discover, Host=host)[0] == 200
            assert web.post(discover, Authorization="Bearer bad")[0] == 401
            assert web.post(discover, Host="evil.example")[0] == 403
            assert web.post(discover, Content_Type="text/plain")[0] == 415
            assert web.post(b"x" * 1001)[0] == 413 and web.post(b"x" * 1000)[0] == 400
            status, headers, _ = web.send("GET")
            assert (status, headers["Allow"]) == (405, "POST")

    @staticmethod
    def ask(app, message, **environ):
        """The status of an application's answer; `environ` says what is otherwise."""
        body = json.dumps(message).encode()
        usual = {
            "REQUEST_METHOD": "POST",
            "PATH_INFO": "/mcp",
            "CONTENT_TYPE": "application/json",
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_HOST": "localhost",
            "HTTP_MCP_PROTOCOL_VERSION": MODERN,
            "HTTP_MCP_METHOD": message["method"],
            "wsgi.input": io.BytesIO(body),
            "REMOTE_ADDR": "127.0.0.1",
            "QUERY_STRING": "",
        }
        told = []
        app({**usual, **environ}, lambda status, headers: told.append(status[:3]))
        (status,) = told
        return int(status)

    def test_bodies_of_any_length(self, server):
        """A body is read, whether its length is told or its end is marked."""
        app = server.wsgi_app(max_body=200_000)
        call = call_tool("echo", value="x" * 150_000)
        body = json.dumps(call).encode()
        marked = {"CONTENT_LENGTH": "", "wsgi.input_terminated": True}
        for sent, more, status in (
            (body + b"more", {}, 200),
            (body, marked, 200),
            (body + b" " * 50_000, marked, 413),
        ):
            more = {"HTTP_MCP_NAME": "echo", "wsgi.input": io.BytesIO(sent), **more}
            assert self.ask(app, call, **more) == status

    def test_a_body_that_is_too_long_is_not_read(self, server):
        """Its length is enough to refuse it."""
        told = []
        environ = {"REQUEST_METHOD": "POST", "CONTENT_TYPE": "application/json"}
        environ.update(HTTP_HOST="localhost", CONTENT_LENGTH="1001")
        app = server.wsgi_app(max_body=1000)
        app(environ, lambda status, headers: told.append(status))
        assert told[0].startswith("413 ")

    def test_a_host_without_write(self, server):
        """Where start_response returns None, the events come at the end."""
        body = json.dumps(call_tool("count", to=2, meta={"progressToken": 1})).encode()
        environ = {"REQUEST_METHOD": "POST", "CONTENT_TYPE": "application/json"}
        environ.update(HTTP_HOST="localhost", CONTENT_LENGTH=str(len(body)))
        environ.update(HTTP_MCP_METHOD="tools/call", HTTP_MCP_NAME="count")
        environ.update({"HTTP_MCP_PROTOCOL_VERSION": MODERN})
        environ["wsgi.input"] = io.BytesIO(body)
        told = b"".join(server.wsgi(environ, lambda status, headers: None))
        assert told.count(b"notifications/progress") == 2 and b'"result"' in told

    def test_odd_environments(self, server):
        """Any environment is answered: never by an exception, or a 500."""
        app = server.wsgi_app(path="/mcp")
        for change, status in (
            ({"CONTENT_LENGTH": "x"}, 400),
            ({"CONTENT_LENGTH": "-5"}, 400),
            ({"CONTENT_LENGTH": "100000"}, 400),
            ({"CONTENT_LENGTH": None}, 400),
            ({"wsgi.input": None, "HTTP_HOST": "evil.example"}, 403),
            ({"CONTENT_LENGTH": "x", "HTTP_HOST": "evil.example"}, 403),
            ({"REQUEST_METHOD": "P\nQ"}, 405),
            ({"CONTENT_TYPE": None}, 415),
            ({"PATH_INFO": None}, 404),
            ({"PATH_INFO": "/mcp?x"}, 404),
            ({"PATH_INFO": "/m\r\ncp\ud800"}, 404),
            ({"REMOTE_ADDR": None, "QUERY_STRING": None}, 200),
        ):
            discover = request("server/discover", modern())
            assert self.ask(app, discover, **change) == status, change

    def test_one_application(self):
        """`server.wsgi` is made once, by wsgi_app(), which a subclass may change."""

        class Guarded(Server):
            def wsgi_app(self, **options):
                return [super().wsgi_app(verify=lambda token: None, **options)]

        server = Guarded("guarded")
        assert server.wsgi is server.wsgi
        with self.serve(*server.wsgi) as (_, web):
            assert web.post(request("server/discover", modern()))[0] == 401


def modern_site(**answers):
    """A script for web_server, modern: it answers by answers[method](seen, sock)."""

    def script(seen, sock):
        message = seen["message"]
        is_message = isinstance(message, dict)
        method = message["method"] if is_message else seen["method"]
        if method == "server/discover":
            return result_of(
                seen,
                supportedVersions=[MODERN],
                capabilities={"tools": {}},
                _meta={META_SERVER_INFO: {"name": "fake", "version": "1"}},
            )
        return answers[method.replace("/", "_")](seen, sock)

    return script


def lose_sessions(http, seen):
    """Have the server forget every session of which it was told here."""
    ids = {headers.get("mcp-session-id") for _, headers, _ in list(seen)} - {None}
    for session in ids:
        Web(http, session, "2025-11-25").send("DELETE")


@contextlib.contextmanager
def client_of(site, **options):
    """A client of a scripted server, and what that server has seen."""
    with web_server(site) as (url, seen), Client(url, **options) as client:
        yield client, seen


def methods_in(seen):
    """The methods of the messages in what a server has seen."""
    return [member(each, "message", "method") for each in seen]


def shown_in(seen, header):
    """Return the value of a header in each request."""
    return [each["headers"].get(header) for each in seen]


class Sessions:
    """Scripts of a legacy server that forgets sessions: each `initialize` opens another
    one, s1, s2 and so on, or one without an id; calls in any but `good` get 404."""

    def __init__(self, good="s2", status=404, words=b"no session"):
        self.opened = 0
        self.good = good
        self.refusal = status, {}, words

    def initialize(self, seen, sock):
        self.opened += 1
        status, _, body = legacy_site()(seen, sock)
        name = f"s{self.opened}" if self.good or self.opened == 1 else None
        return status, {"Mcp-Session-Id": name} if name else {}, body

    def call(self, seen, sock):
        session = seen["headers"].get("mcp-session-id")
        if session != self.good:
            return self.refusal
        return result_of(seen, **text_result(str(session)))

    def site(self, **answers):
        scripts = {"initialize": self.initialize, "tools_call": self.call, **answers}
        return legacy_site(**scripts)


class TestHttpClient:
    """The room HTTP client, against our server, and others that do as they like."""

    # Finding out what a server speaks
    def test_the_transport_is_found(self, recorded):
        """One URL is enough, with headers of its own: modern where it is spoken, else
        a session, else HTTP+SSE. The client's own headers win."""
        http, seen = recorded
        old = http.url.replace("/mcp", "/sse")
        given = {"url": http.url, "headers": {"X-A": "target", "X-B": "target"}}
        targets = [(http.url, MODERN), (old, "2025-11-25"), (given, MODERN)]
        for target, version in targets:
            with Client(target, headers={"X-B": "client"}) as client:
                assert client.protocol_version == version
                assert client.call("greet", name="Bo") == "hello Bo"
        headers = seen[-1][1]
        assert (headers["x-a"], headers["x-b"]) == ("target", "client")

    @pytest.mark.parametrize(
        "status, body",
        [
            (400, b"what?"),
            (400, {"id": None, "error": {"code": -32600, "message": "no"}}),
            (404, b""),
            (405, b""),
            (200, {"id": 1, "error": {"code": -32601, "message": "no"}}),
        ],
    )
    def test_it_falls_back_to_a_session(self, status, body):
        """After any refusal of a modern request, initialize comes next, on the same
        URL; then every request names the session and the revision."""

        def discover(seen, sock):
            if isinstance(body, bytes):
                return status, {}, body
            return status, {}, {"jsonrpc": "2.0", **body, "id": seen["message"]["id"]}

        site = legacy_site(server_discover=discover, tools_call=called("called"))
        with client_of(site) as (client, seen):
            assert client.protocol_version == "2025-11-25"
            assert client.call("x") == "called"
        posts = [each for each in seen if each["method"] == "POST"]
        first = ["server/discover", "initialize", "notifications/initialized"]
        assert methods_in(posts) == [*first, "tools/call"]
        assert shown_in(posts, "mcp-session-id") == [None, None, "s1", "s1"]
        after = [each for each in seen if each["headers"].get("mcp-session-id")]
        assert set(shown_in(after, "mcp-protocol-version")) == {"2025-11-25"}
        assert {each["method"] for each in after} == {"POST", "GET", "DELETE"}

    @pytest.mark.parametrize("status", [400, 404, 405])
    def test_it_falls_back_to_the_old_transport(self, status):
        """POST is refused: GET the same URL, and POST where its first event says, and
        no later one. The end of the stream is the end of the session."""
        streams = []

        def script(seen, sock):
            message = seen["message"]
            if seen["method"] == "GET":
                streams.append(sock)
                begin_stream(sock, "event: endpoint\ndata: /post?x=1\n\n")
                sock.sendall(b"event: endpoint\ndata: /moved\n\n")
                return never(seen, sock)
            if seen["path"] != "/post?x=1":
                return status, {}, b""
            if "id" in message:
                answer = answer_to(seen, **text_result("old"))
                if message["method"] == "initialize":
                    answer = legacy_site("2024-11-05")(seen, sock)[2]
                streams[0].sendall(event_of(answer).encode())
            return 202, {}, b""

        with client_of(script) as (client, _):
            assert client.protocol_version == "2024-11-05"
            assert client.call("x") == "old"
            streams[0].shutdown(socket.SHUT_RDWR)

            def is_closed():
                # What is sent meanwhile may fail by itself.
                with contextlib.suppress(HttpFailure):
                    try:
                        client.ping()
                    except ConnectionClosed:
                        return True

            eventually(is_closed)

    def test_no_endpoint_elsewhere(self):
        """An endpoint on another host is not followed: the headers may hold secrets."""

        def script(seen, sock):
            if seen["method"] == "GET":
                return begin_stream(sock, f"event: endpoint\ndata: {other}\n\n")
            return 404, {}, b""

        with web_server(script) as (url, _), web_server(never) as (other, stolen):
            with pytest.raises(HttpFailure):
                Client(url, headers={"Authorization": "Bearer secret"}).connect()
            assert stolen == []

    # Redirects
    @pytest.mark.parametrize(
        "where", ["/there/", "there/", "http://LOCALHOST:{port}/there/"]
    )
    @pytest.mark.parametrize("version", ["auto", "2025-11-25"])
    def test_a_redirect_is_followed(self, version, where):
        """On the same host, however it is spelled; one serves for all that follows."""
        make_site = modern_site if version == "auto" else legacy_site
        site = make_site(tools_call=called("called"))

        def script(seen, sock):
            if seen["path"] == "/there/":
                return site(seen, sock)
            port = sock.getsockname()[1]
            return 308, {"Location": where.format(port=port)}, b""

        with web_server(script) as (url, seen):
            url = url.replace("127.0.0.1", "LocalHost")
            with Client(url, protocol_version=version) as client:
                assert [client.call("x") for _ in range(2)] == ["called"] * 2
            assert [each["path"] for each in seen].count("/mcp") == 1
            assert set(shown_in(seen, "authorization")) == {None}

    @pytest.mark.parametrize(
        "where", ["http://127.0.0.2/mcp", "https://127.0.0.1/?s=secret", "/mcp", ""]
    )
    def test_not_every_redirect_is_followed(self, where):
        """None to another host, which would hear secrets, and none for ever: the text
        says where it leads."""
        headers = {"Authorization": "Bearer secret"}
        with web_server(lambda *_: (307, {"Location": where}, b"gone")) as (url, seen):
            with pytest.raises(HttpFailure, match="HTTP 307.*gone") as caught:
                Client(url, headers=headers, protocol_version="2025-11-25").connect()
            assert len(seen) <= 2 and where.partition("?")[0] in str(caught.value)
            assert "secret" not in str(caught.value)

    # Connections
    def test_one_connection_for_many_calls(self):
        """Connections are kept alive. Calls at once have one each, used again."""
        gate = threading.Barrier(4)

        def call(seen, sock):
            if seen["message"]["params"]["name"] == "together":
                gate.wait(SECONDS)
            return result_of(seen, **text_result("x"))

        with client_of(modern_site(tools_call=call)) as (client, seen):
            for _ in range(20):
                client.call("x")
            assert {each["connection"] for each in seen} == {0}
            for _ in range(2):
                for call in [client.start_call("together") for _ in range(4)]:
                    call.result()
            assert len({each["connection"] for each in seen}) == 4

    def test_a_dead_connection_is_replaced(self):
        """A connection that died while it was kept alive is no reason to fail."""
        site = modern_site(tools_call=called("x"))
        closed = threading.Event()

        def close_after(seen, sock):
            body = json.dumps(site(seen, sock)[2]).encode()
            closed.clear()
            sock.sendall(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
            )
            sock.shutdown(socket.SHUT_RDWR)
            closed.set()

        with client_of(close_after) as (client, seen):
            for _ in range(3):
                assert closed.wait(SECONDS)
                assert client.call("x") == "x"
            assert len({each["connection"] for each in seen}) == 4

    def test_no_post_is_sent_twice(self):
        """Not one that was given up, and not one whose server died: on a connection that
        was used before, either; the tool may have run."""

        def call(seen, sock):
            name = seen["message"]["params"]["name"]
            if name == "dies":
                return None
            if name == "hangs":
                return never(seen, sock)
            return result_of(seen, **text_result(name))

        with client_of(modern_site(tools_call=call)) as (client, seen):
            assert client.call("x") == "x"
            with pytest.raises(HttpFailure):
                client.call("dies")
            assert client.call("x") == "x"
            with pytest.raises(Timeout):
                client.call_tool("hangs", timeout=0.1)
            assert client.call("x") == "x"
            names = [member(each, "message", "params", "name") for each in seen[1:]]
            assert names == ["x", "dies", "x", "hangs", "x"]

    # Answers
    def test_an_answer_in_events(self):
        """Comments, other events and notifications may come before the answer, in any
        pieces. The rest of the stream is not waited for."""
        heard = []

        def call(seen, sock):
            token = seen["message"]["params"]["_meta"]["progressToken"]
            progress = {"progressToken": token, "progress": 1}
            note = notice("progress", progress)
            text = ": hi\n\nevent: other\ndata: {}\n\n" + event_of(note)
            text += event_of(answer_to(seen, **text_result("é")))
            begin_stream(sock)
            for byte in text.replace("\n", "\r\n").encode():
                sock.sendall(bytes([byte]))
            never(seen, sock)

        with client_of(modern_site(tools_call=call)) as (client, _):
            result = client.call_tool("x", on_progress=lambda *a: heard.append(a[0]))
        assert text_of(result) == "é" and heard == [1]

    LOGIN = {"WWW-Authenticate": 'Bearer realm="x", scope="files"'}
    STEP_UP = {"WWW-Authenticate": 'Bearer error="insufficient_scope", scope="a b"'}
    HTML = {"Content-Type": "text/html"}
    AWAY = {"Location": "https://other.invalid/x?key=hush-hush"}

    @pytest.mark.parametrize(
        "status, headers, body, said",
        [
            (400, {}, b"not this", "HTTP 400 X: not this$"),
            (401, LOGIN, b"who is it", "HTTP 401 X: .*who is it; see Client.auth=."),
            (403, STEP_UP, b"", 'HTTP 403 X: it wants the scope "a b"; which hosts'),
            (403, {}, b"not your s3cret-key", r"HTTP 403 X: not your \*\*\*; .*token"),
            (404, {}, b"no /mcp?key=hush-hush", "HTTP 404 X: no .*path of the URL"),
            (405, {}, b"", "HTTP 405 X; is the path"),
            (500, {}, b"oops", "HTTP 500 X: oops$"),
            (503, {}, b"", "HTTP 503 X$"),
            (200, HTML, b"<html><b>Hi", "no answer: HTTP 200 X: <html><b>Hi"),
            (200, {}, {"hello": 1}, 'no answer: HTTP 200 X: {"hello": 1}'),
            (
                302,
                AWAY,
                b"",
                'HTTP 302 X: it redirects to "https://other.invalid/x"; only 307',
            ),
        ],
    )
    @pytest.mark.parametrize("version", ["auto", "2025-11-25"])
    def test_what_a_url_answers_is_told(self, version, status, headers, body, said):
        """A failure has the URL, the status, the server's words, and no secret."""
        with web_server(lambda seen, sock: (status, headers, body)) as (url, _):
            failure = http_failure_of(url, protocol_version=version)
        assert re.search(said, str(failure)), failure
        assert failure.http_status == status
        is_login = "WWW-Authenticate" in headers
        assert isinstance(failure, AuthorizationError) == is_login
        scope = {401: "files", 403: "a b"}[status] if is_login else None
        assert failure.challenge.get("scope") == scope

    HEAD = b"Content-Type: application/json\r\n"
    CHUNKS = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    EVENTS = b"Content-Type: text/event-stream\r\n\r\n"

    @pytest.mark.parametrize(
        "answer, error, said",
        [
            (b"Content-Type: text/html\r\n\r\n<p>hi", HttpFailure, "<p>hi"),
            (EVENTS + b": nothing\n\n", HttpFailure, "broke off before"),
            (EVENTS + b"event: x\ndata: y\n\n", HttpFailure, "broke off before"),
            (HEAD + b"\r\n{", HttpFailure, "no answer"),
            (HEAD + b"\r\n" + b" " * (2 << 20), HttpFailure, "no answer"),
            (HEAD + b"X: y\r\n" * 101, HttpFailure, "more than 100 headers"),
            (HEAD + b"Content-Length: 99\r\n\r\n{", HttpFailure, "off after 1 bytes"),
            (CHUNKS + b"no\r\n{", HttpFailure, "IncompleteRead"),
        ],
        ids=lambda value: str(value)[:24],
    )
    def test_what_is_no_answer_is_told(self, answer, error, said, monkeypatch):
        """Endless, packed, cut off, or something else: the caller hears what was wrong
        with it, and the next call is none the worse for it."""
        monkeypatch.setattr(mcp_lite, "MAX_MESSAGE", 1 << 20)

        def call(seen, sock):
            if seen["message"]["params"]["name"] == "good":
                return result_of(seen, **text_result("good"))
            sock.sendall(b"HTTP/1.1 200 OK\r\n" + answer)
            return None

        with client_of(modern_site(tools_call=call)) as (client, _):
            with pytest.raises(error, match=said):
                client.call("bad")
            assert client.call("good") == "good"

    def test_a_way_that_does_not_lead_there_is_told(self):
        """A port where no server listens, a name that no host has, another protocol."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        failure = http_failure_of(f"http://127.0.0.1:{port}/mcp")
        assert "nothing listens there" in str(failure)
        assert failure.http_status is None and failure.challenge == {}
        failure = http_failure_of("http://no-such-host.invalid/mcp")
        assert "the name does not resolve" in str(failure)

        def script(seen, sock):
            sock.sendall(b"220 mail.example ESMTP s3cret-key\r\n")

        with web_server(script) as (url, _):
            assert "ESMTP" in str(http_failure_of(url))

    def test_failures_of_tls_are_told(self, server, certificate):
        """Each has its own text, with its remedy."""
        theirs, ours = certificate
        with server.start_http(ssl_context=theirs) as http:
            url = f"https://127.0.0.1:{http.port}/mcp"
            failure = http_failure_of(url)
            assert "certificate verify failed" in str(failure)
            assert "ssl_context=" in str(failure)
            wrong = url.replace("127.0.0.1", "127.1")
            assert "certificate" in str(http_failure_of(wrong, ssl_context=ours))
        with server.start_http() as http:
            failure = http_failure_of(http.url.replace("http:", "https:"))
            assert "SSL" in str(failure)

    def test_what_is_too_large_is_told(self, server):
        """A large body is refused unread, and the caller still hears why."""
        refused = pytest.raises(HttpFailure, match="more than 100000 bytes")
        http = server.start_http(max_body=100_000)
        with http, Client(http.url) as client, refused:
            client.call("echo", value="x" * 20_000_000)

    @pytest.mark.parametrize("version", ["auto", "2025-11-25"])
    def test_who_may_be_answered(self, version):
        """A server of a session may ask; to one of the modern era no response is ever
        sent, whatever it asks."""
        answered = threading.Event()
        ping = {"jsonrpc": "2.0", "id": "p", "method": "ping"}

        def stream(seen, sock):
            begin_stream(sock, event_of(ping))
            if version != "auto":
                assert answered.wait(SECONDS)
            sock.sendall(event_of(answer_to(seen, **text_result("x"))).encode())
            return

        make_site = modern_site if version == "auto" else legacy_site
        site = make_site(tools_call=stream)

        def script(seen, sock):
            message = seen["message"]
            if isinstance(message, dict) and "method" not in message:
                answered.set()
                return 202, {}, b""
            return site(seen, sock)

        with client_of(script, protocol_version=version) as (client, seen):
            assert client.call("x") == "x"
        messages = [each["message"] for each in seen]
        answers = [each for each in messages if member(each, "result") is not None]
        expected = [{"jsonrpc": "2.0", "id": "p", "result": {}}]
        assert answers == ([] if version == "auto" else expected)

    # Streams
    def test_it_comes_back_for_an_answer(self):
        """A session's stream that ends early is resumed: with the last whole event's
        id, after the server's retry. Nothing is lost or comes twice."""
        calls = []

        def call(seen, sock):
            calls.append(seen)
            token = seen["message"]["params"]["_meta"]["progressToken"]
            note = notice("progress", {"progressToken": token, "progress": 1})
            text = "id: a1\ndata:\n\nretry: 10\n\n" + event_of(note, id="é2字")
            return 200, {}, (text + 'id: a3\ndata: {"jso').encode()

        def get(seen, sock):
            last = seen["headers"].get("last-event-id")
            if last is None:
                return 405, {}, b""
            # As event sources send it.
            if last.encode("latin-1") == "é2字".encode():
                return 200, {}, b"id: a3\ndata:\n\n"
            answer = answer_to(calls[0], **text_result("resumed"))
            return 200, {}, event_of(answer, id="a4").encode()

        heard = []
        site = legacy_site(tools_call=call, GET=get)
        with client_of(site, protocol_version="2025-11-25") as (client, seen):
            result = client.call_tool("x", on_progress=lambda *a: heard.append(a[0]))
        assert (text_of(result), heard, len(calls)) == ("resumed", [1], 1)
        resumed = [each for each in seen if "last-event-id" in each["headers"]]
        ids = shown_in(resumed, "last-event-id")
        assert ids == ["é2字".encode().decode("latin-1"), "a3"]
        assert shown_in(resumed, "mcp-session-id") == ["s1"] * 2

    def test_a_call_that_has_ended_holds_no_thread(self):
        """Whatever time is to pass before its stream may be resumed."""

        def call(seen, sock):
            answer = answer_to(seen, **text_result("x"))
            return 200, {}, event_of(answer, id="a", retry=10**6).encode()

        site = legacy_site(tools_call=call)
        with client_of(site, protocol_version="2025-11-25") as (client, _):
            for _ in range(20):
                assert client.call("x") == "x"
            names = [thread.name for thread in threading.enumerate()]
            assert names.count("mcp-posts") < 10

    def test_it_comes_back_to_listen(self):
        """The GET stream is opened again when it ends, after its last event, however
        often the server is too busy for it."""
        heard = threading.Event()
        note = notice("tools/list_changed")
        script = [(200, {}, ("retry: 1\n" + event_of(note, id="g1")).encode())]
        script += [(503, {}, b"busy")] * 4
        visits = []

        def get(seen, sock):
            visits.append(seen["headers"].get("last-event-id"))
            if script:
                return script.pop(0)
            begin_stream(sock, event_of(notice("x")))
            return never(seen, sock)

        def hear(method, params):
            if method == "notifications/x":
                heard.set()

        options = {"protocol_version": "2025-11-25", "on_notification": hear}
        with client_of(legacy_site(GET=get), **options):
            assert heard.wait(SECONDS)
        assert visits == [None] + ["g1"] * 5

    def test_a_subscription_that_breaks_off(self, server, caplog):
        """A warning says so, and another subscribe() renews it."""
        heard = []
        warning = "no more notifications of x://note"
        options = {"on_notification": lambda *told: heard.append(told)}
        with server.start_http() as http, Client(http.url, **options) as client:
            for n in (1, 2):
                client.subscribe("x://note")
                server.resource_updated("x://note")
                eventually(lambda n=n: len(heard) == n)
                for sock in list(http.connections):
                    shut(sock)
                eventually(lambda n=n: caplog.text.count(warning) == n, warning)

    def test_polling_there_and_back(self, server):
        """After ctx.close_stream(), progress, a question and the answer still come, once;
        on another connection, as the tool holds the thread of the first."""

        @server.tool
        def poll(ask: bool, ctx: Context) -> str:
            for n in range(3):
                ctx.progress(n)
                ctx.close_stream(retry_ms=1)
            return ctx.elicit("done", FORM)["content"]["name"] if ask else "done"

        with server.start_http() as http:
            for version in EVERY:
                heard = []
                ask = {"ask": version == "2025-11-25"}
                told = {"on_progress": lambda *a, heard=heard: heard.append(a[0])}
                with Client(
                    http.url, protocol_version=version, on_elicit=answer
                ) as client:
                    result = client.call_tool("poll", ask, **told)
                assert (text_of(result), heard) == ("done", [0, 1, 2])

    # Sessions
    def test_a_lost_session_is_renewed(self, recorded):
        """404 for the session: a new one is opened, which is told what the lost one
        knew, and the call goes through. close() deletes it."""
        http, seen = recorded
        heard = []
        options = {"on_notification": lambda method, _: heard.append(method)}
        with Client(http.url, protocol_version="2025-11-25", **options) as client:
            client.subscribe("x://note")
            client.set_log_level("error")
            lose_sessions(http, seen)
            assert client.call("greet", name="Bo") == "hello Bo"
            updated = "notifications/resources/updated"
            eventually(lambda: client.call("change") and updated in heard)
        methods = [message["method"] for _, _, message in seen if message]
        assert methods.count("initialize") == 2
        assert methods.count("notifications/initialized") == 2
        assert methods.count("logging/setLevel") == 2
        assert seen[-1][0] == "DELETE"
        session = Web(http, seen[-1][1]["mcp-session-id"], "2025-11-25")
        assert session.post(request("ping"))[0] == 404

    @pytest.mark.parametrize(
        "good, status, words",
        [
            ("s2", 404, b""),
            (None, 404, b""),
            ("s2", 400, b"Bad Request: No valid session ID provided"),
            ("s2", 400, b"Bad Request: Server not initialized"),
        ],
    )
    def test_a_session_is_lost_in_these_words(self, good, status, words):
        """As the specification has it, and as the examples of SDKs do. It is renewed
        once, however many calls there are."""
        sessions = Sessions(good, status, words)
        gate = threading.Barrier(4)

        def call(seen, sock):
            if seen["headers"].get("mcp-session-id") == "s1":
                gate.wait(SECONDS)
            return sessions.call(seen, sock)

        site = sessions.site(tools_call=call)
        with client_of(site, protocol_version="2025-11-25") as (client, _):
            calls = [client.start_call("x") for _ in range(4)]
            assert {text_of(each.result()) for each in calls} == {str(good)}
        assert sessions.opened == 2

    def test_a_new_session_that_nobody_opens(self):
        """A call has its timeout, and the next one tries again."""
        sessions = Sessions(good="s3")

        def initialize(seen, sock):
            answer = sessions.initialize(seen, sock)
            return never(seen, sock) if sessions.opened == 2 else answer

        site = sessions.site(initialize=initialize)
        options = {"protocol_version": "2025-11-25", "timeout": 0.5}
        with client_of(site, **options) as (client, _):
            with pytest.raises((Timeout, HttpFailure)):
                client.call_tool("x")
            result = client.call_tool("x", timeout=SECONDS)
            assert text_of(result) == "s3"

    # Headers
    def test_headers_mirror_the_body(self, server, recorded, version):
        """Method and name in every revision, and the arguments that the schema names."""
        http, seen = recorded
        region = {"type": "string", "x-mcp-header": "Region"}
        properties = {"region": region, "n": {"type": "integer", "x-mcp-header": "N"}}
        schema = {"type": "object", "properties": properties}
        server.add_tool(
            lambda region=None, n=None: "here", name="place", input_schema=schema
        )
        # What every request says, the user's headers do not say a second time.
        mine = {"X-Mine": "yes", "accept": "*/*", "mcp-METHOD": "x"}
        with Client(http.url, protocol_version=version, headers=mine) as client:
            assert "place" in [tool["name"] for tool in client.list_tools()]
            for arguments in ({"region": "Málaga", "n": 5}, {"region": " a"}, {}):
                assert client.call("place", **arguments) == "here"
            client.read("x://note")
        posts = [each for each in seen if each[0] == "POST"]
        assert {headers["x-mine"] for _, headers, _ in seen} == {"yes"}
        assert not any(headers["accept"] == "*/*" for _, headers, _ in posts)
        assert all(
            headers["mcp-method"] == told["method"] for _, headers, told in posts
        )
        named = [headers.get("mcp-name") for _, headers, _ in posts]
        assert [name for name in named if name] == ["place"] * 3 + ["x://note"]
        mirrored = [
            (headers.get("mcp-param-region"), headers.get("mcp-param-n"))
            for _, headers, told in posts
            if told["method"] == "tools/call"
        ]
        encoded = ["=?base64?TcOhbGFnYQ==?=", "=?base64?IGE=?="]
        assert mirrored == [(encoded[0], "5"), (encoded[1], None), (None, None)]

    def test_tools_with_wrong_headers_are_left_out(self, caplog):
        """One malformed tool is told to the log, and hides no other."""

        def tool(name, header):
            properties = {"a": {"type": "string", "x-mcp-header": header}}
            schema = {"type": "object", "properties": properties}
            return {"name": name, "inputSchema": schema}

        def list_tools(seen, sock):
            tools = [tool("good", "A"), tool("bad", "A B")]
            return result_of(seen, tools=tools, ttlMs=0, cacheScope="private")

        with caplog.at_level("WARNING", "mcp_lite"):
            with client_of(modern_site(tools_list=list_tools)) as (client, _):
                assert [each["name"] for each in client.list_tools()] == ["good"]
                eventually(lambda: "bad" in caplog.text)
            assert "x-mcp-header" in caplog.text and "good" not in caplog.text

    def test_the_list_of_tools_tells_what_is_mirrored(self, server, recorded):
        """It is read before the first arguments are sent, and again, with the call once
        more, when the server finds a mismatch (-32020)."""
        http, seen = recorded
        region = {"type": "string", "x-mcp-header": "Region"}
        schema = {"type": "object", "properties": {"region": region}}
        server.add_tool(lambda region: region, name="place", input_schema=schema)
        with Client(http.url) as client:
            assert client.call("place", region="Oslo") == "Oslo"
            assert seen[-1][1]["mcp-param-region"] == "Oslo"
            server.remove_tool("place")
            region["x-mcp-header"] = "Place"
            server.add_tool(lambda region: region, name="place", input_schema=schema)
            del seen[:]
            assert client.call("place", region="Bern") == "Bern"
        methods = [message["method"] for _, _, message in seen]
        assert [methods[0], methods[-1]] == ["tools/call"] * 2
        assert set(methods[1:-1]) == {"tools/list"}

    @pytest.mark.parametrize(
        "name, value",
        [
            ("X-A", "hush\r\nX-B: b"),
            ("X-A", "hush\n continued"),
            ("X-A", "hush\0"),
            ("X-A", "hush€"),
            ("X-A\r\nX-B", "hush"),
            ("", "hush"),
        ],
    )
    def test_headers_that_no_request_can_have(self, name, value):
        """They are told at once, by name; their value may be a secret."""
        with pytest.raises(ConnectionError, match="headers: ") as caught:
            Client("http://localhost/", headers={name: value}).connect()
        assert "hush" not in str(caught.value)
        assert name.partition("\r")[0] in str(caught.value)

    # The way there
    def test_proxies_of_the_environment(self, monkeypatch):
        """http_proxy gets the whole URL; https_proxy is asked for a tunnel; no_proxy is
        obeyed. A proxy's refusal is told."""
        site = modern_site(tools_call=called("far"))
        refusing = []

        def script(seen, sock):
            if refusing or seen["method"] == "CONNECT":
                return 407, {"Proxy-Authenticate": "Basic"}, b""
            return site(seen, sock)

        for name in ("http_proxy", "https_proxy", "no_proxy", "REQUEST_METHOD"):
            monkeypatch.delenv(name, raising=False)
            monkeypatch.delenv(name.upper(), raising=False)
        with web_server(script) as (url, seen):
            proxy = url.replace("http://", "http://ann:p%40ss@").replace("/mcp", "")
            monkeypatch.setenv("http_proxy", proxy)
            monkeypatch.setenv("https_proxy", proxy)
            with Client("http://far.invalid:81/mcp?x=1") as client:
                assert client.call("x") == "far"
            told = str(http_failure_of("https://far.invalid/mcp"))
            place = url.partition("://")[2].partition("/")[0]
            assert f"by the proxy {place}" in told and "407" in told
            assert "p%40ss" not in told and "p@ss" not in told
            assert seen[-1]["path"] == "far.invalid:443"
            login = "Basic YW5uOnBAc3M="
            assert set(shown_in(seen, "proxy-authorization")) == {login}
            places = [(each["path"], each["headers"]["host"]) for each in seen[:-1]]
            assert set(places) == {("http://far.invalid:81/mcp?x=1", "far.invalid:81")}
            refusing.append(True)
            assert "407" in str(http_failure_of("http://far.invalid/mcp"))
            refusing.clear()
            del seen[:]
            monkeypatch.setenv("no_proxy", "far.invalid")
            http_failure_of("http://far.invalid:81/mcp")
            assert seen == []

    @pytest.mark.parametrize(
        "told, seconds",
        [("7", 7.0), ("Wed, 21 Oct 2026 07:28:00 GMT", None), ("", None)],
    )
    def test_when_to_ask_again(self, told, seconds):
        """An HttpFailure has the seconds of Retry-After."""
        with web_server(lambda seen, sock: (503, {"Retry-After": told}, b"")) as (
            url,
            _,
        ):
            assert http_failure_of(url).retry_after == seconds

    def test_a_text_is_no_auth(self):
        """It is told how a token is given, and not quoted."""
        with pytest.raises(TypeError, match="headers={.Authorization.: ") as caught:
            Client("http://localhost:1/mcp", auth="s3cret").connect()
        assert "s3cret" not in str(caught.value)

    def test_events_of_any_line_end(self):
        """CR LF may come in two pieces, and a byte order mark may come first."""

        def call(seen, sock):
            begin_stream(sock)
            first, last = json.dumps(answer_to(seen, **text_result("y"))).split(":", 1)
            for piece in (b"\xef\xbb\xbfdata: {}\r", b"\n\r", b"\ndata: "):
                sock.sendall(piece)
            sock.sendall(f"{first}:\r\ndata: {last}\n\n".encode())
            never(seen, sock)

        with client_of(modern_site(tools_call=call)) as (client, _):
            assert client.call("x") == "y"

    def test_a_url_s_query(self):
        """The query is sent, the fragment is not, and no error's text shows either."""
        site = modern_site(tools_call=lambda seen, sock: None)
        with web_server(site) as (url, seen):
            refused = pytest.raises(HttpFailure)
            with Client(url + "/b%20c?key=hush#part") as client, refused as caught:
                client.call("y")
            assert {each["path"] for each in seen} == {"/mcp/b%20c?key=hush"}
            assert not re.search("hush|part", str(caught.value))

    @pytest.mark.parametrize(
        "url",
        "http:// http:///mcp http://a:hush@h/ http://h:hush/ http://[::1/".split(),
    )
    def test_a_url_that_is_none(self, url):
        """It is told at once, without a word of it: it may hold secrets."""
        with pytest.raises(ValueError, match="url: expected http://") as caught:
            Client(url).connect()
        assert "hush" not in str(caught.value)

    # The end of waiting
    @pytest.mark.parametrize("version", ["auto", "2025-11-25", MODERN])
    def test_a_site_that_does_not_answer(self, version):
        """Connecting takes `timeout`, and Timeout tells the URL without its query."""
        with web_server(never) as (url, _):
            secret = url + "?key=s3cret"
            with pytest.raises(Timeout, match="no answer within") as caught:
                Client(secret, timeout=0.2, protocol_version=version).connect()
        assert str(caught.value).endswith(f"(url: {url})")

    def test_a_server_that_answers_initialize_alone(self):
        """Connecting ends all the same if nothing answers to `initialized`, nor to the
        GET behind it."""
        site = legacy_site(notifications_initialized=never, GET=never)
        with client_of(site, timeout=0.3) as (client, _):
            assert client.protocol_version == "2025-11-25"

    def test_bytes_that_drip_hold_up_nothing(self):
        """A call's time, and a notification's, is over in all, whatever still comes; and
        the server is left: of heads, of events, of bodies and of errors."""

        def wait(begin, drip):
            left = threading.Semaphore(0)

            def never_ending(seen, sock):
                try:
                    sock.sendall(begin)
                    while True:
                        sock.sendall(drip)
                        time.sleep(0.01)
                except OSError:
                    left.release()

            site = modern_site(tools_call=never_ending, x=never_ending)
            with client_of(site, timeout=0.4) as (client, seen):
                with pytest.raises(Timeout):
                    client.call_tool("x")
                client.notify("x")
                for _ in range(2):
                    assert left.acquire(timeout=SECONDS)
                assert methods_in(seen).count("x") == 1

        at_once(
            wait,
            [
                (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
                (b"HTTP/1.1 200 OK\r\nX: ", b"x"),
                (b"HTTP/1.1 200 OK\r\n" + self.EVENTS, b":\n"),
                (b"HTTP/1.1 200 OK\r\n" + self.HEAD + b"\r\n", b" "),
                (b"HTTP/1.1 500 X\r\nContent-Length: 9999\r\n\r\n", b"x"),
            ],
        )

    @pytest.mark.parametrize(
        "begin",
        [b"", b"HTTP/1.1 200 OK\r\nContent-", b"HTTP/1.1 200 OK\r\n" + EVENTS],
        ids=["silence", "half a head", "no event"],
    )
    def test_waiting_ends_whatever_the_socket_does(self, begin, era):
        """cancel(), and close() from elsewhere, end calls that a server never answers."""
        waiting = threading.Semaphore(0)

        def call(seen, sock):
            sock.sendall(begin)
            waiting.release()
            return never(seen, sock)

        make_site = modern_site if era == MODERN else legacy_site
        with client_of(make_site(tools_call=call), protocol_version=era) as (client, _):
            calls = [client.start_call("x") for _ in range(2)]
            for _ in calls:
                assert waiting.acquire(timeout=SECONDS)
            calls[0].cancel()
            with pytest.raises(Cancelled):
                calls[0].result()
            closer = started(client.close)
            with pytest.raises(ConnectionClosed):
                calls[1].result()
            closer.join(SECONDS)
            assert not closer.is_alive()

    def test_close_ends_connecting(self):
        """A server that never answers holds up neither connect() nor close()."""
        here = threading.Event()

        def script(seen, sock):
            here.set()
            return never(seen, sock)

        with web_server(script) as (url, _):
            client = Client(url, protocol_version=MODERN)
            with concurrent.futures.ThreadPoolExecutor() as pool:
                connecting = pool.submit(client.connect)
                assert here.wait(SECONDS)
                client.close()
                with pytest.raises(ConnectionClosed):
                    connecting.result(SECONDS)

    def test_who_only_listens_comes_back(self, server):
        """After a server's restart, its lost stream brings a new session."""
        first = server.start_http()
        with first, Client(first.url, protocol_version="2025-11-25") as client:
            # The answer comes behind `initialized`, and the stream.
            client.ping()
            with client.listen() as events:
                first.close()
                heard = []
                listener = started(lambda: heard.append(next(events)))

                def is_heard():
                    server.add_tool(lambda: "new", name="newcomer")
                    server.remove_tool("newcomer")
                    return heard

                with server.start_http(port=first.port):
                    eventually(is_heard)
                listener.join(SECONDS)
        assert heard[0]["method"] == "notifications/tools/list_changed"


def agreeing(url):
    """Return what a URL asks of the user, as a dict."""
    return dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(url).query))


def let_in(site, auth=None, **options):
    """Call the tool there as a client that logs in by `auth`, or by such an OAuth."""
    auth = auth or OAuth(**{"redirect": visit, **options})
    with Client(site.mcp, auth=auth) as client:
        return client.call("x")


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


PRM = "oauth-protected-resource"
ASM = "oauth-authorization-server"
PRM_PATH = "/.well-known/oauth-protected-resource/mcp"
ASM_PATH = "/.well-known/oauth-authorization-server"


class TestAuthorization:
    """The room Authorization, against an authorization server of the tests' own."""

    # Logging in
    def test_the_first_401_leads_to_a_login(self, site):
        """By PKCE, for this resource; then each request shows the token, in a header."""
        assert let_in(site, client_name="tester") == "let in"
        (about,) = site.paths("/register")
        assert about["client_name"] == "tester"
        assert about["application_type"] == "native"
        (asked,) = site.paths("/authorize")
        assert asked["resource"] == site.mcp and asked["response_type"] == "code"
        assert asked["code_challenge_method"] == "S256" and len(asked["state"]) >= 32
        (form,) = site.paths("/token")
        assert form["resource"] == site.mcp and form["client_id"] == "client-1"
        uris = [asked["redirect_uri"], about["redirect_uris"][0]]
        assert uris == [form["redirect_uri"]] * 2
        first, *others = shown_in(site.at("/mcp"), "authorization")
        (token,) = site.tokens
        assert first is None and set(others) == {f"Bearer {token}"}
        assert not any("token-number" in each["path"] for each in site.seen)
        # Some authorization servers answer with JSON only if they are asked to.
        (accept,) = shown_in(site.at("/token"), "accept")
        assert "application/json" in accept

    @pytest.mark.parametrize("where", [None, "http://localhost:{port}/back"])
    def test_the_browser_comes_back_to_a_port(self, site, monkeypatch, where):
        """One that is open for the login only, and hears the request that knows the
        state. A browser may open connections that it does not use. A redirect_uri that
        is registered stays as it is."""
        statuses = []
        uris = []

        def get(place, target):
            web = http.client.HTTPConnection(place, timeout=SECONDS)
            web.request("GET", target)
            with web.getresponse() as response:
                statuses.append(response.status)
            web.close()

        def come_back(url):
            back = urllib.parse.urlsplit(uris[0])
            with contextlib.ExitStack() as stack:
                for _ in range(3 if where is None else 0):
                    idle = socket.create_connection((back.hostname, back.port))
                    stack.enter_context(idle)
                for query in ("?state=x&code=y", "?error=access_denied", ""):
                    get(back.netloc, back.path + query)
                target = urllib.parse.urlsplit(visit(url))
                get(back.netloc, f"{target.path}?{target.query}")

        def open_browser(url):
            uris.append(agreeing(url)["redirect_uri"])
            started(come_back, url)
            return True

        monkeypatch.setattr("webbrowser.open", open_browser)
        wanted = where and where.format(port=free_port())
        assert let_in(site, OAuth(redirect_uri=wanted)) == "let in"
        assert wanted in (None, *uris)
        eventually(lambda: statuses == [404, 404, 404, 200])
        with pytest.raises(OSError):
            port = urllib.parse.urlsplit(uris[0]).port
            socket.create_connection(("127.0.0.1", port), timeout=SECONDS)

    def test_all_threads_log_in_once(self, site):
        """A call waits while another thread logs in, or refreshes its token."""
        auth = OAuth(redirect=visit)
        with Client(site.mcp, auth=auth, protocol_version=MODERN) as client:
            for wave in (1, 2):
                calls = [client.start_call("x") for _ in range(8)]
                assert {text_of(call.result()) for call in calls} == {"let in"}
                assert len(site.paths("/authorize")) == 1
                assert len(site.paths("/token")) == wave
                site.tokens.clear()

    def test_a_redirect_comes_before_the_login(self, site):
        """The login is for the URL that the redirect leads to, and once is enough."""
        site.pages["/"] = (307, {"Location": "/mcp"}, b"")
        auth = OAuth(redirect=visit)
        with Client(site.url + "/", auth=auth, protocol_version=MODERN) as client:
            assert client.call("x") == "let in"
        assert len(site.paths("/authorize")) == 1

    def test_a_proxy_sees_nothing_of_this_machine(self, site, monkeypatch):
        """A login on loopback goes straight there, whatever the environment says."""
        for name in ("no_proxy", "NO_PROXY", "REQUEST_METHOD"):
            monkeypatch.delenv(name, raising=False)
        with web_server(lambda seen, sock: (502, {}, b"")) as (proxy, seen):
            monkeypatch.setenv("http_proxy", proxy)
            assert let_in(site) == "let in"
        assert seen == []

    def test_no_login_begins_where_none_may(self, site):
        """Tokens are shown and renewed; without any no user is asked, and the client
        registers nowhere."""
        kept = {}
        with pytest.raises(AuthorizationError, match="no token that will do") as caught:
            let_in(site, store=kept, may_log_in=False)
        assert (caught.value.url, caught.value.http_status) == (site.mcp, 401)
        assert {each["path"] for each in site.seen} == {"/mcp"}
        let_in(site, store=kept)
        site.tokens.clear()
        assert let_in(site, store=kept, may_log_in=False) == "let in"
        grants = [form["grant_type"] for form in site.paths("/token")]
        assert grants == ["authorization_code", "refresh_token"]

    def test_time_stands_still_while_the_user_logs_in(self, site):
        """A login may take longer than the timeout of the call that waits for it, and
        outlives that call."""
        asked = threading.Event()
        cancelled = threading.Event()

        def think(url):
            asked.set()
            assert cancelled.wait(SECONDS)
            # Longer than the calls may take.
            threading.Event().wait(0.6)
            return visit(url)

        auth = OAuth(redirect=think)
        site.tokens["first"] = {}
        first = {"Authorization": "Bearer first"}
        with Client(site.mcp, headers=first, auth=auth) as client:
            client.timeout = 0.5
            site.tokens.clear()
            calls = [client.start_call("x") for _ in range(2)]
            assert asked.wait(SECONDS)
            calls[0].cancel()
            cancelled.set()
            assert text_of(calls[1].result()) == "let in"
        assert len(site.paths("/authorize")) == 1

    def test_connecting_waits_for_the_user(self):
        """A login may take longer than `timeout`; then the server still has its time."""

        def log_in(challenge):
            # Longer than connect() may take.
            threading.Event().wait(0.6)
            return {"Authorization": "Bearer mine"}

        def script(seen, sock):
            is_in = "authorization" in seen["headers"]
            return site(seen, sock) if is_in else (401, {}, b"")

        site = legacy_site()
        with client_of(script, auth=log_in, timeout=0.5) as (client, _):
            assert client.protocol_version == "2025-11-25"

    def test_the_browser_was_closed(self, site, monkeypatch):
        """The login ends with its timeout; where there is no browser, at once."""
        monkeypatch.setattr("webbrowser.open", lambda url: True)
        with pytest.raises(AuthorizationError, match="no answer came from the browser"):
            let_in(site, OAuth(timeout=0.1))
        monkeypatch.setattr("webbrowser.open", lambda url: False)
        with pytest.raises(AuthorizationError, match="redirect="):
            let_in(site, OAuth())

    # Peers that lie, or fail
    @pytest.mark.parametrize(
        "kind, lie, said",
        [
            (PRM, {"resource": "{url}/mcp/deeper"}, "resource: expected"),
            (PRM, {"resource": None}, "resource: expected"),
            (PRM, {"resource": "http:"}, "resource: expected"),
            (PRM, {"authorization_servers": None}, "authorization_servers"),
            (PRM, {"authorization_servers": ["http://evil.example"]}, "an https URL"),
            (PRM, {"authorization_servers": ["{url}/elsewhere"]}, "no metadata"),
            (ASM, {"issuer": "{url}/"}, "issuer: expected"),
            (ASM, {"token_endpoint": "http://evil.example/token"}, "token_endpoint"),
            (ASM, {"authorization_endpoint": "file:///bin/sh"}, "authorization_end"),
            (ASM, {"registration_endpoint": None}, "client_id="),
            (ASM, {"code_challenge_methods_supported": ["plain"]}, "PKCE"),
            (ASM, {"authorization_response_iss_parameter_supported": True}, "iss: exp"),
        ],
    )
    def test_metadata_that_lie(self, site, kind, lie, said):
        """No secret is sent to where they lead, and the error names the member."""
        site.lies[kind] = json.loads(json.dumps(lie).replace("{url}", site.url))
        with pytest.raises(AuthorizationError, match=re.escape(said)):
            let_in(site)
        assert not site.paths("/token")

    def test_a_challenge_that_lies(self, site):
        """The place that it names for metadata is used, so it must be one of https."""
        challenge = 'Bearer resource_metadata="http://evil.example/"'
        site.pages["/mcp"] = (401, {"WWW-Authenticate": challenge}, b"")
        with pytest.raises(AuthorizationError, match="resource_metadata: expected an"):
            let_in(site)
        assert {each["path"] for each in site.seen} == {"/mcp"}

    def test_a_server_elsewhere_that_leads_here(self, site):
        """Services of this machine are none of a remote server's business."""
        challenge = {"resource_metadata": site.url + PRM_PATH}
        refusal = AuthorizationError("", "https://evil.example/mcp", 401, challenge)
        with pytest.raises(AuthorizationError, match="resource_metadata: expected an"):
            OAuth().handle_unauthorized(refusal, {}, [], contextlib.nullcontext)
        assert not site.seen

    AWAY = {"Location": "https://evil.example/"}

    @pytest.mark.parametrize(
        "path, page, said",
        [
            (PRM_PATH, (500, {}, b"oops"), "HTTP 500"),
            (ASM_PATH, (302, AWAY, b""), "no metadata"),
            (ASM_PATH, (200, {}, b" " * 300_000), "no metadata"),
            ("/register", (400, {}, {"error": "invalid_redirect_uri"}), "redirect_uri"),
            ("/register", (200, {}, b"<html>"), "registration"),
            ("/token", (400, {}, {"error": "invalid_grant"}), "invalid_grant"),
            ("/token", (200, {}, {"error": "bad_code"}), "bad_code"),
            ("/token", (302, AWAY, b""), "HTTP 302"),
            ("/token", (200, {}, {"access_token": "t", "token_type": "mac"}), "mac"),
        ],
    )
    def test_authorization_servers_that_fail(self, site, path, page, said):
        """Error pages, answers without an end, and nonsense are a clear error each."""
        site.pages[path] = page
        with pytest.raises(AuthorizationError, match=said):
            let_in(site)
        assert len(site.paths("/authorize")) <= 1 and len(site.paths("/token")) <= 1

    @pytest.mark.parametrize(
        "answer, said",
        [
            ("?error=access_denied&state={state}", "access_denied"),
            ("?error=x&error_description=Not+today&state={state}", "Not today"),
            ("?state={state}", "no code"),
            ("?code=y&state=somebody-else-s", "another login"),
            ("?error=y&state={state}&iss=https://evil.example", "iss: expected"),
            (None, "given up"),
            (OSError("no screen"), "no screen"),
        ],
    )
    def test_answers_that_are_none(self, site, answer, said):
        """An answer must have our state, the right issuer, and a code: else no code is
        sent anywhere."""

        def come_back(url):
            if isinstance(answer, OSError):
                raise answer
            asked = agreeing(url)
            return answer and asked["redirect_uri"] + answer.format(**asked)

        with pytest.raises(HttpFailure, match=said) as caught:
            let_in(site, redirect=come_back)
        assert not site.paths("/token")
        # "on mismatch the client MUST NOT act on or display `error`"
        assert "iss" not in said or "error=y" not in str(caught.value)

    def test_the_oldest_servers(self, site):
        """Without any metadata, a server is its own authorization server."""
        for path in (PRM_PATH, "/.well-known/oauth-protected-resource", ASM_PATH):
            site.pages[path] = (404, {}, b"")
        assert let_in(site) == "let in"

    def test_a_server_without_a_login(self, server):
        """login() says so."""
        said = "there is no login"
        with server.start_http() as http, pytest.raises(HttpFailure, match=said):
            OAuth(redirect=visit).login(http.url)

    def test_several_authorization_servers(self, site):
        """The first one is taken, issuer= chooses; a secret is shown to no other one.
        Without issuer= there is no secret: "*" says that any server will do."""
        known = {"client_id": "me", "client_secret": "s3cret"}
        with pytest.raises(ValueError, match="issuer"):
            OAuth(**known)
        assert let_in(site, issuer="*", **known) == "let in"
        site.lies[PRM] = {"authorization_servers": ["http://evil.example", site.url]}
        with pytest.raises(AuthorizationError, match="an https URL"):
            let_in(site)
        assert let_in(site, issuer=site.url, **known) == "let in"
        other = "https://other.example"
        with pytest.raises(AuthorizationError, match=f"expected {other}"):
            let_in(site, issuer=other, **known)
        assert len(site.paths("/token")) == 2

    # Tokens
    @pytest.mark.parametrize("status, logins", [(400, 2), (503, 1)])
    def test_a_refresh_that_fails(self, site, status, logins):
        """If it is refused, the user logs in again. While the authorization server is
        down, calls fail, and then no user is asked."""
        auth = OAuth(redirect=visit)
        assert let_in(site, auth) == "let in"
        site.tokens.clear()
        refusal = status, {}, {"error": "invalid_grant"}
        site.pages["/token"] = lambda seen: site.pages.pop("/token") and refusal
        if status == 503:
            with pytest.raises(HttpFailure, match="HTTP 503"):
                let_in(site, auth)
        assert let_in(site, auth) == "let in"
        assert len(site.paths("/authorize")) == logins

    def test_a_token_that_the_server_does_not_take(self, site):
        """One login for one request, not one after the other."""
        site.pages["/token"] = (200, {}, {"access_token": "strange-token"})
        with pytest.raises(AuthorizationError, match="HTTP 401") as caught:
            let_in(site)
        assert len(site.paths("/authorize")) == 1
        assert caught.value.http_status == 401 and caught.value.url == site.mcp
        # The server has said it.
        assert "strange-token" not in str(caught.value)

    def test_step_up(self, site):
        """A 403 for want of scope asks for more, and for what there was; once for one
        request, and not for what was asked for before. Other 403s ask for nothing."""
        wanted = ["write"]

        def be_strict(seen):
            answer = site.answer_mcp(seen)
            is_call = seen["said"].get("method") == "tools/call" and answer[0] == 200
            if not (is_call and wanted):
                return answer
            challenge = f'Bearer error="insufficient_scope", scope="{wanted.pop(0)}"'
            return 403, {"WWW-Authenticate": challenge}, {}

        site.pages["/mcp"] = be_strict
        site.scope = ', scope="read"'
        auth = OAuth(redirect=visit)
        assert let_in(site, auth) == "let in"
        scopes = [each["scope"].split() for each in site.paths("/authorize")]
        assert scopes == [["read"], ["read", "write"]]
        for more in (["admin", "root"], ["admin"]):
            wanted[:] = more
            with pytest.raises(AuthorizationError, match="HTTP 403"):
                let_in(site, auth)
            assert len(site.paths("/authorize")) == 3
        site.pages["/mcp"] = (403, {}, b"not from there")
        with pytest.raises(HttpFailure, match="not from there") as caught:
            let_in(site, auth)
        assert not isinstance(caught.value, AuthorizationError)

    def test_a_login_goes_to_its_own_server_only(self, site):
        """An OAuth that serves two servers shows each its own token."""
        auth = OAuth(redirect=visit)
        with login_site() as other:
            assert let_in(site, auth) == let_in(other, auth) == "let in"
        shown = set(shown_in(other.seen, "authorization"))
        assert shown == {None, *(f"Bearer {token}" for token in other.tokens)}

    def test_a_failure_is_its_own_server_s_only(self, site):
        """A thread that waits for its turn logs in, if a login elsewhere has failed."""
        asked = threading.Event()
        waiting = threading.Event()

        class Watched(OAuth):
            def handle_unauthorized(self, refusal, *rest):
                if refusal.url == site.mcp:
                    waiting.set()
                return super().handle_unauthorized(refusal, *rest)

        def fail(seen):
            asked.set()
            assert waiting.wait(SECONDS)
            return 500, {}, b""

        def log_in_elsewhere():
            with pytest.raises(AuthorizationError, match="HTTP 500"):
                let_in(other, auth)

        auth = Watched(redirect=visit)
        with login_site() as other:
            other.pages[PRM_PATH] = fail
            elsewhere = started(log_in_elsewhere)
            assert asked.wait(SECONDS)
            assert let_in(site, auth) == "let in"
            elsewhere.join(SECONDS)

    @pytest.mark.parametrize("secret", ["access_token", "refresh_token"])
    def test_secrets_are_not_shown(self, site, secret, caplog, capsys):
        """Not in a repr, an error, a log or a trace, even if a server says them."""
        kept = {}
        auth = OAuth(redirect=visit, store=kept)
        lines = []
        caplog.set_level(logging.DEBUG)
        options = {
            "protocol_version": MODERN,
            "trace": lambda _, line: lines.append(line),
        }
        with Client(site.mcp, auth=auth, **options) as client:
            hidden = kept[site.mcp][secret]
            site.tokens.clear()

            site.pages["/token"] = lambda seen: (400, {}, {"error": str(seen["said"])})
            with pytest.raises(AuthorizationError) as caught:
                client.call("x")
        told = "".join(traceback_of(caught.value))
        shown = told + repr(auth) + repr(vars(client)) + caplog.text + repr(lines)
        assert hidden and hidden not in shown + str(capsys.readouterr())

    # Stores
    def test_a_file(self, site, tmp_path):
        """Only its user may read it; it serves another process, and logout forgets."""
        path = tmp_path / "tokens.json"
        OAuth(redirect=visit, store=path).login(site.mcp)
        if os.name == "posix":
            assert path.stat().st_mode & 0o777 == 0o600
        again = OAuth(redirect=lambda url: None, store=str(path))
        assert let_in(site, again) == "let in"
        again.logout(site.mcp)
        assert "token" not in path.read_text().replace(path.name, "")
        with pytest.raises(AuthorizationError, match="given up"):
            let_in(site, again)
        assert list(tmp_path.iterdir()) == [path]

    def test_a_store_of_many_programs(self, tmp_path):
        """What another program has kept stays in the file."""
        path = tmp_path / "tokens"
        urls = [f"https://{number}.example/mcp" for number in range(3)]
        programs = [OAuth(store=path) for _ in urls]
        for auth, url in zip(programs, urls):
            auth.logout(url)
        assert sorted(json.loads(path.read_text())) == urls

    @pytest.mark.parametrize("text", ["{", "[7]", "null"])
    def test_a_damaged_store(self, site, tmp_path, text):
        """It is a clear error, and stays as it is."""
        path = tmp_path / "tokens.json"
        path.write_text(text)
        with pytest.raises(AuthorizationError, match="damaged"):
            let_in(site, store=path)
        assert path.read_text() == text and not site.seen

    # Who we are there
    @pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
    def test_a_client_that_is_known(self, site, method):
        """client_id= needs no registration, and its secret goes as the server has it."""
        site.lies[ASM] = {"token_endpoint_auth_methods_supported": [method]}
        known = {"client_id": "me:1", "client_secret": "s e/cret", "issuer": site.url}
        assert let_in(site, **known) == "let in"
        assert not site.paths("/register")
        (form,) = site.paths("/token")
        (header,) = shown_in(site.at("/token"), "authorization")
        shown = [form.get("client_secret"), header]
        basic = "Basic " + base64.b64encode(b"me%3A1:s+e%2Fcret").decode()
        is_basic = method == "client_secret_basic"
        assert shown == ([None, basic] if is_basic else ["s e/cret", None])
        # Some authorization servers look for it there, beside a header.
        assert form["client_id"] == "me:1"

    @pytest.mark.parametrize("in_file", [False, True])
    def test_a_registration_is_used_again(self, site, tmp_path, in_file):
        """Its secret is shown as the server wants it. After a login that failed, the
        client registers anew."""
        methods = ["client_secret_post"]
        site.lies[ASM] = {"token_endpoint_auth_methods_supported": methods}
        client = {"client_id": "c", "client_secret": "hush"}
        site.pages["/register"] = (201, {}, client)
        auth = OAuth(redirect=visit, store=tmp_path / "x" if in_file else None)
        for _ in range(2):
            auth.login(site.mcp)
        (about,) = site.paths("/register")
        assert about["token_endpoint_auth_method"] == methods[0]
        assert {form["client_secret"] for form in site.paths("/token")} == {"hush"}
        site.pages["/token"] = (400, {}, {"error": "invalid_client"})
        with pytest.raises(AuthorizationError, match="invalid_client"):
            auth.login(site.mcp)
        del site.pages["/token"]
        auth.login(site.mcp)
        assert len(site.paths("/register")) == 2

    def test_a_document_about_the_client(self, site):
        """Its URL is the client_id where the server can read it."""
        site.lies[ASM] = {"client_id_metadata_document_supported": True}
        about = "https://client.example/about.json"
        assert let_in(site, client_metadata_url=about) == "let in"
        assert site.paths("/authorize")[0]["client_id"] == about
        assert not site.paths("/register")

    def test_without_a_user(self, site):
        """client_credentials, by a secret; and in a subclass, by a signed JWT: of who
        we are, or as the grant."""
        from examples.conformance_client import VouchedOAuth

        known = {"client_id": "me", "client_secret": "secret", "issuer": "*"}
        plain = {"grant": "client_credentials", "scopes": "a b", **known}
        assert let_in(site, **plain) == "let in"
        for is_grant in (False, True):
            auth = VouchedOAuth(
                assertion=lambda audience: f"jwt {audience}",
                is_grant=is_grant,
                client_id="me",
                scopes="a b",
            )
            assert let_in(site, auth) == "let in"
        by_secret, by_jwt, bearer = site.paths("/token")
        assert by_secret["grant_type"] == by_jwt["grant_type"] == "client_credentials"
        assert {form["scope"] for form in (by_secret, by_jwt, bearer)} == {"a b"}
        token = f"jwt {site.url}"
        assert by_jwt["client_assertion"] == bearer["assertion"] == token
        assert bearer["client_id"] == "me"
        assert bearer["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
        assert not site.paths("/authorize")

    def test_the_resource_can_be_left_out(self, site):
        """For authorization servers that refuse it."""
        assert let_in(site, send_resource=False) == "let in"
        forms = site.paths("/authorize") + site.paths("/token")
        assert not any("resource" in each for each in forms)

    # Servers
    def test_our_own_server(self, site, server):
        """verify= and resource_metadata= say what a client needs to get in: first the
        scope that there is, then the one that a tool needs. One login is enough for both
        URLs of the oldest revision."""

        def verify(token):
            if token not in site.tokens:
                return None
            asked = site.paths("/authorize")[-1]["scope"].split()
            if "write" not in asked:
                raise PermissionError("write")
            return {"sub": "ann", "scope": asked}

        @server.tool
        def who(ctx: Context) -> dict:
            return ctx.auth

        port = free_port()
        metadata = {
            "resource": f"http://127.0.0.1:{port}",
            "authorization_servers": [site.url],
            "scopes_supported": ["read"],
        }
        options = {"port": port, "verify": verify, "resource_metadata": metadata}
        with server.start_http(**options) as http:
            for version in (MODERN, "2025-06-18", "2024-11-05"):
                auth = OAuth(redirect=visit)
                url = http.url
                if version == "2024-11-05":
                    url = url.replace("/mcp", "/sse")
                with Client(url, auth=auth, protocol_version=version) as client:
                    scopes = ["read", "write"]
                    assert client.call("who") == {"sub": "ann", "scope": scopes}
        asked = [each["scope"] for each in site.paths("/authorize")]
        assert asked == ["read", "read write"] * 3

    def test_the_example_of_a_server(self, site):
        """examples/oauth_server.py asks the authorization server about each token."""
        port = free_port()
        url = f"http://127.0.0.1:{port}/mcp"
        site.lies[ASM] = {"introspection_endpoint": site.url + "/introspect"}
        told = {"active": True, "sub": "ann", "scope": "read", "aud": [url]}
        claims = {}

        # It knows every token that it is asked about.
        site.pages["/introspect"] = lambda seen: (200, {}, claims)
        script = os.path.join(HERE, "examples", "oauth_server.py")
        known = {"INTROSPECTION_ID": "me", "INTROSPECTION_SECRET": "secret"}
        with subprocess.Popen(
            [sys.executable, script, site.url, "--http", str(port)],
            env={**os.environ, **known},
            stderr=subprocess.DEVNULL,
        ) as program, contextlib.ExitStack() as stack:
            stack.callback(program.kill)

            def is_up():
                assert program.poll() is None, "the server has ended"
                with contextlib.suppress(OSError):
                    socket.create_connection(("127.0.0.1", port)).close()
                    return True

            eventually(is_up)
            # A token that is good, but for another server; then ones for this one.
            claims.update(told, aud=["https://other.example/mcp"])
            with pytest.raises(AuthorizationError, match="HTTP 401"):
                Client(url, auth=OAuth(redirect=visit)).connect()
            claims.update(told)
            with Client(url, auth=OAuth(redirect=visit)) as client:
                assert client.call("read_notes") == []
                with pytest.raises(ToolError, match="may not write"):
                    client.call("add_note", text="x")
            claims["scope"] = "read write"
            with Client(url, auth=OAuth(redirect=visit)) as client:
                assert client.call("add_note", text="x") == "added"
                assert client.call("read_notes") == ["ann: x"]

    # Without an OAuth, or before a client
    def test_a_function(self, site):
        """auth=fn(challenge) returns headers, or None for no."""
        asked = []

        def answer(challenge):
            asked.append(challenge)
            return {"Authorization": "Bearer mine"} if len(asked) == 1 else None

        site.tokens["mine"] = {}
        with Client(site.mcp, auth=answer, protocol_version=MODERN) as client:
            assert client.call("x") == "let in"
            assert len(asked) == 1 and asked[0]["scheme"] == "bearer"
            site.tokens.clear()
            with pytest.raises(AuthorizationError, match="HTTP 401"):
                client.call("x")
        assert len(asked) == 2

    def test_a_function_is_asked_once(self, site):
        """However many calls wait for its answer."""
        asked = []
        gate = threading.Barrier(4)

        def answer(challenge):
            asked.append(challenge)
            # The others come meanwhile, if they can.
            threading.Event().wait(0.1)
            site.tokens["mine"] = {}
            return {"Authorization": "Bearer mine"}

        def refuse_together(seen):
            page = site.answer_mcp(seen)
            if page[0] == 401:
                gate.wait(SECONDS)
            return page

        with Client(site.mcp, auth=answer, protocol_version=MODERN) as client:
            site.tokens.clear()
            asked.clear()
            site.pages["/mcp"] = refuse_together
            calls = [client.start_call("x") for _ in range(4)]
            assert {text_of(call.result()) for call in calls} == {"let in"}
        assert len(asked) == 1

    def test_headers_that_change(self):
        """headers=fn is called for each request."""
        numbers = map(str, itertools.count())
        site = modern_site(tools_call=called("x"))
        with client_of(site, headers=lambda: {"X-N": next(numbers)}) as (client, seen):
            assert client.call("x") == "x"
            assert shown_in(seen, "x-n") == ["0", "1"]

    def test_options_that_do_not_fit(self):
        """They are an error at once."""
        for grant in ("password", "client_credentials"):
            with pytest.raises(ValueError, match=f'got "{grant}"'):
                OAuth(grant=grant)
        with pytest.raises(ValueError, match="client_secret"):
            OAuth(client_secret="x", client_id="x")

    def test_tokens_need_https(self, site):
        """A URL over which anybody could read a token is refused before a request."""
        with pytest.raises(AuthorizationError, match="an https URL"):
            Client("http://10.0.0.1/mcp", auth=OAuth()).connect()
        with pytest.raises(AuthorizationError, match="redirect_uri: expected an https"):
            let_in(site, redirect_uri="http://client.example/back")
        # Without a user, and with nothing stored, there is no token to be read.
        assert OAuth(may_log_in=False).headers("POST", "http://10.0.0.1/mcp") == {}

    @pytest.mark.parametrize(
        "text, challenge",
        [
            ("", {}),
            ("Basic realm=x", {}),
            ("Bearer", {"scheme": "bearer"}),
            ('bearer Scope="a b"', {"scheme": "bearer", "scope": "a b"}),
            (
                'Basic realm="x", BEARER error=e , scope = ""',
                {"scheme": "bearer", "error": "e", "scope": ""},
            ),
            ('Bearer a="b, c=d", a=2', {"scheme": "bearer", "a": "b, c=d"}),
            ("DPoP algs=ES256, Bearer a=b", {"scheme": "bearer", "a": "b"}),
            ("DPoP algs=ES256", {"scheme": "dpop", "algs": "ES256"}),
            ('Bearer a="b', {"scheme": "bearer"}),
        ],
    )
    def test_challenges(self, text, challenge):
        """WWW-Authenticate may hold several challenges, quoted or not."""
        refusal = 401, {"WWW-Authenticate": text}, b""
        with web_server(lambda seen, sock: refusal) as (url, _):
            assert http_failure_of(url).challenge == challenge


class TestCommandLine:
    """The room Command line, as a shell sees it."""

    SERVER = '''
import typing
from mcp_lite import Context, EmbeddedResource, Image, Server, ToolError
server = Server("demo", version="2", instructions="Be kind.\\nAlways.")
other = Server("other")
@server.tool
def forecast(city: str, days: int = 3, unit: typing.Literal["C", "F"] = "C") -> list:
    """The forecast for a city.

    More of it."""
    return [f"day {n}: {city}" for n in range(days)]
@server.tool
def echo(text: str, n: typing.Optional[int] = None, xs: typing.List[int] = [],
         anything: typing.Any = None) -> dict:
    return {"text": text, "n": n, "xs": xs, "anything": anything}
@server.tool
def paint() -> Image:
    return Image(b"\\x89PNG", mime_type="image/png")
@server.tool
def fail(why: str):
    raise ToolError(why)
@server.tool
def work(ctx: Context) -> str:
    for n in range(3):
        ctx.progress(n + 1, 3, "at work")
    return "done"
@server.tool
def ask(ctx: Context) -> dict:
    return ctx.elicit("Who?", {"type": "object", "required": ["sure"], "properties": {
        "name": {"type": "string", "default": "Bob"}, "sure": {"type": "boolean"},
        "color": {"type": "string", "oneOf": [
            {"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}]},
        "many": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
    }})
@server.tool
def visit(ctx: Context) -> dict:
    return ctx.elicit_url("Pay", "http://shop.example:8000/pay?x=1")
@server.tool
def stay(ctx: Context) -> None:
    print("begun")
    try:
        ctx.sleep(600)
    finally:
        print("cancelled")
@server.resource("config://app", description="How it is set up.")
def config() -> str:
    return "a text\\nof two lines"
@server.resource("blob://x")
def blob() -> bytes:
    return bytes(range(256))
@server.resource("word://{x}")
def word(x: str) -> str:
    return x
@server.prompt
def review(code: str, tone: str = "kind") -> str:
    """Review code."""
    return f"review {code}, be {tone}"
print("noise", flush=True)
server.run()
'''
    COMMAND = [*PYTHON, "-m", "mcp_lite"]
    # A server that knows no method.
    OLD = """if True:
        import json
        while True:
            error = {"code": -32601, "message": "what?"}
            answer = {"jsonrpc": "2.0", "id": json.loads(input())["id"], "error": error}
            print(json.dumps(answer), flush=True)
    """

    @pytest.fixture
    def script(self, tmp_path):
        path = tmp_path / "server.py"
        path.write_text(f"import sys; sys.path.insert(0, {HERE!r})\n{self.SERVER}")
        return str(path)

    def start(self, *arguments, **env):
        """A command, in a process of its own."""
        env = {**os.environ, "HOME": "/nonexistent", **env}
        options = {"stdin": PIPE, "stdout": PIPE, "stderr": PIPE, "cwd": HERE}
        return subprocess.Popen([*self.COMMAND, *arguments], env=env, **options)

    def run(self, *arguments, input="", **env):
        """The exit code, stdout and stderr of a command."""
        with self.start(*arguments, **env) as process:
            told, rest = process.communicate(input.encode(), timeout=SECONDS)
        told = told.replace(os.linesep.encode(), b"\n")
        return process.returncode, told, rest.decode()

    def prints(self, *arguments, **options):
        """The stdout of a command that does well."""
        exit_code, told, rest = self.run(*arguments, **options)
        assert exit_code == 0, rest
        return told.decode()

    def test_list(self, script):
        """It shows what a server is, and all that it offers, a line each."""
        lines = self.prints("list", script, "--schema").splitlines()
        for line in (
            "demo 2",
            f"revision: {MODERN} (modern)",
            "capabilities: logging, tools, resources, completions, prompts",
            "instructions: Be kind.",
            '  forecast(city: string, days: integer = 3, unit: "C" | "F" = "C")'
            "  The forecast for a city.",
            "resources (2)",
            "  config://app  How it is set up.",
            "  word://{x}",
            "  review(code, tone?)  Review code.",
            "  echo(text: string, n?: integer, xs: array = [], anything?: any)",
            '    "city"',
        ):
            assert line in lines
        words = ["list", "--json", "--protocol", "2025-06-18", "--", *PYTHON, script]
        report = json.loads(self.prints(*words))
        assert report["protocolVersion"] == "2025-06-18"
        assert report["serverInfo"] == {"name": "demo", "version": "2"}
        assert report["tools"][0]["inputSchema"]["required"] == ["city"]
        assert [len(report[kind]) for kind in ("resources", "prompts")] == [2, 1]

    def test_list_for_models(self, script, tmp_path):
        """With --format, `list` prints the tools as a model's API takes them."""

        def listed(target, form):
            words = ["list", target, "--schema", "--format", form]
            return json.loads(self.prints(*words))

        (openai, *others) = listed(script, "openai")
        assert openai["type"] == "function" and len(others) == 7
        assert openai["function"]["name"] == "forecast"
        assert openai["function"]["description"].startswith("The forecast for a city.")
        assert openai["function"]["parameters"]["required"] == ["city"]
        (anthropic, *_) = listed(script, "anthropic")
        assert anthropic["input_schema"] == openai["function"]["parameters"]
        assert "type" not in anthropic
        plain = program(
            tmp_path,
            """
            server = Server("s")
            server.add_tool(lambda: 1, name="t", input_schema={"type": "object"})
            server.run()
            """,
        )[-1]
        (tool,) = listed(plain, "openai")
        assert tool["function"]["parameters"] == {"type": "object", "properties": {}}

    def test_quiet(self, tmp_path):
        """--quiet hides a child's stderr, unless the child fails: then its last lines
        are shown."""
        script = program(
            tmp_path,
            """
            server = Server("s")
            server.add_tool(lambda: print("noise") or 1, name="t")
            server.run()
            """,
        )[-1]
        assert "noise" in self.run("call", script, "t")[2]
        code, out, rest = self.run("call", script, "t", "--quiet")
        assert (code, rest) == (0, "")
        words = ["list", "--quiet", "--", *PYTHON, "-c", "def f():\n  1/0\nf()"]
        code, out, rest = self.run(*words)
        assert (code, out) == (4, b"")
        assert "in f" in rest
        assert rest.splitlines()[-1] == "ZeroDivisionError: division by zero"

    def test_call(self, script):
        """Each value is read as the tool's schema wants it."""

        def call(wanted, *words):
            told = self.prints("call", script, "echo", *words, input='{"text": "y"}')
            result = json.loads(told)
            assert result == {**result, **wanted}

        nothing = {"n": None, "xs": [], "anything": None}
        at_once(
            call,
            [
                ({"text": "012", **nothing}, "text=012"),
                ({"text": "5", "n": 5, "anything": 5}, "text=5", "n=5", "anything=5"),
                ({"text": '"x"', "xs": [1, 2]}, 'text="x"', "xs=[1,2]"),
                ({"text": "a=b", "anything": "a b"}, "text=a=b", "anything=a b"),
                ({"text": "x", "n": 8}, "--input", '{"n": 7, "text": "x"}', "n=8"),
                ({"text": "y", "n": None}, "--input", "-", "n=null"),
            ],
        )

    def test_results(self, script):
        """A text or bytes come as they are, all else as JSON; --json is the result."""
        review = ["prompt", script, "review", "code=x"]
        shown = [
            ("call", script, "paint", "--json"),
            ("read", script, "blob://x", "--json"),
            (*review, "--json"),
            ("call", script, "ask"),
            ("call", "work", "--", *PYTHON, script, "--json"),
            ("read", script, "config://app"),
            tuple(review),
        ]
        *objects, work, config, prompt = at_once(self.prints, shown)
        painted, read, reviewed, asked = map(json.loads, objects)
        assert painted["content"][0]["mimeType"] == "image/png"
        assert "blob" in read["contents"][0]
        assert reviewed["messages"][0]["role"] == "user"
        assert asked["action"] == "decline"
        assert (work, config) == ("done\n", "a text\nof two lines\n")
        assert prompt == "user: review x, be kind\n"
        assert self.run("read", script, "blob://x")[1] == bytes(range(256))

    def test_failures(self, script):
        """A failure is one line on stderr; the exit code says which kind."""
        python = ["list", "--", *PYTHON, "-c"]
        modern = ["list", "--protocol", MODERN, *python[1:]]
        stays = ["call", script, "stay", "--timeout", "1"]
        died = "the end of its stderr: ZeroDivisionError: division by zero"

        def run(exit_code, told, *arguments):
            code, out, rest = self.run(*arguments)
            assert (code, out) == (exit_code, b""), arguments
            lines = rest.splitlines()
            (line,) = (each for each in lines if each.startswith("mcp_lite: "))
            assert told in line

        at_once(
            run,
            [
                (4, "no answer within 1 ", *stays),
                (1, "invalid choice: 'nosuch'", "nosuch"),
                (1, "missing a required argument: 'target'", "list"),
                (1, "missing a required argument: 'tool'", "call", script),
                (1, "too many positional", "read", script, "config://app", "x"),
                (1, "expected NAME=VALUE", "call", script, "echo", "text"),
                (1, "--input: expected", "call", script, "echo", "--input", "{bad"),
                (1, "--input: expected", "call", script, "echo", "--input", "[1]"),
                (1, "expected NAME:VALUE", "list", script, "--header", "Secret"),
                (1, "version: expected", "list", script, "--protocol", "2024-11-06"),
                (1, "No such file or directory: ", "run", "nofile.py"),
                (1, "invalid syntax", "run", "setup.cfg"),
                (4, "nobody", "list", "nobody"),
                (4, f"which is not {MODERN}", *modern, self.OLD),
                (4, "127.0.0.1:9", "list", "http://127.0.0.1:9/mcp"),
                (4, died, *python, "1/0"),
                (4, "is run() missing?", *python, "1"),
                (5, "Unknown tool: nosuch", "call", script, "nosuch"),
                (5, r"no \x1bway", "call", script, "fail", "why=no \x1bway"),
            ],
        )
        # A tool's own words may be lines.
        code, _, rest = self.run("call", script, "fail", "why=one\ntwo")
        assert (code, rest.splitlines()[-2:]) == (5, ["mcp_lite: one", "two"])

    def test_what_a_server_shows_is_escaped(self, tmp_path):
        """Control characters in lists and prompts are, in a pipe as well."""
        script = program(
            tmp_path,
            """
            server = Server("a\x1b[31m")
            server.add_tool(lambda: 1, name="t", description="red \x1b[31m")
            server.add_prompt(lambda: "bell \x07", name="p")
            server.run()
            """,
        )[-1]
        assert r"  t()  red \x1b[31m" in self.prints("list", script).splitlines()
        assert self.prints("prompt", script, "p") == "user: bell \\x07\n"

    def test_a_failure_in_json(self, script):
        """With --json it is an object with the message, its code and the exit code."""
        code, out, rest = self.run("call", script, "nosuch", "--json")
        error = json.loads(rest.splitlines()[-1])["error"]
        assert (code, out, error["exit"], error["code"]) == (5, b"", 5, -32602)
        assert "Unknown tool: nosuch" in error["message"]

    def test_tokens(self, tmp_path):
        """The stored token is sent, unless a header has one; none leads to `login`."""
        server = Server("who")

        def who(ctx: Context) -> str:
            return f"{ctx.auth['sub']}, {ctx.headers.get('x-team')}"

        server.add_tool(who)
        verify = {"stored": {"sub": "ada"}, "given": {"sub": "bob"}}
        home = {"HOME": str(tmp_path), "USERPROFILE": str(tmp_path)}
        with server.start_http(verify=verify) as http:
            store = tmp_path / ".mcp_lite_tokens.json"
            store.write_text(json.dumps({http.url: {"access_token": "stored"}}))
            call = ["call", http.url, "who"]
            assert self.prints(*call, **home) == "ada, None\n"
            headers = ["--header", "authorization: Bearer given"]
            headers += ["--header", "X-Team: blue"]
            assert self.prints(*call, *headers, **home) == "bob, blue\n"
            assert self.run("logout", http.url, **home)[0] == 0
            code, _, rest = self.run(*call, **home)
        assert code == 3
        line = rest.splitlines()[-1]
        assert line.endswith(f"by --header, or python3 -m mcp_lite login {http.url})")

    def at_terminal(self, *arguments, answers=()):
        """Return what a command shows at a terminal, with answers as it asks."""
        import pty

        parent, child = pty.openpty()
        options = {"stdin": child, "stdout": child, "stderr": child, "cwd": HERE}
        process = subprocess.Popen([*self.COMMAND, *arguments], **options)
        os.close(child)
        left = list(answers)
        told = b""
        heard = 0
        # A terminal whose other end is closed raises OSError.
        with contextlib.suppress(OSError):
            while True:
                told += os.read(parent, 4096)
                if left and left[0][0] in told[heard:]:
                    heard = len(told)
                    os.write(parent, left.pop(0)[1])
        assert process.wait(SECONDS) == 0, told
        os.close(parent)
        assert not left, told
        return told.decode()

    @pytest.mark.skipif(os.name == "nt", reason="it has no pseudo-terminals")
    def test_on_a_terminal(self, script):
        """Progress is a line there, and nothing of a server's commands the terminal. A
        server says that it waits for a client."""
        told = b"demo: waits for a client on stdin"
        self.at_terminal("run", script, answers=[(told, b"\x04")])
        assert "3/3 at work" in self.at_terminal("call", script, "work")
        told = self.at_terminal("call", script, "echo", "text=\x1b[31mred")
        assert "\x1b[31m" not in told.replace("\x1b[K", "")

    @pytest.mark.skipif(os.name == "nt", reason="it has no pseudo-terminals")
    def test_questions(self, script):
        """Each field is asked for, until all fit, or the user does not agree; URLs are
        shown with their host."""
        told = self.at_terminal(
            *["call", script, "ask"],
            answers=[
                (b'name (string = "Bob"): ', b"Joe\n"),
                (b"sure (boolean): ", b"perhaps\n"),
                (b'color ("r" | "g"): ', b"b\n"),
                (b"many (array): ", b'["b"]\n'),
                (b"Agree? [y/N]: ", b"y\n"),
                (b'name (string = "Bob"): ', b"\n"),
                (b"sure (boolean): ", b"true\n"),
                (b'color ("r" | "g"): ', b"g\n"),
                (b"many (array): ", b'["b"]\n'),
                (b"Agree? [y/N]: ", b"y\n"),
            ],
        )
        assert "The server asks: Who?" in told
        assert 'sure: expected boolean, got "perhaps"' in told
        answer = json.loads(told[told.index("{\r\n") :])
        content = {"name": "Bob", "sure": True, "color": "g", "many": ["b"]}
        assert answer == {"action": "accept", "content": content}
        ctrl_d = [(word, b"\x04") for word in (b"name", b"sure", b"color", b"many")]
        ctrl_d.append((b"Agree? [y/N]: ", b"\x04"))
        told = self.at_terminal("call", script, "ask", answers=ctrl_d)
        assert '"action": "decline"' in told
        told = self.at_terminal("call", script, "visit", answers=[(b"[y/N]", b"\n")])
        assert "visit shop.example: http://shop.example:8000/pay?x=1\r\n" in told
        assert '"action": "decline"' in told

    @pytest.mark.skipif(os.name == "nt", reason="Ctrl-C is another thing there")
    def test_ctrl_c_cancels_the_call(self, script):
        """The exit code is 130, and the tool has been told."""
        with self.start("call", script, "stay") as process:
            assert any(b"begun" in line for line in process.stderr)
            process.send_signal(signal.SIGINT)
            told, rest = process.communicate(timeout=SECONDS)
        assert (process.returncode, told) == (130, b"")
        assert b"cancelled" in rest

    def test_run(self, script, tmp_path):
        """`run` serves a file's server, on stdio or at a URL; one by name, too."""
        trace = tmp_path / "trace"
        command = [*self.COMMAND, "run", script, "--trace", str(trace)]
        with Client(command, cwd=HERE) as client:
            assert client.call("work") == "done"
        assert "tools/call" in trace.read_text()
        with Client([*self.COMMAND, "run", f"{script}:other"], cwd=HERE) as client:
            assert client.server_info["name"] == "other"
        with self.start("run", script, "--http", "0.0.0.0:0") as process:
            line = next(line for line in process.stderr if b"http://" in line)
            assert b"without verify=" in line
            url = re.search(rb"http://[^\s,]+", line)[0].decode()
            with Client(url) as client:
                assert client.call("work") == "done"
            # On Windows, one process cannot send Ctrl-C to another.
            process.kill() if os.name == "nt" else process.send_signal(signal.SIGINT)
            process.communicate(timeout=SECONDS)

    def test_help(self):
        """Each command is explained; nothing of it is imported with mcp_lite."""
        asked = [("--help",), (), ("--version",)]
        overview, nothing, version = at_once(self.prints, asked)
        assert nothing == overview
        source = pathlib.Path(mcp_lite.__file__).read_bytes()
        assert version.splitlines() == [
            mcp_lite.__version__,
            f"revisions: {', '.join(EVERY)}",
            f"sha256: {hashlib.sha256(source).hexdigest()}",
        ]
        for name in ("list", "call", "read", "prompt", "run", "login", "logout"):
            assert f"{name} " in overview
        code = "import sys, mcp_lite; sys.exit('argparse' in sys.modules)"
        run(*PYTHON, "-c", code)

    def test_an_old_code_page(self, script):
        """A character that it lacks is escaped, and JSON stays JSON."""
        told = "\u00e9 \u0081 \u4f60 \U0001f600"
        env = {"PYTHONIOENCODING": "cp1252"}
        printed = self.prints("call", script, "echo", f"text={told}", **env)
        assert json.loads(printed)["text"] == told
        out = self.run("prompt", script, "review", f"code={told}", **env)[1]
        assert b"\xe9 \\x81 \\u4f60 \\U0001f600" in out


def eras(target):
    """The revisions to try what differs between the eras.

    The old HTTP+SSE has but one."""
    return ("2025-11-25",) if str(target).endswith("/sse") else ("2025-11-25", MODERN)


class TestEverywhere:
    """Context to Client: the same promises over memory and stdio, in every revision."""

    def test_tools(self, target, version):
        """Values, texts, blocks, structured results, errors."""
        with Client(target, protocol_version=version) as client:
            assert client.protocol_version == version
            assert client.server_info["name"] == "everything"
            assert client.instructions == "Call anything."
            names = {tool["name"] for tool in client.list_tools()}
            assert names >= {"echo", "add", "bad"}
            assert client.call("add", a=2, b=3) in (5, "5")
            assert client.call("greet", name="Bo") == "hello Bo"
            blocks = client.call("media")
            assert blocks[0] == {"type": "text", "text": "text"}
            assert blocks[1]["mimeType"] == "image/png"
            if version >= "2025-06-18":
                assert client.call("person", name="Bo") == {"name": "Bo", "age": 7}
                assert client.call("echo", value={"result": 1}) == {"result": 1}
                kinds = [block["type"] for block in blocks]
                assert kinds == "text image audio resource resource_link".split()
                for value in (None, [], [1, "a"], {"a": None}, 1.5, True):
                    assert client.call("echo", value=value) == value
            with pytest.raises(NotFound, match="greet"):
                client.call("gret")

    def test_failures(self, target, version):
        """ToolError, protocol errors, any exception, exits, recursion: each is told,
        none ends the server."""
        with Client(target, protocol_version=version) as client:
            with pytest.raises(ToolError, match="one") as caught:
                client.call("fail", how="tool")
            kinds = [block["type"] for block in caught.value.content]
            assert kinds == ["text", "image"]
            with pytest.raises(McpError, match="no") as refused:
                client.call("fail", how="protocol")
            assert (refused.value.code, refused.value.data) == (1050, {"why": 1})
            for how, said in (
                ("other", "KeyError: 'other'"),
                ("exit", "SystemExit: 3"),
                ("deep", "RecursionError"),
            ):
                # Over HTTP, they are only in the log.
                said = f"fail: {said}|fail failed; see the server's log"
                with pytest.raises(ToolError, match=said):
                    client.call("fail", how=how)
            wrong = ToolError if version >= "2025-11-25" else InvalidParams
            # One that resembles none, `c`, is dropped.
            said = "a: expected integer, got true$"
            with pytest.raises(wrong, match=said):
                client.call("add", a=True, c=1)
            with pytest.raises(ToolError, match="timed out after 0.01 seconds"):
                client.call("slow")
            client.ping()

    def test_resources(self, target, version):
        """Fixed and templates, text and bytes, lists, not found."""
        with Client(target, protocol_version=version) as client:
            assert client.read("x://note") == "note" and client.read("x://bytes") == PNG
            data = {"uri": "x://data", "mimeType": "application/json"}
            data["text"] = '{"a":1}'
            assert client.read_resource("x://data")["contents"] == [data]
            user = json.loads(client.read("x://users/Bo%20B/7?color=red"))
            assert user == {"name": "Bo B", "age": 7, "color": "red"}
            assert client.read("x://files/a/../b") == "a/../b"
            names = [each["name"] for each in client.list_resources()]
            assert names == ["note", "raw", "data"]
            templates = client.list_resource_templates()
            wanted = ["x://users/{name}/{age}{?color}", "x://files/{+path}"]
            assert [each["uriTemplate"] for each in templates] == wanted
            for wrong in ("x://no", "x://users/Bo/seven", "x://users/../7"):
                with pytest.raises(NotFound) as caught:
                    client.read(wrong)
                expected = -32602 if version == MODERN else -32002
                assert caught.value.code == expected

    def test_prompts_and_completion(self, target, version):
        """Arguments by hint, messages, completers, and completion of Literal and bool
        by itself."""
        with Client(target, protocol_version=version) as client:
            review = client.list_prompts()[0]
            code = {"name": "code", "required": True}
            assert review["arguments"] == [code, {"name": "style"}, {"name": "deep"}]
            found = client.get_prompt("review", {"code": "x", "deep": "true"})
            said = [f"{m['role']} {m['content']['type']}" for m in found["messages"]]
            assert said == ["user text", "assistant text", "user image"]
            assert found["messages"][0]["content"]["text"] == "kind True"
            assert found["description"] == "Review some code."
            with pytest.raises(InvalidParams, match="style: expected one of"):
                client.get_prompt("review", {"code": "x", "style": "rude"})
            with pytest.raises(NotFound):
                client.get_prompt("no")
            assert client.complete("review", "style", "s") == ["strict"]
            assert client.complete("review", "deep", "") == ["true", "false"]
            values = client.complete("review", "code", "v", {"style": "kind"})
            assert values[:2] == ["v0", "v1"]
            assert len(client.complete("review", "code", "v")) == 100
            assert client.complete("x://users/{name}/{age}{?color}", "name", "") == []
            with pytest.raises(InvalidParams):
                client.complete("no", "a", "")

    def test_questions(self, target, version):
        """One blocking call asks the user, the model and the roots, in both eras."""
        seen = []
        hear = {**CALLBACKS, "trace": lambda _, line: seen.append(line)}
        with Client(target, protocol_version=version, **hear) as client:
            assert client.call("think") == "four"
            roots = client.call("where")
            assert pathlib.Path("/tmp").absolute().as_uri() in str(roots)
            if version < "2025-06-18":
                with pytest.raises(MissingCapability):
                    client.call("form")
                return
            given = {"name": "who?", "age": 7}
            assert client.call("form") == {"action": "accept", "content": given}
            assert client.call("form_person") == "Person(name='who?', age=7)"
            assert client.call("steps")[1:] == ["first", "second"]
            assert client.call("together") == ["a", "b", "c"]
            [message] = client.get_prompt("asks")["messages"]
            assert message["content"]["text"] == "for who?"
            if version >= "2025-11-25":
                assert client.call("visit") == {"action": "accept", "content": None}
                assert (b"elicitationId" in b"".join(seen)) == (version < MODERN)

    def test_refusals_of_questions(self, target):
        """None cancels, decline declines, and a callback that fails breaks nothing."""
        for version in eras(target):
            options = {"protocol_version": version}
            for given, action in ((None, "cancel"), ({"action": "decline"}, "decline")):
                options["on_elicit"] = lambda params, given=given: given
                with Client(target, **options) as client:
                    assert client.call("form") == {"action": action, "content": None}
            options["on_elicit"] = lambda params: 1 / 0
            with Client(target, on_sample=lambda params: 5, **options) as client:
                for tool in ("form", "think"):
                    with pytest.raises((McpError, ToolError)):
                        client.call(tool)
                client.ping()

    def test_progress_and_logs(self, target, version):
        """Progress in the calling thread, logs in order on one other thread."""
        here = threading.current_thread()
        seen = []
        logs = []

        def on_progress(progress, total, message):
            seen.append((progress, total, message, threading.current_thread() is here))

        def on_log(*told):
            logs.append((told, threading.current_thread()))

        with Client(target, protocol_version=version, on_log=on_log) as client:
            result = client.call_tool("count", {"to": 2}, on_progress=on_progress)
            assert result["content"] == [{"type": "text", "text": "counted"}]
            assert seen == [(n, 2, f"step {n}", True) for n in (1, 2)]
            client.set_log_level("error")
            client.call("logs")
            eventually(lambda: len(logs) >= 4)
        assert [a[0] for a, _ in logs] == ["error", "critical", "alert", "emergency"]
        assert logs[0][0] == ("error", {"level": "error"}, "test")
        assert len({thread for _, thread in logs}) == 1 and logs[0][1] is not here

    def test_cancellation_and_timeouts(self, target, version):
        """A call that is cancelled or late ends here and there."""
        with Client(target, protocol_version=version) as client:
            call = client.start_call("wait")
            assert "true" in str(client.call_tool("is_waiting")["content"])
            assert not call.done()
            call.cancel("enough")
            assert call.done()
            with pytest.raises(Cancelled):
                call.result()
            assert "cancelled" in str(client.call("waited"))
            with pytest.raises(Timeout, match="tools/call: no answer within 0.01 s"):
                client.call_tool("wait", timeout=0.01)
            client.ping()

    @pytest.mark.parametrize("over_a_stream", [False, True])
    def test_what_is_cancelled_in_the_queue_never_runs(self, over_a_stream, era):
        """A handler that has not begun when it is cancelled does not begin. One worker
        runs one at a time."""
        server = Server("s", max_workers=1)
        ran = []
        gate = threading.Event()

        @server.tool
        def work(n: int) -> int:
            ran.append(n)
            gate.wait(SECONDS)
            return n

        target = SocketTransport(server) if over_a_stream else server
        with Client(target, protocol_version=era) as client:
            first = client.start_call("work", {"n": 1})
            eventually(lambda: ran)
            second = client.start_call("work", {"n": 2})
            client.ping()
            second.cancel()
            # What is read in turn: then the cancellation has been read, too.
            client.ping()
            gate.set()
            first.result()
            assert client.call("work", n=3) == 3
        assert ran == [1, 3]

    def test_done_with_a_question(self, server):
        """A program that polls done() reaches result(), which answers a question."""
        with Client(server, protocol_version=MODERN, on_elicit=answer) as client:
            call = client.start_call("form")
            eventually(call.done, "the question")
            assert call.result()["content"]
            assert call.done()

    def test_calls_at_once(self, target):
        """Many calls in flight, from one thread and from several."""
        with Client(target) as client:
            calls = [client.start_call("add", {"a": n}) for n in range(100)]
            assert [call.value() for call in calls] == list(range(1, 101))

            def work(n):
                got = [client.call("add", a=n * 100 + k) for k in range(10)]
                return got == [n * 100 + k + 1 for k in range(10)]

            assert at_once(work, zip(range(8))) == [True] * 8

    def test_listening(self, target, version):
        """One iterator for both eras: list changes and resource updates, filtered,
        until it is closed."""
        with Client(target, protocol_version=version) as client:
            wanted = {"prompts": False, "resources": False, "uris": ["x://note"]}
            with client.listen(**wanted) as events:
                client.call("change")
                updated = "notifications/resources/updated"
                found = [next(events)["method"]]
                while found[-1] != updated:
                    found.append(next(events)["method"])
                # Two changes are told as one if the first was still waiting.
                assert set(found[:-1]) == {"notifications/tools/list_changed"}
                assert len(found) <= 3
                closer = threading.Timer(0.005, events.close)
                closer.start()
                assert list(events) == []
                closer.join()
            client.call("change")

    def test_subscribing(self, target, version):
        """on_notification hears of a resource until unsubscribe."""
        heard = []
        options = {"on_notification": lambda *told: heard.append(told)}
        with Client(target, protocol_version=version, **options) as client:
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
        """The clock stands while the user is asked, but not for a callback's calls."""
        for version in ("2025-11-25", MODERN):
            holder = []

            def on_elicit(params, holder=holder):
                try:
                    holder[0].call_tool("wait", timeout=0.05)
                except Timeout:
                    return {"action": "decline"}

            with Client(
                build_server(), protocol_version=version, on_elicit=on_elicit
            ) as client:
                holder.append(client)
                assert client.call("form")["action"] == "decline"

    @pytest.mark.parametrize(
        "end, raised",
        [
            (mcp_lite.Call.cancel, Cancelled),
            (lambda call: call.client.close(), ConnectionClosed),
        ],
    )
    def test_closing_while_the_user_thinks(self, era, end, raised):
        """close() and cancel() end a call whose question is still open: of a session at
        once, of a modern server when the callback returns, as that runs in the thread
        that waits."""
        asked = threading.Event()
        done = threading.Event()

        def on_elicit(params):
            asked.set()
            done.wait(SECONDS)
            return {"action": "decline"}

        client = Client(
            build_server(), protocol_version=era, on_elicit=on_elicit
        ).connect()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            try:
                call = client.start_call("form")
                waiter = pool.submit(call.result)
                assert asked.wait(SECONDS)
                closer = pool.submit(end, call)
                if era == MODERN:
                    concurrent.futures.wait([closer], 0.1)
                    done.set()
                with pytest.raises(raised):
                    waiter.result(SECONDS)
            finally:
                done.set()
                client.close()
            closer.result(SECONDS)

    def test_closing(self, target, version):
        """close() is idempotent, ends waiting calls, and what comes after says so."""
        client = Client(target, protocol_version=version)
        client.connect()
        call = client.start_call("wait")
        closer = threading.Timer(0.005, client.close)
        closer.start()
        with pytest.raises(ConnectionClosed):
            call.result()
        closer.join()
        client.close()
        with pytest.raises(ConnectionClosed, match="not connected"):
            client.ping()

    def test_a_callback_may_call_the_client(self, target):
        """A question is answered on a worker, so it may use the client again."""
        for version in eras(target):
            holder = []

            def on_sample(params, holder=holder):
                return str(holder[0].call("add", a=40, b=2))

            with Client(
                target, protocol_version=version, on_sample=on_sample
            ) as client:
                holder.append(client)
                assert client.call("think") == "42"


class TestFaults:
    """Nothing of this may end, hang or corrupt anything; each is met for real."""

    @pytest.fixture(autouse=True)
    def quiet(self, caplog):
        """Complaints are in order here."""
        caplog.set_level(logging.CRITICAL, "mcp_lite")

    # Messages
    @pytest.mark.parametrize("name", WRONG)
    def test_a_wrong_message(self, name):
        """It is answered once, or never; and the next request is answered."""
        sent, code, _ = WRONG[name]
        sent = sent() if callable(sent) else sent
        with LocalWire(build_server()) as wire:
            wire.open()
            wire.send(sent + b"\n", request("ping", id="next"))
            came = [wire.read() for _ in range(1 if code is None else 2)]
        codes = [each.get("error", {}).get("code") for each in came]
        assert sorted(codes, key=str) == sorted({code, None}, key=str)
        assert "next" in [each.get("id") for each in came]

    def test_a_wrong_message_over_http(self, web):
        """It has a status and at most one answer; and the next request is answered."""
        web.open()
        for name, (sent, code, status) in WRONG.items():
            came = web.post(sent() if callable(sent) else sent)
            assert came[0] == status, name
            assert code is None or came[2]["error"]["code"] == code, name
            assert web.post(request("ping"))[2]["result"] == {}, name

    @pytest.mark.parametrize("name", ANSWERS)
    def test_a_wrong_answer(self, name):
        """The call ends with an error that is documented; the next one succeeds."""
        answer, error, said = (*ANSWERS[name], ".")[:3]
        answers = [answer, {"result": text_result("fine")}]

        def script(read, write):
            for message in iter(read, None):
                said = {"result": {"supportedVersions": [MODERN], "capabilities": {}}}
                said["result"]["capabilities"] = {"tools": {}}
                if message["method"] == "tools/call":
                    said = answers.pop(0) if len(answers) > 1 else answers[0]
                if "id" in message:
                    write({"jsonrpc": "2.0", "id": message["id"], **said})

        with talking_to(script, on_elicit=answer) as client:
            with pytest.raises(error, match=said):
                client.call_tool("x", timeout=0.1 if error is Timeout else None)
            assert client.call("x") == "fine"

    def test_a_server_hears_each_answer_once(self):
        """Foreign, doubled and late ones, and those with an id that only looks the
        same, change nothing."""
        with LocalWire(build_server()) as wire:
            wire.open(capabilities={"elicitation": {}})
            wire.send(request("tools/call", {"name": "form"}, 5))
            number = wire.read()["id"]
            right = {"jsonrpc": "2.0", "id": number, "result": {"action": "decline"}}
            late = {"action": "accept", "content": {"name": "late"}}
            for other in (str(number), float(number), True, None):
                wire.send({**right, "id": other, "result": late})
            wire.send(right, right, {**right, "result": late})
            answer = wire.read()["result"]["structuredContent"]
            assert answer["action"] == "decline"
            wire.send(right)
            assert wire.ask("ping", id=6)["id"] == 6
            # One that cannot be read is an answer, too.
            wire.send(request("tools/call", {"name": "form"}, 7))
            line = b'{"jsonrpc": "2.0", "id": %d, "result": {"content": NaN}}\n'
            wire.send(line % wire.read()["id"])
            assert "not a valid answer" in wire.read()["error"]["message"]

    # Limits
    def test_more_requests_than_may_wait(self):
        """Beyond 10,000, each is refused; the others are answered, once each."""
        gate = threading.Event()
        server = Server("s", max_workers=1)
        server.add_tool(lambda: gate.wait(SECONDS), name="held")
        with LocalWire(server) as wire:
            calls = [call_tool("held", n) for n in range(10_100)]
            wire.send(b"".join(json.dumps(call).encode() + b"\n" for call in calls))
            try:
                refused = [wire.read() for _ in range(90)]
            finally:
                gate.set()
            rest = [wire.read() for _ in range(10_010)]
        told = {each["error"]["message"] for each in refused}
        assert told == {"too many requests wait"}
        assert sorted(each["id"] for each in refused + rest) == list(range(10_100))

    def test_a_state_expires(self, server, monkeypatch):
        """After ten minutes, requestState is refused; before, it is taken."""
        params = modern({"elicitation": {}}, name="form", arguments={})
        asked = server.handle(request("tools/call", params))["result"]
        params["requestState"] = asked["requestState"]
        params["inputResponses"] = {"elicit-1": {"action": "decline"}}
        answer = server.handle(request("tools/call", params))
        assert answer["result"]["structuredContent"]["action"] == "decline"
        later = time.time() + 601
        monkeypatch.setattr(time, "time", lambda: later)
        answer = server.handle(request("tools/call", params))
        assert "expired" in answer["error"]["message"]

    def test_a_client_that_reads_nothing(self):
        """Handlers that write wait for it; the server reads on, and cancels them."""
        server = Server("s")
        begun = threading.Barrier(3)
        ended = threading.Semaphore(0)
        far = threading.Event()

        @server.tool
        def flood(ctx: Context) -> None:
            ctx.on_cancel(ended.release)
            begun.wait(SECONDS)
            for _ in range(5_000):
                ctx.info("x" * 1000)
                ctx.check_cancelled()
            far.set()

        with LocalWire(server) as wire:
            wire.open()
            for n in (1, 2):
                wire.send(request("tools/call", {"name": "flood"}, n))
            begun.wait(SECONDS)
            assert not far.wait(0.2)
            for n in (1, 2):
                wire.send(cancelled(n))
            assert all(ended.acquire(timeout=SECONDS) for _ in range(2))

    def test_both_pipes_are_full(self):
        """A server reads on while nobody reads what it writes; so does a client."""
        text = "x" * (1 << 16)
        with LocalWire(build_server()) as wire:
            wire.send(*[call_tool("echo", n, value=text) for n in range(64)])
            assert sorted(wire.read()["id"] for _ in range(64)) == list(range(64))
        with Client(SERVE) as client:
            calls = [client.start_call("echo", {"value": text}) for _ in range(64)]
            assert {call.value() for call in calls} == {text}

    def test_a_system_without_threads(self, tmp_path):
        """Each request is answered all the same: served, or refused."""
        script = """
            server = Server("s")
            @server.tool
            def use_up() -> None:
                def start(thread):
                    raise RuntimeError("can't start new thread")
                threading.Thread.start = start
            server.add_tool(lambda: "served", name="serve")
            server.run()
        """
        calls = [json.dumps(call_legacy("serve", n)).encode() for n in range(2, 6)]
        with Wire(program(tmp_path, script)) as wire:
            wire.open("2025-03-26")
            wire.send(call_tool("use_up"))
            assert wire.read()["id"] == 1
            wire.send(b"%b\n%b\n[%b,%b]\n" % tuple(calls))
            came = [wire.read(), wire.read(), *wire.read()]
            assert sorted(each["id"] for each in came) == [2, 3, 4, 5]
            assert all("result" in each or "error" in each for each in came)

    def test_what_many_calls_leave(self):
        """Two thousand calls leave nothing in memory, at either end."""
        with Client(build_server()) as client:

            def objects_after(rounds):
                for _ in range(rounds):
                    calls = [client.start_call("add", {"a": 1}) for _ in range(100)]
                    assert {call.value() for call in calls} == {2}
                gc.collect()
                return len(gc.get_objects())

            before = objects_after(5)
            assert objects_after(20) - before < 500

    @pytest.mark.skipif(not hasattr(sys, "getrefcount"), reason="it has another memory")
    def test_what_a_failed_call_leaves(self):
        """Nothing, even before cycles are collected."""
        server = Server("s")
        given = []

        @server.tool
        def refuse(who: Person) -> None:
            given.append(weakref.ref(who))
            raise McpError(1, "no")

        gc.disable()
        try:
            assert server.handle(call_tool("refuse", who={"name": "Bo"}))["error"]
            assert given[0]() is None
        finally:
            gc.enable()

    # Misuse
    def test_what_a_handler_cannot_tell(self):
        """A log of what JSON cannot say raises in the handler; the wire stays clean."""
        server = Server("s")
        cycle = []
        cycle.append(cycle)

        @server.tool
        def tell(ctx: Context) -> str:
            for value in (float("nan"), float("inf"), object(), cycle):
                with pytest.raises((ValueError, TypeError, RecursionError)):
                    ctx.info(value)
            with pytest.raises(ValueError):
                ctx.progress(float("inf"))
            ctx.info("fine")
            return "told"

        with LocalWire(server) as wire:
            wire.open()
            wire.send(call_legacy("tell", meta={"progressToken": 1}))
            assert wire.read()["params"]["data"] == "fine"
            assert text_of(wire.read()["result"]) == "told"

    def test_what_a_client_cannot_say(self, server):
        """NaN, an object or a cycle as an argument is a ToolError here, and nothing
        there; half a character is replaced."""
        cycle = []
        cycle.append(cycle)
        with server.start_http() as site:
            for target in (server, site.url):
                with Client(target) as client:
                    for value in (float("nan"), object(), cycle):
                        with pytest.raises(ToolError, match="^echo: "):
                            client.call("echo", value=value)
                    assert client.call("echo", value=HALF) == "\ufffd"
                    assert client.call("echo", value=1) == 1

    @pytest.mark.filterwarnings("ignore:Exception in thread")
    def test_every_way_to_hear_of_a_cancellation(self):
        """ctx.cancelled, check_cancelled, sleep and on_cancel tell of it, though what
        another on_cancel runs fails or hangs."""
        server = Server("s")
        ready = threading.Semaphore(0)
        heard = queue.Queue()
        hung = threading.Event()
        ways = {
            "cancelled": lambda ctx: time.sleep(0.001),
            "check": lambda ctx: ctx.check_cancelled(),
            "sleep": lambda ctx: ctx.sleep(float("inf")),
            "on_cancel": lambda ctx: hung.wait(SECONDS),
        }

        @server.tool
        def work(way: str, ctx: Context) -> None:
            for fn in (lambda: 1 / 0, lambda: sys.exit(1), lambda: hung.wait(SECONDS)):
                ctx.on_cancel(fn)
            if way == "on_cancel":
                ctx.on_cancel(lambda: heard.put(True))
            ready.release()
            try:
                while not ctx.cancelled:
                    ways[way](ctx)
            finally:
                heard.put(ctx.cancelled)

        with LocalWire(server) as wire:
            wire.open()
            wire.send(*[call_legacy("work", way, way=way) for way in ways])
            assert all(ready.acquire(timeout=SECONDS) for _ in ways)
            wire.send(*map(cancelled, ways))
            assert all(heard.get(timeout=SECONDS) for _ in ways)
            hung.set()
            assert wire.ask("ping", id=9)["id"] == 9

    def test_a_closed_client_has_cancelled(self, server, era):
        """close() with a call in flight: the handler hears of it."""
        with server.start_http() as site:
            client = Client(site.url, protocol_version=era).connect()
            calling = client.start_call("wait")
            assert client.call("is_waiting")
            client.close()
            with pytest.raises(ConnectionClosed):
                calling.result()
            with Client(server) as other:
                assert "cancelled" in other.call("waited")

    # Pipes and processes
    @pytest.mark.parametrize("moment", ["at once", "at work", "asking"])
    def test_an_output_that_closes(self, tmp_path, moment):
        """At any point, work is cancelled, input is read on, and the exit code is 0."""
        script = f"""
            server = Server("s")
            @server.tool
            def work(ctx: Context) -> str:
                open("begun", "w").close()
                try:
                    if {moment == "asking"}:
                        ctx.elicit("?", {FORM!r})
                    while True:
                        ctx.info("x" * 1000)
                        ctx.sleep(0.001)
                finally:
                    open("ended", "w").close()
            server.run()
        """
        command = program(tmp_path, script)
        with open(tmp_path / "stderr", "w+b") as stderr:
            with Wire(command, stderr, cwd=tmp_path) as wire:
                wire.open(capabilities={"elicitation": {}})
                if moment != "at once":
                    wire.send(call_legacy("work"))
                    eventually((tmp_path / "begun").exists)
                wire.out.close()
                wire.send(*[request("ping", modern(), 3)] * 20)
                wire.process.stdin.close()
                assert wire.process.wait(SECONDS) == 0
            assert (tmp_path / "ended").exists() == (moment != "at once")
            stderr.seek(0)
            assert not re.search(b"Exception in|ignored|Fatal", stderr.read())

    @pytest.mark.skipif(os.name == "nt", reason="POSIX descriptors")
    @pytest.mark.parametrize("closed", ["0", "1", "2"])
    def test_a_server_started_without_a_stream(self, closed, tmp_path):
        """Without stdin or stdout there is no wire, and an error says so. A file that
        got the number is neither read nor written as if it were the stream."""
        opened = tmp_path / "opened"
        content = json.dumps(call_tool("say")).encode() + b"\n"
        opened.write_bytes(content)
        script = f"""
            file = open({str(opened)!r}, "r+b", 0)
            assert file.fileno() == {closed}
            server = Server("s")
            server.add_tool(lambda: str(os.write(1, b"said")), name="say")
            server.run()
        """
        command = program(tmp_path, script)
        line = f"exec {shlex.join(command)} {closed}>&-"
        is_served = closed == "2"
        told, why = run("sh", "-c", line, input=content.decode(), code=1 - is_served)
        assert ("there is no wire" in why) != is_served
        assert told.count("\n") == is_served
        assert opened.read_bytes() == content

    def test_the_last_lines_of_the_log(self, tmp_path):
        """They have arrived when the program has ended."""
        script = """
            server = Server("s")
            server.add_tool(lambda: 1 / 0, name="broken")
            with Client(server) as client:
                for n in range(20):
                    client.call_tool("broken")
        """
        command = program(tmp_path, script)
        _, told = run(*command)
        assert told.count("broken failed") == told.count("ZeroDivisionError: ") == 20

    def test_a_child_that_floods_its_stderr(self, tmp_path):
        """The client reads on, even a line without an end, and keeps the last words."""
        script = """
            os.write(2, b"line\\n" * 1000 + b"x" * (1 << 18))
            server = Server("s")
            server.add_tool(lambda: str(os.write(2, b"y" * (1 << 18))), name="loud")
            server.add_tool(lambda: os._exit(3), name="die")
            server.run()
        """
        command = program(tmp_path, script)
        with Client(command, stderr=None) as client:
            assert client.call("loud") == str(1 << 18)
            with pytest.raises(ConnectionClosed) as failure:
                client.call("die")
        assert failure.value.exit_code == 3
        assert 0 < len(failure.value.stderr) <= 20 * 2001

    def test_a_child_that_is_no_server(self, tmp_path, monkeypatch):
        """connect() ends with an error, and no process is left: of a child that is
        silent, deaf to signals, or babbling, closes its output, or dies in a line."""
        monkeypatch.setattr(mcp_lite, "EXIT_SECONDS", 0.5)

        def connect(name, body):
            folder = tmp_path / name
            folder.mkdir()
            begin = "with open('pid', 'w') as file: file.write(str(os.getpid()))\n"
            command = program(folder, begin + body + "; time.sleep(600)")
            with pytest.raises((Timeout, ConnectionClosed)):
                Client(
                    command, protocol_version="2025-11-25", timeout=0.4, cwd=folder
                ).connect()
            # Else it had not even begun.
            if (folder / "pid").exists():
                pid = int((folder / "pid").read_text() or 0)
                eventually(lambda: is_gone(pid), name)

        at_once(
            connect,
            {
                "silent": "pass",
                "deaf": "[signal.signal(n, signal.SIG_IGN) for n in (2, 15)]",
                "babbling": "[os.write(1, b'no json\\n' * 500) for _ in range(2)]",
                "closed": "os.close(1)",
                "half": 'os.write(1, b\'{"jsonrpc":"2.0",\'); os._exit(1)',
            }.items(),
        )

    @pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="POSIX")
    @pytest.mark.parametrize("wire", ["file", "socket"])
    def test_the_input_ends_and_somebody_reads(self, tmp_path, wire):
        """Work that goes on then is answered, also where the output is a file, or a
        socket as some clients have it."""
        go = tmp_path / "go"
        answers = tmp_path / "answers"
        script = f"""
            server = Server("s")
            @server.tool
            def work(ctx: Context) -> str:
                while not os.path.exists({str(go)!r}):
                    ctx.sleep(0.001)
                return "finished"
            server.run()
        """
        command = program(tmp_path, script)
        with contextlib.ExitStack() as stack:
            if wire == "file":
                ours = theirs = stack.enter_context(open(answers, "w+b", 0))
            else:
                ours, theirs = map(stack.enter_context, socket.socketpair())
            process = subprocess.Popen(command, stdin=PIPE, stdout=theirs)
            process.stdin.write(json.dumps(call_tool("work")).encode() + b"\n")
            process.stdin.close()
            go.touch()
            assert process.wait(SECONDS) == 0
            came = answers.read_bytes() if wire == "file" else ours.recv(65536)
        assert text_of(json.loads(came)["result"]) == "finished"

    # Signals

    # A server with a tool at work, which says so.
    WORKS = """
        mcp_lite.TIDY_SECONDS = 0.5
        {setting}
        server = Server("s")
        before = os.fstat(0)
        @server.tool
        def work(ctx: Context) -> str:
            ctx.on_cancel(lambda: time.sleep(0.1) or print("cancelled", file=sys.stderr))
            ctx.info("begun")
            {work}
        server.run()
        print([signal.getsignal(each) for each in (2, 15)]
              == [signal.default_int_handler, signal.SIG_DFL],
              os.path.samestat(os.fstat(0), before))
        """

    WORKERS = [("SIGINT", "ctx", 0), ("SIGTERM", "ctx", 0), ("SIGINT", "time", 0)]
    WORKERS += [("SIGTERM", "ctx", 5)]

    @pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
    @pytest.mark.parametrize("number, clock, code", WORKERS)
    def test_a_signal_at_work(self, tmp_path, number, clock, code):
        """The server ends in good order, its handlers cancelled at once, if the input
        has ended, too. run() returns; the streams and the signals are what they were.
        The deaf are left. A program that exits in a handler of its own does."""
        setting = "signal.signal(15, lambda *_: sys.exit(5))" if code else ""
        text = self.WORKS.format(setting=setting, work=f"{clock}.sleep(600)")
        command = program(tmp_path, text)
        with Wire(command, PIPE) as wire, wire.process.stderr as stderr:
            wire.open()
            wire.send(request("tools/call", {"name": "work"}))
            assert wire.read()["params"]["data"] == "begun"
            if (number, clock) == ("SIGINT", "ctx"):
                wire.process.stdin.close()
            wire.process.send_signal(getattr(signal, number))
            assert wire.process.wait(SECONDS) == code
            if code == 0:
                assert wire.out.read() == b"True True\n"
                assert stderr.read() == b"cancelled\n"

    @pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
    @pytest.mark.parametrize("how", ["SIGINT", "SIGTERM", "the end of the input"])
    def test_listeners_are_told_of_the_end(self, tmp_path, how):
        """Of each subscription: notifications/cancelled, and the last result; at once,
        and though a handler is deaf."""
        script = """
            mcp_lite.TIDY_SECONDS = 0.1
            server = Server("s")
            server.add_tool(lambda: time.sleep(600), name="deaf")
            server.run()
        """
        with Wire(program(tmp_path, script)) as wire:
            listen = modern(notifications={"toolsListChanged": True})
            wire.send(request("subscriptions/listen", listen, "sub"))
            assert wire.read()["method"].endswith("/acknowledged")
            if how.startswith("SIG"):
                wire.send(call_tool("deaf"))
                wire.process.send_signal(getattr(signal, how))
            else:
                wire.process.stdin.close()
            assert wire.read()["params"]["requestId"] == "sub"
            assert wire.read()["result"]["resultType"] == "complete"
            assert wire.process.wait(SECONDS) == 0

    @pytest.mark.skipif(not hasattr(select, "poll"), reason="POSIX")
    def test_the_input_ends_and_work_does_not(self, tmp_path):
        """DRAIN_SECONDS later it is cancelled, and may tidy up; what hears nothing is
        left: by a client that reads on, and by one that was killed."""
        assert mcp_lite.DRAIN_SECONDS == 5.0
        script = """
            mcp_lite.DRAIN_SECONDS = 0.1
            mcp_lite.TIDY_SECONDS = 0.5
            server = Server("s")
            both = threading.Barrier(2)
            @server.tool
            def tidy(ctx: Context) -> None:
                both.wait()
                try:
                    ctx.sleep(600)
                finally:
                    time.sleep(0.1)
                    open("tidy", "w").close()
            @server.tool
            def deaf() -> None:
                with open("new", "w") as file:
                    file.write(str(os.getpid()))
                both.wait()
                os.rename("new", "pid")
                time.sleep(600)
            server.run()
        """
        serving = program(tmp_path, script)
        calling = f"""
            client = Client({serving!r}).connect()
            calls = [client.start_call(name) for name in ("tidy", "deaf")]
            calls[0].result()
            """

        def read_on(folder):
            with Wire(serving, cwd=folder) as wire:
                wire.send(call_tool("tidy", 1), call_tool("deaf", 2))
                eventually((folder / "pid").exists)
                assert wire.end() == ([], 0)

        def be_killed(folder):
            pid = folder / "pid"
            with subprocess.Popen(program(folder, calling), cwd=folder) as process:
                eventually(pid.exists)
                process.kill()
            eventually(lambda: is_gone(int(pid.read_text())), "the end of the server")

        def leave(client):
            folder = tmp_path / client.__name__
            folder.mkdir()
            client(folder)
            assert (folder / "tidy").exists()

        at_once(leave, [(read_on,), (be_killed,)])


# The first seed: another one is another fuzz.
FUZZ = 20260728
DEEP = functools.reduce(lambda inner, _: [inner], range(150), [])
ODD = [None, True, False, 0, -1, 1.5, 2**63, -(10**400), float("nan"), float("inf")]
ODD += ["", "\0", "\ud800", "é\u2028\n", "x" * 9000, "tools/list", "2025-03-26", MODERN]
ODD += [[], {}, [[]], {"": None}, DEEP, {"a": DEEP}, [{}] * 40]
SPLICES = rb'- " \ } ] , 1e999 NaN null \ud800 {}{}'.split()
SPLICES += [b"", b"\0", b"\n", b"\r", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf"]
SPLICES += [b"[" * 3000, b'{"a":' * 3000, b"9" * 5000, b" " * 3000]
MEMBERS = ["id", "method", "params", "result", "error", "_meta", "x"]
OURS = re.compile(r"id\d+\.")
ANYTHING = {"elicitation": {}, "sampling": {}, "roots": {}}

# What a client says: a method, or none for an answer, and its parameters.
SAID = """
["ping", {}]
["server/discover", {}]
["tools/list", {}]
["resources/list", {"cursor": "x"}]
["resources/templates/list", {}]
["prompts/list", {"cursor": "prompts/list:1"}]
["resources/read", {"uri": "x://note"}]
["resources/read", {"uri": "x://users/Bo/7?color=red"}]
["resources/read", {"uri": "x://users/%ff/99999999999999999999999999999999"}]
["resources/subscribe", {"uri": "x://note"}]
["resources/unsubscribe", {"uri": "x://note"}]
["prompts/get", {"name": "review", "arguments": {"code": "1", "style": "strict"}}]
["prompts/get", {"name": "asks"}]
["logging/setLevel", {"level": "debug"}]
["completion/complete", {"ref": {"type": "ref/prompt", "name": "review"},
    "argument": {"name": "code", "value": "a"}, "context": {"arguments": {}}}]
["notifications/initialized", {}]
["notifications/cancelled", {"requestId": "id7."}]
["$/cancelRequest", {"id": "id7."}]
["notifications/roots/list_changed", {}]
["notifications/progress", {"progressToken": "id7.", "progress": 1, "total": 2}]
["", {"action": "accept", "content": {"name": "Bo"}}]
["", {}]
"""
SAID = [json.loads(line) for line in re.findall(r"(?m)^\[[^\n]*(?:\n +.*)*", SAID)]
# Tools, and the arguments that they take.
CALLED = {
    "echo": {"value": "x", "more": 1},
    "add": {"a": 1, "b": 2},
    "greet": {"name": "Bo"},
    "person": {"name": "Bo"},
    "fail": {"how": "tool"},
    "count": {"to": 3},
    "bad": {"kind": "nan"},
}
NAMES = "media logs form visit think where steps together change form_person"
CALLED.update((name, {}) for name in NAMES.split())


def strict_json(data):
    """Decode what must be JSON as the RFC has it."""

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(data.decode("utf-8"), parse_constant=refuse)


class Fuzz:
    """Valid messages, made invalid: the same for the same seed.

    Counts ids; keeps the last that was sent."""

    def __init__(self, seed):
        self.seed = seed
        self.dice = random.Random(seed)
        self.ids = 0
        self.count = 0
        self.sent = collections.Counter()
        self.answered = collections.Counter()
        self.last = collections.deque(maxlen=8)

    def __str__(self):
        last = [each[:3000] for each in self.last]
        return f"seed {self.seed}, {self.count} sent, the last: {last}"

    def chance(self, percent):
        return self.dice.random() * 100 < percent

    def note(self, data):
        """Remember what goes out."""
        self.count += 1
        self.last.append(data)
        self.sent.update(OURS.findall(data.decode("latin-1")))
        return data

    def check(self, came):
        """All that came are messages, and no id is answered more often than sent."""
        for message in came if isinstance(came, list) and came else [came]:
            assert message["jsonrpc"] == "2.0", f"{message}; {self}"
            if "method" in message:
                continue
            assert ("result" in message) != ("error" in message), f"{message}; {self}"
            number = message.get("id")
            if OURS.fullmatch(str(number)):
                self.answered[number] += 1
                is_once = self.answered[number] <= self.sent[number]
                assert is_once, f"twice: {message}; {self}"

    def new_id(self):
        """The next one, or now and then one that was there before."""
        self.ids += 1
        if self.ids > 9 and self.chance(4):
            return f"id{self.dice.randrange(1, self.ids)}."
        return f"id{self.ids}."

    def spoil(self, value):
        """A copy with up to three places dropped, replaced, swapped or wrapped."""
        value = copy.deepcopy([value])
        for _ in range(self.dice.randint(1, 3)):
            places = []
            queue = [value]
            while queue:
                here = queue.pop()
                keys = list(here) if isinstance(here, dict) else list(range(len(here)))
                places += [(here, key) for key in keys]
                inner = [here[key] for key in keys]
                queue += [each for each in inner if isinstance(each, (dict, list))][:50]
            here, key = self.dice.choice(places)
            there, other = self.dice.choice(places)
            one = copy.deepcopy(here[key])
            two = copy.deepcopy(there[other])
            how = self.dice.randrange(6)
            if how == 0 and here is not value:
                del here[key]
            elif how == 1:
                here[key] = two
                there[other] = one
            elif how == 2:
                here[key] = two
            elif how == 3 and isinstance(here, dict):
                here[self.dice.choice(MEMBERS)] = one
            elif how == 4:
                here[key] = [one] * self.dice.randint(1, 3)
            else:
                here[key] = copy.deepcopy(self.dice.choice(ODD))
        return value[0] if value else None

    def splice(self, data):
        """The same bytes, but for a few: cut off, cut out, replaced, or put between."""
        for _ in range(self.dice.randint(1, 3)):
            start = self.dice.randrange(len(data) + 1)
            end = min(len(data), start + self.dice.choice([0, 0, 1, 1, 2, 9, 10**6]))
            data = data[:start] + self.dice.choice(SPLICES) + data[end:]
        return data

    def encode(self, message, spoiled=60, spliced=15):
        """A message as bytes, spoiled and spliced with these chances in a hundred."""
        if self.chance(spoiled):
            message = self.spoil(message)
        data = json.dumps(message).encode()
        return self.splice(data) if self.chance(spliced) else data

    def pieces(self, data):
        """The same bytes in a few pieces."""
        count = self.dice.choice([0, 0, 1, 2, 5])
        cuts = sorted(self.dice.randrange(len(data) + 1) for _ in range(count))
        return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)])]

    def from_client(self):
        """Anything that a client says, of any revision."""
        dice = self.dice
        method, params = copy.deepcopy(dice.choice(SAID))
        if self.chance(30):
            method, params = "tools/call", self.a_call()
        elif self.chance(4):
            method, params = "initialize", opening(dice.choice(EVERY), ANYTHING)
        if not method:
            answer = {"result": params} if params else {"error": {"code": -1}}
            return {"jsonrpc": "2.0", "id": dice.randint(1, 9), **answer}
        if self.chance(30):
            params["_meta"] = {"progressToken": self.new_id()}
        if self.chance(40):
            given = ANYTHING if self.chance(60) else {}
            params.update(modern(given, _meta=params.get("_meta", {})))
            if self.chance(10):
                params["requestState"] = "a.b"
                params["inputResponses"] = {"elicit-1": {"action": "accept"}}
        message = request(method, params, self.new_id())
        if "notifications/" in method or method[0] == "$":
            del message["id"]
        return message

    def a_call(self):
        name = self.dice.choice(sorted(CALLED))
        arguments = {**CALLED[name]}
        if self.chance(20) and arguments:
            arguments[self.dice.choice(sorted(arguments))] = self.dice.choice(ODD)
        return {"name": name, "arguments": arguments}

    def a_message_or_a_batch(self):
        if self.chance(4):
            return [self.from_client() for _ in range(self.dice.randint(1, 4))]
        return self.from_client()


class FuzzedWire:
    """A conversation with a server on stdio; the most of it is nonsense."""

    def __init__(self, fuzz, wire, version):
        self.fuzz = fuzz
        self.wire = wire
        self.version = version
        self.came = collections.deque()
        # What came to the sane requests, by their ids.
        self.answers = {}
        # Answers to the server's questions.
        self.asked = []
        self.out = io.BufferedReader(wire.out)
        self.reader = started(self.read)

    def read(self):
        self.came.extend(iter(self.out.readline, b""))

    def look(self):
        """Judge what has come, and answer what was asked."""
        while self.came:
            line = self.came.popleft()
            assert line.endswith(b"\n"), f"{line[-200:]!r}; {self.fuzz}"
            message = strict_json(line)
            self.fuzz.check(message)
            if isinstance(message, dict):
                self.take(message)

    def take(self, message):
        number = message.get("id")
        if "method" not in message and str(number)[:4] == "sane":
            assert number not in self.answers, f"{message}; {self.fuzz}"
            self.answers[number] = message
        elif "method" in message and "id" in message:
            answer = {"jsonrpc": "2.0", "id": number, "result": {"action": "cancel"}}
            self.asked.append(answer)
            if self.fuzz.chance(80):
                data = self.fuzz.encode(answer, 40, 10) + b"\n"
                self.wire.send(self.fuzz.note(data))

    def be_sane(self, name):
        """Requests of both eras in the midst of it all are answered, and right."""
        kinds = ("first", "legacy", "modern")
        first, *calls = (f"sane {kind} {name}" for kind in kinds)
        self.wire.send(
            b"\n",
            request("initialize", opening(self.version, ANYTHING), first),
            call_legacy("add", calls[0], a=1),
            call_tool("add", calls[1], a=1),
        )

        def answered():
            self.look()
            # Else handlers wait for answers until none is left.
            self.wire.send(*self.asked)
            self.asked.clear()
            return {first, *calls} <= set(self.answers)

        eventually(answered, f"an answer; {self.fuzz}")
        for each in calls:
            assert "'text': '2'" in str(self.answers[each]), str(self.fuzz)

    def send_nonsense(self):
        fuzz = self.fuzz
        data = fuzz.encode(fuzz.a_message_or_a_batch())
        data = fuzz.note(data + (b"\n" if fuzz.chance(97) else b""))
        for piece in fuzz.pieces(data):
            self.wire.send(piece)

    def end(self):
        self.wire.process.stdin.close()
        self.reader.join(SECONDS)
        assert not self.reader.is_alive(), str(self.fuzz)
        assert self.wire.process.wait(SECONDS) == 0, str(self.fuzz)
        self.look()


def fuzz_stdio(seed, version, count):
    """A conversation of `count` mutated lines with a server on stdio."""
    fuzz = Fuzz(seed)
    with Wire() as wire:
        conversation = FuzzedWire(fuzz, wire, version)
        for number in range(count):
            if fuzz.chance(3) or number == count // 20:
                conversation.be_sane(str(number))
            conversation.send_nonsense()
            conversation.look()
        conversation.be_sane("last")
        conversation.end()
    return fuzz


STARTS = (
    rb"|GET /mcp HTTP/1.1|DELETE /mcp HTTP/1.1|PUT /mcp HTTP/1.1|HEAD /mcp HTTP/1.1"
    rb"|OPTIONS * HTTP/1.1|POST /nowhere HTTP/1.1|POST /mcp HTTP/1.0|POST /mcp HTTP/2.0"
    rb"|POST /mcp|post /mcp HTTP/1.1|POST /messages?session_id=no HTTP/1.1"
    rb"|GET /sse HTTP/1.1|POST  /mcp HTTP/1.1|POST http://localhost/mcp HTTP/1.1|"
).split(b"|")
STARTS += [b"POST /" + b"a" * 70000 + b" HTTP/1.1", b"POST /mcp?\xff#x HTTP/1.1"]
STARTS += [b"\x16\x03\x01\x02\0\x01"]
HEADERS = (
    rb"|Host: evil.example|Host: localhost|Origin: http://localhost"
    rb"|Origin: http://evil.example|Accept: text/html|Accept: */*"
    rb"|Content-Type: text/plain|Transfer-Encoding: chunked"
    rb"|Transfer-Encoding: gzip, chunked|Content-Length: 5|Content-Length: -1"
    rb"|Content-Length: 99999999999|Content-Length: 1e3|Connection: close"
    rb"|Expect: 100-continue|Mcp-Session-Id: no-such|Mcp-Session-Id;"
    rb"|MCP-Protocol-Version: 1900-01-01|Mcp-Name: =?base64?!?=|Last-Event-ID: 0-0"
    rb"| folded: yes|no colon|: no name|X : 1|"
).split(b"|")
HEADERS += [b"Mcp-Method: \xff", b"Last-Event-ID: 99-\xb2", b"X\0: 1", b"X: a\rb"]
HEADERS += [b"X: " + b"y" * 70000, b"X:" + b" " * 9000 + b"\0"]


def strict_chunks(data):
    """A chunked body at the start of these bytes: (body, the rest, is whole)."""
    body = b""
    size = -1
    while size:
        line, end, data = data.partition(b"\r\n")
        if not end:
            return body, b"", False
        assert re.fullmatch(rb"[0-9a-f]+", line), f"{line[:200]!r}"
        size = int(line, 16)
        body += data[:size]
        end, data = data[size : size + 2], data[size + 2 :]
        if len(end) < 2:
            return body, data, False
        assert end == b"\r\n", f"{end!r}"
    return body, data, True


def strict_responses(data, head_only=False):
    """All that a server sent on a connection, taken apart: [(status, headers, body, is
    whole)]."""
    found = []
    while data:
        head, end, data = data.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        status = re.match(r"HTTP/1\.1 (\d{3}) [A-Z][A-Za-z -]*", first)
        assert status, f"{first[:200]!r}"
        if not end:
            return found
        pairs = [re.fullmatch(r"([A-Za-z-]+): ([^\0\r\n]*)", line) for line in lines]
        headers = {pair[1].lower(): pair[2] for pair in pairs}
        assert len(headers) == len(pairs), f"{lines}"
        if status[1] == "100":
            continue
        body, whole = b"", True
        if headers.get("transfer-encoding") == "chunked":
            body, data, whole = strict_chunks(data)
        elif not (head_only and data[:5] in (b"", b"HTTP/")):
            size = int(headers.get("content-length", len(data)))
            whole = len(data) >= size
            body, data = data[:size], data[size:]
        found.append((int(status[1]), headers, body, whole))
    return found


def messages_in(responses):
    """The messages in a server's responses."""
    for _, headers, body, whole in responses:
        kind = headers.get("content-type")
        if kind == "application/json" and whole and body:
            yield strict_json(body)
        elif kind == "text/event-stream":
            for event in body.split(b"\n\n")[:-1]:
                fields = dict(line.partition(b": ")[::2] for line in event.split(b"\n"))
                if fields.get(b"data") and fields.get(b"event") != b"endpoint":
                    yield strict_json(fields[b"data"])
        else:
            assert kind == "application/json" or not body, f"{headers} {body[:200]!r}"


class FuzzedPort:
    """Mutated requests to a server on a port, a connection each."""

    def __init__(self, fuzz, http, messages_path):
        self.fuzz = fuzz
        self.http = http
        # Where an HTTP+SSE stream that is read wants its messages.
        self.messages_path = messages_path
        self.open_sessions()

    def open_sessions(self):
        self.webs = [Web(self.http).open(version) for version in LEGACY]
        self.may_be_deleted = False

    def header_lines(self, message, web):
        """The headers that belong to a message, as far as it has what they need."""
        params = message.get("params") or {} if isinstance(message, dict) else {}
        if META_VERSION not in params.get("_meta", ()):
            session = web.session or "none"
            told = {"Mcp-Session-Id": session, "MCP-Protocol-Version": web.version}
        else:
            told = {"MCP-Protocol-Version": MODERN, "Mcp-Method": message["method"]}
            told["Mcp-Name"] = params.get("name", params.get("uri"))
        return [f"{name}: {told[name]}".encode() for name in told if told[name]]

    def chunked(self, body):
        """One chunk and the last one; the size is a wrong one now and then."""
        size = b"%x" % len(body)
        if not self.fuzz.chance(60):
            size = self.fuzz.dice.choice([b"-1", b"0x5", b"fffffffff", b"", b"5;a=b"])
        return size + b"\r\n" + body + b"\r\n0\r\n\r\n"

    def spoil_headers(self, lines):
        dice = self.fuzz.dice
        for _ in range(dice.randint(1, 2)):
            start = dice.randrange(len(lines))
            lines[start : start + dice.randrange(2)] = [dice.choice(HEADERS)]
            lines.insert(dice.randrange(len(lines) + 1), dice.choice(HEADERS + lines))

    def build(self):
        """A request's bytes; in most of them something is wrong."""
        fuzz = self.fuzz
        dice = self.fuzz.dice
        message = fuzz.a_message_or_a_batch()
        body = fuzz.encode(message, 60, 8)
        kind = dice.randrange(8)
        lines = [b"Host: localhost", b"Content-Type: application/json"]
        start = b"POST /mcp HTTP/1.1"
        if kind == 0:
            start = f"POST {self.messages_path} HTTP/1.1".encode()
        else:
            lines += self.header_lines(message, dice.choice(self.webs))
        if kind == 1:
            start = dice.choice(STARTS)
        if start[:4] == b"GET ":
            # Nothing may stand before the end, by which the stream ends.
            body = b""
        elif fuzz.chance(10):
            lines.append(b"Transfer-Encoding: chunked")
            body = self.chunked(body)
        else:
            wrong = dice.choice([-1, 1, 99]) if fuzz.chance(5) else 0
            lines.append(b"Content-Length: %d" % (len(body) + wrong))
        if kind == 2:
            self.spoil_headers(lines)
        data = b"\r\n".join([start, *lines, b"", b""]) + body
        if kind == 3 and fuzz.chance(50):
            data = fuzz.splice(data)
        return data

    def exchange(self, data, leaves):
        """All that comes back; nothing if we leave before the end of the request."""
        answered = b""
        if leaves:
            data = data[: self.fuzz.dice.randrange(len(data) + 1)]
        address = ("127.0.0.1", self.http.port)
        broken = contextlib.suppress(ConnectionError)
        with socket.create_connection(address, SECONDS) as sock, broken:
            for piece in self.fuzz.pieces(data):
                sock.sendall(piece)
            if not leaves:
                sock.shutdown(socket.SHUT_WR)
                for piece in iter(lambda: sock.recv(65536), b""):
                    answered += piece
        return answered

    def send_nonsense(self):
        """One request; what comes back must be HTTP and MCP."""
        data = self.fuzz.note(self.build())
        self.may_be_deleted |= b"DELETE" in data
        answered = self.exchange(data, leaves=self.fuzz.chance(6))
        try:
            responses = strict_responses(answered, data[:5] == b"HEAD ")
            for message in messages_in(responses):
                self.fuzz.check(message)
        except Exception as error:
            text = f"{type(error).__name__}: {error}; answered {answered[-3000:]!r}"
            raise AssertionError(f"{text}; {self.fuzz}") from error

    def be_sane(self, name):
        """Requests of every revision are answered, and right."""
        if self.may_be_deleted:
            self.open_sessions()
        answers = [Web(self.http).post(call_tool("add", "s", a=1))[2]]
        answers += [web.post(call_legacy("add", name, a=1))[2] for web in self.webs]
        for each in answers:
            assert "'text': '2'" in str(each), f"{answers}; {self.fuzz}"


def fuzz_http(seed, count):
    """`count` mutated requests to a server on a port, a connection each, and an
    HTTP+SSE stream beside."""
    fuzz = Fuzz(seed)
    with build_server().start_http() as http:
        old = Web(http)
        with old.stream(path="/sse") as events:
            path = next_event(events)["data"]
            params = opening("2024-11-05")
            old.send("POST", request("initialize", params, "sane"), path=path)
            port = FuzzedPort(fuzz, http, path)
            for number in range(count):
                port.send_nonsense()
                if number % 100 == 99:
                    port.be_sane(f"s{number}")
            old.send("POST", call_legacy("add", "sane last", a=1), path=path)
            for event in iter(lambda: next_event(events), None):
                if event["message"] or event.get("data", "")[:1] == "[":
                    fuzz.check(strict_json(event["data"].encode()))
                if "sane last" in str(event):
                    assert "'text': '2'" in str(event)
                    return fuzz
    raise AssertionError(f"no answer on the stream; {fuzz}")


# How a call may end, but for its result.
ENDS = (McpError, ToolError, Timeout, Cancelled, ConnectionClosed, HttpFailure)


def call_all(fuzz, client, count):
    """Ask for all that there is. Each call ends soon, and as promised."""
    client.timeout = 0.02
    calls = [
        lambda name: client.call(name, CALLED[name]),
        lambda name: client.call_tool(name, {"a": "x"}),
        lambda name: client.start_call(name, CALLED[name]).cancel("enough"),
        lambda name: client.list_tools(),
        lambda name: client.list_resources(),
        lambda name: client.read("x://users/Bo/7"),
        lambda name: client.get_prompt("asks"),
        lambda name: client.complete("review", "code", "b"),
        lambda name: client.listen().close(),
        lambda name: client.ping(),
    ]
    for _ in range(count):
        # UTF-8 cannot carry every requestState back.
        with contextlib.suppress(*ENDS, UnicodeEncodeError):
            fuzz.dice.choice(calls)(fuzz.dice.choice(sorted(CALLED)))


def fuzz_client(seed, count):
    """`count` calls of a client whose server's answers are spoiled: each ends, and as
    promised. How many were spoiled."""
    fuzz = Fuzz(seed)
    server = build_server()

    def script(read, write):
        for message in iter(read, None):
            answer = server.handle(message)
            is_first = message["method"] == "server/discover" and not fuzz.count
            if answer is not None:
                data = fuzz.encode(answer, *(0, 0) if is_first else (40, 6))
                for piece in fuzz.pieces(fuzz.note(data) + b"\n"):
                    write(piece)

    with talking_to(script, **CALLBACKS) as client:
        call_all(fuzz, client, count)
    return fuzz.count


STATUSES = [100, 202, 204, 301, 307, 400, 401, 403, 404, 405, 500, 503, 999]


class FuzzedSite:
    """A script for web_server: a good server's responses, most of them spoiled."""

    def __init__(self, fuzz, port):
        self.fuzz = fuzz
        self.port = port

    def __call__(self, seen, sock):
        fuzz = self.fuzz
        status = 200
        headers = {"Content-Type": "text/event-stream"}
        # Of what is no request, and of a stream that would not end.
        body = event_of({}, id="x", retry=1).encode()
        if member(seen, "message", "method") not in (None, "subscriptions/listen"):
            web = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
            with contextlib.closing(web):
                sent = dict(seen["headers"], connection="close")
                sent.pop("content-length", None)
                web.request("POST", "/mcp", json.dumps(seen["message"]), sent)
                response = web.getresponse()
                body = response.read()
            status, headers = response.status, dict(response.headers)
            headers.pop("Transfer-Encoding", None)
        if fuzz.chance(20) and fuzz.count:
            status = fuzz.dice.choice(STATUSES)
        if not fuzz.count or fuzz.chance(20):
            headers["Content-Length"] = len(body)
        elif fuzz.chance(50):
            headers["Transfer-Encoding"] = "chunked"
            chunks = filter(None, fuzz.pieces(body))
            body = b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in chunks)
            body += b"0\r\n\r\n"
        lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
        data = f"HTTP/1.1 {status} X\r\n{''.join(lines)}\r\n".encode() + body
        if fuzz.chance(50) and fuzz.count:
            data = fuzz.splice(data)
        for piece in fuzz.pieces(fuzz.note(data)):
            sock.sendall(piece)


def fuzz_web_client(seed, version, count):
    """The same over HTTP: statuses, heads, chunks, events and ends are spoiled."""
    fuzz = Fuzz(seed)
    with build_server().start_http() as good:
        site = FuzzedSite(fuzz, good.port)
        with client_of(site, protocol_version=version, **CALLBACKS) as (client, _):
            call_all(fuzz, client, count)
    return fuzz.count


class TestFuzz:
    """Some 3,000 messages, most of them wrong, the same in each run: a failure tells
    the seed. Nothing is left open behind them, as behind no test."""

    @pytest.fixture(autouse=True)
    def quiet(self, caplog):
        """Thousands of complaints are in order here."""
        caplog.set_level(logging.CRITICAL, "mcp_lite")

    @pytest.mark.parametrize("number, version", list(enumerate(LEGACY)))
    def test_a_server_on_stdio(self, number, version):
        """No id is answered twice, all that comes is JSON, and it lives."""
        fuzz = fuzz_stdio(FUZZ + number, version, 400)
        assert len(fuzz.answered) > 100, str(fuzz)

    @pytest.mark.parametrize("number", range(2))
    def test_a_server_over_http(self, number):
        """In every revision, all that comes is HTTP and JSON, and it lives."""
        fuzz = fuzz_http(FUZZ + number, 400)
        assert len(fuzz.answered) > 60, str(fuzz)

    @pytest.mark.parametrize("number", range(2))
    def test_a_client_over_streams(self, number):
        """Every call ends, with a result or an exception that is documented."""
        assert fuzz_client(FUZZ + number, 100) > 50

    @pytest.mark.parametrize("number, version", list(enumerate(["2025-11-25", MODERN])))
    def test_a_client_over_http(self, number, version):
        """Likewise, whatever a server makes of HTTP."""
        assert fuzz_web_client(FUZZ + number, version, 100) > 50


CUT = """
import sys
import mcp_lite
server = mcp_lite.Server("cut")
@server.tool
def add(a: int, b: int, ctx: mcp_lite.Context) -> int:
    ctx.progress(1)
    return a + b
with server.start_http() as http:
    for options in ({}, {"protocol_version": mcp_lite.NEWEST}):
        with mcp_lite.Client(http.url, **options) as client:
            client.call_tool("add", {"a": 1, "b": 2}, on_progress=print)
            print(client.protocol_version, client.call("add", a=1, b=2))
    try:
        mcp_lite.Client(http.url, protocol_version="2025-11-25").connect()
    except (mcp_lite.McpError, OSError) as error:
        print(type(error).__name__)
"""


class TestPublicFace:
    """Everything public can be asked for help, and is typed."""

    def test_a_copy_says_which_version_it_is(self):
        """In line 1, and to an old Python in the line that it cannot read."""
        text = pathlib.Path(mcp_lite.__file__).read_text("utf-8")
        head = f"# mcp_lite {mcp_lite.__version__}, for Python 3.8 or newer: "
        assert text.startswith(head)
        if sys.version_info < (3, 9):
            pytest.skip("its ast does not refuse what Python 3.7 does")
        with pytest.raises(SyntaxError) as refused:
            ast.parse(text, feature_version=(3, 7))
        line = text.splitlines()[refused.value.lineno - 1]
        assert line.endswith("# Python 3.8 or newer")

    def test_a_copy_names_what_is_gone(self):
        """No option that it calls gone is one of today's."""
        _, _, changes = mcp_lite.__doc__.partition("Gone   ")
        gone = re.findall(r"^ +(Client|OAuth|Server)\((\w+)=\) ", changes, re.M)
        assert len(gone) >= 3
        for name, option in gone:
            options = inspect.signature(getattr(mcp_lite, name)).parameters
            assert option not in options or (name, option) == ("Client", "version")

    def test_the_legacy_era_can_be_cut_out(self, tmp_path):
        """Of HTTP: without the halves of two sections, and the statements that name
        them, the rest serves and calls in the modern era."""
        source = pathlib.Path(mcp_lite.__file__).read_text("utf-8")
        for begin, end in (
            ("# The legacy era over HTTP: ", "19. HTTP server"),
            ("# The legacy era: basic/", "21. Authorization"),
        ):
            start = source.index(begin)
            bar = source.index(f"{'#' * 79}\n# {end} ", start)
            source = source[:start] + source[bar:]
        statements = (
            "        self.legacy = LegacyEndpoint(self, stateless, place)\n",
            "        if not is_modern and header in _SESSION_VERSIONS:\n"
            "            self.legacy.post(exchange)\n            return\n",
            "        connections.update(self.legacy.sessions.copy().values())\n",
            "LegacyHttp(caller, self._set_server_info, self._renew_session)",
        )
        for each in statements:
            assert source.count(each) == 1, each
            by = "HttpTransport(caller)" if "LegacyHttp" in each else ""
            source = source.replace(each, by)
        for name in ("LegacyEndpoint", "SessionStream", "LegacyHttp"):
            assert not re.search(rf"^[^#\"]*\b{name}\(", source, re.M), name
        (tmp_path / "mcp_lite.py").write_text(source, "utf-8")
        (tmp_path / "cut.py").write_text(CUT)
        told, _ = run(sys.executable, tmp_path / "cut.py", cwd=tmp_path)
        assert told.splitlines() == [
            *["1 None None", f"{MODERN} 3"] * 2,
            "UnsupportedVersion",
        ]

    def test_every_name_is_used_and_explained(self):
        """These tests use each name of __all__, and the text of README.md or of the
        handbook mentions it outside of its programs."""
        with open(__file__, encoding="utf-8") as file:
            tree = ast.parse(file.read())
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        used |= {
            node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)
        }
        paths = ("README.md", "examples/README.md")
        pages = "".join(pathlib.Path(HERE, path).read_text("utf-8") for path in paths)
        prose = re.sub(r"^ *```.*?^ *```$", "", pages, flags=re.M | re.S)
        explained = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", prose))))
        names = set(mcp_lite.__all__)
        assert names - used == set()
        assert names - explained == set()

    @pytest.mark.parametrize("over_http", [False, True])
    @pytest.mark.parametrize("version", ["2025-11-25", MODERN])
    def test_each_error_of_a_handler_arrives_as_it_is(self, version, over_http):
        """With its class, text and data."""
        server = Server("s")
        raised = []

        @server.method("vendor/fail")
        def fail(ctx, params):
            raise raised[-1]

        classes = [
            ParseError,
            InvalidRequest,
            MethodNotFound,
            InvalidParams,
            InternalError,
            MissingCapability,
            RequestCancelled,
        ]
        with client_at(server, over_http, protocol_version=version) as client:
            for kind in classes:
                raised.append(kind("because", {"why": 1}))
                with pytest.raises(McpError, match="because") as caught:
                    client.request("vendor/fail")
                assert type(caught.value) is kind
                assert caught.value.data == {"why": 1}

    @staticmethod
    def things():
        """{dotted name: what __all__ names, or a public attribute of its classes}."""
        things = {}
        for name in mcp_lite.__all__:
            thing = getattr(mcp_lite, name)
            things[name] = thing
            if not isinstance(thing, type):
                continue
            for owner in reversed(thing.__mro__):
                is_private = owner.__name__ not in mcp_lite.__all__
                is_ours = owner.__module__ == "mcp_lite"
                # What another public class defines is looked at there.
                if not is_ours or not (is_private or owner is thing):
                    continue
                for attribute, value in vars(owner).items():
                    is_data = isinstance(value, (int, str, tuple, type(None)))
                    if not attribute.startswith("_") and not is_data:
                        things[f"{name}.{attribute}"] = value
        return things

    @staticmethod
    def function_of(thing):
        """The plain function that runs, or None where there is none."""
        if isinstance(thing, type):
            thing = thing.__init__
        elif isinstance(thing, (classmethod, staticmethod)):
            thing = thing.__func__
        elif isinstance(thing, property):
            thing = thing.fget
        elif isinstance(thing, functools.cached_property):
            thing = thing.func
        return thing if isinstance(thing, types.FunctionType) else None

    def text_of(self, thing):
        """Its own docstring: what help() shows, if it is a class or a function."""
        if not isinstance(thing, type):
            thing = self.function_of(thing)
        return thing and thing.__doc__

    def functions(self):
        """(dotted name, plain function) of all that users call."""
        for name, thing in self.things().items():
            function = self.function_of(thing)
            if function is not None:
                yield name, function

    def test_everything_has_a_docstring(self):
        things = self.things()
        assert {"Server.tool", "Server.wsgi", "Client.call", "validate"} <= set(things)
        without = [name for name, thing in things.items() if not self.text_of(thing)]
        assert not without, "\n".join(without)

    def test_help_shows_every_signature(self):
        """Methods are functions with a signature of their own: no partialmethod."""
        things = self.things().items()
        things = [each for each in things if not isinstance(each[1], type)]
        assert [each for each in things if self.function_of(each[1]) is None] == []

    def test_every_option_is_explained(self):
        """It is named in the docstring of its function or of the function's class; of
        what servers are made with, each parameter is, in the function's own."""
        unexplained = []
        for name, function in self.functions():
            thing = getattr(mcp_lite, name.partition(".")[0])
            explainers = [function, *getattr(thing, "__mro__", ())]
            ours = [each for each in explainers if each.__module__ == "mcp_lite"]
            text = " ".join(each.__doc__ or "" for each in ours)
            # Nobody but a server makes a Context.
            is_strict = thing in (Server, Context, MainThread) and name != "Context"
            if is_strict:
                text = function.__doc__
            for option in [*inspect.signature(function).parameters.values()][1:]:
                is_named = re.search(rf"\b{option.name}\b", text)
                is_due = is_strict or option.kind is option.KEYWORD_ONLY
                if is_due and not is_named:
                    unexplained.append(f"{name}: {option.name}")
        assert not unexplained, "\n".join(unexplained)

    @pytest.mark.skipif(sys.version_info < (3, 10), reason="hints are written X | Y")
    def test_hints_can_be_resolved(self):
        """Tools that read annotations at run time can read these."""
        things = [pair for pair in self.things().items() if isinstance(pair[1], type)]
        wrong = []
        for name, thing in (*things, *self.functions()):
            try:
                typing.get_type_hints(thing)
            except Exception as error:
                wrong.append(f"{name}: {error}")
        assert not wrong, "\n".join(wrong)

    PROGRAM = """
        from mcp_lite import Client, Server

        server = Server("typed")

        @server.tool
        def bare(city: str, days: int = 3) -> str:
            return city * days

        @server.tool(name="other")
        def named(a: int, b: int) -> int:
            return a + b

        reveal_type(bare)
        reveal_type(named)
        server.start_http(port=0)
        server.start_http(prot=1)
        with Client(server) as client:
            client.call("other", a=1, b=2)
    """

    def test_a_program_is_type_checked(self, tmp_path):
        """Decorators keep a function's type; a misspelt option is an error."""
        if os.environ.get("MCP_LITE_MYPY"):
            mypy = [os.environ["MCP_LITE_MYPY"]]
        elif importlib.util.find_spec("mypy"):
            mypy = [sys.executable, "-m", "mypy"]
        else:
            pytest.skip("wants mypy, or its path in MCP_LITE_MYPY")
        program = textwrap.dedent(self.PROGRAM).strip()
        (tmp_path / "program.py").write_text(program, encoding="utf-8")
        options = ["--strict", "--config-file=", "--cache-dir", str(tmp_path / "cache")]
        options += ["--follow-imports=silent", "program.py"]
        env = {**os.environ, "MYPYPATH": HERE}
        told, _ = run(*mypy, *options, cwd=tmp_path, env=env, code=1)
        lines = told.replace("builtins.", "").splitlines()
        revealed = [line.split('"')[1] for line in lines if "Revealed type" in line]
        assert revealed == [
            "def (city: str, days: int =) -> str",
            "def (a: int, b: int) -> int",
        ]
        errors = [line for line in lines if ": error: " in line]
        assert len(errors) == 1, "\n".join(errors)
        assert 'Unexpected keyword argument "prot"' in errors[0]


def anchors_of(path):
    """The headings of a page, as links name them."""
    text = pathlib.Path(HERE, path).read_text("utf-8")
    titles = re.findall(r"^#+ (.*)$", text, re.M)
    return {
        re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in titles
    }


class TestReadme:
    """README.md and the examples work as they say."""

    @staticmethod
    def blocks(kind):
        paths = ("README.md", "examples/README.md")
        texts = [pathlib.Path(HERE, path).read_text("utf-8") for path in paths]
        return re.findall(rf"```{kind}\n(.*?)```", "".join(texts), re.S)

    @staticmethod
    def run(*words, variables=(), **options):
        """Return what a program prints; "python3" is this Python."""
        words = [{"python3": sys.executable}.get(word, word) for word in words]
        return run(*words, env={**os.environ, **dict(variables)}, **options)[0]

    def test_the_first_commands(self):
        """The first sh block is the two commands; the first of them runs."""
        first, _ = self.blocks("sh")[0].strip().splitlines()
        assert "lines  mcp_lite.py" in self.run(*shlex.split(first))

    def test_every_python_block_runs(self, tmp_path):
        """Each as a program of its own, which finds the file."""
        env = {**os.environ, "PYTHONPATH": HERE}
        blocks = self.blocks("python")
        assert len(blocks) >= 8
        names = []
        for number, block in enumerate(blocks):
            name = re.match(r"# (\w+\.py)", block)
            names.append(name.group(1) if name else f"block{number}.py")
            (tmp_path / names[-1]).write_text(block, encoding="utf-8")
        # One of them is the server of another.
        options = {"cwd": tmp_path, "env": env}
        at_once(lambda name: run(sys.executable, name, **options), zip(names))

    def test_a_server_in_a_minute(self, tmp_path):
        """In a fresh folder, a copy of the file and the first two programs do what the
        terminal shows, to the letter."""
        self.write_first_programs(tmp_path)
        count = 0
        for block in self.blocks("console"):
            for entry in ("\n" + block).split("\n$ ")[1:]:
                line, _, shown = entry.partition("\n")
                words = [
                    {"python3": sys.executable}.get(w, w) for w in shlex.split(line)
                ]
                options = {"cwd": tmp_path, "stderr": subprocess.STDOUT}
                is_failure = shown.startswith("mcp_lite: ")
                told, _ = run(*words, code=5 if is_failure else 0, **options)
                assert told.rstrip("\n") == shown.rstrip("\n"), line
                count += 1
        assert count == 4

    def test_configs_of_desktop_programs(self, tmp_path):
        """Both forms are read by examples/group.py, and start the first server."""
        server = self.write_first_programs(tmp_path)
        blocks = self.blocks("json")
        assert [list(json.loads(each)) for each in blocks] == [
            ["mcpServers"],
            ["servers"],
        ]
        for block in blocks:
            config = json.loads(block.replace("/path/to/server.py", server.as_posix()))
            config[list(config)[0]]["weather"]["command"] = sys.executable
            (tmp_path / "mcp.json").write_text(json.dumps(config))
            with example("group").ClientGroup(str(tmp_path / "mcp.json")) as group:
                assert group.errors == {}
                told = group.call("weather_forecast", city="Oslo", days=1)
            assert told == ["day 1: sun over Oslo"]

    def write_first_programs(self, folder):
        """Write the file, server.py and client.py into a folder; server.py's path."""
        shutil.copy(os.path.join(HERE, "mcp_lite.py"), str(folder))
        for block in self.blocks("python")[:2]:
            name = re.match(r"# (\w+\.py)\n", block)[1]
            (folder / name).write_text(block, encoding="utf-8")
        return folder / "server.py"

    def test_the_front_page(self):
        """It is short, and every file and heading that it links to is there."""
        text = pathlib.Path(HERE, "README.md").read_text("utf-8")
        assert len(text.splitlines()) <= 300
        links = re.findall(r"\]\(([^)\s]+)\)", text)
        assert len(links) >= 8
        for link in links:
            path, _, anchor = link.partition("#")
            if path.startswith("https://"):
                continue
            assert os.path.exists(os.path.join(HERE, path)), link
            assert not anchor or anchor in anchors_of(path), link

    # What a user did wrong, and what README's table of errors shows for it.
    MISTAKES = {
        "is run() missing?": "",
        "not a message, skipped (does the server print?)": """
            print("hello", flush=True)
            server.run()""",
        "SQLite objects created in a thread": """
            database = sqlite3.connect(":memory:")

            @server.tool
            def work() -> list:
                return database.execute("SELECT 1").fetchall()

            server.run()""",
        "MissingCapability": """
            @server.tool
            def work(ctx: Context) -> dict:
                return ctx.elicit("who?", {"type": "object", "properties": {}})

            server.run()""",
    }

    @pytest.mark.parametrize("shown", MISTAKES)
    def test_the_table_of_errors(self, shown, tmp_path):
        """It shows what users see who make these mistakes."""
        text = pathlib.Path(HERE, "README.md").read_text("utf-8")
        assert re.search(rf"^\| `{re.escape(shown)}", text, re.M)
        server = "import sqlite3\nfrom mcp_lite import *\nserver = Server('s')\n"
        server += textwrap.dedent(self.MISTAKES[shown])
        (tmp_path / "server.py").write_text(server)
        client = """
            import logging
            from mcp_lite import *
            logging.basicConfig()
            try:
                with Client("server.py") as client:
                    client.call("work")
            except (ToolError, McpError, OSError) as error:
                print(type(error).__name__, error)
        """
        program = [sys.executable, "-c", textwrap.dedent(client)]
        env = {**os.environ, "PYTHONPATH": HERE}
        assert shown in "".join(run(*program, cwd=tmp_path, env=env))

    def test_the_commands_of_a_terminal(self):
        """Each line of the block about the command line does what it says."""
        (block,) = (each for each in self.blocks("sh") if "mcp_lite list" in each)
        for line in block.strip().splitlines():
            assert self.run(*shlex.split(line, comments=True))

    @pytest.mark.skipif(not shutil.which("curl"), reason="wants curl")
    def test_every_curl_session_runs(self):
        """The bash blocks, against the server that they name."""
        with example("everything_server").server.start_http() as web:
            said = [
                self.run("bash", "-c", block.replace("8000", str(web.port)))
                for block in self.blocks("bash")
            ]
        assert len(said) == 2 and "simple text response" in said[0]
        assert said[1].count("notifications/progress") == 3
        assert '"id":2,"result"' in said[1]

    @pytest.mark.parametrize("says", ["y\n", ""])
    def test_the_agent(self, says):
        """The model hears of both kinds of errors, and tries again; nothing is changed
        unless the user says so."""
        told = self.run("python3", "examples/agent.py", input=says)
        assert "servers: files, notes\n" in told
        assert 'files_search: "search: text: required' in told
        assert 'files_search: "text: expected more than spaces' in told
        assert 'files_search: "[\\"mcp_lite.py:' in told
        assert ("written: found" in told) == bool(says)
        assert ("the user does not want it" in told) != bool(says)

    @pytest.mark.parametrize("over", ["stdio", "http"])
    @pytest.mark.parametrize("version", ["2025-06-18", MODERN])
    def test_a_replay(self, version, over, tmp_path):
        """examples/replay.py answers as the recorded server did, in the recorded order,
        and asks and tells what that did; anything else is an error that says so."""
        trace = tmp_path / "trace.jsonl"
        server = Server("recorded")
        counter = itertools.count(1)
        server.add_resource("note://x", lambda: "text")

        @server.tool
        def count(ctx: Context) -> int:
            ctx.progress(1, 2, "half")
            return next(counter)

        @server.tool
        def ask(ctx: Context) -> str:
            return ctx.elicit("Who?", FORM)["content"]["name"]

        def converse(client):
            told = []
            options = {"on_progress": lambda *each: told.append(each)}
            seen = [client.call_tool("count", **options) for _ in range(2)]
            seen += [client.list_tools(), client.read("note://x"), client.call("ask")]
            with client.listen(uris=["note://x"]) as changes:
                server.resource_updated("note://x")
                seen.append(next(changes)["method"])
            return seen, told, client.server_info, client.protocol_version

        questions = []

        def on_elicit(params):
            questions.append(params["message"])
            return {"action": "accept", "content": {"name": "Ada"}}

        options = {"on_elicit": on_elicit, "stderr": None}
        with Client(server, protocol_version=version, trace=trace, **options) as client:
            recorded = converse(client)
        command = [sys.executable, os.path.join(HERE, "examples", "replay.py")]
        command.append(str(trace))
        with contextlib.ExitStack() as stack:
            if over == "http":
                command.append("--http")
                quiet = {"stdout": PIPE, "stderr": subprocess.DEVNULL}
                process = subprocess.Popen(command, **quiet)
                stack.enter_context(process)
                stack.callback(process.kill)
                command = process.stdout.readline().decode().strip()
            client = stack.enter_context(Client(command, name="other", **options))
            for method, code in (("vendor/thing", -32601), ("resources/read", -32602)):
                with pytest.raises(McpError, match=f"not recorded: {method}") as caught:
                    client.request(method, {"uri": "note://y"})
                assert caught.value.code == code
            assert converse(client) == recorded
        assert questions == ["Who?", "Who?"]

    def test_tracing(self, tmp_path):
        """examples/otel.py: a call, what serves it, and the call that this makes are
        one trace, each the child of the one before."""
        (tmp_path / "opentelemetry.py").write_text("raise ImportError")
        path = {"PYTHONPATH": str(tmp_path)}
        told = self.run("python3", "examples/otel.py", variables=path)
        assert "the price: 9\n" in told and "SERVER server/discover" in told
        lines = [line.split(" ") for line in told.splitlines()]
        calls = [line for line in lines if line[1] == "tools/call"]
        kinds = ["SERVER count", "CLIENT count", "SERVER price", "CLIENT price"]
        assert [f"{line[0]} {line[2]}" for line in calls] == kinds * 2
        for of_one_call in (calls[:4], calls[4:]):
            (trace,) = {line[3] for line in of_one_call}
            ids, parents = ([line[n] for line in of_one_call] for n in (4, 5))
            assert parents == [*ids[1:], "-"]
        failed = ["'tool_error'}" in line for line in calls]
        assert failed == [False] * 4 + [True] * 4

    def test_tracing_with_opentelemetry(self):
        """The same with it, where it is installed: its spans have the same parents."""
        pytest.importorskip("opentelemetry.sdk")
        program = """
            import sys
            from opentelemetry import trace
            from opentelemetry.sdk.trace import TracerProvider, export
            sys.path.insert(0, "examples")
            import otel
            exporter = export.SimpleSpanProcessor(export.ConsoleSpanExporter())
            provider = TracerProvider()
            provider.add_span_processor(exporter)
            trace.set_tracer_provider(provider)
            otel.main()
        """
        text = self.run("python3", "-c", textwrap.dedent(program))
        text = text.replace("the price: 9\n", "")
        spans = json.loads("[" + text.replace("\n}\n{", "\n},\n{") + "]")
        calls = [span for span in spans if span["name"].startswith("tools/call")]
        for child, parent in zip(calls[:3], calls[1:4]):
            assert child["parent_id"] == parent["context"]["span_id"]
            assert child["context"]["trace_id"] == parent["context"]["trace_id"]
        failed = [span["attributes"].get("error.type") for span in calls]
        assert failed == [None] * 4 + ["tool_error"] * 4

    @pytest.mark.skipif(os.name != "posix", reason="wants inherited descriptors")
    def test_a_socket_of_systemd(self, tmp_path):
        """examples/systemd/server.py serves the socket that it inherits, with the
        tokens of its credential; callers may have come before it ran."""
        (tmp_path / "tokens.json").write_text('{"t0ken": {"sub": "ada"}}')
        # As systemd does it: descriptor 3, and the process that it is for.
        start = (
            "import os, sys; os.dup2(int(sys.argv[1]), 3);"
            "os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1');"
            "os.execv(sys.executable, [sys.executable, 'server.py'])"
        )
        path = str(tmp_path / "mcp.sock")
        unix = socket.AF_UNIX
        with socket.socket(unix) as sock, socket.socket(unix) as client:
            sock.bind(path)
            sock.listen()
            client.settimeout(SECONDS)
            client.connect(path)
            lines = ["Authorization: Bearer t0ken", "Connection: close"]
            lines.append("Mcp-Name: which_process")
            client.sendall(head_of(call_tool("which_process"), *lines))
            process = subprocess.Popen(
                [sys.executable, "-c", start, str(sock.fileno())],
                cwd=os.path.join(HERE, "examples", "systemd"),
                env={**os.environ, "CREDENTIALS_DIRECTORY": str(tmp_path)},
                pass_fds=[sock.fileno()],
                stderr=PIPE,
            )
            answer = b"".join(iter(lambda: client.recv(65536), b""))
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=SECONDS)
        assert answer.startswith(b"HTTP/1.1 200 OK")
        assert str(process.pid).encode() in answer
        assert b"INFO mcp_lite.http: - POST /mcp 200 " in told
        assert os.path.exists(path)
        assert process.returncode == 0


class TestLessons:
    """examples/lessons: each runs, and shows what it says."""

    FOLDER = pathlib.Path(HERE, "examples", "lessons")
    # What each prints, in this order.
    SHOWS = {
        "01_bytes.py": """
            <-- {"jsonrpc": "2.0", "id": 2, "result": 7}
            <-- {"jsonrpc": "2.0", "id": 1, "result": 3}
            "id": 3, "error": {"code": -32601
            "id": null, "error": {"code": -32700
            exit code 0""",
        "02_handshake.py": """
            "tools/list": not initialized
            "method": "server/discover"
            its modern revisions: ['2026-07-28']
            its tools: ['count_lines', 'search']
            agreed on: 2025-06-18
            the same tools: ['count_lines', 'search']
            exit code 0""",
        "03_tool.py": """
            A Python function: forecast(city: str, days: int = 3) -> list
            "default": 3
            "method": "tools/call", "params": { "name": "forecast", "arguments": {
            sun over Oslo
            city: required; days: expected integer, got""",
        "04_errors.py": """
            --> 2 tools/list
            --> 3 tools/call price {"arguments": {"item": "tea"}}
            value: 300
            ToolError, for the model: no coal here; there is tea
            ToolError, for the model: price: ZeroDivisionError
            *** and in the log of the server: price failed
            in price: return 1 // 0
            NotFound, code -32602, for you: Unknown tool: prize
            InvalidParams, code -32602, for you: price: item: expected string, got 7
            ToolError, for the model: price: item: expected string, got 7""",
        "05_progress.py": """
            --> 2 tools/call bake
            <-- notifications/progress
            *** loaf 1: 1 of 2
            *** loaf 2: 2 of 2
            "reason": "the shop is closed"
            *** the tool hears of it: the request was cancelled
            *** Timeout: tools/call: no answer within 0.5 seconds""",
        "06_question.py": """
            Legacy, 2025-06-18: a question to the user
            *** the function begins
            <-- 1 elicitation/create
            *** the user is asked
            *** the function goes on
            *** value: number 7: Oslo, Friday
            <-- 2 sampling/createMessage
            *** the model is asked: Praise Oslo
            *** value: Fjords, waffles.
            Modern, 2026-07-28: a question to the user
            *** the function begins
            {"resultType": "input_required"
            "requestState":
            This is a question in place of a result
            *** the user is asked
            --> 3 tools/call book
            *** the function begins
            *** the function goes on
            *** value: number 7: Oslo, Friday
            "sampling/createMessage"
            *** the model is asked: Praise Oslo
            *** value: Fjords, waffles.""",
        "07_resources.py": """
            *** ['note://list']
            *** buy tea
            resources/subscribe {"uri"
            *** notifications/resources/updated note://today
            *** drink tea
            completion/complete {"ref"
            *** to the model: Make a plan of the day. This is to be done: bake bread.
            --> 5 subscriptions/listen
            *** notifications/resources/updated note://today
            *** drink tea
            *** to the model: Make a plan of the day. This is to be done: bake bread.""",
        "08_http.py": """
            PART 1, MODERN
            --> POST /mcp Accept: application/json
            Mcp-Method: tools/list
            <-- 200 Content-Type: application/json
            <-- 400 Content-Type: application/json
            "code":-32020
            PART 2, LEGACY
            "method": "initialize"
            <-- 200
            Mcp-Session-Id:
            <-- 202
            Mcp-Session-Id:
            <-- 200 Content-Type: text/event-stream
            id: 2-1 event: message data: {
            "progress":1, "total":2}}
            the connection breaks
            --> GET /mcp
            Last-Event-ID: 2-1
            id: 2-2 event: message data: {
            "progress":2, "total":2}}
            id: 2-3
            "text":"counted"
            --> DELETE
            <-- 404 Content-Type: application/json""",
        "09_two_processes.py": """
            --> 1 tools/call book, to process A
            "resultType": "input_required"
            --> 2 tools/call book, to process B
            begun in A, done in B: to Oslo""",
        "10_hostile.py": """
            not JSON in UTF-8
            not JSON in UTF-8
            more than 750000 arrays and objects
            no number in JSON: NaN
            arguments: expected object
            cursor: not from this list
            exit code 0""",
    }

    def test_each_lesson(self):
        """It begins with what it teaches, shows it in lines that fit on a screen, and
        ends with two exercises."""
        at_once(self.try_out, zip(self.SHOWS))

    def try_out(self, name):
        path = self.FOLDER / name
        text = path.read_text("utf-8")
        assert re.match(r'"""Lesson \d+: .*\n\nTeaches: ', text)
        assert "\n# Exercises\n# 1. " in text and "\n# 2. " in text
        assert name >= "04" or "mcp_lite import" not in text
        # It fits on a page.
        assert len(text.splitlines()) <= 105
        told, _ = run(sys.executable, "-u", path, stderr=subprocess.STDOUT)
        # The opening is a lesson of its own; a reader's own code alone is shown.
        if name >= "04" and "import Explainer" in text:
            assert "initialize" not in told and "server/discover" not in told
        assert 'mcp_lite.py", line' not in told
        # A line that is long may be broken anywhere.
        rest = " ".join(told.split())
        for shown in textwrap.dedent(self.SHOWS[name]).strip().splitlines():
            _, is_there, rest = rest.partition(shown)
            assert is_there, f"{shown!r} is not in what follows, of:\n{told}"
        # Another thread may begin its line before the end of this one.
        lines = re.split(r"\n|(?=-->|<--|\*\*\*| {6})", told)
        assert [line for line in lines if len(line) > 100] == []

    def test_the_reading_order(self):
        """Its table has every lesson, and the rooms that it names are there."""
        text = (self.FOLDER / "README.md").read_text("utf-8")
        rows = re.findall(r"^\| `(\S+\.py)` \|.*\| ([^|]*) \|$", text, re.M)
        lessons = {name for name in os.listdir(self.FOLDER) if name.endswith(".py")}
        assert [name for name, _ in rows] == sorted(lessons) == sorted(self.SHOWS)
        rooms = re.findall(r"^    [ \d]\d\. (\S.*?)  ", mcp_lite.__doc__, re.M)
        for _, named in rows:
            assert set(re.sub(r" \(.*?\)", "", named).split(", ")) <= set(rooms)


class TestBridge:
    """examples/bridge.py: a server of one era, offered to clients of another."""

    def far(self):
        """A server with one of everything."""
        server = Server("far", version="3", title="Far", instructions="Be kind.")
        self.cancelled = threading.Event()
        self.begun = queue.Queue()

        @server.tool
        def add(a: int, b: int = 1) -> int:
            return a + b

        @server.tool
        def ask(ctx: Context) -> str:
            self.begun.put("ask")
            answers = [ctx.elicit(each, FORM) for each in ("one", "two")]
            return " ".join(each["content"]["name"] for each in answers)

        @server.tool
        def sample(ctx: Context) -> str:
            answer = ctx.sample("Who?", max_tokens=9)
            (root,) = ctx.roots()
            return f"{answer['content']['text']} {root['uri']}"

        @server.tool
        def work(ctx: Context) -> str:
            for n in range(3):
                ctx.progress(n, 3)
                ctx.log("info", n)
            return "done"

        @server.tool
        def stay(ctx: Context) -> None:
            self.begun.put("stay")
            ctx.on_cancel(self.cancelled.set)
            ctx.sleep(SECONDS)

        @server.tool
        def delete_all() -> None:
            raise ToolError("nothing is safe")

        server.add_resource("far://x", lambda: "text")
        server.add_prompt(lambda code: f"review {code}", name="review")
        server.completion("review", "code")(lambda text: [f"{text}1"])
        return server

    @pytest.mark.parametrize("ours", ["2024-11-05", "2025-11-25", MODERN])
    @pytest.mark.parametrize("theirs", ["2024-11-05", "2025-06-18", MODERN])
    def test_across_eras(self, theirs, ours):
        """All that both revisions have goes through, as the client's has it."""
        far = self.far()
        bridge = example("bridge").Bridge(
            far, protocol_version=theirs, deny=["delete_*"]
        )
        done, logs = [], queue.Queue()
        options = {
            "protocol_version": ours,
            "on_elicit": answer,
            "on_sample": lambda params: "a model",
            "roots": ["file:///here"],
            "on_log": lambda level, data, logger: logs.put((level, data)),
        }
        with contextlib.closing(bridge), Client(bridge.server, **options) as client:
            client.set_log_level("info")
            assert client.server_info["name"] == "far"
            assert client.instructions == "Be kind."
            names = [tool["name"] for tool in client.list_tools()]
            assert names == ["add", "ask", "sample", "work", "stay"]
            assert str(client.call("add", a=1, b=2)) == "3"
            heard = {"on_progress": lambda *told: done.append(told)}
            result = client.call_tool("work", **heard)
            assert ("resultType" in result) == (ours == MODERN)
            assert [told[0] for told in done] == [0, 1, 2]
            for n in range(3):
                assert logs.get(timeout=SECONDS) == ("info", n)
            assert client.call("sample") == "a model file:///here"
            if min(ours, theirs) >= "2025-06-18":
                assert client.call("ask") == "one two"
                # A modern client comes back with each answer; a session's call waits.
                begun = [self.begun.get_nowait() for _ in range(self.begun.qsize())]
                assert len(begun) == (3 if theirs == MODERN else 1)
            assert client.read("far://x") == "text"
            assert client.get_prompt("review", {"code": "y"})["messages"] == [
                {"role": "user", "content": {"type": "text", "text": "review y"}}
            ]
            assert client.complete("review", "code", "z") == ["z1"]
            for name in ("delete_all", "nosuch"):
                with pytest.raises(NotFound, match=name):
                    client.call(name)
            with client.listen(uris=["far://x"]) as changes:
                far.resource_updated("far://x")
                assert next(changes)["method"] == "notifications/resources/updated"
                far.add_tool(lambda: "new", name="newcomer")
                assert next(changes)["method"] == "notifications/tools/list_changed"
            assert client.call("newcomer") == "new"
            call = client.start_call("stay")
            assert self.begun.get(timeout=SECONDS) == "stay"
            call.cancel("no more")
            assert self.cancelled.wait(SECONDS)

    @pytest.mark.parametrize("has_tokens", [True, False])
    @pytest.mark.parametrize("ours", ["2025-11-25", MODERN])
    @pytest.mark.parametrize("theirs", ["2025-11-25", MODERN])
    def test_callers_are_kept_apart(self, theirs, ours, has_tokens):
        """Three callers at once: each is asked its own question, also where no token and
        no session tells them apart."""
        far = Server("far")
        all_three = threading.Barrier(3, timeout=SECONDS)

        @far.tool
        def whose(name: str, ctx: Context) -> str:
            ctx.once("met", all_three.wait)
            return ctx.elicit(f"Are you {name}?", FORM)["content"]["name"]

        bridge = example("bridge").Bridge(far, protocol_version=theirs)
        tokens = {name: {"sub": name} for name in ("ada", "bob", "cyd")}
        verify = tokens if has_tokens else None
        answers = {}

        def call(url, name):
            def answer(params):
                assert params["message"] == f"Are you {name}?"
                return {"action": "accept", "content": {"name": f"I am {name}"}}

            headers = {"Authorization": f"Bearer {name}"}
            options = {"version": ours, "headers": headers, "on_elicit": answer}
            with Client(url, **options) as client:
                answers[name] = client.call("whose", name=name)

        with contextlib.closing(bridge), bridge.server.start_http(verify=verify) as web:
            at_once(call, [(web.url, name) for name in tokens])
        assert answers == {name: f"I am {name}" for name in tokens}

    @pytest.mark.parametrize("theirs", ["2025-06-18", MODERN])
    def test_a_server_that_ends_is_started_again(self, tmp_path, theirs):
        """The call that it died of fails; the next has a new server, which tells of
        the same resources."""
        script = """
            server = Server("mortal")
            server.add_resource("far://x", lambda: "x")
            server.add_tool(lambda: os._exit(3), name="die")
            server.add_tool(lambda: server.resource_updated("far://x"), name="touch")
            server.run()
        """
        command = program(tmp_path, script)
        heard = queue.Queue()
        bridge = example("bridge").Bridge(command, protocol_version=theirs, stderr=None)
        options = {"on_notification": lambda method, params: heard.put(params["uri"])}
        with contextlib.closing(bridge), Client(bridge.server, **options) as client:
            client.subscribe("far://x")
            with pytest.raises(McpError, match="exit code 3"):
                client.call("die")
            client.call("touch")
            assert heard.get(timeout=SECONDS) == "far://x"

    def test_a_server_that_tells_of_no_resources(self, era):
        """The bridge does not say that it tells of them; list changes are heard."""
        far = Server("far")
        far.add_tool(lambda: "", name="one")
        bridge = example("bridge").Bridge(far, protocol_version="2025-11-25")
        client = Client(bridge.server, protocol_version=era)
        with contextlib.closing(bridge), client:
            assert "resources" not in client.server_capabilities
            with pytest.raises(MethodNotFound):
                client.request("resources/subscribe", {"uri": "far://x"})
            if era == MODERN:
                with pytest.raises(NotFound):
                    client.listen(uris=["far://x"])
                with client.listen() as changes:
                    far.add_tool(lambda: "", name="another")
                    assert next(changes)["method"].endswith("tools/list_changed")

    def test_as_a_program(self, tmp_path):
        """On stdio, with a choice of tools; the server gets the environment."""
        script = """
            server = Server("far")
            server.add_tool(lambda: os.environ["A_KEY"], name="key")
            server.add_tool(lambda: "", name="search")
            server.run()
        """
        command = [sys.executable, os.path.join(HERE, "examples", "bridge.py")]
        words = [*command, program(tmp_path, script)[-1], "--deny", "search"]
        with Client(words, env={"A_KEY": "s3cret"}) as client:
            assert [tool["name"] for tool in client.list_tools()] == ["key"]
            assert client.call("key") == "s3cret"
        absent = Client([*command, "/no/such/program"], stderr=None)
        with pytest.raises((McpError, ConnectionClosed), match="/no/such/program"):
            absent.connect()

    def test_from_a_url_to_a_url(self):
        """HTTP on both sides, the old HTTP+SSE on one; a client of each revision."""
        with self.far().start_http() as http:
            old = http.url.replace("/mcp", "/sse")
            bridge = example("bridge").Bridge(old, protocol_version="2024-11-05")
            with contextlib.closing(bridge), bridge.server.start_http() as ours:
                for n, version in enumerate(EVERY):
                    with Client(ours.url, protocol_version=version) as client:
                        result = client.call_tool("add", {"a": n, "b": n})
                        assert result["content"][0]["text"] == str(2 * n)


class TestGroup:
    """examples/group.py: config files, and several servers as one."""

    CONFIG = """\ufeff{
        // what the desktop reads }
        "mcpServers": {
            "web": {
                "type": "http",
                "url": "https://${HOST_OF_IT}/mcp//*no comment*/",
                "headers": {"Authorization": "Bearer ${env:HOST_OF_IT}"}, /* a
                comment of two lines */
            },
            "local": {
                "command": "~/bin/server",
                "args": ["--port", 8000, "${UNSET_HERE:-a, ]}",], // }
                "env": {"N": 7, "EMPTY": "${EMPTY_HERE:-full}", "KEEP": "${EMPTY_HERE}"},
                "cwd": "data",
                "disabled": false,
                "alwaysAllow": ["x"],
            },
            "off": {"command": "x", "disabled": true}, // }
            // the last one:
        },
    }"""

    @pytest.fixture
    def load(self, tmp_path, monkeypatch):
        """load(text) -> the Config of a file with that text."""
        monkeypatch.setenv("HOST_OF_IT", "example.com")
        monkeypatch.setenv("EMPTY_HERE", "")
        monkeypatch.delenv("UNSET_HERE", raising=False)
        self.path = tmp_path / "mcp.json"

        def load(text):
            self.path.write_text(text, encoding="utf-8")
            return example("group").load_config(self.path)

        return load

    def test_config_files_of_others(self, load):
        """Comments, trailing commas, variables, ~, numbers, what is off."""
        config = load(self.CONFIG)
        assert config == {
            "web": {
                "url": "https://example.com/mcp//*no comment*/",
                "headers": {"Authorization": "Bearer example.com"},
            },
            "local": {
                "command": os.path.expanduser("~/bin/server"),
                "args": ["--port", "8000", "a, ]"],
                "env": {"N": "7", "EMPTY": "full", "KEEP": ""},
                "cwd": "data",
            },
        }
        assert config.errors == {}
        server = {"command": "python3", "args": ["server.py"]}
        for content in ({"inputs": [], "servers": {"a": server}}, {"a": server}):
            assert load(json.dumps(content)) == {"a": server}

    def test_a_server_that_is_wrong_spoils_no_other(self, load):
        """Its error names the server, and shows no value."""
        good = {"url": "http://x"}
        unset = {"url": "http://x/${UNSET_HERE}s3cret"}
        config = load(json.dumps({"servers": {"a": unset, "b": good, "c": "s3cret"}}))
        assert config == {"b": good} and "s3cret" not in str(config.errors)
        assert str(config.errors["a"]).startswith("a: the variable UNSET_HERE")
        assert str(config.errors["c"]) == "c: expected an object"

    def test_files_without_servers(self, load):
        """A file that is no config is an error that names it; slashes cost no time."""
        for text, told in (
            ('{\n// a\n"servers": {]}', "not JSON: .*line 3"),
            ("[]", '"mcpServers" or "servers", got list'),
            ("[" * 200_000, "not JSON"),
            ("/*" * 200_000, "not JSON"),
            ('"\\' * 200_000, "not JSON"),
        ):
            with pytest.raises(ValueError, match=told) as caught:
                load(text)
            assert str(self.path) in str(caught.value)

    @pytest.mark.parametrize("version", ["2025-06-18", MODERN])
    def test_several_servers_as_one(self, version):
        """In memory, as processes and at URLs; what fails leaves the others alone. Names
        that would collide are told apart."""
        near, far = Server("near"), Server("far")
        near.add_tool(lambda: "near", name="b_c")
        near.add_prompt(lambda: "be near", name="be")
        near.add_resource("near://x", lambda: "near x")

        @near.middleware
        def refuse(ctx: Context, method, params, call_next):
            if params.get("uri") == "far://y":
                raise McpError(0, "an error of its own")
            return call_next()

        far.add_tool(lambda: "far", name="c")
        far.add_resource("far://{name}", lambda name: f"far {name}")
        with far.start_http() as http:
            tasks = os.path.join(HERE, "examples", "tasks.py")
            targets = {
                "a": near,
                "child": [*PYTHON, tasks, "--serve"],
                "dead": [sys.executable, "-c", "import sys; sys.exit(3)"],
                "a_b": http.url,
                "odd": {"args": []},
            }
            with example("group").ClientGroup(
                targets, protocol_version=version
            ) as group:
                assert list(group.clients) == ["a", "child", "a_b"]
                assert set(group.errors) == {"dead", "odd"}
                with pytest.raises(ConnectionClosed, match="exit code 3"):
                    group["dead"]
                with pytest.raises(KeyError):
                    group["nobody"]
                assert group["a_b"].server_info["name"] == "far"
                names = [tool["name"] for tool in group.list_tools()]
                assert names == ["a_b_c", "child_bake", "a_b__c"]
                assert group.call("a_b_c") == "near"
                assert group.call_tool("a_b__c")["content"][0]["text"] == "far"
                (prompt,) = group.list_prompts()
                messages = group.get_prompt(prompt["name"])["messages"]
                assert messages[0]["content"]["text"] == "be near"
                assert [each["uri"] for each in group.list_resources()] == ["near://x"]
                (template,) = group.list_resource_templates()
                assert template["uriTemplate"] == "far://{name}"
                assert group.read("near://x") == "near x"
                assert group.read("far://y") == "far y"
                with pytest.raises(NotFound, match="far_were.*not connected: .*dead"):
                    group.call("far_were")
                with pytest.raises(NotFound, match="other://z: no server has it"):
                    group.read("other://z")
        assert set(group.errors) == {"dead", "odd"}
        with pytest.raises(ConnectionClosed):
            group.call("a_b_c")

    def test_as_a_program(self, tmp_path):
        """It lists the tools of a config's servers, and says which are not there."""
        script = os.path.join(HERE, "examples", "quickstart_server.py")
        local = {"command": sys.executable, "args": [script]}
        servers = {"q": local, "gone": {"command": "/no/such/program"}}
        path = tmp_path / "mcp.json"
        path.write_text(json.dumps({"mcpServers": servers}))
        told, why = run(sys.executable, "examples/group.py", path)
        assert "q_search  " in told
        assert "without gone: " in why and "/no/such/program" in why


class TestExplain:
    """examples/explain.py: a conversation in words."""

    @pytest.mark.parametrize("version, over", [("2025-11-25", "http"), (MODERN, "")])
    def test_each_thing_once(self, version, over):
        """It says what each method is for, and where the revision's pages tell it."""
        explain = example("explain")
        written = []
        server = Server("shop")

        @server.tool
        def price(item: str, ctx: Context) -> int:
            ctx.progress(1, 2, "half")
            return 3 if ctx.elicit(f"Buy {item}?", FORM)["action"] == "accept" else 4

        options = {
            "protocol_version": version,
            "trace": explain.Explainer(written.append),
            "on_elicit": lambda params: {"action": "decline"},
        }
        with client_at(server, over == "http", **options) as client:
            for _ in range(2):
                client.call_tool("price", {"item": "tea"}, on_progress=print)
            with pytest.raises(McpError):
                client.request("vendor/nothing")
        lines = "".join(written).splitlines()
        assert max(map(len, lines)) <= 100
        # An explanation may be broken into lines anywhere.
        words = " ".join(" ".join(lines).split())
        for method in ("tools/call", "notifications/progress"):
            assert words.count(explain.WORDS[method].purpose) == 1
        assert f"[{version}/server/tools]" in words and "error -32601" in words
        if version == MODERN:
            assert words.count("This is a question in place of a result: ") == 1
        else:
            assert "a session is open, and speaks 2025-11-25" in words
            assert "--> POST /mcp" in words and "<-- HTTP 200" in words

    def test_as_a_program(self):
        """It explains a conversation with a server; an error is one line."""
        search = ["examples/quickstart_server.py", "search", '{"text": "def"}']
        for words, code, shown in (
            (search, 0, "tools/call"),
            (["/no/such/server.py"], 1, "\nexplain: "),
        ):
            words = [sys.executable, "examples/explain.py", *words]
            told, _ = run(*words, code=code, stderr=subprocess.STDOUT)
            assert shown in told and "Traceback" not in told


class TestTasks:
    """examples/tasks.py: the tasks extension, in both roles."""

    EXTENSIONS = {"io.modelcontextprotocol/tasks": {}}

    def shop(self, **options):
        """A server with tools that are tasks."""
        server = Server("shop", extensions=self.EXTENSIONS)
        names = ["buy", "fail", "refuse", "wait"]
        example("tasks").Tasks(server, names, poll=0.01, **options)
        self.heard = threading.Event()

        @server.tool
        def buy(item: str, ctx: Context) -> str:
            ctx.progress(1, 2, "half")
            answers = [ctx.elicit(each, FORM)["content"] for each in ("one", "two")]
            return " ".join([item] + [each["name"] for each in answers])

        @server.tool
        def fail() -> None:
            raise ToolError("invalid input")

        @server.tool
        def refuse() -> None:
            raise McpError(-32603, "rate limit", {"limit": 3})

        @server.tool
        def wait(ctx: Context) -> None:
            ctx.on_cancel(self.heard.set)
            ctx.sleep(SECONDS)

        return server

    @contextlib.contextmanager
    def raw(self, target, **options):
        """A client that gets tasks as they are on the wire."""
        types = {"task": lambda call, task: task}
        options = {"extensions": self.EXTENSIONS, "result_types": types, **options}
        options["on_elicit"] = lambda params: None
        with Client(target, **options) as client:
            yield client

    def until(self, client, task, *wanted):
        """The task as it is told once it has one of these states."""
        told = []

        def is_so():
            told.append(client.request("tasks/get", {"taskId": task["taskId"]}))
            assert told[-1]["status"] in (*wanted, "working", "input_required"), told
            return told[-1]["status"] in wanted

        eventually(is_so)
        return told[-1]

    @pytest.mark.parametrize("place", ["memory", "stdio", "http"])
    def test_both_roles(self, place):
        """client.call() waits for the task's end; its questions reach the callbacks."""
        tasks = example("tasks")
        seen = []
        options = tasks.task_options(lambda task: seen.append(task["status"]))
        flour = {"action": "accept", "content": {"flour": "rye"}}
        with contextlib.ExitStack() as stack:
            target = tasks.build_server(poll=0.01)
            if place == "http":
                target = stack.enter_context(target.start_http()).url
            if place == "stdio":
                target = [sys.executable, tasks.__file__, "--serve"]
            client = Client(target, on_elicit=lambda params: flour, **options)
            stack.enter_context(client)
            assert client.call("bake", loaves=1) == "1 loaves of rye"
        assert seen[0] in ("working", "input_required")
        assert seen[-1] == "completed" and seen.count("input_required") >= 1

    def test_the_flow_of_the_specification(self):
        """A task is created, asks, is answered, and has what the call would have had."""
        with self.raw(self.shop()) as client:
            task = client.start_call("buy", {"item": "tea"}).result()
            assert task["resultType"] == "task" and task["ttlMs"] == 3_600_000
            assert {"createdAt", "lastUpdatedAt", "pollIntervalMs"} <= set(task)
            keys = []
            for name in ("Ada", "Bob"):
                told = self.until(client, task, "input_required")
                assert told["statusMessage"] == "1 of 2 half"
                ((key, question),) = told["inputRequests"].items()
                assert question["method"] == "elicitation/create"
                keys.append(key)
                answer = {"action": "accept", "content": {"name": name}}
                given = {key: answer, "never asked": answer}
                update = {"taskId": task["taskId"], "inputResponses": given}
                for _ in range(2):
                    told = client.request("tasks/update", update)
                    assert set(told) <= {"resultType", "_meta"}
            assert len(set(keys)) == 2
            done = self.until(client, task, "completed")
            assert done["result"]["content"][0]["text"] == "tea Ada Bob"
            # A terminal state does not change.
            client.request("tasks/cancel", {"taskId": task["taskId"]})
            assert self.until(client, task, "completed", "cancelled") == done

    def test_how_a_task_may_end(self):
        """A failure is a result, an error is told, and cancelling reaches the tool."""
        with self.raw(self.shop()) as client:
            done = self.until(client, client.start_call("fail").result(), "completed")
            assert done["result"]["isError"] is True
            done = self.until(client, client.start_call("refuse").result(), "failed")
            error = {"code": -32603, "message": "rate limit", "data": {"limit": 3}}
            assert done["error"] == error
            for name in ("wait", "buy"):
                item = {"item": "x"} if name == "buy" else {}
                task = client.start_call(name, item).result()
                client.request("tasks/cancel", {"taskId": task["taskId"]})
                assert "result" not in self.until(client, task, "cancelled")
            assert self.heard.wait(SECONDS)
            for method in ("tasks/get", "tasks/update", "tasks/cancel"):
                with pytest.raises(InvalidParams, match="task"):
                    client.request(method, {"taskId": "?", "inputResponses": {}})

    def test_who_gets_tasks(self):
        """Only clients that declare them, in the modern era; and each only its own."""
        server = self.shop(only=["refuse"])
        for options in ({"extensions": {}}, {"protocol_version": "2025-11-25"}):
            with self.raw(server, **options) as client:
                assert client.start_call("fail").result()["isError"] is True
                with pytest.raises(MissingCapability) as caught:
                    client.start_call("refuse").result()
                needed = {"extensions": self.EXTENSIONS}
                assert caught.value.data["requiredCapabilities"] == needed
        tokens = {name: {"sub": name} for name in ("ada", "bob")}
        with server.start_http(verify=tokens) as web, contextlib.ExitStack() as stack:
            headers = [{"Authorization": f"Bearer {name}"} for name in tokens]
            clients = [self.raw(web.url, headers=each) for each in headers]
            ada, bob = map(stack.enter_context, clients)
            task = ada.start_call("fail").result()
            self.until(ada, task, "completed")
            with pytest.raises(InvalidParams, match="Unknown task"):
                bob.request("tasks/get", {"taskId": task["taskId"]})

    def test_tasks_are_forgotten(self):
        """After its time, a task is unknown, and its work is cancelled."""
        with self.raw(self.shop(ttl=0.0)) as client:
            task = client.start_call("wait").result()
            with pytest.raises(InvalidParams, match="Unknown task"):
                client.request("tasks/get", {"taskId": task["taskId"]})
            assert self.heard.wait(SECONDS)

    def follow(self, *states, **options):
        """A client's outcome of a call, as another server's task has these states; and
        the requests that the server got."""
        got = []
        todo = iter(states)
        server = Server("other", extensions=self.EXTENSIONS)
        server.add_tool(lambda: "", name="x")

        @server.middleware
        def serve(ctx, method, params, call_next):
            got.append((method, params.get("inputResponses")))
            if method == "tools/call":
                return {"resultType": "task", "taskId": "t", "status": "working"}
            return call_next()

        def get(ctx, params):
            return {"taskId": "t", **next(todo, states[-1])}

        (extension,) = self.EXTENSIONS
        server.method("tasks/get", extension=extension)(get)
        for name in ("tasks/update", "tasks/cancel"):
            server.method(name, extension=extension)(lambda ctx, params: {})
        options.update(example("tasks").task_options())
        form = {"action": "accept", "content": {"name": "Ada"}}
        with Client(server, on_elicit=lambda params: form, **options) as client:
            try:
                outcome = client.call("x")
            except Exception as error:
                outcome = error
        return outcome, got

    def test_the_client_of_another_server(self):
        """No question is answered twice; each end is told; one that gives up cancels."""
        question = {"method": "elicitation/create", "params": {"message": "?"}}
        question["params"]["requestedSchema"] = FORM
        asks = {"status": "input_required", "inputRequests": {"k": question}}
        result = {"content": [{"type": "text", "text": "done"}]}
        done = {"status": "completed", "result": result}
        outcome, got = self.follow(asks, asks, {"status": "working"}, done)
        assert outcome == "done"
        (given,) = [given for method, given in got if method == "tasks/update"]
        content = {"name": "Ada", "age": 7}
        assert given == {"k": {"action": "accept", "content": content}}
        error = {"code": -32000, "message": "no luck"}
        outcome, _ = self.follow({"status": "failed", "error": error})
        assert isinstance(outcome, McpError) and outcome.code == -32000
        outcome, _ = self.follow({"status": "cancelled"})
        assert isinstance(outcome, Cancelled)
        outcome, got = self.follow({"status": "working"}, total_timeout=0.2)
        assert isinstance(outcome, Timeout) and got[-1][0] == "tasks/cancel"


class TestInspector:
    """examples/inspector.py: its door, its conversations, its page."""

    @pytest.fixture
    def open_page(self):
        """open_page(target, **options) -> the running server of its page."""
        module = example("inspector")
        with contextlib.ExitStack() as stack:

            def start(target, **options):
                inspector = module.Inspector(target, **options)
                page = stack.enter_context(module.PageServer(inspector))
                thread = started(page.serve_forever, 0.02)
                for undo in (thread.join, page.shutdown, inspector.close):
                    stack.callback(undo)
                self.ask(page, "connect")
                return page

            yield start

    @staticmethod
    def send(page, method="POST", path="/api/poll", body=b'{"after": -1}', **headers):
        """The response, read, to a request of the page's own, but for these headers;
        None leaves one out."""
        own = {
            "Host": f"127.0.0.1:{page.server_port}",
            "Origin": f"http://127.0.0.1:{page.server_port}",
            "Content_Type": "application/json",
            "Content_Length": str(len(body)),
            "X_Token": page.token,
            **headers,
        }
        address = ("127.0.0.1", page.server_port)
        connection = http.client.HTTPConnection(*address, timeout=SECONDS)
        connection.putrequest(method, path, skip_host=True)
        for name, value in own.items():
            if value is not None:
                connection.putheader(name.replace("_", "-"), value)
        connection.endheaders(body)
        with contextlib.closing(connection):
            response = connection.getresponse()
            return response.status, response.headers, response.read().decode()

    def ask(self, page, name, /, **asked):
        body = json.dumps(asked).encode()
        status, _, text = self.send(page, path=f"/api/{name}", body=body)
        assert status == 200, text
        return json.loads(text)

    def follow(self, page, wanted):
        """Return what the page shows, {(kind, key): value}, once it is wanted."""
        shown = {}

        def is_there():
            changes = self.ask(page, "poll", after=-1)["changes"]
            shown.update({(kind, key): value for kind, key, value in changes})
            return wanted(shown)

        eventually(is_there)
        return shown

    def test_the_door(self, open_page):
        """Only the page with the token is let in; its policy lets nothing else run."""
        page = open_page(Server("any"))
        path = f"/?token={page.token}"
        status, headers, body = self.send(page, "GET", path, X_Token=None, Origin=None)
        assert status == 200 and "<h1>MCP inspector</h1>" in body
        policy = headers["Content-Security-Policy"]
        (nonce,) = set(re.findall("'nonce-([^']+)'", policy))
        assert body.count(f'nonce="{nonce}"') == 2
        assert "default-src 'none'" in policy and "unsafe" not in policy
        # No text of a server becomes markup.
        assert not re.search("(inner|outer)HTML|insertAdjacent|document.write", body)
        assert self.send(page)[0] == 200
        for wrong in (
            {"X_Token": None},
            {"X_Token": "guessed"},
            {"Host": f"evil.example:{page.server_port}"},
            {"Host": None},
            {"Origin": "http://evil.example"},
            {"Origin": None},
            {"method": "GET", "path": "/?token=guessed"},
            {"method": "GET", "path": path, "Host": "evil.example"},
            {"method": "GET", "path": path, "Origin": "http://evil.example"},
        ):
            assert self.send(page, **wrong)[0] == 403, wrong
        assert self.send(page, Content_Type="text/plain")[0] == 415
        assert self.send(page, path="/api/none")[0] == 404
        assert self.send(page, body=b"[")[0] == 400
        assert self.send(page, Content_Length=str(5 << 20))[0] == 413

    @staticmethod
    def bakery():
        server = Server("bakery", instructions="Bread.")

        @server.tool
        def bake(loaf: str, ctx: Context) -> dict:
            ctx.progress(1, 2, "half")
            return {"loaf": loaf, "for": ctx.elicit("Who are you?", FORM)["content"]}

        server.add_resource("bread://rye", lambda: "dark")
        server.add_prompt(lambda bread: f"Praise {bread}.", name="praise")
        return server

    @pytest.mark.parametrize("version", ["2025-06-18", MODERN])
    def test_a_conversation(self, open_page, version):
        """It shows what the server lists, does, says and asks; answers go back."""
        server = self.bakery()
        page = open_page(server, protocol_version=version)
        shown = self.follow(page, lambda shown: ("list", "prompts") in shown)
        assert shown["state", 0]["version"] == version
        tools = shown["list", "tools"]["items"]
        assert [tool["name"] for tool in tools] == ["bake"]

        def outcomes(shown):
            jobs = [shown[key] for key in shown if key[0] == "job"]
            done = [job for job in jobs if "result" in job or "error" in job]
            return {job["title"]: job for job in done}

        def questions(shown):
            return [key[1] for key in shown if key[0] == "question" and shown[key]]

        self.ask(page, "read", uri="bread://rye")
        self.ask(page, "prompt", name="praise", arguments={"bread": "rye"})
        self.ask(page, "call", name="cake", arguments={})
        done = outcomes(self.follow(page, lambda shown: len(outcomes(shown)) == 3))
        assert done["bread://rye"]["result"]["contents"][0]["text"] == "dark"
        assert "Praise rye." in json.dumps(done["praise"]["result"])
        assert "Unknown tool: cake" in done["cake"]["error"]

        self.ask(page, "call", name="bake", arguments={"loaf": "rye"})
        (number,) = questions(self.follow(page, questions))
        answer = {"action": "accept", "content": {"name": 1}}
        body = json.dumps({"question": number, "answer": answer}).encode()
        status, _, why = self.send(page, path="/api/answer", body=body)
        assert status == 400 and "name: expected string" in why
        answer["content"]["name"] = "Ada"
        self.ask(page, "answer", question=number, answer=answer)
        shown = self.follow(page, lambda shown: "bake" in outcomes(shown))
        baked = outcomes(shown)["bake"]["result"]["structuredContent"]
        assert baked == {"loaf": "rye", "for": {"name": "Ada", "age": 7}}
        texts = [shown[key]["text"] for key in shown if key[0] in ("wire", "log")]
        assert "1 of 2 half" in texts
        assert any('"method":"tools/call"' in text for text in texts)

        # A call that is cancelled leaves no question.
        self.ask(page, "call", name="bake", arguments={"loaf": "oat"})
        shown = self.follow(page, questions)
        self.ask(page, "cancel", job=max(key[1] for key in shown if key[0] == "job"))
        self.follow(page, lambda shown: not questions(shown))
        server.add_tool(lambda: "", name="newcomer")
        self.follow(page, lambda shown: len(shown["list", "tools"]["items"]) == 2)

    @pytest.mark.parametrize("version", ["2025-06-18", MODERN])
    def test_what_a_user_may_set(self, open_page, version):
        """Roots, the level of the log, subscriptions and completions reach the server;
        what is cleared is shown on no page any more."""
        server = Server("shop")

        @server.tool
        def where(ctx: Context) -> list:
            for level in ("debug", "info"):
                ctx.log(level, f"{level} of the shop")
            return [each["uri"] for each in ctx.roots()]

        server.add_resource("shop://tea", lambda: "3")
        server.add_prompt(lambda kind: kind, name="praise")
        server.completion("praise", "kind")(lambda text: [f"{text}!"])
        page = open_page(server, protocol_version=version)
        self.follow(page, lambda shown: ("list", "prompts") in shown)
        asked = {"ref": "praise", "argument": "kind", "value": "tea", "context": {}}
        assert self.ask(page, "complete", **asked) == {"values": ["tea!"]}
        self.ask(page, "roots", roots=["file:///here"])
        self.ask(page, "level", level="debug")
        self.ask(page, "call", name="where", arguments={})

        def said(shown):
            texts = [each.get("text") for key, each in shown.items() if key[0] == "log"]
            return "debug of the shop" in texts and any(
                "file:///here" in json.dumps(each.get("result", ""))
                for key, each in shown.items()
                if key[0] == "job"
            )

        self.follow(page, said)
        self.ask(page, "subscribe", uri="shop://tea", on=True)
        settings = self.follow(page, lambda shown: shown["settings", 0]["subscribed"])
        assert settings["settings", 0] == {
            "roots": ["file:///here"],
            "level": "debug",
            "levels": LEVELS,
            "subscribed": ["shop://tea"],
        }
        server.resource_updated("shop://tea")
        updated = {"level": "updated", "logger": None, "text": "shop://tea"}
        self.follow(page, lambda shown: updated in shown.values())
        self.ask(page, "subscribe", uri="shop://tea", on=False)
        for what in ("wire", "results"):
            self.ask(page, "clear", what=what)
        kinds = {kind for kind, *_ in self.ask(page, "poll", after=-1)["changes"]}
        assert not kinds & {"job"} and "list" in kinds
        for name, wrong in (
            ("roots", {"roots": ["http://x"]}),
            ("level", {"level": "loud"}),
            ("part", {"job": 0, "from": 0}),
        ):
            body = json.dumps(wrong).encode()
            assert self.send(page, path=f"/api/{name}", body=body)[0] == 400

    def test_a_result_of_many_megabytes(self, open_page):
        """Its beginning is shown, and all of it comes in parts."""
        server = Server("large")
        server.add_tool(lambda: "x" * 5_000_000, name="large")
        page = open_page(server)
        self.follow(page, lambda shown: ("list", "prompts") in shown)
        self.ask(page, "call", name="large", arguments={})
        found = lambda shown: [  # noqa: E731
            (key[1], each)
            for key, each in shown.items()
            if key[0] == "job" and "result" in each
        ]
        ((number, job),) = found(self.follow(page, found))
        content = job["result"]["content"]
        assert len(json.dumps(job)) < 200_000
        assert content[0]["text"].endswith("x [cut: 5,000,000 characters in all]")
        text = ""
        while part := self.ask(page, "part", job=number, **{"from": len(text)})["text"]:
            text += part
        assert len(text) == job["size"]
        assert json.loads(text)["content"][0]["text"] == "x" * 5_000_000


class TestSoak:
    """examples/soak.py, which tries everything at once."""

    SOAK = os.path.join(HERE, "examples", "soak.py")

    def test_short_soaks(self):
        """Some seconds of everything, without a loss, a warning, or a thing left over;
        where a library lies, wrong values are losses."""
        lie = f"""
            import runpy, sys
            sys.path.insert(0, {HERE!r})
            import mcp_lite
            mcp_lite.Client.read = lambda self, uri: "x"
            sys.argv = ["soak.py", "0.01"]
            runpy.run_path({self.SOAK!r}, run_name="__main__")
        """
        tried = [
            (0, "-X", "dev", "-W", "error", self.SOAK, "0.01"),
            (1, "-c", textwrap.dedent(lie)),
        ]
        (told, complaints), (lies, _) = at_once(
            lambda code, *words: run(sys.executable, *words, code=code), tried
        )
        left = r"threads 1 -> 1, descriptors (\d+) -> \1"
        assert re.search(rf"ok: .* calls, 0 losses, .*, {left}\n$", told), told
        assert complaints == ""
        assert re.search(r"FAILED: [1-9]\d* losses.*\n$", lies), lies

    def test_the_verdict_of_a_soak(self):
        """A loss, a leftover or growth fails it."""
        verdict = example("soak").verdict
        assert verdict(9, 0, 1.0, 32.0, (1, 1), (5, 5)).startswith("ok: 9 calls")
        for wrong, why in (
            ((9, 1, 1.0, 32.0, (1, 1), (5, 5)), "1 losses"),
            ((9, 0, 32.1, 32.0, (1, 1), (5, 5)), "memory"),
            ((9, 0, 1.0, 32.0, (1, 2), (5, 5)), "threads"),
            ((9, 0, 1.0, 32.0, (1, 1), (5, 6)), "descriptors"),
        ):
            assert verdict(*wrong).startswith(f"FAILED: {why}: 9 calls")


class TestBenchmark:
    """examples/benchmark.py: it measures and prints."""

    def test_it_prints_every_row(self, tmp_path):
        """Each row has a figure for each server, and so has the picture."""
        program = os.path.join(HERE, "examples", "benchmark.py")
        picture = os.path.join(tmp_path, "figures.svg")
        options = ["0.01", "--rounds", "1", "--svg", picture]
        printed, _ = run(sys.executable, program, *options)
        for row in (
            "one call at a time",
            "64 calls in flight",
            "8 MiB echoed",
            "HTTP, connections: 32",
            "ms, start to the first answer",
        ):
            for server in ("bare", "mcp_lite"):
                assert re.search(rf"^{row} +{server} +[\d.,]+", printed, re.M)
        assert "ms, mcp_lite without a .pyc" in printed
        with open(picture, encoding="utf-8") as file:
            drawn = xml.etree.ElementTree.fromstring(file.read())
        texts = [each.text for each in drawn.iter() if each.text]
        for row in ("64 calls in flight", "HTTP, connections: 8", "MiB, idle", "lines"):
            assert texts[texts.index(row) + 1] == "bare"
        bars = [each for each in drawn.iter() if each.tag.endswith("rect")]
        # Nine rows, two servers.
        assert len(bars) == 18
        assert max(float(each.get("width")) for each in bars) == 480


class TestVendor:
    """examples/vendor.py: copies with only what their users need."""

    # What each copy does in a program of its own, beside what every copy does. A server
    # is served; `target` is a server with one of everything.
    SERVE = """
        server = mcp_lite.Server("cut", version="1")

        @server.tool
        def count(to: int, ctx: mcp_lite.Context) -> list:
            "Count, if that is wanted."
            ctx.progress(1, to)
            form = {"type": "object", "properties": {"sure": {"type": "boolean"}}}
            said = ctx.elicit("Sure?", form)
            return list(range(to)) if said["content"]["sure"] else []

        @server.resource("cut://{name}")
        def read(name: str) -> str:
            return name

        @server.prompt
        def ask(what: str) -> str:
            return what
    """
    ON_STDIO = f"{SERVE}\n        server.run()"
    OVER_HTTP = f"{SERVE}\n        server.run('http', port=0)"
    IN_MEMORY = """
        def sure(params):
            return {"action": "accept", "content": {"sure": True}}

        with mcp_lite.Client(server, on_elicit=sure) as client:
            print(client.call("count", to=2), client.read("cut://x"))
    """
    CALL = """
        def answer(params):
            return {"action": "accept", "content": {"name": "Ada"}}

        options = {"on_elicit": answer, "stderr": None, "auth": auth}
        for version in versions:
            with mcp_lite.Client(target, protocol_version=version, **options) as client:
                progress = []
                told = {"on_progress": lambda *each: progress.append(each)}
                client.call_tool("count", {"to": 2}, **told)
                form = client.call("form")
                text = client.read("x://note")
                print(version, len(progress), form["content"]["name"], text)
    """
    LOG_IN = """
        import http.client, urllib.parse

        def visit(url):
            parts = urllib.parse.urlsplit(url)
            web = http.client.HTTPConnection(parts.netloc, timeout=30)
            web.request("GET", f"{parts.path}?{parts.query}")
            with web.getresponse() as answer:
                place = answer.headers["Location"]
            web.close()
            return place

        with mcp_lite.Client(target, auth=mcp_lite.OAuth(redirect=visit)) as client:
            print(client.call("anything"))
    """

    @pytest.fixture
    def make(self, tmp_path):
        """make(*words) -> the text of a copy beside which programs are run."""
        self.folder = tmp_path / "vendor"
        path = self.folder / "mcp_lite.py"

        def make(*words):
            argv = ["vendor.py", *words, "-o", str(path)]
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(sys, "argv", argv)
                example("vendor").main()
            text = path.read_text("utf-8")
            # What older Pythons would refuse; `-W error` is what any would warn of.
            self.tree = ast.parse(text, feature_version=(3, 8))
            return text

        return make

    def program(self, text, **values):
        """The command of a program beside the copy."""
        path = self.folder / "program.py"
        lines = ["import mcp_lite", *[f"{name} = {values[name]!r}" for name in values]]
        path.write_text("\n".join(lines) + "\n" + textwrap.dedent(text))
        return [sys.executable, "-W", "error", str(path)]

    @staticmethod
    def statements(tree):
        nodes = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
        texts = [
            node
            for node in nodes
            if isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ]
        return len(nodes) - len(texts)

    def show(self, words, text):
        """Print a row of the table. The handbook is not off by more than a tenth.
        Returns how many statements there are."""
        size = len(text.encode()) // 1000
        count = self.statements(self.tree)
        lines = len(text.splitlines())
        print(f"| {words} | {count:,} | {lines:,} | {size} |")
        handbook = pathlib.Path(HERE, "examples", "README.md").read_text("utf-8")
        rows = re.findall(r"^\| ([a-z ]+) \| ([\d,]+) \| ([\d,]+) \|", handbook, re.M)
        told = {
            name: [int(n.replace(",", "")) for n in numbers] for name, *numbers in rows
        }
        assert len(told) == 8
        if "--no-comments" not in words:
            for shown, found in zip(told[words], (count, lines)):
                assert abs(shown - found) <= found / 10, (
                    f"write {words} | {count} | {lines}"
                )
        return count

    def serves(self, target, versions):
        """A server that a copy has made works for a client of the whole file."""
        sure = {"action": "accept", "content": {"sure": True}}
        for version in versions:
            done = []
            options = {"on_elicit": lambda params: sure, "stderr": None}
            with Client(target, protocol_version=version, **options) as client:
                assert [tool["name"] for tool in client.list_tools()] == ["count"]
                told = {"on_progress": lambda *told, done=done: done.append(told)}
                result = client.call_tool("count", {"to": 3}, **told)
                assert json.loads(text_of(result)) == [0, 1, 2] and done
                with pytest.raises(
                    (InvalidParams, ToolError), match="expected integer"
                ):
                    client.call("count", to="three")
                assert client.read("cut://x") == "x"
                messages = client.get_prompt("ask", {"what": "why?"})["messages"]
                assert messages[0]["content"]["text"] == "why?"

    @pytest.fixture(scope="class")
    def whole(self):
        """How many statements mcp_lite.py has."""
        text = pathlib.Path(HERE, "mcp_lite.py").read_text("utf-8")
        return self.statements(ast.parse(text))

    @contextlib.contextmanager
    def serving_http(self):
        """Serve the copy's server at a port; yields its URL."""
        command = self.program(self.OVER_HTTP)
        with subprocess.Popen(command, stderr=PIPE) as process:
            try:
                (url,) = re.findall(r"http://\S+", process.stderr.readline().decode())
                yield url
            finally:
                process.kill()

    def refuses(self, code, *words):
        """What a copy lacks gives the command that makes a copy with it."""
        command = self.program(
            f"try:\n    {code}\nexcept NotImplementedError as error:\n    print(error)"
        )
        told, _ = run(*command)
        assert told.endswith(f"{self.command(*words)}\n"), told

    def command(self, *words):
        """The command that replaces the copy by one with these features."""
        path = self.folder / "mcp_lite.py"
        return f'python3 examples/vendor.py {" ".join(words)} -o "{path}"'

    def calls(self, target, versions):
        """A client that a copy has made works with a server of the whole file."""
        values = {"target": target, "versions": versions, "auth": None}
        told, _ = run(*self.program(self.CALL, **values))
        assert told.splitlines() == [f"{each} 2 Ada note" for each in versions]

    def test_a_stdio_server(self, make, whole):
        """It serves clients of both eras, and opens no port."""
        count = self.show("server", make("server"))
        self.serves(self.program(self.ON_STDIO), ["2025-06-18", MODERN])
        self.refuses("mcp_lite.Server('x').start_http()", "server", "stdio", "http")
        self.refuses("mcp_lite.Client('x.py')", "server", "stdio", "client")
        assert count < 0.6 * whole

    def test_a_stdio_client(self, make, whole):
        """It starts servers of both eras, and knows no URLs and no Server."""
        count = self.show("client", make("client"))
        self.calls(SERVE, ["2025-06-18", MODERN])
        url = "mcp_lite.Client('http://127.0.0.1:1/mcp').connect()"
        self.refuses(url, "client", "stdio", "http")
        self.refuses("mcp_lite.Server('x')", "client", "stdio", "server")
        assert count < 0.45 * whole

    def test_without_a_command_line(self, make):
        """`python3 -m mcp_lite` ends with one line on stderr, and exit code 1."""
        make("server")
        command = [sys.executable, "-W", "error", "-m", "mcp_lite"]
        for words in (["--version"], ["list", "x.py"]):
            printed, why = run(*command, *words, cwd=self.folder, code=1)
            assert printed == ""
            (line,) = why.splitlines()
            assert "without the command line" in line
            assert line.endswith(self.command("server", "stdio", "cli"))

    def test_both_in_memory(self, make):
        """A client of a server in the same process."""
        self.show("server client", make("server", "client"))
        told, _ = run(*self.program(self.SERVE + self.IN_MEMORY))
        assert told == "[0, 1] x\n"

    @pytest.mark.parametrize("legacy", [[], ["legacy"]])
    def test_a_server_over_http(self, make, legacy):
        """It serves POSTs of 2026-07-28, and nothing on stdio; with `legacy`, sessions,
        too."""
        self.show(
            " ".join(["server", "http", *legacy]), make("server", "http", *legacy)
        )
        with self.serving_http() as url:
            self.serves(url, [MODERN, "2025-06-18"] if legacy else [MODERN])
            if not legacy:
                with pytest.raises(UnsupportedVersion):
                    Client(url, protocol_version="2025-06-18").connect()
        with_stdio = ["server", "http", *legacy, "stdio"]
        self.refuses("mcp_lite.Server('x').run()", *with_stdio)

    def test_a_client_over_http(self, make):
        """It calls servers at a URL, and logs in nowhere; a server that wants a session
        is refused."""
        self.show("client http", make("client", "http"))
        with build_server().start_http() as http:
            self.calls(http.url, [MODERN])
            legacy = f"{http.url!r}, protocol_version='2025-06-18'"
            connect = f"mcp_lite.Client({legacy}).connect()"
            self.refuses(connect, "client", "http", "legacy")
        self.refuses("mcp_lite.OAuth()", "client", "http", "oauth")
        child = "mcp_lite.Client('x.py').connect()"
        self.refuses(child, "client", "http", "stdio")

    def test_a_client_that_logs_in(self, make, site):
        """It knows sessions as well."""
        self.show("client http legacy oauth", make("legacy", "oauth"))
        told, _ = run(*self.program(self.LOG_IN, target=site.mcp))
        assert told == "let in\n"
        with build_server().start_http() as http:
            self.calls(http.url, ["2025-06-18", MODERN])

    def test_everything(self, make):
        """A copy with all features is the file."""
        features = ["server", "client", "stdio", "http", "legacy", "oauth", "cli"]
        text = make(*features)
        self.show(" ".join(features), text)
        source = pathlib.Path(HERE, "mcp_lite.py").read_text("utf-8")
        head, _, rest = text.partition("\n")
        assert (
            head == f"# mcp_lite {mcp_lite.__version__}, cut to: {' '.join(features)}"
        )
        added = example("vendor").LEFT_OUT % " ".join(features)
        assert rest.replace(f"]\n{added}", "]\n", 1) == source
        command = [sys.executable, "-W", "error", "-m", "mcp_lite", "list"]
        script = os.path.join(HERE, "examples", "quickstart_server.py")
        told, _ = run(*command, script, cwd=self.folder)
        assert "search(text: string" in told

    def test_without_comments(self, make):
        """The code is the same; the licence stays, and the first lines tell what the
        copy is."""

        def bare(text):
            tree = ast.parse(text)
            for node in ast.walk(tree):
                kinds = (ast.FunctionDef, ast.ClassDef, ast.Module)
                if isinstance(node, kinds) and ast.get_docstring(node) is not None:
                    node.body = node.body[1:] or [ast.Pass()]
            return ast.dump(tree)

        words = ["client"]
        full = make(*words)
        text = make(*words, "--no-comments")
        self.show(f"{' '.join(words)} --no-comments", text)
        assert bare(text) == bare(full)
        run(sys.executable, "-W", "error", "-c", "import mcp_lite", cwd=self.folder)
        lines = text.splitlines()
        start = lines.index("from __future__ import annotations")
        assert lines[0].startswith(f"# mcp_lite {mcp_lite.__version__}, cut to: ")
        assert "MIT License" in "\n".join(lines[:start])
        assert not [line for line in lines[start:] if line.strip().startswith("#")]
        assert len(text) < 0.75 * len(full)

    def test_the_order_does_not_matter(self, monkeypatch):
        """Sections may stand in another order, and more may be written into them."""
        vendor = example("vendor")
        # A room below is used by one above, as a default is not: only when called.
        source = '''# The licence.
"""A module."""
TYPE_CHECKING = False
Any = object
METHODS = {}
__version__ = "7"
__all__ = ["Client", "Server", "tidy"]

#########

# A lone comment.
ATTEMPTS = 3  # no more


class Server:
    @property
    def http(self) -> Unknown:
        return Listener(self, ATTEMPTS)


BAR
# 2. HTTP server ####
BAR

# About this section.


# The port.
PORT = 80


# Listens.
class Listener:
    size = PORT


def helper():
    pass


BAR
# Client ####
BAR


@once
class Client:
    def tidy(self):
        return tidy()


def once(cls):
    return cls


def tidy():
    "Tidy up."


if __name__ == "__main__":
    once(print)
'''.replace("BAR", "#" * 79)
        text = vendor.cut(source, ["server"])
        assert text.startswith("# mcp_lite 7, cut to: server stdio\n# The licence.\n")
        assert 'class Listener(_LeftOut):\n    needs = "http"\n' in text
        assert "# About this section." in text and "# Listens." not in text
        assert "helper" not in text and "PORT" not in text
        # What runs with the file keeps what it uses.
        assert "def once(cls)" in text and "class Client(_LeftOut):\n    needs" in text
        assert '__all__ = [\n    "Server",\n    "tidy",\n]\n' in text
        text = vendor.cut(source, ["server", "http"])
        assert "# The port.\nPORT = 80\n\n\n# Listens.\nclass Listener:\n" in text
        assert "# A lone comment.\nATTEMPTS = 3  # no more\n" in text
        assert "# A lone comment." not in vendor.cut(source, ["client"])

    def test_the_names_of_the_table(self):
        """What the table names is there, and so are the sections."""
        vendor = example("vendor")
        pieces = vendor.split(pathlib.Path(HERE, "mcp_lite.py").read_text("utf-8"))
        names = set().union(*(piece.names for piece in pieces))
        assert set(vendor.NAMES) | set(vendor.STAND_INS) <= names
        titles = {
            vendor.BANNER.search(piece.banner)[1] for piece in pieces if piece.banner
        }
        assert set(vendor.SECTIONS) <= titles

    def test_wrong_features(self):
        """What has neither a server nor a client is no copy."""
        program = os.path.join("examples", "vendor.py")
        for words, shown in ((["http"], "server or client"), (["serve"], "'serve'")):
            _, why = run(sys.executable, program, *words, code=2)
            assert shown in why and "Traceback" not in why
        text, _ = run(sys.executable, "-W", "error", program, "client")
        assert text.startswith("# mcp_lite ")


class TestSmallServers:
    """examples/raw_server.py and small_server.py: servers without mcp_lite."""

    RAW = os.path.join(HERE, "examples", "raw_server.py")
    SMALL = os.path.join(HERE, "examples", "small_server.py")

    @pytest.fixture
    def small_http(self):
        """The URL of the small server, with the official suite's tools."""
        module = example("small_conformance")
        address = ("127.0.0.1", 0)
        with http.server.ThreadingHTTPServer(address, self.quiet(module)) as web:
            thread = started(web.serve_forever, 0.02)
            yield f"http://127.0.0.1:{web.server_port}/mcp"
            web.shutdown()
            thread.join(SECONDS)

    @staticmethod
    def quiet(module):
        """Its handler of HTTP, without an access log."""
        return type("Quiet", (module.Handler,), {"log_message": lambda self, *told: 0})

    def test_they_stand_alone(self):
        """Neither imports anything but the standard library, nor is longer than it
        says: 40 statements, and 280."""
        for path, most in ((self.RAW, 40), (self.SMALL, 280)):
            tree = ast.parse(pathlib.Path(path).read_text("utf-8"))
            nodes = [each for each in ast.walk(tree) if isinstance(each, ast.stmt)]
            docs = [each for each in nodes if isinstance(each, ast.Expr)]
            docs = [each for each in docs if isinstance(each.value, ast.Constant)]
            assert len(nodes) - len(docs) <= most
            names = set()
            for each in nodes:
                if isinstance(each, ast.Import):
                    names.update(alias.name for alias in each.names)
                elif isinstance(each, ast.ImportFrom):
                    names.add(each.module)
            assert "json" in names and "mcp_lite" not in names

    @pytest.mark.parametrize("version", EVERY)
    def test_the_raw_server(self, version):
        """It speaks every revision; an unknown one, tool or method is an error, and a
        wrong argument is a result."""
        with Client([*PYTHON, self.RAW], protocol_version=version) as client:
            assert client.protocol_version == version
            (tool,) = client.list_tools()
            assert client.call("add", a=1, b=2.5) == "3.5"
            for b in ("2", True, None):
                with pytest.raises(ToolError, match="a and b must be numbers"):
                    client.call("add", a=1, b=b)
            for code, method, params in (
                (-32601, "prompts/list", {}),
                (-32602, "tools/call", {"name": "subtract"}),
            ):
                with pytest.raises(McpError) as caught:
                    client.request(method, params)
                assert caught.value.code == code

    def test_the_raw_server_on_the_wire(self):
        """It answers neither notifications nor answers, names what it speaks, and says
        how long a modern list holds."""
        with Wire([*PYTHON, self.RAW]) as wire:
            wire.send(notice("initialized"), notice("cancelled", {"requestId": 1}))
            wire.send({"jsonrpc": "2.0", "id": 1, "result": {}})
            assert wire.ask("ping", id=7) == {"jsonrpc": "2.0", "id": 7, "result": {}}
            params = {"_meta": {META_VERSION: "2030-01-01", META_CAPABILITIES: {}}}
            error = wire.ask("tools/list", params)["error"]
            assert error["code"] == -32022
            assert error["data"] == {"supported": [MODERN], "requested": "2030-01-01"}
            params = {"_meta": {META_VERSION: MODERN}}
            assert wire.ask("tools/list", params)["error"]["code"] == -32602
            params["_meta"][META_CAPABILITIES] = {}
            assert wire.ask("ping", params)["error"]["code"] == -32601
            listed = wire.ask("tools/list", params)["result"]
            assert listed.keys() == {"tools", "resultType", "ttlMs", "cacheScope"}
            called = {**params, "name": "add", "arguments": {"a": 1, "b": 2}}
            called = wire.ask("tools/call", called)["result"]
            assert called.keys() == {"content", "isError", "resultType"}
            assert wire.end() == ([], 0)

    @pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25", MODERN])
    def test_the_small_server(self, version):
        """A tool, a question to the user, a template, a prompt, and a failure."""
        options = {"on_elicit": answer, "protocol_version": version, "stderr": None}
        with Client([*PYTHON, self.SMALL], **options) as client:
            assert client.call("add", a=1) == "2"
            assert "To Oslo, on which day?" in client.call("book", city="Oslo")
            assert client.read("note://tea") == "This is about tea."
            messages = client.get_prompt("review", {"code": "x = 1"})["messages"]
            assert messages[0]["content"]["text"].endswith("x = 1")
            for a in ("one", True):
                with pytest.raises(ToolError, match="a: expected integer"):
                    client.call("add", a=a)
            done = []
            listening = client.listen() if version == MODERN else None
            with listening or contextlib.nullcontext() as changes:
                told = {"on_progress": lambda *told: done.append(told[:2])}
                client.call_tool("alias", {"name": "look"}, **told)
                if changes:
                    change = next(changes)["method"]
                    assert change == "notifications/prompts/list_changed"
            assert done == [(1, 2)]
            assert {each["name"] for each in client.list_prompts()} == {
                "review",
                "look",
            }
            for method, params in (
                ("prompts/get", {"name": "review"}),
                ("prompts/get", {"name": "review", "arguments": {"code": 7}}),
                ("resources/read", {}),
            ):
                with pytest.raises(InvalidParams):
                    client.request(method, params)
            with pytest.raises(InvalidParams, match="unknown: nothing"):
                client.call("nothing")
            with pytest.raises(McpError, match="unknown: note:") as caught:
                client.read("note://a/b")
            assert caught.value.code == (-32602 if version == MODERN else -32002)

    def test_the_small_server_on_the_wire(self):
        """What is no message gets an error, with no id, and ends nothing."""
        with Wire([*PYTHON, self.SMALL]) as wire:
            for text, code in (
                ("hello", -32700),
                ("7", -32600),
                ("[]", -32600),
                ('{"id": 1, "method": "ping", "params": 7}', -32600),
                ('{"id": 1, "method": "ping", "params": {"_meta": 7}}', -32600),
            ):
                wire.send(text.encode() + b"\n")
                answer = wire.read()
                assert answer["error"]["code"] == code and "id" not in answer
            assert wire.ask("ping", id=7) == {"jsonrpc": "2.0", "id": 7, "result": {}}
            assert wire.end() == ([], 0)

    @pytest.mark.parametrize("version", ["2025-11-25", MODERN])
    def test_the_small_server_over_http(self, small_http, version):
        """The same over HTTP: progress comes as it is made, and questions are asked of
        the user, of the model and of the client, one after the other as well."""
        done = []
        forms = {
            "on_elicit": lambda params: {"action": "accept", "content": {"name": "A"}}
        }
        options = {**CALLBACKS, **forms, "protocol_version": version}
        with Client(small_http, **options) as client:
            told = {"on_progress": lambda *told: done.append(told[0])}
            client.call_tool("test_tool_with_progress", **told)
            assert done == [0, 50, 100]
            assert client.call("test_input_required_result_elicitation") == "Hello, A!"
            three = client.call("test_input_required_result_multiple_inputs")
            assert three == "answered: ['client_roots', 'greeting', 'user_name']"
            assert "step2" in client.call("test_input_required_result_multi_round")
            assert client.read("test://static-binary").startswith(b"\x89PNG")
            if version == MODERN:
                with client.listen() as changes:
                    client.call("test_trigger_prompt_change")
                    change = next(changes)["method"]
                    assert change == "notifications/prompts/list_changed"
        asks_nobody = Client(small_http, protocol_version=version)
        with asks_nobody, pytest.raises(MissingCapability):
            asks_nobody.call("test_missing_capability")

    def test_the_small_server_refuses(self, small_http):
        """Pages of others, unknown sessions, headers that contradict, and states that
        were changed."""
        place = urllib.parse.urlsplit(small_http).netloc
        message = call_tool("add", {"a": 1})
        mirrored = {
            "MCP-Protocol-Version": MODERN,
            "Mcp-Method": "tools/call",
            "Mcp-Name": "add",
        }

        def post(message, **headers):
            web = http.client.HTTPConnection(place, timeout=SECONDS)
            headers = {name.replace("_", "-"): headers[name] for name in headers}
            with contextlib.closing(web):
                web.request("POST", "/mcp", json.dumps(message), headers)
                with web.getresponse() as answer:
                    told = json.loads(answer.read())
                    return answer.status, told.get("error", {}).get("code")

        assert post(message, **mirrored) == (200, None)
        assert post(message, **mirrored, Origin="http://evil.example")[0] == 403
        assert post(message, **mirrored, Host="evil.example")[0] == 403
        assert post(message, **{**mirrored, "Mcp-Name": "book"}) == (400, -32020)
        assert post(request("tools/list")) == (400, -32600)
        assert post(request("tools/list"), Mcp_Session_Id="x") == (404, -32600)
        asked = call_tool("test_input_required_result_tampered_state")
        asked["params"]["_meta"][META_CAPABILITIES] = {"elicitation": {}}
        asked["params"]["requestState"] = '0 {"confirm": {"action": "accept"}}'
        mirrored["Mcp-Name"] = asked["params"]["name"]
        assert post(asked, **mirrored) == (400, -32602)


class TestExplainedPages:
    """examples/explain.py: the pages that it names, and its cheat sheet."""

    @wants_specification
    def test_pages_exist(self, version):
        """Each page of a revision is one that its specification has."""
        explain = example("explain")
        names = [row.name for row in mcp_lite.METHODS.values() if row.is_in(version)]
        pages = {explain.WORDS[name].page for name in names}
        pages |= {"basic/transports", explain.NO_WORDS.page}
        for path, _, page in explain.MEMBERS:
            # These two are of the modern era alone; no legacy message has a member that
            # they explain.
            is_modern = page in ("basic/patterns/mrtr", "server/utilities/caching")
            is_modern = is_modern or path[-1].startswith(explain.META)
            if not is_modern or version == MODERN:
                pages.add(page)
        assert len(pages) > 10
        for page in pages:
            place = SPEC / explain.place_of(page, version)
            files = [place.with_name(place.name + ".md"), place / "index.md"]
            assert any(map(os.path.exists, files)), place

    def test_the_sheet(self):
        """It has every method, fits on a page, and is what the lessons show."""
        assert example("explain").WORDS.keys() == mcp_lite.METHODS.keys()
        told, _ = run(sys.executable, "examples/explain.py", "--sheet")
        lines = told.splitlines()
        shown = [line[7:].split("?")[0].split(" ")[0] for line in lines]
        ours = set(example("explain").IN_NO_REVISION)
        assert set(mcp_lite.METHODS) - set(shown) == ours & set(mcp_lite.METHODS)
        assert ours <= {*mcp_lite.METHODS, *mcp_lite.ERRORS}
        assert not any(str(each) in told.split() for each in ours)
        assert len(lines) <= 75
        assert max(map(len, lines)) <= 120
        assert "--> LM tools/call?" in told and "<-- L  roots/list?" in told
        assert "-->  M subscriptions/listen?" in told
        lessons = pathlib.Path(HERE, "examples", "lessons", "README.md")
        hint = "copy what examples/explain.py --sheet prints"
        assert f"```text\n{told}```" in lessons.read_text("utf-8"), hint

    @pytest.mark.parametrize("version", ["2025-06-18", MODERN])
    def test_what_is_passed_over(self, version):
        """Methods that are named are not shown, nor are their answers."""
        explain = example("explain")
        written = []
        opening = ("initialize", "notifications/initialized", "server/discover")
        explainer = explain.Explainer(written.append, without=opening)
        server = Server("s")
        server.add_tool(lambda: "x" * 1500, name="long")
        with Client(server, protocol_version=version, trace=explainer) as client:
            assert written == []
            client.call("long")
        text = " ".join("".join(written).split())
        assert text.startswith("--> 2 tools/call long")
        # What is left out is said.
        assert re.search(r" \.\.\. and \d+ characters more", text)
        assert f"[{version}/server/tools]" in text

    def test_a_plan_for_a_teacher(self):
        """The lessons that are named for 90 minutes take 90, with half of the last one,
        the words and questions; each exercise is solved."""
        folder = pathlib.Path(HERE, "examples", "lessons")
        text = (folder / "README.md").read_text("utf-8")
        minutes = re.findall(r"^\| .*\.py\S+ \| (\d+) \|", text, re.M)
        (chosen,) = re.findall(r"In 90 minutes: ([\d, ]+)\.", text)
        assert len(minutes) == 11
        chosen = [int(minutes[int(each) - 1]) for each in chosen.split(", ")]
        half, total, words, questions = re.search(
            r"the first half, in (\d+) minutes: that makes (\d+)\.\s(\d+) more.*\n"
            r".* and (\d+) for questions",
            text,
        ).groups()
        assert int(total) == sum(chosen[:-1]) + int(half)
        assert int(total) + int(words) + int(questions) == 90
        solved = re.findall(r"\*\*(\d+\.\d)\*\*", text)
        wanted = []
        for path in sorted(folder.glob("*.py")):
            _, _, exercises = path.read_text("utf-8").partition("# Exercises\n")
            numbers = re.findall(r"^# (\d)\. ", exercises, re.M)
            wanted += [f"{int(path.name[:2])}.{number}" for number in numbers]
        assert solved == wanted and len(solved) == 20


class TestBridgeForMany:
    """examples/bridge.py: many callers."""

    def test_ten_children_at_most(self, tmp_path):
        """Each caller has a child of its own; the eleventh ends the one that was used
        longest ago, and whoever had that gets a new one."""
        script = """
            server = Server("far")
            server.add_tool(lambda: os.getpid(), name="pid")
            server.run()
        """
        bridge = example("bridge").Bridge(program(tmp_path, script), stderr=None)
        options = {"protocol_version": "2025-11-25"}
        with contextlib.ExitStack() as stack:
            stack.enter_context(contextlib.closing(bridge))
            http = stack.enter_context(bridge.server.start_http())
            clients = []
            pids = []
            for _ in range(12):
                clients.append(stack.enter_context(Client(http.url, **options)))
                pids.append(clients[-1].call("pid"))
            assert len(set(pids)) == 12
            eventually(lambda: [pid for pid in pids if not is_gone(pid)] == pids[2:])
            assert [each.call("pid") for each in clients[2:4]] == pids[2:4]
            assert clients[0].call("pid") not in pids
            # The one that was used longest ago is another one by now.
            eventually(lambda: is_gone(pids[4]))
            assert not is_gone(pids[2])

    @pytest.mark.parametrize("has_tokens", [True, False])
    def test_logs_are_for_their_caller(self, has_tokens):
        """A log message does not say which call it is about. Callers who cannot be told
        apart get none while others are at work; a caller with a token gets each."""
        far = Server("far")
        release = threading.Event()
        waiting = threading.Event()

        @far.tool
        def stay() -> str:
            waiting.set()
            return "released" if release.wait(SECONDS) else "stuck"

        @far.tool
        def tell(text: str, ctx: Context) -> str:
            ctx.info(text)
            return text

        bridge = example("bridge").Bridge(far, protocol_version="2025-11-25")
        tokens = {"secret": {"sub": "ada"}}
        options = {"headers": {"Authorization": "Bearer secret"}} if has_tokens else {}
        verify = tokens if has_tokens else None
        heard = []
        options["on_log"] = lambda level, data, logger: heard.append(data)
        with contextlib.ExitStack() as stack:
            stack.enter_context(contextlib.closing(bridge))
            http = stack.enter_context(bridge.server.start_http(verify=verify))
            clients = [Client(http.url, **options) for _ in range(2)]
            for client in clients:
                stack.enter_context(client)
                client.set_log_level("info")
            one, two = clients
            two.call("tell", text="alone")
            call = one.start_call("stay")
            assert waiting.wait(SECONDS)
            two.call("tell", text="together")
            release.set()
            assert call.value(timeout=SECONDS) == "released"
            two.call("tell", text="alone again")
            assert two.flush_callbacks(SECONDS) and one.flush_callbacks(SECONDS)
        together = ["together"] if has_tokens else []
        assert heard == ["alone", *together, "alone again"]


class TestExamplesAndStrangers:
    """What the examples do with what others send, or with files that are not there."""

    @pytest.mark.parametrize(
        "bad",
        ["", "x", 7, None, [], f"00-{'0' * 32}-{'1' * 16}-01", f"ff-{'1' * 32}-x-01"],
    )
    def test_a_bad_traceparent(self, bad, capsys):
        """examples/otel.py: the call is made, in a trace of its own."""
        server = Server("shop")
        server.add_tool(lambda: 3, name="count")
        server.middleware(example("otel").trace_request)
        with Client(server) as client:
            result = client.call_tool("count", meta={"traceparent": bad})
        assert text_of(result) == "3"
        if importlib.util.find_spec("opentelemetry") is None:
            line = re.search("SERVER tools/call count (.*)", capsys.readouterr().out)
            trace_id, span_id, parent = line[1].split(" ")[:3]
            assert re.fullmatch("[0-9a-f]{32}", trace_id) and int(trace_id, 16)
            assert re.fullmatch("[0-9a-f]{16}", span_id) and parent == "-"

    @pytest.mark.parametrize(
        "header", [{}, {"Origin": "http://evil.example"}, {"Host": "evil.example:80"}]
    )
    def test_a_replay_is_for_this_machine(self, header, tmp_path):
        """examples/replay.py: other names of it, and web pages, get 403."""
        trace = tmp_path / "trace.jsonl"
        server = Server("recorded")
        server.add_tool(lambda: "x", name="x")
        with Client(server, trace=trace) as client:
            client.list_tools()
        command = [sys.executable, os.path.join(HERE, "examples", "replay.py")]
        quiet = {"stdout": PIPE, "stderr": subprocess.DEVNULL}
        with subprocess.Popen([*command, str(trace), "--http"], **quiet) as process:
            try:
                url = urllib.parse.urlsplit(process.stdout.readline().decode().strip())
                web = http.client.HTTPConnection(url.netloc, timeout=SECONDS)
                with contextlib.closing(web):
                    body = json.dumps(request("tools/list", {"_meta": {}}))
                    web.request("POST", url.path, body, header)
                    with web.getresponse() as response:
                        response.read()
                        assert response.status == (403 if header else 200)
            finally:
                process.kill()

    def test_a_replay_judges_before_it_reads(self, tmp_path):
        """examples/replay.py: who is refused need not send a body; a body that is too
        large, or no message, has its status, and the next request is served."""
        trace = tmp_path / "trace.jsonl"
        server = Server("recorded")
        with Client(server, trace=trace):
            pass
        command = [sys.executable, os.path.join(HERE, "examples", "replay.py")]
        quiet = {"stdout": PIPE, "stderr": subprocess.DEVNULL}
        with subprocess.Popen([*command, str(trace), "--http"], **quiet) as process:
            try:
                url = urllib.parse.urlsplit(process.stdout.readline().decode().strip())
                for header, body, status in (
                    ({"Host": "evil.example", "Content-Length": "9"}, b"", 403),
                    ({"Content-Length": str(5 << 20)}, b"", 413),
                    ({"Content-Length": "many"}, b"", 413),
                    ({"Content-Length": "1"}, b"[", 400),
                    ({"Content-Length": "5" + "0" * 5}, b"[" * 500_000, 400),
                    ({"Content-Length": "17"}, b'{"params": "odd"}', 400),
                    ({"Content-Length": "2"}, b"{}", 202),
                ):
                    web = http.client.HTTPConnection(url.netloc, timeout=SECONDS)
                    with contextlib.closing(web):
                        web.putrequest("POST", url.path, skip_host="Host" in header)
                        for name, value in header.items():
                            web.putheader(name, value)
                        web.endheaders(body)
                        with web.getresponse() as response:
                            response.read()
                            assert response.status == status, header
            finally:
                process.kill()

    def test_a_group_of_a_config_as_it_is(self):
        """examples/group.py: a dict as in a file will do, under either name; one of
        names and targets as well."""
        group = example("group")
        script = os.path.join(HERE, "examples", "quickstart_server.py")
        entry = {"command": sys.executable, "args": [script], "disabled": False}
        for source in (
            {"mcpServers": {"q": entry}},
            {"inputs": [], "servers": {"q": entry}},
            {"q": [sys.executable, script]},
        ):
            with group.ClientGroup(source, stderr=None) as clients:
                assert list(clients.clients) == ["q"] and clients.errors == {}

    def test_a_group_as_a_program(self, tmp_path):
        """It has help; a file that is not there, or is none, is told in one line; what
        a server says stays on its line, in a pipe as well."""
        group = [sys.executable, os.path.join(HERE, "examples", "group.py")]
        told, _ = run(*group, "--help")
        assert "config" in told and "Several servers as one client" in told
        bad = tmp_path / "bad.json"
        bad.write_text("[")
        for path, shown in (("/no/such.json", "No such file"), (bad, "not JSON")):
            _, why = run(*group, path, code=1)
            assert why.startswith("group: ") and shown in why
            assert len(why.splitlines()) == 1 and str(path) in why
        script = """
            server = Server("far")
            about = "red \\x1b[31m\\nwithout q: forged"
            server.add_tool(lambda: "", name="t", description=about)
            server.run()
        """
        words = program(tmp_path, script)
        config = tmp_path / "mcp.json"
        entry = {"command": words[0], "args": words[1:]}
        config.write_text(json.dumps({"mcpServers": {"q\x1b": entry}}))
        told, why = run(*group, config)
        assert told == "q__t  red \\x1b[31m\\nwithout q: forged\n" and why == ""


class TestExamplesAreSafe:
    """What is copied and shipped: examples under load, with hostile peers, real files."""

    FAR = """
        server = Server("far", max_workers=100)
        form = {"type": "object", "properties": {"name": {"type": "string"}}}
        begun = threading.Semaphore(0)

        @server.tool
        def ask(n: int, ctx: Context) -> str:
            return f"{n} {ctx.elicit(str(n), form)['content']['name']}"

        @server.tool
        def large(n: int) -> str:
            return str(n) * 10_000_000

        @server.tool
        def stay(ctx: Context) -> None:
            begun.release()
            ctx.sleep(60)

        @server.tool
        def die(after: int) -> None:
            for _ in range(after):
                begun.acquire()
            os._exit(3)

        server.run()
    """

    @pytest.mark.parametrize("ours", ["2025-11-25", MODERN])
    @pytest.mark.parametrize("way", ["stdio", "http"])
    @pytest.mark.parametrize("theirs", ["2025-11-25", MODERN])
    def test_a_bridge_under_load(self, tmp_path, theirs, way, ours):
        """examples/bridge.py: 64 calls at once, each with a question of its own, are
        answered; so are results of 10 MB. When the server dies, every call that it was
        working on fails, and the next call has a new server."""
        bridge = example("bridge").Bridge(
            program(tmp_path, self.FAR), protocol_version=theirs, stderr=None
        )
        options = {"protocol_version": ours, "on_elicit": answer}
        with contextlib.ExitStack() as stack:
            stack.enter_context(contextlib.closing(bridge))
            target = bridge.server
            if way == "http":
                target = stack.enter_context(bridge.server.start_http()).url
            client = stack.enter_context(Client(target, **options))
            calls = [client.start_call("ask", {"n": n}) for n in range(64)]
            with concurrent.futures.ThreadPoolExecutor(64) as pool:
                values = pool.map(lambda call: call.value(timeout=8 * SECONDS), calls)
                assert list(values) == [f"{n} {n}" for n in range(64)]
            for call in [client.start_call("large", {"n": n}) for n in range(4)]:
                assert len(call.value(timeout=2 * SECONDS)) == 10_000_000
            # Without questions, callers over HTTP share one server.
            plain = stack.enter_context(Client(target, protocol_version=ours))
            dying = [plain.start_call("stay") for _ in range(20)]
            dying.append(plain.start_call("die", {"after": 20}))
            for call in dying:
                with pytest.raises(McpError, match="exit code 3"):
                    call.result(timeout=2 * SECONDS)
            assert len(plain.call("large", n=1)) == 10_000_000

    def test_a_bridge_ends_no_client_at_work(self):
        """examples/bridge.py: with ten clients at work, the eleventh caller waits until
        one is free."""
        module = example("bridge")
        far = Server("far")
        begun = queue.Queue()
        release = threading.Event()

        @far.tool
        def stay(n: int) -> int:
            begun.put(n)
            assert release.wait(SECONDS)
            return n

        bridge = module.Bridge(far)
        with contextlib.ExitStack() as stack:
            stack.enter_context(contextlib.closing(bridge))
            http = stack.enter_context(bridge.server.start_http())
            client = stack.enter_context(Client(http.url, on_elicit=answer))
            calls = [client.start_call("stay", {"n": n}) for n in range(14)]
            for _ in range(module.MAX_LINKS):
                begun.get(timeout=SECONDS)
            eventually(lambda: bridge.waiting == 4)
            assert begun.empty()
            calls[-1].cancel("no more")
            eventually(lambda: bridge.waiting == 3)
            release.set()
            assert [each.value(timeout=SECONDS) for each in calls[:-1]] == [*range(13)]

    def test_a_bridge_reports_a_change_once(self, era):
        """examples/bridge.py: a change of a list that two clients notice is one."""
        far = Server("far")
        far.add_tool(lambda: "", name="one")
        far.add_prompt(lambda: "", name="one")
        bridge = example("bridge").Bridge(far)
        heard = []
        options = {
            "protocol_version": era,
            "on_notification": lambda method, params: heard.append(method),
        }
        with contextlib.ExitStack() as stack:
            stack.enter_context(contextlib.closing(bridge))
            http = stack.enter_context(bridge.server.start_http())
            for callbacks in (options, {**options, "on_elicit": answer}):
                client = stack.enter_context(Client(http.url, **callbacks))
                stack.enter_context(client.listen())
            far.add_tool(lambda: "", name="two")
            eventually(lambda: len(heard) >= 2)
            far.add_prompt(lambda: "", name="two")
            eventually(lambda: len(set(heard)) == 2 and len(heard) >= 4)
            assert sorted(heard) == [
                *["notifications/prompts/list_changed"] * 2,
                *["notifications/tools/list_changed"] * 2,
            ]

    OPENAPI = "3.0.3"

    @contextlib.contextmanager
    def api(self, paths, capsys, headers=(), location=None, **more):
        """A client of examples/openapi.py; what the API was asked; what was said."""
        document = {
            "openapi": self.OPENAPI,
            "info": {"title": "t", "version": 1.5},
            "paths": paths,
            **more,
        }
        with web_server(lambda seen, sock: (200, {}, {"ok": True})) as (url, seen):
            server = example("openapi").build_server(
                document, url.replace("/mcp", ""), headers, location=location
            )
            with Client(server) as client:
                yield client, seen, capsys.readouterr().err

    # The table "Style Examples" of the specification; None: it has no such form, or
    # editions differ. By place, style and explode: a text, a list, an object.
    STYLES = {
        ("path", "simple", False): ("/blue", "/blue,black", "/R,1,G,2"),
        ("path", "simple", True): ("/blue", "/blue,black", "/R=1,G=2"),
        ("path", "label", False): ("/.blue", None, None),
        ("path", "label", True): ("/.blue", "/.blue.black", "/.R=1.G=2"),
        ("path", "matrix", False): ("/;c=blue", "/;c=blue,black", "/;c=R,1,G,2"),
        ("path", "matrix", True): ("/;c=blue", "/;c=blue;c=black", "/;R=1;G=2"),
        ("query", "form", True): ("/?c=blue", "/?c=blue&c=black", "/?R=1&G=2"),
        ("query", "form", False): ("/?c=blue", "/?c=blue,black", "/?c=R,1,G,2"),
        ("query", "spaceDelimited", False): (
            "/?c=blue",
            "/?c=blue%20black",
            "/?c=R%201%20G%202",
        ),
        ("query", "pipeDelimited", False): (
            "/?c=blue",
            "/?c=blue%7Cblack",
            "/?c=R%7C1%7CG%7C2",
        ),
        ("query", "pipeDelimited", True): ("/?c=blue", None, None),
        ("query", "deepObject", True): ("/?c=blue", None, "/?c%5BR%5D=1&c%5BG%5D=2"),
    }

    @pytest.mark.parametrize("kind", STYLES)
    def test_each_style_as_the_specification_has_it(self, kind, capsys):
        """examples/openapi.py: what is sent, or a refusal and nothing is sent."""
        place, style, explode = kind
        parameter = {"name": "c", "in": place, "style": style, "explode": explode}
        path = "/{c}" if place == "path" else "/"
        item = {"get": {"operationId": "a", "parameters": [parameter]}}
        values = ("blue", ["blue", "black"], {"R": 1, "G": 2})
        with self.api({path: item}, capsys) as (client, seen, _):
            for value, wanted in zip(values, self.STYLES[kind]):
                del seen[:]
                result = client.call_tool("a", {"c": value})
                assert [each["path"] for each in seen] == ([wanted] if wanted else [])
                assert bool(result.get("isError")) == (wanted is None)

    def test_a_value_stays_one_value(self, capsys):
        """examples/openapi.py: no argument adds a segment, a parameter or a header;
        what would is refused. null says that there is no value."""
        paths = {
            "/{a}{b}/x#twice": {
                "get": {
                    "operationId": "a",
                    "parameters": [
                        {"name": "a", "in": "path"},
                        {"name": "b", "in": "path"},
                        {"name": "q", "in": "query", "allowReserved": True},
                        {"name": "j", "in": "query", "content": {"a/b+json": {}}},
                        {"name": "list", "in": "query", "style": "pipeDelimited"},
                        {"name": "X-List", "in": "header"},
                    ],
                }
            }
        }
        with self.api(paths, capsys) as (client, seen, _):
            both = {"a": "1", "b": "2"}
            client.call(
                "a", {**both, "q": "a/b?c&d=e#f", "j": {"k": "&"}, "list": None}
            )
            client.call("a", {"a": "../x", "b": "%2e", "X-List": ["y", "z"]})
            for more in (
                {"a": ".", "b": "."},
                {"a": "..", "b": "x"},
                {**both, "list": ["a|b"]},
                {**both, "X-List": ["a,b"]},
                {**both, "X-List": "a\r\nX-Evil: 1"},
                {**both, "list": [["a"]]},
            ):
                assert client.call_tool("a", more)["isError"] is True, more
        assert [each["path"] for each in seen] == [
            "/12/x?q=a/b?c%26d%3De%23f&j=%7B%22k%22%3A%20%22%26%22%7D",
            "/..%2Fx%252e/x",
        ]
        assert seen[1]["headers"]["x-list"] == "y,z"

    def test_what_an_operator_sets_is_no_argument(self, capsys):
        """examples/openapi.py: nor is what says where a request goes. Another origin
        gets no credentials."""
        names = ("x-KEY", "Host", "Content-Length", "Accept", "X-Free")
        parameters = [{"name": name, "in": "header"} for name in names]
        operation = {"operationId": "a", "parameters": parameters}
        with web_server(lambda seen, sock: (200, {}, {})) as (other, far):
            paths = {
                "/a": {"get": operation},
                "/b": {
                    "get": {
                        "operationId": "b",
                        "servers": [{"url": other.replace("/mcp", "/up")}],
                    }
                },
                "/c": {"get": {"operationId": "c", "servers": [{"url": "file:///"}]}},
            }
            headers = [("X-Key", "secret")]
            with self.api(paths, capsys, headers) as (client, seen, said):
                tools = {tool["name"]: tool for tool in client.list_tools()}
                assert set(tools) == {"a", "b"}
                assert set(tools["a"]["inputSchema"]["properties"]) == {"X-Free"}
                client.call("a", {"x-KEY": "mine", "Host": "evil", "X-Free": "1"})
                client.call("b")
                assert seen[0]["headers"]["x-key"] == "secret"
                assert seen[0]["headers"]["host"] != "evil"
                assert far[0]["path"] == "/up/b" and "x-key" not in far[0]["headers"]
        assert "b: goes to http://" in said
        assert "without c: its server is 'file:///'" in said

    def test_references_of_every_kind(self, tmp_path, capsys):
        """examples/openapi.py: to path items, operations, parameters and bodies, here
        or in a file beside; loops, other folders and other hosts are left out by name.
        Two schemas with one last name stay two."""
        (tmp_path / "docs").mkdir()
        (tmp_path / "secret.json").write_text('{"get": {"operationId": "secret"}}')
        beside = {
            "get": {"operationId": "near", "parameters": [{"$ref": "#/P"}]},
            "P": {
                "name": "p",
                "in": "query",
                "schema": {"$ref": "main.json#/components/schemas/A"},
            },
            "A": {"type": "integer"},
        }
        (tmp_path / "docs" / "beside.json").write_text(json.dumps(beside))
        main = tmp_path / "docs" / "main.json"
        components = {
            "schemas": {"A": {"type": "string"}},
            "pathItems": {"I": {"post": {"$ref": "#/components/x-ops/O"}}},
            "x-ops": {
                "O": {
                    "operationId": "both",
                    "requestBody": {"$ref": "#/components/requestBodies/B"},
                }
            },
            "requestBodies": {
                "B": {
                    "content": {
                        "application/json": {
                            "schema": {
                                "properties": {
                                    "one": {"$ref": "#/components/schemas/A"},
                                    "two": {"$ref": "beside.json#/A"},
                                }
                            }
                        }
                    }
                }
            },
            "parameters": {"L": {"$ref": "#/components/parameters/L"}},
        }
        bad = {
            "/loop": {
                "get": {"parameters": [{"$ref": "#/components/parameters/L"}]},
            },
            "/out": {"$ref": "../secret.json"},
            "/root": {"$ref": str(tmp_path / "secret.json")},
            "/far": {"$ref": "http://127.0.0.1:1/x.json"},
            "/gone": {"$ref": "#/nowhere"},
        }
        paths = {"/i": {"$ref": "#/components/pathItems/I"}, **bad}
        paths["/near"] = {"$ref": "beside.json"}
        document = {"paths": paths, "components": components}
        main.write_text(json.dumps(document))
        options = {"location": str(main), "components": components}
        with self.api(paths, capsys, **options) as (client, seen, said):
            tools = {tool["name"]: tool for tool in client.list_tools()}
            assert set(tools) == {"both", "near"}
            client.call("both", body={"one": "x", "two": 2})
            for wrong in ({"one": 1}, {"two": "x"}):
                assert client.call_tool("both", {"body": wrong})["isError"]
            client.call("near", p="y")
        assert [each["path"] for each in seen] == ["/i", "/near?p=y"]
        for name in ("get_loop", "/out", "/root", "/far", "/gone"):
            assert f"without {name}: " in said

    def test_a_form_as_its_encoding_says(self, capsys):
        """examples/openapi.py: lists are repeated, objects are JSON, unless `encoding`
        names a style. What a body may not have is no member of it."""
        properties = {
            "id": {"type": "integer", "readOnly": True},
            "list": {"type": "array"},
            "card": {"type": "object"},
            "deep": {"type": "object"},
        }
        schema = {"properties": properties, "required": ["id", "list"]}
        kind = "application/x-www-form-urlencoded"
        deep = {"style": "deepObject", "explode": True}
        media = {"schema": schema, "encoding": {"deep": deep}}
        odd = {"schema": schema, "encoding": {"card": {"contentType": "image/png"}}}
        paths = {
            "/a": {
                "post": {"operationId": "a", "requestBody": {"content": {kind: media}}}
            },
            "/b": {
                "post": {"operationId": "b", "requestBody": {"content": {kind: odd}}}
            },
        }
        with self.api(paths, capsys) as (client, seen, said):
            (tool,) = client.list_tools()
            body = tool["inputSchema"]["properties"]["body"]
            assert "id" not in body["properties"] and body["required"] == ["list"]
            card = {"n": "1 2"}
            value = {"list": ["x", 2], "card": card, "deep": {"a": {"b": "c d"}}}
            client.call("a", body=value)
        sent = urllib.parse.parse_qs(seen[0]["message"].decode())
        assert sent == {
            "list": ["x", "2"],
            "card": [json.dumps(card)],
            "deep[a][b]": ["c d"],
        }
        assert "without b: its body's member card is image/png" in said

    def test_words_for_the_model(self, capsys):
        """examples/openapi.py: every tool and every described argument has some."""
        kind = {"$ref": "#/components/schemas/Kind", "description": "what to list"}
        parameters = [{"name": "k", "in": "query", "schema": kind}]
        paths = {
            "/a": {"get": {"operationId": "a", "summary": "Lists all"}},
            "/b": {"description": "Of bees", "get": {"operationId": "b"}},
            "/c": {"get": {"operationId": "c", "parameters": parameters}},
        }
        schemas = {"schemas": {"Kind": {"type": "string", "pattern": "(["}}}
        with self.api(paths, capsys, components=schemas) as (client, _, _):
            words = {tool["name"]: tool for tool in client.list_tools()}
        assert [words[name]["description"] for name in "abc"] == [
            "Lists all",
            "Of bees",
            "GET /c",
        ]
        assert (
            words["c"]["inputSchema"]["properties"]["k"]["description"]
            == "what to list"
        )

    def test_replies_of_every_kind(self):
        """examples/openapi.py: text is text; what is too large is no answer; what only
        says that it is JSON is text."""
        openapi = example("openapi")
        large = b"x" * (openapi.MAX_REPLY + 1)
        replies = [
            ("application/xml", b"<a/>", "<a/>"),
            ("image/svg+xml", b"<svg/>", "<svg/>"),
            ("application/x-ndjson", b"{}\n{}\n", "{}\n{}\n"),
            ("application/json", b'{"a": NaN}', '{"a": NaN}'),
            ("application/json", b"[" * 100_000, "[" * 100_000),
            ("text/plain; charset=latin-1", b"\xe9", "\u00e9"),
            ("text/plain; charset=none", b"x", "x"),
            ("text/plain", large, "done, but the reply has more than 10 MiB"),
        ]
        answers = [(200, {"Content-Type": kind}, data) for kind, data, _ in replies]
        document = {
            "info": {},
            "paths": {"/a": {"get": {"operationId": "a"}}},
        }
        with web_server(lambda seen, sock: answers.pop(0)) as (url, _):
            server = openapi.build_server(document, url.replace("/mcp", ""))
            with Client(server) as client:
                for kind, _, wanted in replies:
                    assert text_of(client.call_tool("a")) == wanted, kind

    def test_where_an_api_is(self, tmp_path):
        """examples/openapi.py as a program: a document that is none, of another version,
        or without a place, is told in one line; YAML's dates and words are texts."""
        program = [sys.executable, os.path.join(HERE, "examples", "openapi.py")]
        paths = {"/a": {"get": {"operationId": "a"}}}
        for document, why in (
            ({"swagger": "2.0", "paths": {}}, "expected OpenAPI 3, got version 2.0"),
            (
                {"openapi": "3.0.0", "paths": paths},
                "give a http or https URL by --base",
            ),
            ({"openapi": "3.0.0", "servers": [{"url": "/v1"}]}, "by --base"),
            ({"openapi": "3.0.0", "servers": [{"url": "http://{x}/"}]}, "no default"),
            ([], "expected an object"),
        ):
            path = tmp_path / "api.json"
            path.write_text(json.dumps(document))
            base = ["--base", "http://127.0.0.1:1"] if "swagger" in document else []
            _, said = run(*program, path, *base, code=1)
            assert said.startswith("openapi: ") and why in said
            assert len(said.splitlines()) == 1
        run(*program, "/no/such.json", code=4)
        pytest.importorskip("yaml")
        path = tmp_path / "api.yaml"
        with web_server(lambda seen, sock: (200, {}, {})) as (url, seen):
            host, port = urllib.parse.urlsplit(url).netloc.split(":")
            path.write_text(
                "openapi: 3.0.0\ninfo: {title: on, version: 1.0}\n"
                f"servers: [{{url: 'http://{host}:{{port}}/v1', variables: "
                f"{{port: {{default: {port}}}}}}}]\n"
                "paths: {/a: {get: {operationId: a, parameters: [{name: q, in: query,"
                " schema: {type: string, enum: [no, 2024-05-01, 012]}}]}}}\n"
            )
            with Client([*program, str(path)]) as client:
                assert client.server_info["version"] == "1.0"
                for value in ("no", "2024-05-01"):
                    client.call("a", q=value)
        assert [each["path"] for each in seen] == ["/v1/a?q=no", "/v1/a?q=2024-05-01"]

    def test_a_document_of_yaml_that_grows(self, capsys):
        """examples/openapi.py: what is small as YAML and endless as JSON is refused."""
        openapi = example("openapi")
        level = {"type": "string"}
        for _ in range(40):
            level = {"type": "object", "properties": {"a": level, "b": level}}
        schema = {"schema": level}
        parameters = [{"name": "q", "in": "query", **schema}]
        paths = {
            "/a": {"get": {"operationId": "a", "parameters": parameters}},
            "/b": {"get": {"operationId": "b"}},
        }
        with self.api(paths, capsys) as (client, _, said):
            assert [tool["name"] for tool in client.list_tools()] == ["b"]
        assert "without a: its schemas are too large" in said
        endless = {"paths": {}}
        endless["self"] = [endless]
        with pytest.raises(ValueError, match="contains itself"):
            openapi.build_server(endless)

    def test_a_card_names_a_place_on_the_web(self, tmp_path, capsys):
        """examples/server_card.py: anything else is neither run nor read, whether it is
        a command as a text or a list, a file, or what a redirect leads to."""
        cards = example("server_card")
        mark = tmp_path / "mark"
        secret = tmp_path / "secret.json"
        secret.write_text('{"name": "private"}')
        remote = {"type": "streamable-http", "version": "1"}
        for url in (
            f"sh -c 'touch {mark}'",
            ["sh", "-c", f"touch {mark}"],
            {"command": ["touch", str(mark)]},
            str(secret),
            f"file://{secret}",
            "http:///nowhere",
            "http://[x/",
            "http://127.0.0.1:1/a b",
            "ftp://127.0.0.1/",
            None,
        ):
            with pytest.raises(LookupError):
                cards.connect({"name": "x", "remotes": [{**remote, "url": url}]})
        for remotes in (None, "x", [7], [{}], {}):
            with pytest.raises(LookupError):
                cards.connect({"remotes": remotes})
        assert not mark.exists()
        kind = cards.CARD
        away = (302, {"Location": f"file://{secret}"}, b"")
        entries = [
            {"type": kind, "url": f"file://{secret}"},
            {"type": kind, "url": [str(secret)]},
            {"type": kind, "url": "data:application/json,{}"},
            {"type": kind, "data": ["no card"]},
            {"type": kind},
            "no entry",
        ]
        replies = [(200, {}, {"entries": entries}), (200, {}, b"[]"), away]
        with web_server(lambda seen, sock: replies.pop(0)) as (url, _):
            site = url.replace("/mcp", "")
            assert cards.find_servers(site) == []
            assert capsys.readouterr().err.count("without a card: ") == 4
            for _ in range(2):
                with pytest.raises((ValueError, OSError)):
                    cards.find_servers(site)

    def test_a_caller_fills_only_its_own_tasks(self):
        """examples/tasks.py: others go on; what is over goes first, and of that what was
        read; a caller with too many at work hears that the server is busy."""
        tasks = example("tasks")
        server = Server("shop", extensions={tasks.TASKS: {}})
        table = tasks.Tasks(server, tools=["echo", "hang"], only=["echo", "hang"])
        server.add_tool(lambda text: text, name="echo")
        release = threading.Event()
        server.add_tool(lambda: release.wait(SECONDS), name="hang")
        tokens = {name: {"sub": name} for name in ("stranger", "ada")}
        options = {
            "extensions": {tasks.TASKS: {}},
            "result_types": {"task": lambda call, task: task},
        }
        with server.start_http(verify=tokens) as web, contextlib.ExitStack() as stack:
            stack.callback(release.set)
            clients = {}
            for name in tokens:
                headers = {"Authorization": f"Bearer {name}"}
                client = Client(web.url, headers=headers, **options)
                clients[name] = stack.enter_context(client)
            stranger, ada = clients.values()

            def start(client, name, **arguments):
                task = client.start_call(name, arguments).result()
                return {"taskId": task["taskId"]}

            def ends(client, task):
                state = lambda: client.request("tasks/get", task)["status"]  # noqa: E731
                eventually(lambda: state() == "completed")

            mine = start(ada, "echo", text="mine")
            ends(ada, mine)
            for _ in range(tasks.MAX_AT_WORK):
                start(stranger, "hang")
            with pytest.raises(InternalError, match="hang: busy, try again later"):
                start(stranger, "hang")
            first = start(ada, "echo", text="unread")
            eventually(lambda: table.tasks[first["taskId"]].is_over())
            for _ in range(tasks.MAX_KEPT):
                read = start(ada, "echo", text="x")
                ends(ada, read)
            # That of the first which was read is gone, not that of an older unread one.
            start(ada, "echo", text="x")
            assert ada.request("tasks/get", first)["status"] == "completed"
            with pytest.raises(InvalidParams, match="Unknown task"):
                ada.request("tasks/get", mine)
            assert len(table.tasks) <= tasks.MAX_KEPT + 2 + tasks.MAX_AT_WORK
            large = "x" * (tasks.MAX_BYTES // 4)
            for _ in range(8):
                ends(ada, start(ada, "echo", text=large[: 3 << 20]))
            table.forget_old()
            kept = [each.size for each in table.tasks.values()]
            assert sum(kept) <= tasks.MAX_BYTES

    def test_a_state_of_another_server(self):
        """With one key for both, a state of one server is refused by another one, as its
        tool of the same name may ask something else; the same server's other process
        takes it."""
        key = "a key of more than 16 bytes"

        def serve(name, version):
            server = Server(name, version, state_key=key)

            @server.tool
            def ask(ctx: Context) -> str:
                return ctx.elicit("Sure?", FORM)["content"]["name"]

            return server

        params = {"name": "ask", "arguments": {}}
        meta = {META_VERSION: MODERN, META_CAPABILITIES: {"elicitation": {"form": {}}}}
        params["_meta"] = meta
        paused = serve("a", "1").handle(request("tools/call", params))["result"]
        (key_of,) = paused["inputRequests"]
        form = {"action": "accept", "content": {"name": "Ada"}}
        params["inputResponses"] = {key_of: form}
        params["requestState"] = paused["requestState"]
        refused = serve("b", "1").handle(request("tools/call", params))
        assert refused["error"]["code"] == -32602
        done = serve("a", "2").handle(request("tools/call", params))
        assert done["result"]["content"][0]["text"] == "Ada"
        with pytest.raises(TypeError, match="version: expected text"):
            Server("a", 1.0)

    def test_config_files_as_clients_write_them(self, tmp_path, monkeypatch):
        """examples/group.py: what each client calls a member, null, and what is off; what
        cannot be understood is an error that names the member, and no value."""
        load = example("group").load_config
        monkeypatch.setenv("A_TOKEN", "t0ken")
        keys = tmp_path / "keys.env"
        keys.write_text("# keys\n\nexport ONE=1 # one\nTWO='2 # 2'\nbad line\nTHREE=\n")
        url = {"url": "http://x"}
        for given, wanted in (
            ({"serverUrl": "http://x"}, url),
            ({"httpUrl": "http://x", "url": None}, url),
            (
                {**url, "headers": {"A": "Bearer $A_TOKEN"}},
                {**url, "headers": {"A": "Bearer t0ken"}},
            ),
            ({"command": "x", "args": None, "env": None}, {"command": "x"}),
            (
                {"command": ["x", "-y"], "args": ["z"]},
                {"command": "x", "args": ["-y", "z"]},
            ),
            (
                {"command": {"path": "x", "args": ["y"], "env": {"A": 1, "B": None}}},
                {"command": "x", "args": ["y"], "env": {"A": "1"}},
            ),
            (
                {"command": "x", "environment": {"A": "1"}},
                {"command": "x", "env": {"A": "1"}},
            ),
            (
                {"command": "x", "args": ["$NOT_SET $5"]},
                {"command": "x", "args": ["$NOT_SET $5"]},
            ),
            (
                {"command": "x", "envFile": str(keys), "env": {"ONE": "mine"}},
                {"command": "x", "env": {"ONE": "mine", "TWO": "2 # 2", "THREE": ""}},
            ),
            ({"command": "x", "enabled": False}, None),
            ({"command": "x", "disabled": True, "args": 7}, None),
        ):
            config = load({"mcpServers": {"a": given}})
            assert config.errors == {}, given
            assert config.get("a") == wanted
        for given, member in (
            ({"command": "x", "args": "-y s3cret"}, "args"),
            ({"command": ["x"], "args": "s3cret"}, "args"),
            ({"command": 7}, "command"),
            ({"command": "x", "env": ["s3cret"]}, "env"),
            ({"command": "x", "envFile": "/no/such/file"}, "/no/such/file"),
            ({**url, "headers": {"A": "$NOT_SET s3cret"}}, "NOT_SET"),
            ({**url, "headers": "s3cret"}, "headers"),
            ({"command": "x", "enabled": "s3cret"}, "enabled"),
            ({"type": "stdio"}, "neither command nor url"),
            (["s3cret"], "expected an object"),
        ):
            config = load({"mcpServers": {"a": given}})
            assert config == {} and member in str(config.errors["a"])
            assert "s3cret" not in str(config.errors["a"])
        server = {"a": {"command": "x"}}
        for settings in (
            {"editor.fontSize": 12, "mcp": {"inputs": [], "servers": server}},
            {"$schema": "x", "theme": "dark", "mcp": server},
            {"theme": {"mode": "dark"}, "context_servers": server},
        ):
            path = tmp_path / "settings.json"
            path.write_text(json.dumps(settings))
            assert load(str(path)) == server
        for other, named in (
            ({"editor.fontSize": 12, "a": {"command": "x"}}, "editor.fontSize"),
            ({"mcpServers": [server]}, "mcpServers"),
            ({"a": {"colour": "s3cret"}}, '"a"'),
        ):
            with pytest.raises(ValueError) as caught:
                load(other)
            assert named in str(caught.value) and "s3cret" not in str(caught.value)

    def test_a_silent_server_holds_up_no_other(self):
        """examples/group.py: a server that is late joins when it is ready; one that never
        answers ends with the group."""
        group = example("group")
        quick, late = Server("quick"), Server("late")
        quick.add_tool(lambda: "quick", name="x")
        late.add_tool(lambda: "late", name="x")
        gate = threading.Event()

        @late.middleware
        def wait(ctx: Context, method, params, call_next):
            assert gate.wait(SECONDS)
            return call_next()

        silent = [sys.executable, "-c", "import sys; sys.stdin.read()"]
        with late.start_http() as http:
            servers = {"silent": silent, "late": http.url, "quick": quick}
            options = {"patience": 0.5, "protocol_version": "2025-11-25"}
            with group.ClientGroup(servers, **options) as several:
                assert list(several.clients) == ["quick"]
                assert set(several.errors) == {"silent", "late"}
                assert isinstance(several.errors["late"], Timeout)
                assert several.call("quick_x") == "quick"
                gate.set()
                eventually(lambda: "late" in several.clients)
                assert several.call("late_x") == "late"
                assert set(several.errors) == {"silent"}

    def test_a_resource_is_read_from_whom_it_belongs_to(self):
        """examples/group.py: no other server sees the URI, and none answers for it."""
        seen = []

        def server(name, *uris):
            made = Server(name)
            for uri in uris:
                fn = (lambda id: name) if "{" in uri else (lambda: name)
                made.add_resource(uri, fn)
            made.middleware(
                lambda ctx, method, params, call_next: (
                    seen.append((name, params.get("uri"))) or call_next()
                )
            )
            return made

        servers = {
            "greedy": server("greedy", "note://both", "{+id}"),
            "mine": server("mine", "note://both", "note://mine", "note://{id}"),
            "deeper": server("deeper", "note://deep/{id}"),
        }
        with example("group").ClientGroup(servers) as group:
            assert group.read("note://mine") == "mine"
            assert group.read("note://7") == "mine"
            assert group.read("note://deep/7") == "deeper"
            for uri, why in (("note://both", "several"), ("other://x", "no server")):
                with pytest.raises(NotFound, match=why):
                    group.read(uri)
        assert [each for each in seen if each[1]] == [
            ("mine", "note://mine"),
            ("mine", "note://7"),
            ("deeper", "note://deep/7"),
        ]

    def test_skills_are_not_left_out_in_silence(self, tmp_path):
        """examples/skills.py: hidden folders and links are named, and so is a folder
        without any skill; words that are missing are told in one line."""
        program = [sys.executable, os.path.join(HERE, "examples", "skills.py")]
        tea = tmp_path / "skills" / ".curated" / "tea"
        tea.mkdir(parents=True)
        (tea / "SKILL.md").write_text(
            "---\nname: tea\ndescription:\n  Makes tea.\n  Boils.\n"
            "requires:\n  mcp: [rube]\n---\nBoil.\n"
        )
        _, said = run(*program, tmp_path / "skills", code=1)
        assert f"without {tea / 'SKILL.md'}: it is hidden" in said
        assert said.endswith("no skill is served\n")
        printed, said = run(*program, tmp_path / "skills" / ".curated", input="y\n")
        assert "skill://tea/SKILL.md Makes tea. Boils." in printed and said == ""
        assert "<skill server='this folder'" in printed
        _, said = run(*program, tmp_path / "nothing", code=1)
        assert said.endswith("no such folder\n") and len(said.splitlines()) == 1
        _, said = run(*program, code=2)
        assert "Traceback" not in said

    def test_a_login_of_an_employer(self):
        """examples/enterprise_login.py: the server knows the user, without a browser;
        when the policy changes, the identity provider's word reaches the caller."""
        program = os.path.join(HERE, "examples", "enterprise_login.py")
        said, _ = run(sys.executable, program)
        known, refused = said.splitlines()
        assert known == "the server knows us as ada@acme.example"
        assert "the policy does not allow http://127.0.0.1:" in refused

    def test_an_identity_goes_to_its_provider_alone(self):
        """examples/enterprise_login.py: the ID token is sent to the identity provider,
        and its grant to the authorization server; one that takes no such grants is named
        before anything is sent."""
        enterprise = example("enterprise_login")
        with pytest.raises(ValueError, match="https"):
            enterprise.EnterpriseOAuth(
                identity=lambda: "id",
                idp={"token_endpoint": "http://idp.example/token", "client_id": "us"},
                client_id="us",
            )
        profile = enterprise.PROFILE
        for profiles in (None, [profile], ["other"]):
            sent = []

            def serve(seen, sock, profiles=profiles, sent=sent):
                site = f"http://{seen['headers']['host']}"
                if seen["method"] == "POST" and seen["path"] != "/mcp":
                    form = dict(urllib.parse.parse_qsl(seen["message"].decode()))
                    sent.append((seen["path"], form))
                    if seen["path"] == "/idp":
                        kind = enterprise.KIND + "id-jag"
                        return (
                            200,
                            {},
                            {"access_token": "grant", "issued_token_type": kind},
                        )
                    return 200, {}, {"access_token": "let in", "token_type": "Bearer"}
                if "oauth-protected-resource" in seen["path"]:
                    about = {"resource": site + "/mcp", "authorization_servers": [site]}
                    return 200, {}, about
                if "well-known" in seen["path"]:
                    about = {"issuer": site, "token_endpoint": site + "/token"}
                    if profiles is not None:
                        about["authorization_grant_profiles_supported"] = profiles
                    return 200, {}, about
                if seen["headers"].get("authorization") != "Bearer let in":
                    return 401, {"WWW-Authenticate": 'Bearer scope="read"'}, b""
                return 500, {}, b"in"

            with web_server(serve) as (url, _):
                idp = {
                    "token_endpoint": url.replace("/mcp", "/idp"),
                    "client_id": "host",
                }
                auth = enterprise.EnterpriseOAuth(
                    identity=lambda: "id token",
                    idp=idp,
                    client_id="us",
                    client_secret="s3cret",
                    issuer=url.replace("/mcp", ""),
                )
                with pytest.raises((AuthorizationError, HttpFailure)) as caught:
                    Client(url, auth=auth).connect()
            if profiles == ["other"]:
                assert "takes no grants" in str(caught.value) and sent == []
                continue
            assert isinstance(caught.value, HttpFailure)
            (idp_path, asked), (path, shown) = sent[:2]
            assert idp_path == "/idp" and asked["subject_token"] == "id token"
            assert asked["audience"] == url.replace("/mcp", "")
            assert asked["resource"] == url and asked["scope"] == "read"
            assert path == "/token" and shown["assertion"] == "grant"
            assert shown["grant_type"] == enterprise.JWT_BEARER
            assert "id token" not in str(shown)

    def test_the_extensions_that_the_suite_calls(self):
        """examples/small_extensions.py: each tool under the suite's name, and a skill
        with a folder inside."""
        extensions = example("small_extensions")
        tasks = example("tasks")
        options = tasks.task_options()
        form = {"action": "accept", "content": {"name": "Ada", "confirm": True}}
        with Client(
            extensions.server, on_elicit=lambda params: form, **options
        ) as client:
            assert client.call("greet", name="Ada") == "Hello, Ada!"
            assert client.call("test_tool_with_task") == "Hello, Ada!"
            assert client.call("multi_input") == "answered: first, last"
            assert client.call("confirm_delete", filename="x") == "x: deleted"
            with pytest.raises(ToolError, match="always fails"):
                client.call("failing_job")
        with Client(extensions.server) as client, pytest.raises(MissingCapability):
            client.call("failing_job")


    HOSTILE = """
        import json
        name = "a\\n::error::forged\\nBREAKING all \\x1b[2J"
        schema = {"type": "object", "properties": {name: {"type": "string"}}}
        deep = {}
        for _ in range(400):
            deep = {"items": deep}
        tools = [
            {"name": name, "description": name, "inputSchema": schema},
            {"name": "odd", "inputSchema": {"type": "object", "oneOf": {}, "allOf": 7}},
            {"name": "deep", "inputSchema": {"properties": {"x": deep}}},
        ]
        for line in sys.stdin:
            message = json.loads(line)
            results = {
                "initialize": {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": name, "version": name},
                },
                "tools/list": {"tools": tools},
                "tools/call": {
                    "content": [{"type": "text", "text": name}],
                    "isError": True,
                },
            }
            reply = {"jsonrpc": "2.0", "id": message.get("id")}
            if message["method"] in results:
                reply["result"] = results[message["method"]]
            else:
                reply["error"] = {"code": -32601, "message": name}
            if "id" in message:
                print(json.dumps(reply), flush=True)
    """

    def test_what_a_peer_says_is_printed_safe(self, tmp_path):
        """Names, texts and errors of a server stay on their line, and steer no terminal:
        examples/check.py, group.py, agent.py, explain.py."""
        command = program(tmp_path, self.HOSTILE)
        old = tmp_path / "old.json"
        old.write_text("{}")
        config = tmp_path / "mcp.json"
        entry = {"command": command[0], "args": command[1:]}
        config.write_text(json.dumps({"mcpServers": {"a\x1b": entry, "b\n": {}}}))
        examples = os.path.join(HERE, "examples")
        for words in (
            ["check.py", "diff", str(old), "--", *command],
            ["check.py", "record", "--", *command],
            ["group.py", str(config)],
            ["agent.py", "a question", str(config)],
        ):
            script = os.path.join(examples, words[0])
            ended = subprocess.run(
                [sys.executable, script, *words[1:]],
                stdin=subprocess.DEVNULL,
                stdout=PIPE,
                stderr=PIPE,
                timeout=SECONDS * 2,
            )
            for said in (ended.stdout, ended.stderr):
                assert b"\x1b" not in said and b"\n::error" not in said, words
                assert b"Traceback" not in said, (words, said)
                assert not any(
                    line.startswith(b"BREAKING all") for line in said.splitlines()
                )

    @pytest.mark.parametrize(
        "schema, warned",
        [
            ({"additionalProperties": {"type": "string"}}, "a schema in additionalPr"),
            ({"anyOf": [{"required": ["a"]}]}, "Anthropic and OpenAI refuse anyOf"),
            ({"$schema": "x"}, "Gemini's `parameters` refuses $schema"),
            ({"properties": {"a": {"type": ["string", "null"]}}}, "a list of types"),
            ({"properties": {"a b": {}}}, "keys of the form"),
        ],
    )
    def test_what_providers_refuse(self, schema, warned):
        """examples/check.py warns of it, and examples/agent.py offers what they take."""
        schema = {"type": "object", **schema}
        warnings = list(example("check").warn({"tool t": {"inputSchema": schema}}))
        assert any(warned in each for each in warnings), warnings
        long = {"tool t": {"description": "x" * 1025}}
        assert "1,024" in "".join(example("check").warn(long))
        tool = {"name": "t", "description": "x" * 2000, "inputSchema": schema}
        offered = example("agent").with_schema(tool)
        assert not {"anyOf", "$schema"} & offered["inputSchema"].keys()
        assert len(offered["description"]) == 1024

    def test_a_model_reads_what_fits(self):
        """examples/agent.py: a long result is cut, which is said, and too many pictures
        are left out; of a long conversation the question and the latest rounds stay;
        names begin as every provider wants."""
        agent = example("agent")
        server = Server("art")
        pictures = [Image(PNG)] * 20
        server.add_tool(lambda: ["x" * 10_000_000, *pictures], name="paint")
        asked = []

        class Model(agent.Script):
            def ask(self, messages, tools):
                asked.append(messages)
                (tool,) = tools
                assert re.fullmatch("[A-Za-z_][A-Za-z0-9_-]*", tool["name"])
                call = {"id": "c", "function": {"name": tool["name"], "arguments": "{}"}}
                message = {"role": "assistant", "content": "", "tool_calls": [call]}
                return {"choices": [{"message": message}]}

        with example("group").ClientGroup({"9": server}) as group:
            toolbox = agent.Toolbox(group, lambda name, arguments: True)
            assert agent.run_agent(Model(), toolbox, "paint", max_rounds=12) is None
        for messages in asked:
            assert len(json.dumps(messages)) < agent.MAX_CONVERSATION + 200_000
            roles = [each["role"] for each in messages]
            # Each report stands behind its call.
            assert roles == ["user", *["assistant", "tool", "user"] * (len(roles) // 3)]
        assert len(asked[-1]) < 1 + 3 * 11
        *_, report, shown = asked[-1]
        assert "[cut: 10,000,000 characters in all]" in report["content"]
        assert len(shown["content"]) == agent.MAX_IMAGES

    def test_arguments_have_bounds(self):
        """What an example does for a caller, it does not do a billion times."""
        with Client(example("apps").server) as client:
            for wrong in ({"count": 10**9}, {"sides": 0}, {"count": -1}):
                with pytest.raises(ToolError, match="expected 1 to 100 dice"):
                    client.call("roll", wrong)
            with pytest.raises(ToolError, match="expected 1 to 100 dice"):
                client.call("reroll", sides=10**9)
        with Client(example("tasks").build_server(), on_elicit=answer) as client:
            with pytest.raises(ToolError, match="loaves: expected 1 to 100"):
                client.call("bake", loaves=10**9)
        with Client(example("quickstart_server").server) as client:
            assert client.call("search", text="(q+" + ")+$") == []
            with pytest.raises(ToolError, match="text: expected more than spaces"):
                client.call("search", text=" ")


class TestWheel:
    """setup.cfg: a package with a command, where somebody wants one."""

    def test_a_wheel_has_a_command(self, tmp_path):
        """It holds the one file, and installs `mcp_lite`, which is its command line."""
        for name in ("setuptools", "wheel"):
            pytest.importorskip(name)
        for name in ("mcp_lite.py", "setup.cfg", "README.md"):
            shutil.copy(os.path.join(HERE, name), str(tmp_path))
        build = [sys.executable, "-c", "import setuptools; setuptools.setup()"]
        run(*build, "bdist_wheel", cwd=tmp_path)
        (path,) = (tmp_path / "dist").glob("mcp_lite-*.whl")
        assert path.name.endswith("-py3-none-any.whl")
        with zipfile.ZipFile(str(path)) as wheel:
            names = wheel.namelist()
            assert [name for name in names if name.endswith(".py")] == ["mcp_lite.py"]
            (about,) = [name for name in names if name.endswith("/entry_points.txt")]
            command = wheel.read(about).decode().split()
            assert command == ["[console_scripts]", "mcp_lite", "=", "mcp_lite:main"]
        pytest.importorskip("pip")
        installed = tmp_path / "installed"
        options = ["--no-index", "--no-deps", "--no-warn-script-location"]
        options += ["--disable-pip-version-check", "--target", installed]
        run(sys.executable, "-m", "pip", "install", *options, path)
        (program,) = [
            *installed.glob("bin/mcp_lite*"),
            *installed.glob("Scripts/*.exe"),
        ]
        env = {**os.environ, "PYTHONPATH": str(installed)}
        script = os.path.join(HERE, "examples", "quickstart_server.py")
        told, _ = run(program, "list", script, env=env, cwd=tmp_path)
        assert "search(text: string" in told
        told, _ = run(program, "--version", env=env, cwd=tmp_path)
        assert mcp_lite.__version__ in told


class TestHandbook:
    """examples/README.md: what it says of the file is so."""

    TEXT = pathlib.Path(HERE, "examples", "README.md").read_text("utf-8")
    UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "s": 1, "min": 60}

    def test_limits(self):
        """Each limit is the constant that it names, and stands there once."""
        rows = re.findall(
            r"^\| [^|]+ \| ([^|]+) \| [^|]+ \| ([A-Z_]+) \|$", self.TEXT, re.M
        )
        assert len(rows) >= 25
        assert len({name for _, name in rows}) == len(rows)
        wrong = []
        for shown, name in rows:
            number, _, unit = shown.replace(",", "").partition(" ")
            expected = int(number) * self.UNITS[unit] if unit else int(number)
            if getattr(mcp_lite, name, None) != expected:
                wrong.append(
                    f"{name}: {shown}, but {getattr(mcp_lite, name, 'nothing')}"
                )
        assert not wrong, "\n".join(wrong)

    def test_links_and_files(self):
        """What it links to, and each example that it lists, is there."""
        folder = pathlib.Path(HERE, "examples")
        for link in re.findall(r"\]\(([^)\s]+)\)", self.TEXT):
            path, _, anchor = link.partition("#")
            if path.startswith("https://"):
                continue
            assert not path or (folder / path).exists(), link
            page = os.path.normpath(os.path.join("examples", path or "README.md"))
            assert not anchor or anchor in anchors_of(page), link

    def test_the_index_of_examples(self):
        """Each file and folder of examples/ has a row, and so has each host program."""
        folder = pathlib.Path(HERE, "examples")
        (table,) = re.findall(r"^\| file \|.+\n((?:\|.+\n)+)", self.TEXT, re.M)
        rows = [row.split(" | ")[0] for row in table.splitlines()]
        listed = re.findall(r"`([^`]+)`", " ".join(rows))
        assert len(listed) == len(set(listed))
        entries = {
            path.name + "/" * path.is_dir()
            for path in folder.iterdir()
            if path.name not in ("README.md", "__pycache__")
        }
        hosts = {f"hosts/{path.name}" for path in folder.glob("hosts/*.py")}
        assert set(listed) == entries - {"hosts/"} | hosts


# What three providers of models send and take. Each has: where requests go, the header
# that brings the key, a reply that calls two tools, and one that ends.
PROVIDERS = {
    "OPENAI": (
        "/chat/completions",
        ("authorization", "Bearer k"),
        {
            "choices": [
                {
                    "message": {
                        "role": "assistant",
                        "content": None,
                        "refusal": None,
                        "annotations": [],
                        "tool_calls": [
                            {
                                "id": "c1",
                                "type": "function",
                                "function": {"name": "art_paint", "arguments": ""},
                            },
                            {
                                "id": "c2",
                                "type": "function",
                                "function": {"name": "art_sell", "arguments": "{oh"},
                            },
                        ],
                    }
                }
            ]
        },
        {"choices": [{"message": {"role": "assistant", "content": "done"}}]},
    ),
    "ANTHROPIC": (
        "/v1/messages",
        ("x-api-key", "k"),
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Let me see."},
                {"type": "tool_use", "id": "c1", "name": "art_paint", "input": {}},
                {"type": "tool_use", "id": "c2", "name": "art_sell", "input": {}},
            ],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "done"}]},
    ),
    "GEMINI": (
        "/models/some-model:generateContent",
        ("x-goog-api-key", "k"),
        {
            "candidates": [
                {
                    "content": {
                        "role": "model",
                        "parts": [
                            {"text": "Hm.", "thought": True},
                            {
                                "functionCall": {"name": "art_paint", "args": {}},
                                "thoughtSignature": "c2lnbmVk",
                            },
                            {"functionCall": {"id": "c2", "name": "art_sell"}},
                        ],
                    }
                }
            ]
        },
        {"candidates": [{"content": {"role": "model", "parts": [{"text": "done"}]}}]},
    ),
}


def misfits(value, hint):
    """Return why a value is not of a type of a provider's SDK, [] if it is. pydantic
    would take members that a TypedDict does not have, and not look into an Iterable."""
    extensions = pytest.importorskip("typing_extensions")
    kind = extensions.get_origin(hint)
    args = extensions.get_args(hint)
    if hint in (object, typing.Any):
        return []
    if kind in (extensions.Required, extensions.NotRequired):
        return misfits(value, args[0])
    if kind is typing.Union:
        tried = [misfits(value, each) for each in args]
        return [] if [] in tried else max(tried)
    if kind in (typing.Literal, extensions.Literal):
        return [] if value in args else [f"{value!r} is none of {args}"]
    if extensions.is_typeddict(hint) and isinstance(value, dict):
        hints = extensions.get_type_hints(hint, include_extras=True)
        wrong = [f"{hint} lacks {key}" for key in hint.__required_keys__ - set(value)]
        wrong += [f"{hint} has no {key}" for key in set(value) - set(hints)]
        return wrong + [
            f"{key}: {why}"
            for key in set(value) & set(hints)
            for why in misfits(value[key], hints[key])
        ]
    if kind is dict and isinstance(value, dict):
        return [why for each in value.values() for why in misfits(each, args[1])]
    if kind in (list, collections.abc.Iterable) and isinstance(value, list):
        return [why for each in value for why in misfits(each, args[0])]
    fits = isinstance(hint, type) and not kind and not extensions.is_typeddict(hint)
    return [] if fits and isinstance(value, hint) else [f"{value!r} is no {hint}"]


class TestAgent:
    """examples/agent.py: the loop with a model, in the formats of three providers."""

    def gallery(self):
        server = Server("gallery")

        @server.tool(annotations={"readOnlyHint": True})
        def paint() -> list:
            """Paint a picture."""
            return ["a picture", Image(PNG)]

        @server.tool
        def sell() -> str:
            """Sell the picture."""
            raise ToolError("nobody wants it")

        return server

    def converse(self, provider, monkeypatch):
        """Have the agent ask a provider; returns the answer, and what was asked."""
        agent = example("agent")
        path, _, calls, end = PROVIDERS[provider]
        replies = [calls, end]
        script = lambda seen, sock: (200, {}, replies.pop(0))  # noqa: E731
        monkeypatch.setenv(f"{provider}_API_KEY", "k")
        monkeypatch.setenv("MODEL", "some-model")
        model = {
            "OPENAI": agent.OpenAI,
            "ANTHROPIC": agent.Anthropic,
            "GEMINI": agent.Gemini,
        }[provider]()
        group = example("group").ClientGroup({"art": self.gallery()})
        with web_server(script) as (url, seen), group:
            monkeypatch.setenv(f"{provider}_BASE_URL", url.replace("/mcp", ""))
            toolbox = agent.Toolbox(group, lambda name, arguments: True)
            return agent.run_agent(model, toolbox, "Paint!"), seen

    @pytest.mark.parametrize("provider", PROVIDERS)
    def test_it_speaks_as_each_provider_does(self, provider, monkeypatch):
        """The question, the tools, the model's own words, and both results come; a
        picture comes as one, and a failure as one."""
        said, seen = self.converse(provider, monkeypatch)
        path, (header, key), calls, _ = PROVIDERS[provider]
        assert said == "done"
        assert [each["path"] for each in seen] == [path, path]
        assert seen[0]["headers"][header] == key
        body = seen[1]["message"]
        picture = base64.b64encode(PNG).decode()
        if provider == "OPENAI":
            names = [each["function"]["name"] for each in body["tools"]]
            question, message, painted, failed, shown = body["messages"]
            assert question == {"role": "user", "content": "Paint!"}
            # But for what only replies may have.
            assert {**message, "annotations": []} == calls["choices"][0]["message"]
            assert "annotations" not in message
            assert painted == {
                "role": "tool",
                "tool_call_id": "c1",
                "content": "a picture",
            }
            assert failed["tool_call_id"] == "c2"
            assert "JSONDecodeError" in failed["content"]
            (part,) = shown["content"]
            assert part["image_url"]["url"] == f"data:image/png;base64,{picture}"
        if provider == "ANTHROPIC":
            names = [each["name"] for each in body["tools"]]
            assert body["tools"][0]["input_schema"]["type"] == "object"
            _, message, answer = body["messages"]
            assert message["content"] == calls["content"]
            painted, failed = answer["content"]
            assert painted["tool_use_id"] == "c1" and not painted["is_error"]
            assert [each["type"] for each in painted["content"]] == ["text", "image"]
            assert painted["content"][1]["source"]["data"] == picture
            assert failed["is_error"]
            assert failed["content"] == [{"type": "text", "text": "nobody wants it"}]
        if provider == "GEMINI":
            (declared,) = body["tools"]
            names = [each["name"] for each in declared["functionDeclarations"]]
            _, message, answer = body["contents"]
            # Its signature, too.
            assert message == calls["candidates"][0]["content"]
            painted, failed = (each["functionResponse"] for each in answer["parts"])
            assert painted["name"] == "art_paint"
            assert painted["response"] == {"output": "a picture"}
            assert painted["parts"][0]["inlineData"]["data"] == picture
            assert failed["id"] == "c2"
            assert failed["response"] == {"error": "nobody wants it"}
        assert names == ["art_paint", "art_sell"]

    @pytest.mark.parametrize("provider", PROVIDERS)
    def test_the_providers_own_types_accept_it(self, provider, monkeypatch):
        """What is sent fits the types of the provider's own SDK, where that is
        installed."""
        if provider == "OPENAI":
            chat = pytest.importorskip("openai.types.chat")
            kind = chat.completion_create_params.CompletionCreateParamsNonStreaming
        if provider == "ANTHROPIC":
            sdk = pytest.importorskip("anthropic.types")
            kind = sdk.message_create_params.MessageCreateParamsNonStreaming
        if provider == "GEMINI":
            sdk = pytest.importorskip("google.genai.types")
        _, seen = self.converse(provider, monkeypatch)
        body = seen[1]["message"]
        if provider == "GEMINI":
            # Each of these refuses members that it does not know.
            for content in body["contents"]:
                sdk.Content.model_validate(content)
            for tool in body["tools"]:
                sdk.Tool.model_validate(tool)
        else:
            assert misfits(body, kind) == []

    def test_what_is_no_answer(self):
        """A refusal, an empty answer and a filter are told in words; a picture of a kind
        that not every provider takes is a text."""
        agent = example("agent")
        refused = {"role": "assistant", "content": None, "refusal": "I can't."}
        filtered = {"finishReason": "SAFETY"}
        blocked = {"promptFeedback": {"blockReason": "OTHER"}}
        for model, reply, shown in (
            (agent.OpenAI(), {"choices": [{"message": refused}]}, "I can't."),
            (agent.Anthropic(), {"content": [], "stop_reason": "refusal"}, "refusal"),
            (agent.Gemini(), {"candidates": [filtered]}, "SAFETY"),
            (agent.Gemini(), blocked, "OTHER"),
        ):
            _, said, calls = model.read(reply)
            assert shown in said and calls == []
        drawing = {"type": "image", "mimeType": "image/svg+xml", "data": "PHN2Zz4="}
        answer = agent.answer_of("c1", "draw", {"content": [drawing]})
        assert answer.images == [] and "image/svg+xml" in answer.text

    def test_many_tools_cost_two(self):
        """With more tools than the model should read, it searches and calls; the user
        is asked about the tool that is meant."""
        agent = example("agent")
        server = Server("shop")
        things = ["tea", "coal", "bread", "paint"] + [f"thing{n}" for n in range(139)]
        for thing in things:
            server.add_tool(
                lambda count, thing=thing: f"{count} {thing}",
                name=f"buy.{thing}",
                description=f"Order some {thing}",
                input_schema={
                    "type": "object",
                    "properties": {"count": {"type": "integer"}},
                    "required": ["count"],
                },
            )
        asked = []

        def allow(name, arguments):
            asked.append((name, arguments))
            return "coal" not in name

        with example("group").ClientGroup({"shop": server}) as group:
            toolbox = agent.Toolbox(group, allow)
            assert len(toolbox.tools) == 143
            assert [each["name"] for each in toolbox.offered] == [
                "search_tools",
                "call_tool",
            ]
            found = toolbox.run("search_tools", '{"query": "order teas"}')
            best = json.loads(text_of(found))[0]
            assert best["name"] == "shop_buy_tea"
            assert best["inputSchema"]["required"] == ["count"]
            call = {"name": "shop_buy_tea", "arguments": {"count": 2}}
            assert text_of(toolbox.run("call_tool", json.dumps(call))) == "2 tea"
            assert asked == [("shop_buy_tea", {"count": 2})]
            call = {"name": "shop_buy_coal", "arguments": {"count": 2}}
            assert "does not want" in text_of(toolbox.run("call_tool", call))
            for broken in (
                "{",
                "[]",
                '{"name": "no"}',
                {"name": "no", "arguments": {}},
                {"name": "shop_buy_tea", "arguments": [1]},
                {"name": "shop_buy_tea", "arguments": {"count": "many"}},
            ):
                result = toolbox.run("call_tool", broken)
                assert result["isError"], broken


class TestCheck:
    """examples/check.py: what a server's callers rely on, for CI."""

    CHECK = os.path.join(HERE, "examples", "check.py")

    def server(self, folder, name, body):
        """A server's file, with the tool `pay` of this signature and docstring."""
        path = os.path.join(folder, name)
        with open(path, "w") as file:
            file.write(
                f"import sys; sys.path.insert(0, {HERE!r})\n"
                "import typing\n"
                "from mcp_lite import Server\n"
                "server = Server('shop')\n"
                f"{textwrap.dedent(body)}\n"
                "server.run()\n"
            )
        return path

    def test_the_commands(self, tmp_path):
        """`record` prints a contract, `diff` what has changed; the exit code says
        whether it breaks anybody, or that there was no answer."""
        old = self.server(
            tmp_path,
            "old.py",
            """
            @server.tool
            def pay(sum: int, currency: str = "EUR") -> dict:
                "Pay."
            @server.prompt
            def thank(name: str = "you") -> str:
                return name
            @server.resource("shop://prices")
            def prices() -> str:
                return "none"
            """,
        )
        harmless = self.server(
            tmp_path,
            "harmless.py",
            """
            @server.tool
            def pay(sum: float, currency: str = "EUR", note: str = "") -> dict:
                "Pay a bill."
            @server.tool
            def refund(sum: int) -> None: ...
            @server.prompt
            def thank(name: str = "you") -> str:
                return name
            @server.resource("shop://prices")
            def prices() -> str:
                return "none"
            """,
        )
        breaking = self.server(
            tmp_path,
            "breaking.py",
            """
            @server.tool
            def pay(sum: int, account: str) -> dict:
                "Pay."
            @server.prompt
            def thank(name: str) -> str:
                return name
            """,
        )
        contract = os.path.join(tmp_path, "contract.json")
        recorded, _ = run(sys.executable, self.CHECK, "record", old)
        with open(contract, "w") as file:
            file.write(recorded)
        rows = [
            (0, "diff", contract, old),
            (0, "diff", contract, harmless),
            (1, "diff", contract, "--", sys.executable, breaking),
            (0, "diff", contract, contract),
            (4, "diff", contract, os.path.join(tmp_path, "no such.py")),
            (2, "diff", os.path.join(tmp_path, "none.json"), old),
            (2, "compare", contract, old),
        ]
        same, better, worse, itself, absent, no_file, _ = at_once(
            lambda code, *words: run(sys.executable, self.CHECK, *words, code=code),
            rows,
        )
        assert same == itself == ["", ""]
        assert sorted(better[0].splitlines()) == [
            'harmless tool pay: description: "Pay." -> "Pay a bill."',
            'harmless tool pay: inputSchema.sum: type: "integer" -> "number"',
            "harmless tool pay: inputSchema: properties: "
            '["currency", "sum"] -> ["currency", "note", "sum"]',
            "harmless tool refund: new",
        ]
        assert sorted(worse[0].splitlines()) == [
            'BREAKING prompt thank: inputSchema: required: [] -> ["name"]',
            "BREAKING resource shop://prices: gone",
            "BREAKING tool pay: inputSchema: properties: "
            '["currency", "sum"] -> ["account", "sum"]',
            'BREAKING tool pay: inputSchema: required: ["sum"] -> ["sum", "account"]',
        ]
        assert "no such" in absent[1] and absent[0] == ""
        assert "none.json" in no_file[1]

    @pytest.mark.parametrize(
        "old, new, how",
        [
            ({"type": "integer"}, {"type": "number"}, "wider"),
            ({"type": ["string", "null"]}, {"type": "string"}, "narrower"),
            ({"type": "string"}, {"type": "integer"}, "both"),
            ({}, {"type": "string"}, "narrower"),
            ({"enum": [1, 2]}, {"enum": [2, 1]}, "neither"),
            ({"enum": [1, 2]}, {"enum": [2, 1, 3]}, "wider"),
            ({"enum": [1, 2]}, {"enum": [2, 3]}, "both"),
            ({"minimum": 1}, {"minimum": 2}, "narrower"),
            ({"minimum": 1}, {}, "wider"),
            ({"maxLength": 1}, {"maxLength": 2}, "wider"),
            ({"exclusiveMaximum": 2}, {"exclusiveMaximum": 1}, "narrower"),
            ({"const": 1}, {"const": 2}, "both"),
            ({"pattern": "a"}, {"pattern": "b"}, "both"),
            ({"multipleOf": 2}, {"multipleOf": 4}, "both"),
            ({"required": ["a"]}, {"required": ["a", "b"]}, "narrower"),
            ({"required": ["b", "a"]}, {"required": ["a", "b"]}, "neither"),
            ({"description": "a"}, {"description": "b"}, "neither"),
            ({"default": 1}, {}, "neither"),
            ({"properties": {"a": {}}}, {"properties": {}}, "both"),
            ({"properties": {}}, {"properties": {"a": {"type": "null"}}}, "neither"),
            ({"properties": {"title": {}}}, {"properties": {}}, "both"),
            (
                {"properties": {"a": {"maxItems": 2}}},
                {"properties": {"a": {}}},
                "wider",
            ),
            ({"properties": {"a": True}}, {"properties": {"a": True}}, None),
            ({"items": {"type": "string"}}, {"items": {}}, "wider"),
            (
                {"anyOf": [{}, {"enum": [1]}]},
                {"anyOf": [{}, {"enum": [1, 2]}]},
                "wider",
            ),
            ({"anyOf": [{}]}, {"anyOf": [{}, {"type": "null"}]}, "wider"),
            ({"allOf": [{}]}, {"allOf": [{}, {"type": "null"}]}, "narrower"),
            ({}, {"additionalProperties": False}, "narrower"),
            ({"additionalProperties": True}, {"additionalProperties": {}}, "both"),
            ({"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}, "both"),
            ({"$defs": {"a": {"enum": [1]}}}, {"$defs": {"a": {"enum": [2]}}}, "both"),
            ({"$defs": {"a": {}}}, {}, "neither"),
        ],
    )
    def test_what_a_change_does(self, old, new, how):
        """Each change makes a schema wider, narrower, both or neither."""
        changes = example("check").compare_schemas(old, new, "x")
        assert {each for each, _ in changes} <= {how}
        back = {"wider": "narrower", "narrower": "wider"}.get(how, how)
        if "properties" not in old and "$defs" not in old:
            changes = example("check").compare_schemas(new, old, "x")
            assert {each for each, _ in changes} <= {back}

    def test_which_changes_break(self):
        """Callers may send what they sent, and read what they read."""
        check = example("check")

        def breaks(key, old, new):
            item = {"tool t": {key: old}}
            return [each for each, _ in check.compare(item, {"tool t": {key: new}})]

        more, less = {"enum": [1, 2]}, {"enum": [1]}
        assert breaks("inputSchema", less, more) == [False]
        assert breaks("inputSchema", more, less) == [True]
        assert breaks("outputSchema", less, more) == [True]
        assert breaks("outputSchema", more, less) == [False]
        assert breaks("outputSchema", more, None) == [True]
        assert breaks("outputSchema", None, more) == [False]
        assert breaks("annotations", {}, {"readOnlyHint": True}) == [False]
        assert breaks("mimeType", "text/plain", "text/html") == [True]

    def test_warnings(self):
        """They name what providers of models refuse, where it stands."""
        schema = {
            "type": "object",
            "properties": {
                "not": {"type": "integer", "exclusiveMinimum": 0},
                "b": {"items": {"allOf": [{"oneOf": [{}, {}]}]}},
            },
        }
        contract = {
            "tool a.b": {"inputSchema": schema},
            "prompt c.d": {"inputSchema": {"properties": {}}},
        }
        warnings = sorted(example("check").warn(contract))
        assert warnings == [
            "tool a.b.b.items.allOf.0: Gemini's `parameters` refuses oneOf",
            "tool a.b.b.items.allOf.0: OpenAI's strict mode refuses oneOf",
            "tool a.b.b.items: Gemini's `parameters` refuses allOf",
            "tool a.b.b.items: OpenAI's strict mode refuses allOf",
            "tool a.b.not: Gemini's `parameters` refuses exclusiveMinimum",
            "tool a.b: providers want a name of the form [A-Za-z_][A-Za-z0-9_-]{0,63}",
        ]


class TestOpenApi:
    """examples/openapi.py: the operations of an HTTP API as tools."""

    DOCUMENT = {
        "openapi": "3.0.3",
        "info": {"title": "Pets", "version": "2"},
        "servers": [{"url": "v1"}],
        "paths": {
            "/pets/{name}": {
                "parameters": [{"$ref": "#/components/parameters/name"}],
                "get": {
                    "operationId": "get.pet",
                    "summary": "A pet",
                    "parameters": [
                        {"name": "X-Trace", "in": "header", "schema": {}},
                        {"name": "Authorization", "in": "header", "schema": {}},
                        {"name": "session", "in": "cookie", "schema": {}},
                    ],
                },
                "put": {
                    "requestBody": {
                        "required": True,
                        "content": {
                            "application/merge-patch+json": {
                                "schema": {"$ref": "#/components/schemas/Pet"}
                            }
                        },
                    }
                },
                "delete": {},
            },
            "/pets": {
                "get": {
                    "operationId": "find",
                    "parameters": [
                        {"name": "a", "in": "query", "description": "tags"},
                        {"name": "b", "in": "query", "explode": False},
                        {"name": "c", "in": "query", "style": "deepObject"},
                        {"name": "d", "in": "query", "style": "pipeDelimited"},
                        {"name": "e", "in": "query", "required": True},
                    ],
                },
                "post": {
                    "operationId": "upload",
                    "requestBody": {"content": {"multipart/form-data": {}}},
                },
            },
            "/login": {
                "post": {
                    "operationId": "login",
                    "requestBody": {
                        "content": {"application/x-www-form-urlencoded": {}}
                    },
                }
            },
            "/far": {
                "get": {
                    "operationId": "far",
                    "parameters": [{"$ref": "other.json#/components/parameters/name"}],
                }
            },
        },
        "components": {
            "parameters": {
                "name": {
                    "name": "name",
                    "in": "path",
                    "required": True,
                    "schema": {"type": "string"},
                }
            },
            "schemas": {
                "Pet": {
                    "type": "object",
                    "properties": {
                        "age": {
                            "type": "integer",
                            "minimum": 0,
                            "exclusiveMinimum": True,
                        },
                        "nullable": {"type": "string", "nullable": True},
                        "parent": {"$ref": "#/components/schemas/Pet"},
                    },
                }
            },
        },
    }

    @contextlib.contextmanager
    def api(self, script):
        """A client of a server made of the document, and what the API was asked."""
        openapi = example("openapi")
        with web_server(script) as (url, seen):
            base = url.replace("/mcp", "/v1/")
            headers = {"Authorization": "Bearer secret"}
            server = openapi.build_server(self.DOCUMENT, base, headers)
            with Client(server) as client:
                yield client, seen

    def test_the_tools(self, capsys):
        """Each has the schema of its arguments, as JSON Schema has it; credentials are no
        arguments. What is not supported is left out, and said."""
        with self.api(None) as (client, _):
            tools = {tool["name"]: tool for tool in client.list_tools()}
        said = capsys.readouterr().err
        assert "without upload: its body is multipart/form-data" in said
        assert "without far: it refers to another document, other.json#" in said
        assert "get_pet: the cookie session is not sent" in said
        assert set(tools) == {
            "get_pet",
            "put_pets_name",
            "delete_pets_name",
            "find",
            "login",
        }
        got = tools["get_pet"]
        assert got["title"] == "A pet" and got["annotations"] == {"readOnlyHint": True}
        assert set(got["inputSchema"]["properties"]) == {"name", "X-Trace"}
        assert got["inputSchema"]["required"] == ["name"]
        assert tools["find"]["inputSchema"]["properties"]["a"] == {
            "description": "tags"
        }
        assert tools["put_pets_name"]["inputSchema"] == {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "body": {"$ref": "#/$defs/Pet"},
            },
            "required": ["name", "body"],
            "$defs": {
                "Pet": {
                    "type": "object",
                    "properties": {
                        "age": {"type": "integer", "exclusiveMinimum": 0},
                        "nullable": {
                            "anyOf": [
                                {"type": "string", "nullable": True},
                                {"type": "null"},
                            ]
                        },
                        "parent": {"$ref": "#/$defs/Pet"},
                    },
                }
            },
        }

    def test_names_that_collide(self, capsys):
        """Operations whose names are one once they are cut get numbers, and arguments
        of one name their place: all of them are called. What cannot be told apart is
        left out, which is said."""
        long = "read_" + "x" * 60
        path = {"name": "id", "in": "path", "required": True}
        query = {"name": "id", "in": "query"}
        body = {"content": {"application/json": {}}}
        document = {
            "info": {"title": "t", "version": "1"},
            "paths": {
                "/a": {"get": {"operationId": long + "a"}},
                "/b": {"get": {"operationId": long + "b"}},
                "/c/{id}": {
                    "parameters": [path, {**query, "description": "the item's"}],
                    "get": {"operationId": "both", "parameters": [query]},
                    "post": {
                        "operationId": "body",
                        "parameters": [{"name": "body", "in": "query"}],
                        "requestBody": body,
                    },
                    "put": {
                        "operationId": "twice",
                        "parameters": [{"name": "id_path", "in": "header"}],
                    },
                },
            },
        }
        with web_server(lambda seen, sock: (200, {}, {"ok": True})) as (url, seen):
            base = url.replace("/mcp", "")
            server = example("openapi").build_server(document, base)
            said = capsys.readouterr().err
            assert "without twice: its arguments cannot be told apart" in said
            with Client(server) as client:
                tools = {tool["name"]: tool for tool in client.list_tools()}
                first, second, both, body = tools
                assert max(map(len, tools)) == 64 and first[:58] == second[:58]
                client.call(first)
                client.call(second)
                assert tools[both]["inputSchema"]["properties"] == {
                    "id_path": {},
                    "id_query": {},
                }
                assert tools[both]["inputSchema"]["required"] == ["id_path"]
                client.call(both, id_path=1, id_query=2)
                arguments = {"id_path": 3, "body_query": 4, "body_body": {"n": 5}}
                client.call(body, arguments)
        assert [each["path"] for each in seen] == [
            "/a",
            "/b",
            "/c/1?id=2",
            "/c/3?body=4",
        ]
        assert seen[3]["message"] == {"n": 5}

    def test_the_requests(self):
        """Arguments go where the document says, as it says; every request has the
        credentials."""
        with self.api(lambda seen, sock: (200, {}, {"ok": True})) as (client, seen):
            assert client.call("get_pet", {"name": "R/x", "X-Trace": "7"}) == {
                "ok": True
            }
            client.call("put_pets_name", name="Rex", body={"age": 3})
            client.call("delete_pets_name", name="Rex")
            client.call(
                "find",
                a=["x", "y z"],
                b=["x", "y"],
                c={"k": 1, "l": True},
                d=["x", "y"],
                e="\u00e9&",
            )
            client.call("login", body={"user": "a&b", "n": 1})
            for name in ("..", ".", ""):
                with pytest.raises(ToolError, match="cannot be a part of a path"):
                    client.call("get_pet", name=name)
            with pytest.raises(ToolError, match="e: required, but missing"):
                client.call("find")
            with pytest.raises(ToolError, match=r"body.parent.age: expected"):
                client.call("put_pets_name", name="x", body={"parent": {"age": -1}})
        assert [(each["method"], each["path"]) for each in seen] == [
            ("GET", "/v1/pets/R%2Fx"),
            ("PUT", "/v1/pets/Rex"),
            ("DELETE", "/v1/pets/Rex"),
            ("GET", "/v1/pets?a=x&a=y%20z&b=x,y&c%5Bk%5D=1&c%5Bl%5D=true&d=x%7Cy"
             "&e=%C3%A9%26"),
            ("POST", "/v1/login"),
        ]  # fmt: skip
        headers = [each["headers"] for each in seen]
        assert {each["authorization"] for each in headers} == {"Bearer secret"}
        assert headers[0]["x-trace"] == "7"
        assert headers[1]["content-type"] == "application/merge-patch+json"
        assert seen[1]["message"] == {"age": 3}
        assert seen[4]["message"] == b"user=a%26b&n=1"

    def test_the_answers(self):
        """Text, pictures and other bytes come as they are; a refusal is told to the
        model, and a redirect is one: another place would get the credentials."""
        answers = [
            (200, {"Content-Type": "text/plain"}, b"plain"),
            (200, {"Content-Type": "image/png"}, PNG),
            (200, {"Content-Type": "application/pdf"}, b"%PDF"),
            (204, {}, b""),
            (404, {}, b"no such pet"),
            (302, {"Location": "http://127.0.0.1:1/"}, b""),
        ]
        with self.api(lambda seen, sock: answers.pop(0)) as (client, seen):
            get = functools.partial(client.call_tool, "get_pet", {"name": "x"})
            assert text_of(get()) == "plain"
            assert get()["content"][0]["mimeType"] == "image/png"
            assert get()["content"][0]["resource"]["mimeType"] == "application/pdf"
            assert not get().get("isError")
            assert text_of(get()).startswith("HTTP 404 X: no such pet")
            assert text_of(get()).startswith("HTTP 302")
        assert len(seen) == 6

    def test_the_program(self, tmp_path):
        """It reads a file, and finds the API beside it or at --base; --only chooses."""
        path = os.path.join(tmp_path, "pets.json")
        with open(path, "w") as file:
            json.dump(self.DOCUMENT, file)
        program = os.path.join(HERE, "examples", "openapi.py")
        with web_server(lambda seen, sock: (200, {}, {"n": 1})) as (url, seen):
            command = [sys.executable, program, path, "--base", url, "--only", "f*"]
            command += ["--header", "X-Key: a:b"]
            with Client(command, stderr=None) as client:
                assert [tool["name"] for tool in client.list_tools()] == ["find"]
                assert client.call("find", e="1") == {"n": 1}
            assert seen[0]["headers"]["x-key"] == "a:b"


class Gateway(http.server.BaseHTTPRequestHandler):
    """An API Gateway on this machine: each request is an event for `server.handler`."""

    protocol_version = "HTTP/1.1"
    # Head and body leave in one write.
    wbufsize = -1

    def serve(self):
        path, _, query = self.path.partition("?")
        size = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(size)
        event = {
            "headers": {name.lower(): text for name, text in self.headers.items()},
            "body": base64.b64encode(body).decode() if body else None,
            "isBase64Encoded": bool(body),
        }
        if self.server.payload == "2.0":
            http = {"method": self.command, "path": path, "protocol": "HTTP/1.1"}
            event["requestContext"] = {"http": http}
            event["rawQueryString"] = query
        else:
            event["requestContext"] = {"stage": "prod"}
            event["httpMethod"] = self.command
            event["path"] = path
            event["queryStringParameters"] = None
        answer = json.loads(json.dumps(self.server.handler(event, None)))
        self.send_response_only(answer["statusCode"])
        for name, text in answer["headers"].items():
            if name.lower() != "content-length":
                self.send_header(name, text)
        data = answer["body"].encode()
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_DELETE = serve

    def log_message(self, *_):
        """Say nothing."""


class TestLambda:
    """examples/lambda_app.py: events of AWS as requests."""

    @contextlib.contextmanager
    def gateway(self, handler, payload):
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Gateway) as site:
            site.handler = handler
            site.payload = payload
            thread = started(site.serve_forever, 0.01)
            try:
                yield f"http://127.0.0.1:{site.server_port}/mcp"
            finally:
                site.shutdown()
                thread.join(SECONDS)

    @pytest.mark.parametrize("payload", ["2.0", "1.0"])
    @pytest.mark.parametrize("version", EVERY)
    def test_every_revision_in_both_formats(self, version, payload):
        """A client of any revision calls; one of the newest is asked as well."""
        handler = example("lambda_app").handler
        options = {"protocol_version": version}
        if version == MODERN:
            options["on_elicit"] = lambda params: {
                "action": "accept",
                "content": {"name": "Ada"},
            }
        with self.gateway(handler, payload) as url, Client(url, **options) as client:
            assert client.protocol_version == version
            assert [tool["name"] for tool in client.list_tools()] == ["greet"]
            if version == MODERN:
                assert client.call("greet") == "Hello, Ada!"
            else:
                with pytest.raises(McpError):
                    client.call("greet")

    def test_one_event(self):
        """The program answers the event on its stdin."""
        program = os.path.join(HERE, "examples", "lambda_app.py")
        message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        event = {
            "requestContext": {"http": {"method": "POST", "path": "/"}},
            "headers": {"content-type": "application/json", "host": "x.on.aws"},
            "body": json.dumps(message),
        }
        printed, _ = run(sys.executable, program, input=json.dumps(event))
        answer = json.loads(printed)
        assert answer["statusCode"] == 200
        assert json.loads(answer["body"])["result"] == {}
        event["headers"]["content-type"] = "text/plain"
        printed, _ = run(sys.executable, program, input=json.dumps(event))
        assert json.loads(printed)["statusCode"] == 415

    def test_in_the_real_runtime(self, tmp_path):
        """AWS's own runtime client, where it is installed, runs the handler: it fetches
        an event from the runtime API, and posts the answer."""
        pytest.importorskip("awslambdaric")
        message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        event = {
            "requestContext": {"http": {"method": "POST", "path": "/"}},
            "headers": {"content-type": "application/json", "host": "x.on.aws"},
            "body": json.dumps(message),
        }
        posted = queue.Queue()

        def runtime_api(seen, sock):
            if seen["method"] == "POST":
                posted.put((seen["path"], seen["message"]))
                return 202, {}, b""
            if not posted.empty():
                # No more events.
                return None
            head = {
                "Lambda-Runtime-Aws-Request-Id": "r1",
                "Lambda-Runtime-Deadline-Ms": str(int(time.time() * 1000) + 60000),
                "Lambda-Runtime-Invoked-Function-Arn": "arn:aws:lambda:x:1:function:f",
            }
            return 200, head, event

        with web_server(runtime_api) as (url, _):
            folder = os.path.join(HERE, "examples")
            environ = {
                **os.environ,
                "AWS_LAMBDA_RUNTIME_API": url[len("http://") : -len("/mcp")],
                "LAMBDA_TASK_ROOT": folder,
                "AWS_LAMBDA_FUNCTION_NAME": "f",
                "AWS_LAMBDA_FUNCTION_VERSION": "1",
                "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "128",
                "AWS_LAMBDA_LOG_GROUP_NAME": "g",
                "AWS_LAMBDA_LOG_STREAM_NAME": "s",
                "PYTHONPATH": folder,
            }
            command = [sys.executable, "-m", "awslambdaric", "lambda_app.handler"]
            child = subprocess.Popen(command, env=environ, stdout=PIPE, stderr=PIPE)
            try:
                path, answer = posted.get(timeout=SECONDS)
            finally:
                child.kill()
                child.communicate()
        assert path == "/2018-06-01/runtime/invocation/r1/response"
        assert answer["statusCode"] == 200
        assert json.loads(answer["body"]) == {"jsonrpc": "2.0", "id": 1, "result": {}}


class Chromium:
    """A headless Chromium, driven through pipes (the DevTools protocol).

    events: what it has reported, in order
    """

    PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser")

    def __init__(self, folder):
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        options = (
            "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage "
            "--window-size=1400,900 --no-first-run --remote-debugging-pipe"
        )
        # It reads from 3 and writes to 4.
        command = (
            f"exec {self.PROGRAM} {options} --user-data-dir={shlex.quote(str(folder))} "
            f"about:blank 3<&{theirs_in} 4>&{theirs_out}"
        )
        self.child = subprocess.Popen(
            ["bash", "-c", command],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self.writer = os.fdopen(ours_out, "wb", 0)
        self.reader = os.fdopen(ours_in, "rb")
        self.changed = threading.Condition()
        self.answers = {}
        self.events = []
        self.numbers = itertools.count(1)
        self.thread = started(self.read)
        target = self.ask(None, "Target.createTarget", url="about:blank")["targetId"]
        attached = self.ask(
            None, "Target.attachToTarget", targetId=target, flatten=True
        )
        self.page = attached["sessionId"]
        self.attach(self.page)

    def read(self):
        data = b""
        for more in iter(lambda: self.reader.read1(1 << 16), b""):
            *whole, data = (data + more).split(b"\0")
            for each in map(json.loads, whole):
                if each.get("method") == "Target.attachedToTarget":
                    # A frame of another origin.
                    started(self.attach, each["params"]["sessionId"])
                with self.changed:
                    self.answers[each.get("id")] = each
                    self.events.append(each)
                    self.changed.notify_all()

    def attach(self, session):
        options = {"autoAttach": True, "waitForDebuggerOnStart": False}
        with contextlib.suppress(AssertionError):
            self.ask(session, "Target.setAutoAttach", **options, flatten=True)
            self.ask(session, "Runtime.enable")
            self.ask(session, "Log.enable")

    def ask(self, session, method, **params):
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        with self.changed:
            self.writer.write(json.dumps(message).encode() + b"\0")
            self.changed.wait_for(lambda: number in self.answers, SECONDS)
            answer = self.answers.pop(number)
        assert "result" in answer, answer
        return answer["result"]

    def run(self, code, session=None, **context):
        """Return what code has as its value in the page; None if it fails."""
        options = {"awaitPromise": True, "returnByValue": True, **context}
        answer = self.ask(
            session or self.page, "Runtime.evaluate", expression=code, **options
        )
        return answer["result"].get("value")

    def everywhere(self, code):
        """Return the values that are true, of all frames."""
        values = []
        for each in list(self.events):
            if each.get("method") == "Runtime.executionContextCreated":
                place = each["params"]["context"]["id"]
                # Some are gone.
                with contextlib.suppress(AssertionError):
                    values.append(self.run(code, each["sessionId"], contextId=place))
        return [value for value in values if value]

    def complaints(self):
        """Return the errors that pages have had."""
        kinds = ("Runtime.exceptionThrown", "Log.entryAdded")
        return [each["params"] for each in self.events if each.get("method") in kinds]

    def close(self):
        self.child.kill()
        self.child.wait(SECONDS)
        self.thread.join(SECONDS)
        self.reader.close()
        self.writer.close()


class TestApps:
    """examples/apps.py: tools with pages, and the inspector as their host."""

    UI = "io.modelcontextprotocol/ui"

    @pytest.mark.parametrize("declares", [True, False])
    @pytest.mark.parametrize("version", [LEGACY[-1], MODERN])
    def test_the_server(self, version, declares):
        """A host sees the page and what the page alone calls, declares it the extension
        or not; others get a text."""
        apps = example("apps")
        options = {"protocol_version": version}
        if declares:
            options["extensions"] = apps.HOST
        with Client(apps.server, **options) as client:
            tools = {tool["name"]: tool["_meta"]["ui"] for tool in client.list_tools()}
            (page,) = client.read_resource(apps.URI)["contents"]
            assert sum(client.call("reroll", sides=3)["dice"]) in range(2, 7)
            assert json.loads(text_of(client.call_tool("roll", {})))["sum"] >= 2
        assert (
            tools["roll"]["resourceUri"] == tools["reroll"]["resourceUri"] == apps.URI
        )
        assert tools["reroll"]["visibility"] == ["app"]
        assert page["mimeType"] == "text/html;profile=mcp-app"
        assert page["text"].startswith("<!DOCTYPE html>")
        assert page["_meta"] == {"ui": {"prefersBorder": True}}

    def test_the_program(self):
        """It shows what a host sees."""
        printed, _ = run(sys.executable, os.path.join(HERE, "examples", "apps.py"))
        assert "reroll {'resourceUri': 'ui://dice/table', 'visibility'" in printed
        assert "text/html;profile=mcp-app {'ui': {'prefersBorder': True}}" in printed

    def test_a_policy_lets_in_what_a_page_declares(self):
        """What is no origin is left out, so that no directive can be added."""
        policy = example("inspector").app_policy
        given = {
            "connectDomains": ["https://a.example:1", "wss://b.example", "*", 5],
            "resourceDomains": ["https://*.c.example", "https://d; script-src *"],
        }
        rules = [rule.split() for rule in policy(given, "http://me").split(";")]
        rules = {name: places for name, *places in rules}
        assert rules["connect-src"] == ["https://a.example:1", "wss://b.example"]
        assert rules["script-src"] == ["'unsafe-inline'", "https://*.c.example"]
        assert rules["default-src"] == ["'none'"]
        assert rules["frame-src"] == [] and rules["frame-ancestors"] == ["http://me"]

    @pytest.fixture
    def browse(self, tmp_path):
        """browse(server) -> a browser with the inspector's page of the server."""
        if Chromium.PROGRAM is None:
            pytest.skip("wants Chromium")
        module = example("inspector")
        with contextlib.ExitStack() as stack:

            def start(server):
                inspector = module.Inspector(server)
                page = stack.enter_context(module.PageServer(inspector))
                thread = started(page.serve_forever, 0.02)
                for undo in (thread.join, page.shutdown, inspector.close):
                    stack.callback(undo)
                inspector.api_connect({})
                browser = Chromium(tmp_path / "browser")
                stack.callback(browser.close)
                browser.ask(browser.page, "Page.navigate", url=page.url)
                return browser

            yield start

    @staticmethod
    def call(browser, name):
        """Press the buttons that call a tool."""
        choose = f"""
            [...document.querySelectorAll("nav button")]
                .find((each) => each.textContent === "{name}")?.click() === undefined
        """
        eventually(lambda: browser.run(f'document.body.innerText.includes("{name}")'))
        browser.run(choose)
        browser.run('document.querySelector("#item form .main").click()')

    def test_a_page_in_a_frame(self, browse):
        """The page hears the result of its tool, calls another one, and ends when it is
        closed; its frame fits its size."""
        apps = example("apps")
        browser = browse(apps.server)
        self.call(browser, "roll")
        text = 'document.getElementById("sum")?.textContent'
        eventually(lambda: any("in all" in each for each in browser.everywhere(text)))
        height = 'parseInt(document.querySelector(".app iframe").style.height)'
        eventually(lambda: browser.run(height) in range(60, 400))
        wire = 'document.getElementById("wire").innerText'
        assert "reroll" not in browser.run(wire)
        browser.everywhere('document.getElementById("roll")?.click()')
        eventually(lambda: '"name":"reroll"' in browser.run(wire))
        close = "[...document.querySelectorAll('.app button')].at(-1).click()"
        browser.run(close)
        eventually(lambda: browser.run("document.querySelector('.app') === null"))
        assert browser.complaints() == []

    def test_the_page_of_the_inspector(self, browse):
        """Lists and objects are fields; lists are searched, messages filtered and
        cleared; in a narrow window the form that was chosen is scrolled to."""
        server = Server("shop")

        @dataclasses.dataclass
        class Item:
            name: str
            tags: "typing.List[str]" = dataclasses.field(default_factory=list)

        def order(items):
            return [f"{each.name} {each.tags}" for each in items]

        order.__annotations__ = {"items": typing.List[Item]}
        server.add_tool(order, annotations={"destructiveHint": True})
        for n in range(30):
            server.add_tool(lambda: "", name=f"other_{n:02}", description=f"number {n}")
        browser = browse(server)

        def sees(code):
            eventually(lambda: browser.run(code), code)

        def click(text, place="#item"):
            sees(
                f"(each => each ? (each.click(), true) : false)([...document"
                f".querySelectorAll('{place} button')].find(each =>"
                f" each.textContent === '{text}'))"
            )

        click("order", "nav")
        sees(
            "document.querySelector('#item .badge.warn').textContent === 'may destroy'"
        )
        click("Add an item")
        click("Add an item", "#item fieldset")
        browser.run(
            "document.querySelector('#item fieldset textarea').value = 'tea';"
            "document.querySelectorAll('#item fieldset .item textarea')[0].value = 'x'"
        )
        click("Call")
        sees("document.querySelector('#results').innerText.includes(\"tea ['x']\")")
        wire = "byId('wire-messages').innerText"
        sees(wire + '.includes(\'"items":[{"name":"tea","tags":["x"]}]\')')

        def type_into(name, text):
            browser.run(
                f"byId('{name}').value = '{text}';"
                f"byId('{name}').dispatchEvent(new Event('input'))"
            )

        type_into("find", "NUMBER 1")
        count = (
            "[...document.querySelectorAll('nav li')].filter((e) => !e.hidden).length"
        )
        assert browser.run(count) == 11
        type_into("find", "")
        type_into("sift", "tools/call")
        shown = "[...byId('wire-messages').children].every((e) => e.hidden ||"
        assert browser.run(shown + " e.textContent.includes('tools/call'))")
        type_into("sift", "")
        browser.run("byId('clear').click()")
        sees("byId('wire-messages').childElementCount === 0")
        browser.ask(
            browser.page,
            "Emulation.setDeviceMetricsOverride",
            width=420,
            height=500,
            deviceScaleFactor=1,
            mobile=True,
        )
        browser.run("scrollTo(0, 0)")
        click("order", "nav")
        top = "byId('item').getBoundingClientRect().top"
        sees(f"{top} >= 0 && {top} < 250")
        assert browser.run("document.documentElement.scrollWidth <= innerWidth")
        assert browser.complaints() == []

    def test_what_a_page_may_not(self, browse):
        """A page has no origin and no network, cannot reach the inspector, and calls no
        tool that is not for pages."""
        apps = example("apps")
        server = Server("spy", extensions={self.UI: {}})
        page = """<!DOCTYPE html><title>spy</title><p id="spy"></p><script>
            const seen = {};
            const done = () => {
              document.getElementById("spy").textContent = JSON.stringify(seen);
            };
            const send = (message) => parent.postMessage(
              {jsonrpc: "2.0", ...message}, "*");
            addEventListener("message", ({data}) => {
              if (data.id === undefined) return;
              seen[data.id] = data.error ? data.error.message : "done";
              done();
            });
            seen.origin = self.origin;
            for (const [name, way] of Object.entries({
              storage: () => localStorage.length,
              top: () => top.document.title,
            })) {
              try { seen[name] = String(way()); } catch (error) { seen[name] = error.name; }
            }
            fetch("URL").then(() => { seen.network = "open"; },
              () => { seen.network = "closed"; }).then(done);
            const call = (id, name) =>
              send({id, method: "tools/call", params: {name, arguments: {}}});
            call("secret", "secret");
            call("unknown", "unknown");
            call("open", "open");
            send({id: "list", method: "tools/list", params: {}});
            send({id: "link", method: "ui/open-link", params: {url: "https://x.example"}});
            </script>"""
        called = []
        server.add_tool(
            lambda: called.append("secret"),
            name="secret",
            meta={"ui": {"visibility": ["model"]}},
        )
        server.add_tool(
            lambda: called.append("open"),
            name="open",
            meta={"ui": {"resourceUri": "ui://spy"}},
        )
        with web_server(lambda seen, sock: (200, {}, b"")) as (url, visits):

            @server.resource("ui://spy", mime_type=apps.PAGE_TYPE)
            def spy() -> str:
                return page.replace("URL", url)

            browser = browse(server)
            self.call(browser, "open")
            text = 'document.getElementById("spy")?.textContent'

            def seen():
                return [
                    each
                    for each in map(json.loads, browser.everywhere(text))
                    if len(each) == 9
                ]

            eventually(seen)
            assert visits == []
        (told,) = seen()
        assert told == {
            "origin": "null",
            "storage": "SecurityError",
            "top": "SecurityError",
            "network": "closed",
            "secret": "secret: not for pages",
            "unknown": "unknown: not for pages",
            "open": "done",
            "list": "tools/list: unknown method",
            "link": "the inspector opens no links",
        }
        assert called == ["open", "open"]


class TestSkills:
    """examples/skills.py: folders of instructions, served and used."""

    SKILLS = "io.modelcontextprotocol/skills"
    HEAD = "---\nname: {}\ndescription: Does {}.\n---\n# Do {}\n"
    TEA = {"name": "tea", "description": "Does tea."}

    @pytest.fixture
    def folder(self, tmp_path):
        """A folder with the skills `tea` and `acme/refunds`, and what is no skill."""
        refunds = tmp_path / "skills" / "acme" / "refunds"
        (refunds / "references").mkdir(parents=True)
        (refunds / "SKILL.md").write_bytes(
            b'---\r\nname: refunds\r\ndescription: "Money: back"\r\nmetadata:\r\n'
            b"  version: '1.0'\r\nstars: 5\r\n---\r\n# Refunds\r\n"
        )
        (refunds / "references" / "a b.md").write_text("the rules")
        (refunds / "seal.png").write_bytes(PNG)
        (refunds / "empty.txt").write_bytes(b"")
        (refunds / "seal (1).txt").write_bytes(b"wax")
        (refunds / ".git").mkdir()
        (refunds / ".git" / "config").write_text("secret")
        (tmp_path / "outside.md").write_text("secret")
        (refunds / "link.md").symlink_to(tmp_path / "outside.md")
        tea = tmp_path / "skills" / "tea"
        tea.mkdir()
        (tea / "SKILL.md").write_text(self.HEAD.format("tea", "tea", "tea"))
        other = tmp_path / "skills" / "other"
        other.mkdir()
        (other / "SKILL.md").write_text(self.HEAD.format("another", "it", "it"))
        return tmp_path / "skills"

    def server(self, folder):
        server = Server("s", extensions={self.SKILLS: {"directoryRead": True}})
        example("skills").serve_skills(server, folder)
        return server

    def client(self, target):
        return Client(target, extensions={self.SKILLS: {}})

    def test_the_server(self, folder, capsys):
        """It lists what is a skill, with every file's size and digest; a file is read
        as it is, and nothing else is served."""
        with self.client(self.server(folder)) as client:
            listed = client.request("skills/list")
            assert listed["resultType"] == "complete"
            assert {"ttlMs", "cacheScope"} <= listed.keys()
            refunds, tea = listed["skills"]
            assert refunds["uri"] == "skill://acme/refunds/SKILL.md"
            assert refunds["frontmatter"] == {
                "name": "refunds",
                "description": "Money: back",
                "metadata": {"version": "1.0"},
                "stars": 5,
            }
            assert [each["uri"][len("skill://acme/refunds/") :] for each in
                    refunds["resources"]] == [
                "SKILL.md",
                "empty.txt",
                "references/a%20b.md",
                "seal%20%281%29.txt",
                "seal.png",
            ]  # fmt: skip
            for each in refunds["resources"]:
                data = client.read(each["uri"])
                data = data.encode() if isinstance(data, str) else data
                assert each["size"] == len(data)
                digest = hashlib.sha256(data).hexdigest()
                assert each["digest"] == f"sha256:{digest}"
            got = client.request("skills/get", {"uri": tea["uri"]})
            assert got["skill"] == tea
            root = {"uri": "skill://acme/refunds"}
            inside = client.request("resources/directory/read", root)["resources"]
            assert [(each["name"], each["mimeType"]) for each in inside] == [
                ("SKILL.md", "text/markdown"),
                ("empty.txt", "text/plain"),
                ("references", "inode/directory"),
                ("seal (1).txt", "text/plain"),
                ("seal.png", "image/png"),
            ]
            wrong = [
                ("skills/get", "skill://acme/refunds/seal.png"),
                ("skills/get", "skill://acme/refunds"),
                ("skills/get", "skill://nothing/SKILL.md"),
                ("skills/get", "skill://other/SKILL.md"),
                ("skills/get", "file:///etc/SKILL.md"),
                ("skills/get", None),
                ("resources/directory/read", "skill://tea/SKILL.md"),
                ("resources/directory/read", "skill://tea/.."),
                ("resources/directory/read", "skill:///etc"),
                ("resources/read", "skill://tea"),
                ("resources/read", "skill://acme/refunds/link.md"),
                ("resources/read", "skill://acme/refunds/.git/config"),
                ("resources/read", "skill://tea/../../outside.md"),
                ("resources/read", "skill://tea/%2e%2e/%2e%2e/outside.md"),
                ("resources/read", f"skill://{folder.parent}/outside.md"),
            ]
            for method, uri in wrong:
                with pytest.raises(McpError) as caught:
                    client.request(method, {"uri": uri})
                assert caught.value.code == -32602, (method, uri)
        assert (
            "other/SKILL.md: its name must be its folder's" in capsys.readouterr().err
        )

    @pytest.mark.parametrize(
        "line, value",
        [
            ("a b", "a b"),
            ('"a: \\"b\\" # \\u00e9"', 'a: "b" # \u00e9'),
            ("'it''s: # so'", "it's: # so"),
            ("http://x.example/#y", "http://x.example/#y"),
            ("-1.50", -1.5),
            ("0", 0),
            ("true", True),
            ("~", None),
            ("", None),
            ("1.0.3", "1.0.3"),
            ("2026-01-01", None),
            ("0x1F", None),
            ("007", None),
            ("1_000", None),
            ("12:30", None),
            ("yes", None),
            ("OFF", None),
            ("a # b", None),
            ("a: b", None),
            (">", ""),
            ("|-", ""),
            (">2", None),
            ("[a, b]", ["a", "b"]),
            ("['x, y', \"z\", 7, true, ]", None),
            ("['x, y', \"z\", 7, true]", ["x, y", "z", 7, True]),
            ("[]", []),
            ("[a, yes]", None),
            ("[a: b]", None),
            ("[a, [b]]", None),
            ("{a: b}", None),
            ('{"a": {"b": [1, "c"]}}', {"a": {"b": [1, "c"]}}),
            ('{"a": 1e5}', None),
            ('{"a": 1, "a": 2}', None),
            ("&x y", None),
            ("*x", None),
            ("!!str 1", None),
            ("- a", None),
            ('"open', None),
            ("'a'b'", None),
            ("@a", None),
        ],
    )
    def test_the_head(self, line, value):
        """What YAML's readers agree on is read; the rest is refused by name."""
        skills = example("skills")
        text = f"---\nname: {line}\n---\n"
        if value is None and line not in ("", "~"):
            with pytest.raises(ValueError, match=re.escape(line)):
                skills.parse_head(text)
        else:
            assert skills.parse_head(text) == {"name": value}
            yaml = pytest.importorskip("yaml")
            assert yaml.safe_load(f"name: {line}") == {"name": value}

    @pytest.mark.parametrize(
        "text, value",
        [
            ("a: >\n  x\n  y\n\n  z\n", {"a": "x y\nz\n"}),
            ("a: >-\n  x\n\n   y\n  z\n", {"a": "x\n\n y\nz"}),
            ("a: |-\n  x\n    y\n\n", {"a": "x\n  y"}),
            ("a: |+\n  x\n\n\nb: 1\n", {"a": "x\n\n\n", "b": 1}),
            ("a: |\n   x\n   # y: z\nb: 2\n", {"a": "x\n# y: z\n", "b": 2}),
            ("m:\n  a: >\n    x\n    y\n  b: 2\n", {"m": {"a": "x y\n", "b": 2}}),
            ("a:\n  x y.\n  z\nb: 2\n", {"a": "x y. z", "b": 2}),
            ("a: x,\n  y\n\n    z\n", {"a": "x, y\nz"}),
            ("a:\n  7\nb:\n  'c: d'\n", {"a": 7, "b": "c: d"}),
            ("m:\n  a: x\n   y\n  b: 2\n", {"m": {"a": "x y", "b": 2}}),
            ("a:\n- x\n- 'y'\nb: 2\n", {"a": ["x", "y"], "b": 2}),
            (
                "m:\n  a:\n    - x y\n    - 7\n  b: []\n",
                {"m": {"a": ["x y", 7], "b": []}},
            ),
        ],
    )
    def test_texts_of_several_lines(self, text, value):
        """Folded and literal ones are read as YAML's own readers do."""
        assert example("skills").parse_head(f"---\n{text}---\n") == value
        assert pytest.importorskip("yaml").safe_load(text) == value

    @pytest.mark.parametrize(
        "text",
        [
            "name: a",
            "---\nname: a",
            "---\nname: a\nname: b\n---\n",
            "---\nname: a\n  b: c\n---\n",
            "---\nname: a\n  and: more\n---\n",
            "---\nname: a\n  and # more\n---\n",
            "---\nname: a\n# no\n  more\n---\n",
            '---\nname: "a\n  more"\n---\n',
            "---\nname:\n  12:30\n---\n",
            "---\nname:\n- a: b\n---\n",
            "---\nname:\n- - a\n---\n",
            "---\nname:\n- a\n more\n---\n",
            "---\nname:\n    b: c\n  d: e\n---\n",
            "---\nname:a\n---\n",
            "---\n\tname: a\n---\n",
            "---\n? a\n---\n",
        ],
    )
    def test_heads_that_are_none(self, text):
        """They are refused."""
        with pytest.raises(ValueError):
            example("skills").parse_head(text)

    def test_the_host(self, folder):
        """It fetches on need, asks once for what stays the same, says whose a text is,
        and reads only what was listed."""
        asked = []
        sent = []

        def approve(label, entry):
            asked.append((label, entry["uri"]))
            return "tea" not in entry["uri"]

        def trace(direction, line):
            if direction == "-->":
                sent.append(json.loads(line)["method"])

        server = self.server(folder)
        options = {"extensions": {self.SKILLS: {}}, "trace": trace}
        uri = "skill://acme/refunds/SKILL.md"
        with Client(server, **options) as client:
            host = example("skills").SkillHost(client, "acme's", approve)
            assert [each["uri"] for each in host.list()] == [
                uri,
                "skill://tea/SKILL.md",
            ]
            assert "resources/read" not in sent
            text = host.load(uri)
            assert text.startswith(f'<skill server="acme\'s" uri={uri!r}>\n---')
            assert sent.count("resources/read") == 1
            assert host.read(uri, "references/a b.md") == b"the rules"
            assert host.read(uri, "references/a%20b.md") == b"the rules"
            assert host.read(uri, "./references/../references/a b.md") == b"the rules"
            assert host.read(uri, "empty.txt") == b""
            assert host.read(uri, "seal.png") == PNG
            assert sent.count("resources/read") == 4
            # Servers need not write what URIs may have as %28 and %29.
            host.held[uri] = {
                file.replace("%28", "(").replace("%29", ")"): listed
                for file, listed in host.held[uri].items()
            }
            assert host.read(uri, "seal (1).txt") == b"wax"
            up = ("../../tea/SKILL.md", "%2e%2e/%2e%2e/tea/SKILL.md")
            for path in ("no.md", *up, "/etc/passwd", "link.md"):
                with pytest.raises(ValueError, match="no file of this skill"):
                    host.read(uri, path)
            host.load(uri)
            assert asked == [("acme's", uri)]
            with pytest.raises(PermissionError, match="does not agree"):
                host.load("skill://tea/SKILL.md")

            # A new file is none of the skill's until it is loaded again, and approved.
            (folder / "acme" / "refunds" / "new.md").write_text("new")
            with pytest.raises(ValueError, match="no file of this skill"):
                host.read(uri, "new.md")
            host.load(uri)
            assert host.read(uri, "new.md") == b"new"
            assert len(asked) == 3
            # A changed file is not what was approved.
            host.cache.clear()
            (folder / "acme" / "refunds" / "new.md").write_text("NEW")
            with pytest.raises(ValueError, match="not what the server said"):
                host.read(uri, "new.md")

    @pytest.mark.parametrize(
        "change, said",
        [
            ({"resources": "dynamic"}, "nothing can be verified"),
            ({"resources": []}, "nothing can be verified"),
            ({"frontmatter": {"name": "x", "description": "y"}}, "its folder's"),
            ({"frontmatter": {"name": "tea"}}, "its description must"),
            ({"frontmatter": {**TEA, "description": "z" * 1025}}, "its description"),
            ({"frontmatter": {**TEA, "compatibility": ""}}, "its compatibility must"),
            ({"frontmatter": {**TEA, "metadata": {"n": 1}}}, "its metadata must"),
            ({"frontmatter": {**TEA, "metadata": []}}, "its metadata must"),
            ({"frontmatter": {"name": "tea", "description": "z"}}, "its head is not"),
            ({"more": {"uri": "skill://tea/SKILL.md"}}, "listed twice"),
            ({"more": {"uri": "skill://other/x.md"}}, "elsewhere"),
            ({"more": {"uri": "skill://tea/%2e%2e/x.md"}}, "elsewhere"),
            ({"more": {"uri": "skill://tea/x.md", "size": 16 << 20}}, "16 MiB"),
            ({"digest": "sha256:" + "0" * 64}, "not what the server said"),
            ({"size": 1}, "not what the server said"),
        ],
    )
    def test_a_server_that_contradicts_itself(self, folder, change, said):
        """Nothing of it is loaded."""
        server = self.server(folder)

        @server.middleware
        def lie(ctx, method, params, call_next):
            result = call_next()
            if method == "skills/get":
                skill = result["skill"]
                listed = skill["resources"][0]
                skill.update({k: change[k] for k in change.keys() & skill.keys()})
                listed.update({k: change[k] for k in change.keys() & listed.keys()})
                if "more" in change:
                    skill["resources"].append({**listed, **change["more"]})
            return result

        with self.client(server) as client:
            host = example("skills").SkillHost(client, "s", lambda label, entry: True)
            with pytest.raises(ValueError, match=said):
                host.load("skill://tea/SKILL.md")
            assert host.held == {}

    def test_the_program(self, folder):
        """As a host it asks before it loads; as a server it is on stdio."""
        program = os.path.join(HERE, "examples", "skills.py")
        printed, _ = run(sys.executable, program, folder, input="y\ny\n")
        assert "skill://tea/SKILL.md Does tea." in printed
        assert "<skill server='this folder' uri='skill://tea/SKILL.md'>" in printed
        command = [sys.executable, program, str(folder), "--serve"]
        with Client(command, stderr=None, extensions={self.SKILLS: {}}) as client:
            assert len(client.request("skills/list")["skills"]) == 2

    def test_who_may_ask(self, folder):
        """Any client: it declares nothing. A name has 64 characters at most."""
        for name in ("x" * 64, "y" * 65):
            (folder / name).mkdir()
            (folder / name / "SKILL.md").write_text(self.HEAD.format(name, "it", "it"))
        for version in ("2025-11-25", MODERN):
            with Client(self.server(folder), protocol_version=version) as client:
                listed = client.request("skills/list")["skills"]
                names = [each["frontmatter"]["name"] for each in listed]
                assert names == ["refunds", "tea", "x" * 64]
                uri = {"uri": listed[1]["uri"]}
                assert client.request("skills/get", uri)["skill"] == listed[1]
                # Of the extension, not of the revision.
                with pytest.raises(McpError) as caught:
                    client.request("skills/get", {"uri": "skill://nothing/SKILL.md"})
                assert caught.value.code == -32602
                root = {"uri": "skill://tea"}
                inside = client.request("resources/directory/read", root)
                assert {"resources", "ttlMs", "cacheScope"} <= inside.keys()

    def test_a_foreign_host(self, folder):
        """FastMCP's client, where that is installed, reads every file of a skill and
        verifies them."""
        fastmcp = pytest.importorskip("fastmcp", minversion="4")
        skills = pytest.importorskip("fastmcp.skills.client")
        import asyncio

        async def use(url):
            extensions = [skills.SkillsClientExtension()]
            async with fastmcp.Client(url, extensions=extensions) as client:
                listed = await client.list_skills()
                return listed, await client.read_skill(listed[0].uri)

        with self.server(folder).start_http() as http:
            listed, skill = asyncio.run(use(http.url))
        assert [each.frontmatter.name for each in listed] == ["refunds", "tea"]
        assert skill.files["references/a b.md"] == b"the rules"
        assert skill.files["seal.png"] == PNG

    def test_a_foreign_server(self, folder, tmp_path):
        """FastMCP's server, where that is installed, has skills that this host loads."""
        pytest.importorskip("fastmcp", minversion="4")
        pytest.importorskip("fastmcp.skills.provider")
        # It would end at what is no skill, or no file.
        shutil.rmtree(folder / "other")
        (folder / "acme" / "refunds" / "link.md").unlink()
        script = tmp_path / "foreign.py"
        script.write_text(
            "from fastmcp import FastMCP\n"
            "from fastmcp.skills.provider import SkillsDirectoryProvider as Folder\n"
            f"FastMCP('f', providers=[Folder({str(folder)!r})]).run(show_banner=False)\n"
        )
        with self.client([sys.executable, str(script)]) as client:
            host = example("skills").SkillHost(client, "f", lambda label, entry: True)
            uris = [each["uri"] for each in host.list()]
            assert sorted(uris) == [
                "skill://acme/refunds/SKILL.md",
                "skill://tea/SKILL.md",
            ]
            for uri in uris:
                assert "<skill server='f'" in host.load(uri)
            refunds = "skill://acme/refunds/SKILL.md"
            assert host.read(refunds, "references/a b.md") == b"the rules"
            assert host.read(refunds, "seal.png") == PNG


@pytest.mark.skipif(
    "public_routes" not in Server.start_http.__kwdefaults__, reason="no routes= yet"
)
class TestServerCard:
    """examples/server_card.py: a server that is found by its domain."""

    @contextlib.contextmanager
    def site(self, **options):
        """A server with a token and a card. Yields its site, and the routes' documents."""
        cards = example("server_card")
        server = Server("weather", "2.0")
        server.add_tool(lambda: "sun", name="forecast")
        port = free_port()
        site = f"http://127.0.0.1:{port}"
        routes = cards.card_routes(server, site, "org.acme/weather", "Sun?")
        options = {"verify": {"secret": {"sub": "ada"}}, **options}
        with server.start_http(port=port, public_routes=routes, **options):
            yield site

    def test_the_documents(self):
        """Anybody may read them; they are what the rules say, and new only if changed."""
        with self.site() as site:
            urls = {
                "/.well-known/ai-catalog.json": "application/ai-catalog+json",
                "/mcp/server-card": "application/mcp-server-card+json",
            }
            seen = []
            for path, kind in urls.items():
                with urllib.request.urlopen(site + path, timeout=SECONDS) as response:
                    seen.append(json.load(response))
                    headers = response.headers
                assert headers["Content-Type"] == kind
                assert headers["Access-Control-Allow-Origin"] == "*"
                assert "max-age" in headers["Cache-Control"]
                known = {"If-None-Match": headers["ETag"]}
                request = urllib.request.Request(site + path, headers=known)
                with pytest.raises(urllib.error.HTTPError) as caught:
                    urllib.request.urlopen(request, timeout=SECONDS)
                assert caught.value.code == 304
                caught.value.close()
        catalog, card = seen
        assert catalog == {
            "specVersion": "1.0",
            "entries": [
                {
                    "identifier": "urn:air:acme.org:mcp:weather",
                    "type": "application/mcp-server-card+json",
                    "url": site + "/mcp/server-card",
                }
            ],
        }
        assert card["name"] == "org.acme/weather" and card["version"] == "2.0"
        assert card["remotes"][0]["url"] == site + "/mcp"
        assert card["remotes"][0]["supportedProtocolVersions"] == EVERY

    def test_a_client_finds_it(self, capsys):
        """By the domain alone; what the card and the server say differently is told."""
        cards = example("server_card")
        headers = {"Authorization": "Bearer secret"}
        with self.site() as site:
            (card,) = cards.find_servers(site)
            with cards.connect(card, headers=headers) as client:
                assert client.call("forecast") == "sun"
            assert capsys.readouterr().err == ""
            with cards.connect({**card, "version": "1"}, headers=headers):
                assert "its card is of 1" in capsys.readouterr().err
            card["remotes"][0]["url"] = "https://{tenant}.acme.org/mcp"
            with pytest.raises(LookupError):
                cards.connect(card)

    def test_a_card_inside_a_catalog(self):
        """An entry may have the card itself; other kinds of entries are passed over."""
        card = {"name": "x/y"}
        kind = "application/mcp-server-card+json"
        entries = [{"type": "other", "url": "x:"}, {"type": kind, "data": card}]
        catalog = {"entries": entries}
        with web_server(lambda seen, sock: (200, {}, catalog)) as (url, seen):
            found = example("server_card").find_servers(url.replace("/mcp", ""))
        assert found == [card] and len(seen) == 1

    def test_the_program(self):
        """It serves, finds itself and calls."""
        program = os.path.join(HERE, "examples", "server_card.py")
        printed, _ = run(sys.executable, program, "--http", free_port())
        assert printed == "sun\n"


class TestTasksOfStrangers:
    """examples/tasks.py: whose a task is, and what tasks may hold up."""

    EXTENSIONS = TestTasks.EXTENSIONS

    def shop(self):
        server = Server("shop", extensions=self.EXTENSIONS)
        example("tasks").Tasks(server, ["ask"], poll=0.01)

        @server.tool
        def ask(ctx: Context) -> str:
            return ctx.elicit("who?", FORM)["content"]["name"]

        return server

    def client(self, target, **options):
        options["result_types"] = {"task": lambda call, task: task}
        options["on_elicit"] = lambda params: {"action": "decline"}
        return Client(target, extensions=self.EXTENSIONS, **options)

    def until(self, client, task, status):
        """Wait for this status of a task."""
        name = {"taskId": task["taskId"]}
        eventually(lambda: client.request("tasks/get", name)["status"] == status)

    def test_a_renewed_token(self):
        """A task is its principal's, whatever else a token says."""
        claims = {
            "old": {"sub": "ada", "iss": "x", "exp": 1},
            "new": {"sub": "ada", "iss": "x", "exp": 2, "scope": "more"},
            "other": {"sub": "ada", "iss": "y", "exp": 1},
        }
        with self.shop().start_http(
            verify=claims
        ) as http, contextlib.ExitStack() as on:
            old, new, other = (
                on.enter_context(
                    self.client(http.url, headers={"Authorization": f"Bearer {each}"})
                )
                for each in claims
            )
            task = old.start_call("ask").result()
            name = {"taskId": task["taskId"]}
            self.until(new, task, "input_required")
            with pytest.raises(InvalidParams, match="Unknown task"):
                other.request("tasks/get", name)
            answer = {"action": "accept", "content": {"name": "Ada"}}
            (key,) = new.request("tasks/get", name)["inputRequests"]
            new.request("tasks/update", {**name, "inputResponses": {key: answer}})
            self.until(old, task, "completed")

    def test_a_question_without_an_answer(self, monkeypatch):
        """It holds a thread for some time only; with too many at work, a call is
        answered as without tasks."""
        tasks = example("tasks")
        monkeypatch.setattr(tasks, "MAX_AT_WORK", 1)
        with self.client(self.shop()) as client:
            task = client.start_call("ask").result()
            self.until(client, task, "input_required")
            # It asked the client itself, which declines: no content.
            assert client.start_call("ask").result()["isError"] is True
            client.request("tasks/cancel", {"taskId": task["taskId"]})
            self.until(client, task, "cancelled")
            monkeypatch.setattr(tasks, "PATIENCE", 0.01)
            task = client.start_call("ask").result()
            self.until(client, task, "completed")
            done = client.request("tasks/get", {"taskId": task["taskId"]})
            assert "not answered in time" in text_of(done["result"])


class TestHosts:
    """examples/hosts/: each inside the real program, where that is installed."""

    FOLDER = os.path.join(HERE, "examples", "hosts")

    def program(self, name, *options, **changes):
        """Run an example that starts its host and drives it; what it prints."""
        path = os.path.join(self.FOLDER, name)
        environ = {**os.environ, **changes}
        return run(sys.executable, path, *options, env=environ)[0]

    @pytest.mark.skipif(not shutil.which("gdb"), reason="wants gdb")
    def test_gdb(self):
        """A program runs and is looked at; a cancelled call interrupts it."""
        printed = self.program("gdb_host.py")
        assert "_start ()" in printed
        assert re.search("^stack: [0-9a-f]{32}$", printed, re.M)
        assert "the call was cancelled, and that interrupts it" in printed
        assert "nanosleep" in printed and "gdb ended with 0" in printed

    @pytest.mark.skipif(
        not (shutil.which("gdb") and shutil.which("cc")), reason="wants gdb and cc"
    )
    def test_gdb_with_a_program_of_ones_own(self, tmp_path):
        """Breakpoints, stack and memory; an error of gdb is told to the model."""
        source = tmp_path / "prog.c"
        source.write_text(
            "int counter = 41;\n"
            "int bump(int by) {\n"
            "    counter += by;\n"
            "    return counter;\n"
            "}\n"
            "int main(void) { return bump(1); }\n"
        )
        binary = str(tmp_path / "prog")
        subprocess.run(["cc", "-g", "-O0", "-o", binary, str(source)], check=True)
        host = os.path.join(self.FOLDER, "gdb_host.py")
        child = subprocess.Popen(
            ["gdb", "-q", "-nx", "-x", host, "--args", binary],
            stdin=PIPE,
            stdout=PIPE,
            stderr=subprocess.DEVNULL,
        )
        try:
            lines = (line.decode().strip() for line in child.stdout)
            url = next(line for line in lines if line.startswith("http://"))
            with Client(url, timeout=SECONDS) as client:
                assert client.call("breakpoints", places=["bump"]) == ["bump"]
                assert "bump (by=1)" in client.call("go", command="run")
                first, second = client.call("backtrace")
                assert first.startswith("bump at") and first.endswith("prog.c:3")
                assert second.startswith("main at")
                assert client.call("memory", address="&counter", count=4) == "29000000"
                assert "return counter" in client.call("go", command="next")
                assert client.call("execute", command="print counter") == "$1 = 42\n"
                with pytest.raises(ToolError, match='No symbol "nothing"'):
                    client.call("execute", command="print nothing")
                assert client.call("go", command="continue") == "the program has ended"
            child.communicate(b"quit\n", SECONDS)
            assert child.returncode == 0
        finally:
            child.kill()
            child.communicate()

    @pytest.mark.skipif(not shutil.which("blender"), reason="wants Blender")
    @pytest.mark.parametrize("window", [False, True])
    def test_blender(self, window, tmp_path):
        """A scene is built and rendered, in the background and with a window."""
        options = []
        changes = {}
        with contextlib.ExitStack() as stack:
            if window:
                if not shutil.which("Xvfb"):
                    pytest.skip("wants Xvfb")
                reader, writer = os.pipe()
                command = ["Xvfb", "-displayfd", str(writer), "-nolisten", "tcp"]
                screen = subprocess.Popen(
                    command, pass_fds=[writer], stderr=subprocess.DEVNULL
                )
                stack.callback(screen.wait)
                stack.callback(screen.kill)
                os.close(writer)
                with os.fdopen(reader) as told:
                    changes["DISPLAY"] = ":" + told.readline().strip()
                # Drawing a large window takes seconds.
                size = ["--window-geometry", "0", "0", "320", "240"]
                options = ["-noaudio", *size]
            printed = self.program("blender_host.py", *options, **changes)
        assert "added Cube.001\n['Camera', 'Cube', 'Cube.001', 'Light']" in printed
        assert "refused: no object 'Cube'\nrendered image/png\n" in printed
        assert printed.endswith("goodbye\nBlender ended with 0\n")

    def test_notebook(self):
        """A kernel's variables are seen and changed; a busy cell comes first."""
        pytest.importorskip("ipykernel")
        pytest.importorskip("jupyter_client")
        printed = self.program("notebook_host.py")
        assert "x is [1, 2, 3]\nthe sum is 6\n12\n" in printed
        assert "refused: ZeroDivisionError('division by zero')" in printed
        assert printed.endswith("after the cell that runs: 7\n")

    @pytest.mark.skipif(not shutil.which("soffice"), reason="wants LibreOffice")
    def test_calc(self):
        """A sheet is filled in, computed, read and saved."""
        wants = ["/usr/bin/python3", "-c", "import uno"]
        if not os.path.exists(wants[0]) or subprocess.call(wants, stderr=PIPE):
            pytest.skip("wants python3-uno")
        assert self.program("calc_host.py") == (
            "3\n{'A2': '42', 'A3': '45'}\n"
            "refused: no cell 'nope': expected one such as B7\nsaved True\n"
        )

    def test_qt(self):
        """Widgets are touched on their own thread."""
        pytest.importorskip("PySide6.QtWidgets")
        printed = self.program("qt_host.py", QT_QPA_PLATFORM="offscreen")
        assert printed == "lines: 1\nseen: image/png\ngoodbye\n"
