"""A TCP proxy on loopback that behaves like a link with a given round trip time.

    delay_proxy.py HOST:PORT RTT_MS         prints the port it listens on, then serves until it is ended

Bytes arrive half a round trip after they were sent, in order and without a bandwidth limit. A new connection reaches the
other end one and a half round trips after it was made, as long as a TCP handshake takes.
"""
import asyncio
import contextlib
import socket
import sys

CHUNK_BYTES = 64 * 1024
# Bytes under way per direction are bounded, so that a stuck reader cannot fill the memory.
CHUNKS_UNDER_WAY = 2048


async def collect(reader, lane, delay):
    """Stamps what arrives with the moment at which it is due on the other side."""
    clock = asyncio.get_running_loop().time
    with contextlib.suppress(OSError):
        while chunk := await reader.read(CHUNK_BYTES):
            await lane.put((clock() + delay, chunk))
    await lane.put((clock() + delay, b""))


async def deliver(lane, writer):
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


async def carry(reader, writer, delay):
    """One direction of one connection."""
    lane = asyncio.Queue(CHUNKS_UNDER_WAY)
    reading = asyncio.create_task(collect(reader, lane, delay))
    try:
        await deliver(lane, writer)
    finally:
        reading.cancel()


def send_at_once(writer):
    writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


async def serve(host, port, round_trip):
    async def connection(near_reader, near_writer):
        await asyncio.sleep(1.5 * round_trip)
        try:
            far_reader, far_writer = await asyncio.open_connection(host, port)
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

    server = await asyncio.start_server(connection, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    target_host, target_port = sys.argv[1].rsplit(":", 1)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(target_host, int(target_port), float(sys.argv[2]) / 1000))
