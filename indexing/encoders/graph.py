"""The graph of a network of BERT's family, as an ONNX model that is built in memory.

It names the places of the weights in their files, which are mapped and never copied, unless it computes with integers.

All texts of a batch have one number of tokens, so nothing is padded or masked. Between the attentions, the tokens of
all texts are the rows of one matrix.
"""

from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from keystone.indexing.encoders.weights import Layout, Weights

OPERATORS_VERSION, FILE_VERSION = 23, 10
"""The versions of ONNX's operators and of its file form. ONNX Runtime 1.23 and newer know them."""

CONTRIBUTED = "com.microsoft"
"""The domain of the operators that ONNX Runtime adds to ONNX."""
LARGEST = 63
"""The largest integer in the place of a weight. The name of the model implies it: another integer needs a new name."""

Head = Literal["states", "late", "words", "labels"]
"""What a network computes of each text.

`states` is a vector for each token, float32[texts, tokens, width]. So is `late`, where all tokens see the first ones
alone, whose number is given with the texts. `words` is the greatest logit of each entry of the
vocabulary over the tokens, float32[texts, vocabulary]. `labels` is a logit for each label, float32[texts, labels].
"""


def folder_of(weights: Weights) -> Path:
    """The folder whose files a graph maps."""
    return weights["embeddings.word_embeddings.weight"].file.parent


class _Graph:
    def __init__(self, weights: Weights, layout: Layout, integers: bool) -> None:
        self.weights, self.layout, self.integers = weights, layout, integers
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.folder = folder_of(weights)
        self._held: set[str] = set()
        self._numbers = count()

    def hold(self, values: NDArray[Any]) -> str:
        from onnx import numpy_helper

        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(values), f"constant{next(self._numbers)}"))
        return str(self.constants[-1].name)

    def weigh(self, name: str) -> str:
        """Name the place of an array of weights in its file, which is mapped; convert one in another precision."""
        from onnx import TensorProto, numpy_helper

        if name not in self._held:
            own = self.weights[name]
            if own.type == "F32" and own.file.parent == self.folder:
                held = TensorProto(name=name, dims=own.shape, data_type=TensorProto.FLOAT)
                held.data_location = TensorProto.EXTERNAL
                place = {"location": own.file.name, "offset": own.begin, "length": own.end - own.begin}
                for key, value in place.items():
                    held.external_data.add(key=key, value=str(value))
            else:
                held = numpy_helper.from_array(own.read(), name)
            self.constants.append(held)
            self._held.add(name)
        return name

    def apply(self, operator: str, *inputs: str, **attributes: Any) -> str:
        from onnx import helper

        self.nodes.append(helper.make_node(operator, inputs, [f"value{next(self._numbers)}"], **attributes))
        return str(self.nodes[-1].output[0])

    def multiply(self, name: str, rows: str, weight: str = "") -> str:
        if self.integers:
            weights, bias = self.weights[weight or f"{name}.weight"].read(), self.weigh(f"{name}.bias")
            held = [self.hold(values) for values in round_weights(weights)]
            return self.apply("DynamicQuantizeMatMul", rows, *held, "", bias, domain=CONTRIBUTED)
        return self.apply("Gemm", rows, self.weigh(weight or f"{name}.weight"), self.weigh(f"{name}.bias"), transB=1)

    def norm(self, name: str, rows: str) -> str:
        scale, bias = (self.weigh(f"{name}.{kind}") for kind in ("weight", "bias"))
        return self.apply("LayerNormalization", rows, scale, bias, epsilon=self.layout.epsilon)

    def activate(self, rows: str) -> str:
        if self.layout.activation == "relu":
            return self.apply("Relu", rows)
        own = {} if self.layout.activation == "gelu" else {"approximate": "tanh"}
        return self.apply("Gelu", rows, **own)


