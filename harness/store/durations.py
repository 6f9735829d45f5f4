"""How long runs took, so that a plan can say how long the rest will take. Reads the published snapshot only."""

from __future__ import annotations

from harness.layout import RunsFolder

_MEAN_SECONDS = """
SELECT arm, avg(seconds) FROM (
    SELECT planned.arm AS arm, sum(attempts.last_seen - attempts.started) AS seconds
    FROM planned_cells AS planned JOIN attempts USING (cell) JOIN runs USING (cell)
    WHERE planned.study = ? AND runs.status = 'completed'
    GROUP BY planned.arm, planned.cell
) GROUP BY arm
"""


def mean_seconds_by_arm(runs: RunsFolder, study: str) -> dict[str, float]:
    """Mean wall seconds of the study's completed runs by arm, all attempts together; empty without a snapshot."""
    if not runs.snapshot.is_file():
        return {}
    import duckdb

    try:
        with duckdb.connect(str(runs.snapshot), read_only=True) as connection:
            return dict(connection.execute(_MEAN_SECONDS, [study]).fetchall())
    except duckdb.Error:  # a snapshot of another version: an estimate is not worth an error
        return {}
