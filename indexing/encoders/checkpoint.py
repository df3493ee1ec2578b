"""The checkpoint of a model: where it is, and what its own files say of it.

A checkpoint is a folder in the layout of Hugging Face's transformers, with the files that sentence-transformers adds.
It is the embedded model, a folder on this machine, or a repository of the hub, which `huggingface_hub` fetches once.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import orjson

from keystone.indexing.errors import UserError
from keystone.indexing.io.hub import report_hub_errors
from keystone.indexing.io.published import MINILM, find_cached, find_published
from keystone.indexing.types import EMBEDDED

HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
FUNCTION_NAME = re.compile(r"\S+ [0-9a-f]{8}")
"""The name of a function of the caller's, which `keystone.runs.python.callables` makes the model of an embedding."""
TRANSFORMER = ("Transformer", "MLMTransformer")
POOLING_MODES = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
"""The ways to make one vector of the states of tokens, in the order in which several are joined."""
MOST_TOKENS = 1_000_000
"""A window above this number means no limit."""
DIGESTED_BYTES = 1 << 20
"""Of each file of weights, the digest covers this much of the beginning and of the end, and the length."""
SMALL_FILES = ("*.json", "*.txt", "*.model", "*/config.json", "artifact.metadata", "*_linear.pt")
WEIGHT_FILES = (("*.safetensors",), ("onnx/model.onnx*", "model.onnx*", "*.bin"))
"""The files of weights that are fetched: the first, or the second if a repository lacks the first."""
GRAPH_FILES = ("onnx/model.onnx*", "*/model.safetensors")
"""The files that are fetched instead if a repository has a graph, and only a graph can run here."""
SENTENCES = "config_sentence_transformers.json"

E5 = ("query: ", "passage: ")
SEARCHED = "Represent this sentence for searching relevant passages: "
KNOWN_PREFIXES: Mapping[str, tuple[str, str]] = {
    r"bge-(small|base|large)-en(-v1\.5)?": (SEARCHED, ""),
    r"(multilingual-)?e5-(small|base|large)(-v2)?(-q)?": E5,
    r"mxbai-embed-large-v1": (SEARCHED, ""),
    r"snowflake-arctic-embed-(xs|s|m|l|m-v1\.5)": (SEARCHED, ""),
    r"snowflake-arctic-embed-[ml]-v2\.0": ("query: ", ""),
    r"nomic-embed-text-v1(\.5)?|modernbert-embed-base": ("search_query: ", "search_document: "),
    r"bge-m3|gte-.*|all-.*": ("", ""),
}
"""The prefixes of queries and of passages that models need and old checkpoints do not say, by patterns of names."""


