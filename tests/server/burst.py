"""Many clients at once, some of them hostile, against a server in its own process.

The clients have a process too, with a lower priority than the server: real clients are on other machines and
do not take its processor time. This process asks for /health.

python -m tests.server.burst --clients 500 --hostile 20    prints what happened, as in docs/reliability.md
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tests.server.running import free_port, is_up, wait_until

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
ARRIVAL = 1  # seconds within which all clients arrive
PATIENCE = 600  # seconds for the slowest honest client
TOKENS = 8
CLIENTS_NICE = 10  # how much lower the priority of the clients' process is


@dataclass
class Outcome:
    """What the clients saw."""

    right: int = 0
    wrong: list[str] = field(default_factory=list)
    refused: int = 0  # with 429; the client asked again
    health: list[float] = field(default_factory=list)  # seconds that each look took
    attacks: Counter[str] = field(default_factory=Counter)
    largest_mib: int = 0  # of the server's process

    def __str__(self) -> str:
        attacks = "\n".join(f"| {name} | {count} |" for name, count in sorted(self.attacks.items()))
        return (
            f"answers right: {self.right}, wrong or lost: {len(self.wrong)} {self.wrong[:3]}, "
            f"refused with 429 and asked again: {self.refused}\n"
            f"/health: {len(self.health)} looks, slowest {max(self.health):.2f} s\n"
            f"the server's memory at its largest: {self.largest_mib} MiB\n{attacks}"
        )


class Address:
    def __init__(self, port: int) -> None:
        self.port = port

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def send(self, *data: bytes, seconds: float = 30) -> tuple[int, bytes]:
        """Send bytes on a new connection; the status and all that the server says until it closes."""
        reader, writer = await self.connect()
        try:
            async with asyncio.timeout(seconds):
                for each in data:
                    writer.write(each)
                    await writer.drain()
                answer = await reader.read()
        finally:
            writer.close()
        head, _, body = answer.partition(b"\r\n\r\n")
        return int(head.split()[1]) if head else 0, body

    async def post(self, path: str, data: bytes, seconds: float = 30) -> tuple[int, bytes]:
        return await self.send(head(path, len(data)), data, seconds=seconds)


def head(path: str, length: int = 0, method: str = "POST") -> bytes:
    return (
        f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    ).encode()


# -- honest clients -----------------------------------------------------------------------------


def question(number: int, stream: bool) -> bytes:
    body = {"prompt": f"{number % 10} is", "max_tokens": TOKENS, "temperature": 0, "stream": stream}
    return json.dumps(body).encode()


async def ask(server: Address, number: int, want: str, outcome: Outcome) -> None:
    """One question, asked again while the server is busy, as OpenAI's client does. Half are streams."""
    stream = number % 2 == 1
    body = question(number, stream)
    await asyncio.sleep(random.uniform(0, ARRIVAL))
    for attempt in itertools.count():
        try:
            status, answer = await server.post(COMPLETIONS, body, seconds=PATIENCE)
        except (OSError, TimeoutError) as error:
            outcome.wrong.append(f"{number}: {error!r}")
            return
        if status != 429:
            break
        outcome.refused += 1
        await asyncio.sleep(min(2**attempt, 8) * random.uniform(0.75, 1))
    got = text_of(answer, stream) if status == 200 else f"status {status}: {answer[:200]!r}"
    if got == want:
        outcome.right += 1
    else:
        outcome.wrong.append(f"{number}: {got!r}, not {want!r}")


def text_of(answer: bytes, stream: bool) -> str:
    """The text of an answer that is complete."""
    if not stream:
        return str(json.loads(answer)["choices"][0]["text"])
    events = [line[6:] for line in answer.decode().splitlines() if line.startswith("data: ")]
    if not events or events.pop() != "[DONE]":
        return "a stream without its end"
    return "".join(json.loads(event)["choices"][0]["text"] for event in events)


# -- hostile ones -------------------------------------------------------------------------------

Attack = Callable[[Address], Awaitable[Any]]


def posting(path: str, body: Any) -> Attack:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()

    async def attack(server: Address) -> None:
        await server.post(path, data)

    return attack


async def unfinished_heads(server: Address) -> None:
    """Fifty connections that never send a whole head, left to the server to close."""
    opened = [await server.connect() for _ in range(50)]
    for _, writer in opened:
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: local")
    await asyncio.wait([asyncio.ensure_future(reader.read()) for reader, _ in opened], timeout=30)
    for _, writer in opened:
        writer.close()


async def unfinished_body(server: Address) -> None:
    await server.send(head(CHAT, 4_000_000), b" " * 3_900_000, seconds=60)


async def huge_body(server: Address) -> None:
    await server.send(head(CHAT, 100 << 20), *[b"x" * (1 << 20)] * 100)


async def tiny_chunks(server: Address) -> None:
    chunked = head(CHAT).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    await server.send(chunked, b"1\r\na\r\n" * 100_000)


async def leave_mid_answer(server: Address) -> None:
    body = json.dumps({"prompt": "a", "max_tokens": 60, "stream": True}).encode()
    reader, writer = await server.connect()
    writer.write(head(COMPLETIONS, len(body)) + body)
    await reader.read(300)
    writer.transport.abort()


