"""Runs `isobudget` as a user would, in this process (fast) or in one of its own (limits, signals, imports)."""

from __future__ import annotations

import io
import json
import os
import resource
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.cli.app import main

REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True)
class Ran:
    """How a command ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """Standard output as JSON; fails when there is anything else in it."""
        return json.loads(self.out)

    def complaints(self) -> list[str]:
        """The lines of standard error."""
        return self.err.splitlines()


def isobudget(*arguments: object) -> Ran:
    """One command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main([str(argument) for argument in arguments])
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
    return Ran(code, out.getvalue(), err.getvalue())


def started(
    *arguments: object,
    module: str = "harness.cli",
    code: Path = REPOSITORY,
    file_limit_bytes: int | None = None,
    **environment: str,
) -> subprocess.Popen[str]:
    """One command begun in a process of its own, with the packages found in `code`.

    `file_limit_bytes`: no file may grow beyond it, which is as good as a full disk.
    """
    given = {"PYTHONPATH": str(code), "OMP_NUM_THREADS": "1", **environment}
    process = subprocess.Popen(
        [sys.executable, "-m", module, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **given},
        cwd=code,
    )
    if file_limit_bytes is not None:  # long before Python is up
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (file_limit_bytes, file_limit_bytes))
    return process


def finished(process: subprocess.Popen[str], timeout_seconds: float = 240) -> Ran:
    """Waits for a command begun by `started`; kills it when it takes too long."""
    try:
        out, err = process.communicate(timeout=timeout_seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
    return Ran(process.returncode, out, err)
