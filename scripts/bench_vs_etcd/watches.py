"""Watchers: the cases, the floors, the verdict, and docs/benchmarks-watch.md.

A figure counts only if every watcher got exactly the events it was owed: `meerkat bench` fails
otherwise, and with it the whole run.
"""

import dataclasses
import datetime
import statistics
import sys
import time

from .cluster import ROOT, bench, running, say
from .comparison import compare, environment

DOCUMENT = ROOT / "docs" / "benchmarks-watch.md"

# Pairs of put runs with and without watchers: fewer cannot tell a cost from the run-to-run spread.
UNRELATED_PAIRS_MIN = 7
# After a run its watchers are being closed, which is not what the next run is to measure.
PAUSE_S = 1.0


@dataclasses.dataclass(frozen=True)
class Figure:
    """One number of a result, and the ratio to etcd's that it must keep, if any."""

    label: str
    path: str
    form: str
    at_least: float = None
    at_most: float = None

    def of(self, result):
        for name in self.path.split("."):
            result = result[name]
        return result

    def floor(self):
        if self.at_least is not None:
            return f"at least {self.at_least:g}"
        return f"at most {self.at_most:.3g}" if self.at_most is not None else ""

    def holds(self, ratio):
        if self.at_least is not None:
            return ratio >= self.at_least
        return self.at_most is None or ratio <= self.at_most


@dataclasses.dataclass(frozen=True)
class Case:
    """Runs of the load generator against either system. Each figure is the median of the repeats."""

    name: str
    arguments: tuple
    figures: tuple
    repeats: int = 1
    # The same puts with no watcher at all, whose CPU is taken off in `NET_OF_PUTS`.
    puts_alone: tuple = ()
    # Rounds that have this case, for one that takes minutes and whose ratio is far from its floor.
    pairs_max: int = sys.maxsize


THIRD = 1 / 3
PER_EVENT = Figure("member CPU seconds per 1,000 deliveries", "deliveries.member_cpu_s_per_1000", ".5f", at_most=THIRD)
NET_OF_PUTS = Figure("the same, less that of the puts alone", "deliveries.net_cpu_s_per_1000", ".5f", at_most=THIRD)
NET_OF_PUTS_TOLD = dataclasses.replace(NET_OF_PUTS, at_most=None)
PER_EVENT_TOLD = dataclasses.replace(PER_EVENT, at_most=None)
GENERATOR = Figure("generator CPU seconds per 1,000 deliveries", "deliveries.generator_cpu_s_per_1000", ".5f")
DELIVERED = Figure("deliveries per second", "deliveries.per_second", ",.0f", at_least=2)
DELIVERED_TOLD = dataclasses.replace(DELIVERED, at_least=None)
PUTS = Figure("puts per second", "puts.per_second", ",.0f")
P50 = Figure("put to event, p50, ms", "deliveries.latency_ms.p50", ".2f")
P99 = Figure("put to event, p99, ms", "deliveries.latency_ms.p99", ".2f", at_most=1)
P99_TOLD = dataclasses.replace(P99, at_most=None)
CREATED = Figure("watchers created per second", "creation.per_second", ",.0f", at_least=2)
MEMORY = Figure("bytes of all members per watcher", "members.rss_bytes_per_watcher", ",.0f", at_most=0.5)
CAUGHT_UP = Figure("events per second", "deliveries.per_second", ",.0f", at_least=10)
CAUGHT_UP_S = Figure("seconds until level", "deliveries.seconds", ".2f")


def fan_out(watchers, *arguments):
    return ("watch-fanout", "--watchers", str(watchers), "--settle", "0s", *arguments)


def steady(name, watchers, rate, *layout, floors=True):
    """Fan-out at a rate that leaves either system time to spare.

    So few puts are made that a put, dear when it comes alone, weighs as much as its deliveries: the floor
    is on what the deliveries add. At saturation puts weigh little, and the floor is on the whole.
    """
    pace = ("--rate", str(rate), "--duration", "4s")
    figures = (PER_EVENT_TOLD, NET_OF_PUTS, P50, P99, GENERATOR)
    if not floors:
        figures = (PER_EVENT_TOLD, NET_OF_PUTS_TOLD, P50, P99_TOLD, GENERATOR)
    return Case(name, fan_out(watchers, *layout, *pace), figures, puts_alone=("watch-many", "--watchers", "0", "--settle", "0s", *pace))


