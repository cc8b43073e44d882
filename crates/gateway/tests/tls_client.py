"""Does the real `openai` client speak to the gateway within TLS, with an API key? Takes the address and the key."""

import os
import ssl
import sys

import openai

url, key = sys.argv[1:]
trust = ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"])


def client(key: str, verify: ssl.SSLContext) -> openai.OpenAI:
    inner = openai.DefaultHttpxClient(verify=verify, trust_env=False)
    return openai.OpenAI(base_url=f"{url}/v1", api_key=key, http_client=inner, max_retries=0)


question = [{"role": "user", "content": "Hello"}]
good = client(key, trust)
answer = good.chat.completions.create(model="tiny", messages=question, max_tokens=3)
assert answer.choices[0].message.content, answer
pieces = list(good.chat.completions.create(model="tiny", messages=question, max_tokens=3, stream=True))
assert len(pieces) >= 3, pieces
assert [model.id for model in good.models.list()] == ["tiny"]

try:
    client("homing-sk-unknown", trust).models.list()
    raise SystemExit("an unknown key is taken")
except openai.AuthenticationError:
    pass

try:
    client(key, ssl.create_default_context(cadata=None, cafile=None, capath="/nowhere")).models.list()
    raise SystemExit("a certificate is believed that nobody vouches for")
except openai.APIConnectionError:
    pass
print("all is well")
