"""Bradley-Terry ratings of runs by maximum likelihood, with a first-slot term, and their intervals.

P(i, shown first, beats j) = 1 / (1 + exp(-(theta_i - theta_j + gamma))); a tie is half a win of either. The mean of
theta is 0, and a rating is 1000 + 400 / ln 10 * theta. Sources: Bradley and Terry, Biometrika 1952; the slot term of
Davidson and Beaver, Biometrics 1977; the sandwich of the package arena-rank 0.1.1.
"""

import math
from dataclasses import dataclass

import numpy as np

from keystone.runs.evaluation.resample import NORMAL_QUANTILE
from keystone.runs.trec.arrays import Floats

WON, LOST, TIED = range(3)
"""The places of outcomes in counts, for the run that was shown first."""
INITIAL_RATING = 1000.0
RATING_PER_THETA = 400 / math.log(10)
RIDGE = 0.1
"""The weight of theta**2 / 2 and gamma**2 / 2 where the battles leave a rating or gamma without bounds."""
SANDWICH_RIDGE_PER_BATTLE = 1e-5
"""What arena-rank adds to the diagonal of the information, for each battle."""
RESAMPLES, SEED = 1000, 2007
_MOST_STEPS, _LONGEST_STEP, _CLOSE = 200, 2.0, 1e-12


@dataclass(frozen=True, slots=True)
class Fit:
    """Ratings of runs: `theta` (float64[runs]), the first-slot term, the weight of the ridge, and the likelihood."""

    theta: Floats
    gamma: float
    ridge: float
    log_likelihood: float

    @property
    def ratings(self) -> Floats:
        """The ratings: float64[runs], with a mean of 1000."""
        return rate(self.theta)


def rate(theta: Floats) -> Floats:
    """Turn theta into ratings."""
    return INITIAL_RATING + RATING_PER_THETA * theta


def fit_ratings(counts: Floats, with_slot: bool = False, ridge: float | None = None) -> Fit:
    """Fit ratings to counts (float64[3, runs, runs]): how often the run of the row, shown first, won, lost and tied.

    With `with_slot`, gamma is fitted; else it is 0. If `ridge` is None, it is 0 where a finite maximum exists, and
    `RIDGE` elsewhere.
    """
    chosen = (0.0 if has_maximum(counts, with_slot) else RIDGE) if ridge is None else ridge
    parameters = _maximise(counts[None], np.array([chosen]), with_slot)[0]
    runs = counts.shape[-1]
    theta, gamma = parameters[:runs], float(parameters[runs])
    wins, losses = _credit(counts)
    logits = theta[:, None] - theta + gamma
    likelihood = -np.sum(wins * np.logaddexp(0, -logits) + losses * np.logaddexp(0, logits))
    return Fit(theta, gamma, chosen, float(likelihood))


def has_maximum(counts: Floats, with_slot: bool) -> bool:
    """Whether the likelihood has a finite maximum: of any two runs, each has beaten or tied the other along a chain.

    This is Ford's condition (American Mathematical Monthly 1957), on the graph of runs. With `with_slot`, some battles
    must also contradict a large gamma, and some a small one, whatever the ratings.
    """
    if len(find_groups(counts)) > 1:
        return False
    return not with_slot or not any(_fits_every_battle(counts, gamma) for gamma in (1, -1))


def _fits_every_battle(counts: Floats, gamma: float) -> bool:
    """Whether some ratings with this gamma fit all battles of runs that form one group.

    If the run shown first won, the other's theta must be below its theta plus gamma. If it lost, its theta must be
    below the other's minus gamma. Such bounds contradict each other if they add up to less than 0 along a cycle.
    """
    from scipy.sparse.csgraph import NegativeCycleError, bellman_ford

    wins, losses = _credit(counts)
    bounds = np.minimum(np.where(wins > 0, gamma, np.inf), np.where(losses.T > 0, -gamma, np.inf))
    try:
        bellman_ford(bounds, indices=0)
    except NegativeCycleError:
        return False
    return True


def find_groups(counts: Floats) -> list[list[int]]:
    """Find groups of runs that have a common scale: in a group, chains of wins and ties lead from each run to all."""
    from scipy.sparse.csgraph import connected_components

    wins, losses = _credit(counts)
    number, labels = connected_components(wins + losses.T > 0, connection="strong")
    return [np.flatnonzero(labels == one).tolist() for one in range(number)]


def _credit(counts: Floats) -> tuple[Floats, Floats]:
    """The wins and losses of the first run, with half of the ties each."""
    half = counts[..., TIED, :, :] / 2
    return counts[..., WON, :, :] + half, counts[..., LOST, :, :] + half


