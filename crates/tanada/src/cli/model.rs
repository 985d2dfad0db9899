//! `tanada model ...`: device models, with their figures and where those come from.

use std::fmt::Write as _;
use std::slice;

use clap::Subcommand;
use device::model;
use device::model::{Figure, ModelInfo};
use report::terminal::table::table;
use serde::Serialize;
use utoipa::ToSchema;

use super::show;

/// Commands about device models.
#[derive(Debug, Subcommand)]
pub enum Model {
    /// List the models with their figures and where those come from.
    #[command(visible_alias = "ls")]
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show a model with its figures and where those come from.
    #[command(visible_alias = "info")]
    Show {
        /// Its name, or another one of it.
        name: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

/// A model, for programs.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ListedModel)]
pub struct Listed {
    /// As `model = "..."` in a configuration.
    name: String,
    aliases: Vec<String>,
    /// `hdd`, `ssd` or `constant`.
    kind: String,
    about: String,
    /// Every figure with unit and source.
    figures: Vec<ListedFigure>,
}

/// A figure of a model.
#[derive(Debug, Serialize, ToSchema)]
pub struct ListedFigure {
    key: String,
    value: String,
    unit: String,
    source: String,
}

impl From<&ModelInfo> for Listed {
    fn from(info: &ModelInfo) -> Listed {
        let figure = |figure: &Figure| ListedFigure {
            key: figure.key.clone(),
            value: figure.value.clone(),
            unit: figure.unit.to_owned(),
            source: figure.source.clone(),
        };
        Listed {
            name: info.name.clone(),
            aliases: info.aliases.clone(),
            kind: info.kind.to_owned(),
            about: info.about.clone(),
            figures: info.figures.iter().map(figure).collect(),
        }
    }
}

/// Runs one of them.
pub fn run(command: Model) -> anyhow::Result<()> {
    match command {
        Model::List { json } => {
            let models = model::catalogue();
            let listed: Vec<Listed> = models.iter().map(Listed::from).collect();
            show::answer(json, &listed, || models_page(&models))
        }
        Model::Show { name, json } => {
            let models = model::catalogue();
            let known = models.iter().find(|info| info.aliases.contains(&name));
            let name = known.map_or(name.clone(), |info| info.name.clone());
            let one = show::only(models, ("model", &name), |it| &it.name)?;
            show::answer(json, &Listed::from(&one), || {
                models_page(slice::from_ref(&one))
            })
        }
    }
}

/// Every model with its figures; a source that several figures share is written once.
fn models_page(models: &[ModelInfo]) -> String {
    let mut text = String::new();
    for info in models {
        let _ = write!(text, "{} ({})", info.name, info.kind);
        if !info.aliases.is_empty() {
            let _ = write!(text, ", also {}", info.aliases.join(", "));
        }
        let _ = writeln!(text, "\n  {}", info.about);
        let mut sources: Vec<&str> = Vec::new();
        let rows: Vec<Vec<String>> = info
            .figures
            .iter()
            .map(|figure| {
                let known = sources.iter().position(|source| *source == figure.source);
                let number = known.unwrap_or_else(|| {
                    sources.push(&figure.source);
                    sources.len() - 1
                });
                // A size such as 8MiB has its unit already.
                let has_unit = figure.value.ends_with(|c: char| c.is_ascii_alphabetic());
                let unit = if has_unit { "" } else { figure.unit };
                vec![
                    figure.key.clone(),
                    format!("{} {unit}", figure.value).trim_end().to_owned(),
                    format!("[{}]", number + 1),
                ]
            })
            .collect();
        for line in table(&["FIGURE", "VALUE", "SOURCE"], &rows).lines() {
            let _ = writeln!(text, "    {line}");
        }
        for (index, source) in sources.iter().enumerate() {
            let _ = writeln!(text, "    [{}] {source}", index + 1);
        }
        text.push('\n');
    }
    text.push_str(
        "Use one with `model = \"NAME\"` in a [[device]]; a file of your own with \
         `model = \"path/to/own.toml\"`.\n",
    );
    text
}
