// The policy learns: supervised warm-up on demonstrations that are wrong on purpose, then reinforcement learning from
// an e4m3 rollout and a bf16 actor, which puts right what the demonstrations taught wrong. The demo's task, smaller:
// sums of two numbers of two digits in base 5, with a written carry chain; demonstrations forget 70 % of the carries.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "e2e/tiny_run.h"
#include "report/jsonl.h"

namespace e2e {
namespace {

constexpr int kBase = 5;

// "34+21=" -> "4+1+0=10,3+2+1=11", units first, each sum as two digits. A carry is used with probability keep_carry.
std::string chain(int a, int b, double keep_carry, std::mt19937& random) {
  std::uniform_real_distribution<double> uniform(0, 1);
  std::string text;
  int carry = 0;
  for (const auto& [u, v] : {std::pair(a % kBase, b % kBase), std::pair(a / kBase, b / kBase)}) {
    if (carry == 1 && uniform(random) >= keep_carry) carry = 0;
    const int sum = u + v + carry;
    if (!text.empty()) text += ",";
    text += fmt::format("{}+{}+{}={}{}", u, v, carry, sum / kBase, sum % kBase);
    carry = sum / kBase;
  }
  return text;
}

Json problem(int a, int b) {
  std::mt19937 unused;
  return {{"prompt", fmt::format("<bos>{}{}+{}{}=", a / kBase, a % kBase, b / kBase, b % kBase)},
          {"label", chain(a, b, 1, unused)},
          {"metadata", {{"carries", a % kBase + b % kBase >= kBase ? 1 : 0}}}};
}

void write_data(const fs::path& folder) {
  write_tokenizer(folder, {"<pad>", "<bos>", "<eos>"}, "01234+=,");
  std::mt19937 random(3);
  std::vector<Json> demonstrations, train, held_out;
  for (int a = 0; a < kBase * kBase; ++a) {
    for (int b = 0; b < kBase * kBase; ++b) {
      const Json row = problem(a, b);
      if (random() % 8 == 0) {
        held_out.push_back(row);
        continue;
      }
      train.push_back(row);
      for (int i = 0; i < 8; ++i) {
        demonstrations.push_back({{"prompt", row["prompt"]}, {"response", chain(a, b, 0.3, random)}});
      }
    }
  }
  write_rows(folder / "train.jsonl", train);
  write_rows(folder / "held_out.jsonl", held_out);
  write_rows(folder / "demonstrations.jsonl", demonstrations);
}

std::string recipe(const fs::path& folder) {
  const std::string at = folder.string() + "/", raw = "apply_chat_template = false\n";
  return "[run]\ndir = \"" + at +
         "run\"\nsteps = 50\nseed = 1\n"
         "[model]\nconfig = \"" +
         at + "config.json\"\n[tokenizer]\npath = \"" + at +
         "\"\n"
         "[data]\npath = \"" +
         at + "train.jsonl\"\n" + raw + "[warmup]\nsteps = 300\nbatch_size = 32\n[warmup.data]\npath = \"" + at +
         "demonstrations.jsonl\"\n" + raw +
         "[warmup.optimizer]\nbeta2 = 0.95\nweight_decay = 0.0\n"
         "schedule = {style = \"cosine\", lr = 5e-3, min_lr = 2e-4, warmup = 10, decay = 300}\n"
         "[rollout]\nprompts_per_step = 16\nsamples_per_prompt = 8\n[rollout.sampling]\nmax_new_tokens = 24\n"
         "[rollout.engine]\nprofile = \"fp8\"\nnum_slots = 128\nmax_context = 32\nmax_batch_tokens = 512\n"
         "[reward]\nkind = \"exact\"\n"
         "[actor]\nprofile = \"bf16\"\ntokens_per_microbatch = 4096\nrecompute = false\n"
         "[actor.optimizer]\nbeta2 = 0.99\nweight_decay = 0.0\n"
         "schedule = {style = \"linear\", lr = 5e-4, min_lr = 5e-5, warmup = 5, decay = 50}\n"
         "[eval]\nevery = 0\n[[eval.sets]]\nname = \"held_out\"\nnum_samples = 8\nby = [\"carries\"]\n"
         "data.path = \"" +
         at +
         "held_out.jsonl\"\ndata.apply_chat_template = false\nsampling.max_new_tokens = 24\n"
         "[checkpoint]\nevery = 100\n";
}

TEST(TinyModelLearns, HeldOutProblemsAreSolvedMoreOftenAfterReinforcement) {
  const controller::Scratch scratch;
  write_data(scratch.path());
  Json config =
      small_config(16, 48, {"sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"});
  config["moe_intermediate_size"] = 32;
  base::write_file_atomic(scratch.path() / "config.json", config.dump(1));
  base::write_file_atomic(scratch.path() / "recipe.toml", recipe(scratch.path()));
  const Finished run = run_program({"train", (scratch.path() / "recipe.toml").string()}, scratch.path() / "out");
  ASSERT_EQ(run.code, 0) << run.output;

  const std::vector<Json> evaluations = report::read_lines(scratch.path() / "run" / "eval.jsonl");
  ASSERT_EQ(evaluations.size(), 2u);
  const double before = evaluations.front()["pass@1"], after = evaluations.back()["pass@1"];
  std::printf("%s\n", run.output.c_str());
  // About 500 answers each: a standard error of 0.02 for each figure. The demonstrations forget carries in 28 % of the
  // problems (0.4 of the pairs carry, 0.7 of those are forgotten), which is what there is to gain.
  EXPECT_GE(after, before + 0.15);
  EXPECT_GE(after, 0.85);

  double gap = 0, steps = 0;
  for (const Json& line : report::read_lines(scratch.path() / "run" / "metrics.jsonl")) {
    if (!line.contains("gap/mean")) continue;
    gap += line["gap/mean"].get<double>();
    ++steps;
  }
  ASSERT_EQ(steps, 50);
  EXPECT_LE(gap / steps, 0.03) << "e4m3 rollout against bf16 actor";
}

}  // namespace
}  // namespace e2e
