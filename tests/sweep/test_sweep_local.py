"""The local back end, for real: submitit, a process per cell, and one of them killed on the way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from support.command_line import finished, isobudget, started
from support.studies import FLIP
from support.sweeps import Swept, folded, kill_worker, wait_for_update

from harness.layout import CellFolder, RunsFolder
from harness.study.load import load_study
from harness.study.plan import make_plan


def test_a_local_sweep_survives_a_killed_worker_and_gives_the_same_runs_as_inline(
    swept_flip: Swept, tmp_path: Path
) -> None:
    """One block of the planted study: its cells are those of the inline sweep, and so must their histories be."""
    file, runs = replace(FLIP, seeds=1).write(tmp_path, claims=[]), RunsFolder(tmp_path / "runs")
    plain = next(cell for cell in make_plan(load_study(file)).cells if cell.arm == "plain")
    victim = CellFolder(runs.cell(plain.id))
    process = started("sweep", file, "--runs", runs.root, "--workers", 2)
    wait_for_update(victim, 10, process)
    kill_worker(victim)
    ran = finished(process)
    assert ran.code == 0, ran.err
    assert "planted-flip: 2 done, 0 to do" in ran.out
    found, inline = folded(runs), folded(swept_flip.runs)
    assert len(found) == 2
    for cell, run in found.items():
        assert run.history == inline[cell].history
    assert victim.attempt_numbers() == [1, 2]
    assert found[plain.id].algorithmic["rollout"]["generated_tokens"] == 41 * FLIP.plain.update_tokens
    again = isobudget("sweep", file, "--runs", runs.root, "--no-report")
    assert (again.code, again.out.strip()) == (0, "planted-flip: 2 done, 0 to do")
