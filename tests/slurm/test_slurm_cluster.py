"""A real Slurm with sweeps on it, and everything that happens to jobs: all in one cluster, side by side.

Needs root and Debian's packages, which scripts/slurm/up.sh installs; where that is not to be had, this says so.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support.command_line import REPOSITORY, finished, started
from support.studies import PlantedArm, PlantedStudy
from support.sweeps import cell_folders, folded, updates_told

from harness.events.reader import read_events
from harness.launch.jobs import jobs
from harness.layout import CellFolder, RunsFolder
from harness.train.scheduler import recorded_gpu_hours

SCRIPTS = REPOSITORY / "scripts" / "slurm"
PATIENCE_SECONDS = 240.0
PACKAGES_MISSING = 3
"""up.sh's exit status where Debian's packages cannot be had."""
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


class Cluster:
    """Up while it is entered."""

    def __init__(self, accounting: bool):
        self.root = Path(f"/tmp/isobudget-slurm-{os.getpid()}-{int(accounting)}")
        ports = {} if accounting else {"CTLD_PORT": "17817", "SLURMD_PORT": "17900"}  # both may be up
        self.environment = {
            "SLURM_TEST_ROOT": str(self.root),
            "SLURM_CONF": str(self.root / "etc" / "slurm.conf"),
            "DBD": str(int(accounting)),
            "NODES": "5",
            **ports,
        }

    def __enter__(self) -> Cluster:
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            pytest.skip("the Slurm tier did not run: it needs root on a Debian machine")
        up = self._script("up.sh")
        if up.returncode != 0:
            self._script("down.sh")
        if up.returncode == PACKAGES_MISSING:
            pytest.skip(f"the Slurm tier did not run: {up.stderr.splitlines()[-1]}")
        assert up.returncode == 0, f"no cluster: {up.stdout[-400:]}{up.stderr[-400:]}"
        return self

    def __exit__(self, *_: object) -> None:
        self._script("down.sh")

    def _script(self, name: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", str(SCRIPTS / name)],
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    def run(self, *command: str) -> str:
        """Its output; tried again while the controller may be away."""
        for tries_left in reversed(range(10)):
            done = subprocess.run(
                command,
                env={**os.environ, **self.environment},
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            if done.returncode == 0:
                break
            assert tries_left, f"{command}: {done.stderr}"
            time.sleep(2)
        return done.stdout

    def sweep(self, file: Path, runs: RunsFolder, *options: object) -> subprocess.Popen[str]:
        asked = ("sweep", file, "--runs", runs.root, "--backend", "slurm", "--no-report", *options)
        return started(*asked, **self.environment)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(accounting=True) as cluster:
        yield cluster


def study(name: str, updates: int, seeds: int = 1, rollouts: int = 4, **more: Any) -> PlantedStudy:
    """One arm. An update with 4 rollouts takes about a millisecond, with 256 about twenty."""
    training = {"prompts_per_update": rollouts // 2, "group_size": 2, "max_new_tokens": 10, "advantage_scale": "none"}
    content = {
        "budget": {"updates": updates},
        "training": {**training, "checkpoint_every_updates": 200},
        "arms": {"plain": {"intervention": "scripted", "gain": 0.01}},
        "claims": [],
    }
    plain = PlantedArm(gain=0.01)
    return PlantedStudy(name, plain, plain, seeds=seeds, problems=20, more={**content, **more})


def wait_for(what: Callable[[], object], why: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not what():
        assert time.monotonic() < deadline, why
        time.sleep(0.2)


def only_cell(runs: RunsFolder) -> CellFolder:
    wait_for(lambda: runs.cells.is_dir() and cell_folders(runs), "no cell was launched")
    return cell_folders(runs)[0]


def under_way(runs: RunsFolder, updates: int) -> CellFolder:
    """The first cell, once it has told of an update."""
    cell = only_cell(runs)
    wait_for(lambda: updates_told(cell) >= updates, f"no update {updates} in {cell.path}")
    return cell


def statuses(cell: CellFolder) -> list[str | None]:
    """How each attempt ended, None where it did not say."""
    ends = [read_events(cell.events(number)).events[-1] for number in cell.attempt_numbers()]
    return [end.payload["status"] if end.kind == "finished" else None for end in ends]


def test_jobs_meet_everything_that_befalls_jobs(cluster: Cluster, tmp_path: Path) -> None:
    """Trouble with nodes each on one of its own; and the controller restarts under all of them."""
    scenarios = (_throttled, _preempted, _out_of_time, _node_failed, _cancelled, _launcher_killed, _refused)
    with ThreadPoolExecutor(len(scenarios) + 1) as pool:
        running = [pool.submit(scenario, cluster, tmp_path / scenario.__name__) for scenario in scenarios]
        restart = pool.submit(_controller_restarts, cluster)
        troubles = [trouble for scenario in (*running, restart) if (trouble := scenario.exception())]
    if troubles:
        raise BaseExceptionGroup("scenarios that failed", troubles)
    assert cluster.run("squeue", "--noheader") == ""


def _controller_restarts(cluster: Cluster) -> None:
    wait_for(lambda: "RUNNING" in cluster.run("squeue", "--noheader", "--format=%T"), "nothing runs")
    time.sleep(15)
    pid = int((cluster.root / "run" / "slurmctld.pid").read_text())
    os.kill(pid, signal.SIGTERM)
    wait_for(lambda: not Path(f"/proc/{pid}").exists(), "the controller does not end")
    time.sleep(8)
    cluster.run("slurmctld")


def _throttled(cluster: Cluster, folder: Path) -> None:
    """An array of six, two at a time."""
    file, runs = study("throttled", 200, seeds=6).write(folder), RunsFolder(folder / "runs")
    process = cluster.sweep(file, runs, "--max-parallel", 2, "--sbatch", "nodelist=node1")
    most = 0
    while process.poll() is None:
        told = [cell.lease for cell in cell_folders(runs) if cell.lease.exists()] if runs.cells.is_dir() else []
        most = max(most, len(told))
        time.sleep(0.1)
    ran = finished(process)
    assert ran.code == 0, ran.err
    assert "throttled: 6 done, 0 to do" in ran.out
    assert 1 <= most <= 2
    ids = {jobs(cell)[0].queued()["job"] for cell in cell_folders(runs)}
    assert {re.sub(r"\d+$", "", job) for job in ids} == {re.sub(r"\d+$", "", min(ids))}, "not one array"
    _same_as_inline(file, runs, folder)


def _preempted(cluster: Cluster, folder: Path) -> None:
    """By a higher partition, in the middle of a run: it checkpoints, is requeued as the same job, and goes on."""
    file, runs = study("preempted", 1_500, rollouts=256).write(folder), RunsFolder(folder / "runs")
    process = cluster.sweep(file, runs, "--partition", "low", "--sbatch", "nodelist=node3")
    cell = under_way(runs, 20)
    cluster.run(
        *("sbatch", "--partition=high", "--nodelist=node3", "--exclusive", "--output=/dev/null", "--wrap=sleep 3")
    )
    ran = finished(process)
    assert ran.code == 0, ran.err
    assert statuses(cell) == ["interrupted", "completed"]
    assert len(jobs(cell)) == 1, "the job itself was requeued; the sweep launched nothing again"
    assert folded(runs)[cell.path.name].retraced == {}, "it was warned, and saved"
    _same_as_inline(file, runs, folder)


def _out_of_time(cluster: Cluster, folder: Path) -> None:
    """A run longer than the time limit goes on in chunks."""
    file, runs = study("chunks", 6_500, rollouts=256).write(folder), RunsFolder(folder / "runs")
    ran = finished(cluster.sweep(file, runs, "--time-limit", "2", "--sbatch", "nodelist=node2"), timeout_seconds=600)
    assert ran.code == 0, ran.err
    (cell,) = cell_folders(runs)
    ends = statuses(cell)
    assert len(ends) >= 2 and set(ends[:-1]) == {"interrupted"} and ends[-1] == "completed"
    assert len(jobs(cell)) == 1
    run = folded(runs)[cell.path.name]
    assert (run.updates, run.retraced) == (6_500, {})


def _node_failed(cluster: Cluster, folder: Path) -> None:
    """The node dies with everything on it; Slurm starts the job elsewhere, and it goes on from its checkpoint."""
    file, runs = study("node-failed", 1_500, rollouts=256).write(folder), RunsFolder(folder / "runs")
    process = cluster.sweep(file, runs, "--sbatch", "exclude=node1,node2,node3")
    cell = under_way(runs, 230)
    (job,) = jobs(cell)
    node = cluster.run("squeue", "--noheader", "--format=%N", "--jobs", job.queued()["job"]).strip()
    assert node in ("node4", "node5")
    worker = job.worker()
    assert worker is not None
    _die_with_the_node(cluster, node, worker.pid)
    ran = finished(process)
    assert ran.code == 0, ran.err
    assert statuses(cell) == [None, "completed"]
    assert len(jobs(cell)) == 1
    run = folded(runs)[cell.path.name]
    assert run.crashes == {"self": 0, "infrastructure": 1}
    assert run.retraced["rollout"]["generated_tokens"] > 0
    _same_as_inline(file, runs, folder)


def _die_with_the_node(cluster: Cluster, node: str, worker: int) -> None:
    """The node's daemon, its step daemons, the supervisor and the worker, at once."""
    daemon = int((cluster.root / "run" / f"slurmd.{node}.pid").read_text())
    family = [worker]
    while family[-1] > 1:  # up to the step daemon, whose parent is nobody's
        parent = int(Path(f"/proc/{family[-1]}/stat").read_text().rpartition(")")[2].split()[1])
        if parent <= 1 or parent == os.getpid():
            break
        family.append(parent)
    for pid in (daemon, *family):
        os.kill(pid, signal.SIGKILL)
    cluster.run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=died")


