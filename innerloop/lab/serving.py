"""Start the lab: a socket on this machine only, the server behind it, and the browser."""

from __future__ import annotations

import contextlib
import socket
import threading
import webbrowser

import uvicorn

from innerloop.errors import InputError
from innerloop.lab.server import make_app
from innerloop.output import print_text

HOST = "127.0.0.1"
BACKLOG = 128


def open_socket(port: int) -> socket.socket:
    """Listen at a port of this machine alone; 0 stands for any free one."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise InputError(
            f"port {port} cannot be used ({error.strerror or error}): is a lab running already? "
            "choose another with --port, or --port 0 for any free one"
        ) from None
    return listener


def make_server() -> uvicorn.Server:
    """Make the server, quiet and without anything but HTTP."""
    return uvicorn.Server(
        uvicorn.Config(
            make_app(),
            log_level="error",
            access_log=False,
            server_header=False,
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=1,
        )
    )


def serve(port: int, *, open_browser: bool) -> None:
    """Serve the lab until it is stopped."""
    listener = open_socket(port)
    address = f"http://{HOST}:{listener.getsockname()[1]}"
    print_text(f"innerloop lab is at {address} (Ctrl-C stops it)")
    if open_browser:
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt), listener:
        make_server().run(sockets=[listener])
