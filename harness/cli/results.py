"""The data that commands judge, and how their results come out: one of them, or the report after a sweep."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.cli.options import Format, load, runs_folder
from harness.layout import RunsFolder

if TYPE_CHECKING:
    import numpy as np

    from analysis.tables import Result


def report(folder: RunsFolder, study: str) -> None:
    """Prints verdicts, leaderboards and flips, and writes them, with the figure, under reports/<study>/."""
    from analysis.figures import save_curves
    from analysis.leaderboard import leaderboard as lead
    from analysis.rank_flips import rank_flips
    from analysis.snapshot import Snapshot
    from analysis.tables import render
    from analysis.verdicts import verdicts as judge

    snapshot = Snapshot.open(folder.snapshot, study)
    target = folder.report(study)
    target.mkdir(parents=True, exist_ok=True)
    results: dict[str, Result] = {
        "verdicts": judge(snapshot),
        "leaderboard": lead(snapshot),
        "flips": rank_flips(snapshot, resampling(study)),
    }
    log_analysis(folder, study, "report")
    for name, result in results.items():
        print(render(result, "terminal", details=False))
        for suffix, fmt in (("md", "markdown"), ("csv", "csv"), ("json", "json")):
            (target / f"{name}.{suffix}").write_text(render(result, fmt))
    for suffix in ("svg", "png"):
        save_curves(snapshot, target / f"curves.{suffix}")
    print(f"tables and figure: {target}")


def print_result(result: Result, fmt: Format, as_json: bool) -> None:
    from analysis.tables import render

    fmt = Format.JSON if as_json else fmt
    print(render(result, fmt), end="\n" if fmt is Format.TERMINAL else "")  # an empty line would be a record of CSV


def gathered(runs: Path | None, study: str, command: str) -> Any:
    """The study's snapshot, freshly gathered unless somebody else is gathering; the look at it is logged."""
    from analysis.snapshot import Snapshot
    from harness.store.collector import collect as collect_events
    from harness.store.collector import publish

    folder = runs_folder(runs)
    name, file_hash = _study_name(study)
    if folder.cells.is_dir():
        report = collect_events(folder, wait=False)
        if report.events or report.messages or not folder.snapshot.is_file():
            publish(folder, wait=False)
    snapshot = Snapshot.open(folder.snapshot, name)
    swept_hash = snapshot.study.plan.get("study_hash")
    if file_hash and swept_hash and file_hash != swept_hash:
        told = (
            f"{study} is {file_hash[:12]} now, these results are of {swept_hash[:12]}: it was changed since its sweep"
        )
        print(f"warning: {told}", file=sys.stderr)
    log_analysis(folder, name, command)
    return snapshot


def log_analysis(folder: RunsFolder, study: str, command: str) -> None:
    from harness.events.writer import EventWriter

    with EventWriter(folder.study_log(study)) as log:
        log.append("analysis", {"study": study, "command": command})


def resampling(study: str) -> np.random.Generator:
    """The same resamples for the same study, whoever asks."""
    import numpy as np

    from harness.seeds import hashed_seed

    return np.random.default_rng(hashed_seed("resampling", study))


def _study_name(study: str) -> tuple[str, str | None]:
    """The study's name, and its hash where a file was given."""
    if study.endswith((".yaml", ".yml")):
        loaded = load(Path(study))
        return loaded.name, loaded.hash
    return study, None
