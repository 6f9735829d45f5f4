"""A sweep that nobody watches: it goes on when the shell has ended, and has a command run when it is over."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from harness.errors import InputError
from harness.layout import RunsFolder


def in_the_background(runs: RunsFolder, study: str) -> tuple[int, Path]:
    """Starts this very command again without `--detach`, in a session of its own; its process id and log."""
    log = runs.study(study) / "sweep.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    arguments = [argument for argument in sys.argv[1:] if argument != "--detach"]
    with log.open("ab") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "harness.cli", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    return process.pid, log


def command_of(text: str) -> list[str]:
    """The words of a command, which is run as it is, through no shell; InputError for one that cannot be."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InputError(f"found {text!r} ({error})", "a command and its arguments", "--on-finish") from None
    if not words or shutil.which(words[0]) is None:
        raise InputError(f"found {text!r}", "a program that is there, and its arguments", "--on-finish")
    return words


def run_hook(words: list[str], study: str, exit_code: int) -> None:
    """Runs the command; how it fares changes nothing of the sweep."""
    told = {"ISOBUDGET_STUDY": study, "ISOBUDGET_EXIT_CODE": str(exit_code)}
    try:
        code = subprocess.run(words, env={**os.environ, **told}, stdin=subprocess.DEVNULL, check=False).returncode
    except OSError as error:
        print(f"warning: --on-finish: {error.strerror}: {words[0]}", file=sys.stderr)
        return
    if code:
        print(f"warning: --on-finish: {words[0]} ended with {code}", file=sys.stderr)
