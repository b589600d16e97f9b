#!/usr/bin/env python3
"""Makes docs/options.md from `sluiced --help-all`, docs/metrics.md from proto/metric_names.h and
docs/errors.md from base/reason.h and docs/bounds.md from tools/bounds.py, and renews the table of
families in docs/models.md from engine/model/families, the table of limits in docs/http.md from
tools/gateway_bounds.py, and in docs/cascades.md what the commands that it shows print. Makes the
schema of `config` in the Helm chart, and its list of options with units, from `sluiced --help-all`.

`--check` writes nothing and names the pages that are out of date. A test runs it. `--sluice` is the
client that runs the commands, and `--sluiced` the daemon whose help is printed.
"""

import argparse
import json
import pathlib
import re
import shlex
import subprocess
import sys

from bounds import page as bounds_page
from gateway_bounds import BOUNDS
from reasons import reasons

ROOT = pathlib.Path(__file__).resolve().parents[1]
CHART = ROOT / "deploy" / "helm" / "sluice"
CHART_SCHEMA = CHART / "values.schema.json"


def cell(text):
    return " ".join(text.split()).replace("|", "\\|")


def options(text):
    """Yields (section, name, help, expected values, when) for each option of a help text. A change
    takes effect at `when`, a reload or a restart."""
    section = None
    entry = re.compile(r"^  (?:--)?([\w.-]+)(?: VALUE| \[true\|false\])?$")
    for block in re.split(r"\n(?=\S|  \S)", text):
        first, *rest = block.splitlines() or [""]
        if heading := re.match(r"([\w.]+):$", first):
            section = heading[1]
        elif section and section != "Options" and (name := entry.match(first)):
            words = " ".join(" ".join(rest).split())
            words, _, values = words.rpartition(" Expects ")
            words, _, when = words.removesuffix(" applies it.").rpartition(" A ")
            yield section, name[1].replace("-", "_"), words, values, when


def options_table(heading, rows, prefix):
    """Returns a section with a table; the names of `rows` begin with `prefix`."""
    lines = ["", f"### {heading}", "",
             "| option | effect | values | takes effect at a |", "|---|---|---|---|"]
    for name, words, values, when in rows:
        assert name.startswith(prefix) and when in ("reload", "restart"), (name, when)
        lines.append(f"| `{name}` | {cell(words)} | {cell(values[:1].upper() + values[1:])} | "
                     f"{when} |")
    return lines


def options_page(sluiced):
    """Returns the page made from the daemon's help: first the basic options, then the others."""

    def printed(flag):
        return subprocess.run([sluiced, flag], capture_output=True, text=True, check=True).stdout

    every = list(options(printed("--help-all")))
    basic = {name for _, name, *_ in options(printed("--help"))}
    lines = [
        "# Options of the daemon",
        "",
        "```yaml",
        "models:",
        "  - {name: demo, path: models/demo}",
        "engine:",
        "  queue: {max_wait: 500ms}",
        "server:",
        "  log: {access_sample: 0.1}",
        "```",
        "```",
        "sluiced --config sluice.yaml --check   # reads options and files, does not start",
        "sluiced --config sluice.yaml --engine.queue.max-wait 1s",
        "```",
        "",
        "`--config FILE` names a file of options. Every option can also be a flag or a variable of",
        "the environment: `engine.batch.max_batch_tokens` is `--engine.batch.max-batch-tokens` and",
        "`SLUICE_ENGINE_BATCH_MAX_BATCH_TOKENS`. A flag overrides the environment, which overrides",
        "the file, which overrides the default. An unknown or duplicate key, a wrong type or a",
        "value out of its range is an error. If there are names of an earlier release, one error",
        "lists all of them with their replacements.",
        "",
        "A duration needs a unit (`us`, `ms`, `s`, `min`, `h`); only 0 needs none. A size without",
        "a unit is in bytes.",
        "",
        "A change takes effect at a reload (SIGHUP, `sluice reload`) or at a restart. A reload",
        "logs the changed options of both kinds.",
        "",
        "`tools/make_docs.py` makes this page from `sluiced --help-all`. `config/sluice.yaml` is a",
        "file of the basic options.",
        "",
        "## Basic options",
        "",
        "An operator sets these options.",
    ]
    models = [row[1:] for row in every if row[0] == "models"]
    lines += [
        "",
        "`models` is the list of models to serve. The flag is `--model NAME=DIR`,",
        "`--model NAME:VERSION=DIR`, or `--model DIR` for the name of the folder, once for each",
        "model. The variable is `SLUICE_MODELS`, with commas between models. Each model has",
        "these keys:",
    ]
    lines += options_table("models", models, "")
    for tier in ("basic", "advanced"):
        if tier == "advanced":
            lines += ["", "## Advanced options", "",
                      "An expert sets these once, if at all. Some exist for comparisons."]
        shown = [row for row in every
                 if row[0] != "models" and (row[1] in basic) == (tier == "basic")]
        sections = {}
        for section, *row in shown:
            heading = section if "." in row[0] else "Models and device"
            sections.setdefault(heading, []).append(row)
        for heading, rows in sections.items():
            lines += options_table(heading, rows, heading if "." in rows[0][0] else "")
    return "\n".join(lines) + "\n"


