"""Displays: plain lines for pipes, bars for a terminal, nothing for programs."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from harness.launch.progress import (
    LiveDisplay,
    PlainDisplay,
    RunningCell,
    SilentDisplay,
    Snapshot,
    make_display,
    spoken,
)

HALF_WAY = Snapshot(
    total=4, done=1, failed=1, waiting=1, running=[RunningCell("tiny/grpo/101", 12, 0.5)], left_seconds=600
)


def test_plain_writes_one_line_per_start_and_end() -> None:
    stream = io.StringIO()
    with PlainDisplay(stream) as display:
        display.started("tiny/grpo/101")
        display.ended("tiny/grpo/101", "failed", "out of memory")
        display.ended("tiny/grpo/102", "done", "")
    assert stream.getvalue().splitlines() == [
        "started tiny/grpo/101",
        "failed tiny/grpo/101: out of memory",
        "done tiny/grpo/102",
    ]


def test_plain_summarises_no_more_than_every_thirty_seconds() -> None:
    stream, now = io.StringIO(), [0.0]
    display = PlainDisplay(stream, clock=lambda: now[0])
    for second in range(0, 95):
        now[0] = float(second)
        display.show(HALF_WAY)
    assert stream.getvalue().splitlines() == ["1/4 done, 1 running, 1 waiting, 1 failed, about 10 min left"] * 3


def test_live_shows_a_bar_for_each_running_cell_and_keeps_what_ended() -> None:
    stream = io.StringIO()
    with LiveDisplay(Console(file=stream, force_terminal=True, width=160)) as display:
        display.show(HALF_WAY)
        display._progress.refresh()
        assert "tiny/grpo/101" in stream.getvalue()
        assert "50%" in stream.getvalue()
        assert "12 updates" in stream.getvalue()
        display.ended("tiny/[grpo]/101", "failed", "list index [0] out of range")
        stream.truncate(0)
        display.show(Snapshot(total=4, done=2, failed=2, waiting=0, running=[], left_seconds=None))
        display._progress.refresh()
        assert "tiny/grpo/101" not in stream.getvalue()
    with LiveDisplay(Console(file=(kept := io.StringIO()), width=160)) as display:
        display.ended("tiny/[grpo]/101", "failed", "list index [0] out of range")
    assert "failed tiny/[grpo]/101: list index [0] out of range" in kept.getvalue()


def test_the_display_fits_where_it_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert type(make_display(silent=True)) is SilentDisplay
    display = make_display()  # captured: not a terminal
    assert isinstance(display, PlainDisplay)
    display.notice("hello")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "hello\n")


@pytest.mark.parametrize(
    ("seconds", "words"), [(0, "0 s"), (89, "89 s"), (90, "2 min"), (3600, "60 min"), (11100, "3 h 5 min")]
)
def test_durations_are_told_as_people_do(seconds: float, words: str) -> None:
    assert spoken(seconds) == words
