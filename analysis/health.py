"""Health gates: runs whose signals say that something other than the arms' difference may have been measured.

A cap on length that cuts every answer, groups that teach nothing, a verifier that raises: each makes accuracy flat
and looks like a result. The study declares the gates; a run that fails one is counted all the same, and flagged
wherever it is counted. A diverged run is an outcome, not a matter of health.
"""

from __future__ import annotations

from typing import Final

import pandas as pd

from analysis.snapshot import Snapshot

GATES: Final = {
    "clipped_share": "clipped",
    "zero_variance_share": "groups without variance",
    "verifier_errors": "verifier errors",
}
"""Signal of an update, as the snapshot names it -> as a remark calls it. A gate is the most that its mean may be."""


def unhealthy_runs(snapshot: Snapshot) -> dict[str, tuple[str, ...]]:
    """Cell -> the gates that it failed, of the cells that failed any; empty where the study declares no gates.

    A gate is failed where the mean of its signal over some `window_updates` updates in a row is above it; a run with
    fewer updates is judged by all of them.
    """
    declared = snapshot.study.plan.get("health") or {}
    gates = {name: declared[name] for name in GATES if declared.get(name) is not None}
    window = int(declared.get("window_updates") or 1)
    found: dict[str, tuple[str, ...]] = {}
    for cell, updates in snapshot.updates.groupby("cell", sort=True) if gates else ():
        ordered = updates.sort_values("update")
        failed = [GATES[name] for name, most in gates.items() if _worst(ordered[name], window) > most]
        if failed:
            found[str(cell)] = tuple(failed)
    return found


def _worst(signal: pd.Series[float], window: int) -> float:
    """The highest mean over `window` values in a row, of all where there are fewer."""
    return float(signal.astype(float).rolling(window, min_periods=min(window, len(signal))).mean().max())
