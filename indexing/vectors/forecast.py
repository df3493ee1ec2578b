"""The time and the space that the vectors or impacts of texts will take, by a trial on a few of them."""

from collections.abc import Callable, Sequence
from time import perf_counter

import numpy as np

from keystone.indexing.vectors.types import Effort, Forecast

FIRST_TEXTS = 8
"""The texts of the first trial. Each next one has twice as many."""
TRIAL_SECONDS = 0.5
"""A trial of this length is the last one: its speed is that of the whole work."""
TRIED_SHARE = 1 / 32
"""The most of all texts that a trial reads. A smaller work ends soon and is not tried."""


def foretell(step: str, texts: int, effort: Effort, measure: Callable[[Sequence[int]], int]) -> None:
    """Foretell a step over so many texts: `measure` makes its result for the texts in some places, in bytes.

    The trials take texts from everywhere, so their lengths are those of the whole. Nothing is tried if nobody wants a
    forecast, or if there are too few texts for one.
    """
    count = FIRST_TEXTS
    while effort.foretell and count <= texts * TRIED_SHARE:
        places = np.linspace(0, texts - 1, count).astype(np.int64).tolist()
        begun = perf_counter()
        size = measure(places)
        if (spent := perf_counter() - begun) > TRIAL_SECONDS or 2 * count > texts * TRIED_SHARE:
            effort.foretell(Forecast(step, texts, size * texts // count, spent * texts / count))
            return
        count *= 2
