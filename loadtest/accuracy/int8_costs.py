#!/usr/bin/env python3
"""Compares the accuracy of sentence embeddings for several ways of quantising a model to int8.

    loadtest/accuracy/int8_costs.py MODEL_DIR --table FILE [--out FILE]

MODEL_DIR has an encoder in floats, as it was published. For each way, `sluice quantize` writes the
model with a sample of texts, and `sluice verify` compares it with f32 on other texts. sentences.py
makes both sets of texts.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "loadtest"))

import reporting  # noqa: E402

# Options of sluice quantize.
WAYS = [
    ["--plain"],
    [],
    *(["--keep-above", bound] for bound in ("0.02", "0.015")),
    *(["--keep-channels", most] for most in ("1", "2", "4", "8", "16", "32")),
    *(["--keep-channels", "8", "--keep-above", bound] for bound in ("0.015", "0.0125", "0.01")),
]
VERIFIED = re.compile(r"mean cosine ([\d.]+), least ([\d.]+)\n.*same for ([\d.]+) % of them, "
                      r"([\d.]+) % in common")


def run(*words):
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"int8_costs.py: {' '.join(map(str, words))}: {done.stderr}")
    return done.stdout


def layers(report):
    """Returns the number of layers in int8, the number of all layers, and the channels kept."""
    quantized, all_of_them = re.search(r"^(\d+) of (\d+) layers in int8$", report, re.M).groups()
    channels = [int(kept) for kept in re.findall(r"with (\d+) channels kept$", report, re.M)]
    return {"in_int8": int(quantized), "layers": int(all_of_them),
            "with_channels": len(channels), "channels": sum(channels)}


def measure(options, way, texts, sample, folder):
    out = folder / f"model_{'_'.join(way)}"
    report = run(options.sluice, "quantize", options.model, "--text", sample, "--out", out, *way)
    verified = run(options.sluice, "verify", out, "--against", "f32", "--reference", options.model,
                   "--text", texts)
    numbers = [float(number) for number in VERIFIED.search(verified).groups()]
    return {"way": " ".join(way), **layers(report),
            **dict(zip(("mean_cosine", "least_cosine", "same_ten", "in_common"), numbers))}


def row(result):
    kept = (f"{result['channels']} in {result['with_channels']} layers"
            if result["channels"] else "")
    return (f"| `{result['way']}` | {result['in_int8']} of {result['layers']} | {kept} "
            f"| {result['mean_cosine']:.5f} | {result['least_cosine']:.5f} "
            f"| {result['in_common']:.2f} % | {result['same_ten']:.1f} % |\n")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path, help="the model, as it was published")
    parser.add_argument("--sluice", type=pathlib.Path,
                        default=ROOT / "build" / "release" / "client" / "sluice")
    reporting.add_options(parser)
    options = parser.parse_args()
    report = {**reporting.heading("int8_costs"), "ways": []}
    table = ("| options of `sluice quantize` | layers in int8 | channels kept | mean cosine "
             "| least | ten nearest in common | all ten the same |\n"
             "|---|---|---|---|---|---|---|\n")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        texts, sample = folder / "texts.txt", folder / "sample.txt"
        report["texts"] = run(sys.executable, ROOT / "loadtest" / "accuracy" / "sentences.py",
                              "--compared", texts, "--sample", sample).strip()
        for way in WAYS:
            report["ways"].append(measure(options, way, texts, sample, folder))
            table += row(report["ways"][-1])
            print(row(report["ways"][-1]), end="", file=sys.stderr, flush=True)
    reporting.write(options, report, table)


if __name__ == "__main__":
    main()
