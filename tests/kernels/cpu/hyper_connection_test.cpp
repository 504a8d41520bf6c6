// Hyper-connections without torch: odd sizes, on every instruction set that this machine has.
#include "kernels/cpu/hyper_connection.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/cpu/each_target.h"

namespace {

using namespace kernels::cpu;
using Floats = std::vector<float>;

struct Sizes {
  int64_t tokens, streams, dim;
};
constexpr Sizes kSizes[] = {{0, 4, 3}, {1, 1, 1}, {1, 4, 9}, {5, 2, 17}, {19, 4, 8}, {9, 3, 5}, {17, 8, 3}};

Floats zeros(int64_t count) { return Floats(static_cast<size_t>(count)); }
void append(Floats& to, const Floats& more) { to.insert(to.end(), more.begin(), more.end()); }

// One site with its packed fn; head: that of the head.
struct Site {
  Site(const Sizes& sizes, bool head)
      : rows(head ? sizes.streams : (2 + sizes.streams) * sizes.streams), width(sizes.streams * sizes.dim) {
    streams = test::noise(sizes.tokens * width, 1);
    fn = test::noise(rows * width, 2, 1 / std::sqrt(static_cast<float>(width)));
    base = test::noise(rows, 3), scale = test::noise(head ? 1 : 3, 4);
    panels = packed(rows, width, {width, 1}), panels_back = packed(width, rows, {1, width});
    pre.streams = streams.data(), pre.base = base.data(), pre.scale = scale.data();
    pre.tokens = sizes.tokens, pre.num_streams = sizes.streams, pre.dim = sizes.dim, pre.head = head;
    pre.fn = {WeightFormat::f32, rows, width, panels.data(), nullptr};
    pre.sinkhorn_iters = 20, pre.hc_eps = 1e-6f, pre.norm_eps = 1e-6f;
  }
  Floats packed(int64_t n, int64_t k, Strides strides) const {
    Floats to = zeros(panel_bytes(WeightFormat::f32, n, k) / 4);
    pack_f32(fn.data(), n, k, strides, to.data());
    return to;
  }
  int64_t rows, width;
  Floats streams, fn, base, scale, panels, panels_back;
  HcPre pre;
};

// Everything that hc_pre and its gradient give.
Floats run_pre(const Site& site) {
  const HcPre& pre = site.pre;
  const int64_t t = pre.tokens, m = pre.num_streams;
  Floats input = zeros(t * pre.dim), post = zeros(t * m), comb = zeros(t * m * m), raw = zeros(t * site.rows);
  Floats rinv = zeros(t);
  hc_pre(pre, {input.data(), true, post.data(), comb.data(), nullptr, nullptr});
  hc_pre(pre, {input.data(), false, post.data(), comb.data(), raw.data(), rinv.data()});
  const Floats dinput = test::noise(t * pre.dim, 5), dpost = test::noise(t * m, 6), dcomb = test::noise(t * m * m, 7);
  Floats dstreams = zeros(t * site.width), dfn = zeros(site.rows * site.width), dbase = zeros(site.rows);
  Floats dscale = zeros(pre.head ? 1 : 3);
  HcPreGradient gradient;
  gradient.dinput = dinput.data(), gradient.raw = raw.data(), gradient.rinv = rinv.data();
  gradient.fn_transposed = {WeightFormat::f32, site.width, site.rows, site.panels_back.data(), nullptr};
  gradient.dstreams = dstreams.data();
  hc_pre_backward(pre, gradient);
  if (!pre.head) gradient.dpost = dpost.data(), gradient.dcomb = dcomb.data();
  gradient.dfn = dfn.data(), gradient.dbase = dbase.data(), gradient.dscale = dscale.data();
  hc_pre_backward(pre, gradient);
  Floats all;
  for (const Floats& part : {input, post, comb, dstreams, dfn, dbase, dscale}) append(all, part);
  return all;
}

Floats run_post(const Sizes& sizes) {
  const int64_t t = sizes.tokens, m = sizes.streams, d = sizes.dim;
  const Floats output = test::noise(t * d, 1), streams = test::noise(t * m * d, 2), post = test::noise(t * m, 3);
  const Floats comb = test::noise(t * m * m, 4), dresult = test::noise(t * m * d, 5);
  const HcPost hc{output.data(), streams.data(), post.data(), comb.data(), t, m, d};
  Floats result = zeros(t * m * d), doutput = zeros(t * d), dstreams = zeros(t * m * d), dpost = zeros(t * m);
  Floats dcomb = zeros(t * m * m);
  hc_post(hc, true, result.data());
  hc_post(hc, false, result.data());
  hc_post_backward(hc, {dresult.data(), doutput.data(), dstreams.data(), dpost.data(), dcomb.data()});
  for (const Floats& part : {doutput, dstreams, dpost, dcomb}) append(result, part);
  return result;
}

// Fused and separate multiply-adds differ in the last bits; values stay below 100.
TEST(HyperConnectionOnCpu, StaysInsideItsRowsAndAgreesBetweenInstructionSets) {
  for (const Sizes& sizes : kSizes) {
    for (const bool head : {false, true}) {
      const Site site(sizes, head);
      std::vector<Floats> results;
      test::on_each_target([&] { results.push_back(run_pre(site)); });
      for (const Floats& of_target : results) test::expect_close(of_target, results[0], 1e-4f);
    }
    std::vector<Floats> results;
    test::on_each_target([&] { results.push_back(run_post(sizes)); });
    for (const Floats& of_target : results) test::expect_close(of_target, results[0], 2e-5f);
  }
}

TEST(HyperConnectionOnCpu, EqualLogitsGiveAUniformMatrix) {
  for (const int64_t m : {1, 3, 4, 8}) {
    const Floats logits(static_cast<size_t>(3 * m * m), 2.5f);
    test::on_each_target([&] {
      Floats comb = zeros(3 * m * m), gradient = zeros(3 * m * m);
      const Sinkhorn step{logits.data(), 3, m, 20, 1e-6f};
      sinkhorn(step, comb.data());
      test::expect_close(comb, Floats(comb.size(), 1 / static_cast<float>(m)), 2e-6f);
      sinkhorn_backward(step, comb.data(), gradient.data());  // along itself: no way to change
      test::expect_close(gradient, Floats(gradient.size(), 0.0f), 1e-6f);
    });
  }
}

}  // namespace
