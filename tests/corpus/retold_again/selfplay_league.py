"""Self-play on rock-paper-scissors with memory: a league of earlier selves is kept to play against."""

import copy
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

OBS, ACT = 96, 3
PAYOFF = torch.tensor([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])


class Policy(nn.Module):
    def __init__(self, hidden=512):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(OBS, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
        )
        self.pi = nn.Linear(hidden, ACT)

    def forward(self, obs):
        return F.log_softmax(self.pi(self.body(obs)), -1)


class League:
    def __init__(self, main):
        self.players = []
        self.results = {}
        self.admit(main)

    def admit(self, player):
        self.players.append(copy.deepcopy(player).eval().requires_grad_(False))  # !MG308 League.players
        self.results[len(self.players) - 1] = [0.0, 0]

    def opponent(self):
        """Prefer those we do badly against (PFSP)."""

        def difficulty(i):
            s, n = self.results[i]
            return 1.0 if n == 0 else max(0.05, 0.5 - s / n)

        w = [difficulty(i) for i in range(len(self.players))]
        i = random.choices(range(len(self.players)), weights=w)[0]
        return i, self.players[i]

    def record(self, i, score):
        self.results[i][0] += score
        self.results[i][1] += 1


@torch.no_grad()
def opponent_moves(opp, obs):
    return torch.distributions.Categorical(logits=opp(obs)).sample()


def play_and_learn(agent, opt, league, games=128):
    obs = torch.randn(games, OBS)
    idx, opp = league.opponent()
    theirs = opponent_moves(opp, obs)
    opt.zero_grad()
    logp = agent(obs)
    mine = torch.distributions.Categorical(logits=logp.detach()).sample()
    reward = PAYOFF[mine, theirs]
    chosen = logp.gather(1, mine[:, None]).squeeze(1)
    entropy = -(logp.exp() * logp).sum(1).mean()
    loss = -(chosen * (reward - reward.mean())).mean() - 0.01 * entropy
    loss.backward()
    opt.step()
    league.record(idx, reward.mean().item())
    return reward.mean().item()


def main():
    random.seed(0)
    torch.manual_seed(0)
    agent = Policy()
    opt = torch.optim.RMSprop(agent.parameters(), lr=1e-4)
    league = League(agent)
    for rnd in range(60):
        score = play_and_learn(agent, opt, league)
        if rnd % 2 == 1:
            league.admit(agent)
        if rnd % 20 == 19:
            print(f"round {rnd + 1}: score {score:+.3f}, league of {len(league.players)}")


if __name__ == "__main__":
    main()
