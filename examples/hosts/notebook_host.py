"""A notebook as a server: a model sees the variables of a live kernel, and runs code.

Teaches: an event loop that runs the functions. Calls wait while a cell is running, and
run after it. The user's names are left alone: this is one cell,

    import notebook_host; http = notebook_host.serve(get_ipython())

Run: python3 notebook_host.py          starts a kernel (pip install ipykernel
jupyter_client), runs that cell in it, and drives it as a client.
"""

import asyncio
import contextlib
import io
import os
import sys

# mcp_lite.py is in this folder, or two up.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.dirname(os.path.dirname(HERE)))

from mcp_lite import Client, Server, ToolError  # noqa: E402


def serve(shell, port=0):
    """Serve the notebook of this shell. Returns the handle: url, port, close()."""
    loop = asyncio.get_running_loop()
    server = Server("notebook", run_on=loop.call_soon_threadsafe)

    @server.tool(annotations={"readOnlyHint": True})
    def variables() -> dict:
        """The notebook's variables: name -> type."""
        hidden = set(shell.user_ns_hidden)
        return {
            name: type(value).__name__
            for name, value in shell.user_ns.items()
            if not name.startswith("_") and name not in hidden
        }

    @server.tool(annotations={"readOnlyHint": True})
    def show(name: str) -> str:
        """The repr() of a variable, shortened."""
        if name not in shell.user_ns:
            raise ToolError(f"no variable {name!r}")
        return repr(shell.user_ns[name])[:10_000]

    @server.tool
    def run(code: str) -> str:
        """Run code like a cell. Returns what it prints, and its value."""
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            outcome = shell.run_cell(code, store_history=False)
        if not outcome.success:
            raise ToolError(repr(outcome.error_before_exec or outcome.error_in_exec))
        value = "" if outcome.result is None else repr(outcome.result)
        return printed.getvalue() + value

    return server.start_http(port=port)


def main():
    from jupyter_client.manager import start_new_kernel

    manager, kernel = start_new_kernel()
    cell = (
        f"import sys; sys.path.insert(0, {HERE!r}); import notebook_host\n"
        "http = notebook_host.serve(get_ipython()); x = [1, 2, 3]; http.url"
    )
    try:
        shown = []
        kernel.execute_interactive(cell, output_hook=shown.append, timeout=20)
        told = [each["content"]["data"] for each in shown if "data" in each["content"]]
        with Client(told[0]["text/plain"].strip("'"), timeout=20) as client:
            print(client.call("variables"))
            print("x is", client.call("show", name="x"))
            print(client.call("run", code="y = sum(x)\nprint('the sum is', y)\ny * 2"))
            try:
                client.call("run", code="1 / 0")
            except ToolError as error:
                print("refused:", error)
            kernel.execute("import time; print('now'); time.sleep(1); y = 7")
            while kernel.get_iopub_msg(timeout=20)["msg_type"] != "stream":
                pass
            print("after the cell that runs:", client.call("show", name="y"))
    finally:
        manager.shutdown_kernel()
        kernel.stop_channels()


if __name__ == "__main__":
    main()
