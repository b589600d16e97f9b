"""The seeds of the fuzz targets that read requests and the daemon's configuration."""

import json
import pathlib
import re
import struct

import yaml
from tritonclient.grpc import service_pb2

ROOT = pathlib.Path(__file__).resolve().parents[2]


def options():
    """Yields (section, path, values) for each option of the daemon. The section of the keys of a
    model is `models`."""
    for part in (ROOT / "docs" / "options.md").read_text().split("\n### ")[1:]:
        for name, values in re.findall(r"^\| `([\w.]+)` \|.*\| ([^|]*) \| \w+ \|$", part, re.M):
            yield part.splitlines()[0], name, values


def another_value(name, values):
    """Returns a valid value of an option, usually not its default."""
    expected, default = re.fullmatch(r"(.*); default (.*?)\.", values).groups()
    kind = expected.split(" ")[1] if expected.startswith("A") else expected.split(" ")[0]
    if kind == "One":
        words = re.split(", | with ", expected.removeprefix("One of "))
        return next(word for word in words if word != default)
    others = {"path": f"/x/{name}", "HOST:PORT": "127.0.0.1:9000", "list": [16, 32],
              "True": default == "false"}
    of_zero = {"integer": 64, "size": "1GiB", "duration": "2ms", "number": 0.5}
    others |= of_zero if default == "0" else {}
    return others.get(kind, yaml.safe_load(default))


# Options whose values depend on each other or have a notation of their own.
CHOSEN = {
    "name": "m", "path": "/m", "quantize_head": True, "quantization": "int4",
    "quantization_group": 128, "speculation": {"draft": "d", "tokens": 4, "sequences": 2},
    "ladder": {"strategy": "fixed", "fixed_tokens": [8, 16], "ratio": 2}, "device": "cuda:1",
    "engine.attention.variant": "split:4", "server.grpc.address": "[::1]:0",
    "server.metrics.address": "127.0.0.1:0", "server.admin.address": "127.0.0.1:0",
}


def config_seeds():
    """Yields all options with other values than their defaults, by section, as JSON, and some ways
    to write YAML."""
    sections = {}
    for section, name, values in options():
        value = CHOSEN[name] if name in CHOSEN else another_value(name, values)
        tree = sections.setdefault(section.replace(" ", "_"), {})
        *path, key = name.split(".")
        for each in path:
            tree = tree.setdefault(each, {})
        tree[key] = value
    sections["models"] = {"models": [sections["models"]]}
    sections["server.admin"]["server"]["admin"]["open_to_network"] = True
    sections["server.tls"]["server"]["auth"] = {"callers_file": "/x/callers"}
    for section, tree in sections.items():
        yield section, json.dumps({"model_repository": "/x"} | tree).encode()
    yield "block", (b"model_repository: /x\nengine:\n  queue:  # of a model\n    max_wait: 5s\n"
                    b"  ladder:\n    strategy: fixed\n    fixed_tokens:\n    - 16\n    - 32\n")
    yield "models_flow", b"models: [{name: demo, path: ../models/demo, version: 3}]\n"
    yield "models_block", b'models:\n  - name: "a.b-c"\n    path: \'/x y\'\n'
    yield "units", (b"model_repository: /x\n"
                    b"engine: {ladder: {review: {}}, batch: {max_queue_delay: 2 ms}}\n"
                    b"server:\n  log: {level: debug}\n")
    yield "old", (b"engine: {queue: {max_wait_us: 1s}, batch: {policy: cut_and_fill}}\n"
                  b"models: [{name: a, path: b, ladder: {whole_tiles: true}}]\n")
    yield "document", b"%YAML 1.2\n---\n# nothing\nmodel_repository: /x\n...\n"
    yield "folded", b"models:\n- name: >-\n    demo\n  path: |-\n    /x\n"


def texts(name, values):
    """Returns an input of texts: its name, type, shape and bytes."""
    packed = b"".join(struct.pack("<I", len(value)) + value for value in values)
    return name, "BYTES", [len(values), 1], packed


def ids(name, rows, datatype="INT32"):
    """Returns an input of token ids, padded to the longest row."""
    width = max(map(len, rows))
    values = [token for row in rows for token in [*row, *[0] * (width - len(row))]]
    code = {"INT32": "i", "INT64": "q"}[datatype]
    return name, datatype, [len(rows), width], struct.pack(f"<{len(values)}{code}", *values)


def prompts(rows=((1, 2, 3),), datatype="INT32"):
    return [ids("input_ids", rows, datatype), ids("input_lengths", [[len(row)] for row in rows])]


def request(inputs, typed=False, outputs=(), **parameters):
    """Returns the bytes of a request. If `typed`, its numbers are in the typed fields."""
    message = service_pb2.ModelInferRequest(model_name="demo", id="seed")
    for name, datatype, shape, data in inputs:
        tensor = message.inputs.add(name=name, datatype=datatype, shape=shape)
        if typed:
            field, code = {"INT32": ("int_contents", "i"),
                           "INT64": ("int64_contents", "q")}[datatype]
            values = struct.unpack(f"<{len(data) // struct.calcsize(code)}{code}", data)
            getattr(tensor.contents, field).extend(values)
        else:
            message.raw_input_contents.append(data)
    for name in outputs:
        message.outputs.add(name=name)
    for name, value in parameters.items():
        kind = {bool: "bool_param", int: "int64_param", float: "double_param", str: "string_param"}[
            type(value)
        ]
        setattr(message.parameters[name], kind, value)
    return message.SerializeToString(deterministic=True)


