// Publishing a whole model to a sink in the same process.
#include "weight_sync/in_process.h"

#include <gtest/gtest.h>

#include <map>

#include "base/expect_error.h"
#include "checkpoint/tiny_model.h"
#include "tensor/bytes.h"
#include "tensor/golden.h"

namespace {

using base::Code;
using tensor::Tensor;
using weight_sync::Encoding;
using weight_sync::Manifest;
using weight_sync::PublishAs;
using weight_sync::TensorSpec;
using weight_sync::WeightsSource;

// Keeps what arrived.
class StoreSink : public weight_sync::Sink {
 public:
  explicit StoreSink(PublishAs as) : as_(as) {}
  int64_t version() const override { return version_; }
  std::vector<TensorSpec> expected_tensors() const override {
    return weight_sync::expected_tensors(model::Weights::describe(test::tiny_config()), as_);
  }
  const std::map<std::string, Tensor>& serving() const { return serving_; }

 protected:
  void begin(int64_t version, const Manifest&) override { staged_version_ = version; }
  void write(const weight_sync::ManifestEntry& entry, const Tensor& value) override {
    staged_[entry.spec.name] = value;
  }
  void commit() override {
    serving_ = std::move(staged_);
    staged_.clear();
    version_ = staged_version_;
  }
  void abort() noexcept override { staged_.clear(); }

 private:
  PublishAs as_;
  int64_t version_ = weight_sync::kNoVersion, staged_version_ = 0;
  std::map<std::string, Tensor> serving_, staged_;
};

TEST(InProcess, ThePublishedValueOfEveryParameterArrivesToTheBit) {
  const model::Weights weights = test::tiny_weights();
  StoreSink sink(PublishAs::published);
  WeightsSource source(weights, PublishAs::published);
  const weight_sync::PublishReport report = publish(source, sink, 1);
  int64_t count = 0, bytes = 0;
  weights.visit_named([&](const model::TensorInfo& info, const Tensor& master) {
    const Tensor& arrived = sink.serving().at(info.name);
    EXPECT_TRUE(test::same_bits(arrived, model::published_value(info, master))) << info.name;
    ++count;
    bytes += static_cast<int64_t>(arrived.nbytes());
  });
  EXPECT_EQ(static_cast<int64_t>(sink.serving().size()), count);
  EXPECT_EQ(report.num_tensors, count);
  EXPECT_EQ(report.size_bytes, bytes);
  EXPECT_EQ(report.num_buckets, 1);
}

TEST(InProcess, AMasterArrivesUnroundedForAnEngineInF32) {  // decisions 20
  EXPECT_EQ(weight_sync::publish_as(model::Profile::parse("f32")), PublishAs::master);
  for (const char* name : {"bf16", "fp8", "fp8_fp4"}) {
    EXPECT_EQ(weight_sync::publish_as(model::Profile::parse(name)), PublishAs::published);
  }
  const model::Weights weights = test::tiny_weights();
  StoreSink sink(PublishAs::master);
  WeightsSource source(weights, PublishAs::master);
  publish(source, sink, 1);
  weights.visit_named([&](const model::TensorInfo& info, const Tensor& master) {
    EXPECT_TRUE(at::equal(sink.serving().at(info.name), master)) << info.name;
  });
}

TEST(InProcess, BucketsOfAnySizeBringTheSame) {
  const model::Weights weights = test::tiny_weights();
  WeightsSource source(weights, PublishAs::published);
  StoreSink one(PublishAs::published), many(PublishAs::published);
  publish(source, one, 1);
  const weight_sync::PublishReport report = publish(source, many, 1, 1);
  EXPECT_EQ(report.num_buckets, report.num_tensors);
  for (const auto& [name, value] : one.serving()) EXPECT_TRUE(test::same_bits(value, many.serving().at(name)));
}

TEST(InProcess, PublishingTwiceChangesNothing) {
  const model::Weights weights = test::tiny_weights();
  WeightsSource source(weights, PublishAs::published);
  StoreSink sink(PublishAs::published);
  publish(source, sink, 1);
  const std::map<std::string, Tensor> first = sink.serving();
  publish(source, sink, 2);
  EXPECT_EQ(sink.version(), 2);
  for (const auto& [name, value] : first) EXPECT_TRUE(test::same_bits(value, sink.serving().at(name))) << name;
}

TEST(InProcess, EachPublishBringsTheWeightsOfItsStep) {  // case wu-03
  model::Weights weights = test::tiny_weights();
  WeightsSource source(weights, PublishAs::published);
  StoreSink sink(PublishAs::published);
  for (int64_t step = 1; step <= 3; ++step) {
    const at::NoGradGuard no_grad;
    weights.visit([](const model::TensorInfo& info, Tensor& value) {
      if (info.learns) value.mul_(1.5);
    });
    publish(source, sink, step);
    const Manifest now = source.manifest();
    for (const auto& [spec, checksum] : now.tensors)
      EXPECT_EQ(tensor::checksum64(sink.serving().at(spec.name)), checksum);
  }
}

TEST(InProcess, WhatAReceiverKeepsIsNotTheMaster) {
  model::Weights weights = test::tiny_weights();
  StoreSink sink(PublishAs::master);
  WeightsSource source(weights, PublishAs::master);
  publish(source, sink, 1);
  const Tensor before = sink.serving().at("norm.weight").clone();
  const at::NoGradGuard no_grad;
  weights.norm.add_(1);  // as the optimizer does
  EXPECT_TRUE(at::equal(sink.serving().at("norm.weight"), before));
}

// A source whose values change between manifest and sending.
class MovingSource : public WeightsSource {
 public:
  explicit MovingSource(model::Weights& weights) : WeightsSource(weights, PublishAs::published), weights_(weights) {}
  Manifest manifest() override {
    Manifest manifest = WeightsSource::manifest();
    const at::NoGradGuard no_grad;
    weights_.layers.back().ffn.w2.add_(1);
    return manifest;
  }

