// Saves and loads of several ranks, which are threads here.
#include "weft/checkpoint/ranks.h"

#include <gtest/gtest.h>

#include <functional>
#include <mutex>

#include "weft/base/error.h"
#include "weft/checkpoint/hf_export.h"
#include "weft/checkpoint/rank_layout.h"
#include "weft/comm/launch.h"
#include "weft/io/faulty.h"
#include "weft/io/test_folder.h"

namespace weft {
namespace {

class Ranks : public ::testing::Test {
 protected:
  static void run(int world, const std::function<void(Communicator&)>& body) {
    run_ranks({.world = world, .stall_seconds = 60}, [&](Communicator& communicator) {
      body(communicator);
      return 0;
    });
  }
  std::string save(const RankLayout& layout, int seed, int64_t step, bool async = false) {
    run(layout.world(), [&](Communicator& communicator) {
      FakeStore store = layout.filled_store(communicator.rank(), seed);
      CheckpointWriter writer(files_, folder_.path(), {.keep = 0, .async = async}, &communicator);
      writer.save(store, make_meta(step));
      writer.wait();
    });
    return folder_.file(checkpoint_name(step));
  }
  void expect_loads(const RankLayout& layout, const std::string& path, int seed) {
    run(layout.world(), [&](Communicator& communicator) {
      const int rank = communicator.rank();
      FakeStore store = layout.filled_store(rank, seed + 100);
      const Manifest manifest = load_checkpoint(files_, store, path, {}, &communicator);
      EXPECT_EQ(manifest.train.samples_consumed, manifest.train.step * 16);
      const FakeStore expected = layout.filled_store(rank, seed);
      for (size_t i = 0; i < store.states().size(); ++i) {
        EXPECT_EQ(store.content()[i], expected.content()[i])
            << store.states()[i].name << " of rank " << rank << " of " << layout.world();
      }
    });
  }
  /// What each rank's call throws, "" where it does not.
  template <class E>
  static std::vector<std::string> errors_of(int world,
                                            const std::function<void(Communicator&)>& body) {
    std::vector<std::string> errors(static_cast<size_t>(world));
    run(world, [&](Communicator& communicator) {
      try {
        body(communicator);
      } catch (const E& error) {
        errors[static_cast<size_t>(communicator.rank())] = error.what();
      }
    });
    return errors;
  }
  static void expect_same_error(const std::vector<std::string>& errors,
                                const std::vector<std::string>& parts) {
    for (const std::string& error : errors) {
      EXPECT_EQ(error, errors[0]);
      for (const std::string& part : parts) {
        EXPECT_NE(error.find(part), std::string::npos) << part << " is not in: " << error;
      }
    }
  }
  void flip_last_byte(const std::string& file) {
    std::string content = files_.read_text(file);
    content.back() ^= 1;
    files_.write_text(file, content);
  }

