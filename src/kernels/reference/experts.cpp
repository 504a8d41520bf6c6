// Rows sorted by expert, products over tiles of them, and the sum in the order of the experts.
#include "kernels/reference/experts.h"

#include <algorithm>

#include "kernels/reference/linear.h"
#include "kernels/reference/simulate.h"

namespace kernels::reference {
namespace {

// Rows of a matrix. The gradient is summed in index order (deterministic).
Tensor gather_rows(const Tensor& rows, const Tensor& index) { return at::embedding(rows, index); }

Tensor activated(const Tensor& gate, const Tensor& up, const Tensor& weight, const ExpertOptions& options) {
  const double limit = options.limit;
  const Tensor g = limit > 0 ? gate.clamp_max(limit) : gate, u = limit > 0 ? up.clamp(-limit, limit) : up;
  const Tensor product = at::silu(g) * u;
  const Tensor h = rounded(weight.defined() ? weight * product : product, options.rounding);
  return options.simulate ? simulate_groups(h, 128, tensor::BlockFormat::e4m3) : h;
}

}  // namespace

// Each expert's rows in tiles of B rows, the last one filled up: a tile has one expert, and there are at most
// (P + (B - 1) * experts in use) / B of them, a number that does not depend on the routing. So nobody reads on the host
// where an expert's rows end, as at::_grouped_mm does for f32 (P rows, J tiles).
Tensor expert_products(const Tensor& x_PK, const Tensor& weight_ENK, const Tensor& expert_P) {
  const int64_t rows = x_PK.size(0), experts = weight_ENK.size(0), n = weight_ENK.size(1), k = weight_ENK.size(2);
  const int64_t tile =
      std::max<int64_t>((rows + experts - 1) / experts, 1);  // about as many copies of a weight as there are experts
  const int64_t num_tiles = (rows + (tile - 1) * std::min(experts, rows)) / tile;
  const auto count = [&](int64_t to) { return at::arange(to, expert_P.options()); };
  const Tensor begin_E = at::searchsorted(expert_P, count(experts));
  const Tensor end_E = at::searchsorted(expert_P, count(experts), /*out_int32=*/false, /*right=*/true);
  const Tensor end_tile_E = (end_E - begin_E + (tile - 1)).floor_divide(tile).cumsum(0);
  const Tensor begin_tile_E = at::cat({count(1), end_tile_E.narrow(0, 0, experts - 1)});
  const Tensor place_P = (begin_tile_E * tile - begin_E).index_select(0, expert_P) + count(rows);
  const Tensor expert_J =
      at::searchsorted(end_tile_E, count(num_tiles), /*out_int32=*/false, /*right=*/true).clamp_max(experts - 1);
  const Tensor row_JB = at::full({num_tiles * tile}, rows, expert_P.options()).scatter(0, place_P, count(rows));
  const Tensor tiles_JBK = gather_rows(at::constant_pad_nd(x_PK, {0, 0, 0, 1}), row_JB).view({num_tiles, tile, k});
  const Tensor weight_JNK = gather_rows(weight_ENK.flatten(1), expert_J).view({num_tiles, n, k});
  return gather_rows(at::bmm(tiles_JBK, weight_JNK.transpose(1, 2)).flatten(0, 1), place_P);
}

Tensor routed_experts(const Tensor& x, const Tensor& expert_TA, const Tensor& weight_TA, const Tensor& shared,
                      const ExpertValues& weights, const ExpertOptions& options) {
  const int64_t num_tokens = x.size(0), per_token = expert_TA.size(1);
  if (num_tokens == 0) return rounded(shared, options.rounding);
  const auto [expert_P, pair_P] =
      at::sort(expert_TA.to(at::kLong).flatten(), /*stable=*/true, /*dim=*/0, /*descending=*/false);
  const Tensor in_PD = gather_rows(x, pair_P.floor_divide(per_token));
  const Tensor gate_PF = rounded(expert_products(in_PD, weights.w1, expert_P), options.rounding);
  const Tensor up_PF = rounded(expert_products(in_PD, weights.w3, expert_P), options.rounding);
  const Tensor weight_P1 = gather_rows(weight_TA.reshape({-1, 1}), pair_P);
  const Tensor hidden_PF = activated(gate_PF, up_PF, weight_P1, options);
  const Tensor out_PD = rounded(expert_products(hidden_PF, weights.w2, expert_P), options.rounding);
  const Tensor place_P = at::empty_like(pair_P).scatter_(0, pair_P, at::arange(pair_P.size(0), pair_P.options()));
  const Tensor out_TAD = gather_rows(out_PD, place_P).view({num_tokens, per_token, -1});
  Tensor sum_TD = out_TAD.select(1, 0);
  for (int64_t a = 1; a < per_token; ++a) sum_TD = sum_TD + out_TAD.select(1, a);
  return rounded(sum_TD + shared, options.rounding);
}

Tensor shared_expert(const Tensor& x, const ExpertValues& weights, const ExpertOptions& options) {
  const Tensor gate = linear(x, weights.w1, options.rounding), up = linear(x, weights.w3, options.rounding);
  return linear(activated(gate, up, Tensor(), options), weights.w2, options.rounding);
}

}  // namespace kernels::reference
