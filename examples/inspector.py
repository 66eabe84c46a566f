"""A local web page that shows what a server offers, with a form for each tool, and all
messages beside it.

Teaches: what a client shows its user, and what it asks them, using nothing but mcp_lite's
public API; and how to protect a local page from other sites and from a server's own
content. The Inspector holds the conversation, the Handler checks the page's requests, and
the page itself (STYLE, MARKUP, SCRIPT) comes last. The page of a tool (MCP Apps, see
apps.py) is shown in a frame with another origin, and may call the tools of its server.

Run: python3 examples/inspector.py TARGET [--protocol REVISION] [--header K:V] [--open]
     [--http PORT]
prints a URL that works on this machine alone. TARGET is a URL, a script, or a command, in
quotes or behind `--`:
    python3 examples/inspector.py examples/quickstart_server.py --open
    python3 examples/inspector.py -- npx -y @modelcontextprotocol/server-everything

The page lists what the server offers, and has a search. Each item has a form, in which
lists and objects have fields of their own; completions appear as you type. A large result
is shown in part, and can be saved as a whole. The messages of both sides can be filtered,
copied and cleared. Settings has the roots that the server may ask for, the level of its
log, and the subscriptions.
"""

import argparse
import hmac
import http.server
import itertools
import json
import os
import queue
import re
import secrets
import sys
import threading
import time
import webbrowser
from contextlib import suppress
from functools import partial
from urllib.parse import parse_qs, urlsplit

# mcp_lite.py is in this folder, or one up.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.dirname(HERE))

from mcp_lite import Client, McpError, printable, validate  # noqa: E402

MAX_SHOWN = (
    2000  # messages, logs and calls that the page can show; the oldest are dropped
)
MAX_WIRE = 20_000  # characters of a message on the wire
MAX_RESULT = 4 << 20  # characters of a result that the page gets at once
MAX_LARGE = 256 << 20  # characters of larger results, which the page gets in parts
PART = 1 << 20  # characters of a part
LEVELS = "debug info notice warning error critical alert emergency".split()
MAX_BODY = 4 << 20  # bytes of a page's request
POLL_SECONDS = 20.0  # for which a page waits for changes before it asks again
# MCP Apps: the requests that a tool's page may make, and the form of origins.
APPS = {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}
APP_METHODS = ("tools/call", "resources/read")
APP_ORIGIN = re.compile(r"(https?|wss?)://[A-Za-z0-9*._-]+(:[0-9*]+)?")
LISTS = {
    "tools": Client.list_tools,
    "resources": Client.list_resources,
    "templates": Client.list_resource_templates,
    "prompts": Client.list_prompts,
}


def explain_error(error):
    """Return an exception as text."""
    return f"{type(error).__name__}: {error}"


class Inspector:
    """Holds a conversation with one server, and stores what the pages show of it.

    A page may call the methods `api_...`. Each receives the request's JSON and returns
    the answer. Whatever takes time runs on a thread of its own, and shows its outcome.
    """

    def __init__(self, target, **options):
        self.changed = threading.Condition()
        # (kind, key) -> (version, value), the latest last. Guarded by `changed`, like
        # the version, and the version at which this conversation began.
        self.shown = {}
        self.version = 0
        self.since = 0
        self.numbers = itertools.count(1)
        # Work in progress: number -> Call, or None if it is not a tool's call.
        self.jobs = {}
        # Open questions: number -> (parameters, queue for the answer).
        self.questions = {}
        # Large results as JSON: number -> text, the latest last; guarded by `changed`.
        self.large = {}
        # The user's choices: URIs of folders, a level, URIs of resources.
        self.roots = []
        self.level = "info"
        self.subscribed = set()
        self.client = Client(
            target,
            name="mcp_lite inspector",
            on_elicit=self.ask,
            on_elicit_url=self.ask,
            on_sample=self.sample,
            roots=lambda: self.roots,
            on_log=self.log,
            on_notification=self.note,
            stderr=partial(self.log, "stderr", logger=None),
            trace=self.trace,
            extensions=APPS,
            **options,
        )

    def show(self, kind, key, value):
        """Show a value on every page. It replaces the last one with this key."""
        with self.changed:
            self.version += 1
            self.shown.pop((kind, key), None)
            self.shown[kind, key] = (self.version, value)
            if len(self.shown) > MAX_SHOWN:
                lasting = ("state", "list", "settings")
                passing = (k for k in self.shown if k[0] not in lasting)
                del self.shown[next(passing)]
            self.changed.notify_all()

    # The conversation
    def run(self):
        """Connect, read the lists, and read them again after each change."""
        client = self.client
        self.show("state", 0, {"state": "connecting"})
        try:
            client.connect()
            about = {
                "state": "open",
                "version": client.protocol_version,
                "server": client.server_info,
                "instructions": client.instructions,
                "capabilities": client.server_capabilities,
            }
            self.show("state", 0, about)
            self.show_settings()
            self.refresh()
            if "logging" in client.server_capabilities:
                client.set_log_level(self.level)
            # A server need not report changes.
            with suppress(McpError, TimeoutError):
                for _ in client.listen():
                    self.refresh()
        except Exception as error:
            self.show("state", 0, {"state": "over", "why": explain_error(error)})
            self.withdraw()

    def show_settings(self):
        settings = {
            "roots": self.roots,
            "level": self.level,
            "levels": LEVELS,
            "subscribed": sorted(self.subscribed),
        }
        self.show("settings", 0, settings)

    def note(self, method, params):
        if method == "notifications/resources/updated":
            self.log("updated", params.get("uri"), None)

    def refresh(self):
        """Read every list again."""
        for kind, read in LISTS.items():
            try:
                self.show("list", kind, {"items": read(self.client)})
            except McpError as error:
                self.show("list", kind, {"items": [], "error": explain_error(error)})

    def log(self, level, data, logger):
        text = data if isinstance(data, str) else json.dumps(data)
        entry = {"level": level, "logger": logger, "text": text[:MAX_WIRE]}
        self.show("log", next(self.numbers), entry)

    def trace(self, direction, line):
        text = line[:MAX_WIRE].decode("utf-8", "replace")
        entry = {"direction": direction, "text": text, "size": len(line)}
        self.show("wire", next(self.numbers), {**entry, "at": time.time()})

    # Questions of the server
    def ask(self, params):
        """Return the user's answer, or None if the question is withdrawn. Blocks."""
        number = next(self.numbers)
        answer = queue.Queue()
        self.questions[number] = (params, answer)
        self.show("question", number, params)
        answered = answer.get()
        self.show("question", number, None)
        return answered

    def sample(self, params):
        answer = self.ask(params)
        if answer is None or answer["action"] != "accept":
            # -1: as client/sampling.md has it.
            raise McpError(-1, "User rejected sampling request")
        return str(answer["content"]["text"])

    def withdraw(self):
        """End all questions without an answer."""
        while self.questions:
            _, (_, answer) = self.questions.popitem()
            answer.put(None)

    # Requests of the user
    def start(self, title, work, call=None, arguments=None):
        """Run a job on a thread, and show its outcome."""
        number = next(self.numbers)
        self.jobs[number] = call
        self.show("job", number, {"title": title, "is_call": call is not None})
        job = (number, {"title": title, "arguments": arguments}, work)
        threading.Thread(target=self.work, args=job, daemon=True).start()

    def work(self, number, outcome, work):
        try:
            result = work()
            text = json.dumps(result)
            outcome["result"] = result
            if len(text) > MAX_RESULT:
                outcome["result"] = shortened(result)
                outcome["size"] = len(text)
                self.keep(number, text)
        except Exception as error:
            outcome["error"] = explain_error(error)
            if isinstance(error, ConnectionError):
                self.show("state", 0, {"state": "over", "why": str(error)})
        del self.jobs[number]
        self.show("job", number, outcome)
        if not self.jobs:
            self.withdraw()

    def keep(self, number, text):
        """Store a large result, and drop the oldest ones if there are too many."""
        with self.changed:
            self.large[number] = text
            while (
                sum(map(len, self.large.values())) > MAX_LARGE and len(self.large) > 1
            ):
                del self.large[min(self.large)]

    def api_part(self, asked):
        """Return a part of a large result, as text; "" at its end."""
        with self.changed:
            text = self.large.get(asked["job"])
        if text is None:
            raise ValueError("this result is no longer stored")
        return {"text": text[int(asked["from"]) :][:PART]}

    def api_poll(self, asked):
        """Return the changes since a version. Blocks until there are some."""
        after = asked["after"]
        with self.changed:
            self.changed.wait_for(lambda: self.version > after, POLL_SECONDS)
            news = [
                [*key, value]
                for key, (version, value) in self.shown.items()
                if version > after
            ]
            return {"version": self.version, "since": self.since, "changes": news}

    def api_call(self, asked):
        name = asked["name"]
        # The page shows progress among the messages. This callback only requests it.
        call = self.client.start_call(
            name, asked["arguments"], on_progress=partial(self.progress, name)
        )
        self.start(name, call.result, call, asked["arguments"])

    def progress(self, name, done, total, message):
        self.log("progress", f"{done} of {total} {message or ''}", name)

    def api_read(self, asked):
        uri = asked["uri"]
        self.start(uri, partial(self.client.read_resource, uri))

    def api_prompt(self, asked):
        name = asked["name"]
        get = partial(self.client.get_prompt, name, asked["arguments"])
        self.start(name, get)

    def api_complete(self, asked):
        """Return values for an argument of a prompt or a template. Blocks."""
        values = self.client.complete(
            asked["ref"], asked["argument"], asked["value"], asked.get("context")
        )
        return {"values": values[:100]}

    def api_subscribe(self, asked):
        uri = asked["uri"]
        if asked["on"]:
            self.client.subscribe(uri)
            self.subscribed.add(uri)
        else:
            self.client.unsubscribe(uri)
            self.subscribed.discard(uri)
        self.show_settings()

    def api_level(self, asked):
        self.client.set_log_level(asked["level"])
        self.level = asked["level"]
        self.show_settings()

    def api_roots(self, asked):
        """Replace the roots, and notify a server that asked for them in a session."""
        roots = [str(uri) for uri in asked["roots"]]
        if not all(uri.startswith("file://") for uri in roots):
            raise ValueError("a root must begin with file://")
        self.roots = roots
        if self.client.protocol_version < "2026":
            self.client.notify("notifications/roots/list_changed")
        self.show_settings()

    def api_clear(self, asked):
        """Clear all messages, logs and results on every page."""
        with self.changed:
            passing = ("wire", "log") if asked["what"] == "wire" else ("job",)
            for key in [key for key in self.shown if key[0] in passing]:
                # A running call can still be cancelled.
                if key[0] != "job" or key[1] not in self.jobs:
                    del self.shown[key]

    def api_app(self, asked):
        """Return the server's answer to a page of its own. Blocks."""
        if asked["method"] not in APP_METHODS:
            raise ValueError(f"{asked['method']}: not for pages")
        return self.client.request(asked["method"], asked["params"])

    def api_cancel(self, asked):
        call = self.jobs.get(asked["job"])
        if call is not None:
            call.cancel("the user has cancelled it")
            # The call may wait for an answer; a session does not say which.
            self.withdraw()

    def api_answer(self, asked):
        number, answer = asked["question"], asked["answer"]
        params, inbox = self.questions[number]
        if answer["action"] == "accept":
            errors = validate(answer.get("content"), params.get("requestedSchema", {}))
            if errors:
                raise ValueError("; ".join(errors[:5]))
        del self.questions[number]
        inbox.put(answer)

    def api_connect(self, asked):
        """Start over. This starts a local server again, so changes to it take effect."""
        self.close()
        self.subscribed.clear()
        with self.changed:
            self.large.clear()
            self.shown.clear()
            self.since = self.version
        threading.Thread(target=self.run, daemon=True).start()

    def close(self):
        self.client.close()
        self.withdraw()


