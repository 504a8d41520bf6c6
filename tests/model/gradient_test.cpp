// The written gradients against autograd of plain compositions, in f64; activation recompute to the bit.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "fixture.h"
#include "model/attention.h"
#include "model/compressor.h"
#include "model/hyper_connection.h"
#include "model/moe.h"
#include "model/numerics.h"
#include "model/transformer.h"

namespace test {
namespace {

using Tensors = std::vector<Tensor>;
using Function = std::function<Tensor(const Tensors&)>;

const model::Profile kF32;

Tensor random(at::IntArrayRef shape) { return at::randn(shape, at::kDouble); }

Tensors leaves(const Tensors& values, at::ScalarType type) {
  Tensors result;
  for (const Tensor& value : values) result.push_back(value.detach().to(type).clone().requires_grad_());
  return result;
}

// Values and gradients of `ours` (run in `type`) and `plain` (in f64), for a random direction of the output.
void expect_same(const Function& ours, const Function& plain, const Tensors& values, at::ScalarType type = at::kDouble,
                 double limit = 1e-12) {
  const Tensors mine = leaves(values, type), theirs = leaves(values, at::kDouble);
  const Tensor got = ours(mine), wanted = plain(theirs), direction = random(wanted.sizes());
  ASSERT_EQ(got.sizes(), wanted.sizes());
  EXPECT_LE(relative_l2(got, wanted), limit);
  got.backward(direction.to(type));
  wanted.backward(direction);
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_TRUE(mine[i].grad().defined()) << "input " << i;
    EXPECT_LE(relative_l2(mine[i].grad(), theirs[i].grad()), 10 * limit) << "input " << i;
  }
}

Tensor plain_sinkhorn(const Tensor& logits, int64_t iters, double eps) {
  Tensor c = at::softmax(logits, -1) + eps;
  c = c / (c.sum(-2, true) + eps);
  for (int64_t i = 1; i < iters; ++i) {
    c = c / (c.sum(-1, true) + eps);
    c = c / (c.sum(-2, true) + eps);
  }
  return c;
}

Tensor plain_rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  const Tensor y = x / (x.square().mean(-1, true) + eps).sqrt();
  return weight.defined() ? y * weight : y;
}

class Gradients : public testing::Test {
 protected:
  Gradients() { at::manual_seed(3); }
};

TEST_F(Gradients, SinkhornEqualsItsPlainSteps) {
  for (const int64_t iters : {1, 2, 20}) {
    expect_same([&](const Tensors& in) { return model::sinkhorn(in[0], iters, 1e-3); },
                [&](const Tensors& in) { return plain_sinkhorn(in[0], iters, 1e-3); }, {2 * random({5, 3, 3})});
  }
}

TEST_F(Gradients, HyperConnectionGatesAndMixing) {
  model::Config config;
  config.hc_mult = 3;
  config.hc_sinkhorn_iters = 4;
  config.hc_eps = 1e-3;
  const int64_t m = 3, d = 7, tokens = 6;
  // streams, output of the sub-layer, fn, base, scale -> (input of the sub-layer, new streams)
  const Function ours = [&](const Tensors& in) {
    const model::HcInput gates = model::hc_pre(config, kF32, {in[2], in[3], in[4]}, in[0]);
    return at::cat({gates.input_TD.unsqueeze(1), model::hc_post(kF32, in[1], in[0], gates)}, 1);
  };
  const Function plain = [&](const Tensors& in) {
    const Tensor x = in[0].flatten(1);
    const Tensor mix = x.matmul(in[2].t()) / (x.square().mean(-1, true) + config.rms_norm_eps).sqrt();
    const auto part = [&](int64_t from, int64_t count, int64_t scale) {
      return mix.narrow(1, from, count) * in[4].select(0, scale) + in[3].narrow(0, from, count);
    };
    const Tensor pre = at::sigmoid(part(0, m, 0)) + config.hc_eps, post = 2 * at::sigmoid(part(m, m, 1));
    const Tensor comb = plain_sinkhorn(part(2 * m, m * m, 2).view({-1, m, m}), 4, config.hc_eps);
    const Tensor input = at::einsum("ti,tid->td", {pre, in[0]});
    const Tensor out = post.unsqueeze(2) * in[1].unsqueeze(1) + at::einsum("tij,tid->tjd", {comb, in[0]});
    return at::cat({input.unsqueeze(1), out}, 1);
  };
  expect_same(ours, plain,
              {random({tokens, m, d}), random({tokens, d}), .3 * random({(2 + m) * m, m * d}), random({(2 + m) * m}),
               random({3})});
}

