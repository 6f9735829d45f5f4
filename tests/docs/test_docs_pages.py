"""Every page: links lead somewhere, commands and make targets exist, the README's study is in order."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from docs_pages import PAGES, ROOT, blocks, prose

from harness.cli.app import app
from harness.study.load import load_study

COMMANDS = typer.main.get_command(app).commands
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
VARIABLES = set(re.findall(r"^([A-Z_]+) *\?=", MAKEFILE, re.MULTILINE))

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def anchors(page: Path) -> set[str]:
    """Of a page's headings, as GitHub makes them; a repeated one gets a number."""
    found: set[str] = set()
    seen: Counter[str] = Counter()
    for heading in re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE):
        anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        found.add(f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor)
        seen[anchor] += 1
    return found


def commands(page: Path) -> Iterator[list[str]]:
    """The words of every command line in inline code and in shell blocks, from `isobudget` or `make` on."""
    inline = re.findall(r"`([^`]+)`", prose(page))
    for line in [*inline, *"\n".join(blocks(page, "sh")).splitlines()]:
        found = re.search(r"(?:^|[\s/])(isobudget|make)((?: +[^\s#]+)+)", line.replace("\n", " ").partition(" #")[0])
        if found:
            yield found[0].strip().lstrip("/").split()


@each_page
def test_links_lead_somewhere(page: Path):
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", prose(page))):
        if re.match(r"https?:", target):
            continue
        path, _, anchor = target.partition("#")
        to = (page.parent / path).resolve() if path else page
        assert to.exists(), target
        assert to.is_relative_to(ROOT), target
        if anchor:
            assert anchor in anchors(to), target


@each_page
def test_commands_and_their_options_exist(page: Path):
    for program, *words in commands(page):
        if program == "make":
            for word in words:
                assert (word.partition("=")[0] in VARIABLES) if "=" in word else (word in TARGETS), words
        elif words[0] != "--help":
            assert words[0] in COMMANDS, words
            options = {option for parameter in COMMANDS[words[0]].params for option in parameter.opts}
            for word in words[1:]:
                assert not word.startswith("-") or word in options, words


def test_the_readme_shows_commands_for_the_whole_way():
    shown = {" ".join(words[:2]) for words in commands(ROOT / "README.md")}
    assert {"make sweep", "make test", "make setup", "isobudget check", "isobudget lock"} <= shown


def test_every_command_line_variable_of_the_pages_is_one_of_the_makefile():
    text = "\n".join(map(prose, PAGES)) + "\n".join(block for page in PAGES for block in blocks(page, "sh"))
    used = set(re.findall(r"\b([A-Z_]+)=\S+ make\b", text)) | set(re.findall(r"make \w+ ([A-Z_]+)=", text))
    assert used >= {"PYTHON", "TORCH_INDEX", "STUDY", "RUNS"}
    assert used <= VARIABLES


def test_the_readmes_study_is_in_order(tmp_path: Path):
    (tmp_path / "mine.yaml").write_text(blocks(ROOT / "README.md", "yaml")[0])
    loaded = load_study(tmp_path / "mine.yaml")
    assert [claim.kind for claim in loaded.claims] == ["directional", "rank-flip"]
    assert not loaded.warnings
