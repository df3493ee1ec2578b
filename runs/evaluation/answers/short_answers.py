"""Short answers in a text or in passages: exact match and hit, answers as a list, and F1* behind a keyword gate."""

import re
import string
from collections import Counter
from collections.abc import Sequence

from keystone.runs.evaluation.answers.overlap import Overlap, compute_overlap

LIST_CUTOFF = 5
"""The number of answers that suffices for a recall of 1 on QAMPARI's questions, some of which have hundreds."""
LEAST_RECALL = 0.2
"""The recall of keywords below which F1* is 0."""
LEAST_RECALL_CHINESE = 0.4

_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_CHINESE = re.compile(r"[\u3400-\u9fff\uf900-\ufaff]")
_CHINESE_TOKEN = re.compile(rf"{_CHINESE.pattern}|(?:(?!{_CHINESE.pattern})\w)+")
FUNCTION_WORDS = frozenset(
    """and or but as because if so than of in on at by to from for with about into over is are was were be been being
    am has have had do does did will would can could it its he him his she her they them their we our you your i my
    this that these those who whom whose which what when where how why there not
    的 了 和 与 或 及 而 但 是 在 为 于 对 把 被 从 到 由 以 也 都 就 等 之 其 这 那 有 中""".split()
)
"""Words that do not count as found keywords. LV-Eval's own lists are similar; so F1* differs at the gate, if at all."""


def normalise_answer(text: str) -> str:
    """Normalise a text as SQuAD, ALCE and LV-Eval do: lower case, no ASCII punctuation, no articles, single spaces."""
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def measure_exact_match(text: str, answers: Sequence[Sequence[str]]) -> tuple[float, float]:
    """Measure the share of answers that the text holds, and whether it holds all (ALCE's STR-EM and hit for ASQA).

    `answers` has the spellings of each answer. The text holds an answer if one of its spellings is a part of the text,
    both normalised. A spelling that is empty then is never found. Longer texts hold more answers.
    """
    whole = normalise_answer(text)
    found = [any(name in whole for name in _normalise_names(names)) for names in answers]
    return sum(found) / len(found), float(all(found))


def measure_passages(passages: Sequence[str], answers: Sequence[Sequence[str]]) -> tuple[float, float, float]:
    """Measure exact match and hit of all passages together, and the passage score (RDR2, appendix B.2, equation 10).

    The score is the mean over passages of the exact match of passage i divided by i. So it rewards evidence whose first
    passages hold the answers. It divides by the number of passages, so more passages lower it.
    """
    together = measure_exact_match("\n".join(passages), answers)
    by_rank = [measure_exact_match(text, answers)[0] / rank for rank, text in enumerate(passages, 1)]
    return *together, sum(by_rank) / max(1, len(by_rank))


def measure_list(text: str, answers: Sequence[Sequence[str]]) -> tuple[float, float]:
    """Measure recall-5 and F1-5 of a text that lists answers between commas (ALCE's measures for QAMPARI).

    Each part between commas is right if it equals a spelling of an answer, both normalised. Recall counts up to
    `LIST_CUTOFF` answers; precision counts all parts.
    """
    parts = [part for part in map(normalise_answer, text.split(",")) if part]
    spellings = [_normalise_names(names) for names in answers]
    right = sum(any(part in names for names in spellings) for part in parts)
    found = sum(not names.isdisjoint(parts) for names in spellings)
    recall = min(LIST_CUTOFF, found) / min(LIST_CUTOFF, len(answers))
    precision = right / len(parts) if parts else 0.0
    return recall, 2 * precision * recall / (precision + recall) if found else 0.0


def _normalise_names(names: Sequence[str]) -> set[str]:
    return {name for name in map(normalise_answer, names) if name}


def measure_gated_f1(text: str, references: Sequence[str], keywords: Sequence[str]) -> float:
    """Measure F1*: F1 of tokens against the best reference, or 0 if too few keywords are found (LV-Eval).

    The recall of keywords leaves out function words among the found ones, but not among the wanted ones, as the
    official scorer does. So keywords that are function words make the gate harder. The official scorer takes the first
    reference only. Chinese is compared character by character, not by words.
    """
    tokens, wanted = find_f1_tokens(text), find_f1_tokens(" ".join(keywords))
    found = Counter(tokens) & Counter(wanted)
    held = sum(number for token, number in found.items() if token not in FUNCTION_WORDS)
    least = LEAST_RECALL_CHINESE if any(map(_CHINESE.search, references)) else LEAST_RECALL
    if not wanted or held / len(wanted) < least:
        return 0.0
    return max(_compare_bags(tokens, find_f1_tokens(reference)).f1 for reference in references)


def find_f1_tokens(text: str) -> list[str]:
    """Find the tokens of F1*: normalised words; each Chinese character is a token of its own."""
    normal = normalise_answer(text)
    return _CHINESE_TOKEN.findall(normal) if _CHINESE.search(normal) else normal.split()


def _compare_bags(tokens: Sequence[str], wanted: Sequence[str]) -> Overlap:
    common = (Counter(tokens) & Counter(wanted)).total()
    return compute_overlap(common, len(tokens), len(wanted))
