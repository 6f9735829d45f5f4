"""The sidecar's promise: whatever the ledger counts can be counted again from stored ids."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from harness.compute.kinds import Kind
from harness.errors import InputError
from harness.events.writer import EventWriter
from harness.layout import CellFolder
from harness.rollout.sidecar import SampleRecord, TokenSidecar, read_samples, recount


def sample(kind: Kind, index: int, tokens: Sequence[int], reward: float | None = 1.0) -> SampleRecord:
    return SampleRecord(
        kind=kind,
        problem=3,
        visit=1,
        index=index,
        prompt_ids=(7, 8),
        token_ids=tuple(tokens),
        finish_reason="length" if len(tokens) > 4 else "stop",
        prompt="1 + 2 =",
        completion="3",
        reward=reward,
    )


def attempt(cell: CellFolder, number: int, resumed_from: dict[str, int] | None) -> EventWriter:
    log = EventWriter(cell.events(number), exclusive=True)
    log.append("attempt_started", {"cell": "c", "attempt": number, "resumed_from": resumed_from})
    return log


def ledger(log: EventWriter, cell: CellFolder, number: int, update: int, records: list[SampleRecord]) -> None:
    part = TokenSidecar(cell.tokens(number)).write_part(update, records)
    log.append("ledger", {"update": update, "rows": {}, "part": part})


def test_samples_come_back_as_they_were(tmp_path: Path) -> None:
    cell = CellFolder(tmp_path)
    records = [sample("rollout", 0, [1, 2, 3]), sample("continuation", 1, [], None)]
    with attempt(cell, 1, None) as log:
        ledger(log, cell, 1, 4, records)
    found = list(read_samples(tmp_path))
    assert [stored.record for stored in found] == records
    assert {(stored.attempt, stored.seq, stored.surviving, stored.update) for stored in found} == {(1, 1, True, 4)}
    assert [stored.record for stored in read_samples(tmp_path, kind="continuation")] == records[1:]
    assert list(read_samples(tmp_path, update=5)) == []


def test_recount_tells_spent_from_algorithmic_after_a_crash(tmp_path: Path) -> None:
    cell = CellFolder(tmp_path)
    with attempt(cell, 1, None) as log:
        ledger(log, cell, 1, 1, [sample("rollout", 0, [1, 2, 3]), sample("rollout", 1, [1])])
        kept = log.last_seq
        ledger(log, cell, 1, 2, [sample("rollout", 0, [1] * 5), sample("continuation", 0, [2, 2])])
        TokenSidecar(cell.tokens(1)).write_part(3, [sample("rollout", 0, [9] * 90)])  # died before its event
    with attempt(cell, 2, {"attempt": 1, "seq": kept}) as log:
        ledger(log, cell, 2, 2, [sample("rollout", 0, [1] * 5), sample("continuation", 0, [2, 2])])
        part = TokenSidecar(cell.tokens(2)).write_part(2, [sample("evaluation", 0, [4, 4, 4])])
        for _ in range(2):  # one policy, evaluated twice: sampled twice
            log.append("evaluation", {"updates": 2, "rows": {}, "part": part})
        log.append("ledger", {"update": 3, "rows": {}, "part": None})
    assert recount(tmp_path) == {"rollout": (4, 14), "continuation": (2, 4), "evaluation": (2, 6)}
    assert recount(tmp_path, surviving_only=True) == {
        "rollout": (3, 9),
        "continuation": (1, 2),
        "evaluation": (2, 6),
    }


def test_equal_content_has_an_equal_name_and_other_content_another(tmp_path: Path) -> None:
    one, two = TokenSidecar(tmp_path / "1"), TokenSidecar(tmp_path / "2")
    records = [sample("rollout", 0, [1, 2, 3])]
    assert one.write_part(4, records) == two.write_part(4, records)
    assert one.write_part(4, records) != one.write_part(5, records)
    assert one.write_part(4, records) != one.write_part(4, [sample("rollout", 0, [1, 2, 4])])


def test_a_part_has_the_columns_that_other_tools_can_read(tmp_path: Path) -> None:
    name = TokenSidecar(tmp_path).write_part(4, [sample("rollout", 0, [1, 2])])
    assert {field.name: str(field.type) for field in pq.read_schema(tmp_path / name)} == {
        "update": "int64", "kind": "string", "problem": "int64", "visit": "int64", "index": "int64",
        "prompt_ids": "list<element: int32>", "token_ids": "list<element: int32>", "finish_reason": "string",
        "prompt": "string", "completion": "string", "reward": "double",
    }  # fmt: skip
    assert not list(tmp_path.glob("*.tmp"))


@pytest.mark.parametrize("broken", [b"", b"garbage", None])
def test_a_missing_or_broken_part_is_named(tmp_path: Path, broken: bytes | None) -> None:
    cell = CellFolder(tmp_path)
    with attempt(cell, 1, None) as log:
        ledger(log, cell, 1, 1, [sample("rollout", 0, [1, 2])])
    part = next(cell.tokens(1).glob("*.parquet"))
    part.unlink()
    if broken is not None:
        part.write_bytes(broken)
    with pytest.raises(InputError, match="a part of the token sidecar cannot be read") as caught:
        recount(tmp_path)
    assert str(caught.value).startswith(str(part))


def test_a_full_disk_leaves_no_part_behind(tmp_path: Path) -> None:
    script = """
import resource, sys
from harness.errors import InputError
from harness.rollout.sidecar import SampleRecord, TokenSidecar
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
try:
    TokenSidecar(sys.argv[1]).write_part(1, [SampleRecord("rollout", 0, 0, 0, (1,), (2,), "stop", "a", "b")])
except InputError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script, tmp_path], capture_output=True, text=True, check=True)
    assert "samples cannot be written: File too large" in done.stdout
    assert not list(tmp_path.glob("*.parquet"))
