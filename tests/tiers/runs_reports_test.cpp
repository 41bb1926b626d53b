// Disks and memory that are too small, and runs that must not grow.
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tests/train/run_fixture.h"
#include "weft/base/error.h"
#include "weft/train/job.h"

namespace weft::test {
namespace {

using Keys = std::vector<std::string>;

class TierRunReports : public RunTest {
 protected:
  Keys nvme(const std::string& folder) const {
    return {"memory.nvme=[\"" + folder + "\"]", "offload.optimizer=nvme", "offload.weights=nvme",
            "precision.compute=bf16"};
  }
};

/// A file system of `bytes` that is gone at the end; false from mounted() where that is not
/// permitted.
class SmallDisk {
 public:
  SmallDisk(std::string path, int64_t bytes) : path_(std::move(path)) {
    fs::create_directories(path_);
    const std::string size = "size=" + std::to_string(bytes);
    mounted_ = ::mount("weft-test", path_.c_str(), "tmpfs", 0, size.c_str()) == 0;
    if (!mounted_) error_ = std::strerror(errno);
  }
  ~SmallDisk() {
    if (mounted_) ::umount2(path_.c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  bool mounted() const { return mounted_; }
  const std::string& error() const { return error_; }

 private:
  std::string path_;
  std::string error_;
  bool mounted_ = false;
};

TEST_F(TierRunReports, B17_ADiskThatIsTooSmallIsRefusedBeforeStepOne) {
  const SmallDisk disk(path("small"), int64_t{2} << 20);
  if (!disk.mounted()) GTEST_SKIP() << "mount is not permitted: " << disk.error();
  Keys keys = nvme(path("small"));
  keys.insert(keys.end(), {"model.hidden_size=128", "model.intermediate_size=256"});
  const Job job = plan_job(config(keys), {});
  const int64_t need = job.plan.tiers[static_cast<size_t>(Tier::nvme)].peak_bytes;
  ASSERT_GT(need, int64_t{4} << 20);
  try {
    run(config(keys), "run");
    FAIL() << need << " bytes fitted on a disk of 2 MiB";
  } catch (const ResourceError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find(path("small")), std::string::npos) << text;
    EXPECT_NE(text.find(std::to_string(int64_t{2} << 20)), std::string::npos) << text;
    // In whole blocks, with the record of the file.
    EXPECT_NE(text.find(std::to_string((need + 4095) / 4096 * 4096 + 4096)), std::string::npos)
        << need << ": " << text;
  }
  EXPECT_FALSE(fs::exists(path("run") + "/metrics.jsonl"));
  EXPECT_TRUE(fs::is_empty(path("small")));
}

TEST_F(TierRunReports, B17_ALimitThatIsTooSmallIsRefusedBeforeStepOne) {
  Keys keys = nvme(path("cold"));
  keys.push_back("memory.nvme_limit=\"16KiB\"");
  try {
    run(config(keys), "run");
    FAIL() << "fitted into 16 KiB";
  } catch (const ResourceError& error) {
    EXPECT_NE(std::string(error.what()).find("memory.nvme_limit = "), std::string::npos)
        << error.what();
  }
}

/// What train() says in a process whose address space ends `room` bytes above what it uses.
std::string error_within(int64_t room, const std::function<void()>& train) {
  int ends[2];
  if (::pipe(ends) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    std::ifstream statm("/proc/self/statm");
    int64_t pages = 0;
    statm >> pages;
    const auto limit = static_cast<rlim_t>(pages * ::sysconf(_SC_PAGESIZE) + room);
    const rlimit limits{limit, limit};
    ::setrlimit(RLIMIT_AS, &limits);
    std::string text = "no error";
    try {
      train();
    } catch (const ResourceError& error) {
      text = error.what();
    } catch (const std::exception& error) {
      text = std::string("another error: ") + error.what();
    }
    const ssize_t written = ::write(ends[1], text.data(), text.size());
    ::_exit(written == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  ::close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t count = 0; (count = ::read(ends[0], buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<size_t>(count));
  }
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? text : "the process died";
}

TEST_F(TierRunReports, B82_HostMemoryThatIsNotThereIsRefusedWithNumbers) {
  const Keys keys = {"offload.optimizer=host", "model.hidden_size=1024",
                     "model.intermediate_size=4096", "train.steps=1", "checkpoint.async=false"};
  const Job job = plan_job(config(keys), {});
  const int64_t need = job.plan.tiers[static_cast<size_t>(Tier::host)].peak_bytes;
  const int64_t device = job.plan.tiers[static_cast<size_t>(Tier::device)].peak_bytes;
  ASSERT_GT(need, int64_t{100} << 20);
  const auto train = [&] { run(config(keys), "run"); };
  const std::string text = error_within(device + need / 2, train);
  EXPECT_NE(text.find("[memory] the plan needs " + std::to_string(device + need) + " bytes"),
            std::string::npos)
      << need << ": " << text;
  EXPECT_NE(text.find("ulimit -v"), std::string::npos) << text;
  // No room for stacks of threads: no abort either.
  fs::remove_all(path("run"));
  const std::string more = error_within(device + need + (int64_t{8} << 20), train);
  EXPECT_NE(more, "the process died");
}

int64_t open_files() {
  return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
}

TEST_F(TierRunReports, B83_NothingGrowsWithTheSteps) {
  // The same work over and over: bytes of every tier, traffic and what the process holds stay.
  write_text("valid.jsonl", "{\"text\":\"a tale that is told again and again\"}\n");
  Keys keys = nvme(path("cold"));
  keys.insert(keys.end(), {"train.steps=100", "data.valid=[\"" + path("valid.jsonl") + "\"]",
                           "train.eval_every=25", "checkpoint.every_steps=50"});
  const int64_t before = open_files();
  const RunMetrics metrics = run(config(keys), "run");
  set_log_file("");
  EXPECT_EQ(open_files(), before);
  ASSERT_EQ(metrics.steps.size(), 100u);
  const StepRecord& early = metrics.steps[10];
  for (size_t i = 10; i < 100; ++i) {
    const StepRecord& step = metrics.steps[i];
    EXPECT_EQ(step.device_peak_bytes, early.device_peak_bytes);
    EXPECT_EQ(step.host_bytes, early.host_bytes);
    EXPECT_EQ(step.nvme_bytes, early.nvme_bytes);
    if (i % 25 == 0) continue;  // the step behind a flush
    EXPECT_EQ(step.nvme_read_bytes, early.nvme_read_bytes) << "step " << step.step;
    EXPECT_EQ(step.nvme_write_bytes, early.nvme_write_bytes) << "step " << step.step;
  }
}

}  // namespace
}  // namespace weft::test
