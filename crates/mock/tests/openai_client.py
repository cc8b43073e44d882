"""Asks a mock, whose address is the argument, with the real client of the OpenAI API, and compares the answers."""

import sys

import openai


def main():
    client = openai.OpenAI(base_url=sys.argv[1], api_key="none", max_retries=0)
    assert [model.id for model in client.models.list()] == ["tiny"]

    ask = {"model": "tiny", "prompt": "Once upon a time", "max_tokens": 12}
    whole = client.completions.create(**ask)
    assert whole.usage.completion_tokens == 12 and whole.choices[0].finish_reason == "length", whole
    pieces = list(client.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
    assert "".join(piece.choices[0].text for piece in pieces[:-1]) == whole.choices[0].text, pieces
    assert pieces[-1].usage.total_tokens == whole.usage.total_tokens, pieces[-1]

    text = "The same words, long enough to fill a block or two of the cache."
    ask = {"model": "tiny", "messages": [{"role": "user", "content": text}], "max_tokens": 7}
    chat = client.chat.completions.create(**ask)
    assert chat.choices[0].message.role == "assistant" and len(chat.choices[0].message.content) == 7, chat
    again = client.chat.completions.create(**ask)
    assert again.usage.prompt_tokens_details.cached_tokens >= 64, again.usage
    pieces = list(client.chat.completions.create(**ask, stream=True))
    assert "".join(piece.choices[0].delta.content or "" for piece in pieces) == chat.choices[0].message.content
    assert pieces[-1].choices[0].finish_reason == "length", pieces[-1]

    vectors = client.embeddings.create(model="tiny", input=["one", "two"])
    assert len(vectors.data) == 2 and len(vectors.data[0].embedding) == 64, vectors
    response = client.responses.create(model="tiny", input="hello", max_output_tokens=9)
    assert len(response.output_text) == 9, response

    for wrong, error in [({"model": "other"}, openai.NotFoundError), ({"max_tokens": 0}, openai.BadRequestError)]:
        try:
            client.completions.create(**{"model": "tiny", "prompt": "x", **wrong})
        except error:
            continue
        raise AssertionError(f"{wrong} was taken")
    print("all is well")


main()
