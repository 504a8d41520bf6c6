// The state machine of an update, and its refusals.
#include "weight_sync/session.h"

#include "base/error.h"
#include "base/hash.h"
#include "tensor/bytes.h"
#include "tensor/text.h"

namespace weight_sync {
namespace {

using base::Code;
using base::fail;
using tensor::append_list;
using tensor::shape_text;

}  // namespace

std::string to_string(Session::State state) {
  switch (state) {
    case Session::State::idle:
      return "idle";
    case Session::State::open:
      return "open";
    case Session::State::ended:
      return "ended";
  }
  return {};
}

Session::~Session() {
  if (state_ != State::idle) drop();
}

void Session::require(State wanted, const char* call) const {
  if (state_ == wanted) return;
  fail(Code::invalid_argument, "weight update: {} while the session is {}; it must be {}", call, to_string(state_),
       to_string(wanted));
}

// Runs a part of the update; when it throws, the update is over and the sink serves what it served.
template <class Call>
void Session::or_drop(Call&& call) {
  try {
    call();
  } catch (...) {
    drop();
    throw;
  }
}

void Session::drop() noexcept {
  sink_.abort();
  sink_.in_update_ = false;
  state_ = State::idle;
}

void Session::begin(int64_t version, Manifest manifest) {
  require(State::idle, "begin");
  version_ = version;
  manifest_ = std::move(manifest);
  check_version(version);
  check_manifest();
  if (sink_.in_update_.exchange(true)) {
    fail(Code::unavailable,
         "weight update to version {}: another update of this engine is in progress; try again when it is done",
         version);
  }
  state_ = State::open;
  arrived_.assign(manifest_.tensors.size(), false);
  num_arrived_ = 0;
  or_drop([&] { sink_.begin(version_, manifest_); });
}

void Session::check_version(int64_t version) const {
  if (version <= sink_.version() || version < 0) {
    fail(Code::invalid_argument, "weight update to version {}: the engine serves version {}; versions only rise",
         version, sink_.version());
  }
}

void Session::check_manifest() {
  index_.clear();
  std::string problems;
  std::vector<std::string> twice, missing, wrong, unknown;
  for (size_t i = 0; i < manifest_.tensors.size(); ++i) {
    const std::string& name = manifest_.tensors[i].spec.name;
    if (!index_.emplace(name, i).second) twice.push_back(name);
  }
  size_t num_known = 0;
  std::unordered_map<std::string, bool> known;
  for (const TensorSpec& wanted : sink_.expected_tensors()) {
    known[wanted.name] = true;
    const auto at = index_.find(wanted.name);
    if (at == index_.end()) {
      missing.push_back(wanted.name);
      continue;
    }
    ++num_known;
    const TensorSpec& given = manifest_.tensors[at->second].spec;
    if (given == wanted) continue;
    wrong.push_back(fmt::format("{} is {} {}, it should be {} {}", wanted.name, to_string(given.encoding),
                                shape_text(given.shape), to_string(wanted.encoding), shape_text(wanted.shape)));
  }
  if (num_known < index_.size()) {
    for (const ManifestEntry& entry : manifest_.tensors) {
      if (!known.contains(entry.spec.name)) unknown.push_back(entry.spec.name);
    }
  }
  append_list(problems, "listed twice", twice);
  append_list(problems, "missing", missing);
  append_list(problems, "unknown", unknown);
  append_list(problems, "of another form", wrong);
  if (!problems.empty()) {
    fail(Code::invalid_argument, "weight update to version {}: the manifest is not that of this engine's model: {}",
         version_, problems);
  }
}

void Session::write(const Bucket& bucket) {
  require(State::open, "write");
  or_drop([&] {
    for (const BucketItem& item : bucket) receive(item);
  });
}

void Session::receive(const BucketItem& item) {
  const auto at = index_.find(item.name);
  if (at == index_.end())
    fail(Code::invalid_argument, "weight update to version {}: {} is not in the manifest", version_, item.name);
  const ManifestEntry& entry = manifest_.tensors[at->second];
  if (arrived_[at->second])
    fail(Code::invalid_argument, "weight update to version {}: {} arrived twice", version_, item.name);
  if (item.value.scalar_type() != scalar_type(entry.spec.encoding) || item.value.sizes().vec() != entry.spec.shape) {
    fail(Code::invalid_argument, "weight update to version {}: {} arrived as {} {}, the manifest says {} {}", version_,
         item.name, toString(item.value.scalar_type()), shape_text(item.value.sizes().vec()),
         to_string(entry.spec.encoding), shape_text(entry.spec.shape));
  }
  const Tensor value = item.value.contiguous();
  const uint64_t checksum = tensor::checksum64(value);
  if (checksum != entry.checksum) {
    fail(Code::corruption,
         "weight update to version {}: {} arrived with checksum {}, the manifest says {}: it was damaged on the way, "
         "or changed after the manifest was made",
         version_, item.name, base::hash_text(checksum), base::hash_text(entry.checksum));
  }
  if (value.is_floating_point() && !at::isfinite(value).all().item<bool>()) {
    fail(Code::invalid_argument, "weight update to version {}: {} holds a NaN or an infinity; training has diverged",
         version_, item.name);
  }
  sink_.write(entry, value);
  arrived_[at->second] = true;
  ++num_arrived_;
}

void Session::end() {
  require(State::open, "end");
  or_drop([&] {
    if (num_arrived_ == static_cast<int64_t>(manifest_.tensors.size())) return;
    std::vector<std::string> missing;
    for (size_t i = 0; i < arrived_.size(); ++i) {
      if (!arrived_[i]) missing.push_back(manifest_.tensors[i].spec.name);
    }
    std::string problems;
    append_list(problems, "did not arrive", missing);
    fail(Code::invalid_argument, "weight update to version {}: {}", version_, problems);
  });
  state_ = State::ended;
}

void Session::commit() {
  require(State::ended, "commit");
  or_drop([&] {
    check_version(version_);
    sink_.commit();
  });
  CHECK(sink_.version() == version_, "the sink serves version {} after a commit of {}", sink_.version(), version_);
  sink_.in_update_ = false;
  state_ = State::idle;
}

void Session::abort() {
  if (state_ == State::idle) fail(Code::invalid_argument, "weight update: abort without an update in progress");
  drop();
}

}  // namespace weight_sync
