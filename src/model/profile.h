// A precision profile: how weights are stored and where activations are rounded (decisions 1 to 4, 16 to 25). The
// engine and the actor each have one; the same profile on both sides is the same function.
#pragma once
#include <string>

namespace model {

struct Profile {
  std::string name = "f32";
  bool round_bf16 = false;   // weights published as bf16; activations rounded to bf16 where spec appendix A rounds
  bool quantise = false;     // linears of spec table 6.2: e4m3 weights in 128x128 blocks, activations in groups of 128
  bool fp4_experts = false;  // routed experts e2m1 in groups of 32 instead
  bool kv_sim = false;       // KV entries on the e4m3 grid (groups of 64, non-rope dims)
  bool index_sim = false;    // indexer q and k: Hadamard, then the e2m1 grid (groups of 32)

  // "f32", "bf16", "fp8", "fp8_fp4". Error{invalid_argument} for another name.
  static Profile parse(const std::string& name);
  bool operator==(const Profile&) const = default;
};

}  // namespace model
