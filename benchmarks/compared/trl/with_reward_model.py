"""The same with the reward model's reward in the place of the format's."""

from own_problems import accuracy, train

train(rewards=(accuracy, "runs/reward"))
