"""Commands that act on cells, beside a sweep: cancel, retry, reap."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from harness.cli.options import Json, Runs, StudyFile, load, print_json, runs_folder
from harness.layout import CellFolder

Chosen = Annotated[
    list[str] | None, typer.Argument(help="Ids of cells, or their beginnings; all of the study without any.")
]


def cancel(study: StudyFile, cells: Chosen = None, runs: Runs = None, as_json: Json = False) -> None:
    """Have a study's sweep, or single cells, checkpoint and end. The same sweep command goes on from there."""
    from harness.launch.care import stop_cells, stop_sweep

    folder, name, chosen = _chosen(study, cells, runs)
    holder = None if cells else stop_sweep(folder, name)
    asked = stop_cells(chosen)
    elsewhere = holder is not None and not holder.process.here
    if as_json:
        ids = [cell.path.name for cell in asked]
        print_json({"sweep": str(holder) if holder else None, "asked_here": not elsewhere, "cells": ids})
        return
    if holder is not None:
        print(f"the sweep is {holder}" + ("; stop it there" if elsewhere else ", and was asked to end"))
    print(f"{len(asked)} running cells were asked to checkpoint and end")


def retry(study: StudyFile, cells: Chosen = None, runs: Runs = None, as_json: Json = False) -> None:
    """Let the next sweep launch failed cells again: these, or all of the study."""
    from harness.launch.care import retry as retry_cells

    _, name, chosen = _chosen(study, cells, runs)
    marked = [cell.path.name for cell in retry_cells(chosen)]
    if as_json:
        print_json({"study": name, "cells": marked})
    else:
        print(f"{len(marked)} failed cells are launched again by the next sweep: isobudget sweep {study}")


def reap(study: StudyFile, runs: Runs = None, as_json: Json = False) -> None:
    """Free cells whose holder is dead. Sweeps do it themselves, cell by cell; this shows who died, and where."""
    from harness.launch.care import reap as reap_cells

    _, name, chosen = _chosen(study, None, runs)
    freed = reap_cells(chosen)
    if as_json:
        rows: list[Any] = [
            {"cell": cell.path.name, "held_by": str(holder) if holder else None} for cell, holder in freed
        ]
        print_json({"study": name, "cells": rows})
        return
    for cell, holder in freed:
        print(f"{cell.path.name}: was held by {holder or 'a process that never signed'}")
    print(f"{len(freed)} cells freed")


def _chosen(study: Path, cells: list[str] | None, runs: Path | None) -> tuple[Any, str, list[CellFolder]]:
    from harness.launch.states import find_cell
    from harness.study.plan import make_plan

    folder, loaded = runs_folder(runs), load(study)
    if cells:
        return folder, loaded.name, [find_cell(folder, cell) for cell in cells]
    return folder, loaded.name, [CellFolder(folder.cell(cell.id)) for cell in make_plan(loaded).cells]
