//! Which texts become prompts? Bodies of requests, and the text that an engine would see, by example.
//!
//! The tokenizer knows bytes and two special tokens, so that tokens can be read as text again.

use crate::examples::support::{Folder, byte_level};
use homing_tokenize::{
    Clock, ContentFormat, Cut, Dialect, IdleTools, Marks, Media, PromptError, PromptOptions, Prompter,
    RequestTemplates, TemplateSource,
};
use serde_json::{Value, json};

/// Prints all that a template can see of a message.
const TEMPLATE: &str = "\
{%- for m in messages -%}
<|im_start|>{{ m.role }}
{%- if m.name %}({{ m.name }}){% endif %}:{{ m.content }}
{%- if m.reasoning_content is defined %}[thinks {{ m.reasoning_content }}]{% endif %}
{%- for t in m.tool_calls or [] %}[calls {{ t.function.name }} {{ t.function.arguments | tojson }} {{ t | tojson }}]{% endfor %}
{%- if m.tool_call_id %}[for {{ m.tool_call_id }}]{% endif %}<|im_end|>
{%- endfor -%}
{%- if tools %}[tools {{ tools | tojson }}]{% endif -%}
{%- if documents %}[documents {{ documents | length }}]{% endif -%}
{%- if enable_thinking is defined %}[thinking {{ enable_thinking }}]{% endif -%}
{%- if reasoning_effort is defined %}[effort {{ reasoning_effort }}]{% endif -%}
{%- if add_generation_prompt %}<|im_start|>assistant:{% endif -%}";
/// Wants parts, and knows images.
const PARTS: &str = "\
{%- for m in messages -%}{{ m.role }}:
{%- if m.content is string %}{{ m.content }}{% else -%}
{%- for c in m.content -%}
{%- if c.type == 'image' %}<|im_start|>{% elif c.type == 'text' %}{{ c.text }}{{ c.cache_control.type if c.cache_control }}{% else %}{{ raise_exception('no ' ~ c.type) }}{% endif -%}
{%- endfor -%}{%- endif -%}
<|im_end|>{%- endfor -%}";

fn options(template: &str) -> PromptOptions {
    PromptOptions {
        template: TemplateSource::Given(template.to_owned()),
        ..PromptOptions::new(Dialect::Vllm, Clock::fixed(0))
    }
}

