// Command lines of every form, and what is refused.
#include "apps/arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Options {
  std::string model;
  int64_t top_k = -1;
  bool chat = false;
  template <class V>
  void visit(V&& v) {
    v("model", model, "folder of a model");
    v("top_k", top_k, "tokens kept", base::Range{-1});
    v("chat", chat, "encode as a chat");
  }
};

const apps::Usage kUsage = {"try", "[FILE]", "Tries things.", 0, 1};

struct Parsed {
  Options options;
  std::vector<std::string> positional;
};

Parsed parse(const apps::Arguments& arguments) {
  Parsed parsed;
  base::Fields fields = base::fields_of(parsed.options);
  const apps::CommandLine line = apps::read_command_line(fields, kUsage, arguments);
  EXPECT_FALSE(line.help);
  apps::apply_overrides(fields, line);
  parsed.positional = line.positional;
  return parsed;
}

std::string refusal(const apps::Arguments& arguments) {
  try {
    parse(arguments);
  } catch (const apps::UsageError& error) {
    return error.what();
  }
  return "nothing was refused";
}

TEST(Arguments, AValueMayFollowAfterEqualsOrAsTheNextWord) {
  const Parsed parsed = parse({"--model=a b", "--top_k", "-1", "file"});
  EXPECT_EQ(parsed.options.model, "a b");
  EXPECT_EQ(parsed.options.top_k, -1);
  EXPECT_THAT(parsed.positional, ElementsAre("file"));
}

TEST(Arguments, ABoolNeedsNoValueAndTakesNoWord) {
  const Parsed parsed = parse({"--chat", "file"});
  EXPECT_TRUE(parsed.options.chat);
  EXPECT_THAT(parsed.positional, ElementsAre("file"));
  EXPECT_FALSE(parse({"--chat", "--chat=false"}).options.chat);
}

TEST(Arguments, ADashAloneIsAPositionalArgument) { EXPECT_THAT(parse({"-"}).positional, ElementsAre("-")); }

TEST(Arguments, WhatTheUsageDoesNotAllowIsRefused) {
  EXPECT_THAT(refusal({"a", "b"}), HasSubstr("unexpected argument \"b\""));
  EXPECT_THAT(refusal({"-k", "3"}), HasSubstr("unknown option \"-k\""));
  EXPECT_THAT(refusal({"--topk=3"}), HasSubstr("did you mean \"top_k\""));
  EXPECT_THAT(refusal({"--top_k", "--chat"}), HasSubstr("needs a value"));
  EXPECT_THAT(refusal({"--top_k=-2"}), HasSubstr("should be -1 or more"));
  Options options;
  base::Fields fields = base::fields_of(options);
  const apps::Usage needs_one = {"try", "FILE", "Tries things.", 1, 1};
  EXPECT_THROW(apps::read_command_line(fields, needs_one, {}), apps::UsageError);
}

TEST(Arguments, HelpIsMadeFromTheSettingsWhateverElseIsGiven) {
  Options options;
  base::Fields fields = base::fields_of(options);
  const std::string words = "twenty letters, so: a";  // 21 with the blank between two
  const std::string long_line = words + " " + words + " " + words + " " + words + " " + words;
  const apps::Usage needs_one = {"try", "FILE", "Tries things.\n" + long_line + "\n  " + long_line, 1, 1};
  EXPECT_TRUE(apps::read_command_line(fields, needs_one, {"--help"}).help);
  const std::string help = apps::help_text(fields, needs_one);
  EXPECT_THAT(help, HasSubstr("usage: furlong try FILE [--key=value ...]"));
  EXPECT_THAT(help, HasSubstr("Tries things.\ntwenty letters"));
  EXPECT_THAT(help, HasSubstr(" a twenty\nletters, so: a\n  twenty letters"))
      << "a paragraph is wrapped before column 100, an indented line is not";
  EXPECT_THAT(help, HasSubstr("--top_k=INTEGER"));
}

}  // namespace
