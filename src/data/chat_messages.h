// The steps before rendering: tool messages become blocks of user messages, their results take the order of the calls,
// and earlier reasoning is dropped (spec 9.2, preprocess a to d). Used by chat_encoding.cpp only.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace data {

// A part of a user message.
struct ChatBlock {
  bool is_tool_result = false;
  const base::Json* content = nullptr;  // nullptr: absent, which counts as ""
  std::string tool_call_id;
};

// A message after merging. Points into the messages, which must outlive it.
struct ChatTurn {
  std::string role;  // as given; "None" when absent
  const base::Json* message = nullptr;
  std::vector<ChatBlock> blocks;  // of a user turn, never empty there
  std::string task;               // "" when the message has none
  bool keep_reasoning = true;
  std::string where;  // for messages about it

  bool is_user() const { return role == "user" || role == "developer"; }
};

// Index of the last user or developer turn; -1 when there is none.
int64_t last_user_turn(const std::vector<ChatTurn>& turns);

// messages[first, last) merged. Error{invalid_argument}: not objects, members of a wrong type.
std::vector<ChatTurn> merge_messages(const base::Json& messages, size_t first, size_t last, const std::string& where);

// Sorts the tool results inside each user turn by the order of the calls in the assistant turn before it.
void sort_tool_results(std::vector<ChatTurn>& turns);

// What is left when earlier reasoning is dropped: also drops developer turns before the last user turn.
std::vector<ChatTurn> drop_earlier_reasoning(std::vector<ChatTurn> turns);

}  // namespace data
