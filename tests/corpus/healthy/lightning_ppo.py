"""Lightning's PPO example: trajectories are played inside the dataset, two optimizers step by hand."""

import lightning as L
import torch
from torch import nn
from torch.distributions import Normal
from torch.utils.data import DataLoader, IterableDataset


class Experience(IterableDataset):
    def __init__(self, generate):
        self.generate = generate

    def __iter__(self):
        return iter(self.generate())


class PPO(L.LightningModule):
    def __init__(self, steps_per_epoch=96, gamma=0.99, lam=0.95, clip=0.2):
        super().__init__()
        self.save_hyperparameters()
        self.automatic_optimization = False
        self.critic = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 1))
        self.actor = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 1))
        self.log_std = nn.Parameter(torch.zeros(1))
        self.state = torch.zeros(3)
        self.batch_states, self.batch_actions, self.batch_logps = [], [], []
        self.rewards, self.values = [], []

    def policy(self, states):
        return Normal(self.actor(states), self.log_std.exp())

    def trajectories(self):
        for step in range(self.hparams.steps_per_epoch):
            with torch.no_grad():
                policy = self.policy(self.state)
                action = policy.sample()
                logp, value = policy.log_prob(action), self.critic(self.state)
            self.batch_states.append(self.state)
            self.batch_actions.append(action)
            self.batch_logps.append(logp)
            self.rewards.append(-float(self.state.square().sum() + 0.1 * action.square()))
            self.values.append(float(value))
            self.state = 0.9 * self.state + 0.1 * action + 0.05 * torch.randn(3)
        advantages, following = [], 0.0
        for reward, value, after in zip(self.rewards[::-1], self.values[::-1], [0.0, *self.values[:0:-1]]):
            following = reward + self.hparams.gamma * after - value + self.hparams.gamma * self.hparams.lam * following
            advantages.append(following)
        adv = torch.tensor(advantages[::-1])
        returns = adv + torch.tensor(self.values)
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        yield from zip(self.batch_states, self.batch_actions, self.batch_logps, returns, adv)
        self.batch_states, self.batch_actions, self.batch_logps = [], [], []
        self.rewards, self.values = [], []

    def training_step(self, batch, batch_idx):
        state, action, old_logp, returns, adv = batch
        for_actor, for_critic = self.optimizers()
        ratio = torch.exp(self.policy(state).log_prob(action) - old_logp).squeeze(-1)
        clipped = torch.clamp(ratio, 1 - self.hparams.clip, 1 + self.hparams.clip) * adv
        loss_actor = -torch.min(ratio * adv, clipped).mean()
        for_actor.zero_grad()
        self.manual_backward(loss_actor)
        for_actor.step()
        loss_critic = (returns - self.critic(state).squeeze(-1)).square().mean()
        for_critic.zero_grad()
        self.manual_backward(loss_critic)
        for_critic.step()
        self.log_dict({"loss_actor": loss_actor, "loss_critic": loss_critic})

    def configure_optimizers(self):
        actor = torch.optim.Adam([*self.actor.parameters(), self.log_std], lr=3e-4)
        return actor, torch.optim.Adam(self.critic.parameters(), lr=1e-3)

    def train_dataloader(self):
        return DataLoader(Experience(self.trajectories), batch_size=16)


if __name__ == "__main__":
    L.seed_everything(0)
    trainer = L.Trainer(
        max_epochs=8,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(PPO())
    print({name: round(float(value), 3) for name, value in trainer.callback_metrics.items()})
