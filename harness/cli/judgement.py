"""Commands that judge what a study's runs amount to: leaderboard, flips, verdicts, curves."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.options import Format, Json, Runs, StudyName, TableFormat, print_json
from harness.cli.results import gathered, print_result, resampling


def leaderboard(
    study: StudyName, runs: Runs = None, fmt: TableFormat = Format.TERMINAL, as_json: Json = False
) -> None:
    """Who leads at each declared budget, with intervals, rank intervals and the price paid."""
    from analysis.leaderboard import leaderboard as judge

    print_result(judge(gathered(runs, study, "leaderboard")), fmt, as_json)


def flips(study: StudyName, runs: Runs = None, fmt: TableFormat = Format.TERMINAL, as_json: Json = False) -> None:
    """Which pairs change places between equal updates and equal compute, and how surely."""
    from analysis.rank_flips import rank_flips

    snapshot = gathered(runs, study, "flips")
    print_result(rank_flips(snapshot, resampling(snapshot.study.study)), fmt, as_json)


def verdicts(study: StudyName, runs: Runs = None, fmt: TableFormat = Format.TERMINAL, as_json: Json = False) -> None:
    """What became of each claim."""
    from analysis.verdicts import verdicts as judge

    print_result(judge(gathered(runs, study, "verdicts")), fmt, as_json)


def curves(
    study: StudyName,
    out: Annotated[Path, typer.Argument(help="Picture to write: .svg, .png or .pdf.", show_default=False)],
    runs: Runs = None,
    as_json: Json = False,
) -> None:
    """Draw accuracy against updates beside accuracy against tokens, and each other currency with milestones."""
    from analysis.figures import save_curves

    snapshot = gathered(runs, study, "curves")
    out.parent.mkdir(parents=True, exist_ok=True)
    save_curves(snapshot, out)
    if as_json:
        print_json({"path": str(out)})
    else:
        print(out)
