"""Writes what was measured of syncs: a page, and a picture of how time and memory grow with the number of files."""
from __future__ import annotations

import argparse
import pathlib
import subprocess
import time

import report
from rows import DELAYED, LOOPBACK, OURS, Row, Table
from sync_rows import (COLUMNS, COMPARED, GROWTH, LIMITED, LIMITED_MBIT, LIMITED_ROUND_TRIP_MS, MEMORY_GOAL_MB, ROWS, RSYNC,
                       growth_rows)

PICTURE = "sync-growth.png"
HEADINGS = {LOOPBACK: "Loopback", DELAYED: "A link with {rtt:g} ms round trip",
            LIMITED: f"A link of {LIMITED_MBIT} Mbit/s with {LIMITED_ROUND_TRIP_MS} ms round trip"}
COLOURS = {OURS: "#2e7d4f", RSYNC: "#c98a2b"}
INTRODUCTION = """\
# Syncs

Written by `{command}` on {date}. What the rows mean and how to read them: [README.md](README.md).
Compare inside one run only: another machine, or this one on another day, has other milliseconds.

| | |
|---|---|
"""
LEGEND = """\
Milliseconds: {what}. Everybody copies in turn, and a time counts only when every name and byte is the same on the other \
side. `shared` means over one kept connection (`ControlMaster`); without it the time contains a login. Ours has its connection already, and so has the package, but for uploads it starts a \
process that makes another."""


def describe_machine() -> dict[str, str]:
    told = subprocess.run(["rsync", "--version"], capture_output=True, text=True, check=False).stdout
    machine = report.describe_machine()
    return {**machine, "rsync": told.splitlines()[0] if told else "unknown"}


def compared(table: Table, row: str, link: str, other: str) -> str:
    mine, theirs = table.middle(row, link, OURS), table.middle(row, link, other)
    if not mine or not theirs or (row, link, other) in table.failures:
        return ""
    return report.ratio_words(mine / theirs)


def measured_rows(table: Table, link: str) -> list[Row]:
    """The rows of a link that somebody tried; `--only` leaves out others."""
    tried = {(row, at) for row, at, _ in (*table.values, *table.failures)}
    return [row for row in ROWS if link in row.goals and (row.key, link) in tried]


def results_table(table: Table, link: str) -> list[str]:
    columns, ratios = COLUMNS[link], COMPARED[link]
    lines = ["| | " + " | ".join([*columns, *(f"ours / {name}" for name in ratios), "goal"]) + " |",
             "|---|" + "---:|" * (len(columns) + len(ratios)) + "---|"]
    for row in measured_rows(table, link):
        cells = [*(report.cell(table, row, link, name) for name in columns),
                 *(compared(table, row.key, link, name) for name in ratios), report.goal_words(table, row, link)]
        lines.append(f"| {row.title} | " + " | ".join(cells) + " |")
    return lines


def rows_table(table: Table) -> list[str]:
    shown = {row.key for link in HEADINGS for row in measured_rows(table, link)}
    return ["| | what is copied |", "|---|---|", *(f"| {row.title} | {row.bound} |" for row in ROWS if row.key in shown)]


def measured_growth(table: Table) -> list[int]:
    return [files for files in GROWTH if table.middle(growth_rows(files)[0], LOOPBACK, OURS) is not None]


def seconds(table: Table, row: str, name: str) -> float | None:
    middle = table.middle(row, LOOPBACK, name)
    return None if middle is None else middle / 1000


