//! What may an adapter be called? It is a model's name to clients, a label of metrics and a part of paths, so it is kept to what
//! all of them can carry.

use homing_domain::AdapterName;

/// The longest name, in bytes.
pub const LONGEST_NAME: usize = 256;

/// Why a name is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    /// There is nothing.
    #[error("the name of an adapter must not be empty")]
    Empty,
    /// It is too long.
    #[error("the name of an adapter has {0} bytes; at most {LONGEST_NAME} are allowed")]
    TooLong(usize),
    /// It begins with something else than a letter or a digit.
    #[error("the name of an adapter must begin with a letter or a digit, not with {0:?}")]
    Begins(char),
    /// It has a character that it may not have.
    #[error("the name of an adapter must not have {0:?}: letters, digits and any of `-_.:/@+` are allowed")]
    Character(char),
}

/// The adapter of this name, if it is one.
pub fn check_name(name: &str) -> Result<AdapterName, BadName> {
    if name.len() > LONGEST_NAME {
        return Err(BadName::TooLong(name.len()));
    }
    let first = name.chars().next().ok_or(BadName::Empty)?;
    if !first.is_ascii_alphanumeric() {
        return Err(BadName::Begins(first));
    }
    let fits = |character: &char| character.is_ascii_alphanumeric() || "-_.:/@+".contains(*character);
    match name.chars().find(|character| !fits(character)) {
        Some(character) => Err(BadName::Character(character)),
        None => Ok(AdapterName::new(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_everything_can_carry_are_taken() {
        for name in ["sql", "org/sql-lora:v1.2", "7b@main+x", &"a".repeat(LONGEST_NAME)] {
            assert_eq!(check_name(name).map(|name| name.to_string()), Ok(name.to_owned()));
        }
        for (name, why) in [
            ("", BadName::Empty),
            ("-x", BadName::Begins('-')),
            ("a b", BadName::Character(' ')),
            ("a\n", BadName::Character('\n')),
            ("a\"", BadName::Character('"')),
            ("a,b", BadName::Character(',')),
            (&"a".repeat(LONGEST_NAME + 1), BadName::TooLong(LONGEST_NAME + 1)),
        ] {
            assert_eq!(check_name(name), Err(why), "{name:?}");
        }
    }
}
