#include "weft/data/tokenizer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/base/rng.h"
#include "weft/data/bpe_merge.h"

namespace weft {
namespace {

const std::string kFixtures = WEFT_SOURCE_DIR "/tests/fixtures/data/tokenizers/";

std::unique_ptr<Tokenizer> fixture(const std::string& name) {
  return load_tokenizer(kFixtures + name + ".json");
}

/// A tokenizer.json with the whole byte alphabet, an end-of-document token and `edit` applied.
Json small_tokenizer() { return read_json_file(kFixtures + "gpt2.json"); }

/// Message of the InputError that loading `json` throws, "" when it loads.
std::string refusal(const Json& json) {
  try {
    parse_tokenizer_json(json.dump(), "T.json");
    return "";
  } catch (const InputError& error) {
    return error.what();
  }
}

void expect_refused(const Json& json, const std::string& part) {
  const std::string message = refusal(json);
  EXPECT_NE(message.find(part), std::string::npos) << "message: " << message;
  EXPECT_TRUE(message.starts_with("[T.json] ")) << message;
}

Json& member(Json& json, const char* key) { return const_cast<Json&>(json.at(key)); }

TEST(Tokenizer, BytesAreIdsAnd256EndsDocuments) {
  const auto bytes = load_tokenizer("bytes");
  EXPECT_EQ(bytes->vocab_size(), 257);
  EXPECT_EQ(bytes->eod_id(), 256);
  EXPECT_EQ(bytes->encode("a\xff\n"), (std::vector<int32_t>{97, 255, 10}));
  EXPECT_EQ(bytes->decode(std::vector<int32_t>{97, 256, 255}), "a\xff");
  EXPECT_THROW(bytes->decode(std::vector<int32_t>{257}), InputError);
  EXPECT_EQ(bytes->encode("<|endoftext|>", true).size(), 13u);
}

TEST(Tokenizer, B78_IdsEqualTheReference) {
  std::map<std::string, std::unique_ptr<Tokenizer>> tokenizers;
  const Json cases = read_json_file(kFixtures + "expected.json");
  int checked = 0;
  for (const Json& entry : cases.as_array()) {
    const std::string& name = entry.at("tokenizer").as_string();
    auto& tokenizer = tokenizers[name];
    if (!tokenizer) tokenizer = fixture(name);
    std::vector<int32_t> expected;
    for (const Json& id : entry.at("ids").as_array()) {
      expected.push_back(static_cast<int32_t>(id.as_int()));
    }
    const std::string& text = entry.at("text").as_string();
    EXPECT_EQ(tokenizer->encode(text, entry.at("allow_special").as_bool()), expected)
        << name << ": " << text;
    ++checked;
  }
  EXPECT_EQ(checked, 270);
}

TEST(Tokenizer, B78_IgnoreMergesTakesTheWholePiece) {
  EXPECT_EQ(fixture("ignore_merges_on")->encode(" universally"), (std::vector<int32_t>{512}));
  EXPECT_GT(fixture("ignore_merges_off")->encode(" universally").size(), 1u);
}

TEST(Tokenizer, B78_DecodeOfEncodeIsIdentity) {
  std::vector<std::string> texts = {"\xff\xfe",
                                    "a\x80"
                                    "b",
                                    "\xe4",
                                    "ab\xc3",
                                    "\xed\xa0\x80",
                                    "\xf4\x90\x80\x80 x",
                                    "\xc0\xaf",
                                    std::string("\0a\0", 3),
                                    "caf\xc3\xa9 \xc3\xa4\r\n\t  x  "};
  const Json cases = read_json_file(kFixtures + "expected.json");
  for (const Json& entry : cases.as_array()) texts.push_back(entry.at("text").as_string());
  // The others change the text on purpose: a prefix space, NFC, white space taken by <lr>.
  for (const char* name : {"ignore_merges_on", "ignore_merges_off", "digits"}) {
    const auto tokenizer = fixture(name);
    for (const std::string& text : texts) {
      const std::vector<int32_t> ids = tokenizer->encode(text);
      EXPECT_EQ(tokenizer->decode(ids), text) << name;
      std::string piecewise;
      for (const int32_t id : ids) piecewise += tokenizer->decode(std::vector<int32_t>{id});
      EXPECT_EQ(piecewise, text) << name;
    }
  }
  EXPECT_EQ(fixture("qwen")->decode(fixture("qwen")->encode("e\xcc\x81\xff")), "\xc3\xa9\xff");
}

TEST(Tokenizer, B78_RandomBytesSurvive) {
  const RngStream stream(7, "bytes");
  const auto tokenizer = fixture("ignore_merges_off");
  const std::string alphabet = "a b\n\r\t'1\xc3\xa4\xf0\x9f\x91\x8d\x80 \xe6\xb1\x89<|endoftext|>";
  for (uint64_t round = 0; round < 300; ++round) {
    std::string text;
    for (uint64_t i = 0; i < 40; ++i) {
      text += alphabet[stream.below(round * 40 + i, alphabet.size())];
    }
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  }
}

TEST(Tokenizer, PlainTextNeverGivesControlIds) {
  for (const char* name : {"gpt2", "qwen", "digits", "ignore_merges_on"}) {
    const auto tokenizer = fixture(name);
    const std::string end = tokenizer->decode(std::vector<int32_t>{tokenizer->eod_id()});
    const auto plain = tokenizer->encode("a" + end + "b");
    EXPECT_EQ(std::count(plain.begin(), plain.end(), tokenizer->eod_id()), 0) << name;
    EXPECT_EQ(tokenizer->decode(plain), "a" + end + "b") << name;
    const auto special = tokenizer->encode("a" + end + "b", true);
    EXPECT_EQ(std::count(special.begin(), special.end(), tokenizer->eod_id()), 1) << name;
    EXPECT_EQ(tokenizer->decode(special, true), "ab") << name;
  }
}

TEST(Tokenizer, ControlTokenThatIsAlsoAPieceIsNotPlainText) {
  Json json = small_tokenizer();
  member(json, "model").set("ignore_merges", true);
  Json pre = Json::object({{"type", "ByteLevel"}, {"add_prefix_space", false}});
  pre.set("use_regex", false);
  json.set("pre_tokenizer", pre);
  const int64_t id = static_cast<int64_t>(fixture("gpt2")->eod_id());
  member(member(json, "model"), "vocab").set("<|endoftext|>", id);
  const auto tokenizer = parse_tokenizer_json(json.dump(), "T.json");
  EXPECT_GT(tokenizer->encode("<|endoftext|>").size(), 1u);
  EXPECT_EQ(tokenizer->encode("<|endoftext|>", true), (std::vector<int32_t>{tokenizer->eod_id()}));
}

TEST(Tokenizer, B80_LeadingSpace) {
  const auto plain = fixture("gpt2");
  const auto prefixed = fixture("prefix");
  for (const char* text : {"", " ", "  x", "x  ", "\t", "\n", " !", "\n\nfoo"}) {
    EXPECT_EQ(plain->decode(plain->encode(text)), text);
    const std::string spaced =
        std::string(text).starts_with(' ') ? text : std::string(" ").append(text);
    if (*text != 0) {
      EXPECT_EQ(prefixed->decode(prefixed->encode(text)), spaced);
    }
  }
  EXPECT_EQ(prefixed->decode(prefixed->encode("\xff")), " \xff");
}

TEST(Tokenizer, B78_UnsupportedPartsAreRefusedByName) {
  const auto with = [](const char* key, Json value) {
    Json json = small_tokenizer();
    json.set(key, std::move(value));
    return json;
  };
  const auto with_model = [](const char* key, Json value) {
    Json json = small_tokenizer();
    member(json, "model").set(key, std::move(value));
    return json;
  };
  const auto type = [](const char* name) { return Json::object({{"type", name}}); };
  EXPECT_EQ(refusal(small_tokenizer()), "");
  expect_refused(with("version", "2.0"), "version 2.0");
  expect_refused(with("normalizer", type("NFKC")), "normalizer NFKC");
  expect_refused(with("normalizer",
                      Json::object({{"type", "Sequence"},
                                    {"normalizers", Json::Array{type("NFC"), type("Lowercase")}}})),
                 "normalizer Lowercase");
  expect_refused(with("pre_tokenizer", type("Metaspace")), "pre_tokenizer Metaspace");
  expect_refused(with("pre_tokenizer", Json()), "no pre_tokenizer");
  expect_refused(with("decoder", type("WordPiece")), "decoder WordPiece");
  expect_refused(with("post_processor", type("Other")), "post_processor Other");
  expect_refused(with_model("type", "Unigram"), "model Unigram");
  expect_refused(with_model("type", "WordPiece"), "model WordPiece");
  expect_refused(with_model("byte_fallback", true), "byte_fallback");
  expect_refused(with_model("dropout", 0.1), "dropout");
  expect_refused(with_model("end_of_word_suffix", "</w>"), "end_of_word_suffix");
  expect_refused(with_model("continuing_subword_prefix", "##"), "continuing_subword_prefix");
  expect_refused(with_model("unk_token", "<none>"), "unk_token");
  expect_refused(with_model("merges", Json::Array{"a b c"}), "merge \"a b c\"");
  expect_refused(with_model("merges", Json::Array{"zq zq"}), "token \"zqzq\"");
  expect_refused(with_model("merges", Json::Array{Json(7)}), "expected an array");
  expect_refused(with_model("vocab", Json(7)), "expected an object");
  expect_refused(with("added_tokens", Json::Array{}), "no end-of-document token");
  const auto split = [&](Json pattern, const char* behavior) {
    const Json step =
        Json::object({{"type", "Split"}, {"pattern", std::move(pattern)}, {"behavior", behavior}});
    return with("pre_tokenizer",
                Json::object({{"type", "Sequence"}, {"pretokenizers", Json::Array{step}}}));
  };
  expect_refused(split(Json::object({{"Regex", "a"}}), "Removed"), "behavior Removed");
  expect_refused(split(Json::object({{"Regex", "(a"}}), "Isolated"), "pattern \"(a\"");
  expect_refused(split(Json::object({{"Regex", "a"}}), "Isolated"), "without ByteLevel");
}

TEST(Tokenizer, DamagedVocabularies) {
  const auto with_vocab = [](const char* token, int64_t id) {
    Json json = small_tokenizer();
    member(member(json, "model"), "vocab").set(token, id);
    return json;
  };
  expect_refused(with_vocab("qqq", 3), "twice");
  expect_refused(with_vocab("qqq", -1), "id -1");
  expect_refused(with_vocab("qqq", int64_t{1} << 40), "id 1099511627776");
  EXPECT_THROW(parse_tokenizer_json("{\"model\":", "T.json"), InputError);
  EXPECT_THROW(load_tokenizer("/no/such/tokenizer"), InputError);
}

TEST(Tokenizer, MissingBytesAreRefusedUnlessThereIsAnUnknownToken) {
  Json json =
      Json::object({{"version", "1.0"}, {"pre_tokenizer", Json::object({{"type", "ByteLevel"}})}});
  Json vocab = Json::object({{"a", 0}, {"b", 1}, {"ab", 2}, {"</s>", 3}, {"<unk>", 4}});
  json.set("model",
           Json::object({{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::Array{"a b"}}}));
  member(json, "pre_tokenizer").set("add_prefix_space", false);
  const auto strict = parse_tokenizer_json(json.dump(), "T.json");
  EXPECT_EQ(strict->encode("abba"), (std::vector<int32_t>{2, 1, 0}));
  EXPECT_THROW(strict->encode("abc"), InputError);
  EXPECT_EQ(strict->eod_id(), 3);
  member(json, "model").set("unk_token", "<unk>");
  EXPECT_EQ(parse_tokenizer_json(json.dump(), "T.json")->encode("accb"),
            (std::vector<int32_t>{0, 4, 4, 1}));
  member(json, "model").set("fuse_unk", true);
  EXPECT_EQ(parse_tokenizer_json(json.dump(), "T.json")->encode("accb"),
            (std::vector<int32_t>{0, 4, 1}));
}

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "weft-tok-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ + "/" + name, std::ios::binary) << text;
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(Tokenizer, VocabAndMergesPair) {
  const Folder folder;
  const Json json = small_tokenizer();
  Json vocab = json.at("model").at("vocab");
  const int64_t end = static_cast<int64_t>(vocab.as_object().size());
  vocab.set("<|endoftext|>", end);
  folder.write("vocab.json", vocab.dump());
  std::string merges = "#version: 0.2\n";
  for (const Json& merge : json.at("model").at("merges").as_array()) {
    merges += merge.as_string() + "\r\n";
  }
  folder.write("merges.txt", merges);
  const auto pair = load_tokenizer(folder.path());
  EXPECT_EQ(pair->eod_id(), end);
  const std::string text = "It is a truth universally acknowledged,  12345\r\n";
  EXPECT_EQ(pair->encode(text), fixture("gpt2")->encode(text));
  EXPECT_EQ(pair->encode("<|endoftext|>", true), (std::vector<int32_t>{pair->eod_id()}));
  folder.write("tokenizer_config.json", R"({"tokenizer_class":"CodeGenTokenizer"})");
  EXPECT_THROW(load_tokenizer(folder.path()), InputError);
}

TEST(Tokenizer, EndOfDocumentFromTheCompanionFile) {
  const Folder folder;
  Json json = small_tokenizer();
  json.set("added_tokens", Json::Array{Json::object({{"id", 600}, {"content", "<stop>"}})});
  folder.write("tokenizer.json", json.dump());
  EXPECT_THROW(load_tokenizer(folder.path()), InputError);
  folder.write("tokenizer_config.json", R"({"eos_token":{"content":"<stop>"}})");
  const auto tokenizer = load_tokenizer(folder.path());
  EXPECT_EQ(tokenizer->eod_id(), 600);
  EXPECT_EQ(tokenizer->vocab_size(), 601);
  const auto ids = tokenizer->encode("<stop>");
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 600), 0);
  EXPECT_THROW(tokenizer->decode(std::vector<int32_t>{599}), InputError);
}

