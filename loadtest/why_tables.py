"""Makes the tables of docs/why.md from the results of its measurements."""

import statistics
from collections.abc import Callable

# Sluice's precisions, and the corresponding ones of other libraries.
EQUALS = {"f32": ("f32",), "bf16": ("bf16",), "int8": ("int8", "q8_0"), "int4": ("q4_0",)}
NEAR = 0.05  # the promised accuracy of the simulator
NOTHING = "nothing"  # the event of recovery.py that shows calls that are late without an event

Rates = dict[str, list[float]]  # of each contender, by round


def median_of(rounds: list[dict], *path: str | int) -> float:
    values = []
    for each in rounds:
        value = each
        for key in path:
            value = value[key]
        values.append(value)
    return statistics.median(values)


def share_of(rounds: list[dict], *path: str | int) -> str:
    """Returns the median of a share; empty if the contender does not report it."""
    try:
        return f"{median_of(rounds, *path):.2f}"
    except TypeError:
        return ""


def grid(heads: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|",
            *(f"| {' | '.join(row)} |" for row in rows)]


def over(rates: Rates, ours: str, theirs: str) -> float:
    """Returns the median of the rounds' ratios."""
    return statistics.median(a / b for a, b in zip(rates[ours], rates[theirs], strict=True))


def pairs(rates: Rates) -> list[tuple[str, str, float]]:
    """Returns Sluice's contenders, the others at the same precision, and the ratio of their rates.
    """
    found = []
    for ours in (name for name in rates if name.startswith("sluice")):
        for theirs in rates:
            if not theirs.startswith("sluice") and theirs.split()[1] in EQUALS[ours.split()[1]]:
                found.append((ours, theirs, over(rates, ours, theirs)))
    return found


def equal_of(name: str, rates: Rates) -> str:
    """Returns Sluice's rate / the rate of `name`, with Sluice at the same precision."""
    found = [ratio for _, theirs, ratio in pairs(rates) if theirs == name]
    return f"{found[0]:.2f}" if found else ""


def absence(name: str, task: dict[str, dict]) -> str:
    """Returns the reason why the scoreboard has no counts of a contender, in a few words."""
    return ("does not do this" if name in task["does_not"] else
            "left out" if name in task["left_out"] else "not measured")


def invariance(report: dict) -> list[str]:
    columns = [("embedding", "mean_patterns", "embeddings of a request"),
               ("embedding", "reordered", "top 10 that changed"),
               ("classification", "mean_patterns", "scores of classes of a request"),
               ("classification", "flips", "labels that flipped"),
               ("score", "mean_patterns", "log-probabilities of a request"),
               ("score", "flips", "next tokens that flipped"),
               ("text", "mean_patterns", "texts of a request"),
               ("text", "changed", "texts that changed")]
    columns = [each for each in columns if each[0] in report["tasks"]]

    def cell(name: str, task: str, key: str) -> str:
        made = report["tasks"][task]
        return f"{made['rows'][name][key]:.4g}" if name in made["rows"] else absence(name, made)

    rows = [[name, *(cell(name, task, key) for task, key, _ in columns)]
            for name in report["contenders"]]
    return [f"{report['count']} requests each, in {report['companies']} random batchings: the mean "
            "number of different answers to a request, and the effects.", "",
            *grid(["", *(head for _, _, head in columns)], rows)]


def price(report: dict) -> list[str]:
    rows = []
    for title, peer, found in (
            ("products in f32", "oneDNN", {name: each for name, each in report["products"].items()
                                           if name.endswith("f32")}),
            ("products in bf16", "oneDNN", {name: each for name, each in
                                            report["products"].items() if name.endswith("bf16")}),
            ("causal attention in f32", "PyTorch", report["attention"])):
        if not found:
            continue
        medians = {name: statistics.median(each) for name, each in found.items()}
        worst = max(medians, key=medians.get)
        rows.append([title, peer, f"{statistics.median(medians.values()):.2f}",
                     f"{min(medians.values()):.2f}", f"{medians[worst]:.2f} ({worst})"])
    return ["Our time / the free order's; below 1 the fixed order is faster:", "",
            *grid(["", "free order", "median of the shapes", "best", "worst"], rows)]


def closed_of(report: dict) -> Rates:
    return {name: [each["closed"]["per_s"] for each in rounds]
            for name, rounds in report["rounds"].items()}


def thrift_of(report: dict) -> Rates:
    """Returns the texts per second of processor time."""
    return {name: [1000 / each["closed"]["cpu_s_per_1000"] for each in rounds]
            for name, rounds in report["rounds"].items()}


