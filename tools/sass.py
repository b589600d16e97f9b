"""Reads the machine code of CUDA kernels from ptxas and nvdisasm, as figures per kernel.

The figures of a kernel are a dictionary. An absent figure is zero.

  registers                  registers of a thread
  stack                      bytes of a thread's stack frame
  spill_stores, spill_loads  bytes of registers that ptxas spills to memory
  cas                        compare-and-swap instructions
  local                      accesses to a thread's stack, spills or arrays, inside loops
  divisions                  integer divisions by a run-time value inside loops
  overwritten                instructions that write registers that a queued product still reads
  touched                    instructions that read or write the sums of a queued product
  hot_hmma, hot_instructions the hot loop's matrix products, and all its instructions
  hot_integer                integer arithmetic in the hot loop, mostly addresses
  hot_descriptors            values that the hot loop moves to uniform registers, for descriptors
  hot_copies, hot_bulk       copies to shared memory in the hot loop: by each thread, and by one
  LDSM                       matrices loaded by ldmatrix
  LDG.128, STG.16, ...       accesses by instruction and bits: LDG and STG in global memory, LDGSTS
                             from global to shared memory, LD and ST if ptxas does not know

The hot loop is the innermost loop with matrix products. If there are several, it is the loop with
the most of them.
"""

import collections
import dataclasses
import re

MATRIX_PRODUCT = re.compile(r"[A-Z]*MMA(\.|$)")
NOT_A_PRODUCT = re.compile(r"HFMA2")  # HFMA2.MMA is an addition of two halves
COMPARE_AND_SWAP = re.compile(r"ATOM[GS]?\.(\w+\.)*CAS")
RECIPROCAL = re.compile(r"I2F\.(\w+\.)?RP$")  # the start of a division by an integer
DIVISION_CALL = re.compile(r"_(div|rem)_[su](16|32|64)")
ACCESSES = ("LDG", "STG", "LDGSTS", "LD", "ST")
BITS = {"U8": 8, "S8": 8, "U16": 16, "S16": 16, "F16": 16, "64": 64, "128": 128, "256": 256}

SECTION = re.compile(r"\s*\.section\s+\.text\.([^,\s]+)")
LABEL = re.compile(r"([\w.$]+):")
INSTRUCTION = re.compile(r"\s*/\*[0-9a-f]+\*/\s+\{?\s*(@!?\w+\s+)?([A-Z][\w.]*)\s*(.*?)\s*;")
# A product of a warpgroup with its rows in registers, and the wait for all queued products.
QUEUED_PRODUCT = re.compile(r"R\d+, R(\d+)(?:\.reuse)?, gdesc")
QUEUED_SUMS = re.compile(r"HGMMA\.64x(\d+)x")
WAIT_FOR_PRODUCTS = re.compile(r"gsb0, 0x([0-9a-f]+)$")
WRITTEN = re.compile(r"R(\d+)")
REGISTER = re.compile(r"\bR(\d+)")
INTEGER = re.compile(r"U?(IADD3|IMAD|LEA|LOP3|SHF|ISETP|VIADD|IADD|PRMT|SGXT|BMSK|IABS|IMNMX|"
                     r"VIMNMX|SEL)(\.|$)")
MOVE = re.compile(r"IMAD\.(MOV|SHL)")
# The messages of ptxas about products that run one after another, and about register limits that
# it ignores.
BAD_MESSAGE = re.compile(r"\bC75\d\d\b")
WRITES_NO_REGISTER = ("ST", "RED", "LDGSTS", "BAR", "BRA", "SYNCS", "HGMMA")
TARGET = re.compile(r"\.L_\w+")


@dataclasses.dataclass
class Instruction:
    opcode: str
    operands: str
    predicate: str  # "@P0 ", "@!PT " or empty
    labels: list  # of the instruction's own address


