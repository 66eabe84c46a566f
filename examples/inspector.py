"""An inspector: a server in one page of your browser, with the wire beneath it.

Teaches: what a client shows and asks its user, on mcp_lite's public parts alone; and
how a local page is kept from strangers, and from what a server says. The Board is what
all tabs show, a Session is one conversation, the Handler is the door. The page itself
stands at the end: STYLE, MARKUP, SCRIPT.

Run: python3 examples/inspector.py [TARGET]
prints a URL; --open opens it. TARGET is a script, a command line, a URL, or a name in
the file of --config:
    python3 examples/inspector.py examples/quickstart_server.py --open
    python3 examples/inspector.py -- npx -y @modelcontextprotocol/server-everything
"""

import argparse
import hmac
import http.server
import itertools
import json
import os
import queue
import secrets
import shlex
import sys
import threading
import time
import webbrowser
from collections import OrderedDict
from contextlib import suppress
from functools import partial
from urllib.parse import parse_qs, urlsplit

# mcp_lite.py is one folder up.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

from group import Config, load_config  # noqa: E402

from mcp_lite import METHODS, Client, McpError, OAuth, validate  # noqa: E402

# How many values of a kind the pages show, and how many characters of JSON; what is
# older than that is forgotten.
KEPT = {
    "connection": (1, 1 << 20),
    "list": (4, 16 << 20),
    "question": (100, 4 << 20),
    "job": (100, 32 << 20),
    "progress": (100, 1 << 20),
    "wire": (1000, 8 << 20),
    "log": (500, 2 << 20),
}
MAX_ANSWER = 4 << 20  # characters of one answer to a page; the rest comes with the next
MAX_VALUE = 4 << 20  # characters of one result, or list; of a longer one, the beginning
MAX_HEAD = 64 << 10  # characters: that beginning; and of each message in the transcript
MAX_TITLE = 400  # characters of a message's line in the transcript
MAX_TEXT = 10_000  # characters of a line of a log, or of a progress message
MAX_BODY = 4 << 20  # bytes of a page's request
MAX_RUNNING = 32  # jobs at a time
POLL_SECONDS = 20.0  # that a page waits for changes, before it asks again
SPECIFICATION = "https://modelcontextprotocol.io/specification/2025-11-25/"
COMPLETE_SECONDS = 5.0  # for suggestions: later ones are of no use

# What a server lists, by the member that names one: how a client reads the list.
LISTS = {
    "tools": Client.list_tools,
    "resources": Client.list_resources,
    "templates": Client.list_resource_templates,
    "prompts": Client.list_prompts,
}


def bounded(value):
    """The value; of one that is too long, or too deep, the beginning of its JSON."""
    try:
        text = json.dumps(value)
    except RecursionError:
        return {"cut": 0, "head": "(too deeply nested to be shown)"}
    if len(text) <= MAX_VALUE:
        return value
    return {"cut": len(text), "head": text[:MAX_HEAD]}


def lines_of(text, separator, place):
    """{name: value} from lines of NAME, separator, value. Raises ValueError."""
    pairs = {}
    for line in str(text or "").splitlines():
        name, found, value = line.partition(separator)
        if line.strip() and not found:
            # No value is shown: it may be a secret.
            raise ValueError(f"{place}: expected NAME{separator}VALUE in each line")
        if line.strip():
            pairs[name.strip()] = value.strip()
    return pairs


def told(error):
    """An exception, for people."""
    return f"{type(error).__name__}: {error}"[:MAX_TEXT]


class Board:
    """What every page shows: a value for each kind and number, the latest wins.

    A page says which version it has, and gets what has changed since. So a reload, a
    second tab, or one that has slept all come to show the same.
    """

    def __init__(self):
        self._changed = threading.Condition()
        # What follows is guarded by it. kind -> number -> (version, JSON); the latest
        # last.
        self._values = {kind: OrderedDict() for kind in KEPT}
        self._sizes = dict.fromkeys(KEPT, 0)
        self._version = 0
        # How often all was forgotten: a page that has seen less begins anew.
        self._epoch = 0
        self._is_closed = False

    def put(self, kind, number, value):
        """Show this, on every page. Safe from any thread."""
        text = json.dumps([kind, number, value])
        count, size = KEPT[kind]
        with self._changed:
            values = self._values[kind]
            self._sizes[kind] += len(text) - len(values.pop(number, (0, ""))[1])
            self._version += 1
            values[number] = (self._version, text)
            while len(values) > 1 and (len(values) > count or self._sizes[kind] > size):
                _, (_, oldest) = values.popitem(last=False)
                self._sizes[kind] -= len(oldest)
            self._changed.notify_all()

    def clear(self):
        """Forget all: another conversation begins."""
        with self._changed:
            self._epoch += 1
            for kind, values in self._values.items():
                values.clear()
                self._sizes[kind] = 0

    def close(self):
        """Let nobody wait any more."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def changes(self, after, patience):
        """What has changed after a version, as JSON: {"epoch", "version", "changes"}.

        Blocks until there is something, for so many seconds at most.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._version > after or self._is_closed, patience
            )
            news = []
            for values in self._values.values():
                for version, text in reversed(values.values()):
                    if version <= after:
                        break
                    news.append((version, text))
            latest = self._version
            epoch = self._epoch
        news.sort()
        size = 0
        for position, (_, text) in enumerate(news):
            size += len(text)
            if position and size > MAX_ANSWER:
                latest = news[position - 1][0]
                news = news[:position]
                break
        changes = ",".join(text for _, text in news)
        head = f'"epoch": {epoch}, "version": {latest}'
        return f'{{{head}, "changes": [{changes}]}}'


