"""A tokenizer class for the engine: a rank file, a pattern and special tokens, given to tiktoken as they are."""

from pathlib import Path

import tiktoken
from tiktoken.load import load_tiktoken_bpe
from tiktoken_ext import openai_public
from transformers import PreTrainedTokenizer


class RankTokenizer(PreTrainedTokenizer):
    # The names of the rank files differ; this one is always there and tells the folder.
    vocab_files_names = {"config_file": "tokenizer_config.json"}

    def __init__(self, config_file, vocab_name=None, pat_str=None, added_tokens_decoder=None, **kwargs):
        ranks = load_tiktoken_bpe(str(next(Path(config_file).parent.glob("*.tiktoken"))))
        specials = {str(getattr(token, "content", token)): int(n) for n, token in added_tokens_decoder.items()}
        if vocab_name:
            openai_public.load_tiktoken_bpe = lambda *_, **__: ranks
            known = openai_public.ENCODING_CONSTRUCTORS[vocab_name]()
            pat_str, specials = known["pat_str"], known["special_tokens"] | specials
        self.rules = tiktoken.Encoding("ranks", pat_str=pat_str, mergeable_ranks=ranks, special_tokens=specials)
        super().__init__(**kwargs)

    @property
    def vocab_size(self):
        return self.rules.n_vocab

    def get_vocab(self):
        return {str(n): n for n in range(self.rules.n_vocab)}

    def tokenize(self, text, **kwargs):
        return [str(n) for n in self.rules.encode(text, allowed_special="all", disallowed_special=())]

    def _convert_token_to_id(self, token):
        return int(token)

    def _convert_id_to_token(self, index):
        return str(index)
