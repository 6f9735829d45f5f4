"""The lock: what was promised, when the code was what, and under which mode a sweep of it may call itself.

A lock is a JSON file beside the study with the study in canonical form and its hash, so that it can be read and
checked without this program. What a lock cannot prove by itself (that it was not made afterwards) is for the
commit's public date to show.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

from harness.errors import InputError
from harness.events.reader import read_events
from harness.events.schema import Event
from harness.events.writer import EventWriter
from harness.layout import RunsFolder
from harness.study.canonical import canonical_hash, canonical_json
from harness.study.load import LoadedStudy
from harness.study.repository import (
    CodeState,
    code_hash,
    code_state,
    in_repository,
    is_committed,
    runs_may_differ,
)

__all__ = ["Lock", "Mode", "code_hash", "code_state", "difference", "lock", "lock_path", "mode_of", "read_lock"]

FORMAT: Final = 1

ModeName = Literal["confirmatory", "exploratory", "reproduction"]


@dataclass(frozen=True)
class Lock:
    """The content of a lock file."""

    format: int
    study: str
    hash: str
    """SHA-256 (hex) of the canonical JSON of `content`."""
    source_sha256: str
    """Of the YAML file's bytes, to tell how a file of equal hash differs."""
    text_sha256: str
    """Of its text without byte order mark, line ends normalised."""
    code_commit: str | None
    code_dirty: bool
    code_hash: str
    token: str
    """Random; in the study log of the runs folder that made the lock."""
    content: dict[str, Any]
    """`LoadedStudy.resolved`."""


@dataclass(frozen=True)
class Mode:
    """How a sweep of a study may be called, and why."""

    name: ModeName
    reason: str
    lock_hash: str | None
    """None when there is no lock of this content."""


def lock_path(study: Path) -> Path:
    """``<study>.lock.json`` beside the study file."""
    return study.with_name(f"{study.stem}.lock.json")


def lock(loaded: LoadedStudy, runs: RunsFolder, *, force: bool = False, code: CodeState | None = None) -> Lock:
    """Locks a study: tells the study log, then writes the file beside the study.

    A study that is locked with this content already stays as it is, and nothing is recorded: locking again would
    make a reproduction look like the first sweep. A lock of other content is refused, unless `force`.
    """
    path = lock_path(loaded.path)
    if path.exists() and not force:
        held = read_lock(path)
        if held.hash == loaded.hash:
            return held
        raise InputError(
            f"{loaded.path.name} is locked with other content ({held.hash[:12]}, now {loaded.hash[:12]})",
            "keep the study as locked, write a new one, or replace the lock with --force",
            str(path),
        )
    code = code or code_state()
    made = Lock(
        format=FORMAT,
        study=loaded.name,
        hash=loaded.hash,
        source_sha256=hashlib.sha256(loaded.raw).hexdigest(),
        text_sha256=_text_sha256(loaded.raw),
        code_commit=code.commit,
        code_dirty=code.dirty,
        code_hash=code.hash,
        token=secrets.token_hex(16),
        content=json.loads(canonical_json(loaded.resolved)),
    )
    with EventWriter(runs.create().study_log(loaded.name)) as log:
        log.append("study_locked", {"study": loaded.name, "lock_hash": made.hash, "token": made.token})
        log.sync()
    aside = path.with_suffix(".tmp")
    try:
        aside.write_text(json.dumps(asdict(made), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        aside.replace(path)
    except OSError as error:
        raise InputError(f"the lock cannot be written: {error.strerror}", "a writable folder", str(path)) from None
    return made


def read_lock(path: Path) -> Lock:
    """A lock file, checked against its own hash; an InputError when it is none, or was edited."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        held = Lock(**found)
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"not a lock file ({error})", "a file written by `isobudget lock`", str(path)) from None
    if held.format != FORMAT:
        raise InputError(f"lock format {held.format}, this program reads {FORMAT}", "another version", str(path))
    if canonical_hash(held.content) != held.hash:
        raise InputError(
            "the lock's content does not match its hash", "the file as it was locked, from git", str(path)
        )
    return held


def difference(loaded: LoadedStudy, held: Lock) -> Literal["none", "line ends", "comments or layout", "content"]:
    """How the study file differs from the one that was locked; only `content` changes the hash."""
    if loaded.hash != held.hash:
        return "content"
    if hashlib.sha256(loaded.raw).hexdigest() == held.source_sha256:
        return "none"
    return "line ends" if _text_sha256(loaded.raw) == held.text_sha256 else "comments or layout"


def mode_of(loaded: LoadedStudy, runs: RunsFolder, code: CodeState | None = None) -> Mode:
    """The mode of a sweep that starts now: confirmatory only when nothing speaks against it."""
    path = lock_path(loaded.path)
    if not path.exists():
        return Mode("exploratory", "the study is not locked", None)
    try:
        held = read_lock(path)
    except InputError as error:
        return Mode("exploratory", f"the lock cannot be used: {error.problems[0].what}", None)
    if held.hash != loaded.hash:
        return Mode("exploratory", "the study was changed since it was locked", None)
    code = code or code_state()
    against = next(_reasons_against(loaded, path, code), None)
    if against:
        return Mode("exploratory", against, held.hash)
    since = "; the code was changed since the lock" if _runs_differ(held, code) else ""
    if _made_lock(runs, held):
        return Mode("confirmatory", f"locked and committed before the sweep, code unmodified{since}", held.hash)
    return Mode("reproduction", f"the lock was made elsewhere: same study, same seeds, run again{since}", held.hash)


def _runs_differ(held: Lock, code: CodeState) -> bool:
    """Whether runs may come out otherwise than with the code of the lock: not if only other code was changed."""
    if code.hash == held.code_hash:
        return False
    return held.code_commit is None or held.code_dirty or runs_may_differ(held.code_commit)


def _reasons_against(loaded: LoadedStudy, lock_file: Path, code: CodeState) -> Iterator[str]:
    """Why a study with a lock that fits is exploratory all the same."""
    if loaded.study.evaluate.pool == "tuning":
        yield "the study is evaluated on the tuning pool"
    if not in_repository(loaded.path.absolute().parent):
        yield "the study is not in a git repository"
    if not is_committed(lock_file, unchanged=True):
        yield "the lock is not committed"
    if not is_committed(loaded.path, unchanged=False):
        yield "the study file is not committed"
    if code.commit is None:
        yield "the code is not in a git repository"
    if code.dirty:
        more = f" and {len(code.changed) - 1} more" if len(code.changed) > 1 else ""
        yield f"the working tree has uncommitted changes: {code.changed[0]}{more}"


def _made_lock(runs: RunsFolder, held: Lock) -> bool:
    """Whether this runs folder's study log holds the lock's token."""
    log = runs.study_log(held.study)
    return log.exists() and any(_is_of(event, held) for event in read_events(log).events)


def _is_of(event: Event, held: Lock) -> bool:
    return event.kind == "study_locked" and event.payload.get("token") == held.token


def _text_sha256(raw: bytes) -> str:
    return hashlib.sha256(raw.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n")).hexdigest()
