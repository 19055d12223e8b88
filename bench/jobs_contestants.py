"""Who starts jobs and looks at them: MCP servers, and our watchdog."""
from __future__ import annotations

import contextlib
import itertools
import os
import pathlib
import re
import sqlite3
import subprocess
import time
from typing import Any, Callable

from contestants import Failed, McpServer
from world import Host, World

FIRST_WORD = "begun"
COMMAND = f"echo {FIRST_WORD}; sleep 3600"
START_SECONDS = 30
TICK_SECONDS = 600
TICK_LINE = re.compile(r" tick watches=(\d+) hosts=\d+ seconds=([0-9.e-]+)")


def wait_for(what: str, seconds: float, is_there: Callable[[], bool]) -> None:
    deadline = time.monotonic() + seconds
    while not is_there():
        if time.monotonic() > deadline:
            raise Failed(f"{what} did not come within {seconds:g} s")
        time.sleep(0.05)


class JobServer(McpServer):
    """The tools of a server about jobs."""

    numbers = itertools.count(1)

    def __init__(self, name: str, command: str, world: World, hosts: list[Host], has_watchdog: bool = False) -> None:
        super().__init__(name, command, world, hosts)
        self.has_watchdog, self.variables, self.watchdog = has_watchdog, {}, None
        self.job: dict[str, Any] = {}

    def _environment(self) -> dict[str, str]:
        self.variables = super()._environment()
        if self.has_watchdog:
            del self.variables["REMOTE_SANDBOX_WATCHDOG"]
        return self.variables

    def start(self) -> float:
        took = super().start()
        if self.has_watchdog:
            # Found by every start of a job, so that none of them sets up a service on this machine.
            self.watchdog = Watchdog(self.command, self.variables)
        return took

    def connect(self) -> None:
        """The first start of a job, in which ours logs in once more, as its watchdog will."""
        # The package makes the name of a job of the second it starts in, and the next one may come in the same.
        self.begin(watch=True, named=True)
        self.end()

    def begin(self, watch: bool | None = None, named: bool = False) -> None:
        """Starts a job; without a word about a watch or a name as the server does it by default."""
        more: dict[str, Any] = {} if watch is None else {"watch": watch}
        if named:
            more["session_name"] = f"bench-{next(self.numbers)}"
        self.job = self._call("exec_bash_background", command=COMMAND, **more)
        if self.job.get("status") != "started" or (watch is not False and not self.job.get("watch_id")):
            raise Failed(f"the start answered {str(self.job)[:300]}")

    def check(self) -> None:
        """Looks at the latest job, which runs."""
        told = self._call("check_background_task", tmux_session=self.job["tmux_session"], log_file=self.job["log_file"])
        if not told.get("running") or FIRST_WORD not in told.get("log_tail", ""):
            raise Failed(f"the check answered {str(told)[:300]}")

    def wait_until_it_wrote(self) -> None:
        log = pathlib.Path(self.job["log_file"])
        wait_for("the log of a job", START_SECONDS, lambda: log.exists() and FIRST_WORD in log.read_text(encoding="utf-8"))

    def end(self) -> None:
        """Ends the latest job; the package has no tool for that."""
        job, self.job = self.job, {}
        if not job:
            return
        if task := job.get("task_id"):
            self._call("stop_background_task", task_id=task)
        else:
            self.run(f"tmux kill-session -t '={job['tmux_session']}'")

    def stop(self) -> None:
        super().stop()
        if self.watchdog:
            self.watchdog.stop()
            self.watchdog = None


class Watchdog:
    """Our watchdog in a process of its own. It has the state folder of a server and does not know its sandboxes."""

    def __init__(self, command: str, variables: dict[str, str]) -> None:
        state = pathlib.Path(variables["REMOTE_SANDBOX_MCP_HOME"])
        self.store, self.log = state / "store.sqlite3", state / "bench-watchdog.log"
        surroundings = {name: value for name, value in variables.items() if name != "REMOTE_SANDBOX_LIST"}
        state.mkdir(mode=0o700, exist_ok=True)
        with self.log.open("w", encoding="utf-8") as log:
            self.process = subprocess.Popen([command, "-v", "watchdog", "run"], env=surroundings, stdin=subprocess.DEVNULL,
                                            stdout=subprocess.DEVNULL, stderr=log)
        try:
            wait_for("the watchdog", START_SECONDS, lambda: "the watchdog works" in self._said())
        except Failed:
            self.stop()
            raise

    def _said(self) -> str:
        if self.process.poll() is not None:
            raise Failed(f"the watchdog ended: {self.log.read_text(encoding='utf-8')[-300:]}")
        return self.log.read_text(encoding="utf-8")

    def ticks(self, watches: int) -> list[float]:
        """The seconds of all ticks so far that had so many watches."""
        return [float(seconds) for count, seconds in TICK_LINE.findall(self._said()) if int(count) == watches]

    def next_tick(self, watches: int, number: int) -> float:
        """The milliseconds of the tick of that number."""
        wait_for("the tick", TICK_SECONDS, lambda: len(self.ticks(watches)) > number)
        return self.ticks(watches)[number] * 1000

    def make_due(self) -> None:
        """All watches are to be looked at again in the next round."""
        with contextlib.closing(sqlite3.connect(self.store, timeout=30)) as store, store:
            store.execute("UPDATE watches SET next_check = 0, last_checked = NULL")

    def processor_ms(self) -> float:
        """Processor time of the process until now, threads that ended included."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(START_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
