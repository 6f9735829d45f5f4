"""The samples of one cell as a result, to be rendered like the others (analysis/tables.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from analysis.tables import Heading, Table
from harness.compute.kinds import KINDS
from harness.events.attempts import read_attempts
from harness.layout import CellFolder
from harness.rollout.sidecar import StoredSample
from harness.study.cell import Cell

_ESCAPES: Final = {code: repr(chr(code))[1:-1] for code in (*range(0x20), *range(0x7F, 0xA0)) if code != ord("\t")}
"""Control characters as Python writes them: what a policy sampled must not steer a terminal or end a row."""

_COLUMNS: Final = ("update", "kind", "problem", "reward", "tokens", "finish", "prompt", "completion")


@dataclass(frozen=True)
class SampleList:
    """What a cell sampled, in the order of its log."""

    heading: Heading
    samples: Sequence[StoredSample]

    @classmethod
    def of(cls, folder: CellFolder, samples: Sequence[StoredSample]) -> SampleList:
        """The samples under the promise that the cell's newest attempt was launched with."""
        cell = Cell.read(folder.spec)
        attempts = read_attempts(folder.path)
        started = attempts[-1].events[0].payload if attempts else {"mode": "not begun"}
        charged = tuple(cell.content["charged"])
        heading = Heading(
            study=cell.study,
            title=f"{cell.model}/{cell.arm}/{cell.seed} ({cell.id})",
            mode=started.get("mode", "exploratory"),
            mode_reason=started.get("mode_reason", ""),
            charged=charged,
            not_charged=tuple(kind for kind in KINDS if kind not in charged),
        )
        return cls(heading, samples)

    def records(self) -> list[dict[str, Any]]:
        """One flat row per sample; texts as they are."""
        return [
            {"update": sample.update, **_without_ids(sample), "retraced": not sample.surviving}
            | {"attempt": sample.attempt, "seq": sample.seq}
            for sample in self.samples
        ]

    def to_json(self) -> dict[str, Any]:
        """The rows with their token ids, below the heading."""
        ids = [
            {"prompt_ids": sample.record.prompt_ids, "token_ids": sample.record.token_ids} for sample in self.samples
        ]
        rows = [{**row, **more} for row, more in zip(self.records(), ids, strict=True)]
        return {"heading": asdict(self.heading), "samples": rows}

    def tables(self) -> list[Table]:
        """One table, line ends within texts and other control characters written out."""
        rows = tuple(tuple(map(_visible, _cells(sample))) for sample in self.samples)
        retraced = any(not sample.surviving for sample in self.samples)
        notes = (
            ("Retraced: done again after a crash, so not on the path to the analysed weights.",) if retraced else ()
        )
        return [Table("Samples", _COLUMNS, rows, notes)]

    def lines(self) -> list[str]:
        """For the terminal: a line on each sample, and its whole text below it."""
        told = []
        for sample in self.samples:
            update, kind, problem, reward, tokens, finish, prompt, completion = _cells(sample)
            place = f"update {update}  {kind}  problem {problem}"
            told += [f"{place}  reward {reward}  {tokens} tokens, {finish}", _as_lines(prompt + completion)]
        return told or ["no samples recorded"]


def _without_ids(sample: StoredSample) -> dict[str, Any]:
    record = asdict(sample.record)
    del record["prompt_ids"]
    tokens = len(record.pop("token_ids"))
    return {**record, "tokens": tokens}


def _cells(sample: StoredSample) -> tuple[str, ...]:
    record = sample.record
    return (
        str(sample.update),
        record.kind if sample.surviving else f"{record.kind} (retraced)",
        f"{record.problem}.{record.visit}.{record.index}",
        "–" if record.reward is None else f"{record.reward:g}",
        str(len(record.token_ids)),
        record.finish_reason,
        record.prompt,
        record.completion,
    )


def _visible(text: str) -> str:
    return text.translate(_ESCAPES)


def _as_lines(text: str) -> str:
    """Its line ends as they are, anything else that steers a terminal made visible."""
    return "  " + "\n".join(map(_visible, text.split("\n")))
