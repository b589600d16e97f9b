"""Writes config.json and model.safetensors from a PyTorch or safetensors state dict, by a name map.

A map is a YAML file:

  config:                      becomes config.json; a value may be taken from the checkpoint:
    vocab_size: {size: tok_emb.weight, axis: 0}
    num_hidden_layers: {count: "blocks.{n}.attn.proj.weight"}
  tensors:                     the first rule whose `from` matches a name is applied to it
    - from: "blocks.{n}.attn.c_q.weight"     {n} is a number, {any} any text without a dot
      to: "model.layers.{n}.self_attn.q_proj.weight"
      transpose: true          or a list of axes
      slice: {axis: 0, begin: 0, end: 64}    numbers, or parts of the axis: "1/3"
      reshape: [64, -1]
      squeeze: true            drops axes of size 1
      scale: 2.0
      scale_by: {tensor: "blocks.{n}.attn_scale", axis: 0}    folds a vector into it
    - from: ...
      to: [{name: a, slice: ...}, {name: b, slice: ...}]      one tensor becomes several
      optional: true           may be missing
  ignore: ["rotary.{any}"]     names that are left out

A rule's changes apply in this order: transpose, reshape, slice, squeeze, scale, scale_by. A rule
with {n} must match for every layer from 0 to num_hidden_layers - 1.
"""

import argparse
import json
import pathlib
import re
from fractions import Fraction

import numpy as np
import safetensors
import safetensors.numpy
import yaml

import entities
import extraction
import known_families

MAPS = pathlib.Path(__file__).parent / "maps"
TARGET_KEYS = {"name", "transpose", "reshape", "slice", "squeeze", "scale", "scale_by"}
RULE_KEYS = TARGET_KEYS - {"name"} | {"from", "to", "optional"}


class ConvertError(Exception):
    """An error that the user can correct. The message contains the correction."""


def pattern_of(template):
    parts = re.split(r"(\{\w+\})", template)
    expression = "".join(
        (
            (r"(?P<n>\d+)" if part == "{n}" else rf"(?P<{part[1:-1]}>[^.]+)")
            if re.fullmatch(r"\{\w+\}", part)
            else re.escape(part)
        )
        for part in parts
    )
    return re.compile(expression + r"\Z")


def fill(template, names):
    return re.sub(r"\{(\w+)\}", lambda match: names.get(match.group(1), match.group(0)), template)


def read_pickle(path):
    try:
        state = known_families.load_with_torch(path)
    except ImportError as error:
        raise ConvertError(
            f"{path} requires PyTorch; save it as safetensors, or install torch"
        ) from error
    except ValueError as error:
        raise ConvertError(str(error)) from error
    import torch
    for key in ("state_dict", "model_state_dict", "model"):
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    tensors = {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}
    if not tensors:
        raise ConvertError(f"{path} has no tensors")
    return {name: value.detach().to(torch.float32).numpy() for name, value in tensors.items()}


def read_checkpoint(path):
    """Returns {name: float32 array} of a file or of all *.safetensors of a directory."""
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    if not files or not all(file.is_file() for file in files):
        raise ConvertError(
            f"{path} is not a checkpoint; expected a file or a directory with *.safetensors"
        )
    state = {}
    for file in files:
        state.update(read_safetensors(file) if file.suffix == ".safetensors" else read_pickle(file))
    # torch.compile and data parallel wrappers add these prefixes.
    return {re.sub(r"^(_orig_mod\.|module\.)+", "", name): value for name, value in state.items()}


def read_safetensors(path):
    """Returns {name: float32 array} of a file. Also reads bf16, which numpy lacks."""
    try:
        entries = safetensors.deserialize(path.read_bytes())
    except safetensors.SafetensorError as error:
        raise ConvertError(
            f"{path} is no valid safetensors file ({error}); copy it again"
        ) from error
    state = {}
    for name, entry in entries:
        kind = {"F32": np.float32, "F16": np.float16, "F64": np.float64, "BF16": np.uint16}.get(
            entry["dtype"]
        )
        if kind is None:
            continue  # Integers are position ids and masks.
        values = np.frombuffer(entry["data"], kind).reshape(entry["shape"])
        if entry["dtype"] == "BF16":
            values = (values.astype(np.uint32) << 16).view(np.float32)
        state[name] = values.astype(np.float32)
    return state


