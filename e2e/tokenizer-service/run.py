"""Runs `kvasir tokenizer` with two models, native and on real renderers, and writes down what was seen.

Each check prints `ok` or `FAILED` with figures; the exit code is the number of failures.
"""

import argparse
import json
import os
import signal
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

PORT = 18150
BASE_PORT = 18160
START_S = 400
RETRY_S = 5

# Enough for the engine to know the architecture; no weights are read.
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "vocab_size": 128256,
    "tie_word_embeddings": True,
    "torch_dtype": "float32",
}

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Weather of a place",
            "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
        },
    }
]


def user(text):
    return [{"role": "user", "content": text}]


TEXTS = [
    "Hello, world!",
    "The router reads a request once.\n\n  And\tsends it on. " * 20,
    "你好，世界。日本語のテキストと한국어 텍스트。 مرحبا",
    "cafe\u0301 caf\u00e9 👩\u200d👩\u200d👧 🇩🇪 \u0000\u0001\u007f",
    "<|im_start|>user\nspecial<|im_end|> <|begin_of_text|> <|eot_id|> <s>",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa 0123456789012345",
    "",
]


def corpus():
    """Bodies without the model's name; most are answered, some are refused."""
    for text in TEXTS:
        yield "/tokenize", {"prompt": text}
        yield "/tokenize", {"prompt": text, "add_special_tokens": False, "return_token_strs": True}
        yield "/tokenize", {"messages": user(text)}
    turns = [
        {"role": "system", "content": "You are brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": [{"type": "text", "text": "And"}, {"type": "text", "text": "now?"}]},
    ]
    yield "/tokenize", {"messages": turns, "return_token_strs": True}
    yield "/tokenize", {"messages": turns, "add_generation_prompt": False}
    yield "/tokenize", {"messages": turns, "add_special_tokens": True}
    yield "/tokenize", {"messages": turns[:3], "add_generation_prompt": False, "continue_final_message": True}
    yield "/tokenize", {"messages": user("Weather in Oslo?"), "tools": TOOLS}
    yield "/tokenize", {"messages": user("Hi"), "chat_template_kwargs": {"enable_thinking": False}}
    for ids in ([], [9707, 11, 1879, 0], [128000, 9906], [1, 2, 3, 100000]):
        yield "/detokenize", {"tokens": ids}
    yield "/tokenize", {}
    yield "/tokenize", {"prompt": 7}
    yield "/tokenize", {"messages": user("Hi"), "continue_final_message": True, "add_generation_prompt": True}


class Service:
    """One `kvasir tokenizer`."""

    def __init__(self, args, models, engine, log):
        self.log = open(args.logs / log, "w")
        environment = {
            **os.environ,
            "PATH": f"{args.root / 'env-0.32.0' / 'bin'}:{os.environ['PATH']}",
            "MODEL_TOKENIZERS": json.dumps({name: str(path) for name, path in models.items()}),
            "TOKENIZER_ENGINE": engine,
            "TOKENIZER_HOST": "127.0.0.1",
            "TOKENIZER_PORT": str(PORT),
            "RENDERER_BASE_PORT": str(BASE_PORT),
            "RENDERER_MAX_RESTARTS": "1",
            "RENDERER_RETRY_SECONDS": str(RETRY_S),
            "RENDERER_STARTUP_TIMEOUT_SECONDS": str(START_S),
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "DO_NOT_TRACK": "1",
        }
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            [args.kvasir, "tokenizer"], env=environment, stdout=self.log, stderr=subprocess.STDOUT
        )

    def call(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{PORT}{path}", data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read() or b"null")
        except (urllib.error.URLError, ConnectionError):
            return 0, None

    def line(self, model):
        _, answer = self.call("/models")
        return next((line for line in (answer or {}).get("models", []) if line["model"] == model), {})

    def wait(self, model, wanted, limit=START_S):
        """The model's line once it is as wanted, and how long that took."""
        began = time.monotonic()
        while time.monotonic() - began < limit:
            line = self.line(model)
            if line and wanted(line):
                return line, time.monotonic() - began
            time.sleep(0.05)
        raise TimeoutError(f"{model}: {self.line(model)}")

    def ready(self, models):
        """Seconds from the start until each model answers a prompt."""
        times = {}
        while len(times) < len(models):
            for model in models:
                if model not in times and self.call("/tokenize", {"model": model, "prompt": "x"})[0] == 200:
                    times[model] = time.monotonic() - self.began
            if time.monotonic() - self.began > START_S:
                raise TimeoutError(json.dumps(self.call("/models")))
            time.sleep(0.02)
        return times

    def stop(self, number=signal.SIGTERM):
        began = time.monotonic()
        self.process.send_signal(number)
        code = self.process.wait(60)
        return code, time.monotonic() - began


def memory(pid):
    """Proportional set size, MB."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0


def renderers():
    """Process id by port of every live process that was started with one of our renderer ports."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            dead = ") Z " in (entry / "stat").read_text()
        except OSError:
            continue
        if "--port" in words and "--served-model-name" in words and not dead:
            port = int(words[words.index("--port") + 1])
            if BASE_PORT <= port < BASE_PORT + 20:
                found[port] = int(entry.name)
    return found


