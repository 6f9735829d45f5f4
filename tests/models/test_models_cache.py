"""Folders made once: by one of many processes, whole or not at all."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.models.cache import cached

MAKER = """
import os, sys, time
from pathlib import Path
from harness.models.cache import cached
cache = Path(sys.argv[1])
def make(folder):
    with (cache / "made").open("a") as made:
        made.write(f"{os.getpid()}\\n")
    (folder / "first").write_text("1")
    time.sleep(0.5)
    (folder / "second").write_text("2")
folder = cached(cache, {"recipe": 1}, make)
print(sorted(path.name for path in folder.iterdir()))
"""


def test_four_processes_at_once_make_a_folder_once_and_all_see_it_whole(tmp_path: Path) -> None:
    command = [sys.executable, "-c", MAKER, str(tmp_path)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    told = [process.communicate(timeout=60)[0] for process in running]
    assert told == ["['first', 'key.json', 'second']\n"] * 4
    assert len((tmp_path / "made").read_text().splitlines()) == 1


def test_keys_that_differ_have_folders_that_differ_and_say_which_is_which(tmp_path: Path) -> None:
    folders = [cached(tmp_path, {"rate": rate}, lambda _: None) for rate in (0.1, 0.2, 0.1)]
    assert folders[0] == folders[2] != folders[1]
    assert json.loads((folders[1] / "key.json").read_text()) == {"rate": 0.2}


def test_what_a_failed_or_killed_maker_left_is_not_taken_for_the_folder(tmp_path: Path) -> None:
    def fails(folder: Path) -> None:
        (folder / "half").write_text("")
        raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        cached(tmp_path, {"recipe": 1}, fails)
    folder = cached(tmp_path, {"recipe": 1}, lambda folder: (folder / "whole").touch())
    assert sorted(path.name for path in folder.iterdir()) == ["key.json", "whole"]
