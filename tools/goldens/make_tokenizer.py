#!/usr/bin/env python3
"""Trains the byte-level BPE tokenizer of the quickstart (configs/tokenizers/austen-1024) on the text that
tools/extract_corpus.py unpacks. Run once with the tokenizers package from PyPI; the result is committed.

    build/venv/bin/python tools/goldens/make_tokenizer.py CORPUS/train/*.txt
"""

import pathlib
import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCAB = 1024
END_OF_DOCUMENT = "<|endoftext|>"


def main():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train(
        sorted(sys.argv[1:]),
        trainers.BpeTrainer(
            vocab_size=VOCAB,
            special_tokens=[END_OF_DOCUMENT],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    repo = pathlib.Path(__file__).resolve().parents[2]
    path = repo / "configs/tokenizers/austen-1024/tokenizer.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(path), pretty=False)
    text = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")
    ids = tokenizer.encode(text).ids
    print(f"{path}: {tokenizer.get_vocab_size()} ids, {len(text.encode()) / len(ids):.2f} bytes per id")


if __name__ == "__main__":
    main()
