"""Lesson 7: resources, prompts, and listening.

Teaches: the three things that a server offers, and who chooses each of them. The model
calls tools. The program reads resources, and may show them to the model: text or bytes,
each with a URI of its own or one that fits a template. The user picks a prompt, perhaps
as a slash command, and fills in its arguments, which the server completes. A client that
subscribes to a resource is notified when it changes, and reads it again: the change
itself is not sent. In a session there is a request for each subscription; in the modern
era, one request stays open for as long as the client listens.

Run: python3 examples/lessons/07_resources.py
"""

import os
import sys

# mcp_lite.py is two folders up, explain.py one.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.dirname(HERE))
sys.path.insert(1, os.path.dirname(os.path.dirname(HERE)))

from explain import Explainer  # noqa: E402

from mcp_lite import Client, NotFound, Server  # noqa: E402

# Lesson 2 has shown these.
OPENING = ("initialize", "notifications/initialized", "server/discover")
explainer = Explainer(without=OPENING)
server = Server("desk", version="1")
notes = {"today": "buy tea", "tomorrow": "bake bread"}


@server.resource("note://list", mime_type="application/json")
def names() -> list:
    """The names of all notes."""
    return sorted(notes)


@server.resource("note://{name}")
def note(name: str) -> str:
    """One note."""
    if name not in notes:
        raise NotFound(f"there is no note {name}")
    return notes[name]


@server.prompt
def plan(name: str) -> str:
    """Plan the day of a note."""
    return f"Make a plan of the day. This is to be done: {note(name)}."


@server.completion("plan", "name")
def complete_name(value: str) -> list:
    """The names that begin with this text."""
    return [name for name in names() if name.startswith(value)]


for version in ("2025-06-18", "2026-07-28"):
    print(f"\n{version}")
    notes["today"] = "buy tea"
    with Client(server, protocol_version=version, trace=explainer) as client:
        print("\nResources, and templates of resources:")
        print("***", [each["uri"] for each in client.list_resources()])
        templates = client.list_resource_templates()
        print("***", [each["uriTemplate"] for each in templates])
        print("\nReading a URI that fits the template:")
        print("***", client.read("note://today"))
        print("\nListening: when the note changes, it is read again.")
        with client.listen(uris=["note://today"]) as changes:
            notes["today"] = "drink tea"
            server.resource_updated("note://today")
            change = next(changes)
            print("***", change["method"], change["params"]["uri"])
            print("***", client.read(change["params"]["uri"]))
        print("\nPrompts: the user types `/plan tom`, and picks the completion.")
        print("***", [each["name"] for each in client.list_prompts()])
        (name,) = client.complete("plan", "name", "tom")
        (message,) = client.get_prompt("plan", {"name": name})["messages"]
        print("*** to the model:", message["content"]["text"])

# Exercises
# 1. Listen for list changes (client.listen() without uris), and meanwhile call
#    server.add_resource. In which revision does the client have to ask for that?
# 2. What happens to a change that comes between reading and subscribing? In which order
#    must a program do the two to miss nothing?
