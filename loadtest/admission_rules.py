#!/usr/bin/env python3
"""Compares rules for the admission and order of calls that may wait for different times.

    loadtest/admission_rules.py --trace azure2023_conv.csv --out rules.json --table rules.md

Runs a model of one device on virtual time: a step takes up to --step-tokens tokens and lasts a
fixed time plus a time per token. Half of the callers send calls with a deadline of 1 s (short), and
half send calls with a deadline of 60 s (long). All callers are identified. The rules:

- max_wait: the order of arrival in fair turns. A call is refused if the queue needs longer than
  0.9 s and the call may wait for longer than that.
- deadline: the earliest deadline first. A call is refused if the work that is due before it would
  make it late.
- deadline in turn: callers take turns, and the earliest deadline of a caller is first in its turn.
- two bounds: the order of max_wait. A long call is refused only if the whole queue needs longer
  than its deadline allows.
- classes: the order of max_wait, with the short and the long calls of a caller as two callers.
- backlog: max_wait, but a long call that would be refused waits outside the queue. It enters the
  queue in the place of a later long call that would be admitted, or when the queue holds less than
  a step. The earliest deadline of each caller enters first, in fair turns. A long call is refused
  if the share of the device that the backlog has is too small for its deadline.

Each rule sees the same calls. The measured time begins after two minutes, when an overload is
steady. "greedy" is Poisson arrivals in which one caller of each kind sends ten times as many calls
as each other caller; the figures are those of the others. "max_wait" is the rule before the
backlog was added. sluice-simulate --patience runs the daemon's own code for the first and the last
of these rules.
"""

import argparse
import collections
import csv
import heapq
import itertools
import math
import pathlib
import random
import statistics

import reporting

MAX_WAIT = 0.9  # 1 s times the share of the default priority
SHORT, LONG = 1.0, 60.0
# A forecast may be wrong by this factor.
MARGIN = 1.2
# A long call waits only if its forecast times this factor is within its deadline.
DEFER_MARGIN = 1.5
DRAIN_SECONDS = 10.0
RULES = ("max_wait", "deadline", "deadline in turn", "two bounds", "classes", "backlog")


class Call:
    def __init__(self, arrival, tokens, caller, slack):
        self.arrival, self.tokens, self.caller, self.slack = arrival, tokens, caller, slack
        self.left, self.deadline = tokens, arrival + slack
        self.turn = arrival  # virtual arrival in the order of fair turns
        self.end = None      # None until it has ended in time
        self.refused = False


class Turns:
    """Virtual arrivals that give each flow an equal share (start-time fair queueing)."""

    def __init__(self):
        self.now, self.until = 0.0, {}

    def arrive(self, call, flow, seconds, at, idle):
        if idle:
            self.now = max(self.now, at)
        call.turn = max(self.now, self.until.get(flow, 0.0))
        self.until[flow] = call.turn + seconds

    def take(self, call):
        self.now = max(self.now, call.turn)


