"""A recorded conversation, played back as a server: to test a client without the server.

Teaches: a client knows a server only by its messages. Once the ids and tokens are
replaced, a recorded conversation serves another client as well. This example does not use
mcp_lite.

Record: python3 -m mcp_lite list server.py --trace ./trace.jsonl
or by Client(target, trace="./trace.jsonl"). Then, wherever the server was named:
Run: python3 examples/replay.py trace.jsonl                on stdio
     python3 examples/replay.py trace.jsonl --http 8000    at http://127.0.0.1:8000/mcp

A request is answered as the request with the same method and parameters was. If there
were several, their answers are given in turn, over and over; if there was none, an error
says so. It does not matter which client asks (see WHO). What the server sent before an
answer is sent before it here, too. Where the server asked a question, any answer will do.

A trace has no times, so everything comes at once, even the events of a subscription. Nor
does it say which request a log line or a question of a session belongs to; the latest
request is assumed. Over HTTP there are no sessions and no GET streams here, and what came
after an answer comes before it. A file must hold a single conversation.
"""

import argparse
import contextlib
import http.server
import itertools
import json
import re
import sys
import threading
from collections import deque

# Members of parameters that make no difference to the question.
WHO = ("_meta", "clientInfo", "capabilities", "protocolVersion", "inputResponses")
VERSION = "io.modelcontextprotocol/protocolVersion"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
# The names by which this machine's own programs reach it.
LOCAL = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:\d+)?", re.IGNORECASE)
MAX_BODY = 4 << 20  # bytes of a request over HTTP
PATIENCE = 600.0  # seconds for the answer to a question
# Direction and message. What HTTP adds is not a message.
LINE = re.compile(r"^(-->|<--) ({.*)$", re.MULTILINE)


def meta_of(message):
    part = message.get("params") or message.get("result") or {}
    return part.get("_meta", {})


def is_request(message):
    return "method" in message and "id" in message


def key_of(request):
    """Return a key for requests with the same answers: method, era, parameters."""
    params = request.get("params") or {}
    asked = {name: value for name, value in params.items() if name not in WHO}
    return (
        request["method"],
        meta_of(request).get(VERSION),
        json.dumps(asked, sort_keys=True),
    )


class Recording:
    """A trace, as exchanges: everything that the server said in reply to each request."""

    def __init__(self, path):
        # By the request's key, one exchange for each time that it was sent.
        self.exchanges = {}
        # The latest exchange by request id, by progress token, and overall.
        self.by_id = {}
        self.by_token = {}
        self.latest = []
        with open(path, encoding="utf-8") as file:
            lines = LINE.findall(file.read())
        for direction, text in lines:
            # A server may have sent something that is not JSON.
            with contextlib.suppress(ValueError):
                self.note(direction, json.loads(text))
        if not self.exchanges:
            raise ValueError(f"{path}: no request was recorded in it")

    def note(self, direction, message):
        if direction == "<--":
            self.exchange_of(message).append(message)
        elif is_request(message):
            exchange = self.latest = []
            self.exchanges.setdefault(key_of(message), deque()).append(exchange)
            self.by_id[message["id"]] = exchange
            self.by_token[meta_of(message).get("progressToken")] = exchange

    def exchange_of(self, message):
        """Return the exchange that a message of the server belongs to."""
        if "method" not in message:
            return self.by_id.get(message.get("id"), [])
        token = (message.get("params") or {}).get("progressToken")
        subscription = meta_of(message).get(SUBSCRIPTION)
        latest = self.by_id.get(subscription, self.latest)
        return latest if token is None else self.by_token.get(token, latest)

    def look_up(self, request):
        """Return the messages that reply to a request."""
        key = key_of(request)
        if key in self.exchanges:
            self.exchanges[key].rotate(-1)
            return self.exchanges[key][-1]
        known = [each[2] for each in self.exchanges if each[:2] == key[:2]]
        reason = (
            f"not recorded: {key[0]} {key[2]}; recorded: {', '.join(known) or None}"
        )
        # Unprintable characters might steer a terminal.
        print(ascii(reason)[1:-1], file=sys.stderr)
        code = -32602 if known else -32601
        return [{"jsonrpc": "2.0", "error": {"code": code, "message": reason}}]


