"""A recorded conversation, played as a server: for tests of a client without the server.

Teaches: a conversation is what was said, and nothing else. Put the ids and tokens of
another client into it, and it holds once more. No mcp_lite here.

Record: python3 -m mcp_lite list server.py --trace ./trace.jsonl
or by Client(target, trace="./trace.jsonl"). Then, wherever the server was named:
Run: python3 examples/replay.py trace.jsonl                on stdio
     python3 examples/replay.py trace.jsonl --http 8000    at http://127.0.0.1:8000/mcp

A request is answered as the one with the same method and parameters was; if there were
several, in their order, and after the last from the first again; if there was none, by
an error that says so. Who asks is no matter (see WHO). Before an answer comes what the
server has said until then. Where it had a question, any answer will do.

A trace does not tell: the time (so all comes at once, also what a subscription hears);
which request a log line or a legacy question is about, if several are in flight (the
latest is taken); whose a line is, if several conversations are in one file; and what
HTTP adds, such as statuses and sessions
(so there is one session, and no GET; what came after an answer comes before it there).
"""

import contextlib
import http.server
import itertools
import json
import re
import sys
import threading
from collections import deque

# Members of parameters that do not tell what is asked.
WHO = ("_meta", "clientInfo", "capabilities", "protocolVersion", "inputResponses")
VERSION = "io.modelcontextprotocol/protocolVersion"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
# Direction, which conversation if there are several, message.
LINE = re.compile(r"^(-->|<--) ((?:\[\s*)?{.*)$", re.MULTILINE)


def meta_of(message):
    part = message.get("params") or message.get("result") or {}
    return part.get("_meta", {})


def is_request(message):
    return "method" in message and "id" in message


def key_of(request):
    """What requests with the same answers have in common: method, era, parameters."""
    params = request.get("params") or {}
    asked = {name: value for name, value in params.items() if name not in WHO}
    return (
        request["method"],
        meta_of(request).get(VERSION),
        json.dumps(asked, sort_keys=True),
    )


class Recording:
    """A trace, in exchanges: lists of all that the server has said to a request."""

    def __init__(self, path):
        self.exchanges = {}  # by the key of the request: one for each time
        # The latest: of all, of each request id, and of each progress token.
        self.by_id = {}
        self.by_token = {}
        self.latest = []
        with open(path, encoding="utf-8") as file:
            found = LINE.findall(file.read())
        for direction, text in found:
            with contextlib.suppress(ValueError):  # no message was this even then
                message = json.loads(text)
                for each in message if isinstance(message, list) else [message]:
                    if isinstance(each, dict):
                        self.note(direction, each)

    def note(self, direction, message):
        if direction == "<--":
            self.exchange_of(message).append(message)
        elif is_request(message):
            exchange = self.latest = []
            self.exchanges.setdefault(key_of(message), deque()).append(exchange)
            self.by_id[message["id"]] = exchange
            self.by_token[meta_of(message).get("progressToken")] = exchange

    def exchange_of(self, message):
        """What a message of the server belongs to."""
        if "method" not in message:
            return self.by_id.get(message.get("id"), [])
        token = (message.get("params") or {}).get("progressToken")
        subscription = meta_of(message).get(SUBSCRIPTION)
        latest = self.by_id.get(subscription, self.latest)
        return latest if token is None else self.by_token.get(token, latest)

    def look_up(self, request):
        """What is to be said to a request."""
        key = key_of(request)
        if key in self.exchanges:
            self.exchanges[key].rotate(-1)
            return self.exchanges[key][-1]
        known = [each[2] for each in self.exchanges if each[:2] == key[:2]]
        told = f"not recorded: {key[0]} {key[2]}; recorded: {', '.join(known) or None}"
        print(told, file=sys.stderr)
        code = -32602 if known else -32601
        return [{"jsonrpc": "2.0", "error": {"code": code, "message": told}}]


class Player:
    """Plays exchanges. A question of the server's stops one, until it is answered."""

    def __init__(self, recording):
        self.recording = recording
        self.numbers = itertools.count(1)
        self.stopped = {}  # by the id of the question: what is still to be played

    def hear(self, message, send, is_answer_last=False):
        """A message of the client; what there is to say is given to send(message)."""
        if is_request(message):
            said = self.recording.look_up(message)
            if is_answer_last:
                said = sorted(said, key=lambda each: "method" not in each)
            self.play(message, iter(said), send)
        elif message.get("id") in self.stopped:
            self.play(*self.stopped.pop(message["id"]))

    def play(self, request, rest, send):
        for message in rest:
            message = json.loads(json.dumps(message))  # a copy, to be changed
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
                    continue  # this client does not want to hear of it
            send(message)


def play_on_stdio(player):
    for line in sys.stdin:
        player.hear(json.loads(line), lambda each: print(json.dumps(each), flush=True))


def play_over_http(player, port):
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.headers.get("Origin"):
                self.respond(403)  # what was recorded is for no web page
            elif is_request(message):
                self.answer(message)
            else:
                player.hear(message, None)
                self.respond(202)

        def answer(self, request):
            """Respond with a stream of events, up to the answer."""
            done = threading.Event()

            def send(message):
                self.wfile.write(f"data: {json.dumps(message)}\n\n".encode())
                if "method" not in message:
                    done.set()

            headers = {"Content-Type": "text/event-stream", "Connection": "close"}
            if request["method"] == "initialize":
                headers["Mcp-Session-Id"] = "replay"
            self.respond(200, **headers)
            player.hear(request, send, is_answer_last=True)
            done.wait()  # other requests may bring the answers to questions

        def respond(self, status, **headers):
            self.send_response(status)
            for header in (headers or {"Content-Length": "0"}).items():
                self.send_header(*header)
            self.end_headers()

        def do_GET(self):
            self.respond(405)

        do_DELETE = do_GET

    with http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        print(f"http://127.0.0.1:{server.server_port}/mcp", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()


if __name__ == "__main__":
    player = Player(Recording(sys.argv[1]))
    if sys.argv[2:3] == ["--http"]:
        play_over_http(player, int((sys.argv[3:] or [0])[0]))
    else:
        play_on_stdio(player)
