"""The embedding model all-MiniLM-L6-v2: 384 dimensions, 256 tokens, mean of the tokens' states.

A BERT encoder (Devlin et al., 2019) in single precision, which ONNX Runtime computes on the CPU. The graph is built in
memory. It names the places of the weights in their published file, which is mapped and never copied. One thread
computes each batch.

The texts of a batch have one number of tokens, so no text is padded or masked. ONNX Runtime computes each row of a
matrix product in the same order, however many rows there are. NumPy takes the mean of each text by itself. So the
vector of a text does not depend on the other texts of its batch.
"""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count, groupby
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from keystone.indexing.errors import MissingPackage
from keystone.indexing.io.published import MINILM, find_published
from keystone.indexing.types import Tick
from keystone.indexing.vectors.types import ReportCut, Vectors, round_to_grid

LONGEST_TEXT_CHARACTERS = 6_000
MODEL_TOKENS = 256
BATCH_TOKENS = 512
"""The tokens of a batch: enough for matrix products at full speed, few enough for a core's cache."""
WEIGHTS_FILE = "model.safetensors"
LAYERS, ATTENTION_HEADS = 6, 12
NORM_EPSILON = 1e-12
OPERATORS_VERSION, FILE_VERSION = 23, 10
"""The versions of ONNX's operators and of its file form. ONNX Runtime 1.23 and newer know them."""


class MiniLM:
    """The model in memory, for any number of threads."""

    dimension = 384

    def __init__(self) -> None:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        try:
            import onnxruntime
            from tokenizers import Tokenizer
        except ImportError as error:
            needed = "the local embedding model needs packages: pip install onnx onnxruntime tokenizers"
            raise MissingPackage(needed) from error
        onnxruntime.set_default_logger_severity(3)  # it warns of machines without a GPU
        folder = find_published(MINILM)
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(MODEL_TOKENS)
        weights = list_weights(folder / WEIGHTS_FILE)
        self._words, places, kinds = (
            weights[f"embeddings.{name}_embeddings.weight"].read() for name in ("word", "position", "token_type")
        )
        self._places = places[:MODEL_TOKENS] + kinds[0]
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.enable_mem_pattern = False  # batches have many shapes
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
        self._encoder = onnxruntime.InferenceSession(build_graph(weights), options, providers=["CPUExecutionProvider"])

    def find_long(self, texts: Sequence[str]) -> list[int]:
        """The positions of the texts that have more than 6,000 characters or 256 tokens."""
        return self._tokenize(texts)[1]

    def _tokenize(self, texts: Sequence[str]) -> tuple[list[list[int]], list[int]]:
        """The tokens of each text, cut to the window, and the positions of the texts that were cut."""
        encodings = self._tokenizer.encode_batch([text[:LONGEST_TEXT_CHARACTERS] for text in texts])
        longer = [
            position
            for position, (text, encoding) in enumerate(zip(texts, encodings, strict=True))
            if len(text) > LONGEST_TEXT_CHARACTERS or encoding.overflowing
        ]
        return [encoding.ids for encoding in encodings], longer

    def embed(
        self,
        texts: Sequence[str],
        threads: int = 1,
        tick: Tick = lambda _: None,
        cut: ReportCut = lambda _: None,
    ) -> Vectors:
        """The vectors of texts, float32[len(texts), 384], each text cut to 6,000 characters and 256 tokens."""
        result = np.zeros((len(texts), self.dimension), dtype=np.float32)
        tokens, longer = self._tokenize(texts)
        for position in longer:
            cut(position)

        def embed_batch(members: list[int]) -> None:
            result[members] = round_to_grid(self._encode_batch([tokens[i] for i in members]))
            tick(len(members))

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(embed_batch, group_by_length([len(own) for own in tokens])))
        return result

    def _encode_batch(self, batch: list[list[int]]) -> NDArray[np.float32]:
        """The mean of the last layer's states for each text, float32[texts, 384]. `batch` holds token ids by text."""
        rows = self._words[batch] + self._places[: len(batch[0])]
        (states,) = self._encoder.run(None, {"rows": rows})
        return np.stack([own.mean(axis=0) for own in states])


