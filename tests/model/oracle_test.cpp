// Profile f32 against transformers: streams, logits, loss, every gradient, and every discrete choice. Limits of the
// issue.
#include <gtest/gtest.h>

#include <cstdio>

#include "fixture.h"
#include "model/transformer.h"

namespace test {
namespace {

constexpr double kLogitsMaxAbs = 3e-5, kStreamsL2 = 3e-6, kGradientL2 = 2e-5, kChoiceMargin = 1e-5;

// Mean cross entropy of the next token, over all documents.
Tensor next_token_loss(const Tensor& logits_TV, const Tensor& ids_T, const std::vector<model::Span>& documents) {
  std::vector<Tensor> losses;
  int64_t begin = 0;
  for (const model::Span& span : documents) {
    const Tensor log_prob = at::log_softmax(logits_TV.narrow(0, begin, span.count - 1), 1);
    losses.push_back(-log_prob.gather(1, ids_T.narrow(0, begin + 1, span.count - 1).unsqueeze(1)));
    begin += span.count;
  }
  return at::cat(losses).mean();
}

class Oracle : public testing::Test {
 protected:
  Oracle() : fixture_(load_fixture(fixture_folder("small"), "f32")) {
    layout_ = model::make_layout(fixture_.config, fixture_.documents());
  }
  void report(const std::string& text, double value) const {
    if (other_fixture()) std::printf("%s %.2e\n", text.c_str(), value);
  }
  void report_worst(const std::string& kind, const std::map<std::string, double>& errors) const {
    std::pair<std::string, double> worst{"none", 0};
    for (const auto& error : errors) {
      if (error.second >= worst.second) worst = error;
    }
    report("worst " + kind + ": " + worst.first, worst.second);
  }
  // Rows of choices that differ although the oracle was sure of them.
  int64_t sure_differences(const std::string& kind, size_t layer, const Tensor& got) const {
    const std::string name = fmt::format("{}.{}", kind, layer);
    const Tensor differs = (got != fixture_.rows(name)).any(1);
    const std::string gap = fmt::format("{}_gap.{}", kind, layer);
    const Tensor unsure = fixture_.has(gap) ? fixture_.rows(gap) < kChoiceMargin : at::zeros_like(differs);
    const Tensor excused = (differs & unsure).nonzero().flatten();
    for (int64_t i = 0; i < excused.size(0); ++i) {
      std::printf("%s token %ld: within the oracle's margin\n", name.c_str(), excused[i].item<int64_t>());
    }
    return (differs & ~unsure).sum().item<int64_t>();
  }

  Fixture fixture_;
  model::Layout layout_;
};

TEST_F(Oracle, StreamsLogitsAndChoicesEqualTransformers) {
  const at::NoGradGuard no_grad;
  const RunModel run(fixture_.masters, model::Profile());
  model::Choices choices;
  const model::Pass pass = run.pass(layout_, fixture_.ids(), nullptr, &choices);
  Tensor streams = model::embed_streams(pass);
  std::map<std::string, double> errors;
  for (int64_t l = 0; l < fixture_.config.num_hidden_layers; ++l) {
    streams = model::forward_layer(pass, l, streams);
    const std::string name = fmt::format("streams.{}", l);
    errors[name] = relative_l2(streams, fixture_.rows(name));
    EXPECT_LE(errors[name], kStreamsL2) << name;
  }
  report_worst("streams, relative L2", errors);
  const Tensor logits = run.logits(streams);
  report("logits, max abs", max_abs(logits, fixture_.rows("logits")));
  EXPECT_LE(max_abs(logits, fixture_.rows("logits")), kLogitsMaxAbs);
  for (size_t l = 0; l < run.weights.layers.size(); ++l) {
    EXPECT_EQ(sure_differences("router", l, choices.experts_TA[l]), 0) << "layer " << l;
    if (fixture_.config.layer_types[l] != model::LayerKind::csa) continue;
    EXPECT_EQ(sure_differences("indexer", l, choices.entries_TA[l]), 0) << "layer " << l;
  }
}

TEST_F(Oracle, EveryGradientEqualsTransformersAndTheIndexerHasNone) {
  RunModel run(fixture_.masters, model::Profile());
  run.require_gradients();
  const Tensor ids = fixture_.ids();
  const Tensor logits = run.logits(model::forward_streams(run.pass(layout_, ids)));
  const Tensor loss = next_token_loss(logits, ids, layout_.spans);
  EXPECT_NEAR(loss.item<double>(), fixture_.at("loss").item<double>(), 1e-6 * loss.item<double>());
  loss.backward();
  std::map<std::string, double> errors;
  const std::map<std::string, Tensor> gradients = run.gradients();
  fixture_.masters.visit([&](const model::TensorInfo& info, Tensor&) {
    const std::string name = "grad." + info.name;
    if (!fixture_.has(name)) {
      const bool may_lack = info.name.find("indexer") != std::string::npos ||
                            info.name.find("gate.bias") != std::string::npos ||
                            info.name.find("tid2eid") != std::string::npos || info.name.rfind("mtp.", 0) == 0;
      EXPECT_TRUE(may_lack) << "the oracle has no " << name;
      EXPECT_FALSE(gradients.contains(info.name)) << info.name << " should have no gradient";
      return;
    }
    ASSERT_TRUE(gradients.contains(info.name)) << info.name;
    errors[info.name] = relative_l2(gradients.at(info.name), fixture_.at(name));
    EXPECT_LE(errors[info.name], kGradientL2) << info.name;
  });
  report_worst(fmt::format("of {} gradients, relative L2", errors.size()), errors);
  size_t num_gradients = 0;
  for (const auto& entry : fixture_.reference) num_gradients += entry.first.rfind("grad.", 0) == 0;
  EXPECT_EQ(errors.size(), num_gradients);
}

TEST_F(Oracle, TheMtpBlockEqualsTheReference) {
  if (!fixture_.masters.mtp) GTEST_SKIP() << "this folder has no MTP block";
  const at::NoGradGuard no_grad;
  const RunModel run(fixture_.masters, model::Profile());
  const Tensor ids = fixture_.ids(), streams = model::forward_streams(run.pass(layout_, ids));
  std::vector<model::Span> shorter;
  std::vector<Tensor> rows, next;
  int64_t begin = 0;
  for (const model::Span& span : layout_.spans) {
    shorter.push_back({0, span.count - 1, 0});
    rows.push_back(streams.narrow(0, begin, span.count - 1));
    next.push_back(ids.narrow(0, begin + 1, span.count - 1));
    begin += span.count;
  }
  const model::Layout layout = model::make_layout(fixture_.config, shorter);
  const Tensor out = model::mtp_streams(run.pass(layout, ids), at::cat(rows), at::cat(next));
  EXPECT_LE(relative_l2(out, fixture_.at("mtp.streams")), kStreamsL2);
  EXPECT_LE(max_abs(model::mtp_logits(run.weights, run.profile, out), fixture_.at("mtp.logits")), kLogitsMaxAbs);
}

}  // namespace
}  // namespace test
