"""The ends of event logs, read cheaply: a cell's last word, and how far a running one has come.

Only whole lines count. Nothing here replaces reading a log in full, which is the collector's task.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from harness.events.line import decode
from harness.events.schema import EventLogError
from harness.events.upcasters import upcast
from harness.layout import CellFolder

_TAIL_BYTES: Final = 2**16
_UPDATE_MARK: Final = b'"kind":"update"'


def last_event(path: Path) -> dict[str, Any] | None:
    """The fields of a log's last whole line; None for a log without one. An `EventLogError` when it is no event."""
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            tail_bytes = _TAIL_BYTES
            while True:
                start = max(0, size - tail_bytes)
                file.seek(start)
                whole, _, _ = file.read(size - start).rpartition(b"\n")
                before, _, line = whole.rpartition(b"\n")
                if before or start == 0:
                    break
                tail_bytes *= 4  # the last line is longer than that
    except FileNotFoundError:
        return None
    except OSError as error:
        raise EventLogError(f"the log cannot be read: {error.strerror}", path) from None
    if not line:
        return None
    try:
        return upcast(decode(line))
    except ValueError as error:
        raise EventLogError(f"its last line is damaged: {error}", path) from None


@dataclass
class Progress:
    """How far a cell has come, from its newest attempt's `update` events. `read` takes in what was added since."""

    cell: CellFolder
    updates: int = 0
    """The most updates that any attempt read here has reached."""
    charge: dict[str, float] = field(default_factory=dict)
    """Currency -> amount, after the newest update."""
    _attempt: int = 0
    _offset_bytes: int = 0

    def read(self) -> None:
        """Takes in new whole lines; of a long log not yet seen, the tail only."""
        numbers = self.cell.attempt_numbers()
        if not numbers:
            return
        path = self.cell.events(numbers[-1])
        try:
            with path.open("rb") as file:
                if numbers[-1] != self._attempt:
                    self._attempt = numbers[-1]
                    self._offset_bytes = max(0, path.stat().st_size - 4 * _TAIL_BYTES)
                file.seek(self._offset_bytes)
                whole, _, rest = file.read().rpartition(b"\n")
                self._offset_bytes = file.tell() - len(rest)
        except OSError:
            return
        for line in reversed(whole.split(b"\n")):
            if _UPDATE_MARK in line and self._take(line):
                break

    def _take(self, line: bytes) -> bool:
        try:
            event = decode(line)
            update = int(event["payload"]["update"])
            charge = {**event["measured"].get("charge", {}), **event["payload"]["charge"], "updates": update}
            self.charge = {name: float(amount) for name, amount in charge.items() if amount is not None}
        except (ValueError, KeyError, TypeError, AttributeError):
            return False  # damaged, or cut by the tail: the collector tells of it
        self.updates = max(self.updates, update)
        return True

    def fraction(self, budgets: dict[str, float]) -> float:
        """Share of the way to the end, in [0, 1]: a run ends when the last of its budgets is exhausted."""
        shares = [self.charge.get(currency, 0.0) / amount for currency, amount in budgets.items() if amount > 0]
        return min(1.0, *shares) if shares else 0.0
