// The receiving side of a weight update: what an engine implements. Only a Session calls the hooks, in this order:
//   begin, then write once for each tensor of expected_tensors(), then commit; or abort at any point after begin.
// What a hook is handed has been checked (name, shape, encoding, checksum, finite values); a hook converts it from
// these bytes into the engine's own layout. If a hook throws, the session calls abort and version() must still serve
// unchanged.
#pragma once
#include <atomic>
#include <cstdint>
#include <vector>

#include "weight_sync/manifest.h"

namespace weight_sync {

inline constexpr int64_t kNoVersion = -1;

class Sink {
 public:
  Sink() = default;
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;
  virtual ~Sink() = default;

  // The version that serves now; kNoVersion before the first commit. Any thread.
  virtual int64_t version() const = 0;

  // What a whole update must hold (weight_sync::expected_tensors of the engine's model and profile).
  virtual std::vector<TensorSpec> expected_tensors() const = 0;

 protected:
  friend class Session;

  // Makes room for a staged copy. Nothing is visible yet.
  virtual void begin(int64_t version, const Manifest& manifest) = 0;
  // One whole tensor, in the dtype of its encoding, contiguous, on the device of the sender.
  virtual void write(const ManifestEntry& entry, const Tensor& value) = 0;
  // Makes the staged copy the one that serves, as `version` of begin: all of it or, when it throws, none of it.
  virtual void commit() = 0;
  // Drops what is staged. Also called after a begin, write or commit that threw.
  virtual void abort() noexcept = 0;

 private:
  std::atomic<bool> in_update_ = false;  // one session at a time
};

}  // namespace weight_sync
