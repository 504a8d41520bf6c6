// Queries, keys and turned rows as autograd functions over the CPU kernels; on a GPU by its kernels, with the
// references' gradients.
#include "kernels/rope.h"

#include "kernels/cpu/rms_norm.h"
#include "kernels/cpu/rope.h"
#include "kernels/dispatch.h"
#include "kernels/given.h"
#include "kernels/gpu/rms_norm.h"
#include "kernels/gpu_dispatch.h"
#include "kernels/reference/rope.h"
#include "tensor/autograd.h"
#include "tensor/recycle.h"

namespace kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

bool needs_gradient(const Tensor& x) { return at::GradMode::is_enabled() && x.defined() && x.requires_grad(); }

// What the backward pass needs of a turn: positions and tables, as tensors that are saved.
struct Angles {
  Tensor position_T;  // int32; undefined in a forward pass, which reads the layout's own
  Tensor cos_PR, sin_PR;
};

Angles saved_angles(const Layout& layout, const RopeTable& table) {
  return {at::tensor(layout.position_T, at::kInt), table.cos_PR, table.sin_PR};
}

cpu::Turn turn_of(const int32_t* position, const Tensor& cos_PR, const Tensor& sin_PR, int64_t rows_per_token) {
  cpu::Turn turn;
  turn.cos = cos_PR.const_data_ptr<float>();
  turn.sin = sin_PR.const_data_ptr<float>();
  turn.position = position;
  turn.pairs = cos_PR.size(1);
  turn.rows_per_token = rows_per_token;
  return turn;
}

// Rows of k values, rows_per_token for each token: heads of queries, or keys.
struct NormOptions {
  int64_t k, rows_per_token;
  double eps;
  bool round_bf16, simulate;
};

cpu::NormRows rows_of(const Tensor& x, const Tensor& weight, const NormOptions& options, const cpu::Turn& turn) {
  cpu::NormRows rows;
  rows.x = x.const_data_ptr<float>();
  if (weight.defined()) rows.weight = weight.const_data_ptr<float>();
  rows.k = options.k;
  rows.rows = x.numel() / options.k;
  rows.eps = static_cast<float>(options.eps);
  rows.round_bf16 = options.round_bf16;
  rows.simulated = options.simulate ? 64 : 0;
  rows.turn = turn;
  return rows;
}

Tensor norm_and_turn(const Tensor& x, const Tensor& weight, const NormOptions& options, const Layout& layout,
                     const RopeTable& table) {
  Tensor y = options.rows_per_token == 1 ? tensor::empty(x.sizes())
                                         : tensor::empty({x.size(0), options.rows_per_token, options.k});
  const cpu::Turn turn = turn_of(layout.position_T.data(), table.cos_PR, table.sin_PR, options.rows_per_token);
  cpu::rms_norm(rows_of(x, weight, options, turn), y.mutable_data_ptr<float>());
  return y;
}

struct NormTurn : torch::autograd::Function<NormTurn> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const std::optional<Tensor>& given_weight,
                        const NormOptions& options, const Layout& layout, const RopeTable& table) {
    const Tensor weight = given_weight.value_or(Tensor());
    const Angles angles = saved_angles(layout, table);
    context->save_for_backward({x, weight, angles.position_T, angles.cos_PR, angles.sin_PR});
    context->saved_data["k"] = options.k;
    context->saved_data["rows_per_token"] = options.rows_per_token;
    context->saved_data["eps"] = options.eps;
    return norm_and_turn(x, weight, options, layout, table);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1], dy = gradients[0].contiguous();
    const NormOptions options{context->saved_data["k"].toInt(), context->saved_data["rows_per_token"].toInt(),
                              context->saved_data["eps"].toDouble(), false, false};
    const cpu::Turn turn = turn_of(saved[2].const_data_ptr<int32_t>(), saved[3], saved[4], options.rows_per_token);
    Tensor dx, dweight;
    if (context->needs_input_grad(0)) dx = at::empty_like(x);
    if (weight.defined() && context->needs_input_grad(1)) dweight = at::empty_like(weight);
    cpu::rms_norm_backward(rows_of(x, weight, options, turn), dy.const_data_ptr<float>(),
                           dx.defined() ? dx.mutable_data_ptr<float>() : nullptr,
                           dweight.defined() ? dweight.mutable_data_ptr<float>() : nullptr);
    return {dx, dweight, {}, {}, {}};
  }
};

