// Tokenizer files that are broken, hostile or ask for what is not supported: each is refused with the place named.
#include "data/tokenizer_file.h"

#include <gmock/gmock.h>

#include "base/files.h"
#include "base/rng.h"
#include "data/byte_level.h"
#include "data/golden_files.h"
#include "data/tokenizer.h"

namespace data {
namespace {

using base::Json;
using data_test::error_of;
using testing::HasSubstr;

// Characters a b c, "ab", "abc", and two added tokens.
Json small_file() {
  return Json::parse(R"({
    "added_tokens": [{"id": 5, "content": "<x>", "special": true}, {"id": 6, "content": "<xy>", "special": false}],
    "normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "abc": 4}, "merges": ["a b", ["ab", "c"]]}})");
}

Tokenizer make(const Json& file, const TokenizerConfig& config = {}) {
  return Tokenizer(parse_tokenizer_file(file.dump(), "t.json"), config, "t.json");
}

// The message when one member of the small file is replaced.
std::string error_with(const std::string& pointer, const Json& value) {
  Json file = small_file();
  file[Json::json_pointer(pointer)] = value;
  return error_of([&] { make(file); });
}

TEST(TokenizerFile, ASmallFileGivesItsIds) {
  const Tokenizer tokenizer = make(small_file(), {.bos = {}, .eos = "<x>", .pad = "a"});
  EXPECT_EQ(tokenizer.encode("abcab<x>c<xy>", Markers::as_ids), (std::vector<int32_t>{4, 3, 5, 2, 6}));
  EXPECT_EQ(tokenizer.stop_ids(), std::vector<int32_t>{5});
  EXPECT_EQ(tokenizer.pad_id(), 0);
  EXPECT_EQ(tokenizer.bos_id(), std::nullopt);
  EXPECT_EQ(tokenizer.ids_without_token(9), (std::vector<int32_t>{7, 8}));
}

TEST(TokenizerFile, IdsMayHaveGaps) {
  Json file = small_file();
  file["added_tokens"][1]["id"] = 9;
  EXPECT_EQ(make(file).ids_without_token(12), (std::vector<int32_t>{6, 7, 8, 10, 11}));
  EXPECT_EQ(make(file).vocab_size(), 10);
}

TEST(TokenizerFile, RefusesWhatIsNotJson) {
  EXPECT_THAT(error_of([] { parse_tokenizer_file("{\"model\": ", "t.json"); }), HasSubstr("t.json: byte"));
  EXPECT_THAT(error_of([] { parse_tokenizer_file("", "t.json"); }), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of([] { parse_tokenizer_file("[]", "t.json"); }), HasSubstr("should be an object"));
  EXPECT_THAT(error_of([] { parse_tokenizer_file(std::string(1'000'000, '['), "t.json"); }),
              HasSubstr("nested deeper"));
  EXPECT_THAT(error_of([] { Tokenizer::load("/no/such/folder"); }), HasSubstr("/no/such/folder"));
}

TEST(TokenizerFile, RefusesWrongTypes) {
  EXPECT_THAT(error_with("/model", 3), HasSubstr("model"));
  EXPECT_THAT(error_with("/model/vocab", Json::array()), HasSubstr("\"vocab\" is an array"));
  EXPECT_THAT(error_with("/model/vocab/a", "0"), HasSubstr("the id of token \"a\" is a text"));
  EXPECT_THAT(error_with("/model/vocab/a", 0.5), HasSubstr("\"a\""));
  EXPECT_THAT(error_with("/model/merges", "a b"), HasSubstr("\"merges\" is a text"));
  EXPECT_THAT(error_with("/added_tokens", 1), HasSubstr("added_tokens"));
  EXPECT_THAT(error_with("/added_tokens/0", 1), HasSubstr("added_tokens[0]"));
  EXPECT_THAT(error_with("/added_tokens/0/content", ""), HasSubstr("empty"));
  EXPECT_THAT(error_with("/pre_tokenizer", nullptr), HasSubstr("pre_tokenizer"));
}

TEST(TokenizerFile, RefusesIdsThatCollideOrDoNotFit) {
  EXPECT_THAT(error_with("/model/vocab/b", 0), HasSubstr("\"a\" and \"b\" have the same id 0"));
  EXPECT_THAT(error_with("/model/vocab/b", -1), HasSubstr("outside 0.."));
  EXPECT_THAT(error_with("/model/vocab/b", int64_t{1} << 60),
              HasSubstr("outside 0.."));  // nothing of that size is allocated
  EXPECT_THAT(error_with("/model/vocab/b", UINT64_MAX), HasSubstr("outside 0.."));
  EXPECT_THAT(error_with("/added_tokens/1/id", 4), HasSubstr("belongs to \"abc\""));
  EXPECT_THAT(error_with("/added_tokens/1/id", 5), HasSubstr("belongs to \"<x>\""));
  EXPECT_THAT(error_with("/added_tokens/1/content", "ab"), HasSubstr("has id 6 here and 3"));
  EXPECT_THAT(error_of([] { parse_tokenizer_file(R"({"model": {"vocab": {"a": 0, "a": 1}}})", "t.json"); }),
              HasSubstr("\"a\" stands twice"));
}

TEST(TokenizerFile, RefusesMergesItCannotUse) {  // tok-01
  EXPECT_THAT(error_with("/model/merges/1", "ab d"), HasSubstr("merge 1"));
  EXPECT_THAT(error_with("/model/merges/1", "b c"), HasSubstr("\"bc\", which is not in the vocabulary"));
  for (const Json& bad : {Json("ab"), Json("a b c"), Json(" b"), Json("a "), Json(7), Json({"a"}),
                          Json({"a", "b", "c"}), Json({"a", 1})}) {
    EXPECT_THAT(error_with("/model/merges/1", bad), HasSubstr("merge 1 is")) << bad;
  }
  EXPECT_THAT(error_with("/model/merges/1", "a b"), HasSubstr("merges 0 and 1 are of the same pair"));
}

TEST(TokenizerFile, RefusesWhatItWouldHaveToIgnore) {
  EXPECT_THAT(error_with("/model/type", "Unigram"), HasSubstr("Unigram"));
  EXPECT_THAT(error_with("/model/dropout", 0.1), HasSubstr("dropout"));
  EXPECT_THAT(error_with("/model/byte_fallback", true), HasSubstr("byte_fallback"));
  EXPECT_THAT(error_with("/model/continuing_subword_prefix", "##"), HasSubstr("continuing_subword_prefix"));
  EXPECT_THAT(error_with("/model/unk_token", "a"), HasSubstr("unk_token"));  // some bytes have no token here
  EXPECT_THAT(error_with("/normalizer", {{"type", "NFC"}}), HasSubstr("NFC"));
  EXPECT_THAT(error_with("/decoder", {{"type", "WordPiece"}}), HasSubstr("decoder"));
  EXPECT_THAT(error_with("/truncation", {{"max_length", 8}}), HasSubstr("truncation"));
  EXPECT_THAT(error_with("/added_tokens/0/lstrip", true), HasSubstr("lstrip"));
  EXPECT_THAT(error_with("/pre_tokenizer", {{"type", "Metaspace"}}), HasSubstr("Metaspace"));
  EXPECT_THAT(error_with("/pre_tokenizer", {{"type", "Digits"}}), HasSubstr("no ByteLevel step"));
}

TEST(TokenizerFile, HarmlessOptionsAreAccepted) {
  Json file = small_file();
  file["model"].update(
      {{"dropout", nullptr}, {"unk_token", nullptr}, {"continuing_subword_prefix", ""}, {"fuse_unk", false}});
  file["normalizer"] = {{"type", "Sequence"}, {"normalizers", Json::array()}};
  EXPECT_EQ(make(file).encode("abc", Markers::as_ids), std::vector<int32_t>{4});
}

TEST(TokenizerFile, AWholePieceIsNotMergedWhenTheFileSaysSo) {
  Json file = small_file();
  file["model"]["vocab"]["ba"] = 7;  // no merge makes it
  EXPECT_EQ(make(file).encode("ba", Markers::as_ids), (std::vector<int32_t>{1, 0}));
  file["model"]["ignore_merges"] = true;
  EXPECT_EQ(make(file).encode("ba", Markers::as_ids), std::vector<int32_t>{7});
}

TEST(TokenizerFile, AddedTokensTakeTheLongestAndPlainOnesFirst) {
  Json file = small_file();
  file["added_tokens"] = Json::parse(
      R"([{"id": 5, "content": "<x>", "normalized": false}, {"id": 6, "content": "<x>b", "normalized": false},
                                         {"id": 7, "content": "a<x>", "normalized": true}])");
  const Tokenizer tokenizer = make(file);
  EXPECT_EQ(tokenizer.encode("<x>b<x>", Markers::as_ids), (std::vector<int32_t>{6, 5}));
  EXPECT_EQ(tokenizer.encode("a<x>", Markers::as_ids), (std::vector<int32_t>{0, 5}));  // the plain <x> is found first
}

TEST(TokenizerFile, TheConfigMustNameKnownTokens) {
  EXPECT_THAT(error_of([] { make(small_file(), {.bos = "<s>", .eos = {}, .pad = {}}); }),
              HasSubstr("no token \"<s>\""));
  const TokenizerConfig config =
      parse_tokenizer_config(R"({"eos_token": {"content": "<x>"}, "bos_token": "a", "pad_token": null})", "c");
  EXPECT_EQ(config.eos, "<x>");
  EXPECT_EQ(config.bos, "a");
  EXPECT_EQ(config.pad, std::nullopt);
  EXPECT_THAT(error_of([] { parse_tokenizer_config(R"({"eos_token": 3})", "c.json"); }), HasSubstr("eos_token"));
}

// Whatever the bytes, the result is a tokenizer or an Error: no other exception, no crash (the sanitizers watch).
TEST(TokenizerFile, DamagedFilesAreErrorsOrTokenizers) {
  const std::string whole = small_file().dump();
  base::Philox random(1);
  size_t num_errors = 0;
  for (size_t trial = 0; trial < 4000; ++trial) {
    std::string text = whole;
    if (trial < whole.size()) {
      text.resize(trial);
    } else {
      for (uint64_t n = 1 + random.next_below(3); n > 0; --n) {
        const size_t at = random.next_below(text.size());
        text[at] =
            random.next_below(2) == 0 ? static_cast<char>(random.next()) : whole[random.next_below(whole.size())];
      }
    }
    try {
      const Tokenizer tokenizer(parse_tokenizer_file(text, "t.json"), {}, "t.json");
      tokenizer.decode(tokenizer.encode("abc<xy>", Markers::as_ids));
    } catch (const base::Error& error) {
      EXPECT_NE(error.code(), base::Code::internal) << error.what();
      ++num_errors;
    }
  }
  EXPECT_GT(num_errors, whole.size());
}

TEST(ByteLevel, TheAlphabetIsOneToOne) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  EXPECT_EQ(from_byte_level(to_byte_level(all)), all);
  EXPECT_EQ(to_byte_level(" \n!"),
            "\u0120"
            "\u010A"
            "!");
  EXPECT_EQ(from_byte_level("<\uFF5CUser\uFF5C>"), std::nullopt);
}

}  // namespace
}  // namespace data
