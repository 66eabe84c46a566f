"""Minutes of mixed load with faults and foes, and every call's outcome accounted for.

Every transport and every revision take part. Teaches: a test of endurance is
bookkeeping. Each call ends in exactly one of a right answer (its value is checked), a
failure that this program asked for, or a LOSS; what was not open before is not open
after. Who attacks the servers meanwhile is not accounted for: what the limits of the
servers are for is that nobody else notices.

Run: python3 examples/soak.py [minutes, else 1] [seed, else 1]
It ends with 0 and a last line "ok: ...", or with 1 and "FAILED: ...".
"""

import contextlib
import faulthandler
import functools
import gc
import http.client
import json
import logging
import os
import queue
import random
import signal
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time

# mcp_lite.py is one folder up.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

import mcp_lite  # noqa: E402
from mcp_lite import Cancelled, Client, ConnectionClosed, Context  # noqa: E402
from mcp_lite import MissingCapability, Server, Timeout, ToolError  # noqa: E402

# Seconds for any answer: later is never.
PATIENCE = 30.0
# Seconds until a run is warm: from then on its memory should not grow.
WARM = 30.0
# MiB by which the last quarter of a run may exceed the one before, if both are warm:
# the foes make it go up and down;
GROWTH = 16.0
# and if they are not.
COLD_GROWTH = 64.0
VERSIONS = (*mcp_lite.LEGACY_VERSIONS, mcp_lite.NEWEST, "auto")
FORM = {
    "type": "object",
    "properties": {"name": {"type": "string"}},
    "required": ["name"],
}
# The address of who means harm: a server gives each address its share. Where the system
# has no such one, they stay away.
FOE = "127.0.0.2"
CHILD = [sys.executable, os.path.abspath(__file__), "--serve"]
HTTP_CHILD = [*CHILD[:-1], "--serve-http"]
# Seconds that it gives to what it has begun; more than a nap, also on a busy machine.
GRACE = 3.0
# What tells a server to end, as `docker stop` and Ctrl-C do; and what asks nobody.
# Windows has none of it: what is called SIGTERM there asks nobody.
POLITE_ENDS = [signal.SIGTERM, signal.SIGINT] if os.name == "posix" else []
ENDS = [*POLITE_ENDS, getattr(signal, "SIGKILL", signal.SIGTERM)]
# What no answer is equal to.
NEVER = object()


# The tools of the server, beside those of one line.


def tell(to: int, token: str, ctx: Context) -> str:
    ctx.warning(token)
    for n in range(1, to + 1):
        ctx.progress(n, to)
    return token


def ask(kind: str, text: str, ctx: Context) -> str:
    if kind == "elicit":
        return ctx.elicit(text, FORM)["content"]["name"]
    if kind == "roots":
        return ctx.roots()[0]["uri"] + text
    said = ctx.once("a", lambda: text)
    for n in "12":
        said += ctx.sample(n + text)["content"]["text"]
    return said


def nap(token: str, ctx: Context) -> str:
    # Who hears it knows that the call has begun.
    ctx.warning(token)
    ctx.sleep(0.2)
    return token


def fail(text: str) -> None:
    if text < "8":
        raise ToolError(text)
    raise LookupError(text)


def whoami(ctx: Context) -> str:
    return f"{os.getpid()} {ctx.session_id or ''}"


def build_server(running):
    """The other end of every call.

    `running` has an item for each wait() that has not ended.
    """
    server = Server("soak", page_size=5)

    def wait(ctx: Context) -> None:
        running.append(ctx)
        try:
            ctx.sleep(60)
        finally:
            running.remove(ctx)

    def change(tool: str, uri: str) -> str:
        server.add_tool(lambda: tool, name=tool)
        server.remove_tool(tool)
        server.resource_updated(uri)
        return tool

    for tool in (tell, ask, nap, wait, fail, change, whoami):
        server.add_tool(tool)
    server.add_tool(wait, name="overdue", timeout=0.02)
    server.add_tool(lambda a, b: a + b, name="add")
    server.add_tool(lambda text: text, name="echo")
    server.add_tool(lambda: os._exit(3), name="leave")
    server.add_resource("note://{name}", lambda name: "about " + name, name="note")
    server.add_prompt(lambda code: "review " + code, name="review")
    server.completion("review", "code")(lambda value: [value + "1", value + "2"])
    return server


