"""A tool with a page: the extension MCP Apps, in the server's role.

Teaches: how `meta=` alone implements an extension. A tool names a resource, `ui://...`. A
host that knows the extension shows that page in a sandboxed frame beside the result. The
page speaks JSON-RPC with the host by postMessage: it receives the result, and may call
tools. Other hosts show the text.
The specification: ext-apps, specification/2026-01-26 (SEP-1865).

Run: python3 examples/apps.py                 acts as a host, and prints what it sees
     python3 examples/apps.py --serve         the server alone, on stdio
     python3 examples/apps.py --http 8000     the server alone, at a URL
     python3 examples/inspector.py --open -- python3 examples/apps.py --serve
The last command starts a host: call `roll` there.
"""

import argparse
import os
import random
import sys

# mcp_lite.py is in this folder, or one up.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.dirname(HERE))

from mcp_lite import Client, EmbeddedResource, Server, ToolError  # noqa: E402

UI = "io.modelcontextprotocol/ui"
PAGE_TYPE = "text/html;profile=mcp-app"
# A host that can show pages declares this.
HOST = {UI: {"mimeTypes": [PAGE_TYPE]}}

MAX_DICE = 100
MAX_SIDES = 1000

URI = "ui://dice/table"
PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Dice</title><style>
  body { font: 16px sans-serif; margin: 0; padding: 12px; color-scheme: light dark; }
  #dice { font-size: 48px; }
</style></head><body>
<div id="dice"></div>
<p id="sum">waiting for the dice</p>
<button id="roll" disabled>Roll again</button>
<script>
"use strict";
// ---- JSON-RPC by postMessage: a page is a client, and the host is its server.
const waiting = new Map();
let number = 0;
const send = (message) => parent.postMessage({jsonrpc: "2.0", ...message}, "*");

function request(method, params) {
  number += 1;
  send({id: number, method, params});
  return new Promise((resolve, reject) => waiting.set(number, {resolve, reject}));
}

addEventListener("message", ({source, data}) => {
  if (source !== parent || data?.jsonrpc !== "2.0") return;
  if (data.method === "ui/notifications/tool-input") sides = data.params.arguments.sides ?? 6;
  else if (data.method === "ui/notifications/tool-result") show(data.params);
  else if (data.method !== undefined && data.id !== undefined) {
    // "ui/resource-teardown", say: there is nothing to save.
    send({id: data.id, result: {}});
  } else if (waiting.has(data.id)) {
    const {resolve, reject} = waiting.get(data.id);
    waiting.delete(data.id);
    if (data.error) reject(new Error(data.error.message)); else resolve(data.result);
  }
});

// ---- The page
const byId = (id) => document.getElementById(id);
const FACES = "\\u2680\\u2681\\u2682\\u2683\\u2684\\u2685";
let sides = 6;

function show(result) {
  const {dice = [], sum} = result.structuredContent ?? {};
  byId("dice").textContent = dice.map((n) => FACES[n - 1] ?? ` ${n} `).join("");
  byId("sum").textContent = result.isError ? "no luck" : `${sum} in all`;
  const {width, height} = document.body.getBoundingClientRect();
  send({method: "ui/notifications/size-changed", params: {width, height}});
}

byId("roll").addEventListener("click", async () => {
  try {
    show(await request("tools/call", {name: "reroll", arguments: {sides}}));
  } catch (error) {
    byId("sum").textContent = error.message;
  }
});

request("ui/initialize", {
  protocolVersion: "2026-01-26",
  appInfo: {name: "dice", version: "1.0"},
  appCapabilities: {availableDisplayModes: ["inline"]},
}).then((host) => {
  byId("roll").disabled = host.hostCapabilities.serverTools === undefined;
  send({method: "ui/notifications/initialized", params: {}});
});
</script></body></html>
"""

server = Server("dice", extensions={UI: {}})


@server.tool(meta={"ui": {"resourceUri": URI}})
def roll(count: int = 2, sides: int = 6) -> dict:
    """Roll some dice: 100 at most, with 1,000 sides at most."""
    # A caller may ask for a billion.
    if not 1 <= count <= MAX_DICE or not 1 <= sides <= MAX_SIDES:
        raise ToolError(f"expected 1 to {MAX_DICE} dice with 1 to {MAX_SIDES} sides")
    dice = [random.randint(1, sides) for _ in range(count)]
    return {"dice": dice, "sum": sum(dice)}


# For the page's button. A host that knows the extension hides this tool from the model.
# Not every such host declares the extension, so visible= would hide it from the page, too.
@server.tool(meta={"ui": {"resourceUri": URI, "visibility": ["app"]}})
def reroll(sides: int = 6) -> dict:
    """Roll the dice again."""
    return roll(sides=sides)


@server.resource(URI, mime_type=PAGE_TYPE)
def table() -> EmbeddedResource:
    """The table that the dice are on."""
    # Without "csp", the page can reach no other origin.
    return EmbeddedResource(URI, PAGE, meta={"ui": {"prefersBorder": True}})


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
    parser.error = lambda why: sys.exit(f"apps: {why}; see --help")
    parser.add_argument("--serve", action="store_true", help="serve on stdio")
    parser.add_argument("--http", type=address, metavar="[HOST:]PORT")
    options = parser.parse_args()
    if options.http is not None:
        host, port = options.http
        server.run("http", host=host, port=port)
        return
    if options.serve:
        server.run()
        return
    with Client(server, extensions=HOST) as client:
        for tool in client.list_tools():
            print(tool["name"], tool["_meta"]["ui"])
        page = client.read_resource(URI)["contents"][0]
        print(page["mimeType"], page["_meta"], len(page["text"]), "characters")
        print(client.call("roll", count=3))


if __name__ == "__main__":
    main()
