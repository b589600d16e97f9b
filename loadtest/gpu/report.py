"""Makes gpu_check.json and a readable gpu_check.md from the records in an output folder.

    report.py FOLDER    makes them again, for example if only cases.jsonl was copied back

A figure is printed next to its floor and its prediction (predictions.json). The floor follows from
the ideal bytes and operations and the peak rates that the device reached in the same run.
"""

import json
import math
import pathlib
import re
import sys

from results import read_records

HERE = pathlib.Path(__file__).resolve().parent
BAD = ("failed", "crashed", "hung")
MICROSECONDS = {"us": 1, "ms": 1e3, "s": 1e6}
MOST_SURPRISES = 15


def latest(records):
    """Returns the last record of each case and the last one of each part, in order of the first."""
    cases, parts = {}, {}
    for record in records:
        if "case" in record:
            cases[record["part"], record["case"]] = record
        elif "part" in record:
            parts[record["part"]] = record
    return list(cases.values()), list(parts.values())


def identity(measurement):
    return f"{measurement['name']}; {measurement['shape']}"


def best_rate(measurements, name, amount):
    rates = [amount(m) / (m["value"] * 1e-6) for m in measurements if m["name"] == name]
    return max(rates, default=None)


def ceilings(measurements):
    """Returns the device's bytes per second of a copy and bfloat16 operations per second of a large
    product. Each is the best of all programs, or None.
    """
    copies = [
        best_rate(measurements, name, lambda m: m["bytes"])
        for name in ("ceiling of memory", "copy (mix)")
    ]
    return (max(filter(None, copies), default=None),
            best_rate(measurements, "ceiling of products", lambda m: m["operations"]))


def floor_us(measurement, memory, products):
    """Returns the shortest time that the peak rates allow, or None."""
    times = []
    if memory and measurement.get("bytes"):
        times.append(measurement["bytes"] / memory)
    if products and measurement.get("tensor_cores") and measurement.get("operations"):
        rate = products * (2 if measurement.get("int8") else 1)
        times.append(measurement["operations"] / rate)
    return 1e6 * max(times) if times else None


def figure_of(measurement, peers, predictions, rates):
    """Adds floor, prediction and peers to a measurement."""
    figure = {**measurement, "id": identity(measurement)}
    floor = floor_us(measurement, *rates)
    if floor and measurement["unit"] == "us":
        figure["floor"] = floor
        figure["of_floor"] = measurement["value"] / floor
    same = [m for m in peers if identity(m) == figure["id"]]
    if same:
        figure["peers"] = {m["peer"]: m["value"] for m in same}
    estimate = predictions["roofline"].get(figure["id"])
    if estimate and measurement["unit"] == "us":
        figure["roofline"] = estimate["us"]
        figure["bound"] = estimate["bound"]
        figure["of_roofline"] = measurement["value"] / estimate["us"]
    prediction = predictions["by_id"].get(figure["id"])
    if prediction:
        factor = MICROSECONDS.get(prediction["unit"], 1) / MICROSECONDS.get(measurement["unit"], 1)
        if prediction.get("whole_model"):
            factor /= predictions["whole_model_factor"]
        low, high = prediction["low"] * factor, prediction["high"] * factor
        figure["predicted"] = [low, high]
        value = measurement["value"]
        figure["surprise"] = value / high if value > high else value / low if value < low else 1
        if "best_known" in prediction:
            figure["best_known"] = prediction["best_known"] * factor
    return figure


def read_predictions():
    table = json.loads((HERE / "predictions.json").read_text())
    estimates = json.loads((HERE / "roofline.json").read_text())["cases"]
    return {**table, "by_id": {case["id"]: case for case in table["cases"]},
            "roofline": {case["id"]: case for case in estimates}}


def number(value):
    if value is None:
        return ""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def table(head, rows):
    rows = list(rows)
    if not rows:
        return []
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows] + [""]


