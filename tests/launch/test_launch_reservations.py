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
CURRENCY = "generated_tokens"
ROUNDING = 1 + 1e-12


@dataclass(frozen=True)
class Planned:
    id: str
    block: int
    arm: str


@dataclass
class Run:
    """What became of one cell so far."""

    path: float = 0.0
    """Spent on the way that its weights took."""
    lost: float = 0.0
    crashes: int = 0
    settled: bool = False

    @property
    def spent(self) -> float:
        return self.path + self.lost


class RandomSweep:
    """A sweep with random caps, costs, crashes, interruptions and order, played to its end."""

    def __init__(self, seed: int):
        self.draw = draw = random.Random(seed)
        self.arms, self.blocks = draw.randrange(1, 5), draw.randrange(1, 8)
        ceiling, step, retries = (
            draw.randrange(10, 100),
            draw.choice([0, draw.randrange(1, 10)]),
            draw.randrange(0, 4),
        )
        self.most_of_a_path = ceiling + step
        whole = self.arms * self.blocks * (1 + retries) * self.most_of_a_path
        self.total = {CURRENCY: draw.uniform(0.05, 1.2) * whole} if draw.random() < 0.8 else {}
        one_arm = {CURRENCY: draw.uniform(0.05, 1.2) * whole / self.arms}
        self.per_arm = one_arm if not self.total or draw.random() < 0.5 else {}
        cap = SweepCap(self.total, self.per_arm, {CURRENCY: ceiling}, {CURRENCY: step}, retries)
        self.cells = [
            Planned(f"{block}-{arm}", block, f"a{arm}") for block in range(self.blocks) for arm in range(self.arms)
        ]
        self.books = Reservations(cap, self.cells)
        self.runs = {cell.id: Run() for cell in self.cells}
        self.launched: set[str] = set()
        self.running: list[str] = []

    def play(self) -> None:
        while True:
            waiting = [c for c in self.cells if not self.runs[c.id].settled and c.id not in self.running]
            room = [c for c in waiting if len(self.running) < 3 and self.books.may_launch(c.block)]
            self.check()
            if room and (not self.running or self.draw.random() < 0.6):
                self.running.append(room[0].id)
                self.launched.add(room[0].id)
            elif self.running:
                self.end(self.running.pop(self.draw.randrange(len(self.running))))
                self.check()
            else:
                return

    def end(self, cell: str) -> None:
        """An attempt ends: it got further, and may have lost that again."""
        run = self.runs[cell]
        reached = self.draw.uniform(run.path, self.most_of_a_path)
        how = self.draw.choice(["done", "crash", "crash", "stopped", "failed"])
        if how in ("crash", "failed"):
            kept = self.draw.choice([run.path, 0.0])  # the checkpoint may be damaged, too
            run.lost, run.path, run.crashes = run.lost + reached - kept, kept, run.crashes + 1
        else:
            run.path = reached
        run.settled = how in ("done", "failed")
        self.books.book(cell, run.crashes, {CURRENCY: run.spent}, settled=run.settled)
        if not run.settled and not self.books.retries_left(cell):
            run.settled = True
            self.books.book(cell, run.crashes, {CURRENCY: run.spent}, settled=True)

    def check(self) -> None:
        """What cells in flight have spent is within what is reserved for them."""
        for arm in (None, *{cell.arm for cell in self.cells}):
            for name, amount in (self.total if arm is None else self.per_arm).items():
                assert self.books.spent(arm)[name] + self.books.reserved(arm)[name] <= amount * ROUNDING

    def blocks_run(self) -> int:
        """How many blocks were run, each as a whole; what was spent is what the books say, and within the cap."""
        done = 0
        for block in range(self.blocks):
            begun = [cell.id in self.launched for cell in self.cells if cell.block == block]
            assert all(begun) or not any(begun), "a block was begun and not every arm of it was run"
            done += all(begun)
        real = sum(run.spent for run in self.runs.values())
        assert self.books.spent()[CURRENCY] == pytest.approx(real)
        assert all(real <= amount * ROUNDING for amount in self.total.values())
        return done


def test_spent_and_reserved_never_exceed_the_cap_and_blocks_are_run_whole() -> None:
    outcomes = []
    for seed in range(SWEEPS):
        sweep = RandomSweep(seed)
        sweep.play()
        outcomes.append((sweep.blocks_run(), sweep.blocks))
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
