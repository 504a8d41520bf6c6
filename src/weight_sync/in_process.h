// The transport inside one process: source and sink share memory, tensors are handed over bucket by bucket.
#pragma once
#include <cstdint>

#include "weight_sync/sink.h"
#include "weight_sync/source.h"

namespace weight_sync {

struct PublishReport {
  int64_t num_tensors = 0, num_buckets = 0, size_bytes = 0;
};

inline constexpr int64_t kBucketBytes = int64_t{64} << 20;

// Brings the sink to `version` whole, or leaves it as it was and throws (see session.h). bucket_bytes: a bucket is
// handed over when it holds at least that much; one tensor is never split.
PublishReport publish(Source& source, Sink& sink, int64_t version, int64_t bucket_bytes = kBucketBytes);

}  // namespace weight_sync
