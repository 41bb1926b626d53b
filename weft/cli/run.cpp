// The program behind main(): picks the verb, prints errors in one place.
#include <fmt/format.h>

#include <cstdio>

#include "weft/base/error.h"
#include "weft/base/log.h"
#include "weft/base/raise.h"
#include "weft/cli/cli_parse.h"
#include "weft/comm/launch.h"
#include "weft/config/schema.h"

namespace weft {
namespace {

std::string overview(const std::vector<std::unique_ptr<Verb>>& verbs) {
  std::string text =
      "weft trains transformer language models.\n\nUsage: weft VERB [arguments]\n\nVerbs:\n";
  for (const auto& verb : verbs) text += fmt::format("  {:<10} {}\n", verb->name(), verb->help());
  return text +
         "\n  weft VERB --help   options of one verb\n"
         "  weft --version     version\n";
}

[[noreturn]] void refuse_verb(const std::vector<std::unique_ptr<Verb>>& verbs,
                              const std::string& word) {
  std::vector<std::string_view> names;
  for (const auto& verb : verbs) names.push_back(verb->name());
  const std::string near = nearest_name(word, names);
  throw UsageError("command line",
                   fmt::format("got {}, expected one of {}; try weft {}",
                               word.empty() ? "no verb" : "verb " + Json(word).dump(),
                               fmt::join(names, ", "), near.empty() ? "--help" : near));
}

/// `all_ranks` becomes false when only one process of a launcher goes on.
int dispatch(const std::vector<std::string>& words, bool& all_ranks) {
  const auto verbs = all_verbs();
  const std::string word = words.empty() ? "" : words.front();
  if (word == "--help" || word == "-h" || word == "help") {
    print_text(overview(verbs));
    return 0;
  }
  if (word == "--version") {
    print_text("weft " WEFT_VERSION "\n");
    return 0;
  }
  for (const auto& verb : verbs) {
    if (verb->name() != word) continue;
    std::string help;
    if (!parse_options(*verb, {words.begin() + 1, words.end()}, &help)) {
      print_text(help);
      return 0;
    }
    all_ranks = verb->runs_on_all_ranks();
    if (!all_ranks && detect_launch().rank > 0) return 0;
    return verb->run();
  }
  refuse_verb(verbs, word);
}

int say(const ErrorData& error) {
  log_line(LogLevel::error, error.text);  // "weft: error: [where] …"
  return static_cast<int>(error.code);
}

/// Ends the program with `error`. Processes of a launcher, which mostly meet the same error, end
/// together, so that it is printed once.
int report(const ErrorData& error, bool all_ranks) {
  if (!all_ranks) return say(error);
  try {
    const Launch launch = detect_launch();
    if (launch.kind != LaunchKind::mpi) return say(error);
    return run_ranks({.world = launch.world}, [&](Communicator&) -> int { raise(error); });
  } catch (const std::exception&) {
    return say(error);
  }
}

}  // namespace

void print_text(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) {
    throw ResourceError("stdout",
                        "got a write error, expected room for the output; try checking "
                        "the disk or pipe behind it");
  }
}

void print_json(const Json& document) { print_text(document.dump(2) + "\n"); }

int run_weft(const std::vector<std::string>& words) {
  bool all_ranks = true;
  try {
    const int code = dispatch(words, all_ranks);
    if (std::fflush(stdout) != 0) {
      throw ResourceError("stdout",
                          "got a write error, expected room for the output; try checking "
                          "the disk or pipe behind it");
    }
    return code;
  } catch (...) {
    return report(error_data(std::current_exception()), all_ranks);
  }
}

}  // namespace weft
