// Bad JSON is refused with its place, deep JSON before it can exhaust the stack.
#include "base/json.h"

#include "base/expect_error.h"
#include "base/files.h"

namespace {

using base::Code;
using test::expect_error;

TEST(Json, KeepsTheOrderOfKeys) {
  EXPECT_EQ(base::to_line(base::parse_json(R"({"b": 1, "a": {"z": [], "c": null}})", "x")),
            R"({"b":1,"a":{"z":[],"c":null}})");
}

TEST(Json, ABadDocumentIsRefusedWithLineAndColumn) {
  expect_error(Code::corruption, {"config.json:2:7: not valid JSON"},
               [] { base::parse_json("{\n  \"a\":}\n", "config.json"); });
  expect_error(Code::corruption, {"config.json:1:", "not valid JSON"}, [] { base::parse_json("", "config.json"); });
  expect_error(Code::corruption, {"x:1:4: not valid JSON"}, [] { base::parse_json("{} {}", "x"); });
  expect_error(Code::corruption, {"x:1:", "UTF-8"}, [] { base::parse_json("\"\xff\"", "x"); });
  expect_error(Code::corruption, {"x:1:"}, [] { base::parse_json("[1, 2", "x"); });
  expect_error(Code::corruption, {"not valid JSON"}, [] { base::parse_json("1e999", "x"); });
}

std::string nested(int depth) {
  return std::string(static_cast<size_t>(depth), '[') + std::string(static_cast<size_t>(depth), ']');
}

TEST(Json, NestingBeyondTheLimitIsRefusedAtItsByte) {
  EXPECT_NO_THROW(base::parse_json(nested(256), "x"));
  expect_error(Code::corruption, {"deeper than 256 levels (byte 256)"}, [] { base::parse_json(nested(257), "x"); });
  expect_error(Code::corruption, {"deeper than 256"}, [] { base::parse_json(std::string(50'000'000, '['), "x"); });
  EXPECT_NO_THROW(base::parse_json("\"" + std::string(1000, '[') + "\\\"" + std::string(1000, '{') + "\"", "x"))
      << "brackets inside a text do not nest";
}

TEST(Json, AFileIsReadWithinALimit) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "json_test.json";
  base::write_file_atomic(path, R"({"a": [1, 2.5]})");
  EXPECT_EQ(base::read_json(path).at("a").at(1), 2.5);
  expect_error(Code::invalid_argument, {path.string(), "15 bytes", "14 allowed"}, [&] { base::read_json(path, 14); });
  expect_error(Code::not_found, {"no_such.json"}, [] { base::read_json("no_such.json"); });
}

TEST(Json, ALineOfOutputSurvivesInvalidUtf8) {
  EXPECT_EQ(base::to_line(base::Json("a\xff"
                                     "b\n")),
            "\"a\xef\xbf\xbd"
            "b\\n\"");
}

}  // namespace
