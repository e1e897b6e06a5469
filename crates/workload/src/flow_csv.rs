//! Flows from a file: a simple CSV, a connection matrix of htsim (`.cm`), or a file of ns-3 (`flow.txt`, FlowMonitor's
//! `.xml`).

use crate::error::WorkloadError;
use crate::flow_spec::{Draft, FlowSpec, Start};
use crate::foreign::wrong_file::foreign_text;
use crate::foreign::wrong_file::take_file;
use crate::foreign::{htsim_matrix, ns3};
use crate::generate::{payload_bytes, Context};
use crate::hosts::Hosts;
use crate::sizes::MOST_BYTES;
use crate::{poisson, quantity};
use pathloom_model::spec::{extension, without_comment, Spec, SpecError};

/// The columns if there is no header, and their possible names.
const COLUMNS: [&[&str]; 5] =
    [&["start_s", "start"], &["src", "source"], &["dst", "destination"], &["size_bytes", "size"], &["coflow"]];

/// A list of flows from a file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FlowFile {
    pub file: String,
}

/// Numbers of flows that are left out.
#[derive(Default)]
struct LeftOut {
    late: usize,
    empty: usize,
}

/// Position of each of [`COLUMNS`] in the file.
type Columns = [Option<usize>; 5];

impl FlowFile {
    /// Reads the keys of a specification.
    pub fn take(spec: &Spec) -> Result<FlowFile, SpecError> {
        Ok(FlowFile { file: take_file(spec, "flows.csv")? })
    }

    /// Whether the file is a connection matrix of htsim.
    pub fn is_htsim_matrix(&self) -> bool {
        extension(&self.file).as_deref() == Some("cm")
    }

    /// The flows. Those that start at or after the end of the run are left out.
    pub fn draft(&self, context: &Context) -> Result<Draft, WorkloadError> {
        let text = context.text_of_file(&self.file)?;
        if let Some(problem) = foreign_text(text) {
            return Err(WorkloadError::File { file: self.file.clone(), problem });
        }
        // A flow takes at least one line.
        context.refuse_too_many(text.lines().count() as f64, "split the file")?;
        if self.is_htsim_matrix() {
            return htsim_matrix::draft(&self.file, text, context);
        }
        if extension(&self.file).as_deref() == Some("xml") {
            return ns3::flow_monitor(&self.file, text, context);
        }
        if ns3::is_flow_list(text) {
            return ns3::flow_list(&self.file, text, context);
        }
        let mut flows = Vec::new();
        let mut columns: Option<Columns> = None;
        let (mut out, mut lines_with_flows) = (LeftOut::default(), 0usize);
        for (index, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
            let line = without_comment(line).trim();
            if line.is_empty() {
                continue;
            }
            let wrong = |problem| WorkloadError::Line { file: self.file.clone(), line: index + 1, problem };
            let cells: Vec<&str> = line.split(',').map(|cell| cell.trim().trim_matches('"')).collect();
            let Some(columns) = columns else {
                let (found, is_header) = find_columns(&cells).map_err(wrong)?;
                columns = Some(found);
                if !is_header {
                    lines_with_flows += 1;
                    self.add(&cells, found, context, &mut flows, &mut out).map_err(wrong)?;
                }
                continue;
            };
            lines_with_flows += 1;
            self.add(&cells, columns, context, &mut flows, &mut out).map_err(wrong)?;
        }
        if lines_with_flows == 0 {
            let problem = "holds no flows; expected lines of start_s,src,dst,size_bytes".to_owned();
            return Err(WorkloadError::File { file: self.file.clone(), problem });
        }
        let mut draft = describe(&self.file, "flows", flows, out.late, context);
        if out.empty > 0 {
            draft.notes.push(format!("flows of 0 bytes, left out: {}", out.empty));
        }
        Ok(draft)
    }

