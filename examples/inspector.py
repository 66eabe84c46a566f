"""An inspector: what a server offers, a form for each tool, and the wire beside it.

Teaches: what a client shows its user and asks, on mcp_lite's public parts alone; how a
local page is kept from strangers, and safe from what a server says. The Inspector
has the conversation, the Handler lets requests of the page in, and the page itself
(STYLE, MARKUP, SCRIPT) stands last. A tool with a page of its own (MCP Apps, see
apps.py) has it shown in a frame of another origin, which may call that server's tools.

Run: python3 examples/inspector.py TARGET [--protocol REVISION] [--header K:V] [--open]
prints a URL. TARGET is a URL, a script, or a command in quotes or behind `--`:
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
import re
import secrets
import sys
import threading
import time
import webbrowser
from contextlib import suppress
from functools import partial
from urllib.parse import parse_qs, urlsplit

# mcp_lite.py is one folder up.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

from mcp_lite import Client, McpError, validate  # noqa: E402

MAX_SHOWN = 2000  # messages, logs and calls that the page can show; the oldest go
MAX_WIRE = 20_000  # characters of a message on the wire
MAX_RESULT = 4 << 20  # characters of a result; of a longer one, the start is shown
MAX_BODY = 4 << 20  # bytes of a page's request
POLL_SECONDS = 20.0  # for which a page waits for changes before it asks again
# MCP Apps. What a page may ask the server for, and the form of the origins that it names.
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
    """Has a conversation with one server, and keeps what the pages show of it.

    The methods `api_...` are what a page may ask. Each gets the request's JSON and
    returns what is answered. Whatever takes time runs on a thread of its own, and its
    outcome is shown.
    """

    def __init__(self, target, **options):
        self.changed = threading.Condition()
        # (kind, key) -> (version, value), the latest last; guarded by `changed`, as
        # are the version and the version from which on this conversation is shown.
        self.shown = {}
        self.version = 0
        self.since = 0
        self.numbers = itertools.count(1)
        # What runs: number -> Call, or None if it is no call of a tool.
        self.jobs = {}
        # What the server asks: number -> (parameters, queue for the answer).
        self.questions = {}
        self.client = Client(
            target,
            name="mcp_lite inspector",
            on_elicit=self.ask,
            on_elicit_url=self.ask,
            on_sample=self.sample,
            on_log=self.log,
            stderr=partial(self.log, "stderr", logger=None),
            trace=self.trace,
            extensions=APPS,
            **options,
        )

    def show(self, kind, key, value):
        """Show a value on every page, in place of the last one with this key."""
        with self.changed:
            self.version += 1
            self.shown.pop((kind, key), None)
            self.shown[kind, key] = (self.version, value)
            if len(self.shown) > MAX_SHOWN:
                passing = (k for k in self.shown if k[0] not in ("state", "list"))
                del self.shown[next(passing)]
            self.changed.notify_all()

    # The conversation
    def run(self):
        """Connect, list what there is, and list it again with each change."""
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
            self.refresh()
            if "logging" in client.server_capabilities:
                client.set_log_level("info")
            # A server need not tell of changes.
            with suppress(McpError, TimeoutError):
                for _ in client.listen():
                    self.refresh()
        except Exception as error:
            self.show("state", 0, {"state": "over", "why": explain_error(error)})
            self.withdraw()

    def refresh(self):
        """Read every list again."""
        for kind, read in LISTS.items():
            try:
                self.show("list", kind, {"items": read(self.client)})
            except McpError as error:
                self.show("list", kind, {"items": [], "error": explain_error(error)})

    def log(self, level, data, logger):
        text = data if isinstance(data, str) else json.dumps(data)
        told = {"level": level, "logger": logger, "text": text[:MAX_WIRE]}
        self.show("log", next(self.numbers), told)

    def trace(self, direction, line):
        text = line[:MAX_WIRE].decode("utf-8", "replace")
        told = {"direction": direction, "text": text, "size": len(line)}
        self.show("wire", next(self.numbers), {**told, "at": time.time()})

    # What the server asks
    def ask(self, params):
        """Return what the user answers; None when the question is withdrawn. Blocks."""
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

    # What the user asks for
    def start(self, title, work, call=None, arguments=None):
        """Have a thread do it, and show what comes of it."""
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
                outcome["result"] = {"too long, begins with": text[:MAX_WIRE]}
        except Exception as error:
            outcome["error"] = explain_error(error)
            if isinstance(error, ConnectionError):
                self.show("state", 0, {"state": "over", "why": str(error)})
        del self.jobs[number]
        self.show("job", number, outcome)
        if not self.jobs:
            self.withdraw()

    def api_poll(self, asked):
        """Return what has changed since a version. Blocks until there is something."""
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
        # Progress is seen on the wire; it comes where a callback asks for it.
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

    def api_app(self, asked):
        """Return what the server answers to a page of its own. Blocks."""
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
        """Begin anew: a server that was changed is started again."""
        self.close()
        with self.changed:
            self.shown.clear()
            self.since = self.version
        threading.Thread(target=self.run, daemon=True).start()

    def close(self):
        self.client.close()
        self.withdraw()


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves the page to whoever has the token, and takes its requests; nothing else.

    Another page in the same browser can send requests here, too. It knows no token; its
    Origin gives it away; and where its own name points to this machine, Host does.
    """

    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_GET(self):
        url = urlsplit(self.path)
        token = parse_qs(url.query).get("token", [""])[0]
        origin = self.headers.get("Origin", self.origin())
        # To a browser, this name is another origin: that of the servers' pages.
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
        # A tab that was closed wants no answer.
        with suppress(OSError):
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

    def log_message(self, *_):
        """Say nothing: a log would have the token."""


