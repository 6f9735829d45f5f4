"""What a sweep launches, launches again, and leaves: in one process, with workers that do as their cell says."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from launch_helpers import FACTS, FakePlan, behave, folder_of, launches, plan_of, study_events, work_done

from harness.errors import InputError
from harness.launch.backend import Ended
from harness.launch.inline import InlineBackend
from harness.launch.json_files import read_json
from harness.launch.progress import SilentDisplay
from harness.launch.states import cell_state
from harness.launch.sweep import SweepOptions, SweepResult, sweep
from harness.layout import RunsFolder
from harness.train.lease import Lease


@dataclass
class Listener(SilentDisplay):
    notices: list[str] = field(default_factory=list)
    ends: list[tuple[str, str, str]] = field(default_factory=list)

    def notice(self, text: str) -> None:
        self.notices.append(text)

    def ended(self, label: str, status: str, reason: str) -> None:
        self.ends.append((label, status, reason))


def run(
    plan: FakePlan,
    runs: RunsFolder,
    listener: Listener | None = None,
    code_hash: Callable[[], str] = lambda: "code",
    backend: InlineBackend | None = None,
    **options: bool | int,
) -> SweepResult:
    return sweep(
        plan,
        runs,
        backend or InlineBackend(runs, behave),
        SweepOptions(poll_seconds=0.01, **options),
        facts=FACTS,
        code_hash=code_hash,
        display=listener or Listener(),
    )


@pytest.fixture
def runs(tmp_path: Path) -> RunsFolder:
    return RunsFolder(tmp_path / "runs")


def test_a_sweep_completes_every_cell_and_says_so_in_the_study_log(runs: RunsFolder) -> None:
    plan = plan_of(["complete"], ["complete"])
    result = run(plan, runs)
    assert (result.completed, result.failed, result.remaining, result.launched) == (2, 0, 0, 2)
    assert result.exit_code == 0
    started, finished = study_events(runs)
    assert started["kind"] == "sweep_started"
    assert started["payload"]["plan"] == plan.record()
    assert started["payload"]["mode"] == "exploratory"
    assert finished["payload"] == {"study": "fake", "completed": 2, "failed": 0, "remaining": 0}


def test_cells_are_launched_in_block_order_whatever_the_order_of_the_plan(runs: RunsFolder) -> None:
    plan = plan_of(["complete"], ["complete"], ["complete"])
    plan.cells.reverse()
    listener = Listener()
    run(plan, runs, listener)
    assert [label for label, _, _ in listener.ends] == ["m/a/0", "m/a/1", "m/a/2"]


def test_a_worker_learns_under_which_promise_it_runs(runs: RunsFolder) -> None:
    plan = plan_of(["complete"])
    run(plan, runs)
    assert read_json(folder_of(runs, plan.cells[0]).launch) == {
        "study": "fake",
        "mode": "exploratory",
        "mode_reason": "not locked",
        "lock_hash": None,
        "code_commit": "c0ffee",
        "code_dirty": True,
    }


def test_a_second_sweep_launches_nothing_and_changes_nothing(runs: RunsFolder) -> None:  # L6
    plan = plan_of(["complete"], ["complete"])
    run(plan, runs)
    before = {path: path.stat().st_mtime_ns for path in runs.cells.rglob("*") if path.is_file()}
    result = run(plan, runs)
    assert str(result) == "fake: 2 done, 0 to do"
    assert result.launched == 0
    assert {path: path.stat().st_mtime_ns for path in runs.cells.rglob("*") if path.is_file()} == before


def test_half_done_grids_launch_the_other_half(runs: RunsFolder) -> None:  # L9
    plan = plan_of(*[["complete"]] * 20)
    run(FakePlan("fake", plan.cells[:10]), runs)
    result = run(plan, runs)
    assert (result.launched, result.completed) == (10, 20)
    assert [launches(runs, cell) for cell in plan.cells] == [1] * 20


def test_a_failed_cell_shows_its_reason_and_is_retried_only_when_asked(runs: RunsFolder) -> None:
    plan = plan_of(["fail", "complete"], ["complete"])
    first = run(plan, runs)
    assert (first.completed, first.failed, first.exit_code) == (1, 1, 1)
    assert first.failures[0].reason == "loss is not finite at update 0"
    assert first.failures[0].labels == ["m/a/0"]
    again = run(plan, runs)
    assert (again.launched, again.failed) == (0, 1)
    assert "loss is not finite at update 0" in str(again)
    retried = run(plan, runs, retry_failed=True)
    assert (retried.launched, retried.completed, retried.exit_code) == (1, 2, 0)


def test_results_followed_by_a_failing_exit_are_not_a_finished_cell(runs: RunsFolder) -> None:  # L13, L3
    plan = plan_of(["exit-1-after-results"])
    result = run(plan, runs)
    assert (result.completed, result.failed) == (0, 1)
    assert cell_state(folder_of(runs, plan.cells[0])).status == "failed"


def test_a_worker_killed_before_its_first_event_is_launched_again(runs: RunsFolder) -> None:  # L11
    plan = plan_of(["killed-before-its-first-event", "complete"])
    result = run(plan, runs)
    assert (result.launched, result.completed, result.exit_code) == (2, 1, 0)


def test_a_worker_that_dies_again_and_again_without_progress_is_given_up(runs: RunsFolder) -> None:
    plan = plan_of(["killed"], ["complete"], updates=1)
    result = run(plan, runs, max_fruitless_launches=3)
    assert (result.launched, result.completed, result.failed) == (4, 1, 1)
    assert "3 launches in a row got nowhere" in result.failures[0].reason
    assert "killed by signal 9" in result.failures[0].reason


def test_a_worker_that_dies_but_advances_is_launched_until_it_is_done(runs: RunsFolder) -> None:
    plan = plan_of(["advance-one-then-killed"] * 6 + ["complete"], updates=7)
    result = run(plan, runs, max_fruitless_launches=1)
    assert (result.launched, result.completed) == (7, 1)


def test_progress_forgives_launches_that_got_nowhere(runs: RunsFolder) -> None:
    nowhere = ["killed-before-its-first-event"] * 2
    plan = plan_of([*nowhere, "advance-one-then-killed", *nowhere, "complete"])
    result = run(plan, runs, max_fruitless_launches=3)
    assert (result.launched, result.completed) == (6, 1)


def test_retracing_the_same_updates_is_no_progress(runs: RunsFolder) -> None:
    plan = plan_of(["killed"], updates=3)  # each launch makes the same two updates, and dies
    result = run(plan, runs, max_fruitless_launches=3)
    assert (result.launched, result.failed) == (4, 1)


def test_three_first_cells_dying_alike_are_told_of_once(runs: RunsFolder) -> None:  # L7
    listener = Listener()
    result = run(plan_of(*[["fail"]] * 4), runs, listener)
    grouped = [notice for notice in listener.notices if "alike" in notice]
    assert grouped == ["the first 3 cells all failed alike: loss is not finite at update 2"]
    assert [reason for _, _, reason in listener.ends][1:] == ["like m/a/0"] * 3
    assert len(result.failures) == 1
    assert len(result.failures[0].cells) == 4


def test_failures_of_different_kinds_are_told_apart(runs: RunsFolder) -> None:
    listener = Listener()
    result = run(plan_of(["fail"], ["fail-otherwise"], ["fail"]), runs, listener)
    assert not [notice for notice in listener.notices if "alike" in notice]
    assert [group.labels for group in result.failures] == [["m/a/0", "m/a/2"], ["m/a/1"]]


def test_stop_on_failure_launches_nothing_after_the_first(runs: RunsFolder) -> None:  # L7
    plan = plan_of(["complete"], ["fail"], ["complete"])
    result = run(plan, runs, stop_on_failure=True)
    assert (result.completed, result.failed, result.remaining) == (1, 1, 1)
    assert launches(runs, plan.cells[2]) == 0
    assert "stopped at the first failure, m/a/1" in result.stopped


def test_changed_code_stops_launches_and_loses_nothing(runs: RunsFolder) -> None:  # L14
    plan = plan_of(*[["complete"]] * 3)
    hashes = iter(["before", "before", "after"])
    result = run(plan, runs, code_hash=lambda: next(hashes))
    assert (result.launched, result.completed, result.remaining, result.exit_code) == (1, 1, 2, 2)
    assert "the code changed" in result.stopped
    assert study_events(runs)[-1]["payload"]["remaining"] == 2


def test_changed_code_goes_on_when_allowed_and_is_recorded(runs: RunsFolder) -> None:  # L14
    plan = plan_of(*[["complete"]] * 3)
    hashes = iter(["before", "before", "after", "after"])
    seen: list[str] = []

    def worker(*given: object) -> int:
        seen.append(os.environ["ISOBUDGET_CODE_HASH"])
        return behave(*given)

    result = run(
        plan, runs, code_hash=lambda: next(hashes), backend=InlineBackend(runs, worker), allow_code_change=True
    )
    assert (result.completed, result.exit_code) == (3, 0)
    assert seen == ["before", "after", "after"]
    warnings = [event["payload"] for event in study_events(runs) if event["kind"] == "warning"]
    assert [warning["code"] for warning in warnings] == ["code-changed"]
    labels = [read_json(folder_of(runs, cell).launch) for cell in plan.cells]
    assert [label["mode_reason"] for label in labels if label] == [
        FACTS.mode_reason,
        "the code changed during the sweep",
        "the code changed during the sweep",
    ]


def test_a_second_sweep_at_once_says_who_runs_the_first_and_touches_nothing(runs: RunsFolder) -> None:
    plan = plan_of(["complete"])
    lock = Lease.acquire_file(runs.sweep_lock("fake"))
    with pytest.raises(InputError, match=f"study fake is being swept by process {os.getpid()} on "):
        run(plan, runs)
    assert not runs.cells.exists()
    assert not runs.study_log("fake").exists()
    lock.release()
    assert run(plan, runs).completed == 1


def test_a_cell_leased_elsewhere_is_waited_for_and_not_doubled(runs: RunsFolder) -> None:
    plan = plan_of(["complete"], ["complete"])
    busy = folder_of(runs, plan.cells[0])
    busy.path.mkdir(parents=True)
    lease = Lease.acquire(busy)

    @dataclass
    class Releasing(Listener):
        def show(self, snapshot: object) -> None:
            if launches(runs, plan.cells[0]) == 0:
                lease.release()

    backend = InlineBackend(runs, behave)
    backend.workers = 2
    listener = Releasing()
    result = run(plan, runs, listener, backend=backend)
    assert "m/a/0 runs already" in listener.notices[0]
    assert [label for label, status, _ in listener.ends if status == "done"] == ["m/a/1", "m/a/0"]
    assert result.completed == 2
    assert work_done(runs, plan.cells[0]) == 1


def test_a_cell_that_runs_here_from_an_earlier_sweep_takes_up_a_slot(runs: RunsFolder) -> None:
    plan = plan_of(["complete"], ["complete"])
    busy = folder_of(runs, plan.cells[0])
    busy.path.mkdir(parents=True)
    lease = Lease.acquire(busy)
    launched_meanwhile: list[int] = []

    @dataclass
    class ReleasingLate(Listener):
        def show(self, snapshot: object) -> None:
            if len(launched_meanwhile) < 3:
                launched_meanwhile.append(launches(runs, plan.cells[1]))
            else:
                lease.release()

    result = run(plan, runs, ReleasingLate())  # one worker
    assert launched_meanwhile == [0, 0, 0]
    assert result.completed == 2


def test_a_runs_folder_that_is_a_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("mine")
    with pytest.raises(InputError, match="the runs folder is a file"):
        run(plan_of(["complete"]), RunsFolder(tmp_path / "runs"))
    assert (tmp_path / "runs").read_text() == "mine"


def test_a_signal_stops_between_cells_and_the_next_sweep_goes_on(runs: RunsFolder) -> None:
    plan = plan_of(["complete"], ["wait", "complete"], ["complete"])

    def worker(spec: Path, runs: RunsFolder, stop: Callable[[], bool]) -> int:
        if spec.parent.name == plan.cells[1].id and not stop():
            os.kill(os.getpid(), signal.SIGINT)
        return behave(spec, runs, stop)

    before = signal.getsignal(signal.SIGINT)  # ignored, where the tests run in the background
    listener = Listener()
    first = run(plan, runs, listener, backend=InlineBackend(runs, worker))
    assert (first.completed, first.remaining, first.failed) == (1, 2, 0)
    assert "stopped by SIGINT" in first.stopped
    assert ("m/a/1", "interrupted", "asked to stop") in listener.ends
    assert signal.getsignal(signal.SIGINT) is before
    second = run(plan, runs)
    assert (second.completed, second.launched) == (3, 2)


def test_a_full_disk_is_one_line_and_loses_no_running_cell(runs: RunsFolder) -> None:
    plan = plan_of(["complete"], ["complete"])

    class FullDisk(InlineBackend):
        def start(self, cell, threads, code_hash):
            if cell.path.name == plan.cells[1].id:
                raise OSError(28, "No space left on device", "jobs/1")
            return super().start(cell, threads, code_hash)

    result = run(plan, runs, backend=FullDisk(runs, behave))
    assert (result.completed, result.remaining, result.exit_code) == (1, 1, 2)
    assert "No space left on device" in result.stopped
    assert run(plan, runs).completed == 2


def test_a_damaged_study_log_is_one_line(runs: RunsFolder) -> None:
    log = runs.study_log("fake")
    log.parent.mkdir(parents=True)
    log.write_text('{"not": "an event"}\n')
    with pytest.raises(InputError, match="line 1: no event"):
        run(plan_of(["complete"]), runs)
    assert log.read_text() == '{"not": "an event"}\n'
    assert not runs.sweep_lock("fake").exists()


def test_progress_and_time_left_come_from_the_running_cells_logs(runs: RunsFolder) -> None:
    plan = plan_of(["advance-one-then-killed", "complete"], updates=4)
    shown = []

    @dataclass
    class Watching(Listener):
        def show(self, snapshot: object) -> None:
            shown.append(snapshot)

    class Pausing(InlineBackend):
        """Tells of an end one poll later, so that the cell is seen running."""

        def poll(self) -> list[Ended]:
            if not getattr(self, "_told", True):
                self._told = True
                return super().poll()
            self._told = False
            return []

    run(plan, runs, Watching(), backend=Pausing(runs, behave))
    fractions = [snapshot.running[0].fraction for snapshot in shown if snapshot.running]
    assert 0.25 in fractions  # one of four updates made
    assert shown[-1].done == 1
    assert all(snapshot.total == 1 for snapshot in shown)
