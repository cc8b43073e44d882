//! Which session does an agent speak of? What coding agents send of themselves, without being asked.
//!
//! | agent | where |
//! |---|---|
//! | Claude Code | header `x-claude-code-session-id`; before that, a session in `metadata.user_id`, as JSON or after `_session_` |
//! | Codex | header `session_id`, `session-id`, `conversation_id` or `thread-id`; `prompt_cache_key` in the body |
//! | OpenCode | header `x-opencode-session`, `x-session-affinity` or `x-session-id` |
//!
//! A parent's session is not looked for: what a sub-agent asks begins with another prompt than what its parent asked.

use crate::ask::Ask;
use crate::hints::LONGEST;
use crate::json::{entry, text};

/// Where a session's name came from, the strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SessionFrom {
    /// Our own hint.
    Hint,
    /// Claude Code.
    ClaudeCode,
    /// Codex.
    Codex,
    /// OpenCode.
    OpenCode,
    /// A field of the body: `session_id` or `prompt_cache_key`.
    Body,
}

/// A session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Its name.
    pub id: String,
    /// Who named it.
    pub from: SessionFrom,
}

/// Headers of agents, the strongest of each first.
const HEADERS: [(&str, SessionFrom); 8] = [
    ("x-claude-code-session-id", SessionFrom::ClaudeCode),
    ("session_id", SessionFrom::Codex),
    ("session-id", SessionFrom::Codex),
    ("conversation_id", SessionFrom::Codex),
    ("thread-id", SessionFrom::Codex),
    ("x-opencode-session", SessionFrom::OpenCode),
    ("x-session-affinity", SessionFrom::OpenCode),
    ("x-session-id", SessionFrom::OpenCode),
];

/// Takes a header, if it names a session and none that is stronger did.
pub(crate) fn from_header(known: &mut Option<Session>, name: &str, value: &[u8]) {
    let Some((_, from)) = HEADERS.iter().find(|(header, _)| name.eq_ignore_ascii_case(header)) else {
        return;
    };
    let stronger = known.as_ref().is_none_or(|known| *from < known.from);
    if let Some(id) = std::str::from_utf8(value).ok().and_then(usable).filter(|_| stronger) {
        *known = Some(Session { id, from: *from });
    }
}

/// The session that a body names.
pub(crate) fn from_body(ask: &Ask) -> Option<Session> {
    let claude = ask.user.as_deref().and_then(in_user_id).and_then(|id| usable(&id));
    if let Some(id) = claude {
        return Some(Session {
            id,
            from: SessionFrom::ClaudeCode,
        });
    }
    let field = ask.session_id.as_deref().or(ask.prompt_cache_key.as_deref());
    field.and_then(usable).map(|id| Session {
        id,
        from: SessionFrom::Body,
    })
}

/// The session in a user's id as Claude Code writes it.
fn in_user_id(id: &str) -> Option<String> {
    if id.starts_with('{') {
        return entry(id.as_bytes(), "session_id")
            .and_then(text)
            .map(std::borrow::Cow::into_owned);
    }
    let (_, session) = id.rsplit_once("_session_")?;
    Some(session.to_owned())
}

/// A name that is not empty, not too long and without control characters. Others are none: nobody meant them for us.
fn usable(id: &str) -> Option<String> {
    let id = id.trim();
    ((1..=LONGEST).contains(&id.len()) && !id.chars().any(char::is_control)).then(|| id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::Endpoint;
    use crate::json::Limits;

    fn body(text: &str) -> Option<Session> {
        from_body(&Ask::read(Endpoint::Messages, text.as_bytes(), Limits::default()).unwrap())
    }

    fn headers(all: &[(&str, &str)]) -> Option<Session> {
        let mut known = None;
        for (name, value) in all {
            from_header(&mut known, name, value.as_bytes());
        }
        known
    }

    #[test]
    fn sessions_of_agents_are_found() {
        let session = |id: &str, from| {
            Some(Session {
                id: id.to_owned(),
                from,
            })
        };
        for (all, expected) in [
            (
                &[("X-Claude-Code-Session-Id", "c")][..],
                session("c", SessionFrom::ClaudeCode),
            ),
            (&[("session_id", "x")], session("x", SessionFrom::Codex)),
            (
                &[("x-session-id", "o"), ("x-session-affinity", "a")],
                session("o", SessionFrom::OpenCode),
            ),
            (
                &[
                    ("x-session-id", "o"),
                    ("x-claude-code-session-id", "c"),
                    ("session_id", "x"),
                ],
                session("c", SessionFrom::ClaudeCode),
            ),
            (&[("x-session-id", "  ")], None),
            (&[("cookie", "x")], None),
        ] {
            assert_eq!(headers(all), expected, "{all:?}");
        }
        let long = "x".repeat(LONGEST + 1);
        assert_eq!(headers(&[("session_id", &long)]), None);
    }

    #[test]
    fn sessions_in_bodies_are_found() {
        let old = r#"{"metadata":{"user_id":"user_ab12_account__session_57a1-f7"}}"#;
        assert_eq!(
            body(old).unwrap(),
            Session {
                id: "57a1-f7".into(),
                from: SessionFrom::ClaudeCode
            }
        );
        let new = r#"{"metadata":{"user_id":"{\"device_id\":\"d\",\"account_uuid\":\"\",\"session_id\":\"54c1\"}"}}"#;
        assert_eq!(body(new).unwrap().id, "54c1");
        assert_eq!(
            body(r#"{"prompt_cache_key":"k"}"#).unwrap(),
            Session {
                id: "k".into(),
                from: SessionFrom::Body
            }
        );
        assert_eq!(body(r#"{"prompt_cache_key":"k","session_id":"s"}"#).unwrap().id, "s");
        assert_eq!(body(r#"{"user":"someone","metadata":{"user_id":"{"}}"#), None);
    }
}
