#include "weft/checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "weft/base/error.h"
#include "weft/checkpoint/fake_store.h"
#include "weft/io/faulty.h"
#include "weft/io/safetensors.h"
#include "weft/io/test_folder.h"

namespace weft {
namespace {

class Checkpoint : public ::testing::Test {
 protected:
  std::string save(FakeStore& store, int64_t step, WriterOptions options = {.async = false}) {
    CheckpointWriter writer(files_, folder_.path(), options);
    const std::string path = writer.save(store, make_meta(step));
    writer.wait();
    return path;
  }
  template <class E = InputError>
  void expect_load_error(FakeStore& store, const std::string& path,
                         const std::vector<std::string>& parts, LoadOptions options = {}) {
    try {
      load_checkpoint(files_, store, path, options);
      FAIL() << "loaded";
    } catch (const E& error) {
      for (const std::string& part : parts) {
        EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
      }
    }
  }
  /// Writes the tensors of a file anew without `name`.
  void drop_tensor(const std::string& path, const std::string& name) {
    SafetensorsReader reader(files_, path);
    std::vector<TensorInfo> infos;
    for (const TensorEntry& entry : reader.tensors()) {
      if (entry.name != name) infos.push_back({entry.name, entry.dtype, entry.shape});
    }
    ASSERT_EQ(infos.size() + 1, reader.tensors().size());
    SafetensorsWriter writer(files_, path + ".new", infos);
    for (const TensorEntry& entry : writer.tensors()) {
      std::vector<char> data(static_cast<size_t>(entry.bytes));
      reader.read(reader.at(entry.name), data.data());
      writer.write(entry.name, data.data());
    }
    writer.finish();
    files_.rename(path + ".new", path);
  }

