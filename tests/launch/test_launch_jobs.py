"""The small files of a launch: what somebody else wrote there is told, never taken for ours."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from harness.errors import InputError
from harness.launch.jobs import Job
from harness.launch.states import cell_state
from harness.layout import CellFolder
from harness.train.processes import Process


@pytest.mark.parametrize(
    ("name", "more", "less", "told"),
    [
        ("job.json", {"colour": 1}, "", "unknown key 'colour'"),
        ("job.json", {}, "command", "missing key 'command'"),
        ("job.json", {"colour": 1}, "command", "unknown key 'colour'; missing key 'command'"),
        ("worker.json", {"colour": 1}, "", "unknown key 'colour'"),
        ("supervisor.json", {}, "pid", "missing key 'pid'"),
    ],
)
def test_a_record_of_a_launch_with_other_keys_is_bad_input_that_names_the_file(
    tmp_path: Path, name: str, more: dict[str, int], less: str, told: str
) -> None:
    cell = CellFolder(tmp_path / "cell")
    job = Job.create(cell, ["true"], {})
    job.record_supervisor(replace(Process.current(), start="1"))
    job.record_worker(replace(Process.current(), start="1"))
    file = job.path / name
    found = json.loads(file.read_text())
    found.pop(less, None)
    file.write_text(json.dumps({**found, **more}))
    with pytest.raises(InputError, match=f"{name}: {told}; .*, or no such file$") as refused:
        cell_state(cell)
    assert str(refused.value).startswith(str(file)) and "\n" not in str(refused.value)
    file.unlink()
    assert cell_state(cell).status == "waiting"
