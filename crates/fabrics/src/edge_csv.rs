//! Lists of edges as CSV: one line per cable, or one per direction of a cable.
//!
//! The heading names the columns: `source`, `target`, and edge attributes as in other graph files, such as `rate`,
//! `capacity`, `delay`, `buffer`, `loss`. `back_rate` and similar columns describe the direction from target to source. If a
//! list has such a column, each line is a cable. Otherwise two lines of opposite directions are one cable, each with
//! its own settings. A list without a heading has two to four columns: source, target, capacity and delay. A first
//! line with numbers is not a heading. `a,b` is a heading only if the name of an attribute follows.

use super::graph::{Attributes, RawEdge, RawGraph, RawNode};
use std::collections::BTreeMap;

const SOURCE: [&str; 5] = ["source", "src", "from", "node1", "a"];
const TARGET: [&str; 5] = ["target", "dst", "to", "node2", "b"];
/// The columns of a list without a heading.
const DEFAULT_COLUMNS: [&str; 4] = ["source", "target", "capacity", "delay"];
/// All columns that are read, except source and target.
const KNOWN_COLUMNS: [&str; 14] = [
    "rate_bps",
    "rate",
    "LinkSpeedRaw",
    "capacity",
    "bandwidth",
    "bw",
    "speed",
    "LinkSpeed",
    "label",
    "delay_ps",
    "delay",
    "buffer_packets",
    "buffer",
    "loss",
];

/// Parses a list of edges. An error says what is wrong and in which line.
pub(super) fn parse(text: &str) -> Result<RawGraph, String> {
    let lines: Vec<&str> = text.lines().map(|line| pathloom_model::spec::without_comment(line).trim_end()).collect();
    let first = lines.iter().find(|line| !line.is_empty()).copied().unwrap_or_default();
    let separator = [b'\t', b';'].into_iter().find(|&byte| first.contains(char::from(byte))).unwrap_or(b',');
    let mut reader = csv::ReaderBuilder::new();
    reader.has_headers(false).delimiter(separator).trim(csv::Trim::All).flexible(true);
    let mut graph = RawGraph::default();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    let mut columns: Option<Columns> = None;
    for record in reader.from_reader(lines.join("\n").as_bytes()).records() {
        let record = record.map_err(|error| format!("is not CSV: {error}"))?;
        let line = record.position().map_or(0, csv::Position::line);
        let cells: Vec<&str> = record.iter().collect();
        let Some(known) = &columns else {
            let (known, is_heading) = Columns::of(&cells).map_err(|problem| format!("line {line}: {problem}"))?;
            graph.directed = !known.has_back();
            graph.notes.extend(known.notes(is_heading));
            if !is_heading {
                graph.edges.push(known.edge(&cells, line, &mut places, &mut graph.nodes)?);
            }
            columns = Some(known);
            continue;
        };
        graph.edges.push(known.edge(&cells, line, &mut places, &mut graph.nodes)?);
    }
    if columns.is_none() {
        return Err(format!("is empty; expected a line per cable, such as {}", DEFAULT_COLUMNS.join(",")));
    }
    Ok(graph)
}

/// The meaning of the columns.
struct Columns {
    source: usize,
    target: usize,
    /// Name of the attribute in each column; `None` for a column that is not read.
    names: Vec<Option<String>>,
    ignored: Vec<String>,
}

impl Columns {
    /// Returns the columns that the first line describes, and whether it is a heading.
    fn of(cells: &[&str]) -> Result<(Columns, bool), String> {
        let place =
            |names: [&str; 5]| cells.iter().position(|cell| names.contains(&cell.to_ascii_lowercase().as_str()));
        // `a,b,10Mbps` is a cable between a and b.
        let named = |from: usize, to: usize| {
            let mut others = cells.iter().enumerate().filter(|&(place, _)| place != from && place != to);
            let are_values = others.clone().any(|(_, cell)| cell.starts_with(|first: char| first.is_ascii_digit()));
            let are_letters = cells[from].len() == 1 && cells[to].len() == 1;
            !are_values && (!are_letters || others.any(|(_, cell)| attribute(cell).is_some()))
        };
        let places = match (place(SOURCE), place(TARGET)) {
            (Some(source), Some(target)) if !named(source, target) => (None, None),
            places => places,
        };
        let (source, target) = match places {
            (Some(source), Some(target)) => (source, target),
            (None, None) if (2..=DEFAULT_COLUMNS.len()).contains(&cells.len()) => {
                let names =
                    (0..cells.len()).map(|place| (place >= 2).then(|| DEFAULT_COLUMNS[place].to_owned())).collect();
                return Ok((Columns { source: 0, target: 1, names, ignored: Vec::new() }, false));
            }
            (None, None) => {
                return Err(format!("`{}` is not a heading; expected source,target,rate,delay", cells.join(",")))
            }
            (Some(_), None) => return Err("the heading has no column target".into()),
            (None, Some(_)) => return Err("the heading has no column source".into()),
        };
        let mut ignored = Vec::new();
        let mut names: Vec<Option<String>> = Vec::new();
        for (place, cell) in cells.iter().enumerate() {
            let name = attribute(cell).filter(|_| place != source && place != target);
            if name.is_some() && names.contains(&name) {
                return Err(format!("the heading has two columns {cell}"));
            }
            if name.is_none() && place != source && place != target {
                ignored.push((*cell).to_owned());
            }
            names.push(name);
        }
        Ok((Columns { source, target, names, ignored }, true))
    }

