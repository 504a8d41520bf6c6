// A cursor over the text that reads up to the next of some tags.
#include "data/chat_completion.h"

#include <algorithm>
#include <initializer_list>
#include <optional>

#include "base/error.h"
#include "data/chat_template.h"
#include "data/json_fields.h"
#include "data/python_json.h"
#include "data/utf8.h"

namespace data {
namespace {

using base::Code;
using base::Json;

template <class... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> text, Args&&... args) {
  base::fail(Code::invalid_argument, "completion: {}", fmt::format(text, std::forward<Args>(args)...));
}

// Text before a tag, and the tag; an empty tag when the text ended first.
struct Span {
  std::string_view before, tag;
};

class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}
  bool at_end() const { return at_ == text_.size(); }

  Span read_to(std::initializer_list<std::string_view> tags) {
    size_t nearest = text_.size();
    std::string_view found;
    for (const std::string_view tag : tags) {
      const size_t at = text_.find(tag, at_);
      if (at < nearest) {
        nearest = at;
        found = tag;
      }
    }
    const std::string_view before = text_.substr(at_, nearest - at_);
    at_ = nearest + found.size();
    return {before, found};
  }

 private:
  std::string_view text_;
  size_t at_ = 0;
};

// Removes the ending if the text has it, alone or followed by one line feed (as "$" does in the published patterns).
bool strip_ending(std::string_view& text, std::string_view ending) {
  std::string_view rest = text;
  if (!rest.ends_with(ending) && rest.ends_with('\n')) rest.remove_suffix(1);
  if (!rest.ends_with(ending)) return false;
  text = rest.substr(0, rest.size() - ending.size());
  return true;
}

// Length of the white space of Python's str.isspace at the beginning of the text.
size_t leading_space(std::string_view text) {
  constexpr std::string_view kWide[] = {"\u00A0", "\u1680", "\u2000", "\u2001", "\u2002",  "\u2003", "\u2004",
                                        "\u2005", "\u2006", "\u2007", "\u2008", "\u2009",  "\u200A", "\u2028",
                                        "\u2029", "\u202F", "\u205F", "\u3000", "\xC2\x85"};
  size_t at = 0;
  while (at < text.size()) {
    const auto c = static_cast<uint8_t>(text[at]);
    if ((c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20)) {
      ++at;
      continue;
    }
    const auto wide =
        std::find_if(std::begin(kWide), std::end(kWide), [&](auto w) { return text.substr(at).starts_with(w); });
    if (wide == std::end(kWide)) break;
    at += wide->size();
  }
  return at;
}

// name="..."> with a line feed after it.
std::string_view parse_tool_name(std::string_view attributes) {
  constexpr std::string_view kBegin = "name=\"";
  std::string_view rest = attributes.substr(leading_space(attributes));
  if (!rest.starts_with(kBegin)) refuse("tool name format: {}", quote(attributes));
  rest.remove_prefix(kBegin.size());
  if (!strip_ending(rest, "\">\n")) refuse("tool name format: {}", quote(attributes));
  return rest;
}

struct Parameter {
  std::string_view name, value;
  bool is_string;
};

//  name="..." string="true|false">value<
Parameter parse_parameter(std::string_view text) {
  constexpr std::string_view kBegin = " name=\"", kTrue = "\" string=\"true\">", kFalse = "\" string=\"false\">";
  std::string_view rest = text;
  if (!rest.starts_with(kBegin)) refuse("parameter format: {}", quote(text));
  rest.remove_prefix(kBegin.size());
  if (!strip_ending(rest, "<")) refuse("parameter format: {}", quote(text));
  const size_t as_string = rest.find(kTrue), as_json = rest.find(kFalse);
  const bool is_string = as_string < as_json;
  const size_t at = std::min(as_string, as_json);
  if (at == std::string_view::npos) refuse("parameter format: {}", quote(text));
  return {rest.substr(0, at), rest.substr(at + (is_string ? kTrue : kFalse).size()), is_string};
}

ToolCall parse_tool_call(Cursor& cursor) {
  ToolCall call;
  Span span = cursor.read_to({kParameterOpen, kInvokeClose});
  call.name = parse_tool_name(span.before);
  std::vector<std::string> names;
  call.arguments = "{";
  while (span.tag == kParameterOpen) {
    const Parameter parameter = parse_parameter(cursor.read_to({kParameterClose}).before);
    const std::string name(parameter.name);
    if (std::find(names.begin(), names.end(), name) != names.end()) refuse("duplicate parameter name: {}", quote(name));
    if (!names.empty()) call.arguments += ", ";
    names.push_back(name);
    call.arguments += to_python_json(Json(name)) + ": ";
    call.arguments +=
        parameter.is_string ? to_python_json(Json(std::string(parameter.value))) : std::string(parameter.value);
    span = cursor.read_to({kParameterOpen, kInvokeClose});
    if (span.before != ">\n") refuse("parameter format: expected '>\\n' but got {}", quote(span.before));
  }
  call.arguments += "}";
  return call;
}

// From behind the tag that opens the block to behind the one that closes it. A block that the end of the text cuts off
// right behind a tag is accepted, as the published parser does.
std::vector<ToolCall> parse_tool_calls(Cursor& cursor) {
  std::vector<ToolCall> calls;
  while (!cursor.at_end()) {
    const Span span = cursor.read_to({kInvokeOpen, kToolCallsClose});
    if (span.before != ">\n") refuse("tool call format: expected '>\\n' but got {}", quote(span.before));
    if (span.tag == kToolCallsClose) break;
    if (span.tag.empty()) refuse("the tool calls are not closed");
    calls.push_back(parse_tool_call(cursor));
  }
  return calls;
}

}  // namespace

Completion parse_completion(std::string_view text, ThinkingMode thinking) {
  if (const size_t bad = find_invalid_utf8(text); bad < text.size()) refuse("the text is not UTF-8 at byte {}", bad);
  const std::string calls_begin = "\n\n" + std::string(kToolCallsOpen);
  Completion completion;
  Cursor cursor(text);
  if (thinking == ThinkingMode::thinking) {
    const Span span = cursor.read_to({kThinkEnd, calls_begin});
    if (span.tag != kThinkEnd) refuse("invalid thinking format: missing </think>");
    completion.reasoning_content = span.before;
  }
  Span span = cursor.read_to({kEndOfSentence, calls_begin});
  completion.content = span.before;
  if (span.tag.empty()) refuse("invalid format: missing the end-of-sentence marker");
  if (span.tag == calls_begin) {
    completion.tool_calls = parse_tool_calls(cursor);
    span = cursor.read_to({kEndOfSentence});
    if (!span.before.empty()) refuse("unexpected content after tool calls: {}", quote(span.before));
  }
  if (!cursor.at_end()) refuse("unexpected content at end");
  for (const std::string_view marker : {kBeginOfSentence, kEndOfSentence, kThinkBegin, kThinkEnd, kDsml}) {
    const bool found = completion.content.find(marker) != std::string::npos ||
                       completion.reasoning_content.find(marker) != std::string::npos;
    if (found) refuse("unexpected special token '{}' in content", marker);
  }
  return completion;
}

Json to_json(const Completion& completion) {
  Json calls = Json::array();
  for (const ToolCall& call : completion.tool_calls) {
    calls.push_back({{"type", "function"}, {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  return {{"role", "assistant"},
          {"content", completion.content},
          {"reasoning_content", completion.reasoning_content},
          {"tool_calls", std::move(calls)}};
}

}  // namespace data
