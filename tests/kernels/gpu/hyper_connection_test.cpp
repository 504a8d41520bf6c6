// Hyper-connections against the CPU kernels, to the bit, from the same mix on.
#include "kernels/gpu/hyper_connection.h"

#include <gtest/gtest.h>

#include "base/expect_error.h"
#include "kernels/gpu/both_orders.h"

namespace {

using namespace kernels::cpu;
using test::Floats;

struct Sizes {
  int64_t tokens, streams, dim;
};
constexpr Sizes kSizes[] = {{0, 4, 3}, {1, 1, 1},  {1, 4, 9},   {5, 2, 17},
                            {9, 3, 5}, {17, 8, 3}, {3, 4, 300}, {2, 4, 1536}};

// One site with its packed fn.
struct Site {
  Site(const Sizes& sizes, bool head)
      : rows(head ? sizes.streams : (2 + sizes.streams) * sizes.streams), width(sizes.streams * sizes.dim) {
    streams = test::noise(sizes.tokens * width, 1);
    const Floats fn = test::noise(rows * width, 2, 1 / std::sqrt(static_cast<float>(width)));
    base = test::noise(rows, 3), scale = test::noise(head ? 1 : 3, 4);
    panels = test::unset(panel_bytes(WeightFormat::f32, rows, width) / 4);
    pack_f32(fn.data(), rows, width, {width, 1}, panels.data());
    pre.streams = streams.data(), pre.base = base.data(), pre.scale = scale.data();
    pre.tokens = sizes.tokens, pre.num_streams = sizes.streams, pre.dim = sizes.dim, pre.head = head;
    pre.fn = {WeightFormat::f32, rows, width, panels.data(), nullptr};
    pre.sinkhorn_iters = 20, pre.hc_eps = 1e-6f, pre.norm_eps = 1e-6f;
  }
  int64_t rows, width;
  Floats streams, base, scale, panels;
  HcPre pre;
};

struct PreValues {
  explicit PreValues(const Site& site)
      : input(test::unset(site.pre.tokens * site.pre.dim)),
        post(test::unset(site.pre.tokens * site.pre.num_streams)),
        comb(test::unset(site.pre.tokens * site.pre.num_streams * site.pre.num_streams)) {}
  Floats input, post, comb;
};

TEST(GpuHyperConnection, PreIsThatOfTheCpuKernel) {
  SKIP_WITHOUT_FMA();
  for (const Sizes& sizes : kSizes) {
    for (const bool head : {false, true}) {
      for (const bool round : {false, true}) {
        const Site site(sizes, head);
        PreValues wanted(site);
        Floats raw = test::unset(sizes.tokens * site.rows), rinv = test::unset(sizes.tokens);
        hc_pre(site.pre, {wanted.input.data(), round, wanted.post.data(), wanted.comb.data(), raw.data(), rinv.data()});
        test::in_both_orders([&] {
          PreValues own(site);
          HcPreResult to{own.input.data(), round, own.post.data(), own.comb.data(), nullptr, nullptr};
          if (head) to.post = to.comb = nullptr;
          kernels::gpu::hc_pre(site.pre, raw.data(), to, {});
          test::expect_same(own.input, wanted.input, "input");
          if (head) return;
          test::expect_same(own.post, wanted.post, "post");
          test::expect_same(own.comb, wanted.comb, "comb");
        });
      }
    }
  }
}

TEST(GpuHyperConnection, PostIsThatOfTheCpuKernel) {
  SKIP_WITHOUT_FMA();
  for (const Sizes& sizes : kSizes) {
    const int64_t t = sizes.tokens, m = sizes.streams, d = sizes.dim;
    const Floats output = test::noise(t * d, 1), streams = test::noise(t * m * d, 2), post = test::noise(t * m, 3);
    const Floats comb = test::noise(t * m * m, 4);
    const HcPost hc{output.data(), streams.data(), post.data(), comb.data(), t, m, d};
    for (const bool round : {false, true}) {
      Floats wanted = test::unset(t * m * d);
      hc_post(hc, round, wanted.data());
      test::in_both_orders([&] {
        Floats own = test::unset(t * m * d);
        kernels::gpu::hc_post(hc, round, own.data(), {});
        test::expect_same(own, wanted, "streams");
      });
    }
  }
}

TEST(GpuHyperConnection, SinkhornIsThatOfTheCpuKernel) {
  SKIP_WITHOUT_FMA();
  for (const int64_t m : {1, 2, 3, 4, 5, 8}) {
    for (const int64_t iters : {1, 2, 20}) {
      constexpr int64_t kTokens = 11;
      Floats logits = test::noise(kTokens * m * m, static_cast<uint32_t>(m), 4);
      logits[0] = test::kNan;  // of the first token, whose neighbours must not notice
      logits[static_cast<size_t>(m * m)] = 300;
      Floats wanted = test::unset(kTokens * m * m);
      sinkhorn({logits.data(), kTokens, m, iters, 1e-6f}, wanted.data());
      EXPECT_TRUE(std::isnan(wanted[0]));
      test::in_both_orders([&] {
        Floats own = test::unset(kTokens * m * m);
        kernels::gpu::sinkhorn({logits.data(), kTokens, m, iters, 1e-6f}, own.data(), {});
        test::expect_same(own, wanted, "comb");
      });
    }
  }
}

TEST(GpuHyperConnection, NineStreamsAndNoIterationsAreRefused) {
  const auto refused = [](const auto& action) { test::expect_error(base::Code::internal, {"streams"}, action); };
  HcPre pre;
  pre.num_streams = 9, pre.dim = 1, pre.head = true;
  refused([&] { kernels::gpu::hc_pre(pre, nullptr, {}, {}); });
  refused([] { kernels::gpu::sinkhorn({nullptr, 1, 4, 0, 1e-6f}, nullptr, {}); });
}

}  // namespace
