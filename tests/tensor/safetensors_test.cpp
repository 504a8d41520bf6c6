// Reading hostile and honest safetensors files, sharded folders, and writing.
#include "tensor/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/expect_error.h"
#include "tensor/golden.h"
#include "tensor/safetensors_header.h"

namespace {

namespace fs = std::filesystem;
using base::Code;
using tensor::SafetensorsFile;
using tensor::SafetensorsFolder;
using tensor::Tensor;
using tensor::TensorToWrite;

class Safetensors : public testing::Test {
 protected:
  Safetensors() {
    const testing::TestInfo* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(testing::TempDir()) /
              fmt::format("furlong_{}_{}_{}", ::getpid(), info->test_suite_name(), info->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~Safetensors() override { fs::remove_all(folder_); }

  fs::path write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return folder_ / name;
  }

  // A file with one f32 tensor [2] per name; the value tells the file and the tensor.
  void write_tensors(const std::string& file, const std::vector<std::string>& names, float value = 1) const {
    std::vector<TensorToWrite> tensors;
    for (const std::string& name : names) tensors.push_back({name, at::kFloat, {2}});
    tensor::write_safetensors(folder_ / file, tensors,
                              [&](size_t i) { return at::full({2}, value + static_cast<float>(i)); });
  }

  void write_index(const base::Json& index) const { write("model.safetensors.index.json", index.dump()); }

  fs::path folder_;
};

std::string with_header(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
}

TEST_F(Safetensors, EverySharedFileGivesTheExpectedVerdict) {  // case ck-07
  int seen = 0;
  for (const base::Json& example : test::json_lines("tensor/malformed.jsonl")) {
    SCOPED_TRACE(example["id"].get<std::string>() + ": " + example["why"].get<std::string>());
    const fs::path path = write("x.safetensors", test::from_hex(example["bytes_hex"]));
    if (example["expected"] == "ok") {
      EXPECT_NO_THROW({
        const SafetensorsFile file(path);
        for (const auto& stored : file.tensors()) file.read(stored);
      });
    } else {
      test::expect_error(Code::corruption, {path.string()}, [&] { SafetensorsFile file(path); });
    }
    ++seen;
  }
  EXPECT_EQ(seen, 26);
}

TEST_F(Safetensors, ValuesAndMetadataAreRead) {
  const auto examples = test::json_lines("tensor/malformed.jsonl");
  const auto named = [&](const std::string& id) {
    for (const base::Json& example : examples) {
      if (example["id"] == id) return SafetensorsFile(write("x.safetensors", test::from_hex(example["bytes_hex"])));
    }
    throw std::runtime_error("no example " + id);
  };
  const SafetensorsFile simple = named("ok/metadata");
  EXPECT_EQ(simple.metadata(), (tensor::Metadata{{"format", "pt"}}));
  EXPECT_TRUE(at::equal(simple.read(simple.tensors().at(0)), at::tensor({1.0f, -2.0f})));
  const SafetensorsFile unordered = named("ok/unordered");
  ASSERT_EQ(unordered.tensors().size(), 2u);
  EXPECT_EQ(unordered.tensors()[0].name, "a");
  EXPECT_TRUE(at::equal(unordered.read(unordered.tensors()[1]), at::tensor({-2.0f})));
  EXPECT_EQ(named("ok/scalar").tensors().at(0).shape, std::vector<int64_t>{});
}

TEST_F(Safetensors, MessagesNameTensorAndPlace) {
  const auto refused = [&](const std::string& header, const std::vector<std::string>& parts) {
    const fs::path path = write("x.safetensors", with_header(header, std::string(8, '\0')));
    test::expect_error(Code::corruption, parts, [&] { SafetensorsFile file(path); });
  };
  refused(R"({"norm":{"dtype":"F99","shape":[2],"data_offsets":[0,8]}})", {"\"norm\"", "F99"});
  refused(R"({"norm":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", {"\"norm\"", "[3]", "12", "8"});
  refused(R"({"norm":{"dtype":"F32","shape":[2],"data_offsets":[0,9]}})", {"\"norm\"", "0 to 9", "8 bytes"});
  refused(
      R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
      {"\"a\"", "\"b\"", "overlap"});
  refused(
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
      {"\"a\"", "twice"});
  refused(R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", {"\"a\"", "shape"});
  refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})", {"JSON", "byte"});
  refused(R"([])", {"object"});
  refused(R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,8],"data_offsets":[0,8]}})", {"17 dims"});
}

TEST_F(Safetensors, AHeaderOfManyNestedObjectsIsRefused) {
  std::string header;
  for (int i = 0; i < 100000; ++i) header += "{\"a\":";
  const fs::path path = write("x.safetensors", with_header(header, ""));
  test::expect_error(Code::corruption, {"nested"}, [&] { SafetensorsFile file(path); });
}

