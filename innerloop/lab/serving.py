"""Start the lab: open a socket of this machine only, run the server, and open the browser."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import webbrowser

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from innerloop.errors import InputError
from innerloop.lab.server import make_app
from innerloop.output import print_text

HOST = "127.0.0.1"
BACKLOG = 128
MAX_HEADER_SECONDS = 5.0
"""Seconds within which the first line and the headers of a request must arrive."""


class ImpatientProtocol(H11Protocol):
    """HTTP protocol that closes a connection whose request does not arrive in time."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_headers()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:  # the headers are complete
            self._stop_waiting()
        elif self._deadline is None:
            self._wait_for_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait_for_headers(self) -> None:
        self._deadline = self.loop.call_later(MAX_HEADER_SECONDS, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def open_socket(port: int) -> socket.socket:
    """Return a socket that listens at a port of this machine only; 0 stands for any free port."""
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
    """Make a server for HTTP only, without WebSockets and without log messages below errors."""
    return uvicorn.Server(
        uvicorn.Config(
            make_app(),
            log_level="error",
            access_log=False,
            server_header=False,
            lifespan="off",
            ws="none",
            http=ImpatientProtocol,
            timeout_graceful_shutdown=1,
        )
    )


def serve(port: int, *, open_browser: bool) -> None:
    """Serve the lab until the user stops it."""
    listener = open_socket(port)
    address = f"http://{HOST}:{listener.getsockname()[1]}"
    print_text(f"innerloop lab is at {address} (Ctrl-C stops it)")
    if open_browser:
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt), listener:
        make_server().run(sockets=[listener])
