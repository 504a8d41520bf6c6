// One of the two scorers of a comparison: an engine, an actor, a model, a server, a file.
#pragma once
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace compare {

using Ids = std::vector<int32_t>;

// What is scored. where: "FILE:LINE", for messages.
struct Sequence {
  Ids ids;
  std::string where;
};

// One value per id: the natural log of its probability given the ids before it. Nothing for the first, and where the
// side has none.
using LogProbs = std::vector<std::optional<float>>;

// The caller told long work to end.
struct Stopped : std::exception {
  const char* what() const noexcept override { return "stopped"; }
};

// How the caller sees long work and ends it.
struct Watch {
  std::function<void(std::string_view what, int64_t done, int64_t total)> see = [](std::string_view, int64_t, int64_t) {
  };
  std::function<bool()> stop = [] { return false; };

  // Throws Stopped when told to.
  void update(std::string_view what, int64_t done, int64_t total) const {
    if (stop()) throw Stopped();
    see(what, done, total);
  }
};

class Forward;  // compare/forward.h

class Side {
 public:
  virtual ~Side() = default;
  virtual const std::string& name() const = 0;  // as it was asked for
  // In the order of the sequences. Errors name the side or the sequence's `where`. Throws Stopped.
  virtual std::vector<LogProbs> score(std::span<const Sequence> sequences, double temperature, const Watch& watch) = 0;
  // Its forward pass a layer at a time; nullptr where only log-probs are to be had. The side must outlive it.
  virtual std::unique_ptr<Forward> forward();
};

int64_t num_tokens(std::span<const Sequence> sequences);

}  // namespace compare