def shortened(value):
    """Return a JSON value with its long texts and lists cut, and marked as cut."""
    if isinstance(value, str) and len(value) > MAX_WIRE:
        return f"{value[:MAX_WIRE]} [cut: {len(value):,} characters in all]"
    if isinstance(value, list):
        return [shortened(each) for each in value[:100]]
    if isinstance(value, dict):
        return {key: shortened(value[key]) for key in list(value)[:500]}
    return value


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves the page to whoever has the token, and its requests; nothing else.

    Another page in the same browser can send requests here, too. But it has no token, and
    its Origin gives it away; if its own name points to this machine, Host does.
    """

    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_GET(self):
        url = urlsplit(self.path)
        token = parse_qs(url.query).get("token", [""])[0]
        origin = self.headers.get("Origin", self.origin())
        # A browser takes this name for another origin, which servers' pages need.
        if url.path == "/app" and self.headers.get("Host") == self.app_host():
            policy = app_policy(
                json.loads(parse_qs(url.query)["csp"][0]), self.origin()
            )
            page = APP_FRAME.replace("{origin}", self.origin())
            return self.answer(200, page, "text/html", policy)
        if url.path != "/" or not self.is_welcome(token, origin):
            return self.answer(403, "use the URL that the inspector has printed")
        nonce = secrets.token_urlsafe(18)
        policy = POLICY.replace("{nonce}", nonce).replace("{app}", self.app_host())
        return self.answer(200, PAGE.replace("{nonce}", nonce), "text/html", policy)

    def do_POST(self):
        # The body of a refused request is not read, so a connection serves one request.
        self.close_connection = True
        size = self.headers.get("Content-Length", "")
        origin = self.headers.get("Origin")
        handle = None
        if self.path.startswith("/api/"):
            name = self.path.replace("/api/", "api_", 1)
            handle = getattr(self.server.inspector, name, None)
        if not self.is_welcome(self.headers.get("X-Token", ""), origin):
            return self.answer(403, "this is for the inspector's own page")
        if self.headers.get("Content-Type") != "application/json":
            return self.answer(415, "expected application/json")
        if not size.isdigit() or int(size) > MAX_BODY:
            return self.answer(413, f"expected {MAX_BODY} bytes at most")
        if handle is None:
            return self.answer(404, "not found")
        try:
            answer = handle(json.loads(self.rfile.read(int(size))))
        except (KeyError, TypeError, RecursionError) as error:
            return self.answer(400, explain_error(error))
        except (ValueError, McpError, OSError, RuntimeError) as error:
            return self.answer(400, str(error))
        return self.answer(200, json.dumps(answer), "application/json")

    def origin(self):
        return f"http://127.0.0.1:{self.server.server_port}"

    def app_host(self):
        return f"localhost:{self.server.server_port}"

    def is_welcome(self, token, origin):
        """Return whether a request is the page's own."""
        is_known = hmac.compare_digest(token.encode(), self.server.token.encode())
        is_here = f"http://{self.headers.get('Host')}" == self.origin()
        return is_known and is_here and origin == self.origin()

    def answer(self, status, text, kind="text/plain", policy="default-src 'none'"):
        data = text.encode()
        headers = {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(data)),
            "Content-Security-Policy": policy,
            "Cache-Control": "no-store",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
        }
        # The tab may have been closed.
        with suppress(OSError):
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

    def log_message(self, *_):
        """Keep silent, as a log would have the token."""


