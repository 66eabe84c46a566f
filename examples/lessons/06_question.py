"""Lesson 6: questions to the user and to the model, in both eras side by side.

Teaches: a tool may need to ask the user something (elicitation), or have the client's
model write something (sampling), as the server has no model of its own. In a session, the
server sends the client a request, and the tool waits. In the modern era, a server never
sends requests: its *result* says what it wants to know. The client calls again with the
answers, so the function runs again from the top.

Run: python3 examples/lessons/06_question.py
"""

import os
import sys

# mcp_lite.py is two folders up, explain.py one.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.dirname(HERE))
sys.path.insert(1, os.path.dirname(os.path.dirname(HERE)))

from explain import Explainer  # noqa: E402

from mcp_lite import Client, Context, Server  # noqa: E402

# Lesson 2 has shown these.
OPENING = ("initialize", "notifications/initialized", "server/discover")
explainer = Explainer(without=(*OPENING, "progressToken"), with_sides=True)
server = Server("travel", version="1")
FORM = {
    "type": "object",
    "properties": {"day": {"type": "string", "enum": ["Monday", "Friday"]}},
    "required": ["day"],
}


@server.tool
def book(ctx: Context, city: str) -> str:
    """Book a journey."""
    print("*** the function begins")
    number = ctx.once("number", reserve)  # once, however often this function runs
    answer = ctx.elicit(f"To {city}, on which day?", FORM)
    if answer["action"] != "accept":  # the others are "decline" and "cancel"
        return "not booked"
    print("*** the function goes on")
    return f"number {number}: {city}, {answer['content']['day']}"


def reserve():
    print("*** a place is reserved")
    return 7


@server.tool
def praise(ctx: Context, city: str) -> str:
    """Have the client's model praise a city."""
    answer = ctx.sample(f"Praise {city} in two words.", max_tokens=20)
    return answer["content"]["text"]


def ask_the_user(params):
    print("*** the user is asked:", params["message"])
    return {"action": "accept", "content": {"day": "Friday"}}


def ask_the_model(params):
    # "there SHOULD always be a human in the loop": a host shows this to its user first.
    print("*** the model is asked:", params["messages"][-1]["content"]["text"])
    return "Fjords, waffles."


for version, era in (("2025-06-18", "Legacy"), ("2026-07-28", "Modern")):
    print(f"\n{era}, {version}: a question to the user")
    callbacks = {"on_elicit": ask_the_user, "on_sample": ask_the_model}
    with Client(
        server, protocol_version=version, trace=explainer, **callbacks
    ) as client:
        print("*** value:", client.call("book", city="Oslo"))
        print("\nThe same with the model, which the client pays for:")
        print("*** value:", client.call("praise", city="Oslo"))
print(
    "\nIn the modern era, the function ran twice, but ctx.once() called reserve() once."
)

# Exercises
# 1. Remove ctx.once: number = reserve(). In which era is a place reserved twice?
# 2. Write trace=print instead of trace=explainer to see the whole requestState, which the
#    client sends back. Decode the part before its dot, which is base64. It says that the
#    place is reserved, so a cheating client might want to forge it. Send one of your own,
#    in the modern era:
#    client.request("tools/call", {"name": "book", "arguments": {"city": "Oslo"},
#    "requestState": "x"}). Why is it refused? See Signer in mcp_lite.py.
