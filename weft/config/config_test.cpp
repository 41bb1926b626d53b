#include "weft/config/config.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "weft/base/error.h"
#include "weft/config/schema.h"

namespace weft {
namespace {

const std::string kModel = "[model]\nfamily = \"llama\"\n";

Config parse(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return parse_config(text, "run.toml", overrides);
}

/// The message of the UsageError that `text` must give.
std::string refusal(const std::string& text, const std::vector<std::string>& overrides = {}) {
  try {
    parse(text, overrides);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

/// Refusal of a file with a model and `text`.
std::string refused(const std::string& text) { return refusal(kModel + text); }
/// Refusal of an override on a file that is fine by itself.
std::string refused_set(const std::string& text) { return refusal(kModel, {text}); }

bool has(const std::string& message, const std::string& part) {
  return message.find(part) != std::string::npos;
}

#define EXPECT_SAYS(message, part) EXPECT_PRED2(has, message, part)

TEST(Config, DefaultsOfAMinimalFile) {
  const Config c = parse(kModel);
  EXPECT_EQ(c.seed, 1234u);
  EXPECT_EQ(c.optimizer.lr, 3e-4);
  EXPECT_EQ(c.optimizer.beta2, 0.95);
  EXPECT_EQ(c.train.micro_batch, 1);
  EXPECT_EQ(c.train.global_batch, 1);
  EXPECT_FALSE(c.memory.device.has_value());
  EXPECT_EQ(c.path, "run.toml");
}

TEST(Config, ReadsEveryKindOfValue) {
  const Config c = parse(R"(
seed = 9
[model]
family = "llama"
rope_parameters = { rope_type = "llama3", factor = 8.0, original_max_position_embeddings = 64 }
tie_word_embeddings = true
num_key_value_heads = 2
[data]
train = ["/d/a.txt", "/d/b.txt"]
weights = [1, 0.5]
[train]
grad_clip = 2          # an integer is a number
[optimizer]
betas = [0.8, 0.99]
[precision]
loss_scale = 128
[memory]
device = "80GB"
host = 4096
[monitor]
trace_steps = [3, 5]
)");
  EXPECT_EQ(c.seed, 9u);
  EXPECT_EQ(c.model.rope_parameters->at("factor").as_double(), 8.0);
  EXPECT_EQ(c.model.rope_parameters->at("original_max_position_embeddings").as_int(), 64);
  EXPECT_EQ(c.model.tie_word_embeddings, true);
  EXPECT_EQ(c.model.num_key_value_heads, 2);
  EXPECT_EQ(c.data.weights, (std::vector<double>{1.0, 0.5}));
  EXPECT_EQ(c.train.grad_clip, 2.0);
  EXPECT_EQ(c.optimizer.beta1, 0.8);
  EXPECT_EQ(c.optimizer.beta2, 0.99);
  EXPECT_EQ(c.precision.loss_scale, 128.0);
  EXPECT_EQ(c.memory.device, 80'000'000'000);
  EXPECT_EQ(c.memory.host, 4096);
  EXPECT_EQ(c.monitor.trace_steps, (std::vector<int64_t>{3, 5}));
}

TEST(Config, PathsStartAtTheFolderOfTheFile) {
  const Config c = parse_config(
      "[model]\nhf = \"m\"\n[data]\ntrain = [\"../t.txt\", \"/abs.txt\"]\ntokenizer = \"tok\"\n",
      "/base/conf/run.toml", {});
  EXPECT_EQ(c.model.hf, "/base/conf/m");
  EXPECT_EQ(c.data.train, (std::vector<std::string>{"/base/t.txt", "/abs.txt"}));
  EXPECT_EQ(c.data.tokenizer, "/base/conf/tok");
  EXPECT_EQ(parse(kModel).data.tokenizer, "bytes");
}

// ---- misspelt, misplaced and mistyped keys ----

TEST(Config, B27_UnknownKeyNamesFileLinePathAndNearest) {
  const std::string message = refused("[optimizer]\nweight_deca = 0.1\n");
  EXPECT_SAYS(message, "[run.toml:4]");
  EXPECT_SAYS(message, "optimizer.weight_deca");
  EXPECT_SAYS(message, "try optimizer.weight_decay");
}

TEST(Config, B27_LearningRteAndKeysOfOtherTrainers) {
  EXPECT_SAYS(refused("[train]\nlearning_rte = 1e-4\n"), "try optimizer.lr");
  EXPECT_SAYS(refused("[optimizer]\nlearning_rate = 1e-4\n"), "try optimizer.lr");
  EXPECT_SAYS(refused("[model.extra]\nx = 1\n"), "unknown key model.extra");
  EXPECT_SAYS(refused("[train]\ngradient_accumulation_steps = 2\n"), "try train.accumulation");
}

TEST(Config, B27_KeyInTheWrongSection) {
  const std::string message = refusal("lr = 1e-4\n" + kModel);
  EXPECT_SAYS(message, "[run.toml:1]");
  EXPECT_SAYS(message, "try optimizer.lr");
  EXPECT_SAYS(refused("[train]\nseq_len = 4\n"), "try data.seq_len");
}

TEST(Config, B27_UnknownSectionsAndDeepKeys) {
  EXPECT_SAYS(refused("[optimiser]\nlr = 1.0\n"), "try optimizer");
  EXPECT_SAYS(refused("[precision]\ncompute=\"fp16\"\n[precision.dynamic]\ninitail = 2\n"),
              "try precision.dynamic.initial");
  EXPECT_SAYS(refused("rope_parameters = { facter = 2.0 }\n"), "try model.rope_parameters.factor");
  EXPECT_SAYS(refused("[offload]\nweights = { hots = 1.0 }\n"), "try offload.weights.host");
  EXPECT_SAYS(refused("\"a\\nb\" = 1\n"), R"(model."a\nb")");
  EXPECT_SAYS(refused("\"train.steps\" = 1\n"), R"(model."train.steps")");
}

TEST(Config, B27_WrongTypes) {
  EXPECT_SAYS(refused("[optimizer]\nlr = \"1e-4\"\n"), "try optimizer.lr = 1e-4 without quotes");
  EXPECT_SAYS(refused("[train]\nsteps = true\n"),
              "train.steps = true (a boolean), expected an int");
  EXPECT_SAYS(refused("[optimizer]\nlr = true\n"), "expected a number");
  EXPECT_SAYS(refused("[train]\nsteps = 1e3\n"), "try train.steps = 1000 without");
  EXPECT_SAYS(refused("[train]\nsteps = 1.5\n"), "expected an integer");
  EXPECT_SAYS(refused("[data]\nshuffle = 1\n"), "expected a boolean");
  EXPECT_SAYS(refused("[data]\ntrain = \"a.txt\"\n"), "expected a list of strings");
  EXPECT_SAYS(refused("[data]\ntrain = [1]\n"), "expected a list of strings");
  EXPECT_SAYS(refused("[data]\ntokenizer = 2024-01-01\n"), "a date or time");
  EXPECT_SAYS(refused("[optimizer]\nbetas = [0.9]\n"), "with 1 numbers, expected 2");
  EXPECT_SAYS(refusal("optimizer = \"sgd\"\n" + kModel), "try optimizer.name");
  EXPECT_SAYS(refusal("[[model]]\nfamily = \"llama\"\n"), "model = a list, expected a table");
  EXPECT_SAYS(refused("[optimizer.lr]\nx = 1\n"), "expected a number");
  EXPECT_SAYS(refused("[optimizer]\nname = \"adam\"\n"), "try \"adamw\"");
}

TEST(Config, B27_OutOfRange) {
  EXPECT_SAYS(refused("[schedule]\nwarmup_steps = -1\n"), "schedule.warmup_steps = -1");
  EXPECT_SAYS(refused("dropout = 1.5\n"), "expected 0 <= x < 1");
  EXPECT_SAYS(refused("[train]\naccumulation = 0\n"), "train.accumulation = 0 (an integer), exp");
  EXPECT_SAYS(refused("[train]\nmicro_batch = 0\n"), "expected >= 1");
  EXPECT_SAYS(refused("[optimizer]\nlr = inf\n"), "expected a finite number");
  EXPECT_SAYS(refused("[optimizer]\neps = nan\n"), "expected a finite number");
  EXPECT_SAYS(refused("[optimizer]\neps = 0\n"), "expected > 0");
  EXPECT_SAYS(refused("[optimizer]\nbetas = [0.9, 1.0]\n"), "expected 0 <= x < 1");
  EXPECT_SAYS(refused("[parallel]\nzero = 4\n"), "expected 0 <= x <= 3");
  EXPECT_SAYS(refused("head_dim = 0\n"), "expected >= 1");
  EXPECT_SAYS(refused("[data]\ntokenizer = \"\"\n"), "data.tokenizer");
  EXPECT_SAYS(refusal("seed = -1\n" + kModel), "expected >= 0");
}

TEST(Config, B27_DuplicateKey) {
  const std::string message = refused("[optimizer]\nlr = 1.0\nlr = 2.0\n");
  EXPECT_SAYS(message, "[run.toml:5:");
  EXPECT_SAYS(message, "duplicate key optimizer.lr");
  EXPECT_SAYS(refusal(kModel + "[model]\nhidden_size = 4\n"), "duplicate");
}

TEST(Config, B27_NullAndBrokenSyntax) {
  const std::string message = refused("hidden_size = null\n");
  EXPECT_SAYS(message, "[run.toml:3:");
  EXPECT_SAYS(message, "model.hidden_size");
  EXPECT_SAYS(refusal("[model\n"), "[run.toml:1:");
  EXPECT_SAYS(refusal("a = \"\xff\"\n"), "utf-8");
}

TEST(Config, B27_EmptyFileSaysWhatIsMissing) {
  EXPECT_SAYS(refusal(""), "[run.toml] got no model, expected model.hf or model.family");
  std::string folder = (std::filesystem::temp_directory_path() / "weft_config_XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const auto path = std::filesystem::path(folder) / "empty.toml";
  std::ofstream(path).close();
  try {
    load_config(path.string(), {});
    FAIL() << "an empty file was accepted";
  } catch (const UsageError& error) {
    EXPECT_SAYS(error.what(), "got no model");
  }
  std::filesystem::remove_all(folder);
}

TEST(Config, MissingFileAndFolderAreInputErrors) {
  EXPECT_THROW(load_config("/nonexistent/weft.toml", {}), InputError);
  EXPECT_THROW(load_config(std::filesystem::temp_directory_path().string(), {}), InputError);
}

// ---- --set ----

TEST(Config, OverridesReplaceKeysOfTheFile) {
  const Config c = parse(
      kModel + "[optimizer]\nlr = 1.0\n[data]\ntrain = [\"/a\"]\n",
      {"optimizer.lr=2e-3", "data.train=['/b c.txt']", "optimizer.name=sgd",
       "alarm.command=echo \"x\" \\ y", "model.tie_word_embeddings=true", "memory.device=2GiB"});
  EXPECT_EQ(c.optimizer.lr, 2e-3);
  EXPECT_EQ(c.data.train, std::vector<std::string>{"/b c.txt"});
  EXPECT_EQ(c.optimizer.name, "sgd");
  EXPECT_EQ(c.alarm.command, "echo \"x\" \\ y");
  EXPECT_EQ(c.model.tie_word_embeddings, true);
  EXPECT_EQ(c.memory.device, int64_t{2} << 30);
  EXPECT_EQ(c.given.at("optimizer.lr"), "--set optimizer.lr");
}

TEST(Config, B27_OverridesFollowTheSameRules) {
  EXPECT_SAYS(refused_set("optimizer.learning_rte=1"), "[--set optimizer.learning_rte]");
  EXPECT_SAYS(refused_set("optimizer.learning_rte=1"), "try optimizer.lr");
  EXPECT_SAYS(refused_set("lr=1e-4"), "try optimizer.lr");
  EXPECT_SAYS(refused_set("optimizer.lr='1e-4'"), "without quotes");
  EXPECT_SAYS(refused_set("optimizer.lr=1e-4x"), "expected a number");
  EXPECT_SAYS(refused_set("train.steps=null"), "expected an integer");
  EXPECT_SAYS(refused_set("model.dropout=1.5"), "expected 0 <= x < 1");
  EXPECT_SAYS(refused_set("train.steps"), "expected key.path=value");
  EXPECT_SAYS(refused_set("train.steps="), "got no value");
  EXPECT_SAYS(refused_set("=5"), "expected key.path=value");
  EXPECT_SAYS(refused_set("a b=5"), "expected key.path=value");
  EXPECT_SAYS(refused_set("train.steps=1\n[model]\nhf = 'x'"), "expected an integer");
  EXPECT_SAYS(refusal(kModel, {"optimizer.lr=1", "optimizer.lr=1"}), "duplicate key optimizer.lr");
}

// ---- sizes ----

TEST(Bytes, UnitsAndDecimals) {
  EXPECT_EQ(parse_bytes("80GB", "t"), 80'000'000'000);
  EXPECT_EQ(parse_bytes("4GiB", "t"), int64_t{4} << 30);
  EXPECT_EQ(parse_bytes("512MB", "t"), 512'000'000);
  EXPECT_EQ(parse_bytes("1.5GiB", "t"), int64_t{3} << 29);
  EXPECT_EQ(parse_bytes("123", "t"), 123);
  EXPECT_EQ(parse_bytes("7 KiB", "t"), 7168);
}

TEST(Bytes, RefusesWhatIsNoSize) {
  for (const char* text : {"", "GB", "-1GB", "1.GB", "1,5GB", "80gb", "80GBB", "0x10", "1e3",
                           "9223372036854775808", "9223372036854775807KB", "1.0001B", "1..2GB"}) {
    EXPECT_THROW(parse_bytes(text, "t"), UsageError) << text;
  }
  EXPECT_SAYS(refused_set("memory.device=80gb"), "memory.device");
  EXPECT_SAYS(refused_set("memory.device=-5"), "expected >= 1");
}

// ---- output ----

const char* const kRich = R"(
[model]
family = "llama"
rope_parameters = { rope_type = "linear", factor = 2.0 }
rms_norm_eps = 1e-5
[data]
train = ["/a \"q\".txt"]
valid_fraction = 0.1
[train]
global_batch = 12
micro_batch = 3
[optimizer]
name = "sgd"
momentum = 0.9
lr = 0.1
[schedule]
name = "wsd"
decay_steps = 7
lr_scaling = "sqrt"
base_batch = 4
[alarm]
command = "tab\there"
)";

TEST(ConfigText, TomlLoadsBackEqual) {
  for (const std::string& text : {kModel, std::string(kRich)}) {
    const Config first = parse(text);
    const Config second = parse_config(config_toml(first), "/elsewhere/config.toml", {});
    EXPECT_EQ(config_json(first).dump(1), config_json(second).dump(1));
    EXPECT_EQ(config_toml(first), config_toml(second));
  }
}

TEST(Config, PathsStartAtTheFileOrTheCurrentFolder) {
  const std::string text = "[model]\nfamily = \"gpt2\"\n[data]\ntrain = [\"a.txt\"]\n";
  const Config config = parse_config(text, "/some/place/run.toml", {"data.valid=[\"b.txt\"]"});
  EXPECT_EQ(config.data.train[0], "/some/place/a.txt");
  EXPECT_EQ(config.data.valid[0], (std::filesystem::current_path() / "b.txt").string());
}

TEST(ConfigText, TomlLeavesOutWhatDoesNotApply) {
  const std::string text = config_toml(parse(kRich));
  EXPECT_FALSE(has(text, "betas"));
  EXPECT_SAYS(text, "momentum = 0.9\n");
  EXPECT_SAYS(text, "accumulation = 4\n");
  EXPECT_FALSE(has(text, "num_experts"));
}

TEST(ConfigText, JsonNestsSections) {
  const Json json = config_json(parse(kRich));
  EXPECT_EQ(json.at("optimizer").at("momentum").as_double(), 0.9);
  EXPECT_EQ(json.at("seed").as_int(), 1234);
  EXPECT_EQ(json.at("memory").at("device").as_string(), "auto");
  EXPECT_TRUE(json.at("model").at("vocab_size").is_null());
  EXPECT_FALSE(json.at("optimizer").contains("betas"));
}

TEST(ConfigText, TablesOfPatternsKeepTheirOrder) {
  Config c;
  c.model.family = "llama";
  c.parallel.shard.push_back({"z.*", {{"weight", {"", "op"}}}, ""});
  c.parallel.shard.push_back({"a.*", {}, "((dp,1),(1,op))"});
  c.offload.groups = {{"model.embed_tokens.*", "host"}};
  c.offload.optimizer = {"", {{"device", 0.25}, {"host", 0.75}}};
  const std::string text = config_toml(c);
  EXPECT_SAYS(text, R"(shard = { "z.*" = { weight = ["", "op"] }, "a.*" = { strategy = )");
  EXPECT_SAYS(text, R"(groups = { "model.embed_tokens.*" = "host" })");
  EXPECT_SAYS(text, "optimizer = { device = 0.25, host = 0.75 }");
  const Config again = parse(text);
  ASSERT_EQ(again.parallel.shard.size(), 2U);
  EXPECT_EQ(again.parallel.shard[0].pattern, "z.*");
  EXPECT_EQ(again.parallel.shard[1].strategy, "((dp,1),(1,op))");
  EXPECT_EQ(again.offload.groups, c.offload.groups);
}

TEST(Schema, EveryRowIsCompleteAndUnique) {
  const Json schema = config_schema_json();
  std::set<std::string> keys;
  for (const Json& row : schema.as_array()) {
    EXPECT_TRUE(keys.insert(row.at("key").as_string()).second) << row.dump();
    EXPECT_FALSE(row.at("type").as_string().empty());
    EXPECT_FALSE(row.at("help").as_string().empty());
    EXPECT_TRUE(row.contains("default") && row.contains("range"));
  }
  EXPECT_TRUE(keys.contains("precision.dynamic.hysteresis"));
  EXPECT_TRUE(keys.contains("optimizer.lr"));
  for (const KeySpec& spec : config_schema()) {
    EXPECT_TRUE(spec.only.key.empty() || find_key(spec.only.key) != nullptr) << spec.key;
  }
}

TEST(Schema, ReferencePageIsUpToDate) {
  std::ifstream file(std::string(WEFT_SOURCE_DIR) + "/docs/configuration.md");
  const std::string page{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  EXPECT_EQ(page, config_reference())
      << "try: build/weft config --schema --markdown > docs/configuration.md";
}

}  // namespace
}  // namespace weft
