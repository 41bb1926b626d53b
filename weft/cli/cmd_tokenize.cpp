// weft tokenize: text to a Megatron token file.
#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>

#include "weft/base/error.h"
#include "weft/cli/verb.h"
#include "weft/data/tokenize.h"

namespace weft {
namespace {

/// One line on a terminal, redrawn ten times a second; nothing in a pipe.
class TokenizeBar {
 public:
  TokenizeBar() : terminal_(::isatty(STDERR_FILENO) != 0) {}
  ~TokenizeBar() {
    if (drawn_) std::fputs("\r\033[K", stderr);
  }
  TokenizeBar(const TokenizeBar&) = delete;
  TokenizeBar& operator=(const TokenizeBar&) = delete;

  void update(int64_t done, int64_t total) {
    const auto now = std::chrono::steady_clock::now();
    if (!terminal_ || now - last_ < std::chrono::milliseconds(100)) return;
    last_ = now;
    drawn_ = true;
    const double seconds = std::chrono::duration<double>(now - begin_).count();
    fmt::print(stderr, "\r\033[Ktokenizing {:3.0f} %  {:.1f} of {:.1f} MB  {:.1f} MB/s",
               total > 0 ? 100.0 * static_cast<double>(done) / static_cast<double>(total) : 0.0,
               static_cast<double>(done) * 1e-6, static_cast<double>(total) * 1e-6,
               seconds > 0 ? static_cast<double>(done) * 1e-6 / seconds : 0.0);
    std::fflush(stderr);
  }

 private:
  bool terminal_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point last_;
};

class TokenizeVerb : public Verb {
 public:
  std::string_view name() const override { return "tokenize"; }
  std::string_view help() const override { return "turn text into a Megatron token file"; }
  void declare(OptionList& options) override {
    options.positional("IN", &inputs_, ".txt or .jsonl files, folders or glob patterns");
    options.required_value("--tokenizer", &tokenizer_, "T",
                           "bytes, a tokenizer.json or its folder");
    options.required_value("--out", &prefix_, "PREFIX", "writes PREFIX.bin and PREFIX.idx");
    options.flag("--allow-special", &allow_special_,
                 "text like <|endoftext|> becomes the control token");
    options.flag("--json", &json_, "print {\"documents\",\"tokens\",\"skipped\"}");
  }
  int run() override {
    const auto tokenizer = load_tokenizer(tokenizer_);
    SourceCounts counts;
    {
      TokenizeBar bar;
      counts = tokenize_files(inputs_, *tokenizer, allow_special_, prefix_,
                              [&](int64_t done, int64_t total) { bar.update(done, total); });
    }
    if (json_) {
      print_json(Json::object({{"documents", counts.documents},
                               {"tokens", counts.tokens},
                               {"skipped", counts.skipped}}));
    } else {
      print_text(
          fmt::format("{} documents, {} tokens, {} empty documents skipped: {}.bin and "
                      "{}.idx\n",
                      counts.documents, counts.tokens, counts.skipped, prefix_, prefix_));
    }
    return 0;
  }

 private:
  std::vector<std::string> inputs_;
  std::string tokenizer_;
  std::string prefix_;
  bool allow_special_ = false;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_tokenize_verb() { return std::make_unique<TokenizeVerb>(); }

}  // namespace weft