class Session:
    """One conversation with one target: new --> connecting --> open --> over.

    What takes time runs on threads of its own, and shows on the board what becomes of
    it: no request of a page waits for the server.
    """

    def __init__(self, board, target, options):
        """Prepare a client. Raises ValueError, TypeError: see Client."""
        self._board = board
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        # What follows is guarded by it. Nobody is asked any more; and another session
        # has the board.
        self._is_closed = False
        self._is_over = False
        # Jobs that run: number -> Call, or None where there is none (yet).
        self._running = {}
        # Open questions: number -> (what is asked, queue for the answer, the jobs that
        # ran when it came).
        self._questions = {}
        # The methods of the requests that wait for an answer.
        self._methods = {}
        self._about = {"target": options["target"]}
        self._roots = str(options.get("roots") or "").split("\n")
        is_url = "url" in target if isinstance(target, dict) else "://" in target
        self.client = Client(
            target,
            name="mcp_lite inspector",
            version=options.get("version") or "auto",
            timeout=float(options.get("timeout") or 60),
            headers=lines_of(options.get("headers"), ":", "headers"),
            env=lines_of(options.get("env"), "=", "environment"),
            auth=OAuth() if is_url and options.get("login") else None,
            roots=lambda: [root for root in self._roots if root.strip()],
            on_elicit=self._elicit,
            on_sample=self._sample,
            on_log=self._log,
            stderr=partial(self._log, "stderr", logger=None),
            trace=self._trace,
        )
        self._show("connecting")

    # The conversation
    def put(self, kind, number, value):
        """Show something of this session; nothing once another one has the board."""
        with self._lock:
            if not self._is_over:
                self._board.put(kind, number, value)

    def _show(self, state, why=""):
        self._about.update(state=state, why=why)
        self.put("connection", 0, self._about)

    def _fail(self, error):
        """The connection is lost; unless it was closed here, show why."""
        if not self._is_closed:
            self._show("over", told(error))

    def run(self):
        """Connect, and list what there is: once more with each change, until the end."""
        client = self.client
        try:
            client.connect()
            self._about.update(
                version=client.protocol_version,
                server=client.server_info,
                capabilities=client.server_capabilities,
                instructions=client.instructions,
            )
            self._show("open")
            self.set_log_level("info")
            # Before the lists are read, so that no change is missed.
            changes = self._listen()
            for kind in LISTS:
                self.refresh(kind)
            self._follow(changes)
        except Exception as error:
            self._fail(error)
            client.close()

    def _listen(self):
        try:
            return self.client.listen()
        except (McpError, TimeoutError) as error:
            self._log("debug", f"no changes will be heard of: {told(error)}", None)
            return ()

    def _follow(self, changes):
        """Read again what has changed. Raises ConnectionError at the end."""
        try:
            for event in changes:
                changed = event["method"].split("/")[1]
                for kind in (changed, "templates" if changed == "resources" else ""):
                    if kind in LISTS:
                        self.refresh(kind)
        except ConnectionError as error:
            # Over HTTP that may be the end of this one stream.
            self.client.ping()
            self._log("debug", f"no changes are heard of any more: {told(error)}", None)

    def set_log_level(self, level):
        """Ask for log messages, where there are any."""
        if "logging" in self.client.server_capabilities:
            with suppress(McpError, TimeoutError):
                self.client.set_log_level(level)

    def refresh(self, kind):
        """Read a list again."""
        try:
            shown = {"items": bounded(LISTS[kind](self.client))}
        except Exception as error:
            shown = {"items": [], "error": told(error)}
            if isinstance(error, ConnectionError):
                raise
        self.put("list", kind, shown)

    def close(self, forget=False):
        """End it: what waits is told; with `forget`, nothing of it shows any more."""
        with self._lock:
            self._is_closed = True
        self.client.close()
        self._withdraw(lambda jobs: True)
        self._show("over", "It was closed here.")
        if forget:
            with self._lock:
                self._is_over = True

    # Jobs: what the user asks for
    def start(self, kind, title, params):
        """Begin a job, a row of JOBS; its number. Raises ValueError."""
        work = JOBS[kind]
        with self._lock:
            if len(self._running) >= MAX_RUNNING:
                raise ValueError(f"{MAX_RUNNING} jobs are running: cancel one of them")
            number = next(self._numbers)
            self._running[number] = None
        job = {"kind": kind, "title": title, "params": params, "at": time.time()}
        self.put("job", number, {**job, "state": "running"})
        in_background(self._work, number, partial(work, self, number, params), job)
        return number

    def _work(self, number, work, job):
        then = time.monotonic()
        try:
            ended = {"state": "done", **work()}
        except Exception as error:
            ended = {"state": "failed", "error": told(error)}
            ended["data"] = bounded(getattr(error, "data", None))
            if isinstance(error, ConnectionError):
                self._fail(error)
        ended["seconds"] = time.monotonic() - then
        with self._lock:
            self._running.pop(number, None)
            running = set(self._running)
        self.put("job", number, {**job, **ended})
        # Who asked is gone: nobody waits for the answer.
        self._withdraw(lambda jobs: jobs and not jobs & running)

    def _call_tool(self, number, params):
        on_progress = partial(self._progress, number)
        call = self.client.start_call(
            params["name"], params.get("arguments"), on_progress=on_progress
        )
        with self._lock:
            self._running[number] = call
        result = call.result()
        ended = {"result": bounded(result)}
        try:
            call.checked_result()
        except McpError as error:
            # It is shown all the same.
            ended["complaint"] = str(error)
        return ended

    def _read_resource(self, number, params):
        return {"result": bounded(self.client.read_resource(params["uri"]))}

    def _get_prompt(self, number, params):
        arguments = params.get("arguments")
        return {"result": bounded(self.client.get_prompt(params["name"], arguments))}

    def _subscribe(self, number, params):
        self.client.subscribe(params["uri"])
        return {"result": {}}

    def _unsubscribe(self, number, params):
        self.client.unsubscribe(params["uri"])
        return {"result": {}}

    def _progress(self, number, done, total, message):
        text = None if message is None else str(message)[:MAX_TEXT]
        self.put("progress", number, {"done": done, "total": total, "message": text})

    def cancel(self, number):
        """Cancel a job that runs, if it is a call."""
        with self._lock:
            call = self._running.get(number)
        if call is not None:
            call.cancel("the user has cancelled it")
            # The thread of a modern call may be the one that waits for the user.
            self._withdraw(lambda jobs: jobs == {number})

    # Questions: what the server asks
    def _ask(self, kind, params):
        """What the user answers; None when nobody waits for it any more. Blocks."""
        answer = queue.Queue()
        with self._lock:
            if self._is_closed:
                return None
            number = next(self._numbers)
            jobs = set(self._running)
            self._questions[number] = (params, answer, jobs)
        self.put("question", number, {"kind": kind, "params": bounded(params)})
        answered = answer.get()
        self.put("question", number, None)
        return answered

    def _elicit(self, params):
        return self._ask("elicitation", params)

    def _sample(self, params):
        answer = self._ask("sampling", params)
        if answer is None or answer.get("action") != "accept":
            # -1: as client/sampling.md has it.
            raise McpError(-1, "User rejected sampling request")
        return str(answer.get("text"))

    def answer(self, number, answer):
        """Answer a question. Raises ValueError for what its form does not take."""
        with self._lock:
            params, inbox, _ = self._questions.get(number, (None, None, None))
        if inbox is None:
            raise ValueError("the question is over")
        schema = params.get("requestedSchema")
        if answer.get("action") == "accept" and isinstance(schema, dict):
            errors = validate(answer.get("content"), schema)
            if errors:
                raise ValueError("; ".join(errors[:5]))
        with self._lock:
            self._questions.pop(number, None)
        inbox.put(answer)

    def _withdraw(self, is_over):
        """Take back the questions of jobs that are over."""
        with self._lock:
            numbers = [
                number
                for number, (_, _, jobs) in self._questions.items()
                if is_over(jobs)
            ]
            inboxes = [self._questions.pop(number)[1] for number in numbers]
        for inbox in inboxes:
            inbox.put(None)

    # What passes by
    def _log(self, level, data, logger):
        text = data if isinstance(data, str) else json.dumps(data)
        shown = {"level": level, "text": text[:MAX_TEXT], "logger": logger}
        self.put("log", next(self._numbers), {**shown, "at": time.time()})

    def _trace(self, direction, line):
        """Show a message, or what HTTP adds; with what it is for."""
        shown = {
            "direction": direction,
            "at": time.time(),
            "size": len(line),
            "text": line[:MAX_HEAD].decode("utf-8", "replace"),
        }
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if isinstance(message, dict):
            shown.update(self._describe(direction, message))
        else:
            title = shown["text"][:MAX_TITLE]
            shown.update(id=None, kind="http", title=title, notes=[])
        self.put("wire", next(self._numbers), shown)

    def _describe(self, direction, message):
        """What kind of message it is, in a line, and what its method is for."""
        number = message.get("id")
        kind = "error" if "error" in message else "result"
        method = message.get("method")
        if method is not None:
            kind = "notification" if number is None else "request"
            body = message.get("params")
            self._methods[direction, str(number)] = method
        else:
            body = message.get("result", message.get("error"))
            asked = "<--" if direction == "-->" else "-->"
            method = self._methods.pop((asked, str(number)), "")
        row = METHODS.get(method)
        note = row and {"result": row.outcome, "error": row.setback}.get(kind)
        if kind in ("request", "notification"):
            note = row and row.purpose
        named = body.get("name", "") if isinstance(body, dict) else ""
        return {
            "id": None if number is None else str(number)[:40],
            "kind": kind,
            "title": f"{method} {named} {json.dumps(body)}"[:MAX_TITLE],
            "notes": [(note, SPECIFICATION + row.page)] if note else [],
        }


# What the user can ask for.
JOBS = {
    "tool": Session._call_tool,
    "resource": Session._read_resource,
    "prompt": Session._get_prompt,
    "subscribe": Session._subscribe,
    "unsubscribe": Session._unsubscribe,
}


def in_background(job, *arguments):
    """Run a job that ends by itself, or with its client."""
    threading.Thread(target=job, args=arguments, name="inspector", daemon=True).start()


class Inspector:
    """What the pages talk to: `api_` methods, one for each thing that they may ask.

    Each gets the request's JSON and returns what is answered; what it raises as
    ValueError, KeyError or TypeError is the page's mistake, and told there.
    """

    def __init__(self, config=None):
        self.board = Board()
        self._config = config or Config()
        # Held while one session takes the place of another.
        self._turn = threading.Lock()
        self._session = None
        self._show_nothing()

    def _show_nothing(self):
        nothing = {"state": "none", "target": "", "why": ""}
        self.board.put("connection", 0, nothing)

    def close(self):
        with self._turn:
            if self._session is not None:
                self._session.close()
        self.board.close()

    def _open(self):
        if self._session is None:
            raise ValueError("connect to a server first")
        return self._session

    def api_poll(self, asked):
        return self.board.changes(int(asked["after"]), POLL_SECONDS)

    def api_names(self, asked):
        return {"names": sorted({*self._config, *self._config.errors})}

    def api_connect(self, asked):
        """End the session that there is, and begin another one."""
        text = asked["target"].strip()
        if not text:
            raise ValueError("name a server: a script, a command line, or a URL")
        # A name of the config file has its whole entry for a target.
        is_named = text in self._config
        if text in self._config.errors:
            raise self._config.errors[text]
        target = self._config[text] if is_named else text
        with self._turn:
            if self._session is not None:
                self._session.close(forget=True)
                self._session = None
                self.board.clear()
                self._show_nothing()
            options = {**asked, "target": text}
            session = Session(self.board, target, options)
            self._session = session
        in_background(session.run)

    def api_close(self, asked):
        self._open().close()

    def api_start(self, asked):
        session = self._open()
        number = session.start(asked["kind"], str(asked["title"]), asked["params"])
        return {"job": number}

    def api_cancel(self, asked):
        self._open().cancel(asked["job"])

    def api_answer(self, asked):
        self._open().answer(asked["question"], asked["answer"])

    def api_refresh(self, asked):
        kind = asked["kind"]
        if kind not in LISTS:
            raise ValueError(f"kind: expected one of {sorted(LISTS)}")
        in_background(self._without_end, self._open().refresh, kind)

    def _without_end(self, job, argument):
        # A connection that is lost is shown by who follows it.
        with suppress(ConnectionError, ValueError):
            job(argument)

    def api_level(self, asked):
        in_background(self._without_end, self._open().set_log_level, asked["level"])

    def api_complete(self, asked):
        """Suggestions for an argument; none where the server is slow, or has none."""
        params = {"ref": asked["ref"], "argument": asked["argument"]}
        if asked.get("context"):
            params["context"] = {"arguments": asked["context"]}
        client = self._open().client
        values = []
        with suppress(McpError, ConnectionError, TimeoutError, AttributeError):
            result = client.request("completion/complete", params, COMPLETE_SECONDS)
            values = result.get("completion").get("values")
        return {"values": values[:100] if isinstance(values, list) else []}