class Soak(logging.Handler):
    """What the threads share.

    A server, in memory and on a port; what became of every call; when to stop.
    """

    def __init__(self, seconds, seed):
        super().__init__(logging.ERROR)
        self.seconds = seconds
        self.seed = seed
        self.stop = threading.Event()
        self.running = []
        # Guards the five that follow.
        self.counts = threading.Lock()
        self.calls = 0
        self.failures = 0
        self.attacks = 0
        self.losses = []
        self.answered = set()
        self.server = build_server(self.running)
        self.http = self.server.start_http(max_connections=1000)
        self.url = self.http.url
        self.port = self.http.port
        # Counts beginnings and ends: odd while the port is closed.
        self.restarts = 0

    def book(self, failures=0, answered=None, loss=None):
        """Book the outcome of one call.

        It failed as it should, or was answered at a place, or is lost.
        """
        with self.counts:
            self.calls += 1
            self.failures += failures
            if answered:
                self.answered.add(answered)
            if loss:
                self.losses.append(loss)
        if loss and len(self.losses) <= 20:
            # One write, so that the lines of several threads do not mix.
            print(f"LOSS {loss:.500}\n", end="", flush=True)

    def book_attack(self):
        with self.counts:
            self.attacks += 1

    def emit(self, record):
        """What the library logs as an error is its own failure."""
        self.book(loss="logged: " + record.getMessage())

    def restart(self):
        """Close the HTTP server in the middle of everything.

        Then start it again on the same port.
        """
        self.restarts += 1
        self.http.close()
        self.http = None
        until = time.monotonic() + PATIENCE
        while self.http is None:
            try:
                self.http = self.server.start_http(port=self.port, max_connections=1000)
            except OSError:
                # The system gave the port to the other end of some connection.
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)
        self.restarts += 1

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), PATIENCE)

    def connect_foe(self):
        return socket.create_connection(("127.0.0.1", self.port), 5.0, (FOE, 0))

    def restarted_since(self, mark):
        return mark % 2 == 1 or self.restarts != mark


class Gone(Exception):
    """The server of this client is gone: the visit is over."""


