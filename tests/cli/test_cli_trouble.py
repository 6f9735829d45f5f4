"""Trouble around a sweep: no room, damaged records, two at once, nothing there. One clear line, and nothing lost."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.command_line import Ran, finished, isobudget, started
from support.studies import FLIP
from support.sweeps import Swept, cell_folders, folded, wait_for_update

from harness.events.fold import fold_run
from harness.layout import CellFolder, RunsFolder
from harness.study.load import load_study
from harness.study.plan import make_plan
from harness.train import attempt

TABLES = ("leaderboard", "flips", "verdicts")
ONE_BLOCK = replace(FLIP, seeds=1)
"""Two cells, which are among those of the finished sweep."""


def assert_one_line(ran: Ran, *told: str) -> None:
    assert ran.code == 2, ran
    assert ran.out == ""
    (line,) = ran.complaints()
    assert line.startswith("isobudget: ")
    for part in told:
        assert part in line


def copy_of(swept: Swept, tmp_path: Path) -> RunsFolder:
    """The finished sweep, to be damaged."""
    shutil.copytree(swept.runs.root, tmp_path / "runs")
    return RunsFolder(tmp_path / "runs")


def records(runs: RunsFolder) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in (*runs.attempt_logs(), *runs.study_logs())}


@pytest.mark.parametrize(
    "command",
    [
        ("plan", "STUDY"),
        ("lock", "STUDY"),
        ("sweep", "STUDY"),
        ("status", "STUDY"),
        ("samples", "0123"),
        ("collect",),
        ("leaderboard", "STUDY"),
        ("flips", "planted-flip"),
        ("verdicts", "planted-flip"),
        ("curves", "planted-flip", "curves.svg"),
    ],
    ids=lambda command: command[0],
)
def test_a_runs_folder_that_is_a_file_is_refused_by_every_command(command: tuple[str, ...], tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.write_text("mine")
    study = FLIP.write(tmp_path)
    ran = isobudget(*[study if word == "STUDY" else word for word in command], "--runs", runs)
    assert_one_line(ran, f"{runs}: the runs folder is a file; name a folder with --runs or ISOBUDGET_RUNS")
    assert runs.read_text() == "mine"


@pytest.mark.parametrize("command", [*TABLES, "curves"])
def test_tables_before_any_run_say_what_to_do(command: str, tmp_path: Path) -> None:
    more = [tmp_path / "curves.svg"] if command == "curves" else []
    assert_one_line(
        isobudget(command, "planted-flip", *more, "--runs", tmp_path / "runs"),
        "there is no snapshot; run `isobudget sweep`",
    )
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("command", TABLES)
def test_an_unknown_study_is_told_with_those_that_are_known(command: str, swept_flip: Swept) -> None:
    ran = isobudget(command, "planted-flop", "--runs", swept_flip.runs.root)
    assert_one_line(ran, "the snapshot has no study 'planted-flop'; one of: planted-flip")


def test_a_collected_folder_without_studies_says_what_to_do(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    assert isobudget("collect", "--runs", runs).code == 0
    assert_one_line(isobudget("leaderboard", "x", "--runs", runs), "has no study 'x'; run `isobudget sweep` first")


def test_an_unknown_or_ambiguous_cell_is_one_line(swept_flip: Swept, tmp_path: Path) -> None:
    there = ("--runs", swept_flip.runs.root)
    assert_one_line(isobudget("samples", "xyz", *there), "no cell begins with 'xyz'; an id that `isobudget status`")
    assert_one_line(isobudget("samples", "xyz", "--runs", tmp_path), "no cell begins with 'xyz'")
    assert_one_line(isobudget("samples", "", *there), "no cell begins with ''")
    assert_one_line(isobudget("samples", "0", "--kind", "rollouts", *there), "--kind: no kind of work is called")


def test_a_figure_that_cannot_be_written_is_one_line(swept_flip: Swept, tmp_path: Path) -> None:
    there = ("--runs", swept_flip.runs.root)
    (tmp_path / "file").write_text("mine")
    blocked = tmp_path / "file" / "curves.svg"
    assert_one_line(isobudget("curves", "planted-flip", blocked, *there), str(blocked.parent))
    assert_one_line(isobudget("curves", "planted-flip", "curves.jpg", *there), "a .svg, .png or .pdf file")


def test_an_unknown_back_end_is_one_line(tmp_path: Path) -> None:
    ran = isobudget("sweep", FLIP.write(tmp_path), "--runs", tmp_path / "runs", "--backend", "abacus")
    assert_one_line(ran, "--backend: no back end is called 'abacus'; one of local, slurm, inline")


def damage(log: Path, line: int) -> None:
    """One digit of a line's payload becomes another one."""
    lines = log.read_bytes().splitlines(keepends=True)
    before = lines[line]
    lines[line] = before.replace(b'"update":', b'"update":7', 1)
    assert lines[line] != before
    log.write_bytes(b"".join(lines))


