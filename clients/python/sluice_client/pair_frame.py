"""The program `python -m sluice_client.pair_frame FOLDER`, for rerankers that are language models.

Such a model reads one text, which its chat template makes from an instruction, a query and a
document. The daemon runs no templates. This program runs the template once, and writes the constant
parts of its text to FOLDER/pair_frame.json. `docs/models.md` describes the file.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import resource
import sys
from typing import Any, Mapping, NamedTuple, Optional

_MEMORY_BYTES = 2 << 30  # address space; the vocabulary of a model is large
_SECONDS = 60  # of processor time
_SPECIALS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token",
             "mask_token")
_RAW = "torch.nn.modules.linear.Identity"
_SIGMOID = "torch.nn.modules.activation.Sigmoid"
_INPUTS = ("instruction", "query", "document")

Part = Mapping[str, str]


class Published(NamedTuple):
    """A reranker whose files have no template for pairs; its card or its library has the text."""

    repositories: tuple[str, ...]
    text: str  # with {query}, {document} and, for the text with an instruction, {instruction}
    instructed: Optional[str]
    true_token: str
    false_token: Optional[str]
    activation: str


_QWEN3 = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and"
    ' the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
    "<|im_start|>user\n<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}"
    "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
)
_MXBAI = (
    "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant."
    "<|im_end|>\n<|im_start|>user\n{instruction}query: {query}\ndocument: {document}\n"
    "You are a search relevance expert who evaluates how well documents match search queries. For"
    " each query-document pair, carefully analyze the semantic relationship between them, then"
    " provide your binary relevance judgment (0 for not relevant, 1 for relevant).\nRelevance:"
    "<|im_end|>\n<|im_start|>assistant\n"
)
PUBLISHED = {
    "qwen3-reranker": Published(
        tuple(f"Qwen/Qwen3-Reranker-{size}" for size in ("0.6B", "4B", "8B")),
        _QWEN3.replace("{instruction}", "Given a web search query, retrieve relevant passages that"
                       " answer the query"),
        _QWEN3, "yes", "no", _SIGMOID),
    "mxbai-rerank-v2": Published(
        tuple(f"mixedbread-ai/mxbai-rerank-{size}-v2" for size in ("base", "large")),
        _MXBAI.replace("{instruction}", ""),
        _MXBAI.replace("{instruction}", "instruction: {instruction}\n"), "1", "0", _RAW),
    "bge-reranker-v2-gemma": Published(
        ("BAAI/bge-reranker-v2-gemma",),
        "<bos>A: {query}\nB: {document}\nGiven a query A and a passage B, determine whether the"
        " passage contains an answer to the query by providing a prediction of either 'Yes' or"
        " 'No'.",
        None, "Yes", None, _RAW),
}


def published_as(repository: str) -> Optional[str]:
    """Returns the name in PUBLISHED of a repository of the hub, or None."""
    found = (name for name, each in PUBLISHED.items() if repository in each.repositories)
    return next(found, None)


def parts_of(text: str, markers: Mapping[str, str]) -> list[Part]:
    """Splits a text at the marker of each input. Raises ValueError if one is not there once."""
    for name, marker in markers.items():
        if (times := text.count(marker)) != 1:
            raise ValueError(
                f"the text has the {name} {times} times, unchanged; expected 1. A template that"
                " leaves out, repeats or changes its texts is not supported")
    parts: list[Part] = []
    for name, marker in sorted(markers.items(), key=lambda each: text.index(each[1])):
        before, _, text = text.partition(marker)
        parts += [{"text": before}] if before else []
        parts.append({"input": name})
    return [*parts, {"text": text}] if text else parts


def published_frame(name: str, vocabulary: Mapping[str, int]) -> dict[str, Any]:
    """Returns the content of pair_frame.json for a reranker in PUBLISHED."""
    each = PUBLISHED[name]
    markers = {key: f"{{{key}}}" for key in _INPUTS}
    del markers["instruction"]
    frame: dict[str, Any] = {"frame": parts_of(each.text, markers)}
    if each.instructed is not None:
        markers["instruction"] = "{instruction}"
        frame["frame_with_instruction"] = parts_of(each.instructed, markers)
    for key, token in (("true_token_id", each.true_token), ("false_token_id", each.false_token)):
        if token is None:
            continue
        if token not in vocabulary:
            raise ValueError(f"the vocabulary of tokenizer.json has no token {token!r}")
        frame[key] = vocabulary[token]
    return {**frame, "activation_fn": each.activation}


def _read(file: pathlib.Path) -> dict[str, Any]:
    content = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    if not isinstance(content, dict):
        raise ValueError(f"{file} is not a JSON object")
    return content


def _tokens(folder: pathlib.Path) -> dict[str, str]:
    """Returns the special tokens that a template may use."""
    found = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        config = _read(folder / name)
        for key in _SPECIALS:
            token = config.get(key)
            text = token.get("content") if isinstance(token, dict) else token
            if isinstance(text, str):
                found[key] = text
    return found


def template_of(folder: pathlib.Path) -> Optional[str]:
    """Returns the chat template of a model, or None."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    source = _read(folder / "tokenizer_config.json").get("chat_template")
    if isinstance(source, list):  # Several named templates.
        source = {each["name"]: each["template"] for each in source}.get("default")
    return source if isinstance(source, str) else None


