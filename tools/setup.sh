#!/usr/bin/env bash
# Installs what building and testing weft needs on Debian 12. Does nothing when all is there.
set -euo pipefail

packages=(
  # tools
  g++ clang libclang-rt-14-dev cmake ninja-build make pkg-config ccache git ca-certificates python3
  clang-format cppcheck
  # libraries
  libcli11-dev libdnnl-dev libfmt-dev libhwy-dev libpcre2-dev libspdlog-dev libtomlplusplus-dev
  liburing-dev libutf8proc-dev libxxhash-dev nlohmann-json3-dev
  # ranks as processes
  libopenmpi-dev openmpi-bin
  # charts of report.html
  libjs-dygraphs
  # tests and benchmarks
  libgtest-dev libbenchmark-dev iproute2
)

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
  echo "setup: everything is installed"
  exit 0
fi

echo "setup: installing ${missing[*]}"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || {
    echo "setup: ${missing[*]} must be installed as root; try: apt-get install ${missing[*]}" >&2
    exit 2
  }
  as_root=(sudo)
fi
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
  "${missing[@]}"
