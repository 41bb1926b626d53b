#include "weft/train/cold_setup.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/base/log.h"
#include "weft/io/cold/cold_probe.h"
#include "weft/io/file.h"
#include "weft/train/agree.h"

namespace weft {
namespace {

constexpr double kProbeSeconds = 2;

double gigabytes(double bytes) { return bytes * 1e-9; }

Json folders_json(const std::vector<std::string>& folders) {
  Json json = Json::array();
  for (const std::string& folder : folders) json.push(folder);
  return json;
}

/// What was measured before, or null: no record, one that is damaged, or one of other folders.
Json read_record(const std::string& path, const std::vector<std::string>& folders) {
  if (!posix_files().is_file(path)) return nullptr;
  try {
    Json record = read_json_file(path);
    const bool same = record.at("folders").dump() == folders_json(folders).dump();
    const bool whole =
        record.at("block_bytes").as_int() >= kColdAlign && record.at("queue_depth").as_int() >= 1;
    return same && whole ? record : Json(nullptr);
  } catch (const Error& error) {
    log_warning("cold tier: {} is not used: {}", path, error.what());
    return nullptr;
  }
}

Json measure(const std::vector<std::string>& folders, int64_t bytes) {
  const ColdRate best =
      probe_cold_folder(folders.front(), kProbeSeconds, std::min(bytes, kMeasuredTier)).best;
  log_info(
      "cold tier: blocks of {} bytes, {} under way; measured on {}: {:.2f} GB/s read, {:.2f} "
      "written, {:.2f} both at once",
      best.block_bytes, best.queue_depth, folders.front(), gigabytes(best.read),
      gigabytes(best.write), gigabytes(best.mixed_read + best.mixed_write));
  return Json::object({{"folders", folders_json(folders)},
                       {"block_bytes", best.block_bytes},
                       {"queue_depth", best.queue_depth},
                       {"read", best.read},
                       {"write", best.write},
                       {"mixed_read", best.mixed_read},
                       {"mixed_write", best.mixed_write}});
}

/// The record to go by; null for the given options.
Json settle(const std::vector<std::string>& folders, int64_t bytes, const std::string& path) {
  if (path.empty() || bytes < kMeasuredTier) return nullptr;
  Json record = read_record(path, folders);
  if (!record.is_null()) return record;
  try {
    record = measure(folders, bytes);
  } catch (const Error& error) {
    log_info("cold tier: not measured, default blocks and depth: {}", error.what());
    return nullptr;
  }
  posix_files().write_text(path, record.dump(1) + "\n");
  return record;
}

}  // namespace

ColdOptions settle_cold(const Config& config, const Plan& plan, const ColdSetup& setup,
                        Communicator& ranks) {
  ColdOptions options = setup.options;
  options.folders = config.memory.nvme;
  options.run = fmt::format("run-{}", ::getpid());
  if (options.folders.empty()) return options;
  const int64_t bytes = plan.tiers[static_cast<size_t>(Tier::nvme)].peak_bytes;
  const std::string answer =
      on_first_rank(ranks, [&] { return settle(options.folders, bytes, setup.record).dump(); });
  const Json record = parse_json(answer, "cold tier");
  if (record.is_null()) return options;
  options.block_bytes = record.at("block_bytes").as_int();
  options.queue_depth = static_cast<int>(record.at("queue_depth").as_int());
  return options;
}

}  // namespace weft
