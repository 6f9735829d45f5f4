"""Under which promise a study's tables stand: told by every table, and earned only by a committed lock."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from support.command_line import REPOSITORY, finished, isobudget, started
from support.studies import FLIP, PlantedArm
from support.sweeps import Swept

from harness.study.repository import CodeState

TINY = replace(FLIP, study="tiny", seeds=2, problems=16, budget_updates=2, budget_tokens=200)
IDENTITY = ("-c", "user.name=A. Author", "-c", "user.email=a@author.example")


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(folder), *IDENTITY, *arguments], check=True, capture_output=True)


def commit(folder: Path) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "-m", "as promised")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A committed study in a repository of its own; the code counts as committed, too."""
    monkeypatch.setattr("harness.study.lock.code_state", lambda: CodeState("c0ffee", (), "as it is"))
    git(tmp_path, "init", "--quiet")
    (tmp_path / ".gitignore").write_text("runs*/\n")
    TINY.write(tmp_path)
    commit(tmp_path)
    return tmp_path


def file_in(repository: Path) -> Path:
    return repository / "preregistrations" / "tiny.yaml"


def sweep(repository: Path, runs: str = "runs") -> None:
    ran = isobudget("sweep", file_in(repository), "--runs", repository / runs, "--inline", "--no-report")
    assert ran.code == 0, ran.err


def lock(repository: Path, runs: str = "runs", *options: str) -> None:
    ran = isobudget("lock", file_in(repository), "--runs", repository / runs, *options)
    assert ran.code == 0, ran.err


def label(repository: Path, runs: str = "runs") -> str:
    """What the leaderboard says of itself."""
    ran = isobudget("leaderboard", "tiny", "--runs", repository / runs, "--json")
    assert ran.code == 0, ran.err
    heading = ran.json()["heading"]
    return f"{heading['mode']}: {heading['mode_reason']}"


@pytest.mark.parametrize("command", ["leaderboard", "flips", "verdicts"])
def test_every_table_in_every_form_says_its_mode(swept_flip: Swept, command: str) -> None:
    for form in ("terminal", "markdown", "csv", "json"):
        ran = isobudget(command, "planted-flip", "--runs", swept_flip.runs.root, "--format", form)
        assert ran.code == 0, ran.err
        assert "exploratory" in ran.out and "the study is not locked" in ran.out, form


def test_without_a_lock_a_sweep_is_exploratory(repository: Path) -> None:
    sweep(repository)
    assert label(repository) == "exploratory: the study is not locked"


def test_a_lock_that_is_not_committed_leaves_a_sweep_exploratory(repository: Path) -> None:
    lock(repository)
    sweep(repository)
    assert label(repository) == "exploratory: the lock is not committed"


def test_locked_and_committed_before_the_sweep_is_confirmatory(repository: Path) -> None:
    lock(repository)
    commit(repository)
    sweep(repository)
    assert label(repository).startswith("confirmatory: locked and committed before the sweep")


def test_the_same_lock_swept_in_another_runs_folder_is_a_reproduction(repository: Path) -> None:
    lock(repository)
    commit(repository)
    sweep(repository, "runs-of-a-newcomer")
    assert label(repository, "runs-of-a-newcomer").startswith("reproduction: the lock was made elsewhere")


def test_a_study_changed_after_its_lock_is_exploratory(repository: Path) -> None:
    lock(repository)
    replace(TINY, dense=PlantedArm(gain=0.2, continuations=3)).write(repository)
    commit(repository)
    sweep(repository)
    assert label(repository) == "exploratory: the study was changed since it was locked"


def test_runs_made_before_the_lock_do_not_become_confirmatory_by_it(repository: Path) -> None:
    sweep(repository)
    lock(repository)
    commit(repository)
    sweep(repository)
    assert label(repository) == (
        "exploratory: 4 of 4 runs were made as exploratory, the study itself is confirmatory"
    )


def test_runs_made_under_an_earlier_lock_do_not_confirm_the_claims_of_a_later_one(repository: Path) -> None:
    lock(repository)
    commit(repository)
    sweep(repository)
    file = file_in(repository)
    file.write_text(file.read_text().replace("title: A planted truth", "title: What the runs had shown"))
    lock(repository, "runs", "--force")
    commit(repository)
    sweep(repository)
    assert label(repository) == (
        "exploratory: 4 of 4 runs were made under another lock, the study itself is confirmatory"
    )


def test_comments_key_order_and_line_ends_do_not_break_a_lock(repository: Path) -> None:
    lock(repository)
    file = file_in(repository)
    changed = "# a remark\n" + file.read_text().replace("title: A planted truth\n", "") + "title: A planted truth\n"
    file.write_bytes(changed.replace("\n", "\r\n").encode())
    commit(repository)
    sweep(repository)
    assert label(repository).startswith("confirmatory")


def test_a_clean_checkout_confirms_and_a_changed_one_does_not(tmp_path: Path) -> None:
    """Nothing pretended: the code itself lies in the repository, as it does for whoever cloned it."""
    for name in ("harness", "analysis"):
        shutil.copytree(REPOSITORY / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "constraints.txt", ".gitignore"):
        shutil.copy(REPOSITORY / name, tmp_path / name)
    git(tmp_path, "init", "--quiet")
    file = TINY.write(tmp_path)
    commit(tmp_path)
    assert finished(started("lock", file, "--runs", "runs", code=tmp_path)).code == 0
    commit(tmp_path)
    sweep = ("sweep", file, "--runs", "runs", "--inline", "--json")
    assert finished(started(*sweep, code=tmp_path)).json()["mode"] == "confirmatory"
    with (tmp_path / "harness" / "seeds.py").open("a") as code:
        code.write("# changed\n")
    told = finished(started(*sweep, code=tmp_path)).json()
    assert told["mode"] == "exploratory"
    assert told["mode_reason"] == "the working tree has uncommitted changes: harness/seeds.py"
