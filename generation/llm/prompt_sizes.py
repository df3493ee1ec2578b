"""Whether a server reads prompts whole: the tokens that it counts, beside the characters that it was sent.

Some servers cut a prompt to their window and answer all the same. Only their count of tokens tells.
"""

from dataclasses import dataclass

from keystone.generation.types import Request, Usage

LEAST_CHARACTERS = 1_000
"""Shorter prompts tell nothing."""
LEAST_TOKENS = 100
"""Fewer tokens than any window has. A server that counts so few does not count the prompt."""
CHARACTERS_PER_TOKEN = 10
"""More characters than a token has on average in any language."""
LEAST_GROWTH = 1.25
"""If a prompt is longer than another by this factor, it has more tokens."""


@dataclass(frozen=True, slots=True)
class CutPrompt:
    """The tokens that a server counted for a prompt of so many characters, which has more tokens."""

    tokens: int
    characters: int


class PromptSizes:
    """The sizes of the prompts that a model has answered."""

    def __init__(self) -> None:
        self._most = CutPrompt(0, 0)
        """The most tokens of a prompt, and the characters of the longest prompt with them."""
        self._shortest = 0
        """The characters of the shortest prompt with as many tokens."""
        self._densest = CutPrompt(1, 0)
        """The prompt with the most characters a token."""

    def note(self, request: Request, usage: Usage) -> None:
        """Note the cost of a request that was answered."""
        found = CutPrompt(usage.prompt_tokens, sum(len(text) for _, text in request.messages))
        if found.tokens < LEAST_TOKENS:
            return
        if found.tokens > self._most.tokens:
            self._most, self._shortest = found, found.characters
        elif found.tokens == self._most.tokens:
            self._shortest = min(self._shortest, found.characters)
            self._most = max(self._most, found, key=lambda one: one.characters)
        if found.characters >= LEAST_CHARACTERS:
            self._densest = max(self._densest, found, key=lambda one: one.characters / one.tokens)

    def find_cut(self) -> CutPrompt | None:
        """Find a prompt that the server has cut, if any.

        Either prompts of different length have the same largest count, or one has far fewer tokens than any text of
        its length.
        """
        longest = self._most.characters
        if longest >= LEAST_CHARACTERS and longest >= LEAST_GROWTH * self._shortest:
            return self._most
        if self._densest.characters > CHARACTERS_PER_TOKEN * self._densest.tokens:
            return self._densest
        return None
