//! Does a template say what it would say in Python? Expected texts were made by `jinja2`, set up as `transformers` does.

use super::*;

fn rendered(source: &str) -> Result<String, PromptError> {
    let template = Template::compile(source, Dialect::Vllm).expect("it can be read");
    let messages: Vec<Value> = [("system", "be brief"), ("user", "hello"), ("assistant", "hi")]
        .iter()
        .map(|(role, content)| Value::from_pairs([("role", Value::from(*role)), ("content", Value::from(*content))]))
        .collect();
    let schema = Value::from_pairs([("items", Value::from("x")), ("b", Value::from(1.5))]);
    let context = vec![
        ("messages".to_owned(), Value::from(messages)),
        ("tools".to_owned(), Value::from(())),
        ("schema".to_owned(), schema),
    ];
    template.render(context, &Clock::fixed(1_720_000_000))
}

fn check(source: &str, expected: &str) {
    assert_eq!(rendered(source).as_deref(), Ok(expected), "{source}");
}

#[test]
fn blocks_leave_no_lines_behind() {
    check("{% if true %}\n  a\n  {% endif %}\nb\n", "  a\nb");
    check("x\n  {# note #}\n  y", "x\n  y");
    check(
        "{%- for m in messages %}\n{{ m.role }}\n{%- endfor %}\n",
        "systemuserassistant",
    );
    check(
        "a {%- generation -%} {% set x = 1 %}b{% endgeneration %} {{ x }}c",
        "ab c",
    );
}

#[test]
fn values_are_printed_as_in_python() {
    check(
        "{{ true }} {{ none }} {{ 1.0 }} {{ [1, 'a'] }} {{ missing }}.",
        "True None 1.0 [1, 'a'] .",
    );
    check("{{ messages[0] }}", "{'role': 'system', 'content': 'be brief'}");
    check("{{ schema | tojson }}", "{\"items\": \"x\", \"b\": 1.5}");
    check(
        "{{ schema | tojson(indent=2) }}",
        "{\n  \"items\": \"x\",\n  \"b\": 1.5\n}",
    );
    check(
        "{{ '<é>' | tojson }} {{ '<é>' | tojson(ensure_ascii=true) }}",
        "\"<é>\" \"<\\u00e9>\"",
    );
    check(
        "{{ {'b': 1, 'a': 2} | tojson(separators=(',', ':'), sort_keys=true) }}",
        "{\"a\":2,\"b\":1}",
    );
}

#[test]
fn lists_and_objects_work_as_in_python() {
    check(
        "{{ messages[-1].role }} {{ messages[1:][0].role }} {{ messages[::-1][0]['role'] }}",
        "assistant user assistant",
    );
    check(
        "{% for k, v in schema.items() %}{{ k }}={{ v }};{% endfor %}",
        "items=x;b=1.5;",
    );
    check(
        "{{ schema.get('none', 7) }} {{ schema.get('z') is none }} {{ 'b' in schema }}",
        "7 True True",
    );
    check(
        "{{ messages | map(attribute='role') | join('-') }}",
        "system-user-assistant",
    );
    check(
        "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}",
        "1",
    );
    check(
        "{{ ('a b'.split()[1] ~ 'X').strip('X') }} {{ 'a,b,c'.split(',', 1)[1] }} {{ 'abc'[1:] }}",
        "b b,c bc",
    );
}

#[test]
fn tests_are_those_of_jinja() {
    check(
        "{{ 'x' is sequence }} {{ 'x' is iterable }} {{ none is iterable }} {{ tools is iterable }}",
        "True True False False",
    );
    check(
        "{{ schema is mapping }} {{ messages is sequence }} {{ 1 is sequence }} {{ true is number }}",
        "True True False True",
    );
    check(
        "{{ missing is defined }} {{ tools is defined }} {{ tools is not none }}",
        "False True False",
    );
}

#[test]
fn loops_break_and_remember() {
    check(
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% if loop.last %}{% break %}{% endif %}{% set ns.n = ns.n + loop.index %}{% endfor %}{{ ns.n }}",
        "3",
    );
    check(
        "{% for m in messages %}{% if loop.index0 == 1 %}{% continue %}{% endif %}{{ loop.previtem.role if loop.previtem else '-' }},{% endfor %}",
        "-,user,",
    );
    check(
        "{% macro f(a, b='x') -%} {{ a }}{{ b }} {%- endmacro %}{{ f(1) }}{{ f(2, b='y') }}",
        "1x2y",
    );
}

#[test]
fn today_comes_from_the_clock() {
    check("{{ strftime_now('%d %b %Y') }}", "03 Jul 2024");
    check("{% if strftime_now is defined %}yes{% endif %}", "yes");
}

#[test]
fn what_a_template_refuses_is_told_in_its_words() {
    let refused = rendered("{{ raise_exception('roles must alternate') }}").unwrap_err();
    assert_eq!(refused, PromptError::Template("roles must alternate".to_owned()));
    assert!(matches!(
        rendered("{{ missing.attribute }}"),
        Err(PromptError::Template(_))
    ));
    assert!(matches!(
        rendered("{{ missing | tojson }}"),
        Err(PromptError::Template(_))
    ));
    assert!(Template::compile("{% for %}", Dialect::Vllm).is_err());
    assert!(Template::compile(&" ".repeat(LONGEST_TEMPLATE + 1), Dialect::Vllm).is_err());
}

#[test]
fn rendering_ends() {
    let forever = rendered("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}");
    assert!(
        matches!(
            forever,
            Err(PromptError::TooMuch {
                unit: "instructions",
                ..
            })
        ),
        "{forever:?}"
    );
    let long = rendered("{% for a in range(99999) %}{{ 'x' * 1000000 }}{% endfor %}");
    assert!(
        matches!(long, Err(PromptError::TooMuch { unit: "bytes", .. })),
        "{long:?}"
    );
    let deep = rendered("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}");
    assert!(matches!(deep, Err(PromptError::Template(_))), "{deep:?}");
    // A slice of nothing, backwards, panics inside of the engine of templates.
    let _ = rendered("{{ [][::-1] | list }}");
}
