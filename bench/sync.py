#!/usr/bin/env python3
"""Compares the syncs of our server with the Python package, `rsync`, `scp` and `tar`, in one run.

Call it through `scripts/bench-sync`, which installs and builds what is compared; README.md beside it explains the rows.
"""
from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time
from functools import partial
from typing import Callable, Iterator

# Running the script must not leave files in the tree.
sys.dont_write_bytecode = True
import sync_report
import trees
from compare import CELL_SECONDS, HERE, Bench, in_turn, say
from contestants import Failed
from rows import DELAYED, LOOPBACK, OURS, PACKAGE
from sync_contestants import Copier, Rsync, Scp, SyncServer, Tar, peak_mb
from sync_rows import (GROWTH, LARGE_BYTES, LIMITED, LIMITED_MBIT, LIMITED_ROUND_TRIP_MS, RSYNC, RSYNC_NEW, RSYNC_PACKED,
                       SCP, SCP_SHARED, TAR, TEXT_BYTES, growth_rows)
from world import World

QUICK_GROWTH = GROWTH[:2]
# For a minute ext4 gives away no place of a deleted file, for six where the disk has not written yet that it is free.
SETTLE_SECONDS = 360


class SyncBench(Bench):
    """One run. `source` is what is copied; what each contestant makes of it lies beside it."""

    def __init__(self, world: World, options: argparse.Namespace) -> None:
        super().__init__(world, options)
        self.folder = world.folder / "trees"
        self.source = self.folder / "source"
        self.slow: set[tuple[str, str, str]] = set()
        self.attic = trees.Attic(world.folder / "attic")

    @contextlib.contextmanager
    def copiers(self, link: str, row: str, *names: str) -> Iterator[list[Copier]]:
        """Contestants that are connected, and afterwards ended together with everything they copied."""
        self.broken.clear()
        options, world, hosts = self.options, self.world, self.world.hosts(link, 1)
        made: dict[str, Callable[[], Copier]] = {
            OURS: lambda: SyncServer(OURS, options.binary, world, hosts, self.folder),
            PACKAGE: lambda: SyncServer(PACKAGE, options.package, world, hosts, self.folder),
            RSYNC: lambda: Rsync(RSYNC, world, hosts, True, *(["--no-whole-file"] if row in ("edited", "inserted") else [])),
            RSYNC_NEW: lambda: Rsync(RSYNC_NEW, world, hosts, False),
            RSYNC_PACKED: lambda: Rsync(RSYNC_PACKED, world, hosts, True, "-z"),
            SCP: lambda: Scp(SCP, world, hosts, shared=False),
            SCP_SHARED: lambda: Scp(SCP_SHARED, world, hosts, shared=True),
            TAR: lambda: Tar(TAR, world, hosts, shared=True)}
        found = [made[name]() for name in names]
        self.folder.mkdir(exist_ok=True)
        try:
            for one in found:
                self.attempt(row, link, one, one.start)
                self.attempt(row, link, one, one.connect)
            yield found
        finally:
            for one in found:
                one.stop()
            self.attic.take(self.folder)

    def there(self, one: Copier) -> pathlib.Path:
        """Where its uploads go, which is its own folder so that nobody finds the work done."""
        return self.folder / f"there-{one.name.replace(' ', '-')}"

    def back(self, one: Copier) -> pathlib.Path:
        """Where its downloads go."""
        return self.folder / f"back-{one.name.replace(' ', '-')}"

    def copy(self, row: str, link: str, one: Copier, copy: Callable[[], None], target: pathlib.Path,
             fresh: bool = True) -> None:
        """Times a copy that came out right; fresh: into a folder that is not there."""
        if one.name in self.broken or (row, link, one.name) in self.slow:
            return
        if fresh:
            self.attic.take(target)
        # What was written before must not be written to the disk in the time of the next.
        os.sync()
        took = self.attempt(row, link, one, copy)
        if took is None or self.attempt(row, link, one, partial(trees.require_same, self.source, target)) is None:
            return
        self.table.add(row, link, one.name, took)
        if took > CELL_SECONDS * 1000:
            self.slow.add((row, link, one.name))

    def turns(self, copiers: list[Copier]) -> Iterator[Copier]:
        for round_number in range(self.options.rounds):
            yield from in_turn(copiers, round_number)