TEST_F(Gradients, HyperConnectionHead) {
  model::Config config;
  config.hc_mult = 3;
  expect_same(
      [&](const Tensors& in) {
        return model::hc_head(config, kF32, {in[1], in[2], in[3]}, in[0]);
      },
      [&](const Tensors& in) {
        const Tensor x = in[0].flatten(1);
        const Tensor mix = x.matmul(in[1].t()) / (x.square().mean(-1, true) + config.rms_norm_eps).sqrt();
        return at::einsum("ti,tid->td", {at::sigmoid(mix * in[3] + in[2]) + config.hc_eps, in[0]});
      },
      {random({4, 3, 5}), random({3, 15}), random({3}), random({1})});
}

TEST_F(Gradients, RmsNormWithAndWithoutWeight) {
  expect_same([](const Tensors& in) { return model::rms_norm(kF32, in[0], in[1], 1e-3); },
              [](const Tensors& in) { return plain_rms_norm(in[0], in[1], 1e-3); }, {random({4, 3, 9}), random({9})});
  expect_same([](const Tensors& in) { return model::rms_norm(kF32, in[0], {}, 1e-3); },
              [](const Tensors& in) { return plain_rms_norm(in[0], {}, 1e-3); }, {random({4, 3, 9})});
}

TEST_F(Gradients, RotationInBothDirections) {
  model::Config config;
  config.qk_rope_head_dim = 6;
  model::Rotation rotation = model::rotation(config, true, at::tensor({0.f, 1.f, 17.f, 4000.f}));
  rotation.cos = rotation.cos.to(at::kDouble);
  rotation.sin = rotation.sin.to(at::kDouble);
  for (const bool inverse : {false, true}) {
    const Function plain = [&](const Tensors& in) {
      const auto parts = in[0].split_with_sizes({5, 6}, -1);
      const Tensor pairs = parts[1].unflatten(-1, {3, 2}), even = pairs.select(-1, 0), odd = pairs.select(-1, 1);
      const Tensor c = rotation.cos.unsqueeze(1), s = rotation.sin.unsqueeze(1) * (inverse ? -1 : 1);
      return at::cat({parts[0], at::stack({even * c - odd * s, even * s + odd * c}, -1).flatten(-2)}, -1);
    };
    expect_same([&](const Tensors& in) { return model::rotate(in[0], rotation, inverse); }, plain,
                {random({4, 2, 11})});
  }
}

TEST_F(Gradients, AttentionWithASinkAndOneVectorAsKeyAndValue) {
  const int64_t blocks = 2, queries = 3, heads = 2, dim = 5, keys = 6;
  Tensor mask = at::rand({blocks, queries, keys}) < 0.5;
  mask.select(2, 0).fill_(true);
  const Function plain = [&](const Tensors& in) {
    const Tensor score = (at::einsum("qlhk,qnk->qlhn", {in[0], in[1]}) * 0.3)
                             .masked_fill(~mask.unsqueeze(2), -std::numeric_limits<double>::infinity());
    const Tensor sink = in[2].view({1, 1, heads, 1}).expand({blocks, queries, heads, 1});
    return at::einsum("qlhn,qnk->qlhk", {at::softmax(at::cat({score, sink}, 3), 3).narrow(3, 0, keys), in[1]});
  };
  expect_same([&](const Tensors& in) { return model::attend(in[0], in[1], mask, in[2], 0.3); }, plain,
              {random({blocks, queries, heads, dim}), random({blocks, keys, dim}), 3 * random({heads})});
}

