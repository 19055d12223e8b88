"""The rows of the comparison, their goals, and the values that were measured for them."""
from __future__ import annotations

import dataclasses
import statistics

OURS, PACKAGE, SHARED, PLAIN, NO_LINK, BWRAP = "ours", "package", "ssh shared", "ssh", "no link", "bwrap"
LOOPBACK, DELAYED, LOCAL = "loopback", "delayed", "local"


@dataclasses.dataclass(frozen=True)
class Goal:
    """Ours is at most `limit` times what `contestant` needs in row `row`; without a row, at most `limit` itself."""

    limit: float
    words: str
    contestant: str = ""
    row: str = ""


@dataclasses.dataclass(frozen=True)
class Row:
    """One thing that is measured. `bound` says what it cannot be faster than, and why."""

    key: str
    title: str
    bound: str
    unit: str = "ms"
    goals: dict[str, Goal] = dataclasses.field(default_factory=dict)
    drawn: bool = True

    def links(self) -> list[str]:
        return list(self.goals)


def both(goal: Goal) -> dict[str, Goal]:
    return {LOOPBACK: goal, DELAYED: goal}


def against(row: str, contestant: str, limit: float, words: str) -> Goal:
    return Goal(limit, words, contestant, row)


def warm(row: str) -> dict[str, Goal]:
    return {LOOPBACK: against(row, SHARED, 0.5, "at most 0.5 x ssh shared"),
            DELAYED: against(row, SHARED, 0.6, "at most 0.6 x ssh shared")}


def no_slower(row: str) -> dict[str, Goal]:
    # The tenth is what two medians of the same thing differ by on a busy machine.
    return both(against(row, OURS, 1.1, "no slower than without it (1.1 x)"))


ROWS = [
    Row("start", "start to first reply",
        "Starting a process and reading its files; no network.",
        goals={LOOPBACK: against("start", PACKAGE, 1 / 40, "at most 1/40 of the package")}),
    Row("cold", "connect, log in and run `true`",
        "The key exchange of sshd, its fork per login and the start of the login shell; on a link nine round trips, see "
        "[PROFILE.md](PROFILE.md).",
        goals=both(against("cold", PACKAGE, 1.0, "at most 1.0 x the package"))),
    Row("warm", "connected, `true` back to back",
        "One round trip and the processes of the command; without any pause also the start of the shells that replace the "
        "used ones, which costs the host as much as a command over ssh.",
        goals=warm("warm")),
    Row("paced", "connected, `true` half a second apart",
        "One round trip and the processes of the command: `ls` to see changed login files, `timeout`, `bash`.",
        goals=warm("paced")),
    Row("warm_rc", "back to back, `.bashrc` sleeps 0.2 s",
        "The `.bashrc`: two shells wait, and without a pause each further call waits until another has read it.",
        goals=no_slower("warm")),
    Row("average_rc", "the average of such calls, which the median hides",
        "As above: every second or third call waits for the `.bashrc` of the shell it gets.",
        goals=both(Goal(0, "")), drawn=False),
    Row("paced_rc", "half a second apart, `.bashrc` sleeps 0.2 s",
        "As without the `.bashrc`: it was read before the call came.",
        goals=no_slower("paced")),
    Row("one", "one `sleep 0.2`", "The 200 ms of the command.", goals=both(Goal(0, "")), drawn=False),
    Row("eight", "eight `sleep 0.2` at once",
        "The 200 ms of the commands, and for the six that found no shell waiting two more round trips: to open a session, "
        "and to start a shell before sshd takes input for it.",
        goals=both(against("one", OURS, 1.3, "at most 1.3 x one"))),
    Row("big", "5 MB of standard output",
        "Encryption in sshd, decryption and copying on our side, and the reader of the reply.",
        goals=both(against("big", SHARED, 1.5, "at most 1.5 x ssh shared, complete"))),
    Row("probe1", "resources of 1 host, connected",
        "The 100 ms over which the script measures processor use, and one round trip.", goals=both(Goal(0, ""))),
    Row("probe8", "resources of 8 hosts, connected",
        "The processors of this machine, which runs the scripts of all hosts.",
        goals=both(against("probe1", OURS, 1.5, "at most 1.5 x one host"))),
    Row("probe64", "resources of 64 hosts, connected",
        "The processors of this machine, which runs the scripts of all hosts: see the column without a link.",
        goals=both(against("probe1", OURS, 3.0, "at most 3 x one host"))),
    Row("silent", "resources of 8 hosts, 2 of them silent, first call",
        "The limit for a connection that is being made; the six others do not wait for it.",
        goals={LOOPBACK: Goal(0, "")}),
    Row("memory_idle", "resident memory after start", "The pages of the program that were touched.", "MB",
        {LOOPBACK: Goal(20, "at most 20 MB")}),
    Row("memory_used", "resident memory after the first command", "Buffers of one connection.", "MB",
        {LOOPBACK: Goal(0, "")}),
    Row("memory_64", "resident memory with 64 connections", "Buffers of each connection and its waiting shell.", "MB",
        {LOOPBACK: Goal(40, "at most 40 MB")}),
    Row("local_exec", "`true` in a local sandbox",
        "Two shells, `timeout` and `bash`; the walls stand already.",
        goals={LOCAL: against("local_exec", BWRAP, 3.0, "at most 3 x plain bwrap")}, drawn=False),
    Row("local_exec_ms", "the same, as it is", "As above.", goals={LOCAL: Goal(15, "at most 15 ms")}, drawn=False),
    Row("local_create", "create a local sandbox",
        "The start of bubblewrap and of our program inside, and a look at which files must not show.",
        goals={LOCAL: Goal(100, "at most 100 ms")}, drawn=False),
    Row("local_memory", "memory of an idle local sandbox",
        "Pages that its three processes do not share with anybody, and their part of those they share.", "MB",
        {LOCAL: Goal(8, "at most 8 MB")}, drawn=False),
]


