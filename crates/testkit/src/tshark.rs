//! An independent judge of frames: tshark's dissectors. Without tshark, a message is printed and nothing is checked.

use std::io::Write;
use std::process::{Command, Stdio};

/// A pcap file (libpcap's classic format) of Ethernet frames.
fn pcap(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    file.extend(0xa1b2_c3d4u32.to_le_bytes());
    file.extend([2, 0, 4, 0]);
    [0u32, 0, 65_535, 1].iter().for_each(|word| file.extend(word.to_le_bytes()));
    for frame in frames {
        let len = frame.len() as u32;
        [0, 0, len, len].iter().for_each(|word: &u32| file.extend(word.to_le_bytes()));
        file.extend(frame);
    }
    file
}

/// Returns one line per frame with these fields, separated by tabs; `None` if there is no tshark.
///
/// # Panics
/// If tshark fails.
pub fn dissect(frames: &[Vec<u8>], fields: &[&str]) -> Option<Vec<String>> {
    let mut command = Command::new("tshark");
    command.args(["-r", "-", "-T", "fields"]).args(fields.iter().flat_map(|field| ["-e", field]));
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let Ok(mut child) = child else {
        eprintln!("frames are not checked, because tshark is not installed; install it with `apt-get install tshark`");
        return None;
    };
    child.stdin.take().expect("piped").write_all(&pcap(frames)).expect("tshark reads its input");
    let output = child.wait_with_output().expect("tshark ends");
    assert!(output.status.success(), "tshark: {}", output.status);
    Some(String::from_utf8(output.stdout).expect("text").lines().map(str::to_owned).collect())
}
