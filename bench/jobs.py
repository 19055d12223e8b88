#!/usr/bin/env python3
"""Compares jobs of our server with those of the Python package, and measures ticks of our watchdog.

Call it through `scripts/bench-jobs`, which installs and builds what is compared; README.md beside it explains the rows.
"""
from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from typing import Callable, Iterator

# Running the script must not leave files in the tree.
sys.dont_write_bytecode = True
import jobs_report
from compare import HERE, PAUSE_SECONDS, Bench, in_turn, say
from contestants import Failed, processes_of
from jobs_clones import Clones
from jobs_contestants import JobServer, Watchdog
from jobs_rows import TICKS, tick_rows
from rows import DELAYED, LOOPBACK, OURS, PACKAGE
from sync_contestants import peak_mb
from world import World

# Our watchdog visits 64 hosts at a time, which are all this one sshd.
STARTUPS = "256"
LATER_TICKS = 2


class JobsBench(Bench):
    """One run."""

    @contextlib.contextmanager
    def servers(self, link: str, row: str) -> Iterator[list[JobServer]]:
        """Both servers, connected; afterwards they are ended together with the job that each of them may still have."""
        self.broken.clear()
        world, hosts = self.world, self.world.hosts(link, 1)
        found = [JobServer(OURS, self.options.binary, world, hosts, has_watchdog=True),
                 JobServer(PACKAGE, self.options.package, world, hosts)]
        try:
            for one in found:
                self.attempt(row, link, one, one.start)
                self.attempt(row, link, one, one.connect)
            yield found
        finally:
            for one in found:
                self.attempt(row, link, one, one.end)
                one.stop()


def measure_start(bench: JobsBench, link: str) -> None:
    """Each job is ended before the next one starts, so that all find the host alike."""
    rows = {"start_plain": {"watch": False}, "start_watched": {}, "start_named": {"named": True}}
    with bench.servers(link, "start_plain") as servers:
        for round_number in range(bench.options.rounds):
            for row, words in rows.items():
                for one in in_turn(servers, round_number):
                    for _ in range(bench.options.calls):
                        # The package makes the name of a job of the second it starts in.
                        time.sleep(max(PAUSE_SECONDS, 1.0))
                        bench.timed(row, link, one, partial(one.begin, **words))
                        bench.attempt(row, link, one, one.wait_until_it_wrote)
                        bench.attempt(row, link, one, one.check)
                        bench.attempt(row, link, one, one.end)


def measure_check(bench: JobsBench, link: str) -> None:
    with bench.servers(link, "check") as servers:
        for one in servers:
            bench.attempt("check", link, one, one.begin)
            bench.attempt("check", link, one, one.wait_until_it_wrote)
        for round_number in range(bench.options.rounds):
            for one in in_turn(servers, round_number):
                for _ in range(bench.options.calls):
                    # At the pace of an agent.
                    time.sleep(PAUSE_SECONDS)
                    bench.timed("check", link, one, one.check)


def measure_ticks(bench: JobsBench, watches: int, host_count: int) -> None:
    """Rounds with a watchdog of their own, for a peak never falls and only the first tick of a process logs in."""
    hosts = bench.world.hosts(LOOPBACK, host_count)
    one = JobServer(OURS, bench.options.binary, bench.world, hosts)
    first = tick_rows(watches)[0]
    bench.broken.clear()
    clones = None
    try:
        bench.attempt(first, LOOPBACK, one, one.start)
        bench.attempt(first, LOOPBACK, one, partial(one.begin, True))
        one.stop()
        if one.name in bench.broken:
            return
        store = pathlib.Path(one.variables["REMOTE_SANDBOX_MCP_HOME"]) / "store.sqlite3"
        clones = Clones(store, bench.world.folder / "plain", one.job)
        bench.attempt(first, LOOPBACK, one, partial(clones.make, watches, hosts))
        bench.attempt(first, LOOPBACK, one, partial(require_shown, one, clones, watches))
        for _ in range(bench.options.rounds):
            bench.attempt(first, LOOPBACK, one, partial(measure_process, bench, one, clones, watches))
    finally:
        one.stop()
        end_processes(bench.world)
        if clones:
            clones.remove()


