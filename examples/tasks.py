"""The extension Tasks in both roles: a tool call that continues after its first answer.

Teaches: how to build an extension from the public API. On the server, middleware answers
`tools/call` with a task while the tool keeps running (Context.detach), and three methods
report on the task. On the client, a handler for the extension's result type polls until
the task ends (Client(result_types=)), so client.call() works as usual.
The specification: https://modelcontextprotocol.io/extensions/tasks/overview (SEP-2663).

Run: python3 examples/tasks.py               a client, a server, a task with a question
     python3 examples/tasks.py --serve       the server alone, on stdio
     python3 examples/tasks.py --http 8000   the server alone, at a URL
For your own program, copy Tasks to a server, and task_options() to a client.
"""

import argparse
import contextlib
import datetime
import json
import logging
import os
import secrets
import sys
import threading
import time
import traceback

# mcp_lite.py is in this folder, or one up.
sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from mcp_lite import (  # noqa: E402
    Cancelled,
    Client,
    Context,
    InternalError,
    InvalidParams,
    McpError,
    MissingCapability,
    Server,
    ToolError,
    principal,
    printable,
)

TASKS = "io.modelcontextprotocol/tasks"
OVER = ("completed", "failed", "cancelled")
# Each running task has a thread. Beyond this number, calls are served without a task, or
# refused as busy if they need one. One caller cannot use up the tasks of another.
MAX_AT_WORK = 16  # of one principal
MAX_ALL_AT_WORK = 128
# Limits for finished tasks. Beyond them, tasks whose result has been read are dropped
# first, then the oldest; beyond the limit for all, those of the principal with the most.
MAX_KEPT = 100  # of one principal
MAX_BYTES = 16 << 20  # of the results of one principal, as JSON
MAX_ALL_KEPT = 1000
PATIENCE = 600.0  # seconds for which a task waits for an answer of its client
STEP = 0.05  # seconds between two checks whether a waiting call was cancelled
MAX_PAUSE = 60.0  # seconds between two polls of a client, whatever the server asks for


LOG = logging.getLogger("tasks")


def now():
    return datetime.datetime.now(datetime.timezone.utc).isoformat()


def owner_of(ctx):
    """Return the caller's principal as a text. Callers without a token share one."""
    return json.dumps(principal(ctx.auth), sort_keys=True)


# The server's role ###################################################################


class Task:
    """A call that continues: working <-> input_required, then one of OVER for good."""

    def __init__(self, owner, ttl, poll):
        # As owner_of() returns it. To anybody else, this task does not exist.
        self.owner = owner
        self.until = time.monotonic() + ttl
        self.changed = threading.Condition()
        # Guarded by `changed`, like everything below: the answer to tasks/get.
        self.state = {
            "taskId": secrets.token_urlsafe(24),
            "status": "working",
            "createdAt": now(),
            "lastUpdatedAt": now(),
            "ttlMs": int(ttl * 1000),
            "pollIntervalMs": int(poll * 1000),
        }
        # By key: the open questions, and the answers received so far.
        self.questions = {}
        self.answers = {}
        self.is_cancelled = False
        # Whether its outcome has been read, and the length of its result as JSON.
        self.was_read = False
        self.size = 0

    def is_over(self):
        return self.state["status"] in OVER

    def begin(self, ctx, call_next):
        """Continue the call on a thread."""
        self.cancel_work = ctx.detach(self.hear_progress, self.ask)
        threading.Thread(target=self.work, args=(call_next,), daemon=True).start()

    def work(self, call_next):
        try:
            # The result of a tool that fails has isError.
            self.set("completed", result=call_next())
        except Cancelled:
            self.set("cancelled")
        except McpError as error:
            data = {} if error.data is None else {"data": error.data}
            failure = {"code": error.code, "message": str(error), **data}
            self.set("failed", error=failure)
        except Exception:
            # The caller must not see internal details.
            LOG.error("a task failed: %s", printable(traceback.format_exc()))
            self.set("failed", error={"code": -32603, "message": "Internal error"})

    def set(self, status, **members):
        with self.changed:
            if "result" in members:
                self.size = len(json.dumps(members["result"]))
            self.state.update(members, status=status, lastUpdatedAt=now())

    def describe(self):
        with self.changed:
            asked = {"inputRequests": dict(self.questions)} if self.questions else {}
            self.was_read = self.is_over()
            return {**self.state, **asked}

    def hear_progress(self, done, total, message):
        part = f"{done}" if total is None else f"{done} of {total}"
        self.set(self.state["status"], statusMessage=f"{part} {message or ''}".strip())

    def ask(self, questions):
        """Wait for the client's answers. Raises Cancelled."""
        with self.changed:
            self.questions = dict(questions)
            self.answers = {}
            self.set("input_required")
            self.changed.wait_for(
                lambda: self.is_cancelled or not self.questions, PATIENCE
            )
            if self.questions or self.is_cancelled:
                self.questions = {}
                raise Cancelled("cancelled, or not answered in time")
            return self.answers

    def answer(self, responses):
        """Accept answers to open questions, and ignore all others."""
        with self.changed:
            for key in set(responses).intersection(self.questions):
                del self.questions[key]
                self.answers[key] = responses[key]
            if self.state["status"] == "input_required" and not self.questions:
                self.set("working")
            self.changed.notify_all()

    def cancel(self):
        """Ask the tool to stop: it sees ctx.cancelled. It may still succeed or fail."""
        with self.changed:
            self.is_cancelled = True
            self.changed.notify_all()
        self.cancel_work()


