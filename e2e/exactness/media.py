"""Ids of requests with images, from a real engine's renderer: router/tokenize/tests/data/vllm-media.json.

    python3 e2e/exactness/media.py

Needs what run.sh needs: e2e/vllm/setup.sh and e2e/tokenizers/fetch.sh. The model is a Qwen2-VL without weights, with the
tokenizer of qwen2_5, which has its tokens.
"""

import base64
import json
import os
import struct
import zlib
from pathlib import Path

from engine import MODEL, TINY, Render

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("KVASIR_CACHE", Path.home() / ".cache" / "kvasir"))
TARGET = ROOT / "router" / "tokenize" / "tests" / "data" / "vllm-media.json"
CONFIG = TINY | {
    "model_type": "qwen2_vl", "architectures": ["Qwen2VLForConditionalGeneration"], "vocab_size": 151936,
    "vision_start_token_id": 151652, "vision_end_token_id": 151653, "vision_token_id": 151654, "image_token_id": 151655,
    "video_token_id": 151656, "rope_scaling": {"type": "mrope", "mrope_section": [4, 6, 6]},
    "vision_config": {"depth": 1, "embed_dim": 64, "hidden_size": 64, "num_heads": 2, "mlp_ratio": 2, "in_chans": 3, "in_channels": 3,
                      "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2, "spatial_patch_size": 14},
}
PROCESSOR = {
    "image_processor_type": "Qwen2VLImageProcessor", "processor_class": "Qwen2VLProcessor", "min_pixels": 3136, "max_pixels": 12845056,
    "patch_size": 14, "temporal_patch_size": 2, "merge_size": 2, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.25, 0.25, 0.25],
}
# One that prints parts, and one that takes texts: there the engine puts the placeholders before the message's text.
PARTS = """{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\\n' -}}
{%- if message.content is string -%}{{- message.content -}}
{%- else -%}
{%- for part in message.content -%}
{%- if part.type == 'image' -%}<|vision_start|><|image_pad|><|vision_end|>
{%- elif 'text' in part -%}{{- part.text -}}{%- endif -%}
{%- endfor -%}
{%- endif -%}
{{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""
TEXTS = """{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""


def image(width, height):
    rows = b"".join(b"\0" + bytes((x * 7 + y * 13) % 256 for x in range(width) for _ in range(3)) for y in range(height))

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(png).decode()}}


def text(words):
    return {"type": "text", "text": words}


def user(*content):
    return {"role": "user", "content": list(content)}


SYSTEM = {"role": "system", "content": "You look at pictures.\nBe brief, 12 345 words at most."}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}
BODIES = [
    {"messages": [SYSTEM, user(text("What is it?"), image(28, 28))]},
    {"messages": [SYSTEM, user(image(56, 56), text("\n\nWhat is it?"))]},
    {"messages": [SYSTEM, {"role": "user", "content": "First a word."}, {"role": "assistant", "content": "Yes?\n\n"},
                  user(text("And "), image(84, 56), text(" and "), image(28, 28))]},
    {"messages": [user(text("one"), image(28, 28)), {"role": "assistant", "content": "A picture."}, {"role": "user", "content": "And?"}]},
    {"messages": [SYSTEM, user(text("<|im_start|>x <|vision_start|>"), image(28, 28))], "tools": [TOOL], "tool_choice": "none"},
]


def render(template):
    directory = CACHE / "exactness" / "qwen2_vl"
    directory.mkdir(parents=True, exist_ok=True)
    for file in (CACHE / "tokenizers" / "qwen2_5").iterdir():
        link = directory / file.name
        link.unlink(missing_ok=True)
        link.symlink_to(file)
    for name, content in [("config.json", json.dumps(CONFIG)), ("preprocessor_config.json", json.dumps(PROCESSOR)), ("template.jinja", template)]:
        (directory / name).write_text(content)
    cases = []
    flags = ["--chat-template", str(directory / "template.jinja")]
    with Render(CACHE / "vllm" / "env-0.32.0", directory, CACHE / "exactness" / "qwen2_vl.log", flags) as engine:
        for body in BODIES:
            body = body | {"model": MODEL}
            status, answer = engine.call("POST", "/v1/chat/completions/render", json.dumps(body).encode())[:2]
            assert status == 200, answer
            cases.append({"body": body, "token_ids": json.loads(answer)["token_ids"]})
    return {"template": template, "cases": cases}


if __name__ == "__main__":
    golden = {"engine": "vllm 0.32.0, vllm launch render", "model": "Qwen2-VL with the tokenizer of qwen2_5", "forms": [render(PARTS), render(TEXTS)]}
    TARGET.write_text(json.dumps(golden, indent=1, ensure_ascii=False) + "\n")
