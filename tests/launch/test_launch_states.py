"""A cell's state follows from what is on disk, and long logs are read from their end."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import pytest

from harness.errors import InputError
from harness.events.schema import EventLogError
from harness.events.writer import EventWriter
from harness.launch.jobs import Job
from harness.launch.memory import out_of_memory_kills
from harness.launch.states import cell_state, find_cell, out_of_memory_attempt
from harness.launch.tails import Progress, last_event
from harness.layout import CellFolder, RunsFolder
from harness.train.lease import Lease
from harness.train.processes import Process


@pytest.fixture
def cell(tmp_path: Path) -> CellFolder:
    return CellFolder(tmp_path / "cell")


def attempt(cell: CellFolder, number: int, *ends: str, reason: str = "") -> None:
    with EventWriter(cell.events(number)) as log:
        log.append("attempt_started", {"attempt": number})
        for status in ends:
            log.append("finished", {"status": status, "reason": reason})


def launch(cell: CellFolder, code: int | None = None, stderr: str = "") -> Job:
    job = Job.create(cell, ["true"], {})
    job.stderr.write_text(stderr)
    if code is not None:
        job.record_exit(code)
    return job


def test_never_launched_is_waiting(cell: CellFolder) -> None:
    assert cell_state(cell).status == "waiting"


@pytest.mark.parametrize(
    ("said", "status"), [("completed", "done"), ("interrupted", "interrupted"), ("failed", "failed")]
)
def test_the_last_word_of_the_newest_attempt_decides(cell: CellFolder, said: str, status: str) -> None:
    attempt(cell, 1, "failed", reason="earlier")
    attempt(cell, 2, said, reason="why")
    state = cell_state(cell)
    assert state.status == status
    assert state.reason == ("" if status == "done" else "why")


def test_completed_that_is_not_the_last_word_is_not_done(cell: CellFolder) -> None:
    attempt(cell, 1, "completed")
    with EventWriter(cell.events(1)) as log:
        log.append("warning", {"code": "x", "message": "after the end"})
    assert cell_state(cell).status == "interrupted"


def test_a_newer_attempt_without_an_end_overrules_a_completed_one(cell: CellFolder) -> None:
    attempt(cell, 1, "completed")
    attempt(cell, 2)
    assert cell_state(cell).status == "interrupted"


def test_a_live_lease_is_running_and_names_its_holder(cell: CellFolder) -> None:
    attempt(cell, 1, "failed")
    lease = Lease.acquire(cell)
    assert cell_state(cell).status == "running"
    assert cell_state(cell).holder == lease.holder


def test_a_launch_on_its_way_to_the_lease_is_running(cell: CellFolder) -> None:
    job = launch(cell)
    assert cell_state(cell).status == "waiting"
    job.record_supervisor(Process.current())
    assert cell_state(cell).status == "running"
    job.record_supervisor(replace(Process.current(), start="1"))
    assert cell_state(cell).status == "waiting"
    job.record_worker(Process.current())
    assert cell_state(cell).status == "running"
    job.record_exit(1)
    assert cell_state(cell).status == "failed"


def test_a_launch_that_made_no_attempt_is_not_judged_by_an_earlier_attempt(cell: CellFolder) -> None:
    attempt(cell, 1, "failed", reason="out of memory")
    launch(cell, code=-signal.SIGKILL)
    assert cell_state(cell).status == "interrupted"


def test_a_launch_that_found_somebody_else_at_work_says_nothing(cell: CellFolder) -> None:
    launch(cell, code=0)
    attempt(cell, 1, "completed")
    launch(cell, code=3)
    assert cell_state(cell).status == "done"


@pytest.mark.parametrize(
    ("code", "status", "reason"),
    [
        (None, "waiting", "its worker died, and its supervisor with it"),
        (75, "waiting", "OSError: [Errno 28] No space left on device"),
        (-signal.SIGKILL, "waiting", "killed by signal 9 (Killed)"),
        (-signal.SIGSEGV, "failed", "killed by signal 11 (Segmentation fault)"),
        (1, "failed", "exit code 1 without a `finished` line: OSError: [Errno 28] No space left on device"),
        (0, "failed", "exit code 0 without a `finished` line: OSError: [Errno 28] No space left on device"),
    ],
)
def test_a_launch_without_events_is_judged_by_its_exit(
    cell: CellFolder, code: int | None, status: str, reason: str
) -> None:
    launch(
        cell,
        code,
        stderr="Traceback (most recent call last):\n  ...\nOSError: [Errno 28] No space left on device\n\n",
    )
    state = cell_state(cell)
    assert (state.status, state.reason) == (status, reason)


def test_a_damaged_last_line_is_a_failure_that_names_the_file(cell: CellFolder) -> None:
    attempt(cell, 1, "completed")
    log = cell.events(1)
    log.write_bytes(log.read_bytes().replace(b'"completed"', b'"competed!"'))
    state = cell_state(cell)
    assert state.status == "failed"
    assert str(log) in state.reason


def test_launches_are_numbered_on_and_nothing_is_overwritten(cell: CellFolder) -> None:
    first = launch(cell, code=1, stderr="first")
    second = launch(cell, code=0, stderr="second")
    assert (first.number, second.number) == (1, 2)
    assert first.stderr.read_text() == "first"


def test_the_last_event_of_a_long_log_is_read_from_its_end(cell: CellFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    log = cell.events(1)
    with EventWriter(log) as writer:
        for update in range(2000):
            writer.append("update", {"update": update, "charge": {}, "filling": "x" * 400})
        writer.append("evaluation", {"outcomes": [1] * 100_000})  # one line longer than the first look
    read_bytes = 0
    plain_open = Path.open

    def counting_open(path: Path, *given: object) -> object:
        file = plain_open(path, *given)
        plain_read = file.read

        class Counting:
            def __enter__(self) -> object:
                return self

            def __exit__(self, *_: object) -> None:
                file.close()

            seek = staticmethod(file.seek)

            def read(self, *size: int) -> bytes:
                nonlocal read_bytes
                data = plain_read(*size)
                read_bytes += len(data)
                return data

        return Counting()

    monkeypatch.setattr(Path, "open", counting_open)
    last = last_event(log)
    assert last is not None
    assert last["kind"] == "evaluation"
    assert read_bytes < log.stat().st_size / 2


def test_a_torn_last_line_is_not_there_yet(cell: CellFolder) -> None:
    attempt(cell, 1, "completed")
    log = cell.events(1)
    log.write_bytes(log.read_bytes()[:-5])
    last = last_event(log)
    assert last is not None
    assert last["kind"] == "attempt_started"


def test_an_empty_log_and_a_missing_one_have_no_last_event(cell: CellFolder) -> None:
    assert last_event(cell.events(1)) is None
    cell.attempt(1).mkdir(parents=True)
    cell.events(1).touch()
    assert last_event(cell.events(1)) is None


def test_a_log_that_is_a_folder_cannot_be_read(cell: CellFolder) -> None:
    cell.events(1).mkdir(parents=True)
    with pytest.raises(EventLogError):
        last_event(cell.events(1))


def test_progress_is_the_share_of_the_budget_that_is_exhausted_last(cell: CellFolder) -> None:
    progress = Progress(cell)
    progress.read()
    budgets = {"generated_tokens": 1000, "updates": 10, "cpu_hours": 1.0}
    assert progress.fraction(budgets) == 0.0
    with EventWriter(cell.events(1)) as log:
        charge = {"generated_tokens": 900, "flops": 1e9}
        log.append("update", {"update": 4, "charge": charge}, {"charge": {"cpu_hours": 0.5}})
        log.append("evaluation", {"outcomes": []})
        progress.read()
        assert (progress.updates, progress.fraction(budgets)) == (4, 0.4)
        log.append("update", {"update": 12, "charge": {"generated_tokens": 1200}}, {"charge": {"cpu_hours": 2}})
        progress.read()
    assert progress.fraction(budgets) == 1.0


def test_progress_follows_a_resumed_cell_into_its_next_attempt(cell: CellFolder) -> None:
    progress = Progress(cell)
    for number, update in ((1, 5), (2, 3)):
        with EventWriter(cell.events(number)) as log:
            log.append("update", {"update": update, "charge": {"generated_tokens": 10 * update}})
        progress.read()
    assert progress.fraction({"updates": 10}) == 0.3  # it went back to its checkpoint
    assert progress.updates == 5  # the most that any attempt reached


def test_a_cell_is_found_by_the_beginning_of_its_id(tmp_path: Path) -> None:
    runs = RunsFolder(tmp_path)
    with pytest.raises(InputError, match="no cell begins with 'ab'"):
        find_cell(runs, "ab")
    for cell_id in ("ab12", "ab34"):
        runs.cell(cell_id).mkdir(parents=True)
    assert find_cell(runs, "ab1").path == runs.cell("ab12")
    with pytest.raises(InputError, match="2 cells begin with 'ab'"):
        find_cell(runs, "ab")
    with pytest.raises(InputError, match="no cell begins with"):
        find_cell(runs, "../")


def test_a_worker_killed_for_want_of_memory_has_failed_and_the_next_attempt_is_told(cell: CellFolder) -> None:
    job = launch(cell)
    attempt(cell, 1)
    job.record_exit(-signal.SIGKILL)
    assert cell_state(cell).status == "interrupted"
    assert out_of_memory_attempt(cell) is None
    job.record_exit(-signal.SIGKILL, out_of_memory=True)
    assert (cell_state(cell).status, cell_state(cell).reason) == ("failed", "killed for want of memory")
    assert out_of_memory_attempt(cell) == 1
    launch(cell, -signal.SIGKILL)
    assert out_of_memory_attempt(cell) == 1, "a launch without an attempt takes nothing back"
    launch(cell, -signal.SIGKILL)
    attempt(cell, 2)
    assert out_of_memory_attempt(cell) is None


def test_the_kernels_count_is_that_of_the_own_control_group(tmp_path: Path) -> None:
    group = tmp_path / "groups" / "job" / "7"
    group.mkdir(parents=True)
    (group / "memory.events").write_text("low 0\nhigh 3\nmax 9\noom 2\noom_kill 1\noom_group_kill 0\n")
    membership = tmp_path / "cgroup"
    membership.write_text("1:name=systemd:/x\n0::/job/7\n")
    assert out_of_memory_kills(tmp_path / "groups", membership) == 1
    membership.write_text("1:name=systemd:/x\n")
    assert out_of_memory_kills(tmp_path / "groups", membership) == 0
    older = tmp_path / "groups" / "memory" / "job" / "7"
    older.mkdir(parents=True)
    (older / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 4\n")
    membership.write_text("4:memory:/job/7\n3:cpuset:/job/7\n0::/\n")
    assert out_of_memory_kills(tmp_path / "groups", membership) == 4
    membership.write_text("nonsense\n")
    assert out_of_memory_kills(tmp_path / "groups", membership) == 0
    assert out_of_memory_kills(tmp_path / "groups", tmp_path / "none") == 0
