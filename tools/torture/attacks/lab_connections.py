"""Connections to the lab's server: several clients at once, most of which misbehave.

A client sends a correct request, replaces its own request by newer ones, disconnects, stops in the
middle, or sends something else than a request. Afterwards the page must load, no connection may
stay open, and the server must have printed nothing.
"""

from __future__ import annotations

import contextlib
import json
import logging
import random
import socket
import struct
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis.strategies import SearchStrategy

from innerloop.lab import server, serving
from innerloop.lab.scene import load_scenes
from tools.torture.attack import Attack, Defect, Verdict, check_message
from tools.torture.attacks.lab_requests import make_values, refuse_constant
from tools.torture.corruption import HOSTILE_TEXT
from tools.torture.drawing import draw

SECONDS = 0.5
"""Seconds within which a request must arrive; the lab allows ten times as many."""
PATIENCE = 30.0
"""Seconds that a client waits for an answer on a busy machine."""
CHEAP = ("line-fit", "break-it", "bandits")
"""Scenes with quick answers; `lab-requests` attacks the values of all scenes."""


Client = Callable[[int], None]
Values = dict[str, SearchStrategy[dict[str, Any]]]


class Address(NamedTuple):
    """A server in this process: its port, and the messages that it logs."""

    port: int
    server: Any
    messages: list[str]


