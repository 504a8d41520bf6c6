// Rewards by comparison of text.
#pragma once
#include "rewards/reward.h"

namespace rewards {

// 1 if the response, without white space at both ends, is the label (likewise); else 0.
Score exact(const RewardSettings& settings, const data::Problem& problem, const data::Sample& sample);

// 1 if the text after the last settings.separator is the label (white space at both ends ignored), else 0; with
// settings.require_stop also 0 unless the answer ended with its stop token. A response without the separator has no
// answer.
Score after_last(const RewardSettings& settings, const data::Problem& problem, const data::Sample& sample);

}  // namespace rewards