def template_frame(folder: pathlib.Path) -> dict[str, Any]:
    """Returns the content of pair_frame.json for a folder of sentence-transformers.

    Raises ValueError if the chat template does not write a query and a document as they are.
    """
    source = template_of(folder)
    if source is None:
        raise ValueError("it has no chat template; name the text with --published")
    from .gateway.render import Template

    settings = _read(folder / "sentence_bert_config.json")
    options = dict((settings.get("processing_kwargs") or {}).get("chat_template") or {})
    options.pop("restore_suffix", None)
    message = (settings.get("modality_config") or {}).get("message") or {}
    structured = message.get("format") == "structured"
    template = Template(source, _tokens(folder))

    def render(roles: tuple[str, ...], filler: str) -> list[Part]:
        # White space, markup and capitals show whether the template changes its texts.
        markers = {role: f" \t<{filler}-{role.title()}>&'\"\\ \n" for role in roles}

        def content(text: str) -> Any:
            return [{"type": "text", "text": text}] if structured else text

        names = {"instruction": "system"}
        messages = [{"role": names.get(role, role), "content": content(markers[role])}
                    for role in roles]
        return parts_of(template.render(messages, options), markers)

    def frame(*roles: str) -> list[Part]:
        first, second = (render(roles, filler) for filler in ("one", "another"))
        if first != second:
            raise ValueError("the chat template writes other constant text for other inputs")
        return first

    made = {"frame": frame("query", "document")}
    try:
        made["frame_with_instruction"] = frame(*_INPUTS)
    except ValueError as error:
        print(f"The model takes no instruction: {error}", file=sys.stderr)
    return made


def write(folder: pathlib.Path, published: Optional[str]) -> pathlib.Path:
    """Writes pair_frame.json and returns its path. Raises ValueError for an unsupported model."""
    if published:
        model = _read(folder / "tokenizer.json").get("model") or {}
        made = published_frame(published, model.get("vocab") or {})
    else:
        made = template_frame(folder)
    file = folder / "pair_frame.json"
    file.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return file


def needs_frame(folder: pathlib.Path) -> bool:
    """Returns whether sentence-transformers makes the text of pairs by a chat template."""
    kind = _read(folder / "config_sentence_transformers.json").get("model_type")
    settings = _read(folder / "sentence_bert_config.json")
    return kind == "CrossEncoder" and "message" in (settings.get("modality_config") or {})


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m sluice_client.pair_frame",
        description="Writes FOLDER/pair_frame.json: the constant text that a reranker with a chat"
                    " template reads around a query and a document. Needs jinja2.")
    parser.add_argument("folder", metavar="FOLDER", type=pathlib.Path, help="the model's folder")
    parser.add_argument("--published", choices=sorted(PUBLISHED),
                        help="the text that the authors of this model publish, instead of the chat"
                             " template of the folder")
    given = parser.parse_args()
    # The template is code of the model's author.
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
    try:
        print(write(given.folder, given.published))
    except ImportError:
        sys.exit("pair_frame: needs jinja2: run pip install './clients/python[hub]' in"
                 " Sluice's repository")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        sys.exit(f"pair_frame: cannot make the frame of {given.folder}: {error}")


if __name__ == "__main__":
    main()
