//! How is a field of a body changed while all else stays as it was sent?
//!
//! By putting new bytes in the place of old ones. Fields at the top and fields of objects at the top can be set and taken out,
//! and values put behind the others of a list at the top.
//!
//! **Invariant:** the result means what the same changes of a parsed object mean, in the order in which they were asked for.
//!
//! **Invariant:** a field that no change names has the same bytes as before, and so have the spaces around it, except for the
//! comma beside a field that was taken out.
//!
//! **Invariant:** a key that comes twice and is set comes once afterwards, so that nobody can read another value than we meant.
//!
//! Cost: one copy of the body. Values that are put in are not checked: they must be JSON.

use bytes::Bytes;
use smallvec::SmallVec;

use crate::json::{Fields, Kind, Limits, Span, is_key, items, kind, quoted};

/// Changes of a body that are to be made.
#[derive(Debug)]
pub struct Splice<'a> {
    body: &'a [u8],
    fields: &'a Fields,
    changes: SmallVec<[(String, Change); 6]>,
}

/// What becomes of a field.
#[derive(Debug)]
enum Change {
    Set(Vec<u8>),
    Remove,
    /// Fields of an object; `None` takes one out.
    Inside(Vec<(String, Option<Vec<u8>>)>),
    /// Values behind a list.
    Append(Vec<Vec<u8>>),
}

/// New bytes for a place.
struct Patch {
    span: Span,
    new: Vec<u8>,
}

impl<'a> Splice<'a> {
    /// Nothing is changed yet. The fields are those of the body.
    pub fn new(body: &'a [u8], fields: &'a Fields) -> Self {
        Self {
            body,
            fields,
            changes: SmallVec::new(),
        }
    }

    /// Sets a field to a value, which is JSON.
    pub fn set(&mut self, key: &str, value: impl Into<Vec<u8>>) -> &mut Self {
        *self.change(key) = Change::Set(value.into());
        self
    }

    /// Takes a field out.
    pub fn remove(&mut self, key: &str) -> &mut Self {
        *self.change(key) = Change::Remove;
        self
    }

    /// Sets a field of an object that is a field. Where there is no object, one is made.
    pub fn set_in(&mut self, outer: &str, key: &str, value: impl Into<Vec<u8>>) -> &mut Self {
        self.inside(outer, key, Some(value.into()))
    }

    /// Takes a field out of an object that is a field. Where there is no object, nothing changes.
    pub fn remove_in(&mut self, outer: &str, key: &str) -> &mut Self {
        self.inside(outer, key, None)
    }

    /// Puts a value behind the last one of a list that is a field. Where there is no list, one is made.
    pub fn append(&mut self, key: &str, value: impl Into<Vec<u8>>) -> &mut Self {
        let value = value.into();
        match self.change(key) {
            Change::Append(more) => more.push(value),
            Change::Set(list) => *list = appended(list, &[value]),
            // Where a field of it was set before, it is an object by now, and no list.
            change if change.makes_new() => *change = Change::Set(appended(b"[]", &[value])),
            change => *change = Change::Append(vec![value]),
        }
        self
    }

    /// Whether nothing is to be changed.
    pub fn is_empty(&self) -> bool {
        let nothing = |change: &Change| matches!(change, Change::Inside(inner) if inner.is_empty());
        self.changes.iter().all(|(_, change)| nothing(change))
    }

    /// The changed body.
    pub fn finish(self) -> Bytes {
        self.spliced().into()
    }

    fn inside(&mut self, outer: &str, key: &str, value: Option<Vec<u8>>) -> &mut Self {
        match self.change(outer) {
            Change::Inside(inner) => inner.push((key.to_owned(), value)),
            change => {
                let old = match change {
                    Change::Set(old) => Some(old.as_slice()),
                    _ => None,
                };
                let inner = Change::Inside(vec![(key.to_owned(), value)]);
                if let Some(new) = inner.applied(old) {
                    *change = Change::Set(new);
                }
            }
        }
        self
    }

    /// What becomes of this field so far: nothing, if it was not named before.
    fn change(&mut self, key: &str) -> &mut Change {
        let place = self.changes.iter().position(|(named, _)| named == key);
        let place = place.unwrap_or_else(|| {
            self.changes.push((key.to_owned(), Change::Inside(Vec::new())));
            self.changes.len() - 1
        });
        &mut self.changes[place].1
    }

