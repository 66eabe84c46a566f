"""A client in one page: start a server as a child process, look around, call, read.

Teaches: calls block, return plain values, and raise an exception when something goes
wrong.

Run: python3 examples/quickstart.py
in any folder with text files. The server is examples/quickstart_server.py.
"""

import os
import sys

# mcp_lite.py is in this folder, or one up.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.dirname(HERE))

from mcp_lite import Client, ToolError  # noqa: E402


def main():
    # The server starts with the `with` block, and ends with it.
    with Client(os.path.join(HERE, "quickstart_server.py")) as client:
        name = client.server_info["name"]
        print(f"connected to {name}, speaking {client.protocol_version}")

        for tool in client.list_tools():
            print(f"  tool {tool['name']}: {tool['description']}")

        # The arguments are keywords, and the result is a Python value.
        counts = client.call("count_lines")
        for name, lines in counts.items():
            print(f"{lines:6} lines  {name}")

        for line in client.call("search", text="def ", limit=3):
            print("found", line)

        print("resource:", client.read("quickstart://machine"))

        try:
            client.call("search", text=" ")
        except ToolError as error:
            print("a tool error is an exception:", error)


if __name__ == "__main__":
    main()
