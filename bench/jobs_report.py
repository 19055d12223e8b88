"""Writes what was measured of jobs: a page, and a picture of time and memory of a tick over the number of watches."""
from __future__ import annotations

import argparse
import pathlib
import subprocess
import time

import report
from jobs_rows import ROWS, TICKS, tick_rows
from rows import DELAYED, LOOPBACK, OURS, PACKAGE, Row, Table

PICTURE = "jobs-ticks.png"
HEADINGS = {LOOPBACK: "Loopback", DELAYED: "A link with {rtt:g} ms round trip"}
COLOURS = {"first": "#c98a2b", "later": "#2e7d4f"}
INTRODUCTION = """\
# Jobs

Written by `{command}` on {date}. What the rows mean and how to read them: [README.md](README.md).
Compare inside one run only: another machine, or this one on another day, has other milliseconds.

| | |
|---|---|
"""
LEGEND = """\
Milliseconds: medians of {count} calls, in brackets the range without the lowest and the highest tenth. Both servers are \
connected, and take turns. A start counts only when the job then runs and has written its first line."""
TICKS_LEGEND = """\
A tick looks at every watched job once: one script for all jobs of a host, at most 64 hosts at a time. Every host is this \
machine, under so many names; each job has a folder and a log of its own, and its log has grown since the last tick. The \
first tick of a process also connects and logs in to every host. By default a job is looked at every 300 s, so a tick has \
so long. Medians, in brackets the lowest and the highest; the memory is the most the process ever had. What the \
watchdog itself does not use of the processors is used by sshd and the scripts."""


def describe_machine() -> dict[str, str]:
    told = subprocess.run(["tmux", "-V"], capture_output=True, text=True, check=False).stdout.strip()
    return {**report.describe_machine(), "tmux": told or "unknown"}


def measured_rows(table: Table, link: str) -> list[Row]:
    """The rows of a link that somebody tried; `--only` leaves out others."""
    tried = {(row, at) for row, at, _ in (*table.values, *table.failures)}
    return [row for row in ROWS if (row.key, link) in tried]


def results_table(table: Table, link: str) -> list[str]:
    lines = ["| | ours | package | goal |", "|---|---:|---:|---|"]
    for row in measured_rows(table, link):
        cells = [*(report.cell(table, row, link, name) for name in (OURS, PACKAGE)), report.goal_words(table, row, link)]
        lines.append(f"| {row.title} | " + " | ".join(cells) + " |")
    return lines


def bounds_table(table: Table, rtt_ms: float) -> list[str]:
    lines = [f"| | what it is bound by | round trips of {rtt_ms:g} ms: ours, package |", "|---|---|---:|"]
    for row in ROWS:
        if any(row in measured_rows(table, link) for link in HEADINGS):
            trips = [table.round_trips(row.key, name, rtt_ms) for name in (OURS, PACKAGE)]
            told = ", ".join("-" if trip is None else f"{trip:.1f}" for trip in trips)
            lines.append(f"| {row.title} | {row.bound} | {told} |")
    return lines


def measured_ticks(table: Table) -> list[tuple[int, int]]:
    return [(watches, hosts) for watches, hosts in TICKS
            if table.middle(tick_rows(watches)[0], LOOPBACK, OURS) is not None]


def figure(table: Table, row: str, divisor: float) -> str:
    """Median and range of a figure of ticks."""
    values = [value / divisor for value in table.values.get((row, LOOPBACK, OURS), [])]
    middle = table.middle(row, LOOPBACK, OURS)
    if middle is None:
        return ""
    words = report.number(middle / divisor)
    return f"{words} ({report.number(min(values))} to {report.number(max(values))})" if len(values) > 1 else words


