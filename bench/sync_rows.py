"""The rows of the comparison of syncs and their goals."""
from __future__ import annotations

from rows import DELAYED, LOOPBACK, OURS, PACKAGE, Goal, Row, against, both

RSYNC, RSYNC_NEW, RSYNC_PACKED = "rsync shared", "rsync", "rsync -z shared"
SCP, SCP_SHARED, TAR = "scp", "scp shared", "tar shared"
LIMITED = "limited"
LIMITED_MBIT, LIMITED_ROUND_TRIP_MS = 100, 10

LARGE_BYTES, TEXT_BYTES = 256 << 20, 32 << 20
GROWTH = (1_000, 10_000, 100_000, 200_000)
MEMORY_GOAL_MB = 60

COLUMNS = {LOOPBACK: [OURS, RSYNC, RSYNC_NEW, TAR, SCP, SCP_SHARED, PACKAGE],
           DELAYED: [OURS, RSYNC, RSYNC_NEW, TAR, SCP, SCP_SHARED, PACKAGE],
           LIMITED: [OURS, RSYNC, RSYNC_PACKED]}
# Ours is shown as a multiple of what these need.
COMPARED = {LOOPBACK: [RSYNC, PACKAGE], DELAYED: [RSYNC, PACKAGE], LIMITED: [RSYNC, RSYNC_PACKED]}


def as_rsync(row: str) -> dict[str, Goal]:
    return both(against(row, RSYNC, 1.0, "at most 1.0 x rsync shared"))


def as_scp(row: str) -> dict[str, Goal]:
    return {LOOPBACK: against(row, SCP, 1.1, "at most 1.1 x scp"), DELAYED: against(row, SCP, 0.5, "at most 0.5 x scp")}


ROWS = [
    Row("small_up", "1,000 files of 1 kB, up", "10 folders; the target is not there yet.", goals=as_rsync("small_up")),
    Row("small_down", "1,000 files of 1 kB, down", "The same back, into a new folder.", goals=as_rsync("small_down")),
    Row("hundred_up", "100 files of 1 kB, up",
        "Few files, because the package needs 0.4 s for each of them on this link.", goals={DELAYED: Goal(0, "")}),
    Row("many_up", "5,000 files of 4 kB, up", "100 folders; the target is not there yet.", goals=as_rsync("many_up")),
    Row("many_down", "5,000 files of 4 kB, down", "The same back, into a new folder.", goals=as_rsync("many_down")),
    Row("same_5000", "5,000 files, nothing changed, up",
        "The contestant copied the tree before; `scp` and `tar` would copy it again.", goals=as_rsync("same_5000")),
    Row("same_50000", "50,000 files, nothing changed, up", "As above, 500 folders of files of 100 bytes.",
        goals=as_rsync("same_50000")),
    Row("large_up", "one file of 256 MB, up", "Random bytes in a folder of its own; the target is not there yet.",
        goals=as_scp("large_up")),
    Row("large_down", "one file of 256 MB, down", "The same back, into a new folder.", goals=as_scp("large_down")),
    Row("edited", "256 MB with 20 edits of 4 kB, up",
        "The host has the version before the edits; each round edits other places. `rsync` with `--no-whole-file`.",
        goals={LIMITED: against("edited", RSYNC, 1.3, "at most 1.3 x rsync shared")}),
    Row("inserted", "256 MB with 20 edits of 4 kB and one insertion, up",
        "As above, and everything behind the insertion has moved.",
        goals={LIMITED: against("inserted", RSYNC, 1.3, "at most 1.3 x rsync shared")}),
    Row("text", "32 MB of text, up", "Another text each round; the target is not there yet.",
        goals={LIMITED: Goal(0, "")}),
]


def growth_rows(files: int) -> tuple[str, str, str]:
    """Where the table keeps the growth: copied fresh, nothing changed, and peak of memory."""
    return f"growth_fresh_{files}", f"growth_same_{files}", f"growth_peak_{files}"