def read_sass(text):
    """Returns the instructions of each section of code in the output of nvdisasm, by name."""
    sections, code, labels = {}, None, []
    for line in text.splitlines():
        if found := SECTION.match(line):
            code, labels = sections.setdefault(found[1], []), []
        elif code is None:
            continue
        elif found := INSTRUCTION.match(line):
            code.append(Instruction(found[2], found[3], found[1] or "", labels))
            labels = []
        elif found := LABEL.match(line):
            labels.append(found[1])
    return sections


def read_usage(text):
    """Returns the resources of each kernel in the output of `ptxas -v`, by name."""
    usage, kernel, function = {}, None, None
    for line in text.splitlines():
        if found := re.search(r"Compiling entry function '(\S+)'", line):
            kernel = usage[found[1]] = {}
        elif found := re.search(r"Function properties for (\S+)", line):
            function = found[1]
        elif found := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, "
                                r"(\d+) bytes spill loads", line):
            if function in usage:
                usage[function].update(stack=int(found[1]), spill_stores=int(found[2]),
                                       spill_loads=int(found[3]))
        elif found := re.search(r"Used (\d+) registers", line):
            kernel["registers"] = int(found[1])
    return usage


def bad_messages(text):
    """Returns the lines of ptxas that report serialised products or an ignored setmaxnreg."""
    return [line.strip() for line in text.splitlines() if BAD_MESSAGE.search(line)]


def _successors(code):
    """Returns the indexes of the possible next instructions of each instruction, and of calls."""
    place = {label: i for i, each in enumerate(code) for label in each.labels}
    reunions = collections.defaultdict(set)  # where threads continue that met at a barrier
    for each in code:
        if each.opcode.startswith("BSSY"):
            barrier, label = each.operands.split(",")
            reunions[barrier].update(place[name] for name in TARGET.findall(label))
    successors, subroutines = [], set()
    for i, each in enumerate(code):
        kind = each.opcode.split(".")[0]
        # Branches name a condition as a predicate or as an operand before the label.
        always = not each.predicate and not (kind == "BRA" and each.operands.find("`") > 0)
        named = {place[label] for label in TARGET.findall(each.operands)}
        following = {i + 1} if i + 1 < len(code) else set()
        if kind == "CALL" and not named:
            target = re.search(r"`\((\S+)\)", each.operands)
            subroutines |= {place[target[1]]} if target and target[1] in place else set()
        elif kind in ("BRA", "BRX", "CALL", "JMP", "JMX", "WARPSYNC"):  # this CALL never returns
            following = named if always and kind != "WARPSYNC" else following | named
        elif kind in ("EXIT", "RET") and always:
            following = set()
        elif kind == "BSYNC" and not following & reunions[each.operands]:
            following = reunions[each.operands] or following
        successors.append(following)
    return successors, subroutines


def _dominators(order, predecessors):
    """Returns the immediate dominator of each block; `order` is a reversed postorder."""
    number = {block: i for i, block in enumerate(order)}
    above = {order[0]: order[0]}

    def meet(a, b):
        while a != b:
            if number[a] > number[b]:
                a = above[a]
            else:
                b = above[b]
        return a

    changed = True
    while changed:
        changed = False
        for block in order[1:]:
            found = None
            for each in predecessors[block]:
                if each in above:
                    found = each if found is None else meet(found, each)
            if above.get(block) != found:
                above[block] = found
                changed = True
    return above


