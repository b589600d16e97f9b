"""Compares the figures of CUDA kernels' machine code with budgets, and writes the budgets.

A table is {source: {"digest": ..., "kernels": {kernel: {architecture: figures}}}}. Measurements are
{source: {kernel: {architecture: figures}}}.
"""

import json
import pathlib

KERNELS = pathlib.Path("kernels/cuda")
TABLE = KERNELS / "sass.json"
NAMES = {
    "registers": "registers",
    "stack": "bytes of stack frame",
    "spill_stores": "bytes of spill stores",
    "spill_loads": "bytes of spill loads",
    "cas": "compare-and-swap instructions",
    "local": "accesses to the stack in loops",
    "divisions": "integer divisions in loops",
    "overwritten": "writes to registers that a queued product reads",
    "touched": "uses of the sums of a queued product",
    "hot_integer_percent": "percent of integer arithmetic in the hot loop",
    "hot_descriptors": "moves to uniform registers in the hot loop",
    "hot_copies": "copies by each thread in the hot loop",
    "hot_bulk": "copies by one thread in the hot loop",
    "hot_hmma": "matrix products in the hot loop",
    "hot_percent": "percent of matrix products in the hot loop",
    "LDSM": "LDSM",
}
NEVER_WORSE = ("stack", "spill_stores", "spill_loads", "local", "cas", "divisions",
               "overwritten", "touched")
# Figures of the hot loop that older tables lack. They are compared if the budgets have them.
NEWER = ("hot_integer_percent", "hot_descriptors", "hot_copies")


def goal(name):
    """Returns -1 if a figure should be low, 1 if it should be high, 0 if it is only reported."""
    if name in ("LDSM", "hot_hmma", "hot_percent"):
        return 1
    if name in ("hot_instructions", "hot_integer", "hot_bulk"):
        return 0
    if name in NAMES:
        return -1
    bits = int(name.split(".")[1])
    return -1 if bits <= 16 else 1 if bits >= 128 else 0


def comparable(figures):
    """Returns the figures, and the shares of matrix products and of integer arithmetic in the hot
    loop, in tenths of a percent.
    """
    def share(name):
        return (figures.get(name, 0) * 1000 // figures["hot_instructions"] / 10
                if "hot_hmma" in figures else 0)
    return {**figures, "hot_percent": share("hot_hmma"),
            "hot_integer_percent": share("hot_integer")}


def title(name):
    return NAMES.get(name) or "{0} of {1} bits".format(*name.split("."))


def differences(figures, budgets):
    """Yields (name, figure, budget, better) for each figure that does not equal its budget."""
    older = "hot_integer" not in budgets
    figures, budgets = comparable(figures), comparable(budgets)
    for name in sorted(set(figures) | set(budgets)):
        if older and name in NEWER:
            continue
        figure, budget = figures.get(name, 0), budgets.get(name, 0)
        if figure != budget and goal(name):
            yield name, figure, budget, (figure > budget) == (goal(name) > 0)


def judge(measured, table):
    """Returns errors about figures that exceed their budgets, and hints about better ones."""
    errors, hints = [], []
    for source, kernels in measured.items():
        path, known = KERNELS / source, table.get(source, {}).get("kernels", {})
        for kernel in known:
            if kernel not in kernels:
                errors.append(f"{path}: {TABLE} has budgets of {kernel}, which does not exist")
        for kernel, figures in kernels.items():
            for architecture, each in figures.items():
                where = f"{path}: {kernel} on {architecture}:"
                if architecture not in known.get(kernel, {}):
                    errors.append(f"{where} {TABLE} has no budgets for it")
                    continue
                for name, figure, budget, better in differences(each, known[kernel][architecture]):
                    if better:
                        hints.append(f"{where} {figure} {title(name)}, better than {budget}")
                    else:
                        bound = "at most" if goal(name) < 0 else "at least"
                        errors.append(f"{where} {figure} {title(name)}, the budget is {bound} "
                                      f"{budget}")
    return errors, hints