 private:
  model::Weights& weights_;
};

TEST(InProcess, WeightsThatChangeWhileTheyAreSentAreRefusedWhole) {
  model::Weights weights = test::tiny_weights();
  StoreSink sink(PublishAs::published);
  WeightsSource steady(weights, PublishAs::published);
  publish(steady, sink, 1);
  const std::map<std::string, Tensor> first = sink.serving();
  MovingSource moving(weights);
  test::expect_error(Code::corruption, {"layers.3.ffn.experts.0.w2.weight", "checksum"},
                     [&] { publish(moving, sink, 2, 1); });
  EXPECT_EQ(sink.version(), 1);
  for (const auto& [name, value] : first) EXPECT_TRUE(test::same_bits(value, sink.serving().at(name)));
}

TEST(InProcess, AModelOfAnotherShapeIsRefusedBeforeItIsSent) {
  base::Json json = test::tiny_config_json();
  json["hidden_size"] = 60;
  const model::Weights other = model::Weights::initialise(model::Config::from_json(json, "other"), 1);
  WeightsSource source(other, PublishAs::published);
  StoreSink sink(PublishAs::published);
  test::expect_error(Code::invalid_argument, {"embed.weight", "[40, 60]", "[40, 64]"},
                     [&] { publish(source, sink, 1); });
  EXPECT_EQ(sink.version(), weight_sync::kNoVersion);
}

TEST(Manifest, EncodingsFollowThePublishedTable) {  // spec 6.2, case q-07
  std::map<std::string, Encoding> published;
  for (const TensorSpec& spec :
       weight_sync::expected_tensors(model::Weights::describe(test::tiny_config()), PublishAs::published)) {
    published[spec.name] = spec.encoding;
  }
  EXPECT_EQ(published.at("layers.0.ffn.gate.tid2eid"), Encoding::i64);
  for (const char* name :
       {"layers.2.ffn.gate.bias", "layers.1.attn.attn_sink", "layers.1.attn.compressor.ape", "hc_head_fn"}) {
    EXPECT_EQ(published.at(name), Encoding::f32) << name;
  }
  for (const char* name : {"embed.weight", "layers.0.attn.wo_a.weight", "layers.1.attn.indexer.weights_proj.weight",
                           "mtp.0.e_proj.weight"}) {
    EXPECT_EQ(published.at(name), Encoding::bf16) << name;
  }
}

Manifest two_tensors() {
  return {{{{"a", {2, 3}, Encoding::bf16}, 0x0123456789abcdef}, {{"b", {}, Encoding::f32}, 0xfedcba9876543210}}};
}

TEST(Manifest, JsonBringsItBack) {
  const base::Json json = base::parse_json(two_tensors().to_json().dump(), "text");
  EXPECT_EQ(json["tensors"][0]["bytes"], 12);
  EXPECT_EQ(json["tensors"][0]["checksum"], "0123456789abcdef");
  EXPECT_EQ(Manifest::from_json(json, "peer"), two_tensors());
}

TEST(Manifest, BadJsonIsNamedByTensorAndField) {
  const auto refused = [](const std::vector<std::string>& parts, const std::function<void(base::Json&)>& spoil) {
    base::Json json = two_tensors().to_json();
    spoil(json);
    test::expect_error(Code::corruption, parts, [&] { Manifest::from_json(json, "peer"); });
  };
  refused({"peer", "tensors"}, [](base::Json& json) { json = 3; });
  refused({"peer", "list"}, [](base::Json& json) { json["tensors"] = 3; });
  refused({"tensors[1]", "name"}, [](base::Json& json) { json["tensors"][1].erase("name"); });
  refused({"\"a\"", "shape", "-2"}, [](base::Json& json) { json["tensors"][0]["shape"] = {-2}; });
  refused({"\"a\"", "bytes", "2^63"}, [](base::Json& json) { json["tensors"][0]["shape"] = {1ull << 62, 4}; });
  refused({"\"a\"", "bytes", "13", "12"}, [](base::Json& json) { json["tensors"][0]["bytes"] = 13; });
  refused({"\"a\"", "encoding", "F8"}, [](base::Json& json) { json["tensors"][0]["encoding"] = "F8"; });
  refused({"\"a\"", "checksum", "xyz"}, [](base::Json& json) { json["tensors"][0]["checksum"] = "xyz"; });
  refused({"\"b\"", "twice"}, [](base::Json& json) { json["tensors"][0] = json["tensors"][1]; });
}

}  // namespace