// Without the turn.
cpu::TurnedRows rows_to_turn(const Tensor& x, const Tensor& y, bool round_bf16) {
  cpu::TurnedRows rows;
  rows.x = x.const_data_ptr<float>();
  rows.y = y.mutable_data_ptr<float>();
  rows.k = x.size(-1);
  rows.rows = x.numel() / rows.k;
  rows.round_bf16 = round_bf16;
  return rows;
}

Tensor turned(const Tensor& x, const cpu::Turn& turn, bool round_bf16) {
  Tensor y = tensor::empty(x.sizes());
  cpu::TurnedRows rows = rows_to_turn(x, y, round_bf16);
  rows.turn = turn;
  cpu::rotate(rows);
  return y;
}

int64_t rows_per_token(const Tensor& x) { return c10::multiply_integers(x.sizes().slice(1, x.dim() - 2)); }

struct Rotate : torch::autograd::Function<Rotate> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Layout& layout, const RopeTable& table,
                        bool inverse, bool round_bf16) {
    const Angles angles = saved_angles(layout, table);
    context->save_for_backward({angles.position_T, angles.cos_PR, angles.sin_PR});
    context->saved_data["inverse"] = inverse;
    cpu::Turn turn = turn_of(layout.position_T.data(), table.cos_PR, table.sin_PR, rows_per_token(x));
    turn.inverse = inverse;
    return turned(x, turn, round_bf16);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const Tensor dy = gradients[0].contiguous();
    cpu::Turn turn = turn_of(saved[0].const_data_ptr<int32_t>(), saved[1], saved[2], rows_per_token(dy));
    turn.inverse = !context->saved_data["inverse"].toBool();
    return {turned(dy, turn, false), {}, {}, {}, {}};
  }
};

// The angles where a GPU kernel reads them.
Angles device_angles(const Tensor& x, const Layout& layout, const RopeTable& table) {
  const auto there = [&](const Tensor& values) { return values.to(x.device()); };
  return {there(at::tensor(layout.position_T, at::kInt)), there(table.cos_PR), there(table.sin_PR)};
}

// inputs: x, and the norm's weight if there is one. shape: of the result.
Tensor norm_turn_on_gpu(const variable_list& inputs, const NormOptions& options, at::IntArrayRef shape,
                        const Angles& angles, const Operation& reference) {
  const auto kernel = [&](const variable_list& in) {
    const cpu::Turn turn =
        turn_of(angles.position_T.const_data_ptr<int32_t>(), angles.cos_PR, angles.sin_PR, options.rows_per_token);
    const Tensor y = at::empty(shape, in[0].options());
    const OnDevice device(y);
    gpu::rms_norm(rows_of(in[0], in.size() > 1 ? in[1] : Tensor(), options, turn), y.mutable_data_ptr<float>(),
                  device.queue());
    return variable_list{y};
  };
  return with_reference_gradient(inputs, kernel, reference)[0];
}

Tensor turn_on_gpu(const Tensor& x, const Layout& layout, const RopeTable& table, bool inverse, Rounding rounding) {
  const Angles angles = device_angles(x, layout, table);
  const auto kernel = [&](const variable_list& in) {
    const Tensor y = at::empty_like(in[0]);
    cpu::TurnedRows rows = rows_to_turn(in[0], y, rounding == Rounding::bf16);
    rows.turn = turn_of(angles.position_T.const_data_ptr<int32_t>(), angles.cos_PR, angles.sin_PR, rows_per_token(x));
    rows.turn.inverse = inverse;
    const OnDevice device(y);
    gpu::rotate(rows, device.queue());
    return variable_list{y};
  };
  return with_reference_gradient({x}, kernel, [=](const variable_list& in) {
    return variable_list{reference::rotate(in[0], layout, table, inverse, rounding)};
  })[0];
}

