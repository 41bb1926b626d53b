#!/usr/bin/env bash
# Trains a small model on the novels of Jane Austen and lets it write: `make quickstart` runs this after
# the build. The text comes from a Debian package (public-domain novels); without a network the excerpt in
# the repository has to do.
set -euo pipefail

repo=$(cd "$(dirname "$0")/.." && pwd)
build=${WEFT_BUILD_DIR:-$repo/build}
weft=$build/weft
data=$build/quickstart-data
run=$build/quickstart-run
package=r-cran-janeaustenr

say() { printf '\n== %s\n' "$*"; }

[ -x "$weft" ] || { echo "quickstart: $weft is not there; run make quickstart" >&2; exit 2; }

# Downloads and unpacks the novels into $data; fails quietly into a note.
fetch_novels() {
  local cache=$build/quickstart-cache
  mkdir -p "$cache"
  if ! compgen -G "$cache/${package}_*.deb" >/dev/null; then
    (cd "$cache" && apt-get -o APT::Sandbox::User=root download "$package") ||
      return 1
  fi
  rm -rf "$data" "$data.part"
  local deb
  deb=$(compgen -G "$cache/${package}_*.deb" | head -n 1)
  python3 "$repo/tools/extract_corpus.py" "$deb" --out "$data.part" || return 1
  mv "$data.part" "$data"
}

overrides=()
say "1/4 text: six novels of Jane Austen"
if [ -d "$data/train" ] && [ -d "$data/valid" ]; then
  echo "already in $data"
elif ! fetch_novels; then
  echo "note: the package $package could not be fetched or unpacked; training on the 20 KB excerpt" \
    "in the repository instead, so expect a model that knows little English"
  overrides+=(--set "data.train=[\"$repo/tests/fixtures/data/austen-excerpt.txt\"]"
    --set 'data.valid=[]' --set 'data.valid_fraction=0.1' --set 'train.steps=100')
fi
if [ ${#overrides[@]} -eq 0 ]; then
  overrides+=(--set "data.train=[\"$data/train/*.txt\"]" --set "data.valid=[\"$data/valid/*.txt\"]")
fi

say "2/4 training (a few minutes on 2 cores)"
rm -rf "$run"
"$weft" train "$repo/configs/quickstart.toml" --out "$run" "${overrides[@]}"

say "3/4 loss on the held-out chapters"
"$weft" eval "$run"

say "4/4 the model goes on from \"It is a truth universally acknowledged, that\""
"$weft" generate "$run" --prompt "It is a truth universally acknowledged, that" \
  --max-new-tokens 120 --temperature 0.8 --top-k 40 --seed 1

cat <<END

Done. The run is in $run:
  report.html      curves, memory, environment: open it in a browser
  plan.txt         where every byte lives
  metrics.jsonl    one line per step
  checkpoints/     resume with: $weft train $run/config.toml --out $run --resume
END
