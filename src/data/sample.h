// What is asked, what was answered, and by which policy: the records that pass between collector, engine, rewards and
// actor.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace data {

// A row of a data set, ready to be asked.
struct Problem {
  std::string id;       // "<file name>:<line>" unless the row has an id of its own
  std::string prompt;   // rendered text (chat encoding already applied)
  std::string label;    // expected answer, byte for byte as in the file
  base::Json metadata;  // whatever else the row holds
  std::vector<int32_t> prompt_ids;
};

enum class FinishReason { stop, length, cancelled };
std::string to_string(FinishReason reason);
FinishReason finish_reason_from(std::string_view text, const std::string& where);  // Error{corruption}

// One answer. Vectors marked L have one element per token of response_ids.
struct Sample {
  int64_t group_id = 0;               // unique in the run
  int64_t index = 0;                  // within its group
  uint64_t seed = 0;                  // of the sampling noise
  std::vector<int32_t> response_ids;  // L, the stop token included
  std::vector<float> log_probs;       // L, natural log under the policy that sampled (decisions 7)
  std::vector<int64_t> versions;      // L, policy version whose weights wrote the token
  // Empty, or of every token but the last (prompt, then response): the experts it went to, ascending, layer by layer.
  // For routing replay.
  std::vector<uint16_t> experts;
  std::string response;  // decoded text, without the stop token
  FinishReason finish = FinishReason::stop;
  double reward = 0;
  std::string reward_note;  // why: what was extracted, or which failure value was used
};

// Error{corruption} unless ids, log-probs and versions have one length.
void check_lengths(const Sample& sample, const std::string& where);

// A demonstration for supervised training: the model learns the response, given the prompt.
struct Demonstration {
  std::string id;
  std::string prompt, response;  // texts as encoded
  std::vector<int32_t> prompt_ids;
  std::vector<int32_t> response_ids;  // ends with a stop token
};

// All answers to one problem.
struct Group {
  int64_t id = 0;
  Problem problem;
  std::vector<Sample> samples;
};

// Exact, also after a trip through text: what a checkpoint keeps of a pending group. Texts must be UTF-8.
base::Json to_json(const Group& group);
// Error{corruption} names where and the member.
Group group_from_json(const base::Json& json, const std::string& where);

}  // namespace data
