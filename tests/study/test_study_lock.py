"""Locks and modes, against real git repositories."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from small_study import STUDY

from harness.errors import InputError
from harness.events.reader import read_events
from harness.layout import RunsFolder
from harness.study import repository
from harness.study.canonical import canonical_hash
from harness.study.load import load_study
from harness.study.lock import difference, lock, lock_path, mode_of, read_lock
from harness.study.repository import CodeState, code_hash, code_state, git, runs_may_differ

Write = Callable[..., Path]
CLEAN = CodeState(commit="c0ffee", changed=(), hash="h" * 64)


@pytest.fixture(autouse=True)
def _own_git_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", os.devnull)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "A")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "a@example.org")


@pytest.fixture
def runs(tmp_path: Path) -> RunsFolder:
    return RunsFolder(tmp_path / "runs")


def commit(*paths: Path) -> None:
    folder = paths[0].parent
    subprocess.run(["git", "-C", folder, "init", "-q"], check=True)
    subprocess.run(["git", "-C", folder, "add", *paths], check=True)
    subprocess.run(["git", "-C", folder, "commit", "-q", "-m", "x"], check=True)


def locked_and_committed(path: Path, runs: RunsFolder) -> None:
    lock(load_study(path), runs, code=CLEAN)
    commit(path, lock_path(path))


def mode(path: Path, runs: RunsFolder, code: CodeState = CLEAN) -> tuple[str, str]:
    found = mode_of(load_study(path), runs, code)
    return found.name, found.reason


def test_a_lock_holds_the_canonical_study_its_hash_and_the_code(write: Write, runs: RunsFolder) -> None:
    loaded = load_study(write())
    made = lock(loaded, runs, code=CLEAN)
    assert lock_path(loaded.path).name == "small.lock.json"
    held = read_lock(lock_path(loaded.path))
    assert held == made
    assert held.hash == loaded.hash == canonical_hash(held.content)
    assert held.content == json.loads(json.dumps(loaded.resolved))
    assert (held.code_commit, held.code_dirty, held.code_hash) == ("c0ffee", False, "h" * 64)


def test_the_study_log_holds_the_token_of_the_lock(write: Write, runs: RunsFolder) -> None:
    made = lock(load_study(write()), runs, code=CLEAN)
    (event,) = read_events(runs.study_log("small")).events
    assert event.kind == "study_locked"
    assert event.payload == {"study": "small", "lock_hash": made.hash, "token": made.token}


def test_locking_again_with_equal_content_changes_and_records_nothing(write: Write, runs: RunsFolder) -> None:
    path = write()
    lock(load_study(path), runs, code=CLEAN)
    before = lock_path(path).read_bytes()
    lock(load_study(write(text="# a comment\n" + STUDY)), runs, code=CLEAN)
    assert lock_path(path).read_bytes() == before
    assert len(read_events(runs.study_log("small")).events) == 1


def test_a_lock_of_other_content_is_replaced_only_by_force(write: Write, runs: RunsFolder) -> None:
    first = lock(load_study(write()), runs, code=CLEAN)
    changed = load_study(write(("count: 3", "count: 4")))
    with pytest.raises(InputError, match="locked with other content"):
        lock(changed, runs, code=CLEAN)
    assert read_lock(lock_path(changed.path)) == first
    second = lock(changed, runs, force=True, code=CLEAN)
    assert second.token != first.token
    assert len(read_events(runs.study_log("small")).events) == 2


def test_line_ends_and_comments_are_told_apart_from_content(write: Write, runs: RunsFolder) -> None:
    made = lock(load_study(write()), runs, code=CLEAN)
    assert difference(load_study(write()), made) == "none"
    assert difference(load_study(write(text="\ufeff" + STUDY.replace("\n", "\r\n"))), made) == "line ends"
    assert difference(load_study(write(text=STUDY + "# more\n")), made) == "comments or layout"
    assert difference(load_study(write(("count: 3", "count: 4"))), made) == "content"


def test_a_committed_lock_of_this_runs_folder_is_confirmatory(write: Write, runs: RunsFolder) -> None:
    path = write()
    locked_and_committed(path, runs)
    assert mode(path, runs)[0] == "confirmatory"
    assert mode_of(load_study(path), runs, CLEAN).lock_hash == load_study(path).hash


def test_a_committed_lock_of_another_runs_folder_is_a_reproduction(
    write: Write, runs: RunsFolder, tmp_path: Path
) -> None:
    path = write()
    locked_and_committed(path, runs)
    elsewhere = RunsFolder(tmp_path / "elsewhere")
    assert mode(path, elsewhere)[0] == "reproduction"
    lock(load_study(path), elsewhere, code=CLEAN)  # locking what is locked does not make it one's own
    assert mode(path, elsewhere)[0] == "reproduction"


def test_comments_and_line_ends_do_not_end_the_confirmatory_mode(write: Write, runs: RunsFolder) -> None:
    path = write()
    locked_and_committed(path, runs)
    write(text="# read again\r\n" + STUDY.replace("\n", "\r\n"))
    assert mode(path, runs)[0] == "confirmatory"


def test_an_unlocked_study_is_exploratory(write: Write, runs: RunsFolder) -> None:
    assert mode(write(), runs) == ("exploratory", "the study is not locked")


def test_a_study_changed_since_its_lock_is_exploratory(write: Write, runs: RunsFolder) -> None:
    locked_and_committed(write(), runs)
    assert mode(write(("count: 3", "count: 4")), runs) == ("exploratory", "the study was changed since it was locked")


def test_a_lock_outside_a_repository_is_exploratory(write: Write, runs: RunsFolder) -> None:
    path = write()
    lock(load_study(path), runs, code=CLEAN)
    assert mode(path, runs) == ("exploratory", "the study is not in a git repository")


def test_a_lock_or_study_that_is_not_committed_is_exploratory(write: Write, runs: RunsFolder) -> None:
    path = write()
    lock(load_study(path), runs, code=CLEAN)
    other = path.with_name("other.txt")
    other.write_text("x")
    commit(other)
    assert mode(path, runs) == ("exploratory", "the lock is not committed")
    commit(lock_path(path))
    assert mode(path, runs) == ("exploratory", "the study file is not committed")
    commit(path)
    assert mode(path, runs)[0] == "confirmatory"
    lock(load_study(path), runs, force=True, code=CLEAN)
    assert mode(path, runs) == ("exploratory", "the lock is not committed")


def test_an_edited_lock_is_exploratory_and_no_traceback(write: Write, runs: RunsFolder) -> None:
    path = write()
    locked_and_committed(path, runs)
    found = json.loads(lock_path(path).read_text())
    found["content"]["seeds"] = [1, 2]
    lock_path(path).write_text(json.dumps(found))
    name, reason = mode(path, runs)
    assert name == "exploratory"
    assert "does not match its hash" in reason
    lock_path(path).write_text("{")
    assert mode(path, runs)[0] == "exploratory"


def test_changed_code_is_exploratory_and_other_committed_code_is_told(write: Write, runs: RunsFolder) -> None:
    path = write()
    locked_and_committed(path, runs)
    dirty = replace(CLEAN, changed=("harness/seeds.py", "harness/errors.py"))
    told = "the working tree has uncommitted changes: harness/seeds.py and 1 more"
    assert mode(path, runs, dirty) == ("exploratory", told)
    assert mode(path, runs, replace(CLEAN, commit=None))[0] == "exploratory"
    name, reason = mode(path, runs, replace(CLEAN, hash="i" * 64))
    assert name == "confirmatory"
    assert "the code was changed since the lock" in reason


def test_a_study_on_the_tuning_pool_is_always_exploratory(write: Write, runs: RunsFolder) -> None:
    path = write(("baseline: grpo", "evaluate: {pool: tuning}\nbaseline: grpo"))
    locked_and_committed(path, runs)
    assert mode(path, runs) == ("exploratory", "the study is evaluated on the tuning pool")


def test_without_git_every_study_is_exploratory(
    write: Write, runs: RunsFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write()
    locked_and_committed(path, runs)
    monkeypatch.setenv("PATH", "")
    assert git(path.parent, "status") is None
    assert mode_of(load_study(path), runs).name == "exploratory"


def test_the_code_hash_follows_python_files_only(tmp_path: Path) -> None:
    package = tmp_path / "harness"
    package.mkdir()
    (package / "a.py").write_text("x = 1\n")
    first = code_hash(package)
    (package / "notes.txt").write_text("x")
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "a.cpython-311.pyc").write_bytes(b"x")
    assert code_hash(package) == first
    (package / "a.py").write_text("x = 2\n")
    second = code_hash(package)
    assert second != first
    (package / "a.py").rename(package / "b.py")
    assert code_hash(package) not in (first, second)


def test_the_state_of_the_code_names_what_differs_from_its_commit(tmp_path: Path) -> None:
    package = tmp_path / "harness"
    package.mkdir()
    (package / "__init__.py").write_text("")
    assert code_state(package).commit is None
    (tmp_path / "README.md").write_text("x")
    commit(tmp_path / "README.md")
    assert code_state(package).commit is None  # a repository, but not this code's
    commit(tmp_path / "harness")
    clean = code_state(package)
    assert clean.commit is not None
    assert (len(clean.commit), clean.dirty) == (40, False)
    (package / "new.py").write_text("")
    (tmp_path / "README.md").write_text("y")
    assert code_state(package).changed == ("harness/new.py",)


def test_a_git_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = tmp_path / "git"
    slow.write_text(f"#!{shutil.which('sh')}\nexec {shutil.which('sleep')} 60\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(repository, "_GIT_SECONDS", 0.2)
    assert git(tmp_path, "status") is None


def test_code_whose_changes_git_cannot_tell_does_not_count_as_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "harness"
    package.mkdir()
    (package / "__init__.py").write_text("")
    commit(package)
    assert code_state(package).commit is not None
    monkeypatch.setattr(repository, "git", lambda *asked: None if "status" in asked else git(*asked))
    assert code_state(package).commit is None


def test_only_code_that_determines_runs_makes_runs_differ(tmp_path: Path) -> None:
    package = tmp_path / "harness"
    (package / "train").mkdir(parents=True)
    (package / "cli.py").write_text("x = 1\n")
    (package / "train" / "run.py").write_text("x = 1\n")
    commit(package)
    at_the_lock = git(tmp_path, "rev-parse", "HEAD")
    assert at_the_lock is not None
    (package / "cli.py").write_text("x = 2\n")
    commit(package)
    assert not runs_may_differ(at_the_lock.strip(), package)
    (package / "train" / "run.py").write_text("x = 2\n")
    commit(package)
    assert runs_may_differ(at_the_lock.strip(), package)
    assert runs_may_differ("0" * 40, package)  # a commit that nobody knows


def test_what_determines_runs_is_there() -> None:
    root = repository.PACKAGE.parent
    assert [name for name in repository.RUN_DETERMINING if not (root / name).exists()] == []
