"""The token-id sidecar: every sampled token, so that the ledger can be recounted and samples be read.

A part is on the disk before the event that names it. Its name hashes its content, so that equal runs name
equal parts, and a part that is named twice (one policy evaluated twice) is counted twice, as it was sampled.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from harness.compute.kinds import Kind
from harness.errors import InputError
from harness.events.attempts import read_attempts, survivors
from harness.layout import CellFolder
from harness.rollout.protocol import FinishReason

_SCHEMA: Final = pa.schema(
    [
        ("update", pa.int64()),
        ("kind", pa.string()),
        ("problem", pa.int64()),
        ("visit", pa.int64()),
        ("index", pa.int64()),
        ("prompt_ids", pa.list_(pa.int32())),
        ("token_ids", pa.list_(pa.int32())),
        ("finish_reason", pa.string()),
        ("prompt", pa.string()),
        ("completion", pa.string()),
        ("reward", pa.float64()),
    ]
)


@dataclass(frozen=True)
class SampleRecord:
    """One sample as it is kept. Its fields are the columns of a part, beside `update`."""

    kind: Kind
    """The ledger row that its tokens were charged to."""
    problem: int
    visit: int
    index: int
    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    prompt: str
    """The problem's prompt."""
    completion: str
    """The completion that was graded: of a continuation, with the prefix that it continues."""
    reward: float | None = None
    """Outcome; None where it was not verified."""


@dataclass(frozen=True)
class StoredSample:
    """A sample found again, and where it belongs."""

    attempt: int
    seq: int
    """The event that names its part."""
    surviving: bool
    update: int
    record: SampleRecord


class TokenSidecar:
    """Writes the parts of one attempt."""

    def __init__(self, folder: str | os.PathLike[str]):
        self.folder = Path(folder)

    def write_part(self, update: int, samples: Sequence[SampleRecord]) -> str:
        """Writes the samples of one ledger or evaluation event; returns the file name to give to the event.

        `update`: the event's, or the updates of the policy evaluated. An InputError when the disk refuses.
        """
        columns = {field.name: [getattr(sample, field.name) for sample in samples] for field in fields(SampleRecord)}
        columns["update"] = [update] * len(samples)
        content = hashlib.sha256(json.dumps(columns, sort_keys=True).encode()).hexdigest()
        name = f"{update:06d}-{content[:12]}.parquet"
        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_pydict(columns, schema=_SCHEMA), sink, compression="zstd")
        try:
            self._place(name, sink.getvalue())
        except OSError as error:
            raise InputError(
                f"samples cannot be written: {error.strerror}", "room for the runs folder", str(self.folder)
            ) from None
        return name

    def _place(self, name: str, content: pa.Buffer) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        aside = self.folder / f"{name}.tmp"
        with aside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(self.folder / name)
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def recount(cell_folder: str | os.PathLike[str], *, surviving_only: bool = False) -> dict[str, tuple[int, int]]:
    """(samples, generated tokens) of each kind, counted from the stored ids of all parts that events name.

    All attempts, as in *spent*, or only the surviving path, as in *algorithmic*.
    """
    counts: dict[str, tuple[int, int]] = {}
    for sample in read_samples(cell_folder):
        if sample.surviving or not surviving_only:
            samples, tokens = counts.get(sample.record.kind, (0, 0))
            counts[sample.record.kind] = samples + 1, tokens + len(sample.record.token_ids)
    return counts


def read_samples(
    cell_folder: str | os.PathLike[str], *, update: int | None = None, kind: str | None = None
) -> Iterator[StoredSample]:
    """The samples of a cell, in the order of its events; of one update or one kind where asked.

    An InputError when a part that an event names is missing or broken.
    """
    folder = CellFolder(cell_folder)
    for log, event, surviving in survivors(read_attempts(folder.path)):
        name = event.payload.get("part")
        if not name:
            continue
        for row in _read_part(folder.tokens(log.number) / Path(name).name):
            belongs = row.pop("update")
            if update in (None, belongs) and kind in (None, row["kind"]):
                row["prompt_ids"], row["token_ids"] = tuple(row["prompt_ids"]), tuple(row["token_ids"])
                yield StoredSample(log.number, event.seq, surviving, belongs, SampleRecord(**row))


def _read_part(path: Path) -> list[dict[str, Any]]:
    try:
        rows: list[dict[str, Any]] = pq.read_table(path, schema=_SCHEMA).to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise InputError(
            f"a part of the token sidecar cannot be read ({error})", "the file as written", str(path)
        ) from None
    return rows
