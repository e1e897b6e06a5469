//! Flow sizes and load as specified on the command line.

use crate::error::WorkloadError;
use crate::generate::Context;
use crate::size_csv;
use crate::sizes::SizeTable;
use crate::tables::PUBLISHED;
use pathloom_model::spec::{nearest, Spec, SpecError};

/// The flow sizes of a specification.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SizeSpec {
    choice: SizeChoice,
    scale: f64,
    most_bytes: Option<u64>,
}

/// A published table by name, or a file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SizeChoice {
    Published(&'static str),
    File(String),
}

impl SizeChoice {
    /// A published table or a name that ends in `.csv`.
    pub fn named(name: &str) -> Option<SizeChoice> {
        let file = || name.to_ascii_lowercase().ends_with(".csv").then(|| SizeChoice::File(name.to_owned()));
        let published = PUBLISHED.iter().find(|table| table.name == name);
        published.map(|table| SizeChoice::Published(table.name)).or_else(file)
    }

    /// Reads `sizes=` from a specification; the default is web search.
    pub fn take(spec: &Spec) -> Result<SizeChoice, SpecError> {
        let Some(text) = spec.text_of("sizes") else { return Ok(SizeChoice::Published(PUBLISHED[0].name)) };
        SizeChoice::named(text).ok_or_else(|| {
            let names = PUBLISHED.map(|table| table.name);
            let hint = nearest(text, &names).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            spec.error(format!("sizes: `{text}` is not one of {} or a FILE.csv{hint}", names.join(", ")))
        })
    }
}

impl SizeSpec {
    /// Reads `scale=` and `max_size=` from a specification.
    pub fn take(spec: &Spec, choice: SizeChoice) -> Result<SizeSpec, SpecError> {
        let scale = spec.number("scale", 1e-6, 1e6)?.unwrap_or(1.0);
        Ok(SizeSpec { choice, scale, most_bytes: spec.size_bytes("max_size")? })
    }

    /// The file of the table, if it is not a published one.
    pub fn file(&self) -> Option<&str> {
        match &self.choice {
            SizeChoice::Published(_) => None,
            SizeChoice::File(file) => Some(file),
        }
    }

    /// The table, and notes on it.
    pub fn table(&self, context: &Context) -> Result<(SizeTable, Vec<String>), WorkloadError> {
        let (table, note) = match &self.choice {
            SizeChoice::File(file) => size_csv::parse(file, context.text_of_file(file)?)?,
            SizeChoice::Published(name) => match SizeTable::published(name) {
                Some(table) => (table, None),
                None => return Err(context.error(format!("no size table is called `{name}`"))),
            },
        };
        let table = if self.scale == 1.0 { table } else { table.scaled(self.scale) };
        let table = self.most_bytes.into_iter().fold(table, SizeTable::cut_at);
        Ok((table, note.into_iter().collect()))
    }
}

/// Reads `load=` from a specification: offered payload per host / access rate.
pub(crate) fn take_load(spec: &Spec) -> Result<f64, SpecError> {
    Ok(spec.number("load", 0.0001, 10.0)?.unwrap_or(0.4))
}
