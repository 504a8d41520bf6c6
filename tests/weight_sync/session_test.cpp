// A weight update as a transaction: what is accepted, every misuse, and that anything wrong leaves the old version
// serving.
#include "weight_sync/session.h"

#include <gtest/gtest.h>

#include <map>

#include "base/expect_error.h"
#include "tensor/bytes.h"

namespace {

using base::Code;
using tensor::Tensor;
using weight_sync::Bucket;
using weight_sync::Encoding;
using weight_sync::Manifest;
using weight_sync::ManifestEntry;
using weight_sync::Session;
using weight_sync::TensorSpec;

using Values = std::map<std::string, Tensor>;

// Two small tensors; can be told to fail in a hook.
class FakeSink : public weight_sync::Sink {
 public:
  int64_t version() const override { return version_; }
  std::vector<TensorSpec> expected_tensors() const override {
    return {{"norm", {2}, Encoding::f32}, {"matrix", {2, 2}, Encoding::bf16}};
  }

  Values serving;
  std::string fail_in;
  int num_aborts = 0;

 protected:
  void begin(int64_t version, const Manifest&) override {
    staged_version_ = version;
    staged_.clear();
    maybe_fail("begin");
  }
  void write(const ManifestEntry& entry, const Tensor& value) override {
    maybe_fail("write");
    EXPECT_TRUE(value.is_contiguous());
    staged_[entry.spec.name] = value.clone();
  }
  void commit() override {
    maybe_fail("commit");
    serving = staged_;
    version_ = staged_version_;
  }
  void abort() noexcept override {
    staged_.clear();
    ++num_aborts;
  }

