//! How is a field of a body changed while all else stays as it was sent?
use bytes::Bytes;

use crate::json::Fields;

/// Changes of a body that are to be made.
#[derive(Debug)]
pub struct Splice<'a> {
    body: &'a [u8],
    fields: &'a Fields,
}

impl<'a> Splice<'a> {
    /// Nothing is changed yet.
    pub fn new(body: &'a [u8], fields: &'a Fields) -> Self {
        Self { body, fields }
    }
    /// Sets a field to a value, which is JSON.
    pub fn set(&mut self, _key: &str, _value: impl Into<Vec<u8>>) -> &mut Self {
        self
    }
    /// Takes a field out.
    pub fn remove(&mut self, _key: &str) -> &mut Self {
        self
    }
    /// Sets a field of an object that is a field; the object is made where there is none.
    pub fn set_in(&mut self, _outer: &str, _key: &str, _value: impl Into<Vec<u8>>) -> &mut Self {
        self
    }
    /// Takes a field out of an object that is a field.
    pub fn remove_in(&mut self, _outer: &str, _key: &str) -> &mut Self {
        self
    }
    /// Puts a value behind the last one of a list that is a field.
    pub fn append(&mut self, _key: &str, _value: impl Into<Vec<u8>>) -> &mut Self {
        self
    }
    /// The changed body.
    pub fn finish(self) -> Bytes {
        let _ = self.fields;
        Bytes::copy_from_slice(self.body)
    }
}