def app_policy(csp, origin):
    """Return the policy for a server's page, which allows what it declares and no more.

    "If omitted, Host MUST use" the restrictive default; "Host MAY further restrict".
    """
    declared = {
        kind: " ".join(filter(APP_ORIGIN.fullmatch, map(str, csp.get(kind, []))))
        for kind in ("connectDomains", "resourceDomains", "frameDomains")
    }
    return APP_POLICY.format(origin=origin, **declared)


class PageServer(http.server.ThreadingHTTPServer):
    """Serves the page on a port of this machine alone: `url` has the token."""

    daemon_threads = True

    def __init__(self, inspector, port=0):
        self.inspector = inspector
        self.token = secrets.token_urlsafe(24)
        super().__init__(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/?token={self.token}"


def local_port(text):
    """Return the port in [127.0.0.1:]PORT. Raises ValueError."""
    host, _, port = text.rpartition(":")
    if host not in ("", "127.0.0.1", "localhost"):
        raise argparse.ArgumentTypeError("the page is for this machine alone")
    if int(port) not in range(65536):
        raise ValueError(port)
    return int(port)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.error = lambda why: sys.exit(f"inspector: {why}; see --help")
    parser.add_argument("target", nargs="+", help="a URL, a script, or a command")
    parser.add_argument("--protocol", default="auto", help="the only revision to offer")
    parser.add_argument("--header", action="append", default=[], metavar="K:V")
    parser.add_argument(
        "--http",
        type=local_port,
        default=0,
        metavar="[127.0.0.1:]PORT",
        help="the port of the page; by default, any free one",
    )
    parser.add_argument("--open", action="store_true", help="open the page")
    options = parser.parse_args()
    target = options.target if options.target[1:] else options.target[0]
    if not all(":" in header for header in options.header):
        parser.error("--header: expected K:V")
    pairs = [header.partition(":") for header in options.header]
    headers = {name.strip(): value.strip() for name, _, value in pairs}
    try:
        inspector = Inspector(
            target,
            protocol_version=options.protocol,
            headers=headers,
            # The server may need variables that its user has set, such as a key.
            env=dict(os.environ),
        )
    except (TypeError, ValueError) as error:
        sys.exit(printable(f"inspector: {error}"))
    try:
        server = PageServer(inspector, options.http)
    except OSError as error:
        sys.exit(f"inspector: {error}")
    with server:
        inspector.api_connect({})
        print(server.url, flush=True)
        if options.open:
            webbrowser.open(server.url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            pass
        finally:
            inspector.close()


# The page. A server's content becomes text nodes and values of fields, never markup, so
# innerHTML is not used. It becomes a URL only for the data of images and sounds, and for
# a tool's own page, which has another origin. Should one of these rules be broken, the
# policy still runs no script without this response's nonce, and lets no data out.
POLICY = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; "
    "connect-src 'self'; img-src data:; media-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; frame-src http://{app}"
)
# The policy of a server's page. The page inside the frame inherits it.
APP_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' {resourceDomains}; "
    "style-src 'unsafe-inline' {resourceDomains}; img-src data: {resourceDomains}; "
    "font-src data: {resourceDomains}; media-src data: {resourceDomains}; "
    "connect-src {connectDomains}; frame-src {frameDomains}; object-src 'none'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors {origin}"
)

# "The Sandbox": its origin is not the inspector's. It holds the server's page in a frame
# without any origin, and forwards the messages between the two.
APP_FRAME = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>A server's page</title><style>
html, body, iframe { margin: 0; border: 0; width: 100%; height: 100%; display: block; }
</style></head><body><script>
"use strict";
const inner = document.createElement("iframe");
inner.setAttribute("sandbox", "allow-scripts");
inner.title = "The server's page";
const ofSandbox = (data) => String(data?.method).startsWith("ui/notifications/sandbox-");
addEventListener("message", ({source, origin, data}) => {
  if (source === parent && origin === "{origin}") {
    if (data.method === "ui/notifications/sandbox-resource-ready") {
      inner.srcdoc = data.params.html;
      document.body.append(inner);
    } else if (!ofSandbox(data)) inner.contentWindow?.postMessage(data, "*");
  } else if (source !== null && source === inner.contentWindow && !ofSandbox(data)) {
    parent.postMessage(data, "{origin}");
  }
});
parent.postMessage({jsonrpc: "2.0", method: "ui/notifications/sandbox-proxy-ready",
  params: {}}, "{origin}");
</script></body></html>
"""

STYLE = """
:root {
  color-scheme: light dark;
  --ground: #f5f6f8; --card: #fff; --ink: #1b1f24; --faint: #59636e; --line: #d0d7de;
  --accent: #0a58ca; --on-accent: #fff; --good: #116329; --bad: #b42318;
  --question: #fff8dc;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #0d1117; --card: #161b22; --ink: #e6edf3; --faint: #9aa5b1;
    --line: #3a424c; --accent: #79b8ff; --on-accent: #0b1726; --good: #56d364;
    --bad: #ff8f87; --question: #2d2713;
  }
}
* { box-sizing: border-box; }
body { margin: 0; height: 100vh; display: flex; flex-direction: column;
  background: var(--ground); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
header { display: flex; flex-wrap: wrap; gap: .5rem 1rem; align-items: center;
  padding: .5rem 1rem; background: var(--card); border-bottom: 1px solid var(--line); }
h1 { font-size: 1.1rem; margin: 0; }
h2 { font-size: 1rem; margin: 0 0 .3rem; }
p { margin: .3rem 0; }
#status { flex: 1; margin: 0; }
#status.open { color: var(--good); }
#status.over, .error { color: var(--bad); }
.columns { flex: 1; min-height: 0; display: grid;
  grid-template-columns: minmax(12rem, 17rem) minmax(0, 1.2fr) minmax(0, 1fr); }
.columns > * { overflow: auto; padding: .8rem 1rem; }
nav, main { border-right: 1px solid var(--line); }
ul { list-style: none; margin: 0 0 .8rem; padding: 0; }
nav button { width: 100%; text-align: start; border-color: transparent; background: none; }
nav button[aria-current=true] { background: var(--card); border-color: var(--accent); }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: .7rem .9rem; margin: 0 0 .8rem; }
.card.bad { border-left: 4px solid var(--bad); }
.card.good { border-left: 4px solid var(--good); }
.question { background: var(--question); margin: .6rem 1rem; max-width: 50rem; }
#questions { max-height: 60vh; overflow: auto; flex: none; }
.field { margin: .5rem 0; }
label { display: block; font-weight: 600; }
.hint { color: var(--faint); font-size: .85rem; }
.suggestions { margin: .2rem 0 0; display: flex; flex-wrap: wrap; gap: .3rem; }
input, select, textarea, button { font: inherit; color: inherit; background: var(--ground);
  border: 1px solid var(--line); border-radius: 6px; padding: .3rem .55rem; }