def measure_both_ways(bench: SyncBench, link: str, name: str, *contestants: str) -> None:
    """Up into a new folder, and back into another."""
    with bench.copiers(link, f"{name}_up", *contestants) as copiers:
        for one in bench.turns(copiers):
            there, back = bench.there(one), bench.back(one)
            bench.copy(f"{name}_up", link, one, partial(one.up, bench.source, there), there)
            bench.copy(f"{name}_down", link, one, partial(one.down, there, back), back)
            bench.attic.take(back)


def measure_small(bench: SyncBench, link: str) -> None:
    trees.make_tree(bench.source, 1_000, 1024, 10)
    # At a round trip for each request the others would take minutes.
    near = [SCP, PACKAGE] if link == LOOPBACK else []
    measure_both_ways(bench, link, "small", OURS, RSYNC, RSYNC_NEW, TAR, *near)


def measure_hundred(bench: SyncBench, link: str) -> None:
    trees.make_tree(bench.source, 100, 1024, 1)
    with bench.copiers(link, "hundred_up", OURS, RSYNC, RSYNC_NEW, TAR, PACKAGE) as copiers:
        for one in bench.turns(copiers):
            bench.copy("hundred_up", link, one, partial(one.up, bench.source, bench.there(one)), bench.there(one))


def measure_many(bench: SyncBench, link: str) -> None:
    trees.make_tree(bench.source, 5_000, 4096, 100)
    near = [SCP] if link == LOOPBACK else []
    measure_both_ways(bench, link, "many", OURS, RSYNC, RSYNC_NEW, TAR, *near)


def measure_large(bench: SyncBench, link: str) -> None:
    trees.make_large(bench.source, LARGE_BYTES)
    near = [PACKAGE] if link == LOOPBACK else []
    measure_both_ways(bench, link, "large", OURS, RSYNC, RSYNC_NEW, TAR, SCP, SCP_SHARED, *near)


