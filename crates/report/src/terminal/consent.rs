//! Before data are lost: on a terminal the name of what loses them is asked for, elsewhere an option says yes.

use std::io::{self, BufRead, IsTerminal, Write};

use anyhow::Context;

use super::Refused;

/// Goes on if it is meant: `lost` says what is lost of `name`.
///
/// # Errors
/// It is not meant, or nothing says so; then nothing was changed.
pub fn ask(name: &str, lost: &str, is_said: bool) -> anyhow::Result<()> {
    if is_said {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        let why = format!("{lost}; nothing was changed. Add --yes if that is meant");
        return Err(Refused(why).into());
    }
    let (input, mut out) = (io::stdin().lock(), io::stderr());
    is_typed(name, lost, input, &mut out)
}

/// Is `name` typed?
fn is_typed(
    name: &str,
    lost: &str,
    mut input: impl BufRead,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    write!(out, "{lost}. Type {name} to go on: ")?;
    out.flush()?;
    let mut typed = String::new();
    input
        .read_line(&mut typed)
        .context("cannot read the answer")?;
    match typed.trim() == name {
        true => Ok(()),
        false => Err(Refused(format!("that is not {name}: nothing was changed")).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_name_itself_goes_on() {
        let answer = |typed: &str| {
            let mut out = Vec::new();
            let done = is_typed("vm1", "vm1 has data", typed.as_bytes(), &mut out);
            let said = String::from_utf8(out).unwrap();
            assert_eq!(said, "vm1 has data. Type vm1 to go on: ");
            done.map_err(|error| error.to_string())
        };
        assert_eq!(answer("vm1\n"), Ok(()));
        for other in ["", "\n", "yes\n", "VM1\n", "vm12\n"] {
            let said = Err("that is not vm1: nothing was changed".to_owned());
            assert_eq!(answer(other), said, "{other:?}");
        }
    }
}