// The length of a run may not change the work per byte: counted, not timed.
TEST(MergeTable, B79_WorkGrowsAlmostLinearly) {
  MergeTable table;
  table.add(0, 0, 0, 1);
  table.add(1, 1, 1, 2);
  table.add(2, 2, 2, 3);
  table.add(3, 3, 3, 4);
  const auto steps = [&](size_t length) {
    std::vector<int32_t> symbols(length, 0);
    MergeWork work;
    table.merge(symbols, &work);
    EXPECT_EQ(symbols.size(), (length + 15) / 16);
    return work.steps;
  };
  const int64_t once = steps(1 << 19);
  const int64_t twice = steps(1 << 20);
  EXPECT_LT(once, int64_t{8} << 19);
  EXPECT_LT(twice, 2 * once + 100);
}

TEST(MergeTable, ShortAndLongAgree) {
  MergeTable table;
  const RngStream stream(3, "rules");
  for (int32_t rank = 0; rank < 60; ++rank) {
    const auto bound = static_cast<uint64_t>(4 + rank);
    table.add(static_cast<int32_t>(stream.below(static_cast<uint64_t>(rank) * 2, bound)),
              static_cast<int32_t>(stream.below(static_cast<uint64_t>(rank) * 2 + 1, bound)), rank,
              4 + rank);
  }
  // A symbol that no rule knows keeps the halves apart, so the long form must give both halves.
  for (uint64_t round = 0; round < 200; ++round) {
    std::vector<int32_t> left, right;
    for (uint64_t i = 0; i < 20; ++i) {
      left.push_back(static_cast<int32_t>(stream.below(1000 + round * 64 + i, 4)));
      right.push_back(static_cast<int32_t>(stream.below(1000 + round * 64 + 32 + i, 4)));
    }
    std::vector<int32_t> both = left;
    both.push_back(1000);
    both.insert(both.end(), right.begin(), right.end());
    table.merge(left);
    table.merge(right);
    table.merge(both);
    left.push_back(1000);
    left.insert(left.end(), right.begin(), right.end());
    EXPECT_EQ(both, left);
  }
}

