// The named profiles.
#include "model/profile.h"

#include "base/error.h"

namespace model {

Profile Profile::parse(const std::string& name) {
  Profile profile;
  profile.name = name;
  if (name == "f32") return profile;
  profile.round_bf16 = true;
  if (name == "bf16") return profile;
  profile.quantise = profile.kv_sim = profile.index_sim = true;
  if (name == "fp8") return profile;
  profile.fp4_experts = true;
  if (name == "fp8_fp4") return profile;
  base::fail(base::Code::invalid_argument, "precision profile \"{}\": use f32, bf16, fp8 or fp8_fp4", name);
}

}  // namespace model
