"""Each recipe of docs/models.md, against a server that speaks the host's dialect as its documentation tells it."""

import asyncio
import json
import re
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
import yaml

from keystone.generation.grading.umbrela import read_grades, request_grades
from keystone.generation.llm.chat import PaidReply
from keystone.generation.llm.endpoints import Endpoints
from keystone.generation.llm.settings import ModelSettings
from keystone.generation.types import Failure, Reply, Request
from keystone.runs.doctor.model_server import HOSTS, name_host
from keystone.runs.doctor.server_records import SERVERS_FILE
from tests.support.runs.command_line import keystone_here
from tests.support.servers.chat import Exchange, Fault, serving

PAGE = (Path(__file__).parents[3] / "docs/models.md").read_text()
RECIPES: dict[str, dict[str, Any]] = {
    name: yaml.safe_load(text)["model"] for name, text in re.findall(r"### (.+)\n\n```yaml\n((?:.+\n)+)```", PAGE)
}
PLAIN = Request("probe", (("user", "Where do bees live?"),), 64)
SAMPLED = replace(PLAIN, top_logprobs=4, seed=7)
GRADED = request_grades(["Where do bees live?"], "Bees live in colonies.", "pointwise")
KEY = "sk-of-the-test"


class Dialect(NamedTuple):
    """What a host refuses, by a sentence of its own for a body; how it wraps errors; how it replies."""

    refuse: Callable[[dict[str, Any]], str] = lambda _: ""
    wrap: Callable[[str], Any] = lambda said: {"error": {"message": said, "type": "invalid_request_error"}}
    grade: str = '{"grade": 2}'
    choice: dict[str, Any] = {}  # noqa: RUF012
    path: str = "/v1/chat/completions"
    is_responses: bool = False


def refuse_fields(*names: str, words: str) -> Callable[[dict[str, Any]], str]:
    return lambda body: next((words.format(name) for name in names if name in body), "")


OF_OPENAI = refuse_fields(
    "max_tokens",
    words="Unsupported parameter: '{}' is not supported with this model. Use 'max_completion_tokens' instead.",
)


def refuse_like_openai(body: dict[str, Any]) -> str:
    if body.get("temperature") != 1 and "temperature" in body:
        return OF_OPENAI(body) or "Unsupported value: 'temperature' does not support 0 with this model."
    return OF_OPENAI(body)


DIALECTS = {
    "Anthropic": Dialect(grade='Here is the grade:\n```json\n{"grade": 2}\n```'),
    "Azure": Dialect(refuse_like_openai, path="/openai/v1/chat/completions"),
    "Gemini": Dialect(
        refuse_fields("seed", "logprobs", words='Invalid JSON payload received. Unknown name "{}": Cannot find field.'),
        lambda said: [{"error": {"code": 400, "message": said, "status": "INVALID_ARGUMENT"}}],
        path="/v1beta/openai/chat/completions",
    ),
    "OpenAI": Dialect(refuse_like_openai),
    "OpenAI, Responses API": Dialect(
        refuse_fields("seed", "max_tokens", "messages", "temperature", words="Unsupported parameter: '{}'"),
        path="/v1/responses",
        is_responses=True,
    ),
    "OpenRouter": Dialect(
        choice={"native_finish_reason": "STOP", "finish_reason": "stop"}, path="/api/v1/chat/completions"
    ),
    "LM Studio": Dialect(wrap=lambda said: {"error": said}),
    "llama.cpp": Dialect(wrap=lambda said: {"error": {"code": 400, "message": said, "type": "invalid_request_error"}}),
    "Ollama": Dialect(),
    "SGLang": Dialect(
        refuse_fields("response_format", words="Failed to compile json grammar {}: invalid schema"),
        lambda said: {"object": "error", "message": said, "type": "BadRequestError", "code": 400},
    ),
    "vLLM": Dialect(),
}
NO_KEY = {"LM Studio", "llama.cpp", "Ollama", "SGLang", "vLLM"}


def speak(name: str) -> Fault:
    dialect = DIALECTS[name]

    async def answer(exchange: Exchange) -> bool:
        if exchange.path != dialect.path:
            exchange.reply({"error": {"message": f"no path {exchange.path}"}}, 404)
        elif name not in NO_KEY and exchange.headers.get("authorization") != f"Bearer {KEY}":
            exchange.reply(dialect.wrap("invalid x-api-key"), 401)
        elif said := dialect.refuse(exchange.body):
            exchange.reply(dialect.wrap(said), 400)
        else:
            value = exchange.response() if dialect.is_responses else exchange.completion()
            if not dialect.is_responses:
                value["choices"][0] |= dialect.choice
            # OpenRouter sends blanks while a provider works
            exchange.send((" \n" if name == "OpenRouter" else "").encode() + json.dumps(value).encode())
        return True

    return answer


