"""The project's pages as tests read them: which there are, their code blocks, and their prose without code."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]

_BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    """The fenced code blocks of one language, in order, without their fences."""
    return [text for tag, text in _BLOCK.findall(page.read_text(encoding="utf-8")) if tag == language]


def prose(page: Path) -> str:
    """The page without its fenced blocks; inline code stays."""
    return _BLOCK.sub("", page.read_text(encoding="utf-8"))
