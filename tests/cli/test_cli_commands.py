"""Every command on a finished sweep: help, JSON that parses, samples, the figure; and how little `plan` imports."""

from __future__ import annotations

import csv
import io
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.cells import scripted_content, write_cell
from support.command_line import REPOSITORY, Ran, isobudget
from support.sweeps import Swept, cell_folders
from typer.main import get_command

from harness.cli.app import app
from harness.events.writer import EventWriter
from harness.layout import CellFolder, RunsFolder
from harness.rollout.sidecar import SampleRecord, TokenSidecar

COMMANDS = sorted(get_command(app).commands)


def arguments(command: str, swept: Swept, tmp_path: Path) -> list[object]:
    """What each command needs to work on the finished sweep."""
    runs = ["--runs", swept.runs.root]
    needed: dict[str, list[object]] = {
        "check": [swept.file],
        "plan": [swept.file, *runs],
        "lock": [swept.truth.write(tmp_path), "--runs", tmp_path / "runs"],
        "sweep": [swept.file, *runs, "--inline"],
        "status": [swept.file, *runs],
        "watch": [swept.file, *runs],
        "cancel": [swept.file, *runs],
        "retry": [swept.file, *runs],
        "reap": [swept.file, *runs],
        "log": [cell_folders(swept.runs)[0].path.name, *runs],
        "samples": [cell_folders(swept.runs)[0].path.name, *runs],
        "collect": runs,
        "leaderboard": [swept.file, *runs],
        "flips": [swept.truth.study, *runs],
        "verdicts": [swept.file, *runs],
        "curves": [swept.truth.study, tmp_path / "curves.png", *runs],
    }
    return needed[command]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    ran = isobudget(command, "--help")
    assert (ran.code, ran.err) == (0, "")
    assert "Usage:" in ran.out and "--json" in ran.out


