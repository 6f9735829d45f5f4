"""The commands: parse, call, print. No logic here, and imports late, so that `plan` is instant.

Exit status: 0, 1 (the study says no: a cell failed, cells remain), 2 (bad input, told in one line each).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from analysis.errors import AnalysisError
from harness.errors import InputError
from harness.events.schema import EventLogError
from harness.layout import RunsFolder

if TYPE_CHECKING:
    import numpy as np

    from analysis.tables import Result
    from harness.study.load import LoadedStudy

app = typer.Typer(
    name="isobudget",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    help="Settle which training intervention is better at equal compute: one preregistration, from plan to verdict.",
)


def _version(wanted: bool) -> None:
    if wanted:
        from harness import __version__

        print(f"isobudget {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and end.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Settle which training intervention is better at equal compute: one preregistration, from plan to verdict."""


class Format(StrEnum):
    """How a table is printed."""

    TERMINAL = "terminal"
    MARKDOWN = "markdown"
    CSV = "csv"
    JSON = "json"


StudyFile = Annotated[Path, typer.Argument(help="The study file (YAML).", show_default=False)]
StudyName = Annotated[str, typer.Argument(help="The study file, or the study's name.", show_default=False)]
Runs = Annotated[
    Path | None,
    typer.Option("--runs", help="Folder of run data.  [default: $ISOBUDGET_RUNS, or runs]", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text for people.")]
TableFormat = Annotated[Format, typer.Option("--format", help="How to print.")]


@app.command()
def check(study: StudyFile, as_json: Json = False) -> None:
    """Check a study file, down to its pools of problems; says how its numbers were read."""
    from harness.study.load import check_task

    loaded = _load(study)
    check_task(loaded)
    if as_json:
        _print_json({"study": loaded.name, "hash": loaded.hash, "resolved": loaded.resolved})
        return
    print(f"{study}: in order")
    print(f"  study    {loaded.name} ({loaded.hash[:12]})")
    print(f"  budgets  {_spelled(loaded.budgets, ', ')}")
    print(f"  arms     {', '.join(loaded.study.arms)} (baseline {loaded.study.baseline})")
    print(f"  seeds    {', '.join(map(str, loaded.study.seeds))}")
    for claim in loaded.claims:
        print(f"  {claim.id:<8} {claim.text}")


@app.command()
def plan(
    study: StudyFile,
    runs: Runs = None,
    cells: Annotated[bool, typer.Option("--cells", help="List every cell, not only blocks.")] = False,
    as_json: Json = False,
) -> None:
    """Print what a sweep would run: blocks, cells, budgets, milestones, expected duration."""
    from harness.launch.backend import default_workers
    from harness.launch.progress import spoken
    from harness.launch.states import STATUSES, cell_state
    from harness.layout import CellFolder
    from harness.store.durations import mean_seconds_by_arm
    from harness.study.lock import mode_of
    from harness.study.milestones import amount_text
    from harness.study.plan import expected_seconds, make_plan

    loaded = _load(study)
    folder = _runs(runs)
    planned = make_plan(loaded)
    states = {cell.id: cell_state(CellFolder(folder.cell(cell.id))).status for cell in planned.cells}
    known = mean_seconds_by_arm(folder, loaded.name)
    left = [cell for cell in planned.cells if states[cell.id] != "done"]
    seconds = expected_seconds(left, known, default_workers(loaded.study.threads))
    if as_json:
        record = planned.record()
        record["cells"] = [{**cell, "state": states[cell["cell"]]} for cell in record["cells"]]
        _print_json({**record, "hash": loaded.hash, "expected_seconds": seconds})
        return
    blocks: dict[int, list[Any]] = {}
    for cell in planned.cells:
        blocks.setdefault(cell.block, []).append(cell)
    print(f"{loaded.name} ({loaded.hash[:12]}): {len(blocks)} blocks, {len(planned.cells)} cells")
    print(f"each cell ends when all of this is used up: {_spelled(loaded.budgets)}")
    print("evaluated at:")
    for currency in dict.fromkeys(milestone.currency for milestone in loaded.milestones):
        print(
            f"  {currency}: {', '.join(amount_text(m.amount) for m in loaded.milestones if m.currency == currency)}"
        )
    for block, members in blocks.items():
        print(
            f"block {block}: {members[0].model}, seed {members[0].seed}: {' -> '.join(cell.arm for cell in members)}"
        )
        if cells:
            for cell in members:
                print(f"  {cell.id}  {cell.arm:<24} {states[cell.id]}")
    mode = mode_of(loaded, folder)
    print(f"a sweep now would be {mode.name}: {mode.reason}")
    counts = {status: list(states.values()).count(status) for status in STATUSES}
    print(", ".join(f"{count} {status}" for status, count in counts.items() if count))
    expected = "unknown until one run of each arm is done" if seconds is None else f"about {spoken(seconds)}"
    print(f"expected duration of what is left: {expected}")


@app.command()
def lock(
    study: StudyFile,
    runs: Runs = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a lock of other content.")] = False,
    as_json: Json = False,
) -> None:
    """Lock a study: write its canonical form, hash and code commit beside it. Commit both to make it count."""
    from harness.study.load import check_task
    from harness.study.lock import lock as lock_study
    from harness.study.lock import lock_path

    loaded = _load(study)
    check_task(loaded)
    made = lock_study(loaded, _runs(runs).create(), force=force)
    if as_json:
        _print_json({"study": loaded.name, "lock_hash": made.hash, "path": str(lock_path(loaded.path))})
        return
    print(f"{lock_path(loaded.path)}: locked {loaded.name}, SHA-256 {made.hash}")
    print(f"commit it with the study before the sweep: git add {study} {lock_path(study)} && git commit")


@app.command()
def sweep(
    study: StudyFile,
    runs: Runs = None,
    backend: Annotated[str, typer.Option(help="Where cells run: local (this machine, through submitit).")] = "local",
    inline: Annotated[bool, typer.Option("--inline", help="One cell after the other, in this process.")] = False,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Cells at once.  [default: cores / threads]", show_default=False)
    ] = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Launch failed cells again.")] = False,
    stop_on_failure: Annotated[
        bool, typer.Option("--stop-on-failure", help="Launch nothing more once a cell failed.")
    ] = False,
    allow_code_change: Annotated[
        bool,
        typer.Option("--allow-code-change", help="Go on when the code changes during the sweep; it is recorded."),
    ] = False,
    no_report: Annotated[bool, typer.Option("--no-report", help="Run only; print no tables.")] = False,
    as_json: Json = False,
) -> None:
    """Run a study: launch what is not done, gather, and report. Safe to repeat, and to interrupt."""
    from harness.launch.backends import make_backend
    from harness.launch.progress import make_display
    from harness.launch.sweep import LaunchFacts, SweepOptions
    from harness.launch.sweep import sweep as run_sweep
    from harness.store.collector import collect as collect_events
    from harness.store.collector import publish
    from harness.study.load import check_task
    from harness.study.lock import code_hash, code_state, mode_of
    from harness.study.plan import make_plan

    loaded = _load(study)
    check_task(loaded)
    folder = _runs(runs).create()
    # Before anything is launched, so that logs removed since are missed, not mistaken; the sweep tells of the others.
    collect_events(folder, say=lambda message: None)
    mode, state = mode_of(loaded, folder), code_state()
    facts = LaunchFacts(mode.name, mode.reason, mode.lock_hash, state.commit, state.dirty)
    result = run_sweep(
        make_plan(loaded),
        folder,
        make_backend("inline" if inline else backend, folder, loaded.study.threads, workers),
        SweepOptions(retry_failed, stop_on_failure, allow_code_change),
        facts=facts,
        code_hash=code_hash,
        display=make_display(silent=as_json),
    )
    if not as_json:
        print(result, flush=True)  # first of all: what follows needs room on the disk, too
    collect_events(folder)
    publish(folder)
    if as_json:
        _print_json({"sweep": _plain(result), "mode": mode.name, "mode_reason": mode.reason})
    elif result.completed and not result.stopped and not no_report:
        _report(folder, loaded.name)
    raise typer.Exit(result.exit_code)


@app.command()
def status(
    study: StudyFile,
    runs: Runs = None,
    cells: Annotated[bool, typer.Option("--cells", help="List every cell, also those that are done.")] = False,
    as_json: Json = False,
) -> None:
    """Show where each cell of a study stands, and why failed ones failed."""
    from harness.launch.states import STATUSES, cell_state
    from harness.layout import CellFolder
    from harness.study.plan import make_plan

    folder = _runs(runs)
    loaded = _load(study)
    states = [(cell, cell_state(CellFolder(folder.cell(cell.id)))) for cell in make_plan(loaded).cells]
    if as_json:
        rows = [
            {"cell": cell.id, "model": cell.model, "arm": cell.arm, "seed": cell.seed, "status": state.status}
            | {"reason": state.reason}
            for cell, state in states
        ]
        _print_json({"study": loaded.name, "cells": rows})
        return
    counts = {status: sum(state.status == status for _, state in states) for status in STATUSES}
    print(f"{loaded.name}: " + ", ".join(f"{count} {status}" for status, count in counts.items() if count))
    for cell, state in states:
        if cells or state.status != "done":
            reason = f"  {state.reason}" if state.reason else ""
            print(f"  {cell.id}  {cell.model}/{cell.arm}/{cell.seed}  {state.status}{reason}")


@app.command()
def samples(
    cell: Annotated[str, typer.Argument(help="A cell's id, or its beginning.", show_default=False)],
    runs: Runs = None,
    update: Annotated[int | None, typer.Option(help="Only of this update.", show_default=False)] = None,
    kind: Annotated[str | None, typer.Option(help="Only of this kind of work.", show_default=False)] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 20,
    as_json: Json = False,
) -> None:
    """Show what a cell sampled: prompts, completions, rewards."""
    from itertools import islice

    from harness.compute.kinds import KINDS
    from harness.launch.states import find_cell
    from harness.rollout.sidecar import read_samples

    if kind is not None and kind not in KINDS:
        raise InputError(f"no kind of work is called {kind!r}", f"one of {', '.join(KINDS)}", "--kind")
    folder = find_cell(_runs(runs), cell)
    found = list(islice(read_samples(folder.path, update=update, kind=kind), limit))
    if as_json:
        _print_json([_plain(sample) for sample in found])
        return
    if not found:
        print("no samples recorded")
    for sample in found:
        record = sample.record
        reward = "-" if record.reward is None else f"{record.reward:g}"
        place = f"update {sample.update}  {record.kind}  problem {record.problem}.{record.visit}.{record.index}"
        retraced = "" if sample.surviving else "  (retraced)"
        tokens = f"{len(record.token_ids)} tokens, {record.finish_reason}"
        print(f"{place}  reward {reward}  {tokens}{retraced}")
        print(f"  {record.prompt}{record.completion}")


@app.command()
def collect(runs: Runs = None, as_json: Json = False) -> None:
    """Gather events into the store and publish a snapshot. Sweeps do it themselves."""
    from harness.store.collector import collect as collect_events
    from harness.store.collector import publish

    folder = _runs(runs)
    report = collect_events(folder)
    publish(folder)
    if as_json:
        _print_json(_plain(report))
    else:
        print(f"{report.events} new events of {report.files} logs; snapshot {folder.snapshot}")


@app.command()
def leaderboard(
    study: StudyName, runs: Runs = None, fmt: TableFormat = Format.TERMINAL, as_json: Json = False
) -> None:
    """Who leads at each declared budget, with intervals, rank intervals and the price paid."""
    from analysis.leaderboard import leaderboard as judge

    _print_result(judge(_snapshot(runs, study, "leaderboard")), fmt, as_json)


@app.command()
def flips(study: StudyName, runs: Runs = None, fmt: TableFormat = Format.TERMINAL, as_json: Json = False) -> None:
    """Which pairs change places between equal updates and equal compute, and how surely."""
    from analysis.rank_flips import rank_flips

    snapshot = _snapshot(runs, study, "flips")
    _print_result(rank_flips(snapshot, _resampling(snapshot.study.study)), fmt, as_json)


@app.command()
def verdicts(study: StudyName, runs: Runs = None, fmt: TableFormat = Format.TERMINAL, as_json: Json = False) -> None:
    """What became of each claim."""
    from analysis.verdicts import verdicts as judge

    _print_result(judge(_snapshot(runs, study, "verdicts")), fmt, as_json)


@app.command()
def curves(
    study: StudyName,
    out: Annotated[Path, typer.Argument(help="Picture to write: .svg, .png or .pdf.", show_default=False)],
    runs: Runs = None,
    as_json: Json = False,
) -> None:
    """Draw accuracy against updates beside accuracy against tokens, and each other currency with milestones."""
    from analysis.figures import save_curves

    snapshot = _snapshot(runs, study, "curves")
    out.parent.mkdir(parents=True, exist_ok=True)
    save_curves(snapshot, out)
    if as_json:
        _print_json({"path": str(out)})
    else:
        print(out)


def _report(folder: RunsFolder, study: str) -> None:
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
        "flips": rank_flips(snapshot, _resampling(study)),
    }
    _log_analysis(folder, study, "report")
    for name, result in results.items():
        print(render(result, "terminal", details=False))
        for suffix, fmt in (("md", "markdown"), ("csv", "csv"), ("json", "json")):
            (target / f"{name}.{suffix}").write_text(render(result, fmt))
    for suffix in ("svg", "png"):
        save_curves(snapshot, target / f"curves.{suffix}")
    print(f"tables and figure: {target}")