class Device:
    """Runs the calls by one rule."""

    def __init__(self, rule, options):
        self.rule, self.options = rule, options
        self.rate = options.step_tokens / (options.step_tokens * options.token_s + options.fixed_s)
        self.queue, self.turns = [], Turns()
        self.backlog, self.service = [], collections.Counter()
        # The device's share that the backlog gets: a mean that decays by DRAIN_SECONDS.
        self.drain, self.drained_at = 1.0, 0.0

    def seconds(self, calls):
        return sum(call.left for call in calls) / self.rate

    def flow(self, call):
        return (call.caller, call.slack > MAX_WAIT * 1.2) if self.rule == "classes" else call.caller

    def enqueue(self, call, now):
        self.turns.arrive(call, self.flow(call), call.tokens / self.rate, now, not self.queue)
        self.queue.append(call)

    def reaches(self, call, ahead, now):
        return MARGIN * (self.seconds(ahead) + call.tokens / self.rate) <= call.deadline - now

    def has_room(self, call):
        """max_wait's test, with its fair shares of the wait among the callers."""
        wait = self.seconds(self.queue)
        if wait > MAX_WAIT:
            return False
        own = self.seconds(other for other in self.queue if other.caller == call.caller)
        return own * 0.05 <= 0.95 * (MAX_WAIT - wait)

    def admit(self, call, now):
        due = [other for other in self.queue if other.deadline <= call.deadline]
        long = call.slack > SHORT
        if self.rule == "deadline":
            return self.reaches(call, due, now) and not self.enqueue(call, now)
        if self.rule == "deadline in turn":
            own = [other for other in due if other.caller == call.caller]
            callers = len({other.caller for other in self.queue} | {call.caller})
            ahead = min(self.seconds(own) * callers, self.seconds(self.queue))
            on_time = MARGIN * (ahead + call.tokens / self.rate) <= call.deadline - now
            return on_time and not self.enqueue(call, now)
        if not self.reaches(call, due, now):
            return False
        if self.rule == "two bounds" and long:
            return self.reaches(call, self.queue, now) and not self.enqueue(call, now)
        if self.rule == "classes":
            same = [other for other in self.queue if (other.slack > SHORT) == long]
            wait = self.seconds(same) * (1 if len(same) == len(self.queue) else 2)
            fits = wait <= (LONG / MARGIN if long else MAX_WAIT)
            return fits and not self.enqueue(call, now)
        room = self.has_room(call)
        if self.rule == "backlog" and long and (self.backlog or not room):
            if room:
                self.promote(now)
            self.decay(now)
            due = [other for other in self.backlog if other.deadline <= call.deadline]
            own = [other for other in due if other.caller == call.caller]
            callers = len({other.caller for other in self.backlog} | {call.caller})
            ahead = min(self.seconds(own) * callers, self.seconds(self.backlog))
            seconds = MAX_WAIT + (ahead + call.tokens / self.rate) / max(self.drain, 1e-3)
            if DEFER_MARGIN * seconds > call.deadline - now:
                return False
            self.backlog.append(call)
            return True
        return room and not self.enqueue(call, now)

    def decay(self, now):
        if not self.backlog:
            self.drain = 1.0
        self.drain *= math.exp((self.drained_at - now) / DRAIN_SECONDS)
        self.drained_at = now

    def promote(self, now):
        self.decay(now)
        call = min(self.backlog, key=lambda one: (self.service[one.caller], one.deadline))
        self.backlog.remove(call)
        self.service[call.caller] += call.tokens
        self.drain += call.tokens / self.rate / DRAIN_SECONDS
        self.enqueue(call, now)

    def ordered(self, now):
        if self.rule == "deadline":
            return sorted(self.queue, key=lambda call: call.deadline)
        if self.rule == "deadline in turn":
            own = collections.defaultdict(list)
            for call in sorted(self.queue, key=lambda call: call.deadline):
                own[call.caller].append(call)
            heap = [(self.service[caller], caller) for caller in own]
            heapq.heapify(heap)
            order = []
            while heap:
                service, caller = heapq.heappop(heap)
                order.append(own[caller].pop(0))
                if own[caller]:
                    heapq.heappush(heap, (service + order[-1].left, caller))
            return order
        soon = now + 2 * self.options.step_tokens / self.rate
        urgent = sorted((call for call in self.queue if call.deadline <= soon),
                        key=lambda call: call.deadline)[:64]
        chosen = set(map(id, urgent))
        return urgent + sorted((call for call in self.queue if id(call) not in chosen),
                               key=lambda call: call.turn)

    def step(self, now):
        """Runs one step and returns its end, or None if there is nothing to run."""
        self.queue = [call for call in self.queue if call.deadline > now]
        self.backlog = [call for call in self.backlog
                        if call.deadline > now + MARGIN * (MAX_WAIT + call.tokens / self.rate)]
        while self.backlog and sum(c.left for c in self.queue) < self.options.step_tokens:
            self.promote(now)
        room, taken = self.options.step_tokens, []
        full = now + self.options.fixed_s + room * self.options.token_s
        for call in self.ordered(now):
            if room == 0:
                break
            if call.deadline < full or call.left > room:
                continue  # it would be late, or it does not fit
            part = call.left
            room -= part
            taken.append((call, part))
        if not taken:
            return None
        end = now + self.options.fixed_s + (self.options.step_tokens - room) * self.options.token_s
        if self.rule == "deadline in turn":
            for call, part in taken:
                self.service[call.caller] += part
        self.turns.take(min((call for call, _ in taken), key=lambda call: call.turn))
        for call, part in taken:
            call.left -= part
            if call.left == 0:
                self.queue.remove(call)
                call.end = end if end <= call.deadline else None
        return end

    def run(self, calls):
        now, coming = 0.0, collections.deque(calls)
        while coming or self.queue or self.backlog:
            while coming and coming[0].arrival <= now:
                call = coming.popleft()
                call.refused = not self.admit(call, now) and call not in self.queue
            end = self.step(now)
            if end is not None:
                now = end
            else:  # Every waiting call would be late, or nothing waits.
                times = [call.deadline for call in self.queue + self.backlog]
                times += [call.arrival for call in itertools.islice(coming, 1)]
                now = max(now, min(times)) if times else now


