"""LibreOffice Calc as a server on stdio: a model fills in a spreadsheet, and reads it.

Teaches: a server beside its host, which it reaches by the host's own protocol (UNO). It
starts the host at the first call, and ends it when it ends itself.

Run: put this into a desktop client's config: /usr/bin/python3 /path/to/calc_host.py serve
(the Python that has `uno`: Debian's python3-uno, or LibreOffice's own)
or python3 calc_host.py, which drives it as a client.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import time

# mcp_lite.py is in this folder, or two up.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.dirname(os.path.dirname(HERE)))

from mcp_lite import Client, Server, ToolError  # noqa: E402

# There is one document, so there is one call at a time.
server = Server("calc", max_workers=1)
# What has been started: "child", "folder", "desktop", "document".
office = {}


def connect(child, pipe):
    """Return the office's context, once the office listens. Raises ToolError."""
    import uno

    local = uno.getComponentContext()
    resolver = local.ServiceManager.createInstanceWithContext(
        "com.sun.star.bridge.UnoUrlResolver", local
    )
    while child.poll() is None:
        with contextlib.suppress(Exception):
            return resolver.resolve(f"uno:{pipe};urp;StarOffice.ComponentContext")
        # LibreOffice has no other way to say that it is ready.
        time.sleep(0.1)
    raise ToolError("LibreOffice does not start")


def start_office():
    """Start LibreOffice, hidden, with a profile of its own, and an empty document."""
    folder = tempfile.TemporaryDirectory()
    pipe = f"pipe,name=mcp{os.getpid()}"
    command = ["soffice", "--headless", "--norestore", f"--accept={pipe};urp"]
    child = subprocess.Popen(
        [*command, f"-env:UserInstallation=file://{folder.name}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    office.update(folder=folder, child=child)
    there = connect(child, pipe)
    # `uno` makes these modules.
    from com.sun.star.beans import PropertyValue

    office["desktop"] = there.ServiceManager.createInstanceWithContext(
        "com.sun.star.frame.Desktop", there
    )
    office["document"] = office["desktop"].loadComponentFromURL(
        "private:factory/scalc",
        "_blank",
        0,
        (PropertyValue(Name="Hidden", Value=True),),
    )


def cell(name):
    """Return a cell of the first sheet."""
    if "document" not in office:
        start_office()
    sheet = office["document"].Sheets.getByIndex(0)
    try:
        return sheet.getCellRangeByName(name).getCellByPosition(0, 0)
    except Exception:
        # UNO's exceptions are no help.
        raise ToolError(f"no cell {name!r}: expected one such as B7") from None


@server.tool
def write(cells: dict) -> int:
    """Write values and formulas: {"A1": "3", "A2": "=A1*14"}. Returns their number."""
    for name, text in cells.items():
        cell(name).setFormula(str(text))
    return len(cells)


@server.tool(annotations={"readOnlyHint": True})
def read(names: list) -> dict:
    """The cells' contents, with formulas computed."""
    return {name: cell(name).getString() for name in names}


@server.tool
def save(path: str) -> int:
    """Save as .ods; returns the size."""
    cell("A1")
    office["document"].storeToURL("file://" + os.path.abspath(path), ())
    return os.path.getsize(path)


def end_office():
    with contextlib.suppress(Exception):
        office["document"].close(True)
        office["desktop"].terminate()
        office["child"].wait(10)
    if "child" in office:
        office["child"].kill()
        office["child"].wait()
        office["folder"].cleanup()


def main():
    if sys.argv[1:] == ["serve"]:
        server.run()
        end_office()
        return
    command = ["/usr/bin/python3", os.path.abspath(__file__), "serve"]
    with Client(
        command, timeout=120
    ) as client, tempfile.TemporaryDirectory() as folder:
        print(client.call("write", cells={"A1": "3", "A2": "=A1*14", "A3": "=A1+A2"}))
        print(client.call("read", names=["A2", "A3"]))
        try:
            client.call("read", names=["nope"])
        except ToolError as error:
            print("refused:", error)
        path = os.path.join(folder, "mcp.ods")
        print("saved", client.call("save", path=path) > 1000)


if __name__ == "__main__":
    main()
