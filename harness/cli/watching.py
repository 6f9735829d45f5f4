"""Commands that tell where a study's runs stand: status, watch, log."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli.options import CellId, Json, Runs, StudyFile, load, plain, print_json, runs_folder, spelled

if TYPE_CHECKING:
    from harness.launch.overview import Overview
    from harness.study.load import LoadedStudy


def status(
    study: StudyFile,
    runs: Runs = None,
    cells: Annotated[bool, typer.Option("--cells", help="List every cell, also those that are done.")] = False,
    as_json: Json = False,
) -> None:
    """Show where each cell of a study stands, why failed ones failed, and when it may all be done."""
    from harness.launch.overview import books_of
    from harness.study.plan import make_plan

    loaded = load(study)
    told = _overview(loaded, runs)
    if as_json:
        print_json({**plain(told), "counts": told.counts(), "charged": told.charged()})
        return
    print("\n".join(_lines(told, cells)))
    if loaded.cap is not None:
        print(f"  {books_of(loaded.cap, make_plan(loaded).cells, told, runs_folder(runs))}")


def watch(
    study: StudyFile,
    runs: Runs = None,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 2.0,
    as_json: Json = False,
) -> None:
    """Follow a sweep from another shell, until nothing is left to do or nobody does it."""
    from harness.launch.progress import make_display
    from harness.train.lease import lease_state

    folder, loaded = runs_folder(runs), load(study)
    before: dict[str, str] = {}
    with make_display(silent=as_json) as display:
        while True:
            told = _overview(loaded, runs)
            for cell in told.cells:
                if before and before[cell.cell] != cell.status:
                    if cell.status == "running":
                        display.started(cell.label)
                    else:
                        display.ended(cell.label, cell.status, cell.reason)
            before = {cell.cell: cell.status for cell in told.cells}
            display.show(told.snapshot())
            idle = not told.having("running") and lease_state(folder.sweep_lock(told.study))[0] != "live"
            if idle:
                break
            time.sleep(every)
    if as_json:
        print_json({**plain(told), "counts": told.counts(), "charged": told.charged()})
    else:
        print("\n".join(_lines(told, False)))
    raise typer.Exit(int(bool(told.having("failed", "waiting", "interrupted"))))


def log(
    cell: CellId,
    runs: Runs = None,
    lines: Annotated[int, typer.Option(min=1, help="Last lines of what the worker printed.")] = 20,
    as_json: Json = False,
) -> None:
    """Show what became of a cell: its launches and attempts, where they ran, and the tail of what they printed."""
    from harness.events.attempts import read_attempts
    from harness.launch.jobs import jobs
    from harness.launch.states import cell_state, find_cell
    from harness.study.cell import Cell

    folder = find_cell(runs_folder(runs), cell)
    spec, state = Cell.read(folder.spec), cell_state(folder)
    attempts: list[dict[str, Any]] = [
        {
            "attempt": told.number,
            "host": told.events[0].envelope["host"],
            "pid": told.events[0].envelope["pid"],
            "started": told.events[0].envelope["time"],
            "last_seen": told.events[-1].envelope["time"],
            "status": told.status() or "no last word",
            "reason": told.events[-1].payload.get("reason") or "",
            "log": str(told.path),
        }
        for told in read_attempts(folder.path)
    ]
    launches: list[dict[str, Any]] = [
        {"launch": job.number, "exit_code": job.exit_code(), **job.queued(), "folder": str(job.path)}
        | {"stderr": job.stderr_tail(lines)}
        for job in jobs(folder)
    ]
    if as_json:
        print_json({"cell": spec.id, "status": state.status, "reason": state.reason} | _both(attempts, launches))
        return
    print(f"{spec.id}  {spec.study}  {spec.model}/{spec.arm}/{spec.seed}  {state.status}  {state.reason}".rstrip())
    for told in attempts:
        took = told["last_seen"] - told["started"]
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(told["started"]))
        where = f"process {told['pid']} on {told['host']}"
        print(
            f"attempt {told['attempt']}: {when}, {took:.0f} s, {where}: {told['status']}  {told['reason']}".rstrip()
        )
        print(f"  {told['log']}")
    for job in launches:
        code = "no exit recorded" if job["exit_code"] is None else f"exit code {job['exit_code']}"
        scheduler = "".join(f", {name} {job[name]}" for name in ("job", "script") if name in job)
        print(f"launch {job['launch']}: {code}{scheduler}, {job['folder']}")
    if launches and launches[-1]["stderr"]:
        print("last lines of its standard error:")
        print("\n".join(f"  {line}" for line in launches[-1]["stderr"]))


def _both(attempts: list[dict[str, Any]], launches: list[dict[str, Any]]) -> dict[str, Any]:
    return {"attempts": attempts, "launches": launches}


def _overview(loaded: LoadedStudy, runs: Path | None) -> Overview:
    from harness.launch.backend import default_workers
    from harness.launch.overview import overview
    from harness.store.durations import mean_seconds_by_arm
    from harness.study.plan import make_plan

    folder = runs_folder(runs)
    known = mean_seconds_by_arm(folder, loaded.name)
    at_once = default_workers(loaded.study.threads)
    return overview(loaded.name, make_plan(loaded).cells, folder, known, at_once)


def _lines(told: Overview, cells: bool) -> list[str]:
    from harness.launch.progress import MOST_BARS, spoken

    left = f", about {spoken(told.left_seconds)} left" if told.left_seconds else ""
    lines = [f"{told.study}: " + ", ".join(f"{count} {status}" for status, count in told.counts().items()) + left]
    if told.charged():
        lines.append(f"  charged so far: {spelled({name: _short(x) for name, x in told.charged().items()}, ', ')}")
    shown = told.cells if cells else [cell for cell in told.cells if cell.status != "done"]
    if len(shown) > MOST_BARS and not cells:
        for cell in told.slowest():
            lines.append(
                f"  among the slowest: {cell.cell}  {cell.label}  {cell.fraction:.0%}, {cell.updates} updates"
            )
        for reason, group in told.troubles("failed", "interrupted"):
            labels = ", ".join(cell.label for cell in group[:3]) + (", ..." if len(group) > 3 else "")
            lines.append(f"  {len(group)} {group[0].status} ({labels}): {reason}")
        return lines
    for cell in shown:
        far = f"  {cell.fraction:.0%}, {cell.updates} updates" if cell.status in ("running", "interrupted") else ""
        why = f"  {cell.reason or cell.where}".rstrip()
        lines.append(f"  {cell.cell}  {cell.label}  {cell.status}{far}{why}")
    return lines


def _short(amount: float) -> float:
    return float(f"{amount:.3g}")
