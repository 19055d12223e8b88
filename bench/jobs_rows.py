"""The rows of the comparison of jobs, their goals, and how many watches a tick has."""
from __future__ import annotations

from rows import PACKAGE, Goal, Row, against, both

# Watches, and on how many hosts they are.
TICKS = ((100, 2), (1_000, 20), (10_000, 200))


def third(row: str) -> dict[str, Goal]:
    return both(against(row, PACKAGE, 1 / 3, "at most 1/3 of the package"))


ROWS = [
    Row("start_plain", "`exec_bash_background` with `watch` off",
        "One round trip, a record on the disk before it, and what the host starts: a shell that makes the folder of the job, "
        "the runner in a session of its own, and tmux.", goals=third("start_plain")),
    Row("start_watched", "`exec_bash_background` as it is by default",
        "As above, and the watch in the same record; ours makes sure that its watchdog runs, which is a look into its store. "
        "The package starts none on Linux.", goals=third("start_watched")),
    Row("start_named", "the same with a `session_name`",
        "As above; and a name that somebody chose is claimed on the host, and tmux is asked whether a live session has it.",
        goals=third("start_named")),
    Row("check", "`check_background_task` of a job that runs",
        "One round trip and the processes of the script: what the folder of the job tells, and the end of its log.",
        goals=third("check")),
]


def tick_rows(watches: int) -> tuple[str, str, str, str]:
    """Where the table keeps a tick: the first of a process, a later one, the processor time of that, peak of memory."""
    return f"tick_first_{watches}", f"tick_later_{watches}", f"tick_processor_{watches}", f"tick_peak_{watches}"