def growth_table(table: Table) -> list[str]:
    lines = ["| files of 1 kB | ours, s | rsync shared, s | ours / rsync shared | ours, nothing changed, s "
             "| rsync shared, nothing changed, s | ours / rsync shared | peak memory of ours, MB |",
             "|---:|" + "---:|" * 7]
    for files in measured_growth(table):
        fresh, same, peak = growth_rows(files)
        cells = []
        for row in (fresh, same):
            times = [seconds(table, row, name) for name in (OURS, RSYNC)]
            cells += ["" if taken is None else f"{taken:.2f}" for taken in times]
            cells.append(compared(table, row, LOOPBACK, RSYNC))
        most = table.middle(peak, LOOPBACK, OURS)
        cells.append("" if most is None else
                     f"{most:.1f}, {'reached' if most <= MEMORY_GOAL_MB else '**missed**'}")
        lines.append(f"| {files:,} | " + " | ".join(cells) + " |")
    return lines


def failure_lines(table: Table) -> list[str]:
    titles = {row.key: row.title for row in ROWS}
    return [f"* {name}, {titles.get(key, key)}, {link}: {' '.join(reason.split())}"
            for (key, link, name), reason in sorted(table.failures.items())]


def page(table: Table, machine: dict[str, str], options: argparse.Namespace) -> str:
    command = "scripts/bench-sync" + (" --quick" if options.quick else "")
    parts = [INTRODUCTION.format(command=command, date=time.strftime("%Y-%m-%d", time.gmtime()))
             + "\n".join(f"| {name} | {value} |" for name, value in machine.items()),
             LEGEND.format(what="of one round" if options.rounds == 1 else
                           f"medians of {options.rounds} rounds, in brackets the lowest and the highest")]
    for link, heading in HEADINGS.items():
        if measured_rows(table, link):
            parts += [f"## {heading.format(rtt=options.rtt_ms)}", "\n".join(results_table(table, link))]
    if measured_growth(table):
        parts += ["## Growth", f"Loopback, up. The memory is the most the server ever had; the goal is at most "
                  f"{MEMORY_GOAL_MB} MB.", f"![Time and memory over the number of files]({PICTURE})",
                  "\n".join(growth_table(table))]
    parts += ["## The rows", "\n".join(rows_table(table))]
    if failures := failure_lines(table):
        parts += ["## What failed", "\n".join(failures)]
    return "\n\n".join(parts) + "\n"


def draw(table: Table, path: pathlib.Path) -> None:
    """Seconds when everything is new, seconds when nothing changed, and peak memory, over the number of files."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker

    figure, panels = pyplot.subplots(1, 3, figsize=(12, 3.8), dpi=100)
    titles = ("everything new, seconds", "nothing changed, seconds", "peak memory, MB")
    for at, (axes, title) in enumerate(zip(panels, titles)):
        for name in (OURS, RSYNC):
            points = [(files, table.middle(growth_rows(files)[at], LOOPBACK, name)) for files in measured_growth(table)]
            found = [(files, value / (1 if at == 2 else 1000)) for files, value in points if value is not None]
            if found:
                axes.plot(*zip(*found), marker="o", color=COLOURS[name], label=name)
        axes.set_title(title, fontsize=10)
        axes.set_xscale("log")
        axes.set_xlabel("files of 1 kB", fontsize=9)
        axes.xaxis.set_minor_formatter(ticker.NullFormatter())
        axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:,.0f}"))
        if at < 2:
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
            axes.yaxis.set_minor_formatter(ticker.NullFormatter())
            axes.legend(fontsize=9)
        else:
            axes.axhline(MEMORY_GOAL_MB, color="black", linewidth=1, linestyle=":")
            axes.annotate("goal", (0.02, MEMORY_GOAL_MB), xycoords=("axes fraction", "data"), xytext=(0, 3),
                          textcoords="offset points", fontsize=8)
            axes.set_ylim(bottom=0)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(path)


def write(table: Table, machine: dict[str, str], options: argparse.Namespace) -> list[pathlib.Path]:
    """Writes the page, and the picture where growth was measured, into the folder that was asked for."""
    written = [options.out / "SYNC.md"]
    written[0].write_text(page(table, machine, options), encoding="utf-8")
    if measured_growth(table):
        written.append(options.out / PICTURE)
        draw(table, written[1])
    return written