.field > :is(input, select, textarea) { width: 100%; }
textarea { resize: vertical; field-sizing: content; max-height: 20rem; }
button { cursor: pointer; }
button.main { background: var(--accent); color: var(--on-accent); border-color: var(--accent); }
form button, .card > button { margin: .4rem .4rem 0 0; }
:focus-visible { outline: 3px solid var(--accent); outline-offset: 1px; }
summary { cursor: pointer; }
.name, pre, .tree { font-family: ui-monospace, "DejaVu Sans Mono", monospace;
  font-size: .85rem; }
.name, pre, .tree, .words, .hint, .error, button { overflow-wrap: anywhere;
  unicode-bidi: isolate; }
pre, .words, .error { white-space: pre-wrap; }
pre { margin: .3rem 0; max-height: 30rem; overflow: auto; }
.tree { padding-left: 1rem; }
.key { color: var(--faint); }
img { max-width: 100%; border: 1px solid var(--line); }
.app iframe { width: 100%; height: 12rem; border: 2px dashed var(--accent);
  border-radius: 6px; display: block; }
#wire-messages > * { border-left: 3px solid var(--good); padding-left: .6rem;
  margin-bottom: .3rem; }
#wire-messages > .sent { border-color: var(--accent); }
#wire-messages > .failure { border-color: var(--bad); }
#wire-messages > .log { border-color: var(--line); font-size: .85rem; }
.bar { display: flex; flex-wrap: wrap; gap: .4rem; align-items: center; position: sticky;
  top: -.8rem; margin: -.8rem -1rem .6rem; padding: .5rem 1rem; background: var(--ground);
  border-bottom: 1px solid var(--line); z-index: 1; }
.bar h2 { margin: 0; flex: none; }
.bar input { flex: 1; min-width: 6rem; }
.bar button, .small { font-size: .85rem; padding: .1rem .45rem; }
.badge { display: inline-block; font-size: .8rem; border: 1px solid var(--line);
  border-radius: 1rem; padding: 0 .55rem; margin: 0 .3rem .3rem 0; color: var(--faint); }
.badge.warn { color: var(--bad); border-color: var(--bad); }
fieldset { border: 1px solid var(--line); border-radius: 6px; margin: .3rem 0;
  padding: .2rem .7rem .5rem; min-width: 0; }
legend { font-weight: 600; }
.item { display: flex; gap: .4rem; align-items: flex-start; margin: .3rem 0; }
.item > :first-child { flex: 1; min-width: 0; }
.item :is(input, select, textarea) { width: 100%; }
#settings { background: var(--card); border-bottom: 1px solid var(--line);
  padding: .5rem 1rem; }
