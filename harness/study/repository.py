"""What git and the files say about code and studies: commit, changes, what is committed, and a hash of the code.

git is asked in short commands with a time limit; where it is missing or fails, the answer is "unknown", never a
guess.
"""

from __future__ import annotations

import hashlib
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).parents[1]
"""The harness package."""
DETERMINING: Final = ("harness", "analysis", "pyproject.toml", "constraints.txt")
"""What determines results, relative to the repository's root; a study and its lock are looked at apart."""

RUN_DETERMINING: Final = (
    *(f"harness/{name}" for name in ("compute", "interventions", "models", "rollout", "tasks", "train")),
    *("harness/seeds.py", "harness/study/cell.py", "harness/study/training.py", "constraints.txt"),
)
"""What can change a run's deterministic history; the rest of `DETERMINING` plans, launches, stores and judges."""

_GIT_SECONDS: Final = 20.0


@dataclass(frozen=True)
class CodeState:
    """The code that is running."""

    commit: str | None
    """Of the repository that holds the code; None outside one."""
    changed: tuple[str, ...]
    """Result-determining files that differ from the commit or are not in it."""
    hash: str
    """`code_hash`."""

    @property
    def dirty(self) -> bool:
        return bool(self.changed)


def code_state(package: Path = PACKAGE) -> CodeState:
    """Commit, changes and hash of the code."""
    root = package.parent
    # the commit alone would not do: an installed copy below somebody else's repository is not that repository's code
    held = git(root, "ls-files", "--error-unmatch", package.name + "/__init__.py") is not None
    commit = git(root, "rev-parse", "HEAD") if held else None
    status = git(root, "status", "--porcelain", "--no-renames", "--", *DETERMINING) if commit else None
    if commit is None or status is None:  # what cannot be told is not called unchanged
        return CodeState(None, (), code_hash(package))
    return CodeState(commit.strip(), tuple(line[3:] for line in status.splitlines()), code_hash(package))


def code_hash(package: Path = PACKAGE) -> str:
    """SHA-256 (hex) over names and bytes of every Python file of the package: changed code, changed hash."""
    total = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        total.update(f"{digest}  {path.relative_to(package).as_posix()}\n".encode())
    return total.hexdigest()


def runs_may_differ(commit: str, package: Path = PACKAGE) -> bool:
    """Whether what determines runs differs between a commit and the last one; True where git cannot tell."""
    return git(package.parent, "diff", "--name-only", commit, "HEAD", "--", *RUN_DETERMINING) != ""


def is_committed(path: Path, *, unchanged: bool) -> bool:
    """Whether git's last commit holds the file (`unchanged`: just as it is now). False outside a repository."""
    folder, name = path.absolute().parent, path.name
    if not (git(folder, "ls-tree", "--name-only", "HEAD", "--", name) or "").strip():
        return False
    return not unchanged or git(folder, "status", "--porcelain", "--", name) == ""


def in_repository(folder: Path) -> bool:
    """Whether a folder lies in a git working tree (and git can be asked)."""
    return (git(folder, "rev-parse", "--is-inside-work-tree") or "").strip() == "true"


def git(folder: Path, *arguments: str) -> str | None:
    """Standard output of a git command, None when git is missing, fails or takes too long."""
    command = ["git", "-C", str(folder), "--no-optional-locks", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return done.stdout
