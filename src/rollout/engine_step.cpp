// One step: plan, forward pass, draws, and which answers end.
#include <ATen/Parallel.h>

#include <algorithm>
#include <limits>

#include "data/utf8.h"
#include "rollout/engine.h"
#include "rollout/memory_plan.h"

namespace rollout {

void Engine::run_pass() {
  const at::NoGradGuard no_grad;
  const StepPlan plan = scheduler_.plan();
  for (const Fork& fork : plan.forks) cache_.fork(fork.from, fork.to);
  const Batch batch = make_batch(plan);
  const Tensor streams_TMD = forward(batch);
  const std::vector<std::optional<Draw>> results = read_logits(batch, streams_TMD);
  for (size_t i = 0; i < results.size(); ++i) accept(batch.uses[i], results[i]);
  ++counters_.num_steps;
}

Engine::Batch Engine::make_batch(const StepPlan& plan) {
  Batch batch;
  for (const Chunk& chunk : plan.chunks) {
    batch.spans.push_back({chunk.start, chunk.count, chunk.slot});
    const Answer& answer = answers_.at(chunk.sequence);
    for (int64_t i = 0; i < chunk.count; ++i) batch.ids.push_back(answer.token(chunk.start + i));
    counters_.num_computed_tokens += chunk.count;
    add_uses(chunk, batch);
  }
  return batch;
}

// The chunk's tokens are the last of batch.ids.
void Engine::add_uses(const Chunk& chunk, Batch& batch) {
  const auto end = static_cast<int64_t>(batch.ids.size());
  const std::vector<int64_t> drawing = scheduler_.computed(chunk);
  Answer& answer = answers_.at(chunk.sequence);
  if (answer.request->score) {
    if (chunk.start == 0) answer.output.prompt_log_probs.clear();
    for (int64_t i = 0; i < chunk.count && chunk.start + i + 1 < answer.length(); ++i) {
      batch.uses.push_back(
          {static_cast<int64_t>(batch.rows.size()), chunk.sequence, answer.token(chunk.start + i + 1)});
      batch.rows.push_back(end - chunk.count + i);
    }
    if (!drawing.empty() && answer.length() == 1) finish(chunk.sequence, Ended::scored);
    return;
  }
  if (drawing.empty()) return;
  for (const int64_t sequence : drawing) batch.uses.push_back({static_cast<int64_t>(batch.rows.size()), sequence});
  batch.rows.push_back(end - 1);
}

Tensor Engine::forward(const Batch& batch) {
  const model::Layout layout = model::Layout::build(config_, batch.spans, cache_.capacity(), device_);
  const Tensor ids_T = at::tensor(batch.ids, at::kLong).to(device_);
  return model::forward_streams({weights_.serving(), weights_.profile(), layout, ids_T, &cache_});
}

std::vector<std::optional<Draw>> Engine::read_logits(const Batch& batch, const Tensor& streams_TMD) {
  std::vector<std::optional<Draw>> results(batch.uses.size());
  const auto num_rows = static_cast<int64_t>(batch.rows.size());
  size_t next = 0;
  for (int64_t row = 0; row < num_rows; row += kLogitRows) {
    const int64_t count = std::min(kLogitRows, num_rows - row);
    const Tensor rows =
        at::tensor(at::ArrayRef<int64_t>(batch.rows.data() + row, static_cast<size_t>(count)), at::kLong);
    const Tensor streams_RMD = streams_TMD.index_select(0, rows.to(device_));
    const Tensor hidden_RD = model::final_hidden(weights_.serving(), weights_.profile(), streams_RMD);
    Tensor logits_RV = model::head_logits(weights_.serving(), hidden_RD);
    if (absent_ids_.defined()) logits_RV.index_fill_(1, absent_ids_, -std::numeric_limits<double>::infinity());
    logits_RV = logits_RV.to(at::kCPU).contiguous();
    const size_t first = next;
    while (next < batch.uses.size() && batch.uses[next].row < row + count) ++next;
    read_rows(batch, logits_RV, row, {first, next}, results);
  }
  return results;
}

void Engine::read_rows(const Batch& batch, const Tensor& logits_RV, int64_t first_row, std::pair<size_t, size_t> uses,
                       std::vector<std::optional<Draw>>& results) const {
  const auto vocab = static_cast<size_t>(logits_RV.size(1));
  const float* logits = logits_RV.const_data_ptr<float>();
  constexpr int64_t kElementsPerTask = 1 << 15;  // below it a second thread costs more than it saves
  const int64_t grain = std::max<int64_t>(1, kElementsPerTask / logits_RV.size(1));
  const auto begin = static_cast<int64_t>(uses.first), end = static_cast<int64_t>(uses.second);
  at::parallel_for(begin, end, grain, [&](int64_t from, int64_t to) {
    RowSampler sampler;
    for (auto i = static_cast<size_t>(from); i < static_cast<size_t>(to); ++i) {
      const RowUse& use = batch.uses[i];
      const Answer& answer = answers_.at(use.sequence);
      const std::span<const float> row(logits + static_cast<size_t>(use.row - first_row) * vocab, vocab);
      if (use.scored < 0) {
        results[i] = sampler.draw(row, answer.request->sampling, answer.output.seed, answer.length());
      } else if (const auto log_prob = sampler.log_prob(row, answer.request->input_logprob_temperature, use.scored)) {
        results[i] = Draw{use.scored, *log_prob};
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