@pytest.mark.parametrize("command", TABLES)
def test_a_corrupt_line_is_quarantined_and_said_and_the_tables_still_print(
    command: str, swept_flip: Swept, tmp_path: Path
) -> None:
    runs = copy_of(swept_flip, tmp_path)
    victim = CellFolder(cell_folders(runs)[0].path)
    damage(victim.events(1), 5)
    before = records(runs)
    ran = isobudget(command, "planted-flip", "--runs", runs.root)
    assert ran.code == 0
    (line,) = ran.complaints()
    assert line.startswith(f"isobudget: cells/{victim.path.name}/attempts/1/events.jsonl is quarantined: line 6: ")
    assert "1 event logs could not be trusted and are left out" in " ".join(ran.out.split())
    after = records(runs)
    assert all(after[path].startswith(content) for path, content in before.items())
    if command == "leaderboard":
        rows = isobudget(command, "planted-flip", "--runs", runs.root, "--json").json()["rows"]
        assert sorted(row["seeds_done"] for row in rows) == [3, 3, 4, 4]
        assert sorted(row["failed"] for row in rows) == [0, 0, 1, 1]


def test_a_cell_whose_last_line_is_corrupt_is_told_and_run_again_when_asked(
    swept_flip: Swept, tmp_path: Path
) -> None:
    runs = copy_of(swept_flip, tmp_path)
    victim = cell_folders(runs)[0]
    log = victim.events(1)
    damaged = log.read_bytes().replace(b'"completed"', b'"completes"')
    log.write_bytes(damaged)
    ran = isobudget("sweep", swept_flip.file, "--runs", runs.root, "--inline", "--no-report")
    assert ran.code == 1
    assert "7 done, 0 to do, 1 failed" in ran.out
    assert "its last line is damaged: its checksum does not match" in ran.out
    assert "--retry-failed" in ran.out
    assert log.read_bytes() == damaged


def test_a_finished_run_that_is_damaged_has_failed_wherever_one_asks_until_it_is_run_again(
    swept_flip: Swept, tmp_path: Path
) -> None:
    """Its last line is sound, and says completed; the tables do not believe it, and so does nobody."""
    runs = copy_of(swept_flip, tmp_path)
    victim = cell_folders(runs)[0]
    damage(victim.events(1), 5)
    there = (swept_flip.file, "--runs", runs.root)
    ran = isobudget("sweep", *there, "--inline", "--no-report")
    assert (ran.code, "7 done, 0 to do, 1 failed" in ran.out) == (1, True)
    assert f"cells/{victim.path.name}/attempts/1/events.jsonl is quarantined: line 6: " in ran.out
    assert "1 failed" in isobudget("status", *there).out
    assert (
        sum(
            row["failed"]
            for row in isobudget("leaderboard", "planted-flip", "--runs", runs.root, "--json").json()["rows"]
        )
        == 2
    ), "once at each of two budgets"
    again = isobudget("sweep", *there, "--inline", "--no-report", "--retry-failed")
    assert (again.code, again.out.strip()) == (0, "planted-flip: 8 done, 0 to do")
    assert "8 done" in isobudget("status", *there).out
    rows = isobudget("leaderboard", "planted-flip", "--runs", runs.root, "--json").json()["rows"]
    assert {(row["seeds_done"], row["failed"]) for row in rows} == {(4, 0)}
    victim.events(1).rename(tmp_path / "set aside")
    assert fold_run(victim.path).history == fold_run(swept_flip.runs.cell(victim.path.name)).history


def test_a_corrupt_study_log_is_told_and_the_cells_outlive_it(swept_flip: Swept, tmp_path: Path) -> None:
    runs = copy_of(swept_flip, tmp_path)
    log = runs.study_log("planted-flip")
    log.write_bytes(log.read_bytes().replace(b'"alpha":0.05', b'"alpha":0.06'))
    sweep = ("sweep", swept_flip.file, "--runs", runs.root, "--inline", "--no-report")
    assert_one_line(isobudget(*sweep), str(log), "checksum does not match", "move the file aside and run `isobudget")
    log.rename(log.with_suffix(".damaged"))
    assert isobudget("collect", "--runs", runs.root).code == 0
    again = isobudget(*sweep)
    assert (again.code, again.out.strip()) == (0, "planted-flip: 8 done, 0 to do")
    assert isobudget("leaderboard", "planted-flip", "--runs", runs.root).code == 0


