"""Step records of a run folder, for the scripts of this folder. The first step is a warm-up."""

import json
import pathlib
import statistics


def records(run):
    lines = (pathlib.Path(run) / "metrics.jsonl").read_text().splitlines()
    return [r for r in map(json.loads, lines) if r["type"] == "step" and r["step"] > 1]


def median(run, key):
    return statistics.median(r[key] for r in records(run))
