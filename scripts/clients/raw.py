"""Checks of the stdio protocol without any client library: raw.py CHECK SERVER [ARGUMENTS...]

Every check also fails when the server writes anything but JSON-RPC messages to stdout.
"""
import json
import os
import queue
import re
import statistics
import subprocess
import sys
import threading
import time

from expected import CALLS, SANDBOX, compact, require, require_text

LEGACY = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
MODERN = "2026-07-28"
ANNOTATIONS = ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"]
START_LIMIT_MS = float(os.environ.get("START_LIMIT_MS", "300"))
COMMAND = []


def modern(parameters=None):
    """Parameters of the era without `initialize`: every request carries who asks."""
    about = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    return {**(parameters or {}), "_meta": about}


class Server:
    """One server process spoken to line by line."""

    def __init__(self):
        self.started = time.perf_counter()
        self.process = subprocess.Popen(
            COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self.messages = queue.Queue()
        self.foreign = []
        self.set_aside = []
        self.last_id = 0
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            try:
                message = json.loads(line)
                if message["jsonrpc"] != "2.0":
                    raise ValueError("not JSON-RPC")
                self.messages.put(message)
            except (ValueError, KeyError, TypeError):
                self.foreign.append(line[:120])
        self.messages.put(None)

    def write(self, line):
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def notify(self, method, parameters=None):
        message = {"jsonrpc": "2.0", "method": method}
        self.write(compact({**message, "params": parameters} if parameters else message).encode())

    def begin(self, method, parameters=None):
        self.last_id += 1
        message = {"jsonrpc": "2.0", "id": self.last_id, "method": method}
        self.write(compact({**message, "params": parameters} if parameters is not None else message).encode())
        return self.last_id

    def wait(self, wanted_id, seconds=20):
        """The reply to one request, or None when it does not come in time."""
        deadline = time.monotonic() + seconds
        for message in [kept for kept in self.set_aside if kept.get("id") == wanted_id]:
            self.set_aside.remove(message)
            return message
        while (left := deadline - time.monotonic()) > 0:
            try:
                message = self.messages.get(timeout=left)
            except queue.Empty:
                break
            require(message is not None, "the server closed its output")
            if "method" in message:
                continue
            if message.get("id") == wanted_id:
                return message
            self.set_aside.append(message)
        return None

    def ask(self, method, parameters=None, seconds=20):
        reply = self.wait(self.begin(method, parameters), seconds)
        require(reply is not None, f"no answer to {method} in {seconds} s")
        return reply

    def hello(self, version="2025-11-25"):
        reply = self.ask("initialize", {
            "protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}})
        self.notify("notifications/initialized")
        return reply.get("result", {})

    def call(self, name, arguments, wrap=lambda parameters: parameters, seconds=60):
        reply = self.ask("tools/call", wrap({"name": name, "arguments": arguments}), seconds)
        require("result" in reply, f"{name} answered {reply.get('error')}")
        text = "".join(part.get("text", "") for part in reply["result"]["content"])
        return text, reply["result"].get("isError", False)

    def end(self):
        """Closes stdin; the server must leave by itself with 0 and without a foreign line."""
        self.process.stdin.close()
        try:
            code = self.process.wait(8)
        except subprocess.TimeoutExpired:
            self.process.kill()
            require(False, "the server still runs 8 s after stdin was closed")
        self.reader.join(2)
        require(code == 0, f"exit code {code} after stdin was closed")
        require(not self.foreign, f"stdout carries more than protocol: {self.foreign[:3]}")

    def resident_kb(self):
        try:
            with open(f"/proc/{self.process.pid}/status", encoding="ascii") as status:
                return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1])
        except (OSError, TypeError):
            return None


def started():
    server = Server()
    server.hello()
    return server


def check_start():
    times = []
    for _ in range(9):
        server = started()
        times.append((time.perf_counter() - server.started) * 1000)
        resident = server.resident_kb()
        server.end()
    middle = statistics.median(times)
    require(middle < START_LIMIT_MS, f"initialize is answered after {middle:.1f} ms, limit {START_LIMIT_MS} ms")
    return f"initialize answered after {middle:.1f} ms (median of 9, worst {max(times):.1f} ms), {resident} kB resident"


def check_versions():
    for version in [*LEGACY, "2099-01-01"]:
        server = Server()
        answered = server.hello(version).get("protocolVersion")
        wanted = version if version in LEGACY else LEGACY[-1]
        require(answered == wanted, f"asked for {version}, answered {answered}, wanted {wanted}")
        server.end()
    return "four revisions echoed, an unknown one answered with " + LEGACY[-1]


def check_modern():
    server = Server()
    found = server.ask("server/discover", modern()).get("result", {})
    require(MODERN in found.get("supportedVersions", []), f"server/discover answered {found}")
    listing = server.ask("tools/list", modern()).get("result", {})
    missing = [key for key in ("resultType", "ttlMs", "cacheScope", "tools") if key not in listing]
    require(not missing, f"tools/list lacks {missing}")
    for name, arguments, wanted in CALLS:
        text, is_error = server.call(name, arguments, modern)
        require_text(name, text, wanted, is_error)
    server.end()
    return f"{MODERN} without initialize, {len(listing['tools'])} tools, both calls answered"


def check_legacy():
    server = started()
    for name, arguments, wanted in CALLS:
        text, is_error = server.call(name, arguments)
        require_text(name, text, wanted, is_error)
    server.end()
    return "both calls answered"


def check_exit_code():
    server = started()
    text, is_error = server.call("exec_bash", {"command": "exit 3", "sandbox_name": SANDBOX})
    require(not is_error and json.loads(text).get("exit_code") == 3, f"exit 3 answered {text}")
    server.end()
    return "exit 3 is a success of the tool with exit_code 3"


def check_tools():
    server = started()
    first = server.ask("tools/list")["result"]["tools"]
    second = server.ask("tools/list")["result"]["tools"]
    require(first == second, "two listings differ")
    for tool in first:
        name = tool["name"]
        require(re.fullmatch(r"[a-z0-9_]{1,40}", name), f"bad name {name!r}")
        require(tool.get("description"), f"{name} has no description")
        missing = [hint for hint in ANNOTATIONS if hint not in tool.get("annotations", {})]
        require(not missing, f"{name} lacks annotations {missing}")
        # Tools with fields that are taken but not listed cannot say so in their schema; they refuse all others.
        if tool["inputSchema"].get("additionalProperties") is not False:
            reply = server.ask("tools/call", {"name": name, "arguments": {"no_such_field": 1}})
            require("has no field `no_such_field`" in json.dumps(reply), f"{name} lets unknown fields through")
    server.end()
    names = [tool["name"] for tool in first]
    require(names == sorted(names), f"not sorted: {names}")
    return f"{len(first)} tools, {len(compact(first))} bytes, sorted, stable, fully annotated"


def check_errors():
    server = started()
    code = server.ask("no/such/method").get("error", {}).get("code")
    require(code == -32601, f"an unknown method answered {code}")
    reply = server.ask("tools/call", {"name": "no_such_tool", "arguments": {}})
    require("error" in reply or reply["result"].get("isError"), f"an unknown tool answered {reply}")
    text, is_error = server.call("exec_bash", {"command": "true", "sandbox_name": "no-such-sandbox"})
    require(is_error and SANDBOX in text, f"an unknown sandbox must be an error naming the known ones: {text}")
    text, is_error = server.call("exec_bash", {"command": "true", "no_such_field": 1})
    require(is_error and "no_such_field" in text, f"an unknown field must be refused by name: {text}")
    server.write(b'{"jsonrpc":"2.0","id":"broken",')
    require("result" in server.ask("ping"), "no ping after a broken line")
    server.end()
    return "method, tool, sandbox, field and a broken line are refused, the server lives on"


def check_concurrency():
    server = started()
    server.call("exec_bash", {"command": "true", "sandbox_name": SANDBOX})
    running = server.begin("tools/call", {"name": "exec_bash", "arguments": {
        "command": "sleep 3", "sandbox_name": SANDBOX}})
    began = time.perf_counter()
    server.ask("ping", seconds=2)
    server.call("exec_bash", {"command": "true", "sandbox_name": SANDBOX}, seconds=2)
    took = (time.perf_counter() - began) * 1000
    require(server.wait(running, 10), "the slow call was never answered")
    server.end()
    return f"ping and a second command answered after {took:.0f} ms while a command slept"


def check_cancel():
    server = started()
    server.notify("notifications/cancelled", {"requestId": 424242, "reason": "unknown"})
    marker = f"cancel-{os.getpid()}"
    running = server.begin("tools/call", {"name": "exec_bash", "arguments": {
        "command": f"exec -a {marker} sleep 60", "sandbox_name": SANDBOX}})
    # The private sshd is on this machine, so the remote process can be looked for directly.
    require(eventually(lambda: alive(marker)), "the command to cancel never started")
    server.notify("notifications/cancelled", {"requestId": running, "reason": "changed my mind"})
    require(eventually(lambda: not alive(marker)), "the remote process outlives the cancelled call")
    require("result" in server.ask("ping"), "no ping after a cancel")
    require(server.wait(running, 1) is None, "a cancelled call was still answered")
    server.end()
    return "the remote process ended, no reply was sent, the server answers"


def check_end_of_input():
    server = started()
    marker = f"end-{os.getpid()}"
    server.begin("tools/call", {"name": "exec_bash", "arguments": {
        "command": f"exec -a {marker} sleep 60", "sandbox_name": SANDBOX}})
    require(eventually(lambda: alive(marker)), "the command never started")
    server.end()
    require(eventually(lambda: not alive(marker)), "the remote process outlives the server")
    return "exit 0, the remote process ended too, stdout held only protocol"


def alive(marker):
    """Whether a process with this name as its first argument runs."""
    if not os.path.isdir("/proc/self"):
        return subprocess.run(["pgrep", "-f", f"^{marker} "], stdout=subprocess.DEVNULL, check=False).returncode == 0
    wanted = marker.encode() + b"\0"
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as arguments:
                if arguments.read(len(wanted)) == wanted:
                    return True
        except OSError:
            continue
    return False


def eventually(condition, seconds=15):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return False


CHECKS = {
    "start": check_start,
    "versions": check_versions,
    "legacy": check_legacy,
    "modern": check_modern,
    "exit-code": check_exit_code,
    "tools": check_tools,
    "errors": check_errors,
    "concurrency": check_concurrency,
    "cancel": check_cancel,
    "end-of-input": check_end_of_input,
}

if __name__ == "__main__":
    if sys.argv[1:] == ["names"]:
        print("\n".join(CHECKS))
    else:
        COMMAND.extend(sys.argv[2:])
        print(CHECKS[sys.argv[1]]())
