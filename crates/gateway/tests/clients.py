"""Asks a gateway, whose address is the argument, with the real clients of OpenAI and Anthropic."""

import sys

import anthropic
import openai

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def ask_openai(url):
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").id == "tiny"

    ask = {"model": "tiny", "messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 9, "temperature": 0}
    raw = client.chat.completions.with_raw_response.create(**ask)
    chat = raw.parse()
    assert raw.headers["x-homing-served-by"].startswith("http://"), raw.headers
    text = chat.choices[0].message.content
    assert len(text) == 9, chat
    pieces = list(client.chat.completions.create(**ask, stream=True))
    assert "".join(piece.choices[0].delta.content or "" for piece in pieces) == text, pieces
    assert all(piece.usage is None for piece in pieces), "usage was not asked for"
    pieces = list(client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
    assert pieces[-1].usage.completion_tokens == 9, pieces[-1]

    several = client.chat.completions.create(**ask, n=3)
    assert len(several.choices) == 3, several
    pieces = list(client.chat.completions.create(**ask, n=2, stream=True))
    assert {piece.choices[0].index for piece in pieces} == {0, 1}, pieces

    forced = {"type": "function", "function": {"name": "weather"}}
    called = client.chat.completions.create(**ask, tools=[WEATHER], tool_choice=forced)
    assert called.choices[0].message.tool_calls[0].function.name == "weather", called

    image = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": PIXEL}}]
    seen = client.chat.completions.create(**{**ask, "messages": [{"role": "user", "content": image}]})
    assert len(seen.choices[0].message.content) == 9, seen

    completion = client.completions.create(model="tiny", prompt="Once", max_tokens=4)
    assert completion.usage.completion_tokens == 4, completion
    assert len(client.embeddings.create(model="tiny", input=["a", "b"]).data) == 2
    assert len(client.responses.create(model="tiny", input="hello", max_output_tokens=9).output_text) == 9
    with client.responses.stream(model="tiny", input="hello", max_output_tokens=9) as stream:
        assert stream.get_final_response().status in ("completed", "incomplete")

    for wrong, error in [({"model": "other"}, openai.NotFoundError), ({"max_tokens": 0}, openai.BadRequestError)]:
        try:
            client.chat.completions.create(**{**ask, **wrong})
        except error as refused:
            assert refused.body["message"], refused.body
            continue
        raise AssertionError(f"{wrong} was taken")


def ask_anthropic(url):
    client = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
    ask = {"model": "tiny", "max_tokens": 9, "messages": [{"role": "user", "content": "Hello!"}]}
    message = client.messages.create(**ask)
    assert message.usage.output_tokens == 9 and message.content[0].type == "text", message
    with client.messages.stream(**ask) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == final.content[0].text and final.usage.output_tokens == 9, final
    try:
        client.messages.create(**{**ask, "model": "other"})
    except anthropic.NotFoundError as refused:
        assert refused.body["type"] == "error", refused.body
    else:
        raise AssertionError("a model that does not exist was served")


ask_openai(sys.argv[1])
ask_anthropic(sys.argv[1])
print("all is well")
