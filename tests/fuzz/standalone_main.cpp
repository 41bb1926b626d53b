// Runs a fuzz target without libFuzzer: every seed file of a folder (in name order), then a fixed
// number of random changes of them. Deterministic, so a finding can be repeated.
//
//   fuzz_<name> CORPUS_FOLDER NUMBER_OF_CHANGES
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "weft/base/rng.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using weft::RngStream;

constexpr size_t kMaxBytes = 1 << 16;

std::vector<std::string> read_seeds(const std::string& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> seeds;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return seeds;
}

/// Draws numbers one after another from one stream.
class Draw {
 public:
  explicit Draw(uint64_t key) : stream_(key) {}
  uint64_t below(uint64_t bound) { return stream_.below(next_++, bound); }

 private:
  RngStream stream_;
  uint64_t next_ = 0;
};

void change_once(std::string& bytes, const std::vector<std::string>& seeds, Draw& draw) {
  const size_t at = bytes.empty() ? 0 : draw.below(bytes.size());
  const auto extent = [&](uint64_t most) {
    return std::min<size_t>(bytes.size() - at, 1 + draw.below(most));
  };
  switch (draw.below(8)) {
    case 0:  // one bit
      if (!bytes.empty()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << draw.below(8)));
      break;
    case 1:  // one byte, often a telling one
      if (!bytes.empty()) {
        constexpr char kTelling[] = {0, 1, '\x7f', '\x80', '\xff', '"', '{', '\n', '\\', '-'};
        bytes[at] = draw.below(2) == 0 ? kTelling[draw.below(sizeof kTelling)]
                                       : static_cast<char>(draw.below(256));
      }
      break;
    case 2: bytes.erase(at, extent(16)); break;
    case 3: bytes.insert(at, bytes.substr(at, extent(64))); break;
    case 4: bytes.insert(at, 1 + draw.below(4), static_cast<char>(draw.below(256))); break;
    case 5: bytes.resize(at); break;
    case 6: {  // a piece of another seed
      const std::string& other = seeds[draw.below(seeds.size())];
      if (other.empty()) break;
      const size_t from = draw.below(other.size());
      bytes.insert(at, other.substr(from, 1 + draw.below(64)));
      break;
    }
    default:  // a run of one digit or sign, as numbers grow
      bytes.insert(at, 1 + draw.below(20), "0123456789-eE."[draw.below(14)]);
  }
  if (bytes.size() > kMaxBytes) bytes.resize(kMaxBytes);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s CORPUS_FOLDER NUMBER_OF_CHANGES\n", argv[0]);
    return 2;
  }
  const std::vector<std::string> seeds = read_seeds(argv[1]);
  if (seeds.empty()) {
    std::fprintf(stderr, "%s holds no seeds\n", argv[1]);
    return 3;
  }
  const auto run = [](const std::string& bytes) {
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  };
  const auto count = std::strtoull(argv[2], nullptr, 10);
  uint64_t round = 0;
  try {
    for (const std::string& seed : seeds) run(seed);
    for (; round < count; ++round) {
      Draw draw(round);
      std::string bytes = seeds[draw.below(seeds.size())];
      for (uint64_t changes = 1 + draw.below(6); changes > 0; --changes) {
        change_once(bytes, seeds, draw);
      }
      run(bytes);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "change %llu: %s\n", static_cast<unsigned long long>(round), error.what());
    return 1;
  }
  std::printf("%zu seeds, %llu changes: no finding\n", seeds.size(),
              static_cast<unsigned long long>(count));
  return 0;
}