def _cancelled(cluster: Cluster, folder: Path) -> None:
    """Told as such, not launched again unless asked to."""
    file, runs = study("cancelled", 1_000, rollouts=256).write(folder), RunsFolder(folder / "runs")
    process = cluster.sweep(file, runs, "--sbatch", "nodelist=node1")
    cell = under_way(runs, 10)
    (job,) = jobs(cell)
    cluster.run("scancel", job.queued()["job"])
    ran = finished(process)
    assert ran.code == 1, ran.err
    assert "cancelled in the scheduler's queue" in ran.out
    again = finished(cluster.sweep(file, runs, "--sbatch", "nodelist=node1"))
    assert again.code == 1 and "cancelled: 0 done, 0 to do, 1 failed" in again.out
    third = finished(cluster.sweep(file, runs, "--sbatch", "nodelist=node1", "--retry-failed"))
    assert third.code == 0, third.err
    assert len(jobs(cell)) == 2


def _launcher_killed(cluster: Cluster, folder: Path) -> None:
    """Its jobs go on; the next sweep waits for them and launches nothing twice."""
    file, runs = study("launcher-killed", 800, seeds=2, rollouts=64).write(folder), RunsFolder(folder / "runs")
    first = cluster.sweep(file, runs, "--sbatch", "nodelist=node1")
    under_way(runs, 10)
    first.kill()
    finished(first)
    ran = finished(cluster.sweep(file, runs, "--sbatch", "nodelist=node1"))
    assert ran.code == 0, ran.err
    assert "launcher-killed: 2 done, 0 to do" in ran.out
    assert "runs already" in ran.err
    assert [len(jobs(cell)) for cell in cell_folders(runs)] == [1, 1]


