"""A client that does what the official conformance suite asks of one: list, call, answer, come back.

Teaches: one `Client` for every revision; what it answers by itself (forms with defaults, questions in both
eras, lost streams), and what a caller has to write: very little.
Run by the suite: python3 examples/conformance_client.py URL, with the scenario in MCP_CONFORMANCE_SCENARIO
"""

import json
import os
import sys

sys.path.insert(
    0, os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
)  # where mcp_lite.py is
from mcp_lite import Client, McpError  # noqa: E402

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
REVISION = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "")
CONTEXT = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")


def accept(form):
    """The user agrees to everything; the client fills in the form's defaults."""
    return {
        "action": "accept",
        "content": {"confirmed": True} if "confirmed" in str(form) else {},
    }


def argument_for(schema):
    """Some value that a schema allows."""
    if "enum" in schema:
        return schema["enum"][0]
    some = {"integer": 2, "number": 2.5, "boolean": True, "array": [], "object": {}}
    return some.get(schema.get("type"), "text")


def call_every_tool(client):
    """Call each tool with its required arguments."""
    for tool in client.list_tools():
        schema = tool["inputSchema"]
        required = schema.get("required", [])
        client.call_tool(
            tool["name"],
            {name: argument_for(schema["properties"][name]) for name in required},
        )


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
    client.call_tool(
        "json_schema_echo", {"schema": tools["json_schema_2020_12_tool"]["inputSchema"]}
    )


LESSONS = {
    "initialize": Client.list_tools,
    "json-schema-ref-no-deref": Client.list_tools,
    "json-schema-2020-12-preservation": echo_schema,
    "http-standard-headers": read_everything,
    "http-custom-headers": call_given,
}


def main():
    url = sys.argv[-1]
    # One scenario's server speaks another revision than the scenario is for: there the client finds out.
    version = "auto" if SCENARIO == "sse-retry" else max(REVISION, "2025-11-25")
    with Client(url, version=version, on_elicit=accept, timeout=20) as client:
        LESSONS.get(SCENARIO, call_every_tool)(client)


if __name__ == "__main__":
    try:
        main()
    except McpError as error:
        sys.exit(f"{SCENARIO}: {error.code} {error.message}")
