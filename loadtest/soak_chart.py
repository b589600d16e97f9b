"""Draws the samples of a soak as one self-contained HTML page."""

import html

WIDTH, HEIGHT, LEFT, RIGHT, BOTTOM = 860, 150, 70, 26, 22

STYLE = """body{font:14px sans-serif;margin:2em auto;max-width:900px;color:#222}
svg{display:block;margin:.2em 0 1.4em}polyline{fill:none;stroke:#1565c0;stroke-width:1.5}
line{stroke:#ccc}.fit{stroke:#c62828;stroke-dasharray:5 4;stroke-width:1.5}
text{font-size:11px;fill:#555}
table{border-collapse:collapse}td,th{padding:.2em 1em .2em 0;text-align:left}"""


def chart(title, unit, times, values, fit=None):
    """Returns the chart of one series over time; `fit` is ((t0, v0), (t1, v1)), a line in it."""
    top = max(*values, *(value for _, value in fit or ()), 0) * 1.1 or 1
    span = max(times[-1] - times[0], 1)

    def x(time):
        return LEFT + (time - times[0]) / span * (WIDTH - LEFT - RIGHT)

    def y(value):
        return HEIGHT - BOTTOM - value / top * (HEIGHT - BOTTOM - 10)

    points = " ".join(f"{x(t):.1f},{y(v):.1f}" for t, v in zip(times, values))
    grid = "".join(
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(v):.1f}" y2="{y(v):.1f}"/>'
        f'<text x="{LEFT - 6}" y="{y(v) + 4:.1f}" text-anchor="end">{v:,.4g}</text>'
        for v in (0, top / 2.2, top / 1.1))
    ticks = "".join(
        f'<text x="{x(times[0] + span * i / 6):.1f}" y="{HEIGHT - 5}" text-anchor="middle">'
        f"{(times[0] + span * i / 6) / 60:.1f} min</text>"
        for i in range(7)
    )
    line = ""
    if fit:
        (t0, v0), (t1, v1) = fit
        line = (f'<line class="fit" x1="{x(t0):.1f}" y1="{y(v0):.1f}" '
                f'x2="{x(t1):.1f}" y2="{y(v1):.1f}"/>')
    return (f"<h3>{html.escape(title)} [{html.escape(unit)}]</h3>"
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">{grid}{ticks}'
            f'<polyline points="{points}"/>{line}</svg>')


def page(title, facts, charts):
    """Returns the page; `facts` are the (name, value) rows of the table on top."""
    rows = "".join(f"<tr><th>{html.escape(str(name))}</th><td>{html.escape(str(value))}</td></tr>"
                   for name, value in facts)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{STYLE}</style><h1>{html.escape(title)}</h1><table>{rows}</table>{''.join(charts)}</html>\n"
    )
