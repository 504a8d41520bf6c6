// Finding the final answer in a response: control tokens, thoughts, \boxed{}, the "Answer:" line. Everything here is
// linear in the length of the text and returns views into it.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace rewards {

// Without ASCII white space at both ends.
std::string_view strip(std::string_view text);

// Without the end-of-text tokens that a decoder left at the end: "<|name|>" and DeepSeek's full-width form.
std::string_view drop_control_tokens(std::string_view text);

// The last `characters` code points of UTF-8 text.
std::string_view last_characters(std::string_view text, int64_t characters);

// What may be graded when a model thinks aloud.
struct FinalText {
  std::string_view text;      // after the last </think> (or "###Response"); else the whole response
  bool has_marker = false;    // one of the two was there
  bool open_thought = false;  // a thought was opened, by the response or at the end of the prompt, and never closed
};
FinalText final_text(std::string_view prompt, std::string_view response);

// The last "\boxed{...}" or, if there is none, the last "\fbox{...}", with balanced braces (escaped braces don't
// count); nullopt if there is none or the last one is not closed.
std::optional<std::string_view> last_boxed(std::string_view text);

// The inside of "\boxed{...}" or "\fbox{...}"; nullopt if the text is not exactly that.
std::optional<std::string_view> remove_boxed(std::string_view text);

// What follows the last "Answer:" (any case, also with the full-width colon) up to the end of the line; if that line is
// empty, the next line that is not. Marks of emphasis around it are dropped. nullopt if there is no such line.
std::optional<std::string_view> answer_line(std::string_view text);

// Text with the Unicode forms that people and models use for mathematics written in ASCII or LaTeX: full-width digits
// and letters, minus and dash, no-break spaces, vulgar fractions, degree, times, pi.
std::string plain_mathematics(std::string_view text);

// For notes and messages: at most 120 bytes, cut between characters and marked with "...".
std::string shown(std::string_view text);

}  // namespace rewards
