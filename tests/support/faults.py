"""Death at a chosen point: as a kill would leave things, without the cost of a process for each."""

from __future__ import annotations

from typing import Any

from harness.events.writer import EventWriter
from harness.rollout.sidecar import TokenSidecar
from harness.train import checkpoint


class Killed(BaseException):
    """Not an Exception, so that nothing that tells of failures gets to run."""


class Faults:
    """Counts the points at which a run touches the disk, and dies at the n-th (from 0), before or after the touch.

    Every event line, every sidecar part and every sync inside a checkpoint is a point, twice: before and after.
    `error`: what is raised there, once.
    """

    def __init__(self, monkeypatch: Any, die_at: int | None = None, error: type[BaseException] = Killed):
        self.points = 0
        self._die_at = die_at
        self._error = error
        for owner, name in ((EventWriter, "append"), (TokenSidecar, "write_part"), (checkpoint, "_sync")):
            monkeypatch.setattr(owner, name, self._wrapped(getattr(owner, name)))

    def _wrapped(self, original: Any) -> Any:
        def touch(*args: Any, **kwargs: Any) -> Any:
            self._point()
            result = original(*args, **kwargs)
            self._point()
            return result

        return touch

    def _point(self) -> None:
        self.points += 1
        if self._die_at is not None and self.points == self._die_at + 1:
            raise self._error