class Visit:
    """A client's stay: it connects, does this and that, and leaves, politely or not."""

    def __init__(self, soak, place, version, dice, url=None):
        self.soak = soak
        self.place = place
        self.dice = dice
        self.who = f"{place} {version}"
        # Restarts of the server since then are an excuse.
        self.mark = soak.restarts
        self.logged = queue.SimpleQueue()
        targets = {
            "memory": soak.server,
            "stdio": CHILD,
            "http": soak.url,
            "ends": url,
            "sse": soak.url.replace("/mcp", "/sse"),
        }
        self.client = Client(
            targets[place],
            version=version,
            timeout=PATIENCE,
            roots=["file:///"],
            on_elicit=lambda params: {
                "action": "accept",
                "content": {"name": params["message"]},
            },
            on_sample=lambda params: params["messages"][0]["content"]["text"],
            on_log=lambda level, data, logger: self.logged.put(data),
            # There it says which tools failed, as they were asked to.
            stderr=None,
        )

    def run(self):
        with contextlib.suppress(Gone), contextlib.closing(self.client):
            self.connect()
            self.settle("set_log_level", self.log_all, None)
            for _ in range(self.dice.choice((5, 20, 80))):
                if self.soak.stop.is_set():
                    return
                # In the other places a client must connect again.
                if self.place == "http":
                    self.mark = self.soak.restarts
                self.do(self.dice.choice(OPERATIONS[self.place]))
            self.do(self.dice.choice(LEAVINGS))

    def connect(self):
        self.settle("connect", lambda: self.client.connect() is self.client, True)

    def log_all(self):
        return self.client.set_log_level("info")

    def do(self, operation):
        """Make the calls of one operation, each of which settles."""
        self.settle(None, functools.partial(operation, self), None)

    def settle(self, what, call, right, failure=()):
        """Make one call and book its one outcome; returns whether it was answered.

        The answer must equal `right`, or the exception be a `failure`. With None for
        `what`, call() is an operation: it settles its own calls.
        """
        try:
            value = call()
        except Gone:
            raise
        except failure:
            self.soak.book(failures=1)
            return False
        except Exception as error:
            self.settle_error(what, error, right)
            return False
        if value != right:
            self.lose(what, right, f"{value!r:.150}")
            return False
        if what:
            self.soak.book(answered=self.place)
        return True

    def settle_error(self, what, error, right):
        """Book what nobody asked for. Only a restart excuses it."""
        # Over HTTP, HttpFailure.
        closed = isinstance(error, ConnectionError)
        # The second one a tool may say, which was asking just then.
        said = ("no such session", "the server was closed")
        ended = closed or any(text in str(error) for text in said)
        if ended and self.may_be_restarted():
            self.soak.book(failures=1)
            # Until the port is open again, say.
            self.soak.stop.wait(0.05)
        else:
            self.lose(what, right, repr(error))
        if what == "connect" or (ended and self.place != "http"):
            raise Gone from error

    def lose(self, what, right, got):
        loss = f"{self.who}: {what}: expected {right!r:.150}, got {got}"
        self.soak.book(loss=loss)

    def may_be_restarted(self):
        """Whether the server may have been, while something was under way."""
        on_the_port = self.place in ("http", "sse")
        return on_the_port and self.soak.restarted_since(self.mark)

    def call(self, name, right, failure=(), **arguments):
        call = functools.partial(self.client.call, name, **arguments)
        return self.settle(name, call, right, failure)

    def collect(self, call, right, failure=()):
        """Settle a call that was started before, by the text of its result."""

        def text():
            return call.result()["content"][0]["text"]

        return self.settle("result", text, right, failure)

    def hear(self, inbox, item):
        """Settle that the item comes; what came before it goes.

        A restart on the way may have cost it.
        """

        def wait():
            until = time.monotonic() + PATIENCE
            while time.monotonic() < until:
                with contextlib.suppress(queue.Empty):
                    if inbox.get(timeout=1.0) == item:
                        return item
                    continue
                if self.may_be_restarted():
                    raise ConnectionClosed("lost with the server")
            raise Timeout(f"{item} did not come")

        self.settle("hear", wait, item)

    def token(self):
        return f"{self.dice.getrandbits(64):016x}"

    # What a visitor does.

    def calculate(self):
        a = self.dice.randrange(10**6)
        b = self.dice.randrange(10**6)
        self.settle("add", lambda: int(self.client.call("add", a=a, b=b)), a + b)

    def echo_large(self):
        text = self.token() * self.dice.choice((10, 1000, 10_000, 60_000))
        self.call("echo", text, text=text)

    def hear_progress_and_a_log(self):
        to = self.dice.choice((1, 10, 300))
        token = self.token()
        seen = []
        call = self.client.start_call(
            "tell",
            {"to": to, "token": token},
            on_progress=lambda *told: seen.append(told),
        )
        if self.collect(call, token):
            expected = [(n, to, None) for n in range(1, to + 1)]
            self.settle("progress", lambda: seen, expected)
            self.hear(self.logged, token)

    def answer_questions(self):
        text = self.token()
        if self.client.protocol_version < "2025-06-18":
            # These revisions have no elicitation.
            self.call("ask", NEVER, MissingCapability, kind="elicit", text=text)
        else:
            self.call("ask", text, kind="elicit", text=text)
        self.call("ask", "file:///" + text, kind="roots", text=text)
        self.call("ask", text + "1" + text + "2" + text, kind="sample", text=text)

    def give_up(self):
        seconds = self.dice.choice((0, 0.001, 0.02))
        wait = functools.partial(self.client.call_tool, "wait", timeout=seconds)
        self.settle("timeout", wait, NEVER, Timeout)
        call = self.client.start_call("wait")
        self.soak.stop.wait(seconds)
        call.cancel("changed my mind")
        self.collect(call, NEVER, Cancelled)

    def fail_in_the_tool(self):
        text = self.token()
        said = text if text < "8" else "fail: LookupError: " + text
        self.collect(self.client.start_call("fail", {"text": text}), said)
        late = "overdue: timed out after 0.02 seconds"
        self.collect(self.client.start_call("overdue"), late)
        self.call("fail", NEVER, ToolError, text=text)

    def look_around(self):
        client = self.client
        token = self.token()

        def missing_tools():
            return TOOLS - {tool["name"] for tool in client.list_tools()}

        def messages():
            return client.get_prompt("review", {"code": token})["messages"]

        review = {"type": "text", "text": "review " + token}
        completions = [token + "1", token + "2"]
        complete = functools.partial(client.complete, "review", "code", token)
        self.settle("ping", client.ping, None)
        self.settle("list_tools", missing_tools, set())
        self.settle("read", lambda: client.read("note://" + token), "about " + token)
        self.settle("complete", complete, completions)
        self.settle("get_prompt", messages, [{"role": "user", "content": review}])

    def start_echoes(self):
        """Some calls in flight: [(what it is to answer, call)]."""
        calls = []
        for _ in range(self.dice.choice((2, 10, 40))):
            text = self.token()
            calls.append((text, self.client.start_call("echo", {"text": text})))
        return calls

    def burst(self):
        calls = self.start_echoes()
        self.dice.shuffle(calls)
        for text, call in calls:
            self.collect(call, text)

    def listen(self):
        tool = "extra" + self.token()
        uri = "note://" + self.token()
        events = queue.SimpleQueue()
        with self.client.listen(uris=[uri]) as listening:

            def take_down():
                with contextlib.suppress(ConnectionError):
                    for event in listening:
                        events.put(event["params"].get("uri") or event["method"])

            thread = threading.Thread(target=take_down, name="soak-listen")
            thread.start()
            if self.call("change", tool, tool=tool, uri=uri):
                self.hear(events, "notifications/tools/list_changed")
                self.hear(events, uri)
        thread.join()

    # Faults of its own making.

    def end(self, how):
        """Have how() end the conversation with calls in flight.

        Each of them fails, or was answered before.
        """
        text = self.token()
        calls = []
        width = self.dice.choice((1, 5))
        for _ in range(width):
            calls.append((NEVER, self.client.start_call("wait")))
        for _ in range(width):
            calls.append((text, self.client.start_call("echo", {"text": text})))
        how()
        for right, call in calls:
            self.collect(call, right, ConnectionClosed)

    def close_with_calls_in_flight(self):
        thread = threading.Thread(target=self.client.close, name="soak-close")
        self.end(thread.start)
        thread.join()
        self.call("add", NEVER, ConnectionClosed, a=1, b=1)

    def end_the_server(self):
        """A server that is killed, exits, or is told to end can be started anew."""
        number = int(self.client.call("whoami").split()[0])

        def have_it_exit():
            self.call("leave", NEVER, ConnectionClosed)

        ways = [functools.partial(os.kill, number, each) for each in ENDS]
        self.end(self.dice.choice((have_it_exit, *ways)))
        self.call("add", NEVER, ConnectionClosed, a=1, b=1)
        self.client.close()
        self.connect()

    def stop_the_server(self):
        """A server that is stopped for a while, by Ctrl-Z say, answers later."""
        number = int(self.client.call("whoami").split()[0])
        os.kill(number, signal.SIGSTOP)
        try:
            calls = self.start_echoes()
            self.soak.stop.wait(self.dice.choice((0, 0.1, 0.5)))
        finally:
            os.kill(number, signal.SIGCONT)
        for text, call in calls:
            self.collect(call, text)

    def lose_session(self):
        """The server forgets a session.

        The next call opens another, and its caller does not notice.
        """
        _, session = self.client.call("whoami").split(" ")
        if session:
            self.delete(session)
        self.calculate()

    def delete(self, session):
        connection = http.client.HTTPConnection("127.0.0.1", self.soak.port)
        headers = {"Mcp-Session-Id": session}
        # When the server has just restarted, it has lost all sessions.
        unless_closed = contextlib.suppress(OSError, http.client.HTTPException)
        with contextlib.closing(connection), unless_closed:
            connection.request("DELETE", "/mcp", headers=headers)
            connection.getresponse().read()