def request_seeds():
    text = [texts("text_input", [b"And"])]
    pair = [*text, texts("text_pair_input", [b"it came"])]
    yield "ids", request(prompts())
    yield "ids64", request(prompts(((1, 2), (3, 4, 5)), "INT64"))
    yield "typed", request(prompts(((1,), (2, 3))), typed=True)
    yield "typed64", request(prompts(datatype="INT64"), typed=True)
    yield "text", request([texts("text_input", [b"In the beginning"])])
    yield "texts", request([texts("text_input", [b"a", b"", b"\xff\x00b"])])
    yield "pair", request(pair)
    yield "query", request([*text, texts("text_pair_input", [b"it", b"came", b"to pass"])])
    yield "types", request([*prompts(), ids("token_type_ids", [[0, 0, 1]])])
    yield "embeds", request([("inputs_embeds", "FP32", [1, 2, 1], struct.pack("<2f", 0.5, -1)),
                             ids("input_lengths", [[2]])])
    yield "candidates", request([*prompts(), ids("candidate_ids", [[4, 5, -1]])],
                                outputs=("candidate_scores", "candidate_order"),
                                candidate_activation="log_softmax", diversity=0.5)
    yield "excluded", request([*prompts(), ids("exclude_ids", [[4, -1]])], max_tokens=2,
                              outputs=("output_ids", "finish_reason"))
    yield "outputs", request(prompts(), outputs=("logits", "output_ids", "prompt_logprobs",
                                                 "xsa_cos_sim"))
    yield "top", request(prompts(), num_top_logprobs=3, outputs=("top_ids", "top_logprobs"))
    yield "generate", request(text, max_tokens=16, temperature=0.7, top_p=0.9, top_k=40, seed=7)
    yield "typical", request(prompts(), max_tokens=4, temperature=0.7, min_p=0.1, typical_p=0.9,
                             ignore_eos=True, speculation=False)
    yield "penalties", request(prompts(), max_tokens=4, repetition_penalty=1.2,
                               presence_penalty=0.5, frequency_penalty=-0.5)
    yield "prediction", request(text, max_tokens=4, prediction="it came to pass")
    yield "stop", request(prompts(), max_tokens=9, stop='["ab", "."]', stop_token_ids="[3, 4]",
                          min_tokens=2)
    yield "edits", request(prompts(), logit_bias='{"3": -1.5, "250": null}',
                           allowed_token_ids="3,4,5")
    yield "limits", request(prompts(), priority=2, timeout=1000000,
                            triton_enable_empty_final_response=True)
    yield "embedding", request(text, outputs=("embedding", "token_count"), pooling="mean",
                               normalize=True, dimensions=4, task="query", prompt_name="")
    yield "spans", request(text, outputs=("span_embeddings", "span_count"),
                           spans="[[[0, 1], [1, 3]]]", span_unit="bytes")
    yield "sparse", request(text, outputs=("sparse_ids", "sparse_weights"), max_active_dims=8)
    yield "windows", request([texts("text_input", [b"And it came to pass " * 20])],
                             window_overlap=4, activation="softmax")
    yield "truncated", request([texts("text_input", [b"And it came to pass " * 20])],
                               truncate="right", max_tokens=1, add_special_tokens=False)
    yield "extraction", request(text, labels='["name", "place"]', threshold=0.3, overlap="nested",
                                multi_label=True)
    yield "instruction", request(pair, instruction="Find passages that answer the question")


def wire_seeds():
    chosen = {"ids", "outputs", "text", "top", "typed"}
    yield from ((name, data) for name, data in request_seeds() if name in chosen)
    load = service_pb2.RepositoryModelLoadRequest(model_name="demo")
    load.parameters["config"].string_param = "{}"
    load.parameters["file:1/model"].bytes_param = b"\x00\xff"
    yield "load", load.SerializeToString(deterministic=True)


def parameters_seeds():
    yield "numbers", b"max_tokens:i5\ntemperature:d0.5\ntop_k:u3\ntop_p:s0.9\nmin_p:d0"
    yield "flags", b"ignore_eos:b1\ntriton_enable_empty_final_response:i1\nspeculation:b0"
    yield "lists", b'stop:s["a", "b\\n"]\nstop_token_ids:s[1, 2]\nallowed_token_ids:s1,2,7'
    yield "bias", b'logit_bias:s{"1": 1.5, "2": null, "4": "-inf"}\nmax_tokens:i2\nmin_tokens:i1'
    yield "penalties", b"repetition_penalty:d1.1\npresence_penalty:s-2\nfrequency_penalty:i1"
    yield "schedule", b"priority:u1\ntimeout:s1000\nseed:u18446744073709551615\nnum_top_logprobs:i2"
    yield "bits", b"temperature:d" + struct.pack(
        "<d", float("nan")
    ) + b"\ntop_p:d\x00\x00\x00\x00\x00\x00\xf0?"
    yield "none", b"max_tokens:"
    yield "sampling", b"typical_p:d0.9\ndiversity:s0.25\nprediction:sit came to pass"
    yield "embedding", (b"pooling:sweighted_mean\nnormalize:b1\ndimensions:i3\nmax_active_dims:u9\n"
                        b"task:squery")
    yield "spans", b"spans:s[[[0, 12], [12, 30]], [[1, 2]]]\nspan_unit:stokens"
    yield "prompts", b"prompt_name:squery\ninstruction:sFind passages"
    yield "texts", (b"truncate:sleft\nwindow_overlap:i4\nactivation:ssigmoid\n"
                    b"candidate_activation:slog_softmax\nadd_special_tokens:b0")
    yield "extraction", (b'labels:s["name", "place"]\nthreshold:d0.3\noverlap:snested\n'
                         b"multi_label:b1")
