"""Temporal graph network with node memory, link prediction on a stream of interactions."""

import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class TimeEncode(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.w = nn.Linear(1, dim)
        with torch.no_grad():
            self.w.weight.copy_((1 / 10 ** torch.linspace(0, 6, dim)).reshape(dim, 1))
            self.w.bias.zero_()

    def forward(self, t):
        return torch.cos(self.w(t.reshape(-1, 1)))


class MailBox:
    """Node memory and the time of the last update."""

    def __init__(self, num_nodes, dim):
        self.num_nodes, self.dim = num_nodes, dim
        self.reset()

    def reset(self):
        self.node_memory = torch.zeros(self.num_nodes, self.dim)
        self.node_memory_ts = torch.zeros(self.num_nodes)

    def prep_input(self, nodes):
        # the memory as of before this batch; gradients stop here
        return self.node_memory[nodes].detach(), self.node_memory_ts[nodes]

    def update_memory(self, updater, src, dst, ts, edge_feats, time_enc):
        nodes = torch.cat([src, dst])
        other = torch.cat([dst, src])
        uniq, inv = torch.unique(nodes, return_inverse=True)
        last = torch.zeros(len(uniq), dtype=torch.long).scatter_(0, inv, torch.arange(len(nodes)))
        delta = ts.repeat(2) - self.node_memory_ts[nodes]
        mail = torch.cat(
            [self.node_memory[nodes], self.node_memory[other], edge_feats.repeat(2, 1), time_enc(delta)], 1
        )
        new = updater(mail[last], self.node_memory[uniq])
        self.node_memory = self.node_memory.index_copy(0, uniq, new)  # !MG102 MailBox.node_memory
        self.node_memory_ts[uniq] = ts.repeat(2)[last]


class TGN(nn.Module):
    def __init__(self, args):
        super().__init__()
        d = args.dim
        self.time_enc = TimeEncode(args.dim_time)
        self.updater = nn.GRUCell(2 * d + args.dim_edge + args.dim_time, d)
        self.att = nn.MultiheadAttention(d, 2, batch_first=True)
        self.node_emb = nn.Embedding(args.num_nodes, d)
        self.src_fc, self.dst_fc, self.out_fc = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, 1)

    def embed(self, memory, nodes, neigh_mem):
        q = (memory + self.node_emb(nodes)).unsqueeze(1)
        kv = torch.cat([q, neigh_mem], 1)
        out, _ = self.att(q, kv, kv, need_weights=False)
        return F.relu(out.squeeze(1) + q.squeeze(1))

    def forward(self, h_src, h_dst):
        return self.out_fc(F.relu(self.src_fc(h_src) + self.dst_fc(h_dst))).squeeze(1)


class NeighborSampler:
    def __init__(self, num_nodes, k):
        self.nbr = torch.zeros(num_nodes, k, dtype=torch.long)
        self.ptr, self.k = torch.zeros(num_nodes, dtype=torch.long), k

    def add(self, src, dst):
        for s, d in zip(src.tolist(), dst.tolist()):
            self.nbr[s, self.ptr[s] % self.k] = d
            self.nbr[d, self.ptr[d] % self.k] = s
            self.ptr[s] += 1
            self.ptr[d] += 1


def edge_stream(args):
    g = torch.Generator().manual_seed(args.seed)
    src = torch.randint(0, args.num_nodes // 2, (args.num_edges,), generator=g)
    dst = args.num_nodes // 2 + (src + torch.randint(0, 5, (args.num_edges,), generator=g)) % (args.num_nodes // 2)
    ts = torch.rand(args.num_edges, generator=g).cumsum(0)
    return src, dst, ts, torch.randn(args.num_edges, args.dim_edge, generator=g)


def main(args):
    torch.manual_seed(args.seed)
    src, dst, ts, feats = edge_stream(args)
    mailbox, model = MailBox(args.num_nodes, args.dim), TGN(args)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for e in range(args.epochs):
        mailbox.reset()
        sampler = NeighborSampler(args.num_nodes, 5)
        t0, total = time.time(), 0.0
        for b in range(0, args.num_edges, args.bs):
            s, d, t, f = (v[b : b + args.bs] for v in (src, dst, ts, feats))
            neg = torch.randint(args.num_nodes // 2, args.num_nodes, s.shape)
            h = []
            for nodes in (s, d, neg):
                mem, _ = mailbox.prep_input(nodes)
                nb, _ = mailbox.prep_input(sampler.nbr[nodes].flatten())
                h.append(model.embed(mem, nodes, nb.view(len(nodes), -1, args.dim)))
            pos_out, neg_out = model(h[0], h[1]), model(h[0], h[2])
            loss = F.binary_cross_entropy_with_logits(pos_out, torch.ones_like(pos_out))
            loss = loss + F.binary_cross_entropy_with_logits(neg_out, torch.zeros_like(neg_out))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            total += loss.item()
            mailbox.update_memory(model.updater, s, d, t, f, model.time_enc)
            sampler.add(s, d)
        print(f"Epoch {e}: train loss {total / (args.num_edges / args.bs):.3f} time {time.time() - t0:.1f}s")


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--num_nodes", type=int, default=600)
    p.add_argument("--num_edges", type=int, default=6000)
    p.add_argument("--bs", type=int, default=100)
    p.add_argument("--dim", type=int, default=48)
    p.add_argument("--dim_time", type=int, default=24)
    p.add_argument("--dim_edge", type=int, default=16)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--seed", type=int, default=0)
    main(p.parse_args())
