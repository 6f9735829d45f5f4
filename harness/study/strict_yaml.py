"""YAML read strictly: what a key or value is follows from YAML 1.2's core schema, and nothing is guessed or lost.

`on`, `no` and `yes` are text; numbers are numbers.py's; duplicate keys, tags, anchors and several documents are
refused; every key and value keeps its line and column. PyYAML scans and parses (its events), the meaning of
scalars is ours. What the keys mean is left to the schema.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from harness.errors import InputError, Problem, brief
from harness.study.numbers import parse_number

KeyPath = tuple[str | int, ...]
"""Keys and list indices from the document's root, e.g. ("arms", "grpo", "training", "learning_rate")."""

_DEEPEST: Final = 30
"""Nesting levels; a study has six."""
_CORE: Final[dict[str, bool | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


@dataclass(frozen=True)
class Position:
    """A place in a text, both from 1."""

    line: int
    column: int


@dataclass
class Document:
    """A file's content, and where each part of it stands."""

    name: str
    """The file's name in messages."""
    lines: list[str]
    value: Any = None
    """dict, list, str, int, float, bool or None; keys are always text."""
    problems: list[Problem] = field(default_factory=list)
    """What was refused although the rest could be read: duplicate keys, tags, anchors."""
    values: dict[KeyPath, Position] = field(default_factory=dict)
    keys: dict[KeyPath, Position] = field(default_factory=dict)

    def where(self, path: KeyPath, offset: int = 0, *, key: bool = False) -> str:
        """``file:line:column`` of a value (or of its key), or of the nearest part around it that is there.

        `offset`: a character within a text value; ignored where the text is not written out on one line.
        """
        while path and path not in self.values:
            path, offset = path[:-1], 0
        at = (self.keys if key and path in self.keys else self.values).get(path, Position(1, 1))
        return f"{self.name}:{at.line}:{at.column + (0 if key else self._shift(path, at, offset))}"

    def at(self, path: KeyPath) -> Any:
        """The value at a path; KeyError, IndexError or TypeError when there is none."""
        value = self.value
        for part in path:
            value = value[part]
        return value

    def _shift(self, path: KeyPath, at: Position, offset: int) -> int:
        text = self.at(path) if offset else None
        if not isinstance(text, str):
            return 0
        rest = self.lines[at.line - 1][at.column - 1 :]
        quote = 1 if rest[:1] in ("'", '"') else 0
        return offset + quote if rest[quote:].startswith(text) else 0


def load(text: str, name: str) -> Document:
    """The document, or an InputError with everything that is wrong with it as YAML."""
    document = read(text, name)
    if document.problems:
        raise InputError(document.problems)
    return document


def read(text: str, name: str) -> Document:
    """The document with its `problems`; an InputError only where it cannot be read at all."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    document = Document(name, text.split("\n"))
    try:
        _Builder(document, yaml.parse(text, Loader=yaml.SafeLoader)).build()
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        raise InputError(
            f"unreadable character {chr(int(error.character))!r}", "plain text", f"{name}:{line}:{column}"
        ) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
        told = ", ".join(part for part in (error.context, error.problem) if part)
        raise InputError(f"not valid YAML: {told}", "see the line named and the one before it", where) from None
    return document


def read_file(path: Path, what: str) -> tuple[bytes, Document]:
    """(raw bytes, document) of a file; an InputError when it is not there, not a file or not UTF-8 text."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(f"the {what} cannot be read: {error.strerror}", "name a YAML file", str(path)) from None
    try:
        return raw, read(raw.decode("utf-8"), str(path))
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        column = error.start - raw.rfind(b"\n", 0, error.start)
        raise InputError("not UTF-8 text", "save the file as UTF-8", f"{path}:{line}:{column}") from None


class _Builder:
    """From parser events to plain values, positions and problems."""

    def __init__(self, document: Document, events: Iterator[yaml.Event]):
        self._document = document
        self._events = events

    def build(self) -> None:
        next(self._events)  # stream start
        event = next(self._events)
        if isinstance(event, yaml.StreamEndEvent):
            return
        self._document.value = self._value(next(self._events), ())
        next(self._events)  # document end
        event = next(self._events)
        if not isinstance(event, yaml.StreamEndEvent):
            self._refuse(event, (), "a second document begins", "one document to a file, without `---`")

    def _value(self, event: yaml.Event, path: KeyPath) -> Any:
        self._document.values[path] = _position(event)
        if isinstance(event, yaml.NodeEvent) and event.anchor:
            self._refuse(
                event, path, f"anchor or alias {brief(event.anchor)!r}", "write the value out where it is needed"
            )
        if isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent) and event.tag:
            self._refuse(event, path, f"tag {brief(event.tag)!r}", "a plain value without a tag")
        if len(path) > _DEEPEST:
            raise InputError(
                f"nested more than {_DEEPEST} deep", "a study has six levels", self._document.where(path)
            )
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(path)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(path)
        if isinstance(event, yaml.ScalarEvent):
            if not _is_text(event.value):
                self._refuse(event, path, "half a character (a lone surrogate)", "plain text")
                return None
            return event.value if event.style else _plain(event.value)
        return None  # an alias, refused above

    def _mapping(self, path: KeyPath) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                self._refuse(event, path, "a key that is not text", "a plain word as key")
                self._value(event, (*path, "?"))
                self._value(next(self._events), (*path, "?"))
                continue
            key, at = event.value, (*path, event.value)
            if event.anchor or event.tag:
                self._refuse(event, at, "an anchor or tag on a key", "a plain key")
            if not _is_text(key):
                self._refuse(event, path, "a key with half a character (a lone surrogate)", "a plain key")
                self._skip()
                continue
            if key in found:
                first = self._document.keys[at]
                self._refuse(
                    event,
                    at,
                    f"key {brief(key)!r} again, first on line {first.line}",
                    "give each key once: remove one of them",
                )
                self._skip()
                continue
            self._document.keys[at] = _position(event)
            found[key] = None
            found[key] = self._value(next(self._events), at)
        return found

    def _sequence(self, path: KeyPath) -> list[Any]:
        found: list[Any] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            found.append(self._value(event, (*path, len(found))))
        return found

    def _skip(self) -> None:
        """Passes over one value."""
        depth = 0
        while True:
            event = next(self._events)
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth == 0:
                return

    def _refuse(self, event: yaml.Event, path: KeyPath, what: str, right: str) -> None:
        at = _position(event)
        field_name = ".".join(brief(str(part)) for part in path)
        where = f"{self._document.name}:{at.line}:{at.column}"
        self._document.problems.append(Problem(what, right, field_name, where))


def _is_text(value: str) -> bool:
    """Whether every character is whole: an escape such as "\\ud800" can spell half of one."""
    return not any("\ud800" <= character <= "\udfff" for character in value)


def _plain(text: str) -> Any:
    if text in _CORE:
        return _CORE[text]
    number = parse_number(text)
    return text if number is None else number


def _position(event: yaml.Event) -> Position:
    mark = event.start_mark
    assert mark is not None  # every event of a parsed text has one
    return Position(mark.line + 1, mark.column + 1)
