"""``python -m harness.train CELL.json``: works on one cell. SIGTERM, SIGINT and SIGUSR2 checkpoint and end it."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Final

from harness.layout import RunsFolder
from harness.train.attempt import run_cell
from harness.train.exit_codes import EXIT_BAD_INPUT

_ASKING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2)


def main() -> int:
    """Exit status: 0 completed, 1 failed, 2 bad input, 3 somebody else works on the cell, 75 interrupted."""
    if len(sys.argv) != 2:
        print("usage: python -m harness.train CELL.json   (runs folder: $ISOBUDGET_RUNS)", file=sys.stderr)
        return EXIT_BAD_INPUT
    asked_to_stop = False

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal asked_to_stop
        asked_to_stop = True

    for number in _ASKING:
        signal.signal(number, ask)
    code = run_cell(Path(sys.argv[1]), RunsFolder.default(), lambda: asked_to_stop)
    for number in _ASKING:  # a scheduler asks more than once, and the last time must not count as a kill
        signal.signal(number, signal.SIG_IGN)
    return code


if __name__ == "__main__":
    sys.exit(main())