TEST_F(Gradients, AttentionWithHugeScoresOrSinkStaysFinite) {
  const Tensor query = at::full({1, 1, 2, 4}, 100.).requires_grad_(), keys = at::full({1, 3, 4}, 100.).requires_grad_();
  const Tensor sink = at::tensor({1e6, -1e6}).to(at::kFloat).requires_grad_();
  const Tensor out = model::attend(query, keys, at::ones({1, 1, 3}, at::kBool), sink, 1);
  EXPECT_NEAR(out.select(2, 0).max().item<double>(), 0, 1e-6);    // everything goes to the sink
  EXPECT_NEAR(out.select(2, 1).min().item<double>(), 100, 1e-3);  // nothing does
  out.sum().backward();
  for (const Tensor& grad : {query.grad(), keys.grad(), sink.grad()})
    EXPECT_TRUE(at::isfinite(grad).all().item<bool>());
}

// Sizes that are a multiple of 16 bytes and sizes that are not; expert 1 has no row.
TEST_F(Gradients, ExpertsProducts) {
  const std::vector<int64_t> ends = {2, 2, 7, 8};
  const Function plain = [&](const Tensors& in) {
    Tensors parts;
    for (size_t e = 0; e < ends.size(); ++e) {
      const int64_t begin = e == 0 ? 0 : ends[e - 1];
      parts.push_back(in[0].narrow(0, begin, ends[e] - begin).matmul(in[1][static_cast<int64_t>(e)].t()));
    }
    return at::cat(parts);
  };
  const Tensor ends_E = at::tensor(ends, at::kInt);
  for (const auto& [in, out] : std::vector<std::pair<int64_t, int64_t>>{{12, 20}, {12, 7}, {5, 20}, {1, 1}, {6, 9}}) {
    expect_same([&](const Tensors& inputs) { return model::grouped_linear(inputs[0], inputs[1], ends_E); }, plain,
                {random({8, in}), random({4, out, in})}, at::kFloat, 1e-6);
  }
}

// Blocks of packed documents of different length, some without a whole block.
void compare_compressor(bool overlap, int64_t ratio) {
  model::Config config = model::Config::load(model_golden("small"));
  config.csa_ratio = config.hca_ratio = ratio;
  const std::vector<int64_t> lengths = {3 * ratio + 1, ratio - 1, 2 * ratio, ratio};
  std::vector<model::Span> spans;
  int64_t tokens = 0;
  for (const int64_t length : lengths) spans.push_back({0, length, 0}), tokens += length;
  const model::Layout layout = model::Layout::build(config, spans, 0, at::kCPU);
  const int64_t dim = 10, hidden = 7, channels = overlap ? 2 * dim : dim;
  const Function ours = [&](const Tensors& in) {
    return model::compress(config, kF32, {in[1], in[2], in[3], in[4]}, in[0], layout, overlap ? layout.csa : layout.hca,
                           nullptr);
  };
  const Function plain = [&](const Tensors& in) {
    Tensors entries;
    int64_t begin = 0;
    for (const int64_t length : lengths) {
      const Tensor rows = in[0].narrow(0, begin, length), kv = rows.matmul(in[2].t());
      const Tensor score = rows.matmul(in[3].t()) + in[1].index_select(0, at::arange(length).remainder(ratio));
      for (int64_t w = 0; w < length / ratio; ++w) {
        Tensors kv_rows, score_rows;
        const auto add = [&](int64_t block, int64_t channel) {
          kv_rows.push_back(kv.narrow(0, block * ratio, ratio).narrow(1, channel, dim));
          score_rows.push_back(score.narrow(0, block * ratio, ratio).narrow(1, channel, dim));
        };
        if (overlap && w > 0) add(w - 1, 0);
        add(w, channels - dim);
        const Tensor pooled = (at::softmax(at::cat(score_rows), 0) * at::cat(kv_rows)).sum(0, true);
        const model::Rotation rotation = model::rotation(config, true, at::full({1}, static_cast<float>(w * ratio)));
        entries.push_back(model::rotate(plain_rms_norm(pooled, in[4], config.rms_norm_eps), rotation));
      }
      begin += length;
    }
    return at::cat(entries);
  };
  expect_same(ours, plain,
              {random({tokens, hidden}), random({ratio, channels}), random({channels, hidden}),
               random({channels, hidden}), random({dim})});
}