def require_shown(one: JobServer, clones: Clones, watches: int) -> None:
    """The program itself takes the last copy for a job that runs."""
    done = subprocess.run([one.command, "job", "show", "--json", clones.id(watches - 1)], env=one.variables,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0 or json.loads(done.stdout).get("status") != "running":
        raise Failed(f"the copy of a job is shown as {done.stdout[:300]} {done.stderr[:300]}")


def measure_process(bench: JobsBench, one: JobServer, clones: Clones, watches: int) -> None:
    """The first tick of a watchdog, and some more, before each of which every log has grown."""
    first, later, processor, peak = tick_rows(watches)
    add = partial(bench.table.add, link=LOOPBACK, name=OURS)
    watchdog = Watchdog(one.command, one.variables)
    try:
        took = watchdog.next_tick(watches, 0)
        clones.require_running()
        add(first, value=took)
        for number in range(1, LATER_TICKS + 1):
            clones.grow()
            before = watchdog.processor_ms()
            watchdog.make_due()
            took = watchdog.next_tick(watches, number)
            clones.require_running()
            add(later, value=took)
            add(processor, value=watchdog.processor_ms() - before)
        add(peak, value=peak_mb(watchdog.process.pid))
        say(f"  {watches} watches: {took / 1000:.2f} s, {peak_mb(watchdog.process.pid):.1f} MB")
    finally:
        watchdog.stop()
    # For the next one.
    watchdog.make_due()


def measure(bench: JobsBench) -> None:
    parts: list[tuple[str, Callable[[], None]]] = []
    for link in (LOOPBACK, DELAYED):
        parts += [(f"start-{link}", partial(measure_start, bench, link)),
                  (f"check-{link}", partial(measure_check, bench, link))]
    sizes = TICKS[:2] if bench.options.quick else TICKS
    parts += [(f"ticks-{watches}", partial(measure_ticks, bench, watches, hosts)) for watches, hosts in sizes]
    wanted = [word for word in bench.options.only.split(",") if word]
    for name, part in parts:
        if not wanted or any(name == word or name.startswith(f"{word}-") for word in wanted):
            say(name)
            part()


def keep_tmux(world: World) -> None:
    """A tmux server for the whole run, so that nobody pays for the start of one."""
    subprocess.run(["tmux", "new-session", "-d", "-s", "keep", "sleep", "86400"], check=True, stdin=subprocess.DEVNULL,
                   env={"PATH": os.environ["PATH"], "HOME": str(world.folder / "plain"), "TMUX_TMPDIR": str(world.folder)})


def end_processes(world: World) -> None:
    """Ends the jobs on the hosts, and their tmux server."""
    for pid in processes_of(str(world.folder / "plain")):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True, help="our server")
    parser.add_argument("--package", required=True, help="the server of the Python package")
    parser.add_argument("--rtt-ms", type=float, default=50, help="round trip of the delayed link")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--calls", type=int, default=5, help="starts and checks per round")
    parser.add_argument("--quick", action="store_true", help="few repetitions and fewer watches, to see that everything works")
    parser.add_argument("--only", default="", help="some parts, with commas: start, check, ticks, or one such as "
                                                   "check-delayed or ticks-1000")
    parser.add_argument("--out", type=pathlib.Path, default=HERE, help="where JOBS.md and jobs-ticks.png go")
    parser.add_argument("--json", type=pathlib.Path, required=True, help="where every single value goes")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.calls = 1, 2
    return options


def main() -> None:
    options = parse_options()
    # Who ends the run early must not leave its sshds and jobs.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder = pathlib.Path(tempfile.mkdtemp(prefix="rsb", dir="/tmp"))
    world = None
    try:
        machine = jobs_report.describe_machine()
        world = World(folder, 1, options.rtt_ms, STARTUPS)
        bench = JobsBench(world, options)
        keep_tmux(world)
        measure(bench)
        options.json.write_text(json.dumps({"machine": machine, "cells": bench.table.as_json()}, indent=1) + "\n",
                                encoding="utf-8")
        options.out.mkdir(parents=True, exist_ok=True)
        written = jobs_report.write(bench.table, machine, options)
        say(f"wrote {', '.join(map(str, written))}, {options.json}")
    finally:
        if world:
            end_processes(world)
            world.close()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
