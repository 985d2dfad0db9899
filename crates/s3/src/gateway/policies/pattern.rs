//! Text with wildcards, as policies and CORS rules have it.

/// Is `text` what `pattern` says? `*` is any text, also none; `?` is any one character.
pub fn matches(pattern: &str, text: &str) -> bool {
    let (mut pattern, mut text) = (pattern, text);
    // Behind the last `*`, and where what it takes may end at the earliest.
    let mut retry: Option<(&str, &str)> = None;
    loop {
        let (mut wanted, mut found) = (pattern.chars(), text.chars());
        match (wanted.next(), found.next()) {
            (None, None) => return true,
            (Some('*'), _) => {
                pattern = wanted.as_str();
                retry = Some((pattern, text));
            }
            (Some(one), Some(other)) if one == '?' || one == other => {
                (pattern, text) = (wanted.as_str(), found.as_str());
            }
            _ => {
                let Some((behind, from)) = retry else {
                    return false;
                };
                let mut rest = from.chars();
                if rest.next().is_none() {
                    return false;
                }
                (pattern, text) = (behind, rest.as_str());
                retry = Some((behind, text));
            }
        }
    }
}

/// How many bytes stand behind the first `*`: so often a text may be looked through for them.
pub fn cost(pattern: &str) -> usize {
    pattern.split_once('*').map_or(0, |it| it.1.len())
}

/// Can `pattern` be an object of `bucket`, or the bucket itself?
pub fn reaches(pattern: &str, bucket: &str) -> bool {
    let literal = pattern.split(['*', '?']).next().unwrap_or_default();
    let objects = format!("{bucket}/");
    match literal.len() == pattern.len() {
        true => pattern == bucket || pattern.starts_with(&objects),
        false => objects.starts_with(literal) || literal.starts_with(&objects),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The same, said plainly.
    fn plain(pattern: &[char], text: &[char]) -> bool {
        match (pattern.split_first(), text.split_first()) {
            (None, None) => true,
            (Some(('*', rest)), None) => plain(rest, text),
            (Some(('*', rest)), Some((_, behind))) => plain(rest, text) || plain(pattern, behind),
            (Some((one, rest)), Some((other, behind))) => {
                (*one == '?' || one == other) && plain(rest, behind)
            }
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn wildcards_match_as_a_plain_twin_does(
            pattern in "[aé*?]{0,8}", text in "[aéb]{0,8}",
        ) {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            prop_assert_eq!(matches(&pattern, &text), plain(&chars(&pattern), &chars(&text)));
        }
    }

    #[test]
    fn a_resource_of_another_bucket_reaches_nothing_here() {
        for (pattern, reaching) in [
            ("photos", true),
            ("photos/*", true),
            ("photos/a", true),
            ("*", true),
            ("pho*", true),
            ("p?otos/x", true),
            ("photos2", false),
            ("photos2/*", false),
            ("other*", false),
            ("", false),
        ] {
            assert_eq!(reaches(pattern, "photos"), reaching, "{pattern}");
        }
    }
}
