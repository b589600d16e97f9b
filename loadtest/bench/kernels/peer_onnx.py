"""The onnxruntime peer of run.py: peer_onnx.py MODEL_DIRECTORY THREADS.

Requires an interpreter with onnx, onnxruntime and numpy. The graph is like the graph that
onnxruntime's own tools make for a Llama: GroupQueryAttention with the rotation inside, fused norms,
f32 weights (its CPU kernels have no bf16), dynamic axes. Prompts are padded at the end, where
causal attention never reads, and the head computes only the requested rows. The job, in the
protocol of peer_loop.py:
  {"job": "forward", "lengths": [...], "padded": bool, "all_rows": bool}
"""

import json
import pathlib
import sys

import numpy as np
import onnxruntime
import peer_loop
import random_llama
from onnx import TensorProto, helper, numpy_helper

CONTRIB = "com.microsoft"


class Graph:
    """A graph under construction; each node has one output, which has the node's name."""

    def __init__(self):
        self.nodes, self.weights = [], []

    def weight(self, name, values):
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def node(self, kind, name, inputs, domain="", outputs=(), **attributes):
        names = [name, *outputs]
        self.nodes.append(
            helper.make_node(kind, inputs, names, name=name, domain=domain, **attributes)
        )
        return name


def rotation(config):
    half = config["head_dim"] // 2
    frequencies = config["rope_theta"] ** (-np.arange(half) / half)
    angles = np.outer(np.arange(config["max_position_embeddings"]), frequencies)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def add_layer(graph, config, weights, x, at):
    def norm(name, value):
        inputs = [value, graph.weight(at + name, weights[at + name + ".weight"])]
        return graph.node(
            "SimplifiedLayerNormalization",
            at + name + ".out",
            inputs,
            axis=-1,
            epsilon=config["rms_norm_eps"],
        )

    def linear(name, value):
        matrix = graph.weight(at + name, weights[at + name + ".weight"].T)
        return graph.node("MatMul", at + name + ".out", [value, matrix])

    h = norm("input_layernorm", x)
    q, k, v = (linear(f"self_attn.{part}_proj", h) for part in "qkv")
    attended = graph.node(
        "GroupQueryAttention",
        at + "attention",
        [q, k, v, "", "", "last", "longest", "cos", "sin"],
        domain=CONTRIB,
        outputs=[at + "keys", at + "values"],
        num_heads=config["num_attention_heads"],
        kv_num_heads=config["num_key_value_heads"],
        do_rotary=1,
    )
    x = graph.node("Add", at + "x1", [x, linear("self_attn.o_proj", attended)])
    h = norm("post_attention_layernorm", x)
    gate = linear("mlp.gate_proj", h)
    swish = graph.node("Mul", at + "swish", [gate, graph.node("Sigmoid", at + "sigmoid", [gate])])
    inner = graph.node("Mul", at + "inner", [swish, linear("mlp.up_proj", h)])
    return graph.node("Add", at + "x2", [x, linear("mlp.down_proj", inner)])


def build(config):
    """Returns the model. Inputs: ids [batch, length], last [batch] (valid tokens - 1), longest
    (scalar), rows [n] of the flattened batch. Output: the logits of those rows."""
    weights = dict(random_llama.weights(config))
    graph = Graph()
    for name, values in zip(("cos", "sin"), rotation(config), strict=True):
        graph.weight(name, values)
    table = graph.weight("table", weights["model.embed_tokens.weight"])
    x = graph.node("Gather", "embedded", [table, "ids"])
    for layer in range(config["num_hidden_layers"]):
        x = add_layer(graph, config, weights, x, f"model.layers.{layer}.")
    shape = graph.weight("flat_shape", np.array([-1, config["hidden_size"]], np.int64))
    x = graph.node("Gather", "wanted", [graph.node("Reshape", "flat", [x, shape]), "rows"])
    x = graph.node(
        "SimplifiedLayerNormalization",
        "normed",
        [x, graph.weight("norm", weights["model.norm.weight"])],
        axis=-1,
        epsilon=config["rms_norm_eps"],
    )
    graph.node("MatMul", "logits", [x, graph.weight("head", weights["lm_head.weight"].T)])
    inputs = [
        helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "length"]),
        helper.make_tensor_value_info("last", TensorProto.INT32, ["batch"]),
        helper.make_tensor_value_info("longest", TensorProto.INT32, []),
        helper.make_tensor_value_info("rows", TensorProto.INT64, ["n"]),
    ]
    output = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", config["vocab_size"]])
    made = helper.make_graph(graph.nodes, "llama", inputs, [output], graph.weights)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(CONTRIB, 1)]
    return helper.make_model(made, opset_imports=opsets, ir_version=8)


def feed(lengths, all_rows, vocab):
    longest = max(lengths)
    ids = np.random.default_rng(1).integers(0, vocab, (len(lengths), longest))
    rows = [
        row * longest + i
        for row, n in enumerate(lengths)
        for i in range(0 if all_rows else n - 1, n)
    ]
    return {
        "ids": ids,
        "last": np.array(lengths, np.int32) - 1,
        "longest": np.array(longest, np.int32),
        "rows": np.array(rows, np.int64),
    }


def main():
    directory, threads = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    config = json.loads((directory / "config.json").read_text())
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(
        build(config).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )

    def run_of(job):
        batches = [job["lengths"]] if job["padded"] else [[n] for n in job["lengths"]]
        feeds = [feed(batch, job["all_rows"], config["vocab_size"]) for batch in batches]
        return lambda: [session.run(None, one) for one in feeds]

    peer_loop.serve(f"onnxruntime {onnxruntime.__version__}", threads, run_of)


if __name__ == "__main__":
    main()