# In this order in each round. Memory comes first, on a cluster that has done nothing yet: a heap that was
# once large has room for many watchers. Catch-up comes last, since it fills the store.
CASES = (
    Case("10,000 idle watchers", ("watch-many", "--watchers", "10000", "--settle", "4s"), (MEMORY,)),
    Case("creating 10,000 watchers", ("watch-many", "--watchers", "10000", "--settle", "0s"), (CREATED,), repeats=5),
    Case(
        "creating 10,000 watchers, one at a time per stream",
        ("watch-many", "--watchers", "10000", "--one-at-a-time", "--settle", "0s"),
        (CREATED,),
        repeats=5,
    ),
    steady("fan-out to 1,000, equal load", 1000, 50),
    Case("fan-out to 1,000, saturated", fan_out(1000, "--total", "1000"), (DELIVERED, PER_EVENT, PUTS, GENERATOR)),
    steady("fan-out to 2,000, equal load", 2000, 25),
    Case("fan-out to 2,000, saturated", fan_out(2000, "--total", "500"), (DELIVERED, PER_EVENT, PUTS, GENERATOR)),
    steady("fan-out to 1,000, a stream each, equal load", 1000, 50, "--streams", "1000", floors=False),
    Case(
        "fan-out to 1,000, a stream each, saturated",
        fan_out(1000, "--streams", "1000", "--total", "1000"),
        (DELIVERED_TOLD, PER_EVENT_TOLD, PUTS, GENERATOR),
    ),
    Case(
        "catch-up of 200,000 events",
        ("watch-catchup", "--total", "200000", "--conns", "18", "--settle", "0s"),
        (CAUGHT_UP, CAUGHT_UP_S, PER_EVENT_TOLD),
        pairs_max=3,
    ),
)
UNRELATED = ("watch-many", "--total", "20000", "--clients", "64", "--conns", "9")
UNRELATED_WATCHERS = "10000"
CROWD = ("watch-latency", "--watchers", "100000", "--rate", "200", "--duration", "5s", "--settle", "4s")


def run_bench(cluster, arguments):
    result = bench(cluster, (*arguments, "--pids", cluster.pids(), "--timeout", "30s"))
    cluster.check_alive()
    time.sleep(PAUSE_S)
    return result


def measure(cluster, case):
    """The figures of a case, by label."""
    puts_alone_s = 0.0
    if case.puts_alone:
        puts_alone_s = run_bench(cluster, case.puts_alone)["members"]["load_cpu_s"]
    results = [run_bench(cluster, case.arguments) for _ in range(case.repeats)]
    for result in results:
        if "deliveries" in result:
            net_s = result["members"]["load_cpu_s"] - puts_alone_s
            result["deliveries"]["net_cpu_s_per_1000"] = net_s * 1000 / result["deliveries"]["received"]
    return {figure.label: statistics.median(figure.of(result) for result in results) for figure in case.figures}


def run_round(system, number, options):
    """The figures of all cases that this round has, on one fresh cluster."""
    with running(system, options.members, options.directory) as cluster:
        measured = {}
        for case in options.cases:
            if number > case.pairs_max:
                continue
            measured[case.name] = measure(cluster, case)
            told = "  ".join(f"{figure.label} {measured[case.name][figure.label]:{figure.form}}" for figure in case.figures)
            say(f"  {system:8} {case.name}: {told}")
        return measured


def unrelated_puts(options):
    """Put throughput of Meerkat without and with watchers of other keys, in pairs on one cluster."""
    pairs = []
    with running("meerkat", options.members, options.directory) as cluster:
        # The first run also warms the cluster up, for either.
        bench(cluster, (*UNRELATED, "--watchers", "0"))
        for number in range(max(options.pairs, UNRELATED_PAIRS_MIN)):
            pair = {}
            # Turn and turn about, so that neither is always the later one.
            for watchers in ("0", UNRELATED_WATCHERS) if number % 2 == 0 else (UNRELATED_WATCHERS, "0"):
                pair[watchers] = bench(cluster, (*UNRELATED, "--watchers", watchers))["puts"]["per_second"]
                cluster.check_alive()
                time.sleep(PAUSE_S)
            pairs.append((pair["0"], pair[UNRELATED_WATCHERS]))
            say(f"  meerkat  puts per second without watchers {pair['0']:,.0f}, with them {pair[UNRELATED_WATCHERS]:,.0f}")
    return pairs


def crowd(options):
    """A hundred thousand watchers on one member of Meerkat, as lines for the document."""
    with running("meerkat", 1, options.directory) as cluster:
        result = bench(cluster, (*CROWD, "--pids", cluster.pids(), "--timeout", "60s"))
    latency = result["deliveries"]["latency_ms"]
    lines = [
        f"{result['watchers']:,} watchers of different keys on {result['streams']} streams and "
        f"{result['watch_connections']} connections, then 200 puts per second to keys of theirs:",
        "",
        f"- created in {result['creation']['seconds']:.2f} s",
        f"- {result['members']['rss_bytes_per_watcher']:,.0f} bytes of the member per watcher",
        f"- put to event: p50 {latency['p50']:.2f} ms, p99 {latency['p99']:.2f} ms, highest {latency['max']:.2f} ms",
    ]
    say("  meerkat  " + "; ".join(lines[2:]))
    return lines