def test_a_full_disk_costs_one_line_per_cell_and_the_sweep_goes_on_once_there_is_room(
    swept_flip: Swept, tmp_path: Path
) -> None:
    """A file size limit stands for the disk. The longer runs' logs do not fit, nor does the store."""
    file, runs = ONE_BLOCK.write(tmp_path, claims=[]), RunsFolder(tmp_path / "runs")
    sweep = ("sweep", file, "--runs", runs.root)
    ran = finished(started(*sweep, file_limit_bytes=30_000))
    assert ran.code == 2
    assert "Traceback" not in ran.err
    assert "1 done, 0 to do, 1 failed" in ran.out
    told = [line for line in ran.complaints() if line.startswith(("isobudget:", "failed"))]
    assert len(told) == 2
    assert "events.jsonl: the log cannot be written: no room for a whole line" in told[0]
    assert "the store cannot be written" in told[1]
    before = records(runs)
    assert sorted(fold_run(cell.path).status for cell in cell_folders(runs)) == ["completed", "running"]
    again = isobudget(*sweep, "--inline", "--retry-failed", "--no-report")
    assert (again.code, again.out.strip()) == (0, "planted-flip: 2 done, 0 to do")
    after = records(runs)
    assert all(after[path].startswith(content) for path, content in before.items())
    undisturbed = folded(swept_flip.runs)
    assert all(run.history == undisturbed[cell].history for cell, run in folded(runs).items())


def test_a_second_sweep_at_once_is_refused_and_tables_can_be_read_meanwhile(tmp_path: Path) -> None:
    """Long runs, so that there is a meanwhile; one worker, so that the other cells have not begun."""
    study = replace(FLIP, seeds=2, budget_updates=4_000, problems=20)
    file, runs = study.write(tmp_path), RunsFolder(tmp_path / "runs")
    sweep = ("sweep", file, "--runs", runs.root)
    first = CellFolder(runs.cell(make_plan(load_study(file)).cells[0].id))
    process = started(*sweep, "--workers", 1)
    wait_for_update(first, 3, process)
    assert_one_line(
        isobudget(*sweep),
        "study planted-flip is being swept by process",
        "let that sweep go on; `isobudget status` shows how far it is",
    )
    assert isobudget("lock", file, "--runs", runs.root).code == 0
    status = isobudget("status", file, "--runs", runs.root)
    assert (status.code, status.err) == (0, "")
    assert "planted-flip: 1 running, 3 waiting" in status.out
    board = isobudget("leaderboard", "planted-flip", "--runs", runs.root)
    assert (board.code, board.err) == (0, "")
    assert "2 of 2 blocks are not finished and count for no arm" in " ".join(board.out.split())
    process.send_signal(signal.SIGINT)  # running cells checkpoint and end
    ended = finished(process)
    assert ended.code == 1
    assert "stopped by SIGINT; the same command goes on from here" in ended.out
    assert fold_run(first.path).status == "interrupted"


@pytest.fixture
def stopped_after_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Ran, RunsFolder]:
    """A sweep that was interrupted when its first cell was done: every block is incomplete."""
    run_cell = attempt.run_cell

    def interrupted(cell: Path, runs: RunsFolder, stop: Callable[[], bool]) -> int:
        code = run_cell(cell, runs, stop)
        os.kill(os.getpid(), signal.SIGINT)
        return code

    monkeypatch.setattr("harness.train.attempt.run_cell", interrupted)
    file, runs = replace(FLIP, seeds=2, problems=20).write(tmp_path), RunsFolder(tmp_path / "runs")
    return isobudget("sweep", file, "--runs", runs.root, "--inline"), runs


def test_an_interrupted_sweep_says_how_to_go_on_and_incomplete_blocks_can_be_looked_at(
    stopped_after_one: tuple[Ran, RunsFolder], tmp_path: Path
) -> None:
    ran, runs = stopped_after_one
    assert ran.code == 1, ran.err
    assert "planted-flip: 1 done, 3 to do" in ran.out
    assert ran.out.splitlines()[1:] == ["stopped by SIGINT; the same command goes on from here"]
    board = isobudget("leaderboard", "planted-flip", "--runs", runs.root)
    assert "2 of 2 blocks are not finished and count for no arm" in " ".join(board.out.split())
    out = tmp_path / "curves.png"
    assert isobudget("curves", "planted-flip", out, "--runs", runs.root).code == 0
    assert out.stat().st_size > 0
    rows = isobudget("verdicts", "planted-flip", "--runs", runs.root, "--json").json()["rows"]
    assert {row["verdict"] for row in rows} == {"not evaluable"}