@cache
def start_server() -> Address:
    """Start the lab's server in a thread of this worker process."""
    serving.MAX_HEADER_SECONDS = server.MAX_BODY_SECONDS = SECONDS
    listener, lab, messages = serving.open_socket(0), serving.make_server(), list[str]()

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage().partition("\n")[0])

    for name in ("uvicorn.error", "asyncio"):
        logging.getLogger(name).addHandler(Collector())
    thread = threading.Thread(target=lab.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    return Address(listener.getsockname()[1], lab, messages)


def connect(port: int) -> socket.socket:
    return socket.create_connection((serving.HOST, port), timeout=PATIENCE)


def send(connection: socket.socket, data: bytes) -> None:
    """Send as much as the server accepts; it may close the connection before the end."""
    with contextlib.suppress(ConnectionError):
        connection.sendall(data)


def receive(connection: socket.socket) -> bytes:
    """Read until the server closes the connection."""
    received = b""
    try:
        while part := connection.recv(1 << 16):
            received += part
    except ConnectionError:
        pass
    except TimeoutError:
        raise Defect(f"a connection stays open for more than {PATIENCE:g} s") from None
    finally:
        connection.close()
    return received


def parse_answer(answer: bytes) -> tuple[int, dict[str, Any]]:
    """Return the status of an answer and the last line of its body, which must be an object."""
    head, _, body = answer.partition(b"\r\n\r\n")
    if b"content-security-policy: default-src 'self'" not in head.lower():
        raise Defect(f"an answer without the policy of the page: {head[:80]!r}")
    if b"transfer-encoding: chunked" in head.lower():
        lines = [line for line in body.split(b"\r\n") if line.startswith(b"{")]
        body = lines[-1] if lines else b""
    try:
        content = json.loads(body, parse_constant=refuse_constant)
    except ValueError:
        raise Defect(f"an answer is not JSON: {body[:80]!r}") from None
    return int(head.split()[1]), content


def format_request(body: bytes, name: str = "line-fit", **headers: str) -> bytes:
    """Format a request to a scene as the page sends it; `headers` replace those of the page."""
    fields = {"host": serving.HOST, "content-type": "application/json", "connection": "close"}
    fields |= {"content-length": str(len(body))} | headers
    lines = [f"{key.replace('_', '-')}: {value}" for key, value in fields.items()]
    return "\r\n".join([f"POST /run/{name} HTTP/1.1", *lines, "", ""]).encode() + body


def format_json(content: dict[str, Any]) -> bytes:
    return format_request(json.dumps(content).encode())


def check_answer(answer: bytes, statuses: set[int]) -> None:
    """Check that an answer has one of these statuses, and one line that explains an error."""
    status, content = parse_answer(answer)
    mistake = content.get("mistake", "")
    if status not in statuses or mistake.startswith("the scene "):
        raise Defect(f"expected a status of {sorted(statuses)}, got {status}: {mistake[:120]}")
    if status >= 400 and "superseded" not in content:
        check_message(mistake)


def draw_request(
    strategies: Values, chance: random.Random, name: str, tab: str = "", turn: int = 0
) -> bytes:
    """Draw a request to a scene, which may have wrong values."""
    body = {"tab": tab, "turn": turn, "values": draw(strategies[name], chance)}
    return format_request(json.dumps(body).encode(), name)


# Each function draws what a client sends, and returns the client: it connects to a port.


def send_sound_request(strategies: Values, chance: random.Random) -> Client:
    """Send a request that may have wrong values."""
    data = draw_request(strategies, chance, chance.choice(CHEAP))

    def run(port: int) -> None:
        with connect(port) as connection:
            send(connection, data)
            check_answer(receive(connection), {200, 422})

    return run


def replace_requests(strategies: Values, chance: random.Random) -> Client:
    """Send requests of one page without waiting for answers; the newest must be answered."""
    name, tab, first = chance.choice(CHEAP), f"tab {chance.random()}", chance.randrange(-5, 5)
    requests = [
        draw_request(strategies, chance, name, tab, first + k) for k in range(chance.randint(2, 9))
    ]
    pauses = [chance.choice((0.0, 0.0, 0.02)) for _ in requests]

    def run(port: int) -> None:
        connections = []
        for data, pause in zip(requests, pauses, strict=True):
            connections.append(connect(port))
            send(connections[-1], data)
            time.sleep(pause)
        *older, newest = map(receive, connections)
        for answer in older:
            check_answer(answer, {200, 409, 422})
        check_answer(newest, {200, 422})
        if parse_answer(newest)[1].get("superseded"):
            raise Defect("the newest request of a page is superseded")

    return run


def break_off(strategies: Values, chance: random.Random) -> Client:
    """Disconnect in the middle of a request, or while the answer is computed."""
    data = draw_request(strategies, chance, chance.choice(CHEAP))
    data = data[: chance.choice((len(data), chance.randrange(len(data))))]
    pause, is_reset = chance.choice((0.0, 0.01, 0.3)), chance.random() < 0.5

    def run(port: int) -> None:
        with connect(port) as connection:
            send(connection, data)
            time.sleep(pause)
            if is_reset:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    return run


def stop_in_the_middle(strategies: Values, chance: random.Random) -> Client:
    """Send a part of a request, at once or byte by byte, and wait until the server ends it."""
    data = format_request(b"{" + b" " * chance.randrange(1, 5000))
    data, is_slow = data[: chance.randrange(len(data))], chance.random() < 0.3

    def run(port: int) -> None:
        with connect(port) as connection:
            start, step = time.monotonic(), 1 if is_slow else len(data) + 1
            for place in range(0, len(data), step):
                send(connection, data[place : place + step])
                time.sleep(0.02 * is_slow)
                if time.monotonic() - start > 3 * SECONDS:
                    break
            answer = receive(connection)
        if answer:
            check_answer(answer, {408})

    return run


def send_hostile_request(strategies: Values, chance: random.Random) -> Client:
    """Send a request that the page would not send; the answer must explain why it is refused."""
    text = chance.choice([word for word in HOSTILE_TEXT if word.strip() and word.isprintable()])
    hosts, nested = ("evil.example", "127.0.0.1.evil.example"), chance.choice((b"[", b'{"a":'))
    request = {
        "host": lambda: format_request(b"{}", host=chance.choice(hosts)),
        "origin": lambda: format_request(b"{}", origin=chance.choice(("null", "http://x"))),
        "type": lambda: format_request(b"{}", content_type="text/plain"),
        "body": lambda: format_request(chance.randbytes(chance.randrange(1, 3000))),
        "nesting": lambda: format_request(nested * 10_000),
        "size": lambda: format_request(b" " * (server.MAX_BODY + chance.choice((1, 10**6)))),
        "turn": lambda: format_json({"turn": chance.choice((text, 1.5, None, [1]))}),
        "tab": lambda: format_json({"tab": chance.choice(("x" * 65, 3, None))}),
        "values": lambda: format_json({"values": chance.choice((text, [], 3))}),
        "scene": lambda: format_request(b"{}", chance.choice(("nothing", "a" * 3000, "%00%ff"))),
    }
    kind = chance.choice(sorted(request))
    data = request[kind]()

    def run(port: int) -> None:
        with connect(port) as connection:
            send(connection, data)
            answer = receive(connection)
        if answer or kind != "size":  # a server that closes early may lose its answer
            check_answer(answer, {400, 403, 404, 413, 415, 421, 422})

    return run


def send_broken_request(strategies: Values, chance: random.Random) -> Client:
    """Send bytes that are not HTTP, or the path of a file that is not part of the page."""
    paths = ("/../../etc/passwd", "/static/%2e%2e/server.py", "/static/..%2fserver.py", "//x")
    data = chance.choice(
        (
            chance.randbytes(chance.randrange(1, 2000)),
            b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n" + b"x: y\r\n" * 50_000 + b"\r\n",
            format_request(b"{}", content_length=chance.choice(("-1", "nan", "9" * 30, "1, 2"))),
            format_request(b"zz\r\n{}\r\n", transfer_encoding="chunked"),
            f"GET {chance.choice(paths)} HTTP/1.1\r\nhost: 127.0.0.1\r\n".encode()
            + b"connection: close\r\n\r\n",
        )
    )

    def run(port: int) -> None:
        with connect(port) as connection:
            send(connection, data)
            answer = receive(connection)
        if answer and not answer.startswith(b"HTTP/1.1 4"):
            raise Defect(f"a broken request is answered with {answer[:60]!r}")

    return run


CLIENTS = (send_sound_request, replace_requests, break_off, stop_in_the_middle)
CLIENTS += (send_hostile_request, send_broken_request)


def prepare(folder: Path) -> Values:
    """Make the strategies of the values, once for all worker processes."""
    return {name: make_values(load_scenes()[name]) for name in CHEAP}


def attempt(strategies: Values, chance: random.Random, folder: Path) -> Verdict:
    """Let one to six clients connect at once, and check the server afterwards."""
    address, errors = start_server(), list[BaseException]()

    def run_client(client: Client) -> None:
        try:
            client(address.port)
        except Exception as error:
            errors.append(error)

    clients = [chance.choice(CLIENTS)(strategies, chance) for _ in range(chance.randint(1, 6))]
    threads = [threading.Thread(target=run_client, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    check_server(address)
    if names := [path.name for path in folder.parent.rglob("*") if path.is_file()]:
        raise Defect(f"the server stores files: {', '.join(names)}")
    return "survived"


def check_server(address: Address) -> None:
    """Check that the page loads, that no connection stays open, and that nothing was printed."""
    with connect(address.port) as connection:
        send(connection, b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
        if not receive(connection).startswith(b"HTTP/1.1 200"):
            raise Defect("the page does not load")
    end = time.monotonic() + 10 * SECONDS
    while address.server.server_state.connections:
        if time.monotonic() > end:
            raise Defect("a connection stays open after its client has gone")
        time.sleep(0.01)
    if address.messages:
        raise Defect(f"the server printed: {address.messages.pop()[:150]}")


ATTACKS = (Attack("lab-connections", 1_500, prepare, attempt, sample=4, cost=0.3),)