def encoders(report: dict) -> list[str]:
    rates, rows = closed_of(report), []
    for name, rounds in report["rounds"].items():
        row = [name, f"{statistics.median(rates[name]):.0f}", equal_of(name, rates),
               f"{median_of(rounds, 'closed', 'cpu_s_per_1000'):.2f}",
               share_of(rounds, "closed", "executed_efficiency")]
        if report["rates"]:
            late = median_of(rounds, "open", -1, "p99_ms")  # 0 if nothing was answered
            row += [f"{100 * median_of(rounds, 'open', -1, 'within'):.0f} %",
                    f"{late:.0f}" if late else ""]
        rows.append(row)
    heads = ["", "texts/s", "Sluice / it, same precision", "CPU s per 1,000",
             "tokens / computed"]
    if report["rates"]:
        heads += [f"in time at {report['rates'][-1]:.0f}/s", "p99 ms there"]
    return grid(heads, rows)


def decoders(report: dict) -> list[str]:
    names = dict.fromkeys(name for rates in report["rates"].values() for name in rates)
    rows = []
    for name in names:
        row = [name]
        for rates in report["rates"].values():
            row += ([f"{statistics.median(rates[name]):.0f}", equal_of(name, rates)]
                    if name in rates else ["", ""])
        rows.append(row)
    heads = [""]
    for work in report["rates"]:
        heads += [f"{work}: tokens/s", "Sluice / it"]
    return grid(heads, rows)


def simulated(report: dict, place: int, kind: str, figure: str) -> float:
    return statistics.median(of_run(each["loads"][place], kind, figure)
                             for each in report["rounds"])


def of_run(load: dict, kind: str, figure: str) -> float:
    """Returns the simulated figure / the daemon's measured figure."""
    return load[kind][figure] / load["measured"][figure]


def nearness(report: dict) -> str:
    """Returns a sentence about the individual runs."""
    runs = [load for each in report["rounds"] for load in each["loads"]]
    told = []
    for figure in ("p50 ms", "p99 ms"):
        ratios = [of_run(load, "simulated_own_costs", figure) for load in runs]
        near = sum(abs(ratio - 1) <= NEAR for ratio in ratios)
        told.append(f"{figure.removesuffix(' ms')} in {near} (from {min(ratios):.3f} to "
                    f"{max(ratios):.3f} of it)")
    return (f"Of the {len(runs)} runs, the simulator is within {100 * NEAR:g} % of the measured "
            f"{' and of the '.join(told)}.")


def predictions(report: dict) -> list[str]:
    figures, rows = ("sequences/s", "p50 ms", "p99 ms"), []
    for place, load in enumerate(report["rounds"][0]["loads"]):
        row = [f"{load['share']:g}"]
        row += [f"{median_of(report['rounds'], 'loads', place, 'measured', figure):.1f}"
                for figure in figures]
        row += [f"{simulated(report, place, kind, figure):.3f}"
                for kind in ("simulated_own_costs", "simulated") for figure in figures]
        rows.append(row)
    lines = grid(["load", *(f"daemon, {each}" for each in figures),
                  *(f"simulated / it, {each}" for each in figures),
                  *(f"with earlier costs, {each}" for each in figures)], rows)
    size = [each["size"] for each in report["rounds"]]
    shares = [each["share"] for each in size[0]["loads"]]
    above = max(each["loads"][1]["within"] for each in size)
    bears = median_of(size, "bears_growth")
    return [*lines, "", nearness(report), "",
            f"By sluice-size, one replica can carry {bears:.2f} times the load "
            f"{report['size_from']:g}, with {100 * report['kept']:g} % within "
            f"{report['objective_ms']:g} ms. At {shares[0]:g} of that load the daemon answered "
            f"{100 * least_borne(report):.1f} % in time in the worst round, and at {shares[1]:g} "
            f"of it {100 * above:.1f} % in the best."]


def least_borne(report: dict) -> float:
    """Returns the smallest share in time at the load that sluice-size advises."""
    return min(each["size"]["loads"][0]["within"] for each in report["rounds"])


def in_latencies(rounds: list[dict]) -> float:
    """Returns the recovery in mean latencies of the steady load."""
    return statistics.median(each["recovery_ms"] / each["service_ms"] for each in rounds)


def of_flood(rounds: list[dict]) -> str:
    """Returns the mean latency of the overload's calls; empty for other events."""
    return f"{median_of(rounds, 'flood_latency_ms'):.0f}" if "flood_latency_ms" in rounds[0] else ""


