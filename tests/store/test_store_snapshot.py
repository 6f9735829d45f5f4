"""What the snapshot's tables say of runs whose story is known."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path

import pytest
from support.stores import rebuilt, refresh, rows, tables
from support.synthetic_runs import SyntheticArm, SyntheticStudy, Told, run_events, write_run, write_study

from harness.events.fold import fold_run
from harness.events.writer import EventWriter
from harness.layout import CellFolder, RunsFolder
from harness.store.tables import DERIVED

GOLDEN = Path(__file__).parents[1] / "events" / "golden" / "events.v1.jsonl"
COARSE = SyntheticArm("coarse", 300, lambda updates: 0.6, continuation_share=0.8)
STUDY = SyntheticStudy(
    arms=[SyntheticArm("fine", 100, lambda updates: 0.3), COARSE],
    cpu_hours_grid=[2e-4, 5e-4],
    claims=[{"id": "H1", "statement": "Words.", "text": "accuracy(coarse) > accuracy(fine) at 10 updates"}],
)
FINE_101 = STUDY.cell("model", "fine", 101)
COARSE_102 = STUDY.cell("model", "coarse", 102)


@pytest.fixture
def runs(tmp_path: Path) -> RunsFolder:
    """A study with two cells that crashed: one twice, one before its first checkpoint."""
    folder = RunsFolder(tmp_path)
    write_study(folder, STUDY, {FINE_101: [14, 17], COARSE_102: [5]})
    refresh(folder)
    return folder


def test_a_rebuilt_store_has_the_same_tables(runs: RunsFolder) -> None:
    before = tables(runs.database), tables(runs.snapshot)
    assert {f"CREATE TABLE {name}" for name in before[1]} <= {line.split(" (")[0] for line in DERIVED.splitlines()}
    assert all(before[1][name] for name in before[1] if name != "quarantine")
    assert rebuilt(runs) == before


def test_the_plan_is_told_by_the_newest_sweep(runs: RunsFolder) -> None:
    assert rows(runs, "SELECT study, title, baseline, alpha, correction, mode, code_dirty, charged FROM studies") == [
        ("synthetic", "A synthetic study", "fine", 0.05, "holm", "exploratory", False,
         ["rollout", "continuation", "policy_train"])
    ]  # fmt: skip
    assert json.loads(rows(runs, "SELECT plan FROM studies")[0][0]) == STUDY.plan()
    assert rows(runs, "FROM budgets ORDER BY amount") == [
        ("synthetic", "updates", 10.0),
        ("synthetic", "generated_tokens", 2000.0),
    ]
    assert rows(runs, "SELECT currency, amount, fraction, budgeted FROM milestones ORDER BY currency, amount") == [
        ("cpu_hours", 2e-4, None, False),
        ("cpu_hours", 5e-4, None, False),
        ("generated_tokens", 1000.0, 0.5, True),
        ("generated_tokens", 2000.0, 1.0, True),
        ("updates", 5.0, 0.5, True),
        ("updates", 10.0, 1.0, True),
    ]
    assert rows(runs, "SELECT arm, position FROM arms ORDER BY position") == [("fine", 0), ("coarse", 1)]
    text = "accuracy(coarse) > accuracy(fine) at 10 updates"
    assert rows(runs, "SELECT claim, position, statement, text, form->>'id' FROM claims") == [
        ("H1", 0, "Words.", text, "H1")
    ]
    assert len(rows(runs, "FROM planned_cells")) == 6

    changed = {**STUDY.plan(), "title": "Amended", "cells": STUDY.cells()[:2]}
    with EventWriter(runs.study_log("synthetic")) as log:
        log.append("sweep_started", {"study": "synthetic", "mode": "confirmatory", "plan": changed})
    refresh(runs)
    assert rows(runs, "SELECT title, mode FROM studies") == [("Amended", "confirmatory")]
    assert len(rows(runs, "FROM planned_cells")) == 2


def test_runs_agree_with_the_fold(runs: RunsFolder) -> None:
    for cell in STUDY.cells():
        folded = fold_run(runs.cell(cell["cell"]))
        of_cell = f"WHERE cell = '{cell['cell']}'"
        assert rows(
            runs, f"SELECT status, updates, diverged, generated_tokens, flops, cpu_hours FROM runs {of_cell}"
        ) == [
            ("completed", folded.updates, False, folded.charge["generated_tokens"], folded.charge["flops"],
             folded.charge["cpu_hours"])
        ]  # fmt: skip
        for totals, survival in ((folded.algorithmic, "surviving"), (folded.retraced, "NOT surviving")):
            found = rows(
                runs,
                f"""SELECT kind, sum(samples), sum(generated_tokens), sum(prefill_tokens), sum(flops),
                    sum(wall_seconds) FROM ledger {of_cell} AND {survival} GROUP BY kind""",
            )
            names = ("samples", "generated_tokens", "prefill_tokens", "flops", "wall_seconds")
            assert {row[0]: row[1:] for row in found} == {
                kind: tuple(total[name] for name in names) for kind, total in totals.items()
            }


def test_crashed_attempts_are_told_apart(runs: RunsFolder) -> None:
    attempts = rows(
        runs,
        f"SELECT attempt, resumed_attempt, status, mode, device FROM attempts WHERE cell = '{FINE_101}' ORDER BY 1",
    )
    assert attempts == [
        (1, None, None, "exploratory", "cpu"),
        (2, 1, None, "exploratory", "cpu"),
        (3, 1, "completed", "exploratory", "cpu"),
    ]
    assert rows(runs, f"SELECT attempts, reason FROM runs WHERE cell = '{FINE_101}'") == [
        (3, "every budget is exhausted")
    ]
    survivals = rows(runs, f"SELECT DISTINCT attempt, surviving FROM updates WHERE cell = '{COARSE_102}' ORDER BY 1")
    assert survivals == [(1, False), (2, True)]
    assert rows(runs, "SELECT cell, update FROM updates WHERE surviving GROUP BY ALL HAVING count(*) > 1") == []


def test_each_milestone_of_an_evaluation_is_a_row_in_hours_too(runs: RunsFolder) -> None:
    found = rows(
        runs,
        f"""SELECT currency, amount, charge_after, updates, generated_tokens FROM evaluations
            WHERE cell = '{STUDY.cell("model", "coarse", 101)}' AND surviving ORDER BY seq, currency""",
    )
    hours = 1e-3 / 3600  # of one token of a synthetic run
    expected = [
        ("cpu_hours", 2e-4, 900 * hours, 2, 600),  # the barrier before update 3, at 900 tokens
        ("generated_tokens", 1000, 1200, 3, 900),
        ("updates", 5, 5, 5, 1500),
        ("cpu_hours", 5e-4, 2100 * hours, 6, 1800),
        ("generated_tokens", 2000, 2100, 6, 1800),
        ("updates", 10, 10, 10, 3000),
    ]
    assert [(*row[:2], round(row[2], 9), *row[3:]) for row in found] == [
        (*row[:2], round(row[2], 9), *row[3:]) for row in expected
    ]


def test_outcomes_come_through_and_give_the_accuracy(runs: RunsFolder) -> None:
    told = {
        (payload["updates"], tuple(payload["outcomes"]))
        for kind, payload, _ in run_events(STUDY, COARSE, 103)
        if kind == "evaluation"
    }
    found = rows(
        runs,
        f"""SELECT updates, outcomes, accuracy, samples_per_problem FROM evaluations
            WHERE cell = '{STUDY.cell("model", "coarse", 103)}' AND surviving""",
    )
    assert {(updates, tuple(outcomes)) for updates, outcomes, _, _ in found} == told
    for _, outcomes, accuracy, samples in found:
        assert accuracy == pytest.approx(math.fsum(outcomes) / 32)
        assert samples == 1


def test_ledger_holds_evaluations_rows_and_kinds_that_have_only_time(tmp_path: Path) -> None:
    runs = RunsFolder(tmp_path)
    told = run_events(STUDY, COARSE, 101)
    kind, payload, measured = told[0]
    measured = {**measured, "rows": {**measured["rows"], "engine": {"wall_seconds": 3.0, "cpu_seconds": 2.0}}}
    write_run(runs, "s", "cell", [(kind, payload, measured), *told[1:]])
    refresh(runs)
    kinds = Counter(row[0] for row in rows(runs, "SELECT kind FROM ledger"))
    evaluations = sum(kind == "evaluation" for kind, _, _ in told)
    assert kinds == {"rollout": 11, "continuation": 11, "policy_train": 11, "evaluation": evaluations, "engine": 1}
    assert rows(runs, "SELECT samples, flops, wall_seconds, update FROM ledger WHERE kind = 'engine'") == [
        (0, 0.0, 3.0, 1)
    ]
    assert rows(runs, "SELECT DISTINCT samples, wall_seconds FROM ledger WHERE kind = 'evaluation'") == [(32, 2.0)]


def test_a_diverged_run_is_flagged_and_has_no_number_that_could_sort_first(tmp_path: Path) -> None:
    runs = RunsFolder(tmp_path)
    told = run_events(STUDY, COARSE, 101)
    sick = next(index for index, event in enumerate(told) if event[0] == "update")
    kind, payload, measured = told[sick]
    told[sick] = (kind, {**payload, "loss": math.nan, "grad_norm": math.inf}, measured)
    write_run(runs, "s", "sick", told)
    write_run(runs, "s", "well", run_events(STUDY, COARSE, 102))
    refresh(runs)
    assert rows(runs, "SELECT cell, diverged FROM runs ORDER BY cell") == [("sick", True), ("well", False)]
    assert rows(runs, "SELECT loss, grad_norm FROM updates WHERE diverged") == [(None, None)]
    worst = rows(runs, "SELECT cell FROM updates ORDER BY loss DESC NULLS LAST")
    assert (worst[0][0], worst[-1][0]) != ("sick", "well")
    assert rows(runs, "SELECT count(*) FROM updates WHERE isnan(loss) OR isinf(grad_norm)") == [(0,)]


def test_signals_that_a_log_does_not_tell_are_null(tmp_path: Path) -> None:
    """The golden log is older than entropy and mismatch; of the other two runs, one tells of them."""
    runs = RunsFolder(tmp_path)
    folder = CellFolder(runs.cell("5f2c9a7be01d3468"))
    folder.events(1).parent.mkdir(parents=True)
    folder.events(1).write_bytes(GOLDEN.read_bytes())
    write_run(runs, "s", "without", told_with({}))
    write_run(runs, "s", "with", told_with({"entropy": 1.5, "sampler_mismatch": None}))
    write_run(runs, "s", "wrong", told_with({"entropy": "much"}))
    refresh(runs)
    assert rows(runs, "SELECT DISTINCT cell, entropy, sampler_mismatch FROM updates ORDER BY cell") == [
        ("5f2c9a7be01d3468", None, None), ("with", 1.5, None), ("without", None, None),
    ]  # fmt: skip
    ((reason,),) = rows(runs, "SELECT reason FROM quarantine")
    assert "`entropy` of `update` is not what the schema says" in reason


def told_with(signals: dict[str, object]) -> list[Told]:
    told = run_events(STUDY, COARSE, 101)
    return [(kind, {**payload, **signals} if kind == "update" else payload, more) for kind, payload, more in told]


def test_runs_that_did_not_end_have_their_state(tmp_path: Path) -> None:
    runs = RunsFolder(tmp_path)
    told = run_events(STUDY, COARSE, 101)
    ending = {**told[-1][1], "status": "failed", "reason": "out of memory"}
    write_run(runs, "s", "failed", [*told[:9], ("finished", ending, {})])
    write_run(runs, "s", "retried", [*told[:9], ("finished", ending, {}), *told[9:]], kills=[10])
    write_run(runs, "s", "running", told[:9])
    EventWriter(CellFolder(runs.cell("unborn")).events(1), exclusive=True).close()
    refresh(runs)
    assert rows(runs, "SELECT cell, status, reason FROM runs ORDER BY cell") == [
        ("failed", "failed", "out of memory"),
        ("retried", "completed", "every budget is exhausted"),
        ("running", "running", ""),
    ]


def test_an_empty_runs_folder_has_an_empty_snapshot(tmp_path: Path) -> None:
    runs = RunsFolder(tmp_path / "runs")
    assert refresh(runs).files == 0
    assert all(found == [] for found in tables(runs.snapshot).values())
