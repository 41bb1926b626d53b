// Transfers of the cold tier in one folder: chunks of 16 MiB, two in flight, as a lane of the
// executor does. bench/cold.sh puts fio beside it.
//
// bench_cold [--folder F] [--mib N] [--block BYTES] [--depth N] [--seconds S] [--mode MODE]
//            [--checksum on|off] [--engine auto|uring|threads]
// Modes: read, write, mixed, fill, all. Prints "MODE read_MB/s write_MB/s" per line.
#include <fmt/core.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <deque>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "weft/base/error.h"
#include "weft/base/mapped_memory.h"
#include "weft/io/cold/cold_store.h"

namespace weft {
namespace {

constexpr int64_t kChunk = int64_t{16} << 20;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// One lane: chunks [begin, end) round and round until `seconds` have passed; MB/s.
double run_lane(ColdStore& store, char* memory, bool write, int64_t begin, int64_t end,
                double seconds) {
  const Clock::time_point start = Clock::now();
  std::deque<ColdTransfer> flying;
  int64_t begun = 0;
  int64_t done = 0;
  do {
    while (flying.size() < 2) {
      const int64_t address = (begin + begun % (end - begin)) * kChunk;
      char* data = memory + begun % 2 * kChunk;
      flying.push_back(write ? store.begin_write(address, data, kChunk)
                             : store.begin_read(address, data, kChunk));
      ++begun;
    }
    store.wait(flying.front());
    flying.pop_front();
    ++done;
  } while (seconds_since(start) < seconds);
  const double rate = static_cast<double>(done * kChunk) / seconds_since(start) / 1e6;
  for (const ColdTransfer transfer : flying) store.wait(transfer);
  return rate;
}

void print(const char* mode, double read, double write) {
  fmt::print("{} {:.0f} {:.0f}\n", mode, read, write);
  std::fflush(stdout);
}

void run(std::map<std::string, std::string>& flags) {
  const int64_t chunks = std::stoll(flags["mib"]) * (1 << 20) / kChunk;
  const double seconds = std::stod(flags["seconds"]);
  const std::string& mode = flags["mode"];
  if (chunks < 4) throw UsageError("bench_cold", "got --mib below 64, expected more");
  ColdOptions options;
  options.folders = {flags["folder"]};
  options.bytes = chunks * kChunk;
  options.run = "bench";
  options.block_bytes = std::stoll(flags["block"]);
  options.queue_depth = std::stoi(flags["depth"]);
  options.checksum = flags["checksum"] == "on";
  if (flags["engine"] == "uring") options.engine = ColdEngine::uring;
  if (flags["engine"] == "threads") options.engine = ColdEngine::threads;
  const auto store = ColdStore::open(options);
  const MappedMemory memory("bench_cold", 4 * kChunk);  // what the arenas are made of
  auto* read_memory = reinterpret_cast<char*>(memory.data());
  char* write_memory = read_memory + 2 * kChunk;
  for (int64_t i = 0; i < 4 * kChunk; i += 8) std::memcpy(read_memory + i, &i, 8);
  store->register_memory(read_memory, 4 * kChunk);

  // The first pass writes every block: blocks that only are reserved are slower.
  const Clock::time_point start = Clock::now();
  for (int64_t i = 0; i < chunks; ++i) store->write(i * kChunk, write_memory, kChunk);
  const bool all = mode == "all";
  if (all || mode == "fill") {
    print("fill", 0, static_cast<double>(chunks * kChunk) / seconds_since(start) / 1e6);
  }
  if (all || mode == "read")
    print("read", run_lane(*store, read_memory, false, 0, chunks, seconds), 0);
  if (all || mode == "write")
    print("write", 0, run_lane(*store, write_memory, true, 0, chunks, seconds));
  if (all || mode == "mixed") {
    double write = 0;
    std::exception_ptr error;
    std::thread writer([&] {
      try {
        write = run_lane(*store, write_memory, true, chunks / 2, chunks, seconds);
      } catch (...) {
        error = std::current_exception();
      }
    });
    double read = 0;
    try {
      read = run_lane(*store, read_memory, false, 0, chunks / 2, seconds);
    } catch (...) {
      writer.join();
      throw;
    }
    writer.join();
    if (error) std::rethrow_exception(error);
    print("mixed", read, write);
  }
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  std::map<std::string, std::string> flags = {
      {"folder", std::filesystem::temp_directory_path().string()},
      {"mib", "512"},
      {"block", "1048576"},
      {"depth", "16"},
      {"seconds", "2"},
      {"mode", "all"},
      {"checksum", "on"},
      {"engine", "auto"}};
  try {
    for (int i = 1; i < argc; i += 2) {
      const std::string name = argv[i];
      if (i + 1 == argc || !name.starts_with("--") || flags.count(name.substr(2)) == 0) {
        throw weft::UsageError("bench_cold", fmt::format("got {}, expected --flag value", name));
      }
      flags[name.substr(2)] = argv[i + 1];
    }
    weft::run(flags);
  } catch (const weft::Error& error) {
    fmt::print(stderr, "bench_cold: {}\n", error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_cold: got a flag that is no number ({})\n", error.what());
    return 2;
  }
  return 0;
}
