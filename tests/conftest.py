"""Finished runs that several folders of tests look at: made once, never changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.command_line import isobudget
from support.short_warm_start import make_short_warm_start
from support.studies import CHAIN_TASK, FLIP, NO_FLIP, PlantedStudy
from support.sweeps import Swept

from harness.layout import RunsFolder


@pytest.fixture(scope="session")
def swept_flip(tmp_path_factory: pytest.TempPathFactory) -> Swept:
    """A planted rank flip."""
    return _sweep(FLIP, tmp_path_factory.mktemp("flip"))


@pytest.fixture(scope="session")
def swept_order(tmp_path_factory: pytest.TempPathFactory) -> Swept:
    """A planted order that is the same at equal updates and at equal tokens."""
    return _sweep(NO_FLIP, tmp_path_factory.mktemp("order"))


@pytest.fixture(scope="session")
def chain_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache of a runs folder, with a warm start of tiny-chain for `CHAIN_TASK` in it."""
    return make_short_warm_start(CHAIN_TASK, tmp_path_factory.mktemp("warm-start"))


def _sweep(truth: PlantedStudy, folder: Path) -> Swept:
    file, runs = truth.write(folder), RunsFolder(folder / "runs")
    return Swept(truth, file, runs, isobudget("sweep", file, "--runs", runs.root, "--inline"))
