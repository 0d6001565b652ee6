"""Train a small network on random pictures, with its own loop, arguments and prints, like any other program."""

import argparse

import numpy as np


class Network:
    """One hidden layer, trained by gradient descent."""

    def __init__(self, inputs, hidden, outputs, random):
        self.first = random.normal(0, 0.1, (inputs, hidden))
        self.second = random.normal(0, 0.1, (hidden, outputs))

    def train_one(self, pictures, wanted, rate):
        hidden = np.tanh(pictures @ self.first)
        wrong = hidden @ self.second - wanted
        back = (wrong @ self.second.T) * (1 - hidden**2)
        self.second -= rate * hidden.T @ wrong / len(pictures)
        self.first -= rate * pictures.T @ back / len(pictures)
        return float((wrong**2).mean())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=32)
    asked = parser.parse_args()
    random = np.random.RandomState(0)
    pictures, labels = random.normal(size=(3200, 64)), random.randint(0, 10, 3200)
    wanted = np.eye(10)[labels]
    network = Network(64, 128, 10, random)
    for epoch in range(asked.epochs):
        for start in range(0, len(pictures), asked.batch):
            batch = slice(start, start + asked.batch)
            loss = network.train_one(pictures[batch], wanted[batch], rate=0.1)
        print("epoch %d: loss %.4f" % (epoch, loss))


if __name__ == "__main__":
    main()
