"""What a worker exits with. A launcher's states follow the log; these are for shells, people and the case
where there is no log."""

from __future__ import annotations

from typing import Final

EXIT_COMPLETED: Final = 0
EXIT_FAILED: Final = 1
EXIT_BAD_INPUT: Final = 2
EXIT_LEASE_HELD: Final = 3
EXIT_INTERRUPTED: Final = 75
"""Can go on: EX_TEMPFAIL of sysexits.h."""