void check(const Tensor& x, const Layout& layout, const RopeTable& table, int64_t k) {
  CHECK(x.dim() >= 2 && x.size(0) == layout.num_tokens &&
            static_cast<int64_t>(layout.position_T.size()) == layout.num_tokens,
        "{} rows, {} tokens", x.size(0), layout.num_tokens);
  CHECK(table.cos_PR.dim() == 2 && table.cos_PR.sizes() == table.sin_PR.sizes() && table.cos_PR.is_contiguous() &&
        table.sin_PR.is_contiguous() && table.cos_PR.scalar_type() == at::kFloat);
  CHECK(k >= 1 && 2 * table.cos_PR.size(1) <= k, "{} pairs of {} dims", table.cos_PR.size(1), k);
  const auto highest = std::max_element(layout.position_T.begin(), layout.position_T.end());
  CHECK(layout.position_T.empty() || *highest < table.cos_PR.size(0), "position {} of {}", *highest,
        table.cos_PR.size(0));
}

}  // namespace

Tensor query_heads(const Tensor& x, int64_t num_heads, double eps, const Layout& layout, const RopeTable& table,
                   Rounding rounding) {
  CHECK(x.dim() == 2 && num_heads >= 1 && x.size(1) % num_heads == 0, "{} columns, {} heads", x.size(-1), num_heads);
  const int64_t k = x.size(1) / num_heads;
  check(x, layout, table, k);
  const NormOptions options{k, num_heads, eps, rounding == Rounding::bf16, false};
  if (has_gpu_kernel(x)) {
    return norm_turn_on_gpu(
        {x}, options, {x.size(0), num_heads, k}, device_angles(x, layout, table), [=](const variable_list& in) {
          return variable_list{reference::query_heads(in[0], num_heads, eps, layout, table, rounding)};
        });
  }
  if (!has_cpu_kernel(x)) return reference::query_heads(x, num_heads, eps, layout, table, rounding);
  const Tensor input = x.contiguous();
  if (needs_gradient(x)) {
    return NormTurn::apply(input, std::optional<Tensor>(), options, layout, table).view({x.size(0), num_heads, k});
  }
  const Tensor heads = norm_and_turn(input, Tensor(), options, layout, table);
  return num_heads > 1 ? heads : heads.view({x.size(0), num_heads, k});
}

Tensor kv_rows(const Tensor& x, const Tensor& norm_weight, const KvOptions& options, const Layout& layout,
               const RopeTable& table) {
  CHECK(x.dim() == 2 && norm_weight.dim() == 1 && norm_weight.size(0) == x.size(1), "{} weights for {} columns",
        norm_weight.numel(), x.size(-1));
  check(x, layout, table, x.size(1));
  const NormOptions norm{x.size(1), 1, options.eps, options.rounding == Rounding::bf16, options.simulate};
  if (has_gpu_kernel(x)) {
    return norm_turn_on_gpu({x, norm_weight}, norm, x.sizes(), device_angles(x, layout, table),
                            [=](const variable_list& in) {
                              return variable_list{reference::kv_rows(in[0], in[1], options, layout, table)};
                            });
  }
  if (!has_cpu_kernel(x)) return reference::kv_rows(x, norm_weight, options, layout, table);
  const Tensor input = x.contiguous(), weight = norm_weight.contiguous();
  if (needs_gradient(x) || needs_gradient(norm_weight))
    return NormTurn::apply(input, given(weight), norm, layout, table);
  return norm_and_turn(input, weight, norm, layout, table);
}

Tensor rotate(const Tensor& x, const Layout& layout, const RopeTable& table, bool inverse, Rounding rounding) {
  check(x, layout, table, x.size(-1));
  if (has_gpu_kernel(x)) return turn_on_gpu(x, layout, table, inverse, rounding);
  if (!has_cpu_kernel(x)) return reference::rotate(x, layout, table, inverse, rounding);
  const Tensor input = x.contiguous();
  const bool round_bf16 = rounding == Rounding::bf16;
  if (needs_gradient(x)) return Rotate::apply(input, layout, table, inverse, round_bf16);
  cpu::Turn turn = turn_of(layout.position_T.data(), table.cos_PR, table.sin_PR, rows_per_token(input));
  turn.inverse = inverse;
  return turned(input, turn, round_bf16);
}

}  // namespace kernels
