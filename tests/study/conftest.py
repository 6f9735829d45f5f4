"""A small study that is in order, and a way to write a spoiled copy of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from small_study import STUDY

from harness.errors import InputError
from harness.study.load import load_study

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes STUDY with replacements (old=new pairs, each of which must apply) and returns its path."""

    def written(*replacements: tuple[str, str], text: str = STUDY) -> Path:
        for old, new in replacements:
            assert text.count(old) == 1, f"{old!r} is there {text.count(old)} times"
            text = text.replace(old, new)
        folder = tmp_path / "preregistrations"
        folder.mkdir(exist_ok=True)
        path = folder / "small.yaml"
        path.write_text(text, encoding="utf-8", newline="")
        return path

    return written


@pytest.fixture
def problems(write: Write) -> Callable[..., list[str]]:
    """The problems of a spoiled copy, each without the file's name: ``line:column: field: what; right``."""

    def found(*replacements: tuple[str, str], text: str = STUDY) -> list[str]:
        path = write(*replacements, text=text)
        with pytest.raises(InputError) as caught:
            load_study(path)
        return [str(problem).removeprefix(f"{path}:") for problem in caught.value.problems]

    return found
