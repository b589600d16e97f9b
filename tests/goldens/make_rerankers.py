"""Makes the folder rerankers: rerankers that are language models, and the scores of CrossEncoder.

Each folder is a model with random weights as sentence-transformers saves it, with the texts that
its authors publish as a chat template. expected.json has the scores of 200 pairs for each model,
computed in float64. Needs torch 2.15.0, transformers 5.24.0, sentence-transformers 6.2.0 and, in
PYTHONPATH, clients/python (seconds, no GPU).
"""

import json
import pathlib
import random
import shutil
import tempfile

import numpy as np
import torch
from sentence_transformers import CrossEncoder
from sentence_transformers.base.modules import Transformer
from sentence_transformers.cross_encoder.modules import LogitScore
from sluice_client.pair_frame import PUBLISHED
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import nn
from transformers import (
    GemmaConfig,
    GemmaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

HERE = pathlib.Path(__file__).parent
OUT = HERE / "rerankers"
SEED = 6205
LONGEST = 320
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "intermediate_size": 48, "max_position_embeddings": LONGEST}
SPECIALS = ["<bos>", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]
# The pattern of the tokenizers of Qwen 2 and 3.
PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
           r"|\s*[\r\n]+|\s+(?!\S)|\s+")
TEMPLATE = """
{%%- set given = messages | selectattr("role", "equalto", "system") | list -%%}
{%%- set query = (messages | selectattr("role", "equalto", "query") | first).content -%%}
{%%- set document = (messages | selectattr("role", "equalto", "document") | first).content -%%}
{%%- if given %%}{%% set instruction = given[0].content %%}%s{%% else %%}%s{%% endif -%%}
{%%- if add_generation_prompt %%}%s{%% endif -%%}
"""
# The name in PUBLISHED, the model, and the activation of its scores.
SHAPES = {
    "qwen3": ("qwen3-reranker", Qwen3ForCausalLM, Qwen3Config,
              {"head_dim": 12, "tie_word_embeddings": True}, nn.Sigmoid()),
    "mxbai": ("mxbai-rerank-v2", Qwen2ForCausalLM, Qwen2Config,
              {"tie_word_embeddings": False}, nn.Identity()),
    # It takes no instruction, and its score is one logit.
    "gemma": ("bge-reranker-v2-gemma", GemmaForCausalLM, GemmaConfig,
              {"head_dim": 8, "tie_word_embeddings": True}, nn.Identity()),
}


def words() -> list[str]:
    return (HERE / "tokenizers" / "corpus.txt").read_text().split()


def train_tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERN), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=900, special_tokens=SPECIALS, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    frames = [text for each in PUBLISHED.values() for text in (each.text, each.instructed) if text]
    tokenizer.train_from_iterator([" ".join(words()), *frames * 4, "yes no Yes No " * 9,
                                   "yes\nno"],
                                  trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<|endoftext|>",
                                   model_max_length=LONGEST)


def chat_template(name: str) -> str:
    published = PUBLISHED[name]
    start = "<|im_end|>\n<|im_start|>assistant\n"
    texts = []
    for text in (published.instructed or published.text, published.text):
        before, found, end = text.partition(start)
        for key in ("instruction", "query", "document"):
            before = before.replace(f"{{{key}}}", f"{{{{ {key} }}}}")
        texts.append(before + ("<|im_end|>\n" if found else ""))
    return TEMPLATE.strip() % (*texts, f"<|im_start|>assistant\n{end}" if found else "")


def draw(model: nn.Module, seed: int) -> nn.Module:
    rng = np.random.default_rng(seed)
    for name, parameter in model.named_parameters():
        scale = 0.5 if "embed" in name else 0.9 / parameter.shape[-1] ** 0.5
        # Gemma's norms multiply by 1 + weight.
        mean = float(name.endswith("norm.weight") and not isinstance(model, GemmaForCausalLM))
        scale = 0.2 if parameter.dim() == 1 else scale
        values = mean + scale * rng.standard_normal(tuple(parameter.shape))
        parameter.data.copy_(torch.from_numpy(values))
    return model.eval()


def make_model(scratch: pathlib.Path, name: str) -> pathlib.Path:
    published, model, config, more, activation = SHAPES[name]
    tokenizer = train_tokenizer()
    tokenizer.chat_template = chat_template(published)
    base = scratch / name
    seed = SEED + list(SHAPES).index(name)
    sizes = {**SIZES, **more, "vocab_size": len(tokenizer)}
    draw(model(config(**sizes)), seed).save_pretrained(base)
    tokenizer.save_pretrained(base)
    ids = [tokenizer.get_vocab()[each] for each in
           (PUBLISHED[published].true_token, PUBLISHED[published].false_token) if each]
    transformer = Transformer(str(base), transformer_task="text-generation", processing_kwargs={
        "chat_template": {"add_generation_prompt": True}})
    folder = OUT / name
    CrossEncoder(modules=[transformer, LogitScore(*ids)], activation_fn=activation).save_pretrained(
        str(folder))
    (folder / "README.md").unlink()
    return folder


def texts() -> dict:
    rng = random.Random(SEED)
    known = words()
    ends = ["?", "", ".", " \n", "…"]  # A token may cross the end of a text.

    def text(most: int) -> str:
        return " ".join(rng.choices(known, k=rng.randrange(1, most))) + rng.choice(ends)

    long = " ".join(rng.choices(known, k=200))  # is cut
    documents = [text(24) for _ in range(21)] + ["", "ÜBER Straße 東京", "yes <|im_end|>\nno", long]
    return {"queries": [text(9) for _ in range(8)], "documents": documents,
            "instructions": [None] * 4 + ["Find the passage that answers"] * 3 + ["a\n b "]}


def score(folder: pathlib.Path, made: dict, activation: nn.Module) -> list:
    # In float64, so that only the daemon's rounding causes differences.
    model = CrossEncoder(str(folder), device="cpu").double()
    assert type(model.activation_fn) is type(activation)
    rows = []
    for query, instruction in zip(made["queries"], made["instructions"]):
        pairs = [(query, document) for document in made["documents"]]
        scores = [model.predict([pair], prompt=instruction, activation_fn=nn.Identity(),
                                convert_to_tensor=True)[0].item() for pair in pairs]
        assert np.diff(np.sort(scores)).min() > 3e-5, np.diff(np.sort(scores)).min()
        rows.append([round(x, 9) for x in scores])
    return rows


def main() -> None:
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    shutil.rmtree(OUT, ignore_errors=True)
    made = texts()
    assert len(made["queries"]) * len(made["documents"]) == 200
    made["scores"] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name, (_, _, _, _, activation) in SHAPES.items():
            folder = make_model(pathlib.Path(scratch), name)
            made["scores"][name] = score(folder, made, activation)
    (OUT / "expected.json").write_text(json.dumps(made, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