TOOLS = {
    "add",
    "echo",
    "tell",
    "ask",
    "nap",
    "wait",
    "overdue",
    "fail",
    "change",
    "whoami",
    "leave",
}
COMMON = [
    Visit.calculate,
    Visit.echo_large,
    Visit.hear_progress_and_a_log,
    Visit.answer_questions,
    Visit.give_up,
    Visit.fail_in_the_tool,
    Visit.look_around,
    Visit.burst,
    Visit.listen,
]
OPERATIONS = {
    "memory": COMMON,
    "stdio": [*COMMON, Visit.end_the_server],
    "http": [*COMMON, Visit.lose_session],
    "sse": COMMON,
}
if hasattr(signal, "SIGSTOP"):
    OPERATIONS["stdio"].append(Visit.stop_the_server)
# What a visit ends with.
LEAVINGS = (Visit.look_around, Visit.close_with_calls_in_flight)


# What runs on each thread, until it is time to stop.


def visits(soak, dice, place, turn):
    """One visit after the other at a place. `turn` is the first one's revision."""
    while not soak.stop.is_set():
        version = VERSIONS[turn % len(VERSIONS)]
        turn += 1
        # The newest revision is not spoken over the old HTTP+SSE.
        if place != "sse" or version != mcp_lite.NEWEST:
            Visit(soak, place, version, dice).run()


