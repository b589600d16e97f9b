"""Exports the checkpoint as an ONNX graph with dynamic axes: with onnxruntime's fused operators, or
only with standard ones.

The inputs are `input_ids` int64 [rows, longest] and `lengths` int32 [rows]. The outputs, for the
token after each prompt, are `token` int64 [rows] and `logprob` float [rows]. The head is applied to
the last position of each row only. Prompts are padded on the right, where causal attention sees no
padding; GroupQueryAttention applies the rotary embedding.
"""

import pathlib
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from checkpoint import Shape, read  # noqa: E402

FUSED = "com.microsoft"


class Graph:
    """Collects nodes and weights; every operator returns the name of its first output."""

    def __init__(self):
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def weight(self, name: str, array: np.ndarray) -> str:
        """Adds a constant, once per name."""
        if all(each.name != name for each in self.weights):
            # Not ascontiguousarray, which adds a dimension to scalars.
            self.weights.append(numpy_helper.from_array(np.array(array, order="C"), name))
        return name

    def op(self, kind: str, *inputs: str, outputs: int = 1, domain: str = "", **attributes) -> str:
        return self.ops(kind, *inputs, outputs=outputs, domain=domain, **attributes)[0]

    def ops(
        self, kind: str, *inputs: str, outputs: int, domain: str = "", **attributes
    ) -> list[str]:
        name = f"{kind}_{len(self.nodes)}"
        names = [f"{name}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, inputs, names, name, domain=domain, **attributes))
        return names


def rotary(shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    half = shape.head_dim // 2
    frequencies = shape.rope_theta ** (-np.arange(half) / half)
    angles = np.outer(np.arange(shape.positions), frequencies)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


class Builder:
    """Builds the graph with onnxruntime's fused operators."""

    def __init__(self, shape: Shape, tensors: dict[str, np.ndarray]):
        self.shape, self.tensors, self.graph = shape, tensors, Graph()

    def constant(self, name: str, *values: int, dtype=np.int64) -> str:
        return self.graph.weight(name, np.array(values, dtype))

    def linear(self, x: str, *names: str) -> str:
        """Adds one product for several matrices with the same input."""
        stacked = np.concatenate([self.tensors[f"{name}.weight"] for name in names])
        return self.graph.op("MatMul", x, self.graph.weight("+".join(names), stacked.T))

    def norm(self, x: str, skip: str | None, name: str) -> tuple[str, str]:
        """Adds the norm of x + skip. Returns it and x + skip."""
        weight = self.graph.weight(name, self.tensors[f"{name}.weight"])
        if skip is None:
            made = self.graph.op("SimplifiedLayerNormalization", x, weight, axis=-1,
                                 epsilon=self.shape.norm_eps, stash_type=1)
            return made, x
        made = self.graph.ops("SkipSimplifiedLayerNormalization", x, skip, weight, outputs=4,
                              domain=FUSED, epsilon=self.shape.norm_eps)
        return made[0], made[3]

    def common(self, before: str, width: str) -> list[str]:
        """Returns the inputs of all layers' attention: the lengths less one, and [longest]."""
        cosines, sines = rotary(self.shape)
        return [before, self.graph.op("Cast", width, to=TensorProto.INT32),
                self.graph.weight("cos", cosines), self.graph.weight("sin", sines)]

    def attention(self, h: str, prefix: str, common: list[str]) -> str:
        qkv = self.linear(h, *(f"{prefix}self_attn.{each}_proj" for each in "qkv"))
        mixed = self.graph.ops(
            "GroupQueryAttention", qkv, "", "", "", "", *common, outputs=3, domain=FUSED,
            num_heads=self.shape.heads, kv_num_heads=self.shape.kv_heads, do_rotary=1,
            scale=self.shape.head_dim**-0.5)[0]
        return self.linear(mixed, f"{prefix}self_attn.o_proj")

    def swish(self, x: str) -> str:
        return self.graph.op("QuickGelu", x, domain=FUSED, alpha=1.0)

    def mlp(self, h: str, prefix: str) -> str:
        gate = self.swish(self.linear(h, f"{prefix}mlp.gate_proj"))
        up = self.linear(h, f"{prefix}mlp.up_proj")
        return self.linear(self.graph.op("Mul", gate, up), f"{prefix}mlp.down_proj")

    def head(self, x: str, skip: str, last: str) -> None:
        """Adds the head on the normed last positions of the residual stream."""
        rows = self.graph.op("GatherND", self.graph.op("Add", x, skip), last, batch_dims=1)
        h, _ = self.norm(rows, None, "model.norm")
        logits = self.linear(h, "lm_head")
        self.graph.nodes.append(helper.make_node("ArgMax", [logits], ["token"], axis=1, keepdims=0))
        best = self.graph.op("ReduceMax", logits, self.constant("axis", 1), keepdims=0)
        total = self.graph.op("ReduceLogSumExp", logits, "axis", keepdims=0)
        self.graph.nodes.append(helper.make_node("Sub", [best, total], ["logprob"]))

    def build(self) -> Graph:
        op = self.graph.op
        before = op("Sub", "lengths", self.constant("one", 1, dtype=np.int32))
        common = self.common(before, op("Gather", op("Shape", "input_ids"),
                                        self.constant("second", 1)))
        last = op(
            "Unsqueeze", op("Cast", before, to=TensorProto.INT64), self.constant("columns", 1)
        )
        embedding = self.graph.weight("embedding", self.tensors["model.embed_tokens.weight"])
        x, skip = op("Gather", embedding, "input_ids"), None
        for layer in range(self.shape.layers):
            prefix = f"model.layers.{layer}."
            h, x = self.norm(x, skip, f"{prefix}input_layernorm")
            h, x = self.norm(
                x, self.attention(h, prefix, common), f"{prefix}post_attention_layernorm"
            )
            skip = self.mlp(h, prefix)
        self.head(x, skip, last)
        return self.graph


class PlainBuilder(Builder):
    """Builds the graph with standard operators."""

    def norm(self, x: str, skip: str | None, name: str) -> tuple[str, str]:
        op = self.graph.op
        x = x if skip is None else op("Add", x, skip)
        square = op("ReduceMean", op("Mul", x, x), self.constant("last_axis", -1), keepdims=1)
        eps = self.graph.weight("eps", np.float32(self.shape.norm_eps))
        unit = op("Div", x, op("Sqrt", op("Add", square, eps)))
        return op("Mul", unit, self.graph.weight(name, self.tensors[f"{name}.weight"])), x

    def common(self, before: str, width: str) -> list[str]:
        op, first = self.graph.op, self.constant("first", 0)
        tables = [np.concatenate([each, each], axis=1) for each in rotary(self.shape)]
        above = np.triu(np.full([self.shape.positions] * 2, -1e9, np.float32), 1)
        made = [op("Slice", self.graph.weight(name, table), first, width, first)
                for name, table in zip(("cos", "sin", "above"), [*tables, above], strict=True)]
        return [*made[:2], op("Slice", made[2], first, width, self.constant("columns", 1))]

    def heads(self, h: str, name: str) -> str:
        """Adds a projection, [rows, heads, longest, head size]. Repeats the heads of keys and
        values for the queries that share them.
        """
        shape, weight = self.shape, self.tensors[f"{name}.weight"]
        parts = weight.reshape(-1, shape.head_dim, shape.hidden)
        weight = np.repeat(parts, shape.heads // len(parts), axis=0).reshape(-1, shape.hidden)
        made = self.graph.op("MatMul", h, self.graph.weight(name, weight.T))
        split = self.constant("split", 0, 0, shape.heads, shape.head_dim)
        return self.graph.op("Transpose", self.graph.op("Reshape", made, split), perm=[0, 2, 1, 3])

    def rotated(self, x: str, cosines: str, sines: str) -> str:
        op, axis = self.graph.op, self.constant("last_axis", -1)
        half, end = self.constant("half", self.shape.head_dim // 2), self.constant(
            "end", self.shape.head_dim)
        turned = op("Concat", op("Neg", op("Slice", x, half, end, axis)),
                    op("Slice", x, self.constant("first", 0), half, axis), axis=-1)
        return op("Add", op("Mul", x, cosines), op("Mul", turned, sines))

    def attention(self, h: str, prefix: str, common: list[str]) -> str:
        op, (cosines, sines, above) = self.graph.op, common
        q, k, v = (self.heads(h, f"{prefix}self_attn.{each}_proj") for each in "qkv")
        q, k = (self.rotated(each, cosines, sines) for each in (q, k))
        scores = op("MatMul", q, op("Transpose", k, perm=[0, 1, 3, 2]))
        scale = self.graph.weight("scale", np.float32(self.shape.head_dim**-0.5))
        weights = op("Softmax", op("Add", op("Mul", scores, scale), above), axis=-1)
        mixed = op("Transpose", op("MatMul", weights, v), perm=[0, 2, 1, 3])
        joined = op("Reshape", mixed, self.constant("join", 0, 0, self.shape.hidden))
        return self.linear(joined, f"{prefix}self_attn.o_proj")

    def swish(self, x: str) -> str:
        return self.graph.op("Mul", x, self.graph.op("Sigmoid", x))


def export(checkpoint: pathlib.Path, fused: bool = True) -> pathlib.Path:
    """Writes the graph into the checkpoint's folder if it is missing."""
    path = checkpoint / ("model.onnx" if fused else "plain.onnx")
    if path.exists():
        return path
    made = (Builder if fused else PlainBuilder)(*read(checkpoint)).build()
    graph = helper.make_graph(
        made.nodes, "llama",
        [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["rows", "longest"]),
         helper.make_tensor_value_info("lengths", TensorProto.INT32, ["rows"])],
        [helper.make_tensor_value_info("token", TensorProto.INT64, ["rows"]),
         helper.make_tensor_value_info("logprob", TensorProto.FLOAT, ["rows"])],
        made.weights)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(FUSED, 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path