class Handler(http.server.BaseHTTPRequestHandler):
    """The door: the page for who has the token, its requests, and nothing else.

    A page of somebody else's in the same browser can send requests here, too. It knows
    no token; its Origin tells on it; and where it has had its own name point to this
    machine, so does Host.
    """

    protocol_version = "HTTP/1.1"
    server_version = "inspector"
    sys_version = ""
    # Seconds for a request to come.
    timeout = 60

    def do_GET(self):
        url = urlsplit(self.path)
        given = parse_qs(url.query).get("token", [""])[0]
        if not self._is_welcome(given, self.headers.get("Origin") or self._origin()):
            return
        if url.path != "/":
            self._answer(404, "text/plain", "not found")
            return
        nonce = secrets.token_urlsafe(18)
        self._answer(200, "text/html", PAGE.replace("{nonce}", nonce), nonce)

    def do_POST(self):
        # Until its body is read, no other request can follow.
        self.close_connection = True
        given = self.headers.get("X-Token", "")
        if not self._is_welcome(given, self.headers.get("Origin")):
            return
        size = self.headers.get("Content-Length", "")
        kind = self.headers.get("Content-Type", "").partition(";")[0]
        handle = getattr(self.server.inspector, self._api_name(), None)
        if kind != "application/json":
            self._answer(415, "text/plain", "expected application/json")
        elif not (size.isascii() and size.isdigit()) or int(size) > MAX_BODY:
            self._answer(413, "text/plain", f"expected {MAX_BODY} bytes at most")
        elif handle is None:
            self._answer(404, "text/plain", "not found")
        else:
            body = self.rfile.read(int(size))
            self.close_connection = False
            self._serve(handle, body)

    def _api_name(self):
        folder, _, name = self.path.rpartition("/")
        return f"api_{name}" if folder == "/api" else ""

    def _serve(self, handle, body):
        try:
            answer = handle(json.loads(body))
        except (
            ValueError,
            TypeError,
            KeyError,
            AttributeError,
            RecursionError,
        ) as error:
            self._answer_json(400, {"error": str(error)[:MAX_TEXT]})
        except (McpError, OSError) as error:
            self._answer_json(502, {"error": told(error)})
        else:
            self._answer_json(200, {} if answer is None else answer)

    def _origin(self):
        return f"http://{self.headers.get('Host', '')}"

    def _is_welcome(self, token, origin):
        """Whether the request is the page's own; if not, it is answered with 403."""
        port = self.server.server_port
        hosts = (f"127.0.0.1:{port}", f"localhost:{port}")
        wrong = ""
        if self.headers.get("Host", "") not in hosts:
            wrong = "Host: not this one"
        elif origin != self._origin():
            wrong = "Origin: not this page's"
        elif not hmac.compare_digest(token.encode(), self.server.token.encode()):
            wrong = "token: use the URL that the inspector has printed"
        if wrong:
            self._answer(403, "text/plain", wrong)
        return not wrong

    def _answer_json(self, status, answer):
        text = answer if isinstance(answer, str) else json.dumps(answer)
        self._answer(status, "application/json", text)

    def _answer(self, status, kind, text, nonce=""):
        data = text.encode()
        headers = {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(data)),
            "Content-Security-Policy": POLICY.replace("{nonce}", nonce),
            "Cache-Control": "no-store",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
        }
        # A tab that was closed wants no answer.
        with suppress(ConnectionError, TimeoutError):
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

    def log_message(self, *_):
        """Say nothing: a log would have the token."""