def raw_post(message, *lines, host="localhost", size=None):
    """The bytes of a POST, with these lines in its head. `size` may be a lie."""
    body = json.dumps(message)
    lines = (
        "POST /mcp HTTP/1.1",
        f"Host: {host}",
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        f"Content-Length: {size or len(body)}",
        *lines,
    )
    head = "".join(line + "\r\n" for line in lines)
    return (head + "\r\n" + body).encode()


def modern_message(method, number=1, **params):
    meta = {
        "progressToken": 1,
        "io.modelcontextprotocol/protocolVersion": mcp_lite.NEWEST,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params["_meta"] = meta
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def raw_modern(message, *lines, **options):
    """The bytes of a modern request over HTTP."""
    lines = (
        f"MCP-Protocol-Version: {mcp_lite.NEWEST}",
        f"Mcp-Method: {message['method']}",
        *lines,
    )
    return raw_post(message, *lines, **options)


def raw_call(name, arguments):
    """The bytes of a modern tools/call over HTTP, the last on its connection."""
    message = modern_message("tools/call", name=name, arguments=arguments)
    return raw_modern(message, f"Mcp-Name: {name}", "Connection: close")


def hang_ups(soak, dice):
    """Raw sockets that hang up.

    In the middle of the head, of the body, of the handler, or of the answer.
    """
    calls = (
        ("wait", {}),
        ("tell", {"to": 3000, "token": ""}),
        ("echo", {"text": "x" * 200_000}),
    )
    while not soak.stop.wait(0.02):
        data = raw_call(*dice.choice(calls))
        with contextlib.suppress(OSError), soak.connect() as sock:
            if dice.random() < 0.5:
                # Lingering for no time makes the end a reset.
                no_time = struct.pack("ii", 1, 0)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, no_time)
            sizes = (len(data), dice.randrange(len(data)), dice.randrange(400))
            size = dice.choice(sizes)
            sock.sendall(data[:size])
            sock.settimeout(dice.choice((0.001, 0.05)))
            sock.recv(dice.choice((1, 1000)))
        soak.book(failures=1)


def read_slowly(soak, sock):
    """Yield all that comes, the first of it in small portions."""
    for _ in range(10):
        yield sock.recv(1 << 14)
        soak.stop.wait(0.05)
    yield b"".join(iter(lambda: sock.recv(1 << 16), b""))


def slow_readers(soak, dice):
    """Raw sockets that take their time with an answer, and get all of it."""
    while not soak.stop.is_set():
        mark = soak.restarts
        text = "y" * dice.choice((1_000_000, 4_000_000))
        answer = b""
        with contextlib.suppress(OSError), soak.connect() as sock:
            # Far less than the answer.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 17)
            sock.sendall(raw_call("echo", {"text": text}))
            for part in read_slowly(soak, sock):
                answer += part
        if f'"text":"{text}"'.encode() in answer:
            soak.book(answered="slow readers")
        elif soak.restarted_since(mark):
            soak.book(failures=1)
        else:
            soak.book(loss=f"a slow reader got {len(answer)} bytes: {answer[:200]!r}")


# Attacks. Each lasts a moment. What they are told does not matter; what others notice
# of them is a LOSS there.


