"""A client in one page: start a server as a child process, look around, call, read.

Teaches: blocking calls, values instead of envelopes, one plain exception when something goes wrong.
Run: `python3 examples/quickstart.py`, in any folder with text files.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))  # where mcp_lite.py is
from mcp_lite import Client, ToolError  # noqa: E402


def main():
    with Client(os.path.join(HERE, "quickstart_server.py")) as client:
        print(
            f"connected to {client.server_info['name']}, speaking {client.protocol_version}"
        )

        for tool in client.list_tools():
            print(f"  tool {tool['name']}: {tool['description']}")

        counts = client.call("count_lines")
        for name, lines in counts.items():
            print(f"{lines:6} lines  {name}")

        for line in client.call("search", pattern=r"^(class|def) \w+", limit=3):
            print("found", line)

        print("resource:", client.read("quickstart://machine"))

        try:
            client.call("search", pattern="(")
        except ToolError as error:
            print("a tool error is an exception:", error)


if __name__ == "__main__":
    main()
