"""What a cell has cost so far, for the sweep's cap: all that any attempt did, and lived."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.events.writer import EventWriter
from harness.launch.spending import cost_of
from harness.layout import CellFolder

HOUR = 3600.0


def hours(cpu_hours: float) -> dict[str, object]:
    return {"charge": {"gpu_hours": 0.0, "cpu_hours": cpu_hours}}


@pytest.fixture
def cell(tmp_path: Path) -> CellFolder:
    """An attempt that was killed: 2 h of CPU in its ledger, 3 h by its last heartbeat, half of one evaluated.

    A line each hour.
    """
    folder = CellFolder(tmp_path / "cell")
    time = iter(range(10))
    with EventWriter(folder.events(1), clock=lambda: next(time) * HOUR) as log:
        log.append("attempt_started", {"cell": "cell", "attempt": 1, "resumed_from": None}, hours(0.0))
        rows = {
            "rollout": {"samples": 4, "generated_tokens": 100, "flops": 1e6},
            "warm_start": {"samples": 0, "generated_tokens": 0, "flops": 1e9},
        }
        log.append("ledger", {"update": 1, "rows": rows, "part": None}, hours(2.0))
        evaluated = {"evaluation": {"samples": 9, "generated_tokens": 50, "flops": 1e5}}
        log.append("evaluation", {"rows": evaluated}, {"wall_seconds": HOUR, "cpu_seconds": HOUR / 2})
        log.append("heartbeat", {}, hours(3.0))
    return folder


def test_a_killed_attempt_has_cost_what_it_told_until_its_last_heartbeat(cell: CellFolder) -> None:
    crashes, spent = cost_of(cell, ["rollout"], devices=2)
    assert crashes == 1
    assert (spent["generated_tokens"], spent["flops"]) == (100, 1e6)
    assert spent["cpu_hours"] == pytest.approx(3.0 + 0.5)
    assert spent["gpu_hours"] == pytest.approx(2 * 3.0)


def test_attempts_add_up_and_what_a_checkpoint_carried_over_is_not_counted_twice(cell: CellFolder) -> None:
    with EventWriter(cell.events(2), clock=lambda: 100 * HOUR) as log:
        resumed = {"attempt": 1, "seq": 1}
        log.append("attempt_started", {"cell": "cell", "attempt": 2, "resumed_from": resumed}, hours(2.0))
        log.append("finished", {"status": "completed"}, hours(2.25))
    crashes, spent = cost_of(cell, ["rollout"], devices=0)
    assert (crashes, spent["generated_tokens"], spent["gpu_hours"]) == (1, 100, 0.0)
    assert spent["cpu_hours"] == pytest.approx(3.5 + 0.25)


def test_a_damaged_log_does_not_stop_the_sweep(cell: CellFolder) -> None:
    log = cell.events(1)
    log.write_bytes(log.read_bytes().replace(b'"generated_tokens":100', b'"generated_tokens":900'))
    assert cost_of(cell, ["rollout"], devices=1)[1]["generated_tokens"] == 0