def figure_row(figure):
    predicted = "-".join(dict.fromkeys(map(number, figure.get("predicted", ()))))
    peers = "; ".join(f"{peer} {value / figure['value']:.2f}"
                      for peer, value in figure.get("peers", {}).items() if figure["value"])
    spread = (f"{100 * (figure['high'] - figure['low']) / figure['value']:.0f} %"
              if figure.get("high") and figure["value"] else "")
    return (figure["name"], figure["shape"], f"{number(figure['value'])} {figure['unit']}", spread,
            number(figure.get("floor")), number(figure.get("of_floor")),
            f"{number(figure['roofline'])} {figure['bound']}" if "roofline" in figure else "",
            number(figure.get("of_roofline")), predicted,
            f"{figure['surprise']:.2f}" if "surprise" in figure else "", peers)


FIGURE_HEAD = ("what", "shape", "figure", "spread", "floor", "figure / floor", "roofline, bound",
               "figure / roofline", "predicted", "figure / predicted", "peer's time / ours")


def surprises(figures):
    """Returns sentences about the largest deviations from a prediction or a peer, largest first."""
    found = []
    for figure in figures:
        if figure["unit"] == "nodes":
            continue
        if figure.get("surprise", 1) != 1:
            ratio = figure["surprise"]
            size = abs(math.log(ratio)) if ratio > 0 else math.inf
            found.append((size, f"{figure['id']}: {number(figure['value'])} {figure['unit']}, "
                          f"{number(ratio)} times the prediction"))
        fastest = min(figure.get("peers", {}).items(), key=lambda peer: peer[1], default=None)
        if fastest and fastest[1] < figure["value"]:
            ratio = figure["value"] / fastest[1]
            found.append((math.log(ratio), f"{figure['id']}: {fastest[0]} is {number(ratio)} times "
                          "as fast"))
    return [text for _, text in sorted(found, reverse=True)[:MOST_SURPRISES]]


def node_rows(figures):
    for figure in figures:
        if figure["unit"] == "nodes":
            peers = "; ".join(f"{peer} {value:.0f}"
                              for peer, value in figure.get("peers", {}).items())
            yield (figure["name"].removesuffix(", kernels"), figure["shape"],
                   f"{figure['value']:.0f}", peers)


def kernel_rows(launches):
    for launch in launches:
        occupancy = launch.get("occupancy")
        yield (launch.get("function") or launch["kernel"], launch["threads"],
               launch.get("registers", ""), launch.get("local_bytes", ""),
               launch["shared_bytes"] + launch.get("static_shared_bytes", 0),
               launch.get("blocks_per_processor", ""),
               "" if occupancy is None else f"{100 * occupancy:.0f} %", launch["blocks"])


def algorithms_name(table_of_algorithms):
    """Returns the file name for a table of the library's algorithms."""
    words = (re.sub("[^a-z0-9]+", "-", table_of_algorithms[key].lower())
             for key in ("gpu", "library"))
    return "_".join(["algorithms", *words]) + ".json"


def fused_cost(figures):
    """Yields a sentence on the cost of XSA in attention, for each shape."""
    values = {(f["name"], f["shape"]): f["value"] for f in figures}
    for (name, shape), fused in values.items():
        plain = values.get((name.removesuffix(", XSA"), shape))
        if name.endswith(", XSA") and plain:
            yield f"XSA fused adds {100 * (fused / plain - 1):.1f} % to {name[:-5]} ({shape})."


def assemble(records):
    cases, parts = latest(records)
    header = {}
    for record in records:
        header.update({key: record[key]
                       for key in ("device", "machine", "machine_after", "rehearsal")
                       if key in record})
    measurements = [m for case in cases for m in case.get("measurements", [])]
    peers = [m for m in measurements if "peer" in m]
    rates = ceilings(measurements)
    predictions = read_predictions()
    figures = [figure_of(m, peers, predictions, rates) for m in measurements if "peer" not in m]
    seen = {figure["id"] for figure in figures}
    outcomes = {}
    for case in cases:
        counts = outcomes.setdefault(case["part"], {})
        word = case["outcome"].split(":")[0]
        counts[word] = counts.get(word, 0) + 1
    return {
        **header,
        "parts": [{**part, "cases": outcomes.get(part["part"], {})} for part in parts],
        "bytes_per_second": rates[0],
        "operations_per_second": rates[1],
        "figures": figures,
        "peers": peers,
        "surprises": surprises(figures),
        "launches": [case["launch"] for case in cases if "launch" in case],
        "bad": [case for case in cases if case["outcome"].startswith(BAD)],
        "problems": [f"{case['case']}: {problem}" for case in cases
                     for problem in case.get("problems", [])],
        "not_measured": [f"{case['case']}: {case['outcome']}" for case in cases
                         if case["outcome"].startswith("not measured:")],
        "algorithms": [case["case"] for case in cases if case["part"] == "tune"],
        "predicted_only": [id for id in predictions["by_id"] if id not in seen],
    }


