"""Many random deaths of real training: whenever a worker is killed, the run that goes on is the undisturbed one."""

from __future__ import annotations

import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.command_line import finished
from support.faults import Faults, Killed
from support.short_warm_start import with_cache
from support.studies import chain_study, write_study
from support.sweeps import assert_ledger_is_the_recount, counts, lines_told, planned, work

from harness.events.fold import fold_run
from harness.layout import CellFolder, RunsFolder
from harness.train.attempt import run_cell
from harness.train.exit_codes import EXIT_COMPLETED

KILLS, MOST_TRIES = 30, 60
DEATHS, DEATHS_OF_A_RUN = 200, 20
"""Of the other test: in all, and of one run."""
BETWEEN_LINES_SECONDS = 0.1
"""About as long as it takes from one line of the log to the next."""


@pytest.mark.slow
def test_real_training_killed_at_random_points_is_always_the_same_run(
    tmp_path: Path, chain_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A point is a random line of the log and a random moment after it, so that all of a run's life is hit alike."""
    file = write_study(tmp_path, chain_study("killed", {"generated_tokens": 6_000, "updates": 12}))

    def prepared(name: str) -> tuple[CellFolder, RunsFolder]:
        runs = with_cache(RunsFolder(tmp_path / name), chain_cache)
        return planned(file, runs, "mc"), runs

    cell, runs = prepared("undisturbed")
    assert run_cell(cell.spec, runs) == EXIT_COMPLETED
    whole, lines = fold_run(cell.path), lines_told(cell)
    generator = random.Random(0)
    points = [
        (generator.randrange(1, lines), generator.uniform(0.0, BETWEEN_LINES_SECONDS)) for _ in range(MOST_TRIES)
    ]

    def killed(number: int) -> tuple[CellFolder, RunsFolder] | None:
        """None: the worker was quicker than its killer."""
        cell, runs = prepared(f"killed-{number}")
        after_line, delay_seconds = points[number]
        worker = work(cell, runs)
        while lines_told(cell) < after_line and worker.poll() is None:
            time.sleep(0.002)
        time.sleep(delay_seconds)
        worker.kill()
        died = finished(worker).code == -signal.SIGKILL and fold_run(cell.path).status == "running"
        return (cell, runs) if died else None

    kills = retraced = 0
    with ThreadPoolExecutor(2) as pool:
        for first in range(0, MOST_TRIES, 6):
            for victim in pool.map(killed, range(first, first + 6)):
                if victim is None:
                    continue
                cell, runs = victim
                assert run_cell(cell.spec, runs) == EXIT_COMPLETED
                run = fold_run(cell.path)
                assert run.history == whole.history, f"{cell.path}: another history than the undisturbed run's"
                assert counts(run.algorithmic) == counts(whole.algorithmic)
                assert_ledger_is_the_recount(cell, run)
                kills, retraced = kills + 1, retraced + bool(run.retraced)
            if kills >= KILLS:
                break
    assert kills >= KILLS
    assert retraced > KILLS / 3
    with capsys.disabled():
        print(f"\n{kills} kills at random points, {retraced} with work to retrace: {kills} identical histories")


@pytest.mark.slow
def test_real_training_that_dies_again_and_again_is_always_the_same_run(
    tmp_path: Path, chain_cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deaths by fault hook, each at a random touch of the disk, many in a row in one run, inside checkpoints too."""
    file = write_study(tmp_path, chain_study("dies", {"generated_tokens": 6_000, "updates": 24}))
    arms = ("grpo", "mc")

    def prepared(name: str, arm: str) -> tuple[CellFolder, RunsFolder]:
        runs = with_cache(RunsFolder(tmp_path / name), chain_cache)
        return planned(file, runs, arm), runs

    whole = {}
    for arm in arms:
        cell, runs = prepared(f"whole-{arm}", arm)
        assert run_cell(cell.spec, runs) == EXIT_COMPLETED
        whole[arm] = fold_run(cell.path)
    generator = random.Random(1)
    deaths = lives = 0
    while deaths < DEATHS:
        arm = arms[lives % len(arms)]
        cell, runs = prepared(f"life-{lives}", arm)
        lives += 1
        for _ in range(DEATHS_OF_A_RUN):
            with monkeypatch.context() as patch:
                Faults(patch, die_at=generator.randrange(2, 90))
                try:
                    run_cell(cell.spec, runs)
                    break
                except Killed:
                    deaths += 1
        assert run_cell(cell.spec, runs) == EXIT_COMPLETED
        run = fold_run(cell.path)
        assert run.history == whole[arm].history, f"{cell.path}: another history than the undisturbed run's"
        assert counts(run.algorithmic) == counts(whole[arm].algorithmic)
        assert_ledger_is_the_recount(cell, run)
    with capsys.disabled():
        print(f"\n{deaths} deaths at random points of {lives} runs: {lives} identical histories")
