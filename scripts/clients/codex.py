"""Codex app-server, no login and no model: codex.py CODEX SERVER FOLDER

Lists the MCP servers (which makes Codex connect) and calls both tools inside an ephemeral thread.
"""
import json
import queue
import subprocess
import sys
import threading
import time

from expected import CALLS, compact, require, require_text

SECONDS_PER_ANSWER = 40


class AppServer:
    """One `codex app-server` process and its JSON-RPC lines."""

    def __init__(self, codex, server):
        settings = {
            "model_provider": '"nobody"',
            # Never contacted: the calls below do not ask a model.
            "model_providers.nobody": '{name="nobody",base_url="http://127.0.0.1:9/v1"}',
            "mcp_servers.srv.command": json.dumps(server),
        }
        command = [codex, "app-server"]
        for key, value in settings.items():
            command += ["-c", f"{key}={value}"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self.lines = queue.Queue()
        self.last_id = 0
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            try:
                self.lines.put(json.loads(line))
            except ValueError:
                continue

    def send(self, message):
        self.process.stdin.write(compact(message).encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, method, parameters):
        self.last_id += 1
        self.send({"id": self.last_id, "method": method, "params": parameters})
        deadline = time.monotonic() + SECONDS_PER_ANSWER
        while (left := deadline - time.monotonic()) > 0:
            try:
                message = self.lines.get(timeout=left)
            except queue.Empty:
                break
            if message.get("id") == self.last_id and "method" not in message:
                require("error" not in message, f"{method}: {message.get('error')}")
                return message["result"]
        return require(False, f"codex did not answer {method}")


def main(codex, server, folder):
    app = AppServer(codex, server)
    try:
        app.ask("initialize", {"clientInfo": {"name": "release-check", "version": "1"},
                               "capabilities": {"experimentalApi": True}})
        app.send({"method": "initialized"})
        found = [entry for entry in app.ask("mcpServerStatus/list", {})["data"] if entry["name"] == "srv"]
        require(found and found[0]["tools"], f"codex lists no tools: {compact(found)}")
        thread = app.ask("thread/start", {"cwd": folder, "ephemeral": True})["thread"]["id"]
        for name, arguments, wanted in CALLS:
            reply = app.ask("mcpServer/tool/call",
                            {"threadId": thread, "server": "srv", "tool": name, "arguments": arguments})
            require_text(name, compact(reply.get("content", [])), wanted, reply.get("isError"))
        print(f"codex sees {len(found[0]['tools'])} tools, both calls answered")
    finally:
        app.process.kill()


main(*sys.argv[1:4])
