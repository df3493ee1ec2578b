"""Judgments by a model whether documents support or contradict a sentence."""

from collections.abc import Sequence

from keystone.generation.ask import ask_all
from keystone.generation.context.delimit import delimit, neutralise
from keystone.generation.context.fit_window import share_window
from keystone.generation.context.tokens import clip
from keystone.generation.llm.model import Model
from keystone.generation.prompts.grading import ground as prompt
from keystone.generation.reply_types import read_part
from keystone.generation.types import Failure, Reply, Request


async def judge_documents(
    model: Model, sentence: str, texts: Sequence[str], window: int
) -> list[prompt.Verdict | Failure]:
    """Judge whether each text supports a sentence, by a request each. A text is cut to half of `window` tokens."""
    return await ask_all(model, [(request_verdict(sentence, text, window), read_verdict) for text in texts])


def request_verdict(sentence: str, text: str, window: int) -> Request:
    """Make the request for the verdict on one document."""
    document = delimit("document", clip(text, share_window(window, 1)))
    user = prompt.USER.format(document=document, sentence=neutralise(" ".join(sentence.split())))
    return Request("ground", (("system", prompt.SYSTEM), ("user", user)), prompt.MAX_TOKENS, prompt.SCHEMA)


def read_verdict(reply: Reply) -> prompt.Verdict:
    """Read the verdict of a reply. `Unusable` if it is not supports, contradicts or neither."""
    return read_part(reply, prompt.Judged, lambda one: isinstance(one.get("verdict"), str)).verdict
