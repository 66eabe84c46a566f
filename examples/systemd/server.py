"""A server that systemd starts when the first client connects.

Teaches: socket activation. systemd listens, and hands over the socket as descriptor 3. So
the port exists before the server does, and during its restarts, when requests wait and
none is refused. The server needs no right to open a port, nor a network. Tokens are a
systemd credential, which only this service can read; logs go to the journal.

Run: see mcp-lite.service. To try it without installing anything, in examples/systemd/:
systemd-socket-activate -l 127.0.0.1:8000 python3 server.py
"""

import json
import logging
import os
import socket
import sys

# mcp_lite.py is two folders up; installed, it is beside this file.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.dirname(os.path.dirname(HERE)))

from mcp_lite import Server  # noqa: E402

server = Server("systemd-example", version="1.0")


@server.tool
def which_process() -> int:
    """Tell which process answers."""
    return os.getpid()


def inherited_socket():
    """Return systemd's socket, or None if systemd has not started this process."""
    is_ours = os.environ.get("LISTEN_PID") == str(os.getpid())
    if not is_ours or os.environ.get("LISTEN_FDS") != "1":
        return None
    return socket.socket(fileno=3)


def read_tokens():
    """Return {token: claims} from the credential, or None if there is none. Then nobody
    needs a token."""
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    if folder is None:
        return None
    with open(os.path.join(folder, "tokens.json"), encoding="utf-8") as file:
        return json.load(file)


if __name__ == "__main__":
    # The journal adds the time. Each request gets a line; refusals are warnings.
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("mcp_lite.http").setLevel(logging.INFO)
    # The names by which clients reach this server, separated by commas.
    names = os.environ.get("MCP_HOSTS", "")
    server.run(
        "http",
        sock=inherited_socket(),
        verify=read_tokens(),
        allowed_hosts=names.split(",") if names else None,
        health="/health",
    )