    fn spliced(&self) -> Vec<u8> {
        let all = &self.fields.all;
        let mut kept: SmallVec<[bool; 24]> = SmallVec::from_elem(true, all.len());
        let mut patches: Vec<Patch> = Vec::with_capacity(self.changes.len() + 2);
        let mut added: Vec<(&str, Vec<u8>)> = Vec::new();
        for (key, change) in &self.changes {
            let named = |place: &usize| is_key(all[*place].key.of(self.body), key);
            let mut places = (0..all.len()).rev().filter(named);
            let last = places.next();
            let value = last.map(|place| all[place].value.of(self.body));
            let Some(new) = change.applied(value) else {
                if matches!(change, Change::Remove) {
                    last.into_iter().chain(places).for_each(|place| kept[place] = false);
                }
                continue;
            };
            places.for_each(|place| kept[place] = false);
            match last {
                Some(place) => patches.push(Patch {
                    span: all[place].value,
                    new,
                }),
                None => added.push((key, new)),
            }
        }
        self.cut(&kept, &mut patches);
        self.add(&kept, &added, &mut patches);
        // An insertion stands before a cut that begins at the same place.
        patches.sort_by_key(|patch| (patch.span.start, patch.span.end));
        patched(self.body, &patches)
    }

    /// Cuts out the fields that are not kept, each with a comma.
    fn cut(&self, kept: &[bool], patches: &mut Vec<Patch>) {
        let all = &self.fields.all;
        let (Some(first), Some(last)) = (all.first(), all.last()) else {
            return;
        };
        let nothing = |start, end| Patch {
            span: Span { start, end },
            new: Vec::new(),
        };
        let Some(front) = kept.iter().position(|kept| *kept) else {
            patches.push(nothing(first.key.start, last.value.end));
            return;
        };
        if front > 0 {
            patches.push(nothing(first.key.start, all[front].key.start));
        }
        for place in (front + 1..all.len()).filter(|place| !kept[*place]) {
            patches.push(nothing(all[place - 1].value.end, all[place].value.end));
        }
    }

    /// Puts new fields behind the last one that is kept.
    fn add(&self, kept: &[bool], added: &[(&str, Vec<u8>)], patches: &mut Vec<Patch>) {
        if added.is_empty() {
            return;
        }
        let all = &self.fields.all;
        let last = kept.iter().rposition(|kept| *kept);
        let at = match (last, all.first()) {
            (Some(place), _) => all[place].value.end,
            (None, Some(first)) => first.key.start,
            (None, None) => self.fields.object.start + 1,
        };
        let mut new = Vec::new();
        for (key, value) in added {
            if last.is_some() || !new.is_empty() {
                new.push(b',');
            }
            new.extend_from_slice(quoted(key).as_bytes());
            new.push(b':');
            new.extend_from_slice(value);
        }
        patches.push(Patch {
            span: Span { start: at, end: at },
            new,
        });
    }
}

impl Change {
    /// Whether what it makes is not made of what was there.
    fn makes_new(&self) -> bool {
        match self {
            Self::Set(_) | Self::Remove => true,
            Self::Inside(inner) => inner.iter().any(|(_, value)| value.is_some()),
            Self::Append(_) => false,
        }
    }

    /// The new value for an old one. `None`: it stays as it is, or goes.
    fn applied(&self, value: Option<&[u8]>) -> Option<Vec<u8>> {
        match self {
            Self::Set(new) => Some(new.clone()),
            Self::Remove => None,
            Self::Append(more) => Some(appended(value.unwrap_or(b"[]"), more)),
            Self::Inside(inner) => {
                let sets = inner.iter().any(|(_, value)| value.is_some());
                let object = value.filter(|value| kind(value) == Some(Kind::Object));
                if inner.is_empty() || (object.is_none() && !sets) {
                    return None;
                }
                Some(within(object.unwrap_or(b"{}"), inner))
            }
        }
    }
}

/// An object with fields set and taken out, in this order.
fn within(object: &[u8], changes: &[(String, Option<Vec<u8>>)]) -> Vec<u8> {
    let limits = Limits {
        fields: usize::MAX,
        ..Limits::default()
    };
    let object = if kind(object) == Some(Kind::Object) {
        object
    } else {
        b"{}"
    };
    let fields = Fields::read(object, limits).unwrap_or_default();
    let mut splice = Splice::new(object, &fields);
    for (key, value) in changes {
        match value {
            Some(value) => splice.set(key, value.clone()),
            None => splice.remove(key),
        };
    }
    splice.spliced()
}

