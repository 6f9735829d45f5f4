"""Claims in testable form: a grammar of three sentences, read into records that the analysis judges.

    accuracy(A) > accuracy(B) [by N points] at POINT        directional; also <
    accuracy(A) = accuracy(B) within N points at POINT      equivalence
    rank flip from A at POINT to B at POINT                 A ahead at the first point, behind B at the second

    POINT: 50 updates | 300_000 generated_tokens | 1e12 flops | 100% of generated_tokens

Arms are checked against the study's, points against its milestones. What counts as support is docs/method.md,
section 7.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, Final, Literal

from harness.compute.kinds import CURRENCIES
from harness.errors import brief
from harness.study.cell import Milestone
from harness.study.milestones import amount_at, milestone_text
from harness.study.numbers import parse_number
from harness.study.suggest import did_you_mean

_WORD: Final = re.compile(r"\s*([A-Za-z0-9._+-]+|\S)")
_FORMS: Final = {
    "directional": "accuracy(A) > accuracy(B) [by N points] at POINT",
    "equivalence": "accuracy(A) = accuracy(B) within N points at POINT",
    "rank-flip": "rank flip from A at POINT to B at POINT",
}


class ClaimError(ValueError):
    """A claim that cannot be read. `offset`: the character where it goes wrong, from 0."""

    def __init__(self, offset: int, what: str, right: str):
        super().__init__(f"{what}; {right}")
        self.offset, self.what, self.right = offset, what, right


@dataclass(frozen=True)
class Point:
    """A milestone that a claim speaks of."""

    currency: str
    amount: float


@dataclass(frozen=True)
class Claim:
    """One claim, resolved: arms by name, points in absolute amounts."""

    id: str
    statement: str
    text: str
    """As written, white space normalised."""
    kind: Literal["directional", "equivalence", "rank-flip"]
    a: str
    """The arm named first; in a rank flip the one ahead at `at` and behind at `then`."""
    b: str
    relation: Literal[">", "<"] | None
    """Directional: accuracy of a against accuracy of b."""
    margin_points: float
    """Percentage points: directional, by how much at least; equivalence, within which."""
    at: Point
    then: Point | None
    """The second point of a rank flip."""
    model: str | None
    sides: int = 1

    def record(self) -> dict[str, Any]:
        """Plain values for the plan: all that the analysis reads of a claim."""
        return asdict(self)


class ClaimGrammar:
    """Reads the claims of one study."""

    def __init__(self, arms: Sequence[str], milestones: Sequence[Milestone], budgets: Mapping[str, float]):
        self.arms = arms
        self.milestones = milestones
        self.budgets = budgets

    def read(self, text: str, id: str = "", statement: str = "", model: str | None = None) -> Claim:
        """The claim that `text` makes, or a ClaimError at the first word that does not fit."""
        return _Reader(self, text).claim(id, statement, model)


class _Reader:
    """One pass over one claim's words."""

    def __init__(self, grammar: ClaimGrammar, text: str):
        self._grammar = grammar
        self._text = text
        self._words = [(found.start(1), found[1]) for found in _WORD.finditer(text)]
        self._next = 0

    def claim(self, id: str, statement: str, model: str | None) -> Claim:
        text = " ".join(self._text.split())
        if self._peek() == "rank":
            a, b, at, then = self._rank_flip()
            return Claim(id, statement, text, "rank-flip", a, b, None, 0.0, at, then, model)
        a = self._accuracy()
        relation = self._take(">", "<", "=")
        b = self._accuracy(other_than=a)
        margin = 0.0
        if relation == "=":
            self._take("within")
            margin = self._points()
        elif self._take("by", "at") == "by":
            margin = self._points()
        if margin:
            self._take("at")
        at = self._point()
        self._end()
        if relation == "=":
            return Claim(id, statement, text, "equivalence", a, b, None, margin, at, None, model)
        return Claim(
            id, statement, text, "directional", a, b, ">" if relation == ">" else "<", margin, at, None, model
        )

    def _rank_flip(self) -> tuple[str, str, Point, Point]:
        for word in ("rank", "flip", "from"):
            self._take(word)
        a = self._arm()
        self._take("at")
        at = self._point()
        self._take("to")
        b = self._arm(other_than=a)
        self._take("at")
        start = self._offset()
        then = self._point()
        if then == at:
            raise ClaimError(start, "the same point twice", "a flip is between two points: give two")
        self._end()
        return a, b, at, then

    def _accuracy(self, other_than: str | None = None) -> str:
        self._take("accuracy")
        self._take("(")
        arm = self._arm(other_than)
        self._take(")")
        return arm

    def _arm(self, other_than: str | None = None) -> str:
        offset, word = self._offset(), self._word("an arm")
        if word not in self._grammar.arms:
            raise ClaimError(offset, f"no arm is called {brief(word)!r}", did_you_mean(word, self._grammar.arms))
        if word == other_than:
            raise ClaimError(offset, f"arm {word!r} is compared with itself", "name two arms")
        return word

    def _points(self) -> float:
        margin, offset = self._number("a number of points")
        if not 0 < margin <= 100:
            raise ClaimError(offset, f"a margin of {float(margin):g} points", "above 0 and at most 100")
        self._take("points", "point")
        return float(margin)

    def _point(self) -> Point:
        number, offset = self._number("a milestone")
        if number <= 0:
            raise ClaimError(offset, f"a milestone at {float(number):g}", "an amount above 0")
        if self._peek() == "%":
            self._take("%")
            self._take("of")
            currency = self._take(*CURRENCIES)
            budgets = self._grammar.budgets
            if currency not in budgets:
                raise ClaimError(offset, f"no budget is given in {currency}", f"budgets are in: {', '.join(budgets)}")
            amount = amount_at(currency, budgets[currency], number / 100)
        else:
            currency = self._take(*CURRENCIES)
            amount = int(number) if number.denominator == 1 else float(number)
        declared = [milestone for milestone in self._grammar.milestones if milestone.currency == currency]
        if not any(milestone.amount == amount for milestone in declared):
            known = ", ".join(map(milestone_text, declared or self._grammar.milestones))
            what = f"{brief(self._text[offset : self._ended_at()])} is not a declared milestone"
            raise ClaimError(offset, what, f"declared: {known}; add others under `evaluate`")
        return Point(currency, amount)

    def _number(self, meaning: str) -> tuple[Fraction, int]:
        offset, word = self._offset(), self._word(meaning)
        number = parse_number(word)
        if number is None:
            raise ClaimError(
                offset, f"found {brief(word)!r} where {meaning} is due", "a number such as 50, 300_000, 1.5M or 1e6"
            )
        return Fraction(str(number)), offset

    def _take(self, *expected: str) -> str:
        offset = self._offset()
        wanted = " or ".join(f"`{word}`" for word in expected)
        word = self._word(wanted)
        if word not in expected:
            raise ClaimError(offset, f"found {brief(word)!r} where {wanted} is due", self._forms())
        return word

    def _word(self, meaning: str) -> str:
        if self._next == len(self._words):
            raise ClaimError(self._offset(), f"the claim ends where {meaning} is due", self._forms())
        self._next += 1
        return self._words[self._next - 1][1]

    def _end(self) -> None:
        if self._next < len(self._words):
            raise ClaimError(self._offset(), f"{brief(self._words[self._next][1])!r} is left over", self._forms())

    def _peek(self) -> str:
        return self._words[self._next][1] if self._next < len(self._words) else ""

    def _offset(self) -> int:
        return self._words[self._next][0] if self._next < len(self._words) else len(self._text)

    def _ended_at(self) -> int:
        offset, word = self._words[self._next - 1]
        return offset + len(word)

    def _forms(self) -> str:
        return "a claim reads: " + " | ".join(_FORMS.values())
