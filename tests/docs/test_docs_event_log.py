"""The trainer of docs/event-log.md runs with the copied folder alone, and its log is judged like any other."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from docs_pages import DOCS, ROOT, blocks
from support.stores import refresh, rows

from analysis.leaderboard import leaderboard
from analysis.snapshot import Snapshot
from harness.cli.app import main
from harness.layout import RunsFolder

EXAMPLE, LOST, FOLD = blocks(DOCS / "event-log.md", "python")
COPY, JUDGE = blocks(DOCS / "event-log.md", "sh")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the page's commands and its trainer were run, without any installed package."""
    folder = tmp_path_factory.mktemp("outside")
    shutil.copytree(ROOT / "harness" / "events", folder / "harness" / "events")
    subprocess.run(["sh", "-ec", COPY], cwd=folder, check=True)
    trainer = folder / "mytrainer"
    (trainer / "train.py").write_text(EXAMPLE + LOST + FOLD)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-S", "train.py"], cwd=trainer, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (trainer / "printed").write_text(done.stdout)
    return trainer


def test_the_fold_tells_what_the_trainer_did(trained: Path):
    # 10 updates of 400 tokens, and the batch that found every budget exhausted; nothing crashed
    assert (trained / "printed").read_text().splitlines() == [
        "0 0.0",
        "completed 10 4400",
        "4400 {} {}",
        "{'self': 0, 'infrastructure': 0} {}",
    ]


def test_nothing_is_quarantined_and_the_leaders_are_those_that_were_planted(trained: Path):
    runs = RunsFolder(trained / "runs")
    report = refresh(runs)
    assert (report.files, report.quarantined) == (9, {})
    board = {(row.currency, row.arm): row for row in leaderboard(Snapshot.open(runs.snapshot, "outside")).rows}
    for currency, arm, accuracy in [
        ("updates", "costly", 0.60),
        ("updates", "plain", 0.50),
        ("generated_tokens", "costly", 0.45),
        ("generated_tokens", "plain", 0.70),
    ]:
        row = board[currency, arm]
        assert row.accuracy == pytest.approx(accuracy, abs=4 * (0.25 / 800) ** 0.5)  # four standard errors
        assert (row.seeds_done, row.seeds_planned) == (4, 4)
    assert rows(runs, "SELECT DISTINCT updates FROM evaluations WHERE currency = 'generated_tokens' ORDER BY 1") == [
        (5,),
        (20,),
    ]


@pytest.mark.parametrize("command", JUDGE.splitlines())
def test_the_commands_of_the_page_judge_it(
    trained: Path, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(trained)
    with pytest.raises(SystemExit) as ended:
        main(command.split()[1:])
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    assert ("plain" in printed and "costly" in printed) or (trained / "curves.svg").stat().st_size > 1000
