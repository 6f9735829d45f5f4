"""Commands on what was recorded: samples, collect."""

from __future__ import annotations

from typing import Annotated

import typer

from harness.cli.options import CellId, Format, Json, Runs, TableFormat, plain, print_json, runs_folder
from harness.cli.results import print_result
from harness.errors import InputError


def samples(
    cell: CellId,
    runs: Runs = None,
    update: Annotated[int | None, typer.Option(help="Only of this update.", show_default=False)] = None,
    kind: Annotated[str | None, typer.Option(help="Only of this kind of work.", show_default=False)] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 20,
    fmt: TableFormat = Format.TERMINAL,
    as_json: Json = False,
) -> None:
    """Show what a cell sampled: prompts, completions, rewards."""
    from itertools import islice

    from harness.cli.sample_list import SampleList
    from harness.compute.kinds import KINDS
    from harness.launch.states import find_cell
    from harness.rollout.sidecar import read_samples

    if kind is not None and kind not in KINDS:
        raise InputError(f"no kind of work is called {kind!r}", f"one of {', '.join(KINDS)}", "--kind")
    folder = find_cell(runs_folder(runs), cell)
    found = list(islice(read_samples(folder.path, update=update, kind=kind), limit))
    result = SampleList.of(folder, found)
    if fmt is Format.TERMINAL and not as_json:
        print("\n".join(result.lines()))
    else:
        print_result(result, fmt, as_json)


def collect(runs: Runs = None, as_json: Json = False) -> None:
    """Gather events into the store and publish a snapshot. Sweeps do it themselves."""
    from harness.store.collector import collect as collect_events
    from harness.store.collector import publish

    folder = runs_folder(runs)
    report = collect_events(folder)
    publish(folder)
    if as_json:
        print_json(plain(report))
    else:
        print(f"{report.events} new events of {report.files} logs; snapshot {folder.snapshot}")