def ask(recipe: dict[str, Any], url: str, *requests: Request) -> list[PaidReply]:
    async def all_of_them() -> list[PaidReply]:
        path = urlsplit(recipe.get("urls", ["https://api.openai.com/v1"])[0]).path
        backend = Endpoints(ModelSettings.model_validate(recipe | {"urls": [url.removesuffix("/v1") + path]}))
        try:
            return [await backend.answer(one) for one in requests]
        finally:
            await backend.close()

    return asyncio.run(all_of_them())


def test_the_page_has_a_recipe_of_each_host_that_doctor_names() -> None:
    assert set(RECIPES) == set(DIALECTS)
    assert {name.partition(",")[0] for name in RECIPES} == {host.name for host in HOSTS}


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_gets_replies_from_its_host(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = RECIPES[name]
    if name not in NO_KEY:
        monkeypatch.setenv(recipe["key_env"], KEY)

    def model(body: dict[str, Any]) -> str:
        return DIALECTS[name].grade if len(body.get("messages") or body["input"]) > 1 else "In colonies."

    with serving(model=model, always=speak(name)) as server:
        plain, sampled, graded = (one.outcome for one in ask(recipe, server.url, PLAIN, SAMPLED, GRADED))
        assert plain == Reply("In colonies.")
        assert isinstance(sampled, Reply)
        assert sampled.text == "In colonies."
        assert isinstance(graded, Reply)
        assert read_grades(graded, ["grade"]) == [2]
        extra = recipe.get("extra", {})
        assert all(extra.items() <= body.items() for body in server.answered)


def test_an_error_of_a_host_is_told_in_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", KEY)
    too_long = "The input token count (1048577) exceeds the maximum number of tokens allowed (1048576)."

    async def refuse(exchange: Exchange) -> bool:
        exchange.reply(DIALECTS["Gemini"].wrap(too_long), 400)
        return True

    with serving(always=refuse) as server:
        (answered,) = ask(RECIPES["Gemini"], server.url, PLAIN)
    assert isinstance(answered.outcome, Failure)
    assert answered.outcome.reason.endswith(f"refused with status 400: {too_long}")


@pytest.mark.parametrize("name", RECIPES)
def test_the_doctor_names_the_host_of_a_recipe_and_the_fields_that_it_refuses(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The names of hosts lead to the stand-in here, by plain http."""
    recipe, host = RECIPES[name], name.partition(",")[0]
    owner = {"vLLM": "vllm", "llama.cpp": "llamacpp"}.get(name, "somebody")

    async def answer(exchange: Exchange) -> bool:
        if exchange.path.endswith("/models"):
            exchange.reply({"data": [{"id": recipe["name"], "owned_by": owner}]})
            return True
        return await speak(name)(exchange)

    with serving(model=lambda _: DIALECTS[name].grade, always=answer) as server:
        address = "127.0.0.1", urlsplit(server.url).port
        found = [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", address)]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        url = recipe.get("urls", ["https://api.openai.com/v1"])[0].replace("https:", "http:")
        command: list[str | Path] = ["doctor", "--model", url, "--out", tmp_path]
        if name not in NO_KEY:
            monkeypatch.setenv(recipe["key_env"], KEY)
            command += ["--key-env", recipe["key_env"]]
        shown = " ".join(keystone_here(*command).stdout.split())
    advice = next(one.advice for one in HOSTS if one.name == host)
    assert f"dialect: {host}: {advice}" in shown
    (kept,) = map(json.loads, (tmp_path / SERVERS_FILE).read_text().splitlines())
    assert all(note in shown for note in kept["notes"])
    refuses = DIALECTS[name].refuse({"max_tokens": 1, "temperature": 0, "logprobs": 1, "response_format": 1})
    told = [note for note in kept["notes"] if not note.endswith("gives no log-probabilities, which were asked for")]
    assert bool(told) == bool(refuses), "the stand-in refuses some fields, and gives no log-probabilities"


@pytest.mark.parametrize(
    ("url", "owners", "name"),
    [
        *(
            (RECIPES[name]["urls"][0], (), name.partition(",")[0])
            for name in RECIPES
            if name not in ("llama.cpp", "OpenAI", "vLLM")
        ),
        ("https://api.openai.com/v1", ("system",), "OpenAI"),
        ("http://gpu-7:9000/v1", ("vllm",), "vLLM"),
        ("http://gpu-7:9000/v1", ("llamacpp",), "llama.cpp"),
        ("http://localhost:11434/v1", ("vllm",), "vLLM"),
        ("http://gpu-7:9000/v1", ("somebody",), None),
        ("http://gpu-7:9000/v1", (), None),
    ],
)  # fmt: skip
def test_a_host_is_named_by_the_owner_of_its_models_or_by_its_url(
    url: str, owners: tuple[str, ...], name: str | None
) -> None:
    found = name_host(url, owners)
    assert (found.name if found else None) == name