def _refused(cluster: Cluster, folder: Path) -> None:
    file, runs = study("refused", 5).write(folder), RunsFolder(folder / "runs")
    ran = finished(cluster.sweep(file, runs, "--partition", "nowhere"))
    assert ran.code == 2
    assert "sbatch refuses" in ran.complaints()[-1] and "invalid partition" in ran.complaints()[-1].lower()


def test_gpu_hours_of_our_clock_are_within_those_of_slurms_records(cluster: Cluster, tmp_path: Path) -> None:
    """The scripted instrument has a pretended GPU for as long as its job lives, and trains for part of that."""
    file = study("on-gpus", 400, seeds=2, device="cuda").write(tmp_path)
    runs = RunsFolder(tmp_path / "runs")
    ran = finished(cluster.sweep(file, runs))
    assert ran.code == 0, ran.err
    ids = [job.queued()["job"] for cell in cell_folders(runs) for job in jobs(cell)]
    assert len(ids) == 2

    def ask(command: Any) -> str:
        return cluster.run(*command)

    wait_for(lambda: recorded_gpu_hours(ids, ask), "accounting knows nothing of the jobs")
    recorded, ours = recorded_gpu_hours(ids, ask), sum(run.charge["gpu_hours"] for run in folded(runs).values())
    assert recorded is not None and 0 < ours < recorded


def test_without_accounting_the_controller_tells_how_jobs_ended(tmp_path: Path) -> None:
    with Cluster(accounting=False) as cluster:
        _cancelled(cluster, tmp_path / "cancelled")


def _same_as_inline(file: Path, runs: RunsFolder, folder: Path) -> None:
    """Whatever befell the jobs, the histories are those of an undisturbed sweep."""
    undisturbed = RunsFolder(folder / "undisturbed")
    ran = finished(started("sweep", file, "--runs", undisturbed.root, "--inline", "--no-report"))
    assert ran.code == 0, ran.err
    found, expected = folded(runs), folded(undisturbed)
    assert found.keys() == expected.keys()
    for cell, run in found.items():
        assert run.history == expected[cell].history