def recovery(report: dict) -> list[str]:
    rows = [[name, f"{median_of(rounds, 'recovery_ms'):.0f}", f"{in_latencies(rounds):.1f}",
             f"{median_of(rounds, 'service_ms'):.0f}", f"{median_of(rounds, 'p99_before_ms'):.0f}",
             of_flood(rounds), f"{median_of(rounds, 'late_after'):.0f}",
             str(sum(sum(each["failed"].values()) for each in rounds))]
            for name, rounds in report["rounds"].items() if rounds]
    return grid(["event", "recovery ms", "in mean latencies", "mean latency before, ms",
                 "p99 before, ms", "mean of the overload's answered calls, ms", "late calls after",
                 "steady calls refused or failed"], rows)


ENCODERS = ("encoders_minilm", "encoders_minilm_rerank", "encoders_bert_base",
            "encoders_bert_base_rerank", "encoders_minilm_avx2")
DECODERS = ("decoders", "decoders_avx2")


def late_of(name: str, report: dict) -> list[str]:
    """Returns the cases in which others answer a larger share in time at the highest open-loop
    rate.
    """
    if not report.get("rates"):
        return []
    in_time = {each: 100 * median_of(rounds, "open", -1, "within")
               for each, rounds in report["rounds"].items()}
    return [f"{name}: at {report['rates'][-1]:.0f} texts/s {theirs} answers "
            f"{in_time[theirs]:.0f} % in time, {ours} {in_time[ours]:.0f} %"
            for ours, theirs, _ in pairs(closed_of(report)) if in_time[theirs] > in_time[ours]]


def behind(reports: dict[str, dict]) -> list[str]:
    """Returns the results in which Sluice is worse than others or misses a promise."""
    found = []
    for name in ENCODERS:
        if name in reports:
            found += [f"{name.replace('_', ' ')}: {theirs} is {1 / ratio:.2f} times as fast as "
                      f"{ours}" for ours, theirs, ratio in pairs(closed_of(reports[name]))
                      if ratio < 1]
            found += [f"{name.replace('_', ' ')}: {ours} takes {1 / ratio:.3f} times the processor "
                      f"time of {theirs}" for ours, theirs, ratio in pairs(thrift_of(reports[name]))
                      if ratio < 1]
            found += late_of(name.replace("_", " "), reports[name])
    for name, work, rates in ((name, work, rates) for name in DECODERS if name in reports
                              for work, rates in reports[name]["rates"].items()):
        found += [f"{name.replace('_', ' ')}, {work}: {theirs} is {1 / ratio:.2f} times as fast as "
                  f"{ours}" for ours, theirs, ratio in pairs(rates) if ratio < 1]
    if "invariance_price" in reports:
        dear = [name for kind in ("products", "attention")
                for name, each in reports["invariance_price"][kind].items()
                if statistics.median(each) > 1.1]
        if dear:
            found.append(f"the fixed order costs over 10 % for: {'; '.join(dear)}")
    if "predictions" in reports:
        report = reports["predictions"]
        for place, load in enumerate(report["rounds"][0]["loads"]):
            off = [f"{figure} {100 * (ratio - 1):+.0f} %" for figure in
                   ("sequences/s", "p50 ms", "p99 ms")
                   if abs((ratio := simulated(report, place, "simulated_own_costs", figure)) - 1)
                   > NEAR]
            if off:
                found.append(f"the simulator is off at load {load['share']:g}: {', '.join(off)}")
            runs = [of_run(each["loads"][place], "simulated_own_costs", "p99 ms")
                    for each in report["rounds"]]
            far = [f"{100 * (ratio - 1):+.0f} %" for ratio in runs if abs(ratio - 1) > NEAR]
            if far:
                found.append(f"the simulator is off in {len(far)} of {len(runs)} runs at load "
                             f"{load['share']:g}: p99 ms {', '.join(far)}")
        if (least := least_borne(report)) < report["kept"]:
            found.append(f"sluice-size promised {100 * report['kept']:g} % in time; in one round "
                         f"it was {100 * least:.1f} %")
    for event, rounds in reports.get("recovery", {"rounds": {}})["rounds"].items():
        if event != NOTHING and rounds and (late := in_latencies(rounds)) > 2:
            found.append(f"{event}: calls are late for {late:.1f} mean latencies; the target is 2")
    return [f"- {each}" for each in found] or ["Nowhere in these tables."]


TABLES: dict[str, Callable[[dict], list[str]]] = {
    "invariance": invariance, "invariance_price": price, **dict.fromkeys(ENCODERS, encoders),
    **dict.fromkeys(DECODERS, decoders), "predictions": predictions, "recovery": recovery,
}
