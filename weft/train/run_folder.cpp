#include "weft/train/run_folder.h"

#include "weft/base/check.h"

namespace weft {
namespace {

void write_text(FileSystem& files, const std::string& path, const std::string& text) {
  const std::string aside = path + ".tmp";
  File file = files.open(aside, OpenMode::create);
  file.write_at(0, text.data(), static_cast<int64_t>(text.size()));
  file.sync();
  file.close();
  files.rename(aside, path);
}

}  // namespace

void create_run_folder(FileSystem& files, const RunPaths& paths) {
  if (files.is_file(paths.config()) || files.is_file(paths.metrics())) {
    throw UsageError("train --out",
                     fmt::format("got {}, which already holds a run; try --resume to "
                                 "continue it or another folder",
                                 paths.folder));
  }
  files.make_folders(paths.folder);
}

void write_run_files(FileSystem& files, const RunPaths& paths, const Job& job) {
  write_text(files, paths.config(), config_toml(job.config));
  const Json plan = job.plan.world == 1
                        ? plan_summary_json(job.plan)
                        : plan_summary_json(plan_cluster(job, training_programs(job.config)));
  write_text(files, paths.plan_json(), plan.dump(1) + "\n");
  write_text(files, paths.plan_text(), plan_text(job.plan));
}

RunRecorder::RunRecorder(const RunPaths& paths, bool tensorboard, int64_t first_step)
    : metrics_(paths.metrics()) {
  if (tensorboard) tensorboard_.emplace(paths.tensorboard(), first_step);
}

void RunRecorder::step(const StepRecord& record) {
  metrics_.write(record);
  if (tensorboard_) tensorboard_->step(record);
}

void RunRecorder::eval(const EvalRecord& record) {
  metrics_.write(record);
  if (tensorboard_) tensorboard_->eval(record);
}

void RunRecorder::event(EventKind kind, int64_t step, Json members) {
  metrics_.event(kind, step, std::move(members));
}

}  // namespace weft
