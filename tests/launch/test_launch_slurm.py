"""The Slurm back end without a Slurm: its queries, options, and what it makes of answers."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from launch_helpers import folder_of, plan_of
from submitit.core.utils import FailedJobError

from harness.errors import InputError
from harness.launch import slurm as slurm_module
from harness.launch import worker as worker_module
from harness.launch.backend import SCHEDULER_VARIABLE
from harness.launch.jobs import Job
from harness.launch.slurm import SlurmBackend
from harness.launch.slurm_options import SlurmOptions, minutes_of, sbatch_options
from harness.launch.states import cell_state
from harness.launch.worker import run_job
from harness.layout import CellFolder, RunsFolder
from harness.train.exit_codes import EXIT_INTERRUPTED
from harness.train.lease import Holder, Lease, LeaseHeld, lease_state
from harness.train.processes import Process
from harness.train.scheduler import SlurmQueue, how_it_ended, recorded_gpu_hours

WORKER = (sys.executable, str(Path(__file__).with_name("fake_worker.py")))


class FakeQueue:
    """Answers as squeue does; None stands for a controller that does not answer."""

    def __init__(self, *lines: str | None):
        self.lines: Sequence[str | None] = lines
        self.asked = 0

    def __call__(self, arguments: Sequence[str]) -> str | None:
        self.asked += 1
        return None if self.lines == (None,) else "\n".join(str(line) for line in self.lines)


def test_one_query_serves_three_thousand_jobs_within_an_interval() -> None:
    """Case L2."""
    ask = FakeQueue(*[f"77_{task}|RUNNING" for task in range(3_000)])
    queue = SlurmQueue(ask, interval_seconds=60)
    assert all(queue.alive(f"77_{task}") for task in range(3_000))
    assert not queue.alive("78_0")
    assert ask.asked == queue.queries == 1


def test_what_the_queue_does_not_answer_is_not_taken_for_gone() -> None:
    ask = FakeQueue(None)
    queue = SlurmQueue(ask, interval_seconds=0)
    assert queue.alive("1") and queue.state("1") is None
    ask.lines = ("2|PENDING",)
    assert not queue.alive("1") and queue.state("2") == "PENDING"
    ask.lines = (None,)
    assert not queue.alive("1"), "what was known stays known"


def test_an_answer_from_before_the_submission_says_nothing() -> None:
    queue = SlurmQueue(FakeQueue("1|RUNNING"), interval_seconds=60)
    queue.alive("1")
    assert queue.alive("2", submitted=time.time() + 1)
    assert not queue.alive("2", submitted=time.time() - 60)


def test_how_a_job_ended_is_asked_of_accounting_and_else_of_the_controller() -> None:
    def accounting(arguments: Sequence[str]) -> str | None:
        return "CANCELLED by 0\n" if arguments[0] == "sacct" else None

    def without(arguments: Sequence[str]) -> str | None:
        return "JobId=7 JobName=x JobState=OUT_OF_MEMORY Reason=None" if arguments[0] == "scontrol" else None

    assert how_it_ended("7", accounting) == "CANCELLED"
    assert how_it_ended("7", without) == "OUT_OF_MEMORY"
    assert how_it_ended("7", lambda _: None) == ""


def test_gpu_hours_of_the_records_add_up_over_restarts() -> None:
    told = "1800|billing=1,cpu=1,gres/gpu=2,node=1\n600|cpu=1,gres/gpu=2\n3600|cpu=1\n"
    assert recorded_gpu_hours(["5_0"], lambda _: told) == pytest.approx(2 * 2400 / 3600)
    assert recorded_gpu_hours(["5_0"], lambda _: None) is None


@pytest.mark.parametrize(
    ("text", "minutes"), [("90", 90), ("1:30:00", 90), ("0:00:01", 1), ("2-00:00:00", 2_880), ("0:01:30", 2)]
)
def test_time_limits_are_read_as_slurm_writes_them(text: str, minutes: int) -> None:
    assert minutes_of(text) == minutes


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ({"time_limit": "soon"}, "--time-limit"),
        ({"time_limit": "0"}, "--time-limit"),
        ({"partition": "a b"}, "--partition"),
        ({"account": "$(id)"}, "--account"),
        ({"sbatch": {"wrap": "rm -rf ~"}}, "--sbatch"),
        ({"sbatch": {"mem; x": "1"}}, "--sbatch"),
    ],
)
def test_what_would_be_shell_text_is_refused(given: dict[str, Any], where: str) -> None:
    with pytest.raises(InputError) as caught:
        SlurmOptions(**given)
    assert str(caught.value).startswith(f"{where}: found ")


def test_sbatch_options_are_key_and_value() -> None:
    assert sbatch_options(["mem=16G", "exclusive="]) == {"mem": "16G", "exclusive": ""}
    with pytest.raises(InputError, match="--sbatch: found 'mem'; KEY=VALUE"):
        sbatch_options(["mem"])


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunsFolder:
    """With an sbatch on the path, so that a back end can be made; nothing calls it."""
    program = tmp_path / "bin" / "sbatch"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return RunsFolder(tmp_path / "runs")


class FakeExecutor:
    """Numbers jobs as Slurm does; refuses as often as it is told to."""

    def __init__(self, refusals: int = 0):
        self.refusals = refusals
        self.arrays: list[int] = []

    def map_array(self, function: Any, paths: list[str]) -> list[Any]:
        assert function is run_job
        if self.refusals:
            self.refusals -= 1
            raise FailedJobError("sbatch: error: QOSMaxSubmitJobPerUserLimit")
        self.arrays.append(len(paths))
        array = len(self.arrays)
        return [
            SimpleNamespace(job_id=f"{array}_{task}", paths=SimpleNamespace(submission_file="job.sh"))
            for task in range(len(paths))
        ]


def begun(
    runs: RunsFolder, monkeypatch: pytest.MonkeyPatch, ask: FakeQueue, refusals: int = 0, cells: int = 2
) -> tuple[SlurmBackend, FakeExecutor, list[Job]]:
    executor = FakeExecutor(refusals)
    backend = SlurmBackend(runs, SlurmOptions(), slurm_queue=SlurmQueue(ask, interval_seconds=0))
    monkeypatch.setattr(backend, "_executor", lambda threads, tasks: executor)
    started = []
    for cell in plan_of(*[["complete"]] * cells).cells:
        folder = folder_of(runs, cell)
        folder.path.mkdir(parents=True)
        cell.write(folder.spec)
        started.append(backend.start(folder, 1, "code"))
    return backend, executor, started


def test_cells_started_together_are_one_array(runs: RunsFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    backend, executor, started = begun(runs, monkeypatch, FakeQueue("1_0|PENDING", "1_1|PENDING"))
    assert backend.poll() == []
    assert executor.arrays == [2]
    assert [job.queued()["job"] for job in started] == ["1_0", "1_1"]
    started[0].record_exit(0)
    assert [(ended.job, ended.exit_code) for ended in backend.poll()] == [(started[0], 0)]


def test_a_refused_submission_is_tried_again_later(
    runs: RunsFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [1_000.0]
    monkeypatch.setattr(slurm_module.time, "monotonic", lambda: now[0])
    backend, executor, _ = begun(runs, monkeypatch, FakeQueue("1_0|RUNNING", "1_1|RUNNING"), refusals=2)
    backend.poll()
    backend.poll()
    assert executor.refusals == 1, "tried again at once"
    assert (
        "sbatch refuses (sbatch: error: QOSMaxSubmitJobPerUserLimit); trying again in 10 s" in capsys.readouterr().err
    )
    now[0] += 10
    backend.poll()
    assert "trying again in 20 s" in capsys.readouterr().err
    now[0] += 20
    backend.poll()
    assert executor.arrays == [2]


def test_a_first_submission_refused_three_times_is_the_users_to_mend(
    runs: RunsFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(slurm_module.time, "monotonic", lambda: now[0])
    backend, _, started = begun(runs, monkeypatch, FakeQueue(), refusals=99)
    with pytest.raises(InputError, match="sbatch refuses: sbatch: error: QOSMax"):
        for _ in range(3):
            backend.poll()
            now[0] += 1_000
    assert [job.exit_code() for job in started] == [EXIT_INTERRUPTED] * 2


@pytest.mark.parametrize(
    ("state", "status", "reason"),
    [
        ("CANCELLED", "failed", "cancelled in the scheduler's queue"),
        ("OUT_OF_MEMORY", "failed", "killed for want of memory"),
        ("TIMEOUT", "waiting", "ended by the scheduler: TIMEOUT"),
        ("PREEMPTED", "waiting", "ended by the scheduler: PREEMPTED"),
        ("NODE_FAIL", "waiting", "ended by the scheduler: NODE_FAIL"),
        ("", "waiting", "killed by signal 9"),
    ],
)
def test_ends_are_told_apart(
    runs: RunsFolder, monkeypatch: pytest.MonkeyPatch, state: str, status: str, reason: str
) -> None:
    ask = FakeQueue("1_0|RUNNING")
    backend, _, (job,) = begun(runs, monkeypatch, ask, cells=1)
    monkeypatch.setattr(slurm_module, "how_it_ended", lambda _: state)
    assert backend.poll() == []
    ask.lines = ()
    assert [ended.exit_code for ended in backend.poll()] == [-signal.SIGKILL]
    told = cell_state(next(iter(folder_of(runs, cell) for cell in plan_of(["complete"]).cells)))
    assert told.status == status and told.reason.startswith(reason)
    assert job.out_of_memory() == (state == "OUT_OF_MEMORY")


def test_a_job_of_a_dead_launcher_runs_while_the_queue_has_it(
    runs: RunsFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case L5: whoever looks next finds it in the queue, and launches nothing again."""
    ask = FakeQueue("1_0|PENDING")
    backend, _, (job,) = begun(runs, monkeypatch, ask, cells=1)
    backend.poll()
    (cell,) = plan_of(["complete"]).cells
    view = SlurmQueue(ask, interval_seconds=0)
    monkeypatch.setattr("harness.launch.jobs.queue", lambda: view)
    assert cell_state(folder_of(runs, cell)).status == "running"
    ask.lines = ()
    assert cell_state(folder_of(runs, cell)).status == "waiting"
    assert job.exit_code() is None


