// Norm, turn and rounding one after the other.
#include "kernels/reference/rope.h"

#include "kernels/reference/rms_norm.h"
#include "kernels/reference/simulate.h"

namespace kernels::reference {
namespace {

struct Angles {
  Tensor cos, sin;  // [T, 1.., R], as x [T, .., 2 * R] needs them
};

Angles angles_of(const Tensor& x, const Layout& layout, const RopeTable& table) {
  const Tensor position_T = at::tensor(layout.position_T, at::kInt).to(x.device());
  std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
  shape.front() = x.size(0);
  shape.back() = table.cos_PR.size(1);
  const auto rows = [&](const Tensor& of_PR) { return of_PR.to(x.options()).index_select(0, position_T).view(shape); };
  return {rows(table.cos_PR), rows(table.sin_PR)};
}

}  // namespace

Tensor rotate(const Tensor& x, const Layout& layout, const RopeTable& table, bool inverse, Rounding rounding) {
  const int64_t turned = 2 * table.cos_PR.size(1), plain = x.size(-1) - turned;
  const Angles angle = angles_of(x, layout, table);
  const Tensor sin = inverse ? -angle.sin : angle.sin;
  const Tensor even = x.slice(-1, plain, x.size(-1), 2), odd = x.slice(-1, plain + 1, x.size(-1), 2);
  const Tensor pairs = at::stack({even * angle.cos - odd * sin, even * sin + odd * angle.cos}, -1).flatten(-2);
  return rounded(at::cat({x.narrow(-1, 0, plain), pairs}, -1), rounding);
}

Tensor query_heads(const Tensor& x, int64_t num_heads, double eps, const Layout& layout, const RopeTable& table,
                   Rounding rounding) {
  const Tensor heads_THK = x.unflatten(-1, {num_heads, x.size(-1) / num_heads});
  return reference::rotate(reference::rms_norm(heads_THK, Tensor(), eps, rounding), layout, table, /*inverse=*/false,
                           rounding);
}

Tensor kv_rows(const Tensor& x, const Tensor& norm_weight, const KvOptions& options, const Layout& layout,
               const RopeTable& table) {
  const Tensor normed = reference::rms_norm(x, norm_weight, options.eps, options.rounding);
  const Tensor rows = reference::rotate(normed, layout, table, /*inverse=*/false, options.rounding);
  const int64_t turned = 2 * table.cos_PR.size(1), plain = x.size(-1) - turned;
  if (!options.simulate || plain == 0) return rows;
  return at::cat(
      {simulate_groups(rows.narrow(-1, 0, plain), 64, tensor::BlockFormat::e4m3), rows.narrow(-1, plain, turned)}, -1);
}

}  // namespace kernels::reference