def value_schema(values):
    """Returns the JSON schema of a value from the words that describe it in a help text."""
    values = values.split("; default ")[0]
    if match := re.match(r"an integer in \[(-?\d+), (-?\d+)\]", values):
        return {"type": "integer", "minimum": int(match[1]), "maximum": int(match[2])}
    if match := re.match(r"a number in ([\[(])(\S+), (\S+)([\])])", values):
        lower = "minimum" if match[1] == "[" else "exclusiveMinimum"
        upper = "maximum" if match[4] == "]" else "exclusiveMaximum"
        return {"type": "number", lower: float(match[2]), upper: float(match[3])}
    if values.startswith(("a duration in ", "a size in ")):  # templates/checks.yaml checks units.
        return {"type": ["string", "integer"]}
    if values.startswith("true or false"):
        return {"type": "boolean"}
    if values.startswith("a list of integers"):
        return {"type": "array", "items": {"type": "integer"}}
    if values.startswith("one of ") and " with " not in values:
        return {"enum": re.split(r", ", values.removeprefix("one of ").rstrip("."))}
    if values.startswith("OPTION=VALUE") or " a map of " in values:
        return {"type": ["string", "object"]}
    return {"type": "string"}


def chart_schema(sluiced):
    """Returns values.schema.json of the chart, with the options of the daemon below `config`."""
    path = CHART_SCHEMA
    schema = json.loads(path.read_text())
    help_text = subprocess.run([sluiced, "--help-all"], capture_output=True, text=True, check=True)
    config = {"type": "object", "additionalProperties": False, "properties": {}}
    model = {"type": "object", "additionalProperties": False, "properties": {}}
    for section, name, _, values, _ in options(help_text.stdout):
        if section == "models":
            model["properties"][name] = value_schema(values)
            continue
        place = config
        *folders, last = name.split(".")
        for folder in folders:
            place = place["properties"].setdefault(
                folder, {"type": "object", "additionalProperties": False, "properties": {}})
        place["properties"][last] = value_schema(values)
    model["required"] = ["name", "path"]
    config["properties"]["models"] = {"type": "array", "items": model}
    config["description"] = "The daemon's options (docs/options.md). Made by tools/make_docs.py."
    schema["properties"]["config"] = config
    return json.dumps(schema, indent=2) + "\n"


def chart_units(sluiced):
    """Returns the chart's list of the daemon's options with a unit."""
    help_text = subprocess.run([sluiced, "--help-all"], capture_output=True, text=True, check=True)
    rows = [row for row in options(help_text.stdout) if row[0] != "models"]
    head = "The options of the daemon whose values have a unit. Made by tools/make_docs.py."
    lines = [f"{{{{/* {head} */}}}}",
             '{{- define "sluice.units" -}}']
    for kind in ("duration", "size"):
        lines += [f"{kind}:"] + [
            f"  - {name}" for _, name, _, values, _ in rows if values.startswith(f"a {kind} in ")]
    return "\n".join([*lines, "{{- end -}}"]) + "\n"


def metrics(text):
    """Returns [(heading, [(name, help)])] for the groups of metrics in the header."""
    text = text.split("struct Metric", 1)[1].split("};", 1)[1]
    groups = []
    pattern = re.compile(
        r"((?:^//[^\n]*\n)+)|Metric k\w+\{\s*\"([^\"]+)\",((?:\s*\"(?:[^\"\\]|\\.)*\")+)\}", re.M
    )
    for match in pattern.finditer(text):
        if match.group(1):
            groups.append((cell(match.group(1).replace("//", " ")), []))
        else:
            groups[-1][1].append(
                (match.group(2), "".join(re.findall(r"\"((?:[^\"\\]|\\.)*)\"", match.group(3))))
            )
    return groups


