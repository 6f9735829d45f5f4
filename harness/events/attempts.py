"""The attempts of a cell: their logs, whose fault their ends were, and the path through them that survives.

The crash rule: a checkpoint holds the effect of its attempt's events up to a sequence number, so an attempt
resumed from it keeps those and no later ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from harness.events.reader import read_events
from harness.events.schema import Event, EventLogError

Fault = Literal["self", "infrastructure"]


@dataclass(frozen=True)
class Attempt:
    """What the fold needs to know of one attempt."""

    number: int
    last_seq: int
    resumed_from: tuple[int, int] | None
    """(attempt, last sequence number that its checkpoint holds the effect of), or None: started afresh."""


@dataclass(frozen=True)
class Segment:
    """Events of one attempt that survive, both ends included."""

    attempt: int
    first_seq: int
    last_seq: int

    def holds(self, seq: int) -> bool:
        return self.first_seq <= seq <= self.last_seq


@dataclass(frozen=True)
class AttemptLog:
    """One attempt's number, log and events (at least one)."""

    number: int
    path: Path
    events: list[Event]

    def attempt(self) -> Attempt:
        """Its place in the chain, from its first event."""
        first = self.events[0]
        if first.kind != "attempt_started":
            raise EventLogError(f"begins with `{first.kind}` instead of `attempt_started`", self.path, 1)
        resumed = first.payload.get("resumed_from")
        origin = None if resumed is None else (int(resumed["attempt"]), int(resumed["seq"]))
        return Attempt(self.number, self.events[-1].seq, origin)

    def status(self) -> str | None:
        """completed | failed | interrupted; None without a `finished` event."""
        status: str | None = self._ending().get("status")
        return status

    def crashed(self, newest: int) -> bool:
        """Whether it failed, or ended without a word; the `newest` attempt may be at work."""
        return self.status() == "failed" or (self.status() is None and self.number != newest)

    def fault(self, out_of_memory: bool) -> Fault:
        """Whose fault its end was (see `fault_of`)."""
        return fault_of(self.status(), self._ending().get("fault"), out_of_memory)

    def _ending(self) -> dict[str, Any]:
        return self.events[-1].payload if self.events[-1].kind == "finished" else {}


def fault_of(status: str | None, told: str | None = None, out_of_memory: bool = False) -> Fault:
    """Whose fault it was that an attempt ended as it did, should work of it be lost.

    Its own: an error that it told of, or memory that ran out. The infrastructure's: it was asked to stop, or killed,
    or it `told` that the error was not its own: the disk refused. `out_of_memory`: evidence that memory ran out,
    which a killed attempt cannot give; its successor does.
    """
    if status == "failed":
        return "infrastructure" if told == "infrastructure" else "self"
    return "self" if status is None and out_of_memory else "infrastructure"


def surviving_segments(attempts: Iterable[Attempt]) -> list[Segment]:
    """The path from the newest attempt back, oldest segment first; empty without attempts.

    Raises a ValueError where the path leads to an attempt or an event that is not there.
    """
    known = {attempt.number: attempt for attempt in attempts}
    path: list[Segment] = []
    number, last_seq = (max(known), known[max(known)].last_seq) if known else (0, -1)
    while known:
        path.append(Segment(number, 0, last_seq))
        origin = known[number].resumed_from
        if origin is None:
            break
        earlier, kept = origin
        if earlier not in known or earlier >= number:
            raise ValueError(f"attempt {number} resumes from attempt {earlier}, which has no record")
        if kept > known[earlier].last_seq:
            raise ValueError(
                f"attempt {number} resumes from event {kept} of attempt {earlier}, whose record ends at"
                f" {known[earlier].last_seq}"
            )
        number, last_seq = earlier, kept
    return path[::-1]


def read_attempts(cell_folder: str | os.PathLike[str]) -> list[AttemptLog]:
    """The attempts under ``<cell>/attempts/<n>/events.jsonl``, ascending; those without an event are left out."""
    logs, troubles = sound_attempts(cell_folder)
    for error in troubles.values():
        raise error
    return logs


def sound_attempts(cell_folder: str | os.PathLike[str]) -> tuple[list[AttemptLog], dict[int, EventLogError]]:
    """The same where logs may be damaged: those that can be trusted, and by attempt what is wrong with the others."""
    paths = {int(path.parent.name): path for path in Path(cell_folder).glob("attempts/[0-9]*/events.jsonl")}
    logs: list[AttemptLog] = []
    troubles: dict[int, EventLogError] = {}
    for number in sorted(paths):
        try:
            log = AttemptLog(number, paths[number], read_events(paths[number]).events)
            if log.events:
                log.attempt()
                logs.append(log)
        except EventLogError as error:
            troubles[number] = error
    return logs, troubles


def survivors(logs: Sequence[AttemptLog]) -> list[tuple[AttemptLog, Event, bool]]:
    """Every event of a cell in order of attempt and sequence, with whether it survives."""
    try:
        segments = {segment.attempt: segment for segment in surviving_segments(log.attempt() for log in logs)}
    except ValueError as error:
        raise EventLogError(str(error), logs[-1].path, 1) from None
    return [
        (log, event, log.number in segments and segments[log.number].holds(event.seq))
        for log in logs
        for event in log.events
    ]