  TestFolder folder_;
  FaultyDriver driver_{posix_driver()};  // without its slow syncs
  FileSystem files_{driver_};
};

TEST_F(Ranks, B39_AnyLayoutLoadsTheCheckpointOfAnyOther) {
  for (int round = 0; round < 24; ++round) {
    const RankLayout from(1 + round % 6, round);
    const std::string path = save(from, round, round, round % 2 == 0);
    EXPECT_TRUE(verify_checkpoint(files_, path).problems.empty());
    for (int other = 0; other < 3; ++other) {
      const RankLayout to(1 + (round + other * 2) % 5, 1000 + round * 10 + other);
      expect_loads(to, path, round);
    }
  }
}

TEST_F(Ranks, B70_MoreRanksThanElements) {
  for (const int world : {8, 12}) {
    for (int seed = 0; seed < 3; ++seed) {
      const RankLayout from(world, seed);
      const std::string path = save(from, 7, world);
      EXPECT_TRUE(verify_checkpoint(files_, path).problems.empty());
      expect_loads(RankLayout(1, 1), path, 7);
      expect_loads(RankLayout(9, seed), path, 7);
      files_.remove_all(path);
    }
  }
}

TEST_F(Ranks, OneRankNeedsNoCommunicator) {
  const RankLayout one(1, 3);
  const std::string path = save(RankLayout(4, 5), 2, 1);
  FakeStore store = one.store(0);
  load_checkpoint(files_, store, path);
  EXPECT_EQ(store.content(), one.filled_store(0, 2).content());
  CheckpointWriter writer(files_, folder_.file("one"), {.async = false});
  const std::string back = writer.save(store, make_meta(2));
  expect_loads(RankLayout(3, 5), back, 2);
}

TEST_F(Ranks, OneRankWritesTheSameBytesAsEver) {
  const std::pair<const char*, const char*> expected[] = {
      {"manifest.json", "601a729cdc26350e42cefcb43a776846"},
      {"model.safetensors", "df00b52229328dc7fb9e431355af9f71"},
      {"optimizer.safetensors", "fa0ace8fbba88454ff8250ddb1f5dc5e"}};
  run(1, [&](Communicator& communicator) {
    FakeStore store = make_fake();
    store.fill(3);
    CheckpointWriter writer(files_, folder_.path(), {}, &communicator);
    const std::string path = writer.save(store, make_meta(5));
    writer.wait();
    for (const auto& [name, sum] : expected) {
      const std::string content = files_.read_text(join_path(path, name));
      EXPECT_EQ(checksum_hex(content.data(), static_cast<int64_t>(content.size())), sum) << name;
    }
  });
}

TEST_F(Ranks, ExportIsTheSameFromAnyLayout) {
  save(RankLayout(1, 0), 4, 1);
  const std::string one = folder_.file("hf");
  export_checkpoint(files_, folder_.file(checkpoint_name(1)), one, {.dtype = DType::bf16});
  for (int seed = 1; seed < 6; ++seed) {
    const std::string path = save(RankLayout(seed + 1, seed), 4, 2);
    const std::string many = folder_.file("hf" + std::to_string(seed));
    export_checkpoint(files_, path, many, {.dtype = DType::bf16});
    ASSERT_EQ(files_.list(many), files_.list(one));
    for (const std::string& name : files_.list(one)) {
      EXPECT_EQ(files_.read_text(join_path(many, name)), files_.read_text(join_path(one, name)));
    }
  }
}

TEST_F(Ranks, ReplicasAreWrittenOnceAndSpreadEvenly) {
  RankLayout layout(4, 0);
  layout.op = 1;
  for (RankLayout::Tensor& tensor : layout.tensors) {
    tensor.cut_dim = -1;
    tensor.flat = tensor.flat_weight = false;
  }
  const std::string path = save(layout, 1, 1);
  const Manifest manifest = read_manifest(files_, path);
  EXPECT_EQ(manifest.files.size(), 4u);
  int64_t total = 0;
  std::vector<int64_t> bytes(4, 0);
  for (const LogicalTensor& tensor : manifest.tensors) {
    ASSERT_EQ(tensor.pieces.size(), 1u);
    const Piece& piece = tensor.pieces[0];
    EXPECT_EQ(piece.tensor, tensor.name);
    total += piece.bytes;
    bytes[static_cast<size_t>(std::stoi(piece.file.substr(5, 5)))] += piece.bytes;
  }
  for (const int64_t share : bytes) {
    EXPECT_LE(share, total / 4 + 7 * 5 * 4);  // no more off than a tensor of medium size
    EXPECT_GE(share, total / 4 - 7 * 5 * 4);
  }
}

TEST_F(Ranks, ARankWithNothingToWriteHasNoFile) {
  FakeStore empty;
  run(3, [&](Communicator& communicator) {
    FakeStore store;
    const int64_t rows = communicator.rank() == 1 ? 0 : 2;
    if (communicator.rank() != 2)
      store.add_parameter("w.weight", {rows, 3}, {"w.weight", {2, 3}, {}});
    RankLayout::fill(store, 1);
    CheckpointWriter writer(files_, folder_.path(), {.async = false}, &communicator);
    writer.save(store, make_meta(1));
  });
  EXPECT_EQ(files_.list(folder_.file(checkpoint_name(1))),
            (std::vector<std::string>{"manifest.json", "rank-00000.safetensors"}));
}

TEST_F(Ranks, GapsAreRefusedByAllRanks) {
  const auto errors = errors_of<BugError>(2, [&](Communicator& communicator) {
    FakeStore store;  // both ranks hold the same half
    store.add_parameter("w.weight", {1, 3}, {"w.weight", {2, 3}, {0, 0}});
    CheckpointWriter writer(files_, folder_.path(), {.async = true}, &communicator);
    writer.save(store, make_meta(1));
  });
  expect_same_error(errors, {"w.weight", "gaps"});
}

TEST_F(Ranks, AFlatRangeIsAFewContiguousTensors) {
  run(2, [&](Communicator& communicator) {
    const int64_t begin = communicator.rank() * 10;  // of 3 x 7 elements
    FakeStore store;
    store.add("w", StateRole::weight, DType::f32, {communicator.rank() == 0 ? 10 : 11},
              {"w", {3, 7}, {0, 0}, {3, 7}, begin});
    RankLayout::fill(store, 1);
    CheckpointWriter writer(files_, folder_.path(), {.async = false}, &communicator);
    writer.save(store, make_meta(1));
  });
  const Manifest manifest = read_manifest(files_, folder_.file(checkpoint_name(1)));
  ASSERT_EQ(manifest.tensors.size(), 1u);
  std::vector<std::string> names;
  for (const Piece& piece : manifest.tensors[0].pieces) names.push_back(piece.tensor);
  EXPECT_EQ(names,
            (std::vector<std::string>{"w[0:1, 0:7]", "w[1:2, 0:3]", "w[1:2, 3:7]", "w[2:3, 0:7]"}));
}

TEST_F(Ranks, OnlyPiecesThatAreNeededAreRead) {
  const auto store_of = [](int rank) {
    FakeStore store;
    store.add_parameter("w.weight", {1, 3}, {"w.weight", {2, 3}, {rank, 0}});
    RankLayout::fill(store, 1);
    return store;
  };
  run(2, [&](Communicator& communicator) {
    FakeStore store = store_of(communicator.rank());
    CheckpointWriter writer(files_, folder_.path(), {.async = false}, &communicator);
    writer.save(store, make_meta(1));
  });
  const std::string path = folder_.file(checkpoint_name(1));
  const std::string damaged = join_path(path, rank_file_name(1));
  flip_last_byte(damaged);
  FakeStore first = store_of(0);
  EXPECT_NO_THROW(load_checkpoint(files_, first, path));
  FakeStore second = store_of(1);
  EXPECT_THROW(load_checkpoint(files_, second, path), InputError);
  // With a communicator all ranks refuse, with the words of the one that met the damage.
  const auto errors = errors_of<InputError>(2, [&](Communicator& communicator) {
    FakeStore store = store_of(communicator.rank());
    load_checkpoint(files_, store, path, {}, &communicator);
  });
  expect_same_error(errors, {"rank 1", damaged, "w.weight", "checksum"});
  const VerifyReport report = verify_checkpoint(files_, path);
  ASSERT_EQ(report.problems.size(), 1u);
  EXPECT_NE(report.problems[0].find(damaged), std::string::npos) << report.problems[0];
}

TEST_F(Ranks, B06_ADamagedOrMissingRankFileMakesItIncomplete) {
  const RankLayout layout(3, 2);
  save(layout, 1, 1);
  const std::string newest = save(layout, 1, 2);
  for (const std::string& name : files_.list(newest)) {
    const std::string file = join_path(newest, name);
    const std::string content = files_.read_text(file);
    for (const size_t size : {size_t{0}, content.size() / 2, content.size() - 2}) {
      files_.write_text(file, content.substr(0, size));
      EXPECT_EQ(newest_checkpoint(files_, folder_.path()).entry->step, 1) << name;
    }
    files_.remove(file);
    const NewestCheckpoint found = newest_checkpoint(files_, folder_.path());
    EXPECT_EQ(found.entry->step, 1);
    ASSERT_EQ(found.skipped.size(), 1u);
    EXPECT_NE(found.skipped[0].problem.find(name), std::string::npos);
    expect_same_error(errors_of<InputError>(3,
                                            [&](Communicator& communicator) {
                                              FakeStore store = layout.store(communicator.rank());
                                              load_checkpoint(files_, store, newest, {},
                                                              &communicator);
                                            }),
                      {name});
    files_.write_text(file, content);
  }
  EXPECT_EQ(newest_checkpoint(files_, folder_.path()).entry->step, 2);
}

TEST_F(Ranks, B38_LeftOverIsWhatNoRankHas) {
  const auto add = [](FakeStore& store, const std::string& name) {
    store.add_parameter(name, {2, 2});
    RankLayout::fill(store, 1);
  };
  FakeStore both;
  add(both, "a.weight");
  add(both, "b.weight");
  CheckpointWriter writer(files_, folder_.path(), {.async = false});
  const std::string path = writer.save(both, make_meta(1));
  run(2, [&](Communicator& communicator) {
    FakeStore store;
    add(store, communicator.rank() == 0 ? "a.weight" : "b.weight");
    EXPECT_NO_THROW(load_checkpoint(files_, store, path, {}, &communicator));
  });
  expect_same_error(errors_of<InputError>(2,
                                          [&](Communicator& communicator) {
                                            FakeStore store;
                                            if (communicator.rank() == 1) add(store, "a.weight");
                                            load_checkpoint(files_, store, path, {}, &communicator);
                                          }),
                    {"b.weight", "left over"});
  expect_same_error(errors_of<InputError>(2,
                                          [&](Communicator& communicator) {
                                            FakeStore store;
                                            add(store, "a.weight");
                                            add(store, "b.weight");
                                            if (communicator.rank() == 1) add(store, "c.weight");
                                            load_checkpoint(files_, store, path, {}, &communicator);
                                          }),
                    {"c.weight", "missing"});
}

TEST_F(Ranks, WeightsAloneFillCopiesOfAnotherPiece) {
  // bf16 weights, whole on every rank, beside masters cut flat; moments are left alone.
  RankLayout layout(4, 0);
  layout.op = 1;
  for (RankLayout::Tensor& tensor : layout.tensors) {
    tensor.flat = true;
    tensor.flat_weight = tensor.drop = false;
  }
  const std::string path = save(RankLayout(2, 9), 5, 1);
  run(4, [&](Communicator& communicator) {
    FakeStore store = layout.filled_store(communicator.rank(), 6);
    load_checkpoint(files_, store, path, {.weights_only = true}, &communicator);
    const FakeStore weights = layout.filled_store(communicator.rank(), 5);
    const FakeStore moments = layout.filled_store(communicator.rank(), 6);
    for (size_t i = 0; i < store.states().size(); ++i) {
      const bool slot = !store.states()[i].slot.empty();
      EXPECT_EQ(store.content()[i], (slot ? moments : weights).content()[i]);
    }
  });
}

TEST_F(Ranks, B71_BackgroundSavesWriteWhatSynchronousOnesDo) {
  const RankLayout layout(3, 4);
  std::vector<std::string> contents[2];
  for (const bool async : {false, true}) {
    const std::string root = folder_.file(async ? "a" : "s");
    run(3, [&](Communicator& communicator) {
      FakeStore store = layout.filled_store(communicator.rank(), 0);
      CheckpointWriter writer(files_, root, {.keep = 0, .async = async}, &communicator);
      for (int step = 1; step <= 4; ++step) {
        writer.save(store, make_meta(step));
        RankLayout::fill(store, step);  // the next step, while the writer may still be busy
      }
      writer.wait();
    });
    for (int step = 1; step <= 4; ++step) {
      const std::string path = join_path(root, checkpoint_name(step));
      expect_loads(layout, path, step - 1);
      for (const std::string& name : files_.list(path)) {
        contents[async].push_back(files_.read_text(join_path(path, name)));
      }
    }
  }
  EXPECT_EQ(contents[0], contents[1]);
}

TEST_F(Ranks, SavesStreamWhenOneRankHasNoRoomForASnapshot) {
  const RankLayout layout(3, 4);
  run(3, [&](Communicator& communicator) {
    FakeStore store = layout.filled_store(communicator.rank(), 1);
    const bool async = communicator.rank() != 1;
    CheckpointWriter writer(files_, folder_.path(), {.keep = 0, .async = async}, &communicator);
    for (int step = 1; step <= 2; ++step) {
      const std::string path = writer.save(store, make_meta(step));
      EXPECT_EQ(read_manifest(files_, path).train.step, step);  // durable at once
    }
    writer.retire();
  });
  expect_loads(layout, folder_.file(checkpoint_name(2)), 1);
}

TEST_F(Ranks, B73_AllRanksTakePartAndFoldersMayExist) {
  const RankLayout layout(5, 8);
  files_.make_folders(folder_.file("c"));
  run(5, [&](Communicator& communicator) {
    FakeStore store = layout.filled_store(communicator.rank(), 1);
    CheckpointWriter writer(files_, folder_.file("c"),
                            {.keep = 2, .async = true, .wait_for_proof = true}, &communicator);
    for (int step = 1; step <= 6; ++step) {
      // The same step twice: its folder exists the second time.
      writer.save(store, make_meta((step + 1) / 2));
      if (step == 3) writer.save_diagnostic(store, make_meta(step));
    }
    writer.retire();
  });
  EXPECT_EQ(files_.list(folder_.file("c")),
            (std::vector<std::string>{"diagnostic-step-00000003", checkpoint_name(2),
                                      checkpoint_name(3)}));
  expect_loads(layout, folder_.file("c/" + checkpoint_name(3)), 1);
}

TEST_F(Ranks, DifferentStepsOrStatesAreRefused) {
  expect_same_error(errors_of<BugError>(2,
                                        [&](Communicator& communicator) {
                                          FakeStore store;
                                          store.add_parameter("w.weight", {2});
                                          CheckpointWriter writer(files_, folder_.path(),
                                                                  {.async = false}, &communicator);
                                          writer.save(store, make_meta(1 + communicator.rank()));
                                        }),
                    {"step-00000001", "step-00000002"});
}

}  // namespace
}  // namespace weft
