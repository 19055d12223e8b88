"""What is compared: MCP servers over stdio, and `ssh` with and without a shared connection."""
from __future__ import annotations

import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import threading
import time
from typing import Any

from world import Host, World

CALL_SECONDS = 120
BIG_BYTES = 5_000_000
BIG_COMMAND = f"head -c {BIG_BYTES} /dev/zero | tr '\\0' x"
# The script of our server, so that its row is compared with the same work.
PROBE_FOLDER = pathlib.Path(__file__).resolve().parent.parent / "crates/core/src/probe"
PROBE_FILES = ("probe_gpu.sh", "probe.sh")
LOGINS_AT_ONCE = 4


class Failed(Exception):
    """A contestant did not do what was measured."""


def resident_mb(pid: int) -> float:
    """Resident memory of one process."""
    found = re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text(encoding="ascii"))
    if not found:
        raise Failed(f"no resident memory is told for process {pid}")
    return int(found[1]) / 1024


def processor_ms(pid: int) -> float:
    """Processor time that the threads of a process have used until now."""
    told = pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text(encoding="ascii").split()[0]) for thread in told) / 1e6


def proportional_mb(pids: list[int]) -> float:
    """Memory of some processes, where a page that several share counts as a part for each."""
    told = "".join(pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii") for pid in pids)
    return sum(int(kb) for kb in re.findall(r"^Pss:\s+(\d+)", told, re.MULTILINE)) / 1024


def processes_of(folder: str) -> list[int]:
    """The processes whose home lies in a folder."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*/environ"):
        try:
            home = [word for word in entry.read_bytes().split(b"\0") if word.startswith(b"HOME=")]
        except OSError:
            continue
        if any(word[5:].startswith(folder.encode()) for word in home):
            found.append(int(entry.parent.name))
    return found


def probe_script() -> bytes:
    text = "".join((PROBE_FOLDER / name).read_text(encoding="utf-8") for name in PROBE_FILES)
    lines = (line.strip() for line in text.splitlines())
    text = "".join(f"{line}\n" for line in lines if line and not line.startswith("#"))
    return text.replace("@NONCE@", "benchnonce").replace("@LIMIT@", "5").encode()


class Contestant:
    """Somebody who is measured; what it cannot do it does not offer."""

    name: str

    def start(self) -> float:
        """Starts what there is to start; says how many milliseconds that took."""
        return 0.0

    def connect(self) -> None:
        """Connects to all hosts."""

    def run(self, command: str) -> str | bytes:
        """The standard output of a command on the first host."""
        raise Failed(f"{self.name} runs no commands")

    def run_big(self) -> int:
        """How many of the bytes came back."""
        return len(self.run(BIG_COMMAND))

    def probe(self) -> int:
        """Asks for the resources of all hosts; says how many answered."""
        raise Failed(f"{self.name} does not probe")

    def process_id(self) -> int | None:
        """The process whose memory and processor time count, where there is one."""
        return None

    def stop(self) -> None:
        """Ends what was started."""


class McpServer(Contestant):
    """One MCP server process with some sandboxes, the first of which runs the commands."""

    def __init__(self, name: str, command: str, world: World, hosts: list[Host]) -> None:
        self.name, self.command, self.world, self.hosts = name, command, world, hosts
        self.process: subprocess.Popen | None = None
        self.replies: dict[int, dict] = {}
        self.waiting = threading.Condition()
        self.last_id, self.ended = 0, False

    def _environment(self) -> dict[str, str]:
        home = self.world.folder / f"home-{self.name}"
        shutil.rmtree(home, ignore_errors=True)
        (home / ".ssh").mkdir(mode=0o700, parents=True)
        (home / ".ssh" / "known_hosts").write_text(self.world.known_hosts(), encoding="ascii")
        sandboxes = [{"name": host.name, "host": "127.0.0.1", "port": host.port, "user": self.world.user,
                      "key_file": str(self.world.key)} for host in self.hosts]
        return {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8",
                "REMOTE_SANDBOX_MCP_HOME": str(home / "state"), "REMOTE_SANDBOX_LIST": json.dumps(sandboxes),
                # Nothing may stay behind when the run is over.
                "REMOTE_SANDBOX_WATCHDOG": "off"}

    def start(self) -> float:
        environment = self._environment()
        self.replies, self.ended = {}, False
        began = time.perf_counter()
        self.process = subprocess.Popen([self.command], env=environment, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True).start()
        # Answered when the server can be used.
        self._ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {},
                                 "clientInfo": {"name": "bench", "version": "1"}})
        took = (time.perf_counter() - began) * 1000
        self._write({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return took

    def _read(self, stream: Any) -> None:
        for line in stream:
            message = json.loads(line)
            if "id" in message and "method" not in message:
                with self.waiting:
                    self.replies[message["id"]] = message
                    self.waiting.notify_all()
        with self.waiting:
            self.ended = True
            self.waiting.notify_all()

    def _write(self, message: dict) -> None:
        if self.process is None or self.process.stdin is None:
            raise Failed("the server does not run")
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def _ask(self, method: str, parameters: dict) -> dict:
        with self.waiting:
            self.last_id += 1
            own_id = self.last_id
            self._write({"jsonrpc": "2.0", "id": own_id, "method": method, "params": parameters})
            self.waiting.wait_for(lambda: own_id in self.replies or self.ended, CALL_SECONDS)
            reply = self.replies.pop(own_id, None)
        if reply is None:
            raise Failed(f"no answer to {method} within {CALL_SECONDS} s")
        if "error" in reply:
            raise Failed(f"{method}: {reply['error']}")
        return reply["result"]

    def _call(self, tool: str, **arguments: Any) -> dict:
        result = self._ask("tools/call", {"name": tool, "arguments": arguments})
        text = result["content"][0]["text"]
        if result.get("isError"):
            raise Failed(f"{tool}: {text[:300]}")
        reply = json.loads(text)
        if "error" in reply:
            raise Failed(f"{tool}: {reply['error']}")
        return reply

    def connect(self) -> None:
        self.probe()

    def run(self, command: str) -> str:
        # The default limits how much of the output comes back.
        reply = self._call("exec_bash", command=command, max_output_chars=BIG_BYTES + 100_000)
        if reply.get("exit_code") != 0:
            raise Failed(f"{command!r} answered {str(reply)[:300]}")
        return reply.get("stdout") or ""

    def create(self, name: str) -> str:
        """Makes a local sandbox; says where its home is."""
        return str(pathlib.Path(self._call("create_sandbox", name=name)["workspace"]).parent)

    def delete(self, name: str) -> None:
        self._call("delete_sandbox", sandbox_id=name)

    def probe(self) -> int:
        listed = self._call("list_sandboxes", check_resources=True)["sandboxes"]
        return sum(1 for found in listed if found.get("resources") and "error" not in found["resources"])

    def process_id(self) -> int | None:
        return self.process.pid if self.process else None

    def stop(self) -> None:
        if self.process is None or self.process.stdin is None:
            return
        try:
            self.process.stdin.close()
            self.process.wait(10)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        self.process = None


class Ssh(Contestant):
    """`ssh`, a process per command; shared: over one kept connection per host, as a careful shell script would."""

    def __init__(self, name: str, world: World, hosts: list[Host], shared: bool) -> None:
        self.name, self.world, self.hosts, self.shared = name, world, hosts, shared
        known = world.folder / "known_hosts"
        known.write_text(world.known_hosts(), encoding="ascii")
        self.options = ["-F", "none", "-i", str(world.key), "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes",
                        "-o", f"UserKnownHostsFile={known}", "-o", "LogLevel=ERROR"]

    def _program(self, host: Host, *more: str) -> list[str]:
        where = ["-p", str(host.port), f"{self.world.user}@127.0.0.1"]
        path = str(self.world.folder / f"cm-{host.name}") if self.shared else "none"
        return ["ssh", *self.options, "-o", f"ControlPath={path}", *more, *where]

    def _run_on(self, host: Host, command: str, script: bytes = b"") -> bytes:
        shared = ["-o", "ControlMaster=auto", "-o", "ControlPersist=600"] if self.shared else []
        done = subprocess.run([*self._program(host, *shared), command], input=script, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, timeout=CALL_SECONDS, check=False)
        if done.returncode != 0:
            raise Failed(f"{command!r} ended with {done.returncode}")
        return done.stdout

    def run(self, command: str) -> bytes:
        return self._run_on(self.hosts[0], command)

    def connect(self) -> None:
        with concurrent.futures.ThreadPoolExecutor(LOGINS_AT_ONCE) as pool:
            list(pool.map(lambda host: self._run_on(host, "true"), self.hosts))

    def probe(self) -> int:
        script = probe_script()
        with concurrent.futures.ThreadPoolExecutor(len(self.hosts)) as pool:
            answers = pool.map(lambda host: self._run_on(host, "exec sh", script), self.hosts)
            return sum(1 for answer in answers if b"benchnonce" in answer)

    def stop(self) -> None:
        if not self.shared:
            return
        for host in self.hosts:
            subprocess.run(self._program(host, "-O", "exit"), capture_output=True, check=False, timeout=CALL_SECONDS)
            deadline = time.monotonic() + 5
            while (self.world.folder / f"cm-{host.name}").exists() and time.monotonic() < deadline:
                time.sleep(0.01)


class Bubblewrap(Contestant):
    """`bwrap` with walls like ours, a process per command."""

    def __init__(self, name: str) -> None:
        self.name = name

    def run(self, command: str) -> bytes:
        walls = ["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--ro-bind", "/", "/",
                 "--proc", "/proc", "--dev", "/dev"]
        done = subprocess.run(["bwrap", *walls, "bash", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              timeout=CALL_SECONDS, check=False)
        if done.returncode != 0:
            raise Failed(f"{command!r} ended with {done.returncode}")
        return done.stdout


class NoLink(Contestant):
    """The script of the probe on this machine, without any link: what the work itself takes."""

    def __init__(self, name: str, hosts: list[Host]) -> None:
        self.name, self.hosts = name, hosts

    def probe(self) -> int:
        script = probe_script()

        def one(_: Host) -> bool:
            return b"benchnonce" in subprocess.run(["sh"], input=script, stdout=subprocess.PIPE,
                                                   timeout=CALL_SECONDS, check=True).stdout

        with concurrent.futures.ThreadPoolExecutor(len(self.hosts)) as pool:
            return sum(pool.map(one, self.hosts))


def run_together(contestant: Contestant, command: str, count: int) -> None:
    """The same command several times at once."""
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        for done in [pool.submit(contestant.run, command) for _ in range(count)]:
            done.result()
