"""Group-relative policy optimization of a tiny policy: where in a step is the memory?

    python examples/grpo_phases.py            # the summary has a row for each phase
    python examples/grpo_phases.py --leak     # the entropies of all micro-batches keep their graphs
    tensorboard --logdir memguard-runs        # the Memory tab: bands and a table of phases

A step generates answers (rollout), rewards and scores them (reference), and updates the policy in four micro-batches.
"""

import argparse

import torch
from torch import Tensor, nn

import memguard

VOCABULARY, WIDTH, PROMPT, NEW, GROUPS, SAMPLES = 512, 96, 4, 12, 8, 8


class Policy(nn.Module):
    """The scores of the next token after each token."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.body = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        scores: Tensor = self.head(self.body(self.embed(tokens))[0])
        return scores


@memguard.phase("rollout")
@torch.no_grad()
def rollout(policy: Policy, prompts: Tensor) -> Tensor:
    """The prompts with sampled answers."""
    policy.eval()
    tokens = prompts
    for _ in range(NEW):
        tokens = torch.cat([tokens, policy(tokens)[:, -1].softmax(-1).multinomial(1)], 1)
    policy.train()
    return tokens


@memguard.phase("rewards")
def advantages_of(tokens: Tensor) -> Tensor:
    """How much better each answer is than those of its group: even tokens are wanted."""
    rewards = (tokens[:, PROMPT:] % 2 == 0).float().mean(1).view(GROUPS, SAMPLES)
    return ((rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)).flatten()


def log_probs_of(model: Policy, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Those of the tokens, and the entropy at each."""
    log_probs = model(tokens[:, :-1]).log_softmax(-1)
    entropy = -(log_probs.exp() * log_probs).sum(-1)
    return log_probs.gather(-1, tokens[:, 1:, None]).squeeze(-1), entropy


@memguard.phase("update")
def update(
    policy: Policy, optimizer: torch.optim.Optimizer, tokens: Tensor, advantages: Tensor, wanted: Tensor, leak: bool
) -> float:
    """One optimizer step over four micro-batches; returns the mean entropy."""
    entropies = []
    for part, gain, reference in zip(tokens.chunk(4), advantages.chunk(4), wanted.chunk(4), strict=True):
        with memguard.phase("log-probs"):
            log_probs, entropy = log_probs_of(policy, part)
        away = reference - log_probs
        loss = (-(log_probs - log_probs.detach()).exp() * gain[:, None] + 0.04 * (away.exp() - away - 1)).mean()
        (loss / 4).backward()
        if leak:
            entropies.append(entropy)
        else:
            entropies.append(entropy.detach().mean())
    optimizer.step()
    optimizer.zero_grad()
    return torch.stack([entropy.mean() for entropy in entropies]).mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--device", default="virtual:512MiB", help="what memguard watches")
    parser.add_argument("--logdir")
    parser.add_argument("--leak", action="store_true", help="keep the graph of each micro-batch until the step")
    options = parser.parse_args()

    torch.manual_seed(0)
    policy, reference = Policy(), Policy().eval().requires_grad_(False)
    reference.load_state_dict(policy.state_dict())
    optimizer = torch.optim.AdamW(policy.parameters(), lr=3e-3)
    with memguard.watch(policy, optimizer, device=options.device, logdir=options.logdir):
        for step in range(options.steps):
            prompts = torch.randint(VOCABULARY, (GROUPS, PROMPT)).repeat_interleave(SAMPLES, 0)
            tokens = rollout(policy, prompts)
            advantages = advantages_of(tokens)
            with memguard.phase("reference"), torch.no_grad():
                wanted, _ = log_probs_of(reference, tokens)
            entropy = update(policy, optimizer, tokens, advantages, wanted, options.leak)
            if step % 5 == 0:
                print(f"step {step}: entropy {entropy:.3f}")
        answers = rollout(policy, torch.randint(VOCABULARY, (64, PROMPT)))[:, PROMPT:]
        print(f"validation: {(answers % 2 == 0).float().mean():.0%} of the tokens are even")


if __name__ == "__main__":
    main()
