//! How does an error read, with its causes?
//!
//! ```text
//! error <- cause <- cause of that -> "error: cause: cause of that", each said once
//! ```
//!
//! Some errors name their cause in their own sentence and hold it as their source as well: programs match it there.

use std::error::Error;

use anyhow::Chain;

/// The sentence, with the causes that it does not say itself.
pub fn words(error: &anyhow::Error) -> String {
    joined(error.chain())
}

/// As [`words`], of an error of a type of its own.
pub fn words_of(error: &(dyn Error + 'static)) -> String {
    joined(Chain::new(error))
}

fn joined(chain: Chain<'_>) -> String {
    let mut text = String::new();
    for cause in chain.map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read the map: {source}")]
    struct Named {
        source: std::io::Error,
    }

    #[test]
    fn a_cause_that_the_error_names_itself_is_said_once() {
        let source = std::io::Error::other("the disk is gone");
        let error = anyhow::Error::from(Named { source }).context("device hdd0");
        assert_eq!(
            words(&error),
            "device hdd0: cannot read the map: the disk is gone"
        );
        let source = std::io::Error::other("the disk is gone");
        assert_eq!(
            words_of(&Named { source }),
            "cannot read the map: the disk is gone"
        );
    }

    #[test]
    fn causes_that_differ_are_all_said() {
        let inner: Result<(), _> = Err(std::io::Error::other("no room"));
        let error = inner.context("cannot write the report").unwrap_err();
        assert_eq!(words(&error), "cannot write the report: no room");
    }
}
