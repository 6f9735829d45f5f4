"""The local back end with real processes: environment, crashes, signals, orphans, and a launcher that dies."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from launch_helpers import FACTS, folder_of, launches, plan_of, study_events, work_done

from harness.errors import InputError
from harness.launch.backend import Ended, available_cores, default_workers
from harness.launch.backends import Wanted, make_backend
from harness.launch.jobs import Job, jobs
from harness.launch.local import LocalBackend
from harness.launch.states import cell_state
from harness.launch.sweep import SweepOptions, sweep
from harness.layout import CellFolder, RunsFolder
from harness.seeds import hashed_seed
from harness.study.cell import Cell
from harness.train.lease import lease_state

WORKER = (sys.executable, str(Path(__file__).with_name("fake_worker.py")))
LAUNCHER = Path(__file__).with_name("fake_launcher.py")
PATIENCE_SECONDS = 60.0


def wait_for(what: Callable[[], object], why: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not what():
        assert time.monotonic() < deadline, why
        time.sleep(0.05)


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[RunsFolder]:
    runs = RunsFolder(tmp_path / "runs")
    yield runs
    for path in runs.cells.glob("*/jobs/*"):  # a failed test must leave nothing running
        job = Job(path)
        worker = job.worker()
        if job.exit_code() is None and worker is not None and worker.alive():
            os.kill(worker.pid, signal.SIGKILL)


def run(plan, runs: RunsFolder, workers: int = 2, **options: object):
    return sweep(
        plan,
        runs,
        LocalBackend(runs, workers, WORKER),
        SweepOptions(poll_seconds=0.05, **options),
        facts=FACTS,
        code_hash=lambda: "code",
    )


def start_one(runs: RunsFolder, cell: Cell) -> tuple[LocalBackend, Job]:
    folder = folder_of(runs, cell)
    folder.path.mkdir(parents=True)
    cell.write(folder.spec)
    backend = LocalBackend(runs, 1, WORKER)
    return backend, backend.start(folder, 1, "code")


def end_of(backend: LocalBackend) -> Ended:
    ended: list[Ended] = []
    wait_for(lambda: ended.extend(backend.poll()) or ended, "the worker does not end")
    return ended[0]


def lease_is_live(folder: CellFolder) -> bool:
    return lease_state(folder.lease)[0] == "live"


def test_a_worker_starts_with_its_threads_and_the_runs_folder_in_its_environment(
    runs: RunsFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    (cell,) = plan_of(["complete"]).cells
    folder = folder_of(runs, cell)
    folder.path.mkdir(parents=True)
    cell.write(folder.spec)
    backend = LocalBackend(runs, 3, WORKER)
    backend.start(folder, 2, "c0de")
    assert end_of(backend).exit_code == 0
    (began,) = folder.path.glob("began-*")
    environment = json.loads(began.read_text())
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        assert environment[name] == "2"
    assert environment["ISOBUDGET_RUNS"] == str(runs.root)
    assert environment["ISOBUDGET_CODE_HASH"] == "c0de"
    assert environment["ISOBUDGET_CELLS_AT_ONCE"] == "3"
    assert environment["CUDA_VISIBLE_DEVICES"] == "", "a cell on the CPU sees no GPU"
    assert not [name for name in environment if name.startswith("SUBMITIT_")]


def test_submitit_is_given_a_function_by_name_and_a_path(runs: RunsFolder) -> None:
    (cell,) = plan_of(["complete"]).cells
    backend, job = start_one(runs, cell)
    end_of(backend)
    (pickled,) = job.scheduler.glob("*_submitted.pkl")
    content = pickled.read_bytes()
    assert b"harness.launch.worker" in content
    assert str(job.path).encode() in content
    assert cell.id.encode() in content  # as part of that path
    assert len(content) < 1000 + len(str(job.path))


def test_a_crash_at_start_is_a_failure_with_the_end_of_its_traceback(runs: RunsFolder) -> None:  # L4
    plan = plan_of(["crash-at-start"])
    result = run(plan, runs)
    assert (result.launched, result.failed) == (1, 1)
    assert "RuntimeError: no module named seed0" in result.failures[0].reason
    (job,) = jobs(folder_of(runs, plan.cells[0]))
    assert "Traceback" in "\n".join(job.stderr_tail())


def test_an_exception_after_the_last_evaluation_is_a_failure(runs: RunsFolder) -> None:  # L3, L13
    result = run(plan_of(["crash-after-evaluation"]), runs)
    assert (result.completed, result.failed) == (0, 1)
    assert "disk quota exceeded" in result.failures[0].reason


def test_a_killed_worker_is_told_from_a_failed_one_and_launched_again(runs: RunsFolder) -> None:
    plan = plan_of(["killed", "complete"])
    result = run(plan, runs)
    assert (result.launched, result.completed) == (2, 1)
    first, second = jobs(folder_of(runs, plan.cells[0]))
    assert (first.exit_code(), second.exit_code()) == (-signal.SIGKILL, 0)


def test_no_more_cells_run_at_once_than_workers(runs: RunsFolder) -> None:
    plan = plan_of(*[["wait"]] * 4)
    backend = LocalBackend(runs, 2, WORKER)
    most = 0

    def polled() -> list[Ended]:
        nonlocal most
        live = [cell for cell in plan.cells if lease_is_live(folder_of(runs, cell))]
        most = max(most, len(live))
        if len(live) == 2:  # both slots are in use: let one end
            (folder_of(runs, live[0]).path / "go").touch()
        elif sum(launches(runs, cell) for cell in plan.cells) == 4:
            for cell in plan.cells:
                (folder_of(runs, cell).path / "go").touch()
        return LocalBackend.poll(backend)

    backend.poll = polled
    result = sweep(plan, runs, backend, SweepOptions(poll_seconds=0.05), facts=FACTS, code_hash=lambda: "code")
    assert result.completed == 4
    assert most == 2


def test_interrupt_lets_workers_checkpoint_and_kill_does_not_wait(runs: RunsFolder) -> None:
    patient, deaf = plan_of(["wait"], ["deaf"]).cells
    backend, _ = start_one(runs, patient)
    wait_for(lambda: lease_is_live(folder_of(runs, patient)), "the worker does not start")
    backend.interrupt()
    assert end_of(backend).exit_code == 75
    assert cell_state(folder_of(runs, patient)).status == "interrupted"
    backend, _ = start_one(runs, deaf)
    wait_for(lambda: lease_is_live(folder_of(runs, deaf)), "the worker does not start")
    backend.interrupt()
    time.sleep(0.5)
    assert backend.poll() == []
    backend.kill()
    assert end_of(backend).exit_code == -signal.SIGKILL
    assert cell_state(folder_of(runs, deaf)).status == "interrupted"


def test_a_worker_asked_to_stop_before_it_started_never_starts(runs: RunsFolder) -> None:
    (cell,) = plan_of(["complete"]).cells
    backend, _ = start_one(runs, cell)
    backend.interrupt()
    backend.poll()
    assert end_of(backend).exit_code == 75
    assert launches(runs, cell) == 0


def test_an_orphan_whose_supervisor_was_killed_is_not_doubled(runs: RunsFolder) -> None:
    plan = plan_of(["wait"])
    folder = folder_of(runs, plan.cells[0])
    backend, job = start_one(runs, plan.cells[0])
    wait_for(lambda: lease_is_live(folder), "the worker does not start")
    controller, task = _supervisors_of(job)
    os.kill(controller, signal.SIGKILL)
    os.kill(task, signal.SIGKILL)
    assert end_of(backend) == Ended(job, None)
    assert cell_state(folder).status == "running"
    waiting = subprocess.Popen([sys.executable, str(LAUNCHER), str(runs.root), "wait"], stdout=subprocess.PIPE)
    wait_for(lambda: "sweep_started" in _log(runs), "the second sweep does not start")
    time.sleep(0.5)
    assert launches(runs, plan.cells[0]) == 1
    (folder.path / "go").touch()
    assert waiting.communicate(timeout=PATIENCE_SECONDS)[0].decode().strip() == "fake: 1 done, 0 to do"
    assert (launches(runs, plan.cells[0]), work_done(runs, plan.cells[0])) == (1, 1)


def test_when_the_launcher_is_killed_a_second_sweep_takes_over_and_doubles_nothing(runs: RunsFolder) -> None:  # L5
    plan = plan_of(["wait"], ["wait"])
    first, second = (folder_of(runs, cell) for cell in plan.cells)
    launcher = subprocess.Popen([sys.executable, str(LAUNCHER), str(runs.root), "wait", "wait"])
    wait_for(lambda: lease_is_live(first), "the worker does not start")
    with pytest.raises(InputError, match=f"being swept by process {launcher.pid}"):
        run(plan, runs)
    launcher.kill()
    launcher.wait()
    (first.path / "go").touch()
    (second.path / "go").touch()
    result = run(plan, runs, workers=1)
    assert (result.completed, result.exit_code) == (2, 0)
    assert [work_done(runs, cell) for cell in plan.cells] == [1, 1]
    assert result.launched == 1


@pytest.mark.slow
def test_however_often_the_launcher_is_killed_each_cell_runs_once(runs: RunsFolder) -> None:  # L5, many kill points
    scripts = ["complete"] * 8
    plan = plan_of(*[[script] for script in scripts])
    chance = random.Random(hashed_seed("kill points"))
    for _ in range(12):
        launcher = subprocess.Popen([sys.executable, str(LAUNCHER), str(runs.root), *scripts])
        time.sleep(chance.uniform(0.1, 1.5))
        launcher.kill()
        launcher.wait()
    result = run(plan, runs)
    assert (result.completed, result.exit_code) == (8, 0)
    assert [work_done(runs, cell) for cell in plan.cells] == [1] * 8


@pytest.mark.parametrize("how", ["terminal", "SIGTERM"])
def test_ctrl_c_reaches_workers_through_the_sweep_only(runs: RunsFolder, how: str) -> None:
    plan = plan_of(["wait"], ["wait"])
    folder = folder_of(runs, plan.cells[0])
    launcher = subprocess.Popen(
        [sys.executable, str(LAUNCHER), str(runs.root), "wait", "wait"],
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    wait_for(lambda: lease_is_live(folder), "the worker does not start")
    if how == "terminal":
        os.killpg(launcher.pid, signal.SIGINT)
    else:
        launcher.terminate()
    told, errors = launcher.communicate(timeout=PATIENCE_SECONDS)
    assert launcher.returncode == 1
    assert "0 done, 2 to do" in told.decode()
    assert "Traceback" not in errors.decode()
    (job,) = jobs(folder)
    assert job.exit_code() == 75
    assert cell_state(folder).reason == "asked to stop"
    assert not runs.sweep_lock("fake").exists()
    assert study_events(runs)[-1]["kind"] == "sweep_finished"


def test_an_unknown_back_end_is_one_line(runs: RunsFolder) -> None:
    with pytest.raises(InputError, match="no back end is called 'slrm'; one of local, slurm, inline"):
        make_backend("slrm", runs, Wanted())
    assert make_backend("local", runs, Wanted(workers=7)).workers == 7


def test_the_default_number_of_workers_leaves_a_core_for_each_thread() -> None:
    cores = available_cores()
    assert 1 <= cores <= (os.cpu_count() or 1)
    assert default_workers(1) == cores
    assert default_workers(cores + 1) == 1


def _log(runs: RunsFolder) -> str:
    log = runs.study_log("fake")
    return log.read_text() if log.exists() else ""


def _supervisors_of(job: Job) -> tuple[int, int]:
    """submitit's controller, whose process id names its files, and its task, the parent of the worker."""
    (log,) = job.scheduler.glob("*_log.out")
    worker = job.worker()
    assert worker is not None
    task = int(Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split()[1])
    return int(log.name.split("_")[0]), task
