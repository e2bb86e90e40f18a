"""Puts and reads: the cases, the table, and docs/benchmarks.md."""

import dataclasses
import datetime

from .cluster import ROOT, bench, running, say
from .comparison import compare, environment

DOCUMENT = ROOT / "docs" / "benchmarks.md"


@dataclasses.dataclass(frozen=True)
class Case:
    """One run of the load generator. `floor` is the least throughput ratio that we accept."""

    name: str
    arguments: tuple
    floor: float


# One client has one connection, so it goes to the leader, whichever member that is; more clients are
# spread evenly over all members. Reads find their keys there: see PREFILL.
CASES = (
    Case("put, 1 client", ("put", "--clients", "1", "--conns", "1", "--target-leader", "--total", "2000"), 1.0),
    Case("put, 64 clients", ("put", "--clients", "64", "--conns", "9", "--total", "30000"), 1.0),
    Case("put, 256 clients", ("put", "--clients", "256", "--conns", "18", "--total", "60000"), 1.0),
    Case("linearizable get", ("get", "--prefill", "0", "--clients", "64", "--conns", "9", "--total", "60000"), 1.3),
    Case("serializable get", ("get-serializable", "--prefill", "0", "--clients", "64", "--conns", "9", "--total", "90000"), 1.3),
    Case("range of 1,000 keys", ("range", "--prefill", "0", "--clients", "12", "--conns", "6", "--total", "3000"), 1.5),
)
# Writes the whole key space, 10,000 keys of 256 bytes, and checks by a few ranges that it is there.
PREFILL = ("range", "--total", "50")


@dataclasses.dataclass(frozen=True)
class Measured:
    per_second: float
    p50_ms: float
    p99_ms: float
    cpu_s_per_1000: float


def measure(cluster, case):
    before = cluster.cpu_s()
    result = bench(cluster, case.arguments)
    cluster.check_alive()
    spent = cluster.cpu_s() - before
    latency = result["latency_ms"]
    return Measured(
        per_second=result["ops_per_second"],
        p50_ms=latency["p50"],
        p99_ms=latency["p99"],
        cpu_s_per_1000=spent / result["operations"] * 1000,
    )


def run_round(system, options):
    """All cases against one fresh cluster: a result for each case, and the peak RSS of a member."""
    with running(system, options.members, options.directory) as cluster:
        bench(cluster, PREFILL)
        results = {}
        for case in options.cases:
            results[case.name] = measure(cluster, case)
            one = results[case.name]
            say(f"  {system:8} {case.name:20} {one.per_second:9.0f}/s  p50 {one.p50_ms:7.2f} ms  p99 {one.p99_ms:7.2f} ms"
                f"  cpu {one.cpu_s_per_1000:6.3f} s/1000")
        return results, cluster.peak_rss_mb()


def table(pairs, cases):
    rows = [
        "| case | what | etcd | Meerkat | Meerkat / etcd | spread | floor |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]

    def row(case, what, compared, form, floor):
        theirs, ours, ratio, low, high = compared
        rows.append(f"| {case} | {what} | {theirs:{form}} | {ours:{form}} | **{ratio:.2f}** | {low:.2f} to {high:.2f} | {floor} |")

    for case in cases:
        def pick(field, name=case.name):
            return lambda one: getattr(one[0][name], field)
        p99_floor = "at most 1" if case.arguments[0] == "put" else ""
        row(case.name, "operations per second", compare(pairs, pick("per_second")), ",.0f", f"at least {case.floor:g}")
        row("", "p50, ms", compare(pairs, pick("p50_ms")), ".2f", "")
        row("", "p99, ms", compare(pairs, pick("p99_ms")), ".2f", p99_floor)
        row("", "member CPU seconds per 1,000", compare(pairs, pick("cpu_s_per_1000")), ".3f", "at most 1")
    row("whole round", "peak RSS of a member, MiB", compare(pairs, lambda one: one[1]), ".0f", "at most 1")
    return "\n".join(rows)


def report(options, pairs):
    command = "scripts/bench-vs-etcd" + (f" --pairs {options.pairs}" if options.pairs != 7 else "")
    return "\n".join([
        "# Meerkat beside etcd",
        "",
        "Written by `scripts/bench-vs-etcd`; run it again rather than editing this file.",
        "Watches have a page of their own, [benchmarks-watch.md](benchmarks-watch.md), and so have leases, "
        "[benchmarks-leases.md](benchmarks-leases.md).",
        "",
        f"{datetime.date.today().isoformat()}, by `{command}`:",
        "",
        *environment(options.directory),
        f"- {options.members} members of each on loopback, default flags, never both at once; "
        f"pairs of rounds: {len(pairs)}, etcd and Meerkat in turn, each on a fresh data directory",
        "- 10,000 keys of 16 bytes with values of 256; all are there before anything is measured",
        "",
        table(pairs, options.cases),
        "",
        "Medians over the pairs. A ratio is taken within a pair; the spread is the lowest and the highest of them.",
        "Above 1 is better for operations per second; below 1 is better for everything else.",
        "The floor is what this version must reach, not what it aims for.",
        "",
        "What each case runs:",
        "",
        *[f"- {case.name}: `meerkat bench {' '.join(case.arguments)}`" for case in options.cases],
        "",
    ])


def run(options):
    """Measures and prints. The floors are in the table, for the reader to judge."""
    pairs = []
    for number in range(1, options.pairs + 1):
        say(f"pair {number} of {options.pairs}")
        pairs.append((run_round("etcd", options), run_round("meerkat", options)))
    text = report(options, pairs)
    print(text)
    if options.writes_document:
        DOCUMENT.write_text(text)
        say(f"wrote {DOCUMENT.relative_to(ROOT)}")
