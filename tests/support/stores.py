"""Reads whole stores and snapshots, to compare them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import duckdb

from harness.layout import RunsFolder
from harness.store.collector import CollectReport, collect, publish

Tables = dict[str, list[tuple[Any, ...]]]


def tables(database: Path) -> Tables:
    """Every row of every table, sorted: equal for stores that tell the same."""
    with duckdb.connect(str(database), read_only=True) as connection:
        names = [str(row[0]) for row in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()]
        assert names
        return {
            name: sorted(connection.execute(f"SELECT * FROM {name}").fetchall(), key=repr) for name in sorted(names)
        }


def rows(runs: RunsFolder, sql: str) -> list[tuple[Any, ...]]:
    """What a reader of the published snapshot gets."""
    with duckdb.connect(str(runs.snapshot), read_only=True) as connection:
        return connection.execute(sql).fetchall()


def refresh(runs: RunsFolder) -> CollectReport:
    """Collects and publishes, quietly."""
    report = collect(runs, say=lambda message: None)
    publish(runs, say=lambda message: None)
    return report


def rebuilt(runs: RunsFolder) -> tuple[Tables, Tables]:
    """(store, snapshot) after the store's folder was deleted and filled again."""
    shutil.rmtree(runs.database.parent)
    refresh(runs)
    return tables(runs.database), tables(runs.snapshot)
