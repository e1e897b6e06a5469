//! Fields of Python objects, read with errors that name them.

use pyo3::conversion::FromPyObjectOwned;
use pyo3::prelude::*;
use std::fmt::Display;

/// The value of a field.
pub(super) fn field<'py, T: FromPyObjectOwned<'py>>(
    given: &Bound<'py, PyAny>,
    name: &'static str,
) -> Result<T, String> {
    let value = given.getattr(name).map_err(about(name))?;
    value.extract::<T>().map_err(|error| about(name)(Into::<PyErr>::into(error)))
}

/// The value that a word in a field names.
pub(super) fn choice<T: Copy>(given: &Bound<'_, PyAny>, name: &'static str, known: &[(&str, T)]) -> Result<T, String> {
    let word: String = field(given, name)?;
    let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
    let found = known.iter().find(|(name, _)| *name == word).map(|(_, value)| *value);
    found.ok_or_else(|| format!("{name}: `{word}` is not one of {}", names.join(", ")))
}

/// Names the field in an error.
pub(super) fn about<E: Display>(name: &'static str) -> impl Fn(E) -> String {
    move |error| format!("{name}: {error}")
}

/// Representation of an object, cut off if it is long.
pub(super) fn text_of(object: &Bound<'_, PyAny>) -> String {
    const MOST: usize = 200;
    let text = object.repr().map_or_else(|_| object.get_type().to_string(), |text| text.to_string());
    if text.chars().count() <= MOST {
        return text;
    }
    text.chars().take(MOST).chain("…".chars()).collect()
}
