// One weight update as a transaction: begin(version, manifest) -> write(bucket)* -> end -> commit, or abort. Until
// commit returns, the sink serves the version it had; after it, the new one whole.
//
// Any call out of order, and anything that arrives missing, extra, twice, or with another checksum, shape, dtype or a
// value that isn't finite, is an Error{invalid_argument or corruption} that names the tensor, what it was and what it
// should be. Such an error aborts the update; the session can then begin another. Used by one thread at a time; of two
// sessions on one sink the second's begin is Error{unavailable}.
#pragma once
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "weight_sync/manifest.h"
#include "weight_sync/sink.h"

namespace weight_sync {

struct BucketItem {
  std::string name;
  Tensor value;  // in its encoding's dtype; any strides: what counts is the row-major order of the logical tensor
};
using Bucket = std::vector<BucketItem>;  // may be empty

class Session {
 public:
  enum class State { idle, open, ended };

  explicit Session(Sink& sink) : sink_(sink) {}
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session();  // aborts an update in progress

  // version: newer than the sink's. manifest: exactly the sink's expected tensors, in any order.
  void begin(int64_t version, Manifest manifest);
  void write(const Bucket& bucket);
  void end();     // every tensor has arrived
  void commit();  // the sink now serves `version`
  void abort();   // allowed while open or ended

  State state() const { return state_; }

 private:
  void require(State wanted, const char* call) const;
  void check_version(int64_t version) const;
  void check_manifest();
  void receive(const BucketItem& item);
  void drop() noexcept;
  template <class Call>
  void or_drop(Call&& call);

  Sink& sink_;
  State state_ = State::idle;
  int64_t version_ = kNoVersion;
  Manifest manifest_;
  std::unordered_map<std::string, size_t> index_;  // name -> place in the manifest
  std::vector<bool> arrived_;
  int64_t num_arrived_ = 0;
};

std::string to_string(Session::State state);

}  // namespace weight_sync
