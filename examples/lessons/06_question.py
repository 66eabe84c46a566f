"""Lesson 6: a question to the user, in both eras side by side.

Teaches: a tool may need to know more (elicitation). In a session the server sends the
client a request of its own, and the tool waits. In the modern era a server never sends
requests: its *result* says what it wants to know, and the client calls again with the
answers, so the function runs again from its top.

Run: python3 examples/lessons/06_question.py
"""

import os
import sys

# mcp_lite.py is two folders up.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(os.path.dirname(HERE)))

from mcp_lite import Client, Context, Server  # noqa: E402

server = Server("travel", version="1")
FORM = {
    "type": "object",
    "properties": {"day": {"type": "string", "enum": ["Monday", "Friday"]}},
    "required": ["day"],
}


@server.tool
def book(ctx: Context, city: str) -> str:
    """Book a journey."""
    print("    * the function begins")
    number = ctx.once("number", reserve)  # once, however often the function runs
    answer = ctx.elicit(f"To {city}, on which day?", FORM)
    if answer["action"] != "accept":  # or "decline", or "cancel": ask no more
        return "not booked"
    print("    * the function goes on")
    return f"number {number}: {city}, {answer['content']['day']}"


def reserve():
    print("    * a place is reserved")
    return 7


def ask_the_user(params):
    print("    * the user is asked:", params["message"])
    return {"action": "accept", "content": {"day": "Friday"}}


def show(direction, line):
    text = line.decode("utf-8")
    if "book" in text or "elicitation" in text or "Friday" in text:
        print("   ", direction, text if len(text) < 420 else text[:410] + " ...")


for version, era in (("2025-06-18", "Legacy"), ("2026-07-28", "Modern")):
    print(f"\n{era}, {version}")
    with Client(server, version=version, trace=show, on_elicit=ask_the_user) as client:
        print("    value:", client.call("book", city="Oslo"))

# Exercises
# 1. Take ctx.once away: number = reserve(). In which era is a place reserved twice?
# 2. Look at the requestState that the client sends back: it holds what was answered
#    before. Change a letter of it in a client of your own (lesson 2 shows how). Why does
#    the server notice? See Signer in mcp_lite.py, and basic/patterns/mrtr.md.
