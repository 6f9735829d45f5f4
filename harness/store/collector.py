"""Events in: one collector reads what the logs have grown by and puts it into the database.

Rows and offsets go in together or not at all. A log that cannot be trusted is quarantined, said so, and
leaves no row behind; the others go on. The database is a cache: deleted or damaged, it is filled again.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa

from harness.errors import InputError
from harness.events.checks import complaint
from harness.events.line import canonical
from harness.events.reader import parse_events
from harness.events.schema import Event, EventLogError
from harness.layout import RunsFolder
from harness.store.database import DamagedStore, Say, open_database, set_aside, sole_collector
from harness.store.snapshot import build_snapshot

_BATCH_EVENTS: Final = 20_000
"""Events of one transaction, about: bounds memory at the first collection of many runs."""

_SUM_OF_NOTHING: Final = hashlib.sha256().hexdigest()

_EVENT_COLUMNS: Final = pa.schema(
    [
        ("path", pa.string()),
        ("seq", pa.int64()),
        ("kind", pa.string()),
        ("time", pa.float64()),
        ("payload", pa.string()),
        ("measured", pa.string()),
    ]
)


@dataclass
class CollectReport:
    """What one collection found."""

    events: int = 0
    """Read this time."""
    files: int = 0
    """Logs there are."""
    quarantined: dict[str, str] = field(default_factory=dict)
    """Path under the runs folder -> reason, of every log in quarantine, not only of new ones."""
    messages: list[str] = field(default_factory=list)
    """What was said while collecting, one line each."""
    busy: bool = False
    """Another collector was at work and this one did not wait: nothing was read."""


@dataclass
class _File:
    """A row of `files`."""

    path: str
    log: str
    cell: str | None
    attempt: int | None
    study: str | None
    read_bytes: int = 0
    read_lines: int = 0
    prefix_sum: str = _SUM_OF_NOTHING
    size_bytes: int = -1
    modified_ns: int = -1
    quarantined: str | None = None

    def quarantine(self, reason: str) -> None:
        """For damage: keeps the reason, and nothing that depends on what had been read before it was found."""
        self.quarantined = reason
        self.read_bytes, self.read_lines, self.prefix_sum = 0, 0, _SUM_OF_NOTHING


def to_stderr(message: str) -> None:
    """The default voice of a collector."""
    print(f"isobudget: {message}", file=sys.stderr, flush=True)


def collect(runs: RunsFolder, wait: bool = True, say: Say = to_stderr) -> CollectReport:
    """Reads every attempt's and every study's log on from where it was left.

    A second collector says so and waits, or returns with `busy` where `wait` is false. An InputError when
    the store cannot be written, or is open in another program.
    """
    report = CollectReport()

    def tell(message: str) -> None:
        report.messages.append(message)
        say(message)

    with sole_collector(runs, wait, tell) as held:
        report.busy = not held
        if held:
            _with_store(runs, report, tell, lambda store: None)
    return report


def publish(runs: RunsFolder, wait: bool = True, say: Say = to_stderr) -> bool:
    """Replaces the snapshot by one of what was collected. False where another collector was not waited for."""
    with sole_collector(runs, wait, say) as held:
        if held:
            _with_store(runs, CollectReport(), say, lambda store: build_snapshot(store, runs.snapshot), read=False)
    return held


def _with_store(
    runs: RunsFolder,
    report: CollectReport,
    say: Say,
    use: Callable[[duckdb.DuckDBPyConnection], None],
    read: bool = True,
) -> None:
    """Opens the store, reads the logs on (always into a new store), and uses it; a damaged one is rebuilt, once."""
    try:
        new = not runs.database.exists()
        with open_database(runs) as store:
            if read or new:
                _read_logs(runs, store, report, say)
            use(store)
    except DamagedStore as damage:
        set_aside(runs)
        say(f"the store is rebuilt from the events, the old one set aside as broken.duckdb: {damage}")
        report.events = 0
        with open_database(runs) as store:
            _read_logs(runs, store, report, say)
            use(store)


def _read_logs(runs: RunsFolder, store: duckdb.DuckDBPyConnection, report: CollectReport, say: Say) -> None:
    columns = ", ".join(_File.__dataclass_fields__)
    known = {row[0]: _File(*row) for row in store.execute(f"SELECT {columns} FROM files").fetchall()}
    found = {file.path: file for file in _files_on_disk(runs)}
    _forget(store, sorted(known.keys() - found.keys()), say)
    report.files, report.quarantined = len(found), {}
    batch: list[tuple[_File, list[Event]]] = []
    batch_events = 0
    for path, unread in found.items():
        file = known.get(path, unread)
        doubted_before, modified_before = file.quarantined, file.modified_ns
        new = _read_on(runs.root / path, file)
        if file.quarantined != doubted_before:
            say(
                f"{path} is quarantined: {file.quarantined}; what it tells is left out of every table"
                if file.quarantined
                else f"{path} is sound again, and read"
            )
        if new or file.quarantined != doubted_before or path not in known or file.modified_ns != modified_before:
            batch.append((file, new))
            batch_events += len(new)
        if file.quarantined:
            report.quarantined[path] = file.quarantined
        if batch_events >= _BATCH_EVENTS:
            report.events += _store_batch(store, batch)
            batch, batch_events = [], 0
    report.events += _store_batch(store, batch)
    _tell_quarantine(runs, report.quarantined)


def _files_on_disk(runs: RunsFolder) -> Iterator[_File]:
    # All paths are listed before any log is read: an attempt on the list resumed from lines written before.
    for path in runs.attempt_logs():
        attempt = path.parent
        if attempt.name.isascii() and attempt.name.isdigit():
            cell = attempt.parent.parent.name
            yield _File(_relative(runs, path), "attempt", cell, int(attempt.name), None)
    for path in runs.study_logs():
        yield _File(_relative(runs, path), "study", None, None, path.parent.name)


def _relative(runs: RunsFolder, path: Path) -> str:
    return path.relative_to(runs.root).as_posix()


def _read_on(path: Path, file: _File) -> list[Event]:
    """The events that a log has grown by; moves `file` on, or quarantines it and gives none.

    A log in quarantine is looked at in full: it may have been restored. One whose size and time of modification are
    as they were is not opened.
    """
    try:
        before = path.stat()
        if not file.quarantined and (before.st_size, before.st_mtime_ns) == (file.size_bytes, file.modified_ns):
            return []
        data = path.read_bytes()
        file.size_bytes, file.modified_ns = before.st_size, before.st_mtime_ns
    except OSError as error:
        raise InputError(f"a log cannot be read: {error.strerror}", "a readable file", str(path)) from None
    hasher = hashlib.sha256(data[: file.read_bytes])
    changed = hasher.hexdigest() != file.prefix_sum
    offset, lines = file.read_bytes, file.read_lines
    if changed or file.quarantined:
        offset, lines, hasher = 0, 0, hashlib.sha256()
    try:
        log = parse_events(data[offset:], file.path, offset, lines)
        for event in log.events:
            _believe(event, file)
    except EventLogError as error:
        file.quarantine(error.what)
        return []
    if changed:  # what was read before stays known: only the log that it was read from can come back
        file.quarantined = f"its first {file.read_bytes} bytes are not those that were read before"
        return []
    hasher.update(data[offset : log.whole_bytes])
    file.quarantined = None
    file.read_bytes, file.read_lines, file.prefix_sum = log.whole_bytes, lines + len(log.events), hasher.hexdigest()
    return log.events


def _believe(event: Event, file: _File) -> None:
    """Raises an EventLogError for an event that is not what the schema says, or of another cell."""
    wrong = complaint(event)
    if wrong is None and file.log == "attempt" and event.seq == 0:
        owner = (event.payload.get("cell"), event.payload.get("attempt"))
        if event.kind != "attempt_started" or owner != (file.cell, file.attempt):
            wrong = f"is not the start of attempt {file.attempt} of cell {file.cell}"
    if wrong is not None:
        raise EventLogError(wrong, file.path, event.seq + 1)


def _store_batch(store: duckdb.DuckDBPyConnection, batch: list[tuple[_File, list[Event]]]) -> int:
    """Rows and offsets in one transaction; a quarantined log's earlier rows go. Returns how many events came."""
    if not batch:
        return 0
    rows = [
        {
            "path": file.path,
            "seq": event.seq,
            "kind": event.kind,
            "time": event.envelope["time"],
            "payload": canonical(event.payload),
            "measured": canonical(event.measured),
        }
        for file, events in batch
        for event in events
    ]
    store.register("new_events", pa.Table.from_pylist(rows, schema=_EVENT_COLUMNS))
    store.register("new_files", pa.Table.from_pylist([asdict(file) for file, _ in batch]))
    store.execute("BEGIN")
    store.execute("DELETE FROM events WHERE path IN (SELECT path FROM new_files WHERE quarantined IS NOT NULL)")
    store.execute("INSERT INTO events SELECT * FROM new_events")
    store.execute("INSERT OR REPLACE INTO files BY NAME SELECT * FROM new_files")
    store.execute("COMMIT")
    return len(rows)


def _tell_quarantine(runs: RunsFolder, reasons: dict[str, str]) -> None:
    """By path, why: so that states.py calls a run failed where tables do."""
    aside = runs.quarantine.with_suffix(".tmp")
    try:
        aside.write_text(json.dumps(reasons))
        aside.replace(runs.quarantine)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise InputError(
            f"the store cannot be written ({error.strerror})", "room on the disk", str(runs.quarantine)
        ) from None


def _forget(store: duckdb.DuckDBPyConnection, paths: list[str], say: Say) -> None:
    """Logs that are no longer there take their rows with them, as in a store built anew."""
    for path in paths:
        say(f"{path} is gone, and its rows with it")
        store.execute("BEGIN")
        store.execute("DELETE FROM events WHERE path = ?", [path])
        store.execute("DELETE FROM files WHERE path = ?", [path])
        store.execute("COMMIT")
