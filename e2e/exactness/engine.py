"""One `vllm launch render` child: the engine's own tokenization, without weights."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

MODEL = "test-model"
START_SECONDS = 300

TINY = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
        "max_position_embeddings": 131072, "vocab_size": 151680, "torch_dtype": "float32"}
LLAMA = TINY | {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 128256}
# The renderer wants the architecture by name; nothing is computed, so every size is the smallest one that is accepted.
CONFIGS = {
    "qwen2_5": TINY | {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]},
    "qwen3": TINY | {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "head_dim": 32},
    "llama3": LLAMA,
    "llama3_1": LLAMA,
    "llama3_2": LLAMA,
    # Without this model type transformers takes a Llama class and gives other ids.
    "deepseek_v3": TINY | {"model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"], "vocab_size": 129280},
    "gemma3": TINY | {"model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"], "vocab_size": 262208, "head_dim": 32},
}
MISTRAL = TINY | {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "vocab_size": 131072}
# Mistral's rules by version. The file at hand is a v3; the others are made of it by listing the control tokens they need.
MISTRAL_VERSIONS = {"mistral_v3": "v3", "mistral_v7": "v7", "mistral_v11": "v11", "mistral_v13": "v13"}
CONFIGS |= {name: MISTRAL for name in MISTRAL_VERSIONS}
# The same rules with SentencePiece models, each of its own version.
MISTRAL_MODELS = ["mistral_spm_v1", "mistral_spm_v2", "mistral_spm_v3", "mistral_spm_v7"]
CONFIGS |= {name: MISTRAL | {"vocab_size": 32768} for name in MISTRAL_MODELS}
# Directories whose configuration is in this repository: tokenizers by the name of fetch.sh, and whether the engine needs the
# code that lies beside the configuration. The Llama ones have one of Mistral's models as their tokenizer.model, or a tokenizer.json
# made of it; the last two have another model's tokenizer.json and tokens of their own beside it.
DIRECTORIES = {"llama_spm": ("mistral_spm_v1", False), "llama_spm_legacy": ("mistral_spm_v1", False), "qwen1": ("qwen1", True),
               "kimi_k2": ("kimi_k2", True), "cl100k": ("cl100k", True), "pat_str": ("qwen1", True), "llama_json": ("llama_json", False),
               "extra_listed": ("qwen2_5", False), "extra_old": ("qwen2_5", False)}
CONFIGS |= {name: LLAMA | {"vocab_size": 163840 if coded else 32768} for name, (_, coded) in DIRECTORIES.items()}
CONFIGS |= {"extra_listed": LLAMA | {"vocab_size": 152064}, "extra_old": CONFIGS["qwen2_5"] | {"vocab_size": 152064}}
MISTRAL_CONTROLS = ("<unk> <s> </s> [INST] [/INST] [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] [TOOL_RESULTS] [/TOOL_RESULTS] [TOOL_CALLS] [IMG] <pad> "
                    "[IMG_BREAK] [IMG_END] [PREFIX] [MIDDLE] [SUFFIX] [SYSTEM_PROMPT] [/SYSTEM_PROMPT] [TOOL_CONTENT] [ARGS] [CALL_ID] [THINK] [/THINK]").split()

# More templates than the tokenizers bring: what they print tells of everything that a template may be given, and do.
TEMPLATES = {"messages": "qwen3", "parts": "qwen3", "strings": "qwen3"}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Render:
    """The child, from its start to its end; use it in a `with`."""

    def __init__(self, environment, directory, log, flags=()):
        self.port = free_port()
        self.log = Path(log)
        variables = dict(os.environ, PATH=f"{environment / 'bin'}:{os.environ['PATH']}", HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1",
                         VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1")
        command = ["vllm", "launch", "render", str(directory), "--host", "127.0.0.1", "--port", str(self.port),
                   "--served-model-name", MODEL, *flags]
        with open(self.log, "w") as out:
            self.process = subprocess.Popen(command, env=variables, stdout=out, stderr=out, start_new_session=True)
        self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)

    def __enter__(self):
        self.started = time.time()
        while time.time() - self.started < START_SECONDS:
            if self.process.poll() is not None:
                sys.exit(f"the renderer ended; see {self.log}")
            try:
                if self.call("GET", "/health")[0] == 200:
                    self.start_seconds = time.time() - self.started
                    return self
            except OSError:
                time.sleep(0.5)
        self.__exit__()
        sys.exit(f"the renderer did not start in {START_SECONDS} s; see {self.log}")

    def __exit__(self, *_):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()

    def call(self, method, path, body=None):
        try:
            self.connection.request(method, path, body, {"content-type": "application/json"})
            answer = self.connection.getresponse()
            return answer.status, answer.read()
        except OSError:
            self.connection.close()
            raise
        except http.client.HTTPException as error:
            self.connection.close()
            raise OSError(str(error)) from error

    def version(self):
        return json.loads(self.call("GET", "/version")[1])["version"]
