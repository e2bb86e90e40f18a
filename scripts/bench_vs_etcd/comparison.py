"""What two systems did side by side: ratios within pairs, and where they were measured."""

import os
import pathlib
import platform
import statistics
import subprocess
import time

from .cluster import ETCD_DIR, ROOT


def compare(pairs, pick):
    """Median over pairs of etcd's value, of ours, and of the ratio within the pair; its spread.

    To a figure of etcd's that is not above zero there is no ratio, and none reaches any floor.
    """
    theirs = [pick(etcd) for etcd, _ in pairs]
    ours = [pick(meerkat) for _, meerkat in pairs]
    ratios = [our / their if their > 0 else float("nan") for our, their in zip(ours, theirs)]
    return statistics.median(theirs), statistics.median(ours), statistics.median(ratios), min(ratios), max(ratios)


def output_of(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, check=True).stdout.strip()


def sync_ms(directory):
    """What one small synced write costs on this disk: the median of 200."""
    path = pathlib.Path(directory) / "sync-probe"
    took = []
    with open(path, "wb", buffering=0) as file:
        for _ in range(200):
            file.write(b"x" * 512)
            started = time.monotonic()
            os.fdatasync(file.fileno())
            took.append((time.monotonic() - started) * 1000)
    path.unlink()
    return statistics.median(took)


def environment(directory):
    cpu = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    filesystem = output_of("stat", "--file-system", "--format", "%T", str(directory))
    return [
        f"- {os.cpu_count()} cores ({cpu}), {memory_gib:.0f} GiB of memory, Linux {platform.release()}; "
        "members and load generator share them",
        f"- data on {filesystem}, where a synced write of 512 bytes takes {sync_ms(directory):.2f} ms",
        f"- {output_of(str(ETCD_DIR / 'etcd'), '--version').splitlines()[0]}; Meerkat at commit {output_of('git', 'rev-parse', '--short', 'HEAD')}",
    ]