def metrics_page():
    lines = [
        "# Metrics",
        "",
        "```",
        "sluice stats   # the most asked for of these, summed up",
        "```",
        "```promql",
        "histogram_quantile(0.99, sum by (le) (rate(sluice_request_duration_seconds_bucket[5m])))",
        "```",
        "",
        "At `/metrics` of the address `server.metrics.address`, in the text format of Prometheus. "
        "Made by",
        "`tools/make_docs.py` from `proto/metric_names.h`. Units are seconds and bytes; names of "
        "counters end in `_total`.",
        "Metrics about a served model have the labels `model`, `version` and `device`, and those "
        "that the texts name.",
    ]
    for heading, rows in metrics((ROOT / "proto" / "metric_names.h").read_text()):
        if not rows:
            continue
        title, _, rest = heading.partition(".")
        lines += ["", f"## {title}"] + (["", rest.strip()] if rest.strip() else [])
        lines += ["", "| metric | meaning |", "|---|---|"]
        lines += [f"| `{name}` | {cell(text)} |" for name, text in rows]
    return "\n".join(lines) + "\n"


def http_statuses():
    """Returns the gateway's HTTP status of each gRPC status."""
    text = (ROOT / "clients/python/sluice_client/gateway/call.py").read_text()
    table = text.split("_STATUSES = {", 1)[1].split("}", 1)[0]
    return dict(re.findall(r'"(\w+)": (\d+)', table))


def marked(text):
    """Returns the text with names of options and trailers as code."""
    names = r"\b(?:(?:server|engine)\.[\w.]*\w|grpc-retry-pushback-ms|max_priority|truncate)"
    return re.sub(names, r"`\g<0>`", cell(text))


def errors_page():
    lines = [
        "# Errors",
        "",
        "```",
        "grpc-status: 8 (RESOURCE_EXHAUSTED)",
        "grpc-message: the queue is full for priority 2, which may use 58983 tokens "
        "(engine.queue.max_tokens); retry later",
        "sluice-reason: queue_full",
        "grpc-retry-pushback-ms: 120",
        "```",
        "",
        "The trailer `sluice-reason` of a call that the daemon refuses or fails is one of the "
        "words below.",
        "Programs read the word; the message is for people. The word is also the label `reason` of",
        "`sluice_rejected_total`, which counts the requests that were refused before they were "
        "admitted,",
        "except for `credential_missing` and `token_unknown`: `sluice_unauthenticated_total` "
        "counts those.",
        "",
        "- **Retry**: whether the same call may succeed later. A RESOURCE_EXHAUSTED error has the "
        "trailer",
        "  `grpc-retry-pushback-ms`; do not retry earlier.",
        "- **Fault**: the side that has to change something. The alerts and the error budget count "
        "the",
        "  `server` rows only.",
        "- **HTTP**: the status that the gateway for HTTP returns.",
        "",
        "The reasons from `cancelled` on are for errors with no more exact reason: each has the "
        "name of its",
        "status. A CANCELLED without a reason comes from gRPC itself, for example while the "
        "daemon stops. If",
        "the caller did not cancel the call, repeat it like UNAVAILABLE, as the Python client "
        "does.",
        "",
        "An error inside a stream has no trailer: its status and its reason are the "
        "parameters `error_code`",
        "and `error_reason` of the response. A call that the daemon cuts off, because its peer "
        "does not read",
        "or send, has neither. An error of gRPC itself has no reason and no push-back: an unknown "
        "method, a",
        "compressed message, a message or metadata above the limit. Made by `tools/make_docs.py` "
        "from",
        "`base/reason.h`.",
        "",
        "| reason | status | HTTP | retry | fault | cause | what to do |",
        "|---|---|---|---|---|---|---|",
    ]
    http = http_statuses()
    for reason in reasons():
        retry = "yes" if reason.retryable else "no"
        lines.append(f"| `{reason.name}` | {reason.status} | {http.get(reason.status, 500)} | "
                     f"{retry} | {reason.at_fault} | {marked(reason.cause)} | "
                     f"{marked(reason.remedy)} |")
    return "\n".join(lines) + "\n"


def cascades_page(sluice):
    """Returns the page with the output of each block that begins with `$ sluice`."""

    def printed(match):
        command = match.group(1).replace("\\\n", " ")
        run = subprocess.run(
            [sluice, *shlex.split(command)[1:]], cwd=ROOT, capture_output=True, text=True
        )
        if run.returncode != 0:
            sys.exit(f"make_docs.py: docs/cascades.md: {command}: {run.stderr}")
        return f"```\n$ {match.group(1)}\n{run.stdout.rstrip()}\n```"

    text = (ROOT / "docs" / "cascades.md").read_text()
    return re.sub(r"```\n\$ (sluice (?:.*\\\n)*.*)\n(?:.*\n)*?```", printed, text)


