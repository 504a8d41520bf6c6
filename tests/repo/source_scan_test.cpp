// The scanner itself: it must see a long function however it is written.
#include "repo/source_scan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace {

using testing::ElementsAre;

std::vector<std::string> lengths(const std::string& text) {
  repo::SourceFile file;
  file.text = text;
  file.code = repo::blank_text(text);
  std::vector<std::string> found;
  for (const repo::Function& function : repo::functions_of(file)) {
    found.push_back(std::to_string(function.first_line) + "+" + std::to_string(function.num_lines));
  }
  return found;
}

TEST(SourceScan, FunctionsOfEveryFormAreMeasuredFromHeadToClosingBrace) {
  EXPECT_THAT(lengths("int f(int a,\n      int b) {\n  return a;\n}\n"), ElementsAre("1+4"));
  EXPECT_THAT(lengths("namespace a {\nclass B : public C {\n  void f() {\n  }\n  int x = 0;\n};\n}\n"),
              ElementsAre("3+2"));
  EXPECT_THAT(lengths("template <class T>\nvoid f(T t) {\n}\n"), ElementsAre("1+3"));
  EXPECT_THAT(lengths("Foo::Foo(int a) : a_{a},\n b_{1} {\n  run();\n}\nint g() { return 1; }\n"),
              ElementsAre("1+4", "5+1"));
  EXPECT_THAT(lengths("void f() {\n  auto g = [] {\n  };\n  struct L {\n    void h() {}\n  };\n}\n"),
              ElementsAre("1+7"));
  EXPECT_THAT(lengths("struct stat f(int x) {\n}\n"), ElementsAre("1+2"));
  EXPECT_THAT(lengths("constexpr int kTable[] = {1,\n 2};\nenum class E { a, b };\nextern \"C\" {\nvoid f() {\n}\n}\n"),
              ElementsAre("5+2"));
  EXPECT_THAT(lengths("TEST(A, B) {\n\n}\n"), ElementsAre("1+3"));
}

TEST(SourceScan, BracesInTextCommentsAndMacrosDoNotCount) {
  EXPECT_THAT(lengths("#define M(x) \\\n  if (x) {\nvoid f() {\n  g(\"}\", '}', R\"x(}\")x\"); // }\n  /* } */ int n = "
                      "1'000;\n}\n"),
              ElementsAre("3+4"));
}

TEST(SourceScan, CommentsAndLiteralsAreBlankedAndNothingElse) {
  EXPECT_EQ(repo::blank_text("a(\"x\\\"y\"); // b\nc = 'q';"), "a(      );     \nc =    ;");
  EXPECT_EQ(repo::blank_text("1'000 + R\"(\")\" + d"), "1'000 +        + d");
}

TEST(SourceScan, NamesFallIntoWords) {
  EXPECT_THAT(repo::words_of("DecodeStepMatchesFP8Prefill"),
              ElementsAre("Decode", "Step", "Matches", "FP8", "Prefill"));
  EXPECT_THAT(repo::words_of("score_math2"), ElementsAre("score", "math2"));
}

}  // namespace