def render(report):
    device = report.get("device", {})
    lines = ["# GPU check", ""]
    if report.get("rehearsal"):
        lines += ["A rehearsal in the emulator: its times do not predict the times of a GPU.", ""]
    lines += [
        f"Device: {device.get('name', 'none')} ({device.get('architecture', 'unknown')}), "
        f"{device.get('processors', '?')} multiprocessors; "
        f"{report.get('machine') or 'driver unknown'}; "
        f"dense library {device.get('library') or 'none'}."
    ]
    memory, products = report["bytes_per_second"], report["operations_per_second"]
    lines += [
        f"Peak rates: copy {memory / 1e12:.3g} TB/s." if memory else "No copy was measured.",
        f"bf16 products {products / 1e12:.3g} TFLOP/s." if products else "No product was measured.",
        "",
    ]
    lines += table(("part", "outcome", "s", "cases"), (
        (p["part"], p["outcome"], p["seconds"],
         ", ".join(f"{count} {word}" for word, count in p["cases"].items()))
        for p in report["parts"]))
    if report["bad"]:
        lines += ["## Failures", ""]
        for case in report["bad"]:
            lines += [f"- {case['part']}: {case['case']}: {case['outcome']}"]
        lines += [""]
    if report["surprises"]:
        lines += ["## Largest surprises", ""]
        lines += [f"- {text}" for text in report["surprises"]] + [""]
    for part in dict.fromkeys(figure["part"] for figure in report["figures"]):
        lines += [f"## Figures: {part}", ""]
        if part == "steps":
            lines += ["A step has an eighth of the work of Llama-3-8B: 4 of 32 layers, and 16,032 "
                      "of 128,256 tokens. Predictions for the whole model are divided by 8.", ""]
        lines += table(FIGURE_HEAD, (figure_row(figure) for figure in report["figures"]
                                     if figure["part"] == part and figure["unit"] != "nodes"))
    if counts := list(node_rows(report["figures"])):
        lines += ["## Kernels of XSA", "",
                  "PyTorch's kernels are those that its compiler generates; without it, the "
                  "operators that compute. The kernel of attention is left out.", ""]
        lines += table(("what", "heads", "nodes of our graph", "PyTorch's kernels"), counts)
    cost = list(fused_cost(report["figures"]))
    lines += cost + [""] if cost else []
    if report["launches"]:
        lines += ["## Kernels", ""]
        lines += table(("kernel", "threads", "registers", "local bytes", "shared bytes",
                        "blocks per processor", "occupancy", "blocks"),
                       kernel_rows(report["launches"]))
    lines += [
        f"Table of cuBLASLt's algorithms, for `engine/cuda/algorithms/`: `{name}`."
        for name in report["algorithms"]
    ]
    if report["predicted_only"] and not report.get("rehearsal"):
        lines += ["", "Predicted and not measured: " + "; ".join(report["predicted_only"]) + "."]
    lines += ["", *(f"- {text}" for text in (*report["problems"], *report["not_measured"]))]
    return "\n".join(lines).rstrip() + "\n"


def write(out):
    """Writes the report of the folder and returns its text."""
    out = pathlib.Path(out)
    report = assemble(read_records(out))
    (out / "gpu_check.json").write_text(json.dumps(report, indent=1) + "\n")
    text = render(report)
    (out / "gpu_check.md").write_text(text)
    return text


if __name__ == "__main__":
    print(write(sys.argv[1]), end="")
