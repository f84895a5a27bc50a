"""Writes a tiny random Qwen2 model with a real tokenizer: real token ids, real KV cache, meaningless answers."""

import shutil
import sys
from pathlib import Path

tokenizer, target = Path(sys.argv[1]), Path(sys.argv[2])
if (target / "model.safetensors").exists():
    sys.exit(0)

import torch  # noqa: E402  (slow, and not needed when the model is there)
from transformers import Qwen2Config, Qwen2ForCausalLM  # noqa: E402

torch.manual_seed(7)  # equal weights whenever it is made anew
config = Qwen2Config(
    vocab_size=151680,  # the highest token id + 1, rounded up to 64
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=2,
    max_position_embeddings=131072,
    tie_word_embeddings=True,
)
target.mkdir(parents=True, exist_ok=True)
Qwen2ForCausalLM(config).save_pretrained(target)
for name in ("tokenizer.json", "tokenizer_config.json"):
    shutil.copy(tokenizer / name, target / name)
print(f"made {target}")
