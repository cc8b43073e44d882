//! How does one speak to the router as a service? In OpenAPI's words.

use serde_json::{Value, json};

/// The description of all that is answered.
pub(super) fn description() -> Value {
    let told = reference("Told");
    let mut description = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Homing, the router as a service",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "For those who have a proxy of their own: ask where a request should go, send it there, and tell what became of it.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" }
        },
        "paths": {
            "/homing/v1/route": { "post": operation(
                "route",
                "Where should this request go? Waits if the fleet is full, and books the decision unless `book` is false.",
                Some(reference("Prompt")), &reference("Routed"), &[400, 404, 413, 429, 503, 504], None) },
            "/homing/v1/route/{id}/book": { "post": operation(
                "book",
                "Books a decision that was not booked: it was sent to the worker that was told, or to the one that is named.",
                Some(reference("Book")), &reference("Routed"), &[400, 404, 409, 413, 503], Some("id")) },
            "/homing/v1/route/{id}/prefill-done": { "post": operation(
                "prefill-done", "The first token came.", None, &told, &[404, 409], Some("id")) },
            "/homing/v1/route/{id}/output": { "post": operation(
                "output",
                "So many tokens came in all. Whoever streams says so now and then, at least once within the lease.",
                Some(reference("Output")), &told, &[400, 404, 409, 413], Some("id")) },
            "/homing/v1/route/{id}/done": { "post": operation(
                "done", "It ended.", Some(reference("Done")), &told, &[400, 404, 413], Some("id")) },
            "/homing/v1/loads": { "post": operation(
                "loads",
                "What each rank has to do, or would have to do if it took this prompt as well.",
                Some(reference("Question")), &reference("Loads"), &[400, 404, 413, 422, 503], None) },
            "/homing/v1/overlap": { "post": operation(
                "overlap", "How much of this prompt each rank holds.",
                Some(reference("Prompt")), &reference("Overlaps"), &[400, 404, 413, 422, 503], None) },
            "/homing/v1/openapi.json": { "get": {
                "operationId": "openapi",
                "summary": "This description.",
                "responses": { "200": answer("The description.", &json!({ "type": "object" })) }
            } }
        },
        "components": { "schemas": schemas() }
    });
    // What `route` answers is what is spoken of later.
    let links: serde_json::Map<String, Value> = ["book", "prefill-done", "output", "done"]
        .iter()
        .map(|id| {
            (
                (*id).to_owned(),
                json!({ "operationId": id, "parameters": { "id": "$response.body#/id" } }),
            )
        })
        .collect();
    description["paths"]["/homing/v1/route"]["post"]["responses"]["200"]["links"] = Value::Object(links);
    description
}

fn operation(
    id: &str,
    summary: &str,
    body: Option<Value>,
    said: &Value,
    refusals: &[u16],
    named: Option<&str>,
) -> Value {
    let mut responses = serde_json::Map::new();
    responses.insert("200".to_owned(), answer("As asked.", said));
    for status in refusals {
        let why = match status {
            400 => "The question is not understood.",
            404 => "There is no such model, or no such request (any more).",
            409 => "It is booked already, or not at all.",
            413 => "It is too long.",
            422 => "The tokens of this prompt are not known here: send them.",
            429 => "The caller's own limit: try again after a while.",
            504 => "It waited until its deadline.",
            _ => "Nobody can serve it now: try again after a while.",
        };
        responses.insert(status.to_string(), answer(why, &reference("Error")));
    }
    let mut operation = json!({ "operationId": id, "summary": summary, "responses": responses });
    if let Some(body) = body {
        operation["requestBody"] = json!({ "required": true, "content": { "application/json": { "schema": body } } });
    }
    if let Some(name) = named {
        operation["parameters"] = json!([{
            "name": name, "in": "path", "required": true,
            "description": "What `route` answered.",
            "schema": { "type": "string", "minLength": 1, "pattern": "^[0-9a-f]+$" }
        }]);
    }
    operation
}

