"""When a call that failed is made again."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Callable, Optional

from .errors import Overloaded, SluiceError, Unavailable


@dataclass(frozen=True)
class Retry:
    """How often a call is made again, and after how long.

    A refusal for lack of room is repeated after the time that the daemon asks for, and not at all
    if it asks for none. A daemon that is not available is called again after a random time of up to
    `backoff_s`, which doubles each time. A call is not repeated if its deadline would pass first.
    """

    attempts: int = 4
    backoff_s: float = 0.1
    max_backoff_s: float = 5.0

    def delay_s(
        self,
        error: SluiceError,
        attempt: int,
        remaining_s: float,
        draw: Callable[[], float] = random.random,
    ) -> Optional[float]:
        """Returns how long to wait before the next attempt; None if there is none.

        `attempt` counts the attempts made, and `draw` returns a number in [0, 1).
        """
        if attempt >= self.attempts:
            return None
        if isinstance(error, Overloaded):
            delay = error.retry_after_s
        elif isinstance(error, Unavailable):
            delay = draw() * min(self.backoff_s * 2 ** (attempt - 1), self.max_backoff_s)
        else:
            return None
        return delay if delay is not None and delay < remaining_s else None


NEVER = Retry(attempts=1)
