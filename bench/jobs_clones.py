"""Makes many watched jobs of one: copies of its folder and its log on the host, and of its rows in our store.

All copies name the process of the one job that really runs, so that each of them reads as running.
"""
from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import sqlite3
from typing import Any

from contestants import Failed
from world import Host

# Files of an attempt that tell one job from another; the rest is the same for all.
OWN_FILES = ("nonce", "record")
LOG_LINE = "step {step} of 100000: loss 0.{step:06}, 1234 tokens a second, nothing to worry about\n"
# About as much as a look brings at once.
FIRST_LINES, MORE_LINES = 80, 12


class Clones:
    """The watched jobs of one store; `job` is what the start of the one that runs answered."""

    def __init__(self, store: pathlib.Path, home: pathlib.Path, job: dict[str, Any]) -> None:
        self.store, self.jobs = store, home / ".remote-sandbox-mcp" / "jobs"
        self.first, self.log = job["task_id"], pathlib.Path(job["log_file"])
        self.session = job["tmux_session"]
        self.logs, self.steps = [self.log], 0

    def id(self, number: int) -> str:
        return self.first if number == 0 else f"job_{number:032x}"

    def make(self, watches: int, hosts: list[Host]) -> None:
        """So many jobs in all, spread over the hosts; nothing may have the store open."""
        with contextlib.closing(sqlite3.connect(self.store)) as store, store:
            store.row_factory = sqlite3.Row
            job, attempt, watch, entry = (self._only(store, table) for table in
                                          ("jobs", "attempts", "watches", "watched_sandboxes"))
            keys = [self._add_host(store, entry, at, host) for at, host in enumerate(hosts)]
            for number in range(1, watches):
                at = number % len(hosts)
                own = {self.first: self.id(number), attempt["nonce"]: f"{number:032x}",
                       self.session: f"{self.session}-{number}"}
                place = {"sandbox": hosts[at].name}
                insert(store, "jobs", renamed(job, own) | place | {"watch_id": number})
                insert(store, "attempts", renamed(attempt, own))
                insert(store, "watches", renamed(watch, own) | place | {"id": number, "entry": keys[at]})
                self._copy_folder(own)
            store.execute("UPDATE watches SET next_check = 0")
        self.grow(FIRST_LINES)

    def _only(self, store: sqlite3.Connection, table: str) -> dict[str, Any]:
        rows = store.execute(f"SELECT * FROM {table}").fetchall()
        if len(rows) != 1:
            raise Failed(f"one job made {len(rows)} rows of {table}")
        return dict(rows[0])

    def _add_host(self, store: sqlite3.Connection, entry: dict[str, Any], at: int, host: Host) -> str:
        """The key of the entry of a host; the first one is there already."""
        if at == 0:
            return entry["key"]
        kept = json.loads(entry["entry"])
        kept["sandbox"]["name"] = host.name
        key = f"{at:064x}"
        insert(store, "watched_sandboxes", entry | {"key": key, "name": host.name, "entry": json.dumps(kept)})
        return key

    def _copy_folder(self, own: dict[str, str]) -> None:
        source, target = self.jobs / self.first / "1", self.jobs / own[self.first] / "1"
        target.mkdir(mode=0o700, parents=True)
        for file in source.iterdir():
            if file.name in OWN_FILES:
                (target / file.name).write_text(replaced(file.read_text(encoding="utf-8"), own), encoding="utf-8")
            else:
                os.link(file, target / file.name)
        self.logs.append(self.log.with_name(f"{own[self.session]}.log"))

    def grow(self, lines: int = MORE_LINES) -> None:
        """Every job has written a little more."""
        text = "".join(LOG_LINE.format(step=self.steps + line) for line in range(lines))
        self.steps += lines
        for path in self.logs:
            with path.open("a", encoding="utf-8") as log:
                log.write(text)

    def require_running(self) -> None:
        """Every watch was looked at, was found running, and nothing was told."""
        with contextlib.closing(sqlite3.connect(self.store, timeout=30)) as store:
            query = """SELECT count(*) FROM watches WHERE status = 'active' AND last_state = 'running' AND last_checked > 0
                AND last_log_tail LIKE ? """
            found = store.execute(query, (f"%step {self.steps - 1} of%",)).fetchone()[0]
            events = store.execute("SELECT count(*) FROM events").fetchone()[0]
        if found != len(self.logs) or events:
            raise Failed(f"{found} of {len(self.logs)} watches were seen running, and {events} events were told")

    def remove(self) -> None:
        for path in self.logs:
            path.unlink(missing_ok=True)
        shutil.rmtree(self.jobs, ignore_errors=True)


def replaced(text: str, own: dict[str, str]) -> str:
    for old, new in own.items():
        text = text.replace(old, new)
    return text


def renamed(row: dict[str, Any], own: dict[str, str]) -> dict[str, Any]:
    return {name: replaced(value, own) if isinstance(value, str) else value for name, value in row.items()}


def insert(store: sqlite3.Connection, table: str, row: dict[str, Any]) -> None:
    marks = ", ".join("?" * len(row))
    store.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", list(row.values()))
