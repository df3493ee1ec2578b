"""The hosts of language models that speak OpenAI's protocol, each with what its dialect lacks.

A host is told by its URL, or by the owner that its list of models names (`owned_by` in `GET /models`).
"""

import re
from collections.abc import Iterable
from typing import NamedTuple


class Host(NamedTuple):
    """A host: its name, a pattern of its URLs, the owners of models that it lists, and what to know about it."""

    name: str
    urls: str
    owners: tuple[str, ...]
    advice: str


HOSTS = (
    Host("OpenAI", r"//api\.openai\.com/", ("openai", "system", "openai-internal"),
         "models that think take max_completion_tokens and no temperature; set model.thinking"),
    Host("Azure", r"\.(openai\.azure|services\.ai\.azure)\.com/", (),
         "the URL ends with /openai/v1, and model.name is the name of the deployment"),
    Host("Anthropic", r"//api\.anthropic\.com/", ("anthropic",),
         "schemas, seeds and log-probabilities are ignored; replies are checked, and repaired"),
    Host("Gemini", r"//generativelanguage\.googleapis\.com/", ("google",),
         "thoughts count as tokens of a reply: set model.thinking, or reasoning_effort in model.extra"),
    Host("OpenRouter", r"//openrouter\.ai/", (),
         "set provider: {require_parameters: true} in model.extra, or some of its providers ignore schemas"),
    Host("Ollama", r":11434(/|$)", ("library",),
         "longer prompts than its window are cut in silence: raise num_ctx, or set model.window"),
    Host("llama.cpp", r"", ("llamacpp",), "the window (-c) is shared among the requests at one time (-np)"),
    Host("SGLang", r":30000(/|$)", ("sglang",), "takes JSON schemas by its grammar backend"),
    Host("LM Studio", r":1234(/|$)", ("organization_owner",),
         "answers few requests at one time: set model.concurrency, and load the model with a large enough window"),
    Host("vLLM", r"", ("vllm",), "takes JSON schemas, seeds and log-probabilities"),
)  # fmt: skip
"""The known hosts. The first one that fits counts; owners are asked before URLs."""


def name_host(url: str, owners: Iterable[str] = ()) -> Host | None:
    """Name the host of a base URL, whose list of models names these owners; None for an unknown one."""
    listed = {owner.casefold() for owner in owners}
    by_owner = (host for host in HOSTS if listed & set(host.owners))
    by_url = (host for host in HOSTS if host.urls and re.search(host.urls, url + "/"))
    return next(by_owner, None) or next(by_url, None)