def _print_result(result: Result, fmt: Format, as_json: bool) -> None:
    from analysis.tables import render

    print(render(result, Format.JSON if as_json else fmt))


def _snapshot(runs: Path | None, study: str, command: str) -> Any:
    """The study's snapshot, freshly gathered unless somebody else is gathering; the look at it is logged."""
    from analysis.snapshot import Snapshot
    from harness.store.collector import collect as collect_events
    from harness.store.collector import publish

    folder = _runs(runs)
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
    _log_analysis(folder, name, command)
    return snapshot


def _log_analysis(folder: RunsFolder, study: str, command: str) -> None:
    from harness.events.writer import EventWriter

    with EventWriter(folder.study_log(study)) as log:
        log.append("analysis", {"study": study, "command": command})


def _resampling(study: str) -> np.random.Generator:
    """The same resamples for the same study, whoever asks."""
    import numpy as np

    from harness.seeds import hashed_seed

    return np.random.default_rng(hashed_seed("resampling", study))


def _study_name(study: str) -> tuple[str, str | None]:
    """The study's name, and its hash where a file was given."""
    if study.endswith((".yaml", ".yml")):
        loaded = _load(Path(study))
        return loaded.name, loaded.hash
    return study, None


def _load(path: Path) -> LoadedStudy:
    from harness.study.load import load_study

    loaded = load_study(path)
    for warning in loaded.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    return loaded


def _runs(runs: Path | None) -> RunsFolder:
    folder = RunsFolder(runs) if runs is not None else RunsFolder.default()
    return folder.create() if folder.root.exists() else folder


def _spelled(budgets: dict[str, float], joint: str = " and ") -> str:
    from harness.study.milestones import amount_text

    return joint.join(f"{amount_text(amount)} {currency}" for currency, amount in budgets.items())


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, sort_keys=True, default=str))


def _plain(record: Any) -> Any:
    from dataclasses import asdict

    return asdict(record)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command line; never shows a traceback for bad input."""
    try:
        app(arguments)
    except InputError as error:
        for problem in error.problems:
            print(f"isobudget: {problem}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:  # a full disk, a file where a folder is due
        print(
            f"isobudget: {error.filename}: {error.strerror}" if error.filename else f"isobudget: {error}",
            file=sys.stderr,
        )
        sys.exit(2)
    except (AnalysisError, EventLogError) as error:
        print(f"isobudget: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