#settings textarea { width: 100%; max-width: 40rem; }
[hidden] { display: none !important; }
@media (max-width: 60rem) {
  body { height: auto; } .columns { display: block; }
  .columns > * { overflow: visible; border-right: 0; border-bottom: 1px solid var(--line); }
  .bar { top: 0; }
  nav ul { max-height: 14rem; overflow: auto; }
  #wire-messages { max-height: 70vh; overflow: auto; }
  #item { scroll-margin-top: .5rem; }
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
<header>
  <h1>MCP inspector</h1>
  <p id="status" role="status">...</p>
  <button type="button" id="adjust" aria-expanded="false">Settings</button>
  <button type="button" id="again">Connect again</button>
</header>
<section id="settings" aria-label="Settings" hidden></section>
<section id="questions" aria-label="Questions of the server" aria-live="polite"></section>
<div class="columns">
  <nav aria-label="What the server offers">
    <div class="bar"><input id="find" type="search" placeholder="Search the lists"
      aria-label="Search the lists"></div>
    <div id="lists"></div>
  </nav>
  <main>
    <section id="item" aria-label="The selected item"></section>
    <p id="tidy" hidden><button type="button" class="small">Clear results</button></p>
    <section id="results" aria-label="Results" aria-live="polite"></section>
  </main>
  <aside id="wire" aria-label="The wire" tabindex="0">
    <div class="bar"><h2>Wire</h2>
      <input id="sift" type="search" placeholder="Filter messages" aria-label="Filter messages">
      <button type="button" id="clear">Clear</button></div>
    <div id="wire-messages"></div>
  </aside>
</div>
<script nonce="{nonce}">{script}</script>
</body>
</html>
"""

SCRIPT = r"""
"use strict";
const TOKEN = new URLSearchParams(location.search).get("token");
const MAX_TEXT = 100000;  // characters of a text
const MAX_DEPTH = 4;  // of fields inside fields; what is deeper is typed as JSON
const MAX_ROWS = 500;  // members of a JSON value, or fields of a form
const byId = (id) => document.getElementById(id);
const isObject = (value) =>
  value !== null && typeof value === "object" && !Array.isArray(value);
const objectOf = (value) => (isObject(value) ? value : {});
const arrayOf = (value) => (Array.isArray(value) ? value : []);
const own = (value, name) => Object.prototype.hasOwnProperty.call(value, name);

// ---- Texts. A server's text passes through plain() and becomes a text node.

// Characters that reorder or hide other text, or break a line, are shown as escapes.
const UNSEEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

function plain(value) {
  const text = typeof value === "string" ? value : JSON.stringify(value) ?? "";
  return text.slice(0, MAX_TEXT).replace(UNSEEN, (c) =>
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
  // A child that is not a node becomes a text.
  node.append(...children.flat(9).filter((child) => child != null));
  return node;
}

const button = (text, onclick, attributes) =>
  el("button", {type: "button", onclick, ...attributes}, text);

async function api(name, body) {
  const response = await fetch("/api/" + name, {
    method: "POST",
    headers: {"Content-Type": "application/json", "X-Token": TOKEN},
    body: JSON.stringify(body || {}),
  });
  if (!response.ok) throw new Error(await response.text());
  return response.json();
}

// A button that copies a text, and says so.
function copier(read) {
  const node = button("Copy", async () => {
    try {
      await navigator.clipboard.writeText(await read());
      node.textContent = "Copied";
    } catch (error) {
      node.textContent = "Not copied: " + line(error.message, 60);
    }
    setTimeout(() => { node.textContent = "Copy"; }, 2000);
  }, {class: "small"});
  return node;
}

// An error is shown where the user looks.
async function attempt(place, work) {
  place.textContent = "";
  try {
    await work();
  } catch (error) {
    place.textContent = line(error.message, 2000);
  }
}

// ---- JSON, folded

function tree(value, key, depth = 0) {
  const label = key === undefined ? null : el("span", {class: "key"}, line(key) + ": ");
  if (value === null || typeof value !== "object") {
    return el("div", {class: "tree"}, label, plain(JSON.stringify(value)));
  }
  const keys = Object.keys(value).slice(0, MAX_ROWS);
  const size = Object.keys(value).length;
  const node = el("details", {class: "tree"},
    el("summary", {}, label, Array.isArray(value) ? `[${size}]` : `{${size}}`));
  const fill = () => {
    if (node.childElementCount > 1) return;
    node.append(...keys.map((each) => tree(value[each], each, depth + 1)));
  };
  node.addEventListener("toggle", fill);
  if (depth < 2 && size <= 20) { fill(); node.open = true; }
  return node;
}

function folded(title, value) {
  const node = el("details", {}, el("summary", {}, title));
  node.addEventListener("toggle", () => {
    if (node.childElementCount === 1) node.append(tree(value));
  });
  return node;
}

// ---- Contents

const PICTURE = /^image\/(png|jpeg|gif|webp|avif|bmp)$/;
const SOUND = /^audio\/[a-z0-9.+-]{1,40}$/;
const BASE64 = /^[A-Za-z0-9+\/]*={0,2}$/;

// A picture or a sound; null for any type that could run code.
function media(kind, data) {
  if (typeof data !== "string" || !BASE64.test(data)) return null;
  const src = `data:${kind};base64,${data}`;
  if (PICTURE.test(kind)) return el("img", {src, alt: kind});
  return SOUND.test(kind) ? el("audio", {controls: true, src}) : null;
}

function block(given) {
  const content = objectOf(given);
  const inner = content.type === "resource" ? objectOf(content.resource) : content;
  if (typeof inner.text === "string") return el("pre", {tabindex: 0}, plain(inner.text));
  if (content.type === "resource_link") {
    const uri = String(content.uri);
    return button(`Read ${line(uri)}`, () => api("read", {uri}));
  }
  return media(String(inner.mimeType ?? ""), inner.data ?? inner.blob) ?? tree(content);
}

// The result of a tool, a resource or a prompt.
function outcome(result) {
  const nodes = arrayOf(result.content ?? result.contents).map(block);
  for (const message of arrayOf(result.messages).map(objectOf)) {
    nodes.push(el("p", {class: "hint"}, line(message.role)),
      [].concat(message.content).map(block));
  }
  return [...nodes, el("p", {}, copier(() => JSON.stringify(result, null, 2))),
    folded("As received", result)];
}

// A result of many megabytes is shown in part, but can be saved as a whole.
function whole(number, size) {
  const note = el("span", {class: "hint", role: "status"},
    ` The result has ${size.toLocaleString("en")} characters; long texts are cut here.`);
  const save = button("Save all of it", async () => {
    const parts = [];
    for (let from = 0; from < size; from += parts.at(-1).length) {
      note.textContent = ` ${Math.floor(100 * from / size)} %`;
      const {text} = await api("part", {job: number, from});
      if (text === "") break;
      parts.push(text);
    }
    const link = el("a", {href: URL.createObjectURL(new Blob(parts)), download: "result.json"});
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
    note.textContent = " Saved as result.json.";
  });
  return el("p", {class: "large"}, save, note);
}

// ---- Forms from schemas. A field has a node, and read(): undefined is "left out".

let fields = 0;

function resolve(schema, root) {
  let current = objectOf(schema);
  for (let hops = 0; typeof current.$ref === "string" && hops < 20; hops += 1) {
    let target = root;
    for (const part of current.$ref.split("/").slice(1)) {
      const key = part.replace(/~1/g, "/").replace(/~0/g, "~");
      target = own(objectOf(target), key) ? target[key] : undefined;
    }
    const {$ref, ...beside} = current;
    current = {...objectOf(target), ...beside};
  }
  // A choice of one schema or null becomes an optional field.
  const options = arrayOf(current.anyOf).map(objectOf);
  const others = options.filter((each) => each.type !== "null");
  if (options.length === 2 && others.length === 1) {
    const {anyOf, ...beside} = current;
    return {...resolve(others[0], root), ...beside};
  }
  return current;
}

// The choices of a schema, as [value, label] pairs; null if it has none.
function choicesOf(schema) {
  if (schema.type === "boolean") return [[true, "true"], [false, "false"]];
  if (Array.isArray(schema.enum)) {
    const names = arrayOf(schema.enumNames);
    return schema.enum.map((value, n) => [value, plain(names[n] ?? value)]);
  }
  const options = arrayOf(schema.oneOf ?? schema.anyOf).map(objectOf);
  const all = options.length && options.every((each) => own(each, "const"));
  return all ? options.map((each) => [each.const, plain(each.title ?? each.const)]) : null;
}

function select(choices, chosen, isMultiple) {
  const isChosen = (value) => chosen.some((each) => JSON.stringify(each) === JSON.stringify(value));
  const node = el("select", {multiple: isMultiple},
    isMultiple ? null : el("option", {value: ""}, "(left out)"),
    choices.slice(0, MAX_ROWS).map(([value, label], n) =>
      el("option", {value: n, selected: isChosen(value)}, line(label))));
  const values = () => [...node.selectedOptions].filter((each) => each.value !== "")
    .map((each) => choices[each.value][0]);
  return {node, read: () => (isMultiple && values().length ? values() : values()[0])};
}

function entry(schema, required) {
  const isText = schema.type === "string";
  const isNumber = ["integer", "number"].includes(schema.type);
  const node = isNumber ? el("input", {inputmode: "decimal"})
    : el("textarea", {rows: 1, spellcheck: "false", class: isText ? "text" : "",
      placeholder: isText ? "" : "JSON"});
  if (schema.default != null) {
    node.value = isText ? plain(schema.default) : JSON.stringify(schema.default);
  }
  return {node, read: () => {
    const given = isText ? node.value : node.value.trim();
    if (isText && (given || required)) return given;
    return given === "" ? undefined : JSON.parse(given);
  }};
}

// A list: a field for each item, and buttons that add and remove items.
function listOf(schema, root, depth) {
  const items = [];
  const place = el("div", {});
  const add = (given) => {
    const start = given === undefined ? schema.items : {...objectOf(schema.items), default: given};
    const made = control(start, "", true, root, depth + 1);
    const row = el("div", {class: "item"}, made.node, button("Remove", () => {
      items.splice(items.indexOf(made), 1);
      row.remove();
    }, {class: "small", "aria-label": "Remove this item"}));
    items.push(made);
    place.append(row);
    return made;
  };
  for (const each of arrayOf(schema.default)) add(each);
  const node = el("div", {class: "list"}, place, button("Add an item", () => {
    const {node: made} = add();
    (made.matches("input, select, textarea") ? made
      : made.querySelector("input, select, textarea"))?.focus();
  }, {class: "small"}));
  return {node, read: (required) => {
    const values = items.map((each) => each.read()).filter((each) => each !== undefined);
    return values.length || required || items.length ? values : undefined;
  }};
}

// An object: a field for each of its properties.
function groupOf(schema, root, depth) {
  const required = arrayOf(schema.required);
  const defaults = objectOf(schema.default);
  const made = Object.entries(objectOf(schema.properties)).slice(0, MAX_ROWS)
    .map(([name, each]) => [name, field(
      own(defaults, name) ? {...objectOf(each), default: defaults[name]} : each,
      name, required.includes(name), root, depth + 1)]);
  return {node: el("fieldset", {}, made.map(([, each]) => each.node)), read: (isRequired) => {
    const value = Object.create(null);
    let isEmpty = true;
    for (const [name, each] of made) {
      const member = each.read();
      if (member !== undefined) { value[name] = member; isEmpty = false; }
    }
    return isEmpty && !isRequired ? undefined : value;
  }};
}

// The field for a value: {node, read}.
function control(given, name, required, root, depth) {
  const schema = resolve(given, root);
  const items = schema.type === "array" ? choicesOf(resolve(schema.items, root)) : null;
  const choices = items ?? choicesOf(schema);
  const chosen = own(schema, "default") ? [].concat(schema.default) : [];
  if (choices) return select(choices, chosen, Boolean(items));
  const isDeep = depth >= MAX_DEPTH;
  if (!isDeep && schema.type === "array" && isObject(schema.items)) {
    const list = listOf(schema, root, depth);
    return {node: list.node, read: () => list.read(required)};
  }
  if (!isDeep && schema.type === "object" && Object.keys(objectOf(schema.properties)).length) {
    const group = groupOf(schema, root, depth);
    return {node: group.node, read: () => group.read(required)};
  }
  return entry(schema, required);
}

function field(given, name, required, root, depth = 0) {
  const schema = resolve(given, root);
  const made = control(given, name, required, root, depth);
  const id = `field${fields += 1}`;
  made.node.id = id;
  made.node.setAttribute("aria-describedby", `${id}-hint`);
  const hint = [schema.type, schema.format, schema.description ?? schema.title];
  const suggest = objectOf(given).suggest;
  if (suggest) complete(made.node, id, suggest);
  return {read: made.read, node: el("div", {class: "field"},
    el("label", {for: id, class: "name"}, line(name), required ? " (required)" : ""),
    made.node, el("div", {class: "hint", id: `${id}-hint`},
      hint.filter(Boolean).map((each) => line(each, 1000)).join(" \u00b7 ")))};
}

// Completions: values that the server suggests while the user types.
function complete(node, id, suggest) {
  const list = el("ul", {class: "suggestions", id: `${id}-values`});
  let number = 0;
  node.addEventListener("input", async () => {
    const mine = number += 1;
    try {
      const {values} = await suggest(node.value);
      // Answers may arrive out of order.
      if (mine !== number) return;
      list.replaceChildren(...values.slice(0, 20).map((each) =>
        el("li", {}, button(line(each), () => {
          node.value = plain(each);
          list.replaceChildren();
          node.focus();
        }, {class: "small"}))));
    } catch { list.replaceChildren(); }
  });
  setTimeout(() => node.after(list));
}

function formOf(given, text, submit, ...others) {
  const root = objectOf(given);
  const schema = resolve(root, root);
  const required = arrayOf(schema.required);
  const made = Object.entries(objectOf(schema.properties)).slice(0, MAX_ROWS)
    .map(([name, each]) => [name, field(each, name, required.includes(name), root)]);
  const problem = el("p", {class: "error", role: "alert"});
  const read = () => {
    // Without a prototype: a member may be named __proto__.
    const value = Object.create(null);
    for (const [name, each] of made) {
      let member;
      try {
        member = each.read();
      } catch (error) {
        throw new Error(`${line(name)}: ${error.message}`);
      }
      if (member !== undefined) value[name] = member;
    }
    return value;
  };
  const form = el("form", {novalidate: true, onsubmit: (event) => {
    event.preventDefault();
    attempt(problem, () => submit(read()));
  }}, made.map(([, each]) => each.node), el("button", {class: "main"}, text), others, problem);
  // The texts typed so far.
  form.known = () => Object.fromEntries(made.map(([name, each]) => {
    try { return [name, each.read()]; } catch { return [name, undefined]; }
  }).filter(([, value]) => typeof value === "string" && value !== ""));
  // Enter sends the form; Shift+Enter makes a new line.
  form.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    if (event.target.matches("textarea.text")) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
  return form;
}

// ---- The pages of tools (MCP Apps): this is their host

const APP_ORIGIN = `http://localhost:${location.port}`;
const PAGE_TYPE = "text/html;profile=mcp-app";
const MAX_HEIGHT = 800;  // pixels of a page
const TEARDOWN = "teardown";  // the id of the one request that a page gets
let tools = new Map();

// The URI of a tool's page; undefined if it has none.
function pageOf(tool) {
  const uri = objectOf(objectOf(objectOf(tool)._meta).ui).resourceUri;
  return typeof uri === "string" && uri.startsWith("ui://") ? uri : undefined;
}

function isForApps(name) {
  const {visibility} = objectOf(objectOf(objectOf(tools.get(name))._meta).ui);
  return tools.has(name) && (visibility === undefined || arrayOf(visibility).includes("app"));
}

// The requests of a page: method -> (params) -> the result.
const APP_REQUESTS = {
  "ping": () => ({}),
  "tools/call": (params) => {
    // "Host MUST reject tools/call requests from apps for tools that don't include app"
    if (!isForApps(params.name)) throw new Error(`${line(params.name)}: not for pages`);
    return api("app", {method: "tools/call", params});
  },
  "resources/read": (params) => api("app", {method: "resources/read", params}),
  "ui/request-display-mode": () => ({mode: "inline"}),
  "ui/open-link": () => { throw new Error("the inspector opens no links"); },
  "ui/message": (params) => { noteOf("message", params.content); return {}; },
  "ui/update-model-context": (params) => { noteOf("context", params); return {}; },
};

const noteOf = (kind, value) =>
  showLog(0, {level: "page", logger: kind, text: JSON.stringify(value) ?? ""});

// A frame that shows a tool's page, with the tool's arguments and result.
async function appFrame(tool, given, result) {
  const uri = pageOf(tool);
  const read = await api("app", {method: "resources/read", params: {uri}});
  const content = arrayOf(read.contents).map(objectOf).find((each) => each.uri === uri);
  if (content?.mimeType !== PAGE_TYPE) throw new Error(`${line(uri)}: expected ${PAGE_TYPE}`);
  const html = content.text ?? new TextDecoder().decode(
    Uint8Array.from(atob(content.blob), (c) => c.charCodeAt(0)));
  const csp = objectOf(objectOf(objectOf(content._meta).ui).csp);
  const frame = el("iframe", {title: `The page of ${line(tool.name)}`,
    sandbox: "allow-scripts allow-same-origin",
    src: `${APP_ORIGIN}/app?csp=${encodeURIComponent(JSON.stringify(csp))}`});
  const send = (message) =>
    frame.contentWindow?.postMessage({jsonrpc: "2.0", ...message}, APP_ORIGIN);
  const notify = (method, params) => send({method: "ui/notifications/" + method, params});

  const initialize = () => ({
    protocolVersion: "2026-01-26",
    hostInfo: {name: "mcp_lite inspector", version: "1"},
    hostCapabilities: {serverTools: {}, serverResources: {}, logging: {}},
    hostContext: {toolInfo: {tool}, displayMode: "inline",
      availableDisplayModes: ["inline"], platform: "web",
      theme: matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light",
      containerDimensions: {width: frame.clientWidth, maxHeight: MAX_HEIGHT}},
  });
  const hear = {
    "ui/notifications/sandbox-proxy-ready": () => notify("sandbox-resource-ready", {html, csp}),
    "ui/notifications/initialized": () => {
      notify("tool-input", {arguments: given});
      notify("tool-result", result);
    },
    "ui/notifications/size-changed": ({height}) => {
      // The border is a part of it.
      if (height > 0) frame.style.height = `${Math.min(Math.ceil(height) + 4, MAX_HEIGHT)}px`;
    },
    "notifications/message": (params) => noteOf("log", params.data),
  };

  addEventListener("message", async function listen({source, origin, data}) {
    if (!frame.isConnected) removeEventListener("message", listen);
    if (source !== frame.contentWindow || origin !== APP_ORIGIN || !isObject(data)) return;
    const {id, method} = data;
    const params = objectOf(data.params);
    if (id === TEARDOWN && method === undefined) frame.dispatchEvent(new Event("down"));
    if (id === undefined || method === undefined) {
      if (own(hear, method)) hear[method](params);
      return;
    }
    try {
      const serve = method === "ui/initialize" ? initialize
        : own(APP_REQUESTS, method) ? APP_REQUESTS[method] : null;
      if (serve === null) throw new Error(`${line(method)}: unknown method`);
      send({id, result: await serve(params)});
    } catch (error) {
      send({id, error: {code: -32000, message: error.message}});
    }
  });
  // "Host SHOULD wait for a response before tearing down the resource"
  frame.teardown = () => new Promise((done) => {
    frame.addEventListener("down", done);
    setTimeout(done, 1000);
    send({id: TEARDOWN, method: "ui/resource-teardown", params: {reason: "closed"}});
  });
  return frame;
}

// Ask all pages inside an element to end, and wait until they have.
const tearDown = (place) =>
  Promise.all([...place.querySelectorAll(".app iframe")].map((frame) => frame.teardown()));

async function addApp(card, tool, job) {
  const place = el("div", {class: "app"});
  card.append(place);
  try {
    place.append(await appFrame(tool, objectOf(job.arguments), job.result),
      button("Close the page", async () => { await tearDown(card); place.remove(); }));
  } catch (error) {
    place.append(el("p", {class: "error"}, plain(error.message)));
  }
}

// ---- What the server offers

const HINTS = {readOnlyHint: ["reads only", "changes something"],
  destructiveHint: ["may destroy", "only adds"], idempotentHint: ["idempotent", null],
  openWorldHint: ["reaches the outside", "stays inside"]};

// What an entry claims about itself; a host must not trust it.
function badges(item) {
  const annotations = objectOf(item.annotations);
  const nodes = [];
  for (const [name, [yes, no]] of Object.entries(HINTS)) {
    const text = annotations[name] === true ? yes : annotations[name] === false ? no : null;
    const isBad = name === "destructiveHint" && annotations[name] === true;
    if (text) nodes.push(el("span", {class: isBad ? "badge warn" : "badge", title: name}, text));
  }
  for (const [name, value] of Object.entries(annotations)) {
    if (!own(HINTS, name) && name !== "title") {
      nodes.push(el("span", {class: "badge"}, `${line(name, 40)}: ${line(value, 80)}`));
    }
  }
  if (item.mimeType) nodes.push(el("span", {class: "badge"}, line(item.mimeType, 80)));
  return nodes.length ? el("p", {}, nodes) : null;
}

const isNarrow = () => matchMedia("(max-width: 60rem)").matches;

function present(item, ...nodes) {
  const title = item.title ?? objectOf(item.annotations).title;
  byId("item").replaceChildren(el("div", {class: "card"},
    el("h2", {class: "name"}, line(item.name ?? item.uri)),
    title ? el("p", {}, line(title)) : null,
    badges(item),
    item.description ? el("p", {class: "words"}, plain(item.description)) : null,
    nodes,
    item.outputSchema ? folded("Output schema", item.outputSchema) : null,
    folded("As listed", item)));
  // Below a long list, nobody would see it.
  if (isNarrow()) byId("item").scrollIntoView({block: "start"});
}

function presentTool(tool) {
  present(tool, formOf(tool.inputSchema, "Call", (given) =>
    api("call", {name: tool.name, arguments: given})));
}

let subscribed = new Set();

function presentResource(item) {
  const {uri} = item;
  const text = () => subscribed.has(uri) ? "Unsubscribe" : "Subscribe";
  const problem = el("p", {class: "error", role: "alert"});
  const toggle = button(text(), () => attempt(problem, async () => {
    await api("subscribe", {uri, on: !subscribed.has(uri)});
  }), {id: "toggle"});
  toggle.show = () => { toggle.textContent = text(); };
  present(item, formOf({properties: {uri: {type: "string", default: uri}}, required: ["uri"]},
    "Read", (given) => api("read", given), toggle), problem);
}

// A function that fills in a template's variables; null if some are not simple.
function expander(template) {
  if (/\{[^{}]*[^A-Za-z0-9_.+{}][^{}]*\}/.test(template)) return null;
  return (values) => template.replace(/\{(\+?)([A-Za-z0-9_.]+)\}/g, (_, plus, name) =>
    plus ? encodeURI(values[name] ?? "") : encodeURIComponent(values[name] ?? ""));
}

const suggester = (ref, argument, form) => async (value) => {
  if (!completes) return {values: []};
  return api("complete", {ref, argument, value, context: form()});
};

function presentTemplate(item) {
  const template = String(item.uriTemplate);
  const expand = expander(template);
  const properties = Object.create(null);
  let form;
  const known = () => form ? form.known() : {};
  for (const [, name] of template.matchAll(/\{\+?([A-Za-z0-9_.]+)\}/g)) {
    properties[name] = {type: "string", suggest: suggester(template, name, known)};
  }
  if (expand === null || !Object.keys(properties).length) {
    // The user fills in its variables by hand.
    present(item, formOf({properties: {uri: {type: "string", default: template}},
      required: ["uri"]}, "Read", (given) => api("read", given)));
    return;
  }
  form = formOf({properties, required: Object.keys(properties)}, "Read", (given) =>
    api("read", {uri: expand(given)}));
  present(item, el("p", {class: "name hint"}, line(template)), form);
}

function presentPrompt(prompt) {
  const properties = Object.create(null);
  const required = [];
  let form;
  const known = () => form ? form.known() : {};
  for (const each of arrayOf(prompt.arguments).map(objectOf)) {
    const name = String(each.name);
    properties[name] = {type: "string", description: each.description,
      suggest: suggester(prompt.name, name, known)};
    if (each.required === true) required.push(name);
  }
  form = formOf({properties, required}, "Get", (given) =>
    api("prompt", {name: prompt.name, arguments: given}));
  present(prompt, form);
}

const PRESENT = {tools: presentTool, resources: presentResource,
  templates: presentTemplate, prompts: presentPrompt};

function showList(kind, {items, error}) {
  const entries = arrayOf(items).map(objectOf);
  if (kind === "tools") tools = new Map(entries.map((tool) => [tool.name, tool]));
  const node = el("section", {id: "list-" + kind},
    el("h2", {}, `${kind} (${entries.length})`),
    error ? el("p", {class: "error"}, plain(error)) : null,
    el("ul", {}, entries.map((item) => {
      const each = button(line(item.name ?? item.uri), () => {
        for (const other of document.querySelectorAll("nav button")) {
          other.setAttribute("aria-current", other === each);
        }
        PRESENT[kind](item);
      }, {class: "name"});
      const title = item.title ?? objectOf(item.annotations).title ?? "";
      const text = [item.name, item.uri, item.uriTemplate, title, item.description].join(" ");
      return el("li", {"data-text": text.slice(0, 5000).toLowerCase()}, each);
    })));
  const old = byId("list-" + kind);
  if (old) old.replaceWith(node); else byId("lists").append(node);
  search();
}

function search() {
  const wanted = byId("find").value.toLowerCase();
  for (const each of document.querySelectorAll("nav li")) {
    each.hidden = !each.dataset.text.includes(wanted);
  }
}
byId("find").addEventListener("input", search);
byId("tidy").querySelector("button").addEventListener("click", async () => {
  await api("clear", {what: "results"});
  await tearDown(byId("results"));
  byId("results").replaceChildren();
  byId("tidy").hidden = true;
});

// ---- Settings

let completes = false;

function showSettings(_, {roots, level, levels, subscribed: uris}) {
  subscribed = new Set(uris);
  byId("toggle")?.show();
  const problem = el("p", {class: "error", role: "alert"});
  const choice = el("select", {id: "level"}, levels.map((each) =>
    el("option", {value: each, selected: each === level}, each)));
  choice.addEventListener("change", () => attempt(problem, () =>
    api("level", {level: choice.value})));
  const folders = el("textarea", {id: "roots", rows: 2, spellcheck: "false",
    placeholder: "file:///home/you/project"});
  folders.value = arrayOf(roots).join("\n");
  byId("settings").replaceChildren(
    el("div", {class: "field"}, el("label", {for: "level"}, "Level of the server's log"), choice),
    el("div", {class: "field"},
      el("label", {for: "roots"}, "Roots that the server may ask for, a URI on each line"),
      folders, button("Set the roots", () => attempt(problem, () => api("roots",
        {roots: folders.value.split("\n").map((each) => each.trim()).filter(Boolean)})))),
    el("p", {class: "hint"}, uris.length ? "Subscribed to: " + uris.map((u) => line(u)).join(", ")
      : "Subscribed to no resource."),
    problem);
}

byId("adjust").addEventListener("click", () => {
  const place = byId("settings");
  place.hidden = !place.hidden;
  byId("adjust").setAttribute("aria-expanded", String(!place.hidden));
});

// ---- News from the inspector

function showState(_, news) {
  const server = objectOf(news.server);
  byId("status").className = news.state;
  byId("status").textContent = news.state === "connecting" ? "connecting" : news.why
    ? plain(news.why) : `${line(server.name)} ${line(server.version ?? "")}, revision `
      + `${line(news.version)} (${news.version < "2026" ? "legacy" : "modern"})`;
  completes = own(objectOf(news.capabilities), "completions");
  if (news.state !== "open" || byId("item").childElementCount) return;
  byId("item").append(el("div", {class: "card"}, el("h2", {}, line(server.title ?? server.name)),
    el("p", {class: "words"}, plain(news.instructions ?? "")),
    el("p", {class: "hint"}, "Its capabilities:"), tree(objectOf(news.capabilities))));
}

function showJob(number, job) {
  const id = `job${number}`;
  const isOver = own(job, "error") || own(job, "result");
  const isBad = own(job, "error") || objectOf(job.result).isError === true;
  const node = el("article", {id, class: "card " + (isBad ? "bad" : isOver ? "good" : "")},
    el("h2", {class: "name"}, line(job.title), isOver ? "" : " \u2026"),
    job.is_call ? button("Cancel", () => api("cancel", {job: number})) : null,
    job.error ? el("p", {class: "error"}, plain(job.error)) : null,
    job.size ? whole(number, job.size) : null,
    job.result ? outcome(job.result) : null);
  const old = byId(id);
  if (old) old.replaceWith(node); else byId("results").prepend(node);
  byId("tidy").hidden = false;
  const tool = tools.get(job.title);
  if (job.arguments && job.result && pageOf(tool)) addApp(node, tool, job);
}

function showQuestion(number, params) {
  const id = `question${number}`;
  byId(id)?.remove();
  if (params === null) return;
  const problem = el("p", {class: "error", role: "alert"});
  const send = (answer) => api("answer", {question: number, answer});
  const refuse = ["decline", "cancel"].map((action) =>
    button(action, () => attempt(problem, () => send({action}))));
  const accept = (content) => send({action: "accept", content});
  const card = el("article", {class: "card question", id},
    el("h2", {}, "The server asks"),
    el("p", {class: "words"}, plain(params.message ?? "What does the model say?")));
  if (own(params, "messages")) {
    const text = {properties: {text: {type: "string"}}, required: ["text"]};
    card.append(tree(params), formOf(text, "Send", accept, refuse));
  } else if (own(params, "url")) {
    // Nothing is opened: the user sees the address, and copies it.
    card.append(el("p", {class: "name"}, line(params.url, 5000)),
      button("Done there", () => attempt(problem, () => send({action: "accept"}))), ...refuse);
  } else {
    card.append(formOf(params.requestedSchema, "Send", accept, refuse));
  }
  card.append(problem);
  byId("questions").append(card);
  card.querySelector("textarea, input, select, button").focus();
}

// ---- The wire

const sifted = () => byId("sift").value.toLowerCase();
const sift = (node, wanted) => { node.hidden = !node.dataset.text.includes(wanted); };

function append(node, text) {
  const wire = getComputedStyle(byId("wire-messages")).overflowY === "auto"
    ? byId("wire-messages") : byId("wire");
  const isAtEnd = wire.scrollHeight - wire.scrollTop - wire.clientHeight < 50;
  node.dataset.text = text.slice(0, 20000).toLowerCase();
  sift(node, sifted());
  byId("wire-messages").append(node);
  if (isAtEnd) wire.scrollTop = wire.scrollHeight;
}

byId("sift").addEventListener("input", () => {
  for (const node of byId("wire-messages").children) sift(node, sifted());
});
byId("clear").addEventListener("click", async () => {
  await api("clear", {what: "wire"});
  byId("wire-messages").replaceChildren();
});

// A summary of a message, without the members that every request carries.
function inShort(message) {
  const {params, result, error} = objectOf(message);
  const {_meta, ...rest} = objectOf(params ?? result ?? error);
  return Object.keys(rest).length ? line(rest, 120) : "";
}

// A message, with its summary at the end.

function metaLast(value) {
  if (!isObject(value)) return value;
  const {_meta, ...rest} = value;
  for (const name of ["params", "result"]) {
    if (own(rest, name)) rest[name] = metaLast(rest[name]);
  }
  return _meta === undefined ? rest : {...rest, _meta};
}

function showWire(_, {direction, text, size, at}) {
  let message = null;
  try { message = JSON.parse(text); } catch { /* it is cut, or of HTTP */ }
  const {id, method, error} = objectOf(message);
  const arrow = direction === "-->" ? "\u2192" : "\u2190";
  const words = !isObject(message) ? line(text)
    : [method, id == null ? "" : `#${line(id)}`, inShort(message)].join(" ");
  const time = new Date(1000 * at).toLocaleTimeString([], {hour12: false});
  const node = el("details", {class: direction === "-->" ? "sent" : error ? "failure" : "received"},
    el("summary", {class: "name"}, `${arrow} ${plain(words)}`));
  node.addEventListener("toggle", () => {
    if (node.childElementCount > 1) return;
    const whole = size > text.length ? ", of which this is the beginning" : "";
    node.append(el("p", {class: "hint"}, `${time}, ${size} bytes${whole} `, copier(() => text)),
      message === null ? el("pre", {}, plain(text)) : tree(metaLast(message)));
  });
  append(node, text);
}

function showLog(_, {level, logger, text}) {
  append(el("div", {class: "log words"}, line(level), logger ? ` ${line(logger)}` : "",
    ": ", plain(text)), `${level} ${logger} ${text}`);
}

const SHOW = {state: showState, list: showList, job: showJob, question: showQuestion,
  wire: showWire, log: showLog, settings: showSettings};

async function poll() {
  let after = -1;
  for (;;) {
    try {
      const news = await api("poll", {after});
      if (after < news.since) {
        await tearDown(document);
        const places = "#lists, main section, #wire-messages, #questions";
        for (const place of document.querySelectorAll(places)) {
          place.replaceChildren();
        }
      }
      after = news.version;
      for (const [kind, key, value] of news.changes) SHOW[kind](key, value);
    } catch (error) {
      byId("status").className = "over";
      byId("status").textContent = "The inspector does not answer: " + error.message;
      after = -1;
      await new Promise((done) => setTimeout(done, 1000));
    }
  }
}

byId("again").addEventListener("click", () => attempt(byId("status"), () => api("connect")));
poll();
"""

PAGE = MARKUP.replace("{style}", STYLE).replace("{script}", SCRIPT)


if __name__ == "__main__":
    main()