    fn has_back(&self) -> bool {
        self.names.iter().flatten().any(|name| name.starts_with("back_"))
    }

    fn notes(&self, has_heading: bool) -> Option<String> {
        if !has_heading {
            let count = self.names.len();
            return Some(format!(
                "the list has no heading; its columns are taken as {}",
                DEFAULT_COLUMNS[..count].join(", ")
            ));
        }
        (!self.ignored.is_empty()).then(|| format!("columns that are not read: {}", self.ignored.join(", ")))
    }

    fn edge(
        &self,
        cells: &[&str],
        line: u64,
        places: &mut BTreeMap<String, usize>,
        nodes: &mut Vec<RawNode>,
    ) -> Result<RawEdge, String> {
        if cells.len() != self.names.len() {
            let (found, expected) = (cells.len(), self.names.len());
            return Err(format!("line {line}: has {found} cells; the first line has {expected}"));
        }
        let mut node = |column: usize, what: &str| {
            let id = cells[column];
            if id.is_empty() {
                return Err(format!("line {line}: the {what} is empty; expected the name of a node"));
            }
            Ok(*places.entry(id.to_owned()).or_insert_with(|| {
                nodes.push(RawNode { id: id.to_owned(), attributes: Attributes::new() });
                nodes.len() - 1
            }))
        };
        let (source, target) = (node(self.source, "source")?, node(self.target, "target")?);
        let named = self.names.iter().zip(cells).filter(|(_, cell)| !cell.is_empty());
        let mut attributes: Attributes =
            named.filter_map(|(name, cell)| Some((name.clone()?, (*cell).to_owned()))).collect();
        attributes.insert(super::graph::LINE.to_owned(), line.to_string());
        Ok(RawEdge { source, target, attributes })
    }
}

/// Returns the known name of an attribute, in any case of letters; `None` for an attribute that is not read.
fn attribute(cell: &str) -> Option<String> {
    let lower = cell.to_ascii_lowercase();
    let (prefix, name) = match lower.strip_prefix("back_") {
        Some(name) => ("back_", name),
        None => ("", lower.as_str()),
    };
    let known = KNOWN_COLUMNS.iter().find(|known| known.to_ascii_lowercase() == name)?;
    Some(format!("{prefix}{known}"))
}

#[cfg(test)]
mod tests {
    use crate::{fabric_from_file_text, FileFabric};
    use pathloom_model::LinkSettings;

    fn read(text: &str) -> FileFabric {
        fabric_from_file_text("edges.csv:hosts=1", text).unwrap()
    }

    fn settings(of: &FileFabric, from: &str, to: &str) -> LinkSettings {
        let [from, to] = [from, to].map(|name| of.fabric.find(name).unwrap());
        of.fabric.link(of.fabric.link_between(from, to).unwrap()).settings
    }

    #[test]
    fn opposite_lines_make_a_cable_with_both_rates() {
        let of = read("source,target,rate,delay\nx,y,10Gbps,1ms\ny,x,2.5Gbps,3ms\n\n# a note\ny,\"z z\",1Gbps,2us\n");
        assert_eq!(of.fabric.switch_cables().count(), 2);
        let (there, back) = (settings(&of, "x", "y"), settings(&of, "y", "x"));
        assert_eq!((there.rate_bps, back.rate_bps), (10_000_000_000, 2_500_000_000));
        assert_eq!((there.delay_ps, back.delay_ps), (1_000_000_000, 3_000_000_000));
        assert_eq!(settings(&of, "y", "z_z"), settings(&of, "z_z", "y"));
        let notes = of.notes.join("\n");
        assert!(notes.contains("edges without an opposite edge, used in both directions: 1"), "{notes}");
    }

