"""Leases: the cases, the floors, the verdict, and docs/benchmarks-leases.md.

A figure counts only if no lease was lost on the way: `meerkat bench` fails otherwise, and with it the
whole run.
"""

import datetime
import statistics
import sys
import time

from .cluster import ROOT, bench, running, say
from .comparison import environment
from .watches import Case, Figure, PAUSE_S, case_line, table, verdict

DOCUMENT = ROOT / "docs" / "benchmarks-leases.md"

# Pairs of put runs with and without renewals: fewer cannot tell a cost from the run-to-run spread.
RENEWED_PAIRS_MIN = 7

PER_SECOND = Figure("per second", "ops_per_second", ",.0f", at_least=1)
PER_SECOND_TOLD = Figure("per second", "ops_per_second", ",.0f")
P50 = Figure("p50, ms", "latency_ms.p50", ".2f")
P99 = Figure("p99, ms", "latency_ms.p99", ".2f")
CPU = Figure("member CPU seconds per 1,000", "member_cpu_s_per_1000", ".4f", at_most=1)
CPU_TOLD = Figure("member CPU seconds per 1,000", "member_cpu_s_per_1000", ".4f")
FIGURES = (PER_SECOND, P50, P99, CPU)
FIGURES_TOLD = (PER_SECOND_TOLD, P50, P99, CPU_TOLD)


def keep_alive(name, *arguments, figures=FIGURES):
    return Case(name, ("lease-keepalive", "--duration", "4s", *arguments), figures)


# Streams are spread evenly over all members. One stream has one connection, so it goes to the leader, whichever
# member that is. Cases beyond those that must be as fast as etcd have no floor.
CASES = (
    keep_alive("keep-alive, 64 streams", "--clients", "64", "--conns", "9"),
    keep_alive("keep-alive, 512 streams", "--clients", "512", "--conns", "18"),
    keep_alive("keep-alive, 64 streams at the leader", "--clients", "64", "--conns", "9", "--target-leader", figures=FIGURES_TOLD),
    keep_alive("keep-alive, 3 streams, one at each member", "--clients", "3", "--conns", "3", figures=FIGURES_TOLD),
    # Told without a floor: each answer waits for a majority, and nothing shares its round.
    keep_alive("keep-alive, 1 stream at the leader", "--clients", "1", "--conns", "1", "--target-leader", figures=FIGURES_TOLD),
    Case("grant, 64 clients", ("lease-grant", "--clients", "64", "--conns", "9", "--total", "10000"), FIGURES),
)
RENEWED = ("lease-renewed-puts", "--leases", "100000", "--lease-ttl", "60", "--duration", "4s", "--clients", "64", "--conns", "9")


def run_bench(cluster, arguments):
    result = bench(cluster, (*arguments, "--pids", cluster.pids(), "--timeout", "30s"))
    cluster.check_alive()
    time.sleep(PAUSE_S)
    return result


def run_round(system, options):
    """The figures of all cases, on one fresh cluster."""
    with running(system, options.members, options.directory) as cluster:
        measured = {}
        for case in options.cases:
            result = run_bench(cluster, case.arguments)
            measured[case.name] = {figure.label: figure.of(result) for figure in case.figures}
            told = "  ".join(f"{figure.label} {measured[case.name][figure.label]:{figure.form}}" for figure in case.figures)
            say(f"  {system:8} {case.name}: {told}")
        return measured


def renewed_puts(options):
    """Puts of Meerkat in three conditions, as the load generator measured them in turn."""
    pairs = max(options.pairs, RENEWED_PAIRS_MIN)
    with running("meerkat", options.members, options.directory) as cluster:
        result = bench(cluster, (*RENEWED, "--pairs", str(pairs), "--pids", cluster.pids(), "--timeout", "30s"))
        cluster.check_alive()
    puts = result["puts"]
    for idle, renewed in zip(puts["idle"], puts["renewed"]):
        say(f"  meerkat  puts per second beside idle leases {idle['per_second']:,.0f}, beside renewed ones {renewed['per_second']:,.0f}")
    return puts


def spread(phases, name, form):
    values = [phase[name] for phase in phases]
    return f"{min(values):{form}} | {statistics.median(values):{form}} | {max(values):{form}}"


