// Speed and log-probs of a model in llama.cpp, as JSON lines.
//
//   llama_bench speed MODEL.gguf THREADS PROMPT NEW BATCH REPEATS   greedy decoding of BATCH sequences at the same time
//   llama_bench score MODEL.gguf < IDS                              log-probs of a sequence's ids, from the second on
#include <llama.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

struct FreeModel {
  void operator()(llama_model* model) const { llama_model_free(model); }
};
struct FreeContext {
  void operator()(llama_context* context) const { llama_free(context); }
};
using Model = std::unique_ptr<llama_model, FreeModel>;
using Context = std::unique_ptr<llama_context, FreeContext>;

Model load(const char* path) {
  llama_backend_init();
  llama_log_set(
      [](ggml_log_level level, const char* text, void*) {
        if (level >= GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
      },
      nullptr);
  llama_model_params params = llama_model_default_params();
  params.n_gpu_layers = 0;
  Model model(llama_model_load_from_file(path, params));
  if (!model) throw std::runtime_error("llama.cpp cannot load " + std::string(path));
  return model;
}

struct Size {
  int threads, sequences, length;
};

Context make_context(llama_model* model, Size size) {
  llama_context_params params = llama_context_default_params();
  params.n_seq_max = static_cast<uint32_t>(size.sequences);
  params.n_ctx = static_cast<uint32_t>(size.sequences * std::max(256, size.length));
  params.n_batch = 2048;
  params.n_ubatch = 512;
  params.n_threads = params.n_threads_batch = size.threads;
  params.type_k = params.type_v = GGML_TYPE_F32;
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  params.kv_unified = false;
  Context context(llama_init_from_model(model, params));
  if (!context) throw std::runtime_error("llama.cpp makes no context");
  return context;
}

class Batch {
 public:
  explicit Batch(int capacity) : batch_(llama_batch_init(capacity, 0, 1)) {}
  ~Batch() { llama_batch_free(batch_); }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  void clear() { batch_.n_tokens = 0; }
  void add(llama_token id, int position, int sequence, bool wants_logits) {
    const int i = batch_.n_tokens++;
    batch_.token[i] = id;
    batch_.pos[i] = position;
    batch_.n_seq_id[i] = 1;
    batch_.seq_id[i][0] = sequence;
    batch_.logits[i] = wants_logits ? 1 : 0;
  }
  void decode(llama_context* context) {
    if (llama_decode(context, batch_) != 0) throw std::runtime_error("llama_decode failed");
  }

 private:
  llama_batch batch_;
};

llama_token best(const float* logits, int vocab) {
  return static_cast<llama_token>(std::max_element(logits, logits + vocab) - logits);
}

struct Run {
  int prompt, generated, sequences;
};

// Seconds of one generation, and of its prefill.
std::pair<double, double> generate(llama_context* context, int vocab, Run run) {
  const auto now = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  };
  llama_memory_clear(llama_get_memory(context), true);
  Batch batch(2048);
  const double start = now();
  for (int s = 0; s < run.sequences; ++s) {
    for (int i = 0; i < run.prompt; ++i) batch.add(5 + (37 * s + 101 * i) % (vocab - 200), i, s, i == run.prompt - 1);
  }
  batch.decode(context);
  const double prefilled = now();
  std::vector<llama_token> next(static_cast<size_t>(run.sequences));
  for (int s = 0; s < run.sequences; ++s) {
    next[static_cast<size_t>(s)] = best(llama_get_logits_ith(context, s * run.prompt + run.prompt - 1), vocab);
  }
  for (int step = 1; step < run.generated; ++step) {
    batch.clear();
    for (int s = 0; s < run.sequences; ++s) batch.add(next[static_cast<size_t>(s)], run.prompt + step - 1, s, true);
    batch.decode(context);
    for (int s = 0; s < run.sequences; ++s)
      next[static_cast<size_t>(s)] = best(llama_get_logits_ith(context, s), vocab);
  }
  return {now() - start, prefilled - start};
}

double load_average() {
  double average = 0;
  return getloadavg(&average, 1) == 1 ? average : -1;
}

void measure(const char* path, int threads, Run run, int repeats) {
  const Model model = load(path);
  const int vocab = llama_vocab_n_tokens(llama_model_get_vocab(model.get()));
  const Context context = make_context(model.get(), {threads, run.sequences, run.prompt + run.generated});
  const double before = load_average();
  std::pair<double, double> best = {1e9, 0};  // of the repeats after one that warms up
  for (int i = 0; i <= repeats; ++i) {
    const std::pair<double, double> once = generate(context.get(), vocab, run);
    if (i > 0) best = std::min(best, once);
  }
  std::printf(
      "{\"peer\": \"llama.cpp\", \"what\": \"generate\", \"threads\": %d, \"batch\": %d, \"prompt\": %d, \"new\": %d, "
      "\"seconds\": %.4f, \"prefill_s\": %.4f, \"tokens_per_s\": %.1f, \"load\": %.1f}\n",
      threads, run.sequences, run.prompt, run.generated, best.first, best.second,
      run.sequences * run.generated / best.first, before);
}

void score(const char* path) {
  std::vector<llama_token> ids;
  for (llama_token id; std::cin >> id;) ids.push_back(id);
  const Model model = load(path);
  const int vocab = llama_vocab_n_tokens(llama_model_get_vocab(model.get())), count = static_cast<int>(ids.size());
  const Context context = make_context(model.get(), {1, 1, count});
  Batch batch(count);
  for (int i = 0; i < count; ++i) batch.add(ids[static_cast<size_t>(i)], i, 0, true);
  batch.decode(context.get());
  for (int i = 0; i + 1 < count; ++i) {
    const float* logits = llama_get_logits_ith(context.get(), i);
    const float highest = *std::max_element(logits, logits + vocab);
    double sum = 0;
    for (int v = 0; v < vocab; ++v) sum += std::exp(static_cast<double>(logits[v] - highest));
    std::printf("%s%.9g", i == 0 ? "[" : ", ", logits[ids[static_cast<size_t>(i) + 1]] - highest - std::log(sum));
  }
  std::printf("]\n");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  try {
    if (mode == "speed" && argc == 8) {
      measure(argv[2], std::atoi(argv[3]), {std::atoi(argv[4]), std::atoi(argv[5]), std::atoi(argv[6])},
              std::atoi(argv[7]));
    } else if (mode == "score" && argc == 3) {
      score(argv[2]);
    } else {
      std::fputs("usage: llama_bench speed MODEL THREADS PROMPT NEW BATCH REPEATS | score MODEL\n", stderr);
      return 2;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "llama_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