def app_policy(csp, origin):
    """Return the policy for a server's page: what it declares, and nothing else.

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


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("target", nargs="+", help="a URL, a script, or a command")
    parser.add_argument("--protocol", default="auto", help="the one revision to speak")
    parser.add_argument("--header", action="append", default=[], metavar="K:V")
    parser.add_argument("--port", type=int, default=0, help="else any free one")
    parser.add_argument("--open", action="store_true", help="open the page")
    options = parser.parse_args()
    target = options.target if options.target[1:] else options.target[0]
    pairs = [header.partition(":") for header in options.header]
    headers = {name.strip(): value.strip() for name, _, value in pairs}
    inspector = Inspector(target, protocol_version=options.protocol, headers=headers)
    with PageServer(inspector, options.port) as server:
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


# The page. What a server says becomes text nodes, never markup: no innerHTML, and no
# attribute but an image's or a sound's data. If that were wrong somewhere, the policy
# still lets nothing run without this answer's nonce, and nothing leave.
POLICY = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; "
    "connect-src 'self'; img-src data:; media-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; frame-src http://{app}"
)
# That of a server's page. The page inside the frame inherits it.
APP_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' {resourceDomains}; "
    "style-src 'unsafe-inline' {resourceDomains}; img-src data: {resourceDomains}; "
    "font-src data: {resourceDomains}; media-src data: {resourceDomains}; "
    "connect-src {connectDomains}; frame-src {frameDomains}; object-src 'none'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors {origin}"
)

# "The Sandbox": it has another origin than the inspector, holds the server's page in a
# frame without any origin, and forwards what the two say to each other.
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
#wire > * { border-left: 3px solid var(--good); padding-left: .6rem; margin-bottom: .3rem; }
#wire > .sent { border-color: var(--accent); }
#wire > .failure { border-color: var(--bad); }
#wire > .log { border-color: var(--line); font-size: .85rem; }
@media (max-width: 60rem) { body { height: auto; } .columns { display: block; } }
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
  <button type="button" id="again">Connect again</button>
</header>
<section id="questions" aria-label="Questions of the server" aria-live="polite"></section>
<div class="columns">
  <nav aria-label="What the server offers"></nav>
  <main>
    <section id="item" aria-label="What is chosen"></section>
    <section id="results" aria-label="Results" aria-live="polite"></section>
  </main>
  <aside id="wire" aria-label="The wire" tabindex="0"></aside>
</div>
<script nonce="{nonce}">{script}</script>
</body>
</html>
"""

