"""The settings of a language model: the section `model` of a configuration."""

import shlex
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import orjson
from pydantic import (
    AfterValidator,
    Field,
    SerializerFunctionWrapHandler,
    Strict,
    field_validator,
    model_serializer,
    model_validator,
)

from keystone.generation.llm.chat import MOST_TOKENS, RESPONSES
from keystone.generation.llm.usage import Budget, Prices
from keystone.indexing.io.api_keys import OPENAI_KEY
from keystone.indexing.io.hub import to_local
from keystone.indexing.settings import StrictSettings, leave_out

AnyPath = Annotated[Path, Strict(False), AfterValidator(lambda path: Path(to_local(str(path))))]
"""A path, which configuration files hold as text. If it is a name of the hub, Keystone fetches the data set."""
LEAST_WINDOW = 512
"""The smallest `window`. A smaller one has no room for a prompt."""
LONGEST_WAIT_S = 10_000_000
"""About four months. A longer wait is a mistake, and a system's clock has an end."""
REPLIES_FILE = "replies.sqlite"
"""The name of the file of replies in the folder of a model's files."""
BATCH_FOLDER = "batch"
"""The name of the folder of batch files in that folder."""


class ModelSettings(StrictSettings):
    """The language model, and how Keystone [reaches](models.md) it.

    The configuration never holds the key itself: see `key_env` and `key_file`.
    """

    backend: Literal["endpoints", "vllm", "batch", "replay", "command"] = "endpoints"
    """How the model is [reached](models.md#backends). `vllm` runs vLLM's engine in this process. `batch` writes files
    of requests and reads files of replies. `replay` reads recorded replies and asks nobody. `command` runs
    `command`."""
    name: str = Field(min_length=1)
    """The model's name, as its server knows it."""
    urls: list[str] = Field(default=["https://api.openai.com/v1"])
    """The base URLs of the servers, of which the least loaded is asked first."""
    key_env: str = OPENAI_KEY
    """The environment variable that holds the key."""
    key_file: AnyPath | None = None
    """A file of mode 600 that holds the key, in place of `key_env`."""
    window: int = Field(default=32_768, ge=LEAST_WINDOW, le=MOST_TOKENS)
    """The tokens that the model takes, its reply included."""
    thinking: int = Field(default=0, ge=0, le=1_000_000)
    """The tokens that a reply may have besides those of its step, for models that think first."""
    extra: dict[str, Any] = Field(default={})
    """Further fields of each request, such as `{reasoning_effort: low}`; a change asks the model again."""
    engine: dict[str, Any] = Field(default={})
    """The arguments of vLLM's engine in this process, such as `{max_model_len: 8192}`."""
    command: list[str] = Field(default=[])
    """The program and its arguments for `command`: a list, or a text that is split as a shell would. It gets the prompt
    on standard input, and writes the reply to standard output."""
    submit: bool = False
    """Whether Keystone submits the files of `batch` to the first of `urls`."""
    concurrency: int = Field(default=256, ge=1, le=100_000)
    """The most calls in flight at one endpoint, and the most processes of `command` at once."""
    call_seconds: float = Field(default=300, gt=0, le=LONGEST_WAIT_S)
    """The seconds that a call may take."""
    run_seconds: float | None = Field(default=None, gt=0, le=LONGEST_WAIT_S)
    """The seconds that a run may take; replies that came in time are kept."""
    patience_seconds: float = Field(default=600, ge=0, le=LONGEST_WAIT_S)
    """The seconds that Keystone waits if it can reach no endpoint."""
    cache: AnyPath | None = None
    """The file that keeps replies; null: `replies.sqlite` in `out`."""
    replies: AnyPath | None = None
    """A file of recorded replies, for `replay`."""
    prices: Prices | None = None
    """The model's prices, without which no cost is computed."""
    budget: Budget | None = None
    """The most that the calls of a run may cost together, for `endpoints` and `command`."""

    @model_serializer(mode="wrap")
    def _write(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return leave_out(self, handler, ("submit", "command"))

    @field_validator("extra", "engine")
    @classmethod
    def _are_json(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Refuse values that JSON cannot hold: a request would change them, or fail in the middle of a run."""
        try:
            same = orjson.loads(orjson.dumps(values)) == values
        except (TypeError, ValueError):
            same = False
        if not same:
            raise ValueError("expected values of JSON, whose numbers are finite and have 64 bits")
        return values

    @field_validator("command", mode="before")
    @classmethod
    def _split(cls, command: Any) -> Any:
        return shlex.split(command) if isinstance(command, str) else command

    @model_validator(mode="after")
    def _can_run(self) -> Self:
        if self.backend == "command" and not any(self.command[:1]):
            raise ValueError("command: found none with backend 'command', expected a program and its arguments")
        return self

    @model_validator(mode="after")
    def _can_pay(self) -> Self:
        if self.budget and self.backend not in ("endpoints", "command"):
            raise ValueError(f"budget: found with backend {self.backend!r}, expected 'endpoints' or 'command'")
        if self.budget and self.budget.dollars is not None and self.prices is None:
            raise ValueError("budget.dollars: found without prices, expected the prices of the model")
        if self.budget and self.prices and (self.prices.cached or 0) > self.prices.prompt:
            raise ValueError("prices.cached: found above prices.prompt, expected at most that with a budget")
        return self

    @model_validator(mode="after")
    def _can_submit(self) -> Self:
        if self.submit and self.backend != "batch":
            raise ValueError(f"submit: found with backend {self.backend!r}, expected 'batch'")
        if self.submit and any(url.rstrip("/").endswith(RESPONSES) for url in self.urls):
            raise ValueError(f"urls: found {self.urls} with submit, whose files are for chat completions")
        return self

    @property
    def named_key(self) -> str | None:
        """The environment variable that the user names; None if `key_env` is the default."""
        return self.key_env if "key_env" in self.model_fields_set else None

    def replies_in(self, folder: Path) -> Path:
        """Return the path of the file of replies. `folder` holds the model's files."""
        return self.cache or folder / REPLIES_FILE
