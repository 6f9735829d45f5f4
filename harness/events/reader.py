"""Reads a log: whole lines only, each checked, in sequence.

A last line without its line end is torn: it is set apart until it is whole. Anything else that is not the
next event of this log raises an `EventLogError` naming path and line; what to do then is left to the caller.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.events.line import decode
from harness.events.schema import Event, EventLogError
from harness.events.upcasters import upcast

_TYPES: Final = {"seq": int, "kind": str, "payload": dict, "measured": dict, "envelope": dict}


@dataclass(frozen=True)
class Log:
    """What was read, from the offset asked for to the end of the last whole line."""

    events: list[Event]
    whole_bytes: int
    """Where the last whole line ends, from the start of the file: the offset to go on from."""
    torn_tail: bytes
    """What follows it: a line still being written, or one cut by a crash. Empty mostly."""


def read_events(path: str | os.PathLike[str], offset: int = 0, seq: int = 0) -> Log:
    """The events of a log, from byte `offset`, where the event number `seq` is expected.

    To read on: pass `log.whole_bytes` and the last event's `seq + 1`.
    """
    try:
        with Path(path).open("rb") as file:
            file.seek(offset)
            data = file.read()
    except OSError as error:
        raise EventLogError(f"the log cannot be read: {error.strerror}", path) from None
    return parse_events(data, path, offset, seq)


def parse_events(data: bytes, path: str | os.PathLike[str], offset: int = 0, seq: int = 0) -> Log:
    """The same, of bytes already read that start at `offset` of `path`."""
    *lines, torn_tail = data.split(b"\n")
    events = [_event(line, expected, path) for expected, line in enumerate(lines, start=seq)]
    return Log(events, offset + len(data) - len(torn_tail), torn_tail)


def _event(line: bytes, expected: int, path: str | os.PathLike[str]) -> Event:
    try:
        fields = upcast(decode(line))
    except ValueError as error:
        raise EventLogError(str(error), path, expected + 1) from None
    for name, kind in _TYPES.items():
        if type(fields.get(name)) is not kind:
            raise EventLogError(f"`{name}` is not {kind.__name__}", path, expected + 1)
    event = Event(**{name: fields[name] for name in _TYPES})
    if event.seq != expected:
        raise EventLogError(f"sequence number {event.seq} where {expected} is due", path, expected + 1)
    return event
