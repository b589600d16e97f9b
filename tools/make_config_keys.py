#!/usr/bin/env python3
"""Writes the keys of transformers' config classes that engine/model/config_keys.cc compiles in.

engine/model/config_keys.inc has the keys of the base class and of the class of each family's
model_type, and the other names that a class accepts for a key. The keys of several versions are
joined, because each version wrote some keys that others do not know.
tests/engine/model/config_defaults.json has the default values of the newest version.

  pip install --target A transformers==4.57.1 numpy
  pip install --target B transformers==5.24.0 numpy
  tools/make_config_keys.py --site A --site B
"""

import argparse
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "engine/model/config_keys.inc"
DEFAULTS = ROOT / "tests/engine/model/config_defaults.json"
MODEL_TYPE = re.compile(r'\{"\w+", "([\w-]+)", OutputKind::\w+\}')

# Written by versions before 4.57, or by the library itself next to the keys of a class.
OLDER_KEYS = {"torch_dtype", "output_past", "gradient_checkpointing", "finetuning_task",
              "_num_labels", "num_labels", "attn_implementation", "_attn_implementation",
              "_attn_implementation_autoset", "_commit_hash", "quantization_config"}

# Runs with one version of transformers and prints its classes as JSON.
PROBE = """
import json, sys
import transformers
from transformers import CONFIG_MAPPING, GenerationConfig, PretrainedConfig
plain = lambda values: json.loads(json.dumps(values, default=str))
classes = {}
for name in json.loads(sys.argv[1]):
    try:
        kind = CONFIG_MAPPING[name]
    except KeyError:
        continue
    classes[name] = {"defaults": plain(kind().to_dict()), "aliases": dict(kind.attribute_map)}
common = {*PretrainedConfig().to_dict(), *GenerationConfig().to_dict()}
print(json.dumps({"version": transformers.__version__, "classes": classes,
                  "common": sorted(common)}))
"""


def model_types() -> list[str]:
    """Returns the model types of engine/model/families."""
    sources = sorted((ROOT / "engine/model/families").glob("*.cc"))
    return sorted({kind for each in sources for kind in MODEL_TYPE.findall(each.read_text())})


def probe(site: Path) -> dict:
    """Returns the description of the classes of the version that is installed in a folder."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE, json.dumps(model_types())], check=True, text=True,
        capture_output=True, env={**os.environ, "PYTHONPATH": str(site)})
    return json.loads(done.stdout.splitlines()[-1])


def literal(words: set[str], indent: int) -> str:
    """Returns a C++ literal of the words, separated by spaces, over several lines."""
    lines = textwrap.wrap(" ".join(sorted(words)), 94 - indent, break_on_hyphens=False)
    space = "\n" + " " * indent
    return space.join(f'"{line}{" " if line is not lines[-1] else ""}"' for line in lines) or '""'


def table(versions: list[dict]) -> str:
    """Returns the text of config_keys.inc."""
    common = OLDER_KEYS.union(*(each["common"] for each in versions))
    rows = []
    for name in model_types():
        keys: set[str] = set()
        aliases: set[str] = set()
        for version in versions:
            described = version["classes"].get(name, {"defaults": {}, "aliases": {}})
            keys |= {*described["defaults"]}
            aliases |= {f"{other}={key}" for other, key in described["aliases"].items()}
        if keys:
            rows.append(f'    {{"{name}",\n     {literal(keys - common, 5)},\n'
                        f"     {literal(aliases, 5)}}},\n")
    named = " and ".join(each["version"] for each in versions)
    return (f"// Made by tools/make_config_keys.py from transformers {named}. Do not edit.\n"
            f"constexpr std::string_view kCommonKeys =\n    {literal(common, 4)};\n\n"
            f"constexpr ClassKeys kClasses[] = {{\n{''.join(rows)}}};\n")


def main() -> None:
    """Writes both files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--site", action="append", required=True, type=Path,
                        help="a folder with a version of transformers; repeat it, oldest first")
    versions = [probe(site) for site in parser.parse_args().site]
    TABLE.write_text(table(versions))
    newest = versions[-1]
    lines = [f'"{name}": {{\n' + ",\n".join(
        f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in each["defaults"].items()
        if key != "layer_types") + "}" for name, each in sorted(newest["classes"].items())]
    DEFAULTS.write_text(f'{{"transformers": "{newest["version"]}",\n' + ",\n".join(lines) + "}\n")


if __name__ == "__main__":
    main()
