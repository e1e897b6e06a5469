//! Flow-size tables from files: one `size_bytes,cumulative probability` per line.

use crate::error::WorkloadError;
use crate::sizes::SizeTable;
use pathloom_model::spec::without_comment;

/// Reads a table. Columns are separated by a comma, a semicolon, a tab or spaces. Empty lines, comments (from a
/// `#` on) and a header are skipped. Probabilities may be percentages: then the last one is 100, and the second result is
/// a note.
pub(crate) fn parse(file: &str, text: &str) -> Result<(SizeTable, Option<String>), WorkloadError> {
    let wrong = |line: usize, problem: String| WorkloadError::Line { file: file.to_owned(), line, problem };
    let mut points: Vec<(f64, f64)> = Vec::new();
    let mut lines: Vec<usize> = Vec::new();
    let mut header_allowed = true;
    for (index, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let line = without_comment(line).trim();
        if line.is_empty() {
            continue;
        }
        let cells = line.split(|c: char| matches!(c, ',' | ';') || c.is_whitespace()).filter(|cell| !cell.is_empty());
        let cells: Vec<&str> = cells.collect();
        let numbers: Vec<Option<f64>> = cells.iter().map(|cell| cell.parse::<f64>().ok()).collect();
        match numbers[..] {
            [Some(size), Some(probability)] => {
                points.push((size, probability));
                lines.push(index + 1);
            }
            // A header contains no number.
            _ if header_allowed && numbers.iter().all(Option::is_none) && !cells.is_empty() => {}
            _ => {
                let problem = format!("`{line}` is not `size_bytes,cumulative probability`, such as 10000,0.15");
                return Err(wrong(index + 1, problem));
            }
        }
        header_allowed = false;
    }
    let last = points.last().map(|point| point.1).ok_or_else(|| WorkloadError::File {
        file: file.to_owned(),
        problem: "holds no points; expected lines of `size_bytes,cumulative probability`".to_owned(),
    })?;
    let percent = last == 100.0;
    if percent {
        points.iter_mut().for_each(|point| point.1 /= 100.0);
    }
    let note = percent.then(|| format!("{file}: cumulative probabilities are read as percentages"));
    let table = SizeTable::new(file, points).map_err(|(point, problem)| wrong(lines[point], problem))?;
    Ok((table, note))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_headers_comments_separators_and_percentages() {
        let plain = parse("t.csv", "0,0\n1000,0.5\n3000,1\n").unwrap().0;
        assert_eq!(plain.mean_bytes().round(), 1250.0);
        for text in [
            "size_bytes,cumulative\r\n0,0\r\n1000,0.5\r\n3000,1",
            "# a table\n\n0 0 # none\n 1000\t0.5\n3e3;1#all",
            "\u{feff}0, 0\n1000, 50\n3000, 100\n",
        ] {
            let (table, note) = parse("t.csv", text).unwrap();
            assert_eq!(table.points(), plain.points(), "{text}");
            assert_eq!(note.is_some(), text.contains(", 100"), "{text}");
        }
    }

    #[test]
    fn errors_name_the_line() {
        let message = |text: &str| parse("t.csv", text).unwrap_err().to_string();
        assert_eq!(message(""), "t.csv: holds no points; expected lines of `size_bytes,cumulative probability`");
        assert!(message("size,cdf\n").contains("holds no points"));
        assert!(message("0,0\n\nten,1\n").starts_with("t.csv, line 3: `ten,1` is not `size_bytes,"));
        assert!(message("1,0.5,3\n").starts_with("t.csv, line 1: "));
        assert!(message("# x\n0,0\n5,0.5\n4,1\n").starts_with("t.csv, line 4: size 4 is below"));
        assert!(message("0,0\n5,0.97\n").starts_with("t.csv, line 2: the table ends at cumulative probability 0.97"));
        assert!(message("0,0\n5,nan\n").starts_with("t.csv, line 2: "));
        assert!(message("size,cdf\nsize,cdf\n1,1").starts_with("t.csv, line 2: "));
    }
}