    #[test]
    fn a_line_with_back_columns_is_a_cable() {
        let of = read("From;To;Capacity;Back_Capacity;Buffer;fibre\nx;y;1000;155;7;G.652\ny;x;34;;8;\n");
        assert_eq!(of.fabric.switch_cables().count(), 2, "the second line is another cable");
        assert_eq!(settings(&of, "x", "y").rate_bps, 1_000_000_000);
        assert_eq!(settings(&of, "y", "x").rate_bps, 155_000_000);
        let notes = of.notes.join("\n");
        assert!(notes.contains("columns that are not read: fibre"), "{notes}");
        assert!(notes.contains("rates without a unit, taken as Mbit/s: 3"), "{notes}");
    }

    #[test]
    fn a_missing_heading_is_noted() {
        let of = read("1\t2\t100\n2\t3\t200\n");
        assert_eq!(settings(&of, "n2", "n3").rate_bps, 200_000_000);
        assert!(of.notes.join("\n").contains("its columns are taken as source, target, capacity"), "{:?}", of.notes);
    }

    #[test]
    fn a_cable_between_a_and_b_is_not_a_heading() {
        for (first, rest) in [("a,b,10Mbps,1ms", "b,c,10Mbps,1ms"), ("a,b", "b,c"), ("from,to,100", "to,x,100")] {
            let of = read(&format!("{first}\n{rest}\n"));
            assert_eq!(of.fabric.switch_cables().count(), 2, "{first}");
        }
        for heading in ["a,b,rate", "A,B,fibre,Rate", "from,to,fibre"] {
            let row = heading.split(',').map(|name| if name.eq_ignore_ascii_case("rate") { "10Mbps" } else { name });
            let of = read(&format!("{heading}\n{}\n", row.collect::<Vec<_>>().join(",").replace(['a', 'A'], "x")));
            assert_eq!(of.fabric.switch_cables().count(), 1, "{heading}");
        }
    }

    #[test]
    fn loss_is_read_for_each_direction() {
        let of = read("source,target,rate,loss,back_loss\nx,y,10Mbps,0.001,0\n");
        assert_eq!(of.fabric.lossy_links().iter().map(|&(_, loss)| loss).collect::<Vec<_>>(), [1_000_000]);
        assert!(!of.notes.iter().any(|note| note.contains("not read")), "{:?}", of.notes);
        let both = read("source,target,rate,loss\nx,y,10Mbps,0.1\ny,x,10Mbps,0.2\n");
        assert_eq!(both.fabric.lossy_links().len(), 2);
    }

    #[test]
    fn round_trip_uses_the_rate_of_each_direction() {
        let of = read("source,target,rate,back_rate,delay\nx,y,10Mbps,2.5Mbps,0s\n");
        // Four times the link of a host (1 Gbit/s and 1 us), and the cable once in each direction.
        let (idle, _) = crate::round_trip_ps(&of.fabric).unwrap();
        let frame_us = 1514.0 * 8.0;
        let expected_us = frame_us / 10.0 + frame_us / 2.5 + 4.0 * (frame_us / 1000.0 + 1.0);
        assert!((idle as f64 / 1e6 - expected_us).abs() < 0.01, "{idle} {expected_us}");
    }

    #[test]
    fn errors_name_the_line() {
        for (text, words) in [
            ("", "is empty"),
            ("# nothing\n\n", "is empty"),
            ("source,target\n", "no nodes"),
            ("source,rate\nx,1Gbps\n", "line 1: the heading has no column target"),
            ("target,rate\nx,1Gbps\n", "line 1: the heading has no column source"),
            ("a,b,rate,rate\nx,y,1Gbps,2Gbps\n", "line 1: the heading has two columns rate"),
            ("one,two,3,4,5\n", "line 1: `one,two,3,4,5` is not a heading"),
            ("source,target,rate\nx,y\n", "line 2: has 2 cells; the first line has 3"),
            ("source,target,rate\nx,,1Gbps\n", "line 2: the target is empty"),
            ("source,target,rate\nx,y,1Gbps\ny,z,fast\n", "line 3: rate: `fast` is not a rate"),
            ("source,target,delay\nx,y,5\n", "line 2: delay: `5`"),
            ("source,target,buffer\nx,y,-1\n", "line 2: buffer: \"-1\" is not a whole number"),
            ("x,x,5\n", "the fabric has 1 host"),
        ] {
            let found = fabric_from_file_text("edges.csv:hosts=1", text).map(|of| of.notes.join("; "));
            let found = found.unwrap_or_else(|error| error.to_string());
            assert!(found.contains(words), "{words}: {found}");
        }
    }
}
