"""From places in a completion's text to places between its tokens.

Tasks say where steps end in characters; interventions need token positions. A step that ends inside a token ends
with that token.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate


def positions(pieces: Sequence[str], ends: Iterable[int]) -> list[int]:
    """Token positions b, strictly increasing, 0 < b < T, for step ends given as character offsets.

    `pieces` is the text of each of the T tokens. End e maps to the first b whose tokens before it hold at least e
    characters; ends at the start or at the completion's end are left out.
    """
    lengths = list(accumulate(len(piece) for piece in pieces))
    found = {bisect_left(lengths, end) + 1 for end in ends if end > 0}
    return sorted(position for position in found if position < len(pieces))