def renewed_verdict(puts):
    """Lines for the document, and a sentence if renewals cost puts more than the spread between runs."""
    idle, renewed = puts["idle"], puts["renewed"]
    ratios = [one["per_second"] / other["per_second"] for one, other in zip(renewed, idle)]
    rows = [("before there was a lease", puts["before"]), ("leases live, nobody renews", idle), ("leases renewed", renewed)]
    rate = statistics.median(phase["renewals_per_second"] for phase in renewed)
    per_1000 = [
        statistics.median(phase["member_cpu_s"] / phase["operations"] * 1000 for phase in phases) for phases in (idle, renewed)
    ]
    lines = [
        "100,000 leases of 60 s, each renewed every 20 s by 60 streams on 6 connections over all members, while 64 clients put.",
        "",
        "| puts of Meerkat | lowest /s | median /s | highest /s | lowest p99 | median p99, ms | highest p99 |",
        "|---|---:|---:|---:|---:|---:|---:|",
        *[f"| {name} | {spread(phases, 'per_second', ',.0f')} | {spread(phases, 'p99_ms', '.2f')} |" for name, phases in rows],
        "",
        f"{len(ratios)} interleaved pairs on one cluster, with and without {rate:,.0f} renewals per second; the ratio of the puts "
        f"within a pair is {min(ratios):.2f} to {max(ratios):.2f}, its median **{statistics.median(ratios):.2f}**.",
        f"Members' CPU seconds per 1,000 puts, renewals included: {per_1000[0]:.3f} without them, {per_1000[1]:.3f} with them.",
        f"A renewal was answered in {puts['renewals']['latency_ms']['p50']:.2f} ms (p50), {puts['renewals']['latency_ms']['p99']:.2f} ms (p99) "
        "after it was due.",
        "Floor: the median beside renewals is not below the lowest of the runs beside idle leases.",
    ]
    beside, lowest = statistics.median(phase["per_second"] for phase in renewed), min(phase["per_second"] for phase in idle)
    missed = []
    if beside < lowest:
        missed.append(f"renewed leases: {beside:,.0f} puts per second, below the lowest of the runs without renewals, {lowest:,.0f}")
    return lines, missed


def report(options, rows, section, missed):
    command = "scripts/bench-vs-etcd lease" + (f" --pairs {options.pairs}" if options.pairs != 7 else "")
    lines = [
        "# Meerkat's leases beside etcd's",
        "",
        "Written by `scripts/bench-vs-etcd lease`; run it again rather than editing this file.",
        "",
        f"{datetime.date.today().isoformat()}, by `{command}`:",
        "",
        *environment(options.directory),
        f"- {options.members} members of each on loopback, default flags, never both at once; "
        f"pairs of rounds: {options.pairs}, etcd and Meerkat in turn, each on a fresh data directory",
        "- 1,000 leases are granted beforehand, and a stream goes round its share of them; it renews one, waits for the "
        "answer, and renews the next",
        "- unless a case says otherwise, streams and clients are spread evenly over all members",
        "- every answer is checked: it must be for the lease that was asked for, and a lease that is lost fails the run",
        "",
        *verdict(missed),
        "",
        *rows,
        "",
        "Medians over the pairs. A ratio is taken within a pair; the spread is the lowest and the highest of them.",
        "CPU is that of all members together while the load ran.",
        "The generator shares the cores with the members, so at saturation the CPU per renewal is the fairer figure.",
        "",
        "Cases without a floor are told for what they show of the design.",
        "A renewal that etcd 3.5 answers is not confirmed by anybody: its leader answers from memory, deposed or not.",
        "Meerkat's leader answers only while a majority has confirmed it, and one stream that waits for each answer "
        "feels that most.",
    ]
    if section:
        lines += ["", "## Puts beside 100,000 leases that are renewed", "", *section]
    lines += ["", "## What each case runs", ""]
    lines += [case_line(case, options.pairs) for case in options.cases]
    if section:
        lines.append(f"- puts beside renewed leases: `meerkat bench {' '.join(RENEWED)} --pairs {max(options.pairs, RENEWED_PAIRS_MIN)}`")
    return "\n".join([*lines, ""])


def run(options):
    """Measures, prints, writes, and exits with 1 if a floor is not reached."""
    pairs = []
    for number in range(1, options.pairs + 1):
        say(f"pair {number} of {options.pairs}")
        pairs.append((run_round("etcd", options), run_round("meerkat", options)))
    rows, missed = table(pairs, options.cases)
    section = []
    if not options.only:
        section, cost = renewed_verdict(renewed_puts(options))
        missed += cost
    text = report(options, rows, section, missed)
    print(text)
    if options.writes_document:
        DOCUMENT.write_text(text)
        say(f"wrote {DOCUMENT.relative_to(ROOT)}")
    for sentence in missed:
        say(f"floor not reached: {sentence}")
    sys.exit(1 if missed else 0)
