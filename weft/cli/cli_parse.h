// The command line as data: finds the verb, fills the targets of its options. CLI11 is seen only by
// cli_parse.cpp.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "weft/cli/verb.h"

namespace weft {

/// Every verb, in the order of the help.
std::vector<std::unique_ptr<Verb>> all_verbs();

/// Parses the words after "weft <verb>" into the targets of `verb`. Returns false when help was
/// asked for (and `*help_text` holds it). Throws UsageError for unknown, repeated, missing or
/// malformed options.
bool parse_options(Verb& verb, const std::vector<std::string>& words, std::string* help_text);

/// Runs the whole program: argv without the program name -> exit code. Errors go to stderr.
int run_weft(const std::vector<std::string>& words);

}  // namespace weft
