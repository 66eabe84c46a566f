"""Blender as a server: a model builds a scene, with a window or without one.

Teaches: a timer that runs jobs on the main thread; in the background (blender -b), where
no timers run, a loop that does it. Everything is closed in order, so nothing is left.

Run: blender --python blender_host.py         serves http://127.0.0.1:9876/mcp
     blender -b --python blender_host.py      without a window, until `quit` is called
     python3 blender_host.py                  starts the latter, and drives it
"""

import os
import subprocess
import sys
import threading

# mcp_lite.py is in this folder, where Blender does not look, or two up.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[1:1] = [HERE, os.path.dirname(os.path.dirname(HERE))]

from mcp_lite import Client, Image, MainThread, Server, ToolError  # noqa: E402

try:
    import bpy
except ImportError:
    bpy = None  # This is not Blender, so it starts one and drives it.


def make_server(main, done):
    server = Server("blender", run_on=main)

    @server.tool(annotations={"readOnlyHint": True})
    def objects() -> list:
        """The names of all objects, with type and place."""
        return [
            [each.name, each.type, list(each.location)] for each in bpy.data.objects
        ]

    @server.tool
    def add_cube(x: float, y: float = 0.0, z: float = 0.0, size: float = 2.0) -> str:
        """Add a cube; returns its name."""
        bpy.ops.mesh.primitive_cube_add(size=size, location=(x, y, z))
        return bpy.context.object.name

    @server.tool
    def delete(name: str) -> None:
        """Delete an object."""
        if name not in bpy.data.objects:
            raise ToolError(f"no object {name!r}")
        bpy.data.objects.remove(bpy.data.objects[name])

    @server.tool
    def render(width: int = 320, height: int = 240, samples: int = 4) -> Image:
        """Render the scene, from its camera."""
        scene = bpy.context.scene
        scene.render.engine = "CYCLES"
        scene.cycles.samples = samples
        scene.cycles.use_denoising = False
        scene.render.resolution_x = width
        scene.render.resolution_y = height
        scene.render.filepath = os.path.join(bpy.app.tempdir, "mcp.png")
        bpy.ops.render.render(write_still=True)
        return Image(path=scene.render.filepath)

    @server.tool
    def quit() -> str:
        """End Blender. This answer still leaves."""
        done.set()
        return "goodbye"

    return server


def serve(port):
    main = MainThread()
    done = threading.Event()
    http = make_server(main, done).start_http(port=port)
    print(http.url, flush=True)

    def end():
        main.close()
        http.close()

    def pump():
        main.run_pending()
        if done.is_set():
            end()
            bpy.ops.wm.quit_blender()
        return 0.02

    if not bpy.app.background:
        # The timer survives the loading of another file, and repeats every 0.02 seconds.
        bpy.app.timers.register(pump, persistent=True)
        return
    while not done.is_set():
        main.run_pending(wait=1.0)
    end()


def drive(url):
    """Do what a model would do."""
    with Client(url, timeout=120) as client:
        print("added", client.call("add_cube", x=3, size=1))
        print([name for name, _, _ in client.call("objects")])
        client.call("delete", name="Cube")
        try:
            client.call("delete", name="Cube")
        except ToolError as error:
            print("refused:", error)
        picture = client.call_tool("render", {"width": 64, "height": 48})["content"][0]
        print("rendered", picture["mimeType"])
        print(client.call("quit"))


def main():
    options = sys.argv[1:] or ["-b"]
    command = [
        "blender",
        *options,
        "--factory-startup",
        "--python",
        __file__,
        "--",
        "0",
    ]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        universal_newlines=True,
    ) as host:
        try:
            drive(next(line.strip() for line in host.stdout if "http://" in line))
            host.communicate(timeout=30)
            print("Blender ended with", host.returncode)
        finally:
            host.kill()


if bpy is not None:
    serve(int(sys.argv[-1]) if sys.argv[-1].isdigit() else 9876)
elif __name__ == "__main__":
    main()
