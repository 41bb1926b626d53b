// Import from and export to Hugging Face folders.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/checkpoint/checkpoint.h"
#include "weft/checkpoint/fake_store.h"
#include "weft/checkpoint/hf_export.h"
#include "weft/checkpoint/hf_import.h"
#include "weft/checkpoint/rank_layout.h"
#include "weft/comm/launch.h"
#include "weft/io/faulty.h"
#include "weft/io/hf_folder.h"
#include "weft/io/test_folder.h"

namespace weft {
namespace {

constexpr const char* kFused = "transformer.h.0.attn.c_attn.weight";

struct Tensor {
  std::string name;
  Shape shape;
  std::vector<float> values;
  DType dtype = DType::f32;
};

class HfModel : public ::testing::Test {
 protected:
  /// Tensors of the fake model with values from `store` (whole cut).
  std::vector<Tensor> tensors_of(FakeStore store, DType dtype) {
    std::vector<Tensor> tensors;
    for (const char* name : {"transformer.wte.weight", kFused, "transformer.h.0.attn.c_proj.weight",
                             "transformer.h.0.ln_1.weight"}) {
      const std::string master = std::string(name) + "@master";
      const TensorType& type = store.states()[static_cast<size_t>(store.index(master))].type;
      const float* data = store.values(master);
      tensors.push_back(
          {name, type.shape, std::vector<float>(data, data + type.elements()), dtype});
    }
    return tensors;
  }
  void write_hf(const std::string& folder, const std::vector<Tensor>& tensors,
                int64_t shard_bytes = kDefaultShardBytes) {
    files_.remove_all(folder);
    files_.make_folders(folder);
    std::vector<TensorInfo> infos;
    for (const Tensor& tensor : tensors) infos.push_back({tensor.name, tensor.dtype, tensor.shape});
    HfWriter writer(files_, folder, infos, shard_bytes);
    for (const Tensor& tensor : tensors) {
      const auto count = static_cast<int64_t>(tensor.values.size());
      std::vector<char> data(static_cast<size_t>(count * dtype_size(tensor.dtype)));
      convert_elements(tensor.values.data(), DType::f32, data.data(), tensor.dtype, count);
      writer.write(tensor.name, data.data());
    }
    writer.finish();
  }
  std::vector<char> bytes_of(const std::string& folder, const std::string& name) {
    HfTensors tensors(files_, folder);
    const HfTensors::Item* item = tensors.find(name);
    if (item == nullptr) {
      ADD_FAILURE() << "no " << name;
      return {};
    }
    std::vector<char> data(static_cast<size_t>(item->entry.bytes));
    tensors.read(*item, 0, data.data(), item->entry.bytes);
    return data;
  }
  template <class E, class Call>
  void expect_error(Call&& call, const std::vector<std::string>& parts) {
    try {
      call();
      FAIL() << "accepted";
    } catch (const E& error) {
      for (const std::string& part : parts) {
        EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
      }
    }
  }
  void expect_import_error(const std::vector<Tensor>& tensors,
                           const std::vector<std::string>& parts) {
    write_hf(hf_, tensors);
    FakeStore store = make_fake();
    expect_error<InputError>([&] { import_hf_weights(files_, store, hf_); }, parts);
  }

