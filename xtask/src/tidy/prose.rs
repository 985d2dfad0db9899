//! How do figures and sentences stand on a generated page?

/// Characters in a line of prose.
const LINE_CHARS: usize = 120;

/// At most four digits that say something, thousands set apart.
pub fn number(value: f64) -> String {
    let decimals = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.decimals$}");
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    let (sign, digits) = match whole.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", whole),
    };
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    match part.trim_end_matches('0') {
        "" => format!("{sign}{grouped}"),
        part => format!("{sign}{grouped}.{part}"),
    }
}

/// In lines as long as pages have them.
pub fn wrapped(text: &str) -> String {
    let (mut out, mut length) = (String::new(), 0);
    // What stands in backticks stays whole.
    let parts = text.split('`').enumerate();
    let kept: Vec<String> = parts
        .map(|(at, part)| match at % 2 {
            0 => part.to_owned(),
            _ => part.replace(' ', "\u{0}"),
        })
        .collect();
    for word in kept.join("`").split_whitespace() {
        let more = word.chars().count();
        if length > 0 && length + 1 + more > LINE_CHARS {
            out.push('\n');
            length = 0;
        } else if length > 0 {
            out.push(' ');
            length += 1;
        }
        out.push_str(word);
        length += more;
    }
    out.replace('\0', " ")
}

/// With a capital first letter.
pub fn capital(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().chain(chars).collect(),
        None => String::new(),
    }
}
