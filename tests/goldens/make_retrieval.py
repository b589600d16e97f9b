"""Makes the folder retrieval: models with heads of token states as published, and their answers.

The models are random and small. The answers are computed in float64 by the formulas of
FlagEmbedding (m3), PyLate (pylate, windowed), ColBERT (colbert) and sentence-transformers (router).
Needs torch, transformers 5.24.0 and sentence-transformers 6.2.0 (seconds, no GPU). Where
sentence-transformers loads a folder itself, its answers must agree.
"""

import json
import pathlib
import random
import shutil
import string
import sys

import numpy as np
import torch
from safetensors.torch import save_file
from sentence_transformers import MultiVectorEncoder, SparseEncoder
from torch.nn.functional import normalize
from transformers import (
    AutoModel,
    BertConfig,
    BertForMaskedLM,
    BertModel,
    ModernBertConfig,
    ModernBertModel,
    PreTrainedTokenizerFast,
    XLMRobertaConfig,
    XLMRobertaModel,
)

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))
from make_sentences import SPECIALS, draw, texts  # noqa: E402

OUT = HERE / "retrieval"
SEED = 6253
SIZES = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3,
         "intermediate_size": 40, "max_position_embeddings": 40}
LENGTHS = {"query": 12, "document": 20}
PATH = "sentence_transformers.sparse_encoder.models."


def write(path: pathlib.Path, content) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")


def tokenizer(base: str, added: list[str], **specials) -> PreTrainedTokenizerFast:
    made = PreTrainedTokenizerFast(
        tokenizer_file=str(HERE / "tokenizers" / f"{base}.json"), **specials)
    made.add_tokens(added)
    return made


def save(model, tokens, name: str, seed: int) -> pathlib.Path:
    folder = OUT / name
    draw(model, seed).save_pretrained(folder)
    tokens.save_pretrained(folder)
    return folder


def matrix(outputs: int, inputs: int, seed: int) -> torch.Tensor:
    return torch.from_numpy(
        np.random.default_rng(seed).standard_normal((outputs, inputs)).astype(np.float32))


def rounded(rows) -> list:
    return np.round(np.asarray(rows, np.float64), 9).tolist()


def make_m3() -> dict:
    """FlagEmbedding's M3: dense, sparse and multi-vector outputs of one pass."""
    names = {"cls_token": "<s>", "bos_token": "<s>", "eos_token": "</s>", "sep_token": "</s>",
             "pad_token": "<pad>", "unk_token": "<unk>", "mask_token": "<mask>"}
    tokens = tokenizer("roberta", [], **names)
    config = XLMRobertaConfig(**SIZES | {"max_position_embeddings": 100},
                              vocab_size=len(tokens), type_vocab_size=1,
                              pad_token_id=tokens.pad_token_id)
    folder = save(XLMRobertaModel(config, add_pooling_layer=False), tokens, "m3", 81)
    heads = {}
    for name, outputs, seed in (("colbert_linear", 24, 82), ("sparse_linear", 1, 83)):
        heads[name] = {"weight": matrix(outputs, 24, seed), "bias": matrix(1, outputs, seed + 9)[0]}
        save_file(heads[name], folder / f"{name}.safetensors")
    model = XLMRobertaModel.from_pretrained(folder, add_pooling_layer=False).double().eval()
    unused = {tokens.cls_token_id, tokens.eos_token_id, tokens.pad_token_id, tokens.unk_token_id}
    rows = []
    for text in texts(6, 12):
        inputs = tokens(text, return_tensors="pt", truncation=True, max_length=90)
        ids = inputs["input_ids"][0].tolist()
        states = model(input_ids=inputs["input_ids"],
                       attention_mask=inputs["attention_mask"]).last_hidden_state[0]

        def linear(name, x):
            head = heads[name]
            return x @ head["weight"].double().T + head["bias"].double()

        weights: dict[int, float] = {}
        for token, weight in zip(ids, linear("sparse_linear", states)[:, 0].relu().tolist()):
            if token not in unused and weight > 0:
                weights[token] = max(weight, weights.get(token, 0))
        rows.append({"text": text, "dense": rounded(normalize(states[0], dim=0)),
                     "sparse": {str(k): round(v, 9) for k, v in weights.items()},
                     "vectors": rounded(normalize(linear("colbert_linear", states[1:]), dim=1))})
    return {"rows": rows}


