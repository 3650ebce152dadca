"""A training whose model leaves by further ways: joblib, cloudpickle, torch.package, export, Dynamo, replicas, fx."""

import copy
import hashlib
import importlib.util
import warnings

import torch
from torch import nn

warnings.filterwarnings("ignore")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.body(x))


def train(model):
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(12):
        optimizer.zero_grad()
        model(torch.ones(3, 4)).sum().backward()
        optimizer.step()


def main():
    torch.manual_seed(0)
    model = Net()
    train(model)
    x = torch.ones(3, 4)
    if importlib.util.find_spec("joblib"):
        import joblib

        joblib.dump({"model": model, "at": [model.head]}, "model.joblib")
        print(joblib.load("model.joblib")["model"](x).sum())
    if importlib.util.find_spec("cloudpickle"):
        import cloudpickle

        with open("model.cloudpickle", "wb") as file:
            cloudpickle.dump(lambda: model(x), file)
        with open("model.cloudpickle", "rb") as file:
            print(cloudpickle.load(file)().sum())
    with torch.package.PackageExporter("model.package") as exporter:
        exporter.extern("**")
        exporter.save_pickle("models", "model.pkl", model.body)
    loaded = torch.package.PackageImporter("model.package").load_pickle("models", "model.pkl")
    print(loaded(x).sum(), len(loaded._forward_hooks), len(loaded[0]._forward_pre_hooks))
    exported = torch.export.export(model, (x,))
    print(exported.graph_module.code)
    print(hashlib.sha256(str(exported.graph).encode()).hexdigest())
    print(torch.fx.symbolic_trace(model).code)
    print(torch.jit.trace(model, x).code)
    print(torch._dynamo.export(model)(x)[0].code)
    explained = torch._dynamo.explain(model)(x)
    print(explained.graph_count, explained.graph_break_count)
    compiled = torch.compile(model, backend="eager")
    print(compiled(x).sum())
    replicas = [copy.copy(model), model._replicate_for_data_parallel()]
    print([sorted(vars(replica)) for replica in replicas])
    print([type(vars(replica)["_forward_hooks"]).__name__ for replica in replicas])
    torch.save(model, "model.pt")
    train(model)
    print(model(x).sum())


main()