SCRIPT = r"""
"use strict";
const TOKEN = new URLSearchParams(location.search).get("token");
const MAX_TEXT = 100000;  // characters of a text
const MAX_ROWS = 500;  // members of a JSON value, or fields of a form
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
  // A child that is no node becomes a text.
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

// A picture or a sound; null for what could be a program.
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

// What a tool, a resource or a prompt has brought.
function outcome(result) {
  const nodes = arrayOf(result.content ?? result.contents).map(block);
  for (const message of arrayOf(result.messages).map(objectOf)) {
    nodes.push(el("p", {class: "hint"}, line(message.role)),
      [].concat(message.content).map(block));
  }
  return [...nodes, folded("As it came", result)];
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
  // Something or null: as something that may be left out.
  const options = arrayOf(current.anyOf).map(objectOf);
  const others = options.filter((each) => each.type !== "null");
  if (options.length === 2 && others.length === 1) {
    const {anyOf, ...beside} = current;
    return {...resolve(others[0], root), ...beside};
  }
  return current;
}

// The choices that a schema has: [value, label] each; null if it has none.
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

function field(given, name, required, root) {
  const schema = resolve(given, root);
  const items = schema.type === "array" ? choicesOf(resolve(schema.items, root)) : null;
  const choices = items ?? choicesOf(schema);
  const chosen = own(schema, "default") ? [].concat(schema.default) : [];
  const made = choices ? select(choices, chosen, Boolean(items)) : entry(schema, required);
  const id = `field${fields += 1}`;
  made.node.id = id;
  made.node.setAttribute("aria-describedby", `${id}-hint`);
  const hint = [schema.type, schema.format, schema.description ?? schema.title];
  return {read: made.read, node: el("div", {class: "field"},
    el("label", {for: id, class: "name"}, line(name), required ? " (required)" : ""),
    made.node, el("div", {class: "hint", id: `${id}-hint`},
      hint.filter(Boolean).map((each) => line(each, 1000)).join(" \u00b7 ")))};
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

// What a page asks for: method -> (params) -> the result.
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
  "ui/message": (params) => { told("message", params.content); return {}; },
  "ui/update-model-context": (params) => { told("context", params); return {}; },
};

const told = (kind, value) =>
  showLog(0, {level: "page", logger: kind, text: JSON.stringify(value) ?? ""});

// A frame that shows a tool's page, with what the tool was given and has returned.
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
    "notifications/message": (params) => told("log", params.data),
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

// Ask all pages in a place to end, and wait until they have.
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

function present(item, ...nodes) {
  byId("item").replaceChildren(el("div", {class: "card"},
    el("h2", {class: "name"}, line(item.name ?? item.uri)),
    item.description ? el("p", {class: "words"}, plain(item.description)) : null,
    nodes, folded("As it is listed", item)));
}

function presentTool(tool) {
  present(tool, formOf(tool.inputSchema, "Call", (given) =>
    api("call", {name: tool.name, arguments: given})));
}

// A template's variables are filled in by hand.
function presentResource(item) {
  const uri = {type: "string", default: item.uri ?? item.uriTemplate};
  present(item, formOf({properties: {uri}, required: ["uri"]}, "Read", (given) =>
    api("read", given)));
}

function presentPrompt(prompt) {
  const properties = Object.create(null);
  const required = [];
  for (const each of arrayOf(prompt.arguments).map(objectOf)) {
    properties[String(each.name)] = {type: "string", description: each.description};
    if (each.required === true) required.push(String(each.name));
  }
  present(prompt, formOf({properties, required}, "Get", (given) =>
    api("prompt", {name: prompt.name, arguments: given})));
}

const PRESENT = {tools: presentTool, resources: presentResource,
  templates: presentResource, prompts: presentPrompt};

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
      return el("li", {}, each);
    })));
  const old = byId("list-" + kind);
  if (old) old.replaceWith(node); else document.querySelector("nav").append(node);
}

// ---- What comes from the inspector

function showState(_, news) {
  const server = objectOf(news.server);
  byId("status").className = news.state;
  byId("status").textContent = news.state === "connecting" ? "connecting" : news.why
    ? plain(news.why) : `${line(server.name)} ${line(server.version ?? "")}, revision `
      + `${line(news.version)} (${news.version < "2026" ? "legacy" : "modern"})`;
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
    job.result ? outcome(job.result) : null);
  const old = byId(id);
  if (old) old.replaceWith(node); else byId("results").prepend(node);
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

function append(node) {
  const wire = byId("wire");
  const isAtEnd = wire.scrollHeight - wire.scrollTop - wire.clientHeight < 50;
  wire.append(node);
  if (isAtEnd) wire.scrollTop = wire.scrollHeight;
}

function showWire(_, {direction, text, size, at}) {
  let message = null;
  try { message = JSON.parse(text); } catch { /* it is cut, or of HTTP */ }
  const {id, method, error, result, params} = objectOf(message);
  const arrow = direction === "-->" ? "\u2192" : "\u2190";
  const words = !isObject(message) ? line(text)
    : [method, id == null ? "" : `#${line(id)}`, line(params ?? result ?? error, 120)].join(" ");
  const time = new Date(1000 * at).toLocaleTimeString([], {hour12: false});
  const node = el("details", {class: direction === "-->" ? "sent" : error ? "failure" : "received"},
    el("summary", {class: "name"}, `${arrow} ${plain(words)}`));
  node.addEventListener("toggle", () => {
    if (node.childElementCount > 1) return;
    node.append(el("p", {class: "hint"}, `${time}, ${size} bytes`),
      message === null ? el("pre", {}, plain(text)) : tree(message));
  });
  append(node);
}

function showLog(_, {level, logger, text}) {
  append(el("div", {class: "log words"}, line(level), logger ? ` ${line(logger)}` : "",
    ": ", plain(text)));
}

const SHOW = {state: showState, list: showList, job: showJob, question: showQuestion,
  wire: showWire, log: showLog};

async function poll() {
  let after = -1;
  for (;;) {
    try {
      const news = await api("poll", {after});
      if (after < news.since) {
        await tearDown(document);
        for (const place of document.querySelectorAll("nav, main section, aside, #questions")) {
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
