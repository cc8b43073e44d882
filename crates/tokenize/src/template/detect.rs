//! Which form of contents does a template want: one text, or a list of parts?
//!
//! Engines find out by looking for a loop over the content of a message, in the template as it is parsed. The same rules are
//! followed here: a variable that was set to `messages`, or to some of them, stands for `messages`; what a loop over it
//! yields is a message; a loop over the `content` of a message, over a macro's argument that is given such a content, or,
//! outside of macros, over something called `content`, is a loop over parts.

use std::collections::HashSet;

use minijinja::machinery::ast::{CallArg, Expr, Macro, Stmt};
use minijinja::machinery::parse;
use minijinja::syntax::SyntaxConfig;

/// Whether the template loops over the parts of a content. A template that cannot be parsed does not.
pub(super) fn loops_over_parts(source: &str) -> bool {
    let Ok(root) = parse(source, "chat", SyntaxConfig::default()) else {
        return false;
    };
    let mut found = Found::default();
    found.statement(&root, None);
    found.decide()
}

/// Whether SGLang takes parts: a template that speaks of media does, or one that loops over the content of what is called a
/// message.
pub(super) fn loops_over_parts_by_name(source: &str) -> bool {
    if ["image", "audio", "video", "vision"]
        .iter()
        .any(|word| source.contains(word))
    {
        return true;
    }
    let Ok(root) = parse(source, "chat", SyntaxConfig::default()) else {
        return false;
    };
    let mut found = Found::default();
    found.statement(&root, None);
    let names = ["message", "msg", "m"];
    let over = |one: &Loop<'_>| names.iter().any(|name| stands_for(one.over, name, Some("content")));
    found.loops.iter().any(over)
}

/// A name that stands for an expression of the template, as far as it matters here.
struct Assigned<'a> {
    /// Nothing for what is no plain variable.
    name: Option<&'a str>,
    value: &'a Expr<'a>,
}

struct Loop<'a> {
    target: &'a Expr<'a>,
    over: &'a Expr<'a>,
    /// The macro around it, if there is one.
    within: Option<&'a str>,
}

struct Called<'a> {
    name: &'a str,
    args: &'a [CallArg<'a>],
}

/// What is of interest in a template.
#[derive(Default)]
struct Found<'a> {
    sets: Vec<Assigned<'a>>,
    loops: Vec<Loop<'a>>,
    macros: Vec<(&'a str, Vec<&'a str>)>,
    calls: Vec<Called<'a>>,
}

impl<'a> Found<'a> {
    fn decide(&self) -> bool {
        // An engine gives up where messages go elsewhere than into a plain variable, and takes one text.
        let Some(messages) = self.messages() else {
            return false;
        };
        self.loops.iter().any(|one| {
            if name_of(one.target).is_none() {
                return false;
            }
            if messages
                .iter()
                .any(|message| stands_for(one.over, message, Some("content")))
            {
                return true;
            }
            let Some(over) = name_of(one.over) else {
                return false;
            };
            match one.within {
                None => over == "content",
                Some(within) => self.given_contents(within, &messages).contains(over),
            }
        })
    }

