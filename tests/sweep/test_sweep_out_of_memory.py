"""Evidence that memory ran out, from the launch that has it to the arm that is charged for what it cost."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

from support.command_line import isobudget
from support.sweeps import Swept, cell_folders

from harness.events.fold import fold_run
from harness.events.reader import read_events
from harness.launch.jobs import jobs
from harness.layout import RunsFolder


def test_a_run_killed_for_want_of_memory_is_charged_for_what_it_lost(swept_flip: Swept, tmp_path: Path) -> None:
    """A finished run loses its end and its checkpoints, as if it had been killed before the first of them."""
    shutil.copytree(swept_flip.runs.root, tmp_path / "runs")
    runs = RunsFolder(tmp_path / "runs")
    cell = cell_folders(runs)[0]
    lines = cell.events(1).read_bytes().splitlines(keepends=True)
    first_save = next(event.seq for event in read_events(cell.events(1)).events if event.kind == "checkpoint")
    cell.events(1).write_bytes(b"".join(lines[: first_save - 1]))
    shutil.rmtree(cell.checkpoints)
    shutil.rmtree(runs.database.parent)
    jobs(cell)[-1].record_exit(-signal.SIGKILL, out_of_memory=True)
    killed = fold_run(cell.path)
    lost = {kind: row["generated_tokens"] for kind, row in killed.spent.items() if row["generated_tokens"]}
    assert lost["rollout"] > 0

    sweep = ("sweep", swept_flip.file, "--runs", runs.root, "--inline", "--no-report")
    told = isobudget(*sweep)
    assert (told.code, "killed for want of memory" in told.out) == (1, True)
    assert isobudget(*sweep, "--retry-failed").code == 0
    run = fold_run(cell.path)
    assert run.crashes == {"self": 1, "infrastructure": 0}
    assert {kind: row["generated_tokens"] for kind, row in run.lost_self.items() if row["generated_tokens"]} == lost
    printed = " ".join(isobudget("leaderboard", swept_flip.truth.study, "--runs", runs.root, "--json").out.split())
    assert '"crashes_self": 1' in printed
    assert (
        f'"lost_self_tokens": {sum(amount for kind, amount in lost.items() if kind != "evaluation"):.0f}' in printed
    )
