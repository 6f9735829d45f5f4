"""All randomness comes from here: 64-bit seeds hashed from names, so that no two purposes share a stream.

Neighbouring run seeds must not give neighbouring streams, and adding a purpose must not shift another
one's draws; hashing the full list of names gives both.
"""

from __future__ import annotations

import hashlib
import json

SeedPart = int | str


def hashed_seed(*names: SeedPart) -> int:
    """A seed in [0, 2**64) that depends on every name and on their order.

    Integers and texts never collide (``1`` is not ``"1"``), and neither do ("ab", "c") and ("a", "bc").
    """
    text = json.dumps(names, ensure_ascii=True, separators=(",", ":"))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