def table(pairs, cases):
    """The rows, and a sentence for each floor that was not reached."""
    rows = [
        "| case | what | etcd | Meerkat | Meerkat / etcd | spread | floor |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    missed = []
    for case in cases:
        name = case.name
        for figure in case.figures:
            theirs, ours, ratio, low, high = compare(
                pairs[: case.pairs_max], lambda one: one[case.name][figure.label]
            )
            rows.append(
                f"| {name} | {figure.label} | {theirs:{figure.form}} | {ours:{figure.form}} | **{ratio:.2f}** "
                f"| {low:.2f} to {high:.2f} | {figure.floor()} |"
            )
            if not figure.holds(ratio):
                missed.append(f"{case.name}: {figure.label} is {ratio:.2f} of etcd's, and should be {figure.floor()}")
            name = ""
    return rows, missed


def unrelated_verdict(pairs):
    """Lines for the document, and a sentence if watchers of other keys cost puts something."""
    without = [one for one, _ in pairs]
    beside = [other for _, other in pairs]
    ratios = [other / one for one, other in pairs]
    lines = [
        "| puts per second of Meerkat | lowest | median | highest |",
        "|---|---:|---:|---:|",
        f"| without watchers | {min(without):,.0f} | {statistics.median(without):,.0f} | {max(without):,.0f} |",
        f"| beside {int(UNRELATED_WATCHERS):,} watchers of other keys | {min(beside):,.0f} | {statistics.median(beside):,.0f} | {max(beside):,.0f} |",
        "",
        f"{len(pairs)} interleaved pairs on one cluster; the ratio within a pair is {min(ratios):.2f} to {max(ratios):.2f}, "
        f"its median **{statistics.median(ratios):.2f}**.",
        "Floor: the median beside watchers is not below the lowest without.",
    ]
    missed = []
    if statistics.median(beside) < min(without):
        missed.append(
            f"unrelated watchers: {statistics.median(beside):,.0f} puts per second, below the lowest of the runs without, {min(without):,.0f}"
        )
    return lines, missed


def verdict(missed):
    if not missed:
        return ["Every floor is reached."]
    return ["Floors that are not reached:", "", *[f"- {sentence}" for sentence in missed]]


def case_line(case, pairs):
    line = f"- {case.name}: `meerkat bench {' '.join(case.arguments)}`"
    if case.repeats > 1:
        line += f", {case.repeats} times a round"
    if case.pairs_max < pairs:
        line += f", in the first {case.pairs_max} pairs"
    return line


def report(options, rows, sections, missed):
    command = "scripts/bench-vs-etcd watch" + (f" --pairs {options.pairs}" if options.pairs != 7 else "")
    lines = [
        "# Meerkat's watches beside etcd's",
        "",
        "Written by `scripts/bench-vs-etcd watch`; run it again rather than editing this file.",
        "",
        f"{datetime.date.today().isoformat()}, by `{command}`:",
        "",
        *environment(options.directory),
        f"- {options.members} members of each on loopback, default flags, never both at once; "
        f"pairs of rounds: {options.pairs}, etcd and Meerkat in turn, each on a fresh data directory",
        "- watchers are spread evenly over 100 gRPC streams, these over 30 connections, and these over all members, "
        "as clients do that keep many watchers on a stream; where a case says \"a stream each\", every watcher has a "
        "stream to itself, still on 30 connections",
        "- every watcher's events are counted and their revisions checked: a lost, repeated or misplaced event fails the run",
        "",
        *verdict(missed),
        "",
        *rows,
        "",
        "Medians over the pairs. A ratio is taken within a pair; the spread is the lowest and the highest of them.",
        "CPU is that of all members together, from the first put to the last delivery, puts included; "
        "the line below it takes off what the same puts cost when nobody watches.",
        "The generator shares the cores with the members, so at saturation the CPU per delivery is the fairer figure.",
        "Put to event counts from the moment a put was due to the moment the event was read, over all watchers.",
        "Memory is the growth of resident memory, with the streams and connections of the watchers.",
    ]
    for heading, section in sections.items():
        lines += ["", f"## {heading}", "", *section]
    lines += ["", "## What each case runs", ""]
    lines += [case_line(case, options.pairs) for case in options.cases]
    if sections:
        lines.append(f"- puts beside watchers: `meerkat bench {' '.join(UNRELATED)} --watchers {UNRELATED_WATCHERS}`")
        lines.append(f"- a crowd on one member: `meerkat bench {' '.join(CROWD)}`")
    return "\n".join([*lines, ""])


def run(options):
    """Measures, prints, writes, and exits with 1 if a floor is not reached."""
    pairs = []
    for number in range(1, options.pairs + 1):
        say(f"pair {number} of {options.pairs}")
        pairs.append((run_round("etcd", number, options), run_round("meerkat", number, options)))
    rows, missed = table(pairs, options.cases)
    sections = {}
    if not options.only:
        sections["Puts beside watchers of other keys"], cost = unrelated_verdict(unrelated_puts(options))
        missed += cost
        sections["A crowd on one member"] = crowd(options)
    text = report(options, rows, sections, missed)
    print(text)
    if options.writes_document:
        DOCUMENT.write_text(text)
        say(f"wrote {DOCUMENT.relative_to(ROOT)}")
    for sentence in missed:
        say(f"floor not reached: {sentence}")
    sys.exit(1 if missed else 0)
