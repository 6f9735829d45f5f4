"""Whether a run failed because the disk refused: then it is the infrastructure's fault, not the run's own.

What that costs is spent, and no arm is charged for it (docs/method.md, section 2, rule 4).
"""

from __future__ import annotations

import errno
from typing import Final

from harness.events.attempts import Fault

_REFUSALS: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.ESTALE}


def fault_in(error: BaseException) -> Fault | None:
    """`infrastructure` where a refusal of the disk is what the error comes from; None: the run's own."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in _REFUSALS:
            return "infrastructure"
        cause = cause.__cause__ or cause.__context__
    return None