  TestFolder folder_;
  FaultyDriver driver_{posix_driver()};
  FileSystem files_{driver_};
  std::string hf_ = folder_.file("hf");
  std::string out_ = folder_.file("out");
};

TEST_F(HfModel, ImportFillsSlicesOfFusedTensors) {
  FakeStore whole = make_fake(Cut::whole);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    write_hf(hf_, tensors_of(whole, dtype));
    for (const Cut cut : {Cut::columns, Cut::rows, Cut::whole}) {
      FakeStore expected = make_fake(cut, false);
      FakeStore store = make_fake(cut, false);
      store.fill(9);
      const ImportReport report = import_hf_weights(files_, store, hf_);
      EXPECT_EQ(store.stored(), expected.stored());
      EXPECT_EQ(store.refreshed, 1);
      EXPECT_EQ(report.dtype, dtype_name(dtype));
      EXPECT_TRUE(report.tensor_dtypes.empty());
      EXPECT_EQ(report.tensors, 4);
    }
  }
}

TEST_F(HfModel, ImportLeavesMomentsAlone) {
  FakeStore store = make_fake();
  write_hf(hf_, tensors_of(make_fake(Cut::whole), DType::f32));
  store.values("transformer.wte.weight@m")[0] = 42.0f;
  import_hf_weights(files_, store, hf_);
  EXPECT_EQ(store.values("transformer.wte.weight@m")[0], 42.0f);
}

TEST_F(HfModel, PrefixMayBeMissingAndBuffersAreIgnored) {
  std::vector<Tensor> tensors = tensors_of(make_fake(Cut::whole), DType::f32);
  for (Tensor& tensor : tensors) tensor.name = tensor.name.substr(12);
  tensors.push_back({"h.0.attn.bias", {1, 1, 2, 2}, {1, 0, 1, 1}});
  tensors.push_back({"h.0.attn.masked_bias", {}, {-1e4f}});
  tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", {2}, {1, 2}});
  write_hf(hf_, tensors, 100);
  FakeStore store = make_fake();
  FakeStore expected = make_fake();
  store.fill(3);
  import_hf_weights(files_, store, hf_);
  EXPECT_EQ(std::memcmp(store.values(kFused + std::string("#k@master")),
                        expected.values(kFused + std::string("#k@master")), 64),
            0);
}

TEST_F(HfModel, MissingUnexpectedAndReshapedTensorsAreRefusedByName) {
  const std::vector<Tensor> good = tensors_of(make_fake(Cut::whole), DType::f32);
  std::vector<Tensor> tensors = good;
  tensors.erase(tensors.begin() + 1);
  expect_import_error(tensors, {kFused, "missing"});
  tensors = good;
  tensors.push_back({"transformer.h.1.ln_1.weight", {4}, {1, 2, 3, 4}});
  expect_import_error(tensors, {"transformer.h.1.ln_1.weight", "not part of this model"});
  tensors = good;
  tensors[1].shape = {12, 4};
  expect_import_error(tensors, {kFused, "[12, 4]", "[4, 12]", "model.safetensors"});
  tensors = good;
  tensors.push_back({"wte.weight", {6, 4}, good[0].values});
  expect_import_error(tensors, {"wte.weight", "the same as"});
}

TEST_F(HfModel, B20_UnsupportedDtypeIsRefusedByName) {
  write_hf(hf_, tensors_of(make_fake(Cut::whole), DType::bf16));
  const std::string path = join_path(hf_, "model.safetensors");
  std::string content = files_.read_text(path);
  const size_t name = content.find("c_proj");
  content.replace(content.find("\"BF16\"", name), 6, "\"I16\" ");
  files_.write_text(path, content);
  FakeStore store = make_fake();
  expect_error<InputError>([&] { import_hf_weights(files_, store, hf_); },
                           {"transformer.h.0.attn.c_proj.weight", "I16", path});
}

TEST_F(HfModel, TiedHeadMustEqualTheEmbedding) {
  std::vector<Tensor> tensors = tensors_of(make_fake(Cut::whole), DType::bf16);
  tensors.push_back({"lm_head.weight", {6, 4}, tensors[0].values, DType::bf16});
  write_hf(hf_, tensors);
  FakeStore store = make_fake();
  EXPECT_EQ(import_hf_weights(files_, store, hf_).tensors, 4);
  tensors.back().values[5] += 8;
  expect_import_error(tensors, {"lm_head.weight", "differs", "tie_word_embeddings"});
}

TEST_F(HfModel, B37_NonFiniteWeightIsReportedByName) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
      std::vector<Tensor> tensors = tensors_of(make_fake(Cut::whole), dtype);
      tensors[1].values[7] = bad;
      expect_import_error(tensors, {kFused, std::isnan(bad) ? "nan" : "-inf", "element 7"});
    }
  }
}

