//! HammingMesh (Hoefler et al., HammingMesh: A Network Topology for Large-Scale Deep Learning, SC 2022): boards of
//! accelerators in a mesh, and global networks for the rows and the columns of all boards.

use super::check_size;
use super::clos::add_hosts;
use super::settings::LinkKeys;
use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::{FabricBuilder, NodeId, Tier};

const MOST_HOSTS: u64 = 100_000;
const MOST_SIZE: u64 = 10_000;
/// In a drawing: the space between two boards, beside the distance of accelerators, which is 1.
const BETWEEN: f64 = 1.0;
/// In a drawing: how far the network of a row or column is beside its line, so that its cables do not cover each other.
const ASIDE: f64 = 0.5;

/// One plane of an Hx-mesh: `board=AxB` accelerators on a board, `boards=XxY` boards (§III). An accelerator forwards packets of
/// others, so it is a switch with a host; accelerators next to each other on a board have a cable.
///
/// The accelerators in a row of the machine, on all boards, have two cables of each board to the network of this row: from the
/// west and from the east edge of the board. Columns likewise have north and south edges. Here each such network is one switch,
/// as in the paper's machines of up to 64 ports. With one board in a dimension, that dimension has no such network.
pub(super) fn hamming_mesh(spec: &Spec, keys: &LinkKeys) -> Result<FabricBuilder, SpecError> {
    let [a, b] = pair(spec, "board", "2x2")?;
    let [x, y] = pair(spec, "boards", "4x4")?;
    let hosts = spec.count("hosts", 1, MOST_HOSTS)?.unwrap_or(1);
    spec.finish()?;
    let (columns, rows) = (a * x, b * y);
    check_size(spec, columns.saturating_mul(rows).saturating_mul(hosts.saturating_add(4)))?;
    let mut builder = FabricBuilder::new(spec.text());
    let mut grid = Vec::new();
    for row in 0..rows {
        for column in 0..columns {
            let node = builder.switch(format!("e{row}_{column}"), Tier::Tor, None);
            builder.place(node, (drawn(column, columns, a), -drawn(row, rows, b)));
            grid.push((node, None));
        }
    }
    add_hosts(&mut builder, &grid, hosts, keys);
    let at = |row: u64, column: u64| grid[(row * columns + column) as usize].0;
    for row in 0..rows {
        let line: Vec<NodeId> = (0..columns).map(|column| at(row, column)).collect();
        if let Some(network) = join(&mut builder, keys, &line, a, format!("r{row}")) {
            builder.place(network, (drawn(columns, columns, a), ASIDE - drawn(row, rows, b)));
        }
    }
    for column in 0..columns {
        let line: Vec<NodeId> = (0..rows).map(|row| at(row, column)).collect();
        if let Some(network) = join(&mut builder, keys, &line, b, format!("c{column}")) {
            builder.place(network, (drawn(column, columns, a) + ASIDE, -drawn(rows, rows, b)));
        }
    }
    Ok(builder)
}

/// Where a row or column is drawn: 1 apart on a board of `size`, and 0 is the middle of all.
fn drawn(number: u64, count: u64, size: u64) -> f64 {
    let at = |number: u64| number as f64 + BETWEEN * (number / size) as f64;
    at(number) - at(count - 1) / 2.0
}

/// Joins the accelerators of a row or column: neighbours on boards of `size`, and both edges of each board by a switch of this
/// name, which is returned. A board of one accelerator has both edges there.
fn join(builder: &mut FabricBuilder, keys: &LinkKeys, line: &[NodeId], size: u64, name: String) -> Option<NodeId> {
    let boards: Vec<&[NodeId]> = line.chunks(size as usize).collect();
    for next in boards.iter().flat_map(|board| board.windows(2)) {
        builder.cable(next[0], next[1], keys.switch());
    }
    if boards.len() < 2 {
        return None;
    }
    let network = builder.switch(name, Tier::Core, None);
    for board in boards {
        builder.cable(board[0], network, keys.switch());
        builder.cable(board[board.len() - 1], network, keys.switch());
    }
    Some(network)
}

/// Reads a key with two sizes.
fn pair(spec: &Spec, key: &'static str, default: &str) -> Result<[u64; 2], SpecError> {
    let text = spec.text_of(key).unwrap_or(default);
    let size = |text: &str| text.parse().ok().filter(|size| (1..=MOST_SIZE).contains(size));
    let sizes = text.split_once('x').and_then(|(one, other)| Some([size(one)?, size(other)?]));
    sizes.ok_or_else(|| spec.error(format!("{key}: `{text}` are not two sizes with x between them, such as {default}")))
}