def read_map(name):
    path = pathlib.Path(name)
    if not path.is_file():
        path = MAPS / f"{name}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in MAPS.glob("*.yaml")))
        raise ConvertError(f"there is no map {name}; give a file or one of {known}")
    mapping = yaml.safe_load(path.read_text())
    if not isinstance(mapping, dict) or not isinstance(mapping.get("tensors"), list):
        raise ConvertError(f"{path} has no list `tensors`")
    unknown = set(mapping) - {"config", "tensors", "ignore"}
    if unknown:
        raise ConvertError(f"{path}: unknown keys: {', '.join(sorted(unknown))}")
    for i, rule in enumerate(mapping["tensors"]):
        if not isinstance(rule, dict) or not {"from", "to"} <= set(rule) or set(rule) - RULE_KEYS:
            raise ConvertError(f"{path}: tensors[{i}] needs `from` and `to`, and may have "
                               f"{', '.join(sorted(RULE_KEYS - {'from', 'to'}))}")
    return mapping


def derived(value, state):
    """Returns a value of the config. The map may compute it from the checkpoint."""
    if isinstance(value, dict) and "size" in value:
        name = value["size"]
        if name not in state:
            raise ConvertError(
                f"config: the map uses the size of {name}, which the checkpoint lacks"
            )
        return int(state[name].shape[value.get("axis", 0)]) * value.get("times", 1) + value.get(
            "plus", 0
        )
    if isinstance(value, dict) and "count" in value:
        pattern = pattern_of(value["count"])
        return len({match.group("n") for match in map(pattern.match, state) if match})
    if isinstance(value, dict) and "root_of_size" in value:
        return float(np.sqrt(state[value["root_of_size"]].shape[value.get("axis", 0)]))
    if isinstance(value, dict):
        return {key: derived(inner, state) for key, inner in value.items()}
    return value


def override(config, settings):
    """Applies settings such as `sluice.xsa.layers=[7,8]`. The values are YAML."""
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise ConvertError(f"--set {setting}: expected KEY=VALUE")
        *path, last = key.split(".")
        place = config
        for part in path:
            place = place.setdefault(part, {})
        place[last] = yaml.safe_load(value)


def bound(part, size):
    """Returns a bound of a slice, given as an index or as a fraction of the axis."""
    if part is None:
        return size
    if isinstance(part, str):
        exact = Fraction(part) * size
        if exact.denominator != 1:
            raise ConvertError(f"slice: {part} of {size} is not a whole number")
        return int(exact)
    return part


def changed(array, how, state, names, used):
    if how.get("transpose"):
        axes = None if how["transpose"] is True else how["transpose"]
        array = np.transpose(array, axes)
    if "reshape" in how:
        array = array.reshape(how["reshape"])
    if "slice" in how:
        axis = how["slice"].get("axis", 0)
        size = array.shape[axis]
        begin, end = bound(how["slice"].get("begin", 0), size), bound(how["slice"].get("end"), size)
        if not 0 <= begin < end <= size:
            raise ConvertError(f"slice: [{begin}, {end}) is not within the {size} of axis {axis}")
        array = np.take(array, np.arange(begin, end), axis)
    if how.get("squeeze"):
        array = np.squeeze(array)
    array = array * np.float32(how.get("scale", 1.0))
    if "scale_by" in how:
        name = fill(how["scale_by"]["tensor"], names)
        if name not in state:
            raise ConvertError(f"scale_by: the checkpoint has no {name}")
        used.add(name)
        shape = [1] * array.ndim
        shape[how["scale_by"].get("axis", 0)] = -1
        array = array * state[name].reshape(shape)
    return np.ascontiguousarray(array, np.float32)


def targets(rule):
    """Yields (name, changes) for each tensor that a rule makes."""
    how = {key: rule[key] for key in TARGET_KEYS & set(rule)}
    for target in rule["to"] if isinstance(rule["to"], list) else [{"name": rule["to"]}]:
        yield target["name"], {**how, **target}


class Conversion:
    """A converted checkpoint: config, tensors, report lines, and unmapped and missing names."""

    def __init__(self, mapping, state, settings=()):
        self.config = derived(mapping.get("config", {}), state)
        override(self.config, settings)
        self.tensors, self.lines = {}, []
        used, matched = set(), {}
        rules = [(pattern_of(rule["from"]), rule) for rule in mapping["tensors"]]
        for name in sorted(state):
            for i, (pattern, rule) in enumerate(rules):
                match = pattern.match(name)
                if match:
                    matched.setdefault(i, set()).add(match.groupdict().get("n"))
                    used.add(name)
                    self._apply(name, rule, match.groupdict(), state, used)
                    break
        ignored = [pattern_of(template) for template in mapping.get("ignore", [])]
        self.unmapped = [name for name in sorted(set(state) - used)
                         if not any(pattern.match(name) for pattern in ignored)]
        self.missing = list(self._missing(mapping["tensors"], matched))

    def _apply(self, name, rule, names, state, used):
        for template, how in targets(rule):
            target = fill(template, names)
            if target in self.tensors:
                raise ConvertError(f"two tensors become {target}; one of them is {name}")
            try:
                array = changed(state[name], how, state, names, used)
            except (ValueError, IndexError, ConvertError) as error:
                raise ConvertError(
                    f"{name} {list(state[name].shape)} -> {target}: {error}"
                ) from error
            self.tensors[target] = array
            self.lines.append(f"{name} {list(state[name].shape)} -> {target} {list(array.shape)}")

    def _missing(self, rules, matched):
        layers = self.config.get("num_hidden_layers", 0)
        for i, rule in enumerate(rules):
            if rule.get("optional"):
                continue
            if "{n}" not in rule["from"]:
                if i not in matched:
                    yield rule["from"]
                continue
            for n in range(layers):
                if str(n) not in matched.get(i, set()):
                    yield fill(rule["from"], {"n": str(n)})