TEST_F(HfModel, B77_ImportThenExportGivesTheSameBytes) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    std::vector<Tensor> tensors = tensors_of(make_fake(Cut::whole), dtype);
    // Values that need every bit of the mantissa, a subnormal and a negative zero.
    const float tiny = dtype == DType::f16 ? 5.9604645e-8f : 9.2e-41f;
    tensors[0].values[0] = 1.9921875f;
    tensors[0].values[1] = tiny;
    tensors[0].values[2] = -0.0f;
    if (dtype != DType::f32) tensors[3].dtype = DType::f32;  // norms kept in fp32
    write_hf(hf_, tensors);
    FakeStore store = make_fake();
    CheckpointMeta meta = make_meta(1);
    note_import(import_hf_weights(files_, store, hf_), hf_, meta.model);
    EXPECT_EQ(meta.model.dtype, dtype_name(dtype));
    CheckpointWriter writer(files_, folder_.file("run/checkpoints"), {.async = false});
    const std::string checkpoint = writer.save(store, meta);
    export_checkpoint(files_, checkpoint, out_);
    export_states(files_, store, meta.model, out_ + "2");
    for (const Tensor& tensor : tensors) {
      EXPECT_EQ(bytes_of(out_, tensor.name), bytes_of(hf_, tensor.name)) << tensor.name;
      EXPECT_EQ(bytes_of(out_ + "2", tensor.name), bytes_of(hf_, tensor.name)) << tensor.name;
    }
    EXPECT_EQ(files_.read_text(join_path(out_, "model.safetensors")),
              files_.read_text(join_path(hf_, "model.safetensors")));
    files_.remove_all(out_);
    files_.remove_all(out_ + "2");
  }
}

TEST_F(HfModel, B77_ConfigMetadataAndIndexAgree) {
  FakeStore store = make_fake();
  CheckpointMeta meta = make_meta(1);
  meta.model.hf_config.set("dtype", "float32");
  CheckpointWriter writer(files_, folder_.file("c"), {.async = false});
  const std::string checkpoint = writer.save(store, meta);
  const ExportReport report =
      export_checkpoint(files_, checkpoint, out_, {.dtype = DType::bf16, .shard_bytes = 100});
  EXPECT_EQ(report.dtype, "bf16");
  EXPECT_EQ(report.bytes, 2 * (24 + 48 + 16 + 4));
  const Json config = read_json_file(join_path(out_, "config.json"));
  EXPECT_EQ(config.at("torch_dtype").as_string(), "bfloat16");
  EXPECT_EQ(config.at("dtype").as_string(), "bfloat16");
  EXPECT_EQ(config.at("model_type").as_string(), "gpt2");
  const Json index = read_json_file(join_path(out_, "model.safetensors.index.json"));
  EXPECT_EQ(index.at("metadata").at("total_size").as_int(), report.bytes);
  HfTensors tensors(files_, out_);
  EXPECT_GT(tensors.files().size(), 1u);
  for (const auto& file : tensors.files()) {
    EXPECT_EQ(file->metadata().at("format"), "pt");
    int64_t bytes = 0;
    for (const TensorEntry& entry : file->tensors()) {
      bytes += entry.bytes;
      EXPECT_EQ(entry.dtype, DType::bf16);
    }
    EXPECT_LE(bytes, 100);
  }
  EXPECT_EQ(files_.list(out_).size(), tensors.files().size() + 2);
}

TEST_F(HfModel, B77_RoundsToNearestEvenAndRefusesOverflow) {
  FakeStore store = make_fake();
  float* values = store.values("transformer.wte.weight@master");
  values[0] = 1.00390625f;  // half way between two bf16 values
  values[1] = 1.01171875f;  // half way, the even one is above
  values[2] = 70000.0f;
  const ModelInfo model = make_meta(1).model;
  export_states(files_, store, model, out_, {.dtype = DType::bf16});
  std::vector<char> data = bytes_of(out_, "transformer.wte.weight");
  EXPECT_EQ(load_element(data.data(), DType::bf16, 0), 1.0);
  EXPECT_EQ(load_element(data.data(), DType::bf16, 1), 1.015625);
  const std::string half = folder_.file("half");
  expect_error<InputError>(
      [&] { export_states(files_, store, model, half, {.dtype = DType::f16}); },
      {"transformer.wte.weight", "70000", "f16"});
  EXPECT_EQ(files_.kind(half), PathKind::absent);
  values[2] = 65504.0f;
  export_states(files_, store, model, half, {.dtype = DType::f16});
  data = bytes_of(half, "transformer.wte.weight");
  EXPECT_EQ(load_element(data.data(), DType::f16, 2), 65504.0);
}

