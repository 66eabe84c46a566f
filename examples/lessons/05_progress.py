"""Lesson 5: progress and cancellation.

Teaches: while a request is in flight, notifications may go both ways. The server reports
its progress, by a token that the client has put into the request. The client may cancel
the request; after that, the server sends nothing more for it. (Over HTTP, a client of
2026-07-28 sends no notification: it hangs up.)

Run: python3 examples/lessons/05_progress.py
"""

import os
import sys
import threading

# mcp_lite.py is two folders up, explain.py one.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.dirname(HERE))
sys.path.insert(1, os.path.dirname(os.path.dirname(HERE)))

from explain import Explainer  # noqa: E402

from mcp_lite import Cancelled, Client, Context, Server, Timeout  # noqa: E402

server = Server("bakery", version="1")
told = threading.Semaphore(0)
begun = threading.Semaphore(0)
ended = threading.Semaphore(0)


@server.tool
def bake(ctx: Context, loaves: int) -> str:
    """Bake loaves."""
    for n in range(loaves):
        ctx.progress(n + 1, loaves, f"loaf {n + 1}")
        told.acquire(timeout=10)  # until the client has heard it
    return "done"


@server.tool
def rest(ctx: Context) -> str:
    """Let the dough rest, for an hour."""
    begun.release()
    try:
        ctx.sleep(3600)  # raises Cancelled when the client has lost interest
    except Cancelled as error:
        print("*** the tool is cancelled:", error)
        raise
    finally:
        ended.release()  # tidy up here
    return "rested"


def hear(done, total, text):
    print(f"*** {text}: {done} of {total}")
    told.release()


# Lesson 2 has shown these.
opening = ("initialize", "notifications/initialized")
explainer = Explainer(without=opening)
with Client(server, protocol_version="2025-06-18", trace=explainer) as client:
    print("\nA call that asks for progress has a progressToken, in `_meta`:")
    client.call_tool("bake", {"loaves": 2}, on_progress=hear)

    print("\nA call that is cancelled. It is not answered:")
    call = client.start_call("rest")
    begun.acquire(timeout=10)
    call.cancel("the shop is closed")
    ended.acquire(timeout=10)

    print("\nA call that takes too long is cancelled by the client:")
    try:
        client.call_tool("rest", timeout=0.5)
    except Timeout as error:
        ended.acquire(timeout=10)
        print("*** Timeout:", error)

# Exercises
# 1. Make `rest` deaf: time.sleep(3) instead of ctx.sleep. Who waits now, and for what?
#    A thread cannot be stopped: what does the client get, and when?
# 2. Write a tool that reports progress for ever. Call it with an on_progress, from a
#    Client(timeout=1): it never ends (press Ctrl-C). Then add total_timeout=3. What is
#    each limit good for?