    fn add(
        &self,
        cells: &[&str],
        columns: Columns,
        context: &Context,
        flows: &mut Vec<FlowSpec>,
        out: &mut LeftOut,
    ) -> Result<(), String> {
        let flow = read_flow(cells, columns, context)?;
        if matches!(flow.start, Start::At(time) if time >= context.duration) {
            out.late += 1;
        } else if flow.size_bytes == Some(0) {
            out.empty += 1;
        } else {
            flows.push(flow);
        }
        Ok(())
    }
}

/// Finds the columns. Also returns whether these cells are a header: they are if the first one is not a number.
fn find_columns(cells: &[&str]) -> Result<(Columns, bool), String> {
    if cells[0].parse::<f64>().is_ok() {
        let columns = [0, 1, 2, 3, 4].map(|column| (column < 4 || cells.len() > 4).then_some(column));
        return Ok((columns, false));
    }
    let position = |names: &[&str]| cells.iter().position(|cell| names.contains(&cell.to_ascii_lowercase().as_str()));
    let columns = COLUMNS.map(position);
    match columns[..4].iter().position(Option::is_none) {
        None => Ok((columns, true)),
        Some(missing) => Err(format!(
            "`{}` is neither a flow nor a header with a column {}; expected start_s,src,dst,size_bytes",
            cells.join(","),
            COLUMNS[missing][0]
        )),
    }
}

fn read_flow(cells: &[&str], columns: Columns, context: &Context) -> Result<FlowSpec, String> {
    let cell = |column: usize| -> Result<&str, String> {
        let place = columns[column].unwrap_or(usize::MAX);
        let missing = || format!("has no {}; expected start_s,src,dst,size_bytes", COLUMNS[column][0]);
        cells.get(place).copied().ok_or_else(missing)
    };
    let start = cell(0)?;
    let start_s = start.parse::<f64>().ok().filter(|start_s| (0.0..=1e9).contains(start_s));
    let start_s = start_s.ok_or_else(|| format!("start_s: `{start}` is not a number of seconds from 0 on"))?;
    let host = |column: usize| context.hosts.find(cell(column)?).map_err(|e| format!("{}: {e}", COLUMNS[column][0]));
    let pair = (host(1)?, host(2)?);
    check_pair(&context.hosts, pair)?;
    let size_bytes = match cell(3)? {
        "" => None,
        "0" => Some(0),
        text => Some(read_size(text)?),
    };
    let coflow = match columns[4].and_then(|place| cells.get(place).copied()).unwrap_or("") {
        "" => None,
        text => Some(text.parse::<u32>().map_err(|_| format!("coflow: `{text}` is not a whole number"))?),
    };
    Ok(context.flow(Start::At(poisson::nanos(start_s)), pair, size_bytes, coflow))
}

/// Refuses a flow from a host to itself.
pub(crate) fn check_pair(hosts: &Hosts, (src, dst): (u32, u32)) -> Result<(), String> {
    match src == dst {
        true => Err(format!("{} sends to itself; source and destination must differ", hosts.name(src))),
        false => Ok(()),
    }
}

/// A number of bytes, at least 1.
pub(crate) fn read_size(text: &str) -> Result<u64, String> {
    let size = text.parse::<f64>().ok().filter(|size| (1.0..=MOST_BYTES).contains(size));
    size.map(|size| size.round() as u64)
        .ok_or_else(|| format!("size_bytes: `{text}` is not a number of bytes from 1 to {MOST_BYTES:e}"))
}

/// Creates the draft of flows that a file lists.
pub(crate) fn describe(file: &str, what: &str, flows: Vec<FlowSpec>, late: usize, context: &Context) -> Draft {
    let long_lived = flows.iter().filter(|flow| flow.size_bytes.is_none()).count();
    let description = format!(
        "{what} of {file}: {}, {long_lived} of them long-lived, {} offered; {}",
        quantity::count(flows.len(), "flow"),
        quantity::bytes(payload_bytes(&flows)),
        context.hosts.describe(),
    );
    let note = format!("left out: {} of the file, starting after the end of the run", quantity::count(late, "flow"));
    let notes = (late > 0).then_some(note).into_iter().collect();
    Draft { flows, description, notes, ..Draft::default() }
}
