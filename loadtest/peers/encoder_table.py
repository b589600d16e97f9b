"""Prints the comparison of encoders as Markdown."""

import statistics

import isa
from encoder_traffic import TRAFFIC

SIZES = {"minilm": "MiniLM's size", "bert_base": "BERT-base's size"}


def median(rounds: list[dict], key: str) -> float:
    return statistics.median(each[key] for each in rounds)


def share(rounds: list[dict], key: str) -> str:
    """Returns the median of a share that some contenders do not report."""
    return "" if rounds[0][key] is None else f"{median(rounds, key):.2f}"


def closed_lines(made: dict) -> list[str]:
    rounds = {name: [each["closed"] for each in of] for name, of in made["rounds"].items()}
    ours = [name for name in rounds if name.startswith("sluice")]
    lines = [
        "| contender | batch | texts/s | CPU s per 1,000 | tokens / computed | cosine | "
        + " | ".join(f"{each} over it" for each in ours) + " |",
        "|---|---|---|---|---|---|" + "---|" * len(ours),
    ]
    for name, of in rounds.items():
        rates = [each["per_s"] for each in of]
        over = [statistics.median(a["per_s"] / rate
                                  for a, rate in zip(rounds[each], rates, strict=True))
                for each in ours]
        told = made["told"][name]
        lines.append(
            f"| {name} | {told['batch'] or ''} | {statistics.median(rates):.0f} "
            f"({min(rates):.0f} to {max(rates):.0f}) | {median(of, 'cpu_s_per_1000'):.2f} | "
            f"{share(of, 'executed_efficiency')} | {told['cosine']:.5f} | "
            + " | ".join(f"{each:.2f}" for each in over) + " |")
    return lines


def milliseconds(rounds: list[dict], name: str) -> str:
    """Returns an empty cell if no text was answered."""
    of = median(rounds, name)
    return f"{of:.1f}" if of else ""


def open_lines(made: dict) -> list[str]:
    lines = []
    for place, rate in enumerate(made["rates"]):
        lines += [
            "", f"## Open loop, {rate:.0f} texts/s, objective {made['objective_ms']:g} ms", "",
            "| contender | goodput/s | within | p50 ms | p99 ms | CPU s per 1,000 | "
            "tokens / computed |",
            "|---|---|---|---|---|---|---|",
        ]
        for name, rounds in made["rounds"].items():
            of = [each["open"][place] for each in rounds]
            lines.append(
                f"| {name} | {median(of, 'goodput_per_s'):.0f} | {100 * median(of, 'within'):.1f} "
                f"% | {milliseconds(of, 'p50_ms')} | {milliseconds(of, 'p99_ms')} | "
                f"{median(of, 'cpu_s_per_1000'):.2f} | {share(of, 'executed_efficiency')} |")
    return lines


def text_of(made: dict) -> str:
    count = max(map(len, made["rounds"].values()), default=0)
    lines = [
        f"# Encoders of {SIZES[made['size']]}: {TRAFFIC[made['traffic']].title}",
        "",
        f"{made['date']}, {made['processor']}, one processor each"
        f"{isa.IN_WORDS[made['isa']]}. {count} interleaved rounds of",
        f"{made['seconds']:g} s: medians (minimum to maximum), and the median over the rounds of",
        "Sluice's rate / the contender's. Sluice and Triton (onnxruntime in its Python backend)",
        "use gRPC; the libraries run in process, in batches of similar texts of the given size",
        "(`tei`: onnxruntime in batches by TEI's rule). Tokens / computed: the share of the",
        "computed tokens that are not padding. Cosine: of one text's answer to Sluice's in f32.",
        "",
        "## Closed loop",
        "",
        *closed_lines(made),
        *open_lines(made),
    ]
    lines += [f"\n{name} is left out: {why}" for name, why in made["left_out"].items()]
    return "\n".join(lines) + "\n"