class Table:
    """Measured values, failures and processor time by row, link and contestant."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, str, str], list[float]] = {}
        self.failures: dict[tuple[str, str, str], str] = {}
        self.processor: dict[tuple[str, str, str], float] = {}

    def add(self, row: str, link: str, name: str, value: float) -> None:
        self.values.setdefault((row, link, name), []).append(value)

    def fail(self, row: str, link: str, name: str, reason: str) -> None:
        self.failures[row, link, name] = reason

    def middle(self, row: str, link: str, name: str) -> float | None:
        values = self.values.get((row, link, name))
        return statistics.median(values) if values else None

    def average(self, row: str, link: str, name: str, count: int) -> float:
        """The mean of the latest values."""
        return statistics.mean(self.values[row, link, name][-count:])

    def spread(self, row: str, link: str, name: str) -> tuple[float, float] | None:
        """The second lowest and highest tenth, or of few values the lowest and highest."""
        values = sorted(self.values.get((row, link, name), []))
        if len(values) < 2:
            return None
        cut = len(values) // 10
        return values[cut], values[-1 - cut]

    def ratio(self, row: Row, link: str) -> float | None:
        """Ours as a multiple of what the goal is about."""
        goal, mine = row.goals[link], self.middle(row.key, link, OURS)
        other = self.middle(goal.row, link, goal.contestant) if goal.row else None
        return mine / other if mine is not None and other else None

    def verdict(self, row: Row, link: str) -> str:
        goal, mine = row.goals[link], self.middle(row.key, link, OURS)
        if not goal.words:
            return ""
        if (row.key, link, OURS) in self.failures or mine is None:
            return "failed"
        measured = self.ratio(row, link) if goal.row else mine
        if measured is None:
            return "no reference"
        return "reached" if measured <= goal.limit else "missed"

    def round_trips(self, row: str, name: str, round_trip_ms: float) -> float | None:
        """How many times a call waited for the link."""
        near, far = self.middle(row, LOOPBACK, name), self.middle(row, DELAYED, name)
        return (far - near) / round_trip_ms if near is not None and far is not None else None

    def as_json(self) -> dict[str, object]:
        keys = sorted({*self.values, *self.failures})
        return {"/".join(key): {"values": self.values.get(key, []), "failure": self.failures.get(key),
                                "processor_ms_per_call": self.processor.get(key)} for key in keys}
