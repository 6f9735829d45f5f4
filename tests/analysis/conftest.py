"""Fixtures of the analysis tests; the study they write is in synthetic_study.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from synthetic_study import SyntheticStudy

from analysis.snapshot import Snapshot


@pytest.fixture
def opened(tmp_path: Path) -> Callable[[SyntheticStudy], Snapshot]:
    """Writes a synthetic study and opens it as a snapshot."""

    def write_and_open(study: SyntheticStudy) -> Snapshot:
        return Snapshot.open(study.write(tmp_path / "snapshot.duckdb"))

    return write_and_open


@pytest.fixture
def generator() -> np.random.Generator:
    return np.random.default_rng(7)
