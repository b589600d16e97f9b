"""Saves the results of a Hugging Face model, for `sluice verify`.

  python tools/save_golden.py MODEL_DIR golden.npz --ids 3,14,15 --ids 9,2,6,5
  python tools/save_golden.py MODEL_DIR golden.npz --text "A text." --text "Another."
  python tools/save_golden.py MODEL_DIR golden.npz --pair "A query." "A document."

Needs torch and transformers, and sentence-transformers for a directory with a modules.json. Each
sequence is computed separately, in float64 unless --dtype is given. The results are saved as
float32: the logits, the residual stream before the first layer (state_0) and after each layer
(state_1, ...), the state after the last norm (final), and the output of each module with weights
(module:NAME). For a classifier they are its scores (scores) and the outputs of its own modules, [n,
width] each, instead of logits; for a token classifier they are the tokens' scores (token_scores).
For a directory of sentence-transformers they are the embeddings (embedding, [n, width], or for a
multi-vector model token_embeddings, [n, length, width]).

For a model of your own, call `record` with the model and the list of its layers.
"""

import argparse
import pathlib

import numpy as np
import torch


def layers_of(model):
    """Returns the longest list of modules, which contains the layers."""
    lists = [module for module in model.modules() if isinstance(module, torch.nn.ModuleList)]
    return max(lists, key=len)


def tensor_of(value):
    return value if isinstance(value, torch.Tensor) else value[0]


def record_one(model, ids, layers, final, types=None):
    """Returns {name: output} for one sequence: [length, width] each, or [width] if pooled."""
    seen, handles = {}, []

    def keep(name):
        def hook(_, __, output):
            output = tensor_of(output)
            of_positions = output.dim() == 3 and tuple(output.shape[:2]) == (1, len(ids))
            if of_positions or output.dim() == 2 and output.shape[0] == 1:
                seen[name] = output[0].detach()
        return hook

    def keep_first(_, inputs, keywords):
        seen["state_0"] = (inputs[0] if inputs else keywords["hidden_states"])[0].detach()

    for name, module in model.named_modules():
        if getattr(module, "weight", None) is not None and not list(module.children()):
            handles.append(module.register_forward_hook(keep(f"module:{name}")))
    handles.append(layers[0].register_forward_pre_hook(keep_first, with_kwargs=True))
    for k, layer in enumerate(layers):
        handles.append(layer.register_forward_hook(keep(f"state_{k + 1}")))
    if final is not None:
        handles.append(final.register_forward_hook(keep("final")))
    with torch.no_grad():
        more = {"token_type_ids": torch.tensor([types])} if types else {}
        output = model(torch.tensor([ids]), **more)
    for handle in handles:
        handle.remove()
    logits = output if isinstance(output, torch.Tensor) else getattr(output, "logits", None)
    if logits is not None:
        of_tokens = type(model).__name__.endswith("ForTokenClassification")
        of_positions = "token_scores" if of_tokens else "logits"
        seen[of_positions if logits.dim() == 3 else "scores"] = logits[0].detach()
    return {name: value.to(torch.float32).numpy() for name, value in seen.items()}


def record(model, sequences, layers=None, final=None, types=None):
    """Returns arrays for numpy.savez. `final` is the module that computes the last norm, and
    `types` has the types of each sequence's tokens if they are not all 0."""
    layers = layers_of(model) if layers is None else layers
    types = types or [None] * len(sequences)
    rows = [record_one(model, ids, layers, final, of) for ids, of in zip(sequences, types)]
    longest = max(map(len, sequences))
    arrays = {"input_ids": np.zeros((len(rows), longest), np.int64),
              "input_lengths": np.array([[len(ids)] for ids in sequences], np.int64)}
    for n, ids in enumerate(sequences):
        arrays["input_ids"][n, :len(ids)] = ids
    if any(types):
        arrays["token_type_ids"] = np.zeros((len(rows), longest), np.int64)
        for n, of in enumerate(types):
            arrays["token_type_ids"][n, :len(of or [])] = of or []
    for name in rows[0]:
        if not all(name in row for row in rows):
            continue  # for one sequence, the output only looked like one value per position
        if rows[0][name].ndim == 1:
            if all(row[name].ndim == 1 for row in rows):
                arrays[name] = np.stack([row[name] for row in rows])
            continue
        padded = np.zeros((len(rows), longest, rows[0][name].shape[-1]), np.float32)
        for n, row in enumerate(rows):
            padded[n, :len(row[name])] = row[name]
        arrays[name] = padded
    return arrays


