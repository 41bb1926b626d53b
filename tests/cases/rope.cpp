// rope_table in all its types, rope in both directions.
#include <fmt/core.h>

#include "tests/cases/cases.h"

namespace weft::test {
namespace {

Attrs table_attrs(int64_t head_dim, double theta, const std::string& type) {
  return {{"head_dim", head_dim},
          {"theta", theta},
          {"type", type},
          {"factor", 8.0},
          {"low_freq_factor", 1.0},
          {"high_freq_factor", 4.0},
          {"original_max_position", int64_t{8192}}};
}

}  // namespace

std::vector<OpCase> rope_cases() {
  std::vector<OpCase> cases;
  for (const char* type : {"default", "linear", "llama3"}) {
    for (const int64_t head_dim : {2, 6, 32, 64, 128}) {
      const double theta = std::string(type) == "llama3" ? 500000.0 : 10000.0;
      for (const bool wide : {false, true}) {
        Attrs attrs = table_attrs(head_dim, theta, type);
        if (wide) attrs.set("wide", true);
        cases.push_back({fmt::format("rope_table_{}_{}{}", type, head_dim, wide ? "_wide" : ""),
                         OpKind::rope_table,
                         attrs,
                         {i32_list({2, 5}, {0, 1, 2, 3, 4, 0, 17, 1857, 8191, 131071})},
                         Tolerance::elementwise});
      }
    }
  }
  const struct {
    int64_t B, S, heads, D;
  } list[] = {{1, 1, 1, 2},  {2, 3, 1, 6}, {1, 7, 3, 8}, {2, 9, 2, 34},
              {2, 5, 4, 64}, {0, 5, 2, 8}, {2, 3, 0, 8}};
  for (const auto& e : list) {
    for (const bool inverse : {false, true}) {
      cases.push_back(
          {fmt::format("rope_{}x{}x{}x{}{}", e.B, e.S, e.heads, e.D, inverse ? "_inverse" : ""),
           OpKind::rope,
           {{"head_dim", e.D}, {"inverse", inverse}},
           // Any table will do: the rotation is linear in it.
           {compute({e.B, e.S, e.heads * e.D}), param({e.B, e.S, e.D})},
           Tolerance::elementwise,
           {0}});
    }
  }
  return cases;
}

}  // namespace weft::test