def measure_unchanged(bench: SyncBench, link: str) -> None:
    for files, size in ((5_000, 4096), (50_000, 100)):
        row = f"same_{files}"
        near = [PACKAGE] if link == LOOPBACK and files == 5_000 else []
        trees.make_tree(bench.source, files, size, files // 100 if files > 5_000 else 100)
        with bench.copiers(link, row, OURS, RSYNC, RSYNC_NEW, *near) as copiers:
            for one in copiers:
                bench.attempt(row, link, one, partial(one.up, bench.source, bench.there(one)))
            for one in bench.turns(copiers):
                measure_same(bench, link, row, one)


def measure_same(bench: SyncBench, link: str, row: str, one: Copier) -> None:
    """A copy that finds everything done."""

    def again() -> None:
        one.up(bench.source, bench.there(one))
        if copied := one.copied_files():
            raise Failed(f"{copied} files were copied again")

    bench.copy(row, link, one, again, bench.there(one), fresh=False)


def measure_edited(bench: SyncBench, link: str) -> None:
    measure_edits(bench, link, "edited", trees.edit_large)


def measure_inserted(bench: SyncBench, link: str) -> None:
    def edit(folder: pathlib.Path, seed: int) -> None:
        trees.edit_large(folder, seed)
        trees.insert_into_large(folder, seed)

    measure_edits(bench, link, "inserted", edit)


def measure_edits(bench: SyncBench, link: str, row: str, edit: Callable[[pathlib.Path, int], None]) -> None:
    """The host has what the round before left there."""
    bench.attic.take(bench.source)
    trees.make_large(bench.source, LARGE_BYTES)
    with bench.copiers(link, row, OURS, RSYNC) as copiers:
        for one in copiers:
            bench.attic.take(bench.there(one))
            shutil.copytree(bench.source, bench.there(one))
        for round_number in range(bench.options.rounds):
            edit(bench.source, round_number)
            for one in in_turn(copiers, round_number):
                bench.copy(row, link, one, partial(one.up, bench.source, bench.there(one)), bench.there(one),
                           fresh=False)


def measure_text(bench: SyncBench, link: str) -> None:
    with bench.copiers(link, "text", OURS, RSYNC, RSYNC_PACKED) as copiers:
        for round_number in range(bench.options.rounds):
            bench.attic.take(bench.source)
            trees.make_text(bench.source, TEXT_BYTES, round_number)
            for one in in_turn(copiers, round_number):
                bench.copy("text", link, one, partial(one.up, bench.source, bench.there(one)), bench.there(one))


def measure_growth(bench: SyncBench, link: str) -> None:
    """Time and memory over the number of files; each number has a server of its own, for a peak never falls."""
    for files in QUICK_GROWTH if bench.options.quick else GROWTH:
        fresh, same, peak = growth_rows(files)
        say(f"  {files} files")
        trees.make_tree(bench.source, files, 1024, files // 100)
        with bench.copiers(link, fresh, OURS, RSYNC) as copiers:
            for one in bench.turns(copiers):
                there = bench.there(one)
                bench.copy(fresh, link, one, partial(one.up, bench.source, there), there)
                measure_same(bench, link, same, one)
            for one in copiers:
                if (pid := one.process_id()) and one.name not in bench.broken:
                    bench.table.add(peak, link, one.name, peak_mb(pid))


PARTS: list[tuple[str, str, Callable[[SyncBench, str], None]]] = [
    *[(name, link, part) for link in (LOOPBACK, DELAYED) for name, part in (
        ("small", measure_small), ("many", measure_many), ("unchanged", measure_unchanged), ("large", measure_large))],
    ("hundred", DELAYED, measure_hundred), ("edited", LIMITED, measure_edited),
    ("inserted", LIMITED, measure_inserted), ("text", LIMITED, measure_text),
    ("growth", LOOPBACK, measure_growth)]


def parse_options() -> argparse.Namespace:
    names = ", ".join(dict.fromkeys(name for name, _, _ in PARTS))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True, help="our server")
    parser.add_argument("--package", required=True, help="the server of the Python package")
    parser.add_argument("--rtt-ms", type=float, default=50, help="round trip of the delayed link")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one round and less growth, to see that everything works")
    parser.add_argument("--only", default="", help=f"some parts, with commas: {names}")
    parser.add_argument("--out", type=pathlib.Path, default=HERE, help="where SYNC.md and sync-growth.png go")
    parser.add_argument("--json", type=pathlib.Path, required=True, help="where every single value goes")
    options = parser.parse_args()
    if options.quick:
        options.rounds = 1
    return options


def settle(removed: pathlib.Path) -> None:
    """Waits until the disk has forgotten what the last run removed; see `trees.Attic`."""
    left = removed.stat().st_mtime + SETTLE_SECONDS - time.time() if removed.exists() else 0
    if left > 0:
        say(f"waiting {left:.0f} s, because the disk is slow after the last run")
        time.sleep(left)


def main() -> None:
    options = parse_options()
    # Who ends the run early must not leave its sshds and trees.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    removed = options.json.with_suffix(".removed")
    settle(removed)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="rsb", dir="/tmp"))
    world = None
    try:
        machine = sync_report.describe_machine()
        world = World(folder, 1, options.rtt_ms)
        world.add_limited_link(LIMITED, LIMITED_ROUND_TRIP_MS, LIMITED_MBIT)
        bench = SyncBench(world, options)
        for name, link, part in PARTS:
            if name.startswith(tuple(options.only.split(","))):
                say(f"{link}: {name}")
                part(bench, link)
        options.json.write_text(json.dumps({"machine": machine, "cells": bench.table.as_json()}, indent=1) + "\n",
                                encoding="utf-8")
        options.out.mkdir(parents=True, exist_ok=True)
        written = sync_report.write(bench.table, machine, options)
        say(f"wrote {', '.join(map(str, written))}, {options.json}")
    finally:
        if world:
            world.close()
        shutil.rmtree(folder, ignore_errors=True)
        removed.touch()


if __name__ == "__main__":
    main()
