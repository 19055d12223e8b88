"""What is compared: MCP servers over stdio, and plain `ssh` with a shared connection."""
import concurrent.futures
import json
import os
import re
import shlex
import subprocess
import threading
import time

CALL_SECONDS = 120
BIG_BYTES = 5_000_000
BIG_COMMAND = f"head -c {BIG_BYTES} /dev/zero | tr '\\0' x"
RESOURCES_COMMAND = "cat /proc/loadavg /proc/meminfo; nproc"


class Failed(Exception):
    """A contestant did not do what was measured."""


def resident_kb(pid):
    """Resident memory of one process, None where /proc does not tell."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as status:
            return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1])
    except (OSError, TypeError):
        return None


class McpServer:
    """One MCP server process with one sandbox named `bench`."""

    def __init__(self, name, command, link, folder):
        self.name, self.command, self.link = name, shlex.split(command), link
        self.home = os.path.join(folder, f"home-{name}")
        os.makedirs(os.path.join(self.home, ".ssh"), mode=0o700, exist_ok=True)
        with open(os.path.join(self.home, ".ssh", "known_hosts"), "w", encoding="ascii") as file:
            file.write(link.known_host_line())
        self.process = None

    def environment(self):
        sandbox = {"name": "bench", "host": "127.0.0.1", "port": self.link.port, "user": self.link.user,
                   "key_file": self.link.key}
        return {"PATH": os.environ["PATH"], "HOME": self.home, "LANG": "C.UTF-8",
                "REMOTE_SANDBOX_MCP_HOME": os.path.join(self.home, "state"),
                "REMOTE_SANDBOX_LIST": json.dumps([sandbox])}

    def start(self):
        """Starts the process and returns when `initialize` is answered."""
        self.replies, self.waiting, self.last_id = {}, threading.Condition(), 0
        self.process = subprocess.Popen(self.command, env=self.environment(), stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True).start()
        self.ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {},
                                "clientInfo": {"name": "bench", "version": "1"}})
        self._write({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def _read(self, stream):
        for line in stream:
            message = json.loads(line)
            if "id" in message and "method" not in message:
                with self.waiting:
                    self.replies[message["id"]] = message
                    self.waiting.notify_all()

    def _write(self, message):
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, method, parameters):
        with self.waiting:
            self.last_id += 1
            own_id = self.last_id
            self._write({"jsonrpc": "2.0", "id": own_id, "method": method, "params": parameters})
            if not self.waiting.wait_for(lambda: own_id in self.replies, CALL_SECONDS):
                raise Failed(f"{self.name}: no answer to {method}")
            reply = self.replies.pop(own_id)
        if "error" in reply:
            raise Failed(f"{self.name}: {method}: {reply['error']}")
        return reply["result"]

    def call(self, tool, **arguments):
        result = self.ask("tools/call", {"name": tool, "arguments": arguments})
        text = result["content"][0]["text"]
        if result.get("isError"):
            raise Failed(f"{self.name}: {tool}: {text[:300]}")
        reply = json.loads(text)
        if "error" in reply:
            raise Failed(f"{self.name}: {tool}: {reply['error']}")
        return reply

    def run(self, command, **more):
        reply = self.call("exec_bash", command=command, **more)
        if reply.get("exit_code") != 0:
            raise Failed(f"{self.name}: {command!r} answered {str(reply)[:300]}")
        return reply.get("stdout") or ""

    def run_big(self):
        return len(self.run(BIG_COMMAND, max_output_chars=BIG_BYTES + 100_000))

    def resources(self):
        found = self.call("list_sandboxes", check_resources=True)["sandboxes"][0]
        if not found.get("resources") or "error" in found["resources"]:
            raise Failed(f"{self.name}: no resources in {found}")

    def memory_kb(self):
        return resident_kb(self.process.pid)

    def stop(self):
        if self.process is None:
            return
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None


class PlainSsh:
    """`ssh` with one shared connection, what a careful shell script would use."""

    name = "ssh"

    def __init__(self, link, folder):
        self.link = link
        hosts = os.path.join(folder, "known_hosts-ssh")
        with open(hosts, "w", encoding="ascii") as file:
            file.write(link.known_host_line())
        # Unix socket paths are short, so the folder's name must be too.
        self.socket = os.path.join(folder, "cm")
        self.options = ["-F", "none", "-p", str(link.port), "-i", link.key, "-o", "IdentitiesOnly=yes",
                        "-o", "BatchMode=yes", "-o", f"UserKnownHostsFile={hosts}", "-o", f"ControlPath={self.socket}"]

    def command(self, *more):
        return ["ssh", *self.options, *more, f"{self.link.user}@127.0.0.1"]

    def start(self):
        """Nothing to start: the first command opens the connection."""

    def run(self, command):
        shared = ["-o", "ControlMaster=auto", "-o", "ControlPersist=600"]
        done = subprocess.run([*self.command(*shared), command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, timeout=CALL_SECONDS, check=False)
        if done.returncode != 0:
            raise Failed(f"ssh: {command!r} ended with {done.returncode}")
        return done.stdout

    def run_big(self):
        return len(self.run(BIG_COMMAND))

    def resources(self):
        self.run(RESOURCES_COMMAND)

    def memory_kb(self):
        told = subprocess.run(self.command("-O", "check"), capture_output=True, text=True, check=False)
        found = re.search(r"pid=(\d+)", told.stderr + told.stdout)
        return resident_kb(found[1]) if found else None

    def stop(self):
        subprocess.run(self.command("-O", "exit"), capture_output=True, check=False)
        deadline = time.monotonic() + 5
        while os.path.exists(self.socket) and time.monotonic() < deadline:
            time.sleep(0.01)


def run_many(contestant, command, count):
    """The same command several times at once."""
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        for done in [pool.submit(contestant.run, command) for _ in range(count)]:
            done.result()
