#include <gtest/gtest.h>

#include <cstdio>
#include <set>

#include "weft/base/error.h"
#include "weft/cli/cli_parse.h"

namespace weft {
namespace {

class ProbeVerb : public Verb {
 public:
  std::string_view name() const override { return "probe"; }
  std::string_view help() const override { return "holds one option of every kind"; }
  void declare(OptionList& options) override {
    options.positional("CONFIG", &config, "file");
    options.value("--out", &out, "DIR", "folder");
    options.value("--count", &count, "N", "number");
    options.value("--rate", &rate, "X", "number");
    options.value("--seed", &seed, "S", "number");
    options.list("--set", &sets, "KEY=VALUE", "override");
    options.optional_value("--resume", &resume, "DIR", "resume");
    options.flag("--json", &json, "as JSON");
  }
  int run() override { return 0; }

  std::string config;
  std::string out = "default";
  int64_t count = 7;
  double rate = 0.5;
  std::optional<uint64_t> seed;
  std::vector<std::string> sets;
  std::optional<std::string> resume;
  bool json = false;
};

ProbeVerb parsed(const std::vector<std::string>& words) {
  ProbeVerb verb;
  std::string help;
  EXPECT_TRUE(parse_options(verb, words, &help));
  return verb;
}

std::string refusal(const std::vector<std::string>& words) {
  ProbeVerb verb;
  std::string help;
  try {
    parse_options(verb, words, &help);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

bool has(const std::string& message, const std::string& part) {
  return message.find(part) != std::string::npos;
}

#define EXPECT_SAYS(message, part) EXPECT_PRED2(has, message, part)

TEST(Options, EveryKindLandsInItsTarget) {
  const ProbeVerb verb = parsed({"a.toml", "--out", "d", "--count=-3", "--rate", "1e-2", "--seed",
                                 "5", "--set", "a=1", "--set", "b=\"x y\"", "--json"});
  EXPECT_EQ(verb.config, "a.toml");
  EXPECT_EQ(verb.out, "d");
  EXPECT_EQ(verb.count, -3);
  EXPECT_EQ(verb.rate, 0.01);
  EXPECT_EQ(verb.seed, 5u);
  EXPECT_EQ(verb.sets, (std::vector<std::string>{"a=1", "b=\"x y\""}));
  EXPECT_TRUE(verb.json);
  EXPECT_FALSE(verb.resume.has_value());
}

TEST(Options, AbsentOnesKeepTheirDefaults) {
  const ProbeVerb verb = parsed({"a.toml"});
  EXPECT_EQ(verb.out, "default");
  EXPECT_EQ(verb.count, 7);
  EXPECT_FALSE(verb.seed.has_value());
  EXPECT_TRUE(verb.sets.empty());
}

TEST(Options, OptionalValueNeverTakesTheNextWord) {
  const ProbeVerb bare = parsed({"--resume", "a.toml"});
  EXPECT_EQ(bare.resume, "");
  EXPECT_EQ(bare.config, "a.toml");
  EXPECT_EQ(parsed({"a.toml", "--resume=step-5"}).resume, "step-5");
  EXPECT_EQ(parsed({"a.toml", "--resume="}).resume, "");
  EXPECT_SAYS(refusal({"a.toml", "--resume", "step-5"}), "CONFIG: At Most 1 required");
}

TEST(Options, RepeatableOptionsDoNotTakePositionals) {
  const ProbeVerb verb = parsed({"--set", "a=1", "a.toml"});
  EXPECT_EQ(verb.sets, std::vector<std::string>{"a=1"});
  EXPECT_EQ(verb.config, "a.toml");
  EXPECT_EQ(parsed({"--out", "d", "a.toml"}).config, "a.toml");
}

TEST(Options, ValuesMayBeEmptyOrLookLikeOptions) {
  EXPECT_EQ(parsed({"a.toml", "--out="}).out, "");
  EXPECT_EQ(parsed({"a.toml", "--out", ""}).out, "");
  EXPECT_EQ(parsed({"a.toml", "--out=--json"}).out, "--json");
}

TEST(Options, B27_MistakesAreUsageErrors) {
  EXPECT_SAYS(refusal({"a.toml", "--jsn"}), "got \"--jsn\"");
  EXPECT_SAYS(refusal({"a.toml", "--jsn"}), "try --json");
  EXPECT_SAYS(refusal({}), "CONFIG is required");
  EXPECT_SAYS(refusal({"a.toml", "b.toml"}), "got wrong arguments (CONFIG");
  EXPECT_SAYS(refusal({"a.toml", "--out"}), "--out");
  EXPECT_NE(refusal({"a.toml", "--out", "x", "--out", "y"}), "accepted");
  EXPECT_SAYS(refusal({"a.toml", "--count", "1e3"}), "got --count \"1e3\", expected an integer");
  EXPECT_SAYS(refusal({"a.toml", "--count", "0x10"}), "expected an integer");
  EXPECT_SAYS(refusal({"a.toml", "--rate", "nan"}), "expected a finite number");
  EXPECT_SAYS(refusal({"a.toml", "--seed", "-1"}), "expected an integer >= 0");
}

TEST(Options, HelpShowsEveryOption) {
  ProbeVerb verb;
  std::string help;
  EXPECT_FALSE(parse_options(verb, {"--help"}, &help));
  for (const char* part : {"weft probe", "CONFIG", "--out", "DIR", "--resume", "--set"}) {
    EXPECT_SAYS(help, part);
  }
}

TEST(Verbs, NamesAreUniqueAndHaveHelp) {
  std::set<std::string> names;
  for (const auto& verb : all_verbs()) {
    EXPECT_TRUE(names.emplace(verb->name()).second) << verb->name();
    EXPECT_FALSE(verb->help().empty());
    std::string help;
    EXPECT_FALSE(parse_options(*verb, {"--help"}, &help)) << verb->name();
  }
  EXPECT_TRUE(names.contains("config"));
}

// The exit code and the first line of stderr of a command line.
std::pair<int, std::string> run(const std::vector<std::string>& words) {
  testing::internal::CaptureStderr();
  const int code = run_weft(words);
  return {code, testing::internal::GetCapturedStderr()};
}

TEST(Program, ErrorsHaveOneFormAndTheirExitCode) {
  const auto [no_verb, text] = run({});
  EXPECT_EQ(no_verb, 2);
  EXPECT_TRUE(text.starts_with("weft: error: [command line] got no verb")) << text;
  const auto [unknown, near] = run({"confg"});
  EXPECT_EQ(unknown, 2);
  EXPECT_SAYS(near, "try weft config");
  EXPECT_EQ(run({"dashboard", "x"}).first, 2);
  const auto [missing, where] = run({"config", "/nonexistent/run.toml"});
  EXPECT_EQ(missing, 3);
  EXPECT_TRUE(where.starts_with("weft: error: [/nonexistent/run.toml] got ")) << where;
}

TEST(Program, SchemaIsOneJsonDocument) {
  testing::internal::CaptureStdout();
  EXPECT_EQ(run_weft({"config", "--schema", "--json"}), 0);
  const Json schema = parse_json(testing::internal::GetCapturedStdout(), "stdout");
  bool found = false;
  for (const Json& row : schema.as_array()) {
    if (row.at("key").as_string() != "optimizer.lr") continue;
    found = true;
    EXPECT_EQ(row.at("type").as_string(), "number");
    EXPECT_EQ(row.at("default").as_double(), 3e-4);
    EXPECT_EQ(row.at("range").as_string(), ">= 0");
  }
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace weft