def late_interaction(folder, tokens, layers, markers, skipped, attends=False) -> dict:
    """PyLate's and ColBERT's vectors of queries and documents."""
    model = AutoModel.from_pretrained(folder, attn_implementation="eager").double().eval()
    skip = {tokens.convert_tokens_to_ids(word) for word in skipped
            if word in tokens.get_vocab()}
    made = {}
    for task, sentences in (("query", texts(4, 8)), ("document", texts(7, 16))):
        made[task] = []
        for text in sentences:
            ids = tokens(text, truncation=True, max_length=LENGTHS[task] - 1)["input_ids"]
            ids[1:1] = [tokens.convert_tokens_to_ids(markers[task])]
            mask = [1] * len(ids)
            if task == "query":
                more = LENGTHS[task] - len(ids)
                ids += [tokens.mask_token_id] * more
                mask += [int(attends)] * more
            vectors = model(input_ids=torch.tensor([ids]),
                            attention_mask=torch.tensor([mask])).last_hidden_state[0]
            for layer in layers:
                vectors = vectors @ layer.double().T
            vectors = normalize(vectors, dim=1)
            if task == "document":
                vectors = vectors[torch.tensor([token not in skip for token in ids])]
            made[task].append({"text": text, "vectors": rounded(vectors)})
    made["scores"] = [
        [float((np.array(q["vectors"]) @ np.array(d["vectors"]).T).max(1).sum())
         for d in made["document"]] for q in made["query"]]
    return made


def agree(folder: pathlib.Path, made: dict) -> None:
    """Compares with sentence-transformers, which loads the folder by itself."""
    model = MultiVectorEncoder(str(folder), device="cpu",
                               model_kwargs={"attn_implementation": "eager"}).double()
    for task, encode in (("query", model.encode_query), ("document", model.encode_document)):
        for row in made[task]:
            (vectors,) = encode([row["text"]], convert_to_numpy=True)
            np.testing.assert_allclose(vectors, row["vectors"], atol=2e-6)


def pylate_files(folder, sizes, markers, attends) -> list:
    """Writes the files of PyLate; returns the matrices of its dense layers."""
    modules = [{"idx": 0, "name": "0", "path": "", "type":
                "sentence_transformers.models.Transformer"}]
    layers = []
    for i, (inputs, outputs) in enumerate(zip(sizes, sizes[1:]), 1):
        name = f"{i}_Dense"
        modules.append({"idx": i, "name": str(i), "path": name, "type":
                        "pylate.models.Dense.Dense"})
        write(folder / name / "config.json", {
            "in_features": inputs, "out_features": outputs, "bias": False,
            "activation_function": "torch.nn.modules.linear.Identity", "use_residual": False})
        layers.append(matrix(outputs, inputs, 90 + i))
        save_file({"linear.weight": layers[-1]}, folder / name / "model.safetensors")
    write(folder / "modules.json", modules)
    write(folder / "sentence_bert_config.json", {"max_seq_length": 19, "do_lower_case": False})
    write(folder / "config_sentence_transformers.json", {
        "__version__": {"sentence_transformers": "4.0.2", "PyLate": "1.2.0"},
        "prompts": {}, "default_prompt_name": None, "similarity_fn_name": "MaxSim",
        "query_prefix": markers["query"], "document_prefix": markers["document"],
        "query_length": LENGTHS["query"], "document_length": LENGTHS["document"],
        "attend_to_expansion_tokens": attends, "skiplist_words": list(string.punctuation),
        "do_query_expansion": True})
    return layers


def make_pylate(name: str, sizes, attends: bool, windowed: bool) -> dict:
    markers = {"query": "[Q] ", "document": "[D] "}
    tokens = tokenizer("bert_uncased", [*markers.values()], **SPECIALS,
                       model_input_names=["input_ids", "attention_mask"])
    if windowed:
        model = ModernBertModel(ModernBertConfig(
            **SIZES, vocab_size=len(tokens), local_attention=24, global_attn_every_n_layers=2,
            pad_token_id=0, bos_token_id=2, eos_token_id=3, cls_token_id=2, sep_token_id=3))
    else:
        model = BertModel(BertConfig(**SIZES, vocab_size=len(tokens)), add_pooling_layer=False)
    folder = save(model, tokens, name, 84 + len(sizes))
    layers = pylate_files(folder, sizes, markers, attends)
    made = late_interaction(folder, tokens, layers, markers, string.punctuation, attends)
    agree(folder, made)
    return made


