"""The daemon under prompts with the lengths of a trace, with different ladders and both products.

The models have random weights and the shapes of models of 125 million, 1 billion and 8 billion
parameters; the larger ones have a share of their layers and of their vocabulary.
"""

import contextlib
import json
import pathlib
import random
import struct
import tempfile

from daemon_cases import Daemon, NotMeasured, expect

EVENLY = ["--engine.ladder.strategy", "hardware_aware", "--engine.ladder.max-buckets"]
LADDERS = {
    "one bucket": ["--engine.ladder.strategy", "fixed", "--engine.ladder.fixed-tokens", "4096"],
    "16 buckets": [*EVENLY, "16"],
    "64 buckets": [*EVENLY, "64"],
    "128 buckets": [*EVENLY, "128"],
    "geometric": ["--engine.ladder.strategy", "geometric"],
    "adaptive": ["--engine.ladder.strategy", "adaptive"],
}
# Layers, hidden and intermediate size, heads, KV heads, size of a head, vocabulary.
MODELS = {
    "125M": (12, 768, 3072, 12, 12, 64, 32000),
    "a quarter of 1B": (4, 2048, 8192, 32, 8, 64, 32064),
    "an eighth of 8B": (4, 4096, 14336, 32, 8, 128, 16032),
}
REHEARSED = (1, 64, 128, 4, 2, 16, 256)
BEST = "adaptive"  # the ladder that the larger models compare with one bucket
BLOCK = 1 << 19  # values that repeat, because drawing every weight would take too long


def cases():
    """Returns (name, model, product, ladder) of each case."""
    chosen = [("125M", product, ladder) for product in ("cublaslt", "own") for ladder in LADDERS]
    for model in list(MODELS)[1:]:
        chosen += [(model, "cublaslt", ladder) for ladder in ("one bucket", BEST)]
    return [(f"trace; {model}, {product}, {ladder}", model, product, ladder)
            for model, product, ladder in chosen]


def bf16(value):
    return struct.pack(">f", value)[1::-1]


def write_model(folder, sizes):
    """Writes a Llama checkpoint whose weights repeat a block of random values."""
    layers, hidden, inner, heads, kv_heads, head_dim, vocab = sizes
    draw = random.Random(1)
    block = b"".join(bf16(draw.uniform(-0.03, 0.03)) for _ in range(BLOCK))
    matrices = {
        "self_attn.q_proj": (heads * head_dim, hidden),
        "self_attn.k_proj": (kv_heads * head_dim, hidden),
        "self_attn.v_proj": (kv_heads * head_dim, hidden),
        "self_attn.o_proj": (hidden, heads * head_dim),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    shapes = {"model.embed_tokens.weight": (vocab, hidden), "lm_head.weight": (vocab, hidden),
              "model.norm.weight": (hidden,)}
    for layer in range(layers):
        prefix = f"model.layers.{layer}."
        shapes |= {f"{prefix}{name}.weight": shape for name, shape in matrices.items()}
        shapes |= {f"{prefix}{norm}.weight": (hidden,)
                   for norm in ("input_layernorm", "post_attention_layernorm")}
    header, offset = {}, 0
    for name, shape in shapes.items():
        size = 2 * (shape[0] * shape[1] if len(shape) == 2 else shape[0])
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for shape in shapes.values():
            if len(shape) == 1:
                file.write(bf16(1.0) * shape[0])
                continue
            whole, rest = divmod(2 * shape[0] * shape[1], len(block))
            for _ in range(whole):
                file.write(block)
            file.write(block[:rest])
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden,
        "intermediate_size": inner, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "head_dim": head_dim, "vocab_size": vocab,
        "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "bfloat16"
    }
    (folder / "config.json").write_text(json.dumps(config))


def tokens(daemon, kind):
    """Returns the daemon's count of tokens of a kind."""
    label = f'kind="{kind}"'
    lines = [line for line in daemon.metrics() if line.startswith("sluice_tokens_total{")]
    return sum(float(line.split()[-1]) for line in lines if label in line)


class Traces:
    """Runs the cases. Keeps the last model on disk, because writing it takes seconds."""

    def __init__(self, trace):
        self._trace = trace
        self._stack = contextlib.ExitStack()
        self._model = None
        self._folder = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._stack.close()

    def _folder_of(self, check, model):
        if self._model != model:
            self._stack.close()
            parent = "/dev/shm" if pathlib.Path("/dev/shm").is_dir() else None
            made = self._stack.enter_context(tempfile.TemporaryDirectory(dir=parent))
            self._folder = pathlib.Path(made)
            write_model(self._folder, REHEARSED if check.rehearsal else MODELS[model])
            self._model = model
        return self._folder

    def run(self, check, model, product, ladder):
        if self._trace is None:
            raise NotMeasured("no --trace was given")
        if product == "cublaslt" and not (check.library or check.rehearsal):
            raise NotMeasured("no cuBLASLt")
        folder = self._folder_of(check, model)
        options = [*LADDERS[ladder], "--engine.ladder.review.interval", "1s"]
        if not check.rehearsal:
            options += ["--cuda.dense", product]
        shape = f"{model}, {product}, {ladder}"
        with Daemon(check, *options, model=folder, batch_tokens=4096) as daemon:
            daemon.await_ready()
            path = check.results.raw / f"load_{check.case}.json"
            seconds, warm_up = (1, 0) if check.rehearsal else (4, 3)
            status = daemon.load("--concurrency", "4" if check.rehearsal else "256", "--lengths",
                                 "trace", "--trace", self._trace, "--cap", "4096", "--vocab",
                                 str(REHEARSED[-1]), "--max-tokens", "0", "--warm-up", str(warm_up),
                                 "--duration", str(seconds), "--min-duration", "0", "--min-calls",
                                 "1", "--drain", "20", "--quiet", "--out", path)
            # 1: a client was late, which on a busy machine says nothing of a rehearsal.
            allowed = (0, 1) if check.rehearsal else (0,)
            expect(status in allowed and path.exists(),
                   f"the load generator ended with status {status}")
            phase = json.loads(path.read_text())["phases"][0]
            expect(phase["outcomes"]["ok"] > 0, f"no call was answered: {phase['outcomes']}")
            useful, computed = tokens(daemon, "useful"), tokens(daemon, "computed")
            expect(computed > 0, "no rows were computed")
            values = [("tokens", phase["tokens_per_s"], "tokens/s"),
                      ("latency, median", phase["latency_ms"]["p50"], "ms"),
                      ("latency, 99th percentile", phase["latency_ms"]["p99"], "ms"),
                      ("executed efficiency", useful / computed, "")]
            return [{"part": "trace", "name": name, "shape": shape, "value": value, "unit": unit}
                    for name, value, unit in values]
