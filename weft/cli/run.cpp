// The program behind main(): picks the verb, prints errors in one place.
#include <fmt/format.h>

#include <cstdio>
#include <new>

#include "weft/base/error.h"
#include "weft/base/log.h"
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

int dispatch(const std::vector<std::string>& words) {
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
    if (!verb->runs_on_all_ranks() && detect_launch().rank > 0) return 0;
    return verb->run();
  }
  refuse_verb(verbs, word);
}

int report(ExitCode code, std::string_view text) {
  log_line(LogLevel::error, text);  // "weft: error: [where] …"
  return static_cast<int>(code);
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
  try {
    const int code = dispatch(words);
    if (std::fflush(stdout) != 0) {
      throw ResourceError("stdout",
                          "got a write error, expected room for the output; try checking "
                          "the disk or pipe behind it");
    }
    return code;
  } catch (const Error& error) {
    return report(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return report(ExitCode::resource,
                  "[memory] got no memory from the system, expected more free "
                  "memory; try a smaller micro-batch or model");
  } catch (const std::exception& error) {
    return report(ExitCode::bug, fmt::format("[weft] got an unexpected error ({}), expected none; "
                                             "this is a bug in weft",
                                             error.what()));
  }
}

}  // namespace weft