def test_help_lists_every_command() -> None:
    ran = isobudget("--help")
    assert ran.code == 0
    assert all(command in ran.out for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_json_and_nothing_else_on_its_output(
    command: str, swept_flip: Swept, tmp_path: Path
) -> None:
    ran = isobudget(command, *arguments(command, swept_flip, tmp_path), "--json")
    assert (ran.code, ran.err) == (0, "")
    assert ran.json()


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_speaks_to_people_too(command: str, swept_flip: Swept, tmp_path: Path) -> None:
    ran = isobudget(command, *arguments(command, swept_flip, tmp_path))
    assert ran.code == 0
    assert ran.out.strip()


def test_json_of_the_plan_is_the_promise_and_where_each_cell_stands(swept_flip: Swept) -> None:
    plan = isobudget("plan", swept_flip.file, "--runs", swept_flip.runs.root, "--json").json()
    truth = swept_flip.truth
    assert plan["budgets"] == {"generated_tokens": truth.budget_tokens, "updates": truth.budget_updates}
    assert {cell["state"] for cell in plan["cells"]} == {"done"}
    assert {(cell["arm"], cell["seed"]) for cell in plan["cells"]} == {
        (arm, 101 + index) for arm in truth.arms for index in range(truth.seeds)
    }
    assert {cell["cell"] for cell in plan["cells"]} == {folder.path.name for folder in cell_folders(swept_flip.runs)}
    assert plan["expected_seconds"] == 0


def test_a_plan_knows_its_duration_once_each_arm_has_run(swept_flip: Swept, tmp_path: Path) -> None:
    """Other seeds are other cells; how long an arm takes is known from the cells that are done."""
    more = swept_flip.truth.write(tmp_path, seeds={"first": 101, "count": 6})
    told = isobudget("plan", more, "--runs", swept_flip.runs.root).out
    assert "8 done" in told and "4 waiting" in told
    assert "expected duration of what is left: about " in told
    assert "unknown" in isobudget("plan", more, "--runs", tmp_path / "nothing-yet").out


@pytest.mark.parametrize("finished", [False, True])
def test_plan_imports_no_heavy_library(finished: bool, swept_flip: Swept, tmp_path: Path) -> None:
    runs = swept_flip.runs.root if finished else tmp_path
    code = (
        "import sys\n"
        "from harness.cli.app import main\n"
        "try:\n"
        f"    main(['plan', {str(swept_flip.file)!r}, '--runs', {str(runs)!r}])\n"
        "except SystemExit as end:\n"
        "    assert end.code in (0, None)\n"
        "heavy = ['torch', 'transformers', 'pandas', 'scipy', 'matplotlib', 'submitit', 'pyarrow']\n"
        "print('imported:', [name for name in heavy if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY, check=True)
    assert done.stdout.splitlines()[-1] == "imported: []"


def samples_of(swept: Swept, *options: object) -> list[dict[str, Any]]:
    cell = cell_folders(swept.runs)[0].path.name
    shown = isobudget("samples", cell[:8], "--runs", swept.runs.root, "--json", *options).json()
    assert shown["heading"]["study"] == swept.truth.study
    found: list[dict[str, Any]] = shown["samples"]
    return found


def test_samples_shows_prompts_completions_and_rewards(swept_flip: Swept) -> None:
    cell = cell_folders(swept_flip.runs)[0].path.name
    ran = isobudget("samples", cell, "--runs", swept_flip.runs.root, "--kind", "rollout", "--limit", 4)
    assert (ran.code, ran.err) == (0, "")
    shown = samples_of(swept_flip, "--kind", "rollout", "--limit", 4)
    assert len(shown) == 4
    lines = ran.out.splitlines()
    for head, body, record in zip(lines[::2], lines[1::2], shown, strict=True):
        assert record["completion"] == "." * 9 + ("solved" if record["reward"] else "failed")
        assert record["prompt"].startswith("problem ")
        assert body.strip() == record["prompt"] + record["completion"]
        assert f"update {record['update']}" in head and f"reward {record['reward']:g}" in head
        assert "10 tokens, stop" in head


def test_samples_of_one_update_and_kind_are_all_of_those(swept_flip: Swept) -> None:
    shown = samples_of(swept_flip, "--update", 3, "--kind", "rollout", "--limit", 1_000)
    assert len(shown) == 4  # 2 prompts x 2 rollouts
    assert {(sample["update"], sample["kind"]) for sample in shown} == {(3, "rollout")}


def test_samples_come_as_csv_and_markdown_with_the_same_rows(swept_flip: Swept) -> None:
    cell = cell_folders(swept_flip.runs)[0].path.name
    asked = ("samples", cell, "--runs", swept_flip.runs.root, "--kind", "rollout", "--limit", 4)
    rows = list(csv.DictReader(io.StringIO(isobudget(*asked, "--format", "csv").out)))
    shown = samples_of(swept_flip, "--kind", "rollout", "--limit", 4)
    told = ("update", "kind", "problem", "visit", "index", "tokens", "finish_reason", "prompt", "completion")
    assert [[row[name] for name in told] for row in rows] == [[str(row[name]) for name in told] for row in shown]
    assert {row["study"] for row in rows} == {swept_flip.truth.study}
    assert {row["retraced"] for row in rows} == {"False"}
    markdown = isobudget(*asked, "--format", "markdown").out
    lines = [line for line in markdown.splitlines() if line.startswith("| ")]
    assert len(lines) == 2 + 4
    for line, row in zip(lines[2:], shown, strict=True):
        assert line.endswith(f"| {row['prompt']} | {row['completion']} |")
    assert "charged: " in markdown


def cell_that_sampled(text: str, folder: Path) -> CellFolder:
    """A cell of the runs folder `folder` that sampled `text` once, from a prompt that is the same."""
    sample = SampleRecord("rollout", 1, 0, 2, (5,), (6, 7), "stop", text, text, 0.5)
    cell = write_cell(RunsFolder(folder), scripted_content({"updates": 1}))
    part = TokenSidecar(cell.tokens(1)).write_part(1, [sample])
    with EventWriter(cell.events(1)) as log:
        log.append("attempt_started", {"cell": cell.path.name, "attempt": 1, "resumed_from": None})
        log.append("ledger", {"update": 1, "rows": {}, "part": part}, {"rows": {}, "charge": {}})
    return cell


def test_texts_survive_every_format(tmp_path: Path) -> None:
    text = 'a,b "c"\n<b>|*d*\\e'
    cell = cell_that_sampled(text, tmp_path)
    asked = ("samples", cell.path.name, "--runs", tmp_path)
    (row,) = csv.DictReader(io.StringIO(isobudget(*asked, "--format", "csv").out, newline=""))
    assert (row["prompt"], row["completion"], row["reward"]) == (text, text, "0.5")
    (line,) = (x for x in isobudget(*asked, "--format", "markdown").out.splitlines() if x.startswith("| 1 "))
    escaped = 'a,b "c"\\\\n\\<b>\\|\\*d\\*\\\\e'
    assert line == f"| 1 | rollout | 1.0.2 | 0.5 | 2 | stop | {escaped} | {escaped} |"
    (shown,) = isobudget(*asked, "--json").json()["samples"]
    assert (shown["prompt"], shown["token_ids"]) == (text, [6, 7])
    assert f"  {text}{text}" in isobudget(*asked).out


@pytest.mark.parametrize("end", ["\r", "\r\n", "\n\n", "\x1b[2J", "\x9b2J", "\0"])
def test_control_characters_survive_where_programs_read_and_steer_nothing_where_people_do(
    end: str, tmp_path: Path
) -> None:
    text = f"a{end}b"
    cell = cell_that_sampled(text, tmp_path)
    asked = ("samples", cell.path.name, "--runs", tmp_path)
    rows = list(csv.reader(io.StringIO(isobudget(*asked, "--format", "csv").out, newline="")))
    assert [len(row) for row in rows] == [len(rows[0])] * 2
    assert dict(zip(*rows, strict=True))["completion"] == text
    assert isobudget(*asked, "--format", "json").json()["samples"][0]["completion"] == text
    (line,) = re.findall("^[|] 1 .*$", isobudget(*asked, "--format", "markdown").out, re.MULTILINE)
    assert not re.search(r"[\x00-\x1f\x7f-\x9f]", line)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", isobudget(*asked).out)


def test_what_was_retraced_is_marked_in_every_format(tmp_path: Path) -> None:
    """The second attempt starts afresh, so nothing of the first one led to the weights."""
    cell = cell_that_sampled("text", tmp_path)
    with EventWriter(cell.events(2)) as log:
        log.append("attempt_started", {"cell": cell.path.name, "attempt": 2, "resumed_from": None})
    asked = ("samples", cell.path.name, "--runs", tmp_path)
    (row,) = csv.DictReader(io.StringIO(isobudget(*asked, "--format", "csv").out))
    assert row["retraced"] == "True"
    assert [shown["retraced"] for shown in isobudget(*asked, "--json").json()["samples"]] == [True]
    assert "| rollout (retraced) |" in isobudget(*asked, "--format", "markdown").out
    assert "rollout (retraced)" in isobudget(*asked).out


@pytest.mark.parametrize("fmt", ["terminal", "markdown", "csv", "json"])
def test_a_cell_that_has_not_begun_has_no_samples_in_any_format(fmt: str, tmp_path: Path) -> None:
    cell = write_cell(RunsFolder(tmp_path), scripted_content({"updates": 1}))
    ran = isobudget("samples", cell.path.name, "--runs", tmp_path, "--format", fmt)
    assert (ran.code, ran.err) == (0, "")
    if fmt == "json":
        assert ran.json()["samples"] == []
        assert ran.json()["heading"]["mode"] == "not begun"
    assert ran.out.strip() and "rollout |" not in ran.out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["sweep", "x.yaml", "--workers", "0"], "--workers: found 0; 1 or more"),
        (["sweep", "x.yaml", "--workers", "two"], "--workers: found two; a whole number"),
        (["samples", "x", "--update", "1.5"], "--update: found 1.5; a whole number"),
        (["watch", "x.yaml", "--every", "0"], "--every: found 0; 0.1 or more"),
        (
            ["leaderboard", "x", "--format", "nope"],
            "--format: found nope; one of 'terminal', 'markdown', 'csv', 'json'",
        ),
        (["nope"], "No such command 'nope'; `isobudget --help` shows what it takes"),
        (["plan"], "Missing argument 'study'; `isobudget plan --help` shows what it takes"),
        (["plan", "x.yaml", "y.yaml"], "Got unexpected extra argument(s) (y.yaml); `isobudget plan --help`"),
        (["plan", "x.yaml", "--rnus", "y"], "No such option: --rnus (Possible options: --runs); `isobudget plan"),
    ],
)
def test_an_option_that_cannot_be_is_one_line_and_exit_code_two(arguments: list[str], told: str) -> None:
    ran = isobudget(*arguments)
    assert (ran.code, ran.out) == (2, "")
    (line,) = ran.complaints()
    assert line.startswith(f"isobudget: {told}")


def test_without_a_command_there_is_help_and_no_complaint() -> None:
    ran = isobudget()
    assert "Usage: isobudget" in ran.out
    assert ran.err == ""


def test_the_figure_is_written_in_each_form(swept_flip: Swept, tmp_path: Path) -> None:
    begins = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}
    for suffix, beginning in begins.items():
        out = tmp_path / f"curves.{suffix}"
        ran = isobudget("curves", swept_flip.truth.study, out, "--runs", swept_flip.runs.root)
        assert (ran.code, ran.out.strip()) == (0, str(out))
        assert out.read_bytes().startswith(beginning)


def test_every_look_at_the_data_is_in_the_study_log(swept_flip: Swept) -> None:
    log = swept_flip.runs.study_log(swept_flip.truth.study)
    before = log.read_bytes().count(b'"kind":"analysis"')
    ran: Ran = isobudget("verdicts", swept_flip.truth.study, "--runs", swept_flip.runs.root)
    assert ran.code == 0
    assert log.read_bytes().count(b'"kind":"analysis"') == before + 1
