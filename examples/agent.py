"""An agent in a page: a model that is given the tools of several servers.

Teaches: what a host does. It offers the tools to the model, asks the user, runs what
the model asks for, and tells it what came of that, until the model has an answer.

Run: python3 examples/agent.py ["a question" [mcp.json]]
The config file is what desktop clients have, with "mcpServers". Without one there are
two servers, and without a network the model is a script: see scripted_model().
"""

import json
import os
import sys

# mcp_lite.py is one folder up.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

from group import ClientGroup  # noqa: E402

from mcp_lite import McpError, NotFound, Server, ToolError  # noqa: E402

MAX_ROUNDS = 8  # a model that goes round in circles costs money

notes = Server("notes", version="1.0")


@notes.tool  # without readOnlyHint: it changes something
def write(text: str) -> str:
    """Write a note."""
    return f"written: {text}"


@notes.tool(annotations={"readOnlyHint": True})
def read(number: int) -> str:
    """Read a note."""
    raise NotFound(f"there is no note {number}")


SERVERS = {"files": os.path.join(HERE, "quickstart_server.py"), "notes": notes}


def scripted_model(messages, tools):
    """Stand for a model: return what it says next to the conversation so far.

    Messages and tools are as the common chat APIs have them. A real model goes here:

        body = {"model": "...", "messages": messages, "tools": tools}
        return post(".../v1/chat/completions", body)["choices"][0]["message"]

    Most of these APIs take names of tools of A-Z, a-z, 0-9, _ and -, 64 at most.
    """
    last = messages[-1]["content"]
    script = [
        ("notes_read", {"number": 7}),
        ("files_search", {"pattern": "def main("}),
        ("files_search", {"pattern": r"^def main\(", "limit": 1}),
        ("notes_write", {"text": f"found {last}"}),
    ]
    said = sum(message["role"] == "assistant" for message in messages)
    if said == len(script):
        return {
            "role": "assistant",
            "content": f"That is all. The last I heard: {last}",
        }
    name, arguments = script[said]
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"id": f"call_{said}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def run_agent(group, model, question, allow, max_rounds=MAX_ROUNDS):
    """Return what the model says in the end; None if it was not done after max_rounds.

    allow(name, arguments) asks the user before a tool runs that might change something.
    """
    tools = {tool["name"]: tool for tool in group.list_tools()}
    offered = []
    for name, tool in tools.items():
        function = {"name": name, "parameters": tool["inputSchema"]}
        function["description"] = tool.get("description", "")
        offered.append({"type": "function", "function": function})

    messages = [{"role": "user", "content": question}]
    for _ in range(max_rounds):
        message = model(messages, offered)
        messages.append(message)
        if not message.get("tool_calls"):
            return message["content"]
        for call in message["tool_calls"]:
            text = use_tool(group, tools, call["function"], allow)
            print(f"  {call['function']['name']}: {json.dumps(text)[:100]}")
            messages.append(
                {"role": "tool", "tool_call_id": call["id"], "content": text}
            )
    return None


def use_tool(group, tools, function, allow):
    """Run a tool, and return a text for the model, which may try again."""
    name = function["name"]
    if name not in tools:
        return f"Not done: there is no tool {name}."
    try:
        arguments = dict(json.loads(function["arguments"] or "{}"))
    except (TypeError, ValueError):
        return "Not done: the arguments must be a JSON object."
    # "clients MUST consider tool annotations to be untrusted unless they come from
    # trusted servers" (server/tools.md): with any other server, ask always.
    is_harmless = tools[name].get("annotations", {}).get("readOnlyHint") is True
    if not is_harmless and not allow(name, arguments):
        return "Not done: the user does not want it."
    try:
        value = group.call(name, **arguments)
    except ToolError as error:
        # It ran, and says in its own words what went wrong.
        return f"The tool failed: {error}"
    except McpError as error:
        # An error of the protocol: what was asked for cannot be done at all.
        return f"The call was refused, error {error.code}: {error}"
    except OSError as error:
        # Timeout and ConnectionClosed are of this kind.
        return f"The server did not answer: {error}"
    return value if isinstance(value, str) else json.dumps(value)


def ask_user(name, arguments):
    """Return whether the user says yes. Without a terminal, the answer is no."""
    try:
        return input(f"  Run {name} {json.dumps(arguments)}? [y/N] ").lower() == "y"
    except EOFError:
        return False


def main():
    question = sys.argv[1] if sys.argv[1:] else "Where does a program begin? Note it."
    source = sys.argv[2] if sys.argv[2:] else SERVERS
    with ClientGroup(source) as group:
        for name, error in group.errors.items():
            print(f"without {name}: {error}")
        print("servers:", ", ".join(group.clients))
        answer = run_agent(group, scripted_model, question, ask_user)
        print(answer or f"stopped: no answer after {MAX_ROUNDS} rounds")


if __name__ == "__main__":
    main()
