"""Helpers of two_hosts.sh and tests/hosts: texts to train on, numbers out of plans and metrics."""

import json
import random
import sys


def steps_of(path):
    with open(path, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    return [line for line in lines if line["type"] == "step"]


def text(path, seed):
    """Sentences of random words: enough for a loss that falls."""
    rng = random.Random(int(seed))
    words = "the a old sea ship captain saw took found his with under and never again".split()
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(3000):
            file.write(" ".join(rng.choices(words, k=12)) + ".\n")


def same(first, second):
    """Fails when losses or norms differ in any bit; the second run may be longer."""
    a, b = steps_of(first), steps_of(second)
    if not a or len(a) > len(b):
        sys.exit(f"{first} has {len(a)} steps, {second} {len(b)}")
    for x, y in zip(a, b):
        for key in ("step", "loss", "grad_norm", "tokens"):
            if x[key] != y[key]:
                sys.exit(f"step {x['step']}: {key} {x[key]!r} in {first}, {y[key]!r} in {second}")


def traffic(plan, axis):
    """Bytes that each rank receives per step along an axis."""
    with open(plan, encoding="utf-8") as file:
        print(json.load(file)["traffic"][axis]["bytes_per_step"])


def row(name, expected, *measured):
    """A line of the table; fails when a measured number is not within 5 % of the plan's."""
    off = [100.0 * int(bytes_) / int(expected) - 100.0 for bytes_ in measured]
    numbers = "".join(f"{int(bytes_) / 1e6:10.2f} ({o:+5.2f} %)" for bytes_, o in zip(measured, off))
    good = all(abs(o) <= 5.0 for o in off)
    print(f"{name:<34}{int(expected) / 1e6:10.2f}{numbers}  {'ok' if good else 'WRONG'}")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    {"text": text, "same": same, "traffic": traffic, "row": row}[sys.argv[1]](*sys.argv[2:])
