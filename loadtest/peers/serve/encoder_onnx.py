"""Writes the encoder as ONNX: with onnxruntime's fused operators, or only with standard ones."""

import pathlib
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from encoder import Encoder, read, shape_of  # noqa: E402


class Graph:
    def __init__(self, shape: Encoder, tensors: dict[str, np.ndarray], fused: bool):
        self._shape, self._tensors, self._fused = shape, tensors, fused
        self._nodes, self._constants, self._count = [], {}, 0

    def constant(self, name: str, value: np.ndarray) -> str:
        # Not ascontiguousarray, which adds a dimension to scalars.
        self._constants.setdefault(name, numpy_helper.from_array(np.array(value, order="C"), name))
        return name

    def add(self, op: str, *inputs: str, domain: str = "", outputs: int = 1, **attributes) -> str:
        self._count += 1
        made = [f"t{self._count}_{i}" for i in range(outputs)]
        self._nodes.append(helper.make_node(op, list(inputs), made, f"{op}_{self._count}",
                                            domain=domain, **attributes))
        return made[0]

    def weight(self, name: str) -> str:
        return self.constant(name, self._tensors[name])

    def linear(self, x: str, name: str, bias: bool = True) -> str:
        y = self.add("MatMul", x, self.constant(f"{name}.t", self._tensors[f"{name}.weight"].T))
        return self.add("Add", y, self.weight(f"{name}.bias")) if bias else y

    def add_and_norm(self, x: str, residual: str, name: str) -> str:
        scale, bias = self.weight(f"{name}.weight"), self.weight(f"{name}.bias")
        eps = self._shape.norm_eps
        if self._fused:
            return self.add("SkipLayerNormalization", x, residual, scale, bias,
                            domain="com.microsoft", epsilon=eps)
        return self.add("LayerNormalization", self.add("Add", x, residual), scale, bias,
                        epsilon=eps)

    def fused_attention(self, x: str, prefix: str) -> str:
        parts = [f"{prefix}attention.self.{each}" for each in ("query", "key", "value")]
        weight = np.concatenate([self._tensors[f"{each}.weight"].T for each in parts], axis=1)
        bias = np.concatenate([self._tensors[f"{each}.bias"] for each in parts])
        return self.add("Attention", x, self.constant(f"{prefix}qkv", weight),
                        self.constant(f"{prefix}qkv_bias", bias), "mask32",
                        domain="com.microsoft", num_heads=self._shape.heads)

    def attention(self, x: str, prefix: str) -> str:
        heads, size = self._shape.heads, self._shape.hidden // self._shape.heads
        split = self.constant("split", np.array([0, 0, heads, size], np.int64))
        def of(name: str, order: list[int]) -> str:
            y = self.linear(x, f"{prefix}attention.self.{name}")
            return self.add("Transpose", self.add("Reshape", y, split), perm=order)
        scores = self.add("MatMul", of("query", [0, 2, 1, 3]), of("key", [0, 2, 3, 1]))
        scores = self.add("Mul", scores,
                          self.constant("scale", np.array(size**-0.5, np.float32)))
        weights = self.add("Softmax", self.add("Add", scores, "bias_of_mask"), axis=-1)
        y = self.add("Transpose", self.add("MatMul", weights, of("value", [0, 2, 1, 3])),
                     perm=[0, 2, 1, 3])
        return self.add("Reshape", y, self.constant("join", np.array([0, 0, heads * size],
                                                                     np.int64)))

    def layer(self, x: str, prefix: str) -> str:
        attend = self.fused_attention if self._fused else self.attention
        y = self.linear(attend(x, prefix), f"{prefix}attention.output.dense")
        x = self.add_and_norm(y, x, f"{prefix}attention.output.LayerNorm")
        if self._fused:
            up = f"{prefix}intermediate.dense"
            y = self.add("BiasGelu", self.linear(x, up, bias=False), self.weight(f"{up}.bias"),
                         domain="com.microsoft")
        else:
            y = self.add("Gelu", self.linear(x, f"{prefix}intermediate.dense"))
        y = self.linear(y, f"{prefix}output.dense")
        return self.add_and_norm(y, x, f"{prefix}output.LayerNorm")

    def masks(self) -> None:
        self._nodes.append(helper.make_node("Cast", ["mask"], ["mask32"], to=TensorProto.INT32))
        axes = self.constant("axes12", np.array([1, 2], np.int64))
        floats = self.add("Cast", "mask", to=TensorProto.FLOAT)
        hidden = self.add("Sub", self.constant("one", np.array(1, np.float32)), floats)
        far = self.add("Mul", hidden, self.constant("far", np.array(-1e9, np.float32)))
        self._nodes.append(helper.make_node("Unsqueeze", [far, axes], ["bias_of_mask"]))
        last = self.constant("axis2", np.array([2], np.int64))
        self._nodes.append(helper.make_node("Unsqueeze", [floats, last], ["kept"]))

    def embed(self) -> str:
        words = self.add("Gather", self.weight("embeddings.word_embeddings.weight"), "ids")
        places = self._tensors["embeddings.position_embeddings.weight"]
        places = places + self._tensors["embeddings.token_type_embeddings.weight"][0]
        size = self.add("Shape", "ids", start=1, end=2)
        first = self.constant("zero", np.array([0], np.int64))
        table = self.add("Slice", self.constant("places", places), first, size, first)
        return self.add("LayerNormalization", self.add("Add", words, table),
                        self.weight("embeddings.LayerNorm.weight"),
                        self.weight("embeddings.LayerNorm.bias"), epsilon=self._shape.norm_eps)

    def build(self) -> onnx.ModelProto:
        self.masks()
        x = self.embed()
        for layer in range(self._shape.layers):
            x = self.layer(x, f"encoder.layer.{layer}.")
        output, size = self.scores(x) if self._shape.labels else self.mean(x)
        self._nodes.append(helper.make_node("Identity", [output], ["answer"]))
        row = ["n", "length"]
        graph = helper.make_graph(
            self._nodes, "encoder",
            [helper.make_tensor_value_info(name, TensorProto.INT64, row)
             for name in ("ids", "mask")],
            [helper.make_tensor_value_info("answer", TensorProto.FLOAT, ["n", size])],
            list(self._constants.values()))
        return helper.make_model(graph, ir_version=10, opset_imports=[
            helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)])

    def scores(self, x: str) -> tuple[str, int]:
        """Adds the classifier after the pooled state of the first token."""
        first = self.constant("first", np.array(0, np.int64))
        pooled = self.add("Tanh", self.linear(self.add("Gather", x, first, axis=1),
                                              "pooler.dense"))
        return self.linear(pooled, "classifier"), self._shape.labels

    def mean(self, x: str) -> tuple[str, int]:
        """Adds the mean over the tokens that are not padding."""
        axis = self.constant("axis1", np.array([1], np.int64))
        total = self.add("ReduceSum", self.add("Mul", x, "kept"), axis, keepdims=0)
        count = self.add("ReduceSum", "kept", axis, keepdims=0)
        return self.add("Div", total, count), self._shape.hidden


def export(checkpoint: pathlib.Path, fused: bool) -> pathlib.Path:
    """Writes the model next to the checkpoint if it is missing."""
    path = checkpoint / f"{'fused' if fused else 'plain'}.onnx"
    if not path.exists():
        onnx.save(Graph(shape_of(checkpoint), read(checkpoint), fused).build(), path)
    return path
