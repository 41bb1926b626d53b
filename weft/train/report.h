// report.html: one page that shows a run, without any other file or the network.
#pragma once

#include <string>

#include "weft/base/json.h"

namespace weft {

/// Facts about machine and build for the "start" event: cpu, cores, memory, os, compiler, version.
/// The trainer adds backend, threads and the command line.
Json environment_json();

/// The page of the run in `run_dir`, from metrics.jsonl and, where present, plan.json, config.toml
/// and trace/step-*.json. Of the last "start" or "resume" event it shows member "environment"
/// (object of text or numbers) and "command" (text); of "end" member "outcome" (text).
/// Throws InputError when metrics.jsonl is missing or damaged.
std::string report_html(const std::string& run_dir);

/// Writes report_html to `run_dir`/report.html, replacing an older one in one step.
void write_report(const std::string& run_dir);

}  // namespace weft
