"""Writes what was measured: a page, and a picture of how many times longer the others take."""
from __future__ import annotations

import argparse
import importlib.metadata
import os
import pathlib
import platform
import re
import subprocess
import time

from rows import BWRAP, DELAYED, LOCAL, LOOPBACK, NO_LINK, OURS, PACKAGE, PLAIN, ROWS, SHARED, Row, Table

COLUMNS = [OURS, PACKAGE, SHARED, PLAIN]
COMPARED = ["remote-sandbox-mcp", "mcp", "paramiko"]
COLOURS = {PACKAGE: "#3b6ea5", SHARED: "#c98a2b"}
HEADINGS = {LOOPBACK: "Loopback", DELAYED: "A link with {rtt:g} ms round trip", LOCAL: "Sandboxes on this machine"}
INTRODUCTION = """\
# Results

Written by `{command}` on {date}. What the rows mean and how to read them: [README.md](README.md).
Compare inside one run only: another machine, or this one on another day, has other milliseconds.

![How many times longer the others take](results.png)

| | |
|---|---|
"""


def first_line(path: str, pattern: str) -> str:
    try:
        found = re.search(pattern, pathlib.Path(path).read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        found = None
    return found[1].strip() if found else "unknown"


def describe_machine() -> dict[str, str]:
    """What a reader needs to know about where the numbers come from."""
    ssh = subprocess.run(["ssh", "-V"], capture_output=True, text=True, check=False).stderr.strip()
    kb = first_line("/proc/meminfo", r"MemTotal:\s+(\d+)")
    memory = f"{int(kb) / 1024 / 1024:.1f} GB" if kb.isdigit() else kb
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in COMPARED)
    return {"processor": f"{first_line('/proc/cpuinfo', 'model name.*: (.*)')}, {os.cpu_count()} cores",
            "memory": memory, "kernel": f"{platform.system()} {platform.release()}", "OpenSSH": ssh,
            "package": f"{versions}, Python {platform.python_version()}",
            "load before the run": " ".join(f"{load:.2f}" for load in os.getloadavg())}


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def cell(table: Table, row: Row, link: str, name: str) -> str:
    """Median and spread of one contestant, or why there is none."""
    middle, failure = table.middle(row.key, link, name), table.failures.get((row.key, link, name))
    if middle is None:
        return "failed" if failure else ""
    spread = table.spread(row.key, link, name)
    words = number(middle) + (f" ({number(spread[0])} to {number(spread[1])})" if spread else "")
    return f"{words}, not complete" if failure else words


def against_package(table: Table, row: Row, link: str) -> str:
    mine, theirs = table.middle(row.key, link, OURS), table.middle(row.key, link, PACKAGE)
    if not mine or not theirs or (row.key, link, PACKAGE) in table.failures:
        return ""
    return ratio_words(mine / theirs)


