// The regular expressions of tokenizer.json, which are written for Oniguruma's Ruby syntax, run by PCRE2 in UTF and UCP
// mode. Constructs that the two libraries read differently are rewritten (\s, \w) or refused; none changes its meaning
// in silence. Sources: Oniguruma doc/RE, pcre2pattern(3). Unicode: PCRE2 10.42 knows version 14; a
// character added to Unicode later counts as unassigned, which can cut such text elsewhere than a newer library does.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace data {

// Half-open, in bytes.
struct ByteRange {
  size_t begin = 0, end = 0;
  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};

// A compiled pattern. Immutable: any thread may search with it.
class SplitRegex {
 public:
  // where: for messages. Error{corruption}: not a regular expression; Error{invalid_argument}: a construct that is
  // refused.
  SplitRegex(std::string_view pattern, const std::string& where);
  SplitRegex(SplitRegex&&) noexcept;
  SplitRegex& operator=(SplitRegex&&) noexcept;
  ~SplitRegex();

  // Working memory of searches; reused from one to the next, for one thread.
  class Scratch {
   public:
    explicit Scratch(const SplitRegex& regex);
    Scratch(Scratch&&) noexcept;
    ~Scratch();

   private:
    friend class SplitRegex;
    struct State;
    std::unique_ptr<State> state_;
  };

  // All matches in text, in order, none overlapping. text must be valid UTF-8; look-around does not see beyond it.
  // Error{invalid_argument} when a match needs more steps or memory than the limits allow (a pattern that explodes).
  void find_all(std::string_view text, Scratch& scratch, std::vector<ByteRange>& matches) const;

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

// The pattern as PCRE2 must be given it. Errors as SplitRegex; public for its test.
std::string translate_oniguruma(std::string_view pattern, const std::string& where);

}  // namespace data
