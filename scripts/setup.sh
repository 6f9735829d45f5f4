#!/bin/sh
# Makes the virtual environment named by the first argument: PYTHON (3.11 or later), pinned by constraints.txt.
# TORCH_INDEX names another package index for torch alone, for example one with CPU or CUDA builds.
set -eu
venv=$1
"$PYTHON" - <<'CODE' || { echo "setup: $PYTHON is too old; isobudget needs Python 3.11 or later (PYTHON=python3.12 make setup)" >&2; exit 2; }
import sys
sys.exit(sys.version_info < (3, 11))
CODE
[ -x "$venv/bin/python" ] || "$PYTHON" -m venv "$venv"
torch=$(sed -n 's/^torch==/torch==/p' constraints.txt)
echo "setup: installing pinned dependencies into $venv (minutes, once)"
# torch first, and by itself: asked for through another package, pip may prefer a much larger build of it.
if [ -n "${TORCH_INDEX:-}" ]; then
  "$venv/bin/pip" install --quiet --disable-pip-version-check --index-url "$TORCH_INDEX" "$torch"
else
  "$venv/bin/pip" install --quiet --disable-pip-version-check "$torch"
fi
"$venv/bin/pip" install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