  TestFolder folder_;
  FaultyDriver driver_{posix_driver()};  // without its slow syncs
  FileSystem files_{driver_};
};

TEST_F(Checkpoint, RoundTripToTheBit) {
  FakeStore from = make_fake();
  const std::string path = save(from, 100);
  EXPECT_EQ(file_name(path), "step-00000100");
  EXPECT_EQ(files_.list(path), (std::vector<std::string>{"manifest.json", "model.safetensors",
                                                         "optimizer.safetensors"}));
  FakeStore to = make_fake();
  to.fill(9);
  const Manifest manifest = load_checkpoint(files_, to, path);
  EXPECT_EQ(to.stored(), from.stored());
  EXPECT_EQ(to.refreshed, 1);
  EXPECT_EQ(manifest.train.step, 100);
  EXPECT_EQ(manifest.train.samples_consumed, 1600);
  EXPECT_EQ(manifest.train.tokens_total, 204800);
  EXPECT_EQ(manifest.train.scaler.at("scale").as_double(), 65536.0);
  EXPECT_EQ(manifest.config.at("lr").as_double(), 3e-4);
}

TEST_F(Checkpoint, WholeTensorsUnderHuggingFaceNames) {
  FakeStore store = make_fake();
  const std::string path = save(store, 1);
  SafetensorsReader weights(files_, join_path(path, "model.safetensors"));
  EXPECT_EQ(weights.tensors().size(), 4u);
  const TensorEntry& fused = weights.at("transformer.h.0.attn.c_attn.weight");
  EXPECT_EQ(fused.shape, (Shape{4, 12}));
  EXPECT_EQ(fused.dtype, DType::f32);
  std::vector<float> values(48);
  weights.read(fused, values.data());
  const float* k = store.values("transformer.h.0.attn.c_attn.weight#k@master");
  for (size_t row = 0; row < 4; ++row) {
    for (size_t column = 0; column < 4; ++column) {
      EXPECT_EQ(values[row * 12 + 4 + column], k[row * 4 + column]);
    }
  }
  SafetensorsReader slots(files_, join_path(path, "optimizer.safetensors"));
  EXPECT_EQ(slots.tensors().size(), 8u);
  EXPECT_NE(slots.find("transformer.wte.weight@m"), nullptr);
}

TEST_F(Checkpoint, AnySlicingLoadsAnyOther) {
  for (const Cut cut : {Cut::columns, Cut::rows, Cut::whole}) {
    FakeStore from = make_fake(cut);
    const std::string path = save(from, static_cast<int64_t>(cut));
    for (const Cut other : {Cut::columns, Cut::rows, Cut::whole}) {
      FakeStore to = make_fake(other);
      const auto expected = to.stored();  // filled by element of the logical tensors
      to.fill(9);
      ASSERT_NE(to.stored(), expected);
      load_checkpoint(files_, to, path);
      EXPECT_EQ(to.stored(), expected);
    }
  }
}

TEST_F(Checkpoint, PiecesInSeveralFilesLoadIntoAnySlicing) {
  // As several ranks would write it: the fused matrix in two files, cut by rows.
  FakeStore whole = make_fake(Cut::whole, false);
  FakeStore rows = make_fake(Cut::rows, false);
  const std::string path = save(whole, 5);
  Manifest manifest = read_manifest(files_, path);
  const std::string fused = "transformer.h.0.attn.c_attn.weight";
  drop_tensor(join_path(path, "model.safetensors"), fused);
  {
    SafetensorsReader left(files_, join_path(path, "model.safetensors"));
    manifest.files.clear();
    manifest.files.push_back(
        {"model.safetensors", left.tensors().back().offset + left.tensors().back().bytes});
    for (LogicalTensor& tensor : manifest.tensors) {
      if (tensor.name != fused) tensor.pieces[0].offset = left.at(tensor.name).offset;
    }
  }
  LogicalTensor& tensor = const_cast<LogicalTensor&>(*manifest.find(fused));
  tensor.pieces.clear();
  for (int64_t i = 0; i < 2; ++i) {
    const std::string name = "model-rank" + std::to_string(i) + ".safetensors";
    const Shape extent = {i == 0 ? 1 : 3, 12};
    SafetensorsWriter writer(files_, join_path(path, name), {{fused, DType::f32, extent}});
    const float* data = rows.values(fused + "#" + std::to_string(i) + "@master");
    writer.write(fused, data);
    const TensorEntry entry = writer.at(fused);
    writer.finish();
    manifest.files.push_back({name, entry.offset + entry.bytes});
    tensor.pieces.push_back({name,
                             fused,
                             entry.offset,
                             entry.bytes,
                             {{i, 0}, extent},
                             checksum_hex(data, entry.bytes)});
  }
  files_.write_text(join_path(path, "manifest.json"), manifest_text(manifest));
  for (const Cut cut : {Cut::columns, Cut::rows, Cut::whole}) {
    FakeStore to = make_fake(cut, false);
    const auto expected = to.stored();
    to.fill(9);
    load_checkpoint(files_, to, path);
    EXPECT_EQ(to.stored(), expected);
  }
  EXPECT_TRUE(verify_checkpoint(files_, path).problems.empty());
}

TEST_F(Checkpoint, B38_MissingMomentIsRefusedByName) {
  FakeStore store = make_fake();
  const std::string path = save(store, 1);
  const std::string name = "transformer.h.0.attn.c_proj.weight@v";
  drop_tensor(join_path(path, "optimizer.safetensors"), name);
  expect_load_error(store, path, {name, "optimizer.safetensors", "missing"});
  // And when the manifest does not know it either.
  Manifest manifest = read_manifest(files_, path);
  std::erase_if(manifest.tensors, [&](const LogicalTensor& t) { return t.name == name; });
  files_.write_text(join_path(path, "manifest.json"), manifest_text(manifest));
  expect_load_error(store, path, {name, "manifest.json", "missing"});
}

TEST_F(Checkpoint, B38_LeftOverAndReshapedTensorsAreRefusedByName) {
  FakeStore with = make_fake(Cut::whole);
  const std::string path = save(with, 1);
  FakeStore without = make_fake(Cut::whole, false);
  expect_load_error(without, path, {"@m", "left over"});
  EXPECT_NO_THROW(load_checkpoint(files_, without, path, {.weights_only = true}));
  EXPECT_EQ(std::memcmp(without.values("transformer.wte.weight@master"),
                        with.values("transformer.wte.weight@master"), 96),
            0);
  FakeStore more = make_fake(Cut::whole);
  more.add_parameter("transformer.h.1.ln_1.weight", {4});
  expect_load_error(more, path, {"transformer.h.1.ln_1.weight", "missing"});
  expect_load_error(more, path, {"transformer.h.1.ln_1.weight", "missing"}, {.weights_only = true});
  FakeStore other;
  other.add_parameter("transformer.wte.weight", {4, 6});
  expect_load_error(other, path, {"transformer.wte.weight", "[6, 4]", "[4, 6]"});
}

TEST_F(Checkpoint, B38_StateIsKeyedByNameNotByOrder) {
  // Two parameters of one shape; the loading side lists them the other way round.
  FakeStore from;
  from.add_parameter("a.q_proj.weight", {4, 4});
  from.add_parameter("a.o_proj.weight", {4, 4});
  from.fill(3);
  const std::string path = save(from, 1);
  FakeStore to;
  to.add_parameter("a.o_proj.weight", {4, 4});
  to.add_parameter("a.q_proj.weight", {4, 4});
  load_checkpoint(files_, to, path);
  for (const char* name : {"a.q_proj.weight@master", "a.q_proj.weight@m", "a.q_proj.weight@v",
                           "a.o_proj.weight@master", "a.o_proj.weight@m", "a.o_proj.weight@v"}) {
    EXPECT_EQ(std::memcmp(from.values(name), to.values(name), 64), 0) << name;
  }
  EXPECT_NE(std::memcmp(from.values("a.q_proj.weight@m"), from.values("a.o_proj.weight@m"), 64), 0);
}

TEST_F(Checkpoint, WiderStatesTakeNarrowerTensorsNeverTheReverse) {
  FakeStore narrow;
  narrow.add("w", StateRole::weight, DType::f32, {3}, {"w", {3}, {0}});
  narrow.fill(1);
  FakeStore wide;
  wide.add("w", StateRole::weight, DType::f64, {3}, {"w", {3}, {0}});
  load_checkpoint(files_, wide, save(narrow, 1));
  double values[3];
  wide.read_state(0, values);
  EXPECT_EQ(values[2], static_cast<double>(narrow.values("w")[2]));
  expect_load_error(narrow, save(wide, 2), {"\"w\"", "f64", "f32"});
}

TEST_F(Checkpoint, B06_FlippedByteIsFoundByNameOfTensorAndFile) {
  FakeStore store = make_fake();
  const std::string path = save(store, 1);
  EXPECT_TRUE(verify_checkpoint(files_, path).problems.empty());
  EXPECT_EQ(verify_checkpoint(files_, path).tensors, 12);
  const std::string file = join_path(path, "optimizer.safetensors");
  std::string content = files_.read_text(file);
  SafetensorsReader reader(files_, file);
  const TensorEntry& entry = reader.at("transformer.h.0.ln_1.weight@m");
  content[static_cast<size_t>(entry.offset) + 5] ^= 1;
  files_.write_text(file, content);
  expect_load_error(store, path, {entry.name, file, "checksum"});
  const VerifyReport report = verify_checkpoint(files_, path);
  ASSERT_EQ(report.problems.size(), 1u);
  EXPECT_NE(report.problems[0].find(entry.name), std::string::npos);
}

TEST_F(Checkpoint, B06_EachDamagedFileMeansFallBackAndARefusalByName) {
  FakeStore store = make_fake();
  save(store, 1);
  const std::string newest = save(store, 2);
  for (const std::string& name : files_.list(newest)) {
    const std::string file = join_path(newest, name);
    const std::string content = files_.read_text(file);
    const size_t cuts[] = {0, 4, content.size() / 2, content.size() - 2};
    for (int damage = 0; damage < 5; ++damage) {
      if (damage < 4) {
        files_.write_text(file, content.substr(0, cuts[damage]));
      } else {
        files_.remove(file);
      }
      const NewestCheckpoint found = newest_checkpoint(files_, folder_.path());
      ASSERT_TRUE(found.entry);
      EXPECT_EQ(found.entry->step, 1);
      ASSERT_EQ(found.skipped.size(), 1u);
      EXPECT_EQ(found.skipped[0].path, newest);
      EXPECT_NE(found.skipped[0].problem.find(file), std::string::npos) << found.skipped[0].problem;
      expect_load_error(store, newest, {file});
    }
    files_.write_text(file, content);
    EXPECT_EQ(newest_checkpoint(files_, folder_.path()).entry->step, 2);
  }
}

TEST_F(Checkpoint, B06_WithoutACompleteOneResumeIsRefused) {
  EXPECT_FALSE(newest_checkpoint(files_, folder_.file("none")).entry);
  EXPECT_THROW(resolve_checkpoint(files_, folder_.file("none")), InputError);
  EXPECT_THROW(resolve_checkpoint(files_, folder_.path()), InputError);
  FakeStore store = make_fake();
  const std::string path = save(store, 7);
  EXPECT_EQ(resolve_checkpoint(files_, folder_.path()), path);
  EXPECT_EQ(resolve_checkpoint(files_, path), path);
  files_.remove(join_path(path, "optimizer.safetensors"));
  try {
    resolve_checkpoint(files_, folder_.path());
    FAIL();
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("optimizer.safetensors"), std::string::npos)
        << error.what();
  }
  files_.remove(join_path(path, "manifest.json"));
  EXPECT_THROW(resolve_checkpoint(files_, path), InputError);
}

TEST_F(Checkpoint, RunFoldersHoldThemInCheckpoints) {
  FakeStore store = make_fake();
  CheckpointWriter writer(files_, folder_.file("checkpoints"), {.async = false});
  const std::string path = writer.save(store, make_meta(3));
  EXPECT_EQ(resolve_checkpoint(files_, folder_.path()), path);
}

TEST_F(Checkpoint, RetentionKeepsTheNewestAndNeverCountsTorsos) {
  FakeStore store = make_fake();
  CheckpointWriter writer(files_, folder_.path(), {.keep = 2, .async = false});
  for (int64_t step = 1; step <= 3; ++step) writer.save(store, make_meta(step));
  EXPECT_EQ(files_.list(folder_.path()),
            (std::vector<std::string>{"step-00000002", "step-00000003"}));
  files_.remove(folder_.file("step-00000003/manifest.json"));
  files_.make_folders(folder_.file("step-00000009"));
  writer.save(store, make_meta(4));
  // 2 and 4 are complete; the torsos of 3 and 9 stay for whoever wants to look at them.
  EXPECT_EQ(files_.list(folder_.path()),
            (std::vector<std::string>{"step-00000002", "step-00000003", "step-00000004",
                                      "step-00000009"}));
  // After a resume from an older step the checkpoint just written stays, whatever its number.
  writer.save(store, make_meta(1));
  const auto entries = list_checkpoints(files_, folder_.path());
  EXPECT_EQ(entries.front().step, 1);
  EXPECT_TRUE(entries.front().complete);
}

TEST_F(Checkpoint, StatesWithoutALogicalTensorAreNeitherSavedNorLoaded) {
  FakeStore from = make_fake();
  const std::string path = save(from, 1);
  FakeStore to = make_fake();
  to.add("waiting", StateRole::moment, DType::f32, {5}, {});
  to.fill(9);
  const std::vector<char> waiting = to.content().back();
  load_checkpoint(files_, to, path);
  EXPECT_EQ(to.stored(), from.stored());
  EXPECT_EQ(to.content().back(), waiting);
  load_checkpoint(files_, from, save(to, 2));
  EXPECT_EQ(from.stored(), to.stored());
}

TEST_F(Checkpoint, SavingAStepAgainReplacesIt) {
  FakeStore store = make_fake();
  save(store, 1);
  store.fill(5);
  const std::string path = save(store, 1);
  FakeStore back = make_fake();
  load_checkpoint(files_, back, path);
  EXPECT_EQ(back.stored(), store.stored());
  EXPECT_EQ(files_.list(folder_.path()), std::vector<std::string>{"step-00000001"});
}

TEST_F(Checkpoint, B37_NonFiniteStateNeverBecomesACheckpoint) {
  for (const bool async : {false, true}) {
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
          -std::numeric_limits<float>::infinity()}) {
      for (const char* name :
           {"transformer.wte.weight@master", "transformer.h.0.attn.c_attn.weight#v@v"}) {
        FakeStore store = make_fake();
        CheckpointWriter writer(files_, folder_.path(), {.keep = 1, .async = async});
        writer.save(store, make_meta(1));
        store.values(name)[3] = bad;
        try {
          writer.save(store, make_meta(2));
          FAIL() << "saved";
        } catch (const AlarmError& error) {
          const std::string logical(name, std::string_view(name).find_first_of("@#"));
          EXPECT_NE(std::string(error.what()).find(logical), std::string::npos) << error.what();
        }
        writer.wait();
        EXPECT_EQ(files_.list(folder_.path()), std::vector<std::string>{"step-00000001"});
        const std::string dump = writer.save_diagnostic(store, make_meta(2));
        EXPECT_EQ(file_name(dump), "diagnostic-step-00000002");
        EXPECT_EQ(newest_checkpoint(files_, folder_.path()).entry->step, 1);
        EXPECT_EQ(list_checkpoints(files_, folder_.path()).size(), 1u);
        EXPECT_EQ(read_manifest(files_, dump).train.step, 2);
        files_.remove_all(dump);
      }
    }
  }
}

TEST_F(Checkpoint, SnapshotBytesAreTheStoredStates) {
  const FakeStore store = make_fake();
  // Masters and moments, each rounded up to 64 bytes: 96 + 3 x 64 + 64 + 16 bytes of fp32.
  EXPECT_EQ(snapshot_bytes(store.states()), 3 * (128 + 3 * 64 + 64 + 64));
}

}  // namespace
}  // namespace weft
