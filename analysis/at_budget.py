"""Runs read at a budget: one row per planned cell, missing ones included.

Accuracy at budget B on a currency is the milestone's own evaluation: the policy after the last update whose
charge is at most B. Nothing is interpolated, extrapolated or clipped; `interpolated_at` is the sensitivity
analysis, apart. Works on a `Snapshot` or on anybody's data frame of evaluations with the columns

    arm, model, seed, currency, amount (the milestone), accuracy (0 to 1)

and, where known, run, updates, charge (of the policy evaluated), charge_after (the meter when the milestone was
passed), outcomes, diverged. A milestone that a run did not reach is a row that is not there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.errors import AnalysisError
from analysis.snapshot import Snapshot

Source = Snapshot | pd.DataFrame

Status = Literal["ok", "diverged", "not reached", "failed", "unfinished", "not run"]
"""ok: evaluated at the milestone. diverged: the weights were not finite, the declared floor is scored.
not reached: the run ended before the milestone. failed: it crashed before it. unfinished: it is still
running, or was interrupted. not run: planned, not started."""

HOUR_CURRENCIES: Final = ("gpu_hours", "cpu_hours")
"""Read from a clock: never the same to the bit, comparable on one type of device only."""

_REQUIRED: Final = ("arm", "model", "seed", "currency", "amount", "accuracy")
_KEY: Final = ["model", "arm", "seed"]


def at_budget(source: Source, currency: str, amount: float) -> pd.DataFrame:
    """Every planned cell read at `amount` of `currency`.

    Columns: model, arm, seed, block; currency, amount; accuracy (0 to 1, NaN where there is none); status
    (`Status`); counted (False in a block with a cell that has not come so far yet: such a block counts for no
    arm); updates and charge of the policy evaluated; overshoot (meter at the milestone - amount), undershoot
    (amount - charge): what one update's size costs in exactness; outcomes (0/1 per problem, or None). The cells
    of a plain data frame are those that occur in it.
    """
    if isinstance(source, Snapshot):
        _check_milestone(source, currency, amount)
    cells, readings = _of_snapshot(source, currency) if isinstance(source, Snapshot) else _of_frame(source, currency)
    here = readings[np.isclose(readings["amount"], amount, rtol=1e-9, atol=0.0)]
    # A milestone evaluated again after a resume: the later one belongs to the weights that went on.
    here = here.drop_duplicates("cell", keep="last")
    frame = cells.merge(here.drop(columns="amount"), on="cell", how="left")
    found = frame["evaluated"].eq(True)
    # Non-finite weights end a run: every later milestone scores the floor.
    lost = ~found & frame["run_diverged"] & frame["run_status"].isin(["completed", "failed"])
    diverged = (found & frame["diverged"].eq(True)) | lost
    accuracy = frame["accuracy"].astype(float).where(found)
    accuracy = accuracy.mask(diverged & ~np.isfinite(accuracy), _floor(source))
    absent = frame["run_status"].map(
        {"completed": "not reached", "failed": "failed", "running": "unfinished", "interrupted": "unfinished"}
    )
    status = absent.fillna("not run").mask(found, "ok").mask(diverged, "diverged")
    status = status.mask(found & ~diverged & ~np.isfinite(accuracy), "failed")
    charge = frame["charge"].astype(float)
    return pd.DataFrame(
        {
            **{name: frame[name] for name in (*_KEY, "block")},
            "currency": currency,
            "amount": float(amount),
            "accuracy": accuracy,
            "status": status,
            "counted": ~status.isin(["not run", "unfinished"]).groupby(frame["block"]).transform("any"),
            "updates": frame["updates"].astype(float),
            "charge": charge,
            # Of a diverged run neither is a matter of an update's size.
            "overshoot": (frame["charge_after"].astype(float) - amount).mask(diverged),
            "undershoot": (amount - charge).mask(diverged),
            "outcomes": frame["outcomes"],
        }
    )


def interpolated_at(source: Source, currency: str, amount: float) -> pd.DataFrame:
    """Sensitivity analysis: accuracy at `amount`, linear in log(charge) between a run's two neighbouring evaluations.

    Columns: model, arm, seed, accuracy (NaN beyond a run's first or last evaluation). Per run first, so that
    seeds are aggregated afterwards. The x of an evaluation is the charge of its policy (a frame without
    `charge`: the milestone).
    """
    cells, readings = (
        _of_snapshot(source, None, currency) if isinstance(source, Snapshot) else _of_frame(source, currency)
    )
    x = readings["charge"].astype(float)
    if not isinstance(source, Snapshot):
        x = x.fillna(readings["amount"].astype(float))
    known = readings.assign(x=x)[(x > 0) & np.isfinite(readings["accuracy"].astype(float))]
    points = {cell: part.groupby("x")["accuracy"].last() for cell, part in known.groupby("cell")}
    nothing = pd.Series(dtype=float)
    accuracy = [_between(points.get(cell, nothing), amount) for cell in cells["cell"]]
    return cells[_KEY].assign(accuracy=accuracy)


def _between(curve: pd.Series[float], amount: float) -> float:
    """curve: accuracy by ascending x > 0."""
    if curve.empty or not curve.index[0] <= amount <= curve.index[-1]:
        return float("nan")
    return float(np.interp(np.log(amount), np.log(curve.index.to_numpy(float)), curve.to_numpy(float)))


def accuracy_array(frame: pd.DataFrame, arms: Sequence[str], model: str | None = None) -> NDArray[np.float64]:
    """(arms, seeds) accuracies of an `at_budget` frame, NaN where there is none or the block does not count.

    Seeds ascend over all that are planned for the model. `model` None: the mean over every planned model with equal
    weights, NaN where one of them is missing, so that the denominator is the plan's.
    """
    counted = frame.assign(accuracy=frame["accuracy"].where(frame["counted"]))
    if model is not None:
        counted = counted[counted["model"] == model]
    wide = counted.pivot(index="seed", columns=["model", "arm"], values="accuracy").sort_index()
    models = [model] if model is not None else list(dict.fromkeys(frame["model"]))
    layers = [wide.reindex(columns=[(name, arm) for arm in arms]).to_numpy(float).T for name in models]
    return np.asarray(np.mean(layers, axis=0))


def _check_milestone(snapshot: Snapshot, currency: str, amount: float) -> None:
    """Where no run was to be evaluated, a missing reading would not mean "not reached"."""
    declared = snapshot.milestones.loc[snapshot.milestones["currency"] == currency, "amount"]
    if not np.isclose(declared, amount, rtol=1e-9, atol=0.0).any():
        known = ", ".join(f"{value:,.6g}" for value in sorted(declared)) or "none"
        raise AnalysisError(
            f"{amount:,.6g} {currency} is not a milestone of study {snapshot.study.study}", f"one of: {known}"
        )


def _floor(source: Source) -> float:
    return source.study.diverged_accuracy if isinstance(source, Snapshot) else 0.0


def _of_snapshot(
    snapshot: Snapshot, currency: str | None, charge: str | None = None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Planned cells with their run's state, and evaluations (of milestones in `currency`, or all)."""
    runs = snapshot.runs.rename(columns={"status": "run_status", "diverged": "run_diverged"})
    cells = snapshot.planned.merge(runs[["cell", "run_status", "run_diverged"]], on="cell", how="left")
    cells["run_diverged"] = cells["run_diverged"].eq(True)
    readings = snapshot.evaluations
    if currency is not None:
        readings = readings[readings["currency"] == currency]
    column = charge or currency
    if column not in readings:
        raise AnalysisError(f"there is no currency {column!r}", "one of the milestones' currencies")
    kept = ["cell", "amount", "charge_after", "updates", "accuracy", "outcomes", "diverged"]
    return cells, readings[kept].assign(charge=readings[column], evaluated=True)


def _of_frame(frame: pd.DataFrame, currency: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The same from a plain data frame of evaluations: every run in it counts as ended."""
    missing = [name for name in _REQUIRED if name not in frame]
    if missing:
        raise AnalysisError(f"the data frame has no column {', '.join(missing)}", f"columns {', '.join(_REQUIRED)}")
    frame = frame.copy()
    if "run" not in frame:
        frame["run"] = frame[_KEY].astype(str).agg(" / ".join, axis=1)
    for name in ("updates", "charge", "charge_after", "outcomes", "diverged"):
        if name not in frame:
            frame[name] = False if name == "diverged" else None if name == "outcomes" else np.nan
    cells = frame[["run", *_KEY]].drop_duplicates().rename(columns={"run": "cell"})
    twice = cells[cells.duplicated(_KEY)]
    if len(twice):
        model, arm, seed = twice.iloc[0][_KEY]
        raise AnalysisError(
            f"more than one run of arm {arm}, model {model}, seed {seed}", "one run per model, arm and seed"
        )
    cells["block"] = cells.groupby(["model", "seed"], sort=False).ngroup()
    cells["run_status"], cells["run_diverged"] = "completed", False
    here = frame[frame["currency"] == currency].rename(columns={"run": "cell"})
    kept = ["cell", "amount", "charge_after", "updates", "charge", "accuracy", "outcomes", "diverged"]
    return cells.reset_index(drop=True), here[kept].assign(evaluated=True)
