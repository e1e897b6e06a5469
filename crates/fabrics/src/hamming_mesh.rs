//! HammingMesh (Hoefler et al., HammingMesh: A Network Topology for Large-Scale Deep Learning, SC 2022): boards of
//! accelerators in a mesh, and global networks for the rows and the columns of all boards.

use super::check_size;
use super::clos::add_hosts;
use super::settings::LinkKeys;
use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::{FabricBuilder, NodeId, Tier};

const MOST_HOSTS: u64 = 100_000;
const MOST_SIZE: u64 = 10_000;

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
            grid.push((builder.switch(format!("e{row}_{column}"), Tier::Tor, None), None));
        }
    }
    add_hosts(&mut builder, &grid, hosts, keys);
    let at = |row: u64, column: u64| grid[(row * columns + column) as usize].0;
    for row in 0..rows {
        join(&mut builder, keys, &(0..columns).map(|column| at(row, column)).collect::<Vec<_>>(), a, format!("r{row}"));
    }
    for column in 0..columns {
        join(&mut builder, keys, &(0..rows).map(|row| at(row, column)).collect::<Vec<_>>(), b, format!("c{column}"));
    }
    Ok(builder)
}

/// Joins the accelerators of a row or column: neighbours on boards of `size`, and both edges of each board by a switch of this
/// name. A board of one accelerator has both edges there.
fn join(builder: &mut FabricBuilder, keys: &LinkKeys, line: &[NodeId], size: u64, name: String) {
    let boards: Vec<&[NodeId]> = line.chunks(size as usize).collect();
    for next in boards.iter().flat_map(|board| board.windows(2)) {
        builder.cable(next[0], next[1], keys.switch());
    }
    if boards.len() < 2 {
        return;
    }
    let network = builder.switch(name, Tier::Core, None);
    for board in boards {
        builder.cable(board[0], network, keys.switch());
        builder.cable(board[board.len() - 1], network, keys.switch());
    }
}

/// Reads a key with two sizes.
fn pair(spec: &Spec, key: &'static str, default: &str) -> Result<[u64; 2], SpecError> {
    let text = spec.text_of(key).unwrap_or(default);
    let size = |text: &str| text.parse().ok().filter(|size| (1..=MOST_SIZE).contains(size));
    let sizes = text.split_once('x').and_then(|(one, other)| Some([size(one)?, size(other)?]));
    sizes.ok_or_else(|| spec.error(format!("{key}: `{text}` are not two sizes with x between them, such as {default}")))
}