def final_norm(model):
    """Returns the norm after the layers, found by its name in the supported families, or None."""
    for name, module in model.named_modules():
        last = name.split(".")[-1] in ("norm", "ln_f", "final_norm", "final_layer_norm")
        if last and not any(part in name for part in ("layers", ".h.", "block", "embeddings")):
            return module
    return None


def embeddings(directory, sequences, types, dtype):
    """Returns the embeddings of sentence-transformers, for each text or for its tokens."""
    import sentence_transformers
    modules = (pathlib.Path(directory) / "modules.json").read_text()
    kind = "SentenceTransformer" if ".Pooling" in modules else "MultiVectorEncoder"
    model = getattr(sentence_transformers, kind)(directory, device="cpu").to(dtype).eval()
    rows = []
    for ids, of in zip(sequences, types):
        inputs = {"input_ids": torch.tensor([ids]), "attention_mask": torch.ones((1, len(ids)))}
        if of:
            inputs["token_type_ids"] = torch.tensor([of])
        with torch.no_grad():
            features = model(inputs)
        key = "sentence_embedding" if kind == "SentenceTransformer" else "token_embeddings"
        rows.append(features[key][0].to(torch.float32).numpy())
    if kind == "SentenceTransformer":
        return {"embedding": np.stack(rows)}
    longest = max(map(len, rows))
    return {"token_embeddings": np.stack(
        [np.pad(row, ((0, longest - len(row)), (0, 0))) for row in rows])}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model_directory")
    parser.add_argument("out")
    parser.add_argument(
        "--ids", action="append", default=[], help="token ids, separated by commas"
    )
    parser.add_argument(
        "--text", action="append", default=[], help="a text, which the model's tokenizer splits"
    )
    parser.add_argument(
        "--pair", action="append", default=[], nargs=2, help="two texts as one sequence"
    )
    parser.add_argument("--dtype", default="float64", choices=["float32", "float64"])
    arguments = parser.parse_args()

    import transformers
    config = transformers.AutoConfig.from_pretrained(arguments.model_directory)
    model_class = getattr(transformers, config.architectures[0])
    config._experts_implementation = "eager"  # the others refuse float64
    model = model_class.from_pretrained(arguments.model_directory, config=config,
                                        attn_implementation="eager")
    dtype = getattr(torch, arguments.dtype)
    model = model.to(dtype).eval()
    sequences = [[int(number) for number in ids.split(",")] for ids in arguments.ids]
    types = [None] * len(sequences)
    texts = [(text,) for text in arguments.text] + [tuple(pair) for pair in arguments.pair]
    if texts:
        tokenizer = transformers.AutoTokenizer.from_pretrained(arguments.model_directory)
        encoded = [tokenizer(*text) for text in texts]
        sequences += [of["input_ids"] for of in encoded]
        types += [of.get("token_type_ids") for of in encoded]
    if not sequences:
        parser.error("give --ids, --text or --pair")
    arrays = record(model, sequences, final=final_norm(model), types=types)
    if (pathlib.Path(arguments.model_directory) / "modules.json").exists():
        if not config.architectures[0].endswith("Classification"):
            arrays |= embeddings(arguments.model_directory, sequences, types, dtype)
    np.savez(arguments.out, **arrays)
    outputs = arrays.keys() - {"input_ids", "input_lengths", "token_type_ids"}
    print(f"{arguments.out}: {len(sequences)} sequences, {len(outputs)} outputs")


if __name__ == "__main__":
    main()
