"""The program sluice-pull: downloads a model from the hub and prints the command that serves it.

Endpoint, credentials and proxies are those of huggingface_hub: HF_ENDPOINT, HF_TOKEN and others.
"""

from __future__ import annotations

import argparse
import importlib
import pathlib
import re
import shlex
import subprocess
import sys
from typing import Any, Iterable

from . import pair_frame

# Weights in other formats, and copies of the model for other programs.
_OTHER_FOLDERS = ("onnx", "openvino", "original", "coreml", "gguf", "metal")
_TEXTS = re.compile(r"\.(json|jinja)$|(^|/)(vocab|merges|added_tokens)\.txt$|\.model$")
_WEIGHTS = re.compile(r"(^|/)model(-\d+-of-\d+)?\.safetensors$")
_PICKLES = re.compile(r"^pytorch_model(-\d+-of-\d+)?\.bin$")


def needed_files(names: Iterable[str]) -> list[str]:
    """Returns the files of a repository that the daemon reads.

    Without safetensors, they have the weights of PyTorch, which tools/convert reads. Raises
    ValueError if the repository has no model.
    """
    usable = [name for name in names if name.partition("/")[0] not in _OTHER_FOLDERS]
    weights = [name for name in usable if _WEIGHTS.search(name)]
    if not any("/" not in name for name in weights):
        weights += [name for name in usable if _PICKLES.search(name)]
    configs = {"config.json", "gliner_config.json"} & {*usable}
    if not configs or not any("/" not in name for name in weights):
        raise ValueError("it has no config.json or gliner_config.json with model.safetensors or"
                         " pytorch_model.bin")
    return sorted({*weights, *(name for name in usable if _TEXTS.search(name))})


def arguments() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="sluice-pull",
        description="Downloads a model from the Hugging Face hub, and prints the command that"
                    " serves it. Only the files that Sluice reads are downloaded.")
    add = parser.add_argument
    add("repository", metavar="OWNER/NAME", help="the model's name on the hub")
    add("--revision", metavar="REVISION", help="a branch, tag or commit (default: main)")
    add("--to", type=pathlib.Path, metavar="DIR",
        help="the folder to write (default: NAME in the working directory)")
    return parser


def _pull(hub: Any, repository: str, revision: str, folder: pathlib.Path) -> list[str]:
    info = hub.HfApi().model_info(repository, revision=revision)
    files = needed_files(each.rfilename for each in info.siblings)
    # The commit of the list: a push between both calls must not mix two versions.
    hub.snapshot_download(repository, revision=info.sha, local_dir=folder,
                          allow_patterns=[re.sub(r"([*?\[])", r"[\1]", name) for name in files])
    return files


def write_frame(repository: str, folder: pathlib.Path) -> str:
    """Writes the pair_frame.json of a reranker that needs one. Returns any error."""
    name = pair_frame.published_as(repository)
    if pair_frame.needs_frame(folder):
        name = None  # The folder itself has the text.
    elif name is None:
        return ""
    # The model's template runs in a process whose time and memory are limited.
    command = [sys.executable, "-m", "sluice_client.pair_frame", str(folder)]
    done = subprocess.run(command + (["--published", name] if name else []),
                          capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stderr.strip() or "pair_frame failed"


def main() -> None:
    try:
        _main()
    except KeyboardInterrupt:
        sys.exit(130)  # the exit status of shells after SIGINT


def _main() -> None:
    parser = arguments()
    given = parser.parse_args()
    name = given.repository.rpartition("/")[2]
    if not re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", given.repository):
        parser.error(f"{given.repository!r} is not a name OWNER/NAME of the hub")
    folder = given.to or pathlib.Path(name)
    try:
        hub = importlib.import_module("huggingface_hub")
    except ImportError:
        sys.exit("sluice-pull: needs huggingface_hub: run pip install './clients/python[hub]' in"
                 " Sluice's repository")
    try:
        files = _pull(hub, given.repository, given.revision, folder)
    except Exception as error:  # Of the hub's HTTP library, which depends on the hub's version.
        why = " ".join(str(error).split()) or type(error).__name__
        sys.exit(f"sluice-pull: cannot download {given.repository}: {why}. Check the name, the"
                 " network and its proxy (HTTPS_PROXY, HF_ENDPOINT), or copy the model's folder"
                 " from another machine")
    if note := write_frame(given.repository, folder):
        sys.exit(f"sluice-pull: {note}")
    converted_configs = {"gliner_config.json", "encoder_config/config.json"}
    if converted_configs & {*files} or any(_PICKLES.search(each) for each in files):
        converted = folder.with_name(f"{folder.name}-sluice")
        print(f"The model must be converted. Run in Sluice's repository first:\n"
              f"python tools/convert {shlex.quote(str(folder))} {shlex.quote(str(converted))}")
        folder = converted
    print(f"sluiced --model {shlex.quote(f'{name}={folder}')}")


if __name__ == "__main__":
    main()
