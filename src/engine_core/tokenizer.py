"""Tokenizers: the model's own `tokenizer.json`, else a byte-level one that needs no file."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from engine_core.config import ModelSpec

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # small batches; a thread pool would only add waiting
_EOS_NAMES = ("<|im_end|>", "<|endoftext|>", "[SEP]", "</s>")


def load_tokenizer(spec: ModelSpec) -> Tokenizer:
    """The tokenizer found beside the weights, else a byte-level one over the whole vocabulary."""
    path = Path(spec.directory) / "tokenizer.json"
    if spec.directory and path.exists():
        tokenizer: Tokenizer = Tokenizer.from_file(str(path))
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return tokenizer
    return build_byte_tokenizer(spec.vocab_size)


def build_byte_tokenizer(vocab_size: int) -> Tokenizer:
    """Bytes are tokens 0..255, token 256 ends a sequence, the rest are made-up words only a model can say."""
    names = sorted(pre_tokenizers.ByteLevel.alphabet())[: min(256, vocab_size)]
    vocabulary = {name: index for index, name in enumerate(names)}
    words = _made_up_words()
    while len(vocabulary) < vocab_size:
        name = _EOS_NAMES[1] if len(vocabulary) == 256 else "Ġ" + next(words)
        vocabulary[name] = len(vocabulary)
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    if vocab_size > 256:
        tokenizer.add_special_tokens([_EOS_NAMES[1]])
    return tokenizer


def _made_up_words() -> itertools.chain[str]:
    syllables = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
    return itertools.chain.from_iterable(
        map("".join, itertools.product(syllables, repeat=length)) for length in (1, 2, 3, 4)
    )


def eos_token_id(tokenizer: Tokenizer) -> int:
    """Id of the token that ends a sequence, -1 when there is none."""
    for name in _EOS_NAMES:
        token_id = tokenizer.token_to_id(name)
        if token_id is not None:
            return int(token_id)
    return -1


class PythonTokenizer:
    """Decoding in plain Python, byte by byte, as tokenizers without a compiled part do it."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        vocabulary = tokenizer.get_vocab()
        self.pieces = [""] * (max(vocabulary.values()) + 1)
        for name, index in vocabulary.items():
            self.pieces[index] = name
        visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
        hidden = [byte for byte in range(256) if byte not in visible]
        self.byte_of = {chr(byte): byte for byte in visible} | {chr(256 + n): byte for n, byte in enumerate(hidden)}

    def decode(self, token_ids: list[int]) -> str:
        """Text of all the tokens."""
        data = bytearray()
        for token_id in token_ids:
            for character in self.pieces[token_id]:
                data.append(self.byte_of.get(character, 0x3F))
        return data.decode("utf-8", errors="replace")

    def find_first(self, text: str, needles: tuple[str, ...]) -> int | None:
        """Position of the first needle in the text, looked for at every position."""
        for index in range(len(text)):
            for needle in needles:
                if text.startswith(needle, index):
                    return index
        return None
