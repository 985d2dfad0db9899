//! How does the page show text as it was written, and how to get the same figures again?

use super::markup::{escape, put};

/// Text to be read, or copied, as it is: a configuration, a command.
#[derive(Debug, Clone)]
pub struct Code {
    title: String,
    text: String,
    command: bool,
}

/// Longer text is folded at first.
const LINES_OPEN: usize = 40;

impl Code {
    /// `text` under `title`.
    pub fn new(title: impl Into<String>, text: impl Into<String>) -> Code {
        Code {
            title: title.into(),
            text: text.into(),
            command: false,
        }
    }

    /// One long line, shown broken rather than cut.
    fn command(text: &str) -> Code {
        Code {
            command: true,
            ..Code::new("Command", text)
        }
    }

    pub(super) fn put_into(&self, page: &mut String) {
        let command = if self.command { " command" } else { "" };
        let open = if self.text.lines().count() <= LINES_OPEN {
            " open"
        } else {
            ""
        };
        put(
            page,
            format_args!(
                "<details class=\"code{command} wide\"{open}><summary>{}</summary><pre tabindex=\"0\"><code>{}</code></pre></details>\n",
                escape(&self.title),
                escape(&self.text)
            ),
        );
    }
}

/// A remark: what is modelled, what was left out, how far a figure can be trusted.
#[derive(Debug, Clone)]
pub struct Note {
    text: String,
    warning: bool,
}

impl Note {
    /// Something to know.
    pub fn new(text: impl Into<String>) -> Note {
        Note {
            text: text.into(),
            warning: false,
        }
    }

    /// Something that limits what the figures say.
    pub fn warning(text: impl Into<String>) -> Note {
        Note {
            text: text.into(),
            warning: true,
        }
    }

    pub(super) fn put_into(&self, page: &mut String) {
        let (class, word) = match self.warning {
            true => ("note warning wide", "Mind: "),
            false => ("note wide", ""),
        };
        put(
            page,
            format_args!(
                "<p class=\"{class}\"><b>{word}</b>{}</p>\n",
                escape(&self.text)
            ),
        );
    }
}

/// All it takes to get the same figures again: program, command, seed, inputs, configuration.
#[derive(Debug, Clone)]
pub struct Repeat {
    command: String,
    seed: Option<u64>,
    inputs: Vec<(String, String)>,
    configurations: Vec<Code>,
}

impl Repeat {
    /// The command that made the page.
    pub fn new(command: impl Into<String>) -> Repeat {
        Repeat {
            command: command.into(),
            seed: None,
            inputs: Vec::new(),
            configurations: Vec::new(),
        }
    }

    /// The seed it used.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Repeat {
        self.seed = Some(seed);
        self
    }

    /// A file it read, and what distinguishes this file from another: length, hash.
    #[must_use]
    pub fn input(mut self, name: impl Into<String>, identity: impl Into<String>) -> Repeat {
        self.inputs.push((name.into(), identity.into()));
        self
    }

    /// A configuration it used, in full.
    #[must_use]
    pub fn configuration(mut self, name: impl Into<String>, text: impl Into<String>) -> Repeat {
        self.configurations.push(Code::new(name, text));
        self
    }

    pub(super) fn put_into(&self, page: &mut String) {
        page.push_str("<dl class=\"repeat wide\">");
        let mut line = |name: &str, value: &str| {
            put(
                page,
                format_args!("<dt>{}</dt><dd>{}</dd>", escape(name), escape(value)),
            );
        };
        line("program", concat!("tanada ", env!("CARGO_PKG_VERSION")));
        if let Some(seed) = self.seed {
            line("seed", &seed.to_string());
        }
        for (name, identity) in &self.inputs {
            line(name, identity);
        }
        page.push_str("</dl>\n");
        Code::command(&self.command).put_into(page);
        for configuration in &self.configurations {
            configuration.put_into(page);
        }
    }
}
