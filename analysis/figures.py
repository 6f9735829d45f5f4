"""The figure: accuracy against updates beside accuracy against compute, one shared vertical axis.

Seeds thin, mean and t interval thick, declared budgets as vertical lines. The same data give the same file to the
byte (no date, no random ids). Colours are Okabe and Ito's, told apart by all readers; arms also differ in marker.
"""

from __future__ import annotations

import os
import textwrap
from pathlib import Path
from typing import Any, Final

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from analysis.at_budget import HOUR_CURRENCIES
from analysis.curves import bands, curves
from analysis.errors import AnalysisError
from analysis.points import CURRENCY_NAMES
from analysis.snapshot import Snapshot
from analysis.tables import HOURS_NOTE, Heading, count

COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X", "<", ">")

_SETTINGS: Final[Any] = {
    "svg.hashsalt": "isobudget",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
_NO_DATE: Final[dict[str, dict[str, Any]]] = {
    ".svg": {"Date": None},
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None},
}


def save_curves(snapshot: Snapshot, path: str | os.PathLike[str]) -> Path:
    """Draws the curves of a study, one row of panels per model, into a .svg, .png or .pdf file."""
    target = Path(path)
    if target.suffix not in _NO_DATE:
        raise AnalysisError(
            f"a figure cannot be written as {target.suffix or target.name!r}", "a .svg, .png or .pdf file"
        )
    values = curves(snapshot)
    if not values["accuracy"].notna().any():
        raise AnalysisError("no run has been evaluated yet", "a sweep with evaluations", snapshot.study.study)
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # a user's own style must not change the file
        matplotlib.rcParams.update(_SETTINGS)
        figure = _draw(snapshot, values)
        figure.savefig(target, dpi=160, metadata=_NO_DATE[target.suffix])
    return target


def _draw(snapshot: Snapshot, values: pd.DataFrame) -> Figure:
    models, arms = snapshot.models, snapshot.arm_names
    currencies = [currency for currency in CURRENCY_NAMES if (values["currency"] == currency).any()]
    looks = {arm: (COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)]) for i, arm in enumerate(arms)}
    size = (3.3 * len(currencies) + 0.6, 2.7 * len(models) + 1.0)
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(models), len(currencies), sharey=True, squeeze=False)
    means = bands(values)
    for row, model in enumerate(models):
        for column, currency in enumerate(currencies):
            axes = panels[row, column]
            seeds, mean = (
                frame[(frame["model"] == model) & (frame["currency"] == currency)] for frame in (values, means)
            )
            for arm in arms:
                _draw_arm(axes, seeds[seeds["arm"] == arm], mean[mean["arm"] == arm], *looks[arm])
            budgets = snapshot.budgets.loc[snapshot.budgets["currency"] == currency, "amount"]
            _dress(axes, seeds["amount"], budgets, CURRENCY_NAMES[currency])
        panels[row, 0].set_ylabel(f"{model}\naccuracy (%)" if len(models) > 1 else "accuracy (%)")
    handles = [
        Line2D([], [], color=colour, marker=marker, markersize=4, linewidth=2, label=arm)
        for arm, (colour, marker) in looks.items()
    ]
    if len(snapshot.budgets):
        handles.append(Line2D([], [], color="0.35", linestyle="--", linewidth=0.8, label="declared budget"))
    figure.legend(handles=handles, loc="outside upper center", ncols=min(4, len(handles)), frameon=False)
    heading = Heading.of(snapshot)
    told = f"{heading.mode}: {heading.mode_reason}" if heading.mode_reason else heading.mode
    told = f"{heading.study} · {told} · thin: seeds, thick: mean and 95 % t interval"
    lines = textwrap.wrap(told, width=int(26 * size[0]))
    if any(currency in HOUR_CURRENCIES for currency in currencies):
        lines += textwrap.wrap(HOURS_NOTE, width=int(26 * size[0]))
    figure.supxlabel("\n".join(lines), fontsize=7, color="0.35")
    return figure


def _draw_arm(axes: Axes, seeds: pd.DataFrame, means: pd.DataFrame, colour: str, marker: str) -> None:
    for _, run in seeds.dropna(subset="accuracy").groupby("seed"):
        axes.plot(run["amount"], 100 * run["accuracy"], color=colour, linewidth=0.6, alpha=0.35)
    axes.fill_between(means["amount"], 100 * means["low"], 100 * means["high"], color=colour, alpha=0.15, linewidth=0)
    axes.plot(means["amount"], 100 * means["mean"], color=colour, linewidth=2, marker=marker, markersize=4)


def _dress(axes: Axes, amounts: pd.Series[float], budgets: pd.Series[float], label: str) -> None:
    for budget in budgets:
        axes.axvline(float(budget), color="0.35", linestyle="--", linewidth=0.8, zorder=0)
    if amounts.max() > 10 * amounts.min():
        axes.set_xscale("log")
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda amount, _: count(amount)))
    axes.set_xlabel(label)
    axes.grid(axis="y", color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
