"""A TCP proxy on loopback that behaves like a link with a given round trip time.

    delay_proxy.py [--mbit N] RTT_MS PORT...    prints one JSON list, the port it listens on for each, then serves until
                                                it is ended

Bytes arrive half a round trip after they were sent, in order; with `--mbit` all connections together get no more than so
many million bits a second in each direction, without it there is no limit. A new connection reaches the other end one and a
half round trips after it was made, as long as a TCP handshake takes.
"""
from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import socket

CHUNK_BYTES = 64 * 1024
# Bytes under way per direction are bounded, so that a stuck reader cannot fill the memory.
CHUNKS_UNDER_WAY = 2048
# What a limited link may have fallen behind before it takes no more, as the queue of a router.
QUEUE_SECONDS = 0.05
# What a limited link may send at once after a pause.
BURST_SECONDS = 0.005
# Else the kernel would take megabytes from a sender at once, which then would not feel the limit.
LIMITED_BUFFER_BYTES = 128 * 1024

Lane = asyncio.Queue  # of (moment at which it is due, chunk)


class Bucket:
    """One direction of the link, which all connections share; without a rate it is never behind."""

    def __init__(self, mbit: float | None) -> None:
        self.seconds_per_byte = 8 / (mbit * 1e6) if mbit else 0.0
        self.free_at = 0.0

    def pass_on(self, now: float, size: int) -> float:
        """Takes so many bytes; says when the last of them has left."""
        self.free_at = max(self.free_at, now - BURST_SECONDS) + size * self.seconds_per_byte
        return max(now, self.free_at)

    async def until_room(self, now: float) -> None:
        """Waits while the link is too far behind to take more."""
        if self.seconds_per_byte and (behind := self.free_at - now - QUEUE_SECONDS) > 0:
            await asyncio.sleep(behind)


async def collect(reader: asyncio.StreamReader, lane: Lane, delay: float, bucket: Bucket) -> None:
    """Stamps what arrives with the moment at which it is due on the other side."""
    clock = asyncio.get_running_loop().time
    with contextlib.suppress(OSError):
        while chunk := await reader.read(CHUNK_BYTES):
            await lane.put((bucket.pass_on(clock(), len(chunk)) + delay, chunk))
            await bucket.until_room(clock())
    await lane.put((bucket.pass_on(clock(), 0) + delay, b""))


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


async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float, bucket: Bucket) -> None:
    """One direction of one connection."""
    lane: Lane = asyncio.Queue(CHUNKS_UNDER_WAY)
    reading = asyncio.create_task(collect(reader, lane, delay, bucket))
    try:
        await deliver(lane, writer)
    finally:
        reading.cancel()


def send_at_once(writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def new_socket(mbit: float | None) -> socket.socket:
    """A socket whose buffer suits the link; it has to be set before there is a connection."""
    made = socket.socket()
    if mbit:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, LIMITED_BUFFER_BYTES)
    made.setblocking(False)
    return made


async def connect(port: int, mbit: float | None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    made = new_socket(mbit)
    try:
        await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", port))
        return await asyncio.open_connection(sock=made)
    except OSError:
        made.close()
        raise


async def listen(port: int, round_trip: float, mbit: float | None, there: Bucket, back: Bucket) -> asyncio.Server:
    """Listens on a free port for connections to the given one."""

    async def connection(near_reader: asyncio.StreamReader, near_writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(1.5 * round_trip)
        try:
            far_reader, far_writer = await connect(port, mbit)
        except OSError:
            near_writer.close()
            return
        send_at_once(near_writer)
        send_at_once(far_writer)
        try:
            await asyncio.gather(carry(near_reader, far_writer, round_trip / 2, there),
                                 carry(far_reader, near_writer, round_trip / 2, back))
        finally:
            near_writer.close()
            far_writer.close()

    made = new_socket(mbit)
    made.bind(("127.0.0.1", 0))
    return await asyncio.start_server(connection, sock=made, backlog=256)


async def serve(round_trip: float, mbit: float | None, ports: list[int]) -> None:
    there, back = Bucket(mbit), Bucket(mbit)
    servers = [await listen(port, round_trip, mbit, there, back) for port in ports]
    print(json.dumps([server.sockets[0].getsockname()[1] for server in servers]), flush=True)
    await asyncio.gather(*[server.serve_forever() for server in servers])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mbit", type=float, help="million bits a second in each direction")
    parser.add_argument("rtt_ms", type=float)
    parser.add_argument("ports", type=int, nargs="+")
    options = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(options.rtt_ms / 1000, options.mbit, options.ports))


if __name__ == "__main__":
    main()