fn prompter(name: &str, options: PromptOptions) -> Prompter {
    let folder = Folder::with(name, "tokenizer.json", &byte_level());
    folder.write("tokenizer_config.json", r#"{"eos_token": "<|im_end|>"}"#);
    Prompter::load(&folder.0, options).expect("it is right")
}

fn text(prompter: &Prompter, body: &Value) -> String {
    let prompt = prompter.chat(body).unwrap_or_else(|error| panic!("{error}: {body}"));
    assert_eq!(prompt.cut, None);
    prompter.tokenizer().decode(&prompt.tokens)
}

fn refused(prompter: &Prompter, body: &Value) -> String {
    prompter.chat(body).expect_err("it is refused").to_string()
}

fn user(content: impl Into<Value>) -> Value {
    json!({"role": "user", "content": content.into()})
}

#[test]
fn messages_are_seen_as_engines_show_them() {
    let prompter = prompter("messages", options(TEMPLATE));
    for (messages, expected) in [
        (json!([user("hi")]), "<|im_start|>user:hi<|im_end|>"),
        (
            json!([{"role": "user", "content": "hi", "name": "bob", "other": 1}]),
            "<|im_start|>user(bob):hi<|im_end|>",
        ),
        (
            json!([user(
                json!(["a", {"type": "text", "text": "b"}, {"type": "text", "text": ""}, {"type": "text", "text": null}, {"type": "refusal", "refusal": "c"}])
            )]),
            "<|im_start|>user:a\nb\nc<|im_end|>",
        ),
        (
            json!([{"role": "assistant", "content": null, "reasoning": "r"}]),
            "<|im_start|>assistant:[thinks r]<|im_end|>",
        ),
        (
            json!([{"role": "assistant", "content": "x", "reasoning_content": "r", "tool_calls": []}]),
            "<|im_start|>assistant:x[thinks r]<|im_end|>",
        ),
        (json!([{"role": "user"}]), "<|im_start|>user:<|im_end|>"),
        (
            json!([{"role": "tool", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "tool_call_id": "7"}]),
            "<|im_start|>tool:a\nb[for 7]<|im_end|>",
        ),
        (
            json!([{"role": "system", "content": "x-anthropic-billing-header: 1\nbe kind"}]),
            "<|im_start|>system:be kind<|im_end|>",
        ),
        (
            json!([{"role": "system", "content": "a"}, user("b"), {"role": "developer", "content": "c"}]),
            "<|im_start|>system:a\n\nc<|im_end|><|im_start|>user:b<|im_end|>",
        ),
        (
            json!([{"role": "assistant", "tool_calls": [{"type": "function", "index": 0, "id": "1", "function": {"name": "f", "arguments": "{\"b\": 1, \"a\": []}"}}]}]),
            "<|im_start|>assistant:[calls f {\"b\": 1, \"a\": []} {\"id\": \"1\", \"function\": {\"arguments\": {\"b\": 1, \"a\": []}, \"name\": \"f\"}, \"type\": \"function\", \"index\": 0}]<|im_end|>",
        ),
        (
            json!([{"role": "assistant", "tool_calls": [{"type": "function", "id": "1", "function": {"name": "f", "arguments": "[1]"}}]}]),
            "<|im_start|>assistant:[calls f {} {\"id\": \"1\", \"function\": {\"arguments\": {}, \"name\": \"f\"}, \"type\": \"function\"}]<|im_end|>",
        ),
    ] {
        let body = json!({"messages": messages, "add_generation_prompt": false});
        assert_eq!(text(&prompter, &body), expected, "{body}");
    }
}

#[test]
fn arguments_of_templates_come_from_bodies_and_defaults() {
    let defaults = json!({"enable_thinking": true, "reasoning_effort": "low"});
    let with_defaults = PromptOptions {
        template_defaults: defaults.as_object().expect("an object").clone(),
        ..options(TEMPLATE)
    };
    let (plain, with_defaults) = (
        prompter("plain", options(TEMPLATE)),
        prompter("defaults", with_defaults),
    );
    for (prompter, more, expected) in [
        (&plain, json!({}), "<|im_start|>assistant:"),
        (
            &plain,
            json!({"reasoning_effort": "none"}),
            "[thinking False][effort none]<|im_start|>assistant:",
        ),
        (
            &plain,
            json!({"reasoning_effort": "high", "chat_template_kwargs": {"enable_thinking": false}}),
            "[thinking False][effort high]<|im_start|>assistant:",
        ),
        (
            &plain,
            json!({"documents": [{"title": "t"}], "chat_template_kwargs": {"add_generation_prompt": false}}),
            "[documents 1]<|im_start|>assistant:",
        ),
        (
            &with_defaults,
            json!({}),
            "[thinking True][effort low]<|im_start|>assistant:",
        ),
        (
            &with_defaults,
            json!({"chat_template_kwargs": {"enable_thinking": "auto", "reasoning_effort": null}}),
            "[thinking True][effort low]<|im_start|>assistant:",
        ),
        (
            &with_defaults,
            json!({"chat_template_kwargs": {"enable_thinking": false}}),
            "[thinking False][effort low]<|im_start|>assistant:",
        ),
    ] {
        let mut body = json!({"messages": [user("x")]});
        body.as_object_mut()
            .expect("an object")
            .extend(more.as_object().expect("an object").clone());
        assert_eq!(
            text(prompter, &body),
            format!("<|im_start|>user:x<|im_end|>{expected}"),
            "{body}"
        );
    }
}

#[test]
fn tools_have_the_engines_fields() {
    let hidden = PromptOptions {
        idle_tools: IdleTools::Hidden,
        ..options(TEMPLATE)
    };
    let (shown, hidden) = (prompter("tools", options(TEMPLATE)), prompter("no-tools", hidden));
    let tool =
        json!({"function": {"parameters": {"z": 1, "a": 2}, "name": "f", "other": 1}, "type": "function", "more": 1});
    let seen = "[tools [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"description\": null, \"parameters\": {\"z\": 1, \"a\": 2}}}]]";
    let body = |choice: Value| json!({"messages": [user("x")], "tools": [tool], "tool_choice": choice});
    for choice in [
        json!("auto"),
        json!("none"),
        json!("required"),
        json!({"type": "function", "function": {"name": "f"}}),
    ] {
        assert!(text(&shown, &body(choice.clone())).contains(seen), "{choice}");
        assert_eq!(
            text(&hidden, &body(choice.clone())).contains(seen),
            choice != "none",
            "{choice}"
        );
    }
    assert!(refused(&shown, &json!({"messages": [user("x")], "tools": []})).contains("`tools` is empty"));
}

#[test]
fn the_last_message_can_go_on() {
    let continued =
        |messages: Value| json!({"messages": messages, "add_generation_prompt": false, "continue_final_message": true});
    let answer = |content: &str| json!({"role": "assistant", "content": content});
    let plain = prompter("continued", options(TEMPLATE));
    assert_eq!(
        text(&plain, &continued(json!([user("x"), answer("so ")]))),
        "<|im_start|>user:x<|im_end|><|im_start|>assistant:so "
    );
    // A template that trims contents trims what is continued, too.
    let trimming = prompter(
        "trimmed",
        options("{% for m in messages %}{{ m.content | trim }};{% endfor %}"),
    );
    assert_eq!(text(&trimming, &continued(json!([user("x"), answer("so ")]))), "x;so");
    let parts = prompter("parts", options(PARTS));
    assert_eq!(
        text(&parts, &continued(json!([user("x"), answer("so ")]))),
        "user:x<|im_end|>assistant:so "
    );
    let silent = prompter("silent", options("{{ messages[0].content }}"));
    assert!(refused(&silent, &continued(json!([user("x"), answer("y")]))).contains("not in the text"));
    assert!(
        refused(
            &plain,
            &json!({"messages": [user("x")], "continue_final_message": true})
        )
        .contains("add_generation_prompt")
    );
}

#[test]
fn what_engines_refuse_is_refused_here() {
    let prompter = prompter("refused", options(TEMPLATE));
    for (body, why) in [
        (json!([]), "`the body` is no object"),
        (json!({}), "`messages` is empty or missing"),
        (json!({"messages": "x"}), "`messages` is no list"),
        (json!({"messages": [{"content": "x"}]}), "`role` is missing"),
        (json!({"messages": [user(5)]}), "`content` is neither a text nor a list"),
        (
            json!({"messages": [user(Value::Null)]}),
            "`content` is neither a text nor a list",
        ),
        (
            json!({"messages": [user(json!([{"text": "x"}]))]}),
            "has a part without a type",
        ),
        (
            json!({"messages": [user(json!([{"type": "odd"}]))]}),
            "has a part of an unknown type",
        ),
        (
            json!({"messages": [{"role": "assistant", "tool_calls": [{"id": "1", "function": {}}]}]}),
            "not of type `function`",
        ),
        (
            json!({"messages": [user("x")], "chat_template": "{{ 1 }}"}),
            "`chat_template` is refused by the engine",
        ),
        (
            json!({"messages": [user("x")], "chat_template_kwargs": {"chat_template": "x"}}),
            "which the engine refuses",
        ),
        (
            json!({"messages": [user("x")], "add_generation_prompt": "yes"}),
            "is neither true nor false",
        ),
        (
            json!({"messages": [user("x")], "truncate_prompt_tokens": -2}),
            "is no number of tokens",
        ),
        (
            json!({"messages": [user("x")], "chat_template_kwargs": {"tokenize": false}}),
            "is not followed here",
        ),
    ] {
        let said = refused(&prompter, &body);
        assert!(said.contains(why), "{said}: {body}");
    }
    let raising = self::prompter("raising", options("{{ raise_exception('only users, please') }}"));
    let error = raising.chat(&json!({"messages": [user("x")]})).unwrap_err();
    assert_eq!(
        (error.reason(), error.to_string().contains("only users, please")),
        ("template", true)
    );
}

#[test]
fn a_folder_has_templates_for_several_purposes() {
    let folder = Folder::with("templates", "tokenizer.json", &byte_level());
    let ask = |options: &PromptOptions, body: &Value| {
        Prompter::load(&folder.0, options.clone())
            .expect("it is right")
            .chat(body)
    };
    let options = PromptOptions {
        request_templates: RequestTemplates::Trusted,
        ..PromptOptions::new(Dialect::Vllm, Clock::fixed(0))
    };
    let plain = json!({"messages": [user("x")]});
    let tools = json!({"messages": [user("x")], "tools": [{"type": "function", "function": {"name": "f"}}]});
    let named = json!({"messages": [user("x")], "chat_template": "rag"});
    let own = json!({"messages": [user("x")], "chat_template": "{{ 7 }}"});
    assert_eq!(ask(&options, &plain), Err(PromptError::NoTemplate));
    folder.write(
        "tokenizer_config.json",
        r#"{"eos_token": {"content": "<|im_end|>"}, "chat_template": [{"name": "default", "template": "d{{ eos_token }}"}, {"name": "tool_use", "template": "t"}, {"name": "rag", "template": "r"}]}"#,
    );
    let said = |body: &Value| {
        let prompter = Prompter::load(&folder.0, options.clone()).expect("it is right");
        prompter
            .chat(body)
            .map(|prompt| prompter.tokenizer().decode(&prompt.tokens))
    };
    assert_eq!(said(&plain).as_deref(), Ok("d<|im_end|>"));
    assert_eq!(said(&tools).as_deref(), Ok("t"));
    assert_eq!(said(&named).as_deref(), Ok("r"));
    // A client's own template is never rendered here.
    assert_eq!(said(&own), Err(PromptError::NotMirrored("templates of requests")));
    folder.write("chat_template.json", r#"{"chat_template": "p"}"#);
    assert_eq!((said(&plain).as_deref(), said(&tools).as_deref()), (Ok("p"), Ok("t")));
    folder.write("chat_template.jinja", "j");
    assert_eq!((said(&plain).as_deref(), said(&tools).as_deref()), (Ok("p"), Ok("j")));
    folder.write("config.json", r#"{"model_type": "gpt_oss"}"#);
    assert!(matches!(said(&plain), Err(PromptError::NotMirrored(_))));
    folder.write("config.json", r#"{"model_type": "llama"}"#);
    folder.write("chat_template.json", r#"{"chat_template": "{% if %}"}"#);
    assert!(matches!(said(&plain), Err(PromptError::Template(_))));
    let description = Prompter::load(&folder.0, options.clone())
        .expect("it is right")
        .describe();
    assert!(description.to_string().contains("chats: none"), "{description}");
}

#[test]
fn prompts_with_media_are_cut_before_them() {
    let image = json!({"type": "image_url", "image_url": {"url": "data:,x"}});
    let body = json!({"messages": [user("hello"), user(json!([{"type": "text", "text": "see"}, image, {"type": "text", "text": "so"}])), user("bye")]});
    for (template, parts, expected) in [
        (TEMPLATE, false, "<|im_start|>user:hello<|im_end|><|im_start|>user:"),
        (PARTS, true, "user:hello<|im_end|>user:see"),
    ] {
        let prompter = prompter("media", options(template));
        let prompt = prompter.chat(&body).expect("a prompt");
        let read = prompter.tokenizer().decode(&prompt.tokens);
        assert_eq!(read, expected);
        assert_eq!(
            prompt.cut,
            Some(Cut {
                media: Media::Image,
                message: 1
            })
        );
        let form = if parts {
            ContentFormat::Parts
        } else {
            ContentFormat::Text
        };
        assert_eq!(prompter.describe().template, homing_tokenize::ChatTemplate::Known(form));
        let mut truncated = body.clone();
        truncated["truncate_prompt_tokens"] = json!(5);
        assert!(matches!(prompter.chat(&truncated), Err(PromptError::NotMirrored(_))));
    }
    let audio =
        json!({"messages": [user(json!([{"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}]))]});
    let prompter = prompter("audio", options(PARTS));
    assert!(refused(&prompter, &audio).contains("no audio"));
}

#[test]
fn prompts_are_truncated_as_asked() {
    let with_context = PromptOptions {
        context: 8,
        ..options("{{ messages[0].content }}")
    };
    let prompter = prompter("truncated", with_context);
    for (more, expected) in [
        (json!({"truncate_prompt_tokens": 3}), "789"),
        (json!({"truncate_prompt_tokens": 3, "truncation_side": "left"}), "789"),
        (json!({"truncate_prompt_tokens": 3, "truncation_side": "right"}), "123"),
        (json!({"truncate_prompt_tokens": 0}), ""),
        (json!({"truncate_prompt_tokens": 100}), "123456789"),
        (json!({"truncate_prompt_tokens": -1}), "23456789"),
        (json!({"truncate_prompt_tokens": -1, "max_tokens": 5}), "3456789"),
    ] {
        let mut body = json!({"messages": [user("123456789")]});
        body.as_object_mut()
            .expect("an object")
            .extend(more.as_object().expect("an object").clone());
        assert_eq!(text(&prompter, &body), expected, "{body}");
    }
}

#[test]
fn completions_are_texts_or_tokens() {
    let prompter = prompter("completions", options(TEMPLATE));
    let read = |body: Value| {
        let prompts = prompter.completion(&body)?;
        Ok::<_, PromptError>(
            prompts
                .iter()
                .map(|prompt| prompter.tokenizer().decode(&prompt.tokens))
                .collect::<Vec<_>>(),
        )
    };
    assert_eq!(read(json!({"prompt": "ab<|im_end|>"})).unwrap(), ["ab<|im_end|>"]);
    assert_eq!(read(json!({"prompt": ["ab", "c"]})).unwrap(), ["ab", "c"]);
    assert_eq!(read(json!({"prompt": [258, 259]})).unwrap(), ["<|im_start|><|im_end|>"]);
    assert_eq!(
        read(json!({"prompt": [[258], [259]], "truncate_prompt_tokens": 1})).unwrap(),
        ["<|im_start|>", "<|im_end|>"]
    );
    for wrong in [
        json!({}),
        json!({"prompt": ""}),
        json!({"prompt": []}),
        json!({"prompt": [1, "a"]}),
        json!({"prompt": "a", "suffix": "b"}),
    ] {
        assert!(read(wrong.clone()).is_err(), "{wrong}");
    }
    assert_eq!(prompter.text("ab", Marks::None).unwrap().len(), 2);
}

#[test]
fn messages_of_anthropic_become_chats() {
    let strict = format!(
        "{{% if messages[1:] | selectattr('role', 'equalto', 'system') | list %}}{{{{ raise_exception('first') }}}}{{% endif %}}{TEMPLATE}"
    );
    let body = json!({
        "model": "m", "max_tokens": 5, "thinking": {"type": "disabled"},
        "system": [{"type": "text", "text": "x-anthropic-billing-header: 1"}, {"type": "text", "text": "be kind"}],
        "tools": [{"name": "f", "input_schema": {"properties": {}}}],
        "messages": [
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a"}, {"type": "tool_use", "id": "1", "name": "f", "input": {"x": 1}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "4"}]}, {"type": "text", "text": "and?"}]},
            {"role": "system", "content": "later"}]});
    let called = "{\"x\": 1} {\"id\": \"1\", \"function\": {\"arguments\": {\"x\": 1}, \"name\": \"f\"}, \"type\": \"function\"}";
    let talk = format!(
        "<|im_start|>user:q<|im_end|><|im_start|>assistant:a[thinks hm][calls f {called}]<|im_end|><|im_start|>tool:4[for 1]<|im_end|><|im_start|>user:and?<|im_end|>"
    );
    let end = "[tools [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"description\": null, \"parameters\": {\"properties\": {}, \"type\": \"object\"}}}]][thinking False][effort none]<|im_start|>assistant:";
    for (template, expected) in [
        (
            TEMPLATE,
            format!("<|im_start|>system:be kind<|im_end|>{talk}<|im_start|>system:later<|im_end|>{end}"),
        ),
        (&strict, format!("<|im_start|>system:be kindlater<|im_end|>{talk}{end}")),
    ] {
        let prompter = prompter("anthropic", options(template));
        let prompt = prompter.messages(&body).expect("a prompt");
        assert_eq!(prompter.tokenizer().decode(&prompt.tokens), expected);
    }
}

#[test]
fn responses_become_chats_where_nothing_is_remembered() {
    let prompter = prompter("responses", options(TEMPLATE));
    let read = |body: Value| {
        let prompt = prompter.responses(&body)?;
        Ok::<_, PromptError>(prompter.tokenizer().decode(&prompt.tokens))
    };
    assert_eq!(
        read(json!({"input": "q", "instructions": "be kind", "reasoning": {"effort": "low"}})).unwrap(),
        "<|im_start|>system:be kind<|im_end|><|im_start|>user:q<|im_end|>[thinking True][effort low]<|im_start|>assistant:"
    );
    let items = json!([
        {"role": "user", "content": [{"type": "input_text", "text": "q"}]},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": "4"},
        {"type": "message", "role": "assistant", "status": "in_progress", "content": [{"type": "output_text", "text": "so"}]}]);
    let called = "{} {\"id\": \"1\", \"function\": {\"arguments\": {}, \"name\": \"f\"}, \"type\": \"function\"}";
    assert_eq!(
        read(json!({"input": items})).unwrap(),
        format!(
            "<|im_start|>user:q<|im_end|><|im_start|>assistant:[thinks hm][calls f {called}]<|im_end|><|im_start|>tool:4[for 1]<|im_end|><|im_start|>assistant:so"
        )
    );
    for unknown in [
        json!({"input": "q", "previous_response_id": "r"}),
        json!({"input": [{"type": "web_search_call"}]}),
        json!({"input": "q", "tools": [{"type": "web_search"}]}),
        json!({"input": "q", "truncation": "auto"}),
    ] {
        assert!(
            matches!(read(unknown.clone()), Err(PromptError::NotMirrored(_))),
            "{unknown}"
        );
    }
}

#[test]
fn chats_are_other_in_sglang() {
    let sglang = PromptOptions {
        dialect: Dialect::Sglang,
        ..options(TEMPLATE)
    };
    let prompter = prompter("sglang", sglang);
    for (body, expected) in [
        (
            json!({"messages": [user(json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]))]}),
            "<|im_start|>user:a b<|im_end|><|im_start|>assistant:",
        ),
        (
            json!({"messages": [user("x"), {"role": "assistant", "content": "y"}]}),
            "<|im_start|>user:x<|im_end|><|im_start|>user:y<|im_end|><|im_start|>assistant:",
        ),
        (
            json!({"messages": [user("x"), {"role": "assistant", "content": "y"}], "continue_final_message": true}),
            "<|im_start|>user:x<|im_end|><|im_start|>assistant:y",
        ),
        (
            json!({"messages": [user("x")], "tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "none"}),
            "<|im_start|>user:x<|im_end|><|im_start|>assistant:",
        ),
    ] {
        assert_eq!(text(&prompter, &body), expected, "{body}");
    }
    assert!(matches!(
        prompter.messages(&json!({})),
        Err(PromptError::NotMirrored(_))
    ));
}

#[test]
fn forwarded_tokens_are_taken_as_they_are() {
    let prompter = prompter("forwarded", options(TEMPLATE));
    let mut body = json!({"messages": [user("x")], "kv_transfer_params": {"prompt_token_ids": [1, 2]}});
    assert_eq!(prompter.chat(&body).unwrap().tokens, [1, 2]);
    body["echo"] = json!(true);
    assert!(text(&prompter, &body).contains("user:x"));
}
