#!/usr/bin/env python3
"""Plots xsa_proj_frac, the share of their own values in the outputs of a model's heads with XSA.

  python examples/xsa.py localhost:8001 demo "In the beginning" 40 > xsa.svg

The plot has a line for each layer with XSA: the mean over its heads, by position. A mark separates
the prompt from the generated tokens.
"""

import argparse
import html
import sys

from sluice_client import Client, SluiceError, Tensor

WIDTH, HEIGHT, LEFT, TOP = 720, 300, 40, 30
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")


def measure(server, model, prompt, count):
    """Returns the mean over heads of each position of each layer, and the prompt's length."""
    with Client(server) as client:
        answer = client.infer(model, Tensor.of("text_input", "BYTES", (1, 1), [prompt]),
                              outputs=["xsa_proj_frac", "prompt_logprobs"],
                              parameters={"max_tokens": count})
    (layers,) = answer.outputs["xsa_proj_frac"].tolist()
    length = answer.outputs["prompt_logprobs"].shape[1]
    return [[sum(heads) / len(heads) for heads in layer] for layer in layers], length


def svg(layers, first_generated):
    """Returns the plot of the layers that have a value above 0."""
    positions = len(layers[0])
    x = [LEFT + (WIDTH - 2 * LEFT) * i / max(positions - 1, 1) for i in range(positions)]

    def y(value):
        return TOP + (HEIGHT - 2 * TOP) * (1 - value)

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
             'font-family="sans-serif" font-size="11">',
             f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for value in (0, 0.5, 1):
        parts.append(f'<path d="M{LEFT} {y(value):.1f}H{WIDTH - LEFT}" stroke="#ccc"/>'
                     f'<text x="8" y="{y(value) + 4:.1f}">{value:g}</text>')
    if 0 < first_generated < positions:
        at = x[first_generated]
        parts.append(f'<path d="M{at:.1f} {TOP}V{HEIGHT - TOP}" stroke="#888"/>'
                     f'<text x="{at + 4:.1f}" y="{TOP - 8}">generated</text>')
    with_xsa = [number for number, layer in enumerate(layers) if max(layer) > 0]
    for place, number in enumerate(with_xsa):
        colour = COLOURS[place % len(COLOURS)]
        line = " ".join(f"{at:.1f},{y(value):.1f}" for at, value in zip(x, layers[number]))
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}"/>'
                     f'<text x="{LEFT + 70 * place}" y="{HEIGHT - 8}" fill="{colour}">'
                     f'{html.escape(f"layer {number}")}</text>')
    return "\n".join([*parts, "</svg>"])


def main():
    parser = argparse.ArgumentParser(
        description="Plots xsa_proj_frac of a model with exclusive self attention, as SVG.")
    parser.add_argument("server", metavar="HOST:PORT", help="the daemon's gRPC address")
    parser.add_argument("model", help="the name of a served model with XSA")
    parser.add_argument("prompt")
    parser.add_argument("max_tokens", type=int, help="the most tokens to generate")
    given = parser.parse_args()
    try:
        print(svg(*measure(given.server, given.model, given.prompt, given.max_tokens)))
    except SluiceError as error:
        sys.exit(f"xsa.py: {error}")


if __name__ == "__main__":
    main()
