#include "weft/base/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "weft/base/error.h"

namespace weft {
namespace {

std::string refusal(const std::string& text) {
  try {
    parse_json(text, "doc.json");
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

bool has(const std::string& message, const std::string& part) {
  return message.find(part) != std::string::npos;
}

#define EXPECT_SAYS(message, part) EXPECT_PRED2(has, message, part)

TEST(Json, ReadsEveryType) {
  const Json json = parse_json(R"({"a":[1,-2.5,true,null,"x\u00e9"],"b":{}})", "t");
  const auto& items = json.at("a").as_array();
  EXPECT_EQ(items[0].as_int(), 1);
  EXPECT_EQ(items[0].as_double(), 1.0);
  EXPECT_EQ(items[1].as_double(), -2.5);
  EXPECT_TRUE(items[2].as_bool());
  EXPECT_TRUE(items[3].is_null());
  EXPECT_EQ(items[4].as_string(), "x\xc3\xa9");
  EXPECT_TRUE(json.at("b").is_object());
  EXPECT_EQ(json.find("c"), nullptr);
}

TEST(Json, WrongTypesAndMissingMembersThrow) {
  const Json json = parse_json(R"({"a":1.5,"b":"2"})", "t");
  EXPECT_THROW(json.at("c"), InputError);
  EXPECT_THROW(json.at("a").as_int(), InputError);
  EXPECT_THROW(json.at("b").as_double(), InputError);
  EXPECT_THROW(json.at("a").as_string(), InputError);
  EXPECT_THROW(Json(true).as_int(), InputError);
}

TEST(Json, KeepsTheOrderOfMembers) {
  EXPECT_EQ(parse_json(R"({"z":1,"a":2,"m":3})", "t").dump(), R"({"z":1,"a":2,"m":3})");
  Json json;
  json.set("b", 1).set("a", 2).set("b", 3);
  EXPECT_EQ(json.dump(), R"({"b":3,"a":2})");
}

TEST(Json, DumpParsesBackToTheSameText) {
  for (const std::string text :
       {R"([0.1,1e-8,1.0,9223372036854775807,-9223372036854775808,"\"\\\n\u0001"])", R"([])",
        R"({"a":{"b":[[],{}]}})", R"([1.7976931348623157e+308,5e-324,0.30000000000000004])"}) {
    const Json first = parse_json(text, "t");
    EXPECT_EQ(parse_json(first.dump(), "t").dump(), first.dump());
    EXPECT_EQ(parse_json(first.dump(2), "t").dump(), first.dump());
  }
  EXPECT_EQ(parse_json("5e-324", "t").as_double(), std::numeric_limits<double>::denorm_min());
}

TEST(Json, DoublesStayDoubles) {
  EXPECT_EQ(Json(1.0).dump(), "1.0");
  EXPECT_FALSE(parse_json(Json(1.0).dump(), "t").is_int());
  EXPECT_EQ(parse_json(Json(0.1).dump(), "t").as_double(), 0.1);
}

TEST(Json, NonFiniteNumbersBecomeStrings) {
  Json json = Json::array();
  json.push(std::nan("")).push(HUGE_VAL).push(-HUGE_VAL);
  EXPECT_EQ(json.dump(), R"(["nan","inf","-inf"])");
  EXPECT_EQ(parse_json(json.dump(), "t").dump(), json.dump());
}

TEST(Json, BigIntegers) {
  EXPECT_EQ(parse_json("9223372036854775807", "t").as_int(), INT64_MAX);
  EXPECT_FALSE(parse_json("9223372036854775808", "t").is_int());
  EXPECT_EQ(Json(uint64_t{5}).as_int(), 5);
}

TEST(Json, DuplicateKeysAreRefused) {
  EXPECT_SAYS(refusal(R"({"a":1,"a":2})"), "duplicate key \"a\"");
  EXPECT_SAYS(refusal(R"({"x":{"b":1,"b":1}})"), "duplicate key \"b\"");
  EXPECT_EQ(refusal(R"({"a":{"b":1},"b":{"a":1}})"), "accepted");
}

TEST(Json, DepthIsLimited) {
  const auto nested = [](size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_EQ(refusal(nested(256)), "accepted");
  EXPECT_SAYS(refusal(nested(257)), "nesting");
  EXPECT_SAYS(refusal(std::string(100000, '[')), "nesting");
}

TEST(Json, B27_ErrorsNameLineAndColumn) {
  const std::string message = refusal("{\n  \"a\": 1,\n  \"b\": [1, 2,],\n}\n");
  EXPECT_SAYS(message, "[doc.json]");
  EXPECT_SAYS(message, "line 3 column 14");
  EXPECT_SAYS(refusal("{\"a\": 1,}"), "line 1 column 9");
  EXPECT_SAYS(refusal(""), "line 1 column 1");
}

TEST(Json, RefusesWhatIsNotOneDocument) {
  EXPECT_NE(refusal("{} {}"), "accepted");
  EXPECT_NE(refusal("{}x"), "accepted");
  EXPECT_NE(refusal("NaN"), "accepted");
  EXPECT_NE(refusal("[1e999]"), "accepted");
  EXPECT_NE(refusal("'a'"), "accepted");
  EXPECT_NE(refusal("\"\xff\""), "accepted");
  EXPECT_NE(refusal("// c\n1"), "accepted");
  EXPECT_THROW(read_json_file("/nonexistent/x.json"), InputError);
}

}  // namespace
}  // namespace weft