@dataclass(frozen=True, slots=True)
class Module:
    """A module of sentence-transformers: the last part of its class, and its own settings and folder."""

    kind: str
    folder: Path
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What the files of a checkpoint say."""

    name: str
    folder: Path
    config: Mapping[str, Any]
    """The content of `config.json`; empty for a folder with a graph alone."""
    window: int
    """The most tokens of a text, those of the beginning and the end included."""
    modules: tuple[Module, ...] = ()
    prompts: Mapping[str, str] = field(default_factory=dict)
    """Texts before a text, by their names, such as `query` and `document`."""
    similarity: str = "cosine"
    about: Mapping[str, Any] = field(default_factory=dict)
    """The content of `config_sentence_transformers.json`."""
    sentence: Mapping[str, Any] = field(default_factory=dict)
    """The content of `sentence_bert_config.json`."""

    @property
    def kind(self) -> str:
        """The family of the network, such as `bert`; empty if the folder does not tell it."""
        return str(self.config.get("model_type") or "")

    @property
    def graph(self) -> Path | None:
        """The file of the network as ONNX; None if there is none."""
        found = (self.folder / name for name in ("onnx/model.onnx", "model.onnx"))
        return next((path for path in found if path.is_file()), None)

    @property
    def weights(self) -> list[Path]:
        """The files of weights in the form safetensors."""
        return sorted(self.folder.glob("*.safetensors"))

    def compute_digest(self) -> str:
        """Tell this checkpoint from others: a digest of its small files, and of parts of its weights."""
        found = sha256()
        small = [path for path in self.folder.rglob("*.json") if path.name != "README.json"]
        heads = [*self.folder.glob("*_linear.pt"), *self.folder.glob("artifact.metadata")]
        for path in sorted({*small, *heads, *self._list_weight_files()}):
            found.update(f"{path.relative_to(self.folder)} {path.stat().st_size} ".encode())
            with path.open("rb") as file:
                found.update(file.read(DIGESTED_BYTES))
                file.seek(max(DIGESTED_BYTES, path.stat().st_size - DIGESTED_BYTES))
                found.update(file.read())
        return found.hexdigest()[:16]

    def _list_weight_files(self) -> Iterator[Path]:
        """List the files that the network and its modules may be read from, some of them twice.

        A graph may keep its numbers in files beside it. These and pickled weights count only without safetensors.
        """
        yield from self.weights
        if self.graph:
            yield self.graph
        if not self.weights:
            yield from self.graph.parent.glob("model.onnx*") if self.graph else self.folder.glob("*.bin")
        for module in self.modules:
            yield from module.folder.glob("model.safetensors")
        if self.similarity == "MaxSim" or (self.folder / "router_config.json").exists():
            yield from self.folder.glob("*/model.safetensors")

    def read_prompts(self) -> tuple[str, str]:
        """Read what stands before queries and before passages by the prompts of these names; empty for no prompt."""
        passages = (self.prompts.get(name) for name in ("document", "passage", "corpus"))
        return self.prompts.get("query", ""), next(filter(None, passages), "")

    def find_prefixes(self) -> tuple[str, str] | None:
        """Find what stands before queries and before passages: its own prompts, or known ones; None if unknown."""
        if any(own := self.read_prompts()):
            return own
        return find_known_prefixes(str(self.config.get("_name_or_path", ""))) or find_known_prefixes(self.name)


def find_known_prefixes(model: str) -> tuple[str, str] | None:
    """Find the prefixes of queries and of passages in `KNOWN_PREFIXES` by the last part of a name; None if unknown."""
    name = re.split(r"[/\\]", model.rstrip("/\\"))[-1].lower()
    return next((own for pattern, own in KNOWN_PREFIXES.items() if re.fullmatch(pattern, name)), None)


def find_checkpoint(name: str) -> Path:
    """Find the folder of a checkpoint; one of the hub is fetched once. `UserError` if it is nowhere."""
    if name in EMBEDDED:
        return find_published(MINILM)
    if Path(name).is_dir():
        return Path(name)
    if FUNCTION_NAME.fullmatch(name):
        raise UserError(
            f"model {name!r}: is a function of the program that made the index; expected it again, in Python by "
            "open_index(folder, encoder=...)"
        )
    if not HUB_NAME.fullmatch(name) or name.startswith((".", "/", "~")):
        raise UserError(
            f"model {name!r}: found no such folder, expected {', '.join(EMBEDDED)}, the folder of a checkpoint, or "
            "a name of the hub such as BAAI/bge-small-en-v1.5; or a URL where the model is served"
        )
    return _fetch(name)


def find_here(name: str) -> Path | None:
    """Find the folder of a checkpoint without fetching it; None if it is not on this machine."""
    if name in EMBEDDED:
        return folder if (folder := find_cached(MINILM)).is_dir() else None
    if Path(name).is_dir():
        return Path(name)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError, OSError):
        return None


def _fetch(name: str) -> Path:
    from huggingface_hub import snapshot_download

    def explain(reason: str) -> str:
        return (
            f"model {name!r}: could not be fetched from the hub: {reason}: put the checkpoint into a folder on this "
            "machine, and name the folder in place of the model"
        )

    with report_hub_errors(explain):
        folder = Path(snapshot_download(name, allow_patterns=[*SMALL_FILES]))
        here = [path.relative_to(folder).as_posix() for path in folder.rglob("*")]
        for patterns in list_weight_files(read_json(folder / "config.json", needed=False), here):
            folder = Path(snapshot_download(name, allow_patterns=[*SMALL_FILES, *patterns]))
            if any(folder.glob(patterns[0])):
                break
    return folder


def list_weight_files(config: Mapping[str, Any], here: Collection[str] = ()) -> list[tuple[str, ...]]:
    """List the files of weights that a fetch tries in turn, as patterns: it ends where a file fits the first pattern.

    `config` is the content of `config.json`. Without PyTorch, only a graph can run a network that is not of BERT's
    family. A graph that is `here` without other weights stays the network, even with PyTorch.
    """
    kind = config.get("model_type")
    if kind is None or kind in FAMILY:
        return [*WEIGHT_FILES]
    has_weights = any(name.endswith(".safetensors") and "/" not in name for name in here)
    prefers_graph = find_spec("torch") is None or ("onnx/model.onnx" in here and not has_weights)
    return [GRAPH_FILES, *WEIGHT_FILES] if prefers_graph else [*WEIGHT_FILES]


def read_checkpoint(name: str, digest: str | None = None) -> Checkpoint:
    """Find and read a checkpoint. `UserError` if a file is missing or wrong, or its `digest` is another."""
    found = _read_checkpoint(name)
    if digest and (own := found.compute_digest()) != digest:
        raise UserError(
            f"{found.folder}: found a model of the digest {own}, expected {digest}: its files have changed since the "
            "index was built: build the index again"
        )
    return found


def _read_checkpoint(name: str) -> Checkpoint:
    folder = find_checkpoint(name)
    if name in EMBEDDED:
        return Checkpoint(name, folder, _MINILM_CONFIG, 256, (Module("Pooling", folder, {"pooling_mode": "mean"}),))
    has_graph = (folder / "onnx").is_dir() or (folder / "model.onnx").exists()
    has_router = (folder / "router_config.json").exists()
    config = read_json(folder / "config.json", needed=not has_graph and not has_router)
    modules, sentence = _list_modules(folder)
    about = read_json(folder / SENTENCES, needed=False)
    if not (folder / "tokenizer.json").is_file() and not has_router:
        raise UserError(
            f"{folder}: found no tokenizer.json, expected the whole tokenizer in this file: load and save the "
            "checkpoint with a newer transformers"
        )
    prompts = about.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(isinstance(text, str) for text in prompts.values()):
        raise UserError(f"{folder / SENTENCES}: found prompts of another form, expected texts by name")
    cut = about.get("truncate_dim")
    if cut is not None and (type(cut) is not int or cut < 1):
        raise UserError(f"{folder / SENTENCES}: found truncate_dim: {cut!r}, expected a whole number above 0, or null")
    return Checkpoint(
        name, folder, config, _find_window(folder, config, sentence), modules, prompts,
        str(about.get("similarity_fn_name") or "cosine"), about, sentence,
    )  # fmt: skip


def _list_modules(folder: Path) -> tuple[tuple[Module, ...], Mapping[str, Any]]:
    """List the modules after the transformer; also returns what `sentence_bert_config.json` says of the transformer."""
    where = folder / "modules.json"
    listed = _read(where, needed=False)
    sentence = read_json(folder / "sentence_bert_config.json", needed=False)
    if not listed:
        own = folder / "1_Pooling" / "config.json"
        pooling = [Module("Pooling", own.parent, read_json(own))] if own.exists() else []
        return tuple(pooling), sentence
    if not isinstance(listed, list) or not all(
        isinstance(one, dict) and {"path", "type"} <= one.keys() for one in listed
    ):
        raise UserError(f"{where}: expected a list of modules, each with path and type")
    found = [(str(one["type"]).rpartition(".")[2], folder / str(one["path"])) for one in listed]
    if found[0][0] not in TRANSFORMER and found[0][0] != "Router":
        raise UserError(f"{where}: found {found[0][0]} as the first module, expected Transformer or Router")
    if found[0][0] in TRANSFORMER and found[0][1] != folder:
        sentence = read_json(found[0][1] / "sentence_bert_config.json", needed=False)
    rest = found if found[0][0] == "Router" else found[1:]
    said = (
        (kind, place, read_json(place / "config.json", needed=kind in ("Pooling", "Dense"))) for kind, place in rest
    )
    return tuple(Module(*one) for one in said), sentence


def _find_window(folder: Path, config: Mapping[str, Any], sentence: Mapping[str, Any]) -> int:
    """Find the most tokens of a text, by the files that say so in the order in which they count."""
    tokenizer = read_json(folder / "tokenizer_config.json", needed=False)
    said = [sentence.get("max_seq_length") or tokenizer.get("model_max_length"), count_places(config)]
    known = [int(one) for one in said if isinstance(one, int | float) and 0 < one < MOST_TOKENS]
    return min(known, default=512)


ROBERTA = ("roberta", "xlm-roberta", "camembert")
FAMILY = ("bert", "distilbert", *ROBERTA)
"""The values of `model_type` whose networks have BERT's layers."""