@pytest.mark.parametrize(("lines", "held"), [(("9_3|RUNNING",), True), ((None,), True), ((), False)])
def test_a_silent_holder_whose_job_the_scheduler_lists_keeps_its_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: tuple[str | None, ...], held: bool
) -> None:
    """Case L12: dead is who is silent *and* whose job is gone."""
    view = SlurmQueue(FakeQueue(*lines), interval_seconds=0)
    monkeypatch.setattr("harness.train.lease.queue", lambda: view)
    path = tmp_path / "lease.json"
    elsewhere = Process("node17", "another boot", 4_242, "1")
    Lease(path, Holder(elsewhere, "token", time.time(), job="9_3"))._create()
    os.utime(path, (time.time() - 100_000,) * 2)
    assert lease_state(path)[0] == ("live" if held else "stale")
    if held:
        with pytest.raises(LeaseHeld, match=r"on node17 \(Slurm job 9_3\)"):
            Lease.acquire_file(path)
    else:
        Lease.acquire_file(path).release()


def started_and_warned(job: Job, cell: CellFolder) -> int:
    """One start of a job by its scheduler, warned (SIGUSR2, as Slurm does) once its worker has begun an attempt."""
    attempts = len(cell.attempt_numbers())

    def warn() -> None:
        while len(cell.attempt_numbers()) == attempts:
            time.sleep(0.02)
        time.sleep(0.2)  # for the updates that it makes
        os.kill(os.getpid(), signal.SIGUSR2)

    thread = threading.Thread(target=warn)
    thread.start()
    code = run_job(str(job.path))
    thread.join()
    return code


