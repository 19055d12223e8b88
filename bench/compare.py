#!/usr/bin/env python3
"""Compares our server with the Python package, with `ssh` over one kept connection and with plain `ssh`, in one run.

Call it through `scripts/bench`, which installs and builds what is compared. README.md beside this file explains the rows.
"""
from __future__ import annotations

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from functools import partial
from typing import Callable

# Running the script must not leave files in the tree.
sys.dont_write_bytecode = True
import report
from contestants import (BIG_BYTES, Bubblewrap, Contestant, Failed, McpServer, NoLink, Ssh, processes_of, processor_ms,
                         proportional_mb, resident_mb, run_together)
from rows import BWRAP, DELAYED, LOCAL, LOOPBACK, NO_LINK, OURS, PACKAGE, PLAIN, SHARED, Table
from world import Host, World

SSHD_COUNT = 8
PAUSE_SECONDS = 0.5
# A cell is not repeated any more once it has taken this long.
CELL_SECONDS = 20
SETTLE_SECONDS = 0.3
HERE = pathlib.Path(__file__).resolve().parent


class Bench:
    """One run: who takes part, where, and what was measured."""

    def __init__(self, world: World, options: argparse.Namespace) -> None:
        self.world, self.options, self.table = world, options, Table()
        self.broken: set[str] = set()

    def contestants(self, hosts: list[Host], *names: str) -> list[Contestant]:
        self.broken.clear()
        options, world = self.options, self.world
        made: dict[str, Callable[[], Contestant]] = {
            OURS: lambda: McpServer(OURS, options.binary, world, hosts),
            PACKAGE: lambda: McpServer(PACKAGE, options.package, world, hosts),
            SHARED: lambda: Ssh(SHARED, world, hosts, shared=True),
            PLAIN: lambda: Ssh(PLAIN, world, hosts, shared=False),
            NO_LINK: lambda: NoLink(NO_LINK, hosts)}
        return [made[name]() for name in names]

    def attempt(self, row: str, link: str, one: Contestant, action: Callable[[], object]) -> float | None:
        """Milliseconds of an action; whoever fails is left out until the next phase."""
        if one.name in self.broken:
            return None
        began = time.perf_counter()
        try:
            action()
        except (Failed, OSError, subprocess.SubprocessError) as problem:
            self.broken.add(one.name)
            self.table.fail(row, link, one.name, str(problem))
            say(f"  {row} {link} {one.name}: {problem}")
            return None
        return (time.perf_counter() - began) * 1000

    def timed(self, row: str, link: str, one: Contestant, action: Callable[[], object], count: int = 1) -> None:
        """Adds the times of some calls to a row, and what processor time they took in the server."""
        pid = one.process_id()
        before, began, done = processor_ms(pid) if pid else 0.0, time.monotonic(), 0
        while done < count and (done == 0 or time.monotonic() - began < CELL_SECONDS):
            took = self.attempt(row, link, one, action)
            if took is None:
                return
            self.table.add(row, link, one.name, took)
            done += 1
        if pid:
            self.table.processor[row, link, one.name] = (processor_ms(pid) - before) / done

    def remember_memory(self, row: str, link: str, one: Contestant) -> None:
        pid = one.process_id()
        if pid and link == LOOPBACK and one.name not in self.broken:
            self.table.add(row, link, one.name, resident_mb(pid))


def say(words: str) -> None:
    print(words, flush=True)


def in_turn(contestants: list[Contestant], round_number: int) -> list[Contestant]:
    """Each round begins with another contestant, so that none always runs after a quiet moment."""
    shift = round_number % len(contestants)
    return contestants[shift:] + contestants[:shift]


def measure_fresh(bench: Bench, link: str) -> None:
    """Start, first command and memory, each time with a new process and a new connection."""
    contestants = bench.contestants(bench.world.hosts(link, 1), OURS, PACKAGE, SHARED, PLAIN)
    for round_number in range(bench.options.rounds * 2):
        for one in in_turn(contestants, round_number):
            try:
                measure_one_fresh(bench, link, one)
            finally:
                one.stop()


