// The interface of one verb of the command line, written in weft/cli/cmd_<verb>.cpp:
//
//   class PlanVerb : public Verb {
//    public:
//     std::string_view name() const override { return "plan"; }
//     std::string_view help() const override { return "compile, run nothing, show the bytes"; }
//     void declare(OptionList& options) override {
//       options.positional("CONFIG", &config_, "configuration file");
//       options.list("--set", &overrides_, "KEY=VALUE", "override one key, repeatable");
//       options.flag("--json", &json_, "print one JSON document");
//     }
//     int run() override;
//     …
//   };
//   std::unique_ptr<Verb> make_plan_verb() { return std::make_unique<PlanVerb>(); }
//
// and listed as WEFT_VERB(plan) in verb_list.def. Values land in the given members before run() is
// called. Errors are thrown (base/error.h) and printed in one place, main.cpp. With --json a verb
// prints exactly one document with print_json and nothing else to stdout.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "weft/base/error.h"
#include "weft/base/json.h"

namespace weft {

/// Where the value of an option goes. Optionals stay empty when the option is not given.
using OptionTarget =
    std::variant<bool*, std::string*, int64_t*, uint64_t*, double*, std::optional<std::string>*,
                 std::optional<int64_t>*, std::optional<uint64_t>*, std::optional<double>*,
                 std::vector<std::string>*>;

struct OptionSpec {
  std::string name;   // "--out", or the name of a positional argument ("CONFIG")
  std::string value;  // what the help shows for the value ("DIR"); empty for flags
  std::string help;
  OptionTarget target;
  bool positional = false;
  bool required = false;
  bool value_optional = false;  // "--resume" or "--resume=X"
};

/// The options of one verb, in the order of the help. Targets must outlive the parse.
class OptionList {
 public:
  /// A required positional argument; a vector target takes one or more.
  void positional(std::string name, OptionTarget target, std::string help) {
    specs_.push_back({std::move(name), "", std::move(help), target, true, true, false});
  }
  /// A positional argument that may be left out (the target keeps its value).
  void optional_positional(std::string name, OptionTarget target, std::string help) {
    specs_.push_back({std::move(name), "", std::move(help), target, true, false, false});
  }
  /// "--name": true when given.
  void flag(std::string name, bool* target, std::string help) {
    specs_.push_back({std::move(name), "", std::move(help), target, false, false, false});
  }
  /// "--name VALUE" or "--name=VALUE", at most once. Numbers are parsed strictly.
  void value(std::string name, OptionTarget target, std::string value, std::string help) {
    specs_.push_back(
        {std::move(name), std::move(value), std::move(help), target, false, false, false});
  }
  /// Same, and must be given.
  void required_value(std::string name, OptionTarget target, std::string value, std::string help) {
    specs_.push_back(
        {std::move(name), std::move(value), std::move(help), target, false, true, false});
  }
  /// "--name VALUE", repeatable.
  void list(std::string name, std::vector<std::string>* target, std::string value,
            std::string help) {
    specs_.push_back(
        {std::move(name), std::move(value), std::move(help), target, false, false, false});
  }
  /// "--name" (target = "") or "--name=VALUE"; never takes the next word.
  void optional_value(std::string name, std::optional<std::string>* target, std::string value,
                      std::string help) {
    specs_.push_back(
        {std::move(name), std::move(value), std::move(help), target, false, false, true});
  }

  const std::vector<OptionSpec>& specs() const { return specs_; }

 private:
  std::vector<OptionSpec> specs_;
};

class Verb {
 public:
  virtual ~Verb() = default;
  virtual std::string_view name() const = 0;
  /// One line for `weft --help`, without a full stop.
  virtual std::string_view help() const = 0;
  virtual void declare(OptionList& options) = 0;
  /// Under an MPI launcher: does every process take part? The other verbs run in the first one.
  virtual bool runs_on_all_ranks() const { return false; }
  /// Does the work and returns the exit code (0, or an ExitCode of base/error.h).
  virtual int run() = 0;
};

/// Prints one JSON document and a line end to stdout.
void print_json(const Json& document);
/// Prints text to stdout as it is.
void print_text(std::string_view text);

#define WEFT_VERB(name) std::unique_ptr<Verb> make_##name##_verb();
#include "weft/cli/verb_list.def"
#undef WEFT_VERB

}  // namespace weft