    /// The variables that stand for a message; nothing if something else than a variable does.
    fn messages(&self) -> Option<HashSet<&'a str>> {
        let mut lists = HashSet::from(["messages"]);
        loop {
            let mut more = Vec::new();
            for set in &self.sets {
                if lists.iter().any(|list| stands_for(set.value, list, None)) {
                    more.push(set.name?);
                }
            }
            let before = lists.len();
            lists.extend(more);
            if lists.len() == before {
                break;
            }
        }
        let over_messages = |one: &&Loop<'_>| lists.iter().any(|list| stands_for(one.over, list, None));
        self.loops
            .iter()
            .filter(over_messages)
            .map(|one| name_of(one.target))
            .collect()
    }

    /// The arguments of a macro that are given a message's content somewhere.
    fn given_contents(&self, called: &str, messages: &HashSet<&str>) -> HashSet<&'a str> {
        let content = |value: &Expr<'_>| messages.iter().any(|one| stands_for(value, one, Some("content")));
        let mut given = HashSet::new();
        for (_, names) in self.macros.iter().filter(|(name, _)| *name == called) {
            for call in self.calls.iter().filter(|call| call.name == called) {
                for (index, arg) in call.args.iter().enumerate() {
                    match arg {
                        CallArg::Pos(value) if content(value) => given.extend(names.get(index)),
                        CallArg::Kwarg(key, value) if content(value) => {
                            given.extend(names.iter().find(|name| **name == *key));
                        }
                        _ => {}
                    }
                }
            }
        }
        given
    }

    fn statements(&mut self, list: &'a [Stmt<'a>], within: Option<&'a str>) {
        for one in list {
            self.statement(one, within);
        }
    }

    fn statement(&mut self, one: &'a Stmt<'a>, within: Option<&'a str>) {
        match one {
            Stmt::Template(it) => self.statements(&it.children, within),
            Stmt::EmitExpr(it) => self.expression(&it.expr),
            Stmt::ForLoop(it) => {
                self.loops.push(Loop {
                    target: &it.target,
                    over: &it.iter,
                    within,
                });
                self.expression(&it.iter);
                self.expressions(it.filter_expr.as_ref());
                self.statements(&it.body, within);
                self.statements(&it.else_body, within);
            }
            Stmt::IfCond(it) => {
                self.expression(&it.expr);
                self.statements(&it.true_body, within);
                self.statements(&it.false_body, within);
            }
            Stmt::WithBlock(it) => {
                self.expressions(it.assignments.iter().map(|(_, value)| value));
                self.statements(&it.body, within);
            }
            Stmt::Set(it) => {
                self.sets.push(Assigned {
                    name: name_of(&it.target),
                    value: &it.expr,
                });
                self.expression(&it.expr);
            }
            Stmt::SetBlock(it) => self.statements(&it.body, within),
            Stmt::AutoEscape(it) => self.statements(&it.body, within),
            Stmt::FilterBlock(it) => self.statements(&it.body, within),
            Stmt::Macro(it) => self.declared(it, Some(it.name)),
            Stmt::CallBlock(it) => {
                self.call(&it.call.expr, &it.call.args);
                self.declared(&it.macro_decl, within);
            }
            Stmt::Do(it) => self.call(&it.call.expr, &it.call.args),
            _ => {}
        }
    }

    fn declared(&mut self, it: &'a Macro<'a>, within: Option<&'a str>) {
        self.macros
            .push((it.name, it.args.iter().filter_map(name_of).collect()));
        self.expressions(&it.defaults);
        self.statements(&it.body, within);
    }

    fn expressions(&mut self, list: impl IntoIterator<Item = &'a Expr<'a>>) {
        for one in list {
            self.expression(one);
        }
    }

    fn call(&mut self, what: &'a Expr<'a>, args: &'a [CallArg<'a>]) {
        if let Some(name) = name_of(what) {
            self.calls.push(Called { name, args });
        }
        self.expression(what);
        self.arguments(args);
    }

    fn arguments(&mut self, args: &'a [CallArg<'a>]) {
        for arg in args {
            match arg {
                CallArg::Pos(value)
                | CallArg::Kwarg(_, value)
                | CallArg::PosSplat(value)
                | CallArg::KwargSplat(value) => self.expression(value),
            }
        }
    }

    fn expression(&mut self, one: &'a Expr<'a>) {
        match one {
            Expr::Var(_) | Expr::Const(_) => {}
            Expr::Slice(it) => {
                self.expression(&it.expr);
                self.expressions(it.start.iter().chain(&it.stop).chain(&it.step));
            }
            Expr::UnaryOp(it) => self.expression(&it.expr),
            Expr::BinOp(it) => self.expressions([&it.left, &it.right]),
            Expr::Compare(it) => {
                self.expression(&it.expr);
                self.expressions(it.ops.iter().map(|op| &op.expr));
            }
            Expr::IfExpr(it) => {
                self.expressions([&it.test_expr, &it.true_expr]);
                self.expressions(it.false_expr.as_ref());
            }
            Expr::Filter(it) => {
                self.expressions(it.expr.as_ref());
                self.arguments(&it.args);
            }
            Expr::Test(it) => {
                self.expression(&it.expr);
                self.arguments(&it.args);
            }
            Expr::GetAttr(it) => self.expression(&it.expr),
            Expr::GetItem(it) => self.expressions([&it.expr, &it.subscript_expr]),
            Expr::Call(it) => self.call(&it.expr, &it.args),
            Expr::List(it) => self.expressions(&it.items),
            Expr::Tuple(it) => self.expressions(&it.items),
            Expr::Map(it) => self.expressions(it.keys.iter().chain(&it.values)),
        }
    }
}

