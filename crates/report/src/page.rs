//! How do the parts become one file?
//!
//! ```text
//! Page -> title, lead, contents -> sections -> blocks, each draws itself -> style and, if a part needs it, script
//! ```

use super::chart::Chart;
use super::experiment::Bars;
use super::heat::HeatMap;
use super::markup::{Ids, escape, put};
use super::table::{Facts, Table};
use super::text::{Code, Note, Repeat};

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// More sections than this are listed at the top.
const CONTENTS_MIN: usize = 3;

/// One self-contained HTML page.
///
/// See [the module](super) for an example.
#[derive(Debug, Clone)]
pub struct Page {
    title: String,
    lead: Vec<String>,
    facts: Option<Facts>,
    sections: Vec<Section>,
}

impl Page {
    /// An empty page.
    pub fn new(title: impl Into<String>) -> Page {
        Page {
            title: title.into(),
            lead: Vec::new(),
            facts: None,
            sections: Vec::new(),
        }
    }

    /// A paragraph beneath the title: what was done and what came out.
    #[must_use]
    pub fn lead(mut self, text: impl Into<String>) -> Page {
        self.lead.push(text.into());
        self
    }

    /// The few figures a reader comes for, in large type beneath the lead.
    #[must_use]
    pub fn facts(mut self, facts: Facts) -> Page {
        self.facts = Some(facts);
        self
    }

    /// One more section.
    #[must_use]
    pub fn section(mut self, section: Section) -> Page {
        self.sections.push(section);
        self
    }

    /// The page as text; write it to a file whose name ends in `.html`.
    ///
    /// The same parts give the same bytes.
    pub fn html(&self) -> String {
        let title = escape(&self.title);
        let mut page = String::from(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
             <meta name=\"color-scheme\" content=\"light dark\">",
        );
        put(
            &mut page,
            format_args!("<title>{title}</title><style>{STYLE}</style></head>\n<body><main>\n"),
        );
        put(&mut page, format_args!("<header><h1>{title}</h1>\n"));
        for text in &self.lead {
            put(
                &mut page,
                format_args!("<p class=\"lead\">{}</p>\n", escape(text)),
            );
        }
        page.push_str("</header>\n");
        if let Some(facts) = &self.facts {
            facts.put_into(&mut page);
        }
        if self.sections.len() > CONTENTS_MIN {
            page.push_str("<nav aria-label=\"Sections\"><ul>");
            for (n, section) in self.sections.iter().enumerate() {
                let title = escape(&section.title);
                put(
                    &mut page,
                    format_args!("<li><a href=\"#s{n}\">{title}</a></li>"),
                );
            }
            page.push_str("</ul></nav>\n");
        }
        let mut ids = Ids(0);
        for (n, section) in self.sections.iter().enumerate() {
            section.put_into(&mut page, n, &mut ids);
        }
        let version = env!("CARGO_PKG_VERSION");
        put(
            &mut page,
            format_args!(
                "<footer>Tanada {version}. This file needs nothing but itself.</footer></main>\n"
            ),
        );
        if self.needs_script() {
            put(&mut page, format_args!("<script>\n{SCRIPT}</script>\n"));
        }
        page.push_str("</body></html>\n");
        page
    }

    fn needs_script(&self) -> bool {
        let mut blocks = self.sections.iter().flat_map(|section| &section.blocks);
        blocks.any(|block| match block {
            Block::Chart(_) | Block::HeatMap(_) | Block::Code(_) | Block::Repeat(_) => true,
            Block::Table(table) => table.is_sortable(),
            Block::Text(_) | Block::Note(_) | Block::Facts(_) | Block::Bars(_) => false,
        })
    }
}

/// A part of a page with a heading.
#[derive(Debug, Clone)]
pub struct Section {
    title: String,
    blocks: Vec<Block>,
}

impl Section {
    /// An empty section.
    pub fn new(title: impl Into<String>) -> Section {
        Section {
            title: title.into(),
            blocks: Vec::new(),
        }
    }

    /// A paragraph.
    #[must_use]
    pub fn text(self, text: impl Into<String>) -> Section {
        self.put(Block::Text(text.into()))
    }

    /// One more block: a [`Table`], [`Chart`], [`HeatMap`], [`Facts`], [`Code`], [`Repeat`] or [`Note`].
    #[must_use]
    pub fn put(mut self, block: impl Into<Block>) -> Section {
        self.blocks.push(block.into());
        self
    }

    fn put_into(&self, page: &mut String, n: usize, ids: &mut Ids) {
        let title = escape(&self.title);
        put(
            page,
            format_args!("<section id=\"s{n}\"><h2>{title}</h2>\n<div class=\"blocks\">\n"),
        );
        for block in &self.blocks {
            match block {
                Block::Text(text) => {
                    put(
                        page,
                        format_args!("<p class=\"wide\">{}</p>\n", escape(text)),
                    );
                }
                Block::Note(note) => note.put_into(page),
                Block::Facts(facts) => facts.put_into(page),
                Block::Table(table) => table.put_into(page),
                Block::Chart(chart) => chart.put_into(page, ids),
                Block::Bars(bars) => bars.put_into(page),
                Block::HeatMap(map) => map.put_into(page, ids),
                Block::Code(code) => code.put_into(page),
                Block::Repeat(repeat) => repeat.put_into(page),
            }
        }
        page.push_str("</div></section>\n");
    }
}

/// What a section is made of.
#[derive(Debug, Clone)]
pub enum Block {
    /// A paragraph.
    Text(String),
    /// A remark on how far the figures go.
    Note(Note),
    /// Single figures.
    Facts(Facts),
    /// A table.
    Table(Table),
    /// Curves.
    Chart(Box<Chart>),
    /// Bars of one experiment.
    Bars(Bars),
    /// Region by time.
    HeatMap(Box<HeatMap>),
    /// Text to read or copy as it is.
    Code(Code),
    /// How to get the same figures again.
    Repeat(Repeat),
}

impl From<Note> for Block {
    fn from(note: Note) -> Block {
        Block::Note(note)
    }
}

impl From<Facts> for Block {
    fn from(facts: Facts) -> Block {
        Block::Facts(facts)
    }
}

impl From<Table> for Block {
    fn from(table: Table) -> Block {
        Block::Table(table)
    }
}

impl From<Chart> for Block {
    fn from(chart: Chart) -> Block {
        Block::Chart(Box::new(chart))
    }
}

impl From<Bars> for Block {
    fn from(bars: Bars) -> Block {
        Block::Bars(bars)
    }
}

impl From<HeatMap> for Block {
    fn from(map: HeatMap) -> Block {
        Block::HeatMap(Box::new(map))
    }
}

impl From<Code> for Block {
    fn from(code: Code) -> Block {
        Block::Code(code)
    }
}

impl From<Repeat> for Block {
    fn from(repeat: Repeat) -> Block {
        Block::Repeat(repeat)
    }
}
