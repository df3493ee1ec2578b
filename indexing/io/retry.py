"""The one retry policy: which statuses of HTTP are tried again, how often, and after which pause.

Each client schedules its own requests; all of them take these rules and numbers from here.
"""

import math
import random
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from indexing.errors import Refused, Unreached, UserError

MOST_TRIES = 8
"""How often a client sends one request before its failure is final."""
FIRST_PAUSE_S = 0.5
"""The bound of the first pause; each further try doubles it."""
LONGEST_PAUSE_S = 10.0
"""The bound of every pause that a client chooses itself."""
LONGEST_REST_S = 60.0
"""The longest pause that a client grants to a server that asks for one."""
LONGEST_ASKED_S = 86_400.0
"""The longest pause that `retry_after` reads from a header."""
PATIENCE_S = 600.0
"""How long all requests to a cluster may fail before that is an error."""

BUSY = frozenset({408, 425, 429})
"""The server turns the request away for now."""
AWAY = frozenset({502, 503, 504, 529})
"""The server cannot do its work; another server may."""
CONTENT_REFUSALS = frozenset({400, 413, 422})
"""The server declines what the request holds."""


def is_overload(status: int) -> bool:
    """Whether the status says that the server, not the request, is at fault."""
    return status in BUSY or status in AWAY


def is_retryable(status: int) -> bool:
    """Whether the same request may succeed later."""
    return is_overload(status) or status >= 500


def tells_overload(error: UserError) -> bool:
    """Whether an error says that the server has too many requests at once."""
    return error.late if isinstance(error, Unreached) else isinstance(error, Refused) and is_overload(error.status)


def is_last(tries: int) -> bool:
    """Whether no further try follows after `tries` of one request."""
    return tries >= MOST_TRIES


def pause_before(tries: int, asked_s: float | None = None) -> float:
    """Seconds to wait after `tries` failures in a row: `asked_s` if the server asked for it, else a random pause."""
    return backoff(tries, LONGEST_PAUSE_S) if asked_s is None else asked_s


def backoff(tries: int, longest_s: float) -> float:
    """A random number of seconds below a bound that doubles with each of the `tries` (full jitter)."""
    return random.uniform(0, min(longest_s, FIRST_PAUSE_S * 2.0 ** min(tries - 1, 64)))


def asked_pause(headers: Mapping[str, str]) -> float | None:
    """The seconds that a server asks for by Retry-After, at most `LONGEST_REST_S`; None if it asks for none."""
    return min(retry_after(headers.get("Retry-After")) or 0.0, LONGEST_REST_S) or None


def retry_after(value: str | None, now: datetime | None = None) -> float | None:
    """The seconds of a Retry-After header, which holds seconds or a date, at most `LONGEST_ASKED_S`.

    None if there is no header, or none that can be read.
    """
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            date = parsedate_to_datetime(value)
            seconds = (date.replace(tzinfo=date.tzinfo or UTC) - (now or datetime.now(UTC))).total_seconds()
        except (ValueError, OverflowError, TypeError, IndexError):  # of years, hours and zones that do not exist
            return None
    return min(max(0.0, seconds), LONGEST_ASKED_S) if math.isfinite(seconds) else None
