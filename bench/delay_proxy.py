"""A TCP proxy on loopback that behaves like a link with a given round trip time.

    delay_proxy.py RTT_MS PORT...      prints one JSON list, the port it listens on for each, then serves until it is ended

Bytes arrive half a round trip after they were sent, in order and without a bandwidth limit. A new connection reaches the
other end one and a half round trips after it was made, as long as a TCP handshake takes.
"""
from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import sys

CHUNK_BYTES = 64 * 1024
# Bytes under way per direction are bounded, so that a stuck reader cannot fill the memory.
CHUNKS_UNDER_WAY = 2048

Lane = asyncio.Queue  # of (moment at which it is due, chunk)


async def collect(reader: asyncio.StreamReader, lane: Lane, delay: float) -> None:
    """Stamps what arrives with the moment at which it is due on the other side."""
    clock = asyncio.get_running_loop().time
    with contextlib.suppress(OSError):
        while chunk := await reader.read(CHUNK_BYTES):
            await lane.put((clock() + delay, chunk))
    await lane.put((clock() + delay, b""))


async def deliver(lane: Lane, writer: asyncio.StreamWriter) -> None:
    """Hands on each chunk when it is due; an empty one closes this direction."""
    clock = asyncio.get_running_loop().time
    with contextlib.suppress(OSError):
        while True:
            due, chunk = await lane.get()
            if (early := due - clock()) > 0:
                await asyncio.sleep(early)
            if not chunk:
                break
            writer.write(chunk)
            await writer.drain()
        writer.write_eof()


async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float) -> None:
    """One direction of one connection."""
    lane: Lane = asyncio.Queue(CHUNKS_UNDER_WAY)
    reading = asyncio.create_task(collect(reader, lane, delay))
    try:
        await deliver(lane, writer)
    finally:
        reading.cancel()


def send_at_once(writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


async def listen(port: int, round_trip: float) -> asyncio.Server:
    """Listens on a free port for connections to the given one."""

    async def connection(near_reader: asyncio.StreamReader, near_writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(1.5 * round_trip)
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            near_writer.close()
            return
        send_at_once(near_writer)
        send_at_once(far_writer)
        try:
            await asyncio.gather(carry(near_reader, far_writer, round_trip / 2),
                                 carry(far_reader, near_writer, round_trip / 2))
        finally:
            near_writer.close()
            far_writer.close()

    return await asyncio.start_server(connection, "127.0.0.1", 0, backlog=256)


async def serve(round_trip: float, ports: list[int]) -> None:
    servers = [await listen(port, round_trip) for port in ports]
    print(json.dumps([server.sockets[0].getsockname()[1] for server in servers]), flush=True)
    await asyncio.gather(*[server.serve_forever() for server in servers])


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(float(sys.argv[1]) / 1000, [int(port) for port in sys.argv[2:]]))
