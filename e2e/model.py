"""Which model do the engines serve? A Qwen3 of two layers whose weights the engines make up, with the real tokenizer.

    python3 model.py DIR TOKENIZER_DIR     writes DIR/base and DIR/adapter

The adapter is a LoRA of rank 8 with zeros: it changes no output, but its blocks are other blocks. Its weights are written
in the safetensors format by hand (a length, a JSON header, the bytes), so that this needs nothing beyond Python.
"""

import json
import os
import shutil
import struct
import sys

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, LAYERS, RANK = 128, 4, 2, 64, 2, 8

CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": 151936,
    "hidden_size": HIDDEN,
    "intermediate_size": 256,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "max_position_embeddings": 8192,
    "rope_theta": 1000000,
    "rms_norm_eps": 1e-06,
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "attention_bias": False,
    "attention_dropout": 0.0,
    "tie_word_embeddings": True,
    "use_cache": True,
    "torch_dtype": "bfloat16",
    "bos_token_id": 151643,
    "eos_token_id": 151645,
}

GENERATION = {"do_sample": False, "bos_token_id": 151643, "eos_token_id": [151645, 151643]}

ADAPTER = {
    "peft_type": "LORA",
    "task_type": "CAUSAL_LM",
    "r": RANK,
    "lora_alpha": RANK,
    "lora_dropout": 0.0,
    "bias": "none",
    "target_modules": ["q_proj"],
    "base_model_name_or_path": "tiny",
}


def write_json(path, value):
    with open(path, "w", encoding="utf-8") as out:
        json.dump(value, out)


def write_zeros(path, shapes):
    """A safetensors file of float32 zeros: u64 LE length of the header, the header, the data."""
    header, end = {}, 0
    for name, (rows, columns) in shapes.items():
        size = rows * columns * 4
        header[name] = {"dtype": "F32", "shape": [rows, columns], "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + bytes(end))


def main(target, tokenizer):
    base, adapter = os.path.join(target, "base"), os.path.join(target, "adapter")
    os.makedirs(base, exist_ok=True)
    os.makedirs(adapter, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(os.path.join(tokenizer, name), base)
    write_json(os.path.join(base, "config.json"), CONFIG)
    write_json(os.path.join(base, "generation_config.json"), GENERATION)
    write_json(os.path.join(adapter, "adapter_config.json"), ADAPTER)
    shapes = {}
    for layer in range(LAYERS):
        prefix = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
        shapes[f"{prefix}.lora_A.weight"] = (RANK, HIDDEN)
        shapes[f"{prefix}.lora_B.weight"] = (HEADS * HEAD_DIM, RANK)
    write_zeros(os.path.join(adapter, "adapter_model.safetensors"), shapes)


if __name__ == "__main__":
    main(*sys.argv[1:])