class Tasks:
    """Turns calls of some tools into tasks, for clients that know the extension.

    server: made with extensions={TASKS: {}}
    tools: the names of the tools whose calls become tasks
    only: the names of tools that cannot be called without a task; clients that do not
        know the extension get error -32021
    ttl: seconds from the creation of a task until it is dropped
    poll: seconds that a client should wait between two polls
    """

    def __init__(self, server, tools, only=(), ttl=3600.0, poll=1.0):
        self.tools = frozenset(tools)
        self.only = frozenset(only)
        self.ttl = ttl
        self.poll = poll
        # Serialises creating and dropping tasks.
        self.lock = threading.Lock()
        # By id, the oldest first. Guarded by `lock`, except for a single look-up.
        self.tasks = {}
        server.middleware(self.serve)
        server.method("tasks/get", extension=TASKS)(self.get)
        server.method("tasks/update", extension=TASKS)(self.update)
        server.method("tasks/cancel", extension=TASKS)(self.cancel)

    def serve(self, ctx: Context, method, params, call_next):
        """The middleware: answer a call of one of the tools with a task."""
        if method != "tools/call" or params.get("name") not in self.tools:
            return call_next()
        # "This extension is not defined" in a revision with sessions.
        is_modern = ctx.protocol_version >= "2026"
        knows = is_modern and TASKS in ctx.client_capabilities.get("extensions", {})
        is_only = params["name"] in self.only
        if not knows and is_only:
            needed = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
            raise MissingCapability("Missing required client capability", needed)
        task = self.make(owner_of(ctx)) if knows else None
        if task is None and is_only:
            raise InternalError(f"{params['name']}: busy, try again later")
        if task is None:
            return call_next()
        answer = {"resultType": "task", **task.describe()}
        try:
            task.begin(ctx, call_next)
        except BaseException:
            self.tasks.pop(task.state["taskId"], None)
            raise
        return answer

    def make(self, owner):
        """Return a new task, or None if too many are running."""
        with self.lock:
            self.forget_old()
            at_work = [each for each in self.tasks.values() if not each.is_over()]
            own = sum(each.owner == owner for each in at_work)
            if own >= MAX_AT_WORK or len(at_work) >= MAX_ALL_AT_WORK:
                return None
            task = Task(owner, self.ttl, self.poll)
            # "MUST NOT return CreateTaskResult until the task is durably created"
            self.tasks[task.state["taskId"]] = task
            return task

    def forget_old(self):
        """Cancel and drop expired tasks, then drop finished tasks beyond the limits.
        Call this with the lock held."""
        for key, task in list(self.tasks.items()):
            if time.monotonic() > task.until:
                del self.tasks[key]
                task.cancel()
        by_owner = {}
        for task in self.tasks.values():
            if task.is_over():
                by_owner.setdefault(task.owner, []).append(task)
        for kept in by_owner.values():
            # The last one is dropped first.
            kept.sort(key=lambda task: (task.was_read, -task.until))
            size = sum(task.size for task in kept)
            while len(kept) > MAX_KEPT or (size > MAX_BYTES and len(kept) > 1):
                task = kept.pop()
                size -= task.size
                del self.tasks[task.state["taskId"]]
        while sum(map(len, by_owner.values())) > MAX_ALL_KEPT:
            task = max(by_owner.values(), key=len).pop()
            del self.tasks[task.state["taskId"]]

    def find(self, ctx, params):
        """Return the caller's task. Raises InvalidParams."""
        with self.lock:
            self.forget_old()
        task = self.tasks.get(str(params.get("taskId")))
        if task is None or task.owner != owner_of(ctx):
            raise InvalidParams(f"Unknown task: {params.get('taskId')}")
        return task

    def get(self, ctx: Context, params):
        return self.find(ctx, params).describe()

    def update(self, ctx: Context, params):
        responses = params.get("inputResponses")
        if not isinstance(responses, dict):
            raise InvalidParams("inputResponses: expected an object")
        self.find(ctx, params).answer(responses)
        return {}

    def cancel(self, ctx: Context, params):
        self.find(ctx, params).cancel()
        return {}


