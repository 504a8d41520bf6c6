// Gradients of whole passes. Those of each operation are tested in tests/kernels.
#include <gtest/gtest.h>

#include "base/parallel.h"
#include "fixture.h"

namespace test {
namespace {

// Loss and gradients of one pass over two documents, with or without recompute.
std::map<std::string, Tensor> gradients_of_a_pass(const std::string& profile_name, bool recompute) {
  const model::Profile profile = model::Profile::parse(profile_name);
  const Fixture fixture = load_fixture(model_golden("edges"), "bf16");
  RunModel run(fixture.masters, profile);
  run.require_gradients();
  const model::Layout layout = model::make_layout(fixture.config, std::vector<model::Span>{{0, 40}, {0, 24}});
  const Tensor streams = model::forward_streams(run.pass(layout, fixture.ids(), nullptr, nullptr, recompute));
  const Tensor loss = at::log_softmax(run.logits(streams), 1).select(1, 5).mean();
  loss.backward();
  std::map<std::string, Tensor> result = run.gradients();
  result["loss"] = loss.detach();
  return result;
}

TEST(Gradients, WithRecomputeAreTheSameToTheBit) {
  for (const std::string profile : {"f32", "fp8"}) {
    const auto kept = gradients_of_a_pass(profile, false), again = gradients_of_a_pass(profile, true);
    ASSERT_EQ(kept.size(), again.size());
    EXPECT_GT(kept.size(), 80u);
    for (const auto& [name, gradient] : kept)
      EXPECT_TRUE(at::equal(gradient, again.at(name))) << profile << " " << name;
  }
}

TEST(Gradients, AreTheSameToTheBitOnAnyNumberOfThreads) {
  const int before = base::num_threads();
  base::set_num_threads(1);
  const auto alone = gradients_of_a_pass("fp8", false);
  base::set_num_threads(3);
  const auto together = gradients_of_a_pass("fp8", false);
  base::set_num_threads(before);
  for (const auto& [name, gradient] : alone) EXPECT_TRUE(at::equal(gradient, together.at(name))) << name;
}

}  // namespace
}  // namespace test
