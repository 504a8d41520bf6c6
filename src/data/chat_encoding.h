// Chat messages to DeepSeek-V4's prompt text. The model has no chat template; this is its encoding (spec 9.2), byte for
// byte. A prompt remembers which of its bytes came from messages, so that encoding it cannot turn a user's text into a
// marker. Pure functions: any thread.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "data/split_regex.h"
#include "data/tokenizer.h"

namespace data {

enum class ThinkingMode { chat, thinking };
enum class ReasoningEffort { none, high, max };  // high adds nothing to the prompt

// Error{invalid_argument} for another name. "" is ReasoningEffort::none.
ThinkingMode thinking_mode_from(std::string_view name);
ReasoningEffort reasoning_effort_from(std::string_view name);

struct ChatOptions {
  ThinkingMode thinking = ThinkingMode::chat;
  ReasoningEffort effort = ReasoningEffort::none;
  bool drop_thinking = true;  // reasoning before the last user message is left out, unless some message has tools
  bool add_bos = true;        // never added when num_context > 0
  int64_t num_context = 0;    // messages at the front that an earlier prompt holds already: not rendered again
};

struct RenderedPrompt {
  std::string text;
  std::vector<ByteRange> content;  // bytes that came from messages: ascending, not touching
};

// messages: an array of {"role", "content", ...} as in the OpenAI interface; roles system, user, assistant, tool,
// developer, latest_reminder. Further members: reasoning_content, tool_calls, tool_call_id, tools, response_format,
// task, wo_eos. Ends with what opens the assistant's turn, if the last message is not an assistant's.
// Error{invalid_argument}, or {corruption} for members of a wrong type, naming where and the message: an unknown role,
// task or type of content; a user message without text (null); tools or response_format on a role that has no place for
// them; arguments of a call that are not a text.
RenderedPrompt render_chat(const base::Json& messages, const ChatOptions& options, const std::string& where);

// Ids of a rendered prompt: markers of the template are one id each, the messages' own text never is.
std::vector<int32_t> encode_prompt(const Tokenizer& tokenizer, const RenderedPrompt& prompt);

}  // namespace data