# The client's role ###################################################################


def task_options(on_task=None):
    """Return options for a Client whose call() waits until tasks end.

    on_task: on_task(task) receives each state of a task, as sent by the server. With its
        taskId, follow_task() can continue after a crash.
    """

    def follow(call, task):
        # "MUST interpret this as an invalid response": of other requests than calls.
        if call.method != "tools/call":
            raise InternalError(f"{call.method}: answered with a task")
        return follow_task(call.client, task, on_task, call.check_open)

    return {"extensions": {TASKS: {}}, "result_types": {"task": follow}}


def follow_task(client, task, on_task=None, check=lambda: None):
    """Poll until a task ends, and answer its questions. Returns the result of the call.

    task: as the server sent it; or {"taskId": ...} for a task that began earlier
    check: called every now and then; if it raises, the task is cancelled

    Raises McpError if the task failed, and Cancelled if it was cancelled.
    """
    name = {"taskId": task["taskId"]}
    answered = set()
    try:
        while task.get("status") not in OVER:
            pause = min(task.get("pollIntervalMs", 0) / 1000, MAX_PAUSE)
            until = time.monotonic() + pause
            check()
            while time.monotonic() < until:
                time.sleep(min(STEP, max(0.0, until - time.monotonic())))
                check()
            task = client.request("tasks/get", name)
            if on_task is not None:
                on_task(task)
            questions = task.get("inputRequests", {})
            # A key that is used again later belongs to another question.
            answered.intersection_update(questions)
            # "SHOULD deduplicate inputRequests keys across consecutive polls"
            answers = {
                key: client.answer(questions[key]["method"], questions[key]["params"])
                for key in questions
                if key not in answered
            }
            if answers:
                answered.update(answers)
                client.request("tasks/update", {**name, "inputResponses": answers})
    except (Exception, KeyboardInterrupt):
        # Notify the server that nobody waits for the result any more.
        cancel_task(client, task)
        raise
    if task["status"] == "failed":
        error = task["error"]
        raise McpError(error["code"], error["message"], error.get("data"))
    if task["status"] == "cancelled":
        raise Cancelled(task.get("statusMessage", "the task was cancelled"))
    return task["result"]


def cancel_task(client, task):
    """Cancel a task. Ignores a server that is unreachable, or does not know the task."""
    with contextlib.suppress(McpError, OSError):
        client.request("tasks/cancel", {"taskId": task["taskId"]}, timeout=5)


# Both roles together #################################################################


def build_server(poll=0.2):
    server = Server("bakery", extensions={TASKS: {}})
    Tasks(server, tools=["bake"], poll=poll)

    @server.tool
    def bake(loaves: int, ctx: Context) -> str:
        """Bake some loaves, which takes a while."""
        if not 1 <= loaves <= 100:
            raise ToolError("loaves: expected 1 to 100")
        form = {"type": "object", "properties": {"flour": {"type": "string"}}}
        flour = ctx.elicit("Which flour?", form)["content"]["flour"]
        for n in range(1, loaves + 1):
            ctx.sleep(0.1)
            ctx.progress(n, loaves, "baked")
        return f"{loaves} loaves of {flour}"

    return server


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
    parser.error = lambda why: sys.exit(f"tasks: {why}; see --help")
    parser.add_argument("--serve", action="store_true", help="serve on stdio")
    parser.add_argument("--http", type=address, metavar="[HOST:]PORT")
    options = parser.parse_args()
    if options.http is not None:
        host, port = options.http
        build_server().run("http", host=host, port=port)
        return
    if options.serve:
        build_server().run()
        return

    def answer(params):
        print("the user is asked:", params["message"])
        return {"action": "accept", "content": {"flour": "rye"}}

    def show(task):
        print(task["status"], task.get("statusMessage", ""))

    command = [sys.executable, os.path.abspath(__file__), "--serve"]
    with Client(command, on_elicit=answer, **task_options(show)) as client:
        print(client.call("bake", loaves=5))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
