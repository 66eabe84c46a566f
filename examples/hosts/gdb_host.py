"""A debugger as a server: a model runs your program in gdb, and looks at it.

Teaches: a host that can be asked to run something soon (MainThread(post=)); tools that
run on its main thread, beside one that waits elsewhere (run_on=None); and a cancelled
call that interrupts the program.

Run: gdb -x gdb_host.py --args ./your_program     gdb prints the URL, at any free port
     PORT=8000 gdb -x gdb_host.py ...             at this one
     python3 gdb_host.py                          starts gdb with a program and drives it
"""

import os
import queue
import signal
import subprocess
import sys

# mcp_lite.py is in this folder, where gdb does not look, or two up.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[1:1] = [HERE, os.path.dirname(os.path.dirname(HERE))]

from mcp_lite import Client, Context, MainThread, Server, Timeout, ToolError  # noqa: E402

try:
    import gdb
except ImportError:
    gdb = None  # This is not gdb, so it starts one and drives it.


def is_running():
    thread = gdb.selected_thread()
    return thread is not None and thread.is_running()


def run(command):
    try:
        return gdb.execute(command, to_string=True)
    except gdb.error as error:
        raise ToolError(str(error)) from None


def make_server(main):
    server = Server("gdb", run_on=main, instructions="`go` runs the program.")
    add_go(server, main)

    @server.tool
    def execute(command: str) -> str:
        """Run a gdb command that does not run the program, such as print, info or x."""
        if is_running():
            # Now, some commands would end gdb itself.
            raise ToolError("the program is running: wait for `go`, or cancel it")
        return run(command)

    @server.tool
    def breakpoints(places: list) -> list:
        """Set breakpoints at places such as "main" or "file.c:7". Returns all of them."""
        for place in places:
            run(f"break {place}")
        return [each.location for each in gdb.breakpoints()]

    @server.tool
    def backtrace() -> list:
        """The frames where the program has stopped, the innermost first."""
        places = []
        frame = gdb.newest_frame()
        while frame is not None:
            place = frame.find_sal()
            places.append(f"{frame.name()} at {place.symtab}:{place.line}")
            frame = frame.older()
        return places

    @server.tool
    def memory(address: str, count: int) -> str:
        """Bytes at an address or expression, as hex digits."""
        where = int(gdb.parse_and_eval(f"(long)({address})"))
        return bytes(gdb.selected_inferior().read_memory(where, count)).hex()

    return server


def add_go(server, main):
    # It waits, which the main thread must not do. Only what needs gdb runs there.
    @server.tool(run_on=None)
    def go(command: str, ctx: Context) -> str:
        """Run the program: run, continue, next, step or finish. The answer comes when it
        stops. Cancelling the call stops it."""
        events = queue.SimpleQueue()

        def begin():
            gdb.events.stop.connect(events.put)
            gdb.events.exited.connect(events.put)
            # Without the "&", gdb would be blocked until the program stops.
            run(f"{command} &")

        def end():
            gdb.events.stop.disconnect(events.put)
            gdb.events.exited.disconnect(events.put)
            if is_running():
                gdb.execute("interrupt")

        try:
            main.call(begin)
            while events.empty():
                ctx.sleep(0.01)
        finally:
            main.call(end)
        has_ended = isinstance(events.get(), gdb.ExitedEvent)
        return "the program has ended" if has_ended else main.call(lambda: run("frame"))


def serve():
    """Serve this gdb, until it quits."""
    main = MainThread(post=gdb.post_event)
    # gdb handles these signals on its main thread, so no other thread may receive them.
    signals = (signal.SIGCHLD, signal.SIGINT, signal.SIGALRM, signal.SIGWINCH)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    http = make_server(main).start_http(port=int(os.environ.get("PORT", "0")))
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    gdb.events.gdb_exiting.connect(lambda event: (main.close(), http.close(0.5)))
    print(http.url, flush=True)


def drive(url):
    """Do what a model would do."""
    with Client(url, timeout=20) as client:
        print(client.call("go", command="starti"))
        print("stack:", client.call("memory", address="$sp", count=16))
        try:
            client.call_tool("go", {"command": "continue"}, timeout=1)
        except Timeout:
            print("it runs on; the call was cancelled, and that interrupts it")
        said = "the program is running"
        while "is running" in said:
            # Until the program has stopped, this is an error.
            result = client.call_tool("execute", {"command": "info line"})
            said = result["content"][0]["text"]
        print(client.call("backtrace")[0])
        print(client.call("execute", command="kill"))


def main():
    command = ["gdb", "-q", "-nx", "-x", __file__, "--args", "/bin/sleep", "60"]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        universal_newlines=True,
    ) as host:
        try:
            drive(next(line.strip() for line in host.stdout if "http://" in line))
            host.communicate("quit\n", timeout=10)
            print("gdb ended with", host.returncode)
        finally:
            host.kill()


if gdb is not None:
    serve()
elif __name__ == "__main__":
    main()
