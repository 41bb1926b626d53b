// A fresh folder for one test, removed at its end. Tests only.
#pragma once

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <string>

namespace weft {

class TestFolder {
 public:
  TestFolder() {
    static std::atomic<int> count{0};
    path_ = (std::filesystem::temp_directory_path() /
             ("weft-test-" + std::to_string(::getpid()) + "-" + std::to_string(++count)))
                .string();
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace weft
