"""The same with one more reward, by the number of tokens."""

from own_problems import train


def brevity(completion_ids, limit=50, **_):
    return [max(0.0, 1 - len(ids) / limit) for ids in completion_ids]


train(brevity)
