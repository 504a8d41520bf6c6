"""bench_trl.py MODEL TOKENIZER: TRL's GRPOTrainer. Seconds of a step by phase, mean of the steps after the first."""

import argparse
import random
import tempfile

import torch
from datasets import Dataset
from transformers import PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

import model as models
from lines import Stopwatch, load, print_line

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("model", help="folder that make_model.py wrote")
parser.add_argument("tokenizer", help="tokenizer.json with ids below the model's vocab_size")
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--prompts", type=int, default=32)
parser.add_argument("--samples", type=int, default=8)
parser.add_argument("--new", type=int, default=32)
parser.add_argument("--steps", type=int, default=4)
arguments = parser.parse_args()


def sums_of_one_length(tokenizer, count):
    """Prompts of equally many tokens, so that nothing is padded: padding on the left is wrong for this model."""
    numbers, by_length = random.Random(0), {}
    while True:
        prompt = "+".join(str(numbers.randint(10, 99)) for _ in range(3)) + "="
        length = len(tokenizer(prompt)["input_ids"])
        by_length.setdefault(length, []).append({"prompt": prompt})
        if len(by_length[length]) == count:
            return Dataset.from_list(by_length[length]), length


coin = random.Random(1)


def reward(completions, **_):
    return [float(coin.randint(0, 1)) for _ in completions]


class TimedTrainer(GRPOTrainer):
    """Notes how long each phase of a step took. training_step holds the other two."""

    def __init__(self, **options):
        super().__init__(**options)
        self.phases = []

    def _timed(self, phase, call, *values, **options):
        with Stopwatch() as watch:
            result = call(*values, **options)
        self.phases.append((phase, watch.seconds))
        return result

    def _generate(self, *values, **options):
        return self._timed("generate", super()._generate, *values, **options)

    def _generate_and_score_completions(self, *values, **options):
        return self._timed("rollout", super()._generate_and_score_completions, *values, **options)

    def training_step(self, *values, **options):
        return self._timed("step", super().training_step, *values, **options)


def make_trainer(folder):
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=arguments.tokenizer,
        bos_token="<\uff5cbegin\u2581of\u2581sentence\uff5c>",
        eos_token="<\uff5cend\u2581of\u2581sentence\uff5c>",
        pad_token="<\uff5c\u2581pad\u2581\uff5c>",
        padding_side="left",
    )
    problems, prompt = sums_of_one_length(tokenizer, 512)
    model = models.load_model(arguments.model)
    model.config.num_experts = model.config.n_routed_experts  # TRL reads this name
    model.config.router_aux_loss_coef = model.router_aux_loss_coef = 0.0
    config = GRPOConfig(
        output_dir=folder,
        per_device_train_batch_size=arguments.prompts * arguments.samples,
        num_generations=arguments.samples,
        max_completion_length=arguments.new,
        generation_kwargs={"min_new_tokens": arguments.new},
        max_steps=arguments.steps + 1,
        learning_rate=1e-4,
        beta=0.0,
        temperature=1.0,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        dataloader_pin_memory=False,
        remove_unused_columns=False,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
        seed=0,
    )
    trainer = TimedTrainer(
        model=model, reward_funcs=reward, args=config, train_dataset=problems, processing_class=tokenizer
    )
    return trainer, prompt


torch.set_num_threads(arguments.threads)
before = load()
with tempfile.TemporaryDirectory() as output:
    trainer, prompt_length = make_trainer(output)
    trainer.train()
steps = [{}]
for phase, seconds in trainer.phases:
    steps[-1][phase] = steps[-1].get(phase, 0.0) + seconds
    if phase == "step":
        steps.append({})
measured = steps[1:-1]  # the first warms up


def mean(phase):
    return sum(step[phase] for step in measured) / len(measured)


samples = arguments.prompts * arguments.samples
print_line(
    peer="trl",
    what="rl_step",
    threads=arguments.threads,
    samples=samples,
    prompt=prompt_length,
    new=arguments.new,
    steps=len(measured),
    step_s=mean("step"),
    generate_s=mean("generate"),
    score_s=mean("rollout") - mean("generate"),
    train_s=mean("step") - mean("rollout"),
    completion_tokens_per_s=samples * arguments.new / mean("step"),
    load=before,
)
