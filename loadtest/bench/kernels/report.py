"""The report page of run.py's results."""

import re
import statistics

# The counters <part>_us, <part>_of_flops and <part>_of_read of one benchmark belong together.
PART = re.compile(r"(.+)_us$")


def kernel_rows(name, counters):
    """Yields a table row for each part that the benchmark timed."""
    for key, value in counters.items():
        match = PART.match(key)
        if not match or f"{match[1]}_of_flops" not in counters:
            continue
        part = match[1]
        megabytes = counters.get(f"MB_{part}", counters.get("MB", 0))
        yield (
            f"| {name} | {part} | {value:.4g} | {counters['MFLOP']:.4g} | {megabytes:.4g} "
            f"| {counters[part + '_of_flops']:.0%} | {counters[part + '_of_read']:.0%} |"
        )


def kernel_table(kernels):
    lines = [
        "| kernel | part | µs | MFLOP | MB | of peak FLOP/s | of read bandwidth |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, counters in kernels.items():
        label = f"{name} ({counters['label']})" if "label" in counters else name
        lines += kernel_rows(label, counters)
    return lines


def claims(kernels):
    """Returns the lines for ratios that individual benchmarks compute."""
    lines = []
    for name, counters in kernels.items():
        for dtype in ("f32", "bf16"):
            if f"onednn_over_ours_{dtype}" in counters:
                lines.append(
                    f"- {name}: {dtype} {counters[dtype + '_us']:.4g} µs; oneDNN takes "
                    f"{counters['onednn_over_ours_' + dtype]:.2f} times as long."
                )
        if "xsa_over_plain" in counters:
            lines.append(f"- {name}: XSA adds {counters['xsa_over_plain'] - 1:+.1%} to attention.")
        if "f32_over_int8" in counters:
            lines.append(
                f"- {name}: pages of f32 take {counters['f32_over_bf16']:.2f} times the time of "
                f"bf16 and {counters['f32_over_int8']:.2f} times the time of int8."
            )
        if "values_over_top_k" in counters:
            lines.append(
                f"- {name}: {counters['top_k_us']:.3g} µs; std::partial_sort takes "
                f"{counters['values_over_top_k']:.1f} times as long on values, "
                f"{counters['indices_over_top_k']:.1f} times on indices."
            )
        if name.startswith("BM_Sample"):
            lines.append(f"- {name}: {counters['cpu_time'] / 1e3:.3g} µs.")
    return lines


def ratios(seconds):
    """Returns (median, minimum, maximum) of each peer's time / ours, computed by round."""
    result = {}
    for peer, times in seconds.items():
        if peer == "ours":
            continue
        each = [theirs / ours for theirs, ours in zip(times, seconds["ours"], strict=True)]
        result[peer] = (statistics.median(each), min(each), max(each))
    return result


def contest_lines(contest):
    ours = statistics.median(contest["seconds"]["ours"])
    peaks = ", ".join(
        f"{value:.0%} of {'peak FLOP/s' if name.endswith('flops') else 'read bandwidth'}"
        for name, value in contest["fractions"].items()
        if not name.startswith("plain")
    )
    yield f"| {contest['name']} | Sluice | {1e3 * ours:.4g} | | {peaks} |"
    for peer, (median, least, largest) in ratios(contest["seconds"]).items():
        theirs = 1e3 * statistics.median(contest["seconds"][peer])
        yield f"| | {peer} | {theirs:.4g} | {median:.2f} ({least:.2f} to {largest:.2f}) | |"


def markdown(made):
    """Returns the page for `made`, which has the form of kernels.json."""
    lines = [
        "# CPU kernels",
        "",
        f"{made['date']}, {made['processor']}. {made['note']}".rstrip(),
        "",
        "Peaks (multiply-adds in registers with the profile's instructions, reads of memory beyond",
        "the caches) alternate with the kernels; figures are medians. The peak is measured in f32",
        "for the f32 profiles and in bf16 for the others, for weights of either type, and in int8",
        "for int8 weights.",
        "Times of one thread are its processor time.",
        "",
        *claims(made["kernels"]),
        "",
    ]
    if made["contests"]:
        lines += [
            "## Whole passes, and peers",
            "",
            "Llama of random weights: 9 layers, d 512, 8/2 heads, vocabulary 32,000, bf16 weights.",
            "Prompts of 16 to 144 tokens, 512 together (1152 padded). Score: every next token's",
            "log-probability (peers: every row's logits). Next: the token after each prompt.",
            "Decode: one token after 127. Ratio: the peer's time / ours, by round; median",
            f"of {made['rounds']} rounds, minimum to maximum.",
            "",
            "| pass | who | ms | ratio | of the machine |",
            "|---|---|---|---|---|",
            *(line for contest in made["contests"] for line in contest_lines(contest)),
            "",
        ]
    lines += ["## Kernels", "", *kernel_table(made["kernels"])]
    return "\n".join(lines) + "\n"
