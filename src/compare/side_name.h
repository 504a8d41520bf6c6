// How a side is spelled on a command line.
//
//   engine:PROFILE@MODEL   the rollout engine       actor:PROFILE@MODEL   the actor       PROFILE@MODEL   a plain pass
//   MODEL                  a plain pass, f32        http://HOST:PORT      a server        FILE            log-probs
#pragma once
#include <string>

#include "model/profile.h"

namespace compare {

struct SideName {
  enum class Kind { engine, actor, plain, server, file };
  Kind kind = Kind::plain;
  model::Profile profile;  // engine, actor, plain; +kv and +index behind its name add simulations
  std::string place;       // folder, file or URL
  std::string text;        // as it was given

  bool has_model() const { return kind != Kind::server && kind != Kind::file; }
};

// Looks whether the place is a folder or a file. Errors: invalid_argument naming the text and what it may be;
// not_found.
SideName parse_side(const std::string& text);

}  // namespace compare
