// From what is stored to what is written, a run of rows at a time.
#include "checkpoint/convert_values.h"

#include "base/error.h"
#include "checkpoint/hash_table.h"
#include "checkpoint/pieces.h"
#include "tensor/bytes.h"

namespace checkpoint {

using base::Code;
using base::fail;
using model::TensorInfo;
using tensor::BlockFormat;
using tensor::Quantised;
using tensor::Tensor;

bool ConvertedValues::stream(const StoredPart& part, const Take& take) {
  const auto hand_on = [&](const Tensor& value) {
    const Tensor host = tensor::to_host(value);
    return take(tensor::bytes_of(host));
  };
  if (part.scales && scales_of_ == part.info.name) return std::all_of(scales_.begin(), scales_.end(), hand_on);
  if (part.form.format && !part.scales) {
    scales_.clear();
    scales_of_.clear();
  }
  const bool complete = for_each_piece(part.info, [&](int64_t first, int64_t count) {
    if (!part.form.format) return hand_on(plain_of(part, first, count));
    const Quantised piece = codes_of(part, first, count);
    if (part.scales) return hand_on(piece.scales);
    scales_.push_back(piece.scales);
    return hand_on(piece.codes);
  });
  if (complete && part.form.format && !part.scales) scales_of_ = part.info.name;
  return complete;
}

Quantised ConvertedValues::codes_of(const StoredPart& part, int64_t first, int64_t count) const {
  const Form from = in_.form(part.info);
  const BlockFormat format = *part.form.format;
  const Tensor values =
      in_.read_rows(part.info, first, count);  // refuses NaN and infinities, also where codes are kept
  if (from.format == format) return in_.read_codes(part.info, first, count);
  const Quantised made = tensor::quantise_blocks(values.to(at::kBFloat16), format);
  if (from.format == BlockFormat::e2m1 && !at::equal(tensor::dequantise_blocks(made), values)) {
    fail(Code::invalid_argument,
         "{}: rows {} to {} hold e2m1 values that e4m3 can't hold: scales inside a block of 128 x 128 differ by more "
         "than "
         "about 2^14. Convert to bf16 instead; from there to fp8, with a loss, if that is wanted",
         in_.place(part.info), first, first + count - 1);
  }
  return made;
}

Tensor ConvertedValues::plain_of(const StoredPart& part, int64_t first, int64_t count) const {
  const Tensor values = in_.read_rows(part.info, first, count);
  if (part.info.stored_as == model::StoredAs::i64) {
    check_hash_table(values, first, in_.config().n_routed_experts, in_.place(part.info));
    return values;
  }
  const Tensor made = values.to(part.form.dtype);
  if (made.scalar_type() != at::kFloat && !at::isfinite(made).all().item<bool>()) {
    fail(Code::corruption, "{}: holds values beyond the range of {}", in_.place(part.info),
         tensor::dtype_name(part.form.dtype));
  }
  return made;
}

}  // namespace checkpoint
