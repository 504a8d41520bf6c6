// One step: plan, forward pass, draws, and which answers end.
#include <algorithm>

#include "base/parallel.h"
#include "data/utf8.h"
#include "kernels/log_prob.h"
#include "rollout/engine.h"
#include "rollout/expert_record.h"
#include "rollout/memory_plan.h"

namespace rollout {

void Engine::run_pass() {
  const at::NoGradGuard no_grad;
  const tensor::RecycleScope recycle(recycler_);
  const StepPlan& plan = scheduler_.plan();
  for (const Fork& fork : plan.forks) apply(fork);
  make_batch(plan);
  const Tensor streams_TMD = forward();
  if (batch_.record_experts) record_experts();
  read_logits(streams_TMD);
  for (size_t i = 0; i < batch_.uses.size(); ++i) accept(batch_.uses[i], batch_.results[i]);
  recycler_.sweep();
  ++counters_.num_steps;
}

void Engine::apply(const Fork& fork) {
  cache_.fork(fork.from, fork.to);
  const Answer& source = answers_.at(fork.source);
  if (!source.request->record_experts) return;
  for (const int64_t target : fork.targets) {
    share_experts(source.output.experts, fork.num_tokens, experts_per_position(), answers_.at(target).output.experts);
  }
}

int64_t Engine::experts_per_position() const { return config_.num_hidden_layers * config_.num_experts_per_tok; }

void Engine::record_experts() {
  for (size_t s = 0; s < batch_.sequences.size(); ++s) {
    Answer& answer = answers_.at(batch_.sequences[s]);
    if (answer.request->record_experts)
      rollout::record_experts(choices_, batch_.layout.spans[s], answer.output.experts);
  }
  for (const RowUse& use : batch_.uses) {  // a member may end with its first token, before it is forked
    if (use.sequence == use.computed_by || !answers_.at(use.sequence).request->record_experts) continue;
    const Answer& leader = answers_.at(use.computed_by);
    share_experts(leader.output.experts, static_cast<int64_t>(leader.request->prompt_ids.size()),
                  experts_per_position(), answers_.at(use.sequence).output.experts);
  }
}

void Engine::make_batch(const StepPlan& plan) {
  batch_.spans.clear();
  batch_.sequences.clear();
  batch_.record_experts = false;
  batch_.ids.clear();
  batch_.rows.clear();
  batch_.uses.clear();
  for (const Chunk& chunk : plan.chunks) {
    batch_.spans.push_back({chunk.start, chunk.count, chunk.slot});
    batch_.sequences.push_back(chunk.sequence);
    const Answer& answer = answers_.at(chunk.sequence);
    batch_.record_experts = batch_.record_experts || answer.request->record_experts;
    for (int64_t i = 0; i < chunk.count; ++i) batch_.ids.push_back(answer.token(chunk.start + i));
    counters_.num_computed_tokens += chunk.count;
    add_uses(chunk);
  }
  batch_.results.assign(batch_.uses.size(), std::nullopt);
}

// The chunk's tokens are the last of the batch's ids.
void Engine::add_uses(const Chunk& chunk) {
  const auto end = static_cast<int64_t>(batch_.ids.size());
  const std::vector<int64_t>& drawing = scheduler_.computed(chunk);
  Answer& answer = answers_.at(chunk.sequence);
  if (answer.request->score) {
    if (chunk.start == 0) answer.output.prompt_log_probs.clear();
    for (int64_t i = 0; i < chunk.count && chunk.start + i + 1 < answer.length(); ++i) {
      batch_.uses.push_back({static_cast<int64_t>(batch_.rows.size()), chunk.sequence,
                             answer.token(chunk.start + i + 1), chunk.sequence});
      batch_.rows.push_back(end - chunk.count + i);
    }
    if (!drawing.empty() && answer.length() == 1) finish(chunk.sequence, Ended::scored);
    return;
  }
  if (drawing.empty()) return;
  for (const int64_t sequence : drawing) {
    batch_.uses.push_back({static_cast<int64_t>(batch_.rows.size()), sequence, -1, chunk.sequence});
  }
  batch_.rows.push_back(end - 1);
}

Tensor Engine::forward() {
  model::build_layout(config_, batch_.spans, cache_.capacity(), batch_.layout);
  const Tensor ids_T = device_ids(batch_.ids);
  return model::forward_streams({.weights = weights_.serving(),
                                 .profile = weights_.profile(),
                                 .layout = batch_.layout,
                                 .rope = rope_,
                                 .ids_T = ids_T,
                                 .cache = &cache_,
                                 .choices = batch_.record_experts ? &choices_ : nullptr});
}

// A copy in memory that is used again.
Tensor Engine::device_ids(std::span<const int64_t> ids) const {
  Tensor copy = tensor::empty({static_cast<int64_t>(ids.size())}, at::kLong);
  std::copy(ids.begin(), ids.end(), copy.mutable_data_ptr<int64_t>());
  return device_.is_cpu() ? copy : copy.to(device_);
}

void Engine::read_logits(const Tensor& streams_TMD) {
  const auto num_rows = static_cast<int64_t>(batch_.rows.size());
  size_t next = 0;
  for (int64_t row = 0; row < num_rows; row += kLogitRows) {
    const int64_t count = std::min(kLogitRows, num_rows - row);
    const std::span<const int64_t> rows(batch_.rows.data() + row, static_cast<size_t>(count));
    const bool all = count == streams_TMD.size(0);  // rows ascend: then they are all rows in order
    const Tensor streams_RMD = all ? streams_TMD : streams_TMD.index_select(0, device_ids(rows));
    const Tensor hidden_RD = model::final_hidden(weights_.serving(), weights_.profile(), streams_RMD);
    Tensor logits_RV = model::head_logits(weights_.serving(), hidden_RD);
    if (!device_.is_cpu()) logits_RV = logits_RV.to(at::kCPU).contiguous();
    const size_t first = next;
    while (next < batch_.uses.size() && batch_.uses[next].row < row + count) ++next;
    read_rows(logits_RV, row, {first, next});
  }
}

void Engine::read_rows(const Tensor& logits_RV, int64_t first_row, std::pair<size_t, size_t> uses) {
  const auto vocab = static_cast<size_t>(logits_RV.size(1));
  float* logits = logits_RV.mutable_data_ptr<float>();
  kernels::mark_absent(absent_V_, logits, logits_RV.size(0), logits_RV.size(1));
  constexpr int64_t kElementsPerTask = 1 << 15;  // below it a second thread costs more than it saves
  const int64_t grain = std::max<int64_t>(1, kElementsPerTask / logits_RV.size(1));
  base::parallel_for(static_cast<int64_t>(uses.second - uses.first), grain, [&](int64_t from, int64_t to) {
    thread_local RowSampler sampler;  // for its memory
    for (size_t i = uses.first + static_cast<size_t>(from); i < uses.first + static_cast<size_t>(to); ++i) {
      const RowUse& use = batch_.uses[i];
      const Answer& answer = answers_.at(use.sequence);
      const std::span<const float> row(logits + static_cast<size_t>(use.row - first_row) * vocab, vocab);
      if (use.scored < 0) {
        batch_.results[i] = sampler.draw(row, answer.request->sampling, answer.output.seed, answer.length());
      } else if (const auto log_prob = sampler.log_prob(row, answer.request->input_logprob_temperature, use.scored)) {
        batch_.results[i] = Draw{use.scored, *log_prob};
      }
    }
  });
}

void Engine::accept(const RowUse& use, const std::optional<Draw>& result) {
  const auto at = answers_.find(use.sequence);
  if (at == answers_.end()) return;  // a row before this one ended it
  Answer& answer = at->second;
  if (!result) {
    answer.output.error = fmt::format("the logits for position {} are not finite under version {} of the weights",
                                      answer.length(), weights_.version());
    return finish(use.sequence, Ended::not_finite);
  }
  if (use.scored < 0) return accept_token(use.sequence, *result);
  answer.output.prompt_log_probs.push_back(result->log_prob);
  if (answer.output.prompt_log_probs.size() + 1 == answer.request->prompt_ids.size())
    finish(use.sequence, Ended::scored);
}

void Engine::accept_token(int64_t sequence, const Draw& draw) {
  Answer& answer = answers_.at(sequence);
  answer.output.response_ids.push_back(draw.id);
  answer.output.log_probs.push_back(draw.log_prob);
  answer.output.versions.push_back(weights_.version());
  ++counters_.num_new_tokens;
  if (const auto ended = end_of(answer)) return finish(sequence, *ended);
  scheduler_.append(sequence);
}

bool Engine::is_stop_token(const SamplingParams& sampling, int32_t id) const {
  if (!sampling.ignore_eos && id == config_.eos_token_id) return true;
  return std::find(sampling.stop_token_ids.begin(), sampling.stop_token_ids.end(), id) != sampling.stop_token_ids.end();
}

// Adds the newest token to the text and says whether the answer ends with it.
std::optional<Ended> Engine::end_of(Answer& answer) {
  const SamplingParams& sampling = answer.request->sampling;
  Output& output = answer.output;
  const int32_t id = output.response_ids.back();
  const bool stops = is_stop_token(sampling, id);
  std::optional<StopMatch> match;
  if (vocabulary_.bytes_of && (!stops || sampling.no_stop_trim)) match = answer.text.add(vocabulary_.bytes_of(id));
  if (stops) {
    output.matched_token = id;
    return Ended::stop_token;
  }
  if (match) {
    output.matched_text = sampling.stop[match->which];
    if (!sampling.no_stop_trim) {
      output.text = answer.text.text().substr(0, match->at);
      output.text_cut = true;
    }
    return Ended::stop_string;
  }
  if (static_cast<int64_t>(output.response_ids.size()) >= sampling.max_new_tokens) return Ended::max_new_tokens;
  if (answer.length() >= settings_.max_context) return Ended::context;
  return std::nullopt;
}

void Engine::finish(int64_t sequence, Ended ended) {
  const auto at = answers_.find(sequence);
  Output& output = at->second.output;
  output.ended = ended;
  output.version = weights_.version();
  const std::string bytes = output.text_cut ? output.text : at->second.text.text();
  output.text.clear();
  data::append_lossy(bytes, /*at_end=*/true, output.text);
  const int64_t request = output.request;
  finished_.push_back(std::move(output));
  answers_.erase(at);
  scheduler_.finish(sequence);
  std::vector<int64_t>& left = sequences_.at(request);
  left.erase(std::find(left.begin(), left.end(), sequence));
  if (left.empty()) sequences_.erase(request);
}

}  // namespace rollout
