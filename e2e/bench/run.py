#!/usr/bin/env python3
"""The driver of `make bench`: starts engines and proxies, measures them in turn, and writes the report."""

import argparse
import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path

sys.dont_write_bytecode = True  # the modules lie in the repository

import cluster  # noqa: E402
import report  # noqa: E402
import servers  # noqa: E402
import shared  # noqa: E402
import tokens  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]

# What is measured without a network; `--only` takes these names beside those of targets.
PARTS = ("tokens", "decision", "index", "redis", "cluster", "demo")

# Between two chunks of a stream. Requests for one token see nothing of it.
DECODE_US = 10_000


class Row:
    """One kind of work."""

    def __init__(self, name, title, flags, seconds, most=None, unit="request", needs=None, sink=False, only=None):
        self.name, self.title, self.flags, self.unit = name, title, flags, unit
        self.seconds, self.most, self.needs, self.sink, self.only = seconds, most, needs, sink, only


def rows(quick):
    short = 1.0 if quick else 4.0
    conversations = 25 if quick else 120
    small = ["--bytes=900", "--message-bytes=450", "--max-tokens=1"]
    long = ["--bytes=80000", "--turn-bytes=1000", "--max-tokens=1", "--stream"]
    large = ["--bytes=220000", "--max-tokens=1", "--stream", "--clients=150"]
    # The same again where engines cost next to nothing and publish nothing: what is added to an answer's time is seen
    # best there, and what live events cost is the difference.
    apart = ("direct", "hop", "kvasir", "kvasir-kv")
    return [
        Row("small-1", "small chat (1 KB, not streamed), 1 client", [*small, "--clients=1"], short),
        Row("small-32", "small chat (1 KB, not streamed), 32 clients", [*small, "--clients=32"], short),
        Row("new", "the same, a new connection for each request, 8 clients",
            [*small, "--clients=8", "--new-connections"], short, most=6000),
        Row("long-first", "80 kB chat (20k tokens), streamed, first sight, 1 client", [*long, "--clients=1"], 30,
            most=conversations),
        Row("long-next", "80 kB chat, next turns of the same conversations (1 kB each), 1 client",
            [*long, "--clients=1", "--from-turn=1", "--turns=4"], 30, most=conversations // 2, needs="long-first"),
        Row("stream", "SSE: 64 streams of 200 chunks, 10 ms apart",
            ["--bytes=900", "--message-bytes=450", "--max-tokens=200", "--stream", "--clients=64"],
            60, most=64 if quick else 192, unit="chunk"),
        Row("small-32-sink", "small chat, 32 clients, engines that read and forget", [*small, "--clients=32"], short,
            sink=True, only=apart),
        Row("long-first-sink", "80 kB chat, first sight, 1 client, engines that read and forget",
            [*long, "--clients=1"], 30, most=conversations, sink=True, only=apart),
        Row("long-next-sink", "80 kB chat, next turns, 1 client, engines that read and forget",
            [*long, "--clients=1", "--from-turn=1", "--turns=4"], 30, most=conversations // 2,
            needs="long-first-sink", sink=True, only=apart),
        Row("large-first", "220 KB chat, streamed, 150 in flight, first sight", large, 60,
            most=600 if quick else 2000, sink=True),
        Row("large-shared", "220 KB chat, streamed, 150 in flight, 8 shared prefixes",
            [*large, "--shared=8"], 60, most=600 if quick else 2000, sink=True),
    ]


class Bench:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.setup = servers.Setup(args, folder)
        self.text = folder / "text"
        self.targets, self.engines = [], {}
        self.counted = {}
        self.results = {}

    def seed(self, row, target, turn):
        key = f"{row.needs or row.name} {target.name} {turn}"
        return zlib.crc32(key.encode())

    def load(self, target, flags, seconds, most, seed):
        """Runs the load generator. Gives its figures and its own CPU seconds."""
        command = [
            str(self.setup.binaries / "kvasir-bench-load"), f"--to=127.0.0.1:{target.port}", f"--model={servers.MODEL}",
            f"--text={self.text}", f"--seconds={seconds}", f"--seed={seed}", *flags]
        if most:
            command.append(f"--most={most}")
        ran = subprocess.Popen(self.pinned("clients", command), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        out, problem = ran.communicate(timeout=seconds + 120)
        if ran.returncode != 0:
            raise RuntimeError(problem.strip()[-300:])
        return json.loads(out)

    def pinned(self, side, command):
        if self.args.pin == "none":
            return command
        # Proxies have the last core for themselves; engines and clients share the others.
        last = (os.cpu_count() or 1) - 1
        cores = str(last) if side == "proxy" else (f"0-{last - 1}" if last > 1 else "0")
        return ["taskset", "-c", cores, *command]

    def pin(self, server, side):
        if self.args.pin != "none":
            for pid in server.tree():
                subprocess.run(["taskset", "-a", "-p", "-c", self.pinned(side, [])[2], str(pid)],
                               check=True, stdout=subprocess.DEVNULL)

    def measure(self, row, target, turn):
        engines, proxy = self.engines[target.events].server, target.server
        before = [server.cpu() if server else None for server in (proxy, engines)]
        figures = self.load(target, row.flags, row.seconds, row.most, self.seed(row, target, turn))
        after = [server.cpu() if server else None for server in (proxy, engines)]
        units = figures["events"] if row.unit == "chunk" else figures["answered"]
        for side, start, end in zip(("cpu_us", "engine_cpu_us"), before, after):
            figures[side] = 1e6 * servers.cpu_between(start, end) / units if start and units else None
        figures["peak_mib"] = proxy.peak_mib() if proxy else None
        if proxy and not proxy.alive():
            target.problem = f"ended: {proxy.tail()}"
        return figures

    def run(self):
        if not self.args.network:
            return [], []
        write_text(self.text)
        work = [row for row in rows(self.args.quick) if not self.args.rows or row.name in self.args.rows.split(",")]
        mock = {False: servers.mock_engines(self.setup, DECODE_US),
                True: servers.mock_engines(self.setup, DECODE_US, self.setup.tokenizer)}
        sink = servers.sink_engines(self.setup)
        every = [target for target in servers.targets() if self.wanted(target.name)]
        self.phase("", every, mock, [row for row in work if not row.sink])
        # Without events there is nothing for those that live on them; Kvasir goes by what it placed.
        plain = [target for target in servers.targets() if self.wanted(target.name) and not target.needs_events]
        self.phase(" sink", plain, {False: sink, True: sink}, [row for row in work if row.sink])
        return work, every

    def phase(self, mark, targets, engines, work):
        """Plays rows on one set of engines. What routers counted about themselves is kept under their name and `mark`."""
        if not work:
            return
        self.targets, self.engines = targets, engines
        try:
            self.start()
            self.warm_up()
            for turn in range(self.args.rounds):
                for row in work:
                    self.round(row, turn)
            for target in self.targets:
                if target.server and hasattr(target.server, "metrics"):
                    self.counted[target.name + mark] = servers.counted(target.server)
        finally:
            for one in [*self.targets, *self.engines.values()]:
                one.close()

    def start(self):
        """Engines, then proxies. What cannot start is remembered with the reason."""
        for engines in set(self.engines.values()):
            engines.open()
            if engines.server:
                self.pin(engines.server, "clients")
        for target in self.targets:
            target.open(self.setup, self.engines[target.events])
            say(f"{target.title}: {target.problem or 'ready'}")
            if target.server:
                self.pin(target.server, "proxy")

    def wanted(self, name):
        return not self.args.targets or name in self.args.targets

    def usable(self):
        return [target for target in self.targets if not target.problem]

    def warm_up(self):
        for number, target in enumerate(self.usable()):
            self.load(target, ["--clients=32", "--bytes=900", "--message-bytes=450", "--max-tokens=1"], 1, None, number)
            self.load(target, ["--bytes=80000", "--max-tokens=1", "--stream"], 10, 20, 1000 + number)

    def round(self, row, turn):
        usable = self.usable()
        # Each round begins with another one, so that none always follows the same neighbour.
        start = turn % max(1, len(usable))
        for target in usable[start:] + usable[:start]:
            if row.only and target.name not in row.only:
                continue
            try:
                figures = self.measure(row, target, turn)
            except (RuntimeError, subprocess.TimeoutExpired) as problem:
                figures = {"answered": 0, "failed": 1, "first_failure": str(problem)}
            self.results.setdefault(row.name, {}).setdefault(target.name, []).append(figures)
            say(f"round {turn + 1}  {row.name:12}  {target.name:18}  {report.brief(figures, row.unit)}")

    def parts(self):
        """What needs no network: figures by name, nothing for a part that was not asked for."""
        measured = {"tokens": self.tokens, "decision": self.decision, "index": self.index, "redis": self.shared,
                    "cluster": self.cluster, "demo": self.placement}
        return {name: measured[name]() if name in self.args.parts else {} for name in PARTS}

    def tokens(self):
        """Template, ids and hashes by tokenizer, and short chats beside long ones."""
        say("tokens ...")
        return tokens.measure(self.setup, self.folder, ROOT, self.args.quick, run_json)

    def stages(self, *command):
        # As the router sets them for itself: the encoder's own threads would only fight for the cores.
        env = {**os.environ, "FASTOKENS_BPE_THREADS": "1", "FASTOKENS_SPIN_US": "0"}
        return run_json([str(self.setup.binaries / "kvasir-bench-stages"), *command], env)

    def decision(self):
        """The decision by stage."""
        say("stages of a decision ...")
        names = ["qwen2_5", "gemma3"] if not self.args.quick else ["qwen2_5"]
        found = [name for name in names if (self.setup.tokenizer.parent / name / "tokenizer.json").exists()]
        flags = [f"--tokenizer={name}={self.setup.tokenizer.parent / name}" for name in found]
        if not self.text.exists():
            write_text(self.text)
        decision = self.stages("decision", f"--text={self.text}", f"--conversations={40 if self.args.quick else 300}", *flags)
        return {**decision, "fleets": self.stages("fleet", *(["--rounds=200"] if self.args.quick else []))}

    def index(self):
        say("index ...")
        return self.stages("index", *(["--seconds=1"] if self.args.quick else []))

    def shared(self):
        """One view through Redis: lookups and the mirror."""
        say("redis ...")
        return shared.measure(self.setup, self.args.quick, run_json)

    def cluster(self):
        """Thousands of pods and routes: a real API server, and the router as a process."""
        say("cluster ...")
        return cluster.measure(self.setup, self.args.quick, ROOT, run_json)

    def placement(self):
        """The demo: one workload under random, KV-aware and all-knowing placement."""
        say("demo ...")
        return run_json([str(self.setup.binaries / "kvasir"), "demo", "--json"], os.environ)


def run_json(command, env):
    try:
        ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=900)
        return json.loads(ran.stdout)
    except subprocess.TimeoutExpired:
        return {"problem": "not done within 15 minutes"}
    except json.JSONDecodeError:
        return {"problem": ran.stderr.strip()[-300:] or f"ended with {ran.returncode}"}


def write_text(path):
    """What prompts are cut from: this repository's own documentation and code."""
    files = [file for kind in ("*.md", "*.rs") for file in ROOT.rglob(kind)
             if not {"target", "node_modules", ".git"} & set(file.relative_to(ROOT).parts)]
    with open(path, "w") as out:
        for file in sorted(files):
            out.write(file.read_text(errors="replace"))


def say(text):
    print(text, flush=True)


def machine():
    model = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    memory = int(Path("/proc/meminfo").read_text().split()[1]) / 2**20
    return {"cores": os.cpu_count(), "cpu": model, "memory_gib": round(memory), "kernel": os.uname().release}


def versions(setup):
    found = {}
    pip = setup.cache / "peers" / "bin" / "pip"
    if pip.exists():
        listed = subprocess.run([str(pip), "list", "--format=freeze"], capture_output=True, text=True).stdout
        found.update(line.split("==", 1) for line in listed.splitlines() if "==" in line)
    versions = {name: found.get(name) or found.get(name.replace("-", "_")) for name in ("vllm-router", "sglang-router", "smg")}
    if setup.nginx.exists():
        told = subprocess.run([str(setup.nginx), "-v"], capture_output=True, text=True).stderr
        versions["nginx"] = told.strip().rsplit("/", 1)[-1]
    commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    versions["kvasir"] = commit.stdout.strip() or None
    return {name: version for name, version in versions.items() if version}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--quick", action="store_true", help="a short run, one round; prints only, unless --write")
    parser.add_argument("--write", action="store_true", help="write the report even with --quick or a selection")
    parser.add_argument("--rounds", type=int, help="rounds whose median counts (3, with --quick 1)")
    parser.add_argument("--only", default="", help="names of targets, and of parts that need no network "
                        f"({', '.join(PARTS)}), comma-separated")
    parser.add_argument("--rows", help="names of rows, comma-separated")
    parser.add_argument("--no-stages", action="store_true", help="without the parts that need no network")
    parser.add_argument("--pin", choices=["none", "split"], default="none",
                        help="split: proxies on the last core, engines and clients on the others")
    for name in ("binaries", "cache", "nginx", "tokenizers", "report"):
        parser.add_argument(f"--{name}", required=True, help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.rounds = args.rounds or (1 if args.quick else 3)
    only = [name for name in args.only.split(",") if name]
    known = [target.name for target in servers.targets()]
    unknown = [name for name in only if name not in (*known, *PARTS)]
    if unknown:
        parser.error(f"--only does not know {', '.join(unknown)}; there are {', '.join((*known, *PARTS))}")
    args.parts = [name for name in only if name in PARTS]
    args.targets = [name for name in only if name not in PARTS]
    # Targets alone are measured with every part, as without a selection; parts alone need no servers.
    args.network = not args.parts or bool(args.targets)
    args.parts = [] if args.no_stages else args.parts or list(PARTS)
    return args


def main():
    args = arguments()
    started = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=args.cache))
    bench = Bench(args, folder)
    busy = os.getloadavg()[0]
    try:
        work, targets = bench.run()
        parts = bench.parts()
    except BaseException:
        say(f"what the processes said is in {folder}")
        raise
    said = sys.argv[1:]
    shown = [word for word, before in zip(said, [""] + said)
             if not any(word.startswith(f"--{name}") or before == f"--{name}"
                        for name in ("binaries", "cache", "nginx", "tokenizers", "report"))]
    whole = {
        "when": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M"),
        "command": "make bench" + (f" ARGS='{' '.join(shown)}'" if shown else ""),
        "minutes": (time.monotonic() - started) / 60,
        "rounds": args.rounds, "pin": args.pin, "busy": busy, "machine": machine(), "versions": versions(bench.setup),
        "targets": [{"name": target.name, "title": target.title, "problem": target.problem, "events": target.events}
                    for target in targets],
        "rows": [{"name": row.name, "title": row.title, "unit": row.unit} for row in work],
        "results": bench.results, "counted": bench.counted,
        **{"placement" if name == "demo" else name: figures for name, figures in parts.items()},
    }
    (Path(args.cache) / "latest.json").write_text(json.dumps(whole, indent=1))
    section = report.section(whole)
    print(section)
    if args.write or not (args.quick or args.only or args.rows or args.no_stages):
        report.prepend(Path(args.report), section)
        say(f"written to {args.report}")
    if any(target.problem for target in targets):
        say(f"what the processes said is in {folder}")
    else:
        shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