def write(conversion, out):
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps(conversion.config, indent=2) + "\n")
    safetensors.numpy.save_file(
        conversion.tensors, out / "model.safetensors", metadata={"format": "pt"}
    )


def convert_known(arguments):
    """Converts a checkpoint without a map, if its family needs none."""
    source = arguments.checkpoint
    architecture = known_families.known_architecture(source) if source.is_dir() else None
    if architecture is None:
        raise ConvertError("without --map, give a directory whose config.json names a known family")
    files = [*known_families.shards_of(source), *known_families.heads_of(source)]
    if not files:
        raise ConvertError(f"{source} has no .bin or .pt files; serve its safetensors directly")
    if arguments.dry_run:
        print(f"{architecture} of {len(files)} files needs no map")
        return
    try:
        count = known_families.convert_directory(source, arguments.out)
    except ImportError as error:
        raise ConvertError(f"{source} requires PyTorch; install torch") from error
    except ValueError as error:
        raise ConvertError(str(error)) from error
    print(f"{arguments.out}: {architecture} with {count} tensors in safetensors")


def convert_extraction(arguments, package):
    """Converts a folder of the package gliner or gliner2, by its module."""
    def read(path):
        return (read_safetensors if path.suffix == ".safetensors" else read_pickle)(path)

    def save(tensors, path):
        safetensors.numpy.save_file(
            {name: np.ascontiguousarray(value) for name, value in tensors.items()}, path,
            metadata={"format": "pt"})

    try:
        if arguments.dry_run:
            package.read_config(arguments.checkpoint)
            print(f"{package.CONFIG} of {arguments.checkpoint} is supported")
            return
        count = package.convert_directory(arguments.checkpoint, arguments.out, read, save)
    except ValueError as error:
        raise ConvertError(str(error)) from error
    print(f"{arguments.out}: an extraction model with {count} tensors in safetensors"
          f"{package.NOTE}")


def convert(arguments):
    if arguments.map is None and (arguments.checkpoint / extraction.CONFIG).is_file():
        return convert_extraction(arguments, extraction)
    if arguments.map is None and entities.is_folder(arguments.checkpoint):
        return convert_extraction(arguments, entities)
    if arguments.map is None:
        return convert_known(arguments)
    state = read_checkpoint(arguments.checkpoint)
    print(
        f"{arguments.checkpoint}: {len(state)} tensors, "
        f"{sum(value.size for value in state.values()):,} numbers"
    )
    conversion = Conversion(read_map(arguments.map), state, arguments.set)
    for line in conversion.lines:
        print(" ", line)
    for name in conversion.unmapped:
        print(f"not mapped: {name} {list(state[name].shape)}")
    for name in conversion.missing:
        print(f"missing: {name}")
    if conversion.missing or (conversion.unmapped and not arguments.allow_unmapped):
        raise ConvertError(
            f"{len(conversion.unmapped)} tensors not mapped (ignore them in the map, or "
            f"--allow-unmapped), {len(conversion.missing)} missing; nothing was written"
        )
    if arguments.dry_run:
        print(json.dumps(conversion.config, indent=2))
        return
    write(conversion, arguments.out)
    print(
        f"{arguments.out}: config.json and model.safetensors with {len(conversion.tensors)} tensors"
    )


def main(argv=None):
    parser = argparse.ArgumentParser(prog="convert", description=__doc__.splitlines()[0])
    parser.add_argument(
        "checkpoint", type=pathlib.Path, help=".pt, .bin or .safetensors, or a directory of these"
    )
    parser.add_argument("out", type=pathlib.Path, help="directory to write")
    parser.add_argument(
        "--map",
        help="a file, or the name of a built-in map; not needed for a directory of .bin or .pt "
        "files with the config.json of a known family",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="sets a value of the config, e.g. sluice.xsa.layers=[7,8]",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print the result of the conversion, write nothing"
    )
    parser.add_argument(
        "--allow-unmapped", action="store_true", help="leave out tensors that no rule matches"
    )
    try:
        convert(parser.parse_args(argv))
    except (ConvertError, OSError, yaml.YAMLError) as error:
        print(f"convert: {error}")
        return 1
    return 0