def group_by_length(lengths: Sequence[int], most: int = BATCH_TOKENS) -> list[list[int]]:
    """Positions in groups of one length, the longest first. A group has at most `most` tokens, or is a single text."""
    found: list[list[int]] = []
    for length, group in groupby(sorted(range(len(lengths)), key=lambda i: -lengths[i]), key=lengths.__getitem__):
        members, size = list(group), max(1, most // length)
        found += [members[start : start + size] for start in range(0, len(members), size)]
    return found


@dataclass(frozen=True, slots=True)
class Weight:
    """The place of an array of weights in its file: little-endian float32 of a shape, from a byte to before another."""

    file: Path
    shape: tuple[int, ...]
    begin: int
    end: int

    def read(self) -> NDArray[np.float32]:
        """Map the array."""
        return np.asarray(np.memmap(self.file, "<f4", "r", self.begin, self.shape))


def list_weights(file: Path) -> dict[str, Weight]:
    """List the arrays of a file of safetensors by their names.

    The file begins with the length of its header in 8 bytes. The header has the shapes and places in JSON.
    """
    with file.open("rb") as opened:
        start = 8 + (length := int.from_bytes(opened.read(8), "little"))
        header: dict[str, Any] = orjson.loads(opened.read(length))
    return {
        name: Weight(file, tuple(own["shape"]), *(start + place for place in own["data_offsets"]))
        for name, own in header.items()
        if own.get("dtype") == "F32"
    }


def build_graph(weights: Mapping[str, Weight]) -> bytes:
    """The encoder as an ONNX model: sums of word, place and type, float32[texts, tokens, 384], to states of that shape.

    Between the attentions, the tokens of all texts are the rows of one matrix. The model holds no weights, only places.
    """
    from onnx import TensorProto, helper, numpy_helper

    nodes, constants, numbers = [], [], count()

    def hold(name: str) -> str:
        own, external = weights[name], TensorProto.EXTERNAL
        held = TensorProto(name=name, dims=own.shape, data_type=TensorProto.FLOAT, data_location=external)
        place = {"location": own.file.name, "offset": own.begin, "length": own.end - own.begin}
        for key, value in place.items():
            held.external_data.add(key=key, value=str(value))
        constants.append(held)
        return name

    def apply(operator: str, *inputs: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(operator, inputs, [f"value{next(numbers)}"], **attributes))
        return str(nodes[-1].output[0])

    def multiply(name: str, rows: str) -> str:
        return apply("Gemm", rows, hold(f"{name}.weight"), hold(f"{name}.bias"), transB=1)

    def norm(name: str, rows: str) -> str:
        return apply("LayerNormalization", rows, hold(f"{name}.weight"), hold(f"{name}.bias"), epsilon=NORM_EPSILON)

    constants.append(numpy_helper.from_array(np.array([-1, MiniLM.dimension]), "matrix"))
    texts, matrix = apply("Shape", "rows"), "matrix"
    heads = {"q_num_heads": ATTENTION_HEADS, "kv_num_heads": ATTENTION_HEADS}
    rows = norm("embeddings.LayerNorm", apply("Reshape", "rows", matrix))
    for layer in range(LAYERS):
        name = f"encoder.layer.{layer}"
        parts = [multiply(f"{name}.attention.self.{part}", rows) for part in ("query", "key", "value")]
        seen = apply("Attention", *[apply("Reshape", part, texts) for part in parts], **heads)
        seen = multiply(f"{name}.attention.output.dense", apply("Reshape", seen, matrix))
        rows = norm(f"{name}.attention.output.LayerNorm", apply("Add", seen, rows))
        inner = apply("Gelu", multiply(f"{name}.intermediate.dense", rows))
        rows = norm(f"{name}.output.LayerNorm", apply("Add", multiply(f"{name}.output.dense", inner), rows))
    ends = [
        helper.make_tensor_value_info(value, TensorProto.FLOAT, ["texts", "tokens", MiniLM.dimension])
        for value in ("rows", apply("Reshape", rows, texts))
    ]
    graph = helper.make_graph(nodes, "MiniLM", ends[:1], ends[1:], constants)
    versions = [helper.make_opsetid("", OPERATORS_VERSION)]
    model = helper.make_model(graph, opset_imports=versions, ir_version=FILE_VERSION)
    found: bytes = model.SerializeToString()
    return found
