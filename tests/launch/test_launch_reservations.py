"""The invariants of a sweep's cap, over thousands of random sweeps; and what a study may say of it."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.command_line import isobudget
from support.studies import FLIP
from support.sweeps import cell_folders, folded

from harness.errors import InputError
from harness.launch.reservations import Reservations
from harness.layout import RunsFolder
from harness.study.caps import SweepCap
from harness.study.load import load_study

SWEEPS = 3_000


@dataclass(frozen=True)
class Planned:
    id: str
    block: int
    arm: str


def random_sweep(draw: random.Random) -> tuple[int, int]:  # noqa: PLR0915 - one story, told in one go
    """Plays a sweep to its end: random costs, crashes, interruptions, order. Returns blocks done, and blocks."""
    arms, blocks, retries = draw.randrange(1, 5), draw.randrange(1, 8), draw.randrange(0, 4)
    ceiling, step = draw.randrange(10, 100), draw.choice([0, draw.randrange(1, 10)])
    whole = arms * blocks * (1 + retries) * (ceiling + step)
    total = {"generated_tokens": draw.uniform(0.05, 1.2) * whole} if draw.random() < 0.8 else {}
    per_arm = {"generated_tokens": draw.uniform(0.05, 1.2) * whole / arms} if not total or draw.random() < 0.5 else {}
    cap = SweepCap(total, per_arm, {"generated_tokens": ceiling}, {"generated_tokens": step}, retries)
    cells = {block: [(f"{block}-{arm}", f"a{arm}") for arm in range(arms)] for block in range(blocks)}
    books = Reservations(cap, [Planned(cell, block, arm) for block, row in cells.items() for cell, arm in row])
    state = {
        cell: {"path": 0.0, "lost": 0.0, "crashes": 0, "settled": False} for row in cells.values() for cell, _ in row
    }
    launched: set[str] = set()
    running: list[str] = []

    def check() -> None:
        for arm in (None, *{f"a{i}" for i in range(arms)}):
            for name, amount in (total if arm is None else per_arm).items():
                # What cells in flight have spent is within what is reserved for them.
                assert books.spent(arm)[name] + books.reserved(arm)[name] <= amount * (1 + 1e-12)

    while True:
        waiting = [
            (block, cell)
            for block, row in cells.items()
            for cell, _ in row
            if not state[cell]["settled"] and cell not in running
        ]
        room = [(block, cell) for block, cell in waiting if len(running) < 3 and books.may_launch(block)]
        check()
        if room and (not running or draw.random() < 0.6):
            running.append(room[0][1])
            launched.add(room[0][1])
            continue
        if not running:
            break
        cell = running.pop(draw.randrange(len(running)))
        mine = state[cell]
        reached = draw.uniform(mine["path"], ceiling + step)  # of the attempt that ends now
        match draw.choice(["done", "crash", "crash", "stopped", "failed"]):
            case "done":
                mine["path"], mine["settled"] = reached, True
            case "stopped":
                mine["path"] = reached
            case "failed":
                mine["lost"] += reached - mine["path"]
                mine["crashes"] += 1
                mine["settled"] = True
            case "crash":
                kept = draw.choice([mine["path"], 0.0])  # the checkpoint may be damaged, too
                mine["lost"] += reached - kept
                mine["path"] = kept
                mine["crashes"] += 1
        books.book(
            cell,
            int(mine["crashes"]),
            {"generated_tokens": mine["path"] + mine["lost"]},
            settled=bool(mine["settled"]),
        )
        if not mine["settled"] and not books.retries_left(cell):
            mine["settled"] = True
            books.book(cell, int(mine["crashes"]), {"generated_tokens": mine["path"] + mine["lost"]}, settled=True)
        check()
    done = 0
    for row in cells.values():
        begun = [cell in launched for cell, _ in row]
        assert all(begun) or not any(begun), "a block was begun and not every arm of it was run"
        done += all(begun)
    real = sum(mine["path"] + mine["lost"] for mine in state.values())
    assert books.spent()["generated_tokens"] == pytest.approx(real)
    for amount in total.values():
        assert real <= amount * (1 + 1e-12)
    return done, blocks


def test_spent_and_reserved_never_exceed_the_cap_and_blocks_are_run_whole() -> None:
    outcomes = [random_sweep(random.Random(seed)) for seed in range(SWEEPS)]
    assert sum(done == blocks for done, blocks in outcomes) > SWEEPS / 20, "hardly any sweep had room"
    assert sum(0 < done < blocks for done, blocks in outcomes) > SWEEPS / 20, "hardly any sweep ended at its cap"


def test_a_block_that_does_not_fit_is_not_opened_until_others_cost_less_than_reserved() -> None:
    cap = SweepCap({"generated_tokens": 300}, {}, {"generated_tokens": 100}, {"generated_tokens": 0}, 1)
    books = Reservations(cap, [Planned("x", 0, "a"), Planned("y", 1, "a")])
    assert books.may_launch(0) and not books.may_launch(1)
    books.book("x", 0, {"generated_tokens": 60}, settled=True)
    assert books.may_launch(1)
    assert (books.spent(), books.reserved()) == ({"generated_tokens": 60}, {"generated_tokens": 200})


def capped(folder: Path, total: int, ceiling: int = 2_000, **more: object) -> Path:
    """FLIP: 1,610 tokens and 10 updates; `plain` takes 1,640 to pass the one, `dense` 1,760."""
    sweep = {"total": {"generated_tokens": total}, "ceiling": {"generated_tokens": ceiling}, "retries": 0, **more}
    return FLIP.write(folder, budget={"generated_tokens": 1_610, "updates": 10, "sweep": sweep})


def test_a_capped_sweep_ends_between_blocks(tmp_path: Path) -> None:
    """Of four blocks, each reserves 4,000 and takes about 3,400: in 10,000 is room for two, and then for no third."""
    file, runs = capped(tmp_path, 10_000), RunsFolder(tmp_path / "runs")
    ran = isobudget("sweep", file, "--runs", runs.root, "--inline", "--no-report")
    assert ran.code == 1
    assert "the sweep's cap has no room for another block; 2 are left" in ran.out
    assert "capped at 10_000 generated_tokens" in ran.err
    found = folded(runs)
    started = [run for run in found.values() if run.spent]
    assert len(started) == 4 and {run.status for run in started} == {"completed"}
    spent = sum(row["generated_tokens"] for run in started for kind, row in run.spent.items() if kind != "evaluation")
    assert spent <= 10_000
    again = isobudget("sweep", file, "--runs", runs.root, "--inline", "--no-report")
    assert "4 done, 4 to do" in again.out, "repeating it finds no more room"
    told = isobudget("leaderboard", FLIP.study, "--runs", runs.root).out
    assert "2 of 4 blocks are not finished and count for no arm" in told
    told = isobudget("status", file, "--runs", runs.root).out
    assert f"capped at 10_000 generated_tokens: {spent:.3g} spent, 0 reserved" in told
    plan = isobudget("plan", file, "--runs", runs.root).out
    assert "capped at 10_000 generated_tokens" in plan and "a run ends beyond 2_000 generated_tokens" in plan


def test_a_run_never_samples_beyond_its_ceiling_and_reads_not_reached(tmp_path: Path) -> None:
    """`dense` takes 160 tokens an update: 1,000 are six updates, and no sample of a seventh."""
    file, runs = capped(tmp_path, 100_000, ceiling=1_000), RunsFolder(tmp_path / "runs")
    assert isobudget("sweep", file, "--runs", runs.root, "--inline", "--no-report").code == 0
    tokens = {run.charge["generated_tokens"] for run in folded(runs).values()}
    assert max(tokens) <= 1_000
    assert {run.reason for run in folded(runs).values()} == {"the ceiling of 1_000 generated_tokens"}
    board = isobudget("leaderboard", FLIP.study, "--runs", runs.root).out
    assert "4 not reached" in board
    assert len(cell_folders(runs)) == 8


@pytest.mark.parametrize(
    ("budget", "told"),
    [
        ({"updates": 5, "sweep": {}}, "a sweep's cap without any amount"),
        ({"updates": 5, "sweep": {"total": {"generated_tokens": 9}}}, "nothing bounds what one run takes of it"),
        (
            {"gpu_hours": 1.0, "sweep": {"total": {"gpu_hours": 9.0}}},
            "nothing bounds what one update takes of it",
        ),
        (
            {
                "generated_tokens": 900,
                "sweep": {"total": {"generated_tokens": 9}, "ceiling": {"generated_tokens": 1000}},
            },
            "a ceiling of 1000 generated_tokens may end a run before its budget of 900 is used up",
        ),
        ({"updates": 5, "sweep": {"totl": {}}}, "did you mean"),
    ],
)
def test_a_cap_that_bounds_nothing_is_refused(tmp_path: Path, budget: dict[str, object], told: str) -> None:
    file = FLIP.write(tmp_path, budget=budget, claims=[], device="cuda")
    with pytest.raises(InputError) as caught:
        load_study(file)
    assert told in str(caught.value)


def test_with_one_budget_the_ceiling_is_twice_it(tmp_path: Path) -> None:
    sweep = {"per_arm": {"generated_tokens": 50_000}}
    loaded = load_study(FLIP.write(tmp_path, budget={"generated_tokens": 1_610, "sweep": sweep}, claims=[]))
    assert loaded.cap is not None
    assert loaded.cap.ceilings == {"generated_tokens": 3_220}
    assert loaded.cap.most() == {"generated_tokens": 3 * 3_220}


def test_a_study_without_a_cap_is_hashed_as_before(tmp_path: Path) -> None:
    plain = load_study(FLIP.write(tmp_path))
    assert "sweep" not in plain.resolved
    assert load_study(capped(tmp_path, 10_000)).hash != plain.hash
