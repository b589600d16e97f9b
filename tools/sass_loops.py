"""Compares the loops of CUDA kernels in machine code with the emulator's counts of the same loops.

The emulator counts the instructions that the busiest warp executes in a step of a loop, by kind
(tests/kernels/cuda/loops.json). It does not see arithmetic, moves and branches. The machine code
has all instructions, but a loop also has rare cases. An iteration is the path through a loop whose
counted instructions are nearest to the emulator's, and then the shortest one. Loops without matrix
products inside it are passed once.

The kinds of counted instructions:

  products  matrix products
  shared    accesses to shared memory
  global    accesses to global memory, and copies by each thread
  others    barriers, waits, announcements of bulk copies, and exchanges between lanes

kernels/cuda/loops.json has the iterations: their counted instructions, all their `instructions`,
and the `steps` that they compute. `tools/check_sass.py --update --all --only SOURCE` adds the loops
of a source. If the counts disagree by more than 10 %, the kernel executes other instructions than
its source has, or the emulator counts wrongly.
"""

import collections
import json
import pathlib

import sass

COUNTS = pathlib.Path("tests/kernels/cuda/loops.json")
TABLE = pathlib.Path("kernels/cuda/loops.json")
KINDS = ("products", "shared", "global", "others")
MAX_DIFFERENCE = 0.1

OPCODES = {
    "shared": {"LDS", "LDSM", "STS", "STSM", "ATOMS"},
    "global": {"LDG", "STG", "LD", "ST", "LDGSTS", "ATOM", "ATOMG", "RED", "REDG"},
    "others": {"BAR", "SYNCS", "DEPBAR", "LDGDEPBAR", "SHFL", "VOTE", "VOTEU", "MATCH"},
}


def read_counts(root):
    """Returns the emulator's loops."""
    path = root / COUNTS
    return json.loads(path.read_text()) if path.exists() else []


def kind_of(opcode):
    """Returns the kind that an instruction counts as, or None."""
    if sass.MATRIX_PRODUCT.match(opcode) and not sass.NOT_A_PRODUCT.match(opcode):
        return "products"
    if opcode.startswith("WARPGROUP.DEPBAR"):
        return "others"
    name = opcode.split(".")[0]
    return next((kind for kind, names in OPCODES.items() if name in names), None)


def _runs(each):
    return each.predicate.strip() != "@!PT"


def _blocks(code, head, loop):
    """Returns the loop's blocks by their first instruction: the counts of KINDS, the number of
    instructions, and the blocks that may follow in the loop. Without branches back to a block of
    the loop, except to the first one."""
    successors, _ = sass._successors(code)  # pylint: disable=protected-access
    inside = {at: successors[at] & loop for at in loop}
    entries = collections.Counter(each for following in inside.values() for each in following)
    starts = {head, *(each for at in loop for each in inside[at]
                      if entries[each] > 1 or len(inside[at]) > 1)}
    blocks = {}
    for start in starts:
        counts, length, at = [0] * len(KINDS), 0, start
        while True:
            if _runs(code[at]):
                length += 1
                if kind := kind_of(code[at].opcode):
                    counts[KINDS.index(kind)] += 1
            if len(inside[at]) != 1 or inside[at] & starts:
                break
            at = min(inside[at])
        blocks[start] = counts, length, inside[at]

    order, seen, stack = [], {head}, [(head, iter(sorted(blocks[head][2])))]
    while stack:
        at, rest = stack[-1]
        following = next((each for each in rest if each not in seen), None)
        if following is None:
            order.append(at)
            stack.pop()
        else:
            seen.add(following)
            stack.append((following, iter(sorted(blocks[following][2]))))
    number = {each: -i for i, each in enumerate(order)}
    return {at: (*blocks[at][:2], {each for each in blocks[at][2]
                                   if each == head or number[each] > number[at]})
            for at in reversed(order)}


def _iterations(code, head, loop):
    """Returns the fewest instructions of a path through a loop, by the path's counts of KINDS."""
    paths = collections.defaultdict(dict)  # to a block, in the same form
    complete = {}
    paths[head][(0,) * len(KINDS)] = 0
    for at, (counts, length, following) in _blocks(code, head, loop).items():
        for before, shortest in paths.pop(at, {}).items():
            now = tuple(map(sum, zip(before, counts)))
            for each in following:
                to = complete if each == head else paths[each]
                to[now] = min(shortest + length, to.get(now, shortest + length))
    return complete


def _loops(code):
    """Returns the innermost loops with matrix products, by their first instruction."""
    products = {i for i, each in enumerate(code)
                if _runs(each) and kind_of(each.opcode) == "products"}
    multiplying = {head: loop for head, loop in sass.find_loops(code).items() if loop & products}
    return {head: loop for head, loop in multiplying.items()
            if not any(other in loop for other in multiplying if other != head)}


def iteration(code, row):
    """Returns the figures of the iteration that is nearest to an emulator's loop, or None."""
    best = None
    for head, loop in sorted(_loops(code).items()):
        for counts, length in _iterations(code, head, loop).items():
            figures = dict(zip(KINDS, counts))
            steps = max(1, round(figures["products"] * row["steps"] / row["products"]))
            figures = {"steps": steps, "instructions": length, **figures}
            rank = (difference(row, figures), length / steps)
            if best is None or rank < best[0]:
                best = rank, figures
    return best and best[1]


def difference(row, figures):
    """Returns the differences of all kinds relative to the emulator's instructions."""
    steps = figures["steps"] / row["steps"]
    return (sum(abs(figures[kind] - row[kind] * steps) for kind in KINDS) /
            sum(row[kind] * steps for kind in KINDS))


def judge(row, figures):
    """Returns an error if an iteration disagrees with the emulator's loop, or None."""
    where = f"{row['source']}: {row['kernel']}, {row['step']}:"
    if not figures or "steps" not in figures:
        return f"{where} the machine code has no loop of matrix products"
    if difference(row, figures) <= MAX_DIFFERENCE:
        return None
    machine = ", ".join(f"{figures[kind] / figures['steps']:g} {kind}" for kind in KINDS)
    emulator = ", ".join(f"{row[kind] / row['steps']:g} {kind}" for kind in KINDS)
    return (f"{where} a step has {machine} in machine code and {emulator} in the emulator; at most "
            f"{MAX_DIFFERENCE:.0%} may differ")


def key(loop):
    return loop["kernel"], loop["step"]


def write_table(path, loops):
    """Writes a line for each loop."""
    path.write_text("[\n" + ",\n".join(f" {json.dumps(each)}" for each in loops) + "\n]\n")