def families():
    """Yields (title, architectures by output, first comment of the file) for each family."""
    folder = ROOT / "engine" / "model" / "families"
    order = re.findall(r"&k(\w+)Family", (folder / "families.cc").read_text())
    found = {}
    for path in folder.glob("*.cc"):
        text = path.read_text()
        comment = " ".join(re.findall(r"^// ?(.*)$", text.split("#include")[0], re.MULTILINE))
        lists = dict(re.findall(r"Architecture (k\w+)\[\] = \{(.*?)\};", text, re.DOTALL))
        for name, body in re.findall(
            r"ModelFamily k(\w+)Family = \{(.*?)^\};", text, re.DOTALL | re.MULTILINE
        ):
            title = re.search(r'\.title = "(.*?)"', body)[1]
            rows = lists[re.search(r"\.architectures = (k\w+)", body)[1]]
            by_output = {}
            more = r'(?:, "[^"]*"(?:, /\*of_hub=\*/true)?)?'
            for row in re.finditer(r'\{"(\w+)", "[^"]*", OutputKind::k(\w+)' + more + r"\}", rows):
                by_output.setdefault(row[2], []).append(row[1])
            found[name] = (title, by_output, comment)
    return [found[name] for name in order]


def models_page():
    begin, end = "<!-- families: made by tools/make_docs.py -->\n", "<!-- end of families -->\n"
    text = (ROOT / "docs" / "models.md").read_text()
    before, rest = text.split(begin)
    lines = [
        "| family | generates, or fills masks | scores | scores tokens | states | description |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for title, outputs, comment in families():
        states = ("States", "ProjectedStates")
        columns = ("Tokens",), ("Scores",), ("TokenScores", "Answers"), states
        names = [
            ", ".join(f"`{name}`" for kind in kinds for name in outputs.get(kind, []))
            for kinds in columns
        ]
        lines.append(f"| {title} | {' | '.join(names)} | {cell(comment)} |")
    return before + begin + "\n".join(lines) + "\n" + end + rest.split(end)[1]


def gateway_defaults():
    """Returns the defaults of the gateway's limits, by name and by option, as its source has them.

    The source is read instead of imported, because its packages may be absent.
    """
    folder = ROOT / "clients" / "python" / "sluice_client" / "gateway"
    limits = (folder / "hostile.py").read_text()
    of_field = dict(re.findall(r"^    (\w+): (?:int|float) = ([\d_.]+(?: << \d+)?)", limits, re.M))
    options = (folder / "__main__.py").read_text()
    of_option = {}
    for name, value in re.findall(
        r'add\("(--[\w-]+)", type=[\w()]+, default=(?:limits\.)?([\w.]+)', options
    ):
        of_option[name] = of_field.get(value, value)
    return {**of_field, **of_option}


def readable(value):
    """Returns a number of the source as a reader writes it."""
    number, _, shift = value.replace("_", "").partition(" << ")
    if shift:
        return f"{int(number) << (int(shift) - 20)} MiB"
    return f"{float(number):,g}" if float(number) < 1e6 else f"{int(number):,}"


def http_page():
    begin, end = "<!-- limits: made by tools/make_docs.py -->\n", "<!-- end of limits -->\n"
    text = (ROOT / "docs" / "http.md").read_text()
    before, rest = text.split(begin)
    defaults = gateway_defaults()
    lines = ["| limit of | by | default | if one peer fills it, this is refused |",
             "|---|---|---|---|"]
    for bound in BOUNDS:
        value = bound.value or readable(defaults[bound.name])
        option = f"`{bound.name}`" if bound.name.startswith("--") else "fixed"
        reason = f" (`{bound.reason}`)" if bound.reason else ""
        lines.append(f"| {cell(bound.resource)} | {option} | {value} | {cell(bound.refused)}"
                     f"{reason} |")
    return before + begin + "\n".join(lines) + "\n" + end + rest.split(end)[1]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--sluice", default=ROOT / "build" / "release" / "client" / "sluice")
    parser.add_argument("--sluiced", default=ROOT / "build" / "release" / "server" / "sluiced")
    arguments = parser.parse_args()
    docs = ROOT / "docs"
    pages = {
        docs / "options.md": lambda: options_page(arguments.sluiced),
        docs / "metrics.md": metrics_page,
        docs / "bounds.md": bounds_page,
        docs / "errors.md": errors_page,
        docs / "models.md": models_page,
        docs / "http.md": http_page,
        CHART_SCHEMA: lambda: chart_schema(arguments.sluiced),
        CHART / "templates" / "_units.tpl": lambda: chart_units(arguments.sluiced),
        # Last, because only this page needs sluice-analysis, which ./run builds late.
        docs / "cascades.md": lambda: cascades_page(arguments.sluice),
    }
    stale = 0
    for path, make in pages.items():
        if not arguments.check:
            path.write_text(make())
        elif not path.is_file() or path.read_text() != make():
            print(f"{path.relative_to(ROOT)} is out of date; run tools/make_docs.py")
            stale = 1
    return stale


if __name__ == "__main__":
    sys.exit(main())
