"""Hard ceilings of a run, where the sweep as a whole is capped: beyond them it ends, whatever it has not reached.

Generated tokens never pass theirs: nothing is sampled that could. Other currencies are looked at once per update.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from harness.rollout.protocol import Request
from harness.study.milestones import amount_text
from harness.train.record import Charge


class CeilingReached(Exception):
    """The run must end here. Not an error: it is told as the run's end."""


class Ceilings:
    """`amounts` by currency; `charge` gives what the run has been charged so far, of the kinds in `charged`."""

    def __init__(self, amounts: Mapping[str, float], charged: Collection[str], charge: Callable[[], Charge]):
        self._amounts = amounts
        self._charged = charged
        self._charge = charge

    def allow(self, requests: Sequence[Request]) -> None:
        """`CeilingReached` where the requests could take the run beyond its ceiling in generated tokens."""
        most = self._amounts.get("generated_tokens")
        if most is None:
            return
        asked = sum(request.sampling.max_new_tokens for request in requests if request.purpose in self._charged)
        if asked and self._charge()["generated_tokens"] + asked > most:
            raise CeilingReached(f"the ceiling of {amount_text(most)} generated_tokens")

    def check(self) -> None:
        """`CeilingReached` where the charge has passed any ceiling."""
        charge = self._charge()
        for currency, most in self._amounts.items():
            if charge[currency] > most:
                raise CeilingReached(f"the ceiling of {amount_text(most)} {currency}")