fn name_of<'a>(expr: &'a Expr<'a>) -> Option<&'a str> {
    match expr {
        Expr::Var(var) => Some(var.id),
        _ => None,
    }
}

/// Whether an expression is this variable, or its `key`, perhaps filtered, tested or sliced.
fn stands_for(expr: &Expr<'_>, variable: &str, key: Option<&str>) -> bool {
    match (expr, key) {
        (Expr::Filter(it), _) => it.expr.as_ref().is_some_and(|expr| stands_for(expr, variable, key)),
        (Expr::Test(it), _) => stands_for(&it.expr, variable, key),
        (Expr::Slice(it), _) => stands_for(&it.expr, variable, key),
        (Expr::Var(it), None) => it.id == variable,
        (Expr::GetAttr(it), Some(key)) => it.name == key && stands_for_itself(&it.expr, variable),
        (Expr::GetItem(it), Some(key)) => {
            let subscript = match &it.subscript_expr {
                Expr::Const(constant) => constant.value.as_str(),
                _ => None,
            };
            subscript == Some(key) && stands_for_itself(&it.expr, variable)
        }
        _ => false,
    }
}

fn stands_for_itself(expr: &Expr<'_>, variable: &str) -> bool {
    name_of(expr) == Some(variable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_decide_in_sglang() {
        for (template, expected) in [
            ("{% for m in messages %}{{ m.content }}{% endfor %}", false),
            (
                "{% for x in messages %}{% for c in x.content %}{% endfor %}{% endfor %}",
                false,
            ),
            (
                "{% for msg in messages %}{% for c in msg['content'] %}{% endfor %}{% endfor %}",
                true,
            ),
            ("{{ '<image>' }}", true),
        ] {
            assert_eq!(loops_over_parts_by_name(template), expected, "{template}");
        }
    }

    #[test]
    fn loops_over_parts_are_found() {
        for (template, expected) in [
            ("{% for m in messages %}{{ m.content }}{% endfor %}", false),
            (
                "{% for m in messages %}{% for c in m['content'] %}{% endfor %}{% endfor %}",
                true,
            ),
            (
                "{% for m in messages %}{% for c in m.content | list %}{% endfor %}{% endfor %}",
                true,
            ),
            (
                "{% set l = messages[1:] %}{% set k = l %}{% for m in k %}{% for c in m.content %}{% endfor %}{% endfor %}",
                true,
            ),
            (
                "{% for m in others %}{% for c in m.content %}{% endfor %}{% endfor %}",
                false,
            ),
            (
                "{% for m in messages %}{% set content = m.content %}{% for c in content %}{% endfor %}{% endfor %}",
                true,
            ),
            (
                "{% macro r(c) %}{% for i in c %}{% endfor %}{% endmacro %}{% for m in messages %}{{ r(m.content) }}{% endfor %}",
                true,
            ),
            (
                "{% macro r(c, d) %}{% for i in d %}{% endfor %}{% endmacro %}{% for m in messages %}{{ r(m.content, 1) }}{% endfor %}",
                false,
            ),
            (
                "{% macro r(c, d) %}{% for i in d %}{% endfor %}{% endmacro %}{% for m in messages %}{{ r(d=m.content) }}{% endfor %}",
                true,
            ),
            (
                "{% macro r(content) %}{% for i in content %}{% endfor %}{% endmacro %}{{ r('x') }}",
                false,
            ),
            (
                "{% for m in messages %}{% for t in m.tool_calls %}{% endfor %}{% endfor %}",
                false,
            ),
            (
                "{% set n.l = messages %}{% for m in messages %}{% for c in m.content %}{% endfor %}{% endfor %}",
                false,
            ),
            ("{% if ", false),
        ] {
            assert_eq!(loops_over_parts(template), expected, "{template}");
        }
    }
}