def forbidden(measured, table):
    """Returns a line for each figure that may only improve and is worse."""
    lines = []
    for source, kernels in measured.items():
        known = table.get(source, {}).get("kernels", {})
        for kernel, figures in kernels.items():
            for architecture, each in figures.items():
                budgets = known.get(kernel, {}).get(architecture, {})
                lines += [f"{KERNELS / source}: {kernel} on {architecture}: {figure} {title(name)} "
                          f"instead of {budget}"
                          for name, figure, budget, better in differences(each, budgets)
                          if name in NEVER_WORSE and not better]
    return lines


def write_table(path, versions, table):
    """Writes a line for each kernel and architecture, so that diffs are easy to read."""
    lines = ["{", f' "nvcc": {json.dumps(versions[0])},', ' "sources": {']
    for i, (source, entry) in enumerate(sorted(table.items())):
        lines += [f'  {json.dumps(source)}: {{', f'   "digest": {json.dumps(entry["digest"])},',
                  '   "kernels": {']
        kernels = []
        for kernel, figures in sorted(entry["kernels"].items()):
            rows = ",\n".join(f"     {json.dumps(architecture)}: {json.dumps(each)}"
                              for architecture, each in figures.items())
            kernels.append(f"    {json.dumps(kernel)}: {{\n{rows}\n    }}")
        lines += [",\n".join(kernels), "   }", "  }," if i + 1 < len(table) else "  }"]
    path.write_text("\n".join([*lines, " }", "}", ""]))


def markdown(measured, architectures):
    """Returns a Markdown table with a row per kernel."""
    def accesses(figures, names):
        found = sorted(((name, int(bits), count) for name, _, bits, count in
                        ((*key.partition("."), value) for key, value in figures.items())
                        if name in names), key=lambda each: (each[0], -each[1]))
        return ", ".join(f"{'' if name in ('LDG', 'STG', 'LDGSTS') else name + ' '}{bits}: {count}"
                         for name, bits, count in found)

    def products(figures):
        if "hot_hmma" not in figures:
            return ""
        return (f"{figures['hot_hmma']} of {figures['hot_instructions']} "
                f"({comparable(figures)['hot_percent']} %)")

    columns = {
        "registers": lambda each: each["registers"],
        "spills, bytes stored + loaded": lambda each: "{0} + {1}".format(
            each.get("spill_stores", 0), each.get("spill_loads", 0)),
        "stack": lambda each: each.get("stack", 0),
        "its accesses in loops": lambda each: each.get("local", 0),
        "CAS": lambda each: each.get("cas", 0),
        "divisions in loops": lambda each: each.get("divisions", 0),
        "HMMA in the hot loop": products,
        "integer in the hot loop": lambda each: (
            f"{comparable(each)['hot_integer_percent']} %" if "hot_hmma" in each else ""),
        "copies in it, by each + by one": lambda each: (
            f"{each.get('hot_copies', 0)} + {each.get('hot_bulk', 0)}"
            if "hot_hmma" in each else ""),
        "LDSM": lambda each: each.get("LDSM", 0),
        "LDGSTS by bits": lambda each: accesses(each, ("LDGSTS",)),
        "loads by bits": lambda each: accesses(each, ("LDG", "LD")),
        "stores by bits": lambda each: accesses(each, ("STG", "ST")),
    }
    lines = [f"Where architectures differ, a cell has {' / '.join(architectures)}.", "",
             f"| kernel | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for kernels in measured.values():
        for kernel, figures in kernels.items():
            cells = []
            for column in columns.values():
                each = [str(column(figures[name])) or "-" for name in figures]
                cells.append(each[0] if len(set(each)) == 1 else " / ".join(each))
            lines.append(f"| `{kernel}` | {' | '.join(cells)} |")
    return "\n".join(lines)
