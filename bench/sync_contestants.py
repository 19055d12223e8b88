"""Who copies trees: MCP servers, and `rsync`, `scp` and `tar` over `ssh`.

Everybody copies the content of one folder into another. The folder of the host lies on this machine, so that what arrived
can be compared.
"""
from __future__ import annotations

import pathlib
import re
import shlex
import subprocess
import time
from typing import Any

from contestants import Contestant, Failed, McpServer, Ssh
from world import Host, World

TRANSFER_SECONDS = 600
POLL_SECONDS = 0.02
UNLIMITED = str(10**12)
# Both servers name them so; the package takes no more than 10 files inline whatever it is told.
INLINE_LIMITS = ("REMOTE_SANDBOX_INLINE_SYNC_MAX_FILES", "REMOTE_SANDBOX_INLINE_SYNC_MAX_BYTES")


def peak_mb(pid: int) -> float:
    """The most resident memory that a process ever had."""
    found = re.search(r"VmHWM:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text(encoding="ascii"))
    if not found:
        raise Failed(f"no peak of memory is told for process {pid}")
    return int(found[1]) / 1024


def run(*command: str) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                          timeout=TRANSFER_SECONDS, check=False)
    if done.returncode != 0:
        raise Failed(f"{command[0]} ended with {done.returncode}: {done.stderr.decode(errors='replace').strip()[:300]}")


def pipe(source: list[str], sink: list[str]) -> None:
    """Two programs, the output of one being the input of the other."""
    with subprocess.Popen(source, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as first:
        try:
            second = subprocess.run(sink, stdin=first.stdout, stdout=subprocess.DEVNULL, timeout=TRANSFER_SECONDS,
                                    check=False)
        except subprocess.TimeoutExpired:
            first.kill()
            raise
        if first.stdout is not None:
            first.stdout.close()
    if first.returncode != 0 or second.returncode != 0:
        raise Failed(f"{source[0]} ended with {first.returncode}, {sink[0]} with {second.returncode}")


class Copier(Contestant):
    """Somebody who copies the content of a folder, there or back."""

    def up(self, local: pathlib.Path, remote: pathlib.Path) -> None:
        raise Failed(f"{self.name} does not upload")

    def down(self, remote: pathlib.Path, local: pathlib.Path) -> None:
        raise Failed(f"{self.name} does not download")

    def copied_files(self) -> int | None:
        """How many files the last copy moved, where that is told."""
        return None


class SyncServer(McpServer, Copier):
    """The sync tools of a server, over its live connection; what it moves to the background is waited for."""

    def __init__(self, name: str, command: str, world: World, hosts: list[Host], folder: pathlib.Path) -> None:
        super().__init__(name, command, world, hosts)
        self.folder, self.last = folder, {}

    def _environment(self) -> dict[str, str]:
        # Ours syncs only in some places, of which the folder of temporary files is one.
        return {**super()._environment(), **dict.fromkeys(INLINE_LIMITS, UNLIMITED), "TMPDIR": str(self.folder)}

    def connect(self) -> None:
        self.run("true")

    def up(self, local: pathlib.Path, remote: pathlib.Path) -> None:
        self._sync("sync_local_to_remote", local, remote)

    def down(self, remote: pathlib.Path, local: pathlib.Path) -> None:
        self._sync("sync_remote_to_local", local, remote)

    def _sync(self, tool: str, local: pathlib.Path, remote: pathlib.Path) -> None:
        self.last = {}
        reply = self._call(tool, local_path=str(local), remote_path=str(remote))
        self.last = self._finished(reply["task_id"]) if reply.get("mode") == "background" else reply
        if self.last.get("problems"):
            raise Failed(f"{tool}: {str(self.last['problems'])[:300]}")

    def _finished(self, task: Any) -> dict:
        deadline = time.monotonic() + TRANSFER_SECONDS
        while time.monotonic() < deadline:
            told = self._call("check_file_transfer_task", task_id=task, last_n_lines=1)
            if told["status"] == "completed":
                return told.get("result") or {}
            if told["status"] not in ("queued", "running"):
                raise Failed(f"the transfer ended as {told['status']}")
            time.sleep(POLL_SECONDS)
        raise Failed(f"the transfer was not done within {TRANSFER_SECONDS} s")

    def copied_files(self) -> int | None:
        # A count that is zero may be left out of a reply.
        return sum(self.last.get(key, 0) for key in ("uploaded_files", "downloaded_files")) if self.last else None


class Program(Ssh, Copier):
    """A program that copies over `ssh`; shared: over one kept connection."""

    def _remote(self, path: pathlib.Path) -> str:
        return f"{self._program(self.hosts[0])[-1]}:{path}"

    def connect(self) -> None:
        if self.shared:
            super().connect()


class Rsync(Program):
    """`rsync -a`, with further options where a row is about them."""

    def __init__(self, name: str, world: World, hosts: list[Host], shared: bool, *more: str) -> None:
        super().__init__(name, world, hosts, shared)
        self.more = more

    def _copy(self, source: str, target: str) -> None:
        shell = shlex.join(self._program(self.hosts[0])[:-1])
        run("rsync", "-a", *self.more, "-e", shell, f"{source}/", target)

    def up(self, local: pathlib.Path, remote: pathlib.Path) -> None:
        self._copy(str(local), self._remote(remote))

    def down(self, remote: pathlib.Path, local: pathlib.Path) -> None:
        self._copy(self._remote(remote), str(local))


class Scp(Program):
    """`scp -r` into a folder that is not there yet."""

    def _copy(self, source: str, target: str) -> None:
        path = str(self.world.folder / f"cm-{self.hosts[0].name}") if self.shared else "none"
        run("scp", "-q", "-r", *self.options, "-o", f"ControlPath={path}", "-P", str(self.hosts[0].port), source, target)

    def up(self, local: pathlib.Path, remote: pathlib.Path) -> None:
        self._copy(str(local), self._remote(remote))

    def down(self, remote: pathlib.Path, local: pathlib.Path) -> None:
        self._copy(self._remote(remote), str(local))


class Tar(Program):
    """`tar` on one side, `tar` on the other, `ssh` between them."""

    def up(self, local: pathlib.Path, remote: pathlib.Path) -> None:
        there = shlex.quote(str(remote))
        pipe(["tar", "-C", str(local), "-cf", "-", "."],
             [*self._program(self.hosts[0]), f"mkdir -p {there} && tar -C {there} -xf -"])

    def down(self, remote: pathlib.Path, local: pathlib.Path) -> None:
        local.mkdir()
        pipe([*self._program(self.hosts[0]), f"tar -C {shlex.quote(str(remote))} -cf - ."],
             ["tar", "-C", str(local), "-xf", "-"])