@pytest.mark.parametrize(
    ("script", "requeued"), [(["wait"], 2), (["advance-one-then-wait"], 4), (["advance-one-then-wait", "wait"], 3)]
)
def test_a_job_that_gets_nowhere_between_warnings_is_not_requeued_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: list[str], requeued: int
) -> None:
    """It has failed, with what to do; a job that makes an update each time goes on as often as it takes."""
    runs = RunsFolder(tmp_path)
    (cell,) = plan_of(script, updates=10).cells
    folder = folder_of(runs, cell)
    folder.path.mkdir(parents=True)
    cell.write(folder.spec)
    environment: dict[str, str | None] = {SCHEDULER_VARIABLE: "slurm", "ISOBUDGET_RUNS": str(runs.root)}
    job = Job.create(folder, [*WORKER, str(folder.spec)], environment)
    requeues: list[int] = []
    monkeypatch.setattr(worker_module, "_requeued", lambda: bool(requeues.append(1) or True))
    for _ in range(4):
        if job.exit_code() is None:
            assert started_and_warned(job, folder) == EXIT_INTERRUPTED
    assert len(requeues) == requeued
    state = cell_state(folder)
    if requeued == 4:
        assert state.status == "interrupted"
    else:
        assert state.status == "failed" and state.reason.startswith("3 starts in a row were warned of their end")
        assert "longer time limit" in state.reason
        job.record_retry()
        assert cell_state(folder).status == "interrupted"