def find_loops(code):
    """Returns the loops of a kernel: sets of indexes of instructions, by the index of the first.

    These are natural loops: a loop begins at an instruction that dominates a branch back to it.
    Code that is placed after the loop, such as a rare case, therefore belongs to the loop, and a
    branch back from it does not make another loop."""
    successors, subroutines = _successors(code)
    root = -1  # precedes the kernel and its subroutines
    starts = {0, *subroutines}
    for i, following in enumerate(successors):
        if following != {i + 1}:
            starts |= following | {i + 1}
    starts = sorted(starts & set(range(len(code))))
    ends = dict(zip(starts, [*starts[1:], len(code)]))
    following = {block: sorted(successors[end - 1]) for block, end in ends.items()}
    following[root] = [0, *sorted(subroutines)]

    order, seen, stack = [], {root}, [(root, iter(following[root]))]
    while stack:
        block, rest = stack[-1]
        child = next((each for each in rest if each not in seen), None)
        if child is None:
            order.append(block)
            stack.pop()
        else:
            seen.add(child)
            stack.append((child, iter(following[child])))
    order.reverse()
    predecessors = collections.defaultdict(list)
    for block in order:
        for each in following[block]:
            predecessors[each].append(block)
    above = _dominators(order, predecessors)

    def dominates(block, other):
        while other not in (block, root):
            other = above[other]
        return other == block

    loops = collections.defaultdict(set)
    for block in order:
        for head in following[block]:
            if not dominates(head, block):
                continue
            blocks, reached = {head}, [block]
            while reached:
                each = reached.pop()
                if each not in blocks:
                    blocks.add(each)
                    reached += predecessors[each]
            loops[head] |= blocks
    return {head: {i for block in blocks for i in range(block, ends[block])}
            for head, blocks in loops.items()}


def _access(opcode):
    """Returns the name and bits of an access to memory ("LDG.128"), or None."""
    name, *parts = opcode.split(".")
    if name not in ACCESSES:
        return None
    return f"{name}.{next((BITS[part] for part in parts if part in BITS), 32)}"


def _registers(first, count):
    return set(range(int(first), int(first) + count))