def count_places(config: Mapping[str, Any]) -> int | None:
    """Count the places that a network has for tokens, by the content of its `config.json`; None if it tells none."""
    found = config.get("max_position_embeddings")
    return found - find_first_place(config) if isinstance(found, int) else None


def find_first_place(config: Mapping[str, Any]) -> int:
    """Find the number of the first token's place: RoBERTa and its kin number places after that of padding."""
    padding = config.get("pad_token_id", 1)
    return 1 + (padding if isinstance(padding, int) else 1) if config.get("model_type") in ROBERTA else 0


_MINILM_CONFIG = {
    "model_type": "bert", "hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "hidden_act": "gelu",
    "layer_norm_eps": 1e-12, "max_position_embeddings": 512,
}  # fmt: skip
"""The configuration of the embedded model, of which a package carries only weights and tokenizer."""


def read_json(path: Path, needed: bool = True) -> dict[str, Any]:
    """Read an object of JSON; an empty one if the file is missing and not needed. `UserError` for anything else."""
    found = _read(path, needed)
    if not isinstance(found, dict):
        raise UserError(f"{path}: found {type(found).__name__}, expected an object with settings")
    return found


def _read(path: Path, needed: bool) -> Any:
    try:
        return orjson.loads(path.read_bytes())
    except FileNotFoundError as error:
        if not needed:
            return {}
        raise UserError(f"{path}: is missing, expected a checkpoint with this file") from error
    except (OSError, orjson.JSONDecodeError) as error:
        raise UserError(f"{path}: could not be read as JSON: {error}") from error


