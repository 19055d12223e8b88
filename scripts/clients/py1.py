"""Python SDK 1.x (the era with `initialize`) over stdio: py1.py SERVER"""
import asyncio
import sys

from expected import CALLS, require, require_text
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def talk(server):
    """Everything the server answered; judged outside, where a failure is not wrapped into task groups."""
    progress = []

    async def on_progress(done, total, message):
        progress.append(done)

    async with stdio_client(StdioServerParameters(command=server)) as (reader, writer):
        async with ClientSession(reader, writer) as session:
            hello = await session.initialize()
            tools = (await session.list_tools()).tools
            replies = [await session.call_tool(name, arguments, progress_callback=on_progress)
                       for name, arguments, _ in CALLS]
            return hello.protocolVersion, len(tools), replies, progress


version, tool_count, answered, notes = asyncio.run(talk(sys.argv[1]))
for (tool, _, wanted), reply in zip(CALLS, answered):
    require_text(tool, "".join(part.text for part in reply.content if part.type == "text"), wanted, reply.isError)
require(version == "2025-11-25", f"calls work, but negotiated {version}")
print(f"{version}, {tool_count} tools, both calls answered, {len(notes)} progress notes")
