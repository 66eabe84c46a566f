"""A server that systemd starts as soon as somebody comes.

Teaches: socket activation. systemd listens, and hands over the socket as descriptor 3:
so the port is there before the server is, and while it restarts, when requests wait and
none is refused; and no server needs rights for a port, or a network. Tokens come as a
credential of systemd's, that only this service can read; logs go to the journal.

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
sys.path.insert(0, os.path.dirname(os.path.dirname(HERE)))

from mcp_lite import Server  # noqa: E402

server = Server("systemd-example", version="1.0")


@server.tool
def which_process() -> int:
    """Tell which process answers."""
    return os.getpid()


def inherited_socket():
    """The socket that systemd listens at; None if it has not started this process."""
    is_ours = os.environ.get("LISTEN_PID") == str(os.getpid())
    if not is_ours or os.environ.get("LISTEN_FDS") != "1":
        return None
    return socket.socket(fileno=3)


def read_tokens():
    """{token: claims} from the credential; None, so that nobody needs one, without."""
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    if folder is None:
        return None
    with open(os.path.join(folder, "tokens.json"), encoding="utf-8") as file:
        return json.load(file)


if __name__ == "__main__":
    # The journal knows the time. A line for each request; refusals are warnings.
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("mcp_lite.http").setLevel(logging.INFO)
    # The names under which clients reach it, with commas between, as nginx passes them.
    names = os.environ.get("MCP_HOSTS", "")
    server.run(
        "http",
        sock=inherited_socket(),
        verify=read_tokens(),
        allowed_hosts=names.split(",") if names else None,
        health="/health",
    )
