"""A Qt program as a server: a model sees and changes its widgets.

Teaches: a signal as `run_on`. Emitted on any thread, it is queued for the thread that
made its receiver, which is the one that may touch widgets. No timer is needed.

Run: python3 qt_host.py           with PySide6 (pip install PySide6-Essentials)
It drives itself from a thread, as a client would from outside. Without a display:
QT_QPA_PLATFORM=offscreen python3 qt_host.py
"""

import os
import sys
import threading

# mcp_lite.py is in this folder, or two up.
sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))

from PySide6.QtCore import QBuffer, QObject, Signal, Slot  # noqa: E402
from PySide6.QtWidgets import QApplication, QTextEdit  # noqa: E402

from mcp_lite import Client, Image, Server  # noqa: E402


class Runner(QObject):
    """Runs jobs on the thread that made it: runner.job.connect(runner.run)."""

    job = Signal(object)

    @Slot(object)
    def run(self, job):
        job()


def make_server(editor, runner):
    runner.job.connect(runner.run)
    server = Server("qt", run_on=runner.job.emit)

    @server.tool
    def write(text: str) -> int:
        """Write a line. Returns the number of lines."""
        editor.append(text)
        return editor.document().blockCount()

    @server.tool(annotations={"readOnlyHint": True})
    def picture() -> Image:
        """What the window shows."""
        buffer = QBuffer()
        editor.grab().save(buffer, "PNG")
        return Image(bytes(buffer.data()))

    @server.tool
    def quit() -> str:
        """End the program. This answer still leaves."""
        QApplication.quit()
        return "goodbye"

    return server


def drive(url):
    """Do what a model would do."""
    with Client(url) as client:
        print("lines:", client.call("write", text="Hello, world"))
        print("seen:", client.call_tool("picture")["content"][0]["mimeType"])
        print(client.call("quit"))


def main():
    program = QApplication(sys.argv)
    editor = QTextEdit()
    editor.show()
    # It is made on the thread that may touch widgets, and must be kept.
    runner = Runner()
    with make_server(editor, runner).start_http() as http:
        threading.Thread(target=drive, args=(http.url,), daemon=True).start()
        program.exec()


if __name__ == "__main__":
    main()