TEST_F(HfModel, ExportTakesTokenizerFilesAlongAndRefusesAFullFolder) {
  write_hf(hf_, tensors_of(make_fake(Cut::whole), DType::f32));
  files_.write_text(join_path(hf_, "tokenizer.json"), "{}");
  files_.write_text(join_path(hf_, "merges.txt"), "a b");
  files_.write_text(join_path(hf_, "README.md"), "no");
  FakeStore store = make_fake();
  ModelInfo model = make_meta(1).model;
  note_import(import_hf_weights(files_, store, hf_), hf_, model);
  files_.make_folders(out_);  // empty: fine
  const ExportReport report = export_states(files_, store, model, out_);
  EXPECT_EQ(report.copied, (std::vector<std::string>{"tokenizer.json", "merges.txt"}));
  EXPECT_EQ(files_.read_text(join_path(out_, "merges.txt")), "a b");
  EXPECT_FALSE(files_.is_file(join_path(out_, "README.md")));
  expect_error<UsageError>([&] { export_states(files_, store, model, out_); }, {out_});
  files_.remove_all(hf_);
  EXPECT_TRUE(export_states(files_, store, model, folder_.file("b")).copied.empty());
}

TEST_F(HfModel, B39_RanksImportTheirPiecesOfAnyLayout) {
  // The values of a whole model, as a folder.
  const RankLayout one(1, 0, false);
  FakeStore whole = one.filled_store(0, 3);
  CheckpointMeta meta = make_meta(1);
  const ExportReport exported =
      export_states(files_, whole, meta.model, hf_, {.dtype = DType::f32});
  for (int seed = 0; seed < 12; ++seed) {
    const RankLayout layout(1 + seed % 5, seed, seed % 2 == 0);
    run_ranks({.world = layout.world(), .stall_seconds = 60}, [&](Communicator& communicator) {
      FakeStore store = layout.filled_store(communicator.rank(), 4);
      const ImportReport report = import_hf_weights(files_, store, hf_, &communicator);
      EXPECT_EQ(report.tensors, exported.tensors);
      EXPECT_EQ(report.bytes, exported.bytes);
      EXPECT_EQ(report.dtype, "f32");
      const FakeStore weights = layout.filled_store(communicator.rank(), 3);
      const FakeStore moments = layout.filled_store(communicator.rank(), 4);
      for (size_t i = 0; i < store.states().size(); ++i) {
        const bool slot = !store.states()[i].slot.empty();
        EXPECT_EQ(store.content()[i], (slot ? moments : weights).content()[i])
            << store.states()[i].name << " of rank " << communicator.rank();
      }
      return 0;
    });
  }
}

TEST_F(HfModel, B37_WhatOneRankCannotImportStopsAll) {
  // The second half of a tensor is large enough for the first rank not to read it.
  const int64_t rows = 1 << 12;
  const int64_t columns = 1 << 8;
  std::vector<float> values(static_cast<size_t>(rows * columns), 1.0f);
  values.back() = std::numeric_limits<float>::infinity();
  write_hf(hf_, {{"w.weight", {rows, columns}, values}});
  const auto half = [&](int rank) {
    FakeStore store;
    store.add("w.weight", StateRole::weight, DType::f32, {rows / 2, columns},
              {"w.weight", {rows, columns}, {rank * rows / 2, 0}});
    return store;
  };
  FakeStore first = half(0);
  EXPECT_EQ(import_hf_weights(files_, first, hf_).tensors, 1);
  EXPECT_EQ(first.values("w.weight")[columns], 1.0f);
  run_ranks({.world = 2, .stall_seconds = 60}, [&](Communicator& communicator) {
    FakeStore store = half(communicator.rank());
    expect_error<InputError>([&] { import_hf_weights(files_, store, hf_, &communicator); },
                             {"rank 1", "w.weight", "inf", "element 1048575"});
    return 0;
  });
  run_ranks({.world = 2, .stall_seconds = 60}, [&](Communicator& communicator) {
    FakeStore store;  // neither knows the tensor
    expect_error<InputError>([&] { import_hf_weights(files_, store, hf_, &communicator); },
                             {"w.weight", "not part of this model"});
    return 0;
  });
}

TEST_F(HfModel, B06_ExportRefusesADamagedCheckpointAndLeavesNothing) {
  FakeStore store = make_fake();
  CheckpointWriter writer(files_, folder_.file("c"), {.async = false});
  const std::string checkpoint = writer.save(store, make_meta(1));
  const std::string file = join_path(checkpoint, "model.safetensors");
  std::string content = files_.read_text(file);
  content.back() ^= 1;
  files_.write_text(file, content);
  expect_error<InputError>([&] { export_checkpoint(files_, checkpoint, out_); },
                           {file, "checksum"});
  EXPECT_EQ(files_.kind(out_), PathKind::absent);
}

}  // namespace
}  // namespace weft
