// Checkpoints between Furlong and transformers, both ways. Needs the Python packages of `./dev setup`; fails loudly
// without them.
#include <gtest/gtest.h>

#include <cstdlib>

#include "checkpoint/load.h"
#include "checkpoint/save.h"
#include "checkpoint/temporary_folder.h"
#include "checkpoint/tiny_model.h"
#include "tensor/golden.h"

namespace {

namespace fs = std::filesystem;
using checkpoint::SaveAs;
using model::Weights;

// Runs transformers_peer.py; what it prints goes to the file `log`, which is shown when it fails.
void run_peer(const std::string& arguments, const fs::path& log) {
  const fs::path source(FURLONG_SOURCE_DIR);
  const std::string command = fmt::format(
      "HF_HUB_OFFLINE=1 TRANSFORMERS_VERBOSITY=error '{}' '{}' {} >'{}' 2>&1", (source / ".venv/bin/python").string(),
      (source / "tests/checkpoint/transformers_peer.py").string(), arguments, log.string());
  const int status = std::system(command.c_str());
  ASSERT_EQ(status, 0) << "transformers_peer.py " << arguments << ":\n"
                       << base::read_file(log) << "\nIf a Python package is missing: ./dev setup";
}

bool has_transformers() {
  for (const auto& entry : fs::directory_iterator(fs::path(FURLONG_SOURCE_DIR) / ".venv/lib")) {
    if (fs::exists(entry.path() / "site-packages/transformers")) return true;
  }
  return false;
}

void expect_same(const Weights& a, const Weights& b) {
  std::map<std::string, tensor::Tensor> values;
  a.visit_named([&](const model::TensorInfo& info, const tensor::Tensor& value) { values[info.name] = value; });
  b.visit_named([&](const model::TensorInfo& info, const tensor::Tensor& value) {
    EXPECT_TRUE(test::same_bits(values.at(info.name), value)) << info.name;
    values.erase(info.name);
  });
  EXPECT_TRUE(values.empty());
}

TEST(Transformers, CheckpointsGoBothWaysWithoutADifference) {
  if (!has_transformers())
    GTEST_SKIP() << "NOT CHECKED against transformers: the package is not in .venv; run ./dev setup";
  const test::TemporaryFolder folder;
  const fs::path log = folder / "log.txt";
  run_peer(fmt::format("make '{}'", folder.path().string()), log);
  if (HasFatalFailure()) return;
  const Weights saved = checkpoint::load_weights(folder / "saved");
  EXPECT_FALSE(saved.mtp);  // transformers writes none, though its config names it
  expect_same(saved, checkpoint::load_weights(folder / "run_time"));
  checkpoint::save_weights(folder / "f32", saved, SaveAs::f32);
  checkpoint::save_weights(folder / "bf16", saved, SaveAs::bf16, 20'000);  // sharded
  const auto compare = [&](const char* ours, const char* dtype) {
    run_peer(fmt::format("compare '{}' '{}' {}", (folder / "saved").string(), (folder / ours).string(), dtype), log);
  };
  compare("f32", "float32");
  compare("bf16", "bfloat16");
}

TEST(Transformers, ThePublishedLayoutIsWhatAnIndependentReaderDequantises) {  // cases q-08, q-10
  if (!has_transformers())
    GTEST_SKIP() << "NOT CHECKED by another reader: the packages are not in .venv; run ./dev setup";
  const test::TemporaryFolder folder;
  checkpoint::save_weights(folder / "published", test::tiny_weights(), SaveAs::published);
  checkpoint::save_weights(folder / "f32", checkpoint::load_weights(folder / "published"), SaveAs::f32);
  const std::string folders = fmt::format("'{}' '{}'", (folder / "published").string(), (folder / "f32").string());
  run_peer("dequantise " + folders, folder / "log.txt");
}

}  // namespace
