#include "weft/data/dataset.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>

#include "weft/base/error.h"
#include "weft/data/loader.h"
#include "weft/data/token_file.h"
#include "weft/data/tokenize.h"

namespace weft {
namespace {

using Ids = std::vector<int32_t>;

struct Sample {
  Ids tokens, labels, positions, segments;
  int32_t length = 0;
};

class DataTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "weft-data-XXXXXX").string();
    folder_ = mkdtemp(name.data());
    config_.seq_len = 4;
    config_.shuffle = false;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string put(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << text;
    return folder_ + "/" + name;
  }
  std::string put_tokens(const std::string& name, const std::vector<Ids>& documents) const {
    TokenFileWriter writer(folder_ + "/" + name, 300);
    for (const Ids& document : documents) writer.add_document(document);
    writer.finish();
    return folder_ + "/" + name;
  }
  DataSets open() const { return open_datasets(config_, "", *tokenizer_); }
  DataSets open(std::vector<std::string> train) {
    config_.train = std::move(train);
    return open();
  }
  static Sample sample(const Dataset& data, int64_t index) {
    Sample result;
    for (Ids* ids : {&result.tokens, &result.labels, &result.positions, &result.segments}) {
      ids->assign(static_cast<size_t>(data.seq_len()), -7);
    }
    data.read_sample(index, {result.tokens.data(), result.labels.data(), result.positions.data(),
                             result.segments.data(), &result.length});
    return result;
  }
  template <class Error = InputError>
  static std::string refusal(const std::function<void()>& work) {
    try {
      work();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  std::string refused_row(const std::string& text) {
    const std::string path = put("bad.jsonl", text);
    return refusal([&] { open({path}); });
  }

  std::string folder_;
  DataConfig config_;
  std::unique_ptr<Tokenizer> tokenizer_ = make_byte_tokenizer();
};

TEST_F(DataTest, StreamIsDocumentsWithOneEndEach) {
  const DataSets sets = open({put("a.txt", "abc"), put("b.txt", "defgh")});
  const Dataset& data = *sets.train;
  // a b c END d e f g h END: 10 tokens, 2 samples of 5 that share one token.
  EXPECT_EQ(data.num_samples(), 2);
  EXPECT_EQ(sample(data, 0).tokens, (Ids{'a', 'b', 'c', 256}));
  EXPECT_EQ(sample(data, 0).labels, (Ids{'b', 'c', 256, 'd'}));
  EXPECT_EQ(sample(data, 1).tokens, (Ids{'d', 'e', 'f', 'g'}));
  EXPECT_EQ(sample(data, 1).labels, (Ids{'e', 'f', 'g', 'h'}));
  EXPECT_EQ(sample(data, 1).positions, (Ids{0, 1, 2, 3}));
  EXPECT_EQ(sample(data, 0).segments, (Ids{0, 0, 0, 0}));
  EXPECT_EQ(data.counts().documents, 2);
  EXPECT_EQ(data.counts().tokens, 10);
  EXPECT_EQ(sets.valid, nullptr);
}

TEST_F(DataTest, TokenFilesAreJoinedAsStored) {
  const auto owner =
      open({put_tokens("a", {{1, 2, 3}, {4}}), put("b.txt", "x"), put_tokens("c", {{7, 8, 9}})})
          .train;
  const Dataset& data = *owner;
  EXPECT_EQ(data.num_samples(), 2);
  EXPECT_EQ(sample(data, 0).tokens, (Ids{1, 2, 3, 4}));
  EXPECT_EQ(sample(data, 0).labels, (Ids{2, 3, 4, 'x'}));
  EXPECT_EQ(sample(data, 1).tokens, (Ids{'x', 256, 7, 8}));
  EXPECT_EQ(sample(data, 1).labels, (Ids{256, 7, 8, 9}));
}

TEST_F(DataTest, ADocumentOfExactlyOneSample) {
  EXPECT_EQ(open({put("a.txt", "abcd")}).train->num_samples(), 1);  // 4 + END = seq_len + 1
  EXPECT_EQ(open({put("a.txt", "abcde")}).train->num_samples(), 1);
  EXPECT_EQ(open({put("a.txt", "abcdefgh")}).train->num_samples(), 2);
  const std::string path = put("a.txt", "abc");
  EXPECT_NE(refusal([&] { open({path}); }).find("got 4 tokens in 1 documents"), std::string::npos);
}

TEST_F(DataTest, B50_EmptyDocumentsAreSkippedAndCounted) {
  const std::string rows =
      "{\"text\":\"\"}\n{\"text\":\"abc\"}\n{\"text\":\" \\n\\t\"}\n{\"text\":\"\"}\n"
      "{\"text\":\"\"}\n\n{\"text\":\"de\"}\n{\"input_ids\":[]}\n{\"text\":\"\"}";
  const auto owner = open({put("a.jsonl", rows), put("b.txt", ""), put("c.txt", "\n")}).train;
  const Dataset& data = *owner;
  EXPECT_EQ(data.counts().documents, 2);
  EXPECT_EQ(data.counts().tokens, 7);
  EXPECT_EQ(data.counts().skipped, 8);
  EXPECT_EQ(sample(data, 0).tokens, (Ids{'a', 'b', 'c', 256}));
  EXPECT_EQ(sample(data, 0).labels, (Ids{'b', 'c', 256, 'd'}));
  const std::string empty = put("d.jsonl", "{\"text\":\"\"}\n{\"text\":\"\"}\n");
  EXPECT_NE(refusal([&] { open({empty}); }).find("got 0 tokens in 0 documents (2 empty ones"),
            std::string::npos);
}

TEST_F(DataTest, B50_BadRowsNameTheirNumber) {
  const auto expect = [&](const std::string& row, const std::string& part) {
    const std::string message = refused_row("{\"text\":\"ok\"}\n\n" + row + "\n{\"text\":\"ok\"}");
    EXPECT_NE(message.find("bad.jsonl row 3]"), std::string::npos) << message;
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect(R"({"text":7})", "got a number for \"text\"");
  expect(R"({"text":null})", "got null for \"text\"");
  expect(R"({"id":1})", "got no such key for \"text\"");
  expect(R"([1])", "got an array");
  expect(R"({"text":"a")", "invalid JSON");
  expect("{\"text\":\"\xff\"}", "invalid JSON");
  expect(R"({"text":"a","text":"b"})", "duplicate key");
  expect(R"({"input_ids":7})", "got a number for \"input_ids\"");
  expect(R"({"input_ids":[1,2,3,4,5]})", "got 5 input_ids, expected at most seq_len = 4");
  expect(R"({"input_ids":[1,257]})", "got 257 at position 1 of \"input_ids\"");
  expect(R"({"input_ids":[-100]})", "got -100 at position 0 of \"input_ids\"");
  expect(R"({"input_ids":[1.0]})", "at position 0");
  expect(R"({"input_ids":[1],"labels":[-1]})", "got -1 at position 0 of \"labels\"");
  expect(R"({"input_ids":[1,2],"labels":[1]})", "got 1 labels for 2 input_ids");
  expect(R"({"input_ids":[1,2],"attention_mask":[1,0]})", "attention_mask");
}

TEST_F(DataTest, RowsEndAtLineFeedOnly) {
  const auto owner =
      open({put("a.jsonl", "{\"text\":\"a\xe2\x80\xa8\xc2\x85z\"}\r\n{\"text\":\"b\"}\r\n")}).train;
  const Dataset& data = *owner;
  EXPECT_EQ(data.counts().documents, 2);
  EXPECT_EQ(data.counts().tokens, 10);
}

TEST_F(DataTest, B51_PaddingIsKnownByPlaceAndLabelsShiftOnce) {
  config_.seq_len = 8;
  // 1 1 END 2 2 END, padded with END: five labels count, the END after 1 among them.
  const std::string path = put("a.jsonl", R"({"input_ids":[1,1,256,2,2,256]})");
  Sample row = sample(*open({path}).train, 0);
  EXPECT_EQ(row.tokens, (Ids{1, 1, 256, 2, 2, 256, 256, 256}));
  EXPECT_EQ(row.labels, (Ids{1, 256, 2, 2, 256, -100, -100, -100}));
  EXPECT_EQ(row.length, 6);
  EXPECT_EQ(eval_batch(*open({path}).train, 0, 2).lengths, (std::vector<int32_t>{6, 0}));
  EXPECT_EQ(eval_batch(*open({path}).train, 0, 1).valid_labels, 5);
  config_.mask_boundary = true;
  row = sample(*open({path}).train, 0);
  EXPECT_EQ(row.labels, (Ids{1, 256, -100, 2, 256, -100, -100, -100}));
  EXPECT_EQ(eval_batch(*open({path}).train, 0, 1).valid_labels, 4);
  // The same with the padding written out and masked by the user.
  config_.mask_boundary = false;
  const std::string padded = put("b.jsonl", R"({"input_ids":[1,1,256,2,2,256,256,256],)"
                                            R"("labels":[1,1,256,2,2,256,-100,-100]})");
  EXPECT_EQ(sample(*open({padded}).train, 0).labels, (Ids{1, 256, 2, 2, 256, -100, -100, -100}));
}

TEST_F(DataTest, B51_PositionsAndSegmentsFollowTheirOptions) {
  config_.seq_len = 6;
  const std::string path = put_tokens("a", {{1, 1, 256}, {2, 2, 256, 3}});
  Sample plain = sample(*open({path}).train, 0);
  EXPECT_EQ(plain.positions, (Ids{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(plain.segments, (Ids{0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(plain.labels, (Ids{1, 256, 2, 2, 256, 3}));
  config_.reset_positions = true;
  EXPECT_EQ(sample(*open({path}).train, 0).positions, (Ids{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(sample(*open({path}).train, 0).segments, plain.segments);
  config_.reset_attention = true;
  EXPECT_EQ(sample(*open({path}).train, 0).segments, (Ids{0, 0, 0, 1, 1, 1}));
  config_.mask_boundary = true;
  EXPECT_EQ(sample(*open({path}).train, 0).labels, (Ids{1, 256, -100, 2, 256, -100}));
}

TEST_F(DataTest, TextAndRowsInOneFile) {
  const auto owner = open({put("a.jsonl", "{\"text\":\"abcd\"}\n{\"input_ids\":[1,2]}\n")}).train;
  const Dataset& data = *owner;
  EXPECT_EQ(data.num_samples(), 2);
  EXPECT_EQ(sample(data, 0).tokens, (Ids{'a', 'b', 'c', 'd'}));
  EXPECT_EQ(sample(data, 1).labels, (Ids{2, -100, -100, -100}));
}

TEST_F(DataTest, B48_TokenFileWithIdsOutsideTheVocabulary) {
  const DataSets sets = open({put_tokens("a", {{1, 2, 3}, {4, 299, 5}})});
  EXPECT_NE(refusal([&] { sample(*sets.train, 0); }).find("id 299 in document 1 at position 1"),
            std::string::npos);
  Loader loader(sets.train, {.global_batch = 1});
  EXPECT_THROW(loader.next(), InputError);
  EXPECT_THROW(loader.next(), InputError);
}

TEST_F(DataTest, ValidationIsTheEndOfTheStream) {
  config_.valid_fraction = 0.29;
  std::string text;
  for (int i = 0; i < 400; ++i) text += static_cast<char>('a' + i % 26);
  const DataSets sets = open({put("a.txt", text)});
  EXPECT_EQ(sets.train->num_samples(), 71);
  EXPECT_EQ(sets.valid->num_samples(), 29);
  EXPECT_EQ(sample(*sets.valid, 0).tokens[0], text[71 * 4]);
  const auto alone = open_valid_dataset(config_, "", *tokenizer_);
  EXPECT_EQ(sample(*alone, 28).tokens, sample(*sets.valid, 28).tokens);
  config_.valid_fraction = 0.001;
  EXPECT_NE(refusal([&] { open(); }).find("got 0 validation samples"), std::string::npos);
  config_.valid_fraction = 0;
  EXPECT_THROW(open_valid_dataset(config_, "", *tokenizer_), UsageError);
}

TEST_F(DataTest, B52_OrderOfFilesIsThatOfTheirNames) {
  for (const char* name : {"z.txt", "m.txt", "a b.txt", "notes.md"}) {
    put(name, std::string(1, name[0]) + "...");
  }
  const auto firsts = [&](const std::string& path) {
    const auto owner = open({path}).train;
    const Dataset& data = *owner;
    return Ids{sample(data, 0).tokens[0], sample(data, 1).tokens[1], sample(data, 2).tokens[2]};
  };
  EXPECT_EQ(firsts(folder_), (Ids{'a', 'm', 'z'}));
  EXPECT_EQ(firsts(folder_ + "/*.txt"), (Ids{'a', 'm', 'z'}));
  EXPECT_THROW(open({folder_ + "/*.nothing"}), InputError);
  EXPECT_NE(refusal([&] { open({folder_ + "/notes.md"}); }).find("notes.md"), std::string::npos);
  EXPECT_NE(refusal([&] { open({folder_ + "/gone.txt"}); }).find("gone.txt"), std::string::npos);
}

TEST_F(DataTest, B52_EachEpochIsCompleteAndTheSameForEveryPosition) {
  config_.seq_len = 1;
  std::vector<std::string> files;
  for (const char* name : {"a", "b", "c"}) {
    const auto base = static_cast<int32_t>(files.size()) * 4;
    files.push_back(put_tokens(name, {{base, base + 1, base + 2, base + 3}}));
  }
  files.push_back(put_tokens("d", {{99}}));
  const auto data = open(files).train;
  ASSERT_EQ(data->num_samples(), 12);
  const LoaderOptions options{.seed = 5, .shuffle = true, .global_batch = 6};
  Loader loader(data, options);
  std::vector<Ids> batches;
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::set<int32_t> seen;
    for (int step = 0; step < 2; ++step) {
      EXPECT_EQ(loader.epoch(), epoch);
      const GlobalBatch batch = loader.next();
      EXPECT_EQ(batch.epoch, epoch);
      EXPECT_EQ(batch.samples[5], epoch * 12 + step * 6 + 5);
      EXPECT_EQ(batch.valid_labels, 6);
      seen.insert(batch.tokens.begin(), batch.tokens.end());
      batches.push_back(batch.tokens);
    }
    EXPECT_EQ(seen.size(), 12u);
  }
  EXPECT_NE(batches[0], batches[2]);
  EXPECT_EQ(loader.samples_consumed(), 36);
  for (int64_t start = 0; start < 36; start += 6) {
    LoaderOptions later = options;
    later.start = start;
    EXPECT_EQ(Loader(data, later).next().tokens, batches[static_cast<size_t>(start / 6)]);
  }
}

TEST_F(DataTest, EpochsAreCutToWholeGlobalBatches) {
  config_.seq_len = 1;
  const auto data = open({put_tokens("a", {{0, 1, 2, 3, 4, 5, 6, 7}})}).train;  // 7 samples
  Loader loader(data, {.shuffle = false, .global_batch = 3});
  EXPECT_EQ(loader.epoch_samples(), 6);
  EXPECT_EQ(loader.dropped_per_epoch(), 1);
  EXPECT_EQ(loader.next().tokens, (Ids{0, 1, 2}));
  EXPECT_EQ(loader.next().tokens, (Ids{3, 4, 5}));
  const GlobalBatch third = loader.next();
  EXPECT_EQ(third.tokens, (Ids{0, 1, 2}));
  EXPECT_EQ(third.epoch, 1);
  EXPECT_EQ(third.samples, (std::vector<int64_t>{6, 7, 8}));
  EXPECT_NE(refusal([&] { Loader(data, {.global_batch = 8}); }).find("got 7 samples"),
            std::string::npos);
}

TEST_F(DataTest, B49_SmallSourcesWrapIntoTheirNextEpoch) {
  config_.seq_len = 1;
  Ids small, large;
  for (int32_t i = 0; i < 11; ++i) {
    small.push_back(i);
    large.push_back(100 + i);
  }
  const std::string a = put_tokens("a", {small});
  const std::string b = put_tokens("b", {large});
  const auto counts = [&](std::vector<double> weights, int64_t samples) {
    config_.weights = std::move(weights);
    Loader loader(open({a, b}).train, {.seed = 3, .shuffle = true, .global_batch = 10});
    std::map<int32_t, int64_t> seen;
    for (int64_t n = 0; n < samples; n += 10) {
      for (const int32_t id : loader.next().tokens) ++seen[id];
    }
    return seen;
  };
  std::map<int32_t, int64_t> seen = counts({0.001, 0.999}, 200);
  int64_t of_a = 0;
  for (int32_t i = 0; i < 10; ++i) of_a += seen[i];
  EXPECT_LE(of_a, 1);
  for (int32_t i = 100; i < 110; ++i) EXPECT_NEAR(static_cast<double>(seen[i]), 20, 1.0) << i;
  seen = counts({0, 1}, 100);
  for (int32_t i = 100; i < 110; ++i) EXPECT_EQ(seen[i], 10);
  seen = counts({0.75, 0.25}, 40);
  for (int32_t i = 0; i < 10; ++i) EXPECT_EQ(seen[i], 3);
  for (int32_t i = 100; i < 110; ++i) EXPECT_EQ(seen[i], 1);
  config_.weights = {1};
  EXPECT_THROW(open({a, b}), UsageError);
}

TEST_F(DataTest, B64_EvaluationSeesEverySampleOnce) {
  config_.seq_len = 5;
  std::string rows;
  int64_t labels = 0;
  for (int i = 0; i < 7; ++i) {
    rows += "{\"input_ids\":[" + std::to_string(i);
    for (int j = 0; j < i % 4; ++j) rows.append(",").append(std::to_string(10 + j));
    rows += "]}\n";
    labels += i % 4;
  }
  const auto data = open({put("a.jsonl", rows)}).train;
  for (const int64_t batch : {1, 2, 3, 7, 10}) {
    int64_t valid = 0;
    Ids first;
    const int64_t batches = num_eval_batches(*data, batch);
    EXPECT_EQ(batches, (7 + batch - 1) / batch);
    for (int64_t index = 0; index < batches; ++index) {
      const GlobalBatch rows_of = eval_batch(*data, index, batch);
      EXPECT_EQ(rows_of.tokens.size(), static_cast<size_t>(batch * 5));
      valid += rows_of.valid_labels;
      for (int64_t row = 0; row < batch; ++row) {
        first.push_back(rows_of.tokens[static_cast<size_t>(row * 5)]);
      }
    }
    EXPECT_EQ(valid, labels);
    first.resize(7);
    EXPECT_EQ(first, (Ids{0, 1, 2, 3, 4, 5, 6}));
  }
}

TEST_F(DataTest, B85_AFileThatVanishesDuringTheRunIsNamed) {
  config_.seq_len = 1;
  const auto data = open({put_tokens("gone", {{1, 2, 3, 4, 5, 6, 7, 8, 9}})}).train;
  Loader loader(data, {.shuffle = false, .global_batch = 1});
  loader.next();
  std::filesystem::resize_file(folder_ + "/gone.bin", 2);
  const std::string message = refusal([&] {
    for (int i = 0; i < 3; ++i) loader.next();
  });
  EXPECT_NE(message.find("gone.bin"), std::string::npos) << message;
}

TEST_F(DataTest, TokenizeWritesWhatTheLoaderReads) {
  const std::string rows =
      put("a.jsonl", "{\"text\":\"abc\"}\n{\"text\":\"\"}\n{\"text\":\"d\"}\n");
  const std::string text = put("b.txt", "efgh");
  int64_t last = 0;
  const SourceCounts counts = tokenize_files({rows, text}, *tokenizer_, false, folder_ + "/out",
                                             [&](int64_t done, int64_t total) {
                                               EXPECT_GE(done, last);
                                               EXPECT_LE(done, total);
                                               last = done;
                                             });
  EXPECT_EQ(counts.documents, 3);
  EXPECT_EQ(counts.tokens, 11);
  EXPECT_EQ(counts.skipped, 1);
  const TokenFile file(folder_ + "/out", std::make_shared<FilePool>(), 257);
  EXPECT_EQ(file.document(0), (Ids{'a', 'b', 'c', 256}));
  EXPECT_EQ(file.document(2), (Ids{'e', 'f', 'g', 'h', 256}));
  const auto stored = open({folder_ + "/out"}).train;
  const auto direct = open({rows, text}).train;
  ASSERT_EQ(stored->num_samples(), direct->num_samples());
  EXPECT_EQ(sample(*stored, 1).labels, sample(*direct, 1).labels);

  const std::string empty = put("c.txt", " ");
  const std::string ids = put("d.jsonl", "{\"input_ids\":[1]}\n");
  for (const std::string& bad : {empty, ids, folder_ + "/out"}) {
    EXPECT_THROW(tokenize_files({bad}, *tokenizer_, false, folder_ + "/no", {}), InputError);
    EXPECT_FALSE(std::filesystem::exists(folder_ + "/no.bin.part"));
    EXPECT_FALSE(std::filesystem::exists(folder_ + "/no.idx"));
  }
}

TEST_F(DataTest, InspectCountsAndShowsDocuments) {
  const std::string tokens = put_tokens("a", {{1, 2, 299}, {}, {4}});
  const DatasetSummary summary = summarize_dataset(tokens, *tokenizer_);
  EXPECT_EQ(summary.documents, 3);
  EXPECT_EQ(summary.tokens, 4);
  EXPECT_EQ(summary.dtype, "u16");
  EXPECT_EQ(summary.max_id, 299);
  EXPECT_EQ(dataset_document(tokens + ".idx", *tokenizer_, 2), (Ids{4}));
  EXPECT_THROW(dataset_document(tokens, *tokenizer_, 3), UsageError);
  const std::string rows = put("b.jsonl", "{\"text\":\"ab\"}\n{\"text\":\"\"}\n{\"text\":\"c\"}\n");
  EXPECT_EQ(summarize_dataset(rows, *tokenizer_).tokens, 5);
  EXPECT_EQ(summarize_dataset(rows, *tokenizer_).skipped, 1);
  EXPECT_EQ(dataset_document(rows, *tokenizer_, 1), (Ids{'c', 256}));
  EXPECT_TRUE(is_dataset_path(rows) && is_dataset_path(tokens));
  EXPECT_FALSE(is_dataset_path(folder_));
}

}  // namespace
}  // namespace weft