TEST(Tokenizer, B79_LongRunsWithoutABreak) {
  std::string base64;
  const RngStream stream(11, "base64");
  const std::string letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (uint64_t i = 0; i < (1u << 20); ++i) base64 += letters[stream.below(i, 64)];
  std::string cjk;
  while (cjk.size() < (1u << 20)) cjk += "\xe6\xb1\x89";
  const std::vector<std::string> texts = {std::string(1 << 20, 'a'),
                                          std::string(1 << 20, '_'),
                                          std::string(1 << 20, ' '),
                                          std::string(1 << 20, '\n'),
                                          cjk,
                                          base64};
  for (const char* name : {"gpt2", "qwen"}) {
    const auto tokenizer = fixture(name);
    for (const std::string& text : texts) {
      EXPECT_TRUE(tokenizer->decode(tokenizer->encode(text)) == text) << name << text.substr(0, 9);
    }
  }
  // Ten times that: no deep recursion in the patterns.
  const auto tokenizer = fixture("ignore_merges_on");
  for (const char c : {'x', ' '}) {
    const std::string text(10 << 20, c);
    EXPECT_TRUE(tokenizer->decode(tokenizer->encode(text)) == text) << c;
  }
}

TEST(Tokenizer, APatternThatExplodesIsAnError) {
  Json json = small_tokenizer();
  const Json split = Json::object({{"type", "Split"},
                                   {"pattern", Json::object({{"Regex", "(?:a+)+b"}})},
                                   {"behavior", "Isolated"}});
  const Json level = Json::object({{"type", "ByteLevel"}, {"add_prefix_space", false}});
  json.set("pre_tokenizer",
           Json::object({{"type", "Sequence"}, {"pretokenizers", Json::Array{split, level}}}));
  const auto tokenizer = parse_tokenizer_json(json.dump(), "T.json");
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("xaab aa")), "xaab aa");
  EXPECT_THROW(tokenizer->encode(std::string(64, 'a') + "cb"), InputError);
}

}  // namespace
}  // namespace weft
