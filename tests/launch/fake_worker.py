"""Stands in for `python -m harness.train cell.json`."""

import os
import signal
import sys
from pathlib import Path

from launch_helpers import behave

from harness.layout import RunsFolder

if __name__ == "__main__":
    os.environ["FAKE_WORKER"] = "1"
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    sys.exit(behave(Path(sys.argv[1]), RunsFolder.default(), lambda: bool(asked)))