def crowd(soak, count, data, seconds):
    """So many sockets that each send this, and read nothing, for a while."""
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            sock = stack.enter_context(soak.connect_foe())
            # It may be refused before all is sent.
            with contextlib.suppress(OSError):
                sock.sendall(data)
        soak.stop.wait(seconds)


def converse(soak, *requests):
    """Send requests on one socket, taking what is answered to each."""
    with soak.connect_foe() as sock:
        for data in requests:
            sock.sendall(data)
            if soak.stop.is_set() or not sock.recv(1 << 16):
                return


def silent_sockets(soak, dice):
    crowd(soak, 300, b"", 2.0)


def bodies_for_another_host(soak, dice):
    large = raw_post({"text": "x" * 200_000}, host="foe.example", size=4_000_000)
    crowd(soak, 30, large, 1.0)


def many_sessions(soak, dice):
    converse(soak, *[OPENING] * 1000)


def abandoned_calls(soak, dice):
    """Calls in a session run on when their caller has hung up."""
    with soak.connect_foe() as sock:
        sock.sendall(OPENING)
        head = sock.recv(1 << 16).decode().partition("\r\n\r\n")[0]
    fields = [line for line in head.split("\r\n") if "session-id" in line.lower()]
    for number in range(20):
        message = modern_message("tools/call", number, name="wait", arguments={})
        del message["params"]["_meta"]
        crowd(soak, 1, raw_post(message, *fields), 0.0)


def huge_ids(soak, dice):
    converse(soak, raw_modern(modern_message("server/discover", "9" * 1_000_000)))


def slow_senders(soak, dice):
    data = raw_call("add", {"a": 1, "b": 2})
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(soak.connect_foe()) for _ in range(20)]
        for sock in sockets:
            sock.sendall(data[: dice.randrange(len(data))])
        for sock in sockets * 3:
            soak.stop.wait(0.05)
            sock.sendall(b" ")


def lies_in_headers(soak, dice):
    call = modern_message("tools/call", name="leave", arguments={})
    lies = (
        "Mcp-Name: add",
        "Mcp-Name: =?base64?YWRk?=",
        "Mcp-Name: leave\r\nMcp-Name: add",
        "Transfer-Encoding: chunked",
        "Content-Length: 0",
        "Mcp-Session-Id: x\0y",
        "Last-Event-ID: 0-" + "9" * 5000,
    )
    converse(soak, raw_modern(call, dice.choice(lies)))


def unread_streams(soak, dice):
    """Subscriptions to all that changes, and answers of many events."""
    wanted = {"toolsListChanged": True, "resourceSubscriptions": ["note://foe"]}
    listen = modern_message("subscriptions/listen", notifications=wanted)
    crowd(soak, 30, raw_modern(listen), 1.0)
    crowd(soak, 10, raw_call("tell", {"to": 3000, "token": "x" * 10_000}), 1.0)


OPENING = raw_post(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": mcp_lite.LAST_LEGACY,
            "capabilities": {},
            "clientInfo": {"name": "foe", "version": "x" * 10_000},
        },
    }
)
ATTACKS = (
    silent_sockets,
    bodies_for_another_host,
    many_sessions,
    abandoned_calls,
    huge_ids,
    slow_senders,
    lies_in_headers,
    unread_streams,
)


def foes(soak, dice):
    """One attack on the HTTP server after the other."""
    while not soak.stop.wait(0.1):
        # It has just restarted, or has had enough of us.
        with contextlib.suppress(OSError):
            dice.choice(ATTACKS)(soak, dice)
        soak.book_attack()