def make_calls(workload, load, options, rate, weights, random_):
    """Makes the calls of options.seconds, so that all of them together have `load`. A caller's
    share of the calls is in proportion to its weight.
    """
    lengths, gaps = workload
    scale = sum(lengths) / rate / load / sum(gaps)
    calls, now = [], 0.0
    callers = range(options.callers)
    for length, gap in zip(itertools.cycle(lengths), itertools.cycle(gaps)):
        now += gap * scale
        if now > options.seconds:
            return calls
        caller = random_.choices(callers, weights)[0]
        calls.append(Call(now, length, caller, LONG if caller % 2 else SHORT))


def quantile(values, share):
    return sorted(values)[min(int(share * len(values)), len(values) - 1)] if values else 0.0


def measure(calls, rate, greedy):
    """Measures from twice the long deadline on, when the overload is steady, until the last call
    arrives.
    """
    begin, end = 2 * LONG, calls[-1].arrival
    span = end - begin
    figures = {}
    for name, slack in (("short", SHORT), ("long", LONG)):
        own = [call for call in calls if call.slack == slack and call.caller not in greedy
               and begin <= call.deadline <= end]
        good = [call for call in own if call.end is not None]
        callers = collections.Counter()
        for call in good:
            callers[call.caller] += call.tokens
        shares = [callers[caller] for caller in {call.caller for call in own}]
        squares = len(shares) * sum(share ** 2 for share in shares)
        figures[name] = {
            "goodput": sum(call.tokens for call in good) / rate / span,
            "answered": len(good) / len(own),
            "refused": sum(call.refused for call in own) / len(own),
            "p99_s": quantile([call.end - call.arrival for call in good], 0.99),
            "fairness": sum(shares) ** 2 / squares if squares else 0.0}
    return figures


def make_workload(name, options, random_):
    """Returns lengths and gaps, which are repeated as often as necessary."""
    if name == "trace":
        with options.trace.open() as trace:
            rows = [(float(row["arrival_s"]), int(row["input_tokens"]))
                    for row in csv.DictReader(trace)]
        lengths = [min(tokens, options.step_tokens) for _, tokens in rows]
        times = [at for at, _ in rows]
        return lengths, [after - before for before, after in zip([0.0, *times], times)]
    lengths = [min(max(round(random_.lognormvariate(6.0, 0.7)), 8), options.step_tokens)
               for _ in range(20_000)]
    if name == "bursty":  # four fifths of the calls in a fifth of the time
        rates = itertools.cycle([4.0] * 400 + [0.25] * 100)
        return lengths, [random_.expovariate(next(rates)) for _ in lengths]
    return lengths, [random_.expovariate(1.0) for _ in lengths]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=pathlib.Path, help="CSV: arrival_s,input_tokens,...")
    parser.add_argument("--seconds", type=float, default=480, help="of arrivals")
    parser.add_argument("--arrivals", nargs="+", default=["poisson", "bursty", "greedy", "trace"])
    parser.add_argument("--callers", type=int, default=8)
    parser.add_argument("--step-tokens", type=int, default=1024)
    parser.add_argument("--fixed-s", type=float, default=0.004)
    parser.add_argument("--token-s", type=float, default=150e-6)
    parser.add_argument("--loads", type=float, nargs="+", default=[0.5, 1.0, 2.0, 4.0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rules", nargs="+", default=RULES)
    reporting.add_options(parser)
    options = parser.parse_args()
    rows = []
    for name in options.arrivals:
        weights = [1.0] * options.callers
        if name == "greedy":
            weights[0] = weights[1] = 10.0
        for load in options.loads:
            for rule in options.rules:
                seeds = []
                for seed in range(1, options.seeds + 1):
                    random_ = random.Random(f"{name} {seed}")
                    device = Device(rule, options)
                    calls = make_calls(make_workload(name, options, random_), load, options,
                                       device.rate, weights, random_)
                    device.run(calls)
                    seeds.append(measure(calls, device.rate,
                                         (0, 1) if name == "greedy" else ()))
                rows.append({"arrivals": name, "load": load, "rule": rule} | {
                    kind: {key: statistics.median(one[kind][key] for one in seeds)
                           for key in seeds[0][kind]} for kind in ("short", "long")})
    report = reporting.heading("admission_rules") | {
        "options": reporting.options_of(options), "rows": rows}
    lines = ["| arrivals | load | rule | short: goodput | p99, s | fairness | "
             "long: goodput | p99, s | fairness | refused | late |",
             "|---|---|---|---|---|---|---|---|---|---|---|"]
    for row in rows:
        short, long = row["short"], row["long"]
        late = 1 - long["answered"] - long["refused"]
        lines.append(
            f"| {row['arrivals']} | {row['load']:g} | {row['rule']} | {short['goodput']:.3f} | "
            f"{short['p99_s']:.3f} | {short['fairness']:.3f} | {long['goodput']:.3f} | "
            f"{long['p99_s']:.2f} | {long['fairness']:.3f} | {long['refused']:.3f} | {late:.3f} |")
    reporting.write(options, report, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
