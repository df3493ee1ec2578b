"""The settings of rerankers: the section `rerank` of a configuration."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from keystone.indexing.settings import NoneNamed, StrictSettings, leave_out


class RerankEndpoint(StrictSettings):
    """The server of a [reranking model](methods.md#reranking-models)."""

    url: str
    """The base URL, such as `http://localhost:8000/v1`, `https://api.jina.ai/v1` or `https://api.cohere.com/v2`."""
    name: str = Field(min_length=1)
    """The model's name, as its server knows it."""
    form: Literal["rerank", "score"] = "rerank"
    """The form of requests: `/rerank` of Jina, Cohere and vLLM, or `/score` of vLLM."""
    key_env: str | None = Field(default=None, min_length=1)
    """The environment variable that holds the key; null sends none."""


class RerankSettings(StrictSettings):
    """How the best documents of each narrative are ranked again, before or after documents are graded."""

    method: Annotated[
        Literal["none", "endpoint", "model", "listwise", "sliding"] | None,
        NoneNamed("none", "endpoint", "model", "listwise", "sliding"),
    ] = None
    """What [orders](methods.md#rerankers) the documents. `listwise` asks the language model to order overlapping blocks
    of documents, all at once. `sliding` asks it to order one window after the other, from the last documents to the
    first."""
    after: Literal["fusion", "grades"] = "fusion"
    """The ranking that is ranked again: the narrative's, before [grades](methods.md#after-grades), or the one after
    them."""
    depth: int = Field(default=100, ge=1, le=1000)
    """How many documents are ranked again; the others follow in their order."""
    segments: int = Field(default=1, ge=1, le=1000)
    """How many segments stand for a document: those closest to the narrative. `endpoint` and `model` take the highest
    of their scores (MaxP); `listwise` and `sliding` show them together."""
    tokens: int = Field(default=300, ge=20, le=100_000)
    """The most tokens of a document that a model is shown, or of a segment for `endpoint` and `model`. The documents of
    a block share half of the language model's window, if that is less."""
    block: int = Field(default=20, ge=2, le=1000)
    """The most documents in a block or window."""
    stride: int = Field(default=10, ge=1, le=1000)
    """How many documents a window of `sliding` moves; there below `block`."""
    endpoint: RerankEndpoint | None = None
    """The server that `endpoint` asks."""
    model: str | None = Field(default=None, min_length=1)
    """The checkpoint that `model` runs: a folder, or a name of the hub."""
    backend: Literal["vllm"] | None = None
    """What runs `model`: [vLLM's engine](models.md#backends) in this process; null: ONNX Runtime or PyTorch."""
    then: "RerankSettings | None" = None
    """A further reranker for the first documents of the new order, with these keys but `after`."""

    @model_validator(mode="after")
    def _check_possible(self) -> Self:
        if self.method == "endpoint" and self.endpoint is None:
            raise ValueError("method: found 'endpoint' without a server; expected its url and name under endpoint")
        if self.method == "model" and self.model is None:
            raise ValueError("method: found 'model' without a model; expected its folder or name under model")
        if self.backend and self.method != "model":
            raise ValueError(f"backend: found {self.backend!r} with the method {self.method!r}, expected 'model'")
        if self.then is not None and (self.method is None or self.then.method is None):
            raise ValueError("then: found a further reranker where a method is none, expected a method in both")
        if self.method == "sliding" and self.stride >= self.block:
            raise ValueError(f"stride: found {self.stride}, expected below block, which is {self.block}")
        return self

    @model_serializer(mode="wrap")
    def _write(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return leave_out(self, handler, ("model", "backend", "then"))

    def describe(self) -> dict[str, Any]:
        """Describe these settings and those of further rerankers, without the places and the keys of servers."""
        endpoint = None if self.endpoint is None else self.endpoint.model_dump(include={"name", "form"})
        found = self.model_dump(mode="json") | {"endpoint": endpoint or {}}
        return found | ({"then": self.then.describe()} if self.then else {})

    def list_steps(self) -> list["RerankSettings"]:
        """List this reranker and those after it in their order; empty if the method is none."""
        if self.method is None:
            return []
        return [self, *(self.then.list_steps() if self.then else [])]

    def asks_model(self) -> str | None:
        """Name the first method that asks the language model, or None."""
        return next((one.method for one in self.list_steps() if one.method in ("listwise", "sliding")), None)