fn answer(description: &str, schema: &Value) -> Value {
    json!({ "description": description, "content": { "application/json": { "schema": schema } } })
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn number(description: &str) -> Value {
    json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX, "description": description })
}

fn text(description: &str) -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": 256, "description": description })
}

fn closed(required: &[&str], properties: &Value) -> Value {
    json!({ "type": "object", "required": required, "properties": properties, "additionalProperties": false })
}

/// What a prompt may have.
fn prompt() -> Value {
    json!({
        "model": text("The model; not needed if there is only one."),
        "adapter": text("The adapter, by the name that engines serve it under."),
        "tokens": { "type": "array", "minItems": 1, "items": number("A token."), "description": "The prompt as token ids." },
        "prompt": text("The prompt as a text."),
        "messages": { "type": "array", "minItems": 1, "description": "The prompt as a chat; `tools` and what else OpenAI's body has counts as well.",
            "items": { "type": "object", "required": ["role", "content"], "properties": {
                "role": { "type": "string", "enum": ["system", "user", "assistant", "tool"] },
                "content": { "type": "string" } } } },
        "cache_salt": text("What keeps this prompt's cache apart from that of others."),
        "max_tokens": { "type": "integer", "minimum": 1, "maximum": u32::MAX, "description": "The longest answer." },
        "media": { "type": "array", "maxItems": 16, "description": "Images and sounds in `tokens`, with the identifiers that engines report.",
            "items": closed(&["id", "start", "length"], &json!({
                "id": text("The identifier."), "start": number("Its first token."), "length": number("Its tokens.") })) },
        "homing": hints()
    })
}

/// The hints that a proxy is likely to give; the gateway's page on protocols has all of them.
fn hints() -> Value {
    let workers = |description: &str| json!({ "type": "array", "maxItems": 64, "items": text("A worker: its URL or its number."), "description": description });
    json!({ "type": "object", "description": "Hints, as the gateway takes them.", "additionalProperties": false, "properties": {
        "session": text("What ties requests together that should stay together."),
        "tenant": text("Who asks."),
        "priority": { "type": "integer", "minimum": -1000, "maximum": 1000, "description": "Higher goes first." },
        "expected_output": { "type": "integer", "minimum": 1, "maximum": 1_000_000, "description": "Tokens that will be generated." },
        "worker": text("The one worker that must serve it."),
        "workers": workers("Workers among which it may go."),
        "exclude_workers": workers("Workers to which it must not go.")
    } })
}

fn one_prompt(mut properties: Value, more: Value) -> Value {
    if let (Some(properties), Value::Object(more)) = (properties.as_object_mut(), more) {
        properties.extend(more);
    }
    // `media` has its places in `tokens`.
    json!({
        "type": "object",
        "properties": properties,
        "oneOf": [{ "required": ["tokens"] }, { "required": ["prompt"] }, { "required": ["messages"] }],
        "dependentRequired": { "media": ["tokens"] }
    })
}

