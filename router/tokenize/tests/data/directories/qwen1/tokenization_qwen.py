"""A tokenizer class for the engine with the rules of Qwen's first models: composed text, tiktoken's ids."""

import unicodedata

import tiktoken
from tiktoken.load import load_tiktoken_bpe
from transformers import PreTrainedTokenizer

FIRST = 151643
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *(f"<|extra_{n}|>" for n in range(205))]
PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
           r"\s*[\r\n]+|\s+(?!\S)|\s+")


class QWenTokenizer(PreTrainedTokenizer):
    vocab_files_names = {"vocab_file": "qwen.tiktoken"}

    def __init__(self, vocab_file, **kwargs):
        specials = {name: FIRST + n for n, name in enumerate(SPECIALS)}
        self.rules = tiktoken.Encoding("qwen", pat_str=PATTERN, mergeable_ranks=load_tiktoken_bpe(vocab_file), special_tokens=specials)
        super().__init__(**kwargs)

    @property
    def vocab_size(self):
        return self.rules.n_vocab

    def get_vocab(self):
        return {str(n): n for n in range(self.rules.n_vocab)}

    def tokenize(self, text, **kwargs):
        return [str(n) for n in self.rules.encode(unicodedata.normalize("NFC", text), allowed_special="all", disallowed_special=())]

    def _convert_token_to_id(self, token):
        return int(token)

    def _convert_id_to_token(self, index):
        return str(index)