TEST_F(Safetensors, ATruncatedFileIsRefusedAtOpen) {  // case ck-04
  write_tensors("model.safetensors", {"a", "b", "c"});
  const fs::path path = folder_ / "model.safetensors";
  const std::string bytes = base::read_file(path);
  for (size_t kept = 0; kept < bytes.size(); ++kept) {
    write("model.safetensors", bytes.substr(0, kept));
    EXPECT_THROW(SafetensorsFile{path}, base::Error) << kept;
  }
  write("model.safetensors", bytes.substr(0, bytes.size() - 1));
  test::expect_error(Code::corruption, {path.string(), "23 bytes"}, [&] { SafetensorsFile file(path); });
}

TEST_F(Safetensors, AnyFlippedHeaderBitIsAnErrorOrAnotherValidFile) {
  write_tensors("model.safetensors", {"a", "b"});
  const fs::path path = folder_ / "model.safetensors";
  const std::string bytes = base::read_file(path);
  int refused = 0;
  for (size_t i = 0; i < bytes.size() - 16; ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = bytes;
      changed[i] = static_cast<char>(changed[i] ^ (1 << bit));
      write("model.safetensors", changed);
      try {
        const SafetensorsFile file(path);
        for (const auto& stored : file.tensors()) EXPECT_EQ(file.read(stored).nbytes(), 8u);
      } catch (const base::Error&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 500);
}

std::vector<std::pair<TensorToWrite, Tensor>> one_of_each_dtype() {
  std::vector<std::pair<TensorToWrite, Tensor>> list;
  int n = 0;
  for (const auto dtype : {at::kBool, at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kHalf, at::kBFloat16,
                           at::kFloat, at::kDouble, at::kFloat8_e4m3fn, at::kFloat8_e5m2, at::kFloat8_e8m0fnu}) {
    const Tensor bytes = at::arange(3 * static_cast<int64_t>(c10::elementSize(dtype)), at::kInt).to(at::kByte).add_(n);
    const Tensor value = (dtype == at::kBool ? bytes.remainder(2) : bytes).view(dtype);
    list.push_back({{fmt::format("t{}", n++), dtype, {3}}, value});
  }
  return list;
}

TEST_F(Safetensors, WritingAndReadingGivesBackEveryDtype) {
  const auto list = one_of_each_dtype();
  std::vector<TensorToWrite> tensors;
  for (const auto& [spec, value] : list) tensors.push_back(spec);
  tensor::write_safetensors(folder_ / "model.safetensors", tensors, [&](size_t i) { return list[i].second; },
                            {{"k", "v"}});
  const SafetensorsFolder folder(folder_);
  for (const auto& [spec, value] : list) {
    EXPECT_EQ(folder.stored(spec.name).dtype, spec.dtype);
    EXPECT_TRUE(test::same_bits(folder.read(spec.name), value)) << spec.name;
  }
  // Other readers view the mapped bytes: each tensor begins at a multiple of its element size.
  const SafetensorsFile file(folder_ / "model.safetensors");
  for (const auto& stored : file.tensors())
    EXPECT_EQ(stored.begin % static_cast<int64_t>(c10::elementSize(stored.dtype)), 0);
  const std::string bytes = base::read_file(folder_ / "model.safetensors");
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  EXPECT_EQ(header % 8, 0u);
}

TEST_F(Safetensors, AStridedTensorIsWrittenInLogicalOrder) {  // case wu-10
  const Tensor square = at::tensor({1.0f, 2.0f, 3.0f, 4.0f}).view({2, 2});
  tensor::write_safetensors(folder_ / "model.safetensors", {{"t", at::kFloat, {2, 2}}},
                            [&](size_t) { return square.t(); });
  EXPECT_TRUE(at::equal(SafetensorsFolder(folder_).read("t").view({4}), at::tensor({1.0f, 3.0f, 2.0f, 4.0f})));
}

TEST_F(Safetensors, ShardsHoldAtMostTheirLimitAndTheIndexFindsEach) {
  std::vector<TensorToWrite> tensors;
  for (int i = 0; i < 10; ++i) tensors.push_back({fmt::format("t{}", i), at::kFloat, {i == 4 ? 100 : 10}});
  const auto value = [&](size_t i) { return at::full(tensors[i].shape, static_cast<float>(i)); };
  tensor::write_safetensors_folder(folder_, tensors, value, 100);
  const SafetensorsFolder folder(folder_);
  EXPECT_EQ(folder.names().size(), 10u);
  for (size_t i = 0; i < 10; ++i) EXPECT_TRUE(at::equal(folder.read(fmt::format("t{}", i)), value(i)));
  int num_files = 0;
  for (const auto& entry : fs::directory_iterator(folder_)) {
    if (entry.path().extension() != ".safetensors") continue;
    ++num_files;
    const SafetensorsFile file(entry.path());
    EXPECT_TRUE(file.tensors().size() == 1 || file.tensors().back().end <= 100);
  }
  EXPECT_EQ(num_files, 6);  // t0 t1 | t2 t3 | t4 | t5 t6 | t7 t8 | t9
  EXPECT_EQ(base::read_json(folder_ / "model.safetensors.index.json")["metadata"]["total_size"], 4 * 190);
  test::expect_error(Code::invalid_argument, {"another folder"},
                     [&] { tensor::write_safetensors_folder(folder_, tensors, value, 100); });
}

TEST_F(Safetensors, AFailedWriteLeavesNoFile) {
  const auto failing = [](size_t i) -> Tensor {
    return i == 0 ? at::zeros({2}) : throw std::runtime_error("out of memory");
  };
  EXPECT_THROW(
      tensor::write_safetensors(folder_ / "x.safetensors", {{"a", at::kFloat, {2}}, {"b", at::kFloat, {2}}}, failing),
      std::runtime_error);
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(Safetensors, EverySharedIndexCaseThatConcernsFiles) {  // cases ck-05, ck-06
  const std::string one = "model-00001-of-00001.safetensors", first = "model-00001-of-00002.safetensors";
  int seen = 0;
  for (const base::Json& example : test::json_lines("tensor/index_cases.jsonl")) {
    const std::string id = example["id"];
    SCOPED_TRACE(id);
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    if (example.contains("index_text")) write("model.safetensors.index.json", example["index_text"]);
    if (example.contains("index") && !example["index"].is_null()) write_index(example["index"]);
    const auto refused = [&](Code code, const std::vector<std::string>& parts) {
      test::expect_error(code, parts, [&] { SafetensorsFolder folder(folder_); });
      ++seen;
    };
    if (id == "index/missing_shard") {
      write_tensors(first, {"a"});
      refused(Code::not_found, {"model-00002-of-00002.safetensors"});
    } else if (id == "index/extra_file_on_disk") {
      write_tensors(one, {"a"}, 5);
      write_tensors("model.safetensors", {"a"}, 7);
      EXPECT_TRUE(at::equal(SafetensorsFolder(folder_).read("a"), at::full({2}, 5.0f)));
      ++seen;
    } else if (id == "index/tensor_in_shard_not_in_index") {
      write_tensors(one, {"a", "b"});
      refused(Code::corruption, {"\"b\"", one});
    } else if (id == "index/path_traversal" || id == "index/absolute_path") {
      refused(Code::corruption, {"\"a\"", "plain name"});
    } else if (id == "index/no_index_single_file") {
      write_tensors("model.safetensors", {"a"}, 3);
      EXPECT_TRUE(at::equal(SafetensorsFolder(folder_).read("a"), at::full({2}, 3.0f)));
      ++seen;
    } else if (id == "index/not_json") {
      refused(Code::corruption, {"model.safetensors.index.json"});
    } else if (id == "index/dup_keys") {
      refused(Code::corruption, {"\"a\"", "twice"});
    }  // untied_lm_head_absent and scale_without_weight need a model: tests/checkpoint/load_test.cpp
  }
  EXPECT_EQ(seen, 8);
}

TEST_F(Safetensors, AFolderWithoutACheckpointSaysWhatItLooksFor) {
  test::expect_error(Code::not_found, {folder_.string(), "model.safetensors"},
                     [&] { SafetensorsFolder folder(folder_); });
}

TEST_F(Safetensors, ATensorInTwoShardsIsRefused) {
  write_tensors("model-00001-of-00002.safetensors", {"a", "b"});
  write_tensors("model-00002-of-00002.safetensors", {"b"});
  write_index({{"weight_map", {{"a", "model-00001-of-00002.safetensors"}, {"b", "model-00002-of-00002.safetensors"}}}});
  test::expect_error(Code::corruption, {"\"b\"", "model-00001", "model-00002"},
                     [&] { SafetensorsFolder folder(folder_); });
}

TEST_F(Safetensors, AnIndexThatNamesTheWrongFileIsRefused) {
  write_tensors("x.safetensors", {"a"});
  write_tensors("y.safetensors", {"b"});
  write_index({{"weight_map", {{"a", "y.safetensors"}, {"b", "x.safetensors"}}}});
  test::expect_error(Code::corruption, {"\"a\"", "y.safetensors"}, [&] { SafetensorsFolder folder(folder_); });
}

TEST_F(Safetensors, AHeaderOfAHundredThousandNamesIsReadQuickly) {
  std::vector<TensorToWrite> tensors;
  for (int i = 0; i < 100000; ++i)
    tensors.push_back({fmt::format("layers.{}.ffn.experts.{}.w1.weight", i / 256, i % 256), at::kByte, {0}});
  tensor::write_safetensors(folder_ / "model.safetensors", tensors, [](size_t) { return at::empty({0}, at::kByte); });
  EXPECT_EQ(SafetensorsFolder(folder_).names().size(), 100000u);
}

}  // namespace