def _written(each):
    """Returns the registers that an instruction writes."""
    written = WRITTEN.match(each.operands)
    if not written or each.opcode.startswith(WRITES_NO_REGISTER):
        return set()
    bits = max((BITS[part] for part in each.opcode.split(".") if part in BITS), default=64)
    return _registers(written[1], max(1, bits // 32))


class QueuedProducts:
    """The registers of products that are queued, in code order, by group.

    A product's operand gsb0 ends its group. A wait leaves the last groups queued that it names."""

    def __init__(self):
        self._groups, self._open = [], []

    def issue(self, each):
        operands = QUEUED_PRODUCT.match(each.operands)
        read = _registers(operands[1], 4) if operands else set()
        columns, first = QUEUED_SUMS.match(each.opcode), WRITTEN.match(each.operands)
        sums = _registers(first[1], int(columns[1]) // 2) if columns and first else set()
        self._open.append((read, sums))
        if "gsb0" in each.operands:
            self._groups.append(self._open)
            self._open = []

    def wait(self, left):
        # A product without gsb0 before a wait belongs to the last group.
        if self._open:
            self._groups.append(self._open)
            self._open = []
        self._groups = self._groups[len(self._groups) - left:] if left else []

    def registers(self):
        """Returns the registers that queued products read, and their sums."""
        products = [product for group in [*self._groups, self._open] for product in group]
        return (set().union(*(read for read, _ in products)),
                set().union(*(sums for _, sums in products)))


def _early_uses(code):
    """Returns the number of instructions that write registers that a queued product may still read,
    and of those that read or write the sums of one. These lie, in code order, between the product
    and the wait for its group.
    """
    queued, overwritten, touched = QueuedProducts(), 0, 0
    for each in code:
        found = WAIT_FOR_PRODUCTS.search(each.operands)
        if each.opcode.startswith("HGMMA"):
            queued.issue(each)
        elif each.opcode.startswith("WARPGROUP.DEPBAR") and found:
            queued.wait(int(found[1], 16))
        else:
            read, sums = queued.registers()
            overwritten += bool(_written(each) & read)
            named = {int(number) for number in REGISTER.findall(each.operands)}
            touched += bool((named | _written(each)) & sums)
    return overwritten, touched


def _hot_kind(opcode):
    """Returns the figure that an instruction of the hot loop counts in, or None."""
    kind = opcode.split(".")[0]
    if kind == "R2UR":
        return "hot_descriptors"
    if kind == "LDGSTS":
        return "hot_copies"
    if kind in ("UBLKCP", "UTMALDG"):
        return "hot_bulk"
    return "hot_integer" if INTEGER.match(opcode) and not MOVE.match(opcode) else None


def figures_of(code):
    """Returns the figures of a kernel's instructions."""
    figures = collections.Counter()
    overwritten, touched = _early_uses(code)
    if overwritten:
        figures["overwritten"] = overwritten
    if touched:
        figures["touched"] = touched
    loops = find_loops(code)
    in_loops = set().union(*loops.values())
    products = set()
    for i, each in enumerate(code):
        if each.predicate.strip() == "@!PT":  # it never runs
            continue
        if MATRIX_PRODUCT.match(each.opcode) and not NOT_A_PRODUCT.match(each.opcode):
            products.add(i)
        elif COMPARE_AND_SWAP.match(each.opcode):
            figures["cas"] += 1
        elif each.opcode.startswith("LDSM"):
            figures["LDSM"] += 1
        elif access := _access(each.opcode):
            figures[access] += 1
        elif i in in_loops and each.opcode.split(".")[0] in ("LDL", "STL"):
            figures["local"] += 1
        elif i in in_loops and (RECIPROCAL.match(each.opcode) or each.opcode.startswith("CALL")
                                and DIVISION_CALL.search(each.operands)):
            figures["divisions"] += 1
    multiplying = {head: loop for head, loop in loops.items() if loop & products}
    innermost = [loop for head, loop in multiplying.items()
                 if not any(other in loop for other in multiplying if other != head)]
    if innermost:
        hot = max(innermost, key=lambda loop: (len(loop & products), len(loop)))
        figures.update(hot_hmma=len(hot & products), hot_instructions=len(hot))
        counts = collections.Counter(filter(None, (_hot_kind(code[i].opcode) for i in hot)))
        figures.update(counts)
    return dict(figures)


def _split(arguments):
    """Returns the parts of a list of template arguments or parameters."""
    parts, depth = [""], 0
    for character in arguments:
        depth += (character in "<(") - (character in ">)")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def _flags(source):
    """Returns the names of the template parameters of each kernel in `source`; None if no flag."""
    flags = {}
    for parameters, name in re.findall(r"\btemplate\s*<([^{};]*?)>\s*__global__[^{};]*?\b(\w+)\("
                                       r"(?!\w*\))", source):
        flags[name] = [found and found[1] for found in (
            re.fullmatch(r"bool\s+k?(\w+)", each) for each in _split(parameters))]
    return flags


def _enumerator(kind, value, source):
    """Returns the name of a value of an enum that the text `source` declares."""
    found = re.search(rf"\benum class {kind}\b[^{{;]*{{([^}}=]*)}}", source)
    names = _split(found[1]) if found else []
    return names[value].removeprefix("k") if value < len(names) else f"{kind} {value}"


def short_name(demangled, source):
    """Returns a short name: `Attention<BFloat16, 128, async>` for the kernel AttentionKernel.

    The names of bool parameters and of enumerators come from the text `source`."""
    name = demangled.replace("(anonymous namespace)::", "").removeprefix("void ")
    name = re.sub(r"\b\w+::", "", name)
    if not (found := re.match(r"(\w+)(<.*?>)?\(", name)):
        return demangled
    function, arguments = found[1], found[2]
    short = function.removesuffix("Kernel") or function
    if not arguments:
        return short
    words, flags = [], _flags(source).get(function, [])
    for i, word in enumerate(_split(arguments[1:-1])):
        flag = flags[i] if i < len(flags) else None
        if flag and word in ("true", "false"):
            flag = flag[0].lower() + flag[1:]
            word = flag if word == "true" else f"no {flag}"
        if found := re.fullmatch(r"\((\w+)\)(\d+)", word):
            word = _enumerator(found[1], int(found[2]), source)
        words.append(word)
    return f"{short}<{', '.join(words)}>"
