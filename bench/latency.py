#!/usr/bin/env python3
"""Compares our server with plain ssh, and if wanted with another MCP server, over the same private sshd.

    bench/latency.py [--server CMD] [--peer CMD] [--rtt-ms N] [--runs 30] [--rounds 5] [--json FILE]

Needs only Python 3 and OpenSSH. See README.md beside this file for how to read the table.
"""
import argparse
import getpass
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

# Running the script must not leave files in the tree.
sys.dont_write_bytecode = True
from contestants import BIG_BYTES, Failed, McpServer, PlainSsh, run_many

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
SSHD = ROOT / "scripts" / "clients" / "sshd.sh"
# name, unit; the order of the table. Lower is better everywhere except for the bytes received.
METRICS = [("start", "ms"), ("cold exec", "ms"), ("warm exec", "ms"), ("8 x sleep 0.2", "ms"),
           ("5 MB stdout", "ms"), ("5 MB received", "bytes"), ("resources", "ms"), ("memory", "kB")]


class Link:
    """The private sshd, directly or behind the delaying proxy."""

    def __init__(self, folder, rtt_ms):
        self.folder = folder
        self.user, self.key = getpass.getuser(), os.path.join(folder, "client_key")
        started = subprocess.run([SSHD, "start", folder], check=True, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, text=True)
        self.port, self.proxy = int(started.stdout), None
        if rtt_ms > 0:
            self.proxy = subprocess.Popen([sys.executable, HERE / "delay_proxy.py", f"127.0.0.1:{self.port}", str(rtt_ms)],
                                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
            self.port = int(self.proxy.stdout.readline())

    def known_host_line(self):
        key = pathlib.Path(self.folder, "host_key.pub").read_text(encoding="ascii").split()
        return f"[127.0.0.1]:{self.port} {key[0]} {key[1]}\n"

    def close(self):
        if self.proxy:
            self.proxy.terminate()
            self.proxy.wait()
        subprocess.run([SSHD, "stop", self.folder], check=False)


class Table:
    """Measured values by metric and contestant."""

    def __init__(self):
        self.values = {}

    def add(self, metric, contestant, value):
        if value is not None:
            self.values.setdefault((metric, contestant.name), []).append(value)

    def timed(self, metric, contestant, action):
        began = time.perf_counter()
        result = action()
        self.add(metric, contestant, (time.perf_counter() - began) * 1000)
        return result

    def middle(self, metric, name):
        values = self.values.get((metric, name))
        return statistics.median(values) if values else None


def in_turn(contestants, round_number):
    """Each round begins with another contestant, so that none always runs after a quiet moment."""
    shift = round_number % len(contestants)
    return contestants[shift:] + contestants[:shift]


def measure_round(contestants, table, options, round_number):
    """Everything once, contestants in turn; they stay connected through the round."""
    order = in_turn(contestants, round_number)
    try:
        for one in order:
            if isinstance(one, McpServer):
                table.timed("start", one, one.start)
            table.timed("cold exec", one, lambda one=one: one.run("true"))
        for turn in range(options.runs):
            for one in in_turn(order, turn):
                table.timed("warm exec", one, lambda one=one: one.run("true"))
        for one in order:
            table.timed("8 x sleep 0.2", one, lambda one=one: run_many(one, "sleep 0.2", 8))
        for one in order:
            table.timed("resources", one, one.resources)
        for one in order:
            table.add("5 MB received", one, table.timed("5 MB stdout", one, one.run_big))
        for one in order:
            table.add("memory", one, one.memory_kb())
    finally:
        for one in order:
            one.stop()


def show(table, names):
    """Medians, and ours divided by each other one."""
    ours, others = names[0], names[1:]
    header = ["metric", "unit", *names, *[f"{ours}/{other}" for other in others]]
    rows = [header]
    for metric, unit in METRICS:
        middles = {name: table.middle(metric, name) for name in names}
        row = [metric, unit] + ["-" if middles[name] is None else f"{middles[name]:.1f}" for name in names]
        for other in others:
            known = middles[ours] is not None and middles[other]
            row.append(f"{middles[ours] / middles[other]:.2f}" if known else "-")
        rows.append(row)
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    for row in rows:
        print("  ".join(cell.ljust(width) if at < 2 else cell.rjust(width)
                        for at, (cell, width) in enumerate(zip(row, widths))))
    for name in names:
        received = table.middle("5 MB received", name)
        if received is not None and received < BIG_BYTES:
            print(f"note: {name} returned {received:.0f} of {BIG_BYTES} bytes, so its time for 5 MB is not comparable")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default=str(ROOT / "target" / "release" / "remote-sandbox-mcp"))
    parser.add_argument("--peer", help="command of another MCP server with the same tools and variables")
    parser.add_argument("--rtt-ms", type=float, default=0)
    parser.add_argument("--runs", type=int, default=30, help="warm commands per round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", help="also write every single value to this file")
    options = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="rsb")
    link, table = None, Table()
    try:
        link = Link(folder, options.rtt_ms)
        contestants = [McpServer("ours", options.server, link, folder), PlainSsh(link, folder)]
        if options.peer:
            contestants.append(McpServer("peer", options.peer, link, folder))
        for round_number in range(options.rounds):
            measure_round(contestants, table, options, round_number)
        print(f"{options.rounds} rounds, {options.runs} warm commands each, round trip {options.rtt_ms:g} ms added; medians")
        show(table, [one.name for one in contestants])
        if options.json:
            values = {f"{metric}/{name}": found for (metric, name), found in table.values.items()}
            pathlib.Path(options.json).write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    except (Failed, OSError, subprocess.CalledProcessError) as problem:
        sys.exit(f"bench stopped: {problem}")
    finally:
        if link:
            link.close()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