def stdio_foes(soak, dice):
    """Servers that hear nonsense, and whose answers nobody reads for a while.

    They end in time all the same, as a server does at the end of its input.
    """
    nonsense = (
        b"\xff\0" * 1000,
        b"[" * 100_000,
        b"[" + b"{}," * 1000 + b"{}]",
        b"x" * (65 << 20),
        json.dumps(modern_message("server/discover", "9" * 1_000_000)).encode(),
        json.dumps(modern_message("tools/list")).encode(),
    )
    while not soak.stop.wait(1.0):
        with subprocess.Popen(
            CHILD,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as child:
            # It may have ended by itself.
            with contextlib.suppress(OSError):
                child.stdin.write(dice.choice(nonsense) + b"\n")
                child.stdin.flush()
                soak.stop.wait(0.5)
            try:
                child.communicate(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                child.kill()
                soak.book(loss="a server on stdio does not end with its input")
        soak.book_attack()


def restarts(soak, dice):
    """Restarts of the HTTP server, some seconds apart."""
    most = min(10.0, soak.seconds / 3)
    while not soak.stop.wait(dice.uniform(0.5, 1.0) * most):
        soak.restart()


def ends(soak, dice):
    """HTTP servers of their own that are told to end while they are at work.

    SIGTERM: what has begun is answered, if it takes less than the grace. SIGINT: it is
    answered, or fails. Either way the program ends by itself.
    """
    while not soak.stop.wait(dice.uniform(0.5, 2.0)):
        with subprocess.Popen(HTTP_CHILD, stderr=subprocess.PIPE) as child:
            try:
                # "soak: URL (Ctrl-C ends it)"
                url = child.stderr.readline().decode().split()[1]
                end_at_work(soak, dice, child, url)
                if child.wait(PATIENCE) != 0:
                    soak.book(loss=f"a server ended with {child.returncode}")
            except subprocess.TimeoutExpired:
                soak.book(loss="an HTTP server does not end when it is told to")
            finally:
                child.kill()


def end_at_work(soak, dice, child, url):
    """Naps in flight, and calls that last; then the signal."""
    visit = Visit(soak, "ends", dice.choice(VERSIONS), dice, url)
    with contextlib.suppress(Gone), contextlib.closing(visit.client) as client:
        visit.connect()
        visit.settle("set_log_level", visit.log_all, None)
        naps = []
        for _ in range(dice.choice((1, 5))):
            token = visit.token()
            naps.append((token, client.start_call("nap", {"token": token})))
        for _ in naps:
            visit.logged.get(timeout=PATIENCE)
        calls = [(NEVER, client.start_call("wait")) for _ in naps]
        end = dice.choice(POLITE_ENDS)
        child.send_signal(end)
        if end == signal.SIGTERM:
            for token, call in naps:
                visit.collect(call, token)
        else:
            calls += naps
        child.wait(PATIENCE)
        # A client of a session would wait for its server to come back.
        client.close()
        for right, call in calls:
            visit.collect(call, right, (ConnectionError, Cancelled))


def run(soak, job, *arguments):
    """A job, on its thread, with dice of its own. One that fails is a loss."""
    dice = random.Random(f"{soak.seed} {job.__name__} {arguments}")
    try:
        job(soak, dice, *arguments)
    except BaseException as error:
        soak.book(loss=f"{job.__name__}: {error!r}")
        raise


# What is looked at meanwhile, and at the end.


def memory():
    """MiB in use; 0 where nobody tells."""
    with contextlib.suppress(OSError), open("/proc/self/statm") as file:
        pages = int(file.read().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
    return 0.0


def descriptors():
    """How many are open; 0 where nobody tells."""
    with contextlib.suppress(OSError):
        of_the_listing = 1
        return len(os.listdir("/dev/fd")) - of_the_listing
    return 0


def conversations():
    """How many of the library's connections somebody still refers to."""
    objects = gc.get_objects()
    return sum(isinstance(each, mcp_lite.Connection) for each in objects)


def has_child():
    """Whether there is a child process; False on Windows, which cannot be asked."""
    try:
        os.waitpid(-1, os.WNOHANG)
    except (ChildProcessError, AttributeError):
        return False
    return True


def what_is_left(soak):
    """What should be gone when all is closed: {what: how many}."""
    gc.collect()
    counts = {
        "handlers": len(soak.running),
        "conversations": conversations(),
        "child processes": int(has_child()),
    }
    return {what: count for what, count in counts.items() if count}


def verdict(calls, losses, growth, most, threads, opened, left):
    """The last line: "ok: ...", or "FAILED: ..." and why.

    `growth` of the memory and the `most` of it that may be, in MiB; `threads` and
    `opened` descriptors are pairs, (before, after); `left` is of what_is_left().
    """
    wrong = []
    for what, count in {"losses": losses, **left}.items():
        if count:
            wrong.append(f"{count} {what}")
    if threads[1] > threads[0]:
        wrong.append("threads")
    if opened[1] > opened[0]:
        wrong.append("descriptors")
    if growth > most:
        wrong.append("memory")
    outcome = "ok"
    if wrong:
        outcome = "FAILED: " + ", ".join(wrong)
    return (
        f"{outcome}: {calls} calls, {losses} losses, memory {growth:+.1f} MiB, "
        f"threads {threads[0]} -> {threads[1]}, "
        f"descriptors {opened[0]} -> {opened[1]}"
    )


# A run.


def start_workers(soak):
    """All threads of a run, at work."""
    places = ("memory", "stdio", "http", "sse", "http", "memory", "stdio", "http")
    jobs = [(visits, place, turn) for turn, place in enumerate(places)]
    jobs += [(hang_ups,), (slow_readers,), (restarts,), (foes,), (stdio_foes,)]
    if POLITE_ENDS:
        jobs.append((ends,))
    workers = []
    for job in jobs:
        name = f"soak {job}"
        arguments = (soak, *job)
        worker = threading.Thread(target=run, args=arguments, name=name, daemon=True)
        workers.append(worker)
    for worker in workers:
        worker.start()
    return workers


def watch(soak):
    """Tell how it goes until the time is over; returns samples of memory()."""
    begin = time.monotonic()
    samples = []
    said = 0.0
    while (elapsed := time.monotonic() - begin) < soak.seconds:
        time.sleep(min(0.2, soak.seconds / 20))
        samples.append(memory())
        if elapsed - said >= min(5.0, soak.seconds / 4):
            said = elapsed
            print(
                f"{elapsed:6.1f} s {soak.calls:8} calls "
                f"{soak.failures:7} expected failures {len(soak.losses):3} losses "
                f"{soak.attacks:4} attacks "
                f"{memory():6.1f} MiB {threading.active_count():4} threads "
                f"{descriptors():4} descriptors",
                flush=True,
            )
    return samples


def join_workers(soak, workers):
    """Wait for all threads. One that hangs is a loss, and it is shown where."""
    until = time.monotonic() + 3 * PATIENCE
    for worker in workers:
        worker.join(max(0.0, until - time.monotonic()))
        if worker.is_alive():
            soak.book(loss=f"{worker.name} hangs")
            faulthandler.dump_traceback()


def wait_until_gone(soak, threads, opened):
    """What is closed may take a moment to be gone."""

    def is_gone():
        return (
            threading.active_count() <= threads
            and descriptors() <= opened
            and not what_is_left(soak)
        )

    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and not is_gone():
        time.sleep(0.1)


def growth_of(samples):
    """How much more memory the last quarter took than the one before: medians."""
    half = len(samples) // 2
    quarter = half // 2
    third = samples[half : half + quarter]
    fourth = samples[half + quarter :]
    return statistics.median(fourth) - statistics.median(third)


def main():
    threads = threading.active_count()
    opened = descriptors()
    minutes = sys.argv[1] if len(sys.argv) > 1 else "1"
    seed = sys.argv[2] if len(sys.argv) > 2 else "1"
    soak = Soak(float(minutes) * 60, seed)
    logging.getLogger("mcp_lite").addHandler(soak)

    workers = start_workers(soak)
    samples = watch(soak)
    soak.stop.set()
    join_workers(soak, workers)
    soak.http.close()
    wait_until_gone(soak, threads, opened)

    expected = set(OPERATIONS)
    if soak.seconds >= WARM:
        # A short run may be over before a slow reader has all of its answer.
        expected.add("slow readers")
    for place in expected - soak.answered:
        soak.book(loss=f"{place}: nothing was answered")
    line = verdict(
        calls=soak.calls,
        losses=len(soak.losses),
        growth=growth_of(samples),
        most=GROWTH if soak.seconds >= 2 * WARM else COLD_GROWTH,
        threads=(threads, threading.active_count()),
        opened=(opened, descriptors()),
        left=what_is_left(soak),
    )
    print(line)
    return 0 if line.startswith("ok: ") else 1


if __name__ == "__main__":
    if "--serve" in sys.argv:
        build_server([]).run()
    elif "--serve-http" in sys.argv:
        build_server([]).run("http", port=0, grace=GRACE)
    else:
        sys.exit(main())
