"""Lightning's DQN example: an agent fills a replay buffer in training_step, a dataset streams samples of it."""

from collections import deque, namedtuple

import lightning as L
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.data.dataset import IterableDataset

Experience = namedtuple("Experience", ["state", "action", "reward", "done", "new_state"])


class Pole:
    """A little world with four numbers for a state."""

    def __init__(self):
        self.random = np.random.default_rng(0)

    def reset(self):
        self.state, self.steps = self.random.normal(size=4).astype(np.float32), 0
        return self.state

    def step(self, action):
        self.steps += 1
        self.state = (0.9 * self.state + self.random.normal(size=4) * 0.1 + (action - 0.5) * 0.2).astype(np.float32)
        return self.state, 1.0, self.steps >= 40


class ReplayBuffer:
    def __init__(self, capacity):
        self.buffer = deque(maxlen=capacity)

    def append(self, experience):
        self.buffer.append(experience)

    def sample(self, size):
        picked = np.random.choice(len(self.buffer), size, replace=False)
        states, actions, rewards, dones, news = zip(*(self.buffer[i] for i in picked))
        return np.array(states), np.array(actions), np.array(rewards, np.float32), np.array(dones), np.array(news)


class Stream(IterableDataset):
    def __init__(self, buffer, size=120):
        self.buffer, self.size = buffer, size

    def __iter__(self):
        for sample in zip(*self.buffer.sample(self.size)):
            yield sample


class Agent:
    def __init__(self, env, buffer):
        self.env, self.buffer = env, buffer
        self.state = env.reset()

    def action(self, net, epsilon, device):
        if np.random.random() < epsilon:
            return int(np.random.randint(2))
        return int(torch.max(net(torch.tensor(self.state[None], device=device)), dim=1)[1].item())

    @torch.no_grad()
    def play_step(self, net, epsilon=0.0, device="cpu"):
        action = self.action(net, epsilon, device)
        new, reward, done = self.env.step(action)
        self.buffer.append(Experience(self.state, action, reward, done, new))
        self.state = self.env.reset() if done else new
        return reward, done


class DQN(L.LightningModule):
    def __init__(self, lr=1e-2, gamma=0.99, sync_rate=10, warm_start=200):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 2))
        self.target_net = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 2))
        self.buffer = ReplayBuffer(500)
        self.agent = Agent(Pole(), self.buffer)
        self.total_reward = self.episode_reward = 0.0
        for _ in range(warm_start):
            self.agent.play_step(self.net, epsilon=1.0)

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, number):
        epsilon = max(0.05, 1.0 - self.global_step / 100)
        reward, done = self.agent.play_step(self.net, epsilon, self.device)
        self.episode_reward += reward
        states, actions, rewards, dones, news = batch
        values = self.net(states).gather(1, actions.long().unsqueeze(-1)).squeeze(-1)
        with torch.no_grad():
            best = self.target_net(news).max(1)[0]
            best[dones] = 0.0
        loss = nn.functional.mse_loss(values, best.detach() * self.hparams.gamma + rewards)
        if done:
            self.total_reward, self.episode_reward = self.episode_reward, 0.0
        if self.global_step % self.hparams.sync_rate == 0:
            self.target_net.load_state_dict(self.net.state_dict())
        self.log_dict({"reward": reward, "total_reward": self.total_reward, "train_loss": loss})
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.net.parameters(), lr=self.hparams.lr)

    def train_dataloader(self):
        return DataLoader(Stream(self.buffer), batch_size=16)


if __name__ == "__main__":
    np.random.seed(0)
    trainer = L.Trainer(
        max_epochs=12,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(DQN())
    print(float(trainer.callback_metrics["total_reward"]))
