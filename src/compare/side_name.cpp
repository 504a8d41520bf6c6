// Prefix, profile, place.
#include "compare/side_name.h"

#include <filesystem>

#include "base/error.h"

namespace compare {
namespace {

using base::Code;
using Kind = SideName::Kind;

constexpr const char* kForms =
    "a side is engine:PROFILE@MODEL, actor:PROFILE@MODEL, PROFILE@MODEL, a MODEL folder, http://HOST:PORT or a FILE of "
    "log-probs";

bool take_prefix(std::string& text, const std::string& prefix) {
  if (!text.starts_with(prefix)) return false;
  text.erase(0, prefix.size());
  return true;
}

// "bf16+kv+index".
model::Profile parse_profile(const std::string& name, const SideName& side) {
  const size_t plus = name.find('+');
  model::Profile profile = model::Profile::parse(name.substr(0, plus));
  for (size_t at = plus; at != std::string::npos;) {
    const size_t next = name.find('+', at + 1);
    const std::string extra = name.substr(at + 1, next == std::string::npos ? next : next - at - 1);
    if (extra != "kv" && extra != "index") {
      base::fail(Code::invalid_argument,
                 "\"{}\": +{} is unknown: +kv and +index simulate an fp8 engine's KV and indexer", side.text, extra);
    }
    (extra == "kv" ? profile.kv_sim : profile.index_sim) = true;
    at = next;
  }
  if (plus == std::string::npos) return profile;
  if (side.kind == Kind::engine || profile.quantise) {
    base::fail(Code::invalid_argument,
               "\"{}\": +kv and +index are for an actor or a plain pass in f32 or bf16 (fp8 has both)", side.text);
  }
  profile.name = name;
  return profile;
}

}  // namespace

SideName parse_side(const std::string& text) {
  namespace fs = std::filesystem;
  SideName side;
  side.text = text;
  if (text.starts_with("http://") || text.starts_with("https://")) {
    side.kind = Kind::server;
    side.place = text;
    while (side.place.ends_with('/')) side.place.pop_back();
    return side;
  }
  std::string rest = text;
  if (take_prefix(rest, "engine:"))
    side.kind = Kind::engine;
  else if (take_prefix(rest, "actor:"))
    side.kind = Kind::actor;
  const size_t at = rest.find('@');
  if (at != std::string::npos && !fs::exists(rest)) {
    side.profile = parse_profile(rest.substr(0, at), side);
    rest.erase(0, at + 1);
  } else if (side.kind != Kind::plain) {
    base::fail(Code::invalid_argument, "\"{}\": name the precision, f32, bf16, fp8 or fp8_fp4: {}fp8@{}", text,
               side.kind == Kind::engine ? "engine:" : "actor:", rest);
  }
  side.place = rest;
  if (!fs::exists(rest)) base::fail(Code::not_found, "\"{}\": there is no \"{}\"; {}", text, rest, kForms);
  if (fs::is_directory(rest)) return side;
  if (side.kind != Kind::plain || at != std::string::npos) {
    base::fail(Code::invalid_argument, "\"{}\": {} is a file and should be a model folder; {}", text, rest, kForms);
  }
  side.kind = Kind::file;
  return side;
}

}  // namespace compare
