"""When a failed call is repeated."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Callable, Optional

from .errors import Overloaded, SluiceError, is_away
from .options import check_names

_UNAVAILABLE_ATTEMPTS = 4
_SPREAD = 0.1  # of the delay in a refusal
_MOST_DOUBLED = 64  # times that the delay doubles


@check_names
@dataclass(frozen=True)
class Retry:
    """How often and how soon a failed call is repeated.

    If the daemon refuses a call because it is overloaded, the client repeats it after the delay in
    the refusal, until the call's deadline; without a delay it does not repeat the call. If the
    daemon is unavailable, or ends a call as it stops, the client waits a random time of up to
    `backoff_s`, which doubles with each attempt. A call is not repeated if its deadline would pass
    first.

    `attempts` limits the attempts of a call. None limits them only while the daemon is unavailable,
    to 4.
    """

    attempts: Optional[int] = None
    backoff_s: float = 0.1
    max_backoff_s: float = 5.0

    def __post_init__(self) -> None:
        most = self.attempts
        if most is not None and (not isinstance(most, int) or most < 1):
            raise ValueError(f"attempts is {most!r}; expected an integer of at least 1, or None")
        for name in ("backoff_s", "max_backoff_s"):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or not value >= 0:
                raise ValueError(f"{name} is {value!r}; expected a number of at least 0")

    def delay_s(
        self,
        error: SluiceError,
        failures: int,
        away: int,
        remaining_s: float,
        draw: Callable[[], float] = random.random,
    ) -> Optional[float]:
        """Returns the seconds to wait before the next attempt, or None if there is none.

        `failures` is the number of attempts made so far, and `away` the number of those that failed
        because the daemon was unavailable. `draw` returns a number in [0, 1).
        """
        most = self.attempts
        if isinstance(error, Overloaded) and error.retry_after_s is not None:
            # Calls that were refused together are not repeated together.
            delay = error.retry_after_s * (1 + _SPREAD * draw())
        elif is_away(error):
            if most is None and away >= _UNAVAILABLE_ATTEMPTS:
                return None
            doubled = 2.0 ** min(away - 1, _MOST_DOUBLED)
            delay = draw() * min(self.backoff_s * doubled, self.max_backoff_s)
        else:
            return None
        if most is not None and failures >= most:
            return None
        return delay if delay < remaining_s else None


NEVER = Retry(attempts=1)