def list_pooling_modes(settings: Mapping[str, Any], where: Path) -> list[str]:
    """List the pooling that a module `Pooling` names, in either form. `UserError` for one that is not known."""
    if settings.get("include_prompt") is False:
        raise UserError(f"{where}: found include_prompt: false, expected pooling over all tokens")
    named = settings.get("pooling_mode")
    if named is None:
        flags = [key for key, value in settings.items() if key.startswith("pooling_mode_") and value is True]
        found = [_OLD_MODES.get(key.removeprefix("pooling_mode_"), key) for key in flags]
    else:
        found = [named] if isinstance(named, str) else list(named)
    if unknown := [mode for mode in found if mode not in POOLING_MODES]:
        raise UserError(f"{where}: found the pooling {unknown[0]!r}, expected {', '.join(POOLING_MODES)}")
    return sorted(found, key=POOLING_MODES.index) or ["mean"]


_OLD_MODES = {
    "cls_token": "cls", "max_tokens": "max", "mean_tokens": "mean", "mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "weightedmean_tokens": "weightedmean", "lasttoken": "lasttoken",
}  # fmt: skip


def refuse(checkpoint: Checkpoint, found: str, expected: str) -> UserError:
    """Make the error for a checkpoint of the wrong kind for its use."""
    return UserError(f"{checkpoint.folder}: found {found}, expected {expected}")
