"""A lease is won once, whatever races for it, and a dead holder does not keep it."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from harness.layout import CellFolder
from harness.train.lease import Lease, LeaseHeld, LeaseLost, lease_state, state
from harness.train.processes import Process


@pytest.fixture
def cell(tmp_path: Path) -> CellFolder:
    return CellFolder(tmp_path / "cell")


def dead_process() -> Process:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process = Process.of(child.pid)
    child.communicate(b"\n")
    return process


def leave_lease(cell: CellFolder, process: Process, token: str = "theirs") -> None:
    cell.path.mkdir(parents=True, exist_ok=True)
    fields = {"host": process.host, "boot": process.boot, "pid": process.pid, "start": process.start}
    cell.lease.write_text(json.dumps({**fields, "token": token, "acquired": 0.0}))


def test_a_second_taker_is_told_who_holds_it(cell: CellFolder) -> None:
    Lease.acquire(cell)
    assert state(cell) == "live"
    with pytest.raises(LeaseHeld) as held:
        Lease.acquire(cell)
    assert held.value.holder is not None
    assert held.value.holder.process.pid == os.getpid()


def test_released_it_is_free_again(cell: CellFolder) -> None:
    Lease.acquire(cell).release()
    assert state(cell) == "free"
    Lease.acquire(cell)


def test_a_holder_whose_process_is_gone_is_stale_at_once_and_taken_over(cell: CellFolder) -> None:
    leave_lease(cell, dead_process())
    assert state(cell) == "stale"
    lease = Lease.acquire(cell)
    assert state(cell) == "live"
    lease.renew()


def test_a_reused_process_id_is_not_taken_for_the_holder(cell: CellFolder) -> None:
    leave_lease(cell, replace(Process.current(), start="1"))
    assert state(cell) == "stale"


def test_a_zombie_counts_as_dead(cell: CellFolder) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    leave_lease(cell, Process.of(child.pid))
    assert state(cell) == "live"
    child.kill()
    deadline = time.monotonic() + 10
    while state(cell) == "live" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert state(cell) == "stale"  # dead, though not yet waited for by its parent
    child.communicate()


def test_a_holder_elsewhere_is_judged_by_its_heartbeat_alone(cell: CellFolder) -> None:
    elsewhere = replace(dead_process(), host="other", boot="other boot")
    leave_lease(cell, elsewhere)
    five_minutes_ago = time.time() - 300
    os.utime(cell.lease, (five_minutes_ago, five_minutes_ago))
    assert state(cell) == "live"  # a slow heartbeat is not death (L12)
    assert state(cell, stale_after_seconds=200) == "stale"


def test_a_heartbeat_keeps_it_and_tells_when_it_is_lost(cell: CellFolder) -> None:
    lease = Lease.acquire(cell)
    os.utime(cell.lease, (0, 0))
    lease.renew()
    assert time.time() - cell.lease.stat().st_mtime < 60
    leave_lease(cell, Process.current(), token="another")
    with pytest.raises(LeaseLost):
        lease.renew()
    lease.release()
    assert lease_state(cell.lease)[1].token == "another"  # not ours to remove


def test_a_lease_cut_short_by_a_crash_does_not_block_the_cell_for_ever(cell: CellFolder) -> None:
    cell.path.mkdir(parents=True)
    cell.lease.touch()
    assert state(cell) == "live"
    os.utime(cell.lease, (0, 0))
    assert state(cell) == "stale"
    Lease.acquire(cell)


@pytest.mark.parametrize("before", ["free", "stale"])
def test_of_many_threads_racing_exactly_one_wins(cell: CellFolder, before: str) -> None:
    if before == "stale":
        leave_lease(cell, dead_process())
    barrier = threading.Barrier(16)
    won: list[Lease] = []

    def race() -> None:
        barrier.wait()
        with contextlib.suppress(LeaseHeld):
            won.append(Lease.acquire(cell))

    threads = [threading.Thread(target=race) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    won[0].renew()


def test_one_that_judged_a_lease_stale_cannot_remove_the_fresh_one_of_a_quicker_taker(
    cell: CellFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_lease(cell, dead_process())
    judged = threading.Event()

    def slow_judge(path: Path, stale_after_seconds: float) -> object:
        found = lease_state(path, stale_after_seconds)
        if threading.current_thread().name == "slow":
            judged.set()
            time.sleep(0.5)  # time enough for the other one, were it let in
        return found

    monkeypatch.setattr("harness.train.lease.lease_state", slow_judge)
    won: list[str] = []

    def take() -> None:
        with contextlib.suppress(LeaseHeld):
            Lease.acquire(cell)
            won.append(threading.current_thread().name)

    slow, quick = threading.Thread(target=take, name="slow"), threading.Thread(target=take, name="quick")
    slow.start()
    judged.wait()
    quick.start()
    slow.join()
    quick.join()
    assert won == ["slow"]


def _race_for_all(root: str, start: float, first: int, count: int) -> None:
    time.sleep(max(0.0, start - time.time()))
    for index in range(count):
        cell = CellFolder(Path(root) / str((first + index) % count))
        try:
            token = Lease.acquire(cell).holder.token
        except LeaseHeld:
            continue
        (cell.path / f"won-{token}").touch()
    (Path(root) / f"tried-{first}").touch()
    time.sleep(120)  # holds what it won until all have tried


@pytest.mark.parametrize(("workers", "cells"), [(12, 60), pytest.param(50, 500, marks=pytest.mark.slow)])
def test_workers_racing_for_many_cells_win_each_exactly_once(tmp_path: Path, workers: int, cells: int) -> None:  # L10
    dead = dead_process()
    for index in range(0, cells, 2):  # every other one was left behind by a dead worker
        leave_lease(CellFolder(tmp_path / str(index)), dead)
    context = multiprocessing.get_context("fork")
    start = time.time() + 0.5
    racers = [
        context.Process(target=_race_for_all, args=(str(tmp_path), start, racer * cells // workers, cells))
        for racer in range(workers)
    ]
    for racer in racers:
        racer.start()
    deadline = time.monotonic() + 60
    while len(list(tmp_path.glob("tried-*"))) < workers and time.monotonic() < deadline:
        time.sleep(0.05)
    for racer in racers:
        racer.kill()
        racer.join()
    winners = [len(list((tmp_path / str(index)).glob("won-*"))) for index in range(cells)]
    assert winners == [1] * cells
