"""Serve the page's files, the list of scenes, and the scenes' answers. No user data are stored.

The server accepts requests of this machine only. A request must name this machine as its host,
which stops other websites whose domain name points to this machine. If a page sent the request, it
must be the lab's own page.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from innerloop import __version__
from innerloop.errors import InputError
from innerloop.jsonfiles import parse_object
from innerloop.lab.scene import Scene, find_scene, load_scenes
from innerloop.locations import describe_failure
from innerloop.output import print_error

STATIC = Path(__file__).parent / "static"
HOSTS = ("127.0.0.1", "localhost")
MAX_BODY = 2 * 2**20
"""The largest number of bytes in the body of a request."""
MAX_BODY_SECONDS = 5.0
"""Seconds within which the body of a request must arrive."""
MAX_RUNNING = 4
"""The largest number of scenes that run at once; requests for files do not wait for them."""
MAX_TABS = 256
"""The largest number of pages whose latest request is remembered."""
PATIENCE, BEAT = 0.25, 0.15
"""Seconds until the first report of an answer's progress, and between two reports."""
HEADERS = {
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",
}


class SupersededError(Exception):
    """Raised if a later request of the same page has replaced this one, or the page is closed."""


class Guard:
    """Middleware that rejects requests for other hosts or from other pages.

    It also adds the security headers to every answer.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                additions = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *additions]}
            await send(message)

        headers = Request(scope).headers
        host, origin = headers.get("host", ""), headers.get("origin")
        if host.rpartition(":")[0] not in HOSTS and host not in HOSTS:
            refusal = refuse(421, "the lab answers at http://127.0.0.1 only, not to other hosts")
            return await refusal(scope, receive, send_with_headers)
        if origin not in (None, f"http://{host}"):
            refusal = refuse(403, "the lab answers its own page only")
            return await refusal(scope, receive, send_with_headers)
        return await self.app(scope, receive, send_with_headers)


class Turns:
    """The number of the latest request of each page.

    Earlier requests of the page stop when they next report their progress.
    """

    def __init__(self) -> None:
        self._latest: OrderedDict[str, int] = OrderedDict()
        self._lock = threading.Lock()

    def begin(self, tab: str, turn: int) -> None:
        """Store the number of a request as the latest of its page."""
        with self._lock:
            self._latest[tab] = max(turn, self._latest.get(tab, turn))
            self._latest.move_to_end(tab)
            while len(self._latest) > MAX_TABS:
                self._latest.popitem(last=False)

    def is_latest(self, tab: str, turn: int) -> bool:
        """Return whether no later request of the page has arrived."""
        return self._latest.get(tab, turn) <= turn


class Work:
    """A running request: its progress, and whether its page still needs the answer."""

    def __init__(self, turns: Turns, tab: str, turn: int) -> None:
        self.share, self.doing, self.gone = 0.0, "", False
        self._is_wanted = partial(turns.is_latest, tab, turn)
        turns.begin(tab, turn)

    def report(self, share: float, doing: str = "") -> None:
        """Store the progress; raise SupersededError if the page no longer needs the answer."""
        self.share, self.doing = share, doing
        if self.gone or not self._is_wanted():
            raise SupersededError


def refuse(status: int, mistake: str) -> JSONResponse:
    """Return an error response with a message that the page displays."""
    return JSONResponse({"mistake": mistake}, status_code=status)


async def show_page(request: Request) -> Response:
    return FileResponse(STATIC / "index.html")


async def list_scenes(request: Request) -> Response:
    scenes = await run_in_threadpool(load_scenes)
    described = [scene.describe() for scene in scenes.values()]
    return JSONResponse({"version": __version__, "scenes": described})


async def run_scene(request: Request) -> Response:
    """Answer a request; if it takes longer than `PATIENCE`, first stream its progress."""
    try:
        scene = await run_in_threadpool(find_scene, request.path_params["name"])
    except InputError as error:
        return refuse(404, str(error))
    try:
        tab, turn, values = parse_request(await read_body(request))
    except InputError as error:
        return refuse(400, str(error))
    except ClientDisconnect:
        return refuse(400, "the connection was closed before the request was complete")
    work = Work(request.app.state.turns, tab, turn)
    limiter = request.app.state.limiter
    task = asyncio.create_task(run_sync(answer, scene, values, work, limiter=limiter))
    done, _ = await asyncio.wait({task}, timeout=PATIENCE)
    if done:
        status, content = task.result()
        return Response(content, status, media_type="application/json")
    return StreamingResponse(report_lines(task, work), media_type="application/x-ndjson")


async def report_lines(task: asyncio.Task[tuple[int, bytes]], work: Work) -> AsyncIterator[bytes]:
    """Yield lines of JSON with the progress, and finally the answer."""
    try:
        while not task.done():
            line = {"progress": round(work.share, 3), "doing": work.doing}
            yield json.dumps(line).encode() + b"\n"
            await asyncio.wait({task}, timeout=BEAT)
        yield task.result()[1] + b"\n"
    finally:
        work.gone = True


def answer(scene: Scene, values: dict[str, Any], work: Work) -> tuple[int, bytes]:
    """Run a scene, and return the HTTP status and the JSON of its answer."""
    begin = time.perf_counter()
    try:
        work.report(0.0)  # a later request of the page may have arrived while this one waited
        result = scene.run(values, work.report)
        result["milliseconds"] = round(1e3 * (time.perf_counter() - begin), 1)
        return 200, json.dumps(result, allow_nan=False).encode()
    except SupersededError:
        return 409, b'{"superseded": true}'
    except InputError as error:
        return 422, json.dumps({"mistake": str(error)}).encode()
    except Exception as error:  # a bug of the scene: print one line, and keep the server running
        line = f"the scene {scene.name} failed: {describe_failure(error)}"
        print_error(line)
        return 500, json.dumps({"mistake": f"{line}. Please report it."}).encode()


async def read_body(request: Request) -> bytes:
    """Return the body of a request; raise an error if it is too large or too slow."""
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        raise HTTPException(415, "send JSON with the content type application/json")
    body = bytearray()
    try:
        async with asyncio.timeout(MAX_BODY_SECONDS):
            async for part in request.stream():
                body += part
                if len(body) > MAX_BODY:
                    limit = f"a request may have {MAX_BODY:,} bytes, this one has more"
                    raise HTTPException(413, limit)
    except TimeoutError:
        limit = f"the body of a request must arrive within {MAX_BODY_SECONDS:g} seconds"
        raise HTTPException(408, limit, {"connection": "close"}) from None
    return bytes(body)


def parse_request(body: bytes) -> tuple[str, int, dict[str, Any]]:
    """Return the identifier of the page, the number of the request, and its values."""
    request = parse_object(body)
    tab, turn, values = request.get("tab", ""), request.get("turn", 0), request.get("values", {})
    if not isinstance(tab, str) or len(tab) > 64 or type(turn) is not int:
        raise InputError("tab must be a short text and turn a whole number")
    if not isinstance(values, dict):
        raise InputError("values must be an object")
    return tab, turn, values


async def tell_error(request: Request, error: Exception) -> Response:
    """Return an HTTP error as JSON, in the format of all other errors."""
    assert isinstance(error, HTTPException)
    response = refuse(error.status_code, error.detail)
    response.headers.update(error.headers or {})
    return response


def make_app() -> Starlette:
    """Make the web application, with its own record of requests."""
    app = Starlette(
        routes=[
            Route("/", show_page),
            Route("/scenes", list_scenes),
            Route("/run/{name}", run_scene, methods=["POST"]),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        middleware=[Middleware(Guard)],
        exception_handlers={HTTPException: tell_error},
    )
    app.state.turns = Turns()
    app.state.limiter = CapacityLimiter(MAX_RUNNING)
    return app