fn schemas() -> Value {
    let rank = closed(
        &["number", "url", "rank"],
        &json!({
            "number": number("The worker, by its number."),
            "url": { "type": "string", "description": "Where it is." },
            "rank": number("The data-parallel rank: what `X-data-parallel-rank` is to be.")
        }),
    );
    let unsigned = |description: &str| json!({ "type": "integer", "minimum": 0, "description": description });
    let prompt_tokens =
        json!({ "type": ["integer", "null"], "minimum": 0, "description": "Tokens of the prompt, if there is one." });
    json!({
        "Prompt": one_prompt(prompt(), json!({
            "book": { "type": "boolean", "default": true, "description": "Whether it is booked at once." },
            "lease_ms": { "type": "integer", "minimum": 1, "maximum": 3_600_000,
                "description": "For how long a booking stands of which nothing is heard; at most as long as the settings say." }
        })),
        "Question": { "type": "object", "properties": prompt(), "dependentRequired": { "media": ["tokens"] },
            "description": "A prompt, or none: then the ranks of the model, or of all models, are told as they are." },
        "Book": closed(&[], &json!({
            "worker": text("The worker that it was sent to, if it is another one: its URL or its number."),
            "rank": { "type": "integer", "minimum": 0, "maximum": u16::MAX, "description": "Its rank." },
            "cached_tokens": number("Tokens that are in its cache, if that is known better.")
        })),
        "Output": closed(&["tokens"], &json!({ "tokens": number("So many in all.") })),
        "Done": closed(&[], &json!({
            "end": { "type": "string", "enum": ["finished", "cancelled", "failed"], "default": "finished" },
            "output_tokens": number("Tokens of its answer."),
            "prompt_tokens": number("Tokens of its prompt, as the engine counts them."),
            "cached_tokens": number("Tokens of its prompt that came from the cache, as the engine says: predictions are judged by it.")
        })),
        "Worker": rank,
        "Routed": closed(
            &["id", "booked", "lease_ms", "model", "worker", "prompt_tokens", "cached_tokens", "block_size", "tokens_from", "unknown", "body_edits", "decision"],
            &json!({
                "id": { "type": "string", "description": "What the request is called here." },
                "booked": { "type": "boolean" },
                "lease_ms": unsigned("For how long nothing need be said."),
                "model": { "type": "string" },
                "worker": reference("Worker"),
                "prompt_tokens": unsigned("Tokens of the prompt."),
                "cached_tokens": unsigned("Tokens that are expected in the cache."),
                "block_size": unsigned("Tokens of a block."),
                "tokens_from": { "type": "string", "enum": ["request", "tokenizer", "worker", "nobody"] },
                "unknown": { "type": ["string", "null"], "description": "Why less is known of the prompt than could be." },
                "body_edits": closed(&["remove", "cache_salt"], &json!({
                    "remove": { "type": "array", "items": { "type": "string" },
                        "description": "Fields to remove from the body before it is sent, with dots between the names of nested ones." },
                    "cache_salt": { "type": ["string", "null"],
                        "description": "What `cache_salt` of the body must be set to; null: it stays as it is." }
                })),
                "decision": { "type": "object", "description": "The candidates, their costs and the terms of these." }
            })
        ),
        "Told": closed(&["id"], &json!({ "id": { "type": "string" } })),
        "Loads": closed(&["prompt_tokens", "ranks"], &json!({
            "prompt_tokens": prompt_tokens,
            "ranks": { "type": "array", "items": closed(
                &["worker", "prefill_tokens", "decode_blocks", "requests", "backlog_ms"],
                &json!({
                    "worker": reference("Worker"),
                    "prefill_tokens": unsigned("Prompt tokens still to compute."),
                    "decode_blocks": unsigned("Blocks in use."),
                    "requests": unsigned("Requests there."),
                    "backlog_ms": { "type": ["number", "null"], "description": "Until a prompt that comes now would be begun." }
                })) }
        })),
        "Overlaps": closed(&["prompt_tokens", "ranks"], &json!({
            "prompt_tokens": prompt_tokens,
            "ranks": { "type": "array", "items": closed(
                &["worker", "block_size", "prompt_blocks", "cached_tokens", "blocks_up_to_tier", "booked_blocks"],
                &json!({
                    "worker": reference("Worker"),
                    "block_size": unsigned("Tokens of a block."),
                    "prompt_blocks": unsigned("Full blocks of the prompt."),
                    "cached_tokens": unsigned("Leading tokens that it holds on any tier."),
                    "blocks_up_to_tier": { "type": "object", "additionalProperties": { "type": "integer", "minimum": 0 },
                        "description": "Leading blocks on the tiers up to each one." },
                    "booked_blocks": unsigned("Leading blocks that requests on their way there will bring.")
                })) }
        })),
        "Error": { "type": "object", "required": ["error"], "properties": {
            "error": { "type": "object", "required": ["message"], "properties": { "message": { "type": "string" } } } } }
    })
}