TEST_F(Gradients, PoolingOfTheCompressorWithOverlap) { compare_compressor(true, 4); }
TEST_F(Gradients, PoolingOfTheCompressorWithoutOverlap) { compare_compressor(false, 6); }

TEST_F(Gradients, RowsGatheredSeveralTimesCollectAllTheirGradients) {
  const Tensor index = at::tensor({1, 1, 0, 1, 3}, at::kLong);
  expect_same([&](const Tensors& in) { return model::gather_rows(in[0], index); },
              [&](const Tensors& in) { return in[0].index_select(0, index); }, {random({4, 6})});
}

TEST_F(Gradients, PassThroughTheSimulatedGridsUnchanged) {
  const model::Profile fp8 = model::Profile::parse("fp8");
  const Tensor direction = at::randn({3, 140});
  for (const auto& run :
       std::vector<std::function<Tensor(const Tensor&)>>{[&](const Tensor& x) { return model::kv_entry(fp8, x, 12); },
                                                         [&](const Tensor& x) { return model::linear_input(fp8, x); },
                                                         [&](const Tensor& x) { return model::rounded(fp8, x); }}) {
    const Tensor x = at::randn({3, 140}).requires_grad_();
    const Tensor y = run(x);
    EXPECT_FALSE(at::equal(x, y));
    y.backward(direction);
    EXPECT_TRUE(at::equal(x.grad(), direction));
  }
}

// Loss and gradients of one pass over two documents, with or without recompute.
std::map<std::string, Tensor> gradients_of_a_pass(const std::string& profile_name, bool recompute) {
  const model::Profile profile = model::Profile::parse(profile_name);
  const Fixture fixture = load_fixture(model_golden("edges"), "bf16");
  model::Weights weights = model::run_weights(fixture.masters, profile);
  weights.visit([](const model::TensorInfo& info, Tensor& tensor) {
    if (info.stored_as != model::StoredAs::i64) tensor.requires_grad_();
  });
  const model::Layout layout = model::Layout::build(fixture.config, {{0, 40, 0}, {0, 24, 0}}, 0, at::kCPU);
  const Tensor streams = model::forward_streams({weights, profile, layout, fixture.ids(), nullptr, nullptr, recompute});
  const Tensor loss = at::log_softmax(model::head_logits(weights, model::final_hidden(weights, profile, streams)), 1)
                          .select(1, 5)
                          .mean();
  loss.backward();
  std::map<std::string, Tensor> result{{"loss", loss.detach()}};
  weights.visit([&](const model::TensorInfo& info, const Tensor& tensor) {
    if (tensor.grad().defined()) result[info.name] = tensor.grad();
  });
  return result;
}

TEST_F(Gradients, WithRecomputeAreTheSameToTheBit) {
  for (const std::string profile : {"f32", "fp8"}) {
    const auto kept = gradients_of_a_pass(profile, false), again = gradients_of_a_pass(profile, true);
    ASSERT_EQ(kept.size(), again.size());
    EXPECT_GT(kept.size(), 80u);
    for (const auto& [name, gradient] : kept)
      EXPECT_TRUE(at::equal(gradient, again.at(name))) << profile << " " << name;
  }
}

}  // namespace
}  // namespace test
