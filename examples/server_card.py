"""A server that is found by its domain: server cards, in both roles.

Teaches: `public_routes=`: what else a server's port answers to a GET, without a token.
A domain's catalog (/.well-known/ai-catalog.json) names the cards of its servers; a card
says where a server is and what it speaks. Whoever can serve the catalog can name any
server, so a client compares the card with what the server says of itself.
The rules: experimental-ext-server-card, docs/discovery.md.

Run: python3 examples/server_card.py 8000
serves at that port, finds the server by the domain alone, and calls it.
"""

import hashlib
import json
import os
import sys
import urllib.request

# mcp_lite.py is one folder up.
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from mcp_lite import LEGACY_VERSIONS, MODERN_VERSIONS, Client, Server  # noqa: E402

CARD = "application/mcp-server-card+json"
CATALOG = "application/ai-catalog+json"


def card_routes(server, site, name, description, path="/mcp"):
    """Return public_routes= for a server: its card, and a catalog of this one server.

    site: where clients reach it: "https://acme.org"
    name: in reverse DNS: "org.acme/weather"
    path: where its endpoint is
    """
    card = {
        "$schema": "https://static.modelcontextprotocol.io/schemas/v1/"
        "server-card.schema.json",
        "name": name,
        "version": server.version,
        "description": description,
        "remotes": [
            {
                "type": "streamable-http",
                "url": site + path,
                "supportedProtocolVersions": [*LEGACY_VERSIONS, *MODERN_VERSIONS],
            }
        ],
    }
    domain, _, short = name.partition("/")
    entry = {
        # "urn:air:acme.org:mcp:weather"
        "identifier": f"urn:air:{'.'.join(domain.split('.')[::-1])}:mcp:{short}",
        "type": CARD,
        "url": f"{site}{path}/server-card",
    }
    return {
        f"{path}/server-card": document(CARD, card),
        "/.well-known/ai-catalog.json": document(
            CATALOG, {"specVersion": "1.0", "entries": [entry]}
        ),
    }


def document(kind, content):
    """Return a route that answers with a document, or with 304 to whoever has it."""
    body = json.dumps(content).encode()
    headers = {
        "Content-Type": kind,
        "Cache-Control": "public, max-age=3600",
        "ETag": f'"{hashlib.sha256(body).hexdigest()}"',
        # "MUST include appropriate CORS headers"
        "Access-Control-Allow-Origin": "*",
        "Access-Control-Allow-Methods": "GET",
        "Access-Control-Allow-Headers": "Content-Type, If-None-Match",
        "Access-Control-Expose-Headers": "ETag",
    }

    def answer(request):
        is_new = request.headers.get("if-none-match") != headers["ETag"]
        return 200 if is_new else 304, headers, body if is_new else b""

    return answer


def fetch(kind, url):
    request = urllib.request.Request(url, headers={"Accept": kind})
    with urllib.request.urlopen(request, timeout=10) as response:
        return json.load(response)


def find_servers(site):
    """Return the cards of a site's servers. site: "https://acme.org"."""
    catalog = fetch(CATALOG, site + "/.well-known/ai-catalog.json")
    return [
        # An entry has the card, or says where it is.
        entry.get("data") or fetch(CARD, entry["url"])
        for entry in catalog["entries"]
        if entry["type"] == CARD
    ]


def connect(card, **options):
    """Return a Client that is connected to the server of a card.

    Raises LookupError for a card without an HTTP endpoint, or one whose URL has
    variables for the user to fill in.
    """
    urls = [
        remote["url"]
        for remote in card["remotes"]
        if remote["type"] == "streamable-http" and "{" not in remote["url"]
    ]
    client = Client(urls[0], **options).connect()
    # "Clients SHOULD verify a Server Card's claims against the live connection"
    if client.server_info["version"] != card["version"]:
        print(f"{card['name']}: its card is of {card['version']}", file=sys.stderr)
    return client


def main():
    server = Server("weather", version="1.0")
    server.add_tool(lambda: "sun", name="forecast")
    # It stands in the card, so it must be known before the server serves.
    site = f"http://127.0.0.1:{sys.argv[1]}"
    routes = card_routes(server, site, "org.acme/weather", "Forecasts.")
    with server.start_http(port=int(sys.argv[1]), public_routes=routes):
        (card,) = find_servers(site)
        with connect(card) as client:
            print(client.call("forecast"))


if __name__ == "__main__":
    main()
