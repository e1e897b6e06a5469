//! Compiles the programs in C beside this file against the header and the library, and runs them. They check facts, and
//! print what other runs can be compared with.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The folder of the library: cargo has built it beside this test program.
fn library_folder() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_owned()
}

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// Compiles a program beside this file and returns its path.
fn compiled(name: &str) -> PathBuf {
    compiled_from(name, &Path::new(HERE).join("tests").join(format!("{name}.c")))
}

/// Compiles a program and returns its path. Warnings are errors.
fn compiled_from(name: &str, source: &Path) -> PathBuf {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let folder = library_folder();
    let done = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g", "-I"])
        .arg(Path::new(HERE).join("include"))
        .arg(source)
        .arg("-o")
        .arg(&program)
        .arg(format!("-L{}", folder.display()))
        .arg(format!("-Wl,-rpath,{}", folder.display()))
        .args(["-lpathloom_net", "-lm"])
        .output()
        .expect("cc compiles the programs; install a C compiler");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    program
}

fn run(program: &Path, arguments: &[&str]) -> Output {
    let done = Command::new(program).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{} {arguments:?}: {}: {said}", program.display(), done.status);
    done
}

#[test]
fn a_program_sends_receives_and_schedules() {
    run(&compiled("calls"), &[]);
}

#[test]
fn the_program_in_the_documentation_runs() {
    let page = std::fs::read_to_string(Path::new(HERE).join("../../docs/astra-sim.md")).unwrap();
    let (_, rest) = page.split_once("```c\n").unwrap();
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("example.c");
    std::fs::write(&source, rest.split_once("```").unwrap().0).unwrap();
    let said = run(&compiled_from("example", &source), &[]).stdout;
    let said = String::from_utf8(said).unwrap();
    let ns: u64 = said.strip_prefix("arrived at ").unwrap().strip_suffix(" ns\n").unwrap().parse().unwrap();
    // 1 MB at 10 Gbit/s, less than twice that.
    assert!((800_000..1_600_000).contains(&ns), "{said}");
}

/// Rings take their closed form, with every kind of transport. The same calls with the same seed give the same times, and
/// another network beside it changes nothing.
#[test]
fn rings_take_their_closed_form_over_every_transport() {
    let program = compiled("ring");
    // Payload and headers of a full frame, and bytes of answers for each frame.
    let transports = [
        ("newreno:iw=64KB,rwnd=128KB,jitter=0s", ["1448", "66", "33"]),
        ("dctcp:iw=64KB,jitter=0s", ["1448", "66", "33"]),
        ("uec", ["4086", "64", "64"]),
        ("swift", ["4086", "64", "64"]),
        ("ndp", ["4086", "64", "128"]),
        ("roce", ["4096", "66", "8.75"]),
    ];
    for (transport, [payload, header, answers]) in transports {
        for ranks in ["2", "4", "8"] {
            let [alone, beside] = ["1", "2"]
                .map(|networks| run(&program, &[transport, payload, header, answers, ranks, networks]).stdout);
            let lines = |output: &[u8]| String::from_utf8_lossy(output).lines().map(str::to_owned).collect::<Vec<_>>();
            assert_eq!(lines(&alone).len(), 1, "{transport}, {ranks} ranks");
            assert_eq!(lines(&beside), [lines(&alone), lines(&alone)].concat(), "{transport}, {ranks} ranks");
        }
    }
}
