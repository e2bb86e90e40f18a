"""A cluster of real member processes on this machine, and what it costs.

Ends only the processes it started, and removes only the directory it made. Every wait has an end.
"""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
MEERKAT = TARGET / "release" / "meerkat"
ETCD_DIR = pathlib.Path(os.environ.get("ETCD_BIN_DIR", ROOT / ".tools" / "etcd"))
SYSTEMS = {"etcd": [str(ETCD_DIR / "etcd")], "meerkat": [str(MEERKAT), "serve"]}
READY_S = 30
STOP_S = 15
CASE_S = 300


def say(text):
    print(f"bench: {text}", file=sys.stderr, flush=True)


def fail(text):
    sys.exit(f"bench: error: {text}")


class Cluster:
    """Member processes on loopback, in one throw-away directory."""

    def __init__(self, command, members, directory):
        self.directory = directory
        ports = free_ports(2 * members)
        self.clients = [f"http://127.0.0.1:{port}" for port in ports[:members]]
        peers = [f"http://127.0.0.1:{port}" for port in ports[members:]]
        initial = ",".join(f"m{index}={peer}" for index, peer in enumerate(peers))
        self.processes = []
        for index, (client, peer) in enumerate(zip(self.clients, peers)):
            flags = [
                "--name", f"m{index}",
                "--data-dir", str(directory / f"m{index}"),
                "--listen-client-urls", client,
                "--advertise-client-urls", client,
                "--listen-peer-urls", peer,
                "--initial-advertise-peer-urls", peer,
                "--initial-cluster", initial,
                "--initial-cluster-state", "new",
                "--log-level", "warn",
            ]
            log = open(directory / f"m{index}.log", "wb")
            self.processes.append(subprocess.Popen([*command, *flags], stdout=log, stderr=log))
            log.close()

    def wait_ready(self):
        deadline = time.monotonic() + READY_S
        for index, client in enumerate(self.clients):
            while not healthy(client):
                if self.processes[index].poll() is not None:
                    fail(f"member {index} ended by itself:\n{self.log_tail(index)}")
                if deadline < time.monotonic():
                    fail(f"member {index} is not healthy after {READY_S} s:\n{self.log_tail(index)}")
                time.sleep(0.05)

    def log_tail(self, index):
        lines = (self.directory / f"m{index}.log").read_text(errors="replace").splitlines()
        return "\n".join(lines[-10:])

    def pids(self):
        return ",".join(str(process.pid) for process in self.processes)

    def cpu_s(self):
        return sum(cpu_s(process.pid) for process in self.processes)

    def peak_rss_mb(self):
        return max(peak_rss_mb(process.pid) for process in self.processes)

    def check_alive(self):
        for index, process in enumerate(self.processes):
            if process.poll() is not None:
                fail(f"member {index} died under load:\n{self.log_tail(index)}")

    def stop(self):
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextlib.contextmanager
def running(system, members, parent):
    """A ready cluster in a fresh directory, gone with the directory at the end."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="bench-", dir=parent))
    cluster = Cluster(SYSTEMS[system], members, directory)
    try:
        cluster.wait_ready()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(directory)


def free_ports(count):
    """Ports that nobody listens on; all are held until all are known."""
    with contextlib.ExitStack() as held:
        listeners = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [listener.getsockname()[1] for listener in listeners]


def healthy(client):
    try:
        with urllib.request.urlopen(f"{client}/health", timeout=2) as answer:
            return json.load(answer).get("health") in ("true", True)
    except (OSError, ValueError):
        return False


def cpu_s(pid):
    # Fields 14 and 15 of the whole line; the name in parentheses may hold spaces.
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_rss_mb(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


def bench(cluster, arguments):
    """Runs the load generator and gives back its JSON."""
    command = [str(MEERKAT), "bench", *arguments, "--endpoints", ",".join(cluster.clients), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=CASE_S)
    if done.returncode != 0:
        fail(f"{' '.join(command)} failed:\n{done.stderr}{done.stdout}")
    result = json.loads(done.stdout)
    if result["errors"]:
        fail(f"{' '.join(arguments)} had errors: {result['errors']}")
    return result
