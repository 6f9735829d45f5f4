"""The two ledgers, recounted: runs of random attempts, crashes and checkpoints, and what each line is known to be."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.stores import refresh, rows

from harness.events.attempts import read_attempts
from harness.events.costs import spent_hours, spent_work
from harness.events.fold import fold_run
from harness.events.writer import EventWriter
from harness.layout import CellFolder, RunsFolder

CELL = "0123456789abcdef"
ENDINGS = ["completed", "failed", "failed by the disk", "interrupted", "killed", "out of memory"]
LOST = {
    "failed": "self",
    "out of memory": "self",
    "failed by the disk": "infrastructure",
    "killed": "infrastructure",
    "interrupted": "infrastructure",
    "completed": "infrastructure",
}
"""Docs, section 2, rule 4."""
CRASHES = {"failed", "out of memory", "failed by the disk", "killed"}


@dataclass
class Story:
    """What is true of a run, told by whoever made it up."""

    tokens: dict[tuple[int, int], int] = field(default_factory=dict)
    """Of each ledger line (attempt, seq)."""
    path: list[tuple[int, int]] = field(default_factory=list)
    """Ledger lines that led to the weights."""
    endings: dict[int, str] = field(default_factory=dict)
    cpu_hours: float = 0.0
    """Of all attempts, each up to its last sign of life."""

    def lost(self, whose: str) -> int:
        return sum(
            tokens
            for line, tokens in self.tokens.items()
            if line not in self.path and LOST[self.endings[line[0]]] == whose
        )

    def crashes(self) -> Counter[str]:
        return Counter(LOST[ending] for ending in self.endings.values() if ending in CRASHES)


def write(runs: RunsFolder, draw: random.Random) -> Story:
    """A run of up to six attempts, each going on from any checkpoint there is, or afresh."""
    story = Story()
    saved: list[tuple[int, int, list[tuple[int, int]]]] = []
    attempts = draw.randrange(1, 7)
    for number in range(1, attempts + 1):
        origin = draw.choice([None, *saved])
        story.path = list(origin[2]) if origin else []
        hours = first = draw.random()
        with EventWriter(CellFolder(runs.cell(CELL)).events(number), exclusive=True) as log:
            charge = {"generated_tokens": 0, "flops": 0.0}
            log.append(
                "attempt_started",
                {
                    "cell": CELL,
                    "attempt": number,
                    "study": "s",
                    "mode": "exploratory",
                    "resumed_from": {"attempt": origin[0], "seq": origin[1]} if origin else None,
                    **({"earlier_out_of_memory": True} if story.endings.get(number - 1) == "out of memory" else {}),
                },
                {"charge": {"gpu_hours": None, "cpu_hours": first}, "heartbeat_seconds": 30.0},
            )
            for _ in range(draw.randrange(0, 12)):
                hours += draw.random()
                clock = {"charge": {"gpu_hours": None, "cpu_hours": hours}}
                match draw.choice(["ledger", "ledger", "heartbeat", "checkpoint"]):
                    case "ledger":
                        tokens = draw.randrange(1, 100)
                        row = {"samples": 1, "generated_tokens": tokens, "flops": 0.0}
                        seq = log.append("ledger", {"update": 1, "rows": {"rollout": row}, "part": None}, clock)
                        story.tokens[number, seq] = tokens
                        story.path.append((number, seq))
                    case "heartbeat":
                        log.append("heartbeat", {}, clock)
                    case "checkpoint":
                        hours = log_hours(log, hours)
                        saved.append((number, log.last_seq, list(story.path)))
            ending = draw.choice(ENDINGS if number < attempts else ENDINGS[:4])
            story.endings[number] = ending
            if ending not in ("killed", "out of memory"):
                fault = {"fault": "infrastructure"} if ending == "failed by the disk" else {}
                payload = {"status": ending.split()[0], "reason": "", "updates": 0, "charge": charge, **fault}
                log.append(
                    "finished",
                    {**payload, "diverged": False},
                    {"charge": {"gpu_hours": None, "cpu_hours": hours}},
                )
        story.cpu_hours += hours - first
    return story


def log_hours(log: EventWriter, hours: float) -> float:
    """Tells the clock, so that what passed is told whatever comes next."""
    log.append("heartbeat", {}, {"charge": {"gpu_hours": None, "cpu_hours": hours}})
    return hours


@pytest.mark.parametrize("seed", range(40))
def test_every_line_is_in_the_ledger_that_it_belongs_to(seed: int, tmp_path: Path) -> None:
    runs = RunsFolder(tmp_path)
    story = write(runs, random.Random(seed))
    survived = sum(story.tokens[line] for line in story.path)
    everything = sum(story.tokens.values())
    run = fold_run(runs.cell(CELL))

    def tokens(totals: dict[str, dict[str, float]]) -> float:
        return totals.get("rollout", {}).get("generated_tokens", 0)

    assert tokens(run.spent) == everything == tokens(spent_work(read_attempts(runs.cell(CELL))))
    assert tokens(run.algorithmic) == survived + story.lost("self")
    assert tokens(run.lost_self) == story.lost("self")
    assert tokens(run.retraced) == story.lost("infrastructure")
    assert Counter(run.crashes) + Counter() == story.crashes()
    assert run.spent_hours["cpu_hours"] == pytest.approx(story.cpu_hours)

    refresh(runs)
    found = dict(
        rows(
            runs,
            "SELECT if(surviving, 'survived', lost), sum(generated_tokens)::BIGINT FROM ledger "
            "WHERE generated_tokens > 0 GROUP BY ALL",
        )
    )
    told = {"survived": survived, "self": story.lost("self"), "infrastructure": story.lost("infrastructure")}
    assert found == {name: amount for name, amount in told.items() if amount}
    crashes = rows(runs, "SELECT crash, count(*) FROM attempts WHERE crash IS NOT NULL GROUP BY ALL")
    assert Counter(dict(crashes)) == story.crashes()
    assert rows(runs, "SELECT sum(cpu_hours) FROM attempts")[0][0] == pytest.approx(story.cpu_hours)


def test_the_stories_hold_every_ending_and_both_kinds_of_loss(tmp_path: Path) -> None:
    stories = [write(RunsFolder(tmp_path / str(seed)), random.Random(seed)) for seed in range(40)]
    assert {ending for story in stories for ending in story.endings.values()} == set(ENDINGS)
    assert min(sum(story.lost(whose) > 0 for story in stories) for whose in ("self", "infrastructure")) > 5


@pytest.mark.parametrize(
    ("payload", "measured"),
    [
        ({"earlier_out_of_memory": "perhaps"}, {}),
        ({}, {"charge": {"cpu_hours": "long"}}),
        ({}, {"heartbeat_seconds": "often"}),
    ],
)
def test_a_start_that_tells_nonsense_of_losses_puts_the_log_in_quarantine(
    payload: dict[str, object], measured: dict[str, object], tmp_path: Path
) -> None:
    runs = RunsFolder(tmp_path)
    start = {"cell": CELL, "attempt": 1, "study": "s", "mode": "exploratory", "resumed_from": None}
    with EventWriter(CellFolder(runs.cell(CELL)).events(1)) as log:
        log.append("attempt_started", {**start, **payload}, measured)
    (reason,) = refresh(runs).quarantined.values()
    assert f"{next(iter({**payload, **measured}))}` of `attempt_started` is not what the schema says" in reason


def test_a_log_without_hours_has_no_hours(tmp_path: Path) -> None:
    """An outside trainer may have no clock that it trusts, or tell of it now and then."""
    runs = RunsFolder(tmp_path)
    start = {"cell": CELL, "attempt": 1, "study": "s", "mode": "exploratory", "resumed_from": None}
    with EventWriter(CellFolder(runs.cell(CELL)).events(1)) as log:
        log.append("attempt_started", start)
        assert spent_hours(read_attempts(runs.cell(CELL))) == {}
        log.append("heartbeat", {}, {"charge": {}})
        log.append("heartbeat", {}, {"charge": {"cpu_hours": 2.5}})
        log.append("heartbeat", {}, {"charge": {"cpu_hours": None}})
    assert spent_hours(read_attempts(runs.cell(CELL))) == {}
    refresh(runs)
    assert rows(runs, "SELECT gpu_hours, cpu_hours FROM attempts") == [(None, None)]
