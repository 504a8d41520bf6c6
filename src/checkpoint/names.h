// Tensor names of other programs, translated to the native ones of model::Weights::visit_named. Four dialects, which
// may be mixed in one file: native (DeepSeek); transformers' run-time names, with experts fused; the mixture that
// transformers' save_pretrained writes; the HF-style names of engines (SGLang, Miles). Names are matched whole, leaf by
// leaf. Source: spec 7.1 to 7.6.
#pragma once
#include <optional>
#include <string>

namespace checkpoint {

// What a stored tensor holds of the native tensor.
enum class Part {
  value,          // its values or codes
  scales,         // its block scales
  gate_up_stack,  // [E, 2F, D]: w1 (first F rows) and w3 of all experts; native is the name of w1 with {} for the
                  // expert
  down_stack,     // [E, D, F]: w2 of all experts; native likewise
  copy,           // of embed or head, kept with the MTP block by some checkpoints; not read
};

struct Translation {
  std::string native;
  Part part = Part::value;

  bool operator==(const Translation&) const = default;
};

// Nothing for a name that no dialect has.
std::optional<Translation> to_native(const std::string& name);

// The HF-style name of engines (spec 7.6) for a native one, of values or of scales: experts one by one, scales as
// weight_scale_inv. The MTP block has native names in that dialect too. CHECKs that the name is native.
std::string to_hf(const std::string& native);

}  // namespace checkpoint
