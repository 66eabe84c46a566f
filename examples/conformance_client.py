"""A client that does what the official conformance suite asks of one.

Teaches: one `Client` for every revision; what it answers by itself (forms with
defaults, questions in both eras, lost streams), and what a caller has to write: very
little.

Run by the suite: python3 examples/conformance_client.py URL
with the name of the scenario in the environment variable MCP_CONFORMANCE_SCENARIO.
"""

import json
import os
import sys

# mcp_lite.py is one folder up.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

from mcp_lite import Client, McpError  # noqa: E402

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
REVISION = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "")
CONTEXT = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")


def accept(form):
    """The user agrees to everything; the client fills in the form's defaults."""
    content = {}
    if "confirmed" in str(form):
        content["confirmed"] = True
    return {"action": "accept", "content": content}


VALUES = {"integer": 2, "number": 2.5, "boolean": True, "array": [], "object": {}}


def argument_for(schema):
    """Some value that a schema allows."""
    if "enum" in schema:
        return schema["enum"][0]
    return VALUES.get(schema.get("type"), "text")


def call_every_tool(client):
    """Call each tool with its required arguments."""
    for tool in client.list_tools():
        schema = tool["inputSchema"]
        arguments = {}
        for name in schema.get("required", []):
            arguments[name] = argument_for(schema["properties"][name])
        client.call_tool(tool["name"], arguments)


def read_everything(client):
    """Use each feature that the server has."""
    call_every_tool(client)
    for resource in client.list_resources():
        client.read_resource(resource["uri"])
    for prompt in client.list_prompts():
        client.get_prompt(prompt["name"])


def call_given(client):
    """Make the calls that the scenario lists, just as they are."""
    client.list_tools()
    for call in CONTEXT.get("toolCalls", []):
        client.call_tool(call["name"], call["arguments"])


def echo_schema(client):
    """Send a tool's schema back, to show that nothing in it was lost."""
    tools = {tool["name"]: tool for tool in client.list_tools()}
    schema = tools["json_schema_2020_12_tool"]["inputSchema"]
    client.call_tool("json_schema_echo", {"schema": schema})


# What the suite wants to see in a scenario; in the others it is every tool called.
LESSONS = {
    "initialize": Client.list_tools,
    "json-schema-ref-no-deref": Client.list_tools,
    "json-schema-2020-12-preservation": echo_schema,
    "http-standard-headers": read_everything,
    "http-custom-headers": call_given,
}


def main():
    url = sys.argv[-1]
    lesson = LESSONS.get(SCENARIO, call_every_tool)
    version = max(REVISION, "2025-11-25")
    # One scenario's server speaks another revision than the scenario is for:
    # there the client finds out.
    if SCENARIO == "sse-retry":
        version = "auto"
    with Client(url, version=version, on_elicit=accept, timeout=20) as client:
        lesson(client)


if __name__ == "__main__":
    try:
        main()
    except McpError as error:
        sys.exit(f"{SCENARIO}: {error.code} {error.message}")
