// What a DeepSeek-V4 model wrote, taken apart into reasoning, answer and tool calls (spec 9.3): accepts and refuses
// what the published parser does. Pure functions: any thread.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "data/chat_encoding.h"

namespace data {

struct ToolCall {
  std::string name;
  std::string arguments;  // the text of a JSON object; values that the model wrote as JSON are not checked
};

struct Completion {
  std::string reasoning_content, content;
  std::vector<ToolCall> tool_calls;
};

// text: the completion with its end-of-sentence marker. In mode thinking it begins inside the reasoning (the prompt
// ended with <think>). Error{invalid_argument}: an end or </think> is missing, something follows the end, a marker
// stands in reasoning or content, or the tool calls are malformed (a parameter given twice included).
Completion parse_completion(std::string_view text, ThinkingMode thinking);

// As an assistant message of the OpenAI interface.
base::Json to_json(const Completion& completion);

}  // namespace data
