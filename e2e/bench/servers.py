"""The processes of a run: how each is started, when it is ready, and what it costs."""

import os
import re
import signal
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
MODEL = "bench"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A process with its children."""

    def __init__(self, name, command, folder, env=None):
        self.name = name
        self.log = folder / f"{name}.log"
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env={**os.environ, **(env or {})},
                start_new_session=True)

    def tree(self):
        """Process ids of the process and everything below it."""
        children = {}
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                try:
                    stat = Path(f"/proc/{entry}/stat").read_text()
                except OSError:
                    continue
                parent = int(stat.rsplit(")", 1)[1].split()[1])
                children.setdefault(parent, []).append(int(entry))
        found, todo = [], [self.process.pid]
        while todo:
            pid = todo.pop()
            found.append(pid)
            todo += children.get(pid, [])
        return found

    def cpu(self):
        """User and system time so far: by tick of every process, and by nanosecond of every live thread."""
        ticks, threads = 0, {}
        for pid in self.tree():
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
                ticks += int(fields[11]) + int(fields[12])
                for task in os.listdir(f"/proc/{pid}/task"):
                    threads[task] = int(Path(f"/proc/{pid}/task/{task}/schedstat").read_text().split()[0])
            except OSError:
                continue
        return ticks, threads

    def peak_mib(self):
        """Peak resident memory (VmHWM), summed over the processes."""
        total = 0
        for pid in self.tree():
            try:
                found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
            except OSError:
                continue
            total += int(found.group(1)) if found else 0
        return total / 1024

    def alive(self):
        return self.process.poll() is None

    def tail(self):
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1][-300:] if lines else "no output"

    def stop(self):
        if self.alive():
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                pass
        # What is left of the group that this class made.
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


def cpu_between(before, after):
    """Seconds of CPU time. Threads count by the nanosecond, unless one ended meanwhile and took its count along."""
    (ticks, threads), (ticks_after, threads_after) = before, after
    if all(thread in threads_after for thread in threads):
        return sum(spent - threads.get(thread, 0) for thread, spent in threads_after.items()) / 1e9
    return (ticks_after - ticks) / TICKS


def get(url, timeout=2.0):
    with urllib.request.urlopen(url, timeout=timeout) as answer:
        return answer.status, answer.read()


def counted(server):
    """What a Kvasir router counted about its own knowledge: the sum of each metric for each value of one label."""
    wanted = {
        "kvasir_tokenized_total": "source", "kvasir_untokenized_total": "reason",
        "kvasir_produce_failed_total": "reason", "kvasir_prompt_tokens_proof_total": "result",
        "kvasir_cached_tokens_predicted_total": None, "kvasir_cached_tokens_reported_total": None,
        "kvasir_retries_total": "reason", "kvasir_access_log_dropped_total": None,
    }
    sums = {}
    for line in get(server.metrics)[1].decode().splitlines():
        found = re.match(r"(\w+)(?:\{(.*)\})? ([0-9.eE+]+)$", line)
        if not found or found.group(1) not in wanted:
            continue
        label = wanted[found.group(1)]
        value = re.search(rf'{label}="([^"]*)"', found.group(2) or "") if label else None
        key = found.group(1) + (f" {value.group(1)}" if value else "")
        sums[key] = sums.get(key, 0) + float(found.group(3))
    return sums


def wait_until(server, check, seconds, what):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not server.alive():
            raise RuntimeError(f"ended with {server.process.returncode}: {server.tail()}")
        try:
            if check():
                return
        except OSError:
            pass
        time.sleep(0.05)
    raise RuntimeError(f"{what} within {seconds} s: {server.tail()}")


def ask_chat(port):
    """Whether one chat request is answered well."""
    body = b'{"model":"%s","max_tokens":1,"messages":[{"role":"user","content":"Are you there?"}]}' % MODEL.encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions", data=body, headers={"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=5) as answer:
        return answer.status == 200


class Engines:
    """Four engines that answer at once."""

    COUNT = 4

    def __init__(self, setup, name, command):
        self.setup, self.name, self.command = setup, name, command
        self.server, self.urls, self.sources, self.problem = None, [], [], None

    def open(self):
        self.server = Server(self.name, self.command, self.setup.folder)
        try:
            wait_until(self.server, self.read_table, 60, "no table of engines")
        except RuntimeError as problem:
            self.problem = f"its engines did not start: {problem}"
            self.close()

    def read_table(self):
        found = re.findall(r"^\d+\s+(http://127\.0\.0\.1:\d+)\s+(\S+)\s+(\S+)$", self.server.log.read_text(), re.M)
        self.urls = [url for url, _, _ in found]
        self.sources = found
        return len(self.urls) == self.COUNT

    def addresses(self):
        return [url.removeprefix("http://") for url in self.urls]

    def close(self):
        if self.server:
            self.server.stop()
            self.server = None


def mock_engines(setup, decode_us, tokenizer=None):
    """Mock engines; a further output token takes `decode_us`. With a tokenizer they publish events."""
    command = [
        str(setup.binaries / "kvasir"), "mock-engine", f"--engines={Engines.COUNT}", "--listen-base=127.0.0.1:0",
        f"--model={MODEL}", "--prefill-us-per-token=0", "--prefill-slots=256", f"--decode-us-per-token={decode_us}",
        "--max-running=4096", "--kv-blocks=131072", "--answer-tokens=1000"]
    # Events without the model's tokenizer would be of no use: their ids would be the mock's own.
    command += [f"--tokenizer={tokenizer}", "--events=map"] if tokenizer else ["--events=off"]
    return Engines(setup, "engines-events" if tokenizer else "engines", command)


def sink_engines(setup):
    """Engines that read a request and look at nothing of it."""
    command = [str(setup.binaries / "kvasir-bench-sink"), f"--engines={Engines.COUNT}", f"--model={MODEL}"]
    return Engines(setup, "engines-sink", command)


class Setup:
    """What is where on this machine."""

    def __init__(self, args, folder):
        self.binaries = Path(args.binaries)
        self.cache = Path(args.cache)
        self.nginx = Path(args.nginx)
        self.tokenizer = Path(args.tokenizers) / "qwen2_5"
        self.folder = folder
        self.threads = os.cpu_count() or 1

    def peer(self, name):
        """The program of a peer, or the reason why it is not there."""
        program = self.cache / "peers" / "bin" / name
        if program.exists():
            return program
        note = self.cache / "missing" / name
        raise RuntimeError(f"not installed: {note.read_text().strip() if note.exists() else 'run e2e/bench/run.sh'}")


def hop(setup, name, engines, port):
    return Server(name, [
        str(setup.binaries / "kvasir-bench-hop"), f"--listen=127.0.0.1:{port}", f"--threads={setup.threads}",
        *engines.addresses()], setup.folder)


def kvasir(setup, name, engines, port, flags):
    metrics = free_port()
    command = [
        str(setup.binaries / "kvasir"), "router", f"--listen=127.0.0.1:{port}",
        f"--metrics-listen=127.0.0.1:{metrics}", f"--admin-listen=127.0.0.1:{free_port()}",
        f"--model={MODEL}={','.join(engines.urls)}", "--access-log-output=" + str(setup.folder / f"{name}.access"),
        *flags]
    server = Server(name, command, setup.folder)
    server.metrics = f"http://127.0.0.1:{metrics}/metrics"
    try:
        wait_until(server, lambda: get(f"http://127.0.0.1:{port}/readyz")[0] == 200, 60, "not ready")
    except RuntimeError:
        server.stop()
        raise
    return server


def kvasir_by_load(setup, name, engines, port):
    return kvasir(setup, name, engines, port, ["--routing=random"])


def kvasir_kv_aware(setup, name, engines, port):
    return kvasir(setup, name, engines, port, [f"--tokenizer={MODEL}={setup.tokenizer}"])


def nginx(setup, name, engines, port):
    if not setup.nginx.exists():
        note = setup.cache / "missing" / "nginx"
        raise RuntimeError(f"not installed: {note.read_text().strip() if note.exists() else setup.nginx}")
    folder = setup.folder / name
    folder.mkdir(exist_ok=True)
    upstreams = "".join(f"server {address};" for address in engines.addresses())
    user = "user root;" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(f"""
{user} daemon off; worker_processes {setup.threads}; pid {folder}/pid; error_log stderr warn;
events {{ worker_connections 4096; }}
http {{
  access_log {folder}/access.log;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  client_max_body_size 64m; client_body_buffer_size 1m; keepalive_requests 1000000;
  upstream engines {{ {upstreams} keepalive 256; keepalive_requests 1000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=1024;
    location / {{
      proxy_pass http://engines; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
    }}
  }}
}}
""")
    return Server(name, [str(setup.nginx), "-p", str(folder), "-e", "stderr", "-c", str(folder / "nginx.conf")],
                  setup.folder)


def router_peer(program, *arguments):
    """vllm-router and its relatives take the same flags."""

    def start(setup, name, engines, port):
        return Server(name, [
            str(setup.peer(program)), *arguments, "--host=127.0.0.1", f"--port={port}", "--prometheus-host=127.0.0.1",
            f"--prometheus-port={free_port()}", "--log-level=" + ("warning" if program == "vllm-router" else "warn"),
            "--worker-urls", *engines.urls], setup.folder)

    return start


def vllm_router_kv_aware(setup, name, engines, port):
    flags = [f"--kv-event-model={MODEL}", "--kv-event-block-size=16"]
    for url, events, replay in engines.sources:
        flags += [f"--kv-event-source={url}={events}", f"--kv-event-replay-source={url}={replay}"]
    return router_peer("vllm-router", "--policy=kv_aware", *flags)(setup, name, engines, port)


class Target:
    """Something that requests are sent to."""

    def __init__(self, name, title, start, events=False, needs_events=False):
        self.name, self.title, self.start, self.events = name, title, start, events
        self.needs_events = needs_events
        self.server, self.port, self.problem = None, None, None

    def open(self, setup, engines):
        self.problem = engines.problem
        if self.problem:
            return
        if self.start is None:
            self.port = int(engines.urls[0].rsplit(":", 1)[1])
            return
        self.port = free_port()
        try:
            self.server = self.start(setup, self.name, engines, self.port)
            wait_until(self.server, lambda: ask_chat(self.port), 60, "no answer to a chat request")
        except (RuntimeError, OSError) as problem:
            self.problem = str(problem)
            self.close()

    def close(self):
        if self.server:
            self.server.stop()
            self.server = None


def targets():
    return [
        Target("direct", "direct call", None),
        Target("nginx", "nginx", nginx),
        Target("hop", "bare Pingora hop", hop),
        Target("kvasir", "Kvasir, by load", kvasir_by_load),
        Target("vllm-router-rr", "vllm-router, round robin", router_peer("vllm-router", "--policy=round_robin")),
        Target("vllm-router-cache", "vllm-router, cache-aware", router_peer("vllm-router", "--policy=cache_aware")),
        Target("sglang-router", "sglang-router, cache-aware",
               router_peer("sglang-router", "launch", "--policy=cache_aware")),
        Target("smg", "smg, cache-aware", router_peer("smg", "launch", "--policy=cache_aware")),
        Target("direct-events", "direct call, engines with tokenizer and events", None, events=True,
               needs_events=True),
        Target("vllm-router-kv", "vllm-router, KV-aware, live events", vllm_router_kv_aware, events=True,
               needs_events=True),
        Target("kvasir-kv", "Kvasir, KV-aware, Qwen2.5 tokens, live events", kvasir_kv_aware, events=True),
    ]
