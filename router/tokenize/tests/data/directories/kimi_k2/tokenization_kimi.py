"""A tokenizer class for the engine with the rules of Moonshot's models: tiktoken's ids, and tools in order of their keys."""

import tiktoken
from tiktoken.load import load_tiktoken_bpe
from transformers import PreTrainedTokenizer

PATTERN = "|".join([
    r"[\p{Han}]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+",
])


class TikTokenTokenizer(PreTrainedTokenizer):
    vocab_files_names = {"vocab_file": "tiktoken.model"}

    def __init__(self, vocab_file, added_tokens_decoder=None, **kwargs):
        ranks = load_tiktoken_bpe(vocab_file)
        named = {int(n): str(getattr(token, "content", token)) for n, token in added_tokens_decoder.items()}
        specials = {named.get(n, f"<|reserved_token_{n}|>"): n for n in range(len(ranks), len(ranks) + 258)}
        self.rules = tiktoken.Encoding("kimi", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens=specials)
        # A name for every id: that of the special token, else the bytes as letters of their own.
        self.names = [self.rules.decode_single_token_bytes(n).decode("latin-1").translate({n: 0x10000 + n for n in range(256)})
                      for n in range(len(ranks))] + list(specials)
        self.numbers = {name: n for n, name in enumerate(self.names)}
        super().__init__(**kwargs)

    @property
    def vocab_size(self):
        return self.rules.n_vocab

    def get_vocab(self):
        return self.numbers

    def encode(self, text, **kwargs):
        return super().encode(text, **kwargs) if kwargs else self.rules.encode(text, allowed_special="all")

    def _tokenize(self, text, **kwargs):
        return [self.names[n] for n in self.encode(text)]

    def _convert_token_to_id(self, token):
        return self.numbers[token]

    def _convert_id_to_token(self, index):
        return self.names[index]

    def apply_chat_template(self, conversation, tools=None, **kwargs):
        return super().apply_chat_template(conversation, tools=deep_sort_dict(tools), **kwargs)


def deep_sort_dict(value):
    if isinstance(value, dict):
        return {key: deep_sort_dict(value[key]) for key in sorted(value)}
    return [deep_sort_dict(item) for item in value] if isinstance(value, list) else value