class PageServer(http.server.ThreadingHTTPServer):
    """Serves the page on a port of this machine alone: `url` has the token."""

    daemon_threads = True

    def __init__(self, inspector, port=0):
        self.inspector = inspector
        self.token = secrets.token_urlsafe(24)
        super().__init__(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/?token={self.token}"

    def handle_error(self, request, client_address):
        """A tab that was closed in the midst of a request is no error."""
        if not isinstance(sys.exc_info()[1], (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("target", nargs="*", help="a script, a command line, or a URL")
    parser.add_argument("--config", help="a file with servers, whose names are targets")
    parser.add_argument("--protocol", default="auto", help="the one revision to speak")
    parser.add_argument("--port", type=int, default=0, help="else any free one")
    parser.add_argument("--open", action="store_true", help="open the page")
    options = parser.parse_args()
    words = options.target
    target = words[0] if len(words) == 1 else " ".join(map(shlex.quote, words))
    inspector = Inspector(load_config(options.config) if options.config else None)
    with PageServer(inspector, options.port) as server:
        if target:
            inspector.api_connect({"target": target, "version": options.protocol})
        print(server.url, flush=True)
        print("Ctrl-C ends it.", file=sys.stderr)
        if options.open:
            webbrowser.open(server.url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            pass
        finally:
            inspector.close()


# The page. What a server says becomes text nodes, never markup: no innerHTML, and no
# attribute but an image's or a sound's data. If that were wrong somewhere, the policy
# still lets nothing run that has not this answer's nonce, and nothing leave.
POLICY = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; "
    "connect-src 'self'; img-src data: blob:; media-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)

STYLE = """
:root {
  color-scheme: light dark;
  --ground: #f5f6f8; --card: #fff; --ink: #1b1f24; --faint: #59636e; --line: #d0d7de;
  --accent: #0a58ca; --on-accent: #fff; --good: #116329; --bad: #b42318; --warn: #7a4f01;
  --text: #0a3069; --number: #8a3b12; --question: #fff8dc;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #0d1117; --card: #161b22; --ink: #e6edf3; --faint: #9aa5b1;
    --line: #3a424c; --accent: #79b8ff; --on-accent: #0b1726; --good: #56d364;
    --bad: #ff8f87; --warn: #e3b341; --text: #a5d6ff; --number: #ffb77c;
    --question: #2d2713;
  }
}
* { box-sizing: border-box; }
[hidden] { display: none !important; }
body { margin: 0; height: 100vh; overflow: hidden; display: flex; flex-direction: column;
  background: var(--ground); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
header { padding: .6rem 1rem; background: var(--card); border-bottom: 1px solid var(--line); }
header form, .row { display: flex; flex-wrap: wrap; gap: .5rem; align-items: center; }
h1 { font-size: 1.1rem; margin: 0 .5rem 0 0; }
h2 { font-size: 1rem; margin: 0; }
h3 { font-size: .95rem; margin: 0; }
p { margin: .3rem 0; }
#target { flex: 1 1 20rem; }
#status { margin: .4rem 0 0; overflow-wrap: anywhere; }
#status::before { content: "\\25CF\\00A0"; color: var(--faint); }
#status.open::before { color: var(--good); }
#status.connecting::before { color: var(--warn); }
#status.over::before { color: var(--bad); }
#options { flex: 1 0 100%; }
#options > div { display: grid; gap: .6rem; margin-top: .5rem;
  grid-template-columns: repeat(auto-fit, minmax(13rem, 1fr)); }
label, .label { display: block; font-weight: 600; font-size: .9rem; }
#options label:not(.check) { display: flex; flex-direction: column; gap: .2rem; }
::placeholder { font-weight: 400; color: var(--faint); opacity: 1; }
label.check { font-weight: 400; display: inline-flex; gap: .4rem; align-items: center; }
.hint { color: var(--faint); font-size: .85rem; font-weight: 400;
  white-space: pre-wrap; overflow-wrap: anywhere; }
input, select, textarea, button { font: inherit; color: inherit; background: var(--ground);
  border: 1px solid var(--line); border-radius: 6px; padding: .3rem .55rem; max-width: 100%; }
input[type=checkbox] { width: 1.1rem; height: 1.1rem; accent-color: var(--accent); }
textarea { width: 100%; font-family: ui-monospace, monospace; font-size: .9rem;
  resize: vertical; field-sizing: content; min-height: 2.2rem; max-height: 20rem; }
.field input:not([type=checkbox]), .field select { width: 100%; }
.field { margin: .5rem 0; }
fieldset { border: 1px solid var(--line); border-radius: 6px; margin: .5rem 0; min-width: 0; }
legend { font-weight: 600; font-size: .9rem; }
button { cursor: pointer; background: var(--card); }
button.main { background: var(--accent); color: var(--on-accent);
  border-color: var(--accent); font-weight: 600; }
button.link { border: 0; padding: 0; background: none; color: var(--accent);
  text-decoration: underline; text-align: start; overflow-wrap: anywhere; }
button:disabled { opacity: .5; cursor: default; }
:focus-visible { outline: 3px solid var(--accent); outline-offset: 1px; }
.columns { flex: 1; min-height: 0; display: grid;
  grid-template-columns: minmax(13rem, 18rem) minmax(0, 1.2fr) minmax(0, 1fr); }
.columns > * { overflow: auto; padding: .8rem 1rem; }
nav, main { border-right: 1px solid var(--line); }
nav details, #filter { margin: .7rem 0; }
#filter { width: 100%; margin-top: .2rem; }
nav summary { font-weight: 600; }
summary { cursor: pointer; border-radius: 4px; }
ul, ol { list-style: none; margin: 0; padding: 0; }
nav li button { width: 100%; text-align: start; border-color: transparent;
  background: none; overflow-wrap: anywhere; }
nav li button:hover { background: var(--card); }
nav li button[aria-current=true] { background: var(--card); border-color: var(--accent); }
nav li small { display: block; color: var(--faint); overflow: hidden;
  text-overflow: ellipsis; white-space: nowrap; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: .7rem .9rem; margin: 0 0 .8rem; }
.card.bad { border-left: 4px solid var(--bad); }
.card.good { border-left: 4px solid var(--good); }
.question { background: var(--question); border-left: 4px solid var(--warn);
  margin: .6rem 1rem; }
.question > * { max-width: 50rem; }
.card > button { margin-top: .5rem; }
#questions { max-height: 60vh; overflow: auto; flex: none; }
.spread { display: flex; justify-content: space-between; gap: .6rem; align-items: baseline;
  flex-wrap: wrap; }
.name, pre, code, .tree { font-family: ui-monospace, "DejaVu Sans Mono", monospace;
  font-size: .88rem; overflow-wrap: anywhere; unicode-bidi: isolate; }
pre { margin: .3rem 0; white-space: pre-wrap; max-height: 30rem; overflow: auto;
  background: var(--ground); padding: .5rem; border-radius: 6px; }
.words { white-space: pre-wrap; overflow-wrap: anywhere; unicode-bidi: isolate; }
.badge { display: inline-block; border: 1px solid var(--line); border-radius: 1em;
  padding: 0 .6em; font-size: .8rem; color: var(--faint); }
.error { color: var(--bad); white-space: pre-wrap; overflow-wrap: anywhere; }
progress { width: 100%; accent-color: var(--accent); }
img { max-width: 100%; max-height: 24rem; min-width: 2rem; min-height: 2rem;
  border: 1px solid var(--line); image-rendering: auto; display: block; }
audio { width: 100%; }
.tree { padding-left: 1.1rem; }
.tree .key { color: var(--faint); }
.string { color: var(--text); white-space: pre-wrap; }
.number, .boolean, .null { color: var(--number); }
aside { display: flex; flex-direction: column; gap: .5rem; padding-bottom: 0 !important; }
#wire { flex: 1 1 12rem; overflow: auto; min-height: 8rem; }
#wire > li { position: relative; border-left: 3px solid var(--line); padding: .15rem 0 .15rem .6rem;
  margin-bottom: .35rem; }
#wire > li.sent { border-color: var(--accent); }
#wire > li.received { border-color: var(--good); }
#wire > li.error-message { border-color: var(--bad); }
form .row { margin-top: .5rem; }
header .row { margin: 0; }
#wire .note { color: var(--faint); font-size: .85rem; margin: 0; }
#wire.unexplained .note { display: none; }
#logs { flex: 0 1 auto; max-height: 35%; overflow: auto; border-top: 1px solid var(--line);
  padding: .5rem 0; }
#logs li { font-size: .85rem; overflow-wrap: anywhere; white-space: pre-wrap; }
.skip { position: absolute; left: -99rem; }
.skip:focus { left: .5rem; top: .5rem; background: var(--card); padding: .5rem; z-index: 2; }
.unseen { position: absolute; width: 1px; height: 1px; overflow: hidden;
  clip-path: inset(50%); white-space: nowrap; }
@media (max-width: 60rem) {
  body { height: auto; overflow: auto; }
  .columns { display: block; }
  .columns > * { border-right: 0; border-bottom: 1px solid var(--line); }
  nav, #wire { max-height: 60vh; }
}
"""

MARKUP = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>MCP inspector</title>
<link rel="icon" href="data:,">
<style nonce="{nonce}">{style}</style>
</head>
<body>
<a class="skip" href="#main">Skip to what is chosen</a>
<header>
  <form id="connect">
    <h1>MCP inspector</h1>
    <label for="target">Server</label>
    <input id="target" list="names" spellcheck="false" autocomplete="off"
      placeholder="server.py, a command line, or https://example.com/mcp">
    <datalist id="names"></datalist>
    <button class="main">Connect</button>
    <button type="button" id="close">Close</button>
    <details id="options">
      <summary>Options</summary>
      <div>
        <label>Revision
          <select id="version">
            <option>auto</option><option>2024-11-05</option><option>2025-03-26</option>
            <option>2025-06-18</option><option>2025-11-25</option><option>2026-07-28</option>
          </select></label>
        <label>Timeout, in seconds
          <input id="timeout" inputmode="decimal" value="60" size="6"></label>
        <label>Logs, from this level on
          <select id="level">
            <option>debug</option><option selected>info</option><option>notice</option>
            <option>warning</option><option>error</option><option>critical</option>
          </select></label>
        <label>Headers, of a URL <textarea id="headers" rows="1" spellcheck="false"
          placeholder="Name: value"></textarea></label>
        <label>Environment, of a command <textarea id="env" rows="1" spellcheck="false"
          placeholder="KEY=value"></textarea></label>
        <label>Roots, that it may work on <textarea id="roots" rows="1" spellcheck="false"
          placeholder="/home/me/project"></textarea></label>
        <label class="check"><input type="checkbox" id="login"> Log in, in the browser,
          if the URL wants it</label>
      </div>
    </details>
  </form>
  <p id="status" role="status">...</p>
</header>
<section id="questions" aria-label="Questions of the server"></section>
<div class="columns">
  <nav aria-label="What the server offers">
    <label>Filter <input id="filter" type="search" autocomplete="off"></label>
    <div id="lists"></div>
    <button type="button" id="again">Read the lists again</button>
  </nav>
  <main id="main" tabindex="-1">
    <section id="item" aria-label="What is chosen"></section>
    <section id="results" aria-label="Results"></section>
  </main>
  <aside aria-label="Transcript">
    <div class="spread">
      <h2>Transcript</h2>
      <span class="row">
        <label class="check"><input type="checkbox" id="explain" checked> Explain</label>
        <label class="check"><input type="checkbox" id="follow" checked> Follow</label>
        <button type="button" id="empty">Empty</button>
      </span>
    </div>
    <ol id="wire" tabindex="0" aria-label="Messages"></ol>
    <section id="logs" aria-label="Logs" tabindex="0" hidden>
      <h3>Logs and stderr</h3>
      <ol></ol></section>
  </aside>
</div>
<p id="announce" class="unseen" aria-live="polite"></p>
<script nonce="{nonce}">{script}</script>
</body>
</html>
"""

SCRIPT = r"""
"use strict";
const TOKEN = new URLSearchParams(location.search).get("token");
const MAX_SHOWN = 20000;  // characters of a text, until more is asked for
const MAX_ROWS = 200;  // members of a JSON value, or items of a list, the same
const MAX_CARDS = 50;
const MAX_WIRE = 500;
const MAX_DEPTH = 5;  // of forms within forms
const MAX_FIELDS = 500;  // of a form with all those in it; then, JSON will do
const byId = (id) => document.getElementById(id);
const isObject = (value) =>
  value !== null && typeof value === "object" && !Array.isArray(value);
const objectOf = (value) => (isObject(value) ? value : {});
const arrayOf = (value) => (Array.isArray(value) ? value : []);
const own = (value, name) => Object.prototype.hasOwnProperty.call(value, name);

// ---- Texts. What a server says passes through plain() and becomes a text node.

// What would reorder or hide other text, or break a line, is shown as an escape.
const UNSEEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

function plain(value) {
  const text = typeof value === "string" ? value : JSON.stringify(value) ?? "";
  return text.replace(UNSEEN, (c) =>
    "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
}

function line(value, limit = 200) {
  const text = plain(value).replace(/\s+/g, " ");
  return text.length > limit ? text.slice(0, limit) + "\u2026" : text;
}

function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  // A child that is no node becomes a text.
  node.append(...children.flat(9).filter((child) => child != null));
  return node;
}

const button = (text, onclick, attributes) =>
  el("button", {type: "button", onclick, ...attributes}, text);

// A text; of a long one, the beginning, and a button for the rest.
function longText(value, className) {
  const text = plain(value);
  const node = el("pre", {class: className, tabindex: 0}, text.slice(0, MAX_SHOWN));
  if (text.length <= MAX_SHOWN) return node;
  const more = button(`Show all ${text.length.toLocaleString()} characters`, () => {
    node.textContent = text;
    more.remove();
    node.focus();
  });
  return el("div", {}, node, more);
}

function announce(text) {
  byId("announce").textContent = line(text);
}

// ---- The API

async function api(name, body, signal) {
  const response = await fetch("/api/" + name, {
    method: "POST",
    headers: {"Content-Type": "application/json", "X-Token": TOKEN},
    body: JSON.stringify(body || {}),
    signal,
  });
  const text = await response.text();
  if (response.ok) return JSON.parse(text);
  let why = text;
  try { why = JSON.parse(text).error; } catch { /* it is plain */ }
  throw Object.assign(new Error(why), {status: response.status});
}

// For what a button does: an error is shown where the user looks.
async function attempt(place, work) {
  place.textContent = "";
  try {
    return await work();
  } catch (error) {
    place.textContent = line(error.message, 2000);
    announce(error.message);
  }
}

// ---- JSON, folded

function tree(value, key, depth = 0) {
  const label = key === undefined ? [] : [el("span", {class: "key"}, line(key) + ": ")];
  if (value === null || typeof value !== "object") {
    const kind = value === null ? "null" : typeof value;
    const text = typeof value === "string" ? JSON.stringify(value) : String(value);
    if (text.length > 2000) {
      return el("div", {class: "tree"}, label, longText(value, "string"));
    }
    return el("div", {class: "tree"}, label, el("span", {class: kind}, plain(text)));
  }
  const isArray = Array.isArray(value);
  const keys = Object.keys(value);
  const size = isArray ? `[${keys.length}]` : `{${keys.length}}`;
  const node = el("details", {class: "tree"}, el("summary", {}, label, size));
  const inside = el("div");
  node.append(inside);
  let shown = 0;
  function fill() {
    const end = Math.min(shown + MAX_ROWS, keys.length);
    for (; shown < end; shown += 1) {
      inside.append(tree(value[keys[shown]], keys[shown], depth + 1));
    }
    if (shown < keys.length) {
      const more = button(`${keys.length - shown} more`, () => { more.remove(); fill(); });
      inside.append(more);
    }
  }
  node.addEventListener("toggle", () => { if (node.open && !shown) fill(); });
  if (depth < 2 && keys.length <= 20) { node.open = true; fill(); }
  return node;
}

function folded(title, value) {
  const node = el("details", {}, el("summary", {}, title));
  node.addEventListener("toggle", () => {
    if (node.open && node.childElementCount === 1) node.append(tree(value));
  });
  return node;
}

// ---- Contents

const PICTURE = /^image\/(png|jpeg|gif|webp|avif|bmp)$/;
const SOUND = /^audio\/[a-z0-9.+-]{1,40}$/;
const BASE64 = /^[A-Za-z0-9+\/]*={0,2}$/;

function media(kind, data) {
  if (typeof data !== "string" || !BASE64.test(data)) return null;
  if (PICTURE.test(kind)) return el("img", {src: `data:${kind};base64,${data}`, alt: kind});
  if (SOUND.test(kind)) {
    return el("audio", {controls: true, src: `data:${kind};base64,${data}`});
  }
  return null;
}

function resource(contents) {
  const kind = String(contents.mimeType ?? "");
  const head = el("div", {class: "spread"},
    el("span", {class: "name"}, line(contents.uri, 500)),
    el("span", {class: "badge"}, line(kind || "no type")));
  if (typeof contents.text === "string") return [head, text(contents.text, kind)];
  const shown = media(kind, contents.blob);
  if (shown) return [head, shown];
  return [head, el("p", {class: "hint"}, "Bytes, in base64:"), longText(contents.blob)];
}

// JSON as a tree, all else as it is: no markup, not even of SVG.
function text(value, kind = "") {
  if (/[\/+]json$/.test(kind) || /^\s*[{[]/.test(value)) {
    try {
      const parsed = JSON.parse(value);
      if (parsed && typeof parsed === "object") {
        return el("div", {}, tree(parsed), folded("As text", value));
      }
    } catch { /* it is no JSON */ }
  }
  return longText(value);
}

function block(content) {
  const kind = content.type;
  if (kind === "text" && typeof content.text === "string") return text(content.text);
  if (kind === "image" || kind === "audio") {
    const shown = media(String(content.mimeType ?? ""), content.data);
    return shown || [el("p", {class: "hint"}, `${line(kind)}, not shown: `
      + line(content.mimeType)), folded("As it came", content)];
  }
  if (kind === "resource") return resource(objectOf(content.resource));
  if (kind === "resource_link") {
    return el("p", {}, "Resource: ",
      button(line(content.title ?? content.name ?? content.uri), () =>
        readResource(content.uri), {class: "link"}),
      el("span", {class: "hint"}, " " + line(content.uri, 500) + " ",
        plain(content.description ?? "")));
  }
  return tree(content);
}

function cutNote(result) {
  return [el("p", {class: "hint"}, "Too long to be shown as a whole: "
    + `${result.cut.toLocaleString()} characters of JSON. Its beginning:`),
    longText(result.head)];
}

// Whether a text says in JSON what the structured content is.
function isSame(content, structured) {
  try {
    return structured !== undefined && JSON.stringify(JSON.parse(content)) === structured;
  } catch {
    return false;
  }
}

// What a job has brought: of a tool, a resource or a prompt.
function outcome(result) {
  if (own(result, "cut")) return cutNote(result);
  const nodes = [];
  if (result.isError === true) {
    nodes.push(el("p", {class: "error"}, "The tool says that it has failed."));
  }
  const structured = JSON.stringify(result.structuredContent);
  for (const content of arrayOf(result.content).map(objectOf)) {
    const shown = isSame(content.text, structured)
      ? folded("Its text, for the model", content.text) : block(content);
    nodes.push(el("div", {class: "block"}, shown));
  }
  for (const contents of arrayOf(result.contents)) {
    nodes.push(el("div", {class: "block"}, resource(objectOf(contents))));
  }
  for (const message of arrayOf(result.messages)) {
    const contents = Array.isArray(message.content) ? message.content : [message.content];
    nodes.push(el("div", {class: "block"}, el("p", {class: "label"}, line(message.role)),
      contents.map((content) => block(objectOf(content)))));
  }
  if (own(result, "structuredContent")) {
    nodes.unshift(el("p", {class: "hint"}, "Structured content:"),
      tree(result.structuredContent));
  }
  nodes.push(folded("The result as it came", result));
  return nodes;
}

// ---- Forms from schemas. A field has a node, and read(): undefined is "left out".

let fields = 0;
let lastOfForm = 0;

function resolve(schema, root) {
  let found = schema;
  for (let hops = 0; isObject(found) && typeof found.$ref === "string"; hops += 1) {
    if (hops > 20 || !found.$ref.startsWith("#")) return {};
    let target = root;
    for (const part of found.$ref.slice(1).split("/").slice(1)) {
      let key = part;
      try { key = decodeURIComponent(part); } catch { /* as it is */ }
      key = key.replace(/~1/g, "/").replace(/~0/g, "~");
      target = objectOf(target);
      target = own(target, key) ? target[key] : undefined;
    }
    const {$ref, ...beside} = found;
    found = {...objectOf(target), ...beside};
  }
  return objectOf(found);
}

// The choices that a schema has: [value, label] each; null if it is none.
function choicesOf(schema) {
  if (own(schema, "const")) return [[schema.const, plain(schema.const)]];
  if (Array.isArray(schema.enum)) {
    const names = arrayOf(schema.enumNames);
    return schema.enum.map((value, n) => [value, plain(names[n] ?? value)]);
  }
  const options = arrayOf(schema.oneOf ?? schema.anyOf);
  const all = options.length && options.every((each) => isObject(each) && own(each, "const"));
  return all ? options.map((each) => [each.const, plain(each.title ?? each.const)]) : null;
}

function select(choices, schema, required) {
  const node = el("select");
  const isGiven = own(schema, "default");
  if (!required || !isGiven) node.append(el("option", {value: ""}, "(left out)"));
  choices.slice(0, 1000).forEach(([value, label], n) => {
    const chosen = isGiven && JSON.stringify(value) === JSON.stringify(schema.default);
    node.append(el("option", {value: n, selected: chosen}, line(label)));
  });
  return {control: node,
    read: () => (node.value === "" ? undefined : choices[node.value][0])};
}

function numberField(schema, type) {
  const node = el("input", {inputmode: type === "integer" ? "numeric" : "decimal",
    autocomplete: "off"});
  node.value = own(schema, "default") ? plain(schema.default) : "";
  return {control: node, read: () => {
    const given = node.value.trim();
    if (given === "") return undefined;
    if (!Number.isFinite(Number(given))) throw new Error("expected a number");
    return Number(given);
  }};
}

function textField(schema, required) {
  const node = el("textarea", {rows: 1, class: "text", spellcheck: "false"});
  const isGiven = typeof schema.default === "string";
  node.value = isGiven ? schema.default : "";
  return {control: node, read: () =>
    (node.value === "" && !required && !isGiven ? undefined : node.value)};
}

function jsonField(schema) {
  const node = el("textarea", {rows: 2, spellcheck: "false", placeholder: "JSON"});
  if (own(schema, "default")) node.value = JSON.stringify(schema.default, null, 1);
  return {control: node, read: () =>
    (node.value.trim() === "" ? undefined : JSON.parse(node.value))};
}

// A group of boxes, for a list of choices.
function checkboxes(choices, schema) {
  const chosen = arrayOf(schema.default).map((value) => JSON.stringify(value));
  const boxes = choices.slice(0, 200).map(([value, label]) => {
    const box = el("input", {type: "checkbox",
      checked: chosen.includes(JSON.stringify(value))});
    return {box, value, label};
  });
  const row = el("div", {class: "row"}, boxes.map(({box, label}) =>
    el("label", {class: "check"}, box, line(label))));
  return {group: row, read: () => {
    const values = boxes.filter(({box}) => box.checked).map(({value}) => value);
    return values.length || chosen.length ? values : undefined;
  }};
}

function bare(schema, required, root, depth) {
  const choices = choicesOf(schema);
  if (choices) return select(choices, schema, required);
  const types = arrayOf(schema.type).filter((type) => type !== "null");
  const type = types.length === 1 ? types[0] : schema.type;
  if (type === "boolean") return select([[true, "true"], [false, "false"]], schema, required);
  if (type === "integer" || type === "number") return numberField(schema, type);
  if (type === "string") return textField(schema, required);
  if (type === "array") {
    const items = choicesOf(resolve(schema.items, root));
    if (items) return checkboxes(items, schema);
  }
  if (type === "object" && isObject(schema.properties) && depth < MAX_DEPTH
      && fields < lastOfForm && !own(schema, "default")) {
    const members = membersOf(schema, root, depth + 1);
    return {group: el("div", {}, members.nodes), read: () => {
      const value = members.read();
      return required || Object.keys(value).length ? value : undefined;
    }};
  }
  return jsonField(schema);
}

// What a person should know of a field besides its name.
function hintOf(schema) {
  const words = [];
  const kind = Array.isArray(schema.type) ? schema.type.join(" or ") : schema.type;
  if (kind) words.push(line(kind));
  for (const name of ["format", "pattern", "minimum", "maximum", "minLength",
    "maxLength", "minItems", "maxItems"]) {
    if (own(schema, name)) words.push(`${name}: ${line(schema[name])}`);
  }
  return words.join(", ");
}

function field(given, name, required, root, depth) {
  let schema = resolve(given, root);
  // Something or null: as something that may be left out.
  const options = arrayOf(schema.anyOf ?? schema.oneOf).map((each) => resolve(each, root));
  const others = options.filter((each) => each.type !== "null");
  if (others.length === 1 && options.length === 2) {
    const {anyOf, oneOf, ...beside} = schema;
    schema = {...others[0], ...beside};
    if (schema.default === null) delete schema.default;
  }
  const made = bare(schema, required, root, depth);
  const id = `field${fields += 1}`;
  const problem = el("div", {class: "error", id: id + "-problem"});
  const about = plain(schema.description ?? schema.title ?? "");
  const hint = el("div", {class: "hint", id: id + "-hint"},
    [hintOf(schema), about].filter(Boolean).join(" \u00b7 ").slice(0, 2000));
  const title = el("span", {class: "name"}, line(name));
  const mark = required ? " (required)" : "";
  let node;
  if (made.control) {
    made.control.id = id;
    made.control.setAttribute("aria-describedby", `${id}-hint ${id}-problem`);
    if (required) made.control.setAttribute("aria-required", "true");
    node = el("div", {class: "field"}, el("label", {for: id}, title, mark),
      made.control, hint, problem);
  } else {
    node = el("fieldset", {}, el("legend", {}, title, mark), hint, made.group, problem);
  }
  return {node, control: made.control, read: () => {
    problem.textContent = "";
    try {
      return made.read();
    } catch (error) {
      if (error.told) throw error;
      problem.textContent = line(error.message);
      (made.control ?? node).focus();
      throw Object.assign(new Error(`${line(name)}: ${line(error.message)}`), {told: true});
    }
  }};
}

function membersOf(schema, root, depth = 0) {
  const required = new Set(arrayOf(schema.required));
  const made = Object.entries(objectOf(schema.properties)).slice(0, MAX_ROWS)
    .map(([name, member]) => [name, field(member, name, required.has(name), root, depth)]);
  return {
    nodes: made.map(([, each]) => each.node),
    controls: new Map(made.map(([name, each]) => [name, each.control])),
    read: () => {
      // Without a prototype: a member may be named __proto__.
      const value = Object.create(null);
      for (const [name, each] of made) {
        const given = each.read();
        if (given !== undefined) value[name] = given;
      }
      return value;
    },
  };
}

// A form: fields, and the same as JSON, for what no field can say.
function formOf(schema, submitText, onsubmit, ...others) {
  const root = objectOf(schema);
  lastOfForm = fields + MAX_FIELDS;
  const members = membersOf(resolve(root, root), root);
  const json = el("textarea", {rows: 4, "aria-label": "As JSON", spellcheck: "false"});
  const asJson = el("details", {}, el("summary", {}, "As JSON"), json,
    el("p", {class: "hint"}, "While this is open, it is sent, and not the fields."));
  const problem = el("p", {class: "error", role: "alert"});
  asJson.addEventListener("toggle", () => {
    if (!asJson.open) return;
    try { json.value = JSON.stringify(members.read(), null, 1); } catch { json.value = "{}"; }
  });
  const form = el("form", {novalidate: true, onsubmit: (event) => {
    event.preventDefault();
    attempt(problem, () =>
      onsubmit(asJson.open ? JSON.parse(json.value) : members.read()));
  }}, members.nodes, asJson, el("div", {class: "row"},
    el("button", {class: "main"}, submitText), others), problem);
  form.addEventListener("keydown", (event) => {
    const isText = event.target.classList?.contains("text");
    const wanted = isText ? !event.shiftKey : event.ctrlKey;
    if (event.key === "Enter" && !event.isComposing && wanted
        && event.target.tagName === "TEXTAREA") {
      event.preventDefault();
      form.requestSubmit();
    }
  });
  return {form, members};
}

// ---- What is chosen

const lists = {tools: {}, resources: {}, templates: {}, prompts: {}};
let connection = {state: "none"};
let chosen = null;

function start(kind, title, params) {
  return api("start", {kind, title: line(title), params});
}

function readResource(uri) {
  start("resource", uri, {uri}).catch((error) => announce(error.message));
}

function present(...nodes) {
  const item = byId("item");
  item.replaceChildren(el("div", {class: "card"}, nodes));
  item.querySelector("h2").focus();
  byId("main").scrollTop = 0;
}

function heading(item, name) {
  const nodes = [el("h2", {tabindex: -1, class: "name"}, line(name))];
  if (item.title) nodes.push(el("p", {class: "label"}, line(item.title)));
  if (item.description) nodes.push(el("p", {class: "words"}, plain(item.description)));
  return nodes;
}

function hintsOf(tool) {
  const hints = Object.entries(objectOf(tool.annotations)).slice(0, 20);
  return el("p", {class: "row"}, hints.map(([name, value]) =>
    el("span", {class: "badge"}, `${line(name, 60)}: ${line(value, 60)}`)));
}

function presentTool(tool) {
  const {form} = formOf(tool.inputSchema, "Call", (given) =>
    start("tool", tool.name, {name: tool.name, arguments: given}));
  const hint = form.querySelector(".text")
    && el("p", {class: "hint"}, "Enter calls it; Shift+Enter makes a new line.");
  present(heading(tool, tool.name), hintsOf(tool), form, hint,
    folded("The tool as it is listed", tool));
}

function presentPrompt(prompt) {
  const properties = Object.create(null);
  const required = [];
  for (const each of arrayOf(prompt.arguments).map(objectOf)) {
    properties[String(each.name)] = {type: "string", description: each.description};
    if (each.required === true) required.push(String(each.name));
  }
  const {form, members} = formOf({properties, required}, "Get", (given) =>
    start("prompt", prompt.name, {name: prompt.name, arguments: given}));
  suggest(members, {type: "ref/prompt", name: prompt.name});
  present(heading(prompt, prompt.name), form, folded("The prompt as it is listed", prompt));
}

function presentResource(item) {
  const problem = el("p", {class: "error", role: "alert"});
  const act = (kind, text) => button(text, () =>
    attempt(problem, () => start(kind, item.uri, {uri: item.uri})),
    {class: kind === "resource" ? "main" : ""});
  const others = objectOf(objectOf(connection.capabilities).resources).subscribe
    ? [act("subscribe", "Hear of changes"), act("unsubscribe", "No more")] : [];
  present(heading(item, item.name ?? item.uri), el("p", {class: "name"},
    line(item.uri, 2000)), el("div", {class: "row"}, act("resource", "Read"), others),
    problem, folded("The resource as it is listed", item));
}

const VARIABLES = /\{([+#.\/;?&]?)([^{}]*)\}/g;

function presentTemplate(item) {
  const template = String(item.uriTemplate);
  const properties = Object.create(null);
  for (const [, , names] of template.matchAll(VARIABLES)) {
    for (const name of names.split(",")) {
      properties[name.replace(/(\*|:\d+)$/, "")] = {type: "string"};
    }
  }
  const {form, members} = formOf({properties}, "Read", (given) => {
    const uri = expand(template, given);
    return start("resource", uri, {uri});
  });
  suggest(members, {type: "ref/resource", uri: template});
  present(heading(item, item.name ?? template), el("p", {class: "name"},
    line(template, 2000)), form, folded("The template as it is listed", item));
}

// RFC 6570, for values that are texts.
function expand(template, given) {
  return template.replace(VARIABLES, (_, operator, names) => {
    const isNamed = "?&;".includes(operator) && operator;
    const parts = names.split(",").map((each) => each.replace(/(\*|:\d+)$/, ""))
      .filter((name) => own(given, name)).map((name) => {
        const value = "+#".includes(operator) && operator
          ? encodeURI(given[name]) : encodeURIComponent(given[name]);
        return isNamed ? `${name}=${value}` : value;
      });
    if (!parts.length) return "";
    const first = operator === "+" ? "" : operator;
    const between = operator === "?" ? "&" : "+#".includes(operator) ? "," : operator;
    return first + parts.join(between || ",");
  });
}

// Suggestions of the server, while a field is filled in.
function suggest(members, ref) {
  if (!objectOf(connection.capabilities).completions) return;
  for (const [name, control] of members.controls) {
    const options = el("datalist", {id: `${control.id}-options`});
    const input = el("input", {id: control.id, list: options.id, autocomplete: "off",
      "aria-describedby": control.getAttribute("aria-describedby")});
    Object.defineProperty(control, "value", {get: () => input.value});
    control.replaceWith(input, options);
    let timer = 0;
    const ask = () => {
      clearTimeout(timer);
      timer = setTimeout(async () => {
        const context = {};
        for (const [other, each] of members.controls) {
          if (other !== name && each.value) context[other] = each.value;
        }
        const asked = {ref, argument: {name, value: input.value}, context};
        const told = await api("complete", asked).catch(() => ({values: []}));
        options.replaceChildren(...told.values.map((value) => el("option", {value: plain(value)})));
      }, 150);
    };
    input.addEventListener("input", ask);
    input.addEventListener("focus", ask);
  }
}

function presentServer() {
  const {server, version, instructions, capabilities, target} = connection;
  const era = version < "2026" ? "legacy: a session" : "modern: no session";
  const info = objectOf(server);
  present(el("h2", {tabindex: -1, class: "name"}, line(info.name ?? target)),
    el("p", {}, `${line(info.title ?? "")} ${line(info.version ?? "")}`),
    el("p", {}, `Revision ${line(version)}, ${era}`),
    instructions ? [el("p", {class: "label"}, "Instructions"),
      el("p", {class: "words"}, plain(instructions))] : null,
    el("p", {class: "label"}, "Capabilities"), tree(objectOf(capabilities)),
    folded("What it says of itself", info));
}

const KINDS = {
  tools: {title: "Tools", present: presentTool, name: (item) => item.name},
  resources: {title: "Resources", present: presentResource,
    name: (item) => item.name ?? item.uri, more: (item) => item.uri},
  templates: {title: "Templates", present: presentTemplate,
    name: (item) => item.name ?? item.uriTemplate, more: (item) => item.uriTemplate},
  prompts: {title: "Prompts", present: presentPrompt, name: (item) => item.name},
};

// ---- The lists at the left

function choose(key, show) {
  chosen = key;
  for (const each of byId("lists").querySelectorAll("li button")) {
    each.setAttribute("aria-current", each.dataset.key === key);
  }
  show();
}

function drawList(kind) {
  const {title, present: show, name, more} = KINDS[kind];
  const {items, error} = lists[kind];
  const wanted = byId("filter").value.toLowerCase();
  const listed = arrayOf(items).map(objectOf).filter((item) =>
    !wanted || JSON.stringify([name(item), item.description, more?.(item)])
      .toLowerCase().includes(wanted));
  const old = byId("list-" + kind);
  const node = el("details", {id: "list-" + kind, open: old ? old.open : true},
    el("summary", {}, `${title} (${listed.length})`));
  if (error) node.append(el("p", {class: "error"}, line(error, 2000)));
  if (isObject(items)) node.append(el("div", {}, cutNote(items)));
  node.append(el("ul", {}, listed.slice(0, MAX_ROWS).map((item) => {
    const key = `${kind} ${plain(name(item))} ${plain(more?.(item))}`;
    const about = more?.(item) ?? item.title ?? item.description ?? "";
    return el("li", {}, button(el("span", {class: "name"}, line(name(item))),
      () => choose(key, () => show(item)),
      {"data-key": key, "aria-current": key === chosen},
    ));
  })));
  [...node.querySelectorAll("li button")].forEach((each, n) => {
    const about = more?.(listed[n]) ?? listed[n].title ?? listed[n].description;
    if (about) each.append(el("small", {}, line(about, 100)));
  });
  if (listed.length > MAX_ROWS) {
    node.append(el("p", {class: "hint"}, `${listed.length - MAX_ROWS} more: use the filter`));
  }
  // Who was in it stays there.
  const focused = document.activeElement?.dataset?.key;
  if (old) old.replaceWith(node); else byId("lists").append(node);
  if (focused?.startsWith(kind + " ")) {
    [...node.querySelectorAll("li button")]
      .find((each) => each.dataset.key === focused)?.focus();
  }
}

function drawLists() {
  for (const kind of Object.keys(KINDS)) {
    const hasAny = arrayOf(lists[kind].items).length || lists[kind].error
      || isObject(lists[kind].items);
    if (hasAny || kind === "tools") drawList(kind);
    else byId("list-" + kind)?.remove();
  }
}

// ---- What comes from the board

const STATES = {none: "Not connected", connecting: "Connecting to", open: "Connected to",
  over: "Not connected any more to"};

// Another conversation has begun, or all of this one comes again.
function clear() {
  for (const id of ["lists", "item", "results", "wire", "questions"]) {
    byId(id).replaceChildren();
  }
  byId("logs").hidden = true;
  byId("logs").querySelector("ol").replaceChildren();
  for (const kind of Object.keys(lists)) lists[kind] = {};
  explained.clear();
  jobs.clear();
  chosen = null;
  connection = {state: "none"};
}

function showConnection(_, news) {
  const before = connection;
  connection = news;
  const status = byId("status");
  const info = objectOf(news.server);
  let words = STATES[news.state] ?? "";
  if (news.state === "open") {
    words += ` ${line(info.name ?? news.target)} ${line(info.version ?? "")}, `
      + `revision ${line(news.version)} (${news.version < "2026" ? "legacy" : "modern"})`;
  } else if (news.target) {
    words += ` ${line(news.target, 500)}`;
  }
  status.replaceChildren(words, news.why ? el("div", {class: "error"}, plain(news.why)) : "");
  status.className = news.state;
  byId("again").disabled = news.state !== "open";
  byId("close").disabled = !["connecting", "open"].includes(news.state);
  const target = byId("target");
  if (news.target && (document.activeElement !== target || !target.value)) {
    target.value = news.target;
  }
  if (news.state === "open" && before.state !== "open") {
    byId("lists").prepend(el("ul", {}, el("li", {},
      button("The server", () => choose("server", presentServer), {"data-key": "server"}))));
    presentServerQuietly();
  }
}

// Where nothing is chosen yet, without taking the focus.
function presentServerQuietly() {
  const focused = document.activeElement;
  if (!chosen) choose("server", presentServer);
  focused?.focus();
}

function showList(kind, news) {
  lists[kind] = news;
  drawLists();
}

const jobs = new Map();

function showJob(number, job) {
  const running = job.state === "running";
  const seconds = running ? "running" : `${(1000 * job.seconds).toFixed(0)} ms`;
  const failed = job.state === "failed" || objectOf(job.result).isError === true;
  const node = el("article", {class: `card ${running ? "" : failed ? "bad" : "good"}`},
    el("div", {class: "spread"}, el("h3", {class: "name"}, `${line(job.kind)} ${line(job.title)}`),
      el("span", {class: "badge"}, running ? seconds
        : `${failed ? "failed" : "done"}, ${seconds}`)));
  const given = objectOf(job.params).arguments;
  if (given && Object.keys(given).length) {
    node.append(el("p", {class: "hint name"}, line(given, 500)));
  }
  const place = el("div");
  node.append(place);
  if (running && job.kind === "tool") {
    node.append(button("Cancel", () =>
      api("cancel", {job: number}).catch((error) => announce(error.message))));
  }
  if (job.error) node.append(el("p", {class: "error"}, plain(job.error)));
  if (job.data != null) node.append(tree(job.data, "data"));
  if (job.complaint) {
    node.append(el("p", {class: "error"}, "The result is wrong: " + plain(job.complaint)));
  }
  if (job.result) node.append(...outcome(job.result).flat());
  const old = jobs.get(number);
  const hadFocus = old?.node.contains(document.activeElement);
  if (old) old.node.replaceWith(node); else byId("results").prepend(node);
  jobs.set(number, {node, place, running});
  if (hadFocus) { node.tabIndex = -1; node.focus(); }
  while (byId("results").childElementCount > MAX_CARDS) byId("results").lastChild.remove();
  if (old?.running && !running) announce(`${line(job.title)}: ${failed ? "failed" : "done"}`);
}

function showProgress(number, {done, total, message}) {
  const job = jobs.get(number);
  if (!job) return;
  const words = `${done}${total == null ? "" : ` of ${total}`} ${line(message ?? "")}`;
  const max = Number(total);
  const bar = max > 0 ? {max, value: Math.min(Math.max(Number(done), 0), max)} : {};
  job.place.replaceChildren(el("progress", {...bar, "aria-label": words}),
    el("p", {class: "hint"}, words));
}

function showQuestion(number, news) {
  const id = `question${number}`;
  if (!news) {
    const old = byId(id);
    const hadFocus = old?.contains(document.activeElement);
    old?.remove();
    const next = byId("questions").firstElementChild;
    if (hadFocus && next) enter(next);
    else if (hadFocus) byId("main").focus();
    return;
  }
  if (byId(id)) return;
  const params = objectOf(news.params);
  const answer = (answered) => api("answer", {question: number, answer: answered});
  const card = el("article", {class: "card question", id, role: "group",
    "aria-label": "The server asks"}, el("h2", {tabindex: -1}, "The server asks"),
    el("p", {class: "words"}, plain(params.message ?? params.systemPrompt ?? "")));
  const problem = el("p", {class: "error", role: "alert"});
  const refuse = [["decline", "Decline"], ["cancel", "Cancel"]].map(([action, text]) =>
    button(text, () => attempt(problem, () => answer({action}))));
  if (own(params, "cut")) {
    card.append(...cutNote(params), ...refuse, problem);
  } else if (news.kind === "sampling") {
    card.append(folded("What the model is asked", params),
      ...arrayOf(params.messages).map((message) => el("div", {},
        el("p", {class: "label"}, line(objectOf(message).role)),
        [].concat(objectOf(message).content).map((each) => block(objectOf(each))))));
    const schema = {properties: {text: {type: "string", description: "What the model says"}},
      required: ["text"]};
    card.append(formOf(schema, "Answer as the model", (given) =>
      answer({action: "accept", text: given.text}), refuse[0]).form, problem);
  } else if (own(params, "url")) {
    card.append(...visit(String(params.url)), el("div", {class: "row"},
      button("Done there", () => attempt(problem, () => answer({action: "accept"})),
        {class: "main"}), refuse), problem);
  } else {
    card.append(formOf(params.requestedSchema, "Send", (given) =>
      answer({action: "accept", content: given}), refuse).form, problem);
  }
  byId("questions").append(card);
  announce("The server asks: " + line(params.message ?? "for the model"));
  // Who is typing elsewhere is not interrupted.
  const busy = document.activeElement;
  if (!busy?.matches("input, textarea, select") || byId("item").contains(busy)) {
    enter(card);
  }
}

// The focus goes to where a question is answered.
function enter(card) {
  (card.querySelector("form :is(textarea, input, select)")
    ?? card.querySelector("button")).focus();
}

function visit(url) {
  let host = null;
  try {
    const parsed = new URL(url);
    if (["http:", "https:"].includes(parsed.protocol)) host = parsed.host;
  } catch { /* it is none */ }
  const shown = el("p", {class: "name"}, line(url, 5000));
  if (host === null) return [shown, el("p", {class: "error"}, "This is no web address.")];
  const link = el("a", {href: url, target: "_blank", rel: "noopener noreferrer"},
    `Open ${line(host)} in another tab`);
  return [shown, el("p", {}, link)];
}

const explained = new Set();
const ARROWS = {"-->": ["\u2192", "to the server"], "<--": ["\u2190", "from the server"]};

function showWire(number, news) {
  const [arrow, words] = ARROWS[news.direction];
  const node = el("li", {class: `${news.direction === "-->" ? "sent" : "received"}
    ${news.kind === "error" ? "error-message" : ""}`});
  const time = new Date(1000 * news.at).toLocaleTimeString([], {hour12: false});
  const summary = el("summary", {},
    el("span", {"aria-hidden": "true"}, `${arrow} `), el("span", {class: "unseen"}, words),
    el("span", {class: "name"}, line(news.title || "unknown")),
    el("span", {class: "hint"}, ["request", "http"].includes(news.kind) ? " "
      : ` ${line(news.kind)} `, news.id == null ? "" : `#${line(news.id, 40)}`));
  const details = el("details", {}, summary);
  details.addEventListener("toggle", () => {
    if (!details.open || details.childElementCount > 1) return;
    const isCut = news.size > news.text.length && news.text.length >= 65536;
    details.append(el("p", {class: "hint"}, time));
    if (!news.text) return;
    let inside = null;
    try { inside = tree(JSON.parse(news.text)); } catch { /* cut, or no JSON */ }
    if (isCut) details.append(el("p", {class: "hint"}, "The beginning alone:"));
    if (inside) details.append(inside);
    details.append(longText(news.text));
  });
  node.append(details);
  for (const [text, url] of news.notes) {
    if (explained.has(text)) continue;
    explained.add(text);
    const page = url.split("/specification/").pop();
    node.append(el("p", {class: "note"}, `${text} [${page}]`));
  }
  byId("wire").append(node);
  if (byId("wire").childElementCount > MAX_WIRE) byId("wire").firstChild.remove();
}

function showLog(_, news) {
  byId("logs").hidden = false;
  const list = byId("logs").querySelector("ol");
  list.append(el("li", {}, el("span", {class: "badge"}, line(news.level)), " ",
    news.logger ? line(news.logger) + ": " : "", plain(news.text)));
  if (list.childElementCount > MAX_WIRE) list.firstChild.remove();
}

const SHOW = {connection: showConnection, list: showList, job: showJob,
  progress: showProgress, question: showQuestion, wire: showWire, log: showLog};

function show(changes) {
  for (const [kind, number, value] of changes) {
    try {
      SHOW[kind](number, value);
    } catch (error) {
      // One thing that cannot be shown hides no other.
      console.error(error);
      byId("results").prepend(el("p", {class: "error"}, `${kind} ${number}: ${error}`));
    }
  }
  if (!byId("follow").checked) return;
  for (const each of [byId("wire"), byId("logs")]) each.scrollTop = each.scrollHeight;
}

// ---- Polling. A tab that nobody sees asks for nothing: a browser has few connections.

async function poll() {
  let after = 0;
  let epoch = -1;
  for (;;) {
    const abort = new AbortController();
    const hide = () => { if (document.hidden) abort.abort(); };
    document.addEventListener("visibilitychange", hide);
    try {
      while (document.hidden) {
        await new Promise((done) =>
          document.addEventListener("visibilitychange", done, {once: true}));
      }
      const news = await api("poll", {after}, abort.signal);
      after = news.version;
      if (news.epoch !== epoch) clear();
      epoch = news.epoch;
      show(news.changes);
    } catch (error) {
      if (error.name !== "AbortError") {
        byId("status").className = "over";
        byId("status").textContent = "The inspector does not answer: " + error.message;
        if (error.status === 403) return;
        // It may be back: all is shown anew then.
        after = 0;
        epoch = -1;
        await new Promise((done) => setTimeout(done, 1000));
      }
    } finally {
      document.removeEventListener("visibilitychange", hide);
    }
  }
}

const OPTIONS = ["target", "version", "timeout", "headers", "env", "roots"];
byId("connect").addEventListener("submit", (event) => {
  event.preventDefault();
  const asked = Object.fromEntries(OPTIONS.map((id) => [id, byId(id).value]));
  attempt(byId("status"), () => api("connect", {...asked, login: byId("login").checked}));
});
byId("close").addEventListener("click", () => attempt(byId("status"), () => api("close")));
byId("level").addEventListener("change", () =>
  api("level", {level: byId("level").value}).catch((error) => announce(error.message)));
byId("filter").addEventListener("input", drawLists);
byId("explain").addEventListener("change", () =>
  byId("wire").classList.toggle("unexplained", !byId("explain").checked));
byId("again").addEventListener("click", () =>
  Promise.all(Object.keys(KINDS).map((kind) => api("refresh", {kind})))
    .catch((error) => announce(error.message)));
byId("empty").addEventListener("click", () => byId("wire").replaceChildren());
api("names").then(({names}) => {
  byId("names").replaceChildren(...names.map((value) => el("option", {value})));
}).catch(() => {});
byId("target").focus();
poll();
"""

PAGE = MARKUP.replace("{style}", STYLE).replace("{script}", SCRIPT)


if __name__ == "__main__":
    main()