def ticks_table(table: Table) -> list[str]:
    lines = ["| watches | hosts | first tick, s | later tick, s | processor time of the watchdog in it, s "
             "| peak memory of the watchdog, MB |", "|---:|" + "---:|" * 5]
    for watches, hosts in measured_ticks(table):
        first, later, processor, peak = tick_rows(watches)
        cells = [figure(table, first, 1000), figure(table, later, 1000), figure(table, processor, 1000),
                 figure(table, peak, 1)]
        lines.append(f"| {watches:,} | {hosts} | " + " | ".join(cells) + " |")
    return lines


def failure_lines(table: Table) -> list[str]:
    titles = {row.key: row.title for row in ROWS}
    titles.update({tick_rows(watches)[0]: f"ticks of {watches:,} watches" for watches, _ in TICKS})
    return [f"* {name}, {titles.get(key, key)}, {link}: {' '.join(reason.split())}"
            for (key, link, name), reason in sorted(table.failures.items())]


def page(table: Table, machine: dict[str, str], options: argparse.Namespace) -> str:
    command = "scripts/bench-jobs" + (" --quick" if options.quick else "")
    parts = [INTRODUCTION.format(command=command, date=time.strftime("%Y-%m-%d", time.gmtime()))
             + "\n".join(f"| {name} | {value} |" for name, value in machine.items())]
    links = [link for link in HEADINGS if measured_rows(table, link)]
    if links:
        parts.append(LEGEND.format(count=options.rounds * options.calls))
    for link in links:
        parts += [f"## {HEADINGS[link].format(rtt=options.rtt_ms)}", "\n".join(results_table(table, link))]
    if links:
        parts += ["## What bounds each row", "\n".join(bounds_table(table, options.rtt_ms))]
    if measured_ticks(table):
        parts += ["## Ticks of the watchdog", TICKS_LEGEND, f"![Time and memory of a tick over the number of watches]({PICTURE})",
                  "\n".join(ticks_table(table))]
    if failures := failure_lines(table):
        parts += ["## What failed", "\n".join(failures)]
    return "\n\n".join(parts) + "\n"


def draw(table: Table, path: pathlib.Path) -> None:
    """Seconds of a tick, and peak memory, over the number of watches."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker

    sizes = measured_ticks(table)
    drawn, (times, memory) = pyplot.subplots(1, 2, figsize=(9, 3.8), dpi=100)
    for at, (name, label) in enumerate((("first", "first tick, with logins"), ("later", "later tick"))):
        points = [(watches, table.middle(tick_rows(watches)[at], LOOPBACK, OURS)) for watches, _ in sizes]
        found = [(watches, value / 1000) for watches, value in points if value is not None]
        if found:
            times.plot(*zip(*found), marker="o", color=COLOURS[name], label=label)
    times.set_yscale("log")
    times.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    times.yaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
    times.yaxis.set_minor_formatter(ticker.NullFormatter())
    times.set_title("one tick, seconds", fontsize=10)
    times.legend(fontsize=9)
    points = [(watches, table.middle(tick_rows(watches)[3], LOOPBACK, OURS)) for watches, _ in sizes]
    found = [(watches, value) for watches, value in points if value is not None]
    if found:
        memory.plot(*zip(*found), marker="o", color=COLOURS["later"])
    memory.set_ylim(bottom=0)
    memory.set_title("peak memory of the watchdog, MB", fontsize=10)
    for axes in (times, memory):
        axes.set_xscale("log")
        axes.set_xlabel("watches, 50 on each host", fontsize=9)
        axes.xaxis.set_minor_formatter(ticker.NullFormatter())
        axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:,.0f}"))
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    drawn.tight_layout()
    drawn.savefig(path)


def write(table: Table, machine: dict[str, str], options: argparse.Namespace) -> list[pathlib.Path]:
    """Writes the page, and the picture where ticks were measured, into the folder that was asked for."""
    written = [options.out / "JOBS.md"]
    written[0].write_text(page(table, machine, options), encoding="utf-8")
    if measured_ticks(table):
        written.append(options.out / PICTURE)
        draw(table, written[1])
    return written
