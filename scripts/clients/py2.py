"""Python SDK 2.x (the era without `initialize`) over stdio: py2.py SERVER"""
import asyncio
import sys

from expected import CALLS, require, require_text
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client


async def talk(server):
    """Everything the server answered; judged outside, where a failure is not wrapped into task groups."""
    async with Client(stdio_client(StdioServerParameters(command=server))) as client:
        tools = (await client.list_tools()).tools
        replies = [await client.call_tool(name, arguments) for name, arguments, _ in CALLS]
        return client.protocol_version, len(tools), replies


version, tool_count, answered = asyncio.run(talk(sys.argv[1]))
for (tool, _, wanted), reply in zip(CALLS, answered):
    require_text(tool, "".join(part.text for part in reply.content if part.type == "text"), wanted, reply.is_error)
require(version == "2026-07-28", f"calls work, but negotiated {version}")
print(f"{version}, {tool_count} tools, both calls answered")
