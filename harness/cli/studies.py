"""Commands on a study file before anything runs: check, plan, lock."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from harness.cli.options import Json, Runs, StudyFile, load, print_json, runs_folder, spelled


def check(study: StudyFile, as_json: Json = False) -> None:
    """Check a study file, down to its pools of problems; says how its numbers were read."""
    from harness.study.load import check_task

    loaded = load(study)
    check_task(loaded)
    if as_json:
        print_json({"study": loaded.name, "hash": loaded.hash, "resolved": loaded.resolved})
        return
    print(f"{study}: in order")
    print(f"  study    {loaded.name} ({loaded.hash[:12]})")
    print(f"  budgets  {spelled(loaded.budgets, ', ')}")
    print(f"  arms     {', '.join(loaded.study.arms)} (baseline {loaded.study.baseline})")
    print(f"  seeds    {', '.join(map(str, loaded.study.seeds))}")
    for claim in loaded.claims:
        print(f"  {claim.id:<8} {claim.text}")


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

    loaded = load(study)
    folder = runs_folder(runs)
    planned = make_plan(loaded)
    states = {cell.id: cell_state(CellFolder(folder.cell(cell.id))).status for cell in planned.cells}
    known = mean_seconds_by_arm(folder, loaded.name)
    left = [cell for cell in planned.cells if states[cell.id] != "done"]
    seconds = expected_seconds(left, known, default_workers(loaded.study.threads))
    if as_json:
        record = planned.record()
        record["cells"] = [{**cell, "state": states[cell["cell"]]} for cell in record["cells"]]
        print_json({**record, "hash": loaded.hash, "expected_seconds": seconds})
        return
    blocks: dict[int, list[Any]] = {}
    for cell in planned.cells:
        blocks.setdefault(cell.block, []).append(cell)
    print(f"{loaded.name} ({loaded.hash[:12]}): {len(blocks)} blocks, {len(planned.cells)} cells")
    print(f"each cell ends when all of this is used up: {spelled(loaded.budgets)}")
    if loaded.study.device == "cuda":
        print("each cell has a GPU to itself")
    if loaded.cap is not None:
        cells_of_block = len(next(iter(blocks.values())))
        most = {name: cells_of_block * amount for name, amount in loaded.cap.most().items()}
        total = spelled(loaded.cap.total, ", ") or "no total"
        per_arm = f"; per arm {spelled(loaded.cap.per_arm, ', ')}" if loaded.cap.per_arm else ""
        print(f"the whole sweep is capped at {total}{per_arm}")
        print(f"  a run ends beyond {spelled(loaded.cap.ceilings, ' or ')}, whatever it has reached by then")
        print(
            f"  a block is launched while {spelled(most)} fit in, room for {loaded.cap.retries} crashes of each run"
        )
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

    loaded = load(study)
    check_task(loaded)
    made = lock_study(loaded, runs_folder(runs).create(), force=force)
    if as_json:
        print_json({"study": loaded.name, "lock_hash": made.hash, "path": str(lock_path(loaded.path))})
        return
    print(f"{lock_path(loaded.path)}: locked {loaded.name}, SHA-256 {made.hash}")
    print(f"commit it with the study before the sweep: git add {study} {lock_path(study)} && git commit")
