// PCRE2 behind data/split_regex.h. Text is checked to be UTF-8 by the caller once, not by PCRE2 in every search.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "data/split_regex.h"

#include <pcre2.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "data/utf8.h"

namespace data {
namespace {

using base::Code;

// Steps: a greedy run over the whole text may be given back byte by byte, so the limit grows with the text; beyond
// that, a pattern is exponential. Memory of one search in KiB.
constexpr uint32_t kMinMatchSteps = 10'000'000, kMatchStepsPerByte = 8, kMaxMatchKib = 256 * 1024;
constexpr size_t kMaxPatternBytes = 64 * 1024;
constexpr uint32_t kMaxGroupNesting = 64;

std::string pcre2_message(int error) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

struct SplitRegex::Compiled {
  struct Free {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  };
  std::unique_ptr<pcre2_code, Free> code;
  std::string where;
};

struct SplitRegex::Scratch::State {
  struct Free {
    void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
    void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  };
  std::unique_ptr<pcre2_match_data, Free> match;
  std::unique_ptr<pcre2_match_context, Free> context;
};

SplitRegex::SplitRegex(std::string_view pattern, const std::string& where) : compiled_(std::make_unique<Compiled>()) {
  if (pattern.size() > kMaxPatternBytes) {
    base::fail(Code::invalid_argument, "{}: the pattern has {} bytes, more than {}", where, pattern.size(),
               kMaxPatternBytes);
  }
  const std::string translated = translate_oniguruma(pattern, where);
  struct FreeContext {
    void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
  };
  const std::unique_ptr<pcre2_compile_context, FreeContext> context(pcre2_compile_context_create(nullptr));
  CHECK(context != nullptr);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), kMaxGroupNesting);
  int error = 0;
  PCRE2_SIZE at = 0;
  compiled_->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &at,
                                      context.get()));
  if (compiled_->code == nullptr) {
    base::fail(Code::corruption, "{}: not a regular expression ({} near byte {} of {})", where, pcre2_message(error),
               at, translated);
  }
  compiled_->where = where;
}

SplitRegex::SplitRegex(SplitRegex&&) noexcept = default;
SplitRegex& SplitRegex::operator=(SplitRegex&&) noexcept = default;
SplitRegex::~SplitRegex() = default;

SplitRegex::Scratch::Scratch(const SplitRegex& regex) : state_(std::make_unique<State>()) {
  state_->match.reset(pcre2_match_data_create_from_pattern(regex.compiled_->code.get(), nullptr));
  state_->context.reset(pcre2_match_context_create(nullptr));
  CHECK(state_->match != nullptr && state_->context != nullptr);
  pcre2_set_heap_limit(state_->context.get(), kMaxMatchKib);
}

SplitRegex::Scratch::Scratch(Scratch&&) noexcept = default;
SplitRegex::Scratch::~Scratch() = default;

void SplitRegex::find_all(std::string_view text, Scratch& scratch, std::vector<ByteRange>& matches) const {
  pcre2_match_context* const context = scratch.state_->context.get();
  pcre2_match_data* const match = scratch.state_->match.get();
  const uint64_t steps = std::max<uint64_t>(kMinMatchSteps, text.size() * uint64_t{kMatchStepsPerByte});
  pcre2_set_match_limit(context, static_cast<uint32_t>(std::min<uint64_t>(steps, UINT32_MAX)));
  const auto* const subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  for (size_t at = 0; at <= text.size();) {
    const int found = pcre2_match(compiled_->code.get(), subject, text.size(), at, PCRE2_NO_UTF_CHECK, match, context);
    if (found == PCRE2_ERROR_NOMATCH) return;
    if (found < 0) {
      base::fail(Code::invalid_argument, "{}: the pattern cannot be matched against a piece of {} bytes: {}",
                 compiled_->where, text.size(), pcre2_message(found));
    }
    const PCRE2_SIZE* const range = pcre2_get_ovector_pointer(match);
    matches.push_back({range[0], range[1]});
    at = range[1];
    if (range[0] == range[1])
      at += at < text.size() ? first_char(text.substr(at)).length : 1;  // an empty match: step on
  }
}

}  // namespace data
