#include "compare/side_name.h"

#include <gtest/gtest.h>

#include "base/expect_error.h"
#include "base/files.h"
#include "checkpoint/temporary_folder.h"

namespace compare {
namespace {

using base::Code;
using Kind = SideName::Kind;
using test::expect_error;

TEST(SideName, EveryFormIsRead) {
  const test::TemporaryFolder folder;
  const std::string model = (folder / "a@b").string(), file = (folder / "x.jsonl").string();
  std::filesystem::create_directory(model);
  base::write_file_atomic(file, "{}");
  const auto expect = [](const std::string& text, Kind kind, const std::string& profile, const std::string& place) {
    const SideName side = parse_side(text);
    EXPECT_EQ(side.kind, kind) << text;
    EXPECT_EQ(side.place, place) << text;
    EXPECT_EQ(side.text, text);
    EXPECT_EQ(side.has_model() ? side.profile.name : "", profile) << text;
  };
  expect("engine:fp8@" + model, Kind::engine, "fp8", model);
  expect("actor:bf16@" + model, Kind::actor, "bf16", model);
  expect("fp8_fp4@" + model, Kind::plain, "fp8_fp4", model);
  expect(model, Kind::plain, "f32", model);
  expect(file, Kind::file, "", file);
  expect("http://10.0.0.1:30000", Kind::server, "", "http://10.0.0.1:30000");
  EXPECT_EQ(parse_side("https://host/").place, "https://host");
  const SideName simulating = parse_side("actor:bf16+kv+index@" + model);
  EXPECT_EQ(simulating.profile.name, "bf16+kv+index");
  EXPECT_TRUE(simulating.profile.kv_sim && simulating.profile.index_sim && !simulating.profile.quantise);
}

TEST(SideName, WhatIsNoSideIsRefusedWithTheFormsThatAre) {
  const test::TemporaryFolder folder;
  const std::string model = folder.path().string();
  expect_error(Code::not_found, {"nowhere", "engine:PROFILE@MODEL", "FILE of log-probs"},
               [&] { parse_side("nowhere"); });
  expect_error(Code::invalid_argument, {"name the precision", "engine:fp8@" + model},
               [&] { parse_side("engine:" + model); });
  expect_error(Code::invalid_argument, {"fp7", "f32, bf16, fp8 or fp8_fp4"}, [&] { parse_side("actor:fp7@" + model); });
  expect_error(Code::invalid_argument, {"+x is unknown"}, [&] { parse_side("bf16+x@" + model); });
  expect_error(Code::invalid_argument, {"for an actor or a plain pass"},
               [&] { parse_side("engine:bf16+kv@" + model); });
  expect_error(Code::invalid_argument, {"fp8 has both"}, [&] { parse_side("actor:fp8+kv@" + model); });
  base::write_file_atomic(folder / "x.jsonl", "{}");
  expect_error(Code::invalid_argument, {"is a file", "model folder"},
               [&] { parse_side("actor:bf16@" + (folder / "x.jsonl").string()); });
}

}  // namespace
}  // namespace compare