/// A list with more values behind.
fn appended(list: &[u8], more: &[Vec<u8>]) -> Vec<u8> {
    let list = if kind(list) == Some(Kind::Array) { list } else { b"[]" };
    let any = items(list).is_some_and(|mut items| items.next().is_some());
    let close = list.len() - 1;
    let mut new = Vec::with_capacity(list.len() + more.iter().map(|value| value.len() + 1).sum::<usize>());
    new.extend_from_slice(&list[..close]);
    for (place, value) in more.iter().enumerate() {
        if any || place > 0 {
            new.push(b',');
        }
        new.extend_from_slice(value);
    }
    new.push(b']');
    new
}

fn patched(text: &[u8], patches: &[Patch]) -> Vec<u8> {
    let more: usize = patches.iter().map(|patch| patch.new.len()).sum();
    let mut new = Vec::with_capacity(text.len() + more);
    let mut at = 0;
    for Patch { span, new: piece } in patches {
        new.extend_from_slice(text.get(at..span.start).unwrap_or_default());
        new.extend_from_slice(piece);
        at = span.end;
    }
    new.extend_from_slice(text.get(at..).unwrap_or_default());
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(body: &str, edit: impl FnOnce(&mut Splice<'_>)) -> String {
        let fields = Fields::read(body.as_bytes(), Limits::default()).unwrap();
        let mut splice = Splice::new(body.as_bytes(), &fields);
        edit(&mut splice);
        String::from_utf8(splice.finish().to_vec()).unwrap()
    }

    #[test]
    fn a_model_is_replaced_and_nothing_else() {
        let body = "{ \"model\" : \"a\",\n\t\"x\": 1.50 , \"y\":\"\\u00e9\" }";
        let new = change(body, |splice| {
            splice.set("model", quoted("b\"c"));
        });
        assert_eq!(new, body.replace("\"a\"", r#""b\"c""#));
    }

    #[test]
    fn commas_go_with_the_fields() {
        let body = r#"{"a":1, "b":2 ,"c":3}"#;
        for (gone, left) in [
            (&["a"][..], r#"{"b":2 ,"c":3}"#),
            (&["b"], r#"{"a":1 ,"c":3}"#),
            (&["c"], r#"{"a":1, "b":2}"#),
            (&["a", "b"], r#"{"c":3}"#),
            (&["b", "c"], r#"{"a":1}"#),
            (&["a", "c"], r#"{"b":2}"#),
            (&["a", "b", "c"], "{}"),
            (&["d"], body),
        ] {
            let new = change(body, |splice| {
                for key in gone {
                    splice.remove(key);
                }
            });
            assert_eq!(new, left, "{gone:?}");
        }
    }

    #[test]
    fn options_are_set_where_they_are_and_made_where_they_are_not() {
        let usage = |splice: &mut Splice<'_>| {
            splice.set_in("stream_options", "include_usage", "true");
        };
        for (body, new) in [
            ("{}", r#"{"stream_options":{"include_usage":true}}"#),
            (r#"{"a":1}"#, r#"{"a":1,"stream_options":{"include_usage":true}}"#),
            (
                r#"{"stream_options":null}"#,
                r#"{"stream_options":{"include_usage":true}}"#,
            ),
            (
                r#"{"stream_options":{ "x":1 },"b":2}"#,
                r#"{"stream_options":{ "x":1,"include_usage":true },"b":2}"#,
            ),
            (
                r#"{"stream_options":{"include_usage":false}}"#,
                r#"{"stream_options":{"include_usage":true}}"#,
            ),
        ] {
            assert_eq!(change(body, usage), new);
        }
    }

    #[test]
    fn a_key_that_comes_twice_is_set_once() {
        let new = change(r#"{"model":"a","x":1,"mod\u0065l":"b"}"#, |splice| {
            splice.set("model", "\"c\"");
        });
        assert_eq!(new, r#"{"x":1,"mod\u0065l":"c"}"#);
    }

    #[test]
    fn messages_are_appended() {
        let more = |splice: &mut Splice<'_>| {
            splice.append("m", "3").append("m", "4");
        };
        assert_eq!(change(r#"{"m":[1 , 2 ]}"#, more), r#"{"m":[1 , 2 ,3,4]}"#);
        assert_eq!(change(r#"{"m":[ ]}"#, more), r#"{"m":[ 3,4]}"#);
        assert_eq!(change("{ }", more), r#"{"m":[3,4] }"#);
    }
}