def guards():
    """Live guard processes of renderers' groups."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace")
                if words.startswith("/bin/sh\0-c\0trap '' TERM") and ") Z " not in (entry / "stat").read_text():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def gone(limit=10):
    """Whether no renderer and no guard is left, and after how long."""
    began = time.monotonic()
    while (renderers() or guards()) and time.monotonic() - began < limit:
        time.sleep(0.005)
    return not renderers() and not guards(), time.monotonic() - began


class Report:
    def __init__(self):
        self.rows, self.failures = [], 0

    def check(self, what, good, figures):
        self.rows.append((what, "ok" if good else "**FAILED**", figures))
        self.failures += not good
        print(f"{'ok' if good else 'FAILED':6} {what}: {figures}", flush=True)

    def write(self, path, minutes, kvasir):
        version = subprocess.run([kvasir, "--version"], capture_output=True, text=True).stdout.strip()
        lines = [
            "# The tokenizer service on real renderers",
            "",
            f"Written by `e2e/tokenizer-service/run.sh`: {version}, vLLM 0.32.0 for CPUs, {os.cpu_count()} cores, "
            f"{time.strftime('%Y-%m-%d')}; {minutes:.0f} minutes. Two models: Qwen2.5 and Llama 3.1 (tokenizers real).",
            "",
            "| check | result | seen |",
            "|---|---|---|",
            *(f"| {what} | {result} | {figures} |" for what, result, figures in self.rows),
            "",
        ]
        path.write_text("\n".join(lines))


def answers(service, models):
    return [
        (model, path, body, service.call(path, {"model": model, **body})) for model in models for path, body in corpus()
    ]


def compare(report, native, rendered):
    """The ids, texts and refusals of both, one by one."""
    different, refused = [], 0
    for (model, path, body, one), (_, _, _, other) in zip(native, rendered):
        if one[0] != 200 and one[0] == other[0]:
            refused += 1
        elif one != other:
            different.append(f"{model} {path} {json.dumps(body)[:80]}: {str(one)[:160]} / {str(other)[:160]}")
    for line in different:
        print("       ", line)
    same = len(native) - len(different) - refused
    report.check(
        "native answers as the renderers do, field by field",
        not different,
        f"{same} equal answers, {refused} refused by both with the same status, {len(different)} different",
    )


def run_native(report, args, models):
    service = Service(args, models, "native", "native.log")
    times = service.ready(models)
    seen = ", ".join(f"{model} {seconds:.2f} s" for model, seconds in times.items())
    report.check("native: both models answer within 4 s of the start", max(times.values()) < 4, seen)
    found = answers(service, models)
    report.check("native: memory of the one process", True, f"{memory(service.process.pid):.0f} MB")
    code, took = service.stop()
    report.check("native: SIGTERM ends it", code == 0, f"exit code {code} after {took:.2f} s")
    return found


def run_renderers(report, args, models, native):
    first, second = models
    service = Service(args, models, "render", "render.log")
    times = service.ready(models)
    report.check(
        "render: both models ready and tokenized",
        True,
        ", ".join(f"{model} {seconds:.1f} s (port {service.line(model)['port']})" for model, seconds in times.items()),
    )
    compare(report, native, answers(service, models))
    children = renderers()
    sizes = ", ".join(f"port {port} {memory(pid):.0f} MB" for port, pid in sorted(children.items()))
    report.check(
        "render: memory", len(children) == 2, f"{sizes}; kvasir itself {memory(service.process.pid):.0f} MB"
    )

    port = service.line(first)["port"]
    os.kill(children[port], signal.SIGKILL)
    line, noticed = service.wait(first, lambda line: line["status"] != "ready")
    other, _ = service.call("/tokenize", {"model": second, "prompt": "x"})
    status, body = service.call("/tokenize", {"model": first, "prompt": "x"})
    line, took = service.wait(first, lambda line: line["status"] == "ready")
    report.check(
        "a killed child restarts; meanwhile its model is 503 and the other one answers",
        line["restarts"] == 1 and other == 200 and status == 503,
        f"noticed after {noticed * 1000:.0f} ms, ready again after {took:.1f} s; 503 {json.dumps(body)}; "
        f"lastError {line['lastError']!r}",
    )

    os.kill(renderers()[service.line(first)["port"]], signal.SIGKILL)
    line, _ = service.wait(first, lambda line: line["status"] == "failed")
    budget = "budget exhausted" in line["lastError"]
    line, took = service.wait(first, lambda line: line["status"] == "ready")
    report.check(
        "killed once more than the budget allows: failed, then recovers",
        budget,
        f"failed, tried again after {RETRY_S} s, ready {took:.1f} s after the failure",
    )

    pid = renderers()[service.line(first)["port"]]
    os.kill(pid, signal.SIGSTOP)
    line, noticed = service.wait(first, lambda line: line["status"] != "ready", 90)
    hung = line["lastError"]
    line, took = service.wait(first, lambda line: line["status"] == "ready")
    report.check(
        "a child that hangs (SIGSTOP) is killed and restarted",
        "hangs" in hung and pid not in renderers().values(),
        f"noticed after {noticed:.1f} s ({hung}), ready {took:.1f} s later",
    )

    code, took = service.stop()
    empty, _ = gone()
    report.check("SIGTERM leaves no process", code == 0 and empty, f"exit code {code} after {took:.2f} s")


def run_killed(report, args, models):
    service = Service(args, models, "render", "killed.log")
    while len(renderers()) < 2:
        time.sleep(0.05)
    service.stop(signal.SIGKILL)
    empty, took = gone()
    report.check("SIGKILL of the service leaves no process either", empty, f"all gone after {took * 1000:.0f} ms")


def prepare(args, folder):
    """Two directories with a tokenizer and a config."""
    qwen, llama = folder / "qwen2.5", folder / "llama3.1"
    for target, tokenizer in ((qwen, "qwen2_5"), (llama, "llama3_1")):
        target.mkdir()
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(args.tokenizers / tokenizer / name, target / name)
    shutil.copy(args.root / "tiny-qwen2.5" / "config.json", qwen / "config.json")
    (llama / "config.json").write_text(json.dumps(LLAMA))
    return {"qwen2.5": qwen, "llama3.1": llama}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kvasir", required=True)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--tokenizers", type=Path, required=True)
    parser.add_argument("--report", type=Path, required=True)
    args = parser.parse_args()
    began = time.monotonic()
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        args.logs = args.root / "tokenizer-service"
        args.logs.mkdir(exist_ok=True)
        models = prepare(args, Path(folder))
        native = run_native(report, args, models)
        run_renderers(report, args, models, native)
        run_killed(report, args, models)
    report.write(args.report, (time.monotonic() - began) / 60, args.kvasir)
    print(f"{len(report.rows) - report.failures} passed, {report.failures} failed; {args.report}")
    sys.exit(report.failures)


if __name__ == "__main__":
    main()