def ratio_words(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio >= 0.1 else f"1/{1 / ratio:.0f}"


def goal_words(table: Table, row: Row, link: str) -> str:
    """The goal, what came out, and whether that is enough."""
    goal = row.goals[link]
    if not goal.words:
        return ""
    ratio, verdict = table.ratio(row, link), table.verdict(row, link)
    measured = f"{ratio_words(ratio)}, " if ratio is not None else ""
    return f"{goal.words}: {measured}{verdict if verdict == 'reached' else f'**{verdict}**'}"


def results_table(table: Table, link: str) -> list[str]:
    columns = [OURS, BWRAP] if link == LOCAL else COLUMNS
    compared = "" if link == LOCAL else " ours / package |"
    lines = ["| | unit | " + " | ".join(columns) + f" |{compared} goal |",
             "|---|---|" + "---:|" * (len(columns) + bool(compared)) + "---|"]
    for row in ROWS:
        if link in row.goals:
            cells = [cell(table, row, link, name) for name in columns]
            package = f" {against_package(table, row, link)} |" if compared else ""
            lines.append(f"| {row.title} | {row.unit} | " + " | ".join(cells)
                         + f" |{package} {goal_words(table, row, link)} |")
    return lines


def bounds_table(table: Table, rtt_ms: float) -> list[str]:
    """What each row cannot be faster than, with the figures that show it."""
    lines = [f"| | what bounds it | processor time of our server per call, ms | round trips of {rtt_ms:g} ms: "
             "ours, package, ssh shared |", "|---|---|---:|---:|"]
    for row in ROWS:
        used = table.processor.get((row.key, LOOPBACK, OURS))
        trips = [table.round_trips(row.key, name, rtt_ms) for name in (OURS, PACKAGE, SHARED)]
        told = ", ".join("-" if trip is None else f"{trip:.1f}" for trip in trips)
        far = told if DELAYED in row.goals else ""
        lines.append(f"| {row.title} | {row.bound} | {number(used) if used is not None else ''} | {far} |")
    return lines


def no_link_lines(table: Table) -> list[str]:
    """What the script of the probe takes without any link."""
    lines = ["| hosts | the script alone, ms | ours, ms | ssh shared, ms |", "|---:|---:|---:|---:|"]
    for count in (1, 8, 64):
        found = [table.middle(f"probe{count}", LOOPBACK, name) for name in (NO_LINK, OURS, SHARED)]
        lines.append(f"| {count} | " + " | ".join("" if value is None else number(value) for value in found) + " |")
    return lines


def failure_lines(table: Table) -> list[str]:
    titles = {row.key: row.title for row in ROWS}
    return [f"* {name}, {titles[key]}, {link}: {reason}" for (key, link, name), reason in sorted(table.failures.items())]


def page(table: Table, machine: dict[str, str], options: argparse.Namespace) -> str:
    command = "scripts/bench" + (" --quick" if options.quick else "")
    parts = [INTRODUCTION.format(command=command, date=time.strftime("%Y-%m-%d", time.gmtime()))
             + "\n".join(f"| {name} | {value} |" for name, value in machine.items())]
    parts.append("Medians, and in brackets the range without the lowest and the highest tenth. `ssh shared` is `ssh` over "
                 "one kept connection (`ControlMaster`), `ssh` logs in for every command.")
    for link, heading in HEADINGS.items():
        parts.append(f"## {heading.format(rtt=options.rtt_ms)}")
        parts.append("\n".join(results_table(table, link)))
    parts.append("## What bounds each row")
    parts.append("The round trips are the difference of the two medians, divided by the round trip: how often a call waits "
                 "for the link. The profile behind these sentences: [PROFILE.md](PROFILE.md).")
    parts.append("\n".join(bounds_table(table, options.rtt_ms)))
    parts.append("All hosts of a run are this one machine. So the resources of many hosts cannot be had faster than its "
                 "processors run the script so many times; here it is without any link, started all at once:")
    parts.append("\n".join(no_link_lines(table)))
    if failures := failure_lines(table):
        parts += ["## What failed", "\n".join(failures)]
    return "\n\n".join(parts) + "\n"


def times_longer(table: Table, row: Row, link: str, name: str) -> float | None:
    mine, theirs = table.middle(row.key, link, OURS), table.middle(row.key, link, name)
    return theirs / mine if mine and theirs else None


def draw(table: Table, rtt_ms: float, path: pathlib.Path) -> None:
    """Bars to the right of 1 are longer than ours, to the left shorter."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker

    shown = [(row, link) for link in (LOOPBACK, DELAYED) for row in ROWS if link in row.goals and row.drawn]
    figure, axes = pyplot.subplots(figsize=(10, 0.36 * len(shown) + 1.6), dpi=100)
    for offset, name in ((-0.2, PACKAGE), (0.2, SHARED)):
        for at, (row, link) in enumerate(shown):
            times = times_longer(table, row, link, name)
            if times is None:
                continue
            axes.barh(at + offset, times - 1, 0.36, left=1, color=COLOURS[name])
            words = f"{times:.0f}" if times >= 10 else f"{times:.1f}"
            words += ", not complete" if (row.key, link, name) in table.failures else ""
            axes.annotate(words, (times, at + offset), xytext=(3 if times >= 1 else -3, 0), fontsize=8,
                          textcoords="offset points", va="center", ha="left" if times >= 1 else "right")
    where = {LOOPBACK: "", DELAYED: f", {rtt_ms:g} ms"}
    axes.set_yticks(range(len(shown)), [row.title.replace("`", "") + where[link] for row, link in shown], fontsize=9)
    axes.set_ylim(len(shown) - 0.5, -0.5)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
    axes.margins(x=0.08)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xlabel("times as long (or as much memory) as remote-sandbox-mcp of this repository, which is 1")
    labels = {PACKAGE: "the Python package", SHARED: "ssh over ControlMaster"}
    axes.legend(handles=[pyplot.Rectangle((0, 0), 1, 1, color=COLOURS[name]) for name in labels],
                labels=list(labels.values()), loc="lower right", fontsize=9)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(path)


def write(table: Table, machine: dict[str, str], options: argparse.Namespace) -> None:
    """Writes the page and the picture into the folder that was asked for."""
    (options.out / "RESULTS.md").write_text(page(table, machine, options), encoding="utf-8")
    draw(table, options.rtt_ms, options.out / "results.png")
