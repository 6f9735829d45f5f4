"""A model folder saved by transformers, looked at from outside: is it whole, and which weights are they.

By file names and bytes only, without torch; loading it is models/folder.py's.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from harness.errors import InputError

NEEDED: Final = {
    "configuration": ("config.json",),
    "safetensors weights": ("*.safetensors",),
    "tokenizer": ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt"),
}
"""Part to the file patterns of which one must be there."""
_DETERMINING: Final = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja")


def missing_parts(folder: Path) -> list[str]:
    """What the folder lacks, e.g. ``tokenizer (tokenizer.json or ...)``; empty when it is whole."""
    return [
        f"{part} ({' or '.join(patterns)})"
        for part, patterns in NEEDED.items()
        if not any(True for pattern in patterns for _ in folder.glob(pattern))
    ]


def weights_hash(folder: Path) -> str:
    """SHA-256 (hex) over names and bytes of the files that determine the policy. Reads the weights once."""
    total = hashlib.sha256()
    for path in sorted({path for pattern in _DETERMINING for path in folder.glob(pattern) if path.is_file()}):
        try:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise InputError(f"the model cannot be read: {error.strerror}", "check the file", str(path)) from None
        total.update(f"{digest}  {path.name}\n".encode())
    return total.hexdigest()
