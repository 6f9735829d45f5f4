"""Health gates: runs whose signals say that something other than the arms' difference may have been measured.

A cap on length that cuts every answer, groups that teach nothing, a verifier that raises, a policy without entropy, a
sampler that is not the policy trained: each passes for a result. The study declares the gates; a run that fails one
is counted all the same, and flagged wherever it is counted. A diverged run is an outcome, not a matter of health.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from analysis.snapshot import Snapshot

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Gate:
    """What a study may hold the mean of one signal against."""

    failed: str
    """How a remark calls a run that failed it."""
    floor: bool = False
    """Whether the declared value is the least that a mean may be; otherwise it is the most."""

    def fails(self, means: Floats, declared: float) -> bool:
        """Whether any of these means is on the wrong side of what was declared."""
        return bool(np.any(means < declared if self.floor else means > declared))


GATES: Final = {
    "clipped_share": Gate("clipped"),
    "zero_variance_share": Gate("groups without variance"),
    "verifier_errors": Gate("verifier errors"),
    "entropy": Gate("low entropy", floor=True),
    "sampler_mismatch": Gate("sampler mismatch"),
}
"""Signal of an update, as the snapshot names it -> the gate on it."""


@dataclass(frozen=True)
class Health:
    """What became of a study's gates, of the cells of which there is something to say."""

    failed: dict[str, tuple[str, ...]]
    """Cell -> the gates that it failed, as remarks call them."""
    unrecorded: dict[str, tuple[str, ...]]
    """Cell -> the signals that none of its updates told: gates on them are neither passed nor failed."""


def health_of_runs(snapshot: Snapshot) -> Health:
    """Holds every run that made an update against the gates of the study; nothing where it declares none.

    A gate is failed where the mean of its signal over some `window_updates` updates in a row is beyond it. Updates
    that did not tell the signal are left out; a run with fewer than a window of the others is judged by all of them.
    """
    declared = snapshot.study.plan.get("health") or {}
    gates = {name: gate for name, gate in GATES.items() if declared.get(name) is not None}
    window = int(declared.get("window_updates") or 1)
    health = Health({}, {})
    for cell, updates in snapshot.updates.groupby("cell", sort=True) if gates else ():
        ordered = updates.sort_values("update")
        told = {name: ordered[name].dropna().to_numpy(dtype=np.float64) for name in gates}
        failed = [g.failed for name, g in gates.items() if g.fails(_means(told[name], window), declared[name])]
        if failed:
            health.failed[str(cell)] = tuple(failed)
        if unrecorded := [name for name, signal in told.items() if not len(signal)]:
            health.unrecorded[str(cell)] = tuple(unrecorded)
    return health


def _means(signal: Floats, window: int) -> Floats:
    """The means over every `window` values in a row, over all where there are fewer; empty where there are none."""
    width = min(window, len(signal))
    return np.asarray(sliding_window_view(signal, width).mean(axis=1)) if width else signal
