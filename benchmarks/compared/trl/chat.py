"""The same with prompts by the model's chat template."""

from own_problems import accuracy, train, well_formed


def of_texts(reward):
    def graded(completions, **columns):
        return reward([messages[-1]["content"] for messages in completions], **columns)

    graded.__name__ = reward.__name__
    return graded


if __name__ == "__main__":
    train(
        as_prompt=lambda question: [{"role": "user", "content": question}],
        rewards=(of_texts(accuracy), of_texts(well_formed)),
    )
