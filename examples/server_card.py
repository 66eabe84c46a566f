"""A server that is found by its domain: server cards, in both roles.

Teaches: `public_routes=`, for other GET requests to a server's port, without a token. A
domain's catalog (/.well-known/ai-catalog.json) names the cards of its servers; a card
says where a server is and which revisions it speaks. Whoever can serve the catalog can
name any server, so a client compares the card with what the server says about itself.
The rules: experimental-ext-server-card, docs/discovery.md.

Run: python3 examples/server_card.py --http 8000
serves at that port, finds the server by the domain alone, and calls it.

Whoever serves a card or a catalog is a stranger. They may name http and https URLs only:
a Client would take any other text for a command, and urllib would read a file. A
malformed card is skipped.
"""

import argparse
import hashlib
import json
import os
import re
import socket
import sys
import urllib.request
from urllib.parse import urlsplit

# mcp_lite.py is in this folder, or one up.
sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from mcp_lite import (  # noqa: E402
    LEGACY_VERSIONS,
    MODERN_VERSIONS,
    Client,
    Server,
    printable,
)

MAX_DOCUMENT = 1 << 20  # bytes
MAX_CARDS = 100  # of a catalog
CARD = "application/mcp-server-card+json"
CATALOG = "application/ai-catalog+json"


def card_routes(server, site, name, description, path="/mcp"):
    """Return public_routes= for a server: its card, and a catalog of this one server.

    site: the origin that clients use, such as "https://acme.org"
    name: in reverse DNS, such as "org.acme/weather"
    path: of the endpoint
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
    """Return a route that answers with a document, or with 304 if the client has it."""
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


def is_web(url):
    """Return whether a value is a URL of the web, with a host and no variables."""
    if not isinstance(url, str) or re.search(r"[\x00-\x20\x7f{}\\]", url):
        return False
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        return False


class WebOnly(urllib.request.HTTPRedirectHandler):
    """Follows redirects to http and https alone."""

    def redirect_request(self, request, reply, code, message, headers, url):
        if not is_web(url):
            raise ValueError(f"redirected to {url!r}")
        return super().redirect_request(request, reply, code, message, headers, url)


def fetch(kind, url):
    """Return a JSON document from the web. Raises ValueError, OSError."""
    if not is_web(url):
        raise ValueError(f"expected an http or https URL, got {url!r}")
    request = urllib.request.Request(url, headers={"Accept": kind})
    with urllib.request.build_opener(WebOnly).open(request, timeout=10) as response:
        document = json.loads(response.read(MAX_DOCUMENT))
    if not isinstance(document, dict):
        raise ValueError(f"{url}: expected an object")
    return document


def find_servers(site):
    """Return the cards of a site's servers. site: "https://acme.org".

    Raises ValueError and OSError where there is no catalog.
    """
    catalog = fetch(CATALOG, site + "/.well-known/ai-catalog.json")
    entries = catalog.get("entries")
    cards = []
    for entry in entries[:MAX_CARDS] if isinstance(entries, list) else ():
        if not isinstance(entry, dict) or entry.get("type") != CARD:
            continue
        try:
            # An entry has the card, or its URL.
            card = entry.get("data") or fetch(CARD, entry.get("url"))
        except (ValueError, OSError, RecursionError) as error:
            print(printable(f"without a card: {error}"), file=sys.stderr)
            continue
        if isinstance(card, dict):
            cards.append(card)
    return cards


def connect(card, **options):
    """Return a Client that is connected to the server of a card.

    Raises LookupError for a card without an HTTP endpoint, or one whose URL has
    variables for the user to fill in.
    """
    remotes = card.get("remotes")
    for remote in remotes if isinstance(remotes, list) else ():
        is_known = isinstance(remote, dict) and remote.get("type") == "streamable-http"
        # Client would take anything but a URL for a command.
        if is_known and is_web(remote.get("url")):
            break
    else:
        raise LookupError(f"{card.get('name')}: no remote with an http or https URL")
    client = Client({"url": remote["url"]}, **options).connect()
    # "Clients SHOULD verify a Server Card's claims against the live connection"
    if client.server_info["version"] != card.get("version"):
        warning = f"{card.get('name')}: its card is of {card.get('version')}"
        print(printable(warning), file=sys.stderr)
    return client


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
    parser.error = lambda why: sys.exit(f"server_card: {why}; see --help")
    parser.add_argument("--http", type=address, required=True, metavar="[HOST:]PORT")
    options = parser.parse_args()
    server = Server("weather", version="1.0")
    server.add_tool(lambda: "sun", name="forecast")
    host, port = options.http
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        sock = socket.create_server((host, port), family=family)
    except OSError as error:
        sys.exit(f"server_card: {error}")
    # The card has the port, so it must be known before the server serves.
    port = sock.getsockname()[1]
    site = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    routes = card_routes(server, site, "org.acme/weather", "Forecasts.")
    with server.start_http(sock=sock, public_routes=routes):
        (card,) = find_servers(site)
        with connect(card) as client:
            print(client.call("forecast"))


if __name__ == "__main__":
    main()