def _maximise(counts: Floats, ridge: Floats, with_slot: bool) -> Floats:
    """Maximise likelihoods of counts (float64[fits, 3, runs, runs]): theta and gamma (float64[fits, runs + 1])."""
    wins, losses = _credit(counts)
    battles = wins + losses
    fits, runs = battles.shape[:2]
    found = np.zeros((fits, runs + 1))
    for _ in range(_MOST_STEPS):
        theta, gamma = found[:, :runs], found[:, runs, None, None]
        p = 1 / (1 + np.exp(-np.clip(theta[:, :, None] - theta[:, None] + gamma, -500, 500)))
        slope = np.zeros_like(found)
        surplus = wins - battles * p
        slope[:, :runs] = surplus.sum(2) - surplus.sum(1) - ridge[:, None] * theta
        slope[:, runs] = surplus.sum((1, 2)) - ridge * found[:, runs] if with_slot else 0
        information = _inform(battles * p * (1 - p), ridge, with_slot)
        step = np.linalg.solve(information, slope[..., None])[..., 0]
        found += step * np.minimum(1, _LONGEST_STEP / np.maximum(np.abs(step).max(1, keepdims=True), _CLOSE))
        found[:, :runs] -= found[:, :runs].mean(1, keepdims=True)
        if np.abs(step).max() < _CLOSE * 100:
            break
    return found


def _inform(weights: Floats, ridge: Floats, with_slot: bool) -> Floats:
    """The information about theta and gamma. A shift of all runs alike gets a weight, so the matrix is regular."""
    fits, runs = weights.shape[:2]
    both = weights + weights.transpose(0, 2, 1)
    found = np.zeros((fits, runs + 1, runs + 1))
    found[:, :runs, :runs] = np.eye(runs) * (both.sum(2) + ridge[:, None] + _CLOSE)[:, None] - both + 1
    if with_slot:
        found[:, runs, :runs] = found[:, :runs, runs] = weights.sum(2) - weights.sum(1)
    found[:, runs, runs] = weights.sum((1, 2)) + ridge + _CLOSE if with_slot else 1
    return found


def find_sandwich_widths(counts: Floats, fit: Fit) -> Floats:
    """Find the half-widths of 95 % intervals of ratings (float64[runs]) by the sandwich of arena-rank.

    It takes battles as independent, which battles about one narrative are not: see `find_bootstrap_intervals`.
    """
    wins, losses = _credit(counts)
    p = 1 / (1 + np.exp(-(fit.theta[:, None] - fit.theta + fit.gamma)))
    spread = counts[WON] * (1 - p) ** 2 + counts[LOST] * p**2 + counts[TIED] * (0.5 - p) ** 2
    information, noise = _lay_out((wins + losses) * p * (1 - p)), _lay_out(spread)
    diagonal = SANDWICH_RIDGE_PER_BATTLE * counts.sum() + fit.ridge
    inverse = np.linalg.inv(information + diagonal * np.eye(len(p)))
    return NORMAL_QUANTILE * RATING_PER_THETA * np.sqrt(np.diag(inverse @ noise @ inverse))


def _lay_out(weights: Floats) -> Floats:
    both = weights + weights.T
    return np.diag(both.sum(1)) - both


def find_bootstrap_intervals(counts: Floats, with_slot: bool = False) -> tuple[Floats, Floats]:
    """Find 95 % intervals of ratings (float64[runs, 2]) and of gamma (float64[2]) by bootstrap.

    `counts` are those of each narrative and repeat: float64[narratives, repeats, 3, runs, runs]. Each of `RESAMPLES`
    samples draws narratives, and for each drawn narrative as many repeats, both with replacement. A sample without a
    finite maximum is fitted with `RIDGE`. NaN for fewer than two narratives.
    """
    topics, repeats, _, runs, _ = counts.shape
    if topics < 2:
        return np.full((runs, 2), np.nan), np.full(2, np.nan)
    random = np.random.default_rng(SEED)
    drawn = random.multinomial(topics, np.full(topics, 1 / topics), RESAMPLES)
    weights = random.multinomial(drawn * repeats, np.full(repeats, 1 / repeats)) if repeats > 1 else drawn[..., None]
    flat = counts.reshape(topics * repeats, -1)
    fits = []
    for part in np.array_split(weights.reshape(RESAMPLES, -1).astype(np.float64), -(-RESAMPLES * runs**2 // 10**6)):
        sampled = (part @ flat).reshape(len(part), 3, runs, runs)
        ridge = np.array([0.0 if has_maximum(one, with_slot) else RIDGE for one in sampled])
        fits.append(_maximise(sampled, ridge, with_slot))
    found = np.percentile(np.concatenate(fits), (2.5, 97.5), axis=0).T
    return rate(found[:runs]), found[runs]
