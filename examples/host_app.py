"""A server inside a program with a main loop, a timer, and data for one thread only.

Teaches: with `Server(run_on=MainThread())`, tools, resources and prompts run on the
thread of the host's data, while HTTP is served in the background. A `quit` from outside
ends everything in order: the loop, the queue, the server.

Run: python3 examples/host_app.py
starts the program and drives it as a client. To drive it with another,
python3 examples/host_app.py --http 8000
serves http://127.0.0.1:8000/mcp until a client calls `quit`.
"""

import argparse
import os
import subprocess
import sys
import threading
import time

# mcp_lite.py is in this folder, or one up.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.dirname(HERE))

from mcp_lite import Client, MainThread, Server  # noqa: E402

# Seconds between two ticks of the program's timer.
TICK = 0.05


class Scene:
    """The program's data.

    Like the widgets of a toolkit, it may be used by the thread that made it only.
    """

    def __init__(self):
        self._owner = threading.current_thread()
        self._shapes = []
        self._ticks = 0
        self._open = True

    def __getattr__(self, name):
        # scene.shapes is this list, for the thread that may have it.
        if threading.current_thread() is not self._owner:
            raise RuntimeError(f"{name}: only for {self._owner.name}")
        return self.__dict__["_" + name]

    def tick(self):
        self._ticks += 1

    def close(self):
        self._open = False


def make_server(scene, main):
    """Make a plug-in. Its functions need not care about other threads."""
    server = Server("host-app", version="1.0", run_on=main)

    @server.tool
    def draw(shape: str) -> int:
        """Add a shape to the scene; returns how many there are."""
        scene.shapes.append(shape)
        return len(scene.shapes)

    @server.resource("scene://shapes")
    def shapes() -> list:
        """List what is in the scene."""
        # Another thread reads the result, so it must be a copy.
        return list(scene.shapes)

    @server.tool
    def ticks() -> int:
        """Return how often the program's own timer has run."""
        return scene.ticks

    @server.tool
    def quit() -> str:
        """End the program. This answer still leaves."""
        scene.close()
        return "goodbye"

    return server


def run_host(host, port):
    """Run the program: its loop serves the timer, and the jobs from outside."""
    scene = Scene()
    main = MainThread()
    with make_server(scene, main).start_http(host=host, port=port) as http:
        print(http.url, flush=True)
        due = time.monotonic() + TICK
        while scene.open:
            # A job ends this wait early.
            main.run_pending(wait=max(0.0, due - time.monotonic()))
            if time.monotonic() >= due:
                scene.tick()
                due += TICK
        # Jobs that come too late fail at once.
        main.close()
    # The end of `with` sends the answers that are left, and frees the port.


def drive(url):
    """Do what any client can do from outside."""
    with Client(url) as client:
        for shape in ("circle", "square"):
            count = client.call("draw", shape=shape)
            print("drew", shape, "and there are", count)
        print("in the scene:", client.read("scene://shapes"))

        # Calls run between the ticks, and do not delay them.
        before = client.call("ticks")
        while client.call("ticks") == before:
            pass
        print("the program's timer goes on")

        print("quit:", client.call("quit"))


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
    parser.error = lambda why: sys.exit(f"host_app: {why}; see --help")
    parser.add_argument("--http", type=address, metavar="[HOST:]PORT")
    options = parser.parse_args()
    if options.http is not None:
        try:
            run_host(*options.http)
        except OSError as error:
            sys.exit(f"host_app: {error}")
        return

    # Port 0 means any free one; the program prints its URL.
    command = [sys.executable, os.path.abspath(__file__), "--http", "0"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        universal_newlines=True,
    ) as host:
        try:
            url = host.stdout.readline().strip()
            drive(url)
            print("the program ended with", host.wait(10))
        finally:
            # It has ended already, unless something went wrong.
            host.kill()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
