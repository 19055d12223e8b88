"""The trees that are copied, and whether a copy is right."""
from __future__ import annotations

import os
import pathlib
import random
import shutil
import subprocess

from contestants import Failed

EDITS, EDIT_BYTES, INSERTED_BYTES = 20, 4096, 1000
PIECE_BYTES = 4 << 20
WORDS = """and are bench build bytes call channel check copy core crate error file folder for from host if in into is line
link list local name not of on one open path plan read remote reply root run sandbox server shell size sync task the time to
tree value wait when with write""".split()


def make_tree(folder: pathlib.Path, files: int, size: int, folders: int) -> None:
    """So many files of random bytes, spread over folders."""
    for at in range(folders):
        (folder / f"folder{at:03}").mkdir(parents=True)
    for at in range(files):
        (folder / f"folder{at % folders:03}" / f"file{at:06}").write_bytes(os.urandom(size))


def make_large(folder: pathlib.Path, size: int) -> None:
    """One file of random bytes."""
    folder.mkdir(parents=True)
    with open(folder / "large", "wb") as file:
        for _ in range(0, size, PIECE_BYTES):
            file.write(os.urandom(PIECE_BYTES))


def make_text(folder: pathlib.Path, size: int, seed: int) -> None:
    """One file of words, which compresses to about a third; another seed gives another text."""
    folder.mkdir(parents=True)
    chosen = random.Random(seed)
    with open(folder / "text", "wb") as file:
        while (missing := size - file.tell()) > 0:
            lines = (" ".join(chosen.choices(WORDS, k=12)) for _ in range(5000))
            file.write("\n".join(lines).encode()[:missing])


def edit_large(folder: pathlib.Path, seed: int) -> None:
    """Small edits in place."""
    chosen, path = random.Random(seed), folder / "large"
    before = path.stat()
    with open(path, "r+b") as file:
        for _ in range(EDITS):
            file.seek(chosen.randrange(before.st_size - EDIT_BYTES))
            file.write(chosen.randbytes(EDIT_BYTES))
    # `rsync` sees no edit within the second of the version before.
    os.utime(path, (before.st_mtime + 2, before.st_mtime + 2))


def insert_into_large(folder: pathlib.Path, seed: int) -> None:
    """One insertion in the middle half, which moves everything behind it."""
    chosen, path = random.Random(seed), folder / "large"
    size = path.stat().st_size
    at = chosen.randrange(size // 4, size * 3 // 4)
    with open(path, "r+b") as file:
        file.seek(at)
        behind = file.read()
        file.seek(at)
        file.write(chosen.randbytes(INSERTED_BYTES))
        file.write(behind)


class Attic:
    """Where trees of many files go that are not needed any more, on the same disk; deleted at the end of a run.

    For a minute after many files were deleted ext4 searches long for each new one, lest it give away the place of one that
    has just gone. Whoever copies in that minute would pay for what others left.
    """

    FEW_FILES = 200

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder, self.count = folder, 0
        folder.mkdir()

    def take(self, tree: pathlib.Path) -> None:
        if not tree.exists():
            return
        files = sum(len(names) for _, _, names in os.walk(tree))
        if files <= self.FEW_FILES:
            shutil.rmtree(tree)  # Large files would need much room until the end.
            return
        self.count += 1
        tree.rename(self.folder / str(self.count))


def require_same(one: pathlib.Path, other: pathlib.Path) -> None:
    """Every name and every byte."""
    done = subprocess.run(["diff", "-rq", "--no-dereference", one, other], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failed(f"the copy differs: {(done.stdout + done.stderr).strip()[:300]}")