def measure_one_fresh(bench: Bench, link: str, one: Contestant) -> None:
    def start() -> None:
        took = one.start()
        if link == LOOPBACK and one.process_id():
            bench.table.add("start", link, one.name, took)

    if bench.attempt("start", link, one, start) is None:
        return
    time.sleep(SETTLE_SECONDS)
    bench.remember_memory("memory_idle", link, one)
    bench.timed("cold", link, one, partial(one.run, "true"))
    time.sleep(SETTLE_SECONDS)
    bench.remember_memory("memory_used", link, one)


def measure_warm(bench: Bench, link: str, host: Host, ending: str) -> None:
    """Commands over live connections: without a pause in blocks, and paced as an agent calls."""
    contestants = bench.contestants([host], OURS, PACKAGE, SHARED, PLAIN)
    rows = {name: f"{name}{ending}" for name in ("warm", "paced")}
    try:
        for one in contestants:
            bench.attempt(rows["warm"], link, one, one.start)
            bench.attempt(rows["warm"], link, one, partial(one.run, "true"))
        for round_number in range(bench.options.rounds):
            for one in in_turn(contestants, round_number):
                time.sleep(2 * PAUSE_SECONDS)
                count = bench.options.calls if one.name != PLAIN else 3
                bench.timed(rows["warm"], link, one, partial(one.run, "true"), count)
                if ending and one.name not in bench.broken:
                    bench.table.add("average_rc", link, one.name, bench.table.average(rows["warm"], link, one.name, count))
        time.sleep(2 * PAUSE_SECONDS)
        for turn in range(bench.options.calls * bench.options.rounds // 2):
            for one in in_turn(contestants, turn):
                bench.timed(rows["paced"], link, one, partial(one.run, "true"))
                # Apart, so that what one still does in the background is not in the time of the next.
                time.sleep(PAUSE_SECONDS / len(contestants))
        if not ending:
            measure_work(bench, link, contestants)
    finally:
        for one in contestants:
            one.stop()


def measure_work(bench: Bench, link: str, contestants: list[Contestant]) -> None:
    """Commands that take time or print much, over the same connections."""

    def big(one: Contestant) -> None:
        received = one.run_big()
        if received != BIG_BYTES:
            bench.table.fail("big", link, one.name, f"only {received} of {BIG_BYTES} bytes came back")

    for round_number in range(bench.options.rounds):
        for one in in_turn(contestants, round_number):
            bench.timed("one", link, one, partial(one.run, "sleep 0.2"))
            time.sleep(PAUSE_SECONDS)
            bench.timed("eight", link, one, partial(run_together, one, "sleep 0.2", 8))
            time.sleep(PAUSE_SECONDS)
    for round_number in range(bench.options.rounds):
        for one in in_turn(contestants, round_number):
            bench.timed("big", link, one, partial(big, one))


def measure_probe(bench: Bench, link: str, count: int) -> None:
    """Resources of some hosts, all of them connected."""
    row, hosts = f"probe{count}", bench.world.hosts(link, count)
    contestants = bench.contestants(hosts, OURS, PACKAGE, SHARED, *([NO_LINK] if link == LOOPBACK else []))

    def probe(one: Contestant) -> None:
        if (answered := one.probe()) != count:
            raise Failed(f"only {answered} of {count} hosts answered")

    try:
        for one in contestants:
            bench.attempt(row, link, one, one.start)
            bench.attempt(row, link, one, one.connect)
        for round_number in range(bench.options.rounds):
            for one in in_turn(contestants, round_number):
                time.sleep(PAUSE_SECONDS)
                bench.timed(row, link, one, partial(probe, one))
        if count == 64:
            for one in contestants:
                bench.remember_memory("memory_64", link, one)
    finally:
        for one in contestants:
            one.stop()


def measure_silent(bench: Bench) -> None:
    """Two of eight hosts take the connection and never speak."""
    hosts = bench.world.hosts(LOOPBACK, 6)
    hosts[2:2], hosts[6:6] = [bench.world.silent_host(0)], [bench.world.silent_host(1)]

    def probe(one: Contestant) -> None:
        if (answered := one.probe()) != 6:
            raise Failed(f"{answered} hosts answered and not 6")

    for one in bench.contestants(hosts, OURS, PACKAGE):
        try:
            if bench.attempt("silent", LOOPBACK, one, one.start) is not None:
                bench.timed("silent", LOOPBACK, one, partial(probe, one))
        finally:
            one.stop()


def measure_local(bench: Bench) -> None:
    """Sandboxes on this machine: a command, making one, and what an idle one takes."""
    server = McpServer(OURS, bench.options.binary, bench.world, [])
    contestants: list[Contestant] = [server, Bubblewrap(BWRAP)]
    bench.broken.clear()
    try:
        for one in contestants:
            bench.attempt("local_exec", LOCAL, one, one.start)
            bench.attempt("local_exec", LOCAL, one, partial(one.run, "true"))
        for round_number in range(bench.options.rounds):
            for one in in_turn(contestants, round_number):
                time.sleep(PAUSE_SECONDS)
                bench.timed("local_exec", LOCAL, one, partial(one.run, "true"), bench.options.calls)
        for value in bench.table.values.get(("local_exec", LOCAL, OURS), []):
            bench.table.add("local_exec_ms", LOCAL, OURS, value)
        for number in range(bench.options.rounds):
            home: list[str] = []
            bench.timed("local_create", LOCAL, server, lambda: home.append(server.create(f"bench{number}")))
            if home:
                time.sleep(SETTLE_SECONDS)
                bench.table.add("local_memory", LOCAL, OURS, proportional_mb(processes_of(home[0])))
                bench.attempt("local_create", LOCAL, server, partial(server.delete, f"bench{number}"))
    finally:
        for one in contestants:
            one.stop()


def measure(bench: Bench) -> None:
    phases: dict[str, Callable[[str], None]] = {
        "fresh": partial(measure_fresh, bench),
        "warm": lambda link: measure_warm(bench, link, bench.world.hosts(link, 1)[0], ""),
        "login-file": lambda link: measure_warm(bench, link, bench.world.slow_host(link), "_rc"),
        **{f"probe-{count}": partial(measure_probe, bench, count=count) for count in (1, 8, 64)},
        "silent": lambda link: measure_silent(bench) if link == LOOPBACK else None}
    for link in (LOOPBACK, DELAYED):
        for name, phase in phases.items():
            if name.startswith(tuple(bench.options.only.split(","))):
                say(f"{link}: {name}")
                phase(link)
    if "local".startswith(tuple(bench.options.only.split(","))):
        say("local")
        measure_local(bench)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True, help="our server")
    parser.add_argument("--package", required=True, help="the server of the Python package")
    parser.add_argument("--rtt-ms", type=float, default=50, help="round trip of the delayed link")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=15, help="warm commands per round")
    parser.add_argument("--quick", action="store_true", help="few repetitions, to see that everything works")
    parser.add_argument("--only", default="", help="some parts, with commas: fresh, warm, login-file, probe, silent, local")
    parser.add_argument("--out", type=pathlib.Path, default=HERE, help="where RESULTS.md and results.png go")
    parser.add_argument("--json", type=pathlib.Path, required=True, help="where every single value goes")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.calls = 2, 5
    return options


def main() -> None:
    options = parse_options()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="rsb", dir="/tmp"))
    world = None
    try:
        machine = report.describe_machine()
        world = World(folder, SSHD_COUNT, options.rtt_ms)
        bench = Bench(world, options)
        measure(bench)
        options.json.write_text(json.dumps({"machine": machine, "cells": bench.table.as_json()}, indent=1) + "\n",
                                encoding="utf-8")
        options.out.mkdir(parents=True, exist_ok=True)
        report.write(bench.table, machine, options)
        say(f"wrote {options.out / 'RESULTS.md'}, {options.out / 'results.png'}, {options.json}")
    finally:
        if world:
            world.close()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