 private:
  void maybe_fail(const std::string& hook) const {
    if (fail_in == hook) throw std::runtime_error("out of memory in " + hook);
  }
  int64_t version_ = weight_sync::kNoVersion, staged_version_ = 0;
  Values staged_;
};

Tensor norm(float value) { return at::full({2}, value); }
Tensor matrix(float value) { return (at::arange(4).to(at::kFloat) + value).view({2, 2}).to(at::kBFloat16); }

Bucket whole_update(float value) { return {{"norm", norm(value)}, {"matrix", matrix(value)}}; }

Manifest manifest_of(const Bucket& bucket) {
  Manifest manifest;
  for (const auto& [name, value] : bucket) {
    const Encoding encoding = value.scalar_type() == at::kFloat ? Encoding::f32 : Encoding::bf16;
    manifest.tensors.push_back({{name, value.sizes().vec(), encoding}, tensor::checksum64(value)});
  }
  return manifest;
}

void update(FakeSink& sink, int64_t version, float value) {
  Session session(sink);
  session.begin(version, manifest_of(whole_update(value)));
  session.write(whole_update(value));
  session.end();
  session.commit();
}

void expect_serving(const FakeSink& sink, int64_t version, float value) {
  EXPECT_EQ(sink.version(), version);
  ASSERT_EQ(sink.serving.size(), 2u);
  EXPECT_TRUE(at::equal(sink.serving.at("norm"), norm(value)));
  EXPECT_TRUE(at::equal(sink.serving.at("matrix"), matrix(value)));
}

// Version 3 serves; `attempt` must fail with these words, leave it, and leave the session able to bring version 5.
void expect_refused(Code code, const std::vector<std::string>& parts, const std::function<void(Session&)>& attempt) {
  FakeSink sink;
  update(sink, 3, 1);
  Session session(sink);
  test::expect_error(code, parts, [&] { attempt(session); });
  expect_serving(sink, 3, 1);
  EXPECT_EQ(session.state(), Session::State::idle);
  session.begin(5, manifest_of(whole_update(2)));
  session.write(whole_update(2));
  session.end();
  session.commit();
  expect_serving(sink, 5, 2);
}

TEST(Session, ACommittedUpdateServesWhole) {
  FakeSink sink;
  update(sink, 0, 1);
  expect_serving(sink, 0, 1);
  update(sink, 7, 2);
  expect_serving(sink, 7, 2);
  EXPECT_EQ(sink.num_aborts, 0);
}

TEST(Session, NothingIsVisibleBeforeCommit) {  // case wu-06
  FakeSink sink;
  update(sink, 3, 1);
  Session session(sink);
  session.begin(4, manifest_of(whole_update(2)));
  expect_serving(sink, 3, 1);
  session.write(whole_update(2));
  expect_serving(sink, 3, 1);
  session.end();
  expect_serving(sink, 3, 1);
  session.commit();
  expect_serving(sink, 4, 2);
}

TEST(Session, TensorsMayComeInAnyOrderAndEmptyBucketsAreFine) {  // case wu-09
  FakeSink sink;
  Session session(sink);
  session.begin(1, manifest_of({{"matrix", matrix(4)}, {"norm", norm(4)}}));
  session.write({});
  session.write({{"norm", norm(4)}});
  session.write({});
  session.write({{"matrix", matrix(4)}});
  session.end();
  session.commit();
  expect_serving(sink, 1, 4);
}

TEST(Session, EveryCallOutOfOrderIsRefusedAndChangesNothing) {
  using State = Session::State;
  const std::vector<std::pair<std::string, std::function<void(Session&)>>> calls = {
      {"begin", [](Session& s) { s.begin(9, manifest_of(whole_update(1))); }},
      {"write", [](Session& s) { s.write({}); }},
      {"end", [](Session& s) { s.end(); }},
      {"commit", [](Session& s) { s.commit(); }},
      {"abort", [](Session& s) { s.abort(); }}};
  const std::map<State, std::vector<std::string>> refused = {{State::idle, {"write", "end", "commit", "abort"}},
                                                             {State::open, {"begin", "commit"}},
                                                             {State::ended, {"begin", "write", "end"}}};
  for (const auto& [state, names] : refused) {
    for (const auto& [name, call] : calls) {
      if (std::find(names.begin(), names.end(), name) == names.end()) continue;
      SCOPED_TRACE(name + " while " + to_string(state));
      FakeSink sink;
      Session session(sink);
      if (state != State::idle) session.begin(1, manifest_of(whole_update(2)));
      if (state != State::idle) session.write(whole_update(2));
      if (state == State::ended) session.end();
      test::expect_error(Code::invalid_argument, {name}, [&, &call_ = call] { call_(session); });
      EXPECT_EQ(session.state(), state);
      if (state == State::idle) continue;
      if (state == State::open) session.end();
      session.commit();
      expect_serving(sink, 1, 2);
    }
  }
}

TEST(Session, AnAbortLeavesTheOldVersion) {
  for (const bool ended : {false, true}) {
    FakeSink sink;
    update(sink, 3, 1);
    Session session(sink);
    session.begin(4, manifest_of(whole_update(2)));
    session.write(whole_update(2));
    if (ended) session.end();
    session.abort();
    expect_serving(sink, 3, 1);
    EXPECT_EQ(sink.num_aborts, 1);
    update(sink, 4, 2);
    expect_serving(sink, 4, 2);
  }
}

TEST(Session, ASessionThatGoesAwayAborts) {
  FakeSink sink;
  update(sink, 3, 1);
  {
    Session session(sink);
    session.begin(4, manifest_of(whole_update(2)));
  }
  EXPECT_EQ(sink.num_aborts, 1);
  expect_serving(sink, 3, 1);
  update(sink, 4, 2);
}

TEST(Session, VersionsOnlyRise) {  // case wu-07
  for (const int64_t version : {int64_t{3}, int64_t{2}, int64_t{-1}}) {
    expect_refused(Code::invalid_argument, {"version 3", "only rise"},
                   [&](Session& session) { session.begin(version, manifest_of(whole_update(2))); });
  }
}

TEST(Session, AManifestMustNameExactlyTheTensorsOfTheModel) {  // case wu-02
  const auto begin = [](const Manifest& manifest) { return [=](Session& session) { session.begin(4, manifest); }; };
  Manifest missing = manifest_of({{"norm", norm(2)}});
  expect_refused(Code::invalid_argument, {"1 missing: matrix"}, begin(missing));
  Manifest unknown = manifest_of(whole_update(2));
  unknown.tensors.push_back({{"layers.0.attn.nope.weight", {1}, Encoding::f32}, 0});
  expect_refused(Code::invalid_argument, {"1 unknown: layers.0.attn.nope.weight"}, begin(unknown));
  Manifest both = manifest_of({{"norm", norm(2)}, {"other", norm(2)}});
  expect_refused(Code::invalid_argument, {"missing: matrix", "unknown: other"}, begin(both));
  Manifest twice = manifest_of({{"norm", norm(2)}, {"matrix", matrix(2)}, {"norm", norm(2)}});
  expect_refused(Code::invalid_argument, {"listed twice: norm"}, begin(twice));
  expect_refused(Code::invalid_argument, {"2 missing"}, begin({}));  // case wu-09: an update of nothing
}

TEST(Session, AManifestOfAnotherShapeOrEncodingIsRefusedBeforeAnythingIsSent) {  // case wu-01
  expect_refused(Code::invalid_argument, {"matrix", "[2, 1]", "[2, 2]"}, [](Session& session) {
    session.begin(4, manifest_of({{"norm", norm(2)}, {"matrix", matrix(2).slice(1, 0, 1)}}));
  });
  expect_refused(Code::invalid_argument, {"matrix", "F32", "BF16"}, [](Session& session) {
    session.begin(4, manifest_of({{"norm", norm(2)}, {"matrix", matrix(2).to(at::kFloat)}}));
  });
}

TEST(Session, ATensorThatIsNotAsAnnouncedIsRefused) {
  const auto write = [](const Bucket& bucket) {
    return [=](Session& session) {
      session.begin(4, manifest_of(whole_update(2)));
      session.write(bucket);
    };
  };
  expect_refused(Code::invalid_argument, {"other", "not in the manifest"}, write({{"other", norm(2)}}));
  expect_refused(Code::invalid_argument, {"norm", "twice"}, write({{"norm", norm(2)}, {"norm", norm(2)}}));
  expect_refused(Code::invalid_argument, {"norm", "[3]", "[2]"}, write({{"norm", at::ones({3})}}));
  expect_refused(Code::invalid_argument, {"norm", "BFloat16", "F32"}, write({{"norm", norm(2).to(at::kBFloat16)}}));
  expect_refused(Code::corruption, {"norm", "checksum"}, write({{"norm", norm(2.0001f)}}));
}

TEST(Session, EveryFlippedBitOfATensorIsFound) {
  const Tensor value = matrix(2);
  for (size_t bit = 0; bit < value.nbytes() * 8; ++bit) {
    Tensor damaged = value.clone();
    static_cast<uint8_t*>(damaged.mutable_data_ptr())[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
    expect_refused(Code::corruption, {"matrix", "checksum"}, [&](Session& session) {
      session.begin(4, manifest_of(whole_update(2)));
      session.write({{"matrix", damaged}});
    });
  }
}

TEST(Session, AValueThatIsNotFiniteIsRefused) {  // case wu-13
  for (const float bad : {std::nanf(""), INFINITY}) {
    Tensor broken = norm(2);
    broken[1] = bad;
    const Bucket bucket = {{"norm", broken}, {"matrix", matrix(2)}};
    expect_refused(Code::invalid_argument, {"norm", "NaN"}, [&](Session& session) {
      session.begin(4, manifest_of(bucket));
      session.write(bucket);
    });
  }
}

TEST(Session, AnUpdateThatIsNotWholeCannotEnd) {
  expect_refused(Code::invalid_argument, {"1 did not arrive: matrix"}, [](Session& session) {
    session.begin(4, manifest_of(whole_update(2)));
    session.write({{"norm", norm(2)}});
    session.end();
  });
}

TEST(Session, ASinkThatFailsKeepsItsVersion) {
  for (const std::string hook : {"begin", "write", "commit"}) {
    FakeSink sink;
    update(sink, 3, 1);
    sink.fail_in = hook;
    EXPECT_THROW(update(sink, 4, 2), std::runtime_error) << hook;
    expect_serving(sink, 3, 1);
    EXPECT_EQ(sink.num_aborts, 1) << hook;
    sink.fail_in.clear();
    update(sink, 4, 2);
    expect_serving(sink, 4, 2);
  }
}

TEST(Session, TheSecondOfTwoUpdatesAtOnceIsRefused) {  // case wu-14
  FakeSink sink;
  Session first(sink), second(sink);
  first.begin(5, manifest_of(whole_update(5)));
  test::expect_error(Code::unavailable, {"version 6", "in progress"},
                     [&] { second.begin(6, manifest_of(whole_update(6))); });
  first.write(whole_update(5));
  first.end();
  first.commit();
  expect_serving(sink, 5, 5);
  second.begin(6, manifest_of(whole_update(6)));
  second.write(whole_update(6));
  second.end();
  second.commit();
  expect_serving(sink, 6, 6);
}

TEST(Session, AStridedTensorCountsInItsLogicalOrder) {  // case wu-10
  const Tensor turned = matrix(2).t();
  ASSERT_FALSE(turned.is_contiguous());
  FakeSink sink;
  Session session(sink);
  const Bucket bucket = {{"norm", norm(1)}, {"matrix", turned}};
  session.begin(1, manifest_of({{"norm", norm(1)}, {"matrix", turned.contiguous()}}));
  session.write(bucket);
  session.end();
  session.commit();
  EXPECT_TRUE(at::equal(sink.serving.at("matrix"), turned));
}

}  // namespace
