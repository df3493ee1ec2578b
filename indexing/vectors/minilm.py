"""The embedding model all-MiniLM-L6-v2: 384 dimensions, 256 tokens, mean of the tokens' states.

A BERT encoder (Devlin et al., 2019) in single precision, which ONNX Runtime computes on the CPU. The graph is built in
memory from the published weights. One thread computes each batch.

The texts of a batch have one number of tokens, so no text is padded or masked. ONNX Runtime computes each row of a
matrix product in the same order, however many rows there are. NumPy takes the mean of each text by itself. So the
vector of a text does not depend on the other texts of its batch.
"""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count, groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keystone.indexing.errors import MissingPackage
from keystone.indexing.io.published import MINILM, find_published
from keystone.indexing.types import Tick
from keystone.indexing.vectors.types import ReportCut, Vectors, round_to_grid

LONGEST_TEXT_CHARACTERS = 6_000
MODEL_TOKENS = 256
BATCH_TOKENS = 512
"""The tokens of a batch: enough for matrix products at full speed, few enough for a core's cache."""
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
            from safetensors.numpy import load_file
            from tokenizers import Tokenizer
        except ImportError as error:
            needed = "the local embedding model needs packages: pip install onnx onnxruntime safetensors tokenizers"
            raise MissingPackage(needed) from error
        onnxruntime.set_default_logger_severity(3)  # it warns of machines without a GPU
        folder = find_published(MINILM)
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(MODEL_TOKENS)
        weights = load_file(folder / "model.safetensors")
        self._words = weights["embeddings.word_embeddings.weight"]
        kind = weights["embeddings.token_type_embeddings.weight"][0]
        self._places = weights["embeddings.position_embeddings.weight"][:MODEL_TOKENS] + kind
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.enable_mem_pattern = False  # batches have many shapes
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


def build_graph(weights: Mapping[str, NDArray[np.float32]]) -> bytes:
    """The encoder as an ONNX model: sums of word, place and type, float32[texts, tokens, 384], to states of that shape.

    Between the attentions, the tokens of all texts are the rows of one matrix.
    """
    from onnx import TensorProto, helper, numpy_helper

    nodes, constants, numbers = [], [], count()

    def hold(values: NDArray[Any]) -> str:
        constants.append(numpy_helper.from_array(np.ascontiguousarray(values), f"constant{next(numbers)}"))
        return str(constants[-1].name)

    def apply(operator: str, *inputs: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(operator, inputs, [f"value{next(numbers)}"], **attributes))
        return str(nodes[-1].output[0])

    def multiply(name: str, rows: str) -> str:
        return apply("Gemm", rows, hold(weights[f"{name}.weight"].T), hold(weights[f"{name}.bias"]))

    def norm(name: str, rows: str) -> str:
        scale, bias = (hold(weights[f"{name}.{kind}"]) for kind in ("weight", "bias"))
        return apply("LayerNormalization", rows, scale, bias, epsilon=NORM_EPSILON)

    texts, matrix = apply("Shape", "rows"), hold(np.array([-1, MiniLM.dimension]))
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
