"""`fake_launcher.py RUNS SCRIPT...`: one sweep with one worker, over a cell per script, as its own process."""

import sys
from pathlib import Path

from launch_helpers import FACTS, plan_of

from harness.launch.local import LocalBackend
from harness.launch.progress import PlainDisplay
from harness.launch.sweep import SweepOptions, sweep
from harness.layout import RunsFolder

if __name__ == "__main__":
    runs = RunsFolder(sys.argv[1])
    worker = (sys.executable, str(Path(__file__).with_name("fake_worker.py")))
    result = sweep(
        plan_of(*[[script] for script in sys.argv[2:]]),
        runs,
        LocalBackend(runs, 1, worker),
        SweepOptions(poll_seconds=0.05),
        facts=FACTS,
        code_hash=lambda: "code",
        display=PlainDisplay(),
    )
    print(result)
    sys.exit(result.exit_code)
