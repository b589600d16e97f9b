"""Joins the outputs of the parts of gpu_check.sh in a folder: gpu_check.json, and a table for
people.

The folder has parts.tsv (name, outcome, seconds). It also has the output of the parts that got that
far: device.json, rows.json, products.json, draws.json (kernels), plans.json, torch.json and
algorithms.json. The last is a table for engine/cuda/algorithms, which is copied beside the results.
"""

import argparse
import json
import pathlib
import re
import shutil


def read(folder, name):
    try:
        return json.loads((folder / f"{name}.json").read_text())
    except (OSError, ValueError):
        return {}


def read_parts(folder):
    lines = (folder / "parts.tsv").read_text().splitlines()
    return [dict(zip(("part", "outcome", "seconds"), line.split("\t"))) for line in lines]


def best(measurements, name, amount):
    """Returns the highest measured rate, or None if there is none."""
    rates = [amount / (m["value"] * 1e-6) for m in measurements if m["name"] == name]
    return max(rates, default=None)


def ceilings(report):
    """Returns the bytes per second of a copy and the bfloat16 operations per second of a large
    product.
    """
    copies = [
        m["bytes"] / (m["value"] * 1e-6) for m in report["kernels"] if m["name"] == "copy (mix)"
    ]
    copy = best(report["torch"], "ceiling of memory", 2 * 2 * (1 << 28))
    products = best(report["torch"], "ceiling of products", 2 * 8192**3)
    return max([*copies, *([copy] if copy else [])], default=None), products


def share(of, ceiling):
    return f"{100 * of / ceiling:.0f} %" if ceiling else "not measured"


def peers_of(measurement, torch):
    same = [
        m for m in torch if (m["name"], m["shape"]) == (measurement["name"], measurement["shape"])
    ]
    return "; ".join(f"{m['peer']} {m['value'] / measurement['value']:.2f}" for m in same)


def kernel_rows(report):
    memory, products = ceilings(report)
    for m in report["kernels"]:
        seconds = m["value"] * 1e-6
        rate, work = m["bytes"] / seconds, m["operations"] / seconds
        of_products = share(work, products) if m["tensor_cores"] else ""
        yield (m["name"], m["shape"], f"{m['value']:.1f}", f"{rate / 1e9:.0f}", share(rate, memory),
               f"{work / 1e12:.1f}" if m["operations"] else "", of_products,
               peers_of(m, report["torch"]))


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows] + [""]


def fused_cost(kernels):
    """Yields a sentence on the cost that XSA adds to attention, for each phase."""
    by_name = {m["name"]: m["value"] for m in kernels}
    for phase in ("prefill", "decode"):
        plain, fused = (by_name.get(f"attention, {phase}{xsa}") for xsa in ("", ", XSA"))
        if plain and fused:
            yield f"XSA fused adds {100 * (fused / plain - 1):.1f} % to attention ({phase})."


def keep_algorithms(folder, out):
    """Copies the table of algorithms and returns its name, or None if there is none."""
    table = read(folder, "algorithms")
    if not table:
        return None
    name = "_".join(
        [
            "algorithms",
            *(re.sub("[^a-z0-9]+", "-", table[key].lower()) for key in ("gpu", "library")),
        ]
    )
    name += ".json"
    shutil.copyfile(folder / "algorithms.json", out / name)
    return name


def render(report):
    device = report["device"]
    lines = ["# GPU check", ""]
    if report["rehearsal"]:
        lines += ["A rehearsal in the emulator: its times say nothing about a GPU.", ""]
    lines += [
        f"Device: {device.get('name', 'none')} ({device.get('architecture', 'unknown')}); "
        f"{report['machine'] or 'nothing known of its driver'}; PyTorch {report['torch_version']}.",
        "",
    ]
    lines += table(("part", "outcome", "s"),
                   [(p["part"], p["outcome"], p["seconds"]) for p in report["parts"]])
    if report["plans"]:
        lines += table(
            ("plans", "of", "value"),
            [(m["name"], m["shape"], f"{m['value']:.3g} {m['unit']}") for m in report["plans"]],
        )
    if report["kernels"]:
        lines += table(("kernel", "shape", "us", "GB/s", "of copy", "TFLOP/s", "of matmul",
                        "PyTorch's time / ours"), kernel_rows(report))
        lines += [*fused_cost(report["kernels"]), ""]
    if report["algorithms"]:
        lines += [
            f"Table of cuBLASLt's algorithms, for `engine/cuda/algorithms/`: "
            f"`{report['algorithms']}`.",
            "",
        ]
    lines += [f"- {problem}" for problem in report["problems"]]
    return "\n".join(lines).rstrip() + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--machine", default="")
    parser.add_argument("--rehearsal", action="store_true")
    arguments = parser.parse_args()
    torch = read(arguments.folder, "torch")
    report = {
        "rehearsal": arguments.rehearsal,
        "machine": arguments.machine,
        "device": read(arguments.folder, "device").get("device", {}),
        "parts": read_parts(arguments.folder),
        "kernels": [m for kernels in ("rows", "products", "draws")
                    for m in read(arguments.folder, kernels).get("measurements", [])],
        "plans": read(arguments.folder, "plans").get("measurements", []),
        "torch": torch.get("measurements", []),
        "torch_version": torch.get("torch", "not there"),
        "problems": [problem for part in ("rows", "products", "draws", "torch")
                     for problem in read(arguments.folder, part).get("problems", [])],
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    report["algorithms"] = keep_algorithms(arguments.folder, arguments.out)
    (arguments.out / "gpu_check.json").write_text(json.dumps(report, indent=1) + "\n")
    text = render(report)
    (arguments.out / "gpu_check.md").write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