def round_weights(weights: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Round weights, float32[outputs, inputs], to 7 bits: int8[inputs, outputs], and the scale of each output.

    ONNX Runtime multiplies them with rows in 8 bits. Without VNNI, a processor adds pairs of products in 16 bits: 7
    bits are the most that always fit (2 * 255 * 63 < 2^15). So all x86 processors compute the same sums.
    """
    scales = np.abs(weights).max(axis=1) / np.float32(LARGEST)
    return np.rint(weights.T / scales).astype(np.int8), scales


def build_graph(weights: Weights, layout: Layout, head: Head, integers: bool = False) -> bytes:
    """Build the graph from sums of word, place and type, float32[texts, tokens, width], to what a head computes.

    With `integers`, its layers multiply integers, rounded by the range of the whole batch: so a batch is one text.
    """
    from onnx import TensorProto, helper

    own = _Graph(weights, layout, integers)
    texts, matrix = own.apply("Shape", "rows"), own.hold(np.array([-1, layout.width]))
    start, along = (own.hold(np.array([place])) for place in (0, 1)) if head == "late" else ("", "")
    heads = {"q_num_heads": layout.heads, "kv_num_heads": layout.heads}
    rows = own.norm("embeddings.LayerNorm", own.apply("Reshape", "rows", matrix))
    for layer in range(layout.layers):
        name = f"encoder.layer.{layer}"
        parts = [own.multiply(f"{name}.attention.self.{part}", rows) for part in ("query", "key", "value")]
        shaped = [own.apply("Reshape", part, texts) for part in parts]
        if head == "late":
            shaped[1:] = [own.apply("Slice", part, start, "seen", along) for part in shaped[1:]]
        seen = own.apply("Attention", *shaped, **heads)
        seen = own.multiply(f"{name}.attention.output.dense", own.apply("Reshape", seen, matrix))
        rows = own.norm(f"{name}.attention.output.LayerNorm", own.apply("Add", seen, rows))
        inner = own.activate(own.multiply(f"{name}.intermediate.dense", rows))
        rows = own.norm(f"{name}.output.LayerNorm", own.apply("Add", own.multiply(f"{name}.output.dense", inner), rows))
    states: Sequence[str | int] = ["texts", "tokens", layout.width]
    shape: Sequence[str | int] = states
    if head == "words":
        rows, shape = _find_greatest_words(own, rows, texts), ["texts", weights["words.decoder.bias"].shape[0]]
    elif head == "labels":
        rows, shape = _weigh_labels(own, rows, texts), ["texts", weights["labels.decoder.bias"].shape[0]]
    else:
        rows = own.apply("Reshape", rows, texts)
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, form) for name, form in (("rows", states), (rows, shape))
    ]
    seen_by_all = [helper.make_tensor_value_info("seen", TensorProto.INT64, [1])] if head == "late" else []
    graph = helper.make_graph(own.nodes, "network", ends[:1] + seen_by_all, ends[1:], own.constants)
    versions = [helper.make_opsetid("", OPERATORS_VERSION), helper.make_opsetid(CONTRIBUTED, 1)]
    model = helper.make_model(graph, opset_imports=versions, ir_version=FILE_VERSION)
    found: bytes = model.SerializeToString()
    return found


def _find_greatest_words(own: _Graph, rows: str, texts: str) -> str:
    """The head of masked language models, and then the greatest logit of each word over the tokens of a text."""
    rows = own.norm("words.LayerNorm", own.activate(own.multiply("words.dense", rows)))
    tied = "words.decoder.weight" if "words.decoder.weight" in own.weights else "embeddings.word_embeddings.weight"
    logits = own.multiply("words.decoder", rows, tied)
    start, end, rest = (own.hold(np.array([place])) for place in (0, 2, -1))
    by_text = own.apply("Concat", own.apply("Slice", texts, start, end), rest, axis=0)
    return own.apply("ReduceMax", own.apply("Reshape", logits, by_text), own.hold(np.array([1])), keepdims=0)


def _weigh_labels(own: _Graph, rows: str, texts: str) -> str:
    """The head of classifiers, which reads the state of the first token."""
    states = own.apply("Reshape", rows, texts)
    first = own.apply("Gather", states, own.hold(np.array([0])), axis=1)
    first = own.apply("Reshape", first, own.hold(np.array([-1, own.layout.width])))
    inner = own.apply(own.layout.label_activation, own.multiply("labels.dense", first))
    return own.multiply("labels.decoder", inner)
