"""The crash rule: which events led to the weights, however often a run was killed on its way."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from support.synthetic_runs import SyntheticArm, SyntheticStudy, Told, run_events, write_run

from harness.events.attempts import Attempt, Segment, surviving_segments
from harness.events.fold import fold_run
from harness.events.reader import read_events
from harness.events.schema import EventLogError
from harness.layout import CellFolder, RunsFolder

CELL = "0123456789abcdef"
STUDY = SyntheticStudy(
    arms=[SyntheticArm("a", tokens_per_update=100, accuracy=lambda updates: 0.5, continuation_share=0.5)],
    budgets={"generated_tokens": 800, "updates": 6},
    cpu_hours_grid=[1.7e-4],
    checkpoint_every=3,
)


def told() -> list[Told]:
    return run_events(STUDY, STUDY.arms[0], seed=7)


@pytest.mark.parametrize(
    ("attempts", "path"),
    [
        ([], []),
        ([Attempt(1, 9, None)], [Segment(1, 0, 9)]),
        ([Attempt(1, 9, None), Attempt(2, 4, (1, 6))], [Segment(1, 0, 6), Segment(2, 0, 4)]),
        ([Attempt(1, 9, None), Attempt(2, 4, None)], [Segment(2, 0, 4)]),
        ([Attempt(1, 9, None), Attempt(2, 3, (1, 6)), Attempt(3, 5, (1, 6))], [Segment(1, 0, 6), Segment(3, 0, 5)]),
        (
            [Attempt(3, 8, (2, 5)), Attempt(1, 9, None), Attempt(2, 7, (1, 9))],
            [Segment(1, 0, 9), Segment(2, 0, 5), Segment(3, 0, 8)],
        ),
    ],
)
def test_the_path_goes_from_the_newest_attempt_back(attempts: list[Attempt], path: list[Segment]) -> None:
    assert surviving_segments(attempts) == path


@pytest.mark.parametrize(
    ("attempts", "told"),
    [
        ([Attempt(2, 4, (1, 6))], "attempt 2 resumes from attempt 1, which has no record"),
        ([Attempt(1, 5, None), Attempt(2, 4, (1, 6))], "event 6 of attempt 1, whose record ends at 5"),
        ([Attempt(1, 5, (1, 3))], "attempt 1 resumes from attempt 1"),
    ],
)
def test_a_path_that_leads_nowhere_is_refused(attempts: list[Attempt], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        surviving_segments(attempts)


def test_a_run_killed_anywhere_folds_into_the_history_of_one_that_was_not(tmp_path: Path) -> None:
    events = told()
    runs = RunsFolder(tmp_path)
    write_run(runs, "s", "clean", events)
    clean = fold_run(runs.cell("clean"))
    assert clean.retraced == {}
    assert clean.status == "completed"
    assert (clean.updates, clean.charge["generated_tokens"]) == (8, 900)
    for first in range(1, len(events)):
        for second in {None, first, len(events) - 1}:
            cell = f"{first}-{second}"
            write_run(runs, "s", cell, events, [first] if second is None else [first, second])
            run = fold_run(runs.cell(cell))
            assert run.history == clean.history
            assert run.algorithmic == clean.algorithmic
            assert (run.status, run.updates, run.charge) == (clean.status, clean.updates, clean.charge)


def test_spent_is_what_all_attempts_did_and_retraced_what_did_not_survive(tmp_path: Path) -> None:
    events = told()
    checkpoint = next(index for index, event in enumerate(events) if event[0] == "checkpoint")
    runs = RunsFolder(tmp_path)
    write_run(runs, "s", CELL, events, [checkpoint - 2, checkpoint + 3])
    lost = events[: checkpoint - 2] + events[checkpoint + 1 : checkpoint + 3]
    retraced: Counter[str] = Counter()
    for kind, payload, _ in lost:
        for work, row in payload["rows"].items() if kind in ("ledger", "evaluation") else ():
            retraced[work] += row["generated_tokens"]
    run = fold_run(runs.cell(CELL))
    assert {kind: row["generated_tokens"] for kind, row in run.retraced.items()} == retraced
    for kind, spent in run.spent.items():
        for name, amount in spent.items():
            assert amount == pytest.approx(run.algorithmic[kind][name] + run.retraced.get(kind, {}).get(name, 0))
    every_attempt = [read_events(CellFolder(runs.cell(CELL)).events(number)).events for number in (1, 2, 3)]
    assert run.spent["rollout"]["generated_tokens"] == sum(
        event.payload["rows"]["rollout"]["generated_tokens"]
        for attempt in every_attempt
        for event in attempt
        if event.kind == "ledger"
    )


def test_an_evaluation_due_only_in_hours_is_no_part_of_the_history_but_is_spent(tmp_path: Path) -> None:
    events = told()
    evaluations = [payload for kind, payload, _ in events if kind == "evaluation"]
    in_hours_only = [payload for payload in evaluations if not payload["milestones"]]
    assert len(in_hours_only) == 1
    write_run(RunsFolder(tmp_path), "s", CELL, events)
    run = fold_run(RunsFolder(tmp_path).cell(CELL))
    kept = [payload for kind, payload in run.history if kind == "evaluation"]
    assert len(kept) == len(evaluations) - 1
    assert run.spent["evaluation"]["samples"] == 32 * len(evaluations)


def test_a_cell_that_only_started_is_running(tmp_path: Path) -> None:
    runs = RunsFolder(tmp_path)
    assert fold_run(runs.cell(CELL)).status == "running"
    write_run(runs, "s", CELL, told(), [4])
    CellFolder(runs.cell(CELL)).events(2).write_bytes(b'{"torn')
    run = fold_run(runs.cell(CELL))
    assert (run.status, run.retraced) == ("running", {})


def test_a_log_that_does_not_begin_with_its_start_is_refused(tmp_path: Path) -> None:
    write_run(RunsFolder(tmp_path), "s", CELL, told(), [4])
    log = CellFolder(RunsFolder(tmp_path).cell(CELL)).events(2)
    first = CellFolder(RunsFolder(tmp_path).cell(CELL)).events(1).read_bytes().splitlines(keepends=True)
    log.write_bytes(log.read_bytes().splitlines(keepends=True)[0].replace(b'"attempt":2', b'"attempt":3'))
    with pytest.raises(EventLogError, match="its checksum does not match"):
        fold_run(RunsFolder(tmp_path).cell(CELL))
    log.write_bytes(first[1].replace(b'"seq":1', b'"seq":0'))
    with pytest.raises(EventLogError, match="line 1"):
        fold_run(RunsFolder(tmp_path).cell(CELL))
