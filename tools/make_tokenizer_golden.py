#!/usr/bin/env python3
"""Writes tests/fixtures/data/tokenizers: small byte-level BPE tokenizers and the ids that the tokenizers
package gives for awkward texts. Run once with that package from PyPI; the result is committed.

    build/venv/bin/python tools/make_tokenizer_golden.py
"""

import copy
import json
import pathlib

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "tests/fixtures/data/tokenizers"

CORPUS = [
    "It is a truth universally acknowledged, that a single man in possession of a good fortune, must be in want"
    " of a wife. However little known the feelings or views of such a man may be on his first entering a"
    " neighbourhood, this truth is so well fixed in the minds of the surrounding families, that he is considered"
    " as the rightful property of some one or other of their daughters.",
    "“My dear Mr. Bennet,” said his lady to him one day, “have you heard that Netherfield Park is let at last?”"
    " Mr. Bennet replied that he had not. “But it is,” returned she; “for Mrs. Long has just been here, and she"
    " told me all about it.” I don't, we'll, they've, you're, he'd, I'm.",
    "def add(a, b):\n    return a + b\n\nfor i in range(1000):\n    print(i, add(i, 12345))\n\n\n\ttab\ttab\r\n",
    "Ein Satz mit Umlauten: ä ö ü ß, Äpfel und Öl. Un été à la plage, garçon. 汉字和假名 かな カナ 汉字 汉字。",
    "1 12 123 1234 12345 3.14159 2024-01-31 1,000,000   spaces   more    spaces     and     more\n\n\n",
    "ababab aaaa aaaaaaaa bbbb abab aaaaaaaaaaaaaaaa ________ -------- ======== ........ !!!!!!!!",
]

TEXTS = [
    "", " ", "  ", "  x", "x  ", "\t", "\n", " !", "\n\nfoo", " hello world", "Hello, world!",
    "It is a truth universally acknowledged", "I don't think they're WE'LL 'tis I'M you'Ve 'S",
    "0 1 12 123 1234 12345678901234567890 3.14 ١٢٣ ½ Ⅷ",
    "line\r\nline\r\n\r\nline\rline\n\n\n  indented\n", "tab\ttab\t\ttab \t mixed\t \n",
    "trailing spaces   \n   leading", "a\u00a0b\u2003c\u3000d\u200be\u180ef\u0085g\u000bh",
    "cafe\u0301 \u00e9 e\u0301\u0323 \u1e69 s\u0323\u0307 \u212b \uac01 \u1100\u1161\u11a8",
    "\U0001F469\u200D\U0001F469\u200D\U0001F467\u200D\U0001F466 \U0001F44D\U0001F3FD \u2764\ufe0f \U0001F1E9\U0001F1EA",
    "汉字和假名、かなカナ。한국어 텍스트 ไทย हिन्दी עברית العربية",
    "ä Ä ö \u0061\u0308", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" * 3, "_" * 100,
    "abababababababababababababababababababababababababababab", " " * 70 + "end", "x" + "\n" * 50 + "y",
    "<|endoftext|>", "a<|endoftext|>b", "  <|endoftext|>  <|endoftext|>\n", "<|endoftext|", "<tool>", "a <tool> b<tool>c",
    "<tool><tool_call>x</tool_call>", "word sword words a word.", "left  <lr>   right <lr>", "caf\u00e9tok cafe\u0301tok",
    "$x^2 + \\frac{a}{b}$ {[(<>)]} `~@#%&*|;:?/", "\u017fſ'ſ K\u212a 'LL 'lL", "zz\u0000zz\u0001\u007f",
    "def add(a, b):\n    return a + b\n",
]

GPT2_ADDED = [
    AddedToken("<|endoftext|>", special=True, normalized=True),
    AddedToken("<tool>", special=False, normalized=False),
    AddedToken("<tool_call>", special=False, normalized=True),
    AddedToken("word", special=False, single_word=True),
    AddedToken("<lr>", special=False, lstrip=True, rstrip=True, normalized=False),
    AddedToken("caf\u00e9tok", special=False, normalized=True),
]

CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN = CL100K.replace(r"\p{N}{1,3}", r"\p{N}")


def byte_level(add_prefix_space=False, use_regex=True):
    return pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space, use_regex=use_regex)


def split(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), byte_level(use_regex=False)])


def train(pre_tokenizer, normalizer=None, added=()):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        CORPUS * 3,
        trainers.BpeTrainer(
            vocab_size=512 - len(added),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    tokenizer.add_tokens([token for token in added if not token.special])
    tokenizer.add_special_tokens([token for token in added if token.special])
    return json.loads(tokenizer.to_str())


def old_merges(tokenizer):
    """The form of older files: each merge one string."""
    result = copy.deepcopy(tokenizer)
    result["model"]["merges"] = [" ".join(merge) for merge in tokenizer["model"]["merges"]]
    return result


def with_ignore_merges(tokenizer, on):
    """Adds a piece that no merge makes."""
    result = copy.deepcopy(tokenizer)
    result["model"]["vocab"]["Ġuniversally"] = 512
    result["model"]["ignore_merges"] = on
    return result


def main():
    gpt2 = train(byte_level(), added=GPT2_ADDED)
    prefix = copy.deepcopy(gpt2)
    prefix["pre_tokenizer"]["add_prefix_space"] = True
    end = [AddedToken("<|endoftext|>", special=True, normalized=False)]
    llama3 = train(split(CL100K), added=[AddedToken("<|end_of_text|>", special=True, normalized=False)])
    digits = train(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level()]), added=end)
    nfc_added = copy.deepcopy(GPT2_ADDED)
    files = {
        "gpt2": old_merges(gpt2),
        "prefix": prefix,
        "qwen": train(split(QWEN), normalizers.NFC(), nfc_added),
        "ignore_merges_on": with_ignore_merges(llama3, True),
        "ignore_merges_off": with_ignore_merges(llama3, False),
        "digits": digits,
    }
    FOLDER.mkdir(parents=True, exist_ok=True)
    cases = []
    for name, content in files.items():
        path = FOLDER / f"{name}.json"
        path.write_text(json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
        tokenizer = Tokenizer.from_file(str(path))
        for allow_special in (True, False):
            tokenizer.encode_special_tokens = not allow_special
            for text in TEXTS:
                if not allow_special and "<|" not in text:
                    continue
                ids = tokenizer.encode(text, add_special_tokens=False).ids
                cases.append({"tokenizer": name, "allow_special": allow_special, "text": text, "ids": ids})
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    (FOLDER / "expected.json").write_text("[\n" + lines + "\n]\n", encoding="utf-8")
    print(f"{len(files)} tokenizers, {len(cases)} cases")


if __name__ == "__main__":
    main()
