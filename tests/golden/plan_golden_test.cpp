// Small plans are committed as JSON. A refactor must leave them byte-equal; a change on purpose
// goes through tests/golden/update.sh, which asks for the reason.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "weft/compile/pipeline.h"
#include "weft/plan/test_graphs.h"

namespace weft {
namespace {

std::string golden_path(const std::string& name) {
  return std::string(WEFT_SOURCE_DIR) + "/tests/golden/plans/" + name + ".json";
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// One line per state, buffer and step, so that a difference reads well.
std::string plan_lines(const Plan& plan) {
  const Json json = plan_json(plan);
  std::string text = "{\n";
  for (const auto& [key, value] : json.as_object()) {
    if (text.size() > 2) text += ",\n";
    text += "\"" + key + "\": ";
    if (key == "states" || key == "buffers") {
      text += "[";
      bool first = true;
      for (const Json& entry : value.as_array()) {
        text += first ? "\n  " : ",\n  ";
        text += entry.dump();
        first = false;
      }
      text += "]";
    } else if (key == "programs") {
      text += "[";
      bool first_program = true;
      for (const Json& program : value.as_array()) {
        text += first_program ? "\n {" : ",\n {";
        first_program = false;
        bool first_member = true;
        for (const auto& [name, member] : program.as_object()) {
          text += first_member ? "\"" : ",\n  \"";
          first_member = false;
          text += name + "\": ";
          if (name != "steps") {
            text += member.dump();
            continue;
          }
          text += "[";
          bool first_step = true;
          for (const Json& step : member.as_array()) {
            text += first_step ? "\n   " : ",\n   ";
            text += step.dump();
            first_step = false;
          }
          text += "]";
        }
        text += "}";
      }
      text += "]";
    } else {
      text += value.dump();
    }
  }
  return text + "\n}\n";
}

void expect_golden(const std::string& name, const Plan& plan) {
  const std::string text = plan_lines(plan);
  ASSERT_NO_THROW(parse_json(text, name));
  const std::string path = golden_path(name);
  if (std::getenv("WEFT_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(path, std::ios::binary) << text;
    return;
  }
  const std::string golden = read_text(path);
  ASSERT_FALSE(golden.empty()) << path << " is missing; run tests/golden/update.sh";
  if (golden == text) return;
  std::istringstream old_lines(golden);
  std::istringstream new_lines(text);
  std::string old_line;
  std::string new_line;
  for (int line = 1; std::getline(old_lines, old_line); ++line) {
    if (!std::getline(new_lines, new_line)) new_line = "(end)";
    if (old_line == new_line) continue;
    FAIL() << path << " line " << line << " differs\n  golden: " << old_line
           << "\n  now:    " << new_line;
  }
  FAIL() << path << " is shorter than the plan now is";
}

PlanOptions options() {
  PlanOptions result;
  result.backend = "test";
  result.machine = default_cpu_machine(1);
  return result;
}

Config tiny_config(const std::string& family, const std::string& compute) {
  Config config;
  config.model.family = family;
  config.model.hidden_size = 16;
  config.model.intermediate_size = 40;
  config.model.num_hidden_layers = 2;
  config.model.num_attention_heads = 4;
  if (family == "llama") config.model.num_key_value_heads = 2;
  config.model.vocab_size = 257;
  config.data.seq_len = 8;
  config.train.micro_batch = 2;
  config.train.accumulation = 2;
  config.train.global_batch = 4;
  config.precision.compute = compute;
  config.device.backend = "test";
  config.device.threads = 1;
  return config;
}

Plan compiled(const Config& config) {
  CompileOptions compile_options;
  compile_options.eval = true;
  compile_options.logits_seq_len = 8;
  return compile(config, make_model_spec(config.model, {}), TestSupport(), compile_options);
}

TEST(GoldenPlans, Mlp) {
  const Graph graph = mlp_train_graph(3);
  const ProgramInput program{"train", &graph};
  expect_golden("mlp", build_plan({&program, 1}, TestSupport(), options()));
}

TEST(GoldenPlans, InPlaceChains) {
  const Graph graph = random_graph(5, 40);
  const ProgramInput program{"train", &graph};
  expect_golden("in_place", build_plan({&program, 1}, TestSupport(), options()));
}

TEST(GoldenPlans, Gpt2) { expect_golden("gpt2", compiled(tiny_config("gpt2", "fp32"))); }

TEST(GoldenPlans, Llama) { expect_golden("llama", compiled(tiny_config("llama", "bf16"))); }

TEST(GoldenPlans, PlanningIsDeterministic) {
  const Config config = tiny_config("llama", "fp32");
  EXPECT_EQ(plan_json(compiled(config)).dump(), plan_json(compiled(config)).dump());
}

/// Peak of the transient part of the arena against the largest sum of live bytes.
double waste(const Plan& plan) {
  int64_t states = 0;
  int64_t live = 0;
  for (const PlanBuffer& buffer : plan.buffers) {
    if (buffer.program < 0) states = std::max(states, buffer.offset + buffer.bytes);
  }
  for (const PlanProgram& program : plan.programs) live = std::max(live, program.live_peak_bytes);
  return static_cast<double>(plan.tiers[0].peak_bytes - states) / static_cast<double>(live);
}

TEST(ArenaOfModels, PeakIsNearTheLargestSumOfLiveBytes) {
  for (const std::string family : {"gpt2", "llama"}) {
    for (int64_t micro_batch : {1, 4, 8}) {
      for (int64_t accumulation : {1, 4}) {
        Config config = tiny_config(family, "bf16");
        config.model.hidden_size = 768;
        config.model.intermediate_size = 3072;
        config.model.num_hidden_layers = 12;
        config.model.num_attention_heads = 12;
        if (family == "llama") config.model.num_key_value_heads = 4;
        config.model.vocab_size = 50257;
        config.model.max_position_embeddings = 1024;
        config.data.seq_len = 1024;
        config.train.micro_batch = micro_batch;
        config.train.accumulation = accumulation;
        config.train.global_batch = micro_batch * accumulation;
        const double ratio = waste(compiled(config));
        EXPECT_LE(ratio, 1.05) << family << ", micro-batch " << micro_batch << ", accumulation "
                               << accumulation;
        RecordProperty(
            family + "_" + std::to_string(micro_batch) + "x" + std::to_string(accumulation),
            std::to_string(ratio));
      }
    }
  }
}

}  // namespace
}  // namespace weft