class Player:
    """Plays exchanges. A question of the server stops one until it is answered."""

    def __init__(self, recording):
        self.recording = recording
        self.numbers = itertools.count(1)
        # By the id of a question: what to play once it is answered.
        self.stopped = {}

    def hear(self, message, send, is_answer_last=False):
        """Take a message of the client, and send(message) the replies."""
        if is_request(message):
            said = self.recording.look_up(message)
            if is_answer_last:
                said = sorted(said, key=lambda each: "method" not in each)
            self.play(message, iter(said), send)
        elif message.get("id") in self.stopped:
            self.play(*self.stopped.pop(message["id"]))

    def play(self, request, rest, send):
        for message in rest:
            # A copy, as it will be changed.
            message = json.loads(json.dumps(message))
            if is_request(message):
                message["id"] = f"question-{next(self.numbers)}"
                self.stopped[message["id"]] = (request, rest, send)
                send(message)
                return
            if "method" not in message:
                message["id"] = request["id"]
            if SUBSCRIPTION in meta_of(message):
                meta_of(message)[SUBSCRIPTION] = request["id"]
            if message.get("method") == "notifications/progress":
                token = meta_of(request).get("progressToken")
                message["params"]["progressToken"] = token
                if token is None:
                    # This client has not asked for progress.
                    continue
            send(message)


def parse(text):
    """Return the message in a text, or None."""
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        return None
    is_message = isinstance(message, dict) and isinstance(
        message.get("params") or {}, dict
    )
    return message if is_message else None


def play_on_stdio(player):
    def send(message):
        print(json.dumps(message), flush=True)

    for line in sys.stdin:
        message = parse(line)
        if message is not None:
            player.hear(message, send)
        else:
            error = {"code": -32700, "message": "expected a message"}
            send({"jsonrpc": "2.0", "id": None, "error": error})


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers a client's POST with a stream of events."""

    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_POST(self):
        # Until its body is read, no other request can follow.
        self.close_connection = True
        size = self.headers.get("Content-Length", "")
        if self.headers.get("Origin") or not self.is_local():
            # The recording is not for web pages, whatever name they use.
            self.respond(403)
        elif not size.isdigit() or int(size) > MAX_BODY:
            self.respond(413)
        else:
            self.serve(parse(self.rfile.read(int(size))))

    def is_local(self):
        name = self.headers.get("Host", "")
        return LOCAL.fullmatch(name) or name.rpartition(":")[0] == self.server.host

    def serve(self, message):
        if message is None:
            self.respond(400)
        elif is_request(message):
            self.answer(message)
        else:
            self.server.player.hear(message, None)
            self.close_connection = False
            self.respond(202)

    def answer(self, request):
        """Respond with a stream of events, up to the answer."""
        done = threading.Event()

        def send(message):
            # The client may have left.
            with contextlib.suppress(OSError):
                self.wfile.write(f"data: {json.dumps(message)}\n\n".encode())
            if "method" not in message:
                done.set()

        self.respond(200, **{"Content-Type": "text/event-stream"})
        self.server.player.hear(request, send, is_answer_last=True)
        # Other requests may bring the answers to questions.
        done.wait(PATIENCE)

    def respond(self, status, **headers):
        headers = headers or {"Content-Length": "0"}
        if self.close_connection:
            headers["Connection"] = "close"
        self.send_response(status)
        for header in headers.items():
            self.send_header(*header)
        self.end_headers()

    def do_GET(self):
        self.respond(405)


def play_over_http(player, host, port):
    with http.server.ThreadingHTTPServer((host, port), Handler) as server:
        server.player = player
        server.host = host
        print(f"http://{host}:{server.server_port}/mcp", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()


def address(text):
    """Return (host, port) of [HOST:]PORT. Raises ValueError."""
    host, _, port = text.rpartition(":")
    if int(port) not in range(65536):
        raise ValueError(port)
    return host.strip("[]") or "127.0.0.1", int(port)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.error = lambda why: sys.exit(f"replay: {why}; see --help")
    parser.add_argument("trace", help="a file that a Client has made with trace=")
    parser.add_argument(
        "--http",
        type=address,
        nargs="?",
        const=("127.0.0.1", 0),
        metavar="[HOST:]PORT",
        help="serve at a URL, and print it; without a port, at any free one",
    )
    options = parser.parse_args()
    try:
        player = Player(Recording(options.trace))
    except (OSError, ValueError) as error:
        sys.exit(f"replay: {ascii(str(error))[1:-1]}")
    if options.http is None:
        with contextlib.suppress(KeyboardInterrupt):
            play_on_stdio(player)
    else:
        try:
            play_over_http(player, *options.http)
        except OSError as error:
            sys.exit(f"replay: {error}")


if __name__ == "__main__":
    main()
