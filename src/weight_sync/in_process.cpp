// The whole of an update, from begin to commit, in one process.
#include "weight_sync/in_process.h"

#include "weight_sync/session.h"

namespace weight_sync {

PublishReport publish(Source& source, Sink& sink, int64_t version, int64_t bucket_bytes) {
  PublishReport report;
  Session session(sink);  // aborts by itself when something throws
  session.begin(version, source.manifest());
  Bucket bucket;
  int64_t waiting_bytes = 0;
  const auto hand_over = [&] {
    session.write(bucket);
    bucket.clear();
    waiting_bytes = 0;
    ++report.num_buckets;
  };
  source.each([&](const std::string& name, const Tensor& value) {
    const auto bytes = static_cast<int64_t>(value.nbytes());
    bucket.push_back({name, value});
    waiting_bytes += bytes;
    report.size_bytes += bytes;
    ++report.num_tensors;
    if (waiting_bytes >= bucket_bytes) hand_over();
  });
  if (!bucket.empty()) hand_over();
  session.end();
  session.commit();
  return report;
}

}  // namespace weight_sync
