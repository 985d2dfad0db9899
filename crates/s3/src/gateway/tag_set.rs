//! Sets of tags, as headers and XML have them.

use s3s::dto::{Tag, TagSet};
use s3s::{S3Result, s3_error};

use crate::index::record::Pairs;

/// The most tags of an object.
pub(super) const OBJECT_MAX: usize = 10;
/// The most tags of a bucket.
pub(super) const BUCKET_MAX: usize = 50;

/// Reads tags as headers have them.
pub(super) fn of_header(text: &str) -> S3Result<Pairs> {
    checked(pairs(text)?, OBJECT_MAX)
}

/// Reads `name=value&name=value` as URLs have it.
pub(super) fn pairs(text: &str) -> S3Result<Vec<(String, String)>> {
    let pairs = text.split('&').filter(|it| !it.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        Ok((decoded(name)?, decoded(value)?))
    });
    pairs.collect()
}

fn decoded(text: &str) -> S3Result<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    let bad = || {
        s3_error!(
            InvalidArgument,
            "{text:?} is no list of name=value pairs joined by &, as URLs have it"
        )
    };
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || rest.next().and_then(|it| (it as char).to_digit(16));
                let (high, low) = (digit().ok_or_else(bad)?, digit().ok_or_else(bad)?);
                (high << 4 | low) as u8
            }
            other => other,
        });
    }
    String::from_utf8(bytes).map_err(|_| bad())
}

fn checked(pairs: Vec<(String, String)>, most: usize) -> S3Result<Pairs> {
    if pairs.len() > most {
        return Err(s3_error!(
            InvalidTag,
            "{} tags are more than {most}",
            pairs.len()
        ));
    }
    let count = pairs.len();
    let bad = pairs.iter().find(|(name, value)| {
        name.is_empty() || name.chars().count() > 128 || value.chars().count() > 256
    });
    if let Some((name, _)) = bad {
        return Err(s3_error!(
            InvalidTag,
            "tag {name:?}: a name has 1 to 128 characters, a value at most 256"
        ));
    }
    let tags: Pairs = pairs.into_iter().collect();
    match tags.len() == count {
        true => Ok(tags),
        false => Err(s3_error!(InvalidTag, "each tag is named once")),
    }
}

pub(super) fn of_set(set: TagSet, most: usize) -> S3Result<Pairs> {
    let pairs = set.into_iter();
    let pairs = pairs.map(|it| (it.key.unwrap_or_default(), it.value.unwrap_or_default()));
    checked(pairs.collect(), most)
}

pub(super) fn set_of(tags: &Pairs) -> TagSet {
    let pairs = tags.iter();
    let tag = |(name, value): (&String, &String)| Tag {
        key: Some(name.clone()),
        value: Some(value.clone()),
    };
    pairs.map(tag).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_of_tags_is_read_as_a_url_has_them() {
        let tags = of_header("a=b%20c&d+e=&%C3%A9=1").unwrap();
        let pairs: Vec<(&str, &str)> = tags.iter().map(|(a, b)| (&**a, &**b)).collect();
        assert_eq!(pairs, [("a", "b c"), ("d e", ""), ("é", "1")]);
        let many = (0..11)
            .map(|n| format!("k{n}=v"))
            .collect::<Vec<_>>()
            .join("&");
        for bad in ["a=%4", "a=%zz", "=b", "a=1&a=2", &many, "a=%ff"] {
            assert!(of_header(bad).is_err(), "{bad}");
        }
    }
}