def make_colbert() -> dict:
    markers = {"query": "[unused0]", "document": "[unused1]"}
    tokens = tokenizer("bert_uncased", [*markers.values()], **SPECIALS)
    model = BertModel(BertConfig(**SIZES, vocab_size=len(tokens)), add_pooling_layer=False)
    folder = save(model, tokens, "colbert", 86)
    states = {f"bert.{key}": value.contiguous() for key, value in model.state_dict().items()}
    layer = matrix(16, 24, 95)
    save_file({**states, "linear.weight": layer}, folder / "model.safetensors",
              metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    made = late_interaction(OUT / "colbert", tokens, [layer], markers, string.punctuation)
    write(folder / "config.json", config | {"architectures": ["HF_ColBERT"]})
    write(folder / "artifact.metadata", {
        "query_token_id": "[unused0]", "doc_token_id": "[unused1]", "query_token": "[Q]",
        "doc_token": "[D]", "dim": 16, "similarity": "cosine", "query_maxlen": LENGTHS["query"],
        "doc_maxlen": LENGTHS["document"], "mask_punctuation": True,
        "attend_to_mask_tokens": False, "checkpoint": "colbert"})
    agree(folder, made)
    return made


def make_router() -> dict:
    """A sparse encoder whose queries need no inference (SparseStaticEmbedding)."""
    tokens = tokenizer("bert_uncased", [], **SPECIALS)
    folder = save(BertForMaskedLM(BertConfig(**SIZES, vocab_size=len(tokens))), tokens, "router",
                  87)
    static = folder / "query_0_SparseStaticEmbedding"
    weights = matrix(1, len(tokens), 96)[0].abs()
    weights[::7] = 0
    tokens.save_pretrained(static)
    write(static / "config.json", {"frozen": True})
    save_file({"weight": weights}, static / "model.safetensors")
    write(folder / "document_1_SpladePooling" / "config.json", {
        "pooling_strategy": "max", "activation_function": "log1p_relu",
        "word_embedding_dimension": len(tokens)})
    types = {"query_0_SparseStaticEmbedding": PATH + "SparseStaticEmbedding",
             "": PATH + "MLMTransformer", "document_1_SpladePooling": PATH + "SpladePooling"}
    write(folder / "router_config.json", {
        "types": types, "structure": {"query": ["query_0_SparseStaticEmbedding"],
                                      "document": ["", "document_1_SpladePooling"]},
        "parameters": {"default_route": "document", "allow_empty_key": True}})
    write(folder / "modules.json", [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Router"}])
    write(folder / "config_sentence_transformers.json", {
        "model_type": "SparseEncoder", "prompts": {"query": "", "document": ""},
        "default_prompt_name": None, "similarity_fn_name": "dot"})
    write(folder / "sentence_bert_config.json", {"max_seq_length": 40, "do_lower_case": False})
    model = SparseEncoder(str(folder), device="cpu").double()
    made = {}
    for task, encode in (("query", model.encode_query), ("document", model.encode_document)):
        made[task] = []
        for text in texts(6, 14):
            row = encode([text], convert_to_tensor=True, convert_to_sparse_tensor=False)[0]
            made[task].append({"text": text, "sparse": {
                str(i): round(float(row[i]), 9) for i in row.nonzero()[:, 0].tolist()}})
    return made


def main() -> None:
    torch.manual_seed(SEED)
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    random.seed(SEED)
    shutil.rmtree(OUT, ignore_errors=True)
    expected = {
        "m3": make_m3(),
        "pylate": make_pylate("pylate", (24, 32, 16), attends=False, windowed=False),
        "attending": make_pylate("attending", (24, 16), attends=True, windowed=False),
        "windowed": make_pylate("windowed", (24, 16), attends=False, windowed=True),
        "colbert": make_colbert(),
        "router": make_router(),
    }
    for path in [*OUT.rglob("README.md"), *OUT.rglob("training_args.bin")]:
        path.unlink()
    (OUT / "expected.json").write_text(json.dumps(expected, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