async def leave_mid_upload(server: Address) -> None:
    _, writer = await server.connect()
    writer.write(head(CHAT, 1000) + b"{")
    await writer.drain()
    writer.transport.abort()


async def never_read(server: Address) -> None:
    """Thousands of requests, and no answer read."""
    _, writer = await server.connect()
    with suppress(TimeoutError):
        async with asyncio.timeout(5):
            writer.write((head("/v1/models", method="GET").replace(b"close", b"keep-alive")) * 5000)
            await writer.drain()
            await asyncio.sleep(5)
    writer.transport.abort()


async def garbage(server: Address) -> None:
    await server.send(random.randbytes(5000) + b"\r\n\r\n")


def said(content: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}], "max_tokens": 1}


ATTACKS: dict[str, Attack] = {
    "50 connections with half a head": unfinished_heads,
    "a body of 4 MB that stops": unfinished_body,
    "a body of 100 MB": huge_body,
    "100,000 chunks of one byte": tiny_chunks,
    "a prompt of 3 MB": posting(COMPLETIONS, {"prompt": "x " * 1_500_000}),
    "a message of 3 MB": posting(CHAT, said("x " * 1_500_000)),
    "300,000 messages": posting(CHAT, b'{"messages":[' + b'{"role":"u"},' * 300_000 + b'{"role":"u"}]}'),
    "a million tokens": posting(COMPLETIONS, {"prompt": [7] * 1_000_000}),
    "a million lists": posting(CHAT, b"[" + b"[]," * 1_000_000 + b"[]]"),
    "JSON nested 1,000,000 deep": posting(CHAT, b"[" * 1_000_000),
    "10,000 stop strings": posting(CHAT, {**said("a"), "stop": ["x" * 300] * 10_000}),
    "100,000 control tokens": posting(CHAT, said("<|im_end|>" * 100_000)),
    "a client that leaves in its answer": leave_mid_answer,
    "a client that leaves in its request": leave_mid_upload,
    "5,000 requests, no answer read": never_read,
    "bytes that are not HTTP": garbage,
}


async def attack_on_and_on(server: Address, first: int, outcome: Outcome) -> None:
    names = list(ATTACKS)
    turn = first
    while True:
        name = names[turn % len(names)]
        turn += 1
        outcome.attacks[name] += 1
        with suppress(OSError, TimeoutError, IndexError, ValueError):  # whatever it gets, it goes on
            await ATTACKS[name](server)


# -- the burst ----------------------------------------------------------------------------------


async def burst(port: int, clients: int, hostile: int, wants: list[str]) -> Outcome:
    server, outcome = Address(port), Outcome()
    beside = [asyncio.create_task(attack_on_and_on(server, n, outcome)) for n in range(hostile)]
    await asyncio.sleep(1)
    await asyncio.gather(*(ask(server, n, wants[n % 10], outcome) for n in range(clients)))
    for task in beside:
        task.cancel()
    ended = await asyncio.gather(*beside, return_exceptions=True)
    faults = [e for e in ended if isinstance(e, Exception)]
    assert not faults, faults
    return outcome


def burst_in_this_process(*arguments: Any) -> Outcome:
    return asyncio.run(burst(*arguments))


def seconds_of_health(port: int) -> float:
    """How long the server takes to answer a new connection's GET /health."""
    begun = time.monotonic()
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(head("/health", method="GET"))
        assert b" 200 OK" in client.recv(1000)
    return time.monotonic() - begun


@contextmanager
def served(model: Path, *options: str) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    port = free_port()
    command = [sys.executable, "-m", "pteron", "serve", str(model), "--port", str(port), *options]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            wait_until(lambda: is_up(f"http://127.0.0.1:{port}"), seconds=120)
            yield port, server
            assert server.poll() is None, "the server has ended"
        finally:
            server.kill()


def run(model: Path, clients: int, hostile: int) -> Outcome:
    """A burst against a fresh server; what the answers must be is asked before it."""
    with served(model) as (port, server):
        alone = Address(port)

        async def asked_alone() -> list[str]:
            answers = [await alone.post(COMPLETIONS, question(n, False)) for n in range(10)]
            return [text_of(body, False) for _, body in answers]

        wants = asyncio.run(asked_alone())
        health = []
        with ProcessPoolExecutor(1, get_context("spawn"), os.nice, (CLIENTS_NICE,)) as process:
            running = process.submit(burst_in_this_process, port, clients, hostile, wants)
            while not running.done():
                health.append(seconds_of_health(port))
                time.sleep(0.2)
        outcome = running.result()
        outcome.health = health
        outcome.largest_mib = largest_mib(server.pid)
    return outcome


def largest_mib(pid: int) -> int:
    """0 where the system does not tell."""
    status = Path(f"/proc/{pid}/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) >> 10 for line in lines if line.startswith("VmHWM")), 0)


def main() -> None:
    from tests.llm import tiny_llama

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=500)
    parser.add_argument("--hostile", type=int, default=20)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tiny_llama.make(Path(folder))
        print(run(Path(folder) / "model.pte", given.clients, given.hostile))


if __name__ == "__main__":
    main()
